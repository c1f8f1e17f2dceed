package team_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

// Two relays that come and go, a host that loses answers and is down now and then,
// events and replies that come at any time and more than once, and sweeps: no signal's
// state goes back, each comes to the host once and in order, and each ends as delivered
// or acked.
func TestSignalStatesOnlyGoForward(t *testing.T) {
	rank := map[team.SignalState]int{team.SignalQueued: 0, team.SignalOffered: 1, team.SignalDelivered: 2, team.SignalAcked: 3}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		c, store := newTeam(t, nil)
		var mu sync.Mutex // guards random
		random := rand.New(rand.NewPCG(seed, 0))
		n := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return random.IntN(n)
		}
		nap := func(ms int) { time.Sleep(time.Duration(1+n(ms)) * time.Millisecond) }
		ctx, stop := context.WithCancel(t.Context())
		var all, workers sync.WaitGroup
		host := new(notebook)
		fault := func() error {
			if n(3) == 0 {
				return errors.New("connection reset")
			}
			return nil
		}
		host.fail = func(int, team.Note) error { return fault() }
		host.lose = func(int) error { return fault() }
		for range 2 {
			other, err := team.OpenSignals(t.Context(), store, nil)
			require.NoError(t, err)
			all.Go(func() {
				for ctx.Err() == nil {
					life, die := context.WithTimeout(ctx, time.Duration(1+n(5000))*time.Millisecond)
					err := other.Relay(life, host, "ses_lead", &team.RelayOptions{Lease: time.Second, Pause: 10 * time.Millisecond, Tries: team.NoLimit})
					die()
					if life.Err() == nil {
						t.Errorf("Relay = %v before its time", err)
					}
				}
			})
		}
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := c.Sweep(ctx, &team.SignalSweepOptions{TTL: time.Nanosecond}); err != nil && ctx.Err() == nil {
					t.Errorf("Sweep = %v", err)
				}
				nap(200)
			}
		})
		const signals = 40
		sent := make([]team.Sent, signals)
		for i := range sent {
			sent[i] = send(t, c, "tester", "lead", note(fmt.Sprint(i)))
			workers.Go(func() { // what becomes of it
				last := 0
				for !t.Failed() {
					st, err := c.Status(as(ctx, "tester"), sent[i])
					if err != nil {
						t.Errorf("Status of %d = %v", i, err)
						return
					}
					now, ok := rank[st.State]
					if !ok || now < last {
						t.Errorf("signal %d is %s (%s), and was of rank %d before", i, st.State, st.Evidence, last)
					}
					if last = now; last == rank[team.SignalAcked] || last == rank[team.SignalDelivered] && i%2 == 0 {
						return
					}
					nap(300)
				}
			})
			workers.Go(func() { // its events and its receiver
				for !t.Failed() {
					nap(500)
					id := ""
					host.mu.Lock()
					for _, note := range host.notes {
						if note.Description == fmt.Sprint(i) {
							id = note.ID
						}
					}
					host.mu.Unlock()
					if id == "" {
						continue
					}
					_, err := c.Observe(ctx, inboxEvent("delivered", id))
					if err == nil && i%2 == 1 {
						nap(500)
						if err = c.AckID(as(ctx, "lead"), sent[i].ID); err == nil {
							_, err = c.Observe(ctx, inboxEvent("delivered", id)) // late
						}
					}
					if err != nil {
						t.Errorf("evidence of %d = %v", i, err)
					}
					return
				}
			})
			nap(50)
		}
		workers.Wait()
		time.Sleep(time.Minute) // for the relays to come to the end
		stop()
		all.Wait()
		require.Len(t, host.notes, signals)
		for i, got := range host.summaries() {
			require.Equal(t, fmt.Sprint(i), got)
		}
		require.Empty(t, pending(t, c, "lead"))
	})
}

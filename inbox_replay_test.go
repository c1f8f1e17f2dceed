package team_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// Same key again: the first admission is returned, also when by then it would come
// too late.
func TestSignalReplayAfterItsTime(t *testing.T) {
	for what, end := range map[string]func(*testing.T, *team.SignalChannel){
		"its expiry is over":  func(*testing.T, *team.SignalChannel) { time.Sleep(time.Hour) },
		"its epoch is fenced": func(t *testing.T, c *team.SignalChannel) { require.NoError(t, c.Fence(t.Context(), "run-1")) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, store := newTeam(t, nil)
				s := note("lunch is ready")
				s.Key, s.Epoch, s.Expires = "lunch", "run-1", time.Now().Add(time.Hour)
				first := send(t, c, "tester", "lead", s)
				all, err := c.SendAll(as(t.Context(), "tester"), []string{"lead", "reviewer"}, s)
				require.NoError(t, err)
				end(t, c)
				again := send(t, c, "tester", "lead", s)
				require.Equal(t, []any{first.ID, first.To, first.Seq, true}, []any{again.ID, again.To, again.Seq, again.Replayed})
				both, err := c.SendAll(as(t.Context(), "tester"), []string{"lead", "reviewer"}, s)
				require.NoError(t, err)
				require.Equal(t, []team.SignalID{all[0].ID, all[1].ID}, []team.SignalID{both[0].ID, both[1].ID})

				refused := func(why error, from team.Role, to []string, change func(*team.Signal)) {
					t.Helper()
					s := s
					change(&s)
					_, err := c.SendAll(as(t.Context(), from), to, s)
					require.ErrorIs(t, err, why)
				}
				late := team.ErrFenced
				if what == "its expiry is over" {
					late = team.ErrInvalid
				}
				lead := []string{"lead"}
				refused(team.ErrConflict, "tester", lead, func(s *team.Signal) { s.Body = "with a difference" })
				refused(late, "tester", lead, func(s *team.Signal) { s.Key = "" })
				refused(late, "tester", lead, func(s *team.Signal) { s.Key = "another" })
				refused(late, "reviewer", lead, func(*team.Signal) {})
				refused(late, "tester", []string{"lead", "architect"}, func(*team.Signal) {})
				refused(team.ErrUnknownRecipient, "tester", []string{"nobody"}, func(*team.Signal) {})
				n := 0
				for range store.Items(t.Context(), "inbox/ses_lead", team.ListOptions{Settled: true}) {
					n++
				}
				require.Equal(t, 1, n, "nothing was added")
			})
		})
	}
}

// An answer that was lost after the commit: the retry finds the first, and the trail says so.
func TestSignalRetryAfterALostAnswer(t *testing.T) {
	var lines []string
	store := &lostAnswers{Store: new(memstore.Store)}
	c, err := team.OpenSignals(t.Context(), store, &team.SignalOptions{Trace: func(_ context.Context, e team.TraceEvent) {
		lines = append(lines, fmt.Sprint(e.Op, " ", e.Outcome))
	}})
	require.NoError(t, err)
	require.NoError(t, c.Enrol(t.Context(), team.Member{Session: "ses_lead", Role: "lead"}))
	s := note("x")
	s.Key = "once"
	store.lose = true
	_, err = c.Send(as(t.Context(), "tester"), "lead", s)
	require.ErrorIs(t, err, team.ErrUnknownOutcome)
	store.lose = false
	again := send(t, c, "tester", "lead", s)
	require.True(t, again.Replayed)
	require.Equal(t, []string{"x"}, pending(t, c, "lead"), "one row")
	require.Equal(t, []string{"inbox.enrol ok", "inbox.send unknown", "inbox.send replayed"}, lines)
}

type lostAnswers struct {
	*memstore.Store
	lose bool
}

func (s *lostAnswers) Append(ctx context.Context, q string, items []team.Item, max int) ([]team.Receipt, error) {
	receipts, err := s.Store.Append(ctx, q, items, max)
	if err == nil && s.lose {
		return nil, fmt.Errorf("%w: connection reset", team.ErrUnknownOutcome)
	}
	return receipts, err
}

// Inboxes are known by session, not by row: what is carried over to a fresh store, which
// numbers anew, is the same signals in the same order.
func TestSignalsSurviveARebuild(t *testing.T) {
	c, store := newTeam(t, nil)
	for i := range 10 {
		send(t, c, "tester", []string{"lead", "reviewer"}[i%2], note(fmt.Sprint(i)))
	}
	fresh := new(memstore.Store)
	for key, err := range store.Keys(t.Context(), "", "") {
		require.NoError(t, err)
		r, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		_, err = fresh.Put(t.Context(), key, r.Value, "")
		require.NoError(t, err)
	}
	_, err := fresh.Append(t.Context(), "inbox/ses_reviewer", []team.Item{{ID: "row that shifts all numbers"}}, 0)
	require.NoError(t, err)
	for _, queue := range []string{"inbox/ses_reviewer", "inbox/ses_lead"} {
		for item, err := range store.Items(t.Context(), queue, team.ListOptions{}) {
			require.NoError(t, err)
			_, err = fresh.Append(t.Context(), queue, []team.Item{item.Item}, 0)
			require.NoError(t, err)
		}
	}
	rebuilt, err := team.OpenSignals(t.Context(), fresh, nil)
	require.NoError(t, err)
	require.Equal(t, c.Secret(), rebuilt.Secret(), "frames verify still")
	for _, role := range []team.Role{"lead", "reviewer"} {
		require.Len(t, pending(t, c, role), 5)
		require.Equal(t, pending(t, c, role), pending(t, rebuilt, role))
		got, err := rebuilt.Receive(as(t.Context(), role), &team.ReceiveOptions{Max: 9})
		require.NoError(t, err)
		require.Len(t, got, 5)
		require.NoError(t, rebuilt.Ack(as(t.Context(), role), got...))
	}
}

// Every success is there for everybody, at once and until it is settled, sweep or no sweep.
func TestSignalSuccessIsNeverTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, store := newTeam(t, nil)
		other, err := team.OpenSignals(t.Context(), store, nil)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			for ctx.Err() == nil {
				if _, err := other.Sweep(ctx, &team.SignalSweepOptions{TTL: time.Nanosecond}); err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				time.Sleep(100 * time.Millisecond)
			}
			done <- nil
		}()
		var want []string
		for i := range 100 {
			send(t, c, "tester", "lead", note(fmt.Sprint(i)))
			want = append(want, fmt.Sprint(i))
			require.Equal(t, want, pending(t, other, "lead"))
			time.Sleep(600 * time.Millisecond)
		}
		stop()
		<-done
		require.Equal(t, want, pending(t, c, "lead"))
	})
}

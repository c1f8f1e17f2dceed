package team_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// burials keeps the lines of dead letters.
type burials struct {
	mu    sync.Mutex
	lines []string
}

func (b *burials) record(_ context.Context, e team.TraceEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.Op == "inbox.bury" {
		b.lines = append(b.lines, fmt.Sprint(e.ID, " ", e.Target, " ", e.Outcome, " ", e.Reason))
	}
}

// done returns the lines of those that were made.
func (b *burials) done() (lines []string) {
	for _, line := range b.lines {
		if strings.Contains(line, " dead ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// die receives the next signal of the lead and never settles it.
func die(t *testing.T, c *team.SignalChannel, opts *team.ReceiveOptions) team.Received {
	t.Helper()
	got, err := c.Receive(as(t.Context(), "lead"), opts)
	require.NoError(t, err)
	require.NotEmpty(t, got)
	time.Sleep(time.Minute + time.Second)
	return got[0]
}

// Each dead letter leaves its line, also the one that was handed out too often.
func TestSignalDeadLetterLeavesALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trail := new(burials)
		c, store := newTeam(t, &team.SignalOptions{MaxAttempts: 3, Lease: time.Minute, Trace: trail.record})
		poison := send(t, c, "tester", "lead", note("poison"))
		s := note("late")
		s.Epoch = "run-1"
		late := send(t, c, "tester", "lead", s)
		require.NoError(t, c.Fence(t.Context(), "run-1"))
		_, err := store.Append(t.Context(), "inbox/ses_lead", []team.Item{{ID: "sig_x", Data: []byte("{")}}, 0)
		require.NoError(t, err)
		for i := 1; i <= 3; i++ {
			require.Equal(t, i, die(t, c, nil).Attempt)
		}
		for i := range 3 {
			send(t, c, "tester", "lead", note(fmt.Sprint(i)))
		}
		got, err := c.Receive(as(t.Context(), "lead"), &team.ReceiveOptions{Max: 9})
		require.NoError(t, err)
		require.Len(t, got, 3)
		for i, r := range got {
			require.Equal(t, fmt.Sprint(i), r.Summary, "the order is kept behind a dead head")
		}
		require.ElementsMatch(t, []string{
			string(poison.ID) + " ses_lead dead attempts spent",
			string(late.ID) + " ses_lead dead fenced",
			"sig_x ses_lead dead damaged",
		}, trail.lines)
		for q, err := range c.DeadLetters(as(t.Context(), "lead")) {
			require.NoError(t, err)
			want := map[team.SignalID]int{poison.ID: 3}[q.ID] // the others were never handed out
			require.Equal(t, want, q.Attempt, "a claim to bury is no hand-out: %s", q.Evidence)
		}
		require.Contains(t, state(t, c, poison).Evidence, "3 times")
		require.Contains(t, state(t, c, late).Evidence, "late, fenced")
	})
}

// A burial that is cut short, by a fault or a kill, is made again.
func TestSignalBurialIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trail := new(burials)
		store := &failingSettles{Store: new(memstore.Store)}
		open := func() *team.SignalChannel {
			c, err := team.OpenSignals(t.Context(), store, &team.SignalOptions{MaxAttempts: 1, Lease: time.Minute, Trace: trail.record})
			require.NoError(t, err)
			return c
		}
		c := open()
		for _, role := range []team.Role{"lead", "tester"} {
			require.NoError(t, c.Enrol(t.Context(), team.Member{Session: "ses_" + team.SessionID(role), Role: role}))
		}
		poison := send(t, c, "tester", "lead", note("poison"))
		die(t, c, nil)
		store.fail = errors.New("disk on fire")
		_, err := c.Receive(as(t.Context(), "lead"), nil)
		require.ErrorIs(t, err, store.fail)
		require.NotEqual(t, team.SignalDead, state(t, c, poison).State)
		store.fail = nil
		// Killed between the claim and the burial: its claim stays until the lease ends.
		time.Sleep(time.Minute + time.Second)
		_, err = store.Claim(t.Context(), "inbox/ses_lead", team.ClaimOptions{Max: 1, Lease: time.Minute})
		require.NoError(t, err)
		time.Sleep(time.Minute + time.Second)

		trail.lines = nil
		other := open() // another process
		none, err := other.Receive(as(t.Context(), "lead"), &team.ReceiveOptions{NoWait: true})
		require.NoError(t, err)
		require.Empty(t, none)
		require.Equal(t, []any{team.SignalDead, 1}, []any{state(t, c, poison).State, state(t, c, poison).Attempt})
		require.Contains(t, state(t, c, poison).Evidence, "handed out 1 times", "whatever the burial took")
		require.Equal(t, []string{string(poison.ID) + " ses_lead dead attempts spent"}, trail.lines)
	})
}

type failingSettles struct {
	*memstore.Store
	fail error
}

func (f *failingSettles) Settle(ctx context.Context, queue string, s ...team.Settlement) error {
	if f.fail != nil {
		return f.fail
	}
	return f.Store.Settle(ctx, queue, s...)
}

// A burial does not hang on the caller, who may give up the moment it has claimed.
func TestSignalBurialOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &leavingStore{Store: new(memstore.Store)}
		c, err := team.OpenSignals(t.Context(), store, &team.SignalOptions{MaxAttempts: 1, Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, c.Enrol(t.Context(), team.Member{Session: "ses_lead", Role: "lead"}))
		poison := send(t, c, "tester", "lead", note("poison"))
		die(t, c, nil)
		ctx, cancel := context.WithCancel(as(t.Context(), "lead"))
		store.claimed = cancel
		_, err = c.Receive(ctx, nil)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, team.SignalDead, state(t, c, poison).State)
	})
}

// Who gives up the moment the claim is made has spent no attempt, or what nobody ever saw
// would be a dead letter for having been handed out.
func TestSignalClaimOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &leavingStore{Store: new(memstore.Store)}
		c, err := team.OpenSignals(t.Context(), store, &team.SignalOptions{MaxAttempts: 1, Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, c.Enrol(t.Context(), team.Member{Session: "ses_lead", Role: "lead"}))
		s := note("x")
		s.Epoch = "run-1" // which has to be asked for after the claim
		send(t, c, "tester", "lead", s)
		ctx, cancel := context.WithCancel(as(t.Context(), "lead"))
		store.claimed = cancel
		got, err := c.Receive(ctx, nil)
		require.NoError(t, err, "a late answer is worth more than none")
		require.Len(t, got, 1)
		require.NoError(t, c.Ack(as(t.Context(), "lead"), got...))
	})
}

// A lease that is over before a burial is made: it is made all the same, and what lies
// behind it comes.
func TestSignalBurialOutlastsAShortLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trail := new(burials)
		store := &lateSettles{Store: new(memstore.Store)}
		c, err := team.OpenSignals(t.Context(), store, &team.SignalOptions{MaxAttempts: 1, Lease: 10 * time.Millisecond, Trace: trail.record})
		require.NoError(t, err)
		require.NoError(t, c.Enrol(t.Context(), team.Member{Session: "ses_lead", Role: "lead"}))
		poison := send(t, c, "tester", "lead", note("poison"))
		_, err = store.Append(t.Context(), "inbox/ses_lead", []team.Item{{ID: "sig_x", Data: []byte("{")}}, 0)
		require.NoError(t, err)
		die(t, c, nil)
		send(t, c, "tester", "lead", note("good"))
		store.settles = 50 * time.Millisecond
		ctx, cancel := context.WithTimeout(as(t.Context(), "lead"), time.Minute)
		defer cancel()
		got, err := c.Receive(ctx, nil)
		require.NoError(t, err)
		require.Equal(t, "good", got[0].Summary)
		require.Equal(t, team.SignalDead, state(t, c, poison).State)
		require.ElementsMatch(t, []string{string(poison.ID) + " ses_lead dead attempts spent", "sig_x ses_lead dead damaged"}, trail.done())
	})
}

// A lateSettles is a store that takes its time to settle.
type lateSettles struct {
	*memstore.Store
	settles time.Duration
}

func (s *lateSettles) Settle(ctx context.Context, queue string, list ...team.Settlement) error {
	time.Sleep(s.settles)
	return s.Store.Settle(ctx, queue, list...)
}

type leavingStore struct {
	*memstore.Store
	claimed func()
}

func (s *leavingStore) Claim(ctx context.Context, q string, o team.ClaimOptions) ([]team.Claim, error) {
	claims, err := s.Store.Claim(ctx, q, o)
	if s.claimed != nil {
		s.claimed()
	}
	return claims, err
}

// A dead head that no budget could hold does not block who has a small one.
func TestSignalDeadHeadNeedsNoBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trail := new(burials)
		c, _ := newTeam(t, &team.SignalOptions{MaxAttempts: 1, Lease: time.Minute, Trace: trail.record})
		lead := as(t.Context(), "lead")
		big := note("poison")
		big.Body = strings.Repeat("word ", 300)
		send(t, c, "tester", "lead", big)
		die(t, c, nil)
		send(t, c, "tester", "lead", note("small"))
		got, err := c.Receive(lead, &team.ReceiveOptions{Budget: 200})
		require.NoError(t, err)
		require.Equal(t, "small", got[0].Summary)
		require.Len(t, trail.lines, 1)
		require.NoError(t, c.Ack(lead, got...))

		// One that is alive does, and asking spends none of its attempts.
		big.Summary = "alive"
		alive := send(t, c, "tester", "lead", big)
		for range 5 {
			_, err = c.Receive(lead, &team.ReceiveOptions{Budget: 200})
			limit, ok := errors.AsType[*team.LimitError](err)
			require.True(t, ok, "%v", err)
			require.Greater(t, limit.Got, limit.Max)
		}
		require.Equal(t, []any{team.SignalQueued, 0}, []any{state(t, c, alive).State, state(t, c, alive).Attempt})
	})
}

// NoLimit hands out for ever.
func TestSignalAttemptsWithoutLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, &team.SignalOptions{MaxAttempts: team.NoLimit, Lease: time.Minute})
		send(t, c, "tester", "lead", note("again"))
		for i := range 20 {
			require.Equal(t, i+1, die(t, c, nil).Attempt)
		}
	})
}

// A waiter looks again when it wakes: what another has taken or acked is not handed out.
func TestSignalWaiterGetsNothingStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, store := newTeam(t, nil)
		other, err := team.OpenSignals(t.Context(), store, nil)
		require.NoError(t, err)
		lead := as(t.Context(), "lead")
		got := make(chan team.Received, 2)
		for _, ch := range []*team.SignalChannel{c, other} {
			go func() {
				all, err := ch.Receive(lead, nil)
				if err != nil {
					return // the test is over
				}
				if err := ch.Ack(lead, all...); err != nil {
					t.Error(err)
				}
				got <- all[0]
			}()
		}
		synctest.Wait()
		send(t, c, "tester", "lead", note("one"))
		require.Equal(t, "one", (<-got).Summary)
		time.Sleep(time.Hour)
		require.Empty(t, got, "one of the two waits on")
		send(t, c, "tester", "lead", note("two"))
		require.Equal(t, "two", (<-got).Summary)
	})
}

// 5000 acked signals behind do not hold up the new one.
func TestSignalAfterThousandsThatAreSettled(t *testing.T) {
	c, _ := newTeam(t, nil)
	lead := as(t.Context(), "lead")
	for range 50 {
		for range 100 {
			send(t, c, "tester", "lead", note("old"))
		}
		got, err := c.Receive(lead, &team.ReceiveOptions{Max: 100})
		require.NoError(t, err)
		require.Len(t, got, 100)
		require.NoError(t, c.Ack(lead, got...))
	}
	send(t, c, "tester", "lead", note("new"))
	require.Equal(t, []string{"new"}, pending(t, c, "lead"))
	got, err := c.Receive(lead, &team.ReceiveOptions{Max: 9})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, "new", got[0].Summary)
}

// A store that fails once loses nothing and buries nothing.
func TestSignalPassingFaultIsNoDeadLetter(t *testing.T) {
	trail := new(burials)
	store := &fenceFault{Store: new(memstore.Store)}
	c, err := team.OpenSignals(t.Context(), store, &team.SignalOptions{Trace: trail.record})
	require.NoError(t, err)
	require.NoError(t, c.Enrol(t.Context(), team.Member{Session: "ses_lead", Role: "lead"}))
	s := note("x")
	s.Epoch = "run-1"
	send(t, c, "tester", "lead", s)
	fault := errors.New("I/O error")
	store.next = fault
	_, err = c.Receive(as(t.Context(), "lead"), nil)
	require.ErrorIs(t, err, fault)
	got, err := c.Receive(as(t.Context(), "lead"), &team.ReceiveOptions{NoWait: true})
	require.NoError(t, err)
	require.Len(t, got, 1, "it is given back at once")
	require.Empty(t, trail.lines)
}

// A fenceFault is a store that fails once when it is asked about a fence, which is when
// a signal is claimed already.
type fenceFault struct {
	team.Store
	next error
}

func (f *fenceFault) Get(ctx context.Context, key string) (team.Record, error) {
	if err := f.next; err != nil && strings.HasPrefix(key, "team/fenced/") {
		f.next = nil
		return team.Record{}, err
	}
	return f.Store.Get(ctx, key)
}

package team_test

import (
	"context"
	"encoding/json"
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

// newTeam opens a channel over a new memstore, with a lead and five specialists.
func newTeam(tb testing.TB, opts *team.SignalOptions) (*team.SignalChannel, *memstore.Store) {
	tb.Helper()
	store := new(memstore.Store)
	c, err := team.OpenSignals(tb.Context(), store, opts)
	require.NoError(tb, err)
	for _, role := range []team.Role{"lead", "architect", "implementer", "reviewer", "tester", "researcher"} {
		m := team.Member{Session: team.SessionID("ses_" + string(role)), Role: role}
		if role != "lead" {
			m.Parent = "ses_lead"
		}
		require.NoError(tb, c.Enrol(tb.Context(), m))
	}
	return c, store
}

func note(summary string) team.Signal { return team.Signal{Kind: team.KindNote, Summary: summary} }

func pending(tb testing.TB, c *team.SignalChannel, role team.Role) []string {
	tb.Helper()
	var all []string
	for s, err := range c.Pending(as(tb.Context(), role)) {
		require.NoError(tb, err)
		all = append(all, s.Summary)
	}
	return all
}

func send(tb testing.TB, c *team.SignalChannel, from team.Role, to string, s team.Signal) team.Sent {
	tb.Helper()
	sent, err := c.Send(as(tb.Context(), from), to, s)
	require.NoError(tb, err)
	return sent
}

func TestSignalRoundTrip(t *testing.T) {
	c, _ := newTeam(t, nil)
	s := team.Signal{
		Kind: team.KindSettled, Summary: "API is ready", Body: "two open questions",
		Refs:     []team.Ref{{Path: "/board/s/t/01-architect-api.md", SHA256: strings.Repeat("0a", 32), Size: 1234}},
		ReplyTo:  team.SignalID("sig_" + strings.Repeat("a", 26)),
		Delivery: team.DeliveryQueue, Expires: time.Now().Add(time.Hour).UTC().Truncate(time.Second), Key: "once",
		// What a caller must not decide:
		ID: "sig_mine", From: team.Caller{Session: "ses_user", Role: "user"}, To: "ses_x", Seq: 99, Sent: time.Unix(1, 0),
	}
	sent := send(t, c, "architect", "lead", s)
	require.Equal(t, team.SessionID("ses_lead"), sent.To)
	require.Regexp(t, `^sig_[a-z2-7]{26}$`, sent.ID)

	got, err := c.Receive(as(t.Context(), "lead"), nil)
	require.NoError(t, err)
	require.Len(t, got, 1)
	want := s
	want.ID, want.From, want.To, want.Seq = sent.ID, team.Caller{Session: "ses_architect", Role: "architect"}, "ses_lead", sent.Seq
	want.Sent = got[0].Sent
	require.WithinDuration(t, time.Now(), got[0].Sent, time.Minute)
	require.Equal(t, want, got[0].Signal, "the author is the caller in the context, whatever the signal says")
	require.Equal(t, 1, got[0].Attempt)
	require.NoError(t, c.Ack(as(t.Context(), "lead"), got...))
	require.Empty(t, pending(t, c, "lead"))
}

func TestSignalsHaveOneOrder(t *testing.T) {
	c, _ := newTeam(t, nil)
	const senders, each = 8, 50
	var mu sync.Mutex
	bySeq := map[team.Seq]string{}
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				text := fmt.Sprintf("%d/%d", s, i)
				sent := send(t, c, "tester", "ses_lead", note(text))
				mu.Lock()
				bySeq[sent.Seq] = text
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, bySeq, senders*each, "distinct sequences, a row for every success")
	last := team.Seq(0)
	for range senders * each {
		got, err := c.Receive(as(t.Context(), "lead"), &team.ReceiveOptions{Max: 1})
		require.NoError(t, err)
		require.Greater(t, got[0].Seq, last)
		require.Equal(t, bySeq[got[0].Seq], got[0].Summary)
		last = got[0].Seq
		require.NoError(t, c.Ack(as(t.Context(), "lead"), got...))
	}
}

func TestSignalOrderIsNotTheClock(t *testing.T) {
	// The clock was set back by decades between the two, and the second comes second.
	store := new(memstore.Store)
	c, err := team.OpenSignals(t.Context(), store, nil)
	require.NoError(t, err)
	require.NoError(t, c.Enrol(t.Context(), team.Member{Session: "ses_lead", Role: "lead"}))
	send(t, c, "tester", "lead", note("first"))
	data, err := json.Marshal(map[string]any{"id": "sig_x", "kind": "note", "summary": "second", "sent": "2000-01-01T00:00:00Z", "delivery": "steer"})
	require.NoError(t, err)
	_, err = store.Append(t.Context(), "inbox/ses_lead", []team.Item{{ID: "sig_x", Data: data}}, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"first", "second"}, pending(t, c, "lead"))
}

func TestSignalKeyIsIdempotent(t *testing.T) {
	c, _ := newTeam(t, nil)
	s := note("deploy is done")
	s.Key = "deploy-7"
	first := send(t, c, "tester", "lead", s)
	again := send(t, c, "tester", "lead", s)
	require.True(t, again.Replayed)
	require.Equal(t, []any{first.ID, first.Seq}, []any{again.ID, again.Seq}, "the first admission is returned")
	require.Len(t, pending(t, c, "lead"), 1)

	s.Body = "with a difference"
	_, err := c.Send(as(t.Context(), "tester"), "lead", s)
	require.ErrorIs(t, err, team.ErrConflict)
	require.Len(t, pending(t, c, "lead"), 1)
	require.False(t, send(t, c, "reviewer", "lead", s).Replayed, "a key is the sender's own")
	require.False(t, send(t, c, "tester", "architect", s).Replayed, "and for one inbox")
}

func TestSignalOverTheCapIsRefused(t *testing.T) {
	c, _ := newTeam(t, nil)
	s := note("s")
	s.Body = team.FitTokens("s"+strings.Repeat("界", 600), 512)[1:]
	send(t, c, "tester", "lead", s)
	s.Body += "界"
	_, err := c.Send(as(t.Context(), "tester"), "lead", s)
	require.ErrorIs(t, err, team.ErrTooLarge)
	limit, ok := errors.AsType[*team.LimitError](err)
	require.True(t, ok)
	require.Equal(t, []int64{int64(team.EstimateTokens("s" + s.Body)), 512}, []int64{limit.Got, limit.Max})
	require.ErrorContains(t, err, "board", "the text says what to do next")
	require.Len(t, pending(t, c, "lead"), 1)
}

func TestSignalInboxIsBounded(t *testing.T) {
	c, _ := newTeam(t, &team.SignalOptions{MaxPending: 3})
	for i := range 3 {
		send(t, c, "tester", "lead", note(fmt.Sprint(i)))
	}
	_, err := c.Send(as(t.Context(), "tester"), "lead", note("3"))
	limit, ok := errors.AsType[*team.LimitError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, []int64{4, 3}, []int64{limit.Got, limit.Max})
	require.NotErrorIs(t, err, team.ErrTooLarge)
	require.Equal(t, []string{"0", "1", "2"}, pending(t, c, "lead"), "nothing accepted is dropped")
	got, err := c.Receive(as(t.Context(), "lead"), nil)
	require.NoError(t, err)
	require.NoError(t, c.Ack(as(t.Context(), "lead"), got...))
	send(t, c, "tester", "lead", note("3"))
}

func TestSignalMalformedIsRefused(t *testing.T) {
	c, _ := newTeam(t, nil)
	digest := strings.Repeat("0", 64)
	for why, change := range map[string]func(*team.Signal){
		"kind":                         func(s *team.Signal) { s.Kind = "Hand off" },
		"kind ":                        func(s *team.Signal) { s.Kind = "" },
		"summary is empty":             func(s *team.Signal) { s.Summary = " " },
		"line break at byte 1":         func(s *team.Signal) { s.Summary = "a\nb" },
		"line break at byte 2":         func(s *team.Signal) { s.Summary = "ab\u2028" },
		"summary is not UTF-8":         func(s *team.Signal) { s.Summary = "\xff" },
		"body is not UTF-8 at byte 2":  func(s *team.Signal) { s.Body = "ab\xff" },
		"key is not UTF-8":             func(s *team.Signal) { s.Key = "\xff" },
		"key has a control":            func(s *team.Signal) { s.Key = "a\x00b" },
		"expiry is not in the years":   func(s *team.Signal) { s.Expires = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"delivery is neither":          func(s *team.Signal) { s.Delivery = "now" },
		"reply-to":                     func(s *team.Signal) { s.ReplyTo = "msg_1" },
		"expiry is over":               func(s *team.Signal) { s.Expires = time.Now().Add(-time.Second) },
		"reference is not an absolute": func(s *team.Signal) { s.Refs = []team.Ref{{Path: "x.md", SHA256: digest}} },
		"reference is not an":          func(s *team.Signal) { s.Refs = []team.Ref{{Path: "/x.md", SHA256: "x"}} },
		"reference is":                 func(s *team.Signal) { s.Refs = []team.Ref{{Path: "/x\n.md", SHA256: digest}} },
		"reference":                    func(s *team.Signal) { s.Refs = []team.Ref{{Path: "/x.md", SHA256: digest, Size: -1}} },
	} {
		s := note("x")
		change(&s)
		_, err := c.Send(as(t.Context(), "tester"), "lead", s)
		require.ErrorIs(t, err, team.ErrInvalid, why)
		require.ErrorContains(t, err, strings.TrimSpace(why))
	}
	s := note("x")
	s.Refs = make([]team.Ref, 17)
	_, err := c.Send(as(t.Context(), "tester"), "lead", s)
	require.ErrorIs(t, err, team.ErrLimit)
	s = note("x")
	s.Key = strings.Repeat("k", 257)
	_, err = c.Send(as(t.Context(), "tester"), "lead", s)
	require.ErrorIs(t, err, team.ErrLimit)
	_, err = c.Send(t.Context(), "lead", note("x"))
	require.ErrorIs(t, err, team.ErrInvalid, "no caller, no signal")
	require.Empty(t, pending(t, c, "lead"), "a refusal changes nothing")
}

func TestSignalUnknownRecipient(t *testing.T) {
	c, store := newTeam(t, nil)
	_, err := c.Send(as(t.Context(), "lead"), "reviewr", note("x"))
	require.ErrorIs(t, err, team.ErrUnknownRecipient)
	require.ErrorIs(t, err, team.ErrNotFound)
	who, ok := errors.AsType[*team.RecipientError](err)
	require.True(t, ok)
	require.Equal(t, "reviewer", who.Near[0])
	_, err = c.Send(as(t.Context(), "lead"), "", note("x"))
	require.ErrorIs(t, err, team.ErrInvalid)
	for _, to := range []string{strings.Repeat("x", 257), "general", "ses_nobody", "\xff", "a\nb"} {
		_, err := c.Send(as(t.Context(), "lead"), to, note("x"))
		require.ErrorIs(t, err, team.ErrUnknownRecipient, "%q", to)
	}
	send(t, c, "lead", "Reviewer", note("casing is not a name"))
	for _, queue := range []string{"inbox/reviewr", "inbox/ses_reviewr", "inbox/general", "inbox/ses_nobody"} {
		for range store.Items(t.Context(), queue, team.ListOptions{Settled: true}) {
			t.Errorf("%s has a signal, want no row for nobody", queue)
		}
	}
}

func TestSignalRoleIsThatOfTheSendersTeam(t *testing.T) {
	c, _ := newTeam(t, nil)
	enrol := func(m team.Member) { require.NoError(t, c.Enrol(t.Context(), m)) }
	// A second window in the same workspace, with a team of its own.
	enrol(team.Member{Session: "ses_lead2", Role: "lead"})
	enrol(team.Member{Session: "ses_tester2", Role: "tester", Parent: "ses_lead2"})
	enrol(team.Member{Session: "ses_helper", Role: "helper", Parent: "ses_tester2"})
	require.Equal(t, team.SessionID("ses_tester"), send(t, c, "lead", "tester", note("x")).To)
	require.Equal(t, team.SessionID("ses_tester2"), send(t, c, "helper", "tester", note("x")).To)

	enrol(team.Member{Session: "ses_tester3", Role: "tester", Parent: "ses_lead"})
	_, err := c.Send(as(t.Context(), "lead"), "tester", note("x"))
	who, ok := errors.AsType[*team.RecipientError](err)
	require.True(t, ok, "an ambiguous role is refused: %v", err)
	require.Equal(t, []team.SessionID{"ses_tester", "ses_tester3"}, who.Candidates)
	send(t, c, "lead", "ses_tester3", note("x"))
	_, err = c.Send(as(t.Context(), "lead"), "helper", note("x"))
	require.ErrorContains(t, err, "ses_helper", "a role of another team is named")

	require.NoError(t, c.Leave(t.Context(), "ses_tester3"))
	require.ErrorIs(t, c.Leave(t.Context(), "ses_tester3"), team.ErrNotFound)
	send(t, c, "lead", "tester", note("x"))
	n := 0
	for _, err := range c.Roster(t.Context()) {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 9, n)
	for _, m := range []team.Member{{}, {Session: "s"}, {Role: "r"}, {Session: "s\n", Role: "r"}, {Session: "s", Role: "r", Parent: "s"}} {
		require.ErrorIs(t, c.Enrol(t.Context(), m), team.ErrInvalid)
	}
	// Parents in a circle are nobody's team, and no hang.
	enrol(team.Member{Session: "ses_a", Role: "a", Parent: "ses_b"})
	enrol(team.Member{Session: "ses_b", Role: "b", Parent: "ses_a"})
	_, _ = c.Send(as(t.Context(), "a"), "lead", note("x"))
}

func TestSignalToSeveralIsAllOrNone(t *testing.T) {
	c, store := newTeam(t, &team.SignalOptions{MaxPending: 1})
	sent, err := c.SendAll(as(t.Context(), "lead"), []string{"architect", "tester", "ses_architect"}, note("go"))
	require.NoError(t, err)
	require.Len(t, sent, 2, "naming somebody twice sends once")
	require.NotEqual(t, sent[0].ID, sent[1].ID)

	_, err = c.SendAll(as(t.Context(), "lead"), []string{"reviewer", "tester"}, note("go"))
	require.ErrorIs(t, err, team.ErrLimit, "the tester's inbox is full")
	_, err = c.SendAll(as(t.Context(), "lead"), []string{"reviewer", "nobody"}, note("go"))
	require.ErrorIs(t, err, team.ErrUnknownRecipient)
	_, err = c.SendAll(as(t.Context(), "lead"), nil, note("go"))
	require.ErrorIs(t, err, team.ErrInvalid)
	require.Empty(t, pending(t, c, "reviewer"), "so nobody got it")

	plain, err := team.OpenSignals(t.Context(), onlyStore{store}, nil)
	require.NoError(t, err)
	_, err = plain.SendAll(as(t.Context(), "lead"), []string{"reviewer", "implementer"}, note("go"))
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// onlyStore hides that a store is a Committer.
type onlyStore struct{ team.Store }

func TestSignalPeekClaimAndAckAreThreeThings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, &team.SignalOptions{Lease: time.Minute, MaxAttempts: 2})
		send(t, c, "tester", "lead", note("one"))
		send(t, c, "tester", "lead", note("two"))
		lead := as(t.Context(), "lead")
		for range 3 {
			require.Equal(t, []string{"one", "two"}, pending(t, c, "lead"), "a peek changes nothing")
		}
		first, err := c.Receive(lead, nil)
		require.NoError(t, err)
		require.Equal(t, []any{"one", 1}, []any{first[0].Summary, first[0].Attempt})
		second, err := c.Receive(lead, nil)
		require.NoError(t, err)
		require.Equal(t, "two", second[0].Summary, "what is behind a claimed signal moves up")
		require.NoError(t, c.Ack(lead, second...))

		time.Sleep(time.Minute + time.Second) // the receiver died
		again, err := c.Receive(lead, nil)
		require.NoError(t, err)
		require.Equal(t, []any{"one", 2}, []any{again[0].Summary, again[0].Attempt})
		require.ErrorIs(t, c.Ack(lead, first...), team.ErrConflict, "a stale claim cannot ack")

		time.Sleep(time.Minute + time.Second)
		send(t, c, "tester", "lead", note("three"))
		got, err := c.Receive(lead, nil)
		require.NoError(t, err)
		require.Equal(t, "three", got[0].Summary, "a dead head does not block the queue")
		require.Equal(t, []string{"three"}, pending(t, c, "lead"))
	})
}

func TestSignalReceiveWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, nil)
		lead := as(t.Context(), "lead")
		got, err := c.Receive(lead, &team.ReceiveOptions{NoWait: true})
		require.NoError(t, err)
		require.Empty(t, got)
		ctx, cancel := context.WithTimeout(lead, time.Hour)
		defer cancel()
		_, err = c.Receive(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		done := make(chan []team.Received)
		go func() {
			got, _ := c.Receive(lead, &team.ReceiveOptions{Max: 5})
			done <- got
		}()
		synctest.Wait()
		send(t, c, "tester", "lead", note("wake up"))
		require.Equal(t, "wake up", (<-done)[0].Summary)
		_, err = c.Receive(t.Context(), nil)
		require.ErrorIs(t, err, team.ErrInvalid, "whose inbox?")
		_, err = c.Receive(lead, &team.ReceiveOptions{Max: -1})
		require.ErrorIs(t, err, team.ErrInvalid)
	})
}

func TestSignalReceiveKeepsToABudget(t *testing.T) {
	c, _ := newTeam(t, nil)
	lead := as(t.Context(), "lead")
	cost := 0
	for i := range 4 {
		send(t, c, "tester", "lead", note(fmt.Sprint("signal ", i)))
	}
	for s := range c.Pending(lead) {
		cost = max(cost, team.EstimateTokens(team.FormatSignal(c.Secret(), s.Signal)))
	}
	_, err := c.Receive(lead, &team.ReceiveOptions{Max: 9, Budget: cost / 2})
	limit, ok := errors.AsType[*team.LimitError](err)
	require.True(t, ok, "%v", err)
	require.Greater(t, limit.Got, limit.Max)
	got, err := c.Receive(lead, &team.ReceiveOptions{Max: 9, Budget: 2*cost + cost/2})
	require.NoError(t, err)
	require.Len(t, got, 2)
}

func TestSignalExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, nil)
		s := note("lunch is ready")
		s.Expires = time.Now().Add(time.Hour)
		send(t, c, "tester", "lead", s)
		time.Sleep(time.Hour)
		send(t, c, "tester", "lead", note("later"))
		got, err := c.Receive(as(t.Context(), "lead"), &team.ReceiveOptions{Max: 9})
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Equal(t, "later", got[0].Summary)
	})
}

func TestSignalCancelOnlyWhilePending(t *testing.T) {
	c, _ := newTeam(t, nil)
	sent := send(t, c, "tester", "lead", note("never mind"))
	require.ErrorIs(t, c.Cancel(as(t.Context(), "reviewer"), sent), team.ErrDenied)
	require.NoError(t, c.Cancel(as(t.Context(), "tester"), sent))
	require.Empty(t, pending(t, c, "lead"))
	require.ErrorIs(t, c.Cancel(as(t.Context(), "tester"), sent), team.ErrConflict)
	for _, none := range []team.Sent{{}, {To: "ses_lead", Seq: 999, ID: sent.ID}, {To: "ses_lead", Seq: sent.Seq, ID: "sig_x"}} {
		require.ErrorIs(t, c.Cancel(as(t.Context(), "tester"), none), team.ErrNotFound)
	}
	sent = send(t, c, "tester", "lead", note("too late"))
	got, err := c.Receive(as(t.Context(), "lead"), nil)
	require.NoError(t, err)
	require.ErrorIs(t, c.Cancel(as(t.Context(), "tester"), sent), team.ErrConflict)
	require.NoError(t, c.Ack(as(t.Context(), "lead"), got...))
	require.ErrorIs(t, c.Cancel(as(t.Context(), "tester"), sent), team.ErrConflict)
}

func TestSignalDamagedBecomesADeadLetter(t *testing.T) {
	c, store := newTeam(t, nil)
	secret := strings.Repeat("a secret ", 1000)
	for i, data := range []string{"", "{", "null", `{"id":"sig_other","kind":"note"}`, fmt.Sprintf(`{"sent":%q}`, secret), fmt.Sprintf(`{"id":"sig_5","kind":%q}`, secret)} {
		_, err := store.Append(t.Context(), "inbox/ses_lead", []team.Item{{ID: fmt.Sprint("sig_", i), Data: []byte(data)}}, 0)
		require.NoError(t, err)
	}
	send(t, c, "tester", "lead", note("whole"))
	require.Equal(t, []string{"whole"}, pending(t, c, "lead"))
	got, err := c.Receive(as(t.Context(), "lead"), nil)
	require.NoError(t, err)
	require.Equal(t, "whole", got[0].Summary)
	dead := 0
	for item, err := range store.Items(t.Context(), "inbox/ses_lead", team.ListOptions{Settled: true}) {
		require.NoError(t, err)
		if item.State.Settled() {
			require.Contains(t, item.Reason, "damaged")
			require.NotContains(t, item.Reason, "secret", "evidence has no content")
			require.Less(t, len(item.Reason), 300)
			dead++
		}
	}
	require.Equal(t, 6, dead)
}

func TestSignalKeyIsSharedByAllChannelsOfAStore(t *testing.T) {
	store := new(memstore.Store)
	keys := make([]team.SignalSecret, 20)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			c, err := team.OpenSignals(t.Context(), store, nil)
			if err != nil {
				t.Error(err)
				return
			}
			keys[i] = c.Secret()
		})
	}
	wg.Wait()
	for _, key := range keys {
		require.Equal(t, keys[0], key)
		require.NotZero(t, key)
	}
	for _, opts := range []team.SignalOptions{{Lease: -1}, {MaxTokens: -2}, {MaxPending: -2}, {MaxAttempts: -2}} {
		_, err := team.OpenSignals(t.Context(), store, &opts)
		require.ErrorIs(t, err, team.ErrInvalid, "%+v", opts)
	}
	damaged := new(memstore.Store)
	_, err := damaged.Put(t.Context(), "team/signal-secret", []byte("short"), "")
	require.NoError(t, err)
	_, err = team.OpenSignals(t.Context(), damaged, nil)
	require.ErrorIs(t, err, team.ErrCorrupt)
}

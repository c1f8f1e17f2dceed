package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// inboxEvent is an event of OpenCode 2.0.26 about a session's inbox.
func inboxEvent(kind, inboxID string) team.Event {
	return team.Event{
		ID: "evt_1", Type: "session.inbox." + kind, Session: "ses_lead",
		Data: json.RawMessage(fmt.Sprintf(`{"sessionID":"ses_lead","inboxID":%q}`, inboxID)),
	}
}

// knows asks for the state of a signal, and checks that it has evidence and a time.
func knows(t *testing.T, c *team.SignalChannel, sent team.Sent) team.SignalState {
	t.Helper()
	st := state(t, c, sent)
	require.NotEmpty(t, st.Evidence, "%+v", st)
	require.False(t, st.Since.IsZero(), "%+v", st)
	require.NotContains(t, st.Evidence, "SECRET")
	return st.State
}

// What a program takes with Receive is queued, read and acked.
func TestStatusOfWhatAProgramReceives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, &team.SignalOptions{Lease: time.Minute})
		lead := as(t.Context(), "lead")
		sent := send(t, c, "tester", "lead", note("SECRET"))
		require.Equal(t, team.SignalQueued, knows(t, c, sent))
		got, err := c.Receive(lead, nil)
		require.NoError(t, err)
		require.Equal(t, team.SignalRead, knows(t, c, sent))
		require.ErrorIs(t, c.AckID(lead, sent.ID), team.ErrNotFound, "it needs the lease that Receive gave")
		require.Equal(t, team.SignalRead, knows(t, c, sent))
		time.Sleep(2 * time.Minute)
		require.Equal(t, team.SignalQueued, knows(t, c, sent), "its receiver died")
		require.ErrorIs(t, c.Ack(lead, got...), team.ErrConflict)
		got, err = c.Receive(lead, nil)
		require.NoError(t, err)
		require.NoError(t, c.Ack(lead, got...))
		require.Equal(t, team.SignalAcked, knows(t, c, sent))
		require.Equal(t, 2, state(t, c, sent).Attempt)
	})
}

// Nothing is marked before the host answered; then each state comes by its own evidence.
func TestStatusOfWhatARelayBrings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var lines []team.TraceEvent
		c, _ := newTeam(t, &team.SignalOptions{Trace: func(_ context.Context, e team.TraceEvent) {
			if strings.HasPrefix(e.Op, "relay.") {
				mu.Lock()
				defer mu.Unlock()
				lines = append(lines, e)
			}
		}})
		var up atomic.Bool
		host := &notebook{fail: func(int, team.Note) error {
			if up.Load() {
				return nil
			}
			return errors.New("down")
		}}
		sent := send(t, c, "tester", "lead", note("SECRET"))
		require.Equal(t, team.SignalQueued, knows(t, c, sent))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Relay(ctx, host, "ses_lead", nil) }()
		time.Sleep(10 * time.Second)
		require.Equal(t, team.SignalQueued, knows(t, c, sent), "the host has not answered")
		require.ErrorIs(t, c.AckID(as(t.Context(), "reviewer"), sent.ID), team.ErrNotFound, "somebody else's")
		up.Store(true)
		time.Sleep(time.Minute)
		stop()
		<-done
		require.Equal(t, team.SignalOffered, knows(t, c, sent), "the host's inbox is not the conversation")
		id := host.notes[0].ID
		require.Equal(t, id, state(t, c, sent).Evidence)

		at := time.Now().Add(-3 * time.Second)
		e := inboxEvent("delivered", id)
		e.Time = at
		for range 3 { // as often as it comes
			ours, err := c.Observe(t.Context(), e)
			require.NoError(t, err)
			require.True(t, ours)
		}
		st := state(t, c, sent)
		require.Equal(t, team.SignalDelivered, st.State)
		require.Equal(t, []any{"session.inbox.delivered evt_1", at.UnixMilli()}, []any{st.Evidence, st.Since.UnixMilli()}, "the host's event and its time")

		lead := as(t.Context(), "lead")
		require.NoError(t, c.AckID(lead, sent.ID))
		require.NoError(t, c.AckID(lead, sent.ID), "twice is no error")
		require.Equal(t, team.SignalAcked, knows(t, c, sent))
		ours, err := c.Observe(t.Context(), e)
		require.NoError(t, err)
		require.True(t, ours)
		require.Equal(t, team.SignalAcked, knows(t, c, sent), "a late event takes nothing back")

		var ops []string
		for _, e := range lines {
			if e.Outcome == "ok" {
				ops = append(ops, e.Op)
				require.Equal(t, []any{string(sent.ID), id, team.SessionID("ses_lead")}, []any{e.ID, e.HostID, e.Target})
			}
			if e.Op == "relay.deliver" {
				require.EqualValues(t, len(host.notes[0].Text), e.Size)
			}
		}
		require.Equal(t, []string{"relay.deliver", "relay.delivered", "relay.acked"}, ops, "one line for each write")
	})
}

// relayed sends a signal to the lead and relays it, and returns the host's id of it.
func relayed(t *testing.T, c *team.SignalChannel, s team.Signal) (team.Sent, string) {
	t.Helper()
	host := new(notebook)
	sent := send(t, c, "tester", "lead", s)
	relayFor(t, c, host, time.Second)
	require.Len(t, host.notes, 1)
	return sent, host.notes[0].ID
}

func TestStatusIsAckedByAReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain, memory := newTeam(t, nil)
		store := &failingPuts{Store: memory}
		c, err := team.OpenSignals(t.Context(), store, nil)
		require.NoError(t, err)
		sent, _ := relayed(t, plain, note("question"))
		reply := note("answer")
		reply.ReplyTo, reply.Key = sent.ID, "answer"
		send(t, c, "reviewer", "tester", reply)
		require.Equal(t, team.SignalOffered, knows(t, c, sent), "who answers must have had it")
		answer := send(t, c, "lead", "tester", reply)
		require.Equal(t, team.SignalAcked, knows(t, c, sent))
		require.Contains(t, state(t, c, sent).Evidence, string(answer.ID))

		// Killed, or failed, before it was noted: the repeated Send notes it.
		sent, _ = relayed(t, c, note("another"))
		reply.ReplyTo, reply.Key = sent.ID, "answer 2"
		store.fail = errors.New("disk on fire")
		first := send(t, c, "lead", "tester", reply)
		require.Equal(t, team.SignalOffered, knows(t, c, sent))
		store.fail = nil
		require.True(t, send(t, c, "lead", "tester", reply).Replayed)
		require.Contains(t, state(t, c, sent).Evidence, string(first.ID))
	})
}

// failingPuts is a store whose records cannot be written on demand.
type failingPuts struct {
	*memstore.Store
	fail   error
	before func() // if set, somebody else comes first
}

func (f *failingPuts) Put(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
	if f.before != nil {
		f.before()
	}
	if f.fail != nil {
		return "", f.fail
	}
	return f.Store.Put(ctx, key, value, prev)
}

func TestStatusIsCancelledInTheHostsInbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, nil)
		sent, id := relayed(t, c, note("x"))
		ours, err := c.Observe(t.Context(), inboxEvent("cancelled", id))
		require.NoError(t, err)
		require.True(t, ours)
		require.Equal(t, team.SignalCancelled, knows(t, c, sent))
		ours, err = c.Confirm(t.Context(), "ses_lead", id, "read back")
		require.NoError(t, err)
		require.True(t, ours)
		require.Equal(t, []any{team.SignalDelivered, "read back"}, []any{state(t, c, sent).State, state(t, c, sent).Evidence},
			"what is in the conversation was not taken out")
		_, err = c.Observe(t.Context(), inboxEvent("cancelled", id))
		require.NoError(t, err)
		require.Equal(t, team.SignalDelivered, knows(t, c, sent))
	})
}

// OpenCode 1.18.33 writes a synthetic part straight into the conversation.
func TestStatusByAMessageOfTheFirstGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, nil)
		sent, id := relayed(t, c, note("x"))
		message := func(role string) team.Event {
			return team.Event{Type: "message.updated", Data: json.RawMessage(fmt.Sprintf(`{"info":{"id":%q,"sessionID":"ses_lead","role":%q}}`, id, role))}
		}
		ours, err := c.Observe(t.Context(), message("assistant"))
		require.NoError(t, err)
		require.False(t, ours)
		ours, err = c.Observe(t.Context(), message("user"))
		require.NoError(t, err)
		require.True(t, ours)
		require.Equal(t, []any{team.SignalDelivered, "message.updated"}, []any{knows(t, c, sent), state(t, c, sent).Evidence})
	})
}

// What a host says is data: what is not about a signal changes nothing.
func TestObserveOfForeignEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, nil)
		sent, id := relayed(t, c, note("x"))
		events := []team.Event{
			{}, {Type: "session.inbox.delivered"}, {Type: "session.inbox.delivered", Data: json.RawMessage(`{"inboxID":7}`)},
			{Type: "session.inbox.delivered", Data: json.RawMessage(`[`)},
			inboxEvent("enqueued", id), inboxEvent("delivered", ""), inboxEvent("delivered", "msg_"+strings.Repeat("0", 26)),
			inboxEvent("delivered", "msg_"+strings.Repeat("0", 12)+id[16:]), inboxEvent("delivered", id[:29]+"/"),
			inboxEvent("delivered", strings.Repeat("x", 1<<20)), {Type: "session.execution.succeeded", Session: "ses_lead"},
		}
		elsewhere := inboxEvent("delivered", id)
		elsewhere.Session = "ses_other"
		events = append(events, elsewhere)
		elsewhere.Session = "a\nb"
		events = append(events, elsewhere)
		for _, e := range events {
			ours, err := c.Observe(t.Context(), e)
			require.NoError(t, err)
			require.False(t, ours, "%.200s", e.Data)
		}
		_, err := c.Confirm(t.Context(), "ses_lead", id, "")
		require.ErrorIs(t, err, team.ErrInvalid)
		_, err = c.Confirm(t.Context(), "ses_lead", id, "a\nb")
		require.ErrorIs(t, err, team.ErrInvalid)
		require.Error(t, c.AckID(t.Context(), sent.ID))
		require.ErrorIs(t, c.AckID(as(t.Context(), "lead"), ""), team.ErrNotFound)
		require.Equal(t, team.SignalOffered, knows(t, c, sent))
		e := inboxEvent("delivered", id)
		e.Time = time.Date(99999, 1, 1, 0, 0, 0, 0, time.UTC)
		_, err = c.Observe(t.Context(), e)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), state(t, c, sent).Since, time.Second, "a time that cannot be is not taken")
	})
}

// What a host names is evidence of one short line, whatever the host says.
func TestStatusOfAHostThatSaysAnything(t *testing.T) {
	for what, name := range map[string]string{"nothing": "", "a line break": "evt_1\x1b[2J\nstate: acked", "a flood": strings.Repeat("x", 1<<20)} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := newTeam(t, nil)
				sent := send(t, c, "tester", "lead", note("x"))
				var id string
				for q := range c.Pending(as(t.Context(), "lead")) {
					id = team.HostMessageID(q.Signal)
				}
				relayFor(t, c, renaming{new(notebook), name}, time.Second)
				short := func(want team.SignalState) {
					st := state(t, c, sent)
					require.Equal(t, want, st.State)
					require.NotEmpty(t, st.Evidence)
					require.Less(t, len(st.Evidence), 300)
					require.NotContains(t, st.Evidence, "\n")
					require.NotContains(t, st.Evidence, "\x1b")
				}
				short(team.SignalOffered)
				e := inboxEvent("delivered", id)
				e.ID = name
				ours, err := c.Observe(t.Context(), e)
				require.NoError(t, err)
				require.True(t, ours)
				short(team.SignalDelivered)
			})
		})
	}
}

// A renaming host answers another id than it was given.
type renaming struct {
	*notebook
	id string
}

func (r renaming) Deliver(ctx context.Context, to team.SessionID, n team.Note) (team.Delivered, error) {
	d, err := r.notebook.Deliver(ctx, to, n)
	d.ID = r.id
	return d, err
}

// The event can come before the host's answer, or instead of it.
func TestStatusWhenTheEventComesBeforeTheAnswer(t *testing.T) {
	for kind, want := range map[string]team.SignalState{"delivered": team.SignalDelivered, "cancelled": team.SignalCancelled} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := newTeam(t, nil)
				host := new(notebook)
				host.lose = func(int) error {
					ours, err := c.Observe(t.Context(), inboxEvent(kind, host.notes[0].ID))
					if err != nil || !ours {
						t.Errorf("Observe = %v, %v, want true", ours, err)
					}
					return errors.New("connection reset")
				}
				sent := send(t, c, "tester", "lead", note("x"))
				relayFor(t, c, host, time.Hour)
				require.Equal(t, 1, host.calls, "it is not asked again, which would bring it back")
				require.Equal(t, want, knows(t, c, sent))
				require.Empty(t, pending(t, c, "lead"))
			})
		})
	}
}

// A host that never answered may have the signal all the same: its word stands above a
// cancellation that came later.
func TestStatusOfWhatWasCancelledTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, nil)
		host := &notebook{lose: func(int) error { return errors.New("connection reset") }}
		sent := send(t, c, "tester", "lead", note("x"))
		relayFor(t, c, host, 10*time.Second)
		require.NoError(t, c.Cancel(as(t.Context(), "tester"), sent))
		require.Equal(t, team.SignalCancelled, knows(t, c, sent))
		_, err := c.Observe(t.Context(), inboxEvent("delivered", host.notes[0].ID))
		require.NoError(t, err)
		require.Equal(t, team.SignalDelivered, knows(t, c, sent))
	})
}

// The last try took, its answer was lost, and the event came: what is in the conversation
// is no dead letter.
func TestStatusWhenTheLastAnswerIsLost(t *testing.T) {
	for what, lost := range map[string]error{"a passing fault": errors.New("connection reset"), "a refusal for good": team.ErrDenied} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := newTeam(t, nil)
				host := &notebook{}
				host.lose = func(int) error {
					if _, err := c.Observe(t.Context(), inboxEvent("delivered", host.notes[0].ID)); err != nil {
						return err
					}
					return lost
				}
				sent := send(t, c, "tester", "lead", note("x"))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				require.ErrorIs(t, c.Relay(ctx, host, "ses_lead", &team.RelayOptions{Tries: 1}), context.DeadlineExceeded)
				require.Equal(t, team.SignalDelivered, state(t, c, sent).State)
				require.Empty(t, pending(t, c, "lead"))
				for q := range c.DeadLetters(as(t.Context(), "lead")) {
					t.Errorf("dead letter %q", q.Evidence)
				}
			})
		})
	}
}

// A relay gave up, and later evidence shows that the host has it all the same: it is no
// dead letter, and to redrive it brings nothing twice.
func TestStatusOfADeadLetterThatArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, nil)
		host := &notebook{lose: func(int) error { return errors.New("connection reset") }}
		sent := send(t, c, "tester", "lead", note("x"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, c.Relay(ctx, host, "ses_lead", &team.RelayOptions{Tries: 2}), context.DeadlineExceeded)
		var dead []team.Queued
		letters := func() int {
			dead = nil
			for q, err := range c.DeadLetters(as(t.Context(), "lead")) {
				require.NoError(t, err)
				dead = append(dead, q)
			}
			return len(dead)
		}
		require.Equal(t, 1, letters())
		before := dead
		require.Equal(t, team.SignalDead, knows(t, c, sent))
		ours, err := c.Confirm(t.Context(), "ses_lead", host.notes[0].ID, "read back")
		require.NoError(t, err)
		require.True(t, ours)
		require.Equal(t, team.SignalDelivered, knows(t, c, sent))
		require.Zero(t, letters())
		require.NoError(t, c.Redrive(as(t.Context(), "lead"), before...))
		calls := host.calls
		relayFor(t, c, host, time.Minute)
		require.Equal(t, calls, host.calls)
		require.Equal(t, team.SignalDelivered, knows(t, c, sent))
		require.Empty(t, pending(t, c, "lead"))
	})
}

// Who reports evidence at the same moment as another loses nothing.
func TestStatusOfTwoReportsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain, memory := newTeam(t, nil)
		sent, id := relayed(t, plain, note("x"))
		store := &failingPuts{Store: memory}
		c, err := team.OpenSignals(t.Context(), store, nil)
		require.NoError(t, err)
		store.before = func() {
			store.before = nil
			_, err := plain.Observe(t.Context(), inboxEvent("cancelled", id))
			require.NoError(t, err)
		}
		ours, err := c.Observe(t.Context(), inboxEvent("delivered", id))
		require.NoError(t, err)
		require.True(t, ours)
		require.Equal(t, team.SignalDelivered, knows(t, plain, sent))
	})
}

// Evidence that several processes report at once is kept once, the most of it.
func TestStatusIsTheMostThatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, nil)
		sent, id := relayed(t, c, note("x"))
		done := make(chan error)
		for i := range 30 {
			go func() {
				var err error
				switch i % 3 {
				case 0:
					_, err = c.Observe(t.Context(), inboxEvent("cancelled", id))
				case 1:
					_, err = c.Observe(t.Context(), inboxEvent("delivered", id))
				default:
					err = c.AckID(as(t.Context(), "lead"), sent.ID)
				}
				done <- err
			}()
		}
		for range 30 {
			require.NoError(t, <-done)
		}
		require.Equal(t, team.SignalAcked, knows(t, c, sent))
	})
}

// A record that is damaged says nothing, and does not stop a relay or a list.
func TestStatusWithADamagedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, store := newTeam(t, nil)
		sent, id := relayed(t, c, note("x"))
		key := "team/relayed/ses_lead/" + id[16:]
		_, err := store.Put(t.Context(), key, []byte("{"), team.AnyVersion)
		require.NoError(t, err)
		require.Equal(t, team.SignalOffered, knows(t, c, sent))
		_, err = c.Observe(t.Context(), inboxEvent("delivered", id))
		require.ErrorIs(t, err, team.ErrCorrupt)
		require.ErrorIs(t, c.AckID(as(t.Context(), "lead"), sent.ID), team.ErrCorrupt)

		sent = send(t, c, "tester", "lead", note("y"))
		for q := range c.Pending(as(t.Context(), "lead")) {
			id = team.HostMessageID(q.Signal)
		}
		_, err = store.Put(t.Context(), "team/relayed/ses_lead/"+id[16:], nil, "")
		require.NoError(t, err)
		relayFor(t, c, new(notebook), time.Second)
		require.Equal(t, team.SignalOffered, knows(t, c, sent))
		ours, err := c.Observe(t.Context(), inboxEvent("delivered", id))
		require.NoError(t, err)
		require.True(t, ours, "the relay has written it anew")
	})
}

func FuzzObserve(f *testing.F) {
	f.Add("session.inbox.delivered", "ses_lead", []byte(`{"inboxID":"msg_000000000000AAAAAAAAAAAAAA"}`))
	f.Add("message.updated", "", []byte(`{"info":{"id":"msg_000000000000AAAAAAAAAAAAAA","sessionID":"ses_lead","role":"user"}}`))
	f.Add("session.inbox.cancelled", "a/b", []byte(`{"sessionID":"x","inboxID":"\u0000"}`))
	c, err := team.OpenSignals(f.Context(), new(memstore.Store), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, kind, session string, data []byte) {
		ours, err := c.Observe(t.Context(), team.Event{Type: kind, Session: team.SessionID(session), Data: data})
		if ours || err != nil {
			t.Errorf("Observe of an empty channel = %v, %v, want false", ours, err)
		}
	})
}

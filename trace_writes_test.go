package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// A tracer keeps what a channel tells.
type tracer struct {
	mu     sync.Mutex // guards events
	events []team.TraceEvent
}

func (tr *tracer) record(_ context.Context, e team.TraceEvent) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.events = append(tr.events, e)
}

// taken returns what was told since the last call.
func (tr *tracer) taken() []team.TraceEvent {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	events := tr.events
	tr.events = nil
	return events
}

func opsOf(events []team.TraceEvent) (ops []string) {
	for _, e := range events {
		ops = append(ops, e.Op+" "+e.Outcome)
	}
	return ops
}

// Every write of a SignalChannel and of a Ledger leaves its line, with what it was
// about. A method that is in neither list below fails the test, so none is forgotten.
func TestEveryWriteLeavesALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := new(tracer)
		store := new(memstore.Store)
		c, err := team.OpenSignals(t.Context(), store, &team.SignalOptions{Trace: tr.record, Lease: time.Minute})
		require.NoError(t, err)
		l := openLedger(t, store, inProject, &team.LedgerOptions{Trace: tr.record})
		board := newBoard(t, nil)
		tester, lead := as(t.Context(), "tester"), as(t.Context(), "lead")
		var sent team.Sent
		var got []team.Received
		var host notebook
		receive := func() (err error) { got, err = c.Receive(lead, nil); return err }
		post := func(s team.Signal) (err error) { sent, err = c.Send(tester, "lead", s); return err }
		observe := func(ours bool, err error) error {
			require.True(t, ours)
			return err
		}
		drop := func(_ any, err error) error { return err }
		late := note("late")
		late.Epoch = "run-1"

		covered := map[string]bool{}
		for _, w := range []struct {
			method string
			do     func() error
			want   []string // op and outcome of each line
			about  string   // what ID each line has; "" is that of the signal sent last
		}{
			{"Enrol", func() error { return c.Enrol(lead, team.Member{Session: "ses_lead", Role: "lead"}) }, []string{"inbox.enrol ok"}, "lead"},
			{"Enrol", func() error {
				return c.Enrol(lead, team.Member{Session: "ses_tester", Role: "tester", Parent: "ses_lead"})
			}, []string{"inbox.enrol ok"}, "tester"},
			{"Enrol", func() error { return c.Enrol(lead, team.Member{Role: "r"}) }, []string{"inbox.enrol refused"}, "r"},
			{"Send", func() error { return post(note("x")) }, []string{"inbox.send ok"}, ""},
			{"SetDelivery", func() error { return c.SetDelivery(tester, sent, team.DeliveryQueue) }, []string{"inbox.deliver ok"}, ""},
			{"SetDelivery", func() error { return c.SetDelivery(lead, sent, team.DeliveryQueue) }, []string{"inbox.deliver refused"}, ""},
			{"Receive", receive, []string{"inbox.receive ok"}, ""},
			{"Extend", func() error { return c.Extend(lead, time.Hour, got...) }, []string{"inbox.extend ok"}, ""},
			{"Release", func() error { return c.Release(lead, 0, got...) }, []string{"inbox.release ok"}, ""},
			{"Extend", func() error { return c.Extend(lead, time.Hour, got...) }, []string{"inbox.extend refused"}, ""},
			{"Receive", receive, []string{"inbox.receive ok"}, ""},
			{"Ack", func() error { return c.Ack(lead, got...) }, []string{"inbox.ack ok"}, ""},
			{"Release", func() error { return c.Release(lead, 0, got...) }, []string{"inbox.release refused"}, ""},
			{"SendAll", func() (err error) {
				all, err := c.SendAll(tester, []string{"lead"}, note("y"))
				sent = all[0]
				return err
			}, []string{"inbox.send ok"}, ""},
			{"Cancel", func() error { return c.Cancel(tester, sent) }, []string{"inbox.cancel ok"}, ""},
			{"Cancel", func() error { return c.Cancel(tester, sent) }, []string{"inbox.cancel refused"}, ""},
			{"Send", func() error { return post(late) }, []string{"inbox.send ok"}, ""},
			{"Fence", func() error { return c.Fence(lead, "run-1") }, []string{"inbox.fence ok"}, "run-1"},
			{"Fence", func() error { return c.Fence(lead, "run-1") }, []string{"inbox.fence replayed"}, "run-1"},
			{"Fence", func() error { return c.Fence(lead, "") }, []string{"inbox.fence refused"}, "none"},
			{"Receive", func() error { return drop(c.Receive(lead, &team.ReceiveOptions{NoWait: true})) }, []string{"inbox.bury dead"}, ""},
			{"Redrive", func() error { return c.Redrive(lead, team.Queued{Signal: team.Signal{ID: sent.ID, Seq: sent.Seq}}) }, []string{"inbox.redrive ok"}, ""},
			{"Redrive", func() error { return c.Redrive(lead, team.Queued{Signal: team.Signal{ID: sent.ID, Seq: sent.Seq}}) }, []string{"inbox.redrive refused"}, ""},
			{"Receive", func() error { return drop(c.Receive(lead, &team.ReceiveOptions{NoWait: true})) }, []string{"inbox.bury dead"}, ""},
			{"Send", func() error { return post(note("z")) }, []string{"inbox.send ok"}, ""},
			{"Relay", func() error {
				ctx, cancel := context.WithTimeout(lead, time.Minute)
				defer cancel()
				require.ErrorIs(t, c.Relay(ctx, &host, "ses_lead", nil), context.DeadlineExceeded)
				return nil
			}, []string{"relay.deliver ok"}, ""},
			{"Observe", func() error { return observe(c.Observe(lead, inboxEvent("cancelled", host.notes[0].ID))) }, []string{"relay.cancelled ok"}, ""},
			{"Confirm", func() error { return observe(c.Confirm(lead, "ses_lead", host.notes[0].ID, "read back")) }, []string{"relay.delivered ok"}, ""},
			{"AckID", func() error { return c.AckID(lead, sent.ID) }, []string{"relay.acked ok"}, ""},
			{"AckID", func() error { return c.AckID(lead, "sig_x") }, []string{"relay.acked refused"}, "sig_x"},
			{"HandOff", func() error {
				return drop(c.HandOff(tester, board, team.Handoff{To: "lead", Draft: team.Draft{Session: "s", Task: "t", Topic: "u", Body: "b"},
					Signal: team.Signal{Kind: team.KindHandoff, Summary: "x", Key: "k"}, Ledger: l, Edits: []team.Edit{{Key: "plan", Value: json.RawMessage(`1`)}}}))
			}, []string{"inbox.handoff ok", "ledger.handoff ok"}, "any"},
			{"HandOff", func() error { return drop(c.HandOff(tester, board, team.Handoff{To: "lead"})) }, []string{"inbox.handoff refused"}, "none"},
			{"Leave", func() error { return c.Leave(lead, "ses_tester") }, []string{"inbox.leave ok"}, "none"},
			{"Leave", func() error { return c.Leave(lead, "ses_tester") }, []string{"inbox.leave refused"}, "none"},
			{"Sweep", func() error { return drop(c.Sweep(lead, &team.SignalSweepOptions{TTL: time.Nanosecond})) }, []string{"inbox.sweep ok"}, "team/fenced/run-1"},

			{"Put", func() error { return drop(l.Put(lead, "k", json.RawMessage(`1`), "")) }, []string{"ledger.put ok"}, "k"},
			{"Put", func() error { return drop(l.Put(lead, "k", json.RawMessage(`1`), "")) }, []string{"ledger.put refused"}, "k"},
			{"Update", func() error {
				return drop(l.Update(lead, "k", func(team.Fact) (json.RawMessage, error) { return json.RawMessage(`2`), nil }))
			}, []string{"ledger.update ok"}, "k"},
			{"Apply", func() error {
				return drop(l.Apply(lead, team.Edit{Key: "j", Value: json.RawMessage(`1`), TTL: time.Second}))
			}, []string{"ledger.apply ok"}, "j"},
			{"Apply", func() error { return drop(l.Apply(lead, team.Edit{Key: "k", Value: json.RawMessage(`1`)})) }, []string{"ledger.apply refused"}, "k"},
			{"Delete", func() error { return l.Delete(lead, "k", team.AnyVersion) }, []string{"ledger.delete ok"}, "k"},
			{"Delete", func() error { return l.Delete(lead, "k", team.AnyVersion) }, []string{"ledger.delete refused"}, "k"},
			{"AddGoals", func() error { return drop(l.AddGoals(lead, "ship")) }, []string{"ledger.goals ok"}, "goals"},
			{"SetGoal", func() error { return drop(l.SetGoal(lead, "1", team.GoalDone, "")) }, []string{"ledger.goals ok"}, "goals"},
			{"RemoveGoal", func() error { return drop(l.RemoveGoal(lead, "1")) }, []string{"ledger.goals ok"}, "goals"},
			{"Sweep", func() error { time.Sleep(time.Second); return drop(l.Sweep(lead)) }, []string{"ledger.sweep ok"}, "j"},
			{"Apply", func() error {
				return drop(l.Apply(lead, team.Edit{Key: "j", Value: json.RawMessage(`1`), TTL: time.Second}))
			}, []string{"ledger.apply ok"}, "j"},
			{"SweepScopes", func() error {
				time.Sleep(time.Second)
				return drop(l.SweepScopes(lead, func(context.Context, team.SessionID) (bool, error) { return true, nil }))
			}, []string{"ledger.sweep ok"}, "j"},
		} {
			covered[w.method] = true
			tr.taken()
			err := w.do()
			events := tr.taken()
			require.Equal(t, w.want, opsOf(events), w.method)
			refused := strings.HasSuffix(w.want[0], "refused")
			require.Equal(t, refused, err != nil, "%s = %v", w.method, err)
			for _, e := range events {
				require.Equal(t, refused, e.Reason != "" && e.Outcome == "refused", "a refusal says why: %+v", e)
				switch {
				case w.about == "any":
					require.NotEmpty(t, e.ID)
				case w.about == "none":
					require.Empty(t, e.ID)
				case strings.HasPrefix(e.Op, "ledger."):
					require.Equal(t, "team/ledger/%2Fhome%2Fme%2Fapp///"+w.about, e.ID, w.method)
				case w.about == "":
					require.Equal(t, string(sent.ID), e.ID, w.method)
				default:
					require.Equal(t, w.about, e.ID, w.method)
				}
			}
		}
		for _, read := range []string{"DeadLetters", "Pending", "PlanSweep", "Retrace", "Roster", "Secret", "Spilled", "Status",
			"Get", "Goals", "Keys", "Scope", "Watch"} {
			covered[read] = true
		}
		for _, channel := range []any{c, l} {
			for m := range reflect.TypeOf(channel).Methods() {
				require.True(t, covered[m.Name], "%T.%s: which line does it leave?", channel, m.Name)
			}
		}
	})
}

// FollowTrail tells the life of a signal: from its sending over the host to its answer.
func TestFollowTrailOfASignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "trail")
		trail := openTrail(t, dir, nil)
		c, _ := newTeam(t, &team.SignalOptions{Trace: trail.Record})
		send(t, c, "tester", "lead", note("another"))
		got, err := c.Receive(as(t.Context(), "lead"), nil)
		require.NoError(t, err)
		require.NoError(t, c.Ack(as(t.Context(), "lead"), got...))
		sent, id := relayed(t, c, note("question"))
		_, err = c.Observe(t.Context(), inboxEvent("delivered", id))
		require.NoError(t, err)
		reply := note("answer")
		reply.ReplyTo = sent.ID
		answer := send(t, c, "lead", "tester", reply)
		for _, name := range []string{string(sent.ID), id} {
			var life []string
			for line, err := range team.FollowTrail(t.Context(), dir, name) {
				require.NoError(t, err)
				life = append(life, line.Event.Op)
				if line.Event.Op != "inbox.send" {
					require.Equal(t, []string{id, trail.TargetDigest("ses_lead")}, []string{line.Event.HostID, line.Target})
				} else if line.Event.ReplyTo != "" {
					require.Equal(t, string(answer.ID), line.Event.ID)
				}
			}
			want := []string{"inbox.send", "relay.deliver", "relay.delivered", "relay.acked", "inbox.send"}
			if name == id {
				want = want[1:4] // the host knows nothing of the sending
			}
			require.Equal(t, want, life)
		}
	})
}

// A deletion has no value, so its line has the digest of none.
func TestLedgerLineOfADeletionHasNoDigest(t *testing.T) {
	tr := new(tracer)
	l := openLedger(t, nil, inProject, &team.LedgerOptions{Trace: tr.record})
	putFact(t, l, "k", `1`, "")
	_, err := l.Apply(asLead(t), team.Edit{Key: "k", Prev: team.AnyVersion, Delete: true})
	require.NoError(t, err)
	_, err = l.Update(asLead(t), "k", func(team.Fact) (json.RawMessage, error) { return nil, errors.New("no") })
	require.Error(t, err)
	events := tr.taken()
	require.Equal(t, []string{"ledger.put ok", "ledger.apply ok", "ledger.update refused"}, opsOf(events))
	require.Equal(t, []string{digest("1"), "", ""}, []string{events[0].SHA256, events[1].SHA256, events[2].SHA256})
}

// A write whose outcome nobody knows may be there: its line leads to it.
func TestUnknownOutcomeLeavesALineWithTheID(t *testing.T) {
	tr := new(tracer)
	store := &lostAnswers{Store: new(memstore.Store), lose: true}
	c, err := team.OpenSignals(t.Context(), store, &team.SignalOptions{Trace: tr.record})
	require.NoError(t, err)
	for _, role := range []team.Role{"lead", "tester"} {
		require.NoError(t, c.Enrol(t.Context(), team.Member{Session: "ses_" + team.SessionID(role), Role: role}))
	}
	tr.taken()
	tester := as(t.Context(), "tester")
	stored := func() (ids []string) {
		for item, err := range store.Items(t.Context(), "inbox/ses_lead", team.ListOptions{}) {
			require.NoError(t, err)
			ids = append(ids, item.ID)
		}
		return ids
	}
	_, err = c.Send(tester, "lead", note("x"))
	require.ErrorIs(t, err, team.ErrUnknownOutcome)
	handed, err := c.HandOff(tester, newBoard(t, nil), team.Handoff{To: "lead", Draft: team.Draft{Session: "s", Task: "t", Topic: "u", Body: "b"},
		Signal: team.Signal{Kind: team.KindHandoff, Summary: "x", Key: "k"}})
	require.ErrorIs(t, err, team.ErrUnknownOutcome)
	require.Zero(t, handed)
	var ids []string
	for _, e := range tr.taken() {
		require.Equal(t, []any{"unknown", team.SessionID("ses_lead")}, []any{e.Outcome, e.Target}, e.Op)
		ids = append(ids, e.ID)
	}
	require.Len(t, ids, 2)
	require.Equal(t, stored(), ids)
}

func (s *lostAnswers) Commit(ctx context.Context, appends []team.Batch, changes []team.Change) (team.Committed, error) {
	done, err := s.Store.Commit(ctx, appends, changes)
	if err == nil && s.lose {
		return team.Committed{}, fmt.Errorf("%w: connection reset", team.ErrUnknownOutcome)
	}
	return done, err
}

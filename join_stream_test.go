package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// "A gap leads to a resync by snapshot, marked as such": a stream that breaks, ends, is
// silent, or begins anew in the hands of the program.
func TestJoinGap(t *testing.T) {
	ended := team.Inspection{Session: team.Session{Outcome: "succeeded"}, Activity: team.ActivityIdle, Last: &team.LastMessage{Text: "x"}}
	for says, first := range map[string]func(yield func(team.Event, error) bool, ctx context.Context){
		"it breaks": func(yield func(team.Event, error) bool, _ context.Context) {
			_ = yield(busy(kid), nil) && yield(team.Event{}, errors.New("cut off"))
		},
		"it ends": func(yield func(team.Event, error) bool, _ context.Context) { yield(busy(kid), nil) },
		"it is silent past the heartbeat": func(yield func(team.Event, error) bool, ctx context.Context) {
			if yield(busy(kid), nil) {
				<-ctx.Done()
			}
		},
	} {
		t.Run(says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host := new(joinHost)
				host.set(kid, team.Inspection{Activity: team.ActivityRunning})
				j := newJoin(t, &team.JoinOptions{Sessions: host})
				register(t, j, kid)
				events := &scriptedEvents{streams: make(chan func(func(team.Event, error) bool, context.Context), 2)}
				events.streams <- first
				events.streams <- func(yield func(team.Event, error) bool, ctx context.Context) {
					s := ended
					s.Idle = time.Now()
					s.Last.Completed = time.Now()
					host.set(kid, s) // it ended while nobody listened
					if yield(ev("", "server.connected", ""), nil) {
						<-ctx.Done()
					}
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				done := make(chan error, 1)
				go func() { done <- j.Follow(ctx, events, nil) }()
				if says == "it is silent past the heartbeat" {
					time.Sleep(team.DefaultSilence)
				}
				time.Sleep(2 * time.Second)
				got := childOf(t, j, kid)
				require.Equal(t, team.ChildCompleted, got.State)
				require.Equal(t, team.FromSnapshot, got.By.Source)
				require.True(t, got.By.Resync, "marked as such")
				require.Empty(t, j.Stream().Gap)
				require.Equal(t, 1, j.Stream().Gaps)
				stop()
				require.ErrorIs(t, <-done, context.Canceled)
			})
		})
	}
	t.Run("the program feeds it: the next wait reads the snapshots", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			host := new(joinHost)
			j := newJoin(t, &team.JoinOptions{Sessions: host})
			register(t, j, kid)
			observe(t, j, ev("", "server.connected", ""), busy(kid))
			require.Empty(t, j.Stream().Gap)
			observe(t, j, ev("", "server.connected", ""))
			require.NotEmpty(t, j.Stream().Gap)
			host.set(kid, team.Inspection{Session: team.Session{Outcome: "failed", Idle: time.Now()}, Activity: team.ActivityIdle})
			w, err := j.Wait(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, team.ChildFailed, w.Children[0].State)
			require.True(t, w.Children[0].By.Resync)
			require.Empty(t, w.Gap)
			require.Less(t, w.Waited, time.Second)
		})
	})
	t.Run("a host that does not answer leaves the hole, and says so", func(t *testing.T) {
		host := new(joinHost)
		host.fail(errors.New("down"))
		j := newJoin(t, &team.JoinOptions{Sessions: host})
		register(t, j, kid)
		require.NoError(t, j.Resync(t.Context(), "overflow"))
		require.Equal(t, "overflow", j.Stream().Gap)
		host.fail(nil)
		require.NoError(t, j.Resync(t.Context(), "again"))
		require.Empty(t, j.Stream().Gap)
		require.Equal(t, "deleted", childOf(t, j, kid).Reason, "it is gone, which is an answer")
	})
}

// A snapshot of a turn before says nothing of the one that runs.
func TestJoinStaleSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := new(joinHost)
		j := newJoin(t, &team.JoinOptions{Sessions: plainHost{host}})
		register(t, j, kid)
		begun := ev2(kid, 1, "session.execution.started", "")
		begun.Time = time.Now()
		time.Sleep(time.Second)
		over := ev2(kid, 2, "session.execution.succeeded", "")
		over.Time = time.Now()
		host.set(kid, team.Inspection{Session: team.Session{Outcome: "succeeded", Idle: time.Now().Add(time.Millisecond)}})
		time.Sleep(time.Second)
		again := ev2(kid, 3, "session.execution.started", "")
		again.Time = time.Now()
		observe(t, j, begun, over, again)
		require.NoError(t, j.Resync(t.Context(), "test"))
		require.Equal(t, team.ChildRunning, childOf(t, j, kid).State)
		require.Equal(t, 2, childOf(t, j, kid).Turn)
		time.Sleep(time.Second)
		host.set(kid, team.Inspection{Session: team.Session{Outcome: "interrupted", Idle: time.Now()}})
		require.NoError(t, j.Resync(t.Context(), "test"))
		require.Equal(t, team.ChildInterrupted, childOf(t, j, kid).State)
	})
}

// "Children are adopted after a restart only if the host's record names the parent; three
// answers: adopted, none, could not ask."
func TestJoinAdopt(t *testing.T) {
	host := new(joinHost)
	j := newJoin(t, &team.JoinOptions{Sessions: host})
	a, err := j.Adopt(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, team.AdoptedNone, a.Answer)

	host.fail(errors.New("down"))
	a, err = j.Adopt(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, team.AdoptNotAsked, a.Answer)
	require.ErrorContains(t, a.Err, "down")
	host.fail(nil)

	host.set(kid, team.Inspection{Session: team.Session{Parent: lead, Agent: "general"}, Activity: team.ActivityRunning})
	host.set("ses_done", team.Inspection{Session: team.Session{Parent: lead, Outcome: "succeeded", Idle: time.Now()}, Activity: team.ActivityIdle})
	host.set("ses_other", team.Inspection{Session: team.Session{Parent: "ses_LEAD"}})
	host.set("ses_orphan", team.Inspection{})
	a, err = j.Adopt(t.Context(), []team.SessionID{"ses_other", "ses_orphan", "ses_nobody"})
	require.NoError(t, err)
	require.Equal(t, team.AdoptedNone, a.Answer)
	require.ErrorIs(t, a.Refused["ses_other"], team.ErrDenied)
	require.ErrorContains(t, a.Refused["ses_other"], "ses_LEAD")
	require.ErrorIs(t, a.Refused["ses_orphan"], team.ErrDenied)
	require.ErrorIs(t, a.Refused["ses_nobody"], team.ErrNotFound)
	a, err = j.Adopt(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, team.AdoptedSome, a.Answer)
	require.Len(t, a.Children, 2)
	require.True(t, a.Children[0].Adopted)
	require.Equal(t, team.ChildRunning, childOf(t, j, kid).State)
	require.Equal(t, team.ChildCompleted, childOf(t, j, "ses_done").State)

	t.Run("an outcome may be that of a turn before, where the host does not say whether it runs", func(t *testing.T) {
		host := new(joinHost)
		host.set(kid, team.Inspection{Session: team.Session{Parent: lead, Outcome: "succeeded", Idle: time.Now()}})
		j := newJoin(t, &team.JoinOptions{Sessions: plainHost{host}})
		a, err := j.Adopt(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, team.AdoptNotAsked, a.Answer, "it lists no children")
		require.ErrorIs(t, a.Err, errors.ErrUnsupported)
		_, err = j.Adopt(t.Context(), []team.SessionID{kid})
		require.NoError(t, err)
		require.True(t, childOf(t, j, kid).Presumed)
	})
	t.Run("an adopted child of which nobody saw whether it ran is not completed", func(t *testing.T) {
		host := new(joinHost)
		host.set(kid, team.Inspection{Session: team.Session{Parent: lead}})
		j := newJoin(t, &team.JoinOptions{Sessions: plainHost{host}})
		_, err := j.Adopt(t.Context(), []team.SessionID{kid})
		require.NoError(t, err)
		observe(t, j, idle(kid))
		require.Equal(t, team.ChildUnknown, childOf(t, j, kid).State)
		require.True(t, childOf(t, j, kid).Presumed)
	})
}

// "Two parents on one stream never mix."
func TestJoinTwoParents(t *testing.T) {
	store := new(memstore.Store)
	a := openJoin(t, store, nil)
	b, err := team.OpenJoin(t.Context(), store, lead+"/2", nil)
	require.NoError(t, err)
	part := func(parent, child team.SessionID) team.Event {
		return ev(parent, "message.part.updated", `{"part":{"type":"tool","tool":"task","callID":"c","state":{"status":"running","metadata":{"parentSessionId":"`+
			string(parent)+`","sessionId":"`+string(child)+`"}}}}`)
	}
	for _, e := range []team.Event{part(lead, "ses_a"), part(lead+"/2", "ses_b"), busy("ses_a"), busy("ses_b"), idle("ses_a"), idle(lead)} {
		observe(t, a, e)
		observe(t, b, e)
	}
	for j, id := range map[*team.Join]team.SessionID{a: "ses_a", b: "ses_b"} {
		got, err := j.Children(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Equal(t, id, got[0].Session)
		require.Equal(t, id == "ses_a", got[0].Settled())
	}
	_, err = a.ObserveText(t.Context(), notice("ses_b", "completed", "x"), "")
	require.NoError(t, err)
	require.Equal(t, team.ChildRunning, childOf(t, b, "ses_b").State)
	reg, err := b.RegisterResult(t.Context(), toolResult("ses_c", "c2", "running", "")) // lead's
	require.NoError(t, err)
	require.Equal(t, team.EnvelopeForeign, reg.Verdict)
	again := openJoin(t, store, nil)
	require.False(t, again.Known("ses_b"))
	require.True(t, again.Known("ses_a"))
}

// "Unknown event types: passed on by name, once each; a type that a generation should send
// but did not appear is reported too."
func TestJoinStreamReport(t *testing.T) {
	var told []string
	j := newJoin(t, &team.JoinOptions{Report: func(_ context.Context, what, name string) { told = append(told, what+" "+name) }})
	for range 3 {
		observe(t, j, ev("ses_x", "session.woken", ""), ev("ses_x", "rpc.mine", ""), ev("ses_x", "session.dreamt", ""))
	}
	require.Equal(t, []string{"unknown event type session.woken", "unknown event type session.dreamt"}, told)
	require.Equal(t, map[string]uint64{"session.woken": 3, "session.dreamt": 3}, j.Stream().Unknown)

	register(t, j, kid)
	observe(t, j, ev2(kid, 1, "session.execution.started", ""))
	require.Empty(t, j.Stream().Missing, "nothing has settled yet")
	_, err := j.ObserveText(t.Context(), notice(kid, "completed", "x"), "")
	require.NoError(t, err)
	require.Contains(t, j.Stream().Missing, "session.execution.succeeded|session.execution.failed|session.execution.interrupted")
	observe(t, j, ev2(kid, 2, "session.execution.succeeded", ""))
	require.NotContains(t, j.Stream().Missing, "session.execution.succeeded|session.execution.failed|session.execution.interrupted")
}

// flakyRecords fails when the test says so.
type flakyRecords struct {
	*memstore.Store
	fail error
}

func (f *flakyRecords) Put(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
	if f.fail != nil {
		return "", f.fail
	}
	return f.Store.Put(ctx, key, value, prev)
}

// What was learned while the store failed is written by the next call.
func TestJoinStoreFails(t *testing.T) {
	store := &flakyRecords{Store: new(memstore.Store)}
	j := openJoin(t, store, nil)
	register(t, j, kid)
	store.fail = errors.New("disk full")
	for _, e := range []team.Event{busy(kid), idle(kid)} {
		_, err := j.Observe(t.Context(), e)
		require.ErrorIs(t, err, store.fail)
	}
	_, err := j.Children(t.Context(), nil)
	require.ErrorIs(t, err, store.fail)
	store.fail = nil
	require.Equal(t, team.ChildCompleted, childOf(t, j, kid).State)
	require.Equal(t, team.ChildCompleted, childOf(t, openJoin(t, store, nil), kid).State)
}

// Bad input is a typed error and changes nothing.
func TestJoinBadInput(t *testing.T) {
	_, err := team.OpenJoin(t.Context(), new(memstore.Store), "", nil)
	require.ErrorIs(t, err, team.ErrInvalid)
	_, err = team.OpenJoin(t.Context(), new(memstore.Store), lead, &team.JoinOptions{Wait: -1})
	require.ErrorIs(t, err, team.ErrInvalid)
	j := newJoin(t, nil)
	for _, d := range []team.Dispatch{{}, {Session: lead}, {Session: "a\nb"}} {
		_, err := j.Register(t.Context(), d)
		require.ErrorIs(t, err, team.ErrInvalid)
	}
	_, err = j.RegisterResult(t.Context(), team.ToolResult{Tool: "task", Session: lead, Result: json.RawMessage(`[`)})
	require.ErrorIs(t, err, team.ErrInvalid)
	_, err = j.Result(t.Context(), kid, "x")
	require.ErrorIs(t, err, team.ErrNotFound)
	got, err := j.Children(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, got)
}

// FuzzJoinObserve: whatever a host sends, no panic, and no child that nobody registered.
func FuzzJoinObserve(f *testing.F) {
	f.Add("session.status", "ses_kid", `{"status":{"type":"busy"}}`, uint64(1))
	f.Add("message.part.updated", "ses_lead", `{"part":{"type":"tool","tool":"task","state":{"status":"completed","output":"<task id=\"ses_kid\" state=\"completed\">"}}}`, uint64(0))
	f.Add("session.inbox.enqueued", "ses_lead", `{"item":{"type":"synthetic","payload":{"text":"x","metadata":{"source":"subagent","childID":"ses_kid","state":"error"}}}}`, uint64(3))
	f.Add("permission.asked", "", `{"sessionID":"ses_kid","id":"p"}`, uint64(0))
	f.Fuzz(func(t *testing.T, typ, session, data string, seq uint64) {
		store := new(memstore.Store)
		j := openJoin(t, store, nil)
		register(t, j, kid)
		var account team.Capability
		for range 2 {
			e := team.Event{Type: typ, Session: team.SessionID(session), Seq: seq, Data: json.RawMessage(data)}
			_, _ = j.Observe(t.Context(), e)
			account.Observe(e)
		}
		got, err := j.Children(t.Context(), nil)
		require.NoError(t, err)
		if session != string(lead) {
			require.Len(t, got, 1)
		}
		require.LessOrEqual(t, got[0].Turn, 2)
		again, err := openJoin(t, store, nil).Children(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, len(got), len(again), "what was written can be read")
		for i := range got {
			require.Equal(t, got[i].State, again[i].State)
			require.Equal(t, got[i].Asks, again[i].Asks)
		}
	})
}

package team_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

// lateHost is a host whose answer to a look comes behind what happens meanwhile.
type lateHost struct {
	*joinHost
	meanwhile func()
}

func (h *lateHost) Inspect(ctx context.Context, id team.SessionID) (team.Inspection, error) {
	i, err := h.joinHost.Inspect(ctx, id)
	if f := h.meanwhile; f != nil {
		h.meanwhile = nil
		f()
	}
	return i, err
}

func TestJoinSnapshotIsOlderThanWhatComesMeanwhile(t *testing.T) {
	t.Run("a session that ran before its ending came has not begun anew", func(t *testing.T) {
		host := &lateHost{joinHost: new(joinHost)}
		j := newJoin(t, &team.JoinOptions{Sessions: host})
		register(t, j, "ses_kid")
		observe(t, j, busy("ses_kid"))
		host.set("ses_kid", team.Inspection{Activity: team.ActivityRunning})
		host.meanwhile = func() { observe(t, j, idle("ses_kid")) }
		require.NoError(t, j.Resync(t.Context(), "test"))
		c := childOf(t, j, "ses_kid")
		require.Equal(t, team.ChildCompleted, c.State)
		require.Equal(t, 1, c.Turn)
	})
	t.Run("a session that was idle before its next turn began has not ended that", func(t *testing.T) {
		host := &lateHost{joinHost: new(joinHost)}
		j := newJoin(t, &team.JoinOptions{Sessions: host})
		register(t, j, "ses_kid")
		observe(t, j, busy("ses_kid"))
		host.set("ses_kid", team.Inspection{Activity: team.ActivityIdle, Session: team.Session{Outcome: "failed", Idle: time.Now()}})
		host.meanwhile = func() { observe(t, j, idle("ses_kid"), busy("ses_kid")) }
		require.NoError(t, j.Resync(t.Context(), "test"))
		c := childOf(t, j, "ses_kid")
		require.Equal(t, team.ChildRunning, c.State)
		require.Equal(t, 2, c.Turn)
	})
}

func TestJoinSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := new(joinHost)
		j := newJoin(t, &team.JoinOptions{Sessions: host})
		register(t, j, "ses_tries", "ses_ran")
		host.set("ses_tries", team.Inspection{Activity: team.ActivityRunning})
		host.set("ses_ran", team.Inspection{Activity: team.ActivityIdle, Last: &team.LastMessage{Completed: time.Now(), Finish: "tool-calls"}})
		observe(t, j, ev2("ses_tries", 1, "session.execution.started", ""), ev2("ses_tries", 2, "session.retry.scheduled", `{"attempt":4,"error":{"type":"APIError","message":"refused"}}`))
		w, err := j.Wait(t.Context(), &team.WaitOptions{Timeout: 20 * time.Second})
		require.NoError(t, err)
		require.NotZero(t, host.looks)
		require.Equal(t, team.ChildStalled, w.Children[0].State, "a session that waits for its next try counts as running, and is stalled")
		require.Contains(t, w.Children[0].Reason, "APIError: refused")
		require.Equal(t, team.ChildUnknown, w.Children[1].State, "a session with a message has run, though nobody saw it")
		require.True(t, w.Children[1].Presumed)
	})
}

func TestJoinNoticeBeforeTheCallHasAnswered(t *testing.T) {
	enqueued := func(id team.SessionID, state, body string) team.Event {
		in := notice(id, state, body)
		data, err := json.Marshal(map[string]any{"inboxID": "msg_" + string(id), "item": map[string]any{"type": "synthetic",
			"payload": map[string]any{"text": in.Text, "metadata": in.Metadata}}})
		require.NoError(t, err)
		return ev(lead, "session.inbox.enqueued", string(data))
	}
	t.Run("it ends the child as soon as that is known", func(t *testing.T) {
		j := newJoin(t, nil)
		observe(t, j, enqueued("ses_quick", "error", "broken"))
		reg, err := j.RegisterResult(t.Context(), toolResult("ses_quick", "call_1", "running", ""))
		require.NoError(t, err)
		require.Equal(t, team.ChildFailed, reg.Child.State)
		require.Equal(t, team.FromNotice, reg.Child.By.Source)
		require.Equal(t, 1, reg.Child.Turn)
	})
	t.Run("the newest are kept, and one of another child ends nobody", func(t *testing.T) {
		j := newJoin(t, nil)
		for i := range 40 {
			observe(t, j, enqueued(team.SessionID(fmt.Sprint("ses_", i)), "completed", "text"))
		}
		register(t, j, "ses_0", "ses_39", "ses_other")
		require.Equal(t, team.ChildRunning, childOf(t, j, "ses_0").State)
		require.Equal(t, team.ChildCompleted, childOf(t, j, "ses_39").State)
		require.Equal(t, team.ChildRunning, childOf(t, j, "ses_other").State)
	})
}

func TestJoinHostIsBehindItsOwnEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := new(joinHost)
		j := newJoin(t, &team.JoinOptions{Sessions: host})
		register(t, j, "ses_kid")
		observe(t, j, busy("ses_kid"), idle("ses_kid"))
		host.set("ses_kid", team.Inspection{Session: team.Session{ID: "ses_kid", Parent: j.Parent()}, Activity: team.ActivityRunning})
		_, err := j.Adopt(t.Context(), []team.SessionID{"ses_kid"})
		require.NoError(t, err)
		require.Equal(t, 1, childOf(t, j, "ses_kid").Turn, "its ending is a moment old")
		time.Sleep(2 * time.Second)
		_, err = j.Adopt(t.Context(), []team.SessionID{"ses_kid"})
		require.NoError(t, err)
		require.Equal(t, 2, childOf(t, j, "ses_kid").Turn, "it has begun anew")
	})
}

// "Shorten is called once for each answer": also where a snapshot brings it.
func TestJoinSnapshotBringsTheAnswer(t *testing.T) {
	for says, settled := range map[string]bool{"it ends the turn": false, "the turn has ended": true} {
		t.Run(says, func(t *testing.T) {
			host, calls := new(joinHost), 0
			j := newJoin(t, &team.JoinOptions{Sessions: host, Shorten: func(_ context.Context, text string) (string, team.Ref, error) {
				calls++
				return "short", team.Ref{}, nil
			}})
			register(t, j, kid)
			observe(t, j, busy(kid))
			if settled {
				observe(t, j, idle(kid))
			}
			host.set(kid, team.Inspection{Session: team.Session{ID: kid, Parent: lead}, Activity: team.ActivityIdle,
				Last: &team.LastMessage{Text: "the answer", Completed: time.Now(), Finish: "stop"}})
			_, err := j.Adopt(t.Context(), []team.SessionID{kid})
			require.NoError(t, err)
			got := childOf(t, j, kid)
			require.Equal(t, team.ChildCompleted, got.State)
			require.True(t, got.Answer.Known)
			require.Nil(t, got.Answer.First, "nobody was shown it yet")
			w, err := j.Wait(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, "short", w.Results[0].Text)
			require.Equal(t, 1, calls)
		})
	}
}

// What is presumed hides nothing that is known, and gives way to it.
func TestJoinPresumedHidesNothing(t *testing.T) {
	settled := func(t *testing.T, j *team.Join) {
		_, err := j.ObserveSignal(t.Context(), team.Signal{ID: "sig_1", Kind: team.KindSettled, From: team.Caller{Session: kid}, To: lead})
		require.NoError(t, err)
	}
	over := ev2(kid, 2, "session.next.step.failed", `{"error":{"type":"E","message":"boom"}}`)
	for _, signalFirst := range []bool{true, false} {
		t.Run(fmt.Sprint("an ending that only seems one, the signal first: ", signalFirst), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJoin(t, nil)
				register(t, j, kid)
				observe(t, j, ev2(kid, 1, "session.next.prompted", ""))
				if signalFirst {
					settled(t, j)
					observe(t, j, over)
				} else {
					observe(t, j, over)
					settled(t, j)
				}
				require.True(t, childOf(t, j, kid).Presumed)
				w, err := j.Wait(t.Context(), &team.WaitOptions{Firm: true})
				require.NoError(t, err)
				require.Equal(t, team.DefaultJoinGrace, w.Waited)
				c := w.Children[0]
				require.Equal(t, team.ChildFailed, c.State)
				require.False(t, c.Presumed)
				require.Len(t, c.Conflicts, 1, "the signal said otherwise")
			})
		})
	}
	t.Run("work that begins behind it", func(t *testing.T) {
		j := newJoin(t, nil)
		register(t, j, kid)
		observe(t, j, busy(kid))
		settled(t, j)
		observe(t, j, ev("ses_below", "session.created", `{"parentID":"ses_kid"}`), idle(kid))
		c := childOf(t, j, kid)
		require.Equal(t, team.ChildSettling, c.State)
		require.False(t, c.Presumed)
	})
}

// The stream comes to endings that are known by another way in order, and each is that of its turn.
func TestJoinStreamIsBehindByTwoTurns(t *testing.T) {
	j := newJoin(t, nil)
	for i, status := range []string{"error", "completed"} {
		call := fmt.Sprint("call_", i)
		_, err := j.Register(t.Context(), team.Dispatch{Session: kid, Call: call, Background: true})
		require.NoError(t, err)
		_, err = j.ObserveText(t.Context(), notice(kid, status, "text"), "msg_"+call)
		require.NoError(t, err)
	}
	observe(t, j, busy(kid), ev(kid, "session.error", `{"error":{"name":"E"}}`), idle(kid), busy(kid), idle(kid))
	c := childOf(t, j, kid)
	require.Equal(t, 2, c.Turn)
	require.Equal(t, team.ChildCompleted, c.State)
	require.Empty(t, c.Conflicts)
	require.Equal(t, team.ChildFailed, c.Earlier[0].State)
	require.Empty(t, c.Earlier[0].Conflicts)
	require.Len(t, c.Earlier[0].Evidence, 2)
}

// A notice that was lost does not move those behind it to other turns.
func TestJoinNoticeIsLost(t *testing.T) {
	j := newJoin(t, nil)
	for i, e := range []team.Event{ev(kid, "session.execution.interrupted", `{"reason":"user"}`), ev(kid, "session.execution.succeeded", "")} {
		_, err := j.Register(t.Context(), team.Dispatch{Session: kid, Call: fmt.Sprint("call_", i), Background: true})
		require.NoError(t, err)
		observe(t, j, ev(kid, "session.execution.started", ""), e)
	}
	_, err := j.ObserveText(t.Context(), notice(kid, "completed", "two"), "msg_2")
	require.NoError(t, err)
	text, err := j.Text(t.Context(), kid, 2)
	require.NoError(t, err)
	require.Equal(t, "two", text)
	require.Empty(t, childOf(t, j, kid).Earlier[0].Conflicts)
}

// A call whose beginning is in the stream has begun behind all that the stream came to before.
func TestJoinCallBehindAForeignTurn(t *testing.T) {
	j := newJoin(t, nil)
	call := func(id, status, text string) team.Event {
		return ev(lead, "message.part.updated", fmt.Sprintf(`{"part":{"type":"tool","tool":"task","callID":%q,"state":{"status":%q,"output":%q,"metadata":{"sessionId":"ses_kid","parentSessionId":"ses_lead"}}}}`, id, status, text))
	}
	answer := func(text string) string {
		return "<task id=\"ses_kid\" state=\"completed\">\n<task_result>\n" + text + "\n</task_result>\n</task>"
	}
	observe(t, j, call("c1", "running", ""), busy(kid), idle(kid), call("c1", "completed", answer("one")),
		busy(kid), idle(kid), // somebody else's
		call("c2", "running", ""), busy(kid), idle(kid), call("c2", "completed", answer("three")))
	for turn, want := range map[int]string{1: "one", 3: "three"} {
		text, err := j.Text(t.Context(), kid, turn)
		require.NoError(t, err)
		require.Equal(t, want, text)
	}
	c := childOf(t, j, kid)
	require.Equal(t, 3, c.Turn)
	require.False(t, c.Earlier[1].Dispatched)
}

// What came before the child was known counts from when it came.
func TestJoinEarlyEndingIsAsOldAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoin(t, nil)
		observe(t, j, ev2(kid, 1, "session.next.prompted", ""), ev2(kid, 2, "session.next.step.ended", `{"finish":"stop"}`))
		time.Sleep(2 * team.DefaultJoinGrace)
		observe(t, j, ev2(kid, 3, "session.next.prompted", ""))
		register(t, j, kid)
		c := childOf(t, j, kid)
		require.Equal(t, 2, c.Turn)
		require.Equal(t, team.ChildCompleted, c.Earlier[0].State)
	})
}

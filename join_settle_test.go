package team_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

const kid = team.SessionID("ses_kid")

// Each way in which each generation says that a child has ended, and what that is.
func TestJoinEndings(t *testing.T) {
	failed := `{"error":{"name":"APIError","data":{"message":"no such model"}}}`
	for _, c := range []struct {
		says   string
		events []team.Event
		state  team.ChildState
		reason string
	}{
		{"1.x: busy, then idle, is completed", []team.Event{busy(kid), idle(kid)}, team.ChildCompleted, ""},
		{"1.x: an idle status is the same", []team.Event{busy(kid), ev(kid, "session.status", `{"status":{"type":"idle"}}`)}, team.ChildCompleted, ""},
		{"1.x: an error, then idle, is failed", []team.Event{busy(kid), ev(kid, "session.error", failed), idle(kid)}, team.ChildFailed, "APIError: no such model"},
		{"1.x: an abort, then idle, is interrupted", []team.Event{busy(kid), ev(kid, "session.error", `{"error":{"name":"MessageAbortedError","data":{"message":"Aborted"}}}`), idle(kid)}, team.ChildInterrupted, "MessageAbortedError: Aborted"},
		{"1.x: an error, and then it goes on, is no end", []team.Event{busy(kid), ev(kid, "session.error", failed), busy(kid)}, team.ChildRunning, ""},
		{"1.x: created, no step, then idle, has never started", []team.Event{ev(kid, "session.updated", ""), idle(kid)}, team.ChildNeverStarted, ""},
		{"1.x: a retry is no end", []team.Event{busy(kid), ev(kid, "session.status", `{"status":{"type":"retry","attempt":1,"message":"m","next":2}}`)}, team.ChildRunning, ""},
		{"2.x: succeeded", []team.Event{ev2(kid, 1, "session.execution.started", ""), ev2(kid, 2, "session.execution.succeeded", "")}, team.ChildCompleted, ""},
		{"2.x: failed", []team.Event{ev2(kid, 1, "session.execution.started", ""), ev2(kid, 2, "session.execution.failed", `{"error":{"type":"provider","message":"400"}}`)}, team.ChildFailed, "provider: 400"},
		{"2.x: interrupted by a user", []team.Event{ev2(kid, 1, "session.execution.interrupted", `{"reason":"user"}`)}, team.ChildInterrupted, "user"},
		{"2.x: interrupted by a word that nobody knows", []team.Event{ev2(kid, 1, "session.execution.interrupted", `{"reason":"moon"}`)}, team.ChildInterrupted, "moon"},
		{"2.x: shutdown is not the end", []team.Event{ev2(kid, 1, "session.execution.started", ""), ev2(kid, 2, "session.execution.interrupted", `{"reason":"shutdown"}`)}, team.ChildRunning, "shutdown"},
		{"2.x: a failed step is not the end", []team.Event{ev2(kid, 1, "session.execution.started", ""), ev2(kid, 2, "session.step.failed", `{"error":{}}`)}, team.ChildRunning, ""},
		{"2.x: retries without an end", []team.Event{ev2(kid, 1, "session.execution.started", ""), ev2(kid, 2, "session.retry.scheduled", `{"attempt":1,"error":{"type":"net","message":"refused"}}`)}, team.ChildRunning, ""},
		{"deleted", []team.Event{busy(kid), ev(kid, "session.deleted", "")}, team.ChildInterrupted, "deleted"},
	} {
		t.Run(c.says, func(t *testing.T) {
			j := newJoin(t, nil)
			register(t, j, kid)
			observe(t, j, c.events...)
			got := childOf(t, j, kid)
			require.Equal(t, c.state, got.State)
			require.Equal(t, c.reason, got.Reason)
			require.False(t, got.Presumed)
			if got.Settled() {
				require.Equal(t, team.FromEvent, got.By.Source)
			}
		})
	}
}

// The second API of 1.18 has no word for the end of a turn: what comes last is one when
// nothing comes behind it.
func TestJoinSecondAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoin(t, &team.JoinOptions{Grace: time.Second})
		register(t, j, kid)
		observe(t, j, ev2(kid, 1, "session.next.prompted", ""), ev2(kid, 2, "session.next.step.started", ""),
			ev2(kid, 3, "session.next.step.ended", `{"finish":"tool-calls"}`))
		time.Sleep(2 * time.Second)
		require.Equal(t, team.ChildRunning, childOf(t, j, kid).State, "a step that calls tools is not the last")

		observe(t, j, ev2(kid, 4, "session.next.step.ended", `{"finish":"stop"}`))
		require.Equal(t, team.ChildRunning, childOf(t, j, kid).State, "another step may follow")
		observe(t, j, ev2(kid, 5, "session.next.step.started", ""))
		time.Sleep(2 * time.Second)
		require.Equal(t, team.ChildRunning, childOf(t, j, kid).State)

		observe(t, j, ev2(kid, 6, "session.next.step.ended", `{"finish":"stop"}`))
		time.Sleep(time.Second)
		require.Equal(t, team.ChildCompleted, childOf(t, j, kid).State)

		register(t, j, "ses_bad")
		observe(t, j, ev2("ses_bad", 1, "session.next.prompted", ""), ev2("ses_bad", 2, "session.next.step.failed", `{"error":{"type":"x","message":"y"}}`))
		time.Sleep(time.Second)
		require.Equal(t, team.ChildFailed, childOf(t, j, "ses_bad").State)
	})
}

// "The first terminal wins, later evidence is kept and conflicts named."
func TestJoinFirstEndingWins(t *testing.T) {
	j := newJoin(t, nil)
	register(t, j, kid)
	observe(t, j, busy(kid), ev(kid, "session.execution.failed", `{"error":{"message":"boom"}}`))
	_, err := j.ObserveText(t.Context(), notice(kid, "completed", "all fine"), "msg_1")
	require.NoError(t, err)
	got := childOf(t, j, kid)
	require.Equal(t, team.ChildFailed, got.State)
	require.Equal(t, team.FromEvent, got.By.Source)
	require.Len(t, got.Evidence, 2)
	require.Len(t, got.Conflicts, 1)
	require.Equal(t, team.ChildFailed, got.Conflicts[0].Counts)
	require.Equal(t, team.FromNotice, got.Conflicts[0].Said.Source)
	require.Equal(t, team.ChildCompleted, got.Conflicts[0].Said.State)

	t.Run("evidence is bounded and what was dropped is counted", func(t *testing.T) {
		for i := range 100 {
			_, err := j.ObserveText(t.Context(), notice(kid, "completed", fmt.Sprint("fine ", i)), fmt.Sprint("msg_x", i))
			require.NoError(t, err)
		}
		got := childOf(t, j, kid)
		require.LessOrEqual(t, len(got.Evidence), 16)
		require.LessOrEqual(t, len(got.Conflicts), 8)
		require.Greater(t, got.Dropped, 80)
		require.Equal(t, team.FromEvent, got.Evidence[0].Source, "the first stays")
	})
	t.Run("words of different hosts for one thing are no conflict", func(t *testing.T) {
		j := newJoin(t, nil)
		register(t, j, kid)
		observe(t, j, ev(kid, "session.execution.interrupted", `{"reason":"user"}`))
		_, err := j.ObserveText(t.Context(), notice(kid, "stopped", "x"), "")
		require.NoError(t, err)
		got := childOf(t, j, kid)
		require.Equal(t, team.ChildInterrupted, got.State)
		require.Empty(t, got.Conflicts)
	})
}

// "Not settled while the child's own background children are open": settling, and the
// final text is the later one.
func TestJoinSettling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoin(t, nil)
		register(t, j, kid)
		observe(t, j, busy(kid), ev("ses_grand", "session.created", `{"info":{"id":"ses_grand","parentID":"ses_kid"}}`), busy("ses_grand"), idle(kid))
		require.Equal(t, team.ChildSettling, childOf(t, j, kid).State)
		require.Equal(t, []team.SessionID{"ses_grand"}, childOf(t, j, kid).Open)

		// OpenCode 2.0.3 said so too early.
		_, err := j.ObserveText(t.Context(), notice(kid, "completed", "wait for my job"), "msg_early")
		require.NoError(t, err)
		require.Equal(t, team.ChildSettling, childOf(t, j, kid).State)

		time.Sleep(time.Hour)
		require.Equal(t, team.ChildSettling, childOf(t, j, kid).State)
		observe(t, j, idle("ses_grand"), idle(kid), idle(kid))
		require.Equal(t, team.ChildSettling, childOf(t, j, kid).State, "the host wakes it with the news first")
		observe(t, j, busy(kid))
		require.Equal(t, team.ChildRunning, childOf(t, j, kid).State)
		observe(t, j, idle(kid))
		got := childOf(t, j, kid)
		require.Equal(t, team.ChildCompleted, got.State)
		require.Equal(t, 1, got.Turn)
		_, err = j.ObserveText(t.Context(), notice(kid, "completed", "the whole story"), "msg_late")
		require.NoError(t, err)
		text, err := j.Text(t.Context(), kid, 1)
		require.NoError(t, err)
		require.Equal(t, "the whole story", text)
	})
	t.Run("nobody wakes it: it has settled after the grace", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			j := newJoin(t, nil)
			register(t, j, kid)
			observe(t, j, busy(kid), ev("ses_grand", "session.created", `{"parentID":"ses_kid"}`), idle(kid), idle("ses_grand"))
			begun := time.Now()
			w, err := j.Wait(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, team.WaitSettled, w.End)
			require.Equal(t, team.ChildCompleted, w.Children[0].State)
			require.Equal(t, team.DefaultJoinGrace, time.Since(begun))
		})
	})
	t.Run("a descendant of a descendant counts too, and one that is woken again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			j := newJoin(t, nil)
			register(t, j, kid)
			observe(t, j, busy(kid), ev("ses_b", "session.created", `{"parentID":"ses_kid"}`), ev("ses_c", "session.created", `{"parentID":"ses_b"}`),
				idle("ses_b"), idle(kid))
			require.Equal(t, []team.SessionID{"ses_c"}, childOf(t, j, kid).Open)
			observe(t, j, busy("ses_b"), idle("ses_c"))
			time.Sleep(time.Minute)
			require.Equal(t, team.ChildSettling, childOf(t, j, kid).State)
			require.Equal(t, []team.SessionID{"ses_b"}, childOf(t, j, kid).Open)
		})
	})
	t.Run("what stops it stops it at once", func(t *testing.T) {
		j := newJoin(t, nil)
		register(t, j, kid)
		observe(t, j, busy(kid), ev("ses_b", "session.created", `{"parentID":"ses_kid"}`), ev(kid, "session.execution.interrupted", `{"reason":"user"}`))
		require.Equal(t, team.ChildInterrupted, childOf(t, j, kid).State)
	})
}

// "A resumed child settles again as turn 2."
func TestJoinTurns(t *testing.T) {
	t.Run("1.x", func(t *testing.T) {
		j := newJoin(t, nil)
		register(t, j, kid)
		observe(t, j, busy(kid), idle(kid), idle(kid), busy(kid))
		got := childOf(t, j, kid)
		require.Equal(t, 2, got.Turn)
		require.Equal(t, team.ChildRunning, got.State)
		require.Len(t, got.Earlier, 1)
		require.Equal(t, team.ChildCompleted, got.Earlier[0].State)
		observe(t, j, ev(kid, "session.error", `{"error":{"name":"E"}}`), idle(kid))
		got = childOf(t, j, kid)
		require.Equal(t, 2, got.Turn)
		require.Equal(t, team.ChildFailed, got.State)
	})
	t.Run("a call begins it where the stream is silent", func(t *testing.T) {
		j := newJoin(t, nil)
		for turn, body := range []string{"one", "two"} {
			call := fmt.Sprint("call_", turn)
			_, err := j.RegisterResult(t.Context(), toolResult(kid, call, "running", ""))
			require.NoError(t, err)
			require.Equal(t, turn+1, childOf(t, j, kid).Turn)
			require.Equal(t, team.ChildRunning, childOf(t, j, kid).State)
			_, err = j.ObserveText(t.Context(), notice(kid, "completed", body), fmt.Sprint("msg_", turn))
			require.NoError(t, err)
			require.Equal(t, team.ChildCompleted, childOf(t, j, kid).State)
		}
		text, err := j.Text(t.Context(), kid, 1)
		require.NoError(t, err)
		require.Equal(t, "one", text)
		t.Run("and what a host replays of the first begins and ends nothing", func(t *testing.T) {
			_, err := j.RegisterResult(t.Context(), toolResult(kid, "call_2", "running", ""))
			require.NoError(t, err)
			for _, call := range []string{"call_0", "call_1", "call_2"} {
				_, err := j.RegisterResult(t.Context(), toolResult(kid, call, "running", ""))
				require.NoError(t, err)
			}
			for i, body := range []string{"one", "two"} {
				_, err = j.ObserveText(t.Context(), notice(kid, "completed", body), fmt.Sprint("msg_", i))
				require.NoError(t, err)
			}
			got := childOf(t, j, kid)
			require.Equal(t, 3, got.Turn)
			require.Equal(t, team.ChildRunning, got.State)
		})
	})
	t.Run("the notice of the turn before does not end it", func(t *testing.T) {
		j := newJoin(t, nil)
		_, err := j.RegisterResult(t.Context(), toolResult(kid, "c1", "running", ""))
		require.NoError(t, err)
		observe(t, j, ev2(kid, 1, "session.execution.started", ""), ev2(kid, 2, "session.execution.succeeded", ""))
		_, err = j.RegisterResult(t.Context(), toolResult(kid, "c2", "running", ""))
		require.NoError(t, err)
		observe(t, j, ev2(kid, 3, "session.execution.started", ""))
		_, err = j.ObserveText(t.Context(), notice(kid, "completed", "late"), "msg_1")
		require.NoError(t, err)
		got := childOf(t, j, kid)
		require.Equal(t, 2, got.Turn)
		require.Equal(t, team.ChildRunning, got.State)
		text, err := j.Text(t.Context(), kid, 1)
		require.NoError(t, err)
		require.Equal(t, "late", text)
	})
	t.Run("a stream that is behind the result of the call begins no turn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			j := newJoin(t, nil)
			_, err := j.RegisterResult(t.Context(), toolResult(kid, "c1", "completed", "done"))
			require.NoError(t, err)
			observe(t, j, busy(kid), idle(kid))
			require.Equal(t, 1, childOf(t, j, kid).Turn)
			observe(t, j, busy(kid))
			require.Equal(t, 2, childOf(t, j, kid).Turn, "behind that ending it does")

			j = newJoin(t, nil)
			_, err = j.RegisterResult(t.Context(), toolResult(kid, "c1", "completed", "done"))
			require.NoError(t, err)
			time.Sleep(team.DefaultJoinLag)
			observe(t, j, busy(kid))
			require.Equal(t, 2, childOf(t, j, kid).Turn, "no stream is that far behind")
		})
	})
	t.Run("an event that came late or twice changes nothing", func(t *testing.T) {
		j := newJoin(t, nil)
		register(t, j, kid)
		observe(t, j, ev2(kid, 3, "session.execution.started", ""), ev2(kid, 9, "session.execution.succeeded", ""),
			ev2(kid, 3, "session.execution.started", ""), ev2(kid, 9, "session.execution.succeeded", ""), ev2(kid, 4, "session.execution.failed", ""))
		got := childOf(t, j, kid)
		require.Equal(t, 1, got.Turn)
		require.Equal(t, team.ChildCompleted, got.State)
		require.Empty(t, got.Conflicts)
	})
}

// What is only presumed says so, and gives way to what is known.
func TestJoinPresumed(t *testing.T) {
	t.Run("the parent is idle", func(t *testing.T) {
		j := newJoin(t, nil)
		register(t, j, kid)
		_, err := j.Register(t.Context(), team.Dispatch{Session: "ses_bg", Background: true})
		require.NoError(t, err)
		observe(t, j, busy(kid), busy("ses_bg"), idle(lead))
		got := childOf(t, j, kid)
		require.True(t, got.Presumed)
		require.Equal(t, team.FromParent, got.By.Source)
		require.Equal(t, team.ChildUnknown, got.State, "that is no word for how it ended")
		require.Equal(t, team.ChildRunning, childOf(t, j, "ses_bg").State, "one in the background goes on without its parent")

		observe(t, j, ev(kid, "session.execution.failed", `{"error":{"message":"x"}}`))
		got = childOf(t, j, kid)
		require.False(t, got.Presumed)
		require.Equal(t, team.ChildFailed, got.State)
		require.Equal(t, 1, got.Turn)
	})
	t.Run("a child that runs on was presumed wrongly, and is in the same turn", func(t *testing.T) {
		j := newJoin(t, nil)
		register(t, j, kid)
		observe(t, j, idle(lead), busy(kid))
		got := childOf(t, j, kid)
		require.Equal(t, team.ChildRunning, got.State)
		require.Equal(t, 1, got.Turn)
		require.Len(t, got.Conflicts, 1)
	})
	t.Run("the child's own signal", func(t *testing.T) {
		j := newJoin(t, nil)
		register(t, j, kid)
		ours, err := j.ObserveSignal(t.Context(), team.Signal{Kind: team.KindSettled, From: team.Caller{Session: kid}, To: lead})
		require.NoError(t, err)
		require.True(t, ours)
		require.True(t, childOf(t, j, kid).Presumed)
		require.Equal(t, team.ChildCompleted, childOf(t, j, kid).State)
		ours, err = j.ObserveSignal(t.Context(), team.Signal{Kind: team.KindSettled, From: team.Caller{Session: "ses_other"}, To: lead})
		require.NoError(t, err)
		require.False(t, ours)
		observe(t, j, busy(kid), idle(kid))
		require.False(t, childOf(t, j, kid).Presumed)
	})
}

// Completed, and no text, is a state of its own.
func TestJoinEmpty(t *testing.T) {
	j := newJoin(t, nil)
	_, err := j.RegisterResult(t.Context(), toolResult(kid, "c", "completed", ""))
	require.NoError(t, err)
	require.Equal(t, team.ChildEmpty, childOf(t, j, kid).State)
	t.Run("also when the stream was first", func(t *testing.T) {
		j := newJoin(t, nil)
		register(t, j, kid)
		observe(t, j, busy(kid), idle(kid))
		require.Equal(t, team.ChildCompleted, childOf(t, j, kid).State)
		_, err := j.ObserveText(t.Context(), notice(kid, "completed", " \n"), "")
		require.NoError(t, err)
		got := childOf(t, j, kid)
		require.Equal(t, team.ChildEmpty, got.State)
		require.Empty(t, got.Conflicts)
	})
	t.Run("a word for the state that nobody knows settles nothing", func(t *testing.T) {
		j := newJoin(t, nil)
		register(t, j, kid)
		_, err := j.ObserveText(t.Context(), notice(kid, "napping", "zzz"), "")
		require.NoError(t, err)
		got := childOf(t, j, kid)
		require.Equal(t, team.ChildRunning, got.State)
		require.Equal(t, "napping", got.Evidence[0].Reason)
	})
}

// What a real 1.18.33 sent, in the order in which it came.
func TestJoinRecordings(t *testing.T) {
	for name, want := range map[string][]team.ChildState{
		"task-completed":            {team.ChildCompleted},
		"task-failed":               {team.ChildFailed},
		"task-background-completed": {team.ChildCompleted},
		"task-background-failed":    {team.ChildFailed},
		"task-parent-aborted":       {team.ChildInterrupted},
		"task-two-parallel":         {team.ChildCompleted, team.ChildFailed},
		"task-nested-tags":          {team.ChildCompleted},
		"task-unknown-agent":        {},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join("testdata", "join", name+".json"))
			require.NoError(t, err)
			var rec struct {
				Parent team.SessionID
				Events []struct {
					ID, Type   string
					Properties json.RawMessage
				}
			}
			require.NoError(t, json.Unmarshal(raw, &rec))
			// A restart before each event in turn: what is known must be in the store.
			for cut := -1; cut < len(rec.Events); cut++ {
				store := new(memstore.Store)
				j, err := team.OpenJoin(t.Context(), store, rec.Parent, nil)
				require.NoError(t, err)
				for i, e := range rec.Events {
					if i == cut {
						j, err = team.OpenJoin(t.Context(), store, rec.Parent, nil)
						require.NoError(t, err)
					}
					var p struct{ SessionID team.SessionID }
					require.NoError(t, json.Unmarshal(e.Properties, &p))
					_, err := j.Observe(t.Context(), team.Event{ID: e.ID, Type: e.Type, Session: p.SessionID, Data: e.Properties})
					require.NoError(t, err)
				}
				all, err := j.Children(t.Context(), nil)
				require.NoError(t, err)
				states := []team.ChildState{}
				for _, c := range all {
					states = append(states, c.State)
					require.Equal(t, 1, c.Turn)
					require.False(t, c.Presumed)
					require.Empty(t, c.Conflicts, "cut at %d", cut)
					require.NotEmpty(t, c.Agent)
				}
				require.Equal(t, want, states, "cut at %d", cut)
				require.Empty(t, j.Stream().Unknown)
				require.Empty(t, j.Stream().Missing)
			}
		})
	}
}

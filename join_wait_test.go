package team_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// "Wait for all, any or n; order of the result is the order of registration."
func TestJoinWait(t *testing.T) {
	ids := []team.SessionID{"ses_3", "ses_1", "ses_2"}
	for need, end := range map[int]int{team.WaitAll: 3, team.WaitAny: 1, 2: 2} {
		t.Run(fmt.Sprint("for ", need), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJoin(t, nil)
				register(t, j, ids...)
				go func() {
					for _, id := range []team.SessionID{"ses_2", "ses_3", "ses_1"} {
						time.Sleep(time.Second)
						observe(t, j, busy(id), idle(id))
					}
				}()
				begun := time.Now()
				w, err := j.Wait(t.Context(), &team.WaitOptions{For: need, Children: []team.SessionID{"ses_2", "ses_1", "ses_3", "ses_1"}})
				require.NoError(t, err)
				require.Equal(t, team.WaitSettled, w.End)
				require.Equal(t, time.Duration(end)*time.Second, time.Since(begun))
				require.Equal(t, end, w.Settled)
				require.Equal(t, 3-end, w.Running)
				for i, c := range w.Children {
					require.Equal(t, ids[i], c.Session)
				}
				time.Sleep(time.Minute)
			})
		})
	}
	t.Run("order is that of registration across processes", func(t *testing.T) {
		store := new(memstore.Store)
		a, b := openJoin(t, store, nil), openJoin(t, store, nil)
		register(t, a, "ses_9")
		register(t, b, "ses_8")
		register(t, a, "ses_7")
		register(t, b, "ses_9")
		got, err := openJoin(t, store, nil).Children(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, got, 3)
		require.Equal(t, []team.SessionID{"ses_9", "ses_8", "ses_7"}, []team.SessionID{got[0].Session, got[1].Session, got[2].Session})
	})
	t.Run("nobody to wait for", func(t *testing.T) {
		w, err := newJoin(t, nil).Wait(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, team.WaitNone, w.End)
	})
}

// "Explicit but unknown ids never widen to all."
func TestJoinUnknownIDsNeverMeanAll(t *testing.T) {
	j := newJoin(t, nil)
	register(t, j, kid)
	for _, ids := range [][]team.SessionID{{"ses_nobody"}, {kid, "ses_nobody"}, {""}, {`["ses_kid"]`}, {"SES_KID"}} {
		_, err := j.Wait(t.Context(), &team.WaitOptions{Children: ids})
		var unknown *team.ChildError
		require.ErrorAs(t, err, &unknown)
		require.ErrorIs(t, err, team.ErrNotFound)
		require.Equal(t, []team.SessionID{kid}, unknown.Known)
		_, err = j.Children(t.Context(), ids)
		require.ErrorIs(t, err, team.ErrNotFound)
	}
	_, err := j.Wait(t.Context(), &team.WaitOptions{Children: []team.SessionID{}})
	require.ErrorIs(t, err, team.ErrInvalid)
	_, err = j.Adopt(t.Context(), []team.SessionID{})
	require.ErrorIs(t, err, team.ErrInvalid)
	_, err = j.Cancel(t.Context(), "ses_nobody")
	require.ErrorIs(t, err, team.ErrNotFound)
	for _, bad := range []team.WaitOptions{{For: -1}, {For: 2}, {Timeout: -1}} {
		_, err = j.Wait(t.Context(), &bad)
		require.ErrorIs(t, err, team.ErrInvalid)
	}
}

// "A deadline is an outcome and work goes on."
func TestJoinDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoin(t, nil)
		register(t, j, "ses_a", "ses_b")
		observe(t, j, busy("ses_a"), idle("ses_a"), busy("ses_b"))
		begun := time.Now()
		w, err := j.Wait(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, team.WaitDeadline, w.End)
		require.Equal(t, team.DefaultWait, time.Since(begun))
		require.Equal(t, []team.ChildState{team.ChildCompleted, team.ChildTimedOut}, []team.ChildState{w.Children[0].State, w.Children[1].State})
		require.Equal(t, "running", w.Children[1].Reason)
		require.False(t, w.Children[1].Settled())
		require.Equal(t, team.ChildRunning, childOf(t, j, "ses_b").State, "it goes on")
		observe(t, j, idle("ses_b"))
		w, err = j.Wait(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, team.WaitSettled, w.End)
	})
	t.Run("a child that gives no sign of life, that only retries, or whose host is down, is stalled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			j := newJoin(t, &team.JoinOptions{Wait: time.Hour})
			register(t, j, "ses_quiet", "ses_retry", "ses_parked", "ses_alive")
			observe(t, j, busy("ses_quiet"), busy("ses_alive"),
				ev2("ses_retry", 1, "session.execution.started", ""), ev2("ses_retry", 2, "session.retry.scheduled", `{"error":{"message":"refused"}}`),
				ev2("ses_parked", 1, "session.execution.started", ""), ev2("ses_parked", 2, "session.execution.interrupted", `{"reason":"shutdown"}`))
			go func() {
				time.Sleep(team.DefaultStallAfter - time.Minute)
				observe(t, j, ev("ses_alive", "message.part.delta", ""))
			}()
			w, err := j.Wait(t.Context(), &team.WaitOptions{Timeout: team.DefaultStallAfter})
			require.NoError(t, err)
			for i, state := range []team.ChildState{team.ChildStalled, team.ChildStalled, team.ChildStalled, team.ChildTimedOut} {
				require.Equal(t, state, w.Children[i].State, w.Children[i].Session)
			}
			require.Contains(t, w.Children[0].Reason, "no sign of life")
			require.Contains(t, w.Children[1].Reason, "refused")
			require.Contains(t, w.Children[2].Reason, "shutdown")
			observe(t, j, ev2("ses_parked", 3, "session.execution.started", ""), ev2("ses_parked", 4, "session.execution.succeeded", ""))
			require.Equal(t, team.ChildCompleted, childOf(t, j, "ses_parked").State)
			require.Equal(t, 1, childOf(t, j, "ses_parked").Turn, "the host went on with the same turn")
		})
	})
	t.Run("that the host could not be looked at is an outcome of its own", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			host := new(joinHost)
			host.fail(errors.New("connection refused"))
			j := newJoin(t, &team.JoinOptions{Sessions: host})
			register(t, j, kid)
			w, err := j.Wait(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, team.WaitDeadline, w.End)
			require.Equal(t, team.ChildUnseen, w.Children[0].State)
			require.Equal(t, "connection refused", w.Children[0].Reason)
		})
	})
}

// "Repeated waits get shorter and say how long the streak is."
func TestJoinStreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		j := openJoin(t, store, nil)
		register(t, j, kid)
		observe(t, j, busy(kid))
		for i, want := range []time.Duration{team.DefaultWait, team.DefaultWaitAgain, team.DefaultWaitAgain} {
			begun := time.Now()
			w, err := j.Wait(t.Context(), &team.WaitOptions{Timeout: time.Hour})
			require.NoError(t, err)
			require.Equal(t, want, time.Since(begun))
			require.Equal(t, want, w.Allowed)
			require.Equal(t, i+1, w.Streak)
			require.Equal(t, []time.Duration{time.Minute, 70 * time.Second, 80 * time.Second}[i], w.StreakFor)
			_, err = j.Children(t.Context(), nil) // a look does not end it
			require.NoError(t, err)
			j = openJoin(t, store, nil) // nor does a restart
		}
		observe(t, j, idle(kid))
		w, err := j.Wait(t.Context(), nil)
		require.NoError(t, err)
		require.Zero(t, w.Streak)
		observe(t, j, busy(kid))
		w, err = j.Wait(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, team.DefaultWait, w.Waited)
	})
}

// "Asks of a child surface instead of hanging."
func TestJoinAsks(t *testing.T) {
	for asked, answered := range map[string]string{"permission.asked": "permission.replied", "question.asked": "question.rejected", "form.created": "form.cancelled"} {
		t.Run(asked, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJoin(t, nil)
				register(t, j, kid)
				observe(t, j, busy(kid))
				go func() {
					time.Sleep(time.Second)
					observe(t, j, ev(kid, asked, `{"id":"ask_1"}`))
				}()
				w, err := j.Wait(t.Context(), nil)
				require.NoError(t, err)
				require.Equal(t, team.WaitAsked, w.End)
				require.Equal(t, time.Second, w.Waited)
				require.Len(t, w.Children[0].Asks, 1)
				require.Equal(t, "ask_1", w.Children[0].Asks[0].ID)
				require.Equal(t, strings.Split(asked, ".")[0], w.Children[0].Asks[0].Kind)
				require.Zero(t, w.Streak)

				w, err = j.Wait(t.Context(), nil)
				require.NoError(t, err)
				require.Equal(t, team.WaitDeadline, w.End, "once for each; somebody is at it")
				require.Len(t, w.Children[0].Asks, 1)
				observe(t, j, ev(kid, answered, `{"requestID":"ask_1"}`))
				require.Empty(t, childOf(t, j, kid).Asks)
			})
		})
	}
	t.Run("of a descendant too", func(t *testing.T) {
		j := newJoin(t, nil)
		register(t, j, kid)
		observe(t, j, busy(kid), ev("ses_grand", "session.created", `{"parentID":"ses_kid"}`), ev("ses_grand", "permission.asked", `{"id":"p"}`))
		w, err := j.Wait(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, team.WaitAsked, w.End)
		require.Equal(t, team.SessionID("ses_grand"), w.Children[0].Asks[0].Session)
	})
	t.Run("a foreign one does not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			j := newJoin(t, nil)
			register(t, j, kid)
			observe(t, j, ev("ses_foreign", "permission.asked", `{"id":"p"}`))
			w, err := j.Wait(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, team.WaitDeadline, w.End)
		})
	})
}

// "Cancel with five verdicts, success only on confirmation."
func TestJoinCancel(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		says    string
		answer  team.InterruptVerdict
		err     error
		verdict team.CancelVerdict
		state   team.ChildState
	}{
		{"stopped", team.InterruptStopped, nil, team.CancelStopped, team.ChildCancelled},
		{"idle", team.InterruptIdle, nil, team.CancelIdle, team.ChildRunning},
		{"unknown", team.InterruptUnknown, nil, team.CancelUnknown, team.ChildRunning},
		{"a word that nobody knows", "sort of", nil, team.CancelUnknown, team.ChildRunning},
		{"no seam", "", fmt.Errorf("no: %w", errors.ErrUnsupported), team.CancelNoSeam, team.ChildRunning},
		{"threw", "", boom, team.CancelThrew, team.ChildRunning},
		{"an error is none, whatever came with it", team.InterruptStopped, boom, team.CancelThrew, team.ChildRunning},
	} {
		t.Run(c.says, func(t *testing.T) {
			host := &joinHost{verdict: c.answer, stopErr: c.err}
			j := newJoin(t, &team.JoinOptions{Sessions: host})
			register(t, j, kid)
			observe(t, j, busy(kid))
			got, err := j.Cancel(t.Context(), kid)
			require.NoError(t, err)
			require.Equal(t, c.verdict, got.Verdict)
			require.Equal(t, c.state, got.Child.State)
			require.Equal(t, []team.SessionID{kid}, host.interrupts)
			if c.err != nil {
				require.ErrorIs(t, got.Err, c.err)
			}
		})
	}
	t.Run("no host", func(t *testing.T) {
		j := newJoin(t, nil)
		register(t, j, kid)
		got, err := j.Cancel(t.Context(), kid)
		require.NoError(t, err)
		require.Equal(t, team.CancelNoSeam, got.Verdict)
		require.ErrorIs(t, got.Err, errors.ErrUnsupported)
	})
	t.Run("what has settled is not stopped", func(t *testing.T) {
		host := &joinHost{verdict: team.InterruptStopped}
		j := newJoin(t, &team.JoinOptions{Sessions: host})
		register(t, j, kid)
		observe(t, j, busy(kid), idle(kid))
		got, err := j.Cancel(t.Context(), kid)
		require.NoError(t, err)
		require.Equal(t, team.CancelIdle, got.Verdict)
		require.Empty(t, host.interrupts)
		require.Equal(t, team.ChildCompleted, got.Child.State)
	})
	t.Run("an event that is faster than the answer is known for ours, and one of somebody else's is not", func(t *testing.T) {
		host := &joinHost{verdict: team.InterruptUnknown}
		j := newJoin(t, &team.JoinOptions{Sessions: host})
		register(t, j, kid, "ses_b")
		host.onStop = func() { observe(t, j, ev(kid, "session.execution.interrupted", `{"reason":"user"}`)) }
		got, err := j.Cancel(t.Context(), kid)
		require.NoError(t, err)
		require.Equal(t, team.ChildCancelled, got.Child.State)
		require.Equal(t, "user", got.Child.Reason)
		observe(t, j, ev("ses_b", "session.execution.interrupted", `{"reason":"user"}`))
		require.Equal(t, team.ChildInterrupted, childOf(t, j, "ses_b").State)
	})
}

// "Result bodies are surfaced once across tool return, push and wait: later sights point
// to the first."
func TestJoinSurfacedOnce(t *testing.T) {
	t.Run("tool result, notice, wait", func(t *testing.T) {
		j := newJoin(t, nil)
		reg, err := j.RegisterResult(t.Context(), toolResult(kid, "c1", "completed", "the answer"))
		require.NoError(t, err)
		require.False(t, reg.Shown.Again)
		for range 3 { // a hook that is replayed is the same sight
			reg, err = j.RegisterResult(t.Context(), toolResult(kid, "c1", "completed", "the answer"))
			require.NoError(t, err)
			require.False(t, reg.Shown.Again)
		}
		got, err := j.ObserveText(t.Context(), notice(kid, "completed", "the answer"), "msg_1")
		require.NoError(t, err)
		require.True(t, got.Shown.Again)
		require.Equal(t, "tool result", got.Shown.First.Via)
		require.Contains(t, got.Shown.Pointer, "tool result")
		w, err := j.Wait(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, w.Results, 1)
		require.True(t, w.Results[0].Again)
		require.Empty(t, w.Results[0].Text)
		require.Equal(t, got.Shown.Pointer, w.Results[0].Pointer)
	})
	t.Run("wait, then the notice, then another wait", func(t *testing.T) {
		host := new(joinHost)
		j := newJoin(t, &team.JoinOptions{Sessions: host})
		register(t, j, kid)
		observe(t, j, busy(kid), idle(kid))
		host.set(kid, team.Inspection{Activity: team.ActivityIdle, Last: &team.LastMessage{Text: "the answer", Completed: time.Now()}})
		w, err := j.Wait(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, "the answer", w.Results[0].Text)
		got, err := j.ObserveText(t.Context(), notice(kid, "completed", "the answer"), "msg_1")
		require.NoError(t, err)
		require.True(t, got.Shown.Again)
		require.Equal(t, "wait", got.Shown.First.Via)
		w, err = j.Wait(t.Context(), nil)
		require.NoError(t, err)
		require.True(t, w.Results[0].Again)
		text, err := j.Text(t.Context(), kid, 1)
		require.NoError(t, err)
		require.Equal(t, "the answer", text)
	})
	t.Run("of two waiters in two processes one gets the text", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := new(memstore.Store)
			host := new(joinHost)
			opts := &team.JoinOptions{Sessions: host}
			feeder := openJoin(t, store, opts)
			register(t, feeder, kid)
			observe(t, feeder, busy(kid))
			host.set(kid, team.Inspection{Activity: team.ActivityRunning})
			texts := make(chan string, 8)
			for range cap(texts) {
				j := openJoin(t, store, opts)
				go func() {
					w, err := j.Wait(t.Context(), nil)
					if err != nil || w.End != team.WaitSettled || w.Children[0].State != team.ChildCompleted {
						t.Error(w, err)
					}
					texts <- w.Results[0].Text
				}()
			}
			time.Sleep(time.Second)
			host.set(kid, team.Inspection{Activity: team.ActivityIdle, Last: &team.LastMessage{Text: "the answer", Completed: time.Now()}})
			observe(t, feeder, idle(kid))
			var all []string
			for range cap(texts) {
				all = append(all, <-texts)
			}
			require.Equal(t, "the answer", strings.Join(all, ""), "agreed, and once")
		})
	})
	t.Run("a long one goes through Shorten, once", func(t *testing.T) {
		calls := 0
		j := newJoin(t, &team.JoinOptions{Shorten: func(_ context.Context, text string) (string, team.Ref, error) {
			calls++
			return "short", team.Ref{Path: "/x", Size: int64(len(text))}, nil
		}})
		_, err := j.RegisterResult(t.Context(), toolResult(kid, "c1", "running", ""))
		require.NoError(t, err)
		for _, id := range []string{"m1", "m2"} {
			_, err = j.ObserveText(t.Context(), notice(kid, "completed", strings.Repeat("long ", 9)), id)
			require.NoError(t, err)
		}
		require.Equal(t, 1, calls)
		text, err := j.Text(t.Context(), kid, 1)
		require.NoError(t, err)
		require.Equal(t, "short", text)
		require.Equal(t, "/x", childOf(t, j, kid).Answer.Ref.Path)
	})
	t.Run("if the store loses the text, the ending counts all the same and the text may come again", func(t *testing.T) {
		fail := errors.New("no room")
		j := newJoin(t, &team.JoinOptions{Shorten: func(_ context.Context, text string) (string, team.Ref, error) {
			return text, team.Ref{}, fail
		}})
		register(t, j, kid)
		_, err := j.ObserveText(t.Context(), notice(kid, "completed", "the answer"), "m1")
		require.ErrorIs(t, err, fail)
		require.Equal(t, team.ChildCompleted, childOf(t, j, kid).State)
		fail = nil
		_, err = j.ObserveText(t.Context(), notice(kid, "completed", "the answer"), "m1")
		require.NoError(t, err)
		text, err := j.Text(t.Context(), kid, 1)
		require.NoError(t, err)
		require.Equal(t, "the answer", text)
	})
	t.Run("no results leaves them unshown", func(t *testing.T) {
		host := new(joinHost)
		j := newJoin(t, &team.JoinOptions{Sessions: host})
		register(t, j, kid)
		observe(t, j, busy(kid), idle(kid))
		host.set(kid, team.Inspection{Activity: team.ActivityIdle, Last: &team.LastMessage{Text: "x", Completed: time.Now()}})
		w, err := j.Wait(t.Context(), &team.WaitOptions{NoResults: true})
		require.NoError(t, err)
		require.Empty(t, w.Results)
		r, err := j.Result(t.Context(), kid, "report")
		require.NoError(t, err)
		require.Equal(t, "x", r.Text)
		r, err = j.Result(t.Context(), kid, "report")
		require.NoError(t, err)
		require.True(t, r.Again)
	})
	t.Run("a host that cannot be asked for the text says so", func(t *testing.T) {
		j := newJoin(t, nil)
		register(t, j, kid)
		observe(t, j, busy(kid), idle(kid))
		r, err := j.Result(t.Context(), kid, "x")
		require.NoError(t, err)
		require.ErrorIs(t, r.Unread, errors.ErrUnsupported)
		require.Equal(t, team.ChildCompleted, r.State)
	})
}

// "State lives in Records, so a killed waiter carries on."
func TestJoinKilledWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		j := openJoin(t, store, nil)
		register(t, j, "ses_a", "ses_b")
		observe(t, j, busy("ses_a"), busy("ses_b"), idle("ses_a"))
		ctx, kill := context.WithTimeout(t.Context(), time.Second)
		defer kill()
		_, err := j.Wait(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		j = openJoin(t, store, nil)
		go func() {
			time.Sleep(time.Second)
			observe(t, j, idle("ses_b"))
		}()
		w, err := j.Wait(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, team.WaitSettled, w.End)
		require.Zero(t, w.Streak, "a killed wait is none")
	})
}

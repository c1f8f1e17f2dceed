package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
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

// muteHost is a host that answers no question about a session.
type muteHost struct{ joinHost }

func (h *muteHost) Inspect(ctx context.Context, _ team.SessionID) (team.Inspection, error) {
	<-ctx.Done()
	return team.Inspection{}, ctx.Err()
}

// "A deadline is an outcome and work goes on": also where the host hangs.
func TestJoinHostHangs(t *testing.T) {
	for _, gap := range []bool{false, true} {
		t.Run(fmt.Sprint("with a hole in the stream: ", gap), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJoin(t, &team.JoinOptions{Sessions: new(muteHost)})
				register(t, j, "ses_a", "ses_b", "ses_c")
				observe(t, j, busy("ses_a"), busy("ses_b"), busy("ses_c"))
				if gap {
					observe(t, j, ev("", "server.connected", ""), ev("", "server.connected", ""))
				}
				begun := time.Now()
				w, err := j.Wait(t.Context(), &team.WaitOptions{Timeout: 20 * time.Second})
				require.NoError(t, err)
				require.Equal(t, team.WaitDeadline, w.End)
				require.Equal(t, 20*time.Second, time.Since(begun))
				require.Equal(t, team.ChildUnseen, w.Children[0].State)
				require.Contains(t, w.Children[0].Reason, "did not answer")
			})
		})
	}
	t.Run("what has settled is reported though nobody answers for its text", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			j := newJoin(t, &team.JoinOptions{Sessions: new(muteHost)})
			for i := range 100 {
				id := team.SessionID(fmt.Sprint("ses_", i))
				register(t, j, id)
				observe(t, j, busy(id), idle(id))
			}
			begun := time.Now()
			w, err := j.Wait(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, team.WaitSettled, w.End)
			require.LessOrEqual(t, time.Since(begun), team.DefaultJoinLook)
			require.ErrorContains(t, w.Results[99].Unread, "did not answer")
			require.NoError(t, t.Context().Err())
		})
	})
	t.Run("a snapshot that is asked for outside a wait ends too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			j := newJoin(t, &team.JoinOptions{Sessions: new(muteHost)})
			register(t, j, kid)
			require.NoError(t, j.Resync(t.Context(), "test"))
			require.NotEmpty(t, j.Stream().Gap, "the hole stays")
		})
	})
}

// "ErrCorrupt, and others go on": one record that cannot be read stops no other child.
func TestJoinCorruptRecord(t *testing.T) {
	sum := strings.Repeat("a", 64)
	for says, value := range map[string]string{
		"no JSON":          "\x00\xff{",
		"empty":            "",
		"another's":        `{"session":"ses_x","turn":1,"state":"running"}`,
		"no digest":        `{"session":"ses_bad","turn":1,"state":"completed","answer":{"known":true,"size":5}}`,
		"a short digest":   `{"session":"ses_bad","turn":2,"state":"running","earlier":[{"turn":1,"state":"completed","answer":{"known":true,"size":5,"sha256":"aa"}}]}`,
		"no turn":          `{"session":"ses_bad","state":"running"}`,
		"no state":         `{"session":"ses_bad","turn":1}`,
		"an unknown state": `{"session":"ses_bad","turn":1,"state":"asleep"}`,
		"a negative size":  `{"session":"ses_bad","turn":1,"state":"completed","answer":{"known":true,"size":-5,"sha256":"` + sum + `"}}`,
	} {
		t.Run(says, func(t *testing.T) {
			store := new(memstore.Store)
			j := openJoin(t, store, nil)
			register(t, j, "ses_a", "ses_b")
			_, err := store.Put(t.Context(), "team/join/ses_lead/c/ses_bad", []byte(value), "")
			require.NoError(t, err)

			var told []string
			j = openJoin(t, store, &team.JoinOptions{Report: func(_ context.Context, what, name string) { told = append(told, what+": "+name) }})
			require.Equal(t, []string{"unreadable record: team/join/ses_lead/c/ses_bad"}, told)
			observe(t, j, busy("ses_a"), idle("ses_a"), busy("ses_b"), idle("ses_b"))
			w, err := j.Wait(t.Context(), nil)
			require.ErrorIs(t, err, team.ErrCorrupt, "all have not settled: of one nobody knows")
			require.ErrorContains(t, err, "ses_bad")
			require.Equal(t, team.WaitSettled, w.End)
			require.Len(t, w.Children, 2, "the others are reported")
			w, err = j.Wait(t.Context(), &team.WaitOptions{Children: []team.SessionID{"ses_a", "ses_b"}})
			require.NoError(t, err, "who does not wait for it is not disturbed")
			require.Equal(t, 2, w.Settled)
			_, err = j.Wait(t.Context(), &team.WaitOptions{Children: []team.SessionID{"ses_bad"}})
			require.Error(t, err)
			_, err = j.Register(t.Context(), team.Dispatch{Session: "ses_bad"})
			require.ErrorIs(t, err, team.ErrCorrupt)
			require.Len(t, told, 1, "once")
		})
	}
	t.Run("beneath one that is open", func(t *testing.T) {
		store := new(memstore.Store)
		j := openJoin(t, store, nil)
		register(t, j, "ses_bad", "ses_b")
		r, err := store.Get(t.Context(), "team/join/ses_lead/c/ses_bad")
		require.NoError(t, err)
		_, err = store.Put(t.Context(), "team/join/ses_lead/c/ses_bad", []byte("{"), r.Version)
		require.NoError(t, err)
		observe(t, j, busy("ses_b"), idle("ses_b"))
		_, err = j.Observe(t.Context(), idle("ses_bad"))
		require.ErrorIs(t, err, team.ErrCorrupt)
		w, err := j.Wait(t.Context(), &team.WaitOptions{For: team.WaitAny})
		require.ErrorIs(t, err, team.ErrCorrupt)
		require.Equal(t, team.WaitSettled, w.End)
		require.Equal(t, 1, w.Settled)
		_, err = j.Wait(t.Context(), &team.WaitOptions{Children: []team.SessionID{"ses_b"}})
		require.NoError(t, err)
	})
}

// failingPut is a store whose next writes fail.
type failingPut struct {
	*memstore.Store
	fails atomic.Int64
}

func (s *failingPut) Put(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
	if strings.Contains(key, "/c/") && s.fails.Add(-1) >= 0 {
		return "", errors.New("disk full")
	}
	return s.Store.Put(ctx, key, value, prev)
}

// "Surfaced once" is not "lost": who could not write that an answer was shown has not shown it.
func TestJoinSightThatIsNotWritten(t *testing.T) {
	store := &failingPut{Store: new(memstore.Store)}
	host := new(joinHost)
	j := openJoin(t, store, &team.JoinOptions{Sessions: host})
	register(t, j, kid)
	observe(t, j, busy(kid), idle(kid))
	host.set(kid, team.Inspection{Activity: team.ActivityIdle, Last: &team.LastMessage{Text: "the answer", Completed: time.Now(), Finish: "stop"}})
	_, err := j.Text(t.Context(), kid, 1)
	require.ErrorIs(t, err, team.ErrNotFound)
	store.fails.Store(1)
	r, err := j.Result(t.Context(), kid, "test")
	require.NoError(t, err)
	require.ErrorContains(t, r.Unread, "disk full", "what the host said could not be written")
	for range 3 {
		store.fails.Store(1)
		w, err := j.Wait(t.Context(), &team.WaitOptions{Children: []team.SessionID{kid}})
		require.NoError(t, err)
		require.Empty(t, w.Results[0].Text)
		require.False(t, w.Results[0].Again, "nobody was shown it")
		require.Error(t, w.Results[0].Unread)
	}
	r, err = j.Result(t.Context(), kid, "test")
	require.NoError(t, err)
	require.Equal(t, "the answer", r.Text)
}

// A cancel that the store refused was never asked for.
func TestJoinCancelThatIsNotWritten(t *testing.T) {
	store := &failingPut{Store: new(memstore.Store)}
	host := new(joinHost)
	j := openJoin(t, store, &team.JoinOptions{Sessions: host})
	register(t, j, kid)
	observe(t, j, busy(kid))
	store.fails.Store(1)
	_, err := j.Cancel(t.Context(), kid)
	require.Error(t, err)
	require.Empty(t, host.interrupts)
	observe(t, j, ev(kid, "session.execution.interrupted", `{"reason":"user"}`))
	require.Equal(t, team.ChildInterrupted, childOf(t, j, kid).State, "by somebody else")
}

// What is only presumed to have ended is stopped all the same.
func TestJoinCancelPresumed(t *testing.T) {
	host := &joinHost{verdict: team.InterruptStopped}
	j := newJoin(t, &team.JoinOptions{Sessions: host})
	register(t, j, kid)
	observe(t, j, busy(lead), busy(kid), idle(lead))
	require.True(t, childOf(t, j, kid).Presumed)
	out, err := j.Cancel(t.Context(), kid)
	require.NoError(t, err)
	require.Equal(t, team.CancelStopped, out.Verdict)
	require.Equal(t, []team.SessionID{kid}, host.interrupts)
	require.Equal(t, team.ChildCancelled, out.Child.State)
	require.False(t, out.Child.Presumed)
	require.Equal(t, team.FromCancel, out.Child.By.Source)

	observe(t, j, busy(lead))
	register(t, j, "ses_fast")
	observe(t, j, busy("ses_fast"), idle(lead))
	host.verdict = team.InterruptUnknown
	host.onStop = func() { observe(t, j, ev("ses_fast", "session.execution.interrupted", `{"reason":"user"}`)) }
	out, err = j.Cancel(t.Context(), "ses_fast")
	require.NoError(t, err)
	require.Equal(t, team.CancelUnknown, out.Verdict)
	require.Equal(t, team.ChildCancelled, out.Child.State, "the event was faster than the answer, and is known for ours")
}

// A context that ends while answers are collected loses none of them.
func TestJoinWaitCancelledAmidResults(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	store := new(memstore.Store)
	j := openJoin(t, store, nil)
	for _, id := range []team.SessionID{"ses_a", "ses_b"} {
		register(t, j, id)
		observe(t, j, busy(id), idle(id))
		_, err := j.ObserveText(t.Context(), notice(id, "completed", "answer of "+string(id)), "msg_"+string(id))
		require.NoError(t, err)
	}
	// The notices count as shown, so ask the host for answers instead.
	host := &cancellingHost{cancel: cancel}
	j = openJoin(t, new(memstore.Store), &team.JoinOptions{Sessions: host})
	for _, id := range []team.SessionID{"ses_a", "ses_b"} {
		register(t, j, id)
		observe(t, j, busy(id), idle(id))
	}
	w, err := j.Wait(ctx, nil)
	require.NoError(t, err, "an answer was shown: an error would lose it")
	require.Equal(t, "answer of ses_a", w.Results[0].Text)
	require.ErrorIs(t, w.Results[1].Unread, context.Canceled)
	w, err = j.Wait(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, w.Results[0].Again)
	require.Equal(t, "answer of ses_b", w.Results[1].Text)
}

// cancellingHost answers once, and then its caller goes away.
type cancellingHost struct {
	joinHost
	cancel context.CancelFunc
	asked  int
}

func (h *cancellingHost) Inspect(ctx context.Context, id team.SessionID) (team.Inspection, error) {
	if h.asked++; h.asked == 2 {
		h.cancel()
		return team.Inspection{}, ctx.Err()
	}
	return team.Inspection{Session: team.Session{ID: id}, Activity: team.ActivityIdle,
		Last: &team.LastMessage{Text: "answer of " + string(id), Completed: time.Now(), Finish: "stop"}}, nil
}

// hiddenWatch is a store that cannot tell what changes.
type hiddenWatch struct{ team.Records }

// "Two waiters agree", also over a store that is no Watcher.
func TestJoinPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hiddenWatch{new(memstore.Store)}
		a, b := openJoin(t, store, nil), openJoin(t, store, nil)
		register(t, a, kid)
		done := make(chan team.Waited)
		go func() {
			w, err := b.Wait(t.Context(), &team.WaitOptions{NoResults: true})
			require.NoError(t, err)
			done <- w
		}()
		time.Sleep(3 * time.Second)
		observe(t, a, busy(kid), idle(kid))
		begun := time.Now()
		w := <-done
		require.Equal(t, team.WaitSettled, w.End)
		require.LessOrEqual(t, time.Since(begun), time.Second)
	})
}

// tornWatch is a store whose first watches end because the loop was away for too long.
type tornWatch struct {
	*memstore.Store
	torn atomic.Int64
}

func (s *tornWatch) Watch(ctx context.Context, prefix string) iter.Seq2[string, error] {
	if s.torn.Add(-1) < 0 {
		return s.Store.Watch(ctx, prefix)
	}
	return func(yield func(string, error) bool) { yield("", team.ErrConflict) }
}

func TestJoinWatchIsTorn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &tornWatch{Store: new(memstore.Store)}
		a, b := openJoin(t, store, nil), openJoin(t, store, nil)
		register(t, a, kid)
		store.torn.Store(3)
		done := make(chan team.Waited)
		go func() {
			w, err := b.Wait(t.Context(), &team.WaitOptions{NoResults: true})
			require.NoError(t, err)
			done <- w
		}()
		time.Sleep(5 * time.Second)
		observe(t, a, busy(kid), idle(kid))
		require.Equal(t, team.WaitSettled, (<-done).End)
	})
}

// Two Joins of two processes over one store, fed at the same time: one state, one sight.
func TestJoinConcurrent(t *testing.T) {
	store := new(memstore.Store)
	joins := []*team.Join{openJoin(t, store, nil), openJoin(t, store, nil)}
	const kids = 8
	ids := make([]team.SessionID, kids)
	for i := range ids {
		ids[i] = team.SessionID(fmt.Sprint("ses_", i))
	}
	register(t, joins[0], ids...)
	var texts atomic.Int64
	var wg sync.WaitGroup
	for _, j := range joins {
		wg.Go(func() {
			register(t, j, ids...)
			for _, id := range ids {
				observe(t, j, busy(id), ev(id, "permission.asked", `{"id":"per_1"}`), ev(id, "permission.replied", `{"requestID":"per_1"}`), idle(id))
			}
		})
		wg.Go(func() {
			for i, id := range ids {
				in := notice(id, "completed", "x")
				_, err := j.ObserveText(t.Context(), in, fmt.Sprint("msg_", i))
				require.NoError(t, err)
			}
		})
		wg.Go(func() {
			w, err := j.Wait(t.Context(), nil)
			require.NoError(t, err)
			for _, r := range w.Results {
				if r.Text != "" {
					texts.Add(1)
				}
			}
			_ = j.Stream()
		})
	}
	wg.Wait()
	require.LessOrEqual(t, texts.Load(), int64(kids))
	w0, err := joins[0].Wait(t.Context(), nil)
	require.NoError(t, err)
	w1, err := joins[1].Wait(t.Context(), nil)
	require.NoError(t, err)
	a, _ := json.Marshal(w0.Children)
	b, _ := json.Marshal(w1.Children)
	require.JSONEq(t, string(a), string(b))
	for _, c := range w0.Children {
		require.Equal(t, team.ChildCompleted, c.State)
		require.Equal(t, 1, c.Turn, "%+v", c)
	}
}

// Two processes follow one host, and the stream of one is behind that of the other: what it comes to
// later begins no turn and ends none.
func TestJoinTwoProcesses(t *testing.T) {
	open := func(t *testing.T) (a, b *team.Join) {
		store := new(memstore.Store)
		a, b = openJoin(t, store, nil), openJoin(t, store, nil)
		register(t, a, kid)
		register(t, b, kid)
		return a, b
	}
	wait := func(t *testing.T, j *team.Join) team.Child {
		w, err := j.Wait(t.Context(), &team.WaitOptions{NoResults: true, Timeout: time.Millisecond})
		require.NoError(t, err)
		return w.Children[0]
	}
	t.Run("the same turn again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := open(t)
			for turn := 1; turn <= 3; turn++ {
				observe(t, a, busy(kid), idle(kid))
				require.Equal(t, turn, wait(t, b).Turn)
				observe(t, b, busy(kid), ev(kid, "message.part.delta", ""), ev(kid, "session.status", `{"status":{"type":"idle"}}`), idle(kid))
				c := wait(t, b)
				require.Equal(t, turn, c.Turn)
				require.Equal(t, team.ChildCompleted, c.State)
			}
		})
	})
	t.Run("one that the parent has resumed meanwhile", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := open(t)
			observe(t, a, busy(kid), idle(kid))
			_, err := a.Register(t.Context(), team.Dispatch{Session: kid, Call: "call_2"})
			require.NoError(t, err)
			require.Equal(t, 2, wait(t, b).Turn)
			observe(t, b, busy(kid), idle(kid))
			require.False(t, wait(t, b).Settled(), "that was the first turn")
			observe(t, a, busy(kid), idle(kid))
			require.True(t, wait(t, b).Settled())
			require.Equal(t, 2, wait(t, b).Turn)
		})
	})
	t.Run("a child that the other registered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := new(memstore.Store)
			a, b := openJoin(t, store, nil), openJoin(t, store, nil)
			register(t, a, kid)
			observe(t, a, busy(kid), idle(kid))
			require.True(t, wait(t, b).Settled())
			observe(t, b, busy(kid), idle(kid))
			require.Equal(t, 1, wait(t, b).Turn)
		})
	})
	t.Run("what the stream has lost is not waited for: behind Lag it begins a turn again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := open(t)
			observe(t, a, busy(kid), idle(kid))
			require.Equal(t, 1, wait(t, b).Turn)
			time.Sleep(team.DefaultJoinLag)
			observe(t, b, busy(kid))
			require.Equal(t, 2, wait(t, b).Turn)
		})
	})
}

package team_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// sweptKeys returns what a sweep did with each record, without "team/join/" and the digest of a text.
func sweptKeys(r team.JoinSweep) map[string]team.SweepReason {
	out := make(map[string]team.SweepReason)
	for _, item := range r.Items {
		key := strings.TrimPrefix(item.Key, "team/join/")
		if parts := strings.Split(key, "/"); len(parts) == 4 {
			key = strings.Join(parts[:3], "/")
		}
		if item.Action == team.SweepRemove {
			key = "-" + key
		}
		out[key] = item.Reason
	}
	return out
}

func joinKeys(t *testing.T, store team.Records) (keys []string) {
	t.Helper()
	for key, err := range store.Keys(t.Context(), "", "") {
		require.NoError(t, err)
		keys = append(keys, key)
	}
	return keys
}

// endAs makes a child that has answered; the answer counts as shown where the notice is.
func endAs(t *testing.T, j *team.Join, id team.SessionID, text string) {
	t.Helper()
	register(t, j, id)
	observe(t, j, busy(id), idle(id))
	_, err := j.ObserveText(t.Context(), notice(id, "completed", text), "msg_"+string(id))
	require.NoError(t, err)
}

// A child that has settled long ago, and whose answer the parent was shown, is forgotten with its
// texts; one that runs, one whose answer nobody was shown, and one that ended lately are not.
func TestJoinSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, host := new(memstore.Store), new(joinHost)
		j := openJoin(t, store, &team.JoinOptions{Sessions: host})
		endAs(t, j, "ses_a/old", "shown")
		register(t, j, "ses_runs", "ses_presumed", "ses_no_text", "ses_unshown")
		observe(t, j, busy("ses_runs"), busy("ses_no_text"), idle("ses_no_text"), busy("ses_unshown"), idle("ses_unshown"))
		_, err := j.ObserveSignal(t.Context(), team.Signal{Kind: team.KindSettled, From: team.Caller{Session: "ses_presumed"}, To: lead})
		require.NoError(t, err)
		// A snapshot brings a text that nobody was shown yet.
		host.set("ses_unshown", team.Inspection{Session: team.Session{Parent: lead}, Activity: team.ActivityIdle,
			Last: &team.LastMessage{Text: "not shown", Completed: time.Now().Add(time.Second), Finish: "stop"}})
		_, err = j.Adopt(t.Context(), []team.SessionID{"ses_unshown"})
		require.NoError(t, err)
		require.True(t, childOf(t, j, "ses_unshown").Answer.Known)
		time.Sleep(team.DefaultJoinTTL - time.Second)
		endAs(t, j, "ses_new", "shown too")

		r, err := j.Sweep(t.Context(), nil)
		require.NoError(t, err)
		require.Zero(t, r.Removed(), "a second too early")
		time.Sleep(time.Second)
		before := joinKeys(t, store)
		want := map[string]team.SweepReason{
			"-ses_lead/c/ses_a%2Fold": team.SweepExpired, "-ses_lead/t/ses_a%2Fold": team.SweepExpired,
			"-ses_lead/c/ses_no_text": team.SweepExpired, "-ses_lead/c/ses_presumed": team.SweepExpired,
			"ses_lead/c/ses_runs": team.SweepNeeded, "ses_lead/c/ses_unshown": team.SweepNeeded, "ses_lead/t/ses_unshown": team.SweepFresh,
			"ses_lead/c/ses_new": team.SweepFresh, "ses_lead/t/ses_new": team.SweepFresh,
		}
		plan, err := j.PlanSweep(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, want, sweptKeys(plan))
		require.Equal(t, before, joinKeys(t, store), "a plan changes nothing")
		require.True(t, j.Known("ses_a/old"))
		r, err = j.Sweep(t.Context(), &team.JoinSweepOptions{TTL: team.Forever})
		require.NoError(t, err)
		require.Zero(t, r.Removed())

		r, err = j.Sweep(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, plan, r)
		require.Equal(t, 4, r.Removed())
		require.Len(t, joinKeys(t, store), len(before)-4)
		for _, j := range []*team.Join{j, openJoin(t, store, nil)} {
			all, err := j.Children(t.Context(), nil)
			require.NoError(t, err)
			require.Len(t, all, 3)
			require.False(t, j.Known("ses_a/old"))
			_, err = j.Text(t.Context(), "ses_a/old", 1)
			require.ErrorIs(t, err, team.ErrNotFound)
		}
		text, err := j.Text(t.Context(), "ses_new", 1)
		require.NoError(t, err)
		require.Equal(t, "shown too", text)

		// Once it was shown it goes too; the numbers of registration go on.
		_, err = j.Result(t.Context(), "ses_unshown", "report")
		require.NoError(t, err)
		r, err = j.Sweep(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, 2, r.Removed())
		endAs(t, j, "ses_a/old", "shown")
		c := childOf(t, j, "ses_a/old")
		require.Equal(t, 1, c.Turn, "a stranger that is registered anew begins anew")
		require.Equal(t, 7, c.Order)
		text, err = j.Text(t.Context(), "ses_a/old", 1)
		require.NoError(t, err)
		require.Equal(t, "shown", text)
	})
}

// An answer of a turn before the latest counts as well.
func TestJoinSweepEarlierTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := new(joinHost)
		j := newJoin(t, &team.JoinOptions{Sessions: host})
		register(t, j, kid)
		host.set(kid, team.Inspection{Session: team.Session{Parent: lead}, Activity: team.ActivityIdle,
			Last: &team.LastMessage{Text: "not shown", Completed: time.Now(), Finish: "stop"}})
		observe(t, j, busy(kid))
		require.NoError(t, j.Resync(t.Context(), "test"))
		observe(t, j, busy(kid), idle(kid))
		require.Equal(t, 2, childOf(t, j, kid).Turn)
		time.Sleep(2 * team.DefaultJoinTTL)
		r, err := j.Sweep(t.Context(), nil)
		require.NoError(t, err)
		require.Zero(t, r.Removed())
	})
}

// What a sweep has removed is a child in no process: what comes of it later is that of a stranger, and
// who registers it gets a new one.
func TestJoinSweepInAnotherProcess(t *testing.T) {
	open := func(t *testing.T, store team.Records) (a, b *team.Join) {
		a, b = openJoin(t, store, nil), openJoin(t, store, nil)
		endAs(t, a, kid, "the answer")
		register(t, b, kid)
		time.Sleep(2 * team.DefaultJoinTTL)
		r, err := a.Sweep(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, 2, r.Removed())
		return a, b
	}
	for says, store := range map[string]func() team.Records{
		"a store that tells of changes":      func() team.Records { return new(memstore.Store) },
		"a store that does not tell of them": func() team.Records { return hiddenWatch{new(memstore.Store)} },
	} {
		t.Run(says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, b := open(t, store())
				_, err := b.Wait(t.Context(), nil)
				require.NoError(t, err)
				require.False(t, b.Known(kid))
				w, err := b.Wait(t.Context(), nil)
				require.NoError(t, err)
				require.Equal(t, team.WaitNone, w.End)

				_, b = open(t, store())
				_, err = b.Observe(t.Context(), busy(kid))
				require.ErrorIs(t, err, team.ErrNotFound)
				ours, err := b.Observe(t.Context(), idle(kid))
				require.NoError(t, err)
				require.False(t, ours)

				_, b = open(t, store())
				for _, call := range []string{"call_" + string(kid), "call_2"} { // the first changes nothing
					_, err = b.Register(t.Context(), team.Dispatch{Session: kid, Call: call})
					require.NoError(t, err)
				}
				require.Equal(t, 1, childOf(t, b, kid).Turn)
				require.Equal(t, team.ChildRunning, childOf(t, b, kid).State)
				_, err = b.ObserveText(t.Context(), notice(kid, "completed", "the answer"), "msg_2")
				require.NoError(t, err)
				text, err := b.Text(t.Context(), kid, 1)
				require.NoError(t, err)
				require.Equal(t, "the answer", text)
			})
		})
	}
	t.Run("who waits for one that runs is told when its record is removed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := new(memstore.Store)
			j := openJoin(t, store, nil)
			register(t, j, kid)
			observe(t, j, busy(kid))
			go func() {
				time.Sleep(time.Second)
				if err := store.Delete(t.Context(), "team/join/ses_lead/c/ses_kid", team.AnyVersion); err != nil {
					t.Error(err)
				}
			}()
			w, err := j.Wait(t.Context(), nil)
			require.ErrorIs(t, err, team.ErrNotFound)
			require.Equal(t, team.ChildUnseen, w.Children[0].State)
			require.Equal(t, time.Second, w.Waited)
			w, err = j.Wait(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, team.WaitNone, w.End)
		})
	})
}

// sweepStore does something before a removal.
type sweepStore struct {
	*memstore.Store
	before func(key string) error
}

func (s *sweepStore) Delete(ctx context.Context, key string, prev team.Version) error {
	if s.before != nil {
		if err := s.before(key); err != nil {
			return err
		}
	}
	return s.Store.Delete(ctx, key, prev)
}

// Killed between any two removals, or beside somebody who writes: nothing is lost that is needed, and the
// next sweep removes the rest.
func TestJoinSweepIsCutShort(t *testing.T) {
	for cut := range 4 {
		t.Run(fmt.Sprint("before removal ", cut), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &sweepStore{Store: new(memstore.Store)}
				j := openJoin(t, store, nil)
				endAs(t, j, "ses_1", "one")
				endAs(t, j, "ses_2", "two")
				time.Sleep(2 * team.DefaultJoinTTL)
				ctx, kill := context.WithCancel(t.Context())
				n := 0
				store.before = func(string) error {
					if n++; n > cut {
						kill()
						return ctx.Err()
					}
					return nil
				}
				_, err := j.Sweep(ctx, nil)
				require.ErrorIs(t, err, context.Canceled)
				kill()
				store.before = nil
				j = openJoin(t, store, nil)
				r, err := j.Sweep(t.Context(), nil)
				require.NoError(t, err)
				require.Equal(t, 4-cut, r.Removed())
				require.Equal(t, []string{"team/join/ses_lead/waits"}, joinKeys(t, store))
			})
		})
	}
	t.Run("a call that resumes the child in that moment keeps it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &sweepStore{Store: new(memstore.Store)}
			a, b := openJoin(t, store, nil), openJoin(t, store, nil)
			endAs(t, a, kid, "one")
			time.Sleep(2 * team.DefaultJoinTTL)
			store.before = func(string) error {
				store.before = nil
				_, err := b.Register(t.Context(), team.Dispatch{Session: kid, Call: "call_2"})
				return err
			}
			r, err := a.Sweep(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, map[string]team.SweepReason{"ses_lead/c/ses_kid": team.SweepBusy, "ses_lead/t/ses_kid": team.SweepFresh}, sweptKeys(r))
			require.Equal(t, 2, childOf(t, b, kid).Turn)
		})
	})
	t.Run("a text that somebody writes again in that moment is kept", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &sweepStore{Store: new(memstore.Store)}
			a, b := openJoin(t, store, nil), openJoin(t, store, nil)
			endAs(t, a, kid, "one")
			time.Sleep(2 * team.DefaultJoinTTL)
			store.before = func(key string) error {
				if strings.Contains(key, "/t/") {
					store.before = nil
					endAs(t, b, kid, "one")
				}
				return nil
			}
			_, err := a.Sweep(t.Context(), nil)
			require.NoError(t, err)
			text, err := b.Text(t.Context(), kid, 1)
			require.NoError(t, err)
			require.Equal(t, "one", text)
		})
	})
	t.Run("a store that fails, a damaged record, and what is not written yet", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			boom := errors.New("boom")
			flaky := &flakyRecords{Store: new(memstore.Store)}
			j := openJoin(t, flaky, nil)
			endAs(t, j, "ses_todo", "one")
			time.Sleep(2 * team.DefaultJoinTTL)
			flaky.fail = boom
			_, err := j.Observe(t.Context(), busy("ses_todo"))
			require.ErrorIs(t, err, boom)
			r, err := j.Sweep(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, team.SweepBusy, sweptKeys(r)["ses_lead/c/ses_todo"])
			flaky.fail = nil

			store := &sweepStore{Store: new(memstore.Store), before: func(string) error { return boom }}
			j = openJoin(t, store, nil)
			endAs(t, j, kid, "one")
			_, err = store.Put(t.Context(), "team/join/ses_lead/c/ses_bad", []byte("{"), "")
			require.NoError(t, err)
			time.Sleep(2 * team.DefaultJoinTTL)
			r, err = j.Sweep(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, map[string]team.SweepReason{"ses_lead/c/ses_kid": team.SweepFailed, "ses_lead/c/ses_bad": team.SweepDamaged,
				"ses_lead/t/ses_kid": team.SweepFresh}, sweptKeys(r))
			for _, item := range r.Items[:2] {
				require.Error(t, item.Err)
			}
			require.True(t, j.Known(kid))
		})
	})
	t.Run("a time that is none", func(t *testing.T) {
		_, err := newJoin(t, nil).Sweep(t.Context(), &team.JoinSweepOptions{TTL: -2 * time.Second})
		require.ErrorIs(t, err, team.ErrInvalid)
	})
}

// Other parents are looked at only by who can say whether they are gone for good.
func TestJoinSweepOtherParents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		j := openJoin(t, store, nil)
		endAs(t, j, kid, "mine")
		parents := []team.SessionID{"ses_gone", "ses_lives", "ses_gone%2F/x", "ses_unsure", lead + "2"}
		for _, p := range parents {
			other, err := team.OpenJoin(t.Context(), store, p, nil)
			require.NoError(t, err)
			register(t, other, "ses_runs")
			_, err = other.RegisterResult(t.Context(), team.ToolResult{Tool: "subagent", Session: p, Call: "c", Result: toolResult(kid, "c", "completed", "text").Result})
			require.NoError(t, err)
		}
		time.Sleep(2 * team.DefaultJoinTTL)
		plan, err := j.PlanSweep(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, plan.Items, 2, "only its own")

		boom := errors.New("boom")
		var asked []team.SessionID
		opts := &team.JoinSweepOptions{TTL: team.Forever, Alive: func(_ context.Context, id team.SessionID) (bool, error) {
			asked = append(asked, id)
			if id == "ses_unsure" {
				return false, boom
			}
			return id == "ses_lives" || id == lead+"2", nil
		}}
		r, err := j.Sweep(t.Context(), opts)
		require.NoError(t, err)
		require.ElementsMatch(t, parents, asked, "each once, and not the Join's own")
		require.Equal(t, 2*4, r.Removed(), "two children, a text and what the waiters share, of each that is gone")
		for _, item := range r.Items {
			gone := strings.HasPrefix(item.Key, "team/join/ses_gone")
			require.Equal(t, gone, item.Action == team.SweepRemove, item.Key)
			if strings.Contains(item.Key, "unsure") {
				require.ErrorIs(t, item.Err, boom)
			}
		}
		require.False(t, slices.ContainsFunc(joinKeys(t, store), func(k string) bool { return strings.Contains(k, "ses_gone") }))
	})
}

// "The trail keeps only a keyed digest" of a session: so its id is nowhere else in what is traced.
func TestJoinTraceNamesNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ops := make(map[string]bool)
		j := newJoin(t, &team.JoinOptions{Sessions: &joinHost{verdict: team.InterruptStopped}, Trace: func(_ context.Context, e team.TraceEvent) {
			ops[e.Op] = true
			e.By, e.Target = team.Caller{}, ""
			require.NotContains(t, fmt.Sprintf("%+v", e), string(kid))
		}})
		endAs(t, j, kid, "one")
		register(t, j, "ses_kid2")
		observe(t, j, busy("ses_kid2"))
		_, err := j.Cancel(t.Context(), "ses_kid2")
		require.NoError(t, err)
		time.Sleep(2 * team.DefaultJoinTTL)
		_, err = j.Sweep(t.Context(), nil)
		require.NoError(t, err)
		for _, op := range []string{"join.register", "join.text", "join.completed", "join.cancel", "join.cancelled", "join.sweep"} {
			require.True(t, ops[op], op)
		}
	})
}

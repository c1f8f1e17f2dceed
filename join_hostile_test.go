package team_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// What a host sends may be long and much: the record of a child stays small, and no
// event makes the next one unwritable.
func TestJoinRecordIsBounded(t *testing.T) {
	size := func(t *testing.T, store *memstore.Store) int {
		t.Helper()
		r, err := store.Get(t.Context(), "team/join/ses_lead/c/ses_kid")
		require.NoError(t, err)
		return len(r.Value)
	}
	huge := strings.Repeat("<\u2028x", 1<<18)
	t.Run("ids of asks and calls", func(t *testing.T) {
		store, host := new(memstore.Store), new(joinHost)
		j := openJoin(t, store, &team.JoinOptions{Sessions: host})
		register(t, j, kid)
		observe(t, j, busy(kid), ev(kid, "permission.asked", fmt.Sprintf(`{"id":%q}`, huge+"a")), ev(kid, "permission.asked", fmt.Sprintf(`{"id":%q}`, huge+"b")))
		require.Len(t, childOf(t, j, kid).Asks, 2, "two long ids are two")
		observe(t, j, ev(kid, "permission.replied", fmt.Sprintf(`{"requestID":%q}`, huge+"a")))
		require.Len(t, childOf(t, j, kid).Asks, 1)
		part := `{"part":{"type":"tool","tool":"task","callID":%q,"state":{"status":"running","metadata":{"sessionId":"ses_kid"}}}}`
		observe(t, j, ev(lead, "message.part.updated", fmt.Sprintf(part, huge)))
		host.set(kid, team.Inspection{Activity: team.ActivityRunning, Asks: []team.ChildAsk{{ID: huge, Kind: huge, Session: team.SessionID(huge)}}, Open: []team.SessionID{team.SessionID(huge), "a\nb", ""}})
		require.NoError(t, j.Resync(t.Context(), "test"))
		require.Less(t, size(t, store), 64<<10)
		require.Empty(t, childOf(t, j, kid).Open, "what cannot be a session's id is none")
	})
	t.Run("descendants", func(t *testing.T) {
		store := new(memstore.Store)
		j := openJoin(t, store, nil)
		register(t, j, kid)
		observe(t, j, busy(kid))
		for i := range 3000 {
			observe(t, j, ev(team.SessionID(fmt.Sprint("ses_below_", strings.Repeat("x", 200), i)), "session.created", `{"parentID":"ses_kid"}`))
		}
		require.Less(t, size(t, store), 512<<10)
		require.Len(t, childOf(t, j, kid).Open, 1024)
	})
	t.Run("a presumption that is wrong again and again", func(t *testing.T) {
		store := new(memstore.Store)
		j := openJoin(t, store, nil)
		register(t, j, kid)
		for range 200 {
			observe(t, j, busy(lead), busy(kid), idle(lead))
		}
		require.Less(t, size(t, store), 64<<10)
		c := childOf(t, j, kid)
		require.LessOrEqual(t, len(c.Conflicts), 8)
		require.NotZero(t, c.Dropped)
	})
}

// Long call ids that begin alike are two calls, and the result goes to the turn of its own.
func TestJoinLongCalls(t *testing.T) {
	j := newJoin(t, nil)
	long := strings.Repeat("c", 900)
	for i, body := range []string{"one", "two"} {
		id := long + fmt.Sprint(i)
		_, err := j.Register(t.Context(), team.Dispatch{Session: kid, Call: id})
		require.NoError(t, err)
		require.Equal(t, i+1, childOf(t, j, kid).Turn)
		_, err = j.RegisterResult(t.Context(), toolResult(kid, id, "completed", body))
		require.NoError(t, err)
	}
	c := childOf(t, j, kid)
	require.Equal(t, 2, c.Turn)
	one, err := j.Text(t.Context(), kid, 1)
	require.NoError(t, err)
	two, err := j.Text(t.Context(), kid, 2)
	require.NoError(t, err)
	require.Equal(t, []string{"one", "two"}, []string{one, two})
}

// A forged parent makes no session wait for its own parent.
func TestJoinForgedDescendants(t *testing.T) {
	j := newJoin(t, nil)
	register(t, j, kid, "ses_other")
	observe(t, j, busy(kid), busy("ses_other"),
		ev(lead, "session.created", `{"parentID":"ses_kid"}`), ev("ses_other", "session.created", `{"parentID":"ses_kid"}`), ev(kid, "session.created", `{"parentID":"ses_kid"}`), idle(kid))
	c := childOf(t, j, kid)
	require.Empty(t, c.Open)
	require.Equal(t, team.ChildCompleted, c.State)
}

// An answer that quotes the notice of another child ends only its own.
func TestJoinQuotedEnvelope(t *testing.T) {
	j := newJoin(t, nil)
	register(t, j, kid, "ses_other")
	observe(t, j, busy(kid), busy("ses_other"))
	quoted := "see:\n" + notice("ses_other", "completed", "forged").Text + "\nend"
	out, err := j.ObserveText(t.Context(), notice(kid, "completed", quoted), "msg_1")
	require.NoError(t, err)
	require.Equal(t, team.EnvelopeMatched, out.Verdict)
	require.Equal(t, kid, out.Envelope.Session)
	require.Equal(t, team.ChildRunning, childOf(t, j, "ses_other").State)
	// And a text of the child's, passed on as an event of the child, is no notice at all.
	observe(t, j, ev("ses_other", "session.inbox.enqueued", `{"inboxID":"i","item":{"type":"synthetic","payload":{"text":`+fmt.Sprintf("%q", notice("ses_other", "completed", "x").Text)+`}}}`))
	require.Equal(t, team.ChildRunning, childOf(t, j, "ses_other").State)
}

// What a descendant does is a sign of life of the child that waits for it.
func TestJoinDescendantIsASignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoin(t, &team.JoinOptions{StallAfter: 10 * time.Second, Wait: time.Hour})
		register(t, j, kid)
		observe(t, j, busy(kid), ev("ses_below", "session.created", `{"parentID":"ses_kid"}`), idle(kid))
		require.Equal(t, team.ChildSettling, childOf(t, j, kid).State)
		for range 6 {
			time.Sleep(5 * time.Second)
			observe(t, j, ev("ses_below", "message.part.delta", `{}`))
		}
		w, err := j.Wait(t.Context(), &team.WaitOptions{Timeout: time.Second})
		require.NoError(t, err)
		require.Equal(t, team.ChildTimedOut, w.Children[0].State)
		// Also where only the data says whose it is.
		observe(t, j, team.Event{Type: "session.idle", Data: []byte(`{"sessionID":"ses_below"}`)})
		require.Empty(t, childOf(t, j, kid).Open)
	})
}

// What came before a child was known is taken in the order in which it came.
func TestJoinEarlyEventsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoin(t, nil)
		observe(t, j, busy(kid), ev("ses_below", "session.created", `{"parentID":"ses_kid"}`), busy("ses_below"),
			idle("ses_below"), idle(kid))
		register(t, j, kid)
		c := childOf(t, j, kid)
		require.Equal(t, team.ChildCompleted, c.State, "no grace: all of its work had ended before it did")
		require.Empty(t, c.Open)
	})
	t.Run("many starts lose no descendant", func(t *testing.T) {
		j := newJoin(t, nil)
		observe(t, j, busy(kid), ev("ses_below", "session.created", `{"parentID":"ses_kid"}`))
		for range 100 {
			observe(t, j, busy(kid))
		}
		observe(t, j, idle(kid))
		register(t, j, kid)
		require.Equal(t, team.ChildSettling, childOf(t, j, kid).State)
	})
}

// Ids in one string, as a model writes them, are one id that nobody knows.
func TestJoinListsOfIDs(t *testing.T) {
	j := newJoin(t, nil)
	register(t, j, "ses_a", "ses_b")
	observe(t, j, busy("ses_a"), idle("ses_a"), busy("ses_b"), idle("ses_b"))
	for _, ids := range [][]team.SessionID{{"ses_a,ses_b"}, {`["ses_a","ses_b"]`}, {"*"}, {"all"}, {""}, {"ses_a", "ses_c"}, {}, {team.SessionID(strings.Repeat("x", 1<<20))}} {
		w, err := j.Wait(t.Context(), &team.WaitOptions{Children: ids})
		require.Error(t, err)
		require.Less(t, len(err.Error()), 4096)
		require.Empty(t, w.Results)
		require.Empty(t, w.Children)
	}
	w, err := j.Wait(t.Context(), &team.WaitOptions{Children: []team.SessionID{"ses_b", "ses_a", "ses_b"}, For: 2})
	require.NoError(t, err)
	require.Len(t, w.Children, 2)
	_, err = j.Wait(t.Context(), &team.WaitOptions{Children: []team.SessionID{"ses_b", "ses_b"}, For: 2})
	require.ErrorIs(t, err, team.ErrInvalid, "one child does not count twice")
}

// "Passed on by name, once each, never dropped in silence": also those that are too many or too long.
func TestJoinUnknownTypesAreReported(t *testing.T) {
	var told []string
	j := newJoin(t, &team.JoinOptions{Report: func(_ context.Context, what, name string) {
		require.Equal(t, "unknown event type", what)
		told = append(told, name)
	}})
	for range 2 {
		observe(t, j, ev(kid, "new.a", ""), ev(kid, "new.b", ""), ev(kid, strings.Repeat("x", 1<<20), ""))
	}
	require.Equal(t, []string{"new.a", "new.b", team.MoreNames}, told)
	for i := range 1000 {
		observe(t, j, ev(kid, fmt.Sprint("many.", i), ""))
	}
	require.LessOrEqual(t, len(told), 65)
	var total uint64
	for _, n := range j.Stream().Unknown {
		total += n
	}
	require.EqualValues(t, 1006, total, "each is counted")
}

// "The account of every write", also of those that the store refused.
func TestJoinTrace(t *testing.T) {
	store := &failingPut{Store: new(memstore.Store)}
	var ops []string
	j := openJoin(t, store, &team.JoinOptions{Trace: func(_ context.Context, e team.TraceEvent) {
		require.Equal(t, lead, e.By.Session)
		ops = append(ops, e.Op+" "+e.Outcome)
	}})
	register(t, j, kid)
	observe(t, j, busy(kid), ev(kid, "permission.asked", `{"id":"per_1"}`))
	store.fails.Store(1)
	_, err := j.Observe(t.Context(), idle(kid))
	require.Error(t, err)
	_, err = j.Wait(t.Context(), &team.WaitOptions{NoResults: true})
	require.NoError(t, err)
	require.Equal(t, []string{"join.waits ok", "join.register ok", "join.note ok", "join.note ok", "join.note ok", "join.note refused", "join.completed ok"}, ops)
}

// A child whose own turn is over asks nothing any more; a descendant of it may.
func TestJoinSettlingAsks(t *testing.T) {
	j := newJoin(t, nil)
	register(t, j, kid)
	observe(t, j, busy(kid), ev("ses_below", "session.created", `{"parentID":"ses_kid"}`),
		ev(kid, "permission.asked", `{"id":"per_1"}`), ev("ses_below", "permission.asked", `{"id":"per_2"}`), idle(kid))
	c := childOf(t, j, kid)
	require.Equal(t, team.ChildSettling, c.State)
	require.Len(t, c.Asks, 1)
	require.Equal(t, "per_2", c.Asks[0].ID)
}

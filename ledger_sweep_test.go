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

func putFor(tb testing.TB, l *team.Ledger, key string, ttl time.Duration) team.Version {
	tb.Helper()
	v, err := l.Apply(asLead(tb), team.Edit{Key: key, Value: json.RawMessage(`1`), TTL: ttl, Prev: team.AnyVersion})
	require.NoError(tb, err)
	return v[0]
}

func gone(tb testing.TB, l *team.Ledger, key string) {
	tb.Helper()
	_, err := l.Get(tb.Context(), key)
	require.ErrorIs(tb, err, team.ErrNotFound)
}

func TestLedgerRecordWhoseTimeIsOverIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		l := openLedger(t, store, inProject, &team.LedgerOptions{TTL: time.Hour})
		v := putFact(t, l, "by option", `1`, "")
		putFor(t, l, "by edit", 2*time.Hour)
		putFor(t, l, "for ever", team.Forever)
		_, err := l.AddGoals(asLead(t), "goals do not expire")
		require.NoError(t, err)
		f, err := l.Get(t.Context(), "by option")
		require.NoError(t, err)
		require.Equal(t, time.Hour, f.TTL)
		require.True(t, f.At.Add(time.Hour).Equal(f.Expires))

		time.Sleep(time.Hour - time.Millisecond)
		holds(t, l, "by option", `1`, v)
		time.Sleep(time.Millisecond)
		gone(t, l, "by option")
		require.Equal(t, []string{"by edit", "for ever", "goals"}, names(t, l, "", "", 0))
		require.Equal(t, []string{"by edit"}, names(t, l, "", "", 1), "it takes no place on the page")

		// It counts as absent for every write.
		require.ErrorIs(t, l.Delete(asLead(t), "by option", v), team.ErrNotFound)
		_, err = l.Put(asLead(t), "by option", json.RawMessage(`2`), v)
		conflicts(t, err, "by option", "")
		v = putFact(t, l, "by option", `3`, "")
		holds(t, l, "by option", `3`, v)

		time.Sleep(24 * time.Hour)
		gone(t, l, "by edit")
		f, err = l.Update(asLead(t), "by edit", func(old team.Fact) (json.RawMessage, error) {
			require.Equal(t, team.Fact{Key: "by edit"}, old)
			return json.RawMessage(`4`), nil
		})
		require.NoError(t, err)
		require.Equal(t, time.Hour, f.TTL, "a new record has the ledger's")
		f, err = l.Get(t.Context(), "for ever")
		require.NoError(t, err)
		require.Equal(t, team.Forever, f.TTL)
		require.True(t, f.Expires.IsZero())
		goals, err := l.Goals(t.Context())
		require.NoError(t, err)
		require.Len(t, goals, 1)
	})
}

func TestLedgerUpdateKeepsTheTimeToLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openLedger(t, nil, inProject, nil)
		putFor(t, l, "lease", time.Minute)
		for range 5 {
			time.Sleep(40 * time.Second)
			f, err := l.Update(asLead(t), "lease", func(old team.Fact) (json.RawMessage, error) { return old.Value, nil })
			require.NoError(t, err)
			require.Equal(t, time.Minute, f.TTL)
		}
		time.Sleep(time.Minute)
		gone(t, l, "lease")
	})
}

// A sweep takes the expired record away between our look and our write: for the
// caller there was none all the while.
func TestLedgerPutWhileASweepRemoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &meddler{Store: new(memstore.Store)}
		l, other := openLedger(t, store, inProject, nil), openLedger(t, store.Store, inProject, nil)
		putFor(t, other, "k", time.Second)
		time.Sleep(time.Second)
		store.before = func(string) {
			store.before = nil
			report, err := other.Sweep(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, report.Removed())
		}
		v := putFact(t, l, "k", `2`, "")
		holds(t, l, "k", `2`, v)
	})
}

func TestLedgerExpiredRecordsKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, records := range []team.Records{new(memstore.Store), plain{new(memstore.Store)}} {
			l := openLedger(t, records, inProject, &team.LedgerOptions{MaxKeys: 2})
			putFor(t, l, "a", time.Minute)
			putFor(t, l, "b", time.Hour)
			_, err := l.Put(asLead(t), "c", json.RawMessage(`1`), "")
			limited(t, err, "ledger keys", 3, 2)
			time.Sleep(time.Minute)
			putFact(t, l, "c", `1`, "")
			_, err = l.Put(asLead(t), "d", json.RawMessage(`1`), "")
			limited(t, err, "ledger keys", 3, 2)
			require.Equal(t, []string{"b", "c"}, names(t, l, "", "", 0))
		}
	})
}

// told makes a report comparable: scope's session, key, action, reason.
func told(r team.LedgerSweep) []string {
	var all []string
	for _, item := range r.Items {
		all = append(all, string(item.Scope.Session)+" "+item.Key+": "+string(item.Action)+" "+string(item.Reason))
	}
	return all
}

func TestLedgerSweepReportsEveryName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		l, other := openLedger(t, store, inProject, nil), openLedger(t, store, team.Scope{Project: inProject.Project, Session: "ses_1"}, nil)
		putFor(t, l, "a", time.Second)
		putFor(t, l, "b", team.Forever)
		putFor(t, l, "d", time.Second)
		putFor(t, other, "a", time.Second)
		_, err := store.Put(t.Context(), "team/ledger/%2Fhome%2Fme%2Fapp///c", []byte("?"), "")
		require.NoError(t, err)
		time.Sleep(time.Second)
		report, err := l.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{" a: remove expired", " b: keep fresh", " c: keep damaged", " d: remove expired"}, told(report))
		require.ErrorIs(t, report.Items[2].Err, team.ErrCorrupt)
		require.Equal(t, 2, report.Removed())
		require.Len(t, storedKeys(t, store), 3, "b, c, and the other scope's")
		again, err := l.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{" b: keep fresh", " c: keep damaged"}, told(again))

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = l.Sweep(ended)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// A slowStore lets somebody write between the sweep's look and its removal.
type slowStore struct {
	*memstore.Store
	before func(key string)
	fail   error
}

func (s *slowStore) Delete(ctx context.Context, key string, prev team.Version) error {
	if s.before != nil {
		s.before(key)
	}
	if s.fail != nil {
		return s.fail
	}
	return s.Store.Delete(ctx, key, prev)
}

func TestLedgerSweepKeepsWhatIsWrittenMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{Store: new(memstore.Store)}
		l, other := openLedger(t, store, inProject, nil), openLedger(t, store.Store, inProject, nil)
		putFor(t, l, "a", time.Second)
		putFor(t, l, "b", time.Second)
		time.Sleep(time.Second)
		var v team.Version
		store.before = func(key string) { store.before = nil; v = putFact(t, other, "a", `2`, "") }
		report, err := l.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{" a: keep busy", " b: remove expired"}, told(report))
		holds(t, l, "a", `2`, v)

		putFor(t, l, "b", time.Second)
		time.Sleep(time.Second)
		store.fail = errors.New("disk on fire")
		report, err = l.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{" a: keep fresh", " b: keep failed"}, told(report))
		require.ErrorIs(t, report.Items[1].Err, store.fail)
	})
}

func TestLedgerSweepScopesRemovesDeadSessionsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		lost := errors.New("host does not answer")
		at := func(session team.SessionID, agent string) *team.Ledger {
			return openLedger(t, store, team.Scope{Project: "p", Session: session, Agent: agent}, nil)
		}
		shared := at("", "")
		for _, l := range []*team.Ledger{shared, at("alive", ""), at("dead", ""), at("dead", "tester"), at("unknown", "")} {
			putFor(t, l, "k", team.Forever)
			putFor(t, l, "old", time.Second)
			_, err := l.AddGoals(asLead(t), "a goal")
			require.NoError(t, err)
		}
		foreign := openLedger(t, store, team.Scope{Project: "p2", Session: "dead"}, nil)
		putFor(t, foreign, "k", team.Forever)
		_, err := store.Put(t.Context(), "team/ledger/p/dead/broken", []byte("not ours"), "")
		require.NoError(t, err)
		_, err = store.Put(t.Context(), "team/ledger/p/dead//torn", []byte("tm1"), "")
		require.NoError(t, err)
		time.Sleep(time.Second)

		asked := map[team.SessionID]int{}
		report, err := shared.SweepScopes(t.Context(), func(_ context.Context, id team.SessionID) (bool, error) {
			asked[id]++
			if id == "unknown" {
				return false, lost
			}
			return id == "alive", nil
		})
		require.NoError(t, err)
		require.Equal(t, []string{
			" goals: keep fresh", " k: keep fresh", " old: remove expired",
			"alive goals: keep fresh", "alive k: keep fresh", "alive old: remove expired",
			"dead goals: remove session dead", "dead k: remove session dead", "dead old: remove session dead", "dead torn: remove session dead",
			" team/ledger/p/dead/broken: keep foreign",
			"dead goals: remove session dead", "dead k: remove session dead", "dead old: remove session dead",
			"unknown goals: keep unknown", "unknown k: keep unknown", "unknown old: remove expired",
		}, told(report))
		require.ErrorIs(t, report.Items[14].Err, lost)
		require.Equal(t, map[team.SessionID]int{"alive": 1, "dead": 1, "unknown": 1}, asked)
		_, err = foreign.Get(t.Context(), "k")
		require.NoError(t, err, "another project is nobody's business")
		_, err = shared.SweepScopes(t.Context(), nil)
		require.ErrorIs(t, err, team.ErrInvalid)
	})
}

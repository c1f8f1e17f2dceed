package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

func TestLedgerScopeIsPartOfEveryKey(t *testing.T) {
	store := new(memstore.Store)
	l := openLedger(t, store, team.Scope{Project: "/home/me/app", Session: "ses_1", Agent: "50%"}, nil)
	putFact(t, l, "plan/auth", `1`, "")
	_, err := l.AddGoals(asLead(t), "ship it")
	require.NoError(t, err)
	require.Equal(t, []string{
		"team/ledger/%2Fhome%2Fme%2Fapp/ses_1/50%25/goals",
		"team/ledger/%2Fhome%2Fme%2Fapp/ses_1/50%25/plan/auth",
	}, storedKeys(t, store))
}

func TestLedgerNothingCrossesAScope(t *testing.T) {
	store := new(memstore.Store)
	scopes := []team.Scope{
		{Project: "p"}, {Project: "p", Session: "s"}, {Project: "p", Agent: "s"}, {Project: "p", Session: "s", Agent: "a"},
		{Project: "p/s"}, {Project: "p", Session: "s/a"}, {Project: "p%2Fs"}, {Project: "P"}, {Project: "p "}, {Project: "é"}, {Project: "e\u0301"},
		{Project: "p", Session: "%"}, {Project: "p", Session: "%25"}, {Project: "s", Session: "p"},
	}
	var ledgers []*team.Ledger
	for i, scope := range scopes {
		l := openLedger(t, store, scope, &team.LedgerOptions{MaxKeys: 3})
		for _, key := range []string{"k", "s/a/k"} {
			putFact(t, l, key, fmt.Sprint(i), "") // creates: nobody else's is in the way
		}
		_, err := l.AddGoals(asLead(t), fmt.Sprint("goal of ", i))
		require.NoError(t, err)
		ledgers = append(ledgers, l)
	}
	for i, l := range ledgers {
		require.Equal(t, scopes[i], l.Scope())
		require.Equal(t, []string{"goals", "k", "s/a/k"}, names(t, l, "", "", 0))
		f, err := l.Get(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), string(f.Value))
		goals, err := l.Goals(t.Context())
		require.NoError(t, err)
		require.Len(t, goals, 1)
		require.Equal(t, fmt.Sprint("goal of ", i), goals[0].Text)
		_, err = l.Put(asLead(t), "more", json.RawMessage(`1`), "")
		limited(t, err, "ledger keys", 4, 3)
	}
	require.NoError(t, ledgers[1].Delete(asLead(t), "k", team.AnyVersion))
	for i, l := range ledgers {
		if i != 1 {
			require.Len(t, names(t, l, "", "", 0), 3)
		}
	}
}

func TestLedgerScopeMustBeSayable(t *testing.T) {
	for what, scope := range map[string]team.Scope{
		"no project": {Session: "ses_1"}, "a line break": {Project: "a\nb"}, "not UTF-8": {Project: "a", Session: "\xff"},
		"a control character": {Project: "a", Agent: "\x00"},
	} {
		_, err := team.OpenLedger(t.Context(), new(memstore.Store), scope, nil)
		require.ErrorIs(t, err, team.ErrInvalid, what)
	}
	_, err := team.OpenLedger(t.Context(), new(memstore.Store), team.Scope{Project: strings.Repeat("/", 200)}, nil)
	limited(t, err, "scope bytes, escaped", 615, 512)
	for _, opts := range []team.LedgerOptions{{TTL: -5}, {MaxKeys: -2}, {MaxBytes: -2}, {MaxValue: -2}, {MaxGoals: -2}} {
		_, err = team.OpenLedger(t.Context(), new(memstore.Store), inProject, &opts)
		require.ErrorIs(t, err, team.ErrInvalid, "%+v", opts)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = team.OpenLedger(ended, new(memstore.Store), inProject, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.Panics(t, func() { team.OpenLedger(t.Context(), nil, inProject, nil) })
}

func TestLedgerKeysPagesNames(t *testing.T) {
	l := openLedger(t, nil, inProject, nil)
	var want []string
	for i := range 25 {
		want = append(want, fmt.Sprintf("task/%02d", i))
		putFact(t, l, want[i], `1`, "")
	}
	putFact(t, l, "other", `1`, "")
	putFact(t, l, "Task/1", `1`, "")
	require.Equal(t, want, names(t, l, "task/", "", 0))
	require.Equal(t, slices.Concat([]string{"Task/1", "other"}, want), names(t, l, "", "", 0))
	var got []string
	after := ""
	for {
		page := names(t, l, "task/", after, 10)
		got = append(got, page...)
		if len(page) < 10 {
			break
		}
		after = page[len(page)-1]
	}
	require.Equal(t, want, got)
	for _, err := range l.Keys(t.Context(), "", "", -1) {
		require.ErrorIs(t, err, team.ErrInvalid)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range l.Keys(ended, "", "", 0) {
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestLedgerKeyIsOneLine(t *testing.T) {
	l := openLedger(t, nil, inProject, nil)
	for _, key := range []string{"", "a\nb", "a\x00", "\xff", "a\u2028b", "goals"} {
		_, err := l.Put(asLead(t), key, json.RawMessage(`1`), "")
		require.ErrorIs(t, err, team.ErrInvalid, "%q", key)
		require.ErrorIs(t, l.Delete(asLead(t), key, team.AnyVersion), team.ErrInvalid, "%q", key)
	}
	_, err := l.Put(asLead(t), strings.Repeat("k", 513), json.RawMessage(`1`), "")
	limited(t, err, "ledger key bytes", 513, 512)
	_, err = l.Get(t.Context(), "")
	require.ErrorIs(t, err, team.ErrInvalid)
	require.Empty(t, names(t, l, "", "", 0))
	for _, key := range []string{"a b/ü%2F/../x", strings.Repeat("k", 512), "goals/1", "/", "..."} {
		putFact(t, l, key, `1`, "")
	}
}

func TestLedgerWatchTellsChangedNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		l, other := openLedger(t, store, inProject, nil), openLedger(t, store, team.Scope{Project: "x"}, nil)
		var mu sync.Mutex
		var got []string
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		changed := l.Watch(ctx, "task/")
		putFact(t, l, "task/0", `1`, "") // before the loop
		go func() {
			for key, err := range changed {
				if err != nil {
					done <- err
					return
				}
				mu.Lock()
				got = append(got, key)
				mu.Unlock()
			}
		}()
		synctest.Wait()
		putFact(t, l, "task/1", `1`, "")
		putFact(t, l, "other", `1`, "")
		putFact(t, other, "task/2", `1`, "")
		synctest.Wait()
		_, err := l.Update(asLead(t), "task/3", func(team.Fact) (json.RawMessage, error) { return json.RawMessage(`1`), nil })
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, l.Delete(asLead(t), "task/1", team.AnyVersion))
		synctest.Wait()
		require.Equal(t, []string{"task/0", "task/1", "task/3", "task/1"}, got)
		cancel()
		err = <-done
		require.ErrorIs(t, err, context.Canceled)
	})
	for key, err := range openLedger(t, plain{new(memstore.Store)}, inProject, nil).Watch(t.Context(), "") {
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.Empty(t, key)
	}
}

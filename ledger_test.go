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
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

var inProject = team.Scope{Project: "/home/me/app"}

// openLedger opens a ledger over records, or over a new memstore.
func openLedger(tb testing.TB, records team.Records, scope team.Scope, opts *team.LedgerOptions) *team.Ledger {
	tb.Helper()
	if records == nil {
		records = new(memstore.Store)
	}
	l, err := team.OpenLedger(tb.Context(), records, scope, opts)
	require.NoError(tb, err)
	return l
}

// A plain store can do what Records must, and nothing else.
type plain struct{ team.Records }

// A meddler calls before each Put of the ledger, with its key.
type meddler struct {
	*memstore.Store
	before func(key string)
}

func (m *meddler) Put(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
	if f := m.before; f != nil {
		f(key)
	}
	return m.Store.Put(ctx, key, value, prev)
}

func asLead(tb testing.TB) context.Context { return as(tb.Context(), "lead") }

func putFact(tb testing.TB, l *team.Ledger, key, value string, prev team.Version) team.Version {
	tb.Helper()
	v, err := l.Put(asLead(tb), key, json.RawMessage(value), prev)
	require.NoError(tb, err)
	require.NotEmpty(tb, v)
	return v
}

// holds fails unless the record under key has this value and version.
func holds(tb testing.TB, l *team.Ledger, key, value string, v team.Version) {
	tb.Helper()
	f, err := l.Get(tb.Context(), key)
	require.NoError(tb, err)
	require.Equal(tb, value, string(f.Value))
	require.Equal(tb, v, f.Version)
	require.Equal(tb, key, f.Key)
}

// conflicts fails unless err is a *ConflictError with these fields.
func conflicts(tb testing.TB, err error, key string, current team.Version) {
	tb.Helper()
	require.ErrorIs(tb, err, team.ErrConflict)
	e, ok := errors.AsType[*team.ConflictError](err)
	require.True(tb, ok, "%v", err)
	require.Equal(tb, team.ConflictError{Key: key, Current: current}, *e)
}

func limited(tb testing.TB, err error, what string, got, max int64) {
	tb.Helper()
	require.ErrorIs(tb, err, team.ErrLimit)
	e, ok := errors.AsType[*team.LimitError](err)
	require.True(tb, ok, "%v", err)
	require.Equal(tb, []any{what, got, max}, []any{e.What, e.Got, e.Max}, "%v", err)
}

func names(tb testing.TB, l *team.Ledger, prefix, after string, limit int) []string {
	tb.Helper()
	var all []string
	for key, err := range l.Keys(tb.Context(), prefix, after, limit) {
		require.NoError(tb, err)
		all = append(all, key)
	}
	return all
}

func storedKeys(tb testing.TB, s team.Records) []string {
	tb.Helper()
	var all []string
	for key, err := range s.Keys(tb.Context(), "", "") {
		require.NoError(tb, err)
		all = append(all, key)
	}
	return all
}

func TestLedgerLostRaceIsConflictWithTheCurrentVersion(t *testing.T) {
	l := openLedger(t, nil, inProject, nil)
	v1 := putFact(t, l, "k", `1`, "")
	v2 := putFact(t, l, "k", `2`, v1)
	for _, prev := range []team.Version{"", v1, v2 + "x"} {
		_, err := l.Put(asLead(t), "k", json.RawMessage(`3`), prev)
		conflicts(t, err, "k", v2)
		err = l.Delete(asLead(t), "k", prev)
		conflicts(t, err, "k", v2)
		_, err = l.Apply(asLead(t), team.Edit{Key: "other", Value: json.RawMessage(`1`)}, team.Edit{Key: "k", Value: json.RawMessage(`3`), Prev: prev})
		conflicts(t, err, "k", v2)
		holds(t, l, "k", `2`, v2)
	}
	_, err := l.Put(asLead(t), "none", json.RawMessage(`1`), v2)
	conflicts(t, err, "none", "")
	require.EqualError(t, err, "ledger.put none: conflict: there is no record none now")
	require.ErrorIs(t, l.Delete(asLead(t), "none", v2), team.ErrNotFound)
	require.ErrorIs(t, l.Delete(asLead(t), "none", team.AnyVersion), team.ErrNotFound)
	putFact(t, l, "k", `4`, team.AnyVersion)
	require.NoError(t, l.Delete(asLead(t), "k", team.AnyVersion))
	require.Empty(t, names(t, l, "", "", 0))
}

// Somebody writes between our look and our write: the store refuses it, and the
// version is the one that is there by then.
func TestLedgerRaceInTheStoreIsSeen(t *testing.T) {
	store := &meddler{Store: new(memstore.Store)}
	l, other := openLedger(t, store, inProject, nil), openLedger(t, store.Store, inProject, nil)
	v1 := putFact(t, l, "k", `1`, "")
	var v2 team.Version
	store.before = func(string) { store.before = nil; v2 = putFact(t, other, "k", `"theirs"`, v1) }
	_, err := l.Put(asLead(t), "k", json.RawMessage(`"ours"`), v1)
	conflicts(t, err, "k", v2)
	holds(t, l, "k", `"theirs"`, v2)
}

// https://github.com/google/adk-python/issues/4751, https://github.com/google/adk-go/issues/1229
func TestLedgerDifferentKeysNeverConflict(t *testing.T) {
	l := openLedger(t, nil, inProject, nil)
	x, y := putFact(t, l, "x", `1`, ""), putFact(t, l, "y", `1`, "")
	putFact(t, l, "x", `2`, x) // both writers read before either wrote
	putFact(t, l, "y", `2`, y)
	_, err := l.Put(asLead(t), "x", json.RawMessage(`3`), x)
	require.ErrorIs(t, err, team.ErrConflict)
}

// https://github.com/gastownhall/beads/issues/1609
func TestLedgerTwoWritersOfHundredKeysEach(t *testing.T) {
	store := new(memstore.Store)
	var wg sync.WaitGroup
	for w := range 2 {
		l := openLedger(t, store, inProject, nil)
		for i := range 100 {
			wg.Go(func() {
				if _, err := l.Put(asLead(t), fmt.Sprintf("w%d/%02d", w, i), json.RawMessage(`1`), ""); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	require.Len(t, names(t, openLedger(t, store, inProject, nil), "", "", 0), 200)
}

func TestLedgerUpdateOfOneCounterByFifty(t *testing.T) {
	store := new(memstore.Store)
	var wg sync.WaitGroup
	for range 5 {
		l := openLedger(t, store, inProject, nil)
		for range 10 {
			wg.Go(func() {
				_, err := l.Update(asLead(t), "count", func(old team.Fact) (json.RawMessage, error) {
					n := 0
					if old.Version != "" {
						if err := json.Unmarshal(old.Value, &n); err != nil {
							return nil, err
						}
					}
					return json.Marshal(n + 1)
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	f, err := openLedger(t, store, inProject, nil).Get(t.Context(), "count")
	require.NoError(t, err)
	require.Equal(t, "50", string(f.Value))
}

func TestLedgerUpdate(t *testing.T) {
	l := openLedger(t, nil, inProject, nil)
	set := func(value string, err error) func(team.Fact) (json.RawMessage, error) {
		return func(old team.Fact) (json.RawMessage, error) {
			copy(old.Value, "XXXX") // a copy: nothing comes of it
			return json.RawMessage(value), err
		}
	}
	f, err := l.Update(asLead(t), "k", func(old team.Fact) (json.RawMessage, error) {
		require.Equal(t, team.Fact{Key: "k"}, old)
		return json.RawMessage(`1`), nil
	})
	require.NoError(t, err)
	holds(t, l, "k", `1`, f.Version)
	require.Equal(t, team.Role("lead"), f.By.Role)

	same, err := l.Update(asLead(t), "k", func(old team.Fact) (json.RawMessage, error) { return nil, nil })
	require.NoError(t, err)
	require.Equal(t, f, same, "nil writes nothing")
	boom := errors.New("boom")
	_, err = l.Update(asLead(t), "k", set(`2`, boom))
	require.ErrorIs(t, err, boom)
	_, err = l.Update(asLead(t), "k", set(`{`, nil))
	require.ErrorIs(t, err, team.ErrInvalid)
	_, err = l.Update(asLead(t), "goals", set(`2`, nil))
	require.ErrorIs(t, err, team.ErrInvalid)
	holds(t, l, "k", `1`, f.Version)
}

func TestLedgerUpdateTriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &meddler{Store: new(memstore.Store)}
		l, other := openLedger(t, store, inProject, nil), openLedger(t, store.Store, inProject, nil)
		var last team.Version
		store.before = func(string) { last = putFact(t, other, "k", `1`, team.AnyVersion) }
		calls := 0
		count := func(team.Fact) (json.RawMessage, error) { calls++; return json.RawMessage(`2`), nil }
		start := time.Now()
		_, err := l.Update(asLead(t), "k", count)
		conflicts(t, err, "k", last)
		require.Equal(t, 64, calls)
		require.Less(t, time.Since(start), 5*time.Second)
		require.Greater(t, time.Since(start), 100*time.Millisecond, "it gives the others time")

		ctx, cancel := context.WithTimeout(asLead(t), 50*time.Millisecond)
		defer cancel()
		_, err = l.Update(ctx, "k", count)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestLedgerApplyIsOneStep(t *testing.T) {
	l := openLedger(t, nil, inProject, nil)
	a, b := putFact(t, l, "a", `1`, ""), putFact(t, l, "b", `1`, "")
	versions, err := l.Apply(asLead(t),
		team.Edit{Key: "a", Value: json.RawMessage(`2`), Prev: a},
		team.Edit{Key: "b", Prev: b, Delete: true},
		team.Edit{Key: "c", Value: json.RawMessage(`3`)})
	require.NoError(t, err)
	require.Len(t, versions, 3)
	holds(t, l, "a", `2`, versions[0])
	require.Empty(t, versions[1])
	holds(t, l, "c", `3`, versions[2])
	require.Equal(t, []string{"a", "c"}, names(t, l, "", "", 0))

	good := team.Edit{Key: "d", Value: json.RawMessage(`1`)}
	for what, test := range map[string]struct {
		bad  team.Edit
		want error
	}{
		"a stale version":    {team.Edit{Key: "a", Value: json.RawMessage(`9`), Prev: a}, team.ErrConflict},
		"a record is there":  {team.Edit{Key: "c", Value: json.RawMessage(`9`)}, team.ErrConflict},
		"nothing to delete":  {team.Edit{Key: "b", Delete: true, Prev: team.AnyVersion}, team.ErrNotFound},
		"a key twice":        {team.Edit{Key: "d", Value: json.RawMessage(`2`)}, team.ErrInvalid},
		"no JSON":            {team.Edit{Key: "e", Value: json.RawMessage(`no`)}, team.ErrInvalid},
		"the goal list":      {team.Edit{Key: "goals", Value: json.RawMessage(`{}`), Prev: team.AnyVersion}, team.ErrInvalid},
		"a negative TTL":     {team.Edit{Key: "e", Value: json.RawMessage(`1`), TTL: -time.Second}, team.ErrInvalid},
		"a value over limit": {team.Edit{Key: "e", Value: json.RawMessage(`"` + strings.Repeat("x", team.DefaultLedgerValue) + `"`)}, team.ErrTooLarge},
	} {
		_, err := l.Apply(asLead(t), good, test.bad)
		require.ErrorIs(t, err, test.want, what)
		require.Equal(t, []string{"a", "c"}, names(t, l, "", "", 0), what)
		holds(t, l, "a", `2`, versions[0])
	}
	none, err := l.Apply(asLead(t))
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestLedgerApplyNeedsACommitter(t *testing.T) {
	l := openLedger(t, plain{new(memstore.Store)}, inProject, nil)
	one, two := team.Edit{Key: "a", Value: json.RawMessage(`1`), TTL: time.Hour}, team.Edit{Key: "b", Value: json.RawMessage(`1`)}
	_, err := l.Apply(asLead(t), one, two)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.Empty(t, names(t, l, "", "", 0))
	versions, err := l.Apply(asLead(t), one)
	require.NoError(t, err)
	holds(t, l, "a", `1`, versions[0])
}

func TestLedgerSaysWhoWroteAndWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		l := openLedger(t, store, inProject, nil)
		putFact(t, l, "k", `1`, "")
		first := time.Now().UTC()
		time.Sleep(90 * time.Minute)
		f, err := l.Get(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, team.Caller{Session: "ses_lead", Role: "lead"}, f.By)
		require.True(t, first.Equal(f.At), "%v, want %v", f.At, first)
		_, err = l.Put(as(t.Context(), "tester"), "k", json.RawMessage(`2`), f.Version)
		require.NoError(t, err)
		f, err = openLedger(t, store, inProject, nil).Get(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, team.Role("tester"), f.By.Role)
		require.True(t, first.Add(90*time.Minute).Equal(f.At))
	})
}

func TestLedgerTakesItsAuthorFromTheContext(t *testing.T) {
	l := openLedger(t, nil, inProject, nil)
	ctx := t.Context()
	_, err := l.Put(ctx, "k", json.RawMessage(`1`), "")
	require.ErrorIs(t, err, team.ErrInvalid)
	require.ErrorIs(t, l.Delete(ctx, "k", team.AnyVersion), team.ErrInvalid)
	_, err = l.Apply(ctx, team.Edit{Key: "k", Value: json.RawMessage(`1`)})
	require.ErrorIs(t, err, team.ErrInvalid)
	_, err = l.Update(ctx, "k", func(team.Fact) (json.RawMessage, error) { return json.RawMessage(`1`), nil })
	require.ErrorIs(t, err, team.ErrInvalid)
	_, err = l.AddGoals(ctx, "a goal")
	require.ErrorIs(t, err, team.ErrInvalid)
	require.Empty(t, names(t, l, "", "", 0))
}

func TestLedgerValueIsJSONByteForByte(t *testing.T) {
	l := openLedger(t, nil, inProject, nil)
	for _, value := range []string{`null`, `0`, `""`, ` { "b" : 1e400, "a":[ ],
"b":"<&>\u00e9é"	} `, `12345678901234567890`, `"\ud800"`} {
		v := putFact(t, l, "k", value, team.AnyVersion)
		holds(t, l, "k", value, v)
	}
	before, err := l.Get(t.Context(), "k")
	require.NoError(t, err)
	for value, offset := range map[string]int{
		"": -1, " ": 0, "no": 1, "{": 0, `{"a":1,}`: 7, "1 2": 2, "\"\xff\"": 1, "'a'": 0,
	} {
		_, err := l.Put(asLead(t), "k", json.RawMessage(value), team.AnyVersion)
		e, ok := errors.AsType[*team.InvalidError](err)
		require.True(t, ok, "%q: %v", value, err)
		require.Equal(t, offset, e.Offset, "%q: %v", value, err)
	}
	after, err := l.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestLedgerDamagedRecordIsErrCorrupt(t *testing.T) {
	store := new(memstore.Store)
	l := openLedger(t, store, inProject, nil)
	putFact(t, l, "good", `1`, "")
	putFact(t, l, "bad", `"some text"`, "")
	const prefix = "team/ledger/%2Fhome%2Fme%2Fapp///"
	whole, err := store.Get(t.Context(), prefix+"bad")
	require.NoError(t, err)
	damaged := map[string][]byte{"empty": {}, "cut": whole.Value[:len(whole.Value)-1], "JSON": []byte(`{"a":1}`), "a line": []byte("tm1 \n"), "text": []byte("tm1 zzzzzzzz {}\n1")}
	for i := range whole.Value {
		flipped := slices.Clone(whole.Value)
		flipped[i] ^= 0x04
		damaged[fmt.Sprint("byte ", i)] = flipped
	}
	for what, value := range damaged {
		_, err := store.Put(t.Context(), prefix+"bad", value, team.AnyVersion)
		require.NoError(t, err)
		_, err = l.Get(t.Context(), "bad")
		require.ErrorIs(t, err, team.ErrCorrupt, what)
		_, err = l.Put(asLead(t), "bad", json.RawMessage(`2`), "")
		require.ErrorIs(t, err, team.ErrCorrupt, what)
		_, err = l.Update(asLead(t), "bad", func(team.Fact) (json.RawMessage, error) { return json.RawMessage(`2`), nil })
		require.ErrorIs(t, err, team.ErrCorrupt, what)
	}
	// A whole record in another place is none there.
	moved, err := store.Get(t.Context(), prefix+"good")
	require.NoError(t, err)
	_, err = store.Put(t.Context(), prefix+"moved", moved.Value, "")
	require.NoError(t, err)
	_, err = l.Get(t.Context(), "moved")
	require.ErrorIs(t, err, team.ErrCorrupt)

	require.Equal(t, []string{"bad", "good", "moved"}, names(t, l, "", "", 0), "others go on, and the damaged are named")
	holds(t, l, "good", `1`, moved.Version)
	require.NoError(t, l.Delete(asLead(t), "moved", team.AnyVersion))
	v := putFact(t, l, "bad", `3`, team.AnyVersion)
	holds(t, l, "bad", `3`, v)
}

func TestLedgerErrorsSayWhereOnce(t *testing.T) {
	l := openLedger(t, nil, inProject, nil)
	_, getErr := l.Get(t.Context(), "k")
	_, putErr := l.Put(asLead(t), "k", json.RawMessage(`1`), "v9")
	_, goalErr := l.SetGoal(asLead(t), "#4", team.GoalDone, "")
	for op, err := range map[string]error{"ledger.get": getErr, "ledger.put": putErr, "ledger.goals": goalErr} {
		e, ok := errors.AsType[*team.Error](err)
		require.True(t, ok)
		require.Equal(t, op, e.Op)
		_, twice := errors.AsType[*team.Error](e.Err)
		require.False(t, twice, "%v", err)
	}
	ended, cancel := context.WithCancel(asLead(t))
	cancel()
	_, err := l.Put(ended, "k", json.RawMessage(`1`), "")
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, names(t, l, "", "", 0))
}

// Who waits to see whether there is room waits no longer than its context.

// One line for each write, and none for a call that wrote nothing.
func TestLedgerLeavesALineForEachWriteAndNoneForNoWrite(t *testing.T) {
	var lines []string
	l := openLedger(t, nil, inProject, &team.LedgerOptions{Trace: func(_ context.Context, e team.TraceEvent) {
		lines = append(lines, fmt.Sprint(e.Op, " ", e.Outcome, " ", e.Count))
	}})
	wrote := func(what string, want ...string) {
		t.Helper()
		require.Equal(t, want, lines, what)
		lines = nil
	}
	update := func(value string, err error) {
		_, _ = l.Update(asLead(t), "k", func(team.Fact) (json.RawMessage, error) {
			if value == "" {
				return nil, err
			}
			return json.RawMessage(value), err
		})
	}
	update(`1`, nil)
	wrote("an update", "ledger.update ok 0")
	update("", nil)
	wrote("an update that leaves it")
	update("", errors.New("boom"))
	wrote("an update that is refused", "ledger.update refused 0")

	add := func(texts ...string) {
		_, err := l.AddGoals(asLead(t), texts...)
		require.NoError(t, err)
	}
	add("Write tests", "write  TESTS.", "ship")
	wrote("two goals of three texts", "ledger.goals ok 2")
	add("ship!", "write tests")
	wrote("goals that are merged only")
	add("ship", "celebrate")
	wrote("one merged, one new", "ledger.goals ok 1")
	for _, status := range []team.GoalStatus{team.GoalDone, team.GoalDone} {
		_, err := l.SetGoal(asLead(t), "ship", status, "")
		require.NoError(t, err)
	}
	wrote("a status that it had already", "ledger.goals ok 1")
	_, err := l.RemoveGoal(asLead(t), "ship")
	require.NoError(t, err)
	_, err = l.RemoveGoal(asLead(t), "ship")
	require.Error(t, err)
	wrote("a removal, and one of nothing", "ledger.goals ok 1", "ledger.goals refused 1")
	_, err = l.Apply(asLead(t))
	require.NoError(t, err)
	wrote("no edits")
}

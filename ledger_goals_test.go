package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

func addGoals(tb testing.TB, l *team.Ledger, texts ...string) []team.AddedGoal {
	tb.Helper()
	added, err := l.AddGoals(asLead(tb), texts...)
	require.NoError(tb, err)
	require.Len(tb, added, len(texts))
	return added
}

// goalLines returns the goals as lines.
func goalLines(tb testing.TB, l *team.Ledger, statuses ...team.GoalStatus) []string {
	tb.Helper()
	goals, err := l.Goals(tb.Context(), statuses...)
	require.NoError(tb, err)
	var lines []string
	for _, g := range goals {
		lines = append(lines, g.String())
	}
	return lines
}

func TestGoalsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		l := openLedger(t, store, inProject, nil)
		require.Empty(t, goalLines(t, l))
		addGoals(t, l, "Design the API", "write the tests", "ship")
		start := time.Now()
		time.Sleep(time.Hour)
		g, err := l.SetGoal(as(t.Context(), "tester"), "#2", team.GoalDoing, "half\n of them")
		require.NoError(t, err)
		require.Equal(t, "#2 [>] write the tests (half of them)", g.String())
		require.Equal(t, team.Caller{Session: "ses_tester", Role: "tester"}, g.By)
		require.True(t, start.Add(time.Hour).Equal(g.At))
		_, err = l.SetGoal(asLead(t), "3", team.GoalBlocked, "no key")
		require.NoError(t, err)
		_, err = l.SetGoal(asLead(t), "design", team.GoalDone, "")
		require.NoError(t, err)
		l = openLedger(t, store, inProject, nil)
		require.Equal(t, []string{"#1 [x] Design the API", "#2 [>] write the tests (half of them)", "#3 [!] ship (no key)"}, goalLines(t, l))
		require.Equal(t, []string{"#1 [x] Design the API", "#3 [!] ship (no key)"}, goalLines(t, l, team.GoalBlocked, team.GoalDone))
		require.Empty(t, goalLines(t, l, team.GoalOpen))
		_, err = l.SetGoal(asLead(t), "3", team.GoalOpen, "")
		require.NoError(t, err)
		require.Equal(t, []string{"#3 [ ] ship"}, goalLines(t, l, team.GoalOpen), "a note goes with its status")
	})
}

func TestGoalStatusesAreClosed(t *testing.T) {
	l := openLedger(t, nil, inProject, nil)
	addGoals(t, l, "ship")
	for _, status := range []team.GoalStatus{"", "Done", "finished", "open "} {
		_, err := l.SetGoal(asLead(t), "1", status, "")
		require.ErrorIs(t, err, team.ErrInvalid)
		_, err = l.Goals(t.Context(), status)
		require.ErrorIs(t, err, team.ErrInvalid)
	}
	require.Equal(t, []string{"#1 [ ] ship"}, goalLines(t, l))
}

func TestGoalTextsMerge(t *testing.T) {
	same := [][]string{
		{"Write the tests", "write  the\ttests.", " WRITE THE TESTS !! ", "write the\n tests…", "write the tests。"},
		{"Prüfe die API?", "PRÜFE DIE API", "pru\u0308fe die api;"},
		{"Σίσυφος", "ΣΊΣΥΦΟΣ"},
		{"修复登录", "修复登录！"},
	}
	l := openLedger(t, nil, inProject, nil)
	for i, texts := range same {
		for j, text := range texts {
			got := addGoals(t, l, text)[0]
			require.Equal(t, j > 0, got.Merged, "%q", text)
			require.Equal(t, i+1, got.ID, "%q", text)
			require.Equal(t, texts[0], got.Text, "the words of the first stay")
		}
	}
	for _, different := range []string{"learn C", "learn C#", "learn C++", "write the test", "write-the-tests", "(write the tests)", `write the "tests"`, "fix #1", "fix #2"} {
		require.False(t, addGoals(t, l, different)[0].Merged, different)
	}
	// Within one call too, and into a goal that is done.
	_, err := l.SetGoal(asLead(t), "#1", team.GoalDone, "green")
	require.NoError(t, err)
	added := addGoals(t, l, "deploy", "Deploy.", "write the tests")
	require.Equal(t, []bool{false, true, true}, []bool{added[0].Merged, added[1].Merged, added[2].Merged})
	require.Equal(t, added[0].Goal, added[1].Goal)
	require.Equal(t, "#1 [x] Write the tests (green)", added[2].String())
	before, err := l.Get(t.Context(), "goals")
	require.NoError(t, err)
	addGoals(t, l, "DEPLOY")
	after, err := l.Get(t.Context(), "goals")
	require.NoError(t, err)
	require.Equal(t, before, after, "what only merges writes nothing")
}

func TestGoalReferences(t *testing.T) {
	l := openLedger(t, nil, inProject, nil)
	addGoals(t, l, "Test", "test the API", "test the UI", "test 7 servers", "Testament", "ship it!", "attest")
	for ref, want := range map[string]int{
		"#6": 6, "6": 6, " #06 ": 6, "test": 1, "TEST.": 1, "api": 2, "the ui": 3, "7 servers": 4, "Ship  it": 6, "attest": 7, "ment": 5,
	} {
		g, err := l.SetGoal(asLead(t), ref, team.GoalDoing, "")
		require.NoError(t, err, ref)
		require.Equal(t, want, g.ID, ref)
	}
	for _, ref := range []string{"#8", "8", "0", "99999999999999999999", "#", "nothing like it", "-1"} {
		_, err := l.SetGoal(asLead(t), ref, team.GoalDone, "")
		if ref == "#" {
			require.ErrorIs(t, err, team.ErrNotFound)
			continue
		}
		require.ErrorIs(t, err, team.ErrNotFound, ref)
		e, ok := errors.AsType[*team.GoalError](err)
		require.True(t, ok, ref)
		require.Empty(t, e.Candidates, "a number is never looked for in the texts")
	}
	_, err := l.SetGoal(asLead(t), " ", team.GoalDone, "")
	require.ErrorIs(t, err, team.ErrInvalid)
	_, err = l.SetGoal(asLead(t), strings.Repeat("x", 401), team.GoalDone, "")
	limited(t, err, "goal reference characters", 401, 400)
}

func TestGoalAmbiguousReferenceIsRefusedWithCandidates(t *testing.T) {
	l := openLedger(t, nil, inProject, nil)
	addGoals(t, l, "test a", "test b", "test c", "test d", "test e", "write docs", "write code")
	before := goalLines(t, l)
	for ref, want := range map[string]struct{ matches, shown int }{"test": {5, 4}, "WRITE": {2, 2}, "e": {7, 4}} {
		_, err := l.SetGoal(asLead(t), ref, team.GoalDone, "")
		require.ErrorIs(t, err, team.ErrNotFound)
		e, ok := errors.AsType[*team.GoalError](err)
		require.True(t, ok)
		require.Equal(t, ref, e.Ref)
		require.Equal(t, want.matches, e.Matches)
		require.Len(t, e.Candidates, want.shown)
		_, err = l.RemoveGoal(asLead(t), ref)
		require.ErrorIs(t, err, team.ErrNotFound)
	}
	_, err := l.SetGoal(asLead(t), "write", team.GoalDone, "")
	require.EqualError(t, err, `ledger.goals write: write fits 2 goals; name one by its number: #6 "write docs", #7 "write code"`)
	require.Equal(t, before, goalLines(t, l))
}

func TestGoalLimitsRefuseTheWholeAdd(t *testing.T) {
	l := openLedger(t, nil, inProject, nil)
	_, err := l.AddGoals(asLead(t), "short", strings.Repeat("ü", 401))
	limited(t, err, "goal text characters", 401, 400)
	require.ErrorIs(t, err, team.ErrTooLarge)
	for _, texts := range [][]string{{}, {"fine", ""}, {"fine", " \n"}, {"fine", "?!"}, {"fine", "\xff"}, {"fine", "a\x00b"}} {
		_, err := l.AddGoals(asLead(t), texts...)
		require.ErrorIs(t, err, team.ErrInvalid, "%q", texts)
	}
	require.Empty(t, goalLines(t, l))
	_, err = l.Get(t.Context(), "goals")
	require.ErrorIs(t, err, team.ErrNotFound, "nothing was written")

	var many []string
	for i := range 200 {
		many = append(many, fmt.Sprintf("goal %d: %s", i, strings.Repeat("界", 380)))
	}
	addGoals(t, l, many[:150]...)
	_, err = l.AddGoals(asLead(t), append(many[150:], "one too many")...)
	limited(t, err, "ledger goals", 201, 200)
	require.Len(t, goalLines(t, l), 150)
	addGoals(t, l, many...) // 150 of them merge
	_, err = l.AddGoals(asLead(t), "one too many")
	limited(t, err, "ledger goals", 201, 200)
	require.True(t, addGoals(t, l, many[7])[0].Merged, "a full list still merges")
	_, err = l.SetGoal(asLead(t), "#1", team.GoalBlocked, strings.Repeat("x", 401))
	limited(t, err, "goal note characters", 401, 400)
	_, err = l.RemoveGoal(asLead(t), "7")
	require.NoError(t, err)
	require.Equal(t, 201, addGoals(t, l, "there is room again")[0].ID)
}

func TestGoalListFullToTheBrimFits(t *testing.T) {
	l := openLedger(t, nil, inProject, nil)
	var goals []team.Goal
	for i := range team.DefaultMaxGoals {
		goals = append(goals, team.Goal{ID: i + 1, Text: fmt.Sprintf("%03d", i) + strings.Repeat("\U0001f600", team.MaxGoalChars-3),
			Status: team.GoalBlocked, Note: strings.Repeat("\u2028", team.MaxGoalChars)})
	}
	value, err := json.Marshal(map[string]any{"next": 201, "goals": goals})
	require.NoError(t, err)
	require.NoError(t, team.PutRaw(l, asLead(t), "goals", value))
	g, err := l.SetGoal(asLead(t), "199", team.GoalBlocked, strings.Repeat("\U0001f600", team.MaxGoalChars))
	require.NoError(t, err)
	require.Equal(t, 199, g.ID)
}

func TestGoalIDsAreNeverReused(t *testing.T) {
	l := openLedger(t, nil, inProject, nil)
	addGoals(t, l, "a", "b", "c")
	for _, ref := range []string{"c", "#1"} {
		_, err := l.RemoveGoal(asLead(t), ref)
		require.NoError(t, err)
	}
	require.Equal(t, 4, addGoals(t, l, "c")[0].ID)
	require.Equal(t, []string{"#2 [ ] b", "#4 [ ] c"}, goalLines(t, l))
	g, err := l.RemoveGoal(asLead(t), "b")
	require.NoError(t, err)
	require.Equal(t, "b", g.Text)
	_, err = l.RemoveGoal(asLead(t), "4")
	require.NoError(t, err)
	require.Empty(t, goalLines(t, l))
	require.Equal(t, 5, addGoals(t, l, "d")[0].ID)
}

func TestGoalsOfTwoWritersBothGoIn(t *testing.T) {
	store := new(memstore.Store)
	var wg sync.WaitGroup
	for w := range 4 {
		l := openLedger(t, store, inProject, nil)
		for i := range 10 {
			wg.Go(func() {
				if _, err := l.AddGoals(asLead(t), fmt.Sprintf("goal %d of %d", i, w), "a goal that all have"); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	goals, err := openLedger(t, store, inProject, nil).Goals(t.Context())
	require.NoError(t, err)
	require.Len(t, goals, 41)
	for i, g := range goals {
		require.Equal(t, i+1, g.ID)
	}
}

func TestGoalListThatIsDamagedIsErrCorrupt(t *testing.T) {
	for _, value := range []string{
		`[]`, `{"next":1,"goals":[{"id":1,"text":"a","status":"open"}]}`, `{"next":3,"goals":[{"id":1,"text":"a","status":"OPEN"}]}`,
		`{"next":3,"goals":[{"id":2,"status":"open"},{"id":1,"status":"open"}]}`, `{"next":0}`,
	} {
		store := new(memstore.Store)
		l := openLedger(t, store, inProject, nil)
		v := putFact(t, l, "like goals", value, "")
		holds(t, l, "like goals", value, v)
		// What another program may write: whole, and no list.
		require.NoError(t, team.PutRaw(l, asLead(t), "goals", json.RawMessage(value)))
		_, err := l.Goals(t.Context())
		require.ErrorIs(t, err, team.ErrCorrupt, value)
		_, err = l.AddGoals(asLead(t), "more")
		require.ErrorIs(t, err, team.ErrCorrupt, value)
		holds(t, l, "like goals", value, v)
	}
	l := openLedger(t, nil, inProject, nil)
	ended, cancel := context.WithCancel(asLead(t))
	cancel()
	_, err := l.AddGoals(ended, "a")
	require.ErrorIs(t, err, context.Canceled)
	_, err = l.Goals(ended)
	require.ErrorIs(t, err, context.Canceled)
}

package team_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

// agentRules are the rules of the agents of OpenCode 1.18.33.
func agentRules(tb testing.TB) map[string]team.Rules {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "permissions", "agents.json"))
	require.NoError(tb, err)
	var agents map[string]team.Rules
	require.NoError(tb, json.Unmarshal(data, &agents))
	return agents
}

// eachLine decodes the lines of a file of captures. A directory of more of them can be named
// in TEAM_PERMISSION_CAPTURES.
func eachLine[T any](t *testing.T, name string, do func(n int, line T)) {
	t.Helper()
	for _, dir := range []string{filepath.Join("testdata", "permissions"), os.Getenv("TEAM_PERMISSION_CAPTURES")} {
		if dir == "" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) && dir == os.Getenv("TEAM_PERMISSION_CAPTURES") {
			continue // it need not have all of them
		}
		require.NoError(t, err)
		n := 0
		lines := bufio.NewScanner(bytes.NewReader(data))
		for lines.Scan() {
			var line T
			require.NoError(t, json.Unmarshal(lines.Bytes(), &line))
			n++
			do(n, line)
		}
		require.NoError(t, lines.Err())
		require.NotZero(t, n)
	}
}

// What a real OpenCode 1.18.33 did with shell commands, under the rules of the agent build and
// then the session's.
func TestEvaluateIsThatOfTheHost(t *testing.T) {
	build := agentRules(t)["build"]
	hidden := 0
	eachLine(t, "evaluate.jsonl", func(n int, line struct {
		Rules         team.Rules
		Command       string
		Result        team.Effect
		AskedPatterns []string `json:"asked_patterns"`
		AskedAlways   []string `json:"asked_always"`
	}) {
		if team.HiddenTool("bash", build, line.Rules) {
			// The model was not offered the tool: there was no call, so nothing was
			// asked or denied, which the capture has as "allow".
			hidden++
			require.Equal(t, team.Allow, line.Result, "line %d", n)
			return
		}
		asks, err := team.ParseShell(line.Command)
		require.NoError(t, err, "line %d", n)
		d := team.EvaluateAll("bash", asks.Patterns, build, line.Rules)
		require.Equal(t, line.Result, d.Effect, "line %d: %s", n, d.Explain())
		if line.Result == team.Ask {
			require.Equal(t, line.AskedPatterns, asks.Patterns, "line %d", n)
			require.Equal(t, line.AskedAlways, asks.Always, "line %d", n)
		}
	})
	require.NotZero(t, hidden, "no line with a hidden tool")
}

func TestDeriveIsThatOfTheHost(t *testing.T) {
	agents := agentRules(t)
	eachLine(t, "derive.jsonl", func(n int, line struct {
		Parent team.Rules
		Agent  string
		Child  team.Rules
	}) {
		require.Contains(t, agents, line.Agent)
		require.Equal(t, line.Child, team.Derive(team.PolicyV1_18, line.Parent, agents[line.Agent]), "line %d", n)
	})
}

func TestDecision(t *testing.T) {
	agent := team.Rules{{"*", "*", team.Allow}, {"bash", "*", team.Ask}}
	session := team.Rules{{"bash", "git *", team.Deny}, {"edit", "*", team.Deny}, {"bash", "git status", team.Allow}}
	t.Run("the last rule that matches decides, and the earlier ones are shadowed in their order", func(t *testing.T) {
		d := team.Evaluate("bash", "git status", agent, session)
		require.Equal(t, team.Allow, d.Effect)
		require.Equal(t, team.Placed{Rule: session[2], List: 1, Index: 2}, d.By)
		require.Equal(t, []team.Placed{{agent[0], 0, 0}, {agent[1], 0, 1}, {session[0], 1, 0}}, d.Shadowed)
	})
	t.Run("no rule that matches is an ask", func(t *testing.T) {
		d := team.Evaluate("bash", "ls")
		require.Equal(t, team.Ask, d.Effect)
		require.Equal(t, team.Placed{Rule: team.Rule{"bash", "*", team.Ask}, List: -1, Index: -1}, d.By)
		require.Empty(t, d.Shadowed)
	})
	t.Run("an effect that is none denies", func(t *testing.T) {
		require.Equal(t, team.Deny, team.Evaluate("x", "y", team.Rules{{"*", "*", "alow"}}).Effect)
		require.Equal(t, team.Deny, team.Evaluate("", "", team.Rules{{}}).Effect)
	})
	t.Run("of several resources any deny denies and any ask asks", func(t *testing.T) {
		for _, c := range []struct {
			resources []string
			want      team.Effect
			by        string
		}{
			{[]string{"git status", "ls", "git push"}, team.Deny, "git push"},
			{[]string{"git status", "ls", "git status"}, team.Ask, "ls"},
			{[]string{"git status"}, team.Allow, "git status"},
			{nil, team.Allow, ""},
		} {
			d := team.EvaluateAll("bash", c.resources, agent, session)
			require.Equal(t, c.want, d.Effect, c.resources)
			require.Equal(t, c.by, d.Resource)
		}
	})
	t.Run("an ask with nobody there to answer is a decision of its own", func(t *testing.T) {
		d := team.Evaluate("bash", "ls", agent)
		require.Equal(t, team.Ask, d.Effect)
		require.Equal(t, team.Unanswered, d.Unattended().Effect)
		require.ErrorIs(t, d.Unattended().Err(), team.ErrDenied)
		for _, e := range []team.Effect{team.Allow, team.Deny} {
			d := team.Evaluate("bash", "ls", team.Rules{{"*", "*", e}})
			require.Equal(t, d, d.Unattended(), "what is no ask stays as it is")
		}
	})
	t.Run("only an allow is no error", func(t *testing.T) {
		require.NoError(t, team.Evaluate("bash", "git status", session).Err())
		for _, e := range []team.Effect{team.Ask, team.Deny} {
			err := team.Evaluate("bash", "x", team.Rules{{"*", "*", e}}).Err()
			require.ErrorIs(t, err, team.ErrDenied)
			var pe *team.PermissionError
			require.True(t, errors.As(err, &pe))
			require.Equal(t, e, pe.Effect)
		}
	})
}

// https://github.com/anomalyco/opencode/issues/37935
func TestExplainNamesTheRuleAndWarnsOfTheShadowedOne(t *testing.T) {
	narrow := team.Rule{"external_directory", "/home/u/utilities/*", team.Allow}
	broad := team.Rule{"external_directory", "/home/u/*", team.Deny}
	d := team.Evaluate("external_directory", "/home/u/utilities/x", team.Rules{narrow, broad})
	require.Equal(t, team.Deny, d.Effect, "the last wins, be it broad")
	require.Contains(t, d.Explain(), `by rule 2 of list 1 (external_directory /home/u/* deny)`)
	require.Contains(t, d.Explain(), `shadows rule 1 of list 1 (external_directory /home/u/utilities/* allow)`)

	d = team.Evaluate("external_directory", "/home/u/utilities/x", team.Rules{broad, narrow})
	require.Equal(t, team.Allow, d.Effect)
	require.Contains(t, d.Explain(), "shadows rule 1 of list 1 (external_directory /home/u/* deny)")

	d = team.Evaluate("bash", "x", team.Rules{{"*", "*", team.Deny}, {"bash", "*", team.Deny}})
	require.NotContains(t, d.Explain(), "shadows", "a rule that says the same is no warning")

	hostile := strings.Repeat("x\n", 1000)
	rules := make(team.Rules, 100)
	for i := range rules {
		rules[i] = team.Rule{"*", "*", team.Deny}
	}
	text := team.Evaluate("bash", hostile, append(rules, team.Rule{"*", "*", team.Allow})).Explain()
	require.Less(t, strings.Count(text, "\n"), 12)
	require.Less(t, len(text), 2000)
}

func TestGuardsOnlyTighten(t *testing.T) {
	says := func(e team.Effect) team.Guard {
		return team.Guard{Name: "says " + string(e), Check: func(string, string) (team.Effect, error) { return e, nil }}
	}
	effects := []team.Effect{team.Allow, team.Ask, team.Unanswered, team.Deny}
	for i, a := range effects {
		for j, b := range effects {
			require.Equal(t, effects[max(i, j)], team.Tighten(a, b))
			d, err := team.Decision{Effect: a}.Guarded(says(b))
			require.NoError(t, err)
			require.Equal(t, effects[max(i, j)], d.Effect)
			require.Equal(t, j > i, d.Guard != "", "the guard is named if it made a difference")
		}
	}
	t.Run("in any order", func(t *testing.T) {
		a, _ := team.Decision{Effect: team.Allow}.Guarded(says(team.Ask), says(team.Deny), says(team.Allow))
		b, _ := team.Decision{Effect: team.Allow}.Guarded(says(team.Deny), says(team.Allow), says(team.Ask))
		require.Equal(t, team.Deny, a.Effect)
		require.Equal(t, a, b)
	})
	t.Run("an effect that is none denies", func(t *testing.T) {
		d, _ := team.Decision{Effect: team.Allow}.Guarded(says("?"))
		require.Equal(t, team.Deny, d.Effect)
	})
	t.Run("a guard without a check is a fault: closed for a red line, open for any other", func(t *testing.T) {
		for red, want := range map[bool]team.Effect{true: team.Deny, false: team.Allow} {
			d, err := team.Decision{Effect: team.Allow}.Guarded(team.Guard{Name: "g", RedLine: red})
			require.ErrorIs(t, err, team.ErrInvalid)
			require.ErrorContains(t, err, "guard g")
			require.Equal(t, want, d.Effect)
		}
	})
	t.Run("an error is closed for a red line and open for any other", func(t *testing.T) {
		boom := errors.New("boom")
		for red, want := range map[bool]team.Effect{true: team.Deny, false: team.Allow} {
			d, err := team.Decision{Effect: team.Allow}.Guarded(team.Guard{Name: "g", RedLine: red,
				Check: func(string, string) (team.Effect, error) { return team.Allow, boom }})
			require.ErrorIs(t, err, boom)
			require.Equal(t, want, d.Effect)
		}
	})
}

func TestCheckDepth(t *testing.T) {
	above := map[team.SessionID]team.SessionID{"child": "top", "grandchild": "child", "loop": "pool", "pool": "loop"}
	parent := func(id team.SessionID) (team.SessionID, error) { return above[id], nil }
	require.NoError(t, team.CheckDepth("top", parent, 0))
	require.ErrorIs(t, team.CheckDepth("child", parent, 0), team.ErrLimit, "by default a subagent has none of its own")
	require.NoError(t, team.CheckDepth("child", parent, 2))
	require.ErrorIs(t, team.CheckDepth("grandchild", parent, 2), team.ErrLimit)
	require.NoError(t, team.CheckDepth("grandchild", parent, team.NoLimit))
	require.ErrorIs(t, team.CheckDepth("loop", parent, team.NoLimit), team.ErrInvalid, "a session above itself ends")
	require.ErrorIs(t, team.CheckDepth("loop", parent, 0), team.ErrLimit)
	boom := errors.New("boom")
	require.ErrorIs(t, team.CheckDepth("top", func(team.SessionID) (team.SessionID, error) { return "", boom }, 0), boom)
}

func TestFilters(t *testing.T) {
	rules := team.Rules{{"*", "*", team.Allow}, {"skill", "*", team.Ask}, {"skill", "secret-*", team.Deny}, {"task", "general", team.Deny}}
	require.Equal(t, []string{"demo"}, team.FilterSkills([]string{"demo", "secret-x"}, rules), "denied skills are not shown, asked ones are")
	agents := []team.Agent{{"build", "primary"}, {"general", "subagent"}, {"explore", "subagent"}, {"mine", "all"}}
	require.Equal(t, []team.Agent{{"explore", "subagent"}, {"mine", "all"}}, team.FilterSubagents("task", agents, rules))
	require.Len(t, team.FilterSubagents("subagent", agents, rules), 3)
	require.Equal(t, "build", agents[0].Name, "the list that came in stays as it is")
	require.Equal(t, []team.Agent{{"explore", "subagent"}}, team.FilterSubagents("task", agents[:3], agentRules(t)["plan"]),
		"the host's agent plan may not call general")
}

func TestHiddenTool(t *testing.T) {
	deny := func(p, pattern string) team.Rule { return team.Rule{p, pattern, team.Deny} }
	for _, c := range []struct {
		says  string
		tool  string
		rules team.Rules
		want  bool
	}{
		{"a denial of everything hides", "bash", team.Rules{deny("bash", "*")}, true},
		{"for any capability too", "bash", team.Rules{deny("*", "*")}, true},
		{"another spelling of everything does not", "bash", team.Rules{deny("bash", "**")}, false},
		{"nor does one pattern", "bash", team.Rules{deny("bash", "git *")}, false},
		{"a later rule shows it, whatever its pattern", "bash", team.Rules{deny("bash", "*"), {"bash", "git *", team.Ask}}, false},
		{"also if that denies", "bash", team.Rules{deny("bash", "*"), deny("b*", "x")}, false},
		{"tools that write go by edit", "write", team.Rules{deny("edit", "*")}, true},
		{"and not by their name", "write", team.Rules{deny("write", "*")}, false},
		{"no rule hides nothing", "bash", nil, false},
	} {
		t.Run(c.says, func(t *testing.T) { require.Equal(t, c.want, team.HiddenTool(c.tool, c.rules)) })
	}
}

// randomRules returns up to max rules with few names, so that they meet often.
func randomRules(rnd *rand.Rand, max int) team.Rules {
	perms := []string{"*", "a", "b", "?", "a*", "a *"}
	parts := []string{"a", "b", "*", "*", "?", "/", " "}
	effects := []team.Effect{team.Allow, team.Ask, team.Deny}
	rules := make(team.Rules, rnd.IntN(max+1))
	for i := range rules {
		var p string
		for range rnd.IntN(5) {
			p += parts[rnd.IntN(len(parts))]
		}
		rules[i] = team.Rule{perms[rnd.IntN(len(perms))], p, effects[rnd.IntN(3)]}
	}
	return rules
}

func randomText(rnd *rand.Rand, max int) string {
	var b strings.Builder
	for range rnd.IntN(max) {
		b.WriteByte("aabb/ x"[rnd.IntN(7)])
	}
	return b.String()
}

func TestEvaluateAgainstAPlainLoop(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range count(t, 200_000) {
		a, b := randomRules(rnd, 3), randomRules(rnd, 3)
		perm, res := []string{"a", "b", "c", ""}[rnd.IntN(4)], randomText(rnd, 5)
		want := team.Ask
		for _, r := range append(append(team.Rules{}, a...), b...) {
			if slowMatch(false, r.Permission, perm) && slowMatch(false, r.Pattern, res) {
				want = r.Effect
			}
		}
		d := team.Evaluate(perm, res, a, b)
		require.Equal(t, want, d.Effect)
		// A rule twice, in the same place, and one that nothing reaches any more, change nothing.
		doubled := make(team.Rules, 0, 2*len(b))
		for _, r := range b {
			doubled = append(doubled, r, r)
		}
		require.Equal(t, want, team.Evaluate(perm, res, a, doubled).Effect)
		require.Equal(t, want, team.Evaluate(perm, res, team.Rules{{"*", "*", team.Deny}, {"*", "*", team.Ask}}, a, b).Effect)
	}
}

// count returns how many cases a test tries.
func count(t *testing.T, n int) int {
	if testing.Short() {
		n /= 50
	}
	return n
}

func BenchmarkEvaluate(b *testing.B) {
	rules := make(team.Rules, 0, 1000)
	for i := range 1000 {
		rules = append(rules, team.Rule{[]string{"bash", "edit", "read"}[i%3], []string{"git push *", "src/**/*.go", "*.env"}[i%3], team.Ask})
	}
	for b.Loop() {
		team.Evaluate("bash", "go test ./...", rules)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/rule")
}

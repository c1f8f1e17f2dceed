package team_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

// after returns what a session may do whose agent has rules and that got more from its parent.
func after(agent, derived team.Rules) team.Rules {
	return append(append(team.Rules{}, agent...), derived...)
}

// Child allows ⇒ parent does not deny; more exactly, the stricter one of both.
func TestCeilingChildNeverDoesWhatTheParentMayNot(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range count(t, 1_000_000) / 20 {
		parent, child := randomRules(rnd, 4), randomRules(rnd, 4)
		policy := team.PolicyCeiling
		policy.Matching.FoldCase = rnd.IntN(8) == 0
		both := after(child, team.Derive(policy, parent, child))
		for range 20 {
			perm, res := []string{"a", "b", "c", "ab", "a b"}[rnd.IntN(5)], randomText(rnd, 6)
			p := policy.Matching.Evaluate(perm, res, parent)
			c := policy.Matching.Evaluate(perm, res, child)
			got := policy.Matching.Evaluate(perm, res, both).Effect
			want := c.Effect
			if p.By.List >= 0 {
				want = team.Tighten(p.Effect, c.Effect)
			}
			if got != want {
				t.Fatalf("%q %q is %s, want %s\nparent %v\nchild %v\nderived %v", perm, res, got, want, parent, child, both[len(child):])
			}
		}
	}
}

func TestDerive(t *testing.T) {
	all := team.Rules{{"*", "*", team.Allow}}
	t.Run("ceiling: a deny of the parent's session binds the child", func(t *testing.T) {
		// https://github.com/anomalyco/opencode/issues/26514
		got := team.Derive(team.PolicyCeiling, team.Rules{{"edit", "*", team.Deny}}, all)
		require.Equal(t, team.Deny, team.Evaluate("edit", "x", all, got).Effect)
		require.Equal(t, team.Allow, team.Evaluate("bash", "x", all, got).Effect)
	})
	t.Run("ceiling: a deny that a later rule lifts does not bind", func(t *testing.T) {
		// https://github.com/anomalyco/opencode/issues/45078
		parent := team.Rules{{"bash", "*", team.Deny}, {"bash", "*", team.Allow}}
		require.Empty(t, team.Derive(team.PolicyCeiling, parent, all))
		require.Equal(t, team.Deny, team.Evaluate("bash", "x", all, team.Derive(team.PolicyV1_18, parent, all)).Effect,
			"the host's own policy has this fault")
	})
	t.Run("ceiling: a deny that is lifted in part binds in the rest", func(t *testing.T) {
		parent := team.Rules{{"bash", "*", team.Deny}, {"bash", "git *", team.Allow}}
		child := team.Rules{{"*", "*", team.Allow}, {"bash", "git push *", team.Ask}}
		got := team.Derive(team.PolicyCeiling, parent, child)
		for command, want := range map[string]team.Effect{"rm x": team.Deny, "git status": team.Allow, "git": team.Allow, "git push -f": team.Ask} {
			require.Equal(t, want, team.Evaluate("bash", command, child, got).Effect, command)
		}
	})
	t.Run("ceiling: what the parent allows does not widen the child", func(t *testing.T) {
		child := team.Rules{{"*", "*", team.Deny}, {"read", "*", team.Allow}}
		got := team.Derive(team.PolicyCeiling, team.Rules{{"*", "*", team.Deny}, {"*", "*.go", team.Allow}}, child)
		require.Equal(t, team.Deny, team.Evaluate("bash", "x.go", child, got).Effect)
		require.Equal(t, team.Allow, team.Evaluate("read", "x.go", child, got).Effect)
	})
	t.Run("ceiling: a grandchild is bound too, also through a session without an agent", func(t *testing.T) {
		// https://github.com/anomalyco/opencode/issues/30610
		middle := team.Derive(team.PolicyCeiling, team.Rules{{"edit", "*", team.Deny}}, nil)
		got := team.Derive(team.PolicyCeiling, middle, all)
		require.Equal(t, team.Deny, team.Evaluate("edit", "x", all, got).Effect)
	})
	t.Run("ceiling: case folds where the policy says so", func(t *testing.T) {
		policy := team.PolicyCeiling
		policy.Matching.FoldCase = true
		parent := team.Rules{{"bash", "*", team.Deny}, {"bash", "RM *", team.Allow}}
		child := team.Rules{{"*", "*", team.Allow}, {"bash", "rm -rf *", team.Deny}}
		got := team.Derive(policy, parent, child)
		require.Equal(t, team.Deny, policy.Matching.Evaluate("bash", "Rm -rf /", child, got).Effect)
		require.Equal(t, team.Allow, policy.Matching.Evaluate("bash", "rm x", child, got).Effect)
	})
	t.Run("1.18: primary tools are denied, and a mention keeps task", func(t *testing.T) {
		policy := team.PolicyV1_18
		policy.PrimaryTools = []string{"browser"}
		require.Equal(t, team.Rules{{"todowrite", "*", team.Deny}, {"browser", "*", team.Deny}},
			team.Derive(policy, team.Rules{{"bash", "*", team.Ask}}, team.Rules{{"task", "x", team.Ask}}))
	})
	t.Run("2.0: a snapshot of the parent session", func(t *testing.T) {
		parent := team.Rules{{"edit", "*", team.Ask}}
		got := team.Derive(team.PolicyV2_0, parent, all)
		require.Equal(t, parent, got)
		parent[0].Effect = team.Allow
		require.Equal(t, team.Ask, got[0].Effect, "later changes do not flow")
	})
	t.Run("a policy that nobody knows denies everything", func(t *testing.T) {
		require.Equal(t, team.Deny, team.Evaluate("bash", "ls", all, team.Derive(team.Policy{}, nil, all)).Effect)
	})
}

func TestCeilingOfHostilePatternsIsQuickAndStrict(t *testing.T) {
	var parent, child team.Rules
	for i := range 60 {
		stars := "*" + strings.Join(strings.Split("abcdefghijklmnopqrstuvwxyz"[i%13:], ""), "*") + "*"
		parent = append(parent, team.Rule{"*", stars, []team.Effect{team.Deny, team.Allow, team.Ask}[i%3]})
		child = append(child, team.Rule{"*", "*" + reverse(stars), []team.Effect{team.Allow, team.Deny}[i%2]})
	}
	child = append(team.Rules{{"*", "*", team.Allow}}, child...)
	parent = append(parent, team.Rule{"*", strings.Repeat("?*a", 20_000), team.Deny})
	start := time.Now()
	got := team.Derive(team.PolicyCeiling, parent, child)
	require.Less(t, time.Since(start), hang)
	require.Less(t, len(got), 10_000)
	both := after(child, got)
	rnd := rand.New(rand.NewPCG(7, 8))
	for range 2_000 {
		var b strings.Builder
		for range rnd.IntN(80) {
			b.WriteByte(byte('a' + rnd.IntN(26)))
		}
		if p := team.Evaluate("x", b.String(), parent); p.Effect == team.Deny {
			require.Equal(t, team.Deny, team.Evaluate("x", b.String(), both).Effect)
		}
	}
}

func TestRulesInGreatNumbersAreQuick(t *testing.T) {
	n := 50_000
	parent, child := make(team.Rules, n), make(team.Rules, n)
	for i := range n {
		parent[i] = team.Rule{"bash", fmt.Sprintf("*%d* x", i), []team.Effect{team.Deny, team.Allow, team.Ask}[i%3]}
		child[i] = team.Rule{"b*", fmt.Sprintf("?*%d*", i), []team.Effect{team.Ask, team.Allow, team.Deny}[i%3]}
	}
	start := time.Now()
	got := team.Derive(team.PolicyCeiling, parent, child)
	team.NotWider(parent, child)
	require.Less(t, time.Since(start), hang)
	both := after(child, got)
	for i := 0; i < n; i += 997 {
		res := fmt.Sprintf("a%d x", i)
		if team.Evaluate("bash", res, parent).Effect == team.Deny {
			require.Equal(t, team.Deny, team.Evaluate("bash", res, both).Effect)
		}
	}
	t.Run("a long text under a star is no trouble", func(t *testing.T) {
		long := strings.Repeat("a", 100_000)
		got := team.Derive(team.PolicyCeiling, team.Rules{{"*", "*", team.Deny}, {"bash", "*", team.Allow}}, team.Rules{{"*", "*", team.Allow}, {"bash", long, team.Ask}})
		require.Equal(t, team.Rules{{"*", "*", team.Deny}, {"bash", "*", team.Allow}, {"bash", long, team.Ask}}, got)
	})
}

func reverse(s string) string {
	b := []byte(s)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return string(b)
}

// bruteWider looks for a witness among all short texts.
func bruteWider(parent, child team.Rules, perms, texts []string) (string, string, bool) {
	for _, perm := range perms {
		for _, res := range texts {
			if team.Evaluate(perm, res, child).Effect == team.Allow && team.Evaluate(perm, res, parent).Effect == team.Deny {
				return perm, res, true
			}
		}
	}
	return "", "", false
}

// allTexts returns every text of up to max of the letters.
func allTexts(letters string, max int) []string {
	texts := []string{""}
	for from, n := 0, 0; n < max; n++ {
		to := len(texts)
		for _, s := range texts[from:to] {
			for _, c := range letters {
				texts = append(texts, s+string(c))
			}
		}
		from = to
	}
	return texts
}

func TestNotWiderAgainstBruteForce(t *testing.T) {
	// Patterns have at most four parts, so a shortest witness of two lists of two rules is short.
	texts, perms := allTexts("ab/ x", 3), allTexts("abx ", 2)
	rnd := rand.New(rand.NewPCG(9, 10))
	proofs := map[team.Proof]int{}
	for range count(t, 1_000) {
		parent, child := randomRules(rnd, 3), randomRules(rnd, 3)
		w, proof := team.NotWider(parent, child)
		proofs[proof]++
		switch proof {
		case team.Refuted:
			require.Equal(t, team.Allow, team.Evaluate(w.Permission, w.Resource, child).Effect, "%v %v", parent, child)
			require.Equal(t, team.Deny, team.Evaluate(w.Permission, w.Resource, parent).Effect)
			require.Equal(t, team.Deny, w.Parent.Effect)
			require.Equal(t, team.Allow, w.Child.Effect)
		case team.Proven:
			if perm, res, found := bruteWider(parent, child, perms, texts); found {
				t.Fatalf("proven, but %q %q is allowed to child %v and denied to parent %v", perm, res, child, parent)
			}
		}
	}
	require.Zero(t, proofs[team.Unproven], "small patterns are always told")
	require.NotZero(t, proofs[team.Proven])
	require.NotZero(t, proofs[team.Refuted])
}

// What is random here is checked by trying: a million texts against what NotWider says.
func TestNotWiderIsRightAboutRandomRules(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 12))
	for range count(t, 1_000_000) / 25 {
		parent, child := randomRules(rnd, 4), randomRules(rnd, 4)
		w, proof := team.NotWider(parent, child)
		if proof == team.Refuted {
			require.Equal(t, team.Allow, team.Evaluate(w.Permission, w.Resource, child).Effect)
			require.Equal(t, team.Deny, team.Evaluate(w.Permission, w.Resource, parent).Effect)
			continue
		}
		require.Equal(t, team.Proven, proof)
		for range 25 {
			perm, res := []string{"a", "b", "c", "ab", "a b"}[rnd.IntN(5)], randomText(rnd, 7)
			if team.Evaluate(perm, res, child).Effect == team.Allow && team.Evaluate(perm, res, parent).Effect == team.Deny {
				t.Fatalf("proven, but %q %q is allowed to child %v and denied to parent %v", perm, res, child, parent)
			}
		}
	}
}

func TestNotWider(t *testing.T) {
	for _, c := range []struct {
		says          string
		parent, child team.Rules
		want          team.Proof
		resource      string
	}{
		{"nothing is denied", nil, team.Rules{{"*", "*", team.Allow}}, team.Proven, ""},
		{"nothing is allowed", team.Rules{{"*", "*", team.Deny}}, team.Rules{{"*", "*", team.Ask}}, team.Proven, ""},
		{"a deny is not followed", team.Rules{{"bash", "rm *", team.Deny}}, team.Rules{{"*", "*", team.Allow}}, team.Refuted, "rm"},
		{"a deny is followed", team.Rules{{"bash", "rm *", team.Deny}}, team.Rules{{"*", "*", team.Allow}, {"bash", "rm*", team.Deny}}, team.Proven, ""},
		{"a deny is followed in part", team.Rules{{"bash", "rm *", team.Deny}}, team.Rules{{"*", "*", team.Allow}, {"bash", "rm -?f *", team.Deny}}, team.Refuted, "rm"},
		{"two rules follow one together", team.Rules{{"e", "a*", team.Deny}}, team.Rules{{"e", "*", team.Allow}, {"e", "a", team.Ask}, {"e", "a?*", team.Ask}}, team.Proven, ""},
		{"a deny that is lifted", team.Rules{{"bash", "*", team.Deny}, {"bash", "*", team.Allow}}, team.Rules{{"*", "*", team.Allow}}, team.Proven, ""},
		{"an allow that is superseded", team.Rules{{"*", "*", team.Deny}}, team.Rules{{"*", "*", team.Allow}, {"*", "*", team.Ask}}, team.Proven, ""},
		{"an allow in between", team.Rules{{"*", "*", team.Deny}}, team.Rules{{"*", "*", team.Deny}, {"x*", "a?c", team.Allow}}, team.Refuted, "aac"},
		{"a character of two units", team.Rules{{"x", "😀*", team.Deny}}, team.Rules{{"x", "*😀", team.Allow}}, team.Refuted, "😀"},
		{"half a character is no witness", team.Rules{{"x", "?", team.Deny}, {"x", "*", team.Allow}, {"x", "??", team.Deny}},
			team.Rules{{"x", "😀", team.Allow}}, team.Refuted, "😀"},
	} {
		t.Run(c.says, func(t *testing.T) {
			w, proof := team.NotWider(c.parent, c.child)
			require.Equal(t, c.want, proof)
			require.Equal(t, c.resource, w.Resource)
		})
	}
	t.Run("case folds where asked", func(t *testing.T) {
		parent, child := team.Rules{{"bash", "rm *", team.Deny}}, team.Rules{{"bash", "RM *", team.Allow}}
		_, proof := team.NotWider(parent, child)
		require.Equal(t, team.Proven, proof)
		w, proof := team.Matching{FoldCase: true}.NotWider(parent, child)
		require.Equal(t, team.Refuted, proof)
		require.Equal(t, team.Deny, w.Parent.Effect)
	})
	t.Run("ceiling is proven by it", func(t *testing.T) {
		for name, agent := range agentRules(t) {
			for _, parent := range []team.Rules{{{"edit", "*", team.Deny}}, agentRules(t)["plan"], agentRules(t)["explore"]} {
				w, proof := team.NotWider(parent, after(agent, team.Derive(team.PolicyCeiling, parent, agent)))
				require.Equal(t, team.Proven, proof, "%s: %v", name, w)
			}
		}
	})
}

func TestNotWiderEndsOnHostilePatterns(t *testing.T) {
	letters := strings.Split("abcdefghijklmnopqrstuvwxyz", "")
	stars := func(i, n int) string {
		var b strings.Builder
		for k := range n {
			b.WriteString("*" + letters[(i*7+k*(i%5+1))%26])
		}
		return b.String() + "*"
	}
	// The work is bounded by counted steps and not by a clock, so on each machine the answer is the same.
	want := map[string]team.Proof{
		"interleaved stars": team.Refuted, "question marks behind a star": team.Refuted, "long": team.Proven,
		"many long ones": team.Unproven, "many permissions": team.Unproven, "many rules": team.Refuted,
	}
	proofs := map[team.Proof]int{}
	for name, rules := range map[string][2]team.Rules{
		"interleaved stars": func() (r [2]team.Rules) {
			for i := range 40 {
				r[0] = append(r[0], team.Rule{"*", stars(i, 20), []team.Effect{team.Deny, team.Ask}[i%2]})
				r[1] = append(r[1], team.Rule{"*", stars(i+40, 20), []team.Effect{team.Allow, team.Ask}[i%2]})
			}
			return r
		}(),
		"question marks behind a star": {
			{{"*", "*a" + strings.Repeat("?", 40), team.Deny}, {"*", "*b" + strings.Repeat("?", 39) + "*", team.Ask}},
			{{"*", "*c" + strings.Repeat("?", 41), team.Allow}, {"*", "*a*" + strings.Repeat("?", 30) + "b", team.Ask}},
		},
		"long": {
			{{"*", strings.Repeat("*a", 100_000), team.Deny}},
			{{"*", strings.Repeat("*b", 100_000), team.Allow}},
		},
		"many long ones": func() (r [2]team.Rules) {
			for i := range 100 {
				r[0] = append(r[0], team.Rule{"*", strings.Repeat(stars(i, 20), 800), []team.Effect{team.Deny, team.Ask}[i%2]})
				r[1] = append(r[1], team.Rule{"*", strings.Repeat(stars(i+3, 20), 800), []team.Effect{team.Allow, team.Ask}[i%2]})
			}
			return r
		}(),
		"many permissions": func() (r [2]team.Rules) {
			for i := range 300 {
				r[0] = append(r[0], team.Rule{stars(i, 6), "*x*", []team.Effect{team.Deny, team.Ask}[i%2]})
				r[1] = append(r[1], team.Rule{stars(i+1, 6), "*y*", []team.Effect{team.Allow, team.Ask}[i%2]})
			}
			return r
		}(),
		"many rules": func() (r [2]team.Rules) {
			for i := range 3000 {
				r[0] = append(r[0], team.Rule{"bash", fmt.Sprintf("cmd%d *", i), team.Deny})
				r[1] = append(r[1], team.Rule{"bash", fmt.Sprintf("*%d*", i), team.Allow})
			}
			return r
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			w, proof := team.NotWider(rules[0], rules[1])
			require.Less(t, time.Since(start), hang)
			proofs[proof]++
			require.Equal(t, want[name], proof)
			if proof == team.Refuted {
				require.Equal(t, team.Allow, team.Evaluate(w.Permission, w.Resource, rules[1]).Effect)
				require.Equal(t, team.Deny, team.Evaluate(w.Permission, w.Resource, rules[0]).Effect)
			}
		})
	}
	require.NotZero(t, proofs[team.Unproven], "where it gives up it says so")
}

func BenchmarkNotWider(b *testing.B) {
	agents := agentRules(b)
	for _, name := range []string{"general", "explore"} {
		b.Run("proven="+name, func(b *testing.B) {
			parent := agents["plan"]
			child := after(agents[name], team.Derive(team.PolicyCeiling, parent, agents[name]))
			for b.Loop() {
				if _, proof := team.NotWider(parent, child); proof != team.Proven {
					b.Fatal(proof)
				}
			}
		})
	}
	b.Run("refuted", func(b *testing.B) {
		for b.Loop() {
			if _, proof := team.NotWider(agents["plan"], agents["build"]); proof != team.Refuted {
				b.Fatal(proof)
			}
		}
	})
}

func BenchmarkDerive(b *testing.B) {
	agents := agentRules(b)
	for name, policy := range map[string]team.Policy{"1.18": team.PolicyV1_18, "ceiling": team.PolicyCeiling} {
		b.Run("policy="+name, func(b *testing.B) {
			for b.Loop() {
				team.Derive(policy, agents["plan"], agents["general"])
			}
		})
	}
}

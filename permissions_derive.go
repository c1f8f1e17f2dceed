package team

import "slices"

// A Policy is how a child session gets rules from its parent's. Start from one of the
// three below and set the other fields.
type Policy struct {
	Name string // one of the three names; any other denies everything

	// PrimaryTools are the tools that only a primary agent may use: the setting
	// experimental.primary_tools of OpenCode 1.x. Only PolicyV1_18 reads them.
	PrimaryTools []string

	// Matching is that of the child's host. Only PolicyCeiling reads it.
	Matching Matching
}

// The policies.
var (
	// PolicyV1_18 is that of OpenCode 1.18: the rules of the parent session that
	// deny or are about external_directory, then a denial of todowrite and of task,
	// each unless a rule of the child's agent names it, then one of each primary
	// tool. The host copies a denial also where a later rule of the parent allows
	// again, so the child may get less than the parent
	// (https://github.com/anomalyco/opencode/issues/45078). Rules of the parent's
	// agent do not come into it.
	PolicyV1_18 = Policy{Name: "1.18"}

	// PolicyV2_0 is that of OpenCode 2.0.26 for a child that is made without rules of
	// its own: a copy of the parent session's, as they are in that moment. A
	// child that is made with rules gets those and nothing else.
	PolicyV2_0 = Policy{Name: "2.0"}

	// PolicyCeiling is ours: the child can do nothing that the parent may not. What
	// the parent's rules deny is denied, what they ask for is asked for, and where
	// a later rule of the parent allows again, the child's own rules decide again.
	// Where no rule of the parent matches, they decide alone.
	PolicyCeiling = Policy{Name: "ceiling"}
)

// Derive returns the rules of a child session. Parent has those of the parent session (put
// the ones of its agent before them to bind the child to these too), child those of the
// child's agent. The host evaluates the child's agent first and the result behind it.
//
// PolicyCeiling keeps this law: if the rules of child followed by the result allow
// something, parent does not deny it. More exactly, the effect is the stricter one
// of what child says and what the rule of parent says that decides, if there is one. Where
// wildcards overlap in so many ways that this cannot be written down in a few
// thousand rules, the result denies more, never less. It holds for every
// descendant, as long as each session's rules are derived from its parent's.
//
// The policies of the host keep no such law: on 2.0 a deny of the parent's agent does not
// bind the child, so write what Derive returns for PolicyCeiling into the child's
// permissions.
func Derive(policy Policy, parent, child Rules) Rules {
	switch policy.Name {
	case PolicyV1_18.Name:
		return derive118(policy.PrimaryTools, parent, child)
	case PolicyV2_0.Name:
		return slices.Clone(parent)
	case PolicyCeiling.Name:
		return deriveCeiling(policy.Matching, parent, child)
	}
	return Rules{{"*", "*", Deny}}
}

func derive118(primary []string, parent, child Rules) Rules {
	var out Rules
	for _, r := range parent {
		if r.Effect == Deny || r.Permission == "external_directory" {
			out = append(out, r)
		}
	}
	for _, tool := range []string{"todowrite", "task"} {
		// The name itself, also in a rule that denies it; "*" is no mention.
		if !slices.ContainsFunc(child, func(r Rule) bool { return r.Permission == tool }) {
			out = append(out, Rule{tool, "*", Deny})
		}
	}
	for _, tool := range primary {
		out = append(out, Rule{tool, "*", Deny})
	}
	return out
}

// A ruleArea is what a rule matches: a permission in one of the first, with a resource in one of
// the second.
type ruleArea struct{ perm, res []ruleGlob }

func (m Matching) area(r Rule) ruleArea { return ruleArea{m.globs(r.Permission), m.globs(r.Pattern)} }

// covers reports whether a has all of b, or says no where that is hard to tell.
func (a ruleArea) covers(b ruleArea, left *globBudget) bool {
	all := func(a, b []ruleGlob) bool {
		for _, h := range b {
			if !slices.ContainsFunc(a, func(g ruleGlob) bool { return g.covers(h, left) }) {
				return false
			}
		}
		return true
	}
	return all(a.perm, b.perm) && all(a.res, b.res)
}

// meets reports whether a and b have something in common, or says yes where that is
// hard to tell.
func (a ruleArea) meets(b ruleArea, left *globBudget) bool {
	some := func(a, b []ruleGlob) bool {
		return slices.ContainsFunc(a, func(g ruleGlob) bool {
			return slices.ContainsFunc(b, func(h ruleGlob) bool { return g.meets(h, left) })
		})
	}
	return some(a.perm, b.perm) && some(a.res, b.res)
}

// intersections returns what the globs of a and b have in common as patterns, and false if that
// is too much.
func intersections(a, b []ruleGlob, left *globBudget) ([]string, bool) {
	var out []string
	for _, g := range a {
		for _, h := range b {
			both, ok := []ruleGlob{h}, true
			switch {
			case g.covers(h, left):
			case h.covers(g, left):
				both = []ruleGlob{g}
			default:
				both, ok = g.intersect(h, left)
			}
			if !ok {
				return nil, false
			}
			for _, x := range both {
				out = append(out, x.pattern())
			}
		}
	}
	return out, true
}

const (
	deriveSteps = 20_000_000 // some 50 ms
	maxDerived  = 4096       // rules, beyond which Derive denies instead of repeating
)

// A ceiling is the work of PolicyCeiling. The result goes through the parent's rules in
// order. A deny is copied. Where a later rule allows or asks again, the child's own
// rules are repeated for what that rule matches, no laxer than it.
type ceiling struct {
	Matching
	left  globBudget
	child []ruleArea
	rules Rules // of the child
	out   Rules
	areas []ruleArea // of out
}

func deriveCeiling(m Matching, parent, child Rules) Rules {
	c := ceiling{Matching: m, left: deriveSteps, rules: child}
	for _, r := range child {
		c.child = append(c.child, m.area(r))
	}
	areas := make([]ruleArea, len(parent))
	for i, r := range parent {
		areas[i] = m.area(r)
	}
	for i, r := range parent {
		if covered(areas, i, &c.left) {
			continue // decides nothing
		}
		switch {
		case r.Effect != Allow && r.Effect != Ask:
			c.emit(Rule{r.Permission, r.Pattern, Deny}, areas[i])
		case r.Effect == Ask && c.tight(areas[i]), r.Effect == Allow && !c.touched(areas[i]):
			// The child's own rules are strict enough already.
		default:
			c.repeat(r, areas[i])
		}
	}
	return c.out
}

// touched reports whether anything in a was decided already.
func (c *ceiling) touched(a ruleArea) bool {
	return slices.ContainsFunc(c.areas, func(b ruleArea) bool { return a.meets(b, &c.left) })
}

// tight reports whether the child allows nothing in a, and nothing in it was decided.
func (c *ceiling) tight(a ruleArea) bool {
	for i, r := range c.rules {
		if r.Effect == Allow && a.meets(c.child[i], &c.left) {
			return false
		}
	}
	return !c.touched(a)
}

func (c *ceiling) emit(r Rule, a ruleArea) {
	c.out, c.areas = append(c.out, r), append(c.areas, a)
}

// repeat writes down what the child's rules say in the area of r, no laxer than r.
func (c *ceiling) repeat(r Rule, a ruleArea) {
	deny := func(a ruleArea, r Rule) { c.emit(Rule{r.Permission, r.Pattern, Deny}, a) }
	if len(c.out)+len(c.rules) > maxDerived || c.left == 0 {
		if r.Effect == Ask {
			deny(a, r)
		}
		return // what was denied so far stays so
	}
	// The last rule that has all of the area is where to start; there is none before all
	// rules but the host's own, which asks.
	start, effect := -1, Ask
	for i := len(c.rules) - 1; i >= 0; i-- {
		if c.child[i].covers(a, &c.left) {
			start, effect = i, c.rules[i].Effect
			break
		}
	}
	c.emit(Rule{r.Permission, r.Pattern, Tighten(effect, r.Effect)}, a)
	for i, own := range c.rules[start+1:] {
		b := c.child[start+1+i]
		if !a.meets(b, &c.left) {
			continue
		}
		effect := Tighten(own.Effect, r.Effect)
		perms, ok1 := intersections(a.perm, b.perm, &c.left)
		ress, ok2 := intersections(a.res, b.res, &c.left)
		if !ok1 || !ok2 || len(c.out)+len(perms)*len(ress) > maxDerived {
			// Too much to write down. An allow is left out: all else is stricter.
			if effect != Allow {
				deny(b, own)
			}
			continue
		}
		for _, perm := range perms {
			for _, res := range ress {
				rule := Rule{perm, res, effect}
				c.emit(rule, c.area(rule))
			}
		}
	}
}

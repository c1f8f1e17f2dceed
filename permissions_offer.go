package team

import (
	"errors"
	"fmt"
	"slices"
)

// HiddenTool reports whether OpenCode 1.x hides a tool from the model: the last rule about
// its capability, whatever its pattern, denies "*". A tool that is hidden is never
// called, so nothing is asked or denied either; a rule behind it that allows one pattern
// shows the tool again. Tools that write files go by the capability "edit".
//
// OpenCode 2.x hides a tool by probes of its own, which are not known: evaluate the
// resources that matter instead.
func HiddenTool(tool string, rules ...Rules) bool {
	switch tool {
	case "write", "patch", "apply_patch", "multiedit":
		tool = "edit"
	}
	for _, rs := range slices.Backward(rules) {
		for _, r := range slices.Backward(rs) {
			if (Matching{}).Match(r.Permission, tool) {
				return r.Pattern == "*" && r.Effect == Deny
			}
		}
	}
	return false
}

// FilterSkills returns the skills that an agent with rules is shown: those that are not
// denied. One that has to be asked for is shown.
func FilterSkills(skills []string, rules ...Rules) []string {
	return notDenied(skills, "skill", func(s string) string { return s }, rules)
}

// An Agent is what a host knows of an agent that could be called.
type Agent struct {
	Name string
	Mode string // the host's word: "primary", "subagent" or "all"
}

// FilterSubagents returns the agents that an agent with rules may call: those that are no
// primary agents and not denied. Capability is "task" on OpenCode 1.x and "subagent" on
// 2.x.
func FilterSubagents(capability string, agents []Agent, rules ...Rules) []Agent {
	called := slices.DeleteFunc(slices.Clone(agents), func(a Agent) bool { return a.Mode == "primary" })
	return notDenied(called, capability, func(a Agent) string { return a.Name }, rules)
}

func notDenied[T any](all []T, capability string, name func(T) string, rules []Rules) []T {
	var out []T
	for _, x := range all {
		if Evaluate(capability, name(x), rules...).Effect != Deny {
			out = append(out, x)
		}
	}
	return out
}

// DefaultSubagentDepth is how deep OpenCode 1.18 lets subagents nest, if its config says
// nothing: a subagent calls no other.
const DefaultSubagentDepth = 1

// CheckDepth returns an error if session may not have a child: if it has as many sessions
// above it as limit says, or more. Parent returns the session above one, or "" at the top;
// its error is passed on. A limit of zero means DefaultSubagentDepth; NoLimit none, but a
// session that is above itself is ErrInvalid in any case. Too deep is a *LimitError.
//
// OpenCode 1.18: subagent_depth.
func CheckDepth(session SessionID, parent func(SessionID) (SessionID, error), limit int) error {
	setDefault(&limit, DefaultSubagentDepth)
	seen := map[SessionID]bool{session: true}
	for depth, at := 0, session; ; depth++ {
		if over(depth+1, limit) {
			return &LimitError{What: "depth of subagents", Got: int64(depth + 1), Max: int64(limit),
				Advice: "do the work in this session, or hand it back to the one above"}
		}
		above, err := parent(at)
		if err != nil {
			return fmt.Errorf("session above %s: %w", quoteName(string(at)), err)
		}
		if above == "" {
			return nil
		}
		if seen[above] {
			return &InvalidError{What: "session " + quoteName(string(above)), Why: "is above itself", Offset: -1}
		}
		seen[above], at = true, above
	}
}

// A Guard is a check beside the rules, such as one of addresses or of secret files.
type Guard struct {
	Name string

	// RedLine says what becomes of an error: a guard that is a red line denies, any
	// other leaves the decision as it is.
	RedLine bool

	// Check returns what the guard says of a resource: Allow where it has no objection.
	Check func(permission, resource string) (Effect, error)
}

func (g Guard) check(d Decision) (Effect, error) {
	if g.Check == nil {
		return Deny, &InvalidError{What: "guard", Why: "has no Check", Offset: -1}
	}
	return g.Check(d.Permission, d.Resource)
}

// Guarded returns the decision with the word of guards. They can only make it stricter:
// where several speak, in whatever order, the strictest counts. The errors of guards
// come back joined, each with its guard's name; the decision is good beside them.
func (d Decision) Guarded(guards ...Guard) (Decision, error) {
	var errs []error
	for _, g := range guards {
		effect, err := g.check(d)
		if err != nil {
			errs = append(errs, fmt.Errorf("guard %s: %w", quoteName(g.Name), err))
			effect = Allow
			if g.RedLine {
				effect = Deny
			}
		}
		if effect = Tighten(d.Effect, effect); effect != d.Effect {
			d.Effect, d.Guard = effect, g.Name
		}
	}
	return d, errors.Join(errs...)
}

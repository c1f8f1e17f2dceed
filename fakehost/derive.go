package fakehost

import (
	"slices"

	"github.com/teamchan/team"
)

// deriveRules returns the rules of a child session: in generation 1 the parent session's
// denials and its rules about external_directory, then a denial of todowrite and of task
// unless the child's agent mentions them, then of each primary tool; in generation 2 the
// parent session's, as they are now.
//
// OpenCode 1.18.33 and 2.0.26.
func (h *Host) deriveRules(parent *Session, agent Agent) []Rule {
	if !h.profile.v1() {
		return slices.Clone(parent.Permissions)
	}
	var out []Rule
	for _, r := range parent.Permissions {
		if r.Effect == team.Deny || r.Action == "external_directory" {
			out = append(out, r)
		}
	}
	for _, action := range []string{"todowrite", h.profile.Subagent} {
		if !slices.ContainsFunc(agent.Permissions, func(r Rule) bool { return r.Action == action }) {
			out = append(out, Rule{action, "*", team.Deny})
		}
	}
	for _, action := range h.opts.PrimaryTools {
		out = append(out, Rule{action, "*", team.Deny})
	}
	return out
}

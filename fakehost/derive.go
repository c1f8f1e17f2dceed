package fakehost

import "github.com/teamchan/team"

// deriveRules returns the rules of a child session, as the host's generation derives them.
func (h *Host) deriveRules(parent *Session, agent Agent) []Rule {
	policy := team.PolicyV2_0
	if h.profile.v1() {
		policy = team.PolicyV1_18
		policy.PrimaryTools = h.opts.PrimaryTools
	}
	var out []Rule
	for _, r := range team.Derive(policy, teamRules(parent.Permissions), teamRules(agent.Permissions)) {
		out = append(out, Rule{r.Permission, r.Pattern, r.Effect})
	}
	return out
}

func teamRules(rules []Rule) team.Rules {
	var out team.Rules
	for _, r := range rules {
		out = append(out, team.Rule{Permission: r.Action, Pattern: r.Resource, Effect: r.Effect})
	}
	return out
}

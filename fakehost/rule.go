package fakehost

import (
	"cmp"
	"encoding/json"
	"runtime"

	"github.com/teamchan/team"
)

// A Rule is one permission rule, in the words of generation 2. Generation 1 calls the
// action permission, the resource pattern, and the effect action. Both action and resource are
// wildcards; of several rules the last that matches wins.
type Rule struct {
	Action   string // "read", "edit", "bash", "shell", "task", "subagent", "external_directory", …
	Resource string
	Effect   team.Effect
}

type ruleV1 struct {
	Action   string      `json:"permission"`
	Resource string      `json:"pattern"`
	Effect   team.Effect `json:"action"`
}

type ruleV2 struct {
	Action   string      `json:"action"`
	Resource string      `json:"resource"`
	Effect   team.Effect `json:"effect"`
}

func rulesV1(rules []Rule) []ruleV1 {
	var out []ruleV1
	for _, r := range rules {
		out = append(out, ruleV1(r))
	}
	return out
}

func rulesV2(rules []Rule) []ruleV2 {
	var out []ruleV2
	for _, r := range rules {
		out = append(out, ruleV2(r))
	}
	return out
}

// ruleJSON returns rules in the shape of the host's generation, nil for none.
func (h *Host) ruleJSON(rules []Rule) json.RawMessage {
	switch {
	case rules == nil:
		return nil
	case len(rules) == 0:
		return json.RawMessage("[]")
	case h.profile.v1():
		return mustJSON(rulesV1(rules))
	default:
		return mustJSON(rulesV2(rules))
	}
}

// parseRules reads rules in the shape of the host's generation.
func (h *Host) parseRules(data json.RawMessage) ([]Rule, error) {
	var out []Rule
	if h.profile.v1() {
		var rules []ruleV1
		if err := json.Unmarshal(data, &rules); err != nil {
			return nil, err
		}
		for _, r := range rules {
			out = append(out, Rule(r))
		}
		return out, nil
	}
	var rules []ruleV2
	if err := json.Unmarshal(data, &rules); err != nil {
		return nil, err
	}
	for _, r := range rules {
		out = append(out, Rule(r))
	}
	return out, nil
}

// evaluate returns the effect of the last rule that matches, or ask.
func evaluate(rules []Rule, action, resource string) team.Effect {
	for i := len(rules) - 1; i >= 0; i-- {
		if r := rules[i]; wildcard(r.Action, action) && wildcard(r.Resource, resource) {
			return r.Effect
		}
	}
	return team.Ask
}

// strictest evaluates each resource: deny if one is denied, else ask if one is asked for.
func strictest(rules []Rule, action string, resources []string) team.Effect {
	out := team.Allow
	for _, r := range resources {
		switch evaluate(rules, action, r) {
		case team.Deny:
			return team.Deny
		case team.Ask:
			out = team.Ask
		}
	}
	return out
}

// wildcard reports whether pattern matches the whole of s, as the host does it.
func wildcard(pattern, s string) bool {
	return team.Matching{FoldCase: runtime.GOOS == "windows"}.Match(pattern, s)
}

// checkRules refuses a rule that says nothing.
func checkRules(rules []Rule) error {
	for _, r := range rules {
		switch r.Effect {
		case team.Allow, team.Ask, team.Deny:
		default:
			return invalid("permission rule", "has effect "+string(cmp.Or(r.Effect, "none")), "use allow, ask or deny")
		}
		if r.Action == "" || r.Resource == "" {
			return invalid("permission rule", "has no action or no resource", `use "*" for all`)
		}
	}
	return nil
}

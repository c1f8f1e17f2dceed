package fakehost

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/teamchan/team"
)

// An Agent is a persona of the host. In place of a model it has a function.
type Agent struct {
	Name        string
	Description string // empty keeps that of the host's own agent of this name
	Mode        string // "primary", "subagent" or "all"; empty is "all"
	Hidden      bool
	Model       *Model
	Permissions []Rule // replace the host's defaults if not nil
	Steps       int    // how many steps with tool calls a turn may have; zero is no limit

	// Script is called with each batch of work that is promoted to a session of this
	// agent, and returns its answer. Nil answers "ok". See Turn.
	Script Script

	v1, native bool // set by the host
}

// MarshalJSON gives the host's own object, without what only a model needs: prompt and options. An agent that
// did not come from the host has the shape of generation 2.
func (a Agent) MarshalJSON() ([]byte, error) {
	out := map[string]any{"mode": a.Mode}
	setIf(out, "description", a.Description)
	if a.v1 {
		out["name"], out["native"], out["options"], out["permission"] = a.Name, a.native, map[string]any{}, []ruleV1{}
		if len(a.Permissions) > 0 {
			out["permission"] = rulesV1(a.Permissions)
		}
		if a.Hidden {
			out["hidden"] = true
		}
		if a.native && a.Name == "title" {
			out["temperature"] = 0.5 // as captured
		}
		if a.Model != nil {
			out["model"] = toModelV1(*a.Model)
		}
	} else {
		out["id"], out["hidden"], out["permissions"] = a.Name, a.Hidden, []ruleV2{}
		out["request"] = map[string]any{"settings": map[string]any{}, "headers": map[string]any{}, "body": map[string]any{}}
		if len(a.Permissions) > 0 {
			out["permissions"] = rulesV2(a.Permissions)
		}
		if a.Model != nil {
			out["model"] = a.Model
		}
	}
	if a.Steps > 0 {
		out["steps"] = a.Steps
	}
	return json.Marshal(out)
}

// A Script plays the model for one turn. What it returns is the text that ends the turn;
// an error ends it as failed, an *AgentError with its type. When ctx ends, by an
// interrupt or the end of the host, it must return. It must not call Wait, Remove, Close or Kill for
// its own session.
type Script func(ctx context.Context, t *Turn) (string, error)

// An AgentError is a failure of the model, with the host's fields.
type AgentError struct {
	Type      string // generation 1: name, "APIError", …; empty is "UnknownError" or "unknown"
	Message   string
	Status    int
	Retryable bool

	// What generation 1 shows of the provider's answer.
	Body              string
	Headers, Metadata map[string]string
}

func (e *AgentError) Error() string { return e.Message }

func agentError(err error) *AgentError {
	if e, ok := errors.AsType[*AgentError](err); ok {
		return e
	}
	return &AgentError{Message: err.Error()}
}

// AgentDomain is the agents that the host knows.
type AgentDomain struct {
	h *Host

	mu   sync.Mutex // guards list
	list []Agent
}

func newAgents(h *Host) *AgentDomain {
	d := &AgentDomain{h: h}
	rules := h.defaultRules()
	todo := "todowrite"
	build, plan := slices.Clone(rules), slices.Clone(rules)
	if h.profile.v1() {
		build = append(build, Rule{"question", "*", team.Allow}, Rule{"plan_enter", "*", team.Allow})
		plan = append(plan, Rule{"question", "*", team.Allow}, Rule{"plan_exit", "*", team.Allow}, Rule{h.profile.Subagent, "general", team.Deny})
	}
	plan = append(plan, Rule{"edit", "*", team.Deny})
	if h.profile.v1() {
		plan = append(plan, Rule{"edit", ".opencode/plans/*.md", team.Allow})
		if dir := h.planDir(); dir != planDir {
			plan = append(plan, Rule{"edit", filepath.ToSlash(dir) + "/*.md", team.Allow})
		}
	}
	d.list = []Agent{
		{Name: "build", Mode: "primary", Description: "Works, and asks where its rules say so.", Permissions: build},
		{Name: "plan", Mode: "primary", Description: "Plans, and edits nothing else.", Permissions: plan},
		{Name: "general", Mode: "subagent", Description: "Carries out a piece of work of any kind.", Permissions: append(slices.Clone(rules), Rule{todo, "*", team.Deny})},
		{Name: "explore", Mode: "subagent", Description: "Searches and reads, and changes nothing.", Permissions: append(slices.Clone(rules), Rule{"*", "*", team.Deny},
			Rule{"grep", "*", team.Allow}, Rule{"glob", "*", team.Allow}, Rule{"list", "*", team.Allow},
			Rule{h.profile.Shell, "*", team.Allow}, Rule{"webfetch", "*", team.Allow}, Rule{"read", "*", team.Allow})},
	}
	if h.profile.v1() {
		explore := &d.list[len(d.list)-1]
		n := len(explore.Permissions) - 1 // websearch comes before read
		explore.Permissions = append(slices.Insert(explore.Permissions, n, Rule{"websearch", "*", team.Allow}),
			Rule{"external_directory", "*", team.Ask})
		none := append(slices.Clone(rules), Rule{"*", "*", team.Deny})
		for _, name := range []string{"compaction", "summary", "title"} {
			d.list = append(d.list, Agent{Name: name, Mode: "primary", Hidden: true, Permissions: none})
		}
	}
	for i := range d.list {
		d.list[i].v1, d.list[i].native = h.profile.v1(), true
	}
	return d
}

// defaultRules are what an agent may do that has no rules of its own. OpenCode 1.18.33 and
// 2.0.24.
func (h *Host) defaultRules() []Rule {
	rules := []Rule{{"*", "*", team.Allow}}
	if h.profile.v1() {
		rules = append(rules, Rule{"doom_loop", "*", team.Ask})
	}
	rules = append(rules, Rule{"external_directory", "*", team.Ask})
	if h.profile.v1() {
		for _, action := range []string{"question", "plan_enter", "plan_exit"} {
			rules = append(rules, Rule{action, "*", team.Deny})
		}
		rules = append(rules, Rule{"read", "*", team.Allow})
	}
	return append(rules, Rule{"read", "*.env", team.Ask}, Rule{"read", "*.env.*", team.Ask}, Rule{"read", "*.env.example", team.Allow})
}

// Offered returns the subagents that a session's model is told it can dispatch, by name: none that is
// primary or hidden, and none that the session's rules deny.
func (d *AgentDomain) Offered(ctx context.Context, session string) ([]Agent, error) {
	list, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	rules, err := d.h.Permission.rules(session, "")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(a Agent) bool {
		return a.Mode == "primary" || a.Hidden || evaluate(rules, d.h.profile.Subagent, a.Name) == team.Deny
	}), nil
}

// Add adds an agent, or replaces the one of its name. Generation 2 publishes agent.updated.
func (d *AgentDomain) Add(a Agent) error {
	a.Mode = cmp.Or(a.Mode, "all")
	switch {
	case a.Name == "":
		return invalid("agent", "has no name", "name it")
	case !slices.Contains([]string{"primary", "subagent", "all"}, a.Mode):
		return invalid("agent mode", fmt.Sprintf("is %q", a.Mode), "use primary, subagent or all")
	}
	if err := checkRules(a.Permissions); err != nil {
		return err
	}
	defer d.h.updated("agent.updated", nil)
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.list, func(o Agent) bool { return o.Name == a.Name })
	if a.Permissions == nil {
		a.Permissions = d.h.defaultRules()
		if i >= 0 {
			a.Permissions = d.list[i].Permissions
		}
	}
	if i >= 0 {
		a.Description = cmp.Or(a.Description, d.list[i].Description)
	}
	a.v1, a.native = d.h.profile.v1(), i >= 0 && d.list[i].native
	if i >= 0 {
		d.list[i] = a
	} else {
		d.list = append(d.list, a)
	}
	return nil
}

// List returns the agents: build, then the others by name.
func (d *AgentDomain) List(ctx context.Context) ([]Agent, error) {
	if err := d.h.enter(ctx, Call{Domain: "agent", Method: "list"}); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(slices.Values(d.list), func(a, b Agent) int {
		switch {
		case a.Name == b.Name:
			return 0
		case a.Name == "build":
			return -1
		case b.Name == "build":
			return 1
		default:
			return cmp.Compare(a.Name, b.Name)
		}
	}), nil
}

// Get returns one agent, or a *NotFoundError.
func (d *AgentDomain) Get(ctx context.Context, name string) (Agent, error) {
	if err := d.h.enter(ctx, Call{Domain: "agent", Method: "get", Name: name}); err != nil {
		return Agent{}, err
	}
	return d.get(name)
}

func (d *AgentDomain) get(name string) (Agent, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.list {
		if a.Name == name {
			return a, nil
		}
	}
	return Agent{}, &NotFoundError{"agent", name}
}

// agentOf returns the name of the agent that a session runs as.
func (h *Host) agentOf(s *Session) string { return cmp.Or(s.Agent, "build") }

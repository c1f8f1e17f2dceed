package fakehost

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
)

// PermissionDomain decides what sessions may do, and keeps what is asked for. Asks are in
// memory: after a restart, and in the other window, they are not there.
type PermissionDomain struct {
	h     *Host
	hooks hookList[Evaluation]

	mu      sync.Mutex // guards the fields below
	pending []*pendingAsk
	granted []Rule // generation 1: what "always" allowed, until the restart
}

type pendingAsk struct {
	Ask
	settled chan struct{}
	err     error // set before settled is closed
}

// An Ask is a permission that somebody has to give. As JSON it has the shape of its
// generation.
type Ask struct {
	ID        string // "per_…"
	Session   string
	Action    string
	Resources []string
	Save      []string // what "always" allows from then on
	Metadata  json.RawMessage
	Source    *Source // the tool call that waits
	Agent     string  // whose rules count; empty is the session's
	Message   string

	v1 bool
}

// A Source is a tool call.
type Source struct {
	Message string
	Call    string
}

type sourceV1 struct {
	MessageID string `json:"messageID"`
	CallID    string `json:"callID"`
}

type sourceV2 struct {
	Type      string `json:"type"`
	MessageID string `json:"messageID"`
	ID        string `json:"id"`
}

// MarshalJSON gives the host's own object.
func (a Ask) MarshalJSON() ([]byte, error) {
	if a.v1 {
		out := struct {
			ID         string          `json:"id"`
			Session    string          `json:"sessionID"`
			Permission string          `json:"permission"`
			Patterns   []string        `json:"patterns"`
			Metadata   json.RawMessage `json:"metadata"`
			Always     []string        `json:"always"`
			Tool       *sourceV1       `json:"tool,omitempty"`
		}{a.ID, a.Session, a.Action, a.Resources, a.Metadata, a.Save, nil}
		if out.Metadata == nil {
			out.Metadata = json.RawMessage("{}")
		}
		if out.Always == nil {
			out.Always = []string{}
		}
		if a.Source != nil {
			out.Tool = &sourceV1{a.Source.Message, a.Source.Call}
		}
		return json.Marshal(out)
	}
	out := struct {
		ID        string          `json:"id"`
		Session   string          `json:"sessionID"`
		Action    string          `json:"action"`
		Resources []string        `json:"resources"`
		Save      []string        `json:"save,omitempty"`
		Metadata  json.RawMessage `json:"metadata,omitempty"`
		Source    *sourceV2       `json:"source,omitempty"`
		Message   string          `json:"message,omitempty"`
	}{a.ID, a.Session, a.Action, a.Resources, a.Save, a.Metadata, nil, a.Message}
	if a.Source != nil {
		out.Source = &sourceV2{"tool", a.Source.Message, a.Source.Call}
	}
	return json.Marshal(out)
}

// An Evaluation is what a hook of generation 2 sees after rules and saved approvals, if
// no rule denies. It may change Effect and Message.
type Evaluation struct {
	Session   string
	Agent     string
	Action    string
	Resources []string
	Metadata  json.RawMessage
	Source    *Source
	Effect    team.Effect
	Message   string
}

// A PermissionError is a permission that was not given. It is a team.ErrDenied.
type PermissionError struct {
	// Kind is "denied" by a rule or hook, "declined" by a reply, which ends the turn, or
	// "corrected" by a reply with a message, with which the agent goes on.
	Kind      string
	Action    string
	Resources []string
	Message   string // of the reply or hook
}

func (e *PermissionError) Error() string {
	s := fmt.Sprintf("permission %s: %s %q", e.Kind, e.Action, e.Resources)
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Is reports whether target is team.ErrDenied.
func (e *PermissionError) Is(target error) bool { return target == team.ErrDenied }

// Hook registers a hook of generation 2, "permission.evaluate". stop takes it off.
// Where the profile's host does not call it, it is registered and not called.
func (d *PermissionDomain) Hook(f func(context.Context, *Evaluation) error) (stop func()) {
	return d.hooks.add(f)
}

// Rules returns the rules that count for a session, in order: those of its agent, then
// its own. An agent that nobody knows may do nothing.
func (d *PermissionDomain) Rules(ctx context.Context, session string) ([]Rule, error) {
	if err := d.h.enter(ctx, Call{Domain: "permission", Method: "rules", Session: session}); err != nil {
		return nil, err
	}
	return d.rules(session, "")
}

func (d *PermissionDomain) rules(session, agent string) ([]Rule, error) {
	var s *Session
	err := d.h.tx(func(t *tx) (err error) {
		s, err = t.session(session)
		return err
	})
	if err != nil {
		return nil, err
	}
	if agent == "" {
		agent = d.h.agentOf(s)
	}
	a, err := d.h.Agent.get(agent)
	if err != nil {
		return []Rule{{"*", "*", team.Deny}}, nil
	}
	return slices.Concat(a.Permissions, s.Permissions), nil
}

// Evaluate returns the effect of the session's rules and the approvals that were given,
// and asks nobody: neither hook nor person.
func (d *PermissionDomain) Evaluate(ctx context.Context, session, action string, resources ...string) (team.Effect, error) {
	if err := d.h.enter(ctx, Call{Domain: "permission", Method: "evaluate", Session: session, Name: action}); err != nil {
		return "", err
	}
	return d.evaluate(Ask{Session: session, Action: action, Resources: resources})
}

func (d *PermissionDomain) evaluate(a Ask) (team.Effect, error) {
	rules, err := d.rules(a.Session, a.Agent)
	if err != nil {
		return "", err
	}
	if effect := strictest(rules, a.Action, a.Resources); effect != team.Ask {
		return effect, nil
	}
	saved, err := d.saved()
	if err != nil {
		return "", err
	}
	return strictest(slices.Concat(rules, saved), a.Action, a.Resources), nil
}

// saved returns what "always" allowed: stored for the project in generation 2, in memory
// in generation 1.
func (d *PermissionDomain) saved() ([]Rule, error) {
	if d.h.profile.v1() {
		d.mu.Lock()
		defer d.mu.Unlock()
		return slices.Clone(d.granted), nil
	}
	var out []Rule
	err := d.h.tx(func(t *tx) error {
		return t.rows(`SELECT action, resource FROM permission ORDER BY rowid`, func(s *sqlite3.Stmt) {
			out = append(out, Rule{s.ColumnText(0), s.ColumnText(1), team.Allow})
		})
	})
	return out, err
}

// Saved returns the approvals that hold for the project.
func (d *PermissionDomain) Saved(ctx context.Context) ([]Rule, error) {
	if err := d.h.enter(ctx, Call{Domain: "permission", Method: "saved"}); err != nil {
		return nil, err
	}
	return d.saved()
}

// An Approval is what "always" has allowed for the project. Generation 2.
type Approval struct {
	ID       string `json:"id"`
	Project  string `json:"projectID"`
	Action   string `json:"action"`
	Resource string `json:"resource"`
}

// Approvals returns what Saved does, with ids. Generation 2.
func (d *PermissionDomain) Approvals(ctx context.Context) (out []Approval, err error) {
	if d.h.profile.v1() {
		return nil, d.h.absent("permission.approvals")
	}
	if err := d.h.enter(ctx, Call{Domain: "permission", Method: "saved"}); err != nil {
		return nil, err
	}
	err = d.h.tx(func(t *tx) error {
		return t.rows(`SELECT id, project_id, action, resource FROM permission ORDER BY rowid`, func(s *sqlite3.Stmt) {
			out = append(out, Approval{s.ColumnText(0), s.ColumnText(1), s.ColumnText(2), s.ColumnText(3)})
		})
	})
	return out, err
}

// Forget takes an approval back. One that is not there is no error. Generation 2.
func (d *PermissionDomain) Forget(ctx context.Context, id string) error {
	if d.h.profile.v1() {
		return d.h.absent("permission.forget")
	}
	if err := d.h.enter(ctx, Call{Domain: "permission", Method: "forget", Name: id}); err != nil {
		return err
	}
	return d.h.tx(func(t *tx) error { return t.run(`DELETE FROM permission WHERE id = ?`, id) })
}

// Request evaluates a and, if it is to be asked, puts it into the list and publishes it.
// It does not wait. The ask that comes back has an ID if it is pending.
func (d *PermissionDomain) Request(ctx context.Context, a Ask) (Ask, team.Effect, error) {
	if err := d.h.enter(ctx, Call{Domain: "permission", Method: "request", Session: a.Session, Name: a.Action}); err != nil {
		return a, "", err
	}
	p, effect, err := d.request(ctx, a)
	if p != nil {
		a = p.Ask
	}
	return a, effect, err
}

// Ask is Request, and waits until it is settled. Nil means allowed; a *PermissionError
// says how it was not; the context's error that ctx ended first, which takes the ask back.
func (d *PermissionDomain) Ask(ctx context.Context, a Ask) error {
	return d.ask(ctx, a, func() error { return nil })
}

// ask is Ask, and calls asked when somebody has to answer.
func (d *PermissionDomain) ask(ctx context.Context, a Ask, asked func() error) error {
	if err := d.h.enter(ctx, Call{Domain: "permission", Method: "ask", Session: a.Session, Name: a.Action}); err != nil {
		return err
	}
	p, effect, err := d.request(ctx, a)
	switch {
	case err != nil:
		return err
	case effect == team.Allow:
		return nil
	case p == nil:
		return &PermissionError{Kind: "denied", Action: a.Action, Resources: a.Resources, Message: a.Message}
	}
	if err := asked(); err != nil {
		d.take(p)
		return err
	}
	select {
	case <-p.settled:
		return p.err
	case <-ctx.Done():
		d.take(p)
		return context.Cause(ctx)
	}
}

// take removes p from the list, and reports whether it was there.
func (d *PermissionDomain) take(p *pendingAsk) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.pending, p)
	if i >= 0 {
		d.pending = slices.Delete(d.pending, i, i+1)
	}
	return i >= 0
}

func (d *PermissionDomain) request(ctx context.Context, a Ask) (*pendingAsk, team.Effect, error) {
	if a.Action == "" || len(a.Resources) == 0 {
		return nil, "", invalid("permission", "has no action or no resource", "name both")
	}
	effect, err := d.evaluate(a)
	if err != nil {
		return nil, "", err
	}
	if effect != team.Deny && d.h.profile.EvaluateHook {
		e := &Evaluation{a.Session, a.Agent, a.Action, a.Resources, a.Metadata, a.Source, effect, a.Message}
		for _, hook := range d.hooks.all() {
			if err := (*hook)(ctx, e); err != nil {
				return nil, "", err
			}
		}
		effect, a.Message = e.Effect, e.Message
	}
	if effect == team.Deny || effect == team.Allow {
		return nil, effect, nil
	}
	if a.ID == "" {
		a.ID = d.h.newID("per_")
	} else if err := checkID("permission", a.ID, "per"); err != nil {
		return nil, "", err
	}
	a.v1 = d.h.profile.v1()
	p := &pendingAsk{Ask: a, settled: make(chan struct{})}
	return p, effect, d.h.tx(func(t *tx) error {
		t.later(func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.pending = append(d.pending, p)
		})
		t.emit("permission.asked", a.Session, a)
		return nil
	})
}

// List returns what is pending, in order; for one session, or for all if it is empty.
func (d *PermissionDomain) List(ctx context.Context, session string) ([]Ask, error) {
	if err := d.h.enter(ctx, Call{Domain: "permission", Method: "list", Session: session}); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Ask
	for _, p := range d.pending {
		if session == "" || p.Session == session {
			out = append(out, p.Ask)
		}
	}
	return out, nil
}

// A Reply is what a person answers to an Ask.
type Reply struct {
	Request string
	Reply   string // "once", "always", "reject"
	Message string // with "reject": goes to the agent, which then goes on
}

// Reply settles an ask. "always" also settles every other ask that is allowed now, of
// whatever session (generation 1: of the same one); "reject" settles all of the same
// session, in the same way. A *NotFoundError if it is not pending.
func (d *PermissionDomain) Reply(ctx context.Context, in Reply) error {
	if err := d.h.enter(ctx, Call{Domain: "permission", Method: "reply", Name: in.Request}); err != nil {
		return err
	}
	if !slices.Contains([]string{"once", "always", "reject"}, in.Reply) {
		return invalid("reply", fmt.Sprintf("is %q", in.Reply), "use once, always or reject")
	}
	d.mu.Lock()
	i := slices.IndexFunc(d.pending, func(p *pendingAsk) bool { return p.ID == in.Request })
	if i < 0 {
		d.mu.Unlock()
		return &NotFoundError{"permission", in.Request}
	}
	p := d.pending[i]
	d.pending = slices.Delete(d.pending, i, i+1)
	others := slices.Clone(d.pending)
	d.mu.Unlock()

	if in.Reply == "always" {
		if err := d.grant(p.Action, p.Save); err != nil {
			return err
		}
	}
	if err := d.settle(p, in.Reply, in.Message); err != nil {
		return err
	}
	for _, o := range others {
		switch {
		case in.Reply == "reject" && o.Session == p.Session:
		case in.Reply == "always" && (!d.h.profile.v1() || o.Session == p.Session):
			if effect, err := d.evaluate(o.Ask); err != nil || effect != team.Allow {
				continue
			}
		default:
			continue
		}
		if d.take(o) {
			if err := d.settle(o, in.Reply, in.Message); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *PermissionDomain) grant(action string, resources []string) error {
	if d.h.profile.v1() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, r := range resources {
			d.granted = append(d.granted, Rule{action, r, team.Allow})
		}
		return nil
	}
	return d.h.tx(func(t *tx) error {
		for _, r := range resources {
			err := t.run(`INSERT INTO permission (id, project_id, action, resource, time_created) VALUES (?, 'global', ?, ?, ?)
				ON CONFLICT DO NOTHING`, t.h.newID("per_"), action, r, t.now)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// settle publishes the reply and lets the one who asked go on.
func (d *PermissionDomain) settle(p *pendingAsk, reply, message string) error {
	if reply == "reject" {
		kind := "declined"
		if message != "" {
			kind = "corrected"
		}
		p.err = &PermissionError{kind, p.Action, p.Resources, message}
	}
	return d.h.tx(func(t *tx) error {
		t.emit("permission.replied", p.Session, map[string]any{"sessionID": p.Session, "requestID": p.ID, "reply": reply})
		t.later(func() { close(p.settled) })
		return nil
	})
}

// drop forgets what is pending, as a restart does: those who asked are interrupted with
// their turns.
func (d *PermissionDomain) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.pending {
		p.err = errShutdown
		close(p.settled)
	}
	d.pending = nil
}

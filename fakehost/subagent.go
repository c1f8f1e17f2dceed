package fakehost

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/teamchan/team"
)

// A job is a child session that a tool call waits for, or whose end its parent will be
// told. Host.mu guards it.
type job struct {
	parent       string
	child        string
	agent        string
	description  string
	background   bool
	toBackground chan struct{} // closed when a foreground call is not to wait any more
}

// A dispatch is the input of the subagent tool, of either generation.
type dispatch struct {
	Agent       string `json:"agent,omitempty"`
	Subagent    string `json:"subagent_type,omitempty"`
	Description string `json:"description"`
	Prompt      string `json:"prompt"`
	Model       string `json:"model,omitempty"`
	SessionID   string `json:"sessionID,omitempty"`
	TaskID      string `json:"task_id,omitempty"`
	Command     string `json:"command,omitempty"`
	Background  bool   `json:"background,omitempty"`
}

func (h *Host) dispatchInput(agent, description, prompt string, background bool) dispatch {
	d := dispatch{Description: description, Prompt: prompt, Background: background}
	if h.profile.v1() {
		d.Subagent = agent
	} else {
		d.Agent = agent
	}
	return d
}

// subagentTool is the host's own tool: task {description, prompt, subagent_type, task_id?,
// background?}, or subagent {agent, description, prompt, model?, sessionID?, background?}.
func (h *Host) subagentTool() Tool {
	return Tool{Name: h.profile.Subagent, Description: "Dispatch a subagent", Run: h.dispatch, late: true}
}

// A refusal is an error in the host's words, which begin with a capital.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// childState is what is known of a dispatched child.
type childState struct {
	session *Session
	run     *run
	job     *job
	was     bool // it ran in the background already
}

func (h *Host) dispatch(ctx context.Context, c *ToolCall) (ToolOutput, error) {
	var in dispatch
	if err := c.Decode(&in); err != nil {
		return ToolOutput{}, err
	}
	name, id := cmp.Or(in.Agent, in.Subagent), cmp.Or(in.SessionID, in.TaskID)
	if name == "" || in.Description == "" || in.Prompt == "" {
		return ToolOutput{}, fmt.Errorf("invalid arguments for %s: agent, description and prompt are required", c.c.tool)
	}
	if in.Background && !h.profile.Background {
		return ToolOutput{}, errors.New("background subagents are not switched on")
	}
	agent, err := h.mayDispatch(ctx, c, name, in.Description)
	if err != nil {
		return ToolOutput{}, err
	}
	child, err := h.startChild(c, in, id, agent)
	if err != nil {
		return ToolOutput{}, err
	}
	meta := h.childMetadata(c.Session, child.session, in.Background, "running")
	shown := maps.Clone(meta)
	delete(shown, "jobId") // there is no job yet
	c.c.held = true        // until the child has its work
	if err := c.Progress(in.Description, shown); err != nil {
		return ToolOutput{}, err
	}
	if err := h.promptChild(ctx, c, in, child); err != nil {
		return ToolOutput{}, err
	}
	if h.profile.v1() {
		if err := c.Progress(in.Description, shown); err != nil {
			return ToolOutput{}, err
		}
	}
	c.c.begun()
	if in.Background {
		return h.runningOutput(child, in, meta), nil
	}
	select {
	case <-child.run.done:
	case <-child.job.toBackground:
		return h.runningOutput(child, in, h.childMetadata(c.Session, child.session, true, "running")), nil
	case <-ctx.Done():
		// A foreground child is stopped with the call, and for the same reason.
		h.interrupt(child.session.ID, context.Cause(ctx))
		<-child.run.done
		h.forget(child.job)
		return ToolOutput{}, context.Cause(ctx)
	}
	h.forget(child.job)
	body, state, err := h.childResult(child)
	if err != nil {
		return ToolOutput{}, err
	}
	if state != "completed" {
		return ToolOutput{}, errors.New(body)
	}
	return ToolOutput{Title: in.Description, Text: h.completedEnvelope(child.session.ID, body),
		Output:   map[string]any{"sessionID": child.session.ID, "status": "completed", "output": body},
		Metadata: h.childMetadata(c.Session, child.session, false, "completed")}, nil
}

// mayDispatch checks agent, depth and permission.
func (h *Host) mayDispatch(ctx context.Context, c *ToolCall, name, description string) (Agent, error) {
	depth := 0
	err := h.tx(func(t *tx) error {
		for id := c.Session; ; depth++ {
			s, err := t.session(id)
			if err != nil {
				if depth > 0 && h.profile.v1() {
					return nil // which takes any parent
				}
				return err
			}
			if id = s.Parent; id == "" {
				return nil
			}
		}
	})
	if err != nil {
		return Agent{}, refuse("Parent session not found: %s", c.Session)
	}
	if depth >= h.opts.Depth {
		return Agent{}, refuse("Subagent depth limit reached (%d). Do the work in this session.", h.opts.Depth)
	}
	save, meta := []string{name}, any(nil)
	if h.profile.v1() {
		save, meta = []string{"*"}, map[string]any{"description": description, "subagent_type": name}
	}
	if !c.c.byUser {
		err = c.Ask(ctx, h.profile.Subagent, []string{name}, save, meta)
	}
	if p, ok := errors.AsType[*PermissionError](err); ok && p.Kind == "denied" && !h.profile.v1() {
		err = &changedError{"Subagent denied: " + name, err}
	}
	if err != nil {
		return Agent{}, err
	}
	agent, err := h.Agent.get(name)
	switch {
	case err != nil && h.profile.v1():
		return agent, refuse("Unknown agent type: %s is not a valid agent type", name)
	case err != nil:
		return agent, refuse("Unknown agent: %s", name)
	case agent.Mode == "primary" && !h.profile.v1():
		return agent, refuse("Agent %s cannot run as a subagent", name)
	}
	return agent, nil
}

// startChild finds the child to go on with, or makes one.
func (h *Host) startChild(c *ToolCall, in dispatch, id string, agent Agent) (*childState, error) {
	child := new(childState)
	model, err := parseModel(in.Model)
	if err != nil {
		return nil, err
	}
	err = h.tx(func(t *tx) error {
		if id != "" {
			s, err := t.session(id)
			switch {
			case err != nil && h.profile.v1(): // an id that nobody knows makes a new child
			case err != nil:
				return refuse("Subagent session not found: %s", id)
			case s.Parent != c.Session && !h.profile.v1():
				return refuse("Session %s is not a child of the current session", id)
			default:
				child.session = s
				return nil
			}
		}
		parent, err := t.session(c.Session)
		if err != nil {
			return err
		}
		title := in.Description
		if h.profile.v1() {
			title += " (@" + agent.Name + " subagent)"
		} else if model == nil {
			model = cmp.Or(agent.Model, parent.Model)
		}
		child.session, err = t.create(NewSession{Parent: parent.ID, Title: title, Agent: agent.Name, Model: model,
			Permissions: h.deriveRules(parent, agent), Metadata: nil})
		return err
	})
	if err == nil && h.profile.v1() {
		// Its record gets it with the prompt, each time anew.
		child.session.Model = cmp.Or(agent.Model, &c.c.step.model)
	}
	return child, err
}

// parseModel reads "provider/model#variant".
func parseModel(s string) (*Model, error) {
	if s == "" {
		return nil, nil
	}
	provider, model, ok := strings.Cut(s, "/")
	model, variant, _ := strings.Cut(model, "#")
	if !ok || provider == "" || model == "" {
		return nil, refuse("Invalid model %q. Write provider/model or provider/model#variant.", s)
	}
	return &Model{ID: model, Provider: provider, Variant: variant}, nil
}

// promptChild gives the child its work and registers the job.
func (h *Host) promptChild(ctx context.Context, c *ToolCall, in dispatch, child *childState) error {
	id := child.session.ID
	first := int64(0)
	err := h.tx(func(t *tx) (err error) {
		first, _, err = t.number(`SELECT count(*) FROM message WHERE session_id = ? AND type = 'user'`, id)
		return err
	})
	if err != nil {
		return err
	}
	p := Prompt{Text: in.Prompt, ID: h.newID("msg_"), Delivery: team.DeliverySteer}
	if first == 0 && !h.profile.v1() {
		p.Text = "Another session has dispatched you as its subagent.\n" + p.Text
	}
	if h.profile.v1() {
		p.Agent, p.Model = child.session.Agent, child.session.Model
	}
	p = h.hookPrompt(ctx, id, p)
	return h.tx(func(t *tx) error {
		if _, err := t.admit(id, "user", p); err != nil {
			return err
		}
		t.later(func() {
			child.run = h.runs[id]
			if child.run == nil { // the host is closing
				child.run = &run{done: make(chan struct{}), last: ending{outcome: "interrupted", reason: "shutdown"}}
				close(child.run.done)
			}
			was := h.jobs[id]
			if was != nil && was.background {
				child.job, child.was = &job{child: id, toBackground: make(chan struct{})}, true
				return // one notice for one run
			}
			child.job = &job{c.Session, id, child.session.Agent, in.Description, in.Background, make(chan struct{})}
			h.jobs[id] = child.job
			if in.Background {
				h.watch(child)
			}
		})
		return nil
	})
}

// forget takes a foreground job off the list.
func (h *Host) forget(j *job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.jobs[j.child] == j {
		delete(h.jobs, j.child)
	}
}

// watch tells the parent when the child has ended. h.mu is held.
func (h *Host) watch(child *childState) {
	if h.closing || h.dead {
		return
	}
	h.work.Go(func() {
		<-child.run.done
		h.forget(child.job)
		h.mu.Lock()
		closing := h.closing || h.dead
		h.mu.Unlock()
		if closing || h.has(FaultNoticeMissing) {
			return
		}
		body, state, err := h.childResult(child)
		if err != nil {
			return // the child was removed
		}
		n := 1
		if h.has(FaultNoticeDuplicate) {
			n = 2
		}
		for range n {
			// Where the parent was removed there is nobody to tell.
			_ = h.tx(func(t *tx) error { return t.notice(child.job, body, state) })
		}
	})
}

func (t *tx) notice(j *job, body, state string) error {
	text := t.h.noticeEnvelope(j.child, state, j.description, body)
	if t.h.profile.v1() {
		_, err := t.admit(j.parent, "synthetic", Prompt{Text: text, Synthetic: true})
		return err
	}
	_, err := t.admit(j.parent, "synthetic", Prompt{Text: text, Description: j.description, Metadata: mustJSON(map[string]any{
		"source": "subagent", "childID": j.child, "agent": j.agent, "state": state})})
	return err
}

// childResult returns how a child ended: "completed" with its text, or "error" or
// "cancelled" with what the parent reads then.
func (h *Host) childResult(child *childState) (body, state string, err error) {
	id := child.session.ID
	last := child.run.last
	switch {
	case last.outcome == "failed":
		return h.failedText(id, last.err.Message), "error", nil
	case last.outcome == "interrupted" && !(h.profile.v1() && last.silent):
		return h.cancelledText(id), "cancelled", nil
	}
	err = h.tx(func(t *tx) error {
		if h.profile.v1() {
			why, err := t.failedTool(id)
			if err != nil || why != "" {
				body, state = h.failedText(id, why), "error"
				return err
			}
		}
		var err error
		body, err = t.lastText(id)
		return err
	})
	if state == "" {
		state = "completed"
		if body == "" && !h.profile.v1() {
			body = "The subagent completed without text."
		}
	}
	return body, state, err
}

// failedTool returns the error of a failed tool in the last message of the agent.
// OpenCode 1.18.22 and later.
func (t *tx) failedTool(session string) (string, error) {
	list, err := t.queryMessages(`WHERE session_id = ? AND type = 'assistant' ORDER BY seq DESC LIMIT 1`, session)
	if err != nil || len(list) == 0 {
		return "", err
	}
	for _, p := range list[0].Parts {
		var part struct {
			State struct {
				Status string `json:"status"`
				Error  string `json:"error"`
			} `json:"state"`
		}
		if json.Unmarshal(p, &part) == nil && part.State.Status == "error" {
			return part.State.Error, nil
		}
	}
	return "", nil
}

func (h *Host) childMetadata(parent string, child *Session, background bool, status string) map[string]any {
	if !h.profile.v1() {
		return map[string]any{"sessionID": child.ID, "status": status}
	}
	model := cmp.Or(child.Model, &h.opts.Model)
	out := map[string]any{"parentSessionId": parent, "sessionId": child.ID, "model": modelV1{model.Provider, model.ID, ""}}
	if background {
		out["background"], out["jobId"] = true, child.ID
	}
	return out
}

func (h *Host) runningOutput(child *childState, in dispatch, meta map[string]any) ToolOutput {
	summary := "Background task started"
	if child.was {
		summary = "Background task updated"
	}
	text := h.runningEnvelope(child.session.ID, summary)
	return ToolOutput{Title: in.Description, Text: text, Metadata: meta,
		Output: map[string]any{"sessionID": child.session.ID, "status": "running", "output": text}}
}

// Background moves the foreground children that a session's tools wait for into the
// background, and returns how many those are: their calls answer that they are running, and
// the parent is told when they have ended.
//
// OpenCode 2.0: POST /api/session/:id/background.
func (d *SessionDomain) Background(ctx context.Context, session string) (int, error) {
	if _, err := d.Get(ctx, session); err != nil {
		return 0, err
	}
	if !d.h.profile.Background {
		return 0, d.h.absent("session.background")
	}
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "background", Session: session}); err != nil {
		return 0, err
	}
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	n := 0
	for _, j := range d.h.jobs {
		if r := d.h.runs[j.child]; j.parent == session && !j.background && r != nil {
			j.background = true
			close(j.toBackground)
			d.h.watch(&childState{session: &Session{ID: j.child}, run: r, job: j})
			n++
		}
	}
	return n, nil
}

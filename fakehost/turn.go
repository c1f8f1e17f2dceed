package fakehost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// A Turn is what a Script works with: the work it was given, and what a model can do. Its
// methods write the history and the events that the host would. They may be called from
// the script's own goroutines, one at a time.
type Turn struct {
	h       *Host
	run     *run
	session *Session
	agent   Agent
	prompts []InboxItem

	mu    sync.Mutex // guards the fields below
	fresh []InboxItem
	step  *step
	steps int   // with tool calls
	over  error // why the turn cannot go on

	request *ModelRequest // of the step, if there are hooks
}

// errNoSession is why the turn of a helper such as agent title can only read.
var errNoSession = errors.New("this agent works beside the session and has no tools")

// errStop ends a turn that is then called succeeded.
var errStop = errors.New("the turn was stopped")

// A step is one call of the model: one message of the agent.
type step struct {
	id      string
	session *Session
	agent   string
	model   Model
	parent  string // generation 1: the user's message
	began   int64
	opened  bool // generation 1: has a step-start part
	ordinal int
	later   bool  // generation 1: not the first step behind the user's message
	summary bool  // generation 1: of a compaction
	content []any // generation 2: the parts of the message
	finish  string
	err     *AgentError
	ended   int64
}

// turn lets the session's agent work on items, and on the steers that come while it does.
func (h *Host) turn(r *run, items []InboxItem) error {
	for {
		var s *Session
		err := h.tx(func(t *tx) (err error) {
			s, err = t.session(r.session)
			return err
		})
		if err != nil {
			return err
		}
		agent, err := h.Agent.get(h.agentOf(s))
		if err != nil {
			return &AgentError{Message: err.Error()}
		}
		t := &Turn{h: h, run: r, session: s, agent: agent, prompts: items}
		text, err := t.play(r.ctx)
		if err := t.finish(r.ctx, text, err); err != nil {
			return err
		}
		if items, err = t.boundary(""); err != nil || len(items) == 0 {
			return err
		}
	}
}

// play calls the script in a goroutine of its own, so that one that ends its goroutine, as
// a failed test does, ends the turn and not the host.
func (t *Turn) play(ctx context.Context) (text string, err error) {
	if err := t.retries(ctx); err != nil {
		return "", err
	}
	if err := t.subtasks(ctx); err != nil {
		return "", err
	}
	if t.agent.Script == nil {
		return "ok", nil
	}
	err = errors.New("the script ended its goroutine")
	done := make(chan struct{})
	go func() {
		defer close(done)
		text, err = t.agent.Script(ctx, t)
	}()
	<-done
	return text, err
}

// retries plays a provider that cannot be reached, as long as the fault is on.
func (t *Turn) retries(ctx context.Context) error {
	for attempt := 1; t.h.has(FaultEndlessRetry); attempt++ {
		if err := t.open(ctx); err != nil {
			return err
		}
		failure := &AgentError{Type: "APIError", Message: "connection refused", Retryable: true}
		e := RetryHook{t.session.ID, t.agent.Name, t.step.model, failure, attempt, true, retryDelay(attempt)}
		if !t.h.profile.v1() {
			e = t.h.Session.hooks.retry.run(ctx, e, func(e RetryHook) RetryHook { return e })
		}
		if !e.Retry {
			return failure
		}
		wait := max(e.Delay, 0)
		err := t.h.tx(func(x *tx) error {
			return t.h.journal().retry(x, t.step, attempt, x.now+wait.Milliseconds(), failure)
		})
		if err != nil {
			return err
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
	return nil
}

// finish ends the turn with the script's answer or its error.
func (t *Turn) finish(ctx context.Context, text string, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	} else if t.over != nil {
		err = t.over
	}
	if errors.Is(err, errStop) || errors.Is(err, errSwitched) {
		return t.endStep("stop")
	}
	if err != nil {
		if silent := t.h.endingOf(err).silent; silent && t.step == nil {
			return err
		}
		if e := t.openLocked(ctx); e != nil && t.step == nil {
			return err
		}
		st := t.step
		t.step = nil
		e := t.h.endingOf(err)
		_ = t.h.tx(func(x *tx) error { return t.h.journal().stepFailed(x, st, e) })
		return err
	}
	if t.h.has(FaultEmptyResult) {
		text = ""
	}
	if err := t.openLocked(ctx); err != nil {
		return err
	}
	if text != "" {
		if err := t.say(text); err != nil {
			return err
		}
	}
	return t.endStep("stop")
}

// Session returns the session's id.
func (t *Turn) Session() string { return t.session.ID }

// Agent returns who the script plays.
func (t *Turn) Agent() string { return t.agent.Name }

// Prompts returns the work that the script was called with: one item, or a batch of
// steers.
func (t *Turn) Prompts() []InboxItem { return t.prompts }

// Text returns the texts of Prompts, joined by a blank line.
func (t *Turn) Text() string {
	var texts []string
	for _, p := range t.prompts {
		if text := p.Text(); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n\n")
}

// Steered returns the steers that were promoted since the turn began, or since the last
// call: between two steps, which is after a tool call. A script that does not look has seen
// them all the same.
func (t *Turn) Steered() []InboxItem {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.fresh
	t.fresh = nil
	return out
}

// Context returns what the model would see.
func (t *Turn) Context(ctx context.Context) ([]*Message, error) {
	return t.h.Session.Context(ctx, t.session.ID)
}

// Sleep waits for d, or until ctx ends.
func (t *Turn) Sleep(ctx context.Context, d time.Duration) error { return sleep(ctx, d) }

// Open begins a step, as a model does that has not said anything yet; Say and Call do it
// themselves.
func (t *Turn) Open(ctx context.Context) error { return t.open(ctx) }

// Say adds a text to the step that is going on.
func (t *Turn) Say(ctx context.Context, text string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.openLocked(ctx); err != nil {
		return err
	}
	return t.say(text)
}

func (t *Turn) say(text string) error {
	return t.h.tx(func(x *tx) error { return t.h.journal().text(x, t.step, text) })
}

// A ToolUse is one call of a tool: its name, and its arguments, which become JSON.
type ToolUse struct {
	Tool  string
	Input any
}

// A Result is what a tool answered, as the model sees it: after hooks and truncation.
type Result struct {
	Text     string
	Metadata json.RawMessage
	Err      error // why it failed; a *PermissionError if that is why
}

// Call calls one tool, which is a step. Its result is also in the history. An error that the
// model sees is in Result.Err as well: a script may go on after it, unless it is a
// declined permission or the end of ctx, which end the turn.
func (t *Turn) Call(ctx context.Context, tool string, input any) (Result, error) {
	out, err := t.CallAll(ctx, ToolUse{tool, input})
	if err != nil {
		return Result{}, err
	}
	return out[0], out[0].Err
}

// Dispatch calls the host's own tool for subagents, in the foreground.
func (t *Turn) Dispatch(ctx context.Context, agent, description, prompt string) (Result, error) {
	return t.Call(ctx, t.h.profile.Subagent, t.h.dispatchInput(agent, description, prompt, false))
}

// Background is Dispatch in the background: the result says that the child is running.
func (t *Turn) Background(ctx context.Context, agent, description, prompt string) (Result, error) {
	return t.Call(ctx, t.h.profile.Subagent, t.h.dispatchInput(agent, description, prompt, true))
}

// CallAll calls several tools at once, in one step. The error says that the turn cannot go
// on, as when a permission was declined, a question dismissed, or plan_exit hands over to
// another agent; those of the tools are in the results.
func (t *Turn) CallAll(ctx context.Context, uses ...ToolUse) ([]Result, error) {
	return t.callAll(ctx, false, uses...)
}

// callAll is CallAll. What the user himself has asked for needs no permission for subagents.
func (t *Turn) callAll(ctx context.Context, byUser bool, uses ...ToolUse) ([]Result, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return nil, t.over
	}
	if t.agent.Steps > 0 && t.steps >= t.agent.Steps {
		return nil, fmt.Errorf("the agent may take %d steps with tools", t.agent.Steps)
	}
	if err := t.openLocked(ctx); err != nil {
		return nil, err
	}
	t.steps++
	calls := make([]*call, len(uses))
	for i, u := range uses {
		input, err := json.Marshal(u.Input)
		if err != nil {
			return nil, invalid("tool input", "cannot be JSON: "+err.Error(), "pass a struct or a map")
		}
		calls[i] = &call{h: t.h, step: t.step, id: t.h.newID("call_"), tool: u.Tool, input: input, byUser: byUser}
	}
	var group sync.WaitGroup
	for _, c := range calls {
		if err := c.pending(); err != nil {
			group.Wait()
			return nil, err
		}
		// A call begins while the model still writes the next one.
		begun, begin := context.WithCancel(context.Background())
		c.begun = begin
		group.Go(func() { c.execute(ctx) })
		<-begun.Done()
	}
	group.Wait()
	out := make([]Result, len(calls))
	for i, c := range calls {
		out[i] = c.result
		_, denied := errors.AsType[*PermissionError](c.result.Err)
		switch {
		case (denied || declined(c.result.Err)) && t.h.has(FaultCompletedAfterDenial):
			t.over = errStop
		case declined(c.result.Err):
			t.over = c.result.Err
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		t.over = cause
		return out, cause // the step is failed by finish
	}
	if t.h.has(FaultStepLimit) {
		t.over = errStop
	}
	if err := t.endStep("tool-calls"); err != nil {
		return out, err
	}
	if t.over != nil {
		return out, t.over
	}
	fresh, err := t.boundary(t.agent.Name)
	t.fresh = append(t.fresh, fresh...)
	if errors.Is(err, errSwitched) {
		t.over = errSwitched
		return out, t.over
	}
	return out, err
}

// errSwitched ends a turn of generation 1 because its session goes on as another agent.
var errSwitched = errors.New("the session goes on as another agent")

// boundary promotes the steers that wait, between two steps: for agent, if it is named. In
// generation 1, where each step runs as the agent of the last prompt, it is errSwitched if
// they are for another one.
func (t *Turn) boundary(agent string) ([]InboxItem, error) {
	var items []InboxItem
	err := t.h.tx(func(x *tx) error {
		s, err := x.session(t.session.ID)
		if err != nil {
			return err
		}
		if items, err = x.promotable(s.ID, betweenSteps); err != nil {
			return err
		}
		if s.v1 && len(items) > 0 && agent != "" && t.h.agentOf(s) != agent {
			items = nil
			return errSwitched
		}
		return x.deliver(s, items)
	})
	return items, err
}

func (t *Turn) open(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.openLocked(ctx)
}

// openLocked begins a step if none is going on.
func (t *Turn) openLocked(ctx context.Context) error {
	if t.step != nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && t.over == nil {
		t.over = cause
	}
	if t.over == errNoSession {
		return t.over
	}
	err := t.h.tx(func(x *tx) error {
		s, err := x.session(t.session.ID)
		if err != nil {
			return err
		}
		model := t.h.opts.Model
		if t.agent.Model != nil {
			model = *t.agent.Model
		}
		if s.Model != nil {
			model = *s.Model
		}
		st := &step{id: t.h.newID("msg_"), session: s, agent: t.agent.Name, model: model, began: x.now}
		if err := t.h.journal().stepBegan(x, st); err != nil {
			return err
		}
		t.step, t.request = st, nil
		return nil
	})
	if hooks := &t.h.Session.hooks.context; err == nil && len(hooks.all()) > 0 {
		var r ModelRequest
		if r, err = t.h.request(ctx, t.session.ID, t.agent.Name, t.step.model); err == nil {
			r = hooks.run(ctx, r, ModelRequest.copied)
			t.request = &r
		}
	}
	return err
}

// The tokens that every step is said to have cost.
const stepInput, stepOutput = 10, 5

func (t *Turn) endStep(finish string) error {
	if t.step == nil {
		return nil
	}
	st := t.step
	t.step = nil
	return t.h.tx(func(x *tx) error {
		s, err := x.session(st.session.ID)
		if err != nil {
			return err
		}
		s.Input, s.Output, s.summary = s.Input+stepInput, s.Output+stepOutput, true
		if err := x.run(`UPDATE session_v2 SET tokens_input = ?2, tokens_output = ?3, summary = 1 WHERE id = ?1`, s.ID, s.Input, s.Output); err != nil {
			return err
		}
		st.session, st.finish, st.ended = s, finish, x.now
		return t.h.journal().stepEnded(x, st)
	})
}

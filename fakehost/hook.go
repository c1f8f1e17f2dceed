package fakehost

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/teamchan/team"
)

// A hookList is the hooks of one kind. They run one after another in the order of registration and
// change the value that they are given, without the host's lock: they may call the host.
type hookList[E any] struct {
	mu   sync.Mutex // guards list
	list []*func(context.Context, *E) error
}

func (l *hookList[E]) add(f func(context.Context, *E) error) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, &f)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.list = slices.DeleteFunc(l.list, func(o *func(context.Context, *E) error) bool { return o == &f })
	}
}

func (l *hookList[E]) all() []*func(context.Context, *E) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// run passes a value through the hooks. copied makes a copy of what hooks may change.
func (l *hookList[E]) run(ctx context.Context, e E, copied func(E) E) E {
	for _, f := range l.all() {
		next := copied(e)
		if (*f)(ctx, &next) == nil {
			e = next
		}
	}
	return e
}

// Of the hooks of sessions, what one changed before it returned an error is forgotten.
type sessionHooks struct {
	prompt     hookList[PromptHook]
	context    hookList[ModelRequest]
	generate   hookList[ModelRequest]
	title      hookList[TitleHook]
	compaction hookList[CompactionHook]
	retry      hookList[RetryHook]
}

// A PromptHook is what the hook "prompt" sees before a user's prompt is admitted. In generation 1 it is
// "chat.message", has Parts in place of Text and no delivery; Agent, Model and Message are set there for
// child sessions only, as 1.18.33 did.
type PromptHook struct {
	Session string
	Message string
	Agent   string // generation 1
	Model   *Model // generation 1

	// These may be changed.
	Text     string            // generation 2
	Metadata json.RawMessage   // generation 2
	Delivery team.Delivery     // generation 2
	Parts    []json.RawMessage // generation 1
}

// A ModelRequest is what goes to the model. The hook "context" sees one for each model call, which is a
// step; "generate" one for each Session.Generate. In generation 1 the former is
// experimental.chat.messages.transform, whose messages are {info, parts}.
type ModelRequest struct {
	Session string
	Agent   string
	Model   Model

	// These may be changed.
	System   []string
	Messages []json.RawMessage // generation 2: {id, role, content}
	Tools    []string
}

func (r ModelRequest) copied() ModelRequest {
	r.System, r.Messages, r.Tools = slices.Clone(r.System), slices.Clone(r.Messages), slices.Clone(r.Tools)
	return r
}

// A TitleHook is what the hook "title" sees before a title is made. Result, if it is set, is the title.
type TitleHook struct {
	Session string
	Model   Model
	Result  *string
}

// A CompactionHook is what the hook "compaction" sees. Result, if it is set, is the summary.
type CompactionHook struct {
	ModelRequest
	Result *string
}

// A RetryHook is what the hook "retry" sees before a failed model call is tried again. Retry and Delay
// may be changed.
type RetryHook struct {
	Session string
	Agent   string
	Model   Model
	Error   *AgentError
	Attempt int
	Retry   bool
	Delay   time.Duration
}

// HookPrompt registers the hook "prompt", in generation 1 "chat.message". stop takes it off.
func (d *SessionDomain) HookPrompt(f func(context.Context, *PromptHook) error) (stop func()) {
	return d.hooks.prompt.add(f)
}

// HookContext registers the hook "context", in generation 1 "experimental.chat.messages.transform": what
// it changes is what Turn.Request returns. stop takes it off.
func (d *SessionDomain) HookContext(f func(context.Context, *ModelRequest) error) (stop func()) {
	return d.hooks.context.add(f)
}

// HookGenerate registers the hook "generate". Generation 2. stop takes it off.
func (d *SessionDomain) HookGenerate(f func(context.Context, *ModelRequest) error) (stop func()) {
	return d.hooks.generate.add(f)
}

// HookTitle registers the hook "title". Generation 2. stop takes it off.
func (d *SessionDomain) HookTitle(f func(context.Context, *TitleHook) error) (stop func()) {
	return d.hooks.title.add(f)
}

// HookCompaction registers the hook "compaction". Generation 2. stop takes it off.
func (d *SessionDomain) HookCompaction(f func(context.Context, *CompactionHook) error) (stop func()) {
	return d.hooks.compaction.add(f)
}

// HookRetry registers the hook "retry". Generation 2. stop takes it off.
func (d *SessionDomain) HookRetry(f func(context.Context, *RetryHook) error) (stop func()) {
	return d.hooks.retry.add(f)
}

// hookPrompt passes a prompt through the hooks.
func (h *Host) hookPrompt(ctx context.Context, session string, in Prompt) Prompt {
	if len(h.Session.hooks.prompt.all()) == 0 {
		return in
	}
	e := PromptHook{Session: session}
	if h.profile.v1() {
		if e.Parts = in.Parts; e.Parts == nil {
			part := map[string]any{"type": "text", "text": in.Text}
			setIf(part, "id", in.PartID)
			if in.Synthetic {
				part["synthetic"] = true
			}
			if in.Metadata != nil {
				part["metadata"] = in.Metadata
			}
			e.Parts = []json.RawMessage{mustJSON(part)}
		}
		e.Agent, e.Model, e.Message = in.Agent, in.Model, in.ID
		in.Parts = h.Session.hooks.prompt.run(ctx, e, func(e PromptHook) PromptHook {
			e.Parts = slices.Clone(e.Parts)
			return e
		}).Parts
		return in
	}
	in.ID = cmp.Or(in.ID, h.newID("msg_"))
	e.Message, e.Text, e.Metadata, e.Delivery = in.ID, in.Text, in.Metadata, in.Delivery
	e = h.Session.hooks.prompt.run(ctx, e, func(e PromptHook) PromptHook { return e })
	in.Text, in.Metadata, in.Delivery = e.Text, e.Metadata, e.Delivery
	return in
}

// request is what the model of a session is sent, before the hooks.
func (h *Host) request(ctx context.Context, session, agent string, model Model) (ModelRequest, error) {
	r := ModelRequest{Session: session, Agent: agent, Model: model}
	var list []*Message
	err := h.tx(func(t *tx) (err error) {
		list, err = t.context(session)
		return err
	})
	if err != nil {
		return r, err
	}
	for _, m := range list {
		switch {
		case m.v1:
			r.Messages = append(r.Messages, mustJSON(m))
		case m.Type == "assistant":
			r.Messages = append(r.Messages, modelMessage(m, "assistant"))
		case m.Text() != "":
			r.Messages = append(r.Messages, modelMessage(m, "user"))
		}
	}
	rules, err := h.Permission.rules(session, agent)
	if err != nil {
		return r, err
	}
	for _, tool := range h.Tool.list.all() {
		if !hidden(tool, rules) {
			r.Tools = append(r.Tools, tool.Name)
		}
	}
	return r, nil
}

func modelMessage(m *Message, role string) json.RawMessage {
	return mustJSON(map[string]any{"id": m.ID, "role": role, "content": []textV2{{"text", m.Text()}}})
}

// Request returns what the model is sent for the step that is going on, after the hooks.
func (t *Turn) Request(ctx context.Context) (ModelRequest, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.openLocked(ctx); err != nil {
		return ModelRequest{}, err
	}
	if t.request == nil {
		r, err := t.h.request(ctx, t.session.ID, t.agent.Name, t.step.model)
		return r, err
	}
	return t.request.copied(), nil
}

package fakehost

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/teamchan/team"
)

// A Tool is what agents may call.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON schema
	Permission  string          // the action that Visible looks at; empty is Name
	MCP         bool            // comes from an MCP server, which matters in generation 1

	// Run does the work. Its error is what the model sees.
	Run func(ctx context.Context, c *ToolCall) (ToolOutput, error)

	// late says that Run itself says when it is running, as the host's tool does.
	late bool
}

// A ToolOutput is what a tool answers.
type ToolOutput struct {
	Title    string
	Text     string
	Output   any            // generation 2: the typed output
	Metadata map[string]any // what shows in the UI; "truncated" keeps the host from truncating
	Tail     bool           // generation 1: truncation keeps the end

	parts []contentPart // of an MCP server, in place of Text
}

// A ToolCall is one call, as the tool sees it.
type ToolCall struct {
	Session string
	Agent   string
	Message string
	ID      string // "call_…"
	Input   json.RawMessage

	c *call
}

// Decode reads the input into v, which must know every field.
func (c *ToolCall) Decode(v any) error {
	d := json.NewDecoder(bytes.NewReader(c.Input))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("invalid arguments for %s: %w; write the input as the schema says", c.c.tool, err)
	}
	return nil
}

// Ask asks for a permission for this call and waits.
func (c *ToolCall) Ask(ctx context.Context, action string, resources, save []string, metadata any) error {
	a := Ask{Session: c.Session, Agent: c.Agent, Action: action, Resources: resources, Save: save, Source: &Source{c.Message, c.ID}}
	if metadata != nil {
		a.Metadata = mustJSON(metadata)
	}
	return c.c.h.Permission.ask(ctx, a, func() error {
		// While it waits the call counts as running.
		if c.c.running {
			return nil
		}
		return c.c.run("", nil)
	})
}

// Progress shows a title and metadata while the tool is running.
func (c *ToolCall) Progress(title string, metadata map[string]any) error {
	return c.c.run(title, metadata)
}

// run marks the call as running, with what is known of it.
func (c *call) run(title string, metadata map[string]any) error {
	if !c.held {
		defer c.begun()
	}
	return c.h.tx(func(t *tx) error {
		if !c.running {
			c.running, c.began = true, t.now
		}
		c.title = cmp.Or(title, c.title)
		if metadata != nil {
			c.metadata = mustJSON(metadata)
		}
		return c.h.journal().toolRunning(t, c)
	})
}

func (c *call) pending() error {
	return c.h.tx(func(t *tx) error {
		c.began = t.now
		return c.h.journal().toolPending(t, c)
	})
}

// ToolDomain is the registry of tools, and the hooks round them.
type ToolDomain struct {
	h *Host

	list   namedList[Tool]
	before hookList[BeforeTool]
	after  hookList[AfterTool]
}

// A BeforeTool is what the hook execute.before sees. Input may be changed; an error keeps
// the tool from running and is what the model sees.
//
// OpenCode 1.18: tool.execute.before {tool, sessionID, callID} and {args}. 2.0:
// execute.before.
type BeforeTool struct {
	Tool    string
	Session string
	Agent   string // generation 2
	Message string // generation 2
	Call    string
	Input   json.RawMessage
}

// An AfterTool is what the hook execute.after sees. Result, in the host's shape, may be
// changed:
//
//	generation 1          {title, output, metadata, attachments}, already truncated
//	generation 1, MCP     {content: [{type, text}]}, not truncated
//	generation 2          {content, output?, metadata?}, not truncated
//	generation 2, failed  Status is "error" and Error {message}
//
// Generation 1 does not call it for a tool that failed.
type AfterTool struct {
	Tool    string
	Session string
	Agent   string // generation 2
	Message string // generation 2
	Call    string
	Input   json.RawMessage
	Status  string // "completed" or "error"
	Result  json.RawMessage
	Error   json.RawMessage
}

// Add registers a tool, in place of one of its name. stop takes it off.
func (d *ToolDomain) Add(tool Tool) (stop func(), err error) {
	if tool.Name == "" || tool.Run == nil {
		return nil, invalid("tool", "has no name or no Run", "set both")
	}
	return d.list.add(tool), nil
}

// List returns the tools.
func (d *ToolDomain) List(ctx context.Context) ([]Tool, error) {
	if err := d.h.enter(ctx, Call{Domain: "tool", Method: "list"}); err != nil {
		return nil, err
	}
	return d.list.all(), nil
}

// Visible returns the names of the tools that a session's model is told about: not those
// that its rules deny for everything.
func (d *ToolDomain) Visible(ctx context.Context, session string) ([]string, error) {
	tools, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	rules, err := d.h.Permission.rules(session, "")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, tool := range tools {
		if !hidden(tool, rules) {
			out = append(out, tool.Name)
		}
	}
	return out, nil
}

// hidden reports whether the last rule about a tool denies it for everything.
func hidden(tool Tool, rules []Rule) bool {
	out := false
	for _, r := range rules {
		if wildcard(r.Action, cmp.Or(tool.Permission, tool.Name)) {
			out = r.Resource == "*" && r.Effect == team.Deny
		}
	}
	return out
}

// Before registers a hook that runs before each tool, in the order of registration. stop
// takes it off.
func (d *ToolDomain) Before(f func(context.Context, *BeforeTool) error) (stop func()) {
	return d.before.add(f)
}

// After registers a hook that runs after each tool. What a hook changed before it returned an
// error is forgotten. stop takes it off.
func (d *ToolDomain) After(f func(context.Context, *AfterTool) error) (stop func()) {
	return d.after.add(f)
}

func (d *ToolDomain) get(name string) (Tool, bool) {
	return d.list.find(func(t Tool) bool { return t.Name == name })
}

// execute runs the call, from the hooks before it to the end of its part.
func (c *call) execute(ctx context.Context) {
	defer c.begun()
	out, err := c.answer(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err == nil {
		c.result = Result{Text: out.text(), Metadata: out.Metadata}
		c.content = mustJSON(out.Content)
	} else {
		c.result = Result{Text: c.failure(ctx, err), Metadata: c.metadata, Err: err}
	}
	// When the host was killed or the session removed there is nothing to write.
	_ = c.h.tx(func(t *tx) error { return c.h.journal().toolEnded(t, c) })
}

// failure is what the model reads of an error.
func (c *call) failure(ctx context.Context, err error) string {
	switch {
	case context.Cause(ctx) != nil && c.tool == c.h.profile.Subagent && c.h.profile.v1():
		return "Task cancelled"
	case context.Cause(ctx) != nil:
		return "Tool execution aborted"
	default:
		return err.Error()
	}
}

func (c *call) answer(ctx context.Context) (*toolResult, error) {
	d := c.h.Tool
	if err := c.h.enter(ctx, Call{Domain: "tool", Method: "execute", Session: c.step.session.ID, Name: c.tool}); err != nil {
		return nil, err
	}
	after := d.after.all() // those of when the call began
	b := &BeforeTool{Tool: c.tool, Session: c.step.session.ID, Call: c.id, Input: c.input}
	if !c.h.profile.v1() {
		b.Agent, b.Message = c.step.agent, c.step.id
	}
	for _, hook := range d.before.all() {
		if err := (*hook)(ctx, b); err != nil {
			return nil, err
		}
	}
	if !json.Valid(b.Input) {
		return nil, errors.New("a hook before the tool made the input invalid JSON")
	}
	c.input = b.Input
	tool, ok := d.get(b.Tool)
	rules, err := c.h.Permission.rules(c.step.session.ID, c.step.agent)
	if err != nil {
		return nil, err
	}
	// To a model a hidden tool is one that is not there.
	if !ok || hidden(tool, rules) && !c.byUser {
		return nil, fmt.Errorf("unknown tool %q; use one of the list", b.Tool)
	}
	if !tool.late {
		if err := c.run("", nil); err != nil {
			return nil, err
		}
	}
	raw, err := tool.Run(ctx, &ToolCall{c.step.session.ID, c.step.agent, c.step.id, c.id, c.input, c})
	if !c.running {
		if err := c.run("", nil); err != nil {
			return nil, err
		}
	}
	if err != nil && c.h.profile.v1() {
		return nil, err
	}
	a := &AfterTool{Tool: b.Tool, Session: b.Session, Agent: b.Agent, Message: b.Message, Call: c.id, Input: c.input, Status: "completed"}
	if err != nil {
		a.Status, a.Error = "error", mustJSON(map[string]any{"message": err.Error()})
		c.after(ctx, after, a)
		var changed struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(a.Error, &changed) == nil && changed.Message != err.Error() {
			err = &changedError{changed.Message, err}
		}
		return nil, err
	}
	c.title = cmp.Or(raw.Title, c.title)
	out := c.h.newResult(raw)
	if c.h.profile.TruncateBeforeHook && !tool.MCP {
		if err := out.truncate(c.h, raw.Tail); err != nil {
			return nil, err
		}
	}
	a.Result = out.encode(c.h, tool.MCP, c.title)
	c.after(ctx, after, a)
	out.decode(c.h, tool.MCP, a.Result)
	return out, out.truncate(c.h, raw.Tail)
}

// A changedError is an error whose text a hook has changed.
type changedError struct {
	text string
	err  error
}

func (e *changedError) Error() string { return e.text }
func (e *changedError) Unwrap() error { return e.err }

// after runs the hooks; a hook that fails has changed nothing.
func (c *call) after(ctx context.Context, hooks []*func(context.Context, *AfterTool) error, a *AfterTool) {
	for _, hook := range hooks {
		result, failure := bytes.Clone(a.Result), bytes.Clone(a.Error)
		if err := (*hook)(ctx, a); err != nil {
			a.Result, a.Error = result, failure
		}
	}
}

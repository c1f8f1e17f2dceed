package fakehost

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
)

// A Command is a prompt with a name.
type Command struct {
	Name        string
	Description string
	Template    string // $ARGUMENTS stands for what the user adds
	Agent       string // generation 1: who answers; empty is the session's

	// Subtask dispatches the prompt to Agent, or to general, as a subagent. The user has asked for it
	// himself, so the permission for subagents is neither evaluated nor asked for. Generation 1.
	Subtask bool
}

// CommandDomain is the commands that Session.Command knows.
type CommandDomain struct {
	h *Host

	list   namedList[Command]
	before hookList[BeforeCommand]
}

// A BeforeCommand is what the hook command.execute.before sees: the parts of the prompt may be
// changed. OpenCode 1.18.
type BeforeCommand struct {
	Command   string
	Session   string
	Arguments string
	Parts     []json.RawMessage
}

// Add registers a command, in place of the one of its name. stop takes it off. Generation 2
// publishes command.updated.
func (d *CommandDomain) Add(c Command) (stop func(), err error) {
	if c.Name == "" || c.Template == "" {
		return nil, invalid("command", "has no name or no template", "set both")
	}
	if c.Subtask && !d.h.profile.v1() {
		return nil, d.h.absent("command that is a subtask")
	}
	off := d.list.add(c)
	d.h.updated("command.updated", nil)
	return func() {
		off()
		d.h.updated("command.updated", nil)
	}, nil
}

// List returns the commands.
func (d *CommandDomain) List(ctx context.Context) ([]Command, error) {
	if err := d.h.enter(ctx, Call{Domain: "command", Method: "list"}); err != nil {
		return nil, err
	}
	return d.list.all(), nil
}

// Before registers a hook that runs before a command becomes a prompt, in the order of registration;
// an error keeps it from that. stop takes it off. In generation 2, which has no such hook, it is
// registered and not called.
func (d *CommandDomain) Before(f func(context.Context, *BeforeCommand) error) (stop func()) {
	return d.before.add(f)
}

func (d *CommandDomain) get(name string) (Command, bool) {
	return d.list.find(func(c Command) bool { return c.Name == name })
}

// A subtask is the part of a prompt that has a subagent do it. Generation 1.
type subtask struct {
	Type        string `json:"type"`
	Agent       string `json:"agent"`
	Description string `json:"description"`
	Command     string `json:"command,omitempty"`
	Prompt      string `json:"prompt"`
}

// Command admits a command's prompt with arguments in it. A *NotFoundError if there is none of
// that name.
func (d *SessionDomain) Command(ctx context.Context, session, name, arguments string) (InboxItem, error) {
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "command", Session: session, Name: name}); err != nil {
		return InboxItem{}, err
	}
	c, ok := d.h.Command.get(name)
	if !ok {
		return InboxItem{}, &NotFoundError{"command", name}
	}
	return d.command(ctx, session, c, arguments, Prompt{})
}

// command admits the prompt of c, with what of in the caller has chosen: generation 1 lets it
// choose the message's id, and an agent and a model where the command has none.
func (d *SessionDomain) command(ctx context.Context, session string, c Command, arguments string, in Prompt) (InboxItem, error) {
	name, text := c.Name, strings.ReplaceAll(c.Template, "$ARGUMENTS", arguments)
	if !d.h.profile.v1() {
		return d.admit(ctx, "prompt", session, "user", Prompt{Text: text, Agent: c.Agent})
	}
	in.Agent = cmp.Or(c.Agent, in.Agent)
	part := mustJSON(map[string]any{"type": "text", "text": text})
	if c.Subtask {
		in.Agent = ""
		part = mustJSON(subtask{"subtask", cmp.Or(c.Agent, "general"), cmp.Or(c.Description, c.Name), c.Name, text})
	}
	b := &BeforeCommand{Command: name, Session: session, Arguments: arguments, Parts: []json.RawMessage{part}}
	for _, hook := range d.h.Command.before.all() {
		if err := (*hook)(ctx, b); err != nil {
			return InboxItem{}, err
		}
	}
	in.Parts = b.Parts
	item, err := d.admit(ctx, "prompt", session, "user", in)
	if err != nil {
		return item, err
	}
	return item, d.h.tx(func(t *tx) error {
		t.emit("command.executed", session, map[string]any{"name": name, "sessionID": session, "arguments": arguments, "messageID": item.ID})
		return nil
	})
}

// subtasks lets subagents do what the prompts' subtask parts say, each in a step of its own, and
// adds a note of the host's to the prompts, with which the agent goes on.
func (t *Turn) subtasks(ctx context.Context) error {
	var todo []subtask
	for _, item := range t.prompts {
		var p struct {
			Subtasks []subtask `json:"subtasks"`
		}
		if err := json.Unmarshal(item.Payload, &p); err != nil {
			return err
		}
		todo = append(todo, p.Subtasks...)
	}
	for _, s := range todo {
		in := t.h.dispatchInput(s.Agent, s.Description, s.Prompt, false)
		in.Command = s.Command
		if _, err := t.callAll(ctx, true, ToolUse{t.h.profile.Subagent, in}); err != nil {
			return err
		}
	}
	if len(todo) == 0 {
		return nil
	}
	err := t.h.tx(func(x *tx) error {
		_, err := x.admit(t.session.ID, "synthetic", Prompt{Text: "Go on with the results of the subagents.", Synthetic: true})
		return err
	})
	if err != nil {
		return err
	}
	more, err := t.boundary("")
	t.prompts = append(t.prompts, more...)
	return err
}

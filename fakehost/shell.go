package fakehost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// maxShownBytes is how much of a command's output metadata has. OpenCode 1.18.33.
const maxShownBytes = 30000

type shellInput struct {
	Command     string `json:"command"`
	Description string `json:"description,omitempty"`
	Timeout     int64  `json:"timeout,omitempty"` // ms
	Workdir     string `json:"workdir,omitempty"`
	Background  bool   `json:"background,omitempty"` // generation 2
}

// shellTool runs a command in the workspace. What is asked for is each of its commands; what
// "always" allows, its first word with any arguments (the real host knows for some commands how
// many words name them: "git push *"). It is a real shell: it can leave the
// workspace, and only its working folder is checked.
func (h *Host) shellTool(ctx context.Context, c *ToolCall) (ToolOutput, error) {
	var in shellInput
	if err := c.Decode(&in); err != nil {
		return ToolOutput{}, err
	}
	if in.Background && h.Shell == nil {
		return ToolOutput{}, errors.New("this host runs no command in the background; run it in the foreground")
	}
	commands := splitCommands(in.Command)
	if len(commands) == 0 {
		return ToolOutput{}, errors.New("no command; write one")
	}
	dir := h.opts.Directory
	if in.Workdir != "" {
		at, err := h.place(ctx, c, in.Workdir, true)
		if err != nil {
			return ToolOutput{}, err
		}
		dir = at.abs
		at.root.Close()
	}
	var always []string
	for _, command := range commands {
		always = append(always, strings.Fields(command)[0]+" *")
	}
	if err := c.Ask(ctx, h.profile.Shell, commands, always, map[string]any{"command": in.Command}); err != nil {
		return ToolOutput{}, err
	}
	if err := h.showShell(c); err != nil {
		return ToolOutput{}, err
	}
	limit := 2 * time.Minute
	if in.Timeout > 0 {
		limit = time.Duration(min(in.Timeout, 10*60*1000)) * time.Millisecond
	}
	if in.Background {
		if in.Timeout <= 0 {
			limit = 0 // as long as the host
		}
		info := h.Shell.background(c.Session, in.Command, dir, limit)
		return ToolOutput{Title: in.Command, Text: "The command " + info.ID + " is running in the background.",
			Output: map[string]any{"shellID": info.ID, "status": "running"}, Metadata: map[string]any{"shellID": info.ID}}, nil
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := shellCommand(limited, dir, in.Command)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	text := strings.ToValidUTF8(out.String(), "\uFFFD")
	if cause := context.Cause(ctx); cause != nil {
		return ToolOutput{}, cause
	}
	meta := map[string]any{"output": text, "exit": 0}
	if h.profile.v1() {
		shown := text
		if len(shown) > maxShownBytes {
			shown = "...\n\n" + strings.ToValidUTF8(shown[len(shown)-maxShownBytes:], "")
		}
		meta["output"] = shown
		if err := c.Progress("", map[string]any{"output": shown}); err != nil {
			return ToolOutput{}, err
		}
	} else {
		delete(meta, "output")
	}
	var exit *exec.ExitError
	switch {
	case limited.Err() != nil:
		meta["exit"], meta["timeout"] = nil, true
		text += fmt.Sprintf("\nthe command was stopped after %v", limit)
	case errors.As(err, &exit):
		meta["exit"] = exit.ExitCode()
	case err != nil:
		return ToolOutput{}, err
	}
	return ToolOutput{Title: in.Command, Text: text, Metadata: meta, Tail: true}, nil
}

// showShell says that the command runs: generation 1 once as a running tool, unless it has
// waited for a permission and said so then, and once with its output, which is empty yet.
func (h *Host) showShell(c *ToolCall) error {
	if !h.profile.v1() {
		if c.c.running {
			return nil
		}
		return c.Progress("", nil)
	}
	empty := map[string]any{"output": ""}
	if !c.c.running {
		if err := c.Progress("", empty); err != nil {
			return err
		}
	}
	return c.Progress("", empty)
}

// splitCommands returns the commands of a line, without what joins them. Quotes hold; what
// is in a substitution stays with its command.
func splitCommands(line string) []string {
	var out []string
	var quote byte
	depth, from := 0, 0
	add := func(to int) {
		if s := strings.TrimSpace(line[from:to]); s != "" {
			out = append(out, s)
		}
		from = to + 1
	}
	for i := 0; i < len(line); i++ {
		switch ch := line[i]; {
		case quote == 0 && ch == '\\', quote == '"' && ch == '\\':
			i++
		case quote != 0:
			if ch == quote {
				quote = 0
			}
		case ch == '\'' || ch == '"':
			quote = ch
		case ch == '(':
			depth++
		case ch == ')':
			depth = max(depth-1, 0)
		case depth == 0 && (ch == ';' || ch == '|' || ch == '\n'):
			add(i)
		case depth == 0 && ch == '&' && (i == 0 || line[i-1] != '>') && (i+1 == len(line) || line[i+1] != '>'):
			add(i)
		}
	}
	add(len(line))
	return out
}

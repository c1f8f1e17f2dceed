package fakehost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// ShellDomain is the commands that run beside the turns: those that the user runs, and those that the
// shell tool was told to run in the background. They are in memory and end with the host.
//
// OpenCode 2.0: POST /api/session/:id/shell, ctx.shell, events shell.created and shell.exited. On 1.18 the
// user's shell is another one, which is not here.
type ShellDomain struct {
	h *Host

	mu   sync.Mutex // guards list
	list []*shellJob
}

// A ShellInfo is a command that runs or ran.
type ShellInfo struct {
	ID       string          `json:"id"`     // "sh_…"
	Status   string          `json:"status"` // "running", "exited", "timeout", "killed"
	Command  string          `json:"command"`
	Cwd      string          `json:"cwd"`
	Shell    string          `json:"shell"`
	File     string          `json:"file"` // of the output; here it is kept in memory, and empty
	Exit     *int            `json:"exit,omitempty"`
	Metadata json.RawMessage `json:"metadata"`
	Time     ShellTime       `json:"time"`
}

// A ShellTime says when a command ran, in ms.
type ShellTime struct {
	Started   int64 `json:"started"`
	Completed int64 `json:"completed,omitempty"`
}

type shellJob struct {
	info   ShellInfo
	cancel func(error)
}

var errKilled = errors.New("the command was killed")

// shellCommand returns the command line as the system's shell runs it, in a folder.
func shellCommand(ctx context.Context, dir, line string) *exec.Cmd {
	shell, flag := shellProgram()
	cmd := exec.CommandContext(ctx, shell, flag, line)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	return cmd
}

func shellProgram() (program, flag string) {
	if runtime.GOOS == "windows" {
		return "cmd", "/C"
	}
	return "/bin/sh", "-c"
}

// Run runs a command for the user in the session's workspace and waits for it: session.shell.started and
// session.shell.ended, and a message of type shell in the history. Nobody is asked, and the session
// is not woken.
func (d *ShellDomain) Run(ctx context.Context, session, command string) (ShellInfo, string, error) {
	if err := d.h.enter(ctx, Call{Domain: "shell", Method: "run", Session: session}); err != nil {
		return ShellInfo{}, "", err
	}
	if strings.TrimSpace(command) == "" {
		return ShellInfo{}, "", invalid("command", "is empty", "write one")
	}
	if _, err := d.h.Session.Get(ctx, session); err != nil {
		return ShellInfo{}, "", err
	}
	job, ctx := d.start(ctx, session, command, d.h.opts.Directory)
	var message string
	shape := func(output string) map[string]any {
		i := job.info
		out := map[string]any{"id": message, "type": "shell", "shellID": i.ID, "command": i.Command, "status": i.Status}
		at := map[string]any{"created": i.Time.Started}
		if i.Status != "running" {
			out["output"], at["completed"] = output, i.Time.Completed
		}
		if i.Exit != nil {
			out["exit"] = *i.Exit
		}
		out["time"] = at
		return out
	}
	err := d.h.tx(func(t *tx) error {
		if _, err := t.session(session); err != nil {
			return err
		}
		e, err := t.durable("session.shell.started", session, 1, map[string]any{"sessionID": session, "shell": job.info})
		if err != nil {
			return err
		}
		message = messageID(e.ID)
		return t.insertMessage(message, session, "shell", shape(""))
	})
	if err != nil {
		d.remove(job)
		return ShellInfo{}, "", err
	}
	output := d.wait(ctx, job, 0)
	return job.info, output, d.h.tx(func(t *tx) error {
		_, err := t.durable("session.shell.ended", session, 1, map[string]any{"sessionID": session, "shell": job.info,
			"output": map[string]any{"output": output, "cursor": len(output), "size": len(output), "truncated": false}})
		if err != nil {
			return err
		}
		return t.updateMessage(message, shape(output))
	})
}

// start registers a command, which ends with ctx, with the host, or by Kill.
func (d *ShellDomain) start(ctx context.Context, session, command, dir string) (*shellJob, context.Context) {
	shell, _ := shellProgram()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.h.life, func() { cancel(errShutdown) })
	job := &shellJob{info: ShellInfo{ID: d.h.newID("sh_"), Status: "running", Command: command, Cwd: dir, Shell: shell,
		Metadata: mustJSON(map[string]any{"sessionID": session}), Time: ShellTime{Started: d.h.now().UnixMilli()}}, cancel: func(err error) {
		stop()
		cancel(err)
	}}
	d.mu.Lock()
	d.list = append(d.list, job)
	d.mu.Unlock()
	d.h.updated("shell.created", map[string]any{"info": job.info})
	return job, ctx
}

func (d *ShellDomain) remove(job *shellJob) {
	job.cancel(nil)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = slices.DeleteFunc(d.list, func(o *shellJob) bool { return o == job })
}

// wait runs the command to its end and returns its output.
func (d *ShellDomain) wait(ctx context.Context, job *shellJob, limit time.Duration) string {
	defer job.cancel(nil)
	limited := ctx
	if limit > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	cmd := shellCommand(limited, job.info.Cwd, job.info.Command)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	text := strings.ToValidUTF8(out.String(), "\uFFFD")
	status, code := "exited", 0
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		status = "killed"
	case limited.Err() != nil:
		status = "timeout"
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		code, text = 127, text+err.Error()
	}
	d.mu.Lock()
	job.info.Status, job.info.Time.Completed = status, d.h.now().UnixMilli()
	if status == "exited" {
		job.info.Exit = &code
	}
	data := map[string]any{"id": job.info.ID, "status": status}
	if job.info.Exit != nil {
		data["exit"] = code
	}
	d.mu.Unlock()
	d.h.updated("shell.exited", data)
	return text
}

// background runs a command of the shell tool on its own. When it has ended, the session is told, and
// woken.
func (d *ShellDomain) background(session, command, dir string, limit time.Duration) ShellInfo {
	job, ctx := d.start(d.h.life, session, command, dir)
	info := job.info
	d.h.work.Go(func() {
		text := d.wait(ctx, job, limit)
		if d.h.life.Err() != nil {
			return // a host that ends tells nobody
		}
		done := job.info
		state := map[string]string{"exited": "completed", "timeout": "error", "killed": "cancelled"}[done.Status]
		meta := map[string]any{"source": "shell", "shellID": done.ID, "state": state, "truncated": false}
		if done.Exit != nil {
			meta["exit"] = *done.Exit
			if *done.Exit != 0 {
				meta["state"], state = "error", "error"
			}
		}
		if done.Status == "timeout" {
			meta["timeout"] = true
		}
		// Where the session was removed there is nobody to tell.
		_ = d.h.tx(func(t *tx) error {
			_, err := t.admit(session, "synthetic", Prompt{Description: command, Metadata: mustJSON(meta),
				Text: fmt.Sprintf("<shell id=\"%s\" state=\"%s\" command=\"%s\">\n%s\n</shell>", done.ID, state, command, strings.TrimSuffix(text, "\n"))})
			return err
		})
	})
	return info
}

// List returns the commands, oldest first: those that run and those that have ended.
func (d *ShellDomain) List(ctx context.Context) ([]ShellInfo, error) {
	if err := d.h.enter(ctx, Call{Domain: "shell", Method: "list"}); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []ShellInfo
	for _, job := range d.list {
		out = append(out, job.info)
	}
	return out, nil
}

// Kill stops a command; of one that has ended it changes nothing.
func (d *ShellDomain) Kill(ctx context.Context, id string) error {
	if err := d.h.enter(ctx, Call{Domain: "shell", Method: "kill", Name: id}); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, job := range d.list {
		if job.info.ID == id {
			job.cancel(errKilled)
			return nil
		}
	}
	return &NotFoundError{"shell", id}
}

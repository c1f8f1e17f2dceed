package fakehost

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os/exec"
	"strings"
)

// userShell runs a command that the user, not a model, has asked for, and returns the message that
// has it as a tool call. Nobody is asked for permission, a failure shows in the output only, and the
// session is not woken. Generation 1; ShellDomain.Run is that of generation 2.
//
// OpenCode 1.18.33: POST /session/:id/shell.
func (d *SessionDomain) userShell(ctx context.Context, session, agent, command, id string, model Model) (*Message, error) {
	h := d.h
	if err := h.enter(ctx, Call{Domain: "session", Method: "shell", Session: session}); err != nil {
		return nil, err
	}
	if h.opts.Directory == "" {
		return nil, h.absent("shell without a folder: set Options.Directory")
	}
	if _, err := h.Agent.get(agent); err != nil {
		return nil, err
	}
	j := journalV1{}
	var st *step
	var c *call
	err := h.tx(func(t *tx) error {
		s, err := t.session(session)
		if err != nil {
			return err
		}
		if h.runs[session] != nil {
			return &ConflictError{session, "is busy; wait until it is idle"}
		}
		user := userV1{ID: cmp.Or(id, h.newID("msg_")), Session: session, Role: "user", Time: createdV1{t.now}, Agent: agent, Model: toModelV1(model)}
		switch was, err := t.message(user.ID); {
		case err == nil && was.Session != session:
			return &ConflictError{id, "belongs to a message of another session"}
		case err != nil: // a message that is there gets another part
			if err := t.insertMessage(user.ID, session, "user", user); err != nil {
				return err
			}
		}
		t.emit("message.updated", session, map[string]any{"sessionID": session, "info": user})
		st = &step{id: user.ID, session: s, agent: agent, model: model, began: t.now}
		note := map[string]any{"type": "text", "synthetic": true, "text": "The user has run this command."}
		if err := j.part(t, st, h.newID("prt_"), note); err != nil {
			return err
		}
		st = &step{id: h.newID("msg_"), session: s, agent: agent, model: model, parent: user.ID, began: t.now}
		if err := t.insertMessage(st.id, session, "assistant", st.infoV1()); err != nil {
			return err
		}
		t.emit("message.updated", session, map[string]any{"sessionID": session, "info": st.infoV1()})
		c = &call{h: h, step: st, id: strings.TrimPrefix(h.newID("call_"), "call_"), part: h.newID("prt_"), tool: h.profile.Shell,
			input: mustJSON(map[string]string{"command": command}), began: t.now}
		j.busy(t, s)
		return j.toolRunning(t, c)
	})
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.life, func() { cancel(errShutdown) })()
	var out bytes.Buffer
	cmd := shellCommand(running, h.opts.Directory, command)
	cmd.Stdout, cmd.Stderr = &out, &out
	runErr := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](runErr); runErr != nil && !exited {
		out.WriteString(runErr.Error())
	}
	text := strings.ToValidUTF8(out.String(), "\uFFFD")
	err = h.tx(func(t *tx) error {
		c.result = Result{Text: text, Metadata: mustJSON(map[string]string{"output": text})}
		if err := j.toolEnded(t, c); err != nil {
			return err
		}
		st.ended = t.now
		if err := j.message(t, session, st.id, st.infoV1()); err != nil {
			return err
		}
		j.rest(t, st.session)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d.Message(ctx, session, st.id)
}

package fakehost

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
)

// compact handles a control item: what came before it leaves the context, and a summary,
// which is the number of messages, comes in its place. The hook "compaction" or else the agent
// compaction, if its script is set, writes the summary instead.
func (h *Host) compact(r *run, s *Session, item InboxItem) error {
	var summary string
	err := h.tx(func(t *tx) error {
		list, err := t.context(s.ID)
		if err != nil {
			return err
		}
		summary = fmt.Sprintf("summary of %d messages", len(list))
		_, err = t.durable("session.compaction.started", s.ID, 1,
			map[string]any{"sessionID": s.ID, "reason": "manual", "recent": "", "inputID": item.ID})
		return err
	})
	if err != nil {
		return err
	}
	hook, err := h.compactionHook(r.ctx, s)
	if err != nil {
		return err
	}
	if hook.Result != nil {
		summary = *hook.Result
	} else if a, err := h.Agent.get("compaction"); err == nil && a.Script != nil {
		if summary, err = a.Script(r.ctx, &Turn{h: h, run: r, session: s, agent: a, prompts: []InboxItem{item}}); err != nil {
			_ = h.tx(func(t *tx) error {
				_, err := t.durable("session.compaction.failed", s.ID, 1,
					map[string]any{"sessionID": s.ID, "reason": "manual", "error": toErrorV2(agentError(err)), "inputID": item.ID})
				return err
			})
			return err
		}
	}
	return h.tx(func(t *tx) error {
		data := map[string]any{"status": "completed", "reason": "manual", "summary": summary, "recent": ""}
		e, err := t.durable("session.compaction.ended", s.ID, 1,
			map[string]any{"sessionID": s.ID, "reason": "manual", "summary": summary, "recent": "", "inputID": item.ID})
		if err != nil {
			return err
		}
		data["id"], data["type"], data["time"] = item.ID, "compaction", map[string]any{"created": e.Created}
		return t.insertMessage(item.ID, s.ID, "compaction", data)
	})
}

// compactionHook is what the hooks make of a compaction.
func (h *Host) compactionHook(ctx context.Context, s *Session) (CompactionHook, error) {
	hooks := &h.Session.hooks.compaction
	if len(hooks.all()) == 0 {
		return CompactionHook{}, nil
	}
	r, err := h.request(ctx, s.ID, h.agentOf(s), *cmp.Or(s.Model, &h.opts.Model))
	if err != nil {
		return CompactionHook{}, err
	}
	return hooks.run(ctx, CompactionHook{ModelRequest: r}, func(e CompactionHook) CompactionHook {
		e.ModelRequest = e.copied()
		return e
	}), nil
}

// move handles a control item: from now on the session is in another folder.
func (h *Host) move(s *Session, item InboxItem) error {
	var to struct {
		Location  location `json:"location"`
		ProjectID string   `json:"projectID"`
	}
	if err := json.Unmarshal(item.Payload, &to); err != nil {
		return err
	}
	return h.tx(func(t *tx) error {
		s, err := t.session(s.ID)
		if err != nil {
			return err
		}
		was := s.Directory
		s.Directory = to.Location.Directory
		if err := t.saveSession(s); err != nil {
			return err
		}
		_, err = t.durable("session.moved", s.ID, 1, map[string]any{"sessionID": s.ID, "location": to.Location, "projectID": to.ProjectID})
		if err != nil {
			return err
		}
		return t.insertMessage(item.ID, s.ID, "location-switched", map[string]any{"id": item.ID, "type": "location-switched",
			"location": to.Location, "projectID": to.ProjectID, "previous": location{was}, "time": map[string]any{"created": t.now}})
	})
}

// Summarize compacts a session at once. Generation 1; see Compact for generation 2. It is
// refused while the session is busy.
func (d *SessionDomain) Summarize(ctx context.Context, session string) error {
	return d.summarize(ctx, session, d.h.opts.Model)
}

func (d *SessionDomain) summarize(ctx context.Context, session string, model Model) error {
	if !d.h.profile.v1() {
		return d.h.absent("session.summarize")
	}
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "summarize", Session: session}); err != nil {
		return err
	}
	return d.h.tx(func(t *tx) error {
		s, err := t.session(session)
		if err != nil {
			return err
		}
		if t.h.runs[session] != nil {
			return &ConflictError{session, "is busy; wait until it is idle"}
		}
		list, err := t.context(session)
		if err != nil {
			return err
		}
		j := journalV1{}
		agent := t.h.agentOf(s)
		user := userV1{ID: t.h.newID("msg_"), Session: session, Role: "user", Time: createdV1{t.now}, Agent: agent, Model: toModelV1(model)}
		if err := t.insertMessage(user.ID, session, "user", user); err != nil {
			return err
		}
		t.emit("message.updated", session, map[string]any{"sessionID": session, "info": user})
		st := &step{id: user.ID, session: s, agent: agent, model: model, began: t.now}
		if err := j.part(t, st, t.h.newID("prt_"), map[string]any{"type": "compaction", "auto": false}); err != nil {
			return err
		}
		st = &step{id: t.h.newID("msg_"), session: s, agent: "compaction", model: model, parent: user.ID, began: t.now, summary: true}
		info := st.infoV1()
		if err := t.insertMessage(st.id, session, "assistant", info); err != nil {
			return err
		}
		t.emit("message.updated", session, map[string]any{"sessionID": session, "info": info})
		if err := j.text(t, st, fmt.Sprintf("summary of %d messages", len(list))); err != nil {
			return err
		}
		st.finish, st.ended = "stop", t.now
		if err := j.stepEnded(t, st); err != nil {
			return err
		}
		t.emit("session.compacted", session, map[string]any{"sessionID": session})
		return nil
	})
}

package fakehost

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/teamchan/team"
)

// A Prompt is work for a session.
type Prompt struct {
	// ID is the caller's "msg_…" id, or empty for a new one. In generation 2 it is the
	// idempotency key: the first admission wins, and is what comes back. In generation
	// 1 a message that is there, in whatever session, gets another part.
	ID string

	Text     string
	Metadata json.RawMessage
	Delivery team.Delivery // empty is steer; generation 2
	NoResume bool          // records without waking: resume:false, or noReply

	Files, Agents, Skills json.RawMessage // arrays; generation 2
	Description           string          // of a synthetic

	// Generation 1.
	PartID    string            // "prt_…"; the part of that id is overwritten
	Parts     []json.RawMessage // instead of Text
	Synthetic bool              // marks the part as written by a program
	Agent     string            // from this prompt on; empty is "build", whatever the session's was
	Model     *Model
	options   optionsV1
}

func (p Prompt) check() error {
	if p.ID != "" {
		if err := checkID("message", p.ID, "msg_"); err != nil {
			return err
		}
	}
	if p.PartID != "" {
		if err := checkID("part", p.PartID, "prt_"); err != nil {
			return err
		}
	}
	if !utf8.ValidString(p.Text) || !utf8.ValidString(p.Description) {
		return invalid("prompt text", "is not UTF-8", "send text")
	}
	for _, j := range append([]json.RawMessage{p.Metadata, p.Files, p.Agents, p.Skills}, p.Parts...) {
		if j != nil && !json.Valid(j) {
			return invalid("prompt", "has a field that is not JSON", "send JSON")
		}
	}
	return checkDelivery(p.Delivery)
}

// Prompt gives a session work from a user. It returns when the work is recorded: in the
// inbox, or in generation 1 as a message, whose id it has. If the id was used before, the
// answer is the admission of then: compare its text. A *ConflictError if the id belongs to
// something else.
func (d *SessionDomain) Prompt(ctx context.Context, session string, in Prompt) (InboxItem, error) {
	return d.admit(ctx, "prompt", session, "user", in)
}

// Synthetic gives a session a text from a program. Nobody is asked for permission.
// Generation 1 has a Prompt with Synthetic set instead.
func (d *SessionDomain) Synthetic(ctx context.Context, session string, in Prompt) (InboxItem, error) {
	if d.h.profile.v1() {
		return InboxItem{}, d.h.absent("session.synthetic")
	}
	return d.admit(ctx, "synthetic", session, "synthetic", in)
}

func (d *SessionDomain) admit(ctx context.Context, method, session, typ string, in Prompt) (InboxItem, error) {
	if err := d.h.enter(ctx, Call{Domain: "session", Method: method, Session: session, Name: in.ID}); err != nil {
		return InboxItem{}, err
	}
	in.Delivery = cmp.Or(in.Delivery, team.DeliverySteer)
	if err := in.check(); err != nil {
		return InboxItem{}, err
	}
	if in.Agent != "" {
		if _, err := d.h.Agent.get(in.Agent); err != nil {
			return InboxItem{}, err
		}
	}
	if typ == "user" {
		var err error
		if d.h.profile.v1() {
			if in.Parts, err = attached(in.Parts); err != nil {
				return InboxItem{}, err
			}
		}
		in = d.h.hookPrompt(ctx, session, in)
		if err := in.check(); err != nil {
			return InboxItem{}, err
		}
	}
	var out InboxItem
	err := d.h.tx(func(t *tx) error {
		var err error
		out, err = t.admit(session, typ, in)
		return err
	})
	return out, err
}

// admit records in and wakes the session.
func (t *tx) admit(session, typ string, in Prompt) (InboxItem, error) {
	in.Delivery = cmp.Or(in.Delivery, team.DeliverySteer)
	s, err := t.session(session)
	if err != nil {
		return InboxItem{}, err
	}
	if typ == "user" {
		if err := t.commitRevert(s); err != nil {
			return InboxItem{}, err
		}
	}
	var out InboxItem
	if t.h.profile.v1() {
		if typ == "synthetic" { // the host's own work
			in.Agent = cmp.Or(in.Agent, s.Agent)
		}
		out, err = t.admitV1(s, in)
	} else {
		payload := map[string]any{"text": in.Text}
		setIf(payload, "description", in.Description)
		for k, v := range map[string]json.RawMessage{"metadata": in.Metadata, "files": in.Files, "agents": in.Agents, "skills": in.Skills} {
			if v != nil {
				payload[k] = v
			}
		}
		out, err = t.admitItem(InboxItem{ID: in.ID, Session: session, Type: typ, Payload: mustJSON(payload), Delivery: in.Delivery})
	}
	if err == nil && !in.NoResume && s.Revert == nil {
		t.wake(out.Session)
	}
	return out, err
}

// admitItem stores an item, unless its id was used before.
func (t *tx) admitItem(i InboxItem) (InboxItem, error) {
	if i.ID == "" {
		i.ID = t.h.newID("msg_")
		return i, t.enqueue(&i)
	}
	pending, err := t.inbox(`WHERE id = ?`, i.ID)
	if err != nil {
		return i, err
	}
	if len(pending) > 0 {
		was := pending[0]
		if was.Session != i.Session || was.Type != i.Type || was.control() {
			return InboxItem{}, &ConflictError{i.ID, "belongs to another item of the inbox"}
		}
		return was, t.compare(i, was)
	}
	m, err := t.message(i.ID)
	if _, missing := err.(*NotFoundError); missing {
		return i, t.enqueue(&i)
	}
	if err != nil {
		return i, err
	}
	if m.Session != i.Session || m.Type != i.Type || i.control() {
		return InboxItem{}, &ConflictError{i.ID, "belongs to another message"}
	}
	was := InboxItem{ID: m.ID, Session: m.Session, Type: m.Type, Delivery: i.Delivery, Created: m.Created}
	var data map[string]json.RawMessage
	if err := json.Unmarshal(m.Data, &data); err != nil {
		return i, err
	}
	for _, k := range []string{"id", "type", "time"} {
		delete(data, k)
	}
	was.Payload = mustJSON(data)
	return was, t.compare(i, was)
}

// compare is the host's old mode, in which a reused id had to come with the same payload.
func (t *tx) compare(i, was InboxItem) error {
	if t.h.has(FaultCompareMode) && (!bytes.Equal(i.Payload, was.Payload) || i.Delivery != was.Delivery) {
		return &ConflictError{i.ID, "was used with another payload or delivery"}
	}
	return nil
}

// admitV1 writes the message at once; the row of the inbox is only what the loop has not
// seen yet. One message id is one message, wherever it is.
func (t *tx) admitV1(s *Session, in Prompt) (InboxItem, error) {
	id := cmp.Or(in.ID, t.h.newID("msg_"))
	was, err := t.message(id)
	if _, missing := err.(*NotFoundError); err != nil && !missing {
		return InboxItem{}, err
	}
	if was != nil && was.Session != s.ID {
		if s, err = t.session(was.Session); err != nil {
			return InboxItem{}, err
		}
	}
	agent, model := cmp.Or(in.Agent, "build"), in.Model
	if model == nil {
		last := *cmp.Or(s.Model, &t.h.opts.Model)
		last.Variant = "" // which is of one prompt
		model = &last
	}
	if agent != s.Agent || s.Model == nil || *s.Model != *model {
		s.Agent, s.Model = agent, model
		if err := t.touch(s); err != nil {
			return InboxItem{}, err
		}
	}
	if tools := in.options.Tools; len(tools) > 0 {
		s.Permissions = nil
		for _, name := range slices.Sorted(maps.Keys(tools)) {
			effect := team.Deny
			if tools[name] {
				effect = team.Allow
			}
			s.Permissions = append(s.Permissions, Rule{name, "*", effect})
		}
	}
	info := userV1{ID: id, Session: s.ID, Role: "user", Time: createdV1{t.now}, Agent: agent, Model: toModelV1(*model), optionsV1: in.options}
	if was == nil {
		if err := t.insertMessage(id, s.ID, "user", info); err != nil {
			return InboxItem{}, err
		}
	}
	t.emit("message.updated", s.ID, map[string]any{"sessionID": s.ID, "info": info})
	parts := in.Parts
	if parts == nil {
		part := map[string]any{"type": "text", "text": in.Text}
		if in.Synthetic {
			part["synthetic"] = true
		}
		if in.Metadata != nil {
			part["metadata"] = in.Metadata
		}
		setIf(part, "id", in.PartID)
		parts = []json.RawMessage{mustJSON(part)}
	}
	var texts []string
	var subtasks []any // for the loop
	for _, p := range parts {
		var part map[string]any
		if err := json.Unmarshal(p, &part); err != nil || part == nil {
			return InboxItem{}, invalid("part", "is no JSON object", "send {type, …}")
		}
		pid, _ := part["id"].(string)
		if pid == "" {
			pid = t.h.newID("prt_")
		}
		part["id"], part["messageID"], part["sessionID"] = pid, id, s.ID
		if part["type"] == "subtask" {
			for _, key := range []string{"agent", "description", "prompt"} {
				if s, ok := part[key].(string); !ok || s == "" {
					return InboxItem{}, invalid("subtask part", "has no "+key, "send agent, description and prompt")
				}
			}
			subtasks = append(subtasks, part)
		}
		if text, ok := part["text"].(string); ok {
			texts = append(texts, text)
		}
		if err := t.putPart(pid, id, s.ID, part); err != nil {
			return InboxItem{}, err
		}
		t.emit("message.part.updated", s.ID, map[string]any{"sessionID": s.ID, "part": part, "time": t.now})
	}
	if err := t.touch(s); err != nil {
		return InboxItem{}, err
	}
	typ := "user"
	if in.Synthetic {
		typ = "synthetic"
	}
	payload := map[string]any{"text": strings.Join(texts, "\n\n")}
	if subtasks != nil {
		payload["subtasks"] = subtasks
	}
	item := InboxItem{ID: id, Session: s.ID, Type: typ, Payload: mustJSON(payload), Delivery: team.DeliverySteer}
	if err := t.run(`DELETE FROM session_inbox WHERE id = ?`, id); err != nil {
		return item, err
	}
	return item, t.enqueue(&item)
}

// Compact asks for a compaction, which is handled alone at an idle boundary. While one is
// pending, that one is the answer. Generation 2; see Summarize for generation 1.
func (d *SessionDomain) Compact(ctx context.Context, session string, in Prompt) (InboxItem, error) {
	return d.control(ctx, "compact", session, "compaction", map[string]any{}, in)
}

// Move takes the session to another folder, at an idle boundary. Generation 2.
func (d *SessionDomain) Move(ctx context.Context, session, directory string, delivery team.Delivery) error {
	if directory == "" {
		return invalid("directory", "is empty", "name a folder")
	}
	_, err := d.control(ctx, "move", session, "move",
		map[string]any{"location": location{directory}, "projectID": "global"}, Prompt{Delivery: delivery})
	return err
}

func (d *SessionDomain) control(ctx context.Context, method, session, typ string, payload map[string]any, in Prompt) (InboxItem, error) {
	if d.h.profile.v1() {
		return InboxItem{}, d.h.absent("session." + method)
	}
	if err := d.h.enter(ctx, Call{Domain: "session", Method: method, Session: session, Name: in.ID}); err != nil {
		return InboxItem{}, err
	}
	in.Delivery = cmp.Or(in.Delivery, team.DeliverySteer)
	if err := in.check(); err != nil {
		return InboxItem{}, err
	}
	var out InboxItem
	err := d.h.tx(func(t *tx) error {
		if _, err := t.session(session); err != nil {
			return err
		}
		if typ == "compaction" {
			pending, err := t.inbox(`WHERE session_id = ? AND type = 'compaction'`, session)
			if err != nil {
				return err
			}
			if len(pending) > 0 && in.ID != pending[0].ID {
				out = pending[0]
				if !in.NoResume {
					t.wake(session)
				}
				return nil
			}
		}
		var err error
		out, err = t.admitItem(InboxItem{ID: in.ID, Session: session, Type: typ, Payload: mustJSON(payload), Delivery: in.Delivery})
		if err == nil && !in.NoResume {
			t.wake(session)
		}
		return err
	})
	return out, err
}

type userMessage struct {
	Role    string   `json:"role"`
	Content []textV2 `json:"content"`
}

// Generate answers a prompt without a turn; nothing is stored. The hook "generate" sees the session's
// messages and, as the last one, the prompt.
func (d *SessionDomain) Generate(ctx context.Context, session, prompt string) (string, error) {
	if d.h.opts.Generate == nil || d.h.profile.v1() {
		return "", d.h.absent("session.generate")
	}
	s, err := d.Get(ctx, session)
	if err != nil {
		return "", err
	}
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "generate", Session: session}); err != nil {
		return "", err
	}
	r, err := d.h.request(ctx, session, d.h.agentOf(s), *cmp.Or(s.Model, &d.h.opts.Model))
	if err != nil {
		return "", err
	}
	r.Messages = append(r.Messages, mustJSON(userMessage{Role: "user", Content: []textV2{{"text", prompt}}}))
	r = d.hooks.generate.run(ctx, r, ModelRequest.copied)
	var last userMessage
	if n := len(r.Messages); n == 0 || json.Unmarshal(r.Messages[n-1], &last) != nil || len(last.Content) == 0 {
		return "", errors.New("a hook has left no prompt to generate from")
	}
	return d.h.opts.Generate(ctx, last.Content[0].Text)
}

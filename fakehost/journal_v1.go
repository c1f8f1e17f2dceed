package fakehost

import (
	"cmp"
	"encoding/json"
)

// journalV1 writes messages, parts and events of generation 1, in the order that OpenCode
// 1.18.33 was seen to have. Where the real host computes a summary beside its work, and
// so in no fixed order, this one has it at the place where it was most often.
type journalV1 struct{}

type createdV1 struct {
	Created int64 `json:"created"`
}

type modelV1 struct {
	Provider string `json:"providerID"`
	ID       string `json:"modelID"`
	Variant  string `json:"variant,omitempty"`
}

func toModelV1(m Model) modelV1 { return modelV1{m.Provider, m.ID, m.Variant} }

type userV1 struct {
	ID      string    `json:"id"`
	Session string    `json:"sessionID"`
	Role    string    `json:"role"`
	Time    createdV1 `json:"time"`
	Summary *diffsV1  `json:"summary,omitempty"`
	Agent   string    `json:"agent"`
	Model   modelV1   `json:"model"`
	optionsV1
}

// optionsV1 are what a prompt may say besides.
type optionsV1 struct {
	System string          `json:"system,omitempty"`
	Tools  map[string]bool `json:"tools,omitempty"` // rules of the session, in an older form
	Format json.RawMessage `json:"format,omitempty"`
}

type diffsV1 struct {
	Diffs []any `json:"diffs"`
}

type assistantV1 struct {
	ID       string     `json:"id"`
	Session  string     `json:"sessionID"`
	Role     string     `json:"role"`
	Time     stepTimeV1 `json:"time"`
	Error    *errorV1   `json:"error,omitempty"`
	ParentID string     `json:"parentID"`
	ModelID  string     `json:"modelID"`
	Provider string     `json:"providerID"`
	Mode     string     `json:"mode"`
	Agent    string     `json:"agent"`
	Path     pathV1     `json:"path"`
	Summary  bool       `json:"summary,omitempty"`
	Cost     float64    `json:"cost"`
	Tokens   tokenCount `json:"tokens"`
	Variant  string     `json:"variant,omitempty"`
	Finish   string     `json:"finish,omitempty"`
}

type stepTimeV1 struct {
	Created   int64 `json:"created"`
	Completed int64 `json:"completed,omitempty"`
}

type pathV1 struct {
	Cwd  string `json:"cwd"`
	Root string `json:"root"`
}

type errorV1 struct {
	Name string      `json:"name"`
	Data errorDataV1 `json:"data"`
}

type errorDataV1 struct {
	Message   string `json:"message"`
	Status    int    `json:"statusCode,omitempty"`
	Retryable *bool  `json:"isRetryable,omitempty"`

	Headers  map[string]string `json:"responseHeaders,omitempty"`
	Body     string            `json:"responseBody,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

func toErrorV1(e *AgentError) *errorV1 {
	out := &errorV1{cmp.Or(e.Type, "UnknownError"), errorDataV1{Message: e.Message, Status: e.Status, Headers: e.Headers, Body: e.Body, Metadata: e.Metadata}}
	if out.Name == "APIError" {
		out.Data.Retryable = &e.Retryable
	}
	return out
}

func (st *step) infoV1() assistantV1 {
	out := assistantV1{ID: st.id, Session: st.session.ID, Role: "assistant", Time: stepTimeV1{st.began, st.ended}, ParentID: st.parent,
		ModelID: st.model.ID, Provider: st.model.Provider, Mode: st.agent, Agent: st.agent,
		Path: pathV1{st.session.Directory, st.session.Directory}, Summary: st.summary, Variant: st.model.Variant, Finish: st.finish}
	if st.finish != "" {
		out.Tokens = tokenCount{Total: stepInput + stepOutput, Input: stepInput, Output: stepOutput}
	}
	return out
}

func (journalV1) status(t *tx, s *Session, status map[string]any) {
	t.later(func() { t.h.status[s.ID] = status })
	t.emit("session.status", s.ID, map[string]any{"sessionID": s.ID, "status": status})
}

func (j journalV1) busy(t *tx, s *Session) { j.status(t, s, map[string]any{"type": "busy"}) }

func (j journalV1) rest(t *tx, s *Session) {
	j.status(t, s, map[string]any{"type": "idle"})
	t.emit("session.idle", s.ID, map[string]any{"sessionID": s.ID})
}

// message stores the info of a message and says so.
func (journalV1) message(t *tx, session, id string, info any) error {
	t.emit("message.updated", session, map[string]any{"sessionID": session, "info": info})
	return t.updateMessage(id, info)
}

// part stores a part and says so.
func (journalV1) part(t *tx, st *step, id string, part map[string]any) error {
	part["id"], part["messageID"], part["sessionID"] = id, st.id, st.session.ID
	t.emit("message.part.updated", st.session.ID, map[string]any{"sessionID": st.session.ID, "part": part, "time": t.now})
	return t.putPart(id, st.id, st.session.ID, part)
}

// summarize says what the session has changed so far: nothing.
func (j journalV1) summarize(t *tx, s *Session) error {
	s.summary = true
	if err := t.touch(s); err != nil {
		return err
	}
	t.emit("session.diff", s.ID, map[string]any{"sessionID": s.ID, "diff": []any{}})
	return nil
}

// summarizeUser says the same in the user's message.
func (j journalV1) summarizeUser(t *tx, s *Session) error {
	list, err := t.queryMessages(`WHERE session_id = ? AND type = 'user' ORDER BY seq DESC LIMIT 1`, s.ID)
	if err != nil || len(list) == 0 {
		return err
	}
	var info userV1
	if err := json.Unmarshal(list[0].Data, &info); err != nil {
		return err
	}
	info.Summary = &diffsV1{Diffs: []any{}}
	return j.message(t, s.ID, info.ID, info)
}

func (journalV1) began(*tx, *Session) error { return nil }

func (j journalV1) stepBegan(t *tx, st *step) error {
	list, err := t.queryMessages(`WHERE session_id = ? AND type = 'user' ORDER BY seq DESC LIMIT 1`, st.session.ID)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		st.parent = list[0].ID
		if _, st.later, err = t.number(`SELECT 1 FROM message WHERE session_id = ? AND seq > ? LIMIT 1`, st.session.ID, list[0].Seq); err != nil {
			return err
		}
	}
	j.busy(t, st.session)
	info := st.infoV1()
	if err := t.insertMessage(st.id, st.session.ID, "assistant", info); err != nil {
		return err
	}
	t.emit("message.updated", st.session.ID, map[string]any{"sessionID": st.session.ID, "info": info})
	if err := st.next(t, "step.started", map[string]any{"agent": st.agent}); err != nil {
		return err
	}
	if err := j.summarize(t, st.session); err != nil {
		return err
	}
	if !st.later {
		if err := j.summarizeUser(t, st.session); err != nil {
			return err
		}
	}
	j.busy(t, st.session)
	return nil
}

// snapshot is what the host calls the state of the work tree; it never changes here.
const snapshot = "adca10a4d49f6377faa0194c24d272f3390a64d4"

// open begins the parts of the step: one that fails before has none.
func (j journalV1) open(t *tx, st *step) error {
	if st.opened {
		return nil
	}
	st.opened = true
	return j.part(t, st, t.h.newID("prt_"), map[string]any{"type": "step-start", "snapshot": snapshot})
}

func (j journalV1) text(t *tx, st *step, text string) error {
	if err := j.open(t, st); err != nil {
		return err
	}
	id := t.h.newID("prt_")
	err := j.part(t, st, id, map[string]any{"type": "text", "text": "", "time": map[string]any{"start": t.now}})
	if err != nil {
		return err
	}
	if err := st.next(t, "text.started", map[string]any{}); err != nil {
		return err
	}
	t.emit("message.part.delta", st.session.ID, map[string]any{"sessionID": st.session.ID, "messageID": st.id, "partID": id,
		"field": "text", "delta": text})
	if err := st.next(t, "text.ended", map[string]any{"text": text}); err != nil {
		return err
	}
	return j.part(t, st, id, map[string]any{"type": "text", "text": text, "time": map[string]any{"start": t.now, "end": t.now}})
}

func (j journalV1) tool(t *tx, c *call, state map[string]any) error {
	return j.part(t, c.step, c.part, map[string]any{"type": "tool", "tool": c.tool, "callID": c.id, "state": state})
}

func (j journalV1) toolPending(t *tx, c *call) error {
	if err := j.open(t, c.step); err != nil {
		return err
	}
	c.part = t.h.newID("prt_")
	return j.tool(t, c, map[string]any{"status": "pending", "input": map[string]any{}, "raw": ""})
}

func (j journalV1) toolRunning(t *tx, c *call) error {
	state := map[string]any{"status": "running", "input": c.input, "time": map[string]any{"start": c.began}}
	setIf(state, "title", c.title)
	if c.metadata != nil {
		state["metadata"] = c.metadata
	}
	return j.tool(t, c, state)
}

func (j journalV1) toolEnded(t *tx, c *call) error {
	state := map[string]any{"input": c.input, "time": map[string]any{"start": c.began, "end": t.now}}
	if c.result.Metadata != nil {
		state["metadata"] = c.result.Metadata
	}
	if c.result.Err != nil {
		state["status"], state["error"] = "error", c.result.Text
		return j.tool(t, c, state)
	}
	state["status"], state["output"], state["title"] = "completed", c.result.Text, c.title
	if c.result.Metadata == nil {
		state["metadata"] = map[string]any{}
	}
	return j.tool(t, c, state)
}

func (j journalV1) stepEnded(t *tx, st *step) error {
	if err := j.open(t, st); err != nil {
		return err
	}
	if st.later {
		if err := j.summarizeUser(t, st.session); err != nil {
			return err
		}
	}
	at := st.ended
	st.ended = 0
	info := st.infoV1()
	err := j.part(t, st, t.h.newID("prt_"), map[string]any{"type": "step-finish", "reason": st.finish, "snapshot": snapshot,
		"tokens": info.Tokens, "cost": 0})
	if err != nil {
		return err
	}
	if err := j.message(t, st.session.ID, st.id, info); err != nil {
		return err
	}
	st.ended = at
	if err := st.next(t, "step.ended", map[string]any{"finish": st.finish, "cost": 0}); err != nil {
		return err
	}
	return j.message(t, st.session.ID, st.id, st.infoV1())
}

func (j journalV1) stepFailed(t *tx, st *step, e ending) error {
	failure := &errorV1{Name: "MessageAbortedError", Data: errorDataV1{Message: "Aborted"}}
	if e.err != nil {
		failure = toErrorV1(e.err)
	}
	t.emit("session.error", st.session.ID, map[string]any{"sessionID": st.session.ID, "error": failure})
	j.rest(t, st.session)
	st.ended = t.now
	info := st.infoV1()
	info.Error = failure
	return j.message(t, st.session.ID, st.id, info)
}

func (j journalV1) retry(t *tx, st *step, attempt int, at int64, e *AgentError) error {
	j.status(t, st.session, map[string]any{"type": "retry", "attempt": attempt, "message": e.Message, "next": at})
	return nil
}

func (j journalV1) ended(t *tx, s *Session, e ending) error {
	if e.reason == "shutdown" {
		return nil
	}
	if e.outcome == "succeeded" {
		j.busy(t, s)
	}
	j.rest(t, s)
	if e.outcome == "succeeded" || e.silent {
		if err := j.summarize(t, s); err != nil {
			return err
		}
		return j.summarizeUser(t, s)
	}
	return nil
}

package fakehost

import (
	"cmp"
	"encoding/json"
)

// journalV2 writes messages and events of generation 2. OpenCode 2.0.26, session-event.ts
// and session-message.ts; the order as recorded on 2.0.24.
type journalV2 struct{}

type assistantV2 struct {
	ID      string      `json:"id"`
	Type    string      `json:"type"`
	Agent   string      `json:"agent"`
	Model   Model       `json:"model"`
	Content []any       `json:"content"`
	Finish  string      `json:"finish,omitempty"`
	Cost    *float64    `json:"cost,omitempty"`
	Tokens  *tokenCount `json:"tokens,omitempty"`
	Error   *errorV2    `json:"error,omitempty"`
	Retry   *retryV2    `json:"retry,omitempty"`
	Time    stepTimeV2  `json:"time"`
}

type stepTimeV2 struct {
	Created   int64 `json:"created"`
	Streamed  int64 `json:"streamed,omitempty"`
	Completed int64 `json:"completed,omitempty"`
}

type errorV2 struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Status  int    `json:"status,omitempty"`
}

type retryV2 struct {
	Attempt int      `json:"attempt"`
	At      int64    `json:"at"`
	Error   *errorV2 `json:"error"`
}

type textV2 struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type toolV2 struct {
	Type  string      `json:"type"`
	ID    string      `json:"id"`
	Name  string      `json:"name"`
	State toolStateV2 `json:"state"`
	Time  toolTimeV2  `json:"time"`
}

type toolStateV2 struct {
	Status   string          `json:"status"`
	Input    json.RawMessage `json:"input"`
	Content  json.RawMessage `json:"content,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Error    *errorV2        `json:"error,omitempty"`
}

type toolTimeV2 struct {
	Created   int64 `json:"created"`
	Ran       int64 `json:"ran,omitempty"`
	Completed int64 `json:"completed,omitempty"`
}

func toErrorV2(e *AgentError) *errorV2 {
	if e == nil {
		return nil
	}
	return &errorV2{cmp.Or(e.Type, "unknown"), e.Message, e.Status}
}

// event publishes a durable event of a step.
func (journalV2) event(t *tx, st *step, typ string, version int, data map[string]any) error {
	data["sessionID"], data["assistantMessageID"] = st.session.ID, st.id
	_, err := t.durable(typ, st.session.ID, version, data)
	return err
}

// save stores the step's message.
func (journalV2) save(t *tx, st *step, retry *retryV2) error {
	m := assistantV2{ID: st.id, Type: "assistant", Agent: st.agent, Model: st.model, Content: st.content, Finish: st.finish,
		Error: toErrorV2(st.err), Retry: retry, Time: stepTimeV2{Created: st.began, Completed: st.ended}}
	if m.Content == nil {
		m.Content = []any{}
	}
	if st.finish != "" {
		m.Cost, m.Tokens = new(float64), &tokenCount{Input: stepInput, Output: stepOutput}
	}
	return t.updateMessage(st.id, m)
}

func (journalV2) began(t *tx, s *Session) error {
	_, err := t.durable("session.execution.started", s.ID, 1, map[string]any{"sessionID": s.ID})
	return err
}

func (j journalV2) stepBegan(t *tx, st *step) error {
	err := j.event(t, st, "session.step.started", 1, map[string]any{"agent": st.agent, "model": st.model, "started": st.began})
	if err != nil {
		return err
	}
	if err := t.insertMessage(st.id, st.session.ID, "assistant", map[string]any{}); err != nil {
		return err
	}
	return j.save(t, st, nil)
}

func (j journalV2) text(t *tx, st *step, text string) error {
	n := st.ordinal
	st.ordinal++
	if err := j.event(t, st, "session.text.started", 1, map[string]any{"ordinal": n}); err != nil {
		return err
	}
	t.emit("session.text.delta", st.session.ID, map[string]any{"sessionID": st.session.ID, "assistantMessageID": st.id,
		"ordinal": n, "delta": text})
	st.content = append(st.content, textV2{"text", text})
	if err := j.event(t, st, "session.text.ended", 1, map[string]any{"ordinal": n, "text": text}); err != nil {
		return err
	}
	return j.save(t, st, nil)
}

func (j journalV2) toolPending(t *tx, c *call) error {
	if err := j.event(t, c.step, "session.tool.input.started", 1, map[string]any{"id": c.id, "name": c.tool}); err != nil {
		return err
	}
	err := j.event(t, c.step, "session.tool.input.ended", 1, map[string]any{"id": c.id, "text": string(c.input)})
	if err != nil {
		return err
	}
	c.step.content = append(c.step.content, &toolV2{Type: "tool", ID: c.id, Name: c.tool,
		State: toolStateV2{Status: "streaming", Input: mustJSON(string(c.input))}, Time: toolTimeV2{Created: t.now}})
	return j.save(t, c.step, nil)
}

// part returns the call's part of the message.
func (journalV2) part(c *call) *toolV2 {
	for _, p := range c.step.content {
		if tool, ok := p.(*toolV2); ok && tool.ID == c.id {
			return tool
		}
	}
	return new(toolV2)
}

func (j journalV2) toolRunning(t *tx, c *call) error {
	p := j.part(c)
	p.State.Metadata = c.metadata
	if p.State.Status == "running" {
		t.emit("session.tool.progress", c.step.session.ID, map[string]any{"sessionID": c.step.session.ID, "assistantMessageID": c.step.id,
			"id": c.id, "metadata": c.metadata})
		return j.save(t, c.step, nil)
	}
	p.State.Status, p.State.Input, p.Time.Ran = "running", c.input, t.now
	if p.State.Metadata == nil {
		p.State.Metadata = json.RawMessage("{}")
	}
	err := j.event(t, c.step, "session.tool.called", 1, map[string]any{"id": c.id, "input": c.input, "executed": false})
	if err != nil {
		return err
	}
	return j.save(t, c.step, nil)
}

func (j journalV2) toolEnded(t *tx, c *call) error {
	p := j.part(c)
	p.State.Input, p.Time.Completed = c.input, t.now
	data := map[string]any{"id": c.id, "executed": false}
	if c.result.Metadata != nil {
		data["metadata"] = c.result.Metadata
	}
	p.State.Metadata = c.result.Metadata
	typ := "session.tool.success"
	if c.result.Err != nil {
		typ = "session.tool.failed"
		p.State.Status, p.State.Error = "error", &errorV2{Type: "unknown", Message: c.result.Text}
		data["error"] = p.State.Error
	} else {
		p.State.Status, p.State.Content = "completed", c.content
		data["content"] = c.content
	}
	if err := j.event(t, c.step, typ, 2, data); err != nil {
		return err
	}
	return j.save(t, c.step, nil)
}

func (j journalV2) stepEnded(t *tx, st *step) error {
	if err := j.event(t, st, "session.step.streamed", 1, map[string]any{}); err != nil {
		return err
	}
	tokens := tokenCount{Input: stepInput, Output: stepOutput}
	err := j.event(t, st, "session.step.ended", 1, map[string]any{"finish": st.finish, "cost": 0, "tokens": tokens})
	if err != nil {
		return err
	}
	// In the log only: this is why the feed has gaps.
	if err := j.event(t, st, "session.usage.recorded", 1, map[string]any{"cost": 0, "tokens": tokens}); err != nil {
		return err
	}
	t.emit("session.usage.updated", st.session.ID, map[string]any{"sessionID": st.session.ID, "cost": st.session.Cost,
		"tokens": tokenCount{Input: st.session.Input, Output: st.session.Output}})
	return j.save(t, st, nil)
}

func (j journalV2) stepFailed(t *tx, st *step, e ending) error {
	st.err, st.ended = e.err, t.now
	if st.err == nil {
		st.err = &AgentError{Type: "aborted", Message: "the step was interrupted"}
	}
	if err := j.event(t, st, "session.step.failed", 1, map[string]any{"error": toErrorV2(st.err)}); err != nil {
		return err
	}
	return j.save(t, st, nil)
}

func (j journalV2) retry(t *tx, st *step, attempt int, at int64, e *AgentError) error {
	err := j.event(t, st, "session.retry.scheduled", 1, map[string]any{"attempt": attempt, "at": at, "error": toErrorV2(e)})
	if err != nil {
		return err
	}
	return j.save(t, st, &retryV2{attempt, at, toErrorV2(e)})
}

func (journalV2) ended(t *tx, s *Session, e ending) error {
	data := map[string]any{"sessionID": s.ID}
	switch e.outcome {
	case "failed":
		data["error"] = toErrorV2(e.err)
	case "interrupted":
		data["reason"] = e.reason
	}
	event, err := t.durable("session.execution."+e.outcome, s.ID, 1, data)
	if err != nil || e.reason == "shutdown" {
		return err
	}
	idle := map[string]any{"id": messageID(event.ID), "type": "idle", "outcome": e.outcome, "time": map[string]any{"created": t.now}}
	if e.err != nil {
		idle["error"] = toErrorV2(e.err)
	}
	return t.insertMessage(messageID(event.ID), s.ID, "idle", idle)
}

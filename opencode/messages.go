package opencode

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/teamchan/team"
)

// A Message is one message of a session, of any generation.
type Message struct {
	ID      string
	Type    string // 1.18: the role, "user" or "assistant"; 2.0: "user", "synthetic", "assistant", "idle", …
	Agent   string
	Created time.Time
	Ended   time.Time // zero while it is being written, and where nothing says so
	Error   string    // the server's name of it, or its message; empty if there is none
	Parts   []Part
	Raw     json.RawMessage
}

// A Part is a piece of a message. Text and state of a 2.0 user or synthetic message
// are one part here.
type Part struct {
	ID        string
	Type      string // "text", "tool", "reasoning", …
	Text      string
	Synthetic bool   // a program's text, not the user's
	Tool      string // the tool's name
	Status    string // of a tool call: "pending", "running", "completed", "error", …
	Output    string // of a tool call that is completed; its error, if it failed
	Raw       json.RawMessage
}

// Text returns the text parts of m, one after another.
func (m Message) Text() string {
	var s string
	for _, p := range m.Parts {
		if p.Type == "text" {
			s += p.Text
		}
	}
	return s
}

// Messages returns the newest messages of a session, oldest first; all of them if most is zero.
//
// OpenCode 1.18: GET /session/:id/message?limit=&before=. Second API and 2.0:
// GET /api/session/:id/message?limit=&order=desc&cursor=.
func (h *Host) Messages(ctx context.Context, id team.SessionID, most int) ([]Message, error) {
	path, err := h.path(id, "/message")
	if err != nil {
		return nil, err
	}
	const page = 200
	limit := page
	if most > 0 {
		limit = min(most, page)
	}
	var all []Message // newest first
	if h.v1() {
		// Its cursor is a header; without a limit all come at once, which MaxAnswer bounds.
		var query url.Values
		if most > 0 {
			query = url.Values{"limit": {strconv.Itoa(most)}}
		}
		list, err := h.list(ctx, path, query)
		return messagesOf(list), err
	}
	query := url.Values{"limit": {strconv.Itoa(limit)}, "order": {"desc"}}
	err = h.pages(ctx, path, query, func(page []json.RawMessage) bool {
		all = append(all, messagesOf(page)...)
		return len(page) > 0 && (most <= 0 || len(all) < most)
	})
	if err != nil {
		return nil, err
	}
	if most > 0 && len(all) > most {
		all = all[:most]
	}
	slices.Reverse(all)
	return all, nil
}

// Context returns what the model sees of a session: the messages since the last compaction.
//
// Second API of 1.18 and 2.0: GET /api/session/:id/context.
func (h *Host) Context(ctx context.Context, id team.SessionID) ([]Message, error) {
	if h.v1() {
		return nil, h.lacks("context of a session", "Messages has its whole history")
	}
	path, err := h.path(id, "/context")
	if err != nil {
		return nil, err
	}
	list, err := h.list(ctx, path, nil)
	return messagesOf(list), err
}

func messagesOf(list []json.RawMessage) (all []Message) {
	for _, raw := range list {
		all = append(all, messageOf(raw))
	}
	return all
}

// messageOf reads a message of any generation.
func messageOf(raw json.RawMessage) Message {
	o := decode(raw)
	info := o.object("info") // 1.18
	typ := "role"
	if info == nil {
		info, typ = o, "type"
	}
	times := info.object("time")
	m := Message{ID: info.text("id"), Type: info.text(typ), Agent: info.text("agent"), Error: errorOf(info["error"]),
		Created: timeOf(times["created"]), Ended: timeOf(times["completed"]), Raw: raw}
	for _, p := range o.list("parts") {
		m.Parts = append(m.Parts, partOf(p))
	}
	for _, p := range o.list("content") { // 2.0
		m.Parts = append(m.Parts, partOf(p))
	}
	if text, ok := o["text"]; ok && m.Parts == nil {
		m.Parts = []Part{{Type: "text", Text: o.text("text"), Synthetic: m.Type != "user", Raw: text}}
	}
	return m
}

func partOf(raw json.RawMessage) Part {
	o := decode(raw)
	p := Part{ID: o.text("id"), Type: o.text("type"), Text: o.text("text"), Synthetic: o.yes("synthetic"), Raw: raw}
	if p.Type != "tool" {
		return p
	}
	p.Tool = o.text("tool")
	if p.Tool == "" {
		p.Tool = o.text("name") // 2.0
	}
	state := o.object("state")
	p.Status, p.Output = state.text("status"), state.text("output")
	for _, c := range state.list("content") { // 2.0
		p.Output += decode(c).text("text")
	}
	if failed := errorOf(state["error"]); failed != "" {
		p.Output = failed
	}
	return p
}

// errorOf returns the name or the text of an error, which is an object or a string.
func errorOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	o := decode(raw)
	for _, key := range []string{"name", "type", "message"} {
		if s := o.text(key); s != "" {
			return s
		}
	}
	return ""
}

// A Prompt is a text in the user's own name: what a person typed. What a program
// says goes through Deliver.
type Prompt struct {
	ID       string // of the message, "msg_…"; empty lets the server choose
	Text     string
	Agent    string // 1.18 only; empty is the server's default, not the session's last
	Model    Model  // 1.18 only
	Delivery team.Delivery
	NoReply  bool // the session does not start to work on it
	// Wait waits until the turn is over, however long that takes. 1.18 only.
	Wait bool
}

// Prompt sends p to a session. With Wait it returns the answer of the model, else a Message
// that has at most an ID.
//
// OpenCode 1.18: POST /session/:id/message or /prompt_async. Second API and 2.0:
// POST /api/session/:id/prompt.
func (h *Host) Prompt(ctx context.Context, id team.SessionID, p Prompt) (Message, error) {
	if !h.v1() {
		return h.promptV2(ctx, id, p)
	}
	body := map[string]any{"parts": []any{map[string]string{"type": "text", "text": p.Text}}}
	if p.ID != "" {
		body["messageID"] = p.ID
	}
	if p.Agent != "" {
		body["agent"] = p.Agent
	}
	if p.Model != (Model{}) {
		body["model"] = p.Model.ref("modelID")
		if p.Model.Variant != "" {
			body["variant"] = p.Model.Variant
		}
	}
	if p.NoReply {
		body["noReply"] = true
	}
	rest, send := "/prompt_async", h.call
	if p.Wait || p.NoReply {
		rest = "/message"
	}
	if p.Wait && !p.NoReply {
		send = h.long
	}
	path, err := h.path(id, rest)
	if err != nil {
		return Message{}, err
	}
	s, err := h.Session(ctx, id)
	if err != nil {
		return Message{}, err
	}
	raw, err := send(ctx, http.MethodPost, path, in(s.Directory), body)
	if err != nil {
		return Message{}, err
	}
	if raw == nil {
		return Message{ID: p.ID}, nil
	}
	if at := decode(raw).object("info").text("sessionID"); at != "" && at != string(id) {
		return Message{}, fmt.Errorf("%w: prompted session %.60q, the server answered with a message of %.60q", team.ErrCorrupt, string(id), at)
	}
	return messageOf(raw), nil
}

func (h *Host) promptV2(ctx context.Context, id team.SessionID, p Prompt) (Message, error) {
	if p.Wait || p.Agent != "" || p.Model != (Model{}) {
		return Message{}, h.lacks("prompt with an agent or a model, or that waits", "switch the session first, and wait for its events")
	}
	path, err := h.path(id, "/prompt")
	if err != nil {
		return Message{}, err
	}
	body := map[string]any{"text": p.Text}
	if h.info.Generation == V1API {
		body = map[string]any{"prompt": map[string]string{"text": p.Text}}
	}
	if p.ID != "" {
		body["id"] = p.ID
	}
	if p.Delivery != "" {
		body["delivery"] = p.Delivery
	}
	if p.NoReply {
		body["resume"] = false
	}
	raw, err := h.call(ctx, http.MethodPost, path, nil, body)
	if err != nil {
		return Message{}, err
	}
	raw = data(raw)
	return Message{ID: decode(raw).text("id"), Type: "user", Raw: raw}, nil
}

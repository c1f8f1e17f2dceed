// Package scriptedmodel is a language model that does what the prompt spells out,
// for tests of hosts: the chat completions of an OpenAI-compatible server, as a
// stream. It keeps every request, so that a test can see what a model really saw.
//
// A user message says what happens by one line that begins with "@script " and
// goes on with the JSON of a list of steps, one for each time that the model is
// called after that message:
//
//	@script [{"calls":[{"tool":"bash","args":{"command":"ls"}}]},{"text":"done"}]
//
// The newest message with such a line counts. Behind its last step the answer is "ok", and
// without a line what Model.Plain says, or "ok". A call without tools, as hosts make it for titles, never
// looks at scripts.
package scriptedmodel

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Step is what the model does when it is called once.
type Step struct {
	Text  string `json:"text,omitempty"`
	Calls []Call `json:"calls,omitempty"`
	Fill  int    `json:"fill,omitempty"`   // bytes of numbered lines behind Text
	Delay int    `json:"delay,omitempty"`  // milliseconds before the answer begins
	Fails int    `json:"status,omitempty"` // HTTP status of a failure in place of an answer
	Cut   bool   `json:"cut,omitempty"`    // the connection ends in the middle of the answer
}

// A Call is a tool call.
type Call struct {
	Tool string `json:"tool"`
	Args any    `json:"args"`
	Gate string `json:"gate,omitempty"` // a name: the call is sent when Open was called with it
}

const mark = "@script "

// Script returns the line that makes the model take steps.
func Script(steps ...Step) string {
	line, err := json.Marshal(steps)
	if err != nil {
		panic("scriptedmodel: " + err.Error()) // arguments that are no JSON
	}
	return mark + string(line)
}

// A Request is what the model was asked.
type Request struct {
	Time     time.Time
	Header   http.Header
	Model    string
	Messages []Message
	Tools    []string
	Raw      []byte
}

// A Message is one message of a request.
type Message struct {
	Role  string
	Text  string // text parts, joined
	Calls []string
}

// Find returns the index of the first message whose text contains s, or -1.
func (r Request) Find(s string) int {
	return slices.IndexFunc(r.Messages, func(m Message) bool { return strings.Contains(m.Text, s) })
}

// Count returns how often s is in the texts of all messages.
func (r Request) Count(s string) (n int) {
	for _, m := range r.Messages {
		n += strings.Count(m.Text, s)
	}
	return n
}

// A Model is an http.Handler for POST …/chat/completions. Its zero value is ready.
type Model struct {
	// Plain says what happens where no message has a script, for prompts that are not the
	// test's own. Nil answers "ok". Set it before the first request; it is called from several
	// goroutines.
	Plain func(Request) Step

	mu       sync.Mutex // guards the fields below
	requests []Request
	changed  chan struct{} // closed at the next request
	calls    int
	gates    map[string]chan struct{} // closed when open
}

// Open lets a call be sent that waits at a gate, now or later. Hosts run a call as soon as it
// has come, so a test can do something between two calls of one answer.
func (m *Model) Open(gate string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.gate(gate):
	default:
		close(m.gate(gate))
	}
}

// gate returns the channel of a gate. m.mu must be held.
func (m *Model) gate(name string) chan struct{} {
	if m.gates == nil {
		m.gates = make(map[string]chan struct{})
	}
	if m.gates[name] == nil {
		m.gates[name] = make(chan struct{})
	}
	return m.gates[name]
}

// pass waits until a gate is open.
func (m *Model) pass(ctx context.Context, name string) error {
	m.mu.Lock()
	open := m.gate(name)
	m.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Requests returns what the model was asked so far, oldest first.
func (m *Model) Requests() []Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// Wait returns the first request, past or to come, that is as wanted.
func (m *Model) Wait(ctx context.Context, wanted func(Request) bool) (Request, error) {
	for from := 0; ; {
		m.mu.Lock()
		if m.changed == nil {
			m.changed = make(chan struct{})
		}
		all, changed := m.requests[from:], m.changed
		m.mu.Unlock()
		for _, r := range all {
			if wanted(r) {
				return r, nil
			}
		}
		from += len(all)
		select {
		case <-changed:
		case <-ctx.Done():
			return Request{}, fmt.Errorf("none of %d requests is as wanted: %w", from, ctx.Err())
		}
	}
}

const maxRequest = 64 << 20

// ServeHTTP answers one call of the model.
func (m *Model) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/chat/completions") {
		http.NotFound(w, req)
		return
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxRequest))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	r, err := parse(raw)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Time, r.Header = time.Now(), req.Header.Clone()
	first := m.keep(r)
	step, err := r.step(m.Plain)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if step.Delay > 0 {
		select {
		case <-time.After(time.Duration(step.Delay) * time.Millisecond):
		case <-req.Context().Done():
			return
		}
	}
	if step.Fails != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(step.Fails)
		fmt.Fprintf(w, `{"error":{"message":"scripted failure","type":"scripted","code":"scripted"}}`)
		return
	}
	m.answer(req.Context(), w, r.Model, step, first)
}

// keep notes a request and returns the number of its first tool call.
func (m *Model) keep(r Request) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, r)
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
	m.calls += 100
	return m.calls
}

func parse(raw []byte) (Request, error) {
	var body struct {
		Model    string
		Messages []struct {
			Role      string
			Content   json.RawMessage
			ToolCalls []struct {
				Function struct{ Name string }
			} `json:"tool_calls"`
		}
		Tools []struct {
			Function struct{ Name string }
		}
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return Request{}, err
	}
	r := Request{Model: body.Model, Raw: raw}
	for _, m := range body.Messages {
		msg := Message{Role: m.Role, Text: textOf(m.Content)}
		for _, c := range m.ToolCalls {
			msg.Calls = append(msg.Calls, c.Function.Name)
		}
		r.Messages = append(r.Messages, msg)
	}
	for _, t := range body.Tools {
		r.Tools = append(r.Tools, t.Function.Name)
	}
	return r, nil
}

// textOf returns the text of a content, which is a string or a list of parts.
func textOf(content json.RawMessage) string {
	var s string
	if json.Unmarshal(content, &s) == nil {
		return s
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(content, &parts) // what is neither has no text
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// step returns what the newest script says for this call.
func (r Request) step(otherwise func(Request) Step) (Step, error) {
	plain := Step{Text: "ok"}
	if len(r.Tools) == 0 {
		return plain, nil
	}
	answered := 0
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == "assistant" {
			answered++
		}
		if m.Role != "user" {
			continue
		}
		for line := range strings.Lines(m.Text) {
			rest, ok := strings.CutPrefix(strings.TrimSpace(line), mark)
			if !ok {
				continue
			}
			var steps []Step
			// Hosts append texts of their own right behind a prompt, so only the first
			// value of the line counts.
			if err := json.NewDecoder(strings.NewReader(rest)).Decode(&steps); err != nil {
				return plain, fmt.Errorf("script %.80q: %w", rest, err)
			}
			if answered < len(steps) {
				return steps[answered], nil
			}
			return plain, nil
		}
	}
	if otherwise != nil {
		return otherwise(r), nil
	}
	return plain, nil
}

// answer streams a step as chunks of a chat completion.
func (m *Model) answer(ctx context.Context, w http.ResponseWriter, model string, s Step, call int) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	chunk := func(delta map[string]any, finish any, more map[string]any) {
		c := map[string]any{
			"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": time.Now().Unix(), "model": model,
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}},
		}
		for k, v := range more {
			c[k] = v
		}
		line, err := json.Marshal(c)
		if err != nil {
			panic("scriptedmodel: " + err.Error())
		}
		fmt.Fprintf(w, "data: %s\n\n", line)
	}
	flush := func() { _ = http.NewResponseController(w).Flush() }
	text := s.Text + fill(s.Fill)
	chunk(map[string]any{"role": "assistant", "content": ""}, nil, nil)
	for rest := text; rest != ""; {
		n := min(len(rest), 4096)
		for n < len(rest) && rest[n]&0xC0 == 0x80 { // whole characters only
			n++
		}
		chunk(map[string]any{"content": rest[:n]}, nil, nil)
		rest = rest[n:]
	}
	if s.Cut {
		flush()
		panic(http.ErrAbortHandler)
	}
	finish := "stop"
	for i, c := range s.Calls {
		finish = "tool_calls"
		if c.Gate != "" {
			flush()
			if m.pass(ctx, c.Gate) != nil {
				return // the host has gone
			}
		}
		args, err := json.Marshal(c.Args)
		if err != nil {
			panic("scriptedmodel: " + err.Error())
		}
		chunk(map[string]any{"tool_calls": []any{map[string]any{
			"index": i, "id": fmt.Sprintf("call_%d", call+i), "type": "function",
			"function": map[string]any{"name": c.Tool, "arguments": string(args)},
		}}}, nil, nil)
	}
	chunk(map[string]any{}, finish, map[string]any{
		"usage": map[string]any{"prompt_tokens": 10, "completion_tokens": 1 + len(text)/4, "total_tokens": 11 + len(text)/4},
	})
	fmt.Fprint(w, "data: [DONE]\n\n")
	flush()
}

// fill returns numbered lines, n bytes together.
func fill(n int) string {
	var b strings.Builder
	for i := 1; b.Len() < n; i++ {
		fmt.Fprintf(&b, "line %06d of a long answer, numbered so that a cut shows\n", i)
	}
	return b.String()[:n]
}

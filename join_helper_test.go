package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

const lead = team.SessionID("ses_lead")

// joinHost is a host that a Join asks: what it knows is set by the test.
type joinHost struct {
	mu         sync.Mutex
	sessions   map[team.SessionID]team.Inspection
	err        error
	verdict    team.InterruptVerdict
	stopErr    error
	interrupts []team.SessionID
	looks      int
	onStop     func()
}

func (h *joinHost) set(id team.SessionID, i team.Inspection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sessions == nil {
		h.sessions = make(map[team.SessionID]team.Inspection)
	}
	i.ID = id
	h.sessions[id] = i
}

func (h *joinHost) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

func (h *joinHost) Inspect(_ context.Context, id team.SessionID) (team.Inspection, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looks++
	if h.err != nil {
		return team.Inspection{}, h.err
	}
	i, ok := h.sessions[id]
	if !ok {
		return i, team.ErrNotFound
	}
	return i, nil
}

func (h *joinHost) Session(ctx context.Context, id team.SessionID) (team.Session, error) {
	i, err := h.Inspect(ctx, id)
	return i.Session, err
}

func (h *joinHost) ChildSessions(_ context.Context, id team.SessionID) ([]team.Session, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []team.Session
	for _, i := range h.sessions {
		if i.Parent == id {
			found = append(found, i.Session)
		}
	}
	return found, h.err
}

func (h *joinHost) Deliver(context.Context, team.SessionID, team.Note) (team.Delivered, error) {
	return team.Delivered{}, errors.ErrUnsupported
}

func (h *joinHost) Interrupt(_ context.Context, id team.SessionID) (team.InterruptVerdict, error) {
	h.mu.Lock()
	h.interrupts = append(h.interrupts, id)
	on := h.onStop
	h.mu.Unlock()
	if on != nil {
		on()
	}
	return h.verdict, h.stopErr
}

// plainHost is a host that has nothing optional.
type plainHost struct{ team.Sessions }

func openJoin(t testing.TB, store team.Records, opts *team.JoinOptions) *team.Join {
	t.Helper()
	j, err := team.OpenJoin(t.Context(), store, lead, opts)
	require.NoError(t, err)
	return j
}

func newJoin(t testing.TB, opts *team.JoinOptions) *team.Join {
	return openJoin(t, new(memstore.Store), opts)
}

// observe passes events to a Join.
func observe(t testing.TB, j *team.Join, events ...team.Event) {
	t.Helper()
	for _, e := range events {
		_, err := j.Observe(t.Context(), e)
		require.NoError(t, err)
	}
}

// ev makes an event of a session; data is JSON without the session, or empty.
func ev(id team.SessionID, typ string, data string) team.Event {
	if data == "" {
		data = "{}"
	}
	return team.Event{Type: typ, Session: id, Data: json.RawMessage(data)}
}

// ev2 is ev with a durable sequence.
func ev2(id team.SessionID, seq uint64, typ, data string) team.Event {
	e := ev(id, typ, data)
	e.Seq = seq
	return e
}

func busy(id team.SessionID) team.Event {
	return ev(id, "session.status", `{"status":{"type":"busy"}}`)
}
func idle(id team.SessionID) team.Event { return ev(id, "session.idle", "") }

func register(t testing.TB, j *team.Join, ids ...team.SessionID) {
	t.Helper()
	for _, id := range ids {
		_, err := j.Register(t.Context(), team.Dispatch{Session: id, Call: "call_" + string(id)})
		require.NoError(t, err)
	}
}

func childOf(t testing.TB, j *team.Join, id team.SessionID) team.Child {
	t.Helper()
	got, err := j.Children(t.Context(), []team.SessionID{id})
	require.NoError(t, err)
	return got[0]
}

// notice is a notice of 2.x of a child in the background.
func notice(id team.SessionID, state, body string) team.EnvelopeInput {
	return team.EnvelopeInput{
		Text:     fmt.Sprintf("<subagent sessionID=%q state=%q description=\"d\">\n%s\n</subagent>", id, state, body),
		Metadata: json.RawMessage(fmt.Sprintf(`{"source":"subagent","childID":%q,"agent":"general","state":%q}`, id, state)),
	}
}

// toolResult is the result of a call of 2.x.
func toolResult(id team.SessionID, call, status, body string) team.ToolResult {
	text := fmt.Sprintf("<subagent sessionID=%q state=%q>\n%s\n</subagent>", id, status, body)
	if status == "running" {
		text = fmt.Sprintf("working (sessionID: %s)", id)
	}
	raw, _ := json.Marshal(map[string]any{
		"content":  []map[string]string{{"type": "text", "text": text}},
		"metadata": map[string]string{"sessionID": string(id), "status": status},
	})
	return team.ToolResult{Tool: "subagent", Session: lead, Call: call, Result: raw}
}

// scriptedEvents is an Events whose streams are given one by one.
type scriptedEvents struct {
	streams chan func(yield func(team.Event, error) bool, ctx context.Context)
}

func (s *scriptedEvents) Events(ctx context.Context) iter.Seq2[team.Event, error] {
	return func(yield func(team.Event, error) bool) {
		select {
		case run := <-s.streams:
			run(yield, ctx)
		case <-ctx.Done():
			yield(team.Event{}, ctx.Err())
		}
	}
}

var t0 context.Context // of the bubble that runs

package team

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"time"
	"unicode/utf8"
)

// SessionID names one conversation on a host: OpenCode's look like "ses_…".
// It is opaque here; never sort by it (OpenCode's time-prefixed ids wrapped in
// August 2026).
type SessionID string

// Role is a session's place in the team: "lead", "architect", "reviewer", ….
// It is a free word, since hosts have agents of their own.
type Role string

// A Caller is who makes a call: which session, in which role. It comes from the
// host that runs the agent, never from what a model wrote.
type Caller struct {
	Session SessionID `json:"session"`
	Role    Role      `json:"role"`
}

type callerKey struct{}

// WithCaller returns a context that says who is calling. A host adapter, or a
// program with its own agent loop, sets it once where it enters a tool call;
// every channel takes its author from there and from nowhere else.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom returns who is calling, and false if nobody said.
func CallerFrom(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// callerOf is CallerFrom for a channel that cannot do without.
func callerOf(ctx context.Context) (Caller, error) {
	c, ok := CallerFrom(ctx)
	if !ok || c.Role == "" {
		return c, &InvalidError{What: "caller", Why: "is not in the context, or has no role", Offset: -1,
			Advice: "set it with WithCaller where the host calls in"}
	}
	return c, nil
}

// maxName is the longest session, role or key, in bytes.
const maxName = 256

// checkName refuses what cannot be the name of a session or a role. An empty one is
// for the caller to judge.
func checkName(what, name string) error {
	switch {
	case !utf8.ValidString(name):
		return &InvalidError{What: what, Why: "is not UTF-8", Offset: invalidAt(name)}
	case strings.IndexFunc(name, breaksLine) >= 0:
		return &InvalidError{What: what, Why: "has a control character or a line break", Offset: strings.IndexFunc(name, breaksLine)}
	case len(name) > maxName:
		return &LimitError{What: what + " bytes", Got: int64(len(name)), Max: maxName}
	}
	return nil
}

// The host ports. The package comment has what holds for all of them: a channel asks
// for the smallest that it uses, and what a host can do beyond is a one-method
// interface of its own, found by type assertion.

// Sessions is how channels look up and reach the sessions of a host.
type Sessions interface {
	// Session returns what the host knows about id, or ErrNotFound.
	//
	// OpenCode 1.18: GET /session/:id. 2.0: GET /api/session/:id.
	Session(ctx context.Context, id SessionID) (Session, error)

	// Deliver puts a note into session to and returns the host's own account
	// of it. The agent sees the text in the user's role, so the text must say
	// itself where it comes from: pass what FormatSignal made. A nil error means
	// that the host took it, not that an agent read it. Deliver with an ID
	// that the host already has makes no second note; the caller compares
	// Delivered.Text to see whose text was kept. ErrNotFound if there is no such
	// session, ErrConflict if the ID belongs to something else.
	//
	// OpenCode 2.0: session.synthetic. 1.18: a prompt with one synthetic part
	// and noReply.
	Deliver(ctx context.Context, to SessionID, note Note) (Delivered, error)

	// Interrupt asks the host to stop what session id is doing, and tells what
	// the host answered, which is not always that it stopped.
	//
	// OpenCode 1.18: POST /session/:id/abort. 2.0: POST /api/session/:id/interrupt.
	Interrupt(ctx context.Context, id SessionID) (InterruptVerdict, error)
}

// A Session is what a host knows about one conversation. A zero field means
// that the host did not say; for Parent it never means "has none".
type Session struct {
	ID        SessionID
	Parent    SessionID
	Agent     string
	Title     string
	Directory string
	Created   time.Time
	Idle      time.Time       // when the last execution ended, where the host says so
	Outcome   string          // how it ended, in the host's word
	Raw       json.RawMessage // the host's own object
}

// A Note is a text for a session, written by a program.
type Note struct {
	ID          string            // the host's idempotency key, in the form of its message ids: see HostMessageID
	Text        string            // UTF-8, what the agent sees
	Description string            // what a person sees in the host's list
	Metadata    map[string]string // for programs; the model does not see it
	Delivery    Delivery          // DeliverySteer if empty
	Wake        bool              // whether an idle session starts to work on it
}

// Delivery says when a running session sees a note or a signal.
type Delivery string

// The deliveries, by the host's own words (OpenCode 2.0).
const (
	DeliverySteer Delivery = "steer" // at the next step of the turn that is running
	DeliveryQueue Delivery = "queue" // when the session is idle, one at a time
)

// Delivered is a host's account of a note.
type Delivered struct {
	ID   string // the host's inbox or message id
	Text string // the text that the host holds under that id

	// InConversation says that the text is in the conversation already, as on OpenCode
	// 1.x, which has no inbox, and not only accepted. False: an inbox has it, or the host
	// does not say.
	InConversation bool
}

// InterruptVerdict is what a host answered to an interrupt.
type InterruptVerdict string

// The verdicts: only InterruptStopped says that something was stopped.
const (
	InterruptStopped InterruptVerdict = "stopped"
	InterruptIdle    InterruptVerdict = "idle"
	InterruptUnknown InterruptVerdict = "unknown"
)

// Events is a host's stream of what happens in its sessions.
type Events interface {
	// Events yields events from now on, until ctx ends or the stream breaks,
	// which yields an error and stops. Events are lost between two streams and
	// when the reader is slow, so a caller that depends on them reads the
	// sessions again after each start.
	//
	// OpenCode 1.18: GET /event, one directory. 2.0: GET /api/event, the whole
	// server, no replay.
	Events(ctx context.Context) iter.Seq2[Event, error]
}

// An Event is one thing that happened. Data may hold the full text of
// messages: treat it as the content of the session.
type Event struct {
	ID      string
	Type    string          // the host's own name: "session.idle", "session.execution.failed", …
	Session SessionID       // empty if the event is about none
	Seq     uint64          // the host's durable order within the session; zero if it has none
	Time    time.Time       // when it happened, by the host's clock; zero if it does not say
	Data    json.RawMessage // properties (1.x) or data (2.x), as they came
}

// Storage is a host's key-value storage. It has one name space for every
// session, project and process of a plugin, no expiry, no quota and no
// compare-and-set: a Set overwrites what is there.
//
// OpenCode 2.0: ctx.storage of a plugin. OpenCode over HTTP has none.
type Storage interface {
	// Get returns the JSON value under key, or ErrNotFound.
	Get(ctx context.Context, key string) (json.RawMessage, error)
	// Set stores a JSON value under key, whatever was there.
	Set(ctx context.Context, key string, value json.RawMessage) error
	// Remove deletes key; a key that is not there is no error.
	Remove(ctx context.Context, key string) error
	// Scan yields the keys that start with prefix and come behind after, in
	// ascending order of their bytes. The host sends the values along; an
	// adapter drops them.
	Scan(ctx context.Context, prefix, after string) iter.Seq2[string, error]
}

// Tools is a host that lets us see results of tools before the model does.
type Tools interface {
	// AfterTool calls rewrite for every tool result from now on until stop is
	// called. What rewrite returns goes on in its place; on an error the
	// result goes on as it came.
	//
	// OpenCode: the hook tool.execute.after (1.x) and execute.after (2.0).
	AfterTool(rewrite func(context.Context, ToolResult) (ToolResult, error)) (stop func())
}

// A ToolResult is what a tool answered, in the host's own shape.
type ToolResult struct {
	Tool    string
	Session SessionID
	Agent   string
	Call    string // the host's id of the call; data, never a file name
	Result  json.RawMessage
}

// Permissions is a host that decides what a session may do.
type Permissions interface {
	// Evaluate returns the host's effect for an action on a resource, in the
	// host's own words for both. It raises no dialog. A host that cannot tell
	// returns an error, errors.ErrUnsupported for example, and never an Allow.
	//
	// OpenCode over HTTP has no route for it.
	Evaluate(ctx context.Context, session SessionID, action, resource string) (Effect, error)
}

// An Effect is what a permission rule, or a host, says of a resource.
type Effect string

// The effects.
const (
	Allow Effect = "allow"
	Ask   Effect = "ask"
	Deny  Effect = "deny"
)

// A PermissionsFunc is a function that is a Permissions: of a RoleMatrix, for example.
type PermissionsFunc func(ctx context.Context, session SessionID, action, resource string) (Effect, error)

// Evaluate calls f.
func (f PermissionsFunc) Evaluate(ctx context.Context, session SessionID, action, resource string) (Effect, error) {
	return f(ctx, session, action, resource)
}

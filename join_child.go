package team

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The bounds of what a child's record keeps. What is over them is counted.
const (
	mostEvidence  = 16
	mostConflicts = 8
	mostEarlier   = 8
	mostAsks      = 16
	mostSeen      = 16
	mostOpen      = 1024 // descendants at the same time
	reasonBytes   = 200
)

// A JoinSource says where evidence comes from.
type JoinSource string

// The sources.
const (
	FromDispatch JoinSource = "dispatch"    // the call that started or resumed it
	FromEvent    JoinSource = "event"       // the host's stream
	FromEnvelope JoinSource = "envelope"    // the result of the call
	FromNotice   JoinSource = "notice"      // what the host told the parent of a child in the background
	FromSignal   JoinSource = "signal"      // the child itself
	FromSnapshot JoinSource = "snapshot"    // the session was read
	FromParent   JoinSource = "parent idle" // nothing of the child itself
	FromCancel   JoinSource = "cancel"      // the host confirmed an interrupt of ours
	FromGrace    JoinSource = "grace"       // it seemed over, and nothing came since
)

// A JoinEvidence is one thing that speaks for a child's ending.
type JoinEvidence struct {
	Source JoinSource `json:"source"`
	What   string     `json:"what"` // the event's type, the envelope's generation, the outcome's word, …
	ID     string     `json:"id,omitempty"`
	State  ChildState `json:"state"`
	Reason string     `json:"reason,omitempty"`
	Seq    uint64     `json:"seq,omitempty"`    // the host's durable order, where it has one
	At     time.Time  `json:"at"`               // when it came, by our clock
	Host   time.Time  `json:"host,omitzero"`    // when it was, by the host's
	Resync bool       `json:"resync,omitempty"` // read after a gap in the stream
}

// A JoinConflict is evidence that says otherwise than the ending that counts.
type JoinConflict struct {
	Counts ChildState   `json:"counts"`
	Said   JoinEvidence `json:"said"`
}

// A ChildAsk is a question that a child, or a descendant of it, waits for.
type ChildAsk struct {
	ID      string    `json:"id"`
	Kind    string    `json:"kind"` // "permission", "question", "form"
	Session SessionID `json:"session"`
	At      time.Time `json:"at"`
}

// A Sighting says where an answer was shown to the parent first.
type Sighting struct {
	Via string    `json:"via"` // "tool result", "notice", "wait", or the caller's word
	ID  string    `json:"id,omitempty"`
	At  time.Time `json:"at"`
}

// An Answer is what is known of the text that a turn ended with.
type Answer struct {
	Known  bool   `json:"known,omitempty"` // a text, or that there is none
	Size   int    `json:"size,omitempty"`  // of the whole, in bytes
	SHA256 string `json:"sha256,omitempty"`
	// Truncated: the host cut it before it came.
	Truncated bool      `json:"truncated,omitempty"`
	Ref       *Ref      `json:"ref,omitempty"` // to the whole, if Shorten made one
	First     *Sighting `json:"first,omitempty"`
}

// A ChildTurn is one turn of a child, from its start to its ending.
type ChildTurn struct {
	Turn     int        `json:"turn"`
	State    ChildState `json:"state"`
	Reason   string     `json:"reason,omitempty"`   // the host's word for why
	Presumed bool       `json:"presumed,omitempty"` // see Join
	// By is what the ending rests on, zero while there is none.
	By     JoinEvidence `json:"by,omitzero"`
	Ended  time.Time    `json:"ended,omitzero"` // by our clock
	Answer Answer       `json:"answer"`

	// Evidence is what came for this ending and against it, in order; Dropped is how
	// much more there was. Conflicts are those that say otherwise.
	Evidence  []JoinEvidence `json:"evidence,omitempty"`
	Dropped   int            `json:"dropped,omitempty"`
	Conflicts []JoinConflict `json:"conflicts,omitempty"`

	Dispatched bool `json:"dispatched,omitempty"` // a call of the parent began it, and not somebody else
	Told       bool `json:"told,omitempty"`       // an envelope or a notice of it came
}

// A Child is the account of one child session. The embedded turn is the latest.
type Child struct {
	Session    SessionID `json:"session"`
	Order      int       `json:"order"` // of registration, from 1, with gaps
	Agent      string    `json:"agent,omitempty"`
	Label      string    `json:"label,omitempty"`
	Background bool      `json:"background,omitempty"` // the parent goes on while it works
	Adopted    bool      `json:"adopted,omitempty"`
	Registered time.Time `json:"registered"`
	Started    bool      `json:"started,omitempty"` // somebody saw it run, in this turn

	ChildTurn
	Earlier []ChildTurn `json:"earlier,omitempty"` // the last turns before, oldest first

	Open []SessionID `json:"open,omitempty"` // descendants that have not ended
	Asks []ChildAsk  `json:"asks,omitempty"` // what it waits for somebody to answer

	// Retry is the host's word for what it tries again, while it does. Parked: the
	// host was shut down, and will go on when it starts.
	Retry  string `json:"retry,omitempty"`
	Parked bool   `json:"parked,omitempty"`
}

// Settled reports whether the latest turn is over.
func (c Child) Settled() bool { return c.State.Settled() }

// A childRecord is a Child as it is kept.
type childRecord struct {
	Child
	Seq   uint64 `json:"seq,omitempty"`   // the highest that was applied
	Blind bool   `json:"blind,omitempty"` // part of this turn was not seen
	// Shows: the last word of the stream is that it runs.
	Shows bool `json:"shows,omitempty"`
	// Owes is how many endings are known by another way that the stream has not come to;
	// from OwesUntil on it has lost them.
	Owes      int         `json:"owes,omitempty"`
	OwesUntil time.Time   `json:"owesUntil,omitzero"`
	Began     time.Time   `json:"began,omitzero"`     // this turn, by the host's clock
	HostEnd   time.Time   `json:"hostEnd,omitzero"`   // when it ended, by the host's clock
	Floor     time.Time   `json:"floor,omitzero"`     // no ending up to then is this turn's
	Cancel    bool        `json:"cancel,omitempty"`   // we asked the host to stop this turn
	Over      *seeming    `json:"over,omitempty"`     // it seems over
	Calls     []childCall `json:"calls,omitempty"`    // dispatches that were taken, the last ones
	Seen      []string    `json:"seen,omitempty"`     // envelopes that were taken, the last ones
	Retried   time.Time   `json:"retriedAt,omitzero"` // when Retry was last heard
}

// A childCall says which turn a call of the parent was for.
type childCall struct {
	ID   string `json:"id"`
	Turn int    `json:"turn"`
}

// A seeming ending becomes one when nothing speaks against it until Due.
type seeming struct {
	By  JoinEvidence `json:"by"`
	Due time.Time    `json:"due,omitzero"` // zero while descendants are open
}

func sortJoined(all []*joined) {
	slices.SortFunc(all, func(a, b *joined) int { return cmp.Compare(a.number.Load(), b.number.Load()) })
}

// name is what a child is called in a trace, where its session is only a digest.
func (c *joined) name() string { return fmt.Sprint("child ", c.number.Load()) }

// account returns a copy that shares nothing.
func (c *joined) account() Child {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rec.clone().Child
}

func (r *childRecord) clone() childRecord {
	out := *r
	out.ChildTurn = r.ChildTurn.clone()
	out.Earlier = slices.Clone(r.Earlier)
	for i := range out.Earlier {
		out.Earlier[i] = out.Earlier[i].clone()
	}
	out.Open, out.Asks = slices.Clone(r.Open), slices.Clone(r.Asks)
	out.Calls, out.Seen = slices.Clone(r.Calls), slices.Clone(r.Seen)
	if r.Over != nil {
		over := *r.Over
		out.Over = &over
	}
	return out
}

func (t ChildTurn) clone() ChildTurn {
	t.Evidence, t.Conflicts = slices.Clone(t.Evidence), slices.Clone(t.Conflicts)
	if t.Answer.First != nil {
		first := *t.Answer.First
		t.Answer.First = &first
	}
	if t.Answer.Ref != nil {
		ref := *t.Answer.Ref
		t.Answer.Ref = &ref
	}
	return t
}

// turn returns the turn of that number, if it is still kept.
func (r *childRecord) turn(n int) *ChildTurn {
	if n == r.Turn {
		return &r.ChildTurn
	}
	for i := range r.Earlier {
		if r.Earlier[i].Turn == n {
			return &r.Earlier[i]
		}
	}
	return nil
}

// called returns the turn that a call was for, or zero.
func (r *childRecord) called(id string) int {
	for _, c := range r.Calls {
		if c.ID == id {
			return c.Turn
		}
	}
	return 0
}

// told returns the turn that an envelope is about: that of the call whose result it
// is, else the first that a call began and no envelope came for yet (see likelier), else the last that a
// call began. So a late envelope does not end the turn behind its own, nor one
// that somebody else began.
func (r *childRecord) told(call string, state ChildState) *ChildTurn {
	if t := r.turn(r.called(call)); call != "" && t != nil {
		return t
	}
	last := &r.ChildTurn
	for i := range r.Earlier {
		t := &r.Earlier[i]
		if t.Dispatched && !t.Told {
			return r.likelier(t, state)
		}
		if t.Dispatched && !r.Dispatched {
			last = t
		}
	}
	return last
}

// likelier returns the turn that a notice of an ending in state is about, if t is the first that was not
// told of: t, unless that ended otherwise, and one behind it as the notice says. Then the notice of t was lost. One
// that runs is never meant, so a notice that contradicts the events ends nothing.
func (r *childRecord) likelier(t *ChildTurn, state ChildState) *ChildTurn {
	if alike(t.State, state) {
		return t
	}
	for n := t.Turn + 1; n <= r.Turn; n++ {
		if other := r.turn(n); other != nil && other.Dispatched && !other.Told && other.State.Settled() && !other.Presumed && alike(other.State, state) {
			return other
		}
	}
	return t
}

// cut bounds a text of the host's that a record keeps.
func cutReason(s string) string {
	if len(s) <= reasonBytes {
		return s
	}
	end := reasonBytes
	for end > 0 && s[end]&0xC0 == 0x80 {
		end--
	}
	return s[:end] + "…"
}

// boundID bounds an id of the host's, in a way that keeps two long ones that begin alike apart
// and that JSON does not change.
func boundID(id string) string {
	if len(id) <= reasonBytes && utf8.ValidString(id) {
		return id
	}
	return strings.ToValidUTF8(id[:min(len(id), reasonBytes/2)], "") + "…" + hexDigest(bytesOf(id))[:32]
}

// keepLast appends s to a list of the last ones, and reports false if it is there.
func keepLast(list *[]string, s string) bool {
	if slices.Contains(*list, s) {
		return false
	}
	*list = append(*list, s)
	if n := len(*list) - mostSeen; n > 0 {
		*list = slices.Delete(*list, 0, n)
	}
	return true
}

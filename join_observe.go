package team

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	mostEarlySessions = 1024 // sessions of which something is kept though nobody knows yet whose they are
	mostEarlyEvents   = 32   // of one of these
	mostCalls         = 4096 // calls of the parent whose tool's name is kept
	mostEarlyNotices  = 16   // notices of sessions that nobody knows yet
)

// A StreamReport is what a Join, or a Capability, has seen of a host's stream.
type StreamReport struct {
	Seen    map[string]uint64 // events by type
	Unknown map[string]uint64 // of types that nobody knows; the first 64 names, then MoreNames
	// Missing are types that a generation that was seen sends of every child that works
	// to its end, and that have not appeared; alternatives are joined by "|". It says
	// nothing before a child has settled.
	Missing []string
	// Gap is why the stream has a hole that no snapshot has filled; empty is no hole.
	Gap  string
	Gaps int
}

// streamAccount is a StreamReport in the making.
type streamAccount struct {
	eventCounts
	mu      sync.Mutex
	why     string
	gaps    int
	last    time.Time // the last of them
	settled bool
	begun   bool
}

// boundedNames counts names that others think of.
type boundedNames struct {
	mu     sync.Mutex
	counts map[string]uint64
}

// add counts name, and returns the name under which it did, and whether that is new.
func (b *boundedNames) add(name string) (counted string, fresh bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := len(b.counts)
	_, known := b.counts[name]
	countName(&b.counts, name)
	if _, kept := b.counts[name]; !kept {
		name = MoreNames
	}
	return name, !known && len(b.counts) > before
}

func (b *boundedNames) copy() map[string]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[string]uint64, len(b.counts))
	for name, n := range b.counts {
		out[name] = n
	}
	return out
}

// Stream returns what was seen of the host's stream.
func (j *Join) Stream() StreamReport {
	s := &j.stream
	r := StreamReport{Seen: s.seen(), Unknown: s.unknown.copy()}
	s.mu.Lock()
	r.Gap, r.Gaps = s.why, s.gaps
	settled := s.settled
	s.mu.Unlock()
	if settled {
		r.Missing = s.missing()
	}
	return r
}

// earlyEvents keeps what came of sessions before anybody said whose children they are:
// a child may start, and fail, before the call that began it has answered.
type earlyEvents struct {
	of      map[SessionID][]earlyEvent
	order   []SessionID
	number  int // of the last one
	notices []earlyNotice
}

// An earlyNotice is what the host told the parent of a session before the call that began
// it has answered: a child in the background may be that quick.
type earlyNotice struct {
	of SessionID
	in EnvelopeInput
	id string
}

// told returns the notices of a session, and forgets them.
func (m *earlyEvents) told(id SessionID) (of []earlyNotice) {
	m.notices = slices.DeleteFunc(m.notices, func(n earlyNotice) bool {
		if n.of == id {
			of = append(of, n)
		}
		return n.of == id
	})
	return of
}

// An earlyEvent is evidence of a session; the numbers are in the order in which they came.
type earlyEvent struct {
	evidence
	of     SessionID
	number int
}

func (m *earlyEvents) add(id SessionID, e evidence) {
	if m.of == nil {
		m.of = make(map[SessionID][]earlyEvent)
	}
	id = strongID(id)
	kept, ok := m.of[id]
	if n := len(kept); n > 0 && e.kind == evidenceStart && kept[n-1].kind == evidenceStart {
		return // 1.x says it before each step
	}
	if !ok {
		if len(m.order) >= mostEarlySessions {
			delete(m.of, m.order[0])
			m.order = m.order[1:]
		}
		m.order = append(m.order, id)
	}
	if len(kept) >= mostEarlyEvents {
		kept = slices.Delete(kept, 1, 2) // the first says that it started
	}
	m.number++
	m.of[id] = append(kept, earlyEvent{e, id, m.number})
}

// strongID returns a copy, so that a kept id does not keep the event.
func strongID(id SessionID) SessionID { return SessionID(strings.Clone(string(id))) }

func (m *earlyEvents) take(id SessionID) []earlyEvent {
	kept := m.of[id]
	if kept != nil {
		delete(m.of, id)
		m.order = slices.DeleteFunc(m.order, func(o SessionID) bool { return o == id })
	}
	return kept
}

// Observe takes an event of the host, and what it proves of a child. It returns whether the
// event was about the parent, a child or a descendant of one; others change
// nothing. So a program passes it whatever Events yields, as often as it comes. The
// children of another parent are another Join's.
//
// From the parent's own events it learns of dispatches, of notices and of the results
// of calls, on hosts that send them; what was learned from a tool hook as well counts once.
//
// A type that nobody knows is counted and reported under its name. Events that change
// nothing are neither parsed nor written. If the store fails, the error says so and what
// was learned is kept: the next call writes it. ctx needs no caller.
//
// Events are lost when a stream breaks: then call Resync, or let Follow do all this.
// An event that says that a stream has begun, behind another, does the same at the next Wait.
func (j *Join) Observe(ctx context.Context, e Event) (bool, error) {
	t := eventTypes[e.Type]
	if t == nil {
		if !strings.HasPrefix(e.Type, "rpc.") { // a plugin's own
			if name, fresh := j.stream.unknown.add(e.Type); fresh && j.opts.Report != nil {
				j.opts.Report(ctx, "unknown event type", name)
			}
		}
	} else {
		j.stream.counts[t.number].Add(1)
	}
	j.mu.RLock()
	c, owner := j.about(e.Session)
	j.mu.RUnlock()
	if t == nil || t.use == useNothing {
		return c != nil || owner != "" || e.Session == j.parent, nil
	}
	ours, err := j.observe(ctx, e, t.use, c, owner)
	return ours, edge("join.observe", e.Type, err)
}

// about returns the child that a session is, or that it is a descendant of, and notes that it
// is alive. j.mu is held.
func (j *Join) about(id SessionID) (c *joined, owner SessionID) {
	c = j.children[id]
	alive := c
	if c == nil && len(j.descends) > 0 {
		owner = j.descends[id]
		alive = j.children[owner]
	}
	if alive != nil {
		alive.life.Store(time.Now().UnixNano())
	}
	return c, owner
}

func (j *Join) observe(ctx context.Context, e Event, use eventUse, c *joined, owner SessionID) (bool, error) {
	switch {
	case use == useConnected:
		j.connected()
		return false, nil
	case use == useDisposed:
		j.gapped("the host ended its stream")
		return false, nil
	case c != nil && (use == useStep || use == useStart) && c.quiet.Load():
		return true, nil
	case c == nil && owner == "" && e.Session != j.parent &&
		(use == useStep || use == usePart || use >= useEnqueued && use <= useToolEnd):
		return false, nil // of a foreign session, or of nobody that is said
	}
	var d eventData
	if err := json.Unmarshal(e.Data, &d); err != nil && !errors.As(err, new(*json.UnmarshalTypeError)) {
		d = eventData{} // what a host says is data, not an error
	}
	if e.Session == "" {
		e.Session = cmp.Or(d.SessionID, d.Info.ID)
		j.mu.RLock()
		c, owner = j.about(e.Session)
		j.mu.RUnlock()
	}
	if e.Session == "" {
		return false, nil
	}
	if use == useCreated {
		return j.created(ctx, e, d.parentOf())
	}
	if e.Session == j.parent {
		return true, j.ofParent(ctx, e, use, &d)
	}
	ev, ok := evidenceOf(e, use, &d)
	if !ok {
		return c != nil || owner != "", nil
	}
	var err error
	for range joinTries {
		if c == nil && owner == "" {
			c, owner = j.foreshadow(e.Session, ev)
		}
		switch {
		case c != nil:
			err = j.absorb(ctx, c, ev)
		case owner != "":
			err = j.ofDescendant(ctx, e.Session, owner, ev)
		default:
			return err != nil, err
		}
		if !errors.Is(err, errForgotten) {
			return true, err
		}
		c, owner = nil, "" // it is a stranger since this moment: what came is kept as of one
	}
	return true, err
}

// foreshadow keeps what a session that may become a child does before it is known. If it has become one
// in this moment, or a descendant, it returns whose.
func (j *Join) foreshadow(id SessionID, e evidence) (c *joined, owner SessionID) {
	if e.kind == evidenceStep || checkSession("session", id) != nil {
		return nil, ""
	}
	e.Reason = strings.Clone(cutReason(e.Reason))
	e.What = strings.Clone(e.What)
	e.ask.ID, e.ask.Session = strings.Clone(boundID(e.ask.ID)), strongID(e.ask.Session)
	e.At = time.Now().UTC()
	j.mu.Lock()
	defer j.mu.Unlock()
	if c, owner = j.about(id); c == nil && owner == "" {
		j.early.add(id, e)
	}
	return c, owner
}

// created takes in a new session: of a child or a descendant, it is one more
// that the child waits for.
func (j *Join) created(ctx context.Context, e Event, parent SessionID) (bool, error) {
	j.mu.RLock()
	c, owner := j.children[parent], j.descends[parent]
	known := j.children[e.Session] != nil
	if c == nil && owner != "" {
		c = j.children[owner]
	}
	j.mu.RUnlock()
	if parent == "" || parent == e.Session || parent == j.parent || e.Session == j.parent || known || checkSession("session", e.Session) != nil {
		return known || parent == j.parent, nil
	}
	open := evidence{JoinEvidence: JoinEvidence{Source: FromEvent, What: e.Type}, kind: evidenceOpen, other: strongID(e.Session)}
	var err error
	for range joinTries {
		if c == nil {
			if c, owner = j.foreshadow(parent, open); owner != "" {
				c = j.child(owner)
			}
		}
		if c == nil {
			return err != nil, err
		}
		if err = j.absorb(ctx, c, open); !errors.Is(err, errForgotten) {
			return true, err
		}
		c = nil // it is a stranger since this moment: what came is kept as of one
	}
	return true, err
}

// ofDescendant takes what a descendant's event means for the child above it.
func (j *Join) ofDescendant(ctx context.Context, id, owner SessionID, e evidence) error {
	c := j.child(owner)
	out, ok := below(id, e)
	if c == nil || !ok {
		return nil
	}
	return j.absorb(ctx, c, out)
}

// below returns what a descendant's event says of the child above it, and false if nothing.
func below(id SessionID, e evidence) (evidence, bool) {
	out := evidence{JoinEvidence: JoinEvidence{Source: FromEvent, What: e.What}, other: strongID(id)}
	switch e.kind {
	case evidenceEnd, evidenceIdle, evidenceSeems:
		out.kind = evidenceClosed
	case evidenceStart:
		out.kind = evidenceOpen
	case evidenceAsk, evidenceAnswered:
		out.kind, out.ask = e.kind, e.ask
	default:
		return out, false
	}
	return out, true
}

// ofParent takes what the parent's own events tell of its children.
func (j *Join) ofParent(ctx context.Context, e Event, use eventUse, d *eventData) error {
	switch use {
	case useStart:
		j.parentBusy()
	case useStatus, useIdle, useSucceeded, useFailed:
		ev, ok := evidenceOf(e, use, d)
		switch {
		case ok && ev.kind == evidenceStart:
			j.parentBusy()
		case ok && (ev.kind == evidenceIdle || ev.kind == evidenceEnd):
			return j.parentIdle(ctx, e)
		}
	case useEnqueued:
		if d.Item.Type == "synthetic" {
			return j.notice(ctx, EnvelopeInput{Text: d.Item.Payload.Text, Metadata: d.Item.Payload.Metadata}, e.inboxID())
		}
	case useToolName:
		j.mu.Lock()
		if len(j.calls) >= mostCalls {
			clear(j.calls) // calls that never ended
		}
		if d.Name == "subagent" || d.Name == "task" {
			j.calls[boundID(d.ID)] = d.Name
		}
		j.mu.Unlock()
	case useToolProgress, useToolEnd:
		return j.ofCall(ctx, e, use, d)
	case usePart:
		p := &d.Part
		switch {
		case p.Type == "text" && p.Synthetic:
			return j.notice(ctx, EnvelopeInput{Text: p.Text}, p.ID)
		case p.Type == "tool" && (p.Tool == "task" || p.Tool == "subagent"):
			return j.call(ctx, call{tool: p.Tool, id: p.CallID, status: p.State.Status, text: cmp.Or(p.State.Output, p.State.Error),
				metadata: p.State.Metadata, label: p.State.Title, agent: p.State.Input.Agent})
		}
	}
	return nil
}

// notice takes a text that the host wrote to the parent. One of a session that is no child yet is
// kept until it is one.
func (j *Join) notice(ctx context.Context, in EnvelopeInput, id string) error {
	out, err := j.ObserveText(ctx, in, id)
	of := out.Envelope.Session
	stranger := err == nil && out.Verdict == EnvelopeForeign || errors.Is(err, errForgotten) // the latter since this moment
	if !stranger || checkSession("session", of) != nil || of == j.parent {
		return err
	}
	j.mu.Lock()
	if j.children[of] != nil { // since this moment
		j.mu.Unlock()
		_, err = j.ObserveText(ctx, in, id)
		return err
	}
	defer j.mu.Unlock()
	if len(j.early.notices) >= mostEarlyNotices {
		j.early.notices = slices.Delete(j.early.notices, 0, 1)
	}
	j.early.notices = append(j.early.notices, earlyNotice{strongID(of), in, id})
	return err
}

// inboxID is the host's id of what an inbox event is about.
func (e Event) inboxID() string {
	var d struct {
		InboxID string `json:"inboxID"`
	}
	_ = json.Unmarshal(e.Data, &d) // no id is an id too
	return d.InboxID
}

// ofCall takes an event of a tool call of 2.x, whose name came in an earlier one.
func (j *Join) ofCall(ctx context.Context, e Event, use eventUse, d *eventData) error {
	j.mu.Lock()
	tool, ok := j.calls[boundID(d.ID)]
	if ok && use == useToolEnd {
		delete(j.calls, boundID(d.ID))
	}
	j.mu.Unlock()
	if !ok {
		return nil
	}
	c := call{tool: tool, id: d.ID, status: "running", metadata: d.Metadata}
	if use == useToolEnd {
		c.status, c.text = "completed", textOf(d.Content)
		if strings.HasSuffix(e.Type, ".failed") {
			var failed struct {
				Message string `json:"message"`
			}
			_ = json.Unmarshal(d.Error, &failed)
			c.status, c.text = "error", failed.Message
		}
	}
	return j.call(ctx, c)
}

// A call is a call of the tool that starts children, as far as it is.
type call struct {
	tool, id, status, text, label, agent string
	metadata                             json.RawMessage
}

// call registers the child of a call that runs, and takes the result of one that
// has ended.
func (j *Join) call(ctx context.Context, c call) error {
	var err error
	switch c.status {
	case "running":
		m, bad := readMetadata(c.metadata, c.tool)
		if bad != nil || m.Session == "" || m.Parent != "" && m.Parent != j.parent || m.Session == j.parent {
			return nil
		}
		_, err = j.register(ctx, Dispatch{Session: m.Session, Agent: c.agent, Label: c.label, Call: c.id, Background: m.background}, true)
	case "completed", "error":
		_, err = j.result(ctx, c)
	}
	return err
}

func (j *Join) parentBusy() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.parentEnd = false
}

// parentIdle presumes that the children that the parent waited for have ended. Those in
// the background go on without it.
func (j *Join) parentIdle(ctx context.Context, e Event) error {
	j.mu.Lock()
	known := j.parentEnd
	j.parentEnd = true
	j.mu.Unlock()
	if known {
		return nil // 1.x says it twice
	}
	all, err := j.find(nil)
	if err != nil {
		return err
	}
	var failed []error
	for _, c := range all {
		c.mu.Lock()
		waits := !c.rec.State.Settled() && !c.rec.Background && c.rec.Dispatched
		c.mu.Unlock()
		if waits {
			failed = append(failed, j.absorb(ctx, c, evidence{presumed: true,
				JoinEvidence: JoinEvidence{Source: FromParent, What: e.Type, State: ChildUnknown, Reason: "its parent is idle"}}))
		}
	}
	return errors.Join(failed...)
}

// ObserveSignal takes a signal that the parent received from a child: a
// KindSettled presumes that the child has completed, a KindUnsettled that it has ended, and both
// until the host says so or otherwise. Other kinds, and signals of others, change nothing.
// It returns whether the signal was of a child.
func (j *Join) ObserveSignal(ctx context.Context, s Signal) (bool, error) {
	c := j.child(s.From.Session)
	if c == nil || s.To != j.parent && s.To != "" {
		return false, nil
	}
	e := evidence{presumed: true, JoinEvidence: JoinEvidence{Source: FromSignal, What: string(s.Kind), ID: string(s.ID)}}
	switch s.Kind {
	case KindSettled:
		e.State = ChildCompleted
	case KindUnsettled:
		e.State, e.Reason = ChildUnknown, "it says that something is missing"
	default:
		return true, nil
	}
	return true, edge("join.observe", string(c.id), j.absorb(ctx, c, e))
}

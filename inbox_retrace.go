package team

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"time"
)

// DefaultRetraceAge is how long ago something must have happened before Retrace
// misses its line.
const DefaultRetraceAge = time.Minute

// RetraceOptions change what Retrace looks at. The zero value has the defaults.
type RetraceOptions struct {
	// MinAge is how long ago something must have happened: who did it may be about
	// to write its line. Zero means DefaultRetraceAge.
	MinAge time.Duration
}

// Retrace tells Trace of what the store knows and the trail does not, and returns how
// many lines that took. A line is written after what it tells of, so a process that is
// killed in between leaves a signal without its line; a program that begins asks for it:
//
//	n, err := signals.Retrace(ctx, team.ReadTrail(ctx, trail.Dir()), nil)
//
// It finds signals of the roster's inboxes that were sent, acked, buried, cancelled, or
// brought to a host, what is known of the latter since, and fences. Each line has the
// outcome "recovered", who did it where that is known, and in its reason when it
// happened. What happened to a signal more than once, as after a Redrive, counts as one.
//
// It cannot find what left nothing in the store: that a signal was handed out, amended
// or redriven, that a session came or went, that a sweep removed something, or what
// the store has swept since. Of a trail that has given files up, it leaves alone what is
// older than its first line.
//
// It reads the whole trail and all that the inboxes hold. Two that run at the same time
// may both tell of the same. An error means that nothing was told.
func (c *SignalChannel) Retrace(ctx context.Context, trail iter.Seq2[TrailLine, error], opts *RetraceOptions) (int, error) {
	var o RetraceOptions
	if opts != nil {
		o = *opts
	}
	setDefault(&o.MinAge, DefaultRetraceAge)
	n, err := c.retrace(ctx, trail, o)
	return n, edge("inbox.retrace", "", err)
}

func (c *SignalChannel) retrace(ctx context.Context, trail iter.Seq2[TrailLine, error], o RetraceOptions) (int, error) {
	switch {
	case c.opts.Trace == nil:
		return 0, &InvalidError{What: "signal option Trace", Why: "is nil", Offset: -1, Advice: "open the channel with that of the trail"}
	case trail == nil:
		return 0, &InvalidError{What: "trail", Why: "is nil", Offset: -1, Advice: "pass what ReadTrail returns"}
	case o.MinAge < 0:
		return 0, &InvalidError{What: "retrace option MinAge", Why: "is negative", Offset: -1}
	}
	limit := time.Now().Add(-o.MinAge)
	facts, err := c.facts(ctx)
	if err != nil {
		return 0, err
	}
	byLine := map[string]*tracedFact{}
	for i := range facts {
		for _, op := range facts[i].ops {
			byLine[op+" "+trailForm(facts[i].event.ID)] = &facts[i]
		}
	}
	var since time.Time // what is older has no line any more
	begun := false
	for line, err := range trail {
		if err != nil {
			return 0, err
		}
		if line.Damage != "" {
			continue
		}
		if !begun && line.Seq > 1 {
			since = line.Time
		}
		begun = true
		f := byLine[line.Event.Op+" "+line.Event.ID]
		if f != nil && line.Event.Outcome != "refused" && line.Event.Outcome != "unknown" {
			f.told = true
		}
	}
	n := 0
	nobody := WithCaller(ctx, Caller{}) // who calls has done none of it
	for _, f := range facts {
		if f.told || f.at.After(limit) || f.at.Before(since) {
			continue
		}
		f.event.Op, f.event.Outcome, f.event.Reason = f.ops[0], "recovered", "happened "+formatTime(f.at)
		c.opts.Trace(nobody, f.event)
		n++
	}
	return n, nil
}

// A tracedFact is something in the store of which the trail has a line.
type tracedFact struct {
	event TraceEvent
	ops   []string // those of the lines that tell of it; the first is that of a new one
	at    time.Time
	told  bool
}

// facts returns what the store knows of the roster's signals, and of fences.
func (c *SignalChannel) facts(ctx context.Context) (facts []tracedFact, err error) {
	for key, err := range c.store.Keys(ctx, rosterPrefix, "") {
		if err != nil {
			return nil, err
		}
		session := SessionID(strings.TrimPrefix(key, rosterPrefix))
		for item, err := range c.store.Items(ctx, inboxQueue(session), ListOptions{Settled: true}) {
			if err != nil {
				return nil, err
			}
			facts = append(facts, factsOf(session, item)...)
		}
		relayed, err := c.relayedFacts(ctx, session)
		if err != nil {
			return nil, err
		}
		facts = append(facts, relayed...)
	}
	for key, err := range c.store.Keys(ctx, fencePrefix, "") {
		if err != nil {
			return nil, err
		}
		r, err := c.store.Get(ctx, key)
		var f fenceRecord
		switch {
		case err != nil && !errors.Is(err, ErrNotFound):
			return nil, err
		case err == nil && json.Unmarshal(r.Value, &f) == nil:
			event := TraceEvent{ID: strings.TrimPrefix(key, fencePrefix)}
			facts = append(facts, tracedFact{event: event, ops: []string{"inbox.fence"}, at: f.At})
		}
	}
	return facts, nil
}

// factsOf returns what an item of a session's inbox tells by itself.
func factsOf(session SessionID, item StoredItem) []tracedFact {
	event := TraceEvent{ID: item.ID, Target: session}
	sent := tracedFact{event: event, ops: []string{"inbox.send", "inbox.handoff"}, at: item.Changed}
	sent.event.SHA256 = item.Digest
	if s, err := decodeSignal(item.Item, item.Seq); err == nil {
		sent.at = s.Sent
		sent.event.By, sent.event.ReplyTo, sent.event.Size = s.From, string(s.ReplyTo), int64(len(s.Summary)+len(s.Body))
	}
	end := tracedFact{event: event, at: item.Changed}
	relayed := item.State == ItemAcked && item.Reason != "" || item.State == ItemDead && strings.HasPrefix(item.Reason, relayGaveUp)
	switch {
	case relayed:
		end.ops = []string{"relay.deliver"}
		if item.State == ItemAcked {
			end.event.HostID = item.Reason
		}
	case item.State == ItemAcked:
		end.ops, end.event.By = []string{"inbox.ack"}, Caller{Session: session}
	case item.State == ItemDead:
		end.ops = []string{"inbox.bury"}
	case item.State == ItemCancelled:
		end.ops, end.event.By = []string{"inbox.cancel"}, sent.event.By
	default:
		return []tracedFact{sent}
	}
	return []tracedFact{sent, end}
}

// relayedFacts returns what is known of the signals that a relay brought to a session.
func (c *SignalChannel) relayedFacts(ctx context.Context, session SessionID) (facts []tracedFact, err error) {
	prefix := relayedKey(session, "")
	for key, err := range c.store.Keys(ctx, prefix, "") {
		if err != nil {
			return nil, err
		}
		tail := strings.TrimPrefix(key, prefix)
		if len(tail) != hostTailLen {
			continue // of a session whose name begins with this one's
		}
		r, _, err := c.relayed(ctx, session, tail)
		switch {
		case err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrCorrupt):
			return nil, err
		case err == nil && r.State != "":
			event := TraceEvent{ID: string(r.ID), HostID: r.Host, Target: session}
			if r.State == SignalAcked {
				event.By.Session = session
			}
			facts = append(facts, tracedFact{event: event, ops: []string{"relay." + string(r.State)}, at: r.Since})
		}
	}
	return facts, nil
}

package team

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// DefaultSignalTTL is how long a sweep of a SignalChannel keeps what is done.
const DefaultSignalTTL = 30 * 24 * time.Hour

// SignalSweepOptions say what a sweep of a SignalChannel removes. The zero value has
// the defaults.
type SignalSweepOptions struct {
	// TTL is how long the record of a handoff is kept after it was done, and a fence
	// after it was put up. From then on a HandOff with the same key is another handoff, and
	// a signal of the epoch is taken again: so it is longer than any caller repeats a
	// handoff, and any child of a stopped run lives. Zero means DefaultSignalTTL; Forever
	// keeps them.
	TTL time.Duration

	// Alive says whether a session of the roster can come back. False, without an error,
	// means that it is gone for good, and takes it off the roster; its inbox stays as
	// it is. If Alive cannot tell it returns an error, and the session is kept. Nil
	// keeps all. So a host's ErrNotFound is for Alive to judge.
	Alive func(context.Context, SessionID) (bool, error)
}

// The reasons that a sweep of a SignalChannel has beside a board's, of a removal (as a
// collection of an Offload) and of keeping.
const (
	SweepForgotten SweepReason = "forgotten" // a record of a signal that the store has forgotten, or of what was collected 90 days ago
	SweepNeeded    SweepReason = "needed"    // a signal that is not settled needs it
)

// A SignalSweepItem is one record that the channel keeps beside its inboxes, and what
// became of it.
type SignalSweepItem struct {
	// Key is the stored key: "team/roster/<session>", "team/fenced/<epoch>",
	// "team/handoff/<digest>", "team/relay/<session>", which says who relays it, or
	// "team/relayed/<session>/<digest>", which is what is known of a signal that a relay
	// brought to a host.
	Key    string
	Action SweepAction
	Reason SweepReason
	Err    error
}

// A SignalSweep has every record that a sweep looked at.
type SignalSweep struct {
	Items []SignalSweepItem
}

// Removed returns how many records are, or will be, removed.
func (r SignalSweep) Removed() int {
	n := 0
	for _, item := range r.Items {
		if item.Action == SweepRemove {
			n++
		}
	}
	return n
}

// PlanSweep reports what Sweep would do now, and changes nothing.
func (c *SignalChannel) PlanSweep(ctx context.Context, opts *SignalSweepOptions) (SignalSweep, error) {
	return c.sweep(ctx, opts, false)
}

// Sweep removes the records of handoffs and fences that are older than the TTL, of
// sessions that are gone for good, of relays of sessions that are not on the roster,
// and of relayed signals that the store has forgotten, and reports what it did with
// each. Signals are the store's to sweep.
//
// Never removed is the record of a handoff whose signal is not settled, and a fence
// while an inbox of the roster has a signal of its epoch that is not: the next run
// would get it. (A session that left the roster is not looked at; who enrols it again
// later empties its inbox first.) A handoff that is not finished has no record to
// remove. What somebody writes meanwhile is kept.
//
// An error means that the sweep ended early; the report has what was done. Any number of
// sweeps may run at once.
func (c *SignalChannel) Sweep(ctx context.Context, opts *SignalSweepOptions) (SignalSweep, error) {
	return c.sweep(ctx, opts, true)
}

func (c *SignalChannel) sweep(ctx context.Context, opts *SignalSweepOptions, do bool) (SignalSweep, error) {
	s := &signalSweeper{c: c, do: do, now: time.Now(), gone: map[SessionID]bool{}}
	if opts != nil {
		s.opts = *opts
	}
	setDefault(&s.opts.TTL, DefaultSignalTTL)
	err := s.run(ctx)
	return s.report, edge("inbox.sweep", "", err)
}

type signalSweeper struct {
	c      *SignalChannel
	do     bool
	opts   SignalSweepOptions
	now    time.Time
	report SignalSweep

	open map[string]bool    // the epochs of signals that are not settled, once it is asked
	gone map[SessionID]bool // the sessions that are, or will be, taken off the roster
}

func (s *signalSweeper) run(ctx context.Context) error {
	if s.opts.TTL < 0 && s.opts.TTL != Forever {
		return &InvalidError{What: "sweep option TTL", Why: "is negative", Offset: -1, Advice: "Forever keeps everything"}
	}
	// The roster comes last: the fences need it.
	for _, kind := range []struct {
		prefix string
		judge  func(context.Context, Record) (SweepReason, bool, error)
	}{{handoffPrefix, s.handoff}, {fencePrefix, s.fence}, {relayedPrefix, s.relayed}, {rosterPrefix, s.member}, {relayPrefix, s.owner}} {
		for key, err := range s.c.store.Keys(ctx, kind.prefix, "") {
			if err != nil {
				return err
			}
			if err := s.record(ctx, key, kind.judge); err != nil {
				return err
			}
		}
	}
	return nil
}

// record looks at one record and removes it if judge says so. Its error is that of the
// whole sweep.
func (s *signalSweeper) record(ctx context.Context, key string, judge func(context.Context, Record) (SweepReason, bool, error)) error {
	item := SignalSweepItem{Key: key, Action: SweepKeep, Reason: SweepUnknown}
	r, err := s.c.store.Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return nil // gone in this moment
	}
	remove := false
	if err == nil {
		item.Reason, remove, err = judge(ctx, r)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrCorrupt):
		item.Reason, item.Err = SweepDamaged, err
	case err != nil:
		item.Reason, item.Err = SweepUnknown, err
	case remove:
		item.Action = SweepRemove
		if !s.do {
			break
		}
		err := s.c.store.Delete(ctx, key, r.Version)
		s.trace(ctx, key, err)
		switch {
		case err == nil || errors.Is(err, ErrNotFound):
		case errors.Is(err, ErrConflict):
			item.Action, item.Reason = SweepKeep, SweepBusy
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			item.Action, item.Reason, item.Err = SweepKeep, SweepFailed, err
		}
	}
	s.report.Items = append(s.report.Items, item)
	return nil
}

// trace tells of a removal, without the session that a key may have.
func (s *signalSweeper) trace(ctx context.Context, key string, err error) {
	event := TraceEvent{Op: "inbox.sweep", ID: key}
	if session, ok := strings.CutPrefix(key, rosterPrefix); ok {
		event.ID, event.Target = rosterPrefix, SessionID(session)
	} else if session, ok := strings.CutPrefix(key, relayPrefix); ok {
		event.ID, event.Target = relayPrefix, SessionID(session)
	} else if rest, ok := strings.CutPrefix(key, relayedPrefix); ok && len(rest) > hostTailLen {
		at := len(rest) - hostTailLen
		event.ID, event.Target = relayedPrefix+rest[at:], SessionID(rest[:at-1])
	}
	s.c.trace(ctx, event, err)
}

// old reports whether something that was done then is over its time.
func (s *signalSweeper) old(done time.Time) bool {
	return s.opts.TTL != Forever && s.now.Sub(done) >= s.opts.TTL
}

func (s *signalSweeper) handoff(ctx context.Context, r Record) (SweepReason, bool, error) {
	var h handoffRecord
	if err := json.Unmarshal(r.Value, &h); err != nil || h.Done.IsZero() {
		return "", false, fmt.Errorf("%w: record of a handoff without its time", ErrCorrupt)
	}
	if !s.old(h.Done) {
		return SweepFresh, false, nil
	}
	for item, err := range s.c.store.Items(ctx, inboxQueue(h.To), ListOptions{After: max(h.Seq, 1) - 1}) {
		if err != nil {
			return "", false, err
		}
		if item.ID == string(h.ID) {
			return SweepNeeded, false, nil
		}
		if h.Seq > 0 {
			break // it would be the first
		}
	}
	return SweepExpired, true, nil
}

func (s *signalSweeper) fence(ctx context.Context, r Record) (SweepReason, bool, error) {
	var f fenceRecord
	if err := json.Unmarshal(r.Value, &f); err != nil || f.At.IsZero() {
		return "", false, fmt.Errorf("%w: record of a fence without its time", ErrCorrupt)
	}
	if !s.old(f.At) {
		return SweepFresh, false, nil
	}
	if s.open == nil {
		open, err := s.epochs(ctx)
		if err != nil {
			return "", false, err
		}
		s.open = open
	}
	if s.open[strings.TrimPrefix(r.Key, fencePrefix)] {
		return SweepNeeded, false, nil
	}
	return SweepExpired, true, nil
}

// epochs returns the epochs of what lies in the inboxes of the roster and is not
// settled. Nothing more of a fenced epoch comes while its fence is up.
func (s *signalSweeper) epochs(ctx context.Context) (map[string]bool, error) {
	open := map[string]bool{}
	for key, err := range s.c.store.Keys(ctx, rosterPrefix, "") {
		if err != nil {
			return nil, err
		}
		for item, err := range s.c.store.Items(ctx, inboxQueue(SessionID(strings.TrimPrefix(key, rosterPrefix))), ListOptions{}) {
			if err != nil {
				return nil, err
			}
			if signal, err := decodeSignal(item.Item, item.Seq); err == nil { // or Receive buries it
				open[signal.Epoch] = true
			}
		}
	}
	return open, nil
}

func (s *signalSweeper) relayed(ctx context.Context, r Record) (SweepReason, bool, error) {
	rest := strings.TrimPrefix(r.Key, relayedPrefix)
	var rec relayedRecord
	if err := json.Unmarshal(r.Value, &rec); err != nil || rec.Seq == 0 || len(rest) <= hostTailLen {
		return "", false, fmt.Errorf("%w: record of a relayed signal", ErrCorrupt)
	}
	session := SessionID(rest[:len(rest)-hostTailLen-1])
	for item, err := range s.c.store.Items(ctx, inboxQueue(session), ListOptions{After: rec.Seq - 1, Settled: true}) {
		if err != nil {
			return "", false, err
		}
		if item.ID == string(rec.ID) {
			return SweepFresh, false, nil
		}
		break
	}
	return SweepForgotten, true, nil
}

func (s *signalSweeper) member(ctx context.Context, r Record) (SweepReason, bool, error) {
	if s.opts.Alive == nil {
		return SweepFresh, false, nil
	}
	session := SessionID(strings.TrimPrefix(r.Key, rosterPrefix))
	alive, err := s.opts.Alive(ctx, session)
	if err != nil || alive {
		return SweepFresh, false, err
	}
	s.gone[session] = true
	return SweepDead, true, nil
}

func (s *signalSweeper) owner(ctx context.Context, r Record) (SweepReason, bool, error) {
	session := SessionID(strings.TrimPrefix(r.Key, relayPrefix))
	_, err := s.c.store.Get(ctx, rosterPrefix+string(session))
	switch {
	case errors.Is(err, ErrNotFound) || err == nil && s.gone[session]:
		return SweepLeftover, true, nil // of a relay that was killed
	default:
		return SweepFresh, false, err
	}
}

package team

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// An Activity is what a host says of a session at the moment.
type Activity string

// The activities. None means that the host does not say.
const (
	ActivityRunning Activity = "running"
	ActivityIdle    Activity = "idle"
)

// An Inspector is a Sessions that can tell more of one session than Session does. It
// is optional; where it is missing, a Join relies on Session.Outcome and Idle, which
// only 2.x has.
type Inspector interface {
	// Inspect returns what the host knows of a session at the moment, or ErrNotFound. What
	// the host does not say is zero.
	//
	// OpenCode 1.18: /session/:id, /session/status, /session/:id/message, /session/:id/children,
	// /permission and /question. 2.0: /api/session/:id, /api/session/active and …/message.
	Inspect(ctx context.Context, id SessionID) (Inspection, error)
}

// An Inspection is what an Inspector tells.
type Inspection struct {
	Session
	Activity Activity
	// Last is the last message of the agent, whatever it is; nil if there is none.
	Last *LastMessage
	// Open are the descendants that run; nil if the host does not say, empty if none.
	Open []SessionID
	// Asks are what the session waits for somebody to answer; nil and empty as in Open.
	Asks []ChildAsk
}

// A LastMessage is the end of what an agent said.
type LastMessage struct {
	Text      string    // all its text, without reasoning and tools
	Completed time.Time // zero while it is being written
	Finish    string    // the host's word: "stop", "tool-calls", …
	Error     string    // its name and message, if it failed
	Aborted   bool      // the error says that somebody stopped it
}

// Resync reads the snapshots of all children that have not settled, after a hole in the
// stream of events, and takes in what they say, marked as such. why says what happened. If
// the host cannot be asked about each, the hole stays (see Stream) and the next Wait tries
// again; an error is about the store.
func (j *Join) Resync(ctx context.Context, why string) error {
	err := checkName("why", why)
	if err == nil {
		j.gapped(why)
		err = j.resync(ctx, time.Time{})
	}
	return edge("join.resync", string(j.parent), err)
}

// gapped notes a hole in the stream.
func (j *Join) gapped(why string) {
	setDefault(&why, "unknown")
	j.stream.mu.Lock()
	j.stream.why = why
	j.stream.gaps++
	j.stream.last = time.Now()
	j.stream.mu.Unlock()
	j.gap.Store(true)
}

// connected takes the first event of a stream: all but the first stream have a hole
// before them.
func (j *Join) connected() {
	j.stream.mu.Lock()
	begun := j.stream.begun
	j.stream.begun = true
	j.stream.mu.Unlock()
	if begun {
		j.gapped("the stream began anew")
	}
}

// blind reports whether the beginning of a child that is registered now may have been
// lost in a hole.
func (j *Join) blind() bool {
	j.stream.mu.Lock()
	defer j.stream.mu.Unlock()
	return j.stream.gaps > 0 && (j.gap.Load() || time.Since(j.stream.last) < time.Minute)
}

// resync reads the snapshots of all that have not settled. until is as in inspect.
func (j *Join) resync(ctx context.Context, until time.Time) error {
	j.stream.mu.Lock()
	gaps := j.stream.gaps
	j.stream.mu.Unlock()
	all, err := j.find(nil)
	if err != nil {
		return err
	}
	filled := true
	for _, c := range all {
		c.mu.Lock()
		open, blind := !c.rec.State.Settled() || c.rec.Presumed, !c.rec.Started && !c.rec.Blind
		c.mu.Unlock()
		if !open {
			continue
		}
		if blind {
			if err := j.absorb(ctx, c, evidence{kind: evidenceBlind}); err != nil {
				return err
			}
		}
		mute, err := j.look(ctx, c, true, until)
		if err != nil {
			return err
		}
		c.mu.Lock()
		filled = filled && c.unseen == nil
		c.mu.Unlock()
		if mute {
			break
		}
	}
	j.stream.mu.Lock()
	defer j.stream.mu.Unlock()
	if filled && j.stream.gaps == gaps {
		j.stream.why = ""
		j.gap.Store(false)
	}
	return nil
}

// look reads the snapshot of a child. That the host does not answer is kept with the
// child; the error is about the store. mute: it took all the time there was, so do not ask
// about the next. until is as in inspect.
func (j *Join) look(ctx context.Context, c *joined, resync bool, until time.Time) (mute bool, err error) {
	c.mu.Lock()
	asOf := momentOf(&c.rec) // what comes while the host answers is newer than the answer
	c.mu.Unlock()
	seen, err := j.inspect(ctx, c.id, until)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	gone := errors.Is(err, ErrNotFound)
	if gone {
		err = nil
	}
	c.mu.Lock()
	c.unseen, c.looked = err, time.Now()
	rec := c.rec.clone()
	c.mu.Unlock()
	if err != nil {
		return errors.Is(err, context.DeadlineExceeded), nil
	}
	return false, j.saw(ctx, c, &rec, asOf, seen, gone, resync, until)
}

// saw takes in a snapshot of a child, or that the session is gone.
func (j *Join) saw(ctx context.Context, c *joined, rec *childRecord, asOf moment, seen Inspection, gone, resync bool, until time.Time) error {
	base := JoinEvidence{Source: FromSnapshot, Resync: resync}
	if gone {
		base.What, base.State, base.Reason = "not found", ChildInterrupted, "deleted"
		return j.absorb(ctx, c, evidence{JoinEvidence: base, asOf: asOf})
	}
	if err := j.lookBelow(ctx, c, rec, seen, base, until); err != nil {
		return err
	}
	e, answer, ok := judge(rec, seen, base, time.Now(), j.opts.Grace)
	if !ok {
		return nil
	}
	e.asOf = asOf
	if answer != nil {
		a, err := j.keepAnswer(ctx, c, *answer, hexDigest(bytesOf(trimmed(*answer))))
		if err == nil { // else the next who wants the text reads it again
			e.answer = &a
		}
	}
	return j.absorb(ctx, c, e)
}

// inspect asks the host about a session, as well as it can be asked. It has until then
// to answer, zero is never, and not longer than Look.
func (j *Join) inspect(ctx context.Context, id SessionID, until time.Time) (seen Inspection, err error) {
	end := time.Now().Add(j.opts.Look)
	if !until.IsZero() && until.Before(end) {
		end = until
	}
	ask, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	switch host, ok := j.opts.Sessions.(Inspector); {
	case j.opts.Sessions == nil:
		return seen, fmt.Errorf("%w: there are no Sessions to ask; set JoinOptions.Sessions", errors.ErrUnsupported)
	case ask.Err() != nil:
		err = ask.Err()
	case ok:
		seen, err = host.Inspect(ask, id)
	default:
		seen.Session, err = j.opts.Sessions.Session(ask, id)
	}
	if err != nil && ask.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("the host did not answer in time: %w", ask.Err())
	}
	return seen, err
}

// lookBelow takes in what a snapshot says of descendants and asks.
func (j *Join) lookBelow(ctx context.Context, c *joined, rec *childRecord, seen Inspection, base JoinEvidence, until time.Time) error {
	var found []evidence
	if seen.Open != nil {
		for _, id := range seen.Open {
			found = append(found, evidence{kind: evidenceOpen, other: id})
		}
		for _, id := range rec.Open {
			if !slices.Contains(seen.Open, id) {
				found = append(found, evidence{kind: evidenceClosed, other: id})
			}
		}
	} else if base.Resync {
		for _, id := range rec.Open { // their endings may be in the hole
			s, err := j.inspect(ctx, id, until)
			if errors.Is(err, context.DeadlineExceeded) {
				break
			}
			if errors.Is(err, ErrNotFound) || err == nil && (s.Activity == ActivityIdle || s.Activity == "" && s.Outcome != "") {
				found = append(found, evidence{kind: evidenceClosed, other: id})
			}
		}
	}
	if seen.Asks != nil {
		asks := slices.Clone(seen.Asks)
		for i := range asks {
			a := &asks[i]
			a.ID = boundID(a.ID)
			if a.Session == "" || checkSession("session", a.Session) != nil {
				a.Session = c.id
			}
			found = append(found, evidence{kind: evidenceAsk, ask: *a})
		}
		for _, a := range rec.Asks {
			if a.Session == c.id && !slices.ContainsFunc(asks, func(b ChildAsk) bool { return a.ID == b.ID }) {
				found = append(found, evidence{kind: evidenceAnswered, ask: a})
			}
		}
	}
	for _, e := range found {
		e.JoinEvidence = base
		if err := j.absorb(ctx, c, e); err != nil {
			return err
		}
	}
	return nil
}

// judge says what a snapshot means for a child, and false if nothing.
func judge(rec *childRecord, seen Inspection, base JoinEvidence, now time.Time, grace time.Duration) (e evidence, answer *string, ok bool) {
	e.JoinEvidence = base
	last := seen.Last
	switch {
	case seen.Activity == ActivityRunning:
		e.kind, e.What = evidenceStart, "running"
		return e, nil, true
	case seen.Outcome != "" && rec.fresh(seen.Idle):
		e.What, e.Host = "outcome "+cutReason(seen.Outcome), hostTime(seen.Idle)
		switch seen.Outcome {
		case "succeeded":
			e.State = ChildCompleted
		case "failed":
			e.State = ChildFailed
		case "interrupted":
			e.State = ChildInterrupted
		default:
			e.State, e.Reason = ChildUnknown, seen.Outcome
		}
		if last != nil && last.Error != "" && e.State != ChildCompleted {
			setDefault(&e.Reason, last.Error)
		}
		// Without a word that it does not run, the outcome may be that of a turn before.
		e.presumed = rec.Blind && rec.Turn == 1 && seen.Activity == ""
	case last != nil && !last.Completed.IsZero() && last.Finish != "tool-calls" && rec.fresh(last.Completed):
		e.What, e.Host = "last message", hostTime(last.Completed)
		switch {
		case last.Aborted:
			e.State, e.Reason = ChildInterrupted, last.Error
		case last.Error != "":
			e.State, e.Reason = ChildFailed, last.Error
		default:
			e.State = ChildCompleted
		}
		e.presumed = seen.Activity == ""
	case last == nil && seen.Activity == ActivityIdle && !rec.Started && rec.Turn == 1 && now.Sub(rec.Registered) > grace:
		e.What, e.State = "idle without a message", ChildNeverStarted
	case seen.Activity == ActivityIdle && (rec.Started || rec.Turn > 1 || last != nil) && now.Sub(rec.Registered) > grace && now.Sub(rec.Floor) > grace:
		// It does not run, and how it ended is lost: in a hole, or it never began.
		e.What, e.State, e.presumed, e.Reason = "idle", ChildUnknown, true, "idle; its ending was not seen"
		return e, nil, true
	default:
		return e, nil, false
	}
	if last != nil && e.State == ChildCompleted && seen.Activity == ActivityIdle {
		if trimmed(last.Text) == "" {
			e.State = ChildEmpty
		}
		answer = &last.Text
	}
	return e, answer, true
}

// fresh reports whether an ending at that time, by the host's clock, is one of the
// turn that the child is in.
func (r *childRecord) fresh(ended time.Time) bool {
	switch {
	case !r.Began.IsZero():
		return ended.After(r.Began)
	case r.Turn > 1:
		return ended.After(r.Floor)
	case r.Adopted:
		return true
	default:
		// Who is registered when it is born has no ending before; who was not, may.
		return ended.IsZero() || ended.After(r.Registered.Add(-time.Minute))
	}
}

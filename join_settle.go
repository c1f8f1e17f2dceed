package team

import (
	"slices"
	"strings"
	"time"
)

// evidenceKind is what evidence does to a child.
type evidenceKind int

const (
	evidenceEnd      evidenceKind = iota // its turn is over, in State
	evidenceStart                        // it runs: if its turn was over, in the next
	evidenceStep                         // it runs, in whichever turn it is
	evidenceIdle                         // 1.x: it does not run any more
	evidenceSeems                        // its turn seems over, in State
	evidenceNote                         // it says a word that settles nothing
	evidenceParked                       // the host goes down, and will go on with it
	evidenceRetry                        // the host tries again
	evidenceAsk                          // it waits for an answer
	evidenceAnswered                     //
	evidenceOpen                         // a descendant runs
	evidenceClosed                       // a descendant has ended
	evidenceDispatch                     // a call of the parent gives it work
	evidenceCancel                       // we are about to ask the host to stop it
	evidenceNoCancel                     // the host did not stop anything
	evidenceBlind                        // part of its turn was not seen
	evidenceAnswer                       // what its turn ended with, by another way
)

// evidence is one thing that was learned of a child.
type evidence struct {
	JoinEvidence
	kind     evidenceKind
	presumed bool
	turn     int       // of evidenceAnswer
	ask      ChildAsk  // of evidenceAsk and evidenceAnswered
	other    SessionID // of evidenceOpen and evidenceClosed
	dispatch Dispatch
	begins   bool    // the stream says that the call begins: no turn that is over is its
	answer   *Answer // the text that came with it
	sight    *Sighting
	seen     string // what the envelope is known by, so that it counts once
	asOf     moment // of a snapshot: zero is always
}

// A moment is how far a child was when somebody asked about it.
type moment struct {
	turn    int
	settled bool
}

func momentOf(r *childRecord) moment { return moment{r.Turn, r.State.Settled()} }

// stale reports whether the child has gone on since the host was asked for e: a session that
// ran before its ending came has not begun anew, and one that was idle before its next
// turn began has not ended that.
func (r *childRecord) stale(e evidence) bool {
	if e.asOf.turn == 0 {
		return false
	}
	return e.asOf.turn != r.Turn || e.kind == evidenceStart && e.asOf.settled != r.State.Settled()
}

// about reports whether the envelope names the turn it ends by the order of calls.
func (e evidence) about() bool { return e.Source == FromEnvelope || e.Source == FromNotice }

// apply takes evidence into the record, and reports whether that changed anything
// that must be kept. It is a function of its arguments, so that a writer that lost
// a race applies it to what the other wrote.
func (r *childRecord) apply(e evidence, now time.Time, opts *JoinOptions) bool {
	if !e.At.IsZero() {
		now = e.At // it came before the child was known, or the store failed
	}
	changed := r.due(now)
	if r.stale(e) {
		return changed
	}
	if e.Source == FromEvent && e.Seq != 0 {
		if e.Seq <= r.Seq {
			return changed // it came late, or twice
		}
		r.Seq = e.Seq
	}
	setDefault(&e.At, now.UTC())
	e.Reason, e.What, e.ID = cutReason(e.Reason), cutReason(e.What), boundID(e.ID)
	e.ask.ID, e.ask.Kind, e.dispatch.Call = boundID(e.ask.ID), cutReason(e.ask.Kind), boundID(e.dispatch.Call)
	if e.Source == FromEvent || e.Source == FromSnapshot && e.Resync {
		switch e.kind {
		case evidenceStart:
			changed = !r.Shows || changed
			r.Shows = true
		case evidenceEnd:
			r.Shows = false
		case evidenceIdle:
			if !r.Shows && (r.Turn > 1 || r.State.Settled() && !r.Presumed || r.Owes > 0) {
				return changed // 1.x says it several times
			}
			changed = r.Shows || changed
			r.Shows = false
		}
	}
	if e.Source == FromEvent && r.behind(now) {
		if done, kept := r.owed(e); done {
			return kept || changed
		}
	}
	switch e.kind {
	case evidenceStart:
		return r.start(e) || changed
	case evidenceStep:
		return !r.State.Settled() && r.runs() || changed
	case evidenceIdle:
		return r.idle(e, now, opts) || changed
	case evidenceSeems:
		return r.seems(e, now, opts) || changed
	case evidenceEnd:
		return r.end(e, now, opts) || changed
	case evidenceNote:
		return r.State.Settled() && r.later(&r.ChildTurn, e) || !r.State.Settled() && r.ChildTurn.keep(e) || changed
	case evidenceParked:
		if r.State.Settled() || r.Parked {
			return changed
		}
		r.Parked, r.Over, r.Reason = true, nil, e.Reason
		r.ChildTurn.keep(e)
		return true
	case evidenceRetry:
		if r.State.Settled() {
			return changed
		}
		first := r.Retry == ""
		r.Retry, r.Retried = e.Reason, now.UTC()
		setDefault(&r.Retry, e.What)
		return first || changed
	case evidenceAsk:
		return r.asks(e) || changed
	case evidenceAnswered:
		n := len(r.Asks)
		r.Asks = slices.DeleteFunc(r.Asks, func(a ChildAsk) bool { return a.ID == e.ask.ID })
		return len(r.Asks) != n || changed
	case evidenceOpen:
		return r.open(e) || changed
	case evidenceClosed:
		return r.closed(e.other, now, opts) || changed
	case evidenceDispatch:
		return r.dispatched(e, now, opts) || changed
	case evidenceCancel, evidenceNoCancel:
		asked := e.kind == evidenceCancel
		if r.State.Settled() && !r.Presumed || r.Cancel == asked {
			return changed
		}
		r.Cancel = asked
		return true
	case evidenceBlind:
		blind := r.Blind
		r.Blind = true
		return !blind || changed
	case evidenceAnswer:
		t := r.turn(e.turn)
		return t != nil && t.learn(e) || changed
	}
	return changed
}

// behind reports whether the stream has not come yet to an ending that is known by
// another way.
func (r *childRecord) behind(now time.Time) bool {
	if r.Owes > 0 && !now.Before(r.OwesUntil) {
		r.Owes = 0 // no stream is that far behind: it was lost
	}
	return r.Owes > 0
}

// owed takes an event of a turn that has ended by another way, and reports whether it
// is one, and whether that changed anything.
func (r *childRecord) owed(e evidence) (done, changed bool) {
	if e.Reason == "deleted" {
		return false, false
	}
	// It owes the endings of the last turns that have ended, and comes to them in order.
	n := r.Turn - r.Owes + 1
	if !r.State.Settled() || r.Presumed {
		n--
	}
	t := r.turn(n)
	if t == nil {
		t = new(ChildTurn) // too long ago to be kept
	}
	switch e.kind {
	case evidenceStart, evidenceStep, evidenceRetry, evidenceParked:
		return true, false
	case evidenceSeems:
		if e.endsTurn() {
			r.Owes--
		}
		r.later(t, e)
		return true, true
	case evidenceIdle, evidenceEnd:
		if r.hasOpen() {
			return true, false // its work in the background will wake it again
		}
		r.Owes--
		if e.kind == evidenceEnd {
			r.later(t, e)
		}
		return true, true
	}
	return false, false
}

// endsTurn reports whether what seems an ending is all that the stream will say of it: in the second API of
// 1.18 it is, while the first sends that the session is idle as well.
func (e JoinEvidence) endsTurn() bool {
	return e.Source == FromEvent && strings.HasPrefix(e.What, "session.next.")
}

// activityLag is how long after the event of its ending a host may still call a session
// active.
const activityLag = time.Second

// start is evidence that the child runs.
func (r *childRecord) start(e evidence) bool {
	if !r.State.Settled() {
		if e.Source == FromSnapshot && !e.Resync && r.Retry != "" && r.Over == nil && !r.Parked {
			return false // a session that waits for its next try counts as running
		}
		return r.runs()
	}
	switch {
	case e.Seq == 0 && !e.Host.IsZero() && e.Host.Before(r.HostEnd):
		return false // from before the ending
	case e.Source == FromSnapshot && !r.Presumed && e.At.Before(r.Ended.Add(activityLag)):
		return false // the host may name it active a moment longer than its event says
	case r.Presumed:
		r.goesOn(e)
		return true
	}
	r.next(e.Host, false)
	r.runs()
	return true
}

// goesOn takes back an ending that was presumed, and keeps that on record.
func (r *childRecord) goesOn(e evidence) {
	r.conflict(JoinConflict{Counts: r.State, Said: e.JoinEvidence})
	r.State, r.Presumed, r.By, r.Ended, r.Reason = ChildRunning, false, JoinEvidence{}, time.Time{}, ""
	r.runs()
}

// runs takes back what only seemed so.
func (r *childRecord) runs() bool {
	changed := !r.Started || r.State == ChildSettling || r.Over != nil || r.Retry != "" || r.Parked
	r.State, r.Started, r.Over, r.Retry, r.Parked = ChildRunning, true, nil, "", false
	return changed
}

// next begins the next turn.
func (r *childRecord) next(began time.Time, dispatched bool) {
	r.Earlier = append(r.Earlier, r.ChildTurn)
	if n := len(r.Earlier) - mostEarlier; n > 0 {
		r.Earlier = slices.Delete(r.Earlier, 0, n)
	}
	r.Floor = r.Ended
	if !r.HostEnd.IsZero() {
		r.Floor = r.HostEnd.Add(time.Second) // a host may note its ending a little later than it tells
	}
	r.HostEnd = time.Time{}
	r.ChildTurn = ChildTurn{Turn: r.Turn + 1, State: ChildRunning, Dispatched: dispatched}
	r.Began, r.Started, r.Blind, r.Cancel, r.Over, r.Asks = began, false, false, false, nil, nil
	r.Retry, r.Parked = "", false
}

// idle is 1.x's word that the session does not run, which is no word for how it
// ended.
func (r *childRecord) idle(e evidence, now time.Time, opts *JoinOptions) bool {
	switch {
	case r.State.Settled() && !r.Presumed:
		return false // as we know already
	case r.State == ChildSettling:
		return false // as we know already
	case r.Over != nil && r.Over.By.State != ChildCompleted:
		host := e.Host
		e.JoinEvidence = r.Over.By
		setDefault(&e.Host, host)
	case r.Started:
		e.State = ChildCompleted
	case r.Blind:
		e.State, e.presumed = ChildUnknown, true
		setDefault(&e.Reason, "idle; whether it ran was not seen")
	default:
		e.State = ChildNeverStarted
	}
	return r.end(e, now, opts)
}

// seems is evidence of an ending that the host may still take back.
func (r *childRecord) seems(e evidence, now time.Time, opts *JoinOptions) bool {
	if r.State.Settled() && !r.Presumed {
		return r.later(&r.ChildTurn, e)
	}
	r.Over = &seeming{By: e.JoinEvidence}
	if !r.hasOpen() {
		r.Over.Due = now.Add(opts.Grace).UTC()
	}
	r.Started = true
	r.ChildTurn.keep(e)
	return true
}

// due makes an ending of what seems one, when its time has come.
func (r *childRecord) due(now time.Time) bool {
	if r.Over == nil || r.Over.Due.IsZero() || now.Before(r.Over.Due) || r.hasOpen() {
		return false
	}
	by := r.Over.By
	r.ChildTurn.keep(evidence{JoinEvidence: JoinEvidence{Source: FromGrace, What: "nothing came since", State: by.State, At: now.UTC()}})
	r.settle(evidence{JoinEvidence: by}, now)
	return true
}

func (r *childRecord) hasOpen() bool { return len(r.Open) > 0 }

// end is evidence that a turn is over.
func (r *childRecord) end(e evidence, now time.Time, opts *JoinOptions) bool {
	if e.about() {
		if e.seen != "" && !keepLast(&r.Seen, e.seen) {
			return false
		}
		t := r.told(e.ID, e.State)
		t.Told = true
		if e.State == ChildUnknown {
			// The host has a word that we do not know: it need not be an ending.
			t.keep(e)
			return true
		}
		t.learn(e)
		if t != &r.ChildTurn {
			r.later(t, e)
			return true
		}
	}
	if r.State.Settled() && (!r.Presumed || e.presumed) {
		learned := !r.Answer.Known && r.learn(e)
		return r.later(&r.ChildTurn, e) || learned || e.about()
	}
	kept := r.ChildTurn.keep(e)
	if (r.hasOpen() || r.State == ChildSettling) && (e.presumed || e.State == ChildCompleted || e.State == ChildEmpty || e.State == ChildFailed) {
		// Its own work in the background will wake it again, or has just ended and may.
		if over := r.Over; !e.presumed && r.hasOpen() && (over == nil || e.Source != FromEvent || over.By.Source == FromEvent) {
			r.State, r.Over = ChildSettling, &seeming{By: e.JoinEvidence}
			r.Asks = slices.DeleteFunc(r.Asks, func(a ChildAsk) bool { return a.Session == r.Session }) // the answer was lost
			return true
		}
		if e.about() && r.Over != nil {
			r.Over.By = e.JoinEvidence // what the host tells of the whole is more than one idle
			return true
		}
		return kept
	}
	told := r.Over != nil && r.Over.By.endsTurn() // the stream was first
	r.settle(e, now)
	if !e.Resync && !e.presumed && !told {
		r.owe(e.Source, now, opts)
	}
	return true
}

// owe notes that the stream will come to an ending that is known from source.
func (r *childRecord) owe(source JoinSource, now time.Time, opts *JoinOptions) {
	if source != FromEvent {
		r.Owes++
		r.OwesUntil = now.Add(opts.Lag).UTC()
	}
}

// settle makes e the ending that counts.
func (r *childRecord) settle(e evidence, now time.Time) {
	e.State = r.cancelled(e.State)
	if r.State.Settled() && !alike(r.State, e.State) { // that was presumed
		r.conflict(JoinConflict{Counts: e.State, Said: r.By})
	}
	r.State, r.Reason, r.Presumed, r.By, r.Ended = e.State, e.Reason, e.presumed, e.JoinEvidence, now.UTC()
	r.Asks, r.Retry, r.Parked = nil, "", false
	if !e.presumed {
		r.Over = nil // else what seems so is still better than what is presumed
	}
	if !e.Host.IsZero() {
		r.HostEnd = e.Host
	}
	r.learn(e)
}

// cancelled tells an interrupt that we asked for from others.
func (r *childRecord) cancelled(s ChildState) ChildState {
	if s == ChildInterrupted && r.Cancel {
		return ChildCancelled
	}
	return s
}

func (r *childRecord) asks(e evidence) bool {
	if r.State.Settled() || len(r.Asks) >= mostAsks || slices.ContainsFunc(r.Asks, func(a ChildAsk) bool { return a.ID == e.ask.ID }) {
		return false
	}
	e.ask.At = e.At
	r.Asks = append(r.Asks, e.ask)
	return true
}

func (r *childRecord) open(e evidence) bool {
	id := e.other
	if r.State.Settled() && !r.Presumed && r.Owes == 0 || len(r.Open) >= mostOpen || slices.Contains(r.Open, id) || checkSession("descendant", id) != nil {
		return false
	}
	if r.State.Settled() && r.Presumed {
		r.goesOn(e) // who begins something works
	}
	r.Open = append(r.Open, id)
	if r.Over != nil {
		r.Over.Due = time.Time{}
	}
	return true
}

func (r *childRecord) closed(id SessionID, now time.Time, opts *JoinOptions) bool {
	i := slices.Index(r.Open, id)
	if i < 0 {
		return false
	}
	r.Open = slices.Delete(r.Open, i, i+1)
	if !r.hasOpen() && r.Over != nil {
		r.Over.Due = now.Add(opts.Grace).UTC()
	}
	return true
}

// dispatched takes a call of the parent that gives the child work. The same call
// again says nothing new.
func (r *childRecord) dispatched(e evidence, now time.Time, opts *JoinOptions) bool {
	d := e.dispatch
	changed := d.Background && !r.Background
	r.Background = r.Background || d.Background
	if r.Agent == "" && d.Agent != "" || r.Label == "" && d.Label != "" {
		setDefault(&r.Agent, d.Agent)
		setDefault(&r.Label, d.Label)
		changed = true
	}
	if d.Call == "" || r.called(d.Call) != 0 {
		return changed
	}
	t := r.uncalled(now, opts)
	if e.begins && t != nil && t.State.Settled() {
		t = nil
	}
	switch {
	case t != nil:
		t.Dispatched = true // the stream was faster than the call
	case r.State == ChildSettling && r.Told && r.Over != nil:
		// The parent has its answer, and asks for more.
		r.settle(evidence{JoinEvidence: r.Over.By}, now)
		r.owe(FromEnvelope, now, opts)
		r.next(time.Time{}, true)
		t = &r.ChildTurn
	case r.State.Settled() && (len(r.Calls) > 0 || !r.Dispatched):
		r.next(time.Time{}, true)
		t = &r.ChildTurn
	default:
		t = &r.ChildTurn
	}
	r.Calls = append(r.Calls, childCall{ID: d.Call, Turn: t.Turn})
	if n := len(r.Calls) - mostSeen; n > 0 {
		r.Calls = slices.Delete(r.Calls, 0, n)
	}
	return true
}

// uncalled returns the first turn behind those with a call that may have been begun by
// one that is only now heard of, or nil.
func (r *childRecord) uncalled(now time.Time, opts *JoinOptions) *ChildTurn {
	last := 0
	for _, c := range r.Calls {
		last = max(last, c.Turn)
	}
	for i := range r.Earlier {
		if t := &r.Earlier[i]; t.Turn > last && now.Sub(t.Ended) < opts.Lag {
			return t
		}
	}
	if r.Turn > last && (!r.State.Settled() || now.Sub(r.Ended) < opts.Lag) {
		return &r.ChildTurn
	}
	return nil
}

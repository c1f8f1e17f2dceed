package fakehost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/teamchan/team"
)

// Why an execution was cancelled.
var (
	errInterrupted = errors.New("interrupted by the user")
	errShutdown    = fmt.Errorf("the host is shut down: %w", team.ErrClosed)
	errRemoved     = errors.New("the session was removed")
)

// A run is the execution of one session in this process: one busy period, and those that
// were asked for while it lasted. Host.mu guards what changes.
type run struct {
	session string
	ctx     context.Context
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when the session is idle

	again    bool     // woken while busy
	boundary boundary // what the period begins with
	resume   bool     // after an interrupt: go on with steers
	last     ending   // of the period before
}

// wake makes the session work after the commit, if it has something to do.
func (t *tx) wake(session string) { t.later(func() { t.h.wakeLocked(session, idle) }) }

func (h *Host) wakeLocked(session string, b boundary) {
	if h.closing || h.dead {
		return
	}
	if r := h.runs[session]; r != nil {
		r.again = true
		return
	}
	r := &run{session: session, done: make(chan struct{}), boundary: b}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	h.runs[session] = r
	h.work.Go(func() {
		for again := true; again; {
			h.period(r)
			again = h.rest(r)
		}
	})
}

// rest ends the run, or readies it for another period.
func (h *Host) rest(r *run) (again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.cancel(nil)
	switch {
	case h.closing || h.dead:
	case r.again:
		r.again, r.boundary, again = false, idle, true
	case r.resume:
		r.boundary, again = idleSteers, true
	}
	r.resume = false
	if again {
		r.ctx, r.cancel = context.WithCancelCause(context.Background())
		return true
	}
	delete(h.runs, r.session)
	delete(h.status, r.session)
	close(r.done)
	return false
}

// period is one busy period: it promotes what there is, lets the agent work on it, and
// looks again, until there is nothing left.
func (h *Host) period(r *run) {
	begun := false
	for {
		var s *Session
		var items []InboxItem
		err := h.tx(func(t *tx) error {
			var err error
			if s, err = t.session(r.session); err != nil {
				return err
			}
			if items, err = t.promotable(r.session, r.boundary); err != nil {
				return err
			}
			if len(items) == 0 {
				if begun {
					r.last = ending{outcome: "succeeded"}
					return t.ended(s, r.last)
				}
				return nil
			}
			if !begun {
				s.Claim = "running"
				if err := t.run(`UPDATE session_v2 SET claim = 'running' WHERE id = ?`, s.ID); err != nil {
					return err
				}
				if err := h.journal().began(t, s); err != nil {
					return err
				}
			}
			return t.deliver(s, items)
		})
		if err != nil || len(items) == 0 {
			return // removed, or closed
		}
		begun = true
		err = h.handle(r, s, items)
		if err == nil && r.ctx.Err() == nil {
			continue
		}
		if cause := context.Cause(r.ctx); cause != nil {
			err = cause
		}
		_ = h.tx(func(t *tx) error {
			s, err2 := t.session(r.session)
			if err2 != nil {
				return err2
			}
			r.last = h.endingOf(err)
			return t.ended(s, r.last)
		})
		return
	}
}

// handle works on what was promoted.
func (h *Host) handle(r *run, s *Session, items []InboxItem) error {
	switch items[0].Type {
	case "compaction":
		return h.compact(r, s, items[0])
	case "move":
		return h.move(s, items[0])
	default:
		h.title(s, items)
		return h.turn(r, items)
	}
}

// An ending is how an execution ends.
type ending struct {
	outcome string // "succeeded", "failed", "interrupted"
	reason  string // of "interrupted"
	err     *AgentError
	silent  bool // generation 1: a decline is no error
}

// declined reports whether a person refused what the agent asked for, which ends its turn.
func declined(err error) bool {
	if p, ok := errors.AsType[*PermissionError](err); ok {
		return p.Kind == "declined"
	}
	_, ok := errors.AsType[*DismissedError](err)
	return ok
}

func (h *Host) endingOf(err error) ending {
	switch {
	case errors.Is(err, errShutdown):
		return ending{outcome: "interrupted", reason: "shutdown"}
	case errors.Is(err, errInterrupted), errors.Is(err, errRemoved):
		return ending{outcome: "interrupted", reason: "user"}
	case declined(err):
		if h.has(FaultShutdownAfterDecline) {
			return ending{outcome: "interrupted", reason: "shutdown", silent: true}
		}
		return ending{outcome: "interrupted", reason: "user", silent: true}
	default:
		return ending{outcome: "failed", err: agentError(err)}
	}
}

// ended writes how an execution ended, in the session, the history and the events.
func (t *tx) ended(s *Session, e ending) error {
	if t.h.has(FaultTerminalMissing) {
		return nil
	}
	switch {
	case e.reason == "shutdown":
		s.Claim = "shutdown" // the turn goes on at the next start
	default:
		s.Claim = ""
		if !s.v1 {
			s.Outcome, s.Idle = e.outcome, t.now
		}
	}
	if err := t.run(`UPDATE session_v2 SET claim = ?2, idle_outcome = ?3, time_idle = ?4 WHERE id = ?1`,
		s.ID, null(s.Claim), null(s.Outcome), zeroNull(s.Idle)); err != nil {
		return err
	}
	return t.h.journal().ended(t, s, e)
}

// Interrupt stops what a session is doing and reports whether there was something to stop.
// It returns when the stop is asked for. Foreground children are stopped with it; what is in
// the inbox stays there, and with resume set the session goes on with its steers.
func (d *SessionDomain) Interrupt(ctx context.Context, session string, resume bool) (bool, error) {
	if _, err := d.Get(ctx, session); err != nil {
		return false, err
	}
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "interrupt", Session: session}); err != nil {
		return false, err
	}
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	r := d.h.runs[session]
	if r == nil {
		if resume {
			d.h.wakeLocked(session, idleSteers)
		}
		return false, nil
	}
	r.again, r.resume = false, resume
	r.cancel(errInterrupted)
	return true, nil
}

// interrupt stops a session for a reason of the host's own.
func (h *Host) interrupt(session string, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.runs[session]; r != nil {
		r.again = false
		r.cancel(cause)
	}
}

// Wait returns when this process has no execution of the session under way; at once if it
// is idle. It starts nothing.
func (d *SessionDomain) Wait(ctx context.Context, session string) error {
	if _, err := d.Get(ctx, session); err != nil {
		return err
	}
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "wait", Session: session}); err != nil {
		return err
	}
	return d.wait(ctx, session)
}

func (d *SessionDomain) wait(ctx context.Context, session string) error {
	d.h.mu.Lock()
	r := d.h.runs[session]
	d.h.mu.Unlock()
	if r == nil {
		return nil
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Resume wakes the session and waits until it is idle.
func (d *SessionDomain) Resume(ctx context.Context, session string) error {
	if _, err := d.Get(ctx, session); err != nil {
		return err
	}
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "resume", Session: session}); err != nil {
		return err
	}
	d.h.mu.Lock()
	d.h.wakeLocked(session, idle)
	d.h.mu.Unlock()
	return d.wait(ctx, session)
}

// Active returns the sessions that this process works on.
func (d *SessionDomain) Active(ctx context.Context) ([]string, error) {
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "active"}); err != nil {
		return nil, err
	}
	var out []string
	for id := range d.active() {
		out = append(out, id)
	}
	return out, nil
}

func (d *SessionDomain) active() map[string]bool {
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	out := make(map[string]bool)
	for id := range d.h.runs {
		out[id] = true
	}
	return out
}

// Recover goes on with what Unfinished returns, as the host does at its start: each gets a
// synthetic text that says so, and is woken.
func (d *SessionDomain) Recover(ctx context.Context) error {
	list, err := d.Unfinished(ctx)
	if err != nil {
		return err
	}
	for _, s := range list {
		err := d.h.tx(func(t *tx) error {
			if err := t.run(`UPDATE session_v2 SET claim = NULL WHERE id = ?`, s.ID); err != nil {
				return err
			}
			_, err := t.admit(s.ID, "synthetic", Prompt{Text: "The host was restarted; go on.", Synthetic: true})
			return err
		})
		if err != nil && !errors.Is(err, team.ErrNotFound) {
			return err
		}
	}
	return nil
}

// retryDelay is how long the host waits before the attempt.
func retryDelay(attempt int) time.Duration {
	return min(2*time.Second<<min(attempt-1, 4), 30*time.Second)
}

package team

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// How many children a Wait is for, beside a number.
const (
	WaitAll = 0
	WaitAny = 1
)

// WaitOptions say what a Wait waits for. The zero value waits for all children.
type WaitOptions struct {
	// Children are those to wait for; nil is all that are registered when the wait
	// begins. An id that is none of them is a *ChildError, and never means all.
	Children []SessionID

	// For is how many of them have to settle: WaitAll, WaitAny or a number.
	For int

	// Timeout is how long to wait. Zero, and what is longer, is JoinOptions.Wait; behind a
	// wait that ended unsettled it is JoinOptions.WaitAgain.
	Timeout time.Duration

	// Firm: what is only presumed does not count as settled.
	Firm bool

	// NoResults leaves out the answers, and nothing counts as shown.
	NoResults bool
}

// A WaitEnd says why a Wait returned.
type WaitEnd string

// The ends.
const (
	WaitSettled  WaitEnd = "settled"     // as many as were waited for
	WaitDeadline WaitEnd = "deadline"    // the time was over; the children go on
	WaitAsked    WaitEnd = "asked"       // a child waits for somebody's answer; see Child.Asks
	WaitNone     WaitEnd = "no children" // there is nothing to wait for
)

// A Waited is what a Wait saw.
type Waited struct {
	End WaitEnd
	// Children are those that were waited for, in order of registration, all of them. One
	// that has not settled when the time is over is ChildTimedOut, ChildStalled or ChildUnseen
	// here, with what it does as Reason; its record stays as it is.
	Children []Child
	// Results are the answers of those that have settled, in the same order. An answer
	// that was shown before is a pointer.
	Results []Result

	Settled, Failed, Running int // Failed are those of Settled that are neither completed nor presumed

	Waited, Allowed time.Duration
	// Streak is how many waits in a row ended at their deadline, this one included, in
	// all processes; StreakFor is since the first of them began.
	Streak    int
	StreakFor time.Duration
	Gap       string // why what is said here may be old: the stream has a hole
}

// Wait returns when as many children have settled as opts says, when one of them asks
// something that no Wait of this Join has returned for yet, or when the time is over, which is
// an outcome and no error: the children work on, and the next Wait carries on. After a
// wait that ended unsettled the next ones are short, and say how many there were: chained
// waits block a lead for long. One that settles ends the streak; one that is
// asked something does neither.
//
// An error is about the arguments, the store, or ctx. Nothing is lost then: what was
// settled is in the Records, and no answer counts as shown.
func (j *Join) Wait(ctx context.Context, opts *WaitOptions) (Waited, error) {
	var o WaitOptions
	if opts != nil {
		o = *opts
	}
	w, err := j.wait(ctx, o)
	return w, edge("join.wait", string(j.parent), err)
}

func (j *Join) wait(ctx context.Context, o WaitOptions) (Waited, error) {
	begun := time.Now()
	var w Waited
	if o.For < 0 || o.Timeout < 0 {
		return w, &InvalidError{What: "wait", Why: "is for a negative number or time", Offset: -1, Advice: "use WaitAll, WaitAny or a number"}
	}
	if err := ctx.Err(); err != nil {
		return w, err
	}
	broken, err := j.load(ctx)
	if err != nil {
		return w, err
	}
	if o.Children != nil {
		broken = nil // they are not waited for
	}
	all, err := j.find(o.Children)
	if err != nil {
		return w, err
	}
	if len(all) == 0 {
		w.End = WaitNone
		return w, broken
	}
	if o.For > len(all) {
		return w, &InvalidError{What: "wait", Why: fmt.Sprintf("is for %d of %d children", o.For, len(all)), Offset: -1, Advice: "use WaitAll"}
	}
	need := o.For
	setDefault(&need, len(all))

	before, err := j.meta(ctx, func(*joinRecord) bool { return false })
	if err != nil {
		return w, err
	}
	w.Allowed = j.opts.Wait
	if before.Streak > 0 {
		w.Allowed = min(w.Allowed, j.opts.WaitAgain)
	}
	if o.Timeout > 0 {
		w.Allowed = min(w.Allowed, o.Timeout)
	}
	if w.End, err = j.await(ctx, all, need, o.Firm, begun.Add(w.Allowed)); err != nil {
		return w, err
	}
	w.Waited = time.Since(begun)

	after, err := j.meta(ctx, func(m *joinRecord) bool {
		switch {
		case w.End == WaitDeadline:
			if m.Streak == 0 {
				m.Since = begun.UTC()
			}
			m.Streak++
		case w.End == WaitSettled && m.Streak > 0:
			m.Streak, m.Since = 0, time.Time{}
		default:
			return false
		}
		return true
	})
	if err != nil {
		return w, err
	}
	w.Streak = after.Streak
	if after.Streak > 0 {
		w.StreakFor = time.Since(after.Since)
	}
	err = j.report(ctx, &w, all, o)
	for _, c := range all {
		c.mu.Lock()
		setDefault(&broken, c.broken)
		c.mu.Unlock()
	}
	return w, errors.Join(err, broken)
}

// report fills in what a Wait saw.
func (j *Join) report(ctx context.Context, w *Waited, all []*joined, o WaitOptions) error {
	w.Gap = j.Stream().Gap
	until := time.Now().Add(j.opts.Look) // for all texts that the host has to be asked for
	shown := false
	for _, c := range all {
		child := c.account()
		if child.Settled() && !(o.Firm && child.Presumed) && !o.NoResults {
			r, err := j.surface(ctx, c, "wait", until)
			if err != nil {
				r.Unread = err
			}
			if shown = shown || r.Text != ""; ctx.Err() != nil && !shown {
				return ctx.Err()
			}
			w.Results = append(w.Results, r)
			child = c.account()
		}
		switch {
		case child.Settled() && !(o.Firm && child.Presumed):
			w.Settled++
			if child.State != ChildCompleted && !child.Presumed {
				w.Failed++
			}
		default:
			w.Running++
			if w.End == WaitDeadline || c.isBroken() {
				child.State, child.Reason = j.unsettled(c, child)
			}
		}
		w.Children = append(w.Children, child)
	}
	return nil // an answer that could not be read says so itself
}

// unsettled returns how a wait ended for a child that goes on, and what it does.
func (j *Join) unsettled(c *joined, child Child) (ChildState, string) {
	c.mu.Lock()
	unseen, broken := c.unseen, c.broken
	c.mu.Unlock()
	quiet := time.Since(time.Unix(0, c.life.Load()))
	doing := string(child.State)
	if child.Reason != "" {
		doing += ": " + child.Reason
	}
	switch {
	case broken != nil:
		return ChildUnseen, cutReason(broken.Error())
	case unseen != nil && (j.gap.Load() || quiet >= j.opts.Look) && !errors.Is(unseen, errors.ErrUnsupported):
		return ChildUnseen, cutReason(unseen.Error())
	case child.Parked:
		return ChildStalled, "the host was shut down (" + child.Reason + ")"
	case child.Retry != "":
		return ChildStalled, cutReason("the host tries again: " + child.Retry)
	case quiet >= j.opts.StallAfter:
		return ChildStalled, fmt.Sprintf("no sign of life for %s", quiet.Truncate(time.Second))
	default:
		return ChildTimedOut, cutReason(doing)
	}
}

// await waits until need of all have settled, one asks something new, or it is deadline.
func (j *Join) await(ctx context.Context, all []*joined, need int, firm bool, deadline time.Time) (WaitEnd, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	told := j.watch(ctx)
	defer func() {
		cancel()
		if told != nil {
			<-told.done
		}
	}()
	if err := j.refresh(ctx, all); err != nil { // what other processes wrote since
		return "", err
	}
	open := slices.Clone(all)
	have, broken := 0, 0
	polled := time.Now()
	for {
		changed := j.changes()
		if err := j.tick(ctx, open); err != nil {
			return "", err
		}
		next := deadline
		asked := false
		now := time.Now()
		open = slices.DeleteFunc(open, func(c *joined) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.rec.State.Settled() && !(firm && c.rec.Presumed) {
				have++
				return true
			}
			if c.broken != nil {
				broken++
				return true
			}
			asked = c.asksNew() || asked
			if over := c.rec.Over; over != nil && !over.Due.IsZero() && over.Due.Before(next) {
				next = over.Due
			}
			return false
		})
		switch {
		case have >= need || broken > 0 && len(open) == 0:
			return WaitSettled, nil
		case asked:
			return WaitAsked, nil
		case !now.Before(deadline):
			return WaitDeadline, nil
		}
		lookAt, err := j.lookAround(ctx, open, now, deadline)
		if err != nil {
			return "", err
		}
		if lookAt.IsZero() {
			continue // something was looked at: see what it came to
		}
		if lookAt.Before(next) {
			next = lookAt
		}
		if told == nil {
			if at := polled.Add(min(j.opts.Look, time.Second)); at.Before(next) {
				next = at
			}
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return "", ctx.Err()
		case <-changed:
		case err := <-told.errs():
			timer.Stop()
			if !errors.Is(err, ErrConflict) {
				return "", err
			}
			// The store could not keep up: begin anew, as it says.
			<-told.done
			told = j.watch(ctx)
			if err := j.refresh(ctx, open); err != nil {
				return "", err
			}
		case <-timer.C:
		}
		timer.Stop()
		if told == nil && time.Since(polled) >= min(j.opts.Look, time.Second) {
			polled = time.Now()
			if err := j.refresh(ctx, open); err != nil {
				return "", err
			}
		}
	}
}

func (c *joined) isBroken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken != nil
}

// asksNew reports whether the child asks something for which no Wait has returned
// yet, and notes that one has. c.mu is held.
func (c *joined) asksNew() bool {
	fresh := false
	for _, a := range c.rec.Asks {
		fresh = !slices.Contains(c.asked, a.ID) || fresh
	}
	c.asked = c.asked[:0]
	for _, a := range c.rec.Asks {
		c.asked = append(c.asked, a.ID)
	}
	return fresh
}

// lookAround reads the snapshots of children of which the stream says nothing, of all
// if it has a hole, and returns when to do so next, or zero if it has read one.
func (j *Join) lookAround(ctx context.Context, open []*joined, now, deadline time.Time) (time.Time, error) {
	next := now.Add(j.opts.Look)
	if j.opts.Sessions == nil {
		return now.Add(24 * time.Hour), nil
	}
	looked := false
	gap := j.gap.Load()
	for _, c := range open {
		c.mu.Lock()
		last := c.looked
		c.mu.Unlock()
		if !gap || !last.IsZero() && now.Sub(last) < j.opts.Look {
			if life := time.Unix(0, c.life.Load()); life.After(last) {
				last = life
			}
			if at := last.Add(j.opts.Look); now.Before(at) {
				if at.Before(next) {
					next = at
				}
				continue
			}
		}
		if gap {
			looked = true
			break
		}
		mute, err := j.look(ctx, c, false, deadline)
		if err != nil {
			return now, err
		}
		looked = true
		if mute || time.Since(now) >= time.Second {
			break // first see what has become of the others
		}
	}
	if gap && looked {
		return time.Time{}, j.resync(ctx, deadline)
	}
	if looked {
		return time.Time{}, nil
	}
	return next, nil
}

// A watching tells a Wait what other processes write.
type watching struct {
	done chan struct{}
	fail chan error
}

func (w *watching) errs() <-chan error {
	if w == nil {
		return nil
	}
	return w.fail
}

// watch takes in what other processes write until ctx ends, or returns nil if the store
// cannot tell.
func (j *Join) watch(ctx context.Context) *watching {
	watcher, ok := j.records.(Watcher)
	if !ok {
		return nil
	}
	w := &watching{done: make(chan struct{}), fail: make(chan error, 1)}
	keys := watcher.Watch(ctx, j.prefix+"c/")
	go func() {
		defer close(w.done)
		for key, err := range keys {
			if err == nil {
				err = j.renew(ctx, key)
			}
			if errors.Is(err, ErrCorrupt) {
				continue // kept with the child
			}
			if err != nil {
				if ctx.Err() == nil {
					w.fail <- err
				}
				return
			}
		}
	}()
	return w
}

// renew reads the child under key again.
func (j *Join) renew(ctx context.Context, key string) error {
	j.mu.RLock()
	c := j.byKey[key]
	j.mu.RUnlock()
	if c == nil {
		return j.loadKey(ctx, key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := j.reread(ctx, c)
	if errors.Is(err, errForgotten) {
		return nil
	}
	return err
}

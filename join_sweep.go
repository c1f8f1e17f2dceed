package team

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// DefaultJoinTTL is how long a sweep of a Join keeps a child that has settled.
const DefaultJoinTTL = 30 * 24 * time.Hour

// JoinSweepOptions say what a sweep of a Join removes. The zero value has the defaults.
type JoinSweepOptions struct {
	// TTL is how long a child is kept after its latest turn has ended. From then on what the
	// host sends of it is that of a stranger, and a call that resumes it begins with turn 1
	// again: so it is longer than any host repeats a result, and than a child is left alone
	// between two calls. Zero means DefaultJoinTTL; Forever keeps all.
	TTL time.Duration

	// Alive says whether a parent can come back, of each other parent that has records in the
	// store. False, without an error, means that the session is gone for good, and removes all
	// that is known of its children, whatever it is. If Alive cannot tell it returns an error,
	// and they are kept. Nil leaves other parents alone. So a host's ErrNotFound is for Alive to judge.
	Alive func(context.Context, SessionID) (bool, error)
}

// A JoinSweepItem is one record of a Join, and what became of it.
type JoinSweepItem struct {
	// Key is the stored key, with "%" and "/" in ids escaped: "team/join/<parent>/c/<child>" is what is known of a
	// child, "team/join/<parent>/t/<child>/<digest>" the text of an answer of it, and
	// "team/join/<parent>/waits" what the waiters of a parent share.
	Key    string
	Action SweepAction
	Reason SweepReason
	Err    error
}

// A JoinSweep has every record that a sweep looked at.
type JoinSweep struct {
	Items []JoinSweepItem
}

// Removed returns how many records are, or will be, removed.
func (r JoinSweep) Removed() int {
	n := 0
	for _, item := range r.Items {
		if item.Action == SweepRemove {
			n++
		}
	}
	return n
}

// PlanSweep reports what Sweep would do now, and changes nothing.
func (j *Join) PlanSweep(ctx context.Context, opts *JoinSweepOptions) (JoinSweep, error) {
	return j.sweep(ctx, opts, false)
}

// Sweep forgets the children whose latest turn ended longer than the TTL ago, with the texts of
// their answers, and reports what it did with each record. It also removes texts without a child, as a
// sweep that was killed leaves them, and what parents have left that are gone for good.
//
// Never forgotten (SweepNeeded) are a child of the Join's own parent that has not settled, and
// one with an answer in the records that the parent was not shown: see Wait and Result. An
// answer that no envelope brought is not in the records, so it keeps nobody: it lies with the host. What
// somebody writes meanwhile is kept. In all processes a forgotten child is none from now on.
//
// An error means that the sweep ended early; the report has what was done. Any number of
// sweeps may run at once.
func (j *Join) Sweep(ctx context.Context, opts *JoinSweepOptions) (JoinSweep, error) {
	return j.sweep(ctx, opts, true)
}

func (j *Join) sweep(ctx context.Context, opts *JoinSweepOptions, do bool) (JoinSweep, error) {
	s := &joinSweeper{j: j, do: do, now: time.Now(), forgotten: map[string]bool{}}
	if opts != nil {
		s.opts = *opts
	}
	setDefault(&s.opts.TTL, DefaultJoinTTL)
	err := s.run(ctx)
	return s.report, edge("join.sweep", string(j.parent), err)
}

type joinSweeper struct {
	j      *Join
	do     bool
	opts   JoinSweepOptions
	now    time.Time
	report JoinSweep

	forgotten map[string]bool // the keys of children that are, or will be, removed
}

func (s *joinSweeper) run(ctx context.Context) error {
	if s.opts.TTL < 0 && s.opts.TTL != Forever {
		return &InvalidError{What: "sweep option TTL", Why: "is negative", Offset: -1, Advice: "Forever keeps everything"}
	}
	// The texts come behind the children: what has no child any more goes.
	for _, kind := range []struct {
		prefix string
		sweep  func(context.Context, string) (JoinSweepItem, error)
	}{{s.j.prefix + "c/", s.child}, {s.j.prefix + "t/", s.text}} {
		for key, err := range s.j.records.Keys(ctx, kind.prefix, "") {
			if err != nil {
				return err
			}
			item, err := kind.sweep(ctx, key)
			if err := s.add(ctx, item, err); err != nil {
				return err
			}
		}
	}
	if s.opts.Alive == nil {
		return nil
	}
	return s.others(ctx)
}

// add reports an item; err is what came of looking at it. The error is that of the whole sweep.
func (s *joinSweeper) add(ctx context.Context, item JoinSweepItem, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrNotFound):
		return nil // gone in this moment
	case errors.Is(err, ErrConflict):
		item.Action, item.Reason = SweepKeep, SweepBusy
	case errors.Is(err, ErrCorrupt):
		item.Action, item.Reason, item.Err = SweepKeep, SweepDamaged, err
	case err != nil:
		if item.Action == SweepRemove {
			item.Reason = SweepFailed
		} else {
			item.Reason = SweepUnknown
		}
		item.Action, item.Err = SweepKeep, err
	}
	s.report.Items = append(s.report.Items, item)
	return nil
}

// child looks at what is known of a child of our parent.
func (s *joinSweeper) child(ctx context.Context, key string) (JoinSweepItem, error) {
	item := JoinSweepItem{Key: key, Action: SweepKeep}
	if err := s.j.loadKey(ctx, key); err != nil {
		return item, err
	}
	s.j.mu.RLock()
	c := s.j.byKey[key]
	s.j.mu.RUnlock()
	if c == nil {
		return item, ErrNotFound
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.j.reread(ctx, c); err != nil {
		return item, err
	}
	switch {
	case len(c.todo) > 0:
		item.Reason = SweepBusy // it has more to say
	case !c.rec.State.Settled() || c.rec.unshown():
		item.Reason = SweepNeeded
	case s.opts.TTL == Forever || s.now.Sub(c.rec.Ended) < s.opts.TTL:
		item.Reason = SweepFresh
	default:
		item.Action, item.Reason = SweepRemove, SweepExpired
		s.forgotten[key] = true
		if err := s.remove(ctx, key, c.name(), c.version, c.id); err != nil {
			delete(s.forgotten, key)
			return item, err
		}
		if s.do {
			s.j.forget(c)
		}
	}
	return item, nil
}

// unshown reports whether an answer is kept that nobody was shown.
func (r *childRecord) unshown() bool {
	for n := r.Turn; n > 0; n-- {
		t := r.turn(n)
		if t == nil {
			break
		}
		if t.Answer.Known && t.Answer.Size > 0 && t.Answer.First == nil {
			return true
		}
	}
	return false
}

// text looks at the text of an answer. It goes with its child: so between its version and its removal
// nobody may have been seen.
func (s *joinSweeper) text(ctx context.Context, key string) (JoinSweepItem, error) {
	item := JoinSweepItem{Key: key, Action: SweepKeep, Reason: SweepFresh}
	id, _, _ := strings.Cut(strings.TrimPrefix(key, s.j.prefix+"t/"), "/")
	owner := s.j.prefix + "c/" + id
	s.j.mu.RLock()
	known := s.j.byKey[owner] != nil
	s.j.mu.RUnlock()
	if known && !s.forgotten[owner] {
		return item, nil
	}
	text, err := s.j.records.Get(ctx, key)
	if err != nil {
		return item, err
	}
	_, err = s.j.records.Get(ctx, owner)
	switch {
	case s.forgotten[owner] && (!s.do || errors.Is(err, ErrNotFound)):
		item.Reason = SweepExpired
	case errors.Is(err, ErrNotFound):
		item.Reason = SweepLeftover
	default:
		return item, err
	}
	item.Action = SweepRemove
	return item, s.remove(ctx, key, "text", text.Version, SessionID(keyUnescapes.Replace(id)))
}

// others looks at what other parents have.
func (s *joinSweeper) others(ctx context.Context) error {
	const all = "team/join/"
	var parent string
	var alive bool
	var failed error
	for key, err := range s.j.records.Keys(ctx, all, "") {
		if err != nil {
			return err
		}
		name, _, ok := strings.Cut(strings.TrimPrefix(key, all), "/")
		if !ok || strings.HasPrefix(key, s.j.prefix) {
			continue
		}
		id := SessionID(keyUnescapes.Replace(name))
		if name != parent {
			parent = name
			if alive, failed = s.opts.Alive(ctx, id); failed != nil {
				failed = fmt.Errorf("whether the parent is alive: %w", failed)
			}
		}
		item := JoinSweepItem{Key: key, Action: SweepKeep, Reason: SweepFresh}
		err := failed
		if failed == nil && !alive {
			item.Action, item.Reason = SweepRemove, SweepDead
			err = s.remove(ctx, key, "parent", AnyVersion, id)
		}
		if err := s.add(ctx, item, err); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a record, unless this is a plan. what it is, and whose, is for the trace.
func (s *joinSweeper) remove(ctx context.Context, key, what string, version Version, whose SessionID) error {
	if !s.do {
		return nil
	}
	err := s.j.records.Delete(ctx, key, version)
	if errors.Is(err, ErrNotFound) {
		err = nil // another sweep was first
	}
	s.j.trace(ctx, TraceEvent{Op: "join.sweep", ID: what, Target: whose}, err)
	return err
}

var keyUnescapes = strings.NewReplacer("%25", "%", "%2F", "/")

// forget makes a child whose record was removed none of this process either. c.mu is held.
func (j *Join) forget(c *joined) {
	c.gone, c.todo = true, nil
	if !c.rec.State.Settled() {
		c.broken = errForgotten // who waits for it is told
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.children[c.id] == c {
		delete(j.children, c.id)
		delete(j.byKey, c.key)
	}
	for _, id := range c.descends {
		if j.descends[id] == c.id {
			delete(j.descends, id)
		}
	}
	c.descends = nil
	j.tell()
}

var errForgotten = fmt.Errorf("%w: the child's record was removed; register or adopt it again", ErrNotFound)

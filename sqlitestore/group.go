package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
)

// Writers of one process share transactions, without a goroutine of their own:
//
//	caller ──► queue ──► the first becomes the leader
//	                       BEGIN IMMEDIATE, waiting for other processes
//	                       takes what is queued by now
//	                       runs it, COMMIT (one fsync), rings, answers
//	                       makes the next in the queue the leader
//
// A leader leads one transaction, and its own op is in it. An op that is still
// queued when its context ends is withdrawn; so is the leader's before BEGIN. Once
// taken it is answered in a moment, and only if it is not, the caller is told that
// the outcome is unknown.

const (
	maxBatch      = 256     // ops in one transaction
	maxBatchBytes = 4 << 20 // of their data, unless one alone has more

	// grace is how much longer than its context a call waits for its commit: most
	// answer within it, and a late answer is worth more than none.
	grace = 25 * time.Millisecond
)

type opState int

const (
	opQueued opState = iota
	opTaken          // by a leader, in whose transaction it is to run
	opRuns           // looks at its arguments
	opRan            // is to be committed
	opAnswered
)

// An op is one call that writes.
type op struct {
	ctx   context.Context
	since time.Time
	size  int

	// run makes the change. An error of ours (not SQLite's) is a refusal. It may
	// be run again after a rollback.
	run func(*tx) error
	// late is whether run can refuse after it has changed something.
	late bool
	// undo takes back what a caller that gave up will never learn of; nil is not to.
	undo func(*tx) error

	rang []slot        // whom to wake, once it is committed
	wake chan struct{} // answered, or to lead

	// Guarded by Store.mu.
	state opState
	leads bool
	gone  bool // the caller has returned, and what its arguments point to is its own again
	err   error
}

// do makes one change together with those of others, and returns when it is
// durable.
func (s *Store) do(o *op) error {
	if err := o.ctx.Err(); err != nil {
		return err
	}
	o.since = time.Now()
	o.wake = make(chan struct{}, 1)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return team.ErrClosed
	}
	s.queue = append(s.queue, o)
	lead := !s.leading
	s.leading = true
	s.mu.Unlock()
	if !lead {
		select {
		case <-o.wake:
		case <-o.ctx.Done():
			return s.giveUp(o)
		}
		if !o.leads { // written before the wake-up
			return o.err
		}
	}
	return s.lead(o)
}

// giveUp ends a call whose context has ended.
func (s *Store) giveUp(o *op) error {
	late := time.NewTimer(grace)
	defer late.Stop()
	for answerable := true; ; {
		s.mu.Lock()
		switch o.state {
		case opAnswered:
			s.mu.Unlock()
			return o.err
		case opQueued:
			s.withdraw(o)
			if o.leads {
				s.passOn()
			}
			s.mu.Unlock()
			return unwritten(o.ctx.Err())
		case opTaken: // the leader will skip it
			o.gone = true
			s.mu.Unlock()
			return unwritten(o.ctx.Err())
		case opRan:
			if !answerable {
				o.gone = true
				s.mu.Unlock()
				return unknown(o.ctx.Err())
			}
		}
		s.mu.Unlock()
		if !answerable { // it runs, which takes no time to speak of
			time.Sleep(50 * time.Microsecond)
			continue
		}
		select {
		case <-o.wake: // answered: who leads does not come here
			return o.err
		case <-late.C:
			answerable = false
		}
	}
}

// enter reports whether o may run, and marks it.
func (s *Store) enter(o *op) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.err = o.ctx.Err(); o.err == nil && o.gone {
		o.err = context.Canceled // nobody is there to see it
	}
	if o.err != nil {
		o.err = unwritten(o.err)
		return false
	}
	o.state = opRuns
	return true
}

func (s *Store) leave(o *op) {
	s.mu.Lock()
	o.state = opRan
	s.mu.Unlock()
}

// withdraw takes o out of the queue. s.mu must be held.
func (s *Store) withdraw(o *op) {
	if i := slices.Index(s.queue, o); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
}

// passOn makes the first in the queue the leader. s.mu must be held, by the leader.
func (s *Store) passOn() {
	if len(s.queue) == 0 {
		s.leading = false
		s.idle.Broadcast()
		return
	}
	s.queue[0].leads = true
	s.queue[0].wake <- struct{}{}
}

// lead does one transaction, of which o is the first op.
func (s *Store) lead(o *op) error {
	defer func() { // also when SQLite panics for want of memory
		s.mu.Lock()
		s.passOn()
		s.mu.Unlock()
	}()
	if err := s.begin(o); err != nil {
		s.mu.Lock()
		s.withdraw(o)
		s.mu.Unlock()
		return err
	}
	batch := s.take()
	died := true
	defer func() {
		if died {
			s.rollback()
			s.answer(batch, o, errors.New("the leader of the transaction has died"))
		}
	}()
	s.transact(batch)
	died = false
	s.answer(batch, o, nil)
	s.undo(batch)
	s.checkpoint()
	return o.err
}

// begin starts a transaction. It waits for other processes as long as o may.
func (s *Store) begin(o *op) error {
	limit := s.limit(o.ctx)
	wait := untilDone(o.ctx, limit)
	s.w.busy = func(time.Duration) bool { return wait(time.Since(o.since)) }
	if waitTurn(s.bell.file, func() bool { return wait(time.Since(o.since)) }) {
		s.w.first = true
		defer func() {
			s.w.first = false
			endTurn(s.bell.file)
		}()
	}
	for n := 0; ; n++ {
		_, err := s.w.exec(qBegin)
		switch {
		case err == nil:
			return nil
		case !isBusy(err):
			return unwritten(err)
		case o.ctx.Err() != nil:
			return fmt.Errorf("other processes held the lock of the store: %w", unwritten(o.ctx.Err()))
		case !wait(time.Since(o.since)):
			return &BusyError{Waited: time.Since(o.since)}
		}
		nap(n) // some locks do not ask the busy handler
	}
}

// take takes the ops of one transaction from the queue.
func (s *Store) take() []*op {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, 0
	for n < len(s.queue) && n < maxBatch && (n == 0 || size+s.queue[n].size <= maxBatchBytes) {
		size += s.queue[n].size
		s.queue[n].state = opTaken
		n++
	}
	batch := slices.Clone(s.queue[:n])
	s.queue = slices.Delete(s.queue, 0, n)
	return batch
}

// answer tells the callers of batch. To those that have no answer yet, err is one.
func (s *Store) answer(batch []*op, leader *op, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range batch {
		if o.state == opAnswered {
			continue
		}
		if err != nil {
			o.err = unknown(err)
		}
		o.state = opAnswered
		if o != leader {
			o.wake <- struct{}{}
		}
	}
}

// transact runs batch in the transaction that has begun, commits, and sets the
// errors of the ops.
func (s *Store) transact(batch []*op) {
	for {
		again, err := s.attempt(batch)
		if err != nil {
			for _, o := range again {
				o.err = err
			}
			return
		}
		if len(again) == 0 {
			return
		}
		// One was not a refusal, and took the transaction with it.
		if _, err := s.w.exec(qBegin); err != nil {
			for _, o := range again {
				o.err = unwritten(err)
			}
			return
		}
		batch = again
	}
}

// attempt runs batch once. It returns the ops that have to be run again, or those
// that have failed and their error.
func (s *Store) attempt(batch []*op) (again []*op, err error) {
	t := &tx{c: s.w}
	before := s.w.db.TotalChanges()
	var live []*op
	for i, o := range batch {
		if !s.enter(o) {
			continue
		}
		t.rang = nil
		guard := o.late && len(batch) > 1
		o.err = t.run(o, guard)
		s.leave(o)
		o.rang = t.rang
		if o.err == nil {
			live = append(live, o)
			continue
		}
		if !fromSQLite(o.err) {
			if o.late && !guard { // alone: what it changed goes with the transaction
				s.rollback()
				return nil, nil
			}
			continue
		}
		s.rollback()
		if !errors.Is(o.err, sqlite3.TOOBIG) {
			return append(live, batch[i:]...), unwritten(o.err)
		}
		o.err = unwritten(o.err)
		return append(live, batch[i+1:]...), nil
	}
	if err := t.finish(); err != nil {
		s.rollback()
		return live, unwritten(err)
	}
	if s.seam.beforeCommit != nil {
		s.seam.beforeCommit()
	}
	if err := s.commit(batch); err != nil {
		return live, err
	}
	if s.w.db.TotalChanges() != before { // else nothing had to be synced
		s.transactions.Add(1)
	}
	s.operations.Add(int64(len(live)))
	s.ring(live)
	if s.seam.afterCommit != nil {
		if err := s.seam.afterCommit(); err != nil {
			return live, unknown(err)
		}
	}
	return nil, nil
}

// commit ends the transaction, one way or the other. Only with a rollback journal
// can it be busy, with readers.
func (s *Store) commit(batch []*op) error {
	start := time.Now()
	s.w.busy = func(waited time.Duration) bool { return waited < s.opts.BusyTimeout }
	for n := 0; ; n++ {
		_, err := s.w.exec(qCommit)
		if err == nil {
			return nil
		}
		if isBusy(err) && time.Since(start) < s.opts.BusyTimeout && anyWaits(batch) {
			nap(n)
			continue
		}
		s.rollback()
		switch {
		case isBusy(err):
			return &BusyError{Waited: time.Since(start)}
		case errors.Is(err, sqlite3.FULL), errors.Is(err, sqlite3.INTERRUPT):
			// What says that a transaction is whole is written last, and was not. A
			// failed sync never comes here, also where its reason is that there is no space.
			return unwritten(err)
		default:
			// The log may have all of it, and whoever reads the log next decides.
			return unknown(translate(err))
		}
	}
}

// anyWaits reports whether the context of an op goes on.
func anyWaits(batch []*op) bool {
	return slices.ContainsFunc(batch, func(o *op) bool { return o.ctx.Err() == nil })
}

// rollback ends a transaction, if SQLite has not done so already.
func (s *Store) rollback() {
	if !s.w.db.GetAutocommit() {
		// What fails here fails again in the next BEGIN, where it is reported.
		_, _ = s.w.exec(qRollback)
	}
}

// undo takes back what nobody knows that it was done.
func (s *Store) undo(batch []*op) {
	var list []*op
	s.mu.Lock()
	for _, o := range batch {
		if o.gone && o.err == nil && o.undo != nil {
			list = append(list, &op{ctx: context.Background(), run: o.undo})
		}
	}
	s.mu.Unlock()
	if len(list) == 0 {
		return
	}
	s.w.busy = func(waited time.Duration) bool { return waited < time.Second }
	if _, err := s.w.exec(qBegin); err == nil {
		s.transact(list) // if it fails the leases end all the same
	}
}

package team

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A ledgerQuota keeps the writes of one Ledger from passing the limits of its
// scope together: each says beforehand what it may add, and one that does not fit
// beside the others waits until it knows what became of them.
type ledgerQuota struct {
	mu      sync.Mutex    // guards the fields below
	pending usage         // what the writes under way may add
	settled chan struct{} // closed when one of them has ended; nil if nobody waits

	// For a store that is no Meter:
	known   usage     // what the scope has
	counted time.Time // when that was counted; zero if it does not hold
	grown   usage     // what all writes have added
}

type usage struct{ keys, bytes int }

func (u usage) plus(v usage) usage  { return usage{u.keys + v.keys, u.bytes + v.bytes} }
func (u usage) minus(v usage) usage { return usage{u.keys - v.keys, u.bytes - v.bytes} }
func (u usage) growth() usage       { return usage{max(u.keys, 0), max(u.bytes, 0)} }

// countAgain is how long a count holds where the store is no Meter. Ledgers of
// other processes may write to the scope meanwhile.
const countAgain = 10 * time.Second

// reserve says that a write may add so much. It returns what all writes under way
// may add, and what is closed when one of the others has ended.
func (q *ledgerQuota) reserve(grow usage) (all usage, settled <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = q.pending.plus(grow)
	if q.settled == nil {
		q.settled = make(chan struct{})
	}
	return q.pending, q.settled
}

// release takes back what reserve said, and reports whether somebody else has
// said something. If the write has ended, those who wait are to look again.
func (q *ledgerQuota) release(grow usage, ended bool) (others bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = q.pending.minus(grow)
	if ended && q.settled != nil {
		close(q.settled)
		q.settled = nil
	}
	return q.pending != usage{}
}

// admit writes changes if they fit into the quota.
func (l *Ledger) admit(ctx context.Context, changes []Change, found []lookup, write ledgerWrite) ([]Version, error) {
	var more usage
	for i, c := range changes {
		if !c.Delete {
			more = more.plus(usage{1, len(c.Key) + len(c.Value)})
		}
		if found[i].there {
			more = more.minus(usage{1, len(c.Key) + len(found[i].record.Value)})
		}
	}
	if (more.keys <= 0 || l.opts.MaxKeys < 0) && (more.bytes <= 0 || l.opts.MaxBytes < 0) {
		return l.counting(ctx, changes, more, write) // it makes the scope no larger
	}
	grow := more.growth()
	for {
		all, settled := l.quota.reserve(grow)
		alone := all == grow
		fits, err := l.room(ctx, all, alone)
		if fits {
			var versions []Version
			versions, err = l.counting(ctx, changes, more, write)
			l.quota.release(grow, true)
			return versions, err
		}
		if err != nil || alone {
			l.quota.release(grow, true)
			return nil, err
		}
		// Of several that get in each other's way here, the last to let go is the
		// first to look again.
		if l.quota.release(grow, false) {
			select {
			case <-settled:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

// room reports whether the scope has room for so much more. Who writes alone
// learns it for certain, or else the refusal.
func (l *Ledger) room(ctx context.Context, more usage, alone bool) (bool, error) {
	has, err := l.usage(ctx, false)
	if err != nil {
		return false, err
	}
	full := l.fits(has, more)
	if full == nil || !alone {
		return full == nil, nil
	}
	// Records whose time is over must not keep others out.
	if _, err := l.sweep(ctx, l.prefix, nil); err != nil {
		return false, err
	}
	if has, err = l.usage(ctx, true); err != nil {
		return false, err
	}
	full = l.fits(has, more)
	return full == nil, full
}

// fits returns the refusal if a scope that has so much must not get so much more.
func (l *Ledger) fits(has, more usage) error {
	const advice = "delete what is done with, or sweep"
	if sum := has.keys + more.keys; more.keys > 0 && over(sum, l.opts.MaxKeys) {
		return &LimitError{What: "ledger keys", Got: int64(sum), Max: int64(l.opts.MaxKeys), Advice: advice}
	}
	if sum := has.bytes + more.bytes; more.bytes > 0 && over(sum, l.opts.MaxBytes) {
		return &LimitError{What: "ledger bytes", Got: int64(sum), Max: int64(l.opts.MaxBytes), Advice: advice}
	}
	return nil
}

// usage returns what the scope has: by asking the store, or else by reading the
// records one by one, or, if it need not be exact, what was read lately.
func (l *Ledger) usage(ctx context.Context, exact bool) (usage, error) {
	if m, ok := l.records.(Meter); ok {
		keys, bytes, err := m.Usage(ctx, l.prefix)
		return usage{keys, int(bytes)}, err
	}
	q := l.quota
	q.mu.Lock()
	known, fresh := q.known, !q.counted.IsZero() && time.Since(q.counted) < countAgain
	q.mu.Unlock()
	if fresh && !exact {
		return known, nil
	}
	q.mu.Lock()
	before := q.grown
	q.mu.Unlock()
	var has usage
	for stored, err := range l.records.Keys(ctx, l.prefix, "") {
		if err != nil {
			return usage{}, err
		}
		r, err := l.records.Get(ctx, stored)
		switch {
		case errors.Is(err, ErrNotFound):
			continue
		case err != nil && !errors.Is(err, ErrCorrupt):
			return usage{}, err
		}
		has = has.plus(usage{1, len(stored) + len(r.Value)})
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	// What was written meanwhile may be in the count or not.
	q.known, q.counted = has.plus(q.grown.minus(before)), time.Now()
	return q.known, nil
}

// counting writes changes and keeps the account of them.
func (l *Ledger) counting(ctx context.Context, changes []Change, more usage, write ledgerWrite) ([]Version, error) {
	versions, err := write(ctx, changes)
	q := l.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case err == nil:
		q.known = q.known.plus(more)
		q.grown = q.grown.plus(more.growth())
	case !errors.Is(err, ErrConflict):
		q.counted = time.Time{} // who knows what was done
	}
	return versions, err
}

package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/teamchan/team"
)

// DefaultSweepAge is how long Sweep keeps settled items unless told otherwise.
const DefaultSweepAge = 7 * 24 * time.Hour

// A SweepPolicy says what Sweep removes. The zero value is the default.
type SweepPolicy struct {
	// Age is how long ago an item must have been settled; zero means
	// DefaultSweepAge. With an item goes the memory of its key: whoever may still
	// repeat an Append must do so sooner.
	Age time.Duration

	// Dead removes dead items too, which then cannot be redriven any more.
	Dead bool
}

// Sweep removes items that were settled long ago, and returns how many. It takes
// time in proportion to all items, and holds the lock for one queue at a time, so
// it may run at any time. If ctx ends, what it has done stays done.
func (s *Store) Sweep(ctx context.Context, policy SweepPolicy) (int, error) {
	age := policy.Age
	if age < 0 {
		return 0, invalid("sweep age", "is negative")
	}
	if age == 0 {
		age = DefaultSweepAge
	}
	s.mu.Lock()
	queues := make([]*queue, 0, len(s.queues))
	for _, q := range s.queues {
		queues = append(queues, q)
	}
	s.mu.Unlock()
	removed := 0
	for _, q := range queues {
		if err := ctx.Err(); err != nil {
			return removed, err
		}
		removed += s.forget(q, age, policy.Dead)
	}
	return removed, ctx.Err()
}

// forget removes the items of q that were settled so long ago.
func (s *Store) forget(q *queue, age time.Duration, dead bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.kick(q)
	now := time.Now()
	q.advance(now)
	before := len(q.log)
	q.log = slices.DeleteFunc(q.log, func(it *item) bool {
		if !it.state.Settled() || now.Sub(it.changed) < age || it.state == team.ItemDead && !dead {
			return false
		}
		delete(q.ids, it.ID)
		if it.Key != "" {
			delete(q.keys, it.Key)
		}
		return true
	})
	q.compact() // live may hold them too
	return before - len(q.log)
}

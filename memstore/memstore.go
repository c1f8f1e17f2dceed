// Package memstore keeps a channel's state in memory: it has both ports
// ([team.Queue] and [team.Records]), the step that spans them
// ([team.Committer]), the account of what is there ([team.Meter]) and the news
// of what changes ([team.Watcher]).
//
// A Store serves one process, with any number of goroutines. What it holds is
// gone when the process ends, so "durable" means here: until then. It is for
// tests, for programs whose team lives and dies with them, and as the plainest
// reading of the contract: where another store differs from this one, one of
// them has a bug.
//
// Settled items are kept until [Store.Sweep] removes them, so that they can be
// listed, redriven and recognised by their keys. They cost memory, never
// time: no call but Sweep looks at a settled item that it was not asked for.
package memstore

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/internal/portcheck"
)

var (
	_ team.Store     = (*Store)(nil)
	_ team.Committer = (*Store)(nil)
	_ team.Meter     = (*Store)(nil)
	_ team.Watcher   = (*Store)(nil)
)

// A Store is an empty store when it is zero. It is safe for use by several
// goroutines and must not be copied after first use.
//
// Time is the clock of package time, so a Store that is made and used inside a
// testing/synctest bubble lives in the bubble's time.
type Store struct {
	// One lock for everything: no call does more under it than look at what it
	// was asked for, and Commit needs to hold all of it anyway.
	mu       sync.Mutex // guards the fields below
	queues   map[string]*queue
	records  map[string]record
	keys     keyset // the keys of records, in order
	versions uint64 // how many versions were given out, to any key
	watches  map[*watch]struct{}
}

// Commit does all the appends, then all the changes, in the order of the
// arguments; each sees what those before it did. If one fails it undoes the
// others before anybody can look.
func (s *Store) Commit(ctx context.Context, appends []team.Batch, changes []team.Change) (team.Committed, error) {
	batches := make([][]*item, len(appends))
	for i, b := range appends {
		if err := checkQueue(b.Queue); err != nil {
			return team.Committed{}, err
		}
		var err error
		if batches[i], err = newItems(b.Items); err != nil {
			return team.Committed{}, err
		}
	}
	for _, c := range changes {
		if err := checkKey(c.Key); err != nil {
			return team.Committed{}, err
		}
	}
	if err := ctx.Err(); err != nil {
		return team.Committed{}, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	done := team.Committed{
		Receipts: make([][]team.Receipt, len(appends)),
		Versions: make([]team.Version, len(changes)),
	}
	var undo []func()
	fail := func(err error) (team.Committed, error) {
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
		return team.Committed{}, err
	}

	for i, b := range appends {
		q := s.queue(b.Queue)
		// Deferred, so that a waiter is only woken to what is there to stay.
		defer s.kick(q)
		receipts, added, err := q.append(batches[i], b.Max, now)
		if err != nil {
			return fail(err)
		}
		undo = append(undo, func() { q.remove(added) })
		done.Receipts[i] = receipts
	}
	for i, c := range changes {
		old, existed := s.records[c.Key]
		var err error
		if c.Delete {
			err = s.delete(c.Key, c.Prev)
		} else {
			done.Versions[i], err = s.put(c.Key, c.Value, c.Prev)
		}
		if err != nil {
			return fail(err)
		}
		undo = append(undo, func() { s.restore(c.Key, old, existed) })
	}
	for _, c := range changes {
		s.changed(c.Key)
	}
	return done, nil
}

// queue returns the queue of that name and makes it if need be. s.mu must be
// held.
func (s *Store) queue(name string) *queue {
	q := s.queues[name]
	if q == nil {
		if s.queues == nil {
			s.queues = make(map[string]*queue)
		}
		q = newQueue()
		s.queues[name] = q
	}
	return q
}

// nextVersion returns a version that no key ever had. It counts writes to the
// whole store: a count of its own for each key would have to outlive the key's
// deletion. s.mu must be held.
func (s *Store) nextVersion() team.Version {
	s.versions++
	return team.Version("v" + strconv.FormatUint(s.versions, 10))
}

// kick ends every step that may have changed what can be claimed from q, or
// when: it wakes a waiter for what is ready, and sets the timer for what is not
// ready yet. s.mu must be held.
//
// One waiter is enough: whoever was woken comes back here when it has taken its
// share, or when its context ended instead, and so wakes the next one as long
// as anything is left. That is how no wake-up is lost and no crowd wakes for
// one item.
func (s *Store) kick(q *queue) {
	if q.ready.Len() > 0 {
		q.wakeFirst()
	}
	var next time.Time
	if q.waiters.Len() > 0 && q.timed.Len() > 0 {
		next = q.timed.items[0].at
	}
	if q.timer != nil {
		if q.timerAt.Equal(next) {
			return
		}
		q.timer.Stop()
		q.timer = nil
	}
	if next.IsZero() {
		return // nobody waits, or there is nothing to wait for
	}
	q.timerAt = next
	var self *time.Timer
	self = time.AfterFunc(time.Until(next), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if q.timer == self { // else it was replaced while it fired
			q.timer = nil
		}
		q.advance(time.Now())
		s.kick(q)
	})
	q.timer = self
}

// invalid makes an error of what a check found; nil if that is nothing.
func invalid(what, why string) error {
	if what == "" {
		return nil
	}
	return &team.InvalidError{What: what, Why: why, Offset: -1}
}

func checkKey(key string) error    { return invalid(portcheck.Key(key)) }
func checkQueue(name string) error { return invalid(portcheck.Queue(name)) }

func checkClaim(queue string, opts team.ClaimOptions) error {
	return invalid(portcheck.Claim(queue, opts.Max, opts.Budget, opts.Lease))
}

func checkVerdict(st team.Settlement) error {
	return invalid(portcheck.Verdict(string(st.Verdict), st.Delay))
}

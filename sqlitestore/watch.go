package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
)

// Every put and every deletion gives out a version, from one counter, in the order in
// which they are committed. So who watches holds nothing but the last version that it
// has seen, and asks for what came behind it: the records with a later one, and the
// rows that deletions left. It sleeps at the bell like a Claim, in a slot that all
// records share. A slow loop costs nobody anything, and no queue of names has to be
// bounded.

// memory is how long the row of a deletion stays. A loop over Watch that takes longer
// for one name, or a process that was stopped for longer, may have missed
// one, and is told so.
const memory = time.Hour

// A LagError ends a Watch whose loop has not come by for so long that deletions were
// forgotten meanwhile. Nothing is known to be missed, and something may be: call Watch
// again, then read everything anew. It is a team.ErrConflict.
type LagError struct {
	Memory time.Duration // for how long deletions are remembered
}

func (e *LagError) Error() string {
	return fmt.Sprintf("who watches was away for more than %v, and what was deleted meanwhile is forgotten; "+
		"call Watch again, then read all records anew", e.Memory)
}

// Is reports whether target is team.ErrConflict.
func (e *LagError) Is(target error) bool { return target == team.ErrConflict }

// Watch sees the changes of all processes. Where a wake-up is lost, it looks by
// itself about once a second. It holds no connection while it yields, so the loop may
// call the store, and no memory for a loop that is slow; one that is away for
// more than an hour may end with a *LagError. Closing the store ends it with
// team.ErrClosed.
func (s *Store) Watch(ctx context.Context, prefix string) iter.Seq2[string, error] {
	seen, err := s.latest(ctx)
	return func(yield func(string, error) bool) {
		if err == nil {
			err = s.watch(ctx, prefix, seen, func(key string) bool { return yield(key, nil) })
		}
		if !errors.Is(err, errStopped) {
			yield("", err)
		}
	}
}

// errStopped is what watch returns when the loop has ended itself.
var errStopped = errors.New("the loop has ended")

func (s *Store) watch(ctx context.Context, prefix string, seen int64, yield func(string) bool) error {
	w := s.bell.join(recordsSlot)
	defer s.bell.leave(w)
	for {
		page, last, more, err := s.changes(ctx, seen)
		if err != nil {
			return err
		}
		for _, key := range page {
			if err := ctx.Err(); err != nil {
				return err
			}
			if strings.HasPrefix(key, prefix) && !yield(key) {
				return errStopped
			}
		}
		if seen = last; more {
			continue
		}
		if _, err := s.sleep(ctx, w, 0); err != nil {
			return err
		}
	}
}

// latest returns the last version that was given out.
func (s *Store) latest(ctx context.Context) (v int64, err error) {
	c, err := s.reader(ctx)
	if err != nil {
		return 0, err
	}
	defer s.giveBack(c)
	v, err = c.one(qVersions)
	return v, s.readError(ctx, err)
}

// changes returns the keys of the next changes behind seen, each once, the version of
// the last, and whether there may be more.
func (s *Store) changes(ctx context.Context, seen int64) (page []string, last int64, more bool, err error) {
	c, err := s.reader(ctx)
	if err != nil {
		return nil, 0, false, err
	}
	defer s.giveBack(c)
	last = seen
	n := 0
	listed := make(map[string]bool)
	err = c.rows(qChanges, func(row *sqlite3.Stmt) bool {
		last = row.ColumnInt64(0)
		if key := string(row.ColumnRawBlob(1)); !listed[key] {
			listed[key] = true
			page = append(page, key)
		}
		n++
		return true
	}, seen, perPage)
	if err != nil {
		return nil, 0, false, s.readError(ctx, err)
	}
	// After the changes were read: what is forgotten later was among them.
	forgotten, err := c.one(qForgotten)
	if err != nil {
		return nil, 0, false, s.readError(ctx, err)
	}
	if forgotten > seen {
		return nil, 0, false, &LagError{Memory: memory}
	}
	return page, last, n == perPage, nil
}

// deleted notes a deletion, and forgets some that are old: with two for one their
// number is bounded by how many there are within memory, and no call pays for many.
func (t *tx) deleted(key string) error {
	n, err := t.nextVersion()
	if err != nil {
		return err
	}
	if _, err := t.c.exec(qNoteDeletion, n, []byte(key), nowMilli()); err != nil {
		return err
	}
	return t.forget(2)
}

// forget removes the first rows of deletions, at most so many, that are old.
func (t *tx) forget(most int) error {
	last, err := t.c.oldDeletions(most)
	if err != nil || last == 0 {
		return err
	}
	if _, err := t.c.exec(qForget, last); err != nil {
		return err
	}
	_, err = t.c.exec(qSetForgotten, last)
	return err
}

// oldDeletions returns the version of the last that forget would remove, or 0.
func (c *conn) oldDeletions(most int) (last int64, err error) {
	now := time.Now()
	// One from the future was written under a clock that was wrong.
	from, to := now.Add(-memory).UnixMilli(), now.Add(memory).UnixMilli()
	err = c.rows(qDeletions, func(row *sqlite3.Stmt) bool {
		if at := row.ColumnInt64(1); at >= from && at <= to {
			return false
		}
		last = row.ColumnInt64(0)
		return true
	}, most)
	return last, err
}

// forget removes all rows of deletions that are old, in short transactions.
func (s *Store) forget(ctx context.Context) error {
	for {
		c, err := s.reader(ctx)
		if err != nil {
			return err
		}
		last, err := c.oldDeletions(1)
		s.giveBack(c)
		if err != nil || last == 0 { // mostly, and no lock was needed
			return s.readError(ctx, err)
		}
		if err := s.do(&op{ctx: ctx, run: func(t *tx) error { return t.forget(sweepRows) }}); err != nil {
			return err
		}
	}
}

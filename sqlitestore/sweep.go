package sqlitestore

import (
	"context"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// DefaultSweepAge is how long Sweep keeps settled items unless told otherwise.
const DefaultSweepAge = 7 * 24 * time.Hour

// sweepRows is how many rows one transaction of Sweep looks at.
const sweepRows = 1000

// A SweepPolicy says what Sweep removes. The zero value is the default.
type SweepPolicy struct {
	// Age is how long ago an item must have been settled; zero means
	// DefaultSweepAge. With an item goes the memory of its key: whoever may still
	// repeat an Append must do so sooner.
	Age time.Duration

	// Dead removes dead items too, which then cannot be redriven any more.
	Dead bool
}

// Swept is what Sweep did.
type Swept struct {
	Items int64 // removed
	Bytes int64 // by which the file became smaller
}

// Sweep removes items that were settled long ago, and what Watch does not need any
// more, and gives their space back to the file system. It works in short transactions between those of others, so it may
// run at any time, in several processes too; if ctx ends, what it has done stays
// done. The item with the highest seq of all always stays.
func (s *Store) Sweep(ctx context.Context, policy SweepPolicy) (Swept, error) {
	age := policy.Age
	if age < 0 {
		return Swept{}, invalid("sweep age", "is negative")
	}
	if age == 0 {
		age = DefaultSweepAge
	}
	dead := 0
	if policy.Dead {
		dead = 1
	}
	before := time.Now().Add(-age).UnixMilli()
	var swept Swept
	for from, more := int64(0), true; more; {
		to, removable, last, err := s.stretch(ctx, from, before, dead)
		if err != nil {
			return swept, err
		}
		if removable > 0 { // else not even a lock is needed
			var n int64
			err := s.do(&op{ctx: ctx, run: func(t *tx) error {
				if _, err := t.c.exec(qSweepExpire, from, to, before); err != nil {
					return err
				}
				var err error
				n, err = t.c.exec(qSweep, from, to, before, dead)
				return err
			}})
			if err != nil {
				return swept, err
			}
			swept.Items += n
		}
		from, more = to, !last
	}
	if err := s.forget(ctx); err != nil {
		return swept, err
	}
	for {
		n, err := s.vacuum(ctx)
		swept.Bytes += n
		if err != nil || n == 0 {
			return swept, err
		}
	}
}

// stretch finds where the next rows behind from end, whether these are the last, and
// how many of them can go.
func (s *Store) stretch(ctx context.Context, from, before int64, dead int) (to, removable int64, last bool, err error) {
	c, err := s.reader(ctx)
	if err != nil {
		return 0, 0, false, err
	}
	defer s.giveBack(c)
	err = c.rows(qSweepTo, func(row *sqlite3.Stmt) bool {
		to = row.ColumnInt64(0)
		last = row.ColumnInt(1) < sweepRows
		return false
	}, from, sweepRows)
	if err == nil && to > from {
		err = c.rows(qSweepCount, func(row *sqlite3.Stmt) bool {
			removable = row.ColumnInt64(0)
			return false
		}, from, to, before, dead)
	}
	return to, removable, last, s.readError(ctx, err)
}

// vacuum gives some free pages back and returns how many bytes these were.
func (s *Store) vacuum(ctx context.Context) (freed int64, err error) {
	c, err := s.reader(ctx)
	if err != nil {
		return 0, err
	}
	free, err := c.number(`PRAGMA freelist_count`)
	s.giveBack(c)
	if err != nil || free == 0 {
		return 0, s.readError(ctx, err)
	}
	err = s.do(&op{ctx: ctx, run: func(t *tx) error {
		pages := func() (n int64, err error) { return t.c.number(`PRAGMA page_count`) }
		before, err := pages()
		if err != nil {
			return err
		}
		if err := t.c.rows(qVacuum, func(*sqlite3.Stmt) bool { return true }); err != nil {
			return err
		}
		after, err := pages()
		if err != nil {
			return err
		}
		size, err := t.c.number(`PRAGMA page_size`)
		freed = (before - after) * size
		return err
	}})
	if err != nil {
		return 0, err
	}
	return freed, nil
}

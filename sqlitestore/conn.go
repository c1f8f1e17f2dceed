package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
)

// A conn is one connection with its prepared statements. One goroutine uses it
// at a time.
type conn struct {
	db    *sqlite3.Conn
	stmts [queries]*sqlite3.Stmt

	// busy says whether to go on waiting for a lock; nil is not to wait.
	busy func(waited time.Duration) bool
	// since is when the present wait began.
	since time.Time
	// first is set while nobody else is to ask for the lock; see turn.go.
	first bool
}

// dial opens a connection and waits for locks as busy says.
func dial(ctx context.Context, uri string, flags sqlite3.OpenFlag) (*conn, error) {
	db, err := sqlite3.OpenFlags(uri, flags)
	if err != nil {
		return nil, err
	}
	c := &conn{db: db}
	if err := db.BusyHandler(c.onBusy); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	c.busy = untilDone(ctx, 0)
	return c, nil
}

// untilDone goes on waiting until ctx ends, or, if limit is positive, for so long.
func untilDone(ctx context.Context, limit time.Duration) func(time.Duration) bool {
	return func(waited time.Duration) bool {
		return ctx.Err() == nil && (limit <= 0 || waited < limit)
	}
}

// onBusy waits a moment. Short at first, since most transactions are; random, so
// that those who wait do not come back together.
func (c *conn) onBusy(_ context.Context, count int) bool {
	if count == 0 {
		c.since = time.Now()
	}
	if c.busy == nil || !c.busy(time.Since(c.since)) {
		return false
	}
	if c.first { // all the others wait with it
		exactly(200*time.Microsecond, count)
	} else {
		nap(count)
	}
	return true
}

// nap sleeps for the count-th time in a row.
func nap(count int) {
	most := 100 * time.Microsecond << min(count, 5) // to 3.2 ms
	time.Sleep(most/4 + rand.N(most))
}

func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(append(errs, c.db.Close())...)
}

// stmt returns the statement of q with args bound.
func (c *conn) stmt(q query, args ...any) (*sqlite3.Stmt, error) {
	s := c.stmts[q]
	if s == nil {
		var err error
		if s, _, err = c.db.PrepareFlags(statements[q], sqlite3.PREPARE_PERSISTENT); err != nil {
			return nil, err
		}
		c.stmts[q] = s
	}
	for i, arg := range args {
		var err error
		switch v := arg.(type) {
		case nil:
			err = s.BindNull(i + 1)
		case int64:
			err = s.BindInt64(i+1, v)
		case int:
			err = s.BindInt64(i+1, int64(v))
		case string:
			err = s.BindText(i+1, v)
		case []byte:
			if len(v) == 0 { // a nil slice would be NULL
				err = s.BindZeroBlob(i+1, 0)
			} else {
				err = s.BindBlob(i+1, v)
			}
		default:
			panic(fmt.Sprintf("sqlitestore: cannot bind a %T", arg))
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// exec runs q and returns how many rows it changed.
func (c *conn) exec(q query, args ...any) (int64, error) {
	s, err := c.stmt(q, args...)
	if err != nil {
		return 0, err
	}
	if err := s.Exec(); err != nil {
		return 0, err
	}
	return c.db.Changes(), nil
}

// rows runs q and calls row for each row, until row returns false.
func (c *conn) rows(q query, row func(*sqlite3.Stmt) bool, args ...any) error {
	s, err := c.stmt(q, args...)
	if err != nil {
		return err
	}
	for s.Step() && row(s) {
	}
	err = s.Err()
	if e := s.Reset(); err == nil {
		err = e
	}
	return err
}

// one runs q, which yields one number.
func (c *conn) one(q query) (n int64, err error) {
	found := false
	err = c.rows(q, func(s *sqlite3.Stmt) bool {
		n, found = s.ColumnInt64(0), true
		return false
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: a counter is not there", team.ErrCorrupt)
	}
	return n, err
}

// number runs sql, which yields one number.
func (c *conn) number(sql string) (n int64, err error) {
	err = c.each(sql, func(s *sqlite3.Stmt) { n = s.ColumnInt64(0) })
	return n, err
}

// text runs sql, which yields one text.
func (c *conn) text(sql string) (text string, err error) {
	err = c.each(sql, func(s *sqlite3.Stmt) { text = s.ColumnText(0) })
	return text, err
}

// each runs sql, which is not worth keeping prepared.
func (c *conn) each(sql string, row func(*sqlite3.Stmt)) error {
	s, _, err := c.db.Prepare(sql)
	if err != nil {
		return err
	}
	for s.Step() {
		row(s)
	}
	err = s.Err()
	return errors.Join(err, s.Close())
}

// isBusy reports whether err says that somebody else holds a lock.
func isBusy(err error) bool {
	return errors.Is(err, sqlite3.BUSY) || errors.Is(err, sqlite3.LOCKED)
}

// fromSQLite reports whether err comes from SQLite, and so is no refusal of ours.
func fromSQLite(err error) bool {
	_, ok := errors.AsType[sqlite3.ErrorCode](err)
	return ok
}

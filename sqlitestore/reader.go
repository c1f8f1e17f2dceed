package sqlitestore

import (
	"context"
	"errors"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
)

// reader lends a connection for reading. It must go back to giveBack.
func (s *Store) reader(ctx context.Context) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case <-s.stop:
		return nil, team.ErrClosed
	default:
	}
	select {
	case <-s.tokens:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.stop:
		return nil, team.ErrClosed
	}
	var c *conn
	select {
	case c = <-s.readers:
	default:
		var err error
		c, err = dial(ctx, s.uri(), sqlite3.OPEN_READWRITE|sqlite3.OPEN_URI)
		if err == nil {
			if err = c.db.Exec(`PRAGMA query_only = on; PRAGMA temp_store = memory; PRAGMA trusted_schema = off`); err != nil {
				err = errors.Join(err, c.close())
			}
		}
		if err != nil {
			s.tokens <- struct{}{}
			return nil, s.readError(ctx, err)
		}
	}
	c.db.SetInterrupt(ctx)
	c.busy = untilDone(ctx, s.limit(ctx))
	return c, nil
}

func (s *Store) giveBack(c *conn) {
	c.db.SetInterrupt(context.Background())
	s.readers <- c
	s.tokens <- struct{}{}
}

// readError says what SQLite's error means for a call that only reads.
func (s *Store) readError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case isBusy(err):
		return &BusyError{Waited: s.opts.BusyTimeout}
	default:
		return translate(err)
	}
}

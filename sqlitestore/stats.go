package sqlitestore

import (
	"context"
	"fmt"
	"os"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
)

// Stats is what a store holds and how it fares.
type Stats struct {
	Items   map[team.ItemState]int64 // as they are now, leases and expiries included
	Records int64

	FileBytes int64 // of the database
	FreeBytes int64 // of it, not in use; Sweep gives them back
	WALBytes  int64 // of the write-ahead log

	// WALPages is how many pages of the log hold changes, and WALBehind how many of
	// these could not be copied into the file yet. A WALBehind that only grows is a
	// reader, in whatever process, that does not end its transaction.
	WALPages, WALBehind int64

	// What this Store has done since it was opened. Operations per transaction is
	// how many calls shared one fsync.
	Transactions, Operations int64
	Checkpoints              int64 // attempts to copy the log into the file
	StarvedCheckpoints       int64 // those that a reader or another process kept from finishing
	Waiting                  int   // calls of Claim that wait, and loops over Watch
}

// Stats reads every row's head once, so it takes a while on a large store.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	c, err := s.reader(ctx)
	if err != nil {
		return Stats{}, err
	}
	defer s.giveBack(c)
	st := Stats{
		Items:              make(map[team.ItemState]int64),
		Transactions:       s.transactions.Load(),
		Operations:         s.operations.Load(),
		Checkpoints:        s.wal.checkpoints.Load(),
		StarvedCheckpoints: s.wal.starved.Load(),
		Waiting:            s.bell.count(),
	}
	now := nowMilli()
	err = c.each(fmt.Sprintf(`SELECT iif(at = 0 OR at > %[1]d, state, iif(expires > 0 AND expires <= %[1]d, 5, 0)), count(*)
		FROM items GROUP BY 1`, now), func(row *sqlite3.Stmt) {
		if state := row.ColumnInt(0); state >= 0 && state < len(stateNames) {
			st.Items[stateNames[state]] += row.ColumnInt64(1)
		}
	})
	var size, pages, free int64
	for _, n := range []struct {
		sql string
		to  *int64
	}{
		{`SELECT count(*) FROM records`, &st.Records},
		{`PRAGMA page_size`, &size},
		{`PRAGMA page_count`, &pages},
		{`PRAGMA freelist_count`, &free},
	} {
		if err == nil {
			*n.to, err = c.number(n.sql)
		}
	}
	if err == nil && !s.opts.AllowNetwork {
		log, done, e := c.db.WALCheckpoint("main", sqlite3.CHECKPOINT_NOOP)
		if e == nil {
			st.WALPages, st.WALBehind = max(int64(log), 0), max(int64(log-done), 0)
		} else if !isBusy(e) {
			err = e
		}
	}
	if err != nil {
		return Stats{}, s.readError(ctx, err)
	}
	st.FileBytes, st.FreeBytes = pages*size, free*size
	if info, err := os.Stat(s.path + "-wal"); err == nil {
		st.WALBytes = info.Size()
	}
	return st, nil
}

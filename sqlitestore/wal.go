package sqlitestore

import (
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"
)

const (
	// checkpointPages is the size of the log, in pages, from which on it is copied
	// into the file; SQLite's own number.
	checkpointPages = 1000
	// truncatePages is the size from which on writers wait a little for readers, so
	// that the log can begin anew.
	truncatePages = 8 * checkpointPages
)

// walState is about the write-ahead log. The leader writes it.
type walState struct {
	pages int // in the log after the last commit
	due   int // copy it when it has so many

	checkpoints, starved atomic.Int64
}

// watchWAL takes over from SQLite when the log is copied into the file: after the
// answers, so that no caller waits for that.
func (s *Store) watchWAL(c *conn) {
	s.wal.due = checkpointPages
	c.db.WALHook(func(_ *sqlite3.Conn, _ string, pages int) error {
		s.wal.pages = pages
		return nil
	})
}

// checkpoint copies the log into the file when it has become long. Only the
// leader calls it. A reader that stays in one transaction keeps the log growing;
// Stats shows that.
func (s *Store) checkpoint() {
	w := &s.wal
	if w.pages < w.due {
		return
	}
	mode := sqlite3.CHECKPOINT_PASSIVE
	if w.pages >= truncatePages {
		mode = sqlite3.CHECKPOINT_TRUNCATE
	}
	s.w.busy = func(waited time.Duration) bool { return waited < 50*time.Millisecond }
	log, done, err := s.w.db.WALCheckpoint("main", mode)
	w.checkpoints.Add(1)
	if err != nil || done < log {
		w.starved.Add(1)
		w.due = w.pages + checkpointPages/2
		return
	}
	w.due = checkpointPages
	w.pages = 0
}

package sqlitestore

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/vfs"
)

// Seams for the tests outside of the package.

// SetNetworkFS makes every folder look as if it were on file system name.
func SetNetworkFS(tb testing.TB, name string, remote bool) {
	old := networkFS
	networkFS = func(string) (string, bool) { return name, remote }
	tb.Cleanup(func() { networkFS = old })
}

// RegisterVFS puts v in the place of the system's own VFS, under a name for OpenVFS.
func RegisterVFS(name string, v vfs.VFSFilename) { vfs.Register(name, spaceVFS{v}) }

// OpenVFS is Open through another VFS of SQLite.
func OpenVFS(ctx context.Context, path string, options *Options, name string) (*Store, error) {
	return open(ctx, path, options, name)
}

// A SystemFile is what a VFS for RegisterVFS opens.
type SystemFile = systemFile

// SyncedFolders returns what collects the folders that Open syncs by itself.
func SyncedFolders(tb testing.TB) *[]string {
	list := new([]string)
	syncFolder = func(dir string) error {
		*list = append(*list, dir)
		return syncDir(dir)
	}
	tb.Cleanup(func() { syncFolder = syncDir })
	return list
}

// SetPoll sets how often who waits looks by itself, and returns what it was.
func SetPoll(d time.Duration) time.Duration {
	old := poll
	poll = d
	return old
}

// SetLongTurn sets after how long who waits for its turn goes on without.
func SetLongTurn(tb testing.TB, d time.Duration) {
	old := longTurn
	longTurn = d
	tb.Cleanup(func() { longTurn = old })
}

// Places is how many can stand in line; WaitTurn and EndTurn are those of the leader.
const Places = places

func WaitTurn(f *os.File, more func() bool) bool { return waitTurn(f, more) }
func EndTurn(f *os.File)                         { endTurn(f) }

// Taken reports whether somebody stands at a place.
func Taken(f *os.File, place int) bool {
	if !tryPlaces(f, place, place+1) {
		return true
	}
	leavePlaces(f, place, place+1)
	return false
}

// BeforeCommit and AfterCommit set hooks of a store that nobody uses yet.
func (s *Store) BeforeCommit(f func())      { s.seam.beforeCommit = f }
func (s *Store) AfterCommit(f func() error) { s.seam.afterCommit = f }

// Exec runs sql on the writing connection of a store that nobody uses.
func (s *Store) Exec(sql string) error { return s.w.db.Exec(sql) }

// Migrate runs other migrations than those there are.
func (s *Store) Migrate(steps ...string) error {
	return migrate(s.w, append(slices.Clip(migrations), steps...))
}

// HoldReader keeps a connection in a read transaction, until the function is called.
func (s *Store) HoldReader(ctx context.Context) (func(), error) {
	c, err := s.reader(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.db.Exec(`BEGIN; SELECT count(*) FROM items`); err != nil {
		return nil, err
	}
	return func() {
		_ = c.db.Exec(`ROLLBACK`)
		s.giveBack(c)
	}, nil
}

// Watching reports whether a watcher is there.
func (s *Store) Watching() bool {
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	return s.bell.watch != nil
}

// Queued is how many ops wait for a transaction.
func (s *Store) Queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

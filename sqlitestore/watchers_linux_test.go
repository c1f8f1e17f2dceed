package sqlitestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/teamchan/team"
)

// Whoever waits again and again has one watcher and one that is being closed, at most: a
// user has 128 on many systems.
func TestFewWatchers(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "s.db"), nil)
	most := 0
	for i := range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, _ = s.Claim(ctx, fmt.Sprint("q", i), team.ClaimOptions{Max: 1, Lease: time.Second, Wait: true})
		cancel()
		most = max(most, watchers(t))
	}
	if most > 2 {
		t.Errorf("%d watchers at once, want 2 at most", most)
	}
	until(t, "the last watcher to be closed", func() bool { return watchers(t) == 0 })
}

// watchers counts the open watchers of this process.
func watchers(t *testing.T) (n int) {
	t.Helper()
	const dir = "/proc/self/fd"
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Skip(err)
	}
	for _, e := range list {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && to == "anon_inode:inotify" {
			n++
		}
	}
	return n
}

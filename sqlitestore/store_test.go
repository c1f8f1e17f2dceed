package sqlitestore_test

import (
	"path/filepath"
	"testing"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
	"github.com/teamchan/team/storetest"
)

func open(tb testing.TB) team.Store { return openAt(tb, filepath.Join(tb.TempDir(), "s.db"), nil) }

// quick opens a store that does not wait for the disk, for laws that are not
// about power cuts.
func quick(tb testing.TB) team.Store {
	return openAt(tb, filepath.Join(tb.TempDir(), "s.db"), &sqlitestore.Options{Synchronous: sqlitestore.Normal})
}

func openAt(tb testing.TB, path string, opts *sqlitestore.Options) *sqlitestore.Store {
	tb.Helper()
	s, err := sqlitestore.Open(tb.Context(), path, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("Close = %v, want no error", err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, quick)
}

func FuzzStore(f *testing.F)      { storetest.Fuzz(f, quick) }
func BenchmarkStore(b *testing.B) { storetest.Bench(b, open) }

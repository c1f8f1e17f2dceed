package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

func TestOpen(t *testing.T) {
	t.Run("folder and files are for the user alone", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("modes mean little on Windows")
		}
		dir := filepath.Join(t.TempDir(), "a", "b")
		s := openAt(t, filepath.Join(dir, "s.db"), nil)
		mustAppend(t, s, "q", "a")
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("folder = %v, %v, want mode 0700", info.Mode(), err)
		}
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s = %v, %v, want mode 0600", e.Name(), info.Mode(), err)
			}
		}
		if len(list) != 4 {
			t.Errorf("%d files, want the database, its log, the log's index and the bell", len(list))
		}
	})

	t.Run("new folders are as durable as what is in them", func(t *testing.T) {
		dir := t.TempDir()
		synced := sqlitestore.SyncedFolders(t)
		openAt(t, filepath.Join(dir, "a", "b", "s.db"), nil)
		if got, want := *synced, []string{filepath.Join(dir, "a"), dir}; !slices.Equal(got, want) {
			t.Errorf("synced %q, want %q: the folders in which one is new", got, want)
		}
		openAt(t, filepath.Join(dir, "a", "b", "t.db"), nil)
		if len(*synced) != 2 {
			t.Errorf("synced %q, want no more for a folder that was there", *synced)
		}
	})

	t.Run("odd names", func(t *testing.T) {
		for _, name := range []string{"a b.db", "a%20b.db", "a?b=c#d.db", "é.db", "file:x.db", ":memory:"} {
			if runtime.GOOS == "windows" && strings.ContainsAny(name, "?:") {
				continue
			}
			path := filepath.Join(t.TempDir(), name)
			s, err := sqlitestore.Open(t.Context(), path, nil)
			if err != nil {
				t.Errorf("Open(%q) = %v, want no error", name, err)
				continue
			}
			mustAppend(t, s, "q", "a")
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if info, err := os.Stat(path); err != nil || info.Size() == 0 {
				t.Errorf("%q is not where it was opened: %v", name, err)
			}
		}
	})

	t.Run("what was written is there after a restart", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s.db")
		s, err := sqlitestore.Open(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, s, "q", "a", "b")
		v, err := s.Put(t.Context(), "k", []byte("1"), "")
		if err != nil {
			t.Fatal(err)
		}
		c := mustClaim(t, s, "q", "a:1")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openAt(t, path, nil)
		if r, err := s.Get(t.Context(), "k"); err != nil || r.Version != v || string(r.Value) != "1" {
			t.Errorf("Get = %v, %v, want what was put", r, err)
		}
		if err := s.Settle(t.Context(), "q", team.Settlement{Seq: c.Seq, Token: c.Token, Verdict: team.VerdictAck}); err != nil {
			t.Errorf("Settle with the token from before = %v, want no error", err)
		}
		if got := states(t, s, "q"); got != "a:acked:1 b:pending:0 " {
			t.Errorf("queue holds %q", got)
		}
	})

	t.Run("an ended context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		path := filepath.Join(t.TempDir(), "s.db")
		if _, err := sqlitestore.Open(ctx, path, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("Open = %v, want Canceled", err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Stat = %v, want no file", err)
		}
		if _, err := sqlitestore.Open(t.Context(), "", nil); !errors.Is(err, team.ErrInvalid) {
			t.Errorf("Open without a path = %v, want ErrInvalid", err)
		}
	})

	t.Run("a folder that cannot be written", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sqlitestore.Open(t.Context(), filepath.Join(file, "s.db"), nil); err == nil {
			t.Error("Open below a file = nil, want an error")
		}
		if os.Geteuid() == 0 || runtime.GOOS == "windows" {
			t.Skip("this user may write everywhere")
		}
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		if _, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "s.db"), nil); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("Open in a read-only folder = %v, want ErrPermission", err)
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	// foreign writes a file with SQL and returns it with its bytes.
	foreign := func(t *testing.T, sql string) (string, string) {
		path := filepath.Join(t.TempDir(), "s.db")
		c, err := sqlite3.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Exec(sql), c.Close()); err != nil {
			t.Fatal(err)
		}
		return path, read(t, path)
	}
	t.Run("a newer schema", func(t *testing.T) {
		path, was := foreign(t, `PRAGMA application_id = 1952801133; PRAGMA user_version = 99; CREATE TABLE future (x)`)
		_, err := sqlitestore.Open(t.Context(), path, nil)
		schema, ok := errors.AsType[*sqlitestore.SchemaError](err)
		if !ok || schema.Got != 99 || schema.Max < 1 || !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Open = %v, want a *SchemaError with 99", err)
		}
		if read(t, path) != was {
			t.Error("the file was changed")
		}
	})
	t.Run("another program's file", func(t *testing.T) {
		path, was := foreign(t, `CREATE TABLE theirs (x)`)
		_, err := sqlitestore.Open(t.Context(), path, nil)
		if _, ok := errors.AsType[*sqlitestore.FormatError](err); !ok || !errors.Is(err, team.ErrDenied) {
			t.Errorf("Open = %v, want a *FormatError", err)
		}
		if read(t, path) != was {
			t.Error("the file was changed")
		}
	})
	t.Run("no SQLite file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s.db")
		was := strings.Repeat("dear diary ", 1000)
		if err := os.WriteFile(path, []byte(was), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := sqlitestore.Open(t.Context(), path, nil)
		if _, ok := errors.AsType[*sqlitestore.FormatError](err); !ok {
			t.Errorf("Open = %v, want a *FormatError", err)
		}
		if read(t, path) != was {
			t.Error("the file was changed")
		}
	})
	t.Run("a link in the place of the bell", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s.db")
		precious := filepath.Join(t.TempDir(), "precious")
		was := strings.Repeat("precious ", 1000)
		if err := os.WriteFile(precious, []byte(was), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, target := range []string{precious, path, filepath.Join(t.TempDir(), "nowhere")} {
			if err := os.Symlink(target, path+"-bell"); err != nil {
				t.Skipf("no links here: %v", err)
			}
			if _, err := sqlitestore.Open(t.Context(), path, nil); !errors.Is(err, team.ErrDenied) || !strings.Contains(err.Error(), "remove it") {
				t.Errorf("Open = %v, want ErrDenied and what to do", err)
			}
			if err := os.Remove(path + "-bell"); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(target), "nowhere")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Stat = %v, want nothing to be made behind the link", err)
			}
		}
		if read(t, precious) != was {
			t.Error("the file behind the link was changed")
		}
		if err := openAt(t, path, nil).Check(t.Context()); err != nil {
			t.Errorf("Check when the link is gone = %v, want no error", err)
		}
	})
	t.Run("a network file system", func(t *testing.T) {
		for _, name := range []string{"nfs", "smb2", "9p", "fuse"} {
			sqlitestore.SetNetworkFS(t, name, true)
			path := filepath.Join(t.TempDir(), "s.db")
			_, err := sqlitestore.Open(t.Context(), path, nil)
			network, ok := errors.AsType[*sqlitestore.NetworkError](err)
			if !ok || network.FS != name || !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("Open on %s = %v, want a *NetworkError", name, err)
			}
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Stat = %v, want no file", err)
			}
		}
	})
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// With a rollback journal there is no log, and all else is the same.
func TestAllowNetwork(t *testing.T) {
	sqlitestore.SetNetworkFS(t, "nfs", true)
	opts := &sqlitestore.Options{AllowNetwork: true}
	path := filepath.Join(t.TempDir(), "s.db")
	a, b := openAt(t, path, opts), openAt(t, path, opts)
	done := make(chan error, 1)
	const n = 30
	go func() {
		for i := range n {
			if _, err := b.Append(t.Context(), "q", []team.Item{{ID: fmt.Sprint("i", i)}}, 0); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for i := range n {
		c := mustClaim(t, a, "q", fmt.Sprintf("i%d:1", i))
		if err := a.Settle(t.Context(), "q", team.Settlement{Seq: c.Seq, Token: c.Token, Verdict: team.VerdictAck}); err != nil {
			t.Fatal(err)
		}
		for _, err := range b.Items(t.Context(), "q", team.ListOptions{Settled: true}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := <-done; err != nil {
		t.Errorf("Append = %v, want no error", err)
	}
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat of the log = %v, want none", err)
	}
	if st, err := a.Stats(t.Context()); err != nil || st.Items[team.ItemAcked] != n || st.WALBytes != 0 {
		t.Errorf("Stats = %+v, %v, want %d acked and no log", st, err, n)
	}
	if err := a.Check(t.Context()); err != nil {
		t.Errorf("Check = %v, want no error", err)
	}
}

func TestMigrate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s, err := sqlitestore.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, "q", "a")
	if err := s.Migrate(`ALTER TABLE items ADD COLUMN colour TEXT`, `CREATE TABLE half (x); nonsense`); err == nil {
		t.Error("Migrate with a mistake = nil, want an error")
	}
	if err := s.Exec(`SELECT colour FROM items`); err == nil {
		t.Error("half of a migration is there")
	}
	if err := s.Migrate(`ALTER TABLE items ADD COLUMN colour TEXT`, `UPDATE items SET colour = 'red'`); err != nil {
		t.Errorf("Migrate = %v, want no error", err)
	}
	if err := s.Exec(`SELECT colour FROM items`); err != nil {
		t.Errorf("the new column: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = sqlitestore.Open(t.Context(), path, nil)
	if schema, ok := errors.AsType[*sqlitestore.SchemaError](err); !ok || schema.Got != 4 || schema.Max != 2 {
		t.Errorf("Open with the older program = %v, want a *SchemaError with 4 and 2", err)
	}
}

package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// childWatcher prints what changes, and when it learnt of it: PATH PREFIX.
func childWatcher(ctx context.Context, args []string) error {
	sqlitestore.SetPoll(time.Hour)
	s, err := sqlitestore.Open(ctx, args[0], nil)
	if err != nil {
		return err
	}
	changed := s.Watch(ctx, args[1])
	fmt.Println("open")
	for key, err := range changed {
		if err != nil {
			return err
		}
		fmt.Println(time.Now().UnixNano(), key)
	}
	return nil
}

// What changes here is told there, by the bell: the child does not look by itself.
func TestWatchAcrossProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := openAt(t, path, nil)
	p := start(t, "watcher", path, "k/")
	if line, _ := p.line(); line != "open" {
		t.Fatalf("child says %q, want open", line)
	}
	var took []time.Duration
	for i := range scale(50) {
		time.Sleep(time.Duration(1+rand.N(3)) * time.Millisecond)
		key := fmt.Sprint("k/", i/2)
		begun := time.Now()
		var err error
		if i%2 == 0 {
			_, err = s.Put(t.Context(), key, nil, "")
		} else {
			err = s.Delete(t.Context(), key, team.AnyVersion)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), "other", nil, team.AnyVersion); err != nil {
			t.Fatal(err)
		}
		line, _ := p.line()
		at, got, _ := strings.Cut(line, " ")
		if got != key {
			t.Fatalf("child is told of %q, want %q", line, key)
		}
		ns, _ := strconv.ParseInt(at, 10, 64)
		took = append(took, time.Unix(0, ns).Sub(begun))
	}
	p.stop()
	t.Logf("p50 %v, p99 %v", quantile(took, 0.5), quantile(took, 0.99))
}

// If the bell is lost, a poll is the safety net.
func TestWatchWithoutBell(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be removed")
	}
	path := filepath.Join(t.TempDir(), "s.db")
	a := openAt(t, path, nil)
	if err := os.Remove(path + "-bell"); err != nil {
		t.Fatal(err)
	}
	b := openAt(t, path, nil)
	next, stop := iter.Pull2(a.Watch(t.Context(), ""))
	defer stop()
	time.AfterFunc(20*time.Millisecond, func() {
		if _, err := b.Put(t.Context(), "k", nil, ""); err != nil {
			t.Error(err)
		}
	})
	if key, err, ok := next(); key != "k" || err != nil || !ok {
		t.Errorf("Watch yields %q, %v, want k", key, err)
	}
}

func TestWatchEnds(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "s.db"), nil)
	begin := func() chan error {
		done := make(chan error, 1)
		changed := s.Watch(t.Context(), "")
		go func() {
			for _, err := range changed {
				done <- err
				return
			}
			done <- errors.New("the loop ended without a name or an error")
		}()
		until(t, "the loop to wait", func() bool { st, err := s.Stats(t.Context()); return err == nil && st.Waiting == 1 })
		return done
	}
	done := begin()
	if !s.Watching() {
		t.Error("nobody watches the bell while a loop waits")
	}
	if _, err := s.Put(t.Context(), "k", nil, ""); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("Watch = %v, want no error", err)
	}
	until(t, "the bell to be left alone", func() bool { return !s.Watching() })
	done = begin()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, team.ErrClosed) {
		t.Errorf("Watch when the store is closed = %v, want ErrClosed", err)
	}
	for _, err := range s.Watch(t.Context(), "") {
		if !errors.Is(err, team.ErrClosed) {
			t.Errorf("Watch after Close = %v, want ErrClosed", err)
		}
	}
}

// A deletion is remembered for an hour, and then no longer: what there is to remember
// does not grow, and who was away for longer is told so.
func TestDeletions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := openAt(t, path, &sqlitestore.Options{Synchronous: sqlitestore.Normal})
	remembered := func() (n int) {
		c, err := sqlite3.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		row, _, err := c.Prepare(`SELECT count(*) FROM deletions`)
		if err != nil {
			t.Fatal(err)
		}
		defer row.Close()
		for row.Step() {
			n = row.ColumnInt(0)
		}
		return n
	}
	remove := func(n int) {
		for i := range n {
			key := fmt.Sprint("k", i)
			if _, err := s.Put(t.Context(), key, nil, ""); err != nil {
				t.Fatal(err)
			}
			if err := s.Delete(t.Context(), key, team.AnyVersion); err != nil {
				t.Fatal(err)
			}
		}
	}
	seen := func(seq iter.Seq2[string, error], n int) (keys map[string]bool, err error) {
		keys = make(map[string]bool)
		for key, err := range seq {
			if err != nil {
				return keys, err
			}
			if keys[key] = true; len(keys) == n {
				break
			}
		}
		return keys, nil
	}
	away := s.Watch(t.Context(), "")
	remove(300)
	if n := remembered(); n != 300 {
		t.Errorf("%d deletions are remembered, want 300", n)
	}
	if got, err := seen(away, 300); err != nil || len(got) != 300 {
		t.Errorf("a loop that comes late sees %d keys, %v, want 300", len(got), err)
	}

	away = s.Watch(t.Context(), "")
	for range 5 { // five hours, if the clock is taken back first
		remove(40)
		if err := s.Exec(`UPDATE deletions SET at = at - 3700000`); err != nil {
			t.Fatal(err)
		}
	}
	if n := remembered(); n > 300 {
		t.Errorf("%d deletions are remembered, want those that are old to go two for one", n)
	}
	here := s.Watch(t.Context(), "")
	if _, err := s.Sweep(t.Context(), sqlitestore.SweepPolicy{}); err != nil {
		t.Fatal(err)
	}
	if n := remembered(); n != 0 {
		t.Errorf("%d deletions are remembered after a sweep, want none: all are old", n)
	}
	_, err := seen(away, 1)
	if lag, ok := errors.AsType[*sqlitestore.LagError](err); !ok || lag.Memory != time.Hour || !errors.Is(err, team.ErrConflict) {
		t.Errorf("Watch of who was away = %v, want a *LagError", err)
	}
	remove(1)
	if got, err := seen(here, 1); err != nil || !got["k0"] {
		t.Errorf("Watch of who has seen all = %v, %v, want k0", got, err)
	}

	// A clock that was wrong by years does not keep them for years.
	if err := s.Exec(`UPDATE deletions SET at = at + 100000000000`); err != nil {
		t.Fatal(err)
	}
	remove(1)
	if n := remembered(); n != 1 {
		t.Errorf("%d deletions are remembered, want the last one", n)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check = %v, want no error", err)
	}
}

// A file of version 1 is brought to version 2 with all that is in it, and what happens
// to its records from then on is told.
func TestMigrateFrom1(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	ddl := read(t, filepath.Join("testdata", "v1.sql"))
	c, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Exec(ddl), c.Close()); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, path, nil)
	if got := states(t, s, "q"); got != "a:acked:1 b:pending:0 c:dead:3 " {
		t.Errorf("queue holds %q", got)
	}
	if r, err := s.Get(t.Context(), "k/2"); err != nil || string(r.Value) != "2" || r.Version != "v7" {
		t.Errorf("Get = %+v, %v, want what version 1 put", r, err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check = %v, want no error", err)
	}
	next, stop := iter.Pull2(s.Watch(t.Context(), "k/"))
	defer stop()
	if v, err := s.Put(t.Context(), "k/1", []byte("new"), "v3"); err != nil || v != "v10" {
		t.Errorf("Put = %s, %v, want the version behind the last of the file, v10", v, err)
	}
	if err := s.Delete(t.Context(), "k/2", "v7"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"k/1", "k/2"} {
		if key, err, _ := next(); key != want || err != nil {
			t.Errorf("Watch yields %q, %v, want %s", key, err, want)
		}
	}
	mustClaim(t, s, "q", "b:1")
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check = %v, want no error", err)
	}
}

// Many open a file of version 1 at once while somebody writes to it and somebody reads:
// all succeed, and who was there before goes on.
func TestMigrateFrom1AtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	ddl := read(t, filepath.Join("testdata", "v1.sql"))
	var before [2]*sqlite3.Conn
	for i, sql := range []string{"PRAGMA journal_mode = wal; " + ddl + "BEGIN IMMEDIATE", "BEGIN; SELECT count(*) FROM items"} {
		c, err := sqlite3.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Exec(sql); err != nil {
			t.Fatal(err)
		}
		before[i] = c
	}
	var wg sync.WaitGroup
	stores := make([]*sqlitestore.Store, 8)
	for i := range stores {
		wg.Go(func() {
			s, err := sqlitestore.Open(t.Context(), path, nil)
			if err != nil {
				t.Errorf("Open = %v, want no error", err)
				return
			}
			stores[i] = s
		})
	}
	time.Sleep(50 * time.Millisecond)
	if err := before[0].Exec(`UPDATE records SET value = x'35' WHERE key = x'6b2f32'; COMMIT`); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	// The reader still sees what was, and then what is.
	if err := before[1].Exec(`SELECT data FROM items; COMMIT; SELECT token FROM items`); err != nil {
		t.Errorf("who was reading: %v", err)
	}
	changed, stop := iter.Pull2(stores[0].Watch(t.Context(), "k/"))
	defer stop()
	if r, err := stores[1].Get(t.Context(), "k/2"); err != nil || string(r.Value) != "5" {
		t.Errorf("Get = %+v, %v, want what was written while others waited", r, err)
	}
	if err := stores[2].Delete(t.Context(), "k/2", team.AnyVersion); err != nil {
		t.Error(err)
	}
	if key, err, _ := changed(); key != "k/2" || err != nil {
		t.Errorf("Watch yields %q, %v, want k/2", key, err)
	}
	if err := stores[3].Check(t.Context()); err != nil {
		t.Errorf("Check = %v, want no error", err)
	}
	for _, s := range stores {
		if err := s.Close(); err != nil {
			t.Errorf("Close = %v, want no error", err)
		}
	}
}

// Where a file of version 1 cannot be brought up to date, it is as it was.
func TestMigrateFrom1Fails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	c, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// The second statement of the step finds a table in its way.
	if err := c.Exec(read(t, filepath.Join("testdata", "v1.sql")) + `CREATE TABLE deletions (theirs)`); err != nil {
		t.Fatal(err)
	}
	if s, err := sqlitestore.Open(t.Context(), path, nil); err == nil {
		s.Close()
		t.Fatal("Open = nil, want an error")
	} else if !strings.Contains(err.Error(), "version 2") {
		t.Errorf("Open = %v, want an error that says to which version", err)
	}
	row, _, err := c.Prepare(`SELECT (SELECT user_version FROM pragma_user_version),
		(SELECT count(*) FROM sqlite_schema WHERE name = 'records_version'), (SELECT count(*) FROM meta)`)
	if err != nil {
		t.Fatal(err)
	}
	defer row.Close()
	for row.Step() {
		if got := fmt.Sprint(row.ColumnInt(0), row.ColumnInt(1), row.ColumnInt(2)); got != "1 0 1" {
			t.Errorf("version, new index and counters = %s, want 1 0 1: nothing of the step", got)
		}
	}
}

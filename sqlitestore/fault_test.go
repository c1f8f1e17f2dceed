package sqlitestore_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

var (
	errNoSpace = &fs.PathError{Op: "write", Path: "s.db", Err: syscall.ENOSPC} // as a file answers
	errBroken  = &fs.PathError{Op: "write", Path: "s.db", Err: syscall.EIO}
)

// from fails every op of a kind from the n-th on, with err, and counts them.
func from(n int, err error, kinds ...opKind) (fail func(diskOp) error, count func() int) {
	seen := 0
	return func(op diskOp) error {
		for _, k := range kinds {
			if op.kind == k {
				if seen++; seen > n {
					return err
				}
			}
		}
		return nil
	}, func() int { return seen }
}

// A disk that fails at any write or sync of a commit: the error says what is true, and
// the store is as good as before when the disk is.
func TestDiskFails(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		kind opKind
		full bool // a *FullError
		sure bool // nothing was written, for certain
		made bool // it may be there all the same
		like bool // it is like the first
	}{
		{"no space", errNoSpace, opWrite, true, true, false, false},
		{"no space, by SQLite's own word", sqlite3.FULL, opWrite, true, true, false, true},
		{"over quota", &fs.PathError{Op: "write", Err: syscall.EDQUOT}, opWrite, true, true, false, true},
		{"no space when it is synced", errNoSpace, opSync, false, false, true, true},
		{"a write fails", errBroken, opWrite, false, false, false, false},
		{"a sync fails", errBroken, opSync, false, false, true, false},
	} {
		for _, journal := range []bool{false, true} {
			name := test.name
			if journal {
				if test.like {
					continue
				}
				name += ", with a rollback journal"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				opts := &sqlitestore.Options{AllowNetwork: journal}
				made, n, step := 0, 0, 1
				if test.kind == opWrite && (raceEnabled || testing.Short() || test.like) {
					step = 5
				}
				for ; ; n += step {
					hit, there := failAt(t, opts, n, test.err, test.kind, func(err error) {
						if _, ok := errors.AsType[*sqlitestore.FullError](err); ok != test.full || ok && !strings.Contains(err.Error(), "free some space") {
							t.Errorf("%d: Commit = %v, want a *FullError: %v", n, err, test.full)
						}
						unknown := errors.Is(err, team.ErrUnknownOutcome)
						if test.sure && unknown {
							t.Errorf("%d: Commit = %v, want it to be sure", n, err)
						}
						if !unknown && !strings.Contains(err.Error(), "nothing was written") {
							t.Errorf("%d: Commit = %v, want it to say that nothing was written", n, err)
						}
					})
					if !hit {
						break
					}
					if there {
						made++
					}
				}
				if n == 0 {
					t.Error("no write or sync was made to fail")
				}
				// Otherwise an unknown outcome would be too modest a word.
				if test.made && !journal && made == 0 {
					t.Error("what failed was never there, want it to be sometimes")
				}
				t.Logf("%d places to fail, one in %d was tried; in %d of these it was made all the same", n, step, made)
			})
		}
	}
}

// failAt makes a commit while the disk fails from the n-th op of a kind on. It reports
// whether it did, and whether somebody who looks then, after everybody was killed,
// finds the commit made.
func failAt(t *testing.T, opts *sqlitestore.Options, n int, cause error, kind opKind, judge func(error)) (hit, made bool) {
	t.Helper()
	ctx := t.Context()
	d := newDisk(t)
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s.db")
	s, err := d.open(ctx, path, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mustAppend(t, s, "q", "before")
	before := holding(t, s)
	fail, count := from(n, cause, kind)
	d.failing(fail)
	items := []team.Item{{ID: "a", Key: "a"}, {ID: "b", Key: "b"}}
	commit := func() error {
		_, err := s.Commit(ctx, []team.Batch{{Queue: "q", Items: items}},
			[]team.Change{{Key: "k", Value: make([]byte, 5000), Prev: team.AnyVersion}})
		return err
	}
	err = commit()
	if count() <= n {
		if err != nil {
			t.Errorf("%d: Commit = %v, want no error: nothing failed", n, err)
		}
		d.failing(nil)
		return false, false
	}
	if err == nil {
		// It failed where it does no harm, after the answer.
		return true, false
	}
	judge(err)
	// Before anybody does anything more: what is on the disk.
	copied, err2 := os.MkdirTemp(t.TempDir(), "")
	if err2 != nil {
		t.Fatal(err2)
	}
	for _, name := range []string{"s.db", "s.db-wal", "s.db-journal"} {
		if content, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			if err := os.WriteFile(filepath.Join(copied, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	switch got := examine(t, newDisk(t), filepath.Join(copied, "s.db"), opts); {
	case got == before:
	case strings.Contains(got, " a:pending:0 b:pending:0 k="):
		made = true
		if !errors.Is(err, team.ErrUnknownOutcome) {
			t.Errorf("%d: Commit = %v, and it is there", n, err)
		}
	default:
		t.Errorf("%d: after %v the store holds %q, want all or nothing", n, err, got)
	}
	// The disk still fails, and the store can be read.
	if !opts.AllowNetwork {
		if got := holding(t, s); got != before {
			t.Errorf("%d: after %v the store holds %q, want what was before", n, err, got)
		}
	}
	d.failing(nil)
	if err := commit(); err != nil {
		t.Errorf("%d: the same call when the disk is good again = %v, want no error", n, err)
	}
	if got := states(t, s, "q"); got != "before:pending:0 a:pending:0 b:pending:0 " {
		t.Errorf("%d: queue holds %q, want each once", n, got)
	}
	if err := s.Check(ctx); err != nil {
		t.Errorf("%d: Check = %v, want no error", n, err)
	}
	return true, made
}

// All that share a transaction share its end.
func TestCommitFailsForAll(t *testing.T) {
	d := newDisk(t)
	s, err := d.open(t.Context(), filepath.Join(t.TempDir(), "s.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, test := range []struct {
		cause error
		kind  opKind
		want  error
	}{{errNoSpace, opWrite, sqlite3.FULL}, {errBroken, opSync, team.ErrUnknownOutcome}} {
		fail, _ := from(0, test.cause, test.kind)
		d.failing(fail)
		const n = 20
		errs := make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				id := fmt.Sprint("i", i)
				_, errs[i] = s.Append(t.Context(), "q", []team.Item{{ID: id, Key: id}}, 0)
			})
		}
		wg.Wait()
		for i, err := range errs {
			if !errors.Is(err, test.want) {
				t.Errorf("Append %d = %v, want an error that is %v", i, err, test.want)
			}
		}
		if got := states(t, s, "q"); got != "" {
			t.Errorf("queue holds %q, want nothing", got)
		}
		d.failing(nil)
	}
	mustAppend(t, s, "q", "a")
	mustClaim(t, s, "q", "a:1")
}

// What fails when the log is copied into the file is nobody's call, and is made good
// later.
func TestCheckpointFails(t *testing.T) {
	d := newDisk(t)
	s, err := d.open(t.Context(), filepath.Join(t.TempDir(), "s.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d.failing(func(op diskOp) error {
		if op.kind == opWrite && op.name == "s.db" {
			return errNoSpace
		}
		return nil
	})
	write := func() {
		for i := range 30 {
			if _, err := s.Put(t.Context(), "k", []byte(strings.Repeat(fmt.Sprint(i%10), 256<<10)), team.AnyVersion); err != nil {
				t.Fatalf("Put = %v, want no error", err)
			}
		}
	}
	write()
	if st, err := s.Stats(t.Context()); err != nil || st.StarvedCheckpoints == 0 || st.WALBehind == 0 {
		t.Errorf("Stats = %+v, %v, want it to be seen", st, err)
	}
	d.failing(nil)
	write()
	if st, err := s.Stats(t.Context()); err != nil || st.WALBehind > 1000 {
		t.Errorf("Stats = %+v, %v, want the log copied", st, err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check = %v, want no error", err)
	}
}

// A store that cannot be made for want of space says so, and can be made later.
func TestOpenOnFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	for n := 0; ; n++ {
		d := newDisk(t)
		fail, count := from(n, errNoSpace, opWrite)
		d.failing(fail)
		s, err := d.open(t.Context(), path, &sqlitestore.Options{BusyTimeout: time.Second})
		if err == nil {
			d.failing(nil)
			mustAppend(t, s, "q", "a")
			if err := errors.Join(s.Check(t.Context()), s.Close()); err != nil {
				t.Error(err)
			}
			if n == 0 || count() > n {
				t.Errorf("Open = nil after %d of %d writes failed", count()-n, count())
			}
			return
		}
		if _, ok := errors.AsType[*sqlitestore.FullError](err); !ok {
			t.Fatalf("Open = %v, want a *FullError", err)
		}
	}
}

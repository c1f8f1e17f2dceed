package team

// Inside the package, since the seam that fails an operation of the disk is not
// exported.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team/internal/slug"
)

var errFault = errors.New("the disk says no")

func testBoard(t *testing.T) *Board {
	t.Helper()
	b, err := OpenBoard(t.Context(), filepath.Join(t.TempDir(), "board"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

func testWrite(b *Board, body string) (Entry, error) {
	ctx := WithCaller(context.Background(), Caller{Session: "ses_a", Role: "architect"})
	return b.Write(ctx, Draft{Session: "s", Task: "t", Topic: "report", Body: body})
}

// visible returns the files of the board that are not its own marks.
func visible(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		mark := filepath.Base(filepath.Dir(path)) == controlDir && slug.Made(d.Name())
		if err == nil && !d.IsDir() && !mark {
			names = append(names, path)
		}
		return err
	}))
	return names
}

// TestBoardWriteFaults fails the n-th operation of publishing, for every n.
func TestBoardWriteFaults(t *testing.T) {
	for _, mode := range []struct {
		name  string
		first bool  // in a new session
		links error // what linking answers
	}{
		{"first entry", true, nil}, {"second round", false, nil}, {"no links, first entry", true, syscall.ENOTSUP}, {"no links, second round", false, syscall.EPERM},
	} {
		for _, fault := range []error{errFault, syscall.ENOSPC, syscall.EROFS} {
			t.Run(fmt.Sprintf("%s/%v", mode.name, fault), func(t *testing.T) {
				for n := 1; ; n++ {
					b := testBoard(t)
					if !mode.first {
						_, err := testWrite(b, "first\n")
						require.NoError(t, err)
					}
					before := visible(t, b.dir)
					count, failed := 0, ""
					b.step = func(op, name string) error {
						if count++; count == n {
							failed = op
							return fault
						}
						if op == "link" && mode.links != nil {
							return mode.links
						}
						return nil
					}
					e, err := testWrite(b, strings.Repeat("body\n", 1000))
					b.step = nil
					if failed == "" {
						require.NoError(t, err)
						require.Greater(t, n, 6, "operations were failed one by one")
						require.Equal(t, mode.links != nil, e.InPlace, "the entry says how it was published")
						return
					}
					// Only a failure to remove what is in nobody's way is no failure.
					if failed == "remove" {
						require.NoError(t, err)
					} else {
						require.ErrorIs(t, err, fault, "operation %d, %s", n, failed)
						require.Zero(t, e)
						for f, err := range b.Entries(t.Context(), Filter{}) {
							require.NoError(t, err)
							require.EqualValues(t, 1, f.Round, "nothing half written is visible after %s", failed)
							require.False(t, f.Changed)
						}
					}
					_, serr := b.Sweep(t.Context())
					require.NoError(t, serr)
					after := visible(t, b.dir)
					if err != nil {
						require.Equal(t, before, after, "nothing stays of an entry after operation %d, %s, failed", n, failed)
					} else {
						require.Len(t, after, len(before)+1, "no temporary file stays")
					}
					_, err = testWrite(b, "again\n")
					require.NoError(t, err, "the board works on after %s", failed)
				}
			})
		}
	}
}

// TestBoardTaskSwappedForALink puts a link in the place of the task's folder, or
// of the session's, between any two steps.
func TestBoardTaskSwappedForALink(t *testing.T) {
	for _, victim := range []string{"s/t", "s"} {
		for _, target := range []string{"outside", "inside"} {
			t.Run(victim+" to "+target, func(t *testing.T) {
				swaps := 0
				for n := 1; ; n++ {
					b := testBoard(t)
					first, err := testWrite(b, "first\n")
					require.NoError(t, err)
					elsewhere := filepath.Join(t.TempDir(), "outside")
					if target == "inside" {
						elsewhere = filepath.Join(b.dir, "other")
					}
					require.NoError(t, os.MkdirAll(filepath.Join(elsewhere, "t"), 0o700))
					secret := filepath.Join(elsewhere, "01-architect-secret.md")
					require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
					stamp, err := os.Stat(elsewhere)
					require.NoError(t, err)

					count, swapped := 0, ""
					aside := filepath.Join(t.TempDir(), "aside")
					b.step = func(op, name string) error {
						if count++; count == n {
							swapped = op
							path := filepath.Join(b.dir, victim)
							require.NoError(t, os.Rename(path, aside))
							require.NoError(t, os.Symlink(elsewhere, path))
						}
						return nil
					}
					e, err := testWrite(b, "second\n")
					b.step = nil
					if swapped == "" {
						require.NoError(t, err)
						require.Greater(t, swaps, 4)
						return
					}
					swaps++
					// The last operation removes the temporary file; the entry was
					// published and confirmed before.
					if err != nil {
						require.Zero(t, e)
					} else {
						require.Equal(t, "remove", swapped)
					}
					require.Equal(t, []string{secret}, visible(t, elsewhere), "nothing is made where the link leads (swapped before %s)", swapped)
					now, err := os.Stat(elsewhere)
					require.NoError(t, err)
					require.Equal(t, stamp.ModTime(), now.ModTime(), "nor was there for a moment")

					_, err = testWrite(b, "third\n")
					require.ErrorIs(t, err, ErrDenied)
					_, err = b.Read(t.Context(), first.Path, Range{})
					require.ErrorIs(t, err, ErrDenied)
					for e, err := range b.Entries(t.Context(), Filter{}) {
						require.NoError(t, err)
						require.NotContains(t, e.Path, "secret")
					}
					b.opts.TTL = time.Nanosecond
					_, err = b.Sweep(t.Context())
					require.NoError(t, err)
					require.Equal(t, []string{secret}, visible(t, elsewhere), "a sweep does not follow the link")
					require.FileExists(t, filepath.Join(aside, strings.TrimPrefix("s/t", victim), filepath.Base(first.Path)))
				}
			})
		}
	}
}

func TestBoardLeafIsInTheWay(t *testing.T) {
	for what, put := range map[string]func(path string) error{
		"a dangling link":      func(p string) error { return os.Symlink(filepath.Join(filepath.Dir(p), "..", "nowhere"), p) },
		"a dangling link out":  func(p string) error { return os.Symlink("/nowhere/at/all", p) },
		"a folder":             func(p string) error { return os.Mkdir(p, 0o700) },
		"somebody else's file": func(p string) error { return os.WriteFile(p, []byte("mine"), 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			b := testBoard(t)
			leaf := filepath.Join(b.dir, "s", "t", "01-architect-report.md")
			done := false
			b.step = func(op, name string) error { // after the names were read
				if op == "link" && !done {
					done = true
					return put(leaf)
				}
				return nil
			}
			e, err := testWrite(b, "body\n")
			require.NoError(t, err)
			require.NotEqual(t, leaf, e.Path)
			require.Equal(t, "01-architect-report-r2.md", filepath.Base(e.Path), "the name that was taken counts as a round")
			_, err = b.Read(t.Context(), leaf, Range{})
			require.Error(t, err)
			_, err = os.Stat("/nowhere")
			require.ErrorIs(t, err, fs.ErrNotExist)
		})
	}
}

func TestBoardRootReplaced(t *testing.T) {
	b := testBoard(t)
	e, err := testWrite(b, "first\n")
	require.NoError(t, err)
	require.NoError(t, os.Rename(b.dir, b.dir+"-moved"))
	_, err = testWrite(b, "second\n")
	require.ErrorIs(t, err, ErrConflict)
	require.NoError(t, os.Mkdir(b.dir, 0o700))
	_, err = testWrite(b, "second\n")
	require.ErrorIs(t, err, ErrConflict, "a path that was handed out would lead nowhere")
	require.Empty(t, visible(t, b.dir))
	require.FileExists(t, strings.Replace(e.Path, b.dir, b.dir+"-moved", 1))
}

// TestBoardSweepFaults fails the n-th operation of a sweep, for every n: a second
// run finds what the first could not remove.
func TestBoardSweepFaults(t *testing.T) {
	for n := 1; ; n++ {
		b := testBoard(t)
		for range 3 {
			_, err := testWrite(b, "x\n")
			require.NoError(t, err)
		}
		old := time.Now().Add(-b.opts.TTL - time.Hour)
		for _, f := range visible(t, b.dir) {
			require.NoError(t, os.Chtimes(f, old, old))
		}
		lease, err := b.Lease(t.Context(), "s", time.Millisecond)
		require.NoError(t, err)
		time.Sleep(2 * time.Millisecond)
		require.FileExists(t, b.abs(lease.name))
		require.NoError(t, os.WriteFile(filepath.Join(b.dir, controlDir, ".tmp-"+rand.Text()), []byte("half"), 0o600))

		count, failed := 0, ""
		b.step = func(op, name string) error {
			if count++; count == n {
				failed = op + " " + name
				return errFault
			}
			return nil
		}
		report, err := b.Sweep(t.Context())
		b.step = nil
		require.NoError(t, err)
		if failed != "" {
			found := false
			for _, item := range report.Items {
				found = found || errors.Is(item.Err, errFault) && item.Action == SweepKeep
			}
			require.True(t, found, "the report names what could not be done: %s, %+v", failed, report.Items)
			_, err = b.Sweep(t.Context())
			require.NoError(t, err)
		}
		left, err := filepath.Glob(filepath.Join(b.dir, "*"))
		require.NoError(t, err)
		require.Equal(t, []string{filepath.Join(b.dir, controlDir)}, left, "after %q failed", failed)
		inControl, err := os.ReadDir(left[0])
		require.NoError(t, err)
		require.Empty(t, inControl, "after %q failed", failed)
		if failed == "" {
			require.Greater(t, n, 8)
			return
		}
	}
}

// TestBoardWritesAgainstASweep makes the session go away between any two steps
// of a write.
func TestBoardWritesAgainstASweep(t *testing.T) {
	for n := 1; ; n++ {
		b := testBoard(t)
		_, err := testWrite(b, "old\n")
		require.NoError(t, err)
		other, err := OpenBoard(t.Context(), b.dir, &BoardOptions{TTL: time.Nanosecond})
		require.NoError(t, err)
		defer other.Close()
		count, swept := 0, false
		b.step = func(op, name string) error {
			if count++; count == n {
				swept = true
				_, err := other.Sweep(t.Context())
				require.NoError(t, err)
			}
			return nil
		}
		e, err := testWrite(b, "new\n")
		b.step = nil
		require.NoError(t, err)
		if x, err := b.Read(t.Context(), e.Path, Range{}); err == nil {
			require.Equal(t, "new\n", x.Text)
		} else {
			// It was older than a nanosecond when the sweep saw it: published, then swept.
			require.ErrorIs(t, err, ErrNotFound)
		}
		if !swept {
			require.Greater(t, n, 4)
			return
		}
	}
}

func TestBoardLockOfAStoppedProcessDoesNotBlock(t *testing.T) {
	b := testBoard(t)
	_, err := testWrite(b, "first\n")
	require.NoError(t, err)
	other, err := OpenBoard(t.Context(), b.dir, nil)
	require.NoError(t, err)
	defer other.Close()
	lock, err := other.lock(t.Context(), "s", time.Second)
	require.NoError(t, err)
	require.True(t, lock.held())
	defer lock.unlock()

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = b.Write(WithCaller(ctx, Caller{Role: "architect"}), Draft{Session: "s", Task: "t", Topic: "report", Body: "x"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Len(t, visible(t, b.dir), 1, "nothing was written")

	report, err := b.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, SweepBusy, report.Items[0].Reason)

	if testing.Short() {
		return
	}
	_, err = b.Lease(t.Context(), "s", time.Hour) // after lockPatience
	require.ErrorIs(t, err, ErrConflict, "a lease that a sweep might not see is not given")
	start := time.Now()
	for round := 2; round < 6; round++ {
		e, err := testWrite(b, "second\n")
		require.NoError(t, err)
		require.Equal(t, round, e.Round)
	}
	require.Less(t, time.Since(start), 4*lockPatience, "a holder is given up waiting for once, not for each of 4 entries")
}

// TestBoardWaitingIsNotHanging lets writers queue for longer than the patience that
// a holder who does not move is given: numbers stay unique, the quota exact.
func TestBoardWaitingIsNotHanging(t *testing.T) {
	b := testBoard(t)
	other, err := OpenBoard(t.Context(), b.dir, nil)
	require.NoError(t, err)
	defer other.Close()
	const patience = 60 * time.Millisecond
	held := make(chan *sessionLock, 100)
	_, err = testWrite(b, "x")
	require.NoError(t, err)
	for i := range 20 {
		from := b
		if i%2 == 0 {
			from = other
		}
		go func() {
			lock, err := from.lock(t.Context(), "s", patience)
			if err != nil || !lock.held() {
				t.Errorf("the lock was not got, though it changed hands: %v", err)
			}
			lock.stamp()
			time.Sleep(patience / 3) // 20 of these are more than the patience
			held <- lock
			lock.unlock()
		}()
	}
	for range 20 {
		<-held
	}
}

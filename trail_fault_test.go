package team

// Inside the package, since the seam that fails an operation of the disk is not
// exported.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team/internal/filelock"
)

// testTrail opens a trail whose n-th operation of the disk fails, and with all
// every one from then on, which is what a killed process leaves.
func testTrail(t *testing.T, dir string, n int, all bool) (trail *Trail, steps *int) {
	t.Helper()
	trail, err := OpenTrail(t.Context(), dir, &TrailOptions{FileSize: 1200, Files: 2, Sync: true})
	require.NoError(t, err)
	steps = new(int)
	trail.step = func(op, name string) error {
		*steps++
		if *steps == n || all && *steps > n {
			return fmt.Errorf("%s %s: %w", op, name, errTrailFault)
		}
		return nil
	}
	return trail, steps
}

var errTrailFault = errors.New("the disk says no to the trail")

func testRecord(trail *Trail, from, to int) {
	for i := from; i < to; i++ {
		trail.Record(context.Background(), TraceEvent{Op: "x", ID: fmt.Sprint("id-", i), Outcome: "ok"})
	}
}

// countLines returns how often each id is in the trail.
func countLines(t *testing.T, dir string) map[string]int {
	t.Helper()
	n := make(map[string]int)
	for l, err := range ReadTrail(t.Context(), dir) {
		require.NoError(t, err)
		n[l.Event.ID]++
	}
	return n
}

// TestTrailFaults fails the n-th operation of the disk, for every n: the record is
// there or it is counted as lost, and a gap line says so.
func TestTrailFaults(t *testing.T) {
	for n := 1; ; n++ {
		dir := filepath.Join(t.TempDir(), "trail")
		trail, steps := testTrail(t, dir, n, false)
		trail.opts.Files = NoLimit
		const records = 12
		testRecord(trail, 0, records)
		stats := trail.Stats()
		require.NoError(t, trail.Close())
		report, err := VerifyTrail(t.Context(), dir)
		require.NoError(t, err)
		require.NoError(t, report.Err(), "n=%d: %+v", n, report.Breaks)
		require.Greater(t, report.Files, 2)
		lines := countLines(t, dir)
		seen := 0
		for i := range records {
			require.LessOrEqual(t, lines[fmt.Sprint("id-", i)], 1, "n=%d", n)
			seen += lines[fmt.Sprint("id-", i)]
		}
		require.EqualValues(t, records-seen, stats.Lost, "n=%d: %+v", n, stats)
		require.Equal(t, stats.Lost, report.Lost, "n=%d", n)
		if n > *steps {
			require.Zero(t, stats.Lost+stats.Faults)
			return
		}
		require.EqualValues(t, 1, stats.Lost+stats.Faults, "n=%d: %+v", n, stats)
		require.ErrorIs(t, stats.LastError, errTrailFault)
	}
}

// TestTrailCrashes stops a writer at the n-th operation, for every n, with half of
// what it was writing in the file: the next one goes on, and the chain holds.
func TestTrailCrashes(t *testing.T) {
	torn := 0
	for n := 1; ; n++ {
		dir := filepath.Join(t.TempDir(), "trail")
		var recorded []string
		trail, steps := testTrail(t, dir, n, true)
		for i := range 9 {
			before := trail.Stats()
			testRecord(trail, i, i+1)
			if after := trail.Stats(); after.Lost == before.Lost && i >= 5 { // files of the first are swept
				recorded = append(recorded, fmt.Sprint("id-", i))
			}
		}
		done := n > *steps
		trail.w.close()
		trail.root.Close()
		report, err := VerifyTrail(t.Context(), dir)
		require.NoError(t, err)
		require.NoError(t, report.Err(), "n=%d: %+v", n, report.Breaks)

		next, err := OpenTrail(t.Context(), dir, nil)
		require.NoError(t, err)
		testRecord(next, 100, 103)
		require.Zero(t, next.Stats().Lost)
		report, err = VerifyTrail(t.Context(), dir)
		require.NoError(t, err)
		require.NoError(t, report.Err(), "n=%d: %+v", n, report.Breaks)
		require.Equal(t, "id-102", report.Last.Event.ID)
		require.EqualValues(t, report.TornCount, next.Stats().Torn)
		torn += report.TornCount
		lines := countLines(t, dir)
		for _, id := range recorded {
			require.Equal(t, 1, lines[id], "n=%d: %s", n, id)
		}
		require.NoError(t, next.Close())
		if done {
			break
		}
	}
	require.Positive(t, torn)
}

// TestTrailGap: what is lost is counted, never fails the caller, and the next
// line that can be written starts with the number.
func TestTrailGap(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "trail")
	trail, _ := testTrail(t, dir, 0, false)
	testRecord(trail, 0, 2)
	trail.step = func(op, name string) error { return errTrailFault }
	testRecord(trail, 2, 7)
	require.EqualValues(t, 5, trail.Stats().Lost)
	require.EqualValues(t, 5, trail.Stats().Unmarked)
	require.ErrorIs(t, trail.Stats().LastError, errTrailFault)
	require.WithinDuration(t, time.Now(), trail.Stats().At, time.Minute)
	trail.step = nil
	testRecord(trail, 7, 8)
	require.Zero(t, trail.Stats().Unmarked)
	var ops []string
	for l, err := range ReadTrail(t.Context(), dir) {
		require.NoError(t, err)
		ops = append(ops, l.Event.Op)
		if l.Event.Op == trailGap {
			require.Equal(t, 5, l.Event.Count)
			require.Equal(t, errTrailFault.Error(), l.Event.Reason)
		}
	}
	require.Equal(t, []string{"trail.begin", "x", "x", "trail.gap", "x"}, ops)
	report, err := VerifyTrail(t.Context(), dir)
	require.NoError(t, err)
	require.NoError(t, report.Err())
	require.EqualValues(t, 5, report.Lost)
	require.Equal(t, 1, report.Gaps)

	// At the end Close writes the mark, or says that it could not.
	trail.step = func(op, name string) error { return errTrailFault }
	testRecord(trail, 8, 9)
	err = trail.Close()
	require.ErrorIs(t, err, errTrailFault)
	require.Contains(t, err.Error(), "1 records are lost without a mark")
	require.NoError(t, trail.Close())
	testRecord(trail, 9, 10)
	require.EqualValues(t, 7, trail.Stats().Lost)
	require.ErrorIs(t, trail.Stats().LastError, ErrClosed)
}

// TestTrailPatience: a writer that is stopped with the lock in its hands costs
// others a bounded time, shorter and shorter, and no line in silence.
func TestTrailPatience(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "trail")
	trail, err := OpenTrail(t.Context(), dir, &TrailOptions{Patience: 50 * time.Millisecond})
	require.NoError(t, err)
	defer trail.Close()
	testRecord(trail, 0, 1)
	stopped, err := os.OpenFile(filepath.Join(dir, trailHeadName), os.O_RDWR, 0)
	require.NoError(t, err)
	defer stopped.Close()
	ok, err := filelock.Try(stopped)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("no file locks here")
	}
	require.True(t, ok)
	testRecord(trail, 1, 21)
	require.Equal(t, 10, trail.w.misses, "each wait is half as long as the one before")
	require.EqualValues(t, 20, trail.Stats().Lost)
	require.ErrorIs(t, trail.Stats().LastError, errTrailBusy)
	stopped.Close() // it goes on, or it is killed
	testRecord(trail, 21, 22)
	require.Zero(t, trail.w.misses)
	report, err := VerifyTrail(t.Context(), dir)
	require.NoError(t, err)
	require.NoError(t, report.Err())
	require.EqualValues(t, 20, report.Lost)
	require.Equal(t, "id-21", report.Last.Event.ID)

	// The same among goroutines, if one hangs.
	trail.turn <- struct{}{}
	testRecord(trail, 22, 23)
	require.EqualValues(t, 21, trail.Stats().Lost)
	require.Empty(t, trail.queue)
	<-trail.turn

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	trail.Record(ctx, TraceEvent{Op: "x"})
	require.EqualValues(t, 21, trail.Stats().Lost, "the write was made, so the end of its context is no reason")
}

// TestTrailGoesOn: whatever is taken away while it is open, a Trail writes on, and
// what can be known of it is a break.
func TestTrailGoesOn(t *testing.T) {
	for _, what := range []string{"head", "file", "key", "head and file"} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "trail")
			trail, err := OpenTrail(t.Context(), dir, nil)
			require.NoError(t, err)
			defer trail.Close()
			testRecord(trail, 0, 3)
			if strings.Contains(what, "head") {
				require.NoError(t, os.Remove(filepath.Join(dir, trailHeadName)))
			}
			if strings.Contains(what, "file") {
				require.NoError(t, os.Remove(filepath.Join(dir, trailFile(1))))
			}
			if what == "key" {
				require.NoError(t, os.Remove(filepath.Join(dir, trailKeyName)))
			}
			testRecord(trail, 3, 5)
			require.Zero(t, trail.Stats().Lost, "%+v", trail.Stats())
			require.Equal(t, 1, countLines(t, dir)["id-4"])
			report, err := VerifyTrail(t.Context(), dir)
			require.NoError(t, err)
			require.Equal(t, what == "head" || what == "file", report.Err() != nil, "%+v", report.Breaks)
		})
	}
}

// TestTrailLinks: no link is followed, and nothing special is opened.
func TestTrailLinks(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(victim, []byte("mine"), 0o600))
	for _, name := range []string{trailHeadName, trailKeyName, trailFile(1)} {
		for what, plant := range map[string]func(string) error{
			"a link":      func(at string) error { return os.Symlink(victim, at) },
			"a near link": func(at string) error { return os.Symlink("near", at) },
			"a folder":    func(at string) error { return os.Mkdir(at, 0o700) },
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				dir := t.TempDir()
				require.NoError(t, os.WriteFile(filepath.Join(dir, "near"), []byte("mine"), 0o600))
				if err := plant(filepath.Join(dir, name)); err != nil {
					t.Skip(err)
				}
				trail, err := OpenTrail(t.Context(), dir, nil)
				if name != trailFile(1) {
					require.ErrorIs(t, err, ErrDenied)
					return
				}
				require.NoError(t, err)
				testRecord(trail, 0, 2)
				require.EqualValues(t, 2, trail.Stats().Lost)
				require.ErrorIs(t, trail.Stats().LastError, ErrDenied)
				trail.Close()
				_, err = VerifyTrail(t.Context(), dir)
				require.ErrorIs(t, err, ErrDenied)
				for _, path := range []string{victim, filepath.Join(dir, "near")} {
					b, err := os.ReadFile(path)
					require.NoError(t, err)
					require.Equal(t, "mine", string(b))
				}
			})
		}
	}
}

func TestTrailOpenRefuses(t *testing.T) {
	_, err := OpenTrail(t.Context(), "", nil)
	require.ErrorIs(t, err, ErrInvalid)
	for _, opts := range []TrailOptions{{FileSize: -2}, {Files: -2}, {MaxAge: -2}, {Patience: -1}} {
		none := filepath.Join(t.TempDir(), "none")
		_, err = OpenTrail(t.Context(), none, &opts)
		require.ErrorIs(t, err, ErrInvalid, "%+v", opts)
		_, err = os.Stat(none)
		require.ErrorIs(t, err, os.ErrNotExist, "a refusal makes nothing")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = OpenTrail(ctx, t.TempDir(), nil)
	require.ErrorIs(t, err, context.Canceled)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, trailKeyName), []byte("short"), 0o600))
	_, err = OpenTrail(t.Context(), dir, nil)
	require.ErrorIs(t, err, ErrCorrupt)
	open := filepath.Join(t.TempDir(), "open")
	require.NoError(t, os.Mkdir(open, 0o700))
	if os.Chmod(open, 0o777) == nil && os.PathSeparator == '/' {
		_, err = OpenTrail(t.Context(), open, nil)
		require.ErrorIs(t, err, ErrDenied, "a folder that everybody can write to")
		_, err = VerifyTrail(t.Context(), open)
		require.ErrorIs(t, err, ErrDenied)
	}
	_, err = VerifyTrail(t.Context(), filepath.Join(dir, "none"))
	require.ErrorIs(t, err, ErrNotFound)
	_, err = os.Stat(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist, "looking makes nothing")
}

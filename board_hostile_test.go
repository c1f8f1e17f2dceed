package team

// Inside the package for the seam, and to plant what no board writes.

import (
	"context"
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

	"github.com/teamchan/team/internal/entryfile"
)

// forge puts a file on the board that has a good header for its body.
func forge(tb testing.TB, b *Board, base, body string) string {
	tb.Helper()
	h := entryfile.Header{Time: time.Now(), Role: "architect", Session: "s", SHA256: hexDigest([]byte(body))}
	path := filepath.Join(b.dir, "s", "t", base)
	require.NoError(tb, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(tb, os.WriteFile(path, []byte(h.String()+body), 0o600))
	return path
}

func age(tb testing.TB, dir string) {
	tb.Helper()
	old := time.Now().AddDate(-1, 0, 0)
	require.NoError(tb, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			err = os.Chtimes(path, old, old)
		}
		return err
	}))
}

func TestBoardForgedBodyIsRefused(t *testing.T) {
	b := testBoard(t)
	for i, body := range []string{"\x80\x80", "a\x80\x80\x80b", "\xff", "ok\xc3"} {
		path := forge(t, b, fmt.Sprintf("%02d-architect-x.md", i+1), body)
		for _, r := range []Range{{}, {Offset: 1}, {Bytes: 1}, {Offset: 1, Bytes: 1}, {Lines: 1}} {
			_, err := b.Read(t.Context(), path, r)
			require.ErrorIs(t, err, ErrCorrupt)
		}
	}
}

func FuzzBoardRead(f *testing.F) {
	h := entryfile.Header{Time: time.UnixMilli(1), Role: "architect", Session: "s", SHA256: hexDigest([]byte("a\nb"))}
	f.Add([]byte(h.String()+"a\nb"), int64(0), int64(2), 0, 0)
	f.Add([]byte("no header\n\x80"), int64(1), int64(0), 1, 1)
	b, err := OpenBoard(context.Background(), f.TempDir(), nil)
	require.NoError(f, err)
	path := forge(f, b, "01-architect-x.md", "")
	f.Fuzz(func(t *testing.T, content []byte, offset, bytes int64, line, lines int) {
		require.NoError(t, os.WriteFile(path, content, 0o600))
		if x, err := b.Read(t.Context(), path, Range{offset, bytes, line, lines}); err == nil {
			require.True(t, strings.HasSuffix(string(content), x.Text) || x.Next >= 0)
		}
		for e, err := range b.Entries(t.Context(), Filter{}) {
			require.NoError(t, err)
			require.Equal(t, path, e.Path)
		}
		for i, s := range []string{string(content), "\n" + string(content)} { // whatever the digest says
			x, err := cutRange(Entry{}, strings.ToValidUTF8(s, "?"), Range{offset, bytes, line, lines})
			require.False(t, err == nil && x.Next == x.Offset, "%d: no progress", i)
		}
	})
}

func TestBoardNamesThatComposeReadBack(t *testing.T) {
	b := testBoard(t)
	ctx := WithCaller(t.Context(), Caller{Role: "r"})
	for _, name := range []string{"가\u0301\u11a8", "가\u11a8", "각", "e\u0301\u0323", "\u1112\u1161\u11ab"} {
		for _, d := range []Draft{{name, "t", "t", name}, {"s", name, "t", name}, {"s", "t", name, name}} {
			e, err := b.Write(ctx, d)
			require.NoError(t, err)
			require.Equal(t, 1, e.Round)
			_, err = b.Read(ctx, e.Path, Range{})
			require.NoError(t, err, "%+q", name)
			n := 0
			for range b.Entries(ctx, Filter{Session: d.Session, Task: d.Task, Topic: d.Topic}) {
				n++
			}
			require.Equal(t, 1, n, "%+q", name)
		}
	}
	age(t, b.dir)
	report, err := b.Sweep(ctx)
	require.NoError(t, err)
	n, _ := report.Removed()
	require.Equal(t, 15, n)
}

func TestBoardEndedContextChangesNothing(t *testing.T) {
	b := testBoard(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		_, err := b.Write(WithCaller(ctx, Caller{Role: "r"}), Draft{"s", "t", "t", "x"})
		require.ErrorIs(t, err, context.Canceled)
		_, err = b.Lease(ctx, "s", time.Hour)
		require.ErrorIs(t, err, context.Canceled)
	}
	_, err := b.Sweep(ctx)
	require.ErrorIs(t, err, context.Canceled)
	_, err = b.PlanSweep(ctx)
	require.ErrorIs(t, err, context.Canceled)
	_, err = b.Read(ctx, "s/t/01-r-t.md", Range{})
	require.ErrorIs(t, err, context.Canceled)
	n := 0
	for _, err := range b.Entries(ctx, Filter{}) {
		require.ErrorIs(t, err, context.Canceled)
		n++
	}
	require.Equal(t, 1, n)
	left, err := os.ReadDir(b.dir)
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = OpenBoard(ctx, b.dir, nil)
	require.ErrorIs(t, err, context.Canceled)
}

// What only looks like ours is somebody else's.
func TestSweepKnowsItsOwnNames(t *testing.T) {
	b := testBoard(t)
	_, err := testWrite(b, "x")
	require.NoError(t, err)
	foreign := []string{"s/t/.tmp-notes.md", "s/.lease-2024-contract.pdf", ".tm/.tmp-notes.md", ".tm/s.lease-soon.pdf", ".tm/notes.txt",
		".gone-fishing/x", "s/My Drafts", "s/t/sub/empty"}
	for _, name := range foreign {
		path := filepath.Join(b.dir, name)
		if strings.HasSuffix(name, "My Drafts") || strings.HasSuffix(name, "empty") {
			require.NoError(t, os.MkdirAll(path, 0o700))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	}
	for range 2 {
		age(t, b.dir)
		report, err := b.Sweep(t.Context())
		require.NoError(t, err)
		for _, name := range foreign {
			path := filepath.Join(b.dir, name)
			_, err := os.Lstat(path)
			require.NoError(t, err, "%s is kept", name)
			if !strings.HasPrefix(name, ".gone") { // its folder is named
				require.True(t, itemOf(report, path).Reason == SweepForeign, "%s is reported: %+v", name, report.Items)
			}
		}
	}
}

func itemOf(r SweepReport, path string) SweepItem {
	for _, item := range r.Items {
		if item.Path == path {
			return item
		}
	}
	return SweepItem{}
}

func TestSweepUnreadableIsUnknown(t *testing.T) {
	for n := 1; n <= 2; n++ {
		b := testBoard(t)
		e, err := testWrite(b, "x")
		require.NoError(t, err)
		age(t, b.dir)
		count := 0
		b.step = func(op, name string) error {
			if op == "readdir" {
				if count++; count == n {
					return syscall.EIO
				}
			}
			return nil
		}
		report, err := b.Sweep(t.Context())
		require.NoError(t, err)
		item := itemOf(report, filepath.Join(b.dir, "s"))
		require.Equal(t, SweepUnknown, item.Reason)
		require.ErrorIs(t, item.Err, syscall.EIO)
		require.FileExists(t, e.Path)
	}
	// Somebody else's folders, nested without end.
	b := testBoard(t)
	e, err := testWrite(b, "x")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(b.dir, "s", strings.Repeat("d/", 200)), 0o700))
	age(t, b.dir)
	report, err := b.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, SweepUnknown, itemOf(report, filepath.Join(b.dir, "s")).Reason)
	require.FileExists(t, e.Path)
}

// TestSweepDoesNotFollowARelativeLink swaps a task for a link to another folder of
// the board, which os.Root would follow, between any two steps.
func TestSweepDoesNotFollowARelativeLink(t *testing.T) {
	for n := 1; ; n++ {
		b := testBoard(t)
		_, err := testWrite(b, "x")
		require.NoError(t, err)
		require.NoError(t, os.CopyFS(filepath.Join(b.dir, "backup", "t"), os.DirFS(filepath.Join(b.dir, "s", "t"))))
		age(t, b.dir)
		count, swapped := 0, false
		b.step = func(op, name string) error {
			if count++; count == n {
				swapped = true
				_ = os.Rename(filepath.Join(b.dir, "s", "t"), filepath.Join(b.dir, "aside")) // unless it is swept already
				_ = os.Symlink("../backup/t", filepath.Join(b.dir, "s", "t"))
			}
			return nil
		}
		_, err = b.Sweep(t.Context())
		require.NoError(t, err)
		if !swapped {
			require.Greater(t, n, 4)
			return
		}
		require.FileExists(t, filepath.Join(b.dir, "backup", "t", "01-architect-report.md"), "swapped before step %d", n)
	}
}

func TestBoardTaskSwappedForARelativeLink(t *testing.T) {
	for n := 1; ; n++ {
		b := testBoard(t)
		_, err := testWrite(b, "x")
		require.NoError(t, err)
		other := filepath.Join(b.dir, "other")
		require.NoError(t, os.MkdirAll(other, 0o700))
		count, swapped := 0, ""
		b.step = func(op, name string) error {
			if count++; count == n {
				swapped = op
				require.NoError(t, os.Rename(filepath.Join(b.dir, "s", "t"), filepath.Join(b.dir, "aside")))
				require.NoError(t, os.Symlink("../other", filepath.Join(b.dir, "s", "t")))
			}
			return nil
		}
		e, err := testWrite(b, "y")
		if swapped == "" {
			require.NoError(t, err)
			return
		}
		require.Error(t, err, "an entry behind a link is none (swapped before %s): %+v", swapped, e)
		left, err := os.ReadDir(other)
		require.NoError(t, err)
		require.Empty(t, left, "swapped before %s", swapped)
	}
}

func TestBoardHardLinkedMarkIsNotTouched(t *testing.T) {
	b := testBoard(t)
	_, err := testWrite(b, "x")
	require.NoError(t, err)
	outside := filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.WriteFile(outside, []byte("mine"), 0o600))
	mark := b.abs(markOf("s"))
	require.NoError(t, os.Remove(mark))
	if err := os.Link(outside, mark); err != nil {
		t.Skip(err)
	}
	before, err := os.Stat(outside)
	require.NoError(t, err)
	_, err = testWrite(b, "y")
	require.ErrorIs(t, err, ErrDenied)
	age(t, filepath.Join(b.dir, "s"))
	_, err = b.Sweep(t.Context())
	require.NoError(t, err)
	after, err := os.Stat(outside)
	require.NoError(t, err)
	require.Equal(t, before.ModTime(), after.ModTime())
	content, err := os.ReadFile(outside)
	require.NoError(t, err)
	require.Equal(t, "mine", string(content))
}

func TestBoardReaderWithASmallerLimit(t *testing.T) {
	b := testBoard(t)
	e, err := testWrite(b, strings.Repeat("x", 5000))
	require.NoError(t, err)
	for _, max := range []int{1000, NoLimit, int(^uint(0) >> 1)} {
		other, err := OpenBoard(t.Context(), b.dir, &BoardOptions{MaxChars: max})
		require.NoError(t, err)
		x, err := other.Read(t.Context(), e.Path, Range{Bytes: 10})
		require.NoError(t, err, "MaxChars %d is for writing", max)
		require.EqualValues(t, 5000, x.Body)
		other.Close()
	}
}

// Fsync of file and folder before success, in this order, and of each folder that
// was made, also when one of its name was there before.
func TestBoardSyncsBeforeSuccess(t *testing.T) {
	b := testBoard(t)
	for range 3 { // a folder that is made again often gets the number of the old one
		var steps []string
		b.step = func(op, name string) error {
			if strings.HasPrefix(op, "sync") || op == "link" || op == "mkdir" {
				if op == "sync" {
					name = ""
				}
				steps = append(steps, strings.TrimSpace(op+" "+name))
			}
			return nil
		}
		_, err := testWrite(b, "x")
		require.NoError(t, err)
		all := strings.Join(steps, ", ")
		for _, order := range []string{"mkdir s, syncdir ., ", "mkdir s/t, syncdir s, link s/t/01-architect-report.md, syncdir s/t"} {
			require.Contains(t, all, order)
		}
		require.Regexp(t, `sync, .*link`, all)
		require.True(t, strings.HasSuffix(all, "syncdir s/t"), all)
		b.step = nil
		age(t, b.dir)
		_, err = b.Sweep(t.Context())
		require.NoError(t, err)
		require.NoDirExists(t, filepath.Join(b.dir, "s"))
		n := 0
		b.settled.Range(func(k, _ any) bool { n += strings.Count("s s/t", k.(string)); return true })
		b.turns.Range(func(any, any) bool { n++; return true })
		require.Zero(t, n, "what is gone is forgotten")
	}
}

func TestLeaseOfASessionThatCameBack(t *testing.T) {
	b := testBoard(t)
	lease, err := b.Lease(t.Context(), "s", time.Millisecond)
	require.NoError(t, err)
	time.Sleep(2 * time.Millisecond)
	age(t, b.dir)
	_, err = b.Sweep(t.Context())
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Join(b.dir, "s"))
	_, err = testWrite(b, "x")
	require.NoError(t, err)
	require.ErrorIs(t, lease.Renew(t.Context(), time.Hour), ErrNotFound, "it is another session of that name")

	b.step = func(op, name string) error {
		if op == "syncdir" {
			return errFault
		}
		return nil
	}
	_, err = b.Lease(t.Context(), "s", time.Hour)
	require.ErrorIs(t, err, errFault)
	b.step = nil
	age(t, b.dir)
	report, err := b.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, SweepRemove, itemOf(report, filepath.Join(b.dir, "s")).Action, "a lease that failed does not hold")
}

// TestLeaseAgainstASweep takes a lease between any two steps of a sweep: it is held
// by then, or the sweep comes first and the session is new.
func TestLeaseAgainstASweep(t *testing.T) {
	for n := 1; ; n++ {
		b := testBoard(t)
		_, err := testWrite(b, "x")
		require.NoError(t, err)
		age(t, b.dir)
		other, err := OpenBoard(t.Context(), b.dir, nil)
		require.NoError(t, err)
		defer other.Close()
		count := 0
		got := make(chan error, 1)
		b.step = func(op, name string) error {
			if count++; count == n {
				go func() { _, err := other.Lease(t.Context(), "s", time.Hour); got <- err }()
				time.Sleep(5 * time.Millisecond)
			}
			return nil
		}
		_, err = b.Sweep(t.Context())
		require.NoError(t, err)
		if count < n {
			require.Greater(t, n, 4)
			return
		}
		require.NoError(t, <-got, "before step %d", n)
		require.DirExists(t, filepath.Join(b.dir, "s"), "what is leased is there")
		_, err = other.Sweep(t.Context())
		require.NoError(t, err)
		require.DirExists(t, filepath.Join(b.dir, "s"))
	}
}

// Every error is an *Error and tells its kind.
func TestBoardErrorsAreTyped(t *testing.T) {
	b := testBoard(t)
	ctx := WithCaller(t.Context(), Caller{Role: "r"})
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "file"), nil, 0o600))
	require.NoError(t, os.Symlink(t.TempDir(), filepath.Join(b.dir, "link")))
	kinds := []error{ErrNotFound, ErrConflict, ErrLimit, ErrDenied, ErrInvalid, ErrCorrupt, ErrClosed, context.Canceled}
	for what, f := range map[string]func() error{
		"a file for a session":   func() error { _, err := b.Write(ctx, Draft{"file", "t", "t", "x"}); return err },
		"a link for a session":   func() error { _, err := b.Write(ctx, Draft{"link", "t", "t", "x"}); return err },
		"a lease of a file":      func() error { _, err := b.Lease(ctx, "file", time.Hour); return err },
		"a NUL in a path":        func() error { _, err := b.Read(ctx, "s\x00/t/01-a-b.md", Range{}); return err },
		"a path through a file":  func() error { _, err := b.Read(ctx, "file/t/01-a-b.md", Range{}); return err },
		"a path through a link":  func() error { _, err := b.Read(ctx, "link/t/01-a-b.md", Range{}); return err },
		"a bad filter":           func() error { return firstError(b, ctx, Filter{Session: ".."}) },
		"entries behind a link":  func() error { return firstError(b, ctx, Filter{Session: "link"}) },
		"entries behind a file":  func() error { return firstError(b, ctx, Filter{Session: "file"}) },
		"a reference to nothing": func() error { _, err := b.ReadRef(ctx, Ref{Path: "s/t/01-a-b.md"}, Range{}); return err },
		"a board on a file":      func() error { _, err := OpenBoard(ctx, filepath.Join(b.dir, "file"), nil); return err },
		"a workspace of nothing": func() error { _, err := BoardDir(filepath.Join(b.dir, "nothing")); return err },
		"a state of nothing":     func() error { _, err := StateDir(filepath.Join(b.dir, "nothing")); return err },
	} {
		err := f()
		_, typed := errors.AsType[*Error](err)
		require.True(t, typed, "%s: %v", what, err)
		known := false
		for _, kind := range kinds {
			known = known || errors.Is(err, kind)
		}
		require.True(t, known, "%s: %v", what, err)
		require.NotContains(t, err.Error(), "\n")
	}
}

func firstError(b *Board, ctx context.Context, f Filter) error {
	for _, err := range b.Entries(ctx, f) {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestBoardLostAnswerOfALink(t *testing.T) {
	b := testBoard(t)
	b.step = func(op, name string) error {
		if op == "link" { // the server made it, and the answer was lost
			temps, err := filepath.Glob(b.abs(controlDir + "/.tmp-*"))
			if err == nil {
				err = os.Link(temps[0], b.abs(name))
			}
			return errors.Join(err, fs.ErrExist)
		}
		return nil
	}
	e, err := testWrite(b, "x")
	b.step = nil
	require.NoError(t, err)
	require.Equal(t, 1, e.Round)
	n := 0
	for range b.Entries(t.Context(), Filter{}) {
		n++
	}
	require.Equal(t, 1, n)
}

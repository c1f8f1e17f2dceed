package team_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

// age sets the time of every file below dir back.
func age(tb testing.TB, dir string, by time.Duration) {
	tb.Helper()
	old := time.Now().Add(-by)
	for name, content := range files(tb, dir) {
		if content != "folder" {
			if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

// sweep runs plan and sweep, checks that they agree, and returns the items by path below the board.
func sweep(tb testing.TB, b *team.Board) map[string]team.SweepItem {
	tb.Helper()
	before := files(tb, b.Dir())
	plan, err := b.PlanSweep(tb.Context())
	require.NoError(tb, err)
	require.Equal(tb, before, files(tb, b.Dir()), "a plan changes nothing")
	report, err := b.Sweep(tb.Context())
	require.NoError(tb, err)
	require.Len(tb, report.Items, len(plan.Items))
	items := map[string]team.SweepItem{}
	for i, item := range report.Items {
		p := plan.Items[i]
		require.Equal(tb, []any{p.Path, p.Action, p.Reason, p.Files, p.Bytes}, []any{item.Path, item.Action, item.Reason, item.Files, item.Bytes})
		rel, err := filepath.Rel(b.Dir(), item.Path)
		require.NoError(tb, err)
		items[filepath.ToSlash(rel)] = item
	}
	return items
}

func in(session string) team.Draft {
	return team.Draft{Session: session, Task: "t", Topic: "report", Body: "body\n"}
}

func TestSweepRemovesIdleSessions(t *testing.T) {
	b := newBoard(t, nil)
	old := write(t, b, in("old"))
	write(t, b, in("old"))
	age(t, b.Dir(), 5*24*time.Hour+time.Minute)
	fresh := write(t, b, in("fresh"))
	age(t, filepath.Join(b.Dir(), "fresh"), 5*24*time.Hour-time.Minute)

	items := sweep(t, b)
	require.Len(t, items, 2, "every session is reported")
	require.Equal(t, team.SweepRemove, items["old"].Action)
	require.Equal(t, team.SweepIdle, items["old"].Reason)
	require.Equal(t, 2, items["old"].Files)
	require.EqualValues(t, 2*old.Size, items["old"].Bytes)
	require.Equal(t, team.SweepFresh, items["fresh"].Reason)
	require.NoDirExists(t, filepath.Join(b.Dir(), "old"))
	require.FileExists(t, fresh.Path)
	write(t, b, in("old")) // a name may come back
}

func TestSweepInPlaceEditsKeepATreeAlive(t *testing.T) {
	b := newBoard(t, nil)
	first := write(t, b, in("s"))
	d := in("s")
	d.Task = "deep"
	e := write(t, b, d)
	age(t, b.Dir(), 30*24*time.Hour)
	f, err := os.OpenFile(e.Path, os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.WriteString("more\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	for _, dir := range []string{b.Dir(), filepath.Dir(e.Path), filepath.Dir(filepath.Dir(e.Path))} {
		old := time.Now().Add(-30 * 24 * time.Hour)
		require.NoError(t, os.Chtimes(dir, old, old)) // the age of folders does not count
	}
	require.Equal(t, team.SweepFresh, sweep(t, b)["s"].Reason)
	require.FileExists(t, first.Path, "and with it the whole session")
}

func TestSweepKeepsALeasedSession(t *testing.T) {
	b := newBoard(t, nil)
	e := write(t, b, in("s"))
	lease, err := b.Lease(t.Context(), "s", time.Hour)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Hour), lease.Until(), time.Minute)
	age(t, b.Dir(), 30*24*time.Hour)
	require.Equal(t, team.SweepLeased, sweep(t, b)["s"].Reason)
	require.NoError(t, lease.Renew(t.Context(), 2*time.Hour))
	require.WithinDuration(t, time.Now().Add(2*time.Hour), lease.Until(), time.Minute)
	require.Equal(t, team.SweepLeased, sweep(t, b)["s"].Reason)
	second, err := openBoard(t, b.Dir(), nil).Lease(t.Context(), "s", time.Hour)
	require.NoError(t, err)
	require.NoError(t, lease.Release())
	require.NoError(t, lease.Release(), "twice is no error")
	require.Equal(t, team.SweepLeased, sweep(t, b)["s"].Reason, "another holds one too")

	require.NoError(t, second.Renew(t.Context(), time.Millisecond))
	time.Sleep(2 * time.Millisecond) // a lease of a process that died ends by itself
	items := sweep(t, b)
	require.Equal(t, team.SweepRemove, items["s"].Action)
	require.NoFileExists(t, e.Path)
	require.ErrorIs(t, second.Renew(t.Context(), time.Hour), team.ErrNotFound)

	_, err = b.Lease(t.Context(), "s", 8*24*time.Hour)
	require.ErrorIs(t, err, team.ErrLimit)
	_, err = b.Lease(t.Context(), "s", 0)
	require.ErrorIs(t, err, team.ErrInvalid)
	_, err = b.Lease(t.Context(), "..", time.Hour)
	require.ErrorIs(t, err, team.ErrInvalid)
}

func TestSweepKeepsWhatTheBoardDidNotMake(t *testing.T) {
	b := newBoard(t, nil)
	e := write(t, b, in("s"))
	foreign := []string{
		"memories/project.md", "20200101-000000/t/01-tester-report.md", "notes.txt", // beside sessions
		"s/README.md", "s/t/01-tester-by-hand.md", "s/t/sub/deep.md", "s/t/notes.txt", // inside one
	}
	for _, name := range foreign {
		path := filepath.Join(b.Dir(), filepath.FromSlash(name))
		mkdir(t, filepath.Dir(path))
		put(t, path, "mine\n")
	}
	symlink(t, t.TempDir(), filepath.Join(b.Dir(), "link"))
	// A copy of an entry in another place is not an entry.
	content, err := os.ReadFile(e.Path)
	require.NoError(t, err)
	put(t, filepath.Join(b.Dir(), "s", "t", "02-tester-copy.md"), string(content))
	age(t, b.Dir(), 400*24*time.Hour)

	items := sweep(t, b)
	for _, name := range []string{"memories", "20200101-000000", "notes.txt", "link", "s/README.md", "s/t/01-tester-by-hand.md",
		"s/t/sub", "s/t/sub/deep.md", "s/t/notes.txt", "s/t/02-tester-copy.md"} {
		require.Equal(t, team.SweepForeign, items[name].Reason, "%s is reported", name)
		require.Equal(t, team.SweepKeep, items[name].Action, name)
	}
	for _, name := range foreign {
		require.FileExists(t, filepath.Join(b.Dir(), filepath.FromSlash(name)))
	}
	require.Equal(t, 1, items["s"].Files)
	require.NoFileExists(t, e.Path)
	require.Equal(t, team.SweepForeign, sweep(t, b)["s"].Reason, "the second time there is nothing of ours in it")
	write(t, b, in("s"))
}

func TestSweepKeepsUnknownAge(t *testing.T) {
	b := newBoard(t, nil)
	e := write(t, b, in("epoch"))
	require.NoError(t, os.Chtimes(e.Path, time.Unix(0, 0), time.Unix(0, 0)))
	e = write(t, b, in("future"))
	ahead := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(e.Path, ahead, ahead))
	items := sweep(t, b)
	require.Equal(t, team.SweepUnknown, items["epoch"].Reason)
	require.Equal(t, team.SweepFresh, items["future"].Reason)

	if os.Geteuid() != 0 && runtime.GOOS != "windows" {
		e = write(t, b, in("closed"))
		age(t, filepath.Join(b.Dir(), "closed"), 30*24*time.Hour)
		require.NoError(t, os.Chmod(filepath.Dir(e.Path), 0))
		defer os.Chmod(filepath.Dir(e.Path), 0o700)
		items = sweep(t, b)
		require.Equal(t, team.SweepUnknown, items["closed"].Reason)
		require.Error(t, items["closed"].Err)
	}
}

func TestSweepForever(t *testing.T) {
	b := newBoard(t, &team.BoardOptions{TTL: team.Forever})
	write(t, b, in("s"))
	age(t, b.Dir(), 4000*24*time.Hour)
	require.Equal(t, team.SweepFresh, sweep(t, b)["s"].Reason)
}

func TestSweepsAtOnceWithWriters(t *testing.T) {
	b := newBoard(t, &team.BoardOptions{TTL: 50 * time.Millisecond})
	done := make(chan error)
	const writers = 4
	for w := range writers {
		go func() {
			var err error
			for i := 0; i < 40 && err == nil; i++ {
				d := in(fmt.Sprint("s", i%3))
				d.Topic = fmt.Sprint("of ", w)
				_, err = b.Write(as(t.Context(), "r"), d)
				if errors.Is(err, team.ErrConflict) {
					err = nil // on a slow disk it was older than the TTL before it was there
				}
			}
			done <- err
		}()
	}
	for range 2 {
		go func() {
			var err error
			for i := 0; i < 60 && err == nil; i++ {
				_, err = b.Sweep(t.Context())
			}
			done <- err
		}()
	}
	for range writers + 2 {
		require.NoError(t, <-done)
	}
	time.Sleep(60 * time.Millisecond)
	sweep(t, b)
	require.Equal(t, map[string]string{".": "folder", ".tm": "folder"}, files(t, b.Dir()), "in the end everything is gone, marks and temporary files too")
}

package team_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

// tamper is a trail of some files, and a way to spoil it.
type tamper struct {
	name string
	do   func(t *testing.T, dir string)
	kind team.TrailFaultKind // of the first break
	at   string              // "file:line" of the first break, files counted from 1; "" does not matter
	max  int                 // breaks at most
}

func tamperName(dir string, n int) string {
	return filepath.Join(dir, fmt.Sprintf("trail-%08d.jsonl", n))
}

// editLines changes the lines of the n-th file.
func editLines(n int, edit func(lines [][]byte) [][]byte) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		b, err := os.ReadFile(tamperName(dir, n))
		require.NoError(t, err)
		lines := bytes.SplitAfter(b, []byte("\n"))
		put(t, tamperName(dir, n), string(bytes.Join(edit(lines[:len(lines)-1]), nil)))
	}
}

var tampers = []tamper{
	{"a changed byte", editLines(2, func(l [][]byte) [][]byte {
		l[3] = bytes.Replace(l[3], []byte(`"size":4096`), []byte(`"size":4097`), 1)
		return l
	}), team.TrailChanged, "2:4", 1},
	{"a changed hash", editLines(2, func(l [][]byte) [][]byte {
		i := len(l[3]) - 5
		l[3][i] = "01"[l[3][i]&1^1]
		return l
	}), team.TrailChanged, "2:4", 1},
	{"a changed last line", editLines(5, func(l [][]byte) [][]byte {
		l[len(l)-1] = bytes.Replace(l[len(l)-1], []byte(`"size":4096`), []byte(`"size":4097`), 1)
		return l
	}), team.TrailChanged, "", 1},
	{"a removed line", editLines(2, func(l [][]byte) [][]byte { return append(l[:3:3], l[4:]...) }), team.TrailRemoved, "2:4", 1},
	{"three removed lines", editLines(2, func(l [][]byte) [][]byte { return append(l[:3:3], l[6:]...) }), team.TrailRemoved, "2:4", 1},
	{"a removed first line", editLines(1, func(l [][]byte) [][]byte { return l[1:] }), team.TrailRemoved, "1:1", 1},
	{"a removed first line of a file", editLines(3, func(l [][]byte) [][]byte { return l[1:] }), team.TrailRemoved, "3:1", 1},
	{"a removed last line", editLines(5, func(l [][]byte) [][]byte { return l[:len(l)-1] }), team.TrailRemoved, "", 1},
	{"a removed last line of a file", editLines(2, func(l [][]byte) [][]byte { return l[:len(l)-1] }), team.TrailRemoved, "3:1", 1},
	{"an inserted line", editLines(2, func(l [][]byte) [][]byte {
		return append(append(l[:3:3], []byte("{\"op\":\"by hand\"}\n")), l[3:]...)
	}), team.TrailInserted, "2:4", 1},
	{"an inserted line that was one", editLines(2, func(l [][]byte) [][]byte {
		return append(append(l[:3:3], l[1]), l[3:]...)
	}), team.TrailInserted, "2:4", 1},
	{"an inserted beginning of a line", editLines(2, func(l [][]byte) [][]byte {
		return append(append(l[:3:3], append(bytes.Clone(l[3][:40]), '\n')), l[3:]...)
	}), team.TrailInserted, "2:4", 1},
	{"a line behind the last", editLines(5, func(l [][]byte) [][]byte { return append(l, []byte("hello\n")) }), team.TrailChanged, "", 1},
	{"a doubled line", editLines(2, func(l [][]byte) [][]byte { return append(l[:4:4], l[3:]...) }), team.TrailInserted, "2:5", 1},
	{"swapped lines", editLines(2, func(l [][]byte) [][]byte { l[3], l[4] = l[4], l[3]; return l }), team.TrailRemoved, "2:4", 2},
	{"a truncated file", func(t *testing.T, dir string) {
		require.NoError(t, os.Truncate(tamperName(dir, 2), 1000))
	}, team.TrailChanged, "", 2},
	{"a truncated last file", func(t *testing.T, dir string) {
		fi, err := os.Stat(tamperName(dir, 5))
		require.NoError(t, err)
		require.NoError(t, os.Truncate(tamperName(dir, 5), fi.Size()-30))
	}, team.TrailChanged, "", 2},
	{"an emptied file", func(t *testing.T, dir string) { require.NoError(t, os.Truncate(tamperName(dir, 3), 0)) }, team.TrailRemoved, "4:1", 1},
	{"a removed file", func(t *testing.T, dir string) { require.NoError(t, os.Remove(tamperName(dir, 3))) }, team.TrailRemoved, "3", 2},
	{"a removed first file", func(t *testing.T, dir string) { require.NoError(t, os.Remove(tamperName(dir, 1))) }, team.TrailRemoved, "1", 1},
	{"a removed last file", func(t *testing.T, dir string) { require.NoError(t, os.Remove(tamperName(dir, 5))) }, team.TrailRemoved, "5", 1},
	{"swapped files", func(t *testing.T, dir string) {
		for _, names := range [][2]int{{2, 9}, {3, 2}, {9, 3}} {
			require.NoError(t, os.Rename(tamperName(dir, names[0]), tamperName(dir, names[1])))
		}
	}, team.TrailRemoved, "2:1", 100},
	{"a renamed file", func(t *testing.T, dir string) {
		require.NoError(t, os.Rename(tamperName(dir, 5), tamperName(dir, 6)))
	}, team.TrailRemoved, "5", 2},
	{"a file that is garbage", func(t *testing.T, dir string) {
		put(t, tamperName(dir, 3), strings.Repeat("\x00\xff\n", 5000))
	}, team.TrailChanged, "3:1", 2},
	{"a file that is one long line", func(t *testing.T, dir string) {
		put(t, tamperName(dir, 3), strings.Repeat("{", 1<<20))
	}, team.TrailChanged, "3:1", 2},
	{"a removed head", func(t *testing.T, dir string) {
		require.NoError(t, os.Remove(filepath.Join(dir, "trail.head")))
	}, team.TrailHeadLost, "", 1},
	{"a changed head", func(t *testing.T, dir string) {
		b, err := os.ReadFile(filepath.Join(dir, "trail.head"))
		require.NoError(t, err)
		put(t, filepath.Join(dir, "trail.head"), strings.Replace(string(b), "00005", "00004", 1))
	}, team.TrailHeadLost, "", 1},
}

// TestTrailTampering: each kind of tampering is found, at once and also after the
// next writer has gone on, and named by file and line.
func TestTrailTampering(t *testing.T) {
	pattern := t.TempDir()
	trail := openTrail(t, pattern, &team.TrailOptions{FileSize: 2900})
	record(trail, "a", 40)
	require.NoError(t, trail.Close())
	require.Len(t, trailFiles(t, pattern), 5)
	verifyTrail(t, pattern)
	for _, tt := range tampers {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "trail")
			require.NoError(t, os.CopyFS(dir, os.DirFS(pattern)))
			tt.do(t, dir)
			for _, when := range []string{"at once", "after the next writer"} {
				report, err := team.VerifyTrail(t.Context(), dir)
				require.NoError(t, err)
				require.NotEmpty(t, report.Breaks, when)
				require.ErrorIs(t, report.Err(), team.ErrCorrupt)
				require.LessOrEqual(t, report.BreaksCount, tt.max+min(1, len(when)-len("at once")), "%s: %+v", when, report.Breaks)
				first := report.Breaks[0]
				if when == "at once" {
					require.Equal(t, tt.kind, first.Kind, "%+v", report.Breaks)
					at := first.File
					if first.Line > 0 {
						at = fmt.Sprintf("%s:%d", at, first.Line)
					}
					if tt.at != "" {
						file, line, _ := strings.Cut(tt.at, ":")
						require.Equal(t, strings.TrimSuffix(filepath.Base(tamperName(dir, int(file[0]-'0')))+":"+line, ":"), at)
					}
					next := openTrail(t, dir, &team.TrailOptions{FileSize: 2900})
					record(next, "b", 20)
					require.Zero(t, next.Stats().Lost, "%+v", next.Stats())
					require.NoError(t, next.Close())
				}
			}
			seen := 0
			for _, l := range trailLines(t, dir) {
				if strings.HasPrefix(l.Event.ID, "b-") {
					seen++
				}
			}
			require.Equal(t, 20, seen, "whatever was done to the trail, it goes on")
		})
	}
}

// TestTrailBeginsAnew documents what the chain cannot find alone, and how the last
// line, kept elsewhere, does.
func TestTrailBeginsAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "trail")
	trail := openTrail(t, dir, nil)
	record(trail, "a", 3)
	kept := verifyTrail(t, dir).Last
	require.NoError(t, trail.Close())
	require.NoError(t, os.RemoveAll(dir))
	record(openTrail(t, dir, nil), "b", 9)
	verifyTrail(t, dir)
	for _, l := range trailLines(t, dir) {
		if l.Seq == kept.Seq {
			require.NotEqual(t, kept.Hash, l.Hash)
		}
	}
}

// TestTrailVerifyWhileWriting: a trail that is written to, rotated and swept holds
// at any moment.
func TestTrailVerifyWhileWriting(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for g := range 4 {
		trail := openTrail(t, dir, &team.TrailOptions{FileSize: 5000, Files: 4, Patience: 30 * time.Second})
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				record(trail, fmt.Sprint(g, "x", i), 5)
			}
			if s := trail.Stats(); s.Lost+s.Faults > 0 {
				t.Errorf("%+v", s)
			}
		})
	}
	for n, dropped := 0, 0; n < 30 || dropped == 0; n++ {
		report, err := team.VerifyTrail(t.Context(), dir)
		if !errors.Is(err, team.ErrConflict) { // swept again and again under a slow reader
			require.NoError(t, err)
			require.NoError(t, report.Err(), "%+v", report.Breaks)
			dropped = report.Dropped
		}
	}
	cancel()
	wg.Wait()
	report := verifyTrail(t, dir)
	require.Equal(t, 4, report.Files)
	require.Positive(t, report.Dropped)
}

func TestTrailRetention(t *testing.T) {
	t.Run("by count", func(t *testing.T) {
		dir := t.TempDir()
		trail := openTrail(t, dir, &team.TrailOptions{FileSize: 2000, Files: 3})
		record(trail, "a", 60)
		report := verifyTrail(t, dir)
		require.Equal(t, 3, report.Files)
		require.Positive(t, report.Dropped)
		require.EqualValues(t, report.Dropped, trail.Stats().Dropped)
		require.Equal(t, fmt.Sprintf("trail-%08d.jsonl", report.Dropped+1), report.First.File)
		require.Greater(t, report.First.Seq, uint64(1))

		// Somebody else keeps less, and says so.
		less := openTrail(t, dir, &team.TrailOptions{Files: 1})
		swept, err := less.Sweep(t.Context())
		require.NoError(t, err)
		require.Len(t, swept.Files, 2)
		require.Equal(t, report.First.File, swept.Files[0])
		require.Positive(t, swept.Bytes)
		again := verifyTrail(t, dir)
		require.Equal(t, 1, again.Files)
		require.Equal(t, report.Dropped+2, again.Dropped)
		require.Equal(t, "trail.swept", again.Last.Event.Op)
		swept, err = less.Sweep(t.Context())
		require.NoError(t, err)
		require.Empty(t, swept.Files)
	})
	t.Run("by age", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			trail := openTrail(t, dir, &team.TrailOptions{FileSize: 2000, MaxAge: time.Hour})
			record(trail, "a", 15)
			time.Sleep(30 * time.Minute)
			record(trail, "b", 15)
			files := verifyTrail(t, dir).Files
			swept, err := trail.Sweep(t.Context())
			require.NoError(t, err)
			require.Empty(t, swept.Files)
			time.Sleep(31 * time.Minute)
			swept, err = trail.Sweep(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, swept.Files)
			report := verifyTrail(t, dir)
			require.Equal(t, files, report.Files+len(swept.Files))
			for _, l := range trailLines(t, dir) {
				require.NotEqual(t, "a-0", l.Event.ID)
			}
			require.EqualValues(t, len(swept.Files), report.Dropped)
			time.Sleep(2 * time.Hour)
			_, err = trail.Sweep(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, verifyTrail(t, dir).Files, "the file being written is kept")
		})
	})
	t.Run("what is in the way", func(t *testing.T) {
		dir := t.TempDir()
		trail := openTrail(t, dir, &team.TrailOptions{FileSize: 2000, Files: team.NoLimit})
		record(trail, "a", 30)
		require.NoError(t, trail.Close())
		first := tamperName(dir, 1)
		require.NoError(t, os.Remove(first))
		require.NoError(t, os.Mkdir(first, 0o700))
		less := openTrail(t, dir, &team.TrailOptions{FileSize: 2000, Files: 2})
		_, err := less.Sweep(t.Context())
		require.ErrorIs(t, err, team.ErrDenied)
		require.EqualValues(t, 1, less.Stats().Faults)
		require.DirExists(t, first)
		require.FileExists(t, tamperName(dir, 2), "what is left has no hole")
	})
}

func FuzzTrail(f *testing.F) {
	dir := f.TempDir()
	trail, err := team.OpenTrail(f.Context(), dir, &team.TrailOptions{FileSize: 1500})
	require.NoError(f, err)
	record(trail, "a", 5)
	require.NoError(f, trail.Close())
	one, err := os.ReadFile(tamperName(dir, 1))
	require.NoError(f, err)
	two, err := os.ReadFile(tamperName(dir, 2))
	require.NoError(f, err)
	head, err := os.ReadFile(filepath.Join(dir, "trail.head"))
	require.NoError(f, err)
	key, err := os.ReadFile(filepath.Join(dir, "trail.key"))
	require.NoError(f, err)
	f.Add(one, two, head)
	f.Add(one[:len(one)-40], two, head)
	f.Add(one, two[:70], head)
	f.Add([]byte("\n\n{}\n"), bytes.Repeat([]byte("x"), 20000), []byte{})
	f.Fuzz(func(t *testing.T, one, two, head []byte) {
		dir := t.TempDir()
		put(t, tamperName(dir, 1), string(one))
		put(t, tamperName(dir, 2), string(two))
		put(t, filepath.Join(dir, "trail.head"), string(head))
		put(t, filepath.Join(dir, "trail.key"), string(key))
		report, err := team.VerifyTrail(t.Context(), dir)
		require.NoError(t, err)
		good := 0
		for _, l := range trailLines(t, dir) {
			if l.Damage == "" {
				good++
			}
		}
		require.GreaterOrEqual(t, int64(good), report.Lines)
		broken := report.Err() != nil

		trail, err := team.OpenTrail(t.Context(), dir, nil)
		require.NoError(t, err)
		defer trail.Close()
		record(trail, "fuzz", 2)
		require.Zero(t, trail.Stats().Lost, "%+v", trail.Stats())
		report, err = team.VerifyTrail(t.Context(), dir)
		require.NoError(t, err)
		lines := trailLines(t, dir)
		require.Equal(t, "fuzz-1", lines[len(lines)-1].Event.ID)
		require.Equal(t, broken, report.Err() != nil, "a writer neither hides a break nor makes one: %+v", report)
	})
}

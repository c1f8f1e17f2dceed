package team_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

func openBoard(tb testing.TB, dir string, opts *team.BoardOptions) *team.Board {
	tb.Helper()
	b, err := team.OpenBoard(tb.Context(), dir, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { b.Close() })
	return b
}

// newBoard opens a board in a folder of its own.
func newBoard(tb testing.TB, opts *team.BoardOptions) *team.Board {
	tb.Helper()
	return openBoard(tb, filepath.Join(tb.TempDir(), "opencode-team"), opts)
}

func draft(body string) team.Draft {
	return team.Draft{Session: "20261130-072811-k3f9qa", Task: "auth", Topic: "api-design", Body: body}
}

func write(tb testing.TB, b *team.Board, d team.Draft) team.Entry {
	tb.Helper()
	e, err := b.Write(as(tb.Context(), "architect"), d)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

func entries(tb testing.TB, b *team.Board, f team.Filter) []team.Entry {
	tb.Helper()
	var all []team.Entry
	for e, err := range b.Entries(tb.Context(), f) {
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// files returns every path below dir with its content, links by their target.
func files(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if errors.Is(err, fs.ErrPermission) {
			all[rel] = "closed"
			return fs.SkipDir
		}
		if err != nil {
			return err
		}
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			all[rel], err = os.Readlink(path)
		case d.IsDir():
			all[rel] = "folder"
		case !d.Type().IsRegular():
			all[rel] = "special"
		case regexp.MustCompile(`^\.tm/[^.]+$`).MatchString(filepath.ToSlash(rel)):
			all[rel] = "mark" // its content is nobody's
		default:
			var b []byte
			b, err = os.ReadFile(path)
			all[rel] = string(b)
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

func TestBoardWriteReturnsWhatIsOnDisk(t *testing.T) {
	b := newBoard(t, nil)
	const body = "# API\n\nGET /login\n"
	e := write(t, b, draft(body))

	content, err := os.ReadFile(e.Path)
	require.NoError(t, err)
	line, rest, _ := strings.Cut(string(content), "\n")
	require.Regexp(t, `^<!-- tm_board_write · \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z · role=architect · `+
		`session=20261130-072811-k3f9qa · sha256=[0-9a-f]{64} -->$`, line)
	require.Contains(t, line, e.SHA256)
	require.Equal(t, body, rest)
	require.Equal(t, filepath.Join(b.Dir(), "20261130-072811-k3f9qa", "auth", "01-architect-api-design.md"), e.Path)
	require.EqualValues(t, len(content), e.Size, "size counts the whole file")
	require.Equal(t, team.Role("architect"), e.Role)
	require.Equal(t, []int{1, 1}, []int{e.Ordinal, e.Round})
	require.False(t, e.InPlace)
	require.Equal(t, []team.Entry{e}, entries(t, b, team.Filter{}), "Entries reads back what was written")

	fi, err := os.Stat(b.Dir())
	require.NoError(t, err)
	if runtime.GOOS != "windows" {
		require.Equal(t, fs.FileMode(0o700), fi.Mode().Perm())
	}
}

func TestBoardRoleComesFromTheContext(t *testing.T) {
	b := newBoard(t, nil)
	_, err := b.Write(t.Context(), draft("x"))
	require.ErrorIs(t, err, team.ErrInvalid)
	require.Len(t, files(t, b.Dir()), 1, "nothing was made")
	e, err := b.Write(as(t.Context(), "code-reviewer"), draft("role=lead"))
	require.NoError(t, err)
	require.Equal(t, team.Role("code-reviewer"), e.Role)
	require.Equal(t, "01-code_reviewer-api-design.md", filepath.Base(e.Path))
}

func TestBoardRoundsKeepTheOrdinalOfTheirFamily(t *testing.T) {
	b := newBoard(t, nil)
	other := draft("other")
	other.Topic = "schema"
	names := []string{
		filepath.Base(write(t, b, draft("1")).Path),
		filepath.Base(write(t, b, other).Path),
		filepath.Base(write(t, b, draft("2")).Path),
		filepath.Base(write(t, b, draft("3")).Path),
	}
	// A file that a person put there counts for the next ordinal.
	dir := filepath.Join(b.Dir(), draft("").Session, "auth")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "7-notes.txt"), nil, 0o600))
	third := draft("third")
	third.Topic = "tests"
	names = append(names, filepath.Base(write(t, b, third).Path))
	require.Equal(t, []string{
		"01-architect-api-design.md", "02-architect-schema.md", "01-architect-api-design-r2.md",
		"01-architect-api-design-r3.md", "08-architect-tests.md",
	}, names)
}

func TestBoardWriters8ProcessesOf50(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "board")
	const processes, each = 8, 50
	var all []team.Entry
	var mu sync.Mutex
	var wg sync.WaitGroup
	for p := range processes {
		wg.Go(func() {
			out, err := child(t, "board-writers", dir, "s", fmt.Sprint(each), fmt.Sprint(p)).Output()
			var got []team.Entry
			if err == nil {
				err = json.Unmarshal(out, &got)
			}
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			all = append(all, got...)
			mu.Unlock()
		})
	}
	wg.Wait()
	b := openBoard(t, dir, &team.BoardOptions{MaxFiles: team.NoLimit})
	rounds, bodies := map[int]bool{}, map[string]bool{}
	for _, e := range all {
		require.Equal(t, 1, e.Ordinal)
		rounds[e.Round] = true
		x, err := b.Read(t.Context(), e.Path, team.Range{})
		require.NoError(t, err)
		bodies[x.Text] = true
	}
	require.Len(t, rounds, processes*each, "every round is different")
	require.Len(t, bodies, processes*each, "every body is there")
	require.Len(t, entries(t, b, team.Filter{}), processes*each)
	for name := range files(t, dir) {
		require.NotContains(t, name, ".tmp-")
	}
}

func TestBoardOrdinalsOfFamiliesAreUnique(t *testing.T) {
	b := newBoard(t, nil)
	got := make([]team.Entry, 60)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			d := draft("x")
			d.Topic = fmt.Sprint("topic-", i)
			e, err := b.Write(as(t.Context(), "architect"), d)
			if err != nil {
				t.Error(err)
			}
			got[i] = e
		})
	}
	wg.Wait()
	ordinals := map[int]bool{}
	for _, e := range got {
		ordinals[e.Ordinal] = true
	}
	require.Len(t, ordinals, len(got))
}

func TestBoardKilledWritersLeaveNothingTorn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "board")
	b := openBoard(t, dir, &team.BoardOptions{MaxFiles: team.NoLimit})
	told := map[string]string{}
	for round := range 12 {
		cmd := child(t, "board-loop", dir, "s")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		stop := 1 + rand.IntN(4)
		for n := 0; lines.Scan(); n++ {
			digest, path, _ := strings.Cut(lines.Text(), " ")
			told[path] = digest
			if n == stop {
				time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, func() { cmd.Process.Kill() })
			}
		}
		_ = cmd.Wait()
		require.Greater(t, len(told), round)
	}
	for path, digest := range told {
		x, err := b.Read(t.Context(), path, team.Range{Bytes: 10})
		require.NoError(t, err, "an entry that was acknowledged is whole")
		require.Equal(t, digest, x.Entry.SHA256)
	}
	for e, err := range b.Entries(t.Context(), team.Filter{}) {
		require.NoError(t, err)
		require.False(t, e.Changed, "no entry is torn, told or not")
	}
	_, err := b.Sweep(t.Context())
	require.NoError(t, err)
	for name := range files(t, dir) {
		require.NotContains(t, name, ".tmp-", "no temporary file stays after a sweep")
	}
}

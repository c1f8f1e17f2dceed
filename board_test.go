package team_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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

func TestBoardNames(t *testing.T) {
	long := strings.Repeat("架构", 50) // 300 bytes
	odd := []string{
		"a/b", "a:b", "a-b", "A-B", `a\b`, "a b", "é", "e\u0301", long, long + "设", strings.Repeat("a", 77) + "🚀🚀🚀", strings.Repeat("a", 79) + "🚀",
		"CON", "con", "nul", "com1", "notes-r7", "notes", "r7", ".env", "env", "...", "🚀", "x~y", "ſ", "s", "ß", "ss", " a", "a", "a.",
		"-->", "a=b · c=d", "架构设计", "설계", strings.Repeat("y", 1024),
	}
	b := newBoard(t, &team.BoardOptions{MaxTasks: team.NoLimit, MaxFiles: team.NoLimit})
	seen := map[string]string{}
	for _, name := range odd {
		for what, d := range map[string]team.Draft{
			"topic":   {Session: "s", Task: "t", Topic: name, Body: name},
			"task":    {Session: "s", Task: name, Topic: "t", Body: name},
			"session": {Session: name, Task: "t", Topic: "t", Body: name},
			"role":    {Session: "roles", Task: "t", Topic: "t", Body: name},
		} {
			role := team.Role("r")
			if what == "role" {
				role = team.Role(name)
			}
			e, err := b.Write(as(t.Context(), role), d)
			require.NoError(t, err, "%s %q", what, name)
			require.Equal(t, 1, e.Round, "%s %q shares the file of another name", what, name)
			rel, err := filepath.Rel(b.Dir(), e.Path)
			require.NoError(t, err)
			for _, part := range strings.Split(rel, string(filepath.Separator)) {
				require.LessOrEqual(t, len(part), 143, part)
				require.NotRegexp(t, `^\.|[. ]$|[<>:"|?*\\]`, part)
			}
			require.NotContains(t, seen, strings.ToLower(rel), "%s %q", what, name)
			seen[strings.ToLower(rel)] = name

			got := entries(t, b, team.Filter{Session: d.Session, Task: d.Task, Topic: d.Topic, Role: role})
			require.Equal(t, []team.Entry{e}, got, "Entries reads back what was written")
			x, err := b.Read(t.Context(), e.Path, team.Range{})
			require.NoError(t, err)
			require.Equal(t, name, x.Text)
		}
	}
	before := files(t, b.Dir())
	for name, why := range map[string]string{
		"": "is empty", " ": "is empty", "..": "folder reference", ".": "folder reference", "a\x00b": "control character at byte 1",
		"a\nb": "control character", "é\xff": "not UTF-8 at byte 2", strings.Repeat("x", 1025): "longer than 1024 bytes",
	} {
		for what, d := range map[string]team.Draft{
			"topic": {Session: "s", Task: "t", Topic: name, Body: "x"}, "task": {Session: "s", Task: name, Topic: "t", Body: "x"},
			"session": {Session: name, Task: "t", Topic: "t", Body: "x"},
		} {
			_, err := b.Write(as(t.Context(), "r"), d)
			require.ErrorIs(t, err, team.ErrInvalid, "%s %q", what, name)
			require.ErrorContains(t, err, what+" ")
			require.ErrorContains(t, err, why)
		}
	}
	require.Equal(t, before, files(t, b.Dir()), "a refusal changes nothing")
}

func TestBoardBodies(t *testing.T) {
	b := newBoard(t, nil)
	before := files(t, b.Dir())
	t.Run("a copied header stays a body", func(t *testing.T) {
		first := write(t, b, draft("original\n"))
		content, err := os.ReadFile(first.Path)
		require.NoError(t, err)
		e := write(t, b, draft(string(content)))
		x, err := b.Read(t.Context(), e.Path, team.Range{})
		require.NoError(t, err)
		require.Equal(t, string(content), x.Text)
		require.NotEqual(t, first.SHA256, e.SHA256)
		before = files(t, b.Dir())
	})
	t.Run("invalid UTF-8 is refused, and where", func(t *testing.T) {
		_, err := b.Write(as(t.Context(), "r"), draft("abc\xffdef"))
		bad, ok := errors.AsType[*team.InvalidError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, 3, bad.Offset)
	})
	t.Run("empty is refused", func(t *testing.T) {
		_, err := b.Write(as(t.Context(), "r"), draft(""))
		require.ErrorIs(t, err, team.ErrInvalid)
	})
	t.Run("200 001 characters are refused", func(t *testing.T) {
		_, err := b.Write(as(t.Context(), "r"), draft(strings.Repeat("界", 200_001)))
		require.ErrorIs(t, err, team.ErrTooLarge)
		require.ErrorIs(t, err, team.ErrLimit)
		limit, _ := errors.AsType[*team.LimitError](err)
		require.Equal(t, []int64{200_001, 200_000}, []int64{limit.Got, limit.Max})
	})
	require.Equal(t, before, files(t, b.Dir()), "a refusal changes nothing")
	t.Run("200 000 characters are taken", func(t *testing.T) {
		body := strings.Repeat("界", 200_000)
		x, err := b.Read(t.Context(), write(t, b, draft(body)).Path, team.Range{})
		require.NoError(t, err)
		require.Equal(t, body, x.Text)
	})
}

func TestBoardQuotas(t *testing.T) {
	b := newBoard(t, nil)
	d := draft("x")
	for i := range 40 {
		d.Task = fmt.Sprint("task ", i)
		for range 4 {
			write(t, b, d)
		}
	}
	d.Task = "task 40"
	before := files(t, b.Dir())
	_, err := b.Write(as(t.Context(), "r"), d)
	limit, ok := errors.AsType[*team.LimitError](err)
	require.True(t, ok, "the 41st task: %v", err)
	require.Equal(t, []int64{41, 40}, []int64{limit.Got, limit.Max})
	require.ErrorContains(t, err, "sweep")
	require.Equal(t, before, files(t, b.Dir()), "a refusal changes nothing")

	d.Task = "task 39" // a task that is there is no new one
	for range 40 {
		write(t, b, d)
	}
	before = files(t, b.Dir())
	_, err = b.Write(as(t.Context(), "r"), d)
	limit, ok = errors.AsType[*team.LimitError](err)
	require.True(t, ok, "the 201st file: %v", err)
	require.Equal(t, []int64{201, 200}, []int64{limit.Got, limit.Max})
	require.Equal(t, before, files(t, b.Dir()), "a refusal changes nothing")

	d.Session = "another"
	write(t, b, d)
}

func TestBoardQuotaHoldsForWritersAtOnce(t *testing.T) {
	b := newBoard(t, &team.BoardOptions{MaxFiles: 20})
	var refused, written int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			_, err := b.Write(as(t.Context(), "r"), draft("x"))
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, team.ErrLimit) {
				refused++
			} else if err == nil {
				written++
			} else {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, []int{20, 30}, []int{written, refused})
}

func TestBoardRead(t *testing.T) {
	b := newBoard(t, nil)
	const body = "one\nzwei äöü\n三四五\nlast"
	e := write(t, b, draft(body))
	read := func(r team.Range) team.Excerpt {
		t.Helper()
		x, err := b.Read(t.Context(), e.Path, r)
		require.NoError(t, err)
		require.Equal(t, e, x.Entry)
		require.Equal(t, body[x.Offset:][:len(x.Text)], x.Text)
		require.EqualValues(t, len(body), x.Body)
		return x
	}
	t.Run("lines", func(t *testing.T) {
		x := read(team.Range{Line: 2, Lines: 2})
		require.Equal(t, "zwei äöü\n三四五\n", x.Text)
		require.Equal(t, 2, x.Line)
		require.Equal(t, "last", read(team.Range{Line: 4}).Text)
		require.Equal(t, "one\n", read(team.Range{Lines: 1}).Text)
		require.EqualValues(t, -1, read(team.Range{Line: 3, Lines: 99}).Next)
	})
	t.Run("bytes never split a character and miss none", func(t *testing.T) {
		for n := int64(1); n <= int64(len(body)); n++ {
			var all strings.Builder
			for at := int64(0); at >= 0; {
				x := read(team.Range{Offset: at, Bytes: n})
				require.True(t, len(x.Text) <= max(int(n), 3) && len(x.Text) > 0)
				all.WriteString(x.Text)
				at = x.Next
			}
			require.Equal(t, body, all.String(), "pieces of %d bytes", n)
		}
		require.EqualValues(t, strings.Index(body, "ö"), read(team.Range{Offset: int64(strings.Index(body, "ö") + 1)}).Offset)
	})
	t.Run("ranges that cannot be", func(t *testing.T) {
		for _, r := range []team.Range{{Offset: -1}, {Bytes: -1}, {Line: -1}, {Lines: -1}, {Offset: 1, Line: 1},
			{Offset: int64(len(body) + 1)}, {Line: 5}} {
			_, err := b.Read(t.Context(), e.Path, r)
			require.ErrorIs(t, err, team.ErrInvalid, "%+v", r)
		}
	})
	t.Run("paths", func(t *testing.T) {
		rel, err := filepath.Rel(b.Dir(), e.Path)
		require.NoError(t, err)
		x, err := b.Read(t.Context(), rel, team.Range{})
		require.NoError(t, err)
		require.Equal(t, e.Path, x.Entry.Path)
		for path, want := range map[string]error{
			"": team.ErrInvalid, ".": team.ErrInvalid, "x": team.ErrInvalid, filepath.Dir(e.Path): team.ErrInvalid,
			"s/t/notes.md":                           team.ErrInvalid,
			".tm/x/01-a-b.md":                        team.ErrInvalid,
			"s/t/01-a-b.md":                          team.ErrNotFound,
			strings.Replace(e.Path, "01-", "02-", 1): team.ErrNotFound,
			"../x/y/01-a-b.md":                       team.ErrDenied,
			"/etc/passwd":                            team.ErrDenied,
			b.Dir() + "-evil/s/t/01-a-b.md":          team.ErrDenied,
			e.Path + "/../../../../x/01-a-b.md":      team.ErrDenied,
			e.Path + "\x00":                          team.ErrInvalid,
		} {
			_, err := b.Read(t.Context(), path, team.Range{})
			require.ErrorIs(t, err, want, "%q", path)
		}
	})
	t.Run("by reference", func(t *testing.T) {
		x, err := b.ReadRef(t.Context(), e.Ref(), team.Range{Lines: 1})
		require.NoError(t, err)
		require.Equal(t, "one\n", x.Text)
		ref := e.Ref()
		ref.SHA256 = strings.Repeat("0", 64)
		_, err = b.ReadRef(t.Context(), ref, team.Range{})
		require.ErrorIs(t, err, team.ErrCorrupt, "another entry under the same path")
	})
	t.Run("a changed body is refused", func(t *testing.T) {
		content, err := os.ReadFile(e.Path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(e.Path, bytes.Replace(content, []byte("one"), []byte("uno"), 1), 0o600))
		_, err = b.Read(t.Context(), e.Path, team.Range{Line: 3})
		require.ErrorIs(t, err, team.ErrCorrupt)
		digest, ok := errors.AsType[*team.DigestError](err)
		require.True(t, ok)
		require.Equal(t, e.SHA256, digest.Want)
		want := e
		want.Changed = true
		require.Equal(t, []team.Entry{want}, entries(t, b, team.Filter{}), "and Entries says so")
	})
	t.Run("a file that is no entry", func(t *testing.T) {
		path := filepath.Join(filepath.Dir(e.Path), "09-tester-x.md")
		require.NoError(t, os.WriteFile(path, []byte("by hand\n"), 0o600))
		_, err := b.Read(t.Context(), path, team.Range{})
		require.ErrorIs(t, err, team.ErrInvalid)
		require.Len(t, entries(t, b, team.Filter{}), 1, "nor is it listed")
	})
	t.Run("a huge file in an entry's place", func(t *testing.T) {
		content, err := os.ReadFile(e.Path)
		require.NoError(t, err)
		header, _, _ := strings.Cut(string(content), "\n")
		for head, want := range map[string]error{"": team.ErrInvalid, header + "\n": team.ErrTooLarge} {
			path := strings.TrimSuffix(e.Path, ".md") + "-r2.md"
			put(t, path, head)
			require.NoError(t, os.Truncate(path, 1<<40))
			_, err = b.Read(t.Context(), path, team.Range{})
			require.ErrorIs(t, err, want)
			_, err = openBoard(t, b.Dir(), &team.BoardOptions{MaxChars: team.NoLimit}).Read(t.Context(), path, team.Range{})
			require.ErrorIs(t, err, want, "also without a limit")
			bad := 0
			for e, err := range b.Entries(t.Context(), team.Filter{}) {
				if err != nil {
					require.Equal(t, path, e.Path)
					bad++
				}
			}
			require.Equal(t, want == team.ErrTooLarge, bad == 1, "it is named if it looks like ours, and the listing goes on")
		}
	})
}

func TestBoardEntriesAreOrderedAndFiltered(t *testing.T) {
	b := newBoard(t, nil)
	for i := range 12 {
		d := draft("x")
		d.Session, d.Task, d.Topic = fmt.Sprint("s", i%2), fmt.Sprint("t", i%3), fmt.Sprint("topic", i%4)
		for range 11 {
			_, err := b.Write(as(t.Context(), team.Role(fmt.Sprint("r", i%2))), d)
			require.NoError(t, err)
		}
	}
	all := entries(t, b, team.Filter{})
	require.Len(t, all, 132)
	require.True(t, slices.IsSortedFunc(all, func(x, y team.Entry) int {
		return slices.Compare([]string{x.Session, x.Task, fmt.Sprintf("%04d %04d", x.Ordinal, x.Round)},
			[]string{y.Session, y.Task, fmt.Sprintf("%04d %04d", y.Ordinal, y.Round)})
	}))
	require.Len(t, entries(t, b, team.Filter{Session: "s1"}), 66)
	require.Len(t, entries(t, b, team.Filter{Session: "s1", Task: "t0", Topic: "topic3", Role: "r1"}), 11)
	require.Empty(t, entries(t, b, team.Filter{Session: "nobody"}))
	for range b.Entries(t.Context(), team.Filter{}) {
		break
	}
}

func TestBoardPlaces(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	if runtime.GOOS == "windows" {
		t.Setenv("TMP", tmp)
	}
	dirs := func(workspace string) (board, state string) {
		t.Helper()
		board, err := team.BoardDir(workspace)
		require.NoError(t, err)
		state, err = team.StateDir(workspace)
		require.NoError(t, err)
		return board, state
	}
	repo := filepath.Join(t.TempDir(), "repo")
	gitDir := filepath.Join(repo, ".git")
	mkdir(t, filepath.Join(gitDir, "worktrees", "wt"), filepath.Join(gitDir, "modules", "sub"), filepath.Join(repo, "a", "b"),
		filepath.Join(repo, "sub"), filepath.Join(repo, "bare", ".git"))
	for _, dir := range []string{"", "worktrees/wt", "modules/sub"} {
		put(t, filepath.Join(gitDir, dir, "HEAD"), "ref: refs/heads/main\n")
	}
	t.Run("a repository, and a workspace below its root", func(t *testing.T) {
		for _, workspace := range []string{repo, filepath.Join(repo, "a", "b"), filepath.Join(repo, "bare")} {
			board, state := dirs(workspace)
			require.Equal(t, filepath.Join(gitDir, "opencode-team"), board)
			require.Equal(t, filepath.Join(gitDir, "opencode-team-state"), state)
		}
	})
	t.Run("a linked work tree", func(t *testing.T) {
		tree := filepath.Join(t.TempDir(), "tree")
		mkdir(t, tree)
		put(t, filepath.Join(tree, ".git"), "gitdir: "+filepath.Join(gitDir, "worktrees", "wt")+"\n")
		board, state := dirs(tree)
		require.Equal(t, filepath.Join(gitDir, "worktrees", "wt", "opencode-team"), board)
		require.Equal(t, filepath.Join(gitDir, "worktrees", "wt", "opencode-team-state"), state)
	})
	t.Run("a submodule", func(t *testing.T) {
		put(t, filepath.Join(repo, "sub", ".git"), "gitdir: ../.git/modules/sub\n")
		board, _ := dirs(filepath.Join(repo, "sub"))
		require.Equal(t, filepath.Join(gitDir, "modules", "sub", "opencode-team"), board)
	})
	t.Run("a folder outside git", func(t *testing.T) {
		plain := filepath.Join(t.TempDir(), "plain")
		mkdir(t, plain)
		board, state := dirs(plain)
		require.Regexp(t, regexp.QuoteMeta(filepath.Join(tmp, "opencode-team", "w-"))+`[0-9a-f]{10}$`, board)
		require.Equal(t, filepath.Join(tmp, "opencode-team-state", filepath.Base(board)), state)
		link := filepath.Join(t.TempDir(), "link")
		symlink(t, plain, link)
		again, _ := dirs(link)
		require.Equal(t, board, again, "two spellings of one workspace have one board")
		require.NoDirExists(t, filepath.Join(tmp, "opencode-team"), "nothing is made by looking")
		b := openBoard(t, board, nil)
		write(t, b, draft("x"))
		for _, dir := range []string{board, filepath.Dir(board)} {
			fi, err := os.Stat(dir)
			require.NoError(t, err)
			if runtime.GOOS != "windows" {
				require.Equal(t, fs.FileMode(0o700), fi.Mode().Perm(), dir)
			}
		}
	})
	t.Run("what is wrong is said", func(t *testing.T) {
		broken := filepath.Join(t.TempDir(), "broken")
		mkdir(t, broken)
		for content, want := range map[string]string{"": "is no git file", "x": "is no git file", "gitdir: \n": "is no git file",
			"gitdir: /nowhere/at/all\n": "git worktree repair", "gitdir: " + t.TempDir() + "\n": "is no git directory"} {
			put(t, filepath.Join(broken, ".git"), content)
			_, err := team.BoardDir(broken)
			require.ErrorContains(t, err, want)
			require.ErrorIs(t, err, team.ErrInvalid)
		}
		_, err := team.BoardDir(filepath.Join(broken, "missing"))
		require.ErrorIs(t, err, team.ErrNotFound)
		_, err = team.BoardDir(filepath.Join(broken, ".git"))
		require.ErrorIs(t, err, team.ErrInvalid)
		_, err = team.OpenBoard(t.Context(), broken+"\n", nil)
		require.ErrorIs(t, err, team.ErrInvalid)
		_, err = team.OpenBoard(t.Context(), "", nil)
		require.ErrorIs(t, err, team.ErrInvalid)
		_, err = team.OpenBoard(t.Context(), filepath.Join(broken, ".git", "x"), nil)
		require.ErrorIs(t, err, team.ErrInvalid)
		for _, opts := range []team.BoardOptions{{MaxChars: -2}, {MaxFiles: -2}, {MaxTasks: -2}, {TTL: -time.Hour}} {
			_, err = team.OpenBoard(t.Context(), filepath.Join(broken, "new"), &opts)
			require.ErrorIs(t, err, team.ErrInvalid, "%+v", opts)
		}
		require.NoDirExists(t, filepath.Join(broken, "new"))
	})
}

// Git itself says which directory a work tree or a submodule has.
func TestBoardDirIsGits(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git here; TestBoardPlaces writes the files that git would")
	}
	dir := t.TempDir()
	git := func(in string, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.invalid",
			"-c", "protocol.file.allow=always", "-c", "commit.gpgsign=false"}, args...)...)
		cmd.Dir = in
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
		cmd.Env = slices.DeleteFunc(cmd.Env, func(s string) bool { return strings.HasPrefix(s, "GIT_DIR=") || strings.HasPrefix(s, "GIT_WORK_TREE=") })
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "git %v: %s", args, out)
		return strings.TrimSpace(string(out))
	}
	main, lib, tree := filepath.Join(dir, "main"), filepath.Join(dir, "lib"), filepath.Join(dir, "tree")
	for _, repo := range []string{main, lib} {
		mkdir(t, repo)
		git(repo, "init", "-q")
		git(repo, "commit", "-q", "--allow-empty", "-m", "first")
	}
	git(main, "worktree", "add", "-q", tree)
	git(main, "submodule", "add", "-q", lib, "sub")
	below := filepath.Join(main, "a", "b")
	mkdir(t, below)
	for _, workspace := range []string{main, below, tree, filepath.Join(main, "sub")} {
		board, err := team.BoardDir(workspace)
		require.NoError(t, err)
		want, err := filepath.EvalSymlinks(git(workspace, "rev-parse", "--absolute-git-dir"))
		require.NoError(t, err)
		got, err := filepath.EvalSymlinks(filepath.Dir(board))
		require.NoError(t, err)
		require.Equal(t, want, got, workspace)
		write(t, openBoard(t, board, nil), draft("x"))
		require.NotContains(t, git(workspace, "status", "--porcelain"), "opencode-team", "nothing appears in the work tree")
	}
}

func TestNewSessionKey(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		key := team.NewSessionKey()
		require.Regexp(t, `^\d{8}-\d{6}-[a-z2-7]{6}$`, key)
		at, err := time.ParseInLocation("20060102-150405", key[:15], time.Local)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), at, time.Minute)
		require.False(t, seen[key], "two leads of one second differ")
		seen[key] = true
	}
}

func TestBoardCloses(t *testing.T) {
	b := newBoard(t, nil)
	e := write(t, b, draft("x"))
	require.NoError(t, b.Close())
	_, err := b.Write(as(t.Context(), "r"), draft("x"))
	require.ErrorIs(t, err, team.ErrClosed)
	_, err = b.Read(t.Context(), e.Path, team.Range{})
	require.ErrorIs(t, err, team.ErrClosed)
	_, err = b.Sweep(t.Context())
	require.ErrorIs(t, err, team.ErrClosed)
	_, err = b.Lease(t.Context(), "s", time.Hour)
	require.ErrorIs(t, err, team.ErrClosed)
	for _, err := range b.Entries(t.Context(), team.Filter{}) {
		require.ErrorIs(t, err, team.ErrClosed)
	}
}

func TestBoardAgesInABubble(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBoard(t, dir, nil)
		write(t, b, draft("x"))
		time.Sleep(team.DefaultBoardTTL)
		report, err := b.Sweep(t.Context())
		require.NoError(t, err)
		files, _ := report.Removed()
		require.Zero(t, files)
		time.Sleep(time.Second)
		report, err = b.Sweep(t.Context())
		require.NoError(t, err)
		files, _ = report.Removed()
		require.Equal(t, 1, files)
	})
}

func mkdir(tb testing.TB, dirs ...string) {
	tb.Helper()
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			tb.Fatal(err)
		}
	}
}

func put(tb testing.TB, path, content string) {
	tb.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
}

func symlink(tb testing.TB, target, link string) {
	tb.Helper()
	if err := os.Symlink(target, link); err != nil {
		tb.Skipf("no symbolic links here: %v", err)
	}
}

func TestBoardOfAnotherUserIsRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the folder for temporary files belongs to one user")
	}
	dir := "/usr" // root's
	if os.Geteuid() == 0 {
		dir = t.TempDir()
		require.NoError(t, os.Chown(dir, 65534, 65534))
	}
	_, err := team.OpenBoard(t.Context(), dir, nil)
	require.ErrorIs(t, err, team.ErrDenied)
	require.ErrorContains(t, err, "belongs to another user")
	require.NoDirExists(t, filepath.Join(dir, "s"))
}

func TestBoardThroughALink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	symlink(t, dir, link)
	b := openBoard(t, filepath.Join(link, "board"), nil)
	e := write(t, b, draft("x"))
	require.Equal(t, filepath.Join(link, "board"), b.Dir())
	for _, path := range []string{e.Path, filepath.Join(dir, "board", draft("").Session, "auth", filepath.Base(e.Path))} {
		x, err := b.Read(t.Context(), path, team.Range{})
		require.NoError(t, err, "both spellings of a path are good")
		require.Equal(t, "x", x.Text)
	}
	require.Len(t, entries(t, b, team.Filter{}), 1)
}

func TestBoardSiblingIsNotTheBoard(t *testing.T) {
	b := newBoard(t, nil)
	evil := openBoard(t, b.Dir()+"-evil", nil)
	e := write(t, evil, draft("evil"))
	for _, path := range []string{e.Path, filepath.Join("..", filepath.Base(evil.Dir()), draft("").Session, "auth", filepath.Base(e.Path))} {
		_, err := b.Read(t.Context(), path, team.Range{})
		require.ErrorIs(t, err, team.ErrDenied)
	}
	d := draft("x")
	d.Session = "../" + filepath.Base(evil.Dir())
	before := files(t, evil.Dir())
	write(t, b, d) // a free name like any other
	require.Equal(t, before, files(t, evil.Dir()))
}

func TestBoardReadOnlyFolder(t *testing.T) {
	if os.Geteuid() == 0 || runtime.GOOS == "windows" {
		t.Skip("file modes do not bind this user; TestBoardWriteFaults fails every operation instead")
	}
	b := newBoard(t, nil)
	require.NoError(t, os.Chmod(b.Dir(), 0o500))
	defer os.Chmod(b.Dir(), 0o700)
	_, err := b.Write(as(t.Context(), "r"), draft("x"))
	require.ErrorIs(t, err, fs.ErrPermission)
	require.Len(t, files(t, b.Dir()), 1)
}

// A named pipe in an entry's place would hang a reader for ever.
func TestBoardSpecialFilesAreNotOpened(t *testing.T) {
	b := newBoard(t, nil)
	e := write(t, b, draft("x"))
	pipe := filepath.Join(filepath.Dir(e.Path), "02-tester-pipe.md")
	if err := mkfifo(pipe); err != nil {
		t.Skip(err)
	}
	_, err := b.Read(t.Context(), pipe, team.Range{})
	require.ErrorIs(t, err, team.ErrDenied)
	seen := 0
	for _, err := range b.Entries(t.Context(), team.Filter{}) {
		if seen++; err != nil {
			require.ErrorIs(t, err, team.ErrDenied, "it is named, and the listing goes on")
		}
	}
	require.Equal(t, 2, seen)
	require.Equal(t, team.SweepForeign, sweep(t, b)[filepath.ToSlash(mustRel(t, b.Dir(), pipe))].Reason)
}

func mustRel(tb testing.TB, base, path string) string {
	tb.Helper()
	rel, err := filepath.Rel(base, path)
	if err != nil {
		tb.Fatal(err)
	}
	return rel
}

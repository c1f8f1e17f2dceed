package team_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

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

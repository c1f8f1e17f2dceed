package team_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

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

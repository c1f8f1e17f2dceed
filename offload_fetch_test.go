package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

func fetch(tb testing.TB, o *team.Offload, h team.Handle, opts team.FetchOptions) team.Fetched {
	tb.Helper()
	f, err := o.Fetch(tb.Context(), h, opts)
	require.NoError(tb, err)
	return f
}

// fetchAll follows Next to the end, and returns all texts together.
func fetchAll(tb testing.TB, o *team.Offload, h team.Handle, opts team.FetchOptions) string {
	tb.Helper()
	var got strings.Builder
	for next := &opts; next != nil; {
		f := fetch(tb, o, h, *next)
		require.LessOrEqual(tb, f.Tokens, opts.Budget)
		require.NotEmpty(tb, f.Text, "each call goes on")
		got.WriteString(f.Text)
		next = f.Next
	}
	return got.String()
}

func TestFetchLines(t *testing.T) {
	o := newOffload(t, nil)
	text := logLines(60_000) + "no end" // several entries of the line index
	s := shorten(t, o, text, team.Source{})
	lines := strings.SplitAfter(text, "\n")
	for _, from := range []int{1, 2, 17, 20_000, 21_399, 21_400, 45_678, 60_000, 60_001} {
		f := fetch(t, o, s.Handle, team.FetchOptions{Range: team.Range{Line: from, Lines: 3}})
		require.Equal(t, strings.Join(lines[from-1:min(from+2, len(lines))], ""), f.Text, "from line %d", from)
		require.EqualValues(t, from, f.Line)
		require.EqualValues(t, len(strings.Join(lines[:from-1], "")), f.Offset)
		require.EqualValues(t, 60_001, f.Lines)
	}
	_, err := o.Fetch(t.Context(), s.Handle, team.FetchOptions{Range: team.Range{Line: 60_002}})
	require.ErrorIs(t, err, team.ErrInvalid)
	require.Equal(t, strings.Join(lines[58_999:], ""), fetchAll(t, o, s.Handle, team.FetchOptions{Range: team.Range{Line: 59_000}, Budget: 700}))

	t.Run("a line over the budget comes in parts", func(t *testing.T) {
		text := "short\n" + strings.Repeat("é字 ", 20_000) + "\nlast\n"
		s := shorten(t, o, text, team.Source{})
		require.Equal(t, text, fetchAll(t, o, s.Handle, team.FetchOptions{Range: team.Range{Line: 1}, Budget: 500}))
	})
}

func TestFetchBytes(t *testing.T) {
	o := newOffload(t, nil)
	text := strings.Repeat("aé字🙂\xff", 9000)
	s := shorten(t, o, text, team.Source{})
	for from := range 40 {
		for size := 1; size < 12; size++ {
			f := fetch(t, o, s.Handle, team.FetchOptions{Range: team.Range{Offset: int64(from), Bytes: int64(size)}})
			require.Equal(t, text[f.Offset:f.Offset+int64(len(f.Text))], f.Text)
			require.LessOrEqual(t, f.Offset, int64(from))
			require.Less(t, int64(from)-f.Offset, int64(4), "only back to where the character starts")
			require.NotEmpty(t, f.Text)
			require.Equal(t, strings.ReplaceAll(f.Text, "\xff", "?"), strings.ToValidUTF8(strings.ReplaceAll(f.Text, "\xff", "?"), ""), "no split character")
		}
	}
	require.Equal(t, text, fetchAll(t, o, s.Handle, team.FetchOptions{Budget: 3000}))
	for _, r := range []team.Range{{Offset: int64(len(text))}, {Offset: -1}, {Bytes: -1}, {Offset: 1, Line: 1}} {
		_, err := o.Fetch(t.Context(), s.Handle, team.FetchOptions{Range: r})
		require.ErrorIs(t, err, team.ErrInvalid)
	}
	rendered := o.FormatFetched(fetch(t, o, s.Handle, team.FetchOptions{Budget: 10}))
	require.True(t, utf8.ValidString(rendered))
	require.Contains(t, rendered, "go on from byte ")
}

func TestFetchGrep(t *testing.T) {
	o := newOffload(t, nil)
	text := logLines(9000)
	s := shorten(t, o, text, team.Source{})
	f := fetch(t, o, s.Handle, team.FetchOptions{Grep: `^line \d*77 of`, Budget: 100_000})
	require.EqualValues(t, 90, f.Matches)
	require.True(t, strings.HasPrefix(f.Text, "77: line 77 of a long result, with a few words in it\n177: line 177"), f.Text)
	require.Nil(t, f.Next)

	all := fetchAll(t, o, s.Handle, team.FetchOptions{Grep: `77`, Budget: 300})
	require.Equal(t, strings.Count(all, "\n"), int(fetch(t, o, s.Handle, team.FetchOptions{Grep: `77`, Budget: 100_000}).Matches), "in parts, the same lines")

	f = fetch(t, o, s.Handle, team.FetchOptions{Grep: `77`, Range: team.Range{Line: 100, Lines: 100}})
	require.Equal(t, "177: line 177 of a long result, with a few words in it\n", f.Text)
	f = fetch(t, o, s.Handle, team.FetchOptions{Grep: `nothing like it`})
	require.Empty(t, f.Text)
	require.Zero(t, f.Matches)

	t.Run("a long line is cut around the match", func(t *testing.T) {
		text := strings.Repeat("x", 300_000) + "NEEDLE" + strings.Repeat("字", 100_000)
		s := shorten(t, o, text, team.Source{})
		f := fetch(t, o, s.Handle, team.FetchOptions{Grep: "NEEDLE"})
		require.EqualValues(t, 1, f.Matches)
		require.Contains(t, f.Text, "NEEDLE")
		require.Less(t, len(f.Text), 1000)
		require.True(t, utf8.ValidString(f.Text))
		// One match on the border of two pieces.
		for shift := range 8 {
			text := strings.Repeat("x", 64<<10-shift) + "NEEDLE" + strings.Repeat("y", 200_000)
			f := fetch(t, o, shorten(t, o, text, team.Source{}).Handle, team.FetchOptions{Grep: "NEEDLE"})
			require.EqualValues(t, 1, f.Matches, "%d bytes before the border", shift)
		}
	})
	t.Run("what is no pattern", func(t *testing.T) {
		for _, bad := range []string{"(", "a{2,1}", `(?<=a)b`, `\1`, "[", "a**", "\xff"} {
			_, err := o.Fetch(t.Context(), s.Handle, team.FetchOptions{Grep: bad})
			require.ErrorIs(t, err, team.ErrInvalid, bad)
		}
		for _, bad := range []string{strings.Repeat("a", 1001), `(?:a?){900}`, `((a{10}){10}){10}`, `\pL{500}`} {
			_, err := o.Fetch(t.Context(), s.Handle, team.FetchOptions{Grep: bad})
			require.ErrorIs(t, err, team.ErrLimit, bad)
		}
	})
}

// A hostile pattern or a hostile 1 MB text cannot take super-linear time.
func TestFetchHostilePatterns(t *testing.T) {
	o := newOffload(t, nil)
	for _, c := range []struct{ unit, pattern string }{
		{"a", `(a+)+$`}, {"a", `(a|a)*b`}, {"a", `(?:a?){20}a{20}$`}, {"a:", `(.*)(.*)(.*)(.*)x`}, {"a\n", `(a*)*c`}, {" ", `^(\w+\s?)*$`},
	} {
		s := shorten(t, o, strings.Repeat(c.unit, (1<<20)/len(c.unit)), team.Source{})
		start := time.Now()
		fetch(t, o, s.Handle, team.FetchOptions{Grep: c.pattern})
		require.Less(t, time.Since(start), hang, c.pattern)
	}
	t.Run("it ends with its context", func(t *testing.T) {
		s := shorten(t, o, strings.Repeat(strings.Repeat("a", 60_000)+"\n", 300), team.Source{})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := o.Fetch(ctx, s.Handle, team.FetchOptions{Grep: `(?:a?){20}a{20}b`})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(start), hang)
	})
}

func TestFetchJSONPath(t *testing.T) {
	o := newOffload(t, nil)
	var items []string
	for i := range 3000 {
		items = append(items, fmt.Sprintf(`{"name": "n%d", "tags": ["a", "b%d"], "odd key.[]": {"deep": [[%d]]}, "f":-1.5e3}`, i, i, i))
	}
	text := `{"items": [` + strings.Join(items, ",\n") + `], "empty": {}, "e": [], "umlaut\u00e4": true, "s": "x\"y]}", "null": null}`
	require.True(t, json.Valid([]byte(text)))
	s := shorten(t, o, text, team.Source{})
	require.Equal(t, team.ClassJSON, s.Class)
	for path, want := range map[string]string{
		`$.items[0].name`:                     `"n0"`,
		`$.items[2999].tags[1]`:               `"b2999"`,
		`$.items[7]["odd key.[]"].deep[0][0]`: `7`,
		`$["items"][5].tags`:                  `["a", "b5"]`,
		`$.items[3]["odd key.[]"]`:            `{"deep": [[3]]}`,
		`$.empty`:                             `{}`,
		`$.e`:                                 `[]`,
		`$.umlautä`:                           `true`,
		`$["umlaut\u00e4"]`:                   `true`,
		`$.s`:                                 `"x\"y]}"`,
		`$.null`:                              `null`,
		`$.items[1].*`:                        "\"n1\"\n[\"a\", \"b1\"]\n{\"deep\": [[1]]}\n-1.5e3",
		`$.items[2].tags[*]`:                  "\"a\"\n\"b2\"",
	} {
		f, err := o.Fetch(t.Context(), s.Handle, team.FetchOptions{JSONPath: path})
		require.NoError(t, err, path)
		require.Equal(t, want, f.Text, path)
	}
	f := fetch(t, o, s.Handle, team.FetchOptions{JSONPath: `$.items[*].name`, Budget: 100_000})
	require.EqualValues(t, 3000, f.Matches)
	require.False(t, f.More)
	f = fetch(t, o, s.Handle, team.FetchOptions{JSONPath: `$`, Budget: 50})
	require.True(t, f.More)
	require.True(t, strings.HasPrefix(text, f.Text))
	require.LessOrEqual(t, f.Tokens, 50)

	for _, path := range []string{`$.nothing`, `$.items[3000]`, `$.items.name`, `$.s.x`, `$.e[0]`, `$.items[0][0]`} {
		_, err := o.Fetch(t.Context(), s.Handle, team.FetchOptions{JSONPath: path})
		require.ErrorIs(t, err, team.ErrNotFound, path)
	}
	for _, path := range []string{`items`, `$.`, `$..a`, `$[`, `$[-1]`, `$[a]`, `$["a"`, `$["a]`, `$a`, `$[1:2]`, `$[?(@.a)]`, `$.a.`, `$[""`} {
		_, err := o.Fetch(t.Context(), s.Handle, team.FetchOptions{JSONPath: path})
		require.ErrorIs(t, err, team.ErrInvalid, path)
	}
	_, err := o.Fetch(t.Context(), s.Handle, team.FetchOptions{JSONPath: "$" + strings.Repeat(".a", 100)})
	require.ErrorIs(t, err, team.ErrLimit)
	_, err = o.Fetch(t.Context(), s.Handle, team.FetchOptions{JSONPath: "$.a", Grep: "x"})
	require.ErrorIs(t, err, team.ErrInvalid)

	t.Run("what is no JSON", func(t *testing.T) {
		for _, text := range []string{logLines(3000), text[:len(text)-1], "[" + text, strings.Repeat(`{"a":`, 20_000) + strings.Repeat("}", 20_000)} {
			s := shorten(t, o, text, team.Source{Class: team.ClassJSON})
			_, err := o.Fetch(t.Context(), s.Handle, team.FetchOptions{JSONPath: "$.x.y"})
			require.Truef(t, errors.Is(err, team.ErrInvalid) || errors.Is(err, team.ErrLimit), "%v", err)
		}
	})
	t.Run("several values", func(t *testing.T) {
		var b strings.Builder
		for i := range 3000 {
			fmt.Fprintf(&b, "{\"n\": %d, \"text\": \"some words\"}\n", i)
		}
		s := shorten(t, o, b.String(), team.Source{Name: "events.jsonl"})
		f := fetch(t, o, s.Handle, team.FetchOptions{JSONPath: "$.n", Budget: 100_000})
		require.EqualValues(t, 3000, f.Matches)
	})
}

// The digest is checked at Fetch: damage is reported, not served.
func TestFetchReportsDamage(t *testing.T) {
	text := logLines(3000)
	for what, damage := range map[string]func(t *testing.T, path string){
		"a byte": func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, []byte(strings.Replace(text, "line 7 ", "line 8 ", 1)), 0o600))
		},
		"shorter": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 100)) },
		"empty":   func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) },
		"longer":  func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, []byte(text+"x"), 0o600)) },
		"another file of the same time": func(t *testing.T, path string) {
			fi, err := os.Stat(path)
			require.NoError(t, err)
			require.NoError(t, os.Rename(path, filepath.Join(t.TempDir(), "old")))
			require.NoError(t, os.WriteFile(path, []byte(strings.ToUpper(text)), 0o600))
			require.NoError(t, os.Chtimes(path, fi.ModTime(), fi.ModTime()))
		},
	} {
		for _, before := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, fetched before: %v", what, before), func(t *testing.T) {
				o := newOffload(t, nil)
				s := shorten(t, o, text, team.Source{})
				if before {
					fetch(t, o, s.Handle, team.FetchOptions{})
					time.Sleep(20 * time.Millisecond) // the clock of the file system
				}
				damage(t, s.Path)
				for _, opts := range []team.FetchOptions{{}, {Grep: "line"}, {Range: team.Range{Line: 5, Lines: 1}}} {
					f, err := o.Fetch(t.Context(), s.Handle, opts)
					require.ErrorIs(t, err, team.ErrCorrupt)
					var bad *team.DigestError
					require.ErrorAs(t, err, &bad)
					require.Equal(t, s.SHA256, bad.Want)
					require.Empty(t, f.Text)
				}
			})
		}
	}
	// Rot changes neither inode nor size nor time. What is served is what was stored; a
	// text that comes again is not thrown away for a damaged file.
	t.Run("rot that no time tells of", func(t *testing.T) {
		text := logLines(20_000)
		o := newOffload(t, nil)
		s := shorten(t, o, text, team.Source{})
		early, late := team.FetchOptions{Range: team.Range{Line: 5, Lines: 2}}, team.FetchOptions{Range: team.Range{Line: 19_000, Lines: 2}}
		fetch(t, o, s.Handle, early)
		fi, err := os.Stat(s.Path)
		require.NoError(t, err)
		f, err := os.OpenFile(s.Path, os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte("X"), int64(strings.Index(text, "line 19000 ")))
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.NoError(t, os.Chtimes(s.Path, fi.ModTime(), fi.ModTime()))
		require.Contains(t, fetch(t, o, s.Handle, early).Text, "line 5 ", "what is whole is served")
		for _, opts := range []team.FetchOptions{late, {Grep: "line 19"}, late, early} {
			_, err = o.Fetch(t.Context(), s.Handle, opts)
			var bad *team.DigestError
			require.ErrorAs(t, err, &bad, "and once the damage is known, nothing more")
			require.Equal(t, s.SHA256, bad.Want)
			require.NotEqual(t, s.SHA256, bad.Got)
		}
		o = openOffload(t, o.Dir(), new(memstore.Store), nil)
		s = shorten(t, o, text, team.Source{})
		fetch(t, o, s.Handle, early)
		fi, err = os.Stat(s.Path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(s.Path, []byte(strings.Replace(text, "line 19000 ", "line 19009 ", 1)), 0o600))
		require.NoError(t, os.Chtimes(s.Path, fi.ModTime(), fi.ModTime()))
		again := shorten(t, o, text, team.Source{})
		require.False(t, again.Replayed)
		require.Equal(t, text, readFile(t, again.Path))
	})
	t.Run("a link in its place", func(t *testing.T) {
		o := newOffload(t, nil)
		s := shorten(t, o, text, team.Source{})
		elsewhere := filepath.Join(t.TempDir(), "x")
		require.NoError(t, os.Rename(s.Path, elsewhere))
		require.NoError(t, os.Symlink(elsewhere, s.Path))
		_, err := o.Fetch(t.Context(), s.Handle, team.FetchOptions{})
		require.ErrorIs(t, err, team.ErrDenied)
	})
	t.Run("removed by hand", func(t *testing.T) {
		o := newOffload(t, nil)
		s := shorten(t, o, text, team.Source{})
		require.NoError(t, os.Remove(s.Path))
		_, err := o.Fetch(t.Context(), s.Handle, team.FetchOptions{})
		require.ErrorIs(t, err, team.ErrNotFound)
	})
	t.Run("a damaged record", func(t *testing.T) {
		index := new(memstore.Store)
		o := openOffload(t, filepath.Join(t.TempDir(), "offload"), index, nil)
		s := shorten(t, o, text, team.Source{})
		for key, err := range index.Keys(t.Context(), "team/offload/", "") {
			require.NoError(t, err)
			if strings.HasSuffix(key, strings.TrimPrefix(string(s.Handle), "tm://")) {
				for _, bad := range []string{"", "{", `{"file":"../../x"}`, `{"file":"aaaaaaaaaaaaaaaa.txt"}`} {
					_, err := index.Put(t.Context(), key, []byte(bad), team.AnyVersion)
					require.NoError(t, err)
					_, err = o.Fetch(t.Context(), s.Handle, team.FetchOptions{})
					require.ErrorIs(t, err, team.ErrCorrupt)
				}
			}
		}
	})
}

// Stats give the net: what was kept out, minus what was fetched back; and the most
// recent with handle and path, for a person to open.
func TestOffloadStats(t *testing.T) {
	dir, index := filepath.Join(t.TempDir(), "offload"), new(memstore.Store)
	o := openOffload(t, dir, index, nil)
	var kept int64
	var last team.Shortened
	for i := range 5 {
		last = shorten(t, o, fmt.Sprint(i, logLines(2000)), team.Source{Name: fmt.Sprintf("out%d.txt", i)})
		kept += int64(last.Tokens - team.EstimateTokens(last.Text))
		time.Sleep(2 * time.Millisecond)
	}
	again := shorten(t, o, fmt.Sprint(4, logLines(2000)), team.Source{})
	kept += int64(again.Tokens - team.EstimateTokens(again.Text))
	f := fetch(t, o, last.Handle, team.FetchOptions{Budget: 500})
	g := fetch(t, o, last.Handle, team.FetchOptions{Grep: "line 7"})
	for _, o := range []*team.Offload{o, openOffload(t, dir, index, nil)} { // in another process too
		stats, err := o.Stats(t.Context(), 3)
		require.NoError(t, err)
		require.Equal(t, 5, stats.Handles)
		require.Equal(t, kept, stats.Kept)
		require.EqualValues(t, f.Tokens+g.Tokens, stats.Fetched)
		require.Equal(t, kept-int64(f.Tokens+g.Tokens), stats.Net())
		require.EqualValues(t, 2, stats.Fetches)
		require.Len(t, stats.Recent, 3)
		require.Equal(t, last.Handle, stats.Recent[0].Handle)
		require.Equal(t, last.Path, stats.Recent[0].Path)
		require.Equal(t, last.SHA256, stats.Recent[0].SHA256)
		require.Equal(t, "out4.txt", stats.Recent[0].Name)
		require.EqualValues(t, 2, stats.Recent[0].Times)
	}
}

// The trail keeps the digest of the original and of what replaced it, and no body.
func TestOffloadLeavesATrail(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "trail")
	trail, err := team.OpenTrail(t.Context(), dir, nil)
	require.NoError(t, err)
	defer trail.Close()
	o := newOffload(t, &team.OffloadOptions{Trace: trail.Record, MinAge: 1, MaxBytes: 1})
	text := "SECRET\n" + logLines(3000) + "SECRET\n"
	_, s, err := o.ShortenResult(t.Context(), team.ToolResult{Tool: "bash", Session: "ses_a", Agent: "build", Call: "SECRET", Result: v1(text, nil)})
	require.NoError(t, err)
	_ = shorten(t, o, text, team.Source{})
	fetch(t, o, s.Handle, team.FetchOptions{Range: team.Range{Lines: 1}})
	require.NoError(t, o.Pin(t.Context(), s.Handle))
	require.NoError(t, o.Unpin(t.Context(), s.Handle))
	time.Sleep(2 * time.Millisecond)
	_, err = o.Collect(t.Context(), nil)
	require.NoError(t, err)
	_, err = o.Fetch(t.Context(), s.Handle, team.FetchOptions{})
	require.Error(t, err)
	var lines []string
	for line, err := range team.ReadTrail(t.Context(), dir) {
		require.NoError(t, err)
		ev := line.Event
		lines = append(lines, ev.Op+" "+ev.Outcome)
		switch {
		case ev.Op == "offload.store":
			require.Equal(t, []any{string(s.Handle), s.SHA256, s.Size}, []any{ev.ID, ev.SHA256, ev.Size})
		case ev.Op == "offload.shorten":
			require.Equal(t, []any{string(s.Handle), digest(s.Text), int64(len(s.Text))}, []any{ev.ID, ev.SHA256, ev.Size})
		}
	}
	require.Equal(t, []string{"trail.begin ", "offload.store ok", "offload.shorten ok", "offload.store replayed", "offload.shorten ok",
		"offload.fetch ok", "offload.pin ok", "offload.unpin ok", "offload.collect ok", "offload.fetch refused"}, lines)
	for name, content := range files(t, dir) {
		require.NotContains(t, content, "SECRET", name)
	}
}

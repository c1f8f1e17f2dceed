package team_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// newOffload opens an offload folder over an index of its own.
func newOffload(tb testing.TB, opts *team.OffloadOptions) *team.Offload {
	tb.Helper()
	return openOffload(tb, filepath.Join(tb.TempDir(), "offload"), new(memstore.Store), opts)
}

func openOffload(tb testing.TB, dir string, index team.Records, opts *team.OffloadOptions) *team.Offload {
	tb.Helper()
	o, err := team.OpenOffload(tb.Context(), dir, index, opts)
	require.NoError(tb, err)
	tb.Cleanup(func() { o.Close() })
	return o
}

func shorten(tb testing.TB, o *team.Offload, text string, src team.Source) team.Shortened {
	tb.Helper()
	s, err := o.ShortenText(tb.Context(), text, src)
	require.NoError(tb, err)
	require.NoError(tb, s.Failed)
	return s
}

// logLines makes a text of n lines that are all different.
func logLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d of a long result, with a few words in it\n", i+1)
	}
	return b.String()
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// shortDir returns a folder with a short path.
func shortDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "o")
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func readFile(tb testing.TB, name string) string {
	tb.Helper()
	b, err := os.ReadFile(name)
	require.NoError(tb, err)
	return string(b)
}

// storedFiles returns the names of the texts in the folder.
func storedFiles(tb testing.TB, o *team.Offload) []string {
	tb.Helper()
	all, err := os.ReadDir(o.Dir())
	require.NoError(tb, err)
	var names []string
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestOffloadShortens(t *testing.T) {
	o := newOffload(t, nil)
	text := logLines(2000) + "the verdict: 3 of 5 pass\n"
	s := shorten(t, o, text, team.Source{})
	require.NotEmpty(t, s.Handle)
	require.Equal(t, text, readFile(t, s.Path), "the file has the text byte for byte")
	require.Equal(t, digest(text), s.SHA256)
	require.Contains(t, s.Text, "line 1 of", "the head")
	require.Contains(t, s.Text, "3 of 5 pass", "the tail")
	require.Contains(t, s.Text, s.Path)
	require.Contains(t, s.Text, string(s.Handle))
	require.Contains(t, s.Text, fmt.Sprintf("\n[%d bytes cut of 2001 lines, ~%dk tokens: ", s.Size-s.Shown, (s.Tokens+500)/1000))
	require.True(t, utf8.ValidString(s.Text))
	t.Logf("%d tokens:\n%s", team.EstimateTokens(s.Text), s.Text)
}

func TestOffloadThresholdsByClass(t *testing.T) {
	// About n tokens by whatever rule: a text that grows until it costs that.
	grown := func(unit string, tokens int) string {
		n := tokens / team.EstimateTokens(unit) * 2
		text := strings.Repeat(unit, n)
		for team.EstimateTokens(text) > tokens {
			text = text[:len(text)-len(unit)]
		}
		return text
	}
	for class, limit := range map[team.Class]int{
		team.ClassText: 4000, team.ClassLog: 4000, team.ClassReport: 4000,
		team.ClassJSON: 2000, team.ClassCSV: 2000, team.ClassCode: 2000, team.ClassBinary: 2000, team.ClassUnknown: 2000,
	} {
		t.Run(string(class), func(t *testing.T) {
			o := newOffload(t, nil)
			src := team.Source{Class: class}
			small := grown("a few words of a line\n", limit-1)
			require.Less(t, team.EstimateTokens(small), limit)
			s := shorten(t, o, small, src)
			require.Equal(t, small, s.Text, "below the threshold a text stays as it is")
			require.Empty(t, s.Handle)
			s = shorten(t, o, grown("a few words of a line\n", limit+20), src)
			require.NotEmpty(t, s.Handle, "from the threshold on it is offloaded")
		})
	}
	t.Run("the caller's own", func(t *testing.T) {
		o := newOffload(t, &team.OffloadOptions{Thresholds: map[team.Class]int{team.ClassText: 500, team.ClassLog: team.NoLimit}})
		require.NotEmpty(t, shorten(t, o, grown("a few words of a line\n", 600), team.Source{Class: team.ClassText}).Handle)
		require.Empty(t, shorten(t, o, logLines(9000), team.Source{Class: team.ClassLog}).Handle)
		require.NotEmpty(t, shorten(t, o, logLines(9000), team.Source{Class: team.ClassCode}).Handle)
	})
	t.Run("a preview is never longer than the text", func(t *testing.T) {
		o := newOffload(t, &team.OffloadOptions{Thresholds: map[team.Class]int{team.ClassText: 10}})
		for n := 1; n < 60; n++ {
			text := strings.Repeat("some words of text ", n)
			s := shorten(t, o, text, team.Source{Class: team.ClassText})
			require.LessOrEqual(t, team.EstimateTokens(s.Text), max(team.EstimateTokens(text), 10))
		}
	})
}

// Handles are unguessable and at most 32 characters, never derived from a
// provider's id; hostile ids harm nothing.
func TestOffloadHandles(t *testing.T) {
	o := newOffload(t, nil)
	form := regexp.MustCompile(`^tm://[a-z2-7]{16,26}$`)
	seen := map[team.Handle]bool{}
	for i, id := range []string{strings.Repeat("x", 1500), "", "", "../../x", "../../x", "call_\x00\n", "tm://aaaaaaaaaaaaaaaa", `C:\x`, "con"} {
		text := fmt.Sprint(i, logLines(2000))
		res := team.ToolResult{Tool: "bash", Session: "ses_1", Agent: "build", Call: id, Result: v1(text, nil)}
		out, s, err := o.ShortenResult(t.Context(), res)
		require.NoError(t, err)
		require.Regexp(t, form, s.Handle)
		require.LessOrEqual(t, len(s.Handle), 32)
		require.False(t, seen[s.Handle], "no collision")
		seen[s.Handle] = true
		require.Equal(t, o.Dir(), filepath.Dir(s.Path), "no escape")
		require.Equal(t, text, readFile(t, s.Path))
		require.Equal(t, id, out.Call)
		if len(id) > 8 {
			require.NotContains(t, s.Text, id, "the id is not repeated in the text")
			require.NotContains(t, string(out.Result), id)
		}
	}
	require.Len(t, storedFiles(t, o), 9)
	for _, bad := range []team.Handle{"", "tm://", "tm://../../x", "tm://AAAAAAAAAAAAAAAA", "tm://aaaaaaaaaaaaaaaa.txt", "http://x", "aaaaaaaaaaaaaaaaaaaa"} {
		_, err := o.Fetch(t.Context(), bad, team.FetchOptions{})
		require.ErrorIs(t, err, team.ErrInvalid, "%q", bad)
		require.ErrorIs(t, o.Pin(t.Context(), bad), team.ErrInvalid)
	}
	_, err := o.Fetch(t.Context(), "tm://aaaaaaaaaaaaaaaa", team.FetchOptions{})
	require.ErrorIs(t, err, team.ErrNotFound)
}

// Files are bit exact, also for binary and invalid UTF-8.
func TestOffloadFilesAreBitExact(t *testing.T) {
	o := newOffload(t, nil)
	random := make([]byte, 300_000)
	rand.Read(random)
	for name, text := range map[string]string{
		"random bytes":      string(random),
		"zero bytes":        strings.Repeat("\x00", 100_000),
		"invalid UTF-8":     strings.Repeat("a\xff\xfe\xc3 b\xed\xa0\x80\n", 10_000),
		"half a rune, last": strings.Repeat("some text ", 10_000) + "\xf0\x9f",
		"CRLF":              strings.Repeat("line\r\n", 10_000),
		"one line":          strings.Repeat("x", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			s := shorten(t, o, text, team.Source{})
			require.NotEmpty(t, s.Handle)
			require.True(t, text == readFile(t, s.Path), "the file is not what was shortened")
			require.True(t, utf8.ValidString(s.Text), "%q", s.Text)
			require.NotContains(t, s.Text, "\x00")
			stream, err := o.ShortenReader(t.Context(), strings.NewReader(text), team.Source{})
			require.NoError(t, err)
			require.Equal(t, s.Handle, stream.Handle, "the same as a stream is the same file")
			require.Equal(t, s.Text, stream.Text)
			var got strings.Builder
			for next := new(team.FetchOptions); next != nil; {
				next.Budget = 50_000
				part, err := o.Fetch(t.Context(), s.Handle, *next)
				require.NoError(t, err)
				require.EqualValues(t, got.Len(), part.Offset)
				got.WriteString(part.Text)
				next = part.Next
			}
			require.True(t, text == got.String(), "the parts together are not the whole")
		})
	}
}

// A preview is never empty, also for one line of 1 MB, and has head and tail.
func TestOffloadNeverEmpty(t *testing.T) {
	o := openOffload(t, shortDir(t), new(memstore.Store), nil)
	for name, text := range map[string]string{
		"one line":       "HEAD " + strings.Repeat("x", 1<<20) + " TAIL",
		"one JSON line":  `{"HEAD":"` + strings.Repeat("x", 1<<20) + `","TAIL":1}`,
		"base64":         "HEAD" + strings.Repeat("QUJDREVG", 1<<17) + "TAIL",
		"one array line": `["HEAD"` + strings.Repeat(",1", 1<<19) + `,"TAIL"]`,
		"a verdict last": "HEAD\n" + logLines(10_000) + "TAIL\n",
		"blank lines":    "HEAD\n" + strings.Repeat("\n", 1<<20) + "TAIL\n",
		"spaces":         "HEAD" + strings.Repeat(" ", 1<<20) + "TAIL",
		"a report":       "STATUS: done HEAD\n" + strings.Repeat("words ", 1<<18) + "\nTAIL",
	} {
		t.Run(name, func(t *testing.T) {
			s := shorten(t, o, text, team.Source{})
			require.NotEmpty(t, s.Handle)
			require.Contains(t, s.Text, "HEAD")
			require.Contains(t, s.Text, "TAIL")
			require.Contains(t, s.Text, "cut ...]")
		})
	}
	t.Run("nothing but the smallest budget", func(t *testing.T) {
		o := newOffload(t, &team.OffloadOptions{PreviewTokens: 10, ReportTokens: 10})
		s := shorten(t, o, strings.Repeat("字", 1<<20), team.Source{})
		require.Contains(t, s.Text, string(s.Handle))
	})
}

// What was cut is stated exactly: what is shown and what is not is the whole.
func TestOffloadStatesWhatWasCut(t *testing.T) {
	o := newOffload(t, nil)
	cut := regexp.MustCompile(`\n\[(\d+) bytes cut of (\d+) lines, `)
	for _, text := range []string{logLines(3000), strings.Repeat("é字🙂 ", 9000), strings.Repeat("a\xff", 50_000), strings.Repeat("x", 99_999)} {
		s := shorten(t, o, text, team.Source{Class: team.ClassText})
		m := cut.FindStringSubmatch(s.Text)
		require.NotNil(t, m, s.Text)
		body, _ := parts(t, s)
		head, tail, ok := strings.Cut(body, "\n[... cut ...]\n")
		require.True(t, ok, body)
		seen := strings.ReplaceAll(text, "\xff", "\uFFFD")
		require.True(t, strings.HasPrefix(seen, head), "%q", head)
		require.True(t, strings.HasSuffix(strings.TrimSuffix(seen, "\n"), tail), "%q", tail)
		require.Equal(t, []string{strconv.Itoa(strings.Count(strings.TrimSuffix(text, "\n"), "\n") + 1)}, m[2:])
		shown, whole := len(strings.ReplaceAll(head+tail, "\uFFFD", "\xff")), len(text)
		require.Contains(t, []string{strconv.Itoa(whole - shown), strconv.Itoa(whole - shown - 1), strconv.Itoa(whole - shown - 2)}, m[1], "line ends beside the mark may be shown")
	}
}

// The same result twice is one file, also from many at once.
func TestOffloadSameTwiceIsOneFile(t *testing.T) {
	for name, index := range map[string]team.Records{"a store that commits": new(memstore.Store), "records alone": onlyRecords{new(memstore.Store)}} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "offload")
			o, other := openOffload(t, dir, index, nil), openOffload(t, dir, index, nil)
			text := logLines(2000)
			handles := make([]team.Handle, 32)
			var wg sync.WaitGroup
			for i := range handles {
				wg.Go(func() {
					s, err := []*team.Offload{o, other}[i%2].ShortenText(context.Background(), text, team.Source{})
					if err == nil && s.Failed == nil {
						handles[i] = s.Handle
					}
				})
			}
			wg.Wait()
			for _, h := range handles {
				require.Equal(t, handles[0], h)
			}
			require.NotEmpty(t, handles[0])
			require.Len(t, storedFiles(t, o), 1)
			s := shorten(t, o, text, team.Source{})
			require.True(t, s.Replayed)
			stats, err := o.Stats(t.Context(), 5)
			require.NoError(t, err)
			require.Equal(t, 1, stats.Handles)
			require.EqualValues(t, 33, stats.Recent[0].Times)
			report, err := o.PlanCollect(t.Context(), nil)
			require.NoError(t, err)
			require.Len(t, report.Items, 1, "nothing else is left: %+v", report.Items)
		})
	}
	t.Run("100 different at once", func(t *testing.T) {
		o := newOffload(t, nil)
		var wg sync.WaitGroup
		shortened := make([]team.Shortened, 100)
		text := func(i int) string { return fmt.Sprint(i, "\n", logLines(1500)) }
		for i := range shortened {
			wg.Go(func() { shortened[i], _ = o.ShortenText(context.Background(), text(i), team.Source{}) })
		}
		wg.Wait()
		seen := map[team.Handle]bool{}
		for i, s := range shortened {
			require.False(t, seen[s.Handle])
			seen[s.Handle] = true
			got, err := o.Fetch(t.Context(), s.Handle, team.FetchOptions{Budget: 100_000})
			require.NoError(t, err)
			require.Equal(t, text(i), got.Text, "each has its own")
		}
	})
	t.Run("a damaged file is not what a new text becomes", func(t *testing.T) {
		o := newOffload(t, nil)
		text := logLines(2000)
		s := shorten(t, o, text, team.Source{})
		require.NoError(t, os.WriteFile(s.Path, []byte("damaged"), 0o600))
		again := shorten(t, o, text, team.Source{})
		require.NotEqual(t, s.Handle, again.Handle)
		require.Equal(t, text, readFile(t, again.Path))
	})
}

// onlyRecords hides what else a store can do.
type onlyRecords struct{ team.Records }

// A failure of the store degrades to a stated cut, never to a failed call.
func TestOffloadStoreFailureIsAStatedCut(t *testing.T) {
	broken := errors.New("disk on fire")
	for name, fail := range map[string]func(t *testing.T, o *team.Offload, index *failingRecords){
		"the index": func(t *testing.T, o *team.Offload, index *failingRecords) { index.err = broken },
		"the folder is gone": func(t *testing.T, o *team.Offload, index *failingRecords) {
			require.NoError(t, os.RemoveAll(o.Dir()))
		},
		"closed": func(t *testing.T, o *team.Offload, index *failingRecords) { require.NoError(t, o.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			index := &failingRecords{Records: new(memstore.Store)}
			o := openOffload(t, filepath.Join(t.TempDir(), "offload"), index, nil)
			fail(t, o, index)
			text := "HEAD\n" + logLines(9000) + "TAIL\n"
			out, s, err := o.ShortenResult(t.Context(), team.ToolResult{Tool: "bash", Result: v1(text, nil)})
			require.NoError(t, err)
			require.Error(t, s.Failed)
			require.Empty(t, s.Handle)
			got := outputOf(t, out.Result)
			require.Equal(t, s.Text, got)
			require.Contains(t, got, "HEAD")
			require.Contains(t, got, "TAIL")
			require.Contains(t, got, fmt.Sprintf("%d bytes of it are cut and could not be kept", s.Size-s.Shown))
			require.NotContains(t, got, "tm://")
			require.LessOrEqual(t, team.EstimateTokens(got), 4000)
			require.Greater(t, team.EstimateTokens(got), 2000, "as much as the threshold allows")
			stream, err := o.ShortenReader(t.Context(), strings.NewReader(text), team.Source{})
			require.NoError(t, err)
			require.Equal(t, s.Text, stream.Text)
			again, _, err := o.ShortenResult(t.Context(), out)
			require.NoError(t, err)
			require.Equal(t, out, again, "once is enough")
			index.err = nil
			if stats, err := o.Stats(t.Context(), 0); err == nil {
				require.EqualValues(t, 2, stats.Degraded)
				require.Error(t, stats.LastError)
			}
		})
	}
	t.Run("a context that ended", func(t *testing.T) {
		o := newOffload(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, s, err := o.ShortenResult(ctx, team.ToolResult{Tool: "bash", Result: v1(logLines(9000), nil)})
		require.NoError(t, err)
		require.ErrorIs(t, s.Failed, context.Canceled)
	})
}

type failingRecords struct {
	team.Records
	err error
}

func (f *failingRecords) Get(ctx context.Context, key string) (team.Record, error) {
	if f.err != nil {
		return team.Record{}, f.err
	}
	return f.Records.Get(ctx, key)
}

func (f *failingRecords) Put(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
	if f.err != nil {
		return "", f.err
	}
	return f.Records.Put(ctx, key, value, prev)
}

// A stream of any length takes constant memory.
func TestOffloadStreams(t *testing.T) {
	o := newOffload(t, nil)
	const size = 64 << 20
	s, err := o.ShortenReader(t.Context(), io.LimitReader(endless{}, size), team.Source{})
	require.NoError(t, err)
	require.NotEmpty(t, s.Handle)
	require.EqualValues(t, size, s.Size)
	fi, err := os.Stat(s.Path)
	require.NoError(t, err)
	require.EqualValues(t, size, fi.Size())
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = o.ShortenReader(b.Context(), io.LimitReader(endless{}, 16<<20), team.Source{})
		}
	}).AllocedBytesPerOp()
	require.Less(t, allocated, int64(2<<20), "bytes for 16 MiB")

	t.Run("a short one is the text", func(t *testing.T) {
		got, err := o.ShortenReader(t.Context(), strings.NewReader("a few words"), team.Source{})
		require.NoError(t, err)
		require.Equal(t, "a few words", got.Text)
		got, err = o.ShortenReader(t.Context(), strings.NewReader(""), team.Source{})
		require.NoError(t, err)
		require.Empty(t, got.Text)
	})
	t.Run("an error of the reader offloads nothing", func(t *testing.T) {
		before := len(storedFiles(t, o))
		broken := errors.New("pipe broken")
		_, err := o.ShortenReader(t.Context(), io.MultiReader(strings.NewReader(logLines(9000)), errorReader{broken}), team.Source{})
		require.ErrorIs(t, err, broken)
		require.Len(t, storedFiles(t, o), before)
		all, err := os.ReadDir(o.Dir())
		require.NoError(t, err)
		require.Len(t, all, before+1, "no temporary file is left")
	})
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "0123456789 abcdef\n"[i%18]
	}
	return len(p), nil
}

type errorReader struct{ err error }

func (e errorReader) Read([]byte) (int, error) { return 0, e.err }

// v1 makes a result as a tool of OpenCode 1.18 returns it.
func v1(output string, metadata map[string]any) json.RawMessage {
	if metadata == nil {
		metadata = map[string]any{"exit": 0, "truncated": false}
	}
	raw, err := json.Marshal(map[string]any{"title": "a command", "output": output, "metadata": metadata})
	if err != nil {
		panic(err)
	}
	return raw
}

func outputOf(tb testing.TB, raw json.RawMessage) string {
	tb.Helper()
	var v struct{ Output string }
	require.NoError(tb, json.Unmarshal(raw, &v))
	return v.Output
}

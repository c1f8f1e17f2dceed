package team_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// samples are large texts of each class.
func samples() map[team.Class]string {
	var json, csv, code, log, report strings.Builder
	json.WriteString(`{"version": 3, "rows": [`)
	csv.WriteString("id,name,\"a, b\",score\n")
	code.WriteString("package main\n\nimport \"fmt\"\n\n")
	for i := range 2000 {
		if i > 0 {
			json.WriteString(", ")
		}
		fmt.Fprintf(&json, `{"id": %d, "name": "n%d"}`, i, i)
		fmt.Fprintf(&csv, "%d,name %d,\"x, y\",%d\n", i, i, i*7)
		fmt.Fprintf(&code, "// F%d adds.\nfunc F%d(a, b int) int {\n\tif a > b {\n\t\treturn a\n\t}\n\treturn a + b + %d\n}\n\n", i, i, i)
		level := "INFO"
		if i == 700 || i == 900 {
			level = "ERROR"
		} else if i%100 == 1 {
			level = "WARN"
		}
		fmt.Fprintf(&log, "2026-08-01T10:00:%02d.%03dZ %-5s request %d done in 3 ms\n", i%60, i%1000, level, i)
	}
	json.WriteString(`], "owner": {"name": "x"}, "last": "TAIL"}`)
	report.WriteString("STATUS: done\n\nCHANGES: none\n\nFINDINGS:\n\n")
	for i := range 40 {
		fmt.Fprintf(&report, "## Section %d\n\n%s\n\n- point %d of the facts\n", i, strings.Repeat("Prose that explains at length what everybody knows already. ", 12), i)
		if i == 20 {
			report.WriteString("\n| package | tests | failing |\n|---|---|---|\n")
			for j := range 12 {
				fmt.Fprintf(&report, "| pkg%d | %d | 0 |\n", j, j*3)
			}
			report.WriteString("\n")
		}
	}
	report.WriteString("\nEVIDENCE: go test ./...\nHANDOFF: the reviewer is next\n")
	return map[team.Class]string{
		team.ClassJSON: json.String(), team.ClassCSV: csv.String(), team.ClassCode: code.String(), team.ClassLog: log.String(),
		team.ClassReport: report.String(), team.ClassText: logLines(4000),
		team.ClassBinary:  "\x7fELF" + strings.Repeat("\x00\x01\x02", 20_000) + "\xEE\xEE",
		team.ClassUnknown: strings.Repeat("QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo", 1500),
	}
}

// The class is found by name first, then by content.
func TestOffloadClasses(t *testing.T) {
	o := newOffload(t, nil)
	for class, text := range samples() {
		require.Equal(t, class, shorten(t, o, text, team.Source{}).Class)
	}
	for name, want := range map[string]team.Class{
		"a/b.JSON": team.ClassJSON, `C:\x\y.csv`: team.ClassCSV, "main.go": team.ClassCode, "x.log": team.ClassLog, "photo.png": team.ClassBinary,
		"readme.md": team.ClassText, "noext": team.ClassText, "x.unheardof": team.ClassText, "": team.ClassText,
	} {
		require.Equal(t, want, shorten(t, o, logLines(3000), team.Source{Name: name}).Class, name)
	}
	require.Equal(t, team.ClassReport, shorten(t, o, samples()[team.ClassReport], team.Source{Name: "report.md"}).Class)
	_, err := o.ShortenText(t.Context(), "x", team.Source{Class: "poem"})
	require.ErrorIs(t, err, team.ErrInvalid)
	for what, c := range map[string]struct {
		text string
		want team.Class
	}{
		"a log with brackets":  {strings.Repeat("[2026-08-01 10:00:00] INFO up\n", 3000), team.ClassLog},
		"Chinese prose":        {strings.Repeat("会议记录写得很长", 3000), team.ClassText},
		"prose with commas":    {strings.Repeat("First, we look, then we see.\nThat is, in short, it, and so on, for ever.\n", 2000), team.ClassText},
		"tab separated":        {strings.Repeat("a\tb\tc\n", 9000), team.ClassCSV},
		"JSON lines":           {strings.Repeat(`{"a": 1, "b": "some words"}`+"\n", 3000), team.ClassJSON},
		"Python":               {strings.Repeat("class A:\n    def f(self):\n        return 1\n\n", 3000), team.ClassCode},
		"a table":              {"| a | b |\n|:--|--:|\n" + strings.Repeat("| 1 | 2 |\n", 5000), team.ClassReport},
		"cut in a rune, valid": {strings.Repeat("a", 4095) + strings.Repeat("字 ", 9000), team.ClassText},
	} {
		require.Equal(t, c.want, shorten(t, o, c.text, team.Source{}).Class, what)
	}
}

// fetchTool is what agents of the tests have.
func fetchTool(string) team.AgentTools { return team.AgentTools{Fetch: "tm_fetch"} }

// parts takes a preview apart: what is shown, and the lines behind it.
func parts(tb testing.TB, s team.Shortened) (body, frame string) {
	tb.Helper()
	at := strings.LastIndex(s.Text, fmt.Sprintf("[%d bytes cut of ", s.Size-s.Shown))
	require.GreaterOrEqual(tb, at, 0, s.Text)
	return strings.TrimSuffix(s.Text[:at], "\n"), s.Text[at:]
}

// A folder with a path as long as any makes the preview longer, and leaves something
// of the text.
func TestOffloadPreviewWithALongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("0123456789/", 30))
	require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o700))
	o := openOffload(t, dir, new(memstore.Store), nil)
	s := shorten(t, o, samples()[team.ClassText], team.Source{})
	body, frame := parts(t, s)
	require.Contains(t, frame, s.Path)
	require.Contains(t, body, "line 1")
	require.InDelta(t, 24, team.EstimateTokens(body), 6)
}

// Each class shows head, tail and its structure, within 80 tokens or what else the
// options say; reports within 1600.
func TestOffloadPreviews(t *testing.T) {
	for class, wants := range map[team.Class][]string{
		team.ClassJSON:    {`{"version": 3`, `"TAIL"}`, "object of 4 keys", "version scalar (1 B)", "rows array (2000 items, "},
		team.ClassCSV:     {"id,name,", "1999,name 1999", "2000 rows x 4 columns"},
		team.ClassCode:    {"package main", "return a + b + 1999", "2001 signatures", "1: package main"},
		team.ClassLog:     {"2026-08-01T10:00:00", "request 1999 done", "ERROR 2, WARN 20, INFO 1978", "701: 2026-08-01T"},
		team.ClassText:    {"line 1 of", "line 4000 of"},
		team.ClassBinary:  {"7f 45 4c 46", "ee ee"},
		team.ClassUnknown: {"QUJDREVG", "VVldYWVo"},
	} {
		t.Run(string(class), func(t *testing.T) {
			for _, budget := range []int{team.DefaultPreviewTokens, 250} {
				o := openOffload(t, shortDir(t), new(memstore.Store), &team.OffloadOptions{PreviewTokens: budget, Tools: fetchTool})
				s := shorten(t, o, samples()[class], team.Source{})
				body, frame := parts(t, s)
				t.Logf("%d + %d tokens:\n%s", team.EstimateTokens(body), team.EstimateTokens(frame), s.Text)
				// What is shown has 24 tokens at least, so a longer path than most makes it more.
				require.LessOrEqual(t, team.EstimateTokens(s.Text), max(budget, team.EstimateTokens(frame)+24), "the lines behind it included")
				require.Contains(t, body, "cut ...]")
				for _, want := range wants {
					if budget > team.DefaultPreviewTokens { // enough for all that there is to say
						require.Contains(t, body, want)
					}
				}
				require.Contains(t, body, wants[0][:4], "the head")
				tail := strings.TrimSpace(samples()[class])
				if tail = tail[len(tail)-4:]; class == team.ClassBinary {
					tail = " ee"
				}
				require.Contains(t, body, tail, "the tail")
			}
		})
	}
	t.Run("report", func(t *testing.T) {
		o := newOffload(t, nil)
		text := samples()[team.ClassReport]
		s := shorten(t, o, text, team.Source{})
		body, _ := parts(t, s)
		require.LessOrEqual(t, team.EstimateTokens(s.Text), 1600)
		require.Greater(t, team.EstimateTokens(body), 800, "what fits is shown")
		for _, want := range []string{"STATUS: done\n", "CHANGES: none\n", "FINDINGS:\n", "\nEVIDENCE: go test ./...\nHANDOFF: the reviewer is next"} {
			require.Contains(t, body, want, "the skeleton")
		}
		_, table, _ := strings.Cut(text, "| package |")
		table, _, _ = strings.Cut(table, "\n\n")
		require.Contains(t, body, "| package |"+table, "whole tables")
		for i := range 40 {
			require.Contains(t, body, fmt.Sprintf("## Section %d\n", i))
			require.Contains(t, body, fmt.Sprintf("- point %d of the facts", i), "prose pays, points stay")
		}
		require.Contains(t, body, "lines cut ...]")
	})
	t.Run("a table that does not fit", func(t *testing.T) {
		o := newOffload(t, nil)
		s := shorten(t, o, "STATUS: done\n\n| a | b |\n|---|---|\n"+strings.Repeat("| some | cells |\n", 5000)+"\nHANDOFF: x\n", team.Source{})
		body, _ := parts(t, s)
		require.LessOrEqual(t, team.EstimateTokens(s.Text), 1600)
		require.Contains(t, body, "| a | b |\n|---|---|\n| some | cells |\n")
		require.Regexp(t, `\[\.\.\. 4\d\d\d lines cut \.\.\.\]\n`, body)
		require.Contains(t, body, "HANDOFF: x")
	})
	t.Run("a plain log is never taken for a report", func(t *testing.T) {
		o := newOffload(t, nil)
		s := shorten(t, o, strings.Repeat("2026-08-01 10:00:00 INFO status ok | 5 | 6\n", 5000), team.Source{})
		require.Equal(t, team.ClassLog, s.Class)
	})
	t.Run("what the name promises and the content is not", func(t *testing.T) {
		o := newOffload(t, nil)
		for _, class := range []team.Class{team.ClassJSON, team.ClassCSV, team.ClassCode, team.ClassLog, team.ClassReport, team.ClassBinary} {
			for what, text := range samples() {
				s := shorten(t, o, text, team.Source{Class: class})
				require.NotEmpty(t, s.Handle, "%s as %s", what, class)
			}
		}
		s := shorten(t, o, samples()[team.ClassJSON][:30_000], team.Source{})
		require.Contains(t, s.Text, "not whole JSON")
	})
	t.Run("code that a tool numbered", func(t *testing.T) {
		o := newOffload(t, nil)
		var b strings.Builder
		for i, line := range strings.Split(samples()[team.ClassCode], "\n") {
			fmt.Fprintf(&b, "%05d| %s\n", i+1, line)
		}
		s := shorten(t, o, b.String(), team.Source{Name: "main.go"})
		require.Contains(t, s.Text, "2001 signatures")
	})
}

// A preview takes linear time, whatever the text.
func FuzzOffloadPreview(f *testing.F) {
	for _, text := range samples() {
		f.Add(text[:3000], 20)
	}
	f.Add("| a |\n|---|\n|\n||\n<a>\n</a>\nSTATUS:\n**STATUS**: x", 10)
	f.Add("<subagent sessionID=\"ses_a\" state=\"completed\" description=\"x\">\nSTATUS: x\n</subagent>", 10)
	f.Add("<task id='a' state='b'>\r\n<summary>s</summary>\r\n<task_result>\r\n{}", 10)
	f.Add("task_id: a (b)\n\n<task_result>\nx\n\n<task_metadata>\nsession_id: a\n</task_metadata>", 10)
	f.Add("\r\n\r\n12: func\nfunc (\npub(", 30)
	o := newOffload(f, &team.OffloadOptions{Thresholds: map[team.Class]int{"text": 1, "log": 1, "json": 1, "csv": 1, "code": 1, "binary": 1, "unknown": 1, "report": 1}})
	f.Fuzz(func(t *testing.T, text string, budget int) {
		text = strings.Repeat(text, 1+4000/(len(text)+1))
		for _, class := range []team.Class{"", "text", "log", "json", "csv", "code", "binary", "unknown", "report"} {
			s, err := o.ShortenText(t.Context(), text, team.Source{Class: class})
			if err != nil || s.Failed != nil {
				t.Fatal(err, s.Failed)
			}
			if !s.Cut() {
				continue
			}
			if raw, err := json.Marshal(s.Text); err != nil || !utf8.ValidString(s.Text) || strings.Contains(string(raw), `\u0000`) {
				t.Fatalf("%q", s.Text)
			}
			body, frame := parts(t, s)
			limit := max(80, 26+team.EstimateTokens(frame)) // the path may be a long one
			if s.Class == team.ClassReport {
				limit = 1600
			}
			if e, verdict := new(team.EnvelopeMatcher).Match(team.EnvelopeInput{Text: text, Tool: "task"}); verdict == team.EnvelopeMatched {
				limit += 80 + 2*len(e.Session) // the host's tags stay whole
			}
			if n := team.EstimateTokens(s.Text); n > limit || s.Shown < 0 || s.Shown > s.Size {
				t.Fatalf("%d tokens, %d of %d bytes shown: %q", n, s.Shown, s.Size, body)
			}
		}
	})
}

// What a preview says in numbers is so, however little room there is: a number that is cut
// would be another one.
func TestPreviewNumbersAreWhole(t *testing.T) {
	numbers := regexp.MustCompile(`(?:string|array) \((\d+)`)
	found := 0
	for budget := 60; budget < 160; budget++ {
		text := `{"` + strings.Repeat("first ", 1+budget%7) + `":"` + strings.Repeat("x", 1<<20) + `","second":"` + strings.Repeat("y", 12_345) + `","third":[` + strings.Repeat("1,", 9_876) + `1]}`
		s := shorten(t, newOffload(t, &team.OffloadOptions{PreviewTokens: budget}), text, team.Source{Class: team.ClassJSON})
		for _, m := range numbers.FindAllStringSubmatch(s.Text, -1) {
			require.Contains(t, []string{"1048578", "12347", "9877"}, m[1], s.Text)
			found++
		}
	}
	require.NotZero(t, found)
}

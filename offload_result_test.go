package team_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

func result(tool, raw string) team.ToolResult {
	return team.ToolResult{Tool: tool, Session: "ses_1", Agent: "build", Call: "call_1", Result: json.RawMessage(raw)}
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// The three shapes are rewritten once and marked, and nothing else in them is touched.
func TestOffloadKnownShapes(t *testing.T) {
	long := logLines(3000)
	for name, c := range map[string]struct {
		raw    string
		stored string
		keeps  []string // what must be in the rewritten result byte for byte
		text   func(t *testing.T, raw json.RawMessage) string
	}{
		"1.18, its own tools": {
			raw:    `{ "title": "Counts < > \u00e9" , "output": ` + quoted(long) + `, "metadata": {"exit": 0,  "big": 12345678901234567890, "truncated": false}, "attachments": [ {"a": 1.0} ] }`,
			stored: long, keeps: []string{`"title":"Counts < > \u00e9"`, `"exit":0`, `"big":12345678901234567890`, `"attachments":[ {"a": 1.0} ]`},
			text: func(t *testing.T, raw json.RawMessage) string { return outputOf(t, raw) },
		},
		"MCP on 1.18": {
			raw:    `{"content":[{"type":"text","text":` + quoted(long) + `,"annotations":{"a": 1}}],"isError":false}`,
			stored: long, keeps: []string{`"annotations":{"a": 1}`, `"isError":false`}, text: firstPart,
		},
		"2.0, parts": {
			raw:    `{"content":[{"type":"file","url":"x<y"},{"type":"text","text":` + quoted(long) + `},{"type":"text","text":"the last part"},{"type":"file", "n": 1}],"output":{"typed": [1,2]},"metadata":{"a":1}}`,
			stored: long + "\nthe last part", keeps: []string{`{"type":"file","url":"x<y"}`, `{"type":"file", "n": 1}`, `"output":{"typed": [1,2]}`, `"a":1`}, text: firstPart,
		},
		"2.0, a string": {
			raw:    `{"content":` + quoted(long) + `,"output":{"typed": true},"metadata":null}`,
			stored: long, keeps: []string{`"output":{"typed": true}`},
			text: func(t *testing.T, raw json.RawMessage) string {
				var v struct{ Content string }
				require.NoError(t, json.Unmarshal(raw, &v))
				return v.Content
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffload(t, nil)
			out, s, err := o.ShortenResult(t.Context(), result("bash", c.raw))
			require.NoError(t, err)
			require.NotEmpty(t, s.Handle)
			require.Equal(t, c.stored, readFile(t, s.Path))
			require.Equal(t, s.Text, c.text(t, out.Result))
			for _, keep := range c.keeps {
				require.Contains(t, string(out.Result), keep)
			}
			var v struct {
				Metadata struct {
					Truncated  bool
					OutputPath string
					TM         struct {
						Handle team.Handle
						SHA256 string
						Size   int64
					}
				}
			}
			require.NoError(t, json.Unmarshal(out.Result, &v))
			require.True(t, v.Metadata.Truncated, "the host must not cut again")
			require.Equal(t, s.Path, v.Metadata.OutputPath)
			require.Equal(t, s.Handle, v.Metadata.TM.Handle)
			require.Equal(t, s.SHA256, v.Metadata.TM.SHA256)

			again, s2, err := o.ShortenResult(t.Context(), out)
			require.NoError(t, err)
			require.Equal(t, out, again, "once is enough")
			require.False(t, s2.Cut())

			small := strings.Replace(c.raw, quoted(long), `"small"`, 1)
			out, _, err = o.ShortenResult(t.Context(), result("bash", small))
			require.NoError(t, err)
			require.Equal(t, small, string(out.Result), "a small result passes byte for byte")
		})
	}
}

func firstPart(t *testing.T, raw json.RawMessage) string {
	var v struct {
		Content []struct{ Type, Text string }
	}
	require.NoError(t, json.Unmarshal(raw, &v))
	for _, p := range v.Content {
		if p.Type == "text" {
			return p.Text
		}
	}
	return ""
}

// Many parts that are small alone are judged together, as the host judges them.
func TestOffloadPartsAreJudgedTogether(t *testing.T) {
	o := newOffload(t, nil)
	part := `{"type":"text","text":` + quoted(logLines(100)) + `}`
	out, s, err := o.ShortenResult(t.Context(), result("x", `{"content":[`+strings.Repeat(part+",", 30)+part+`]}`))
	require.NoError(t, err)
	require.NotEmpty(t, s.Handle)
	var v struct{ Content []any }
	require.NoError(t, json.Unmarshal(out.Result, &v))
	require.Len(t, v.Content, 1)
}

// Unknown shapes pass byte for byte and are counted by shape.
func TestOffloadUnknownShapesPass(t *testing.T) {
	o := newOffload(t, nil)
	long := quoted(logLines(3000))
	shapes := map[string]string{
		long:                                "string",
		`[` + long + `]`:                    "array",
		`null`:                              "null",
		``:                                  "nothing",
		`{"output":`:                        "no JSON",
		`{"text":` + long + `}`:             "{text:string}",
		`{"output":` + long + `}`:           "{output:string}",
		`{"content":{"text":` + long + `}}`: "{content:object}",
		`{"content":[` + long + `]}`:        "{content:array}",
		`{"content":[{"text":` + long + `}],"metadata":{}}`:                   "{content:array,metadata:object}",
		`{"content":[{"type":"text","text":5},{"x":` + long + `}]}`:           "{content:array}",
		`{"title":"x","output":{"a":` + long + `},"metadata":{}}`:             "{metadata:object,output:object,title:string}",
		`{"title":"x","output":` + long + `,"metadata":[]}`:                   "{metadata:array,output:string,title:string}",
		`{"error":{"message":"x"},"content":` + long + `,"output":1}`:         "{content:string,error:object,output:number}",
		`{"title":"x","output":` + long + `,"output":"y","metadata":{}}`:      "object",
		`{"title":"x","output":` + long + `,"metadata":{}} {"and":"another"}`: "no JSON",
	}
	for raw := range shapes {
		out, s, err := o.ShortenResult(t.Context(), result("x", raw))
		require.NoError(t, err)
		require.Equal(t, raw, string(out.Result))
		require.False(t, s.Cut())
	}
	stats, err := o.Stats(t.Context(), 0)
	require.NoError(t, err)
	want := map[string]int64{}
	for _, name := range shapes {
		want[name]++
	}
	require.Equal(t, want, stats.Unknown)
	require.Empty(t, storedFiles(t, o))

	for i := range 500 { // a tool that answers with a new shape each time
		_, _, _ = o.ShortenResult(t.Context(), result("x", fmt.Sprintf(`{"k%d%s":1}`, i, strings.Repeat("x", 1<<10))))
	}
	stats, err = o.Stats(t.Context(), 0)
	require.NoError(t, err)
	require.LessOrEqual(t, len(stats.Unknown), 65)
	for name := range stats.Unknown {
		require.Less(t, len(name), 400)
	}
}

// Half a surrogate pair, and bytes that are no UTF-8, are in the file as they were.
func TestOffloadResultsLoseNothing(t *testing.T) {
	o := newOffload(t, nil)
	pad := strings.Repeat("words and words\n", 2000)
	raw := `{"title":"x","output":"` + "A\\ud83dB\\ud83d\\ude42C\\u00e9\\n\\/\xff" + strings.ReplaceAll(pad, "\n", `\n`) + `","metadata":{}}`
	_, s, err := o.ShortenResult(t.Context(), result("x", raw))
	require.NoError(t, err)
	require.NotEmpty(t, s.Handle)
	require.Equal(t, "A\xed\xa0\xbdB🙂Cé\n/\xff"+pad, readFile(t, s.Path))
}

// A result that the host already cut is taken over from its outputPath.
func TestOffloadTakesOverWhatTheHostCut(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "tool-output")
	require.NoError(t, os.MkdirAll(folder, 0o700))
	secret := filepath.Join(t.TempDir(), "tool_secret")
	require.NoError(t, os.WriteFile(secret, []byte("SECRET "+logLines(5000)), 0o600))
	whole := "HEAD\n" + logLines(20_000) + "TAIL\n"
	name := filepath.Join(folder, "tool_22b39082a001yr7n6w5x1WCnpa")
	require.NoError(t, os.WriteFile(name, []byte(whole), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "notes"), []byte(whole), 0o600))
	require.NoError(t, os.Symlink(secret, filepath.Join(folder, "tool_link")))
	require.NoError(t, os.Symlink(filepath.Dir(secret), filepath.Join(folder, "tool_dir")))
	require.NoError(t, os.Mkdir(filepath.Join(folder, "tool_folder"), 0o700))
	_ = mkfifo(filepath.Join(folder, "tool_fifo")) // elsewhere it is not there
	left := logLines(2000)                         // what the host left

	run := func(t *testing.T, opts team.OffloadOptions, raw json.RawMessage) (team.ToolResult, team.Shortened, *team.Offload) {
		o := newOffload(t, &opts)
		out, s, err := o.ShortenResult(t.Context(), team.ToolResult{Tool: "bash", Result: raw})
		require.NoError(t, err)
		return out, s, o
	}
	cut := func(p any) map[string]any { return map[string]any{"truncated": true, "outputPath": p} }

	t.Run("whole and bit exact", func(t *testing.T) {
		_, s, o := run(t, team.OffloadOptions{HostOutput: []string{t.TempDir(), folder}}, v1(left, cut(name)))
		require.True(t, s.TakenOver)
		require.Equal(t, whole, readFile(t, s.Path))
		require.Equal(t, o.Dir(), filepath.Dir(s.Path), "copied in: the host's own goes after a week")
		require.Contains(t, s.Text, "HEAD")
		require.Contains(t, s.Text, "TAIL")
		stats, err := o.Stats(t.Context(), 1)
		require.NoError(t, err)
		require.EqualValues(t, 1, stats.TakenOver)
	})
	t.Run("also where the rest that the host left is small", func(t *testing.T) {
		_, s, _ := run(t, team.OffloadOptions{HostOutput: []string{folder}}, v1("19999\n20000\n", cut(name)))
		require.True(t, s.TakenOver)
	})
	t.Run("2.0", func(t *testing.T) {
		raw := `{"content":[{"type":"text","text":` + quoted(left) + `}],"output":1,"metadata":{"truncated":true,"outputPath":` + quoted(name) + `}}`
		_, s, _ := run(t, team.OffloadOptions{HostOutput: []string{folder}}, json.RawMessage(raw))
		require.True(t, s.TakenOver)
	})
	for what, c := range map[string]struct {
		opts team.OffloadOptions
		raw  json.RawMessage
	}{
		"no folder is trusted":      {team.OffloadOptions{}, v1(left, cut(name))},
		"another folder":            {team.OffloadOptions{HostOutput: []string{folder}}, v1(left, cut(secret))},
		"out of the folder":         {team.OffloadOptions{HostOutput: []string{folder}}, v1(left, cut(folder+"/../"+filepath.Base(filepath.Dir(secret))+"/tool_secret"))},
		"a link":                    {team.OffloadOptions{HostOutput: []string{folder}}, v1(left, cut(filepath.Join(folder, "tool_link")))},
		"a folder that is a link":   {team.OffloadOptions{HostOutput: []string{folder}}, v1(left, cut(filepath.Join(folder, "tool_dir", "tool_secret")))},
		"a folder":                  {team.OffloadOptions{HostOutput: []string{folder}}, v1(left, cut(filepath.Join(folder, "tool_folder")))},
		"a named pipe":              {team.OffloadOptions{HostOutput: []string{folder}}, v1(left, cut(filepath.Join(folder, "tool_fifo")))},
		"not a name of the host's":  {team.OffloadOptions{HostOutput: []string{folder}}, v1(left, cut(filepath.Join(folder, "notes")))},
		"a path that is none":       {team.OffloadOptions{HostOutput: []string{folder}}, v1(left, cut("tool_x"))},
		"a path of another type":    {team.OffloadOptions{HostOutput: []string{folder}}, v1(left, cut(5))},
		"a zero byte":               {team.OffloadOptions{HostOutput: []string{folder}}, v1(left, cut(name+"\x00"))},
		"gone":                      {team.OffloadOptions{HostOutput: []string{folder}}, v1(left, cut(filepath.Join(folder, "tool_gone")))},
		"too large":                 {team.OffloadOptions{HostOutput: []string{folder}, MaxHostOutput: 1000}, v1(left, cut(name))},
		"the path is in a text":     {team.OffloadOptions{HostOutput: []string{folder}}, v1(left+"\nFull output saved to: "+name+"\n", map[string]any{"truncated": true})},
		"the host did not cut":      {team.OffloadOptions{HostOutput: []string{folder}}, v1(left, map[string]any{"truncated": false, "outputPath": name})},
		"an MCP server's own words": {team.OffloadOptions{HostOutput: []string{folder}}, json.RawMessage(`{"content":[{"type":"text","text":` + quoted(left) + `}],"_meta":{"truncated":true,"outputPath":` + quoted(name) + `}}`)},
	} {
		t.Run("not: "+what, func(t *testing.T) {
			out, s, _ := run(t, c.opts, c.raw)
			require.False(t, s.TakenOver)
			require.NotEmpty(t, s.Handle, "what the host left is shortened")
			require.NotContains(t, readFile(t, s.Path), "SECRET")
			require.NotContains(t, string(out.Result), "SECRET")
			require.NotContains(t, readFile(t, s.Path), "line 20000 ")
			if bytes.Contains(c.raw, []byte(`"truncated":true`)) && what != "an MCP server's own words" {
				require.Contains(t, s.Text, "the host had cut it before", "the preview does not claim to lead to the whole")
			}
		})
	}
	t.Run("if it cannot be stored, the host's cut stays", func(t *testing.T) {
		index := &failingRecords{Records: new(memstore.Store)}
		o := openOffload(t, filepath.Join(t.TempDir(), "offload"), index, &team.OffloadOptions{HostOutput: []string{folder}})
		index.err = os.ErrPermission
		raw := v1(left, cut(name))
		out, s, err := o.ShortenResult(t.Context(), team.ToolResult{Tool: "bash", Result: raw})
		require.NoError(t, err)
		require.Error(t, s.Failed)
		require.Equal(t, raw, out.Result)
	})
}

// What a real host's hooks saw (OpenCode 1.18.33), in the shapes and sizes that they had.
func TestOffloadHookShapes(t *testing.T) {
	o := newOffload(t, nil)
	envelope := "<task id=\"ses_a\" state=\"completed\">\n<task_result>\nSTATUS: done\nFINDINGS:\n" + logLines(3000) + "</task_result>\n</task>"
	out, s, err := o.ShortenResult(t.Context(), team.ToolResult{Tool: "task", Session: "ses_a", Result: v1(envelope, nil)})
	require.NoError(t, err)
	require.Equal(t, team.ClassReport, s.Class)
	text := outputOf(t, out.Result)
	require.True(t, strings.HasPrefix(text, "<task id=\"ses_a\" state=\"completed\">\n<task_result>\nSTATUS: done\n"), text)
	require.True(t, strings.HasSuffix(text, "</task_result>\n</task>"), "what the host wrapped round an answer stays round it: %s", text)
	small := `{"content": [{"type": "text", "text": "ok wrote"}]}`
	res, _, err := o.ShortenResult(t.Context(), result("team_board_write", small))
	require.NoError(t, err)
	require.Equal(t, small, string(res.Result))
}

// A fetched text is never offloaded again: neither by the tool's name nor, in
// whatever process, by its tag. A text that only looks so is one like any other.
func TestOffloadNeverOffloadsFetchedText(t *testing.T) {
	tools := func(agent string) team.AgentTools {
		if agent == "build" {
			return team.AgentTools{Fetch: "team_tm_fetch"}
		}
		return team.AgentTools{}
	}
	dir, index := filepath.Join(t.TempDir(), "offload"), new(memstore.Store)
	o := openOffload(t, dir, index, &team.OffloadOptions{Tools: tools, OwnTools: []string{"tm_board_read"}})
	s := shorten(t, o, logLines(9000), team.Source{})
	part, err := o.Fetch(t.Context(), s.Handle, team.FetchOptions{Budget: 20_000})
	require.NoError(t, err)
	require.Greater(t, part.Tokens, 8000)
	text := o.FormatFetched(part)

	for _, tool := range []string{"team_tm_fetch", "tm_board_read"} {
		raw := v1(part.Text, nil)
		out, got, err := o.ShortenResult(t.Context(), team.ToolResult{Tool: tool, Agent: "build", Result: raw})
		require.NoError(t, err)
		require.False(t, got.Cut())
		require.Equal(t, raw, out.Result)
	}
	_, got, err := o.ShortenResult(t.Context(), team.ToolResult{Tool: "team_tm_fetch", Agent: "plan", Result: v1(part.Text, nil)})
	require.NoError(t, err)
	require.True(t, got.Cut(), "this agent has no such tool")

	other := openOffload(t, dir, index, nil)
	for _, o := range []*team.Offload{o, other} {
		for _, text := range []string{text, text + "\n"} {
			require.False(t, shorten(t, o, text, team.Source{}).Cut(), "the tag tells")
			stream, err := o.ShortenReader(t.Context(), strings.NewReader(text), team.Source{})
			require.NoError(t, err)
			require.False(t, stream.Cut())
		}
	}
	foreign := newOffload(t, nil)
	tag := text[strings.LastIndex(text, "[tm:"):]
	for what, forged := range map[string]string{
		"more text in front":     "more\n" + text,
		"more text behind":       text + "\nmore",
		"a tag from elsewhere":   logLines(9000) + tag,
		"a made-up tag":          logLines(9000) + "[tm:aaaaaaaaaaaaa]",
		"a letter changed":       strings.Replace(text, "line 7 of", "line 8 of", 1),
		"the beginning of a tag": logLines(9000) + "[tm:",
	} {
		require.True(t, shorten(t, o, forged, team.Source{}).Cut(), what)
	}
	require.True(t, shorten(t, foreign, text, team.Source{}).Cut(), "another folder has another key")
	stats, err := o.Stats(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, 2, stats.Own)
	require.Positive(t, stats.Marked)
}

// Results that Accept refuses are neither rewritten nor copied nor counted.
func TestOffloadForeignResults(t *testing.T) {
	o := newOffload(t, &team.OffloadOptions{Accept: func(r team.ToolResult) bool { return r.Session == "ses_ours" }})
	raw := v1(logLines(9000), nil)
	out, _, err := o.ShortenResult(t.Context(), team.ToolResult{Session: "ses_theirs", Result: raw})
	require.NoError(t, err)
	require.Equal(t, raw, out.Result)
	stats, err := o.Stats(t.Context(), 1)
	require.NoError(t, err)
	require.Zero(t, stats.Seen)
	require.Empty(t, storedFiles(t, o))
	out, err = o.AfterTool(t.Context(), team.ToolResult{Session: "ses_ours", Result: raw})
	require.NoError(t, err)
	require.NotEqual(t, raw, out.Result)
}

// Hints name only the tools that the caller says the agent has.
func TestOffloadHints(t *testing.T) {
	for agent, has := range map[string]team.AgentTools{
		"none": {}, "fetch": {Fetch: "tm_fetch"}, "files": {Read: "read", Grep: "grep"}, "all": {Fetch: "tm_fetch", Read: "read", Grep: "grep"},
	} {
		t.Run(agent, func(t *testing.T) {
			o := newOffload(t, &team.OffloadOptions{Tools: func(a string) team.AgentTools {
				require.Equal(t, agent, a)
				return has
			}})
			s := shorten(t, o, strings.Repeat("1234567890 ", 9000), team.Source{Agent: agent})
			_, frame := parts(t, s)
			want := string(s.Handle) + " = " + s.Path
			if has.Fetch != "" {
				want = "tm_fetch " + want
			}
			if has.Read != "" {
				want += " (grep, read)"
			}
			require.True(t, strings.HasSuffix(frame, " tokens: "+want+"]"), frame)
		})
	}
}

func FuzzOffloadResult(f *testing.F) {
	f.Add([]byte(v1(logLines(300), nil)))
	f.Add([]byte(`{"content":[{"type":"text","text":"x"}]}`))
	f.Add([]byte(`{"content":"xx\ud83d","output":1,"metadata":{"truncated":true,"outputPath":"/x/tool_1"}}`))
	f.Add([]byte(`{"title":"a.json","output":"{\"a\":[1,2,{\"b\":\"c\"}]}","metadata":null}`))
	f.Add([]byte("{\"title\":\"a\",\"output\":\"STATUS: done\\n| a | b |\\n|---|---|\\n| \xff | 2 |\",\"metadata\":{}}"))
	dir := f.TempDir()
	o, err := team.OpenOffload(f.Context(), filepath.Join(dir, "offload"), new(memstore.Store), &team.OffloadOptions{
		PreviewTokens: 10, ReportTokens: 12, HostOutput: []string{dir},
		Thresholds: map[team.Class]int{"text": 1, "log": 1, "json": 1, "csv": 1, "code": 1, "binary": 1, "unknown": 1, "report": 1},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for range 40 { // so that even a small seed is worth a preview
			if len(raw) > 2000 {
				break
			}
			raw = bytes.Replace(raw, []byte("x"), []byte("xxxxxxxx words "), 1)
		}
		out, s, err := o.ShortenResult(t.Context(), team.ToolResult{Result: raw})
		if err != nil {
			t.Fatal(err)
		}
		if !s.Cut() {
			if !bytes.Equal(out.Result, raw) {
				t.Fatalf("passed, but not byte for byte: %q became %q", raw, out.Result)
			}
			return
		}
		if s.Failed != nil {
			t.Fatal(s.Failed)
		}
		if !json.Valid(out.Result) {
			t.Fatalf("%q became %q", raw, out.Result)
		}
		again, s2, err := o.ShortenResult(t.Context(), out)
		if err != nil || s2.Cut() || !bytes.Equal(again.Result, out.Result) {
			t.Fatalf("twice: %q, %v", again.Result, err)
		}
		if s.Shown > s.Size || s.Shown < 0 {
			t.Fatalf("shown %d of %d", s.Shown, s.Size)
		}
	})
}

// What stands in for a text is not shortened once more: not by another process, not
// for an agent with other tools, and not when the text was collected. What only
// contains it, or was changed, is a text like any other.
func TestOffloadKnowsItsPreviews(t *testing.T) {
	dir, index := filepath.Join(t.TempDir(), "offload"), new(memstore.Store)
	o := openOffload(t, dir, index, &team.OffloadOptions{Tools: func(agent string) team.AgentTools { return team.AgentTools{Fetch: agent} }})
	strict := openOffload(t, dir, index, &team.OffloadOptions{
		PreviewTokens: 10, ReportTokens: 10, MaxAge: 1, MinAge: 1, Thresholds: map[team.Class]int{"text": 10, "report": 10},
	})
	report := samples()[team.ClassReport]
	var previews []team.Shortened
	for _, agent := range []string{"lead", "reviewer"} {
		s := shorten(t, o, report, team.Source{Agent: agent})
		require.Greater(t, team.EstimateTokens(s.Text), 1000)
		require.Contains(t, s.Text, agent+" tm://")
		previews = append(previews, s)
	}
	check := func() {
		for _, s := range previews {
			for _, text := range []string{s.Text, s.Text + "\n", s.Text + "\r\n"} {
				require.Equal(t, text, shorten(t, strict, text, team.Source{}).Text)
				out, got, err := strict.ShortenResult(t.Context(), team.ToolResult{Result: v1(text, nil)})
				require.NoError(t, err)
				require.False(t, got.Cut())
				require.Equal(t, v1(text, nil), out.Result)
			}
		}
	}
	check()
	s := previews[0]
	for what, forged := range map[string]string{
		"in front": "more\n" + s.Text, "behind": s.Text + "\nmore", "changed": strings.Replace(s.Text, "point 7", "point 8", 1),
		"handles without end": strings.Repeat(string(s.Handle)+" ", 5000), "other handles": s.Text + strings.Repeat(" tm://aaaaaaaaaaaaaaaa", 9),
	} {
		require.True(t, shorten(t, strict, forged, team.Source{}).Cut(), what)
	}
	time.Sleep(2 * time.Millisecond)
	_, err := strict.Collect(t.Context(), nil)
	require.NoError(t, err)
	_, err = strict.Fetch(t.Context(), s.Handle, team.FetchOptions{})
	require.ErrorAs(t, err, new(*team.CollectedError))
	check()
}

package fakehost_test

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team/fakehost"
	"github.com/teamchan/team/internal/transcript"
)

func readText(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.FromSlash(captures + file))
	require.NoError(t, err)
	return string(data)
}

// compare fails with what differs between a capture and an answer.
func compare(t *testing.T, name string, want, got any, folders ...string) {
	t.Helper()
	for _, d := range same(name, newPlain().of(want), newPlain(folders...).of(got)) {
		t.Error(d)
	}
}

// The captures of single answers.
func TestReplayOfAnswers(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".git"), 0o700))
	start := time.Date(2026, 11, 30, 6, 50, 0, 0, time.UTC)
	slow := func(ctx context.Context, turn *fakehost.Turn) (string, error) {
		return "done", turn.Sleep(ctx, time.Minute)
	}
	begin := func(t *testing.T) (*web, string) {
		opts := script(fakehost.V1_18, slow)
		opts.Directory, opts.Start = dir, start
		w := serve(t, open(t, opts))
		return w, at(w.object("POST", "/session", map[string]any{}), "id")
	}
	parts := func(part map[string]any) map[string]any { return map[string]any{"parts": []any{part}} }

	bubble(t, "path, project", func(t *testing.T) {
		w, _ := begin(t)
		compare(t, "path", parse(t, readText(t, "path.json")), w.ok("GET", "/path", nil), dir, "/workspace")
		compare(t, "project", parse(t, readText(t, "project.json")), w.ok("GET", "/project/current", nil), dir, "/workspace")
	})
	bubble(t, "agents", func(t *testing.T) {
		w, _ := begin(t)
		want := parse(t, readText(t, "agents.json")).([]any)
		for _, a := range want {
			a := a.(map[string]any)
			rules := []any{}
			for _, r := range a["permission"].([]any) {
				// Rules about folders of the machine that was captured, which this host does not have.
				if p := at(r, "pattern"); !strings.HasPrefix(p, "/") && !strings.HasPrefix(p, "../") {
					rules = append(rules, r)
				}
			}
			a["permission"] = rules
			if a["hidden"] == nil { // what the captures leave out: the sentences of the host
				a["description"] = transcript.Note
			}
		}
		compare(t, "agents", want, w.ok("GET", "/agent", nil))
	})
	bubble(t, "errors", func(t *testing.T) {
		w, _ := begin(t)
		want := parse(t, readText(t, "errors.json")).(map[string]any)
		body := `{"parts":[{"type":"text","text":"x"}]}`
		for name, send := range map[string][3]string{
			"unknown-session": {"GET", "/session/ses_nope", ""},
			"bad-id":          {"GET", "/session/nope", ""},
			"prompt-unknown":  {"POST", "/session/ses_nope/message", body},
			"bad-body":        {"POST", "/session", `{"title":7}`},
		} {
			status, answer := w.send(send[0], send[1], send[2])
			w := want[name].(map[string]any)
			require.EqualValues(t, w["http"], status, name)
			compare(t, name, parse(t, w["body"].(string)), parse(t, answer))
			delete(want, name)
		}
		require.Empty(t, want, "an error that is not asked for")
	})
	bubble(t, "prompt_async, session status", func(t *testing.T) {
		w, id := begin(t)
		status, answer := w.send("POST", "/session/"+id+"/prompt_async", `{"parts":[{"type":"text","text":"x"}]}`)
		require.Equal(t, http.StatusNoContent, status)
		require.Empty(t, answer)
		require.JSONEq(t, `{"reply":null}`, readText(t, "prompt-async.json"))
		synctest.Wait()
		want, got := parse(t, readText(t, "session-status.json")).(map[string]any), w.object("GET", "/session/status", nil)
		require.Equal(t, []string{id}, slices.Collect(maps.Keys(got)))
		compare(t, "status", slices.Collect(maps.Values(want)), slices.Collect(maps.Values(got)))
	})
	bubble(t, "a synthetic text that nobody answers", func(t *testing.T) {
		w, id := begin(t)
		want := parse(t, readText(t, "synthetic-noreply.json"))
		in := parts(map[string]any{"type": "text", "text": "signal body", "synthetic": true, "metadata": map[string]any{"origin": "plugin"}})
		in["noReply"] = true
		got := map[string]any{"reply": w.ok("POST", "/session/"+id+"/message", in), "messages": w.ok("GET", "/session/"+id+"/message", nil)}
		compare(t, "synthetic", want, got)
		synctest.Wait()
		require.Empty(t, w.object("GET", "/session/status", nil))
	})
	bubble(t, "the stream of all folders", func(t *testing.T) {
		w, _ := begin(t)
		feed := w.tap("/global/event")
		id := at(w.object("POST", "/session", map[string]any{"title": "task-completed"}), "id")
		w.ok("POST", "/session/"+id+"/prompt_async", parts(map[string]any{"type": "text", "text": "x"}))
		synctest.Wait()
		want := readCapture(t, "task-completed.json").all["global_events_sample"].([]any)
		got := []any{}
		for _, f := range feed.seen()[1:] {
			if at(f, "payload", "type") != "sync" { // the capture has only what names its session in properties
				got = append(got, f)
			}
		}
		compare(t, "global", want, got[:len(want)], dir, "/workspace")
		require.Equal(t, "server.connected", at(feed.seen()[0], "payload", "type"))
	})
}

// What hooks of a plugin saw. Which they are is the capture's business; that they have the
// same fields is the host's.
func TestReplayOfHooks(t *testing.T) {
	want := map[bool][]string{} // of execute.after, by whether the tool is an MCP server's
	s := bufio.NewScanner(strings.NewReader(readText(t, "hooks.jsonl")))
	for s.Scan() {
		var line struct {
			K, Tool string
			Keys    []string
			Input   map[string]any
		}
		require.NoError(t, json.Unmarshal(s.Bytes(), &line))
		if line.K == "after" && line.Keys != nil {
			slices.Sort(line.Keys)
			want[strings.HasPrefix(line.Tool, "team_")] = line.Keys
		}
	}
	require.Len(t, want, 2)
	for mcp, keys := range want {
		seen := 0
		_, _, _, err := calls(t, &fakehost.Options{Profile: fakehost.V1_18, Tools: []fakehost.Tool{text("said", mcp)}}, "say", map[string]any{}, func(h *fakehost.Host) {
			h.Tool.After(func(_ context.Context, a *fakehost.AfterTool) error {
				seen++
				require.Equal(t, keys, slices.Sorted(maps.Keys(object(t, a.Result))))
				return nil
			})
		})
		require.NoError(t, err)
		require.Equal(t, 1, seen)
	}
}

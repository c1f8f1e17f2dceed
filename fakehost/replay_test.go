package fakehost_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team/fakehost"
)

// The captures were taken from OpenCode 1.18.33 with a model server that did what the
// prompt spells out. A file is one session with its children and all of their events. What was
// a sentence of the host's own is a note; a text over 1000 bytes is under "texts".
const captures = "testdata/captures/opencode-1.18.33/"

type capturedSession struct {
	Info     map[string]any
	Messages []capturedMessage
}

type capturedMessage struct {
	Info struct {
		ID, Role, Finish string
		Time             struct{ Created, Completed int64 }
		Error            *struct {
			Name string
			Data struct {
				Message         string
				StatusCode      int
				IsRetryable     bool
				ResponseHeaders map[string]string
				ResponseBody    string
				Metadata        map[string]string
			}
		}
	}
	Parts []struct {
		Type, Text, Tool string
		State            struct {
			Input    json.RawMessage
			Output   string
			Metadata struct{ Output string }
			Time     struct{ Start int64 }
		}
		Time struct{ Start, End int64 }
	}
}

type capture struct {
	Prompt   string
	Session  map[string]any
	Messages []capturedMessage
	Children []capturedSession
	Replies  []any
	all      map[string]any
}

func readCapture(t *testing.T, file string) *capture {
	t.Helper()
	data, err := os.ReadFile(filepath.FromSlash(captures + file))
	require.NoError(t, err)
	var all map[string]any
	require.NoError(t, json.Unmarshal(data, &all))
	texts, _ := all["texts"].(map[string]any)
	delete(all, "texts")
	var expand func(v any) any
	expand = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k := range v {
				v[k] = expand(v[k])
			}
		case []any:
			for i := range v {
				v[i] = expand(v[i])
			}
		case string:
			if s, ok := texts[v]; ok {
				return s
			}
		}
		return v
	}
	expand(all)
	data, err = json.Marshal(all)
	require.NoError(t, err)
	c := &capture{all: all}
	require.NoError(t, json.Unmarshal(data, c))
	return c
}

// A player plays the agents of a capture: they say and call what its messages show, and
// take as long.
type player struct {
	c *capture

	mu     sync.Mutex
	parts  map[int]string // our session for each of the capture's: 0 is the session, then its children
	played map[string]int // messages of our session
}

// of returns the messages of the capture's session that plays the part of ours: of its children
// the one with this prompt, since two that begin at once may come in any order.
func (p *player) of(session, prompt string) []capturedMessage {
	if p.parts[0] == session {
		return p.c.Messages
	}
	for i, child := range p.c.Children {
		if ours, taken := p.parts[i+1]; ours == session || !taken && child.Messages[0].Parts[0].Text == prompt {
			p.parts[i+1] = session
			return child.Messages
		}
	}
	return nil
}

// next returns the agent's next message.
func (p *player) next(t *fakehost.Turn) (capturedMessage, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	session := t.Session()
	list := p.of(session, t.Text())
	for p.played[session] < len(list) {
		m := list[p.played[session]]
		p.played[session]++
		if m.Info.Role == "assistant" {
			return m, true
		}
	}
	return capturedMessage{}, false
}

// ours puts the ids of our sessions into a text of the capture.
func (p *player) ours(s string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, id := range p.parts {
		was := p.c.Session["id"]
		if i > 0 {
			was = p.c.Children[i-1].Info["id"]
		}
		s = strings.ReplaceAll(s, was.(string), id)
	}
	return s
}

func (p *player) script(ctx context.Context, t *fakehost.Turn) (string, error) {
	for {
		m, ok := p.next(t)
		if !ok {
			return "", fmt.Errorf("the capture has no further message of session %s", t.Session())
		}
		began := time.Now()
		until := func(ms int64) error {
			return t.Sleep(ctx, time.Until(began.Add(time.Duration(ms-m.Info.Time.Created)*time.Millisecond)))
		}
		if err := t.Open(ctx); err != nil {
			return "", err
		}
		if e := m.Info.Error; e != nil && e.Name != "MessageAbortedError" {
			if err := until(m.Info.Time.Completed); err != nil {
				return "", err
			}
			return "", &fakehost.AgentError{Type: e.Name, Message: e.Data.Message, Status: e.Data.StatusCode, Retryable: e.Data.IsRetryable,
				Headers: e.Data.ResponseHeaders, Body: e.Data.ResponseBody, Metadata: e.Data.Metadata}
		}
		var uses []fakehost.ToolUse
		for _, part := range m.Parts {
			switch part.Type {
			case "text":
				if err := until(part.Time.Start); err != nil {
					return "", err
				}
				if err := t.Say(ctx, p.ours(part.Text)); err != nil {
					return "", err
				}
			case "tool":
				if err := until(part.State.Time.Start); uses == nil && err != nil {
					return "", err
				}
				uses = append(uses, fakehost.ToolUse{Tool: part.Tool, Input: part.State.Input})
			}
		}
		if m.Info.Error != nil && uses == nil { // it was working when it was aborted
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		if uses != nil {
			if _, err := t.CallAll(ctx, uses...); err != nil {
				return "", err
			}
			if err := until(m.Info.Time.Completed); err != nil {
				return "", err
			}
			continue
		}
		return "", until(m.Info.Time.Completed)
	}
}

func TestReplayOfCaptures(t *testing.T) {
	files, err := filepath.Glob(filepath.FromSlash(captures + "*.json"))
	require.NoError(t, err)
	n := 0
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".json")
		c := readAny(t, f)
		if c["events"] == nil {
			continue // see TestReplayOfAnswers
		}
		n++
		if runtime.GOOS == "windows" && slices.ContainsFunc([]string{"bash", "permission"}, func(s string) bool { return strings.HasPrefix(name, s) }) {
			continue // the commands are for a POSIX shell
		}
		bubble(t, name, func(t *testing.T) { replay(t, name) })
	}
	require.Equal(t, 17, n)
}

func readAny(t *testing.T, file string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var out map[string]any
	_ = json.Unmarshal(data, &out) // agents.json is a list
	return out
}

func replay(t *testing.T, name string) {
	c := readCapture(t, name+".json")
	p := &player{c: c, parts: make(map[int]string), played: make(map[string]int)}
	dir, dataDir := t.TempDir(), t.TempDir()
	environment(t, c)
	opts := &fakehost.Options{Profile: fakehost.V1_18, Directory: dir, DataDir: dataDir, Start: time.Date(2026, 11, 30, 6, 50, 0, 0, time.UTC),
		Agents: []fakehost.Agent{{Name: "build", Mode: "primary", Script: p.script}, {Name: "general", Mode: "subagent", Script: p.script},
			{Name: "explore", Mode: "subagent", Script: p.script}}}
	h := open(t, opts)
	w := serve(t, h)
	feed := w.tap("/event")
	body := map[string]any{"title": name}
	if rules, has := c.Session["permission"]; has {
		body["permission"] = rules
	}
	id := at(w.object("POST", "/session", body), "id")
	p.parts[0] = id
	w.ok("POST", "/session/"+id+"/prompt_async", map[string]any{"parts": []any{map[string]any{"type": "text", "text": c.Prompt}}})

	time.Sleep(time.Second)
	synctest.Wait()
	if c.all["abort"] == true {
		require.Equal(t, true, w.ok("POST", "/session/"+id+"/abort", nil))
	}
	got := map[string]any{}
	for _, kind := range []string{"permission", "question"} {
		if c.all[kind+"_requests"] == nil {
			continue
		}
		requests := w.ok("GET", "/"+kind, nil).([]any)
		got[kind+"_requests"] = requests
		got["replies"] = p.reply(w, name, kind, requests)
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	require.Empty(t, w.ok("GET", "/session/status", nil), "still busy")

	got["session"] = w.ok("GET", "/session/"+id, nil)
	got["messages"] = w.ok("GET", "/session/"+id+"/message", nil)
	children := []any{}
	for _, child := range w.ok("GET", "/session/"+id+"/children", nil).([]any) {
		children = append(children, map[string]any{"info": child, "messages": w.ok("GET", "/session/"+at(child, "id")+"/message", nil)})
	}
	got["children"] = children
	feed.cancel()
	<-feed.done

	capturesPlain := newPlain()
	ours := newPlain(dir, "/workspace", dataDir, "/home/user/.local/share/opencode")
	for _, key := range []string{"session", "messages", "children", "permission_requests", "question_requests", "replies"} {
		want, has := c.all[key]
		if !has {
			require.Nil(t, got[key])
			continue
		}
		if key == "replies" {
			want, got[key] = replies(t, want), replies(t, got[key])
		}
		for _, d := range same(name+" "+key, capturesPlain.of(want), ours.of(got[key])) {
			t.Error(d)
		}
	}
	compareEvents(t, name, capturesPlain.of(c.all["events"]).([]any), ours.of(events(feed)).([]any))
}

// reply answers what waits as the capture did.
func (p *player) reply(w *web, name, kind string, requests []any) []any {
	var out []any
	for i := range p.c.Replies {
		path, body := "/"+kind+"/"+at(requests[min(i, len(requests)-1)], "id"), map[string]any{"reply": "once"}
		verb := "/reply"
		switch name {
		case "permission-always":
			body["reply"] = "always"
		case "permission-rejected":
			body["reply"], body["message"] = "reject", "not now"
		case "external-directory":
			body["reply"] = "reject"
		case "question-answered":
			body = map[string]any{"answers": [][]string{{"SQLite", "my own"}}}
		case "question-rejected":
			verb, body = "/reject", nil
		}
		data, err := json.Marshal(body)
		require.NoError(w.t, err)
		status, answer := w.send("POST", path+verb, string(data))
		if status == 200 {
			out = append(out, parse(w.t, answer))
		} else {
			out = append(out, map[string]any{"http": float64(status), "body": answer})
		}
	}
	return out
}

// replies parses the bodies in a list of answers.
func replies(t *testing.T, list any) any {
	for _, r := range list.([]any) {
		if m, ok := r.(map[string]any); ok {
			m["body"] = parse(t, m["body"].(string))
		}
	}
	return list
}

// events returns what a stream had about sessions.
func events(s *tap) any {
	out := []any{}
	for _, f := range s.seen() {
		if p, ok := f["properties"].(map[string]any); ok && p["sessionID"] != nil {
			out = append(out, f)
		}
	}
	return out
}

// environment puts an ls on the PATH that answers as the one of the capture did.
func environment(t *testing.T, c *capture) {
	bin := t.TempDir()
	script := "#!/bin/sh\ncase \"$1\" in\n"
	for _, m := range c.Messages {
		for i, part := range m.Parts {
			var in struct{ Command string }
			if part.Tool != "bash" || json.Unmarshal(part.State.Input, &in) != nil || !strings.HasPrefix(in.Command, "ls ") {
				continue
			}
			output := part.State.Output
			if tail, cut := strings.CutPrefix(part.State.Metadata.Output, "...\n\n"); cut {
				output = strings.Repeat(strings.Repeat("x", 3000)+"\n", 30) + tail // what was cut off
			}
			file := filepath.Join(bin, fmt.Sprint("output", i))
			require.NoError(t, os.WriteFile(file, []byte(output), 0o600))
			script += strings.Fields(in.Command)[1] + ") exec cat '" + file + "';;\n"
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(bin, "ls"), []byte(script+"esac\n"), 0o700))
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}

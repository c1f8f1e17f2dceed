package fakehost_test

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team/fakehost"
)

// What OpenCode 1.18.33 was measured to answer, beside the captures.

func words(s string) map[string]any { return map[string]any{"type": "text", "text": s} }

// notes are the bodies of messages that nobody answers.
func notes(more map[string]any, parts ...any) map[string]any {
	out := map[string]any{"noReply": true, "parts": parts}
	for k, v := range more {
		out[k] = v
	}
	return out
}

func TestWrongRequestsOfGeneration1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, script(fakehost.V1_18, nil))
		w := serve(t, h)
		id := create(t, h)
		s, none := "/session/"+id, "/session/ses_none"
		type wrong struct {
			method, path, body string
			status             int
			tag, name, kind    string
		}
		var all []wrong
		for _, body := range []string{`{"title":7}`, `{"title":null}`, `[]`, `null`, `x`, `{"parentID":"x"}`, `{"model":{"id":"m"}}`, `{"metadata":"x"}`,
			`{"permission":[{"permission":"bash","pattern":"*","action":"maybe"}]}`, `{"permission":[{"permission":"bash"}]}`} {
			all = append(all, wrong{"POST", "/session", body, 400, "BadRequest", "", ""})
		}
		all = append(all, wrong{"POST", s + "/fork", `{"messageID":"x"}`, 400, "BadRequest", "", ""})
		for path, bodies := range map[string][]string{
			"PATCH " + s: {``, `[]`, `{"title":7}`, `{"metadata":"x"}`, `{"time":{"archived":"x"}}`, `{"permission":[{"permission":"bash"}]}`},
			"POST " + s + "/message": {``, `{}`, `{"parts":"x"}`, `{"parts":null}`, `{"parts":["x"]}`, `{"parts":[{"text":"x"}]}`, `{"parts":[{"type":"other"}]}`,
				`{"parts":[{"type":"text"}]}`, `{"parts":[{"type":"file","mime":"text/plain"}]}`, `{"parts":[{"type":"agent"}]}`,
				`{"parts":[{"type":"subtask","prompt":"x"}]}`, `{"parts":[{"type":"text","text":"x","id":"x"}]}`, `{"parts":[],"messageID":"x"}`,
				`{"parts":[],"noReply":"yes"}`, `{"parts":[],"NoReply":"yes"}`, `{"parts":[],"tools":{"bash":"x"}}`, `{"parts":[],"model":{"providerID":"x"}}`},
			"POST " + s + "/prompt_async":      {`{}`},
			"POST " + s + "/command":           {`{"command":"x"}`, `{"arguments":"x"}`},
			"POST " + s + "/summarize":         {`{}`},
			"POST " + s + "/init":              {`{}`},
			"POST " + s + "/shell":             {`{}`, `{"command":"x"}`},
			"POST " + s + "/revert":            {`{}`, `{"messageID":"x"}`},
			"POST /permission/per_x/reply":     {`{}`, `{"reply":"maybe"}`},
			"POST " + s + "/permissions/per_x": {`{"response":"maybe"}`},
			"POST /question/que_x/reply":       {`{}`, `{"answers":["A"]}`},
		} {
			method, path, _ := strings.Cut(path, " ")
			for _, body := range bodies {
				all = append(all, wrong{method, path, body, 400, "", "BadRequest", "Payload"})
			}
			all = append(all, wrong{method, path, `x`, 500, "", "UnknownError", ""})
		}
		all = append(all,
			wrong{"GET", s + "/message?limit=-1", "", 400, "", "BadRequest", "Query"},
			wrong{"GET", s + "/message?limit=x", "", 400, "", "BadRequest", "Query"},
			wrong{"GET", s + "/diff?messageID=x", "", 400, "", "BadRequest", "Query"},
			wrong{"GET", "/session?roots=x", "", 400, "", "BadRequest", "Query"},
			wrong{"GET", s + "/message/x", "", 400, "", "BadRequest", "Params"},
			wrong{"POST", "/permission/x/reply", `{"reply":"once"}`, 400, "", "BadRequest", "Params"},
			wrong{"POST", s + "/permissions/x", `{"response":"once"}`, 400, "", "BadRequest", "Params"},
			wrong{"POST", "/question/x/reply", `{"answers":[]}`, 400, "", "BadRequest", "Params"},
			wrong{"POST", "/question/x/reject", "", 400, "", "BadRequest", "Params"},
			wrong{"POST", none + "/permissions/per_x", `{"response":"once"}`, 404, "", "NotFoundError", ""},
			wrong{"GET", none + "/todo", "", 404, "", "NotFoundError", ""},
			wrong{"POST", none + "/share", "", 404, "", "NotFoundError", ""},
			wrong{"POST", none + "/init", `{"providerID":"p","modelID":"m","messageID":"msg_x"}`, 404, "", "NotFoundError", ""},
			wrong{"POST", s + "/message", `{"parts":[],"agent":"nobody"}`, 500, "", "UnknownError", ""},
			wrong{"POST", s + "/command", `{"command":"nobody","arguments":""}`, 500, "", "UnknownError", ""},
			wrong{"POST", s + "/share", "", 500, "", "UnknownError", ""},
			wrong{"POST", "/experimental/session/x/background", "", 500, "", "UnknownError", ""},
		)
		before := w.ok("GET", s, nil)
		for _, c := range all {
			status, answer := w.send(c.method, c.path, c.body)
			require.Equal(t, c.status, status, "%s %s %s: %s", c.method, c.path, c.body, answer)
			v := parse(t, answer)
			require.Equal(t, []string{c.tag, c.name, c.kind}, []string{at(v, "_tag"), at(v, "name"), at(v, "data", "kind")}, "%s %s %s: %s", c.method, c.path, c.body, answer)
		}
		require.Equal(t, before, w.ok("GET", s, nil), "what is refused changes nothing")
		require.Empty(t, w.ok("GET", s+"/message", nil))

		for media, want := range map[string]int{"": 200, "application/json; charset=utf-8": 200, "APPLICATION/JSON": 200, "text/plain": 415,
			"application/x-www-form-urlencoded": 415, "application/problem+json": 415} {
			var headers []string
			if media != "" {
				headers = []string{"Content-Type", media}
			}
			status, answer := w.send("PATCH", s, `{"title":"x"}`, headers...)
			require.Equal(t, want, status, "%s: %s", media, answer)
		}
	})
}

func TestWhatGeneration1Takes(t *testing.T) {
	bubble(t, "a parent and an agent that it does not know", func(t *testing.T) {
		w := serve(t, open(t, script(fakehost.V1_18, nil)))
		child := w.object("POST", "/session", map[string]any{"parentID": "ses_none", "agent": "nobody"})
		require.Equal(t, "ses_none", child["parentID"])
		require.Equal(t, "nobody", child["agent"])
		answer := w.ok("POST", "/session/"+at(child, "id")+"/message", map[string]any{"parts": []any{words("go")}})
		require.Equal(t, "build", at(answer, "info", "agent"), "a prompt that names no agent is of build, whatever the session's is")
	})
	bubble(t, "limits of a list that are no limits", func(t *testing.T) {
		w := serve(t, open(t, script(fakehost.V1_18, nil)))
		first := at(w.object("POST", "/session", map[string]any{"title": "a"}), "id")
		time.Sleep(time.Second)
		second := at(w.object("POST", "/session", map[string]any{"title": "b"}), "id")
		for query, want := range map[string]int{"limit=-1": 2, "limit=x": 2, "limit=0": 0, "limit=1": 1, "start=x": 2, "path=a": 0} {
			require.Len(t, w.ok("GET", "/session?"+query, nil), want, query)
		}
		time.Sleep(time.Second)
		w.ok("PATCH", "/session/"+first, map[string]any{"title": "c"})
		require.Equal(t, []string{second, first}, ids(w.ok("GET", "/session", nil)), "a title is no change that counts")
		w.ok("PATCH", "/session/"+first, map[string]any{"metadata": map[string]any{"a": 1}})
		require.Equal(t, []string{first, second}, ids(w.ok("GET", "/session", nil)), "the one that was changed last comes first")
		changed := w.object("PATCH", "/session/"+first, map[string]any{"metadata": map[string]any{"b": 2}})
		require.Equal(t, map[string]any{"b": 2.0}, changed["metadata"], "metadata are replaced")
		require.Empty(t, w.ok("GET", "/session/ses_none/diff", nil))
		require.Equal(t, false, w.ok("POST", "/experimental/session/ses_none/background", nil))
	})
	bubble(t, "a page of messages has a link to the next", func(t *testing.T) {
		h := open(t, script(fakehost.V1_18, nil))
		w := serve(t, h)
		id := create(t, h)
		for range 3 {
			w.ok("POST", "/session/"+id+"/message", notes(nil, words("x")))
		}
		_, _, header := w.sendHeader("GET", "/session/"+id+"/message?limit=2", "")
		next := header.Get("X-Next-Cursor")
		require.Equal(t, `<http://host/session/`+id+`/message?limit=2&before=`+next+`>; rel="next"`, header.Get("Link"))
		require.Equal(t, "Link, X-Next-Cursor", header.Get("Access-Control-Expose-Headers"))
		require.Len(t, w.ok("GET", "/session/"+id+"/message?limit=0", nil), 3, "no limit")
	})
	bubble(t, "what a prompt says besides", func(t *testing.T) {
		h := open(t, script(fakehost.V1_18, nil))
		w := serve(t, h)
		id := create(t, h)
		info := w.object("POST", "/session/"+id+"/message", notes(map[string]any{"system": "be short", "variant": "high", "tools": map[string]any{"bash": false, "edit": true},
			"format": map[string]any{"type": "text"}, "model": map[string]any{"providerID": "p", "modelID": "m"}}, words("x")))["info"].(map[string]any)
		require.Equal(t, "be short", info["system"])
		require.Equal(t, map[string]any{"bash": false, "edit": true}, info["tools"])
		require.Equal(t, map[string]any{"type": "text"}, info["format"])
		require.Equal(t, map[string]any{"providerID": "p", "modelID": "m", "variant": "high"}, info["model"])
		s := w.object("GET", "/session/"+id, nil)
		require.Equal(t, []any{map[string]any{"permission": "bash", "pattern": "*", "action": "deny"}, map[string]any{"permission": "edit", "pattern": "*", "action": "allow"}},
			s["permission"], "tools are rules of the session")
		info = w.object("POST", "/session/"+id+"/message", notes(nil, words("y")))["info"].(map[string]any)
		require.Equal(t, map[string]any{"providerID": "p", "modelID": "m"}, info["model"], "the model stays, the variant does not")
	})
	bubble(t, "files and agents come with texts for the model", func(t *testing.T) {
		h := open(t, script(fakehost.V1_18, nil))
		w := serve(t, h)
		id := create(t, h)
		file := filepath.Join(t.TempDir(), "a.txt")
		require.NoError(t, os.WriteFile(file, []byte("hello"), 0o600))
		parts := func(in map[string]any) (types, texts []string) {
			for _, p := range w.object("POST", "/session/"+id+"/message", notes(nil, in))["parts"].([]any) {
				types = append(types, at(p, "type"))
				if p := p.(map[string]any); p["synthetic"] == true {
					texts = append(texts, at(p, "text"))
				}
			}
			return types, texts
		}
		types, texts := parts(map[string]any{"type": "file", "mime": "text/plain", "filename": "a.txt", "url": "file://" + filepath.ToSlash(file)})
		require.Equal(t, []string{"text", "text", "file"}, types)
		require.Equal(t, "hello", texts[1])
		types, texts = parts(map[string]any{"type": "file", "mime": "text/plain", "url": "data:text/plain;base64," + base64.StdEncoding.EncodeToString([]byte("data"))})
		require.Equal(t, []string{"text", "text", "file"}, types)
		require.Equal(t, "data", texts[1])
		types, _ = parts(map[string]any{"type": "file", "mime": "text/plain", "url": "file:///nowhere/at/all"})
		require.Equal(t, []string{"text", "text"}, types, "one that cannot be read is left out")
		image := base64.StdEncoding.EncodeToString([]byte("\x89PNG\x0D\x0A\x1A\x0A"))
		types, _ = parts(map[string]any{"type": "file", "mime": "image/png", "url": "data:image/png;base64," + image})
		require.Equal(t, []string{"file"}, types)
		for _, bad := range []string{"data:image/png;base64,aGVsbG8=", "http://127.0.0.1:1/x.png"} {
			status, answer := w.send("POST", "/session/"+id+"/message", `{"noReply":true,"parts":[{"type":"file","mime":"image/png","url":"`+bad+`"}]}`)
			require.Equal(t, 400, status, bad)
			require.Equal(t, "BadRequest", at(parse(t, answer), "_tag"))
		}
		types, texts = parts(map[string]any{"type": "agent", "name": "general"})
		require.Equal(t, []string{"agent", "text"}, types)
		require.Contains(t, texts[0], "general")
		require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("x", 60<<10)), 0o600))
		_, texts = parts(map[string]any{"type": "file", "mime": "text/plain", "url": "file://" + filepath.ToSlash(file)})
		require.Contains(t, texts[1], "only the first 51200 bytes", "no silent cut")
	})
	bubble(t, "a copy of a copy, without agent, model and rules", func(t *testing.T) {
		h := open(t, script(fakehost.V1_18, nil))
		w := serve(t, h)
		id := at(w.object("POST", "/session", map[string]any{"title": "t", "metadata": map[string]any{"a": 1},
			"permission": []any{map[string]any{"permission": "bash", "pattern": "*", "action": "deny"}}}), "id")
		w.ok("POST", "/session/"+id+"/message", map[string]any{"parts": []any{words("x")}})
		one := w.object("POST", "/session/"+id+"/fork", nil)
		require.Equal(t, "t (fork #1)", one["title"])
		require.Equal(t, map[string]any{"a": 1.0}, one["metadata"])
		for _, field := range []string{"agent", "model", "permission", "summary", "parentID"} {
			require.NotContains(t, one, field)
		}
		require.Len(t, w.ok("GET", "/session/"+at(one, "id")+"/message", nil), 2)
		require.Equal(t, "t (fork #2)", w.object("POST", "/session/"+at(one, "id")+"/fork", map[string]any{})["title"])
	})
}

func working(ctx context.Context, t *fakehost.Turn) (string, error) {
	return "", t.Sleep(ctx, time.Hour)
}

func TestRoutesOfTheUser(t *testing.T) {
	// A real shell is no part of a bubble.
	t.Run("a command of the user is a message, and asks nobody", func(t *testing.T) {
		opts := script(fakehost.V1_18, nil)
		opts.Directory = t.TempDir()
		h := open(t, opts)
		w := serve(t, h)
		id := create(t, h)
		answer := w.object("POST", "/session/"+id+"/shell", map[string]any{"agent": "build", "command": "echo out; echo err >&2; exit 3", "messageID": "msg_mine"})
		require.Equal(t, "msg_mine", at(answer, "info", "parentID"))
		part := answer["parts"].([]any)[0].(map[string]any)
		require.Equal(t, []string{"tool", "bash"}, []string{at(part, "type"), at(part, "tool")})
		state := part["state"].(map[string]any)
		require.Equal(t, []string{"completed", "out\nerr\n", "out\nerr\n"}, []string{at(state, "status"), at(state, "output"), at(state, "metadata", "output")}, "a failure shows in the output only")
		require.Equal(t, map[string]any{"command": "echo out; echo err >&2; exit 3"}, state["input"])
		list := w.ok("GET", "/session/"+id+"/message", nil).([]any)
		require.Len(t, list, 2)
		require.Equal(t, true, list[0].(map[string]any)["parts"].([]any)[0].(map[string]any)["synthetic"])
		w.object("POST", "/session/"+id+"/shell", map[string]any{"agent": "build", "command": "true", "messageID": "msg_mine"})
		list = w.ok("GET", "/session/"+id+"/message", nil).([]any)
		require.Len(t, list, 3, "a used id is no key: its message gets another part")
		require.Len(t, list[0].(map[string]any)["parts"], 2)
		status, answered := w.send("POST", "/session/"+create(t, h)+"/shell", `{"agent":"build","command":"true","messageID":"msg_mine"}`)
		require.Equal(t, 409, status, answered)
		status, answered = w.send("POST", "/session/"+id+"/shell", `{"agent":"nobody","command":"true"}`)
		require.Equal(t, 500, status, answered)
	})
	bubble(t, "a busy session refuses", func(t *testing.T) {
		opts := script(fakehost.V1_18, working)
		opts.Directory = t.TempDir()
		h := open(t, opts)
		w := serve(t, h)
		id := create(t, h)
		prompt(t, h, id, "work")
		synctest.Wait()
		for path, body := range map[string]string{"shell": `{"agent":"build","command":"true"}`, "revert": `{"messageID":"msg_x"}`, "unrevert": `{}`,
			"summarize": `{"providerID":"p","modelID":"m"}`} {
			status, answer := w.send("POST", "/session/"+id+"/"+path, body)
			require.Equal(t, 409, status, answer)
			require.Equal(t, []string{"SessionBusyError", id}, []string{at(parse(t, answer), "_tag"), at(parse(t, answer), "sessionID")})
		}
	})
	bubble(t, "init runs the command of that name", func(t *testing.T) {
		opts := script(fakehost.V1_18, echo)
		opts.Commands = []fakehost.Command{{Name: "init", Template: "write it"}}
		h := open(t, opts)
		w := serve(t, h)
		id := create(t, h)
		require.Equal(t, true, w.ok("POST", "/session/"+id+"/init", map[string]any{"providerID": "p", "modelID": "m", "messageID": "msg_mine"}))
		require.Contains(t, last(t, h, id), "write it")
		require.Equal(t, "msg_mine", at(w.ok("GET", "/session/"+id+"/message/msg_mine", nil), "info", "id"))
	})
	bubble(t, "the caller of a command chooses the message, and an agent where the command has none", func(t *testing.T) {
		opts := script(fakehost.V1_18, echo)
		opts.Commands = []fakehost.Command{{Name: "hi", Template: "hi $ARGUMENTS"}, {Name: "sub", Template: "x", Agent: "general"}}
		h := open(t, opts)
		w := serve(t, h)
		id := create(t, h)
		answer := w.ok("POST", "/session/"+id+"/command", map[string]any{"command": "hi", "arguments": "you", "messageID": "msg_mine", "agent": "plan",
			"model": "p/m", "variant": "high"})
		require.Equal(t, []string{"msg_mine", "plan", "m", "high"}, []string{at(answer, "info", "parentID"), at(answer, "info", "agent"), at(answer, "info", "modelID"), at(answer, "info", "variant")})
		list := w.ok("GET", "/command", nil).([]any)
		require.Equal(t, map[string]any{"name": "hi", "template": "hi $ARGUMENTS", "source": "command", "hints": []any{"$ARGUMENTS"}, "agent": nil, "model": nil, "subtask": nil}, list[0])
		require.Equal(t, "general", at(list[1], "agent"))
	})
	bubble(t, "a foreground child is moved into the background", func(t *testing.T) {
		h := open(t, &fakehost.Options{Profile: fakehost.V1_18, Agents: []fakehost.Agent{
			{Name: "build", Mode: "primary", Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
				if !strings.Contains(t.Text(), "go") {
					return "told", nil
				}
				r, err := t.Dispatch(ctx, "general", "slow", "work")
				return r.Text, err
			}},
			{Name: "general", Mode: "subagent", Script: working}}})
		w := serve(t, h)
		id := create(t, h)
		prompt(t, h, id, "go")
		synctest.Wait()
		require.Equal(t, true, w.ok("POST", "/experimental/session/"+id+"/background", nil))
		synctest.Wait()
		require.Contains(t, last(t, h, id), `state="running"`)
		require.Equal(t, false, w.ok("POST", "/experimental/session/"+id+"/background", nil), "there is none left")
	})
	bubble(t, "a session is not shared", func(t *testing.T) {
		h := open(t, script(fakehost.V1_18, nil))
		id := create(t, h)
		require.Equal(t, id, serve(t, h).object("DELETE", "/session/"+id+"/share", nil)["id"])
	})
}

func TestStoredEventsComeTwiceOnTheGlobalStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, script(fakehost.V1_18, echo))
		w := serve(t, h)
		all, one := w.tap("/global/event"), w.tap("/event")
		id := create(t, h)
		prompt(t, h, id, "go")
		wait(t, h, id)
		synctest.Wait()
		require.Equal(t, "nosniff", all.header.Get("X-Content-Type-Options"))
		var last float64
		var synced int
		frames := all.seen()
		for i, f := range frames {
			sync, ok := f["payload"].(map[string]any)["syncEvent"].(map[string]any)
			if !ok {
				continue
			}
			synced++
			before := frames[i-1]
			require.Equal(t, "sync", at(f, "payload", "type"))
			require.NotContains(t, f["payload"], "id")
			require.Equal(t, []any{before["directory"], before["project"]}, []any{f["directory"], f["project"]})
			payload := before["payload"].(map[string]any)
			require.Equal(t, payload["id"], sync["id"])
			require.Equal(t, at(payload, "type")+".1", sync["type"])
			require.Equal(t, payload["properties"], sync["data"])
			require.Equal(t, id, sync["aggregateID"])
			require.Greater(t, sync["seq"], last)
			last = sync["seq"].(float64)
		}
		require.Greater(t, synced, 5)
		require.Len(t, frames, len(one.seen())+synced, "the other stream has each once")
		for _, typ := range one.types() {
			require.NotEqual(t, "sync", typ)
		}
	})
}

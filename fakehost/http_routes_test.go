package fakehost_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team/fakehost"
)

// What the routes of each generation do, beyond what the captures show.

func ids(list any) (out []string) {
	for _, v := range list.([]any) {
		out = append(out, at(v, "id"))
	}
	return out
}

// questioner asks the user a question, if it is told to, and says what came of it.
func questioner(ctx context.Context, t *fakehost.Turn) (string, error) {
	if t.Text() != "ask" {
		return "ok", nil
	}
	r, err := t.Call(ctx, "question", map[string]any{"questions": []any{map[string]any{"question": "Which?", "header": "Which",
		"options": []any{map[string]any{"label": "a", "description": "A"}, map[string]any{"label": "b", "description": "B"}}}}})
	return r.Text, err
}

func TestRoutesOfGeneration1(t *testing.T) {
	bubble(t, "sessions are made, changed, copied and deleted", func(t *testing.T) {
		w := serve(t, open(t, script(fakehost.V1_18, nil)))
		lead := at(w.object("POST", "/session", map[string]any{"title": "lead"}), "id")
		child := at(w.object("POST", "/session", map[string]any{"parentID": lead, "title": "child",
			"permission": []any{map[string]any{"permission": "edit", "pattern": "*", "action": "deny"}}}), "id")
		require.Equal(t, []string{child}, ids(w.ok("GET", "/session/"+lead+"/children", nil)))
		require.Equal(t, []string{child, lead}, ids(w.ok("GET", "/session", nil)))
		require.Equal(t, []string{lead}, ids(w.ok("GET", "/session?roots=true", nil)))
		require.Equal(t, []string{child}, ids(w.ok("GET", "/session?search=CHI", nil)))
		require.Equal(t, []string{child}, ids(w.ok("GET", "/session?limit=1", nil)))
		changed := w.object("PATCH", "/session/"+child, map[string]any{"title": "other", "time": map[string]any{"archived": 7},
			"permission": []any{map[string]any{"permission": "bash", "pattern": "*", "action": "ask"}}})
		require.Equal(t, "other", changed["title"])
		require.Len(t, changed["permission"], 2, "rules are appended")
		require.EqualValues(t, 7, changed["time"].(map[string]any)["archived"])
		require.NotEqual(t, lead, at(w.object("POST", "/session/"+lead+"/fork", map[string]any{}), "id"))
		require.Equal(t, true, w.ok("DELETE", "/session/"+lead, nil))
		status, _ := w.send("GET", "/session/"+child, "")
		require.Equal(t, 404, status)
		require.Equal(t, true, w.ok("POST", "/session/ses_none/abort", nil), "whatever there was")
	})
	bubble(t, "a message is answered when the turn is over; pages go back from the newest", func(t *testing.T) {
		h := open(t, script(fakehost.V1_18, func(ctx context.Context, t *fakehost.Turn) (string, error) {
			return "re: " + t.Text(), t.Sleep(ctx, time.Second)
		}))
		w := serve(t, h)
		id := create(t, h)
		began := time.Now()
		answer := w.ok("POST", "/session/"+id+"/message", map[string]any{"messageID": "msg_1", "parts": []any{map[string]any{"type": "text", "text": "hello"}}})
		require.Equal(t, time.Second, time.Since(began))
		require.Equal(t, "msg_1", at(answer, "info", "parentID"))
		w.ok("POST", "/session/"+id+"/message", map[string]any{"parts": []any{map[string]any{"type": "text", "text": "again"}}})
		all := w.ok("GET", "/session/"+id+"/message", nil).([]any)
		require.Len(t, all, 4)
		var got []any
		query := "?limit=3"
		for query != "" {
			_, body, header := w.sendHeader("GET", "/session/"+id+"/message"+query, "")
			got = append(parse(t, body).([]any), got...)
			query = ""
			if c := header.Get("X-Next-Cursor"); c != "" {
				query = "?limit=3&before=" + url.QueryEscape(c)
			}
		}
		require.Equal(t, all, got)
		require.Equal(t, all[0], w.ok("GET", "/session/"+id+"/message/msg_1", nil))
		for _, bad := range []string{`{}`, `{"parts":[{"type":"text"}]}`, `{"parts":[{"type":"other"}]}`, `{"parts":[7]}`,
			`{"messageID":"x","parts":[]}`, `{"parts":[{"type":"text","text":"x","id":"x"}]}`} {
			status, _ := w.send("POST", "/session/"+id+"/message", bad)
			require.Equal(t, 400, status, bad)
		}
	})
	bubble(t, "a question is answered, and its answers go to the agent", func(t *testing.T) {
		h := open(t, script(fakehost.V1_18, questioner))
		w := serve(t, h)
		id := create(t, h)
		prompt(t, h, id, "ask")
		synctest.Wait()
		list := w.ok("GET", "/question", nil).([]any)
		require.Len(t, list, 1)
		path := "/question/" + at(list[0], "id")
		status, _ := w.send("POST", path+"/reply", `{}`)
		require.Equal(t, 400, status)
		require.Equal(t, true, w.ok("POST", path+"/reply", map[string]any{"answers": [][]string{{"b"}}}))
		wait(t, h, id)
		require.Contains(t, last(t, h, id), `"Which?"="b"`)
		status, answer := w.send("POST", path+"/reject", "")
		require.Equal(t, 404, status)
		require.Equal(t, "QuestionNotFoundError", at(parse(t, answer), "_tag"))
	})
	bubble(t, "a session goes back to a message, and forward again", func(t *testing.T) {
		opts := script(fakehost.V1_18, nil)
		opts.Directory = t.TempDir()
		h := open(t, opts)
		w := serve(t, h)
		id := create(t, h)
		item := send(t, h, id, fakehost.Prompt{Text: "a"})
		wait(t, h, id)
		require.Equal(t, item.ID, at(w.object("POST", "/session/"+id+"/revert", map[string]any{"messageID": item.ID}), "revert", "messageID"))
		require.NotContains(t, w.object("POST", "/session/"+id+"/unrevert", nil), "revert")
		for _, gone := range []map[string]any{{"messageID": "msg_none"}, {"messageID": item.ID, "partID": "prt_none"}} {
			require.NotContains(t, w.object("POST", "/session/"+id+"/revert", gone), "revert", "what is not there changes nothing")
		}
		require.Empty(t, w.ok("GET", "/session/"+id+"/diff", nil))
		require.Empty(t, w.ok("GET", "/lsp", nil))
		require.Empty(t, w.ok("GET", "/skill", nil))
		require.Empty(t, w.ok("GET", "/command", nil))
	})
	bubble(t, "the older form of a reply", func(t *testing.T) {
		h := open(t, script(fakehost.V1_18, nil))
		w := serve(t, h)
		id := create(t, h)
		a, _, err := h.Permission.Request(t.Context(), fakehost.Ask{Session: id, Action: "external_directory", Resources: []string{"/x"}})
		require.NoError(t, err)
		status, _ := w.send("POST", "/session/"+id+"/permissions/"+a.ID, `{"response":"perhaps"}`)
		require.Equal(t, 400, status)
		require.Len(t, w.ok("GET", "/permission", nil), 1)
		require.Equal(t, true, w.ok("POST", "/session/"+id+"/permissions/"+a.ID, map[string]any{"response": "once"}))
		require.Empty(t, w.ok("GET", "/permission", nil))
	})
	bubble(t, "the document lists every route", func(t *testing.T) {
		w := serve(t, open(t, script(fakehost.V1_18, nil)))
		doc := w.object("GET", "/doc", nil)
		require.Equal(t, fakehost.V1_18.Version, at(doc, "info", "version"))
		for _, r := range realRoutes["v1.18"] {
			require.Contains(t, documented(doc), parameter.ReplaceAllString(r, ":"))
		}
		require.Equal(t, map[string]any{"healthy": true, "version": "1.18.33"}, w.ok("GET", "/global/health", nil))
	})
}

var parameter = regexp.MustCompile(`:\w+|\{\w+\}`)

// documented returns the routes of a document, with a colon for each parameter.
func documented(doc map[string]any) (out []string) {
	for path, methods := range doc["paths"].(map[string]any) {
		for method := range methods.(map[string]any) {
			out = append(out, strings.ToUpper(method)+" "+parameter.ReplaceAllString(path, ":"))
		}
	}
	return out
}

func TestSecondAPIOfGeneration1(t *testing.T) {
	bubble(t, "admission by id, its events, a wait that is refused", func(t *testing.T) {
		h := open(t, script(fakehost.V1_18, nil))
		w := serve(t, h)
		id := create(t, h)
		first, feed := w.tap("/event"), w.tap("/api/event")
		path := "/api/session/" + id
		in := map[string]any{"id": "msg_1", "prompt": map[string]any{"text": "hello"}, "delivery": "steer"}
		admitted := w.object("POST", path+"/prompt", in)
		require.Equal(t, []string{"admittedSeq", "delivery", "id", "prompt", "sessionID", "timeCreated"}, slices.Sorted(maps.Keys(admitted)))
		wait(t, h, id)
		again := w.object("POST", path+"/prompt", in)
		require.Equal(t, admitted, again, "the same text again is the first admission")
		in["prompt"] = map[string]any{"text": "other"}
		data, err := json.Marshal(in)
		require.NoError(t, err)
		status, answer := w.send("POST", path+"/prompt", string(data))
		require.Equal(t, 409, status)
		require.Equal(t, "ConflictError", at(parse(t, answer), "_tag"))
		require.Len(t, w.ok("GET", "/session/"+id+"/message", nil), 2)

		types := []string{"session.next.prompt.admitted", "session.next.prompted", "session.next.step.started", "session.next.text.started",
			"session.next.text.ended", "session.next.step.ended"}
		page := w.ok("GET", path+"/history", nil).(map[string]any)
		require.Equal(t, false, page["hasMore"])
		var got []string
		for _, e := range page["data"].([]any) {
			got = append(got, at(e, "type"))
			durable := e.(map[string]any)["durable"].(map[string]any)
			require.Equal(t, []string{"aggregateID", "seq", "version"}, slices.Sorted(maps.Keys(durable)))
			require.Equal(t, id, durable["aggregateID"])
		}
		require.Equal(t, types, got)
		seq := int(page["data"].([]any)[2].(map[string]any)["durable"].(map[string]any)["seq"].(float64))
		for i, want := range [][]string{{"delivery", "messageID", "prompt"}, {"delivery", "messageID", "prompt"}, {"agent", "assistantMessageID", "model", "snapshot"},
			{"assistantMessageID", "textID"}, {"assistantMessageID", "text", "textID"}, {"assistantMessageID", "cost", "files", "finish", "snapshot", "tokens"}} {
			e := page["data"].([]any)[i].(map[string]any)
			require.Equal(t, []string{"data", "durable", "id", "type"}, slices.Sorted(maps.Keys(e)))
			require.ElementsMatch(t, append(want, "sessionID", "timestamp"), slices.Sorted(maps.Keys(e["data"].(map[string]any))), types[i])
			require.EqualValues(t, map[bool]int{true: 2, false: 1}[i == 5], e["durable"].(map[string]any)["version"], types[i])
		}
		page = w.ok("GET", fmt.Sprintf("%s/history?after=%d&limit=2", path, seq), nil).(map[string]any)
		require.Equal(t, true, page["hasMore"])
		require.Equal(t, types[3], at(page["data"].([]any)[0], "type"))

		<-feed.done // by itself, while the server goes on
		require.Equal(t, append([]string{"server.connected"}, types[:4]...), feed.types())
		synctest.Wait()
		for _, typ := range first.types() {
			require.NotContains(t, typ, "session.next")
		}
		status, answer = w.send("POST", path+"/wait", "")
		require.Equal(t, 503, status)
		require.Equal(t, "ServiceUnavailableError", at(parse(t, answer), "_tag"))
		require.Equal(t, "session.wait", at(parse(t, answer), "service"))
		require.Equal(t, map[string]any{"healthy": true}, w.object("GET", "/api/health", nil))
		status, _ = w.send("POST", "/api/session/ses_none/wait", "")
		require.Equal(t, 404, status)
		for _, query := range []string{"after=x", "after=-1", "limit=0", "limit=x", "limit=101"} {
			status, answer := w.send("GET", path+"/history?"+query, "")
			require.Equal(t, 400, status, query)
			require.Equal(t, []string{"InvalidRequestError", "Query", ""}, []string{at(parse(t, answer), "_tag"), at(parse(t, answer), "kind"), at(parse(t, answer), "field")})
		}
		status, answer = w.send("GET", "/api/session/none/history", "")
		require.Equal(t, 400, status)
		require.Equal(t, []string{"", "sessionID"}, []string{at(parse(t, answer), "kind"), at(parse(t, answer), "field")})
	})
	bubble(t, "a prompt of the first API leaves nothing in the history, and its id is taken", func(t *testing.T) {
		h := open(t, script(fakehost.V1_18, nil))
		w := serve(t, h)
		id := create(t, h)
		send(t, h, id, fakehost.Prompt{ID: "msg_2", Text: "x"})
		wait(t, h, id)
		require.Empty(t, w.ok("GET", "/api/session/"+id+"/history", nil).(map[string]any)["data"])
		status, _ := w.send("POST", "/api/session/"+id+"/prompt", `{"id":"msg_2","prompt":{"text":"x"}}`)
		require.Equal(t, 409, status)
		status, answer := w.send("POST", "/api/session/"+id+"/prompt", `x`)
		require.Equal(t, 500, status)
		require.Equal(t, "UnknownError", at(parse(t, answer), "name"))
		for _, bad := range []string{`{}`, `{"prompt":{}}`, `{"prompt":{"text":"x"},"id":"x"}`, `{"prompt":{"text":"x"},"delivery":"never"}`} {
			status, answer := w.send("POST", "/api/session/"+id+"/prompt", bad)
			require.Equal(t, 400, status, bad)
			require.Equal(t, "InvalidRequestError", at(parse(t, answer), "_tag"))
		}
		status, _ = w.send("POST", "/api/session/ses_none/prompt", `{"prompt":{"text":"x"}}`)
		require.Equal(t, 404, status)
	})
}

func TestRoutesOfGeneration2(t *testing.T) {
	bubble(t, "lists have pages, and a cursor holds its question", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, nil))
		w := serve(t, h)
		lead := create(t, h)
		var want []string
		for range 7 {
			want = append(want, at(w.object("POST", "/api/session", map[string]any{"parentID": lead}), "id"))
		}
		var got []string
		for query := "?order=asc&limit=3&parentID=" + lead; query != ""; {
			page := w.ok("GET", "/api/session"+query, nil).(map[string]any)
			got, query = append(got, ids(page["data"])...), ""
			if next := at(page, "cursor", "next"); next != "" {
				query = "?cursor=" + next
			}
		}
		require.Equal(t, want, got)
		require.Equal(t, []string{lead}, ids(w.ok("GET", "/api/session?parentID=null", nil).(map[string]any)["data"]))

		for i := range 5 {
			send(t, h, lead, fakehost.Prompt{Text: fmt.Sprint(i)})
			wait(t, h, lead)
		}
		all, err := h.Session.Messages(t.Context(), lead, fakehost.MessagePage{})
		require.NoError(t, err)
		for _, order := range []string{"asc", "desc"} {
			got = nil
			for query := "?limit=4&order=" + order; query != ""; {
				page := w.ok("GET", "/api/session/"+lead+"/message"+query, nil).(map[string]any)
				got, query = append(got, ids(page["data"])...), ""
				if next := at(page, "cursor", "next"); next != "" {
					query = "?cursor=" + next
				}
			}
			if order == "desc" {
				slices.Reverse(got)
			}
			require.Len(t, got, len(all))
			for i, m := range all {
				require.Equal(t, m.ID, got[i])
			}
		}
		for _, bad := range []string{"/api/session?cursor=x", "/api/session/" + lead + "/message?cursor=x", "/api/session/" + lead + "/message?limit=201",
			"/api/session?order=up"} {
			status, _ := w.send("GET", bad, "")
			require.Equal(t, 400, status, bad)
		}
	})
	bubble(t, "what is sent waits in the inbox, once for each id", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, nil))
		w := serve(t, h)
		id := create(t, h)
		path := "/api/session/" + id
		in := map[string]any{"id": "msg_1", "text": "note", "description": "d", "metadata": map[string]any{"k": "v"}, "resume": false}
		first := w.object("POST", path+"/synthetic", in)
		require.Equal(t, "note", at(first, "payload", "text"))
		require.Equal(t, "steer", first["delivery"])
		in["text"] = "other"
		require.Equal(t, first, w.object("POST", path+"/synthetic", in))
		status, answer := w.send("POST", path+"/prompt", `{"id":"msg_1","text":"x"}`)
		require.Equal(t, 409, status)
		require.Equal(t, "msg_1", at(parse(t, answer), "resource"))
		require.Nil(t, w.ok("PATCH", path+"/inbox/msg_1", map[string]any{"delivery": "queue"}))
		status, _ = w.send("PATCH", path+"/inbox/msg_1", `{"delivery":"queue"}`)
		require.Equal(t, 409, status)
		require.Len(t, w.ok("GET", path+"/inbox", nil).(map[string]any)["data"], 1)
		require.Nil(t, w.ok("DELETE", path+"/inbox/msg_1", nil))
		require.Empty(t, w.ok("GET", path+"/inbox", nil).(map[string]any)["data"])
		require.Equal(t, id, at(w.object("POST", "/api/session", map[string]any{"id": id}), "id"), "the id adopts the session")
	})
	bubble(t, "a session is interrupted, resumed, changed and removed", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, func(ctx context.Context, t *fakehost.Turn) (string, error) {
			return "ok", t.Sleep(ctx, time.Minute)
		}))
		w := serve(t, h)
		id := create(t, h)
		path := "/api/session/" + id
		require.Equal(t, false, w.object("POST", path+"/interrupt", nil)["interrupted"])
		w.ok("POST", path+"/prompt", map[string]any{"text": "work"})
		synctest.Wait()
		require.Equal(t, map[string]any{"type": "running"}, w.object("GET", "/api/session/active", nil)[id])
		require.Equal(t, true, w.object("POST", path+"/interrupt", nil)["interrupted"])
		require.Nil(t, w.ok("POST", "/api/experimental/session/"+id+"/wait", nil))
		require.Equal(t, "interrupted", w.object("GET", path, nil)["outcome"])
		require.Nil(t, w.ok("PATCH", path, map[string]any{"title": "t", "metadata": map[string]any{"a": 1}, "permissions": []any{}}))
		s := w.object("GET", path, nil)
		require.Equal(t, "t", s["title"])
		require.Equal(t, map[string]any{"a": 1.0}, s["metadata"])
		require.Nil(t, w.ok("POST", path+"/agent", map[string]any{"agent": "plan"}))
		require.Nil(t, w.ok("POST", path+"/model", map[string]any{"model": map[string]any{"id": "m2", "providerID": "p"}}))
		require.Equal(t, "m2", at(w.object("GET", path, nil), "model", "id"))
		w.ok("POST", path+"/compact", map[string]any{})
		require.Nil(t, w.ok("POST", path+"/resume", nil))
		require.NotEmpty(t, w.ok("GET", path+"/context", nil).(map[string]any)["data"])
		status, answer := w.send("POST", path+"/generate", `{"prompt":"x"}`)
		require.Equal(t, 501, status, answer)
		require.Nil(t, w.ok("DELETE", path, nil))
		status, _ = w.send("GET", path, "")
		require.Equal(t, 404, status)
	})
	bubble(t, "a permission is asked for, answered, saved and forgotten", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, nil))
		w := serve(t, h)
		id := create(t, h)
		path := "/api/session/" + id + "/permission"
		ask := map[string]any{"action": "external_directory", "resources": []string{"/x"}, "save": []string{"/*"}}
		asked := w.object("POST", path, ask)
		require.Equal(t, "ask", asked["effect"])
		request := path + "/" + at(asked, "id")
		require.Equal(t, asked["id"], w.object("GET", request, nil)["id"])
		other := create(t, h)
		status, _ := w.send("POST", "/api/session/"+other+"/permission/"+at(asked, "id")+"/reply", `{"reply":"once"}`)
		require.Equal(t, 404, status, "it is another session's")
		status, _ = w.send("POST", request+"/reply", `{"reply":"no"}`)
		require.Equal(t, 400, status)
		require.Nil(t, w.ok("POST", request+"/reply", map[string]any{"reply": "always"}))
		status, answer := w.send("GET", request, "")
		require.Equal(t, 404, status)
		require.Equal(t, "PermissionNotFoundError", at(parse(t, answer), "_tag"))
		require.Equal(t, "allow", w.object("POST", path, ask)["effect"])
		saved := w.ok("GET", "/api/permission/saved", nil).(map[string]any)["data"].([]any)
		require.Len(t, saved, 1)
		require.Nil(t, w.ok("DELETE", "/api/permission/saved/"+at(saved[0], "id"), nil))
		require.Equal(t, "ask", w.object("POST", path, ask)["effect"])
	})
	bubble(t, "a form is filled in", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, questioner))
		w := serve(t, h)
		id := create(t, h)
		prompt(t, h, id, "ask")
		synctest.Wait()
		path := "/api/session/" + id + "/form"
		list := w.ok("GET", path, nil).(map[string]any)["data"].([]any)
		require.Len(t, list, 1)
		path += "/" + at(list[0], "id")
		require.Equal(t, list[0], any(w.object("GET", path, nil)))
		status, answer := w.send("POST", path+"/reply", `{"answer":{"nope":"b"}}`)
		require.Equal(t, 400, status)
		require.Equal(t, "FormInvalidAnswerError", at(parse(t, answer), "_tag"))
		require.Nil(t, w.ok("POST", path+"/reply", map[string]any{"answer": map[string]any{"q0": "b"}}))
		wait(t, h, id)
		status, answer = w.send("POST", path+"/cancel", "")
		require.Equal(t, 409, status)
		require.Equal(t, "FormAlreadySettledError", at(parse(t, answer), "_tag"))
	})
	bubble(t, "a session goes back, is looked at, and runs a command for the user", func(t *testing.T) {
		opts := script(fakehost.V2_0, nil)
		opts.Directory = t.TempDir()
		h := open(t, opts)
		w := serve(t, h)
		id := create(t, h)
		path := "/api/session/" + id
		item := send(t, h, id, fakehost.Prompt{Text: "a"})
		wait(t, h, id)
		require.Equal(t, item.ID, w.object("POST", path+"/revert/stage", map[string]any{"messageID": item.ID})["messageID"])
		require.Nil(t, w.ok("DELETE", path+"/revert", nil))
		w.ok("POST", path+"/revert/stage", map[string]any{"messageID": item.ID})
		require.Nil(t, w.ok("POST", path+"/revert/commit", nil))
		require.Empty(t, w.ok("GET", path+"/message", nil).(map[string]any)["data"])
		require.Nil(t, w.ok("POST", path+"/view", map[string]any{"idle": 7}))
		require.Nil(t, w.ok("POST", path+"/shell", map[string]any{"command": "echo hi"}))
		_, messages := w.send("GET", path+"/message", "")
		require.Contains(t, messages, "hi\\n")
		require.Empty(t, w.ok("GET", path+"/diff", nil).(map[string]any)["data"])
	})
	bubble(t, "agents, folder, version, MCP resources", func(t *testing.T) {
		w := serve(t, open(t, script(fakehost.V2_0, nil)))
		agents := w.ok("GET", "/api/agent?location%5Bdirectory%5D=%2Fother", nil).(map[string]any)
		require.Equal(t, "/other", at(agents, "location", "directory"))
		require.Contains(t, ids(agents["data"]), "general")
		require.Equal(t, fakehost.V2_0.Version, at(w.object("GET", "/api/info", nil), "version"))
		require.Equal(t, "/workspace", at(w.object("GET", "/api/location", nil), "directory"))
		require.Equal(t, map[string]any{"resources": []any{}, "templates": []any{}}, w.object("GET", "/api/mcp/resource", nil))
	})
}

func TestFormsOverHTTP(t *testing.T) {
	bubble(t, "one is created, read and answered by a client", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, nil))
		w := serve(t, h)
		feed := w.tap("/api/event")
		path := "/api/session/" + create(t, h) + "/form"
		in := map[string]any{"id": "frm_mine", "title": "Which?", "metadata": map[string]any{"kind": "mine"}, "fields": []any{map[string]any{"key": "q0", "type": "string",
			"options": []any{map[string]any{"value": "a", "label": "A"}}}}}
		f := w.object("POST", path, in)
		require.Equal(t, []string{"fields", "id", "metadata", "sessionID", "title"}, slices.Sorted(maps.Keys(f)))
		require.Equal(t, "frm_mine", f["id"])
		require.Equal(t, f, w.object("GET", path+"/frm_mine", nil))
		delete(in, "id")
		require.NotEqual(t, "frm_mine", w.object("POST", path, in)["id"])
		synctest.Wait()
		require.Len(t, only(feed.types(), "form.created"), 2)
		for range 2 { // while it waits, and when it is settled
			status, answer := w.send("POST", path, `{"id":"frm_mine","title":"t","fields":[{"key":"q0","type":"string"}]}`)
			require.Equal(t, 409, status, answer)
			require.Equal(t, []string{"ConflictError", "frm_mine"}, []string{at(parse(t, answer), "_tag"), at(parse(t, answer), "resource")})
			w.send("POST", path+"/frm_mine/reply", `{"answer":{"q0":"a"}}`)
		}
		for _, bad := range []string{`{"title":"t"}`, `{"title":"t","fields":[]}`, `{"title":"t","fields":[{"key":"a","type":"date"}]}`, `{"id":"x","title":"t","fields":[{"key":"a","type":"string"}]}`} {
			status, answer := w.send("POST", path, bad)
			require.Equal(t, 400, status, answer)
			require.Equal(t, []string{"InvalidRequestError", "fields"}, []string{at(parse(t, answer), "_tag"), at(parse(t, answer), "field")})
		}
		status, answer := w.send("POST", "/api/session/ses_none/form", `{"title":"t","fields":[{"key":"a","type":"string"}]}`)
		require.Equal(t, 404, status, answer)
	})
}

package fakehost_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team/fakehost"
)

// The routes of the real hosts, as far as they are known. OpenCode 1.18.33 and 2.0.26.
var realRoutes = map[string][]string{
	"v1.18": {
		"GET /session", "POST /session", "GET /session/status", "GET /session/:id", "PATCH /session/:id", "DELETE /session/:id",
		"GET /session/:id/children", "GET /session/:id/todo", "GET /session/:id/diff", "GET /session/:id/message",
		"POST /session/:id/message", "POST /session/:id/prompt_async", "POST /session/:id/command", "POST /session/:id/shell",
		"POST /session/:id/abort", "POST /session/:id/fork", "POST /session/:id/init", "POST /session/:id/share",
		"POST /session/:id/summarize", "POST /session/:id/revert", "POST /session/:id/unrevert", "POST /session/:id/permissions/:x",
		"GET /permission", "POST /permission/:x/reply", "GET /question", "POST /question/:x/reply", "POST /question/:x/reject",
		"GET /event", "GET /global/event", "GET /global/health", "GET /doc", "GET /agent", "GET /project", "GET /path",
		"GET /api/event", "POST /api/session/:id/wait", "POST /api/session/:id/prompt", "GET /api/session/:id/history",
	},
	"v2.0": {
		"GET /api/session", "POST /api/session", "GET /api/session/active", "GET /api/session/:id", "PATCH /api/session/:id",
		"DELETE /api/session/:id", "POST /api/session/:id/fork", "POST /api/session/:id/agent", "POST /api/session/:id/model",
		"POST /api/session/:id/move", "POST /api/session/:id/prompt", "POST /api/session/:id/command", "POST /api/session/:id/synthetic",
		"POST /api/session/:id/shell", "POST /api/session/:id/compact", "POST /api/session/:id/resume", "POST /api/session/:id/interrupt",
		"POST /api/session/:id/background", "POST /api/session/:id/generate", "POST /api/session/:id/view",
		"GET /api/session/:id/context", "GET /api/session/:id/diff", "GET /api/session/:id/inbox", "GET /api/session/:id/message",
		"GET /api/session/:id/message/:x", "DELETE /api/session/:id/inbox/:x", "PATCH /api/session/:id/inbox/:x",
		"POST /api/session/:id/revert/stage", "DELETE /api/session/:id/revert", "POST /api/session/:id/revert/commit",
		"PUT /api/session/:id/environment", "GET /api/session/:id/permission", "POST /api/session/:id/permission",
		"GET /api/session/:id/permission/:x", "POST /api/session/:id/permission/:x/reply", "GET /api/permission/request",
		"GET /api/permission/saved", "DELETE /api/permission/saved/:x", "GET /api/session/:id/form", "POST /api/session/:id/form",
		"GET /api/session/:id/form/:x", "POST /api/session/:id/form/:x/reply", "POST /api/session/:id/form/:x/cancel", "GET /api/event",
		"GET /api/experimental/session/:id/log", "POST /api/experimental/session/import", "POST /api/experimental/session/:id/wait",
		"GET /api/experimental/session/stats", "GET /api/experimental/session/:id/export",
		"GET /api/experimental/session/:id/instructions/entries", "GET /api/agent", "GET /api/plugin", "GET /api/location", "GET /api/info",
		"GET /api/mcp/resource",
	},
}

// What is not served, as the answer says.
var notServed = map[string][]string{
	"v2.0": {"GET /api/experimental/session/:id/export",
		"GET /api/experimental/session/:id/instructions/entries", "GET /api/experimental/session/stats", "GET /api/plugin",
		"POST /api/experimental/session/import", "PUT /api/session/:id/environment"},
}

func TestEveryRouteIsServedOrSaysWhyNot(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		opts := script(p, nil)
		opts.Directory = t.TempDir()
		h := open(t, opts)
		w := serve(t, h)
		var lacks []string
		for _, r := range realRoutes[p.Name] {
			id := create(t, h)
			method, path, _ := strings.Cut(r, " ")
			path = strings.NewReplacer(":id", id, ":x", "per_x").Replace(path)
			if strings.HasSuffix(path, "/event") || strings.HasSuffix(path, "/log") {
				s := w.tap(path)
				require.Contains(t, s.header.Get("Content-Type"), "text/event-stream")
				continue
			}
			status, answer := w.send(method, path, "")
			switch {
			case status == http.StatusNotImplemented && !strings.HasSuffix(path, "/generate"):
				lacks = append(lacks, r)
				require.NotEmpty(t, at(parse(t, answer), "message"), r)
			case status == http.StatusNotFound:
				require.NotEmpty(t, answer, "%s has no route", r)
			case r == "POST /session/:id/share":
				require.Equal(t, http.StatusInternalServerError, status, "as where sharing is disabled")
			default:
				require.NotEqual(t, http.StatusInternalServerError, status, "%s: %s", r, answer)
			}
		}
		slices.Sort(lacks)
		require.Equal(t, notServed[p.Name], lacks)
	})
}

func TestErrorsOverHTTP(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		w := serve(t, open(t, script(p, nil)))
		root := "/session"
		if p.Generation == 2 {
			root = "/api/session"
		}
		id := at(w.object("POST", root, map[string]any{}), "id")
		name := func(answer string) string {
			v := parse(t, answer)
			return at(v, "_tag") + at(v, "name")
		}
		for _, c := range []struct {
			method, path, body string
			status1            int
			name1              string
			status2            int
			name2              string
		}{
			{"GET", root + "/ses_none", "", 404, "NotFoundError", 404, "SessionNotFoundError"},
			{"GET", root + "/none", "", 500, "UnknownError", 400, "InvalidRequestError"},
			{"GET", root + "/" + id + "/message/msg_none", "", 404, "NotFoundError", 404, "MessageNotFoundError"},
			{"POST", root + "/" + id + "/fork", `{"messageID":"x","before":"msg_x"}`, 400, "BadRequest", 404, "MessageNotFoundError"},
			{"POST", root, `{"agent":"nobody","title":7}`, 400, "BadRequest", 400, "InvalidRequestError"},
			{"POST", root, `[]`, 400, "BadRequest", 400, "InvalidRequestError"},
			{"POST", root, `{`, 400, "BadRequest", 400, "InvalidRequestError"},
			{"POST", root, `null`, 400, "BadRequest", 400, "InvalidRequestError"},
			{"POST", root + "/" + id + "/command", `{"command":"x","arguments":"","name":"x"}`, 500, "UnknownError", 404, "CommandNotFoundError"},
			{"GET", root + "/" + id + "/message?limit=-1", "", 400, "BadRequest", 400, "InvalidRequestError"},
			{"GET", root + "/" + id + "/message?before=%3F&cursor=%3F", "", 400, "BadRequest", 400, "InvalidCursorError"},
		} {
			status, answer := w.send(c.method, c.path, c.body)
			want, tag := c.status1, c.name1
			if p.Generation == 2 {
				want, tag = c.status2, c.name2
			}
			require.Equal(t, want, status, "%s %s: %s", c.method, c.path, answer)
			require.Equal(t, tag, name(answer), "%s %s: %s", c.method, c.path, answer)
		}
		for _, path := range []string{"/", "/nothing", root + "//", root + "/" + id + "/nothing", root + "/", "/session/%2e%2e"} {
			status, answer := w.send("PUT", path, "")
			require.Equal(t, 404, status, path)
			require.Empty(t, answer)
		}
		status, answer := w.send("POST", root, `{"title":"`+strings.Repeat("x", 33<<20)+`"}`)
		require.Equal(t, http.StatusRequestEntityTooLarge, status, answer)
	})
}

func TestHandlerFaults(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		opts := script(p, nil)
		var fail error
		opts.Fault = func(context.Context, fakehost.Call) error { return fail }
		h := open(t, opts)
		w := serve(t, h)
		root := map[int]string{1: "/session", 2: "/api/session"}[p.Generation]
		id := create(t, h)
		fail = errors.New("disk on fire")
		status, answer := w.send("GET", root+"/"+id, "")
		require.Equal(t, 500, status)
		require.Contains(t, answer, "disk on fire")
		fail = nil

		require.NoError(t, h.Close())
		status, answer = w.send("GET", root+"/"+id, "")
		require.Equal(t, 503, status, answer)
		require.Equal(t, "ServiceUnavailableError", at(parse(t, answer), "_tag"))
	})
}

func TestAuthentication(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		opts := script(p, nil)
		opts.Password = "secret:with colon"
		h := open(t, opts)
		w := serve(t, h)
		path := map[int]string{1: "/session", 2: "/api/session"}[p.Generation]
		basic := func(user, password string) []string {
			return []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))}
		}
		for _, headers := range [][]string{nil, basic("opencode", "wrong"), basic("other", opts.Password), {"Authorization", "Bearer x"}} {
			status, answer, header := w.sendHeader("GET", path, "", headers...)
			require.Equal(t, 401, status)
			require.Equal(t, `Basic realm="Secure Area"`, header.Get("WWW-Authenticate"))
			require.Equal(t, "UnauthorizedError", at(parse(t, answer), "_tag"))
		}
		status, _ := w.send("GET", path, "", basic("opencode", opts.Password)...)
		require.Equal(t, 200, status)
		token := url.QueryEscape(base64.StdEncoding.EncodeToString([]byte("opencode:" + opts.Password)))
		status, _ = w.send("GET", path+"?auth_token="+token, "")
		require.Equal(t, 200, status)
		status, _ = w.send("GET", path+"?auth_token=%21", "")
		require.Equal(t, 401, status)
		status, _ = w.send("GET", "/nothing", "")
		require.Equal(t, 401, status, "before anything is told")
	})
}

func TestJSONIsNotEscaped(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		opts := script(p, func(context.Context, *fakehost.Turn) (string, error) {
			return `<a href="x">&\u003c</a>` + "\u2028", nil
		})
		h := open(t, opts)
		w := serve(t, h)
		path := map[int]string{1: "/session/", 2: "/api/session/"}[p.Generation]
		feed := w.tap(map[int]string{1: "/event", 2: "/api/event"}[p.Generation])
		id := create(t, h)
		prompt(t, h, id, "go")
		wait(t, h, id)
		synctest.Wait()
		_, answer := w.send("GET", path+id+"/message", "")
		want := `<a href=\"x\">&\\u003c</a>` + "\u2028"
		require.Contains(t, answer, want)
		feed.mu.Lock()
		defer feed.mu.Unlock()
		require.Contains(t, strings.Join(feed.lines, "\n"), want)
	})
}

func TestStreams(t *testing.T) {
	path := func(p fakehost.Profile) string { return map[int]string{1: "/event", 2: "/api/event"}[p.Generation] }
	bubble(t, "generation 1 beats with an event every ten seconds", func(t *testing.T) {
		w := serve(t, open(t, script(fakehost.V1_18, nil)))
		feed, all := w.tap("/event"), w.tap("/global/event")
		time.Sleep(35 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"server.connected", "server.heartbeat", "server.heartbeat", "server.heartbeat"}, feed.types())
		require.Equal(t, "server.heartbeat", at(all.seen()[3], "payload", "type"))
	})
	bubble(t, "generation 2 beats with a comment every fifteen seconds", func(t *testing.T) {
		w := serve(t, open(t, script(fakehost.V2_0, nil)))
		feed := w.tap("/api/event")
		time.Sleep(35 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"server.connected"}, feed.types())
		require.NotContains(t, feed.seen()[0], "created")
		feed.mu.Lock()
		defer feed.mu.Unlock()
		require.Equal(t, []string{": heartbeat", ": heartbeat"}, feed.lines[1:])
		require.Equal(t, "no-cache, no-transform", feed.header.Get("Cache-Control"))
	})
	t.Run("a cut is in the middle of a frame", func(t *testing.T) {
		each(t, func(t *testing.T, p fakehost.Profile) {
			h := open(t, script(p, nil))
			feed := serve(t, h).tap(path(p))
			create(t, h)
			synctest.Wait()
			n := len(feed.seen())
			h.Inject(fakehost.FaultStreamCut)
			create(t, h)
			<-feed.done
			require.ErrorIs(t, feed.err, io.ErrUnexpectedEOF)
			require.Len(t, feed.seen(), n)
			last := feed.lines[len(feed.lines)-1]
			require.Equal(t, `data: {"id":"evt_`, last)
		})
	})
	t.Run("an overflow cuts between frames", func(t *testing.T) {
		each(t, func(t *testing.T, p fakehost.Profile) {
			h := open(t, script(p, nil))
			w := serve(t, h)
			feed := w.tap(path(p))
			synctest.Wait()
			h.Inject(fakehost.FaultOverflow)
			create(t, h)
			<-feed.done
			require.ErrorIs(t, feed.err, io.ErrUnexpectedEOF)
			require.Equal(t, []string{"server.connected"}, feed.types())
			h.Clear()
			again := w.tap(path(p)) // the others and new ones go on
			create(t, h)
			synctest.Wait()
			require.Contains(t, again.types(), "session.created")
		})
	})
	t.Run("the host's end ends them", func(t *testing.T) {
		each(t, func(t *testing.T, p fakehost.Profile) {
			h := open(t, script(p, nil))
			feed := serve(t, h).tap(path(p))
			synctest.Wait()
			require.NoError(t, h.Close())
			<-feed.done
			require.ErrorIs(t, feed.err, io.EOF)
			want := []string{"server.connected"}
			if p.Generation == 1 {
				want = append(want, "server.instance.disposed")
			}
			require.Equal(t, want, feed.types())
		})
	})
	bubble(t, "generation 1 filters by folder", func(t *testing.T) {
		dir := t.TempDir()
		opts := script(fakehost.V1_18, nil)
		opts.Directory = dir
		w := serve(t, open(t, opts))
		here, other, all := w.tap("/event"), w.tap("/event?directory=%2Fother"), w.tap("/global/event")
		status, answer := w.send("POST", "/session", "{}", "x-opencode-directory", "%2Fother")
		require.Equal(t, 200, status)
		require.Equal(t, "/other", at(parse(t, answer), "directory"))
		synctest.Wait()
		require.Equal(t, []string{"server.connected"}, here.types())
		require.Equal(t, []string{"server.connected", "session.created"}, other.types())
		require.Equal(t, "/other", at(all.seen()[1], "directory"))
		require.Len(t, w.ok("GET", "/session?directory=%2Fother", nil), 1)
		require.Empty(t, w.ok("GET", "/session?directory=%2Felse", nil))
	})
}

func TestLogOverHTTP(t *testing.T) {
	bubble(t, "after is exclusive, log.synced comes behind it, follow goes on", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, nil))
		w := serve(t, h)
		id := create(t, h)
		prompt(t, h, id, "go")
		wait(t, h, id)
		path := "/api/experimental/session/" + id + "/log"
		all := w.tap(path)
		<-all.done
		require.ErrorIs(t, all.err, io.EOF)
		types := all.types()
		require.Equal(t, "session.created", types[0])
		require.Equal(t, "log.synced", types[len(types)-1])
		seq := all.seen()[1]["durable"].(map[string]any)["seq"]
		rest := w.tap(fmt.Sprintf("%s?after=%v&follow=true", path, seq))
		synctest.Wait()
		require.Equal(t, types[2:], rest.types())
		prompt(t, h, id, "more")
		wait(t, h, id)
		synctest.Wait()
		require.Contains(t, rest.types()[len(types)-2:], "session.execution.succeeded")

		for _, query := range []string{"?after=x", "?after=-1", "?follow=maybe"} {
			status, _ := w.send("GET", path+query, "")
			require.Equal(t, 400, status, query)
		}
		status, _ := w.send("GET", "/api/experimental/session/ses_none/log", "")
		require.Equal(t, 404, status)
	})
}

func TestTwoWindowsOverHTTP(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		path := filepath.Join(t.TempDir(), "host.db")
		root := map[int]string{1: "/session", 2: "/api/session"}[p.Generation]
		a, b := openAt(t, path, script(p, nil)), openAt(t, path, script(p, nil))
		wa, wb := serve(t, a), serve(t, b)
		feed := wb.tap(map[int]string{1: "/event", 2: "/api/event"}[p.Generation])
		id := at(wa.object("POST", root, map[string]any{"title": "shared"}), "id")
		send(t, a, id, fakehost.Prompt{Text: "hello"})
		wait(t, a, id)
		require.Equal(t, "shared", at(wb.object("GET", root+"/"+id, nil), "title"))
		_, messages := wb.send("GET", root+"/"+id+"/message", "")
		require.Contains(t, messages, "hello")
		synctest.Wait()
		require.Equal(t, []string{"server.connected"}, feed.types(), "the feed is of one process")

		// A restart: what is stored is there, what was asked for is not.
		ask := fakehost.Ask{Session: id, Action: "edit", Resources: []string{"x"}}
		require.NoError(t, a.Session.Update(t.Context(), id, fakehost.SessionChange{Permissions: []fakehost.Rule{rule("edit", "*", "ask")}}))
		_, _, err := a.Permission.Request(t.Context(), ask)
		require.NoError(t, err)
		pending := map[int]string{1: "/permission", 2: "/api/permission/request"}[p.Generation]
		_, waits := wa.send("GET", pending, "")
		require.Contains(t, waits, "per_")
		require.NoError(t, a.Close())
		wc := serve(t, openAt(t, path, script(p, nil)))
		require.Equal(t, "shared", at(wc.object("GET", root+"/"+id, nil), "title"))
		_, waits = wc.send("GET", pending, "")
		require.NotContains(t, waits, "per_")
		_, after := wc.send("GET", root+"/"+id+"/message", "")
		require.JSONEq(t, messages, after)
	})
}

// FuzzHandler: whatever comes in, the handler answers, and does not panic.
func FuzzHandler(f *testing.F) {
	for _, name := range []string{"v1.18", "v2.0"} {
		for _, r := range realRoutes[name] {
			method, path, _ := strings.Cut(r, " ")
			f.Add(name == "v1.18", method, strings.NewReplacer(":id", "ses_1", ":x", "per_1").Replace(path), `{"parts":[{"type":"text","text":"x"}],"text":"x"}`)
		}
	}
	f.Add(true, "GET", "/session/%00?limit=1e9&cursor=%ff", "\xff")
	f.Add(true, "POST", "/session/SES/message", `{"messageID":"msg_1","parts":[{"id":"prt_1","type":"text","text":""},{"type":"file"}]}`)
	f.Add(false, "POST", "/api/session", `{"id":"ses_1","permissions":[{"action":"","resource":"","effect":"no"}],"metadata":[]}`)
	f.Add(false, "POST", "/api/session/SES/permission", `{"action":"edit","resources":["a"],"id":"per1","source":{}}`)
	f.Fuzz(func(t *testing.T, old bool, method, path, body string) {
		opts := script(fakehost.V2_0, nil)
		if old {
			opts = script(fakehost.V1_18, nil)
		}
		h := open(t, opts)
		s, err := h.Session.Create(t.Context(), fakehost.NewSession{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // what ends a stream
		defer cancel()
		u, err := url.ParseRequestURI(strings.ReplaceAll(path, "SES", s.ID))
		if err != nil {
			return
		}
		r := (&http.Request{Method: method, URL: u, Header: http.Header{"X-Opencode-Directory": {body}}, Body: io.NopCloser(strings.NewReader(body))}).WithContext(ctx)
		answer := httptest.NewRecorder()
		h.Handler().ServeHTTP(answer, r)
		require.GreaterOrEqual(t, answer.Code, 200)
		require.LessOrEqual(t, answer.Code, 599)
	})
}

package opencode_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team"
	"github.com/teamchan/team/opencode"
)

func TestInbox(t *testing.T) {
	s := v2(t)
	s.json("GET /api/session/{id}/inbox", `{"data":[{"id":"msg_1","sessionID":"`+string(ses)+`","type":"synthetic","payload":{"text":"hello","metadata":{"source":"subagent"}},"delivery":"queue","time":{"created":5}},
		{"id":"msg_2","type":"new kind","payload":{},"delivery":"someday"}]}`)
	s.json("DELETE /api/session/{id}/inbox/{item}", `204 `)
	s.json("PATCH /api/session/{id}/inbox/{item}", `409 {"_tag":"ConflictError","message":"not pending"}`)
	h := s.dial(t, nil)
	got, err := h.Inbox(t.Context(), ses)
	require.NoError(t, err)
	require.Equal(t, "msg_1 synthetic hello queue", fmt.Sprintf("%s %s %s %s", got[0].ID, got[0].Type, got[0].Text, got[0].Delivery))
	require.JSONEq(t, `{"source":"subagent"}`, string(got[0].Metadata))
	require.Equal(t, "new kind someday", fmt.Sprintf("%s %s", got[1].Type, got[1].Delivery), "unknown values are carried by name")
	require.NoError(t, h.CancelInbox(t.Context(), ses, "msg_1/../../x"))
	require.Equal(t, "DELETE /api/session/"+string(ses)+"/inbox/msg_1%2F..%2F..%2Fx", s.last(), "an id is no path")
	require.ErrorIs(t, h.CancelInbox(t.Context(), ses, ".."), team.ErrInvalid)
	require.ErrorIs(t, h.SetInboxDelivery(t.Context(), ses, "msg_1", team.DeliverySteer), team.ErrConflict)
	require.Equal(t, `PATCH /api/session/`+string(ses)+`/inbox/msg_1 {"delivery":"steer"}`, s.last())
}

func TestInterrupt(t *testing.T) {
	for answer, want := range map[string]team.InterruptVerdict{
		`{"interrupted":true}`: team.InterruptStopped, `{"data":{"interrupted":false}}`: team.InterruptIdle,
		`{"interrupted":null}`: team.InterruptUnknown, `{}`: team.InterruptUnknown, `204 `: team.InterruptUnknown, `{"interrupted":"yes"}`: team.InterruptUnknown,
	} {
		s := v2(t)
		s.json("GET /api/session/{id}", `{"data":{"id":"`+string(ses)+`"}}`)
		s.json("POST /api/session/{id}/interrupt", answer)
		got, err := s.dial(t, nil).Interrupt(t.Context(), ses)
		require.NoError(t, err)
		require.Equal(t, want, got, answer)
	}
	for status, want := range map[string]team.InterruptVerdict{`{}`: team.InterruptIdle, `{"` + string(ses) + `":{"type":"busy"}}`: team.InterruptUnknown, `500 {}`: team.InterruptUnknown} {
		s := v1(t)
		s.json("GET /session/{id}", `{"id":"`+string(ses)+`","directory":"/own"}`)
		s.json("GET /session/status", status)
		s.json("POST /session/{id}/abort", `true`)
		got, err := s.dial(t, &opencode.Options{Directory: "/other"}).Interrupt(t.Context(), ses)
		require.NoError(t, err)
		require.Equal(t, 1, s.count("GET /session/status?directory=%2Fown"), "the session's own directory is asked")
		require.Equal(t, "POST /session/"+string(ses)+"/abort?directory=%2Fown", s.last())
		require.Equal(t, want, got, status)
	}
	t.Run("1.18 says true for a session that does not exist, so it is looked for first", func(t *testing.T) {
		s := v1(t)
		s.json("GET /session/{id}", `404 {"name":"NotFoundError","data":{}}`)
		s.json("POST /session/{id}/abort", `true`)
		_, err := s.dial(t, nil).Interrupt(t.Context(), ses)
		require.ErrorIs(t, err, team.ErrNotFound)
		require.Zero(t, s.count("POST"))
	})
}

func TestChildrenV2(t *testing.T) {
	s := v2(t)
	s.json("GET /api/session/{id}", `{"data":{"id":"`+string(ses)+`"}}`)
	s.mux.HandleFunc("GET /api/session", func(w http.ResponseWriter, r *http.Request) {
		switch r.FormValue("cursor") {
		case "":
			require.Equal(t, string(ses), r.FormValue("parentID"))
			fmt.Fprintf(w, `{"data":[{"id":"ses_1","parentID":%q},{"id":"ses_stranger","parentID":"ses_x"},{"no":"id"}],"cursor":{"next":"2"}}`, ses)
		case "2":
			fmt.Fprintf(w, `{"data":[{"id":"ses_2","parentID":%q,"location":{"directory":"/d"},"outcome":"exploded","time":{"idle":7}}],"cursor":{"next":null}}`, ses)
		}
	})
	got, err := s.dial(t, nil).Children(t.Context(), ses)
	require.NoError(t, err)
	require.Len(t, got, 2, "what is no child of the session is left out")
	require.Equal(t, "ses_2 /d exploded", fmt.Sprintf("%s %s %s", got[1].ID, got[1].Directory, got[1].Outcome))

	t.Run("a list that comes back to its first page ends", func(t *testing.T) {
		s := v2(t)
		s.json("GET /api/session/{id}", `{"data":{"id":"`+string(ses)+`"}}`)
		s.json("GET /api/session", `{"data":[],"cursor":{"next":"again"}}`)
		_, err := s.dial(t, nil).Children(t.Context(), ses)
		require.ErrorIs(t, err, team.ErrCorrupt)
	})
}

func TestMessagesV2(t *testing.T) {
	s := v2(t)
	s.mux.HandleFunc("GET /api/session/{id}/message", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("cursor") == "" {
			require.Equal(t, "desc", r.FormValue("order"))
			_, _ = io.WriteString(w, `{"data":[{"id":"msg_4","type":"idle","outcome":"succeeded","time":{"created":4}},
				{"id":"msg_3","type":"assistant","agent":"build","content":[{"type":"text","text":"a"},{"type":"tool","id":"c1","name":"shell","state":{"status":"completed","content":[{"type":"text","text":"out"}]}},
				{"type":"tool","name":"edit","state":{"status":"error","error":{"message":"no"}}}],"error":{"type":"aborted","message":"m"},"time":{"created":3,"completed":4}}],"cursor":{"next":"n"}}`)
			return
		}
		_, _ = io.WriteString(w, `{"data":[{"id":"msg_2","type":"synthetic","text":"note","time":{"created":2}},{"id":"msg_1","type":"user","text":"hi","time":{"created":1}}],"cursor":{}}`)
	})
	h := s.dial(t, nil)
	got, err := h.Messages(t.Context(), ses, 0)
	require.NoError(t, err)
	require.Len(t, got, 4)
	require.Equal(t, "user hi false", fmt.Sprint(got[0].Type, " ", got[0].Text(), " ", got[0].Parts[0].Synthetic))
	require.Equal(t, "synthetic note true", fmt.Sprint(got[1].Type, " ", got[1].Text(), " ", got[1].Parts[0].Synthetic))
	require.Equal(t, "aborted", got[2].Error)
	require.Equal(t, "shell completed out", got[2].Parts[1].Tool+" "+got[2].Parts[1].Status+" "+got[2].Parts[1].Output)
	require.Equal(t, "edit error no", got[2].Parts[2].Tool+" "+got[2].Parts[2].Status+" "+got[2].Parts[2].Output)
	require.Contains(t, string(got[3].Raw), "succeeded")
	got, err = h.Messages(t.Context(), ses, 3)
	require.NoError(t, err)
	require.Equal(t, "msg_2 msg_3 msg_4", got[0].ID+" "+got[1].ID+" "+got[2].ID)
}

func TestPermissionsV2(t *testing.T) {
	s := v2(t)
	s.json("GET /api/permission/request", `{"location":{},"data":[{"id":"per_1","sessionID":"`+string(ses)+`","action":"shell","resources":["ls"],"save":["ls *"],"new":1}]}`)
	s.json("POST /api/session/{id}/permission/{request}/reply", `204 `)
	h := s.dial(t, nil)
	got, err := h.Permissions(t.Context())
	require.NoError(t, err)
	require.Equal(t, "shell [ls] [ls *]", fmt.Sprint(got[0].Action, " ", got[0].Resources, " ", got[0].Save))
	require.Contains(t, string(got[0].Raw), `"new":1`)
	require.NoError(t, h.ReplyPermission(t.Context(), got[0], opencode.ReplyReject, "try another way"))
	require.Equal(t, `POST /api/session/`+string(ses)+`/permission/per_1/reply {"message":"try another way","reply":"reject"}`, s.last())
	require.ErrorIs(t, h.ReplyPermission(t.Context(), got[0], "yes", ""), team.ErrInvalid)
	require.ErrorIs(t, h.ReplyPermission(t.Context(), opencode.PermissionRequest{ID: "x", Session: ses}, opencode.ReplyOnce, ""), team.ErrNotFound)
	_, err = h.Evaluate(t.Context(), ses, "edit", "a")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "take Rules")
}

func TestRules(t *testing.T) {
	s := v2(t)
	s.json("GET /api/session/{id}", `{"data":{"id":"`+string(ses)+`","agent":"plan","permissions":[{"action":"edit","resource":"*","effect":"deny"}]}}`)
	s.json("GET /api/agent", `{"data":[{"id":"build","permissions":[1]},{"id":"plan","mode":"primary","permissions":[{"action":"*","resource":"*","effect":"allow"}]}]}`)
	got, err := s.dial(t, nil).Rules(t.Context(), ses)
	require.NoError(t, err)
	require.Equal(t, []json.RawMessage{[]byte(`{"action":"*","resource":"*","effect":"allow"}`), []byte(`{"action":"edit","resource":"*","effect":"deny"}`)}, got)
}

func TestForms(t *testing.T) {
	s := v2(t)
	s.json("GET /api/session/{id}/form", `{"data":[{"id":"form_1","sessionID":"`+string(ses)+`","fields":[{"key":"q0","title":"T","description":"Which?","type":"string","options":[{"value":"A"},{"value":"B"}]},
		{"key":"q1","title":"Many","type":"multiselect","options":[]}]}]}`)
	s.json("POST /api/session/{id}/form/{form}/reply", `204 `)
	s.json("POST /api/session/{id}/form/{form}/cancel", `409 {"_tag":"FormAlreadySettledError"}`)
	h := s.dial(t, nil)
	got, err := h.Questions(t.Context(), ses)
	require.NoError(t, err)
	require.Equal(t, "Which? [A B] false Many true", fmt.Sprint(got[0].Items[0].Text, " ", got[0].Items[0].Options, " ", got[0].Items[0].Multiple, " ", got[0].Items[1].Text, " ", got[0].Items[1].Multiple))
	require.NoError(t, h.ReplyQuestion(t.Context(), got[0], [][]string{{"B"}, {"x", "y"}}))
	require.Equal(t, `POST /api/session/`+string(ses)+`/form/form_1/reply {"answer":{"q0":"B","q1":["x","y"]}}`, s.last())
	for _, bad := range [][][]string{nil, {{"A"}}, {{"A", "B"}, {}}, {{}, {}}} {
		require.ErrorIs(t, h.ReplyQuestion(t.Context(), got[0], bad), team.ErrInvalid)
	}
	require.ErrorIs(t, h.RejectQuestion(t.Context(), got[0]), team.ErrConflict)
}

func TestPromptsOfEachGeneration(t *testing.T) {
	s := v1(t)
	s.json("GET /session/{id}", `{"id":"`+string(ses)+`","directory":"/own"}`)
	s.json("POST /session/{id}/message", `{"info":{"id":"msg_2","role":"assistant"},"parts":[{"type":"text","text":"hi"}]}`)
	s.json("POST /session/{id}/prompt_async", `204 `)
	h := s.dial(t, nil)
	got, err := h.Prompt(t.Context(), ses, opencode.Prompt{Text: "hello", Agent: "plan", Model: opencode.Model{Provider: "p", ID: "m", Variant: "v"}, Wait: true})
	require.NoError(t, err)
	require.Equal(t, "hi", got.Text())
	require.Contains(t, s.last(), `"model":{"modelID":"m","providerID":"p"}`)
	require.Contains(t, s.last(), `"variant":"v"`)
	got, err = h.Prompt(t.Context(), ses, opencode.Prompt{ID: "msg_9", Text: "hello"})
	require.NoError(t, err)
	require.Equal(t, "msg_9", got.ID)
	require.Equal(t, `POST /session/`+string(ses)+`/prompt_async?directory=%2Fown {"messageID":"msg_9","parts":[{"text":"hello","type":"text"}]}`, s.last())

	s = v2(t)
	s.json("POST /api/session/{id}/prompt", `{"data":{"id":"msg_9","sessionID":"x"}}`)
	got, err = s.dial(t, nil).Prompt(t.Context(), ses, opencode.Prompt{ID: "msg_9", Text: "hello", Delivery: team.DeliveryQueue, NoReply: true})
	require.NoError(t, err)
	require.Equal(t, "msg_9", got.ID)
	require.Equal(t, `POST /api/session/`+string(ses)+`/prompt {"delivery":"queue","id":"msg_9","resume":false,"text":"hello"}`, s.last())
	_, err = s.dial(t, nil).Prompt(t.Context(), ses, opencode.Prompt{Text: "hello", Wait: true})
	require.ErrorIs(t, err, errors.ErrUnsupported)

	s = newServer(t, map[string]string{"GET /api/health": `{"healthy":true}`, "POST /api/session/{id}/prompt": `{"data":{"id":"msg_9"}}`})
	_, err = s.dial(t, nil).Prompt(t.Context(), ses, opencode.Prompt{Text: "hello"})
	require.NoError(t, err)
	require.Contains(t, s.last(), `{"prompt":{"text":"hello"}}`)
}

func TestCreate(t *testing.T) {
	n := opencode.NewSession{Parent: ses, Title: "t", Agent: "plan", Model: opencode.Model{Provider: "p", ID: "m"}, Metadata: map[string]any{"k": 1}, Permissions: json.RawMessage(`[]`)}
	s := v1(t)
	s.json("POST /session", `{"id":"ses_1","parentID":"`+string(ses)+`"}`)
	got, err := s.dial(t, nil).Create(t.Context(), n)
	require.NoError(t, err)
	require.Equal(t, ses, got.Parent)
	require.Equal(t, `POST /session {"agent":"plan","metadata":{"k":1},"model":{"id":"m","providerID":"p"},"parentID":"`+string(ses)+`","permission":[],"title":"t"}`, s.last())

	s = v2(t)
	s.json("POST /api/session", `{"data":{"id":"ses_1"}}`)
	h := s.dial(t, &opencode.Options{Directory: "/d"})
	_, err = h.Create(t.Context(), n)
	require.NoError(t, err)
	require.NotContains(t, s.last(), "location", "a child is where its parent is")
	_, err = h.Create(t.Context(), opencode.NewSession{Permissions: json.RawMessage(`[]`)})
	require.NoError(t, err)
	require.Equal(t, `POST /api/session {"location":{"directory":"/d"},"permissions":[]}`, s.last())

	s = newServer(t, map[string]string{"GET /api/health": `{"healthy":true}`})
	_, err = s.dial(t, nil).Create(t.Context(), n)
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// What a generation lacks is said with the reason, and nothing is sent.
func TestLacks(t *testing.T) {
	first, second, third := v1(t).dial(t, nil), newServer(t, map[string]string{"GET /api/health": `{"healthy":true}`}).dial(t, nil), v2(t).dial(t, nil)
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"1.18 has no inbox: what is sent":        func() error { _, err := first.Inbox(ctx, ses); return err },
		"1.18 has no inbox: what is":             func() error { return first.CancelInbox(ctx, ses, "msg_1") },
		"1.18 has no context":                    func() error { _, err := first.Context(ctx, ses); return err },
		"1.18 /api has no parents":               func() error { _, err := second.Children(ctx, ses); return err },
		"1.18 /api has no removal":               func() error { return second.Remove(ctx, ses) },
		"1.18 /api has no todo":                  func() error { _, err := second.Todos(ctx, ses); return err },
		"2.0 has no todo list over HTTP: there":  func() error { _, err := third.Todos(ctx, ses); return err },
		"2.0 has no status of language servers":  func() error { _, err := third.LSP(ctx); return err },
		"the server has no route GET /api/skill": func() error { _, err := third.Skills(ctx); return err },
	} {
		err := call()
		require.ErrorIs(t, err, errors.ErrUnsupported, name)
		require.ErrorContains(t, err, name)
	}
}

func TestLists(t *testing.T) {
	s := v1(t)
	s.json("GET /experimental/resource", `{"b":{"name":"B","uri":"u:b","client":"c"},"a":{"name":"A","uri":"u:a","client":"c"}}`)
	s.json("GET /lsp", `[{"id":"gopls","name":"gopls","root":"/r","status":"connected"},{"id":"x","status":"dreaming"}]`)
	s.json("GET /skill", `[{"name":"s","description":"d","location":"/s","content":"…"}]`)
	h := s.dial(t, nil)
	resources, err := h.MCPResources(t.Context())
	require.NoError(t, err)
	require.Equal(t, "c A u:a", resources[0].Server+" "+resources[0].Name+" "+resources[0].URI)
	servers, err := h.LSP(t.Context())
	require.NoError(t, err)
	require.Equal(t, "connected dreaming", servers[0].Status+" "+servers[1].Status)
	skills, err := h.Skills(t.Context())
	require.NoError(t, err)
	require.Equal(t, "s d /s", skills[0].Name+" "+skills[0].Description+" "+skills[0].Location)

	s = v2(t)
	s.json("GET /api/mcp/resource", `{"location":{},"data":{"resources":[{"server":"c","name":"A","uri":"u:a"}],"templates":[]}}`)
	resources, err = s.dial(t, nil).MCPResources(t.Context())
	require.NoError(t, err)
	require.Equal(t, "c A u:a", resources[0].Server+" "+resources[0].Name+" "+resources[0].URI)
}

// Whatever a server answers, no method panics, and no error has the kind of a success.
func FuzzAnswers(f *testing.F) {
	f.Add(`{"id":"ses_1","time":{"created":1},"location":{"directory":"/"},"permission":[{}]}`)
	f.Add(`[{"info":{"id":"msg_1","role":"user","error":{"name":"E"}},"parts":[{"type":"tool","state":{"status":"error","error":"x","content":[1]}},7]}]`)
	f.Add(`{"data":[{"id":"per_1","fields":[{"options":[1]}],"questions":[{"options":{}}],"payload":[]}],"cursor":{"next":"1"}}`)
	f.Add(`{"data":null,"cursor":7}`)
	f.Add(`[[[[null`)
	f.Fuzz(func(t *testing.T, body string) {
		for gen, info := range map[string]string{"/global/health": health1, "/api/info": info2} {
			h, err := opencode.Dial(t.Context(), "http://fuzz", &opencode.Options{MaxAnswer: 1 << 16, Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				text, status := body, 200
				switch {
				case r.URL.Path == gen:
					text = info
				case r.URL.Path == "/api/info" || r.URL.Path == "/api/health":
					text, status = "", 404
				}
				return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
			})}})
			if err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			if s, err := h.Session(ctx, "ses_1"); err == nil && s.ID != "ses_1" {
				t.Fatalf("Session = %+v", s)
			}
			_, _ = h.Children(ctx, "ses_1")
			_, _ = h.Messages(ctx, "ses_1", 3)
			_, _ = h.Permissions(ctx)
			_, _ = h.Questions(ctx, "ses_1")
			_, _ = h.Rules(ctx, "ses_1")
			_, _ = h.Interrupt(ctx, "ses_1")
			_, _ = h.MCPResources(ctx)
			_, _ = h.Active(ctx)
			if d, err := h.Deliver(ctx, "ses_1", team.Note{ID: note, Text: "t"}); err == nil && !strings.HasPrefix(d.ID, "msg_") {
				t.Fatalf("Deliver = %+v", d)
			}
		}
	})
}

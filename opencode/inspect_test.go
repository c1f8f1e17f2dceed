package opencode_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team"
	"github.com/teamchan/team/opencode"
)

var (
	_ team.Inspector   = (*opencode.Host)(nil)
	_ team.ChildLister = (*opencode.Host)(nil)
)

// inspected1 is a 1.18 server with one session, whose child ses_c has a child ses_d.
func inspected1(t *testing.T, status, messages string) *server {
	s := v1(t)
	s.json("GET /session/{id}", `{"id":"`+string(ses)+`","parentID":"ses_p","directory":"/own"}`)
	s.json("GET /session/status", status)
	s.json("GET /session/{id}/message", messages)
	s.mux.HandleFunc("GET /session/{id}/children", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.PathValue("id") {
		case string(ses):
			fmt.Fprintf(w, `[{"id":"ses_c","parentID":%q}]`, ses)
		case "ses_c":
			fmt.Fprintf(w, `[{"id":"ses_d","parentID":"ses_c"},{"id":%q}]`, ses) // a circle ends too
		default:
			fmt.Fprint(w, `[]`)
		}
	})
	s.json("GET /permission", `[{"id":"per_1","sessionID":"`+string(ses)+`","permission":"bash"},{"id":"per_2","sessionID":"ses_x","permission":"bash"}]`)
	s.json("GET /question", `[{"id":"que_1","sessionID":"`+string(ses)+`","questions":[]},{"id":"que_2","sessionID":"ses_x","questions":[]}]`)
	return s
}

func TestInspectV1(t *testing.T) {
	t.Run("what 1.18 says of a session that runs, with its descendants and asks", func(t *testing.T) {
		s := inspected1(t, `{"`+string(ses)+`":{"type":"busy"},"ses_d":{"type":"retry"}}`, `[]`)
		got, err := s.dial(t, &opencode.Options{Directory: "/other"}).Inspect(t.Context(), ses)
		require.NoError(t, err)
		require.Equal(t, team.SessionID("ses_p"), got.Parent)
		require.Equal(t, team.ActivityRunning, got.Activity)
		require.Nil(t, got.Last)
		require.Equal(t, []team.SessionID{"ses_d"}, got.Open)
		require.Equal(t, []team.ChildAsk{{ID: "per_1", Kind: "permission", Session: ses}, {ID: "que_1", Kind: "question", Session: ses}}, got.Asks)
		for _, route := range []string{"/session/status", "/permission", "/question"} {
			require.NotZero(t, s.count("GET "+route+"?directory=%2Fown"), "the session's own directory is asked")
			require.Zero(t, s.count("GET "+route+"?directory=%2Fother"))
		}
	})
	for name, c := range map[string]struct {
		message string
		want    team.LastMessage
	}{
		"completed":        {`{"finish":"stop","time":{"completed":7}}`, team.LastMessage{Text: "ab", Completed: time.UnixMilli(7), Finish: "stop"}},
		"being written":    {`{"time":{"created":7}}`, team.LastMessage{Text: "ab"}},
		"aborted":          {`{"error":{"name":"MessageAbortedError","data":{"message":"Aborted"}},"time":{"completed":7}}`, team.LastMessage{Text: "ab", Completed: time.UnixMilli(7), Error: "MessageAbortedError: Aborted", Aborted: true}},
		"failed":           {`{"error":{"name":"APIError","data":{"message":"refused"}},"time":{"completed":7}}`, team.LastMessage{Text: "ab", Completed: time.UnixMilli(7), Error: "APIError: refused"}},
		"failed, no words": {`{"error":{"name":"APIError"},"time":{"completed":7}}`, team.LastMessage{Text: "ab", Completed: time.UnixMilli(7), Error: "APIError"}},
	} {
		t.Run("the last message of the agent: "+name, func(t *testing.T) {
			info := strings.Replace(c.message, "{", `{"id":"msg_2","role":"assistant",`, 1)
			s := inspected1(t, `{}`, `[{"info":{"id":"msg_1","role":"assistant"},"parts":[]},
				{"info":`+info+`,"parts":[{"type":"text","text":"a"},{"type":"reasoning","text":"x"},{"type":"text","text":"b"}]},
				{"info":{"id":"msg_3","role":"user"},"parts":[{"type":"text","text":"more"}]}]`)
			got, err := s.dial(t, nil).Inspect(t.Context(), ses)
			require.NoError(t, err)
			require.Equal(t, &c.want, got.Last)
			require.Equal(t, team.ActivityIdle, got.Activity)
			require.Equal(t, []team.SessionID{}, got.Open)
			require.Zero(t, s.count("GET /session/"+string(ses)+"/children"), "nobody runs, so nobody is looked for")
		})
	}
	t.Run("a session that begins while it is looked at is not idle", func(t *testing.T) {
		s := v1(t)
		begun := false
		s.json("GET /session/{id}", `{"id":"`+string(ses)+`"}`)
		s.mux.HandleFunc("GET /session/{id}/message", func(w http.ResponseWriter, _ *http.Request) {
			begun = true
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `[]`)
		})
		s.mux.HandleFunc("GET /session/status", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if begun {
				fmt.Fprintf(w, `{%q:{"type":"busy"}}`, ses)
				return
			}
			fmt.Fprint(w, `{}`)
		})
		s.json("GET /permission", `[]`)
		s.json("GET /question", `[]`)
		got, err := s.dial(t, nil).Inspect(t.Context(), ses)
		require.NoError(t, err)
		require.Equal(t, team.ActivityRunning, got.Activity)
	})
	t.Run("what the server fails to say is an error, and no answer", func(t *testing.T) {
		s := v1(t)
		s.json("GET /session/{id}", `404 {"name":"NotFoundError","data":{}}`)
		_, err := s.dial(t, nil).Inspect(t.Context(), ses)
		require.ErrorIs(t, err, team.ErrNotFound)
		s = inspected1(t, `500 {}`, `[]`)
		got, err := s.dial(t, nil).Inspect(t.Context(), ses)
		require.Error(t, err)
		require.Empty(t, got.Activity)
	})
	t.Run("ChildSessions names the children", func(t *testing.T) {
		s := inspected1(t, `{}`, `[]`)
		got, err := s.dial(t, nil).ChildSessions(t.Context(), ses)
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Equal(t, ses, got[0].Parent)
	})
}

// inspected2 is a 2.0 server with one session, and a child ses_c that runs.
func inspected2(t *testing.T, session, active, inbox string) *server {
	s := v2(t)
	s.mux.HandleFunc("GET /api/session/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"data":{"id":%q,"location":{"directory":"/own"}%s}}`, r.PathValue("id"), session)
	})
	s.mux.HandleFunc("GET /api/session", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("parentID") == string(ses) {
			fmt.Fprintf(w, `{"data":[{"id":"ses_c","parentID":%q}],"cursor":{}}`, ses)
			return
		}
		fmt.Fprint(w, `{"data":[],"cursor":{}}`)
	})
	s.json("GET /api/session/active", active)
	s.json("GET /api/session/{id}/message", `{"data":[{"id":"msg_9","type":"idle","outcome":"failed","time":{"created":9}},
		{"id":"msg_8","type":"assistant","content":[{"type":"text","text":"half"}],"error":{"type":"aborted","message":"stopped"},"time":{"created":7,"completed":8}},
		{"id":"msg_7","type":"user","text":"go"}],"cursor":{}}`)
	s.json("GET /api/session/{id}/inbox", inbox)
	s.json("GET /api/permission/request", `{"data":[{"id":"per_1","sessionID":"`+string(ses)+`","action":"shell"}]}`)
	s.json("GET /api/session/{id}/form", `{"data":[{"id":"frm_1","sessionID":"`+string(ses)+`","fields":[]}]}`)
	return s
}

func TestInspectV2(t *testing.T) {
	const empty = `{"data":[]}`
	t.Run("outcome, idle, last message, descendants and asks", func(t *testing.T) {
		s := inspected2(t, `,"outcome":"interrupted","time":{"idle":9}`, `{"data":{"ses_c":{"type":"running"}}}`, empty)
		got, err := s.dial(t, &opencode.Options{Directory: "/other"}).Inspect(t.Context(), ses)
		require.NoError(t, err)
		require.Equal(t, "interrupted", got.Outcome)
		require.Equal(t, time.UnixMilli(9), got.Idle)
		require.Equal(t, team.ActivityIdle, got.Activity)
		require.Equal(t, &team.LastMessage{Text: "half", Completed: time.UnixMilli(8), Error: "aborted: stopped", Aborted: true}, got.Last)
		require.Equal(t, []team.SessionID{"ses_c"}, got.Open)
		require.Equal(t, []team.ChildAsk{{ID: "per_1", Kind: "permission", Session: ses}, {ID: "frm_1", Kind: "form", Session: ses}}, got.Asks)
		require.NotZero(t, s.count("GET /api/permission/request?location%5Bdirectory%5D=%2Fown"), "the session's own directory is asked")
	})
	for name, c := range map[string]struct {
		session, active, inbox string
		want                   team.Activity
	}{
		"it runs":                    {``, `{"data":{"` + string(ses) + `":{"type":"running"}}}`, empty, team.ActivityRunning},
		"idle, and it has never run": {``, `{"data":{}}`, empty, team.ActivityIdle},
		"its first prompt waits: it may be about to":   {``, `{"data":{}}`, `{"data":[{"id":"msg_1","type":"user","payload":{"text":"go"}}]}`, ""},
		"it has ended, and a note waits for next time": {`,"outcome":"succeeded","time":{"idle":9}`, `{"data":{}}`, `{"data":[{"id":"msg_1","type":"synthetic"}]}`, team.ActivityIdle},
		"the server cannot say":                        {``, `404 {}`, empty, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := inspected2(t, c.session, c.active, c.inbox)
			got, err := s.dial(t, nil).Inspect(t.Context(), ses)
			require.NoError(t, err)
			require.Equal(t, c.want, got.Activity)
		})
	}
	t.Run("descendants without an end are not looked through", func(t *testing.T) {
		s := v2(t)
		s.json("GET /api/session/{id}", `{"data":{"id":"`+string(ses)+`"}}`)
		s.json("GET /api/session/active", `{"data":{"ses_zz":{"type":"running"}}}`)
		s.json("GET /api/session/{id}/message", `{"data":[],"cursor":{}}`)
		s.json("GET /api/session/{id}/inbox", empty)
		s.json("GET /api/permission/request", empty)
		s.json("GET /api/session/{id}/form", empty)
		s.mux.HandleFunc("GET /api/session", func(w http.ResponseWriter, r *http.Request) {
			var list []string
			for i := range 1100 {
				list = append(list, fmt.Sprintf(`{"id":"ses_%d","parentID":%q}`, i, r.FormValue("parentID")))
			}
			fmt.Fprintf(w, `{"data":[%s],"cursor":{}}`, strings.Join(list, ","))
		})
		got, err := s.dial(t, nil).Inspect(t.Context(), ses)
		require.NoError(t, err)
		require.Nil(t, got.Open, "not said, which is not none")
		require.Less(t, s.count("GET /api/session?"), 10)
	})
}

package opencode_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team"
	"github.com/teamchan/team/opencode"
)

const (
	ses  = team.SessionID("ses_eddafa958ffeAAAAAAAAAAAAAA")
	note = "msg_1225058f6001AAAAAAAAAAAAAA"
)

// A server answers by routes "METHOD /path" and keeps what it was asked.
type server struct {
	*httptest.Server
	mux  *http.ServeMux
	mu   sync.Mutex
	seen []string // "METHOD /path?query body"
}

func newServer(t *testing.T, routes map[string]string) *server {
	s := &server{mux: http.NewServeMux()}
	for route, answer := range routes {
		s.json(route, answer)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.seen = append(s.seen, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
		s.mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		s.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// json answers with "STATUS json", or with json alone and 200.
func (s *server) json(route, answer string) {
	s.mux.HandleFunc(route, func(w http.ResponseWriter, _ *http.Request) {
		status, rest := 200, answer
		if n, err := fmt.Sscanf(answer, "%d ", &status); n == 1 && err == nil {
			_, rest, _ = strings.Cut(answer, " ")
		} else {
			status = 200
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, rest)
	})
}

func (s *server) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[len(s.seen)-1]
}

func (s *server) count(prefix string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.seen {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

func (s *server) dial(t *testing.T, opts *opencode.Options) *opencode.Host {
	t.Helper()
	h, err := opencode.Dial(t.Context(), s.URL, opts)
	require.NoError(t, err)
	return h
}

const (
	health1 = `{"healthy":true,"version":"1.18.33"}`
	info2   = `{"version":"2.0.26","pid":7,"url":"http://x"}`
)

func v1(t *testing.T) *server { return newServer(t, map[string]string{"GET /global/health": health1}) }
func v2(t *testing.T) *server { return newServer(t, map[string]string{"GET /api/info": info2}) }

func TestDialFindsTheGeneration(t *testing.T) {
	page := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<!doctype html><title>a web page for every unknown route</title>")
	}
	for name, c := range map[string]struct {
		routes map[string]string
		want   opencode.Info
	}{
		"1.18 with both APIs":       {map[string]string{"GET /global/health": health1, "GET /api/health": `{"healthy":true}`}, opencode.Info{Generation: opencode.V1, Version: "1.18.33", SecondAPI: true}},
		"1.18 with the first alone": {map[string]string{"GET /global/health": health1}, opencode.Info{Generation: opencode.V1, Version: "1.18.33"}},
		"the second alone":          {map[string]string{"GET /api/health": `{"healthy":true}`}, opencode.Info{Generation: opencode.V1API}},
		"2.0":                       {map[string]string{"GET /api/info": info2}, opencode.Info{Generation: opencode.V2, Version: "2.0.26"}},
		"2.0 that wraps":            {map[string]string{"GET /api/info": `{"data":` + info2 + `}`}, opencode.Info{Generation: opencode.V2, Version: "2.0.26"}},
		"an early 2.0":              {map[string]string{"GET /api/health": `{"healthy":true,"version":"2.0.1"}`}, opencode.Info{Generation: opencode.V2, Version: "2.0.1"}},
	} {
		broken := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no network", http.StatusBadGateway) }
		for kind, other := range map[string]http.HandlerFunc{"a page": page, "404": http.NotFound, "502": broken} {
			t.Run(name+", unknown routes are "+kind, func(t *testing.T) {
				s := newServer(t, c.routes)
				s.mux.HandleFunc("/", other)
				require.Equal(t, c.want, s.dial(t, nil).Info())
			})
		}
	}
	t.Run("something else is unsupported", func(t *testing.T) {
		s := newServer(t, map[string]string{"GET /api/info": `{"hello":"world"}`, "GET /global/health": `[]`})
		_, err := opencode.Dial(t.Context(), s.URL, nil)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "like no OpenCode")
	})
	t.Run("a server that fails is no other generation", func(t *testing.T) {
		s := newServer(t, map[string]string{"GET /api/info": `503 {"_tag":"ServiceUnavailableError"}`, "GET /global/health": health1})
		_, err := opencode.Dial(t.Context(), s.URL, nil)
		status, ok := errors.AsType[*opencode.StatusError](err)
		require.True(t, ok, err)
		require.Equal(t, 503, status.Status)
	})
	t.Run("a bad URL or option is invalid, and shows no password", func(t *testing.T) {
		for _, bad := range []string{"", "localhost:4096", "ftp://x", "http://", "http://a:secret@b:%zz", "::"} {
			_, err := opencode.Dial(t.Context(), bad, nil)
			require.ErrorIs(t, err, team.ErrInvalid, bad)
			require.NotContains(t, err.Error(), "secret")
		}
		_, err := opencode.Dial(t.Context(), "http://x", &opencode.Options{Timeout: -1})
		require.ErrorIs(t, err, team.ErrInvalid)
		_, err = opencode.Dial(t.Context(), "http://user:secret@127.0.0.1:1", nil)
		require.Error(t, err)
		require.ErrorContains(t, err, "is the server running")
		require.NotContains(t, err.Error(), "secret")
	})
}

func TestBasicAuth(t *testing.T) {
	s := newServer(t, nil)
	s.mux.HandleFunc("GET /global/health", func(w http.ResponseWriter, r *http.Request) {
		if user, pass, _ := r.BasicAuth(); user != "opencode" || pass != "p" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, health1)
	})
	s.mux.HandleFunc("GET /api/info", func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := r.BasicAuth(); !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.NotFound(w, r)
	})
	_, err := opencode.Dial(t.Context(), s.URL, nil)
	require.ErrorIs(t, err, team.ErrDenied)
	require.ErrorContains(t, err, "set Options.Username and Password")
	s.dial(t, &opencode.Options{Password: "p"})
	_, err = opencode.Dial(t.Context(), strings.Replace(s.URL, "http://", "http://opencode:p@", 1), nil)
	require.NoError(t, err)
}

func TestARedirectIsNotFollowed(t *testing.T) {
	stranger := newServer(t, map[string]string{"GET /": health1})
	s := newServer(t, nil)
	s.mux.Handle("/", http.RedirectHandler(stranger.URL, http.StatusTemporaryRedirect))
	_, err := opencode.Dial(t.Context(), s.URL, &opencode.Options{Password: "p"})
	require.Error(t, err)
	require.Zero(t, stranger.count(""))
}

func TestEveryAnswerIsBounded(t *testing.T) {
	s := v1(t)
	s.json("GET /agent", `["`+strings.Repeat("x", 5000)+`"]`)
	h := s.dial(t, &opencode.Options{MaxAnswer: 4096})
	_, err := h.Agents(t.Context())
	require.ErrorIs(t, err, team.ErrTooLarge)
}

func TestASlowServerEndsAfterTheTimeout(t *testing.T) {
	s := v1(t)
	s.mux.HandleFunc("/agent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s.mux.HandleFunc("POST /session", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	h := s.dial(t, &opencode.Options{Timeout: 50 * time.Millisecond})
	_, err := h.Agents(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, team.ErrUnknownOutcome)
	_, err = h.Create(t.Context(), opencode.NewSession{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, team.ErrUnknownOutcome, "it may have been made")
}

func TestErrorsByStatus(t *testing.T) {
	for answer, want := range map[string]error{
		`404 {"name":"NotFoundError","data":{"message":"m"}}`: team.ErrNotFound,
		`404 {"_tag":"SessionNotFoundError","message":"m"}`:   team.ErrNotFound,
		`404 not a route`: errors.ErrUnsupported,
		`409 {"_tag":"ConflictError","message":"m"}`:       team.ErrConflict,
		`400 {"_tag":"InvalidRequestError","message":"m"}`: team.ErrInvalid,
		`401 {}`:                        team.ErrDenied,
		`403 {"_tag":"ForbiddenError"}`: team.ErrDenied,
		`413 {}`:                        team.ErrTooLarge,
		`200 not json`:                  team.ErrCorrupt,
	} {
		t.Run(answer, func(t *testing.T) {
			s := v1(t)
			s.json("/", answer)
			_, err := s.dialed(t).Session(t.Context(), ses)
			require.ErrorIs(t, err, want)
		})
	}
	t.Run("500 may be gone at the next try", func(t *testing.T) {
		s := v1(t)
		s.json("/", `500 {"name":"UnknownError","data":{"message":"see the log","ref":"err_1"}}`)
		_, err := s.dialed(t).Session(t.Context(), ses)
		for _, kind := range []error{team.ErrNotFound, team.ErrConflict, team.ErrDenied, team.ErrInvalid, team.ErrLimit, errors.ErrUnsupported} {
			require.NotErrorIs(t, err, kind)
		}
		require.ErrorContains(t, err, `"UnknownError": "see the log"`)
	})
	t.Run("a long text of the server is cut", func(t *testing.T) {
		s := v1(t)
		s.json("/", `500 {"name":"E","message":"`+strings.Repeat("é", 10_000)+`"}`)
		_, err := s.dialed(t).Session(t.Context(), ses)
		require.Less(t, len(err.Error()), 1000)
	})
}

// dialed dials where "/" answers everything else.
func (s *server) dialed(t *testing.T) *opencode.Host {
	s.mux.HandleFunc("GET /api/info", http.NotFound)
	return s.dial(t, nil)
}

func TestFieldsOfAWrongTypeHideNoOther(t *testing.T) {
	s := v1(t)
	s.json("GET /session/{id}", `{"id":"`+string(ses)+`","parentID":7,"title":"t","agent":{"x":1},"directory":"/d","time":{"created":"soon","idle":5},"new":[1]}`)
	got, err := s.dial(t, nil).Session(t.Context(), ses)
	require.NoError(t, err)
	require.Equal(t, team.Session{ID: ses, Title: "t", Directory: "/d", Idle: time.UnixMilli(5), Raw: got.Raw}, got)
	require.Contains(t, string(got.Raw), `"new":[1]`, "unknown fields are kept")
}

func TestTheAnswerMustBeForTheSession(t *testing.T) {
	s := v1(t)
	s.json("GET /session/{id}", `{"id":"ses_other"}`)
	_, err := s.dial(t, nil).Session(t.Context(), ses)
	require.ErrorIs(t, err, team.ErrCorrupt)
}

func TestDirectory(t *testing.T) {
	s := v1(t)
	s.json("GET /agent", `[]`)
	_, err := s.dial(t, &opencode.Options{Directory: "/a b"}).Agents(t.Context())
	require.NoError(t, err)
	require.Equal(t, "GET /agent?directory=%2Fa+b", s.last())

	s = v2(t)
	s.json("GET /api/agent", `{"location":{},"data":[]}`)
	_, err = s.dial(t, &opencode.Options{Directory: "/a b"}).Agents(t.Context())
	require.NoError(t, err)
	require.Equal(t, "GET /api/agent?location%5Bdirectory%5D=%2Fa+b", s.last())
}

// What 1.18 does with a message id alone was measured on 1.18.33.
func TestDeliverV1(t *testing.T) {
	// A host that keeps messages as 1.18.33 does: the part's id is the key.
	type part struct {
		ID, Text  string
		Synthetic bool
		Metadata  map[string]string
	}
	var mu sync.Mutex
	held := make(map[string]part)
	var sent []map[string]any
	s := v1(t)
	s.json("GET /session/{id}", `{"id":"`+string(ses)+`","agent":"plan","model":{"providerID":"p","id":"m","variant":"high"}}`)
	s.mux.HandleFunc("GET /session/{id}/message/{message}", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		p, ok := held[r.PathValue("message")]
		if !ok {
			w.WriteHeader(404)
			_, _ = io.WriteString(w, `{"name":"NotFoundError","data":{"message":"m"}}`)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"info": map[string]any{"id": r.PathValue("message"), "sessionID": ses},
			"parts": []any{map[string]any{"id": p.ID, "type": "text", "text": p.Text}}})
	})
	post := func(answer string, later time.Duration) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var body struct {
				MessageID string
				Parts     []part
			}
			raw, _ := io.ReadAll(r.Body)
			var all map[string]any
			_, _ = json.Unmarshal(raw, &body), json.Unmarshal(raw, &all)
			mu.Lock()
			sent = append(sent, all)
			mu.Unlock()
			time.AfterFunc(later, func() {
				mu.Lock()
				defer mu.Unlock()
				held[body.MessageID] = body.Parts[0]
			})
			if later == 0 {
				time.Sleep(5 * time.Millisecond)
			}
			if answer == "" {
				w.WriteHeader(http.StatusNoContent)
			}
			_, _ = io.WriteString(w, answer)
		}
	}
	s.mux.HandleFunc("POST /session/{id}/message", post(`{}`, 0))
	s.mux.HandleFunc("POST /session/{id}/prompt_async", post("", 30*time.Millisecond))
	h := s.dial(t, nil)

	n := team.Note{ID: note, Text: "hello", Description: "d", Metadata: map[string]string{"source": "team"}}
	d, err := h.Deliver(t.Context(), ses, n)
	require.NoError(t, err)
	require.Equal(t, "hello", d.Text)
	require.Regexp(t, "^msg_1225058f6001[0-9A-Za-z]{14}$", d.ID, "the time of the note's id is kept")
	require.NotEqual(t, note, d.ID, "the session is part of it")
	require.Equal(t, true, sent[0]["noReply"])
	require.Equal(t, "plan", sent[0]["agent"], "else the server would take its default")
	require.Equal(t, map[string]any{"providerID": "p", "modelID": "m"}, sent[0]["model"])
	require.Equal(t, "high", sent[0]["variant"])
	p := sent[0]["parts"].([]any)[0].(map[string]any)
	require.Equal(t, "prt_"+strings.TrimPrefix(d.ID, "msg_"), p["id"])
	require.Equal(t, true, p["synthetic"])
	require.Equal(t, map[string]any{"source": "team", "description": "d"}, p["metadata"])

	t.Run("again is not sent again", func(t *testing.T) {
		again, err := h.Deliver(t.Context(), ses, n)
		require.NoError(t, err)
		require.Equal(t, d, again)
		require.Len(t, sent, 1)
	})
	t.Run("a wake is a prompt that nobody waits for, read back when it is stored", func(t *testing.T) {
		wake := n
		wake.ID, wake.Wake = strings.Replace(note, "A", "B", 1), true
		got, err := h.Deliver(t.Context(), ses, wake)
		require.NoError(t, err)
		require.Equal(t, "hello", got.Text)
		require.NotContains(t, sent[1], "noReply")
	})
	t.Run("bad input is refused before anything is sent", func(t *testing.T) {
		before := s.count("")
		for _, bad := range []team.Note{{ID: "", Text: "t"}, {ID: "msg_1", Text: "t"}, {ID: note + "/", Text: "t"}, {ID: note, Text: "\xff"}, {ID: note, Text: "t", Delivery: "later"}} {
			_, err := h.Deliver(t.Context(), ses, bad)
			require.ErrorIs(t, err, team.ErrInvalid)
		}
		require.Equal(t, before, s.count(""))
	})
}

func TestDeliverV2(t *testing.T) {
	s := v2(t)
	s.mux.HandleFunc("POST /api/session/{id}/synthetic", func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{"id": body["id"], "sessionID": r.PathValue("id"), "type": "synthetic",
			"payload": map[string]any{"text": "what was first"}, "delivery": "queue", "time": map[string]any{"created": 1}}})
	})
	h := s.dial(t, nil)
	d, err := h.Deliver(t.Context(), ses, team.Note{ID: note, Text: "<hello> & more", Description: "d", Metadata: map[string]string{"kind": "note"}, Delivery: team.DeliveryQueue})
	require.NoError(t, err)
	require.Equal(t, "what was first", d.Text, "the server's account, not ours")
	method, body, _ := strings.Cut(s.last(), " {")
	require.Equal(t, "POST /api/session/"+string(ses)+"/synthetic", method)
	require.JSONEq(t, `{"id":"`+d.ID+`","text":"<hello> & more","description":"d","metadata":{"kind":"note"},"delivery":"queue","resume":false}`, "{"+body)

	t.Run("another id or session in the answer is a conflict", func(t *testing.T) {
		s := v2(t)
		s.json("POST /api/session/{id}/synthetic", `{"data":{"id":"msg_x","sessionID":"ses_x","payload":{"text":"t"}}}`)
		_, err := s.dial(t, nil).Deliver(t.Context(), ses, team.Note{ID: note, Text: "t"})
		require.ErrorIs(t, err, team.ErrConflict)
	})
	t.Run("the second API of 1.18 has no synthetic", func(t *testing.T) {
		s := newServer(t, map[string]string{"GET /api/health": `{"healthy":true}`})
		_, err := s.dial(t, nil).Deliver(t.Context(), ses, team.Note{ID: note, Text: "t"})
		require.ErrorIs(t, err, errors.ErrUnsupported)
	})
}

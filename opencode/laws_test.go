package opencode_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team"
	"github.com/teamchan/team/hosttest"
	"github.com/teamchan/team/opencode"
)

// A small server keeps inboxes by the documented rules of 2.0: ids are unique over all
// sessions, and the first admission wins.
type small struct {
	*server
	mu      sync.Mutex
	n       int
	inbox   map[string][]map[string]any // by session
	works   map[string]bool
	readers map[chan string]bool
}

func newSmall(t testing.TB) *small {
	s := &small{server: newServer(t.(*testing.T), map[string]string{"GET /api/info": info2}), inbox: make(map[string][]map[string]any),
		works: make(map[string]bool), readers: make(map[chan string]bool)}
	answer := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	handle := func(route string, f func(r *http.Request, id string, body map[string]any) (int, any)) {
		s.mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			id := r.PathValue("id")
			if _, ok := s.inbox[id]; id != "" && !ok {
				answer(w, 404, map[string]string{"_tag": "SessionNotFoundError"})
				return
			}
			var body map[string]any
			_ = json.NewDecoder(r.Body).Decode(&body)
			status, v := f(r, id, body)
			answer(w, status, v)
		})
	}
	info := func(id string) any { return map[string]any{"data": map[string]any{"id": id}} }
	handle("GET /api/session/{id}", func(_ *http.Request, id string, _ map[string]any) (int, any) { return 200, info(id) })
	handle("GET /api/session/{id}/inbox", func(_ *http.Request, id string, _ map[string]any) (int, any) {
		return 200, map[string]any{"data": s.inbox[id]}
	})
	handle("POST /api/session", func(*http.Request, string, map[string]any) (int, any) {
		s.n++
		id := fmt.Sprintf("ses_%d", s.n)
		s.inbox[id] = []map[string]any{}
		s.emit(fmt.Sprintf(`{"id":"evt_%d","created":1,"type":"session.created","durable":{"aggregateID":%q,"seq":%d,"version":1},"data":{"sessionID":%q}}`, s.n, id, s.n, id))
		return 200, info(id)
	})
	handle("POST /api/session/{id}/synthetic", func(_ *http.Request, id string, body map[string]any) (int, any) {
		for at, items := range s.inbox {
			for _, item := range items {
				if item["id"] == body["id"] && at == id {
					return 200, map[string]any{"data": item}
				} else if item["id"] == body["id"] {
					return 409, map[string]string{"_tag": "ConflictError"}
				}
			}
		}
		item := map[string]any{"id": body["id"], "sessionID": id, "type": "synthetic", "delivery": body["delivery"], "payload": map[string]any{"text": body["text"]}}
		s.inbox[id] = append(s.inbox[id], item)
		s.works[id] = s.works[id] || body["resume"] != false
		return 200, map[string]any{"data": item}
	})
	handle("POST /api/session/{id}/prompt", func(_ *http.Request, id string, body map[string]any) (int, any) {
		s.works[id] = true
		return 200, map[string]any{"data": map[string]any{"id": "msg_p"}}
	})
	handle("POST /api/session/{id}/interrupt", func(_ *http.Request, id string, _ map[string]any) (int, any) {
		was := s.works[id]
		s.works[id] = false
		return 200, map[string]any{"interrupted": was}
	})
	handle("GET /api/session/active", func(*http.Request, string, map[string]any) (int, any) {
		active := make(map[string]any)
		for id, works := range s.works {
			if works {
				active[id] = map[string]string{"type": "running"}
			}
		}
		return 200, map[string]any{"data": active}
	})
	s.mux.HandleFunc("GET /api/event", func(w http.ResponseWriter, r *http.Request) {
		frames := make(chan string, 4096)
		s.mu.Lock()
		s.readers[frames] = true
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.readers, frames)
		}()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"id\":\"evt_0\",\"type\":\"server.connected\",\"data\":{}}\n\n")
		for {
			_ = http.NewResponseController(w).Flush()
			select {
			case f := <-frames:
				_, _ = io.WriteString(w, "data: "+f+"\n\n")
			case <-r.Context().Done():
				return
			}
		}
	})
	return s
}

// emit needs s.mu.
func (s *small) emit(frame string) {
	for r := range s.readers {
		r <- frame
	}
}

func TestSessionsV2(t *testing.T) {
	hosttest.Sessions(t, func(tb testing.TB) hosttest.SessionsHost {
		h := newSmall(tb).dial(tb.(*testing.T), nil)
		return hosttest.SessionsHost{
			Sessions: h, Unknown: "ses_0",
			New: func(ctx context.Context) (team.SessionID, error) {
				s, err := h.Create(ctx, opencode.NewSession{})
				return s.ID, err
			},
			Texts: func(ctx context.Context, id team.SessionID) (texts []string, err error) {
				all, err := h.Inbox(ctx, id)
				for _, item := range all {
					texts = append(texts, item.Text)
				}
				return texts, err
			},
			Work: func(ctx context.Context, id team.SessionID) error {
				_, err := h.Prompt(ctx, id, opencode.Prompt{Text: "work"})
				return err
			},
			Works: func(ctx context.Context, id team.SessionID) (bool, error) {
				active, err := h.Active(ctx)
				_, works := active[id]
				return works, err
			},
			Lacks: map[string]string{"Child": "the small server has no children"},
		}
	})
}

func TestEventsV2(t *testing.T) {
	hosttest.Events(t, func(tb testing.TB) hosttest.EventsHost {
		s := newSmall(tb)
		h := s.dial(tb.(*testing.T), nil)
		return hosttest.EventsHost{
			Events: h, Cut: s.CloseClientConnections,
			Happen: func(ctx context.Context) (team.SessionID, error) {
				made, err := h.Create(ctx, opencode.NewSession{})
				if errors.Is(err, team.ErrUnknownOutcome) { // the cut hit a connection that waited
					made, err = h.Create(ctx, opencode.NewSession{})
				}
				return made.ID, err
			},
			Inject: func(_ context.Context, typ string, data json.RawMessage) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.emit(fmt.Sprintf(`{"id":"evt_x","type":%q,"data":%s}`, typ, data))
				return nil
			},
		}
	})
}

// Ids are derived from the session, so one note's id in three sessions is three ids, each time.
func TestIDsBelongToASession(t *testing.T) {
	h := newSmall(t).dial(t, nil)
	var ids []string
	for range 3 {
		s, err := h.Create(t.Context(), opencode.NewSession{})
		require.NoError(t, err)
		for range 2 {
			d, err := h.Deliver(t.Context(), s.ID, team.Note{ID: note, Text: "t"})
			require.NoError(t, err)
			ids = append(ids, d.ID)
		}
	}
	slices.Sort(ids)
	require.Len(t, slices.Compact(ids), 3)
}

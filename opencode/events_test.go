package opencode_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team"
	"github.com/teamchan/team/opencode"
)

// streams answers each connection with the next body, and keeps the last one open.
func (s *server) streams(route string, bodies ...string) *atomic.Int64 {
	n := new(atomic.Int64)
	s.mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
		i := int(n.Add(1)) - 1
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, bodies[min(i, len(bodies)-1)])
		_ = http.NewResponseController(w).Flush()
		if i >= len(bodies)-1 {
			<-r.Context().Done()
		}
	})
	return n
}

func collect(t *testing.T, h *opencode.Host, most int) (events []team.Event, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for e, failed := range h.Events(ctx) {
		if failed != nil {
			return events, failed
		}
		if events = append(events, e); len(events) == most {
			break
		}
	}
	return events, nil
}

func TestEventsOfBothGenerations(t *testing.T) {
	t.Run("1.18", func(t *testing.T) {
		s := v1(t)
		s.streams("GET /event", "data: {\"id\":\"evt_1\",\"type\":\"server.connected\",\"properties\":{}}\n\n"+
			"data: {\"id\":\"evt_2\",\"type\":\"session.idle\",\"properties\":{\"sessionID\":\"ses_a\"}}\n\n"+
			"data: {\"type\":\"session.created\",\"properties\":{\"info\":{\"id\":\"ses_b\"}}}\n\n")
		got, err := collect(t, s.dial(t, nil), 3)
		require.NoError(t, err)
		require.Equal(t, "server.connected", got[0].Type)
		require.Empty(t, got[0].Session)
		require.Equal(t, team.Event{ID: "evt_2", Type: "session.idle", Session: "ses_a", Data: []byte(`{"sessionID":"ses_a"}`)}, got[1])
		require.Equal(t, team.SessionID("ses_b"), got[2].Session, "older servers have it in info only")
	})
	t.Run("1.18, all directories", func(t *testing.T) {
		s := v1(t)
		s.streams("GET /global/event", "data: {\"directory\":\"/d\",\"payload\":{\"type\":\"session.idle\",\"properties\":{\"sessionID\":\"ses_a\"}}}\n\n")
		got, err := collect(t, s.dial(t, &opencode.Options{Global: true, Directory: "/d"}), 1)
		require.NoError(t, err)
		require.Equal(t, team.SessionID("ses_a"), got[0].Session)
		require.Equal(t, "GET /global/event", s.last())
	})
	t.Run("2.0", func(t *testing.T) {
		s := v2(t)
		s.streams("GET /api/event", ": heartbeat\n\ndata: {\"id\":\"evt_1\",\"created\":1791500000000,\"type\":\"session.inbox.enqueued\",\"durable\":{\"aggregateID\":\"ses_a\",\"seq\":12,\"version\":1},\"data\":{\"sessionID\":\"ses_a\"}}\r\n\r\n"+
			"data: {\"type\":\"never.heard.of\",\ndata: \"data\":{\"x\":1}}\n\n")
		got, err := collect(t, s.dial(t, nil), 2)
		require.NoError(t, err)
		require.Equal(t, team.Event{ID: "evt_1", Type: "session.inbox.enqueued", Session: "ses_a", Seq: 12, Time: time.UnixMilli(1791500000000), Data: []byte(`{"sessionID":"ses_a"}`)}, got[0])
		require.Equal(t, "never.heard.of", got[1].Type, "an unknown type is carried by its name")
		require.JSONEq(t, `{"x":1}`, string(got[1].Data))
	})
}

func TestBrokenFramesAreSkippedAndCounted(t *testing.T) {
	s := v1(t)
	good := func(n int) string {
		return fmt.Sprintf("data: {\"type\":\"t%d\",\"properties\":{\"sessionID\":5}}\n\n", n)
	}
	s.streams("GET /event", good(1)+"data: {\"type\":\n\n"+"data: 7\n\n"+"data: {\"no\":\"type\"}\n\n"+"data: {\"type\":9}\n\n"+
		"data: {\"type\":\"team.stream.back\"}\n\n"+"event: x\nid: 7\nretry: 1\nnonsense\n\n"+good(2)+
		"data: {\"type\":\""+strings.Repeat("x", 100_000)+"\"}\n\n"+strings.Repeat("data: 0123456789\n", 500)+"\n"+": "+strings.Repeat("comment ", 10_000)+"\n\n"+good(3))
	h := s.dial(t, &opencode.Options{MaxFrame: 4096})
	got, err := collect(t, h, 3)
	require.NoError(t, err)
	require.Equal(t, "t1 t2 t3", got[0].Type+" "+got[1].Type+" "+got[2].Type)
	require.Equal(t, opencode.Stats{Frames: 3, Broken: 5, Oversize: 2, Connects: 1}, h.Stats())
}

func TestAStreamThatEndsIsAnError(t *testing.T) {
	s := v1(t)
	s.streams("GET /event", "data: {\"type\":\"a\",\"properties\":{}}\n\ndata: {\"type\":\"cut in the mi", "")
	got, err := collect(t, s.dial(t, nil), 9)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Len(t, got, 1, "half a frame is none")
}

func TestASilentStreamIsAnError(t *testing.T) {
	s := v1(t)
	s.streams("GET /event", "data: {\"type\":\"a\",\"properties\":{}}\n\n")
	got, err := collect(t, s.dial(t, &opencode.Options{Silence: 100 * time.Millisecond}), 9)
	require.ErrorIs(t, err, opencode.ErrSilent)
	require.Len(t, got, 1)

	t.Run("heartbeats keep it alive", func(t *testing.T) {
		s := v1(t)
		s.mux.HandleFunc("GET /event", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range 15 {
				_, _ = io.WriteString(w, ": heartbeat\n\n")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(40 * time.Millisecond)
			}
			_, _ = io.WriteString(w, "data: {\"type\":\"late\",\"properties\":{}}\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		got, err := collect(t, s.dial(t, &opencode.Options{Silence: 400 * time.Millisecond}), 1)
		require.NoError(t, err)
		require.Equal(t, "late", got[0].Type)
	})
	t.Run("a slow reader is not a silent server", func(t *testing.T) {
		s := v1(t)
		s.streams("GET /event", strings.Repeat("data: {\"type\":\"a\",\"properties\":{}}\n\n", 3))
		n := 0
		for _, err := range s.dial(t, &opencode.Options{Silence: 100 * time.Millisecond}).Events(t.Context()) {
			require.NoError(t, err)
			time.Sleep(150 * time.Millisecond)
			if n++; n == 3 {
				break
			}
		}
	})
	t.Run("a server that never answers is silent", func(t *testing.T) {
		s := v1(t)
		s.mux.HandleFunc("GET /event", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		_, err := collect(t, s.dial(t, &opencode.Options{Silence: 50 * time.Millisecond}), 1)
		require.ErrorIs(t, err, opencode.ErrSilent)
	})
}

func TestNoStreamIsUnsupported(t *testing.T) {
	s := v1(t)
	s.json("GET /event", `{"hello":1}`)
	_, err := collect(t, s.dial(t, nil), 1)
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestFollowTellsOfEveryGap(t *testing.T) {
	s := v1(t)
	a, b, c := "data: {\"type\":\"a\",\"properties\":{}}\n\n", "data: {\"type\":\"b\",\"properties\":{}}\n\n", "data: {\"type\":\"c\",\"properties\":{}}\n\n"
	connects := s.streams("GET /event", a, "", "", b+"data: {\"ty", c)
	h := s.dial(t, &opencode.Options{Pause: 10 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var types []string
	for e, err := range h.Follow(ctx) {
		require.NoError(t, err)
		types = append(types, e.Type)
		switch e.Type {
		case opencode.EventLost:
			require.Contains(t, string(e.Data), "unexpected EOF")
			require.False(t, e.Time.IsZero())
		case opencode.EventBack:
			require.Regexp(t, `^\{"tries":[13],"silentMs":\d+\}$`, string(e.Data))
		case "c":
			cancel()
		}
	}
	require.Equal(t, []string{"a", opencode.EventLost, opencode.EventBack, "b", opencode.EventLost, opencode.EventBack, "c"}, types)
	require.EqualValues(t, 5, connects.Load())

	t.Run("a refusal for good ends it", func(t *testing.T) {
		s := v1(t)
		s.json("GET /event", `401 {}`)
		for _, err := range s.dial(t, nil).Follow(t.Context()) {
			require.ErrorIs(t, err, team.ErrDenied)
		}
		require.Equal(t, 1, s.count("GET /event"))
	})
	t.Run("its context ends a pause too", func(t *testing.T) {
		s := v1(t)
		s.mux.HandleFunc("GET /event", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var types []string
		for e, err := range s.dial(t, &opencode.Options{Pause: time.Hour}).Follow(ctx) {
			require.NoError(t, err)
			types = append(types, e.Type)
		}
		require.Equal(t, []string{opencode.EventLost}, types)
	})
}

func TestHistory(t *testing.T) {
	event := func(seq int) string {
		return fmt.Sprintf("data: {\"type\":\"session.text.ended\",\"durable\":{\"aggregateID\":%q,\"seq\":%d},\"data\":{}}\n\n", ses, seq)
	}
	t.Run("2.0 ends at the marker", func(t *testing.T) {
		s := v2(t)
		s.streams("GET /api/experimental/session/{id}/log", event(4)+event(9)+"data: {\"type\":\"log.synced\",\"aggregateID\":\"x\",\"seq\":9}\n\n"+event(10))
		var seqs []uint64
		for e, err := range s.dial(t, nil).History(t.Context(), ses, 3) {
			require.NoError(t, err)
			require.Equal(t, ses, e.Session)
			seqs = append(seqs, e.Seq)
		}
		require.Equal(t, []uint64{4, 9}, seqs)
		require.Equal(t, "GET /api/experimental/session/"+string(ses)+"/log?after=3&follow=false", s.last())
	})
	t.Run("a log without its marker is cut", func(t *testing.T) {
		s := v2(t)
		s.streams("GET /api/experimental/session/{id}/log", event(4), "")
		var last error
		for _, err := range s.dial(t, nil).History(t.Context(), ses, 0) {
			last = err
		}
		require.ErrorIs(t, last, io.ErrUnexpectedEOF)
	})
	t.Run("1.18 pages through its second API", func(t *testing.T) {
		s := newServer(t, map[string]string{"GET /global/health": health1, "GET /api/health": `{"healthy":true}`})
		s.mux.HandleFunc("GET /api/session/{id}/history", func(w http.ResponseWriter, r *http.Request) {
			after := 0
			_, _ = fmt.Sscan(r.FormValue("after"), &after)
			fmt.Fprintf(w, `{"data":[{"type":"session.next.prompted","durable":{"seq":%d},"data":{"sessionID":%q}},{"broken":1}],"hasMore":%v}`, after+1, ses, after < 2)
		})
		h := s.dial(t, nil)
		var seqs []uint64
		for e, err := range h.History(t.Context(), ses, 0) {
			require.NoError(t, err)
			seqs = append(seqs, e.Seq)
		}
		require.Equal(t, []uint64{1, 2, 3}, seqs)
		require.EqualValues(t, 3, h.Stats().Broken)
	})
	t.Run("1.18 without it has none", func(t *testing.T) {
		for _, err := range v1(t).dial(t, nil).History(t.Context(), ses, 0) {
			require.ErrorIs(t, err, errors.ErrUnsupported)
		}
	})
	t.Run("an unknown session is not found", func(t *testing.T) {
		s := v2(t)
		s.json("GET /api/experimental/session/{id}/log", `404 {"_tag":"SessionNotFoundError"}`)
		for _, err := range s.dial(t, nil).History(t.Context(), ses, 0) {
			require.ErrorIs(t, err, team.ErrNotFound)
		}
	})
}

// Whatever a server streams, a Host neither panics nor hangs, nor passes on what is no event.
func FuzzEvents(f *testing.F) {
	f.Add("data: {\"type\":\"a\"}\n\n")
	f.Add("data: {\"payload\":{\"type\":\"a\",\"properties\":{\"sessionID\":\"s\"}}}\r\n\r\n: x\n\ndata\n\ndata:\ndata: {}\n\n")
	f.Add("data: {\"type\":\"session.x\",\"durable\":{\"seq\":-1,\"aggregateID\":[]},\"data\":null,\"created\":1e400}\n\n\x00\xff\n\n")
	f.Add(strings.Repeat("data: x\n", 300) + "\n")
	f.Fuzz(func(t *testing.T, body string) {
		h, err := opencode.Dial(t.Context(), "http://fuzz", &opencode.Options{MaxFrame: 256, Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			text, kind := body, "text/event-stream"
			switch r.URL.Path {
			case "/api/info":
				text, kind = info2, "application/json"
			}
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
		})}})
		if err != nil {
			t.Fatal(err)
		}
		ended := false
		for e, err := range h.Events(t.Context()) {
			if ended || err == nil && (e.Type == "" || strings.HasPrefix(e.Type, "team.stream.") || len(e.Data) > 256) {
				t.Fatalf("event %+v, %v", e, err)
			}
			ended = err != nil
		}
		if s := h.Stats(); !ended || s.Frames+s.Broken+s.Oversize > int64(strings.Count(body, "\n")) {
			t.Fatalf("ended %v, stats %+v", ended, s)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

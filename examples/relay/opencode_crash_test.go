package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
	"github.com/teamchan/team/memstore"
	"github.com/teamchan/team/opencode"
)

// A server is a fake host whose agents answer as the relay's prompts ask. A dead process's
// requests do not reach it.
type server struct {
	*httptest.Server
	dir    string
	client atomic.Pointer[fragile] // of the process that talks to it
	silent atomic.Bool             // its models answer nothing

	mu    sync.Mutex // guards the fields below
	asked map[string]int
}

func newServer(t *testing.T, pause time.Duration) *server {
	t.Helper()
	s := &server{dir: makeFiles(t, aModule()), asked: make(map[string]int)}
	script := func(ctx context.Context, turn *fakehost.Turn) (string, error) {
		text := turn.Text()
		_, rest, _ := strings.Cut(text, "You are the ")
		role, _, found := strings.Cut(rest, " of a team")
		if !found {
			role = string(roleLead)
		}
		s.mu.Lock()
		s.asked[role]++
		s.mu.Unlock()
		if err := turn.Sleep(ctx, pause); err != nil || s.silent.Load() {
			return "", err
		}
		return "# What the " + role + " saw\n\nThe " + role + " saw it.\n\n## Findings\n\n" +
			strings.Repeat("- **high** mend it\n", 5) + strings.Repeat("much evidence of the "+role+"\n", 200), nil
	}
	host, err := fakehost.Open(t.Context(), "", &fakehost.Options{Profile: fakehost.V1_18, Directory: s.dir, DataDir: t.TempDir(),
		Agents: []fakehost.Agent{{Name: "build", Mode: "primary", Script: script}}})
	if err != nil {
		t.Fatal(err)
	}
	handler := host.Handler()
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := s.client.Load(); f != nil && f.isDead() != nil {
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		if err := host.Close(); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return s
}

// start is one start of the relay over the server, which stops at a call of the store.
func (s *server) start(t *testing.T, store team.Store, how crash, at int, fresh bool, out *console) (calls int, err error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	f := &fragile{Store: store, stop: stop, how: how, at: at}
	s.client.Store(f)
	board, err := team.OpenBoard(t.Context(), filepath.Join(s.dir, ".git", "opencode-team"), &team.BoardOptions{Trace: f.written})
	if err != nil {
		t.Fatal(err)
	}
	defer board.Close()
	err = carryOutLive(ctx, ground{s.dir, board, f, nil}, s.URL, fresh, out)
	return f.n, err
}

// whole starts the relay once more and returns what it printed as JSON.
func (s *server) whole(t *testing.T, store team.Store) (doc document, calls int) {
	t.Helper()
	var out bytes.Buffer
	calls, err := s.start(t, store, killed, 0, false, &console{w: &out, json: true})
	if err != nil {
		t.Fatalf("a start that nobody stops = %v", err)
	}
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	return doc, calls
}

// check holds what is true of every run over a server that came to its end, however often it was
// stopped: nothing was done twice, and the lead's session has all of it, in order.
func (s *server) check(t *testing.T, store team.Store, doc document) {
	t.Helper()
	board, err := team.OpenBoard(t.Context(), doc.Board, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer board.Close()
	checkRun(t, board, doc)
	if len(doc.Endings) != 5 {
		t.Errorf("endings = %+v, want five", doc.Endings)
	}
	for _, e := range doc.Endings {
		if e.State != team.ChildCompleted {
			t.Errorf("ending %+v, want completed", e)
		}
	}
	host, err := opencode.Dial(t.Context(), s.URL, &opencode.Options{Directory: s.dir})
	if err != nil {
		t.Fatal(err)
	}
	children, err := host.Children(t.Context(), doc.LeadSession)
	if err != nil || len(children) != 5 {
		t.Errorf("the lead has %d children, %v, want five", len(children), err)
	}
	all, err := host.Messages(t.Context(), doc.LeadSession, 0)
	if err != nil {
		t.Fatal(err)
	}
	var from []string
	for _, m := range all {
		for _, p := range m.Parts {
			if _, rest, ok := strings.Cut(p.Text, ` from="`); ok && p.Synthetic {
				role, _, _ := strings.Cut(rest, `"`)
				from = append(from, role)
			}
		}
	}
	if got := strings.Join(from, " "); got != "architect researcher implementer reviewer tester" && got != "researcher architect implementer reviewer tester" {
		t.Errorf("signals in the lead's session from %q, want one of each, in the order of the plan", got)
	}
	record, err := store.Get(t.Context(), runPrefix+doc.Session)
	if err != nil || !strings.Contains(string(record.Value), `"over":"finished"`) {
		t.Errorf("record of the run = %s, %v, want that it is finished", record.Value, err)
	}
	for key := range store.Keys(t.Context(), "team/roster/", "") {
		t.Errorf("still on the roster: %s", key)
	}
}

// A run over a server is killed, or stopped by Ctrl-C, at calls that are drawn at random, and
// carried on with.
func TestLiveStoppedAnywhere(t *testing.T) {
	t.Parallel()
	s := newServer(t, 0)
	store := new(memstore.Store)
	doc, calls := s.whole(t, store)
	s.check(t, store, doc)
	if doc.Resumed || calls < 60 {
		t.Fatalf("a whole run = %d calls, resumed: %v", calls, doc.Resumed)
	}
	var wg sync.WaitGroup
	for i := range 16 {
		at, how := 1+rand.N(calls), killed
		if i%4 == 3 {
			how = interrupted
		}
		wg.Go(func() {
			t.Run(fmt.Sprintf("%d,%d", how, at), func(t *testing.T) {
				s, store := newServer(t, 10*time.Millisecond), new(memstore.Store)
				_, err := s.start(t, store, how, at, false, &console{w: io.Discard})
				if how == interrupted && err != nil && !strings.Contains(err.Error(), "interrupted") {
					t.Errorf("the first start = %v, want that it was interrupted", err)
				}
				begun, over := false, false
				for key := range store.Keys(t.Context(), runPrefix, "") {
					record, err := store.Get(t.Context(), key)
					begun, over = true, err == nil && strings.Contains(string(record.Value), finished)
				}
				doc, _ := s.whole(t, store)
				if want := begun && !over; doc.Resumed != want {
					t.Errorf("resumed = %v, want %v", doc.Resumed, want)
				}
				if !over {
					s.check(t, store, doc)
				}
				for role, n := range s.asked {
					if how == killed && !over && n > 1 {
						t.Errorf("the %s was asked %d times", role, n)
					}
				}
			})
		})
	}
	wg.Wait()
}

// What runs on the server when the process is killed goes on, and its answer is taken: nobody
// pays for it twice.
func TestLiveAnswerOfAKilledStart(t *testing.T) {
	t.Parallel()
	s, store := newServer(t, time.Second), new(memstore.Store)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for { // until the implementer works
			s.mu.Lock()
			n := s.asked[string(roleImplementer)]
			s.mu.Unlock()
			if n > 0 {
				f := s.client.Load()
				f.mu.Lock()
				f.kill()
				f.mu.Unlock()
				return
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
	}()
	if _, err := s.start(t, store, killed, 0, false, &console{w: io.Discard}); err == nil {
		t.Fatal("the run was not stopped")
	}
	doc, _ := s.whole(t, store)
	if !doc.Resumed {
		t.Error("the next start began anew")
	}
	s.check(t, store, doc)
	for role, n := range s.asked {
		if n != 1 {
			t.Errorf("the %s was asked %d times, want once", role, n)
		}
	}
}

// A server that goes away is no failure of a specialist: the run is carried on with.
func TestLiveServerGoesAway(t *testing.T) {
	t.Parallel()
	s, store := newServer(t, 300*time.Millisecond), new(memstore.Store)
	go func() {
		for t.Context().Err() == nil {
			s.mu.Lock()
			n := s.asked[string(roleImplementer)]
			s.mu.Unlock()
			if n > 0 {
				s.CloseClientConnections()
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	if _, err := s.start(t, store, killed, 0, false, &console{w: io.Discard}); err == nil || !strings.Contains(err.Error(), "the next start carries on") {
		t.Fatalf("a start whose server goes away = %v", err)
	}
	doc, _ := s.whole(t, store)
	if !doc.Resumed {
		t.Error("the next start began anew")
	}
	s.check(t, store, doc)
}

// A model that cannot do it ends the run for good.
func TestLiveTurnFails(t *testing.T) {
	t.Parallel()
	s, store := newServer(t, 0), new(memstore.Store)
	s.silent.Store(true)
	_, err := s.start(t, store, killed, 0, false, &console{w: io.Discard})
	if !errors.Is(err, errUnsettled) || !strings.Contains(err.Error(), "answered nothing") {
		t.Fatalf("a run whose models say nothing = %v", err)
	}
	s.silent.Store(false)
	if doc, _ := s.whole(t, store); doc.Resumed {
		t.Error("a run that failed is tried again")
	}
}

func TestLiveRuns(t *testing.T) {
	t.Parallel()
	stoppedRun := func(t *testing.T) (*server, *memstore.Store, string) {
		t.Helper()
		s, store := newServer(t, 0), new(memstore.Store)
		_, calls := newServer(t, 0).whole(t, new(memstore.Store))
		if _, err := s.start(t, store, interrupted, calls/2, false, &console{w: io.Discard}); err == nil ||
			err.Error() != "interrupted; the next start carries on with this run" {
			t.Fatalf("the first start = %v", err)
		}
		for key := range store.Keys(t.Context(), runPrefix, "") {
			return s, store, strings.TrimPrefix(key, runPrefix)
		}
		t.Fatal("no run")
		return nil, nil, ""
	}
	t.Run("says that it carries on", func(t *testing.T) {
		s, store, _ := stoppedRun(t)
		var out bytes.Buffer
		if _, err := s.start(t, store, killed, 0, false, &console{w: &out}); err != nil || !strings.HasPrefix(out.String(), "carries on with the run of ") {
			t.Errorf("the next start = %v:\n%s", err, &out)
		}
	})
	t.Run("-new begins anew, and the stopped run is over", func(t *testing.T) {
		s, store, run := stoppedRun(t)
		var out bytes.Buffer
		if _, err := s.start(t, store, killed, 0, true, &console{w: &out}); err != nil || strings.Contains(out.String(), "carries on") {
			t.Errorf("the start with -new = %v:\n%s", err, &out)
		}
		record, err := store.Get(t.Context(), runPrefix+run)
		if err != nil || !strings.Contains(string(record.Value), givenUp) {
			t.Errorf("record of the stopped run = %s, %v, want given up", record.Value, err)
		}
	})
	t.Run("functions do not carry on with what sessions began, nor another server", func(t *testing.T) {
		s, store, run := stoppedRun(t)
		if out, err := text(t, s.dir, store, false); err != nil || strings.Contains(out, "carries on") {
			t.Errorf("a start without -opencode = %v:\n%s", err, out)
		}
		j, err := begin(t.Context(), store, "http://127.0.0.1:9", false, func(string, ...any) {})
		if err != nil || j.resumed {
			t.Errorf("begin on another server = %+v, %v, want a fresh run", j, err)
		}
		doc, _ := s.whole(t, store)
		if !doc.Resumed || doc.Session != run {
			t.Errorf("the next start = session %q, want the stopped %q", doc.Session, run)
		}
	})
	t.Run("sessions that are gone end the run, and the next one is fresh", func(t *testing.T) {
		s, store, _ := stoppedRun(t)
		host, err := opencode.Dial(t.Context(), s.URL, &opencode.Options{Directory: s.dir})
		if err != nil {
			t.Fatal(err)
		}
		j, err := begin(t.Context(), store, s.URL, false, func(string, ...any) {})
		if err != nil {
			t.Fatal(err)
		}
		if err := host.Remove(t.Context(), j.sessionOf(roleLead)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.start(t, store, killed, 0, false, &console{w: io.Discard}); err == nil || !strings.Contains(err.Error(), "start again for a fresh run") {
			t.Errorf("a start without the sessions = %v", err)
		}
		if doc, _ := s.whole(t, store); doc.Resumed {
			t.Error("the start after that carries on")
		}
	})
	t.Run("a password in the URL is neither shown nor kept", func(t *testing.T) {
		s, store := newServer(t, 0), new(memstore.Store)
		s.URL = strings.Replace(s.URL, "http://", "http://opencode:secret@", 1)
		var out bytes.Buffer
		if _, err := s.start(t, store, killed, 0, false, &console{w: &out}); err != nil || strings.Contains(out.String(), "secret") {
			t.Errorf("start = %v:\n%s", err, &out)
		}
		for key := range store.Keys(t.Context(), "", "") {
			if record, err := store.Get(t.Context(), key); err != nil || bytes.Contains(record.Value, []byte("secret@")) {
				t.Errorf("%s = %s, %v", key, record.Value, err)
			}
		}
	})
}

func TestAnswered(t *testing.T) {
	ended := time.Now()
	part := func(text string, synthetic bool) []opencode.Part {
		return []opencode.Part{{Type: "text", Text: text, Synthetic: synthetic}}
	}
	ask := opencode.Message{Type: "user", Parts: part("do it", false)}
	answer := opencode.Message{Type: "assistant", Ended: ended, Parts: part(" done\n", false)}
	for _, test := range []struct {
		name  string
		all   []opencode.Message
		want  string
		asked int
	}{
		{"nothing", nil, "", 0},
		{"not asked", []opencode.Message{{Type: "user", Parts: part("do it", true)}, answer}, "", 0},
		{"asked", []opencode.Message{ask}, "", 1},
		{"answered", []opencode.Message{ask, answer}, "done", 1},
		{"a turn of two messages", []opencode.Message{ask, {Type: "assistant", Ended: ended, Parts: part("I look", false)}, answer}, "done", 1},
		{"cut off", []opencode.Message{ask, answer, {Type: "assistant", Parts: part("half", false)}}, "", 1},
		{"stopped", []opencode.Message{ask, {Type: "assistant", Ended: ended, Error: "MessageAbortedError", Parts: part("half", false)}}, "", 1},
		{"asked again", []opencode.Message{ask, answer, ask}, "", 2},
		{"answered then", []opencode.Message{ask, ask, answer}, "done", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, asked := answered(test.all, "do it"); got != test.want || asked != test.asked {
				t.Errorf("answered = %q, %d, want %q, %d", got, asked, test.want, test.asked)
			}
		})
	}
}

package fakehost_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team/fakehost"
)

// A web is an HTTP server in the test's bubble, and its client: real HTTP over pipes.
type web struct {
	t      *testing.T
	client *http.Client
}

func serve(t *testing.T, h *fakehost.Host) *web {
	t.Helper()
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: h.Handler()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		near, far := net.Pipe()
		select {
		case l.conns <- far:
			return near, nil
		case <-l.done:
			return nil, net.ErrClosed
		}
	}}
	t.Cleanup(func() {
		_ = server.Close()
		transport.CloseIdleConnections()
		<-done
		time.Sleep(time.Second) // a server lingers where it has not read all of a body
	})
	return &web{t, &http.Client{Transport: transport}}
}

type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// send sends a request with a body that is a string of JSON, or nothing, and returns the
// status and the whole answer.
func (w *web) send(method, path, body string, headers ...string) (int, string) {
	w.t.Helper()
	status, answer, _ := w.sendHeader(method, path, body, headers...)
	return status, answer
}

func (w *web) sendHeader(method, path, body string, headers ...string) (int, string, http.Header) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, "http://host"+path, strings.NewReader(body))
	require.NoError(w.t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := w.client.Do(req)
	require.NoError(w.t, err)
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	return res.StatusCode, string(answer), res.Header
}

// ok sends a request that must succeed, and returns what it answers.
func (w *web) ok(method, path string, body any) any {
	w.t.Helper()
	text := ""
	if body != nil {
		data, err := json.Marshal(body)
		require.NoError(w.t, err)
		text = string(data)
	}
	status, answer := w.send(method, path, text)
	require.Less(w.t, status, 300, "%s %s: %s", method, path, answer)
	if answer == "" {
		require.Equal(w.t, http.StatusNoContent, status)
		return nil
	}
	return parse(w.t, answer)
}

// object is ok for what answers an object; in generation 2 its data.
func (w *web) object(method, path string, body any) map[string]any {
	w.t.Helper()
	out, ok := w.ok(method, path, body).(map[string]any)
	require.True(w.t, ok)
	if inner, ok := out["data"].(map[string]any); ok {
		return inner
	}
	return out
}

func parse(t *testing.T, text string) any {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal([]byte(text), &v), "%.500s", text)
	return v
}

// A tap is a stream of events that is read in the background.
type tap struct {
	header http.Header
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	lines  []string // without those that are empty
	err    error    // after done
	frames []map[string]any
}

func (w *web) tap(path string) *tap {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://host"+path, nil)
	require.NoError(w.t, err)
	res, err := w.client.Do(req)
	require.NoError(w.t, err)
	require.Equal(w.t, http.StatusOK, res.StatusCode)
	s := &tap{header: res.Header, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer res.Body.Close()
		r := bufio.NewReader(res.Body)
		for {
			line, err := r.ReadString('\n')
			s.mu.Lock()
			if line = strings.TrimSuffix(line, "\n"); line != "" {
				s.lines = append(s.lines, line)
			}
			var frame map[string]any
			if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &frame) == nil {
				s.frames = append(s.frames, frame)
			}
			s.mu.Unlock()
			if err != nil {
				s.err = err
				return
			}
		}
	}()
	return s
}

// seen returns the frames so far; let everything rest before.
func (s *tap) seen() []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frames
}

func (s *tap) types() (out []string) {
	for _, f := range s.seen() {
		typ, _ := f["type"].(string)
		out = append(out, typ)
	}
	return out
}

// at returns a string inside of objects, "" if it is not there.
func at(v any, path ...string) string {
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	s, _ := v.(string)
	return s
}

package fakehost

import (
	"bytes"
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxBody is how large a request may be. The real host was seen to have no limit but
// 20 MiB for an attachment, which is 27 MiB as a data URI.
const maxBody = 32 << 20

// Handler serves the host over HTTP, with the routes, shapes and errors of its profile:
//
//	server := httptest.NewServer(host.Handler())
//	defer server.Close()
//
// Generation 1 also has what was measured of its second API: the log, admission by id, a
// stream that ends by itself, and a wait that is refused. The routes are in GET /doc
// (generation 1). The few of generation 2 whose shapes are not known answer 501 and the reason. A
// path that no route has answers 404 without a body, where the real host may serve its web page.
//
// With Options.Password set, requests need HTTP Basic authentication or the query
// auth_token, which is base64 of "user:password". The folder is the query directory or the
// header x-opencode-directory (generation 1), or the query location[directory].
//
// Text files that are parts of a prompt are read from wherever they are, as the real host does
// (generation 1).
//
// A stream ends with the host. FaultStreamCut and FaultOverflow break its connection, in the
// middle of a frame and between two. A server's Shutdown waits for streams, so close the
// host or the clients first.
//
// OpenCode 1.18.33, 2.0.26.
func (h *Host) Handler() http.Handler { return &server{h, routesOf(h.profile)} }

// A server is the handler of one host.
type server struct {
	h      *Host
	routes []*route
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := &request{h: s.h, w: w, r: r, second: s.h.profile.v1() && strings.HasPrefix(r.URL.Path, "/api/")}
	if !q.allowed() {
		w.Header().Set("WWW-Authenticate", `Basic realm="Secure Area"`)
		q.answer(http.StatusUnauthorized, tagged("UnauthorizedError", "authentication is required", nil))
		return
	}
	route, ids := match(s.routes, r.Method, r.URL.EscapedPath())
	if route == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	q.ids = ids
	if route.lacks != "" {
		q.answer(http.StatusNotImplemented, tagged("NotImplementedError", route.lacks, nil))
		return
	}
	out, err := q.run(route)
	switch {
	case errors.Is(err, errAbort):
		panic(http.ErrAbortHandler) // the server cuts the connection
	case errors.Is(err, errMedia):
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusUnsupportedMediaType)
		_, _ = io.WriteString(w, err.Error()) // a client that is gone needs no answer
	case err != nil:
		q.answer(q.failure(err))
	case out == nil:
		w.WriteHeader(http.StatusNoContent)
	case out != streamed:
		q.answer(http.StatusOK, out)
	}
}

// What a route returns that has written its answer itself.
var streamed = new(struct{ int })

// errAbort cuts the connection.
var errAbort = errors.New("the connection is cut")

// A request is what a route works with.
type request struct {
	h      *Host
	w      http.ResponseWriter
	r      *http.Request
	ids    map[string]string // what the route's path has in braces
	second bool              // of generation 1's second API
	loose  bool              // see takeLoose
}

func (q *request) run(r *route) (any, error) {
	if id, has := q.ids["sessionID"]; has && !strings.HasPrefix(id, "ses") {
		return nil, errBadID
	}
	return r.serve(q)
}

func (q *request) ctx() context.Context { return q.r.Context() }

// session returns the id of the session in the path.
func (q *request) session() string { return q.ids["sessionID"] }

func (q *request) query(key string) string { return q.r.URL.Query().Get(key) }

// directory returns the folder that the request is about.
func (q *request) directory() string {
	header := q.r.Header.Get("x-opencode-directory")
	if u, err := url.PathUnescape(header); err == nil {
		header = u // clients escape it
	}
	return cmp.Or(q.query("directory"), q.query("location[directory]"), header, q.h.Directory())
}

// allowed reports whether the request carries the password, if there is one.
func (q *request) allowed() bool {
	if q.h.opts.Password == "" {
		return true
	}
	user, password, ok := q.r.BasicAuth()
	if token := q.query("auth_token"); !ok && token != "" {
		raw, err := base64.StdEncoding.DecodeString(token)
		if err != nil {
			return false
		}
		user, password, ok = strings.Cut(string(raw), ":")
	}
	same := func(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
	return ok && same(user, q.h.opts.Username) && same(password, q.h.opts.Password)
}

// errBody and errBadID are requests that never get to a domain.
var (
	errBody  = errors.New("the body is not what the route takes")
	errLarge = errors.New("the body is too large")
	errBadID = errors.New("the session id does not start with ses")
)

// decode reads the body, a JSON object, into v. Fields that v does not have are left
// out, as the real host does. An empty body is an empty object.
func (q *request) decode(v any) error {
	data, err := q.body()
	if err != nil {
		return err
	}
	if len(data) == 0 {
		data = []byte("{}")
	}
	if data[0] != '{' || json.Unmarshal(data, v) != nil {
		return errBody
	}
	return nil
}

// answer writes v as the real host does, which is JSON that escapes only what it must.
func (q *request) answer(status int, v any) {
	data, err := plainJSON(v)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte("{}")
	}
	q.w.Header().Set("Content-Type", "application/json")
	q.w.WriteHeader(status)
	_, _ = q.w.Write(data) // a client that is gone needs no answer
}

// plainJSON is JSON in which <, >, &, U+2028 and U+2029 stand for themselves. An encoder's
// SetEscapeHTML does not get to what a MarshalJSON has written.
func plainJSON(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil || !bytes.Contains(data, []byte(`\u`)) {
		return data, err
	}
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			out = append(out, data[i])
			continue
		}
		if len(data) >= i+6 {
			if plain, ok := unescaped[string(data[i:i+6])]; ok {
				out = append(out, plain...)
				i += 5
				continue
			}
		}
		out = append(out, data[i], data[i+1]) // an escape is two bytes at least
		i++
	}
	return out, nil
}

var unescaped = map[string]string{`\u003c`: "<", `\u003e`: ">", `\u0026`: "&", `\u2028`: "\u2028", `\u2029`: "\u2029"}

package opencode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/teamchan/team"
)

// A StatusError is a server's refusal. It is ErrNotFound, ErrConflict, ErrInvalid,
// ErrDenied or ErrTooLarge where its status says so. Others may be gone at the next try.
type StatusError struct {
	Route   string // "GET /session/ses_…"
	Status  int    // of HTTP
	Name    string // the server's own name of the error: "NotFoundError", "ConflictError", …
	Message string // the server's text, cut; data
}

func (e *StatusError) Error() string {
	s := fmt.Sprintf("%s: status %d", e.Route, e.Status)
	if e.Name != "" {
		s += fmt.Sprintf(" %q", e.Name)
	}
	if e.Message != "" {
		s += fmt.Sprintf(": %q", e.Message)
	}
	if e.Status == http.StatusUnauthorized {
		s += "; set Options.Username and Password"
	}
	return s
}

// Is maps the status to the kinds of package team.
func (e *StatusError) Is(target error) bool {
	switch e.Status {
	case http.StatusNotFound:
		return target == team.ErrNotFound
	case http.StatusConflict:
		return target == team.ErrConflict
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return target == team.ErrInvalid
	case http.StatusUnauthorized, http.StatusForbidden:
		return target == team.ErrDenied
	case http.StatusRequestEntityTooLarge:
		return target == team.ErrTooLarge || target == team.ErrLimit
	}
	return false
}

// call sends one request and returns the JSON that the server answers, or nothing for
// an answer without content. It ends after Options.Timeout.
func (h *Host) call(ctx context.Context, method, path string, query url.Values, body any) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeout)
	defer cancel()
	return h.long(ctx, method, path, query, body)
}

// long is call without a time limit of its own.
func (h *Host) long(ctx context.Context, method, path string, query url.Values, body any) (json.RawMessage, error) {
	res, err := h.send(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	route := method + " " + path
	raw, err := io.ReadAll(io.LimitReader(res.Body, h.opts.MaxAnswer+1))
	if err != nil {
		return nil, unknown(method, fmt.Errorf("%s: %w", route, err))
	}
	if int64(len(raw)) > h.opts.MaxAnswer {
		return nil, &team.LimitError{What: "bytes of the answer to " + route, Got: int64(len(raw)), Max: h.opts.MaxAnswer,
			TooLarge: true, Advice: "ask for less, or raise Options.MaxAnswer"}
	}
	if n, most := values(raw), max(h.opts.MaxAnswer/bytesPerValue, fewValues); n > most {
		return nil, &team.LimitError{What: "values in the answer to " + route, Got: n, Max: most,
			TooLarge: true, Advice: "ask for less, or raise Options.MaxAnswer"}
	}
	isJSON := len(bytes.TrimSpace(raw)) > 0 && json.Valid(raw)
	switch {
	case res.StatusCode >= 300:
		e := &StatusError{Route: route, Status: res.StatusCode}
		if o := decode(raw); o != nil {
			e.Name = o.text("name")
			if e.Name == "" {
				e.Name = o.text("_tag")
			}
			e.Message = o.text("message")
			if data := o.object("data"); e.Message == "" && data != nil {
				e.Message = data.text("message")
			}
		}
		e.Name, e.Message = short(e.Name, 100), short(e.Message, 300)
		if e.Name == "" && (res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusMethodNotAllowed) {
			return nil, fmt.Errorf("%w: the server has no route %s", errors.ErrUnsupported, route)
		}
		return nil, e
	case res.StatusCode == http.StatusNoContent || len(raw) == 0:
		return nil, nil
	case isHTML(res.Header):
		// 1.18 answers an unknown route with its web page.
		return nil, fmt.Errorf("%w: the server has no route %s", errors.ErrUnsupported, route)
	case !isJSON:
		return nil, fmt.Errorf("%w: the answer to %s is not JSON", team.ErrCorrupt, route)
	}
	return raw, nil
}

// A value in memory takes many times its bytes in JSON, so a limit of bytes alone bounds nothing:
// 64 MB of "{}," would be gigabytes of messages. Those of 1.18.33 have 20 bytes a value and more.
const (
	bytesPerValue = 16
	fewValues     = 1 << 10
)

// values returns how many values a JSON text has at most: each but the first in its list or
// object stands behind a comma.
func values(raw []byte) (n int64) {
	quoted := false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && (c == ',' || c == '[' || c == '{'):
			n++
		}
	}
	return n
}

// list reads a list. What is none is ErrCorrupt, so that nobody takes it for an empty one.
func (h *Host) list(ctx context.Context, path string, query url.Values) ([]json.RawMessage, error) {
	raw, err := h.call(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return nil, err
	}
	all := items(data(raw))
	if all == nil {
		return nil, fmt.Errorf("%w: the answer to GET %s is no list", team.ErrCorrupt, path)
	}
	return all, nil
}

func isHTML(h http.Header) bool { return mediaType(h) == "text/html" }

func mediaType(h http.Header) string {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind
}

func (h *Host) send(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	u := *h.base
	unescaped, err := url.PathUnescape(path)
	if err != nil {
		return nil, &team.InvalidError{What: "path", Why: "is not escaped right", Offset: -1}
	}
	u.RawPath, u.Path = u.Path+path, u.Path+unescaped
	u.RawQuery = h.located(path, query).Encode()
	var content io.Reader
	if body != nil {
		raw, err := marshal(body)
		if err != nil {
			return nil, &team.InvalidError{What: "request body", Why: "cannot be JSON: " + err.Error(), Offset: -1}
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), content)
	if err != nil {
		return nil, &team.InvalidError{What: "request", Why: err.Error(), Offset: -1}
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if h.opts.Password != "" {
		req.SetBasicAuth(h.opts.Username, h.opts.Password)
	}
	res, err := h.client.Do(req)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err // its text has the whole URL
		}
		return nil, unknown(method, fmt.Errorf("%s %s: %w", method, path, err))
	}
	return res, nil
}

// unknown marks the failure of a request that may have changed something.
func unknown(method string, err error) error {
	if method == http.MethodGet {
		return err
	}
	return fmt.Errorf("%w: %w", team.ErrUnknownOutcome, err)
}

// located adds the directory to a query, where the route looks at one.
func (h *Host) located(path string, query url.Values) url.Values {
	q := maps.Clone(query)
	if q == nil {
		q = make(url.Values)
	}
	if h.opts.Directory == "" || strings.HasPrefix(path, "/global/") || q.Has("directory") {
		return q
	}
	if !strings.HasPrefix(path, "/api/") {
		q.Set("directory", h.opts.Directory)
	} else if !strings.HasPrefix(path, "/api/session") && !q.Has("location[directory]") {
		q.Set("location[directory]", h.opts.Directory)
	}
	return q
}

// marshal is JSON that leaves "<" and "&" as they are.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// An object is a JSON object of the server. Each field is read alone, so that one
// of a wrong type hides no other.
type object map[string]json.RawMessage

// decode returns the object in raw, or nil if it is none.
func decode(raw json.RawMessage) object {
	var o object
	if json.Unmarshal(raw, &o) != nil {
		return nil
	}
	return o
}

func (o object) text(key string) (s string) {
	_ = json.Unmarshal(o[key], &s) // what is no string is none
	return s
}

func (o object) yes(key string) (b bool) {
	_ = json.Unmarshal(o[key], &b)
	return b
}

func (o object) object(key string) object { return decode(o[key]) }

func (o object) texts(key string) (s []string) {
	_ = json.Unmarshal(o[key], &s)
	return s
}

// list returns the array under key, each item as it came.
func (o object) list(key string) []json.RawMessage { return items(o[key]) }

// items returns the array in raw, or nil if it is none; an empty one is not nil.
func items(raw json.RawMessage) (l []json.RawMessage) {
	_ = json.Unmarshal(raw, &l)
	return l
}

// in is the query that leads to the instance of a directory. A 1.18 server has one for
// each, and only the session's own knows what the session is doing.
func in(directory string) url.Values {
	if directory == "" {
		return nil
	}
	return url.Values{"directory": {directory}}
}

// data returns what a second or third API wraps as {data: …}.
func data(raw json.RawMessage) json.RawMessage {
	if o := decode(raw); o != nil {
		if d, ok := o["data"]; ok {
			return d
		}
	}
	return raw
}

// short cuts a text of the server for an error.
func short(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

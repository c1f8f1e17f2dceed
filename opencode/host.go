package opencode

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/teamchan/team"
)

// A Generation is one of the HTTP APIs that OpenCode has had. A value that is not
// among the constants cannot occur.
type Generation string

// The generations.
const (
	V1    Generation = "1.18"      // the first API: /session, /event
	V1API Generation = "1.18 /api" // the second API of 1.18 alone: /api without an inbox
	V2    Generation = "2.0"       // /api with inbox, forms and a log
)

// Info is what Dial found out.
type Info struct {
	Generation Generation
	Version    string // as the server says it; empty if it does not
	// SecondAPI reports whether a V1 server answers the second API too: History
	// reads from there.
	SecondAPI bool
}

// Options change how a Host talks to its server. The zero value has the defaults.
type Options struct {
	// Username and Password are for basic auth; without Password none is sent.
	// An empty Username means "opencode", the server's own default. They win over
	// those in the URL.
	Username, Password string

	// Directory is the project, as a path on the server's machine. Empty means the
	// folder where the server was started.
	Directory string

	// Global makes Events of a 1.18 server cover all its directories
	// (/global/event) in place of one (/event). 2.0 always covers all.
	Global bool

	// Client sends the requests; nil means one of our own. Redirects are never
	// followed. Its Timeout would cut event streams off, so leave it zero.
	Client *http.Client

	// Timeout ends a call that the server does not answer; it does not bound
	// event streams, nor Prompt with Wait. Zero means DefaultTimeout.
	Timeout time.Duration

	// Silence is how long an event stream may bring nothing, no heartbeat neither,
	// before it counts as broken: OpenCode sends one each 10 s (1.18) or 15 s (2.0).
	// Zero means DefaultSilence.
	Silence time.Duration

	// MaxAnswer is the largest answer, all its pages together, and MaxFrame the largest event,
	// in bytes. A larger answer is ErrTooLarge; a larger event is skipped and counted. So is what
	// has more than a value for each 16 of these bytes, since that would take many times
	// its size in memory. Zero means DefaultMaxAnswer and DefaultMaxFrame.
	MaxAnswer, MaxFrame int64

	// Pause is how long Follow waits before it connects again, the first time; then
	// twice as long, up to half a minute. Zero means DefaultPause.
	Pause time.Duration
}

// The defaults of Options.
const (
	DefaultTimeout   = 30 * time.Second
	DefaultSilence   = 45 * time.Second
	DefaultMaxAnswer = 64 << 20
	DefaultMaxFrame  = 16 << 20 // the limit of OpenCode's own client
	DefaultPause     = 250 * time.Millisecond
)

// A Host is a running OpenCode server. It is a [team.Sessions], a [team.Events] and a
// [team.Permissions]. It may be used by several goroutines, and holds nothing that must be closed.
type Host struct {
	base   *url.URL // without user and trailing slash
	opts   Options
	client *http.Client
	info   Info
	stats  counters
}

var (
	_ team.Sessions    = (*Host)(nil)
	_ team.Events      = (*Host)(nil)
	_ team.Permissions = (*Host)(nil)
)

type counters struct{ frames, broken, oversize, connects atomic.Int64 }

// Stats counts what the event streams of a Host brought so far.
type Stats struct {
	Frames   int64 // events that were passed on
	Broken   int64 // frames that are no event: skipped
	Oversize int64 // frames over Options.MaxFrame: skipped
	Connects int64 // streams that were opened
}

// Stats returns the counts.
func (h *Host) Stats() Stats {
	return Stats{h.stats.frames.Load(), h.stats.broken.Load(), h.stats.oversize.Load(), h.stats.connects.Load()}
}

// Info returns what Dial found out.
func (h *Host) Info() Info { return h.info }

// Dial asks the server at rawURL ("http://127.0.0.1:4096") which generation of
// OpenCode it is, and returns a Host for it. The generation is found out, never
// configured: by GET /api/info (2.0), GET /global/health (1.18) and GET /api/health.
//
// A URL that cannot be used is ErrInvalid, wrong or missing credentials are ErrDenied,
// and a server that answers like no OpenCode is errors.ErrUnsupported.
func Dial(ctx context.Context, rawURL string, opts *Options) (*Host, error) {
	h, err := newHost(rawURL, opts)
	if err == nil {
		err = h.find(ctx)
	}
	if err != nil {
		return nil, &team.Error{Op: "opencode.dial", Err: err} // no URL: it may have a password
	}
	return h, nil
}

func newHost(rawURL string, opts *Options) (*Host, error) {
	invalid := func(what, why string) error {
		return &team.InvalidError{What: what, Why: why, Offset: -1}
	}
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, invalid("server URL", `is not like "http://127.0.0.1:4096"`)
	}
	h := &Host{}
	if opts != nil {
		h.opts = *opts
	}
	o := &h.opts
	if o.Timeout < 0 || o.Silence < 0 || o.MaxAnswer < 0 || o.MaxFrame < 0 || o.Pause < 0 {
		return nil, invalid("option", "is negative")
	}
	o.Timeout, o.Silence = cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.Silence, DefaultSilence)
	o.MaxAnswer, o.MaxFrame = cmp.Or(o.MaxAnswer, DefaultMaxAnswer), cmp.Or(o.MaxFrame, DefaultMaxFrame)
	o.Pause = cmp.Or(o.Pause, DefaultPause)
	if u.User != nil && o.Password == "" {
		o.Username = u.User.Username()
		o.Password, _ = u.User.Password()
	}
	o.Username = cmp.Or(o.Username, "opencode")
	u.User, u.RawQuery, u.Fragment, u.RawFragment = nil, "", "", ""
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	h.base = u

	client := &http.Client{Transport: http.DefaultTransport}
	if o.Client != nil {
		copied := *o.Client
		client = &copied
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	h.client = client
	return h, nil
}

// find sets h.info.
func (h *Host) find(ctx context.Context) error {
	// A server of 1.18 answers a route that it does not have with its web page and
	// status 200, so only JSON with the right fields counts.
	probe := func(path string) (object, error) {
		raw, err := h.call(ctx, http.MethodGet, path, nil, nil)
		if err != nil {
			return nil, err
		}
		o := decode(raw)
		if data := o.object("data"); data != nil {
			o = data
		}
		return o, nil
	}
	var errs []error
	for _, p := range []struct {
		path string
		gen  Generation
	}{{"/api/info", V2}, {"/global/health", V1}, {"/api/health", V1API}} {
		o, err := probe(p.path)
		if err != nil {
			if _, ok := errors.AsType[*net.OpError](err); ok {
				return fmt.Errorf("%w; is the server running, at this address and port?", err)
			}
			if !absent(err) {
				return err
			}
			errs = append(errs, err)
			continue
		}
		version := short(o.text("version"), 100)
		if version == "" && !o.yes("healthy") {
			errs = append(errs, fmt.Errorf("GET %s answers without a version and without healthy", p.path))
			continue
		}
		h.info = Info{Generation: p.gen, Version: version}
		if major, _, _ := strings.Cut(version, "."); major != "" && major != "0" && major != "1" && p.gen != V2 {
			h.info.Generation = V2 // an early 2.x has other routes for its health
		}
		if h.info.Generation == V1 {
			o, err := probe("/api/health")
			h.info.SecondAPI = err == nil && o.yes("healthy")
		}
		return nil
	}
	return fmt.Errorf("%w: the server answers like no OpenCode (%w); check address and port", errors.ErrUnsupported, errors.Join(errs...))
}

// absent reports whether a probe's error says that the route is not there. Without the
// network some servers fail to fetch the web page that they answer other routes with.
func absent(err error) bool {
	if e, ok := errors.AsType[*StatusError](err); ok && e.Status >= 500 && e.Name == "" {
		return true
	}
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, team.ErrNotFound) || errors.Is(err, team.ErrCorrupt)
}

// lacks is the error for what this generation has not.
func (h *Host) lacks(what, why string) error {
	return fmt.Errorf("%w: OpenCode %s has no %s: %s", errors.ErrUnsupported, h.info.Generation, what, why)
}

// v1 reports whether the first API is there.
func (h *Host) v1() bool { return h.info.Generation == V1 }

// Raw sends one request of the caller's own to the server, with h's credentials,
// bounds and errors, and returns the JSON that it answers: for routes that have no method here.
// Path begins with a slash and has no query; body may be nil.
func (h *Host) Raw(ctx context.Context, method, path string, query url.Values, body any) (json.RawMessage, error) {
	return h.call(ctx, method, path, query, body)
}

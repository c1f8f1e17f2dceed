package opencode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/teamchan/team"
)

// The events that Follow adds of its own. No host's event has such a name: a frame that
// says so is broken.
const (
	// EventLost: the stream broke. Data is {"why": text}.
	EventLost = "team.stream.lost"
	// EventBack: there is a stream again. What happened between the two never comes, so
	// read the sessions again now. Data is {"tries": number, "silentMs": number}.
	EventBack = "team.stream.back"

	ownEvents = "team.stream."
)

// ErrSilent: an event stream brought nothing, no heartbeat neither, for Options.Silence.
var ErrSilent = errors.New("the event stream is silent")

// Events yields the server's events from now on: of one directory on 1.18 (GET
// /event; of all with Options.Global, GET /global/event), of the whole server on 2.0 (GET /api/event).
// It ends without an error when ctx ends. A stream that breaks, falls silent (ErrSilent)
// or ends (io.ErrUnexpectedEOF; 1.18's second API does that by itself) is an error, and the
// end. Frames that are no events are skipped and counted, see Stats.
func (h *Host) Events(ctx context.Context) iter.Seq2[team.Event, error] {
	return func(yield func(team.Event, error) bool) {
		err := h.stream(ctx, h.eventsPath(), nil, func(e team.Event) bool { return yield(e, nil) })
		if err != nil && ctx.Err() == nil && !errors.Is(err, errEnough) {
			yield(team.Event{}, err)
		}
	}
}

func (h *Host) eventsPath() string {
	switch {
	case !h.v1():
		return "/api/event"
	case h.opts.Global:
		return "/global/event"
	}
	return "/event"
}

// errEnough: the reader wants no more.
var errEnough = errors.New("enough")

// Follow is Events that connects again when the stream breaks, after a pause that grows
// (Options.Pause). A gap is told by two events of its own, EventLost and EventBack.
// It ends without an error when ctx ends, and with one if the server refuses for good
// (credentials, no such route).
func (h *Host) Follow(ctx context.Context) iter.Seq2[team.Event, error] {
	return func(yield func(team.Event, error) bool) {
		var lost time.Time // when the last stream broke; zero while there was none
		pause, tries := h.opts.Pause, 0
		for {
			err := h.stream(ctx, h.eventsPath(), nil, func(e team.Event) bool {
				if !lost.IsZero() {
					data := fmt.Appendf(nil, `{"tries":%d,"silentMs":%d}`, tries, time.Since(lost).Milliseconds())
					if !yield(team.Event{Type: EventBack, Time: time.Now(), Data: data}, nil) {
						return false
					}
				}
				lost, pause, tries = time.Time{}, h.opts.Pause, 0
				return yield(e, nil)
			})
			switch {
			case ctx.Err() != nil || errors.Is(err, errEnough):
				return
			case errors.Is(err, team.ErrDenied) || errors.Is(err, team.ErrInvalid) || errors.Is(err, errors.ErrUnsupported):
				yield(team.Event{}, err)
				return
			}
			if lost.IsZero() {
				lost = time.Now()
				why, _ := json.Marshal(map[string]string{"why": err.Error()})
				if !yield(team.Event{Type: EventLost, Time: lost, Data: why}, nil) {
					return
				}
			}
			tries++
			select {
			case <-time.After(pause/2 + rand.N(pause/2+1)): // not all clients at once
			case <-ctx.Done():
				return
			}
			pause = min(2*pause, 30*time.Second)
		}
	}
}

// History yields what the server's log has of a session behind the number after (zero:
// all of it), in order, and ends there. It is for what was missed in a gap: numbers
// are Event.Seq, and gaps between them are legal.
//
// OpenCode 2.0: GET /api/experimental/session/:id/log. 1.18 has a log for what was
// done over its second API only: GET /api/session/:id/history.
func (h *Host) History(ctx context.Context, id team.SessionID, after uint64) iter.Seq2[team.Event, error] {
	return func(yield func(team.Event, error) bool) {
		if _, err := h.path(id, ""); err != nil {
			yield(team.Event{}, err)
			return
		}
		escaped := url.PathEscape(string(id))
		if h.info.Generation != V2 {
			h.historyV1(ctx, "/api/session/"+escaped+"/history", after, yield)
			return
		}
		query := url.Values{"follow": {"false"}}
		if after > 0 {
			query.Set("after", strconv.FormatUint(after, 10))
		}
		synced := false
		err := h.stream(ctx, "/api/experimental/session/"+escaped+"/log", query, func(e team.Event) bool {
			// The marker at the end; an older name of it is log.caught_up.
			if synced = e.Type == "log.synced" || e.Type == "log.caught_up"; synced {
				return false
			}
			return yield(e, nil)
		})
		switch {
		case synced || errors.Is(err, errEnough):
		case err != nil:
			yield(team.Event{}, err)
		}
	}
}

func (h *Host) historyV1(ctx context.Context, path string, after uint64, yield func(team.Event, error) bool) {
	if h.v1() && !h.info.SecondAPI {
		yield(team.Event{}, h.lacks("log of a session", "it comes with the second API, which this server does not answer"))
		return
	}
	for {
		query := url.Values{"limit": {"100"}}
		if after > 0 {
			query.Set("after", strconv.FormatUint(after, 10))
		}
		raw, err := h.call(ctx, http.MethodGet, path, query, nil)
		if err != nil {
			yield(team.Event{}, err)
			return
		}
		o := decode(raw)
		last := after
		for _, item := range o.list("data") {
			e, ok := eventOf(item)
			if !ok {
				h.stats.broken.Add(1)
				continue
			}
			last = max(last, e.Seq)
			if !yield(e, nil) {
				return
			}
		}
		if !o.yes("hasMore") || last == after {
			return
		}
		after = last
	}
}

// stream opens an event stream and passes its events to each until that is false
// (errEnough), the stream breaks, or ctx ends.
func (h *Host) stream(ctx context.Context, path string, query url.Values, each func(team.Event) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// One timer bounds the way to the first byte and each wait for the next.
	watchdog := time.AfterFunc(h.opts.Silence, func() { cancel(ErrSilent) })
	defer watchdog.Stop()
	broken := func(err error) error {
		if errors.Is(context.Cause(ctx), ErrSilent) {
			return fmt.Errorf("%w for %v", ErrSilent, h.opts.Silence)
		}
		if err == io.EOF {
			return fmt.Errorf("the server ended the event stream: %w", io.ErrUnexpectedEOF)
		}
		return err
	}
	res, err := h.send(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return broken(err)
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusOK && mediaType(res.Header) != "text/event-stream":
		raw, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
		if o := decode(raw); o.text("name") != "" || o.text("_tag") != "" {
			return &StatusError{Route: "GET " + path, Status: res.StatusCode, Name: short(o.text("name")+o.text("_tag"), 100)}
		}
		return fmt.Errorf("%w: the server has no event stream at %s", errors.ErrUnsupported, path)
	case res.StatusCode != http.StatusOK:
		return &StatusError{Route: "GET " + path, Status: res.StatusCode}
	}
	h.stats.connects.Add(1)
	frames := newFrameReader(&alive{res.Body, watchdog, h.opts.Silence}, h.opts.MaxFrame)
	for {
		f, err := frames.next()
		switch {
		case err != nil:
			return broken(err)
		case f.oversize || values(f.data) > max(h.opts.MaxFrame/bytesPerValue, fewValues):
			h.stats.oversize.Add(1)
			continue
		case len(f.data) == 0:
			continue
		}
		e, ok := eventOf(f.data)
		if !ok {
			h.stats.broken.Add(1)
			continue
		}
		h.stats.frames.Add(1)
		// A reader may take its time; that is not the server's silence.
		watchdog.Stop()
		more := each(e)
		watchdog.Reset(h.opts.Silence)
		if !more {
			return errEnough
		}
	}
}

// alive puts the watchdog off with every byte.
type alive struct {
	io.Reader
	watchdog *time.Timer
	silence  time.Duration
}

func (a *alive) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if n > 0 {
		a.watchdog.Reset(a.silence)
	}
	return n, err
}

// eventOf reads an event of any generation: {id, type, properties} (1.18), the same
// under "payload" (1.18, /global/event), {id, created, type, durable, data} (2.0).
func eventOf(raw json.RawMessage) (team.Event, bool) {
	o := decode(raw)
	if payload := o.object("payload"); payload != nil && o["type"] == nil {
		o = payload
	}
	e := team.Event{ID: o.text("id"), Type: o.text("type"), Time: timeOf(o["created"])}
	if e.Type == "" || strings.HasPrefix(e.Type, ownEvents) {
		return team.Event{}, false
	}
	if e.Data = clone(o["data"]); e.Data == nil {
		e.Data = clone(o["properties"])
	}
	in := decode(e.Data)
	e.Session = team.SessionID(in.text("sessionID"))
	if e.Session == "" && strings.HasPrefix(e.Type, "session.") {
		e.Session = team.SessionID(in.object("info").text("id")) // older 1.x
	}
	if durable := o.object("durable"); durable != nil {
		_ = json.Unmarshal(durable["seq"], &e.Seq) // what is no number is none
		if e.Session == "" && strings.HasPrefix(e.Type, "session.") {
			e.Session = team.SessionID(durable.text("aggregateID"))
		}
	}
	return e, true
}

// clone takes a value out of the reader's buffer.
func clone(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return nil
	}
	return append(json.RawMessage{}, raw...)
}

package fakehost

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/teamchan/team"
)

// How often a stream shows that it is there: generation 1 by an event, generation 2 by a
// comment.
const (
	heartbeatV1 = 10 * time.Second
	heartbeatV2 = 15 * time.Second
)

var streamsV1 = []route{
	{"GET", "/event", "events of one folder", func(q *request) (any, error) {
		directory := q.directory()
		return q.stream(func(e Event) []any {
			if e.Session != "" && e.Location != directory {
				return nil
			}
			return []any{e}
		})
	}, ""},
	{"GET", "/global/event", "events of all folders", func(q *request) (any, error) {
		return q.stream(func(e Event) []any {
			out := []any{globalFrame{e.Location, project(e), e}}
			if e.seq > 0 {
				out = append(out, globalFrame{e.Location, project(e), syncFrame(e)})
			}
			return out
		})
	}, ""},
}

// A globalFrame is an event of one of all folders.
type globalFrame struct {
	Directory string `json:"directory,omitempty"`
	Project   string `json:"project,omitempty"`
	Payload   any    `json:"payload"`
}

func project(e Event) string {
	if e.Location == "" {
		return ""
	}
	return "global"
}

// syncFrame tells of an event that was stored once more, with its number, for hosts that keep up with
// this one. It has no id of its own.
func syncFrame(e Event) any {
	return map[string]any{"type": "sync", "syncEvent": map[string]any{"id": e.ID, "type": e.Type + ".1", "seq": e.seq,
		"aggregateID": e.Session, "data": e.Data}}
}

var streamsV2 = []route{
	{"GET", "/api/event", "events of the server", func(q *request) (any, error) {
		return q.stream(func(e Event) []any { return []any{e} })
	}, ""},
	{"GET", "/api/experimental/session/{sessionID}/log", "the durable log of a session", (*request).log, ""},
}

// A frames writes server-sent events.
type frames struct {
	w     http.ResponseWriter
	flush *http.ResponseController
}

// frames begins a stream.
func (q *request) frames() *frames {
	header := q.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no")
	header.Set("X-Content-Type-Options", "nosniff")
	f := &frames{q.w, http.NewResponseController(q.w)}
	f.w.WriteHeader(http.StatusOK)
	return f
}

func (f *frames) write(s string) error {
	if _, err := io.WriteString(f.w, s); err != nil {
		return err
	}
	if err := f.flush.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

func (f *frames) send(v any) error {
	data, err := plainJSON(v)
	if err != nil {
		return err
	}
	return f.write("data: " + string(data) + "\n\n")
}

// stream sends the feed, each event as the frames that shape makes of it.
func (q *request) stream(shape func(Event) []any) (any, error) {
	sub, err := q.h.Event.Subscribe(q.ctx())
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	f := q.frames()
	every, v1 := heartbeatV2, q.h.profile.v1()
	if v1 {
		every = heartbeatV1
	}
	send := func(e Event) (err error) {
		for _, v := range shape(e) {
			err = cmp.Or(err, f.send(v))
		}
		return err
	}
	beat := time.Now().Add(every)
	for {
		next, cancel := context.WithDeadline(q.ctx(), beat)
		e, err := sub.Next(next)
		cancel()
		switch {
		case q.ctx().Err() != nil:
			return streamed, nil
		case errors.Is(err, context.DeadlineExceeded):
			beat = beat.Add(every)
			if !v1 {
				err = f.write(": heartbeat\n\n")
				break
			}
			err = send(Event{ID: q.h.newID("evt_"), Type: "server.heartbeat", Data: json.RawMessage("{}"), v1: true})
		case errors.Is(err, team.ErrClosed):
			if v1 {
				_ = send(Event{ID: q.h.newID("evt_"), Type: "server.instance.disposed", Location: q.h.Directory(),
					Data: mustJSON(location{q.h.Directory()}), v1: true})
			}
			return streamed, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			_ = f.write(`data: {"id":"evt_`)
			return nil, errAbort
		case err != nil: // overflow
			return nil, errAbort
		default:
			err = send(e)
		}
		if err != nil {
			return streamed, nil // the client is gone
		}
	}
}

// log sends the events of one session behind ?after=, then log.synced, then with
// ?follow=true what happens from now on.
func (q *request) log() (any, error) {
	after := int64(-1)
	if s := q.query("after"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return nil, invalid("after", "is no number of an event", "take durable.seq of one")
		}
		after = n
	}
	follow := q.query("follow")
	if follow != "" && follow != "true" && follow != "false" {
		return nil, invalid("follow", "is neither true nor false", "use one of them")
	}
	var f *frames
	for e, err := range q.h.Log.Read(q.ctx(), q.session(), after, follow == "true") {
		switch {
		case f == nil && err != nil:
			return nil, err
		case f == nil:
			f = q.frames()
		case errors.Is(err, io.ErrUnexpectedEOF):
			_ = f.write(`data: {"id":"evt_`)
			return nil, errAbort
		case errors.Is(err, ErrOverflow):
			return nil, errAbort
		}
		if err != nil || f.send(e) != nil {
			break
		}
	}
	return streamed, nil
}

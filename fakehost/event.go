package fakehost

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
)

// An Event is one thing that happened. As JSON it has the shape of its generation:
// {id, type, properties}, or {id, created, type, durable, location, data}.
type Event struct {
	ID       string // "evt_…"
	Type     string
	Created  int64 // ms; zero for server.connected
	Session  string
	Durable  *Durable        // generation 2, and only what is in the log
	Location string          // the folder that it is about; generation 2
	Data     json.RawMessage // properties or data

	v1       bool
	internal bool  // in the log only
	seq      int64 // generation 1: its number in the session, of what the real host stores; else zero
}

// Durable says where an event stands in the log of its session.
type Durable struct {
	Aggregate string `json:"aggregateID"`
	Seq       int64  `json:"seq"` // grows, with gaps
	Version   int    `json:"version"`
}

type location struct {
	Directory string `json:"directory"`
}

// MarshalJSON gives the frame that the host sends.
func (e Event) MarshalJSON() ([]byte, error) {
	if e.v1 {
		return json.Marshal(struct {
			ID   string          `json:"id"`
			Type string          `json:"type"`
			Data json.RawMessage `json:"properties"`
		}{e.ID, e.Type, e.Data})
	}
	if e.Type == "log.synced" {
		return json.Marshal(struct {
			Type      string `json:"type"`
			Aggregate string `json:"aggregateID"`
			Seq       int64  `json:"seq,omitempty"`
		}{e.Type, e.Durable.Aggregate, e.Durable.Seq})
	}
	out := struct {
		ID       string          `json:"id"`
		Created  int64           `json:"created,omitempty"`
		Type     string          `json:"type"`
		Durable  *Durable        `json:"durable,omitempty"`
		Location *location       `json:"location,omitempty"`
		Data     json.RawMessage `json:"data"`
	}{e.ID, e.Created, e.Type, e.Durable, nil, e.Data}
	if e.Location != "" {
		out.Location = &location{e.Location}
	}
	return json.Marshal(out)
}

// ErrOverflow ends the stream of a subscriber that was too slow. The other streams go
// on. OpenCode 2.0: EventFeed.SubscriberOverflow.
var ErrOverflow = errors.New("subscriber is too far behind: subscribe again, then read the sessions or the log")

// EventDomain is the host's feed: everything that happens in this process, in every
// session, from the subscription on. Nothing is replayed.
type EventDomain struct {
	h *Host

	mu   sync.Mutex // guards the fields below
	subs map[*Subscription]bool
	err  error // why there are no streams any more
}

// A Subscription is one stream of events.
type Subscription struct {
	d     *EventDomain
	logs  bool // internal events too
	ready chan struct{}

	// d.mu guards the fields below.
	queue []Event
	err   error
}

// Subscribe begins a stream: the first event is server.connected, then comes what happens
// after Subscribe has returned. Call Close when done.
func (d *EventDomain) Subscribe(ctx context.Context) (*Subscription, error) {
	if err := d.h.enter(ctx, Call{Domain: "event", Method: "subscribe"}); err != nil {
		return nil, err
	}
	return d.subscribe(false), nil
}

func (d *EventDomain) subscribe(logs bool) *Subscription {
	s := &Subscription{d: d, logs: logs, ready: make(chan struct{}, 1)}
	if !logs {
		s.queue = []Event{{ID: d.h.newID("evt_"), Type: "server.connected", Data: json.RawMessage("{}"), v1: d.h.profile.v1()}}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		s.err = d.err
	} else {
		if d.subs == nil {
			d.subs = make(map[*Subscription]bool)
		}
		d.subs[s] = true
	}
	return s
}

// Next returns the next event. It waits until there is one, ctx ends, or the stream
// does: with ErrOverflow, io.ErrUnexpectedEOF when it is cut in mid frame, io.EOF after
// Close, team.ErrClosed after the host's.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	for {
		s.d.mu.Lock()
		switch {
		case s.err != nil && !errors.Is(s.err, team.ErrClosed):
			defer s.d.mu.Unlock()
			return Event{}, s.err
		case len(s.queue) > 0:
			e := s.queue[0]
			s.queue[0] = Event{}
			s.queue = s.queue[1:]
			s.d.mu.Unlock()
			return e, nil
		case s.err != nil:
			defer s.d.mu.Unlock()
			return Event{}, s.err
		}
		s.d.mu.Unlock()
		select {
		case <-s.ready:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

// Close ends the stream.
func (s *Subscription) Close() { s.d.drop(s, io.EOF) }

func (d *EventDomain) drop(s *Subscription, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dropLocked(s, err)
}

func (d *EventDomain) dropLocked(s *Subscription, err error) {
	if s.err == nil {
		s.err = err
	}
	delete(d.subs, s)
	s.wake()
}

func (s *Subscription) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// end ends every stream.
func (d *EventDomain) end(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
	for s := range d.subs {
		d.dropLocked(s, err)
	}
}

// All is Subscribe and Next as an iterator. The subscription begins now, not with the
// loop, and ends with ctx or the loop.
func (d *EventDomain) All(ctx context.Context) iter.Seq2[Event, error] {
	s, err := d.Subscribe(ctx)
	if err == nil {
		context.AfterFunc(ctx, s.Close)
	}
	return func(yield func(Event, error) bool) {
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer s.Close()
		for {
			e, err := s.Next(ctx)
			if err != nil && ctx.Err() != nil {
				err = ctx.Err()
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Publish sends an event of any type to the feed, as a plugin or another part of the
// host would. It is not in the log. session and data may be empty.
func (d *EventDomain) Publish(ctx context.Context, typ, session string, data json.RawMessage) error {
	if err := d.h.enter(ctx, Call{Domain: "event", Method: "publish", Session: session, Name: typ}); err != nil {
		return err
	}
	if len(data) == 0 {
		data = json.RawMessage("{}")
	}
	if !json.Valid(data) {
		return invalid("event data", "is not JSON", "pass one JSON object")
	}
	return d.h.tx(func(t *tx) error {
		t.emit(typ, session, data)
		return nil
	})
}

// emit publishes an event that is not in the log, after the commit.
func (t *tx) emit(typ, session string, data any) {
	t.pub = append(t.pub, Event{ID: t.h.newID("evt_"), Type: typ, Created: t.now, Session: session,
		Location: t.locate(session), Data: mustJSON(data), v1: t.h.profile.v1()})
}

// storedV1 are the events of generation 1 that the real host stores, and so numbers.
var storedV1 = []string{"session.created", "session.updated", "session.deleted", "message.updated", "message.removed",
	"message.part.updated", "message.part.removed"}

// numberEvents gives the events of generation 1 that are to be published their numbers.
func (t *tx) numberEvents() error {
	for i := range t.pub {
		e := &t.pub[i]
		if !e.v1 || e.Session == "" || !slices.Contains(storedV1, e.Type) {
			continue
		}
		var err error
		if e.seq, err = t.nextSeq(e.Session); err != nil {
			return err
		}
	}
	return nil
}

// locate returns the folder of a session, which is that of its events.
func (t *tx) locate(session string) string {
	if at, ok := t.folders[session]; ok {
		return at
	}
	at := t.h.Directory()
	if session != "" {
		// What cannot be read has failed its transaction, or will.
		_ = t.rows(`SELECT directory FROM session_v2 WHERE id = ?`, func(s *sqlite3.Stmt) { at = s.ColumnText(0) }, session)
	}
	if t.folders == nil {
		t.folders = make(map[string]string)
	}
	t.folders[session] = at
	return at
}

// durable stores an event of session in the log and publishes it. Generation 1 stores none:
// there it is emit. It returns the event, whose id and seq are final.
func (t *tx) durable(typ, session string, version int, data any) (Event, error) {
	if t.h.profile.v1() {
		t.emit(typ, session, data)
		return t.pub[len(t.pub)-1], nil
	}
	e, err := t.store(typ, session, version, data)
	if err != nil {
		return Event{}, err
	}
	e.internal = typ == "session.usage.recorded" || typ == "session.message.content.updated"
	t.pub = append(t.pub, e)
	return e, nil
}

// store writes an event into the log.
func (t *tx) store(typ, session string, version int, data any) (Event, error) {
	seq, err := t.nextSeq(session)
	if err != nil {
		return Event{}, err
	}
	e := Event{ID: t.h.newID("evt_"), Type: typ, Created: t.now, Session: session, Location: t.locate(session),
		Durable: &Durable{session, seq, version}, Data: mustJSON(data)}
	return e, t.run(`INSERT INTO event (id, aggregate_id, seq, type, data, created) VALUES (?, ?, ?, ?, ?, ?)`,
		e.ID, session, seq, typ+"."+itoa(int64(version)), e.Data, t.now)
}

// log reads up to limit events of a session with a seq above after, or all if limit is -1.
func (t *tx) log(session string, after int64, limit int) (out []Event, err error) {
	at := t.locate(session)
	err = t.rows(`SELECT id, seq, type, data, created FROM event WHERE aggregate_id = ? AND seq > ? ORDER BY seq LIMIT ?`,
		func(s *sqlite3.Stmt) {
			typ, version := splitVersion(s.ColumnText(2))
			out = append(out, Event{ID: s.ColumnText(0), Type: typ, Created: s.ColumnInt64(4), Session: session,
				Location: at, Durable: &Durable{session, s.ColumnInt64(1), version}, Data: raw(s, 3)})
		}, session, after, limit)
	return out, err
}

// nextSeq returns the next number of the session's durable order.
func (t *tx) nextSeq(session string) (int64, error) {
	seq, _, err := t.number(`INSERT INTO event_sequence (aggregate_id, seq) VALUES (?, 1)
		ON CONFLICT DO UPDATE SET seq = seq + 1 RETURNING seq`, session)
	return seq, err
}

// send brings e to every subscriber. Host.mu is held, so the order is that of the commits.
func (d *EventDomain) send(e Event) {
	h := d.h
	if !e.internal && h.opts.Fault != nil {
		c := Call{Domain: "event", Method: "publish", Session: e.Session, Name: e.Type}
		if h.opts.Fault(context.Background(), c) != nil {
			return
		}
	}
	if h.has(FaultUnknownEvents) && !e.internal && e.Session != "" {
		unknown := e
		unknown.ID, unknown.Type, unknown.Durable, unknown.seq = h.newID("evt_"), "session.future.happened", nil, 0
		unknown.Data = mustJSON(map[string]any{"sessionID": e.Session, "surprise": true})
		d.enqueue(unknown)
	}
	d.enqueue(e)
}

func (d *EventDomain) enqueue(e Event) {
	cut, overflow, limit := d.h.has(FaultStreamCut), d.h.has(FaultOverflow), d.h.profile.Feed
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.subs {
		switch {
		case e.internal && !s.logs:
		case cut:
			d.dropLocked(s, io.ErrUnexpectedEOF)
		case overflow, limit > 0 && len(s.queue) >= limit:
			s.queue = nil
			d.dropLocked(s, ErrOverflow)
		default:
			s.queue = append(s.queue, e)
			s.wake()
		}
	}
}

// LogDomain is the durable log of each session: what can be read again after a gap.
// Deltas, progress and permissions are not in it; two internal types are, which the feed
// does not have.
//
// OpenCode 2.0: GET /api/experimental/session/:id/log.
type LogDomain struct{ h *Host }

// Read yields the session's events with a seq above after, which is exclusive (-1 for
// all), then one of type "log.synced", and if follow is set then what happens in this
// process until ctx ends.
func (d *LogDomain) Read(ctx context.Context, session string, after int64, follow bool) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := d.h.enter(ctx, Call{Domain: "log", Method: "read", Session: session})
		if err != nil {
			yield(Event{}, err)
			return
		}
		live := d.h.Event.subscribe(true)
		defer live.Close()
		var events []Event
		err = d.h.tx(func(t *tx) error {
			if _, err := t.session(session); err != nil {
				return err
			}
			var err error
			events, err = t.log(session, after, -1)
			return err
		})
		if err != nil {
			yield(Event{}, err)
			return
		}
		for _, e := range events {
			after = e.Durable.Seq
			if !yield(e, nil) {
				return
			}
		}
		if !yield(Event{Type: "log.synced", Session: session, Durable: &Durable{Aggregate: session, Seq: max(after, 0)}}, nil) || !follow {
			return
		}
		for {
			e, err := live.Next(ctx)
			if err == nil && (e.Session != session || e.Durable == nil || e.Durable.Seq <= after) {
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// splitVersion takes the version off the type of a stored event: "session.created.1".
func splitVersion(stored string) (typ string, version int) {
	i := strings.LastIndexByte(stored, '.')
	for _, c := range stored[i+1:] {
		version = version*10 + int(c-'0')
	}
	return stored[:i], version
}

package hosttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/teamchan/team"
)

// An EventsHost is a [team.Events] and what its laws need.
type EventsHost struct {
	team.Events

	// Happen lets something happen in a session that nobody else uses, by which the host
	// sends an event about that session.
	Happen func(context.Context) (team.SessionID, error)

	// Cut breaks every stream that is open, as a network does. May be in Lacks.
	Cut func()

	// Inject makes the host send an event of a type that nobody knows, with these data.
	// May be in Lacks.
	Inject func(ctx context.Context, typ string, data json.RawMessage) error

	// Lacks has the reason for each hook that is nil, under its name.
	Lacks map[string]string
}

func (h EventsHost) lacking(hook string) (bool, string) {
	there := map[string]bool{"Happen": h.Happen != nil, "Cut": h.Cut != nil, "Inject": h.Inject != nil}
	return there[hook], h.Lacks[hook]
}

// Events checks the laws of [team.Events].
func Events(t *testing.T, open func(testing.TB) EventsHost) { run(t, eventLaws, open) }

// A reader reads one stream in the background.
type reader struct {
	events chan team.Event
	ended  chan struct{} // closed when the stream has ended
	err    error         // what it ended with; read after ended
}

func read(ctx context.Context, h EventsHost) *reader {
	r := &reader{events: make(chan team.Event, 4096), ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		for e, err := range h.Events.Events(ctx) {
			if err != nil {
				if r.err != nil {
					r.err = fmt.Errorf("two errors: %w, %w", r.err, err)
				} else {
					r.err = err
				}
				continue // so that what comes behind an error shows
			}
			if r.err != nil {
				r.err = fmt.Errorf("event %q behind the error %w", e.Type, r.err)
			}
			select {
			case r.events <- e:
			default: // the reader wants no more
			}
		}
	}()
	return r
}

// until returns the first event that is wanted. It lets something happen again and again, since
// nobody can see when a stream has begun.
func (r *reader) until(ctx context.Context, again func() error, wanted func(team.Event) bool) (team.Event, error) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	seen := 0
	for {
		select {
		case e := <-r.events:
			if seen++; wanted(e) {
				return e, nil
			}
		case <-r.ended:
			return team.Event{}, fmt.Errorf("the stream ended, %v, before the event came", r.err)
		case <-tick.C:
			if err := again(); err != nil {
				return team.Event{}, err
			}
			tick.Reset(200 * time.Millisecond)
		case <-ctx.Done():
			return team.Event{}, fmt.Errorf("none of %d events is the one: %w", seen, ctx.Err())
		}
	}
}

// about lets something happen and returns the first event about it.
func (r *reader) about(ctx context.Context, h EventsHost) (team.Event, error) {
	ours := make(map[team.SessionID]bool)
	return r.until(ctx, func() error {
		id, err := h.Happen(ctx)
		ours[id] = true
		return err
	}, func(e team.Event) bool { return ours[e.Session] })
}

// end waits for the end of the stream.
func (r *reader) end(within time.Duration) error {
	select {
	case <-r.ended:
		return nil
	case <-time.After(within):
		return fmt.Errorf("the stream has not ended after %v", within)
	}
}

var eventLaws = []law[EventsHost]{
	{
		name: "events/come", says: "Events yields what happens in a session, with the session, the host's name of it, and data that are JSON",
		needs: []string{"Happen"},
		check: func(ctx context.Context, h EventsHost) error {
			e, err := read(ctx, h).about(ctx, h)
			if err != nil {
				return err
			}
			if e.Type == "" || !json.Valid(e.Data) {
				return fmt.Errorf("event = type %q, data %.80q; want a name and JSON", e.Type, e.Data)
			}
			return nil
		},
	},
	{
		name: "events/everybody", says: "Every reader gets every event",
		needs: []string{"Happen"},
		check: func(ctx context.Context, h EventsHost) error {
			a, b := read(ctx, h), read(ctx, h)
			for _, r := range []*reader{a, b} { // both have begun
				if _, err := r.about(ctx, h); err != nil {
					return err
				}
			}
			id, err := h.Happen(ctx)
			if err != nil {
				return err
			}
			for _, r := range []*reader{a, b} {
				if _, err := r.until(ctx, func() error { return nil }, func(e team.Event) bool { return e.Session == id }); err != nil {
					return err
				}
			}
			return nil
		},
	},
	{
		name: "events/context", says: "When its context ends a stream ends soon, with no error but the context's",
		needs: []string{"Happen"},
		check: func(ctx context.Context, h EventsHost) error {
			short, cancel := context.WithCancel(ctx)
			defer cancel()
			r := read(short, h)
			if _, err := r.about(ctx, h); err != nil {
				return err
			}
			cancel()
			if err := r.end(3 * time.Second); err != nil {
				return err
			}
			if r.err != nil && !errors.Is(r.err, context.Canceled) {
				return fmt.Errorf("the stream ended with %w, want nil or context.Canceled", r.err)
			}
			return nil
		},
	},
	{
		name: "events/stop", says: "A reader may stop in the middle, and begin again",
		needs: []string{"Happen"},
		check: func(ctx context.Context, h EventsHost) error {
			for range 3 {
				done := make(chan error, 1)
				go func() {
					for _, err := range h.Events.Events(ctx) {
						done <- err
						return
					}
					done <- errors.New("the stream ended before an event came")
				}()
				err := eventually(ctx, func() error {
					select {
					case err := <-done:
						if err != nil {
							return err
						}
						return nil
					default:
						_, err := h.Happen(ctx)
						return errors.Join(errors.New("no event came"), err)
					}
				})
				if err != nil {
					return err
				}
			}
			return nil
		},
	},
	{
		name: "events/break", says: "A stream that breaks yields one error, and nothing behind it; the next one works",
		needs: []string{"Happen", "Cut"},
		check: func(ctx context.Context, h EventsHost) error {
			r := read(ctx, h)
			if _, err := r.about(ctx, h); err != nil {
				return err
			}
			h.Cut()
			if err := r.end(10 * time.Second); err != nil {
				return err
			}
			if r.err == nil {
				return errors.New("the stream ended without an error, want one")
			}
			if errors.Is(r.err, context.Canceled) || errors.Is(r.err, context.DeadlineExceeded) {
				return fmt.Errorf("the stream ended with %w, though its context has not", r.err)
			}
			_, err := read(ctx, h).about(ctx, h)
			return err
		},
	},
	{
		name: "events/unknown", says: "An event of a type that nobody knows is passed on under its name, with its data",
		needs: []string{"Happen", "Inject"},
		check: func(ctx context.Context, h EventsHost) error {
			const typ = "hosttest.never.heard"
			e, err := read(ctx, h).until(ctx, func() error {
				return h.Inject(ctx, typ, json.RawMessage(`{"strange":[1,{"deep":null}]}`))
			}, func(e team.Event) bool { return e.Type == typ })
			if err != nil {
				return err
			}
			var got struct{ Strange []any }
			if err := json.Unmarshal(e.Data, &got); err != nil || len(got.Strange) != 2 {
				return fmt.Errorf("data = %.80q, want what was sent", e.Data)
			}
			return nil
		},
	},
	{
		name: "events/numbers", says: "Numbers of one session only grow, where the host has any",
		needs: []string{"Happen"},
		check: func(ctx context.Context, h EventsHost) error {
			r := read(ctx, h)
			last := make(map[team.SessionID]uint64)
			var wrong error
			for range 3 {
				_, err := r.until(ctx, func() error { _, err := h.Happen(ctx); return err }, func(e team.Event) bool {
					if e.Seq > 0 && e.Session != "" {
						if e.Seq <= last[e.Session] && wrong == nil {
							wrong = fmt.Errorf("session %q: number %d behind %d", e.Session, e.Seq, last[e.Session])
						}
						last[e.Session] = e.Seq
					}
					return e.Session != ""
				})
				if err := errors.Join(err, wrong); err != nil {
					return err
				}
			}
			return nil
		},
	},
}

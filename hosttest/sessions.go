package hosttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/teamchan/team"
)

// A SessionsHost is a [team.Sessions] and what its laws need.
type SessionsHost struct {
	team.Sessions

	// New makes a session that nobody else uses. It is idle.
	New func(context.Context) (team.SessionID, error)

	// Unknown has the form of a session's id, and is none.
	Unknown team.SessionID

	// Texts returns the texts that a session holds: of its messages, and of notes that
	// wait, in order.
	Texts func(context.Context, team.SessionID) ([]string, error)

	// Child makes a session whose parent is the given one. May be in Lacks.
	Child func(context.Context, team.SessionID) (team.SessionID, error)

	// Work makes an idle session work for a minute, or until it is interrupted, and
	// returns when it does. A law ends before it would by itself. May be in Lacks.
	Work func(context.Context, team.SessionID) error

	// Works reports whether a session is working. May be in Lacks.
	Works func(context.Context, team.SessionID) (bool, error)

	// Lacks has the reason for each hook that is nil, under its name.
	Lacks map[string]string
}

func (h SessionsHost) lacking(hook string) (bool, string) {
	there := map[string]bool{"New": h.New != nil, "Texts": h.Texts != nil, "Child": h.Child != nil, "Work": h.Work != nil, "Works": h.Works != nil}
	return there[hook], h.Lacks[hook]
}

// Sessions checks the laws of [team.Sessions].
func Sessions(t *testing.T, open func(testing.TB) SessionsHost) { run(t, sessionLaws, open) }

var sessionLaws = []law[SessionsHost]{
	{
		name: "session/known", says: "Session returns the session that it is asked for, with the host's own object",
		needs: []string{"New"},
		check: func(ctx context.Context, h SessionsHost) error {
			for range 2 {
				id, err := h.New(ctx)
				if err != nil {
					return err
				}
				s, err := h.Session(ctx, id)
				if err != nil || s.ID != id {
					return wrong("Session(%q) = session %q, %v", id, s.ID, err)
				}
				if !json.Valid(s.Raw) {
					return wrong("Raw is no JSON: %.80q", s.Raw)
				}
			}
			return nil
		},
	},
	{
		name: "session/unknown", says: "Session, Deliver and Interrupt return ErrNotFound for a session that does not exist",
		check: func(ctx context.Context, h SessionsHost) error {
			_, err1 := h.Session(ctx, h.Unknown)
			_, err2 := h.Deliver(ctx, h.Unknown, note(h.Unknown, "to nobody"))
			_, err3 := h.Interrupt(ctx, h.Unknown)
			return errors.Join(is("Session", err1, team.ErrNotFound), is("Deliver", err2, team.ErrNotFound), is("Interrupt", err3, team.ErrNotFound))
		},
	},
	{
		name: "session/strange id", says: "An id that no host makes is ErrNotFound or ErrInvalid, and leads to no other session",
		needs: []string{"New", "Texts"},
		check: inSession(func(ctx context.Context, h SessionsHost, id team.SessionID) error {
			for _, bad := range []team.SessionID{"", "x", "..", id + "/", id + "/../" + id, id + "?a", id + "#a", id + "%00", id + "\x00", id + "\n", "../" + id, team.SessionID(strings.Repeat("s", 5000)), id + "\xff"} {
				_, err1 := h.Session(ctx, bad)
				_, err2 := h.Deliver(ctx, bad, note(bad, "astray"))
				for _, err := range []error{err1, err2} {
					if !errors.Is(err, team.ErrNotFound) && !errors.Is(err, team.ErrInvalid) {
						return fmt.Errorf("a call for %.60q = %v, want ErrNotFound or ErrInvalid", bad, err)
					}
				}
			}
			return holds(ctx, h, id)
		}),
	},
	{
		name: "session/parent", says: "A child's session names its parent",
		needs: []string{"New", "Child"},
		check: inSession(func(ctx context.Context, h SessionsHost, id team.SessionID) error {
			child, err := h.Child(ctx, id)
			if err != nil {
				return err
			}
			s, err := h.Session(ctx, child)
			if err != nil || s.Parent != id {
				return wrong("Session(child).Parent = %q, %v, want %q", s.Parent, err, id)
			}
			return nil
		}),
	},
	{
		name: "deliver/held", says: "When Deliver returns nil the session holds the text, and Delivered has an id and the same text",
		needs: []string{"New", "Texts"},
		check: inSession(func(ctx context.Context, h SessionsHost, id team.SessionID) error {
			if err := deliver(ctx, h, id, note(id, "first")); err != nil {
				return err
			}
			return holds(ctx, h, id, "first")
		}),
	},
	{
		name: "deliver/whole", says: "A text arrives byte for byte: spaces, tags, quotes, line ends, any script, a hundred kilobytes",
		needs: []string{"New", "Texts"},
		check: inSession(func(ctx context.Context, h SessionsHost, id team.SessionID) error {
			texts := []string{"  spaces \t\n\n", `<a b="c">&amp;</a>`, "中文 é 👩‍💻 \u2028 \u200b", "line\r\nline", `\"\\`, strings.Repeat("a hundred kilobytes ", 5000)}
			for _, text := range texts {
				if err := deliver(ctx, h, id, note(id, text)); err != nil {
					return err
				}
			}
			return holds(ctx, h, id, texts...)
		}),
	},
	{
		name: "deliver/order", says: "Notes that are delivered one after another stand in that order",
		needs: []string{"New", "Texts"},
		check: inSession(func(ctx context.Context, h SessionsHost, id team.SessionID) error {
			var texts []string
			for i := range 12 {
				texts = append(texts, fmt.Sprintf("note %d", i))
				if err := deliver(ctx, h, id, note(id, texts[i])); err != nil {
					return err
				}
			}
			return holds(ctx, h, id, texts...)
		}),
	},
	{
		name: "deliver/again", says: "Deliver with the same ID makes no second note",
		needs: []string{"New", "Texts"},
		check: inSession(func(ctx context.Context, h SessionsHost, id team.SessionID) error {
			n := note(id, "once")
			var ids []string
			for range 3 {
				d, err := h.Deliver(ctx, id, n)
				if err != nil || d.Text != "once" {
					return wrong("Deliver = %q, %v, want once", d.Text, err)
				}
				ids = append(ids, d.ID)
			}
			if len(slices.Compact(ids)) != 1 {
				return wrong("Deliver returned the ids %q, want one", ids)
			}
			return holds(ctx, h, id, "once")
		}),
	},
	{
		name: "deliver/at once", says: "Deliver with the same ID from several goroutines makes one note",
		needs: []string{"New", "Texts"},
		check: inSession(func(ctx context.Context, h SessionsHost, id team.SessionID) error {
			n := note(id, "once")
			errs := make([]error, 8)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() { errs[i] = deliver(ctx, h, id, n) })
			}
			wg.Wait()
			if err := errors.Join(errs...); err != nil {
				return err
			}
			return holds(ctx, h, id, "once")
		}),
	},
	{
		name: "deliver/other text", says: "Deliver with a used ID and another text returns the text that the host holds, and that is the only one",
		needs: []string{"New", "Texts"},
		check: inSession(func(ctx context.Context, h SessionsHost, id team.SessionID) error {
			n := note(id, "the first")
			if err := deliver(ctx, h, id, n); err != nil {
				return err
			}
			n.Text = "the second"
			d, err := h.Deliver(ctx, id, n)
			if errors.Is(err, team.ErrConflict) {
				return holds(ctx, h, id, "the first")
			}
			if err != nil {
				return err
			}
			return holds(ctx, h, id, d.Text)
		}),
	},
	{
		name: "deliver/foreign id", says: "An ID that a note of another session has never leads into that session",
		needs: []string{"New", "Texts"},
		check: func(ctx context.Context, h SessionsHost) error {
			a, err := h.New(ctx)
			if err != nil {
				return err
			}
			b, err := h.New(ctx)
			if err != nil {
				return err
			}
			n := note(a, "for a")
			if err := deliver(ctx, h, a, n); err != nil {
				return err
			}
			n.Text = "for b"
			d, err := h.Deliver(ctx, b, n)
			if errors.Is(err, team.ErrConflict) {
				return errors.Join(holds(ctx, h, a, "for a"), holds(ctx, h, b))
			}
			if err != nil {
				return err
			}
			return errors.Join(holds(ctx, h, a, "for a"), holds(ctx, h, b, d.Text))
		},
	},
	{
		name: "deliver/no wake", says: "A note without Wake does not make an idle session work",
		needs: []string{"New", "Works"},
		check: inSession(func(ctx context.Context, h SessionsHost, id team.SessionID) error {
			n := note(id, "rest")
			n.Delivery = team.DeliveryQueue
			if err := deliver(ctx, h, id, n); err != nil {
				return err
			}
			for range 10 {
				if works, err := h.Works(ctx, id); err != nil || works {
					return fmt.Errorf("the session works = %v, %v, want false", works, err)
				}
				time.Sleep(20 * time.Millisecond)
			}
			return nil
		}),
	},
	{
		name: "deliver/ended context", says: "Deliver with a context that has ended returns its error and delivers nothing",
		needs: []string{"New", "Texts"},
		check: inSession(func(ctx context.Context, h SessionsHost, id team.SessionID) error {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			_, err := h.Deliver(ended, id, note(id, "too late"))
			return errors.Join(is("Deliver", err, context.Canceled), holds(ctx, h, id))
		}),
	},
	{
		name: "interrupt/idle", says: "Interrupt never says that it stopped an idle session",
		needs: []string{"New"},
		check: inSession(func(ctx context.Context, h SessionsHost, id team.SessionID) error {
			v, err := h.Interrupt(ctx, id)
			if err != nil || v == team.InterruptStopped || v == "" {
				return wrong("Interrupt = %q, %v, want idle or unknown", v, err)
			}
			return nil
		}),
	},
	{
		name: "interrupt/working", says: "Interrupt stops a session that works, and never says that it was idle",
		needs: []string{"New", "Work", "Works"},
		check: inSession(func(ctx context.Context, h SessionsHost, id team.SessionID) error {
			if err := h.Work(ctx, id); err != nil {
				return err
			}
			if works, err := h.Works(ctx, id); err != nil || !works {
				return fmt.Errorf("the session works = %v, %v, want true", works, err)
			}
			v, err := h.Interrupt(ctx, id)
			if err != nil || v == team.InterruptIdle || v == "" {
				return wrong("Interrupt = %q, %v, want stopped or unknown", v, err)
			}
			return eventually(ctx, func() error {
				if works, err := h.Works(ctx, id); err != nil || works {
					return fmt.Errorf("after Interrupt the session works = %v, %v, want false", works, err)
				}
				return nil
			})
		}),
	},
	{
		name: "interrupt/keeps notes", says: "Interrupt takes back no note",
		needs: []string{"New", "Work", "Texts"},
		check: inSession(func(ctx context.Context, h SessionsHost, id team.SessionID) error {
			if err := h.Work(ctx, id); err != nil {
				return err
			}
			n := note(id, "still here")
			n.Delivery = team.DeliveryQueue
			if err := deliver(ctx, h, id, n); err != nil {
				return err
			}
			if _, err := h.Interrupt(ctx, id); err != nil {
				return err
			}
			texts, err := h.Texts(ctx, id)
			if err != nil || !slices.Contains(texts, n.Text) {
				return fmt.Errorf("the session holds %.300q, %v, want the note among them", texts, err)
			}
			return nil
		}),
	},
}

// inSession is a law about one new session.
func inSession(check func(ctx context.Context, h SessionsHost, id team.SessionID) error) func(context.Context, SessionsHost) error {
	return func(ctx context.Context, h SessionsHost) error {
		id, err := h.New(ctx)
		if err != nil {
			return err
		}
		return check(ctx, h, id)
	}
}

func note(to team.SessionID, text string) team.Note {
	return team.Note{ID: NoteID(to), Text: text, Description: "a note of hosttest", Metadata: map[string]string{"source": "hosttest"}, Delivery: team.DeliverySteer}
}

// deliver delivers a note whose text must be kept.
func deliver(ctx context.Context, h SessionsHost, to team.SessionID, n team.Note) error {
	d, err := h.Deliver(ctx, to, n)
	switch {
	case err != nil:
		return wrong("Deliver = %w", err)
	case d.ID == "":
		return wrong("Deliver = no id, want the host's")
	case d.Text != n.Text:
		return wrong("Deliver = text %.80q, want %.80q", d.Text, n.Text)
	}
	return nil
}

// holds checks what a session has.
func holds(ctx context.Context, h SessionsHost, id team.SessionID, want ...string) error {
	got, err := h.Texts(ctx, id)
	if err != nil {
		return wrong("Texts: %w", err)
	}
	if !slices.Equal(got, want) {
		var b bytes.Buffer
		fmt.Fprintf(&b, "the session holds %d texts, want %d", len(got), len(want))
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				fmt.Fprintf(&b, "; number %d is %.80q, want %.80q", i, at(got, i), at(want, i))
				break
			}
		}
		return errors.New(b.String())
	}
	return nil
}

func at(s []string, i int) string {
	if i < len(s) {
		return s[i]
	}
	return "(none)"
}

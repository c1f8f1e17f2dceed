package fakehost

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"

	"github.com/teamchan/team"
)

// The ports of package team. One that the profile's host does not have is a nil
// interface.

// Sessions returns the host's sessions; it is a team.Inspector and a team.ChildLister too.
// In generation 1, where an id is no idempotency key, it looks first whether the note is
// there, as an adapter must.
func (h *Host) Sessions() team.Sessions { return sessionPort{h} }

// Events returns the host's feed.
func (h *Host) Events() team.Events { return eventPort{h} }

// Storage returns the host's key-value storage, nil in generation 1.
func (h *Host) Storage() team.Storage {
	if h.KV == nil {
		return nil
	}
	return storagePort{h.KV}
}

// Tools returns the host's hook behind tools.
func (h *Host) Tools() team.Tools { return toolPort{h} }

// Permissions returns the host's rules.
func (h *Host) Permissions() team.Permissions {
	return team.PermissionsFunc(func(ctx context.Context, session team.SessionID, action, resource string) (team.Effect, error) {
		return h.Permission.Evaluate(ctx, string(session), action, resource)
	})
}

type sessionPort struct{ h *Host }

func (p sessionPort) Session(ctx context.Context, id team.SessionID) (team.Session, error) {
	s, err := p.h.Session.Get(ctx, string(id))
	if err != nil {
		return team.Session{}, err
	}
	return s.port()
}

// port is the session as package team has it.
func (s *Session) port() (team.Session, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return team.Session{}, err
	}
	out := team.Session{ID: team.SessionID(s.ID), Parent: team.SessionID(s.Parent), Agent: s.Agent, Title: s.Title, Directory: s.Directory,
		Created: time.UnixMilli(s.Created), Outcome: s.Outcome, Raw: raw}
	if s.Idle > 0 {
		out.Idle = time.UnixMilli(s.Idle)
	}
	return out, nil
}

func (p sessionPort) Deliver(ctx context.Context, to team.SessionID, note team.Note) (team.Delivered, error) {
	in := Prompt{ID: note.ID, Text: note.Text, Description: note.Description, Delivery: note.Delivery, NoResume: !note.Wake}
	if note.Metadata != nil {
		in.Metadata = mustJSON(note.Metadata)
	}
	if !p.h.profile.v1() {
		item, err := p.h.Session.Synthetic(ctx, string(to), in)
		return team.Delivered{ID: item.ID, Text: item.Text()}, err
	}
	in.Synthetic, in.Delivery = true, ""
	if note.ID == "" {
		item, err := p.h.Session.Prompt(ctx, string(to), in)
		return team.Delivered{ID: item.ID, Text: item.Text(), InConversation: err == nil}, err
	}
	p.h.noteMu.Lock()
	defer p.h.noteMu.Unlock()
	if _, err := p.h.Session.Get(ctx, string(to)); err != nil {
		return team.Delivered{}, err
	}
	var was *Message
	err := p.h.tx(func(t *tx) (err error) {
		was, err = t.message(note.ID)
		return err
	})
	switch {
	case err == nil && was.Session != string(to):
		return team.Delivered{}, &ConflictError{note.ID, "belongs to a message of another session"}
	case err == nil:
		return team.Delivered{ID: was.ID, Text: was.Text(), InConversation: true}, nil
	case !errors.Is(err, team.ErrNotFound):
		return team.Delivered{}, err
	}
	item, err := p.h.Session.Prompt(ctx, string(to), in)
	return team.Delivered{ID: item.ID, Text: item.Text(), InConversation: err == nil}, err
}

func (p sessionPort) Interrupt(ctx context.Context, id team.SessionID) (team.InterruptVerdict, error) {
	stopped, err := p.h.Session.Interrupt(ctx, string(id), false)
	switch {
	case err != nil:
		return "", err
	case p.h.profile.v1(): // abort answers true, whatever there was to stop
		return team.InterruptUnknown, nil
	case stopped:
		return team.InterruptStopped, nil
	default:
		return team.InterruptIdle, nil
	}
}

type eventPort struct{ h *Host }

func (p eventPort) Events(ctx context.Context) iter.Seq2[team.Event, error] {
	all := p.h.Event.All(ctx)
	return func(yield func(team.Event, error) bool) {
		for e, err := range all {
			out := team.Event{ID: e.ID, Type: e.Type, Session: team.SessionID(e.Session), Data: e.Data}
			if e.Created > 0 {
				out.Time = time.UnixMilli(e.Created)
			}
			if e.Durable != nil {
				out.Seq = uint64(e.Durable.Seq)
			}
			if !yield(out, err) {
				return
			}
		}
	}
}

type storagePort struct{ d *StorageDomain }

func (p storagePort) Get(ctx context.Context, key string) (json.RawMessage, error) {
	return p.d.Get(ctx, key)
}

func (p storagePort) Set(ctx context.Context, key string, value json.RawMessage) error {
	return p.d.Set(ctx, key, value)
}

func (p storagePort) Remove(ctx context.Context, key string) error { return p.d.Remove(ctx, key) }

func (p storagePort) Scan(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for from := after; ; {
			page, err := p.d.Scan(ctx, Scan{Prefix: prefix, After: from})
			if err != nil {
				yield("", err)
				return
			}
			for _, e := range page.Entries {
				if !yield(e.Key, nil) {
					return
				}
			}
			if from = page.Next; from == "" {
				return
			}
		}
	}
}

type toolPort struct{ h *Host }

func (p toolPort) AfterTool(rewrite func(context.Context, team.ToolResult) (team.ToolResult, error)) (stop func()) {
	return p.h.Tool.After(func(ctx context.Context, a *AfterTool) error {
		if a.Status != "completed" {
			return nil
		}
		out, err := rewrite(ctx, team.ToolResult{Tool: a.Tool, Session: team.SessionID(a.Session), Agent: a.Agent, Call: a.Call, Result: a.Result})
		if err == nil {
			a.Result = out.Result
		}
		return err
	})
}

package fakehost

import (
	"context"
	"encoding/json"
	"time"

	"github.com/teamchan/team"
)

// The session port is a team.ChildLister and a team.Inspector too: what it tells is what the host's
// own routes tell, and no more.

func (p sessionPort) ChildSessions(ctx context.Context, id team.SessionID) ([]team.Session, error) {
	list, err := p.h.Session.Children(ctx, string(id))
	if err != nil {
		return nil, err
	}
	out := make([]team.Session, 0, len(list))
	for _, s := range list {
		one, err := s.port()
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// Inspect says that a session is idle only if it was before and behind all else that it reads, so
// that what it reads belongs to a turn that is over.
func (p sessionPort) Inspect(ctx context.Context, id team.SessionID) (team.Inspection, error) {
	before, err := p.running(ctx)
	if err != nil {
		return team.Inspection{}, err
	}
	s, err := p.Session(ctx, id)
	out := team.Inspection{Session: s}
	if err != nil {
		return out, err
	}
	if out.Last, err = p.last(ctx, string(id)); err != nil {
		return out, err
	}
	if out.Open, err = p.below(ctx, string(id), before); err != nil {
		return out, err
	}
	if out.Asks, err = p.asks(ctx, string(id)); err != nil {
		return out, err
	}
	waiting, err := p.waiting(ctx, s)
	if err != nil {
		return out, err
	}
	after, err := p.running(ctx)
	switch {
	case before[string(id)] || after[string(id)]:
		out.Activity = team.ActivityRunning
	case !waiting:
		out.Activity = team.ActivityIdle
	}
	return out, err
}

func (p sessionPort) running(ctx context.Context) (map[string]bool, error) {
	list, err := p.h.Session.Active(ctx)
	out := make(map[string]bool, len(list))
	for _, id := range list {
		out[id] = true
	}
	return out, err
}

// waiting reports whether a session that has never ended a turn has something in its inbox: then it
// may be about to begin.
func (p sessionPort) waiting(ctx context.Context, s team.Session) (bool, error) {
	if p.h.profile.v1() || s.Outcome != "" {
		return false, nil
	}
	items, err := p.h.Inbox.List(ctx, string(s.ID))
	return len(items) > 0, err
}

// last returns the last message of the session's agent.
func (p sessionPort) last(ctx context.Context, id string) (*team.LastMessage, error) {
	page := MessagePage{Limit: 20, Newest: true}
	for {
		list, err := p.h.Session.Messages(ctx, id, page)
		if err != nil || len(list) == 0 {
			return nil, err
		}
		for _, m := range list {
			if m.Type == "assistant" {
				return m.last(), nil
			}
		}
		page.Before = list[len(list)-1].Seq
	}
}

func (m *Message) last() *team.LastMessage {
	var info struct {
		Finish string `json:"finish"`
		Time   struct {
			Completed int64 `json:"completed"`
		} `json:"time"`
		Error *struct {
			Name string `json:"name"`
			Type string `json:"type"`
		} `json:"error"`
	}
	_ = json.Unmarshal(m.Data, &info) // written by this host
	out := &team.LastMessage{Text: m.Text(), Finish: info.Finish}
	if info.Time.Completed > 0 {
		out.Completed = time.UnixMilli(info.Time.Completed)
	}
	if info.Error != nil {
		why, _ := m.Failed()
		name := info.Error.Name + info.Error.Type // one generation has one, the other the other
		out.Error, out.Aborted = name+": "+why, name == "MessageAbortedError" || name == "aborted"
	}
	return out
}

// below returns the descendants that run.
func (p sessionPort) below(ctx context.Context, id string, running map[string]bool) ([]team.SessionID, error) {
	open := []team.SessionID{}
	if len(running) == 0 {
		return open, nil
	}
	for todo := []string{id}; len(todo) > 0; todo = todo[1:] {
		list, err := p.h.Session.Children(ctx, todo[0])
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			todo = append(todo, s.ID)
			if running[s.ID] {
				open = append(open, team.SessionID(s.ID))
			}
		}
	}
	return open, nil
}

// asks returns what a session waits for somebody to answer.
func (p sessionPort) asks(ctx context.Context, id string) ([]team.ChildAsk, error) {
	out := []team.ChildAsk{}
	permissions, err := p.h.Permission.List(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, a := range permissions {
		out = append(out, team.ChildAsk{ID: a.ID, Kind: "permission", Session: team.SessionID(a.Session)})
	}
	if p.h.Question != nil {
		list, err := p.h.Question.List(ctx, id)
		if err != nil {
			return nil, err
		}
		for _, a := range list {
			out = append(out, team.ChildAsk{ID: a.ID, Kind: "question", Session: team.SessionID(a.Session)})
		}
	}
	if p.h.Form != nil {
		list, err := p.h.Form.List(ctx, id)
		if err != nil {
			return nil, err
		}
		for _, a := range list {
			out = append(out, team.ChildAsk{ID: a.ID, Kind: "form", Session: team.SessionID(a.Session)})
		}
	}
	return out, nil
}

package opencode

import (
	"context"
	"errors"
	"net/url"
	"slices"

	"github.com/teamchan/team"
)

// mostBelow is of how many descendants Inspect looks for those that run.
const mostBelow = 1000

// ChildSessions is Children: it makes h a team.ChildLister.
func (h *Host) ChildSessions(ctx context.Context, id team.SessionID) ([]team.Session, error) {
	return h.Children(ctx, id)
}

// Inspect returns what the server knows of a session at the moment: it makes h a
// team.Inspector. It says that the session is idle only if it was before and behind
// all else that it reads, so that what it reads belongs to a turn that is over. What a
// generation has no route for is zero. It takes half a dozen requests and one more for each
// descendant while anything runs on the server; with more than 1000 of them, Open is nil.
//
// OpenCode 1.18: the routes of Session, Active, Messages, Children, Permissions and Questions.
// 2.0: the same and Inbox: a session that never ended a turn and has something in its inbox
// is not called idle.
func (h *Host) Inspect(ctx context.Context, id team.SessionID) (team.Inspection, error) {
	s, err := h.Session(ctx, id) // first: it says in which directory to ask
	if err != nil {
		return team.Inspection{}, err
	}
	before, err := h.running(ctx, s)
	if err != nil {
		return team.Inspection{Session: s}, err
	}
	out := team.Inspection{}
	if out.Session, err = h.Session(ctx, id); err != nil {
		return out, err
	}
	if out.Last, err = h.lastMessage(ctx, id); err != nil {
		return out, err
	}
	if before != nil {
		if out.Open, err = h.below(ctx, id, before); err != nil {
			return out, err
		}
	}
	if out.Asks, err = h.asks(ctx, s); err != nil {
		return out, err
	}
	waiting := false
	if h.info.Generation == V2 && out.Outcome == "" {
		items, err := h.Inbox(ctx, id)
		if err != nil {
			return out, err
		}
		waiting = len(items) > 0
	}
	after, err := h.running(ctx, s)
	_, was := before[id]
	_, is := after[id]
	switch {
	case was || is:
		out.Activity = team.ActivityRunning
	case before != nil && after != nil && !waiting:
		out.Activity = team.ActivityIdle
	}
	return out, err
}

// running is Active in the session's own directory; nil if the server cannot say.
func (h *Host) running(ctx context.Context, s team.Session) (map[team.SessionID]string, error) {
	active, err := h.active(ctx, h.own(s))
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	return active, err
}

// own is the query that leads to the instance of a session's directory; only 1.18 takes it.
func (h *Host) own(s team.Session) url.Values {
	if !h.v1() {
		return nil
	}
	return in(s.Directory)
}

// locationOf is own for a list that takes a directory in each generation.
func (h *Host) locationOf(s team.Session) url.Values {
	if h.v1() || s.Directory == "" {
		return h.own(s)
	}
	return url.Values{"location[directory]": {s.Directory}}
}

// lastMessage returns the last message of the session's agent.
func (h *Host) lastMessage(ctx context.Context, id team.SessionID) (*team.LastMessage, error) {
	for _, most := range []int{20, 0} { // few, and all of them only if none of those is the agent's
		list, err := h.Messages(ctx, id, most)
		if err != nil {
			return nil, err
		}
		for _, m := range slices.Backward(list) {
			if m.Type == "assistant" {
				return lastOf(m), nil
			}
		}
		if len(list) < most {
			break
		}
	}
	return nil, nil
}

func lastOf(m Message) *team.LastMessage {
	o := decode(m.Raw)
	if info := o.object("info"); info != nil { // 1.18
		o = info
	}
	last := &team.LastMessage{Text: m.Text(), Completed: m.Ended, Finish: o.text("finish")}
	if failed := o.object("error"); failed != nil || m.Error != "" {
		name, message := failed.text("name"), failed.object("data").text("message")
		if name == "" {
			name = failed.text("type") // 2.0
		}
		if message == "" {
			message = failed.text("message")
		}
		last.Error, last.Aborted = m.Error, name == "MessageAbortedError" || name == "aborted"
		if name != "" && message != "" {
			last.Error = name + ": " + message
		}
	}
	return last
}

// below returns the descendants that run; nil if the server does not name children, or too many.
func (h *Host) below(ctx context.Context, id team.SessionID, active map[team.SessionID]string) ([]team.SessionID, error) {
	if h.info.Generation == V1API {
		return nil, nil
	}
	open := []team.SessionID{}
	seen := map[team.SessionID]bool{id: true}
	for todo := []team.SessionID{id}; len(todo) > 0 && len(active) > 0; todo = todo[1:] {
		list, err := h.Children(ctx, todo[0])
		if errors.Is(err, team.ErrNotFound) && todo[0] != id {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			if seen[s.ID] {
				continue
			}
			if len(seen) > mostBelow {
				return nil, nil
			}
			seen[s.ID] = true
			todo = append(todo, s.ID)
			if _, ok := active[s.ID]; ok {
				open = append(open, s.ID)
			}
		}
	}
	return open, nil
}

// asks returns what a session waits for somebody to answer; nil if the server cannot say.
func (h *Host) asks(ctx context.Context, s team.Session) ([]team.ChildAsk, error) {
	permissions, err := h.permissionsAt(ctx, h.locationOf(s))
	var questions []Question
	if err == nil {
		questions, err = h.questionsAt(ctx, s.ID, h.own(s))
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	asks := []team.ChildAsk{}
	for _, p := range permissions {
		if p.Session == s.ID && p.ID != "" {
			asks = append(asks, team.ChildAsk{ID: p.ID, Kind: "permission", Session: s.ID})
		}
	}
	for _, q := range questions {
		if q.Session == s.ID && q.ID != "" {
			asks = append(asks, team.ChildAsk{ID: q.ID, Kind: h.questions(), Session: s.ID})
		}
	}
	return asks, nil
}

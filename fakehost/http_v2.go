package fakehost

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"slices"

	"github.com/teamchan/team"
)

var routesV2 = []route{
	{"GET", "/api/info", "which server this is", func(q *request) (any, error) {
		return map[string]any{"version": q.h.profile.Version, "pid": os.Getpid()}, nil
	}, ""},
	{"GET", "/api/location", "the folder", func(q *request) (any, error) { return data(location{q.directory()}), nil }, ""},
	{"GET", "/api/agent", "the agents", func(q *request) (any, error) {
		list, err := q.h.Agent.List(q.ctx())
		return q.located(array(list)), err
	}, ""},
	{"GET", "/api/plugin", "the plugins", nil, lacksShape},
	{"GET", "/api/session", "sessions: ?limit=, order=, search=, parentID=, directory=, cursor=", (*request).sessionsV2, ""},
	{"POST", "/api/session", "make a session, or adopt the one of the id", (*request).createV2, ""},
	{"GET", "/api/session/active", "the sessions that this process works on", (*request).activeV2, ""},
	{"GET", "/api/session/{sessionID}", "one session", func(q *request) (any, error) {
		s, err := q.h.Session.Get(q.ctx(), q.session())
		return data(s), err
	}, ""},
	{"PATCH", "/api/session/{sessionID}", "change a session: {title?, metadata?, permissions?}", (*request).updateV2, ""},
	{"DELETE", "/api/session/{sessionID}", "delete a session and its children", func(q *request) (any, error) {
		return nil, q.h.Session.Remove(q.ctx(), q.session())
	}, ""},
	{"POST", "/api/session/{sessionID}/fork", "copy a session: {before?}", func(q *request) (any, error) {
		var in struct{ Before string }
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		s, err := q.h.Session.Fork(q.ctx(), q.session(), in.Before)
		return data(s), err
	}, ""},
	{"POST", "/api/session/{sessionID}/agent", "switch the agent: {agent}", func(q *request) (any, error) {
		var in struct{ Agent string }
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		return nil, q.h.Session.SwitchAgent(q.ctx(), q.session(), in.Agent)
	}, ""},
	{"POST", "/api/session/{sessionID}/model", "switch the model: {model}", func(q *request) (any, error) {
		var in struct{ Model Model }
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		return nil, q.h.Session.SwitchModel(q.ctx(), q.session(), in.Model)
	}, ""},
	{"POST", "/api/session/{sessionID}/move", "move to another folder: {directory, delivery?}", func(q *request) (any, error) {
		var in struct {
			Directory string
			Delivery  team.Delivery
		}
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		return nil, q.h.Session.Move(q.ctx(), q.session(), in.Directory, in.Delivery)
	}, ""},
	{"POST", "/api/session/{sessionID}/prompt", "work from a user", func(q *request) (any, error) {
		return q.admitV2(q.h.Session.Prompt)
	}, ""},
	{"POST", "/api/session/{sessionID}/synthetic", "work from a program", func(q *request) (any, error) {
		return q.admitV2(q.h.Session.Synthetic)
	}, ""},
	{"POST", "/api/session/{sessionID}/compact", "compaction: {id?, delivery?}", func(q *request) (any, error) {
		return q.admitV2(q.h.Session.Compact)
	}, ""},
	{"POST", "/api/session/{sessionID}/command", "work by the name of a command: {name, text?}", func(q *request) (any, error) {
		var in struct{ Name, Text string }
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		_, err := q.h.Session.Command(q.ctx(), q.session(), in.Name, in.Text)
		return nil, err
	}, ""},
	{"POST", "/api/session/{sessionID}/shell", "run a shell command: {command}", func(q *request) (any, error) {
		var in struct{ Command string }
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		if q.h.Shell == nil {
			return nil, q.h.absent("shell without a folder: set Options.Directory")
		}
		_, _, err := q.h.Shell.Run(q.ctx(), q.session(), in.Command)
		return nil, err
	}, ""},
	{"POST", "/api/session/{sessionID}/resume", "wake, and wait until it is idle", func(q *request) (any, error) {
		return nil, q.h.Session.Resume(q.ctx(), q.session())
	}, ""},
	{"POST", "/api/session/{sessionID}/interrupt", "stop: ?resume=true goes on with steers", func(q *request) (any, error) {
		stopped, err := q.h.Session.Interrupt(q.ctx(), q.session(), q.query("resume") == "true")
		return data(map[string]bool{"interrupted": stopped}), err
	}, ""},
	{"POST", "/api/session/{sessionID}/background", "move foreground children into the background", func(q *request) (any, error) {
		_, err := q.h.Session.Background(q.ctx(), q.session())
		return nil, err
	}, ""},
	{"POST", "/api/session/{sessionID}/generate", "one answer that is not stored: {prompt}", func(q *request) (any, error) {
		var in struct{ Prompt string }
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		text, err := q.h.Session.Generate(q.ctx(), q.session(), in.Prompt)
		return data(map[string]string{"text": text}), err
	}, ""},
	{"POST", "/api/session/{sessionID}/view", "mark as seen: {idle}", func(q *request) (any, error) {
		var in struct{ Idle int64 }
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		return nil, q.h.Session.View(q.ctx(), q.session(), in.Idle)
	}, ""},
	{"POST", "/api/experimental/session/{sessionID}/wait", "wait until it is idle", func(q *request) (any, error) {
		return nil, q.h.Session.Wait(q.ctx(), q.session())
	}, ""},
	{"GET", "/api/session/{sessionID}/context", "what the model sees", func(q *request) (any, error) {
		list, err := q.h.Session.Context(q.ctx(), q.session())
		return data(array(list)), err
	}, ""},
	{"GET", "/api/session/{sessionID}/message", "its messages: ?limit=1..200, order=, cursor=", (*request).messagesV2, ""},
	{"GET", "/api/session/{sessionID}/message/{messageID}", "one message", func(q *request) (any, error) {
		m, err := q.h.Session.Message(q.ctx(), q.session(), q.ids["messageID"])
		return data(m), err
	}, ""},
	{"GET", "/api/session/{sessionID}/diff", "the files that it changed", func(q *request) (any, error) {
		list, err := q.h.Session.Diff(q.ctx(), q.session())
		return data(array(list)), err
	}, ""},
	{"GET", "/api/session/{sessionID}/inbox", "what waits", func(q *request) (any, error) {
		list, err := q.h.Inbox.List(q.ctx(), q.session())
		return data(array(list)), err
	}, ""},
	{"DELETE", "/api/session/{sessionID}/inbox/{inboxID}", "take an item back", func(q *request) (any, error) {
		return nil, q.h.Inbox.Cancel(q.ctx(), q.session(), q.ids["inboxID"])
	}, ""},
	{"PATCH", "/api/session/{sessionID}/inbox/{inboxID}", "change an item's delivery: {delivery}", func(q *request) (any, error) {
		var in struct{ Delivery team.Delivery }
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		return nil, q.h.Inbox.Change(q.ctx(), q.session(), q.ids["inboxID"], in.Delivery)
	}, ""},
	{"POST", "/api/session/{sessionID}/revert/stage", "go back to a message: {messageID}", func(q *request) (any, error) {
		var in struct{ MessageID string }
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		return data(Revert{Message: in.MessageID}), q.h.Session.Stage(q.ctx(), q.session(), in.MessageID)
	}, ""},
	{"DELETE", "/api/session/{sessionID}/revert", "undo it", func(q *request) (any, error) {
		return nil, q.h.Session.Unstage(q.ctx(), q.session())
	}, ""},
	{"POST", "/api/session/{sessionID}/revert/commit", "keep it", func(q *request) (any, error) {
		return nil, q.h.Session.Commit(q.ctx(), q.session())
	}, ""},
	{"PUT", "/api/session/{sessionID}/environment", "variables of its shells", nil, lacksShape},
	{"POST", "/api/experimental/session/import", "read an export", nil, lacksShape},
	{"GET", "/api/experimental/session/stats", "numbers of all sessions", nil, lacksShape},
	{"GET", "/api/experimental/session/{sessionID}/export", "write a session: ?sanitize=", nil, lacksShape},
	{"GET", "/api/experimental/session/{sessionID}/instructions/entries", "what instructs it", nil, lacksShape},

	{"GET", "/api/permission/request", "what waits for a reply", func(q *request) (any, error) {
		list, err := q.h.Permission.List(q.ctx(), "")
		return q.located(array(list)), err
	}, ""},
	{"GET", "/api/permission/saved", "the approvals of the project", func(q *request) (any, error) {
		list, err := q.h.Permission.Approvals(q.ctx())
		return data(array(list)), err
	}, ""},
	{"DELETE", "/api/permission/saved/{id}", "take an approval back", func(q *request) (any, error) {
		return nil, q.h.Permission.Forget(q.ctx(), q.ids["id"])
	}, ""},
	{"GET", "/api/session/{sessionID}/permission", "what of this session waits for a reply", func(q *request) (any, error) {
		if _, err := q.h.Session.Get(q.ctx(), q.session()); err != nil {
			return nil, err
		}
		list, err := q.h.Permission.List(q.ctx(), q.session())
		return data(array(list)), err
	}, ""},
	{"POST", "/api/session/{sessionID}/permission", "ask, and do not wait", (*request).askV2, ""},
	{"GET", "/api/session/{sessionID}/permission/{requestID}", "one request", func(q *request) (any, error) {
		a, err := q.pending()
		return data(a), err
	}, ""},
	{"POST", "/api/session/{sessionID}/permission/{requestID}/reply", "reply: {reply, message?}", func(q *request) (any, error) {
		var in struct{ Reply, Message string }
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		if _, err := q.pending(); err != nil {
			return nil, err
		}
		return nil, q.h.Permission.Reply(q.ctx(), Reply{q.ids["requestID"], in.Reply, in.Message})
	}, ""},
}

func data(v any) any { return map[string]any{"data": v} }

func (q *request) located(v any) any {
	return map[string]any{"location": location{q.directory()}, "data": v}
}

// errCursor is a cursor that no page has given.
var errCursor = errors.New("the cursor is none of this server's; begin without one")

// order reads ?order=, which is desc unless it says asc.
func (q *request) order() (oldest bool, err error) {
	switch q.query("order") {
	case "", "desc":
		return false, nil
	case "asc":
		return true, nil
	default:
		return false, invalid("order", "is neither asc nor desc", "use one of them")
	}
}

// sessionsV2 pages with a cursor that holds the whole question.
func (q *request) sessionsV2() (any, error) {
	var in ListSessions
	if c := q.query("cursor"); c != "" {
		raw, err := base64.RawURLEncoding.DecodeString(c)
		if err != nil || json.Unmarshal(raw, &in) != nil || in.Limit < 1 || in.Limit > 10000 {
			return nil, errCursor
		}
	} else {
		limit, err := q.number("limit", 10000)
		if err != nil {
			return nil, err
		}
		oldest, err := q.order()
		if err != nil {
			return nil, err
		}
		in = ListSessions{Parent: q.query("parentID"), Directory: q.query("directory"), Search: q.query("search"), Oldest: oldest, Limit: limit}
		if in.Parent == "null" {
			in.Parent, in.Roots = "", true
		}
		if in.Limit == 0 {
			in.Limit = 50
		}
	}
	limit := in.Limit
	in.Limit++ // one more says whether there is a next page
	list, err := q.h.Session.List(q.ctx(), in)
	if err != nil {
		return nil, err
	}
	next := map[string]string{}
	if len(list) > limit {
		list = list[:limit]
		in.Limit, in.After = limit, list[limit-1].ID
		next["next"] = base64.RawURLEncoding.EncodeToString(mustJSON(in))
	}
	return map[string]any{"data": array(list), "cursor": next}, nil
}

func (q *request) createV2() (any, error) {
	var in struct {
		ID, ParentID, Title, Agent string
		Model                      *Model
		Location                   location
		Metadata                   json.RawMessage
		Permissions                []ruleV2
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	s, err := q.h.Session.Create(q.ctx(), NewSession{ID: in.ID, Parent: in.ParentID, Title: in.Title, Agent: in.Agent, Model: in.Model,
		Directory: in.Location.Directory, Metadata: in.Metadata, Permissions: fromV2(in.Permissions)})
	return data(s), err
}

func fromV2(rules []ruleV2) []Rule {
	if rules == nil {
		return nil
	}
	out := []Rule{}
	for _, r := range rules {
		out = append(out, Rule(r))
	}
	return out
}

func (q *request) activeV2() (any, error) {
	list, err := q.h.Session.Active(q.ctx())
	out := make(map[string]any)
	for _, id := range list {
		out[id] = map[string]string{"type": "running"}
	}
	return data(out), err
}

func (q *request) updateV2() (any, error) {
	var in struct {
		Title       *string
		Metadata    json.RawMessage
		Permissions []ruleV2
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	return nil, q.h.Session.Update(q.ctx(), q.session(), SessionChange{Title: in.Title, Metadata: in.Metadata, Permissions: fromV2(in.Permissions)})
}

func (q *request) admitV2(admit admission) (any, error) {
	var in struct {
		ID, Text, Description           string
		Files, Agents, Skills, Metadata json.RawMessage
		Delivery                        team.Delivery
		Resume                          *bool
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	item, err := admit(q.ctx(), q.session(), Prompt{ID: in.ID, Text: in.Text, Description: in.Description, Metadata: in.Metadata,
		Files: in.Files, Agents: in.Agents, Skills: in.Skills, Delivery: in.Delivery, NoResume: in.Resume != nil && !*in.Resume})
	return data(item), err
}

func (q *request) messagesV2() (any, error) {
	limit, err := q.number("limit", 200)
	if err != nil {
		return nil, err
	}
	oldest, err := q.order()
	if err != nil {
		return nil, err
	}
	if limit == 0 {
		limit = 50
	}
	page := MessagePage{Limit: limit + 1, Newest: !oldest}
	if c := q.query("cursor"); c != "" {
		raw, err := base64.RawURLEncoding.DecodeString(c)
		if err != nil || json.Unmarshal(raw, &page) != nil || page.Limit < 2 || page.Limit > 201 {
			return nil, errCursor
		}
		limit = page.Limit - 1
	}
	list, err := q.h.Session.Messages(q.ctx(), q.session(), page)
	if err != nil {
		return nil, err
	}
	next := map[string]string{}
	if len(list) > limit {
		list = list[:limit]
		if page.Newest {
			page.Before = list[limit-1].Seq
		} else {
			page.After = list[limit-1].Seq
		}
		next["next"] = base64.RawURLEncoding.EncodeToString(mustJSON(page))
	}
	return map[string]any{"data": array(list), "cursor": next}, nil
}

func (q *request) askV2() (any, error) {
	var in struct {
		ID, Action, Agent string
		Resources, Save   []string
		Metadata          json.RawMessage
		Source            *sourceV2
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	a := Ask{ID: in.ID, Session: q.session(), Action: in.Action, Resources: in.Resources, Save: in.Save, Metadata: in.Metadata, Agent: in.Agent}
	if in.Source != nil {
		a.Source = &Source{in.Source.MessageID, in.Source.ID}
	}
	a, effect, err := q.h.Permission.Request(q.ctx(), a)
	if a.ID == "" {
		a.ID = q.h.newID("per_") // settled at once
	}
	return data(map[string]any{"id": a.ID, "effect": effect}), err
}

// pending returns the request in the path, if it is one of the session's.
func (q *request) pending() (Ask, error) {
	if _, err := q.h.Session.Get(q.ctx(), q.session()); err != nil {
		return Ask{}, err
	}
	list, err := q.h.Permission.List(q.ctx(), q.session())
	if err != nil {
		return Ask{}, err
	}
	i := slices.IndexFunc(list, func(a Ask) bool { return a.ID == q.ids["requestID"] })
	if i < 0 {
		return Ask{}, &NotFoundError{"permission", q.ids["requestID"]}
	}
	return list[i], nil
}

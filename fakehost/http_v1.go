package fakehost

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/teamchan/team"
)

var routesV1 = []route{
	{"GET", "/global/health", "whether the server is well", (*request).health, ""},
	{"GET", "/path", "the server's folders", (*request).path, ""},
	{"GET", "/project", "the projects", func(q *request) (any, error) { return []any{q.project()}, nil }, ""},
	{"GET", "/project/current", "the project of the folder", func(q *request) (any, error) { return q.project(), nil }, ""},
	{"GET", "/agent", "the agents", (*request).agents, ""},

	{"GET", "/session", "sessions, newest first: ?directory=, roots=, search=, limit=", (*request).sessionsV1, ""},
	{"POST", "/session", "make a session", (*request).createV1, ""},
	{"GET", "/session/status", "what busy sessions are doing", (*request).statusV1, ""},
	{"GET", "/session/{sessionID}", "one session", (*request).getV1, ""},
	{"PATCH", "/session/{sessionID}", "change a session; rules are appended", (*request).updateV1, ""},
	{"DELETE", "/session/{sessionID}", "delete a session and its children", func(q *request) (any, error) {
		return true, q.h.Session.Remove(q.ctx(), q.session())
	}, ""},
	{"GET", "/session/{sessionID}/children", "the sessions whose parent it is", func(q *request) (any, error) {
		list, err := q.h.Session.Children(q.ctx(), q.session())
		return array(list), err
	}, ""},
	{"GET", "/session/{sessionID}/message", "its messages: ?limit= newest, &before= the header X-Next-Cursor", (*request).messagesV1, ""},
	{"GET", "/session/{sessionID}/message/{messageID}", "one message", func(q *request) (any, error) {
		return q.h.Session.Message(q.ctx(), q.session(), q.ids["messageID"])
	}, ""},
	{"POST", "/session/{sessionID}/message", "prompt, and wait for the end of the turn", (*request).promptV1, ""},
	{"POST", "/session/{sessionID}/prompt_async", "prompt", func(q *request) (any, error) {
		_, _, err := q.admitV1()
		return nil, err
	}, ""},
	{"POST", "/session/{sessionID}/command", "run a command, and wait for the end of the turn", (*request).commandV1, ""},
	{"POST", "/session/{sessionID}/abort", "interrupt; true, whatever there was to stop", func(q *request) (any, error) {
		if _, err := q.h.Session.Interrupt(q.ctx(), q.session(), false); err != nil && !errors.Is(err, team.ErrNotFound) {
			return nil, err
		}
		return true, nil
	}, ""},
	{"POST", "/session/{sessionID}/fork", "copy a session: {messageID?}", func(q *request) (any, error) {
		var in struct{ MessageID string }
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		return q.h.Session.Fork(q.ctx(), q.session(), in.MessageID)
	}, ""},
	{"POST", "/session/{sessionID}/summarize", "compact a session", func(q *request) (any, error) {
		return true, q.h.Session.Summarize(q.ctx(), q.session())
	}, ""},
	{"GET", "/session/{sessionID}/diff", "the files that it changed", func(q *request) (any, error) {
		list, err := q.h.Session.Diff(q.ctx(), q.session())
		return array(list), err
	}, ""},
	{"POST", "/session/{sessionID}/shell", "run a shell command", nil, lacksShell},
	{"POST", "/session/{sessionID}/init", "write AGENTS.md", nil, lacksModel},
	{"POST", "/session/{sessionID}/share", "publish a session", nil, lacksShare},
	{"DELETE", "/session/{sessionID}/share", "take a session back", nil, lacksShare},
	{"POST", "/session/{sessionID}/revert", "go back to a message: {messageID}", func(q *request) (any, error) {
		var in struct{ MessageID string }
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		if err := q.h.Session.Stage(q.ctx(), q.session(), in.MessageID); err != nil {
			return nil, err
		}
		return q.getV1()
	}, ""},
	{"POST", "/session/{sessionID}/unrevert", "undo revert", func(q *request) (any, error) {
		if err := q.h.Session.Unstage(q.ctx(), q.session()); err != nil {
			return nil, err
		}
		return q.getV1()
	}, ""},

	{"GET", "/permission", "what waits for a reply", func(q *request) (any, error) {
		list, err := q.h.Permission.List(q.ctx(), "")
		return array(list), err
	}, ""},
	{"POST", "/permission/{requestID}/reply", "reply: {reply: once|always|reject, message?}", func(q *request) (any, error) {
		var in struct{ Reply, Message string }
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		return true, q.h.Permission.Reply(q.ctx(), Reply{q.ids["requestID"], in.Reply, in.Message})
	}, ""},
	{"POST", "/session/{sessionID}/permissions/{permissionID}", "reply, older form: {response}", func(q *request) (any, error) {
		var in struct{ Response string }
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		return true, q.h.Permission.Reply(q.ctx(), Reply{q.ids["permissionID"], in.Response, ""})
	}, ""},
}

// array is list, or an empty array for none.
func array[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (q *request) health() (any, error) {
	return map[string]any{"healthy": true, "version": q.h.profile.Version}, nil
}

// path answers with made-up folders for what this host does not have.
func (q *request) path() (any, error) {
	d := q.directory()
	return map[string]string{"home": "/home/user", "state": "/home/user/.local/state/opencode", "config": "/home/user/.config/opencode",
		"worktree": d, "directory": d}, nil
}

func (q *request) project() any {
	out := map[string]any{"id": "global", "worktree": q.directory(), "sandboxes": []any{},
		"time": map[string]int64{"created": q.h.opened, "updated": q.h.opened}}
	if _, err := os.Stat(filepath.Join(q.h.opts.Directory, ".git")); q.h.opts.Directory != "" && err == nil {
		out["vcs"] = "git"
	}
	return out
}

func (q *request) agents() (any, error) {
	list, err := q.h.Agent.List(q.ctx())
	slices.SortStableFunc(list, func(a, b Agent) int { return strings.Compare(a.Name, b.Name) })
	return array(list), err
}

// number reads a query that is a number from 1 to most; 0 if it is not there.
func (q *request) number(key string, most int) (int, error) {
	s := q.query(key)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		return 0, invalid(key, "is no number from 1 to "+strconv.Itoa(most), "leave it out, or use one")
	}
	return n, nil
}

func (q *request) sessionsV1() (any, error) {
	limit, err := q.number("limit", 10000)
	if err != nil {
		return nil, err
	}
	list, err := q.h.Session.List(q.ctx(), ListSessions{Roots: q.query("roots") == "true", Directory: q.query("directory"),
		Search: q.query("search"), Limit: limit})
	return array(list), err
}

func (q *request) createV1() (any, error) {
	var in struct {
		ParentID, Title, Agent string
		Model                  *Model
		Metadata               json.RawMessage
		Permission             []ruleV1
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	return q.h.Session.Create(q.ctx(), NewSession{Parent: in.ParentID, Title: in.Title, Agent: in.Agent, Model: in.Model,
		Directory: q.directory(), Metadata: in.Metadata, Permissions: fromV1(in.Permission)})
}

func fromV1(rules []ruleV1) (out []Rule) {
	for _, r := range rules {
		out = append(out, Rule(r))
	}
	return out
}

func (q *request) getV1() (any, error) { return q.h.Session.Get(q.ctx(), q.session()) }

func (q *request) statusV1() (any, error) {
	active, err := q.h.Session.Active(q.ctx())
	if err != nil {
		return nil, err
	}
	q.h.mu.Lock()
	defer q.h.mu.Unlock()
	out := make(map[string]any)
	for _, id := range active {
		out[id] = map[string]string{"type": "busy"}
		if status, ok := q.h.status[id]; ok {
			out[id] = status
		}
	}
	return out, nil
}

func (q *request) updateV1() (any, error) {
	var in struct {
		Title      *string
		Permission []ruleV1
		Time       struct{ Archived *int64 }
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	err := q.h.Session.Update(q.ctx(), q.session(), SessionChange{Title: in.Title, Permissions: fromV1(in.Permission), Archived: in.Time.Archived})
	if err != nil {
		return nil, err
	}
	return q.getV1()
}

// messagesV1 pages with a cursor that is opaque to clients: the place of the oldest message
// of the page before.
func (q *request) messagesV1() (any, error) {
	limit, err := q.number("limit", 10000)
	if err != nil {
		return nil, err
	}
	page := MessagePage{Limit: limit, Newest: true}
	if before := q.query("before"); before != "" {
		if page.Before, err = parseCursor(before); err != nil {
			return nil, err
		}
	}
	list, err := q.h.Session.Messages(q.ctx(), q.session(), page)
	if err != nil {
		return nil, err
	}
	if n := len(list); n > 0 && n == limit && list[n-1].Seq > 1 {
		q.w.Header().Set("X-Next-Cursor", cursor(list[n-1].Seq))
	}
	out := make([]*Message, len(list))
	for i, m := range list {
		out[len(list)-1-i] = m
	}
	return out, nil
}

func cursor(seq int64) string { return base64.RawURLEncoding.EncodeToString([]byte(itoa(seq))) }

func parseCursor(s string) (int64, error) {
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return 0, errCursor
	}
	seq, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || seq < 1 {
		return 0, errCursor
	}
	return seq, nil
}

type promptBodyV1 struct {
	MessageID string
	Model     *modelV1
	Variant   string
	Agent     string
	NoReply   bool
	Parts     []json.RawMessage
}

// admitV1 takes a prompt, and reports whether it is to be answered.
func (q *request) admitV1() (item InboxItem, answered bool, err error) {
	var in promptBodyV1
	if err := q.decode(&in); err != nil {
		return item, false, err
	}
	if in.Parts == nil {
		return item, false, errBody
	}
	synthetic := len(in.Parts) > 0
	for _, raw := range in.Parts {
		var part struct {
			ID, Type  string
			Text      *string
			Synthetic bool
		}
		if json.Unmarshal(raw, &part) != nil {
			return item, false, errBody
		}
		switch part.Type {
		case "text":
			if part.Text == nil {
				return item, false, errBody
			}
		case "file", "agent", "subtask":
		default:
			return item, false, errBody
		}
		if part.ID != "" {
			if err := checkID("part", part.ID, "prt_"); err != nil {
				return item, false, err
			}
		}
		synthetic = synthetic && part.Synthetic
	}
	p := Prompt{ID: in.MessageID, Parts: in.Parts, Agent: in.Agent, NoResume: in.NoReply, Synthetic: synthetic}
	if in.Model != nil {
		p.Model = &Model{ID: in.Model.ID, Provider: in.Model.Provider, Variant: in.Variant}
	}
	item, err = q.h.Session.Prompt(q.ctx(), q.session(), p)
	return item, !in.NoReply, err
}

func (q *request) promptV1() (any, error) {
	item, answered, err := q.admitV1()
	if err != nil {
		return nil, err
	}
	if !answered {
		return q.h.Session.Message(q.ctx(), item.Session, item.ID)
	}
	return q.answerV1(item.Session)
}

// answerV1 waits for the end of the turn and returns its last message.
func (q *request) answerV1(session string) (any, error) {
	if err := q.h.Session.Wait(q.ctx(), session); err != nil {
		return nil, err
	}
	list, err := q.h.Session.Messages(q.ctx(), session, MessagePage{Limit: 1, Newest: true})
	if err != nil || len(list) == 0 {
		return nil, cmp.Or(err, error(&NotFoundError{"message", session}))
	}
	return list[0], nil
}

func (q *request) commandV1() (any, error) {
	var in struct{ Command, Arguments string }
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	item, err := q.h.Session.Command(q.ctx(), q.session(), in.Command, in.Arguments)
	if err != nil {
		return nil, err
	}
	return q.answerV1(item.Session)
}

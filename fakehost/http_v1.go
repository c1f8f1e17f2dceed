package fakehost

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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
		if err := q.param("messageID", "msg"); err != nil {
			return nil, err
		}
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
		if err := q.takeLoose(forkForm, &in); err != nil {
			return nil, err
		}
		return q.h.Session.Fork(q.ctx(), q.session(), in.MessageID)
	}, ""},
	{"POST", "/session/{sessionID}/summarize", "compact a session: {providerID, modelID}", func(q *request) (any, error) {
		var in struct{ ProviderID, ModelID string }
		if err := q.take(summarizeForm, &in); err != nil {
			return nil, err
		}
		return true, q.h.Session.summarize(q.ctx(), q.session(), Model{ID: in.ModelID, Provider: in.ProviderID})
	}, ""},
	{"GET", "/session/{sessionID}/diff", "the files that it changed: ?messageID=; of an unknown session none", (*request).diffV1, ""},
	{"POST", "/session/{sessionID}/shell", "run a command for the user: {agent, command, model?, messageID?}", (*request).shellV1, ""},
	{"POST", "/session/{sessionID}/init", "run the command init: {providerID, modelID, messageID}", (*request).initV1, ""},
	{"POST", "/session/{sessionID}/share", "refused: sharing is disabled", func(q *request) (any, error) {
		if _, err := q.getV1(); err != nil {
			return nil, err
		}
		return nil, errShare
	}, ""},
	{"DELETE", "/session/{sessionID}/share", "the session, which is not shared", (*request).getV1, ""},
	{"POST", "/session/{sessionID}/revert", "go back to a message: {messageID, partID?}; what is not there changes nothing", func(q *request) (any, error) {
		var in struct{ MessageID, PartID string }
		if err := q.take(revertForm, &in); err != nil {
			return nil, err
		}
		m, err := q.h.Session.Message(q.ctx(), q.session(), in.MessageID)
		if err == nil && in.PartID != "" && !m.hasPart(in.PartID) {
			return q.getV1()
		}
		err = q.h.Session.Stage(q.ctx(), q.session(), in.MessageID)
		if missing, ok := errors.AsType[*NotFoundError](err); err != nil && !(ok && missing.What == "message") {
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

	{"POST", "/experimental/session/{sessionID}/background", "move foreground children into the background; whether there were any", func(q *request) (any, error) {
		n, err := q.h.Session.Background(q.ctx(), q.session())
		if errors.Is(err, team.ErrNotFound) {
			err = nil
		}
		return n > 0, err
	}, ""},

	{"GET", "/permission", "what waits for a reply", func(q *request) (any, error) {
		list, err := q.h.Permission.List(q.ctx(), "")
		return array(list), err
	}, ""},
	{"POST", "/permission/{requestID}/reply", "reply: {reply: once|always|reject, message?}", func(q *request) (any, error) {
		var in struct{ Reply, Message string }
		if err := q.param("requestID", "per"); err != nil {
			return nil, err
		}
		if err := q.take(replyForm, &in); err != nil {
			return nil, err
		}
		return true, q.h.Permission.Reply(q.ctx(), Reply{q.ids["requestID"], in.Reply, in.Message})
	}, ""},
	{"POST", "/session/{sessionID}/permissions/{permissionID}", "reply, older form: {response}", func(q *request) (any, error) {
		var in struct{ Response string }
		if err := q.param("permissionID", "per"); err != nil {
			return nil, err
		}
		if err := q.take(responseForm, &in); err != nil {
			return nil, err
		}
		if _, err := q.getV1(); err != nil {
			return nil, err
		}
		return true, q.h.Permission.Reply(q.ctx(), Reply{q.ids["permissionID"], in.Response, ""})
	}, ""},
}

// errShare is what a host whose sharing is disabled answers.
var errShare = errors.New("sharing is disabled")

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
	if q.h.underGit() {
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

// sessionsV1 takes any limit, and leaves out one that is no number.
func (q *request) sessionsV1() (any, error) {
	if roots := q.query("roots"); roots != "" && roots != "true" && roots != "false" {
		return nil, &badRequest{"Query", "roots is neither true nor false"}
	}
	in := ListSessions{Roots: q.query("roots") == "true", Directory: q.query("directory"), Search: q.query("search"), Limit: 100}
	in.Since, _ = strconv.ParseInt(q.query("start"), 10, 64)
	if n, err := strconv.Atoi(q.query("limit")); err == nil {
		if in.Limit = n; n < 0 {
			in.Limit = math.MaxInt32
		}
	}
	list, err := q.h.Session.List(q.ctx(), in)
	if in.Limit == 0 {
		list = nil
	}
	if path := q.query("path"); path != "" {
		list = slices.DeleteFunc(list, func(s *Session) bool { return s.Path != path && !strings.HasPrefix(s.Path, path+"/") })
	}
	return array(list), err
}

func (q *request) createV1() (any, error) {
	var in struct {
		ParentID, Title, Agent string
		Model                  *Model
		Metadata               json.RawMessage
		Permission             []ruleV1
	}
	if err := q.takeLoose(createForm, &in); err != nil {
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
		Metadata   json.RawMessage
		Permission []ruleV1
		Time       struct{ Archived *float64 }
	}
	if err := q.take(updateForm, &in); err != nil {
		return nil, err
	}
	change := SessionChange{Title: in.Title, Permissions: fromV1(in.Permission)}
	if string(in.Metadata) != "null" {
		change.Metadata = in.Metadata
	}
	if at := in.Time.Archived; at != nil {
		change.Archived = new(int64(*at))
	}
	if err := q.h.Session.Update(q.ctx(), q.session(), change); err != nil {
		return nil, err
	}
	return q.getV1()
}

// messagesV1 pages with a cursor that is opaque to clients: the place of the oldest message
// of the page before.
func (q *request) messagesV1() (any, error) {
	limit := 0
	if s := q.query("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return nil, &badRequest{"Query", "limit is no number from 0"}
		}
		limit = n
	}
	page := MessagePage{Limit: limit, Newest: true}
	if before := q.query("before"); before != "" {
		var err error
		if page.Before, err = parseCursor(before); err != nil {
			return nil, err
		}
	}
	list, err := q.h.Session.Messages(q.ctx(), q.session(), page)
	if err != nil {
		return nil, err
	}
	if n := len(list); n > 0 && n == limit && list[n-1].Seq > 1 {
		next := cursor(list[n-1].Seq)
		q.w.Header().Set("X-Next-Cursor", next)
		q.w.Header().Set("Link", fmt.Sprintf(`<http://%s%s?limit=%d&before=%s>; rel="next"`, q.r.Host, q.r.URL.EscapedPath(), limit, next))
		q.w.Header().Set("Access-Control-Expose-Headers", "Link, X-Next-Cursor")
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
	System    string
	Tools     map[string]bool
	Format    json.RawMessage
}

// admitV1 takes a prompt, and reports whether it is to be answered.
func (q *request) admitV1() (item InboxItem, answered bool, err error) {
	var in promptBodyV1
	if err := q.take(promptForm, &in); err != nil {
		return item, false, err
	}
	synthetic := len(in.Parts) > 0
	for _, raw := range in.Parts {
		var part struct{ Synthetic bool }
		synthetic = synthetic && json.Unmarshal(raw, &part) == nil && part.Synthetic
	}
	p := Prompt{ID: in.MessageID, Parts: in.Parts, Agent: in.Agent, NoResume: in.NoReply, Synthetic: synthetic,
		options: optionsV1{in.System, in.Tools, in.Format}}
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
	var in struct{ Command, Arguments, MessageID, Agent, Model, Variant string }
	if err := q.take(commandForm, &in); err != nil {
		return nil, err
	}
	c, ok := q.h.Command.get(in.Command)
	if !ok {
		return nil, &NotFoundError{"command", in.Command}
	}
	model, err := parseModel(in.Model)
	if err != nil {
		return nil, err
	}
	if model != nil {
		model.Variant = in.Variant
	}
	return q.runCommand(c, in.Arguments, Prompt{ID: in.MessageID, Agent: in.Agent, Model: model})
}

// runCommand runs a command and returns the message that ends its turn.
func (q *request) runCommand(c Command, arguments string, in Prompt) (any, error) {
	if err := q.h.enter(q.ctx(), Call{Domain: "session", Method: "command", Session: q.session(), Name: c.Name}); err != nil {
		return nil, err
	}
	item, err := q.h.Session.command(q.ctx(), q.session(), c, arguments, in)
	if err != nil {
		return nil, err
	}
	return q.answerV1(item.Session)
}

// initV1 runs the command of that name; the prompt of the host's own is another one.
func (q *request) initV1() (any, error) {
	var in struct{ ProviderID, ModelID, MessageID string }
	if err := q.take(initForm, &in); err != nil {
		return nil, err
	}
	c, ok := q.h.Command.get("init")
	if !ok {
		c = Command{Name: "init", Template: "Write AGENTS.md for this project. $ARGUMENTS"}
	}
	_, err := q.runCommand(c, "", Prompt{ID: in.MessageID, Model: &Model{ID: in.ModelID, Provider: in.ProviderID}})
	return true, err
}

func (q *request) diffV1() (any, error) {
	if id := q.query("messageID"); id != "" && !strings.HasPrefix(id, "msg") {
		return nil, &badRequest{"Query", "messageID must start with msg"}
	}
	list, err := q.h.Session.Diff(q.ctx(), q.session())
	if errors.Is(err, team.ErrNotFound) {
		err = nil
	}
	return array(list), err
}

func (q *request) shellV1() (any, error) {
	var in struct {
		Agent, Command, MessageID string
		Model                     *modelV1
	}
	if err := q.take(shellForm, &in); err != nil {
		return nil, err
	}
	model := q.h.opts.Model
	if in.Model != nil {
		model = Model{ID: in.Model.ID, Provider: in.Model.Provider}
	}
	return q.h.Session.userShell(q.ctx(), q.session(), in.Agent, in.Command, in.MessageID, model)
}

// param refuses an id in the path that does not begin as it has to.
func (q *request) param(name, prefix string) error {
	if strings.HasPrefix(q.ids[name], prefix) {
		return nil
	}
	return &badRequest{"Params", name + " must start with " + prefix}
}

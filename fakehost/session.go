package fakehost

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// SessionDomain is the host's sessions. What moves them is in prompt.go and run.go.
type SessionDomain struct {
	h     *Host
	hooks sessionHooks
}

// NewSession says what session to create.
type NewSession struct {
	ID          string // generation 2: adopts the session that has it already
	Parent      string
	Title       string
	Agent       string
	Model       *Model
	Directory   string // of a session without parent; empty is the host's
	Metadata    json.RawMessage
	Permissions []Rule
}

// Create makes a session. A child takes its parent's folder and, in generation 2 and
// where its own are nil, a snapshot of the parent's permissions and metadata. Generation 1 takes
// a parent and an agent that it does not know (OpenCode 1.18.33).
func (d *SessionDomain) Create(ctx context.Context, in NewSession) (*Session, error) {
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "create", Session: in.ID}); err != nil {
		return nil, err
	}
	if in.ID != "" {
		if d.h.profile.v1() {
			return nil, invalid("session id", "cannot be chosen on "+d.h.profile.Name, "leave it empty")
		}
		if err := checkID("session", in.ID, "ses_"); err != nil {
			return nil, err
		}
	}
	if in.Metadata != nil && !json.Valid(in.Metadata) {
		return nil, invalid("session metadata", "is not JSON", "pass one JSON object")
	}
	if in.Agent != "" && !d.h.profile.v1() {
		if _, err := d.h.Agent.get(in.Agent); err != nil {
			return nil, err
		}
	}
	var out *Session
	err := d.h.tx(func(t *tx) error {
		var err error
		out, err = t.create(in)
		return err
	})
	return out, err
}

// newTitle begins the title of a session that nobody has named. Generation 1.
const newTitle = "New session - "

func (t *tx) create(in NewSession) (*Session, error) {
	h := t.h
	if in.ID != "" {
		if s, err := t.session(in.ID); err == nil {
			return s, nil
		}
	}
	s := &Session{ID: cmp.Or(in.ID, h.newID("ses_")), Parent: in.Parent, Project: "global", Slug: newSlug(),
		Directory: cmp.Or(in.Directory, h.Directory()), Title: in.Title, Version: h.profile.Version, Agent: in.Agent, Model: in.Model,
		Metadata: in.Metadata, Permissions: in.Permissions, Created: t.now, Updated: t.now, v1: h.profile.v1()}
	if in.Parent != "" {
		parent, err := t.session(in.Parent)
		switch {
		case err != nil && !s.v1:
			return nil, err
		case err != nil:
			parent = s // generation 1 takes any parent
		}
		s.Directory, s.Path, s.Project = parent.Directory, parent.Path, parent.Project
		if !s.v1 && in.Permissions == nil {
			s.Permissions = parent.Permissions
		}
		if !s.v1 && in.Metadata == nil {
			s.Metadata = parent.Metadata
		}
	}
	if s.Title == "" && s.v1 {
		s.Title = newTitle + time.UnixMilli(t.now).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	if err := t.insertSession(s); err != nil {
		return nil, err
	}
	if s.v1 {
		t.emit("session.created", s.ID, map[string]any{"sessionID": s.ID, "info": s})
		return s, nil
	}
	data := map[string]any{"sessionID": s.ID, "projectID": s.Project, "location": location{s.Directory}, "slug": s.Slug, "version": s.Version}
	setIf(data, "parentID", s.Parent)
	setIf(data, "title", s.Title)
	setIf(data, "agent", s.Agent)
	if s.Model != nil {
		data["model"] = s.Model
	}
	if s.Metadata != nil {
		data["metadata"] = s.Metadata
	}
	if s.Permissions != nil {
		data["permissions"] = rulesV2(s.Permissions)
	}
	_, err := t.durable("session.created", s.ID, 1, data)
	return s, err
}

func setIf(m map[string]any, key, value string) {
	if value != "" {
		m[key] = value
	}
}

func (t *tx) insertSession(s *Session) error {
	var from, boundary any
	if s.Fork != nil {
		from, boundary = s.Fork.Session, s.Fork.Boundary
	}
	return t.run(`INSERT INTO session_v2 (id, project_id, parent_id, fork_session_id, fork_boundary, slug, directory, path, title,
		version, metadata, permission, agent, model, time_created, time_updated) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
		s.ID, s.Project, null(s.Parent), from, boundary, s.Slug, s.Directory, s.Path, s.Title, s.Version, s.Metadata,
		t.h.ruleJSON(s.Permissions), null(s.Agent), optional(s.Model), s.Created, s.Updated)
}

// Get returns one session, or a *NotFoundError.
func (d *SessionDomain) Get(ctx context.Context, id string) (*Session, error) {
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "get", Session: id}); err != nil {
		return nil, err
	}
	var out *Session
	err := d.h.tx(func(t *tx) (err error) {
		out, err = t.session(id)
		return err
	})
	return out, err
}

// ListSessions says which sessions to list.
type ListSessions struct {
	Parent    string // only children of this one
	Roots     bool   // only sessions without parent
	Directory string // only those in this folder
	Search    string // only those whose title has this
	Since     int64  // ms: only those that were changed since
	Oldest    bool   // oldest first, not newest; generation 2
	Limit     int    // zero is the host's default, 50
	After     string // an id from the page before; generation 2
}

// List returns a page of sessions, newest first. Order is that of their making, not of
// their ids; in generation 1 that of their last change.
func (d *SessionDomain) List(ctx context.Context, in ListSessions) ([]*Session, error) {
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "list", Session: in.Parent}); err != nil {
		return nil, err
	}
	order, behind := "rowid DESC", "<"
	switch {
	case d.h.profile.v1():
		order = "time_updated DESC, rowid DESC"
	case in.Oldest:
		order, behind = "rowid ASC", ">"
	}
	if in.Limit <= 0 {
		in.Limit = 50
	}
	return d.query(`SELECT `+sessionColumns+` FROM session_v2 WHERE (?1 IS NULL OR parent_id = ?1) AND (NOT ?2 OR parent_id IS NULL)
		AND (?3 IS NULL OR directory = ?3) AND (?4 IS NULL OR instr(lower(title), lower(?4)))
		AND (?5 IS NULL OR rowid `+behind+` (SELECT rowid FROM session_v2 WHERE id = ?5)) 
		AND time_updated >= ?7 ORDER BY `+order+` LIMIT ?6`,
		null(in.Parent), in.Roots, null(in.Directory), null(in.Search), null(in.After), in.Limit, in.Since)
}

// Children returns the sessions whose parent is id, oldest first.
func (d *SessionDomain) Children(ctx context.Context, id string) ([]*Session, error) {
	if _, err := d.Get(ctx, id); err != nil {
		return nil, err
	}
	return d.query(`SELECT `+sessionColumns+` FROM session_v2 WHERE parent_id = ? ORDER BY rowid`, id)
}

// Unfinished returns the sessions whose execution has begun, has not ended and is not
// under way in this process: another window's, or one that a crash or a shutdown
// left.
func (d *SessionDomain) Unfinished(ctx context.Context) ([]*Session, error) {
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "unfinished"}); err != nil {
		return nil, err
	}
	list, err := d.query(`SELECT ` + sessionColumns + ` FROM session_v2 WHERE claim IS NOT NULL ORDER BY rowid`)
	active := d.active()
	return slices.DeleteFunc(list, func(s *Session) bool { return active[s.ID] }), err
}

func (d *SessionDomain) query(sql string, args ...any) (out []*Session, err error) {
	err = d.h.tx(func(t *tx) error {
		var bad error
		err := t.rows(sql, func(row *sqlite3.Stmt) {
			s, err := t.h.scanSession(row)
			if err != nil {
				bad = err
			}
			out = append(out, s)
		}, args...)
		return cmp.Or(err, bad)
	})
	return out, err
}

// SessionChange says what to change; nil fields stay.
type SessionChange struct {
	Title       *string
	Metadata    json.RawMessage // replaced
	Permissions []Rule          // replaced; generation 1 appends them
	Archived    *int64          // ms; generation 1
}

// Update changes a session.
func (d *SessionDomain) Update(ctx context.Context, id string, in SessionChange) error {
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "update", Session: id}); err != nil {
		return err
	}
	if in.Metadata != nil && !json.Valid(in.Metadata) {
		return invalid("session metadata", "is not JSON", "pass one JSON object")
	}
	return d.change(id, func(t *tx, s *Session) error {
		if s.v1 {
			if in.Title != nil {
				s.Title = *in.Title
			}
			if in.Archived != nil {
				s.Archived = *in.Archived
			}
			if in.Metadata != nil {
				s.Metadata = in.Metadata
			}
			s.Permissions = append(s.Permissions, in.Permissions...)
			s.still = in.Metadata == nil && in.Permissions == nil // 1.18.33
			return nil
		}
		var errs []error
		event := func(typ string, data map[string]any) {
			data["sessionID"] = id
			_, err := t.durable(typ, id, 1, data)
			errs = append(errs, err)
		}
		if in.Title != nil {
			s.Title = *in.Title
			event("session.renamed", map[string]any{"title": s.Title})
		}
		if in.Metadata != nil {
			s.Metadata = in.Metadata
			event("session.metadata.updated", map[string]any{"metadata": in.Metadata})
		}
		if in.Permissions != nil {
			s.Permissions = in.Permissions
			event("session.permissions", map[string]any{"permissions": rulesV2(in.Permissions)})
		}
		return cmp.Or(errs...)
	})
}

// SwitchAgent sets the agent that the session's next turn runs as.
func (d *SessionDomain) SwitchAgent(ctx context.Context, id, agent string) error {
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "switchAgent", Session: id, Name: agent}); err != nil {
		return err
	}
	if _, err := d.h.Agent.get(agent); err != nil {
		return err
	}
	return d.change(id, func(t *tx, s *Session) error {
		was := s.Agent
		s.Agent = agent
		if s.v1 || was == agent {
			return nil
		}
		data := map[string]any{"agent": agent}
		setIf(data, "previous", was)
		return t.eventMessage("session.agent.selected", "agent-switched", id, data)
	})
}

// SwitchModel sets the model that the session's next turn runs on.
func (d *SessionDomain) SwitchModel(ctx context.Context, id string, model Model) error {
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "switchModel", Session: id, Name: model.ID}); err != nil {
		return err
	}
	if model.ID == "" || model.Provider == "" {
		return invalid("model", "has no id or no provider", "name both")
	}
	return d.change(id, func(t *tx, s *Session) error {
		was := s.Model
		s.Model = &model
		if s.v1 || was != nil && *was == model {
			return nil
		}
		data := map[string]any{"model": model}
		if was != nil {
			data["previous"] = was
		}
		return t.eventMessage("session.model.selected", "model-switched", id, data)
	})
}

// eventMessage publishes an event and stores the message that is projected from it,
// which has the event's id.
func (t *tx) eventMessage(event, message, session string, data map[string]any) error {
	out := map[string]any{"type": message, "time": map[string]any{"created": t.now}}
	for k, v := range data {
		out[k] = v
	}
	data["sessionID"] = session
	e, err := t.durable(event, session, 1, data)
	if err != nil {
		return err
	}
	out["id"] = messageID(e.ID)
	return t.insertMessage(messageID(e.ID), session, message, out)
}

// messageID is the id of a message that is projected from an event.
func messageID(event string) string { return "msg_" + event[len("evt_"):] }

// change runs fn on the session and saves it.
func (d *SessionDomain) change(id string, fn func(*tx, *Session) error) error {
	return d.h.tx(func(t *tx) error {
		s, err := t.session(id)
		if err != nil {
			return err
		}
		if err := fn(t, s); err != nil {
			return err
		}
		return t.touch(s)
	})
}

// touch saves s and, in generation 1, says so.
func (t *tx) touch(s *Session) error {
	if err := t.saveSession(s); err != nil {
		return err
	}
	if s.v1 {
		t.emit("session.updated", s.ID, map[string]any{"sessionID": s.ID, "info": s})
	}
	return nil
}

// Remove deletes a session and those below it, after it has interrupted them.
func (d *SessionDomain) Remove(ctx context.Context, id string) error {
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "remove", Session: id}); err != nil {
		return err
	}
	var ids []string
	err := d.h.tx(func(t *tx) error {
		if _, err := t.session(id); err != nil {
			return err
		}
		return t.rows(`WITH RECURSIVE below (id) AS (VALUES (?) UNION SELECT s.id FROM session_v2 s JOIN below b ON s.parent_id = b.id)
			SELECT id FROM below`, func(s *sqlite3.Stmt) { ids = append(ids, s.ColumnText(0)) }, id)
	})
	if err != nil {
		return err
	}
	for _, id := range ids {
		d.h.interrupt(id, errRemoved)
		if err := d.wait(ctx, id); err != nil {
			return err
		}
	}
	return d.h.tx(func(t *tx) error {
		for _, id := range ids {
			s, err := t.session(id)
			if err != nil {
				continue // removed meanwhile
			}
			data := map[string]any{"sessionID": id}
			if s.v1 {
				data["info"] = s
			}
			if _, err := t.durable("session.deleted", id, 2, data); err != nil {
				return err
			}
			if err := t.run(`DELETE FROM session_v2 WHERE id = ?`, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// Fork makes a copy of the session with its messages, up to but not with message
// before if that is set. The copy has no parent, and nothing of the inbox. In generation 1 it has
// neither agent, model nor rules, and of a message that is not there all are copied (OpenCode 1.18.33).
func (d *SessionDomain) Fork(ctx context.Context, id, before string) (*Session, error) {
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "fork", Session: id}); err != nil {
		return nil, err
	}
	var out *Session
	err := d.h.tx(func(t *tx) error {
		from, err := t.session(id)
		if err != nil {
			return err
		}
		messages, err := t.messages(id)
		if err != nil {
			return err
		}
		if before != "" {
			i := slices.IndexFunc(messages, func(m *Message) bool { return m.ID == before })
			switch {
			case i >= 0:
				messages = messages[:i]
			case !from.v1:
				return &NotFoundError{"message", before}
			}
		}
		s := *from
		s.ID, s.Parent, s.Slug, s.Created, s.Updated = t.h.newID("ses_"), "", newSlug(), t.now, t.now
		s.Idle, s.Viewed, s.Outcome, s.Claim, s.Revert = 0, 0, "", "", nil
		if n := len(messages); before != "" {
			s.Fork = &Fork{id, Boundary{"before", before}}
		} else if n > 0 {
			s.Fork = &Fork{id, Boundary{"through", messages[n-1].ID}}
		}
		if s.v1 {
			s.Fork, s.Title = nil, forkTitle(s.Title)
			s.Agent, s.Model, s.Permissions, s.summary, s.Input, s.Output = "", nil, nil, false, 0, 0
		}
		if err := t.insertSession(&s); err != nil {
			return err
		}
		if err := t.copyMessages(messages, s.ID); err != nil {
			return err
		}
		out = &s
		if s.v1 {
			t.emit("session.created", s.ID, map[string]any{"sessionID": s.ID, "info": &s})
			return nil
		}
		data := map[string]any{"sessionID": s.ID, "parentID": id}
		if s.Fork != nil {
			data["boundary"] = s.Fork.Boundary
		}
		_, err = t.durable("session.forked", s.ID, 2, data)
		return err
	})
	return out, err
}

var forkPattern = regexp.MustCompile(`^(.*) \(fork #(\d{1,9})\)$`)

// forkTitle is the title of a copy. Generation 1.
func forkTitle(title string) string {
	n := 0
	if m := forkPattern.FindStringSubmatch(title); m != nil {
		title = m[1]
		n, _ = strconv.Atoi(m[2]) // nine digits at most
	}
	return fmt.Sprintf("%s (fork #%d)", title, n+1)
}

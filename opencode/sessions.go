package opencode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/teamchan/team"
)

// path returns the path of a session, with what follows. An id that no session of
// OpenCode can have is ErrNotFound: 1.18.33 answers it with status 500.
func (h *Host) path(id team.SessionID, rest string) (string, error) {
	if !strings.HasPrefix(string(id), "ses") || strings.ContainsFunc(string(id), func(r rune) bool { return r <= ' ' || r == 0x7F || r == 0xFFFD }) || len(id) > 256 {
		return "", fmt.Errorf("%w: no session of OpenCode has the id %.60q", team.ErrNotFound, string(id))
	}
	prefix := "/session/"
	if !h.v1() {
		prefix = "/api/session/"
	}
	return prefix + url.PathEscape(string(id)) + rest, nil
}

// Session returns what the server knows about id.
func (h *Host) Session(ctx context.Context, id team.SessionID) (team.Session, error) {
	path, err := h.path(id, "")
	if err != nil {
		return team.Session{}, err
	}
	raw, err := h.call(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return team.Session{}, err
	}
	s, err := sessionOf(data(raw))
	if err == nil && s.ID != id {
		err = fmt.Errorf("%w: asked for session %.60q, the server answered with %.60q", team.ErrCorrupt, string(id), string(s.ID))
	}
	if err != nil {
		return team.Session{}, err
	}
	return s, nil
}

// sessionOf reads the session object of any generation.
func sessionOf(raw json.RawMessage) (team.Session, error) {
	o := decode(raw)
	s := team.Session{
		ID: team.SessionID(o.text("id")), Parent: team.SessionID(o.text("parentID")),
		Agent: o.text("agent"), Title: o.text("title"), Directory: o.text("directory"), Outcome: o.text("outcome"), Raw: raw,
	}
	if s.ID == "" {
		return s, fmt.Errorf("%w: the server's session has no id", team.ErrCorrupt)
	}
	if at := o.object("location"); s.Directory == "" {
		s.Directory = at.text("directory")
	}
	times := o.object("time")
	s.Created, s.Idle = timeOf(times["created"]), timeOf(times["idle"])
	return s, nil
}

// timeOf reads a time in milliseconds.
func timeOf(raw json.RawMessage) time.Time {
	var ms float64
	if json.Unmarshal(raw, &ms) != nil || ms <= 0 || ms >= 1<<53 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms))
}

// sessionsOf reads a list of sessions; what is no session is left out.
func sessionsOf(list []json.RawMessage) (all []team.Session) {
	for _, raw := range list {
		if s, err := sessionOf(raw); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// A Model names a language model of the server's configuration.
type Model struct {
	Provider string
	ID       string
	Variant  string // may be empty
}

// A NewSession is what Create makes. Every field may be empty.
type NewSession struct {
	Parent   team.SessionID
	Title    string
	Agent    string
	Model    Model
	Metadata map[string]any
	// Permissions are the session's own rules, in the generation's own shape: a list
	// of {permission, pattern, action} (1.18) or {action, resource, effect} (2.0).
	Permissions json.RawMessage
}

// Create makes a session. It is no idempotent call: after ErrUnknownOutcome there may
// be a session that nobody uses.
//
// OpenCode 1.18: POST /session. 2.0: POST /api/session.
func (h *Host) Create(ctx context.Context, n NewSession) (team.Session, error) {
	if h.info.Generation == V1API && (n.Parent != "" || n.Title != "" || n.Metadata != nil || n.Permissions != nil) {
		return team.Session{}, h.lacks("parent, title, metadata or permissions of a new session", "its body has agent, model and location")
	}
	body := make(map[string]any)
	set := func(key string, value any, empty bool) {
		if !empty {
			body[key] = value
		}
	}
	set("parentID", n.Parent, n.Parent == "")
	set("title", n.Title, n.Title == "")
	set("agent", n.Agent, n.Agent == "")
	set("metadata", n.Metadata, n.Metadata == nil)
	set("model", n.Model.ref("id"), n.Model == Model{})
	path := "/api/session"
	if h.v1() {
		path = "/session"
		set("permission", n.Permissions, n.Permissions == nil)
	} else {
		set("permissions", n.Permissions, n.Permissions == nil)
		set("location", map[string]string{"directory": h.opts.Directory}, h.opts.Directory == "" || n.Parent != "")
	}
	raw, err := h.call(ctx, http.MethodPost, path, nil, body)
	if err != nil {
		return team.Session{}, err
	}
	return sessionOf(data(raw))
}

// ref is the model as the server names it; the field of the model's id has two names.
func (m Model) ref(id string) map[string]string {
	ref := map[string]string{"providerID": m.Provider, id: m.ID}
	if m.Variant != "" && id == "id" {
		ref["variant"] = m.Variant
	}
	return ref
}

// Remove deletes a session and its children.
func (h *Host) Remove(ctx context.Context, id team.SessionID) error {
	path, err := h.path(id, "")
	if err == nil && h.info.Generation == V1API {
		err = h.lacks("removal of sessions", "the second API of 1.18 has no such route")
	}
	if err != nil {
		return err
	}
	_, err = h.call(ctx, http.MethodDelete, path, nil, nil)
	return err
}

// Children returns the sessions whose parent is id.
//
// OpenCode 1.18: GET /session/:id/children. 2.0: GET /api/session?parentID=, all pages.
func (h *Host) Children(ctx context.Context, id team.SessionID) ([]team.Session, error) {
	path, err := h.path(id, "/children")
	if err != nil {
		return nil, err
	}
	switch h.info.Generation {
	case V1API:
		return nil, h.lacks("parents of sessions", "its sessions have no parentID")
	case V1:
		list, err := h.list(ctx, path, nil)
		return sessionsOf(list), err
	}
	if _, err := h.Session(ctx, id); err != nil { // a list of an unknown parent is just empty
		return nil, err
	}
	var all []team.Session
	err = h.pages(ctx, "/api/session", url.Values{"parentID": {string(id)}}, func(page []json.RawMessage) bool {
		for _, s := range sessionsOf(page) {
			if s.Parent == id {
				all = append(all, s)
			}
		}
		return true
	})
	return all, err
}

// mostPages is of how many pages a list may be.
const mostPages = 1000

// pages reads a list with cursors {data, cursor {next}} until more is false. All pages together
// are bounded like one answer. A cursor that comes twice would never end.
func (h *Host) pages(ctx context.Context, path string, query url.Values, more func([]json.RawMessage) bool) error {
	seen := make(map[string]bool)
	size := int64(0)
	for {
		raw, err := h.call(ctx, http.MethodGet, path, query, nil)
		if err != nil {
			return err
		}
		o := decode(raw)
		page, next := o.list("data"), o.object("cursor").text("next")
		if page == nil {
			return fmt.Errorf("%w: the answer to GET %s has no list", team.ErrCorrupt, path)
		}
		if !more(page) || next == "" {
			return nil
		}
		if size += int64(len(raw)); size > h.opts.MaxAnswer {
			return &team.LimitError{What: "bytes of all pages of " + path, Got: size, Max: h.opts.MaxAnswer,
				TooLarge: true, Advice: "ask for less, or raise Options.MaxAnswer"}
		}
		if len(seen) >= mostPages {
			return &team.LimitError{What: "pages of " + path, Got: mostPages + 1, Max: mostPages, TooLarge: true, Advice: "ask for less"}
		}
		if seen[next] {
			return fmt.Errorf("%w: the server's list comes back to the same page", team.ErrCorrupt)
		}
		seen[next] = true
		query = url.Values{"cursor": {next}}
	}
}

// Active returns the sessions that the server is working on (on 1.18: of the directory) and
// what it says about each: "busy", "retry" (1.18), "running" (2.0), or a word of a newer one.
//
// OpenCode 1.18: GET /session/status. 2.0: GET /api/session/active.
func (h *Host) Active(ctx context.Context) (map[team.SessionID]string, error) {
	return h.active(ctx, nil)
}

func (h *Host) active(ctx context.Context, query url.Values) (map[team.SessionID]string, error) {
	path := "/api/session/active"
	if h.v1() {
		path = "/session/status"
	}
	raw, err := h.call(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return nil, err
	}
	all := decode(data(raw))
	if all == nil { // not even an empty object: nobody must take that for "all are idle"
		return nil, fmt.Errorf("%w: the answer to GET %s says nothing of sessions", team.ErrCorrupt, path)
	}
	active := make(map[team.SessionID]string)
	for id, status := range all {
		if word := decode(status).text("type"); word != "idle" {
			active[team.SessionID(id)] = word
		}
	}
	return active, nil
}

// Interrupt asks the server to stop what session id is doing. What waits in its inbox
// stays. 1.18 answers true whatever it did, also for a session that does not exist, so
// its verdict is from the status just before: idle or unknown, never stopped.
func (h *Host) Interrupt(ctx context.Context, id team.SessionID) (team.InterruptVerdict, error) {
	s, err := h.Session(ctx, id)
	if err != nil {
		return team.InterruptUnknown, err
	}
	if h.v1() {
		active, err := h.active(ctx, in(s.Directory))
		path, _ := h.path(id, "/abort")
		if _, err := h.call(ctx, http.MethodPost, path, in(s.Directory), nil); err != nil {
			return team.InterruptUnknown, err
		}
		if _, busy := active[id]; err == nil && !busy {
			return team.InterruptIdle, nil
		}
		return team.InterruptUnknown, nil
	}
	path, _ := h.path(id, "/interrupt")
	raw, err := h.call(ctx, http.MethodPost, path, nil, nil)
	if err != nil {
		return team.InterruptUnknown, err
	}
	o := decode(data(raw))
	var interrupted *bool
	if json.Unmarshal(o["interrupted"], &interrupted) != nil || interrupted == nil {
		return team.InterruptUnknown, nil // the second API of 1.18 answers nothing
	}
	if *interrupted {
		return team.InterruptStopped, nil
	}
	return team.InterruptIdle, nil
}

// Evaluate is ErrUnsupported: no generation has a route that decides without side
// effects. 1.18 keeps approvals in memory that no route shows, and on 2.0 POST
// /api/session/:id/permission raises a dialog when the effect is "ask". Rules returns
// what can be decided from.
func (h *Host) Evaluate(ctx context.Context, session team.SessionID, action, resource string) (team.Effect, error) {
	return "", h.lacks("evaluation of permissions over HTTP", "to evaluate is to ask there; take Rules and evaluate them")
}

// Rules returns the permission rules that bind a session, in the order in which they
// are read, the last match wins: those of its agent, then its own. Each is in
// the generation's own shape. Approvals that a person gave meanwhile are not among them.
func (h *Host) Rules(ctx context.Context, id team.SessionID) ([]json.RawMessage, error) {
	s, err := h.Session(ctx, id)
	if err != nil {
		return nil, err
	}
	if s.Agent == "" {
		s.Agent = "build" // both generations' default, as long as no prompt has chosen one
	}
	agents, err := h.Agents(ctx)
	if err != nil {
		return nil, err
	}
	var rules []json.RawMessage
	found := false
	for _, a := range agents {
		if a.Name == s.Agent {
			own, err := rulesIn(decode(a.Raw), "agent "+a.Name)
			if err != nil {
				return nil, err
			}
			rules, found = append(rules, own...), true
		}
	}
	if !found {
		return nil, fmt.Errorf("%w: agent %.60q of session %.60q", team.ErrNotFound, s.Agent, string(id))
	}
	own, err := rulesIn(decode(s.Raw), "session "+string(id))
	if err != nil {
		return nil, err
	}
	return append(rules, own...), nil
}

// rulesIn returns the rules of an agent or a session. Those in a shape that nobody knows are an
// error: without them more would be allowed.
func rulesIn(o object, whose string) ([]json.RawMessage, error) {
	for _, key := range []string{"permissions", "permission"} {
		raw, ok := o[key]
		if !ok || string(raw) == "null" {
			continue
		}
		rules := items(raw)
		if rules == nil {
			return nil, fmt.Errorf("%w: the %s of %.60s are no list of rules", team.ErrCorrupt, key, whose)
		}
		return rules, nil
	}
	return nil, nil
}

// isMissing reports whether the server knows no such thing.
func isMissing(err error) bool { return errors.Is(err, team.ErrNotFound) }

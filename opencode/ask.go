package opencode

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/teamchan/team"
)

// A PermissionRequest waits for an answer. It lives in the server's memory: after a
// restart it is gone.
type PermissionRequest struct {
	ID        string
	Session   team.SessionID
	Action    string   // the capability: "bash", "edit", … (1.18: permission)
	Resources []string // (1.18: patterns)
	Save      []string // what "always" would allow (1.18: always)
	Raw       json.RawMessage
}

// A Reply is an answer to a PermissionRequest.
type Reply string

// The replies, by the server's own words.
const (
	ReplyOnce   Reply = "once"
	ReplyAlways Reply = "always" // answers other requests too that it now allows
	ReplyReject Reply = "reject" // rejects the other requests of the session too
)

// Permissions returns the requests that wait, of every session of the directory.
//
// OpenCode 1.18: GET /permission. Second API and 2.0: GET /api/permission/request.
func (h *Host) Permissions(ctx context.Context) ([]PermissionRequest, error) {
	return h.permissionsAt(ctx, nil)
}

func (h *Host) permissionsAt(ctx context.Context, query url.Values) ([]PermissionRequest, error) {
	path := "/api/permission/request"
	if h.v1() {
		path = "/permission"
	}
	list, err := h.list(ctx, path, query)
	if err != nil {
		return nil, err
	}
	var all []PermissionRequest
	for _, raw := range list {
		all = append(all, permissionOf(raw))
	}
	return all, nil
}

func permissionOf(raw json.RawMessage) PermissionRequest {
	o := decode(raw)
	p := PermissionRequest{ID: o.text("id"), Session: team.SessionID(o.text("sessionID")), Action: o.text("action"),
		Resources: o.texts("resources"), Save: o.texts("save"), Raw: raw}
	if name := o.text("permission"); name != "" { // 1.18
		p.Action, p.Resources, p.Save = name, o.texts("patterns"), o.texts("always")
	}
	return p
}

// ReplyPermission answers a request on behalf of a person. The message goes to the
// model; with ReplyReject it lets the turn go on, without one the turn ends. A request that
// does not wait is ErrNotFound.
//
// OpenCode 1.18: POST /permission/:id/reply. Second API and 2.0: POST
// /api/session/:id/permission/:requestID/reply.
func (h *Host) ReplyPermission(ctx context.Context, p PermissionRequest, reply Reply, message string) error {
	switch reply {
	case ReplyOnce, ReplyAlways, ReplyReject:
	default:
		return &team.InvalidError{What: "reply", Why: "is none of once, always, reject", Offset: -1}
	}
	path, err := h.askPath("permission", p.Session, p.ID, "per")
	if err != nil {
		return err
	}
	body := map[string]string{"reply": string(reply)}
	if message != "" {
		body["message"] = message
	}
	_, err = h.call(ctx, http.MethodPost, path+"/reply", nil, body)
	return err
}

// askPath returns the path of a request.
func (h *Host) askPath(kind string, session team.SessionID, id, prefix string) (string, error) {
	if len(id) <= len(prefix) || id[:len(prefix)] != prefix {
		return "", fmt.Errorf("%w: no %s request has the id %.60q", team.ErrNotFound, kind, id)
	}
	if h.v1() {
		return "/" + kind + "/" + url.PathEscape(id), nil
	}
	return h.path(session, "/"+kind+"/"+url.PathEscape(id))
}

// A Question is a set of questions of one tool call that waits for an answer: a
// question request (1.18) or a form (2.0).
type Question struct {
	ID      string
	Session team.SessionID
	Items   []QuestionItem
	Raw     json.RawMessage
}

// A QuestionItem is one question.
type QuestionItem struct {
	Key      string // of a form's field; empty on 1.18
	Text     string
	Options  []string // the labels that can be chosen
	Multiple bool
	Raw      json.RawMessage
}

// Questions returns what waits in a session. On 1.18 an empty session means all of
// the directory.
//
// OpenCode 1.18: GET /question. Second API: GET /api/session/:id/question. 2.0: GET
// /api/session/:id/form.
func (h *Host) Questions(ctx context.Context, session team.SessionID) ([]Question, error) {
	return h.questionsAt(ctx, session, nil)
}

func (h *Host) questionsAt(ctx context.Context, session team.SessionID, query url.Values) ([]Question, error) {
	path, err := "/question", error(nil)
	if !h.v1() {
		if path, err = h.path(session, "/"+h.questions()); err != nil {
			return nil, err
		}
	}
	list, err := h.list(ctx, path, query)
	if err != nil {
		return nil, err
	}
	var all []Question
	for _, raw := range list {
		if q := questionOf(raw); session == "" || q.Session == session {
			all = append(all, q)
		}
	}
	return all, nil
}

// questions is the word of the routes.
func (h *Host) questions() string {
	if h.info.Generation == V2 {
		return "form"
	}
	return "question"
}

func questionOf(raw json.RawMessage) Question {
	o := decode(raw)
	q := Question{ID: o.text("id"), Session: team.SessionID(o.text("sessionID")), Raw: raw}
	for _, raw := range o.list("questions") { // 1.18
		i := decode(raw)
		item := QuestionItem{Text: i.text("question"), Multiple: i.yes("multiple"), Raw: raw}
		for _, option := range i.list("options") {
			item.Options = append(item.Options, decode(option).text("label"))
		}
		q.Items = append(q.Items, item)
	}
	for _, raw := range o.list("fields") { // 2.0
		f := decode(raw)
		item := QuestionItem{Key: f.text("key"), Text: f.text("description"), Multiple: f.text("type") == "multiselect", Raw: raw}
		if item.Text == "" {
			item.Text = f.text("title")
		}
		for _, option := range f.list("options") {
			item.Options = append(item.Options, decode(option).text("value"))
		}
		q.Items = append(q.Items, item)
	}
	return q
}

// ReplyQuestion answers on behalf of a person: for each item the labels that were
// chosen, or a text of the person's own. As many answers as items, else ErrInvalid.
//
// OpenCode 1.18: POST /question/:id/reply {answers}. 2.0: POST
// /api/session/:id/form/:formID/reply {answer}.
func (h *Host) ReplyQuestion(ctx context.Context, q Question, answers [][]string) error {
	if len(answers) != len(q.Items) {
		return &team.InvalidError{What: "answers", Why: fmt.Sprintf("are %d for %d questions", len(answers), len(q.Items)), Offset: -1}
	}
	path, err := h.questionPath(q)
	if err != nil {
		return err
	}
	body := map[string]any{"answers": answers}
	if h.info.Generation == V2 {
		answer := make(map[string]any)
		for i, item := range q.Items {
			switch {
			case item.Multiple:
				answer[item.Key] = answers[i]
			case len(answers[i]) == 1:
				answer[item.Key] = answers[i][0]
			default:
				return &team.InvalidError{What: "answers", Why: "are not one for a question that takes one", Offset: -1}
			}
		}
		body = map[string]any{"answer": answer}
	}
	_, err = h.call(ctx, http.MethodPost, path+"/reply", nil, body)
	return err
}

// RejectQuestion dismisses a question, which ends the turn.
//
// OpenCode 1.18: POST /question/:id/reject. 2.0: POST
// /api/session/:id/form/:formID/cancel.
func (h *Host) RejectQuestion(ctx context.Context, q Question) error {
	path, err := h.questionPath(q)
	if err != nil {
		return err
	}
	verb := "/reject"
	if h.info.Generation == V2 {
		verb = "/cancel"
	}
	_, err = h.call(ctx, http.MethodPost, path+verb, nil, nil)
	return err
}

func (h *Host) questionPath(q Question) (string, error) {
	if h.info.Generation != V2 {
		return h.askPath("question", q.Session, q.ID, "que")
	}
	if q.ID == "" || q.ID == "." || q.ID == ".." {
		return "", fmt.Errorf("%w: no form has the id %.60q", team.ErrNotFound, q.ID)
	}
	return h.path(q.Session, "/form/"+url.PathEscape(q.ID))
}

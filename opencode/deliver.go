package opencode

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/teamchan/team"
)

// Deliver puts a note into session to. The note's ID must have the form that
// team.HostMessageID makes; the server's own id is derived from it and from the session, so that
// it is the same each time and never one of another session.
//
// On 1.18 the note becomes a user message with one synthetic text part and noReply,
// or a prompt that nobody waits for if it wakes. It names the agent and the model that the
// session had last: without them 1.18.33 takes its defaults, and a session of a
// read-only agent would go on as "build". What the server holds under the id is read back and
// is what Delivered says; a note that is there already is not sent again. If only the
// answer was lost, the same call settles it; a wake is not repeated then. Of two calls at once
// under one ID with different texts the last one wins, and both may be told so. 1.18 has no
// inbox: a running session sees the note at its next step, whatever Delivery says.
//
// On 2.0 it is a synthetic with description, metadata, delivery and resume; the
// server's inbox is the judge of what is there already, and its answer is what Delivered
// says. A passive note is DeliveryQueue without Wake: with DeliverySteer any other wake picks
// it up.
func (h *Host) Deliver(ctx context.Context, to team.SessionID, note team.Note) (team.Delivered, error) {
	if h.info.Generation == V1API {
		return team.Delivered{}, h.lacks("synthetic message", "a prompt of the second API of 1.18 would stand as the user's own words")
	}
	message, part, err := hostIDs(to, note.ID)
	if err != nil {
		return team.Delivered{}, err
	}
	if !utf8.ValidString(note.Text) {
		return team.Delivered{}, &team.InvalidError{What: "note text", Why: "is not UTF-8", Offset: -1}
	}
	switch note.Delivery {
	case "", team.DeliverySteer, team.DeliveryQueue:
	default:
		return team.Delivered{}, &team.InvalidError{What: "delivery", Why: "is neither steer nor queue", Offset: -1}
	}
	if h.v1() {
		return h.deliverV1(ctx, to, note, message, part)
	}
	path, err := h.path(to, "/synthetic")
	if err != nil {
		return team.Delivered{}, err
	}
	body := map[string]any{"id": message, "text": note.Text, "resume": note.Wake}
	if note.Description != "" {
		body["description"] = note.Description
	}
	if len(note.Metadata) > 0 {
		body["metadata"] = note.Metadata
	}
	if note.Delivery != "" {
		body["delivery"] = note.Delivery
	}
	raw, err := h.call(ctx, http.MethodPost, path, nil, body)
	if err != nil {
		return team.Delivered{}, err
	}
	o := decode(data(raw))
	d := team.Delivered{ID: o.text("id"), Text: o.object("payload").text("text")}
	if d.ID == "" || o.text("sessionID") == "" { // no conflict: it may well be there
		return team.Delivered{}, unknown(http.MethodPost, fmt.Errorf("%w: the answer to POST %s names no note and session", team.ErrCorrupt, path))
	}
	if d.ID != message || o.text("sessionID") != string(to) {
		return team.Delivered{}, fmt.Errorf("%w: the server answered for %.60q in session %.60q", team.ErrConflict, d.ID, o.text("sessionID"))
	}
	return d, nil
}

func (h *Host) deliverV1(ctx context.Context, to team.SessionID, note team.Note, message, part string) (team.Delivered, error) {
	// An unknown session is found here, before anything is written.
	s, err := h.Session(ctx, to)
	if err != nil {
		return team.Delivered{}, err
	}
	if d, err := h.held(ctx, to, message, part); err == nil || !isMissing(err) {
		return d, err
	}
	content := map[string]any{"id": part, "type": "text", "text": note.Text, "synthetic": true}
	if meta := metaOf(note); len(meta) > 0 {
		content["metadata"] = meta
	}
	body := map[string]any{"messageID": message, "parts": []any{content}}
	was := decode(s.Raw)
	if s.Agent != "" {
		body["agent"] = s.Agent
	}
	if m := was.object("model"); m.text("id") != "" {
		body["model"] = Model{Provider: m.text("providerID"), ID: m.text("id")}.ref("modelID")
		if v := m.text("variant"); v != "" && v != "default" {
			body["variant"] = v
		}
	}
	rest := "/message"
	if note.Wake {
		rest = "/prompt_async"
	} else {
		body["noReply"] = true
	}
	path, _ := h.path(to, rest)
	if _, err := h.call(ctx, http.MethodPost, path, in(s.Directory), body); err != nil {
		return team.Delivered{}, err
	}
	return h.readBack(ctx, to, message, part, note.Wake)
}

// settling is how long a prompt that nobody waits for may take to be stored.
const settling = 10 * time.Second

// readBack returns what the server holds. A prompt that nobody waits for is answered before
// it is stored, so it may take a moment.
func (h *Host) readBack(ctx context.Context, to team.SessionID, message, part string, later bool) (team.Delivered, error) {
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		d, err := h.held(ctx, to, message, part)
		if err == nil || !isMissing(err) {
			return d, err
		}
		if !later {
			return d, fmt.Errorf("%w: the server took the note, but does not hold it", team.ErrUnknownOutcome)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return d, fmt.Errorf("%w: the server has not stored the note: %w", team.ErrUnknownOutcome, ctx.Err())
		}
	}
}

// held returns what a 1.18 server holds under our ids, or ErrNotFound.
func (h *Host) held(ctx context.Context, to team.SessionID, message, part string) (team.Delivered, error) {
	path, err := h.path(to, "/message/"+url.PathEscape(message))
	if err != nil {
		return team.Delivered{}, err
	}
	raw, err := h.call(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return team.Delivered{}, err
	}
	o := decode(raw)
	at := o.object("info").text("sessionID")
	if at == "" {
		return team.Delivered{}, fmt.Errorf("%w: the answer to GET %s names no session", team.ErrCorrupt, path)
	}
	if at != string(to) {
		return team.Delivered{}, fmt.Errorf("%w: message %s is in session %.60q", team.ErrConflict, message, at)
	}
	for _, p := range o.list("parts") {
		if p := decode(p); p.text("id") == part {
			return team.Delivered{ID: message, Text: p.text("text"), InConversation: true}, nil
		}
	}
	return team.Delivered{}, fmt.Errorf("%w: message %s has no part %s", team.ErrNotFound, message, part)
}

// metaOf is the metadata of a part: 1.18 has no description beside it.
func metaOf(note team.Note) map[string]string {
	meta := make(map[string]string, len(note.Metadata)+1)
	for k, v := range note.Metadata {
		meta[k] = v
	}
	if note.Description != "" {
		meta["description"] = note.Description
	}
	return meta
}

var noteID = regexp.MustCompile(`^msg_([0-9a-f]{12})[0-9A-Za-z]{14}$`)

// hostIDs returns the ids of the message and of the part for a note: the time of the
// note's id, and a digest of the session and the id. On 1.18.33 a message id that another
// session has leads a part into that session, and a message id alone is no key.
func hostIDs(to team.SessionID, id string) (message, part string, err error) {
	m := noteID.FindStringSubmatch(id)
	if m == nil {
		return "", "", &team.InvalidError{What: "note id", Why: `is not "msg_", 12 hex digits and 14 letters or digits`, Offset: -1,
			Advice: "take HostMessageID of the signal"}
	}
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256([]byte(string(to) + "\x00" + id))
	tail := make([]byte, 14)
	for i := range tail {
		tail[i] = alphabet[int(sum[i])%len(alphabet)]
	}
	body := m[1] + string(tail)
	return "msg_" + body, "prt_" + body, nil
}

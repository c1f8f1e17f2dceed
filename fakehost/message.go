package fakehost

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// A Message is one entry of a session's history. As JSON it has the shape of its
// generation: {info, parts}, or the object whose type says what it is.
type Message struct {
	ID      string
	Session string
	Seq     int64  // its place in the session: the order, which ids are not
	Type    string // generation 2: "user", "synthetic", "assistant", "idle", …; generation 1: "user", "assistant"
	Created int64  // ms

	Data  json.RawMessage   // generation 1: info
	Parts []json.RawMessage // generation 1

	v1 bool
}

// MarshalJSON gives the host's own object.
func (m Message) MarshalJSON() ([]byte, error) {
	if !m.v1 {
		return m.Data, nil
	}
	parts := m.Parts
	if parts == nil {
		parts = []json.RawMessage{}
	}
	return json.Marshal(struct {
		Info  json.RawMessage   `json:"info"`
		Parts []json.RawMessage `json:"parts"`
	}{m.Data, parts})
}

// Text returns the texts of the message, joined by a blank line.
func (m Message) Text() string {
	var texts []string
	type part struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	add := func(p part) {
		if p.Type == "text" && p.Text != "" {
			texts = append(texts, p.Text)
		}
	}
	if m.v1 {
		for _, r := range m.Parts {
			var p part
			if json.Unmarshal(r, &p) == nil {
				add(p)
			}
		}
		return strings.Join(texts, "\n\n")
	}
	var out struct {
		Text    string `json:"text"`
		Content []part `json:"content"`
	}
	if json.Unmarshal(m.Data, &out) != nil {
		return ""
	}
	for _, p := range out.Content {
		add(p)
	}
	if len(texts) == 0 {
		return out.Text
	}
	return strings.Join(texts, "\n\n")
}

// hasPart reports whether a part of the message has the id. Generation 1.
func (m Message) hasPart(id string) bool {
	return slices.ContainsFunc(m.Parts, func(r json.RawMessage) bool {
		var p struct{ ID string }
		return json.Unmarshal(r, &p) == nil && p.ID == id
	})
}

// Failed returns the error that a message of an agent carries, and whether it does.
func (m Message) Failed() (string, bool) {
	var out struct {
		Error *struct {
			Name    string `json:"name"`
			Message string `json:"message"`
			Data    struct {
				Message string `json:"message"`
			} `json:"data"`
		} `json:"error"`
	}
	if json.Unmarshal(m.Data, &out) != nil || out.Error == nil {
		return "", false
	}
	return out.Error.Message + out.Error.Data.Message, true
}

// done reports whether a message of an agent is complete.
func (m Message) done() bool {
	var out struct {
		Time struct {
			Completed int64 `json:"completed"`
		} `json:"time"`
	}
	return json.Unmarshal(m.Data, &out) == nil && out.Time.Completed > 0
}

// MessagePage says which messages to list.
type MessagePage struct {
	Limit  int   // zero is all
	Before int64 // only those with a lower Seq; zero is all
	After  int64 // only those with a higher Seq
	Newest bool  // newest first; the limit takes from that end
}

// Messages returns the history of a session, all of it.
func (d *SessionDomain) Messages(ctx context.Context, id string, page MessagePage) ([]*Message, error) {
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "messages", Session: id}); err != nil {
		return nil, err
	}
	var out []*Message
	err := d.h.tx(func(t *tx) error {
		if _, err := t.session(id); err != nil {
			return err
		}
		order := "ASC"
		if page.Newest {
			order = "DESC"
		}
		if page.Limit <= 0 {
			page.Limit = -1
		}
		var err error
		out, err = t.queryMessages(`WHERE session_id = ?1 AND (?2 = 0 OR seq < ?2) AND seq > ?3 ORDER BY seq `+order+` LIMIT ?4`,
			id, page.Before, page.After, page.Limit)
		return err
	})
	return out, err
}

// Message returns one message of a session.
func (d *SessionDomain) Message(ctx context.Context, session, id string) (*Message, error) {
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "message", Session: session, Name: id}); err != nil {
		return nil, err
	}
	var out *Message
	err := d.h.tx(func(t *tx) error {
		if _, err := t.session(session); err != nil {
			return err
		}
		var err error
		out, err = t.message(id)
		if err == nil && out.Session != session {
			return &NotFoundError{"message", id}
		}
		return err
	})
	return out, err
}

// Context returns the messages that the model sees: from the last compaction on.
func (d *SessionDomain) Context(ctx context.Context, id string) ([]*Message, error) {
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "context", Session: id}); err != nil {
		return nil, err
	}
	var out []*Message
	err := d.h.tx(func(t *tx) error {
		if _, err := t.session(id); err != nil {
			return err
		}
		var err error
		out, err = t.context(id)
		return err
	})
	return out, err
}

func (t *tx) context(session string) ([]*Message, error) {
	from, _, err := t.number(`SELECT max(seq) FROM message WHERE session_id = ? AND (type = 'compaction' AND data ->> 'status' = 'completed'
		OR data ->> 'summary' = 1)`, session)
	if err != nil {
		return nil, err
	}
	return t.queryMessages(`WHERE session_id = ? AND seq >= ? ORDER BY seq`, session, from)
}

func (t *tx) messages(session string) ([]*Message, error) {
	return t.queryMessages(`WHERE session_id = ? ORDER BY seq`, session)
}

// message reads one message, or a *NotFoundError.
func (t *tx) message(id string) (*Message, error) {
	list, err := t.queryMessages(`WHERE id = ?`, id)
	if err == nil && len(list) == 0 {
		return nil, &NotFoundError{"message", id}
	}
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

func (t *tx) queryMessages(where string, args ...any) ([]*Message, error) {
	var out []*Message
	v1 := t.h.profile.v1()
	err := t.rows(`SELECT id, session_id, seq, type, data, time_created FROM message `+where, func(s *sqlite3.Stmt) {
		out = append(out, &Message{ID: s.ColumnText(0), Session: s.ColumnText(1), Seq: s.ColumnInt64(2), Type: s.ColumnText(3),
			Data: raw(s, 4), Created: s.ColumnInt64(5), v1: v1})
	}, args...)
	if err != nil || !v1 {
		return out, err
	}
	for _, m := range out {
		err := t.rows(`SELECT data FROM part WHERE message_id = ? ORDER BY seq`, func(s *sqlite3.Stmt) {
			m.Parts = append(m.Parts, raw(s, 0))
		}, m.ID)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// insertMessage stores a new message at the end of the session.
func (t *tx) insertMessage(id, session, typ string, data any) error {
	return t.run(`INSERT INTO message (id, session_id, seq, type, data, time_created, time_updated)
		VALUES (?1, ?2, (SELECT coalesce(max(seq), 0) + 1 FROM message WHERE session_id = ?2), ?3, ?4, ?5, ?5)`,
		id, session, typ, mustJSON(data), t.now)
}

// updateMessage stores new data of a message.
func (t *tx) updateMessage(id string, data any) error {
	return t.run(`UPDATE message SET data = ?2, time_updated = ?3 WHERE id = ?1`, id, mustJSON(data), t.now)
}

// putPart stores a part of a message, in place of the one with its id if there is one.
func (t *tx) putPart(id, message, session string, data any) error {
	return t.run(`INSERT INTO part (id, message_id, session_id, seq, data)
		VALUES (?1, ?2, ?3, (SELECT coalesce(max(seq), 0) + 1 FROM part WHERE message_id = ?2), ?4)
		ON CONFLICT (id) DO UPDATE SET data = ?4`, id, message, session, mustJSON(data))
}

// copyMessages copies messages into session, under new ids.
func (t *tx) copyMessages(messages []*Message, session string) error {
	ids := make(map[string]string)
	for _, m := range messages {
		ids[m.ID] = t.h.newID("msg_")
		data, err := with(m.Data, map[string]string{"id": ids[m.ID], "sessionID": session, "parentID": "*"}, ids)
		if err != nil {
			return err
		}
		if err := t.insertMessage(ids[m.ID], session, m.Type, data); err != nil {
			return err
		}
		for _, p := range m.Parts {
			id := t.h.newID("prt_")
			data, err := with(p, map[string]string{"id": id, "sessionID": session, "messageID": ids[m.ID]}, nil)
			if err != nil {
				return err
			}
			if err := t.putPart(id, ids[m.ID], session, data); err != nil {
				return err
			}
		}
	}
	return nil
}

// with returns an object with the fields of set that it has replaced; "*" takes the new
// id of what the field names.
func with(data json.RawMessage, set map[string]string, ids map[string]string) (json.RawMessage, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	for k, v := range set {
		was, has := m[k]
		if !has {
			continue
		}
		if v == "*" {
			var old string
			if err := json.Unmarshal(was, &old); err != nil {
				return nil, err
			}
			v = ids[old]
		}
		m[k] = mustJSON(v)
	}
	return json.Marshal(m)
}

// lastText returns what a subagent's tool takes as its answer: in generation 2 the newest
// complete message of the agent without error, of the newest 20, all its texts; in
// generation 1 the last text of its last message.
func (t *tx) lastText(session string) (string, error) {
	list, err := t.queryMessages(`WHERE session_id = ? ORDER BY seq DESC LIMIT 20`, session)
	if err != nil {
		return "", err
	}
	for _, m := range list {
		if m.Type != "assistant" {
			continue
		}
		if m.v1 {
			for i := len(m.Parts) - 1; i >= 0; i-- {
				if text := (Message{v1: true, Parts: m.Parts[i : i+1]}).Text(); text != "" {
					return text, nil
				}
			}
			return "", nil
		}
		if _, failed := m.Failed(); !failed && m.done() {
			return m.Text(), nil
		}
	}
	return "", nil
}

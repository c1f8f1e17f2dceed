package fakehost

import (
	"context"
	"encoding/json"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
)

// InboxDomain is the work that sessions were given and have not begun with. An item leaves
// the inbox when it is delivered or cancelled. Its id becomes that of the message.
//
// OpenCode 2.0: session_inbox and /api/session/:id/inbox. A plugin cannot list it.
type InboxDomain struct{ h *Host }

// An InboxItem is one piece of work. As JSON it is the host's Inbox.Info.
type InboxItem struct {
	ID       string
	Session  string
	Type     string          // "user", "synthetic", "compaction", "move"
	Payload  json.RawMessage // {text, …}, or that of the type
	Delivery team.Delivery
	Seq      int64 // the durable seq of its enqueued event
	Created  int64 // ms
}

// Text returns the text of the payload.
func (i InboxItem) Text() string {
	var p struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(i.Payload, &p)
	return p.Text
}

// control reports whether i is handled alone.
func (i InboxItem) control() bool { return i.Type == "compaction" || i.Type == "move" }

// MarshalJSON gives the host's own object.
func (i InboxItem) MarshalJSON() ([]byte, error) {
	var out struct {
		ID       string          `json:"id"`
		Session  string          `json:"sessionID"`
		Type     string          `json:"type"`
		Payload  json.RawMessage `json:"payload"`
		Delivery team.Delivery   `json:"delivery"`
		Time     struct {
			Created int64 `json:"created"`
		} `json:"time"`
	}
	out.ID, out.Session, out.Type, out.Payload, out.Delivery = i.ID, i.Session, i.Type, i.Payload, i.Delivery
	out.Time.Created = i.Created
	return json.Marshal(out)
}

// List returns what is pending, in the order of admission.
func (d *InboxDomain) List(ctx context.Context, session string) ([]InboxItem, error) {
	if err := d.h.enter(ctx, Call{Domain: "inbox", Method: "list", Session: session}); err != nil {
		return nil, err
	}
	var out []InboxItem
	err := d.h.tx(func(t *tx) error {
		if _, err := t.session(session); err != nil {
			return err
		}
		var err error
		out, err = t.inbox(`WHERE session_id = ? ORDER BY enqueued_seq`, session)
		return err
	})
	return out, err
}

// Cancel takes an item back. One that is not pending is no error and changes nothing.
func (d *InboxDomain) Cancel(ctx context.Context, session, id string) error {
	if err := d.h.enter(ctx, Call{Domain: "inbox", Method: "cancel", Session: session, Name: id}); err != nil {
		return err
	}
	return d.h.tx(func(t *tx) error {
		if _, err := t.session(session); err != nil {
			return err
		}
		n, err := t.exec(`DELETE FROM session_inbox WHERE id = ? AND session_id = ?`, id, session)
		if err != nil || n == 0 {
			return err
		}
		_, err = t.durable("session.inbox.cancelled", session, 1, map[string]any{"sessionID": session, "inboxID": id})
		return err
	})
}

// Change sets the delivery of a pending item. To steer wakes the session, to queue does
// not. A *ConflictError if it is not pending, or has that delivery already.
func (d *InboxDomain) Change(ctx context.Context, session, id string, delivery team.Delivery) error {
	if err := d.h.enter(ctx, Call{Domain: "inbox", Method: "change", Session: session, Name: id}); err != nil {
		return err
	}
	if err := checkDelivery(delivery); err != nil {
		return err
	}
	return d.h.tx(func(t *tx) error {
		if _, err := t.session(session); err != nil {
			return err
		}
		n, err := t.exec(`UPDATE session_inbox SET delivery = ?3 WHERE id = ?1 AND session_id = ?2 AND delivery <> ?3`,
			id, session, string(delivery))
		if err != nil {
			return err
		}
		if n == 0 {
			return &ConflictError{id, "is not pending, or its delivery is " + string(delivery) + " already"}
		}
		if delivery == team.DeliverySteer {
			t.wake(session)
		}
		_, err = t.durable("session.inbox.delivery.changed", session, 1,
			map[string]any{"sessionID": session, "inboxID": id, "delivery": delivery})
		return err
	})
}

func checkDelivery(d team.Delivery) error {
	if d != team.DeliverySteer && d != team.DeliveryQueue {
		return invalid("delivery", "is "+string(d), "use steer or queue")
	}
	return nil
}

func (t *tx) inbox(where string, args ...any) ([]InboxItem, error) {
	var out []InboxItem
	err := t.rows(`SELECT id, session_id, type, payload, delivery, enqueued_seq, time_created FROM session_inbox `+where,
		func(s *sqlite3.Stmt) {
			out = append(out, InboxItem{s.ColumnText(0), s.ColumnText(1), s.ColumnText(2), raw(s, 3),
				team.Delivery(s.ColumnText(4)), s.ColumnInt64(5), s.ColumnInt64(6)})
		}, args...)
	return out, err
}

// enqueue stores an item with its event.
func (t *tx) enqueue(i *InboxItem) error {
	var err error
	if t.h.profile.v1() {
		i.Seq, err = t.nextSeq(i.Session)
	} else {
		var e Event
		e, err = t.durable("session.inbox.enqueued", i.Session, 1, map[string]any{"sessionID": i.Session, "inboxID": i.ID,
			"item": map[string]any{"type": i.Type, "payload": i.Payload, "delivery": i.Delivery}})
		if err == nil {
			i.Seq = e.Durable.Seq
		}
	}
	if err != nil {
		return err
	}
	i.Created = t.now
	return t.run(`INSERT INTO session_inbox (id, session_id, type, payload, delivery, enqueued_seq, time_created) VALUES (?,?,?,?,?,?,?)`,
		i.ID, i.Session, i.Type, i.Payload, string(i.Delivery), i.Seq, t.now)
}

// A boundary is a moment at which work is promoted.
type boundary int

const (
	betweenSteps boundary = iota // steers
	idle                         // steers, or one queued item
	idleSteers                   // steers, or a control item that is next in line
)

// promotable returns what is promoted at b: all steers up to the first control item, or,
// when idle, that item alone; without any steer, when idle, one queued item.
func (t *tx) promotable(session string, b boundary) ([]InboxItem, error) {
	steers, err := t.inbox(`WHERE session_id = ? AND delivery = 'steer' ORDER BY enqueued_seq`, session)
	if err != nil {
		return nil, err
	}
	for n, i := range steers {
		switch {
		case !i.control():
		case n == 0 && b != betweenSteps:
			return steers[:1], nil
		default:
			return steers[:n], nil
		}
	}
	if len(steers) > 0 || b == betweenSteps {
		return steers, nil
	}
	queued, err := t.inbox(`WHERE session_id = ? AND delivery = 'queue' ORDER BY enqueued_seq LIMIT 1`, session)
	if err != nil || b == idleSteers && len(queued) > 0 && !queued[0].control() {
		return nil, err
	}
	return queued, nil
}

// deliver takes items out of the inbox and makes messages of them.
func (t *tx) deliver(s *Session, items []InboxItem) error {
	for _, i := range items {
		if err := t.run(`DELETE FROM session_inbox WHERE id = ?`, i.ID); err != nil {
			return err
		}
		if t.h.profile.v1() { // the message was there first
			if err := t.prompted(i); err != nil {
				return err
			}
			continue
		}
		if _, err := t.durable("session.inbox.delivered", s.ID, 1, map[string]any{"sessionID": s.ID, "inboxID": i.ID}); err != nil {
			return err
		}
		if i.control() {
			continue
		}
		var data map[string]any
		if err := json.Unmarshal(i.Payload, &data); err != nil {
			return err
		}
		data["id"], data["type"], data["time"] = i.ID, i.Type, map[string]any{"created": t.now}
		if err := t.insertMessage(i.ID, s.ID, i.Type, data); err != nil {
			return err
		}
	}
	return nil
}

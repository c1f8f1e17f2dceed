package opencode

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/teamchan/team"
)

// An InboxItem is something that waits in the inbox of a 2.0 session. When it is
// delivered it becomes a message with the same id.
type InboxItem struct {
	ID       string
	Type     string // "user", "synthetic", "compaction", "move", …
	Text     string // of a user or synthetic item
	Delivery team.Delivery
	Created  time.Time
	Metadata json.RawMessage
	Raw      json.RawMessage
}

const noInbox = "what is sent is a message at once"

// Inbox returns what waits in a session's inbox, in order.
//
// OpenCode 2.0: GET /api/session/:id/inbox.
func (h *Host) Inbox(ctx context.Context, id team.SessionID) ([]InboxItem, error) {
	if h.info.Generation != V2 {
		return nil, h.lacks("inbox", noInbox)
	}
	path, err := h.path(id, "/inbox")
	if err != nil {
		return nil, err
	}
	list, err := h.list(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	var all []InboxItem
	for _, raw := range list {
		o := decode(raw)
		payload := o.object("payload")
		all = append(all, InboxItem{ID: o.text("id"), Type: o.text("type"), Text: payload.text("text"),
			Delivery: team.Delivery(o.text("delivery")), Created: timeOf(o.object("time")["created"]), Metadata: payload["metadata"], Raw: raw})
	}
	return all, nil
}

// CancelInbox takes an item out of a session's inbox. One that is gone is no error on newer
// servers and ErrConflict on older ones.
//
// OpenCode 2.0: DELETE /api/session/:id/inbox/:inboxID.
func (h *Host) CancelInbox(ctx context.Context, id team.SessionID, item string) error {
	return h.changeInbox(ctx, http.MethodDelete, id, item, nil)
}

// SetInboxDelivery changes when a waiting item is delivered. ErrConflict if it does not wait
// any more, or has that delivery already. DeliverySteer wakes the session.
//
// OpenCode 2.0: PATCH /api/session/:id/inbox/:inboxID.
func (h *Host) SetInboxDelivery(ctx context.Context, id team.SessionID, item string, d team.Delivery) error {
	return h.changeInbox(ctx, http.MethodPatch, id, item, map[string]any{"delivery": d})
}

func (h *Host) changeInbox(ctx context.Context, method string, id team.SessionID, item string, body any) error {
	if h.info.Generation != V2 {
		return h.lacks("inbox", noInbox)
	}
	if item == "" || item == "." || item == ".." {
		return &team.InvalidError{What: "inbox id", Why: "is empty or a path", Offset: -1}
	}
	path, err := h.path(id, "/inbox/"+url.PathEscape(item))
	if err != nil {
		return err
	}
	_, err = h.call(ctx, method, path, nil, body)
	return err
}

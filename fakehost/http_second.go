package fakehost

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
)

// admission is SessionDomain.Prompt, and what is like it.
type admission func(ctx context.Context, session string, in Prompt) (InboxItem, error)

// errWait is what OpenCode 1.18.33 answers a wait with.
var errWait = errors.New("the session service is not available: read the sessions instead")

// The second API of generation 1, as far as it was measured on OpenCode 1.18.33. Its
// events are of their own kind, session.next.*, and there are some only for prompts that came
// over it. What it does is also in the messages and events of the first API; the real host has it
// apart, and on its stream the stored events of the first API as well.
var secondV1 = []route{
	{"GET", "/api/health", "whether the server is well", func(*request) (any, error) {
		return map[string]bool{"healthy": true}, nil
	}, ""},
	{"GET", "/api/event", "events; ends by itself after five frames", (*request).secondEvents, ""},
	{"POST", "/api/session/{sessionID}/wait", "refused, always", func(q *request) (any, error) {
		if _, err := q.getV1(); err != nil {
			return nil, err
		}
		return nil, errWait
	}, ""},
	{"POST", "/api/session/{sessionID}/prompt", "prompt: {id?, prompt: {text}, delivery?, resume?}", (*request).secondPrompt, ""},
	{"GET", "/api/session/{sessionID}/history", "its events: ?after=, limit=", (*request).history, ""},
}

// secondFrames is after how many frames the stream of the second API ended.
const secondFrames = 5

func (q *request) secondEvents() (any, error) {
	if err := q.h.enter(q.ctx(), Call{Domain: "event", Method: "subscribe"}); err != nil {
		return nil, err
	}
	sub := q.h.Event.subscribe(true)
	defer sub.Close()
	f := q.frames()
	e := Event{ID: q.h.newID("evt_"), Type: "server.connected", Data: json.RawMessage("{}")}
	for n := 1; ; n++ {
		if f.send(secondFrame(e)) != nil || n == secondFrames {
			return streamed, nil
		}
		for {
			var err error
			if e, err = sub.Next(q.ctx()); err != nil {
				return streamed, nil
			}
			if e.internal {
				break
			}
		}
	}
}

// secondFrame is an event as the stream sends it: without its time, which is in its data.
func secondFrame(e Event) Event {
	e.Created = 0
	return e
}

type secondAdmission struct {
	Seq      int64           `json:"admittedSeq"`
	ID       string          `json:"id"`
	Session  string          `json:"sessionID"`
	Prompt   json.RawMessage `json:"prompt"`
	Delivery team.Delivery   `json:"delivery"`
	Created  int64           `json:"timeCreated"`
}

// secondPrompt admits by id: the same text again is the first admission, another is a
// conflict.
func (q *request) secondPrompt() (any, error) {
	var in struct {
		ID       string
		Prompt   struct{ Text string }
		Delivery team.Delivery
		Resume   *bool
	}
	if err := q.take(secondForm, &in); err != nil {
		return nil, err
	}
	if err := q.h.enter(q.ctx(), Call{Domain: "session", Method: "prompt", Session: q.session(), Name: in.ID}); err != nil {
		return nil, err
	}
	p := Prompt{ID: in.ID, Text: in.Prompt.Text, Delivery: in.Delivery, NoResume: in.Resume != nil && !*in.Resume}
	if p.Delivery == "" {
		p.Delivery = team.DeliverySteer
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	var out secondAdmission
	err := q.h.tx(func(t *tx) (err error) {
		out, err = t.admitSecond(q.session(), p)
		return err
	})
	return data(out), err
}

func (t *tx) admitSecond(session string, p Prompt) (out secondAdmission, err error) {
	if _, err := t.session(session); err != nil {
		return out, err
	}
	if p.ID == "" {
		p.ID = t.h.newID("msg_")
	}
	was, err := t.message(p.ID)
	if err != nil && !errors.Is(err, team.ErrNotFound) {
		return out, err
	}
	if was != nil {
		first, err := t.admitted(was.Session, p.ID)
		if err != nil {
			return out, err
		}
		if first == nil || was.Session != session || was.Text() != p.Text {
			return out, &ConflictError{p.ID, "was used for another prompt"}
		}
		return *first, nil
	}
	item, err := t.admit(session, "user", p)
	if err != nil {
		return out, err
	}
	out = secondAdmission{0, item.ID, session, mustJSON(map[string]string{"text": p.Text}), p.Delivery, t.now}
	e, err := t.second(session, "session.next.prompt.admitted", 1, map[string]any{"messageID": out.ID,
		"prompt": out.Prompt, "delivery": out.Delivery})
	if err != nil {
		return out, err
	}
	out.Seq = e.Durable.Seq
	return out, nil
}

// admitted returns the admission of a message over the second API, nil if it came otherwise.
func (t *tx) admitted(session, message string) (*secondAdmission, error) {
	var out *secondAdmission
	err := t.rows(`SELECT seq, data, created FROM event WHERE aggregate_id = ? AND type = 'session.next.prompt.admitted.1'
		AND json_extract(data, '$.messageID') = ?`, func(s *sqlite3.Stmt) {
		out = &secondAdmission{ID: message}
		_ = json.Unmarshal(raw(s, 1), out) // it is what mustJSON wrote
		out.Seq, out.Created = s.ColumnInt64(0), s.ColumnInt64(2)
	}, session, message)
	return out, err
}

// second stores an event of the second API, which only its own stream has.
func (t *tx) second(session, typ string, version int, data map[string]any) (Event, error) {
	data["sessionID"], data["timestamp"] = session, t.now
	e, err := t.store(typ, session, version, data)
	e.internal = true
	t.pub = append(t.pub, e)
	return e, err
}

// prompted stores that the loop has begun with what the second API admitted.
func (t *tx) prompted(i InboxItem) error {
	first, err := t.admitted(i.Session, i.ID)
	if err != nil || first == nil {
		return err
	}
	_, err = t.second(i.Session, "session.next.prompted", 1, map[string]any{"messageID": i.ID,
		"prompt": first.Prompt, "delivery": first.Delivery})
	return err
}

// next stores an event of a step, if the user's message of it came over the second API.
func (st *step) next(t *tx, typ string, data map[string]any) error {
	first, err := t.admitted(st.session.ID, st.parent)
	if err != nil || first == nil {
		return err
	}
	version := 1
	data["assistantMessageID"] = st.id
	switch typ {
	case "step.started":
		model := st.model
		model.Variant = cmp.Or(model.Variant, "default")
		data["model"], data["snapshot"] = model, snapshot
	case "step.ended":
		version = 2
		data["tokens"] = tokenCount{Input: stepInput, Output: stepOutput}
		data["snapshot"], data["files"] = snapshot, []any{}
	default:
		data["textID"] = "text-0" // a step here has one text
	}
	_, err = t.second(st.session.ID, "session.next."+typ, version, data)
	return err
}

func (q *request) history() (any, error) {
	limit, err := q.number("limit", 100)
	if err != nil {
		return nil, &badRequest{"Query", err.Error()}
	}
	if limit == 0 {
		limit = 100
	}
	after := int64(0)
	if s := q.query("after"); s != "" {
		if after, err = strconv.ParseInt(s, 10, 64); err != nil || after < 0 {
			return nil, &badRequest{"Query", "after is no number of an event; take durable.seq of one"}
		}
	}
	if err := q.h.enter(q.ctx(), Call{Domain: "log", Method: "read", Session: q.session()}); err != nil {
		return nil, err
	}
	var list []Event
	err = q.h.tx(func(t *tx) (err error) {
		if _, err := t.session(q.session()); err != nil {
			return err
		}
		list, err = t.log(q.session(), after, limit+1)
		return err
	})
	more := len(list) > limit
	list = list[:min(len(list), limit)]
	for i := range list {
		list[i] = secondFrame(list[i])
		list[i].Location = ""
	}
	return map[string]any{"data": array(list), "hasMore": more}, err
}

package team

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Dispatch is a call of the parent that gives a child work.
type Dispatch struct {
	Session    SessionID // the child
	Agent      string
	Label      string
	Background bool   // the parent goes on while the child works
	Call       string // the host's id of the call; each further one may begin the next turn
}

// Register makes a session a child of the parent, if the program knows that it is
// one; RegisterResult reads that from the host's answer. To register a child again is harmless: a
// Dispatch with another Call to a child that has settled begins its next turn.
func (j *Join) Register(ctx context.Context, d Dispatch) (Child, error) {
	err := checkSession("child", d.Session)
	if err == nil && d.Session == j.parent {
		err = &InvalidError{What: "child", Why: "is its own parent", Offset: -1}
	}
	for what, text := range map[string]string{"agent": d.Agent, "label": d.Label, "call": d.Call} {
		if err == nil && len(text) > 4*maxName {
			err = &LimitError{What: what + " bytes", Got: int64(len(text)), Max: 4 * maxName}
		}
	}
	var c *joined
	if err == nil {
		c, err = j.register(ctx, d, false)
	}
	if err != nil {
		return Child{}, edge("join.register", string(d.Session), err)
	}
	return c.account(), nil
}

// register is Register; begins is as in evidence.
func (j *Join) register(ctx context.Context, d Dispatch, begins bool) (*joined, error) {
	d.Agent, d.Label = cutReason(d.Agent), cutReason(d.Label)
	for range joinTries {
		c, err := j.enrol(ctx, childRecord{Child: Child{Session: d.Session, Agent: d.Agent, Label: d.Label, Background: d.Background}})
		if err != nil {
			return nil, err
		}
		err = j.absorb(ctx, c, evidence{JoinEvidence: JoinEvidence{Source: FromDispatch}, kind: evidenceDispatch, dispatch: d, begins: begins})
		if !errors.Is(err, errForgotten) {
			return c, err
		}
	}
	return nil, errJoinRace
}

// enrol returns the child of rec, which it makes if nobody has.
func (j *Join) enrol(ctx context.Context, rec childRecord) (*joined, error) {
	if c := j.child(rec.Session); c != nil {
		return c, nil
	}
	if err := checkSession("child", rec.Session); err != nil {
		return nil, err
	}
	key := j.childKey(rec.Session)
	if err := j.loadKey(ctx, key); err != nil {
		return nil, err
	}
	if c := j.child(rec.Session); c != nil {
		return c, nil
	}
	meta, err := j.meta(ctx, func(m *joinRecord) bool { m.Children++; return true })
	if err != nil {
		return nil, err
	}
	rec.Session = strongID(rec.Session)
	rec.Order, rec.Registered = meta.Children, time.Now().UTC()
	rec.ChildTurn = ChildTurn{Turn: 1, State: ChildRunning, Dispatched: !rec.Adopted}
	rec.Blind = rec.Adopted || j.blind()
	c, fresh := j.insert(rec, "")
	if !fresh {
		c.mu.Unlock()
		return c, nil
	}
	ours, err := j.found(ctx, c)
	if ours && err == nil {
		err = j.replay(ctx, c)
	}
	c.mu.Unlock()
	if !ours || err != nil {
		return c, err
	}
	j.mu.Lock()
	notices := j.early.told(c.id)
	j.mu.Unlock()
	for _, n := range notices {
		_, failed := j.ObserveText(ctx, n.in, n.id)
		err = errors.Join(err, failed)
	}
	return c, err
}

// found writes the record of a new child, and reports whether it was we who made it. c.mu is held since before
// anybody could find it, so what comes of it meanwhile waits. If the store fails, it is none again.
func (j *Join) found(ctx context.Context, c *joined) (ours bool, err error) {
	value, err := json.Marshal(c.rec)
	if err != nil {
		j.forget(c)
		return false, err
	}
	order := c.rec.Order
	c.version, err = j.records.Put(ctx, c.key, value, "")
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrUnknownOutcome) { // another process was first, or it was we
		if failed := j.reread(context.WithoutCancel(ctx), c); failed == nil {
			err = nil
		}
	}
	if err != nil {
		j.forget(c)
	}
	ours = c.rec.Order == order
	if ours {
		j.trace(ctx, TraceEvent{Op: "join.register", ID: c.name(), Target: c.id}, err)
	}
	return ours, err
}

// replay takes in what came of a child, and of its descendants, before it was known. c.mu is held.
func (j *Join) replay(ctx context.Context, c *joined) error {
	var before []earlyEvent
	j.mu.Lock()
	j.tell()
	for below := []SessionID{c.id}; len(below) > 0; below = below[1:] {
		found := j.early.take(below[0])
		for _, e := range found {
			if e.kind == evidenceOpen {
				below = append(below, e.other)
				j.owns(c, e.other) // what comes of it from now on waits for c.mu
			}
		}
		before = append(before, found...)
	}
	j.mu.Unlock()
	slices.SortFunc(before, func(a, b earlyEvent) int { return cmp.Compare(a.number, b.number) })
	var failed []error
	for _, e := range before {
		ev, ok := e.evidence, true
		if e.of != c.id && e.kind != evidenceOpen {
			ev, ok = below(e.of, ev)
		}
		if ok {
			failed = append(failed, j.admit(ctx, c, ev))
		}
	}
	return errors.Join(failed...)
}

// A Registration says what a tool's result came to.
type Registration struct {
	Verdict EnvelopeVerdict // EnvelopeMatched if it is about a child
	Child   Child
	// New: nobody had registered the child. SettledAtOnce: the result is the child's
	// answer already, so there is nothing to wait for.
	New, SettledAtOnce bool
	Shown              Shown
}

// RegisterResult registers the child that a tool's result tells of, from its metadata first,
// then from the envelope or the acknowledgement in its text, and takes the answer
// if it is there. Results of other sessions, other tools, and of calls that started
// nothing, change nothing: Verdict says which. It reads {title, output, metadata} (1.x), {content,
// output, metadata} (2.x) and, of a call that failed, {error: {message}, metadata}.
func (j *Join) RegisterResult(ctx context.Context, r ToolResult) (Registration, error) {
	if r.Session != j.parent {
		return Registration{Verdict: EnvelopeForeign}, nil
	}
	var result struct {
		Title    string          `json:"title"`
		Output   json.RawMessage `json:"output"`
		Content  json.RawMessage `json:"content"`
		Error    json.RawMessage `json:"error"`
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(r.Result, &result); err != nil && !errors.As(err, new(*json.UnmarshalTypeError)) {
		return Registration{}, edge("join.register", r.Call, &InvalidError{What: "result of a tool", Why: "is no JSON object", Offset: -1,
			Advice: "pass the host's own object"})
	}
	c := call{tool: r.Tool, id: r.Call, status: "completed", text: textOf(result.Content), label: result.Title, metadata: result.Metadata}
	if c.text == "" {
		c.text = textOf(result.Output)
	}
	if isSet(result.Error) {
		var failed struct {
			Message string `json:"message"`
		}
		c.status = "error"
		if json.Unmarshal(result.Error, &failed) != nil {
			_ = json.Unmarshal(result.Error, &failed.Message) // a plain text in 1.x
		}
		c.text = failed.Message
	}
	reg, err := j.result(ctx, c)
	return reg, edge("join.register", r.Call, err)
}

func isSet(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// textOf returns the text of a tool's content: a string, or the text parts of a list, a
// line each.
func textOf(raw json.RawMessage) string {
	var text string
	if len(raw) == 0 || json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return ""
	}
	var texts []string
	for _, p := range parts {
		if p.Type == "text" {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// result takes the result of a call.
func (j *Join) result(ctx context.Context, c call) (Registration, error) {
	if c.tool == "" {
		c.tool = "(none)" // never a notice
	}
	in := EnvelopeInput{Text: c.text, Metadata: c.metadata, Tool: c.tool, Failed: c.status == "error"}
	env, verdict := j.opts.Matcher.Match(in)
	if verdict != EnvelopeMatched {
		return Registration{Verdict: verdict}, nil
	}
	if env.Parent != "" && env.Parent != j.parent || env.Session == j.parent {
		return Registration{Verdict: EnvelopeForeign}, nil
	}
	known := j.Known(env.Session)
	m, _ := readMetadata(c.metadata, c.tool)
	child, err := j.register(ctx, Dispatch{Session: env.Session, Agent: c.agent, Label: c.label, Call: c.id,
		Background: m.background || env.State == ChildRunning}, false)
	if err != nil {
		return Registration{}, err
	}
	reg := Registration{Verdict: verdict, New: !known}
	if env.State != ChildRunning {
		reg.SettledAtOnce = true
		if reg.Shown, err = j.ended(ctx, child, env, c.id, FromEnvelope, "tool result"); err != nil {
			return reg, err
		}
	}
	reg.Child = child.account()
	return reg, nil
}

// A ChildLister is a Sessions that lists the children of a session. It is optional.
type ChildLister interface {
	// ChildSessions returns the sessions whose parent is id, by the host's own record.
	//
	// OpenCode 1.18: GET /session/:id/children.
	ChildSessions(ctx context.Context, id SessionID) ([]Session, error)
}

// An AdoptAnswer says what came of an Adopt. To have none and not to know are two things.
type AdoptAnswer string

// The answers.
const (
	AdoptedSome   AdoptAnswer = "adopted"
	AdoptedNone   AdoptAnswer = "none"          // the host was asked, and names no child of the parent
	AdoptNotAsked AdoptAnswer = "could not ask" // Err says why
)

// An Adoption is what Adopt did.
type Adoption struct {
	Answer   AdoptAnswer
	Children []Child             // adopted, or known before; in order of registration
	Refused  map[SessionID]error // why a session was not: ErrDenied if it is not a child of the parent
	Err      error               // why the host could not be asked, about one session at least
}

// Adopt takes children that are not registered, after a restart for example: those
// that ids name, or all that the host names as children of the parent if ids is nil,
// which takes a ChildLister. A session is adopted only if the host's own record
// says that its parent is this one. What the record says of its ending is taken in.
//
// The error is about the store or the arguments; that the host could not be asked is an answer.
func (j *Join) Adopt(ctx context.Context, ids []SessionID) (Adoption, error) {
	out, err := j.adopt(ctx, ids)
	return out, edge("join.adopt", string(j.parent), err)
}

func (j *Join) adopt(ctx context.Context, ids []SessionID) (Adoption, error) {
	a := Adoption{Answer: AdoptedNone, Refused: make(map[SessionID]error)}
	if ids != nil && len(ids) == 0 {
		return a, &InvalidError{What: "children", Why: "names none", Offset: -1, Advice: "pass nil for all that the host names"}
	}
	for _, id := range ids {
		if err := checkSession("child", id); err != nil {
			return a, err
		}
	}
	sessions, err := j.candidates(ctx, ids, &a)
	if err != nil {
		return a, err
	}
	var taken []SessionID
	for _, s := range sessions {
		c, err := j.enrol(ctx, childRecord{Child: Child{Session: s.ID, Agent: cutReason(s.Agent), Label: cutReason(s.Title), Adopted: true}})
		if err != nil {
			return a, err
		}
		if _, err := j.look(ctx, c, false, time.Time{}); err != nil {
			return a, err
		}
		taken = append(taken, s.ID)
	}
	switch {
	case len(taken) > 0:
		a.Answer = AdoptedSome
		found, err := j.find(taken)
		if err != nil {
			return a, err
		}
		for _, c := range found {
			a.Children = append(a.Children, c.account())
		}
	case a.Err != nil:
		a.Answer = AdoptNotAsked
	}
	return a, ctx.Err()
}

// candidates returns the sessions that the host says are children of the parent.
func (j *Join) candidates(ctx context.Context, ids []SessionID, a *Adoption) ([]Session, error) {
	var sessions []Session
	switch lister, ok := j.opts.Sessions.(ChildLister); {
	case ids == nil && !ok:
		a.Err = fmt.Errorf("%w: this host lists no children; name their ids", errors.ErrUnsupported)
		return nil, nil
	case ids == nil:
		found, err := lister.ChildSessions(ctx, j.parent)
		a.Err = err
		sessions = found
	case j.opts.Sessions == nil:
		a.Err = fmt.Errorf("%w: there are no Sessions to ask; set JoinOptions.Sessions", errors.ErrUnsupported)
	default:
		for _, id := range ids {
			s, err := j.opts.Sessions.Session(ctx, id)
			switch {
			case errors.Is(err, ErrNotFound):
				a.Refused[id] = err
			case err != nil:
				a.Err = err
				a.Refused[id] = err
			default:
				s.ID = id
				sessions = append(sessions, s)
			}
		}
	}
	var kept []Session
	for _, s := range sessions {
		switch {
		case s.ID == j.parent || checkSession("child", s.ID) != nil:
			a.Refused[s.ID] = fmt.Errorf("%w: it cannot be a child of %s", ErrDenied, quoteName(string(j.parent)))
		case s.Parent == "":
			a.Refused[s.ID] = fmt.Errorf("%w: the host does not say whose child it is", ErrDenied)
		case s.Parent != j.parent:
			a.Refused[s.ID] = fmt.Errorf("%w: it is a child of %s", ErrDenied, quoteName(string(s.Parent)))
		default:
			kept = append(kept, s)
		}
	}
	return kept, ctx.Err()
}

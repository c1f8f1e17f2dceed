package fakehost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/teamchan/team"
)

// FormDomain is what agents and plugins ask the user on a host of generation 2. Forms are in
// memory: after a restart, and in the other window, they are not there.
//
// OpenCode 2.0: tool question opens a form; /api/session/:id/form; events form.created, replied and
// cancelled. 1.18 has QuestionDomain instead.
type FormDomain struct {
	h       *Host
	pending waiting[Form, map[string]any]
}

// A Form is fields that somebody has to fill in.
type Form struct {
	ID       string          `json:"id"` // "frm_…"; Create and Ask take one of the caller's
	Session  string          `json:"sessionID"`
	Title    string          `json:"title"`
	Metadata json.RawMessage `json:"metadata,omitempty"` // of the tool: {kind: "question", tool: {messageID, id}}
	Fields   []Field         `json:"fields"`
}

// A Field is one question of a form. What the host can check beyond this, such as a length or a pattern,
// is not here.
type Field struct {
	Key         string        `json:"key"`
	Title       string        `json:"title,omitempty"`
	Description string        `json:"description,omitempty"`
	Type        string        `json:"type"` // "string", "multiselect", "number", "integer", "boolean"
	Required    bool          `json:"required,omitempty"`
	Options     []FieldOption `json:"options,omitempty"` // of a string or multiselect
	Custom      bool          `json:"custom,omitempty"`  // whether another answer than an option is good
}

// A FieldOption is an answer to choose.
type FieldOption struct {
	Value       string `json:"value"`
	Label       string `json:"label"`
	Description string `json:"description,omitempty"`
}

func checkForm(f Form) error {
	if len(f.Fields) == 0 {
		return invalid("form", "has no fields", "ask for at least one")
	}
	keys := make(map[string]bool)
	for _, field := range f.Fields {
		switch {
		case field.Key == "" || keys[field.Key]:
			return invalid("form field", fmt.Sprintf("has key %q", field.Key), "give each field its own key")
		case !slices.Contains([]string{"string", "multiselect", "number", "integer", "boolean"}, field.Type):
			return invalid("form field "+field.Key, fmt.Sprintf("has type %q", field.Type),
				"use string, multiselect, number, integer or boolean")
		}
		keys[field.Key] = true
	}
	if f.Metadata != nil && !json.Valid(f.Metadata) {
		return invalid("form metadata", "is not JSON", "pass one JSON object")
	}
	return nil
}

// Create opens a form and does not wait. A *ConflictError if its id was used before; an empty one is a new
// one.
func (d *FormDomain) Create(ctx context.Context, in Form) (Form, error) {
	p, err := d.create(ctx, in)
	if err != nil {
		return Form{}, err
	}
	return p.request, nil
}

// Ask opens a form and waits for its answer: by key a string, []string of a multiselect, float64 or bool. A
// *DismissedError if it was cancelled, or a *CancelledError if that came with a message; the context's
// error if ctx ends first, which takes the form back.
func (d *FormDomain) Ask(ctx context.Context, in Form) (map[string]any, error) {
	p, err := d.create(ctx, in)
	if err != nil {
		return nil, err
	}
	return d.pending.wait(ctx, p)
}

func (d *FormDomain) create(ctx context.Context, in Form) (*waiter[Form, map[string]any], error) {
	if err := d.h.enter(ctx, Call{Domain: "form", Method: "create", Session: in.Session}); err != nil {
		return nil, err
	}
	if err := checkForm(in); err != nil {
		return nil, err
	}
	if in.ID == "" {
		in.ID = d.h.newID("frm_")
	} else if err := checkID("form", in.ID, "frm_"); err != nil {
		return nil, err
	}
	p := newWaiter[Form, map[string]any](in.ID, in.Session, in)
	return p, d.h.tx(func(t *tx) error {
		if _, err := t.session(in.Session); err != nil {
			return err
		}
		if _, err := d.pending.get("form", in.ID); !errors.Is(err, team.ErrNotFound) {
			return &ConflictError{in.ID, "is the id of another form"}
		}
		t.later(func() { d.pending.add(p) })
		t.emit("form.created", in.Session, map[string]any{"form": in})
		return nil
	})
}

// List returns what is pending, in order; for one session, or for all if it is empty.
func (d *FormDomain) List(ctx context.Context, session string) ([]Form, error) {
	if err := d.h.enter(ctx, Call{Domain: "form", Method: "list", Session: session}); err != nil {
		return nil, err
	}
	return d.pending.requests(session), nil
}

// Get returns a pending form; a *ConflictError if it was settled.
func (d *FormDomain) Get(ctx context.Context, id string) (Form, error) {
	if err := d.h.enter(ctx, Call{Domain: "form", Method: "get", Name: id}); err != nil {
		return Form{}, err
	}
	p, err := d.pending.get("form", id)
	if err != nil {
		return Form{}, err
	}
	return p.request, nil
}

// Reply fills a form in: by key what the field's type says, a multiselect as []string or []any. Fields that
// are not required may be left out. What does not fit the form is a *team.InvalidError and leaves it pending.
func (d *FormDomain) Reply(ctx context.Context, id string, answer map[string]any) error {
	if err := d.h.enter(ctx, Call{Domain: "form", Method: "reply", Name: id}); err != nil {
		return err
	}
	p, err := d.pending.get("form", id)
	if err != nil {
		return err
	}
	clean, err := checkAnswer(p.request, answer)
	if err != nil {
		return err
	}
	if p, err = d.pending.take("form", id); err != nil {
		return err
	}
	p.answer = clean
	return d.settle("form.replied", p, map[string]any{"answer": clean})
}

func checkAnswer(f Form, answer map[string]any) (map[string]any, error) {
	out := make(map[string]any)
	for key, v := range answer {
		i := slices.IndexFunc(f.Fields, func(f Field) bool { return f.Key == key })
		if i < 0 {
			return nil, invalid("form answer", fmt.Sprintf("has %q, which is no field", key), "use the keys of the form")
		}
		value, ok := f.Fields[i].value(v)
		if !ok {
			return nil, invalid("form answer "+key, "does not fit the field's type "+f.Fields[i].Type+" or its options", "send what the form asks for")
		}
		out[key] = value
	}
	for _, field := range f.Fields {
		if _, ok := out[field.Key]; field.Required && !ok {
			return nil, invalid("form answer", fmt.Sprintf("lacks %q", field.Key), "fill in the fields that are required")
		}
	}
	return out, nil
}

// value returns v as the field's type has it: string, []string, float64 or bool.
func (f Field) value(v any) (any, bool) {
	switch f.Type {
	case "string":
		s, ok := v.(string)
		return s, ok && f.offers(s)
	case "multiselect":
		out := []string{}
		switch list := v.(type) {
		case []string:
			out = append(out, list...)
		case []any:
			for _, e := range list {
				s, ok := e.(string)
				if !ok {
					return nil, false
				}
				out = append(out, s)
			}
		default:
			return nil, false
		}
		return out, !slices.ContainsFunc(out, func(s string) bool { return !f.offers(s) })
	case "boolean":
		b, ok := v.(bool)
		return b, ok
	default:
		if n, ok := v.(int); ok {
			v = float64(n)
		}
		n, ok := v.(float64)
		return n, ok && !math.IsNaN(n) && !math.IsInf(n, 0) && (f.Type == "number" || n == math.Trunc(n))
	}
}

// offers reports whether s is an answer that the field takes.
func (f Field) offers(s string) bool {
	return f.Custom || len(f.Options) == 0 || slices.ContainsFunc(f.Options, func(o FieldOption) bool { return o.Value == s })
}

// A CancelledError is a form that was cancelled with a message. The tool fails with it, and the
// agent goes on.
type CancelledError struct{ Form, Message string }

func (e *CancelledError) Error() string { return e.Message }

// Cancel closes a form. Without a message that ends the turn of the agent that asked; with one
// its tool fails, and the agent goes on.
func (d *FormDomain) Cancel(ctx context.Context, id, message string) error {
	if err := d.h.enter(ctx, Call{Domain: "form", Method: "cancel", Name: id}); err != nil {
		return err
	}
	p, err := d.pending.take("form", id)
	if err != nil {
		return err
	}
	p.err = &DismissedError{id}
	if message != "" {
		p.err = &CancelledError{id, message}
	}
	return d.settle("form.cancelled", p, map[string]any{})
}

func (d *FormDomain) settle(event string, p *waiter[Form, map[string]any], data map[string]any) error {
	data["id"], data["sessionID"] = p.id, p.session
	return d.pending.settle(d.h, event, p, data)
}

// tool is question {questions[]}: a form with fields q0, q1, ….
func (d *FormDomain) tool() Tool {
	return Tool{Name: "question", Description: "Ask the user",
		Run: func(ctx context.Context, c *ToolCall) (ToolOutput, error) {
			questions, err := decodeQuestions(c)
			if err != nil {
				return ToolOutput{}, err
			}
			form := Form{Session: c.Session, Title: "Questions",
				Metadata: mustJSON(map[string]any{"kind": "question", "tool": map[string]any{"messageID": c.Message, "id": c.ID}})}
			for i, q := range questions {
				f := Field{Key: fmt.Sprintf("q%d", i), Title: q.Header, Description: q.Question, Type: "string", Custom: true}
				if q.Multiple {
					f.Type = "multiselect"
				}
				for _, o := range q.Options {
					f.Options = append(f.Options, FieldOption{o.Label, o.Label, o.Description})
				}
				form.Fields = append(form.Fields, f)
			}
			got, err := d.Ask(ctx, form)
			if err != nil {
				return ToolOutput{}, err
			}
			answers := make([][]string, len(questions))
			for i := range questions {
				switch v := got[fmt.Sprintf("q%d", i)].(type) {
				case string:
					answers[i] = []string{v}
				case []string:
					answers[i] = v
				}
			}
			return ToolOutput{Title: asked(questions), Text: answered(questions, answers)}, nil
		}}
}

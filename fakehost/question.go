package fakehost

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// QuestionDomain is what agents ask the user. Questions are in memory: after a restart, and in
// the other window, they are not there.
//
// OpenCode 1.18: tool question, /question, events question.asked, replied and rejected. The tool is
// hidden from agents whose rules deny it, which by default are all but build and plan. 2.0
// has FormDomain instead.
type QuestionDomain struct {
	h       *Host
	pending waiting[QuestionRequest, [][]string]
}

// A Question is one thing to ask, with answers to choose from.
type Question struct {
	Question string   `json:"question"`
	Header   string   `json:"header"` // a label, at most 30 characters
	Options  []Option `json:"options"`
	Multiple bool     `json:"multiple,omitempty"`
	Custom   *bool    `json:"custom,omitempty"` // whether any other answer is good; nil is yes
}

// An Option is an answer to choose.
type Option struct {
	Label       string `json:"label"`
	Description string `json:"description"`
}

// A QuestionRequest is questions that somebody has to answer.
type QuestionRequest struct {
	ID        string      `json:"id"` // "que_…"
	Session   string      `json:"sessionID"`
	Questions []Question  `json:"questions"`
	Tool      *ToolSource `json:"tool,omitempty"`
}

// A ToolSource names the tool call that waits, as generation 1 does.
type ToolSource struct {
	Message string `json:"messageID"`
	Call    string `json:"callID"`
}

func checkQuestions(questions []Question) error {
	if len(questions) == 0 {
		return invalid("questions", "are none", "ask at least one")
	}
	for i, q := range questions {
		what := fmt.Sprintf("question %d", i+1)
		switch {
		case q.Question == "" || q.Header == "":
			return invalid(what, "has no question or no header", "set both")
		case utf8.RuneCountInString(q.Header) > 30:
			return invalid(what, "has a header of more than 30 characters", "shorten it")
		case slices.ContainsFunc(q.Options, func(o Option) bool { return o.Label == "" }):
			return invalid(what, "has an option without label", "label it")
		}
	}
	return nil
}

// Ask asks and waits for the answers: for each question the labels that were chosen, or the
// user's own words. A *DismissedError if the user does not want to answer; the context's error
// if ctx ends first, which takes the question back.
func (d *QuestionDomain) Ask(ctx context.Context, in QuestionRequest) ([][]string, error) {
	return d.ask(ctx, in, func() error { return nil })
}

// ask is Ask, and calls asked before it waits.
func (d *QuestionDomain) ask(ctx context.Context, in QuestionRequest, asked func() error) ([][]string, error) {
	if err := d.h.enter(ctx, Call{Domain: "question", Method: "ask", Session: in.Session}); err != nil {
		return nil, err
	}
	if err := checkQuestions(in.Questions); err != nil {
		return nil, err
	}
	in.ID = d.h.newID("que_")
	for i := range in.Questions {
		if in.Questions[i].Options == nil {
			in.Questions[i].Options = []Option{}
		}
	}
	p := newWaiter[QuestionRequest, [][]string](in.ID, in.Session, in)
	err := d.h.tx(func(t *tx) error {
		if _, err := t.session(in.Session); err != nil {
			return err
		}
		t.later(func() { d.pending.add(p) })
		t.emit("question.asked", in.Session, in)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := asked(); err != nil {
		_, _ = d.pending.take("", p.id)
		return nil, err
	}
	return d.pending.wait(ctx, p)
}

// List returns what is pending, in order; for one session, or for all if it is empty.
func (d *QuestionDomain) List(ctx context.Context, session string) ([]QuestionRequest, error) {
	if err := d.h.enter(ctx, Call{Domain: "question", Method: "list", Session: session}); err != nil {
		return nil, err
	}
	return d.pending.requests(session), nil
}

// Reply answers a request: for each question its labels; fewer leave the rest unanswered, and more
// are of no effect. An own answer is refused where the question does not take one. A *NotFoundError if it is not pending.
func (d *QuestionDomain) Reply(ctx context.Context, request string, answers [][]string) error {
	if err := d.h.enter(ctx, Call{Domain: "question", Method: "reply", Name: request}); err != nil {
		return err
	}
	p, err := d.pending.get("question", request)
	if err != nil {
		return err
	}
	questions := p.request.Questions
	for i, labels := range answers[:min(len(answers), len(questions))] {
		for _, label := range labels {
			known := slices.ContainsFunc(questions[i].Options, func(o Option) bool { return o.Label == label })
			if custom := questions[i].Custom; !known && custom != nil && !*custom {
				return invalid("answer", fmt.Sprintf("%q is no option of question %d", label, i+1), "choose one of its labels")
			}
		}
	}
	if answers == nil {
		answers = [][]string{}
	}
	if p, err = d.pending.take("question", request); err != nil {
		return err
	}
	p.answer = answers
	return d.settle("question.replied", p, map[string]any{"answers": answers})
}

// Reject dismisses a request, which ends the turn of the agent that asked.
func (d *QuestionDomain) Reject(ctx context.Context, request string) error {
	if err := d.h.enter(ctx, Call{Domain: "question", Method: "reject", Name: request}); err != nil {
		return err
	}
	p, err := d.pending.take("question", request)
	if err != nil {
		return err
	}
	p.err = &DismissedError{request}
	return d.settle("question.rejected", p, map[string]any{})
}

func (d *QuestionDomain) settle(event string, p *waiter[QuestionRequest, [][]string], data map[string]any) error {
	data["sessionID"], data["requestID"] = p.session, p.id
	return d.pending.settle(d.h, event, p, data)
}

// tool is question {questions[]}, whose input has no field custom: the user may always answer in
// his own words.
func (d *QuestionDomain) tool() Tool {
	return Tool{Name: "question", Description: "Ask the user", late: true,
		Run: func(ctx context.Context, c *ToolCall) (ToolOutput, error) {
			questions, err := decodeQuestions(c)
			if err != nil {
				return ToolOutput{}, err
			}
			answers, err := d.call(ctx, c, questions)
			if err != nil {
				return ToolOutput{}, err
			}
			return ToolOutput{Title: asked(questions), Text: answered(questions, answers),
				Metadata: map[string]any{"answers": answers}}, nil
		}}
}

// call asks for a tool call, which is running while it waits.
func (d *QuestionDomain) call(ctx context.Context, c *ToolCall, questions []Question) ([][]string, error) {
	request := QuestionRequest{Session: c.Session, Questions: questions, Tool: &ToolSource{c.Message, c.ID}}
	return d.ask(ctx, request, func() error { return c.Progress("", nil) })
}

// decodeQuestions reads the input of the tool, which is the same in both generations.
func decodeQuestions(c *ToolCall) ([]Question, error) {
	var in struct {
		Questions []struct {
			Question string   `json:"question"`
			Header   string   `json:"header"`
			Options  []Option `json:"options"`
			Multiple bool     `json:"multiple"`
		} `json:"questions"`
	}
	if err := c.Decode(&in); err != nil {
		return nil, err
	}
	var out []Question
	for _, q := range in.Questions {
		out = append(out, Question{q.Question, q.Header, q.Options, q.Multiple, nil})
	}
	return out, checkQuestions(out)
}

func asked(questions []Question) string {
	if len(questions) == 1 {
		return "Asked 1 question"
	}
	return fmt.Sprintf("Asked %d questions", len(questions))
}

// answered is what the model reads: "question"="answer, answer" for each.
func answered(questions []Question, answers [][]string) string {
	pairs := make([]string, len(questions))
	for i, q := range questions {
		answer := "Unanswered"
		if i < len(answers) && len(answers[i]) > 0 {
			answer = strings.Join(answers[i], ", ")
		}
		pairs[i] = fmt.Sprintf(`"%s"="%s"`, q.Question, answer)
	}
	return "The user's answers: " + strings.Join(pairs, ", ") + ". Go on with them."
}

package fakehost

import (
	"errors"
	"strings"

	"github.com/teamchan/team"
)

// The routes of what people are asked, of the list of things to do, and of what agents may load
// and call.

var domainsV1 = []route{
	{"GET", "/session/{sessionID}/todo", "its list of things to do", func(q *request) (any, error) {
		list, err := q.h.Todo.Get(q.ctx(), q.session())
		return array(list), err
	}, ""},
	{"GET", "/question", "what waits for an answer", func(q *request) (any, error) {
		list, err := q.h.Question.List(q.ctx(), "")
		return array(list), err
	}, ""},
	{"POST", "/question/{requestID}/reply", "answer: {answers: [[label, …], …]}", func(q *request) (any, error) {
		var in struct{ Answers [][]string }
		if err := q.param("requestID", "que"); err != nil {
			return nil, err
		}
		if err := q.take(answersForm, &in); err != nil {
			return nil, err
		}
		return true, q.h.Question.Reply(q.ctx(), q.ids["requestID"], in.Answers)
	}, ""},
	{"POST", "/question/{requestID}/reject", "dismiss", func(q *request) (any, error) {
		if err := q.param("requestID", "que"); err != nil {
			return nil, err
		}
		return true, q.h.Question.Reject(q.ctx(), q.ids["requestID"])
	}, ""},
	{"GET", "/skill", "the skills", func(q *request) (any, error) {
		list, err := q.h.Skill.List(q.ctx(), "")
		out := []map[string]string{}
		for _, s := range list {
			out = append(out, map[string]string{"name": s.Name, "description": s.Description, "location": s.Dir, "content": s.Text})
		}
		return out, err
	}, ""},
	{"GET", "/command", "the commands", func(q *request) (any, error) {
		list, err := q.h.Command.List(q.ctx())
		out := []map[string]any{}
		for _, c := range list {
			info := map[string]any{"name": c.Name, "template": c.Template, "source": "command", "hints": []string{},
				"agent": null(c.Agent), "model": nil, "subtask": nil}
			if strings.Contains(c.Template, "$ARGUMENTS") {
				info["hints"] = []string{"$ARGUMENTS"}
			}
			if c.Subtask {
				info["subtask"] = true
			}
			setIf(info, "description", c.Description)
			out = append(out, info)
		}
		return out, err
	}, ""},
	{"GET", "/lsp", "the language servers that were started", func(q *request) (any, error) {
		if q.h.LSP == nil {
			return nil, q.h.absent("language servers without a folder: set Options.Directory")
		}
		list, err := q.h.LSP.Status(q.ctx())
		return array(list), err
	}, ""},
}

var domainsV2 = []route{
	{"GET", "/api/mcp/resource", "what MCP servers offer to read", (*request).resources, ""},
	{"POST", "/api/session/{sessionID}/form", "ask the user: {id?, title, metadata?, fields}", func(q *request) (any, error) {
		var in Form
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		in.Session = q.session()
		f, err := q.h.Form.Create(q.ctx(), in)
		if bad, ok := errors.AsType[*team.InvalidError](err); ok {
			err = invalid("fields", bad.What+" "+bad.Why, bad.Advice)
		}
		return data(f), err
	}, ""},
	{"GET", "/api/session/{sessionID}/form", "what waits for an answer", func(q *request) (any, error) {
		if _, err := q.h.Session.Get(q.ctx(), q.session()); err != nil {
			return nil, err
		}
		list, err := q.h.Form.List(q.ctx(), q.session())
		return data(array(list)), err
	}, ""},
	{"GET", "/api/session/{sessionID}/form/{formID}", "one form", func(q *request) (any, error) {
		f, err := q.form()
		return data(f), err
	}, ""},
	{"POST", "/api/session/{sessionID}/form/{formID}/reply", "answer: {answer: {key: value}}", func(q *request) (any, error) {
		var in struct{ Answer map[string]any }
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		if _, err := q.form(); err != nil {
			return nil, err
		}
		return nil, q.h.Form.Reply(q.ctx(), q.ids["formID"], in.Answer)
	}, ""},
	{"POST", "/api/session/{sessionID}/form/{formID}/cancel", "dismiss: {message?}", func(q *request) (any, error) {
		var in struct{ Message string }
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		if _, err := q.form(); err != nil {
			return nil, err
		}
		return nil, q.h.Form.Cancel(q.ctx(), q.ids["formID"], in.Message)
	}, ""},
}

// resources is what can be listed: a server that fails leaves the others' there.
func (q *request) resources() (any, error) {
	list, err := q.h.MCP.Resources(q.ctx())
	if list.Resources == nil && list.Templates == nil && err != nil {
		return nil, err
	}
	list.Resources, list.Templates = array(list.Resources), array(list.Templates)
	return q.located(list), nil
}

// form returns the form in the path, if it is one of the session's.
func (q *request) form() (Form, error) {
	if _, err := q.h.Session.Get(q.ctx(), q.session()); err != nil {
		return Form{}, err
	}
	f, err := q.h.Form.Get(q.ctx(), q.ids["formID"])
	if err == nil && f.Session != q.session() {
		err = &NotFoundError{"form", q.ids["formID"]}
	}
	return f, err
}

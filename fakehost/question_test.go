package fakehost_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

// toolStory returns the states of generation 1's tool parts and the events of the types given, in
// order.
func toolStory(t *testing.T, events []fakehost.Event, prefixes ...string) []string {
	t.Helper()
	var out []string
	for _, e := range events {
		if len(only([]string{e.Type}, prefixes...)) > 0 {
			out = append(out, e.Type)
		}
		var data struct {
			Part struct {
				Type  string
				State struct{ Status, Title string }
			}
		}
		require.NoError(t, json.Unmarshal(e.Data, &data))
		if p := data.Part; p.Type == "tool" {
			out = append(out, strings.TrimSpace("tool "+p.State.Status+" "+p.State.Title))
		}
	}
	return out
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func messageTypes(list []*fakehost.Message) []string {
	var out []string
	for _, m := range list {
		out = append(out, m.Type)
	}
	return out
}

// history is the whole history, as text.
func history(t *testing.T, h *fakehost.Host, session string) string {
	t.Helper()
	return strings.Join(texts(t, h, session), "\n")
}

var database = map[string]any{"questions": []any{map[string]any{"question": "Which db?", "header": "DB", "multiple": true,
	"options": []any{map[string]any{"label": "Postgres", "description": "server"}, map[string]any{"label": "SQLite", "description": "file"}}}}}

// asking opens a host whose agent calls a tool with input and then says what came of it.
func asking(t *testing.T, p fakehost.Profile, agent, tool string, input any) (*fakehost.Host, string, *recorder) {
	t.Helper()
	play := func(ctx context.Context, t *fakehost.Turn) (string, error) {
		r, err := t.Call(ctx, tool, input)
		if err != nil {
			return "failed: " + err.Error(), nil
		}
		return r.Text, nil
	}
	h := open(t, &fakehost.Options{Profile: p, Agents: []fakehost.Agent{{Name: agent, Mode: "primary", Script: play}}})
	s, err := h.Session.Create(t.Context(), fakehost.NewSession{Agent: agent})
	require.NoError(t, err)
	rec := record(t, h)
	in := fakehost.Prompt{Text: "go"}
	if p.Generation == 1 {
		in.Agent = agent
	}
	send(t, h, s.ID, in)
	synctest.Wait()
	return h, s.ID, rec
}

func pendingQuestion(t *testing.T, h *fakehost.Host, session string) fakehost.QuestionRequest {
	t.Helper()
	list, err := h.Question.List(t.Context(), session)
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

func TestQuestion(t *testing.T) {
	bubble(t, "an answer goes to the model, and the events are those of the real host", func(t *testing.T) {
		h, session, rec := asking(t, fakehost.V1_18, "build", "question", database)
		q := pendingQuestion(t, h, session)
		require.True(t, strings.HasPrefix(q.ID, "que_"))
		got := object(t, q)
		require.ElementsMatch(t, []string{"id", "sessionID", "questions", "tool"}, keys(got))
		require.ElementsMatch(t, []string{"messageID", "callID"}, keys(got["tool"].(map[string]any)))
		require.JSONEq(t, `[{"question":"Which db?","header":"DB","options":[{"label":"Postgres","description":"server"},
			{"label":"SQLite","description":"file"}],"multiple":true}]`, string(must(json.Marshal(q.Questions))))
		require.NoError(t, h.Question.Reply(t.Context(), q.ID, [][]string{{"SQLite", "my own"}}))
		wait(t, h, session)
		types := rec.types(session)
		require.Equal(t, []string{"question.asked", "question.replied"}, only(types, "question."))
		require.Equal(t, []string{"tool pending", "question.asked", "tool running", "question.replied", "tool completed Asked 1 question"},
			toolStory(t, rec.events, "question."))
		for _, e := range rec.events {
			if e.Type == "question.replied" {
				require.JSONEq(t, `{"sessionID":"`+session+`","requestID":"`+q.ID+`","answers":[["SQLite","my own"]]}`, string(e.Data))
			}
		}
		require.Contains(t, last(t, h, session), `"Which db?"="SQLite, my own"`)
	})
	bubble(t, "a question without an answer is unanswered", func(t *testing.T) {
		input := map[string]any{"questions": []any{map[string]any{"question": "A?", "header": "a"}, map[string]any{"question": "B?", "header": "b"}}}
		h, session, _ := asking(t, fakehost.V1_18, "build", "question", input)
		require.NoError(t, h.Question.Reply(t.Context(), pendingQuestion(t, h, "").ID, [][]string{{}}))
		wait(t, h, session)
		require.Contains(t, last(t, h, session), `"A?"="Unanswered", "B?"="Unanswered"`)
	})
	bubble(t, "a dismissal fails the tool and ends the turn without an error", func(t *testing.T) {
		h, session, rec := asking(t, fakehost.V1_18, "build", "question", database)
		q := pendingQuestion(t, h, session)
		require.NoError(t, h.Question.Reject(t.Context(), q.ID))
		wait(t, h, session)
		types := rec.types(session)
		require.Equal(t, []string{"tool pending", "question.asked", "tool running", "question.rejected", "tool error"}, toolStory(t, rec.events, "question."))
		require.NotContains(t, types, "session.error")
		from := strings.Join(types, " ")
		require.True(t, strings.HasSuffix(from, "question.rejected message.part.updated message.part.updated message.updated message.updated "+
			"session.status session.idle session.updated session.diff message.updated"), from)
		require.Equal(t, []string{"user: go", "assistant"}, texts(t, h, session))
		require.ErrorIs(t, h.Question.Reject(t.Context(), q.ID), team.ErrNotFound, "it is settled")
		require.ErrorIs(t, h.Question.Reply(t.Context(), "que_none", nil), team.ErrNotFound)
	})
	bubble(t, "an answer that does not fit changes nothing", func(t *testing.T) {
		h := open(t, &fakehost.Options{Profile: fakehost.V1_18})
		session := create(t, h)
		done := make(chan error, 1)
		go func() {
			answers, err := h.Question.Ask(t.Context(), fakehost.QuestionRequest{Session: session, Questions: []fakehost.Question{{Question: "Go?", Header: "go",
				Options: []fakehost.Option{{Label: "Yes"}, {Label: "No"}}, Custom: new(bool)}}})
			if err == nil && answers[0][0] != "No" {
				err = context.Canceled
			}
			done <- err
		}()
		synctest.Wait()
		q := pendingQuestion(t, h, session)
		require.ErrorIs(t, h.Question.Reply(t.Context(), q.ID, [][]string{{"Maybe"}}), team.ErrInvalid)
		require.Equal(t, q, pendingQuestion(t, h, session))
		require.NoError(t, h.Question.Reply(t.Context(), q.ID, [][]string{{"No"}, {"Yes"}}), "more answers than questions do no harm")
		require.NoError(t, <-done)
	})
	bubble(t, "an interrupt takes the question back", func(t *testing.T) {
		h, session, _ := asking(t, fakehost.V1_18, "build", "question", database)
		_, err := h.Session.Interrupt(t.Context(), session, false)
		require.NoError(t, err)
		wait(t, h, session)
		list, err := h.Question.List(t.Context(), "")
		require.NoError(t, err)
		require.Empty(t, list)
	})
	t.Run("a restart forgets what was asked", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "host.db")
		h := openAt(t, file, &fakehost.Options{Profile: fakehost.V1_18})
		session := create(t, h)
		done := make(chan error, 1)
		go func() {
			_, err := h.Question.Ask(context.Background(), fakehost.QuestionRequest{Session: session, Questions: []fakehost.Question{{Question: "Go?", Header: "go"}}})
			done <- err
		}()
		require.Eventually(t, func() bool { list, _ := h.Question.List(t.Context(), ""); return len(list) == 1 }, time.Minute, time.Millisecond)
		require.NoError(t, h.Close())
		require.ErrorIs(t, <-done, team.ErrClosed)
		h = openAt(t, file, &fakehost.Options{Profile: fakehost.V1_18})
		list, err := h.Question.List(t.Context(), "")
		require.NoError(t, err)
		require.Empty(t, list)
	})
	t.Run("only build and plan may ask", func(t *testing.T) {
		h := open(t, &fakehost.Options{Profile: fakehost.V1_18, Agents: []fakehost.Agent{{Name: "mine"}}})
		for agent, may := range map[string]bool{"build": true, "plan": true, "general": false, "explore": false, "mine": false} {
			s, err := h.Session.Create(t.Context(), fakehost.NewSession{Agent: agent})
			require.NoError(t, err)
			names, err := h.Tool.Visible(t.Context(), s.ID)
			require.NoError(t, err)
			require.Equal(t, may, strings.Contains(strings.Join(names, " "), "question"), agent)
		}
	})
	t.Run("a host without the tool has no domain, and plan mode goes with it", func(t *testing.T) {
		p := fakehost.V1_18
		p.Question = false
		h := open(t, &fakehost.Options{Profile: p})
		require.Nil(t, h.Question)
		tools, err := h.Tool.List(t.Context())
		require.NoError(t, err)
		for _, tool := range tools {
			require.NotContains(t, []string{"question", "plan_exit"}, tool.Name)
		}
	})
	for name, questions := range map[string][]fakehost.Question{
		"no question":     nil,
		"a long header":   {{Question: "a", Header: strings.Repeat("é", 31)}},
		"no header":       {{Question: "a"}},
		"an empty option": {{Question: "a", Header: strings.Repeat("é", 30), Options: []fakehost.Option{{}}}},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			h := open(t, &fakehost.Options{Profile: fakehost.V1_18})
			_, err := h.Question.Ask(t.Context(), fakehost.QuestionRequest{Session: create(t, h), Questions: questions})
			require.ErrorIs(t, err, team.ErrInvalid)
		})
	}
}

func pendingForm(t *testing.T, h *fakehost.Host, session string) fakehost.Form {
	t.Helper()
	list, err := h.Form.List(t.Context(), session)
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

func TestForm(t *testing.T) {
	bubble(t, "the tool question opens a form and gets its answer", func(t *testing.T) {
		h, session, rec := asking(t, fakehost.V2_0, "build", "question", database)
		require.Nil(t, h.Question)
		f := pendingForm(t, h, session)
		got := object(t, f)
		require.Equal(t, "Questions", got["title"])
		meta := got["metadata"].(map[string]any)
		require.Equal(t, "question", meta["kind"])
		require.ElementsMatch(t, []string{"messageID", "id"}, keys(meta["tool"].(map[string]any)))
		require.JSONEq(t, `[{"key":"q0","title":"DB","description":"Which db?","type":"multiselect","custom":true,"options":[
			{"value":"Postgres","label":"Postgres","description":"server"},{"value":"SQLite","label":"SQLite","description":"file"}]}]`, string(must(json.Marshal(f.Fields))))
		require.NoError(t, h.Form.Reply(t.Context(), f.ID, map[string]any{"q0": []any{"SQLite", "my own"}}))
		wait(t, h, session)
		require.Equal(t, []string{"form.created", "form.replied"}, only(rec.types(session), "form."))
		for _, e := range rec.events {
			switch e.Type {
			case "form.created":
				require.Equal(t, f.ID, object(t, e.Data)["form"].(map[string]any)["id"])
			case "form.replied":
				require.JSONEq(t, `{"id":"`+f.ID+`","sessionID":"`+session+`","answer":{"q0":["SQLite","my own"]}}`, string(e.Data))
			}
			require.False(t, strings.HasPrefix(e.Type, "form.") && e.Durable != nil, "forms are not in the log")
		}
		require.Contains(t, history(t, h, session), `"Which db?"="SQLite, my own"`)
		_, err := h.Form.Get(t.Context(), f.ID)
		require.ErrorIs(t, err, team.ErrConflict, "FormAlreadySettledError")
		_, err = h.Form.Get(t.Context(), "frm_none")
		require.ErrorIs(t, err, team.ErrNotFound)
	})
	bubble(t, "cancel without a message ends the turn", func(t *testing.T) {
		h, session, rec := asking(t, fakehost.V2_0, "build", "question", database)
		require.NoError(t, h.Form.Cancel(t.Context(), pendingForm(t, h, session).ID, ""))
		wait(t, h, session)
		types := rec.types(session)
		require.Equal(t, []string{"form.created", "form.cancelled", "session.execution.interrupted"}, only(types, "form.", "session.execution.interrupted"))
		require.NotContains(t, history(t, h, session), "failed:", "the agent is not asked again")
	})
	bubble(t, "the end may be shutdown, as on 2.0.24", func(t *testing.T) {
		h, session, _ := asking(t, fakehost.V2_0, "build", "question", database)
		h.Inject(fakehost.FaultShutdownAfterDecline)
		require.NoError(t, h.Form.Cancel(t.Context(), pendingForm(t, h, session).ID, ""))
		wait(t, h, session)
		s, err := h.Session.Get(t.Context(), session)
		require.NoError(t, err)
		require.Equal(t, "shutdown", s.Claim)
		require.Empty(t, s.Outcome)
	})
	bubble(t, "cancel with a message is a failure of the tool, and the agent goes on", func(t *testing.T) {
		h, session, _ := asking(t, fakehost.V2_0, "build", "question", database)
		require.NoError(t, h.Form.Cancel(t.Context(), pendingForm(t, h, session).ID, "ask me tomorrow"))
		wait(t, h, session)
		require.Contains(t, history(t, h, session), "failed: ask me tomorrow")
		s, err := h.Session.Get(t.Context(), session)
		require.NoError(t, err)
		require.Equal(t, "succeeded", s.Outcome)
	})
	bubble(t, "an answer that does not fit leaves the form pending", func(t *testing.T) {
		h := open(t, nil)
		session := create(t, h)
		f, err := h.Form.Create(t.Context(), fakehost.Form{Session: session, Title: "t", Fields: []fakehost.Field{
			{Key: "one", Type: "string", Required: true, Options: []fakehost.FieldOption{{Value: "a"}}}, {Key: "many", Type: "multiselect", Custom: true},
			{Key: "n", Type: "integer"}, {Key: "x", Type: "number"}, {Key: "ok", Type: "boolean"}}})
		require.NoError(t, err)
		for _, bad := range []map[string]any{{"other": "x"}, {"one": []any{"a"}}, {"one": "b"}, {"many": "x"}, {"one": "a", "many": []any{1}},
			{"one": 3}, {}, {"one": "a", "n": 1.5}, {"one": "a", "x": "1"}, {"one": "a", "ok": "yes"}, {"one": "a", "x": math.NaN()}, nil} {
			require.ErrorIs(t, h.Form.Reply(t.Context(), f.ID, bad), team.ErrInvalid, "%v", bad)
		}
		got, err := h.Form.Get(t.Context(), f.ID)
		require.NoError(t, err)
		require.Equal(t, f, got)
		require.NoError(t, h.Form.Reply(t.Context(), f.ID, map[string]any{"one": "a", "many": []string{"x"}, "n": 2, "x": 1.5, "ok": true}))
	})
	t.Run("a form must have fields with keys of their own and types that are known", func(t *testing.T) {
		h := open(t, nil)
		session := create(t, h)
		for _, fields := range [][]fakehost.Field{nil, {{Type: "string"}}, {{Key: "a", Type: "string"}, {Key: "a", Type: "string"}}, {{Key: "a", Type: "date"}}} {
			_, err := h.Form.Create(t.Context(), fakehost.Form{Session: session, Fields: fields})
			require.ErrorIs(t, err, team.ErrInvalid)
		}
		_, err := h.Form.Create(t.Context(), fakehost.Form{Session: "ses_none", Fields: []fakehost.Field{{Key: "a", Type: "string"}}})
		require.ErrorIs(t, err, team.ErrNotFound)
		list, err := h.Form.List(t.Context(), "")
		require.NoError(t, err)
		require.Empty(t, list)
	})
}

func TestPlanExit(t *testing.T) {
	planning := func(t *testing.T) (*fakehost.Host, string, *recorder) {
		h, session, rec := asking(t, fakehost.V1_18, "plan", "plan_exit", map[string]any{})
		require.NoError(t, h.Agent.Add(fakehost.Agent{Name: "build", Mode: "primary", Script: func(_ context.Context, t *fakehost.Turn) (string, error) {
			return t.Agent() + " builds", nil
		}}))
		return h, session, rec
	}
	bubble(t, "it is a question with fixed answers", func(t *testing.T) {
		h, session, _ := planning(t)
		q := pendingQuestion(t, h, session)
		require.Len(t, q.Questions, 1)
		require.Equal(t, false, object(t, q.Questions[0])["custom"])
		require.Equal(t, []string{"Yes", "No"}, []string{q.Questions[0].Options[0].Label, q.Questions[0].Options[1].Label})
		require.ErrorIs(t, h.Question.Reply(t.Context(), q.ID, [][]string{{"later"}}), team.ErrInvalid)
	})
	bubble(t, "yes goes on as agent build, by a synthetic message of the user", func(t *testing.T) {
		h, session, rec := planning(t)
		require.NoError(t, h.Question.Reply(t.Context(), pendingQuestion(t, h, session).ID, [][]string{{"Yes"}}))
		wait(t, h, session)
		list, err := h.Session.Messages(t.Context(), session, fakehost.MessagePage{})
		require.NoError(t, err)
		require.Equal(t, []string{"user", "assistant", "user", "assistant"}, messageTypes(list))
		require.Equal(t, "build", object(t, list[2])["info"].(map[string]any)["agent"])
		require.Contains(t, string(list[2].Parts[0]), `"synthetic":true`)
		require.Equal(t, "build builds", list[3].Text())
		s, err := h.Session.Get(t.Context(), session)
		require.NoError(t, err)
		require.Equal(t, "build", s.Agent)
		require.Len(t, only(rec.types(session), "session.idle"), 1, "it is one busy period")
	})
	bubble(t, "no is a dismissal: the turn ends, and the agent is still plan", func(t *testing.T) {
		h, session, _ := planning(t)
		require.NoError(t, h.Question.Reply(t.Context(), pendingQuestion(t, h, session).ID, [][]string{{"No"}}))
		wait(t, h, session)
		require.Equal(t, []string{"user: go", "assistant"}, texts(t, h, session))
		s, err := h.Session.Get(t.Context(), session)
		require.NoError(t, err)
		require.Equal(t, "plan", s.Agent)
	})
	bubble(t, "outside version control the plan is in the data folder, and may be edited there", func(t *testing.T) {
		dir, data := t.TempDir(), t.TempDir()
		for i, want := range []string{filepath.ToSlash(data) + "/plans/1-a.md", ".opencode/plans/1-a.md"} {
			if i == 1 {
				require.NoError(t, os.Mkdir(filepath.Join(dir, ".git"), 0o700))
			}
			h := open(t, &fakehost.Options{Profile: fakehost.V1_18, Directory: dir, DataDir: data, Agents: []fakehost.Agent{{Name: "plan", Mode: "primary",
				Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
					_, err := t.Call(ctx, "plan_exit", map[string]any{})
					return "", err
				}}}})
			s, err := h.Session.Create(t.Context(), fakehost.NewSession{Agent: "plan"})
			require.NoError(t, err)
			effect, err := h.Permission.Evaluate(t.Context(), s.ID, "edit", want)
			require.NoError(t, err)
			require.Equal(t, team.Allow, effect)
			send(t, h, s.ID, fakehost.Prompt{Text: "plan", Agent: "plan"})
			synctest.Wait()
			require.Contains(t, pendingQuestion(t, h, s.ID).Questions[0].Question, path.Dir(want)+"/")
		}
	})
	t.Run("only agent plan has it, and it may edit nothing but plans", func(t *testing.T) {
		h := open(t, &fakehost.Options{Profile: fakehost.V1_18})
		names, err := h.Tool.Visible(t.Context(), create(t, h))
		require.NoError(t, err)
		require.NotContains(t, names, "plan_exit")
		s, err := h.Session.Create(t.Context(), fakehost.NewSession{Agent: "plan"})
		require.NoError(t, err)
		for resource, want := range map[string]team.Effect{"main.go": team.Deny, ".opencode/plans/1-a.md": team.Allow} {
			effect, err := h.Permission.Evaluate(t.Context(), s.ID, "edit", resource)
			require.NoError(t, err)
			require.Equal(t, want, effect)
		}
	})
}

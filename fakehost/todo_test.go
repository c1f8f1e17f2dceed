package fakehost_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

func todos(contents ...string) []fakehost.Todo {
	var out []fakehost.Todo
	for _, c := range contents {
		out = append(out, fakehost.Todo{Content: c, Status: "pending", Priority: "low"})
	}
	return out
}

func TestTodo(t *testing.T) {
	bubble(t, "todowrite replaces the whole list, keeps its order and says so as the real host did", func(t *testing.T) {
		input := map[string]any{"todos": []fakehost.Todo{{Content: "a<b", Status: "in_progress", Priority: "high"}, {Content: "b", Status: "completed", Priority: "low"}}}
		var rec *recorder
		h, session, r, err := calls(t, &fakehost.Options{Profile: fakehost.V1_18}, "todowrite", input, func(h *fakehost.Host) { rec = record(t, h) })
		require.NoError(t, err)
		require.Equal(t, "[\n  {\n    \"content\": \"a<b\",\n    \"status\": \"in_progress\",\n    \"priority\": \"high\"\n  },\n"+
			"  {\n    \"content\": \"b\",\n    \"status\": \"completed\",\n    \"priority\": \"low\"\n  }\n]", r.Text)
		require.JSONEq(t, `{"todos":[{"content":"a<b","status":"in_progress","priority":"high"},{"content":"b","status":"completed","priority":"low"}],"truncated":false}`, string(r.Metadata))
		rec.types(session)
		require.Equal(t, []string{"tool pending", "todo.updated", "tool running", "tool completed 1 todos"}, toolStory(t, rec.events, "todo.", "question."))
		for _, e := range rec.events {
			if e.Type == "todo.updated" {
				require.JSONEq(t, `{"sessionID":"`+session+`","todos":[{"content":"a<b","status":"in_progress","priority":"high"},{"content":"b","status":"completed","priority":"low"}]}`, string(e.Data))
			}
		}
		require.NoError(t, h.Todo.Set(t.Context(), session, todos("z", "a", "m")))
		list, err := h.Todo.Get(t.Context(), session)
		require.NoError(t, err)
		require.Equal(t, todos("z", "a", "m"), list, "nothing of the list before is left, and the order is that of the call")
	})
	bubble(t, "an empty list is a list", func(t *testing.T) {
		h := open(t, &fakehost.Options{Profile: fakehost.V1_18})
		session, rec := create(t, h), record(t, h)
		require.NoError(t, h.Todo.Set(t.Context(), session, todos("a")))
		require.NoError(t, h.Todo.Set(t.Context(), session, nil))
		list, err := h.Todo.Get(t.Context(), session)
		require.NoError(t, err)
		require.Empty(t, list)
		rec.types(session)
		require.JSONEq(t, `{"sessionID":"`+session+`","todos":[]}`, string(rec.events[len(rec.events)-1].Data))
	})
	bubble(t, "a call that fails changes nothing", func(t *testing.T) {
		h := open(t, &fakehost.Options{Profile: fakehost.V1_18})
		session := create(t, h)
		require.NoError(t, h.Todo.Set(t.Context(), session, todos("a")))
		require.ErrorIs(t, h.Todo.Set(t.Context(), "ses_none", todos("b")), team.ErrNotFound)
		_, err := h.Todo.Get(t.Context(), "ses_none")
		require.ErrorIs(t, err, team.ErrNotFound)
		list, err := h.Todo.Get(t.Context(), session)
		require.NoError(t, err)
		require.Equal(t, todos("a"), list)
	})
	for name, input := range map[string]any{
		"no todos":      map[string]any{},
		"no status":     map[string]any{"todos": []any{map[string]any{"content": "a", "priority": "low"}}},
		"another field": map[string]any{"todos": []any{}, "more": 1},
	} {
		bubble(t, "the tool refuses "+name, func(t *testing.T) {
			h, session, r, err := calls(t, &fakehost.Options{Profile: fakehost.V1_18}, "todowrite", input, nil)
			require.ErrorContains(t, err, "invalid arguments")
			require.Error(t, r.Err)
			list, err := h.Todo.Get(t.Context(), session)
			require.NoError(t, err)
			require.Empty(t, list)
		})
	}
	t.Run("the list is there after a restart and gone with its session", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "host.db")
		h := openAt(t, file, &fakehost.Options{Profile: fakehost.V1_18})
		session := create(t, h)
		require.NoError(t, h.Todo.Set(t.Context(), session, todos("a", "b")))
		require.NoError(t, h.Close())
		h = openAt(t, file, &fakehost.Options{Profile: fakehost.V1_18})
		list, err := h.Todo.Get(t.Context(), session)
		require.NoError(t, err)
		require.Equal(t, todos("a", "b"), list)
		require.NoError(t, h.Session.Remove(t.Context(), session))
		_, err = h.Todo.Get(t.Context(), session)
		require.ErrorIs(t, err, team.ErrNotFound)
	})
	bubble(t, "the list belongs to the main session: a subagent has no todowrite", func(t *testing.T) {
		var got error
		opts := &fakehost.Options{Profile: fakehost.V1_18, Agents: []fakehost.Agent{
			{Name: "build", Mode: "primary", Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
				_, err := t.Dispatch(ctx, "general", "d", "p")
				return "", err
			}},
			{Name: "general", Mode: "subagent", Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
				_, got = t.Call(ctx, "todowrite", map[string]any{"todos": []any{}})
				return "done", nil
			}}}}
		h := open(t, opts)
		session := create(t, h)
		prompt(t, h, session, "go")
		wait(t, h, session)
		require.ErrorContains(t, got, "unknown tool")
	})
	t.Run("generation 2 has the table only", func(t *testing.T) {
		h := open(t, nil)
		require.Nil(t, h.Todo)
		names, err := h.Tool.Visible(t.Context(), create(t, h))
		require.NoError(t, err)
		require.NotContains(t, names, "todowrite")
	})
}

func TestCheckTodos(t *testing.T) {
	h := open(t, &fakehost.Options{Profile: fakehost.V1_18})
	session := create(t, h)
	for _, c := range []struct {
		name string
		list []fakehost.Todo
		want []string // of the error
	}{
		{"three steps, one in progress", append(todos("a", "b"), fakehost.Todo{Content: "c", Status: "in_progress", Priority: "high"}), nil},
		{"an empty list", nil, nil},
		{"two in progress", append(todos("a"), fakehost.Todo{Content: "b", Status: "in_progress", Priority: "high"},
			fakehost.Todo{Content: "c", Status: "in_progress", Priority: "medium"}), []string{"has 2 in progress"}},
		{"two steps", todos("a", "b"), []string{"has 2 entries"}},
		{"words that nobody knows", []fakehost.Todo{{Content: "", Status: "open", Priority: "urgent"}},
			[]string{"no content", `status "open"`, `priority "urgent"`, "1 entries"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, h.Todo.Set(t.Context(), session, c.list), "the host keeps what it is given")
			list, err := h.Todo.Get(t.Context(), session)
			require.NoError(t, err)
			require.Equal(t, c.list, list)
			err = fakehost.CheckTodos(list)
			if len(c.want) == 0 {
				require.NoError(t, err)
			}
			for _, w := range c.want {
				require.ErrorContains(t, err, w)
				require.ErrorIs(t, err, team.ErrInvalid)
			}
		})
	}
}

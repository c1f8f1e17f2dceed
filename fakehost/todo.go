package fakehost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ncruces/go-sqlite3"
)

// TodoDomain is the list of things to do of each session. It survives a restart.
//
// OpenCode 1.18: tool todowrite, event todo.updated, GET /session/:id/todo. 2.0 still has
// the table, but neither tool, event, route nor plugin method, so there the domain is nil.
type TodoDomain struct{ h *Host }

// A Todo is one line of the list.
type Todo struct {
	Content  string `json:"content"`
	Status   string `json:"status"`   // "pending", "in_progress", "completed", "cancelled"
	Priority string `json:"priority"` // "high", "medium", "low"
}

// Get returns the session's list, in the order in which it was written.
func (d *TodoDomain) Get(ctx context.Context, session string) ([]Todo, error) {
	if err := d.h.enter(ctx, Call{Domain: "todo", Method: "get", Session: session}); err != nil {
		return nil, err
	}
	var out []Todo
	err := d.h.tx(func(t *tx) error {
		if _, err := t.session(session); err != nil {
			return err
		}
		return t.rows(`SELECT content, status, priority FROM todo WHERE session_id = ? ORDER BY position`, func(s *sqlite3.Stmt) {
			out = append(out, Todo{s.ColumnText(0), s.ColumnText(1), s.ColumnText(2)})
		}, session)
	})
	return out, err
}

// Set replaces the session's whole list, in one transaction, and publishes todo.updated.
// Like the host it keeps any texts and statuses: see CheckTodos for the rules of use.
func (d *TodoDomain) Set(ctx context.Context, session string, todos []Todo) error {
	if err := d.h.enter(ctx, Call{Domain: "todo", Method: "set", Session: session}); err != nil {
		return err
	}
	if todos == nil {
		todos = []Todo{}
	}
	return d.h.tx(func(t *tx) error {
		if _, err := t.session(session); err != nil {
			return err
		}
		if err := t.run(`DELETE FROM todo WHERE session_id = ?`, session); err != nil {
			return err
		}
		for i, todo := range todos {
			err := t.run(`INSERT INTO todo (session_id, content, status, priority, position, time_created, time_updated)
				VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)`, session, todo.Content, todo.Status, todo.Priority, i, t.now)
			if err != nil {
				return err
			}
		}
		t.emit("todo.updated", session, map[string]any{"sessionID": session, "todos": todos})
		return nil
	})
}

// CheckTodos returns how a list breaks the rules that the host tells its model and does not
// enforce: a content, a known status and priority for each, at most one in progress, and a list
// only for three steps or more. Nil if it does not. What no list can show is not checked: that a
// step is marked as soon as it is done, and completed only when it was verified.
func CheckTodos(todos []Todo) error {
	var errs []error
	running := 0
	for i, t := range todos {
		line := fmt.Sprintf("todo %d", i+1)
		if t.Content == "" {
			errs = append(errs, invalid(line, "has no content", "say what is to be done"))
		}
		if !slices.Contains([]string{"pending", "in_progress", "completed", "cancelled"}, t.Status) {
			errs = append(errs, invalid(line, fmt.Sprintf("has status %q", t.Status), "use pending, in_progress, completed or cancelled"))
		}
		if !slices.Contains([]string{"high", "medium", "low"}, t.Priority) {
			errs = append(errs, invalid(line, fmt.Sprintf("has priority %q", t.Priority), "use high, medium or low"))
		}
		if t.Status == "in_progress" {
			running++
		}
	}
	if running > 1 {
		errs = append(errs, invalid("todo list", fmt.Sprintf("has %d in progress", running), "finish one before the next"))
	}
	if n := len(todos); n > 0 && n < 3 {
		errs = append(errs, invalid("todo list", fmt.Sprintf("has %d entries", n), "use a list for three steps or more"))
	}
	return errors.Join(errs...)
}

// tool is todowrite {todos[]}. Its text is the list as JSON, its title the number of those that are
// not completed.
func (d *TodoDomain) tool() Tool {
	return Tool{Name: "todowrite", Description: "Replace the list of things to do", late: true,
		Run: func(ctx context.Context, c *ToolCall) (ToolOutput, error) {
			var in struct {
				Todos []struct{ Content, Status, Priority *string }
			}
			if err := c.Decode(&in); err != nil {
				return ToolOutput{}, err
			}
			if in.Todos == nil {
				return ToolOutput{}, errors.New("invalid arguments for todowrite: todos is missing")
			}
			todos, open := make([]Todo, len(in.Todos)), 0
			for i, t := range in.Todos {
				if t.Content == nil || t.Status == nil || t.Priority == nil {
					return ToolOutput{}, fmt.Errorf("invalid arguments for todowrite: todo %d has no content, status or priority", i+1)
				}
				todos[i] = Todo{*t.Content, *t.Status, *t.Priority}
				if *t.Status != "completed" {
					open++
				}
			}
			if err := c.Ask(ctx, "todowrite", []string{"*"}, []string{"*"}, nil); err != nil {
				return ToolOutput{}, err
			}
			if err := d.Set(ctx, c.Session, todos); err != nil {
				return ToolOutput{}, err
			}
			var text bytes.Buffer
			e := json.NewEncoder(&text)
			e.SetEscapeHTML(false)
			e.SetIndent("", "  ")
			if err := e.Encode(todos); err != nil {
				return ToolOutput{}, err
			}
			return ToolOutput{Title: fmt.Sprintf("%d todos", open), Text: string(bytes.TrimSuffix(text.Bytes(), []byte("\n"))),
				Metadata: map[string]any{"todos": todos}}, nil
		}}
}

package fakehost_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

// Whoever hears of an ask can answer it: it is pending before its event goes out.
func TestAskIsPendingWhenItIsPublished(t *testing.T) {
	one := []fakehost.Question{{Question: "Go?", Header: "go"}}
	for _, c := range []struct {
		name, event string
		profile     fakehost.Profile
		ask         func(ctx context.Context, h *fakehost.Host, session string) error
		answer      func(ctx context.Context, h *fakehost.Host, id string) error
	}{
		{"permission", "permission.asked", fakehost.V2_0,
			func(ctx context.Context, h *fakehost.Host, session string) error {
				return h.Permission.Ask(ctx, fakehost.Ask{Session: session, Action: "external_directory", Resources: []string{"/a"}})
			},
			func(ctx context.Context, h *fakehost.Host, id string) error {
				return h.Permission.Reply(ctx, fakehost.Reply{Request: id, Reply: "once"})
			}},
		{"question", "question.asked", fakehost.V1_18,
			func(ctx context.Context, h *fakehost.Host, session string) error {
				_, err := h.Question.Ask(ctx, fakehost.QuestionRequest{Session: session, Questions: one})
				return err
			},
			func(ctx context.Context, h *fakehost.Host, id string) error { return h.Question.Reply(ctx, id, nil) }},
		{"form", "form.created", fakehost.V2_0,
			func(ctx context.Context, h *fakehost.Host, session string) error {
				_, err := h.Form.Ask(ctx, fakehost.Form{Session: session, Fields: []fakehost.Field{{Key: "a", Type: "string"}}})
				return err
			},
			func(ctx context.Context, h *fakehost.Host, id string) error { return h.Form.Reply(ctx, id, nil) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := open(t, &fakehost.Options{Profile: c.profile})
			session := create(t, h)
			events, err := h.Event.Subscribe(t.Context())
			require.NoError(t, err)
			defer events.Close()
			for range 50 {
				done := make(chan error, 1)
				go func() { done <- c.ask(t.Context(), h, session) }()
				for {
					e, err := events.Next(t.Context())
					require.NoError(t, err)
					if e.Type != c.event {
						continue
					}
					data := object(t, e.Data)
					if form, ok := data["form"].(map[string]any); ok {
						data = form
					}
					require.NoError(t, c.answer(t.Context(), h, data["id"].(string)))
					break
				}
				require.NoError(t, <-done)
			}
		})
	}
}

func TestDismissedAndCalledSucceeded(t *testing.T) {
	bubble(t, "with the fault a dismissed form ends its turn as succeeded", func(t *testing.T) {
		h, session, _ := asking(t, fakehost.V2_0, "build", "question", database)
		h.Inject(fakehost.FaultCompletedAfterDenial)
		require.NoError(t, h.Form.Cancel(t.Context(), pendingForm(t, h, session).ID, ""))
		wait(t, h, session)
		s, err := h.Session.Get(t.Context(), session)
		require.NoError(t, err)
		require.Equal(t, "succeeded", s.Outcome)
	})
}

// Every new domain asks Options.Fault before it does anything.
func TestFaultHookOfDomains(t *testing.T) {
	down := errors.New("down")
	var failing string
	h := open(t, &fakehost.Options{Directory: t.TempDir(), Fault: func(_ context.Context, c fakehost.Call) error {
		if failing != "" && strings.HasPrefix(c.String(), failing) {
			return down
		}
		return nil
	}})
	h1 := open(t, &fakehost.Options{Profile: fakehost.V1_18, Fault: func(_ context.Context, c fakehost.Call) error {
		if failing != "" && strings.HasPrefix(c.String(), failing) {
			return down
		}
		return nil
	}})
	session, session1 := create(t, h), create(t, h1)
	ctx := t.Context()
	for call, do := range map[string]func() error{
		"todo.set":            func() error { return h1.Todo.Set(ctx, session1, nil) },
		"todo.get":            func() error { _, err := h1.Todo.Get(ctx, session1); return err },
		"question.ask":        func() error { _, err := h1.Question.Ask(ctx, fakehost.QuestionRequest{}); return err },
		"question.list":       func() error { _, err := h1.Question.List(ctx, ""); return err },
		"question.reply":      func() error { return h1.Question.Reply(ctx, "que_1", nil) },
		"question.reject":     func() error { return h1.Question.Reject(ctx, "que_1") },
		"form.create":         func() error { _, err := h.Form.Create(ctx, fakehost.Form{}); return err },
		"form.list":           func() error { _, err := h.Form.List(ctx, ""); return err },
		"form.get":            func() error { _, err := h.Form.Get(ctx, "frm_1"); return err },
		"form.reply":          func() error { return h.Form.Reply(ctx, "frm_1", nil) },
		"form.cancel":         func() error { return h.Form.Cancel(ctx, "frm_1", "") },
		"skill.list":          func() error { _, err := h.Skill.List(ctx, ""); return err },
		"skill.activate":      func() error { return h.Skill.Activate(ctx, session, "x") },
		"command.list":        func() error { _, err := h.Command.List(ctx); return err },
		"session.command":     func() error { _, err := h.Session.Command(ctx, session, "x", ""); return err },
		"mcp.add":             func() error { return h.MCP.Add(ctx, fakehost.MCPServer{Name: "a"}) },
		"mcp.list":            func() error { _, err := h.MCP.List(ctx); return err },
		"mcp.resources":       func() error { _, err := h.MCP.Resources(ctx); return err },
		"mcp.prompts":         func() error { _, err := h.MCP.Prompts(ctx); return err },
		"lsp.open":            func() error { _, err := h.LSP.Open(ctx, "a.go"); return err },
		"lsp.status":          func() error { _, err := h.LSP.Status(ctx); return err },
		"vcs.branch":          func() error { _, err := h.VCS.Branch(ctx); return err },
		"vcs.status":          func() error { _, err := h.VCS.Status(ctx); return err },
		"session.diff":        func() error { _, err := h.Session.Diff(ctx, session); return err },
		"session.stage":       func() error { return h.Session.Stage(ctx, session, "msg_1") },
		"session.unstage":     func() error { return h.Session.Unstage(ctx, session) },
		"session.commit":      func() error { return h.Session.Commit(ctx, session) },
		"session.view":        func() error { return h.Session.View(ctx, session, 1) },
		"shell.run":           func() error { _, _, err := h.Shell.Run(ctx, session, "true"); return err },
		"shell.list":          func() error { _, err := h.Shell.List(ctx); return err },
		"shell.kill":          func() error { return h.Shell.Kill(ctx, "sh_1") },
		"worktree.create":     func() error { _, err := h.Worktree.Create(ctx, "a", "/b"); return err },
		"worktree.list":       func() error { _, err := h.Worktree.List(ctx); return err },
		"worktree.remove":     func() error { return h.Worktree.Remove(ctx, "/b", true) },
		"reference.list":      func() error { _, err := h.Reference.List(ctx); return err },
		"integration.list":    func() error { _, err := h.Integration.List(ctx); return err },
		"integration.connect": func() error { _, err := h.Integration.ConnectKey(ctx, "a", "k", ""); return err },
		"integration.resolve": func() error { _, err := h.Integration.Resolve(ctx, "c"); return err },
		"terminal.read":       func() error { _, err := h.Terminal.Read(ctx, "t"); return err },
		"rpc.call":            func() error { _, err := h.RPC.Call(ctx, "a", nil); return err },
		"rpc.emit":            func() error { return h.RPC.Emit(ctx, "a", nil) },
	} {
		failing = call
		require.ErrorIs(t, do(), down, call)
		failing = ""
		require.NotErrorIs(t, do(), down, call)
	}
	require.NoError(t, h.Close())
	require.NoError(t, h1.Close())
	_, err := h.Form.List(ctx, "")
	require.ErrorIs(t, err, team.ErrClosed)
	_, err = h1.Todo.Get(ctx, session1)
	require.ErrorIs(t, err, team.ErrClosed)
}

// FuzzDomainTools feeds any input to the tools of the domains, and any result of an MCP server to
// the host: an error at most.
func FuzzDomainTools(f *testing.F) {
	for _, s := range []string{`{}`, `{"todos":[{"content":"a","status":"b","priority":"c"}]}`, `{"todos":[{}]}`, `{"questions":null}`,
		`{"questions":[{"question":"a"}]}`, `{"name":"demo"}`, `{"id":"demo"}`, `{"content":[{"type":"text","text":1}]}`,
		`{"content":[null,1,{"type":"image"}],"isError":true}`, `[]`, `null`, `"`, "---\n---\nx"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		for _, p := range []fakehost.Profile{fakehost.V1_18, fakehost.V2_0} {
			var got []fakehost.MCPCall
			opts := &fakehost.Options{Profile: p, Skills: []fakehost.Skill{{Name: "demo", Text: data + "x"}}, Agents: []fakehost.Agent{{Name: "build", Mode: "primary",
				Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
					for _, tool := range []string{"todowrite", "skill", "team_board_write"} {
						if _, err := t.Call(ctx, tool, anyInput(data)); err != nil && ctx.Err() != nil {
							return "", err
						}
					}
					return "done", nil
				}}}}
			h := open(t, opts)
			require.NoError(t, h.MCP.Add(t.Context(), board(data, &got)))
			session := create(t, h)
			prompt(t, h, session, "go")
			wait(t, h, session)
			require.Equal(t, "done", last(t, h, session))
		}
	})
}

// anyInput is bytes as they are if they are JSON, and a string if they are not.
func anyInput(data string) any {
	if json.Valid([]byte(data)) {
		return json.RawMessage(data)
	}
	return data
}

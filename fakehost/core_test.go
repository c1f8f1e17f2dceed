package fakehost_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

func TestVisible(t *testing.T) {
	h := open(t, &fakehost.Options{Profile: fakehost.V1_18, Directory: t.TempDir()})
	for agent, want := range map[string][]string{
		"build":   {"task", "skill", "todowrite", "question", "read", "write", "edit", "grep", "glob", "bash"},
		"general": {"task", "skill", "read", "write", "edit", "grep", "glob", "bash"},
		"explore": {"read", "grep", "glob", "bash"},
		"title":   nil,
		"plan":    {"task", "skill", "todowrite", "question", "plan_exit", "read", "write", "edit", "grep", "glob", "bash"},
	} {
		s, err := h.Session.Create(t.Context(), fakehost.NewSession{Agent: agent})
		require.NoError(t, err)
		names, err := h.Tool.Visible(t.Context(), s.ID)
		require.NoError(t, err)
		require.Equal(t, want, names, "agent %s; a tool is hidden only if its last rule denies it for everything", agent)
	}
	s, err := h.Session.Create(t.Context(), fakehost.NewSession{Agent: "build", Permissions: []fakehost.Rule{rule("bash", "*", team.Deny), rule("edit", "*.go", team.Deny)}})
	require.NoError(t, err)
	names, err := h.Tool.Visible(t.Context(), s.ID)
	require.NoError(t, err)
	require.NotContains(t, names, "bash", "the session's rules count as well")
	require.Contains(t, names, "edit")
}

func TestSubagentModel(t *testing.T) {
	for _, c := range []struct {
		name, model string
		want        *fakehost.Model
		err         string
	}{
		{"provider and model", "p/m", &fakehost.Model{ID: "m", Provider: "p"}, ""},
		{"a variant", "p/m/x#fast", &fakehost.Model{ID: "m/x", Provider: "p", Variant: "fast"}, ""},
		{"none is that of the parent", "", &fakehost.Model{ID: "own", Provider: "p"}, ""},
		{"no provider", "m", nil, `Invalid model "m"`},
		{"no model", "p/", nil, `Invalid model "p/"`},
	} {
		bubble(t, c.name, func(t *testing.T) {
			var got error
			opts := script(fakehost.V2_0, nil)
			opts.Agents[0].Script = func(ctx context.Context, t *fakehost.Turn) (string, error) {
				_, got = t.Call(ctx, "subagent", map[string]any{"agent": "general", "description": "d", "prompt": "p", "model": c.model})
				return "", nil
			}
			h := open(t, opts)
			session := create(t, h)
			require.NoError(t, h.Session.SwitchModel(t.Context(), session, fakehost.Model{ID: "own", Provider: "p"}))
			prompt(t, h, session, "go")
			wait(t, h, session)
			children, err := h.Session.Children(t.Context(), session)
			require.NoError(t, err)
			if c.want == nil {
				require.ErrorContains(t, got, c.err)
				require.Empty(t, children)
				return
			}
			require.NoError(t, got)
			require.Equal(t, c.want, children[0].Model)
			list, err := h.Session.Messages(t.Context(), children[0].ID, fakehost.MessagePage{})
			require.NoError(t, err)
			require.Equal(t, c.want.ID, object(t, list[1])["model"].(map[string]any)["id"], "it is what the child runs on")
		})
	}
}

func TestNoBackground(t *testing.T) {
	p := fakehost.V1_18
	p.Background = false
	bubble(t, "without background subagents the call fails and makes no child", func(t *testing.T) {
		var got error
		h := open(t, script(p, func(ctx context.Context, t *fakehost.Turn) (string, error) {
			_, got = t.Background(ctx, "general", "d", "p")
			return "", nil
		}))
		session := create(t, h)
		prompt(t, h, session, "go")
		wait(t, h, session)
		require.ErrorContains(t, got, "not switched on")
		children, err := h.Session.Children(t.Context(), session)
		require.NoError(t, err)
		require.Empty(t, children)
		_, err = h.Session.Background(t.Context(), session)
		require.ErrorContains(t, err, "has no session.background")
	})
}

func TestShellInput(t *testing.T) {
	t.Run("a command that takes too long is stopped, and its result says so", func(t *testing.T) {
		for _, p := range []fakehost.Profile{fakehost.V1_18, fakehost.V2_0} {
			began := time.Now()
			_, _, r, err := calls(t, &fakehost.Options{Profile: p, Directory: t.TempDir()}, p.Shell, map[string]any{"command": "echo before; exec sleep 1000", "timeout": 300}, nil)
			require.NoError(t, err)
			require.Less(t, time.Since(began), 1000*time.Second)
			require.Contains(t, r.Text, "before\n")
			require.Contains(t, r.Text, "300ms")
			var meta map[string]any
			require.NoError(t, json.Unmarshal(r.Metadata, &meta))
			require.Equal(t, true, meta["timeout"])
			require.Nil(t, meta["exit"])
		}
	})
	t.Run("it runs in its workdir, and leaving the workspace is asked for", func(t *testing.T) {
		dir, outside := t.TempDir(), t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
		_, _, r, err := calls(t, &fakehost.Options{Directory: dir}, "shell", map[string]any{"command": "pwd", "workdir": "sub"}, nil)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(strings.TrimSpace(r.Text), "/sub"), r.Text)

		opts := script(fakehost.V2_0, func(ctx context.Context, t *fakehost.Turn) (string, error) {
			_, err := t.Call(ctx, "shell", map[string]any{"command": "pwd", "workdir": outside})
			return "", err
		})
		opts.Directory = dir
		h := open(t, opts)
		session := create(t, h)
		prompt(t, h, session, "go")
		require.Eventually(t, func() bool { list, err := h.Permission.List(t.Context(), session); return err == nil && len(list) == 1 }, time.Minute, time.Millisecond)
		list, err := h.Permission.List(t.Context(), session)
		require.NoError(t, err)
		require.Equal(t, "external_directory", list[0].Action)
		require.Equal(t, []string{filepath.ToSlash(outside) + "/*"}, list[0].Resources)
	})
}

func TestStepLimitOfGeneration1(t *testing.T) {
	bubble(t, "a turn that stops at the limit ends as if it had succeeded, without a text", func(t *testing.T) {
		opts := script(fakehost.V1_18, func(ctx context.Context, t *fakehost.Turn) (string, error) {
			for {
				if _, err := t.Call(ctx, "say", map[string]any{}); err != nil {
					return "never said", err
				}
			}
		})
		opts.Tools, opts.Faults = []fakehost.Tool{text("a", false)}, []fakehost.Fault{fakehost.FaultStepLimit}
		h := open(t, opts)
		session, rec := create(t, h), record(t, h)
		prompt(t, h, session, "go")
		wait(t, h, session)
		require.Equal(t, []string{"user: go", "assistant"}, texts(t, h, session))
		types := rec.types(session)
		require.NotContains(t, types, "session.error")
		require.Len(t, only(types, "session.idle"), 1)
	})
}

func TestMetadataUpdate(t *testing.T) {
	bubble(t, "metadata is replaced as a whole, and a child has what its parent had then", func(t *testing.T) {
		h := open(t, nil)
		session, rec := create(t, h), record(t, h)
		require.NoError(t, h.Session.Update(t.Context(), session, fakehost.SessionChange{Metadata: json.RawMessage(`{"a":1,"b":2}`)}))
		child, err := h.Session.Create(t.Context(), fakehost.NewSession{Parent: session})
		require.NoError(t, err)
		require.NoError(t, h.Session.Update(t.Context(), session, fakehost.SessionChange{Metadata: json.RawMessage(`{"c":3}`)}))
		for id, want := range map[string]string{session: `{"c":3}`, child.ID: `{"a":1,"b":2}`} {
			s, err := h.Session.Get(t.Context(), id)
			require.NoError(t, err)
			require.JSONEq(t, want, string(s.Metadata))
		}
		require.ErrorIs(t, h.Session.Update(t.Context(), session, fakehost.SessionChange{Metadata: json.RawMessage(`{`)}), team.ErrInvalid)
		require.Len(t, only(rec.types(session), "session.metadata.updated"), 2)
		for _, e := range rec.events {
			if e.Type == "session.metadata.updated" {
				require.ElementsMatch(t, []string{"sessionID", "metadata"}, keys(object(t, e.Data)))
			}
		}
	})
}

package fakehost_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

// calls opens a host whose agent calls one tool and returns what came of it.
func calls(t *testing.T, opts *fakehost.Options, tool string, input any, before func(h *fakehost.Host)) (h *fakehost.Host, session string, r fakehost.Result, err error) {
	t.Helper()
	opts.Agents = append(opts.Agents, fakehost.Agent{Name: "build", Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
		r, err = t.Call(ctx, tool, input)
		return "done", nil
	}})
	h = open(t, opts)
	if before != nil {
		before(h)
	}
	session = create(t, h)
	prompt(t, h, session, "go")
	wait(t, h, session)
	return h, session, r, err
}

func text(s string, mcp bool) fakehost.Tool {
	return fakehost.Tool{Name: "say", MCP: mcp, Run: func(context.Context, *fakehost.ToolCall) (fakehost.ToolOutput, error) {
		return fakehost.ToolOutput{Title: "said", Text: s, Metadata: map[string]any{"n": 1}}, nil
	}}
}

func TestToolHooks(t *testing.T) {
	long := strings.Repeat("line\n", 3000)
	for _, c := range []struct {
		name      string
		profile   fakehost.Profile
		mcp       bool
		fields    []string
		truncated bool // already, when the hook sees it
	}{
		{"v1.18 built-in", fakehost.V1_18, false, []string{"title", "output", "metadata", "attachments"}, true},
		{"v1.18 MCP", fakehost.V1_18, true, []string{"content"}, false},
		{"v2.0", fakehost.V2_0, false, []string{"content", "metadata"}, false},
	} {
		t.Run(c.name+": execute.after sees its shape", func(t *testing.T) {
			var seen map[string]any
			var raw string
			_, _, r, err := calls(t, &fakehost.Options{Profile: c.profile, Tools: []fakehost.Tool{text(long, c.mcp)}}, "say", map[string]any{}, func(h *fakehost.Host) {
				h.Tool.After(func(_ context.Context, a *fakehost.AfterTool) error {
					raw = string(a.Result)
					return json.Unmarshal(a.Result, &seen)
				})
			})
			require.NoError(t, err)
			require.ElementsMatch(t, c.fields, keys(seen))
			require.Equal(t, c.truncated, strings.Contains(raw, "truncated"))
			require.Contains(t, string(r.Metadata), `"truncated":true`, "in the end it is")
			require.Less(t, len(r.Text), len(long))
		})
		t.Run(c.name+": what it puts in the place goes to the model", func(t *testing.T) {
			_, _, r, err := calls(t, &fakehost.Options{Profile: c.profile, Tools: []fakehost.Tool{text("a", c.mcp)}}, "say", map[string]any{}, func(h *fakehost.Host) {
				h.Tool.After(func(_ context.Context, a *fakehost.AfterTool) error {
					a.Result = []byte(strings.Replace(string(a.Result), `"a"`, `"b"`, 1))
					return nil
				})
				h.Tool.After(func(_ context.Context, a *fakehost.AfterTool) error {
					a.Result = []byte(`{"output":"c","content":"c"}`)
					return errors.New("so what it did is forgotten")
				})
			})
			require.NoError(t, err)
			require.Equal(t, "b", r.Text)
		})
	}

	t.Run("v2.0: content may be a string, and metadata.truncated keeps the host from cutting", func(t *testing.T) {
		_, _, r, err := calls(t, &fakehost.Options{Tools: []fakehost.Tool{text("a", false)}}, "say", map[string]any{}, func(h *fakehost.Host) {
			h.Tool.After(func(_ context.Context, a *fakehost.AfterTool) error {
				a.Result, _ = json.Marshal(map[string]any{"content": long, "metadata": map[string]any{"truncated": false}})
				return nil
			})
		})
		require.NoError(t, err)
		require.Equal(t, long, r.Text)
	})

	t.Run("execute.before may change the input, or refuse", func(t *testing.T) {
		each(t, func(t *testing.T, p fakehost.Profile) {
			opts := asker(p)
			h := open(t, opts)
			h.Tool.Before(func(_ context.Context, b *fakehost.BeforeTool) error {
				require.Equal(t, p.Generation == 2, b.Agent != "" && b.Message != "")
				if strings.Contains(string(b.Input), "stop") {
					return errors.New("refused by the hook")
				}
				b.Input = []byte(`{"what":"no2"}`)
				return nil
			})
			id := create(t, h)
			prompt(t, h, id, "a1 stop")
			wait(t, h, id)
			require.Contains(t, last(t, h, id), "no2")
			require.Contains(t, last(t, h, id), "refused by the hook")
		})
	})

	t.Run("a failure reaches execute.after in v2.0 only", func(t *testing.T) {
		for _, p := range []fakehost.Profile{fakehost.V1_18, fakehost.V2_0} {
			var seen *fakehost.AfterTool
			bad := fakehost.Tool{Name: "bad", Run: func(context.Context, *fakehost.ToolCall) (fakehost.ToolOutput, error) {
				return fakehost.ToolOutput{}, errors.New("broken")
			}}
			_, _, _, err := calls(t, &fakehost.Options{Profile: p, Tools: []fakehost.Tool{bad}}, "bad", map[string]any{}, func(h *fakehost.Host) {
				h.Tool.After(func(_ context.Context, a *fakehost.AfterTool) error {
					seen = a
					return nil
				})
			})
			require.EqualError(t, err, "broken")
			if p.Generation == 1 {
				require.Nil(t, seen)
			} else {
				require.Equal(t, "error", seen.Status)
				require.JSONEq(t, `{"message":"broken"}`, string(seen.Error))
			}
		}
	})

	t.Run("an unknown tool is an error", func(t *testing.T) {
		_, _, _, err := calls(t, &fakehost.Options{}, "nothing", nil, nil)
		require.ErrorContains(t, err, "unknown tool")
	})
}

func TestTruncation(t *testing.T) {
	cut := func(t *testing.T, p fakehost.Profile, s string) (fakehost.Result, string) {
		dir := t.TempDir()
		_, _, r, err := calls(t, &fakehost.Options{Profile: p, DataDir: dir, Tools: []fakehost.Tool{text(s, false)}}, "say", map[string]any{}, nil)
		require.NoError(t, err)
		var meta struct {
			Truncated  bool
			OutputPath string
		}
		require.NoError(t, json.Unmarshal(r.Metadata, &meta))
		require.Equal(t, meta.OutputPath != "", meta.Truncated)
		if !meta.Truncated {
			return r, ""
		}
		require.Regexp(t, `^tool_[0-9a-f]{12}`, filepath.Base(meta.OutputPath))
		full, err := os.ReadFile(meta.OutputPath)
		require.NoError(t, err)
		require.Equal(t, s, string(full), "the whole is in the file")
		return r, meta.OutputPath
	}
	t.Run("at the limits nothing is cut", func(t *testing.T) {
		for _, p := range []fakehost.Profile{fakehost.V1_18, fakehost.V2_0} {
			s := strings.TrimSuffix(strings.Repeat("a\n", 2000), "\n")
			r, _ := cut(t, p, s)
			require.Equal(t, s, r.Text)
			s = strings.Repeat("a", 51200)
			r, _ = cut(t, p, s)
			require.Equal(t, s, r.Text)
		}
	})
	t.Run("v2.0 by lines", func(t *testing.T) {
		r, path := cut(t, fakehost.V2_0, strings.TrimSuffix(strings.Repeat("a\n", 2001), "\n"))
		require.True(t, strings.HasSuffix(r.Text, "a\n[showing lines 1-2000 of 2001; full output saved to "+path+"]"), r.Text[len(r.Text)-200:])
	})
	t.Run("v2.0 keeps nothing of one line that is too long", func(t *testing.T) {
		r, path := cut(t, fakehost.V2_0, strings.Repeat("é", 26000))
		require.Equal(t, "\n[showing 0 lines of 1; full output saved to "+path+"]", r.Text)
	})
	t.Run("v1.18 by lines and by bytes", func(t *testing.T) {
		r, path := cut(t, fakehost.V1_18, strings.TrimSuffix(strings.Repeat("a\n", 2010), "\n"))
		require.Contains(t, r.Text, "\n\n...10 lines truncated...\n\n")
		require.Contains(t, r.Text, path)
		r, _ = cut(t, fakehost.V1_18, strings.Repeat("a", 100)+"\n"+strings.Repeat("b", 60000))
		require.Contains(t, r.Text, "\n\n...60001 bytes truncated...\n\n")
	})
	t.Run("an envelope loses its end and keeps its beginning", func(t *testing.T) {
		for _, p := range []fakehost.Profile{fakehost.V1_18, fakehost.V2_0} {
			opts := &fakehost.Options{Profile: p, DataDir: t.TempDir()}
			opts.Agents = []fakehost.Agent{{Name: "general", Mode: "subagent", Script: func(context.Context, *fakehost.Turn) (string, error) {
				return strings.Repeat("line\n", 4000), nil
			}}}
			input := map[string]any{"agent": "general", "description": "d", "prompt": "p"}
			if p.Generation == 1 {
				input = map[string]any{"subagent_type": "general", "description": "d", "prompt": "p"}
			}
			_, _, r, err := calls(t, opts, p.Subagent, input, nil)
			require.NoError(t, err)
			require.Regexp(t, `^<(task id|subagent sessionID)="ses_`, r.Text)
			require.NotContains(t, r.Text, "</")
		}
	})
}

func TestNativeTools(t *testing.T) {
	workspace := func(t *testing.T) string {
		dir := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "src"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "src", "a.go"), []byte("package a\nvar X = 1\nvar Y = 1\n"), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, ".env"), []byte("SECRET=1\n"), 0o644))
		return dir
	}
	for _, p := range []fakehost.Profile{fakehost.V1_18, fakehost.V2_0} {
		t.Run(p.Name, func(t *testing.T) {
			dir := workspace(t)
			use := func(tool string, input map[string]any) (string, error) {
				_, _, r, err := calls(t, &fakehost.Options{Profile: p, Directory: dir}, tool, input, nil)
				return r.Text, err
			}
			out, err := use("read", map[string]any{"filePath": "src/a.go", "offset": 1, "limit": 1})
			require.NoError(t, err)
			require.Equal(t, "var X = 1", out)
			out, err = use("read", map[string]any{"filePath": "."})
			require.NoError(t, err)
			require.Equal(t, ".env\nsrc/", out)
			_, err = use("edit", map[string]any{"filePath": "src/a.go", "oldString": "= 1", "newString": "= 2"})
			require.ErrorContains(t, err, "2 times")
			_, err = use("edit", map[string]any{"filePath": "src/a.go", "oldString": "X = 1", "newString": "X = 2"})
			require.NoError(t, err)
			_, err = use("write", map[string]any{"path": "new/b.txt", "content": "hello"})
			require.NoError(t, err)
			data, err := os.ReadFile(filepath.Join(dir, "new", "b.txt"))
			require.NoError(t, err)
			require.Equal(t, "hello", string(data))
			out, err = use("grep", map[string]any{"pattern": `X = \d`, "include": "*.go"})
			require.NoError(t, err)
			require.Equal(t, filepath.Join(dir, "src", "a.go")+":2: var X = 2", out)
			out, err = use("glob", map[string]any{"pattern": "**/*.go"})
			require.NoError(t, err)
			require.Equal(t, filepath.Join(dir, "src", "a.go"), out)
			if runtime.GOOS != "windows" {
				out, err = use(p.Shell, map[string]any{"command": "echo hi && exit 3"})
				require.NoError(t, err)
				require.Equal(t, "hi\n", out)
			}
			_, err = use("read", map[string]any{"filePath": "missing"})
			require.Error(t, err)
			_, err = use("read", map[string]any{"filePath": "a", "unknown": 1})
			require.ErrorContains(t, err, "invalid arguments")
		})
	}

	t.Run("a rule on edit binds write and edit", func(t *testing.T) {
		dir := workspace(t)
		opts := &fakehost.Options{Directory: dir, Agents: []fakehost.Agent{{Name: "build", Permissions: []fakehost.Rule{rule("*", "*", team.Allow), rule("edit", "src/*", team.Deny)}}}}
		for _, tool := range []string{"write", "edit"} {
			_, _, _, err := calls(t, opts, tool, map[string]any{"path": "src/a.go", "content": "x", "oldString": "X", "newString": "Z"}, nil)
			require.ErrorIs(t, err, team.ErrDenied)
		}
		data, err := os.ReadFile(filepath.Join(dir, "src", "a.go"))
		require.NoError(t, err)
		require.Contains(t, string(data), "var X = 1")
	})

	// asks runs a tool and returns what the host asked for; the answer is no.
	asks := func(t *testing.T, p fakehost.Profile, dir, tool string, input map[string]any) fakehost.Ask {
		opts := &fakehost.Options{Profile: p, Directory: dir, Agents: []fakehost.Agent{{Name: "build", Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
			_, err := t.Call(ctx, tool, input)
			return "", err
		}}}}
		h := open(t, opts)
		sub, err := h.Event.Subscribe(t.Context())
		require.NoError(t, err)
		id := create(t, h)
		require.NoError(t, h.Session.Update(t.Context(), id, fakehost.SessionChange{Permissions: []fakehost.Rule{rule(p.Shell, "*", team.Ask)}}))
		prompt(t, h, id, "go")
		for {
			e, err := sub.Next(t.Context())
			require.NoError(t, err)
			if e.Type == "permission.asked" {
				break
			}
		}
		list, err := h.Permission.List(t.Context(), id)
		require.NoError(t, err)
		require.NoError(t, h.Permission.Reply(t.Context(), fakehost.Reply{Request: list[0].ID, Reply: "reject"}))
		wait(t, h, id)
		return list[0]
	}
	t.Run("leaving the workspace asks for external_directory", func(t *testing.T) {
		for _, p := range []fakehost.Profile{fakehost.V1_18, fakehost.V2_0} {
			a := asks(t, p, workspace(t), "read", map[string]any{"filePath": "/etc/hostname"})
			require.Equal(t, "external_directory", a.Action)
			require.Equal(t, []string{"/etc/*"}, a.Resources)
			require.Equal(t, []string{"/etc/*"}, a.Save)
			require.JSONEq(t, `{"filepath":"/etc/hostname","parentDir":"/etc"}`, string(a.Metadata))
			require.Equal(t, "external_directory", asks(t, p, workspace(t), "write", map[string]any{"path": "../x", "content": ""}).Action)
		}
	})
	t.Run("a link does not lead out of it", func(t *testing.T) {
		dir := workspace(t)
		require.NoError(t, os.Symlink("/etc", filepath.Join(dir, "link")))
		_, _, _, err := calls(t, &fakehost.Options{Directory: dir}, "read", map[string]any{"path": "link/hostname"}, nil)
		require.ErrorContains(t, err, "escapes")
	})
	t.Run("secrets are asked for", func(t *testing.T) {
		a := asks(t, fakehost.V2_0, workspace(t), "read", map[string]any{"path": ".env"})
		require.Equal(t, "read", a.Action)
		require.Equal(t, []string{".env"}, a.Resources)
	})
	t.Run("the shell asks for each command", func(t *testing.T) {
		a := asks(t, fakehost.V1_18, workspace(t), "bash", map[string]any{"command": `ls -la | grep "a;b" && git push 2>&1; echo $(date; true)`, "description": "d"})
		require.Equal(t, "bash", a.Action)
		require.Equal(t, []string{"ls -la", `grep "a;b"`, "git push 2>&1", "echo $(date; true)"}, a.Resources)
		require.Equal(t, []string{"ls *", "grep *", "git *", "echo *"}, a.Save)
	})
	t.Run("what is denied for everything is not shown", func(t *testing.T) {
		h := open(t, &fakehost.Options{Directory: workspace(t)})
		s, err := h.Session.Create(t.Context(), fakehost.NewSession{Permissions: []fakehost.Rule{rule("edit", "*", team.Deny), rule("read", "x", team.Deny)}})
		require.NoError(t, err)
		names, err := h.Tool.Visible(t.Context(), s.ID)
		require.NoError(t, err)
		require.Equal(t, []string{"subagent", "skill", "question", "read", "grep", "glob", "shell"}, names)

		opts := &fakehost.Options{Directory: workspace(t), Agents: []fakehost.Agent{{Name: "build", Permissions: []fakehost.Rule{rule("*", "*", team.Allow), rule("edit", "*", team.Deny)}}}}
		_, _, _, err = calls(t, opts, "write", map[string]any{"path": "x", "content": ""}, nil)
		require.ErrorContains(t, err, "unknown tool", "and who calls it all the same finds it is not there")
	})
}

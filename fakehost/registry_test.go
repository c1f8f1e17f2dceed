package fakehost_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

func TestAgentList(t *testing.T) {
	t.Run("v1.18 has the agents of the real host, in its order and shape", func(t *testing.T) {
		h := open(t, &fakehost.Options{Profile: fakehost.V1_18, Agents: []fakehost.Agent{{Name: "mine", Description: "d"}}})
		list, err := h.Agent.List(t.Context())
		require.NoError(t, err)
		var names []string
		for _, a := range list {
			names = append(names, a.Name)
		}
		require.Equal(t, []string{"build", "compaction", "explore", "general", "mine", "plan", "summary", "title"}, names)
		require.ElementsMatch(t, []string{"name", "mode", "description", "native", "permission", "options"}, keys(object(t, list[0])))
		require.ElementsMatch(t, []string{"name", "mode", "native", "hidden", "permission", "options"}, keys(object(t, list[1])))
		mine := object(t, list[4])
		require.Equal(t, []any{"mine", false, "d", "all"}, []any{mine["name"], mine["native"], mine["description"], mine["mode"]})
		for _, r := range object(t, list[2])["permission"].([]any) {
			require.ElementsMatch(t, []string{"permission", "pattern", "action"}, keys(r.(map[string]any)))
		}
	})
	bubble(t, "v2.0 has its own shape, and says when the list changes", func(t *testing.T) {
		h := open(t, nil)
		rec := record(t, h)
		require.NoError(t, h.Agent.Add(fakehost.Agent{Name: "mine", Model: &fakehost.Model{ID: "m", Provider: "p"}, Steps: 3}))
		a, err := h.Agent.Get(t.Context(), "mine")
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"id", "mode", "hidden", "permissions", "model", "steps", "request"}, keys(object(t, a)))
		require.Equal(t, []string{"agent.updated"}, only(rec.types(""), "agent."))
		require.JSONEq(t, `{}`, string(rec.events[len(rec.events)-1].Data))
	})
}

func TestVCS(t *testing.T) {
	bubble(t, "the branch is that of HEAD, and a change is published once", func(t *testing.T) {
		dir := tree(t, ".git/HEAD")
		head := func(s string) { require.NoError(t, os.WriteFile(filepath.Join(dir, ".git", "HEAD"), []byte(s), 0o600)) }
		h := open(t, &fakehost.Options{Profile: fakehost.V1_18, Directory: dir})
		rec := record(t, h)
		for _, c := range []struct{ head, want string }{{"ref: refs/heads/main\n", "main"}, {"ref: refs/heads/a/b\n", "a/b"},
			{"ref: refs/heads/a/b\n", "a/b"}, {"0123abcd\n", ""}} {
			head(c.head)
			got, err := h.VCS.Branch(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		}
		require.Len(t, only(rec.types(""), "vcs.branch.updated"), 3)
		require.JSONEq(t, `{"branch":"a/b"}`, string(rec.events[2].Data))
	})
	t.Run("a linked worktree has a branch, and a folder without git has none", func(t *testing.T) {
		git, dir := tree(t, "HEAD"), t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(git, "HEAD"), []byte("ref: refs/heads/linked\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, ".git"), []byte("gitdir: "+git+"\n"), 0o600))
		got, err := open(t, &fakehost.Options{Directory: dir}).VCS.Branch(t.Context())
		require.NoError(t, err)
		require.Equal(t, "linked", got)
		got, err = open(t, &fakehost.Options{Directory: t.TempDir()}).VCS.Branch(t.Context())
		require.NoError(t, err)
		require.Empty(t, got)
		require.Nil(t, open(t, nil).VCS)
	})
	t.Run("what the tools of a session changed is its diff", func(t *testing.T) {
		each(t, func(t *testing.T, p fakehost.Profile) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "old.txt"), []byte("a\nb\nc\nd\n"), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "same.txt"), []byte("x\n"), 0o600))
			opts := script(p, func(ctx context.Context, t *fakehost.Turn) (string, error) {
				for name, content := range map[string]string{"old.txt": "a\nB\nc\nd\ne\n", "new/n.txt": "1\n2\n", "same.txt": "y\n"} {
					if _, err := t.Call(ctx, "write", map[string]any{"path": name, "content": content}); err != nil {
						return "", err
					}
				}
				_, err := t.Call(ctx, "write", map[string]any{"path": "same.txt", "content": "x\n"})
				return "", err
			})
			opts.Directory = dir
			h := open(t, opts)
			session, other := create(t, h), create(t, h)
			prompt(t, h, session, "go")
			wait(t, h, session)
			want := []fakehost.FileDiff{{File: "new/n.txt", Additions: 2, Status: "added"}, {File: "old.txt", Additions: 2, Deletions: 1, Status: "modified"}}
			diff, err := h.Session.Diff(t.Context(), session)
			require.NoError(t, err)
			require.Equal(t, want, diff, "a file that is as it was is none")
			status, err := h.VCS.Status(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, status)
			diff, err = h.Session.Diff(t.Context(), other)
			require.NoError(t, err)
			require.Empty(t, diff, "another session has changed nothing")
			require.NoError(t, os.Remove(filepath.Join(dir, "old.txt")))
			diff, err = h.Session.Diff(t.Context(), session)
			require.NoError(t, err)
			require.Equal(t, fakehost.FileDiff{File: "old.txt", Deletions: 4, Status: "deleted"}, diff[1])
			_, err = h.Session.Diff(t.Context(), "ses_none")
			require.ErrorIs(t, err, team.ErrNotFound)
		})
	})
	t.Run("a large change is counted without comparing all of it", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte(strings.Repeat("a\nb\n", 20_000)), 0o600))
		opts := script(fakehost.V2_0, func(ctx context.Context, t *fakehost.Turn) (string, error) {
			_, err := t.Call(ctx, "write", map[string]any{"path": "f", "content": strings.Repeat("b\nc\n", 20_000)})
			return "", err
		})
		opts.Directory = dir
		h := open(t, opts)
		session := create(t, h)
		prompt(t, h, session, "go")
		wait(t, h, session)
		diff, err := h.Session.Diff(t.Context(), session)
		require.NoError(t, err)
		require.Equal(t, []fakehost.FileDiff{{File: "f", Additions: 40_000, Deletions: 40_000, Status: "modified"}}, diff)
	})
}

func TestWorktree(t *testing.T) {
	bubble(t, "a strategy makes and removes it, and the host says so", func(t *testing.T) {
		h := open(t, nil)
		rec := record(t, h)
		var did []string
		require.NoError(t, h.Worktree.Add(fakehost.WorktreeStrategy{ID: "copy",
			Create: func(_ context.Context, source, dir string) error { did = append(did, source+" to "+dir); return nil },
			Remove: func(_ context.Context, dir string, force bool) error {
				if !force {
					return errors.New("has changes")
				}
				did = append(did, "remove "+dir)
				return nil
			}}))
		w, err := h.Worktree.Create(t.Context(), "copy", "/tmp/w/../wt")
		require.NoError(t, err)
		require.JSONEq(t, `{"directory":"/tmp/wt","strategy":"copy"}`, string(must(json.Marshal(w))))
		_, err = h.Worktree.Create(t.Context(), "copy", "/tmp/wt")
		require.ErrorIs(t, err, team.ErrConflict)
		_, err = h.Worktree.Create(t.Context(), "git", "/tmp/x")
		require.ErrorIs(t, err, team.ErrNotFound)
		_, err = h.Worktree.Create(t.Context(), "copy", "x")
		require.ErrorIs(t, err, team.ErrInvalid)
		require.ErrorContains(t, h.Worktree.Remove(t.Context(), "/tmp/wt", false), "has changes")
		list, err := h.Worktree.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, []fakehost.Worktree{w}, list)
		require.NoError(t, h.Worktree.Remove(t.Context(), "/tmp/wt", true))
		require.ErrorIs(t, h.Worktree.Remove(t.Context(), "/tmp/wt", true), team.ErrNotFound)
		require.Equal(t, []string{h.Directory() + " to /tmp/wt", "remove /tmp/wt"}, did)
		require.Len(t, only(rec.types(""), "worktree.updated"), 2)
		require.JSONEq(t, `{"projectID":"global"}`, string(rec.events[len(rec.events)-1].Data))
		require.ErrorIs(t, h.Worktree.Add(fakehost.WorktreeStrategy{ID: " "}), team.ErrInvalid)
	})
}

func TestRegistries(t *testing.T) {
	bubble(t, "references", func(t *testing.T) {
		h := open(t, nil)
		rec := record(t, h)
		_, err := h.Reference.Add(fakehost.Reference{Name: "b", Path: "/b", Description: "d", Hidden: true})
		require.NoError(t, err)
		stop, err := h.Reference.Add(fakehost.Reference{Name: "a", Path: "/a"})
		require.NoError(t, err)
		list, err := h.Reference.List(t.Context())
		require.NoError(t, err)
		require.JSONEq(t, `[{"name":"a","path":"/a","source":{"type":"local","path":"/a"}},
			{"name":"b","path":"/b","description":"d","hidden":true,"source":{"type":"local","path":"/b","description":"d","hidden":true}}]`, string(must(json.Marshal(list))))
		stop()
		list, err = h.Reference.List(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		_, err = h.Reference.Add(fakehost.Reference{Name: "a", Path: "relative"})
		require.ErrorIs(t, err, team.ErrInvalid)
		require.Len(t, only(rec.types(""), "reference.updated"), 3)
	})
	bubble(t, "integrations keep a key and never list it", func(t *testing.T) {
		h := open(t, nil)
		rec := record(t, h)
		require.NoError(t, h.Integration.Add(fakehost.Integration{ID: "git", Name: "Git", Methods: []fakehost.IntegrationMethod{{Type: "key"}}}))
		require.NoError(t, h.Integration.Add(fakehost.Integration{ID: "env", Name: "Env", Methods: []fakehost.IntegrationMethod{{Type: "env", Names: []string{"A"}}}}))
		c, err := h.Integration.ConnectKey(t.Context(), "git", "s3cret", "mine")
		require.NoError(t, err)
		_, err = h.Integration.ConnectKey(t.Context(), "none", "k", "")
		require.ErrorIs(t, err, team.ErrNotFound)
		_, err = h.Integration.ConnectKey(t.Context(), "env", "k", "")
		require.ErrorIs(t, err, team.ErrInvalid)
		_, err = h.Integration.ConnectKey(t.Context(), "git", "", "")
		require.ErrorIs(t, err, team.ErrInvalid)
		list, err := h.Integration.List(t.Context())
		require.NoError(t, err)
		text := string(must(json.Marshal(list)))
		require.JSONEq(t, `[{"id":"env","name":"Env","methods":[{"type":"env","names":["A"]}],"connections":[]},
			{"id":"git","name":"Git","methods":[{"type":"key"}],"connections":[{"type":"credential","id":"`+c.ID+`","label":"mine"}]}]`, text)
		require.NotContains(t, text, "s3cret")
		key, err := h.Integration.Resolve(t.Context(), c.ID)
		require.NoError(t, err)
		require.Equal(t, "s3cret", key)
		_, err = h.Integration.Resolve(t.Context(), "none")
		require.ErrorIs(t, err, team.ErrNotFound)
		require.ErrorIs(t, h.Integration.Add(fakehost.Integration{ID: "a", Name: "a", Methods: []fakehost.IntegrationMethod{{Type: "oauth"}}}), team.ErrInvalid)
		require.Len(t, only(rec.types(""), "integration.updated"), 3)
	})
	t.Run("a terminal shows what was put into it", func(t *testing.T) {
		h := open(t, nil)
		require.NoError(t, h.Terminal.Show(fakehost.Terminal{ID: "pty_1", Text: "$ ls", X: 4}))
		got, err := h.Terminal.Read(t.Context(), "pty_1")
		require.NoError(t, err)
		require.JSONEq(t, `{"info":{"id":"pty_1"},"text":"$ ls","cursor":{"x":4,"y":0}}`, string(must(json.Marshal(got))))
		_, err = h.Terminal.Read(t.Context(), "pty_2")
		require.ErrorIs(t, err, team.ErrNotFound)
		require.ErrorIs(t, h.Terminal.Show(fakehost.Terminal{}), team.ErrInvalid)
	})
	bubble(t, "rpc calls what is registered and publishes rpc events", func(t *testing.T) {
		h := open(t, nil)
		rec := record(t, h)
		echo := func(_ context.Context, in json.RawMessage) (json.RawMessage, error) { return in, nil }
		stop, err := h.RPC.Register("team.echo", echo)
		require.NoError(t, err)
		_, err = h.RPC.Register("team.echo", echo)
		require.ErrorIs(t, err, team.ErrConflict)
		out, err := h.RPC.Call(t.Context(), "team.echo", json.RawMessage(`{"a":1}`))
		require.NoError(t, err)
		require.JSONEq(t, `{"a":1}`, string(out))
		stop()
		stop()
		_, err = h.RPC.Call(t.Context(), "team.echo", nil)
		require.ErrorIs(t, err, team.ErrNotFound)
		require.NoError(t, h.RPC.Emit(t.Context(), "team.done", json.RawMessage(`{"n":2}`)))
		for _, bad := range []string{"", "a b", ".a", "a..b"} {
			_, err = h.RPC.Register(bad, echo)
			require.ErrorIs(t, err, team.ErrInvalid)
			require.ErrorIs(t, h.RPC.Emit(t.Context(), bad, nil), team.ErrInvalid)
		}
		require.Equal(t, []string{"rpc.team.done"}, only(rec.types(""), "rpc."))
		require.JSONEq(t, `{"n":2}`, string(rec.events[len(rec.events)-1].Data))
	})
	t.Run("app and location", func(t *testing.T) {
		h := open(t, nil)
		require.JSONEq(t, `{"name":"opencode","version":"2.0.26","channel":"latest"}`, string(must(json.Marshal(h.App()))))
		require.JSONEq(t, `{"directory":"/workspace","project":{"id":"global","directory":"/workspace"}}`, string(must(json.Marshal(h.Location()))))
	})
	t.Run("generation 1 has none of them", func(t *testing.T) {
		h := open(t, &fakehost.Options{Profile: fakehost.V1_18})
		require.Nil(t, h.Worktree)
		require.Nil(t, h.Reference)
		require.Nil(t, h.Integration)
		require.Nil(t, h.Terminal)
		require.Nil(t, h.RPC)
	})
}

func TestOfferedSubagents(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		h := open(t, &fakehost.Options{Profile: p, Agents: []fakehost.Agent{{Name: "mine"}, {Name: "secret", Hidden: true}, {Name: "lead", Mode: "primary"}}})
		names := func(rules ...fakehost.Rule) (out []string) {
			s, err := h.Session.Create(t.Context(), fakehost.NewSession{Agent: "build", Permissions: rules})
			require.NoError(t, err)
			list, err := h.Agent.Offered(t.Context(), s.ID)
			require.NoError(t, err)
			for _, a := range list {
				out = append(out, a.Name)
			}
			return out
		}
		require.Equal(t, []string{"explore", "general", "mine"}, names(), "neither primary nor hidden")
		require.Equal(t, []string{"explore", "mine"}, names(rule(p.Subagent, "general", team.Deny)), "nor denied")
		_, err := h.Agent.Offered(t.Context(), "ses_none")
		require.ErrorIs(t, err, team.ErrNotFound)
	})
}

func TestStopTakesOffOnlyItsOwn(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		h := open(t, &fakehost.Options{Profile: p})
		run := func(context.Context, *fakehost.ToolCall) (fakehost.ToolOutput, error) {
			return fakehost.ToolOutput{}, nil
		}
		registries := map[string]struct {
			add  func(text string) (func(), error)
			text func() []string
		}{
			"tool": {
				func(text string) (func(), error) {
					return h.Tool.Add(fakehost.Tool{Name: "mine", Description: text, Run: run})
				},
				func() (out []string) {
					list, err := h.Tool.List(t.Context())
					require.NoError(t, err)
					for _, v := range list {
						if v.Name == "mine" {
							out = append(out, v.Description)
						}
					}
					return out
				},
			},
			"command": {
				func(text string) (func(), error) {
					return h.Command.Add(fakehost.Command{Name: "mine", Template: text})
				},
				func() (out []string) {
					list, err := h.Command.List(t.Context())
					require.NoError(t, err)
					for _, v := range list {
						out = append(out, v.Template)
					}
					return out
				},
			},
			"skill": {
				func(text string) (func(), error) { return h.Skill.Add(fakehost.Skill{Name: "mine", Text: text}) },
				func() (out []string) {
					list, err := h.Skill.List(t.Context(), "")
					require.NoError(t, err)
					for _, v := range list {
						out = append(out, v.Text)
					}
					return out
				},
			},
		}
		for name, r := range registries {
			first, err := r.add("first")
			require.NoError(t, err)
			second, err := r.add("second")
			require.NoError(t, err)
			first()
			require.Equal(t, []string{"second"}, r.text(), name)
			second()
			second()
			require.Empty(t, r.text(), name)
		}
	})
}

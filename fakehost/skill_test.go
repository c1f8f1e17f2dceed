package fakehost_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

// skillKey is the parameter of the tool.
func skillKey(p fakehost.Profile, name string) map[string]any {
	if p.Generation == 1 {
		return map[string]any{"name": name}
	}
	return map[string]any{"id": name}
}

// skillFolder makes a skill with n files beside SKILL.md.
func skillFolder(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte("---\nname: demo\ndescription: d\n---\nDo it well.\n"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "scripts"), 0o700))
	for i := range n {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "scripts", fmt.Sprintf("%02d.sh", i)), nil, 0o600))
	}
	return dir
}

func TestSkill(t *testing.T) {
	t.Run("the content has the body and at most ten files", func(t *testing.T) {
		each(t, func(t *testing.T, p fakehost.Profile) {
			dir := skillFolder(t, 12)
			opts := &fakehost.Options{Profile: p, Skills: []fakehost.Skill{{Name: "demo", Dir: dir}}}
			_, _, r, err := calls(t, opts, "skill", skillKey(p, "demo"), nil)
			require.NoError(t, err)
			lines := strings.Split(r.Text, "\n")
			require.Equal(t, []string{`<skill_content name="demo">`, "# Skill: demo", "", "Do it well."}, lines[:4], "without the front matter")
			require.Equal(t, []string{"</skill_files>", "</skill_content>"}, lines[len(lines)-2:])
			var files []string
			for _, l := range lines {
				if file, ok := strings.CutPrefix(l, "<file>"); ok {
					files = append(files, strings.TrimSuffix(file, "</file>"))
				}
			}
			require.Len(t, files, 10, "at most ten are named")
			require.Equal(t, filepath.Join(dir, "scripts", "00.sh"), files[0])
			require.NotContains(t, r.Text, "SKILL.md")
			require.Contains(t, r.Text, dir+"\n")
		})
	})
	t.Run("the parameter is name in generation 1 and id in generation 2", func(t *testing.T) {
		each(t, func(t *testing.T, p fakehost.Profile) {
			other := "name"
			if p.Generation == 1 {
				other = "id"
			}
			_, _, _, err := calls(t, &fakehost.Options{Profile: p, Skills: []fakehost.Skill{{Name: "demo", Text: "x"}}}, "skill", map[string]any{other: "demo"}, nil)
			require.ErrorContains(t, err, "invalid arguments", "generation 1 says name, generation 2 id")
		})
	})
	t.Run("a denied skill is neither listed nor loaded", func(t *testing.T) {
		each(t, func(t *testing.T, p fakehost.Profile) {
			opts := &fakehost.Options{Profile: p, Skills: []fakehost.Skill{{Name: "secret", Text: "s"}, {Name: "demo", Text: "d"}},
				Agents: []fakehost.Agent{{Name: "build", Permissions: []fakehost.Rule{rule("*", "*", team.Allow), rule("skill", "sec*", team.Deny)}}}}
			h, session, _, err := calls(t, opts, "skill", skillKey(p, "secret"), nil)
			var denied *fakehost.PermissionError
			require.ErrorAs(t, err, &denied, "a denied skill cannot be loaded")
			list, err := h.Skill.List(t.Context(), session)
			require.NoError(t, err)
			require.Len(t, list, 1, "and is not listed")
			require.Equal(t, "demo", list[0].Name)
			all, err := h.Skill.List(t.Context(), "")
			require.NoError(t, err)
			require.Len(t, all, 2)
		})
	})
	t.Run("an unknown skill names those that are there, and without ripgrep it fails", func(t *testing.T) {
		each(t, func(t *testing.T, p fakehost.Profile) {
			opts := &fakehost.Options{Profile: p, Skills: []fakehost.Skill{{Name: "demo", Text: "d"}}}
			_, _, _, err := calls(t, opts, "skill", skillKey(p, "none"), nil)
			require.ErrorContains(t, err, "use one of: demo")
			opts.Agents, opts.Faults = nil, []fakehost.Fault{fakehost.FaultRipgrepMissing}
			_, _, _, err = calls(t, opts, "skill", skillKey(p, "demo"), nil)
			require.EqualError(t, err, "ripgrep execution failed")
		})
	})
	bubble(t, "it asks for permission skill with the name, also for always", func(t *testing.T) {
		h, session, _ := asking(t, fakehost.V1_18, "build", "skill", map[string]any{"name": "demo"})
		wait(t, h, session)
		_, err := h.Skill.Add(fakehost.Skill{Name: "demo", Text: "d"})
		require.NoError(t, err)
		require.NoError(t, h.Session.Update(t.Context(), session, fakehost.SessionChange{Permissions: []fakehost.Rule{rule("skill", "*", team.Ask)}}))
		prompt(t, h, session, "again")
		synctest.Wait()
		asks, err := h.Permission.List(t.Context(), session)
		require.NoError(t, err)
		require.Len(t, asks, 1)
		require.Equal(t, [2][]string{{"demo"}, {"demo"}}, [2][]string{asks[0].Resources, asks[0].Save})
		require.Equal(t, "skill", asks[0].Action)
		require.NoError(t, h.Permission.Reply(t.Context(), fakehost.Reply{Request: asks[0].ID, Reply: "once"}))
		wait(t, h, session)
		require.Contains(t, last(t, h, session), "<skill_content")
	})
	bubble(t, "a user activates one: an event and a message of type skill, and nobody is woken", func(t *testing.T) {
		h := open(t, &fakehost.Options{Skills: []fakehost.Skill{{ID: "demo-1", Name: "demo", Text: "d"}}})
		session, rec := create(t, h), record(t, h)
		require.NoError(t, h.Skill.Activate(t.Context(), session, "demo-1"))
		require.ErrorIs(t, h.Skill.Activate(t.Context(), session, "demo"), team.ErrNotFound)
		require.ErrorIs(t, h.Skill.Activate(t.Context(), "ses_none", "demo-1"), team.ErrNotFound)
		list, err := h.Session.Messages(t.Context(), session, fakehost.MessagePage{})
		require.NoError(t, err)
		require.Equal(t, []string{"skill"}, messageTypes(list))
		got := object(t, list[0])
		require.Equal(t, []any{"demo-1", "demo"}, []any{got["skill"], got["name"]})
		require.Contains(t, got["text"], "<skill_content")
		require.Equal(t, []string{"session.skill.activated"}, rec.types(session))
		data := object(t, rec.events[len(rec.events)-1].Data)
		require.ElementsMatch(t, []string{"sessionID", "id", "name", "text"}, keys(data))
		h1 := open(t, &fakehost.Options{Profile: fakehost.V1_18})
		require.ErrorContains(t, h1.Skill.Activate(t.Context(), create(t, h1), "x"), "has no skill.activate")
	})
	bubble(t, "the registry says when it changes", func(t *testing.T) {
		h := open(t, nil)
		rec := record(t, h)
		stop, err := h.Skill.Add(fakehost.Skill{Name: "demo", Text: "d"})
		require.NoError(t, err)
		stop()
		list, err := h.Skill.List(t.Context(), "")
		require.NoError(t, err)
		require.Empty(t, list)
		require.Equal(t, []string{"skill.updated", "skill.updated"}, only(rec.types(""), "skill."))
		_, err = h.Skill.Add(fakehost.Skill{Name: "demo"})
		require.ErrorIs(t, err, team.ErrInvalid)
	})
	t.Run("a link out of the folder is not followed", func(t *testing.T) {
		dir, outside := skillFolder(t, 0), t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), nil, 0o600))
		require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
		require.NoError(t, os.Remove(filepath.Join(dir, "SKILL.md")))
		require.NoError(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "SKILL.md")))
		h := open(t, &fakehost.Options{Skills: []fakehost.Skill{{Name: "demo", Dir: dir}, {Name: "text", Dir: dir, Text: "t"}}})
		session := create(t, h)
		require.Error(t, h.Skill.Activate(t.Context(), session, "demo"), "its SKILL.md is outside")
		require.NoError(t, h.Skill.Activate(t.Context(), session, "text"))
		list, err := h.Session.Messages(t.Context(), session, fakehost.MessagePage{})
		require.NoError(t, err)
		require.NotContains(t, string(list[0].Data), "secret")
	})
}

func TestCommand(t *testing.T) {
	// commanding has a command that dispatches to general, which the agent itself may not.
	commanding := func(t *testing.T, effect team.Effect) (*fakehost.Host, string, *recorder, *string) {
		var heard string
		opts := &fakehost.Options{Profile: fakehost.V1_18,
			Commands: []fakehost.Command{{Name: "count", Description: "count words", Template: "count $ARGUMENTS", Agent: "general", Subtask: true}},
			Agents: []fakehost.Agent{
				{Name: "build", Mode: "primary", Permissions: []fakehost.Rule{rule("*", "*", team.Allow), rule("task", "*", effect)},
					Script: func(ctx context.Context, t *fakehost.Turn) (string, error) { return "done", nil }},
				{Name: "general", Mode: "subagent", Script: func(_ context.Context, t *fakehost.Turn) (string, error) {
					heard = t.Text()
					return "two", nil
				}}}}
		h := open(t, opts)
		session, rec := create(t, h), record(t, h)
		_, err := h.Session.Command(t.Context(), session, "count", "a b")
		require.NoError(t, err)
		synctest.Wait()
		return h, session, rec, &heard
	}
	for _, effect := range []team.Effect{team.Ask, team.Deny} {
		bubble(t, "the user's own command skips the subagent permission: "+string(effect), func(t *testing.T) {
			h, session, rec, heard := commanding(t, effect)
			asks, err := h.Permission.List(t.Context(), "")
			require.NoError(t, err)
			require.Empty(t, asks)
			wait(t, h, session)
			require.Equal(t, "count a b", *heard)
			list, err := h.Session.Messages(t.Context(), session, fakehost.MessagePage{})
			require.NoError(t, err)
			require.Equal(t, []string{"user", "assistant", "user", "assistant"}, messageTypes(list))
			part := object(t, list[0].Parts[0])
			require.Equal(t, []any{"subtask", "general", "count words", "count", "count a b"},
				[]any{part["type"], part["agent"], part["description"], part["command"], part["prompt"]})
			require.Contains(t, fmt.Sprint(object(t, list[1])), `<task id=`)
			require.Contains(t, string(list[2].Parts[0]), `"synthetic":true`)
			require.Equal(t, "done", list[3].Text())
			require.Equal(t, []string{"command.executed"}, only(rec.types(session), "command."))
			for _, e := range rec.events {
				if e.Type == "command.executed" {
					require.JSONEq(t, `{"name":"count","sessionID":"`+session+`","arguments":"a b","messageID":"`+list[0].ID+`"}`, string(e.Data))
				}
			}
		})
	}
	t.Run("a subtask part without its fields is refused", func(t *testing.T) {
		h := open(t, &fakehost.Options{Profile: fakehost.V1_18})
		session := create(t, h)
		for _, part := range []string{`{"type":"subtask"}`, `{"type":"subtask","agent":7,"description":"d","prompt":"p"}`} {
			_, err := h.Session.Prompt(t.Context(), session, fakehost.Prompt{Parts: items(part)})
			require.ErrorIs(t, err, team.ErrInvalid)
		}
		require.Empty(t, texts(t, h, session))
	})
	bubble(t, "the agent's own dispatch does not skip it", func(t *testing.T) {
		opts := script(fakehost.V1_18, func(ctx context.Context, t *fakehost.Turn) (string, error) {
			_, err := t.Dispatch(ctx, "general", "d", "p")
			return "", err
		})
		opts.Agents[0].Permissions = []fakehost.Rule{rule("*", "*", team.Allow), rule("task", "*", team.Ask)}
		h := open(t, opts)
		session := create(t, h)
		prompt(t, h, session, "go")
		synctest.Wait()
		asks, err := h.Permission.List(t.Context(), session)
		require.NoError(t, err)
		require.Len(t, asks, 1)
	})
	bubble(t, "the hook before a command changes its parts, or keeps it back", func(t *testing.T) {
		opts := script(fakehost.V1_18, func(_ context.Context, t *fakehost.Turn) (string, error) { return "heard " + t.Text(), nil })
		opts.Commands = []fakehost.Command{{Name: "c", Template: "run $ARGUMENTS"}}
		h := open(t, opts)
		session := create(t, h)
		stop := h.Command.Before(func(_ context.Context, b *fakehost.BeforeCommand) error {
			require.Equal(t, []string{"c", session, "x"}, []string{b.Command, b.Session, b.Arguments})
			b.Parts = append(b.Parts, []byte(`{"type":"text","text":"and more"}`))
			return nil
		})
		_, err := h.Session.Command(t.Context(), session, "c", "x")
		require.NoError(t, err)
		wait(t, h, session)
		require.Equal(t, "heard run x\n\nand more", last(t, h, session))
		stop()
		h.Command.Before(func(context.Context, *fakehost.BeforeCommand) error { return context.Canceled })
		_, err = h.Session.Command(t.Context(), session, "c", "x")
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, texts(t, h, session), 2)
	})
	bubble(t, "the registry lists, and says when it changes", func(t *testing.T) {
		h := open(t, nil)
		rec := record(t, h)
		stop, err := h.Command.Add(fakehost.Command{Name: "c", Template: "t"})
		require.NoError(t, err)
		list, err := h.Command.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, []fakehost.Command{{Name: "c", Template: "t"}}, list)
		stop()
		_, err = h.Session.Command(t.Context(), create(t, h), "c", "")
		require.ErrorIs(t, err, team.ErrNotFound)
		require.Len(t, only(rec.types(""), "command.updated"), 2)
		_, err = h.Command.Add(fakehost.Command{Name: "c", Template: "t", Subtask: true})
		require.ErrorContains(t, err, "has no command that is a subtask")
		_, err = h.Command.Add(fakehost.Command{Name: "c"})
		require.ErrorIs(t, err, team.ErrInvalid)
	})
}

package fakehost_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

func TestWildcards(t *testing.T) {
	h := open(t, nil)
	for _, c := range []struct {
		pattern, resource string
		match             bool
	}{
		{"*", "a/b\nc", true}, {"a*c", "a/b/c", true}, {"a?c", "abc", true}, {"a?c", "ac", false}, {"a?c", "aéc", true},
		{"git push *", "git push", true}, {"git push *", "git push x", true}, {"git push *", "git pushx", false},
		{"echo [x]", "echo x", false}, {"echo [x]", "echo [x]", true}, {"a", "ab", false}, {"**", "", true}, {`a\*`, "a/b", true},
		{"Echo", "echo", false}, {"src/**", "src/a/b", true},
	} {
		require.NoError(t, h.Agent.Add(fakehost.Agent{Name: "build", Permissions: []fakehost.Rule{rule("*", "*", team.Deny), rule("x", c.pattern, team.Allow)}}))
		effect, err := h.Permission.Evaluate(t.Context(), create(t, h), "x", c.resource)
		require.NoError(t, err)
		require.Equal(t, c.match, effect == team.Allow, "%q on %q", c.pattern, c.resource)
	}
	long := strings.Repeat("a", 4_000)
	require.NoError(t, h.Agent.Add(fakehost.Agent{Name: "build", Permissions: []fakehost.Rule{rule("x", strings.Repeat("a*", 200)+"b", team.Allow)}}))
	_, err := h.Permission.Evaluate(t.Context(), create(t, h), "x", long)
	require.NoError(t, err)
}

// asker is a host whose agent asks for each word of its prompt, all at once, and says what came
// of it.
func asker(p fakehost.Profile) *fakehost.Options {
	return &fakehost.Options{Profile: p, Tools: []fakehost.Tool{{Name: "ask", Run: func(ctx context.Context, c *fakehost.ToolCall) (fakehost.ToolOutput, error) {
		var in struct{ What string }
		if err := c.Decode(&in); err != nil {
			return fakehost.ToolOutput{}, err
		}
		return fakehost.ToolOutput{Text: in.What + " allowed"}, c.Ask(ctx, "thing", []string{in.What}, []string{in.What[:1] + "*"}, map[string]any{"k": 1})
	}}}, Agents: []fakehost.Agent{{Name: "build", Permissions: []fakehost.Rule{rule("thing", "no*", team.Deny)},
		Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
			var uses []fakehost.ToolUse
			for w := range strings.FieldsSeq(t.Text()) {
				uses = append(uses, fakehost.ToolUse{Tool: "ask", Input: map[string]any{"what": w}})
			}
			results, err := t.CallAll(ctx, uses...)
			var out []string
			for _, r := range results {
				out = append(out, r.Text)
			}
			return strings.Join(out, "; "), err
		}}}}
}

func pending(t *testing.T, h *fakehost.Host, session string) []fakehost.Ask {
	t.Helper()
	synctest.Wait()
	list, err := h.Permission.List(t.Context(), session)
	require.NoError(t, err)
	return list
}

func last(t *testing.T, h *fakehost.Host, session string) string {
	t.Helper()
	out := ""
	for _, m := range texts(t, h, session) {
		if text, ok := strings.CutPrefix(m, "assistant: "); ok {
			out = text
		}
	}
	return out
}

func TestPermissionReply(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		h := open(t, asker(p))
		rec := record(t, h)
		id := create(t, h)
		prompt(t, h, id, "a1")
		list := pending(t, h, id)
		require.Len(t, list, 1)
		got := object(t, list[0])
		want := []string{"id", "sessionID", "action", "resources", "save", "metadata", "source"}
		if p.Generation == 1 {
			want = []string{"id", "sessionID", "permission", "patterns", "metadata", "always", "tool"}
		}
		require.ElementsMatch(t, want, keys(got))
		require.Regexp(t, `^per_`, list[0].ID)
		require.ErrorIs(t, h.Permission.Reply(t.Context(), fakehost.Reply{Request: list[0].ID, Reply: "maybe"}), team.ErrInvalid)
		require.NoError(t, h.Permission.Reply(t.Context(), fakehost.Reply{Request: list[0].ID, Reply: "once"}))
		require.ErrorIs(t, h.Permission.Reply(t.Context(), fakehost.Reply{Request: list[0].ID, Reply: "once"}), team.ErrNotFound)
		wait(t, h, id)
		require.Equal(t, "a1 allowed", last(t, h, id))
		prompt(t, h, id, "a1")
		require.Len(t, pending(t, h, id), 1, "once is not for the next time")
		require.Equal(t, []string{"permission.asked", "permission.replied", "permission.asked"}, only(rec.types(id), "permission."))
	})

	each(t, func(t *testing.T, p fakehost.Profile) {
		h := open(t, asker(p))
		id, other := create(t, h), create(t, h)
		prompt(t, h, id, "a1 a2 b1")
		prompt(t, h, other, "a3")
		list := pending(t, h, "")
		require.Len(t, list, 4)
		for _, a := range list {
			if a.Resources[0] == "a1" {
				require.NoError(t, h.Permission.Reply(t.Context(), fakehost.Reply{Request: a.ID, Reply: "always"}))
			}
		}
		require.Len(t, pending(t, h, id), 1, "those that are allowed now are settled with it")
		if p.Generation == 1 {
			require.Len(t, pending(t, h, other), 1, "of the same session")
		} else {
			wait(t, h, other)
			require.Equal(t, "a3 allowed", last(t, h, other), "of every session")
		}
		effect, err := h.Permission.Evaluate(t.Context(), id, "thing", "a9")
		require.NoError(t, err)
		require.Equal(t, team.Allow, effect)
	})

	each(t, func(t *testing.T, p fakehost.Profile) {
		h := open(t, asker(p))
		rec := record(t, h)
		id, other := create(t, h), create(t, h)
		prompt(t, h, id, "a1 b1")
		prompt(t, h, other, "c1")
		require.NoError(t, h.Permission.Reply(t.Context(), fakehost.Reply{Request: pending(t, h, id)[0].ID, Reply: "reject"}))
		wait(t, h, id)
		require.Empty(t, pending(t, h, id), "all of the session are rejected")
		require.Len(t, pending(t, h, other), 1)
		require.Empty(t, last(t, h, id), "the turn is over")
		synctest.Wait()
		types := rec.types(id)
		require.Len(t, only(types, "permission.replied"), 2)
		if p.Generation == 2 {
			require.Equal(t, "session.execution.interrupted", types[len(types)-1])
			s, err := h.Session.Get(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, "interrupted", s.Outcome)
			return
		}
		require.Equal(t, []string{"message.updated", "message.updated", "session.status", "session.idle", "session.updated", "session.diff", "message.updated"},
			types[len(types)-7:])
		require.NotContains(t, types, "session.error")
	})

	each(t, func(t *testing.T, p fakehost.Profile) {
		h := open(t, asker(p))
		id := create(t, h)
		prompt(t, h, id, "a1 b1")
		require.NoError(t, h.Permission.Reply(t.Context(), fakehost.Reply{Request: pending(t, h, id)[0].ID, Reply: "reject", Message: "not now"}))
		wait(t, h, id)
		require.Equal(t, 2, strings.Count(last(t, h, id), "not now"), "feedback goes to all, and the agent goes on")
	})

	bubble(t, "shutdown after a decline keeps the claim and writes no idle", func(t *testing.T) {
		h := open(t, asker(fakehost.V2_0))
		h.Inject(fakehost.FaultShutdownAfterDecline)
		id := create(t, h)
		prompt(t, h, id, "a1")
		require.NoError(t, h.Permission.Reply(t.Context(), fakehost.Reply{Request: pending(t, h, id)[0].ID, Reply: "reject"}))
		wait(t, h, id)
		s, err := h.Session.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "shutdown", s.Claim)
		require.Empty(t, s.Outcome)
		require.NotContains(t, texts(t, h, id), "idle")
	})

	bubble(t, "completed after a denial", func(t *testing.T) {
		h := open(t, asker(fakehost.V2_0))
		h.Inject(fakehost.FaultCompletedAfterDenial)
		id := create(t, h)
		prompt(t, h, id, "no1")
		wait(t, h, id)
		s, err := h.Session.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "succeeded", s.Outcome)
		require.Empty(t, last(t, h, id))
	})

	bubble(t, "a restart forgets what was asked, but not what is always allowed", func(t *testing.T) {
		path := t.TempDir() + "/host.db"
		h := openAt(t, path, asker(fakehost.V2_0))
		id := create(t, h)
		prompt(t, h, id, "a1")
		require.NoError(t, h.Permission.Reply(t.Context(), fakehost.Reply{Request: pending(t, h, id)[0].ID, Reply: "always"}))
		wait(t, h, id)
		prompt(t, h, id, "b1")
		require.Len(t, pending(t, h, id), 1)
		window := openAt(t, path, asker(fakehost.V2_0))
		require.Empty(t, pending(t, window, ""), "the other window does not see it")
		require.NoError(t, h.Close())
		h = openAt(t, path, asker(fakehost.V2_0))
		require.Empty(t, pending(t, h, ""))
		saved, err := h.Permission.Saved(t.Context())
		require.NoError(t, err)
		require.Equal(t, []fakehost.Rule{rule("thing", "a*", team.Allow)}, saved)
	})
}

func TestPermissionFlow(t *testing.T) {
	bubble(t, "a denial is final: neither approvals nor the hook are asked", func(t *testing.T) {
		h := open(t, asker(fakehost.V2_0))
		asked := 0
		h.Permission.Hook(func(_ context.Context, e *fakehost.Evaluation) error {
			asked++
			e.Effect = team.Allow
			return nil
		})
		id := create(t, h)
		prompt(t, h, id, "no1")
		wait(t, h, id)
		require.Zero(t, asked)
		require.Contains(t, last(t, h, id), "denied")
		prompt(t, h, id, "yes")
		wait(t, h, id)
		require.Equal(t, 1, asked)
		require.Equal(t, "yes allowed", last(t, h, id))
	})

	bubble(t, "the hook may deny, with a message; stopped it is not called", func(t *testing.T) {
		h := open(t, asker(fakehost.V2_0))
		stop := h.Permission.Hook(func(_ context.Context, e *fakehost.Evaluation) error {
			e.Effect, e.Message = team.Deny, "by the hook"
			return nil
		})
		id := create(t, h)
		prompt(t, h, id, "a1")
		wait(t, h, id)
		require.Contains(t, last(t, h, id), "denied")
		stop()
		prompt(t, h, id, "a1")
		require.Len(t, pending(t, h, id), 1)
	})

	bubble(t, "v1.18 does not call it", func(t *testing.T) {
		h := open(t, asker(fakehost.V1_18))
		h.Permission.Hook(func(_ context.Context, e *fakehost.Evaluation) error {
			e.Effect = team.Allow
			return nil
		})
		id := create(t, h)
		prompt(t, h, id, "a1")
		require.Len(t, pending(t, h, id), 1)
	})

	bubble(t, "the last rule that matches wins; the session's come behind the agent's; an unknown agent may nothing", func(t *testing.T) {
		h := open(t, asker(fakehost.V2_0))
		s, err := h.Session.Create(t.Context(), fakehost.NewSession{Agent: "build", Permissions: []fakehost.Rule{rule("thing", "no*", team.Allow), rule("thing", "nobody", team.Ask)}})
		require.NoError(t, err)
		for resource, want := range map[string]team.Effect{"no1": team.Allow, "nobody": team.Ask, "else": team.Ask} {
			effect, err := h.Permission.Evaluate(t.Context(), s.ID, "thing", resource)
			require.NoError(t, err)
			require.Equal(t, want, effect, resource)
		}
		_, effect, err := h.Permission.Request(t.Context(), fakehost.Ask{Session: s.ID, Agent: "ghost", Action: "thing", Resources: []string{"no1"}})
		require.NoError(t, err)
		require.Equal(t, team.Deny, effect)
	})

	bubble(t, "an ask ends with its context, and is taken back", func(t *testing.T) {
		h := open(t, asker(fakehost.V2_0))
		id := create(t, h)
		prompt(t, h, id, "a1")
		require.Len(t, pending(t, h, id), 1)
		_, err := h.Session.Interrupt(t.Context(), id, false)
		require.NoError(t, err)
		wait(t, h, id)
		require.Empty(t, pending(t, h, id))
	})
}

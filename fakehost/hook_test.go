package fakehost_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

func TestHookPrompt(t *testing.T) {
	bubble(t, "v2.0: it may change text, metadata and delivery, and a hook that fails changes nothing", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, func(_ context.Context, t *fakehost.Turn) (string, error) { return "heard " + t.Text(), nil }))
		session := create(t, h)
		h.Session.HookPrompt(func(_ context.Context, p *fakehost.PromptHook) error {
			p.Text, p.Metadata, p.Delivery = p.Text+"!", json.RawMessage(`{"by":"hook"}`), team.DeliveryQueue
			return nil
		})
		stop := h.Session.HookPrompt(func(_ context.Context, p *fakehost.PromptHook) error {
			p.Text = "lost"
			return errors.New("no")
		})
		item := prompt(t, h, session, "a")
		require.Equal(t, []any{"a!", team.DeliveryQueue}, []any{item.Text(), item.Delivery})
		require.Contains(t, string(item.Payload), `"by":"hook"`)
		stop()
		wait(t, h, session)
		require.Equal(t, "heard a!", last(t, h, session))
		h.Session.HookPrompt(func(_ context.Context, p *fakehost.PromptHook) error {
			p.Delivery = "later"
			return nil
		})
		_, err := h.Session.Prompt(t.Context(), session, fakehost.Prompt{Text: "b"})
		require.ErrorIs(t, err, team.ErrInvalid, "what a hook made of it is checked as well")
		_, err = h.Session.Synthetic(t.Context(), session, fakehost.Prompt{Text: "c"})
		require.NoError(t, err, "a synthetic does not pass it")
	})
	bubble(t, "v1.18: it sees each user message, of a child with agent and model", func(t *testing.T) {
		opts := script(fakehost.V1_18, nil)
		opts.Agents[0].Script = func(ctx context.Context, t *fakehost.Turn) (string, error) {
			_, err := t.Dispatch(ctx, "general", "d", "to the child")
			return "", err
		}
		h := open(t, opts)
		session := create(t, h)
		var seen []fakehost.PromptHook
		h.Session.HookPrompt(func(_ context.Context, p *fakehost.PromptHook) error {
			seen = append(seen, *p)
			p.Parts = append(p.Parts, json.RawMessage(`{"type":"text","text":"and this"}`))
			return nil
		})
		prompt(t, h, session, "go")
		wait(t, h, session)
		require.Len(t, seen, 2)
		require.Empty(t, seen[0].Agent)
		require.Nil(t, seen[0].Model)
		require.Empty(t, seen[0].Message)
		require.Equal(t, "general", seen[1].Agent)
		require.Equal(t, "m1", seen[1].Model.ID)
		require.True(t, strings.HasPrefix(seen[1].Message, "msg_"))
		require.Equal(t, "user: go\n\nand this", texts(t, h, session)[0])
	})
}

func TestHookContext(t *testing.T) {
	t.Run("it fires once for each model call, and what it changes goes to the model", func(t *testing.T) {
		each(t, func(t *testing.T, p fakehost.Profile) {
			var got []fakehost.ModelRequest
			opts := script(p, func(ctx context.Context, t *fakehost.Turn) (string, error) {
				for range 2 {
					r, err := t.Request(ctx)
					if err != nil {
						return "", err
					}
					got = append(got, r)
					if _, err := t.Call(ctx, "say", map[string]any{}); err != nil {
						return "", err
					}
				}
				return "done", nil
			})
			opts.Tools = []fakehost.Tool{text("a", false)}
			h := open(t, opts)
			session := create(t, h)
			fired := 0
			h.Session.HookContext(func(_ context.Context, r *fakehost.ModelRequest) error {
				fired++
				require.Equal(t, []any{session, "build", "m1"}, []any{r.Session, r.Agent, r.Model.ID})
				require.Contains(t, r.Tools, "say")
				r.System = append(r.System, "be brief")
				r.Messages = r.Messages[:1]
				return nil
			})
			prompt(t, h, session, "go")
			wait(t, h, session)
			require.Equal(t, 3, fired)
			require.Equal(t, []string{"be brief"}, got[0].System)
			require.Len(t, got[1].Messages, 1)
			message := object(t, got[0].Messages[0])
			if p.Generation == 1 {
				require.ElementsMatch(t, []string{"info", "parts"}, keys(message))
			} else {
				require.Equal(t, "user", message["role"])
				require.Equal(t, []any{map[string]any{"type": "text", "text": "go"}}, message["content"])
			}
			require.Contains(t, history(t, h, session), "done", "the history is as it was")
		})
	})
	bubble(t, "without a hook the request is the context", func(t *testing.T) {
		var got fakehost.ModelRequest
		h := open(t, script(fakehost.V2_0, func(ctx context.Context, t *fakehost.Turn) (string, error) {
			var err error
			got, err = t.Request(ctx)
			return "", err
		}))
		session := create(t, h)
		prompt(t, h, session, "go")
		wait(t, h, session)
		require.NotEmpty(t, got.Messages)
		require.Contains(t, got.Tools, "subagent")
	})
}

func TestHookGenerate(t *testing.T) {
	bubble(t, "it sees the session's messages and the prompt, and may change it", func(t *testing.T) {
		opts := script(fakehost.V2_0, nil)
		opts.Generate = func(_ context.Context, prompt string) (string, error) { return "g: " + prompt, nil }
		h := open(t, opts)
		session := create(t, h)
		prompt(t, h, session, "go")
		wait(t, h, session)
		stop := h.Session.HookGenerate(func(_ context.Context, r *fakehost.ModelRequest) error {
			require.Len(t, r.Messages, 3)
			r.Messages[2] = json.RawMessage(`{"role":"user","content":[{"type":"text","text":"other"}]}`)
			return nil
		})
		out, err := h.Session.Generate(t.Context(), session, "x")
		require.NoError(t, err)
		require.Equal(t, "g: other", out)
		stop()
		h.Session.HookGenerate(func(_ context.Context, r *fakehost.ModelRequest) error { r.Messages = nil; return nil })
		_, err = h.Session.Generate(t.Context(), session, "x")
		require.ErrorContains(t, err, "no prompt")
	})
}

func TestTitle(t *testing.T) {
	t.Run("agent title names a session that has no title, beside its first turn", func(t *testing.T) {
		each(t, func(t *testing.T, p fakehost.Profile) {
			var could error
			opts := script(p, nil)
			opts.Agents = append(opts.Agents, fakehost.Agent{Name: "title", Mode: "primary", Hidden: true,
				Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
					_, could = t.Call(ctx, "read", map[string]any{"path": "a"})
					return "about " + t.Text(), nil
				}})
			h := open(t, opts)
			session, rec := create(t, h), record(t, h)
			named, err := h.Session.Create(t.Context(), fakehost.NewSession{Title: "mine"})
			require.NoError(t, err)
			for _, id := range []string{session, named.ID} {
				prompt(t, h, id, "words")
				wait(t, h, id)
				synctest.Wait()
			}
			s, err := h.Session.Get(t.Context(), session)
			require.NoError(t, err)
			require.Equal(t, "about words", s.Title)
			require.ErrorContains(t, could, "has no tools")
			s, err = h.Session.Get(t.Context(), named.ID)
			require.NoError(t, err)
			require.Equal(t, "mine", s.Title)
			prompt(t, h, session, "more")
			wait(t, h, session)
			synctest.Wait()
			s, err = h.Session.Get(t.Context(), session)
			require.NoError(t, err)
			require.Equal(t, "about words", s.Title, "once")
			if p.Generation == 2 {
				require.Len(t, only(rec.types(session), "session.renamed"), 1)
			}
		})
	})
	bubble(t, "the hook title makes it without a model, and a child gets none", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, nil))
		h.Session.HookTitle(func(_ context.Context, e *fakehost.TitleHook) error {
			title := "by hook"
			e.Result = &title
			return nil
		})
		session := create(t, h)
		child, err := h.Session.Create(t.Context(), fakehost.NewSession{Parent: session})
		require.NoError(t, err)
		for id, want := range map[string]string{session: "by hook", child.ID: ""} {
			prompt(t, h, id, "x")
			wait(t, h, id)
			synctest.Wait()
			s, err := h.Session.Get(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, want, s.Title)
		}
	})
}

func TestCompactionHookAndFailure(t *testing.T) {
	compacted := func(t *testing.T, h *fakehost.Host) (string, []string) {
		session := create(t, h)
		prompt(t, h, session, "go")
		wait(t, h, session)
		rec := record(t, h)
		_, err := h.Session.Compact(t.Context(), session, fakehost.Prompt{})
		require.NoError(t, err)
		wait(t, h, session)
		return session, only(rec.types(session), "session.compaction.", "session.execution.")
	}
	bubble(t, "the hook's summary is taken in place of the model's", func(t *testing.T) {
		opts := script(fakehost.V2_0, nil)
		opts.Agents = append(opts.Agents, fakehost.Agent{Name: "compaction", Script: func(context.Context, *fakehost.Turn) (string, error) {
			return "", errors.New("not to be asked")
		}})
		h := open(t, opts)
		h.Session.HookCompaction(func(_ context.Context, e *fakehost.CompactionHook) error {
			require.Len(t, e.Messages, 2)
			s := "by hook"
			e.Result = &s
			return nil
		})
		session, types := compacted(t, h)
		require.Equal(t, []string{"session.execution.started", "session.compaction.started", "session.compaction.ended", "session.execution.succeeded"}, types)
		list, err := h.Session.Context(t.Context(), session)
		require.NoError(t, err)
		require.Equal(t, "by hook", object(t, list[0])["summary"])
	})
	bubble(t, "a summary that fails is compaction.failed, and the context stays", func(t *testing.T) {
		opts := script(fakehost.V2_0, nil)
		opts.Agents = append(opts.Agents, fakehost.Agent{Name: "compaction", Script: func(context.Context, *fakehost.Turn) (string, error) {
			return "", &fakehost.AgentError{Type: "provider", Message: "too long"}
		}})
		h := open(t, opts)
		session, types := compacted(t, h)
		require.Equal(t, []string{"session.execution.started", "session.compaction.started", "session.compaction.failed", "session.execution.failed"}, types)
		list, err := h.Session.Context(t.Context(), session)
		require.NoError(t, err)
		require.Equal(t, "user", list[0].Type)
		s, err := h.Session.Get(t.Context(), session)
		require.NoError(t, err)
		require.Equal(t, "failed", s.Outcome)
	})
}

func TestHookRetry(t *testing.T) {
	bubble(t, "it decides whether and when a failed call is tried again", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, nil))
		h.Inject(fakehost.FaultEndlessRetry)
		var attempts []int
		h.Session.HookRetry(func(_ context.Context, e *fakehost.RetryHook) error {
			attempts = append(attempts, e.Attempt)
			require.True(t, e.Retry)
			require.Equal(t, "connection refused", e.Error.Message)
			e.Delay, e.Retry = time.Minute, e.Attempt < 3
			return nil
		})
		session, began := create(t, h), time.Now()
		rec := record(t, h)
		prompt(t, h, session, "go")
		wait(t, h, session)
		require.Equal(t, []int{1, 2, 3}, attempts)
		require.Equal(t, 2*time.Minute, time.Since(began))
		require.Equal(t, []string{"session.retry.scheduled", "session.retry.scheduled", "session.step.failed", "session.execution.failed"},
			only(rec.types(session), "session.retry.", "session.step.failed", "session.execution.failed"))
	})
}

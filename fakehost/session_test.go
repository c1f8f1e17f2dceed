package fakehost_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

func TestSession(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		h := open(t, script(p, echo))
		s, err := h.Session.Create(t.Context(), fakehost.NewSession{Title: "t"})
		require.NoError(t, err)
		got := object(t, s)
		if p.Generation == 1 {
			require.ElementsMatch(t, []string{"id", "slug", "projectID", "directory", "path", "cost", "tokens", "title", "version", "time"}, keys(got))
			require.Equal(t, "1.18.33", got["version"])
		} else {
			require.ElementsMatch(t, []string{"id", "projectID", "cost", "tokens", "time", "title", "location"}, keys(got))
		}
		prompt(t, h, s.ID, "a")
		wait(t, h, s.ID)
		s, err = h.Session.Get(t.Context(), s.ID)
		require.NoError(t, err)
		require.Equal(t, int64(10), s.Input)
		if p.Generation == 1 {
			require.Equal(t, "build", s.Agent, "the first prompt decides")
			require.Equal(t, map[string]any{"id": "m1", "providerID": "fake", "variant": "default"}, object(t, s)["model"])
		} else {
			require.Equal(t, "succeeded", s.Outcome)
		}
		_, err = h.Session.Get(t.Context(), "ses_nobody")
		require.ErrorIs(t, err, team.ErrNotFound)
	})

	bubble(t, "an id adopts the session that has it; one of another kind is refused", func(t *testing.T) {
		h := open(t, nil)
		a, err := h.Session.Create(t.Context(), fakehost.NewSession{ID: "ses_mine", Title: "a"})
		require.NoError(t, err)
		b, err := h.Session.Create(t.Context(), fakehost.NewSession{ID: "ses_mine", Title: "b"})
		require.NoError(t, err)
		require.Equal(t, a.Title, b.Title)
		_, err = h.Session.Create(t.Context(), fakehost.NewSession{ID: "mine"})
		require.ErrorIs(t, err, team.ErrInvalid)
		_, err = h.Session.Create(t.Context(), fakehost.NewSession{Parent: "ses_nobody"})
		require.ErrorIs(t, err, team.ErrNotFound)
		_, err = h.Session.Create(t.Context(), fakehost.NewSession{Agent: "nobody"})
		require.ErrorIs(t, err, team.ErrNotFound)
	})

	bubble(t, "list is newest first, in pages, filtered", func(t *testing.T) {
		h := open(t, nil)
		var ids []string
		for _, title := range []string{"one", "two", "three"} {
			s, err := h.Session.Create(t.Context(), fakehost.NewSession{Title: title})
			require.NoError(t, err)
			ids = append(ids, s.ID)
		}
		child, err := h.Session.Create(t.Context(), fakehost.NewSession{Parent: ids[0]})
		require.NoError(t, err)
		list := func(in fakehost.ListSessions) (out []string) {
			sessions, err := h.Session.List(t.Context(), in)
			require.NoError(t, err)
			for _, s := range sessions {
				out = append(out, s.ID)
			}
			return out
		}
		require.Equal(t, []string{child.ID, ids[2]}, list(fakehost.ListSessions{Limit: 2}))
		require.Equal(t, []string{ids[1], ids[0]}, list(fakehost.ListSessions{Limit: 2, After: ids[2]}))
		require.Equal(t, ids, list(fakehost.ListSessions{Roots: true, Oldest: true}))
		require.Equal(t, []string{child.ID}, list(fakehost.ListSessions{Parent: ids[0]}))
		require.Equal(t, []string{ids[1]}, list(fakehost.ListSessions{Search: "TW"}))
		require.Empty(t, list(fakehost.ListSessions{Directory: "/elsewhere"}))
	})

	each(t, func(t *testing.T, p fakehost.Profile) {
		h := open(t, with(p))
		rec := record(t, h)
		s, err := h.Session.Create(t.Context(), fakehost.NewSession{Permissions: []fakehost.Rule{rule("a", "*", team.Deny)}})
		require.NoError(t, err)
		title := "new"
		require.NoError(t, h.Session.Update(t.Context(), s.ID, fakehost.SessionChange{Title: &title, Permissions: []fakehost.Rule{rule("b", "*", team.Allow)}}))
		s, err = h.Session.Get(t.Context(), s.ID)
		require.NoError(t, err)
		require.Equal(t, "new", s.Title)
		if p.Generation == 1 {
			require.Equal(t, []fakehost.Rule{rule("a", "*", team.Deny), rule("b", "*", team.Allow)}, s.Permissions, "appended")
			require.Equal(t, []string{"session.created", "session.updated"}, rec.types(s.ID))
		} else {
			require.Equal(t, []fakehost.Rule{rule("b", "*", team.Allow)}, s.Permissions, "replaced")
			require.Equal(t, []string{"session.created", "session.renamed", "session.permissions"}, rec.types(s.ID))
		}
	})

	each(t, func(t *testing.T, p fakehost.Profile) {
		h := slowHost(t, p)
		rec := record(t, h)
		id := create(t, h)
		child, err := h.Session.Create(t.Context(), fakehost.NewSession{Parent: id})
		require.NoError(t, err)
		prompt(t, h, child.ID, "a")
		time.Sleep(time.Second / 2)
		require.NoError(t, h.Session.Remove(t.Context(), id))
		for _, id := range []string{id, child.ID} {
			_, err := h.Session.Get(t.Context(), id)
			require.ErrorIs(t, err, team.ErrNotFound, "with its children")
		}
		active, err := h.Session.Active(t.Context())
		require.NoError(t, err)
		require.Empty(t, active)
		require.Equal(t, "session.deleted", rec.types(child.ID)[len(rec.types(child.ID))-1])
		require.ErrorIs(t, h.Session.Remove(t.Context(), id), team.ErrNotFound)
	})

	each(t, func(t *testing.T, p fakehost.Profile) {
		h := open(t, script(p, echo))
		id := create(t, h)
		prompt(t, h, id, "a")
		wait(t, h, id)
		second := prompt(t, h, id, "b")
		wait(t, h, id)
		fork, err := h.Session.Fork(t.Context(), id, second.ID)
		require.NoError(t, err)
		require.Equal(t, texts(t, h, id)[:len(texts(t, h, id))/2], texts(t, h, fork.ID))
		whole, err := h.Session.Fork(t.Context(), id, "")
		require.NoError(t, err)
		require.Equal(t, texts(t, h, id), texts(t, h, whole.ID))
		all, err := h.Session.Fork(t.Context(), id, "msg_none")
		if p.Generation == 1 {
			require.NoError(t, err)
			require.Equal(t, texts(t, h, id), texts(t, h, all.ID), "a message that is not there is no boundary")
		} else {
			require.ErrorIs(t, err, team.ErrNotFound)
			require.Equal(t, &fakehost.Fork{Session: id, Boundary: fakehost.Boundary{Type: "before", Message: second.ID}}, fork.Fork)
		}
		prompt(t, h, fork.ID, "c")
		wait(t, h, fork.ID)
		require.Contains(t, texts(t, h, fork.ID), "assistant: echo: c")
	})

	bubble(t, "agent, model and folder change, and leave a message", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, func(_ context.Context, t *fakehost.Turn) (string, error) { return t.Agent(), nil }))
		id := create(t, h)
		require.NoError(t, h.Session.SwitchAgent(t.Context(), id, "general"))
		require.NoError(t, h.Session.SwitchModel(t.Context(), id, fakehost.Model{ID: "m2", Provider: "p"}))
		require.NoError(t, h.Session.Move(t.Context(), id, "/elsewhere", ""))
		wait(t, h, id)
		prompt(t, h, id, "who")
		wait(t, h, id)
		require.Equal(t, []string{"agent-switched", "model-switched", "location-switched", "idle", "user: who", "assistant: general", "idle"}, texts(t, h, id))
		s, err := h.Session.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "/elsewhere", s.Directory)
		require.Equal(t, "m2", s.Model.ID)
		require.ErrorIs(t, h.Session.SwitchAgent(t.Context(), id, "nobody"), team.ErrNotFound)
		require.ErrorIs(t, h.Session.SwitchModel(t.Context(), id, fakehost.Model{}), team.ErrInvalid)
	})

	each(t, func(t *testing.T, p fakehost.Profile) {
		opts := script(p, echo)
		opts.Commands = []fakehost.Command{{Name: "review", Template: "review $ARGUMENTS now"}}
		opts.Generate = func(_ context.Context, prompt string) (string, error) { return "g: " + prompt, nil }
		h := open(t, opts)
		rec := record(t, h)
		id := create(t, h)
		_, err := h.Session.Command(t.Context(), id, "review", "main.go")
		require.NoError(t, err)
		wait(t, h, id)
		require.Contains(t, texts(t, h, id), "assistant: echo: review main.go now")
		_, err = h.Session.Command(t.Context(), id, "none", "")
		require.ErrorIs(t, err, team.ErrNotFound)
		before := texts(t, h, id)
		out, err := h.Session.Generate(t.Context(), id, "x")
		if p.Generation == 1 {
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.Contains(t, rec.types(id), "command.executed")
			_, err = h.Session.Synthetic(t.Context(), id, fakehost.Prompt{Text: "x"})
			require.ErrorIs(t, err, errors.ErrUnsupported)
			_, err = h.Session.Compact(t.Context(), id, fakehost.Prompt{})
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.NoError(t, h.Session.Summarize(t.Context(), id))
			list, err := h.Session.Context(t.Context(), id)
			require.NoError(t, err)
			require.Len(t, list, 1)
			return
		}
		require.NoError(t, err)
		require.Equal(t, "g: x", out)
		require.Equal(t, before, texts(t, h, id), "nothing is stored")
	})

	bubble(t, "an agent's step limit is told to the script", func(t *testing.T) {
		var second error
		h := open(t, &fakehost.Options{Tools: []fakehost.Tool{napTool()}, Agents: []fakehost.Agent{{Name: "build", Steps: 1,
			Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
				_, _ = t.Call(ctx, "nap", nil)
				_, second = t.Call(ctx, "nap", nil)
				return "as far as I got", nil
			}}}})
		id := create(t, h)
		prompt(t, h, id, "a")
		wait(t, h, id)
		require.ErrorContains(t, second, "1 steps")
		require.Equal(t, []string{"user: a", "assistant", "assistant: as far as I got", "idle"}, texts(t, h, id))
	})
}

func with(p fakehost.Profile) *fakehost.Options { return &fakehost.Options{Profile: p} }

func TestMessageIDsOfGeneration1(t *testing.T) {
	bubble(t, "the same message id adds a part; with the same part id the last one wins", func(t *testing.T) {
		h := open(t, script(fakehost.V1_18, echo))
		id := create(t, h)
		p := fakehost.Prompt{ID: "msg_1", Text: "a", NoResume: true}
		send(t, h, id, p)
		send(t, h, id, p)
		require.Equal(t, []string{"user: a\n\na"}, texts(t, h, id))
		p = fakehost.Prompt{ID: "msg_2", PartID: "prt_1", Text: "b", NoResume: true}
		send(t, h, id, p)
		p.Text = "c"
		send(t, h, id, p)
		require.Equal(t, []string{"user: a\n\na", "user: c"}, texts(t, h, id))
	})
	bubble(t, "an id of another session puts the part there", func(t *testing.T) {
		h := open(t, script(fakehost.V1_18, echo))
		id, other := create(t, h), create(t, h)
		send(t, h, id, fakehost.Prompt{ID: "msg_1", Text: "a", NoResume: true})
		item := send(t, h, other, fakehost.Prompt{ID: "msg_1", Text: "b", NoResume: true})
		require.Equal(t, id, item.Session)
		require.Equal(t, []string{"user: a\n\nb"}, texts(t, h, id))
		require.Empty(t, texts(t, h, other))
	})
}

func TestPorts(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		h := open(t, script(p, echo))
		id, other := team.SessionID(create(t, h)), team.SessionID(create(t, h))
		s := h.Sessions()
		note := team.Note{ID: "msg_0123456789abABCDEFGHIJKLMN", Text: "first", Description: "d", Metadata: map[string]string{"k": "v"}, Delivery: team.DeliverySteer}
		got, err := s.Deliver(t.Context(), id, note)
		require.NoError(t, err)
		require.Equal(t, team.Delivered{ID: note.ID, Text: "first", InConversation: p.Name == fakehost.V1_18.Name}, got)
		note.Text = "second"
		got, err = s.Deliver(t.Context(), id, note)
		require.NoError(t, err)
		require.Equal(t, "first", got.Text, "the one that was kept")
		_, err = s.Deliver(t.Context(), other, note)
		require.ErrorIs(t, err, team.ErrConflict)
		_, err = s.Deliver(t.Context(), "ses_nobody", team.Note{Text: "x", Delivery: team.DeliverySteer})
		require.ErrorIs(t, err, team.ErrNotFound)
		_, err = s.Deliver(t.Context(), id, team.Note{Text: "wake", Delivery: team.DeliveryQueue, Wake: true})
		require.NoError(t, err)
		wait(t, h, string(id))
		require.NotEmpty(t, last(t, h, string(id)))

		verdict, err := s.Interrupt(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, map[int]team.InterruptVerdict{1: team.InterruptUnknown, 2: team.InterruptIdle}[p.Generation], verdict)
		info, err := s.Session(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "build", info.Agent)
		require.NotEmpty(t, info.Raw)
		_, err = s.Session(t.Context(), "ses_nobody")
		require.ErrorIs(t, err, team.ErrNotFound)
		effect, err := h.Permissions().Evaluate(t.Context(), id, "external_directory", "/etc/*")
		require.NoError(t, err)
		require.Equal(t, team.Ask, effect)
	})

	bubble(t, "events come with session, seq and time, from now on", func(t *testing.T) {
		h := open(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events := h.Events().Events(ctx)
		id := create(t, h)
		n := 0
		for e, err := range events {
			require.NoError(t, err)
			if n++; n == 1 {
				require.Equal(t, "server.connected", e.Type)
				continue
			}
			require.Equal(t, "session.created", e.Type)
			require.Equal(t, team.SessionID(id), e.Session)
			require.Positive(t, e.Seq)
			require.False(t, e.Time.IsZero())
			break
		}
		require.Equal(t, 2, n, "although the loop began later")
	})

	bubble(t, "tools are rewritten until it is stopped", func(t *testing.T) {
		var stop func()
		_, _, r, err := calls(t, &fakehost.Options{Tools: []fakehost.Tool{text("a", false)}}, "say", nil, func(h *fakehost.Host) {
			stop = h.Tools().AfterTool(func(_ context.Context, r team.ToolResult) (team.ToolResult, error) {
				r.Result = []byte(`{"content":"rewritten"}`)
				return r, nil
			})
		})
		require.NoError(t, err)
		require.Equal(t, "rewritten", r.Text)
		stop()
		synctest.Wait()
	})
}

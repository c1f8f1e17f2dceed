package fakehost_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

// echo answers with what it was given.
func echo(_ context.Context, t *fakehost.Turn) (string, error) { return "echo: " + t.Text(), nil }

// slow has a step with a tool call that takes a second, then answers.
func slow(ctx context.Context, t *fakehost.Turn) (string, error) {
	_, err := t.Call(ctx, "nap", nil)
	return "echo: " + t.Text(), err
}

func napTool() fakehost.Tool {
	return fakehost.Tool{Name: "nap", Run: func(ctx context.Context, _ *fakehost.ToolCall) (fakehost.ToolOutput, error) {
		select {
		case <-time.After(time.Second):
			return fakehost.ToolOutput{Text: "slept"}, nil
		case <-ctx.Done():
			return fakehost.ToolOutput{}, ctx.Err()
		}
	}}
}

func slowHost(t *testing.T, p fakehost.Profile) *fakehost.Host {
	opts := script(p, slow)
	opts.Tools = []fakehost.Tool{napTool()}
	return open(t, opts)
}

func TestPromptEachProfile(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		h := open(t, script(p, echo))
		id := create(t, h)
		item := prompt(t, h, id, "hello")
		wait(t, h, id)
		want := []string{"user: hello", "assistant: echo: hello"}
		if p.Generation == 2 {
			want = append(want, "idle")
		}
		require.Equal(t, want, texts(t, h, id))
		m, err := h.Session.Message(t.Context(), id, item.ID)
		require.NoError(t, err, "the inbox id becomes the message id")
		require.Equal(t, "hello", m.Text())
	})
}

func TestInbox(t *testing.T) {
	bubble(t, "the row's seq is that of its enqueued event, and it goes with the delivery", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, echo))
		rec := record(t, h)
		id := create(t, h)
		item := send(t, h, id, fakehost.Prompt{Text: "a", NoResume: true})
		list, err := h.Inbox.List(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []fakehost.InboxItem{item}, list)
		require.NoError(t, h.Session.Resume(t.Context(), id))
		list, err = h.Inbox.List(t.Context(), id)
		require.NoError(t, err)
		require.Empty(t, list)
		synctest.Wait()
		for _, e := range rec.stop() {
			if e.Type == "session.inbox.enqueued" {
				require.Equal(t, item.Seq, e.Durable.Seq)
				data := object(t, e)["data"].(map[string]any)
				require.Equal(t, item.ID, data["inboxID"])
				require.Equal(t, "a", data["item"].(map[string]any)["payload"].(map[string]any)["text"], "the event has the whole text")
			}
		}
	})

	bubble(t, "the first admission of an id wins, pending and delivered", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, echo))
		id, other := create(t, h), create(t, h)
		const key = "msg_0123456789abABCDEFGHIJKLMN"
		first := send(t, h, id, fakehost.Prompt{ID: key, Text: "first", NoResume: true, Delivery: team.DeliveryQueue})
		again := send(t, h, id, fakehost.Prompt{ID: key, Text: "second", NoResume: true})
		require.Equal(t, first, again)

		_, err := h.Session.Prompt(t.Context(), other, fakehost.Prompt{ID: key, Text: "first"})
		require.ErrorIs(t, err, team.ErrConflict)
		_, err = h.Session.Synthetic(t.Context(), id, fakehost.Prompt{ID: key, Text: "first"})
		require.ErrorIs(t, err, team.ErrConflict)

		require.NoError(t, h.Session.Resume(t.Context(), id))
		late := send(t, h, id, fakehost.Prompt{ID: key, Text: "third", Delivery: team.DeliverySteer})
		require.Equal(t, "first", late.Text())
		require.Equal(t, team.DeliverySteer, late.Delivery, "of a delivered one it is the retry's")
		_, err = h.Session.Prompt(t.Context(), other, fakehost.Prompt{ID: key, Text: "first"})
		require.ErrorIs(t, err, team.ErrConflict, "ids are unique over inbox and messages")
		wait(t, h, id)
		require.Equal(t, []string{"user: first", "assistant: echo: first", "idle"}, texts(t, h, id))
	})

	bubble(t, "the old mode compares what comes under an id", func(t *testing.T) {
		opts := script(fakehost.V2_0, echo)
		opts.Faults = []fakehost.Fault{fakehost.FaultCompareMode}
		h := open(t, opts)
		id := create(t, h)
		p := fakehost.Prompt{ID: "msg_x", Text: "first", NoResume: true}
		send(t, h, id, p)
		send(t, h, id, p)
		p.Text = "second"
		_, err := h.Session.Prompt(t.Context(), id, p)
		require.ErrorIs(t, err, team.ErrConflict)
		h.Clear(fakehost.FaultCompareMode)
		require.Equal(t, "first", send(t, h, id, p).Text())
	})

	bubble(t, "cancel is no error for what is gone; change is", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, echo))
		id := create(t, h)
		item := send(t, h, id, fakehost.Prompt{Text: "a", NoResume: true})
		require.ErrorIs(t, h.Inbox.Change(t.Context(), id, item.ID, team.DeliverySteer), team.ErrConflict)
		require.NoError(t, h.Inbox.Change(t.Context(), id, item.ID, team.DeliveryQueue))
		require.NoError(t, h.Inbox.Cancel(t.Context(), id, item.ID))
		require.NoError(t, h.Inbox.Cancel(t.Context(), id, item.ID))
		require.ErrorIs(t, h.Inbox.Change(t.Context(), id, item.ID, team.DeliverySteer), team.ErrConflict)
		require.ErrorIs(t, h.Inbox.Cancel(t.Context(), "ses_nobody", item.ID), team.ErrNotFound)
		require.NoError(t, h.Session.Resume(t.Context(), id))
		require.Empty(t, texts(t, h, id))
	})

	bubble(t, "only the change to steer wakes", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, echo))
		id := create(t, h)
		item := send(t, h, id, fakehost.Prompt{Text: "a", NoResume: true})
		require.NoError(t, h.Inbox.Change(t.Context(), id, item.ID, team.DeliveryQueue))
		synctest.Wait()
		require.Empty(t, texts(t, h, id))
		require.NoError(t, h.Inbox.Change(t.Context(), id, item.ID, team.DeliverySteer))
		synctest.Wait()
		require.Equal(t, "assistant: echo: a", texts(t, h, id)[1])
	})

	bubble(t, "one compaction may be pending", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, echo))
		id := create(t, h)
		first, err := h.Session.Compact(t.Context(), id, fakehost.Prompt{ID: "msg_1", NoResume: true})
		require.NoError(t, err)
		second, err := h.Session.Compact(t.Context(), id, fakehost.Prompt{ID: "msg_2", NoResume: true})
		require.NoError(t, err)
		require.Equal(t, first, second)
		_, err = h.Session.Prompt(t.Context(), id, fakehost.Prompt{ID: "msg_1", Text: "x"})
		require.ErrorIs(t, err, team.ErrConflict)
	})

	t.Run("bad input changes nothing", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, echo))
		id := create(t, h)
		for name, p := range map[string]fakehost.Prompt{
			"an id of another kind": {ID: "ses_1"}, "a delivery that is none": {Delivery: "soon"},
			"no UTF-8": {Text: "\xff"}, "metadata that is no JSON": {Metadata: []byte("{")},
		} {
			_, err := h.Session.Prompt(t.Context(), id, p)
			require.ErrorIs(t, err, team.ErrInvalid, name)
		}
		_, err := h.Session.Prompt(t.Context(), "ses_nobody", fakehost.Prompt{Text: "x"})
		require.ErrorIs(t, err, team.ErrNotFound)
		list, err := h.Inbox.List(t.Context(), id)
		require.NoError(t, err)
		require.Empty(t, list)
	})
}

func TestPromotion(t *testing.T) {
	bubble(t, "steers come as a batch, queued items one by one behind them, all in one busy period", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, echo))
		rec := record(t, h)
		id := create(t, h)
		for _, p := range []fakehost.Prompt{{Text: "q1", Delivery: team.DeliveryQueue}, {Text: "s1"}, {Text: "q2", Delivery: team.DeliveryQueue}, {Text: "s2"}} {
			p.NoResume = true
			send(t, h, id, p)
		}
		require.NoError(t, h.Session.Resume(t.Context(), id))
		require.Equal(t, []string{"user: s1", "user: s2", "assistant: echo: s1\n\ns2", "user: q1", "assistant: echo: q1",
			"user: q2", "assistant: echo: q2", "idle"}, texts(t, h, id))
		require.Equal(t, []string{"session.execution.started", "session.execution.succeeded"}, only(rec.types(id), "session.execution."))
	})

	bubble(t, "a steer comes between two steps, and starts no second period", func(t *testing.T) {
		h := slowHost(t, fakehost.V2_0)
		rec := record(t, h)
		id := create(t, h)
		prompt(t, h, id, "a")
		time.Sleep(time.Second / 2)
		prompt(t, h, id, "b")
		send(t, h, id, fakehost.Prompt{Text: "c", Delivery: team.DeliveryQueue})
		wait(t, h, id)
		require.Equal(t, []string{"user: a", "assistant", "user: b", "assistant: echo: a", "user: c", "assistant", "assistant: echo: c", "idle"},
			texts(t, h, id))
		require.Equal(t, []string{"session.execution.started", "session.execution.succeeded"}, only(rec.types(id), "session.execution."))
	})

	bubble(t, "a steer that comes in the last step gets a turn in the same period", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, func(ctx context.Context, t *fakehost.Turn) (string, error) {
			return "echo: " + t.Text(), t.Sleep(ctx, time.Second)
		}))
		id := create(t, h)
		prompt(t, h, id, "a")
		time.Sleep(time.Second / 2)
		prompt(t, h, id, "b")
		wait(t, h, id)
		require.Equal(t, []string{"user: a", "assistant: echo: a", "user: b", "assistant: echo: b", "idle"}, texts(t, h, id))
	})

	bubble(t, "a control item is handled alone, and those behind it wait", func(t *testing.T) {
		h := slowHost(t, fakehost.V2_0)
		id := create(t, h)
		prompt(t, h, id, "a")
		time.Sleep(time.Second / 2)
		prompt(t, h, id, "b")
		_, err := h.Session.Compact(t.Context(), id, fakehost.Prompt{})
		require.NoError(t, err)
		prompt(t, h, id, "c")
		wait(t, h, id)
		require.Equal(t, []string{"user: a", "assistant", "user: b", "assistant: echo: a", "compaction", "user: c", "assistant", "assistant: echo: c", "idle"},
			texts(t, h, id))
		list, err := h.Session.Context(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "compaction", list[0].Type, "the context begins with the last compaction")
		require.Len(t, list, 5)
	})

	bubble(t, "a passive note waits for the idle boundary of a turn that something else began", func(t *testing.T) {
		h := slowHost(t, fakehost.V2_0)
		id := create(t, h)
		_, err := h.Session.Synthetic(t.Context(), id, fakehost.Prompt{Text: "note", NoResume: true, Delivery: team.DeliveryQueue})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.Empty(t, texts(t, h, id))
		prompt(t, h, id, "a")
		wait(t, h, id)
		require.Equal(t, []string{"user: a", "assistant", "assistant: echo: a", "synthetic: note", "assistant", "assistant: echo: note", "idle"}, texts(t, h, id))
	})

	bubble(t, "one that is not queued rides on the next wake", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, echo))
		id := create(t, h)
		send(t, h, id, fakehost.Prompt{Text: "silent", NoResume: true})
		prompt(t, h, id, "loud")
		wait(t, h, id)
		require.Equal(t, "assistant: echo: silent\n\nloud", texts(t, h, id)[2])
	})

	bubble(t, "generation 1: what comes while the agent works is seen in the same loop", func(t *testing.T) {
		h := slowHost(t, fakehost.V1_18)
		id := create(t, h)
		prompt(t, h, id, "a")
		time.Sleep(time.Second / 2)
		prompt(t, h, id, "b")
		send(t, h, id, fakehost.Prompt{Text: "c", NoResume: true})
		wait(t, h, id)
		require.Equal(t, []string{"user: a", "assistant", "user: b", "user: c", "assistant: echo: a"}, texts(t, h, id))
	})
}

func TestInterrupt(t *testing.T) {
	bubble(t, "keeps the inbox, and leaves what is queued parked", func(t *testing.T) {
		h := slowHost(t, fakehost.V2_0)
		rec := record(t, h)
		id := create(t, h)
		prompt(t, h, id, "a")
		time.Sleep(time.Second / 2)
		send(t, h, id, fakehost.Prompt{Text: "q", Delivery: team.DeliveryQueue})
		send(t, h, id, fakehost.Prompt{Text: "s"})
		stopped, err := h.Session.Interrupt(t.Context(), id, false)
		require.NoError(t, err)
		require.True(t, stopped)
		wait(t, h, id)
		list, err := h.Inbox.List(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, list, 2)
		stopped, err = h.Session.Interrupt(t.Context(), id, true)
		require.NoError(t, err)
		require.False(t, stopped, "nothing was under way")
		wait(t, h, id)
		list, err = h.Inbox.List(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, list, 1, "resume wakes steers only")
		require.Equal(t, "q", list[0].Text())
		synctest.Wait()
		events := rec.stop()
		i := slices.IndexFunc(events, func(e fakehost.Event) bool { return e.Type == "session.execution.interrupted" })
		require.JSONEq(t, `{"sessionID":"`+id+`","reason":"user"}`, string(events[i].Data))
		s, err := h.Session.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "succeeded", s.Outcome)
	})

	bubble(t, "with resume goes on with steers when it has stopped", func(t *testing.T) {
		h := slowHost(t, fakehost.V2_0)
		id := create(t, h)
		prompt(t, h, id, "a")
		time.Sleep(time.Second / 2)
		send(t, h, id, fakehost.Prompt{Text: "q", Delivery: team.DeliveryQueue})
		send(t, h, id, fakehost.Prompt{Text: "s"})
		_, err := h.Session.Interrupt(t.Context(), id, true)
		require.NoError(t, err)
		wait(t, h, id)
		require.Equal(t, []string{"user: a", "assistant", "idle", "user: s", "assistant", "assistant: echo: s", "idle"}, texts(t, h, id))
		list, err := h.Inbox.List(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, list, 1)
	})

	bubble(t, "generation 1 says error, then idle, twice", func(t *testing.T) {
		h := slowHost(t, fakehost.V1_18)
		rec := record(t, h)
		id := create(t, h)
		prompt(t, h, id, "a")
		time.Sleep(time.Second / 2)
		_, err := h.Session.Interrupt(t.Context(), id, false)
		require.NoError(t, err)
		wait(t, h, id)
		types := rec.types(id)
		require.Equal(t, []string{"message.part.updated", "session.error", "session.status", "session.idle", "message.updated", "session.status", "session.idle"},
			types[len(types)-7:])
	})
}

func TestWait(t *testing.T) {
	bubble(t, "returns at once when idle, starts nothing, and heeds its context", func(t *testing.T) {
		h := slowHost(t, fakehost.V2_0)
		id := create(t, h)
		send(t, h, id, fakehost.Prompt{Text: "a", NoResume: true})
		wait(t, h, id)
		require.Empty(t, texts(t, h, id))
		prompt(t, h, id, "b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, h.Session.Wait(ctx, id), context.DeadlineExceeded)
		require.ErrorIs(t, h.Session.Wait(t.Context(), "ses_nobody"), team.ErrNotFound)
		wait(t, h, id)
	})
}

func TestFailure(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		h := open(t, script(p, func(context.Context, *fakehost.Turn) (string, error) {
			return "", &fakehost.AgentError{Type: "APIError", Message: "scripted failure", Status: 400}
		}))
		rec := record(t, h)
		id := create(t, h)
		prompt(t, h, id, "a")
		wait(t, h, id)
		list, err := h.Session.Messages(t.Context(), id, fakehost.MessagePage{})
		require.NoError(t, err)
		why, failed := list[1].Failed()
		require.True(t, failed)
		require.Equal(t, "scripted failure", why)
		types := rec.types(id)
		if p.Generation == 1 {
			require.Equal(t, []string{"session.status", "session.error", "session.status", "session.idle", "message.updated", "session.status", "session.idle"},
				types[len(types)-7:])
			return
		}
		require.Equal(t, []string{"session.step.failed", "session.execution.failed"}, types[len(types)-2:])
		require.Equal(t, "failed", object(t, list[2])["outcome"])
		s, err := h.Session.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "failed", s.Outcome)
		require.Positive(t, s.Idle)
	})

	bubble(t, "a script that ends its goroutine ends its turn", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, func(context.Context, *fakehost.Turn) (string, error) {
			runtime.Goexit()
			return "", nil
		}))
		id := create(t, h)
		prompt(t, h, id, "a")
		wait(t, h, id)
		s, err := h.Session.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "failed", s.Outcome)
	})
}

func TestClosed(t *testing.T) {
	h := open(t, nil)
	id := create(t, h)
	require.NoError(t, h.Close())
	require.NoError(t, h.Close())
	_, err := h.Session.Get(t.Context(), id)
	require.ErrorIs(t, err, team.ErrClosed)
	_, err = fakehost.Open(t.Context(), "", &fakehost.Options{Directory: strings.Repeat("x", 10)})
	require.Error(t, err)
	_, err = fakehost.Open(t.Context(), "", &fakehost.Options{Profile: fakehost.Profile{Generation: 3}})
	require.True(t, errors.Is(err, team.ErrInvalid))
}

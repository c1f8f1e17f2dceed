package fakehost_test

import (
	"context"
	"encoding/json"
	"io"
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

func TestEventOrder(t *testing.T) {
	bubble(t, "v2.0: enqueued, started, delivered, step, terminal", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, echo))
		rec := record(t, h)
		id := create(t, h)
		prompt(t, h, id, "a")
		wait(t, h, id)
		require.Equal(t, []string{"session.created", "session.inbox.enqueued", "session.execution.started", "session.inbox.delivered",
			"session.step.started", "session.text.started", "session.text.delta", "session.text.ended", "session.step.streamed",
			"session.step.ended", "session.usage.updated", "session.execution.succeeded"}, rec.types(id))
	})

	bubble(t, "v1.18: as in the captures", func(t *testing.T) {
		opts := script(fakehost.V1_18, func(ctx context.Context, t *fakehost.Turn) (string, error) {
			_, err := t.Call(ctx, "nap", nil)
			return "done", err
		})
		opts.Tools = []fakehost.Tool{napTool()}
		h := open(t, opts)
		rec := record(t, h)
		s, err := h.Session.Create(t.Context(), fakehost.NewSession{})
		require.NoError(t, err)
		prompt(t, h, s.ID, "a")
		wait(t, h, s.ID)
		require.Equal(t, []string{"session.created", "session.updated", "message.updated", "message.part.updated", "session.updated",
			"session.status", "message.updated", "session.updated", "session.diff", "message.updated", "session.status",
			"message.part.updated", "message.part.updated", "message.part.updated", "message.part.updated", "message.part.updated",
			"message.updated", "message.updated",
			"session.status", "message.updated", "session.updated", "session.diff", "session.status",
			"message.part.updated", "message.part.updated", "message.part.delta", "message.part.updated", "message.updated", "message.part.updated",
			"message.updated", "message.updated",
			"session.status", "session.status", "session.idle", "session.updated", "session.diff", "message.updated"}, rec.types(s.ID))
	})
}

func TestEventShape(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		h := open(t, script(p, echo))
		sub, err := h.Event.Subscribe(t.Context())
		require.NoError(t, err)
		defer sub.Close()
		e, err := sub.Next(t.Context())
		require.NoError(t, err)
		first := object(t, e)
		require.Equal(t, "server.connected", first["type"])
		require.NotContains(t, first, "created")
		id := create(t, h)
		e, err = sub.Next(t.Context())
		require.NoError(t, err)
		got := object(t, e)
		require.Regexp(t, `^evt_[0-9a-f]{12}[0-9A-Za-z]{14}$`, got["id"])
		if p.Generation == 1 {
			require.ElementsMatch(t, []string{"id", "type", "properties"}, keys(got))
			require.Equal(t, id, got["properties"].(map[string]any)["info"].(map[string]any)["id"])
			return
		}
		require.ElementsMatch(t, []string{"id", "created", "type", "durable", "location", "data"}, keys(got))
		require.Equal(t, map[string]any{"aggregateID": id, "seq": 1.0, "version": 1.0}, got["durable"])
	})
}

func keys(m map[string]any) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

func TestFeed(t *testing.T) {
	bubble(t, "4096 frames behind cuts only that subscriber", func(t *testing.T) {
		h := open(t, nil)
		slow, err := h.Event.Subscribe(t.Context())
		require.NoError(t, err)
		rec := record(t, h)
		for range 4095 {
			require.NoError(t, h.Event.Publish(t.Context(), "test.event", "", nil))
		}
		synctest.Wait()
		late, err := h.Event.Subscribe(t.Context())
		require.NoError(t, err)
		_, err = slow.Next(t.Context()) // 4096 minus one
		require.NoError(t, err)
		require.NoError(t, h.Event.Publish(t.Context(), "test.event", "", nil))
		_, err = slow.Next(t.Context())
		require.NoError(t, err, "at the limit it is not over it")
		for range 2 {
			require.NoError(t, h.Event.Publish(t.Context(), "test.event", "", nil))
		}
		_, err = slow.Next(t.Context())
		require.ErrorIs(t, err, fakehost.ErrOverflow)
		_, err = late.Next(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		require.Len(t, rec.stop(), 1+4095+3)
	})

	bubble(t, "nothing is replayed, and the other window's events are not there", func(t *testing.T) {
		path := t.TempDir() + "/host.db"
		a, b := openAt(t, path, script(fakehost.V2_0, echo)), openAt(t, path, script(fakehost.V2_0, echo))
		before := create(t, a)
		recA, recB := record(t, a), record(t, b)
		id := create(t, a)
		prompt(t, a, id, "x")
		wait(t, a, id)
		require.Equal(t, "assistant: echo: x", texts(t, b, id)[1], "what is stored is shared")
		require.NotEmpty(t, recA.types(id))
		require.Empty(t, recA.types(before))
		require.Len(t, recB.stop(), 1)
	})

	bubble(t, "ends with the host", func(t *testing.T) {
		h := open(t, nil)
		sub, err := h.Event.Subscribe(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Close())
		_, err = sub.Next(t.Context())
		require.NoError(t, err)
		_, err = sub.Next(t.Context())
		require.ErrorIs(t, err, team.ErrClosed)
	})
}

func TestLog(t *testing.T) {
	read := func(t *testing.T, h *fakehost.Host, id string, after int64) (types []string, seqs []int64) {
		for e, err := range h.Log.Read(t.Context(), id, after, false) {
			require.NoError(t, err)
			types, seqs = append(types, e.Type), append(seqs, e.Durable.Seq)
		}
		return types, seqs
	}
	bubble(t, "has what is durable, then a marker, from any point", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, echo))
		rec := record(t, h)
		id := create(t, h)
		prompt(t, h, id, "a")
		wait(t, h, id)
		types, seqs := read(t, h, id, -1)
		require.Equal(t, []string{"session.created", "session.inbox.enqueued", "session.execution.started", "session.inbox.delivered",
			"session.step.started", "session.text.started", "session.text.ended", "session.step.streamed", "session.step.ended",
			"session.usage.recorded", "session.execution.succeeded", "log.synced"}, types)
		for i := 1; i < len(seqs)-1; i++ {
			require.Greater(t, seqs[i], seqs[i-1])
		}
		require.Equal(t, seqs[len(seqs)-2], seqs[len(seqs)-1])
		rest, _ := read(t, h, id, seqs[2])
		require.Equal(t, types[3:], rest, "after is exclusive")

		var live []int64
		synctest.Wait()
		for _, e := range rec.stop() {
			if e.Session == id && e.Durable != nil {
				live = append(live, e.Durable.Seq)
			}
		}
		require.NotEqual(t, int64(len(live)), live[len(live)-1]-live[0]+1, "the feed has a gap where the log has an internal event")
	})

	bubble(t, "follow goes on with what happens", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, echo))
		id := create(t, h)
		ctx, cancel := context.WithCancel(t.Context())
		var types []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			for e, err := range h.Log.Read(ctx, id, -1, true) {
				if err != nil {
					return
				}
				types = append(types, e.Type)
			}
		}()
		synctest.Wait()
		prompt(t, h, id, "a")
		wait(t, h, id)
		synctest.Wait()
		cancel()
		<-done
		require.Equal(t, []string{"session.created", "log.synced", "session.inbox.enqueued"}, types[:3])
		require.Equal(t, "session.execution.succeeded", types[len(types)-1])
	})

	t.Run("is absent in v1.18", func(t *testing.T) {
		h := open(t, &fakehost.Options{Profile: fakehost.V1_18})
		require.Nil(t, h.Log)
		require.Nil(t, h.Inbox)
		require.Nil(t, h.KV)
		require.Nil(t, h.Storage())
	})
}

func TestIDs(t *testing.T) {
	bubble(t, "have 12 hex digits of the time and 14 of chance; those of sessions descend", func(t *testing.T) {
		h := open(t, &fakehost.Options{Start: fakehost.IDWrap.Add(time.Hour)})
		first := create(t, h)
		require.Regexp(t, regexp.MustCompile(`^ses_[0-9a-f]{12}[0-9A-Za-z]{14}$`), first)
		v, err := strconv.ParseUint(first[4:16], 16, 64)
		require.NoError(t, err)
		ms := uint64(fakehost.IDWrap.Add(time.Hour).UnixMilli())
		require.Equal(t, (ms*4096+1)&(1<<48-1), ^v&(1<<48-1))
		time.Sleep(time.Second)
		require.Less(t, create(t, h), first)
	})

	bubble(t, "sort on the wrong side over the wrap, which seq and order do not", func(t *testing.T) {
		h := open(t, &fakehost.Options{Start: fakehost.IDWrap.Add(-time.Second)})
		id := create(t, h)
		before := send(t, h, id, fakehost.Prompt{Text: "before", NoResume: true})
		time.Sleep(2 * time.Second)
		after := send(t, h, id, fakehost.Prompt{Text: "after", NoResume: true})
		require.Less(t, after.ID, before.ID)
		require.Greater(t, after.Seq, before.Seq)
		require.NoError(t, h.Session.Resume(t.Context(), id))
		require.Equal(t, []string{"user: before", "user: after", "assistant: ok", "idle"}, texts(t, h, id))
	})

	bubble(t, "a clock that jumps back keeps the order", func(t *testing.T) {
		h := open(t, nil)
		id := create(t, h)
		a := send(t, h, id, fakehost.Prompt{Text: "a", NoResume: true})
		h.JumpClock(-time.Hour)
		b := send(t, h, id, fakehost.Prompt{Text: "b", NoResume: true})
		require.Less(t, b.Created, a.Created)
		list, err := h.Inbox.List(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []fakehost.InboxItem{a, b}, list)
	})
}

func TestRestart(t *testing.T) {
	busy := func(t *testing.T, path string) (*fakehost.Host, string) {
		opts := script(fakehost.V2_0, slow)
		opts.Tools = []fakehost.Tool{napTool()}
		h := openAt(t, path, opts)
		id := create(t, h)
		prompt(t, h, id, "a")
		time.Sleep(time.Second / 2)
		return h, id
	}
	bubble(t, "a shutdown interrupts with that reason, keeps the claim and writes no idle", func(t *testing.T) {
		path := t.TempDir() + "/host.db"
		h, id := busy(t, path)
		require.NoError(t, h.Close())
		h = openAt(t, path, script(fakehost.V2_0, echo))
		list, err := h.Session.Unfinished(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, "shutdown", list[0].Claim)
		require.Empty(t, list[0].Outcome)
		var last fakehost.Event
		for e, err := range h.Log.Read(t.Context(), id, -1, false) {
			require.NoError(t, err)
			if e.Type != "log.synced" {
				last = e
			}
		}
		require.Equal(t, "session.execution.interrupted", last.Type)
		require.Equal(t, "shutdown", object(t, last)["data"].(map[string]any)["reason"])
		require.Equal(t, []string{"user: a", "assistant"}, texts(t, h, id))

		require.NoError(t, h.Session.Recover(t.Context()))
		wait(t, h, id)
		list, err = h.Session.Unfinished(t.Context())
		require.NoError(t, err)
		require.Empty(t, list)
		require.Equal(t, "idle", texts(t, h, id)[4])
	})

	bubble(t, "a crash leaves started without an end", func(t *testing.T) {
		path := t.TempDir() + "/host.db"
		h, id := busy(t, path)
		h.Kill()
		h = openAt(t, path, script(fakehost.V2_0, echo))
		list, err := h.Session.Unfinished(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, "running", list[0].Claim)
		for e, err := range h.Log.Read(t.Context(), id, -1, false) {
			require.NoError(t, err)
			require.NotRegexp(t, `^session\.execution\.(succeeded|failed|interrupted)$`, e.Type)
		}
	})

	bubble(t, "Options.Recover goes on by itself", func(t *testing.T) {
		path := t.TempDir() + "/host.db"
		h, id := busy(t, path)
		h.Kill()
		opts := script(fakehost.V2_0, echo)
		opts.Recover = true
		h = openAt(t, path, opts)
		wait(t, h, id)
		s, err := h.Session.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "succeeded", s.Outcome)
	})
}

func TestFaults(t *testing.T) {
	bubble(t, "the hook fails any call, and loses events", func(t *testing.T) {
		var calls []string
		opts := script(fakehost.V2_0, echo)
		opts.Fault = func(_ context.Context, c fakehost.Call) error {
			switch {
			case c.String() == "session.prompt" && c.Name == "msg_bad":
				return io.ErrClosedPipe
			case c.Name == "session.inbox.delivered":
				return fakehost.ErrDrop
			}
			if c.Domain != "event" {
				calls = append(calls, c.String())
			}
			return nil
		}
		h := open(t, opts)
		rec := record(t, h)
		id := create(t, h)
		_, err := h.Session.Prompt(t.Context(), id, fakehost.Prompt{ID: "msg_bad", Text: "x"})
		require.ErrorIs(t, err, io.ErrClosedPipe)
		list, err := h.Inbox.List(t.Context(), id)
		require.NoError(t, err)
		require.Empty(t, list)
		prompt(t, h, id, "a")
		wait(t, h, id)
		require.Equal(t, []string{"session.create", "inbox.list", "session.prompt", "session.get", "session.wait"}, calls)
		require.NotContains(t, rec.types(id), "session.inbox.delivered")
	})

	bubble(t, "a missing terminal event leaves neither outcome nor idle", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, echo))
		h.Inject(fakehost.FaultTerminalMissing)
		rec := record(t, h)
		id := create(t, h)
		prompt(t, h, id, "a")
		wait(t, h, id)
		s, err := h.Session.Get(t.Context(), id)
		require.NoError(t, err)
		require.Empty(t, s.Outcome)
		require.Equal(t, "running", s.Claim)
		require.Equal(t, []string{"session.execution.started"}, only(rec.types(id), "session.execution."))
	})

	each(t, func(t *testing.T, p fakehost.Profile) {
		h := open(t, script(p, echo))
		h.Inject(fakehost.FaultEndlessRetry)
		rec := record(t, h)
		id := create(t, h)
		prompt(t, h, id, "a")
		time.Sleep(10 * time.Minute)
		active, err := h.Session.Active(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{id}, active)
		_, err = h.Session.Interrupt(t.Context(), id, false)
		require.NoError(t, err)
		wait(t, h, id)
		retries := 0
		synctest.Wait()
		for _, e := range rec.stop() {
			if e.Type == "session.retry.scheduled" || e.Type == "session.status" && object(t, e)["properties"].(map[string]any)["status"].(map[string]any)["type"] == "retry" {
				retries++
			}
		}
		require.Greater(t, retries, 10)
	})

	bubble(t, "a stream is cut in mid frame, or overflows", func(t *testing.T) {
		for fault, want := range map[fakehost.Fault]error{fakehost.FaultStreamCut: io.ErrUnexpectedEOF, fakehost.FaultOverflow: fakehost.ErrOverflow} {
			h := open(t, &fakehost.Options{Faults: []fakehost.Fault{fault}})
			sub, err := h.Event.Subscribe(t.Context())
			require.NoError(t, err)
			create(t, h)
			_, err = sub.Next(t.Context())
			require.ErrorIs(t, err, want)
			h.Clear()
			sub, err = h.Event.Subscribe(t.Context())
			require.NoError(t, err)
			create(t, h)
			_, err = sub.Next(t.Context())
			require.NoError(t, err)
		}
	})

	bubble(t, "an empty result is a success without text", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, echo))
		h.Inject(fakehost.FaultEmptyResult)
		id := create(t, h)
		prompt(t, h, id, "a")
		wait(t, h, id)
		require.Equal(t, []string{"user: a", "assistant", "idle"}, texts(t, h, id))
	})

	bubble(t, "a step limit stops the turn, which is called succeeded", func(t *testing.T) {
		h := slowHost(t, fakehost.V2_0)
		h.Inject(fakehost.FaultStepLimit)
		id := create(t, h)
		prompt(t, h, id, "a")
		wait(t, h, id)
		require.Equal(t, []string{"user: a", "assistant", "idle"}, texts(t, h, id))
		s, err := h.Session.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "succeeded", s.Outcome)
	})

	bubble(t, "unknown event types come between the others", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, echo))
		h.Inject(fakehost.FaultUnknownEvents)
		rec := record(t, h)
		id := create(t, h)
		require.Equal(t, []string{"session.future.happened", "session.created"}, rec.types(id))
	})

	bubble(t, "slow storage takes two seconds, and heeds the context", func(t *testing.T) {
		h := open(t, nil)
		h.Inject(fakehost.FaultSlowStorage)
		begin := time.Now()
		require.NoError(t, h.KV.Set(t.Context(), "k", json.RawMessage("1")))
		require.Equal(t, 2*time.Second, time.Since(begin))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, h.KV.Set(ctx, "k", json.RawMessage("2")), context.DeadlineExceeded)
		v, err := h.KV.Get(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, "1", string(v))
	})
}

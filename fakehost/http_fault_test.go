package fakehost_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team/fakehost"
)

// What a client of the routes sees of the named faults. Streams that are cut are in TestStreams;
// the key-value storage and language servers have no routes.

// A browser is a client of a host of one generation.
type browser struct {
	*web
	p    fakehost.Profile
	h    *fakehost.Host
	root string // of the routes of sessions
	feed *tap
}

// browse serves a host whose agents play a script, and reads its stream.
func browse(t *testing.T, p fakehost.Profile, s fakehost.Script, faults ...fakehost.Fault) *browser {
	opts := script(p, s)
	opts.Faults = faults
	opts.Tools = []fakehost.Tool{napTool(), {Name: "careful", Run: func(ctx context.Context, c *fakehost.ToolCall) (fakehost.ToolOutput, error) {
		return fakehost.ToolOutput{Text: "done"}, c.Ask(ctx, "external_directory", []string{"/x"}, nil, nil)
	}}}
	b := &browser{p: p, h: open(t, opts), root: "/session"}
	b.web = serve(t, b.h)
	path := "/event"
	if p.Generation == 2 {
		b.root, path = "/api/session", "/api/event"
	}
	b.feed = b.tap(path)
	return b
}

func (b *browser) create() string { return at(b.object("POST", b.root, map[string]any{}), "id") }

// say prompts a session and lets everything rest.
func (b *browser) say(id, text string) {
	if b.p.Generation == 1 {
		b.ok("POST", b.root+"/"+id+"/prompt_async", map[string]any{"parts": []any{words(text)}})
	} else {
		b.ok("POST", b.root+"/"+id+"/prompt", map[string]any{"text": text})
	}
	synctest.Wait()
}

// messages returns the texts of a session's messages of one type, or role, oldest first.
func (b *browser) messages(id, typ string) []string {
	var list []any
	if b.p.Generation == 1 {
		list = b.ok("GET", b.root+"/"+id+"/message", nil).([]any)
	} else {
		list = b.ok("GET", b.root+"/"+id+"/message?order=asc", nil).(map[string]any)["data"].([]any)
	}
	out := []string{}
	for _, m := range list {
		parts := m.(map[string]any)["parts"]
		if b.p.Generation == 2 {
			parts = m.(map[string]any)["content"]
		}
		text, kind := at(m, "text"), at(m, "type")+at(m, "info", "role")
		all, _ := parts.([]any)
		for _, p := range all {
			text += at(p, "text")
			if p.(map[string]any)["synthetic"] == true {
				kind = "synthetic"
			}
		}
		if kind == typ {
			out = append(out, text)
		}
	}
	return out
}

// ends returns the types of events that end an execution.
func (b *browser) ends() []string {
	synctest.Wait()
	return only(b.feed.types(), "session.idle", "session.execution.succeeded", "session.execution.failed", "session.execution.interrupted")
}

// decline has the agent ask for a permission, and rejects it.
func (b *browser) decline(id string) {
	b.say(id, "go")
	list, err := b.h.Permission.List(b.t.Context(), id)
	require.NoError(b.t, err)
	require.Len(b.t, list, 1)
	path := "/permission/"
	if b.p.Generation == 2 {
		path = b.root + "/" + id + "/permission/"
	}
	b.ok("POST", path+list[0].ID+"/reply", map[string]any{"reply": "reject"})
	synctest.Wait()
}

func careful(ctx context.Context, t *fakehost.Turn) (string, error) {
	r, err := t.Call(ctx, "careful", map[string]any{})
	return "after it: " + r.Text, err
}

func TestFaultsOverHTTP(t *testing.T) {
	fault := func(name string, test func(t *testing.T, p fakehost.Profile)) {
		t.Run(name, func(t *testing.T) { each(t, test) })
	}
	end := map[int]string{1: "session.idle", 2: "session.execution.succeeded"}
	interrupted := map[int]string{1: "session.idle", 2: "session.execution.interrupted"}

	fault("terminal event missing", func(t *testing.T, p fakehost.Profile) {
		for _, faults := range [][]fakehost.Fault{nil, {fakehost.FaultTerminalMissing}} {
			b := browse(t, p, echo, faults...)
			id := b.create()
			b.say(id, "go")
			require.Equal(t, []string{"echo: go"}, b.messages(id, "assistant"))
			if faults == nil {
				require.Equal(t, []string{end[p.Generation]}, b.ends())
			} else {
				require.Empty(t, b.ends())
				require.NotContains(t, b.object("GET", b.root+"/"+id, nil), "outcome")
			}
		}
	})
	fault("shutdown after a decline", func(t *testing.T, p fakehost.Profile) {
		b := browse(t, p, careful)
		b.decline(b.create())
		require.Equal(t, []string{interrupted[p.Generation]}, b.ends())
		b = browse(t, p, careful, fakehost.FaultShutdownAfterDecline)
		id := b.create()
		b.decline(id)
		if p.Generation == 1 {
			require.Empty(t, b.ends(), "the turn goes on after a restart")
			return
		}
		require.Equal(t, []string{"session.execution.interrupted"}, b.ends())
		for _, f := range b.feed.seen() {
			if f["type"] == "session.execution.interrupted" {
				require.Equal(t, "shutdown", at(f, "data", "reason"))
			}
		}
		require.NotContains(t, b.object("GET", b.root+"/"+id, nil), "outcome")
		require.Empty(t, b.messages(id, "idle"))
	})
	fault("endless retry", func(t *testing.T, p fakehost.Profile) {
		b := browse(t, p, echo, fakehost.FaultEndlessRetry)
		id := b.create()
		b.say(id, "go")
		time.Sleep(5 * time.Minute)
		require.Empty(t, b.ends())
		if p.Generation == 1 {
			status := b.object("GET", "/session/status", nil)[id].(map[string]any)
			require.Equal(t, "retry", status["type"])
			require.Greater(t, status["attempt"], 5.0)
		} else {
			require.Contains(t, b.object("GET", b.root+"/active", nil), id)
			require.Greater(t, len(only(b.feed.types(), "session.retry.scheduled")), 5)
		}
		if p.Generation == 1 {
			b.ok("POST", b.root+"/"+id+"/abort", nil)
		} else {
			b.ok("POST", b.root+"/"+id+"/interrupt", nil)
		}
		require.NotEmpty(t, b.ends(), "only an interrupt ends it")
	})
	for _, c := range []struct {
		fault   fakehost.Fault
		notices int
	}{{"", 1}, {fakehost.FaultNoticeMissing, 0}, {fakehost.FaultNoticeDuplicate, 2}} {
		fault("completion notices: "+string(c.fault), func(t *testing.T, p fakehost.Profile) {
			b := browse(t, p, func(ctx context.Context, t *fakehost.Turn) (string, error) {
				if t.Text() != "go" {
					return "done", nil
				}
				_, err := t.Background(ctx, "general", "d", "p")
				return "started", err
			}, c.fault)
			id := b.create()
			b.say(id, "go")
			require.Len(t, b.messages(id, "synthetic"), c.notices)
		})
	}
	fault("empty result", func(t *testing.T, p fakehost.Profile) {
		b := browse(t, p, echo, fakehost.FaultEmptyResult)
		id := b.create()
		b.say(id, "go")
		require.Equal(t, []string{""}, b.messages(id, "assistant"))
		require.Equal(t, []string{end[p.Generation]}, b.ends())
	})
	fault("completed at the step limit", func(t *testing.T, p fakehost.Profile) {
		b := browse(t, p, func(ctx context.Context, t *fakehost.Turn) (string, error) {
			for range 2 {
				if _, err := t.Call(ctx, "nap", map[string]any{}); err != nil {
					return "", err
				}
			}
			return "finished", nil
		}, fakehost.FaultStepLimit)
		id := b.create()
		b.say(id, "go")
		time.Sleep(time.Minute)
		require.NotContains(t, strings.Join(b.messages(id, "assistant"), ""), "finished")
		require.Equal(t, []string{end[p.Generation]}, b.ends())
	})
	fault("completed after a denial", func(t *testing.T, p fakehost.Profile) {
		b := browse(t, p, careful, fakehost.FaultCompletedAfterDenial)
		id := b.create()
		b.decline(id)
		require.NotContains(t, strings.Join(b.messages(id, "assistant"), ""), "after it")
		require.Equal(t, []string{end[p.Generation]}, b.ends())
		if p.Generation == 2 {
			require.Equal(t, "succeeded", b.object("GET", b.root+"/"+id, nil)["outcome"])
		}
	})
	bubble(t, "ids compare payloads", func(t *testing.T) {
		for _, faults := range [][]fakehost.Fault{nil, {fakehost.FaultCompareMode}} {
			b := browse(t, fakehost.V2_0, echo, faults...)
			path := b.root + "/" + b.create() + "/prompt"
			b.ok("POST", path, map[string]any{"id": "msg_mine", "text": "one"})
			b.ok("POST", path, map[string]any{"id": "msg_mine", "text": "one"})
			status, answer := b.send("POST", path, `{"id":"msg_mine","text":"two"}`)
			if faults == nil {
				require.Equal(t, 200, status)
				require.Equal(t, "one", at(parse(t, answer), "data", "payload", "text"), "the first admission wins")
			} else {
				require.Equal(t, 409, status)
				require.Equal(t, "ConflictError", at(parse(t, answer), "_tag"))
			}
		}
	})
	fault("unknown event types", func(t *testing.T, p fakehost.Profile) {
		known := browse(t, p, echo)
		known.say(known.create(), "go")
		b := browse(t, p, echo, fakehost.FaultUnknownEvents)
		b.say(b.create(), "go")
		strange := slices.DeleteFunc(slices.Clone(b.feed.types()), func(typ string) bool { return slices.Contains(known.feed.types(), typ) })
		require.NotEmpty(t, strange)
		require.Len(t, b.feed.types(), len(known.feed.types())+len(strange), "one before each")
	})
	fault("clock jumps, and ids before and after the wrap", func(t *testing.T, p fakehost.Profile) {
		opts := script(p, nil)
		opts.Start = fakehost.IDWrap.Add(-time.Minute)
		h := open(t, opts)
		b := &browser{web: serve(t, h), p: p, h: h, root: map[int]string{1: "/session", 2: "/api/session"}[p.Generation]}
		session := func() (id string, created float64) {
			s := b.object("POST", b.root, map[string]any{})
			return at(s, "id"), s["time"].(map[string]any)["created"].(float64)
		}
		before, early := session()
		h.JumpClock(2 * time.Minute)
		after, late := session()
		require.Equal(t, 120_000.0, late-early)
		require.Greater(t, after, before, "ids descend, but for the wrap")
		h.JumpClock(-time.Hour)
		_, again := session()
		require.Less(t, again, early)
	})
	fault("one call fails, and one is slow", func(t *testing.T, p fakehost.Profile) {
		b := browse(t, p, echo)
		id := b.create()
		opts := script(p, echo)
		opts.Fault = func(ctx context.Context, c fakehost.Call) error {
			switch c.String() {
			case "session.get":
				return errors.New("disk on fire")
			case "session.messages":
				time.Sleep(time.Minute)
			}
			return nil
		}
		w := serve(t, open(t, opts))
		status, _ := w.send("GET", b.root+"/"+id, "")
		require.Equal(t, 500, status)
		began := time.Now()
		w.send("GET", b.root+"/"+id+"/message", "")
		require.Equal(t, time.Minute, time.Since(began))
	})
}

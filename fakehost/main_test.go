package fakehost_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

// open opens a host and closes it with the test. Call it inside the bubble.
func open(t *testing.T, opts *fakehost.Options) *fakehost.Host {
	t.Helper()
	return openAt(t, "", opts)
}

func openAt(t *testing.T, path string, opts *fakehost.Options) *fakehost.Host {
	t.Helper()
	h, err := fakehost.Open(t.Context(), path, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// script returns options with one script for the agents build and general.
func script(p fakehost.Profile, s fakehost.Script) *fakehost.Options {
	return &fakehost.Options{Profile: p, Agents: []fakehost.Agent{
		{Name: "build", Mode: "primary", Script: s}, {Name: "general", Mode: "subagent", Script: s}}}
}

func create(t *testing.T, h *fakehost.Host) string {
	t.Helper()
	s, err := h.Session.Create(t.Context(), fakehost.NewSession{Agent: "build"})
	require.NoError(t, err)
	return s.ID
}

func prompt(t *testing.T, h *fakehost.Host, session, text string) fakehost.InboxItem {
	t.Helper()
	return send(t, h, session, fakehost.Prompt{Text: text})
}

func send(t *testing.T, h *fakehost.Host, session string, p fakehost.Prompt) fakehost.InboxItem {
	t.Helper()
	item, err := h.Session.Prompt(t.Context(), session, p)
	require.NoError(t, err)
	return item
}

func wait(t *testing.T, h *fakehost.Host, session string) {
	t.Helper()
	require.NoError(t, h.Session.Wait(t.Context(), session))
}

// texts returns the history: the type of each message, with its text.
func texts(t *testing.T, h *fakehost.Host, session string) []string {
	t.Helper()
	list, err := h.Session.Messages(t.Context(), session, fakehost.MessagePage{})
	require.NoError(t, err)
	var out []string
	for _, m := range list {
		out = append(out, strings.TrimSuffix(m.Type+": "+m.Text(), ": "))
	}
	return out
}

// A recorder collects the events of a host.
type recorder struct {
	events []fakehost.Event
	done   chan struct{}
	cancel context.CancelFunc
}

func record(t *testing.T, h *fakehost.Host) *recorder {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &recorder{done: make(chan struct{}), cancel: cancel}
	all := h.Event.All(ctx)
	go func() {
		defer close(r.done)
		for e, err := range all {
			if err != nil {
				return
			}
			r.events = append(r.events, e)
		}
	}()
	t.Cleanup(func() { r.stop() })
	return r
}

// stop ends the recording once everything was received, in a bubble.
func (r *recorder) stop() []fakehost.Event {
	r.cancel()
	<-r.done
	return r.events
}

// types returns the types of a session's events, without those of text and steps' insides.
func (r *recorder) types(session string) []string {
	synctest.Wait()
	var out []string
	for _, e := range r.stop() {
		if e.Session == session {
			out = append(out, e.Type)
		}
	}
	return out
}

// only keeps the types that start with one of the prefixes.
func only(types []string, prefixes ...string) []string {
	return slices.DeleteFunc(slices.Clone(types), func(s string) bool {
		return !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
	})
}

func object(t *testing.T, v any) map[string]any {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	var out map[string]any
	require.NoError(t, json.Unmarshal(data, &out))
	return out
}

// each runs test for each profile, in a bubble.
func each(t *testing.T, test func(t *testing.T, p fakehost.Profile)) {
	for _, p := range []fakehost.Profile{fakehost.V1_18, fakehost.V2_0} {
		t.Run(p.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, p) })
		})
	}
}

func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func rule(action, resource string, effect team.Effect) fakehost.Rule {
	return fakehost.Rule{Action: action, Resource: resource, Effect: effect}
}

// mustField returns one field of an object.
func mustField(t *testing.T, data json.RawMessage, key string) json.RawMessage {
	t.Helper()
	var m map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data, &m))
	return m[key]
}

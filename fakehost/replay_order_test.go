package fakehost_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// An exception is where the real host is not the same from one run to the next.
type exception struct {
	why   string
	where []string // captures; nil is all

	// takes says which events have no place in the order, and how many there are is chance too.
	// Their fields and the types of these are compared all the same.
	takes func(event any) bool

	// order brings events into one order, where the host has two.
	order func([]any) []any
}

var exceptions = []exception{
	{
		why: "the host computes the summary of a prompt beside the turn, and says so in the user's message when it is done, " +
			"once for each step and once at the end, or once for two of them",
		takes: isSummary,
	},
	{
		why:   "the host shows the output of a running command every so often, if it runs that long",
		where: []string{"bash-truncated", "permission-once", "permission-always"},
		takes: func(e any) bool {
			state := inside(e, "properties", "part", "state")
			return at(e, "properties", "part", "tool") == "bash" && state["status"] == "running" && at(state, "metadata", "output") != ""
		},
	},
	{
		why:   "the summary of the session, too, is computed beside the turn: here it came behind the model's first byte",
		where: []string{"task-completed"},
		order: func(list []any) []any {
			for i := 2; i < len(list); i++ {
				if at(list[i-2], "properties", "status", "type") == "busy" && at(list[i-1], "type") == "session.updated" && at(list[i], "type") == "session.diff" {
					list[i-2], list[i-1], list[i] = list[i-1], list[i], list[i-2]
				}
			}
			return list
		},
	},
	{
		why:   "two commands run at the same time, and which of them shows something first is chance: the order of each is compared",
		where: []string{"permission-always"},
		order: func(list []any) []any {
			second := func(e any) bool {
				return at(e, "properties", "part", "callID") == "call#2" || at(e, "properties", "requestID") == "per#2"
			}
			from := slices.IndexFunc(list, func(e any) bool { return at(e, "type") == "permission.replied" })
			to := slices.IndexFunc(list, func(e any) bool { return at(e, "properties", "part", "type") == "step-finish" })
			later, first := split(list[from:to], func(e any) bool { return !second(e) })
			return slices.Concat(list[:from], first, later, list[to:])
		},
	},
}

func isSummary(e any) bool {
	info := inside(e, "properties", "info")
	return at(e, "type") == "message.updated" && info["role"] == "user" && info["summary"] != nil
}

// inside returns an object inside of objects, nil if it is not there.
func inside(v any, path ...string) map[string]any {
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	m, _ := v.(map[string]any)
	return m
}

func compareEvents(t *testing.T, name string, want, got []any) {
	t.Helper()
	sessions, wants := perSession(want)
	others, gots := perSession(got)
	require.Equal(t, sessions, others, "%s: other sessions", name)
	for _, s := range sessions {
		w, g := wants[s], gots[s]
		for _, x := range exceptions {
			if x.where != nil && !slices.Contains(x.where, name) {
				continue
			}
			if x.order != nil {
				w, g = x.order(w), x.order(g)
				continue
			}
			var wx, gx []any
			w, wx = split(w, x.takes)
			g, gx = split(g, x.takes)
			for i := range min(len(wx), len(gx)) {
				for _, d := range same(name+" "+s+" beside the order", kinds(wx[i]), kinds(gx[i])) {
					t.Error(d)
				}
			}
		}
		for _, d := range lineUp(name+" "+s, w, g) {
			t.Error(d)
		}
	}
}

// kinds returns v with the kind of each value in its place.
func kinds(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any)
		for k := range v {
			out[k] = kinds(v[k])
		}
		return out
	case []any:
		out := []any{}
		for i := range v {
			out = append(out, kinds(v[i]))
		}
		return out
	default:
		return fmt.Sprintf("%T", v)
	}
}

// split takes out of a list what takes says.
func split(list []any, takes func(any) bool) (rest, taken []any) {
	for _, e := range list {
		if takes(e) {
			taken = append(taken, e)
		} else {
			rest = append(rest, e)
		}
	}
	return rest, taken
}

func perSession(events []any) (order []string, by map[string][]any) {
	by = make(map[string][]any)
	for _, e := range events {
		id := at(e, "properties", "sessionID")
		if by[id] == nil {
			order = append(order, id)
		}
		by[id] = append(by[id], e)
	}
	return order, by
}

package hosttest

// Inside tests, since what is tested is that single laws fail: that a law which holds
// for a good host is broken by a bad one.

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/teamchan/team"
)

// The laws hold for a host that keeps them.
func TestGoodHost(t *testing.T) {
	t.Run("sessions", func(t *testing.T) {
		Sessions(t, func(testing.TB) SessionsHost { return newHost().sessions() })
	})
	t.Run("events", func(t *testing.T) {
		Events(t, func(testing.TB) EventsHost { return newHost().stream() })
	})
	t.Run("storage", func(t *testing.T) {
		Storage(t, func(testing.TB) StorageHost { return newHost().storage() })
	})
	t.Run("tools", func(t *testing.T) {
		Tools(t, func(testing.TB) ToolsHost { return newHost().tools() })
	})
	t.Run("permissions", func(t *testing.T) {
		Permissions(t, func(testing.TB) PermissionsHost { return newHost().permissions() })
	})
}

// breaks checks that a law is broken, and that every law of a port is.
func breaks[H any](t *testing.T, laws []law[H], mutants map[string]func() H) {
	byName := make(map[string]law[H])
	for _, l := range laws {
		if l.says == "" || strings.HasSuffix(l.says, ".") {
			t.Errorf("law %s says %q, want a sentence without its full stop", l.name, l.says)
		}
		if _, twice := byName[l.name]; twice {
			t.Errorf("two laws are named %q", l.name)
		}
		byName[l.name] = l
	}
	for name, bad := range mutants {
		law, how, _ := strings.Cut(name, ": ")
		l, ok := byName[law]
		if !ok {
			t.Errorf("a mutant breaks law %q, want one that there is", law)
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := evaluate(l, bad(), 400*time.Millisecond)
			if err == nil {
				t.Fatalf("law %q holds, want it broken by a host that %s", l.says, how)
			}
			t.Log(err)
		})
	}
	for law := range byName {
		found := false
		for name := range mutants {
			found = found || strings.HasPrefix(name, law+": ")
		}
		if !found {
			t.Errorf("no mutant breaks law %q", law)
		}
	}
}

func TestBrokenSessions(t *testing.T) {
	bad := func(bend func(*testHost)) func() SessionsHost {
		return func() SessionsHost {
			h := newHost()
			bend(h)
			return h.sessions()
		}
	}
	breaks(t, sessionLaws, map[string]func() SessionsHost{
		"session/known: answers with another session": bad(func(h *testHost) { h.session = func(id team.SessionID) team.SessionID { return id + "x" } }),
		"session/unknown: knows everybody":            bad(func(h *testHost) { h.knowsAll = true }),
		"session/strange id: cleans ids": bad(func(h *testHost) {
			h.session = func(id team.SessionID) team.SessionID { return team.SessionID(strings.Trim(string(id), "/\n\x00")) }
		}),
		"session/parent: forgets parents":              bad(func(h *testHost) { h.orphans = true }),
		"deliver/held: holds nothing":                  bad(func(h *testHost) { h.store = func(string) []string { return nil } }),
		"deliver/whole: trims":                         bad(func(h *testHost) { h.store = func(s string) []string { return []string{strings.TrimSpace(s)} } }),
		"deliver/order: puts the newest first":         bad(func(h *testHost) { h.reverse = true }),
		"deliver/again: doubles":                       bad(func(h *testHost) { h.doubles = true }),
		"deliver/at once: looks, then writes":          bad(func(h *testHost) { h.races = true }),
		"deliver/other text: claims that it took both": bad(func(h *testHost) { h.echoes = true }),
		"deliver/foreign id: goes where the id is":     bad(func(h *testHost) { h.foreign = true }),
		"deliver/no wake: wakes":                       bad(func(h *testHost) { h.wakes = true }),
		"deliver/ended context: delivers all the same": bad(func(h *testHost) { h.deaf = true }),
		"interrupt/idle: always says stopped":          bad(func(h *testHost) { h.verdict = team.InterruptStopped }),
		"interrupt/working: always says idle":          bad(func(h *testHost) { h.verdict = team.InterruptIdle }),
		"interrupt/keeps notes: empties the inbox":     bad(func(h *testHost) { h.empties = true }),
	})
}

func TestBrokenEvents(t *testing.T) {
	bad := func(events func(h *testHost, ctx context.Context, yield func(team.Event, error) bool)) func() EventsHost {
		return func() EventsHost {
			h := newHost()
			s := h.stream()
			s.Events = eventsFunc(func(ctx context.Context) iter.Seq2[team.Event, error] {
				return func(yield func(team.Event, error) bool) { events(h, ctx, yield) }
			})
			return s
		}
	}
	through := func(change func(team.Event, error) (team.Event, error, bool)) func() EventsHost {
		return bad(func(h *testHost, ctx context.Context, yield func(team.Event, error) bool) {
			for e, err := range h.Events(ctx) {
				e, err, pass := change(e, err)
				if pass && !yield(e, err) {
					return
				}
			}
		})
	}
	breaks(t, eventLaws, map[string]func() EventsHost{
		"events/come: says no session": through(func(e team.Event, err error) (team.Event, error, bool) { e.Session = ""; return e, err, true }),
		"events/everybody: one reader only": func() EventsHost {
			h := newHost()
			h.oneReader = true
			return h.stream()
		},
		"events/context: never ends": bad(func(h *testHost, ctx context.Context, yield func(team.Event, error) bool) {
			for e := range h.Events(context.Background()) {
				if !yield(e, nil) {
					return
				}
			}
		}),
		"events/stop: works once": func() EventsHost {
			h, first := newHost(), true
			s := h.stream()
			s.Events = eventsFunc(func(ctx context.Context) iter.Seq2[team.Event, error] {
				if !first {
					return func(func(team.Event, error) bool) {}
				}
				first = false
				return h.Events(ctx)
			})
			return s
		},
		"events/break: ends without an error": through(func(e team.Event, err error) (team.Event, error, bool) { return e, err, err == nil }),
		"events/unknown: drops what it does not know": through(func(e team.Event, err error) (team.Event, error, bool) {
			return e, err, e.Type != "hosttest.never.heard"
		}),
		"events/numbers: counts down": func() EventsHost {
			h := newHost()
			h.seq = func(n uint64) uint64 { return 1000 - n }
			s := h.stream()
			same, _ := s.Happen(context.Background())
			s.Happen = func(context.Context) (team.SessionID, error) { h.emit("session.touched", same, nil); return same, nil }
			return s
		},
	})
}

func TestBrokenStorage(t *testing.T) {
	bad := func(bend func(*testHost)) func() StorageHost {
		return func() StorageHost {
			h := newHost()
			bend(h)
			return h.storage()
		}
	}
	breaks(t, storageLaws, map[string]func() StorageHost{
		"get/none: returns null for what is not there": bad(func(h *testHost) { h.nulls = true }),
		"set/any value: keeps no null":                 bad(func(h *testHost) { h.keep = func(v string) string { return strings.ReplaceAll(v, "null", "0") } }),
		"set/overwrites: keeps the first":              bad(func(h *testHost) { h.first = true }),
		"set/no JSON: takes anything":                  bad(func(h *testHost) { h.takesAll = true }),
		"remove/none: complains":                       bad(func(h *testHost) { h.complains = true }),
		"scan/order: takes a prefix without case":      bad(func(h *testHost) { h.folds = true }),
		"scan/after: includes after":                   bad(func(h *testHost) { h.inclusive = true }),
		"scan/many: one page only":                     bad(func(h *testHost) { h.page = 1000 }),
		"storage/shared: each window has its own": func() StorageHost {
			s := newHost().storage()
			s.Another = func(context.Context) (team.Storage, error) { return newHost().storage().Storage, nil }
			return s
		},
	})
}

func TestBrokenTools(t *testing.T) {
	bad := func(wrap func(rewrite func(context.Context, team.ToolResult) (team.ToolResult, error)) func(context.Context, team.ToolResult) (team.ToolResult, error), ignoreStop bool) func() ToolsHost {
		return func() ToolsHost {
			h := newHost()
			s := h.tools()
			s.Tools = toolsFunc(func(rewrite func(context.Context, team.ToolResult) (team.ToolResult, error)) func() {
				stop := h.AfterTool(wrap(rewrite))
				if ignoreStop {
					return func() {}
				}
				return stop
			})
			return s
		}
	}
	type rw = func(context.Context, team.ToolResult) (team.ToolResult, error)
	breaks(t, toolLaws, map[string]func() ToolsHost{
		"after/sees: says no session": bad(func(f rw) rw {
			return func(ctx context.Context, r team.ToolResult) (team.ToolResult, error) {
				r.Session = ""
				return f(ctx, r)
			}
		}, false),
		"after/replaces: drops what rewrite returns": bad(func(f rw) rw {
			return func(ctx context.Context, r team.ToolResult) (team.ToolResult, error) {
				_, err := f(ctx, r)
				return r, err
			}
		}, false),
		"after/error: takes a failed result": bad(func(f rw) rw {
			return func(ctx context.Context, r team.ToolResult) (team.ToolResult, error) { r, _ = f(ctx, r); return r, nil }
		}, false),
		"after/stop: goes on": bad(func(f rw) rw { return f }, true),
		"after/several: knows the last only": func() ToolsHost {
			h := newHost()
			h.lastOnly = true
			return h.tools()
		},
	})
}

func TestBrokenPermissions(t *testing.T) {
	bad := func(evaluate func(h *testHost, rules []PermissionRule, resource string) team.Effect) func() PermissionsHost {
		return func() PermissionsHost {
			h := newHost()
			s := h.permissions()
			s.Permissions = team.PermissionsFunc(func(_ context.Context, id team.SessionID, _, resource string) (team.Effect, error) {
				return evaluate(h, h.rules[id], resource), nil
			})
			return s
		}
	}
	breaks(t, permissionLaws, map[string]func() PermissionsHost{
		"evaluate/effects: allows everything": bad(func(*testHost, []PermissionRule, string) team.Effect { return team.Allow }),
		"evaluate/last wins: takes the first": bad(func(_ *testHost, rules []PermissionRule, resource string) team.Effect {
			for _, r := range rules {
				if glob(r.Resource, resource) {
					return r.Effect
				}
			}
			return team.Ask
		}),
		"evaluate/wildcards: a star stops at a slash": bad(func(_ *testHost, rules []PermissionRule, resource string) team.Effect {
			e := team.Ask
			for _, r := range rules {
				if glob(r.Resource, resource) && (r.Resource == "*" || strings.Count(r.Resource, "/") == strings.Count(resource, "/")) {
					e = r.Effect
				}
			}
			return e
		}),
		"evaluate/no dialog: asks": bad(func(h *testHost, rules []PermissionRule, resource string) team.Effect {
			h.dialogs++
			return last(rules, resource)
		}),
		"evaluate/unknown session: asks by default": bad(func(_ *testHost, rules []PermissionRule, resource string) team.Effect { return last(rules, resource) }),
	})
}

// What a host lacks is skipped for the host's reason, and only then.
func TestLacks(t *testing.T) {
	h := newHost().sessions()
	h.Child, h.Lacks = nil, map[string]string{"Child": "no children here"}
	if there, why := h.lacking("Child"); there || why != "no children here" {
		t.Errorf("lacking(Child) = %v, %q", there, why)
	}
	if there, why := h.lacking("Work"); !there {
		t.Errorf("lacking(Work) = %v, %q, want it there", there, why)
	}
}

// A host that never returns breaks its law, and hangs no test.
func TestHang(t *testing.T) {
	l := law[int]{says: "it returns", check: func(context.Context, int) error { select {} }}
	if err := evaluate(l, 0, time.Millisecond); err == nil {
		t.Error("a law whose host hangs holds, want it broken")
	}
}

type eventsFunc func(context.Context) iter.Seq2[team.Event, error]

func (f eventsFunc) Events(ctx context.Context) iter.Seq2[team.Event, error] { return f(ctx) }

type toolsFunc func(func(context.Context, team.ToolResult) (team.ToolResult, error)) func()

func (f toolsFunc) AfterTool(rewrite func(context.Context, team.ToolResult) (team.ToolResult, error)) func() {
	return f(rewrite)
}

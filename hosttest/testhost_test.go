package hosttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/teamchan/team"
)

// A testHost is a host in memory that keeps every law, but where one of its fields says
// otherwise.
type testHost struct {
	mu      sync.Mutex
	n       int
	parents map[team.SessionID]team.SessionID // the sessions
	notes   map[team.SessionID][]testNote
	works   map[team.SessionID]bool
	readers map[chan team.Event]chan struct{} // the second is closed by a cut
	values  map[string]json.RawMessage
	rewrite []*rewriter
	rules   map[team.SessionID][]PermissionRule
	dialogs int
	events  uint64

	session                                                                           func(team.SessionID) team.SessionID
	store                                                                             func(string) []string
	seq                                                                               func(uint64) uint64
	verdict                                                                           team.InterruptVerdict
	keep                                                                              func(string) string
	page                                                                              int
	knowsAll, orphans, reverse, doubles, races, echoes, foreign, wakes, deaf, empties bool
	oneReader, nulls, first, takesAll, complains, folds, inclusive, lastOnly          bool
}

type testNote struct{ id, text string }

type rewriter struct {
	f func(context.Context, team.ToolResult) (team.ToolResult, error)
}

func newHost() *testHost {
	return &testHost{parents: make(map[team.SessionID]team.SessionID), notes: make(map[team.SessionID][]testNote), works: make(map[team.SessionID]bool),
		readers: make(map[chan team.Event]chan struct{}), values: make(map[string]json.RawMessage), rules: make(map[team.SessionID][]PermissionRule)}
}

func (h *testHost) add(parent team.SessionID) team.SessionID {
	h.mu.Lock()
	h.n++
	id := team.SessionID(fmt.Sprintf("ses_%d", h.n))
	h.parents[id] = parent
	h.mu.Unlock()
	h.emit("session.created", id, json.RawMessage(`{}`))
	return id
}

func (h *testHost) sessions() SessionsHost {
	return SessionsHost{
		Sessions: h, Unknown: "ses_0",
		New:   func(context.Context) (team.SessionID, error) { return h.add(""), nil },
		Child: func(_ context.Context, parent team.SessionID) (team.SessionID, error) { return h.add(parent), nil },
		Texts: func(_ context.Context, id team.SessionID) (texts []string, err error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, n := range h.notes[id] {
				texts = append(texts, n.text)
			}
			return texts, nil
		},
		Work: func(_ context.Context, id team.SessionID) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.works[id] = true
			return nil
		},
		Works: func(_ context.Context, id team.SessionID) (bool, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.works[id], nil
		},
	}
}

func (h *testHost) Session(_ context.Context, id team.SessionID) (team.Session, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != nil {
		id = h.session(id)
	}
	parent, ok := h.parents[id]
	if !ok && !h.knowsAll && h.session == nil || h.session != nil && !ok && id == "" {
		return team.Session{}, team.ErrNotFound
	}
	if h.orphans {
		parent = ""
	}
	return team.Session{ID: id, Parent: parent, Raw: json.RawMessage(`{}`)}, nil
}

func (h *testHost) Deliver(ctx context.Context, to team.SessionID, n team.Note) (team.Delivered, error) {
	if ctx.Err() != nil && !h.deaf {
		return team.Delivered{}, ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.parents[to]; !ok {
		return team.Delivered{}, team.ErrNotFound
	}
	var held *testNote
	for at, notes := range h.notes {
		for i := range notes {
			if notes[i].id == n.ID {
				if at != to && h.foreign {
					to = at
				} else if at != to {
					return team.Delivered{}, team.ErrConflict
				} else if !h.doubles {
					held = &notes[i]
				}
			}
		}
	}
	if h.races {
		h.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		h.mu.Lock()
	}
	if held != nil {
		if h.echoes {
			return team.Delivered{ID: n.ID, Text: n.Text}, nil
		}
		return team.Delivered{ID: n.ID, Text: held.text}, nil
	}
	texts := []string{n.Text}
	if h.store != nil {
		texts = h.store(n.Text)
	}
	for _, text := range texts {
		h.notes[to] = append(h.notes[to], testNote{n.ID, text})
	}
	if h.reverse {
		slices.Reverse(h.notes[to])
	}
	h.works[to] = h.works[to] || n.Wake || h.wakes
	return team.Delivered{ID: n.ID, Text: n.Text}, nil
}

func (h *testHost) Interrupt(_ context.Context, id team.SessionID) (team.InterruptVerdict, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.parents[id]; !ok {
		return team.InterruptUnknown, team.ErrNotFound
	}
	v := team.InterruptIdle
	if h.works[id] {
		v = team.InterruptStopped
	}
	h.works[id] = false
	if h.empties {
		h.notes[id] = nil
	}
	if h.verdict != "" {
		v = h.verdict
	}
	return v, nil
}

func (h *testHost) emit(typ string, id team.SessionID, data json.RawMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events++
	n := h.events
	if h.seq != nil {
		n = h.seq(n)
	}
	if data == nil {
		data = json.RawMessage(`{}`)
	}
	for r := range h.readers {
		select {
		case r <- team.Event{Type: typ, Session: id, Data: data, Seq: n}:
		default:
		}
		if h.oneReader {
			return
		}
	}
}

var errCut = errors.New("cut")

func (h *testHost) Events(ctx context.Context) iter.Seq2[team.Event, error] {
	return func(yield func(team.Event, error) bool) {
		events, cut := make(chan team.Event, 100), make(chan struct{})
		h.mu.Lock()
		if h.oneReader {
			clear(h.readers)
		}
		h.readers[events] = cut
		h.mu.Unlock()
		defer func() {
			h.mu.Lock()
			delete(h.readers, events)
			h.mu.Unlock()
		}()
		for {
			select {
			case e := <-events:
				if !yield(e, nil) {
					return
				}
			case <-cut:
				yield(team.Event{}, errCut)
				return
			case <-ctx.Done():
				return
			}
		}
	}
}

func (h *testHost) stream() EventsHost {
	return EventsHost{
		Events: h,
		Happen: func(context.Context) (team.SessionID, error) { return h.add(""), nil },
		Cut: func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			for r, cut := range h.readers {
				close(cut)
				delete(h.readers, r)
			}
		},
		Inject: func(_ context.Context, typ string, data json.RawMessage) error { h.emit(typ, "", data); return nil },
	}
}

type testStorage struct{ h *testHost }

func (h *testHost) storage() StorageHost {
	return StorageHost{Storage: testStorage{h}, Another: func(context.Context) (team.Storage, error) { return testStorage{h}, nil }}
}

func (s testStorage) Get(_ context.Context, key string) (json.RawMessage, error) {
	v, ok := s.h.values[key]
	if !ok && s.h.nulls {
		return json.RawMessage(`null`), nil
	}
	if !ok {
		return nil, team.ErrNotFound
	}
	return v, nil
}

func (s testStorage) Set(_ context.Context, key string, value json.RawMessage) error {
	if !json.Valid(value) && !s.h.takesAll {
		return &team.InvalidError{What: "value", Why: "is no JSON", Offset: -1}
	}
	if _, ok := s.h.values[key]; ok && s.h.first {
		return nil
	}
	if s.h.keep != nil {
		value = json.RawMessage(s.h.keep(string(value)))
	}
	s.h.values[key] = value
	return nil
}

func (s testStorage) Remove(_ context.Context, key string) error {
	if _, ok := s.h.values[key]; !ok && s.h.complains {
		return team.ErrNotFound
	}
	delete(s.h.values, key)
	return nil
}

func (s testStorage) Scan(_ context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		n := 0
		for _, k := range slices.Sorted(maps.Keys(s.h.values)) {
			in := strings.HasPrefix(k, prefix)
			if s.h.folds {
				in = strings.HasPrefix(strings.ToLower(k), strings.ToLower(prefix))
			}
			if !in || k < after || k == after && !s.h.inclusive {
				continue
			}
			if n++; s.h.page > 0 && n > s.h.page || !yield(k, nil) {
				return
			}
		}
	}
}

func (h *testHost) AfterTool(rewrite func(context.Context, team.ToolResult) (team.ToolResult, error)) (stop func()) {
	r := &rewriter{rewrite}
	if h.lastOnly {
		h.rewrite = nil
	}
	h.rewrite = append(h.rewrite, r)
	return func() { h.rewrite = slices.DeleteFunc(h.rewrite, func(o *rewriter) bool { return o == r }) }
}

func (h *testHost) tools() ToolsHost {
	return ToolsHost{Tools: h, Run: func(ctx context.Context, text string) (team.ToolResult, error) {
		raw, err := json.Marshal(map[string]string{"output": text})
		if err != nil {
			return team.ToolResult{}, err
		}
		r := team.ToolResult{Tool: "say", Session: "ses_1", Result: raw}
		for _, w := range h.rewrite {
			if next, err := w.f(ctx, r); err == nil {
				r.Result = next.Result
			}
		}
		return r, nil
	}}
}

func (h *testHost) permissions() PermissionsHost {
	return PermissionsHost{
		Unknown: "ses_0",
		Rule: func(_ context.Context, rules ...PermissionRule) (team.SessionID, error) {
			id := h.add("")
			h.rules[id] = rules
			return id, nil
		},
		Dialogs: func(context.Context) (int, error) { return h.dialogs, nil },
		Permissions: team.PermissionsFunc(func(_ context.Context, id team.SessionID, _, resource string) (team.Effect, error) {
			rules, ok := h.rules[id]
			if !ok {
				return "", team.ErrNotFound
			}
			return last(rules, resource), nil
		}),
	}
}

// last evaluates as a host does.
func last(rules []PermissionRule, resource string) team.Effect {
	e := team.Ask
	for _, r := range rules {
		if glob(r.Resource, resource) {
			e = r.Effect
		}
	}
	return e
}

// glob matches "*" and "?".
func glob(pattern, s string) bool {
	if pattern == "" {
		return s == ""
	}
	switch pattern[0] {
	case '*':
		for i := range len(s) + 1 {
			if glob(pattern[1:], s[i:]) {
				return true
			}
		}
		return false
	case '?':
		return s != "" && glob(pattern[1:], s[1:])
	}
	return s != "" && s[0] == pattern[0] && glob(pattern[1:], s[1:])
}

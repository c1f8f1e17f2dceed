package fakehost

import (
	"context"
	"slices"
	"sync"
)

// A DismissedError is a question or a form that a person closed without an answer. It ends
// the turn as a declined permission does.
type DismissedError struct{ Request string }

func (e *DismissedError) Error() string { return "the question was dismissed: " + e.Request }

// A waiting holds what people have to answer, in memory: a restart forgets it.
type waiting[R, A any] struct {
	mu   sync.Mutex // guards the fields below
	list []*waiter[R, A]
	done map[string]bool // ids that were settled, if the host can tell them from unknown ones
	end  error           // why nobody waits any more
}

type waiter[R, A any] struct {
	id, session string
	request     R
	settled     chan struct{}

	// Set before settled is closed.
	answer A
	err    error
}

func newWaiter[R, A any](id, session string, request R) *waiter[R, A] {
	return &waiter[R, A]{id: id, session: session, request: request, settled: make(chan struct{})}
}

func (w *waiting[R, A]) add(p *waiter[R, A]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end != nil {
		p.err = w.end
		close(p.settled)
		return
	}
	w.list = append(w.list, p)
}

// wait returns what p was answered. The end of ctx takes p back.
func (w *waiting[R, A]) wait(ctx context.Context, p *waiter[R, A]) (A, error) {
	select {
	case <-p.settled:
		return p.answer, p.err
	case <-ctx.Done():
		var none A
		_, _ = w.take("", p.id)
		return none, context.Cause(ctx)
	}
}

func (w *waiting[R, A]) get(what, id string) (*waiter[R, A], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.list {
		if p.id == id {
			return p, nil
		}
	}
	if w.done[id] {
		return nil, &ConflictError{id, "is settled already"}
	}
	return nil, &NotFoundError{what, id}
}

// take removes the request: whoever has it may settle it.
func (w *waiting[R, A]) take(what, id string) (*waiter[R, A], error) {
	p, err := w.get(what, id)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.list, p)
	if i < 0 { // meanwhile
		return nil, &NotFoundError{what, id}
	}
	w.list = slices.Delete(w.list, i, i+1)
	if w.done != nil {
		w.done[id] = true
	}
	return p, nil
}

// settle publishes what became of p, which was taken, and lets the one who asked go on.
func (w *waiting[R, A]) settle(h *Host, event string, p *waiter[R, A], data map[string]any) error {
	err := h.tx(func(t *tx) error {
		t.emit(event, p.session, data)
		return nil
	})
	if err != nil {
		p.err = err
	}
	close(p.settled)
	return err
}

// requests returns what is pending, in order; of one session, or of all if it is empty.
func (w *waiting[R, A]) requests(session string) []R {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []R
	for _, p := range w.list {
		if session == "" || p.session == session {
			out = append(out, p.request)
		}
	}
	return out
}

// drop forgets all, as a restart does.
func (w *waiting[R, A]) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.list {
		p.err = errShutdown
		close(p.settled)
	}
	w.list, w.end = nil, errShutdown
}

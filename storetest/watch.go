package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/teamchan/team"
)

// watched makes a law of a store that is a Watcher; another is not bound by it.
func watched(steps func(p *probe, w team.Watcher)) func(context.Context, team.Store) error {
	return func(ctx context.Context, s team.Store) error {
		w, ok := power[team.Watcher](s)
		if !ok {
			return skipped("the store is no team.Watcher: it does not tell what changes")
		}
		return try(func(p *probe) { steps(p, w) })(ctx, s)
	}
}

var watchLaws = []law{
	{
		name: "watch/put",
		says: "Watch yields the key of every record that is put, made or replaced",
		check: watched(func(p *probe, w team.Watcher) {
			v := p.put("k/old", "1", "")
			n := p.watches(w, "k/")
			p.put("k/new", "1", "")
			n.sees("k/new")
			v = p.put("k/old", "2", v)
			n.sees("k/old")
			p.put("k/old", "2", v) // the same value is a change too
			n.sees("k/old")
			p.put("k/any", "1", team.AnyVersion)
			n.sees("k/any")
			n.still()
		}),
	},
	{
		name: "watch/from the call",
		says: "Watch misses nothing that changes between its return and the loop",
		check: watched(func(p *probe, w team.Watcher) {
			seq := w.Watch(p.ctx, "k/")
			p.put("k/a", "1", "")
			p.put("k/b", "1", "")
			var got []string
			for key, err := range seq {
				p.ok("Watch", err)
				if got = append(got, key); len(got) == 2 {
					break
				}
			}
			slices.Sort(got) // one key's order to another is nobody's promise
			p.equal("keys", fmt.Sprint(got), "[k/a k/b]")
		}),
	},
	{
		name: "watch/delete",
		says: "Watch yields the key of every record that is deleted",
		check: watched(func(p *probe, w team.Watcher) {
			v := p.put("k/a", "1", "")
			n := p.watches(w, "k/")
			p.ok("Delete", p.Delete(p.ctx, "k/a", v))
			n.sees("k/a")
			p.put("k/a", "2", "")
			n.sees("k/a")
			n.still()
		}),
	},
	{
		name: "watch/prefix",
		says: "Watch yields only keys that start with prefix, byte for byte, and whole",
		check: watched(func(p *probe, w team.Watcher) {
			n := p.watches(w, "a_/")
			for _, key := range []string{"a", "a_", "aX/b", "A_/b", "a%/b", "b/a_/", "a_/é\n", "\x00"} {
				p.put(key, "1", "")
			}
			n.sees("a_/é\n")
			n.still()
			all := p.watches(w, "")
			p.put("\U0001f600", "1", "")
			all.sees("\U0001f600")
			all.still()
		}),
	},
	{
		name: "watch/refused",
		says: "Watch yields nothing for a Put, Delete or Commit that was refused, nor for one before it began",
		check: watched(func(p *probe, w team.Watcher) {
			v := p.put("k/a", "1", "")
			p.put("k/before", "1", "")
			p.put("k/a", "2", v)
			n := p.watches(w, "k/")
			_, err := p.Put(p.ctx, "k/a", nil, "")
			p.is("Put with a stale version", err, team.ErrConflict)
			p.is("Delete with a stale version", p.Delete(p.ctx, "k/a", v), team.ErrConflict)
			p.is("Delete of nothing", p.Delete(p.ctx, "k/none", team.AnyVersion), team.ErrNotFound)
			if c, ok := power[team.Committer](p.Store); ok {
				_, err := c.Commit(p.ctx, nil, []team.Change{{Key: "k/new"}, {Key: "k/a", Prev: v}})
				p.is("Commit with a stale version", err, team.ErrConflict)
			}
			n.still()
		}),
	},
	{
		name: "watch/commit",
		says: "Watch yields every key that a Commit puts or deletes",
		check: watched(func(p *probe, w team.Watcher) {
			c, ok := power[team.Committer](p.Store)
			if !ok {
				return
			}
			v := p.put("k/gone", "1", "")
			n := p.watches(w, "k/")
			_, err := c.Commit(p.ctx, nil, []team.Change{{Key: "k/a"}, {Key: "k/gone", Prev: v, Delete: true}, {Key: "other"}, {Key: "k/b"}})
			p.ok("Commit", err)
			n.sees("k/a", "k/gone", "k/b")
			n.still()
		}),
	},
	{
		name: "watch/last change",
		says: "Changes of one key in quick succession may be one, but who reads the record at each name has read the last of them",
		check: watched(func(p *probe, w team.Watcher) {
			const last = 100
			read := make(chan string, 10*last)
			n := p.watching(w, "k/", func(key string) {
				if r, err := p.Get(p.ctx, key); err == nil {
					read <- string(r.Value)
				}
			})
			n.begun()
			var v team.Version
			next := func() string {
				select {
				case value := <-read:
					return value
				case <-p.ctx.Done():
					p.fail("Watch has not yielded the key since its last change")
					return ""
				}
			}
			for i := range last + 1 {
				v = p.put("k/a", fmt.Sprint("value ", i), v)
				if i == last/2 { // it was yielded once at least
					for value := ""; !strings.HasPrefix(value, "value "); {
						value = next()
					}
				}
			}
			for next() != fmt.Sprint("value ", last) {
			}
		}),
	},
	{
		name: "watch/many keys at once",
		says: "Watch yields every key that changes, also when many change at once",
		check: watched(func(p *probe, w team.Watcher) {
			n := p.watches(w, "k/")
			var want []string
			errs := make([]error, 8)
			var wg sync.WaitGroup
			for i := range errs {
				for j := range 8 {
					want = append(want, fmt.Sprintf("k/%d/%d", i, j))
				}
				wg.Go(func() {
					for j := range 8 {
						if _, err := p.Put(p.ctx, fmt.Sprintf("k/%d/%d", i, j), nil, ""); err != nil {
							errs[i] = err
						}
					}
				})
			}
			wg.Wait()
			for _, err := range errs {
				p.ok("Put", err)
			}
			n.sees(want...)
		}),
	},
	{
		name: "watch/several",
		says: "Everybody who watches is told of a change, also when somebody else has stopped to",
		check: watched(func(p *probe, w team.Watcher) {
			a, b, all := p.watches(w, "k/"), p.watches(w, "k/"), p.watches(w, "")
			p.put("k/a", "1", "")
			a.sees("k/a")
			b.sees("k/a")
			all.sees("k/a")
			a.stop()
			p.put("k/b", "1", "")
			b.sees("k/b")
			all.sees("k/b")
		}),
	},
	{
		name: "watch/slow loop",
		says: "A loop over Watch that is slow holds nobody up, and is told afterwards what it missed",
		check: watched(func(p *probe, w team.Watcher) {
			gate := make(chan struct{})
			open := sync.OnceFunc(func() { close(gate) })
			defer open()
			n := p.watching(w, "k/", func(key string) {
				if key == "k/a" {
					<-gate
				}
			})
			n.begun()
			var want []string
			for i := range 100 {
				key := fmt.Sprint("k/", i)
				if want = append(want, key); i == 1 {
					p.put("k/a", "1", "")
				}
				p.put(key, "1", "")
			}
			open()
			n.sees(append(want, "k/a")...)
		}),
	},
	{
		name: "watch/calls in the loop",
		says: "The loop over Watch may call the store and may end early, and another Watch begins anew",
		check: watched(func(p *probe, w team.Watcher) {
			for range 2 {
				seq, done := w.Watch(p.ctx, "k/"), make(chan error, 1)
				p.wait.Go(func() {
					for key, err := range seq {
						if err == nil {
							_, err = p.Get(p.ctx, key)
						}
						if err == nil {
							_, err = p.Put(p.ctx, "k/made", nil, team.AnyVersion)
						}
						done <- err
						return
					}
					done <- errors.New("the loop ended without a name or an error")
				})
				for ended := false; !ended; {
					p.put("k/a", "1", team.AnyVersion)
					select {
					case err := <-done:
						p.ok("the loop over Watch", err)
						ended = true
					case <-time.After(time.Millisecond):
					}
				}
			}
			p.put("k/b", "1", "") // nobody waits for the loops that have ended
		}),
	},
	{
		name: "watch/context",
		says: "Watch ends with its context, soon, and yields an error that wraps ctx.Err(), once",
		check: watched(func(p *probe, w team.Watcher) {
			n := p.watches(w, "k/")
			n.still()
			n.stop()
			p.is("what Watch yields last when its context was cancelled", n.err, context.Canceled)
			p.equal("errors that Watch yields", n.errs, 1)

			ended, cancel := context.WithCancel(p.ctx)
			cancel()
			count := 0
			for _, err := range w.Watch(ended, "") {
				p.is("what Watch yields with an ended context", err, context.Canceled)
				count++
			}
			p.equal("what Watch yields with an ended context", count, 1)
		}),
	},
}

// A watching is a loop over Watch in a goroutine of its own.
type watching struct {
	p      *probe
	prefix string
	cancel context.CancelFunc
	names  chan string
	done   chan struct{} // closed when the loop has ended, and err and errs are there
	err    error
	errs   int
}

// warm is the name that a law puts until Watch yields it: then the loop has
// begun for certain. From then on it counts for nothing.
const warm = "warming up"

// watching starts a loop over Watch that calls each for every name.
func (p *probe) watching(w team.Watcher, prefix string, each func(string)) *watching {
	ctx, cancel := context.WithCancel(p.ctx)
	n := &watching{p: p, prefix: prefix, cancel: cancel, names: make(chan string, 1000), done: make(chan struct{})}
	p.wait.Go(func() {
		defer close(n.done)
		for key, err := range w.Watch(ctx, prefix) {
			if err != nil {
				n.err = err
				n.errs++
				continue
			}
			each(key)
			select {
			case n.names <- key:
			case <-ctx.Done():
			}
		}
	})
	return n
}

// watches starts a loop over Watch, and returns when it has begun.
func (p *probe) watches(w team.Watcher, prefix string) *watching {
	n := p.watching(w, prefix, func(string) {})
	n.begun()
	return n
}

// begun waits until the loop is told what changes.
func (n *watching) begun() {
	for {
		n.p.put(n.prefix+warm, "1", team.AnyVersion)
		select {
		case key := <-n.names:
			if key == n.prefix+warm {
				return
			}
			n.p.fail("Watch(%q) yields %q, which has not changed since it began", n.prefix, key)
		case <-n.done:
			n.p.fail("Watch ended with %v, want it to wait for changes", n.err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// sees waits until every one of keys was yielded, and ends the law if anything
// else was.
func (n *watching) sees(keys ...string) {
	missing := make(map[string]bool)
	for _, key := range keys {
		missing[key] = true
	}
	for left := len(missing); left > 0; {
		select {
		case key := <-n.names:
			first, known := missing[key]
			switch {
			case strings.HasSuffix(key, warm):
			case !known:
				n.p.fail("Watch(%q) yields %q, want only %.20q", n.prefix, key, keys)
			case first:
				missing[key] = false
				left--
			}
		case <-n.done:
			n.p.fail("Watch ended with %v, want it to yield %.20q", n.err, keys)
		}
	}
}

// still ends the law if anything is yielded within a moment.
func (n *watching) still() {
	end := time.After(blink)
	for {
		select {
		case key := <-n.names:
			if !strings.HasSuffix(key, warm) {
				n.p.fail("Watch(%q) yields %q, want nothing", n.prefix, key)
			}
		case <-n.done:
			n.p.fail("Watch ended with %v, want it to wait for changes", n.err)
		case <-end:
			return
		}
	}
}

// stop ends the loop's context and waits for the loop.
func (n *watching) stop() {
	n.cancel()
	<-n.done
}

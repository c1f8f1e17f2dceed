package memstore

import (
	"context"
	"iter"
	"strings"
)

// A watch collects the names for one loop over Watch. Its Store's mu guards
// its fields.
type watch struct {
	prefix string
	names  []string            // that changed and were not taken yet, in the order of their first change
	listed map[string]struct{} // what is in names
	wake   chan struct{}       // holds one if there may be names
}

// Usage counts what is there, by name and size, without a look at a value.
func (s *Store) Usage(ctx context.Context, prefix string) (keys int, bytes int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, bytes = s.keys.usage(prefix)
	return keys, bytes, nil
}

// Watch yields names as they change. A slow loop holds nobody up: what changes
// meanwhile waits for it, each name once, so that the memory it takes is bounded
// by the number of different keys.
func (s *Store) Watch(ctx context.Context, prefix string) iter.Seq2[string, error] {
	w := &watch{prefix: prefix, listed: make(map[string]struct{}), wake: make(chan struct{}, 1)}
	s.mu.Lock()
	if s.watches == nil {
		s.watches = make(map[*watch]struct{})
	}
	s.watches[w] = struct{}{}
	s.mu.Unlock()
	end := func() {
		s.mu.Lock()
		delete(s.watches, w)
		s.mu.Unlock()
	}
	stop := context.AfterFunc(ctx, end) // for who never ranges
	return func(yield func(string, error) bool) {
		defer func() { stop(); end() }()
		for {
			s.mu.Lock()
			names := w.names
			w.names = nil
			clear(w.listed)
			s.mu.Unlock()
			for _, name := range names {
				if ctx.Err() != nil {
					break
				}
				if !yield(name, nil) {
					return
				}
			}
			if err := ctx.Err(); err != nil {
				yield("", err)
				return
			}
			select {
			case <-w.wake:
			case <-ctx.Done():
			}
		}
	}
}

// changed tells those who watch that the record under key was put or deleted.
// s.mu must be held.
func (s *Store) changed(key string) {
	for w := range s.watches {
		if _, ok := w.listed[key]; ok || !strings.HasPrefix(key, w.prefix) {
			continue
		}
		w.listed[key] = struct{}{}
		w.names = append(w.names, key)
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

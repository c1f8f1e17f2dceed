package memstore

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/teamchan/team"
)

const perPage = 64 // what an iterator copies at a time, under the lock

type record struct {
	value   []byte
	version team.Version
}

// Get returns a copy of the record under key.
func (s *Store) Get(ctx context.Context, key string) (team.Record, error) {
	if err := checkKey(key); err != nil {
		return team.Record{}, err
	}
	if err := ctx.Err(); err != nil {
		return team.Record{}, err
	}
	s.mu.Lock()
	r, ok := s.records[key]
	s.mu.Unlock()
	if !ok {
		return team.Record{}, team.ErrNotFound
	}
	// A value is replaced, never changed, so it can be copied without the lock.
	return team.Record{Key: key, Value: bytes.Clone(r.value), Version: r.version}, nil
}

// Put stores a copy of value under key.
func (s *Store) Put(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
	if err := checkKey(key); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.put(key, value, prev)
	if err == nil {
		s.changed(key)
	}
	return v, err
}

// Delete removes the record under key.
func (s *Store) Delete(ctx context.Context, key string, prev team.Version) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.delete(key, prev)
	if err == nil {
		s.changed(key)
	}
	return err
}

// Keys yields names. It copies a page at a time and holds no lock while it
// yields, so the loop may call the store.
func (s *Store) Keys(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		from := prefix
		if after >= prefix {
			from = after + "\x00" // the smallest string behind it
		}
		var page []string
		for {
			s.mu.Lock()
			page = s.keys.from(page[:0], from, perPage)
			s.mu.Unlock()
			for _, key := range page {
				if err := ctx.Err(); err != nil {
					yield("", err)
					return
				}
				if !strings.HasPrefix(key, prefix) || !yield(key, nil) {
					return
				}
			}
			if len(page) < perPage {
				break
			}
			from = page[len(page)-1] + "\x00"
		}
		if err := ctx.Err(); err != nil {
			yield("", err)
		}
	}
}

// put is Put, but for the news of it. s.mu must be held.
func (s *Store) put(key string, value []byte, prev team.Version) (team.Version, error) {
	if err := s.match(key, prev); err != nil {
		return "", err
	}
	r := record{value: bytes.Clone(value), version: s.nextVersion()}
	s.restore(key, r, true)
	return r.version, nil
}

// delete is Delete, but for the news of it. s.mu must be held.
func (s *Store) delete(key string, prev team.Version) error {
	if _, ok := s.records[key]; !ok {
		return team.ErrNotFound
	}
	if err := s.match(key, prev); err != nil {
		return err
	}
	s.restore(key, record{}, false)
	return nil
}

// match says whether the record under key is in the state prev. No record is
// the zero version, which is also what a missing map entry has. s.mu must be
// held.
func (s *Store) match(key string, prev team.Version) error {
	if got := s.records[key].version; prev != team.AnyVersion && got != prev {
		return fmt.Errorf("version is %q, not %q: %w", got, prev, team.ErrConflict)
	}
	return nil
}

// restore makes r the record under key, or leaves none there. s.mu must be
// held.
func (s *Store) restore(key string, r record, exists bool) {
	if !exists {
		delete(s.records, key)
		s.keys.remove(key)
		return
	}
	if s.records == nil {
		s.records = make(map[string]record)
	}
	s.records[key] = r
	s.keys.set(key, len(r.value))
}

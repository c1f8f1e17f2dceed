package memstore

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/teamchan/team"
)

const (
	maxKey  = 1024 // bytes; the contract's number
	perPage = 64   // what an iterator copies at a time, under the lock
)

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
	return s.put(key, value, prev)
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
	return s.delete(key, prev)
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

// put is Put. s.mu must be held.
func (s *Store) put(key string, value []byte, prev team.Version) (team.Version, error) {
	if err := s.match(key, prev); err != nil {
		return "", err
	}
	r := record{value: bytes.Clone(value), version: s.nextVersion()}
	s.restore(key, r, true)
	return r.version, nil
}

// delete is Delete. s.mu must be held.
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
	s.keys.add(key)
}

func checkKey(key string) error {
	switch {
	case key == "":
		return invalid("record key", "is empty")
	case len(key) > maxKey:
		return invalid("record key", fmt.Sprintf("has %d bytes, more than %d", len(key), maxKey))
	case !utf8.ValidString(key):
		return invalid("record key", "is not UTF-8")
	}
	return nil
}

// A keyset is a sorted set of strings, cut into runs so that adding one moves
// a short slice and not all of them. Go orders strings by their bytes.
type keyset struct {
	runs [][]string // none is empty
}

const maxRun = 512

// find returns the run that key is in or belongs into, its place there, and
// whether it is there. There must be a run.
func (k *keyset) find(key string) (run, at int, ok bool) {
	run, ok = slices.BinarySearchFunc(k.runs, key, func(r []string, key string) int {
		return strings.Compare(r[0], key)
	})
	if ok {
		return run, 0, true
	}
	run = max(run-1, 0) // the last run that starts before key
	at, ok = slices.BinarySearch(k.runs[run], key)
	return run, at, ok
}

func (k *keyset) add(key string) {
	if len(k.runs) == 0 {
		k.runs = append(k.runs, []string{key})
		return
	}
	run, at, ok := k.find(key)
	if ok {
		return
	}
	r := slices.Insert(k.runs[run], at, key)
	k.runs[run] = r
	if len(r) > maxRun {
		// Keys that come in order fill the last run: cutting near its end
		// leaves full runs behind, not half-empty ones.
		cut := len(r) / 2
		if run == len(k.runs)-1 && at == len(r)-1 {
			cut = len(r) - 1
		}
		k.runs[run] = slices.Clip(r[:cut])
		k.runs = slices.Insert(k.runs, run+1, slices.Clone(r[cut:]))
	}
}

func (k *keyset) remove(key string) {
	if len(k.runs) == 0 {
		return
	}
	run, at, ok := k.find(key)
	if !ok {
		return
	}
	k.runs[run] = slices.Delete(k.runs[run], at, at+1)
	if len(k.runs[run]) == 0 {
		k.runs = slices.Delete(k.runs, run, run+1)
	}
}

// from appends to page the first keys that are not below key, at most n.
func (k *keyset) from(page []string, key string, n int) []string {
	if len(k.runs) == 0 {
		return page
	}
	run, at, _ := k.find(key)
	for ; run < len(k.runs) && len(page) < n; run, at = run+1, 0 {
		r := k.runs[run][at:]
		page = append(page, r[:min(len(r), n-len(page))]...)
	}
	return page
}

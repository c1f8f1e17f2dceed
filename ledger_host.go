package team

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"unicode/utf8"
)

// HostRecords returns Records over the key-value storage of a host, so that a
// Ledger needs no store of its own. Every key starts with "team-mode/" and
// namespace, in which "%" and "/" are escaped, since the host has one name space
// for everybody; two namespaces never meet.
//
// A host's storage has no compare-and-set, so be careful what you rely on:
//
//   - Inside one process, and through one HostRecords, the law of Records holds: calls
//     for one key wait for each other. Make one for the process and share it.
//   - Between processes a race can be lost. Put reads back what it wrote, and Delete
//     looks that nothing is there; if somebody else wrote in between, it is
//     ErrConflict. So a loss is seen while both are at work.
//   - It is not seen if the other compared before we wrote and writes after we
//     have read back. Then both calls succeeded, and the record is the other's; who
//     was overwritten learns it from the next call with the version that it was
//     given.
//   - A Put that was overwritten before it was seen to be lost may have been read
//     by others in between, and its own write may have overwritten one that
//     was not seen.
//
// Where several processes write the same keys, use a Store.
//
// An error of the host's Set or Remove is ErrUnknownOutcome, since the host does
// not say whether it was done before it failed. A value that HostRecords did not
// write is ErrCorrupt; AnyVersion replaces or deletes it. Values that are UTF-8 are
// stored so that a person can read them. The host knows neither a quota nor an
// expiry; a Ledger brings both. Nothing is a Committer, a Meter or a Watcher here.
//
// OpenCode 2.0: ctx.storage of a plugin, where its keys outlive the plugin.
func HostRecords(storage Storage, namespace string) Records {
	if storage == nil {
		panic("team: HostRecords with a nil Storage")
	}
	return &hostRecords{
		storage: storage,
		base:    "team-mode/" + scopeEscaper.Replace(namespace) + "/",
		turns:   make(map[string]*hostTurn),
	}
}

type hostRecords struct {
	storage Storage
	base    string

	mu    sync.Mutex // guards turns
	turns map[string]*hostTurn
}

// A hostTurn lets one goroutine at a time change a key.
type hostTurn struct {
	busy chan struct{} // holds one while somebody does
	want int           // who has it or waits for it; guarded by hostRecords.mu
}

// A hostValue is what lies in the host's storage. A new Version for every write
// is all that tells one from another.
type hostValue struct {
	Version Version `json:"version"`
	Text    *string `json:"text,omitempty"`
	Bytes   []byte  `json:"bytes,omitempty"` // what is not UTF-8, in base64
}

func (h *hostRecords) Get(ctx context.Context, key string) (Record, error) {
	if err := checkHostKey(ctx, key); err != nil {
		return Record{}, err
	}
	return h.load(ctx, key)
}

func (h *hostRecords) load(ctx context.Context, key string) (Record, error) {
	raw, err := h.storage.Get(ctx, h.base+key)
	if err != nil {
		return Record{}, err
	}
	var v hostValue
	if err := json.Unmarshal(raw, &v); err != nil || v.Version == "" || v.Version == AnyVersion || (v.Text != nil) == (v.Bytes != nil) {
		return Record{}, fmt.Errorf("%w: the host's value under %s is none of ours", ErrCorrupt, quoteName(h.base+key))
	}
	r := Record{Key: key, Version: v.Version, Value: v.Bytes}
	if v.Text != nil {
		r.Value = []byte(*v.Text)
	}
	return r, nil
}

// match compares what is there with prev, and returns ErrNotFound if nothing is.
func (h *hostRecords) match(ctx context.Context, key string, prev Version) error {
	r, err := h.load(ctx, key)
	switch {
	case prev == AnyVersion && errors.Is(err, ErrCorrupt):
		return nil
	case err != nil:
		return err
	case prev != AnyVersion && prev != r.Version:
		return fmt.Errorf("version is %q, not %q: %w", r.Version, prev, ErrConflict)
	}
	return nil
}

func (h *hostRecords) Put(ctx context.Context, key string, value []byte, prev Version) (Version, error) {
	if err := checkHostKey(ctx, key); err != nil {
		return "", err
	}
	done, err := h.turn(ctx, key)
	if err != nil {
		return "", err
	}
	defer done()
	err = h.match(ctx, key, prev)
	if errors.Is(err, ErrNotFound) {
		err = nil
		if prev != "" && prev != AnyVersion {
			err = fmt.Errorf("there is no record, not version %q: %w", prev, ErrConflict)
		}
	}
	if err != nil {
		return "", err
	}
	v := hostValue{Version: Version(rand.Text())}
	if utf8.Valid(value) {
		text := string(value)
		v.Text = &text
	} else {
		v.Bytes = value
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	setErr := h.storage.Set(ctx, h.base+key, raw)
	r, err := h.load(ctx, key)
	switch {
	case err == nil && r.Version == v.Version:
		return v.Version, nil
	case setErr != nil:
		return "", fmt.Errorf("%w: %w", ErrUnknownOutcome, setErr)
	case err == nil:
		return "", fmt.Errorf("another process wrote version %q over it: %w", r.Version, ErrConflict)
	case errors.Is(err, ErrNotFound):
		return "", fmt.Errorf("another process removed it: %w", ErrConflict)
	default:
		return "", fmt.Errorf("%w: it was written, but reading it back failed: %w", ErrUnknownOutcome, err)
	}
}

func (h *hostRecords) Delete(ctx context.Context, key string, prev Version) error {
	if err := checkHostKey(ctx, key); err != nil {
		return err
	}
	done, err := h.turn(ctx, key)
	if err != nil {
		return err
	}
	defer done()
	if err := h.match(ctx, key, prev); err != nil {
		return err
	}
	removeErr := h.storage.Remove(ctx, h.base+key)
	r, err := h.load(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case removeErr != nil:
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, removeErr)
	case err == nil:
		return fmt.Errorf("another process wrote version %q in its place: %w", r.Version, ErrConflict)
	default:
		return fmt.Errorf("%w: it was removed, but looking for it failed: %w", ErrUnknownOutcome, err)
	}
}

func (h *hostRecords) Keys(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := ctx.Err()
		if err == nil {
			for key, scanErr := range h.storage.Scan(ctx, h.base+prefix, h.base+after) {
				if err = scanErr; err == nil {
					err = ctx.Err()
				}
				if err != nil {
					break
				}
				if !yield(strings.TrimPrefix(key, h.base), nil) {
					return
				}
			}
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			yield("", err)
		}
	}
}

// turn waits until nobody else in this process changes key, and returns what
// lets the next one in.
func (h *hostRecords) turn(ctx context.Context, key string) (done func(), err error) {
	h.mu.Lock()
	t := h.turns[key]
	if t == nil {
		t = &hostTurn{busy: make(chan struct{}, 1)}
		h.turns[key] = t
	}
	t.want++
	h.mu.Unlock()
	leave := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if t.want--; t.want == 0 {
			delete(h.turns, key)
		}
	}
	select {
	case t.busy <- struct{}{}:
		return func() { <-t.busy; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// checkHostKey holds the law of Records, and ends a call whose ctx has ended.
func checkHostKey(ctx context.Context, key string) error {
	const most = 1024 // the contract's number
	bad := func(why string) error { return &InvalidError{What: "record key", Why: why, Offset: -1} }
	switch {
	case key == "":
		return bad("is empty")
	case len(key) > most:
		return bad(fmt.Sprintf("has %d bytes, more than %d", len(key), most))
	case !utf8.ValidString(key):
		return bad("is not UTF-8")
	}
	return ctx.Err()
}

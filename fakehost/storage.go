package fakehost

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ncruces/go-sqlite3"
)

// StorageDomain is the key-value storage of one plugin. It is global: every window and
// project of a plugin with the same id has the same keys. There is no expiry, no
// compare-and-set, no quota and no event.
//
// OpenCode 2.0: ctx.storage, PR #43525.
type StorageDomain struct {
	h      *Host
	prefix string // what the host puts before a key: "plugin:" + hex of the id + ":"
}

func newStorage(h *Host) *StorageDomain { return &StorageDomain{h, pluginPrefix(h.opts.Plugin)} }

// pluginPrefix writes each UTF-16 unit of the plugin's id as four hex digits.
func pluginPrefix(plugin string) string {
	out := "plugin:"
	for _, u := range utf16.Encode([]rune(plugin)) {
		out += fmt.Sprintf("%04x", u)
	}
	return out + ":"
}

// For returns the storage of another plugin.
func (d *StorageDomain) For(plugin string) *StorageDomain {
	return &StorageDomain{d.h, pluginPrefix(plugin)}
}

func (d *StorageDomain) enter(ctx context.Context, method, key string) error {
	if err := d.h.enter(ctx, Call{Domain: "storage", Method: method, Name: key}); err != nil {
		return err
	}
	if !utf8.ValidString(key) {
		return invalid("storage key", "is not UTF-8", "use text")
	}
	if d.h.has(FaultSlowStorage) {
		return sleep(ctx, 2*time.Second)
	}
	return nil
}

// Get returns the JSON value under key, or a *NotFoundError where the host answers
// undefined.
func (d *StorageDomain) Get(ctx context.Context, key string) (json.RawMessage, error) {
	if err := d.enter(ctx, "get", key); err != nil {
		return nil, err
	}
	var out json.RawMessage
	err := d.h.tx(func(t *tx) error {
		return t.rows(`SELECT value FROM kv WHERE key = ?`, func(s *sqlite3.Stmt) { out = raw(s, 0) }, d.prefix+key)
	})
	if err == nil && out == nil {
		err = &NotFoundError{"key", key}
	}
	return out, err
}

// Set stores a JSON value under key, whatever was there.
func (d *StorageDomain) Set(ctx context.Context, key string, value json.RawMessage) error {
	if err := d.enter(ctx, "set", key); err != nil {
		return err
	}
	if !json.Valid(value) {
		return invalid("storage value", "is not JSON", "encode it")
	}
	return d.h.tx(func(t *tx) error {
		return t.run(`INSERT INTO kv (key, value, time_created, time_updated) VALUES (?1, ?2, ?3, ?3)
			ON CONFLICT DO UPDATE SET value = ?2, time_updated = ?3`, d.prefix+key, value, t.now)
	})
}

// Remove deletes key; one that is not there is no error.
func (d *StorageDomain) Remove(ctx context.Context, key string) error {
	if err := d.enter(ctx, "remove", key); err != nil {
		return err
	}
	return d.h.tx(func(t *tx) error { return t.run(`DELETE FROM kv WHERE key = ?`, d.prefix+key) })
}

// Scan says which keys to read.
type Scan struct {
	Prefix string // empty is all of this plugin's
	After  string // only keys behind this one
	Limit  *float64
}

// A Page is what Scan answers.
type Page struct {
	Entries []KeyValue `json:"entries"`
	Next    string     `json:"next,omitempty"` // pass it as After; empty if there is no more
}

// A KeyValue is one entry.
type KeyValue struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

// Scan returns entries in ascending order of their keys' bytes, with their values: there is
// no way to have keys only. The limit is floored, at least 1 and at most 1000; 100 if it is
// nil or NaN. Every page is a query of its own.
func (d *StorageDomain) Scan(ctx context.Context, in Scan) (Page, error) {
	if err := d.enter(ctx, "scan", in.Prefix); err != nil {
		return Page{}, err
	}
	limit := 100
	if in.Limit != nil && !math.IsNaN(*in.Limit) {
		limit = int(min(max(math.Floor(*in.Limit), 1), 1000))
	}
	low := d.prefix + in.Prefix
	page := Page{Entries: []KeyValue{}}
	more := false
	err := d.h.tx(func(t *tx) error {
		return t.rows(`SELECT key, value FROM kv WHERE key >= ?1 AND (?2 IS NULL OR key < ?2) AND (?3 IS NULL OR key > ?3)
			ORDER BY key LIMIT ?4`, func(s *sqlite3.Stmt) {
			if len(page.Entries) == limit {
				more = true
				return
			}
			page.Entries = append(page.Entries, KeyValue{s.ColumnText(0)[len(d.prefix):], raw(s, 1)})
		}, low, null(upperBound(low)), null(after(d.prefix, in.After)), limit+1)
	})
	if more {
		page.Next = page.Entries[limit-1].Key
	}
	return page, err
}

func after(prefix, key string) string {
	if key == "" {
		return ""
	}
	return prefix + key
}

// upperBound is the first key behind all that start with s: its last code point plus one;
// one that is the last there is goes away.
func upperBound(s string) string {
	runes := []rune(s)
	for n := len(runes) - 1; n >= 0; n-- {
		switch r := runes[n]; {
		case r == utf8.MaxRune:
			continue
		case r == 0xD7FF: // surrogates are no code points of text
			return string(runes[:n]) + "\uE000"
		default:
			return string(runes[:n]) + string(r+1)
		}
	}
	return ""
}

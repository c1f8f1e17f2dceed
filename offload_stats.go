package team

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// OffloadStats is what an Offload did and what it holds.
type OffloadStats struct {
	// What the index says, of all processes, collected texts included.
	Handles   int   // texts in the folder
	Bytes     int64 // their size
	Pinned    int
	Collected int   // handles that only say what they were
	Kept      int64 // tokens that stayed out of contexts
	Fetched   int64 // tokens that came back into one by Fetch
	Fetches   int64

	// Recent has the texts that were used last, the newest first.
	Recent []OffloadEntry

	// What this Offload saw since it was opened.
	Seen      int64            // tool results that Accept let through
	Own       int64            // of the tools of this library
	Passed    int64            // small enough
	Unknown   map[string]int64 // of a shape that nobody knows, or errors, by shape
	Shortened int64            // results and other texts that got a preview
	TakenOver int64            // of those, from a file of the host
	Marked    int64            // texts that were shortened or fetched before, and left as they were
	Degraded  int64            // texts that were cut without being stored
	LastError error            // of those, the last
}

// Net returns the tokens that were kept out of contexts and did not come back.
func (s OffloadStats) Net() int64 { return s.Kept - s.Fetched }

// An OffloadEntry is one offloaded text, for a person to open.
type OffloadEntry struct {
	Handle  Handle
	Path    string
	Name    string // of the file that it came from, if it was one
	Class   Class
	SHA256  string
	Size    int64
	Lines   int64
	Tokens  int
	By      Caller
	Stored  time.Time
	Used    time.Time
	Times   int64 // how often it stands in for a text
	Fetches int64
	Pinned  bool
}

func (o *Offload) entry(r *offloadRecord) OffloadEntry {
	return OffloadEntry{
		Handle: r.handle(), Path: o.abs(r.File), Name: r.Name, Class: r.Class, SHA256: r.SHA256, Size: r.Size, Lines: r.Lines,
		Tokens: r.Tokens, By: r.By, Stored: time.UnixMilli(r.At).UTC(), Used: time.UnixMilli(r.Used).UTC(), Times: r.Times,
		Fetches: r.Fetches, Pinned: r.Pinned,
	}
}

// Stats returns the counts and the recent texts that were used last. It reads
// every record of the folder; damaged ones it leaves to Collect.
func (o *Offload) Stats(ctx context.Context, recent int) (OffloadStats, error) {
	s := o.counts.snapshot()
	for id, err := range o.ids(ctx) {
		if err == nil {
			var r *offloadRecord
			r, err = o.load(ctx, id)
			if errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt) {
				continue
			}
			if err == nil {
				s.Kept += r.Kept
				s.Fetched += r.Back
				s.Fetches += r.Fetches
				if r.Gone != 0 {
					s.Collected++
					continue
				}
				s.Handles++
				s.Bytes += r.Size
				if r.Pinned {
					s.Pinned++
				}
				s.Recent = append(s.Recent, o.entry(r))
				if len(s.Recent) >= 2*max(recent, 32) {
					s.Recent = newest(s.Recent, recent)
				}
			}
		}
		if err != nil {
			return s, edge("offload.stats", o.dir, err)
		}
	}
	s.Recent = newest(s.Recent, recent)
	return s, nil
}

func newest(entries []OffloadEntry, n int) []OffloadEntry {
	slices.SortStableFunc(entries, func(a, b OffloadEntry) int { return b.Used.Compare(a.Used) })
	return entries[:min(len(entries), max(n, 0))]
}

// ids yields the ids of all handles in the index.
func (o *Offload) ids(ctx context.Context) func(func(string, error) bool) {
	prefix := o.prefix + offloadHandles
	return func(yield func(string, error) bool) {
		for key, err := range o.index.Keys(ctx, prefix, "") {
			if !yield(strings.TrimPrefix(key, prefix), err) || err != nil {
				return
			}
		}
	}
}

// offloadCounts are the counts of one process.
type offloadCounts struct {
	mu sync.Mutex // guards the fields below

	seen, own, passed, shortened, takenOver, marked, degraded int64

	unknown map[string]int64
	last    error
}

func (c *offloadCounts) add(n *int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

func (c *offloadCounts) degrade(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.degraded++
	c.last = why
}

// maxShapes bounds how many shapes are counted by name.
const maxShapes = 64

func (c *offloadCounts) unknownShape(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.unknown[name]; !ok && len(c.unknown) >= maxShapes {
		name = "others"
	}
	if c.unknown == nil {
		c.unknown = map[string]int64{}
	}
	c.unknown[name]++
}

func (c *offloadCounts) snapshot() OffloadStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return OffloadStats{
		Seen: c.seen, Own: c.own, Passed: c.passed, Unknown: maps.Clone(c.unknown), Shortened: c.shortened,
		TakenOver: c.takenOver, Marked: c.marked, Degraded: c.degraded, LastError: c.last,
	}
}

package team

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/teamchan/team/internal/atomicfile"
)

// The reasons that only a collection has, beside those of other sweeps: one of a removal,
// and two of keeping.
const (
	SweepOverCap SweepReason = "over the cap" // the oldest, as long as the files take more than MaxBytes

	SweepPinned     SweepReason = "pinned"
	SweepReferenced SweepReason = "referenced"
)

// CollectOptions say what else keeps a text.
type CollectOptions struct {
	// Referenced tells whether something still leads to a handle: see
	// SignalChannel.Spilled for signals. It is asked only about texts that would
	// go. An error keeps the text. Nil is nothing.
	Referenced func(context.Context, Handle) (bool, error)
}

// A CollectItem is one thing in the folder or in the index, and what becomes of it.
type CollectItem struct {
	Handle Handle // empty for what is no handle
	Path   string // absolute; empty for a record alone
	Action SweepAction
	Reason SweepReason
	Size   int64
	Age    time.Duration // since it was used last
	Err    error
}

// A CollectReport has everything that a collection looked at, the least recently
// used first.
type CollectReport struct {
	Items []CollectItem
	Bytes int64 // of the texts that are, or will be, left
}

// Removed returns how many things and bytes are, or will be, removed.
func (r CollectReport) Removed() (n int, bytes int64) {
	for _, item := range r.Items {
		if item.Action == SweepRemove {
			n++
			bytes += item.Size
		}
	}
	return n, bytes
}

// PlanCollect reports what Collect would do now, and changes nothing.
func (o *Offload) PlanCollect(ctx context.Context, opts *CollectOptions) (CollectReport, error) {
	return o.collect(ctx, opts, false)
}

// Collect removes texts that were not used for longer than MaxAge, then the least
// recently used until the rest takes at most MaxBytes. Kept, whatever the cap, are
// those that are pinned, leased or referenced, or were used within MinAge. Of a text that
// is removed the record stays, and says what it was.
//
// It compares both sides. A file without a record is what a killed writer left; it
// goes when nobody holds it and it is an hour old. A record whose file somebody
// removed by hand becomes one of a collected text. Temporary files of writers
// that are gone go too. What is not ours is reported and never touched.
//
// An error means that the collection ended early; the report has what was done.
// Any number of collections may run at once, beside writers in any process: a text
// that somebody uses in this moment is kept.
func (o *Offload) Collect(ctx context.Context, opts *CollectOptions) (CollectReport, error) {
	return o.collect(ctx, opts, true)
}

func (o *Offload) collect(ctx context.Context, opts *CollectOptions, do bool) (CollectReport, error) {
	c := &collector{o: o, do: do, now: time.Now()}
	if opts != nil {
		c.opts = *opts
	}
	err := c.run(ctx)
	slices.SortStableFunc(c.report.Items, func(a, b CollectItem) int {
		return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(a.Path, b.Path))
	})
	return c.report, edge("offload.collect", o.dir, err)
}

type collector struct {
	o      *Offload
	opts   CollectOptions
	do     bool
	now    time.Time
	report CollectReport
}

// orphanAge is how old a file without a record must be. Its writer's lock protects
// it in any case; this is for file systems without locks or links.
const orphanAge = time.Hour

func (c *collector) run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.o.here(); err != nil {
		return err
	}
	// Files first: each that has its record by then is found in the index.
	files, err := readDir(c.o.root, ".")
	if err != nil {
		return err
	}
	var live []*offloadRecord
	known := map[string]bool{}
	for id, err := range c.o.ids(ctx) {
		if err != nil {
			return err
		}
		known[id] = true
		r, err := c.record(ctx, id)
		if err != nil {
			return err
		}
		if r != nil {
			live = append(live, r)
		}
	}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.file(ctx, f, known)
	}
	if err := c.texts(ctx, live); err != nil {
		return err
	}
	return c.digests(ctx)
}

func (c *collector) item(r *offloadRecord, action SweepAction, reason SweepReason, err error) CollectItem {
	return CollectItem{Handle: r.handle(), Path: c.o.abs(r.File), Action: action, Reason: reason, Size: r.Size,
		Age: c.now.Sub(time.UnixMilli(r.Used)), Err: err}
}

func (c *collector) add(item CollectItem) { c.report.Items = append(c.report.Items, item) }

// record looks at one record of the index, and returns it if its text is there.
func (c *collector) record(ctx context.Context, id string) (*offloadRecord, error) {
	r, err := c.o.load(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, nil // gone in this moment
	case errors.Is(err, ErrCorrupt):
		c.add(CollectItem{Handle: Handle(handlePrefix + id), Action: SweepKeep, Reason: SweepDamaged, Err: err})
		return nil, nil
	case err != nil:
		return nil, err
	}
	_, err = c.o.root.Lstat(r.File)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case r.Gone != 0 && missing:
		if c.now.Sub(time.UnixMilli(r.Gone)) > DefaultOffloadMemory {
			item := c.item(r, SweepRemove, SweepForgotten, nil)
			item.Path, item.Size = "", 0
			c.add(c.done(item, c.forget(ctx, r)))
		}
		return nil, nil
	case r.Gone != 0: // a collection was stopped in the middle
		c.add(c.done(c.item(r, SweepRemove, SweepLeftover, nil), c.remove(r.File)))
		return nil, nil
	case missing:
		item := c.item(r, SweepRemove, SweepLeftover, nil)
		item.Size = 0
		c.add(c.done(item, c.tombstone(ctx, r, "lost")))
		return nil, nil
	case err != nil:
		c.add(c.item(r, SweepKeep, SweepUnknown, err))
		return nil, nil
	}
	return r, nil
}

// done completes an item with what came of it.
func (c *collector) done(item CollectItem, err error) CollectItem {
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotFound):
	case errors.Is(err, ErrConflict):
		item.Action, item.Reason = SweepKeep, SweepBusy
	default:
		item.Action, item.Reason, item.Err = SweepKeep, SweepFailed, err
	}
	return item
}

// file looks at one name in the folder that the index may not know.
func (c *collector) file(ctx context.Context, f fs.DirEntry, known map[string]bool) {
	name := f.Name()
	id, ours := idOf(name)
	switch {
	case name == offloadIDFile || ours && known[id]:
		return
	case !f.Type().IsRegular() || !ours && !atomicfile.IsTemp(name):
		c.add(CollectItem{Path: c.o.abs(name), Action: SweepKeep, Reason: SweepForeign})
		return
	}
	fi, err := c.o.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	item := CollectItem{Path: c.o.abs(name), Action: SweepRemove, Reason: SweepLeftover}
	if err == nil {
		item.Size, item.Age = fi.Size(), c.now.Sub(fi.ModTime())
		if ours && item.Age < orphanAge {
			item.Action, item.Reason = SweepKeep, SweepFresh
			c.add(item)
			return
		}
		var orphan bool
		orphan, err = atomicfile.Orphan(c.o.root, name, func(name string) error {
			// Under the lock: its writer is gone, or has written the record by now.
			if ours {
				if _, err := c.o.load(ctx, id); !errors.Is(err, ErrNotFound) {
					return cmp.Or(err, ErrConflict)
				}
			}
			return c.remove(name)
		})
		if err == nil && !orphan {
			err = ErrConflict
		}
	}
	c.add(c.done(item, err))
}

// remove removes a file, if the collection is not only planned.
func (c *collector) remove(name string) error {
	if !c.do {
		return nil
	}
	if err := c.o.step.Before("remove", name); err != nil {
		return err
	}
	return c.o.root.Remove(name)
}

// tombstone makes a record say what the text was. It is ErrConflict if somebody
// used the text since it was read.
func (c *collector) tombstone(ctx context.Context, r *offloadRecord, why SweepReason) error {
	if !c.do {
		return nil
	}
	gone := *r
	gone.Gone, gone.Why, gone.Leases = c.now.UnixMilli(), string(why), nil
	return c.o.save(ctx, &gone)
}

// forget removes a record that is old.
func (c *collector) forget(ctx context.Context, r *offloadRecord) error {
	if !c.do {
		return nil
	}
	return c.o.index.Delete(ctx, c.o.prefix+offloadHandles+r.id, r.version)
}

// texts decides about the texts that are there, the least recently used first.
func (c *collector) texts(ctx context.Context, live []*offloadRecord) error {
	slices.SortStableFunc(live, func(a, b *offloadRecord) int {
		return cmp.Or(cmp.Compare(a.Used, b.Used), strings.Compare(a.id, b.id))
	})
	for _, r := range live {
		c.report.Bytes += r.Size
	}
	for _, r := range live {
		if err := ctx.Err(); err != nil {
			return err
		}
		item := c.judge(ctx, r)
		if item.Action == SweepRemove {
			// The record first: whoever uses the text in this moment wins, or sees that
			// it is gone.
			err := c.tombstone(ctx, r, item.Reason)
			if err == nil {
				err = c.remove(r.File)
			}
			item = c.done(item, err)
			if c.do {
				c.o.trace(ctx, TraceEvent{Op: "offload.collect", ID: string(r.handle()), Size: r.Size, SHA256: r.SHA256}, item.Err)
			}
		}
		if item.Action == SweepRemove {
			c.report.Bytes -= r.Size
		}
		c.add(item)
	}
	return nil
}

// judge decides about one text.
func (c *collector) judge(ctx context.Context, r *offloadRecord) CollectItem {
	age := c.now.Sub(time.UnixMilli(r.Used))
	limit := c.o.opts
	reason := SweepReason("")
	switch {
	case limit.MaxAge != Forever && age > limit.MaxAge:
		reason = SweepIdle
	case limit.MaxBytes != NoLimit && c.report.Bytes > limit.MaxBytes:
		reason = SweepOverCap
	}
	switch {
	case r.Pinned:
		return c.item(r, SweepKeep, SweepPinned, nil)
	case r.leased(c.now):
		return c.item(r, SweepKeep, SweepLeased, nil)
	case reason == "" || age < limit.MinAge:
		return c.item(r, SweepKeep, SweepFresh, nil)
	}
	if c.opts.Referenced != nil {
		switch referenced, err := c.opts.Referenced(ctx, r.handle()); {
		case err != nil:
			return c.item(r, SweepKeep, SweepUnknown, err)
		case referenced:
			return c.item(r, SweepKeep, SweepReferenced, nil)
		}
	}
	return c.item(r, SweepRemove, reason, nil)
}

// digests removes what the index says of contents that are not there any more.
func (c *collector) digests(ctx context.Context) error {
	if !c.do {
		return nil
	}
	prefix := c.o.prefix + offloadDigests
	for key, err := range c.o.index.Keys(ctx, prefix, "") {
		if err != nil {
			return err
		}
		stored, err := c.o.index.Get(ctx, key)
		if errors.Is(err, ErrNotFound) {
			continue
		} else if err != nil {
			return err
		}
		r, err := c.o.load(ctx, string(stored.Value))
		if errors.Is(err, ErrNotFound) || err == nil && r.Gone != 0 {
			err = c.o.index.Delete(ctx, key, stored.Version)
			if errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {
				err = nil // somebody stored the content anew
			}
		} else if errors.Is(err, ErrCorrupt) {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

package team

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Under "team/join/<parent>/": "c/<child>" is a childRecord, "t/<child>/<digest>"
// the text of an answer, "waits" the joinRecord.

// A joinRecord is what the waiters of one parent share.
type joinRecord struct {
	Children int       `json:"children"`         // the highest Order that was given
	Streak   int       `json:"streak,omitempty"` // waits that ended unsettled, one behind the other
	Since    time.Time `json:"since,omitzero"`   // when the first of them began
}

const (
	joinTries  = 16  // each lost race is another writer who got on
	mostUnkept = 256 // evidence of one child that could not be written yet
)

func (j *Join) childKey(id SessionID) string { return j.prefix + "c/" + keyPart(string(id)) }

// load reads the children that the store knows and this process does not. broken is
// about records that cannot be read: the others are loaded.
func (j *Join) load(ctx context.Context) (broken, err error) {
	for key, err := range j.records.Keys(ctx, j.prefix+"c/", "") {
		if err == nil {
			err = j.loadKey(ctx, key)
		}
		switch {
		case errors.Is(err, ErrCorrupt):
			if _, known := j.unreadable.LoadOrStore(key, true); !known && j.opts.Report != nil {
				j.opts.Report(ctx, "unreadable record", key)
			}
			if broken == nil {
				broken = err // one name is enough to begin with
			}
		case err != nil:
			return broken, err
		}
	}
	return broken, nil
}

// loadKey reads the child under key, unless it is in memory.
func (j *Join) loadKey(ctx context.Context, key string) error {
	j.mu.RLock()
	known := j.byKey[key] != nil
	j.mu.RUnlock()
	if known {
		return nil
	}
	rec, version, err := j.read(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return nil // removed in this moment
	}
	if err == nil {
		c, _ := j.insert(rec, version)
		c.mu.Unlock()
	}
	return err
}

// read returns the record of a child.
func (j *Join) read(ctx context.Context, key string) (childRecord, Version, error) {
	stored, err := j.records.Get(ctx, key)
	if err != nil {
		return childRecord{}, "", err
	}
	var rec childRecord
	if err = json.Unmarshal(stored.Value, &rec); err == nil {
		err = rec.check()
	}
	if err == nil && j.childKey(rec.Session) != key {
		err = errors.New("it is that of another")
	}
	if err != nil {
		return childRecord{}, "", fmt.Errorf("%w: record of a child, %s: %w; delete it, and adopt the child again", ErrCorrupt, quoteName(key), err)
	}
	return rec, stored.Version, nil
}

// check refuses what no Join has written.
func (r *childRecord) check() error {
	for _, t := range append(slices.Clone(r.Earlier), r.ChildTurn) {
		a := t.Answer
		switch {
		case t.Turn < 1 || t.Turn > r.Turn:
			return errors.New("it has no such turn")
		case !t.State.Settled() && t.State != ChildRunning && t.State != ChildSettling:
			return errors.New("its state is none")
		case a.Size < 0 || a.Known && a.Size > 0 && len(a.SHA256) != 2*sha256.Size:
			return errors.New("its answer has no digest")
		}
	}
	return nil
}

// insert puts a child into memory, unless somebody did already, and returns the one that is there, with c.mu
// held, and whether it is new.
func (j *Join) insert(rec childRecord, version Version) (c *joined, fresh bool) {
	j.mu.Lock()
	if c := j.children[rec.Session]; c != nil {
		j.mu.Unlock() // who waits for c.mu may not hold j.mu
		c.mu.Lock()
		return c, false
	}
	defer j.mu.Unlock()
	c = &joined{id: rec.Session, key: j.childKey(rec.Session), rec: rec, version: version}
	c.number.Store(int64(rec.Order))
	c.mu.Lock()
	c.note()
	if j.opened { // our stream runs already, and may be behind that of who wrote this
		c.owes, c.owesUntil = rec.endingsSince(time.Now().Add(-j.opts.Lag)), time.Now().Add(j.opts.Lag)
	}
	c.life.Store(time.Now().UnixNano()) // silence counts from when somebody listens
	j.children[rec.Session] = c
	j.byKey[c.key] = c
	for _, id := range rec.Open {
		j.descends[id] = c.id
	}
	c.descends = slices.Clone(rec.Open)
	return c, true
}

// note keeps what the hot path asks in step with the record. c.mu is held.
func (c *joined) note() {
	r := &c.rec
	c.quiet.Store(r.State == ChildRunning && r.Started && r.Shows && r.Over == nil && r.Retry == "" && !r.Parked)
}

// absorb takes evidence of a child: into memory and the store, or, if the store
// fails, into a list that the next call goes on with.
func (j *Join) absorb(ctx context.Context, c *joined, e evidence) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return j.admit(ctx, c, e)
}

// admit is absorb where c.mu is held.
func (j *Join) admit(ctx context.Context, c *joined, e evidence) error {
	err := j.catchUp(ctx, c)
	if err == nil {
		err = j.change(ctx, c, func(r *childRecord) bool { return !c.owed(e, time.Now()) && r.apply(e, time.Now(), &j.opts) })
	}
	switch {
	case err == nil || c.gone:
	case e.kind == evidenceAnswer || e.kind == evidenceCancel:
		// Who asked for it is told that it failed, and does nothing.
	case len(c.todo) < mostUnkept:
		e.At = time.Now().UTC()
		c.todo = append(c.todo, e)
	default:
		j.gapped("the store failed for too long") // a snapshot makes up for what is not kept
	}
	return err
}

// catchUp writes what could not be written before. c.mu is held.
func (j *Join) catchUp(ctx context.Context, c *joined) error {
	for len(c.todo) > 0 {
		e := c.todo[0]
		if err := j.change(ctx, c, func(r *childRecord) bool { return !c.owed(e, time.Now()) && r.apply(e, time.Now(), &j.opts) }); err != nil {
			return err
		}
		c.todo = c.todo[1:]
	}
	return nil
}

// tick lets time pass for children: what could not be written, and what is due.
func (j *Join) tick(ctx context.Context, all []*joined) error {
	var failed []error
	for _, c := range all {
		c.mu.Lock()
		err := j.catchUp(ctx, c)
		if err == nil && c.rec.Over != nil && !c.rec.Over.Due.IsZero() && !time.Now().Before(c.rec.Over.Due) {
			err = j.change(ctx, c, func(r *childRecord) bool { return r.due(time.Now()) })
		}
		if errors.Is(err, ErrCorrupt) {
			c.broken, err = err, nil // the others go on
		}
		if c.gone {
			err = nil
		}
		c.mu.Unlock()
		if err != nil {
			failed = append(failed, err)
			if ctx.Err() != nil {
				break
			}
		}
	}
	return errors.Join(failed...)
}

// change applies how to the child's record by compare-and-set: how is applied to what
// another process wrote if that was first. c.mu is held.
func (j *Join) change(ctx context.Context, c *joined, how func(*childRecord) bool) error {
	for range joinTries {
		if c.gone {
			return errForgotten
		}
		if c.version == "" { // its last write has an unknown outcome
			if err := j.reread(ctx, c); err != nil {
				return err
			}
		}
		rec := c.rec.clone()
		if !how(&rec) {
			c.rec.Seq, c.rec.Retried = max(c.rec.Seq, rec.Seq), rec.Retried
			return nil
		}
		value, err := json.Marshal(rec)
		if err != nil {
			return err
		}
		version, err := j.records.Put(ctx, c.key, value, c.version)
		switch {
		case err == nil:
			j.wrote(ctx, c, rec, version)
			return nil
		case errors.Is(err, ErrUnknownOutcome):
			c.version = ""
			stored, failed := j.records.Get(context.WithoutCancel(ctx), c.key)
			if failed == nil && bytes.Equal(stored.Value, value) {
				j.wrote(ctx, c, rec, stored.Version)
				return nil
			}
			j.trace(ctx, TraceEvent{Op: "join.note", Target: c.id}, err)
			return err
		case errors.Is(err, ErrConflict):
			if err := j.reread(ctx, c); err != nil {
				return err
			}
		default:
			j.trace(ctx, TraceEvent{Op: "join.note", Target: c.id}, err)
			return err
		}
	}
	return errJoinRace
}

// wrote takes what was written as the child's record. c.mu is held.
func (j *Join) wrote(ctx context.Context, c *joined, rec childRecord, version Version) {
	old := c.rec
	j.take(c, rec, version)
	if rec.State.Settled() && !old.State.Settled() {
		j.stream.mu.Lock()
		j.stream.settled = true
		j.stream.mu.Unlock()
	}
	op := "join.note"
	if rec.State != old.State || rec.Turn != old.Turn || rec.Presumed != old.Presumed {
		op = "join." + strings.ReplaceAll(string(rec.State), " ", "-")
	}
	j.trace(ctx, TraceEvent{Op: op, ID: rec.By.What, Target: rec.Session, Round: rec.Turn, Count: len(rec.Conflicts)}, nil)
}

// take makes rec what this process knows of a child. c.mu is held.
func (j *Join) take(c *joined, rec childRecord, version Version) {
	c.rec, c.version = rec, version
	c.number.Store(int64(rec.Order)) // who made the record may not be who began to
	c.note()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, id := range rec.Open {
		j.owns(c, id)
	}
	if rec.State.Settled() && !rec.Presumed && rec.Owes == 0 { // until then, one that has ended may be woken again
		for _, id := range c.descends {
			delete(j.descends, id)
		}
		c.descends = nil
	}
	j.tell()
}

// owns makes what comes of a descendant a matter of c. c.mu and j.mu are held.
func (j *Join) owns(c *joined, id SessionID) {
	if j.descends[id] != c.id {
		j.descends[id] = c.id
		c.descends = append(c.descends, id)
	}
}

// reread reads what another process wrote. c.mu is held.
func (j *Join) reread(ctx context.Context, c *joined) error {
	rec, version, err := j.read(ctx, c.key)
	switch {
	case errors.Is(err, ErrNotFound):
		j.forget(c)
		return errForgotten
	case errors.Is(err, ErrCorrupt):
		c.broken = err
		return err
	case err != nil:
		return err
	}
	c.broken = nil
	if version != c.version {
		if n := rec.endings() - c.rec.endings(); n > 0 {
			c.owes, c.owesUntil = c.owes+n, time.Now().Add(j.opts.Lag)
		}
		rec.Seq = max(rec.Seq, c.rec.Seq)
		j.take(c, rec, version)
	}
	return nil
}

// endings is how many endings the stream has come to, as far as the record tells.
func (r *childRecord) endings() int {
	n := r.Turn - 1 - r.Owes
	if r.State.Settled() && !r.Presumed {
		n++
	}
	return n
}

// endingsSince is the same of the turns that ended behind t.
func (r *childRecord) endingsSince(t time.Time) int {
	n := -r.Owes
	for _, turn := range append(slices.Clone(r.Earlier), r.ChildTurn) {
		if turn.State.Settled() && !turn.Presumed && turn.Ended.After(t) {
			n++
		}
	}
	return max(n, 0)
}

// owed reports whether an event belongs to a turn of which another process has written that
// it is over: the stream of that one was faster than ours. Where events have a sequence, that
// tells. c.mu is held.
func (c *joined) owed(e evidence, now time.Time) bool {
	if c.owes == 0 || e.Source != FromEvent || e.Seq != 0 || e.Reason == "deleted" {
		return false
	}
	if !now.Before(c.owesUntil) {
		c.owes = 0
		return false
	}
	switch e.kind {
	case evidenceStart, evidenceStep, evidenceRetry:
		return true
	case evidenceSeems:
		if e.endsTurn() {
			c.owes--
		}
		return true
	case evidenceIdle, evidenceEnd:
		c.owes--
		return true
	}
	return false
}

// refresh takes in what other processes wrote of children.
func (j *Join) refresh(ctx context.Context, all []*joined) error {
	for _, c := range all {
		c.mu.Lock()
		err := j.reread(ctx, c)
		c.mu.Unlock()
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, errForgotten) { // these are kept with the child: the others go on
			return err
		}
	}
	return nil
}

// meta changes the joinRecord, and returns it as it is then.
func (j *Join) meta(ctx context.Context, how func(*joinRecord) bool) (joinRecord, error) {
	for range joinTries {
		var rec joinRecord
		stored, err := j.records.Get(ctx, j.prefix+"waits")
		if err != nil && !errors.Is(err, ErrNotFound) {
			return rec, err
		}
		if err == nil {
			if err := json.Unmarshal(stored.Value, &rec); err != nil {
				return rec, fmt.Errorf("%w: record of a join: %w", ErrCorrupt, err)
			}
		}
		if !how(&rec) {
			return rec, nil
		}
		value, err := json.Marshal(rec)
		if err != nil {
			return rec, err
		}
		if _, err = j.records.Put(ctx, j.prefix+"waits", value, stored.Version); !errors.Is(err, ErrConflict) {
			j.trace(ctx, TraceEvent{Op: "join.waits", Count: rec.Children, Round: rec.Streak}, err)
			return rec, err
		}
	}
	return joinRecord{}, errJoinRace
}

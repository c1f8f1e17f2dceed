package team

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A lookup is what lies under a key.
type lookup struct {
	record Record // as stored
	there  bool   // the store has a record
	live   bool   // and it can be read, and its time is not over
	fact   Fact   // if it can be read
	err    error  // if it cannot: ErrCorrupt
}

// look reads the record under key. Its error is that of the call.
func (l *Ledger) look(ctx context.Context, key string) (lookup, error) {
	if err := checkFactKey(key); err != nil {
		return lookup{}, err
	}
	r, err := l.records.Get(ctx, l.prefix+key)
	if errors.Is(err, ErrNotFound) {
		return lookup{}, nil
	}
	if errors.Is(err, ErrCorrupt) {
		return lookup{there: true, err: err}, nil // the store's own word for it
	}
	if err != nil {
		return lookup{}, err
	}
	found := lookup{record: r, there: true}
	found.fact, found.err = decodeFact(l.prefix+key, key, r)
	found.live = found.err == nil && !found.fact.ended(time.Now())
	return found, nil
}

// ended reports whether the record's time is over.
func (f Fact) ended(now time.Time) bool { return !f.Expires.IsZero() && !now.Before(f.Expires) }

// base returns the version that the store must find for e to be right, or why e
// is wrong.
func (found lookup) base(e Edit) (Version, error) {
	if found.err != nil && e.Prev != AnyVersion {
		return "", found.err
	}
	if e.Delete && !found.live && found.err == nil {
		return "", ErrNotFound
	}
	if e.Prev == AnyVersion {
		return AnyVersion, nil
	}
	var current Version // what the caller can have seen
	if found.live {
		current = found.record.Version
	}
	if e.Prev != current {
		return "", &ConflictError{Key: e.Key, Current: current}
	}
	// A record whose time is over counts as none, but the store has it.
	return found.record.Version, nil
}

func checkWritable(key string) error {
	if key == goalsKey {
		return &InvalidError{What: "ledger key", Why: fmt.Sprintf("is %q, which is the goal list", goalsKey), Offset: -1,
			Advice: "use AddGoals, SetGoal and RemoveGoal"}
	}
	return checkFactKey(key)
}

func (l *Ledger) checkValue(value []byte) error {
	if over(len(value), l.opts.MaxValue) {
		return &LimitError{What: "ledger value bytes", Got: int64(len(value)), Max: int64(l.opts.MaxValue), TooLarge: true,
			Advice: "write it to the board and keep its path here"}
	}
	return checkJSON(value)
}

// wholeTTL returns ttl in whole milliseconds, rounded up.
func wholeTTL(ttl time.Duration) (time.Duration, error) {
	switch {
	case ttl == Forever:
		return ttl, nil
	case ttl <= 0 || ttl > maxTTL:
		return 0, &InvalidError{What: "time to live", Why: "is not between a millisecond and a hundred years, nor Forever", Offset: -1}
	default:
		return (ttl + time.Millisecond - 1).Truncate(time.Millisecond), nil
	}
}

// apply checks what a caller wants, and carries it out.
func (l *Ledger) apply(ctx context.Context, edits ...Edit) ([]Version, error) {
	if err := l.checkEdits(edits); err != nil {
		return nil, err
	}
	facts, err := l.carryOut(ctx, edits, nil, l.write)
	if err != nil {
		return nil, err
	}
	versions := make([]Version, len(facts))
	for i, f := range facts {
		versions[i] = f.Version
	}
	return versions, nil
}

// applyWith is apply as a part of a larger step.
func (l *Ledger) applyWith(ctx context.Context, edits []Edit, step ledgerWrite) error {
	if err := l.checkEdits(edits); err != nil {
		return err
	}
	_, err := l.carryOut(ctx, edits, nil, step)
	return err
}

func (l *Ledger) checkEdits(edits []Edit) error {
	keys := make(map[string]bool, len(edits))
	for _, e := range edits {
		err := checkWritable(e.Key)
		if err == nil && keys[e.Key] {
			err = &InvalidError{What: "edits", Why: "change " + quoteName(e.Key) + " twice", Offset: -1}
		}
		if err == nil && !e.Delete {
			err = l.checkValue(e.Value)
		}
		if err != nil {
			return err
		}
		keys[e.Key] = true
	}
	return nil
}

// raceTries bounds how often a write starts again because the store was changed
// beneath it, though what its caller knows still holds: a sweep that removes
// a record whose time was over, say.
const raceTries = 8

// carryOut makes the edits, which are well formed, in one step, and returns the
// records as they are now. found is what lies under their keys, or nil. write is the
// step.
func (l *Ledger) carryOut(ctx context.Context, edits []Edit, found []lookup, write ledgerWrite) ([]Fact, error) {
	facts, changes, err := l.changes(ctx, edits)
	if err != nil || len(edits) == 0 {
		return nil, err
	}
	for try := 0; ; try++ {
		if found == nil {
			found = make([]lookup, len(edits))
			for i, e := range edits {
				if found[i], err = l.look(ctx, e.Key); err != nil {
					return nil, err
				}
			}
		}
		for i, e := range edits {
			if changes[i].Prev, err = found[i].base(e); err != nil {
				return nil, err
			}
		}
		versions, err := l.admit(ctx, changes, found, write)
		if err == nil {
			for i := range facts {
				facts[i].Version = versions[i]
			}
			return facts, nil
		}
		if !errors.Is(err, ErrConflict) {
			return nil, err
		}
		if try+1 == raceTries {
			return nil, &ConflictError{Key: edits[0].Key, Current: found[0].record.Version}
		}
		found = nil // look again: the next round says which key it was
	}
}

// changes makes what the store is to do of edits, but for the versions that it
// must find, and the records as they will be.
func (l *Ledger) changes(ctx context.Context, edits []Edit) ([]Fact, []Change, error) {
	caller, err := callerOf(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, ok := l.records.(Committer); !ok && len(edits) > 1 {
		return nil, nil, fmt.Errorf("%w: the store cannot change several records in one step; change one at a time",
			errors.ErrUnsupported)
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	facts, changes := make([]Fact, len(edits)), make([]Change, len(edits))
	for i, e := range edits {
		changes[i] = Change{Key: l.prefix + e.Key, Delete: e.Delete}
		if e.Delete {
			facts[i].Key = e.Key
			continue
		}
		setDefault(&e.TTL, l.opts.TTL)
		f := Fact{Key: e.Key, Value: e.Value, By: caller, At: now}
		if f.TTL, err = wholeTTL(e.TTL); err != nil {
			return nil, nil, err
		}
		if f.TTL != Forever {
			f.Expires = now.Add(f.TTL)
		}
		if changes[i].Value, err = encodeFact(changes[i].Key, f); err != nil {
			return nil, nil, err
		}
		facts[i] = f
	}
	return facts, changes, nil
}

// A ledgerWrite makes changes, whose keys are those of the store, in one step.
type ledgerWrite func(ctx context.Context, changes []Change) ([]Version, error)

// write is the one way from a Ledger to its store: every change passes through
// here, those of the goal list and of sweeps too, but for a Handoff's.
func (l *Ledger) write(ctx context.Context, changes []Change) ([]Version, error) {
	if len(changes) > 1 {
		done, err := l.records.(Committer).Commit(ctx, nil, changes) // changes has looked that it is one
		return done.Versions, err
	}
	c := changes[0]
	if c.Delete {
		return []Version{""}, l.records.Delete(ctx, c.Key, c.Prev)
	}
	v, err := l.records.Put(ctx, c.Key, c.Value, c.Prev)
	return []Version{v}, err
}

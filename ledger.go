package team

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// The limits of a Ledger, for each scope.
const (
	DefaultLedgerKeys  = 1000
	DefaultLedgerBytes = 4 << 20
	DefaultLedgerValue = 64 << 10
)

// A Scope says whose facts they are. It is part of every key that a Ledger
// stores, and nothing crosses it: ledgers of different scopes share a store and
// never see or change each other's records.
//
// A component is UTF-8 of one line, taken as it is: two scopes are the same only
// if their bytes are. Together they may take about 500 bytes.
type Scope struct {
	Project string    // required: the workspace, or whatever the work is about
	Session SessionID // empty: shared by all sessions of the project
	Agent   string    // empty: shared by all agents of the session
}

// LedgerOptions change what a Ledger refuses and how long it keeps. The zero
// value has the defaults.
type LedgerOptions struct {
	// MaxKeys is the most records in the scope, the goal list among them. Zero
	// means DefaultLedgerKeys.
	MaxKeys int

	// MaxBytes is the most bytes in the scope: keys and values as they are
	// stored, with about 100 bytes for each record beside its value. Zero means
	// DefaultLedgerBytes.
	MaxBytes int

	// MaxValue is the most bytes of one value. Zero means DefaultLedgerValue.
	MaxValue int

	// MaxGoals is the most goals in the list. Zero means DefaultMaxGoals.
	MaxGoals int

	// TTL is how long a record is kept after it was written, unless its Edit
	// says otherwise. Zero, like Forever, keeps it until it is deleted. It
	// counts in milliseconds.
	TTL time.Duration

	// Trace is told of every write, also of those that were refused: a Trail's
	// Record, for example. Nil is nobody. It is called in the caller's goroutine.
	Trace func(context.Context, TraceEvent)
}

// A Ledger is the index of a team's work: small facts by key, each with its
// version, and the goal list. A change names the version that it is based on; if
// somebody else was first, it is refused and says which version there is now.
// Different keys never conflict.
//
// A value is one JSON value and comes back byte for byte. What is large goes on
// a Board, and its path in here. Lists give names, and a value is asked for by
// its name: no call returns several.
//
// Every write takes its author from the context (see WithCaller) and keeps it
// with the record. Anybody who opened the ledger may write to it.
//
// A Ledger is safe for use by several goroutines and runs none of its own. What
// it promises about crashes and other processes is what its Records promise.
type Ledger struct {
	records Records
	scope   Scope
	prefix  string
	opts    LedgerOptions
	quota   *ledgerQuota
}

// OpenLedger opens the ledger of scope in records, which may be a Store or what
// HostRecords returns. Any number of ledgers, of one scope too, may be open over
// the same records. The caller keeps these open as long as the ledger is used.
func OpenLedger(ctx context.Context, records Records, scope Scope, opts *LedgerOptions) (*Ledger, error) {
	if records == nil {
		panic("team: OpenLedger with nil Records")
	}
	l := &Ledger{records: records, scope: scope, quota: new(ledgerQuota)}
	if opts != nil {
		l.opts = *opts
	}
	setDefault(&l.opts.MaxKeys, DefaultLedgerKeys)
	setDefault(&l.opts.MaxBytes, DefaultLedgerBytes)
	setDefault(&l.opts.MaxValue, DefaultLedgerValue)
	setDefault(&l.opts.MaxGoals, DefaultMaxGoals)
	setDefault(&l.opts.TTL, Forever)
	err := checkLimits("ledger", limitOption{"MaxKeys", l.opts.MaxKeys}, limitOption{"MaxBytes", l.opts.MaxBytes},
		limitOption{"MaxValue", l.opts.MaxValue}, limitOption{"MaxGoals", l.opts.MaxGoals})
	if err == nil {
		l.prefix, err = scope.prefix()
	}
	if err == nil {
		if _, err = wholeTTL(l.opts.TTL); err == nil {
			records.Keys(ctx, l.prefix, "")(func(_ string, failed error) bool {
				err = failed
				return false // the store answers: that is all we want to know
			})
		}
	}
	if err != nil {
		return nil, edge("ledger.open", scope.Project, err)
	}
	return l, nil
}

// Scope returns whose ledger it is.
func (l *Ledger) Scope() Scope { return l.scope }

// A Fact is one record of a Ledger.
type Fact struct {
	Key     string
	Value   json.RawMessage // as it was put, byte for byte
	Version Version         // zero in the Fact of a record that does not exist
	By      Caller          // who wrote it
	At      time.Time       // when, by the writer's clock
	TTL     time.Duration   // Forever, or how long it is kept after At
	Expires time.Time       // zero for never
}

// An Edit is one change of Apply: a Put, or a Delete.
type Edit struct {
	Key    string
	Value  json.RawMessage
	Prev   Version
	TTL    time.Duration // zero is that of LedgerOptions; Forever is for ever
	Delete bool
}

// A ConflictError says that a record is not in the state that a change was
// based on, since somebody else was first. It is an ErrConflict.
type ConflictError struct {
	Key     string
	Current Version // of the record now; zero if there is none
}

func (e *ConflictError) Error() string {
	if e.Current == "" {
		return fmt.Sprintf("conflict: there is no record %s now", quoteName(e.Key))
	}
	return fmt.Sprintf("conflict: record %s is in version %s now; read it again, then decide",
		quoteName(e.Key), quoteName(string(e.Current)))
}

// Is reports whether target is ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// Get returns the record under key. There is none (ErrNotFound) also when its
// time is over. One that is damaged is ErrCorrupt; the others are as good as ever.
func (l *Ledger) Get(ctx context.Context, key string) (Fact, error) {
	found, err := l.look(ctx, key)
	if err == nil {
		err = found.err
	}
	if err == nil && !found.live {
		err = ErrNotFound
	}
	if err != nil {
		return Fact{}, edge("ledger.get", key, err)
	}
	return found.fact, nil
}

// Put stores value under key if the record's version is prev, and returns the
// new one; otherwise it is a *ConflictError. A zero prev creates only. AnyVersion
// overwrites what is there, a damaged record too.
//
// A key is one line of UTF-8, of at most 512 bytes; "goals" is that of the goal
// list. What is not JSON is ErrInvalid; what is over a limit is a *LimitError. The
// quota is exact among the calls of one Ledger. Several that write at the same
// moment may pass it, together, by what they write at that moment. Nothing was
// written when Put returns an error, unless that is ErrUnknownOutcome.
func (l *Ledger) Put(ctx context.Context, key string, value json.RawMessage, prev Version) (Version, error) {
	versions, err := l.apply(ctx, Edit{Key: key, Value: value, Prev: prev})
	l.traceValue(ctx, "ledger.put", key, value, err)
	if err != nil {
		return "", edge("ledger.put", key, err)
	}
	return versions[0], nil
}

// Delete removes the record under key if its version is prev; otherwise it is a
// *ConflictError, or ErrNotFound if there is none.
func (l *Ledger) Delete(ctx context.Context, key string, prev Version) error {
	_, err := l.apply(ctx, Edit{Key: key, Prev: prev, Delete: true})
	l.traceValue(ctx, "ledger.delete", key, nil, err)
	return edge("ledger.delete", key, err)
}

// Apply makes all the edits or none, in one step, and returns the new version of
// each, zero for a deletion. Each obeys the law of Put or Delete; the first that
// fails is the error of the whole. A key may be edited once.
//
// Several edits need Records that are a Committer; with any other they are
// errors.ErrUnsupported. One edit needs nothing: it is a Put with a time to live.
func (l *Ledger) Apply(ctx context.Context, edits ...Edit) ([]Version, error) {
	versions, err := l.apply(ctx, edits...)
	l.traceEdits(ctx, "ledger.apply", edits, err)
	if err != nil {
		names := make([]string, len(edits))
		for i, e := range edits {
			names[i] = e.Key
		}
		return nil, edge("ledger.apply", strings.Join(names, ","), err)
	}
	return versions, nil
}

// updateTries bounds Update. With the waiting in between, only somebody who
// writes without a pause for seconds can make a caller lose so often.
const updateTries = 64

// Update replaces the value under key by what change makes of it, and returns
// the new record. If somebody else writes the record in the meantime, it calls
// change again with what is there then: up to 64 times, with growing pauses,
// before it is a *ConflictError. So change must do nothing but compute.
//
// If there is no record, old has only its Key. If change returns a nil value,
// nothing is written, and old returned. An error of change ends the Update and is
// in the chain of the returned one. The record keeps its time to live, which
// begins anew.
func (l *Ledger) Update(ctx context.Context, key string, change func(old Fact) (json.RawMessage, error)) (Fact, error) {
	var f Fact
	wrote := false
	err := checkWritable(key)
	if err == nil {
		f, wrote, err = l.update(ctx, key, 0, func(old Fact) (json.RawMessage, error) {
			value, err := change(old)
			if err == nil && value != nil {
				err = l.checkValue(value)
			}
			return value, err
		})
	}
	if wrote || err != nil {
		l.traceValue(ctx, "ledger.update", key, f.Value, err)
	}
	return f, edge("ledger.update", key, err)
}

// trace tells of a write.
func (l *Ledger) trace(ctx context.Context, event TraceEvent, err error) {
	if l.opts.Trace != nil {
		event.Outcome, event.Reason = outcomeOf(err)
		l.opts.Trace(ctx, event)
	}
}

// traceValue tells of a write of one record. A deletion has no value.
func (l *Ledger) traceValue(ctx context.Context, op, key string, value []byte, err error) {
	event := TraceEvent{Op: op, ID: l.prefix + key, Size: int64(len(value))}
	if len(value) > 0 {
		event.SHA256 = hexDigest(value)
	}
	l.trace(ctx, event, err)
}

// traceEdits tells of each of several edits.
func (l *Ledger) traceEdits(ctx context.Context, op string, edits []Edit, err error) {
	for _, e := range edits {
		l.traceValue(ctx, op, e.Key, e.Value, err)
	}
}

// update is Update for every key, and says whether it wrote. A ttl that is zero is
// that of the record.
func (l *Ledger) update(ctx context.Context, key string, ttl time.Duration, change func(Fact) (json.RawMessage, error)) (Fact, bool, error) {
	for try := 0; ; try++ {
		found, err := l.look(ctx, key)
		if err == nil {
			err = found.err
		}
		if err != nil {
			return Fact{}, false, err
		}
		old, life := Fact{Key: key}, ttl
		if found.live {
			old = found.fact
			if life == 0 {
				life = old.TTL
			}
		}
		// The caller may do to its copy what it likes.
		given := old
		given.Value = slices.Clone(old.Value)
		value, err := change(given)
		if err != nil || value == nil {
			return old, false, err
		}
		e := Edit{Key: key, Value: value, Prev: old.Version, TTL: life}
		done, err := l.carryOut(ctx, []Edit{e}, []lookup{found}, l.write)
		if err == nil {
			return done[0], true, nil
		}
		if !errors.Is(err, ErrConflict) || try+1 >= updateTries {
			return Fact{}, false, err
		}
		if err := waitFor(ctx, rand.N(time.Millisecond<<min(try, 6))); err != nil {
			return Fact{}, false, err
		}
	}
}

// Keys yields the names of the records, in ascending order of their bytes: those
// that start with prefix and come behind after, at most limit of them, or all if
// that is zero. The last name of a page is the after of the next. It leaves out
// records whose time is over, and so reads each to look; it yields the names of
// damaged ones.
//
// It need not be a snapshot, but a record that is there all the while is yielded
// exactly once. It stops after an error. The ledger may be called from inside the
// loop.
func (l *Ledger) Keys(ctx context.Context, prefix, after string, limit int) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if limit < 0 {
			yield("", edge("ledger.keys", prefix, &InvalidError{What: "limit", Why: "is negative", Offset: -1}))
			return
		}
		n := 0
		for stored, err := range l.records.Keys(ctx, l.prefix+prefix, l.prefix+after) {
			key := strings.TrimPrefix(stored, l.prefix)
			if err == nil {
				var found lookup
				found, err = l.look(ctx, key)
				if err == nil && !found.live && found.err == nil {
					continue
				}
			}
			if err != nil {
				yield("", edge("ledger.keys", prefix, err))
				return
			}
			if n++; !yield(key, nil) || n == limit {
				return
			}
		}
	}
}

// Watch yields the names of records that start with prefix and that somebody
// puts or deletes after Watch has returned, in whatever process; the goal list is
// "goals". So call it, then read what you need, then range. Changes of one record
// in quick succession may be one, but the last one is never missed. It waits
// without polling until ctx ends, and yields its error. That the time of a record
// is over is no change, but its removal by a sweep is. The iterator is for one
// loop.
//
// A loop that was away for so long that the store has forgotten what was deleted
// meanwhile (an hour in SQLite) gets an ErrConflict: call Watch again, then read anew.
//
// It needs Records that are a Watcher; with any other it yields errors.ErrUnsupported.
func (l *Ledger) Watch(ctx context.Context, prefix string) iter.Seq2[string, error] {
	w, ok := l.records.(Watcher)
	if !ok {
		return func(yield func(string, error) bool) {
			yield("", edge("ledger.watch", prefix,
				fmt.Errorf("%w: the store does not tell what changes; read the records again now and then", errors.ErrUnsupported)))
		}
	}
	changed := w.Watch(ctx, l.prefix+prefix)
	return func(yield func(string, error) bool) {
		for stored, err := range changed {
			if !yield(strings.TrimPrefix(stored, l.prefix), edge("ledger.watch", prefix, err)) || err != nil {
				return
			}
		}
	}
}

package team

import (
	"context"
	"fmt"
	"iter"
	"time"
)

// A Store is what a channel keeps its state in: both ports and nothing more.
// Package memstore has one in memory, package sqlitestore one in a file that
// processes share. A store of your own proves itself with package storetest.
//
// What holds for every method of both ports:
//
//   - It may be called from several goroutines at once, and, unless the store
//     says that it lives in one process, from several processes.
//   - It may block on disk or network and must return soon after ctx ends,
//     with an error that wraps ctx.Err(). A call whose ctx has ended already does so
//     at once.
//   - An error means that nothing was changed, unless it is ErrUnknownOutcome:
//     then the change may have been made, or may still be. An Append with keys, an
//     Ack and a Bury are simply repeated; after a Put or a Delete the caller reads
//     back; what a Claim took is free again when its lease ends.
//   - An argument that can never be right is an *InvalidError: an empty queue name
//     or item ID, a key that is none, a Max or Lease that is not positive, a
//     negative Cost, Budget or Delay.
//   - It keeps no reference to an argument after it returned, and what it
//     returns belongs to the caller.
//   - Errors are the sentinels of this package or the store's own, never
//     *Error: the channel adds that once.
//
// A store has no Open and no Close here: whoever opened it closes it.
type Store interface {
	Queue
	Records
}

// Seq is an item's place in its queue: it only grows, starts above zero, and
// has gaps. It is the one and only order; clocks and ids never are.
type Seq uint64

// A Queue keeps items in named queues, in order, until they are settled.
// A SignalChannel uses one queue for each receiving session. A queue exists as
// soon as something was appended to it; an unknown queue is an empty one.
//
// An item is pending, then claimed by one receiver under a lease, then
// settled: acked, cancelled, expired or dead. Only Append makes an item and
// only Settle, an expiry, or MaxAttempts ends one. A claim whose lease ran out
// is pending again, in its old place. A store keeps dead items, so that they can be
// redriven; it may forget other settled ones.
type Queue interface {
	// Append adds items to the end of queue, in their order, all or none, and
	// returns one receipt for each, in that order. When it returns nil the items
	// survive whatever the store promises to survive, and any receiver
	// that waits in Claim, in whatever process, is on its way to be woken.
	//
	// An item whose Key is not empty and was appended to this queue before is
	// not added again: its receipt is that of the first time, marked Replayed,
	// as long as the store still keeps the first. If the digests differ, the
	// whole call is ErrConflict. Two items of one call may share a key too.
	//
	// If max is positive and queue would then hold more than max items that are
	// not settled, the call is refused with a *LimitError and nothing is added.
	// Replays do not count.
	Append(ctx context.Context, queue string, items []Item, max int) ([]Receipt, error)

	// Claim hands out the first pending items of queue, in order, under a lease:
	// until it ends nobody else gets them. It returns at most opts.Max items
	// and at least one, or none without waiting if opts.Wait is not set; see
	// ClaimOptions. Items behind a claimed one are handed out all the same, but
	// none behind one that does not fit the budget.
	Claim(ctx context.Context, queue string, opts ClaimOptions) ([]Claim, error)

	// Settle ends claims, or changes items, each by its Verdict. Every
	// settlement stands alone: those that can take effect do, durably, before
	// Settle returns. The error joins (errors.Join) one *SettleError for each
	// that could not; it has changed nothing. A Seq that the queue does not hold
	// (any more) is ErrNotFound.
	Settle(ctx context.Context, queue string, settlements ...Settlement) error

	// Items yields what queue holds, in order, and changes nothing: neither an
	// attempt nor a lease. The iterator need not be a snapshot, but an item that
	// is there all the while is yielded exactly once. It stops after an error. The
	// store may be called from inside the loop, and the iterator ranged again.
	Items(ctx context.Context, queue string, opts ListOptions) iter.Seq2[StoredItem, error]
}

// An Item is what a Queue carries. The store does not look into Data.
type Item struct {
	ID      string    // the channel's id, not empty; unique in its queue (ErrConflict), unless Key makes it a replay
	Key     string    // idempotency key within the queue; empty for none
	Digest  string    // what a replay under Key must equal
	Cost    int       // what it counts against ClaimOptions.Budget, in tokens
	Expires time.Time // from then on it is not handed out, to the millisecond; zero for never
	Data    []byte
}

// A Receipt says where an item was stored.
type Receipt struct {
	ID       string // the item's, or for a replay that of the first admission
	Seq      Seq
	Replayed bool
}

// ClaimOptions say how much to claim, and for how long.
type ClaimOptions struct {
	// Max is the most items to claim; it must be positive.
	Max int

	// Budget is the most that the items' Cost may add up to; zero means no
	// bound. A first item that alone costs more is not claimed: the call is a
	// *LimitError with its cost.
	Budget int

	// Lease is how long the claim holds; it must be positive.
	Lease time.Duration

	// MaxAttempts, if positive, is how often an item is handed out. One that
	// would be handed out once more is dead instead, with a reason that names
	// the number, and the items behind it move up. A Claim that fails buries none.
	MaxAttempts int

	// Wait makes Claim block until there is an item or ctx ends. An item
	// counts from the moment it can be claimed: when it is appended, released,
	// redriven, or its lease, which Extend may shorten, ends. Waiting costs no
	// processor time to speak of.
	Wait bool
}

// A Claim is an item in the hands of one receiver.
type Claim struct {
	Item
	Seq     Seq
	Attempt int       // 1 the first time
	Token   string    // the fencing token: opaque, another for each claim of an item
	Until   time.Time // when the lease ends
}

// A Verdict says what a Settlement does.
type Verdict string

// The verdicts. The first four need the token of a claim that still holds;
// a stale token is ErrConflict, also when the item was not claimed again since. An
// Ack or a Bury that took effect is nil when it is repeated with its token, so a
// caller that lost the answer can ask again.
const (
	VerdictAck     Verdict = "ack"     // done with; settled as acked
	VerdictRelease Verdict = "release" // pending again, after Delay
	VerdictExtend  Verdict = "extend"  // the lease ends Delay from now
	VerdictBury    Verdict = "bury"    // settled as dead, with Reason

	// VerdictCancel settles an item that is pending and not claimed. Anything
	// else is ErrConflict, or ErrNotFound if there is no such item.
	VerdictCancel Verdict = "cancel"

	// VerdictAmend gives an item that is pending and not claimed new Data.
	// Anything else is ErrConflict, or ErrNotFound if there is no such item.
	VerdictAmend Verdict = "amend"

	// VerdictRedrive makes a dead item pending again, in its old place, with no
	// attempts behind it, whatever the bound of the queue. An item that is not
	// dead is ErrConflict.
	VerdictRedrive Verdict = "redrive"
)

// A Settlement is what is to become of one item.
type Settlement struct {
	Seq     Seq
	Token   string
	Verdict Verdict
	Delay   time.Duration // of VerdictRelease and VerdictExtend
	Reason  string        // of VerdictBury: why; of VerdictAck: by what evidence, if there is any
	Data    []byte        // of VerdictAmend
}

// A SettleError says which settlement had no effect, and why.
type SettleError struct {
	Seq     Seq
	Verdict Verdict
	Err     error
}

func (e *SettleError) Error() string {
	return fmt.Sprintf("%s of seq %d: %v", e.Verdict, e.Seq, e.Err)
}

func (e *SettleError) Unwrap() error { return e.Err }

// An ItemState is where an item is in its life.
type ItemState string

// The states. The last four are final, but that a dead item may be redriven. An
// item expires while it is pending; a claim holds until its lease ends.
const (
	ItemPending   ItemState = "pending"
	ItemClaimed   ItemState = "claimed"
	ItemAcked     ItemState = "acked"
	ItemCancelled ItemState = "cancelled"
	ItemExpired   ItemState = "expired"
	ItemDead      ItemState = "dead"
)

// Settled reports whether s is one of the final states.
func (s ItemState) Settled() bool { return s != ItemPending && s != ItemClaimed }

// ListOptions say which items to list.
type ListOptions struct {
	After   Seq  // only items behind this one
	Settled bool // settled items too, for as long as the store keeps them
}

// A StoredItem is an item as it lies in its queue.
type StoredItem struct {
	Item
	Seq     Seq
	State   ItemState
	Attempt int       // how often it was handed out
	Reason  string    // why it is dead, or by what evidence it is acked
	Changed time.Time // when it got into State, to the millisecond
}

// Version is the state of one record. It is opaque: compare it for equality,
// nothing else. The zero Version means that there is no record.
type Version string

// AnyVersion, as an expected version, matches every state of a record. Whoever
// uses it gives up knowing what was overwritten.
const AnyVersion Version = "*"

// Records keeps small values under keys. A key is UTF-8 of 1 to 1024 bytes; a
// value is any bytes, empty too. Different keys never conflict.
type Records interface {
	// Get returns the record under key, or ErrNotFound.
	Get(ctx context.Context, key string) (Record, error)

	// Put stores value under key if the record's version is prev, and
	// returns the new version, which this key never had before. Otherwise
	// it is ErrConflict. A zero prev creates only.
	Put(ctx context.Context, key string, value []byte, prev Version) (Version, error)

	// Delete removes the record under key if its version is prev. Otherwise
	// it is ErrConflict, or ErrNotFound if there is none.
	Delete(ctx context.Context, key string, prev Version) error

	// Keys yields the keys that start with prefix and come behind after, in
	// ascending order of their bytes. It yields names only; there is no call
	// that returns values in bulk. It need not be a snapshot, but a key that is
	// there all the while is yielded exactly once. It stops after an error. The
	// store may be called from inside the loop, and the iterator ranged again.
	Keys(ctx context.Context, prefix, after string) iter.Seq2[string, error]
}

// A Record is one value with its version.
type Record struct {
	Key     string
	Value   []byte
	Version Version
}

// A Committer is a Store that can make several changes in one step. It is
// optional, since a store may have no transaction that spans queues (NATS
// JetStream) or even keys (a host's key-value storage). Channels look for it,
// and answer errors.ErrUnsupported where they need it and it is not there.
type Committer interface {
	// Commit makes all the changes or none, durably, in one step that nobody
	// sees the half of. Every append and every change obeys the law of Append,
	// Put and Delete; the first that fails is the error of the whole. A key may
	// be changed once in a Commit.
	Commit(ctx context.Context, appends []Batch, changes []Change) (Committed, error)
}

// A Batch is one Append of a Commit.
type Batch struct {
	Queue string
	Items []Item
	Max   int
}

// A Change is one Put or Delete of a Commit.
type Change struct {
	Key    string
	Value  []byte
	Prev   Version
	Delete bool
}

// Committed is what a Commit made: the receipts of each batch and the version
// of each change (zero for a deletion), in the order of the arguments.
type Committed struct {
	Receipts [][]Receipt
	Versions []Version
}

// A Meter is a Store that knows how much it keeps without reading it. It is
// optional: where it is missing, a channel with a quota reads the records one by
// one.
type Meter interface {
	// Usage returns how many records have a key that starts with prefix, and the
	// bytes of those keys and values together.
	Usage(ctx context.Context, prefix string) (keys int, bytes int64, err error)
}

// A Watcher is a Store that tells which records change. It is optional.
type Watcher interface {
	// Watch yields the keys that start with prefix and whose record is put or
	// deleted after Watch has returned, by whatever process: so call it, then read,
	// then range. It yields names only, waits without polling, and ends with ctx,
	// whose error it yields. Changes of one key in quick succession may be one; the
	// last one is never missed: a store that cannot promise that any more, since the loop
	// was away for too long, ends with an ErrConflict. The iterator is for one loop; what
	// it holds is given back when that or ctx ends.
	Watch(ctx context.Context, prefix string) iter.Seq2[string, error]
}

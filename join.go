package team

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The defaults of a Join.
const (
	DefaultWait       = time.Minute      // of a Wait that names no time
	DefaultWaitAgain  = 10 * time.Second // of a Wait right behind one that ended unsettled
	DefaultJoinGrace  = 5 * time.Second
	DefaultJoinLag    = 5 * time.Second
	DefaultStallAfter = 5 * time.Minute
	DefaultJoinLook   = 5 * time.Second
)

// The further states of a child that a Join knows. The first three are endings; the
// others say how a wait ended for a child that goes on.
const (
	ChildInterrupted  ChildState = "interrupted"   // by something that Reason names, but not by a Cancel of ours
	ChildEmpty        ChildState = "empty"         // completed, and there is no text
	ChildNeverStarted ChildState = "never started" // idle, and it has never run

	ChildSettling ChildState = "settling"       // its turn is over, work that it started in the background is not
	ChildTimedOut ChildState = "timed out"      // running when the wait's time was over
	ChildStalled  ChildState = "stalled"        // the same, and it gave no sign of life, only retries, or waits for a host to come back
	ChildUnseen   ChildState = "could not look" // the stream has a gap and the host did not answer
)

// Settled reports whether a child's turn is over in state s. ChildUnknown is an
// ending too: the host says that it ended, and not how.
func (s ChildState) Settled() bool {
	switch s {
	case ChildCompleted, ChildFailed, ChildCancelled, ChildStopped, ChildUnknown,
		ChildInterrupted, ChildEmpty, ChildNeverStarted:
		return true
	}
	return false
}

// JoinOptions say whom a Join asks and how long it is patient. The zero value works,
// but then nothing can be looked up or cancelled.
type JoinOptions struct {
	// Sessions is the host that is asked for snapshots, and to stop a child. If
	// it is an Inspector, a snapshot tells more; if it is a ChildLister, Adopt
	// needs no ids. Nil is nobody.
	Sessions Sessions

	// Matcher reads envelopes; nil is one of the Join's own. Share one for its counters.
	Matcher *EnvelopeMatcher

	// Shorten makes room for a text that is too long for a context: it returns what is
	// shown in its place, with a reference to the whole. It is called once for each
	// answer of a child. Nil keeps and shows the whole.
	Shorten func(ctx context.Context, text string) (string, Ref, error)

	// Wait is the longest that Wait waits, WaitAgain the longest right behind one that
	// ended unsettled. Zero means DefaultWait and DefaultWaitAgain.
	Wait, WaitAgain time.Duration

	// Grace is how long a turn that seems over may still go on: after the last
	// background child has ended, since the host wakes its parent for that, and
	// after an error of which 1.x does not say whether it is the end. Zero means
	// DefaultJoinGrace.
	Grace time.Duration

	// Lag is how far a stream of events may be behind the results of tools, and one without
	// times or sequence (1.x) behind that of another process. Zero means DefaultJoinLag.
	Lag time.Duration

	// StallAfter is after how long without a sign of life a child counts as stalled.
	// Zero means DefaultStallAfter.
	StallAfter time.Duration

	// Look is how often Wait reads the snapshots of children of which the stream says
	// nothing, and, where the Records are no Watcher, what other processes wrote (that at least
	// once a second). It is also how long the host has to answer about one of them, or about all
	// answers that a Wait has to ask for. Zero means DefaultJoinLook.
	Look time.Duration

	// Report is told of what should not pass in silence, each thing once: an event type
	// that nobody knows, by its name (behind 64 of them, and for long ones, MoreNames); a record that
	// cannot be read, by its key. Nil is nobody. It is called in the caller's goroutine.
	Report func(ctx context.Context, what, name string)

	// Trace is told of every write, also of those that were refused: a Trail's Record, for
	// example. Nil is nobody. It is called in the caller's goroutine, and must not call the Join.
	Trace func(context.Context, TraceEvent)
}

// A Join knows which children of one parent session have settled, and how that is
// known. Children are registered from the host's answer to the call that started
// them (see RegisterResult), or adopted. What is known then comes from all that the
// program passes on: Observe for events of every generation, ObserveText for
// envelopes and notices, ObserveSignal for signals, and snapshots that the Join reads
// itself. The first ending counts; what comes later is kept as evidence, and named as
// a conflict if it says otherwise. A child that is resumed is in its next turn, and settles
// again.
//
// Three things are known less well, and Presumed says so until something better
// comes: that the parent is idle, that a child itself sent a signal, and an idle child of which nobody saw
// whether it ran.
//
// The state lies in Records, one for each child, changed by compare-and-set: several
// processes that wait for the same children agree, and a waiter that was killed
// carries on where it was. Events that change nothing cost no write. A record that cannot be
// read is an ErrCorrupt of the calls for that child, and stops no other. A record keeps the last 8
// turns, and of each the first and last evidence; descendants beyond 1024 at the same time are
// not waited for. Sweep forgets children that have settled long ago.
//
// What it cannot know: 1.x's events name no turn, so behind a turn that somebody other than the parent
// began, or that ended while its own background work went on, a result that comes by a tool hook faster than
// the stream, within Lag, may be taken for one of that turn. Where the stream has the parent's own events as
// well, and no hook is faster, this cannot happen. Its answer, and its reason, land with
// that turn then. A hole in the stream may
// swallow a turn, or make one of two. Background shells of a child do not keep it settling, since
// the host's events about them name no session. 2.x writes a fixed sentence into the envelope of a
// child that gave no text, and no field says so: without an Inspector that child has completed,
// with that sentence as its answer.
//
// Times are by this process's clock, but for JoinEvidence.Host. The two are compared only where a
// snapshot might be of the turn before, and no event told the host's time of its ending (1.x): there a
// clock of the host that is ahead of ours makes the ending before look like one of this turn.
//
// A Join is safe for several goroutines and runs none after a call has returned. Two
// Joins of different parents may be fed from one stream.
type Join struct {
	parent  SessionID
	prefix  string
	records Records
	opts    JoinOptions
	own     EnvelopeMatcher
	opened  bool

	mu        sync.RWMutex
	children  map[SessionID]*joined
	byKey     map[string]*joined      // the same by the keys of their records
	descends  map[SessionID]SessionID // a descendant to the child that has to wait for it
	early     earlyEvents
	calls     map[string]string // of the parent, 2.x: the tool's name by the id of the call
	changed   chan struct{}     // closed and replaced whenever a child changes
	parentEnd bool              // the parent is idle, as far as the stream says

	unreadable sync.Map // the keys of records that are corrupt and were reported

	gap    atomic.Bool // the stream has a hole that no snapshot has filled
	stream streamAccount
}

// joined is a child in memory.
type joined struct {
	id     SessionID
	number atomic.Int64 // of registration, as the record says
	key    string

	life  atomic.Int64 // when the stream last said anything of it, in nanoseconds
	quiet atomic.Bool  // it runs, and another sign that it does changes nothing

	mu       sync.Mutex
	rec      childRecord
	version  Version
	descends []SessionID // its share of Join.descends
	todo     []evidence  // what could not be written yet, in order
	unseen   error       // why the last look failed
	broken   error       // its record cannot be read any more
	gone     bool        // its record was removed: this is no child any more
	looked   time.Time   // when that was
	asked    []string    // what a Wait has returned for

	// owes is how many endings another process has written that the stream of this one has
	// not come to; from owesUntil on it has lost them.
	owes      int
	owesUntil time.Time
}

// OpenJoin opens the account of the children of parent in records. An empty parent
// is the caller in the context. What other processes, or earlier ones, knew of them
// is read. The caller keeps records open as long as the Join is used.
func OpenJoin(ctx context.Context, records Records, parent SessionID, opts *JoinOptions) (*Join, error) {
	if records == nil {
		panic("team: OpenJoin with nil Records")
	}
	j := &Join{parent: parent, records: records, children: make(map[SessionID]*joined), byKey: make(map[string]*joined),
		descends: make(map[SessionID]SessionID), calls: make(map[string]string), changed: make(chan struct{})}
	j.stream.eventCounts = newEventCounts()
	if opts != nil {
		j.opts = *opts
	}
	setDefault(&j.opts.Wait, DefaultWait)
	setDefault(&j.opts.WaitAgain, DefaultWaitAgain)
	setDefault(&j.opts.Grace, DefaultJoinGrace)
	setDefault(&j.opts.Lag, DefaultJoinLag)
	setDefault(&j.opts.StallAfter, DefaultStallAfter)
	setDefault(&j.opts.Look, DefaultJoinLook)
	setDefault(&j.opts.Matcher, &j.own)
	if caller, ok := CallerFrom(ctx); ok {
		setDefault(&j.parent, caller.Session)
	}
	err := checkSession("parent", j.parent)
	for _, d := range []time.Duration{j.opts.Wait, j.opts.WaitAgain, j.opts.Grace, j.opts.Lag, j.opts.StallAfter, j.opts.Look} {
		if d < 0 && err == nil {
			err = &InvalidError{What: "join option", Why: "is a negative time", Offset: -1, Advice: "leave it zero for the default"}
		}
	}
	if err == nil {
		j.prefix = "team/join/" + keyPart(string(j.parent)) + "/"
		_, err = j.load(ctx) // of records that cannot be read, Wait tells
	}
	if err != nil {
		return nil, edge("join.open", string(j.parent), err)
	}
	j.opened = true
	return j, nil
}

// Parent returns whose children they are.
func (j *Join) Parent() SessionID { return j.parent }

// checkSession refuses what cannot be a session's id.
func checkSession(what string, id SessionID) error {
	if id == "" {
		return &InvalidError{What: what, Why: "is empty", Offset: -1, Advice: "pass the host's id of the session"}
	}
	return checkName(what, string(id))
}

// keyPart makes a host's id a part of a key between slashes: two ids never share one.
func keyPart(id string) string { return keyEscapes.Replace(id) }

var keyEscapes = strings.NewReplacer("%", "%25", "/", "%2F")

// A ChildError says that ids were named that are no children here. It is an
// ErrNotFound. The call did nothing, for the others neither.
type ChildError struct {
	Parent  SessionID
	Unknown []SessionID
	Known   []SessionID // the children that there are, in order of registration
}

func (e *ChildError) Error() string {
	s := fmt.Sprintf("not found: %s is no registered child of %s", someOf(e.Unknown), quoteName(string(e.Parent)))
	if len(e.Known) == 0 {
		return s + "; no child is registered, adopt it if the host says that it is yours"
	}
	return s + "; registered: " + someOf(e.Known)
}

// Is reports whether target is ErrNotFound.
func (e *ChildError) Is(target error) bool { return target == ErrNotFound }

// find returns the children that ids name, or all if ids is nil, in order of
// registration. Ids that nobody knows are an error and never mean all.
func (j *Join) find(ids []SessionID) ([]*joined, error) {
	if ids != nil && len(ids) == 0 {
		return nil, &InvalidError{What: "children", Why: "names none", Offset: -1, Advice: "pass nil for all"}
	}
	j.mu.RLock()
	defer j.mu.RUnlock()
	var found []*joined
	var unknown []SessionID
	seen := make(map[SessionID]bool, len(ids))
	for _, id := range ids {
		c := j.children[id]
		if c == nil {
			unknown = append(unknown, id)
		} else if !seen[id] {
			found = append(found, c)
		}
		seen[id] = true
	}
	if ids == nil || unknown != nil {
		all := make([]*joined, 0, len(j.children))
		for _, c := range j.children {
			all = append(all, c)
		}
		sortJoined(all)
		if unknown == nil {
			return all, nil
		}
		e := &ChildError{Parent: j.parent, Unknown: unknown}
		for _, c := range all {
			e.Known = append(e.Known, c.id)
		}
		return nil, e
	}
	sortJoined(found)
	return found, nil
}

func (j *Join) child(id SessionID) *joined {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.children[id]
}

// Known reports whether id is a registered child: for EnvelopeInput.Known.
func (j *Join) Known(id SessionID) bool { return j.child(id) != nil }

// Children returns the account of the children that ids name, or of all if ids is nil, in
// order of registration, as this process knows it. Ids that are no children are a
// *ChildError.
func (j *Join) Children(ctx context.Context, ids []SessionID) ([]Child, error) {
	found, err := j.find(ids)
	if err == nil {
		err = j.tick(ctx, found)
	}
	if err != nil {
		return nil, edge("join.children", string(j.parent), err)
	}
	children := make([]Child, len(found))
	for i, c := range found {
		children[i] = c.account()
	}
	return children, nil
}

func (j *Join) changes() <-chan struct{} {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.changed
}

// tell wakes who waits for a change. j.mu is held.
func (j *Join) tell() {
	close(j.changed)
	j.changed = make(chan struct{})
}

func (j *Join) trace(ctx context.Context, event TraceEvent, err error) {
	if j.opts.Trace == nil {
		return
	}
	outcome, reason := outcomeOf(err)
	if event.Outcome == "" || err != nil {
		event.Outcome, event.Reason = outcome, reason
	}
	if event.By.Session == "" {
		event.By.Session = j.parent
	}
	j.opts.Trace(ctx, event)
}

var errJoinRace = errors.New("the child's record changed too often beneath this call; repeat it")

package team

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/teamchan/team/internal/atomicfile"
)

// A Handoff is a deliverable, the signal that announces it, and what changes in
// the ledger with it.
type Handoff struct {
	To     string // as for Send
	Draft  Draft
	Signal Signal // Key is required; the entry is added to Refs

	Ledger *Ledger // may be nil; else over the same Store as the channel
	Edits  []Edit
}

// A HandedOff says what a Handoff came to.
type HandedOff struct {
	Entry    Entry
	Sent     Sent
	Replayed bool // the handoff was done before
}

const handoffPrefix = "team/handoff/"

// A handoffRecord says that a handoff is done. It is written in the step that
// does it.
type handoffRecord struct {
	Digest string    `json:"digest"`
	Entry  Entry     `json:"entry"`
	To     SessionID `json:"to"`
	ID     SignalID  `json:"id"`
	Seq    Seq       `json:"seq,omitempty"` // known only afterwards
	Done   time.Time `json:"done"`
}

// HandOff publishes h.Draft on the board first, and then sends the signal and
// changes the ledger in one step: no signal points to an entry that is not there,
// and the ledger never knows of a handoff that was not signalled.
//
// Repeated with the same Key after a crash, anywhere, it finds what is done and does
// the rest: if the caller's newest round in the same place has the same body, it is
// not written again. Another handoff under the same Key is ErrConflict. The same at
// once from several goroutines or processes sends one signal, but may leave several
// rounds on the board.
//
// What is done is remembered until a Sweep finds it older than SignalSweepOptions.TTL
// and its signal settled. Repeated after that, it is a handoff of its own.
//
// It needs a Store that is a Committer; with any other it is
// errors.ErrUnsupported. Other errors are those of Board.Write, Send and Apply; then
// no signal was sent and the ledger is as it was, but the entry may be there.
func (c *SignalChannel) HandOff(ctx context.Context, board *Board, h Handoff) (HandedOff, error) {
	if board == nil {
		panic("team: HandOff with a nil Board")
	}
	done, err := c.handOff(ctx, board, h)
	event := TraceEvent{Op: "inbox.handoff", Size: int64(len(h.Signal.Summary) + len(h.Signal.Body)), ID: string(done.Sent.ID), Target: done.Sent.To, SHA256: done.Entry.SHA256, Round: done.Entry.Round}
	if done.Replayed {
		event.Outcome = "replayed"
	}
	c.trace(ctx, event, err)
	if h.Ledger != nil && !done.Replayed {
		h.Ledger.traceEdits(ctx, "ledger.handoff", h.Edits, err)
	}
	if err != nil {
		return HandedOff{}, edge("inbox.handoff", h.To, err)
	}
	c.answered(ctx, h.Signal, done.Sent.ID)
	return done, nil
}

func (c *SignalChannel) handOff(ctx context.Context, board *Board, h Handoff) (HandedOff, error) {
	caller, err := callerOf(ctx)
	if err != nil {
		return HandedOff{}, err
	}
	committer, ok := c.store.(Committer)
	switch {
	case !ok:
		return HandedOff{}, fmt.Errorf("%w: the store has no step for a signal and the ledger; write, then send", errors.ErrUnsupported)
	case h.Signal.Key == "":
		return HandedOff{}, &InvalidError{What: "handoff", Why: "has no key", Offset: -1, Advice: "choose one that a repeated call has too"}
	case h.Ledger == nil && len(h.Edits) > 0, h.Ledger != nil && !same(h.Ledger.records, c.store):
		return HandedOff{}, &InvalidError{What: "handoff", Why: "has edits for a ledger that is not in the channel's store", Offset: -1}
	}
	if h.Ledger != nil {
		if err := h.Ledger.checkEdits(h.Edits); err != nil {
			return HandedOff{}, err
		}
	}
	// First of all whether it is done: then it is, though the signal's time or
	// epoch is over, or its receiver gone.
	digest, err := handoffDigest(h)
	if err != nil {
		return HandedOff{}, err
	}
	key := handoffPrefix + hexDigest([]byte(string(caller.Session)+"\x00"+h.Signal.Key))
	if done, err := c.handedOff(ctx, key, digest); !errors.Is(err, ErrNotFound) {
		return done, err
	}
	s, sessions, late, err := c.prepare(ctx, []string{h.To}, h.Signal)
	if err == nil {
		err = late
	}
	if err != nil {
		return HandedOff{}, err
	}
	s.To = sessions[0]
	entry, err := board.find(ctx, h.Draft, caller.Role)
	if errors.Is(err, ErrNotFound) {
		entry, err = board.Write(ctx, h.Draft)
	}
	if err != nil {
		return HandedOff{}, err
	}
	s.Refs = append(s.Refs[:len(s.Refs):len(s.Refs)], entry.Ref())
	s.ID = newSignalID()
	if err := c.check(s); err != nil {
		return HandedOff{}, err
	}
	item, err := c.encode(s, s)
	if err != nil {
		return HandedOff{}, err
	}
	item.Key = "" // the record below is what a repeated handoff finds
	record := handoffRecord{Digest: digest, Entry: entry, To: s.To, ID: s.ID, Done: s.Sent}
	value, err := json.Marshal(record)
	if err != nil {
		return HandedOff{}, err
	}

	var sent Sent
	step := func(ctx context.Context, changes []Change) ([]Version, error) {
		batch := Batch{Queue: inboxQueue(s.To), Items: []Item{item}, Max: max(c.opts.MaxPending, 0)}
		all := append(changes[:len(changes):len(changes)], Change{Key: key, Value: value})
		did, err := committer.Commit(ctx, []Batch{batch}, all)
		if err != nil {
			return nil, err
		}
		r := did.Receipts[0][0]
		sent = Sent{ID: SignalID(r.ID), To: s.To, Seq: r.Seq}
		record.Seq = r.Seq
		if value, err := json.Marshal(record); err == nil { // or a repeated call looks for it
			_, _ = c.store.Put(ctx, key, value, did.Versions[len(changes)])
		}
		return did.Versions[:len(changes)], nil
	}
	if len(h.Edits) == 0 {
		_, err = step(ctx, nil)
	} else {
		err = h.Ledger.applyWith(ctx, h.Edits, step)
	}
	if errors.Is(err, ErrConflict) {
		// Somebody else may have done the same in this moment.
		if done, derr := c.handedOff(ctx, key, digest); !errors.Is(derr, ErrNotFound) {
			return done, derr
		}
	}
	if errors.Is(err, ErrUnknownOutcome) {
		sent = Sent{ID: s.ID, To: s.To} // for its line
	}
	return HandedOff{Entry: entry, Sent: sent}, err
}

// handoffDigest returns what a repeated handoff must equal: what the caller passed.
func handoffDigest(h Handoff) (string, error) {
	s := h.Signal
	given, err := json.Marshal(struct {
		To       string
		Draft    Draft
		Kind     Kind
		Texts    []string
		Delivery Delivery
		Expires  int64
		Refs     []Ref
		Edits    []Edit
		Ledger   string
	}{h.To, h.Draft, s.Kind, []string{s.Summary, s.Body, string(s.ReplyTo), s.Epoch}, s.Delivery, s.Expires.UnixMilli(), s.Refs, h.Edits,
		ledgerName(h.Ledger)})
	return hexDigest(given), err
}

// same reports whether two ports are one value.
func same(a, b any) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

func ledgerName(l *Ledger) string {
	if l == nil {
		return ""
	}
	return l.prefix
}

// handedOff returns what a handoff came to that is done, or ErrNotFound.
func (c *SignalChannel) handedOff(ctx context.Context, key, digest string) (HandedOff, error) {
	r, err := c.store.Get(ctx, key)
	if err != nil {
		return HandedOff{}, err
	}
	var done handoffRecord
	if err := json.Unmarshal(r.Value, &done); err != nil {
		return HandedOff{}, fmt.Errorf("%w: record of the handoff: %w", ErrCorrupt, err)
	}
	if done.Digest != digest {
		return HandedOff{}, fmt.Errorf("%w: another handoff has this key", ErrConflict)
	}
	h := HandedOff{Entry: done.Entry, Sent: Sent{ID: done.ID, To: done.To, Seq: done.Seq, Replayed: true}, Replayed: true}
	if done.Seq > 0 {
		return h, nil
	}
	for item, err := range c.store.Items(ctx, inboxQueue(done.To), ListOptions{Settled: true}) {
		if err != nil {
			return HandedOff{}, err
		}
		if item.ID == string(done.ID) {
			h.Sent.Seq = item.Seq
			break
		}
	}
	return h, nil
}

// find returns the entry by role that d would make, if it is there as the newest
// round, or ErrNotFound.
func (b *Board) find(ctx context.Context, d Draft, role Role) (Entry, error) {
	if strings.TrimSpace(d.Session) == "" || strings.TrimSpace(d.Task) == "" || strings.TrimSpace(d.Topic) == "" {
		return Entry{}, ErrNotFound // Write says what is wrong
	}
	var last Entry
	for e, err := range b.Entries(ctx, Filter{Session: d.Session, Task: d.Task, Topic: d.Topic, Role: role}) {
		if err == nil {
			last = e
		}
	}
	if last.Changed || last.SHA256 != hexDigest(bytesOf(d.Body)) {
		return Entry{}, ErrNotFound
	}
	// Whoever wrote it may have been killed before its name was durable.
	p, err := newPlace(d, role)
	if err != nil {
		return Entry{}, err
	}
	for _, dir := range []string{p.dir(), p.session, "."} {
		if err := atomicfile.SyncDir(b.root, dir, b.step); err != nil {
			return Entry{}, err
		}
	}
	return last, nil
}

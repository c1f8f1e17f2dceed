package team

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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
}

// HandOff publishes h.Draft on the board first, and then sends the signal and
// changes the ledger in one step: no signal points to an entry that is not there,
// and the ledger never knows of a handoff that was not signalled.
//
// Repeated with the same Key after a crash, anywhere, it finds what is done and does
// the rest: if the caller's newest round in the same place has the same body, it is
// not written again. Another handoff under the same Key is ErrConflict.
//
// It needs a Store that is a Committer; with any other it is
// errors.ErrUnsupported. Other errors are those of Board.Write, Send and Apply; then
// no signal was sent and the ledger is as it was, but the entry may be there.
func (c *SignalChannel) HandOff(ctx context.Context, board *Board, h Handoff) (HandedOff, error) {
	done, err := c.handOff(ctx, board, h)
	event := TraceEvent{Op: "inbox.handoff", ID: string(done.Sent.ID), Target: done.Sent.To, SHA256: done.Entry.SHA256, Round: done.Entry.Round}
	if done.Replayed {
		event.Outcome = "replayed"
	}
	c.trace(ctx, event, err)
	if h.Ledger != nil && !done.Replayed {
		h.Ledger.traceEdits(ctx, "ledger.handoff", h.Edits, err)
	}
	return done, edge("inbox.handoff", h.To, err)
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
	case h.Ledger == nil && len(h.Edits) > 0, h.Ledger != nil && h.Ledger.records != Records(c.store):
		return HandedOff{}, &InvalidError{What: "handoff", Why: "has edits for a ledger that is not in the channel's store", Offset: -1}
	}
	s, sessions, err := c.prepare(ctx, []string{h.To}, h.Signal)
	if err != nil {
		return HandedOff{}, err
	}
	s.To = sessions[0]

	digest, err := handoffDigest(h, s)
	if err != nil {
		return HandedOff{}, err
	}
	key := handoffPrefix + hexDigest([]byte(string(caller.Session)+"\x00"+s.Key))
	if done, err := c.handedOff(ctx, key, digest); !errors.Is(err, ErrNotFound) {
		return done, err
	}
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
	item, err := c.encode(s)
	if err != nil {
		return HandedOff{}, err
	}
	record, err := json.Marshal(handoffRecord{digest, entry, s.To, s.ID})
	if err != nil {
		return HandedOff{}, err
	}

	var sent Sent
	step := func(ctx context.Context, changes []Change) ([]Version, error) {
		batch := Batch{Queue: inboxQueue(s.To), Items: []Item{item}, Max: max(c.opts.MaxPending, 0)}
		all := append(changes[:len(changes):len(changes)], Change{Key: key, Value: record})
		did, err := committer.Commit(ctx, []Batch{batch}, all)
		if err != nil {
			return nil, err
		}
		r := did.Receipts[0][0]
		sent = Sent{ID: SignalID(r.ID), To: s.To, Seq: r.Seq}
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
	if err != nil {
		return HandedOff{}, err
	}
	return HandedOff{Entry: entry, Sent: sent}, nil
}

// handoffDigest returns what a repeated handoff must equal.
func handoffDigest(h Handoff, s Signal) (string, error) {
	same, err := json.Marshal(struct {
		To     SessionID
		Draft  Draft
		Kind   Kind
		Texts  []string
		Refs   []Ref
		Edits  []Edit
		Ledger string
	}{s.To, h.Draft, s.Kind, []string{s.Summary, s.Body, string(s.ReplyTo), s.Epoch}, s.Refs, h.Edits, ledgerName(h.Ledger)})
	return hexDigest(same), err
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
	h := HandedOff{Entry: done.Entry, Sent: Sent{ID: done.ID, To: done.To, Replayed: true}, Replayed: true}
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
	return last, nil
}

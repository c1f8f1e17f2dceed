package team

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
)

// A Queued signal lies in an inbox.
type Queued struct {
	Signal
	Status
}

// A SignalState is where a signal is in its life. Each is a fact with its evidence:
// none is noted because something was asked for or is to be expected.
type SignalState string

// The states. What a program takes with Receive goes from queued to read and acked,
// and back to queued when its lease ends; what Relay brings into a host goes from
// queued to offered, delivered and acked, as far as somebody tells (see
// SignalChannel.Observe). The last four are final, but that a dead letter may be
// redriven, and that a signal which somebody took out of the host's inbox, or which a
// relay gave up, was, by later evidence, delivered all the same.
const (
	SignalQueued    SignalState = "queued"    // in its inbox; also while a relay asks a host that has not answered
	SignalOffered   SignalState = "offered"   // in the host's inbox; no agent need have seen it
	SignalDelivered SignalState = "delivered" // in the conversation on the host
	SignalRead      SignalState = "read"      // taken by Receive, whose lease holds
	SignalAcked     SignalState = "acked"     // its receiver has dealt with it, or answered it
	SignalCancelled SignalState = "cancelled" // taken back by its sender, or out of the host's inbox
	SignalExpired   SignalState = "expired"   // its time was over before it was settled
	SignalDead      SignalState = "dead"      // a dead letter
)

// A Status is where a signal is in its life, and how that is known.
type Status struct {
	State SignalState `json:"state"`

	// Attempt is how often it was handed out, to a receiver or a relay.
	Attempt int `json:"attempt"`

	// Since is when it got into State, or when a relay last took up what is queued. It is
	// the host's time where the evidence is an event that has one.
	Since time.Time `json:"since"`

	// Evidence is what State rests on: of offered the host's id; of delivered the type
	// and id of the host's event, or what Confirm was told; of dead why; else a few words.
	// It never has content of the signal.
	Evidence string `json:"evidence"`
}

// status returns what is known of an item of a session's inbox.
func (c *SignalChannel) status(ctx context.Context, session SessionID, item StoredItem) (Status, error) {
	st := Status{Attempt: item.Attempt, Since: item.Changed}
	relayed := item.State == ItemAcked && item.Reason != "" // no receiver gives a reason
	switch item.State {
	case ItemPending:
		st.State, st.Evidence = SignalQueued, fmt.Sprintf("stored with seq %d", item.Seq)
	case ItemClaimed:
		st.State, st.Evidence = SignalRead, fmt.Sprintf("received, attempt %d", item.Attempt)
	case ItemAcked:
		st.State, st.Evidence = SignalAcked, fmt.Sprintf("acked by its receiver, attempt %d", item.Attempt)
		if relayed {
			st.State, st.Evidence = SignalOffered, item.Reason
		}
	case ItemCancelled:
		st.State, st.Evidence = SignalCancelled, "taken back by its sender"
	case ItemExpired:
		st.State, st.Evidence = SignalExpired, "not settled by "+formatTime(item.Expires)
	default:
		st.State, st.Evidence = SignalDead, item.Reason
		// The last claim was for the burial.
		if strings.HasPrefix(item.Reason, deadDamaged) || strings.HasPrefix(item.Reason, deadLate) {
			st.Attempt = max(st.Attempt-1, 0)
		} else {
			_, _ = fmt.Sscanf(item.Reason, deadSpent, &st.Attempt)
		}
	}
	if item.Attempt == 0 || st.State == SignalAcked || item.Reason == relayForeign {
		return st, nil // no relay has had it, or no host's word changes that
	}
	r, _, err := c.relayed(ctx, session, hostTail(session, SignalID(item.ID)))
	switch {
	case err == nil && r.State != "":
		st.State, st.Since, st.Evidence = r.State, r.Since, r.Evidence
		return st, nil
	case err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrCorrupt):
		return Status{}, err
	}
	byRelay := err == nil
	if item.State == ItemClaimed && !byRelay {
		// A relay that has just claimed it has not written so yet; its own record is there.
		_, err = c.store.Get(ctx, relayPrefix+string(session))
		if err != nil && !errors.Is(err, ErrNotFound) {
			return Status{}, err
		}
		byRelay = err == nil
	}
	if item.State == ItemClaimed && byRelay {
		st.State, st.Evidence = SignalQueued, fmt.Sprintf("in the hands of a relay, attempt %d", item.Attempt)
	}
	return st, nil
}

// Pending yields what the caller's inbox holds that is not settled, in order,
// and changes nothing: no attempt is counted, no lease begins.
func (c *SignalChannel) Pending(ctx context.Context) iter.Seq2[Queued, error] {
	return c.list(ctx, "inbox.pending", ListOptions{}, func(s ItemState) bool { return true })
}

// DeadLetters yields the dead letters of the caller's inbox, in order: what was
// handed out too often, could not be read, or came after its epoch was over. One
// that cannot be read has its ID, Seq and Status only.
func (c *SignalChannel) DeadLetters(ctx context.Context) iter.Seq2[Queued, error] {
	return c.list(ctx, "inbox.dead", ListOptions{Settled: true}, func(s ItemState) bool { return s == ItemDead })
}

func (c *SignalChannel) list(ctx context.Context, op string, opts ListOptions, want func(ItemState) bool) iter.Seq2[Queued, error] {
	return func(yield func(Queued, error) bool) {
		queue, err := ownQueue(ctx)
		caller, _ := CallerFrom(ctx)
		if err != nil {
			yield(Queued{}, edge(op, string(caller.Session), err))
			return
		}
		for item, err := range c.store.Items(ctx, queue, opts) {
			var q Queued
			if err == nil {
				if !want(item.State) {
					continue
				}
				q.Status, err = c.status(ctx, caller.Session, item)
			}
			if err == nil && item.State == ItemDead && q.State != SignalDead {
				continue // a relay gave it up, and the host has it
			}
			if err == nil {
				if q.Signal, err = decodeSignal(item.Item, item.Seq); err != nil {
					if item.State != ItemDead {
						continue // Receive buries it
					}
					q.Signal, err = Signal{ID: SignalID(item.ID), Seq: item.Seq}, nil
				}
			}
			if !yield(q, edge(op, string(caller.Session), err)) || err != nil {
				return
			}
		}
	}
}

// Redrive puts dead letters of the caller's inbox back into their old places, with
// no attempts behind them. Each stands alone: one that is not dead is ErrConflict.
func (c *SignalChannel) Redrive(ctx context.Context, dead ...Queued) error {
	received := make([]Received, len(dead))
	for i, d := range dead {
		received[i].Signal = d.Signal
	}
	return c.settle(ctx, "inbox.redrive", Settlement{Verdict: VerdictRedrive}, received)
}

// Status tells the sender or the receiver of a signal what became of it, by all that
// is known. A signal to several has one for each. Once the store has forgotten it, it is
// ErrNotFound; of somebody else's it is ErrDenied.
//
// Where a relay is at work on the inbox, what Receive took is queued until it is acked:
// which of the two has it, the inbox does not know.
func (c *SignalChannel) Status(ctx context.Context, sent Sent) (Status, error) {
	item, s, caller, err := c.find(ctx, sent)
	if errors.Is(err, ErrCorrupt) && caller.Session == sent.To {
		err = nil // its state can be read all the same
	}
	if err == nil && caller.Session != s.From.Session && caller.Session != sent.To {
		err = fmt.Errorf("%w: only its sender and its receiver may ask", ErrDenied)
	}
	if err != nil {
		return Status{}, edge("inbox.status", string(sent.ID), err)
	}
	st, err := c.status(ctx, sent.To, item)
	return st, edge("inbox.status", string(sent.ID), err)
}

// Cancel takes a signal back that the caller sent and that nobody has received
// yet. One that is received, or settled, is ErrConflict; somebody else's is
// ErrDenied; one that is not there is ErrNotFound.
//
// What a relay has given back, since its host did not answer, may have arrived there
// all the same. Then Status says so once the host does.
func (c *SignalChannel) Cancel(ctx context.Context, sent Sent) error {
	return c.change(ctx, "inbox.cancel", sent, func(Signal) (Settlement, error) { return Settlement{Verdict: VerdictCancel}, nil })
}

// SetDelivery changes how a signal is delivered that the caller sent and that
// nobody has received yet. Errors are those of Cancel.
func (c *SignalChannel) SetDelivery(ctx context.Context, sent Sent, d Delivery) error {
	return c.change(ctx, "inbox.deliver", sent, func(s Signal) (Settlement, error) {
		s.Delivery, s.Seq = d, 0
		if err := s.check(); err != nil {
			return Settlement{}, err
		}
		data, err := json.Marshal(s)
		return Settlement{Verdict: VerdictAmend, Data: data}, err
	})
}

// change makes a settlement of a signal that the caller sent.
func (c *SignalChannel) change(ctx context.Context, op string, sent Sent, what func(Signal) (Settlement, error)) error {
	_, s, caller, err := c.find(ctx, sent)
	if err == nil && s.From.Session != caller.Session {
		err = fmt.Errorf("%w: only its sender can change a signal", ErrDenied)
	}
	var st Settlement
	if err == nil {
		st, err = what(s)
	}
	if err == nil {
		st.Seq = sent.Seq
		err = c.store.Settle(ctx, inboxQueue(sent.To), st)
	}
	c.trace(ctx, TraceEvent{Op: op, ID: string(sent.ID), Target: sent.To}, err)
	return edge(op, string(sent.ID), err)
}

// find returns what is stored of a signal, and who asks.
func (c *SignalChannel) find(ctx context.Context, sent Sent) (StoredItem, Signal, Caller, error) {
	caller, err := callerOf(ctx)
	if err != nil {
		return StoredItem{}, Signal{}, caller, err
	}
	for item, err := range c.store.Items(ctx, inboxQueue(sent.To), ListOptions{After: max(sent.Seq, 1) - 1, Settled: true}) {
		if err != nil {
			return StoredItem{}, Signal{}, caller, err
		}
		if item.Seq != sent.Seq || item.ID != string(sent.ID) {
			break
		}
		s, err := decodeSignal(item.Item, item.Seq)
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		return item, s, caller, err
	}
	return StoredItem{}, Signal{}, caller, ErrNotFound
}

const fencePrefix = "team/fenced/"

// A fenceRecord says when an epoch was fenced.
type fenceRecord struct {
	At time.Time `json:"at"`
}

// Fence ends an epoch: from now on no signal of it is taken, and none that
// lies in an inbox is handed out. So a child of a run that was stopped, which
// finishes late, tells the next run nothing. To fence twice is no error. There is no
// way back, but that a Sweep forgets a fence in the end (see SignalSweepOptions.TTL).
func (c *SignalChannel) Fence(ctx context.Context, epoch string) error {
	err := checkName("epoch", epoch)
	if epoch == "" {
		err = &InvalidError{What: "epoch", Why: "is empty", Offset: -1}
	}
	event := TraceEvent{Op: "inbox.fence", ID: epoch}
	if err == nil {
		var value []byte
		value, err = json.Marshal(fenceRecord{time.Now().UTC().Truncate(time.Millisecond)})
		if err == nil {
			_, err = c.store.Put(ctx, fencePrefix+epoch, value, "")
		}
		if errors.Is(err, ErrConflict) { // it is fenced
			event.Outcome, err = "replayed", nil
		}
	}
	c.trace(ctx, event, err)
	return edge("inbox.fence", epoch, err)
}

// fenced returns ErrFenced if the epoch is over.
func (c *SignalChannel) fenced(ctx context.Context, epoch string) error {
	if epoch == "" {
		return nil
	}
	_, err := c.store.Get(ctx, fencePrefix+epoch)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err == nil:
		return fmt.Errorf("%w: epoch %s is over", ErrFenced, quoteName(epoch))
	}
	return err
}

package team

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"
)

// A Queued signal lies in an inbox.
type Queued struct {
	Signal
	Status
}

// A Status is where a signal is in its life, as its inbox has it.
type Status struct {
	State   ItemState `json:"state"`
	Attempt int       `json:"attempt"`          // how often it was handed out
	Since   time.Time `json:"since"`            // when it got into State
	Reason  string    `json:"reason,omitempty"` // why it is dead, or by what evidence it is acked
}

func statusOf(item StoredItem) Status {
	return Status{State: item.State, Attempt: item.Attempt, Since: item.Changed, Reason: item.Reason}
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
			q := Queued{Status: statusOf(item)}
			if err == nil {
				if !want(item.State) {
					continue
				}
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

// Status tells the sender or the receiver of a signal what became of it. Once
// the store has forgotten it, it is ErrNotFound; of somebody else's it is ErrDenied.
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
	return statusOf(item), nil
}

// Cancel takes a signal back that the caller sent and that nobody has received
// yet. One that is received, or settled, is ErrConflict; somebody else's is
// ErrDenied; one that is not there is ErrNotFound.
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

// Fence ends an epoch: from now on no signal of it is taken, and none that
// lies in an inbox is handed out. So a child of a run that was stopped, which
// finishes late, tells the next run nothing. To fence twice is no error; there is no
// way back.
func (c *SignalChannel) Fence(ctx context.Context, epoch string) error {
	err := checkName("epoch", epoch)
	if epoch == "" {
		err = &InvalidError{What: "epoch", Why: "is empty", Offset: -1}
	}
	if err == nil {
		_, err = c.store.Put(ctx, fencePrefix+epoch, nil, "")
		if errors.Is(err, ErrConflict) {
			err = nil // it is fenced
		}
	}
	c.trace(ctx, TraceEvent{Op: "inbox.fence", ID: epoch}, err)
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

package team

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ReceiveOptions say what to receive. The zero value waits for one signal.
type ReceiveOptions struct {
	// Max is the most signals; zero means one.
	Max int

	// Budget is the most that the signals may cost in the receiver's context,
	// in tokens of what FormatSignal makes of them. Zero means no bound. If the
	// first signal alone costs more, nothing is received and the *LimitError has
	// its cost; no signal costs more than its sender's MaxTokens and MaxFrameTokens
	// together.
	Budget int

	// Lease is how long the signals are the receiver's alone; zero means the
	// channel's. A model's turn can be long: rather too long than too short.
	Lease time.Duration

	// NoWait makes Receive return none instead of waiting.
	NoWait bool
}

// A Received signal is the receiver's alone until its lease ends; then it is
// handed out again. Ack it when it is dealt with.
type Received struct {
	Signal
	Attempt int       `json:"attempt"` // 1 the first time
	Until   time.Time `json:"until"`   // when the lease ends
	Token   string    `json:"token"`   // proves that the lease is the receiver's; opaque
}

// Receive takes the next signals out of the caller's inbox, in order, and waits
// for one if there is none. It returns at least one, unless NoWait is set, and ctx.Err()
// if that ends first. A session that is not on the roster is ErrNotFound: nobody
// could send to it.
//
// A stored signal that cannot be read, or whose epoch is fenced, becomes a dead
// letter, and the ones behind it move up.
func (c *SignalChannel) Receive(ctx context.Context, opts *ReceiveOptions) ([]Received, error) {
	got, err := c.receive(ctx, opts)
	caller, _ := CallerFrom(ctx)
	return got, edge("inbox.receive", string(caller.Session), err)
}

func (c *SignalChannel) receive(ctx context.Context, opts *ReceiveOptions) ([]Received, error) {
	queue, err := ownQueue(ctx)
	if err != nil {
		return nil, err
	}
	var o ReceiveOptions
	if opts != nil {
		o = *opts
	}
	if o.Max < 0 || o.Budget < 0 || o.Lease < 0 {
		return nil, &InvalidError{What: "receive options", Why: "are negative", Offset: -1}
	}
	setDefault(&o.Lease, c.opts.Lease)
	caller, _ := CallerFrom(ctx)
	if _, err := c.member(ctx, caller.Session); errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("%w: the session is not on the roster; enrol it first", ErrNotFound)
	} else if err != nil {
		return nil, err
	}
	return c.take(ctx, queue, o, max(c.opts.MaxAttempts, 0))
}

// take claims the next signals of an inbox, and buries what nobody can or may read.
func (c *SignalChannel) take(ctx context.Context, queue string, o ReceiveOptions, attempts int) ([]Received, error) {
	for {
		claims, err := c.store.Claim(ctx, queue, ClaimOptions{
			Max: max(o.Max, 1), Budget: o.Budget, Lease: o.Lease, MaxAttempts: attempts, Wait: !o.NoWait,
		})
		if err != nil {
			return nil, err
		}
		var got []Received
		for _, claim := range claims {
			s, err := decodeSignal(claim.Item, claim.Seq)
			reason := ""
			if err != nil {
				reason = "damaged: " + err.Error()
			} else if err = c.fenced(ctx, s.Epoch); errors.Is(err, ErrFenced) {
				reason = "late, " + err.Error()
			} else if err != nil {
				c.giveBack(ctx, queue, claims)
				return nil, err
			}
			if reason == "" {
				got = append(got, Received{Signal: s, Attempt: claim.Attempt, Until: claim.Until, Token: claim.Token})
				continue
			}
			bury := Settlement{Seq: claim.Seq, Token: claim.Token, Verdict: VerdictBury, Reason: reason}
			serr := c.store.Settle(ctx, queue, bury)
			c.trace(ctx, TraceEvent{Op: "inbox.bury", ID: claim.ID, Reason: kindOf(err), Outcome: "dead"}, serr)
			if serr != nil && len(claims) == 1 {
				return nil, serr
			} // else its lease brings it back, and the good ones are not held up
		}
		if len(got) > 0 || len(claims) == 0 {
			return got, nil
		}
	}
}

// giveBack releases claims that their caller will never see.
func (c *SignalChannel) giveBack(ctx context.Context, queue string, claims []Claim) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	settlements := make([]Settlement, len(claims))
	for i, claim := range claims {
		settlements[i] = Settlement{Seq: claim.Seq, Token: claim.Token, Verdict: VerdictRelease}
	}
	_ = c.store.Settle(ctx, queue, settlements...) // or their leases end
}

// Ack settles received signals: they are not handed out again. Each stands
// alone. One whose lease ended is ErrConflict, since it may be in other hands
// by now, and whoever has it acks it; the *SettleError has its Seq. To ack again
// what this claim has acked is no error.
func (c *SignalChannel) Ack(ctx context.Context, received ...Received) error {
	return c.settle(ctx, "inbox.ack", Settlement{Verdict: VerdictAck}, received)
}

// Extend makes the leases of received signals end d from now. Errors are those of Ack.
func (c *SignalChannel) Extend(ctx context.Context, d time.Duration, received ...Received) error {
	return c.settle(ctx, "inbox.extend", Settlement{Verdict: VerdictExtend, Delay: d}, received)
}

// Release gives received signals back: they are handed out again, in their old
// place, after d. Errors are those of Ack.
func (c *SignalChannel) Release(ctx context.Context, d time.Duration, received ...Received) error {
	return c.settle(ctx, "inbox.release", Settlement{Verdict: VerdictRelease, Delay: d}, received)
}

func (c *SignalChannel) settle(ctx context.Context, op string, what Settlement, received []Received) error {
	queue, err := ownQueue(ctx)
	caller, _ := CallerFrom(ctx)
	if err == nil {
		settlements := make([]Settlement, len(received))
		for i, r := range received {
			settlements[i] = what
			settlements[i].Seq, settlements[i].Token = r.Seq, r.Token
		}
		err = c.store.Settle(ctx, queue, settlements...)
	}
	if c.opts.Trace != nil {
		failed := settleErrors(err)
		for _, r := range received { // one line for each
			one := err
			if failed != nil {
				one = failed[r.Seq]
			}
			c.trace(ctx, TraceEvent{Op: op, ID: string(r.ID)}, one)
		}
	}
	return edge(op, string(caller.Session), err)
}

// settleErrors returns the errors of single settlements, or nil if err is not of
// that kind.
func settleErrors(err error) map[Seq]error {
	if one, ok := err.(*SettleError); ok {
		return map[Seq]error{one.Seq: one}
	}
	joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err)
	if !ok {
		return nil
	}
	failed := map[Seq]error{}
	for _, err := range joined.Unwrap() {
		one, ok := errors.AsType[*SettleError](err)
		if !ok {
			return nil
		}
		failed[one.Seq] = one
	}
	return failed
}

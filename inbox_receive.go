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
// A signal that was handed out SignalOptions.MaxAttempts times and never settled, that
// cannot be read, or whose epoch is fenced, becomes a dead letter, and the ones
// behind it move up.
func (c *SignalChannel) Receive(ctx context.Context, opts *ReceiveOptions) ([]Received, error) {
	got, err := c.receive(ctx, opts)
	caller, _ := CallerFrom(ctx)
	return got, edge("inbox.receive", string(caller.Session), err)
}

func (c *SignalChannel) receive(ctx context.Context, opts *ReceiveOptions) ([]Received, error) {
	if _, err := ownQueue(ctx); err != nil {
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
	got, err := c.take(ctx, caller.Session, o, c.opts.MaxAttempts)
	if c.opts.Trace != nil {
		for _, r := range got {
			c.trace(ctx, TraceEvent{Op: "inbox.receive", ID: string(r.ID), Outcome: "ok", Reason: fmt.Sprint("attempt ", r.Attempt)}, nil)
		}
	}
	return got, err
}

// take claims the next signals of an inbox, and buries what nobody can or may read,
// and what was handed out attempts times, if that is positive. The store could do the
// latter in the claim itself, but then nobody could tell which: no trail line, no event.
func (c *SignalChannel) take(ctx context.Context, session SessionID, o ReceiveOptions, attempts int) ([]Received, error) {
	queue := inboxQueue(session)
	opts := ClaimOptions{Max: max(o.Max, 1), Budget: o.Budget, Lease: o.Lease, Wait: !o.NoWait}
	// What is claimed is judged, though the caller has gone: given back it would have spent
	// an attempt, and nobody saw it.
	after, cancel := linger(ctx)
	defer cancel()
	for {
		claims, err := c.store.Claim(ctx, queue, opts)
		if dear, ok := errors.AsType[*LimitError](err); ok {
			// What is to be buried must not block those behind it for want of budget.
			buried, berr := c.buryHead(after, session, int(dear.Got), attempts)
			if berr != nil {
				return nil, berr
			} else if buried {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		got, err := c.sort(after, session, claims, attempts)
		if errors.Is(err, ErrConflict) {
			// A burial was not made before its lease ended: now under one that is long enough.
			_, err = c.buryHead(after, session, claims[0].Cost, attempts)
		}
		if err != nil || len(got) > 0 || len(claims) == 0 {
			return got, err
		}
	}
}

// linger returns a context that goes on for a second after ctx has ended.
func linger(ctx context.Context) (context.Context, context.CancelFunc) {
	after, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, cancel) })
	return after, func() {
		stop()
		cancel()
	}
}

// A burial is a claim that is to end as a dead letter.
type burial struct {
	claim  Claim
	reason string // for its status
	kind   string // for the trail
}

// The beginnings of the reasons of dead letters that were claimed only to be buried.
const (
	deadSpent   = "handed out %d times"
	deadDamaged = "damaged: "
	deadLate    = "late, "
)

// sort buries what of claims is to be, and returns the others.
func (c *SignalChannel) sort(ctx context.Context, session SessionID, claims []Claim, attempts int) ([]Received, error) {
	var got []Received
	var dead []burial
	for _, claim := range claims {
		s, b, err := c.judge(ctx, claim, attempts)
		switch {
		case err != nil:
			c.giveBack(ctx, inboxQueue(session), claims)
			return nil, err
		case b.reason != "":
			dead = append(dead, b)
		default:
			got = append(got, Received{Signal: s, Attempt: claim.Attempt, Until: claim.Until, Token: claim.Token})
		}
	}
	// The good ones are not held up: a burial that fails is made when the lease brings
	// the signal back. ErrConflict says that one is in other hands, who bury it, or in nobody's.
	if err := c.bury(ctx, session, dead); err != nil && len(got) == 0 {
		return nil, err
	}
	return got, nil
}

// judge reads a claimed signal. If the burial has a reason, it is to be buried.
func (c *SignalChannel) judge(ctx context.Context, claim Claim, attempts int) (Signal, burial, error) {
	s, err := decodeSignal(claim.Item, claim.Seq)
	if err != nil {
		return s, burial{claim, deadDamaged + err.Error(), "damaged"}, nil
	}
	if err := c.fenced(ctx, s.Epoch); errors.Is(err, ErrFenced) {
		return s, burial{claim, deadLate + err.Error(), kindOf(err)}, nil
	} else if err != nil {
		return s, burial{}, err
	}
	if attempts > 0 && claim.Attempt > attempts {
		// Not claim.Attempt-1: a burial that was cut short has counted as well.
		return s, burial{claim, fmt.Sprintf(deadSpent, attempts) + ", the limit, and never settled", "attempts spent"}, nil
	}
	return s, burial{}, nil
}

// bury makes dead letters. Who called may have gone: they are buried all the same.
func (c *SignalChannel) bury(ctx context.Context, session SessionID, dead []burial) error {
	if len(dead) == 0 {
		return nil
	}
	settlements := make([]Settlement, len(dead))
	for i, b := range dead {
		settlements[i] = Settlement{Seq: b.claim.Seq, Token: b.claim.Token, Verdict: VerdictBury, Reason: b.reason}
	}
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := c.store.Settle(patient, inboxQueue(session), settlements...)
	failed := settleErrors(err)
	for _, b := range dead {
		one := err
		if failed != nil {
			one = failed[b.claim.Seq]
		}
		c.trace(ctx, TraceEvent{Op: "inbox.bury", ID: b.claim.ID, Target: session, Reason: b.kind, Outcome: "dead"}, one)
	}
	return err
}

// buryHead buries the first pending signal of that cost, if it is to be buried, and
// reports whether it was.
func (c *SignalChannel) buryHead(ctx context.Context, session SessionID, cost, attempts int) (bool, error) {
	queue := inboxQueue(session)
	for item, err := range c.store.Items(ctx, queue, ListOptions{}) {
		if err != nil {
			return false, err
		}
		if item.State != ItemPending || item.Cost != cost {
			continue
		}
		next := Claim{Item: item.Item, Seq: item.Seq, Attempt: item.Attempt + 1}
		if _, b, err := c.judge(ctx, next, attempts); err != nil || b.reason == "" {
			return false, err
		}
		// Nobody but a claim can bury it; what that takes instead is given back.
		claims, err := c.store.Claim(ctx, queue, ClaimOptions{Max: 1, Lease: DefaultLease})
		if err != nil || len(claims) == 0 {
			return false, err
		}
		_, b, err := c.judge(ctx, claims[0], attempts)
		if err != nil || b.reason == "" {
			c.giveBack(ctx, queue, claims)
			return false, err
		}
		if err := c.bury(ctx, session, []burial{b}); !errors.Is(err, ErrConflict) {
			return true, err
		}
		return true, nil // whoever has it by now buries it
	}
	return false, nil
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

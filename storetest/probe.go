package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/teamchan/team"
)

const (
	hour = time.Hour // a lease that does not end during a law

	// lease is one that does. A law that claims with it only waits for its
	// end, so that a slow machine cannot break the law.
	lease = 30 * time.Millisecond

	// blink is how long a law watches that something does not happen.
	blink = 15 * time.Millisecond

	// slack is what a clock may be coarse by, on one machine.
	slack = 3 * time.Millisecond
)

// A probe calls a store for a law. Its methods do what is promised to work and
// end the law where it does not, so that a law reads as what happens. Calls that
// should be refused go to the Store, and their error to a method of the probe.
type probe struct {
	team.Store
	ctx  context.Context
	wait sync.WaitGroup // what the law has started
}

// try makes a law of steps. It returns after everything that they started has
// ended.
func try(steps func(p *probe)) func(context.Context, team.Store) error {
	return func(ctx context.Context, s team.Store) (err error) {
		ctx, cancel := context.WithCancel(ctx)
		p := &probe{Store: s, ctx: ctx}
		defer func() {
			cancel()
			p.wait.Wait()
			switch r := recover().(type) {
			case nil:
			case ended:
				err = r.err
			default:
				panic(r)
			}
		}()
		steps(p)
		return nil
	}
}

// ended is what fail panics with, to leave the law.
type ended struct{ err error }

func (p *probe) fail(format string, args ...any) {
	panic(ended{fmt.Errorf(format, args...)})
}

// ok ends the law if err is not nil.
func (p *probe) ok(what string, err error) {
	if err != nil {
		p.fail("%s = %v, want no error", what, err)
	}
}

// is ends the law if err is not a target.
func (p *probe) is(what string, err, target error) {
	if !errors.Is(err, target) {
		p.fail("%s = %v, want an error that is %q", what, err, target)
	}
}

// invalid ends the law if err is not a *team.InvalidError.
func (p *probe) invalid(what string, err error) {
	if _, ok := errors.AsType[*team.InvalidError](err); !ok {
		p.fail("%s = %v, want a *team.InvalidError", what, err)
	}
}

// limit ends the law if err is not a *team.LimitError with these numbers.
func (p *probe) limit(what string, err error, got, max int64) {
	le, ok := errors.AsType[*team.LimitError](err)
	if !ok {
		p.fail("%s = %v, want a *team.LimitError", what, err)
	}
	if le.Got != got || le.Max != max || le.What == "" {
		p.fail("%s = *team.LimitError{What: %q, Got: %d, Max: %d}, want Got: %d, Max: %d and a What",
			what, le.What, le.Got, le.Max, got, max)
	}
}

// equal ends the law if got is not want.
func (p *probe) equal(what string, got, want any) {
	if got == want {
		return
	}
	if _, ok := got.(string); ok {
		p.fail("%s = %q, want %q", what, got, want)
	}
	p.fail("%s = %v, want %v", what, got, want)
}

// items makes one plain item for each id in ids.
func items(ids string) []team.Item {
	var list []team.Item
	for _, id := range strings.Fields(ids) {
		list = append(list, team.Item{ID: id, Data: []byte("data of " + id)})
	}
	return list
}

// append appends list to queue, without a bound, and returns its receipts.
func (p *probe) append(queue string, list ...team.Item) []team.Receipt {
	receipts, err := p.Append(p.ctx, queue, list, 0)
	p.ok("Append", err)
	p.equal("number of receipts", len(receipts), len(list))
	return receipts
}

// add appends plain items with these ids and returns their numbers.
func (p *probe) add(queue, ids string) []team.Seq {
	var seqs []team.Seq
	for _, r := range p.append(queue, items(ids)...) {
		seqs = append(seqs, r.Seq)
	}
	return seqs
}

// claim claims with opts, where an hour is the lease if there is none.
func (p *probe) claim(queue string, opts team.ClaimOptions) []team.Claim {
	if opts.Lease == 0 {
		opts.Lease = hour
	}
	claims, err := p.Claim(p.ctx, queue, opts)
	p.ok("Claim", err)
	return claims
}

// take claims at most max items and ends the law if they are not want, which
// is the ids with the attempt: "a:1 b:1".
func (p *probe) take(queue string, max int, want string) []team.Claim {
	claims := p.claim(queue, team.ClaimOptions{Max: max})
	p.claimed(claims, want)
	return claims
}

func (p *probe) claimed(claims []team.Claim, want string) {
	var got []string
	for _, c := range claims {
		got = append(got, fmt.Sprintf("%s:%d", c.ID, c.Attempt))
	}
	p.equal("claimed items (id:attempt)", strings.Join(got, " "), want)
}

// by is a settlement of a claim.
func by(c team.Claim, v team.Verdict) team.Settlement {
	return team.Settlement{Seq: c.Seq, Token: c.Token, Verdict: v}
}

// settle settles what must take effect.
func (p *probe) settle(queue string, list ...team.Settlement) {
	p.ok("Settle", p.Settle(p.ctx, queue, list...))
}

// refused ends the law if err is not that of one settlement without effect, for
// a reason that is target.
func (p *probe) refused(what string, err error, st team.Settlement, target error) {
	list := settleErrors(err)
	if len(list) != 1 || list[0].Seq != st.Seq || list[0].Verdict != st.Verdict {
		p.fail("%s = %v, want one *team.SettleError for the %s of seq %d", what, err, st.Verdict, st.Seq)
	}
	p.is(what, err, target)
}

// settleErrors returns the *team.SettleErrors that err joins.
func settleErrors(err error) []*team.SettleError {
	switch e := err.(type) {
	case *team.SettleError:
		return []*team.SettleError{e}
	case interface{ Unwrap() []error }:
		var list []*team.SettleError
		for _, err := range e.Unwrap() {
			list = append(list, settleErrors(err)...)
		}
		return list
	default:
		return nil
	}
}

// list returns the items of queue.
func (p *probe) list(queue string, opts team.ListOptions) []team.StoredItem {
	var list []team.StoredItem
	for it, err := range p.Items(p.ctx, queue, opts) {
		p.ok("Items", err)
		list = append(list, it)
	}
	return list
}

// holds ends the law if the items of queue that are not settled are not want:
// "a:pending:0 b:claimed:1".
func (p *probe) holds(queue, want string) {
	var got []string
	for _, it := range p.list(queue, team.ListOptions{}) {
		got = append(got, fmt.Sprintf("%s:%s:%d", it.ID, it.State, it.Attempt))
	}
	p.equal("items not settled (id:state:attempt)", strings.Join(got, " "), want)
}

// settled ends the law if the item seq is not in a final state, and returns how
// it is kept, or nil if the store keeps no such items.
func (p *probe) settled(queue string, seq team.Seq, want team.ItemState) *team.StoredItem {
	for _, it := range p.list(queue, team.ListOptions{}) {
		if it.Seq == seq {
			p.fail("state of seq %d = %s, want %s", seq, it.State, want)
		}
	}
	for _, it := range p.list(queue, team.ListOptions{Settled: true}) {
		if it.Seq == seq {
			p.equal(fmt.Sprintf("state of seq %d", seq), it.State, want)
			return &it
		}
	}
	return nil
}

// dead ends the law if the item seq is not dead, and returns it. A store must
// keep dead items, or they could not be redriven.
func (p *probe) dead(queue string, seq team.Seq) team.StoredItem {
	it := p.settled(queue, seq, team.ItemDead)
	if it == nil {
		p.fail("seq %d is not listed any more, want it kept as dead", seq)
	}
	return *it
}

// pass waits until t and a little longer.
func (p *probe) pass(t time.Time) {
	p.sleep(time.Until(t) + slack + slack)
}

func (p *probe) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-p.ctx.Done():
		p.fail("the law took too long: %v", p.ctx.Err())
	}
}

// A waiting is a Claim with Wait, in a goroutine of its own.
type waiting struct {
	p      *probe
	cancel context.CancelFunc
	done   chan struct{} // closed when claims and err are there
	claims []team.Claim
	err    error
}

// waits starts a Claim that waits. A law holds whether or not it has begun when
// the next step comes; still gives it a moment to.
func (p *probe) waits(queue string, opts team.ClaimOptions) *waiting {
	if opts.Lease == 0 {
		opts.Lease = hour
	}
	if opts.Max == 0 {
		opts.Max = 1
	}
	opts.Wait = true
	ctx, cancel := context.WithCancel(p.ctx)
	w := &waiting{p: p, cancel: cancel, done: make(chan struct{})}
	p.wait.Go(func() {
		defer close(w.done)
		w.claims, w.err = p.Claim(ctx, queue, opts)
	})
	return w
}

// still ends the law if the claim comes back within a moment.
func (w *waiting) still() {
	select {
	case <-w.done:
		w.p.fail("a waiting Claim returned %d items and error %v, want it to wait", len(w.claims), w.err)
	case <-time.After(blink):
	}
}

// gets waits for the claim, and ends the law if it is not want.
func (w *waiting) gets(want string) []team.Claim {
	<-w.done // the law's context ends it at the latest
	w.p.ok("a waiting Claim", w.err)
	w.p.claimed(w.claims, want)
	return w.claims
}

package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/teamchan/team"
)

var waitLaws = []law{
	{
		name: "wait/there already",
		says: "Claim with Wait returns at once what can be claimed, and does not wait for Max",
		check: try(func(p *probe) {
			p.add("q", "a b")
			p.waits("q", team.ClaimOptions{Max: 9}).gets("a:1 b:1")
		}),
	},
	{
		name: "wait/append",
		says: "Claim with Wait blocks until an item is appended, also to a queue that was unknown",
		check: try(func(p *probe) {
			w := p.waits("q", team.ClaimOptions{Max: 9})
			w.still()
			p.add("q", "a")
			w.gets("a:1")
		}),
	},
	{
		name: "wait/other queue",
		says: "An item in another queue does not end the wait",
		check: try(func(p *probe) {
			w := p.waits("q", team.ClaimOptions{})
			w.still()
			p.add("r", "a")
			p.add("Q", "b")
			w.still()
			p.add("q", "c")
			w.gets("c:1")
		}),
	},
	{
		name: "wait/release",
		says: "Claim with Wait returns an item when it is released",
		check: try(func(p *probe) {
			p.add("q", "a")
			c := p.take("q", 1, "a:1")[0]
			w := p.waits("q", team.ClaimOptions{})
			w.still()
			p.settle("q", by(c, team.VerdictRelease))
			w.gets("a:2")
		}),
	},
	{
		name: "wait/release with delay",
		says: "Claim with Wait returns a released item when its Delay is over, and not before",
		check: try(func(p *probe) {
			p.add("q", "a")
			c := p.take("q", 1, "a:1")[0]
			w := p.waits("q", team.ClaimOptions{})
			w.still()
			start := time.Now()
			st := by(c, team.VerdictRelease)
			st.Delay = lease
			p.settle("q", st)
			w.gets("a:2")
			p.notBefore(start.Add(lease))
		}),
	},
	{
		name: "wait/lease ends",
		says: "Claim with Wait returns a claimed item when its lease ends, and not before",
		check: try(func(p *probe) {
			p.add("q", "a")
			start := time.Now()
			p.claimed(p.claim("q", team.ClaimOptions{Max: 1, Lease: lease}), "a:1")
			p.waits("q", team.ClaimOptions{}).gets("a:2")
			p.notBefore(start.Add(lease))
		}),
	},
	{
		name: "wait/extend",
		says: "Claim with Wait returns a claimed item when its lease ends, also when that was moved while it waits",
		check: try(func(p *probe) {
			p.add("q", "a")
			st := by(p.take("q", 1, "a:1")[0], team.VerdictExtend)
			w := p.waits("q", team.ClaimOptions{})
			w.still()
			start := time.Now()
			st.Delay = lease
			p.settle("q", st)
			w.gets("a:2")
			p.notBefore(start.Add(lease))
		}),
	},
	{
		name: "wait/redrive",
		says: "Claim with Wait returns a dead item when it is redriven",
		check: try(func(p *probe) {
			seq := p.add("q", "a")[0]
			p.settle("q", by(p.take("q", 1, "a:1")[0], team.VerdictBury))
			w := p.waits("q", team.ClaimOptions{})
			w.still()
			p.settle("q", team.Settlement{Seq: seq, Verdict: team.VerdictRedrive})
			w.gets("a:1")
		}),
	},
	{
		name: "wait/context",
		says: "A waiting Claim returns soon after its context ends, with an error that wraps ctx.Err(), and claims nothing",
		check: try(func(p *probe) {
			w := p.waits("q", team.ClaimOptions{})
			w.still()
			w.cancel()
			<-w.done
			p.is("Claim when its context was cancelled", w.err, context.Canceled)
			ctx, cancel := context.WithTimeout(p.ctx, blink)
			defer cancel()
			_, err := p.Claim(ctx, "q", team.ClaimOptions{Max: 1, Lease: hour, Wait: true})
			p.is("Claim when its context timed out", err, context.DeadlineExceeded)
			if p.ctx.Err() != nil {
				p.fail("Claim returned when the law was over, want it to return soon after its own context")
			}
			p.add("q", "a")
			p.take("q", 1, "a:1")
		}),
	},
	{
		name: "wait/one item",
		says: "Of many that wait for one item exactly one gets it, and the others still wait",
		check: try(func(p *probe) {
			const n = 6
			var all []*waiting
			for range n {
				all = append(all, p.waits("q", team.ClaimOptions{Max: 2}))
			}
			all[0].still()
			for i := range n {
				id := fmt.Sprint("i", i)
				p.add("q", id)
				w := p.first(all)
				w.gets(id + ":1")
				all = without(all, w)
				if i == 0 {
					all[0].still()
				}
				for _, w := range all {
					select {
					case <-w.done:
						p.fail("a second Claim returned %d items and error %v for one item", len(w.claims), w.err)
					default:
					}
				}
			}
		}),
	},
	{
		name: "wait/several items",
		says: "Items that are appended at once end the wait of as many as there are items for",
		check: try(func(p *probe) {
			var all []*waiting
			for range 4 {
				all = append(all, p.waits("q", team.ClaimOptions{Max: 1}))
			}
			all[0].still()
			p.add("q", "a b c")
			got := make(map[string]bool)
			for range 3 {
				w := p.first(all)
				all = without(all, w)
				p.ok("a waiting Claim", w.err)
				p.equal("items claimed with Max 1", len(w.claims), 1)
				got[w.claims[0].ID] = true
			}
			p.equal("different items handed out", len(got), 3)
			all[0].still()
		}),
	},
	{
		name: "wait/cancelled waiter",
		says: "A waiting Claim whose context ends as an item comes does not keep it from another that waits",
		check: try(func(p *probe) {
			for i := range 30 {
				q := fmt.Sprint("q", i)
				first := p.waits(q, team.ClaimOptions{})
				if i == 0 {
					first.still()
				}
				time.Sleep(200 * time.Microsecond) // mostly, so that it is first in line
				second := p.waits(q, team.ClaimOptions{})
				time.Sleep(200 * time.Microsecond)
				switch i % 3 {
				case 0: // it is gone when the item comes
					first.cancel()
					<-first.done
				case 1: // it goes at that moment
					p.wait.Go(first.cancel)
				case 2: // it goes a little later
					time.AfterFunc(time.Duration(i)*10*time.Microsecond, first.cancel)
				}
				p.add(q, "a")
				<-first.done
				if errors.Is(first.err, context.Canceled) {
					second.gets("a:1")
					continue
				}
				first.gets("a:1")
				p.add(q, "b")
				second.gets("b:1")
			}
		}),
	},
	{
		name: "wait/dead",
		says: "An item that is dead instead of handed out does not end the wait",
		check: try(func(p *probe) {
			seq := p.add("q", "a")[0]
			p.settle("q", by(p.take("q", 1, "a:1")[0], team.VerdictRelease))
			w := p.waits("q", team.ClaimOptions{MaxAttempts: 1})
			w.still()
			p.add("q", "b")
			w.gets("b:1")
			p.dead("q", seq)
		}),
	},
	{
		name: "wait/expired",
		says: "An item that expires before it can be claimed does not end the wait",
		check: try(func(p *probe) {
			w := p.waits("q", team.ClaimOptions{})
			w.still()
			p.append("q", team.Item{ID: "a", Expires: time.Now().Add(-hour)})
			w.still()
			p.add("q", "b")
			w.gets("b:1")
		}),
	},
	{
		name: "wait/too dear",
		says: "A waiting Claim for which the item is too dear does not keep it from another that waits",
		check: try(func(p *probe) {
			poor := p.waits("q", team.ClaimOptions{Budget: 1})
			poor.still()
			rich := p.waits("q", team.ClaimOptions{Budget: 5})
			rich.still()
			p.append("q", team.Item{ID: "a", Cost: 5})
			rich.gets("a:1")
			select {
			case <-poor.done: // it saw the item first
				p.limit("Claim with Budget 1", poor.err, 5, 1)
			default:
			}
		}),
	},
}

// first returns one of all that has returned, as soon as there is one.
func (p *probe) first(all []*waiting) *waiting {
	one := make(chan *waiting, len(all))
	stop := make(chan struct{})
	defer close(stop)
	for _, w := range all {
		p.wait.Go(func() {
			select {
			case <-w.done:
				one <- w
			case <-stop:
			}
		})
	}
	select {
	case w := <-one:
		return w
	case <-p.ctx.Done():
		p.fail("no waiting Claim returned, want one to")
		return nil
	}
}

func without(all []*waiting, w *waiting) []*waiting {
	var rest []*waiting
	for _, o := range all {
		if o != w {
			rest = append(rest, o)
		}
	}
	return rest
}

// notBefore ends the law if it is earlier than t.
func (p *probe) notBefore(t time.Time) {
	if early := time.Until(t); early > slack {
		p.fail("the item was handed out %v before it could be claimed", early)
	}
}

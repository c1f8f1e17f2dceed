package storetest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/teamchan/team"
)

var claimLaws = []law{
	{
		name: "claim/first in order",
		says: "Claim hands out the first pending items, in order, at most Max",
		check: try(func(p *probe) {
			p.add("q", "a b c d")
			p.take("q", 1, "a:1")
			p.take("q", 2, "b:1 c:1")
			p.take("q", 9, "d:1")
		}),
	},
	{
		name: "claim/none",
		says: "Claim returns none, without waiting, if there is no item to claim and Wait is not set",
		check: try(func(p *probe) {
			p.take("unknown", 1, "")
			p.add("q", "a")
			p.take("q", 1, "a:1")
			p.take("q", 1, "")
		}),
	},
	{
		name: "claim/held",
		says: "Nobody else gets a claimed item, and items behind it are handed out all the same",
		check: try(func(p *probe) {
			p.add("q", "a b")
			p.take("q", 1, "a:1")
			p.holds("q", "a:claimed:1 b:pending:0")
			p.take("q", 9, "b:1")
			p.add("q", "c")
			p.take("q", 9, "c:1")
		}),
	},
	{
		name: "claim/fields",
		says: "A claim has the item's number, attempt 1 the first time, a token, and the time when its lease ends",
		check: try(func(p *probe) {
			seq := p.add("q", "a")[0]
			before := time.Now()
			c := p.take("q", 1, "a:1")[0]
			p.equal("Seq", c.Seq, seq)
			if c.Token == "" {
				p.fail("Token is empty")
			}
			if c.Until.Before(before.Add(hour-time.Second)) || c.Until.After(time.Now().Add(hour+time.Second)) {
				p.fail("Until is %v from the call, want %v", c.Until.Sub(before), hour)
			}
		}),
	},
	{
		name: "claim/token",
		says: "Every claim of an item has another token",
		check: try(func(p *probe) {
			p.add("q", "a b")
			seen := make(map[string]bool)
			for range 5 {
				for _, c := range p.claim("q", team.ClaimOptions{Max: 2}) {
					if seen[c.Token] {
						p.fail("token %q came twice", c.Token)
					}
					seen[c.Token] = true
					p.settle("q", by(c, team.VerdictRelease))
				}
			}
			p.equal("tokens", len(seen), 10)
		}),
	},
	{
		name: "claim/budget",
		says: "Claim stops before the costs add up to more than Budget, and nothing overtakes the item where it stopped",
		check: try(func(p *probe) {
			p.append("q", team.Item{ID: "a", Cost: 4}, team.Item{ID: "b", Cost: 6}, team.Item{ID: "c", Cost: 5}, team.Item{ID: "d", Cost: 1}, team.Item{ID: "e"})
			p.claimed(p.claim("q", team.ClaimOptions{Max: 9, Budget: 10}), "a:1 b:1")
			p.claimed(p.claim("q", team.ClaimOptions{Max: 9, Budget: 5}), "c:1")
			p.claimed(p.claim("q", team.ClaimOptions{Max: 9}), "d:1 e:1")
		}),
	},
	{
		name: "claim/too dear",
		says: "A first item that alone costs more than Budget is not claimed: the call is a *LimitError with its cost",
		check: try(func(p *probe) {
			p.append("q", team.Item{ID: "a", Cost: 9}, team.Item{ID: "b", Cost: 1})
			_, err := p.Claim(p.ctx, "q", team.ClaimOptions{Max: 2, Budget: 8, Lease: hour})
			p.limit("Claim", err, 9, 8)
			_, err = p.Claim(p.ctx, "q", team.ClaimOptions{Max: 2, Budget: 8, Lease: hour, Wait: true})
			p.limit("Claim that would wait", err, 9, 8)
			p.holds("q", "a:pending:0 b:pending:0")
			p.claimed(p.claim("q", team.ClaimOptions{Max: 2, Budget: 9}), "a:1")
		}),
	},
	{
		name: "claim/failure buries none",
		says: "A Claim that fails changes nothing: what has no attempts left is buried by the first that succeeds",
		check: try(func(p *probe) {
			p.append("q", team.Item{ID: "a", Cost: 1}, team.Item{ID: "b", Cost: 9})
			p.settle("q", by(p.take("q", 1, "a:1")[0], team.VerdictRelease))
			_, err := p.Claim(p.ctx, "q", team.ClaimOptions{Max: 2, Budget: 8, Lease: hour, MaxAttempts: 1})
			p.limit("Claim", err, 9, 8)
			p.holds("q", "a:pending:1 b:pending:0")
			p.claimed(p.claim("q", team.ClaimOptions{Max: 2, MaxAttempts: 1}), "b:1")
		}),
	},
	{
		name: "claim/lease ends",
		says: "A claim whose lease ran out is pending again, in its old place, and the next claim is one attempt more",
		check: try(func(p *probe) {
			p.add("q", "a b c")
			p.claimed(p.claim("q", team.ClaimOptions{Max: 1, Lease: hour}), "a:1")
			c := p.claim("q", team.ClaimOptions{Max: 1, Lease: lease})
			p.claimed(c, "b:1")
			p.pass(c[0].Until)
			p.holds("q", "a:claimed:1 b:pending:1 c:pending:0")
			p.take("q", 9, "b:2 c:1")
		}),
	},
	{
		name: "claim/attempts",
		says: "An item that would be handed out more than MaxAttempts times is dead, with a reason that names the number, and the items behind it move up",
		check: try(func(p *probe) {
			seqs := p.add("q", "a b")
			opts := team.ClaimOptions{Max: 1, MaxAttempts: 3}
			for attempt := range 3 {
				c := p.claim("q", opts)
				p.claimed(c, fmt.Sprintf("a:%d", attempt+1))
				p.settle("q", by(c[0], team.VerdictRelease))
			}
			p.claimed(p.claim("q", opts), "b:1")
			it := p.dead("q", seqs[0])
			if !strings.Contains(it.Reason, "3") {
				p.fail("Reason = %q, want the number 3 in it", it.Reason)
			}
			p.equal("Attempt of the dead item", it.Attempt, 3)
			p.holds("q", "b:claimed:1")
			p.take("q", 9, "")
		}),
	},
	{
		name: "claim/attempts by lease",
		says: "A claim whose lease ran out was an attempt, and zero MaxAttempts is no bound",
		check: try(func(p *probe) {
			seqs := p.add("q", "a")
			for range 2 {
				p.pass(p.claim("q", team.ClaimOptions{Max: 1, Lease: lease})[0].Until)
			}
			c := p.take("q", 1, "a:3")
			p.settle("q", by(c[0], team.VerdictRelease))
			p.claimed(p.claim("q", team.ClaimOptions{Max: 1, MaxAttempts: 3}), "")
			p.dead("q", seqs[0])
		}),
	},
	{
		name: "claim/expired",
		says: "An item past its Expires is not handed out any more but settled as expired, and the items behind it move up",
		check: try(func(p *probe) {
			soon := time.Now().Add(lease)
			r := p.append("q",
				team.Item{ID: "old", Expires: time.Now().Add(-hour)},
				team.Item{ID: "soon", Expires: soon},
				team.Item{ID: "ancient", Expires: time.Unix(-1<<60, 0)},
				team.Item{ID: "later", Expires: time.Now().Add(hour)},
				team.Item{ID: "ages", Expires: time.Unix(1<<60, 0)},
				team.Item{ID: "never"})
			p.pass(soon)
			p.holds("q", "later:pending:0 ages:pending:0 never:pending:0")
			p.take("q", 9, "later:1 ages:1 never:1")
			p.settled("q", r[0].Seq, team.ItemExpired)
			p.settled("q", r[1].Seq, team.ItemExpired)
		}),
	},
	{
		name: "claim/expired in hand",
		says: "Expires is when an item stops being handed out: a claim that holds is not ended by it, but a released item is",
		check: try(func(p *probe) {
			soon := time.Now().Add(lease + lease)
			r := p.append("q", team.Item{ID: "a", Expires: soon}, team.Item{ID: "b", Expires: soon})
			c := p.claim("q", team.ClaimOptions{Max: 2})
			if len(c) < 2 {
				return // too slow a machine to see it
			}
			p.pass(soon)
			p.settle("q", by(c[0], team.VerdictAck), by(c[1], team.VerdictRelease))
			p.settled("q", r[0].Seq, team.ItemAcked)
			p.settled("q", r[1].Seq, team.ItemExpired)
			p.take("q", 9, "")
		}),
	},
	{
		name: "claim/bad arguments",
		says: "A queue without a name, a Max or Lease that is not positive, and a negative Budget are a *InvalidError, and nothing is claimed",
		check: try(func(p *probe) {
			p.add("q", "a")
			for _, opts := range []team.ClaimOptions{
				{Max: 0, Lease: hour}, {Max: -1, Lease: hour}, {Max: 1}, {Max: 1, Lease: -hour}, {Max: 1, Lease: hour, Budget: -1},
			} {
				_, err := p.Claim(p.ctx, "q", opts)
				p.invalid(fmt.Sprintf("Claim with Max %d, Lease %v and Budget %d", opts.Max, opts.Lease, opts.Budget), err)
			}
			_, err := p.Claim(p.ctx, "", team.ClaimOptions{Max: 1, Lease: hour})
			p.invalid("Claim from the queue without a name", err)
			p.holds("q", "a:pending:0")
		}),
	},
	{
		name: "claim/belongs to the caller",
		says: "What Claim returns belongs to the caller, who may change it",
		check: try(func(p *probe) {
			p.add("q", "a")
			c := p.take("q", 1, "a:1")[0]
			copy(c.Data, "XXXX")
			p.equal("data listed", string(p.list("q", team.ListOptions{})[0].Data), "data of a")
			p.settle("q", by(c, team.VerdictRelease))
			p.equal("data claimed again", string(p.take("q", 1, "a:2")[0].Data), "data of a")
		}),
	},
	{
		name: "claim/concurrent",
		says: "Of goroutines that claim at once, exactly one gets each item",
		check: try(func(p *probe) {
			const n = 8
			var ids []string
			for i := range n * 3 {
				ids = append(ids, fmt.Sprint("i", i))
			}
			p.add("q", strings.Join(ids, " "))
			claims := make([][]team.Claim, n)
			errs := make([]error, n)
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					claims[i], errs[i] = p.Claim(p.ctx, "q", team.ClaimOptions{Max: 3, Lease: hour})
				})
			}
			wg.Wait()
			got := make(map[string]bool)
			for i := range n {
				p.ok("Claim", errs[i])
				for j, c := range claims[i] {
					if got[c.ID] {
						p.fail("%s was handed out twice", c.ID)
					}
					got[c.ID] = true
					if j > 0 && c.Seq <= claims[i][j-1].Seq {
						p.fail("claims of one call are out of order")
					}
				}
			}
			p.equal("items handed out", len(got), len(ids))
		}),
	},
	{
		name: "claim/at work",
		says: "While some append and others wait, claim and ack, nothing is lost and nothing comes twice",
		check: try(func(p *probe) {
			const writers, readers, each = 4, 3, 15
			got := make(chan team.Claim, writers*each*2)
			errs := make(chan error, writers+readers)
			for w := range writers {
				p.wait.Go(func() {
					for i := range each {
						if _, err := p.Append(p.ctx, "q", items(fmt.Sprintf("w%di%d", w, i)), 0); err != nil {
							errs <- err
							return
						}
					}
				})
			}
			for r := range readers {
				p.wait.Go(func() {
					for p.ctx.Err() == nil {
						claims, err := p.Claim(p.ctx, "q", team.ClaimOptions{Max: 1 + r, Lease: hour, Wait: true})
						for _, c := range claims {
							if err == nil {
								err = p.Settle(p.ctx, "q", by(c, team.VerdictAck))
							}
							select {
							case got <- c:
							case <-p.ctx.Done():
							}
						}
						if err != nil && p.ctx.Err() == nil {
							errs <- err
							return
						}
					}
				})
			}
			seen := make(map[string]bool)
			for range writers * each {
				select {
				case c := <-got:
					if seen[c.ID] {
						p.fail("%s was handed out twice", c.ID)
					}
					seen[c.ID] = true
				case err := <-errs:
					p.ok("a call", err)
				case <-p.ctx.Done():
					p.fail("%d of %d items came, want all", len(seen), writers*each)
				}
			}
			p.holds("q", "")
		}),
	},
}

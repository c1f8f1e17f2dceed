package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/teamchan/team"
)

// held are the verdicts that need the token of a claim that holds.
var held = []team.Verdict{team.VerdictAck, team.VerdictRelease, team.VerdictExtend, team.VerdictBury}

var settleLaws = []law{
	{
		name: "settle/ack",
		says: "Ack settles a claimed item as acked, with its evidence; it never comes back",
		check: try(func(p *probe) {
			seqs := p.add("q", "a b")
			c := p.take("q", 2, "a:1 b:1")
			p.settle("q", by(c[0], team.VerdictAck))
			p.holds("q", "b:claimed:1")
			p.settled("q", seqs[0], team.ItemAcked)
			st := by(c[1], team.VerdictAck)
			st.Reason = "seen by the host"
			p.settle("q", st)
			p.take("q", 9, "")
			for _, it := range p.list("q", team.ListOptions{Settled: true}) {
				if it.Seq == seqs[1] {
					p.equal("Reason of an acked item", it.Reason, st.Reason)
				}
			}
		}),
	},
	{
		name: "settle/release",
		says: "Release makes a claimed item pending again at once, in its old place, and its attempt stays counted",
		check: try(func(p *probe) {
			p.add("q", "a b c")
			c := p.take("q", 2, "a:1 b:1")
			p.settle("q", by(c[1], team.VerdictRelease))
			p.holds("q", "a:claimed:1 b:pending:1 c:pending:0")
			p.settle("q", by(c[0], team.VerdictRelease))
			p.take("q", 9, "a:2 b:2 c:1")
		}),
	},
	{
		name: "settle/release with delay",
		says: "An item that was released with a Delay is pending, and not handed out before that is over",
		check: try(func(p *probe) {
			p.add("q", "a b")
			st := by(p.take("q", 1, "a:1")[0], team.VerdictRelease)
			st.Delay = hour
			p.settle("q", st)
			p.holds("q", "a:pending:1 b:pending:0")
			st = by(p.take("q", 9, "b:1")[0], team.VerdictRelease)
			st.Delay = lease
			p.settle("q", st)
			p.pass(time.Now().Add(lease))
			p.take("q", 9, "b:2")
		}),
	},
	{
		name: "settle/extend",
		says: "Extend makes the lease end Delay from now; the claim goes on with its token and attempt",
		check: try(func(p *probe) {
			seq := p.add("q", "a")[0]
			c := p.claim("q", team.ClaimOptions{Max: 1, Lease: 200 * time.Millisecond})[0]
			st := by(c, team.VerdictExtend)
			st.Delay = hour
			if err := p.Settle(p.ctx, "q", st); err != nil {
				if time.Now().After(c.Until) {
					return // too slow a machine to see it
				}
				p.ok("Extend before the lease ended", err)
			}
			p.pass(c.Until)
			p.holds("q", "a:claimed:1")
			p.take("q", 1, "")
			st.Delay = lease
			p.settle("q", st)
			p.pass(time.Now().Add(lease))
			p.take("q", 1, "a:2")
			p.equal("number of the item", p.list("q", team.ListOptions{})[0].Seq, seq)
		}),
	},
	{
		name: "settle/extend then ack",
		says: "A claim that was extended can still be acked with its token",
		check: try(func(p *probe) {
			seq := p.add("q", "a")[0]
			c := p.take("q", 1, "a:1")[0]
			st := by(c, team.VerdictExtend)
			st.Delay = hour
			p.settle("q", st)
			p.settle("q", st)
			p.settle("q", by(c, team.VerdictAck))
			p.settled("q", seq, team.ItemAcked)
		}),
	},
	{
		name: "settle/bury",
		says: "Bury settles a claimed item as dead, with Reason; it is not handed out",
		check: try(func(p *probe) {
			seq := p.add("q", "a b")[0]
			st := by(p.take("q", 1, "a:1")[0], team.VerdictBury)
			st.Reason = "nobody can read it: \"\x00é\""
			p.settle("q", st)
			it := p.dead("q", seq)
			p.equal("Reason", it.Reason, st.Reason)
			p.equal("Attempt", it.Attempt, 1)
			p.take("q", 9, "b:1")
		}),
	},
	{
		name: "settle/stale token",
		says: "A token that is not that of the claim that holds is ErrConflict for every verdict that needs one, and changes nothing",
		check: try(func(p *probe) {
			p.add("q", "a b c")
			c := p.take("q", 2, "a:1 b:1")
			p.settle("q", by(c[0], team.VerdictRelease))
			now := p.take("q", 1, "a:2")[0]
			for _, v := range held {
				for what, token := range map[string]string{
					"an old token": c[0].Token, "another item's token": c[1].Token,
					"no token": "", "a made-up token": now.Token + "x",
				} {
					st := team.Settlement{Seq: now.Seq, Token: token, Verdict: v, Delay: hour}
					what := fmt.Sprintf("%s with %s", v, what)
					p.refused(what, p.Settle(p.ctx, "q", st), st, team.ErrConflict)
					p.holds("q", "a:claimed:2 b:claimed:1 c:pending:0")
				}
			}
			p.settle("q", by(now, team.VerdictAck))
		}),
	},
	{
		name: "settle/lease over",
		says: "A token whose lease is over is stale, also when the item was not claimed again since",
		check: try(func(p *probe) {
			p.add("q", "a")
			c := p.claim("q", team.ClaimOptions{Max: 1, Lease: lease})[0]
			p.pass(c.Until)
			for _, v := range held {
				st := by(c, v)
				st.Delay = hour
				p.refused(fmt.Sprintf("%s after the lease", v), p.Settle(p.ctx, "q", st), st, team.ErrConflict)
			}
			p.holds("q", "a:pending:1")
			p.take("q", 1, "a:2")
			st := by(c, team.VerdictAck)
			p.refused("ack with the token before", p.Settle(p.ctx, "q", st), st, team.ErrConflict)
			p.holds("q", "a:claimed:2")
		}),
	},
	{
		name: "settle/claim is over",
		says: "A claim that was settled or released cannot be settled again, and what was never claimed cannot be acked",
		check: try(func(p *probe) {
			seqs := p.add("q", "a b c d")
			c := p.take("q", 3, "a:1 b:1 c:1")
			p.settle("q", by(c[0], team.VerdictAck), by(c[1], team.VerdictBury), by(c[2], team.VerdictRelease))
			for _, v := range held {
				for i, c := range c {
					st := by(c, v)
					st.Delay = hour
					if i == 0 && v == team.VerdictAck || i == 1 && v == team.VerdictBury {
						continue // see the next law
					}
					err := p.Settle(p.ctx, "q", st)
					p.refusedOrGone(fmt.Sprintf("%s of %s again", v, c.ID), err, st)
				}
				st := team.Settlement{Seq: seqs[3], Verdict: v, Delay: hour}
				p.refused(fmt.Sprintf("%s of an item that is pending", v), p.Settle(p.ctx, "q", st), st, team.ErrConflict)
			}
			p.settled("q", seqs[0], team.ItemAcked)
			p.dead("q", seqs[1])
			p.holds("q", "c:pending:1 d:pending:0")
		}),
	},
	{
		name: "settle/repeated",
		says: "An Ack or a Bury that took effect is nil when it is repeated with its token, and changes nothing",
		check: try(func(p *probe) {
			seqs := p.add("q", "a b c")
			c := p.take("q", 3, "a:1 b:1 c:1")
			bury := by(c[1], team.VerdictBury)
			bury.Reason = "first"
			p.settle("q", by(c[0], team.VerdictAck), bury)
			for range 2 {
				bury.Reason = "again"
				p.settle("q", by(c[0], team.VerdictAck), bury)
			}
			p.settled("q", seqs[0], team.ItemAcked)
			for _, it := range p.list("q", team.ListOptions{Settled: true}) {
				if it.Seq == seqs[1] {
					p.equal("Reason after a repeated Bury", it.Reason, "first")
				}
			}
			for what, st := range map[string]team.Settlement{
				"ack with the token of another item":  {Seq: seqs[0], Token: c[2].Token, Verdict: team.VerdictAck},
				"ack of what was acked without token": {Seq: seqs[0], Verdict: team.VerdictAck},
				"bury of what was acked":              by(c[0], team.VerdictBury),
				"ack of what was buried":              by(c[1], team.VerdictAck),
			} {
				p.refusedOrGone(what, p.Settle(p.ctx, "q", st), st)
			}
			// Redriven and claimed anew, the first token is stale.
			p.settle("q", team.Settlement{Seq: seqs[1], Verdict: team.VerdictRedrive})
			next := p.take("q", 1, "b:1")
			p.settle("q", by(next[0], team.VerdictBury))
			st := by(c[1], team.VerdictBury)
			p.refused("bury with the token before the last", p.Settle(p.ctx, "q", st), st, team.ErrConflict)
		}),
	},
	{
		name: "settle/cancel",
		says: "Cancel settles an item that is pending, without a token; it is not handed out",
		check: try(func(p *probe) {
			seqs := p.add("q", "a b c")
			p.settle("q", team.Settlement{Seq: seqs[1], Verdict: team.VerdictCancel})
			p.settled("q", seqs[1], team.ItemCancelled)
			st := by(p.take("q", 1, "a:1")[0], team.VerdictRelease)
			st.Delay = hour
			p.settle("q", st, team.Settlement{Seq: seqs[0], Verdict: team.VerdictCancel}) // released is pending
			p.settled("q", seqs[0], team.ItemCancelled)
			p.take("q", 9, "c:1")
		}),
	},
	{
		name: "settle/cancel too late",
		says: "Cancel of an item that is claimed or settled is ErrConflict and changes nothing; if there is no such item it is ErrNotFound",
		check: try(func(p *probe) {
			seqs := p.add("q", "a b c")
			c := p.take("q", 2, "a:1 b:1")
			st := team.Settlement{Seq: seqs[0], Verdict: team.VerdictCancel}
			p.refused("cancel of a claimed item", p.Settle(p.ctx, "q", st), st, team.ErrConflict)
			st.Token = c[0].Token
			p.refused("cancel of a claimed item with its token", p.Settle(p.ctx, "q", st), st, team.ErrConflict)
			p.holds("q", "a:claimed:1 b:claimed:1 c:pending:0")
			p.settle("q", by(c[0], team.VerdictAck), by(c[1], team.VerdictBury))
			p.refusedOrGone("cancel of an acked item", p.Settle(p.ctx, "q", st), st)
			st = team.Settlement{Seq: seqs[1], Verdict: team.VerdictCancel}
			p.refused("cancel of a dead item", p.Settle(p.ctx, "q", st), st, team.ErrConflict)
			st.Seq = seqs[2] + 1000
			p.refused("cancel of a seq that never was", p.Settle(p.ctx, "q", st), st, team.ErrNotFound)
			p.refused("cancel in an unknown queue", p.Settle(p.ctx, "r", st), st, team.ErrNotFound)
			p.dead("q", seqs[1])
		}),
	},
	{
		name: "settle/cancel or claim",
		says: "Of a Cancel and a Claim at once exactly one gets the item",
		check: try(func(p *probe) {
			for i := range 20 {
				q := fmt.Sprint("q", i)
				st := team.Settlement{Seq: p.add(q, "a")[0], Verdict: team.VerdictCancel}
				var settleErr, claimErr error
				var claims []team.Claim
				var wg sync.WaitGroup
				wg.Go(func() { settleErr = p.Settle(p.ctx, q, st) })
				wg.Go(func() { claims, claimErr = p.Claim(p.ctx, q, team.ClaimOptions{Max: 1, Lease: hour}) })
				wg.Wait()
				p.ok("Claim", claimErr)
				if len(claims) > 0 {
					p.refused("cancel of an item that was claimed meanwhile", settleErr, st, team.ErrConflict)
				} else {
					p.ok("cancel of an item that nobody claimed", settleErr)
				}
			}
		}),
	},
	{
		name: "settle/amend",
		says: "Amend gives an item that is pending new Data, in its old place and with its attempts; of any other item it is ErrConflict",
		check: try(func(p *probe) {
			seqs := p.add("q", "a b c d")
			c := p.take("q", 2, "a:1 b:1")
			p.settle("q", by(c[0], team.VerdictRelease))
			data := []byte("new")
			p.settle("q", team.Settlement{Seq: seqs[0], Verdict: team.VerdictAmend, Data: data})
			copy(data, "bad") // it is the caller's again
			p.settle("q", team.Settlement{Seq: seqs[3], Verdict: team.VerdictCancel})
			for _, i := range []int{1, 3} {
				st := team.Settlement{Seq: seqs[i], Verdict: team.VerdictAmend, Data: data}
				p.refusedOrGone("amend of an item that is not pending", p.Settle(p.ctx, "q", st), st)
			}
			st := team.Settlement{Seq: seqs[3] + 100, Verdict: team.VerdictAmend, Data: data}
			p.refused("amend of nothing", p.Settle(p.ctx, "q", st), st, team.ErrNotFound)
			p.holds("q", "a:pending:1 b:claimed:1 c:pending:0")
			got := p.claim("q", team.ClaimOptions{Max: 1})
			p.equal("Data of an amended item", string(got[0].Data), "new")
		}),
	},
	{
		name: "settle/redrive",
		says: "Redrive makes a dead item pending again, in its old place, with no attempts behind it",
		check: try(func(p *probe) {
			seqs := p.add("q", "a b c")
			c := p.take("q", 2, "a:1 b:1")
			p.settle("q", by(c[0], team.VerdictBury), by(c[1], team.VerdictRelease))
			p.claimed(p.claim("q", team.ClaimOptions{Max: 1, MaxAttempts: 1}), "c:1")
			p.dead("q", seqs[0])
			p.dead("q", seqs[1])
			p.settle("q", team.Settlement{Seq: seqs[1], Verdict: team.VerdictRedrive}, team.Settlement{Seq: seqs[0], Verdict: team.VerdictRedrive})
			p.holds("q", "a:pending:0 b:pending:0 c:claimed:1")
			p.equal("Reason", p.list("q", team.ListOptions{})[0].Reason, "")
			p.claimed(p.claim("q", team.ClaimOptions{Max: 9, MaxAttempts: 1}), "a:1 b:1")
		}),
	},
	{
		name: "settle/redrive only dead",
		says: "Redrive of an item that is not dead is ErrConflict and changes nothing",
		check: try(func(p *probe) {
			seqs := p.add("q", "a b c d")
			c := p.take("q", 2, "a:1 b:1")
			p.settle("q", by(c[0], team.VerdictAck), team.Settlement{Seq: seqs[2], Verdict: team.VerdictCancel})
			for i, seq := range seqs {
				st := team.Settlement{Seq: seq, Verdict: team.VerdictRedrive}
				err := p.Settle(p.ctx, "q", st)
				if i == 0 || i == 2 {
					p.refusedOrGone("redrive of a settled item", err, st)
				} else {
					p.refused("redrive of an item that is not settled", err, st, team.ErrConflict)
				}
			}
			p.holds("q", "b:claimed:1 d:pending:0")
		}),
	},
	{
		name: "settle/each alone",
		says: "Settlements that can take effect do, and the error joins one *SettleError for each that could not",
		check: try(func(p *probe) {
			seqs := p.add("q", "a b c d e")
			c := p.take("q", 3, "a:1 b:1 c:1")
			err := p.Settle(p.ctx, "q",
				team.Settlement{Seq: seqs[0], Token: "stale", Verdict: team.VerdictBury},
				by(c[1], team.VerdictAck),
				team.Settlement{Seq: seqs[2], Verdict: team.VerdictCancel},
				team.Settlement{Seq: seqs[3], Verdict: team.VerdictCancel},
				team.Settlement{Seq: seqs[4] + 1000, Verdict: team.VerdictCancel},
				by(c[0], team.VerdictRelease))
			var got string
			for _, e := range settleErrors(err) {
				got += fmt.Sprintf("%s of item %d; ", e.Verdict, e.Seq-seqs[0])
			}
			want := fmt.Sprintf("bury of item 0; cancel of item %d; cancel of item %d; ", seqs[2]-seqs[0], seqs[4]-seqs[0]+1000)
			p.equal("*SettleErrors", got, want)
			p.is("Settle", err, team.ErrConflict)
			p.is("Settle", err, team.ErrNotFound)
			p.settled("q", seqs[1], team.ItemAcked)
			p.settled("q", seqs[3], team.ItemCancelled)
			p.holds("q", "a:pending:1 c:claimed:1 e:pending:0")
			p.ok("Settle of nothing", p.Settle(p.ctx, "q"))
		}),
	},
	{
		name: "settle/redrive too late",
		says: "A dead item that is redriven when its Expires has passed is expired, and not handed out",
		check: try(func(p *probe) {
			soon := time.Now().Add(lease + lease)
			seq := p.append("q", team.Item{ID: "a", Expires: soon})[0].Seq
			c := p.claim("q", team.ClaimOptions{Max: 1})
			if len(c) == 0 {
				return // too slow a machine to see it
			}
			p.settle("q", by(c[0], team.VerdictBury))
			p.pass(soon)
			p.dead("q", seq)
			p.settle("q", team.Settlement{Seq: seq, Verdict: team.VerdictRedrive})
			p.settled("q", seq, team.ItemExpired)
			p.take("q", 1, "")
		}),
	},
	{
		name: "settle/not found",
		says: "A Seq that the queue does not hold is ErrNotFound, whatever the verdict",
		check: try(func(p *probe) {
			p.add("q", "a b")
			c := p.take("q", 1, "a:1")[0]
			for _, v := range append([]team.Verdict{team.VerdictCancel, team.VerdictAmend, team.VerdictRedrive}, held...) {
				for what, seq := range map[string]team.Seq{"no seq": 0, "a seq that never was": c.Seq + 1000} {
					st := team.Settlement{Seq: seq, Token: c.Token, Verdict: v, Delay: hour}
					p.refused(fmt.Sprintf("%s of %s", v, what), p.Settle(p.ctx, "q", st), st, team.ErrNotFound)
					p.refused(fmt.Sprintf("%s of %s in an unknown queue", v, what), p.Settle(p.ctx, "r", st), st, team.ErrNotFound)
				}
			}
			p.holds("q", "a:claimed:1 b:pending:0")
		}),
	},
	{
		name: "settle/other queue",
		says: "A settlement reaches only the queue it names",
		check: try(func(p *probe) {
			p.add("q", "a")
			c := p.take("q", 1, "a:1")[0]
			p.add("r", "b")
			st := by(c, team.VerdictAck)
			p.refusedOrGone("ack in another queue", p.Settle(p.ctx, "r", st), st)
			p.holds("q", "a:claimed:1")
			p.holds("r", "b:pending:0")
		}),
	},
	{
		name: "settle/bad arguments",
		says: "A queue without a name, a verdict that there is not and a negative Delay are a *InvalidError, and nothing changes",
		check: try(func(p *probe) {
			p.add("q", "a")
			c := p.take("q", 1, "a:1")[0]
			p.invalid("Settle in the queue without a name", p.Settle(p.ctx, "", by(c, team.VerdictAck)))
			for _, v := range []team.Verdict{"", "ACK", "delete"} {
				st := by(c, v)
				err := p.Settle(p.ctx, "q", st)
				p.refused(fmt.Sprintf("verdict %q", v), err, st, team.ErrInvalid)
			}
			for _, v := range []team.Verdict{team.VerdictRelease, team.VerdictExtend} {
				st := by(c, v)
				st.Delay = -hour
				p.refused(fmt.Sprintf("%s with a negative delay", v), p.Settle(p.ctx, "q", st), st, team.ErrInvalid)
			}
			p.holds("q", "a:claimed:1")
		}),
	},
}

// refusedOrGone is refused with ErrConflict, or with ErrNotFound where the item
// is settled or of another queue, and so need not be there.
func (p *probe) refusedOrGone(what string, err error, st team.Settlement) {
	target := team.ErrConflict
	if errors.Is(err, team.ErrNotFound) {
		target = team.ErrNotFound
	}
	p.refused(what, err, st, target)
}

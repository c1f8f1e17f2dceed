package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/teamchan/team"
)

var itemsLaws = []law{
	{
		name: "items/changed",
		says: "Items tells since when an item is in its state, to the millisecond",
		check: try(func(p *probe) {
			since := func(what string, from time.Time, settled bool) {
				for _, it := range p.list("q", team.ListOptions{Settled: settled}) {
					if it.Changed.Before(from.Add(-3*time.Millisecond)) || it.Changed.After(time.Now().Add(3*time.Millisecond)) {
						p.fail("Changed after %s = %v, want between %v and %v", what, it.Changed, from, time.Now())
					}
				}
			}
			start := time.Now()
			p.add("q", "a")
			since("append", start, false)
			p.pass(time.Now().Add(lease))
			start = time.Now()
			c := p.take("q", 1, "a:1")
			since("claim", start, false)
			p.pass(time.Now().Add(lease))
			st := by(c[0], team.VerdictExtend)
			st.Delay = hour
			before := p.list("q", team.ListOptions{})[0].Changed
			p.settle("q", st)
			p.equal("Changed after extend", p.list("q", team.ListOptions{})[0].Changed.Equal(before), true)
			start = time.Now()
			st.Verdict, st.Delay = team.VerdictRelease, lease
			p.settle("q", st)
			since("release", start, false)
			before = p.list("q", team.ListOptions{})[0].Changed
			p.pass(time.Now().Add(2 * lease))
			p.equal("Changed after the delay", p.list("q", team.ListOptions{})[0].Changed.Equal(before), true)
			c = p.take("q", 1, "a:2")
			start = time.Now()
			p.settle("q", by(c[0], team.VerdictBury))
			since("bury", start, true)
		}),
	},
	{
		name: "items/order",
		says: "Items yields what the queue holds, in order, each item once, however many there are",
		check: try(func(p *probe) {
			const n = 300
			var ids, want []string
			for i := range n {
				ids = append(ids, fmt.Sprint("i", n-i))
				want = append(want, fmt.Sprintf("i%d:pending:0", n-i))
			}
			p.add("q", strings.Join(ids, " "))
			p.holds("q", strings.Join(want, " "))
			p.holds("unknown", "")
		}),
	},
	{
		name: "items/after",
		says: "Items yields only the items behind After",
		check: try(func(p *probe) {
			seqs := p.add("q", "a b c d")
			p.settle("q", team.Settlement{Seq: seqs[1], Verdict: team.VerdictCancel})
			for i, want := range []string{"c d", "c d", "d", ""} {
				got := ""
				for _, it := range p.list("q", team.ListOptions{After: seqs[i]}) {
					got += " " + it.ID
				}
				p.equal(fmt.Sprintf("items behind item %d", i), strings.TrimSpace(got), want)
			}
			p.equal("items behind all", len(p.list("q", team.ListOptions{After: seqs[3] + 1000})), 0)
			for _, it := range p.list("q", team.ListOptions{After: seqs[1], Settled: true}) {
				if it.Seq <= seqs[1] {
					p.fail("Items with Settled yields seq %d, want only those behind %d", it.Seq, seqs[1])
				}
			}
		}),
	},
	{
		name: "items/settled",
		says: "Items yields settled items only with Settled, in their old place, and the others then too",
		check: try(func(p *probe) {
			p.add("q", "a b c d")
			c := p.take("q", 3, "a:1 b:1 c:1")
			p.settle("q", by(c[0], team.VerdictBury), by(c[2], team.VerdictAck))
			p.holds("q", "b:claimed:1 d:pending:0")
			var got []string
			for _, it := range p.list("q", team.ListOptions{Settled: true}) {
				if it.State != team.ItemAcked { // which need not be kept
					got = append(got, fmt.Sprintf("%s:%s", it.ID, it.State))
				}
			}
			p.equal("items with Settled", strings.Join(got, " "), "a:dead b:claimed d:pending")
		}),
	},
	{
		name: "items/changes nothing",
		says: "Items changes neither an attempt nor a lease",
		check: try(func(p *probe) {
			p.add("q", "a b")
			c := p.take("q", 1, "a:1")[0]
			for range 3 {
				p.holds("q", "a:claimed:1 b:pending:0")
				p.list("q", team.ListOptions{Settled: true})
			}
			p.take("q", 9, "b:1")
			p.settle("q", by(c, team.VerdictAck))
		}),
	},
	{
		name: "items/break",
		says: "The loop over Items may end early, and a second loop over the same iterator begins anew",
		check: try(func(p *probe) {
			p.add("q", "a b c")
			seq := p.Items(p.ctx, "q", team.ListOptions{})
			first := ""
			for range 2 {
				for it, err := range seq {
					p.ok("Items", err)
					first += it.ID
					break
				}
			}
			p.equal("first items of two loops", first, "aa")
			p.take("q", 9, "a:1 b:1 c:1")
		}),
	},
	{
		name: "items/calls in the loop",
		says: "The loop over Items may call the store; an item that is there all the while is yielded exactly once",
		check: try(func(p *probe) {
			const n = 150
			var ids []string
			for i := range n {
				ids = append(ids, fmt.Sprint("i", i))
			}
			p.add("q", strings.Join(ids, " "))
			seen := make(map[string]int)
			for it, err := range p.Items(p.ctx, "q", team.ListOptions{}) {
				p.ok("Items", err)
				seen[it.ID]++
				if len(seen)%50 == 1 { // the item itself, and a new one behind all
					p.settle("q", team.Settlement{Seq: it.Seq, Verdict: team.VerdictCancel})
					p.add("q", "new"+it.ID)
				}
				if len(seen) > 2*n {
					p.fail("Items does not come to an end")
				}
			}
			for _, id := range ids {
				p.equal("times that "+id+" was yielded", seen[id], 1)
			}
		}),
	},
	{
		name: "items/belongs to the caller",
		says: "What Items yields belongs to the caller, who may change it",
		check: try(func(p *probe) {
			p.add("q", "a")
			copy(p.list("q", team.ListOptions{})[0].Data, "XXXX")
			p.equal("data listed", string(p.list("q", team.ListOptions{})[0].Data), "data of a")
			p.equal("data claimed", string(p.take("q", 1, "a:1")[0].Data), "data of a")
		}),
	},
	{
		name: "items/bad arguments",
		says: "Items of a queue without a name yields one *InvalidError and stops",
		check: try(func(p *probe) {
			n := 0
			for _, err := range p.Items(p.ctx, "", team.ListOptions{}) {
				p.invalid("Items of the queue without a name", err)
				n++
			}
			p.equal("errors yielded", n, 1)
		}),
	},
}

package storetest

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/teamchan/team"
)

var appendLaws = []law{
	{
		name: "append/order",
		says: "Append adds items to the end of the queue, in their order",
		check: try(func(p *probe) {
			p.add("q", "c a")
			p.add("q", "b")
			p.add("q", "e d")
			p.holds("q", "c:pending:0 a:pending:0 b:pending:0 e:pending:0 d:pending:0")
			p.take("q", 9, "c:1 a:1 b:1 e:1 d:1")
		}),
	},
	{
		name: "append/receipts",
		says: "Append returns one receipt for each item, in that order, with the number that it is listed under",
		check: try(func(p *probe) {
			receipts := p.append("q", items("b a c")...)
			for i, it := range p.list("q", team.ListOptions{}) {
				p.equal(fmt.Sprintf("receipt %d", i), receipts[i], team.Receipt{ID: it.ID, Seq: it.Seq})
			}
			p.equal("receipts of no items", len(p.append("q")), 0)
		}),
	},
	{
		name: "append/seq",
		says: "A Seq starts above zero and only grows, also when everything before it is settled",
		check: try(func(p *probe) {
			var last team.Seq
			for i := range 4 {
				for _, seq := range p.add("q", fmt.Sprintf("a%d b%d", i, i)) {
					if seq <= last {
						p.fail("seq = %d after %d, want it greater", seq, last)
					}
					last = seq
				}
				for _, c := range p.claim("q", team.ClaimOptions{Max: 2}) {
					p.settle("q", by(c, team.VerdictAck))
				}
			}
		}),
	},
	{
		name: "append/item",
		says: "An item comes back as it was appended, with any bytes in Data",
		check: try(func(p *probe) {
			all := make([]byte, 70_000)
			for i := range all {
				all[i] = byte(i)
			}
			list := []team.Item{
				{ID: "a", Key: "k%_'\x00é", Digest: "d", Cost: 7, Data: all,
					Expires: time.Now().Add(hour).Truncate(time.Millisecond)},
				{ID: "b\n\"", Data: []byte{}},
				{ID: "B"},
			}
			p.append("q", list...)
			same := func(from string, got, want team.Item) {
				if !got.Expires.Equal(want.Expires) || got.Expires.IsZero() != want.Expires.IsZero() {
					p.fail("Expires from %s = %v, want %v", from, got.Expires, want.Expires)
				}
				if !bytes.Equal(got.Data, want.Data) {
					p.fail("Data from %s has %d bytes that differ from the %d appended", from, len(got.Data), len(want.Data))
				}
				got.Data, want.Data, got.Expires, want.Expires = nil, nil, time.Time{}, time.Time{}
				p.equal("item from "+from, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
			}
			listed := p.list("q", team.ListOptions{})
			claimed := p.claim("q", team.ClaimOptions{Max: 3})
			p.equal("items listed and claimed", fmt.Sprint(len(listed), len(claimed)), "3 3")
			for i, want := range list {
				same("Items", listed[i].Item, want)
				same("Claim", claimed[i].Item, want)
			}
		}),
	},
	{
		name: "append/all or none",
		says: "If one item of a call is refused, none of the call is added",
		check: try(func(p *probe) {
			p.add("q", "a")
			_, err := p.Append(p.ctx, "q", items("b a"), 0)
			p.is("Append of a new id and one that is there", err, team.ErrConflict)
			p.holds("q", "a:pending:0")
			_, err = p.Append(p.ctx, "q", append(items("b"), team.Item{}), 0)
			p.invalid("Append of an item and one without id", err)
			p.holds("q", "a:pending:0")
			p.add("q", "b") // and nothing of it is in the way
		}),
	},
	{
		name: "append/same id",
		says: "An ID is unique in its queue: to append it again without a key is ErrConflict",
		check: try(func(p *probe) {
			p.add("q", "a")
			_, err := p.Append(p.ctx, "q", items("a"), 0)
			p.is("Append of an id that is there", err, team.ErrConflict)
			_, err = p.Append(p.ctx, "q", items("b b"), 0)
			p.is("Append of an id twice in one call", err, team.ErrConflict)
			_, err = p.Append(p.ctx, "q", []team.Item{{ID: "a", Key: "k"}}, 0)
			p.is("Append of an id that is there, under a new key", err, team.ErrConflict)
			p.holds("q", "a:pending:0")
			p.append("q", team.Item{ID: "b", Key: "k"}) // the key was not used up
		}),
	},
	{
		name: "append/replay",
		says: "An item whose Key was appended to this queue before is not added again, and its receipt is that of the first time, marked Replayed",
		check: try(func(p *probe) {
			first := p.append("q", team.Item{ID: "a", Key: "k", Digest: "d"}, team.Item{ID: "b"})[0]
			want := team.Receipt{ID: "a", Seq: first.Seq, Replayed: true}
			again := team.Item{ID: "other", Key: "k", Digest: "d"}
			p.equal("receipt of a replay", p.append("q", again)[0], want)
			p.equal("receipt of the same item again", p.append("q", team.Item{ID: "a", Key: "k", Digest: "d"})[0], want)
			p.take("q", 1, "a:1")
			p.equal("receipt of a replay of a claimed item", p.append("q", again)[0], want)
			mixed := p.append("q", team.Item{ID: "c"}, again, team.Item{ID: "d"})
			p.equal("receipt of a replay among new items", mixed[1], want)
			p.holds("q", "a:claimed:1 b:pending:0 c:pending:0 d:pending:0")
		}),
	},
	{
		name: "append/replay in one call",
		says: "Two items of one call may share a key: the second is a replay of the first",
		check: try(func(p *probe) {
			r := p.append("q", team.Item{ID: "a", Key: "k"}, team.Item{ID: "b", Key: "k"}, team.Item{ID: "c"})
			p.equal("first receipt", r[0], team.Receipt{ID: "a", Seq: r[0].Seq})
			p.equal("second receipt", r[1], team.Receipt{ID: "a", Seq: r[0].Seq, Replayed: true})
			p.holds("q", "a:pending:0 c:pending:0")
		}),
	},
	{
		name: "append/replay of settled",
		says: "A key is recognised for as long as the store keeps the first item, also when that is settled",
		check: try(func(p *probe) {
			first := p.append("q", team.Item{ID: "a", Key: "k"})[0]
			p.settle("q", by(p.take("q", 1, "a:1")[0], team.VerdictAck))
			if p.settled("q", first.Seq, team.ItemAcked) == nil {
				return // not kept
			}
			r := p.append("q", team.Item{ID: "b", Key: "k"})[0]
			p.equal("receipt", r, team.Receipt{ID: "a", Seq: first.Seq, Replayed: true})
			p.holds("q", "")
		}),
	},
	{
		name: "append/other digest",
		says: "If the digests under one key differ, the whole call is ErrConflict",
		check: try(func(p *probe) {
			p.append("q", team.Item{ID: "a", Key: "k", Digest: "1"})
			_, err := p.Append(p.ctx, "q", []team.Item{{ID: "b"}, {ID: "c", Key: "k", Digest: "2"}}, 0)
			p.is("Append of another payload under a used key", err, team.ErrConflict)
			_, err = p.Append(p.ctx, "q", []team.Item{{ID: "b"}, {ID: "d", Key: "n", Digest: "1"}, {ID: "e", Key: "n", Digest: "2"}}, 0)
			p.is("Append of two payloads under one key", err, team.ErrConflict)
			p.holds("q", "a:pending:0")
			p.equal("Replayed of the refused key", p.append("q", team.Item{ID: "d", Key: "n", Digest: "2"})[0].Replayed, false)
		}),
	},
	{
		name: "append/keys are of a queue",
		says: "A key counts within its queue, and the empty key is none",
		check: try(func(p *probe) {
			p.append("q", team.Item{ID: "a", Key: "k", Digest: "1"}, team.Item{ID: "b", Digest: "1"})
			r := p.append("r", team.Item{ID: "c", Key: "k", Digest: "2"})
			p.equal("Replayed in another queue", r[0].Replayed, false)
			r = p.append("q", team.Item{ID: "d", Digest: "2"}, team.Item{ID: "e", Key: "K", Digest: "2"})
			p.equal("Replayed without a key", r[0].Replayed, false)
			p.equal("Replayed under a key that differs in case", r[1].Replayed, false)
		}),
	},
	{
		name: "append/max",
		says: "If the queue would hold more than max items that are not settled, Append is a *LimitError with both numbers and adds nothing",
		check: try(func(p *probe) {
			p.add("q", "a b")
			_, err := p.Append(p.ctx, "q", items("c d e"), 4)
			p.limit("Append of 3 to 2 with max 4", err, 5, 4)
			p.is("Append of 3 to 2 with max 4", err, team.ErrLimit)
			p.holds("q", "a:pending:0 b:pending:0")
			_, err = p.Append(p.ctx, "q", items("c d"), 4)
			p.ok("Append of 2 to 2 with max 4", err)
			_, err = p.Append(p.ctx, "q", items("e"), 2)
			p.limit("Append of 1 to 4 with max 2", err, 5, 2)
			_, err = p.Append(p.ctx, "q", items("e"), 0)
			p.ok("Append without a max", err)
		}),
	},
	{
		name: "append/max and states",
		says: "Items that are claimed count against max; settled and expired ones do not",
		check: try(func(p *probe) {
			seqs := p.add("q", "a b c")
			old := p.append("q", team.Item{ID: "old", Expires: time.Now().Add(-time.Second)})
			p.settle("q", by(p.take("q", 1, "a:1")[0], team.VerdictAck))
			p.settle("q", team.Settlement{Seq: seqs[1], Verdict: team.VerdictCancel})
			p.take("q", 1, "c:1")
			p.settled("q", old[0].Seq, team.ItemExpired)
			_, err := p.Append(p.ctx, "q", items("d e"), 2)
			p.limit("Append of 2 with one claimed and max 2", err, 3, 2)
			_, err = p.Append(p.ctx, "q", items("d"), 2)
			p.ok("Append of 1 with one claimed and max 2", err)

			soon := time.Now().Add(lease).Truncate(time.Millisecond)
			p.append("other", team.Item{ID: "brief", Expires: soon})
			p.pass(soon)
			_, err = p.Append(p.ctx, "other", items("e"), 1)
			p.ok("Append of 1 where one has expired and max 1", err)
		}),
	},
	{
		name: "append/max and replays",
		says: "Replays do not count against max",
		check: try(func(p *probe) {
			p.append("q", team.Item{ID: "a", Key: "k"}, team.Item{ID: "b"})
			_, err := p.Append(p.ctx, "q", []team.Item{{ID: "x", Key: "k"}}, 2)
			p.ok("Append of a replay to a full queue", err)
			_, err = p.Append(p.ctx, "q", []team.Item{{ID: "x", Key: "k"}, {ID: "c"}, {ID: "y", Key: "k"}}, 3)
			p.ok("Append of one item and two replays where one fits", err)
			_, err = p.Append(p.ctx, "q", []team.Item{{ID: "x", Key: "k"}, {ID: "d"}}, 3)
			p.limit("Append of one item and a replay where none fits", err, 4, 3)
		}),
	},
	{
		name: "append/bad arguments",
		says: "A queue without a name, an item without an ID and a negative Cost are a *InvalidError, and nothing is added",
		check: try(func(p *probe) {
			_, err := p.Append(p.ctx, "", items("a"), 0)
			p.invalid("Append to the queue without a name", err)
			_, err = p.Append(p.ctx, "q", []team.Item{{Key: "k"}}, 0)
			p.invalid("Append of an item without id", err)
			_, err = p.Append(p.ctx, "q", []team.Item{{ID: "a"}, {ID: "b", Cost: -1}}, 0)
			p.invalid("Append of an item with a negative cost", err)
			p.holds("q", "")
		}),
	},
	{
		name: "append/queues",
		says: "Queues do not mix, whatever their names are",
		check: try(func(p *probe) {
			names := []string{"q", "Q", "q.*", "q.>", "*", ">", "q%", "q_", "q/r", "q r", "q'\"", "é", "e\u0301", "q\x00", "../q"}
			for i, name := range names {
				p.add(name, fmt.Sprintf("a%d same", i))
			}
			for i, name := range names {
				p.take(name, 9, fmt.Sprintf("a%d:1 same:1", i))
			}
		}),
	},
	{
		name: "append/arguments",
		says: "Append keeps no reference to the items after it returned",
		check: try(func(p *probe) {
			list := items("a b")
			p.append("q", list...)
			copy(list[0].Data, "XXXX")
			list[1] = team.Item{ID: "X", Data: []byte("X")}
			p.holds("q", "a:pending:0 b:pending:0")
			p.equal("data", string(p.take("q", 1, "a:1")[0].Data), "data of a")
		}),
	},
	{
		name: "append/concurrent",
		says: "Goroutines that append at once lose nothing, keep each call together in order, and get numbers of their own",
		check: try(func(p *probe) {
			const writers, calls = 8, 6
			receipts := make([][]team.Receipt, writers)
			errs := make([]error, writers)
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for c := range calls {
						r, err := p.Append(p.ctx, "q", items(fmt.Sprintf("w%dc%da w%dc%db", w, c, w, c)), 0)
						if err != nil {
							errs[w] = err
							return
						}
						receipts[w] = append(receipts[w], r...)
					}
				})
			}
			wg.Wait()
			at := make(map[team.Seq]int)
			list := p.list("q", team.ListOptions{})
			for i, it := range list {
				if i > 0 && it.Seq <= list[i-1].Seq {
					p.fail("seq = %d behind %d, want it greater", it.Seq, list[i-1].Seq)
				}
				at[it.Seq] = i
			}
			p.equal("items listed", len(list), writers*calls*2)
			for w := range writers {
				p.ok("Append", errs[w])
				for i, r := range receipts[w] {
					p.equal("id under the seq of a receipt", list[at[r.Seq]].ID, r.ID)
					if i > 0 && r.Seq <= receipts[w][i-1].Seq {
						p.fail("seq of %s = %d, want it above that of the item appended before, %d", r.ID, r.Seq, receipts[w][i-1].Seq)
					}
					if i%2 == 1 && at[r.Seq] != at[receipts[w][i-1].Seq]+1 {
						p.fail("something lies between two items of one call")
					}
				}
			}
		}),
	},
	{
		name: "append/one of many",
		says: "Of many that append under one key at once, one adds the item and the others get its receipt",
		check: try(func(p *probe) {
			const n = 8
			receipts := make([][]team.Receipt, n)
			errs := make([]error, n)
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					receipts[i], errs[i] = p.Append(p.ctx, "q", []team.Item{{ID: fmt.Sprint("id", i), Key: "k"}}, 1)
				})
			}
			wg.Wait()
			list := p.list("q", team.ListOptions{})
			p.equal("items listed", len(list), 1)
			first := 0
			for i, r := range receipts {
				p.ok("Append", errs[i])
				p.equal("receipt", fmt.Sprint(r[0].ID, r[0].Seq), fmt.Sprint(list[0].ID, list[0].Seq))
				if !r[0].Replayed {
					first++
				}
			}
			p.equal("receipts not marked Replayed", first, 1)
		}),
	},
}

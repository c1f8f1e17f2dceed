package storetest

import (
	"context"
	"fmt"

	"github.com/teamchan/team"
)

// committing makes a law of a store that is a Committer; another is not bound
// by it.
func committing(steps func(p *probe, c team.Committer)) func(context.Context, team.Store) error {
	return func(ctx context.Context, s team.Store) error {
		c, ok := s.(team.Committer)
		if !ok {
			return skipped("the store is no team.Committer: it cannot make several changes in one step")
		}
		return try(func(p *probe) { steps(p, c) })(ctx, s)
	}
}

var commitLaws = []law{
	{
		name: "commit/all",
		says: "Commit makes all the changes, and returns receipts and versions in the order of the arguments",
		check: committing(func(p *probe, c team.Committer) {
			v1 := p.put("gone", "1", "")
			v2 := p.put("k", "1", "")
			p.append("r", team.Item{ID: "r0", Key: "key"})
			done, err := c.Commit(p.ctx,
				[]team.Batch{
					{Queue: "q", Items: items("a b")},
					{Queue: "r", Items: []team.Item{{ID: "x", Key: "key"}, {ID: "c"}}, Max: 2},
					{Queue: "q", Items: items("d")},
				},
				[]team.Change{
					{Key: "new", Value: []byte("2"), Prev: ""},
					{Key: "gone", Prev: v1, Delete: true},
					{Key: "k", Value: []byte("2"), Prev: v2},
				})
			p.ok("Commit", err)
			p.holds("q", "a:pending:0 b:pending:0 d:pending:0")
			p.holds("r", "r0:pending:0 c:pending:0")
			p.equal("number of receipt lists and versions", fmt.Sprint(len(done.Receipts), len(done.Versions)), "3 3")
			q, r := p.list("q", team.ListOptions{}), p.list("r", team.ListOptions{})
			p.equal("receipts", fmt.Sprint(done.Receipts), fmt.Sprint([][]team.Receipt{
				{{ID: "a", Seq: q[0].Seq}, {ID: "b", Seq: q[1].Seq}},
				{{ID: "r0", Seq: r[0].Seq, Replayed: true}, {ID: "c", Seq: r[1].Seq}},
				{{ID: "d", Seq: q[2].Seq}},
			}))
			p.record("new", "2", done.Versions[0])
			p.none("gone")
			p.equal("version of a deletion", done.Versions[1], team.Version(""))
			p.record("k", "2", done.Versions[2])
			_, err = c.Commit(p.ctx, nil, nil)
			p.ok("Commit of nothing", err)
		}),
	},
	{
		name: "commit/append fails",
		says: "If an append of a Commit fails, its error is that of the whole and nothing is changed",
		check: committing(func(p *probe, c team.Committer) {
			p.append("r", team.Item{ID: "a", Key: "k", Digest: "1"})
			for what, bad := range map[string]team.Batch{
				"an id that is there":        {Queue: "r", Items: items("b a")},
				"another digest under a key": {Queue: "r", Items: []team.Item{{ID: "b", Key: "k", Digest: "2"}}},
			} {
				err := p.commitFails(c, bad, team.Change{Key: "new"})
				p.is("Commit with "+what, err, team.ErrConflict)
			}
			err := p.commitFails(c, team.Batch{Queue: "r", Items: items("b c"), Max: 2}, team.Change{Key: "new"})
			p.limit("Commit with too many items", err, 3, 2)
			err = p.commitFails(c, team.Batch{Queue: "q", Items: items("z"), Max: 2}, team.Change{Key: "new"})
			p.limit("Commit with too many items in two batches", err, 3, 2)
			err = p.commitFails(c, team.Batch{Queue: "", Items: items("b")}, team.Change{Key: "new"})
			p.invalid("Commit with a queue without a name", err)
			err = p.commitFails(c, team.Batch{Queue: "r", Items: []team.Item{{}}}, team.Change{Key: "new"})
			p.invalid("Commit with an item without an ID", err)
			p.holds("r", "a:pending:0")
			p.add("q", "x y") // the ids are free
		}),
	},
	{
		name: "commit/change fails",
		says: "If a change of a Commit fails, its error is that of the whole and nothing is changed",
		check: committing(func(p *probe, c team.Committer) {
			v1 := p.put("k", "1", "")
			v2 := p.put("k", "2", v1)
			good := team.Batch{Queue: "r", Items: items("b")}
			for what, bad := range map[string]team.Change{
				"a stale version":               {Key: "k", Prev: v1},
				"a record that is there":        {Key: "k", Prev: ""},
				"a stale version to delete":     {Key: "k", Prev: v1, Delete: true},
				"a version without its record":  {Key: "none", Prev: v1},
				"a key that it creates already": {Key: "x", Prev: ""},
			} {
				p.is("Commit with "+what, p.commitFails(c, good, bad), team.ErrConflict)
			}
			err := p.commitFails(c, good, team.Change{Key: "none", Delete: true})
			p.is("Commit that deletes what is not there", err, team.ErrNotFound)
			p.invalid("Commit with a bad key", p.commitFails(c, good, team.Change{Key: "\xff"}))
			p.record("k", "2", v2)
			p.holds("r", "")
		}),
	},
	{
		name: "commit/replay",
		says: "A Commit that fails uses up no key: the items are new the next time",
		check: committing(func(p *probe, c team.Committer) {
			batch := []team.Batch{{Queue: "q", Items: []team.Item{{ID: "a", Key: "k", Digest: "1"}}}}
			_, err := c.Commit(p.ctx, batch, []team.Change{{Key: "none", Delete: true}})
			p.is("Commit", err, team.ErrNotFound)
			r := p.append("q", team.Item{ID: "a", Key: "k", Digest: "2"})
			p.equal("Replayed", r[0].Replayed, false)
			p.take("q", 9, "a:1")
		}),
	},
	{
		name: "commit/wakes",
		says: "Commit wakes who waits in Claim, in every queue it appends to, and what it put is there by then",
		check: committing(func(p *probe, c team.Committer) {
			wq, wr := p.waits("q", team.ClaimOptions{}), p.waits("r", team.ClaimOptions{})
			wq.still()
			_, err := c.Commit(p.ctx,
				[]team.Batch{{Queue: "q", Items: items("a")}, {Queue: "r", Items: items("b")}},
				[]team.Change{{Key: "none", Delete: true}})
			p.is("Commit", err, team.ErrNotFound)
			wq.still()
			wr.still()
			_, err = c.Commit(p.ctx,
				[]team.Batch{{Queue: "q", Items: items("a")}, {Queue: "r", Items: items("b")}},
				[]team.Change{{Key: "k", Value: []byte("1")}})
			p.ok("Commit", err)
			wq.gets("a:1")
			wr.gets("b:1")
		}),
	},
	{
		name: "commit/one step",
		says: "Nobody sees the half of a Commit: who claims its item finds its record",
		check: committing(func(p *probe, c team.Committer) {
			const n = 20
			errs := make(chan error, 1)
			p.wait.Go(func() {
				for i := range n {
					id := fmt.Sprint("i", i)
					_, err := c.Commit(p.ctx, []team.Batch{{Queue: "q", Items: items(id)}}, []team.Change{{Key: id}})
					if err != nil {
						errs <- err
						return
					}
				}
			})
			for got := 0; got < n; {
				claims, err := p.Claim(p.ctx, "q", team.ClaimOptions{Max: n, Lease: hour, Wait: true})
				if err != nil {
					select {
					case err = <-errs: // says more
					default:
					}
				}
				p.ok("a call", err)
				for _, c := range claims {
					_, err := p.Get(p.ctx, c.ID)
					p.ok("Get of the record that was committed with the item", err)
					got++
				}
			}
		}),
	},
	{
		name: "commit/arguments",
		says: "Commit keeps no reference to its arguments after it returned",
		check: committing(func(p *probe, c team.Committer) {
			list, value := items("a"), []byte("value")
			done, err := c.Commit(p.ctx, []team.Batch{{Queue: "q", Items: list}}, []team.Change{{Key: "k", Value: value}})
			p.ok("Commit", err)
			copy(list[0].Data, "XXXX")
			copy(value, "XXXX")
			p.equal("data", string(p.take("q", 1, "a:1")[0].Data), "data of a")
			p.record("k", "value", done.Versions[0])
		}),
	},
}

// commitFails commits a good append and a good change, then the two that are
// given, one of which must fail. It ends the law if anything of it is there
// afterwards, and returns the error.
func (p *probe) commitFails(c team.Committer, b team.Batch, ch team.Change) error {
	done, err := c.Commit(p.ctx,
		[]team.Batch{{Queue: "q", Items: items("x y")}, b},
		[]team.Change{{Key: "x"}, ch})
	if err == nil {
		p.fail("Commit of %+v and %+v = %+v, want an error", b, ch, done)
	}
	p.holds("q", "")
	p.none("x")
	p.none("new")
	return err
}

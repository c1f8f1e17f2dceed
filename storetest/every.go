package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/teamchan/team"
)

// everyLaws hold for each method alike.
var everyLaws = []law{
	{
		name: "every/ended context",
		says: "A call with a context that has ended returns an error that wraps ctx.Err() and changes nothing, and an iterator yields it once and stops",
		check: try(func(p *probe) {
			if p.hasQueue() {
				p.add("q", "a")
			}
			v := p.put("k", "1", "")
			ctx, cancel := context.WithCancel(p.ctx)
			cancel()
			for what, err := range calls(ctx, p) {
				p.is(what, err, context.Canceled)
			}
			p.record("k", "1", v)
			p.keys("", "", "k")
			if p.hasQueue() {
				p.holds("q", "a:pending:0")
				n := 0
				for range p.Items(ctx, "q", team.ListOptions{}) {
					n++
				}
				p.equal("what Items yields in all", n, 1)
			}
			n := 0
			for range p.Keys(ctx, "", "") {
				n++
			}
			p.equal("what Keys yields in all", n, 1)
		}),
	},
	{
		name: "every/bare errors",
		says: "Errors of a store are never *team.Error: the channel adds that once",
		check: try(func(p *probe) {
			p.put("k", "1", "")
			_, putErr := p.Put(p.ctx, "k", nil, "")
			_, getErr := p.Get(p.ctx, "none")
			list := []error{putErr, getErr, p.Delete(p.ctx, "none", "")}
			if p.hasQueue() {
				seq := p.add("q", "a")[0]
				_, appendErr := p.Append(p.ctx, "q", items("a"), 0)
				_, maxErr := p.Append(p.ctx, "q", items("b"), 1)
				_, claimErr := p.Claim(p.ctx, "q", team.ClaimOptions{})
				list = append(list, appendErr, maxErr, claimErr,
					p.Settle(p.ctx, "q", team.Settlement{Seq: seq, Verdict: team.VerdictRedrive}))
			}
			ctx, cancel := context.WithCancel(p.ctx)
			cancel()
			for _, err := range calls(ctx, p) {
				list = append(list, err)
			}
			for i, err := range list {
				if err == nil {
					p.fail("refused call %d = nil, want an error", i)
				}
				if e, ok := errors.AsType[*team.Error](err); ok {
					p.fail("refused call %d = %v, want no *team.Error in it", i, e)
				}
			}
		}),
	},
}

// calls makes every call once, where the queue has an item and k is a record, and returns the errors, by what was called.
func calls(ctx context.Context, p *probe) map[string]error {
	errs := make(map[string]error)
	if p.hasQueue() {
		_, errs["Append"] = p.Append(ctx, "q", items("new"), 0)
		for _, wait := range []bool{false, true} {
			_, errs[fmt.Sprint("Claim with Wait ", wait)] = p.Claim(ctx, "q", team.ClaimOptions{Max: 1, Lease: hour, Wait: wait})
		}
		first := p.list("q", team.ListOptions{})[0]
		errs["Settle"] = p.Settle(ctx, "q", team.Settlement{Seq: first.Seq, Verdict: team.VerdictCancel})
		for _, err := range p.Items(ctx, "q", team.ListOptions{}) {
			errs["Items"] = err
		}
	}
	_, errs["Get"] = p.Get(ctx, "k")
	_, errs["Put"] = p.Put(ctx, "new", nil, "")
	errs["Delete"] = p.Delete(ctx, "k", team.AnyVersion)
	for _, err := range p.Keys(ctx, "", "") {
		errs["Keys"] = err
	}
	if c, ok := power[team.Committer](p.Store); ok {
		_, errs["Commit"] = c.Commit(ctx, nil, []team.Change{{Key: "k", Prev: team.AnyVersion}})
	}
	if m, ok := power[team.Meter](p.Store); ok {
		_, _, errs["Usage"] = m.Usage(ctx, "")
	}
	return errs
}

// hasQueue reports whether the law is checked on a whole store.
func (p *probe) hasQueue() bool {
	_, unqueued := p.Store.(unqueued)
	return !unqueued
}

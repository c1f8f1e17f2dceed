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
		says: "A call with a context that has ended returns an error that wraps ctx.Err(), and an iterator yields it once and stops",
		check: try(func(p *probe) {
			p.add("q", "a")
			p.put("k", "1", "")
			ctx, cancel := context.WithCancel(p.ctx)
			cancel()
			for what, err := range calls(ctx, p.Store) {
				p.is(what, err, context.Canceled)
			}
			n := 0
			for range p.Items(ctx, "q", team.ListOptions{}) {
				n++
			}
			for range p.Keys(ctx, "", "") {
				n++
			}
			p.equal("what Items and Keys yield in all", n, 2)
		}),
	},
	{
		name: "every/bare errors",
		says: "Errors of a store are never *team.Error: the channel adds that once",
		check: try(func(p *probe) {
			seq := p.add("q", "a")[0]
			p.put("k", "1", "")
			_, appendErr := p.Append(p.ctx, "q", items("a"), 0)
			_, maxErr := p.Append(p.ctx, "q", items("b"), 1)
			_, claimErr := p.Claim(p.ctx, "q", team.ClaimOptions{})
			_, putErr := p.Put(p.ctx, "k", nil, "")
			_, getErr := p.Get(p.ctx, "none")
			list := []error{
				appendErr, maxErr, claimErr, putErr, getErr,
				p.Settle(p.ctx, "q", team.Settlement{Seq: seq, Verdict: team.VerdictRedrive}),
				p.Delete(p.ctx, "none", ""),
			}
			ctx, cancel := context.WithCancel(p.ctx)
			cancel()
			for _, err := range calls(ctx, p.Store) {
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

// calls makes every call once and returns the errors, by what was called.
func calls(ctx context.Context, s team.Store) map[string]error {
	errs := make(map[string]error)
	_, errs["Append"] = s.Append(ctx, "q", items("new"), 0)
	for _, wait := range []bool{false, true} {
		_, errs[fmt.Sprint("Claim with Wait ", wait)] = s.Claim(ctx, "q", team.ClaimOptions{Max: 1, Lease: hour, Wait: wait})
	}
	errs["Settle"] = s.Settle(ctx, "q", team.Settlement{Seq: 1, Verdict: team.VerdictCancel})
	for _, err := range s.Items(ctx, "q", team.ListOptions{}) {
		errs["Items"] = err
	}
	_, errs["Get"] = s.Get(ctx, "k")
	_, errs["Put"] = s.Put(ctx, "new", nil, "")
	errs["Delete"] = s.Delete(ctx, "k", team.AnyVersion)
	for _, err := range s.Keys(ctx, "", "") {
		errs["Keys"] = err
	}
	if c, ok := s.(team.Committer); ok {
		_, errs["Commit"] = c.Commit(ctx, nil, []team.Change{{Key: "k", Prev: team.AnyVersion}})
	}
	return errs
}

package storetest

import (
	"context"
	"fmt"
	"sync"

	"github.com/teamchan/team"
)

// metering makes a law of a store that is a Meter; another is not bound by it.
func metering(steps func(p *probe, m team.Meter)) func(context.Context, team.Store) error {
	return func(ctx context.Context, s team.Store) error {
		m, ok := power[team.Meter](s)
		if !ok {
			return skipped("the store is no team.Meter: what it keeps is counted by reading it")
		}
		return try(func(p *probe) { steps(p, m) })(ctx, s)
	}
}

var meterLaws = []law{
	{
		name: "meter/usage",
		says: "Usage returns how many records have a key that starts with prefix, and the bytes of those keys and values together",
		check: metering(func(p *probe, m team.Meter) {
			p.usage(m, "", 0, 0)
			p.put("a/1", "12345", "")
			p.put("a/22", "", "")
			p.put("b/1", "\x00\xff", "")
			p.put("é", "é", "") // two bytes each
			p.usage(m, "a/", 2, 12)
			p.usage(m, "a/2", 1, 4)
			p.usage(m, "b/1", 1, 5) // a key that is the prefix itself
			p.usage(m, "é", 1, 4)
			p.usage(m, "", 4, 21)
			p.usage(m, "c", 0, 0)
			p.usage(m, "a/11", 0, 0)
		}),
	},
	{
		name: "meter/prefix",
		says: "Usage takes a prefix byte for byte, whatever a store's patterns make of it",
		check: metering(func(p *probe, m team.Meter) {
			for _, key := range []string{"a", "a%b", "a%", "a*b", "a_b", "aXb", "A%b", "a\x00", "é", "éa", "e\u0301a", "b"} {
				p.put(key, "1", "")
			}
			p.usage(m, "a%", 2, 7)
			p.usage(m, "a_", 1, 4)
			p.usage(m, "a*", 1, 4)
			p.usage(m, "A", 1, 4)
			p.usage(m, "a\x00", 1, 3)
			p.usage(m, "é", 2, 7)
		}),
	},
	{
		name: "meter/changes",
		says: "Usage tells what is there now: after a longer or a shorter value, a deletion, and a record made anew",
		check: metering(func(p *probe, m team.Meter) {
			p.put("other", "123", "")
			v := p.put("k", "1", "")
			p.usage(m, "k", 1, 2)
			v = p.put("k", "12345678", v)
			p.usage(m, "k", 1, 9)
			v = p.put("k", "12", v)
			p.usage(m, "k", 1, 3)
			p.put("k", "123", team.AnyVersion)
			p.usage(m, "k", 1, 4)
			p.ok("Delete", p.Delete(p.ctx, "k", team.AnyVersion))
			p.usage(m, "k", 0, 0)
			p.usage(m, "", 1, 8)
			p.put("k", "1", "")
			p.usage(m, "k", 1, 2)
			_, err := p.Put(p.ctx, "k", []byte("123456"), v)
			p.is("Put with a stale version", err, team.ErrConflict)
			p.is("Delete with a stale version", p.Delete(p.ctx, "k", v), team.ErrConflict)
			p.usage(m, "k", 1, 2)
		}),
	},
	{
		name: "meter/commit",
		says: "Usage counts what a Commit changed, and nothing of a Commit that failed",
		check: metering(func(p *probe, m team.Meter) {
			c, ok := power[team.Committer](p.Store)
			if !ok {
				return
			}
			p.put("gone", "123", "")
			p.put("k", "1", "")
			_, err := c.Commit(p.ctx, nil, []team.Change{
				{Key: "gone", Prev: team.AnyVersion, Delete: true},
				{Key: "k", Prev: team.AnyVersion, Value: []byte("12")},
				{Key: "new", Value: []byte("12345")},
			})
			p.ok("Commit", err)
			p.usage(m, "", 2, 11)
			_, err = c.Commit(p.ctx, nil, []team.Change{
				{Key: "new", Prev: team.AnyVersion, Delete: true},
				{Key: "more", Value: []byte("1234")},
				{Key: "k", Prev: "", Value: []byte("12345")},
			})
			p.is("Commit with a stale version", err, team.ErrConflict)
			p.usage(m, "", 2, 11)
		}),
	},
	{
		name: "meter/at once",
		says: "Usage is exact after many have put and deleted at once",
		check: metering(func(p *probe, m team.Meter) {
			const n, each = 8, 6
			errs := make([]error, n)
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					for j := range each {
						key := fmt.Sprintf("k%d/%d", i, j)
						_, err := p.Put(p.ctx, key, []byte("1234"), "")
						if err == nil && j%2 == 1 {
							err = p.Delete(p.ctx, key, team.AnyVersion)
						}
						if err != nil {
							errs[i] = err
							return
						}
					}
				})
			}
			wg.Wait()
			for _, err := range errs {
				p.ok("a call", err)
			}
			p.usage(m, "k", n*each/2, n*each/2*8)
			p.usage(m, "k3/", each/2, each/2*8)
		}),
	},
}

// usage ends the law if Usage does not return these numbers.
func (p *probe) usage(m team.Meter, prefix string, keys int, bytes int64) {
	k, b, err := m.Usage(p.ctx, prefix)
	p.ok("Usage", err)
	if k != keys || b != bytes {
		p.fail("Usage(%q) = %d keys, %d bytes, want %d keys, %d bytes", prefix, k, b, keys, bytes)
	}
}

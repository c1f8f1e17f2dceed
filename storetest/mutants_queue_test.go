package storetest

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/teamchan/team"
)

// A mutant is one way in which a store can be broken.
type mutant struct {
	name   string // "a store that …"
	breaks []string
	model  bool // the seeds of Fuzz show it too
	bend   func(l *liar)
}

var mutants = slices.Concat(queueMutants, settleMutants, waitMutants, recordMutants, meterMutants, watchMutants)

var queueMutants = []mutant{
	{"reverses a batch", []string{"append/order"}, true, func(l *liar) {
		l.appendIn(func(q string, list []team.Item, max int) (string, []team.Item, int) {
			slices.Reverse(list)
			return q, list, max
		})
	}},
	{"returns receipts in another order", []string{"append/receipts"}, true, func(l *liar) {
		l.appendOut(func(r []team.Receipt) { slices.Reverse(r) })
	}},
	{"counts down", []string{"append/seq", "append/concurrent"}, true, func(l *liar) {
		l.appendOut(func(r []team.Receipt) {
			for i := range r {
				r[i].Seq = 1000 - r[i].Seq
			}
		})
	}},
	{"forgets Expires", []string{"append/item", "claim/expired", "claim/expired in hand", "settle/redrive too late"}, false, func(l *liar) {
		l.eachItem(func(_ int, it *team.Item) { it.Expires = time.Time{} })
	}},
	{"cuts Data at a zero byte", []string{"append/item"}, false, func(l *liar) {
		l.eachItem(func(_ int, it *team.Item) { it.Data, _, _ = bytes.Cut(it.Data, []byte{0}) })
	}},
	{"appends one item after the other", []string{"append/all or none", "append/same id", "append/other digest"}, true, func(l *liar) {
		l.append = func(ctx context.Context, q string, list []team.Item, max int) ([]team.Receipt, error) {
			var all []team.Receipt
			for _, it := range list {
				r, err := l.Store.Append(ctx, q, []team.Item{it}, max)
				if err != nil {
					return nil, err
				}
				all = append(all, r...)
			}
			return all, nil
		}
	}},
	{"takes an id twice", []string{"append/same id"}, true, func(l *liar) {
		l.append = func(ctx context.Context, q string, list []team.Item, max int) ([]team.Receipt, error) {
			r, err := l.Store.Append(ctx, q, list, max)
			for errors.Is(err, team.ErrConflict) {
				list = slices.Clone(list)
				for i := range list {
					list[i].ID += "'"
				}
				r, err = l.Store.Append(ctx, q, list, max)
			}
			return r, err
		}
	}},
	{"does not mark replays", []string{"append/replay", "append/replay of settled"}, true, func(l *liar) {
		l.appendOut(func(r []team.Receipt) {
			for i := range r {
				r[i].Replayed = false
			}
		})
	}},
	{"knows no keys", []string{"append/replay", "append/max and replays", "append/one of many"}, true, func(l *liar) {
		l.eachItem(func(_ int, it *team.Item) { it.Key = "" })
	}},
	{"looks for keys before the call only", []string{"append/replay in one call"}, true, func(l *liar) {
		l.eachItem(func(i int, it *team.Item) {
			if i > 0 {
				it.Key = ""
			}
		})
	}},
	{"does not compare digests", []string{"append/other digest"}, true, func(l *liar) {
		l.eachItem(func(_ int, it *team.Item) { it.Digest = "" })
	}},
	{"has keys without case", []string{"append/keys are of a queue"}, false, func(l *liar) {
		l.eachItem(func(_ int, it *team.Item) { it.Key = strings.ToLower(it.Key) })
	}},
	{"ignores max", []string{"append/max", "append/max and states", "append/max and replays"}, true, func(l *liar) {
		l.appendIn(func(q string, list []team.Item, _ int) (string, []team.Item, int) { return q, list, 0 })
	}},
	{"allows one more than max", []string{"append/max"}, true, func(l *liar) {
		l.appendIn(func(q string, list []team.Item, max int) (string, []team.Item, int) {
			if max > 0 {
				max++
			}
			return q, list, max
		})
	}},
	{"counts all items against max", []string{"append/max and states"}, true, func(l *liar) {
		l.append = func(ctx context.Context, q string, list []team.Item, max int) ([]team.Receipt, error) {
			n := len(list)
			for range l.Store.Items(ctx, q, team.ListOptions{Settled: true}) {
				n++
			}
			if max > 0 && n > max {
				return nil, &team.LimitError{What: "items", Got: int64(n), Max: int64(max)}
			}
			return l.Store.Append(ctx, q, list, max)
		}
	}},
	{"has a queue without a name", []string{"append/bad arguments", "claim/bad arguments", "settle/bad arguments", "items/bad arguments"}, false, func(l *liar) {
		named := func(q string) string { return q + "'" }
		l.appendIn(func(q string, list []team.Item, max int) (string, []team.Item, int) { return named(q), list, max })
		l.claim = func(ctx context.Context, q string, opts team.ClaimOptions) ([]team.Claim, error) {
			return l.Store.Claim(ctx, named(q), opts)
		}
		l.settle = func(ctx context.Context, q string, list ...team.Settlement) error {
			return l.Store.Settle(ctx, named(q), list...)
		}
		l.items = func(ctx context.Context, q string, opts team.ListOptions) iter.Seq2[team.StoredItem, error] {
			return l.Store.Items(ctx, named(q), opts)
		}
	}},
	{"takes what is negative for nothing", []string{"append/bad arguments", "claim/bad arguments", "settle/bad arguments"}, false, func(l *liar) {
		l.eachItem(func(_ int, it *team.Item) { it.Cost = max(it.Cost, 0) })
		l.claimIn(func(_ string, opts *team.ClaimOptions) { opts.Budget = max(opts.Budget, 0) })
		l.settleIn(func(st *team.Settlement) {
			if st.Delay < 0 {
				st.Delay = 1
			}
		})
	}},
	{"has queue names without case", []string{"append/queues", "wait/other queue"}, false, func(l *liar) {
		l.appendIn(func(q string, list []team.Item, max int) (string, []team.Item, int) {
			return strings.ToLower(q), list, max
		})
	}},
	{"shares memory with its callers", []string{
		"append/arguments", "claim/belongs to the caller", "items/belongs to the caller", "put/arguments", "commit/arguments",
	}, false, func(l *liar) { share(l) }},
	{"loses an append", []string{"append/concurrent", "claim/at work"}, true, func(l *liar) {
		var n atomic.Int64
		l.append = func(ctx context.Context, q string, list []team.Item, max int) ([]team.Receipt, error) {
			if n.Add(1) == 5 {
				r := make([]team.Receipt, len(list))
				for i := range r {
					r[i] = team.Receipt{ID: list[i].ID, Seq: 1<<30 + team.Seq(i)}
				}
				return r, nil
			}
			return l.Store.Append(ctx, q, list, max)
		}
	}},

	{"hands out in another order", []string{"claim/first in order", "claim/concurrent"}, true, func(l *liar) {
		l.claimOut(func(c []team.Claim, err error) ([]team.Claim, error) { slices.Reverse(c); return c, err })
	}},
	{"ignores Max of a claim", []string{"claim/first in order"}, true, func(l *liar) {
		l.claimIn(func(_ string, o *team.ClaimOptions) { o.Max = 99 })
	}},
	{"finds nothing to be an error", []string{"claim/none"}, true, func(l *liar) {
		l.claimOut(func(c []team.Claim, err error) ([]team.Claim, error) {
			if err == nil && len(c) == 0 {
				err = team.ErrNotFound
			}
			return c, err
		})
	}},
	{"stops at a claimed item", []string{"claim/held"}, true, func(l *liar) {
		l.claim = func(ctx context.Context, q string, opts team.ClaimOptions) ([]team.Claim, error) {
			for it := range l.Store.Items(ctx, q, team.ListOptions{}) {
				if it.State == team.ItemClaimed {
					return nil, nil
				}
			}
			return l.Store.Claim(ctx, q, opts)
		}
	}},
	{"does not say when the lease ends", []string{"claim/fields"}, false, func(l *liar) {
		l.eachClaim(func(c *team.Claim) { c.Until = time.Time{} })
	}},
	{"has no token", []string{"claim/fields"}, true, func(l *liar) {
		l.eachClaim(func(c *team.Claim) { c.Token = "" })
	}},
	{"has one token for an item", []string{"claim/token"}, true, func(l *liar) {
		tokens := l.tokens()
		l.settleIn(func(st *team.Settlement) {
			if st.Token != "" {
				st.Token, _ = tokens.get(st.Seq)
			}
		})
		claim := l.claim
		l.claim = func(ctx context.Context, q string, opts team.ClaimOptions) ([]team.Claim, error) {
			c, err := claim(ctx, q, opts)
			for i := range c {
				c[i].Token = c[i].ID
			}
			return c, err
		}
	}},
	{"ignores the budget", []string{"claim/budget", "claim/too dear", "wait/too dear"}, true, func(l *liar) {
		l.claimIn(func(_ string, o *team.ClaimOptions) { o.Budget = 0 })
	}},
	{"hands out nothing where the budget is too small", []string{"claim/too dear"}, true, func(l *liar) {
		l.claimOut(func(c []team.Claim, err error) ([]team.Claim, error) {
			if errors.Is(err, team.ErrLimit) {
				return nil, nil
			}
			return c, err
		})
	}},
	{"buries although it fails", []string{"claim/failure buries none"}, false, func(l *liar) {
		l.claim = func(ctx context.Context, q string, opts team.ClaimOptions) ([]team.Claim, error) {
			got, err := l.Store.Claim(ctx, q, opts)
			if errors.Is(err, team.ErrLimit) {
				opts.Budget, opts.Max, opts.Wait = 0, 1, false
				dear, _ := l.Store.Claim(ctx, q, opts)
				for _, c := range dear {
					_ = l.Store.Settle(ctx, q, team.Settlement{Seq: c.Seq, Token: c.Token, Verdict: team.VerdictRelease})
				}
			}
			return got, err
		}
	}},
	{"never ends a lease", []string{"claim/lease ends", "claim/attempts by lease", "settle/lease over", "wait/lease ends"}, false, func(l *liar) {
		l.claimIn(func(_ string, o *team.ClaimOptions) { o.Lease = max(o.Lease, hour) })
	}},
	{"ignores MaxAttempts", []string{"claim/attempts", "claim/attempts by lease", "wait/dead"}, true, func(l *liar) {
		l.claimIn(func(_ string, o *team.ClaimOptions) { o.MaxAttempts = 0 })
	}},
	{"has a bound of attempts of its own", []string{"claim/attempts by lease"}, false, func(l *liar) {
		l.claimIn(func(_ string, o *team.ClaimOptions) {
			if o.MaxAttempts == 0 {
				o.MaxAttempts = 2
			}
		})
	}},
	{"does not say why an item is dead", []string{"claim/attempts", "settle/bury"}, true, func(l *liar) {
		l.itemsOut(func(list []team.StoredItem) []team.StoredItem {
			for i := range list {
				list[i].Reason = ""
			}
			return list
		})
	}},
	{"takes any claim options", []string{"claim/bad arguments"}, false, func(l *liar) {
		l.claimIn(func(_ string, o *team.ClaimOptions) { o.Max, o.Lease = max(o.Max, 1), max(o.Lease, 1) })
	}},
	{"hands out an item twice", []string{"claim/concurrent", "claim/at work"}, true, func(l *liar) {
		var mu sync.Mutex
		var last []team.Claim
		n := 0
		l.claim = func(ctx context.Context, q string, opts team.ClaimOptions) ([]team.Claim, error) {
			c, err := l.Store.Claim(ctx, q, opts)
			mu.Lock()
			defer mu.Unlock()
			if n++; n%3 == 0 && len(last) > 0 {
				return last, nil
			}
			last = c
			return c, err
		}
	}},
}

// eachItem lets f change each item of an append.
func (l *liar) eachItem(f func(i int, it *team.Item)) {
	l.appendIn(func(q string, list []team.Item, max int) (string, []team.Item, int) {
		for i := range list {
			f(i, &list[i])
		}
		return q, list, max
	})
}

// eachClaim lets f see and change each claim.
func (l *liar) eachClaim(f func(c *team.Claim)) {
	l.claimOut(func(list []team.Claim, err error) ([]team.Claim, error) {
		for i := range list {
			f(&list[i])
		}
		return list, err
	})
}

// tokenLog knows the newest token of each item of a queue.
type tokenLog struct {
	mu     sync.Mutex
	tokens map[team.Seq]string
}

func (t *tokenLog) get(seq team.Seq) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	token, ok := t.tokens[seq]
	return token, ok
}

func (l *liar) tokens() *tokenLog {
	t := &tokenLog{tokens: make(map[team.Seq]string)}
	l.eachClaim(func(c *team.Claim) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.tokens[c.Seq] = c.Token
	})
	return t
}

func once[T any](seq iter.Seq2[T, error]) iter.Seq2[T, error] {
	used := false
	return func(yield func(T, error) bool) {
		if !used {
			used = true
			seq(yield)
		}
	}
}

// byOffset yields the n-th of what there is then, for each n.
func byOffset[T any](all func() iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for n := 0; ; n++ {
			i, found := 0, false
			for v, err := range all() {
				if i == n {
					found = yield(v, err) && err == nil
					break
				}
				i++
			}
			if !found {
				return
			}
		}
	}
}

// share makes l keep what it is given and hand out what it keeps.
func share(l *liar) {
	var mu sync.Mutex
	data := make(map[string][]byte)
	keep := func(list []team.Item) {
		mu.Lock()
		defer mu.Unlock()
		for _, it := range list {
			data[it.ID] = it.Data
		}
	}
	shared := func(id string, own []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		if kept, ok := data[id]; ok {
			return kept
		}
		return own
	}
	l.append = func(ctx context.Context, q string, list []team.Item, max int) ([]team.Receipt, error) {
		keep(list)
		return l.Store.Append(ctx, q, list, max)
	}
	l.commit = func(ctx context.Context, appends []team.Batch, changes []team.Change) (team.Committed, error) {
		for _, b := range appends {
			keep(b.Items)
		}
		return l.Store.Commit(ctx, appends, changes)
	}
	l.eachClaim(func(c *team.Claim) { c.Data = shared(c.ID, c.Data) })
	l.itemsOut(func(list []team.StoredItem) []team.StoredItem {
		for i := range list {
			list[i].Data = shared(list[i].ID, list[i].Data)
		}
		return list
	})
	l.put = func(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
		keep([]team.Item{{ID: "record " + key, Data: value}})
		return l.Store.Put(ctx, key, value, prev)
	}
	l.get = func(ctx context.Context, key string) (team.Record, error) {
		r, err := l.Store.Get(ctx, key)
		r.Value = shared("record "+key, r.Value)
		return r, err
	}
}

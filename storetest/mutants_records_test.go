package storetest

import (
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

var waitMutants = []mutant{
	{"does not wait", []string{"wait/append", "wait/other queue", "wait/context"}, false, func(l *liar) {
		l.claimIn(func(_ string, o *team.ClaimOptions) { o.Wait = false })
	}},
	{"never wakes a waiter", []string{
		"wait/append", "wait/release", "wait/release with delay", "wait/lease ends", "wait/extend", "wait/redrive",
		"wait/one item", "wait/several items", "wait/cancelled waiter", "commit/wakes",
	}, false, func(l *liar) {
		l.claim = func(ctx context.Context, q string, opts team.ClaimOptions) ([]team.Claim, error) {
			wait := opts.Wait
			opts.Wait = false
			c, err := l.Store.Claim(ctx, q, opts)
			if wait && err == nil && len(c) == 0 {
				<-ctx.Done()
				err = ctx.Err()
			}
			return c, err
		}
	}},
	{"waits for what comes next", []string{"wait/there already"}, false, func(l *liar) {
		l.claim = func(ctx context.Context, q string, opts team.ClaimOptions) ([]team.Claim, error) {
			if opts.Wait {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return l.Store.Claim(ctx, q, opts)
		}
	}},
	{"says nothing of the context", []string{"wait/context"}, false, func(l *liar) {
		l.claimOut(func(c []team.Claim, err error) ([]team.Claim, error) {
			if err != nil {
				err = errors.New("no item came")
			}
			return c, err
		})
	}},
	{"wakes all waiters for one item", []string{"wait/one item", "wait/expired", "wait/several items"}, false, func(l *liar) {
		var mu sync.Mutex
		next := make(chan struct{})
		l.append = func(ctx context.Context, q string, list []team.Item, max int) ([]team.Receipt, error) {
			mu.Lock()
			defer mu.Unlock()
			defer func() { close(next); next = make(chan struct{}) }()
			return l.Store.Append(ctx, q, list, max)
		}
		l.claim = func(ctx context.Context, q string, opts team.ClaimOptions) ([]team.Claim, error) {
			mu.Lock()
			wait, came := opts.Wait, next
			opts.Wait = false
			c, err := l.Store.Claim(ctx, q, opts)
			mu.Unlock()
			if !wait || err != nil || len(c) > 0 {
				return c, err
			}
			select {
			case <-came:
			case <-ctx.Done():
			}
			return l.Store.Claim(ctx, q, opts)
		}
	}},
	{"wakes a waiter that is gone", []string{"wait/cancelled waiter", "wait/too dear"}, false, func(l *liar) {
		var mu sync.Mutex
		waiters := make(map[string][]chan struct{})
		l.append = func(ctx context.Context, q string, list []team.Item, max int) ([]team.Receipt, error) {
			mu.Lock()
			defer mu.Unlock()
			if w := waiters[q]; len(w) > 0 {
				close(w[0])
				waiters[q] = w[1:]
			}
			return l.Store.Append(ctx, q, list, max)
		}
		l.claim = func(ctx context.Context, q string, opts team.ClaimOptions) ([]team.Claim, error) {
			wait := opts.Wait
			opts.Wait = false
			for {
				mu.Lock()
				c, err := l.Store.Claim(ctx, q, opts)
				if !wait || err != nil || len(c) > 0 {
					mu.Unlock()
					return c, err
				}
				me := make(chan struct{})
				waiters[q] = append(waiters[q], me)
				mu.Unlock()
				select {
				case <-me:
				case <-ctx.Done(): // and it stays in the line
					return nil, ctx.Err()
				}
			}
		}
	}},
	{"ends a wait with a dead item", []string{"wait/dead"}, false, func(l *liar) {
		l.claimIn(func(_ string, o *team.ClaimOptions) { o.Wait = o.Wait && o.MaxAttempts == 0 })
	}},
}

var recordMutants = []mutant{
	{"overwrites where it should create", []string{"put/create", "put/stale version", "put/one of many"}, true, func(l *liar) {
		l.putIn(func(_, _ *string, prev *team.Version) {
			if *prev == "" {
				*prev = team.AnyVersion
			}
		})
	}},
	{"keeps the first value", []string{"put/current version", "put/values"}, true, func(l *liar) {
		l.putIn(func(key, value *string, _ *team.Version) {
			if r, err := l.Store.Get(context.Background(), *key); err == nil {
				*value = string(r.Value)
			}
		})
	}},
	{"does not compare versions", []string{"put/stale version", "put/one of many", "delete/version"}, true, func(l *liar) {
		l.putIn(func(_, _ *string, prev *team.Version) { *prev = team.AnyVersion })
		l.delete = func(ctx context.Context, key string, _ team.Version) error {
			return l.Store.Delete(ctx, key, team.AnyVersion)
		}
	}},
	{"knows no AnyVersion where there is no record", []string{"put/any version"}, true, func(l *liar) {
		l.put = func(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
			if _, err := l.Store.Get(ctx, key); err != nil && prev == team.AnyVersion {
				return "", team.ErrConflict
			}
			return l.Store.Put(ctx, key, value, prev)
		}
	}},
	{"counts versions anew after a deletion", []string{"put/new version"}, true, func(l *liar) {
		real := make(map[team.Version]team.Version) // by the version that callers see
		count := make(map[string]int)
		l.put = func(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
			if r, ok := real[prev]; ok {
				prev = r
			}
			v, err := l.Store.Put(ctx, key, value, prev)
			if err != nil {
				return "", err
			}
			count[key]++
			shown := team.Version(key + strings.Repeat("+", count[key]))
			real[shown] = v
			return shown, nil
		}
		l.delete = func(ctx context.Context, key string, prev team.Version) error {
			if r, ok := real[prev]; ok {
				prev = r
			}
			err := l.Store.Delete(ctx, key, prev)
			if err == nil {
				count[key] = 0
			}
			return err
		}
	}},
	{"has one version for all keys", []string{"put/other keys"}, true, func(l *liar) {
		last := ""
		l.putIn(func(key, _ *string, prev *team.Version) {
			if *prev != "" && *key != last {
				*prev = "stale"
			}
			last = *key
		})
	}},
	{"is busy now and then", []string{"put/many keys at once"}, true, func(l *liar) {
		var n atomic.Int64
		l.put = func(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
			if n.Add(1)%4 == 0 {
				return "", team.ErrConflict
			}
			return l.Store.Put(ctx, key, value, prev)
		}
	}},
	{"takes an empty value for none", []string{"put/values"}, false, func(l *liar) {
		l.get = func(ctx context.Context, key string) (team.Record, error) {
			r, err := l.Store.Get(ctx, key)
			if err == nil && len(r.Value) == 0 {
				return team.Record{}, team.ErrNotFound
			}
			return r, err
		}
	}},
	{"has keys without case", []string{"put/keys", "keys/order"}, true, func(l *liar) {
		l.putIn(func(key, _ *string, _ *team.Version) { *key = strings.ToLower(*key) })
	}},
	{"mends bad keys", []string{"put/bad keys"}, false, func(l *liar) {
		l.putIn(func(key, _ *string, _ *team.Version) {
			*key = strings.ToValidUTF8((*key)[:min(len(*key), 1024)], "?")
		})
	}},
	{"has a record under every key", []string{"get/none", "delete/version"}, true, func(l *liar) {
		l.get = func(ctx context.Context, key string) (team.Record, error) {
			r, err := l.Store.Get(ctx, key)
			if errors.Is(err, team.ErrNotFound) {
				return team.Record{Key: key}, nil
			}
			return r, err
		}
	}},
	{"deletes what is not there", []string{"delete/none"}, true, func(l *liar) {
		l.delete = func(ctx context.Context, key string, prev team.Version) error {
			if err := l.Store.Delete(ctx, key, prev); !errors.Is(err, team.ErrNotFound) {
				return err
			}
			return nil
		}
	}},
	{"does not sort its keys", []string{"keys/order", "put/keys"}, true, func(l *liar) {
		l.keysOut(func(list []string) []string { slices.Reverse(list); return list })
	}},
	{"sorts its keys without case", []string{"keys/order", "put/keys"}, false, func(l *liar) {
		l.keysOut(func(list []string) []string {
			slices.SortStableFunc(list, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
			return list
		})
	}},
	{"matches a prefix without case", []string{"keys/prefix"}, true, func(l *liar) {
		l.keys = func(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
			return lie(l.Store.Keys(ctx, "", after), func(list []string) []string {
				return slices.DeleteFunc(list, func(key string) bool {
					return !strings.HasPrefix(strings.ToLower(key), strings.ToLower(prefix))
				})
			})
		}
	}},
	{"yields after itself", []string{"keys/after"}, true, func(l *liar) {
		l.keys = func(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
			return lie(l.Store.Keys(ctx, prefix, ""), func(list []string) []string {
				return slices.DeleteFunc(list, func(key string) bool { return key < after })
			})
		}
	}},
	{"ignores after", []string{"keys/after"}, true, func(l *liar) {
		l.keys = func(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
			return l.Store.Keys(ctx, prefix, "")
		}
	}},
	{"adds the operation to its errors", []string{"every/bare errors"}, false, func(l *liar) {
		l.get = func(ctx context.Context, key string) (team.Record, error) {
			r, err := l.Store.Get(ctx, key)
			if err != nil {
				err = &team.Error{Op: "store.get", Name: key, Err: err}
			}
			return r, err
		}
	}},

	{"commits in another order than it says", []string{"commit/all"}, true, func(l *liar) {
		l.commit = func(ctx context.Context, appends []team.Batch, changes []team.Change) (team.Committed, error) {
			c, err := l.Store.Commit(ctx, appends, changes)
			slices.Reverse(c.Receipts)
			slices.Reverse(c.Versions)
			return c, err
		}
	}},
	{"commits in many steps", []string{
		"commit/append fails", "commit/change fails", "commit/replay", "commit/one step", "commit/wakes",
	}, true, func(l *liar) {
		l.commit = func(ctx context.Context, appends []team.Batch, changes []team.Change) (done team.Committed, err error) {
			for _, b := range appends {
				r, err := l.Store.Append(ctx, b.Queue, b.Items, b.Max)
				if err != nil {
					return done, err
				}
				done.Receipts = append(done.Receipts, r)
			}
			time.Sleep(time.Millisecond)
			for _, c := range changes {
				var v team.Version
				if c.Delete {
					err = l.Store.Delete(ctx, c.Key, c.Prev)
				} else {
					v, err = l.Store.Put(ctx, c.Key, c.Value, c.Prev)
				}
				if err != nil {
					return done, err
				}
				done.Versions = append(done.Versions, v)
			}
			return done, nil
		}
	}},
	{"commits all that does not fail", []string{"commit/all", "commit/append fails", "commit/change fails"}, true, func(l *liar) {
		l.commit = func(ctx context.Context, appends []team.Batch, changes []team.Change) (team.Committed, error) {
			for _, b := range appends {
				l.Store.Append(ctx, b.Queue, b.Items, b.Max)
			}
			return l.Store.Commit(ctx, nil, changes)
		}
	}},
}

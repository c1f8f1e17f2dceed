package storetest

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/teamchan/team"
)

var settleMutants = []mutant{
	{"acks for an hour only", []string{"settle/ack"}, true, func(l *liar) {
		l.settleIn(func(st *team.Settlement) {
			if st.Verdict == team.VerdictAck {
				st.Verdict, st.Delay = team.VerdictRelease, hour
			}
		})
	}},
	{"releases for later", []string{"settle/release"}, true, func(l *liar) {
		l.settleIn(func(st *team.Settlement) {
			if st.Verdict == team.VerdictRelease {
				st.Delay = hour
			}
		})
	}},
	{"releases at once", []string{"settle/release with delay", "wait/release with delay"}, false, func(l *liar) {
		l.settleIn(func(st *team.Settlement) {
			if st.Verdict == team.VerdictRelease {
				st.Delay = 0
			}
		})
	}},
	{"does not extend", []string{"settle/extend", "wait/extend"}, false, func(l *liar) {
		l.settleIn(func(st *team.Settlement) {
			if st.Verdict == team.VerdictExtend && st.Token != "" {
				st.Verdict = "drop"
			}
		})
	}},
	{"ends a claim that it extends", []string{"settle/extend then ack"}, true, func(l *liar) {
		l.settleIn(func(st *team.Settlement) {
			if st.Verdict == team.VerdictExtend {
				st.Verdict = team.VerdictRelease
			}
		})
	}},
	{"loses fencing", []string{"settle/stale token"}, true, func(l *liar) {
		tokens := l.tokens()
		l.settleIn(func(st *team.Settlement) {
			if st.Verdict != team.VerdictCancel && st.Verdict != team.VerdictRedrive {
				st.Token, _ = tokens.get(st.Seq)
			}
		})
	}},
	{"swallows conflicts", []string{
		"settle/stale token", "settle/lease over", "settle/claim is over", "settle/cancel or claim", "settle/cancel too late", "settle/redrive only dead",
	}, true, func(l *liar) {
		l.settleOut(func(err error) error {
			if errors.Is(err, team.ErrConflict) {
				return nil
			}
			return err
		})
	}},
	{"forgets what it settled", []string{"settle/repeated"}, true, func(l *liar) {
		var mu sync.Mutex
		done := make(map[string]bool)
		l.settle = func(ctx context.Context, q string, list ...team.Settlement) error {
			mu.Lock()
			defer mu.Unlock()
			var errs []error
			for _, st := range list {
				err := error(&team.SettleError{Seq: st.Seq, Verdict: st.Verdict, Err: team.ErrConflict})
				if st.Token == "" || !done[st.Token] {
					err = l.Store.Settle(ctx, q, st)
				}
				if err == nil && (st.Verdict == team.VerdictAck || st.Verdict == team.VerdictBury) {
					done[st.Token] = true
				}
				if err != nil {
					errs = append(errs, err)
				}
			}
			return errors.Join(errs...)
		}
	}},
	{"does not amend", []string{"settle/amend"}, true, func(l *liar) {
		l.settleIn(func(st *team.Settlement) {
			if st.Verdict == team.VerdictAmend {
				st.Verdict = "drop"
			}
		})
	}},
	{"does not know since when", []string{"items/changed"}, false, func(l *liar) {
		l.items = func(ctx context.Context, q string, opts team.ListOptions) iter.Seq2[team.StoredItem, error] {
			return func(yield func(team.StoredItem, error) bool) {
				for it, err := range l.Store.Items(ctx, q, opts) {
					it.Changed = it.Changed.Add(-time.Hour)
					if !yield(it, err) {
						return
					}
				}
			}
		}
	}},
	{"cannot cancel", []string{"settle/cancel"}, true, func(l *liar) {
		l.settleIn(func(st *team.Settlement) {
			if st.Verdict == team.VerdictCancel {
				st.Verdict = "drop"
			}
		})
	}},
	{"cancels claimed items", []string{"settle/cancel too late", "settle/cancel or claim"}, true, func(l *liar) {
		tokens := l.tokens()
		l.settleIn(func(st *team.Settlement) {
			if token, ok := tokens.get(st.Seq); ok && st.Verdict == team.VerdictCancel {
				st.Verdict, st.Token = team.VerdictAck, token
			}
		})
	}},
	{"does not redrive", []string{"settle/redrive"}, true, func(l *liar) {
		l.settleIn(func(st *team.Settlement) {
			if st.Verdict == team.VerdictRedrive {
				st.Verdict = "drop"
			}
		})
	}},
	{"stops settling at the first fault", []string{"settle/each alone"}, true, func(l *liar) {
		l.settle = func(ctx context.Context, q string, list ...team.Settlement) error {
			for _, st := range list {
				if err := l.Store.Settle(ctx, q, st); err != nil {
					return err
				}
			}
			return nil
		}
	}},
	{"settles in every queue", []string{"settle/other queue"}, false, func(l *liar) {
		l.settle = func(ctx context.Context, _ string, list ...team.Settlement) error {
			return l.Store.Settle(ctx, "q", list...)
		}
	}},
	{"takes what it does not hold for a conflict", []string{"settle/not found", "settle/cancel too late"}, true, func(l *liar) {
		l.settleOut(func(err error) error {
			var list []error
			for _, e := range settleErrors(err) {
				if errors.Is(e.Err, team.ErrNotFound) {
					e.Err = team.ErrConflict
				}
				list = append(list, e)
			}
			return errors.Join(list...)
		})
	}},
	{"takes any verdict for an ack", []string{"settle/bad arguments"}, false, func(l *liar) {
		known := append([]team.Verdict{team.VerdictCancel, team.VerdictRedrive}, held...)
		l.settleIn(func(st *team.Settlement) {
			if !slices.Contains(known, st.Verdict) {
				st.Verdict = team.VerdictAck
			}
		})
	}},
	{"ends a claim when its item expires", []string{"claim/expired in hand"}, false, func(l *liar) {
		var mu sync.Mutex
		expires := make(map[team.Seq]time.Time)
		l.eachClaim(func(c *team.Claim) {
			mu.Lock()
			defer mu.Unlock()
			expires[c.Seq] = c.Expires
		})
		l.settleIn(func(st *team.Settlement) {
			mu.Lock()
			defer mu.Unlock()
			if t := expires[st.Seq]; !t.IsZero() && t.Before(time.Now()) {
				st.Token = ""
			}
		})
	}},

	{"lists one page", []string{"items/order", "items/calls in the loop"}, false, func(l *liar) {
		l.itemsOut(func(list []team.StoredItem) []team.StoredItem { return list[:min(len(list), 100)] })
	}},
	{"lists After itself", []string{"items/after"}, true, func(l *liar) {
		l.items = func(ctx context.Context, q string, opts team.ListOptions) iter.Seq2[team.StoredItem, error] {
			opts.After = max(opts.After, 1) - 1
			return l.Store.Items(ctx, q, opts)
		}
	}},
	{"lists settled items alone", []string{"items/settled"}, true, func(l *liar) {
		l.items = func(ctx context.Context, q string, opts team.ListOptions) iter.Seq2[team.StoredItem, error] {
			return lie(l.Store.Items(ctx, q, opts), func(list []team.StoredItem) []team.StoredItem {
				return slices.DeleteFunc(list, func(it team.StoredItem) bool { return opts.Settled && !it.State.Settled() })
			})
		}
	}},
	{"lists settled items always", []string{"items/settled", "settle/ack"}, true, func(l *liar) {
		l.items = func(ctx context.Context, q string, opts team.ListOptions) iter.Seq2[team.StoredItem, error] {
			opts.Settled = true
			return l.Store.Items(ctx, q, opts)
		}
	}},
	{"claims what it lists", []string{"items/changes nothing"}, true, func(l *liar) {
		l.items = func(ctx context.Context, q string, opts team.ListOptions) iter.Seq2[team.StoredItem, error] {
			c, _ := l.Store.Claim(ctx, q, team.ClaimOptions{Max: 1, Lease: hour})
			for _, c := range c {
				l.Store.Settle(ctx, q, by(c, team.VerdictRelease))
			}
			return l.Store.Items(ctx, q, opts)
		}
	}},
	{"lists once", []string{"items/break", "keys/break"}, false, func(l *liar) {
		l.items = func(ctx context.Context, q string, opts team.ListOptions) iter.Seq2[team.StoredItem, error] {
			return once(l.Store.Items(ctx, q, opts))
		}
		l.keys = func(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
			return once(l.Store.Keys(ctx, prefix, after))
		}
	}},
	{"pages by offset", []string{"items/calls in the loop", "keys/calls in the loop"}, false, func(l *liar) {
		l.items = func(ctx context.Context, q string, opts team.ListOptions) iter.Seq2[team.StoredItem, error] {
			return byOffset(func() iter.Seq2[team.StoredItem, error] { return l.Store.Items(ctx, q, opts) })
		}
		l.keys = func(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
			return byOffset(func() iter.Seq2[string, error] { return l.Store.Keys(ctx, prefix, after) })
		}
	}},
	{"does not look at its context", []string{"every/ended context"}, false, func(l *liar) {
		l.append = func(ctx context.Context, q string, list []team.Item, max int) ([]team.Receipt, error) {
			return l.Store.Append(context.WithoutCancel(ctx), q, list, max)
		}
	}},
	{"acts before it looks at its context", []string{"every/ended context"}, false, func(l *liar) {
		l.settle = func(ctx context.Context, q string, list ...team.Settlement) error {
			return errors.Join(l.Store.Settle(context.WithoutCancel(ctx), q, list...), ctx.Err())
		}
	}},
	{"deletes before it looks at its context", []string{"every/ended context"}, false, func(l *liar) {
		l.delete = func(ctx context.Context, key string, prev team.Version) error {
			return errors.Join(l.Store.Delete(context.WithoutCancel(ctx), key, prev), ctx.Err())
		}
	}},
	{"yields after an error", []string{"every/ended context"}, false, func(l *liar) {
		l.keys = func(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				for key, err := range l.Store.Keys(ctx, prefix, after) {
					for range 2 {
						if !yield(key, err) {
							return
						}
					}
				}
			}
		}
	}},
}

package storetest

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/teamchan/team"
)

var meterMutants = []mutant{
	{"counts its values only", []string{"meter/usage", "meter/prefix", "meter/changes", "meter/commit", "meter/at once"}, true, func(l *liar) {
		l.usage = func(ctx context.Context, prefix string) (keys int, bytes int64, err error) {
			for key, err := range l.Store.Keys(ctx, prefix, "") {
				if err != nil {
					return 0, 0, err
				}
				r, _ := l.Store.Get(ctx, key)
				keys, bytes = keys+1, bytes+int64(len(r.Value))
			}
			return keys, bytes, nil
		}
	}},
	{"counts characters for bytes", []string{"meter/usage"}, true, func(l *liar) {
		l.usage = func(ctx context.Context, prefix string) (keys int, bytes int64, err error) {
			for key := range l.Store.Keys(ctx, prefix, "") {
				r, _ := l.Store.Get(ctx, key)
				keys, bytes = keys+1, bytes+int64(len([]rune(key))+len(r.Value))
			}
			return keys, bytes, nil
		}
	}},
	{"counts a prefix without case", []string{"meter/prefix"}, true, func(l *liar) {
		l.usage = func(ctx context.Context, prefix string) (keys int, bytes int64, err error) {
			for key := range l.Store.Keys(ctx, "", "") {
				if strings.HasPrefix(strings.ToLower(key), strings.ToLower(prefix)) {
					r, _ := l.Store.Get(ctx, key)
					keys, bytes = keys+1, bytes+int64(len(key)+len(r.Value))
				}
			}
			return keys, bytes, nil
		}
	}},
	{"takes a prefix for a pattern", []string{"meter/prefix"}, false, func(l *liar) {
		l.usage = func(ctx context.Context, prefix string) (keys int, bytes int64, err error) {
			plain, _, _ := strings.Cut(prefix, "%")
			return l.Store.Usage(ctx, plain)
		}
	}},
	{"counts what was ever put", []string{"meter/changes", "meter/at once"}, true, func(l *liar) {
		var mu sync.Mutex
		gone := make(map[string]int64)
		l.delete = func(ctx context.Context, key string, prev team.Version) error {
			r, _ := l.Store.Get(ctx, key)
			err := l.Store.Delete(ctx, key, prev)
			if err == nil {
				mu.Lock()
				gone[key] += int64(len(key) + len(r.Value))
				mu.Unlock()
			}
			return err
		}
		l.usage = func(ctx context.Context, prefix string) (int, int64, error) {
			mu.Lock()
			defer mu.Unlock()
			keys, bytes, err := l.Store.Usage(ctx, prefix)
			for key, size := range gone {
				if strings.HasPrefix(key, prefix) {
					keys, bytes = keys+1, bytes+size
				}
			}
			return keys, bytes, err
		}
	}},
	{"counts its puts and not its commits", []string{"meter/commit"}, true, func(l *liar) {
		extra, more := 0, int64(0)
		l.commit = func(ctx context.Context, appends []team.Batch, changes []team.Change) (team.Committed, error) {
			k, b, _ := l.Store.Usage(ctx, "")
			done, err := l.Store.Commit(ctx, appends, changes)
			k2, b2, _ := l.Store.Usage(ctx, "")
			extra, more = extra+k2-k, more+b2-b
			return done, err
		}
		l.usage = func(ctx context.Context, prefix string) (int, int64, error) {
			keys, bytes, err := l.Store.Usage(ctx, prefix)
			return keys - extra, bytes - more, err
		}
	}},
	{"counts whatever the context says", []string{"every/ended context"}, false, func(l *liar) {
		l.usage = func(_ context.Context, prefix string) (int, int64, error) {
			return l.Store.Usage(context.Background(), prefix)
		}
	}},
}

var watchMutants = []mutant{
	{"watches from the loop on", []string{"watch/from the call"}, false, func(l *liar) {
		l.watch = func(ctx context.Context, prefix string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond) // or the law would wait for long
				defer cancel()
				for key, err := range l.Store.Watch(ctx, prefix) {
					if !yield(key, err) {
						return
					}
				}
			}
		}
	}},
	{"tells nobody", []string{
		"watch/put", "watch/delete", "watch/prefix", "watch/refused", "watch/commit", "watch/last change",
		"watch/many keys at once", "watch/several", "watch/slow loop", "watch/calls in the loop", "watch/context",
	}, false, func(l *liar) {
		l.watchOut(func(string) (string, bool) { return "", false })
	}},
	{"tells of new keys only", []string{"watch/put", "watch/last change"}, false, func(l *liar) {
		var mu sync.Mutex
		seen := make(map[string]bool)
		l.watchOut(func(key string) (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			first := !seen[key]
			seen[key] = true
			return key, first || strings.HasSuffix(key, warm)
		})
	}},
	{"does not tell of deletions", []string{"watch/delete", "watch/commit"}, false, func(l *liar) {
		l.watchOut(func(key string) (string, bool) {
			_, err := l.Store.Get(context.Background(), key)
			return key, err == nil
		})
	}},
	{"cuts the prefix off", []string{"watch/prefix"}, false, func(l *liar) {
		l.watch = func(ctx context.Context, prefix string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				for key, err := range l.Store.Watch(ctx, prefix) {
					if !strings.HasSuffix(key, warm) {
						key = strings.TrimPrefix(key, prefix)
					}
					if !yield(key, err) {
						return
					}
				}
			}
		}
	}},
	{"tells of every key", []string{"watch/prefix"}, false, func(l *liar) {
		l.watch = func(ctx context.Context, _ string) iter.Seq2[string, error] { return l.Store.Watch(ctx, "") }
	}},
	{"begins with what is there", []string{"watch/refused"}, false, func(l *liar) {
		l.watch = func(ctx context.Context, prefix string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				for key := range l.Store.Keys(ctx, prefix, "") {
					if !yield(key, nil) {
						return
					}
				}
				l.Store.Watch(ctx, prefix)(yield)
			}
		}
	}},
	{"tells of refused puts", []string{"watch/refused"}, false, func(l *liar) {
		l.put = func(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
			v, err := l.Store.Put(ctx, key, value, prev)
			if errors.Is(err, team.ErrConflict) {
				r, _ := l.Store.Get(ctx, key)
				l.Store.Put(ctx, key, r.Value, team.AnyVersion)
			}
			return v, err
		}
	}},
	{"does not tell of commits", []string{"watch/commit"}, false, func(l *liar) {
		var mu sync.Mutex
		committed := make(map[string]bool)
		l.commit = func(ctx context.Context, appends []team.Batch, changes []team.Change) (team.Committed, error) {
			mu.Lock()
			defer mu.Unlock()
			for _, c := range changes {
				committed[c.Key] = true
			}
			return l.Store.Commit(ctx, appends, changes)
		}
		l.watchOut(func(key string) (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			return key, !committed[key]
		})
	}},
	{"tells of a key once in a while", []string{"watch/last change", "watch/put"}, false, func(l *liar) {
		var mu sync.Mutex
		last := make(map[string]time.Time)
		l.watchOut(func(key string) (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			soon := time.Since(last[key]) < time.Hour
			if !soon {
				last[key] = time.Now()
			}
			return key, !soon || strings.HasSuffix(key, warm)
		})
	}},
	{"remembers one name at a time", []string{"watch/slow loop", "watch/many keys at once"}, false, func(l *liar) {
		l.watch = func(ctx context.Context, prefix string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				names := make(chan string, 1)
				go func() {
					for key, err := range l.Store.Watch(ctx, prefix) {
						if err == nil {
							time.Sleep(time.Millisecond)
							select {
							case names <- key:
							default: // and it is forgotten
							}
						}
					}
				}()
				for {
					select {
					case key := <-names:
						time.Sleep(2 * time.Millisecond)
						if !yield(key, nil) {
							return
						}
					case <-ctx.Done():
						yield("", ctx.Err())
						return
					}
				}
			}
		}
	}},
	{"tells one of many", []string{"watch/several"}, false, func(l *liar) {
		var mu sync.Mutex
		told := make(map[string]bool)
		l.watchOut(func(key string) (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			first := !told[key]
			told[key] = true
			return key, first || strings.HasSuffix(key, warm)
		})
	}},
	{"makes writers wait for who watches", []string{"watch/slow loop", "watch/calls in the loop"}, false, func(l *liar) {
		var mu sync.Mutex
		loops := make(map[string]int) // by prefix
		told := make(chan struct{})
		l.watch = func(ctx context.Context, prefix string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				count := func(n int) {
					mu.Lock()
					loops[prefix] += n
					mu.Unlock()
				}
				count(1)
				defer count(-1)
				for key, err := range l.Store.Watch(ctx, prefix) {
					more := yield(key, err)
					select {
					case told <- struct{}{}:
					case <-time.After(5 * time.Millisecond):
					}
					if !more {
						return
					}
				}
			}
		}
		l.put = func(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
			v, err := l.Store.Put(ctx, key, value, prev)
			mu.Lock()
			wait := loops["k/"] > 0
			mu.Unlock()
			if err == nil && wait && !strings.HasSuffix(key, warm) {
				select {
				case <-told:
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}
			return v, err
		}
	}},
	{"ends without a word", []string{"watch/context"}, false, func(l *liar) {
		l.watch = func(ctx context.Context, prefix string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				for key, err := range l.Store.Watch(ctx, prefix) {
					if err != nil || !yield(key, nil) {
						return
					}
				}
			}
		}
	}},
	{"does not end", []string{"watch/context"}, false, func(l *liar) {
		l.watch = func(ctx context.Context, prefix string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				for key, err := range l.Store.Watch(ctx, prefix) {
					if err != nil {
						time.Sleep(time.Second)
					}
					if !yield(key, err) {
						return
					}
				}
			}
		}
	}},
}

package storetest

// Inside tests, since what is tested is that single laws fail: that a law which
// holds for a good store is broken by a bad one.

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

func good(testing.TB) team.Store { return new(memstore.Store) }

func TestRun(t *testing.T) { Run(t, good) }

// Every law must be able to fail, for the reason that its name says.
func TestBroken(t *testing.T) {
	byName := make(map[string]law)
	for _, l := range laws() {
		if byName[l.name].name != "" {
			t.Errorf("two laws are named %q", l.name)
		}
		if l.says == "" || strings.HasSuffix(l.says, ".") {
			t.Errorf("law %s says %q, want a sentence without its full stop", l.name, l.says)
		}
		byName[l.name] = l
	}
	broken := make(map[string]bool)
	for _, m := range mutants {
		for _, name := range m.breaks {
			l, ok := byName[name]
			if !ok {
				t.Errorf("a mutant breaks law %q, want one that there is", name)
				continue
			}
			broken[name] = true
			t.Run(m.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := &liar{Store: new(memstore.Store)}
				m.bend(s)
				err := evaluate(l, s, 250*time.Millisecond)
				if err == nil {
					t.Fatalf("law %q = holds, want it broken by a store that %s", l.says, m.name)
				}
				t.Log(err)
			})
		}
	}
	for name := range byName {
		if !broken[name] {
			t.Errorf("no mutant breaks law %q", name)
		}
	}
}

// Records that come without a queue are bound by the laws of records, and what
// they can do beyond is found.
func TestRunRecords(t *testing.T) {
	RunRecords(t, func(testing.TB) team.Records { return new(memstore.Store) })
	for _, l := range lawsOfRecords() {
		err := evaluate(l, unqueued{Records: new(memstore.Store)}, time.Second)
		if _, ok := err.(skipped); ok {
			t.Errorf("%s on the records of a store that can do everything = skipped, want it checked", l.name)
		}
	}
}

// A store that can do no more than it must is bound by every law but those of
// what it cannot do.
func TestSkip(t *testing.T) {
	type bare struct{ team.Store }
	for _, l := range slices.Concat(commitLaws, meterLaws, watchLaws) {
		err := evaluate(l, bare{new(memstore.Store)}, time.Second)
		if _, ok := err.(skipped); !ok {
			t.Errorf("%s on a store without the method = %v, want it skipped", l.name, err)
		}
	}
}

// A store whose calls ignore their context must not hang the suite.
func TestStuck(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	s := &liar{Store: new(memstore.Store)}
	s.get = func(context.Context, string) (team.Record, error) {
		<-release
		return team.Record{}, team.ErrNotFound
	}
	for _, l := range laws() {
		if l.name == "get/none" {
			if err := evaluate(l, s, 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "not returned") {
				t.Errorf("law on a stuck store = %v, want an error that says so", err)
			}
		}
	}
}

// The seeds of Fuzz alone find what is broken in many ways.
func TestReplay(t *testing.T) {
	differs := func(bend func(*liar)) error {
		for _, seed := range seeds() {
			s := &liar{Store: new(memstore.Store)}
			bend(s)
			if err := replay(t.Context(), s, seed); err != nil {
				return err
			}
		}
		return nil
	}
	if err := differs(func(*liar) {}); err != nil {
		t.Errorf("replay on a good store = %v, want no difference", err)
	}
	for _, m := range mutants {
		if m.model {
			if differs(m.bend) == nil {
				t.Errorf("replay = no difference, want one with a store that %s", m.name)
			}
		}
	}
}

// A liar is a good store, some of whose calls are replaced.
type liar struct {
	*memstore.Store
	append func(context.Context, string, []team.Item, int) ([]team.Receipt, error)
	claim  func(context.Context, string, team.ClaimOptions) ([]team.Claim, error)
	settle func(context.Context, string, ...team.Settlement) error
	items  func(context.Context, string, team.ListOptions) iter.Seq2[team.StoredItem, error]
	get    func(context.Context, string) (team.Record, error)
	put    func(context.Context, string, []byte, team.Version) (team.Version, error)
	delete func(context.Context, string, team.Version) error
	keys   func(context.Context, string, string) iter.Seq2[string, error]
	commit func(context.Context, []team.Batch, []team.Change) (team.Committed, error)
	usage  func(context.Context, string) (int, int64, error)
	watch  func(context.Context, string) iter.Seq2[string, error]
}

func (l *liar) Append(ctx context.Context, queue string, items []team.Item, max int) ([]team.Receipt, error) {
	if l.append != nil {
		return l.append(ctx, queue, items, max)
	}
	return l.Store.Append(ctx, queue, items, max)
}

func (l *liar) Claim(ctx context.Context, queue string, opts team.ClaimOptions) ([]team.Claim, error) {
	if l.claim != nil {
		return l.claim(ctx, queue, opts)
	}
	return l.Store.Claim(ctx, queue, opts)
}

func (l *liar) Settle(ctx context.Context, queue string, list ...team.Settlement) error {
	if l.settle != nil {
		return l.settle(ctx, queue, list...)
	}
	return l.Store.Settle(ctx, queue, list...)
}

func (l *liar) Items(ctx context.Context, queue string, opts team.ListOptions) iter.Seq2[team.StoredItem, error] {
	if l.items != nil {
		return l.items(ctx, queue, opts)
	}
	return l.Store.Items(ctx, queue, opts)
}

func (l *liar) Get(ctx context.Context, key string) (team.Record, error) {
	if l.get != nil {
		return l.get(ctx, key)
	}
	return l.Store.Get(ctx, key)
}

func (l *liar) Put(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
	if l.put != nil {
		return l.put(ctx, key, value, prev)
	}
	return l.Store.Put(ctx, key, value, prev)
}

func (l *liar) Delete(ctx context.Context, key string, prev team.Version) error {
	if l.delete != nil {
		return l.delete(ctx, key, prev)
	}
	return l.Store.Delete(ctx, key, prev)
}

func (l *liar) Keys(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	if l.keys != nil {
		return l.keys(ctx, prefix, after)
	}
	return l.Store.Keys(ctx, prefix, after)
}

func (l *liar) Commit(ctx context.Context, appends []team.Batch, changes []team.Change) (team.Committed, error) {
	if l.commit != nil {
		return l.commit(ctx, appends, changes)
	}
	return l.Store.Commit(ctx, appends, changes)
}

func (l *liar) Usage(ctx context.Context, prefix string) (int, int64, error) {
	if l.usage != nil {
		return l.usage(ctx, prefix)
	}
	return l.Store.Usage(ctx, prefix)
}

func (l *liar) Watch(ctx context.Context, prefix string) iter.Seq2[string, error] {
	if l.watch != nil {
		return l.watch(ctx, prefix)
	}
	return l.Store.Watch(ctx, prefix)
}

// The ways to replace a call that most mutants need: change what goes in, or
// what comes out.

func (l *liar) appendIn(f func(queue string, items []team.Item, max int) (string, []team.Item, int)) {
	l.append = func(ctx context.Context, queue string, items []team.Item, max int) ([]team.Receipt, error) {
		queue, items, max = f(queue, append([]team.Item(nil), items...), max)
		return l.Store.Append(ctx, queue, items, max)
	}
}

func (l *liar) appendOut(f func([]team.Receipt)) {
	l.append = func(ctx context.Context, queue string, items []team.Item, max int) ([]team.Receipt, error) {
		r, err := l.Store.Append(ctx, queue, items, max)
		f(r)
		return r, err
	}
}

func (l *liar) claimIn(f func(queue string, opts *team.ClaimOptions)) {
	l.claim = func(ctx context.Context, queue string, opts team.ClaimOptions) ([]team.Claim, error) {
		f(queue, &opts)
		return l.Store.Claim(ctx, queue, opts)
	}
}

func (l *liar) claimOut(f func([]team.Claim, error) ([]team.Claim, error)) {
	l.claim = func(ctx context.Context, queue string, opts team.ClaimOptions) ([]team.Claim, error) {
		return f(l.Store.Claim(ctx, queue, opts))
	}
}

// settleIn changes each settlement; one whose verdict is then "drop" is left
// out.
func (l *liar) settleIn(f func(st *team.Settlement)) {
	l.settle = func(ctx context.Context, queue string, list ...team.Settlement) error {
		var rest []team.Settlement
		for _, st := range list {
			if f(&st); st.Verdict != "drop" {
				rest = append(rest, st)
			}
		}
		return l.Store.Settle(ctx, queue, rest...)
	}
}

func (l *liar) settleOut(f func(error) error) {
	l.settle = func(ctx context.Context, queue string, list ...team.Settlement) error {
		return f(l.Store.Settle(ctx, queue, list...))
	}
}

func (l *liar) putIn(f func(key, value *string, prev *team.Version)) {
	l.put = func(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
		v := string(value)
		f(&key, &v, &prev)
		return l.Store.Put(ctx, key, []byte(v), prev)
	}
}

// itemsOut lets f change the list that Items would yield.
func (l *liar) itemsOut(f func([]team.StoredItem) []team.StoredItem) {
	l.items = func(ctx context.Context, queue string, opts team.ListOptions) iter.Seq2[team.StoredItem, error] {
		return lie(l.Store.Items(ctx, queue, opts), f)
	}
}

func (l *liar) keysOut(f func([]string) []string) {
	l.keys = func(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
		return lie(l.Store.Keys(ctx, prefix, after), f)
	}
}

// watchOut lets f say of each name that Watch would yield whether it does, and
// as what.
func (l *liar) watchOut(f func(key string) (string, bool)) {
	l.watch = func(ctx context.Context, prefix string) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			for key, err := range l.Store.Watch(ctx, prefix) {
				pass := true
				if err == nil {
					key, pass = f(key)
				}
				if pass && !yield(key, err) {
					return
				}
			}
		}
	}
}

func lie[T any](seq iter.Seq2[T, error], f func([]T) []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var list []T
		for v, err := range seq {
			if err != nil {
				yield(v, err)
				return
			}
			list = append(list, v)
		}
		for _, v := range f(list) {
			if !yield(v, nil) {
				return
			}
		}
	}
}

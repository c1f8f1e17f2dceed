// Package storetest has the laws that every [team.Store] keeps, as tests that
// the author of a store runs. The whole test file of a store is
//
//	func open(tb testing.TB) team.Store { … } // an empty store, closed by tb.Cleanup
//
//	func TestStore(t *testing.T)      { storetest.Run(t, open) }
//	func FuzzStore(f *testing.F)      { storetest.Fuzz(f, open) }
//	func BenchmarkStore(b *testing.B) { storetest.Bench(b, open) }
//
// open is called once for each law, fuzz input and benchmark, and must return a
// store that is empty and shares nothing with the others. Who has records and no
// queue calls [RunRecords].
//
// The laws are tables, see [Run]; a law that breaks prints the promise in one
// sentence. Laws about leases and delays need real time, some tens of
// milliseconds each; on one machine they fail on a broken store, never on a slow
// one. A store that several processes share runs them once more, through a store that
// gives each call to another process. One promise is not tested here, since one open
// store cannot show it: that items survive a restart.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/teamchan/team"
)

// A law is one promise of the contract in store.go.
type law struct {
	name  string // method/promise
	says  string // the promise, in one sentence; printed when it breaks
	check func(ctx context.Context, s team.Store) error
}

// laws returns the whole contract, in the order in which it is best read.
func laws() []law {
	return slices.Concat(
		appendLaws, claimLaws, waitLaws, settleLaws, itemsLaws,
		commitLaws, lawsOfRecords(),
	)
}

// lawsOfRecords returns the laws that no queue is needed for.
func lawsOfRecords() []law {
	return slices.Concat(recordsLaws, meterLaws, watchLaws, everyLaws)
}

// Run checks every law, each in a subtest of its own against a fresh store. The
// laws of [team.Committer], [team.Meter] and [team.Watcher] are skipped if the
// store is none.
func Run(t *testing.T, open func(testing.TB) team.Store) { run(t, laws(), open) }

// RunRecords is Run for a [team.Records] that is no store, since it has no
// queue: it checks the laws of records, and those of [team.Meter] and
// [team.Watcher] if it is one.
func RunRecords(t *testing.T, open func(testing.TB) team.Records) {
	run(t, lawsOfRecords(), func(tb testing.TB) team.Store { return unqueued{Records: open(tb)} })
}

// An unqueued store has records only.
type unqueued struct {
	team.Queue // nil: no law that RunRecords runs may call it
	team.Records
}

// power returns what s can do beyond a Store.
func power[T any](s team.Store) (T, bool) {
	if u, ok := s.(unqueued); ok {
		t, ok := u.Records.(T)
		return t, ok
	}
	t, ok := s.(T)
	return t, ok
}

func run(t *testing.T, laws []law, open func(testing.TB) team.Store) {
	for _, l := range laws {
		t.Run(l.name, func(t *testing.T) {
			err := evaluate(l, open(t), 20*time.Second)
			if skip, ok := errors.AsType[skipped](err); ok {
				t.Skip(string(skip))
			}
			if err != nil {
				t.Errorf("broken law: %s.\n%v", l.says, err)
			}
		})
	}
}

// skipped says why a law does not apply to a store.
type skipped string

func (s skipped) Error() string { return string(s) }

// evaluate checks one law on an empty store and returns how it was broken. The
// context of the law ends after limit; a store that does not return then, or
// soon after, has broken a law too.
func evaluate(l law, s team.Store, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- l.check(ctx, s) }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit + limit/4 + time.Second):
		return fmt.Errorf("a call has not returned since its context ended %v ago", limit/4+time.Second)
	}
}

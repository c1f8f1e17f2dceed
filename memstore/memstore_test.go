package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
	"github.com/teamchan/team/storetest"
)

func open(testing.TB) team.Store { return new(memstore.Store) }

func TestStore(t *testing.T)      { storetest.Run(t, open) }
func FuzzStore(f *testing.F)      { storetest.Fuzz(f, open) }
func BenchmarkStore(b *testing.B) { storetest.Bench(b, open) }

func TestZero(t *testing.T) {
	var s memstore.Store
	ctx := t.Context()
	if _, err := s.Get(ctx, "k"); !errors.Is(err, team.ErrNotFound) {
		t.Errorf("Get from a zero store = %v, want ErrNotFound", err)
	}
	if err := s.Delete(ctx, "k", ""); !errors.Is(err, team.ErrNotFound) {
		t.Errorf("Delete from a zero store = %v, want ErrNotFound", err)
	}
	if c, err := s.Claim(ctx, "q", team.ClaimOptions{Max: 1, Lease: time.Hour}); err != nil || len(c) > 0 {
		t.Errorf("Claim from a zero store = %v, %v, want none", c, err)
	}
	for key, err := range s.Keys(ctx, "", "") {
		t.Errorf("Keys of a zero store yields %q, %v, want nothing", key, err)
	}
	for it, err := range s.Items(ctx, "q", team.ListOptions{}) {
		t.Errorf("Items of a zero store yields %v, %v, want nothing", it, err)
	}
	if _, err := s.Commit(ctx, nil, []team.Change{{Key: "k"}}); err != nil {
		t.Errorf("Commit to a zero store = %v, want no error", err)
	}
}

// One goroutine works through a day of leases, delays and an expiry, to the
// second, in virtual time.
func TestHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s memstore.Store
		ctx := t.Context()
		start := time.Now()
		next := func(wantID string, wantAt time.Duration, lease time.Duration) team.Claim {
			t.Helper()
			c, err := s.Claim(ctx, "q", team.ClaimOptions{Max: 1, Lease: lease, Wait: true})
			if err != nil {
				t.Fatalf("Claim = %v, want %s", err, wantID)
			}
			if at := time.Since(start); c[0].ID != wantID || at != wantAt {
				t.Errorf("Claim = %s after %v, want %s after %v", c[0].ID, at, wantID, wantAt)
			}
			if want := start.Add(wantAt + lease); !c[0].Until.Equal(want) {
				t.Errorf("Until = %v, want %v", c[0].Until, want)
			}
			return c[0]
		}
		_, err := s.Append(ctx, "q", []team.Item{{ID: "a"}, {ID: "b"}, {ID: "c", Expires: start.Add(20 * time.Hour)}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		next("a", 0, 5*time.Hour)
		b := next("b", 0, 4*time.Hour)
		c := next("c", 0, time.Hour)
		for _, st := range []team.Settlement{
			{Seq: b.Seq, Token: b.Token, Verdict: team.VerdictExtend, Delay: 6 * time.Hour},
			{Seq: c.Seq, Token: c.Token, Verdict: team.VerdictRelease, Delay: 7 * time.Hour},
		} {
			if err := s.Settle(ctx, "q", st); err != nil {
				t.Fatal(err)
			}
		}
		next("a", 5*time.Hour, 24*time.Hour)
		next("b", 6*time.Hour, 24*time.Hour)
		next("c", 7*time.Hour, 13*time.Hour+time.Second) // it expires in the receiver's hands
		next("a", 29*time.Hour, time.Hour)
		synctest.Wait()
		for it, err := range s.Items(ctx, "q", team.ListOptions{Settled: true}) {
			want := map[string]team.ItemState{"a": team.ItemClaimed, "b": team.ItemClaimed, "c": team.ItemExpired}[it.ID]
			if err != nil || it.State != want {
				t.Errorf("state of %s = %s, %v, want %s", it.ID, it.State, err, want)
			}
		}
	})
}

// A bubble does not end while a goroutine in it lives, and a waiter that never
// wakes is a deadlock there: so this also shows that no waiter is lost.
func TestWaitersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s memstore.Store
		const n = 50
		got := make(chan string, n)
		for i := range n {
			go func() {
				c, err := s.Claim(t.Context(), "q", team.ClaimOptions{Max: 1, Lease: time.Hour, Wait: true})
				if err != nil {
					t.Error(err)
					return
				}
				got <- fmt.Sprint(i, c[0].ID)
			}()
			synctest.Wait() // so that they wait in this order
		}
		for i := range n {
			if _, err := s.Append(t.Context(), "q", []team.Item{{ID: fmt.Sprint("i", i)}}, 0); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if len(got) != 1 {
				t.Fatalf("%d waiters got item %d, want 1", len(got), i)
			}
			if who, want := <-got, fmt.Sprint(i, "i", i); who != want {
				t.Errorf("waiter and item = %s, want %s", who, want)
			}
		}
	})
}

// Waiters whose contexts end at the very moment when items come leave the items
// to the others, and leave nothing behind.
func TestWaitersLeave(t *testing.T) {
	before := runtime.NumGoroutine()
	var s memstore.Store
	const n = 200
	taken := make(chan int, n)
	for i := range n {
		ctx := t.Context()
		if i%2 == 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Duration(i)*10*time.Microsecond)
			defer cancel()
		}
		go func() {
			c, err := s.Claim(ctx, "q", team.ClaimOptions{Max: 1, Lease: time.Hour, Wait: true})
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Claim = %v, want an item or DeadlineExceeded", err)
			}
			taken <- len(c)
		}()
	}
	total := 0
	for i := range n {
		if _, err := s.Append(t.Context(), "q", []team.Item{{ID: fmt.Sprint("i", i)}}, 0); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		total += <-taken
	}
	left := 0
	for range s.Items(t.Context(), "q", team.ListOptions{}) {
		left++
	}
	if left != n || total < n/2 {
		t.Errorf("%d items taken of %d in the queue, want at least %d of %d", total, left, n/2, n)
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(time.Millisecond) // those that have answered are still on their way out
	}
	t.Errorf("%d goroutines, %d before any waiter, want no more", runtime.NumGoroutine(), before)
}

// Many keys, in an order that splits and empties runs all over.
func TestManyKeys(t *testing.T) {
	var s memstore.Store
	ctx := t.Context()
	const n = 5000
	for i := range n {
		if _, err := s.Put(ctx, fmt.Sprintf("k%05d", i*2741%n), nil, ""); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		if i%100 != 7 {
			if err := s.Delete(ctx, fmt.Sprintf("k%05d", i), team.AnyVersion); err != nil {
				t.Fatal(err)
			}
		}
	}
	next := 7
	for key, err := range s.Keys(ctx, "k", "") {
		if want := fmt.Sprintf("k%05d", next); err != nil || key != want {
			t.Fatalf("Keys yields %q, %v, want %q", key, err, want)
		}
		next += 100
	}
	if next != n+7 {
		t.Errorf("Keys ends before k%05d, want it to end before k%05d", next, n+7)
	}
}

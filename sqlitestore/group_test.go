package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// A gate stops the commits of a store, to let them through one by one.
type gate struct {
	reached chan struct{}
	through chan struct{}
}

func newGate(t *testing.T, s *sqlitestore.Store) *gate {
	g := &gate{make(chan struct{}, 1000), make(chan struct{})}
	s.BeforeCommit(func() {
		g.reached <- struct{}{}
		<-g.through
	})
	t.Cleanup(g.open)
	return g
}

func (g *gate) one() { g.through <- struct{}{} }

// open lets through all that come.
func (g *gate) open() {
	select {
	case <-g.through:
	default:
		close(g.through)
	}
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 10s for %s", what)
		}
	}
}

func TestGroup(t *testing.T) {
	t.Run("writers share a transaction", func(t *testing.T) {
		s := openAt(t, filepath.Join(t.TempDir(), "s.db"), nil)
		g := newGate(t, s)
		const n = 40
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { benchAppend(t, s, "q", fmt.Sprint("i", i)) })
			if i == 0 {
				<-g.reached
			}
		}
		until(t, "all to queue", func() bool { return s.Queued() == n-1 })
		g.open()
		wg.Wait()
		st, err := s.Stats(t.Context())
		if err != nil || st.Operations != n || st.Transactions != 2 {
			t.Errorf("%d operations in %d transactions, %v, want %d in 2", st.Operations, st.Transactions, err, n)
		}
	})

	t.Run("one that is refused does not hurt the others", func(t *testing.T) {
		s := openAt(t, filepath.Join(t.TempDir(), "s.db"), nil)
		mustAppend(t, s, "q", "there")
		g := newGate(t, s)
		var first, wg sync.WaitGroup
		first.Go(func() { benchAppend(t, s, "other", "x") })
		<-g.reached
		errs := make([]error, 30)
		for i := range errs {
			wg.Go(func() {
				last := fmt.Sprint("last", i)
				if i%3 == 0 {
					last = "there" // after it has added the first
				}
				if i%2 == 0 {
					_, errs[i] = s.Commit(t.Context(), []team.Batch{{Queue: "q", Items: []team.Item{{ID: fmt.Sprint("first", i)}, {ID: last}}}},
						[]team.Change{{Key: fmt.Sprint("k", i)}})
				} else {
					_, errs[i] = s.Append(t.Context(), "q", []team.Item{{ID: fmt.Sprint("first", i)}, {ID: last}}, 0)
				}
			})
		}
		until(t, "all to queue", func() bool { return s.Queued() == len(errs) })
		g.open()
		first.Wait()
		wg.Wait()
		held := states(t, s, "q")
		for i, err := range errs {
			want := i%3 != 0
			if (err == nil) != want || err != nil && !errors.Is(err, team.ErrConflict) {
				t.Errorf("call %d = %v, want ErrConflict: %v", i, err, !want)
			}
			if got := strings.Contains(held, fmt.Sprintf("first%d:", i)); got != want {
				t.Errorf("item of call %d is there: %v, want %v", i, got, want)
			}
			if i%2 == 0 {
				if _, err := s.Get(t.Context(), fmt.Sprint("k", i)); (err == nil) != want {
					t.Errorf("record of call %d: %v, want it there: %v", i, err, want)
				}
			}
		}
	})

	t.Run("one that still queues is withdrawn", func(t *testing.T) {
		s := openAt(t, filepath.Join(t.TempDir(), "s.db"), nil)
		g := newGate(t, s)
		var wg sync.WaitGroup
		wg.Go(func() { benchAppend(t, s, "q", "a") })
		<-g.reached
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			until(t, "b to queue", func() bool { return s.Queued() == 1 })
			cancel()
		})
		_, err := s.Append(ctx, "q", []team.Item{{ID: "b"}}, 0)
		if !errors.Is(err, context.Canceled) || errors.Is(err, team.ErrUnknownOutcome) {
			t.Errorf("Append = %v, want Canceled and no doubt", err)
		}
		g.open()
		wg.Wait()
		if got := states(t, s, "q"); got != "a:pending:0 " {
			t.Errorf("queue holds %q, want a", got)
		}
	})

	t.Run("one in flight may not know", func(t *testing.T) {
		s := openAt(t, filepath.Join(t.TempDir(), "s.db"), nil)
		item := team.Item{ID: "c", Key: "k", Digest: "d"}
		inFlight(t, s, func(ctx context.Context) {
			_, err := s.Append(ctx, "q", []team.Item{item}, 0)
			if !errors.Is(err, context.Canceled) || !errors.Is(err, team.ErrUnknownOutcome) {
				t.Errorf("Append = %v, want Canceled and ErrUnknownOutcome", err)
			}
		})
		r, err := s.Append(t.Context(), "q", []team.Item{item}, 0)
		if err != nil || !r[0].Replayed {
			t.Errorf("the same Append again = %v, %v, want a replay", r, err)
		}
	})

	t.Run("a claim in flight is taken back", func(t *testing.T) {
		s := openAt(t, filepath.Join(t.TempDir(), "s.db"), nil)
		mustAppend(t, s, "q", "a")
		var waiting sync.WaitGroup
		inFlight(t, s, func(ctx context.Context) {
			_, err := s.Claim(ctx, "q", team.ClaimOptions{Max: 1, Lease: time.Hour})
			if !errors.Is(err, context.Canceled) || !errors.Is(err, team.ErrUnknownOutcome) {
				t.Errorf("Claim = %v, want Canceled and ErrUnknownOutcome", err)
			}
			waiting.Go(func() { mustClaim(t, s, "q", "a:1") })
		})
		waiting.Wait()
	})

	t.Run("the answer was lost", func(t *testing.T) {
		s := openAt(t, filepath.Join(t.TempDir(), "s.db"), nil)
		lost := errors.New("cut off")
		s.AfterCommit(func() error { return lost })
		item := []team.Item{{ID: "a", Key: "k"}}
		if _, err := s.Append(t.Context(), "q", item, 0); !errors.Is(err, team.ErrUnknownOutcome) || !errors.Is(err, lost) {
			t.Errorf("Append = %v, want ErrUnknownOutcome", err)
		}
		s.AfterCommit(nil)
		item[0].ID = "b"
		if r, err := s.Append(t.Context(), "q", item, 0); err != nil || !r[0].Replayed || r[0].ID != "a" {
			t.Errorf("Append again = %v, %v, want a replay of a", r, err)
		}
	})
}

// inFlight makes a call whose context ends when it is part of a transaction that
// another caller is just committing.
func inFlight(t *testing.T, s *sqlitestore.Store, call func(context.Context)) {
	t.Helper()
	g := newGate(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { benchAppend(t, s, "other", "a") })
	<-g.reached
	wg.Go(func() { benchAppend(t, s, "other", "b") }) // leads the next
	until(t, "b to queue", func() bool { return s.Queued() == 1 })
	wg.Go(func() {
		call(ctx)
		g.open()
	})
	until(t, "the call to queue", func() bool { return s.Queued() == 2 })
	g.one()
	<-g.reached
	cancel()
	wg.Wait()
}

// hold keeps the lock of the file at path until the function is called.
func hold(t *testing.T, path string) (release func()) {
	t.Helper()
	c, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Exec(`BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() {
		_ = c.Exec(`ROLLBACK`)
		_ = c.Close()
	})
	t.Cleanup(release)
	return release
}

// Field report: busy errors, though there was time to wait.
func TestBusy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := openAt(t, path, &sqlitestore.Options{BusyTimeout: 150 * time.Millisecond})
	release := hold(t, path)

	_, err := s.Append(t.Context(), "q", []team.Item{{ID: "a"}}, 0)
	if busy, ok := errors.AsType[*sqlitestore.BusyError](err); !ok || busy.Waited < 150*time.Millisecond || !busy.Temporary() {
		t.Errorf("Append without a deadline = %v, want a *BusyError after 150ms", err)
	}

	// One leads and gives up; the others, who have time, do not.
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	long, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := s.Append(short, "q", []team.Item{{ID: "b"}}, 0)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, team.ErrUnknownOutcome) {
			t.Errorf("Append until the deadline = %v, want DeadlineExceeded and no doubt", err)
		}
	})
	until(t, "the first to lead", func() bool { return s.Queued() == 1 })
	for i := range 5 {
		wg.Go(func() {
			if _, err := s.Append(long, "q", []team.Item{{ID: fmt.Sprint("c", i)}}, 0); err != nil {
				t.Errorf("Append with time = %v, want no error", err)
			}
		})
	}
	<-short.Done()
	time.Sleep(300 * time.Millisecond) // more than the busy timeout
	if _, err := s.Get(t.Context(), "k"); !errors.Is(err, team.ErrNotFound) {
		t.Errorf("Get meanwhile = %v, want ErrNotFound: reading waits for no writer", err)
	}
	release()
	wg.Wait()
	if got := states(t, s, "q"); strings.Contains(got, "a:") || strings.Contains(got, "b:") || strings.Count(got, "c") != 5 {
		t.Errorf("queue holds %q, want the five that had time", got)
	}
}

// Contexts that end at any moment: what a call says about its outcome is true.
func TestRandomCancel(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "s.db"), nil)
	const callers = 8
	each := scale(150)
	var said [callers][]error
	var wg sync.WaitGroup
	for n := range callers {
		said[n] = make([]error, each)
		wg.Go(func() {
			for i := range each {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*time.Millisecond))
				key := fmt.Sprintf("%d/%d", n, i)
				_, said[n][i] = s.Commit(ctx, []team.Batch{{Queue: "q", Items: []team.Item{{ID: key, Key: key}}}}, []team.Change{{Key: key}})
				cancel()
			}
		})
	}
	// Waiting receivers come and go meanwhile; what they are not told of they have not got.
	done := make(chan struct{})
	var receivers sync.WaitGroup
	var mu sync.Mutex
	got := make(map[string]bool)
	for range 3 {
		receivers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*time.Millisecond))
				claims, _ := s.Claim(ctx, "q", team.ClaimOptions{Max: 2, Lease: time.Hour, Wait: true})
				cancel()
				mu.Lock()
				for _, c := range claims {
					if got[c.ID] || c.Attempt != 1 {
						t.Errorf("%s came again, or with attempt %d", c.ID, c.Attempt)
					}
					got[c.ID] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	close(done)
	receivers.Wait()
	there := make(map[string]team.ItemState)
	for it, err := range s.Items(t.Context(), "q", team.ListOptions{Settled: true}) {
		if err != nil {
			t.Fatal(err)
		}
		there[it.ID] = it.State
	}
	var yes, no, unknown int
	for n := range callers {
		for i, err := range said[n] {
			key := fmt.Sprintf("%d/%d", n, i)
			_, getErr := s.Get(t.Context(), key)
			_, isThere := there[key]
			if isThere != (getErr == nil) {
				t.Fatalf("half of commit %s is there", key)
			}
			switch {
			case err == nil:
				yes++
				if !isThere {
					t.Errorf("commit %s = nil, but it is not there", key)
				}
			case errors.Is(err, team.ErrUnknownOutcome):
				unknown++
			default:
				no++
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("commit %s = %v, want DeadlineExceeded", key, err)
				}
				if isThere {
					t.Errorf("commit %s = %v, but it is there", key, err)
				}
			}
		}
	}
	t.Logf("%d written, %d not, %d unknown", yes, no, unknown)
	for id, state := range there {
		if (state == team.ItemClaimed) != got[id] {
			t.Errorf("%s is %s; a receiver has it: %v", id, state, got[id])
		}
	}
}

// Closing ends what waits and leaves nothing behind.
func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	path := filepath.Join(t.TempDir(), "s.db")
	s, err := sqlitestore.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			_, err := s.Claim(t.Context(), "q", team.ClaimOptions{Max: 1, Lease: time.Second, Wait: true})
			if !errors.Is(err, team.ErrClosed) {
				t.Errorf("waiting Claim = %v, want ErrClosed", err)
			}
		})
	}
	until(t, "all to wait", func() bool { st, err := s.Stats(t.Context()); return err == nil && st.Waiting == 5 })
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close = %v, want no error", err)
		}
	}
	wg.Wait()
	if _, err := s.Append(t.Context(), "q", []team.Item{{ID: "a"}}, 0); !errors.Is(err, team.ErrClosed) {
		t.Errorf("Append after Close = %v, want ErrClosed", err)
	}
	if _, err := s.Get(t.Context(), "k"); !errors.Is(err, team.ErrClosed) {
		t.Errorf("Get after Close = %v, want ErrClosed", err)
	}
	until(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

// A bell that somebody emptied rings all the same: nobody looks by himself here.
func TestBellEmptied(t *testing.T) {
	old := sqlitestore.SetPoll(time.Hour)
	defer sqlitestore.SetPoll(old)
	path := filepath.Join(t.TempDir(), "s.db")
	a, b := openAt(t, path, nil), openAt(t, path, nil)
	for i := range 4 {
		time.AfterFunc(50*time.Millisecond, func() {
			if err := os.Truncate(path+"-bell", 0); err != nil {
				t.Error(err)
			}
			benchAppend(t, b, "q", fmt.Sprint("i", i))
		})
		mustClaim(t, a, "q", fmt.Sprintf("i%d:1", i))
	}
}

// Nobody waits, so there is no watcher.
func TestWatcherGoes(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "s.db"), nil)
	before := runtime.NumGoroutine()
	for range 3 {
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 10 {
			wg.Go(func() {
				_, _ = s.Claim(ctx, fmt.Sprint("q", i), team.ClaimOptions{Max: 1, Lease: time.Second, Wait: true})
			})
		}
		until(t, "all to wait", func() bool { st, err := s.Stats(t.Context()); return err == nil && st.Waiting == 10 })
		if !s.Watching() {
			t.Error("nobody watches the bell while ten wait")
		}
		cancel()
		wg.Wait()
		until(t, "nobody to watch the bell, since nobody waits", func() bool { return !s.Watching() })
	}
	until(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

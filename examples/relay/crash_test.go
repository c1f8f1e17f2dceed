package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/examples/relay/survey"
	"github.com/teamchan/team/memstore"
)

// childVar makes the test binary the relay itself.
const childVar = "RELAY_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// How a process stops at a point of the run.
type crash int

const (
	killed      crash = iota // when a call was made, before it has the answer
	interrupted              // by Ctrl-C, in the middle of a call
)

var errCrashed = errors.New("the process is dead")

// A fragile store makes its process stop at a call. Only calls that change
// something are counted: to die at a read is to die after the change before it.
// A dead process makes no further calls, and its context has ended, so that it
// writes nothing to the board.
type fragile struct {
	team.Store
	stop context.CancelFunc
	how  crash
	at   int // zero is never

	mu   sync.Mutex // guards the fields below
	n    int
	dead bool
}

// change makes a call that changes something.
func change[T any](f *fragile, do func() (T, error)) (T, error) {
	var zero T
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return zero, errCrashed
	}
	f.n++
	if f.n == f.at && f.how == interrupted {
		f.stop()
	}
	v, err := do()
	if f.n == f.at && f.how == killed {
		f.kill()
		return zero, errCrashed
	}
	return v, err
}

func (f *fragile) kill() {
	f.dead = true
	f.stop()
}

func (f *fragile) isDead() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return errCrashed
	}
	return nil
}

func (f *fragile) Append(ctx context.Context, queue string, items []team.Item, most int) ([]team.Receipt, error) {
	return change(f, func() ([]team.Receipt, error) { return f.Store.Append(ctx, queue, items, most) })
}

func (f *fragile) Claim(ctx context.Context, queue string, opts team.ClaimOptions) ([]team.Claim, error) {
	claims, err := f.Store.Claim(ctx, queue, opts)
	return change(f, func() ([]team.Claim, error) { return claims, err })
}

func (f *fragile) Settle(ctx context.Context, queue string, s ...team.Settlement) error {
	_, err := change(f, func() (bool, error) { return true, f.Store.Settle(ctx, queue, s...) })
	return err
}

func (f *fragile) Put(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
	return change(f, func() (team.Version, error) { return f.Store.Put(ctx, key, value, prev) })
}

func (f *fragile) Delete(ctx context.Context, key string, prev team.Version) error {
	_, err := change(f, func() (bool, error) { return true, f.Store.Delete(ctx, key, prev) })
	return err
}

func (f *fragile) Commit(ctx context.Context, appends []team.Batch, changes []team.Change) (team.Committed, error) {
	return change(f, func() (team.Committed, error) { return f.Store.(team.Committer).Commit(ctx, appends, changes) })
}

func (f *fragile) Get(ctx context.Context, key string) (team.Record, error) {
	if err := f.isDead(); err != nil {
		return team.Record{}, err
	}
	return f.Store.Get(ctx, key)
}

// written is told by the board of an entry.
func (f *fragile) written(context.Context, team.TraceEvent) {
	_, _ = change(f, func() (bool, error) { return true, nil })
}

// start is one start of the relay on a store, which stops at a call.
func start(t *testing.T, dir string, store team.Store, how crash, at int) (doc document, calls int, err error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	f := &fragile{Store: store, stop: stop, how: how, at: at}
	board, err := team.OpenBoard(t.Context(), filepath.Join(dir, ".git", "opencode-team"), &team.BoardOptions{Trace: f.written})
	if err != nil {
		t.Fatal(err)
	}
	defer board.Close()
	var out bytes.Buffer
	err = carryOut(ctx, ground{dir, board, f, nil}, false, &console{w: &out, json: true})
	if out.Len() > 0 {
		if jerr := json.Unmarshal(out.Bytes(), &doc); jerr != nil {
			t.Fatal(jerr)
		}
	}
	return doc, f.n, err
}

// checkRun holds what is true of every run that came to its end, however often it
// was stopped: each step was done once, in order, and the lead has all of it.
func checkRun(t *testing.T, board *team.Board, doc document) {
	t.Helper()
	at := map[team.Role]int{}
	n := 0
	for e, err := range board.Entries(t.Context(), team.Filter{Session: doc.Session}) {
		if err != nil {
			t.Error(err)
			continue
		}
		n++
		at[e.Role] = e.Ordinal
		if e.Round != 1 || e.Changed {
			t.Errorf("%s is round %d, changed: %v", e.Path, e.Round, e.Changed)
		}
	}
	order := []team.Role{roleArchitect, roleImplementer, roleReviewer, roleTester, roleLead}
	if n != 6 || len(at) != 6 || !slices.IsSortedFunc(order, func(a, b team.Role) int { return at[a] - at[b] }) || at[roleResearcher] > 2 {
		t.Errorf("%d entries with the ordinals %v, want six in the order of the plan", n, at)
	}
	if len(doc.Tasks) != survey.MostTasks || doc.Account.Signals != 5 || doc.Account.Inline <= doc.Account.Paths {
		t.Errorf("%d tasks and the account %+v, want those of a whole run", len(doc.Tasks), doc.Account)
	}
	if _, err := board.Read(t.Context(), doc.Plan, team.Range{}); err != nil {
		t.Errorf("the plan: %v", err)
	}
}

// checkTidy holds what a finished run leaves in the store.
func checkTidy(t *testing.T, store team.Store, session string) {
	t.Helper()
	for _, role := range roles() {
		for item, err := range store.Items(t.Context(), "inbox/"+string(sessionOf(session, role)), team.ListOptions{}) {
			t.Errorf("the inbox of the %s still holds %s, %v", role, item.Data, err)
		}
	}
	for key := range store.Keys(t.Context(), "team/roster/"+session, "") {
		t.Errorf("still on the roster: %s", key)
	}
	record, err := store.Get(t.Context(), runPrefix+session)
	if err != nil || !strings.Contains(string(record.Value), `"over":"finished"`) {
		t.Errorf("record of the run = %s, %v, want that it is finished", record.Value, err)
	}
}

// A run is killed at every call, or stopped by Ctrl-C at a third of them, and carried
// on with. The clock is a fake one, so that leases cost no time.
func TestStoppedAnywhere(t *testing.T) {
	t.Parallel()
	var calls int
	dir := makeFiles(t, aModule())
	synctest.Test(t, func(t *testing.T) {
		var err error
		if _, calls, err = start(t, dir, new(memstore.Store), killed, 0); err != nil || calls < 50 {
			t.Fatalf("a whole run = %d calls, %v", calls, err)
		}
	})
	// Most of the time is the disk's, so many go at once.
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	third := rand.N(3) // of the calls, for Ctrl-C: all of them in a few days
	for n := 1; n <= calls; n++ {
		for _, how := range []crash{killed, interrupted} {
			if how == interrupted && n%3 != third {
				continue
			}
			dir := makeFiles(t, aModule())
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				t.Run(fmt.Sprintf("%d,%d", how, n), func(t *testing.T) { stoppedAt(t, dir, how, n) })
			})
		}
	}
	wg.Wait()
	t.Logf("stopped at %d calls", calls)
}

func stoppedAt(t *testing.T, dir string, how crash, n int) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		first, _, err := start(t, dir, store, how, n)
		printed := first.Plan != "" // stopped behind the end
		if err != nil && how == interrupted && !strings.Contains(err.Error(), "interrupted") {
			t.Errorf("the first start = %v, want that it was interrupted", err)
		}
		begun := false
		for range store.Keys(t.Context(), runPrefix, "") {
			begun = true
		}
		over := false
		if printed {
			record, err := store.Get(t.Context(), runPrefix+first.Session)
			over = err == nil && strings.Contains(string(record.Value), finished)
		}
		clock := time.Now()
		doc, _, err := start(t, dir, store, killed, 0)
		if err != nil {
			t.Fatalf("the second start = %v", err)
		}
		if took := time.Since(clock); took > 2*lease {
			t.Errorf("the second start took %v", took)
		}
		if want := begun && !over; doc.Resumed != want {
			t.Errorf("resumed = %v, want %v", doc.Resumed, want)
		}
		if printed && !over && (first.Session != doc.Session || fmt.Sprint(first.Account, first.Tasks) != fmt.Sprint(doc.Account, doc.Tasks)) {
			t.Errorf("the end was %+v and is %+v", first, doc)
		}
		board, err := team.OpenBoard(t.Context(), doc.Board, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer board.Close()
		checkRun(t, board, doc)
		checkTidy(t, store, doc.Session)
	})
}

package sqlitestore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// Processes get SQLite's lock in the order in which they came, and nobody who is dead,
// stopped or gone is in the way of the others.
func TestTurn(t *testing.T) {
	if sqlitestore.Places < 4 {
		t.Skip("there is no line on this system")
	}
	name := filepath.Join(t.TempDir(), "bell")
	open := func(t *testing.T) *os.File {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	always := func() bool { return true }
	var gone sync.WaitGroup
	free := func(t *testing.T) {
		t.Helper()
		gone.Wait()
		f := open(t)
		for place := range sqlitestore.Places {
			if sqlitestore.Taken(f, place) {
				t.Errorf("somebody stands at place %d, want all to be gone", place)
			}
		}
	}
	// line makes somebody have the turn, and others stand behind, who say so when they get it.
	line := func(t *testing.T, names string) (first *os.File, order chan string) {
		first, order = open(t), make(chan string, 2*sqlitestore.Places)
		if !sqlitestore.WaitTurn(first, always) {
			t.Fatal("WaitTurn = false where nobody stands, want true")
		}
		probe := open(t)
		for i, name := range strings.Split(names, "") {
			f := open(t)
			gone.Go(func() {
				if !sqlitestore.WaitTurn(f, always) {
					name = "none for " + name
				}
				order <- name
				f.Close() // as who is killed
			})
			until(t, name+" to stand in line", func() bool { return sqlitestore.Taken(probe, i+1) })
		}
		return first, order
	}

	t.Run("first come, first served", func(t *testing.T) {
		sqlitestore.SetLongTurn(t, time.Hour)
		first, order := line(t, "abc")
		sqlitestore.EndTurn(first)
		if got := <-order + <-order + <-order; got != "abc" {
			t.Errorf("turns went to %s, want abc", got)
		}
		free(t)
	})

	t.Run("more than there are places for", func(t *testing.T) {
		sqlitestore.SetLongTurn(t, time.Hour)
		names := "abcdefghij"[:sqlitestore.Places-1]
		first, order := line(t, names)
		const others = 3
		for range others {
			f := open(t)
			gone.Go(func() {
				sqlitestore.WaitTurn(f, always)
				order <- "x"
				f.Close()
			})
		}
		sqlitestore.EndTurn(first)
		got := ""
		for range len(names) + others {
			got += <-order
		}
		if got != names+strings.Repeat("x", others) {
			t.Errorf("turns went to %s, want %s and then who had no place", got, names)
		}
		free(t)
	})

	t.Run("one that is stopped", func(t *testing.T) {
		sqlitestore.SetLongTurn(t, 20*time.Millisecond)
		stopped := open(t)
		if !sqlitestore.WaitTurn(stopped, always) {
			t.Fatal("WaitTurn = false where nobody stands, want true")
		}
		for range 2 {
			if sqlitestore.WaitTurn(open(t), always) {
				t.Error("WaitTurn = true behind one that is stopped, want it to go on without")
			}
		}
		sqlitestore.EndTurn(stopped)
		free(t)
	})

	t.Run("one that gives up", func(t *testing.T) {
		sqlitestore.SetLongTurn(t, time.Hour)
		first := open(t)
		sqlitestore.WaitTurn(first, always)
		looks := 0
		if sqlitestore.WaitTurn(open(t), func() bool { looks++; return looks < 5 }) {
			t.Error("WaitTurn = true, want it to give up")
		}
		sqlitestore.EndTurn(first)
		free(t)
	})
}

// The write-ahead log does not grow with each transaction, also after it was cut.
func TestLogGrowsInSteps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := openAt(t, path, nil)
	n := 0
	for _, what := range []string{"a new log", "a log that was cut", "a log that somebody else has cut"} {
		grown, last := 0, int64(-1)
		for range 60 {
			n++
			mustAppend(t, s, "q", fmt.Sprint("i", n))
			info, err := os.Stat(path + "-wal")
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() != last {
				grown++
				last = info.Size()
			}
		}
		// 60 transactions write 4 or 5 pages each: 1.2 MB at most.
		if grown > 6 {
			t.Errorf("%s grew %d times in 60 transactions, want it to grow by many pages at a time", what, grown)
		}
		cutter := s
		if what == "a log that was cut" {
			cutter = openAt(t, path, nil)
		}
		if err := cutter.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`); err != nil {
			t.Fatal(err)
		}
		if st, err := s.Stats(t.Context()); err != nil || st.WALBytes != 0 {
			t.Fatalf("Stats = %+v, %v, want the log cut", st, err)
		}
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check = %v, want no error", err)
	}
	if got := strings.Count(states(t, s, "q"), string(team.ItemPending)); got != n {
		t.Errorf("%d items, want %d", got, n)
	}
}

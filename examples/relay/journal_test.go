package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// stopAfter starts a run whose process is killed when the given role has written its
// entry, before it can say so.
func stopAfter(t *testing.T, dir string, store team.Store, role team.Role) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	f := &fragile{Store: store, stop: stop}
	out := &console{w: writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), string(role)+" ") && strings.Contains(string(p), "entry") {
			f.mu.Lock()
			f.kill()
			f.mu.Unlock()
		}
		return len(p), nil
	})}
	board, err := team.OpenBoard(t.Context(), filepath.Join(dir, ".git", "opencode-team"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer board.Close()
	if err := carryOut(ctx, ground{dir, board, f, nil}, false, out); err == nil {
		t.Fatal("the run was not stopped")
	}
}

// text is a whole start that prints for people.
func text(t *testing.T, dir string, store team.Store, fresh bool) (string, error) {
	t.Helper()
	board, err := team.OpenBoard(t.Context(), filepath.Join(dir, ".git", "opencode-team"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer board.Close()
	var out bytes.Buffer
	err = carryOut(t.Context(), ground{dir, board, store, nil}, fresh, &console{w: &out})
	return out.String(), err
}

func TestCarriesOn(t *testing.T) {
	t.Run("says so, and does only the rest", func(t *testing.T) {
		dir := workspace(t, aModule())
		synctest.Test(t, func(t *testing.T) {
			store := new(memstore.Store)
			stopAfter(t, dir, store, roleReviewer)
			at := time.Now().Format("15:04")
			out, err := text(t, dir, store, false)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{
				"The run of " + at + " was going on a moment ago; looking whether it still is, for 3s at most.\n",
				"carries on with the run of " + at + ": architect, researcher and implementer have settled\n",
				"reviewer    → board        found      survey/04-reviewer-review.md",
				"What it cost the lead",
			} {
				if !strings.Contains(out, want) {
					t.Errorf("the output has no %q:\n%s", want, out)
				}
			}
			if strings.Contains(out, "architect   →") {
				t.Errorf("the architect worked twice:\n%s", out)
			}
		})
	})
	t.Run("-new begins anew, and the stopped run is over", func(t *testing.T) {
		dir := workspace(t, aModule())
		synctest.Test(t, func(t *testing.T) {
			store := new(memstore.Store)
			stopAfter(t, dir, store, roleReviewer)
			time.Sleep(lease)
			for _, fresh := range []bool{true, false} {
				out, err := text(t, dir, store, fresh)
				if err != nil || strings.Contains(out, "carries on") || !strings.Contains(out, "06-lead-plan.md") {
					t.Errorf("start with -new=%v = %v, want a fresh run:\n%s", fresh, err, out)
				}
			}
		})
	})
	t.Run("after a day it begins anew", func(t *testing.T) {
		dir := workspace(t, aModule())
		synctest.Test(t, func(t *testing.T) {
			store := new(memstore.Store)
			stopAfter(t, dir, store, roleArchitect)
			time.Sleep(shelfLife + 2*lease)
			out, err := text(t, dir, store, false)
			if err != nil || !strings.Contains(out, "was stopped more than a day ago") || strings.Contains(out, "carries on") {
				t.Errorf("start a day later = %v, want a fresh run:\n%s", err, out)
			}
		})
	})
	t.Run("a record that nobody can read blocks nobody", func(t *testing.T) {
		store := new(memstore.Store)
		if _, err := store.Put(t.Context(), runPrefix+"x", []byte("{"), ""); err != nil {
			t.Fatal(err)
		}
		if j, err := begin(t.Context(), store, "", false, func(string, ...any) {}); err != nil || j.resumed {
			t.Errorf("begin = %+v, %v, want a fresh run", j, err)
		}
	})
	t.Run("a clock that was set back blocks nobody", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := new(memstore.Store)
			j, err := begin(t.Context(), store, "", false, func(string, ...any) {})
			if err != nil {
				t.Fatal(err)
			}
			if err := j.change(t.Context(), func(s *runState) { s.Until = time.Now().Add(time.Hour) }); err != nil {
				t.Fatal(err)
			}
			clock := time.Now()
			if j, err = begin(t.Context(), store, "", false, func(string, ...any) {}); err != nil || !j.resumed || time.Since(clock) > 2*lease {
				t.Errorf("begin = %+v, %v after %v, want the run after %v", j, err, time.Since(clock), lease)
			}
		})
	})
}

// Two at once: the second says that one is at work, or with -new has a run of its own.
func TestTwoRelays(t *testing.T) {
	dir := workspace(t, aModule())
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		first, err := begin(t.Context(), store, "", false, func(string, ...any) {})
		if err != nil {
			t.Fatal(err)
		}
		held, letGo := first.hold(t.Context())
		if _, err := text(t, dir, store, false); err == nil || !strings.Contains(err.Error(), "another relay is at work") || !strings.Contains(err.Error(), "-new") {
			t.Errorf("the second start = %v, want that one is at work, and the choice", err)
		}
		if out, err := text(t, dir, store, true); err != nil || strings.Contains(out, "carries on") {
			t.Errorf("the second start with -new = %v, want a run of its own:\n%s", err, out)
		}
		if err := first.renew(held); err != nil {
			t.Errorf("the first, after the second: %v", err)
		}
		letGo()
		// A process that slept for longer than its lease loses the run, and notices.
		time.Sleep(2 * lease)
		second, err := begin(t.Context(), store, "", false, func(string, ...any) {})
		if err != nil || second.session() != first.session() || !second.resumed {
			t.Fatalf("begin = %+v, %v, want the first run", second, err)
		}
		held, letGo = first.hold(t.Context())
		<-held.Done()
		if err := first.end(t.Context(), held, held.Err(), letGo); !errors.Is(err, errTaken) {
			t.Errorf("the process that lost its run ends with %v, want %v", err, errTaken)
		}
		if err := second.renew(t.Context()); err != nil {
			t.Errorf("the process that has it: %v", err)
		}
	})
}

// A run that failed for good is not tried again for ever.
func TestFailedRunIsOver(t *testing.T) {
	dir := workspace(t, aModule())
	board, err := team.OpenBoard(t.Context(), filepath.Join(dir, ".git", "opencode-team"), &team.BoardOptions{MaxChars: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer board.Close()
	store := new(memstore.Store)
	if err := carryOut(t.Context(), ground{dir, board, store, nil}, false, &console{w: io.Discard}); !errors.Is(err, errUnsettled) {
		t.Errorf("a run on a board of one character = %v, want %v", err, errUnsettled)
	}
	if out, err := text(t, dir, store, false); err != nil || strings.Contains(out, "carries on") {
		t.Errorf("the next start = %v, want a fresh run:\n%s", err, out)
	}
}

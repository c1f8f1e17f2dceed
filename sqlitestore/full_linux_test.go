package sqlitestore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// A disk that is really full, and has room again.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a small disk needs the right to mount one: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := openAt(t, filepath.Join(dir, "s.db"), nil)
	mustAppend(t, s, "q", "before")
	// The rest of the disk, to the last byte.
	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if e := f.Close(); !errors.Is(err, syscall.ENOSPC) || e != nil {
		t.Fatalf("Write = %v, %v, want no space", err, e)
	}
	full := 0
	var refused []team.Item
	for i := range 50 {
		it := team.Item{ID: fmt.Sprint("i", i), Key: fmt.Sprint(i), Data: make([]byte, 10_000)}
		_, err := s.Append(t.Context(), "q", []team.Item{it}, 0)
		if err == nil { // the log begins anew now and then
			continue
		}
		if _, ok := errors.AsType[*sqlitestore.FullError](err); !ok || !errors.Is(err, syscall.ENOSPC) || errors.Is(err, team.ErrUnknownOutcome) {
			t.Fatalf("Append = %v, want a *FullError", err)
		}
		full++
		refused = append(refused, it)
	}
	if full == 0 {
		t.Error("50 appends of 10 kB had room, want the disk to be full")
	}
	holds := 0
	for it, err := range s.Items(t.Context(), "q", team.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range refused {
			if r.ID == it.ID {
				t.Errorf("%s was refused and is there", it.ID)
			}
		}
		holds++
	}
	if holds != 51-full {
		t.Errorf("%d items, want %d", holds, 51-full)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), "q", refused, 0); err != nil {
		t.Errorf("Append when there is room = %v, want no error", err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check = %v, want no error", err)
	}
}

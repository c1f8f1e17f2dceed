package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

func init() {
	children["offloader"] = childOffloader
	children["halted offloader"] = childHaltedOffloader
}

func openOffloadIn(ctx context.Context, dir string, wrap func(team.Records) team.Records) (*team.Offload, error) {
	store, err := sqlitestore.Open(ctx, filepath.Join(dir, "index.db"), nil)
	if err != nil {
		return nil, err
	}
	return team.OpenOffload(ctx, filepath.Join(dir, "offload"), wrap(store), nil)
}

// childOffloader shortens texts until it is stopped, and prints number and handle of
// each: DIR WORKER.
func childOffloader(ctx context.Context, args []string) error {
	o, err := openOffloadIn(ctx, args[0], func(r team.Records) team.Records { return r })
	if err != nil {
		return err
	}
	worker, _ := strconv.Atoi(args[1])
	for i := worker; ctx.Err() == nil; i++ {
		s, err := o.ShortenText(ctx, longText(i%9), team.Source{})
		if err = errors.Join(err, s.Failed); err != nil {
			return err
		}
		fmt.Println(i%9, s.Handle)
	}
	return nil
}

// childHaltedOffloader stops for ever where the file has its name and no record.
func childHaltedOffloader(ctx context.Context, args []string) error {
	o, err := openOffloadIn(ctx, args[0], func(r team.Records) team.Records { return haltedRecords{r} })
	if err != nil {
		return err
	}
	_, err = o.ShortenText(ctx, longText(1), team.Source{})
	return err
}

type haltedRecords struct{ team.Records }

func (h haltedRecords) Put(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
	if strings.Contains(key, "/h/") {
		fmt.Println("linked")
		<-ctx.Done()
		return "", ctx.Err()
	}
	return h.Records.Put(ctx, key, value, prev)
}

// A process is killed between the file and its record: nobody saw a handle, the rest
// is left alone while it lives and collected when it does not, and the same text is
// offloaded by the next one.
func TestOffloadOfAKilledProcess(t *testing.T) {
	dir := t.TempDir()
	o := openOffload(t, dir, nil)
	child := start(t, "halted offloader", dir)
	if line, ok := child.line(); !ok || line != "linked" {
		t.Fatalf("child printed %q, want linked", line)
	}
	files, err := filepath.Glob(filepath.Join(o.Dir(), "*.txt"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v, want one", files, err)
	}
	if stats, err := o.Stats(t.Context(), 9); err != nil || stats.Handles != 0 {
		t.Errorf("%d handles, %v, want none before the record", stats.Handles, err)
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(files[0], old, old); err != nil {
		t.Fatal(err)
	}
	left := func() int {
		t.Helper()
		if _, err := o.Collect(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		files, _ := filepath.Glob(filepath.Join(o.Dir(), "*.txt"))
		return len(files)
	}
	if n := left(); n != 1 {
		t.Errorf("%d files, want that of the writer that lives", n)
	}
	child.kill()
	if n := left(); n != 0 {
		t.Errorf("%d files, want none of a killed writer", n)
	}
	s, err := o.ShortenText(t.Context(), longText(1), team.Source{})
	if err != nil || s.Failed != nil || s.Replayed {
		t.Fatalf("%+v, %v", s, err)
	}
	if f, err := o.Fetch(t.Context(), s.Handle, team.FetchOptions{Budget: 50_000}); err != nil || f.Text != longText(1) {
		t.Errorf("fetched %d bytes, %v", len(f.Text), err)
	}
}

// Processes that shorten the same texts are killed at whatever they do, while another
// one collects under a cap: each handle that was told is whole, or says that it was
// collected, and each text is one file.
func TestOffloadFromKilledProcesses(t *testing.T) {
	dir := t.TempDir()
	o := openOffload(t, dir, &team.OffloadOptions{MaxBytes: 150_000, MinAge: 1})
	told := map[team.Handle]int{}
	for round := range 4 {
		var running []*process
		for w := range 3 {
			running = append(running, start(t, "offloader", dir, w+round))
		}
		for i := range 8 {
			for _, p := range running {
				line, ok := p.line()
				if !ok {
					t.Fatal("a child has ended")
				}
				number, handle, _ := strings.Cut(line, " ")
				told[team.Handle(handle)], _ = strconv.Atoi(number)
			}
			if i%3 == round%3 {
				if _, err := o.Collect(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, p := range running {
			p.kill()
		}
	}
	there := map[int]team.Handle{}
	for h, number := range told {
		f, err := o.Fetch(t.Context(), h, team.FetchOptions{Budget: 50_000})
		switch {
		case errors.As(err, new(*team.CollectedError)):
		case err != nil || f.Text != longText(number):
			t.Errorf("%s: %d bytes, %v", h, len(f.Text), err)
		case there[number] != "":
			t.Errorf("text %d is %s and %s", number, h, there[number])
		default:
			there[number] = h
		}
	}
	if len(told) < 9 || len(there) == 0 {
		t.Errorf("%d handles were told, %d are there", len(told), len(there))
	}
}

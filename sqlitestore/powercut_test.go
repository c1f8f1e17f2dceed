package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// A power cut at any change of the disk: what was acknowledged is there, in one state
// that the store was in, and the file is whole.
func TestPowerCut(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine does it all")
	}
	for _, mode := range []struct {
		name string
		opts sqlitestore.Options
	}{
		{"full", sqlitestore.Options{}},
		{"full, with a rollback journal", sqlitestore.Options{AllowNetwork: true}},
		{"normal", sqlitestore.Options{Synchronous: sqlitestore.Normal}},
		{"normal, with a rollback journal", sqlitestore.Options{Synchronous: sqlitestore.Normal, AllowNetwork: true}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			d, left := newDisk(t), newDisk(t)
			d.keeps = true
			states := work(t, d, &mode.opts)
			random := seeded(t)
			t.Logf("%d changes of the disk, %d steps", len(d.log), len(states)-1)
			// Most of the beginning, where the file is made, then some.
			every := max(len(d.log)/40, 1)
			p, cuts, lost := newPlatter(), 0, 0
			for i, op := range d.log {
				p.play(op)
				if i < len(d.log)-1 && random.IntN(min(every, 2+i/8)) > 0 {
					continue
				}
				cuts++
				how := []string{"all", "none", "some"}[random.IntN(3)]
				var some *rand.Rand
				if how == "some" {
					some = random
				}
				got := survey(t, left, p, how == "all", some, &mode.opts)
				first, last := p.marked, min(p.marked+1, len(states)-1)
				if mode.opts.Synchronous == sqlitestore.Normal {
					first = 0
				}
				at := last
				for at >= first && states[at] != got {
					at--
				}
				if at < first {
					t.Fatalf("power cut after change %d of the disk, %s of what was not synced is there: %d steps were acknowledged, the store holds\n%s\nwant what it held after one of the steps %d to %d, the first of which is\n%s",
						i, how, p.marked, got, first, last, states[first])
				}
				if at < p.marked {
					lost++
				}
			}
			t.Logf("%d cuts, of which %d took what was acknowledged", cuts, lost)
			if mode.opts.Synchronous == sqlitestore.Normal && lost == 0 {
				t.Error("no cut took anything, though nothing was synced: the disk of this test keeps too much")
			}
		})
	}
}

// work uses a store on d, marks each step that was acknowledged, and returns what the
// store held after each; at 0 before the first.
func work(t *testing.T, d *disk, opts *sqlitestore.Options) (held []string) {
	ctx := t.Context()
	s, err := d.open(ctx, filepath.Join(t.TempDir(), "s.db"), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	held = append(held, "")
	var claim team.Claim
	var gone string
	steps := []func(i int) error{
		func(i int) error {
			_, err := s.Append(ctx, "q", []team.Item{{ID: fmt.Sprint("a", i), Key: fmt.Sprint(i)}}, 0)
			return err
		},
		func(i int) error {
			gone = fmt.Sprint("k", i)
			_, err := s.Commit(ctx, []team.Batch{{Queue: "q", Items: []team.Item{{ID: fmt.Sprint("b", i)}, {ID: fmt.Sprint("c", i)}}}},
				[]team.Change{{Key: gone, Value: fmt.Append(nil, i)}, {Key: "last", Value: fmt.Append(nil, i), Prev: team.AnyVersion}})
			return err
		},
		func(int) error {
			list, err := s.Claim(ctx, "q", team.ClaimOptions{Max: 1, Lease: time.Hour})
			if err == nil {
				claim = list[0]
			}
			return err
		},
		func(int) error {
			return s.Settle(ctx, "q", team.Settlement{Seq: claim.Seq, Token: claim.Token, Verdict: team.VerdictAck})
		},
		func(i int) error {
			if i%2 == 0 {
				return s.Delete(ctx, gone, team.AnyVersion)
			}
			// Enough for the log to be copied into the file now and then.
			_, err := s.Put(ctx, "large", []byte(strings.Repeat(fmt.Sprint(i), 300<<10)), team.AnyVersion)
			return err
		},
	}
	for i := range 24 {
		for _, step := range steps {
			if err := step(i); err != nil {
				t.Fatal(err)
			}
			d.mark(len(held))
			held = append(held, holding(t, s))
		}
	}
	return held
}

// holding describes all that s holds.
func holding(t *testing.T, s *sqlitestore.Store) string {
	t.Helper()
	b := new(strings.Builder)
	b.WriteString(states(t, s, "q"))
	for key, err := range s.Keys(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(b, "%s=%.20s/%d/%s ", key, r.Value, len(r.Value), r.Version)
	}
	return b.String()
}

// survey opens what a power cut leaves of p, and returns what it holds. It must be
// whole, and can be used.
func survey(t *testing.T, d *disk, p *platter, everything bool, random *rand.Rand, opts *sqlitestore.Options) string {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	p.cut(t, dir, everything, random)
	return examine(t, d, filepath.Join(dir, "s.db"), opts)
}

func examine(t *testing.T, d *disk, path string, opts *sqlitestore.Options) string {
	t.Helper()
	s, err := d.open(t.Context(), path, opts)
	if err != nil {
		t.Fatalf("Open of what is left = %v, want no error", err)
	}
	defer func() {
		if err := errors.Join(s.Close(), os.RemoveAll(filepath.Dir(path))); err != nil {
			t.Error(err)
		}
	}()
	if err := s.Check(t.Context()); err != nil {
		t.Fatalf("Check of what is left = %v, want no error", err)
	}
	got := holding(t, s)
	if _, err := s.Append(context.WithoutCancel(t.Context()), "later", []team.Item{{ID: "x"}}, 0); err != nil {
		t.Fatalf("Append to what is left = %v, want no error", err)
	}
	return got
}

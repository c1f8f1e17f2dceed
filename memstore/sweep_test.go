package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// held returns the ids and states of all that a queue holds.
func held(t *testing.T, s *memstore.Store, queue string) (all []string) {
	t.Helper()
	for it, err := range s.Items(t.Context(), queue, team.ListOptions{Settled: true}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprint(it.ID, " ", it.State))
	}
	return all
}

func swept(t *testing.T, s *memstore.Store, policy memstore.SweepPolicy, want int) {
	t.Helper()
	if n, err := s.Sweep(t.Context(), policy); n != want || err != nil {
		t.Errorf("Sweep(%+v) = %d, %v, want %d", policy, n, err, want)
	}
}

func same(t *testing.T, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Sweep removes what was settled long ago, and nothing else: what is open is never
// old, a dead item waits for its redrive, and no number is given twice.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s memstore.Store
		ctx := t.Context()
		start := time.Now()
		var items []team.Item
		for _, id := range []string{"acked", "dead", "cancelled", "expired", "claimed", "pending"} {
			it := team.Item{ID: id, Key: "key of " + id}
			if id == "expired" {
				it.Expires = start.Add(time.Hour)
			}
			items = append(items, it)
		}
		receipts, err := s.Append(ctx, "q", items, 0)
		if err != nil {
			t.Fatal(err)
		}
		claims, err := s.Claim(ctx, "q", team.ClaimOptions{Max: 2, Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(ctx, "q",
			team.Settlement{Seq: claims[0].Seq, Token: claims[0].Token, Verdict: team.VerdictAck},
			team.Settlement{Seq: claims[1].Seq, Token: claims[1].Token, Verdict: team.VerdictBury, Reason: "poison"},
			team.Settlement{Seq: receipts[2].Seq, Verdict: team.VerdictCancel}); err != nil {
			t.Fatal(err)
		}
		swept(t, &s, memstore.SweepPolicy{}, 0)
		time.Sleep(2 * time.Hour) // nobody looks when "expired" expires
		if _, err := s.Claim(ctx, "q", team.ClaimOptions{Max: 1, Lease: 30 * 24 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(memstore.DefaultSweepAge - 2*time.Hour - time.Nanosecond)
		swept(t, &s, memstore.SweepPolicy{}, 0)
		time.Sleep(time.Nanosecond)
		swept(t, &s, memstore.SweepPolicy{}, 2)
		same(t, held(t, &s, "q"), "[dead dead expired expired claimed claimed pending pending]")
		time.Sleep(time.Hour)
		swept(t, &s, memstore.SweepPolicy{}, 1)
		swept(t, &s, memstore.SweepPolicy{Dead: true}, 1)
		same(t, held(t, &s, "q"), "[claimed claimed pending pending]")
		time.Sleep(10 * 24 * time.Hour)
		swept(t, &s, memstore.SweepPolicy{Age: 1, Dead: true}, 0)

		// The memory of a key goes with its item, and an id may come again.
		again, err := s.Append(ctx, "q", []team.Item{items[0], items[5]}, 0)
		if err != nil {
			t.Fatal(err)
		}
		same(t, []any{again[0].Replayed, again[0].Seq > receipts[5].Seq, again[1].Replayed}, "[false true true]")
		claims, err = s.Claim(ctx, "q", team.ClaimOptions{Max: 9, Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		same(t, len(claims), 2)
		for _, c := range claims {
			if err := s.Settle(ctx, "q", team.Settlement{Seq: c.Seq, Token: c.Token, Verdict: team.VerdictAck}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		swept(t, &s, memstore.SweepPolicy{Age: time.Minute}, 2)
		if err := s.Settle(ctx, "q", team.Settlement{Seq: claims[0].Seq, Token: claims[0].Token, Verdict: team.VerdictAck}); !errors.Is(err, team.ErrNotFound) {
			t.Errorf("Ack of what is swept = %v, want ErrNotFound", err)
		}
		last, err := s.Append(ctx, "q", []team.Item{{ID: "last"}}, 0)
		if err != nil || last[0].Seq <= again[0].Seq {
			t.Errorf("Append = %v, %v, want a seq above %d", last, err, again[0].Seq)
		}
	})
}

func TestSweepRefuses(t *testing.T) {
	var s memstore.Store
	if _, err := s.Sweep(t.Context(), memstore.SweepPolicy{Age: -1}); !errors.Is(err, team.ErrInvalid) {
		t.Errorf("Sweep with a negative age = %v, want ErrInvalid", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Sweep(ctx, memstore.SweepPolicy{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Sweep of an ended context = %v, want Canceled", err)
	}
}

// An item is in its state since the clock put it there, not since somebody looked.
func TestChangedIsWhenTheClockChangedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s memstore.Store
		ctx := t.Context()
		start := time.Now()
		if _, err := s.Append(ctx, "q", []team.Item{{ID: "leased"}, {ID: "expired", Expires: start.Add(time.Hour)}, {ID: "both", Expires: start.Add(time.Hour)}}, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Claim(ctx, "q", team.ClaimOptions{Max: 1, Lease: 2 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		claims, err := s.Claim(ctx, "q", team.ClaimOptions{Max: 2, Lease: 3 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(ctx, "q", team.Settlement{Seq: claims[0].Seq, Token: claims[0].Token, Verdict: team.VerdictRelease}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		for it, err := range s.Items(ctx, "q", team.ListOptions{Settled: true}) {
			if err != nil {
				t.Fatal(err)
			}
			// What expires in a receiver's hands is expired when the lease ends.
			want := map[string]time.Duration{"leased": 2 * time.Hour, "expired": time.Hour, "both": 3 * time.Hour}[it.ID]
			same(t, fmt.Sprint(it.ID, " ", it.Changed.Sub(start)), fmt.Sprint(it.ID, " ", want))
		}
	})
}

package sqlitestore_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/teamchan/team"
)

var seed = flag.Uint64("seed", 0, "`number` that a test with random choices logged, to make the same ones again")

// seeded returns the random choices of a test that can be repeated.
func seeded(tb testing.TB) *rand.Rand {
	n := *seed
	if n == 0 {
		n = rand.Uint64()
	}
	tb.Logf("to repeat: -seed %d", n)
	return rand.New(rand.NewPCG(n, 0))
}

func mustAppend(tb testing.TB, s team.Queue, queue string, ids ...string) (seqs []team.Seq) {
	tb.Helper()
	var list []team.Item
	for _, id := range ids {
		list = append(list, team.Item{ID: id, Data: []byte("data of " + id)})
	}
	receipts, err := s.Append(tb.Context(), queue, list, 0)
	if err != nil {
		tb.Fatalf("Append(%q) = %v, want no error", ids, err)
	}
	for _, r := range receipts {
		seqs = append(seqs, r.Seq)
	}
	return seqs
}

// mustClaim waits for one item, which must be want ("id:attempt").
func mustClaim(tb testing.TB, s team.Queue, queue, want string) team.Claim {
	tb.Helper()
	c, err := s.Claim(tb.Context(), queue, team.ClaimOptions{Max: 1, Lease: time.Minute, Wait: true})
	if err != nil || len(c) != 1 {
		tb.Fatalf("Claim = %v, %v, want %s", c, err, want)
	}
	if got := fmt.Sprintf("%s:%d", c[0].ID, c[0].Attempt); got != want {
		tb.Fatalf("Claim = %s, want %s", got, want)
	}
	return c[0]
}

// states lists what queue holds: "id:state:attempt ".
func states(tb testing.TB, s team.Queue, queue string) (list string) {
	tb.Helper()
	for it, err := range s.Items(tb.Context(), queue, team.ListOptions{Settled: true}) {
		if err != nil {
			tb.Fatal(err)
		}
		list += fmt.Sprintf("%s:%s:%d ", it.ID, it.State, it.Attempt)
	}
	return list
}

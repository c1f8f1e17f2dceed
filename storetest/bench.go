package storetest

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/teamchan/team"
)

// Bench measures what channels do most, on a store each. The names are
// key=value, so that benchstat can compare stores and sizes.
func Bench(b *testing.B, open func(testing.TB) team.Store) {
	for _, batch := range []int{1, 64} {
		b.Run(fmt.Sprintf("op=append/batch=%d", batch), func(b *testing.B) {
			s, list, n := open(b), benchItems(batch), 0
			for b.Loop() {
				n = number(list, n)
				appendAll(b, s, list)
			}
			b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "items/s")
		})
	}

	b.Run("op=append/senders=many", func(b *testing.B) {
		s := open(b)
		var ids atomic.Int64
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				id := fmt.Sprint("i", ids.Add(1))
				if _, err := s.Append(b.Context(), "q", []team.Item{{ID: id, Data: benchData}}, 0); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})

	b.Run("op=append+claim+ack", func(b *testing.B) {
		s, list, n := open(b), benchItems(1), 0
		for b.Loop() {
			n = number(list, n)
			appendAll(b, s, list)
			ackFirst(b, s, 1)
		}
	})

	// What a receiver pays must not grow with what lies behind it.
	for _, settled := range []int{0, 10_000, 100_000} {
		b.Run(fmt.Sprintf("op=claim+release/settled=%d", settled), func(b *testing.B) {
			const batch = 1000
			s, list, n := open(b), benchItems(batch), 0
			for n < settled {
				n = number(list, n)
				appendAll(b, s, list)
				ackFirst(b, s, batch)
			}
			number(list, n)
			appendAll(b, s, list[:1])
			for b.Loop() {
				c, err := s.Claim(b.Context(), "q", team.ClaimOptions{Max: 1, Lease: hour})
				if err != nil || len(c) != 1 {
					b.Fatalf("Claim = %d items, %v, want 1", len(c), err)
				}
				if err := s.Settle(b.Context(), "q", by(c[0], team.VerdictRelease)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}

	for _, keys := range []int{1, 1000} {
		b.Run(fmt.Sprintf("op=put/keys=%d", keys), func(b *testing.B) {
			s, versions, n := open(b), make([]team.Version, keys), 0
			for b.Loop() {
				v, err := s.Put(b.Context(), fmt.Sprint("key/", n%keys), benchData, versions[n%keys])
				if err != nil {
					b.Fatal(err)
				}
				versions[n%keys] = v
				n++
			}
		})
	}
}

var benchData = make([]byte, 256)

func benchItems(n int) []team.Item {
	list := make([]team.Item, n)
	for i := range list {
		list[i].Data = benchData
	}
	return list
}

// number gives the items ids that were not there before, and returns how many
// there are now.
func number(list []team.Item, n int) int {
	for i := range list {
		n++
		list[i].ID = fmt.Sprint("i", n)
	}
	return n
}

func appendAll(b *testing.B, s team.Store, list []team.Item) {
	if _, err := s.Append(b.Context(), "q", list, 0); err != nil {
		b.Fatal(err)
	}
}

// ackFirst claims the first n items and acks them.
func ackFirst(b *testing.B, s team.Store, n int) {
	claims, err := s.Claim(b.Context(), "q", team.ClaimOptions{Max: n, Lease: hour})
	if err != nil || len(claims) != n {
		b.Fatalf("Claim = %d items, %v, want %d", len(claims), err, n)
	}
	list := make([]team.Settlement, len(claims))
	for i, c := range claims {
		list[i] = by(c, team.VerdictAck)
	}
	if err := s.Settle(b.Context(), "q", list...); err != nil {
		b.Fatal(err)
	}
}

package team_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

const benchChildren = 10_000

func benchJoin(b *testing.B) (*team.Join, []team.SessionID) {
	j := openJoin(b, new(memstore.Store), nil)
	ids := make([]team.SessionID, benchChildren)
	for i := range ids {
		ids[i] = team.SessionID(fmt.Sprintf("ses_dd4c79ce1ffe%014d", i))
	}
	register(b, j, ids...)
	for _, id := range ids {
		observe(b, j, busy(id))
	}
	return j, ids
}

// BenchmarkJoinObserve is what an event costs with 10 000 children, by what it is: one of
// a foreign session, one that says that a child works, and the two in the mix of a stream (each
// child's turn: one start, 50 pieces of text, one end, and as much of foreign sessions).
func BenchmarkJoinObserve(b *testing.B) {
	run := func(b *testing.B, next func(i int) team.Event, n int) {
		j, _ := benchJoin(b)
		events := make([]team.Event, n)
		for i := range events {
			events[i] = next(i)
		}
		ctx := b.Context()
		i := 0
		b.ReportAllocs()
		for b.Loop() {
			_, _ = j.Observe(ctx, events[i])
			if i++; i == len(events) {
				i = 0
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	}
	child := func(i int) team.SessionID {
		return team.SessionID(fmt.Sprintf("ses_dd4c79ce1ffe%014d", i%benchChildren))
	}
	foreign := func(i int) team.SessionID {
		return team.SessionID(fmt.Sprintf("ses_ee4c79ce1ffe%014d", i%benchChildren))
	}
	b.Run("foreign", func(b *testing.B) {
		run(b, func(i int) team.Event { return ev(foreign(i), "session.text.delta", `{"delta":"x"}`) }, benchChildren)
	})
	b.Run("working", func(b *testing.B) {
		run(b, func(i int) team.Event { return ev(child(i), "session.text.delta", `{"delta":"x"}`) }, benchChildren)
	})
	b.Run("mix", func(b *testing.B) {
		run(b, func(i int) team.Event {
			switch c := i / 104; i % 104 {
			case 0:
				return busy(child(c))
			case 103:
				return idle(child(c))
			default:
				if i%2 == 0 {
					return ev(foreign(c), "message.part.delta", `{"delta":"x"}`)
				}
				return ev(child(c), "message.part.delta", `{"delta":"x"}`)
			}
		}, 104*benchChildren)
	})
}

// BenchmarkJoinSettle is what a change costs that is written: a turn that begins and one that ends.
func BenchmarkJoinSettle(b *testing.B) {
	j, ids := benchJoin(b)
	ctx := b.Context()
	i := 0
	for b.Loop() {
		id := ids[i/2%len(ids)]
		e := idle(id)
		if i%2 == 1 {
			e = busy(id)
		}
		_, _ = j.Observe(ctx, e)
		i++
	}
}

// BenchmarkJoinMemory is what a child costs in memory beside what the store holds.
func BenchmarkJoinMemory(b *testing.B) {
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	store := new(memstore.Store)
	j := openJoin(b, store, nil)
	for i := range benchChildren {
		register(b, j, team.SessionID(fmt.Sprintf("ses_dd4c79ce1ffe%014d", i)))
	}
	for b.Loop() {
		before := heap()
		again := openJoin(b, store, nil)
		after := heap()
		got, err := again.Children(b.Context(), nil)
		require.NoError(b, err)
		require.Len(b, got, benchChildren)
		b.ReportMetric((after-before)/benchChildren, "B/child")
	}
	runtime.KeepAlive(j)
}

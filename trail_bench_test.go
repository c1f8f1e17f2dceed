package team_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

// BenchmarkTrailRecord compares Record with the floor: one append of as many
// bytes to an open file, and with Sync its fsync. Both take turns in one loop, so
// that the disk's moods hit both; "ratio" is the one to look at.
func BenchmarkTrailRecord(b *testing.B) {
	for _, sync := range []bool{false, true} {
		b.Run(fmt.Sprintf("sync=%v", sync), func(b *testing.B) {
			dir := b.TempDir()
			trail := openTrail(b, filepath.Join(dir, "trail"), &team.TrailOptions{Sync: sync, Patience: time.Minute})
			floor, err := os.OpenFile(filepath.Join(dir, "floor"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
			require.NoError(b, err)
			defer floor.Close()
			event := benchEvent()
			trail.Record(b.Context(), event)
			started := trail.Stats()
			trail.Record(b.Context(), event)
			line := make([]byte, trail.Stats().Bytes-started.Bytes)
			var ours, bare stopwatch
			n := 0
			for b.Loop() {
				ours.time(func() { trail.Record(b.Context(), event) })
				bare.time(func() {
					if _, err := floor.Write(line); err != nil {
						b.Fatal(err)
					}
					if sync {
						if err := floor.Sync(); err != nil {
							b.Fatal(err)
						}
					}
				})
				n++
			}
			stats := trail.Stats()
			require.Zero(b, stats.Lost)
			b.ReportMetric(ours.per(n)/1e3, "record-µs/op")
			b.ReportMetric(bare.per(n)/1e3, "floor-µs/op")
			b.ReportMetric(ours.per(n)/bare.per(n), "ratio")
			b.ReportMetric(float64(stats.Bytes-started.Bytes)/float64(stats.Lines-started.Lines), "disk-B/op")
		})
	}
}

// BenchmarkTrailRecordParallel has 64 goroutines on one trail.
func BenchmarkTrailRecordParallel(b *testing.B) {
	for _, sync := range []bool{false, true} {
		b.Run(fmt.Sprintf("sync=%v", sync), func(b *testing.B) {
			trail := openTrail(b, filepath.Join(b.TempDir(), "trail"), &team.TrailOptions{Sync: sync, Patience: time.Minute})
			event := benchEvent()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					trail.Record(b.Context(), event)
				}
			})
			require.Zero(b, trail.Stats().Lost)
		})
	}
}

func BenchmarkTrailVerify(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "trail")
	trail := openTrail(b, dir, nil)
	for range 20000 {
		trail.Record(b.Context(), benchEvent())
	}
	b.SetBytes(trail.Stats().Bytes)
	for b.Loop() {
		report, err := team.VerifyTrail(b.Context(), dir)
		require.NoError(b, err)
		require.NoError(b, report.Err())
	}
}

func benchEvent() team.TraceEvent {
	return team.TraceEvent{
		Op: "inbox.send", ID: "sig_abcdefghijklmnopqrstuvwxyz", By: team.Caller{Session: "ses_4f3a9c2b1d0e", Role: "architect"},
		Target: "ses_9a8b7c6d5e4f", Outcome: "ok", Size: 2048, SHA256: strings.Repeat("0123456789abcdef", 4),
	}
}

// BenchmarkRetrace looks for the lines of 1000 signals in a trail of 20 000.
func BenchmarkRetrace(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "trail")
	trail := openTrail(b, dir, nil)
	c, _ := newTeam(b, &team.SignalOptions{Trace: trail.Record, MaxPending: team.NoLimit})
	for range 1000 {
		send(b, c, "tester", "lead", note("x"))
	}
	record(trail, "other", 19_000)
	lines := 0
	for b.Loop() {
		n, err := c.Retrace(b.Context(), team.ReadTrail(b.Context(), dir), &team.RetraceOptions{MinAge: 1})
		require.NoError(b, err)
		require.Zero(b, n)
		lines += 20_000
	}
	b.ReportMetric(float64(lines)/b.Elapsed().Seconds(), "lines/s")
}

package team_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/teamchan/team"
)

// A stopwatch adds up the time of parts of a benchmark.
type stopwatch struct{ sum time.Duration }

func (s *stopwatch) time(f func()) {
	start := time.Now()
	f()
	s.sum += time.Since(start)
}

// per returns the nanoseconds for each of n.
func (s *stopwatch) per(n int) float64 { return float64(s.sum.Nanoseconds()) / float64(n) }

func BenchmarkFormatSignal(b *testing.B) {
	for _, size := range []int{0, 256, 2048} {
		s := sampleSignal()
		s.Body = strings.Repeat("three tests fail & <one> hangs\n", size/31+1)[:size]
		b.Run(fmt.Sprintf("body=%dB", size), func(b *testing.B) {
			var text string
			for b.Loop() {
				text = team.FormatSignal(team.SignalSecret{1}, s)
			}
			b.SetBytes(int64(len(text)))
			b.ReportMetric(float64(len(text)), "context-B/op")
		})
	}
}

func BenchmarkParseSignal(b *testing.B) {
	text := team.FormatSignal(team.SignalSecret{1}, sampleSignal())
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := team.ParseSignal(team.SignalSecret{1}, text); err != nil {
			b.Fatal(err)
		}
	}
}

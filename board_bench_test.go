package team_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/teamchan/team"
)

// BenchmarkBoardWrite compares Write with the floor: write, fsync, link, fsync of
// the folder. Both take turns in one loop, so that the disk's moods hit both;
// "ratio" is the one to look at.
func BenchmarkBoardWrite(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 128 << 10} {
		b.Run(fmt.Sprintf("body=%dKiB", size>>10), func(b *testing.B) {
			dir := b.TempDir()
			board := openBoard(b, filepath.Join(dir, "board"), &team.BoardOptions{MaxFiles: team.NoLimit, MaxTasks: team.NoLimit})
			floor := filepath.Join(dir, "floor")
			mkdir(b, floor)
			body := strings.Repeat("a line of a deliverable\n", size/24+1)[:size]
			ctx := as(b.Context(), "architect")
			var ours, bare stopwatch
			var context int
			n := 0
			for b.Loop() {
				d := draft(body)
				d.Session = fmt.Sprint("s", n/200) // sessions of the usual size
				ours.time(func() {
					e, err := board.Write(ctx, d)
					if err != nil {
						b.Fatal(err)
					}
					context += len(e.Path)
				})
				to := filepath.Join(floor, fmt.Sprint("s", n/200))
				if n%200 == 0 {
					mkdir(b, to)
				}
				bare.time(func() { bareWrite(b, to, n, body) })
				n++
			}
			b.ReportMetric(ours.per(n)/1e3, "write-µs/op")
			b.ReportMetric(bare.per(n)/1e3, "floor-µs/op")
			b.ReportMetric(ours.per(n)/bare.per(n), "ratio")
			b.ReportMetric(float64(context)/float64(n), "context-B/op") // what enters a reader's context: the path
		})
	}
}

func bareWrite(b *testing.B, dir string, n int, body string) {
	temp, name := filepath.Join(dir, fmt.Sprint("t", n)), filepath.Join(dir, fmt.Sprint("f", n))
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = f.WriteString(body)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = os.Link(temp, name)
	}
	if err == nil {
		err = os.Remove(temp)
	}
	if err == nil {
		var d *os.File
		if d, err = os.Open(dir); err == nil {
			err = d.Sync()
			d.Close()
		}
	}
	if err != nil {
		b.Fatal(err)
	}
}

func BenchmarkBoardEntries(b *testing.B) {
	const sessions, tasks, each = 50, 10, 20 // 10 000 entries
	dir := filepath.Join(b.TempDir(), "board")
	board := openBoard(b, dir, &team.BoardOptions{MaxFiles: team.NoLimit})
	// One real entry, copied under the names of the others, is quicker than 10 000 fsyncs.
	for s := range sessions {
		d := draft(strings.Repeat("a line of a deliverable\n", 100))
		d.Session, d.Task = fmt.Sprint("s", s), "t0"
		content, err := os.ReadFile(write(b, board, d).Path)
		if err != nil {
			b.Fatal(err)
		}
		for t := range tasks {
			mkdir(b, filepath.Join(dir, d.Session, fmt.Sprint("t", t)))
			for n := range each {
				put(b, filepath.Join(dir, d.Session, fmt.Sprint("t", t), fmt.Sprintf("%02d-architect-api-design.md", n+1)), string(content))
			}
		}
	}
	for b.Loop() {
		n, context := 0, 0
		for e, err := range board.Entries(b.Context(), team.Filter{}) {
			if err != nil || e.Changed {
				b.Fatal(e, err)
			}
			n++
			context += len(e.Path)
		}
		if n != sessions*tasks*each {
			b.Fatalf("%d entries", n)
		}
		b.ReportMetric(float64(context), "context-B/op")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(sessions*tasks*each), "ns/entry")
}

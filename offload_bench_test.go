package team_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// BenchmarkOffloadShorten compares 1 MB with the floor: SHA-256, write, fsync. Both
// take turns in one loop, so that the disk's moods hit both; "ratio" is the one to
// look at.
func BenchmarkOffloadShorten(b *testing.B) {
	long := func(unit string) string { return strings.Repeat(unit, 1+1_000_000/len(unit))[:1_000_000-64] }
	rows := samples()[team.ClassJSON] + ", "
	texts := map[string]struct{ first, rest string }{ // first makes each text another one
		"log":  {"2026-08-01T10:00:00Z INFO %d\n", long(samples()[team.ClassLog])},
		"text": {"%d\n", long(logLines(500))},
		"json": {`{"n": %d, "rows": [`, strings.Repeat(rows, 1_000_000/len(rows)) + "0]}"},
		"code": {"// %d\n", long(samples()[team.ClassCode])},
	}
	for _, class := range []string{"text", "log", "json", "code"} {
		b.Run(class, func(b *testing.B) {
			o := newOffload(b, nil)
			dir := filepath.Join(b.TempDir(), "floor")
			mkdir(b, dir)
			var ours, bare stopwatch
			n := 0
			for b.Loop() {
				text := fmt.Sprintf(texts[class].first, n) + texts[class].rest
				src := team.Source{Class: team.Class(class)}
				ours.time(func() {
					s, err := o.ShortenText(b.Context(), text, src)
					if err != nil || s.Failed != nil {
						b.Fatal(err, s.Failed)
					}
				})
				bare.time(func() {
					sha256.Sum256([]byte(text))
					f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(n)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
					if err == nil {
						_, err = f.WriteString(text)
					}
					if err == nil {
						err = f.Sync()
					}
					if err == nil {
						err = f.Close()
					}
					if err != nil {
						b.Fatal(err)
					}
				})
				n++
			}
			b.ReportMetric(ours.per(n)/1e6, "shorten-ms/op")
			b.ReportMetric(bare.per(n)/1e6, "floor-ms/op")
			b.ReportMetric(ours.per(n)/bare.per(n), "ratio")
		})
	}
}

// BenchmarkOffloadStream has the allocations of a stream, for each MB.
func BenchmarkOffloadStream(b *testing.B) {
	o := newOffload(b, nil)
	const size = 32 << 20
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		s, err := o.ShortenReader(b.Context(), io.LimitReader(endless{}, size), team.Source{})
		if err != nil || s.Failed != nil {
			b.Fatal(err, s.Failed)
		}
	}
}

// BenchmarkOffloadResult is 1 MB through the hook of a tool, which comes back as it
// is known already: what the hook costs beside the disk.
func BenchmarkOffloadResult(b *testing.B) {
	o := newOffload(b, nil)
	res := team.ToolResult{Tool: "bash", Result: v1(strings.Repeat(logLines(1000), 21)[:1_000_000], nil)}
	b.SetBytes(int64(len(res.Result)))
	b.ReportAllocs()
	for b.Loop() {
		if _, s, err := o.ShortenResult(b.Context(), res); err != nil || s.Handle == "" {
			b.Fatal(err, s.Failed)
		}
	}
}

// BenchmarkOffloadFetch is a range out of 100 MB: the first time, when the digest is
// checked, compared with SHA-256 over a read of the file, and later.
func BenchmarkOffloadFetch(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "offload")
	index := new(memstore.Store)
	o := openOffload(b, dir, index, nil)
	s, err := o.ShortenReader(b.Context(), io.LimitReader(endless{}, 100<<20), team.Source{})
	if err != nil || s.Failed != nil {
		b.Fatal(err, s.Failed)
	}
	middle := team.FetchOptions{Range: team.Range{Line: int(s.Size / 18 / 2), Lines: 50}}
	b.Run("first", func(b *testing.B) {
		var ours, bare stopwatch
		n := 0
		for b.Loop() {
			fresh := openOffload(b, dir, index, nil)
			ours.time(func() {
				if _, err := fresh.Fetch(b.Context(), s.Handle, middle); err != nil {
					b.Fatal(err)
				}
			})
			bare.time(func() {
				f, err := os.Open(s.Path)
				if err == nil {
					_, err = io.Copy(sha256.New(), f)
					f.Close()
				}
				if err != nil {
					b.Fatal(err)
				}
			})
			n++
		}
		b.ReportMetric(ours.per(n)/1e6, "fetch-ms/op")
		b.ReportMetric(bare.per(n)/1e6, "digest-ms/op")
		b.ReportMetric(ours.per(n)/bare.per(n), "ratio")
	})
	for name, opts := range map[string]team.FetchOptions{
		"later, lines": middle, "later, bytes": {Range: team.Range{Offset: 50 << 20, Bytes: 2000}}, "later, pattern": {Grep: "nothing like it"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := o.Fetch(b.Context(), s.Handle, opts); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package sqlitestore_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// openOffload opens a folder over a store of its own, as another process would.
func openOffload(tb testing.TB, dir string, opts *team.OffloadOptions) *team.Offload {
	tb.Helper()
	store, err := sqlitestore.Open(tb.Context(), filepath.Join(dir, "index.db"), nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { store.Close() })
	o, err := team.OpenOffload(tb.Context(), filepath.Join(dir, "offload"), store, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { o.Close() })
	return o
}

func longText(n int) string {
	return fmt.Sprint(n, "\n", strings.Repeat("some words of a line of a long result\n", 900))
}

// Several openings of one folder and one database shorten, fetch and collect at
// once: what is there is whole, and what is gone says so.
func TestOffloadFromSeveralOpenings(t *testing.T) {
	dir := t.TempDir()
	opts := &team.OffloadOptions{MaxBytes: 150_000, MinAge: 1}
	var wg sync.WaitGroup
	for w := range 3 {
		o := openOffload(t, dir, opts)
		wg.Go(func() {
			for i := range 25 {
				text := longText((i + w) % 9)
				s, err := o.ShortenText(context.Background(), text, team.Source{})
				if err != nil || s.Failed != nil {
					t.Error(err, s.Failed)
					continue
				}
				f, err := o.Fetch(context.Background(), s.Handle, team.FetchOptions{Budget: 50_000})
				if gone := (*team.CollectedError)(nil); err == nil && f.Text != text || err != nil && !errors.As(err, &gone) {
					t.Errorf("fetched %d bytes, %v", len(f.Text), err)
				}
				if i%5 == w {
					if _, err := o.Collect(context.Background(), nil); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	o := openOffload(t, dir, opts)
	time.Sleep(2 * time.Millisecond)
	report, err := o.Collect(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range report.Items {
		if item.Err != nil || item.Reason == team.SweepForeign {
			t.Errorf("%+v", item)
		}
	}
	stats, err := o.Stats(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	if stats.Bytes > opts.MaxBytes || stats.Handles == 0 {
		t.Errorf("%d texts of %d bytes are left, want some and at most %d", stats.Handles, stats.Bytes, opts.MaxBytes)
	}
	for _, e := range stats.Recent {
		body, err := os.ReadFile(e.Path)
		if sum := sha256.Sum256(body); err != nil || hex.EncodeToString(sum[:]) != e.SHA256 {
			t.Errorf("%s: %v", e.Path, err)
		}
	}
}

// BenchmarkOffloadShorten is 1 MB with its index in SQLite, beside SHA-256, write and
// fsync.
func BenchmarkOffloadShorten(b *testing.B) {
	dir := b.TempDir()
	o := openOffload(b, dir, nil)
	rest := strings.Repeat("a line of a result, with a few words in it\n", 1+1_000_000/43)[:1_000_000-24]
	var ours, bare time.Duration
	n := 0
	for b.Loop() {
		text := fmt.Sprintf("%024d", n) + rest
		start := time.Now()
		if s, err := o.ShortenText(b.Context(), text, team.Source{}); err != nil || s.Failed != nil {
			b.Fatal(err, s.Failed)
		}
		ours += time.Since(start)
		start = time.Now()
		sha256.Sum256([]byte(text))
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint("floor", n)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
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
		bare += time.Since(start)
		n++
	}
	b.ReportMetric(ours.Seconds()*1e3/float64(n), "shorten-ms/op")
	b.ReportMetric(bare.Seconds()*1e3/float64(n), "floor-ms/op")
	b.ReportMetric(float64(ours)/float64(bare), "ratio")
}

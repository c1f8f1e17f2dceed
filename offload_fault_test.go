package team

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// mapRecords is the least that an index must be: memstore would import this package.
type mapRecords map[string]Record

func (m mapRecords) Get(_ context.Context, key string) (Record, error) {
	r, ok := m[key]
	if !ok {
		return r, ErrNotFound
	}
	return r, nil
}

func (m mapRecords) Put(_ context.Context, key string, value []byte, prev Version) (Version, error) {
	if prev != AnyVersion && m[key].Version != prev {
		return "", ErrConflict
	}
	v := Version(newHandleID())
	m[key] = Record{Key: key, Value: append([]byte(nil), value...), Version: v}
	return v, nil
}

func (m mapRecords) Delete(_ context.Context, key string, prev Version) error {
	if m[key].Version == "" {
		return ErrNotFound
	}
	if prev != AnyVersion && m[key].Version != prev {
		return ErrConflict
	}
	delete(m, key)
	return nil
}

func (m mapRecords) Keys(_ context.Context, prefix, after string) iter.Seq2[string, error] {
	var keys []string
	for k := range m {
		if strings.HasPrefix(k, prefix) && k > after {
			keys = append(keys, k)
		}
	}
	return func(yield func(string, error) bool) {
		for _, k := range keys {
			if !yield(k, nil) {
				return
			}
		}
	}
}

// The disk fails at every step: the text is cut and says so, or is stored whole; and
// a collection leaves only what has a record.
func TestOffloadDiskFailsAnywhere(t *testing.T) {
	text := strings.Repeat("some words of a line\n", 3000)
	for _, stream := range []bool{false, true} {
		for at := 1; ; at++ {
			index := mapRecords{}
			o, err := OpenOffload(t.Context(), filepath.Join(t.TempDir(), "o"), index, nil)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			broken := errors.New("no space left")
			o.step = func(op, name string) error {
				if n++; n == at {
					return broken
				}
				return nil
			}
			var s Shortened
			if stream {
				s, err = o.ShortenReader(t.Context(), strings.NewReader(strings.Repeat(text, 3)), Source{})
			} else {
				s, err = o.ShortenText(t.Context(), text, Source{})
			}
			if err != nil {
				t.Fatal(err)
			}
			if n < at {
				if s.Failed != nil || s.Handle == "" || at < 6 {
					t.Fatalf("without a fault: %+v", s)
				}
				break
			}
			failed := s.Failed != nil
			if failed && (!errors.Is(s.Failed, broken) || s.Handle != "" || !strings.Contains(s.Text, "could not be kept")) {
				t.Errorf("step %d: %+v", at, s)
			}
			old := time.Now().Add(-2 * time.Hour)
			for _, f := range filesLeft(t, o) { // as if it were long ago
				_ = os.Chtimes(filepath.Join(o.Dir(), f), old, old)
			}
			o.step = nil
			if _, err := o.Collect(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			left := filesLeft(t, o)
			if failed && len(left) != 0 || !failed && len(left) != 1 {
				t.Errorf("step %d, failed: %v, left: %v", at, failed, left)
			}
			// And it works again.
			if s, err := o.ShortenText(t.Context(), text, Source{}); err != nil || s.Failed != nil {
				t.Errorf("step %d, afterwards: %v %v", at, err, s.Failed)
			}
			o.Close()
		}
	}
}

// A lockedRecords is a mapRecords for several goroutines.
type lockedRecords struct {
	mu sync.Mutex
	m  mapRecords
}

func (l *lockedRecords) Get(ctx context.Context, key string) (Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.m.Get(ctx, key)
}

func (l *lockedRecords) Put(ctx context.Context, key string, value []byte, prev Version) (Version, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.m.Put(ctx, key, value, prev)
}

func (l *lockedRecords) Delete(ctx context.Context, key string, prev Version) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.m.Delete(ctx, key, prev)
}

func (l *lockedRecords) Keys(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.m.Keys(ctx, prefix, after)
}

// The record may be there before the file is synced. If that fails, the handle is
// taken back, unless somebody else was told of it in the meantime: who syncs it for
// itself.
func TestOffloadSyncFailsBehindTheRecord(t *testing.T) {
	text := strings.Repeat("some words of a line\n", 3000)
	for _, used := range []bool{false, true} {
		dir, index := filepath.Join(t.TempDir(), "o"), &lockedRecords{m: mapRecords{}}
		open := func() *Offload {
			o, err := OpenOffload(t.Context(), dir, index, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { o.Close() })
			return o
		}
		o, other := open(), open()
		handles := func() int {
			stats, err := other.Stats(t.Context(), 0)
			if err != nil {
				t.Error(err)
			}
			return stats.Handles
		}
		var theirs Shortened
		syncs := 0
		other.step = func(op, name string) error {
			if op == "sync" || op == "syncdir" {
				syncs++
			}
			return nil
		}
		o.step = func(op, name string) error {
			if op != "sync" {
				return nil
			}
			for handles() == 0 {
				time.Sleep(time.Millisecond)
			}
			if used {
				theirs, _ = other.ShortenText(context.Background(), text, Source{})
			}
			return errors.New("disk on fire")
		}
		ours, err := o.ShortenText(t.Context(), text, Source{})
		if err != nil || ours.Failed == nil || ours.Handle != "" {
			t.Fatalf("%+v, %v, want a failure", ours, err)
		}
		o.step = nil
		if !used {
			if n, files := handles(), filesLeft(t, o); n != 0 || len(files) != 0 {
				t.Errorf("%d handles, files %v, want none", n, files)
			}
			continue
		}
		if !theirs.Replayed || theirs.Failed != nil || syncs != 2 {
			t.Errorf("%+v after %d syncs, want one of the file and one of the folder", theirs, syncs)
		}
		if f, err := o.Fetch(t.Context(), theirs.Handle, FetchOptions{Budget: 100_000}); err != nil || f.Text != text {
			t.Errorf("%d bytes, %v", len(f.Text), err)
		}
	}
}

// A collection fails at every step; the next one finishes it.
func TestCollectFailsAnywhere(t *testing.T) {
	for at := 1; ; at++ {
		o, err := OpenOffload(t.Context(), filepath.Join(t.TempDir(), "o"), mapRecords{}, &OffloadOptions{MaxBytes: 1, MinAge: 1})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if s, _ := o.ShortenText(t.Context(), fmt.Sprint(i, strings.Repeat("some words of a line\n", 3000)), Source{}); s.Failed != nil {
				t.Fatal(s.Failed)
			}
		}
		time.Sleep(2 * time.Millisecond)
		n := 0
		o.step = func(op, name string) error {
			if n++; n == at {
				return errors.New("read-only")
			}
			return nil
		}
		report, err := o.Collect(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		o.step = nil
		failed := 0
		for _, item := range report.Items {
			if item.Reason == SweepFailed {
				failed++
			}
		}
		if n < at {
			if at < 4 || failed > 0 {
				t.Fatalf("%d steps, %d failed", n, failed)
			}
			return
		}
		if failed != 1 || len(filesLeft(t, o)) != 1 {
			t.Errorf("step %d: %+v", at, report)
		}
		if _, err := o.Collect(t.Context(), nil); err != nil || len(filesLeft(t, o)) != 0 {
			t.Errorf("step %d, again: %v, left %v", at, err, filesLeft(t, o))
		}
		o.Close()
	}
}

func filesLeft(t *testing.T, o *Offload) []string {
	t.Helper()
	all, err := list(o.root, ".")
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, name := range all {
		if name != offloadIDFile {
			left = append(left, name)
		}
	}
	return left
}

// A hookedRecords calls before in front of each Put.
type hookedRecords struct {
	mapRecords
	before func(key string)
}

func (h *hookedRecords) Put(ctx context.Context, key string, value []byte, prev Version) (Version, error) {
	if h.before != nil {
		h.before(key)
	}
	return h.mapRecords.Put(ctx, key, value, prev)
}

// A writer that is between the file's name and its record holds the file: no
// collection takes it, however old it looks.
func TestCollectWaitsForTheWriter(t *testing.T) {
	index := &hookedRecords{mapRecords: mapRecords{}}
	o, err := OpenOffload(t.Context(), filepath.Join(t.TempDir(), "o"), index, &OffloadOptions{MaxBytes: 1, MinAge: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	collected := 0
	done := make(chan struct{})
	o.step = func(op, name string) error {
		if op == "chtimes" { // the sync, which goes on beside the record
			<-done
		}
		return nil
	}
	index.before = func(key string) {
		if !strings.Contains(key, offloadHandles) {
			return
		}
		index.before = nil
		defer close(done)
		old := time.Now().Add(-2 * time.Hour)
		for _, f := range filesLeft(t, o) {
			_ = os.Chtimes(filepath.Join(o.Dir(), f), old, old)
		}
		report, err := o.Collect(t.Context(), nil)
		if err != nil {
			t.Error(err)
		}
		for _, item := range report.Items {
			if item.Reason != SweepBusy {
				t.Errorf("%+v", item)
			}
			collected++
		}
	}
	s, err := o.ShortenText(t.Context(), strings.Repeat("some words of a line\n", 3000), Source{})
	if err != nil || s.Failed != nil || collected == 0 {
		t.Fatal(err, s.Failed, collected)
	}
	if _, err := o.Fetch(t.Context(), s.Handle, FetchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkOffloadPreview is the preview alone, its counts included and the
// estimate of the tokens not.
func BenchmarkOffloadPreview(b *testing.B) {
	for class, unit := range map[Class]string{
		ClassText:    "a line of a result, with a few words in it\n",
		ClassLog:     "2026-08-01T10:00:00.123Z INFO  request 17 done in 3 ms\n",
		ClassJSON:    `{"id": 17, "name": "a name", "tags": ["a", "b"], "text": "some words of a value that is longer"}` + "\n",
		ClassCSV:     "17,a name,\"x, y\",4711,2026-08-01\n",
		ClassCode:    "// F adds.\nfunc F(a, b int) int {\n\tif a > b {\n\t\treturn a\n\t}\n\treturn a + b\n}\n\n",
		ClassReport:  "## Section\n\nProse that explains at length what everybody knows.\n\n- a point\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n",
		ClassBinary:  "\x00\x01\x02\x03\xff\xfe",
		ClassUnknown: "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo",
	} {
		b.Run(string(class), func(b *testing.B) {
			text := []byte(strings.Repeat(unit, 1+(1<<20)/len(unit)))
			budget := DefaultPreviewTokens
			if class == ClassReport {
				budget = DefaultReportTokens
			}
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				sk := newSketch(class, false)
				_, _ = sk.Write(text)
				sk.done()
				if body, _ := sk.preview(budget); body == "" {
					b.Fatal("empty")
				}
			}
		})
	}
}

package team

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/teamchan/team/internal/atomicfile"
)

// A TrailSwept is what a sweep of a trail removed.
type TrailSwept struct {
	Files []string // base names, oldest first
	Bytes int64
}

// Sweep removes the oldest files beyond TrailOptions.Files and those older than
// MaxAge, never the one being written. A line in the trail says which went, before
// they go, so that VerifyTrail takes their end for the trail's beginning. The
// same is done whenever a file is begun; Sweep is for trails that few write to.
func (t *Trail) Sweep(ctx context.Context) (TrailSwept, error) {
	swept, err := t.sweep(ctx)
	return swept, edge("trail.sweep", t.dir, err)
}

func (t *Trail) sweep(ctx context.Context) (swept TrailSwept, err error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return swept, ctx.Err()
	}
	if t.isClosed() {
		return swept, ErrClosed
	}
	if err := t.lock(); err != nil {
		return swept, err
	}
	defer t.unlock()
	if err := t.settle(); err != nil {
		return swept, err
	}
	old, first, err := t.expired()
	if err != nil || len(old) == 0 {
		return swept, err
	}
	t.mark(trailWire{Op: trailSwept, First: first, Count: len(old)})
	if _, err := t.appendLines(nil); err != nil {
		return swept, err
	}
	return t.drop(old)
}

func (t *Trail) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// expired returns the files that are no longer kept, and the first that is, or 0
// if all are: what somebody else removed the trail did not give up. The lock must be
// held.
func (t *Trail) expired() (old []int, first int, err error) {
	files, err := trailFiles(t.root)
	if err != nil {
		return nil, 0, err
	}
	current, found := slices.BinarySearch(files, t.w.end.file)
	if !found {
		return nil, 0, nil // taken away by hand right now
	}
	n := 0
	if t.opts.Files > 0 {
		n = max(0, current+1-t.opts.Files)
	}
	if t.opts.MaxAge != Forever {
		// The last line of a file is older than the first of the next. What cannot
		// be read is kept, and so is what is behind it.
		for limit := time.Now().Add(-t.opts.MaxAge); n < current; n++ {
			begun, ok := t.begun(files[n+1])
			if !ok || begun.After(limit) {
				break
			}
		}
	}
	if n == 0 {
		return nil, 0, nil
	}
	return files[:n], files[n], nil
}

// begun returns the time of a file's first line.
func (t *Trail) begun(n int) (time.Time, bool) {
	f, _, err := atomicfile.OpenRegular(t.root, trailFile(n), os.O_RDONLY)
	if err != nil {
		return time.Time{}, false
	}
	defer f.Close()
	r := newTrailReader(f)
	if !r.next() || r.long {
		return time.Time{}, false
	}
	p := parseTrailLine(r.bytes)
	return p.Time, p.damage == "" && p.Op == trailBegin
}

// drop removes files, oldest first, and stops at one that it cannot remove, so
// that what is left has no hole. The next sweep tries again.
func (t *Trail) drop(files []int) (swept TrailSwept, err error) {
	for _, n := range files {
		name := trailFile(n)
		fi, err := t.root.Lstat(name)
		if err == nil && !fi.Mode().IsRegular() {
			err = t.denied(name, &fs.PathError{Op: "remove", Path: name, Err: atomicfile.ErrNotRegular})
		}
		if err == nil {
			err = t.step.Before("remove", name)
		}
		if err == nil {
			err = t.root.Remove(name)
		}
		if err != nil {
			err = fmt.Errorf("trail file that is no longer kept: %w", err)
			t.fault(err)
			return swept, err
		}
		swept.Files = append(swept.Files, name)
		swept.Bytes += fi.Size()
		t.mu.Lock()
		t.stats.Dropped++
		t.mu.Unlock()
	}
	return swept, nil
}

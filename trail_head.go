package team

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/teamchan/team/internal/atomicfile"
	"github.com/teamchan/team/internal/filelock"
)

// The head is one line of fixed length that is written in place, under its own
// lock, after the lines it tells of. So it is never ahead of them, but for a power
// cut, and what it tells of and is not there was removed.
const (
	trailHeadName  = "trail.head"
	trailHeadStart = "tm-trail 1 "
	trailHeadSize  = len(trailHeadStart) + 8 + 1 + 16 + 1 + 20 + 1 + 2*sha256.Size + 1 + 8 + 1
)

// format returns the head: file, size, seq, hash and a checksum of these.
func (e trailEnd) format() []byte {
	b := append(make([]byte, 0, trailHeadSize), trailHeadStart...)
	b = append(appendPadded(b, uint64(e.file), 8), ' ')
	b = append(appendPadded(b, uint64(e.size), 16), ' ')
	b = append(appendPadded(b, e.seq, 20), ' ')
	b = hex.AppendEncode(b, e.hash[:])
	sum := crc32.ChecksumIEEE(b)
	b = append(b, ' ')
	return append(hex.AppendEncode(b, binary.BigEndian.AppendUint32(nil, sum)), '\n')
}

func appendPadded(b []byte, n uint64, width int) []byte {
	var digits [20]byte
	s := strconv.AppendUint(digits[:0], n, 10)
	for range width - len(s) {
		b = append(b, '0')
	}
	return append(b, s...)
}

func parseTrailHead(b []byte) (e trailEnd, ok bool) {
	f := strings.Fields(string(b))
	if len(f) != 7 || len(f[5]) != 2*sha256.Size {
		return e, false
	}
	var err [4]error
	e.file, err[0] = strconv.Atoi(f[2])
	e.size, err[1] = strconv.ParseInt(f[3], 10, 64)
	e.seq, err[2] = strconv.ParseUint(f[4], 10, 64)
	_, err[3] = hex.Decode(e.hash[:], []byte(f[5]))
	return e, errors.Join(err[:]...) == nil && e.file > 0 && e.size >= 0 && string(e.format()) == string(b)
}

// readTrailHead returns where the trail ends by its head, which mostly is the
// same as last. In an empty or damaged head ok is false.
func readTrailHead(f *os.File, last trailEnd) (e trailEnd, ok bool, err error) {
	var b [trailHeadSize + 1]byte
	n, err := f.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return e, false, err
	}
	if last.file > 0 && string(last.format()) == string(b[:n]) {
		return last, true, nil
	}
	e, ok = parseTrailHead(b[:n])
	return e, ok, nil
}

// trailFile returns the name of the n-th file.
func trailFile(n int) string { return fmt.Sprintf("trail-%08d.jsonl", n) }

// trailFiles returns the numbers of the files that are there, in order.
func trailFiles(root *os.Root) ([]int, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	var files []int
	for _, s := range names {
		digits, _ := strings.CutPrefix(strings.TrimSuffix(s, ".jsonl"), "trail-")
		if n, err := strconv.Atoi(digits); err == nil && n > 0 && s == trailFile(n) {
			files = append(files, n)
		}
	}
	slices.Sort(files)
	return files, err
}

// openHead opens the head, and makes it if it is not there.
func (t *Trail) openHead() (*os.File, fs.FileInfo, error) {
	if t.w.headInfo != nil {
		// The file that was found to be one before is known again by itself.
		if f, err := t.root.OpenFile(trailHeadName, os.O_RDWR, 0); err == nil {
			if fi, err := f.Stat(); err == nil && os.SameFile(fi, t.w.headInfo) {
				return f, fi, nil
			}
			f.Close()
		}
	}
	for {
		f, fi, err := atomicfile.OpenRegular(t.root, trailHeadName, os.O_RDWR)
		if !errors.Is(err, fs.ErrNotExist) {
			t.w.headInfo = fi
			return f, fi, t.denied(trailHeadName, err)
		}
		f, err = t.root.OpenFile(trailHeadName, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		f.Close()
	}
}

// lock takes the trail's lock, or gives up in time.
func (t *Trail) lock() error {
	for range 16 {
		f, fi, err := t.openHead()
		if err != nil {
			return err
		}
		waited := false
		if err = t.step.Before("lock", trailHeadName); err == nil {
			waited, err = t.lockFile(f)
		}
		if err != nil {
			f.Close()
			return err
		}
		if waited {
			if now, err := t.root.Lstat(trailHeadName); err != nil || !os.SameFile(fi, now) {
				f.Close() // somebody removed the file that was waited for
				continue
			}
		}
		t.w.head = f
		return nil
	}
	return fmt.Errorf("%w: %s goes away again and again", ErrConflict, filepath.Join(t.dir, trailHeadName))
}

func (t *Trail) lockFile(f *os.File) (waited bool, err error) {
	ok, err := filelock.Try(f)
	if err == nil && !ok {
		wait, cancel := context.WithTimeout(context.Background(), max(t.opts.Patience>>t.w.misses, time.Millisecond))
		err = filelock.Lock(wait, f)
		cancel()
		waited = true
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.w.misses = min(t.w.misses+1, 10)
		return waited, errTrailBusy
	}
	if errors.Is(err, errors.ErrUnsupported) {
		err = nil // see Trail
	}
	t.w.misses = 0
	return waited, err
}

func (t *Trail) unlock() {
	t.w.head.Close()
	t.w.head = nil
}

func (t *Trail) writeHead() error {
	if err := t.step.Before("head", trailHeadName); err != nil {
		return err
	}
	_, err := t.w.head.WriteAt(t.w.end.format(), 0)
	return err
}

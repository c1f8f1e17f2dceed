package team

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/teamchan/team/internal/atomicfile"
)

// A trailWriter is what the goroutine whose turn it is knows between two writes.
type trailWriter struct {
	end      trailEnd
	head     *os.File // locked, only while writing
	headInfo fs.FileInfo
	data     *os.File // the file end.file
	info     fs.FileInfo
	misses   int // how often in a row the lock was not to be had

	// What the next write has to do first.
	newline bool   // the file does not end in one
	marks   []byte // bodies of own lines, newline-separated
}

func (w *trailWriter) close() {
	if w.data != nil {
		w.data.Close()
		w.data = nil
	}
}

// write appends a line for each body, and first what the trail itself has to say.
// It returns how many bodies are in the file. The turn must be held.
func (t *Trail) write(bodies [][]byte) (n int, err error) {
	if err := t.lock(); err != nil {
		return 0, err
	}
	defer t.unlock()
	for {
		if err := t.settle(); err != nil {
			return n, err
		}
		some, err := t.appendLines(bodies[n:])
		n += some
		if err != nil || n == len(bodies) {
			return n, err
		}
		if err := t.rotate(); err != nil {
			return n, err
		}
	}
}

// settle finds the end of the trail: mostly where this process left it.
func (t *Trail) settle() error {
	w := &t.w
	w.newline, w.marks = false, nil
	if err := t.step.Before("settle", trailHeadName); err != nil {
		return err
	}
	end, ok, err := readTrailHead(w.head, w.end)
	if err != nil {
		return err
	}
	if !ok {
		if end, err = t.findEnd(); err != nil {
			return err
		}
	}
	if w.data != nil && w.end.file != end.file {
		w.close()
	}
	w.end = end
	for {
		size, err := t.openData()
		if errors.Is(err, fs.ErrNotExist) && end.size > 0 {
			// Somebody removed the file. The next one begins behind it, and its number
			// and its first line tell that.
			w.end.file, w.end.size, end.size = end.file+1, 0, 0
			end.file++
			if err := t.writeHead(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if size != w.end.size {
			return t.adopt(size)
		}
		return nil
	}
}

// openData opens the last file, or makes it if it is yet to begin, and returns its
// size.
func (t *Trail) openData() (int64, error) {
	w, name := &t.w, trailFile(t.w.end.file)
	if w.data != nil {
		if fi, err := t.root.Lstat(name); err == nil && os.SameFile(fi, w.info) {
			return fi.Size(), nil
		}
		w.close()
	}
	f, fi, err := atomicfile.OpenRegular(t.root, name, os.O_RDWR|os.O_APPEND)
	if errors.Is(err, fs.ErrNotExist) && w.end.size == 0 {
		if err := t.step.Before("create", name); err != nil {
			return 0, err
		}
		f, err = t.root.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			if fi, err = f.Stat(); err == nil {
				err = atomicfile.SyncDir(t.root, ".", t.step)
			}
			if err != nil {
				f.Close()
			}
		}
	}
	if err != nil {
		return 0, t.denied(name, err)
	}
	w.data, w.info = f, fi
	return fi.Size(), nil
}

// findEnd returns the end of a trail without a head: that of the last line that
// vouches for itself.
func (t *Trail) findEnd() (trailEnd, error) {
	files, err := trailFiles(t.root)
	if err != nil || len(files) == 0 {
		t.w.end = trailEnd{file: 1}
		if err == nil {
			err = t.writeHead() // before the file, so that a file without a head is none of ours
		}
		return t.w.end, err
	}
	last := files[len(files)-1]
	end := trailEnd{file: last}
	for _, n := range slices.Backward(files) {
		f, _, err := atomicfile.OpenRegular(t.root, trailFile(n), os.O_RDONLY)
		if err != nil {
			return end, t.denied(trailFile(n), err)
		}
		r := newTrailReader(f)
		for r.next() {
			if p := parseTrailLine(r.bytes); p.damage == "" && !r.long {
				end.seq, end.hash = p.Seq, p.hash
				if n == last {
					end.size = r.off
				}
			}
		}
		f.Close()
		if r.err != nil {
			return end, r.err
		}
		if end.seq > 0 {
			break
		}
	}
	t.mark(trailWire{Op: trailHead, Reason: "the head was lost"})
	return end, nil
}

// mark puts a line of the trail's own before the next ones.
func (t *Trail) mark(m trailWire) {
	m.Time = time.Now()
	t.w.marks = append(appendTrailBody(t.w.marks, m), '\n')
}

// adopt makes sense of a file whose size is not what the head says. Whole lines
// behind the end come from a writer that was killed before it wrote the head: they
// count. What else is there is the rest of a line. Where bytes are missing, the
// chain goes on from the head, and so tells that lines are.
func (t *Trail) adopt(size int64) error {
	w := &t.w
	if size < w.end.size {
		w.end.size = size
		if size == 0 {
			return nil
		}
		var last [1]byte
		_, err := w.data.ReadAt(last[:], size-1)
		w.newline = last[0] != '\n'
		return err
	}
	good := w.end.size
	r := newTrailReader(io.NewSectionReader(w.data, good, size-good))
	for r.next() {
		if p := parseTrailLine(r.bytes); !r.long && p.follows(w.end) {
			w.end.seq, w.end.hash, good = p.Seq, p.hash, w.end.size+r.off
			w.newline = r.open
		}
	}
	if r.err != nil {
		return r.err
	}
	if good == 0 && r.line == 1 && r.open {
		return t.truncate(0) // a file of which not even the first line was written
	}
	w.end.size = size
	if good == size {
		return nil
	}
	w.newline = r.open
	m := trailWire{Op: trailTorn, Size: -1, Reason: "too long to be the rest of a line"}
	if size-good <= trailTornMax {
		b := make([]byte, size-good)
		if _, err := w.data.ReadAt(b, good); err != nil {
			return err
		}
		b = []byte(strings.TrimRight(string(b), "\n"))
		m.Size, m.SHA256, m.Reason = int64(len(b)), hexDigest(b), ""
	}
	before := w.marks
	w.marks = nil
	t.mark(m) // right behind what it tells of
	w.marks = append(w.marks, before...)
	return nil
}

// trailTornMax bounds what is taken for the rest of killed writers: some tears in
// a row.
const trailTornMax = 64 * trailLineMax

// truncate cuts the last file. A handle for appending cannot everywhere.
func (t *Trail) truncate(size int64) error {
	name := trailFile(t.w.end.file)
	if err := t.step.Before("truncate", name); err != nil {
		return err
	}
	f, fi, err := atomicfile.OpenRegular(t.root, name, os.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	if !os.SameFile(fi, t.w.info) {
		return fs.ErrNotExist
	}
	return f.Truncate(size)
}

// appendLines writes as many bodies as fit into the file, and before them what
// the trail has to say, in one write. A file has at least one line of a body.
func (t *Trail) appendLines(bodies [][]byte) (n int, err error) {
	w, end := &t.w, t.w.end
	var b []byte
	if w.newline {
		b = append(b, '\n')
		end.size++
	}
	var old []int
	lines, begun := int64(0), end.size > 0
	if !begun {
		var first int
		if old, first, err = t.expired(); err != nil {
			return 0, err
		}
		b = end.appendLine(b, appendTrailBody(nil, trailWire{
			Time: time.Now(), Op: trailBegin, File: end.file, First: first, Count: len(old),
		}))
		lines++
	}
	for m := range strings.Lines(string(w.marks)) {
		b = end.appendLine(b, []byte(m[:len(m)-1]))
		lines++
	}
	torn := strings.Count(string(w.marks), `"`+trailTorn+`"`)
	t.mu.Lock()
	gap, why := t.stats.Unmarked, t.why
	t.mu.Unlock()
	if gap > 0 {
		b = end.appendLine(b, appendTrailBody(nil, trailWire{
			Time: time.Now(), Op: trailGap, Count: int(gap), Reason: why.Error(),
		}))
		lines++
	}
	for _, body := range bodies {
		if full := t.opts.FileSize > 0 && end.size+int64(len(body)+trailFrame) > t.opts.FileSize; full && (begun || n > 0) {
			break
		}
		b = end.appendLine(b, body)
		n++
	}
	if len(b) == 0 {
		return 0, nil
	}
	if err := t.put(b); err != nil {
		return 0, err
	}
	end.size = w.end.size + int64(len(b))
	w.end, w.newline, w.marks = end, false, nil
	if t.opts.Sync {
		t.fault(t.syncData())
	}
	t.fault(t.writeHead())
	t.mu.Lock()
	t.stats.Lines += int64(n) + lines
	t.stats.Bytes += int64(len(b))
	t.stats.Torn += int64(torn)
	if gap > 0 {
		t.stats.Unmarked -= gap
		t.stats.Gaps++
	}
	t.mu.Unlock()
	t.drop(old)
	return n, nil
}

// put appends b, or nothing if it can.
func (t *Trail) put(b []byte) error {
	name := trailFile(t.w.end.file)
	err := t.step.Before("write", name)
	if err != nil {
		t.w.data.Write(b[:len(b)/2]) // a full disk takes a part
	} else if _, err = t.w.data.Write(b); err == nil {
		return nil
	}
	if terr := t.truncate(t.w.end.size); terr != nil {
		err = errors.Join(err, terr) // the next writer marks it
	}
	return err
}

func (t *Trail) syncData() error {
	if err := t.step.Before("sync", trailFile(t.w.end.file)); err != nil {
		return err
	}
	return t.w.data.Sync()
}

// rotate ends the file, durably, and turns to the next. The head goes first, so
// that a killed process leaves a file that is yet to begin.
func (t *Trail) rotate() error {
	t.fault(t.syncData())
	before := t.w.end
	t.w.end.file, t.w.end.size = before.file+1, 0
	if err := t.writeHead(); err != nil {
		t.w.end = before
		return err
	}
	t.w.close()
	t.mu.Lock()
	t.stats.Rotations++
	t.mu.Unlock()
	return nil
}

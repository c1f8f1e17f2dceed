package team

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/teamchan/team/internal/atomicfile"
)

// A verifiedFile is an open file whose digest was checked. What is read of it later
// is compared, block by block, with what was there then: a byte that changed since, in
// whatever way, is not served. It is for one goroutine.
type verifiedFile struct {
	file *os.File
	size int64
	*fileFacts

	block []byte // the block that was read last
	at    int64  // its number
}

// fileFacts are what the check of a file found out. They hold as long as the file
// is the same, of the same size and time.
type fileFacts struct {
	info fs.FileInfo
	// sums are of each fetchPiece bytes, keyed by chance: of 64 bits, for a second
	// SHA-256 would double the price of the first check.
	sums []uint64
	seed maphash.Seed
	// newlines has the number of line ends before each linesPerIndex bytes of the file.
	newlines []int64
	lines    int64 // in all, the last one also if it has no end
	durable  atomic.Bool
}

// errRotten is what reading a block returns that is not what was checked.
var errRotten = errors.New("the file changed after it was checked")

func (f *verifiedFile) Close() error { return f.file.Close() }

// ReadAt reads as os.File does, from blocks that are as they were when the file was
// checked.
func (f *verifiedFile) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) && off < f.size {
		if err := f.load(off / fetchPiece); err != nil {
			return n, err
		}
		k := copy(p[n:], f.block[off%fetchPiece:])
		n += k
		off += int64(k)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *verifiedFile) load(block int64) error {
	if f.block != nil && f.at == block {
		return nil
	}
	start := block * fetchPiece
	if f.block == nil {
		f.block = make([]byte, 0, min(fetchPiece, f.size))
	}
	b := f.block[:min(fetchPiece, f.size-start)]
	f.block = nil
	if _, err := f.file.ReadAt(b, start); err == io.EOF {
		return errRotten
	} else if err != nil {
		return err
	}
	if maphash.Bytes(f.seed, b) != f.sums[block] {
		return errRotten
	}
	f.block, f.at = b, block
	return nil
}

// verifiedFiles remembers the files that were checked, the last used first.
type verifiedFiles struct {
	mu   sync.Mutex // guards list
	list []knownFile
}

type knownFile struct {
	name  string
	facts *fileFacts
}

const mostVerified = 256

func (v *verifiedFiles) get(name string, fi fs.FileInfo) *fileFacts {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := slices.IndexFunc(v.list, func(k knownFile) bool { return k.name == name })
	if i < 0 {
		return nil
	}
	known := v.list[i]
	v.list = slices.Delete(v.list, i, i+1)
	was := known.facts.info
	if !os.SameFile(was, fi) || was.Size() != fi.Size() || !was.ModTime().Equal(fi.ModTime()) {
		return nil
	}
	v.list = slices.Insert(v.list, 0, known)
	return known.facts
}

func (v *verifiedFiles) forget(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.list = slices.DeleteFunc(v.list, func(k knownFile) bool { return k.name == name })
}

func (v *verifiedFiles) put(name string, facts *fileFacts) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.list = slices.DeleteFunc(v.list, func(k knownFile) bool { return k.name == name })
	v.list = slices.Insert(v.list, 0, knownFile{name, facts})
	v.list = v.list[:min(len(v.list), mostVerified)]
}

// openVerified opens the file of a record, once its digest is known to be right: by
// an earlier check, or if afresh is set by one now.
func (o *Offload) openVerified(ctx context.Context, r *offloadRecord, afresh bool) (*verifiedFile, error) {
	f, fi, err := o.open(r)
	if errors.Is(err, ErrNotFound) {
		if _, gone := o.live(ctx, r.id); gone != nil {
			err = gone // it was collected in this moment
		}
	}
	if err != nil {
		return nil, err
	}
	facts := o.verified.get(r.File, fi)
	if facts == nil || afresh {
		durable := facts != nil && facts.durable.Load()
		if facts, err = check(ctx, f, fi, r); err != nil {
			o.verified.forget(r.File)
			f.Close()
			return nil, err
		}
		facts.durable.Store(durable)
		o.verified.put(r.File, facts)
	}
	return &verifiedFile{file: f, size: r.Size, fileFacts: facts}, nil
}

// verify reads the whole file of a record, for who is about to promise that the text is
// kept, and syncs it once: its writer may still be at that.
func (o *Offload) verify(ctx context.Context, r *offloadRecord) error {
	f, err := o.openVerified(ctx, r, true)
	if err != nil {
		return err
	}
	defer f.Close()
	if f.durable.Load() || runtime.GOOS == "windows" { // which syncs no file that is open for reading
		return nil
	}
	if err = o.step.Before("sync", r.File); err == nil {
		err = f.file.Sync()
	}
	if err == nil {
		err = atomicfile.SyncDir(o.root, ".", o.step)
	}
	f.durable.Store(err == nil)
	return err
}

// check reads the whole file once.
func check(ctx context.Context, f *os.File, fi fs.FileInfo, r *offloadRecord) (*fileFacts, error) {
	facts := &fileFacts{info: fi, seed: maphash.MakeSeed()}
	hash := sha256.New()
	buf := make([]byte, fetchPiece)
	ends, last := int64(0), byte('\n')
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if at%linesPerIndex == 0 {
			facts.newlines = append(facts.newlines, ends)
		}
		n, err := io.ReadFull(f, buf)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return nil, err
		}
		if n > 0 {
			_, _ = hash.Write(buf[:n])
			facts.sums = append(facts.sums, maphash.Bytes(facts.seed, buf[:n]))
			ends += int64(bytes.Count(buf[:n], []byte("\n")))
			last = buf[n-1]
			at += int64(n)
		}
		if at > r.Size || err != nil {
			break
		}
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != r.SHA256 || fi.Size() != r.Size {
		return nil, &DigestError{Want: r.SHA256, Got: got}
	}
	if facts.lines = ends; last != '\n' {
		facts.lines++
	}
	return facts, nil
}

// lineStart returns where a line starts, counted from 1.
func (f *verifiedFile) lineStart(line int64) (int64, error) {
	if line > max(f.lines, 1) {
		return 0, outside("line", line, f.lines)
	}
	before := line - 1 // line ends to pass
	block := sort.Search(len(f.newlines), func(i int) bool { return f.newlines[i] >= before }) - 1
	if block < 0 {
		return 0, nil
	}
	at := int64(block) * linesPerIndex
	buf := make([]byte, fetchPiece)
	for left := before - f.newlines[block]; ; {
		n, err := f.ReadAt(buf, at)
		if n == 0 && err != nil {
			return 0, err
		}
		for part := buf[:n]; ; {
			i := bytes.IndexByte(part, '\n')
			if i < 0 {
				break
			}
			part = part[i+1:]
			if left--; left == 0 {
				return at + int64(n-len(part)), nil
			}
		}
		at += int64(n)
	}
}

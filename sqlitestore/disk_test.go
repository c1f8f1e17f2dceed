package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/teamchan/team/sqlitestore"
)

// A disk is the VFS of the system, seen by SQLite through something that can make
// calls fail, and that writes down what reaches the disk and what was not synced yet:
// so that a test can tell what a power cut at any moment would leave. It does not
// really sync anything: that would only take time.
type disk struct {
	vfs.VFSFilename
	name string

	mu    sync.Mutex // guards the fields below
	fail  func(diskOp) error
	keeps bool // the log
	log   []diskOp
	files map[string]int // which file a name is, as long as it is there
	last  int
}

type opKind int

const (
	opCreate opKind = iota
	opDelete
	opWrite
	opTruncate
	opSync
	opMark // nothing happens to the disk; a test has come so far
)

// A diskOp is one change.
type diskOp struct {
	kind opKind
	name string // base name
	file int
	off  int64  // of opWrite; the size of opTruncate; the number of opMark
	data []byte // of opWrite
	dir  bool   // the folder is synced with it
}

var disks atomic.Int64 // for names

func newDisk(tb testing.TB) *disk {
	d := &disk{VFSFilename: vfs.Find("os").(vfs.VFSFilename), name: fmt.Sprint("disk", disks.Add(1)), files: make(map[string]int)}
	sqlitestore.RegisterVFS(d.name, d)
	tb.Cleanup(func() { vfs.Unregister(d.name) })
	return d
}

func (d *disk) open(ctx context.Context, path string, opts *sqlitestore.Options) (*sqlitestore.Store, error) {
	return sqlitestore.OpenVFS(ctx, path, opts, d.name)
}

// failing sets what decides whether a change fails; nil is nothing does.
func (d *disk) failing(f func(diskOp) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = f
}

func (d *disk) mark(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, diskOp{kind: opMark, off: int64(n)})
}

// do makes a change, or lets it fail.
func (d *disk) do(op diskOp, change func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		if err := d.fail(op); err != nil {
			return err
		}
	}
	if err := change(); err != nil {
		return err
	}
	if d.keeps {
		op.data = slices.Clone(op.data)
		d.log = append(d.log, op)
	}
	return nil
}

func (d *disk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	_, err := os.Lstat(name.String())
	isNew := errors.Is(err, fs.ErrNotExist)
	f, out, err := d.VFSFilename.OpenFilename(name, flags)
	if err != nil || name == nil {
		return f, out, err
	}
	base := filepath.Base(name.String())
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.files[base]; isNew || !known {
		d.last++
		d.files[base] = d.last
		d.log = append(d.log, diskOp{kind: opCreate, name: base, file: d.last, dir: !isNew})
	}
	const logs = vfs.OPEN_MAIN_JOURNAL | vfs.OPEN_SUPER_JOURNAL | vfs.OPEN_WAL
	return &diskFile{SystemFile: f.(sqlitestore.SystemFile), disk: d, name: base, file: d.files[base], dir: flags&vfs.OPEN_CREATE != 0 && flags&logs != 0}, out, nil
}

func (d *disk) Delete(name string, dir bool) error {
	base := filepath.Base(name)
	return d.do(diskOp{kind: opDelete, name: base, dir: dir}, func() error {
		err := d.VFSFilename.Delete(name, false)
		if err == nil {
			delete(d.files, base)
		}
		return err
	})
}

// A diskFile is an open file of a disk.
type diskFile struct {
	sqlitestore.SystemFile
	disk *disk
	name string
	file int
	dir  bool // the next sync is one of the folder too
}

func (f *diskFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.disk.do(diskOp{kind: opWrite, name: f.name, file: f.file, off: off, data: p}, func() (err error) {
		n, err = f.SystemFile.WriteAt(p, off)
		return err
	})
	return n, err
}

func (f *diskFile) Truncate(size int64) error {
	return f.disk.do(diskOp{kind: opTruncate, name: f.name, file: f.file, off: size}, func() error { return f.SystemFile.Truncate(size) })
}

func (f *diskFile) Sync(vfs.SyncFlag) error {
	return f.disk.do(diskOp{kind: opSync, name: f.name, file: f.file, dir: f.dir}, func() error {
		f.dir = false
		return nil
	})
}

// SizeHint does nothing: it is no change that counts.
func (f *diskFile) SizeHint(int64) error { return nil }

// A platter is what is on a disk after some of its log: what is certain to be there,
// and what may be.
type platter struct {
	durable map[int][]byte
	pending map[int][]diskOp // since the last sync of the file
	names   map[string]int
	safe    map[string]int // names since the last sync of the folder
	marked  int            // the last mark
}

func newPlatter() *platter {
	return &platter{durable: make(map[int][]byte), pending: make(map[int][]diskOp), names: make(map[string]int), safe: make(map[string]int)}
}

func (p *platter) play(op diskOp) {
	switch op.kind {
	case opCreate:
		p.names[op.name] = op.file
		if op.dir { // it was there before
			p.safe[op.name] = op.file
		}
	case opDelete:
		delete(p.names, op.name)
		if op.dir {
			p.safe = maps.Clone(p.names)
		}
	case opWrite, opTruncate:
		p.pending[op.file] = append(p.pending[op.file], op)
	case opSync:
		for _, o := range p.pending[op.file] {
			p.durable[op.file] = apply(p.durable[op.file], o, nil)
		}
		delete(p.pending, op.file)
		if op.dir {
			p.safe = maps.Clone(p.names)
		}
	case opMark:
		p.marked = int(op.off)
	}
}

// apply changes content; a write in sectors that random chooses, or whole.
func apply(content []byte, op diskOp, random *rand.Rand) []byte {
	if op.kind == opTruncate {
		return resize(content, op.off)
	}
	if end := op.off + int64(len(op.data)); end > int64(len(content)) {
		content = resize(content, end)
	}
	for at := 0; at < len(op.data); at += 512 {
		if random == nil || random.IntN(4) > 0 {
			part := op.data[at:min(at+512, len(op.data))]
			copy(content[op.off+int64(at):], part)
		}
	}
	return content
}

func resize(content []byte, size int64) []byte {
	if size <= int64(len(content)) {
		return content[:size]
	}
	return append(content, make([]byte, size-int64(len(content)))...)
}

// cut writes to dir what a power cut leaves: of what was not synced, everything, or
// nothing, or, with random, any part.
func (p *platter) cut(tb testing.TB, dir string, everything bool, random *rand.Rand) {
	tb.Helper()
	names := maps.Clone(p.safe)
	if everything {
		names = maps.Clone(p.names)
	} else if random != nil && random.IntN(2) == 0 {
		names = maps.Clone(p.names)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) { // so that a seed repeats it
		file := names[name]
		content := slices.Clone(p.durable[file])
		for _, op := range p.pending[file] {
			if everything {
				content = apply(content, op, nil)
			} else if random != nil && random.IntN(3) > 0 {
				content = apply(content, op, random)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
}

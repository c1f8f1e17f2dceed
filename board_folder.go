package team

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/text/unicode/norm"

	"github.com/teamchan/team/internal/atomicfile"
	"github.com/teamchan/team/internal/filelock"
	"github.com/teamchan/team/internal/workspace"
)

// controlDir is the folder for what is neither session nor somebody else's: for
// each session a mark, which is locked to number entries, and its leases; and
// temporary files. No session's name starts with a dot.
//
//	.tm/<session>                          the mark
//	.tm/<session>.lease-<unix ms>-<random> a lease
//	.tm/.tmp-<random>                      a file on its way to its name
//
// A mark is made before its session's folder and removed after it, so that a
// process that is killed anywhere leaves nothing that a sweep cannot tell from
// what others made.
const controlDir = ".tm"

func markOf(session string) string { return path.Join(controlDir, session) }

// lockPatience is how long a lock is waited for that does not change hands. Who
// holds it for longer is stopped or hung. The exclusive link keeps entries apart
// all the same, so a writer goes on; nobody else does.
const lockPatience = 5 * time.Second

// here reports whether the board's path still leads to the folder that was opened.
func (b *Board) here() error {
	fi, err := os.Stat(b.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || !os.SameFile(fi, b.info) {
		return fmt.Errorf("%w: the board's folder was moved or replaced; open the board again", ErrConflict)
	}
	return nil
}

// abs returns the absolute path of a file in the board.
func (b *Board) abs(name string) string { return filepath.Join(b.dir, filepath.FromSlash(name)) }

// relative is abs backwards.
func (b *Board) relative(name string) string {
	rel, err := filepath.Rel(b.dir, name)
	if err != nil {
		return name
	}
	return filepath.ToSlash(rel)
}

// checkFolder refuses a session or a task that is no plain folder.
func (b *Board) checkFolder(parts ...string) error {
	for i := range parts {
		name := path.Join(parts[:i+1]...)
		fi, err := b.root.Lstat(name)
		if err != nil {
			return err
		}
		if !fi.IsDir() {
			return notAFolder(b.abs(name))
		}
	}
	return nil
}

func notAFolder(name string) error {
	return fmt.Errorf("%w: %s is no plain folder, and nothing else is entered", ErrDenied, name)
}

// openFolder opens the folder name of parent and nothing else: a link, or a
// folder that comes in its place in this moment, is ErrDenied.
func openFolder(parent *os.Root, name string) (*os.Root, error) {
	want, err := parent.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !want.IsDir() {
		return nil, notAFolder(name)
	}
	dir, err := parent.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	got, err := dir.Stat(".")
	if err == nil && !os.SameFile(want, got) {
		err = notAFolder(name)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// list returns the names in a folder, in no order.
func list(root *os.Root, dir string) ([]string, error) {
	d, err := root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// readDir is list with the types of what is there.
func readDir(root *os.Root, dir string) ([]fs.DirEntry, error) {
	d, err := root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.ReadDir(-1)
}

// folders returns the names of the folders in dir that sessions or tasks can
// have, in no order. A normalising file system hands out another spelling.
func folders(root *os.Root, dir string) ([]string, error) {
	all, err := readDir(root, dir)
	var names []string
	for _, e := range all {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, norm.NFC.String(e.Name()))
		}
	}
	return names, err
}

// ensureSession makes the session's mark and folder if they are not there.
func (b *Board) ensureSession(session string) error {
	err := b.settleFolder(session)
	if err == nil {
		// Whose folder this is, the mark says; lock makes it if it is missing.
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, _, err := b.openMark(session)
	if err != nil {
		return err
	}
	f.Close()
	_, err = b.mkdir(session)
	return err
}

// mkdir makes a folder and makes its name durable.
func (b *Board) mkdir(dir string) (made bool, err error) {
	if err := b.step.Before("mkdir", dir); err != nil {
		return false, err
	}
	if err = b.root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	if made = err == nil; made {
		b.settled.Delete(dir) // it may have the number of one that is gone
	}
	return made, b.settleFolder(dir)
}

// settleFolder checks that dir is a plain folder and makes its name durable, once
// for each folder and process: whoever made it may have been killed before.
func (b *Board) settleFolder(dir string) error {
	fi, err := b.root.Lstat(dir)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return notAFolder(b.abs(dir))
	}
	if known, ok := b.settled.Load(dir); ok && os.SameFile(known.(fs.FileInfo), fi) {
		return nil
	}
	if err := atomicfile.SyncDir(b.root, path.Dir(dir), b.step); err != nil {
		return err
	}
	b.settled.Store(dir, fi)
	return nil
}

// openMark opens the session's mark, and makes it if it is not there.
func (b *Board) openMark(session string) (*os.File, fs.FileInfo, error) {
	name := markOf(session)
	for {
		f, fi, err := atomicfile.OpenRegular(b.root, name, os.O_RDWR)
		if err == nil && workspace.Links(fi) != 1 {
			f.Close()
			if workspace.Links(fi) == 0 {
				continue // removed in this moment
			}
			err = atomicfile.ErrNotRegular // it would be written to elsewhere too
		}
		if errors.Is(err, atomicfile.ErrNotRegular) {
			return nil, nil, fmt.Errorf("%w: %s %w", ErrDenied, b.abs(name), err)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return f, fi, err
		}
		if err := b.step.Before("mark", name); err != nil {
			return nil, nil, err
		}
		f, err = b.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			_, err = b.mkdir(controlDir)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, nil, err
		}
		if f != nil {
			f.Close()
			// Without its mark a session would be nobody's after a power cut.
			if err := atomicfile.SyncDir(b.root, controlDir, b.step); err != nil {
				return nil, nil, err
			}
		}
	}
}

// A sessionLock orders all that number, lease and sweep in a session. It dies with
// its process.
type sessionLock struct {
	f    *os.File // nil if it is not held
	turn *lockTurn
}

// A lockTurn lets one goroutine at a time ask for a session's lock.
type lockTurn struct {
	token chan struct{}
	stuck string // the stamp of a holder that was given up waiting for
}

func (l *sessionLock) unlock() {
	if l.f != nil {
		l.f.Close()
	}
	<-l.turn.token
}

// held reports whether the lock was got; if not, its holder did not move for as
// long as the caller was patient.
func (l *sessionLock) held() bool { return l.f != nil }

// lock takes the lock of a session. Each holder but a sweep stamps the mark, so
// that others can tell a queue that moves from a holder that is stuck. Where
// files cannot be locked, the lock counts as held.
func (b *Board) lock(ctx context.Context, session string, patience time.Duration) (*sessionLock, error) {
	t, _ := b.turns.LoadOrStore(session, &lockTurn{token: make(chan struct{}, 1)})
	turn := t.(*lockTurn)
	select {
	case turn.token <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l := &sessionLock{turn: turn}
	if err := b.acquire(ctx, session, patience, l); err != nil {
		l.unlock()
		return nil, err
	}
	return l, nil
}

func (b *Board) acquire(ctx context.Context, session string, patience time.Duration, l *sessionLock) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for {
		f, got, err := b.openMark(session)
		if err != nil {
			return err
		}
		locked, err := b.waitFor(ctx, f, patience, l.turn)
		if err != nil || !locked {
			f.Close()
			return err
		}
		now, err := b.root.Lstat(markOf(session))
		if err == nil && os.SameFile(got, now) {
			l.f = f
			return nil
		}
		f.Close() // a sweep removed the mark that was waited for
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

// waitFor waits for the lock of a mark as long as it changes hands.
func (b *Board) waitFor(ctx context.Context, f *os.File, patience time.Duration, turn *lockTurn) (bool, error) {
	if ok, err := filelock.Try(f); ok || errors.Is(err, errors.ErrUnsupported) {
		turn.stuck = ""
		return true, nil // nearly always
	}
	for last := ""; ; {
		stamp := readStamp(f)
		wait := patience
		if stamp == last || stamp == turn.stuck {
			wait = 0 // it did not move since
		}
		last = stamp
		short, cancel := context.WithTimeout(ctx, wait)
		err := filelock.Lock(short, f)
		cancel()
		switch {
		case err == nil, errors.Is(err, errors.ErrUnsupported):
			turn.stuck = ""
			return true, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded):
			return false, err
		case wait == 0:
			turn.stuck = stamp
			return false, nil
		}
	}
}

// A mark has two random texts: which session it is, since a name may come back
// after a sweep, and a stamp of who had the lock last.
const randomSize = 26

func readStamp(f *os.File) string { return readText(f, randomSize) }

// id returns which session this is. The lock must be held.
func (l *sessionLock) id() string {
	if id := readText(l.f, 0); len(id) == randomSize {
		return id
	}
	id := rand.Text()
	_, _ = l.f.WriteAt([]byte(id), 0) // if it fails, a lease is not renewed later
	return id
}

// stamp says in the mark that the lock has a new holder.
func (l *sessionLock) stamp() {
	if l.held() {
		_, _ = l.f.WriteAt([]byte(rand.Text()), randomSize) // if it fails, others lose patience sooner
	}
}

func readText(f *os.File, at int64) string {
	var buf [randomSize]byte
	n, _ := f.ReadAt(buf[:], at) // shorter, or of zeros: nothing was written yet
	return string(bytes.Trim(buf[:n], "\x00"))
}

// forget drops what the board remembers of a session that is gone.
func (b *Board) forget(session string, folders []string) {
	b.turns.Delete(session)
	b.settled.Delete(session)
	for _, dir := range folders {
		b.settled.Delete(path.Join(session, dir))
	}
}

// edge adds the operation to an error, once, where a channel returns it.
func edge(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrClosed) {
		err = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return &Error{Op: op, Name: name, Err: err}
}

// notFound adds ErrNotFound to a file system's word for it.
func notFound(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// setDefault replaces a zero option.
func setDefault[T comparable](option *T, value T) {
	var zero T
	if *option == zero {
		*option = value
	}
}

// A limitOption is an option that bounds something.
type limitOption struct {
	name string
	n    int
}

// checkLimits refuses options that are negative and not NoLimit. of is whose they are.
func checkLimits(of string, limits ...limitOption) error {
	for _, limit := range limits {
		if limit.n < NoLimit {
			return &InvalidError{What: of + " option " + limit.name, Why: "is negative", Offset: -1, Advice: "NoLimit turns a limit off"}
		}
	}
	return nil
}

// over reports whether n is more than the limit max, if that is one.
func over(n, max int) bool { return max >= 0 && n > max }

func hexDigest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// bytesOf returns the bytes of s without a copy, for readers only.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// invalidAt returns the offset of the first byte of s that is not UTF-8.
func invalidAt(s string) int {
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
			return i
		}
	}
	return -1
}

// stringOf returns p as a string without a copy, for readers that are done with it
// before p changes.
func stringOf(p []byte) string { return unsafe.String(unsafe.SliceData(p), len(p)) }

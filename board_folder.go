package team

import (
	"context"
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
)

// sessionMark is the file that tells a session's folder from one that somebody
// else made, and that is locked to number entries.
const sessionMark = ".tm-session"

// lockPatience is how long a lock is waited for. Who holds it for longer is
// stopped or hung; the exclusive link still keeps entries apart, so writers go on.
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

// checkFolder refuses a session or a task that is no plain folder.
func (b *Board) checkFolder(parts ...string) error {
	for i := range parts {
		name := path.Join(parts[:i+1]...)
		fi, err := b.root.Lstat(name)
		if err != nil {
			return err
		}
		if !fi.IsDir() {
			return b.notAFolder(name)
		}
	}
	return nil
}

func (b *Board) notAFolder(name string) error {
	return fmt.Errorf("%w: %s %w", ErrDenied, b.abs(name), atomicfile.ErrNotRegular)
}

// list returns the names in a folder, in no order.
func (b *Board) list(dir string) ([]string, error) {
	d, err := b.root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// folders returns the names of the folders in dir that sessions or tasks can
// have, in no order. A normalising file system hands out another spelling.
func (b *Board) folders(dir string) ([]string, error) {
	d, err := b.root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	all, err := d.ReadDir(-1)
	var names []string
	for _, e := range all {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, norm.NFC.String(e.Name()))
		}
	}
	return names, err
}

// ensureSession makes the session's folder and its mark if they are not there.
func (b *Board) ensureSession(session string) error {
	if err := b.settleFolder(session); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := b.mkdir(session); err != nil {
		return err
	}
	f, _, err := b.openMark(session)
	if err != nil {
		return err
	}
	f.Close()
	return atomicfile.SyncDir(b.root, session, b.step)
}

// mkdir makes a folder and makes its name durable.
func (b *Board) mkdir(dir string) (made bool, err error) {
	if err := b.step.Before("mkdir", dir); err != nil {
		return false, err
	}
	if err = b.root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	made = err == nil
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
		return b.notAFolder(dir)
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
	name := path.Join(session, sessionMark)
	for {
		f, fi, err := atomicfile.OpenRegular(b.root, name, os.O_RDWR)
		if errors.Is(err, atomicfile.ErrNotRegular) {
			return nil, nil, fmt.Errorf("%w: %s %w", ErrDenied, b.abs(name), err)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return f, fi, err
		}
		f, err = b.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		f.Close()
		now := time.Now()
		if err := b.root.Chtimes(name, now, now); err != nil { // the age of a session without entries
			return nil, nil, err
		}
	}
}

// lock takes the session's lock, which orders all that number, lease or sweep in
// it, among goroutines and processes. It dies with the process.
func (b *Board) lock(ctx context.Context, session string) (unlock func(), err error) {
	unlock, held, err := b.lockWithin(ctx, session, lockPatience)
	if err == nil && !held {
		unlock = func() {} // see lockPatience
	}
	return unlock, err
}

// lockWithin waits for the session's lock for at most patience. Where files
// cannot be locked it counts as held.
func (b *Board) lockWithin(ctx context.Context, session string, patience time.Duration) (unlock func(), held bool, err error) {
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t, _ := b.turns.LoadOrStore(session, make(chan struct{}, 1))
	turn := t.(chan struct{})
	select {
	case turn <- struct{}{}:
	case <-wait.Done():
		return nil, false, ctx.Err()
	}
	defer func() {
		if !held {
			<-turn
		}
	}()
	for {
		f, got, err := b.openMark(session)
		if err != nil {
			return nil, false, err
		}
		err = filelock.Lock(wait, f)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			f.Close()
			if wait.Err() != nil {
				err = ctx.Err() // nil if only our own patience ended
			}
			return nil, false, err
		}
		now, err := b.root.Lstat(path.Join(session, sessionMark))
		if err == nil && os.SameFile(got, now) {
			return func() { f.Close(); <-turn }, true, nil
		}
		f.Close() // a sweep removed the file that was waited for
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, false, err
		}
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

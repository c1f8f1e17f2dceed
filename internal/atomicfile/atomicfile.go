// Package atomicfile publishes a file under a name of its own: whole, durable,
// and never over anything that is there.
//
// The way: write a temporary file, fsync it, link it to the final name, fsync the
// folder. A link refuses a name that is taken, where a rename would replace it.
// The temporary file is locked as long as its writer lives, so that a leftover
// of a killed one can be told from work in progress.
package atomicfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/teamchan/team/internal/filelock"
)

// tempPrefix starts the name of every temporary file. The dot keeps it out of
// listings; no name that package slug makes starts with one.
const tempPrefix = ".tmp-"

// A Step is asked before each operation on the disk, by its name and path; an
// error takes the operation's place. It is for tests; nil means none.
type Step func(op, name string) error

// Before asks s, if there is one.
func (s Step) Before(op, name string) error {
	if s == nil {
		return nil
	}
	return s(op, name)
}

// A File is a file on its way to its name. It is for one goroutine.
type File struct {
	root  *os.Root
	step  Step
	temp  string // path of the temporary file, "" once it is gone
	f     *os.File
	own   fs.FileInfo // of f
	mtime time.Time

	final string // the name that Link gave, and the file behind it
	info  fs.FileInfo
}

// Create makes a temporary file in the folder dir of root. Close it in any case.
func Create(root *os.Root, dir string, step Step) (*File, error) {
	for range 8 {
		temp := path.Join(dir, tempPrefix+rand.Text())
		if err := step.Before("create", temp); err != nil {
			return nil, err
		}
		f, err := root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		file := &File{root: root, step: step, temp: temp, f: f}
		if file.own, err = f.Stat(); err != nil {
			file.Close()
			return nil, err
		}
		ok, err := filelock.Try(f)
		if ok || errors.Is(err, errors.ErrUnsupported) {
			if now, serr := root.Lstat(temp); serr == nil && os.SameFile(now, file.own) {
				return file, nil
			}
			err = nil
		}
		file.Close()
		if err != nil {
			return nil, err
		}
		// A sweep took it for a leftover in the instant before the lock: it holds
		// the lock, or is done already.
	}
	return nil, fmt.Errorf("%w: no temporary file could be made in %s; try again", fs.ErrExist, dir)
}

// WriteString adds to the content.
func (a *File) WriteString(s string) error {
	if err := a.step.Before("write", a.temp); err != nil {
		a.f.WriteString(s[:len(s)/2]) // a full disk takes a part
		return err
	}
	_, err := a.f.WriteString(s)
	return err
}

// Write adds to the content.
func (a *File) Write(p []byte) (int, error) {
	if err := a.step.Before("write", a.temp); err != nil {
		n, _ := a.f.Write(p[:len(p)/2]) // a full disk takes a part
		return n, err
	}
	return a.f.Write(p)
}

// Sync makes the content durable and the file's time mtime, to the second.
func (a *File) Sync(mtime time.Time) error {
	a.mtime = mtime
	if err := a.chtimes(a.f, a.temp); err != nil {
		return err
	}
	if err := a.step.Before("sync", a.temp); err != nil {
		return err
	}
	return a.f.Sync()
}

// chtimes sets the time of f, which is under name, unless its clock agrees with
// ours: a file system's need not, and in a synctest bubble it never does.
func (a *File) chtimes(f *os.File, name string) error {
	if err := a.step.Before("chtimes", name); err != nil {
		return err
	}
	fi, err := f.Stat()
	if err != nil || fi.ModTime().Sub(a.mtime).Abs() < time.Second {
		return err
	}
	return a.root.Chtimes(name, a.mtime, a.mtime)
}

// Link gives the file its name, or returns fs.ErrExist if that is taken, be it
// by a link that leads nowhere. Then another name may be tried. Until the
// folder is synced the name is not durable.
//
// Where the file system has no links, the file is created under its name
// and filled there: still exclusively, but a reader may see it half written, and
// after a crash it may stay so. Then linked is false.
func (a *File) Link(name string) (linked bool, err error) {
	if err = a.step.Before("link", name); err == nil {
		err = a.root.Link(a.temp, name)
	}
	if errors.Is(err, fs.ErrExist) {
		// A network file system may have done it and lost the answer.
		if fi, serr := a.root.Lstat(name); serr == nil && os.SameFile(fi, a.own) {
			err = nil
		}
	}
	if err == nil {
		a.final, a.info = name, a.own
		return true, nil
	}
	if errors.Is(err, fs.ErrExist) || !noLinks(err) {
		return false, err
	}
	return false, a.copyTo(name)
}

func (a *File) copyTo(name string) (err error) {
	if err := a.step.Before("create", name); err != nil {
		return err
	}
	dst, err := a.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	a.final = name
	defer func() {
		if cerr := dst.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			a.Withdraw()
		}
	}()
	if a.info, err = dst.Stat(); err != nil {
		return err
	}
	if err := a.step.Before("write", name); err != nil {
		return err
	}
	if _, err := a.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(dst, a.f); err != nil {
		return err
	}
	if err := a.chtimes(dst, name); err != nil {
		return err
	}
	if err := a.step.Before("sync", name); err != nil {
		return err
	}
	return dst.Sync()
}

// Published reports whether the name that Link gave still leads to this file,
// not through a link in its last place.
func (a *File) Published() bool {
	if a.info == nil {
		return false
	}
	got, err := a.root.Lstat(a.final)
	return err == nil && os.SameFile(a.info, got)
}

// Withdraw takes the name back that Link gave, if it still leads to this file.
func (a *File) Withdraw() {
	if a.Published() {
		_ = a.root.Remove(a.final) // nothing is left to try
	}
}

// Close removes the temporary file; do so before the folder is synced, so that one
// commit of the file system has both names. What it cannot remove, Orphan finds
// later. Closing twice is no error.
func (a *File) Close() {
	if a.temp == "" {
		return
	}
	if a.step.Before("remove", a.temp) == nil {
		_ = a.root.Remove(a.temp) // Orphan finds it if this fails
	}
	a.temp = ""
	a.f.Close() // the content is synced, or not wanted
}

// SyncDir makes the names in a folder of root durable. Windows has no such call;
// there it does nothing.
func SyncDir(root *os.Root, dir string, step Step) error {
	if err := step.Before("syncdir", dir); err != nil {
		return err
	}
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// IsTemp reports whether a file's base name is that of a temporary file.
func IsTemp(base string) bool {
	random, ok := strings.CutPrefix(base, tempPrefix)
	return ok && IsRandom(random)
}

// IsRandom reports whether s looks like what crypto/rand.Text returns.
func IsRandom(s string) bool {
	return len(s) == 26 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// Orphan reports whether nobody is writing the temporary file name any more, and
// calls remove, while nobody can, if so.
func Orphan(root *os.Root, name string, remove func(name string) error) (bool, error) {
	f, fi, err := OpenRegular(root, name, os.O_RDWR)
	if err != nil {
		return false, err
	}
	defer f.Close()
	ok, err := filelock.Try(f)
	if errors.Is(err, errors.ErrUnsupported) { // no locks here: its age must tell
		ok, err = time.Since(fi.ModTime()) > time.Hour, nil
	}
	if !ok || err != nil {
		return false, err
	}
	return true, remove(name)
}

// noLinks reports whether err means that links cannot be made here at all.
func noLinks(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) ||
		errors.Is(err, syscall.EPERM) || // FAT, exFAT on Linux
		errors.Is(err, syscall.EMLINK) || errors.Is(err, syscall.EXDEV) ||
		errors.Is(err, errNoLinksHere)
}

// OpenRegular opens a regular file of root and nothing else: no link in the last
// place, no named pipe that would hang, no device. What keeps being swapped for
// another file while it is opened is refused too.
func OpenRegular(root *os.Root, name string, flag int) (f *os.File, fi fs.FileInfo, err error) {
	for range 8 {
		f, fi, err = openRegular(root, name, flag)
		if err != errSwapped {
			return f, fi, err
		}
	}
	return nil, nil, &fs.PathError{Op: "open", Path: name, Err: ErrNotRegular}
}

var errSwapped = errors.New("swapped")

func openRegular(root *os.Root, name string, flag int) (*os.File, fs.FileInfo, error) {
	want, err := root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !want.Mode().IsRegular() {
		return nil, nil, &fs.PathError{Op: "open", Path: name, Err: ErrNotRegular}
	}
	f, err := root.OpenFile(name, flag|openNonblock, 0)
	if err != nil {
		return nil, nil, err
	}
	got, err := f.Stat()
	if err == nil && !os.SameFile(want, got) {
		err = errSwapped
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, got, nil
}

// ErrNotRegular says that a name leads to something other than a plain file
// or folder of ours.
var ErrNotRegular = errors.New("is a link or another special file, which is never followed")

package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrForeign says that a folder is in somebody else's hands.
var ErrForeign = errors.New("in other hands")

// Ensure makes the folder dir if it is not there, with mode 0700 like every
// parent that it has to make, and returns it without symbolic links.
//
// In a folder that everybody can write to, such as /tmp, anybody may have put
// a link or a folder in our way: what lies in one must be ours or root's, or
// the error is ErrForeign and nothing is made. The folder itself must be ours,
// and not writable by everybody.
func Ensure(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	vol := filepath.VolumeName(abs) + string(filepath.Separator)
	at, rest := vol, strings.TrimPrefix(abs, vol)
	parent, err := os.Lstat(at)
	if err != nil {
		return "", err
	}
	for links := 0; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest, string(filepath.Separator))
		switch part {
		case "", ".":
			continue
		case "..": // out of a link; at itself is free of links
			at = filepath.Dir(at)
			if parent, err = os.Lstat(at); err != nil {
				return "", err
			}
			continue
		}
		next := filepath.Join(at, part)
		fi, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			if err = os.Mkdir(next, 0o700); err == nil {
				syncDir(at)
			}
			if err == nil || errors.Is(err, fs.ErrExist) { // or somebody was quicker
				fi, err = os.Lstat(next)
			}
		}
		if err != nil {
			return "", err
		}
		if shared(parent) && !ownedByUs(fi) && !ownedByRoot(fi) {
			return "", foreign(next, fi)
		}
		if fi.Mode()&fs.ModeSymlink != 0 {
			if links++; links > 40 {
				return "", fmt.Errorf("%w: %s has too many symbolic links", ErrBroken, dir)
			}
			target, err := os.Readlink(next)
			if err != nil {
				return "", err
			}
			if filepath.IsAbs(target) {
				at = filepath.VolumeName(target) + string(filepath.Separator)
				target = strings.TrimPrefix(target, at)
			}
			rest = target + string(filepath.Separator) + rest
			if parent, err = os.Lstat(at); err != nil {
				return "", err
			}
			continue
		}
		if !fi.IsDir() {
			return "", fmt.Errorf("%w: %s is not a folder", ErrBroken, next)
		}
		at, parent = next, fi
	}
	return at, Check(at, parent)
}

// Check refuses a folder that is not ours, or that everybody can write to.
func Check(dir string, fi fs.FileInfo) error {
	if !ownedByUs(fi) {
		return foreign(dir, fi)
	}
	if shared(fi) {
		return fmt.Errorf("%s: %w: everybody can write to it; run: chmod 700 %s", dir, ErrForeign, dir)
	}
	return nil
}

func foreign(path string, fi fs.FileInfo) error {
	return fmt.Errorf("%s: %w: it belongs to another user%s; choose another folder (or set TMPDIR)", path, ErrForeign, ownerOf(fi))
}

// syncDir makes the entries of a folder durable where the system can.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync() // not every system syncs folders, and none needs it to go on
		d.Close()
	}
}

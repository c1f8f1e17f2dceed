//go:build unix

package workspace

import (
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// uid returns the owner of a file, and false where the system does not say.
func uid(fi fs.FileInfo) (int, bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}

func ownedByUs(fi fs.FileInfo) bool {
	id, ok := uid(fi)
	return ok && id == os.Geteuid()
}

func ownedByRoot(fi fs.FileInfo) bool {
	id, ok := uid(fi)
	return ok && id == 0
}

func ownerOf(fi fs.FileInfo) string {
	if id, ok := uid(fi); ok {
		return " (uid " + strconv.Itoa(id) + ")"
	}
	return ""
}

// shared reports whether everybody can write to a folder.
func shared(fi fs.FileInfo) bool { return fi.IsDir() && fi.Mode().Perm()&0o002 != 0 }

// Links returns how many names a file has. One of ours with another name could
// be anywhere.
func Links(fi fs.FileInfo) int {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return int(st.Nlink)
	}
	return 1
}

package sqlitestore

import "golang.org/x/sys/unix"

// networkFS says on which file system path is, and whether that is one that several
// machines may share. Tests replace it.
var networkFS = func(path string) (name string, remote bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", false // Open will find out what is wrong
	}
	name = unix.ByteSliceToString(st.Fstypename[:])
	return name, st.Flags&unix.MNT_LOCAL == 0
}

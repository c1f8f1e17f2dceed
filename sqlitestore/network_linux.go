package sqlitestore

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// networkFS says on which file system path is, and whether that is one that several
// machines may share. Tests replace it.
var networkFS = func(path string) (name string, remote bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", false // Open will find out what is wrong
	}
	name, remote = networkMagic[uint32(st.Type)]
	if name == "fuse" {
		name = fuseName(path)
		remote = !slices.Contains(localFUSE, name)
	}
	return name, remote
}

// localFUSE are file systems of this machine alone that are served by a process.
var localFUSE = []string{"fuseblk", "fuse.fuse-overlayfs", "fuse.gocryptfs", "fuse.encfs", "fuse.ntfs-3g", "fuse.bindfs", "fuse.mergerfs"}

// fuseName looks up what kind of FUSE path is on: "fuse.sshfs".
func fuseName(path string) string {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "fuse"
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "fuse"
	}
	// 36 35 98:0 /root /mount rw,noatime - fuse.sshfs source rw; see proc(5).
	device := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	for line := range strings.Lines(string(mounts)) {
		head, tail, _ := strings.Cut(line, " - ")
		if f := strings.Fields(head); len(f) > 2 && f[2] == device {
			if f := strings.Fields(tail); len(f) > 0 {
				return f[0]
			}
		}
	}
	return "fuse"
}

// From statfs(2) and linux/magic.h. FUSE is no network, but what is shared among
// machines often comes through it (sshfs, GlusterFS, cloud buckets), so only what is
// known to be local counts as such.
var networkMagic = map[uint32]string{
	0x6969:     "nfs",
	0x517b:     "smb",
	0xff534d42: "cifs",
	0xfe534d42: "smb2",
	0x01021997: "9p",
	0x65735546: "fuse",
	0x00c36400: "ceph",
	0x5346414f: "afs",
	0x6b414653: "afs",
	0x73757245: "coda",
	0x564c:     "ncp",
	0x0bd00bd0: "lustre",
	0x47504653: "gpfs",
	0x013111a8: "ibrix",
	0x7461636f: "ocfs2",
	0x01161970: "gfs2",
	0xaad7aaea: "panfs",
	0xbacbacbc: "vmhgfs",
	0x786f4256: "vboxsf",
	0xc7571590: "virtiofs-dax",
}

package sqlitestore

import (
	"sync"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// SQLite's own VFS answers SQLITE_FULL where there is no space. That of
// github.com/ncruces/go-sqlite3 v0.37.0 looks for a bare errno, which a file's error
// only wraps, and answers SQLITE_IOERR; the system's word is lost before SQLite returns.
// It makes a difference: without space the end of a transaction was not written, for
// certain. So this VFS stands between the two.

// spaceName is how SQLite knows it. It has nothing to do with database/sql.
const spaceName = "teamchan-sqlitestore"

var registerVFS = sync.OnceFunc(func() {
	vfs.Register(spaceName, spaceVFS{vfs.Find("os").(vfs.VFSFilename)})
})

type spaceVFS struct{ vfs.VFSFilename }

func (v spaceVFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := v.VFSFilename.OpenFilename(name, flags)
	sf, ok := f.(systemFile)
	switch {
	case !ok:
		return f, flags, err
	case flags&vfs.OPEN_WAL != 0:
		return &logFile{spaceFile: &spaceFile{sf}}, flags, err
	default:
		return &spaceFile{sf}, flags, err
	}
}

// A systemFile is what the files of the system can do; but for memory mapping, which is
// not used.
type systemFile interface {
	vfs.FileLockState
	vfs.FileHasMoved
	vfs.FileSizeHint
	vfs.FilePersistWAL
	vfs.FilePowersafeOverwrite
	vfs.FileSharedMemory
}

type spaceFile struct{ systemFile }

func (f *spaceFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.systemFile.WriteAt(p, off)
	return n, noSpace(err)
}

func (f *spaceFile) Truncate(size int64) error { return noSpace(f.systemFile.Truncate(size)) }
func (f *spaceFile) SizeHint(size int64) error { return noSpace(f.systemFile.SizeHint(size)) }

// DeviceCharacteristics leaves out what would need more methods.
func (f *spaceFile) DeviceCharacteristics() vfs.DeviceCharacteristic {
	return f.systemFile.DeviceCharacteristics() &^ vfs.IOCAP_BATCH_ATOMIC
}

func noSpace(err error) error {
	if noRoom(err) {
		return vfs.SystemError(err, sqlite3.FULL)
	}
	return err
}

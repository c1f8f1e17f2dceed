package sqlitestore_test

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData is how SQLite syncs.
func syncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

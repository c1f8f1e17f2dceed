package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

func try(f *os.File) (bool, error) {
	// Windows locks byte ranges and enforces them: one byte far behind any
	// content leaves reading and writing alone.
	at := &windows.Overlapped{OffsetHigh: 1 << 30}
	err := windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION), errors.Is(err, windows.ERROR_IO_PENDING):
		return false, nil
	default:
		return false, err
	}
}

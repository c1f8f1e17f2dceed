//go:build unix && !linux && !solaris && !illumos && !aix

package sqlitestore

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// places: there are no locks here of parts of an open file, so there is the turn and no
// line for it.
const places = 1

func tryPlaces(f *os.File, _, _ int) bool {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != unix.EWOULDBLOCK
}

func leavePlaces(f *os.File, from, _ int) {
	if from == 0 {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	}
}

func exactly(d time.Duration, _ int) { time.Sleep(d) }

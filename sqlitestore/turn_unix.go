//go:build unix && !solaris && !illumos && !aix

package sqlitestore

import (
	"os"

	"golang.org/x/sys/unix"
)

// tryTurn takes the turn if nobody has it, and reports whether to go on: where
// there are no locks, nobody waits for a turn.
func tryTurn(f *os.File) bool {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != unix.EWOULDBLOCK
}

func endTurn(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }

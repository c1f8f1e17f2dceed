package sqlitestore

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// places is how many can stand in line. Others come into it by chance.
const places = 8

// firstPlace is where the places are in the bell: far behind what is read and written.
const firstPlace = 1 << 30

// tryPlaces takes the places from one up to another if they are all free, and reports
// whether to go on: where there are no locks, nobody waits for a turn.
func tryPlaces(f *os.File, from, to int) bool {
	err := lockPlaces(f, unix.F_WRLCK, from, to)
	return err != unix.EAGAIN && err != unix.EACCES
}

// leavePlaces gives up the places from one up to another.
func leavePlaces(f *os.File, from, to int) {
	if from < to { // else it would be all that come behind
		_ = lockPlaces(f, unix.F_UNLCK, from, to)
	}
}

// lockPlaces sets a lock that belongs to the open file and not to the process, in which
// there may be several stores.
func lockPlaces(f *os.File, kind int16, from, to int) error {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{
		Type: kind, Whence: io.SeekStart, Start: firstPlace + int64(from), Len: int64(to - from),
	})
}

// exactly sleeps for d, for the n-th time in a row. A timer of Go ends up to a millisecond
// too late where nothing else runs, since epoll counts in milliseconds, and that is longer than
// most transactions take. This keeps a thread, and costs more than a timer: so it is for one
// process at a time, and not for long.
func exactly(d time.Duration, n int) {
	if n >= 100 || d >= time.Millisecond {
		time.Sleep(d)
		return
	}
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // a signal may end it early
}

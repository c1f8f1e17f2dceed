//go:build unix

package atomicfile

import (
	"errors"
	"syscall"
)

// openNonblock keeps an open of a named pipe that was put in our way from hanging.
const openNonblock = syscall.O_NONBLOCK

var errNoLinksHere = errors.New("never returned")

//go:build !unix

package atomicfile

import "syscall"

const openNonblock = 0

// errNoLinksHere is ERROR_INVALID_FUNCTION, what Windows says of a file system
// without links.
var errNoLinksHere error = syscall.Errno(1)

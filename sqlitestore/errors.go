package sqlitestore

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
	"github.com/teamchan/team/internal/portcheck"
)

// A BusyError says that other processes held the file's lock all the while.
// Nothing was written; the same call may be made again.
type BusyError struct {
	Waited time.Duration
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("other processes held the lock of the store for %v; nothing was written, try again",
		e.Waited.Round(time.Millisecond))
}

// Temporary is true: the same call may succeed later.
func (e *BusyError) Temporary() bool { return true }

// A SchemaError says that a newer version of this package wrote the file.
// Nothing in it was changed.
type SchemaError struct {
	Got, Max int // the file's version, and the newest that is understood
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("the file has schema version %d, this program knows %d at most; "+
		"use a newer version of the program, or another path", e.Got, e.Max)
}

// Is reports whether target is errors.ErrUnsupported.
func (e *SchemaError) Is(target error) bool { return target == errors.ErrUnsupported }

// A FormatError says that a file is no store: not SQLite's, or some other
// program's. Nothing in it was changed.
type FormatError struct {
	Why string
}

func (e *FormatError) Error() string {
	return "the file is not a store of this library (" + e.Why + "); use another path"
}

// Is reports whether target is team.ErrDenied.
func (e *FormatError) Is(target error) bool { return target == team.ErrDenied }

// A NetworkError says that a file lies on a network file system, where several
// machines cannot share SQLite's write-ahead log: it would be damaged. It is an
// errors.ErrUnsupported.
type NetworkError struct {
	Path string
	FS   string // "nfs", "smb", …
}

func (e *NetworkError) Error() string {
	return fmt.Sprintf("%s is on a network file system (%s), where a write-ahead log is not safe; "+
		"use a path on a local disk, or set Options.AllowNetwork in every process", e.Path, e.FS)
}

// Is reports whether target is errors.ErrUnsupported.
func (e *NetworkError) Is(target error) bool { return target == errors.ErrUnsupported }

// A FullError says that the disk, or the user's share of it, is full. A call that
// ends with it has changed nothing, unless the error is team.ErrUnknownOutcome too.
// The store can be read meanwhile, and is as good as before once there is space. It is a
// syscall.ENOSPC, as what a Board returns then.
type FullError struct {
	Err error // what the system or SQLite says
}

func (e *FullError) Error() string {
	return fmt.Sprintf("the disk is full; free some space, then make the same call again: %v", e.Err)
}

func (e *FullError) Unwrap() error { return e.Err }

// Is reports whether target is syscall.ENOSPC; SQLite has lost the system's own word.
func (e *FullError) Is(target error) bool { return target == syscall.ENOSPC }

// isFull reports whether err says that there is no space.
func isFull(err error) bool { return errors.Is(err, sqlite3.FULL) || noRoom(err) }

// noRoom is isFull for an error of the system.
func noRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// isReadOnly reports whether err says that the file, or its folder, cannot be written.
func isReadOnly(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) ||
		errors.Is(err, sqlite3.READONLY) && !errors.Is(err, sqlite3.READONLY_DBMOVED) || errors.Is(err, sqlite3.PERM)
}

// translate gives an error of the disk or of SQLite the kind that a caller can act on.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case isFull(err):
		return &FullError{Err: err}
	case isReadOnly(err):
		return fmt.Errorf("%w; a store's file and folder must be writable, for who only reads too: "+
			"change their mode or owner, or use another path: %w", team.ErrDenied, err)
	case errors.Is(err, sqlite3.CORRUPT), errors.Is(err, sqlite3.NOTADB):
		return fmt.Errorf("%w; stop all writers and restore a backup: %w", team.ErrCorrupt, err)
	default:
		return err
	}
}

// unwritten says that a write changed nothing.
func unwritten(err error) error {
	return fmt.Errorf("nothing was written: %w", translate(err))
}

// unknown says that nobody can tell whether a write was made.
func unknown(err error) error {
	return fmt.Errorf("%w, make the same call again to settle it: %w", team.ErrUnknownOutcome, err)
}

// invalid makes an error of what a check found; nil if that is nothing.
func invalid(what, why string) error {
	if what == "" {
		return nil
	}
	return &team.InvalidError{What: what, Why: why, Offset: -1}
}

func checkKey(key string) error    { return invalid(portcheck.Key(key)) }
func checkQueue(name string) error { return invalid(portcheck.Queue(name)) }

func checkClaim(queue string, opts team.ClaimOptions) error {
	return invalid(portcheck.Claim(queue, opts.Max, opts.Budget, opts.Lease))
}

func checkVerdict(st team.Settlement) error {
	return invalid(portcheck.Verdict(string(st.Verdict), st.Delay))
}

// maxBytes is the largest value: SQLite works in a memory of its own, of which one
// value takes several times its size.
const maxBytes = 64 << 20

func checkSize(what string, n int) error {
	if n <= maxBytes {
		return nil
	}
	return &team.LimitError{
		What: what, Got: int64(n), Max: maxBytes, TooLarge: true,
		Advice: "put it into a file and store its path",
	}
}

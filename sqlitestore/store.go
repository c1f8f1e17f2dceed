// Package sqlitestore keeps a channel's state in one SQLite file, which any number
// of goroutines and processes of one machine share, without a daemon. It has both
// ports ([team.Queue] and [team.Records]), the step that spans them
// ([team.Committer]), the account of what is there ([team.Meter]) and the news of
// what changes ([team.Watcher]).
//
// Writers of one process share transactions: whoever comes while one is under way
// goes into the next, together with all the others, and so shares its fsync. What
// waits in Claim or Watch is woken through a file beside the database, FILE-bell,
// also by other processes.
//
// Settled items stay until [Store.Sweep] removes them; no call but Sweep, Check,
// Stats and Backup grows slower with their number.
//
// An item or a record has 64 MiB at most; more is a *team.LimitError.
//
// SQLite is used without database/sql, and no driver is registered.
package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
)

var (
	_ team.Store     = (*Store)(nil)
	_ team.Committer = (*Store)(nil)
	_ team.Meter     = (*Store)(nil)
	_ team.Watcher   = (*Store)(nil)
)

// Synchronous says when a change counts as written.
type Synchronous int

const (
	// Full: every transaction is on the disk before its calls return.
	Full Synchronous = iota

	// Normal: calls return when the operating system has the change. A process
	// that is killed loses nothing. A power cut or a crash of the system can
	// take the last changes, those since the log was last copied into the
	// file (some megabytes of writes, or hours on a quiet store), though their
	// calls had returned: signals that were sent are not there, and what was acked
	// comes again. It never damages the file, and what is lost is always the
	// end: if a change is there, so is everything before it.
	Normal
)

// Options for Open. The zero value is the default.
type Options struct {
	// Synchronous is Full unless set.
	Synchronous Synchronous

	// BusyTimeout is how long a call whose context has no deadline waits for other
	// processes that hold the file's lock, before it fails with a *BusyError; one
	// with a deadline waits until that. Zero means 30 seconds.
	BusyTimeout time.Duration

	// AllowNetwork opens the file on a network file system too, where Open
	// otherwise fails with a *NetworkError. The store then keeps a rollback
	// journal instead of a write-ahead log, wherever the file is: so set it
	// alike in every process on every machine that opens the file. Reading and
	// writing then keep each other waiting, receivers in other processes are
	// woken by a poll once a second, and all depends on whether the server's
	// locks work.
	AllowNetwork bool
}

const (
	busyTimeout = 30 * time.Second
	maxReaders  = 4 // connections for reading
)

// A Store is an open file. It is safe for use by several goroutines, and the file
// by several processes.
type Store struct {
	path string // absolute
	opts Options
	vfs  string // SQLite's name of it
	bell *bell

	// Writing; see group.go.
	mu      sync.Mutex // guards the fields up to the next blank line
	queue   []*op      // not begun, in the order of coming
	leading bool       // somebody has the writing connection
	idle    sync.Cond  // nobody leads any more
	closed  bool

	w    *conn // of the leader
	wal  walState
	seam seams

	readers chan *conn // those that nobody uses
	tokens  chan struct{}

	stop      chan struct{} // closed by Close
	closeOnce sync.Once
	closeErr  error

	transactions, operations atomic.Int64
}

// seams are where tests make things fail. They are set before the store is used.
type seams struct {
	beforeCommit func()
	afterCommit  func() error // an error takes the place of the answer
}

// Open opens the file path, and makes it if there is none, with its folder; both
// for the user alone. However many processes open a new path at once, all succeed.
//
// A file of a newer version of this package is refused with a *SchemaError, one
// that is not a store with a *FormatError, and one on a network file system with a
// *NetworkError; see [Options]. A file of an older version is brought up to date,
// or, if that fails, left as it is. Where the file or the folder cannot be written the
// error is team.ErrDenied, and where there is no space a *FullError.
//
// ctx bounds the opening only.
func Open(ctx context.Context, path string, options *Options) (*Store, error) {
	registerVFS()
	return open(ctx, path, options, spaceName)
}

// open is Open through the named VFS of SQLite.
func open(ctx context.Context, path string, options *Options, vfs string) (*Store, error) {
	if path == "" {
		return nil, &team.InvalidError{What: "path of the store", Why: "is empty", Offset: -1}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := &Store{vfs: vfs, readers: make(chan *conn, maxReaders), tokens: make(chan struct{}, maxReaders), stop: make(chan struct{})}
	if options != nil {
		s.opts = *options
	}
	if s.opts.BusyTimeout <= 0 {
		s.opts.BusyTimeout = busyTimeout
	}
	s.idle.L = &s.mu
	for range maxReaders {
		s.tokens <- struct{}{}
	}
	var err error
	if s.path, err = prepare(path, s.opts.AllowNetwork); err != nil {
		return nil, translate(err)
	}
	if s.w, err = s.openFile(ctx); err != nil {
		return nil, fmt.Errorf("open store %s: %w", s.path, translate(err))
	}
	if s.bell, err = openBell(s.path + "-bell"); err != nil {
		return nil, errors.Join(translate(err), s.w.close())
	}
	return s, nil
}

// syncFolder is a variable for tests.
var syncFolder = syncDir

// prepare makes the folder and an empty file, and returns where it really is.
func prepare(path string, network bool) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	top := filepath.Dir(path) // the folder that is there already
	for top != filepath.Dir(top) {
		if _, err := os.Lstat(top); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		top = filepath.Dir(top)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	if err := checkNetwork(path, network); err != nil {
		return "", err
	}
	// SQLite would make it for everybody to read.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	// SQLite syncs the folder of the file, and not those in which that one is new.
	for dir := filepath.Dir(path); dir != top; {
		dir = filepath.Dir(dir)
		if err := syncFolder(dir); err != nil {
			return "", err
		}
	}
	// One spelling for all, or the same file would have a bell under each.
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", err
	}
	return path, checkNetwork(path, network)
}

// checkNetwork refuses a path on a network file system, unless that is allowed.
func checkNetwork(path string, allowed bool) error {
	if allowed {
		return nil
	}
	if fs, remote := networkFS(filepath.Dir(path)); remote {
		return &NetworkError{Path: path, FS: fs}
	}
	return nil
}

// uri names the file to SQLite. The log gets the mode of the database.
func (s *Store) uri() string {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(s.path)}
	if u.Path[0] != '/' {
		u.Path = "/" + u.Path // a drive letter
	}
	u.RawQuery = "vfs=" + s.vfs + "&modeof=" + strings.ReplaceAll(url.QueryEscape(s.path), "+", "%20") // SQLite knows no "+"
	return u.String()
}

// openFile opens the writing connection and brings the file up to date. Processes
// that do so at once get into each other's way in more ways than a busy handler
// sees, so all of it is tried again as long as there is time.
func (s *Store) openFile(ctx context.Context) (*conn, error) {
	start := time.Now()
	wait := untilDone(ctx, s.limit(ctx))
	for n := 0; ; n++ {
		c, err := s.tryOpen(ctx)
		if err == nil {
			return c, nil
		}
		if !isBusy(err) && !errors.Is(err, sqlite3.READONLY_RECOVERY) &&
			!(n < 20 && errors.Is(err, sqlite3.IOERR)) {
			return nil, err
		}
		if !wait(time.Since(start)) {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("waiting for other processes: %w", ctx.Err())
			}
			return nil, &BusyError{Waited: time.Since(start)}
		}
		nap(n)
	}
}

func (s *Store) tryOpen(ctx context.Context) (_ *conn, err error) {
	c, err := dial(ctx, s.uri(), sqlite3.OPEN_READWRITE|sqlite3.OPEN_CREATE|sqlite3.OPEN_URI)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	c.busy = untilDone(ctx, 100*time.Millisecond)
	if err := checkSchema(c); err != nil { // before anything is written
		return nil, err
	}
	mode := "wal"
	if s.opts.AllowNetwork {
		mode = "delete"
	}
	// auto_vacuum counts only while the file is empty.
	if err := c.db.Exec(`PRAGMA auto_vacuum = incremental; PRAGMA temp_store = memory;
		PRAGMA trusted_schema = off; PRAGMA cache_size = -16384; PRAGMA journal_size_limit = 16777216;
		PRAGMA synchronous = ` + s.synchronous()); err != nil {
		return nil, err
	}
	got, err := c.text(`PRAGMA journal_mode = ` + mode)
	if err != nil {
		return nil, err
	}
	if got != mode {
		return nil, fmt.Errorf("journal mode is %s and cannot be %s here: %w", got, mode, errors.ErrUnsupported)
	}
	if err := migrate(c, migrations); err != nil {
		return nil, err
	}
	s.watchWAL(c)
	// SQLite makes it with the mode of everything else; it holds page numbers only.
	_ = os.Chmod(s.path+"-shm", 0o600)
	return c, nil
}

func (s *Store) synchronous() string {
	switch {
	case s.opts.Synchronous == Normal:
		return "normal"
	case s.opts.AllowNetwork:
		// What commits is that the journal is removed, and FULL does not sync that: it
		// could be there again after a power cut.
		return "extra"
	default:
		return "full"
	}
}

// limit is how long to wait for a lock on behalf of ctx; zero is until ctx ends.
func (s *Store) limit(ctx context.Context) time.Duration {
	if _, ok := ctx.Deadline(); ok {
		return 0
	}
	return s.opts.BusyTimeout
}

// Close waits for the calls that are writing and closes the file. Calls that wait,
// and those that come later, get team.ErrClosed. The file is then whole in
// itself, unless another process has it open.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.mu.Lock()
		s.closed = true
		close(s.stop) // wakes who waits
		for s.leading {
			s.idle.Wait()
		}
		s.mu.Unlock()
		var errs []error
		for range maxReaders {
			<-s.tokens
		}
		for {
			select {
			case c := <-s.readers:
				errs = append(errs, c.close())
				continue
			default:
			}
			break
		}
		s.closeErr = errors.Join(append(errs, s.bell.close(), s.w.close())...)
	})
	return s.closeErr
}

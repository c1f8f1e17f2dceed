package team

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/teamchan/team/internal/atomicfile"
	"github.com/teamchan/team/internal/workspace"
)

// The limits of a Board, after those of the OpenCode plugin that wrote boards
// first.
const (
	DefaultMaxChars = 200_000
	DefaultMaxFiles = 200
	DefaultMaxTasks = 40
	DefaultBoardTTL = 5 * 24 * time.Hour
)

// NoLimit turns off the check that a limit field stands for.
const NoLimit = -1

// Forever, as a time to live, keeps things until somebody removes them by hand.
const Forever time.Duration = -1

// BoardOptions change what a Board refuses and how long it keeps. The zero
// value has the defaults; NoLimit turns a limit off.
type BoardOptions struct {
	// MaxChars is the most characters (Unicode code points) of a body. Zero
	// means DefaultMaxChars.
	MaxChars int

	// MaxFiles is the most Markdown files in one session. Zero means
	// DefaultMaxFiles.
	MaxFiles int

	// MaxTasks is the most task folders in one session. Zero means
	// DefaultMaxTasks.
	MaxTasks int

	// TTL is how long a session is kept after its last change. Zero means
	// DefaultBoardTTL; Forever keeps it.
	TTL time.Duration

	// Permissions says who may write where: it is asked for PermissionBoard, and all but
	// Allow is ErrDenied, also an Ask, since nothing here waits for an answer. Nil lets
	// everybody write.
	Permissions Permissions

	// Trace is told of every write, also of those that were refused: a Trail's
	// Record, for example. Nil is nobody. It is called in the caller's goroutine.
	Trace func(context.Context, TraceEvent)
}

// A Board is a folder of Markdown files through which sessions hand over what
// is too large for a message: a reader gets the path, never the body.
//
//	<board>/<session>/<task>/NN-<role>-<topic>[-rN].md
//
// An entry is never changed and never overwritten. It appears whole or not at
// all (but see Entry.InPlace). All access stays inside the folder, whatever links
// somebody puts there.
//
// A Board is safe for use by several goroutines and, on one folder, by several
// processes. It runs no goroutine of its own; call Sweep when it suits you.
type Board struct {
	dir  string      // as the caller spelled it, absolute
	real string      // without links
	info fs.FileInfo // of the folder, to notice when another takes its place
	root *os.Root
	opts BoardOptions
	step atomicfile.Step // a seam for tests

	turns   sync.Map // session's folder name to chan struct{}: one goroutine at a time asks for its lock
	settled sync.Map // folder name to fs.FileInfo, for those whose names are durable
}

// BoardDir returns the folder of the board for a workspace: opencode-team in
// the git directory that the workspace belongs to (that of a linked work tree or a
// submodule is its own), or else <temp>/opencode-team/w-<10 hex digits of the
// SHA-256 of the workspace's path without links>. A workspace that is not there is
// ErrNotFound, and one that is no folder, or whose .git leads nowhere, ErrInvalid. It
// creates nothing.
func BoardDir(workspaceDir string) (string, error) {
	dir, err := workspace.Dir(workspaceDir, "opencode-team")
	return dir, edge("board.dir", workspaceDir, inWorkspace(err))
}

// StateDir returns the folder for all that is not the board: database, offload
// store, trail. It is BoardDir's with opencode-team-state in place of
// opencode-team, so that no sweep of one can touch the other. It creates nothing.
func StateDir(workspaceDir string) (string, error) {
	dir, err := workspace.Dir(workspaceDir, "opencode-team-state")
	return dir, edge("state.dir", workspaceDir, inWorkspace(err))
}

// NewSessionKey returns a name for a new session of a team: the local time as
// yyyyMMdd-HHmmss, and what tells it from others of that second. The lead makes one
// and hands it down.
func NewSessionKey() string {
	return time.Now().Format("20060102-150405") + "-" + strings.ToLower(rand.Text()[:6])
}

// OpenBoard opens the board in dir and makes the folder, with mode 0700, if it
// is not there. A folder that belongs to another user, or that everybody can write
// to, is ErrDenied. The caller closes the board.
func OpenBoard(ctx context.Context, dir string, opts *BoardOptions) (*Board, error) {
	b, err := openBoard(ctx, dir, opts)
	return b, edge("board.open", dir, err)
}

func openBoard(ctx context.Context, dir string, opts *BoardOptions) (*Board, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if opts != nil {
		if err := opts.check(); err != nil {
			return nil, err
		}
	}
	if dir == "" {
		return nil, &InvalidError{What: "board folder", Why: "is empty", Offset: -1, Advice: "pass what BoardDir returns"}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if !utf8.ValidString(abs) || strings.IndexFunc(abs, breaksLine) >= 0 {
		return nil, &InvalidError{What: "board folder", Why: "is not UTF-8 of one line", Offset: -1,
			Advice: "no signal could carry the path of an entry in it; choose another folder"}
	}
	real, err := workspace.Ensure(abs)
	if err != nil {
		return nil, inWorkspace(err)
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil {
		err = workspace.Check(real, info) // what was checked may have been replaced
	}
	if err != nil {
		root.Close()
		return nil, inWorkspace(err)
	}
	b := &Board{dir: abs, real: real, info: info, root: root}
	if opts != nil {
		b.opts = *opts
	}
	setDefault(&b.opts.MaxChars, DefaultMaxChars)
	setDefault(&b.opts.MaxFiles, DefaultMaxFiles)
	setDefault(&b.opts.MaxTasks, DefaultMaxTasks)
	setDefault(&b.opts.TTL, DefaultBoardTTL)
	return b, nil
}

// inWorkspace adds our kind to an error of package workspace.
func inWorkspace(err error) error {
	switch {
	case errors.Is(err, workspace.ErrForeign):
		return fmt.Errorf("%w: %w", ErrDenied, err)
	case errors.Is(err, workspace.ErrBroken):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return notFound(err)
}

func (o *BoardOptions) check() error {
	if o.TTL < 0 && o.TTL != Forever {
		return &InvalidError{What: "board option TTL", Why: "is negative", Offset: -1, Advice: "Forever keeps everything"}
	}
	return checkLimits("board", limitOption{"MaxChars", o.MaxChars}, limitOption{"MaxFiles", o.MaxFiles}, limitOption{"MaxTasks", o.MaxTasks})
}

// Close gives the folder back. What was written stays.
func (b *Board) Close() error { return b.root.Close() }

// Dir returns the board's folder as an absolute path.
func (b *Board) Dir() string { return b.dir }

// A Draft is what becomes an entry. Session, Task and Topic are free names of at
// most 1024 bytes; what a file name cannot hold of them is replaced by a
// digest, and Entry has them as they were given.
type Draft struct {
	Session string // the team's session, see NewSessionKey
	Task    string
	Topic   string
	Body    string // Markdown, UTF-8, not empty
}

// An Entry is one deliverable on the board. Entries of the same role and topic
// in a task are rounds of one another: they share the ordinal.
type Entry struct {
	Path    string    `json:"path"` // absolute; hand this on
	Session string    `json:"session"`
	Task    string    `json:"task"`
	Topic   string    `json:"topic"`
	Role    Role      `json:"role"`
	Ordinal int       `json:"ordinal"`
	Round   int       `json:"round"`
	Size    int64     `json:"size"`   // of the file, in bytes, header line included
	SHA256  string    `json:"sha256"` // of the body, in lower-case hex
	Time    time.Time `json:"time"`   // when it was written, in UTC, to the millisecond

	// Changed says that the body is no longer the one that was written. Entries
	// finds that out; Read refuses such an entry.
	Changed bool `json:"changed,omitempty"`

	// InPlace says, after a Write, that the file system has no hard links: the
	// entry was created under its name and filled there. Nothing was overwritten,
	// but a reader may have seen a part of it.
	InPlace bool `json:"inPlace,omitempty"`
}

// Ref returns a reference to the entry for a signal.
func (e Entry) Ref() Ref { return Ref{Path: e.Path, SHA256: e.SHA256, Size: e.Size} }

// Write publishes d as a new entry by the caller in ctx (see WithCaller) and
// returns it. Nothing else decides the author's role. The body is stored byte for
// byte behind one header line; a body that starts like a header stays a body.
//
// When Write returns nil the entry is on disk, and it had its name before no
// other file had: of many writers at once, in any number of processes, each
// gets a round or an ordinal of its own. When Write returns an error there is no
// entry, except if the disk fails even in taking it back.
//
// A body that is empty or not UTF-8, and a name that is empty, "..", or has
// control characters, are ErrInvalid. More characters than MaxChars are ErrTooLarge,
// a file more than MaxFiles or a task more than MaxTasks ErrLimit. A session or
// task that is a link is ErrDenied, and so is what BoardOptions.Permissions does not
// allow. A board whose folder was moved is ErrConflict.
func (b *Board) Write(ctx context.Context, d Draft) (Entry, error) {
	e, err := b.write(ctx, d)
	id := d.Session + "/" + d.Task + "/" + d.Topic
	event := TraceEvent{Op: "board.write", ID: id, Size: int64(len(d.Body))}
	if err == nil {
		event.ID, event.Size, event.SHA256, event.Round = b.relative(e.Path), e.Size, e.SHA256, e.Round
	}
	b.trace(ctx, event, err)
	return e, edge("board.write", id, err)
}

// trace tells of a write.
func (b *Board) trace(ctx context.Context, event TraceEvent, err error) {
	if b.opts.Trace != nil {
		event.Outcome, event.Reason = outcomeOf(err)
		b.opts.Trace(ctx, event)
	}
}

func (b *Board) write(ctx context.Context, d Draft) (Entry, error) {
	if err := ctx.Err(); err != nil {
		return Entry{}, err
	}
	caller, err := callerOf(ctx)
	if err != nil {
		return Entry{}, err
	}
	if err := b.checkBody(d.Body); err != nil {
		return Entry{}, err
	}
	p, err := newPlace(d, caller.Role)
	if err != nil {
		return Entry{}, err
	}
	if err := permit(ctx, b.opts.Permissions, caller.Session, PermissionBoard, p.dir()); err != nil {
		return Entry{}, err
	}
	return again(func() (Entry, error) { return b.publish(ctx, p, d.Body) })
}

package team

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/teamchan/team/internal/atomicfile"
	"github.com/teamchan/team/internal/entryfile"
	"github.com/teamchan/team/internal/slug"
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
// value has the defaults.
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
// SHA-256 of the workspace's path without links>. It creates nothing.
func BoardDir(workspaceDir string) (string, error) {
	dir, err := workspace.Dir(workspaceDir, "opencode-team")
	return dir, edge("board.dir", workspaceDir, inWorkspace(err))
}

// StateDir returns the folder for all that is not the board: database, offload
// store, trail. It lies beside the board's, so that no sweep of one can
// touch the other. It creates nothing.
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
	for _, limit := range []struct {
		what string
		n    int
	}{{"MaxChars", o.MaxChars}, {"MaxFiles", o.MaxFiles}, {"MaxTasks", o.MaxTasks}} {
		if limit.n < NoLimit {
			return &InvalidError{What: "board option " + limit.what, Why: "is negative", Offset: -1, Advice: "NoLimit turns a limit off"}
		}
	}
	if o.TTL < 0 && o.TTL != Forever {
		return &InvalidError{What: "board option TTL", Why: "is negative", Offset: -1, Advice: "Forever keeps everything"}
	}
	return nil
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
// task that is a link is ErrDenied. A board whose folder was moved is ErrConflict.
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
	return again(func() (Entry, error) { return b.publish(ctx, p, d.Body) })
}

// again calls f up to three times, as long as something is not there: a sweep took
// the idle session away under it, which is not idle now.
func again[T any](f func() (T, error)) (T, error) {
	for range 2 {
		v, err := f()
		if !errors.Is(err, fs.ErrNotExist) {
			return v, err
		}
	}
	v, err := f()
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: the session's folder goes away while it is in use (%w); try again", ErrConflict, err)
	}
	return v, err
}

func (b *Board) checkBody(body string) error {
	if body == "" {
		return &InvalidError{What: "body", Why: "is empty", Offset: -1}
	}
	if !utf8.ValidString(body) {
		return &InvalidError{What: "body", Why: "is not UTF-8", Offset: invalidAt(body), Advice: "a board entry is text"}
	}
	// There are no more characters than bytes, so most bodies need no counting.
	if n := len(body); over(n, b.opts.MaxChars) {
		n = utf8.RuneCountInString(body)
		if !over(n, b.opts.MaxChars) {
			return nil
		}
		return &LimitError{What: "board entry characters", Got: int64(n), Max: int64(b.opts.MaxChars), TooLarge: true,
			Advice: "split it into entries of several topics"}
	}
	return nil
}

// A place is where a draft goes: names as given, and as file names.
type place struct {
	session, task string // folder names
	name          entryfile.Name
	header        entryfile.Header
	raw           Draft
}

func (p place) dir() string { return path.Join(p.session, p.task) }

// The longest parts of a name, in bytes. With ordinal and round a file name
// stays within 143 bytes, the least that a file system in use allows (eCryptfs).
const (
	maxSessionName = 64
	maxTaskName    = 96
	maxTopicName   = 96
	maxRoleName    = 32
)

func newPlace(d Draft, role Role) (place, error) {
	p := place{raw: d, header: entryfile.Header{Role: string(role), Session: d.Session}}
	clean := func(what, raw string, to *string, max int, fn func(string, int) (string, bool, error)) (bool, error) {
		name, exact, err := fn(raw, max)
		if bad := (*slug.Error)(nil); errors.As(err, &bad) {
			return false, &InvalidError{What: what, Why: bad.Why, Offset: bad.Offset}
		}
		*to = name
		return exact, err
	}
	if _, err := clean("role", string(role), &p.name.Role, maxRoleName, slug.Word); err != nil {
		return p, err
	}
	if _, err := clean("session", d.Session, &p.session, maxSessionName, slug.Name); err != nil {
		return p, err
	}
	if exact, err := clean("task", d.Task, &p.task, maxTaskName, slug.Name); err != nil {
		return p, err
	} else if !exact {
		p.header.Task = d.Task
	}
	if exact, err := clean("topic", d.Topic, &p.name.Topic, maxTopicName, slug.Name); err != nil {
		return p, err
	} else if !exact {
		p.header.Topic = d.Topic
	}
	return p, nil
}

// publish writes the entry to a temporary file first, since that takes long and
// needs no order, and then finds its number and links it.
func (b *Board) publish(ctx context.Context, p place, body string) (Entry, error) {
	if err := b.here(); err != nil {
		return Entry{}, err
	}
	if err := b.ensureSession(p.session); err != nil {
		return Entry{}, err
	}
	// The digest is computed while the disk makes the file.
	digest := make(chan string, 1)
	go func() { digest <- hexDigest(bytesOf(body)) }()

	f, err := atomicfile.Create(b.root, controlDir, b.step)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err = b.mkdir(controlDir); err == nil {
			f, err = atomicfile.Create(b.root, controlDir, b.step)
		}
	}
	if err != nil {
		return Entry{}, err
	}
	defer f.Close()
	p.header.Time = time.Now().UTC().Truncate(time.Millisecond)
	p.header.SHA256 = <-digest
	header := p.header.String()
	for _, s := range []string{header, body} {
		if err := f.WriteString(s); err != nil {
			return Entry{}, err
		}
	}
	if err := f.Sync(p.header.Time); err != nil {
		return Entry{}, err
	}
	file, linked, err := b.number(ctx, &p, f)
	if err != nil {
		return Entry{}, err
	}
	f.Close()
	if err := b.confirm(p, f); err != nil {
		f.Withdraw() // nobody was told of it
		return Entry{}, err
	}
	return Entry{
		Path: b.abs(file), Session: p.raw.Session, Task: p.raw.Task, Topic: p.raw.Topic, Role: Role(p.header.Role),
		Ordinal: p.name.Ordinal, Round: p.name.Round, Size: int64(len(header) + len(body)), SHA256: p.header.SHA256, Time: p.header.Time,
		InPlace: !linked,
	}, nil
}

// number finds the ordinal and the round of an entry, under the session's lock,
// and links f to the name that they make.
func (b *Board) number(ctx context.Context, p *place, f *atomicfile.File) (file string, linked bool, err error) {
	lock, err := b.lock(ctx, p.session, lockPatience)
	if err != nil {
		return "", false, err
	}
	defer lock.unlock()
	lock.stamp()
	names, made, err := b.ensureTask(p)
	if err != nil {
		return "", false, err
	}
	defer func() {
		if err != nil && made {
			_ = b.root.Remove(p.dir()) // only if it is empty
		}
	}()
	// The lock makes numbers unique. Where there is none, or a person's file has
	// the name on a file system that folds names, the link is refused, and the
	// next number is tried.
	for taken := 0; taken <= entryfile.MaxOrdinal; {
		p.name.Ordinal, p.name.Round = next(names, p.name, taken)
		if p.name.Ordinal > entryfile.MaxOrdinal || p.name.Round > entryfile.MaxOrdinal {
			break
		}
		file = path.Join(p.dir(), p.name.String())
		linked, err = f.Link(file)
		if !errors.Is(err, fs.ErrExist) {
			return file, linked, err
		}
		taken = p.name.Round
		if err := ctx.Err(); err != nil {
			return "", false, err
		}
		if names, err = list(b.root, p.dir()); err != nil {
			return "", false, err
		}
	}
	return "", false, &LimitError{What: "ordinals or rounds in one task", Got: entryfile.MaxOrdinal + 1,
		Max: entryfile.MaxOrdinal, Advice: "use another task, or rename the file with the highest number"}
}

// next returns the ordinal and the round for n among names: the ordinal of its
// family, or the next free one; a round after the last and after taken.
func next(names []string, n entryfile.Name, taken int) (ordinal, round int) {
	last := 0
	family := "-" + n.Role + "-" + n.Topic
	for _, s := range names {
		if o, ok := entryfile.Ordinal(s); ok {
			last = max(last, o)
		}
		s = norm.NFC.String(s)
		if !strings.Contains(s, family) {
			continue // quicker than taking it apart
		}
		if m, ok := entryfile.ParseName(s); ok && m.Family(n) && m.Round >= round {
			ordinal, round = m.Ordinal, m.Round
		}
	}
	if ordinal == 0 {
		ordinal = last + 1
	}
	return ordinal, max(round, taken) + 1
}

// confirm makes the entry's name durable and checks that its path leads to it.
func (b *Board) confirm(p place, f *atomicfile.File) error {
	if err := atomicfile.SyncDir(b.root, p.dir(), b.step); err != nil {
		return err
	}
	if err := b.checkFolder(p.session, p.task); err != nil {
		return err
	}
	if !f.Published() {
		return fmt.Errorf("%w: the entry was moved while it was written; write again", ErrConflict)
	}
	return b.here()
}

// ensureTask checks the quotas and makes the task's folder if they allow it. It
// returns the names in the folder. The session's lock must be held.
func (b *Board) ensureTask(p *place) (names []string, made bool, err error) {
	tasks, err := folders(b.root, p.session)
	if err != nil {
		return nil, false, err
	}
	known := slices.Contains(tasks, p.task)
	if !known && over(len(tasks)+1, b.opts.MaxTasks) {
		return nil, false, &LimitError{What: "board tasks in one session", Got: int64(len(tasks) + 1), Max: int64(b.opts.MaxTasks),
			Advice: b.quotaAdvice()}
	}
	files := 1
	for _, task := range tasks {
		in, err := list(b.root, path.Join(p.session, task))
		if err != nil && task == p.task {
			return nil, false, err
		} // another task that somebody closed counts as empty
		for _, s := range in {
			if strings.HasSuffix(s, ".md") {
				files++
			}
		}
		if task == p.task {
			names = in
		}
	}
	if over(files, b.opts.MaxFiles) {
		return nil, false, &LimitError{What: "board files in one session", Got: int64(files), Max: int64(b.opts.MaxFiles),
			Advice: b.quotaAdvice()}
	}
	if known {
		return names, false, nil
	}
	made, err = b.mkdir(p.dir())
	return names, made, err
}

func (b *Board) quotaAdvice() string {
	advice := "merge entries or use an open task"
	if b.opts.TTL != Forever {
		advice += fmt.Sprintf("; a sweep reclaims a session %s after its last change", b.opts.TTL)
	}
	return advice
}

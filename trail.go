package team

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/teamchan/team/internal/atomicfile"
	"github.com/teamchan/team/internal/workspace"
)

// The defaults of a Trail: 32 files of 8 MiB hold about 600 000 lines.
const (
	DefaultTrailFileSize = 8 << 20
	DefaultTrailFiles    = 32
	DefaultTrailPatience = time.Second
)

// A TraceEvent is what a channel tells about one write: names, counts and
// digests. A body has no place in it; ID and Reason are cut at 256 bytes like every
// text here, but a channel puts no content there in the first place.
type TraceEvent struct {
	Op      string    // "board.write", "inbox.send", …; names that start with "trail." are the trail's own
	ID      string    // what was written: a signal's id, an entry's path in the board, a key, a handle
	ReplyTo string    // the id that ID answers or was made from
	By      Caller    // who did it; if empty, the caller in the context
	Target  SessionID // whom it reaches; the trail keeps only a keyed digest of it
	Outcome string    // "ok", "replayed", "refused", …
	Reason  string    // why, in a few words
	Size    int64     // in bytes
	SHA256  string    // of the content, in lower-case hex
	Round   int       // of a board entry
	HostID  string    // the host's own id for ID
	Count   int       // how many things the write was about
}

// TrailOptions change how a Trail keeps its lines. The zero value has the
// defaults. All processes on one trail should use the same.
type TrailOptions struct {
	// FileSize is how large a file gets, in bytes, before the next is begun.
	// Zero means DefaultTrailFileSize; NoLimit keeps one file.
	FileSize int64

	// Files is how many files are kept, the one being written included. Zero
	// means DefaultTrailFiles; NoLimit keeps all.
	Files int

	// MaxAge is how long a file is kept after its last line, by the time in
	// the lines. Zero means Forever. Age is looked at when a new file is begun
	// and by Sweep.
	MaxAge time.Duration

	// Sync makes Record return only when the line would survive a power cut.
	// Without it a power cut takes what the system had not yet written back,
	// mostly the last half minute; a killed process takes nothing either way.
	Sync bool

	// Patience is how long Record waits for the trail. Who holds it for longer
	// is stopped or hung, and the record is counted as lost. When nobody gave
	// the trail back in that time, the next wait is half as long, and so on
	// until somebody does. Zero means DefaultTrailPatience.
	Patience time.Duration
}

// A Trail is the account of every write of the channels that were given its
// Record: JSON lines in a folder of its own, each with the SHA-256 of the line
// before.
//
//	<dir>/trail-00000001.jsonl, trail-00000002.jsonl, …
//	<dir>/trail.head   where the trail ends; it is locked to write
//	<dir>/trail.key    the key for digests of targets
//
// VerifyTrail finds what was changed, removed or put in by hand. It cannot find
// that somebody with the folder in their hands wrote the whole trail anew: who
// fears that keeps TrailReport.Last elsewhere, and looks the line up later.
//
// A record is never lost in silence: what cannot be written is counted in Stats,
// and the next line that can be starts with a trail.gap line that has the number.
//
// A line is written after the write that it tells of. So a process that is killed
// between the two leaves a write without its line: at most that of the one call that
// each of its goroutines was in. SignalChannel.Retrace finds those of signals. Those of
// other channels stay missing: an entry or a record says itself who wrote it and when,
// but what was deleted or overwritten in that call has no account. What no call
// does has no line either: a signal that expires.
//
// A Trail is safe for use by several goroutines and, on one folder, by several
// processes. It runs no goroutine of its own. Where files cannot be locked,
// several processes would break the chain: give each its own folder there.
type Trail struct {
	dir  string // as the caller spelled it, absolute
	root *os.Root
	opts TrailOptions
	key  []byte
	step atomicfile.Step // a seam for tests

	turn chan struct{} // held by the one goroutine that writes; guards w
	w    trailWriter

	mu     sync.Mutex // guards the fields below
	queue  []*trailRecord
	stats  TrailStats
	why    error // of the last loss
	closed bool
}

// A trailRecord waits for the goroutine whose turn it is to write it.
type trailRecord struct {
	body []byte
	done chan struct{}
}

// TrailStats is what became of the records of one Trail since it was opened.
type TrailStats struct {
	Lines int64 // written, the trail's own included
	Bytes int64

	Lost      int64 // records that were not written
	Unmarked  int64 // of those, not yet in a trail.gap line
	Gaps      int64 // trail.gap lines written
	Torn      int64 // remains of killed writers that were marked
	Rotations int64
	Dropped   int64 // old files removed

	// Faults counts errors that lost no record: a sync, a head or an old file
	// that could not be written or removed. The next write tries again.
	Faults int64

	// LastError is the last of either kind, and At when it was.
	LastError error
	At        time.Time
}

// TrailDir returns the folder of the trail for a workspace: trail in what
// StateDir returns. It creates nothing.
func TrailDir(workspaceDir string) (string, error) {
	dir, err := workspace.Dir(workspaceDir, "opencode-team-state")
	if err != nil {
		return "", edge("trail.dir", workspaceDir, err)
	}
	return filepath.Join(dir, "trail"), nil
}

// OpenTrail opens the trail in dir and makes the folder, with mode 0700, if it
// is not there. A folder that belongs to another user, or that everybody can write
// to, is ErrDenied. The caller closes the trail after the channels that use it.
func OpenTrail(ctx context.Context, dir string, opts *TrailOptions) (*Trail, error) {
	t, err := openTrail(ctx, dir, opts)
	return t, edge("trail.open", dir, err)
}

func openTrail(ctx context.Context, dir string, opts *TrailOptions) (*Trail, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if dir == "" {
		return nil, &InvalidError{What: "trail folder", Why: "is empty", Offset: -1, Advice: "pass what TrailDir returns"}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	t := &Trail{dir: abs, turn: make(chan struct{}, 1)}
	if opts != nil {
		t.opts = *opts
	}
	setDefault(&t.opts.FileSize, DefaultTrailFileSize)
	setDefault(&t.opts.Files, DefaultTrailFiles)
	setDefault(&t.opts.MaxAge, Forever)
	setDefault(&t.opts.Patience, DefaultTrailPatience)
	if err := t.opts.check(); err != nil {
		return nil, err
	}
	if t.root, err = trailRoot(abs); err != nil {
		return nil, err
	}
	if t.key, err = t.loadKey(); err == nil {
		var head *os.File
		if head, _, err = t.openHead(); err == nil {
			err = head.Close()
		}
	}
	if err != nil {
		t.root.Close()
		return nil, err
	}
	return t, nil
}

// check refuses what would keep nothing, or wait for nobody.
func (o *TrailOptions) check() error {
	if o.FileSize < NoLimit || o.Files < NoLimit || o.MaxAge < 0 && o.MaxAge != Forever || o.Patience < 0 {
		return &InvalidError{What: "trail option", Why: "is negative", Offset: -1,
			Advice: "NoLimit keeps one file, or all files, and Forever keeps them whatever their age"}
	}
	return nil
}

// trailRoot opens the folder of a trail, and makes it if it is not there.
func trailRoot(dir string) (*os.Root, error) {
	real, err := workspace.Ensure(dir)
	if err != nil {
		return nil, inWorkspace(err)
	}
	return os.OpenRoot(real)
}

// Dir returns the trail's folder as an absolute path.
func (t *Trail) Dir() string { return t.dir }

// Record writes one line for e. It never fails what it tells about: what cannot
// be written is counted, see Stats. When Record returns, the line is in the file,
// or it was counted as lost; a killed process does not take it back, a power cut
// can (see TrailOptions.Sync). It waits for other writers at most about
// TrailOptions.Patience, and does not end with ctx, since the write that it tells
// about has been made.
//
// Every text is made UTF-8 of at most 256 bytes as JSON: a longer one is cut at a
// character and ends in "…~" and eight digits of its SHA-256. Where a text has the
// target in it, its digest takes the place. Concurrent calls share one write, and
// with Sync one fsync.
func (t *Trail) Record(ctx context.Context, e TraceEvent) {
	if e.By == (Caller{}) {
		e.By, _ = CallerFrom(ctx)
	}
	r := &trailRecord{done: make(chan struct{}), body: trailBody(e, t.TargetDigest(e.Target), time.Now())}
	t.mu.Lock()
	if t.closed {
		t.lostLocked(1, ErrClosed)
		t.mu.Unlock()
		return
	}
	t.queue = append(t.queue, r)
	t.mu.Unlock()
	if t.takeTurn(r.done) {
		t.flush(r)
		<-t.turn
	} else {
		t.giveUp(r)
	}
}

// takeTurn waits until this goroutine may write, and reports whether it may: it
// need not once done is closed, and gives up after a time.
func (t *Trail) takeTurn(done <-chan struct{}) bool {
	select {
	case t.turn <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(t.opts.Patience)
	defer timer.Stop()
	select {
	case t.turn <- struct{}{}:
		return true
	case <-done:
	case <-timer.C:
	}
	return false
}

// giveUp counts r as lost if nobody has taken it to write it.
func (t *Trail) giveUp(r *trailRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.queue, r); i >= 0 {
		t.queue = slices.Delete(t.queue, i, i+1)
		t.lostLocked(1, errTrailBusy)
	}
}

var errTrailBusy = errors.New("another writer holds the trail and does not go on")

// trailBatch is how many records go into one write.
const trailBatch = 64

// flush writes what waits until r is written, or all if r is nil. The turn must
// be held.
func (t *Trail) flush(r *trailRecord) {
	for {
		if r != nil {
			select {
			case <-r.done:
				return
			default:
			}
		}
		t.mu.Lock()
		batch := slices.Clone(t.queue[:min(len(t.queue), trailBatch)])
		t.queue = slices.Delete(t.queue, 0, len(batch))
		t.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		bodies := make([][]byte, len(batch))
		for i, b := range batch {
			bodies[i] = b.body
		}
		if n, err := t.write(bodies); err != nil {
			t.lost(len(bodies)-n, err)
		}
		for _, b := range batch {
			close(b.done)
		}
	}
}

func (t *Trail) lost(n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lostLocked(n, err)
}

func (t *Trail) lostLocked(n int, err error) {
	t.stats.Lost += int64(n)
	t.stats.Unmarked += int64(n)
	t.stats.LastError, t.stats.At = err, time.Now()
	t.why = err
}

// fault notes an error that lost nothing.
func (t *Trail) fault(err error) {
	if err == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Faults++
	t.stats.LastError, t.stats.At = err, time.Now()
}

// Stats returns what became of the records so far.
func (t *Trail) Stats() TrailStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stats
}

// Close writes what is left to write, a trail.gap line too if one is due, and
// gives the folder back. If losses stay without such a line, it returns the last
// error. Closing twice is no error.
func (t *Trail) Close() error {
	t.turn <- struct{}{}
	defer func() { <-t.turn }()
	t.mu.Lock()
	again := t.closed
	t.closed = true
	t.mu.Unlock()
	if again {
		return nil
	}
	t.flush(nil)
	var err error
	if n := t.Stats().Unmarked; n > 0 {
		if _, werr := t.write(nil); werr != nil {
			err = fmt.Errorf("%d records are lost without a mark: %w", n, werr)
		}
	}
	t.w.close()
	return edge("trail.close", t.dir, errors.Join(err, t.root.Close()))
}

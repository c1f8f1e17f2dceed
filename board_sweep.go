package team

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/teamchan/team/internal/atomicfile"
	"github.com/teamchan/team/internal/entryfile"
)

// MaxLease is the longest time that a lease runs without being renewed.
const MaxLease = 7 * 24 * time.Hour

// A Lease keeps a session from being swept until its time is over, whatever
// becomes of the process that holds it. It is for one goroutine.
type Lease struct {
	b            *Board
	raw, session string
	name         string // the file that stands for it; its name has the time
	until        time.Time
}

const leasePrefix = ".lease-"

// Lease keeps a session from being swept for d, at most MaxLease, from now on.
// The session need not have entries yet. It may have any number of leases.
func (b *Board) Lease(ctx context.Context, session string, d time.Duration) (*Lease, error) {
	l := &Lease{b: b, raw: session}
	p, err := newPlace(Draft{Session: session, Task: "x", Topic: "x"}, "x")
	if err == nil {
		l.session = p.session
		if err = b.here(); err == nil {
			err = b.ensureSession(l.session)
		}
	}
	if err == nil {
		err = l.extend(ctx, d)
	}
	if err != nil {
		return nil, edge("board.lease", session, err)
	}
	return l, nil
}

// Until returns when the lease ends.
func (l *Lease) Until() time.Time { return l.until }

// Renew makes the lease end d from now, also when its time was over. If the
// session was swept in the meantime, it is ErrNotFound.
func (l *Lease) Renew(ctx context.Context, d time.Duration) error {
	return edge("board.lease", l.raw, notFound(l.extend(ctx, d)))
}

// Release ends the lease. Doing so twice is no error.
func (l *Lease) Release() error {
	err := l.b.root.Remove(l.name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return edge("board.lease", l.raw, err)
}

func (l *Lease) extend(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return &InvalidError{What: "lease", Why: "is not positive", Offset: -1}
	}
	if d > MaxLease {
		return &LimitError{What: "lease seconds", Got: int64(d / time.Second), Max: int64(MaxLease / time.Second),
			Advice: "renew it before it ends"}
	}
	if err := l.b.checkFolder(l.session); err != nil {
		return err
	}
	unlock, err := l.b.lock(ctx, l.session)
	if err != nil {
		return err
	}
	defer unlock()
	until := time.Now().Add(d)
	name := path.Join(l.session, leasePrefix+strconv.FormatInt(until.UnixMilli(), 10)+"-"+rand.Text())
	f, err := l.b.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := atomicfile.SyncDir(l.b.root, l.session, l.b.step); err != nil {
		return err
	}
	if l.name != "" {
		_ = l.b.root.Remove(l.name) // if it stays, its time ends it
	}
	l.name, l.until = name, until
	return nil
}

// leaseEnd returns when the lease ends that a file stands for. A name that
// cannot be read counts as a lease without end: nobody but a lease has such names.
func leaseEnd(base string) (time.Time, bool) {
	s, ok := strings.CutPrefix(base, leasePrefix)
	if !ok {
		return time.Time{}, false
	}
	s, _, _ = strings.Cut(s, "-")
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.UnixMilli(1 << 53), true
	}
	return time.UnixMilli(ms), true
}

// SweepAction says what a sweep does, or did, with an item.
type SweepAction string

// The actions.
const (
	SweepKeep   SweepAction = "keep"
	SweepRemove SweepAction = "remove"
)

// SweepReason says why.
type SweepReason string

// The reasons: the first two of a removal, the others of keeping.
const (
	SweepIdle     SweepReason = "idle"     // not changed for longer than the TTL
	SweepLeftover SweepReason = "leftover" // what a killed or failed writer, lease or sweep left

	SweepFresh   SweepReason = "fresh"
	SweepLeased  SweepReason = "leased"
	SweepBusy    SweepReason = "busy"    // somebody is writing to it right now
	SweepForeign SweepReason = "foreign" // not made by a board: never touched
	SweepUnknown SweepReason = "unknown" // its age or content could not be read: see Err
	SweepFailed  SweepReason = "failed"  // it could not be removed: see Err; the next sweep tries again
)

// A SweepItem is one thing in the board's folder, and what becomes of it: each
// session, each leftover, and each thing that the board did not make.
type SweepItem struct {
	Path   string // absolute
	Action SweepAction
	Reason SweepReason
	Age    time.Duration // since the last change; for a session and what is in it
	Files  int           // entries in a session; those removed, if it was removed
	Bytes  int64         // their size
	Err    error
}

// A SweepReport has everything that a sweep looked at, by path.
type SweepReport struct {
	Items []SweepItem
}

// Removed returns how many entries and bytes are, or will be, removed.
func (r SweepReport) Removed() (files int, bytes int64) {
	for _, item := range r.Items {
		if item.Action == SweepRemove {
			files += item.Files
			bytes += item.Bytes
		}
	}
	return files, bytes
}

// PlanSweep reports what Sweep would do now, and changes nothing.
func (b *Board) PlanSweep(ctx context.Context) (SweepReport, error) { return b.sweep(ctx, false) }

// Sweep removes the sessions that were not changed for longer than the TTL, and
// leftovers of writers that are gone, and reports what it did with every
// session and everything else in the folder.
//
// A session is as old as the newest file in its tree; editing a file in place
// keeps it alive. It goes as a whole or not at all, since its newest signal may
// point to its oldest entry. Kept are: a session with a lease, one in which something
// could not be read, one that somebody is writing to, and everything that the
// board did not make, inside sessions too. What could not be removed, the next
// sweep finds again.
//
// An error means that the sweep ended early; the report has what was done.
// Any number of sweeps may run at once.
func (b *Board) Sweep(ctx context.Context) (SweepReport, error) { return b.sweep(ctx, true) }

func (b *Board) sweep(ctx context.Context, do bool) (SweepReport, error) {
	s := &sweeper{b: b, do: do, now: time.Now()}
	err := s.run(ctx)
	slices.SortStableFunc(s.report.Items, func(x, y SweepItem) int { return cmp.Compare(x.Path, y.Path) })
	return s.report, edge("board.sweep", b.dir, err)
}

// gonePrefix starts the name of a session's folder that a sweep has emptied and
// is about to remove.
const gonePrefix = ".gone-"

type sweeper struct {
	b      *Board
	do     bool
	now    time.Time
	report SweepReport
}

func (s *sweeper) add(item SweepItem) { s.report.Items = append(s.report.Items, item) }

func (s *sweeper) run(ctx context.Context) error {
	if err := s.b.here(); err != nil {
		return err
	}
	d, err := s.b.root.Open(".")
	if err != nil {
		return err
	}
	all, err := d.ReadDir(-1)
	d.Close()
	if err != nil {
		return err
	}
	for _, e := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := e.Name()
		switch {
		case e.IsDir() && strings.HasPrefix(name, gonePrefix):
			s.leftover(name, func() error { return s.removeGone(name) })
		case e.IsDir() && s.ours(name):
			if err := s.session(ctx, name); err != nil {
				return err
			}
		default:
			s.add(SweepItem{Path: s.b.abs(name), Action: SweepKeep, Reason: SweepForeign})
		}
	}
	return nil
}

// ours reports whether a folder is that of a session.
func (s *sweeper) ours(name string) bool {
	fi, err := s.b.root.Lstat(path.Join(name, sessionMark))
	return err == nil && fi.Mode().IsRegular()
}

// leftover reports a leftover and removes it.
func (s *sweeper) leftover(name string, remove func() error) {
	item := SweepItem{Path: s.b.abs(name), Action: SweepRemove, Reason: SweepLeftover}
	if err := remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		item.Action, item.Reason, item.Err = SweepKeep, SweepFailed, err
	}
	s.add(item)
}

// A tree is what a sweep found in a session.
type tree struct {
	newest  time.Time // change of a file; of the mark if there is none
	err     error     // something could not be read
	leased  bool
	busy    bool
	entries []string
	bytes   int64
	folders []string // parents first
	foreign []string
	temps   []string // of writers, dead or alive
	leases  []string // over
}

func (s *sweeper) session(ctx context.Context, name string) error {
	if s.do {
		unlock, held, err := s.b.lockWithin(ctx, name, 100*time.Millisecond)
		if err != nil && ctx.Err() != nil {
			return err
		}
		if err != nil || !held {
			reason := SweepBusy
			if err != nil {
				reason = SweepUnknown
			}
			s.add(SweepItem{Path: s.b.abs(name), Action: SweepKeep, Reason: reason, Err: err})
			return nil
		}
		defer unlock()
	}
	t := s.look(name)
	for _, temp := range t.temps {
		orphan, err := atomicfile.Orphan(s.b.root, temp, s.remove)
		switch {
		case errors.Is(err, fs.ErrNotExist): // published in this moment
		case err != nil:
			s.add(SweepItem{Path: s.b.abs(temp), Action: SweepKeep, Reason: SweepFailed, Err: err})
			t.err = cmp.Or(t.err, err)
		case orphan:
			s.add(SweepItem{Path: s.b.abs(temp), Action: SweepRemove, Reason: SweepLeftover})
		default:
			t.busy = true
		}
	}
	for _, lease := range t.leases {
		s.leftover(lease, func() error { return s.remove(lease) })
	}
	item := SweepItem{Path: s.b.abs(name), Action: SweepKeep, Age: s.now.Sub(t.newest), Files: len(t.entries), Bytes: t.bytes}
	switch {
	case t.err != nil || t.newest.Unix() <= 0:
		item.Reason, item.Err, item.Age = SweepUnknown, t.err, 0
	case t.leased:
		item.Reason = SweepLeased
	case t.busy:
		item.Reason = SweepBusy
	case s.b.opts.TTL == Forever || item.Age <= s.b.opts.TTL:
		item.Reason = SweepFresh
	case len(t.entries) == 0 && len(t.foreign) > 0:
		item.Reason = SweepForeign // what a sweep left
	default:
		item.Action, item.Reason = SweepRemove, SweepIdle
		if s.do {
			s.removeSession(name, t, &item)
		}
	}
	s.add(item)
	for _, f := range t.foreign {
		s.add(SweepItem{Path: s.b.abs(f), Action: SweepKeep, Reason: SweepForeign, Age: item.Age})
	}
	return nil
}

// look walks through a session without following links.
func (s *sweeper) look(session string) tree {
	var t tree
	fail := func(err error) { t.err = cmp.Or(t.err, err) }
	var walk func(dir string, depth int)
	walk = func(dir string, depth int) {
		if err := s.b.step.Before("readdir", dir); err != nil {
			fail(err)
			return
		}
		d, err := s.b.root.Open(dir)
		if err != nil {
			fail(err)
			return
		}
		all, err := d.ReadDir(-1)
		d.Close()
		if err != nil {
			fail(err)
		}
		for _, e := range all {
			name := path.Join(dir, e.Name())
			if e.IsDir() {
				if depth == 0 {
					t.folders = append(t.folders, name)
				} else {
					t.foreign = append(t.foreign, name)
				}
				walk(name, depth+1)
				continue
			}
			fi, err := e.Info()
			if err != nil {
				if !errors.Is(err, fs.ErrNotExist) {
					fail(err)
				}
				continue
			}
			if depth <= 1 && fi.Mode().IsRegular() && atomicfile.IsTemp(e.Name()) {
				t.temps = append(t.temps, name)
				continue
			}
			if depth == 0 && fi.Mode().IsRegular() {
				if e.Name() == sessionMark {
					continue
				}
				if end, ok := leaseEnd(e.Name()); ok {
					if end.After(s.now) {
						t.leased = true
					} else {
						t.leases = append(t.leases, name)
					}
					continue
				}
			}
			if t.newest.Before(fi.ModTime()) {
				t.newest = fi.ModTime()
			}
			if depth == 1 && s.isEntry(session, dir, e.Name()) {
				t.entries = append(t.entries, name)
				t.bytes += fi.Size()
			} else {
				t.foreign = append(t.foreign, name)
			}
		}
	}
	walk(session, 0)
	if len(t.entries)+len(t.foreign) == 0 {
		if fi, err := s.b.root.Lstat(path.Join(session, sessionMark)); err != nil {
			fail(err)
		} else {
			t.newest = fi.ModTime()
		}
	}
	return t
}

// isEntry reports whether a file is an entry that a board wrote, changed since or not.
func (s *sweeper) isEntry(session, dir, base string) bool {
	n, ok := entryfile.ParseName(norm.NFC.String(base))
	if !ok {
		return false
	}
	f, _, err := atomicfile.OpenRegular(s.b.root, path.Join(dir, base), os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, entryfile.MaxHeader))
	if err != nil {
		return false
	}
	_, _, err = parseEntry(norm.NFC.String(session), norm.NFC.String(path.Base(dir)), n, head)
	return err == nil
}

// removeSession removes the entries of a session, then what folders are empty,
// and last its mark. The session's lock must be held.
func (s *sweeper) removeSession(name string, t tree, item *SweepItem) {
	item.Files, item.Bytes = 0, 0
	// Once the entries are gone the mark alone has the session's age, should this
	// sweep not come to its end.
	_ = s.b.root.Chtimes(path.Join(name, sessionMark), t.newest, t.newest)
	for _, e := range t.entries {
		fi, err := s.b.root.Lstat(e)
		if err == nil && fi.ModTime().After(t.newest) {
			err = fmt.Errorf("%w: it was changed in this moment", ErrConflict)
		}
		if err == nil {
			err = s.remove(e)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			item.Action, item.Reason, item.Err = SweepKeep, SweepFailed, cmp.Or(item.Err, err)
			continue
		}
		item.Files++
		item.Bytes += fi.Size()
	}
	if item.Err != nil {
		return
	}
	for _, dir := range t.folders {
		if err := s.remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !s.holds(dir) {
			item.Action, item.Reason, item.Err = SweepKeep, SweepFailed, err
			return
		}
	}
	if s.holds(name) {
		return // things that are not ours are left, or a writer came
	}
	// From here on its name says that it is empty and ours, so that a sweep that is
	// killed now leaves nothing that the next does not know.
	gone := gonePrefix + rand.Text()
	err := s.b.step.Before("rename", name)
	if err == nil {
		err = s.b.root.Rename(name, gone)
	}
	if err == nil {
		err = s.removeGone(gone)
	}
	if err != nil {
		item.Action, item.Reason, item.Err = SweepKeep, SweepFailed, err
	}
}

// holds reports whether a folder holds anything but a session's mark.
func (s *sweeper) holds(dir string) bool {
	names, err := s.b.list(dir)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(names, func(n string) bool { return n != sessionMark })
}

// removeGone removes a session's folder that was emptied. A writer that came
// too early for it finds its file gone and starts again.
func (s *sweeper) removeGone(gone string) error {
	names, err := s.b.list(gone)
	if err != nil {
		return err
	}
	for _, n := range names {
		file := path.Join(gone, n)
		switch _, lease := leaseEnd(n); {
		case n == sessionMark, lease:
			err = s.remove(file)
		case atomicfile.IsTemp(n):
			_, err = atomicfile.Orphan(s.b.root, file, s.remove)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return s.remove(gone)
}

// remove removes a file or an empty folder, if the sweep is not only planned.
func (s *sweeper) remove(name string) error {
	if !s.do {
		return nil
	}
	if err := s.b.step.Before("remove", name); err != nil {
		return err
	}
	return s.b.root.Remove(name)
}

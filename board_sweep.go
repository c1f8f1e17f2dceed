package team

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/teamchan/team/internal/atomicfile"
	"github.com/teamchan/team/internal/entryfile"
	"github.com/teamchan/team/internal/slug"
)

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
// keeps it alive. It goes as a whole, since its newest signal may point to its
// oldest entry, unless the disk fails or somebody edits it in the middle. Kept are: a
// session with a lease, one in which something could not be read, one that
// somebody is writing to, and everything that the board did not make, inside
// sessions too. What could not be removed, the next sweep finds again.
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

type sweeper struct {
	b      *Board
	do     bool
	now    time.Time
	report SweepReport
}

func (s *sweeper) add(item SweepItem) { s.report.Items = append(s.report.Items, item) }

func (s *sweeper) foreign(name string) {
	s.add(SweepItem{Path: s.b.abs(name), Action: SweepKeep, Reason: SweepForeign})
}

func (s *sweeper) run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.b.here(); err != nil {
		return err
	}
	all, err := readDir(s.b.root, ".")
	if err != nil {
		return err
	}
	leased, sessions, err := s.control(ctx)
	if err != nil {
		return err
	}
	for _, e := range all {
		if name := e.Name(); !sessions[norm.NFC.String(name)] && name != controlDir {
			s.foreign(name)
		}
	}
	for name := range sessions {
		if err := s.session(ctx, name, leased[name]); err != nil {
			return err
		}
	}
	return nil
}

// control looks through the control folder. It returns the sessions, and which of
// them have a lease.
func (s *sweeper) control(ctx context.Context) (leased, sessions map[string]bool, err error) {
	leased, sessions = map[string]bool{}, map[string]bool{}
	dir, err := openFolder(s.b.root, controlDir)
	if errors.Is(err, fs.ErrNotExist) {
		return leased, sessions, nil
	} else if err != nil {
		return nil, nil, err
	}
	defer dir.Close()
	all, err := readDir(dir, ".")
	if err != nil {
		return nil, nil, err
	}
	for _, e := range all {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		name := path.Join(controlDir, e.Name())
		session, until, lease := parseLease(norm.NFC.String(e.Name()))
		switch {
		case !e.Type().IsRegular():
			s.foreign(name)
		case atomicfile.IsTemp(e.Name()):
			s.temp(name)
		case lease && until.After(s.now):
			leased[session] = true
		case lease:
			s.leftover(name)
		case slug.Made(norm.NFC.String(e.Name())):
			sessions[norm.NFC.String(e.Name())] = true
		default:
			s.foreign(name)
		}
	}
	return leased, sessions, nil
}

// temp removes a temporary file, if nobody is writing it any more.
func (s *sweeper) temp(name string) {
	switch orphan, err := atomicfile.Orphan(s.b.root, name, s.remove); {
	case errors.Is(err, fs.ErrNotExist): // published in this moment
	case err != nil:
		s.add(SweepItem{Path: s.b.abs(name), Action: SweepKeep, Reason: SweepFailed, Err: err})
	case orphan:
		s.add(SweepItem{Path: s.b.abs(name), Action: SweepRemove, Reason: SweepLeftover})
	default:
		s.add(SweepItem{Path: s.b.abs(name), Action: SweepKeep, Reason: SweepBusy})
	}
}

func (s *sweeper) leftover(name string) {
	item := SweepItem{Path: s.b.abs(name), Action: SweepRemove, Reason: SweepLeftover}
	if err := s.remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		item.Action, item.Reason, item.Err = SweepKeep, SweepFailed, err
	}
	s.add(item)
}

// remove removes a file or an empty folder, if the sweep is not only planned.
func (s *sweeper) remove(name string) error { return s.removeIn(s.b.root, name) }

func (s *sweeper) removeIn(root *os.Root, name string) error {
	if !s.do {
		return nil
	}
	if err := s.b.step.Before("remove", name); err != nil {
		return err
	}
	return root.Remove(name)
}

func (s *sweeper) session(ctx context.Context, name string, leased bool) error {
	item := SweepItem{Path: s.b.abs(name), Action: SweepKeep}
	if s.do {
		// Not for long: whoever works in a session keeps it.
		lock, err := s.b.lock(ctx, name, 100*time.Millisecond)
		switch {
		case ctx.Err() != nil:
			if lock != nil {
				lock.unlock()
			}
			return ctx.Err()
		case err != nil:
			item.Reason, item.Err = SweepUnknown, err
			s.add(item)
			return nil
		}
		defer lock.unlock()
		if !lock.held() {
			item.Reason = SweepBusy
			s.add(item)
			return nil
		}
	}
	root, err := openFolder(s.b.root, name)
	if errors.Is(err, fs.ErrNotExist) { // a writer, or a sweep, was killed
		if !leased {
			s.leftover(markOf(name))
		}
		return nil
	}
	t := &tree{session: name, newest: s.markTime(name), err: err}
	if err == nil {
		defer root.Close()
		s.walk(ctx, t, root, "", 0)
	}
	item.Age, item.Files, item.Bytes = s.now.Sub(t.newest), len(t.entries), t.bytes
	switch {
	case t.err != nil || t.newest.Unix() <= 0:
		item.Reason, item.Age = SweepUnknown, 0
		item.Err = cmp.Or(t.err, error(&InvalidError{What: "age", Why: "is not known", Offset: -1}))
	case leased || s.leasedNow(name):
		item.Reason = SweepLeased
	case s.b.opts.TTL == Forever || item.Age <= s.b.opts.TTL:
		item.Reason = SweepFresh
	case len(t.entries) == 0 && len(t.foreign) > 0:
		item.Reason = SweepForeign // what a sweep left
	default:
		item.Action, item.Reason = SweepRemove, SweepIdle
		if s.do {
			s.removeSession(root, t, &item)
			s.b.trace(ctx, TraceEvent{Op: "board.sweep", ID: name, Count: item.Files, Size: item.Bytes}, item.Err)
		}
	}
	s.add(item)
	for _, f := range t.foreign {
		s.foreign(path.Join(name, f))
	}
	return nil
}

// leasedNow reports whether a session has a lease, taken since the sweep began
// for example. It is asked under the session's lock.
func (s *sweeper) leasedNow(session string) bool {
	names, err := list(s.b.root, controlDir)
	return err != nil || slices.ContainsFunc(names, func(n string) bool {
		of, until, ok := parseLease(norm.NFC.String(n))
		return ok && of == session && until.After(s.now)
	})
}

// markTime returns when somebody had the session's lock last, a sweep aside: the
// age of a session without files.
func (s *sweeper) markTime(session string) time.Time {
	fi, err := s.b.root.Lstat(markOf(session))
	if err != nil {
		return s.now
	}
	return fi.ModTime()
}

// A tree is what a sweep found in a session. Names are relative to its folder.
type tree struct {
	session string
	newest  time.Time // change of a file; of the mark if there is none
	err     error     // something could not be read
	entries []found
	bytes   int64
	folders []string // those that tasks can have
	foreign []string
}

// A found file is an entry that a board wrote, changed since or not.
type found struct {
	dir, base string
	info      fs.FileInfo
}

// maxDepth bounds how deep a sweep looks into what others put into a session.
const maxDepth = 64

// walk looks through a folder of a session, by a handle of its own for each, so that
// no link is followed.
func (s *sweeper) walk(ctx context.Context, t *tree, root *os.Root, dir string, depth int) {
	fail := func(err error) { t.err = cmp.Or(t.err, err) }
	if err := cmp.Or(ctx.Err(), s.b.step.Before("readdir", path.Join(t.session, dir))); err != nil {
		fail(err)
		return
	}
	if depth > maxDepth {
		fail(&LimitError{What: "folders in folders of a session", Got: int64(depth), Max: maxDepth})
		return
	}
	all, err := readDir(root, ".")
	if err != nil {
		fail(err)
	}
	for _, e := range all {
		name := path.Join(dir, e.Name())
		if e.IsDir() {
			if depth == 0 && slug.Made(norm.NFC.String(e.Name())) {
				t.folders = append(t.folders, e.Name())
			} else {
				t.foreign = append(t.foreign, name)
			}
			sub, err := openFolder(root, e.Name())
			if err != nil {
				fail(err)
				continue
			}
			s.walk(ctx, t, sub, name, depth+1)
			sub.Close()
			continue
		}
		fi, err := root.Lstat(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			fail(err)
			continue
		}
		if len(t.entries)+len(t.foreign) == 0 || t.newest.Before(fi.ModTime()) {
			t.newest = fi.ModTime()
		}
		ours := false
		if depth == 1 {
			if ours, err = s.isEntry(root, t.session, dir, e.Name()); err != nil {
				fail(err)
			}
		}
		if ours {
			t.entries = append(t.entries, found{dir, e.Name(), fi})
			t.bytes += fi.Size()
		} else {
			t.foreign = append(t.foreign, name)
		}
	}
}

// isEntry reports whether a file in the task's folder root is an entry.
func (s *sweeper) isEntry(root *os.Root, session, task, base string) (bool, error) {
	n, ok := entryfile.ParseName(norm.NFC.String(base))
	if !ok {
		return false, nil
	}
	f, _, err := atomicfile.OpenRegular(root, base, os.O_RDONLY)
	if errors.Is(err, atomicfile.ErrNotRegular) || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, entryfile.MaxHeader)).ReadString('\n')
	if errors.Is(err, io.EOF) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	_, err = parseEntry(session, norm.NFC.String(task), n, line)
	return err == nil, nil
}

// removeSession removes the entries of a session, then what folders are empty,
// and last its mark. Only empty folders can be removed, so what a writer adds in
// this moment stays. The session's lock must be held.
func (s *sweeper) removeSession(root *os.Root, t *tree, item *SweepItem) {
	item.Files, item.Bytes = 0, 0
	fail := func(err error) { item.Action, item.Reason, item.Err = SweepKeep, SweepFailed, err }
	// Once the entries are gone the mark alone has the session's age, should this
	// sweep not come to its end.
	if err := s.b.root.Chtimes(markOf(t.session), t.newest, t.newest); err != nil {
		fail(err)
		return
	}
	// All of them are looked at again first: it goes as a whole or not at all.
	for _, remove := range []bool{false, true} {
		for _, e := range t.entries {
			if err := s.removeEntry(root, e, remove); err != nil {
				fail(err)
				return
			}
			if remove {
				item.Files++
				item.Bytes += e.info.Size()
			}
		}
	}
	for _, dir := range t.folders {
		if err := s.removeEmpty(root, dir); err != nil {
			fail(err)
			return
		}
	}
	if err := s.removeEmpty(s.b.root, t.session); err != nil {
		fail(err)
		return
	}
	if _, err := s.b.root.Lstat(t.session); !errors.Is(err, fs.ErrNotExist) {
		return // it holds what is not ours, or a writer came
	}
	if err := s.remove(markOf(t.session)); err != nil {
		fail(err)
		return
	}
	s.b.forget(t.session, t.folders)
}

// removeEntry removes an entry, or only looks whether it could be, if it is still
// the file that was found.
func (s *sweeper) removeEntry(root *os.Root, e found, remove bool) error {
	dir, err := openFolder(root, e.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	fi, err := dir.Lstat(e.base)
	if err != nil {
		return err
	}
	if !os.SameFile(fi, e.info) || !fi.ModTime().Equal(e.info.ModTime()) {
		return fmt.Errorf("%w: %s was changed in this moment", ErrConflict, path.Join(e.dir, e.base))
	}
	if !remove {
		return nil
	}
	return s.removeIn(dir, e.base)
}

// removeEmpty removes a folder if it is empty.
func (s *sweeper) removeEmpty(root *os.Root, dir string) error {
	err := s.removeIn(root, dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if names, lerr := list(root, dir); lerr == nil && len(names) > 0 {
		return nil
	}
	return err
}

package team

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/teamchan/team/internal/atomicfile"
	"github.com/teamchan/team/internal/entryfile"
	"github.com/teamchan/team/internal/slug"
)

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
	var digest string
	var hashing sync.WaitGroup
	hashing.Go(func() { digest = hexDigest(bytesOf(body)) })
	defer hashing.Wait()

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
	hashing.Wait()
	p.header.SHA256 = digest
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

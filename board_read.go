package team

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/teamchan/team/internal/atomicfile"
	"github.com/teamchan/team/internal/entryfile"
	"github.com/teamchan/team/internal/slug"
)

// A Range selects a part of a body: bytes, or lines, or with the zero Range all of it.
type Range struct {
	Offset, Bytes int64 // from this byte on, at most so many (0: to the end)
	Line, Lines   int   // from this line on, counted from 1, at most so many (0: to the end)
}

// An Excerpt is the part of an entry that was read.
type Excerpt struct {
	Entry  Entry
	Text   string
	Offset int64 // where Text starts in the body, in bytes
	Line   int   // the line that Text starts in, counted from 1
	Next   int64 // the Offset to go on from, or -1 at the end
	Body   int64 // the length of the whole body, in bytes
}

// Read returns a part of the entry at path, which may be absolute or relative
// to the board's folder. The whole body is checked against its digest first; if
// somebody changed it, Read returns a *DigestError (ErrCorrupt) and no text.
//
// A byte range never splits a character: its start moves back to where one
// starts, and it ends before one that does not fit, but holds one at least.
//
// A path outside the board is ErrDenied, and so is a link or a file that is no
// plain one. A path that no entry can have, and a range outside the body, are
// ErrInvalid; an entry that is not there is ErrNotFound.
func (b *Board) Read(ctx context.Context, path string, r Range) (Excerpt, error) {
	x, err := b.read(ctx, path, r)
	return x, edge("board.read", path, err)
}

func (b *Board) read(ctx context.Context, name string, r Range) (Excerpt, error) {
	if err := ctx.Err(); err != nil {
		return Excerpt{}, err
	}
	session, task, file, err := b.locate(name)
	if err != nil {
		return Excerpt{}, err
	}
	dir, err := b.openTask(session, task)
	if err != nil {
		return Excerpt{}, notFound(err)
	}
	defer dir.Close()
	e, body, err := b.load(dir, session, task, file, true)
	if errors.Is(err, entryfile.ErrHeader) {
		return Excerpt{}, &InvalidError{What: "file", Why: "is not an entry of this board (" + err.Error() + ")", Offset: -1,
			Advice: "open it by its path"}
	} else if err != nil {
		return Excerpt{}, notFound(err)
	}
	if e.Changed {
		return Excerpt{}, &DigestError{Want: e.SHA256, Got: hexDigest(bytesOf(body))}
	}
	if !utf8.ValidString(body) {
		return Excerpt{}, fmt.Errorf("%w: the body is not UTF-8, so no board wrote it; open it by its path", ErrCorrupt)
	}
	return cutRange(e, body, r)
}

// openTask opens a task's folder and nothing else that may be in its place.
func (b *Board) openTask(session, task string) (*os.Root, error) {
	s, err := openFolder(b.root, session)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return openFolder(s, task)
}

// ReadRef is Read of the entry that ref leads to, and refuses another one that
// has its path by now: its digest must be that of ref, or it is ErrCorrupt.
func (b *Board) ReadRef(ctx context.Context, ref Ref, r Range) (Excerpt, error) {
	x, err := b.read(ctx, ref.Path, r)
	if err == nil && x.Entry.SHA256 != ref.SHA256 {
		x, err = Excerpt{}, &DigestError{Want: ref.SHA256, Got: x.Entry.SHA256}
	}
	return x, edge("board.read", ref.Path, err)
}

// Filter selects entries; its zero fields match all.
type Filter struct {
	Session, Task, Topic string
	Role                 Role
}

// Entries yields the entries that match f, without their bodies, ordered by
// session, task, ordinal and round. Each is checked against its digest: see
// Entry.Changed. An entry or a folder that cannot be read, a link for example, is
// yielded with its Path and the error, and the listing goes on. Files without a
// header of ours are not entries; a sweep reports them.
func (b *Board) Entries(ctx context.Context, f Filter) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		err := b.entries(ctx, f, yield)
		if err != nil && err != errStop {
			yield(Entry{}, edge("board.entries", f.Session, err))
		}
	}
}

// errStop ends a listing that the reader has had enough of.
var errStop = errors.New("stop")

func (b *Board) entries(ctx context.Context, f Filter, yield func(Entry, error) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// A folder that cannot be read is named, and the listing goes on.
	unreadable := func(err error, parts ...string) error {
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil // gone since it was listed, or never there
		}
		p := b.abs(path.Join(parts...))
		if !yield(Entry{Path: p}, edge("board.entries", p, err)) {
			return errStop
		}
		return nil
	}
	sessions, err := matching(b.root, f.Session, maxSessionName)
	if err != nil {
		return err
	}
	for _, session := range sessions {
		root, err := openFolder(b.root, session)
		if err == nil {
			err = b.entriesIn(ctx, root, session, f, yield, unreadable)
			root.Close()
			if err != nil {
				return err
			}
			continue
		}
		if err := unreadable(err, session); err != nil {
			return err
		}
	}
	return nil
}

// entriesIn yields the matching entries of one session.
func (b *Board) entriesIn(ctx context.Context, root *os.Root, session string, f Filter,
	yield func(Entry, error) bool, unreadable func(error, ...string) error) error {
	tasks, err := matching(root, f.Task, maxTaskName)
	if err != nil {
		return unreadable(err, session)
	}
	for _, task := range tasks {
		dir, err := openFolder(root, task)
		if err != nil {
			if err := unreadable(err, session, task); err != nil {
				return err
			}
			continue
		}
		files, err := entryFiles(dir)
		if err != nil {
			err = unreadable(err, session, task)
		}
		for i := 0; i < len(files) && err == nil; i++ {
			if err = ctx.Err(); err != nil {
				break
			}
			e, _, lerr := b.load(dir, session, task, files[i], false)
			switch {
			case errors.Is(lerr, entryfile.ErrHeader):
			case lerr != nil:
				err = unreadable(lerr, session, task, files[i].base)
			case f.Topic != "" && f.Topic != e.Topic, f.Role != "" && f.Role != e.Role:
			case !yield(e, nil):
				err = errStop
			}
		}
		dir.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// An entryName is a file name of an entry, as it is spelled on disk and taken apart.
type entryName struct {
	base string
	name entryfile.Name
}

// entryFiles returns the file names in a task's folder that entries can have, in order.
func entryFiles(dir *os.Root) ([]entryName, error) {
	names, err := list(dir, ".")
	if err != nil {
		return nil, err
	}
	var files []entryName
	for _, s := range names {
		if n, ok := entryfile.ParseName(norm.NFC.String(s)); ok {
			files = append(files, entryName{s, n})
		}
	}
	slices.SortFunc(files, func(x, y entryName) int {
		return cmp.Or(cmp.Compare(x.name.Ordinal, y.name.Ordinal), cmp.Compare(x.name.Round, y.name.Round),
			cmp.Compare(x.base, y.base))
	})
	return files, nil
}

// load reads an entry in the folder of its task, the header first: with
// ErrHeader the file is not ours, however large it is. It returns the body only
// if asked to, but checks its digest in any case.
func (b *Board) load(dir *os.Root, session, task string, file entryName, keep bool) (Entry, string, error) {
	f, fi, err := atomicfile.OpenRegular(dir, file.base, os.O_RDONLY)
	if errors.Is(err, atomicfile.ErrNotRegular) {
		return Entry{}, "", fmt.Errorf("%w: %w", ErrDenied, err)
	} else if err != nil {
		return Entry{}, "", err
	}
	defer f.Close()
	r := readers.Get().(*bufio.Reader)
	defer readers.Put(r)
	r.Reset(f)
	line, err := r.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, bufio.ErrBufferFull) {
			err = entryfile.ErrHeader
		}
		return Entry{}, "", err
	}
	e, err := parseEntry(session, task, file.name, string(line))
	if err != nil {
		return Entry{}, "", err
	}
	e.Path, e.Size = b.abs(path.Join(session, task, file.base)), fi.Size()
	if most := b.maxBody() + int64(len(line)); e.Size > most {
		return e, "", &LimitError{What: "board entry bytes", Got: e.Size, Max: most, TooLarge: true,
			Advice: "open it by its path, or raise MaxChars"}
	}
	// What was appended since the file was looked at is not read, and not missed:
	// the digest tells.
	var body strings.Builder
	digest := sha256.New()
	to := io.Writer(digest)
	if keep {
		body.Grow(int(e.Size) - len(line))
		to = io.MultiWriter(digest, &body)
	}
	if _, err := io.Copy(to, io.LimitReader(r, e.Size-int64(len(line)))); err != nil {
		return e, "", err
	}
	e.Changed = hex.EncodeToString(digest.Sum(nil)) != e.SHA256
	return e, body.String(), nil
}

// readers has buffers that a header fits in.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, entryfile.MaxHeader) }}

// maxBody is the size of the largest body that is read, in bytes: other boards
// may have written more than this one would, but nobody writes gigabytes.
func (b *Board) maxBody() int64 {
	const most = 1 << 30
	if b.opts.MaxChars < 0 || b.opts.MaxChars > most/utf8.UTFMax {
		return most
	}
	return utf8.UTFMax * int64(max(b.opts.MaxChars, DefaultMaxChars))
}

// parseEntry reads the header line of an entry. The names in it must be those
// that made the names of the folders and the file.
func parseEntry(session, task string, n entryfile.Name, line string) (Entry, error) {
	h, err := entryfile.ParseHeader(line)
	if err != nil {
		return Entry{}, err
	}
	d := Draft{Session: h.Session, Task: h.Task, Topic: h.Topic}
	if d.Task == "" {
		d.Task, _ = slug.RawName(task)
	}
	if d.Topic == "" {
		d.Topic, _ = slug.RawName(n.Topic)
	}
	p, err := newPlace(d, Role(h.Role))
	if err != nil || p.session != session || p.task != task || !p.name.Family(n) {
		return Entry{}, entryfile.ErrHeader
	}
	return Entry{
		Session: d.Session, Task: d.Task, Topic: d.Topic, Role: Role(h.Role), Ordinal: n.Ordinal, Round: n.Round,
		SHA256: h.SHA256, Time: h.Time.UTC(),
	}, nil
}

// locate takes the path of an entry apart.
func (b *Board) locate(name string) (session, task string, file entryName, err error) {
	if i := strings.IndexFunc(name, breaksLine); i >= 0 {
		return "", "", file, &InvalidError{What: "path", Why: "has a control character", Offset: i}
	}
	rel := name
	if filepath.IsAbs(name) {
		for _, base := range []string{b.dir, b.real} {
			if r, err := filepath.Rel(base, name); err == nil && filepath.IsLocal(r) {
				rel = r
				break
			}
		}
	}
	rel = filepath.Clean(rel)
	if !filepath.IsLocal(rel) {
		return "", "", file, fmt.Errorf("%w: it is not on the board at %s", ErrDenied, b.dir)
	}
	parts := strings.Split(filepath.ToSlash(rel), "/")
	if len(parts) == 3 && parts[0][0] != '.' && parts[1][0] != '.' {
		n, ok := entryfile.ParseName(norm.NFC.String(parts[2]))
		if ok {
			return norm.NFC.String(parts[0]), norm.NFC.String(parts[1]), entryName{parts[2], n}, nil
		}
	}
	return "", "", file, &InvalidError{What: "path", Why: "is not that of an entry", Offset: -1,
		Advice: "pass the Path of an Entry: <session>/<task>/NN-<role>-<topic>.md"}
}

// matching returns the folders in root, in order; or, if raw is not empty, only
// the one that raw stands for, there or not.
func matching(root *os.Root, raw string, max int) ([]string, error) {
	if raw == "" {
		names, err := folders(root, ".")
		slices.Sort(names)
		return names, err
	}
	name, _, err := slug.Name(raw, max)
	if bad := (*slug.Error)(nil); errors.As(err, &bad) {
		return nil, &InvalidError{What: "filter", Why: bad.Why, Offset: bad.Offset}
	}
	return []string{name}, nil
}

// cutRange returns the part of body that r selects.
func cutRange(e Entry, body string, r Range) (Excerpt, error) {
	size := int64(len(body))
	bad := func(why string) (Excerpt, error) {
		return Excerpt{}, &InvalidError{What: "range", Why: why, Offset: -1,
			Advice: fmt.Sprintf("the body has %d bytes and %d lines", size, strings.Count(body, "\n")+1)}
	}
	switch {
	case r.Offset < 0 || r.Bytes < 0 || r.Line < 0 || r.Lines < 0:
		return bad("is negative")
	case (r.Offset > 0 || r.Bytes > 0) && (r.Line > 0 || r.Lines > 0):
		return bad("has bytes and lines; choose one")
	case r.Offset > size:
		return bad("starts behind the end")
	}
	from, to := int(r.Offset), len(body)
	switch {
	case r.Line > 0 || r.Lines > 0:
		if from = lineStart(body, 0, max(r.Line, 1)-1); from < 0 {
			return bad("starts behind the end")
		}
		if r.Lines > 0 {
			if end := lineStart(body, from, r.Lines); end >= 0 {
				to = end
			}
		}
	default:
		for from > 0 && from < len(body) && !utf8.RuneStart(body[from]) {
			from--
		}
		if r.Bytes > 0 && r.Bytes < int64(to-from) {
			to = from + int(r.Bytes)
			for to > from && !utf8.RuneStart(body[to]) {
				to--
			}
			if to == from {
				_, n := utf8.DecodeRuneInString(body[from:])
				to += n
			}
		}
	}
	x := Excerpt{Entry: e, Text: body[from:to], Offset: int64(from), Line: strings.Count(body[:from], "\n") + 1,
		Next: int64(to), Body: size}
	if to == len(body) {
		x.Next = -1
	}
	return x, nil
}

// lineStart returns where the line starts that comes n lines behind from, or -1.
func lineStart(s string, from, n int) int {
	for ; n > 0; n-- {
		i := strings.IndexByte(s[from:], '\n')
		if i < 0 {
			return -1
		}
		from += i + 1
	}
	return from
}

package team

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
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
	if err := b.checkFolder(session, task); err != nil {
		return Excerpt{}, notFound(err)
	}
	root, err := b.root.OpenRoot(path.Join(session, task))
	if err != nil {
		return Excerpt{}, notFound(err)
	}
	defer root.Close()
	e, content, err := b.load(root, session, task, file, nil)
	if errors.Is(err, entryfile.ErrHeader) {
		return Excerpt{}, &InvalidError{What: "file", Why: "is not an entry of this board (" + err.Error() + ")", Offset: -1,
			Advice: "open it by its path"}
	} else if err != nil {
		return Excerpt{}, notFound(err)
	}
	_, body, _ := strings.Cut(string(content), "\n")
	if e.Changed {
		return Excerpt{}, &DigestError{Want: e.SHA256, Got: hexDigest([]byte(body))}
	}
	return cutRange(e, body, r)
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
// Entry.Changed. An entry that cannot be read is yielded with its Path and
// the error, and the listing goes on. Files without a header of ours are not
// entries; a sweep reports them.
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
	sessions, err := b.matching(".", f.Session, maxSessionName)
	if err != nil {
		return err
	}
	var buf []byte
	for _, session := range sessions {
		tasks, err := b.matching(session, f.Task, maxTaskName)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone since it was listed, or never there
		} else if err != nil {
			return err
		}
		for _, task := range tasks {
			if buf, err = b.entriesOf(ctx, session, task, f, buf, yield); err != nil {
				return err
			}
		}
	}
	return nil
}

// entriesOf yields the matching entries of one task. It returns buf, grown.
func (b *Board) entriesOf(ctx context.Context, session, task string, f Filter, buf []byte, yield func(Entry, error) bool) ([]byte, error) {
	dir := path.Join(session, task)
	if err := b.checkFolder(session, task); errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrDenied) {
		return buf, nil // gone since it was listed, or a link that a sweep reports
	} else if err != nil {
		return buf, err
	}
	root, err := b.root.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return buf, nil
	} else if err != nil {
		return buf, err
	}
	defer root.Close()
	files, err := b.entryFiles(dir)
	if err != nil {
		return buf, err
	}
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return buf, err
		}
		var e Entry
		e, buf, err = b.load(root, session, task, file, buf)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, entryfile.ErrHeader):
			continue
		case err != nil:
			p := b.abs(path.Join(dir, file.base))
			if !yield(Entry{Path: p}, edge("board.entries", p, err)) {
				return buf, errStop
			}
		case f.Topic != "" && f.Topic != e.Topic, f.Role != "" && f.Role != e.Role:
		case !yield(e, nil):
			return buf, errStop
		}
	}
	return buf, nil
}

// An entryName is a file name of an entry, as it is spelled on disk and taken apart.
type entryName struct {
	base string
	name entryfile.Name
}

// entryFiles returns the file names in dir that entries can have, in order.
func (b *Board) entryFiles(dir string) ([]entryName, error) {
	names, err := b.list(dir)
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

// load reads an entry of root, which is the task's folder, into buf and returns
// buf, grown: the file's content. ErrHeader means that the file is not ours.
func (b *Board) load(root *os.Root, session, task string, file entryName, buf []byte) (Entry, []byte, error) {
	f, fi, err := atomicfile.OpenRegular(root, file.base, os.O_RDONLY)
	if errors.Is(err, atomicfile.ErrNotRegular) {
		return Entry{}, buf, fmt.Errorf("%w: %w", ErrDenied, err)
	} else if err != nil {
		return Entry{}, buf, err
	}
	defer f.Close()
	most := int64(math.MaxInt64 - 1)
	if b.opts.MaxChars >= 0 {
		most = entryfile.MaxHeader + utf8.UTFMax*int64(b.opts.MaxChars)
	}
	if fi.Size() > most {
		return Entry{}, buf, &LimitError{What: "board entry bytes", Got: fi.Size(), Max: most, TooLarge: true,
			Advice: "no entry was written like this; open it by its path"}
	}
	buf = slices.Grow(buf[:0], int(fi.Size())+bytes.MinRead)
	w := bytes.NewBuffer(buf)
	_, err = w.ReadFrom(io.LimitReader(f, most+1))
	buf = w.Bytes()
	if err != nil {
		return Entry{}, buf, err
	}
	e, body, err := parseEntry(session, task, file.name, buf)
	e.Path = b.abs(path.Join(session, task, file.base))
	e.Changed = err == nil && e.SHA256 != hexDigest(body)
	return e, buf, err
}

// parseEntry reads the content of an entry. The names in the header must be
// those that made the names of the folders and the file.
func parseEntry(session, task string, n entryfile.Name, content []byte) (Entry, []byte, error) {
	line, body, ok := bytes.Cut(content, []byte("\n"))
	if !ok || len(line) > entryfile.MaxHeader {
		return Entry{}, nil, entryfile.ErrHeader
	}
	h, err := entryfile.ParseHeader(string(line))
	if err != nil {
		return Entry{}, nil, err
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
		return Entry{}, nil, entryfile.ErrHeader
	}
	return Entry{
		Session: d.Session, Task: d.Task, Topic: d.Topic, Role: Role(h.Role), Ordinal: n.Ordinal, Round: n.Round,
		Size: int64(len(content)), SHA256: h.SHA256, Time: h.Time.UTC(),
	}, body, nil
}

// locate takes the path of an entry apart.
func (b *Board) locate(name string) (session, task string, file entryName, err error) {
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

// matching returns the folders in dir, in order; or, if raw is not empty, only
// the one that raw stands for, if it is there.
func (b *Board) matching(dir, raw string, max int) ([]string, error) {
	if raw == "" {
		names, err := b.folders(dir)
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
		for from < len(body) && !utf8.RuneStart(body[from]) {
			from--
		}
		if r.Bytes > 0 && r.Bytes < int64(to-from) {
			to = from + int(r.Bytes)
			for !utf8.RuneStart(body[to]) {
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

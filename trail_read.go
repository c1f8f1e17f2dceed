package team

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"time"

	"github.com/teamchan/team/internal/atomicfile"
)

// A TrailLine is one line of a trail, as it stands there.
type TrailLine struct {
	File string // base name
	Line int    // from 1

	Seq   uint64 // its number in the trail, from 1
	Time  time.Time
	Event TraceEvent // Target is empty; texts as they were cut, see Trail.Record
	// Target is the digest of the session that the write reached, see
	// Trail.TargetDigest.
	Target string
	Prev   string // the hash of the line before
	Hash   string

	// Damage says why the line cannot be believed: it is the rest of a killed
	// writer, or its bytes are not those that were written. Then only File and
	// Line are set besides. Whether lines are missing only VerifyTrail tells.
	Damage string
}

// ReadTrail yields all lines of the trail in dir, oldest first, over all files:
// the trail's own ("trail.begin", "trail.gap", …) and damaged ones too. It takes
// no lock, and writers may go on; what they write meanwhile may come or not. After
// an error it stops; ErrNotFound if there is no such folder.
//
// It takes time in proportion to the bytes and the memory of one line, whatever
// the bytes are.
func ReadTrail(ctx context.Context, dir string) iter.Seq2[TrailLine, error] {
	return func(yield func(TrailLine, error) bool) {
		if err := readTrail(ctx, dir, func(l TrailLine) bool { return yield(l, nil) }); err != nil {
			yield(TrailLine{}, edge("trail.read", dir, err))
		}
	}
}

// trailHosts is how many host ids of one thing FollowTrail remembers.
const trailHosts = 256

// FollowTrail yields the lines about id, oldest first: those with that ID, those
// that answer it or were made from it (ReplyTo), and those that know it, or what
// became of it on a host, by a HostID. The id is one that channels write: a
// signal's, an entry's path in the board, a key, a handle. To go on from there,
// follow the ID of a line. Damaged lines cannot be followed and do not come.
func FollowTrail(ctx context.Context, dir, id string) iter.Seq2[TrailLine, error] {
	return func(yield func(TrailLine, error) bool) {
		want := trailForm(id)
		hosts := make(map[string]bool)
		err := readTrail(ctx, dir, func(l TrailLine) bool {
			e := l.Event
			if want == "" || e.ID != want && e.ReplyTo != want && e.HostID != want && !hosts[e.ID] && !hosts[e.HostID] {
				return true
			}
			if e.ID == want && e.HostID != "" && len(hosts) < trailHosts {
				hosts[e.HostID] = true
			}
			return yield(l, nil)
		})
		if err != nil {
			yield(TrailLine{}, edge("trail.follow", dir, err))
		}
	}
}

// readTrail calls yield for each line until it returns false.
func readTrail(ctx context.Context, dir string, yield func(TrailLine) bool) error {
	root, err := existingTrail(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	files, err := trailFiles(root)
	if err != nil {
		return err
	}
	for _, n := range files {
		f, _, err := atomicfile.OpenRegular(root, trailFile(n), os.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			continue // swept since
		}
		if err != nil {
			return notRegularDenied(err)
		}
		more, err := readTrailFile(ctx, f, trailFile(n), yield)
		f.Close()
		if err != nil || !more {
			return err
		}
	}
	return nil
}

func readTrailFile(ctx context.Context, f io.Reader, name string, yield func(TrailLine) bool) (more bool, err error) {
	r := newTrailReader(f)
	for r.next() {
		if r.line%256 == 1 && ctx.Err() != nil {
			return false, ctx.Err()
		}
		p := r.parse()
		if !yield(p.public(name, r.line)) {
			return false, nil
		}
	}
	return true, r.err
}

// existingTrail opens the folder of a trail to read it.
func existingTrail(dir string) (*os.Root, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, notFound(err)
	}
	return trailRoot(dir)
}

func notRegularDenied(err error) error {
	if errors.Is(err, atomicfile.ErrNotRegular) {
		return fmt.Errorf("%w: %w", ErrDenied, err)
	}
	return err
}

// public returns the line for readers.
func (p *parsedLine) public(file string, line int) TrailLine {
	l := TrailLine{File: file, Line: line, Damage: p.damage}
	if p.damage != "" {
		return l
	}
	l.Seq, l.Time, l.Target, l.Prev = p.Seq, p.Time, p.Target, p.Prev
	l.Hash = hex.EncodeToString(p.hash[:])
	l.Event = TraceEvent{
		Op: p.Op, ID: p.ID, ReplyTo: p.ReplyTo, By: Caller{Session: SessionID(p.By), Role: Role(p.Role)},
		Outcome: p.Outcome, Reason: p.Reason, Size: p.Size, SHA256: p.SHA256, Round: p.Round, HostID: p.HostID, Count: p.Count,
	}
	return l
}

// A trailReader takes bytes apart into lines, in linear time and the memory of
// one, whatever they are.
type trailReader struct {
	r     *bufio.Reader
	bytes []byte // the line without its newline, until the next; nil if it is long
	long  bool   // longer than any line of a trail
	open  bool   // the bytes end without a newline
	line  int    // from 1
	off   int64  // where the line ends
	err   error
}

func newTrailReader(r io.Reader) *trailReader {
	return &trailReader{r: bufio.NewReaderSize(r, trailLineMax+1)}
}

func (r *trailReader) next() bool {
	b, err := r.r.ReadSlice('\n')
	n := len(b)
	for r.long = false; err == bufio.ErrBufferFull; n += len(b) {
		r.long = true
		b, err = r.r.ReadSlice('\n')
	}
	r.off += int64(n)
	r.open = err == io.EOF
	if err != nil && !r.open || n == 0 {
		if !r.open {
			r.err = err
		}
		return false
	}
	r.line++
	r.bytes = nil
	if !r.long {
		r.bytes = b
		if !r.open {
			r.bytes = b[:n-1]
		}
	}
	return true
}

// parse reads the line.
func (r *trailReader) parse() parsedLine {
	if r.long {
		return parsedLine{damage: "is longer than any line of a trail"}
	}
	return parseTrailLine(r.bytes)
}

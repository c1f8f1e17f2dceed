package team

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"

	"github.com/teamchan/team/internal/atomicfile"
	"github.com/teamchan/team/internal/filelock"
)

// A trailVerifier walks a trail.
type trailVerifier struct {
	root   *os.Root
	report TrailReport

	files []int
	sizes []int64
	head  trailEnd
	known bool // whether head is one

	file    int // the number of the one being read
	end     trailEnd
	begun   bool   // whether there was a line in the chain
	bad     badRun // of lines right before, in this file
	skipped uint64 // lines of such runs since end
	first   int    // the first file that the trail keeps, by its own account
}

// A badRun is some lines in a row that do not vouch for themselves.
type badRun struct {
	line   int   // of the first
	at     int64 // where it starts
	n      uint64
	why    string
	other  bool // has lines that are no beginning of the next one, so no killed writer left them
	size   int64
	digest hash.Hash
	breaks int64 // newlines not yet counted and digested
}

// look takes down where the trail ends, while nobody writes, if that can be had.
func (v *trailVerifier) look(ctx context.Context) error {
	f, _, err := atomicfile.OpenRegular(v.root, trailHeadName, os.O_RDONLY)
	if err == nil {
		defer f.Close()
		wait, cancel := context.WithTimeout(ctx, DefaultTrailPatience)
		defer cancel()
		_ = filelock.Lock(wait, f) // without it a line being written may look torn
		v.head, v.known, err = readTrailHead(f, trailEnd{})
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return notRegularDenied(err)
	}
	if v.files, err = trailFiles(v.root); err != nil {
		return err
	}
	for _, n := range v.files {
		fi, err := v.root.Lstat(trailFile(n))
		if err != nil {
			return err
		}
		v.sizes = append(v.sizes, fi.Size())
	}
	return ctx.Err()
}

func (v *trailVerifier) fault(f TrailFault) {
	list, count := &v.report.Breaks, &v.report.BreaksCount
	if f.Kind == TrailTorn {
		list, count = &v.report.Torn, &v.report.TornCount
	}
	*count++
	if len(*list) < trailFaults {
		*list = append(*list, f)
	}
}

func (v *trailVerifier) run(ctx context.Context) error {
	if err := v.look(ctx); err != nil {
		return err
	}
	for i, n := range v.files {
		if i > 0 && n != v.file+1 {
			v.fault(TrailFault{File: trailFile(v.file + 1), Kind: TrailRemoved,
				Detail: fmt.Sprintf("%d files are missing between %s and %s", n-v.file-1, trailFile(v.file), trailFile(n))})
		}
		v.file = n
		if err := v.walk(ctx, v.sizes[i], i == len(v.files)-1); err != nil {
			return err
		}
	}
	v.finish()
	return nil
}

// walk reads one file, up to the size that it had.
func (v *trailVerifier) walk(ctx context.Context, size int64, last bool) error {
	f, _, err := atomicfile.OpenRegular(v.root, trailFile(v.file), os.O_RDONLY)
	if err != nil {
		return notRegularDenied(err)
	}
	defer f.Close()
	r := newTrailReader(io.LimitReader(f, size))
	at := int64(0)
	for r.next() {
		if r.line%256 == 1 && ctx.Err() != nil {
			return ctx.Err()
		}
		if p := r.parse(); p.damage != "" {
			v.bad.add(r, at, v.end, &p)
		} else {
			v.line(&p, r.line)
		}
		at = r.off
	}
	v.report.Files++
	v.report.Bytes += r.off
	if last && v.bad.n > 0 && !v.bad.other && (!v.known || v.head.file == v.file && v.bad.at >= v.head.size) {
		v.fault(TrailFault{File: trailFile(v.file), Line: v.bad.line, Kind: TrailTorn, Count: int64(v.bad.n),
			Detail: "a writer was killed here; the next one will mark it"})
		v.bad = badRun{}
	}
	v.flush()
	return r.err
}

// line takes a line that vouches for itself into the chain, or finds why it does
// not belong there.
func (v *trailVerifier) line(p *parsedLine, line int) {
	here := TrailFault{File: trailFile(v.file), Line: line, Count: 1}
	wrong := func(kind TrailFaultKind, detail string) {
		here.Kind, here.Detail = kind, detail
		v.fault(here)
	}
	before := v.report.BreaksCount
	if v.bad.n > 0 && v.begun && v.skipped == 0 && p.follows(v.end) {
		v.between(p)
	}
	v.flush()
	switch missing := p.Seq - v.end.seq - 1; {
	case !v.begun:
		// A trail begins with its first line, or with that of a file behind files
		// that were given up.
		if v.file == 1 && (p.Seq != 1 || p.prev != trailZero) && v.skipped == 0 {
			wrong(TrailRemoved, "lines are missing at the beginning")
		}
	case p.Seq <= v.end.seq:
		wrong(TrailInserted, fmt.Sprintf("the line numbered %d stands behind the one numbered %d", p.Seq, v.end.seq))
		return
	case missing > v.skipped:
		here.Count = int64(min(missing-v.skipped, 1<<62))
		wrong(TrailRemoved, fmt.Sprintf("%d lines are missing before it", missing-v.skipped))
	case missing == 0 && p.prev != v.end.hash:
		wrong(TrailChanged, "it does not follow the line before")
	}
	if v.report.BreaksCount == before && line == 1 && (p.Op != trailBegin || p.File != v.file) {
		wrong(TrailRemoved, "the file does not start with a line that says so")
	}
	if v.known && p.Seq == v.head.seq && p.hash != v.head.hash {
		wrong(TrailChanged, "the head of the trail has another hash for it")
	}
	v.end, v.skipped = trailEnd{file: v.file, seq: p.Seq, hash: p.hash}, 0
	v.count(p, line)
	if p.Op == trailHead {
		wrong(TrailHeadLost, "the head was lost before this line, so lines may be missing")
	}
}

// count notes what a line of the chain says.
func (v *trailVerifier) count(p *parsedLine, line int) {
	v.report.Lines++
	v.report.Last = p.public(trailFile(v.file), line)
	if !v.begun {
		v.begun = true
		v.report.First = v.report.Last
	}
	switch p.Op {
	case trailBegin, trailSwept:
		v.first = max(v.first, p.First)
	case trailGap:
		v.report.Gaps++
		v.report.Lost += int64(p.Count)
	}
}

// between judges a run of bad lines between two lines of the chain: it is the
// rest of a killed writer if the second says so, else it was put in.
func (v *trailVerifier) between(p *parsedLine) {
	f := TrailFault{File: trailFile(v.file), Line: v.bad.line, Count: int64(v.bad.n), Kind: TrailInserted,
		Detail: "lines that the trail did not write stand between two that it did"}
	if p.Op == trailTorn && !v.bad.other && p.Size == v.bad.size && p.SHA256 == hex.EncodeToString(v.bad.digest.Sum(nil)) {
		f.Kind, f.Detail = TrailTorn, "a writer was killed here, and the next one marked it"
	}
	v.fault(f)
	v.bad = badRun{}
}

// flush reports the bad lines right before.
func (v *trailVerifier) flush() {
	if v.bad.n == 0 {
		return
	}
	v.fault(TrailFault{File: trailFile(v.file), Line: v.bad.line, Kind: TrailChanged, Count: int64(v.bad.n), Detail: "it " + v.bad.why})
	v.skipped += v.bad.n
	v.bad = badRun{}
}

// finish compares both ends with what the trail and its head say.
func (v *trailVerifier) finish() {
	head := TrailFault{File: trailHeadName, Kind: TrailHeadLost}
	if len(v.files) > 0 {
		v.report.Dropped = v.files[0] - 1
		if v.begun && v.files[0] > max(v.first, 1) {
			v.fault(TrailFault{File: trailFile(v.files[0] - 1), Kind: TrailRemoved,
				Detail: fmt.Sprintf("the files before %s are missing, and the trail did not give them up", trailFile(v.files[0]))})
		}
		if !v.known {
			head.Detail = "is missing or damaged, so whether lines are missing at the end is unknown"
			v.fault(head)
		}
	}
	if missing := v.head.seq - v.end.seq; v.known && v.head.seq > v.end.seq && missing > v.skipped {
		at := TrailFault{File: v.report.Last.File, Line: v.report.Last.Line + 1, Kind: TrailRemoved, Count: int64(min(missing-v.skipped, 1<<62))}
		if v.head.file != v.file {
			at.File, at.Line = trailFile(v.head.file), 0
		}
		at.Detail = fmt.Sprintf("%d lines are missing at the end", missing-v.skipped)
		v.fault(at)
	}
}

func (b *badRun) add(r *trailReader, at int64, end trailEnd, p *parsedLine) {
	if b.n == 0 {
		*b = badRun{line: r.line, at: at, why: p.damage, digest: sha256.New()}
	}
	b.n++
	b.other = b.other || r.long || p.whole || !isTorn(r.bytes, end)
	if len(r.bytes) > 0 {
		for ; b.breaks > 0; b.breaks-- {
			b.size++
			b.digest.Write([]byte{'\n'})
		}
		b.size += int64(len(r.bytes))
		b.digest.Write(r.bytes)
	}
	b.breaks++
}

// isTorn reports whether b can be what is left of the line behind end.
func isTorn(b []byte, end trailEnd) bool {
	start := fmt.Appendf(nil, `{"seq":%d,"prev":"%x",`, end.seq+1, end.hash)
	n := min(len(b), len(start))
	return string(b[:n]) == string(start[:n])
}

package team

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/teamchan/team/internal/grapheme"
)

// FetchOptions say which part of an offloaded text to fetch. The zero value is its
// beginning, as far as the budget goes.
type FetchOptions struct {
	// Range is a part by bytes or by lines, as for a board. With Grep, the lines
	// to search.
	Range Range

	// Grep selects the lines that a regular expression (RE2, the syntax of package
	// regexp) matches. A line longer than 64 KiB is searched in pieces that
	// overlap by 1 KiB, so a longer match may be missed there.
	Grep string

	// JSONPath selects values of a JSON text: $ and then any of .name, ["name"],
	// [0], [*] and .*, as in $.items[0].name. A path applies to each of several values
	// one behind the other.
	JSONPath string

	// Budget is the most tokens of Text. Zero means DefaultFetchBudget.
	Budget int
}

// A Fetched part is what Fetch found.
type Fetched struct {
	Handle Handle
	Path   string // of the file, absolute
	Class  Class
	SHA256 string // of the whole text
	Size   int64  // of the whole text, in bytes
	Lines  int64

	// Text is the part: bytes and lines as they are, also if they are no UTF-8;
	// matching lines as "<number>: <line>", cut around the match where they are
	// long; JSON values as they stand in the text, each on a line.
	Text string

	Offset  int64 // of a range: where Text starts, in bytes
	Line    int64 // of a range by lines: the line that Text starts in, from 1
	Matches int64 // of Grep and JSONPath: how many were looked at, those in Text included
	Tokens  int   // of Text

	// Next is what to pass to go on where Text ends, or nil at the end, and for a
	// JSONPath: there More says that there is more, and a longer path leads to less.
	Next *FetchOptions
	More bool
}

// The bounds of a search.
const (
	maxBudget     = 1 << 26 // tokens: more than any context has
	maxGrepBytes  = 1000
	maxGrepSize   = 250 // instructions of the compiled expression
	grepLine      = 64 << 10
	grepOverlap   = 1 << 10
	grepShown     = 400 // bytes of a line that is longer
	maxJSONSteps  = 64
	fetchPiece    = 128 << 10
	linesPerIndex = 1 << 20 // bytes between two entries of a line index
)

// Fetch returns a part of the text that h leads to, of at most opts.Budget tokens.
// It ends before a character that does not fit, and says in Next how to go on.
// What Fetch returned is never offloaded again, if the result of the tool that
// called it is either left as FormatFetched rendered it or recognised by its name
// (see AgentTools and OffloadOptions.OwnTools).
//
// The digest of the whole file is checked before anything of it is returned: on
// the first Fetch of this Offload, and again whenever its size, its time or the file
// itself is another. Later fetches of a range read only the blocks of 128 KiB that it
// is in, and compare each with what that check saw. So nothing is returned that is not
// what was stored; it is a *DigestError (ErrCorrupt) instead. Damage elsewhere in the file
// is found by who reads it there, or by the next process.
//
// A handle that was collected is a *CollectedError (ErrNotFound); one that nobody
// knows is ErrNotFound. What is no handle, a range outside the text, a pattern
// or path that is none, and two ways to select at once are ErrInvalid; a pattern
// that takes too long is ErrLimit, and so is a budget that not even one character
// fits.
func (o *Offload) Fetch(ctx context.Context, h Handle, opts FetchOptions) (Fetched, error) {
	f, err := o.fetch(ctx, h, opts)
	o.trace(ctx, TraceEvent{Op: "offload.fetch", ID: string(h), Size: int64(len(f.Text))}, err)
	if err != nil {
		return Fetched{}, edge("offload.fetch", string(h), err)
	}
	return f, nil
}

// fetchedHead begins what FormatFetched renders.
const fetchedHead = "[part of "

// FormatFetched renders a part for a context: first what it is, then the text. It
// carries a tag, so that no Offload on this folder takes it for a new text. What is
// not UTF-8 is replaced by U+FFFD.
func (o *Offload) FormatFetched(f Fetched) string {
	head := fmt.Sprintf(fetchedHead+"%s: %s, %d bytes, %d lines in all", f.Handle, f.Class, f.Size, f.Lines)
	switch next := f.Next; {
	case f.Matches > 0:
		head += fmt.Sprintf("; %d matches so far", f.Matches)
		if next != nil {
			head += fmt.Sprintf("; go on from line %d", next.Range.Line)
		} else if f.More {
			head += "; there is more, ask for less of it"
		}
	case next != nil && next.Range.Line > 0:
		head += fmt.Sprintf("; from line %d; go on from line %d", f.Line, next.Range.Line)
	case next != nil:
		head += fmt.Sprintf("; from byte %d; go on from byte %d", f.Offset, next.Range.Offset)
	}
	return o.tag(head+"]\n"+strings.ToValidUTF8(f.Text, "\uFFFD"), "")
}

func (o *Offload) fetch(ctx context.Context, h Handle, opts FetchOptions) (Fetched, error) {
	if err := ctx.Err(); err != nil {
		return Fetched{}, err
	}
	id, err := h.id()
	if err != nil {
		return Fetched{}, err
	}
	find, err := opts.compile()
	if err != nil {
		return Fetched{}, err
	}
	r, err := o.live(ctx, id)
	if err != nil {
		return Fetched{}, err
	}
	out := Fetched{Handle: h, Path: o.abs(r.File), Class: r.Class, SHA256: r.SHA256, Size: r.Size, Lines: r.Lines}
	file, err := o.openVerified(ctx, r, false)
	if err != nil {
		return Fetched{}, err
	}
	defer file.Close()
	if err = find(ctx, file, &out); errors.Is(err, errRotten) {
		err = o.rotten(ctx, r)
	}
	if err != nil {
		return Fetched{}, err
	}
	out.Tokens = EstimateTokens(out.Text)
	// It is in use, and costs what was saved. The text is there, whatever becomes of this.
	_, _ = o.change(ctx, id, func(r *offloadRecord) error {
		r.Used = max(r.Used, time.Now().UnixMilli())
		r.Fetches++
		r.Back += int64(out.Tokens)
		return nil
	})
	return out, nil
}

// rotten says what became of a file that is not what was checked.
func (o *Offload) rotten(ctx context.Context, r *offloadRecord) error {
	f, err := o.openVerified(ctx, r, true)
	if err == nil {
		f.Close()
		err = fmt.Errorf("%w: the file %s was another for a moment; fetch again", ErrConflict, o.abs(r.File))
	}
	return err
}

// A finder reads a part of a verified file.
type finder func(context.Context, *verifiedFile, *Fetched) error

// compile checks the options and returns what carries them out.
func (opts FetchOptions) compile() (finder, error) {
	bad := func(why, advice string) error {
		return &InvalidError{What: "fetch options", Why: why, Offset: -1, Advice: advice}
	}
	setDefault(&opts.Budget, DefaultFetchBudget)
	opts.Budget = min(opts.Budget, maxBudget)
	r := opts.Range
	byBytes, byLines := r.Offset != 0 || r.Bytes != 0, r.Line != 0 || r.Lines != 0
	switch {
	case opts.Budget < 0 || min(r.Offset, r.Bytes) < 0 || min(r.Line, r.Lines) < 0:
		return nil, bad("are negative", "lines count from 1, bytes from 0")
	case opts.Grep != "" && opts.JSONPath != "", byBytes && byLines, opts.Grep != "" && byBytes, opts.JSONPath != "" && (byBytes || byLines):
		return nil, bad("select in two ways", "choose lines, bytes, a pattern (with lines, if you like) or a JSON path")
	case opts.Grep != "":
		re, err := compileGrep(opts.Grep)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, f *verifiedFile, out *Fetched) error { return grep(ctx, f, out, re, opts) }, nil
	case opts.JSONPath != "":
		steps, err := parseJSONPath(opts.JSONPath)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, f *verifiedFile, out *Fetched) error {
			return findJSON(ctx, f, out, steps, opts.Budget)
		}, nil
	case byLines:
		return func(ctx context.Context, f *verifiedFile, out *Fetched) error { return fetchLines(f, out, opts) }, nil
	}
	return func(ctx context.Context, f *verifiedFile, out *Fetched) error { return fetchBytes(f, out, opts) }, nil
}

// outside is a range that begins behind the end.
func outside(what string, at, most int64) error {
	return &InvalidError{What: "range", Why: fmt.Sprintf("begins at %s %d of %d", what, at, most), Offset: -1}
}

// fit returns as much of a text as the budget allows, and one character at least.
// If the text goes on, its last character may too, and is left out.
func fit(text string, budget int, goesOn bool) (string, error) {
	if goesOn {
		text = text[:cmp.Or(grapheme.Floor(text, len(text)-utf8.UTFMax), len(text))]
	}
	if head := cutHead(text, budget); head != "" || text == "" {
		return head, nil
	}
	one := text[:grapheme.Ceil(text, 1)]
	return "", &LimitError{What: "tokens of one character", Got: int64(EstimateTokens(one)), Max: int64(budget), Advice: "allow a larger budget"}
}

func fetchBytes(f *verifiedFile, out *Fetched, opts FetchOptions) error {
	from := opts.Range.Offset
	if from > f.size || from == f.size && from > 0 {
		return outside("byte", from, f.size)
	}
	to := f.size
	if n := opts.Range.Bytes; n > 0 && n < f.size-from {
		to = from + n
	}
	// A little before and behind, to see whole characters.
	start := max(0, from-utf8.UTFMax+1)
	limit := int64(opts.Budget)*maxTokenBytes + maxCluster
	end := min(f.size, to+utf8.UTFMax, from+limit)
	raw := make([]byte, end-start)
	if _, err := f.ReadAt(raw, start); err != nil {
		return err
	}
	at := int(from - start)
	for at > 0 && at < len(raw) && !utf8.RuneStart(raw[at]) && insideRune(stringOf(raw), at) {
		at--
	}
	text, goesOn := stringOf(raw[at:]), end < f.size
	if most := int(to-start) - at; most < len(text) {
		cut := grapheme.Floor(text, most)
		if cut == 0 {
			cut = grapheme.Ceil(text, 1)
		}
		text, goesOn = text[:cut], false
	}
	text, err := fit(text, opts.Budget, goesOn)
	if err != nil {
		return err
	}
	out.Text, out.Offset = text, start+int64(at)
	if next := out.Offset + int64(len(text)); next < f.size {
		out.More = true
		opts.Range = Range{Offset: next}
		out.Next = &opts
	}
	return nil
}

func fetchLines(f *verifiedFile, out *Fetched, opts FetchOptions) error {
	line := int64(max(opts.Range.Line, 1))
	from, err := f.lineStart(line)
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(io.NewSectionReader(f, from, f.size-from), fetchPiece)
	var b strings.Builder
	cost, n := 0, int64(0)
	room := int64(opts.Budget)*maxTokenBytes + maxCluster
	for opts.Range.Lines == 0 || n < int64(opts.Range.Lines) {
		text, whole, err := readLine(in, room)
		if err != nil {
			return err
		}
		if text == "" {
			break
		}
		cost += EstimateTokens(text)
		if cost > opts.Budget || !whole {
			if n > 0 {
				break
			}
			// Not even one line: a part of it, and on from there by bytes.
			if text, err = fit(text, opts.Budget, !whole); err != nil {
				return err
			}
			out.Text, out.Offset, out.Line, out.More = text, from, line, true
			opts.Range = Range{Offset: from + int64(len(text))}
			out.Next = &opts
			return nil
		}
		b.WriteString(text)
		n++
	}
	out.Text, out.Offset, out.Line = b.String(), from, line
	if from+int64(b.Len()) < f.size {
		out.More = true
		opts.Range = Range{Line: int(line + n)}
		out.Next = &opts
	}
	return nil
}

// readLine reads a line with its end, and at most room bytes of it; then whole is
// false. At the end of the text it is empty.
func readLine(in *bufio.Reader, room int64) (line string, whole bool, err error) {
	var b []byte
	for {
		part, err := in.ReadSlice('\n')
		b = append(b, part...)
		switch {
		case err == nil || err == io.EOF:
			return string(b), int64(len(b)) <= room, nil
		case err != bufio.ErrBufferFull:
			return "", false, err
		case int64(len(b)) > room:
			return string(b), false, nil
		}
	}
}

// compileGrep compiles a pattern, and refuses one whose machine is so large that a
// text of some size would take it minutes. No pattern takes more than linear time.
func compileGrep(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > maxGrepBytes {
		return nil, &LimitError{What: "pattern bytes", Got: int64(len(pattern)), Max: maxGrepBytes, Advice: "search for a part of it"}
	}
	bad := func(err error) error {
		return &InvalidError{What: "pattern", Why: "is no regular expression of RE2 (" + err.Error() + ")", Offset: -1,
			Advice: `escape what is meant literally with a backslash`}
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, bad(err)
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, bad(err)
	}
	if n := len(prog.Inst); n > maxGrepSize {
		return nil, &LimitError{What: "instructions of the pattern", Got: int64(n), Max: maxGrepSize, Advice: "use smaller repeat counts"}
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, bad(err)
	}
	return re, nil
}

func grep(ctx context.Context, f *verifiedFile, out *Fetched, re *regexp.Regexp, opts FetchOptions) error {
	line := int64(max(opts.Range.Line, 1))
	from, err := f.lineStart(line)
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(io.NewSectionReader(f, from, f.size-from), grepLine)
	var b strings.Builder
	cost := 0
	last := int64(0)
	if opts.Range.Lines > 0 {
		last = line + int64(opts.Range.Lines) - 1
	}
	hit := false // this line has a match already
	var part []byte
	for last == 0 || line <= last {
		if err := ctx.Err(); err != nil {
			return err
		}
		piece, err := in.ReadSlice('\n')
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return err
		}
		if err == io.EOF && len(piece) == 0 && len(part) == 0 {
			break
		}
		text := piece
		if len(part) > 0 {
			text = append(part, piece...)
		}
		if at := re.FindIndex(bytes.TrimSuffix(text, []byte("\n"))); at != nil && !hit {
			hit = true
			found := strconv.FormatInt(line, 10) + ": " + around(text, at) + "\n"
			cost += EstimateTokens(found)
			if cost > opts.Budget {
				if b.Len() == 0 {
					if found, err = fit(found, opts.Budget, false); err != nil {
						return err
					}
					b.WriteString(found)
					out.Matches++
					line++
				}
				out.More = true
				opts.Range.Line = int(line)
				if last > 0 {
					opts.Range.Lines = int(last - line + 1)
				}
				if last == 0 || line <= last {
					out.Next = &opts
				}
				break
			}
			out.Matches++
			b.WriteString(found)
		}
		if err == bufio.ErrBufferFull {
			part = append(part[:0], text[max(0, len(text)-grepOverlap):]...)
			continue
		}
		part, hit = part[:0], false
		if line++; err == io.EOF {
			break
		}
	}
	out.Text = b.String()
	return nil
}

// around returns a line without its end, or what is near the match if it is long.
func around(line []byte, at []int) string {
	line = bytes.TrimRight(line, "\r\n")
	if len(line) <= grepShown {
		return string(line)
	}
	text := string(line)
	from := grapheme.Floor(text, max(0, min(at[0], len(text))-grepShown/4))
	to := grapheme.Ceil(text, min(len(text), from+grepShown))
	out := text[from:to]
	if from > 0 {
		out = "..." + out
	}
	if to < len(text) {
		out += "..."
	}
	return out
}

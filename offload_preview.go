package team

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/teamchan/team/internal/grapheme"
)

// A sketch reads a text of any length once, in constant memory, and keeps what a
// preview of it needs: both ends, the counts, and the structure of its class.
type sketch struct {
	class   Class
	round   wrapper // what is round the text, and not in it; set before done
	size    int64
	tokens  int
	counts  bool // tokens are counted here, in pieces
	pieces  int
	passed  int64 // bytes of the pieces behind the first, of which some are counted
	sampled int64 // of those, the bytes and the tokens of the counted ones
	cost    int64
	newline int64
	open    bool // the last line has no end
	head    []byte
	tail    []byte // the last endBytes, and up to as many before them
	shape   shape  // nil for classes without one
	split   lineSplitter
	rest    []byte // the last bytes, which are not counted yet
}

// endBytes is how much is kept of each end of a text.
const endBytes = 16 << 10

// A shape finds the structure of one class.
type shape interface {
	// lines returns what there is to say, the most important first. A sketch takes
	// as many as its budget allows.
	lines() []string
}

// A lineShape is a shape that reads lines, without their ends. A line longer than
// maxShapeLine comes cut; full is its true length. The line is not to be kept.
type lineShape interface {
	shape
	line(n int64, line []byte, full int64)
}

// A byteShape is a shape that reads the bytes as they come.
type byteShape interface {
	shape
	bytes(p []byte)
	done()
}

const maxShapeLine = 1024

func newSketch(class Class, countTokens bool) *sketch {
	s := &sketch{class: class, counts: countTokens}
	switch class {
	case ClassJSON:
		s.shape = newJSONShape()
	case ClassLog, ClassText:
		s.shape = &logShape{text: class == ClassText}
	case ClassCode:
		s.shape = new(codeShape)
	case ClassCSV:
		s.shape = new(csvShape)
	case ClassReport:
		s.shape = new(reportShape)
	}
	return s
}

// Write reads on. It never fails.
func (s *sketch) Write(p []byte) (int, error) {
	s.size += int64(len(p))
	if len(p) == 0 {
		return 0, nil
	}
	if room := endBytes - len(s.head); room > 0 {
		s.head = append(s.head, p[:min(room, len(p))]...)
	}
	s.keepTail(p)
	s.newline += int64(bytes.Count(p, []byte("\n")))
	s.open = p[len(p)-1] != '\n'
	switch shape := s.shape.(type) {
	case lineShape:
		s.split.write(p, shape)
	case byteShape:
		shape.bytes(p)
	}
	if s.counts {
		s.count(p)
	}
	return len(p), nil
}

func (s *sketch) keepTail(p []byte) {
	if len(p) >= endBytes {
		s.tail = append(s.tail[:0], p[len(p)-endBytes:]...)
		return
	}
	if len(s.tail)+len(p) > 2*endBytes {
		s.tail = append(s.tail[:0], s.tail[len(s.tail)+len(p)-endBytes:]...)
	}
	s.tail = append(s.tail, p...)
}

// countPiece is how many bytes are counted at once: a count that is added up of
// pieces must not depend on how the text came. Of a long text, one piece of
// countEvery is counted and stands for the others: to count all of it would take as
// long as to hash it, and it is an estimate anyway.
const (
	countPiece = 64 << 10
	countEvery = 4
)

// count adds the tokens of p, in pieces that end between runes.
func (s *sketch) count(p []byte) {
	for len(s.rest)+len(p) >= countPiece {
		piece := p
		if len(s.rest) > 0 {
			n := countPiece - len(s.rest)
			piece = append(s.rest, p[:n]...)
			p = p[n:]
		} else {
			piece = p[:countPiece]
			p = p[countPiece:]
		}
		whole := len(piece)
		for back := 1; back < utf8.UTFMax; back++ {
			if c := piece[len(piece)-back]; utf8.RuneStart(c) {
				if !utf8.FullRune(piece[len(piece)-back:]) {
					whole -= back
				}
				break
			}
		}
		switch {
		case s.pieces == 0:
			s.tokens = EstimateTokens(stringOf(piece[:whole]))
		case s.pieces%countEvery == 1:
			s.sampled += int64(whole)
			s.cost += int64(EstimateTokens(stringOf(piece[:whole])))
			fallthrough
		default:
			s.passed += int64(whole)
		}
		s.pieces++
		s.rest = append(s.rest[:0], piece[whole:]...)
	}
	s.rest = append(s.rest, p...)
}

// done is called behind the last Write.
func (s *sketch) done() {
	switch shape := s.shape.(type) {
	case lineShape:
		s.split.done(shape)
	case byteShape:
		shape.done()
	}
	if s.counts {
		s.tokens += EstimateTokens(stringOf(s.rest)) + EstimateTokens(s.round.open) + EstimateTokens(s.round.end)
		if s.sampled > 0 {
			s.tokens += int(float64(s.cost) * float64(s.passed) / float64(s.sampled))
		}
	}
}

// lineCount returns how many lines there are, the last one also if it has no end.
func (s *sketch) lineCount() int64 {
	if s.open {
		return s.newline + 1
	}
	return s.newline
}

// wholeLines is lineCount for the text with what is round it.
func (s *sketch) wholeLines() int64 {
	n := s.newline + s.round.lines
	if s.round.unended || s.open && !s.round.ended {
		n++
	}
	return n
}

// preview renders both ends and the structure for at most budget tokens, what is
// cut stated in its place. shown counts the bytes of the text that are in it.
func (s *sketch) preview(budget int) (text string, shown int64) {
	if r, ok := s.shape.(*reportShape); ok {
		return r.render(budget, s)
	}
	for share := budget; share > 0; share -= max(1, share/8) {
		structure := s.structure(min(share*structurePercent[s.class]/100, share-EstimateTokens(gapMark)-2*leastLine))
		if text, shown = s.ends(share, structure); EstimateTokens(text) <= budget {
			return text, shown
		}
	}
	return "", 0 // no budget for a single word; the lines behind it say what there is
}

// structurePercent is how much of a preview the structure may take at most.
var structurePercent = map[Class]int{ClassText: 60, ClassLog: 65, ClassCode: 60, ClassJSON: 60, ClassCSV: 40}

// leastLine is how many tokens of a line are worth showing, and of each end.
const leastLine = 6

// structure takes as many lines of the shape as budget allows; the last one is cut
// if it does not fit.
func (s *sketch) structure(budget int) string {
	if s.shape == nil {
		return ""
	}
	text := ""
	for i, line := range s.shape.lines() {
		line = showable(line)
		if i > 0 {
			line = "\n" + line
		}
		if EstimateTokens(text+line) <= budget {
			text += line
			continue
		}
		left := budget - EstimateTokens(text)
		if i == 0 || left > leastLine {
			text += cutWords(line, left-1)
		}
		break
	}
	return text
}

// cutWords cuts a line of a structure between words, since a number that is cut is
// another number, and says that it did.
func cutWords(line string, budget int) string {
	cut := cutHead(line, budget)
	if rest := line[len(cut):]; !strings.HasPrefix(rest, " ") {
		cut = cut[:max(0, strings.LastIndexByte(cut, ' '))]
	}
	if cut = strings.TrimRight(cut, " ,;:("); cut == "" {
		return ""
	}
	return cut + "..."
}

// ends joins head, tail and structure. Empty lines at the end are not shown.
func (s *sketch) ends(budget int, structure string) (text string, shown int64) {
	if s.class == ClassBinary {
		return s.hexEnds(budget)
	}
	if structure != "" {
		structure = "\n" + structure
	}
	left := budget - EstimateTokens(structure) - EstimateTokens(gapMark)
	share := (left + 1) / 2
	raw := showable(string(s.head))
	if s.class == ClassCSV { // its head, if a few words of the tail fit beside it
		columns, _, _ := strings.Cut(raw, "\n")
		share = max(share, min(EstimateTokens(columns)+1, left-leastLine))
	}
	head := cutHead(raw, share)
	if head == "" {
		head = cutHead(raw, left) // a large character: rather one than none
		left -= EstimateTokens(head)
	}
	rawHead := rawLength(s.head, head)
	tailBytes := s.tail[max(0, len(s.tail)-endBytes):]
	if room := s.size - int64(rawHead); int64(len(tailBytes)) > room {
		tailBytes = tailBytes[int64(len(tailBytes))-room:]
	}
	if full := bytes.TrimRight(tailBytes, "\r\n"); len(full) > 0 {
		tailBytes = full
	}
	tail := cutTail(showable(string(tailBytes)), left-share)
	rawTail := rawLengthEnd(tailBytes, tail)
	shown = int64(rawHead + rawTail)
	if shown >= s.size {
		return head + tail + structure, shown
	}
	var b strings.Builder
	b.WriteString(head)
	if head != "" && !strings.HasSuffix(head, "\n") {
		b.WriteByte('\n')
	}
	b.WriteString(gapMark)
	b.WriteString(tail)
	b.WriteString(structure)
	return strings.Trim(b.String(), "\n"), shown
}

// gapMark stands where something was cut. How much it is, the line behind the
// preview says.
const gapMark = "[... cut ...]\n"

// rawLength returns how many bytes of raw a beginning of showable(raw) stands for:
// a byte that is no UTF-8 became three.
func rawLength(raw []byte, head string) int {
	if len(head) > len(raw) || stringOf(raw[:len(head)]) != head {
		n := 0
		for range head {
			_, size := utf8.DecodeRune(raw[n:])
			n += size
		}
		return n
	}
	return len(head)
}

// rawLengthEnd is rawLength for an end.
func rawLengthEnd(raw []byte, tail string) int {
	if len(tail) > len(raw) || stringOf(raw[len(raw)-len(tail):]) != tail {
		n := len(raw)
		for range tail {
			_, size := utf8.DecodeLastRune(raw[:n])
			n -= size
		}
		return len(raw) - n
	}
	return len(tail)
}

// hexEnds shows the first and the last bytes of what is no text.
func (s *sketch) hexEnds(budget int) (text string, shown int64) {
	n := min(int64(min(16, max(1, budget/5))), s.size/2)
	head, tail := s.head[:n], s.tail[int64(len(s.tail))-n:]
	return fmt.Sprintf("hex % x\n%s% x", head, gapMark, tail), 2 * n
}

// A lineSplitter hands a stream on line by line.
type lineSplitter struct {
	n    int64 // lines handed on
	part []byte
	full int64 // length of the line that part begins
}

func (l *lineSplitter) write(p []byte, to lineShape) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			l.add(p)
			return
		}
		line := p[:i]
		full := int64(i)
		if l.full > 0 {
			l.add(line)
			line, full = l.part, l.full
		}
		l.n++
		to.line(l.n, bytes.TrimSuffix(line[:min(len(line), maxShapeLine)], []byte("\r")), full)
		l.part, l.full = l.part[:0], 0
		p = p[i+1:]
	}
}

func (l *lineSplitter) add(p []byte) {
	l.full += int64(len(p))
	if room := maxShapeLine - len(l.part); room > 0 {
		l.part = append(l.part, p[:min(room, len(p))]...)
	}
}

func (l *lineSplitter) done(to lineShape) {
	if l.full > 0 {
		l.n++
		to.line(l.n, l.part, l.full)
		l.part, l.full = l.part[:0], 0
	}
}

// clip shortens one line of a preview, at the end of a character.
func clip(line string, most int) string {
	if len(line) <= most {
		return line
	}
	return line[:grapheme.Floor(line, most)] + "..."
}

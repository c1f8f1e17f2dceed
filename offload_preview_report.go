package team

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/teamchan/team/internal/grapheme"
)

// A reportShape keeps the lines of a report that matter: its skeleton and its
// tables, then headings, points, and prose as far as there is room.
type reportShape struct {
	kept   [priorities][]reportLine
	bytes  [priorities]int
	table  int                        // number of the table that is being read, zero outside
	tables int                        // so far
	ends   [reportLastLines]reportEnd // the last lines, in a ring
	full   int                        // lines that are not empty
	row    int64                      // the number of the last line that looks like a row of a table

	blank, blankRaw int64 // empty lines just before, and their bytes
}

// What matters, the most important first.
const (
	priorityFrame = iota // labels, the wrapper's tags, the last lines
	priorityTable
	priorityHeading
	priorityPoint
	priorityProse
	priorities
)

const (
	reportLineBytes  = 400
	reportClassBytes = 32 << 10 // kept of each priority
	reportLastLines  = 4
)

type reportLine struct {
	n     int64
	text  string
	raw   int64 // bytes of the text that it shows, its end included
	table int
	cost  int   // in tokens, its mark and its end included
	cut   int64 // bytes that are missing at its end, without its line end

	blank, blankRaw int64 // empty lines just before it, and their bytes
}

// A reportEnd is one of the last lines, in a buffer that is used again.
type reportEnd struct {
	reportLine
	buf []byte
}

// mark says what is missing at the end of a line that is cut, but for the bytes of
// its end.
func (l reportLine) mark(end int64) string {
	if l.cut-end <= 0 {
		return ""
	}
	return fmt.Sprintf("[... %d bytes cut ...]", l.cut-end)
}

func (r *reportShape) lines() []string { return nil } // see render

func (r *reportShape) line(n int64, line []byte, full int64) {
	trimmed := bytes.TrimSpace(line)
	row := len(trimmed) > 1 && trimmed[0] == '|'
	switch {
	case row && r.table == 0 && r.row == n-1 && isTableRule(line):
		r.tables++
		r.table = r.tables
	case !row:
		r.table = 0
	}
	if row {
		r.row = n
	}
	if len(trimmed) == 0 {
		r.blank++
		r.blankRaw += full + 1
		return
	}
	l := reportLine{n: n, raw: full + 1, table: r.table, blank: r.blank, blankRaw: r.blankRaw}
	r.blank, r.blankRaw = 0, 0
	if full > reportLineBytes {
		text := stringOf(line[:min(len(line), reportLineBytes)])
		line = line[:grapheme.Floor(text, reportLineBytes-3)]
		l.raw = int64(len(line))
		l.cut = full - l.raw
	}
	end := &r.ends[r.full%reportLastLines]
	end.reportLine, end.buf = l, append(end.buf[:0], line...)
	r.full++
	priority := priorityProse
	switch {
	case skeletonLabel(line) != "" || isTag(trimmed):
		priority = priorityFrame
	case row:
		priority = priorityTable
	case trimmed[0] == '#':
		priority = priorityHeading
	case isPoint(trimmed):
		priority = priorityPoint
	}
	if r.bytes[priority]+len(line) <= reportClassBytes {
		r.bytes[priority] += len(line)
		l.text = string(line)
		r.kept[priority] = append(r.kept[priority], l)
	}
}

// last returns the last lines that are not empty.
func (r *reportShape) last() []reportLine {
	var lines []reportLine
	for i := max(0, r.full-reportLastLines); i < r.full; i++ {
		end := r.ends[i%reportLastLines]
		end.text = string(end.buf)
		lines = append(lines, end.reportLine)
	}
	return lines
}

// isTag reports whether a line is one tag and nothing else, as a host wraps round
// an answer.
func isTag(line []byte) bool {
	return len(line) > 2 && line[0] == '<' && line[len(line)-1] == '>' && bytes.Count(line, []byte(">")) == 1 &&
		(isLetter(line[1]) || line[1] == '/')
}

// isPoint reports whether a line is a point of a list.
func isPoint(line []byte) bool {
	if len(line) < 2 {
		return false
	}
	if (line[0] == '-' || line[0] == '*' || line[0] == '+') && line[1] == ' ' {
		return true
	}
	n := 0
	for n < len(line) && '0' <= line[n] && line[n] <= '9' {
		n++
	}
	return n > 0 && n+1 < len(line) && (line[n] == '.' || line[n] == ')') && line[n+1] == ' '
}

// render puts together what budget allows, in the order of the text, and says
// between the lines how many are missing.
func (r *reportShape) render(budget int, s *sketch) (text string, shown int64) {
	last := r.last()
	for _, lines := range append(r.kept[:], last) {
		for i, l := range lines {
			lines[i].cost = EstimateTokens(l.text + l.mark(0) + "\n")
		}
	}
	for share := budget; share > 0; share -= max(1, share/8) {
		if text, shown = r.within(share, s, last); EstimateTokens(text) <= budget && text != "" {
			return text, shown
		}
	}
	return s.ends(budget, "")
}

func (r *reportShape) within(budget int, s *sketch, ends []reportLine) (text string, shown int64) {
	chosen := make(map[int64]reportLine)
	left := budget
	// The last line may be a long one: its end is at the end of what is kept.
	tail, tailBytes := "", int64(0)
	if n := len(ends); n > 0 && ends[n-1].cut > 0 && ends[n-1].n == s.lineCount() {
		l := ends[n-1]
		raw := s.tail[max(0, len(s.tail)-int(min(l.cut, endBytes))):]
		tail = cutTail(showable(string(raw)), budget/8)
		left -= EstimateTokens(tail) + 1
		tailBytes = int64(rawLengthEnd(raw, tail))
		shown += tailBytes
	}
	take := func(l reportLine) bool {
		if _, ok := chosen[l.n]; ok {
			return true
		}
		if l.cost <= left {
			left -= l.cost
			chosen[l.n] = l
			return true
		}
		return false
	}
	for _, l := range ends {
		take(l)
	}
	for priority, lines := range r.kept {
		full := false // the table that is being taken does not fit
		table := 0
		for _, l := range lines {
			if priority == priorityTable && l.table != table {
				table, full = l.table, false
			}
			if !full && !take(l) {
				if priority != priorityTable {
					break // rather the first ones than the short ones
				}
				full = true
			}
		}
	}
	order := make([]reportLine, 0, len(chosen))
	for _, l := range chosen {
		order = append(order, l)
	}
	slices.SortFunc(order, func(a, b reportLine) int { return int(a.n - b.n) })
	var b strings.Builder
	at := int64(1) // the line that comes next in the text
	gap := func(to, blank, raw int64) {
		switch missing := to - at - blank; {
		case missing > 0:
			fmt.Fprintf(&b, "[... %d lines cut ...]\n", missing+blank)
		case blank > 0:
			b.WriteByte('\n')
			shown += raw
		}
		at = to + 1
	}
	for _, l := range order {
		gap(l.n, l.blank, l.blankRaw)
		b.WriteString(showable(l.text))
		if tail != "" && l.n == s.lineCount() {
			b.WriteString(l.mark(tailBytes) + tail)
		} else {
			b.WriteString(l.mark(0))
		}
		b.WriteByte('\n')
		shown += l.raw
	}
	last := s.lineCount()
	if n := len(order); s.open && at == last+1 && order[n-1].cut == 0 {
		shown-- // it has no end
	}
	gap(last+1, r.blank, r.blankRaw)
	return strings.TrimSuffix(b.String(), "\n"), shown
}

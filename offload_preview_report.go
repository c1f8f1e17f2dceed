package team

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// A reportShape keeps the lines of a report that matter: its skeleton and its
// tables, then headings, points, and prose as far as there is room.
type reportShape struct {
	kept  [priorities][]reportLine
	bytes [priorities]int
	table int // number of the table that is being read, zero outside
	count int // tables so far
	last  []reportLine
	prev  reportLine // the line before, in case it is the head of a table

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
	cut   int64 // bytes that are missing at its end, without its line end

	blank, blankRaw int64 // empty lines just before it, and their bytes
}

// mark says what is missing at the end of a line that is cut, but for the bytes of
// its end.
func (l reportLine) mark(end int64) string {
	if l.cut-end <= 0 {
		return ""
	}
	return cutMark(0, l.cut-end)
}

func (r *reportShape) lines() []string { return nil } // see render

func (r *reportShape) line(n int64, line []byte, full int64) {
	l := reportLine{n: n, text: string(line[:min(len(line), reportLineBytes)]), raw: full + 1}
	if full > reportLineBytes {
		l.text = l.text[:clusterBefore(l.text, reportLineBytes-3)]
		l.raw = int64(len(l.text))
		l.cut = full - l.raw
	}
	trimmed := bytes.TrimSpace(line)
	row := len(trimmed) > 1 && trimmed[0] == '|'
	switch {
	case row && isTableRule(line) && r.table == 0 && r.prev.n == n-1 && strings.HasPrefix(strings.TrimSpace(r.prev.text), "|"):
		r.count++
		r.table = r.count
	case !row:
		r.table = 0
	}
	l.table = r.table
	r.prev = l
	if len(trimmed) == 0 {
		r.blank++
		r.blankRaw += full + 1
		return
	}
	l.blank, l.blankRaw = r.blank, r.blankRaw
	r.blank, r.blankRaw = 0, 0
	if len(r.last) == reportLastLines {
		r.last = append(r.last[:0], r.last[1:]...)
	}
	r.last = append(r.last, l)
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
	if r.bytes[priority]+len(l.text) <= reportClassBytes {
		r.bytes[priority] += len(l.text)
		r.kept[priority] = append(r.kept[priority], l)
	}
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
	for share := budget; share > 0; share -= max(1, share/8) {
		if text, shown = r.within(share, s); EstimateTokens(text) <= budget && text != "" {
			return text, shown
		}
	}
	return s.ends(budget, "")
}

func (r *reportShape) within(budget int, s *sketch) (text string, shown int64) {
	chosen := make(map[int64]reportLine)
	left := budget
	// The last line may be a long one: its end is at the end of what is kept.
	tail, tailBytes := "", int64(0)
	if n := len(r.last); n > 0 && r.last[n-1].cut > 0 && r.last[n-1].n == s.lineCount() {
		l := r.last[n-1]
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
		if cost := EstimateTokens(l.text + l.mark(0) + "\n"); cost <= left {
			left -= cost
			chosen[l.n] = l
			return true
		}
		return false
	}
	for _, l := range r.last {
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

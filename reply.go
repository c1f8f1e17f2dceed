package team

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxReplyLines is how long a reply may be. What is longer goes on a Board.
const MaxReplyLines = 50

// A ReplyStatus is what a reply says of its work.
type ReplyStatus string

// The statuses. A word that is none of them is StatusUnknown, and no word at all
// StatusMissing; neither is done.
const (
	StatusDone    ReplyStatus = "done"
	StatusBlocked ReplyStatus = "blocked"
	StatusFailed  ReplyStatus = "failed"
	StatusUnknown ReplyStatus = "unknown"
	StatusMissing ReplyStatus = ""
)

// A ReplyGrade says how far a reply keeps to the contract, whatever its status.
type ReplyGrade string

// The grades.
const (
	GradeGood      ReplyGrade = "good"
	GradeWeak      ReplyGrade = "weak"      // done, but without EVIDENCE
	GradeViolating ReplyGrade = "violating" // no STATUS: not a failure of the work, but no report of it either
)

// A Reply is the report with which a session ends its work: five labelled fields, of
// which the texts are in any language.
//
//	STATUS: done, blocked or failed
//	CHANGES: what was changed, and the paths of board entries
//	FINDINGS: what was found, as file:line
//	EVIDENCE: how anybody can check it
//	HANDOFF: what the next role needs to know, relayed verbatim
//
// A field's text starts behind the label's colon, or in the next line that is not blank, and
// ends before the next label. In between it is as it was written, but for blank space
// at its end and between the colon and a text in the same line.
type Reply struct {
	Status   ReplyStatus
	Changes  string
	Findings string
	Evidence string
	Handoff  string

	// What follows is set by ParseReply.

	Grade      ReplyGrade
	StatusText string   // the STATUS field as it was written
	NotDone    []string // what stands behind "not done:" at the start of lines, in order
	Preamble   string   // what stands before the first label

	// BoardFailed is the reason, if the first line is "BLACKBOARD WRITE FAILED: <reason>":
	// the session wanted to use the board and could not, so the reply may be long.
	BoardFailed string

	Lines    int      // of the whole reply
	Problems []string // what is wrong with the reply and what to do, for the lead; nil if nothing is
}

// Done reports whether the reply says that the work is done. See Grade for whether to
// believe it, and NotDone for what is missing.
func (r Reply) Done() bool { return r.Status == StatusDone }

// TooLong reports whether the reply has more than MaxReplyLines lines.
func (r Reply) TooLong() bool { return r.Lines > MaxReplyLines }

// The labels in the order of a reply.
var replyLabels = []string{"STATUS", "CHANGES", "FINDINGS", "EVIDENCE", "HANDOFF"}

// ParseReply reads the report in text. It never fails: what is wrong is in Grade and
// Problems.
//
// A label stands at the very start of a line, in any case, and a colon follows, ASCII or
// full-width. A label in a quotation, behind an indent or a list's dash, or in a fenced block
// inside a field is content. A label that comes again continues its field; a STATUS that comes
// again with another word is StatusUnknown. ParseReply takes time linear in text.
func ParseReply(text string) Reply {
	r := Reply{Grade: GradeGood}
	text = strings.TrimPrefix(text, "\uFEFF")
	fields := make(map[string][]string)
	label, from := "", 0 // the field that is being read, and where its text starts
	end := func(at int) {
		if s := fieldText(text[from:at]); s != "" {
			fields[label] = append(fields[label], s)
		}
	}
	closing := closingFences(text)
	fence := -1 // where the fenced block ends that is being read
	for line := range replyLines(text) {
		s := text[line.from:line.to]
		if rest, ok := strings.CutPrefix(s, "BLACKBOARD WRITE FAILED:"); ok && r.Lines == 0 {
			r.BoardFailed = strings.TrimSpace(rest)
		}
		r.Lines++
		if part, ok := notDone(s); ok {
			r.NotDone = append(r.NotDone, part)
		}
		switch {
		case line.from <= fence:
			continue
		case label != "" && closing[line.from] > 0:
			fence = closing[line.from]
			continue
		}
		if l, n := labelOf(s); l != "" {
			end(line.from)
			label, from = l, line.from+n
		}
	}
	end(len(text))

	join := func(label string) string { return strings.Join(fields[label], "\n") }
	r.Preamble, r.Changes, r.Findings, r.Evidence, r.Handoff = join(""), join("CHANGES"), join("FINDINGS"), join("EVIDENCE"), join("HANDOFF")
	r.StatusText = join("STATUS")
	r.Status = replyStatusOf(fields["STATUS"])
	r.judge()
	return r
}

// judge sets Grade and Problems.
func (r *Reply) judge() {
	problem := func(format string, args ...any) { r.Problems = append(r.Problems, fmt.Sprintf(format, args...)) }
	switch {
	case r.Status == StatusMissing:
		r.Grade = GradeViolating
		problem("no STATUS: ask once more for the five fields, then take the result as unchecked")
	case r.Status == StatusUnknown:
		problem("STATUS %s is none of done, blocked and failed: it does not count as done", quoteName(r.StatusText))
	case r.Status == StatusDone && r.Evidence == "":
		r.Grade = GradeWeak
		problem("done without EVIDENCE: ask how it was checked, or check it")
	}
	if n := len(r.NotDone); n > 0 && r.Done() {
		problem("STATUS is done, and %d part(s) are named as not done", n)
	}
	if r.TooLong() && r.BoardFailed == "" {
		problem("%d lines, limit %d: use the board for what is longer, and put the path into CHANGES or HANDOFF", r.Lines, MaxReplyLines)
	}
}

// fieldText returns the text of a field: without blank lines before it and blank space behind.
// A text in the label's own line starts with its first word.
func fieldText(s string) string {
	s = strings.TrimRight(s, " \t\r\n")
	first := strings.TrimLeft(s, " \t\r\n")
	if i := strings.LastIndexByte(s[:len(s)-len(first)], '\n'); i >= 0 {
		return s[i+1:]
	}
	return first
}

// replyStatusOf reads the texts of all STATUS fields.
func replyStatusOf(texts []string) ReplyStatus {
	status := StatusMissing
	for _, s := range texts {
		s, _, _ = strings.Cut(s, "\n") // what follows on further lines is a remark
		s = strings.ToLower(strings.Trim(s, " \t\r*_`.。"))
		if s == "" {
			continue
		}
		got := ReplyStatus(s)
		if got != StatusDone && got != StatusBlocked && got != StatusFailed || status != StatusMissing && status != got {
			return StatusUnknown
		}
		status = got
	}
	return status
}

// labelOf returns the label at the start of a line and how many bytes it takes with
// its colon, or "".
func labelOf(line string) (string, int) {
	for _, l := range replyLabels {
		if len(line) <= len(l) || !strings.EqualFold(line[:len(l)], l) {
			continue
		}
		rest := strings.TrimLeft(line[len(l):], " \t")
		for _, colon := range []string{":", "："} {
			if strings.HasPrefix(rest, colon) {
				return l, len(line) - len(rest) + len(colon)
			}
		}
	}
	return "", 0
}

// notDone returns what stands behind "not done:" at the start of a line, where a list's
// mark may come before it.
func notDone(line string) (string, bool) {
	const label = "not done"
	s := strings.TrimLeft(line, " \t-*+•")
	if len(s) < len(label) || !strings.EqualFold(s[:len(label)], label) {
		return "", false
	}
	s = strings.TrimLeft(s[len(label):], " \t*_")
	for _, colon := range []string{":", "："} {
		if rest, ok := strings.CutPrefix(s, colon); ok {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}

// A replyLine is a line's place in a text, without its end.
type replyLine struct{ from, to int }

// replyLines yields the lines of text; they end with "\n" or "\r\n". A line end at the
// very end starts no further line.
func replyLines(text string) func(yield func(replyLine) bool) {
	return func(yield func(replyLine) bool) {
		for from := 0; from < len(text); {
			to, next := len(text), len(text)
			if i := strings.IndexByte(text[from:], '\n'); i >= 0 {
				to, next = from+i, from+i+1
			}
			if to > from && text[to-1] == '\r' {
				to--
			}
			if !yield(replyLine{from, to}) {
				return
			}
			from = next
		}
	}
}

// closingFences returns, for the start of each line that opens a fenced block, the start of the
// line that closes it: the next fence of the same character that is as long and has no
// word behind it. A fence that nothing closes opens nothing, so it hides no label.
func closingFences(text string) map[int]int {
	type fence struct {
		at, n int
		mark  byte
		word  bool
	}
	var fences []fence
	for line := range replyLines(text) {
		s := strings.TrimLeft(text[line.from:line.to], " ")
		if len(s) < 3 || s[0] != '`' && s[0] != '~' {
			continue
		}
		rest := strings.TrimLeft(s, s[:1])
		if n := len(s) - len(rest); n >= 3 {
			fences = append(fences, fence{line.from, n, s[0], strings.TrimSpace(rest) != ""})
		}
	}
	closing := make(map[int]int)
	open := make(map[[2]byte]int) // by mark and length, the next fence that can close, from behind
	for i := len(fences) - 1; i >= 0; i-- {
		f := fences[i]
		n := byte(min(f.n, 255))
		if at, ok := open[[2]byte{f.mark, n}]; ok {
			closing[f.at] = at
		}
		if f.word {
			continue
		}
		for k := byte(3); ; k++ { // it closes every shorter one as well
			open[[2]byte{f.mark, k}] = f.at
			if k == n {
				break
			}
		}
	}
	return closing
}

// FormatReply writes a reply that ParseReply reads back. Each field that has a text is
// written as it is, so a text that would be read otherwise is refused: one with blank lines
// before it or blank space behind, or with a line that starts like a label. That, an unknown
// status and what is not UTF-8 are ErrInvalid, and a reply of more than MaxReplyLines lines ErrTooLarge: put it
// on the board. What ParseReply alone sets is not written; list in Changes or Findings
// what is not done.
func FormatReply(r Reply) (string, error) {
	if r.Status != StatusDone && r.Status != StatusBlocked && r.Status != StatusFailed {
		return "", &InvalidError{What: "STATUS " + quoteName(string(r.Status)), Why: "is none of done, blocked and failed", Offset: -1}
	}
	var b strings.Builder
	b.WriteString("STATUS: " + string(r.Status) + "\n")
	texts := []string{"", r.Changes, r.Findings, r.Evidence, r.Handoff}
	for i, s := range texts {
		switch {
		case s == "":
			continue
		case !utf8.ValidString(s):
			return "", &InvalidError{What: replyLabels[i], Why: "is not UTF-8", Offset: invalidAt(s)}
		case strings.Contains(s, "\n"), strings.TrimLeft(s, " \t") != s:
			b.WriteString(replyLabels[i] + ":\n" + s + "\n")
		default:
			b.WriteString(replyLabels[i] + ": " + s + "\n")
		}
	}
	text := b.String()
	back := ParseReply(text)
	for i, s := range []string{back.Changes, back.Findings, back.Evidence, back.Handoff} {
		if s != texts[i+1] {
			return "", &InvalidError{What: replyLabels[i+1], Why: "would be read as something else", Offset: -1,
				Advice: "indent lines that start like a label, and trim it"}
		}
	}
	if back.Status != r.Status || back.Preamble != "" {
		return "", &InvalidError{What: "reply", Why: "would be read as something else", Offset: -1, Advice: "indent lines that start like a label"}
	}
	if back.TooLong() {
		return "", &LimitError{What: "reply lines", Got: int64(back.Lines), Max: MaxReplyLines, TooLarge: true,
			Advice: "use the board, and put the path of the entry into HANDOFF"}
	}
	return text, nil
}

package team

import (
	"math/bits"
	"strings"
	"unicode"
)

const (
	bom       = "\uFEFF"
	space     = " \t\r\n"
	trailerV1 = "<task_metadata>"
	idLineV1  = "session_id: "
	headV1b   = "task_id: "
	idOfV1    = " (task_id: "
	idOfV2    = " (sessionID: "
	maxLead   = 128      // bytes of the words in front of an id in parentheses, with the opening
	maxOpener = 64 << 10 // bytes of an opening tag, and of a summary
)

// readEnvelope reads a text that a host may have written. The metadata only helps to
// tell forms apart; its values are not looked at.
func readEnvelope(in EnvelopeInput, said metadata) reading {
	if in.Failed {
		e, ok := readFailure(in.Text)
		switch {
		case ok && (in.Tool != "" || said.Session != ""):
			return reading{Envelope: e, verdict: EnvelopeMatched}
		case ok:
			return reading{verdict: EnvelopeNearMiss, name: "failure"}
		}
		return seekOther(in.Text)
	}
	text := strings.TrimPrefix(in.Text, bom)
	running := said.word == "running" && !said.Notice
	if e, ok := readTrailer(in.Text); ok && !running {
		// A message may end like this; only a result of a task has it for certain.
		if in.Tool == "task" || said.Generation == GenV1b || said.Generation == GenV1c {
			return reading{Envelope: e, verdict: EnvelopeMatched}
		}
		return reading{verdict: EnvelopeNearMiss, name: "task_metadata"}
	}
	var e Envelope
	verdict, name := EnvelopeNone, ""
	switch {
	case strings.HasPrefix(text, "<subagent "):
		name = "subagent"
		e, verdict = readSubagent(text, said.Truncated)
	case strings.HasPrefix(text, "<task "):
		name = "task"
		e, verdict = readTask(text, said.Truncated)
	case strings.HasPrefix(text, headV1b):
		name = "task_id"
		e, verdict = readV1b(text, said.Truncated)
	case running:
		if e, ok := readRunning(text); ok {
			return reading{Envelope: e, verdict: EnvelopeMatched}
		}
	case in.Tool == "subagent":
		if _, ok := readRunning(text); ok {
			return reading{verdict: EnvelopeNearMiss, name: "sessionID"}
		}
	}
	if verdict == EnvelopeNone {
		return seekOther(in.Text)
	}
	return reading{Envelope: e, verdict: verdict, name: name}
}

// readSubagent reads the forms of 2.x. The text starts with the tag.
func readSubagent(text string, cut bool) (Envelope, EnvelopeVerdict) {
	e, rest, nl, ok := readOpener(text, "<subagent")
	if !ok {
		return e, EnvelopeMalformed
	}
	if body, ok := cutEnd(rest, "</subagent>", nl); ok {
		e.Body = body
		return e, EnvelopeMatched
	}
	return e, e.cutOff(rest, "\n</subagent>", cut)
}

// readTask reads the form of 1.14 to 1.18. The text starts with the tag.
func readTask(text string, cut bool) (Envelope, EnvelopeVerdict) {
	const end = "</task>"
	e, rest, nl, ok := readOpener(text, "<task")
	if !ok {
		return e, EnvelopeMalformed
	}
	if s, ok := strings.CutPrefix(rest, "<summary>"); ok {
		i := strings.Index(s[:min(len(s), maxOpener)], "</summary>"+nl)
		if i < 0 && len(s) > maxOpener {
			return e, EnvelopeMalformed
		}
		if i < 0 {
			verdict := e.cutOff(s, "\n"+end, cut)
			e.Summary, e.Body = e.Body, ""
			return e, verdict
		}
		e.Summary, rest = s[:i], s[i+len("</summary>"+nl):]
		e.Notice = e.State != ChildRunning
	}
	if tag, body, ok := cutInner(rest, nl); ok {
		if inner, ok := cutEnd(body, end, nl); ok {
			if e.Body, ok = cutEnd(inner, tag, nl); ok {
				return e, EnvelopeMatched
			}
		}
		verdict := e.cutOff(body, "\n"+end, cut)
		if whole, ok := cutEnd(e.Body, tag, nl); ok {
			e.Body = whole // only the outermost tag is missing
		}
		return e, verdict
	}
	verdict := e.cutOff(rest, end, cut)
	if verdict == EnvelopeMatched && !cutWithin(e.Body, "<summary>", "<task_result>", "<task_error>") {
		return e, EnvelopeMalformed
	}
	e.Body = ""
	return e, verdict
}

// cutWithin reports whether s is the start of one of the tags, or nothing.
func cutWithin(s string, tags ...string) bool {
	for _, tag := range tags {
		if strings.HasPrefix(tag, s) {
			return true
		}
	}
	return false
}

// cutInner takes the tag in front of a task's body away, and returns the one that
// closes it.
func cutInner(s, nl string) (end, body string, ok bool) {
	if body, ok = cutLine(s, "<task_result>", nl); ok {
		return "</task_result>", body, true
	}
	body, ok = cutLine(s, "<task_error>", nl)
	return "</task_error>", body, ok
}

// readV1b reads the form of 1.1.50. The text starts with its key.
func readV1b(text string, cut bool) (Envelope, EnvelopeVerdict) {
	e := Envelope{Generation: GenV1b, State: ChildCompleted}
	head, rest, _ := strings.Cut(text[len(headV1b):], "\n")
	head, isCRLF := strings.CutSuffix(head, "\r")
	nl := "\n"
	if isCRLF {
		nl = "\r\n"
	}
	id, note, noted := strings.Cut(head, " (")
	if noted {
		var ok bool
		if e.Summary, ok = strings.CutSuffix(note, ")"); !ok {
			return e, EnvelopeNone
		}
	}
	rest, ok := strings.CutPrefix(rest, nl)
	if ok {
		rest, ok = cutLine(rest, "<task_result>", nl)
	}
	if !ok || !plainID(id) {
		return e, EnvelopeNone
	}
	e.Session = SessionID(id)
	if e.Body, ok = cutEnd(rest, "</task_result>", nl); ok {
		return e, EnvelopeMatched
	}
	return e, e.cutOff(rest, "\n</task_result>", cut)
}

// readTrailer reads the form of 1.1.49, which starts with the body.
func readTrailer(text string) (Envelope, bool) {
	e := Envelope{Generation: GenV1a, State: ChildCompleted}
	s, ok := strings.CutSuffix(trimEnd(text), "</task_metadata>")
	if !ok {
		return e, false
	}
	near := len(s) - min(len(s), len(trailerV1)+len(idLineV1)+maxName+len("\r\n\r\n"))
	i := strings.LastIndex(s[near:], trailerV1)
	if i < 0 {
		return e, false
	}
	body, line := s[:near+i], s[near+i+len(trailerV1):]
	nl := "\n"
	if strings.HasPrefix(line, "\r\n") {
		nl = "\r\n"
	}
	id, isLine := strings.CutPrefix(line, nl+idLineV1)
	id, ended := strings.CutSuffix(id, nl)
	e.Body, ok = strings.CutSuffix(body, nl+nl)
	e.Session = SessionID(id)
	return e, isLine && ended && (ok || body == "") && plainID(id)
}

// readFailure reads the message of a call that failed: words, an id in
// parentheses, and perhaps a colon and what went wrong. Nothing that a model wrote can
// stand in front of the id, since only letters may.
func readFailure(text string) (Envelope, bool) {
	lead, id, rest, v1 := cutID(text)
	if strings.HasPrefix(lead, " ") {
		return Envelope{}, false
	}
	for _, r := range lead {
		if r != ' ' && !unicode.IsLetter(r) {
			return Envelope{}, false
		}
	}
	body, ok := strings.CutPrefix(rest, ": ")
	if !plainID(id) || !ok && rest != "" {
		return Envelope{}, false
	}
	e := Envelope{Generation: GenV2, State: ChildFailed, Session: SessionID(id), Body: body}
	if v1 {
		e.Generation = GenV1c
	}
	if word := lead[strings.LastIndexByte(lead, ' ')+1:]; endWord(word) {
		e.Word, e.State = word, stateOf(word)
	}
	if e.State == ChildStopped && !v1 {
		e.Generation = GenNext
	}
	return e, true
}

// failureWord returns the host's word for the state in a message of a call that
// failed, or "", and what the message says beside. A message without an id may have
// two words (1.18: a child that was cancelled).
func failureWord(text string) (word, body string) {
	if e, ok := readFailure(text); ok {
		return e.Word, e.Body
	}
	if _, word, ok := strings.Cut(text, " "); ok && endWord(word) {
		return word, ""
	}
	return "", ""
}

// endWord reports whether word says how a child failed to end well.
func endWord(word string) bool {
	switch stateOf(word) {
	case ChildFailed, ChildCancelled, ChildStopped:
		return true
	}
	return false
}

// readRunning reads the acknowledgement of 2.x: words, an id in parentheses, a full
// stop, advice for the parent.
func readRunning(text string) (Envelope, bool) {
	lead, id, rest, v1 := cutID(text)
	if v1 || !plainID(id) {
		return Envelope{}, false
	}
	rest = strings.TrimPrefix(rest, ".")
	return Envelope{Generation: GenV2, State: ChildRunning, Word: "running", Session: SessionID(id),
		Summary: lead, Body: strings.TrimPrefix(rest, " ")}, true
}

// cutID finds the first "(sessionID: …)" or "(task_id: …)" near the start of a text.
func cutID(text string) (lead, id, rest string, v1 bool) {
	near := text[:min(len(text), maxLead)]
	near, _, _ = strings.Cut(near, "\n")
	i, key := strings.Index(near, idOfV2), idOfV2
	if j := strings.Index(near, idOfV1); j >= 0 && (i < 0 || j < i) {
		i, key, v1 = j, idOfV1, true
	}
	if i <= 0 {
		return "", "", "", false
	}
	rest = text[i+len(key):]
	end := strings.IndexByte(rest[:min(len(rest), maxName+1)], ')')
	if end < 0 {
		return "", "", "", false
	}
	return text[:i], rest[:end], rest[end+1:], v1
}

// cutOff reads the body of an envelope without an end. If the end is there, on a line of
// its own, and neither the host's mark nor the metadata says that it cut, then other
// text is behind, and this is not the whole.
func (e *Envelope) cutOff(rest, end string, cut bool) EnvelopeVerdict {
	body, path, marked := cutMarker(rest)
	if !cut && !marked && strings.Contains(rest, end) {
		return EnvelopeNearMiss
	}
	e.Body, e.OutputPath, e.Truncated = body, path, true
	return EnvelopeMatched
}

// cutMarker takes away what a host leaves where it cut a text, and returns the path of
// the whole where its line has it.
//
// 2.0: the last line is "[showing lines 1-N of M; … saved to <file>]"; before, it was
// "... N lines truncated; … saved to <file> ...". 1.x: "...N lines truncated..." or
// bytes, an empty line, and advice.
func cutMarker(s string) (body, path string, ok bool) {
	last := trimEnd(s)
	start := strings.LastIndexByte(last, '\n') + 1
	last = last[start:]
	mark, ok := cutAround(last, "[showing ", "]")
	if ok = ok && (strings.HasPrefix(mark, "lines 1-") || strings.HasPrefix(mark, "0 lines of ")); !ok {
		mark, ok = cutAround(last, "... ", " ...")
		ok = ok && startsWithDigit(mark) && strings.Contains(mark, " truncated; ")
	}
	if ok {
		_, path, _ = strings.Cut(mark, " saved to ")
		return cutBreak(s[:start]), path, true
	}

	const most = 4096 // the advice has some hundred bytes and a path
	low := len(s) - min(len(s), most)
	for end := len(s); end > low; {
		start := low + strings.LastIndexByte(s[low:end], '\n') + 1
		mark, ok := cutAround(strings.TrimSuffix(s[start:end], "\r"), "...", "...")
		if ok && startsWithDigit(mark) && (strings.HasSuffix(mark, " lines truncated") || strings.HasSuffix(mark, " bytes truncated")) &&
			(strings.HasPrefix(s[end:], "\n\n") || strings.HasPrefix(s[end:], "\n\r\n")) {
			return cutBreak(cutBreak(s[:start])), "", true
		}
		end = start - 1
	}
	return s, "", false
}

// seekOther says what a text is that is no envelope.
func seekOther(text string) reading {
	if strings.TrimSpace(strings.TrimPrefix(trimEnd(text), bom)) == "" {
		return reading{verdict: EnvelopeEmpty}
	}
	if name, ok := otherWrapper(strings.TrimPrefix(text, bom)); ok {
		return reading{verdict: EnvelopeOther, name: name}
	}
	if name := mentionedTag(text); name != "" {
		return reading{verdict: EnvelopeNearMiss, name: name}
	}
	return reading{verdict: EnvelopeNone}
}

// otherWrapper reports whether a whole text is in a wrapper that is no child's.
func otherWrapper(text string) (name string, ok bool) {
	text, ok = strings.CutPrefix(text, "<")
	i := strings.IndexFunc(text[:min(len(text), longestName+1)], func(r rune) bool {
		return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	if !ok || i <= 0 || strings.IndexByte(" >\r\n", text[i]) < 0 {
		return "", false
	}
	switch name, text = text[:i], text[i:]; name {
	case "task", "subagent", "task_result", "task_error", "task_metadata":
		return "", false
	case "shell": // the host's notice of a background command; its end may be cut off
		return name, strings.HasPrefix(text, ` id="`) || strings.HasSuffix(trimEnd(text), "</shell>")
	}
	text, ok = strings.CutSuffix(trimEnd(text), ">")
	text, ended := strings.CutSuffix(text, name)
	return name, ok && ended && strings.HasSuffix(text, "</")
}

// mentionedTag returns the name of a tag of an envelope somewhere in a text.
func mentionedTag(text string) string {
	if name := firstTag(text); name != "" {
		return name
	}
	text = trimEnd(text)
	switch { // its start was cut off
	case strings.HasSuffix(text, "</subagent>"):
		return "subagent"
	case strings.HasSuffix(text, "</task>"):
		return "task"
	}
	return ""
}

// firstTag returns the name of the first "<task" or "<subagent" in s, or "". It looks at
// eight places at once and branches on nothing but what it found, so that it takes about the
// same time for any text: strings.Index is up to a hundred times slower in a text full of
// starts of tags than in one without.
func firstTag(s string) string {
	i := 0
	for ; i+16 <= len(s); i += 8 {
		here := s[i : i+16]
		lt, at1, at4 := differ(here, '<'), load8(here[1:]), load8(here[4:])
		// In most texts this is all. Masked out are the bits in which s differs from t, and
		// a from k.
		if zeroBytes(lt|(at1&(0xF8*eachByte)^('s'&0xF8*eachByte))|(at4&(0xF5*eachByte)^('a'*eachByte))) == 0 {
			continue
		}
		task := zeroBytes(lt | differ(here[1:], 't') | differ(here[2:], 'a') | differ(here[3:], 's') | differ(here[4:], 'k'))
		subagent := zeroBytes(lt | differ(here[1:], 's') | differ(here[2:], 'u') | differ(here[3:], 'b') | differ(here[4:], 'a') |
			differ(here[5:], 'g') | differ(here[6:], 'e') | differ(here[7:], 'n') | differ(here[8:], 't'))
		switch {
		case task|subagent == 0:
		case bits.TrailingZeros64(task) < bits.TrailingZeros64(subagent):
			return "task"
		default:
			return "subagent"
		}
	}
	for ; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], "<task"):
			return "task"
		case strings.HasPrefix(s[i:], "<subagent"):
			return "subagent"
		}
	}
	return ""
}

const eachByte = 0x0101010101010101

// differ returns the first eight bytes of s, zero where they are c.
func differ(s string, c byte) uint64 { return load8(s) ^ uint64(c)*eachByte }

// zeroBytes returns zero if no byte of x is. The lowest bit that is set is in the first byte
// that is; higher ones may be too many.
func zeroBytes(x uint64) uint64 { return (x - eachByte) &^ x & (0x80 * eachByte) }

func load8(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

package team

import (
	"strings"

	"github.com/teamchan/team/internal/grapheme"
)

// A wrapper is what a host wrote round a child's answer. In a preview it stays whole,
// since the reader needs the child's id to go on with it; only the answer is cut.
type wrapper struct {
	open  string // with its line end
	end   string // with the line end in front, and none behind
	shown int64  // bytes of the text that are in both

	lines          int64 // line ends of the text that are outside of the answer
	ended, unended bool  // there is an end; with no line end behind it
}

const (
	wrapperTokens = 64      // an opening that costs more is written anew, with less in it
	wrapperWords  = 16      // tokens of a description or a summary then
	wrapperEnd    = 1 << 10 // bytes of the end of a text in which the end of a wrapper is looked for
)

// unwrap takes a text apart. It is an envelope if a matcher takes it for one of a child
// that is whole, or cut at its end; else there is no wrapper.
func unwrap(text string) (w wrapper, answer string) {
	o := openingOf(text)
	near := max(len(o.raw), len(text)-wrapperEnd)
	left, end := o.cutEnd(text[near:])
	if o.raw == "" && end == "" || o.raw != "" && o.verdict(text) != EnvelopeMatched {
		return wrapper{}, text
	}
	return o.wrap(end), text[len(o.raw) : near+len(left)]
}

// An opening is how an envelope begins, with what the end must be.
type opening struct {
	e   Envelope
	raw string // empty if a text does not begin as an envelope
	tag string // in front of the answer: the last one of raw
	nl  string
}

// mayBeWrapped reports whether a text may begin with an opening.
func mayBeWrapped(text string) bool {
	text = strings.TrimPrefix(text, bom)
	return strings.HasPrefix(text, "<subagent ") || strings.HasPrefix(text, "<task ") || strings.HasPrefix(text, headV1b)
}

// openingOf reads the opening of a text, of which the beginning is enough.
func openingOf(text string) (o opening) {
	if !mayBeWrapped(text) {
		return o
	}
	inner := strings.TrimPrefix(text, bom)
	ok, rest := false, ""
	switch {
	case strings.HasPrefix(inner, "<subagent "):
		o.tag = "subagent"
		o.e, rest, o.nl, ok = readOpener(inner, "<subagent")
	case strings.HasPrefix(inner, headV1b):
		o.tag = "task_result"
		head, _, _ := strings.Cut(inner[:min(len(inner), maxOpener)], "\n<task_result>")
		if o.nl = "\n"; strings.HasSuffix(head, "\r") {
			o.nl = "\r\n"
		}
		if rest, ok = strings.CutPrefix(inner[len(head):], "\n<task_result>"+o.nl); ok {
			var verdict EnvelopeVerdict
			o.e, verdict = readV1b(inner[:len(inner)-len(rest)], true)
			ok = verdict == EnvelopeMatched
		}
	default:
		if o.e, rest, o.nl, ok = readOpener(inner, "<task"); !ok {
			break
		}
		if s, noted := strings.CutPrefix(rest, "<summary>"); noted {
			i := strings.Index(s[:min(len(s), maxOpener)], "</summary>"+o.nl)
			if i < 0 {
				return opening{}
			}
			o.e.Summary, rest = s[:i], s[i+len("</summary>"+o.nl):]
		}
		o.tag, rest, ok = cutInner(rest, o.nl)
		o.tag = strings.Trim(o.tag, "</>")
	}
	if !ok || rest == "" {
		return opening{}
	}
	o.raw = text[:len(text)-len(rest)]
	return o
}

// verdict is the matcher's on the whole text.
func (o opening) verdict(text string) (v EnvelopeVerdict) {
	text = strings.TrimPrefix(text, bom)
	switch {
	case o.tag == "subagent":
		_, v = readSubagent(text, false)
	case o.e.Generation == GenV1b:
		_, v = readV1b(text, false)
	default:
		_, v = readTask(text, false)
	}
	return v
}

// cutEnd takes the end of an envelope off the last bytes of a text. The end is empty if
// there is none.
func (o opening) cutEnd(near string) (rest, end string) {
	if o.raw == "" {
		if e, ok := readTrailer(near); ok {
			return e.Body, near[len(e.Body):]
		}
		return near, ""
	}
	rest = near
	if o.e.Generation == GenV1c {
		if outer, ok := cutEnd(near, "</task>", o.nl); ok { // else that one was cut off
			rest = outer
		}
	}
	rest, ok := cutEnd(rest, "</"+o.tag+">", o.nl)
	if !ok {
		return near, ""
	}
	return rest, near[len(rest):]
}

// wrap is what a preview shows of an opening and an end.
func (o opening) wrap(end string) wrapper {
	w := wrapper{lines: int64(strings.Count(o.raw, "\n") + strings.Count(end, "\n")), ended: end != ""}
	w.unended = w.ended && !strings.HasSuffix(end, "\n")
	w.open, w.shown = showable(o.raw), int64(len(o.raw))
	if EstimateTokens(w.open) > wrapperTokens {
		w.open, w.shown = o.shorter()
	}
	w.end = trimEnd(end)
	w.shown += int64(len(w.end))
	if w.end != "" && strings.Trim(w.end[:1], "\r\n") != "" {
		w.end = "\n" + w.end
	}
	return w
}

// classOf is that of an answer. One that is wrapped was not in a file, so no name says
// what it is.
func (w wrapper) classOf(name, answer string) Class {
	if w.shown > 0 {
		name = ""
	}
	return classOf(name, bytesOf(answer[:min(len(answer), sampleBytes)]))
}

// shorter writes an opening with as much of its words as there is room for, and without
// attributes that nobody knows. shown is how many bytes of the text are in it.
func (o opening) shorter() (text string, shown int64) {
	marks := 0
	some := func(words string) string {
		near := words[:grapheme.Floor(words, min(len(words), wrapperWords*maxCluster))]
		all := strings.Map(ofOneValue, showable(near))
		kept := FitTokens(all, wrapperWords)
		if len(kept) == len(all) && len(near) == len(words) {
			return kept
		}
		marks += len("...")
		return kept + "..."
	}
	id, word := string(o.e.Session), some(o.e.Word)
	switch {
	case o.e.Generation == GenV1b:
		text = headV1b + id + " (" + some(o.e.Summary) + ")" + o.nl + o.nl
	case o.e.Generation == GenV1c:
		text = `<task id="` + id + `" state="` + word + `">` + o.nl
		if o.e.Summary != "" {
			text += "<summary>" + some(o.e.Summary) + "</summary>" + o.nl
		}
	default:
		name := "sessionID"
		if o.e.Generation == GenV2pre {
			name = "id"
		}
		text = "<subagent " + name + `="` + id + `" state="` + word + `"`
		if o.e.Notice {
			text += ` description="` + some(o.e.Description) + `"`
		}
		text += ">" + o.nl
	}
	if o.tag != "subagent" {
		text += "<" + o.tag + ">" + o.nl
	}
	return text, int64(min(len(o.raw), len(text)-marks))
}

// ofOneValue replaces what could end a value or a line.
func ofOneValue(r rune) rune {
	switch r {
	case '"':
		return '\''
	case '\n', '\r', '\t':
		return ' '
	}
	return r
}

package team

import (
	"errors"
	"fmt"
	"strings"
)

// FormatEnvelope writes e as a host of its generation does, for programs that stand in
// for a host. Match reads it back: Match of the text, with the metadata that such a host
// sends along where the text names no child, is e again, whatever is in Body.
//
// A child that is running or has ended otherwise than completed is told of, outside of a
// notice, by the running text and the failure text of the host. Of their words only
// those that programs read are here; a host's own sentences go into Summary
// (GenV1b: what is in parentheses behind the id; GenV1c: the summary line; GenV2: what is in front
// of "(sessionID: …)") and Body. An empty Word is the usual one of the state.
//
// Three forms have no id in the text: GenV2pre, completed; GenV1c, cancelled; and they
// need the metadata, as GenV2, running, does.
//
// ErrInvalid if a field is set that the form has no place for, or cannot be read back from
// it, since hosts escape nothing. errors.ErrUnsupported if no host of that generation
// writes such a thing. Truncated and OutputPath are ErrInvalid: cut the text.
// Parent, Agent, Confidence and Conflicts are not in the text and not looked at.
func FormatEnvelope(e Envelope) (string, error) {
	text, err := e.format()
	if err != nil {
		return "", edge("envelope.format", string(e.Session), err)
	}
	return text, nil
}

func (e Envelope) format() (string, error) {
	if !plainID(string(e.Session)) {
		return "", noPlace("session", "is empty, or has spaces, quotes or brackets")
	}
	if e.Truncated || e.OutputPath != "" {
		return "", &InvalidError{What: "envelope", Why: "is truncated", Offset: -1, Advice: "format the whole and cut the text"}
	}
	usual := usualWord(e)
	if e.Word == "" {
		e.Word = usual
	}
	if e.Word != "" && (len(e.Word) > longestName || !plainID(e.Word) || stateOf(e.Word) != e.State) {
		return "", noPlace("word", "is none for the state "+quoteName(string(e.State)))
	}

	form := e.form()
	switch {
	case form == formNone:
		return "", fmt.Errorf("%w: no host of generation %s writes one in state %s, notice: %v",
			errors.ErrUnsupported, quoteName(string(e.Generation)), quoteName(string(e.State)), e.Notice)
	case usual == "" && e.Word == "" && form == formTag:
		return "", noPlace("word", "is empty, and the state has no usual one")
	case form != formTag && e.Word != usual && form != formFailure:
		return "", noPlace("word", "has no place in the text")
	case e.Description != "" && !(form == formTag && e.Notice && e.Generation != GenV1c):
		return "", noPlace("description", "has no place in the text")
	case strings.Contains(e.Description, "\">\n") || strings.Contains(e.Description, "\">\r\n"):
		return "", noPlace("description", "has a line that ends as the tag does")
	case len(e.Description)+len(e.Summary) > maxOpener/2:
		return "", &LimitError{What: "envelope description and summary bytes", Got: int64(len(e.Description) + len(e.Summary)), Max: maxOpener / 2, TooLarge: true}
	}
	return e.write(form)
}

func (e Envelope) write(form envelopeForm) (string, error) {
	id := string(e.Session)
	switch form {
	case formTag:
		return e.writeTag()
	case formTrailer:
		return e.Body + "\n\n" + trailerV1 + "\n" + idLineV1 + id + "\n</task_metadata>", e.noSummary()
	case formBare:
		said := metadata{Envelope: Envelope{Session: e.Session}, word: e.Word}
		if r := readEnvelope(EnvelopeInput{Text: e.Body, Tool: "subagent"}, said); r.verdict == EnvelopeMatched && r.Session == e.Session {
			return "", noPlace("body", "is an envelope of the same child, and nothing is round it")
		}
		return e.Body, e.noSummary()
	case formV1b:
		if strings.ContainsAny(e.Summary, "\r\n") {
			return "", noPlace("summary", "has a line break")
		}
		if e.Summary != "" {
			id += " (" + e.Summary + ")"
		}
		return headV1b + id + "\n\n<task_result>\n" + e.Body + "\n</task_result>", nil
	case formCancelled:
		if e.Body != "" {
			return "", noPlace("body", "has no place in the text")
		}
		return "Task " + e.Word, e.noSummary()
	case formFailure:
		key := idOfV2
		if e.Generation == GenV1c {
			key = idOfV1
		}
		text := "Subagent " + e.Word + key + id + ")"
		if e.Body != "" {
			text += ": " + e.Body
		}
		return text, e.noSummary()
	default: // formRunning
		lead, _, _, _ := cutID(e.Summary + idOfV2 + id + ")")
		if lead == "" || lead != e.Summary {
			return "", noPlace("summary", "is empty, over 100 bytes, or has a line break or an id in parentheses")
		}
		text := e.Summary + idOfV2 + id + ")."
		if e.Body != "" {
			text += " " + e.Body
		}
		return text, nil
	}
}

func (e Envelope) writeTag() (string, error) {
	tag, idName := "subagent", "sessionID"
	switch e.Generation {
	case GenV1c:
		tag, idName = "task", "id"
	case GenV2pre:
		idName = "id"
	}
	var b strings.Builder
	b.Grow(len(e.Body) + len(e.Description) + len(e.Summary) + 512)
	fmt.Fprintf(&b, `<%s %s="%s" state="%s"`, tag, idName, e.Session, e.Word)
	if e.Generation != GenV1c {
		if e.Notice {
			b.WriteString(` description="` + e.Description + `"`)
		}
		b.WriteString(">\n")
		b.WriteString(e.Body)
		b.WriteString("\n</subagent>")
		return b.String(), e.noSummary()
	}
	b.WriteString(">\n")
	switch {
	case strings.Contains(e.Summary, "</summary>\n"):
		return "", noPlace("summary", "has its own closing tag")
	case e.Notice || e.State == ChildRunning:
		b.WriteString("<summary>" + e.Summary + "</summary>\n")
	case e.Summary != "":
		return "", noPlace("summary", "has a place only in a notice and while the child runs")
	}
	inner := "task_result>"
	if e.State == ChildFailed {
		inner = "task_error>"
	}
	b.WriteString("<" + inner + "\n")
	b.WriteString(e.Body)
	b.WriteString("\n</" + inner + "\n</task>")
	return b.String(), nil
}

func (e Envelope) noSummary() error {
	if e.Summary != "" {
		return noPlace("summary", "has no place in the text")
	}
	return nil
}

func noPlace(field, why string) error {
	return &InvalidError{What: "envelope " + field, Why: why, Offset: -1, Advice: "leave it out or change it"}
}

// An envelopeForm is how a text of one generation looks.
type envelopeForm int

const (
	formNone      envelopeForm = iota
	formTag                    // <task …> or <subagent …>
	formTrailer                // <task_metadata> behind the body
	formV1b                    // a line with the id, <task_result>
	formBare                   // the body alone
	formFailure                // words, the id in parentheses, the message
	formCancelled              // two words
	formRunning                // words, the id in parentheses, advice
)

// form returns which form a host gives an envelope; formNone if none does.
func (e Envelope) form() envelopeForm {
	type is struct {
		g Generation
		s ChildState
		n bool // notice
	}
	switch (is{e.Generation, e.State, e.Notice}) {
	case is{GenV1a, ChildCompleted, false}:
		return formTrailer
	case is{GenV1b, ChildCompleted, false}:
		return formV1b
	case is{GenV1c, ChildCompleted, false}, is{GenV1c, ChildRunning, false}, is{GenV1c, ChildCompleted, true}, is{GenV1c, ChildFailed, true},
		is{GenV2pre, ChildCompleted, true}, is{GenV2pre, ChildFailed, true}, is{GenV2pre, ChildCancelled, true},
		is{GenV2, ChildCompleted, false}, is{GenV2, ChildCompleted, true}, is{GenV2, ChildFailed, true}, is{GenV2, ChildCancelled, true},
		is{GenNext, ChildStopped, true},
		// Words that nobody knows are for trying out what reads them.
		is{GenV1c, ChildUnknown, false}, is{GenV1c, ChildUnknown, true}, is{GenV2pre, ChildUnknown, true},
		is{GenV2, ChildUnknown, false}, is{GenV2, ChildUnknown, true}:
		return formTag
	case is{GenV1c, ChildFailed, false}, is{GenV2, ChildFailed, false}, is{GenV2, ChildCancelled, false}:
		return formFailure
	case is{GenV1c, ChildCancelled, false}:
		return formCancelled
	case is{GenV2, ChildRunning, false}:
		return formRunning
	case is{GenV2pre, ChildCompleted, false}:
		return formBare
	}
	return formNone
}

// usualWord returns the word that hosts of a generation have for a state.
func usualWord(e Envelope) string {
	switch form := e.form(); {
	case form == formTrailer || form == formV1b, e.State == ChildUnknown:
		return ""
	case e.State == ChildFailed && form == formTag:
		return "error"
	}
	return string(e.State)
}

package team

import (
	"encoding/json"
	"sync"
)

// A Generation is the form in which a host wraps what a child session
// answered. T stands for the child's text, raw: it may contain any tag.
type Generation string

// The generations, with the versions of OpenCode that write them.
const (
	// GenV1a, to about 1.1.49: T, a blank line, <task_metadata>, a line
	// "session_id: ses_…", </task_metadata>.
	GenV1a Generation = "v1-a"
	// GenV1b, from about 1.1.50: a line that starts "task_id: ses_…", a blank line,
	// <task_result>, T, </task_result>.
	GenV1b Generation = "v1-b"
	// GenV1c, about 1.14 to 1.18: <task id="ses_…" state="…">, in a notice and while
	// running a <summary>, then T in <task_result> or <task_error>, </task>. A call
	// that failed has "(task_id: ses_…)" and no tags.
	GenV1c Generation = "v1-c"
	// GenV2pre, builds before 2.0: T and nothing else, so that only the metadata of
	// the call says whose it is; in a notice
	// <subagent id="ses_…" state="…" description="…">, T, </subagent>.
	GenV2pre Generation = "v2-pre"
	// GenV2, 2.0: <subagent sessionID="ses_…" state="…">, in a notice with a
	// description="…", T, </subagent>. A call that failed, or that goes on in the
	// background, has "(sessionID: ses_…)" and no tags.
	GenV2 Generation = "v2"
	// GenNext, seen in sources behind 2.0.26: GenV2 in a notice with state="stopped".
	GenNext Generation = "next"
)

// A ChildState says how far a child session is.
type ChildState string

// The states that an envelope can tell of.
const (
	ChildRunning   ChildState = "running"
	ChildCompleted ChildState = "completed"
	ChildFailed    ChildState = "failed"
	ChildCancelled ChildState = "cancelled"
	ChildStopped   ChildState = "stopped" // by the user
	ChildUnknown   ChildState = "unknown" // the host used a word that we do not know
)

// A Confidence says what an Envelope rests on.
type Confidence string

// The confidences, best first.
const (
	ConfidenceAgreed   Confidence = "agreed"   // metadata and text name the same child and say the same
	ConfidenceMetadata Confidence = "metadata" // the text is no envelope of this child
	ConfidenceText     Confidence = "text"     // no metadata: as good as the place that the text was found in
	ConfidenceDisputed Confidence = "disputed" // Conflicts says in what; the values are the metadata's
)

// An Envelope is what a host says about a child session, with what the child
// answered.
type Envelope struct {
	Generation Generation `json:"generation"`
	// Notice: it tells of a child in the background, and is not the result of the
	// call that started it.
	Notice  bool       `json:"notice,omitempty"`
	State   ChildState `json:"state"`
	Word    string     `json:"word,omitempty"` // the host's own word for the state; empty where it has none
	Session SessionID  `json:"session"`
	Parent  SessionID  `json:"parent,omitempty"` // only in metadata of 1.x
	Agent   string     `json:"agent,omitempty"`  // only in metadata of a notice of 2.x

	Description string `json:"description,omitempty"` // the label that the parent gave; in a notice of 2.x
	Summary     string `json:"summary,omitempty"`     // the host's own sentence, where it has a place
	// Body is the child's text, or the error's, or, of a child that is running, the
	// host's advice to the parent. It is a part of the text that came, not a copy.
	Body string `json:"body"`
	// Truncated: the end is missing, or the metadata says that the host cut.
	Truncated  bool   `json:"truncated,omitempty"`
	OutputPath string `json:"outputPath,omitempty"` // where the host keeps the uncut text

	Confidence Confidence         `json:"confidence,omitempty"`
	Conflicts  []EnvelopeConflict `json:"conflicts,omitempty"`
}

// An EnvelopeConflict is a field in which metadata and text disagree.
type EnvelopeConflict struct {
	Field    string `json:"field"` // "session", "state", "truncated"
	Metadata string `json:"metadata"`
	Text     string `json:"text"`
}

// An EnvelopeVerdict says what became of a text.
type EnvelopeVerdict string

// The verdicts. Only EnvelopeMatched settles anything.
const (
	EnvelopeMatched   EnvelopeVerdict = "matched"
	EnvelopeForeign   EnvelopeVerdict = "foreign"   // an envelope, of a child that the caller does not know
	EnvelopeNearMiss  EnvelopeVerdict = "near miss" // it has parts of an envelope: quoted, nested, behind or before other text, from another tool
	EnvelopeMalformed EnvelopeVerdict = "malformed" // it starts as an envelope, or has metadata, that cannot be read
	EnvelopeOther     EnvelopeVerdict = "other"     // the whole text is in a wrapper that is no child's: a shell's, or an unknown one
	EnvelopeEmpty     EnvelopeVerdict = "empty"     // nothing came
	EnvelopeNone      EnvelopeVerdict = "none"      // a text, and nothing in it looks like an envelope
)

// An EnvelopeInput is one text that a host wrote, with what it says beside
// it. Never give an agent's own message as Text: it could be a perfect forgery.
type EnvelopeInput struct {
	// Text is the whole result of a tool, the whole message of its error, or one
	// whole synthetic part of a message.
	Text string
	// Metadata is the JSON object beside it, if any: of a finished call
	// {parentSessionId, sessionId, …} (1.x) or {sessionID, status} (2.x), of a
	// notice {source: "subagent", childID, agent, state} (2.x), all with
	// {truncated, outputPath} where the host cut.
	Metadata json.RawMessage
	// Tool is the tool whose result it is: "task" (1.x) or "subagent" (2.x). From
	// any other nothing matches. Empty for a synthetic part.
	Tool string
	// Failed: the call ended in an error, and Text is its message.
	Failed bool
	// Known reports whether a session is a child of the receiving session. Nil: the
	// caller does not say, and any child matches.
	Known func(SessionID) bool
}

// An EnvelopeMatcher recognises what hosts wrap round the answer of a child
// session, and counts what it has seen. It can be used by several goroutines; the
// zero value is ready.
//
// Only a whole text is an envelope, up to a byte order mark in front and white space
// behind. Metadata comes first, the text second, and a disagreement is reported. A text
// that names another child than its metadata is taken for that child's own words.
//
// Hosts escape nothing. So an opening tag ends where a quote and ">" end a line, the
// last closing tag counts, and two envelopes in one text are one, of the first child,
// with the other in its body. Attributes may have any order; id and state are
// taken from before the description or, if they are not there, from the very end of the tag.
// So nothing in a description, and nothing in a body, names another child.
//
// Time is linear in the text, at memory speed. Nothing is copied.
//
// The forms are those of OpenCode 1.0 to 2.0.26; see [Generation].
type EnvelopeMatcher struct {
	mu    sync.Mutex
	stats EnvelopeStats
}

// Match reads one text. The Envelope is set if the verdict is EnvelopeMatched, and for
// reports only if it is EnvelopeForeign.
//
// The state of a call that failed is that of the word in front of its
// "(sessionID: ses_…)" or "(task_id: ses_…)", or of the second in a message of two words,
// if that is one of the host's words for a state; else ChildFailed. No other wording counts. A
// call of 1.x whose text is no envelope any more is completed, or running if its
// metadata has background, since that host writes no state there.
func (m *EnvelopeMatcher) Match(in EnvelopeInput) (Envelope, EnvelopeVerdict) {
	r := readInput(in)
	if r.verdict == EnvelopeMatched && in.Known != nil && !in.Known(r.Session) {
		r.verdict = EnvelopeForeign
	}
	m.count(r)
	if r.verdict != EnvelopeMatched && r.verdict != EnvelopeForeign {
		return Envelope{}, r.verdict
	}
	return r.Envelope, r.verdict
}

// A reading is what a text, or a text and its metadata, came to. Its envelope is
// good if the verdict is EnvelopeMatched.
type reading struct {
	Envelope
	verdict EnvelopeVerdict
	name    string // of the wrapper, for the counters
}

func readInput(in EnvelopeInput) reading {
	if in.Tool != "" && in.Tool != "task" && in.Tool != "subagent" {
		return seekOther(in.Text)
	}
	said, err := readMetadata(in.Metadata, in.Tool)
	switch {
	case err != nil:
		return reading{verdict: EnvelopeMalformed, name: "metadata"}
	case said.stranger:
		return seekOther(in.Text)
	}
	read := readEnvelope(in, said)
	if said.Session == "" {
		if read.verdict == EnvelopeMatched {
			read.Confidence = ConfidenceText
			read.addCut(said)
		}
		return read
	}
	return said.with(read, in)
}

// with combines what the metadata says with what the text came to.
func (said metadata) with(read reading, in EnvelopeInput) reading {
	e := read.Envelope
	if read.verdict != EnvelopeMatched || e.Session != said.Session {
		other := e.Session // empty if the text is no envelope
		e = said.bare(in)
		if read.verdict == EnvelopeMatched {
			e.Conflicts = append(e.Conflicts, EnvelopeConflict{"session", string(said.Session), string(other)})
		}
		e.Confidence = ConfidenceMetadata
	} else {
		e.Confidence = ConfidenceAgreed
		if said.word != "" && !in.Failed {
			if state := stateOf(said.word); state != e.State {
				e.Conflicts = append(e.Conflicts, EnvelopeConflict{"state", said.word, e.Word})
				e.State, e.Word = state, said.word
			}
		}
		e.addCut(said)
	}
	e.Parent, e.Agent = said.Parent, said.Agent
	e.Notice = e.Notice || said.Notice
	if e.Generation == GenV2 && e.State == ChildStopped {
		e.Generation = GenNext
	}
	if len(e.Conflicts) > 0 {
		e.Confidence = ConfidenceDisputed
	}
	return reading{Envelope: e, verdict: EnvelopeMatched}
}

// addCut adds what the metadata says about the host's cut.
func (e *Envelope) addCut(said metadata) {
	if said.whole && e.Truncated {
		e.Conflicts = append(e.Conflicts, EnvelopeConflict{"truncated", "false", "true"})
		e.Confidence = ConfidenceDisputed
	}
	e.Truncated = e.Truncated || said.Truncated
	if said.OutputPath != "" {
		e.OutputPath = said.OutputPath
	}
}

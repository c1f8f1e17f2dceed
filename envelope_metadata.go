package team

import (
	"encoding/json"
	"strings"
)

// metadata is what a host says about a child beside the text. Its envelope has no
// state and no body.
type metadata struct {
	Envelope
	word       string // the host's word for the state, if it gives one
	background bool   // 1.x: the call did not wait
	whole      bool   // it says that the host did not cut
	stranger   bool   // it says that somebody else wrote this
}

var errMetadata = &InvalidError{What: "metadata", Why: "is no JSON object that names one child", Offset: -1}

// readMetadata reads the metadata of a result or a notice. Keys are compared
// exactly; encoding/json would take sessionId for sessionID, and two hosts differ in
// just that. What names nobody is no error, what names somebody and cannot be read
// is: falling back to the text would widen it.
func readMetadata(raw json.RawMessage, tool string) (metadata, error) {
	var m metadata
	if len(raw) == 0 {
		return m, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return m, errMetadata
	}
	var bad bool
	text := func(key string) (s string) {
		if f, ok := fields[key]; ok && string(f) != "null" && json.Unmarshal(f, &s) != nil {
			bad = true
		}
		return s
	}
	truth := func(key string) (yes, no bool) {
		s := string(fields[key])
		return s == "true", s == "false"
	}

	if _, ok := fields["source"]; ok && tool == "" {
		if text("source") != "subagent" || bad {
			return metadata{stranger: true}, nil
		}
		m.Generation, m.Notice = GenV2, true
		m.Session, m.Agent, m.word = SessionID(text("childID")), text("agent"), text("state")
		bad = bad || m.Session == ""
	} else if fields["sessionId"] != nil || fields["sessionID"] != nil {
		v1, v2 := SessionID(text("sessionId")), SessionID(text("sessionID"))
		parent, status := SessionID(text("parentSessionId")), text("status")
		switch {
		case v1 != "" && v2 != "" && v1 != v2:
			bad = true
		case v2 != "" && (tool != "" || status != ""):
			m.Generation, m.Session, m.word = GenV2, v2, status
		case v1 != "" && parent != "":
			m.Generation, m.Session, m.Parent = GenV1c, v1, parent
		case v1 != "" && tool != "":
			m.Generation, m.Session = GenV1b, v1
		}
		m.background, _ = truth("background")
	}
	if bad || m.Session != "" && !plainID(string(m.Session)) {
		return m, errMetadata
	}
	m.Truncated, m.whole = truth("truncated")
	if m.Truncated {
		m.OutputPath = text("outputPath")
	}
	return m, nil
}

// bare returns the envelope of a text that does not speak for itself.
func (m metadata) bare(in EnvelopeInput) Envelope {
	e := m.Envelope
	e.Body = in.Text
	marked := false
	if m.Truncated {
		var path string
		e.Body, path, marked = cutMarker(in.Text)
		if e.OutputPath == "" {
			e.OutputPath = path
		}
	}
	switch {
	case in.Failed:
		// The word in 2.x is the one that the call left while it ran.
		e.State = ChildFailed
		if word, rest := failureWord(in.Text); word != "" {
			e.State, e.Word, e.Body = stateOf(word), word, rest
		}
	case m.word != "":
		e.State, e.Word = stateOf(m.word), m.word
	case in.Tool == "":
		e.State = ChildUnknown
	case m.background:
		e.State = ChildRunning
	default:
		e.State = ChildCompleted
	}
	// Whenever a host of GenV2 cuts, the opening tag stays, unless no line does.
	if m.Generation == GenV2 && !m.Notice && !in.Failed && (!m.Truncated || marked && e.Body != "") {
		e.Generation = GenV2pre
	}
	return e
}

// stateOf maps a host's word.
func stateOf(word string) ChildState {
	switch word {
	case "running":
		return ChildRunning
	case "completed":
		return ChildCompleted
	case "error", "failed":
		return ChildFailed
	case "cancelled":
		return ChildCancelled
	case "stopped":
		return ChildStopped
	}
	return ChildUnknown
}

// plainID reports whether s can be the id of a session: something without spaces,
// quotes and brackets, so that it can stand in every form.
func plainID(s string) bool {
	return s != "" && checkName("session", s) == nil && !strings.ContainsAny(s, " \"'<>()=")
}

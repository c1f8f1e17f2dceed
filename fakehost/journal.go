package fakehost

import "encoding/json"

// A journal writes what happens in an execution as its generation does: messages, parts
// and events, in the order of the host.
type journal interface {
	began(t *tx, s *Session) error
	stepBegan(t *tx, st *step) error
	text(t *tx, st *step, text string) error
	toolPending(t *tx, c *call) error
	toolRunning(t *tx, c *call) error // again for each new metadata
	toolEnded(t *tx, c *call) error
	stepEnded(t *tx, st *step) error
	stepFailed(t *tx, st *step, e ending) error
	retry(t *tx, st *step, attempt int, at int64, err *AgentError) error
	ended(t *tx, s *Session, e ending) error
}

func (h *Host) journal() journal {
	if h.profile.v1() {
		return journalV1{}
	}
	return journalV2{}
}

// A call is one call of a tool.
type call struct {
	h        *Host
	step     *step
	id       string // "call_…"
	part     string // generation 1: "prt_…"
	tool     string
	input    json.RawMessage
	title    string
	metadata json.RawMessage
	running  bool
	begun    func() // lets the next call of the step come
	held     bool   // the tool itself says when it has begun
	byUser   bool   // the user has asked for it himself
	began    int64

	// What became of it; set before toolEnded.
	content json.RawMessage // generation 2: array of {type, text}
	result  Result
}

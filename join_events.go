package team

import (
	"cmp"
	"encoding/json"
	"strings"
	"sync/atomic"
	"time"
)

// An eventUse is what a Join does with a type of event.
type eventUse uint8

const (
	useNothing      eventUse = iota // but that the session is alive
	useStep                         // an agent works in it
	useStart                        // it runs
	useStatus                       // 1.x: the data says what
	useIdle                         // 1.x
	useError                        // 1.x
	useSucceeded                    // the next six: 2.x
	useFailed                       //
	useInterrupted                  // the data says by what
	useRetry                        //
	useEnqueued                     //
	useToolName                     //
	useToolProgress                 //
	useToolEnd                      //
	useNextEnded                    // the second API of 1.18 has no word for the end of a turn
	useNextFailed                   //
	useCreated                      // the data says whose child it is
	useDeleted                      //
	useAsked                        //
	useAnswered                     //
	usePart                         // 1.x: a part of a message, whole
	useConnected                    // a stream begins
	useDisposed                     // a stream ends
)

// A generation of events is told by types that no other has.
type eventGeneration uint8

const (
	genEvents1 eventGeneration = 1 << iota // /event of 1.x
	genNext                                // /api/event of 1.18
	genEvents2                             // /api/event of 2.x
)

// An eventType is a type of event that some host sends.
type eventType struct {
	name   string
	use    eventUse
	gens   eventGeneration // that send it
	number int             // its place in the counters
}

// eventTypes are the types of OpenCode 1.18.33 and 2.0.26. A host's own name beyond them is
// reported.
var eventTypes, eventList = func() (map[string]*eventType, []*eventType) {
	types := make(map[string]*eventType)
	var list []*eventType
	add := func(gens eventGeneration, use eventUse, names string) {
		for name := range strings.FieldsSeq(names) {
			t := types[name]
			if t == nil {
				t = &eventType{name: name, number: len(list)}
				types[name] = t
				list = append(list, t)
			}
			t.gens |= gens
			t.use = max(t.use, use)
		}
	}
	const both = genEvents1 | genEvents2
	add(both|genNext, useConnected, "server.connected")
	add(both, useCreated, "session.created")
	add(both, useDeleted, "session.deleted")
	add(both, useAsked, "permission.asked")
	add(both, useAnswered, "permission.replied")
	add(both, useNothing, `installation.updated installation.update-available vcs.branch.updated
		pty.created pty.updated pty.exited pty.deleted tui.prompt.append tui.command.execute tui.toast.show tui.session.select`)

	add(genEvents1, useStatus, "session.status")
	add(genEvents1, useIdle, "session.idle")
	add(genEvents1, useError, "session.error")
	add(genEvents1, usePart, "message.part.updated")
	add(genEvents1, useAsked, "question.asked")
	add(genEvents1, useAnswered, "question.replied question.rejected")
	add(genEvents1, useStep, "message.part.delta")
	add(genEvents1, useDisposed, "server.instance.disposed")
	add(genEvents1, useNothing, `server.heartbeat session.updated session.diff session.compacted message.updated message.removed
		message.part.removed todo.updated command.executed file.edited file.watcher.updated lsp.updated lsp.client.diagnostics
		project.updated mcp.tools.changed ide.installed global.disposed permission.updated`)

	add(genNext, useStart, "session.next.prompted")
	add(genNext, useStep, `session.next.step.started session.next.text.started session.next.text.delta session.next.text.ended
		session.next.reasoning.started session.next.reasoning.delta session.next.reasoning.ended session.next.tool.called`)
	add(genNext, useNextEnded, "session.next.step.ended")
	add(genNext, useNextFailed, "session.next.step.failed")
	add(genNext, useNothing, "session.next.prompt.admitted session.next.prompt.promoted")

	add(genEvents2, useStart, "session.execution.started session.inbox.delivered")
	add(genEvents2, useSucceeded, "session.execution.succeeded")
	add(genEvents2, useFailed, "session.execution.failed")
	add(genEvents2, useInterrupted, "session.execution.interrupted")
	add(genEvents2, useEnqueued, "session.inbox.enqueued")
	add(genEvents2, useRetry, "session.retry.scheduled")
	add(genEvents2, useToolName, "session.tool.input.started")
	add(genEvents2, useToolProgress, "session.tool.progress")
	add(genEvents2, useToolEnd, "session.tool.success session.tool.failed")
	add(genEvents2, useAsked, "form.created")
	add(genEvents2, useAnswered, "form.replied form.cancelled")
	add(genEvents2, useStep, `session.step.started session.step.streamed session.step.ended session.step.failed
		session.text.started session.text.delta session.text.ended
		session.reasoning.started session.reasoning.delta session.reasoning.ended
		session.tool.input.delta session.tool.input.ended session.tool.called`)
	add(genEvents2, useNothing, `session.agent.selected session.model.selected session.moved session.renamed session.metadata.updated
		session.permissions session.viewed session.forked session.usage.updated session.usage.recorded session.message.content.updated
		session.inbox.cancelled session.inbox.delivery.changed session.instructions.updated session.synthetic
		session.skill.activated session.shell.started session.shell.ended session.compaction.started session.compaction.delta
		session.compaction.ended session.compaction.failed session.revert.staged session.revert.cleared session.revert.committed
		location.shutdown models-dev.refreshed credential.updated credential.switched integration.updated provider.updated
		model.updated agent.updated reference.updated plugin.updated project.updated worktree.updated worktree.resolved
		command.updated config.updated skill.updated websearch.updated mcp.status.changed mcp.resources.changed
		filesystem.changed persistent-pty.added persistent-pty.removed shell.created shell.exited shell.deleted`)
	return types, list
}()

// expectedEvents are what a generation sends of every child that works to its end: one
// of each group.
var expectedEvents = map[eventGeneration][]string{
	genEvents1: {"session.status", "session.idle", "message.part.updated"},
	genNext:    {"session.next.prompted", "session.next.step.started", "session.next.step.ended session.next.step.failed"},
	genEvents2: {"session.inbox.enqueued", "session.inbox.delivered", "session.execution.started",
		"session.execution.succeeded session.execution.failed session.execution.interrupted", "session.step.started"},
}

// eventCounts counts events by type, at next to no cost.
type eventCounts struct {
	counts  []atomic.Uint64
	unknown boundedNames
}

func newEventCounts() eventCounts { return eventCounts{counts: make([]atomic.Uint64, len(eventList))} }

func (c *eventCounts) of(name string) uint64 {
	if t := eventTypes[name]; t != nil {
		return c.counts[t.number].Load()
	}
	return 0
}

// seen returns how many events of each known type came.
func (c *eventCounts) seen() map[string]uint64 {
	seen := make(map[string]uint64)
	for _, t := range eventList {
		if n := c.counts[t.number].Load(); n > 0 {
			seen[t.name] = n
		}
	}
	return seen
}

// generations returns those of which a type came that no other has.
func (c *eventCounts) generations() (gens eventGeneration) {
	for _, t := range eventList {
		if t.gens&(t.gens-1) == 0 && c.counts[t.number].Load() > 0 {
			gens |= t.gens
		}
	}
	return gens
}

// missing returns the types that a generation that was seen should have sent, and
// did not; alternatives are joined by "|".
func (c *eventCounts) missing() []string {
	var missing []string
	gens := c.generations()
	for _, gen := range []eventGeneration{genEvents1, genNext, genEvents2} {
		if gens&gen == 0 {
			continue
		}
	group:
		for _, group := range expectedEvents[gen] {
			for name := range strings.FieldsSeq(group) {
				if c.of(name) > 0 {
					continue group
				}
			}
			missing = append(missing, strings.ReplaceAll(group, " ", "|"))
		}
	}
	return missing
}

// eventData is what is read of an event's data, of all generations.
type eventData struct {
	SessionID SessionID `json:"sessionID"`
	ParentID  SessionID `json:"parentID"`
	ID        string    `json:"id"`
	RequestID string    `json:"requestID"`
	FormID    string    `json:"formID"`
	Reason    string    `json:"reason"`
	Finish    string    `json:"finish"`
	Name      string    `json:"name"`
	Attempt   int       `json:"attempt"`

	Info struct {
		ID       SessionID `json:"id"`
		ParentID SessionID `json:"parentID"`
	} `json:"info"`
	Status   json.RawMessage `json:"status"` // a string in some places
	Error    json.RawMessage `json:"error"`
	Metadata json.RawMessage `json:"metadata"`
	Content  json.RawMessage `json:"content"`
	Item     struct {
		Type    string `json:"type"`
		Payload struct {
			Text     string          `json:"text"`
			Metadata json.RawMessage `json:"metadata"`
		} `json:"payload"`
	} `json:"item"`
	Part struct {
		ID        string `json:"id"`
		Type      string `json:"type"`
		Synthetic bool   `json:"synthetic"`
		Text      string `json:"text"`
		Tool      string `json:"tool"`
		CallID    string `json:"callID"`
		State     struct {
			Status   string          `json:"status"`
			Title    string          `json:"title"`
			Output   string          `json:"output"`
			Error    string          `json:"error"`
			Metadata json.RawMessage `json:"metadata"`
			Input    struct {
				Agent string `json:"subagent_type"`
			} `json:"input"`
		} `json:"state"`
	} `json:"part"`
}

// parentOf returns whose child a session.created is about.
func (d *eventData) parentOf() SessionID { return cmp.Or(d.Info.ParentID, d.ParentID) }

// ask returns what a session asks or was answered.
func (d *eventData) ask(e Event) ChildAsk {
	kind, _, _ := strings.Cut(e.Type, ".")
	return ChildAsk{ID: cmp.Or(d.RequestID, d.FormID, d.ID), Kind: kind, Session: e.Session}
}

// evidenceOf returns what an event says of the session that it is about, and false
// if that is nothing.
func evidenceOf(e Event, use eventUse, d *eventData) (evidence, bool) {
	out := evidence{JoinEvidence: JoinEvidence{Source: FromEvent, What: e.Type, Seq: e.Seq, Host: hostTime(e.Time)}}
	switch use {
	case useStep:
		out.kind = evidenceStep
		if e.Type == "session.step.started" && e.Seq != 0 {
			out.kind = evidenceStart // in order: if the start before was lost, this is one
		}
	case useStart:
		out.kind = evidenceStart
	case useStatus:
		var status struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		}
		if json.Unmarshal(d.Status, &status) != nil {
			return out, false
		}
		switch status.Type {
		case "busy":
			out.kind = evidenceStart
		case "idle":
			out.kind, out.What = evidenceIdle, "session.idle" // one thing, said twice
		case "retry":
			out.kind, out.Reason = evidenceRetry, status.Message
		default:
			return out, false // alive, and no more
		}
	case useIdle:
		out.kind = evidenceIdle
	case useError:
		out.kind, out.State, out.Reason = evidenceSeems, ChildFailed, errorName(d.Error)
		if strings.HasPrefix(out.Reason, "MessageAbortedError") {
			out.State = ChildInterrupted
		}
	case useSucceeded:
		out.State = ChildCompleted
	case useFailed:
		out.State, out.Reason = ChildFailed, errorName(d.Error)
	case useInterrupted:
		out.State, out.Reason = ChildInterrupted, d.Reason
		if d.Reason == "shutdown" {
			out.kind = evidenceParked
			out.State = ChildRunning
		}
	case useRetry:
		out.kind, out.Reason = evidenceRetry, errorName(d.Error)
	case useNextEnded:
		out.kind, out.State, out.Reason = evidenceSeems, ChildCompleted, d.Finish
		switch d.Finish {
		case "tool-calls":
			out.kind, out.Reason = evidenceStep, ""
		case "error", "content-filter":
			out.State = ChildFailed
		}
	case useNextFailed:
		out.kind, out.State, out.Reason = evidenceSeems, ChildFailed, errorName(d.Error)
	case useDeleted:
		out.State, out.Reason = ChildInterrupted, "deleted"
	case useAsked, useAnswered:
		out.kind, out.ask = evidenceAsk, d.ask(e)
		if use == useAnswered {
			out.kind = evidenceAnswered
		}
		return out, out.ask.ID != ""
	default:
		return out, false
	}
	return out, true
}

// hostTime drops a time that no record can hold.
func hostTime(t time.Time) time.Time {
	if y := t.Year(); y < 1 || y > 9999 || t.Unix() <= 0 {
		return time.Time{}
	}
	return t.UTC()
}

// errorName digs a name and a message out of a host's error, however deep it lies.
func errorName(raw json.RawMessage) string {
	var e struct {
		Name    string          `json:"name"`
		Type    string          `json:"type"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
		Error   json.RawMessage `json:"error"`
		Cause   json.RawMessage `json:"cause"`
	}
	var name, message string
	for range 4 {
		if len(raw) == 0 {
			break
		}
		var plain string
		if json.Unmarshal(raw, &plain) == nil {
			message = cmp.Or(message, plain)
			break
		}
		e.Name, e.Type, e.Message, e.Data, e.Error, e.Cause = "", "", "", nil, nil, nil
		if json.Unmarshal(raw, &e) != nil {
			break
		}
		name, message = cmp.Or(name, e.Name, e.Type), cmp.Or(message, e.Message)
		for _, next := range []json.RawMessage{e.Data, e.Error, e.Cause, nil} {
			raw = next
			if len(raw) > 0 {
				break
			}
		}
	}
	switch {
	case name != "" && message != "":
		return name + ": " + message
	default:
		return cmp.Or(name, message, "error")
	}
}

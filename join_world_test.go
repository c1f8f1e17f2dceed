package team_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/teamchan/team"
)

// A world is a host with a lead and children that work, in the simplest way that is true. What really
// happens is written into worldKid.ended, and nothing else is compared with what a Join says. News
// travel on three ways: the stream, which keeps its order, may be behind, and loses what is under way when it
// breaks; results of calls by a tool hook; and notices and signals.
type world struct {
	r      *rand.Rand
	kids   []*worldKid
	stream []worldNews
	others []worldNews // results, notices and signals: in order of each child, late as it pleases

	hooks    bool // results of calls come by a hook; else they are in the stream
	faults   bool // the stream breaks, and the program is killed
	plain    bool // the host is no Inspector
	restarts bool // the program begins anew before each thing that it is told
	broken   bool // the stream, now
	lossy    bool // something was lost

	leadRuns bool
	calls    int // of the lead, in the foreground, that have not ended

	heal              func() // the hole, if there is one: none is as long as the grace
	catchUp, register func() // deliver what is in the stream, and all else
	cancel            func(k *worldKid, end worldEnd) bool
	shown             func(k *worldKid, turn int, s team.Shown)
}

type worldNews struct {
	kid  *worldKid
	at   time.Time
	tell func(j *team.Join) error
}

// The generations of events.
const (
	gen1    = "1.x"
	genNext = "the second API of 1.18"
	gen2    = "2.x"
)

type worldKid struct {
	id      team.SessionID
	gen     string
	script  []func()
	seq     uint64
	running bool
	parked  bool           // its host goes down and comes back
	open    team.SessionID // a descendant of it that works
	ended   []worldEnd
	last    *team.LastMessage
	idleAt  time.Time
	outcome string
	born    bool
}

// A worldEnd is the truth about a turn.
type worldEnd struct {
	state team.ChildState
	word  string // what its answer, or its error, says
	told  bool   // a call of the lead began it: so the lead has its answer
}

func (w *world) emit(k *worldKid, e team.Event) {
	if k != nil && k.gen != gen1 && e.Session == k.id {
		k.seq++
		e.Seq, e.Time = k.seq, time.Now()
	}
	w.send(k, func(j *team.Join) error {
		_, err := j.Observe(t0, e)
		return err
	})
}

func (w *world) send(k *worldKid, tell func(j *team.Join) error) {
	if w.broken {
		w.lossy = true
		return
	}
	w.stream = append(w.stream, worldNews{k, time.Now(), tell})
}

func (w *world) other(k *worldKid, tell func(j *team.Join) error) {
	w.others = append(w.others, worldNews{k, time.Now(), tell})
}

// lead says whether the lead runs. It is idle only while no call of it in the foreground runs.
func (w *world) lead(runs bool) {
	if w.leadRuns != runs {
		w.leadRuns = runs
		e := idle(lead)
		if runs {
			e = busy(lead)
		}
		w.emit(nil, e)
	}
}

func (k *worldKid) start(w *world) {
	time.Sleep(2 * time.Millisecond) // no two turns share an instant
	k.running, k.born = true, true
	k.last = &team.LastMessage{}
	switch k.gen {
	case gen2:
		w.emit(k, ev(k.id, "session.inbox.enqueued", `{"inboxID":"m","item":{"type":"user","payload":{"text":"do"}}}`))
		w.emit(k, ev(k.id, "session.execution.started", ""))
		w.emit(k, ev(k.id, "session.inbox.delivered", `{"inboxID":"m"}`))
		w.emit(k, ev(k.id, "session.step.started", ""))
	case genNext:
		w.emit(k, ev(k.id, "session.next.prompted", ""))
		w.emit(k, ev(k.id, "session.next.step.started", ""))
	default:
		w.emit(k, busy(k.id))
	}
}

// stop ends a busy period; it is a turn's end if no descendant works.
func (k *worldKid) stop(w *world, end worldEnd) {
	time.Sleep(2 * time.Millisecond)
	k.running = false
	k.idleAt = time.Now()
	k.last = &team.LastMessage{Text: end.word, Completed: time.Now(), Finish: "stop"}
	k.outcome = "succeeded"
	switch end.state {
	case team.ChildFailed:
		k.outcome, k.last.Error = "failed", "E: "+end.word
		k.last.Text = ""
		switch k.gen {
		case gen2:
			w.emit(k, ev(k.id, "session.step.failed", fmt.Sprintf(`{"error":{"type":"E","message":%q}}`, end.word)))
			w.emit(k, ev(k.id, "session.execution.failed", fmt.Sprintf(`{"error":{"type":"E","message":%q}}`, end.word)))
		case genNext:
			w.emit(k, ev(k.id, "session.next.step.failed", fmt.Sprintf(`{"error":{"type":"E","message":%q}}`, end.word)))
		default:
			w.emit(k, ev(k.id, "session.error", fmt.Sprintf(`{"error":{"name":"E","data":{"message":%q}}}`, end.word)))
		}
	case team.ChildInterrupted, team.ChildCancelled:
		k.outcome, k.last.Error, k.last.Aborted = "interrupted", "aborted", true
		if k.gen == gen2 {
			w.emit(k, ev(k.id, "session.execution.interrupted", `{"reason":"user"}`))
		} else {
			w.emit(k, ev(k.id, "session.error", `{"error":{"name":"MessageAbortedError"}}`))
		}
	case team.ChildCompleted:
		switch k.gen {
		case gen2:
			w.emit(k, ev(k.id, "session.step.ended", `{"finish":"stop"}`))
			w.emit(k, ev(k.id, "session.execution.succeeded", ""))
		case genNext:
			w.emit(k, ev(k.id, "session.next.step.ended", `{"finish":"stop"}`))
		}
	}
	if k.gen == gen1 {
		w.emit(k, ev(k.id, "session.status", `{"status":{"type":"idle"}}`))
		w.emit(k, idle(k.id))
	}
	if k.open == "" {
		k.ended = append(k.ended, end)
	}
}

// play writes the life of a child.
func (w *world) play(k *worldKid) {
	dispatched, settles := false, false
	step := func(f func()) { k.script = append(k.script, f) }
	for turn := range 1 + w.r.IntN(3) {
		call := fmt.Sprintf("call_%s_%d", k.id, turn)
		background := w.r.IntN(2) == 0
		before := dispatched
		dispatched = turn == 0 || w.r.IntN(3) > 0
		switch {
		case turn > 0 && k.gen == genNext:
			// Nothing says there that a turn is over but that nothing follows.
			step(func() { w.heal(); w.catchUp(); w.register(); time.Sleep(team.DefaultJoinGrace) })
		case dispatched && turn > 0 && w.hooks && (!before || settles):
			// Behind a turn that somebody else began, or that ended while its own work went
			// on, a call that is faster than the stream cannot be told from one in that turn.
			step(func() { w.catchUp() })
		}
		end := worldEnd{told: dispatched, word: fmt.Sprintf("word %d of %s.", turn, k.id),
			state: []team.ChildState{team.ChildCompleted, team.ChildCompleted, team.ChildFailed, team.ChildInterrupted, team.ChildCancelled}[w.r.IntN(5)]}
		if k.gen == genNext && end.state != team.ChildFailed {
			end.state = team.ChildCompleted // what it says of an abort was not seen
		}
		if background && k.gen == gen1 && end.state != team.ChildCompleted {
			end.state = team.ChildFailed // no notice of an abort was seen
		}
		if dispatched {
			step(func() {
				w.lead(true)
				if !background {
					w.calls++
				}
				w.dispatch(k, call, background)
			})
		} else {
			step(func() { k.start(w) })
		}
		w.work(k, step)
		blind := w.faults && (w.plain || !w.hooks) // then nothing tells of what begins in a hole
		if settles = w.r.IntN(4) == 0 && k.gen != genNext && !blind; settles {
			// It ends its turn while a child of its own works, and is woken with its news.
			if w.faults {
				// What begins in a hole, of a child that nobody has told of, is never known.
				step(func() { w.register() })
			}
			grand := team.SessionID(fmt.Sprint(k.id, "_g", turn))
			step(func() { k.open = grand; w.emit(k, ev(grand, "session.created", fmt.Sprintf(`{"parentID":%q}`, k.id))) })
			step(func() { k.stop(w, worldEnd{state: team.ChildCompleted, word: "wait for my job"}) })
			step(func() { w.emit(k, ev(grand, "session.idle", "")); k.start(w); k.open = "" })
		}
		if end.state == team.ChildCompleted && w.r.IntN(4) == 0 {
			step(func() { // its last deed is to say that it is done
				w.other(k, func(j *team.Join) error {
					_, err := j.ObserveSignal(t0, team.Signal{ID: team.SignalID("sig_" + call), Kind: team.KindSettled, From: team.Caller{Session: k.id}, To: lead})
					return err
				})
			})
		}
		called := dispatched
		step(func() {
			end := end
			if end.state == team.ChildCancelled && !w.cancel(k, end) {
				end.state = team.ChildInterrupted // by somebody else, then
			}
			if end.state != team.ChildCancelled {
				k.stop(w, end)
			}
			if called {
				if !background {
					w.calls--
				}
				w.answer(k, call, background, end)
			}
		})
	}
}

// work is what a child does that begins and ends nothing.
func (w *world) work(k *worldKid, step func(func())) {
	event := func(byGen map[string]team.Event) {
		if e, ok := byGen[k.gen]; ok {
			step(func() { w.emit(k, e) })
		}
	}
	for range w.r.IntN(3) {
		event(map[string]team.Event{gen1: ev(k.id, "message.part.delta", ""), gen2: ev(k.id, "session.text.delta", ""),
			genNext: ev(k.id, "session.next.step.ended", `{"finish":"tool-calls"}`)})
	}
	if w.r.IntN(4) == 0 {
		event(map[string]team.Event{gen2: ev(k.id, "session.retry.scheduled", `{"error":{"message":"refused"}}`),
			gen1: ev(k.id, "session.status", `{"status":{"type":"retry","message":"refused"}}`)})
	}
	if w.r.IntN(4) == 0 && k.gen == gen2 { // its host goes down, and goes on with it
		step(func() { k.parked = true; w.emit(k, ev(k.id, "session.execution.interrupted", `{"reason":"shutdown"}`)) })
		step(func() { k.parked = false; w.emit(k, ev(k.id, "session.execution.started", "")) })
	}
	if w.r.IntN(4) == 0 {
		step(func() { w.emit(k, ev(k.id, "permission.asked", `{"id":"p"}`)) })
		step(func() { w.emit(k, ev(k.id, "permission.replied", `{"requestID":"p"}`)) })
	}
}

// dispatch is a call of the lead that begins a turn. The child starts in the same moment: the news of the
// call may be slower.
func (w *world) dispatch(k *worldKid, call string, background bool) {
	if w.hooks {
		w.other(k, func(j *team.Join) error {
			_, err := j.Register(t0, team.Dispatch{Session: k.id, Background: background, Call: call})
			return err
		})
		k.start(w)
		if w.restarts {
			w.register() // what is early is in memory only
		}
		return
	}
	running := fmt.Sprintf(`{"sessionID":%q,"status":"running"}`, k.id)
	if k.gen == gen2 {
		w.emit(nil, ev(lead, "session.tool.input.started", fmt.Sprintf(`{"id":%q,"name":"subagent"}`, call)))
		w.emit(nil, ev(lead, "session.tool.progress", fmt.Sprintf(`{"id":%q,"metadata":%s}`, call, running)))
	} else {
		w.emit(nil, k.part(call, "running", "", background))
	}
	k.start(w)
	switch {
	case !background:
	case k.gen == gen2:
		w.emit(nil, ev(lead, "session.tool.success", fmt.Sprintf(`{"id":%q,"content":[{"type":"text","text":"working (sessionID: %s)"}],"metadata":%s}`, call, k.id, running)))
	default:
		w.emit(nil, k.part(call, "completed", k.envelope(team.Envelope{State: team.ChildRunning, Summary: "s"}), background))
	}
}

// part is what 1.x sends of a call of the lead.
func (k *worldKid) part(call, status, text string, background bool) team.Event {
	raw, _ := json.Marshal(map[string]any{"part": map[string]any{"id": "prt_" + call, "type": "tool", "tool": "task", "callID": call, "state": map[string]any{
		"status": status, map[string]string{"completed": "output", "error": "error", "running": "title"}[status]: text,
		"metadata": map[string]any{"sessionId": k.id, "parentSessionId": lead, "background": background}}}})
	return ev(lead, "message.part.updated", string(raw))
}

// noticed is what a host sends of a notice.
func (k *worldKid) noticed(call string, in team.EnvelopeInput) team.Event {
	if k.gen == gen2 {
		raw, _ := json.Marshal(map[string]any{"inboxID": "msg_" + call, "item": map[string]any{"type": "synthetic", "payload": in}})
		return ev(lead, "session.inbox.enqueued", strings.ReplaceAll(strings.ReplaceAll(string(raw), `"Text"`, `"text"`), `"Metadata"`, `"metadata"`))
	}
	raw, _ := json.Marshal(map[string]any{"part": map[string]any{"id": "msg_" + call, "type": "text", "synthetic": true, "text": in.Text}})
	return ev(lead, "message.part.updated", string(raw))
}

// envelope is the host's text of a child.
func (k *worldKid) envelope(e team.Envelope) string {
	e.Session, e.Generation = k.id, team.GenV1c
	if k.gen == gen2 {
		e.Generation = team.GenV2
	}
	text, err := team.FormatEnvelope(e)
	if err != nil {
		panic(err)
	}
	return text
}

// answer is what the lead is told of a turn that a call of it began.
func (w *world) answer(k *worldKid, call string, background bool, end worldEnd) {
	turn := len(k.ended)
	state := end.state
	if state == team.ChildInterrupted {
		state = team.ChildCancelled // the host's word
	}
	e := team.Envelope{State: state, Notice: background, Body: end.word}
	if background {
		e.Summary = map[string]string{gen2: "", gen1: "s", genNext: "s"}[k.gen]
		in := team.EnvelopeInput{Text: k.envelope(e)}
		if k.gen == gen2 {
			word := map[team.ChildState]string{team.ChildCompleted: "completed", team.ChildFailed: "error", team.ChildCancelled: "cancelled"}[state]
			in.Metadata = json.RawMessage(fmt.Sprintf(`{"source":"subagent","childID":%q,"agent":"general","state":%q}`, k.id, word))
		}
		if !w.hooks {
			w.emit(nil, k.noticed(call, in))
			return
		}
		for range 1 + w.r.IntN(5)/4 { // now and then twice
			w.other(k, func(j *team.Join) error {
				out, err := j.ObserveText(t0, in, "msg_"+call)
				w.shown(k, turn, out.Shown)
				return err
			})
		}
		return
	}
	if state == team.ChildCancelled {
		e.Body = ""
	}
	text := k.envelope(e)
	status := "completed"
	if state != team.ChildCompleted {
		status = "error"
	}
	tool, result := "task", map[string]any{"metadata": map[string]any{"sessionId": k.id, "parentSessionId": lead}}
	switch {
	case k.gen == gen2:
		tool, result["metadata"] = "subagent", map[string]any{"sessionID": k.id, "status": status}
		result["content"] = []map[string]string{{"type": "text", "text": text}}
		if status == "error" {
			result["error"] = map[string]string{"message": text}
		}
	case status == "error":
		result["error"] = text
	default:
		result["output"] = text
	}
	raw, _ := json.Marshal(result)
	switch {
	case w.hooks:
		w.other(k, func(j *team.Join) error {
			reg, err := j.RegisterResult(t0, team.ToolResult{Tool: tool, Session: lead, Call: call, Result: raw})
			w.shown(k, turn, reg.Shown)
			return err
		})
	case k.gen == gen2:
		result["id"] = call
		raw, _ = json.Marshal(result)
		typ := map[string]string{"completed": "session.tool.success", "error": "session.tool.failed"}[status]
		w.emit(nil, ev(lead, typ, string(raw)))
	default:
		w.emit(nil, k.part(call, status, text, false))
	}
}

// inspection is what the host says of a child when it is asked.
func (w *world) inspection(k *worldKid) team.Inspection {
	i := team.Inspection{Session: team.Session{ID: k.id, Parent: lead}, Activity: team.ActivityIdle, Last: k.last, Open: []team.SessionID{}}
	if k.gen == gen2 {
		i.Outcome, i.Idle = k.outcome, k.idleAt
	}
	if k.running {
		i.Activity = team.ActivityRunning
	}
	if k.parked {
		i.Activity = ""
	}
	if k.open != "" {
		i.Open = append(i.Open, k.open)
	}
	return i
}

func (w *world) kid(id team.SessionID) *worldKid {
	return w.kids[slices.IndexFunc(w.kids, func(k *worldKid) bool { return k.id == id })]
}

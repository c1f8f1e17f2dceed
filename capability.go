package team

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A CapabilityState says how well it is known that something works here.
type CapabilityState string

// The states. A thing that was never tried, one of which nothing was seen, and one that does
// not work are three.
const (
	CapabilityOK         CapabilityState = "ok"         // seen working, in this process
	CapabilityDeclared   CapabilityState = "declared"   // it is offered, and was never exercised
	CapabilityNotSeen    CapabilityState = "not-seen"   // we listen, and nothing of the kind came
	CapabilityMissing    CapabilityState = "missing"    // absent, or it failed, or answered wrongly
	CapabilityUnverified CapabilityState = "unverified" // it cannot be decided here: that takes a person or a model
)

// A CapabilityBasis is the kind of evidence behind a state.
type CapabilityBasis string

// The kinds.
const (
	BasisStatic  CapabilityBasis = "static"  // somebody says so: a manifest, a method that is there
	BasisHook    CapabilityBasis = "hook"    // the host called us
	BasisEvent   CapabilityBasis = "event"   // the host's stream
	BasisRuntime CapabilityBasis = "runtime" // we called the host
	BasisHuman   CapabilityBasis = "human"
)

// The names of what this library can use of a host. Others are welcome.
const (
	CapSessions  = "sessions"
	CapNotes     = "notes"
	CapInterrupt = "interrupt"
	CapEvents    = "events"
	CapStorage   = "storage"
	CapTools     = "tools" // has no probe: the handler of a tool, or of AfterTool, notes it, by BasisHook
)

// A CapabilityLine is what is known of one capability.
type CapabilityLine struct {
	Name     string
	State    CapabilityState
	Basis    CapabilityBasis
	Evidence string    // names, shapes and counts; never content
	At       time.Time // when that was found
}

// A Capability is the account of what a host can really do, and of how that is known. It
// asks nothing on its own: the program notes what it sees, passes events on, and calls the
// probes it wants. All that is kept is names and counts. It can be used by several
// goroutines; the zero value is ready.
type Capability struct {
	mu     sync.Mutex
	lines  map[string]CapabilityLine
	gates  map[Offer]*[4]CapabilityLine
	drifts map[driftKey]*Drift
	events struct {
		once   sync.Once
		counts eventCounts
		last   atomic.Int64 // when one came, in nanoseconds; zero is never
		opened time.Time
	}
}

const (
	mostCapabilities = 1024
	mostDrifts       = 256
)

// Note says what is known of a capability. What was seen working stays ok until it is
// missing; what was missing is so until it is seen working. What somebody only says, BasisStatic or
// no basis, is never ok here. A name is one line of at most 256 bytes; evidence is cut at 200 bytes.
func (c *Capability) Note(name string, state CapabilityState, basis CapabilityBasis, evidence string) error {
	err := checkName("capability", name)
	switch {
	case err == nil && name == "":
		err = &InvalidError{What: "capability", Why: "is empty", Offset: -1}
	case err == nil:
		err = checkState(state, basis)
	}
	if err == nil && state == CapabilityOK && !seen(basis) {
		err = errUnseen
	}
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		err = c.note(CapabilityLine{Name: name, State: state, Basis: basis, Evidence: evidence})
	}
	return edge("capability.note", name, err)
}

// seen says whether somebody observed it, and does not only say so.
func seen(basis CapabilityBasis) bool { return basis != "" && basis != BasisStatic }

var errUnseen = &InvalidError{What: "state", Why: "is ok, and nobody has seen it work", Offset: -1, Advice: "note it as declared, or say who saw it"}

func checkState(state CapabilityState, basis CapabilityBasis) error {
	switch state {
	case CapabilityOK, CapabilityDeclared, CapabilityNotSeen, CapabilityMissing, CapabilityUnverified:
	default:
		return &InvalidError{What: "state", Why: "is none of the CapabilityState constants", Offset: -1}
	}
	switch basis {
	case "", BasisStatic, BasisHook, BasisEvent, BasisRuntime, BasisHuman:
		return nil
	}
	return &InvalidError{What: "basis", Why: "is none of the CapabilityBasis constants", Offset: -1}
}

// note keeps a line. c.mu is held.
func (c *Capability) note(line CapabilityLine) error {
	old, ok := c.lines[line.Name]
	if !ok && len(c.lines) >= mostCapabilities {
		return &LimitError{What: "capabilities", Got: int64(len(c.lines)) + 1, Max: mostCapabilities}
	}
	if c.lines == nil {
		c.lines = make(map[string]CapabilityLine)
	}
	c.lines[line.Name] = raise(old, line)
	return nil
}

// raise returns what is known after line was found.
func raise(old, line CapabilityLine) CapabilityLine {
	line.Evidence, line.At = cutReason(line.Evidence), time.Now()
	if old.State.firm() && !line.State.firm() {
		return old
	}
	return line
}

// firm states give way to each other only.
func (s CapabilityState) firm() bool { return s == CapabilityOK || s == CapabilityMissing }

// Observe takes an event of the host's stream, and never fails: that is how the set
// of its events, and their shapes, become known. See Drift and Stream.
func (c *Capability) Observe(e Event) {
	c.begin()
	t := eventTypes[e.Type]
	if t == nil {
		if strings.HasPrefix(e.Type, "rpc.") {
			return
		}
		c.events.last.Store(time.Now().UnixNano())
		c.events.counts.unknown.add(e.Type)
		c.drift("event type", e.Type, "is new")
		return
	}
	c.events.last.Store(time.Now().UnixNano())
	if n := c.events.counts.counts[t.number].Add(1); n <= comparedEvents {
		c.compareEvent(t, e)
	}
}

func (c *Capability) begin() {
	c.events.once.Do(func() { c.events.counts = newEventCounts() })
}

// Subscribed notes that the host's stream was opened, or why it could not be. That the
// program gave up, context.Canceled, proves nothing.
func (c *Capability) Subscribed(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		_ = c.note(CapabilityLine{Name: CapEvents, State: CapabilityMissing, Basis: BasisRuntime, Evidence: kindOf(err)})
		return
	}
	if c.lines[CapEvents].State != CapabilityOK {
		delete(c.lines, CapEvents)
	}
	c.events.opened = time.Now()
}

// Stream returns what was seen of the host's stream. Missing counts from the first event on:
// ask when a child has worked to its end.
func (c *Capability) Stream() StreamReport {
	c.begin()
	return StreamReport{Seen: c.events.counts.seen(), Unknown: c.events.counts.unknown.copy(), Missing: c.events.counts.missing()}
}

// Lines returns what is known, by name. It is made when it is asked for, so it says nothing that
// was true at a start only.
func (c *Capability) Lines() []CapabilityLine {
	seen := c.Stream()
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := maps.Clone(c.lines)
	if lines == nil {
		lines = make(map[string]CapabilityLine)
	}
	var total uint64
	for _, counts := range []map[string]uint64{seen.Seen, seen.Unknown} {
		for _, n := range counts {
			total += n
		}
	}
	noted, known := lines[CapEvents]
	switch last := time.Unix(0, c.events.last.Load()); {
	case total > 0 && (last.After(noted.At) || !noted.State.firm()):
		lines[CapEvents] = CapabilityLine{Name: CapEvents, State: CapabilityOK, Basis: BasisEvent, At: last,
			Evidence: fmt.Sprintf("%d events of %d types", total, len(seen.Seen)+len(seen.Unknown))}
	case !known && !c.events.opened.IsZero():
		lines[CapEvents] = CapabilityLine{Name: CapEvents, State: CapabilityNotSeen, Basis: BasisEvent, At: c.events.opened,
			Evidence: "the stream is open, and nothing came"}
	}
	return slices.SortedFunc(maps.Values(lines), func(a, b CapabilityLine) int { return cmp.Compare(a.Name, b.Name) })
}

// Unmet returns those of the required capabilities that are not known to work, each with what
// is known; one of which nothing is known is CapabilityUnverified.
func (c *Capability) Unmet(required ...string) []CapabilityLine {
	lines := c.Lines()
	var unmet []CapabilityLine
	for _, name := range required {
		i := slices.IndexFunc(lines, func(l CapabilityLine) bool { return l.Name == name })
		switch {
		case i < 0:
			unmet = append(unmet, CapabilityLine{Name: name, State: CapabilityUnverified, Evidence: "nobody has looked"})
		case lines[i].State != CapabilityOK:
			unmet = append(unmet, lines[i])
		}
	}
	return unmet
}

// found notes what a probe found. The error is that of the probe, or nil.
func (c *Capability) found(name string, err error, evidence string) error {
	line := CapabilityLine{Name: name, State: CapabilityOK, Basis: BasisRuntime, Evidence: evidence}
	if err != nil {
		line.State, line.Evidence = CapabilityMissing, evidence+": "+kindOf(err)
	}
	c.mu.Lock()
	_ = c.note(line) // at its bound it still returns what it found
	c.mu.Unlock()
	return err
}

// ProbeStorage sets a value under a key of its own, "team/probe/<scope>/<chance>", reads it
// back, lists it, removes it, and finds it gone. It returns why storage is missing, or nil if it
// works. A context that ends proves nothing.
func (c *Capability) ProbeStorage(ctx context.Context, storage Storage, scope string) error {
	if storage == nil {
		return c.found(CapStorage, fmt.Errorf("%w: the host offers no storage", errors.ErrUnsupported), "not offered")
	}
	err := checkName("scope", scope)
	if err == nil && scope == "" {
		err = &InvalidError{What: "scope", Why: "is empty", Offset: -1, Advice: "name the project or the program"}
	}
	if err != nil {
		return edge("capability.probe", CapStorage, err)
	}
	key := "team/probe/" + keyPart(scope) + "/" + rand.Text()
	step, err := probeStorage(ctx, storage, key)
	if ctx.Err() != nil {
		return edge("capability.probe", CapStorage, ctx.Err())
	}
	return edge("capability.probe", CapStorage, c.found(CapStorage, err, step))
}

func probeStorage(ctx context.Context, storage Storage, key string) (step string, err error) {
	defer func() {
		// Whatever went wrong, nothing of ours stays: a Set that failed may have been carried out.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		failed := storage.Remove(ctx, key)
		if err == nil && failed != nil {
			step, err = "remove", failed
		}
	}()
	if err := storage.Set(ctx, key, json.RawMessage(`{"probe":1}`)); err != nil {
		return "set", err
	}
	got, err := storage.Get(ctx, key)
	if err != nil {
		return "get", err
	}
	var value struct{ Probe int }
	if json.Unmarshal(got, &value) != nil || value.Probe != 1 {
		return "get", fmt.Errorf("%w: it returned another value than was set", ErrCorrupt)
	}
	listed := false
	for found, err := range storage.Scan(ctx, key, "") {
		if err != nil {
			return "scan", err
		}
		listed = listed || found == key
	}
	if !listed {
		return "scan", fmt.Errorf("%w: it does not list what was set", ErrCorrupt)
	}
	if err := storage.Remove(ctx, key); err != nil {
		return "remove", err
	}
	if _, err := storage.Get(ctx, key); !errors.Is(err, ErrNotFound) {
		return "remove", fmt.Errorf("%w: it returns what was removed", ErrCorrupt)
	}
	return "set, get, scan, remove", nil
}

// ProbeSessions reads a session that the program knows, and changes nothing. A host that
// does not know it answers too, but with that it is only declared.
func (c *Capability) ProbeSessions(ctx context.Context, sessions Sessions, id SessionID) error {
	if sessions == nil {
		return c.found(CapSessions, fmt.Errorf("%w: the host offers no sessions", errors.ErrUnsupported), "not offered")
	}
	s, err := sessions.Session(ctx, id)
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, ErrNotFound):
		err = errors.Join(err, c.Note(CapSessions, CapabilityDeclared, BasisRuntime, "it does not know the session"))
	case err == nil && s.ID != id:
		err = c.found(CapSessions, fmt.Errorf("%w: it returned another session", ErrCorrupt), "session")
	default:
		err = c.found(CapSessions, err, "session")
	}
	return edge("capability.probe", CapSessions, err)
}

// ProbeNotes puts a note into a session that the program made for this and throws away
// afterwards, queued, so that nobody wakes, and compares what the host holds. Without
// such a session nothing is sent, and notes are declared.
func (c *Capability) ProbeNotes(ctx context.Context, sessions Sessions, throwaway SessionID) error {
	if sessions == nil {
		return c.found(CapNotes, fmt.Errorf("%w: the host offers no sessions", errors.ErrUnsupported), "not offered")
	}
	if throwaway == "" {
		return c.Note(CapNotes, CapabilityDeclared, BasisStatic, "not tried: no session to throw away")
	}
	const text = "A program checks that notes arrive here. There is nothing to do."
	note := Note{ID: HostMessageID(Signal{ID: SignalID(rand.Text()), To: throwaway, Sent: time.Now()}),
		Text: text, Description: "probe", Delivery: DeliveryQueue}
	got, err := sessions.Deliver(ctx, throwaway, note)
	switch {
	case ctx.Err() != nil:
		return edge("capability.probe", CapNotes, ctx.Err())
	case errors.Is(err, ErrNotFound):
		return edge("capability.probe", CapNotes, errors.Join(err, c.Note(CapNotes, CapabilityDeclared, BasisRuntime, "it does not know the session")))
	case err == nil && got.Text != text:
		err = fmt.Errorf("%w: the host holds another text than was sent", ErrCorrupt)
	}
	return edge("capability.probe", CapNotes, c.found(CapNotes, err, "one note, queued"))
}

// Cancelled notes what a Join's Cancel came to: only a confirmed stop shows that
// interrupts work.
func (c *Capability) Cancelled(out Cancelled) {
	line := CapabilityLine{Name: CapInterrupt, Basis: BasisRuntime, Evidence: string(out.Verdict)}
	switch out.Verdict {
	case CancelStopped:
		line.State = CapabilityOK
	case CancelNoSeam, CancelThrew:
		line.State = CapabilityMissing
		line.Evidence += ": " + kindOf(out.Err)
	case CancelIdle:
		line.State = CapabilityDeclared
	default:
		line.State = CapabilityUnverified
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.note(line)
}

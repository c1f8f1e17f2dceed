package team

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// An OfferKind is a kind of thing that a host offers to an agent.
type OfferKind string

// The kinds. Others are welcome.
const (
	OfferTool           OfferKind = "tool"
	OfferSkill          OfferKind = "skill"
	OfferMCPResource    OfferKind = "MCP resource"
	OfferLanguageServer OfferKind = "language server"
)

// An Offer is a thing that a host offers.
type Offer struct {
	Kind OfferKind
	Name string
}

func (o Offer) String() string { return string(o.Kind) + " " + quoteName(o.Name) }

// A Gate is what an offer has to pass before an agent can use it.
type Gate string

// The gates, in the order in which an offer comes to them.
const (
	GateDiscovered Gate = "discovered" // the host lists it
	GateAuthorised Gate = "authorised" // the session may use it
	GateServed     Gate = "served"     // it is in what the model is given, or its server is connected
	GateRunnable   Gate = "runnable"   // what it needs is there: a program, a file, a credential
)

// Gates are all of them, in order.
func Gates() []Gate { return []Gate{GateDiscovered, GateAuthorised, GateServed, GateRunnable} }

func (g Gate) index() int {
	for i, other := range Gates() {
		if g == other {
			return i
		}
	}
	return -1
}

// Gate notes how an offer stands at a gate, and why. A list is evidence of GateDiscovered; behind it
// what somebody only says, BasisStatic or no basis, is never ok, as in Note.
func (c *Capability) Gate(o Offer, gate Gate, state CapabilityState, basis CapabilityBasis, why string) error {
	err := checkState(state, basis)
	i := gate.index()
	switch {
	case err != nil:
	case o.Kind == "" || o.Name == "":
		err = &InvalidError{What: "offer", Why: "has no kind or no name", Offset: -1}
	case i < 0:
		err = &InvalidError{What: "gate", Why: "is none of Gates()", Offset: -1}
	case state == CapabilityOK && gate != GateDiscovered && !seen(basis):
		err = errUnseen
	default:
		if err = checkName("offer", o.Name); err == nil {
			err = checkName("offer", string(o.Kind))
		}
	}
	if err == nil {
		err = c.gate(o, i, CapabilityLine{Name: string(gate), State: state, Basis: basis, Evidence: why})
	}
	return edge("capability.gate", o.Name, err)
}

func (c *Capability) gate(o Offer, i int, line CapabilityLine) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := c.gates[o]
	if lines == nil {
		if len(c.gates) >= mostCapabilities {
			return &LimitError{What: "offers", Got: int64(len(c.gates)) + 1, Max: mostCapabilities}
		}
		if c.gates == nil {
			c.gates = make(map[Offer]*[4]CapabilityLine)
		}
		lines = new([4]CapabilityLine)
		c.gates[o] = lines
	}
	// What a gate says is about now: a permission may be given and taken back.
	lines[i] = raise(CapabilityLine{}, line)
	return nil
}

// Authorise asks a host whether a session may use an offer, and notes the answer at
// GateAuthorised: allow is ok, deny is missing, ask is unverified, for a person decides. It raises no dialog.
func (c *Capability) Authorise(ctx context.Context, p Permissions, session SessionID, o Offer, action, resource string) error {
	if p == nil {
		return c.Gate(o, GateAuthorised, CapabilityUnverified, BasisStatic, "there is nobody to ask")
	}
	effect, err := p.Evaluate(ctx, session, action, resource)
	switch {
	case ctx.Err() != nil:
		return edge("capability.authorise", o.Name, ctx.Err())
	case errors.Is(err, errors.ErrUnsupported):
		return c.Gate(o, GateAuthorised, CapabilityUnverified, BasisRuntime, "this host cannot be asked")
	case err != nil:
		return errors.Join(edge("capability.authorise", o.Name, err),
			c.Gate(o, GateAuthorised, CapabilityUnverified, BasisRuntime, "could not ask: "+kindOf(err)))
	}
	state := CapabilityUnverified
	switch effect {
	case Allow:
		state = CapabilityOK
	case Deny:
		state = CapabilityMissing
	}
	why := fmt.Sprintf("%s %s: %s", quoteName(action), quoteName(resource), quoteName(string(effect)))
	if effect == Ask {
		why += ", a person decides"
	}
	return c.Gate(o, GateAuthorised, state, BasisRuntime, why)
}

// An Explanation says why an offer can, or cannot, be used.
type Explanation struct {
	Offer Offer
	// Gates are all four in order; one of which nothing is known is CapabilityUnverified.
	Gates []CapabilityLine
	// Usable: all four are ok.
	Usable bool
	// Stops is the first gate that is missing, empty if none is. Doubt is the first that
	// is not known to be open, if Stops is empty.
	Stops, Doubt Gate
}

// Explain says at which gate an offer stops: why it is visible and still cannot be used.
func (c *Capability) Explain(o Offer) Explanation {
	e := Explanation{Offer: o, Usable: true}
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := c.gates[o]
	for i, gate := range Gates() {
		line := CapabilityLine{Name: string(gate), State: CapabilityUnverified, Evidence: "nobody has looked"}
		if lines != nil && lines[i].Name != "" {
			line = lines[i]
		}
		e.Gates = append(e.Gates, line)
		if line.State == CapabilityOK {
			continue
		}
		e.Usable = false
		if line.State == CapabilityMissing && e.Stops == "" {
			e.Stops = gate
		}
		if e.Doubt == "" {
			e.Doubt = gate
		}
	}
	if e.Stops != "" {
		e.Doubt = ""
	}
	return e
}

// String says it in one line.
func (e Explanation) String() string {
	var b strings.Builder
	b.WriteString(e.Offer.String())
	switch {
	case e.Usable:
		b.WriteString(" can be used")
	case e.Stops != "":
		b.WriteString(" cannot be used: it is not " + string(e.Stops))
	default:
		b.WriteString(" may not be usable: nobody knows whether it is " + string(e.Doubt))
	}
	for _, line := range e.Gates {
		fmt.Fprintf(&b, "; %s %s", line.Name, line.State)
		if line.Evidence != "" {
			b.WriteString(" (" + quoteName(line.Evidence) + ")")
		}
	}
	return b.String()
}

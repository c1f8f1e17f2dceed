package team

import (
	"fmt"
	"strings"
)

// A Rule says what becomes of the permissions and resources that it matches. Both
// texts are wildcard patterns, see Matching. Permission names a capability in the
// host's own word: what is "bash" on OpenCode 1.x is "shell" on 2.x. The zero
// Rule allows nothing.
type Rule struct {
	Permission string
	Pattern    string
	Effect     Effect
}

// Rules are in order: of those that match, the last decides. Where none matches, the
// host asks.
//
// They are read from every JSON shape of the host and written in that of 1.x;
// RulesV2 writes that of 2.x. See ParseRules.
type Rules []Rule

// Unanswered is what an Ask comes to when nobody is there to answer it: no consent,
// and nothing waits for it. It is never the effect of a Rule; see
// Decision.Unattended.
const Unanswered Effect = "unanswered"

// Tighten returns the stricter of two effects: Allow, Ask, Unanswered, Deny. What is
// none of these counts as Deny.
func Tighten(a, b Effect) Effect {
	if b.strictness() > a.strictness() {
		a = b
	}
	if a.strictness() == Deny.strictness() {
		return Deny
	}
	return a
}

func (e Effect) strictness() int {
	switch e {
	case Allow:
		return 0
	case Ask:
		return 1
	case Unanswered:
		return 2
	}
	return 3
}

// A Placed rule is a rule and where it stands: in which of the lists that were
// evaluated, and where in that, both counted from 0.
type Placed struct {
	Rule
	List, Index int
}

// A Decision is what rules say of one resource.
type Decision struct {
	Permission, Resource string

	Effect Effect

	// By is the rule that decided. Where no rule matches it is the host's answer to
	// that, an Ask with the pattern "*", and its List and Index are -1.
	By Placed

	// Shadowed are the rules that match too and come before By, in their order:
	// they are without effect here.
	Shadowed []Placed

	// Guard is the name of the guard that made Effect stricter than the rules;
	// see Decision.Guarded.
	Guard string
}

// Evaluate returns what rules say of one resource: the last that matches in all
// lists, one behind the other, decides, be it broad or narrow. The host puts the
// rules of the session's agent first, then the session's own.
//
// It matches case as Linux and macOS do; Matching has the same for Windows. It
// takes time linear in the rules, and for each at worst the product of both lengths.
//
// OpenCode: Permission.evaluate (1.18), PermissionV2 (2.0.26).
func Evaluate(permission, resource string, rules ...Rules) Decision {
	return Matching{}.Evaluate(permission, resource, rules...)
}

// EvaluateAll returns the decision for a request that names several resources, such as
// the commands of one shell line: the first that is denied, else the first that has to be
// asked, else an Allow. A request without a resource is allowed, as nothing is done.
func EvaluateAll(permission string, resources []string, rules ...Rules) Decision {
	return Matching{}.EvaluateAll(permission, resources, rules...)
}

// Evaluate is like the function of that name.
func (m Matching) Evaluate(permission, resource string, rules ...Rules) Decision {
	d := Decision{Permission: permission, Resource: resource, Effect: Ask,
		By: Placed{Rule{permission, "*", Ask}, -1, -1}}
	p, r := m.text(permission), m.text(resource)
	for list, rs := range rules {
		for i, rule := range rs {
			if !m.match(rule.Permission, p) || !m.match(rule.Pattern, r) {
				continue
			}
			if d.By.List >= 0 {
				d.Shadowed = append(d.Shadowed, d.By)
			}
			d.By, d.Effect = Placed{rule, list, i}, rule.Effect
		}
	}
	if d.Effect.strictness() == Deny.strictness() {
		d.Effect = Deny // a rule without an effect that we know allows nothing
	}
	return d
}

// EvaluateAll is like the function of that name.
func (m Matching) EvaluateAll(permission string, resources []string, rules ...Rules) Decision {
	all := Decision{Permission: permission, Effect: Allow, By: Placed{Rule{permission, "", Allow}, -1, -1}}
	for i, r := range resources {
		if d := m.Evaluate(permission, r, rules...); i == 0 || d.Effect.strictness() > all.Effect.strictness() {
			all = d
		}
	}
	return all
}

// Unattended returns the decision where nobody is there to answer: an Ask becomes
// Unanswered. Raise no dialog for it; it could hang for ever.
func (d Decision) Unattended() Decision {
	if d.Effect == Ask {
		d.Effect = Unanswered
	}
	return d
}

// Err returns nil if the decision is Allow, and else a *PermissionError.
func (d Decision) Err() error {
	if d.Effect == Allow {
		return nil
	}
	return &PermissionError{Permission: d.Permission, Resource: d.Resource, Effect: d.Effect}
}

// A PermissionError says that something may not be done, or not without an answer
// that is not there. It is an ErrDenied.
type PermissionError struct {
	Permission, Resource string
	Effect               Effect // Deny, Ask or Unanswered
}

func (e *PermissionError) Error() string {
	what := quoteName(e.Permission) + " of " + quoteName(e.Resource)
	switch e.Effect {
	case Ask:
		return what + " has to be asked for first"
	case Unanswered:
		return what + " has to be asked for, and nobody is there to answer; allow it by a rule, or leave it to a session with a user"
	}
	return what + " is denied by the rules; ask whoever made them, or leave it"
}

// Is reports whether target is ErrDenied.
func (e *PermissionError) Is(target error) bool { return target == ErrDenied }

// Explain returns the decision in a few lines for a person: which rule decided, where
// it stands, and which earlier rules that say something else it shadows, since a broad
// rule behind a narrow one is the usual mistake.
func (d Decision) Explain() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s", quoteName(d.Permission), quoteName(d.Resource), d.Effect)
	switch {
	case d.By.List < 0 && d.Effect == Allow:
		b.WriteString(", as it names no resource")
	case d.By.List < 0:
		b.WriteString(", as no rule matches")
	default:
		b.WriteString(", by " + d.By.String())
	}
	if d.Guard != "" {
		fmt.Fprintf(&b, ", made stricter by guard %s", quoteName(d.Guard))
	} else if d.Effect == Unanswered {
		b.WriteString("; nobody is there to answer")
	}
	const most = 8
	shown, more := 0, 0
	for _, s := range d.Shadowed {
		switch {
		case s.Effect == d.By.Effect:
		case shown == most:
			more++
		default:
			shown++
			fmt.Fprintf(&b, "\n  shadows %s: it comes earlier, and the last that matches wins", s)
		}
	}
	if more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", more)
	}
	return b.String()
}

// String returns the rule and its place, such as `rule 3 of list 1 (bash "git *" deny)`.
func (p Placed) String() string {
	return fmt.Sprintf("rule %d of list %d (%s %s %s)", p.Index+1, p.List+1, quoteName(p.Permission), quoteName(p.Pattern), quoteName(string(p.Effect)))
}

package team

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ParseRules reads rules in any shape of the host:
//
//	[{"permission": "bash", "pattern": "git *", "action": "allow"}]   1.x, also Rule
//	[{"action": "shell", "resource": "git *", "effect": "allow"}]     2.x
//	{"bash": {"*": "ask", "git *": "allow"}, "edit": "deny"}          1.x, config
//	"ask"                                                             1.x, config
//	null                                                              no rules
//
// The word "action" is the effect in 1.x and the capability in 2.x; the fields
// beside it tell which is meant. Names are kept as they are: see RulesV2 for the shape
// and RoleMatrix for other names of the same capability. Patterns of a config are
// not expanded, see Rules.ExpandHome.
//
// What was read is all that was there. So an object with fields of both shapes, with a
// field twice or missing, or with one that nobody knows (it may be a condition) is an
// *InvalidError (ErrInvalid), and so is an effect that is none and a text that JSON
// could not give back.
func ParseRules(data []byte) (Rules, error) {
	if i := invalidAt(string(data)); i >= 0 {
		return nil, &InvalidError{What: "rules", Why: "are not UTF-8", Offset: i}
	}
	p := ruleParser{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	rules, err := p.rules()
	if err == nil {
		if _, e := p.dec.Token(); !errors.Is(e, io.EOF) {
			err = p.bad("rules", "have something behind them")
		}
	}
	if err != nil {
		return nil, err
	}
	return rules, nil
}

// UnmarshalJSON is ParseRules.
func (rs *Rules) UnmarshalJSON(data []byte) error {
	rules, err := ParseRules(data)
	if err == nil {
		*rs = rules
	}
	return err
}

// MarshalJSON writes the shape of 1.x. Rules without a known effect are ErrInvalid.
func (rs Rules) MarshalJSON() ([]byte, error) {
	return writeRules(rs, func(r Rule) any {
		return struct {
			Permission string `json:"permission"`
			Pattern    string `json:"pattern"`
			Action     Effect `json:"action"`
		}{r.Permission, r.Pattern, r.Effect}
	})
}

// RulesV2 are Rules that are written in the shape of OpenCode 2.x. They are read from
// every shape.
type RulesV2 Rules

// UnmarshalJSON is ParseRules.
func (rs *RulesV2) UnmarshalJSON(data []byte) error { return (*Rules)(rs).UnmarshalJSON(data) }

// MarshalJSON writes the shape of 2.x. Rules without a known effect are ErrInvalid.
func (rs RulesV2) MarshalJSON() ([]byte, error) {
	return writeRules(Rules(rs), func(r Rule) any {
		return struct {
			Action   string `json:"action"`
			Resource string `json:"resource"`
			Effect   Effect `json:"effect"`
		}{r.Permission, r.Pattern, r.Effect}
	})
}

func writeRules(rs Rules, shape func(Rule) any) ([]byte, error) {
	if rs == nil {
		return []byte("null"), nil
	}
	out := make([]any, len(rs))
	for i, r := range rs {
		if r.Effect != Allow && r.Effect != Ask && r.Effect != Deny {
			return nil, &InvalidError{What: fmt.Sprintf("effect %s of rule %d", quoteName(string(r.Effect)), i+1), Why: "is none of allow, ask and deny", Offset: -1}
		}
		if !utf8.ValidString(r.Permission) || !utf8.ValidString(r.Pattern) {
			return nil, &InvalidError{What: fmt.Sprintf("rule %d", i+1), Why: "is not UTF-8", Offset: -1}
		}
		out[i] = shape(r)
	}
	return json.Marshal(out)
}

// MarshalJSON writes the shape of 1.x.
func (r Rule) MarshalJSON() ([]byte, error) {
	b, err := Rules{r}.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return b[1 : len(b)-1], nil
}

// UnmarshalJSON reads one rule in the shape of 1.x or 2.x.
func (r *Rule) UnmarshalJSON(data []byte) error {
	rules, err := ParseRules(append(append([]byte{'['}, data...), ']'))
	if err == nil && len(rules) != 1 {
		err = &InvalidError{What: "rule", Why: "is not one object", Offset: -1}
	}
	if err == nil {
		*r = rules[0]
	}
	return err
}

// A ruleParser reads token by token: encoding/json into a struct would lose the order of
// a map, overlook fields that come twice, and take names in any case.
type ruleParser struct {
	data []byte
	dec  *json.Decoder
}

func (p *ruleParser) bad(what, why string) error {
	return &InvalidError{What: what, Why: why, Offset: int(p.dec.InputOffset()),
		Advice: "rules are an array of {permission, pattern, action} or {action, resource, effect}, or a config's map"}
}

func (p *ruleParser) token() (json.Token, error) {
	from := p.dec.InputOffset()
	t, err := p.dec.Token()
	if err != nil {
		return nil, p.bad("rules", "are no JSON")
	}
	if s, ok := t.(string); ok && strings.ContainsRune(s, utf8.RuneError) && loneSurrogate(p.data[from:p.dec.InputOffset()]) {
		return nil, p.bad("text", "has half a surrogate pair")
	}
	return t, nil
}

func (p *ruleParser) text(what string) (string, error) {
	t, err := p.token()
	if err != nil {
		return "", err
	}
	s, ok := t.(string)
	if !ok {
		return "", p.bad(what, "is not a string")
	}
	return s, nil
}

func (p *ruleParser) effect(s string) (Effect, error) {
	switch e := Effect(s); e {
	case Allow, Ask, Deny:
		return e, nil
	}
	return "", p.bad("effect "+quoteName(s), "is none of allow, ask and deny")
}

func (p *ruleParser) rules() (Rules, error) {
	t, err := p.token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case nil:
		return nil, nil
	case string:
		e, err := p.effect(t)
		return Rules{{"*", "*", e}}, err
	case json.Delim:
		if t == '[' {
			return p.list()
		}
		return p.config()
	}
	return nil, p.bad("rules", "are neither an array, a map nor an effect")
}

func (p *ruleParser) list() (Rules, error) {
	rules := Rules{}
	for p.dec.More() {
		r, err := p.rule(len(rules) + 1)
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	_, err := p.token() // the end, or a fault before it
	return rules, err
}

func (p *ruleParser) rule(n int) (Rule, error) {
	what := "rule " + strconv.Itoa(n)
	if t, err := p.token(); err != nil {
		return Rule{}, err
	} else if t != json.Delim('{') {
		return Rule{}, p.bad(what, "is not an object")
	}
	fields := make(map[string]string, 3)
	for p.dec.More() {
		name, err := p.text("field")
		if err != nil {
			return Rule{}, err
		}
		switch name {
		case "permission", "pattern", "action", "resource", "effect":
		default:
			return Rule{}, p.bad(what, "has a field "+quoteName(name)+" that is not known, and may change what it means")
		}
		if _, twice := fields[name]; twice {
			return Rule{}, p.bad(what, "has the field "+name+" twice")
		}
		if fields[name], err = p.text(what + "'s " + name); err != nil {
			return Rule{}, err
		}
	}
	if _, err := p.token(); err != nil {
		return Rule{}, err
	}
	has := func(names ...string) bool {
		for _, name := range names {
			if _, ok := fields[name]; !ok {
				return false
			}
		}
		return len(fields) == len(names)
	}
	r := Rule{}
	switch {
	case has("permission", "pattern", "action"):
		r = Rule{fields["permission"], fields["pattern"], Effect(fields["action"])}
	case has("action", "resource", "effect"):
		r = Rule{fields["action"], fields["resource"], Effect(fields["effect"])}
	default:
		return Rule{}, p.bad(what, "is neither of 1.x nor of 2.x: it has fields of both, or lacks some")
	}
	_, err := p.effect(string(r.Effect))
	return r, err
}

// config reads a map from capability to effect, or to a map from pattern to effect.
// The order of the keys is that of the rules.
func (p *ruleParser) config() (Rules, error) {
	rules := Rules{}
	err := p.object(func(permission string) error {
		t, err := p.token()
		if err != nil {
			return err
		}
		if s, ok := t.(string); ok {
			e, err := p.effect(s)
			rules = append(rules, Rule{permission, "*", e})
			return err
		}
		if t != json.Delim('{') {
			return p.bad("capability "+quoteName(permission), "has neither an effect nor a map of patterns")
		}
		return p.object(func(pattern string) error {
			s, err := p.text("effect of " + quoteName(pattern))
			if err != nil {
				return err
			}
			e, err := p.effect(s)
			rules = append(rules, Rule{permission, pattern, e})
			return err
		})
	})
	return rules, err
}

// object calls value for each name of an object whose brace is read.
func (p *ruleParser) object(value func(name string) error) error {
	seen := make(map[string]bool)
	for p.dec.More() {
		name, err := p.text("name")
		if err != nil {
			return err
		}
		if seen[name] {
			return p.bad("name "+quoteName(name), "comes twice")
		}
		seen[name] = true
		if err := value(name); err != nil {
			return err
		}
	}
	_, err := p.token()
	return err
}

// loneSurrogate reports whether JSON text has an escape for half a surrogate pair,
// which decodes to U+FFFD and could not be written back.
func loneSurrogate(raw []byte) bool {
	unit := func(i int) int64 { // of the escape at i, or -1
		if i+6 > len(raw) || raw[i] != '\\' || raw[i+1] != 'u' {
			return -1
		}
		n, err := strconv.ParseInt(string(raw[i+2:i+6]), 16, 32)
		if err != nil {
			return -1
		}
		return n
	}
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		switch u := unit(i); {
		case u >= 0xD800 && u < 0xDC00:
			if low := unit(i + 6); low < 0xDC00 || low > 0xDFFF {
				return true
			}
			i += 11
		case u >= 0xDC00 && u <= 0xDFFF:
			return true
		default:
			i++ // what is escaped is no backslash of its own
		}
	}
	return false
}

package team

import "strings"

// readOpener reads the opening tag that a text starts with, and returns what is
// behind it and how the text breaks its lines.
//
// Values are not escaped, so the tag ends where a quote and ">" end a line.
func readOpener(text, tag string) (e Envelope, rest, nl string, ok bool) {
	near := text[len(tag):min(len(text), maxOpener)]
	i := strings.IndexByte(near, '=')
	if i < 0 || i+1 == len(near) {
		return e, "", "", false
	}
	quotes := []string{`"`, `'`}
	if near[i+1] == '\'' {
		quotes[0], quotes[1] = quotes[1], quotes[0]
	}
	whole := len(tag)+len(near) == len(text)
	for _, q := range quotes {
		end := strings.Index(near, q+">\n")
		nl = "\n"
		if i := strings.Index(near, q+">\r\n"); i >= 0 && (end < 0 || i < end) {
			end, nl = i, "\r\n"
		}
		switch {
		case end >= 0:
			rest = text[len(tag)+end+len(q+">"+nl):]
		case whole && strings.HasSuffix(near, q+">"): // cut off behind it
			end = len(near) - len(q+">")
		default:
			continue
		}
		a, ok := readAttributes(near[:end+1])
		if !ok || !plainID(a.id) {
			return e, "", "", false
		}
		e = Envelope{Session: SessionID(a.id), Word: a.state, State: stateOf(a.state), Description: a.description}
		switch {
		case tag == "<task":
			e.Generation = GenV1c
		case a.idName == "id":
			e.Generation, e.Notice = GenV2pre, true // a call's result has no tag
		case e.State == ChildStopped:
			e.Generation, e.Notice = GenNext, a.described
		default:
			e.Generation, e.Notice = GenV2, a.described
		}
		return e, rest, nl, true
	}
	return e, "", "", false
}

type attributes struct {
	id, idName, state string
	description       string
	described         bool
}

// readAttributes reads the inside of an opening tag. Of an attribute that comes twice
// the first counts, or, behind the description, the last: a description is not
// escaped and may hold what looks like attributes, so they are looked for on the side
// where it cannot be. If id and state come before it, as hosts write them, the
// rest of the tag is the description.
func readAttributes(s string) (a attributes, ok bool) {
	for s != "" {
		name, rest, ok := cutName(s)
		if !ok {
			return a, false
		}
		quote := rest[:1]
		if name == "description" {
			for rest = rest[1:]; a.id == "" || a.state == ""; {
				var name, value string
				if rest, name, value, ok = cutLast(rest); !ok {
					return a, false
				}
				a.set(name, value)
			}
			a.described = true
			a.description, ok = strings.CutSuffix(rest, quote)
			return a, ok
		}
		value, behind, ok := strings.Cut(rest[1:], quote)
		if !ok || behind != "" && strings.IndexByte(space, behind[0]) < 0 {
			return a, false
		}
		a.set(name, value)
		s = behind
	}
	return a, a.id != "" && a.state != ""
}

func (a *attributes) set(name, value string) {
	switch {
	case a.id == "" && (name == "id" || name == "sessionID"):
		a.id, a.idName = value, name
	case a.state == "" && name == "state":
		a.state = value
	}
}

// cutName cuts space, a name and "=" from the front; a quote is next.
func cutName(s string) (name, rest string, ok bool) {
	inside := strings.TrimLeft(s, space)
	name, rest, ok = strings.Cut(inside, "=")
	return name, rest, ok && len(inside) < len(s) && isName(name) && rest != "" && (rest[0] == '"' || rest[0] == '\'')
}

// cutLast cuts the last attribute off.
func cutLast(s string) (rest, name, value string, ok bool) {
	if s == "" {
		return "", "", "", false
	}
	quote := s[len(s)-1]
	s = s[:len(s)-1]
	i := strings.LastIndexByte(s, quote)
	if quote != '"' && quote != '\'' || i < 0 {
		return "", "", "", false
	}
	value = s[i+1:]
	s, ok = strings.CutSuffix(s[:i], "=")
	i = strings.LastIndexAny(s, space) // of one byte each
	if !ok || i < 0 || !isName(s[i+1:]) {
		return "", "", "", false
	}
	return strings.TrimRight(s[:i], space), s[i+1:], value, true
}

func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == ':') {
			return false
		}
	}
	return s != ""
}

// cutEnd cuts a closing tag from the end, and the line break before it.
func cutEnd(s, tag, nl string) (body string, ok bool) {
	body, ok = strings.CutSuffix(trimEnd(s), tag)
	return strings.TrimSuffix(body, nl), ok
}

// cutLine cuts a line from the front.
func cutLine(s, line, nl string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(s, line); ok {
		rest, ok = strings.CutPrefix(rest, nl)
	}
	return rest, ok
}

// trimEnd cuts white space from the end; strings.TrimRight takes four times as long.
func trimEnd(s string) string {
	n := len(s)
	for n > 0 && (s[n-1] == '\n' || s[n-1] == ' ' || s[n-1] == '\r' || s[n-1] == '\t') {
		n--
	}
	return s[:n]
}

// cutBreak cuts a line break of either kind from the end.
func cutBreak(s string) string {
	return strings.TrimSuffix(strings.TrimSuffix(s, "\n"), "\r")
}

func cutAround(s, open, shut string) (string, bool) {
	s, ok := strings.CutPrefix(s, open)
	if !ok {
		return s, false
	}
	return strings.CutSuffix(s, shut)
}

func startsWithDigit(s string) bool { return s != "" && '0' <= s[0] && s[0] <= '9' }

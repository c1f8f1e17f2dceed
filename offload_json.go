package team

import (
	"bytes"
	"encoding/json"
)

// A jsonScanner reads JSON that comes in pieces, in constant memory, and tells
// what begins and ends. It takes several values one behind the other. It is
// stricter than it needs to be nowhere, and looser in what it does not use: it
// does not check escapes.
type jsonScanner struct {
	// on is told of each key, and where each value begins and ends. Nil is nobody.
	on jsonListener

	values int64 // that have begun
	offset int64 // bytes read

	stack   []byte // '{' or '[' of each open container
	expect  jsonExpect
	inside  byte // '"' in a string, 'k' in a key, 's' in a number or word; else zero
	escaped bool
	text    []byte // of a key, or of a number or word, as it stands
	long    bool   // a key that is longer than maxJSONKey
}

// A jsonListener is told what a jsonScanner finds. Offsets count from the start.
type jsonListener interface {
	key(quoted []byte, long bool)
	begin(kind byte, at int64, depth int) // kind is { [ " or 0 for a number or word
	end(at int64, depth int)              // at is just behind the value
}

type jsonExpect byte

const (
	expectValue jsonExpect = iota
	expectValueOrEnd
	expectKey
	expectKeyOrEnd
	expectColon
	expectCommaOrEnd
)

const (
	maxJSONDepth = 10_000
	maxJSONKey   = 1024
)

func (j *jsonScanner) bad(why string, i int) error {
	return &InvalidError{What: "JSON", Why: why, Offset: int(j.offset) + i}
}

// write reads on. After an error it must not be called again.
func (j *jsonScanner) write(p []byte) error {
	for i := 0; i < len(p); {
		switch j.inside {
		case '"', 'k':
			n, closed := j.inString(p[i:])
			if j.inside == 'k' {
				j.keep(p[i:i+n], maxJSONKey)
			}
			i += n
			if closed {
				j.closeString(i)
			}
			continue
		case 's':
			n := 0
			for i+n < len(p) && !endsScalar(p[i+n]) {
				n++
			}
			j.keep(p[i:i+n], 64)
			i += n
			if i < len(p) {
				if err := j.closeScalar(i); err != nil {
					return err
				}
			}
			continue
		}
		c := p[i]
		if c == ' ' || c == '\n' || c == '\t' || c == '\r' {
			i++
			continue
		}
		if err := j.structural(c, i); err != nil {
			return err
		}
		if j.inside != 's' {
			i++
		}
	}
	j.offset += int64(len(p))
	return nil
}

func (j *jsonScanner) keep(p []byte, most int) {
	if room := most - len(j.text); len(p) > room {
		p, j.long = p[:room], true
	}
	j.text = append(j.text, p...)
}

// inString returns how much of p is still in the string, the closing quote
// included.
func (j *jsonScanner) inString(p []byte) (n int, closed bool) {
	for n < len(p) {
		if j.escaped {
			j.escaped = false
			n++
			continue
		}
		// Most strings are short; a long one is worth a search.
		for short := min(len(p), n+32); n < short && p[n] != '"' && p[n] != '\\'; n++ {
		}
		if n == len(p) {
			return n, false
		}
		switch p[n] {
		case '"':
			return n + 1, true
		case '\\':
			j.escaped = true
			n++
			continue
		}
		k := bytes.IndexByte(p[n:], '"')
		if k < 0 {
			k = len(p) - n
		}
		if b := bytes.IndexByte(p[n:n+k], '\\'); b >= 0 {
			k = b
		}
		n += k
	}
	return n, false
}

func endsScalar(c byte) bool {
	switch c {
	case ' ', '\n', '\t', '\r', ',', ']', '}', ':', '"', '{', '[':
		return true
	}
	return false
}

func (j *jsonScanner) closeString(i int) {
	if j.inside == 'k' {
		if j.on != nil {
			j.on.key(j.text, j.long)
		}
		j.inside, j.expect = 0, expectColon
		return
	}
	j.inside = 0
	j.ended(i)
}

func (j *jsonScanner) closeScalar(i int) error {
	if j.long || !isDigits(j.text) && !json.Valid(j.text) {
		return j.bad("has a word that is none of its own", max(0, i-len(j.text)))
	}
	j.inside = 0
	j.ended(i)
	return nil
}

// isDigits reports whether a number is one of the many that need no closer look.
func isDigits(s []byte) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(s) == 1 || s[0] != '0'
}

// ended is called behind every value.
func (j *jsonScanner) ended(i int) {
	if j.on != nil {
		j.on.end(j.offset+int64(i), len(j.stack))
	}
	j.expect = expectCommaOrEnd
	if len(j.stack) == 0 {
		j.expect = expectValue // of another one
	}
}

func (j *jsonScanner) structural(c byte, i int) error {
	switch j.expect {
	case expectKey, expectKeyOrEnd:
		if c == '"' {
			j.inside, j.long, j.text = 'k', false, append(j.text[:0], '"')
			return nil
		}
		if c == '}' && j.expect == expectKeyOrEnd {
			return j.pop(c, i)
		}
		return j.bad("has no key where one must be", i)
	case expectColon:
		if c != ':' {
			return j.bad("has no colon behind a key", i)
		}
		j.expect = expectValue
		return nil
	case expectCommaOrEnd:
		if c != ',' {
			return j.pop(c, i)
		}
		j.expect = expectValue
		if j.stack[len(j.stack)-1] == '{' {
			j.expect = expectKey
		}
		return nil
	}
	if c == ']' && j.expect == expectValueOrEnd {
		return j.pop(c, i)
	}
	kind := c
	switch c {
	case '{', '[', '"':
	case ']', '}', ',', ':':
		return j.bad("has no value where one must be", i)
	default:
		kind = 0
	}
	j.values++
	if j.on != nil {
		j.on.begin(kind, j.offset+int64(i), len(j.stack))
	}
	switch c {
	case '{', '[':
		if len(j.stack) >= maxJSONDepth {
			return &LimitError{What: "JSON depth", Got: maxJSONDepth + 1, Max: maxJSONDepth, Advice: "read it by lines or bytes"}
		}
		j.stack = append(j.stack, c)
		j.expect = expectKeyOrEnd
		if c == '[' {
			j.expect = expectValueOrEnd
		}
	case '"':
		j.inside = '"'
	default:
		j.inside, j.long, j.text = 's', false, j.text[:0]
	}
	return nil
}

func (j *jsonScanner) pop(c byte, i int) error {
	if n := len(j.stack); n > 0 && (c == '}' && j.stack[n-1] == '{' || c == ']' && j.stack[n-1] == '[') {
		j.stack = j.stack[:n-1]
		j.ended(i + 1)
		return nil
	}
	return j.bad("has neither a comma nor an end where one must be", i)
}

// finish says whether the JSON ended where the input did.
func (j *jsonScanner) finish() error {
	if j.inside == 's' {
		if err := j.closeScalar(0); err != nil {
			return err
		}
	}
	if j.inside != 0 || len(j.stack) > 0 || j.values == 0 {
		return j.bad("ends in the middle", 0)
	}
	return nil
}

// jsonKind is the kind of a value in a word.
func jsonKind(kind byte) string {
	switch kind {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	}
	return "scalar"
}

package team

import (
	"encoding/json"
	"math/bits"
)

// A jsonScanner reads JSON that comes in pieces, in constant memory, and tells
// what begins and ends. It takes several values one behind the other. It is
// stricter than it needs to be only with numbers over 8 KiB, and looser in what it does
// not use: it does not check escapes.
type jsonScanner struct {
	// on is told of each key, and where each value begins and ends, in at most upTo open
	// containers: a call for what nobody counts costs more than to read it. Nil is nobody.
	on   jsonListener
	upTo int

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
	maxJSONDepth  = 10_000
	maxJSONKey    = 1024
	maxJSONScalar = 8 << 10 // a number of more digits is none that anybody can read
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
			j.keep(p[i:i+n], maxJSONScalar)
			i += n
			if i < len(p) {
				if err := j.closeScalar(i); err != nil {
					return err
				}
			}
			continue
		}
		if i = j.passWhole(p, i); i == len(p) {
			break
		}
		if err := j.structural(p[i], i); err != nil {
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

// passWhole reads on over tokens that are whole in p, as nearly all are, and returns where
// it stopped: at the end of p, or at what needs a closer look.
func (j *jsonScanner) passWhole(p []byte, i int) int {
	for i < len(p) {
		c := p[i]
		if c <= ' ' {
			if !isJSONSpace(c) {
				return i
			}
			i++
			continue
		}
		told := j.on != nil && len(j.stack) <= j.upTo
		switch j.expect {
		case expectKey, expectKeyOrEnd:
			if c == '}' && j.expect == expectKeyOrEnd {
				if j.pop(c, i) != nil {
					return i
				}
				i++
				continue
			}
			if c != '"' {
				return i
			}
			end := stringEnd(p, i+1)
			if end > len(p) || told && end-i > maxJSONKey {
				return i
			}
			if told {
				j.on.key(p[i:end], false)
			}
			i, j.expect = end, expectColon
		case expectColon:
			if c != ':' {
				return i
			}
			i, j.expect = i+1, expectValue
		case expectCommaOrEnd:
			if c != ',' {
				if j.pop(c, i) != nil {
					return i
				}
			} else if j.expect = expectValue; j.stack[len(j.stack)-1] == '{' {
				j.expect = expectKey
			}
			i++
		default:
			end := i + 1
			switch c {
			case '"':
				end = stringEnd(p, end)
			case '{', '[', ']', '}', ',', ':':
				if j.structural(c, i) != nil {
					return i
				}
				i = end
				continue
			default:
				if end = scalarEnd(p, i); end == i {
					return i
				}
				c = 0
			}
			if end > len(p) {
				return i
			}
			j.values++
			if told {
				j.on.begin(c, j.offset+int64(i), len(j.stack))
			}
			i = end
			j.ended(i)
		}
	}
	return i
}

func isJSONSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// stringEnd returns where a string ends that p[i:] is in, behind its quote. It is more
// than len(p) if p ends before: by two, if it ends behind a backslash.
func stringEnd(p []byte, i int) int {
	s := stringOf(p)
	for i < len(s) {
		if i+8 <= len(s) {
			found := zeroBytes(differ(s[i:], '"')) | zeroBytes(differ(s[i:], '\\'))
			if i += bits.TrailingZeros64(found) / 8; found == 0 {
				continue
			}
		}
		switch s[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
		i++
	}
	return i + 1
}

// scalarEnd returns where the number or word at p[i:] ends if it is a plain one and whole,
// else i.
func scalarEnd(p []byte, i int) int {
	end := i
	for end < len(p) && !endsScalar(p[end]) {
		end++
	}
	if end == len(p) || end-i > maxJSONScalar || !isScalar(p[i:end]) {
		return i
	}
	return end
}

// inString returns how much of p is still in the string, the closing quote
// included.
func (j *jsonScanner) inString(p []byte) (n int, closed bool) {
	if j.escaped && len(p) > 0 {
		n = 1
	}
	end := stringEnd(p, n)
	j.escaped = end == len(p)+2 || j.escaped && len(p) == 0
	return min(end, len(p)), end <= len(p)
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
		if j.on != nil && len(j.stack) <= j.upTo {
			j.on.key(j.text, j.long)
		}
		j.inside, j.expect = 0, expectColon
		return
	}
	j.inside = 0
	j.ended(i)
}

func (j *jsonScanner) closeScalar(i int) error {
	if j.long || !isScalar(j.text) {
		return j.bad("has a word that is none of its own", i-len(j.text)) // it may have begun in an earlier piece
	}
	j.inside = 0
	j.ended(i)
	return nil
}

// isScalar reports whether s, which has no space, is a number or a word of JSON.
func isScalar(s []byte) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return json.Valid(s)
		}
	}
	return len(s) == 1 || len(s) > 0 && s[0] != '0'
}

// ended is called behind every value.
func (j *jsonScanner) ended(i int) {
	if j.on != nil && len(j.stack) <= j.upTo {
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
	case '"':
	case '{', '[':
		if len(j.stack) >= maxJSONDepth {
			return &LimitError{What: "JSON depth", Got: maxJSONDepth + 1, Max: maxJSONDepth, Advice: "read it by lines or bytes"}
		}
	case ']', '}', ',', ':':
		return j.bad("has no value where one must be", i)
	default:
		kind = 0
	}
	j.values++
	if j.on != nil && len(j.stack) <= j.upTo {
		j.on.begin(kind, j.offset+int64(i), len(j.stack))
	}
	switch c {
	case '{', '[':
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

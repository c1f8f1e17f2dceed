package team

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// A logShape counts how grave the lines of a log are, and keeps the first bad ones.
type logShape struct {
	count  [len(levels)]int64
	errors []string
}

const shownErrors = 3

func (l *logShape) line(n int64, line []byte, _ int64) {
	level := levelOf(line)
	if level < 0 {
		return
	}
	l.count[level]++
	if level <= levelError && len(l.errors) < shownErrors {
		l.errors = append(l.errors, fmt.Sprintf("%d: %s", n, clip(string(bytes.TrimSpace(line)), 90)))
	}
}

func (l *logShape) lines() []string {
	var counts []string
	for level, n := range l.count {
		if n > 0 {
			counts = append(counts, fmt.Sprintf("%s %d", levels[level], n))
		}
	}
	if len(counts) == 0 {
		return nil
	}
	return append([]string{strings.Join(counts, ", ")}, l.errors...)
}

// A codeShape keeps the signatures of a program with their line numbers.
type codeShape struct {
	found int64
	first []string
}

const shownSignatures = 10

func (c *codeShape) line(n int64, line []byte, _ int64) {
	s := signatureOf(line)
	if s == nil {
		return
	}
	c.found++
	if len(c.first) < shownSignatures {
		c.first = append(c.first, fmt.Sprintf("%d: %s", n, clip(string(s), 80)))
	}
}

func (c *codeShape) lines() []string {
	if c.found == 0 {
		return nil
	}
	return append([]string{fmt.Sprintf("%d signatures, the first:", c.found)}, c.first...)
}

// isModifier reports whether a word may stand before the one that makes a line a
// signature.
func isModifier(word string) bool {
	switch word {
	case "export", "default", "pub", "public", "private", "protected", "static", "final", "abstract", "async", "unsafe", "extern",
		"inline", "override", "virtual", "sealed", "partial", "internal", "open", "data", "declare", "readonly":
		return true
	}
	return false
}

// introduces reports whether a word makes a line a signature.
func introduces(word string) bool {
	switch word {
	case "func", "type", "def", "class", "interface", "struct", "enum", "trait", "impl", "fn", "function", "fun", "module",
		"namespace", "union", "record", "object", "mod", "protocol", "extension", "message", "service", "package":
		return true
	}
	return false
}

// signatureOf returns the signature that a line of a program begins, or nil. What
// a tool put before the line, its number, is left out.
func signatureOf(line []byte) []byte {
	line = withoutNumber(line)
	indent := 0
	for indent < len(line) && (line[indent] == ' ' || line[indent] == '\t') {
		indent++
	}
	if indent > 8 || indent == len(line) || !isLetter(line[indent]) {
		return nil
	}
	s := line[indent:]
	modified := false
	for rest := s; ; {
		n := 0
		for n < len(rest) && isLetter(rest[n]) {
			n++
		}
		word := stringOf(rest[:n])
		after := rest[n:]
		if n == 0 || len(after) == 0 {
			return nil
		}
		switch {
		case introduces(word) && (after[0] == ' ' || after[0] == '\t' || word == "func" && after[0] == '('):
			if word == "type" && indent > 0 && !modified {
				return nil
			}
			return signatureText(s)
		case isModifier(word) && (after[0] == ' ' || after[0] == '('):
			modified = true
			if after[0] == '(' { // pub(crate)
				if i := bytes.IndexByte(after, ')'); i >= 0 {
					after = after[i+1:]
				}
			}
			rest = bytes.TrimLeft(after, " \t")
			continue
		case modified && bytes.IndexByte(rest, '(') > 0 && !bytes.Contains(rest[:bytes.IndexByte(rest, '(')], []byte("=")):
			return signatureText(s) // public int add(…)
		}
		return nil
	}
}

// signatureText leaves out the opening of a body.
func signatureText(s []byte) []byte { return bytes.TrimRight(bytes.TrimSpace(s), " {:\t") }

// withoutNumber removes "00012| ", "12: " or "12<tab>" from a line.
func withoutNumber(line []byte) []byte {
	s := line
	for len(s) > 0 && s[0] == ' ' {
		s = s[1:]
	}
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	if n == 0 || n == len(s) || s[n] != '|' && s[n] != ':' && s[n] != '\t' {
		return line
	}
	s = s[n+1:]
	return bytes.TrimPrefix(s, []byte(" "))
}

// A csvShape knows the head and the extent of a table.
type csvShape struct {
	delimiter byte
	head      string
	columns   int
	rows      int64
	odd       int64 // rows with another number of columns
	quoted    bool  // the row goes on in the next line
	samples   []string
}

const shownRows = 2

func (c *csvShape) line(_ int64, line []byte, full int64) {
	if len(line) == 0 {
		return
	}
	whole := full <= int64(len(line))+1
	if c.quoted {
		c.quoted = bytes.Count(line, []byte{'"'})%2 == 0
		return
	}
	if c.delimiter == 0 {
		c.delimiter = mostCommon(line, ",\t;|")
		c.head, c.columns = string(line), columns(line, c.delimiter)
		return
	}
	c.rows++
	c.quoted = whole && bytes.Count(line, []byte{'"'})%2 == 1
	if !c.quoted && whole && columns(line, c.delimiter) != c.columns {
		c.odd++
	}
	if len(c.samples) < shownRows {
		c.samples = append(c.samples, clip(string(line), 120))
	}
}

func mostCommon(line []byte, of string) byte {
	best := of[0]
	for i := range len(of) {
		if bytes.Count(line, []byte{of[i]}) > bytes.Count(line, []byte{best}) {
			best = of[i]
		}
	}
	return best
}

func (c *csvShape) lines() []string {
	if c.columns == 0 {
		return nil
	}
	size := fmt.Sprintf("%d rows x %d columns", c.rows, c.columns)
	if c.odd > 0 {
		size += fmt.Sprintf(", %d rows of another width", c.odd)
	}
	// The head and the first rows stand at the beginning of the preview; here the
	// head comes in case it is too long for that.
	return append([]string{size, "columns: " + clip(c.head, 160)}, c.samples...)
}

// A jsonShape knows the first keys of an object, what the values are and how many
// bytes they take; of an array, how many elements there are, and those of the first.
type jsonShape struct {
	scan  jsonScanner
	err   error
	kind  byte  // of the first value
	items int64 // its members or elements
	keys  []jsonMember
	name  string // the key that was read last, at depth 1 or 2
	more  int64  // values behind the first one
}

type jsonMember struct {
	name  string
	kind  byte
	start int64
	size  int64
	items int64
}

const shownKeys = 12

func newJSONShape() *jsonShape {
	j := new(jsonShape)
	j.scan.on = j
	return j
}

func (j *jsonShape) bytes(p []byte) {
	if j.err == nil {
		j.err = j.scan.write(p)
	}
}

func (j *jsonShape) done() {
	if j.err == nil {
		j.err = j.scan.finish()
	}
}

func (j *jsonShape) key(quoted []byte, _ bool) {
	if depth := len(j.scan.stack); j.more == 0 && len(j.keys) < shownKeys && (depth == 1 || depth == 2 && j.items == 1) {
		j.name = clip(strings.Trim(string(quoted), `"`), 40)
	}
}

func (j *jsonShape) begin(kind byte, at int64, depth int) {
	switch depth {
	case 0:
		if j.scan.values == 1 {
			j.kind = kind
		} else {
			j.more++
		}
	case 1:
		if j.more > 0 {
			return
		}
		j.items++
		if j.kind == '{' {
			j.add(kind, at)
		}
	case 2:
		if j.more > 0 {
			return
		}
		if j.kind == '[' && j.items == 1 && j.scan.stack[1] == '{' {
			j.add(kind, at)
		} else if n := len(j.keys); j.kind == '{' && n > 0 && int64(n) == j.items {
			j.keys[n-1].items++
		}
	}
}

func (j *jsonShape) add(kind byte, at int64) {
	if len(j.keys) < shownKeys {
		j.keys = append(j.keys, jsonMember{name: j.name, kind: kind, start: at})
	}
}

func (j *jsonShape) end(at int64, depth int) {
	n := len(j.keys)
	if n == 0 || j.more > 0 {
		return
	}
	last := &j.keys[n-1]
	if last.size == 0 && (j.kind == '{' && depth == 1 || j.kind == '[' && depth == 2 && j.items == 1) {
		last.size = at - last.start
	}
}

func (j *jsonShape) lines() []string {
	var out []string
	keys := make([]string, len(j.keys))
	for i, k := range j.keys {
		size := ""
		if k.kind == '[' {
			size = strconv.FormatInt(k.items, 10) + " items, "
		}
		if k.size == 0 {
			keys[i] = fmt.Sprintf("%s %s", k.name, jsonKind(k.kind))
			continue
		}
		keys[i] = fmt.Sprintf("%s %s (%s%d B)", k.name, jsonKind(k.kind), size, k.size)
	}
	switch j.kind {
	case '{':
		out = append(out, fmt.Sprintf("object of %d keys: ", j.items)+strings.Join(keys, ", "))
	case '[':
		s := fmt.Sprintf("array of %d", j.items)
		if len(keys) > 0 {
			s += ", the first: " + strings.Join(keys, ", ")
		}
		out = append(out, s)
	default:
		out = append(out, jsonKind(j.kind))
	}
	if j.more > 0 {
		out[0] = fmt.Sprintf("%d values, the first: %s", j.more+1, out[0])
	}
	if j.err != nil {
		out = append([]string{"not whole JSON: " + j.err.Error()}, out...)
	}
	return out
}

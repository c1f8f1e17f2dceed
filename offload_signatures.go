package team

import (
	"bytes"
	"fmt"
)

// A codeShape keeps the signatures of a program with their line numbers.
type codeShape struct {
	found int64
	first []string
}

const shownSignatures = 10

func (c *codeShape) line(n int64, line []byte, _ int64) {
	at := signatureAt(line)
	if at < 0 {
		return
	}
	c.found++
	if len(c.first) < shownSignatures {
		// The opening of a body is left out.
		text := bytes.TrimRight(line[at:], " {:\t")
		c.first = append(c.first, fmt.Sprintf("%d: %s", n, clip(string(text), 80)))
	}
}

func (c *codeShape) lines() []string {
	if c.found == 0 {
		return nil
	}
	lines := append([]string(nil), c.first...)
	lines[0] = fmt.Sprintf("%d signatures: %s", c.found, lines[0])
	return lines
}

// A wordKind is what a word at the beginning of a line says about it.
type wordKind byte

const (
	wordOther     wordKind = iota
	wordModifier           // may stand before the one that makes a line a signature
	wordFunction           // introduces a function
	wordType               // introduces a type or a part of a program
	wordNamed              // as wordType, and anything may follow the name
	wordValue              // introduces a value, which may be a function
	wordStatement          // is never of a signature
)

func kindOfWord(word string) wordKind {
	switch word {
	case "export", "default", "pub", "public", "private", "protected", "static", "final", "abstract", "async", "unsafe", "extern",
		"inline", "override", "virtual", "sealed", "partial", "internal", "open", "data", "declare", "readonly", "suspend":
		return wordModifier
	case "func", "def", "fn", "function", "fun":
		return wordFunction
	case "class", "interface", "struct", "enum", "trait", "impl", "module", "namespace", "union", "record", "object", "mod",
		"protocol", "extension", "message", "service":
		return wordType
	case "type", "package", "CREATE":
		return wordNamed
	case "const", "let", "var":
		return wordValue
	case "if", "for", "while", "switch", "return", "else", "elif", "do", "case", "catch", "try", "with", "except", "assert", "await",
		"yield", "throw", "raise", "defer", "go", "select", "new", "delete", "del", "import", "from", "require", "print", "puts", "not",
		"and", "or", "in", "unless", "until", "foreach", "using", "lock", "match", "when", "expect", "echo", "goto":
		return wordStatement
	}
	return wordOther
}

// maxSignatureIndent is how far in the methods of a class stand at most.
const maxSignatureIndent = 8

// signatureAt returns where in a line of a program a signature begins, or -1. What
// a tool put before the line, its number, is passed over. It reads one line alone, so
// that comments and texts in several lines can look like a program, and it knows no
// language: the words above, and what a declaration of a function looks like.
func signatureAt(line []byte) int {
	start := numberWidth(line)
	at := start
	for at < len(line) && (line[at] == ' ' || line[at] == '\t') {
		at++
	}
	indent := at - start
	if indent > maxSignatureIndent || at == len(line) || !isLetter(line[at]) {
		return -1
	}
	if isSignature(line[at:], indent, false) {
		return at
	}
	return -1
}

func isSignature(s []byte, indent int, modified bool) bool {
	n := 0
	for n < len(s) && isLetter(s[n]) {
		n++
	}
	if n == len(s) {
		return false
	}
	after := s[n:]
	switch kindOfWord(stringOf(s[:n])) {
	case wordModifier:
		if string(s[:n]) == "pub" && after[0] == '(' { // pub(crate)
			after = after[bytes.IndexByte(after, ')')+1:]
		}
		if len(after) > 1 && after[0] == ' ' {
			return isSignature(bytes.TrimLeft(after, " "), indent, true)
		}
		return isCallable(s, indent, false) // a function of that name
	case wordFunction:
		return isFunction(after)
	case wordType:
		return isType(after, indent) || (indent == 0 || modified) && isCallable(s, indent, modified)
	case wordNamed:
		return (indent == 0 || modified) && nameLength(after) > 0
	case wordValue:
		return bytes.HasPrefix(after, []byte(" fn ")) || (indent == 0 || modified) && isArrow(after)
	case wordStatement:
		return false
	}
	return isCallable(s, indent, modified)
}

// nameLength returns the length of the name that s begins with, the space before it
// included. A word that no program uses as a name but every sentence does is none.
func nameLength(s []byte) int {
	n := 0
	for n < len(s) && (s[n] == ' ' || s[n] == '\t') {
		n++
	}
	start := n
	for n < len(s) && (isNameByte(s[n]) || s[n] == '.' || s[n] == ':' || s[n] == '\\' || s[n] == '`' || s[n] == '$') {
		n++
	}
	if start == 0 || n == start || isDigit(s[start]) || s[n-1] == '.' {
		return 0
	}
	switch stringOf(bytes.TrimRight(s[start:n], ":")) {
	case "of", "for", "that", "is", "are", "in", "to", "from", "the", "a", "an", "and", "or", "with", "will", "which", "if", "on", "by",
		"as", "can", "must", "should", "was", "were", "has", "have", "this", "it", "not", "":
		return 0
	}
	return n
}

func isNameByte(c byte) bool { return isLetter(c) || isDigit(c) || c >= 0x80 }

// isFunction reports whether what stands behind a word like func is a declaration.
func isFunction(after []byte) bool {
	if bytes.HasPrefix(after, []byte("* ")) { // a generator
		after = after[1:]
	}
	switch {
	case bytes.HasPrefix(after, []byte(" (")): // func (r *receiver) name(
		return nameLength(after[bytes.IndexByte(after, ')')+1:]) > 0
	case bytes.HasPrefix(after, []byte(" <")): // fun <T> name(
		return true
	}
	n := nameLength(after)
	return n > 0 && (n == len(after) || bytes.IndexByte(after, '(') > 0 || bytes.HasSuffix(after, []byte("{")))
}

// isType reports whether what stands behind a word like class is a declaration, and
// not a value of that type or a sentence.
func isType(after []byte, indent int) bool {
	if len(after) > 0 && after[0] == '<' { // impl<T>
		return true
	}
	n := nameLength(after)
	if n == 0 {
		return false
	}
	if name := stringOf(bytes.TrimLeft(after[:n], " \t")); name == "class" || name == "struct" { // enum class
		return isType(after[n:], indent)
	}
	next := bytes.TrimLeft(after[n:], " ")
	if len(next) == 0 {
		return true
	}
	switch next[0] {
	case '{', '(', '<', '[', ':':
		return true
	case ';':
		return indent == 0
	}
	word := 0
	for word < len(next) && isLetter(next[word]) {
		word++
	}
	switch stringOf(next[:word]) {
	case "extends", "implements", "with", "for", "where", "is", "permits", "final", "derives":
		return true
	}
	return false
}

// isArrow reports whether a value is a function: name = async (a) => …
func isArrow(after []byte) bool {
	i := bytes.Index(after, []byte(" = "))
	if i < 0 || nameLength(after) == 0 {
		return false
	}
	value := bytes.TrimPrefix(after[i+3:], []byte("async "))
	if bytes.HasPrefix(value, []byte("function")) || string(value) == "(" {
		return true
	}
	arrow := bytes.Index(value, []byte("=>"))
	return arrow > 0 && (value[0] == '(' || value[0] == '<' || bytes.IndexByte(value[:arrow-1], ' ') < 0 && isLetter(value[0]))
}

// isCallable reports whether a line declares a function without a word that says so:
// "public int add(", "int main(void)", "size(): number {", "build() {".
func isCallable(s []byte, indent int, modified bool) bool {
	last := s[len(s)-1]
	if !modified && last != '{' && last != ')' {
		return false
	}
	open := bytes.IndexByte(s, '(')
	if open <= 0 || !isNameByte(s[open-1]) && s[open-1] != '>' || bytes.IndexByte(s[:open], '=') >= 0 {
		return false
	}
	if modified {
		return true
	}
	words := 1
	for i, c := range s[:open] {
		switch {
		case c == ' ' && s[i-1] == ':': // a label
			return false
		case c == ' ':
			words++
		case !isNameByte(c) && bytes.IndexByte([]byte("*&:<>,[]~"), c) < 0:
			return false
		}
	}
	if words > 1 {
		return indent == 0
	}
	args := s[open+1:]
	return last == '{' && args[0] != '"' && args[0] != '\'' && !bytes.Contains(args, []byte("=>")) && !bytes.Contains(args, []byte("func"))
}

// numberWidth returns the length of "00012| ", "12: " or "12<tab>" at the beginning of
// a line.
func numberWidth(line []byte) int {
	at := 0
	for at < len(line) && line[at] == ' ' {
		at++
	}
	n := at
	for n < len(line) && isDigit(line[n]) {
		n++
	}
	if n == at || n == len(line) || line[n] != '|' && line[n] != ':' && line[n] != '\t' {
		return 0
	}
	if n++; n < len(line) && line[n] == ' ' {
		n++
	}
	return n
}

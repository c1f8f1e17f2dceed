package team

import (
	"bytes"
	"fmt"
	"strings"
)

// A level is how grave a line of a log is.
type level int

// The levels, the gravest first. What tests say of themselves is one.
const (
	levelFatal level = iota
	levelError
	levelFail
	levelWarn
	levelInfo
	levelDebug
	levelCount

	levelNone level = -1
)

var levelNames = [levelCount]string{"FATAL", "ERROR", "FAIL", "WARN", "INFO", "DEBUG"}

// levelWithin is how far into a line its level stands at most, in bytes.
const levelWithin = 120

// wordLevel returns what a word in small letters says, as loggers, compilers and
// test runners write it.
func wordLevel(word string) level {
	switch word {
	case "fatal", "panic", "critical", "crit", "emerg", "alert":
		return levelFatal
	case "error", "err", "severe":
		return levelError
	case "fail", "failed":
		return levelFail
	case "warn", "warning", "wrn":
		return levelWarn
	case "info", "inf", "notice":
		return levelInfo
	case "debug", "dbg", "trace":
		return levelDebug
	}
	return levelNone
}

// beginsLevel has the first two letters of the words of wordLevel: nearly all other
// words are passed over by it.
var beginsLevel = func() (t [1 << 10]bool) {
	for _, two := range []string{"fa", "pa", "cr", "em", "al", "er", "se", "wa", "wr", "in", "no", "de", "db", "tr"} {
		t[twoLetters(two[0], two[1])] = true
	}
	return t
}()

func twoLetters(a, b byte) uint { return uint(a&31)<<5 | uint(b&31) }

const longestLevel = len("critical")

// levelOf returns how grave a line of a log is, or levelNone. The first word that
// says so counts.
func levelOf(line []byte) level {
	line = line[:min(len(line), levelWithin)]
	if l := levelAtStart(line); l != levelNone {
		return l
	}
	for i := 0; i+1 < len(line); i++ {
		if !isLetter(line[i]) {
			continue
		}
		start := i
		candidate := beginsLevel[twoLetters(line[i], line[i+1])]
		for i < len(line) && isLetter(line[i]) {
			i++
		}
		if !candidate || i-start > longestLevel {
			continue
		}
		var word [longestLevel]byte
		for k, c := range line[start:i] {
			word[k] = c | 0x20
		}
		if l := wordLevel(string(word[:i-start])); l != levelNone && saysLevel(line, start, i, l) {
			return l
		}
	}
	return levelNone
}

// saysLevel reports whether the word in line[start:end] is a level and not a word of a
// sentence or of a path: in capitals, marked off ("[error]", "error:"), a value
// ("level=error", "level":"error"), or as compilers and linters write it.
func saysLevel(line []byte, start, end int, l level) bool {
	before, after := byte(' '), byte(0)
	if start > 0 {
		before = line[start-1]
	}
	if end < len(line) {
		after = line[end]
	}
	if before == '/' || before == '.' || before == '-' {
		return false
	}
	if isUpper(line[start:end]) {
		return true
	}
	switch {
	case l == levelFail:
		return false
	case after == ':' || after == ']' || after == ')' || after == '|' || before == '=':
		return true
	case after == '"':
		return !bytes.HasPrefix(bytes.TrimLeft(line[end+1:], " "), []byte(":")) // else it is a key
	case after == '[' || after == ' ':
		return hasErrorCode(line[end+1:]) || start == 4 && string(line[:4]) == "npm " ||
			after == ' ' && end+1 < len(line) && line[end+1] == ' ' && start > 1 && line[start-2] == ' ' // eslint
	}
	return false
}

// hasErrorCode reports whether s begins with a letter or more and a number, as in
// "error TS2304:" and "error[E0308]:".
func hasErrorCode(s []byte) bool {
	n := 0
	for n < len(s) && isLetter(s[n]) {
		n++
	}
	digits := n
	for digits < len(s) && isDigit(s[digits]) {
		digits++
	}
	return n > 0 && digits >= n+2 && digits < len(s) && (s[digits] == ':' || s[digits] == ']')
}

func isUpper(word []byte) bool {
	for _, c := range word {
		if c < 'A' || c > 'Z' {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// levelAtStart knows the lines whose beginning alone says what they are.
func levelAtStart(line []byte) level {
	if len(line) < 6 || !isLetter(line[0]) {
		return levelNone
	}
	switch {
	case isDigit(line[1]): // E0801 10:00:00.000000: klog
		if i := bytes.IndexByte([]byte("FE WI"), line[0]); i >= 0 && startsWithTime(line[1:]) {
			return level(i)
		}
	case bytes.HasPrefix(line, []byte("E   ")), // pytest
		bytes.HasPrefix(line, []byte("Exception in thread ")), // Java
		bytes.HasPrefix(line, []byte("make")) && bytes.Contains(line, []byte(": *** ")):
		return levelError
	}
	// ValueError: …, java.lang.IllegalStateException: …
	name := line
	if i := bytes.IndexByte(line, ':'); i >= 0 {
		name = line[:i]
	}
	if (bytes.HasSuffix(name, []byte("Error")) || bytes.HasSuffix(name, []byte("Exception"))) && bytes.IndexByte(name, ' ') < 0 {
		return levelError
	}
	return levelNone
}

// startsWithTime reports whether a line begins with a date or a time of day.
func startsWithTime(line []byte) bool {
	line = bytes.TrimLeft(line, "[( ")
	digits := 0
	for digits < len(line) && isDigit(line[digits]) {
		digits++
	}
	rest := line[digits:]
	switch {
	case digits == 4 && len(rest) >= 6: // 2026-08-01, and 0801 10:00 of klog
		return (rest[0] == '-' || rest[0] == '/') && rest[3] == rest[0] || rest[0] == ' ' && rest[3] == ':'
	case digits == 2: // 12:30:01
		return len(rest) >= 6 && rest[0] == ':' && rest[3] == ':'
	case digits == 0 && len(line) >= 12 && bytes.Contains([]byte("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec "), line[:4]): // Aug  1 12:30:01
		return isDigit(line[5]) && line[6] == ' ' && line[9] == ':'
	}
	return false
}

// A logShape counts how grave the lines of a log are, and keeps the first bad ones.
// Of a text that is no log it tells only if something in it went wrong.
type logShape struct {
	text  bool // not a log
	count [levelCount]int64
	first []string
}

const shownErrors = 3

func (l *logShape) line(n int64, line []byte, _ int64) {
	level := levelOf(line)
	if level == levelNone {
		return
	}
	l.count[level]++
	if level <= levelFail && len(l.first) < shownErrors {
		l.first = append(l.first, fmt.Sprintf("%d: %s", n, clip(string(bytes.TrimSpace(line)), 90)))
	}
}

func (l *logShape) lines() []string {
	if l.text && len(l.first) == 0 {
		return nil
	}
	var counts []string
	for level, n := range l.count {
		if n > 0 {
			counts = append(counts, fmt.Sprintf("%s %d", levelNames[level], n))
		}
	}
	if len(counts) == 0 {
		return nil
	}
	return append([]string{strings.Join(counts, ", ")}, l.first...)
}

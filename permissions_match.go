package team

import (
	"encoding/binary"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Matching is how a host matches a pattern. The zero value is that of Linux and
// macOS.
//
// In a pattern "*" stands for any run of characters, also none, also with "/" and line
// breaks, and "?" for exactly one. All else stands for itself; there are no
// classes, no braces, and "**" is "*" twice. A pattern matches a whole text. One that ends
// with a space and a star matches without both as well: "git push *" is "git push"
// too. "\" counts as "/" on both sides. A character is a UTF-16 code unit, as in the
// host: one beyond U+FFFF counts as two for "?". What is not UTF-8 counts as
// U+FFFD, byte for byte.
//
// A leading "~" or "$HOME" stands for itself; the host expands it when it reads its
// config, see Rules.ExpandHome.
//
// OpenCode: Wildcard.match (1.18, 2.0.26).
type Matching struct {
	// FoldCase ignores case, as a JavaScript expression with the flag i does: the
	// host does so on Windows and nowhere else.
	FoldCase bool
}

// Match reports whether pattern matches all of text. It takes time linear in text
// for a pattern without "?", and at worst the product of both lengths.
func (m Matching) Match(pattern, text string) bool { return m.match(pattern, m.text(text)) }

// match is Match for a text that went through m.text.
func (m Matching) match(pattern, text string) bool {
	if pattern == "*" || pattern == "**" {
		return true
	}
	if pattern = m.text(pattern); pattern == text {
		return true // most names of capabilities; a wildcard matches itself as well
	}
	if short, ok := strings.CutSuffix(pattern, " *"); ok && matchUnits(short, text) {
		return true
	}
	return matchUnits(pattern, text)
}

// text returns s as it is compared: "\" as "/", case folded if it is, and a character
// beyond U+FFFF as its two surrogates, each in three bytes (CESU-8). Most texts are
// returned as they are.
func (m Matching) text(s string) string {
	if strings.IndexByte(s, '\\') < 0 && !m.FoldCase && plainUnits(s) {
		return s
	}
	b := make([]byte, 0, len(s)+8)
	for _, r := range s {
		switch {
		case r == '\\':
			b = append(b, '/')
		case r > 0xFFFF:
			hi, lo := utf16.EncodeRune(r)
			b = appendSurrogate(appendSurrogate(b, hi), lo)
		case m.FoldCase:
			b = utf8.AppendRune(b, foldUnit(r))
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return string(b)
}

// plainUnits reports whether s is UTF-8 without characters beyond U+FFFF.
func plainUnits(s string) bool {
	b := bytesOf(s)
	for len(b) >= 8 && binary.LittleEndian.Uint64(b)&0x8080808080808080 == 0 { // ASCII, eight at a time
		b = b[8:]
	}
	for i, c := range b {
		if c >= utf8.RuneSelf {
			rest := s[len(s)-len(b)+i:]
			return utf8.ValidString(rest) && strings.IndexFunc(rest, func(r rune) bool { return r > 0xFFFF }) < 0
		}
	}
	return true
}

func appendSurrogate(b []byte, r rune) []byte {
	return append(b, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
}

// foldUnit is Canonicalize of ECMAScript, without the flag u: the upper case, but
// never an ASCII letter for what is none, and none of several units. The Greek letters
// with an iota below have one in Unicode's simple mapping only.
func foldUnit(r rune) rune {
	switch {
	case r >= 0x1F80 && r < 0x1FB0, r == 0x1FB3, r == 0x1FC3, r == 0x1FF3:
		return r
	}
	if u := unicode.ToUpper(r); u <= 0xFFFF && (r < utf8.RuneSelf || u >= utf8.RuneSelf) {
		return u
	}
	return r
}

// matchUnits matches a pattern whose only special characters are "*" and "?". Between
// stars each run of it is taken where it comes first: if any choice matches, the
// earliest does.
func matchUnits(pattern, text string) bool {
	star := strings.IndexByte(pattern, '*')
	if star < 0 {
		n, ok := prefixUnits(pattern, text)
		return ok && n == len(text)
	}
	n, ok := prefixUnits(pattern[:star], text)
	if !ok {
		return false
	}
	text, pattern = text[n:], pattern[star+1:]
	for {
		star = strings.IndexByte(pattern, '*')
		if star < 0 {
			return suffixUnits(pattern, text)
		}
		end := indexUnits(pattern[:star], text)
		if end < 0 {
			return false
		}
		text, pattern = text[end:], pattern[star+1:]
	}
}

// prefixUnits returns how many bytes at the start of text a run without stars takes.
func prefixUnits(run, text string) (int, bool) {
	n := 0
	for i := range len(run) {
		switch {
		case n == len(text):
			return 0, false
		case run[i] == '?':
			n += unitLen(text[n])
		case run[i] == text[n]:
			n++
		default:
			return 0, false
		}
	}
	return n, true
}

// suffixUnits reports whether a run without stars is the end of text.
func suffixUnits(run, text string) bool {
	if strings.IndexByte(run, '?') < 0 {
		return strings.HasSuffix(text, run)
	}
	// Go back by as many units as the run has, and compare from there.
	at := len(text)
	for i := 0; i < len(run); i += unitLen(run[i]) {
		if at--; at < 0 {
			return false
		}
		for at > 0 && text[at]&0xC0 == 0x80 {
			at--
		}
	}
	n, ok := prefixUnits(run, text[at:])
	return ok && at+n == len(text)
}

// indexUnits returns where in text the first match of a run without stars ends, or -1.
func indexUnits(run, text string) int {
	// What is before the first "?" is looked for, and compared from there.
	head, _, any := strings.Cut(run, "?")
	for at := 0; ; at += unitLen(text[at]) {
		i := strings.Index(text[at:], head)
		if i < 0 {
			return -1
		}
		if at += i; !any {
			return at + len(run)
		}
		if n, ok := prefixUnits(run, text[at:]); ok {
			return at + n
		}
		if at >= len(text) {
			return -1
		}
	}
}

// unitLen returns how many bytes a UTF-16 code unit takes that starts with c.
func unitLen(c byte) int {
	switch {
	case c < 0xC0:
		return 1
	case c < 0xE0:
		return 2
	}
	return 3
}

// ExpandHome returns the rules with a leading "~", "~/" or "$HOME" of each pattern
// replaced by home, as the host's config reader does it (1.18). Rules of sessions
// are not expanded by the host.
func (rs Rules) ExpandHome(home string) Rules {
	out := make(Rules, len(rs))
	for i, r := range rs {
		if r.Pattern == "~" || strings.HasPrefix(r.Pattern, "~/") {
			r.Pattern = home + r.Pattern[1:]
		} else if rest, ok := strings.CutPrefix(r.Pattern, "$HOME"); ok {
			r.Pattern = home + rest
		}
		out[i] = r
	}
	return out
}

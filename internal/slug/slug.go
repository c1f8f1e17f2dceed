// Package slug turns names that people and models chose into parts of file
// names, so that two different names never meet in one file, on any file system.
package slug

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// MaxRaw is the longest name that is taken at all, in bytes.
const MaxRaw = 1024

// mark stands between what a person can read and the digest. No plain name
// contains it, so a plain name never equals a marked one.
const mark = "~"

// digestLen is the length of the digest in characters: 80 bits of SHA-256.
const digestLen = 16

var digestCode = base32.HexEncoding.WithPadding(base32.NoPadding)

// An Error says what is wrong with a name, and at which byte (-1: everywhere).
type Error struct {
	Why    string
	Offset int
}

func (e *Error) Error() string { return e.Why }

// Name returns raw as a part of a file name of at most max bytes.
//
// A plain name is returned as it is (exact): small letters, digits, single
// hyphens and underscores, and letters of any script that no file system
// folds or decomposes. Every other name becomes a readable remainder, "~" and
// a digest of the name as it came.
//
// So the result is never hidden, never reserved on Windows, ends in no dot or
// space, has no cut rune, and is the same on case-insensitive and
// normalising file systems. It never ends like a round suffix ("-r7").
func Name(raw string, max int) (name string, exact bool, err error) {
	if err := check(raw); err != nil {
		return "", false, err
	}
	if plain(raw, max) {
		return raw, true, nil
	}
	return marked(raw, max), false, nil
}

// Word is Name for a part that is followed by a hyphen: the result has none.
// A hyphen of a plain name becomes an underscore, which no plain word contains.
func Word(raw string, max int) (word string, exact bool, err error) {
	if err := check(raw); err != nil {
		return "", false, err
	}
	if plain(raw, max) && !strings.Contains(raw, "_") {
		return strings.ReplaceAll(raw, "-", "_"), true, nil
	}
	return strings.ReplaceAll(marked(raw, max), "-", "_"), false, nil
}

// Made reports whether Name can have made name.
func Made(name string) bool {
	readable, digest, marked := strings.Cut(name, mark)
	if !marked {
		return check(name) == nil && plain(name, MaxRaw)
	}
	return readable != "" && len(digest) == digestLen && strings.Trim(digest, "0123456789abcdefghijklmnopqrstuv") == ""
}

// RawName returns the name that Name left exact, and false for a marked one.
func RawName(name string) (string, bool) {
	if strings.Contains(name, mark) {
		return "", false
	}
	return name, true
}

// RawWord returns the name behind a word that Word left exact.
func RawWord(word string) (string, bool) {
	if strings.Contains(word, mark) {
		return "", false
	}
	return strings.ReplaceAll(word, "_", "-"), true
}

func check(raw string) error {
	switch {
	case strings.TrimSpace(raw) == "":
		return &Error{"is empty", -1}
	case len(raw) > MaxRaw:
		return &Error{"is longer than 1024 bytes", MaxRaw}
	case raw == "." || raw == "..":
		return &Error{"is a folder reference, not a name", -1}
	}
	for i, r := range raw {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(raw[i:], "\uFFFD"):
			return &Error{"is not UTF-8", i}
		case unicode.IsControl(r):
			return &Error{"has a control character", i}
		}
	}
	return nil
}

// plain reports whether raw can stand for itself.
func plain(raw string, max int) bool {
	if len(raw) > max || reserved(raw) || roundSuffix(raw) {
		return false
	}
	last := '-' // so that a hyphen in front is refused like a double one
	for _, r := range raw {
		if r == '-' && last == '-' || r != '-' && r != '_' && !stable(r) {
			return false
		}
		last = r
	}
	return last != '-'
}

// stable reports whether every file system keeps r as it is, and keeps it apart
// from every other stable rune.
func stable(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || '0' <= r && r <= '9'
	}
	switch {
	case unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r):
		return false // invisible, and ignored by some file systems
	case unicode.Is(unicode.Lo, r), unicode.Is(unicode.Lm, r):
		if unicode.SimpleFold(r) != r {
			return false
		}
	case unicode.Is(unicode.Ll, r):
		// Exactly one capital, and back: no final sigma, no dotless i. ß is a
		// double s to file systems that fold fully.
		if unicode.SimpleFold(unicode.SimpleFold(r)) != r ||
			unicode.ToLower(unicode.ToUpper(r)) != r || unicode.ToUpper(r) == r || r == 'ß' {
			return false
		}
	default:
		return false
	}
	s := string(r)
	return norm.NFKD.IsNormalString(s) && norm.NFKC.PropertiesString(s).BoundaryBefore()
}

// marked returns what is readable of raw, and its digest.
func marked(raw string, max int) string {
	var b strings.Builder
	sep := false
	put := func(r rune) {
		if sep && b.Len() > 0 {
			b.WriteByte('-')
		}
		sep = false
		b.WriteRune(r)
	}
	for _, r := range norm.NFKC.String(strings.ToLower(raw)) {
		if stable(r) || r == '_' || unicode.Is(unicode.Hangul, r) && unicode.IsLetter(r) {
			put(r)
			continue
		}
		kept := false
		for _, d := range norm.NFKD.String(string(r)) { // é gives e
			if stable(d) {
				put(d)
				kept = true
			}
		}
		if !kept && !unicode.Is(unicode.M, r) {
			sep = true
		}
	}
	// What was dropped in between may leave letters that compose.
	readable := norm.NFC.String(b.String())
	readable = strings.Trim(cut(readable, max-digestLen-len(mark)), "-_")
	if readable == "" {
		readable = "x"
	}
	sum := sha256.Sum256([]byte(raw))
	return readable + mark + strings.ToLower(digestCode.EncodeToString(sum[:10]))
}

// cut returns the longest prefix of s of at most n bytes that splits no rune.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// reserved reports whether Windows takes s for a device.
func reserved(s string) bool {
	switch s {
	case "con", "prn", "aux", "nul", "clock$", "conin$", "conout$":
		return true
	}
	return len(s) == 4 && (strings.HasPrefix(s, "com") || strings.HasPrefix(s, "lpt")) &&
		'0' <= s[3] && s[3] <= '9'
}

// roundSuffix reports whether s ends like the round of an entry: "-r" and digits.
func roundSuffix(s string) bool {
	head := strings.TrimRight(s, "0123456789")
	return len(head) < len(s) && strings.HasSuffix(head, "-r")
}

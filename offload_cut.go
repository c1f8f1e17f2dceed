package team

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/teamchan/team/internal/grapheme"
	"github.com/teamchan/team/internal/tokencost"
)

// maxCluster bounds how far a cut moves to keep a character whole: nobody gets to
// hide a text behind one letter with a million accents. The longest emoji have 41 bytes.
const maxCluster = 64

// cutHead is FitTokens, a little less where a line or a word ends there, and a part
// of a character if that is longer than any that is meant to be read.
func cutHead(text string, budget int) string {
	head := FitTokens(text, budget)
	if head == "" && grapheme.Ceil(text, 1) > maxCluster {
		head = text[:tokencost.Prefix(text, budget)]
	}
	for _, end := range []string{"\n", " "} {
		if i := strings.LastIndex(head, end); len(head) < len(text) && i+1 > len(head)*3/4 {
			return head[:i+1]
		}
	}
	return head
}

// cutTail is FitTokensTail, a little less where a line or a word begins there.
func cutTail(text string, budget int) string {
	tail := FitTokensTail(text, budget)
	for _, end := range []string{"\n", " "} {
		if i := strings.Index(tail, end); len(tail) < len(text) && i >= 0 && i+1 < len(tail)/4 && EstimateTokens(tail[i+1:]) <= budget {
			return tail[i+1:]
		}
	}
	return tail
}

// insideRune reports whether the byte at i belongs to a rune that began before it,
// and is not a lone one.
func insideRune(text string, i int) bool {
	for j := i - 1; j >= 0 && i-j < utf8.UTFMax; j-- {
		if utf8.RuneStart(text[j]) {
			_, size := utf8.DecodeRuneInString(text[j:])
			return j+size > i
		}
	}
	return false
}

// showable replaces what is not UTF-8, and what commands a terminal, by U+FFFD,
// byte for byte or rune for rune.
func showable(raw string) string {
	if plain(raw) {
		return raw
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' {
			return utf8.RuneError
		}
		return r // an invalid byte is U+FFFD already
	}, raw)
}

func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= 0x7F || c < ' ' && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

package team

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// cutHead returns the longest beginning of text that costs at most budget tokens,
// or a little less where a line or a word ends there. It never ends inside a
// character or between the parts of one that is shown as a whole.
func cutHead(text string, budget int) string {
	if budget <= 0 {
		return ""
	}
	within := text[:min(len(text), budget*maxTokenBytes)]
	if len(within) == len(text) && EstimateTokens(text) <= budget {
		return text
	}
	low, high := 0, len(within)
	for low < high {
		mid := (low + high + 1) / 2
		if EstimateTokens(text[:clusterBefore(text, mid)]) <= budget {
			low = mid
		} else {
			high = mid - 1
		}
	}
	cut := clusterBefore(text, low)
	for cut > 0 && EstimateTokens(text[:cut]) > budget {
		cut = clusterBefore(text, cut-1)
	}
	for _, end := range []string{"\n", " "} {
		if i := strings.LastIndex(text[:cut], end); cut < len(text) && i+1 > cut*3/5 && EstimateTokens(text[:i+1]) <= budget {
			return text[:i+1]
		}
	}
	return text[:cut]
}

// cutTail is cutHead for the end of text.
func cutTail(text string, budget int) string {
	if budget <= 0 {
		return ""
	}
	least := max(0, len(text)-budget*maxTokenBytes)
	if least == 0 && EstimateTokens(text) <= budget {
		return text
	}
	low, high := least, len(text)
	for low < high {
		mid := (low + high) / 2
		if EstimateTokens(text[clusterAfter(text, mid):]) <= budget {
			high = mid
		} else {
			low = mid + 1
		}
	}
	cut := clusterAfter(text, high)
	for cut < len(text) && EstimateTokens(text[cut:]) > budget {
		cut = clusterAfter(text, cut+1)
	}
	for _, end := range []string{"\n", " "} {
		if i := strings.Index(text[cut:], end); cut > 0 && i >= 0 && i+1 < (len(text)-cut)*2/5 && EstimateTokens(text[cut+i+1:]) <= budget {
			return text[cut+i+1:]
		}
	}
	return text[cut:]
}

// maxCluster bounds how far a cut moves to keep a character whole: nobody gets to
// hide a text behind one letter with a million accents.
const maxCluster = 128

// clusterBefore returns the last place at or before i where text may be cut.
func clusterBefore(text string, i int) int {
	for j := i; j >= 0 && i-j <= maxCluster; j-- {
		if mayCut(text, j) {
			return j
		}
	}
	for i > 0 && i < len(text) && !utf8.RuneStart(text[i]) {
		i--
	}
	return i
}

// clusterAfter returns the first place at or after i where text may be cut.
func clusterAfter(text string, i int) int {
	for j := i; j <= len(text) && j-i <= maxCluster; j++ {
		if mayCut(text, j) {
			return j
		}
	}
	for i < len(text) && !utf8.RuneStart(text[i]) {
		i++
	}
	return i
}

// mayCut reports whether text can be cut at i without taking a character apart
// that people see as one: an accent from its letter, a family of emoji, a flag, a
// Korean syllable from its parts, a line break of two bytes. The text is UTF-8,
// or nearly: a byte that is none stands alone.
func mayCut(text string, i int) bool {
	if i <= 0 || i >= len(text) {
		return true
	}
	next, size := utf8.DecodeRuneInString(text[i:])
	if next == utf8.RuneError && size <= 1 {
		return !insideRune(text, i)
	}
	last, _ := utf8.DecodeLastRuneInString(text[:i])
	switch {
	case last == '\r' && next == '\n', last == zwj && next >= 0x80, next == zwj, next == zwnj:
		return false
	case next < 0x300:
		return true
	case unicode.In(next, unicode.M), 0x1F3FB <= next && next <= 0x1F3FF, 0xE0020 <= next && next <= 0xE007F:
		return false // accents and selectors, colours of skin, the letters of some flags
	case 0x1160 <= next && next <= 0x11FF && last >= 0x1100:
		return false // the later parts of a syllable
	case regional(next) && regional(last):
		n := 0
		for rest := text[:i]; n < maxCluster; n++ {
			r, size := utf8.DecodeLastRuneInString(rest)
			if !regional(r) {
				break
			}
			rest = rest[:len(rest)-size]
		}
		return n%2 == 0
	}
	return true
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

// regional reports whether r is one of the letters of which two make a flag.
func regional(r rune) bool { return 0x1F1E6 <= r && r <= 0x1F1FF }

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

// Package grapheme finds where a text can be cut without splitting what a reader
// takes for one character: an extended grapheme cluster of Unicode Standard
// Annex #29, with conjuncts as since Unicode 16 and otherwise the properties that
// the unicode package has.
package grapheme

import "unicode/utf8"

// Floor returns the last boundary between clusters that is not after byte n, and
// Ceil the first that is not before it. Both ends of a text are boundaries. A byte
// that is no UTF-8 is a cluster of its own. The time is linear in the length of
// the text at worst, and usually a few characters.
func Floor(text string, n int) int {
	if n >= len(text) {
		return len(text)
	}
	at := safe(text, n)
	for at < n {
		next := at + first(text[at:])
		if next > n {
			break
		}
		at = next
	}
	return at
}

// Ceil is described at Floor.
func Ceil(text string, n int) int {
	if n >= len(text) {
		return len(text)
	}
	at := safe(text, n)
	for at < n {
		at += first(text[at:])
	}
	return at
}

// safe returns a boundary that is not after n and can be known without looking
// further back: between two bytes of ASCII, unless they are CR and LF.
func safe(text string, n int) int {
	for at := max(n, 0); at > 0; at-- {
		if a, b := text[at-1], text[at]; a < utf8.RuneSelf && b < utf8.RuneSelf && (a != '\r' || b != '\n') {
			return at
		}
	}
	return 0
}

// first returns the length of the first cluster of a text that is not empty.
func first(text string) int {
	before, size := decode(text)
	pictured := before == pictographic             // an emoji, and what extends it
	conjoint, linked := before == consonant, false // a consonant of Indic scripts, and whether a virama followed
	flags := before == regional
	for size < len(text) {
		now, n := decode(text[size:])
		switch {
		case before == cr && now == lf: // GB3
		case before <= control || now <= control: // GB4, GB5, and bytes that are no UTF-8
			return size
		case now >= extend && now <= spacing: // GB9, GB9a
		case before == prepend: // GB9b
		case before == hangulL && (now == hangulL || now == hangulV || now == hangulLV || now == hangulLVT): // GB6
		case (before == hangulLV || before == hangulV) && (now == hangulV || now == hangulT): // GB7
		case (before == hangulLVT || before == hangulT) && now == hangulT: // GB8
		case conjoint && linked && now == consonant: // GB9c
		case pictured && before == zwj && now == pictographic: // GB11
		case flags && before == regional && now == regional: // GB12, GB13: two letters a flag
			flags = false
		default:
			return size
		}
		switch now {
		case pictographic:
			pictured = true
		case extend, nonJoiner, linker, zwj:
			pictured = pictured && before != zwj
			linked = linked || now == linker
			conjoint = conjoint && now != nonJoiner
		case consonant:
			pictured, conjoint, linked = false, true, false
		default:
			pictured, conjoint = false, false
		}
		if before == prepend {
			flags = now == regional
		}
		before = now
		size += n
	}
	return size
}

func decode(text string) (property, int) {
	r, size := utf8.DecodeRuneInString(text)
	if r == utf8.RuneError && size == 1 {
		return invalid, 1
	}
	return propertyOf(r), size
}

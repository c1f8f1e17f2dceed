package tokencost

import (
	"math"
	"unicode/utf8"
)

// Count returns the estimate for a text, in tokens.
func Count(text string) int {
	units, _ := scan(text, unlimited)
	return tokens(units)
}

// Prefix returns the length in bytes of the longest prefix that ends between two
// characters and whose Count is within budget.
func Prefix(text string, budget int) int {
	_, n := scan(text, limit(budget))
	return n
}

// Suffix returns where a suffix begins whose Count is within budget: the longest
// but for a few tokens, since what its first word costs is not what it cost in
// the text.
func Suffix(text string, budget int) int {
	limit := limit(budget)
	over, _ := scan(text, unlimited)
	start := 0
	// Skip as much as there is too much. A second round is rarely needed, and
	// skipping ever more ends after a few.
	for extra := int64(0); over > limit; extra = 2*extra + Unit/2 {
		skip := over - limit + extra
		_, n := scan(text[start:], skip)
		start += n
		if start < len(text) {
			_, size := utf8.DecodeRuneInString(text[start:])
			start += size
		}
		over, _ = scan(text[start:], unlimited)
	}
	return start
}

// limit returns a budget in units.
func limit(budget int) int64 {
	if int64(budget) >= unlimited/Unit {
		return unlimited
	}
	return int64(max(budget, 0)) * Unit
}

const unlimited = math.MaxInt64

// tokens rounds up, so that what is not nothing costs something.
func tokens(units int64) int { return int((units + Unit - 1) / Unit) }

// scan adds weights until they would pass limit, and returns the sum and where it
// ends. No weight is negative, so nothing after that place is within limit.
func scan(text string, limit int64) (units int64, end int) {
	state, right := uint16(0), uint8(0)
	before := rune(0) // the last character beyond ASCII
	for i := 0; i < len(text); {
		b := text[i]
		if b < utf8.RuneSelf {
			s := ascii[b]
			e := steps[(state+uint16(s.class))%tableSize]
			sum := units + int64(e.weight) + int64(pairs[uint16(right)*stride+uint16(s.left)])
			if sum > limit {
				return sum, i
			}
			units, state, right = sum, e.next, s.right
			i++
			continue
		}
		s, r, size := decode(text[i:], right, before)
		e := steps[(state+uint16(s.class))%tableSize]
		sum := units + int64(e.weight) + int64(pairs[uint16(right)*stride+uint16(s.left)])
		if sum > limit {
			return sum, i
		}
		units, state, right, before = sum, e.next, s.right, r
		i += size
	}
	return units, len(text)
}

// decode returns the symbol of a character beyond ASCII, the character, and its
// length. Before it stands a character with that code on its right side.
func decode(text string, right uint8, before rune) (symbol, rune, int) {
	r, size := utf8.DecodeRuneInString(text)
	if r == utf8.RuneError && size == 1 {
		return symbol{class: cInvalid}, r, 1
	}
	s := runeSymbol(r)
	if isCJK(right) && isCJK(s.right) && merge(before, r) {
		s.class, s.left = cJoin, 0
	}
	return s, r, size
}

// A pairRow is weights of pairs: a row, the first column, and the columns from there.
type pairRow struct {
	row, column int
	weights     []uint16
}

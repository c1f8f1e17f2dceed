// Package tokencost estimates how many tokens of the o200k vocabulary a text
// costs, without the vocabulary.
//
// A byte-level BPE tokenizer first splits a text by a pattern (words with the one
// character before them, up to three digits, runs of punctuation, of spaces, of
// line ends) and then each part by merges. The machine here follows the first step
// nearly exactly, with one table look-up a byte. What a part costs it learns:
// a weight for each (state, class) and for each pair of neighbours that a merge
// could join. Adding weights is all there is: the model is linear, and fitted by
// least squares to the real tokenizer (bench/tokens).
package tokencost

import "strings"

// Classes of characters.
const (
	cLower = iota
	cUpper
	cDigit
	cSpace
	cTab
	cLF
	cCR
	cDot // the classes from here to cMisc are ASCII punctuation
	cComma
	cUnder
	cSlash
	cQuote
	cDash
	cOpen
	cClose
	cApos
	cRule
	cColon
	cAngle
	cMisc
	cJoin       // a CJK character that merges with the one before it
	cLatinLower // letters of Latin beyond ASCII
	cLatinUpper
	cAlpha  // Cyrillic, Greek
	cLetter // other scripts, and marks
	cHan
	cKana
	cHangul
	cWide   // punctuation of CJK
	cSymbol // other punctuation and symbols
	cEmoji
	cInvalid // bytes that are no UTF-8, and control characters
	classes
)

// States of the machine: what the part is that the text is in.
const (
	sStart   = iota
	sSpace                               // one space, which the next word or punctuation takes along
	sSpaces                              // more of them
	sTab                                 // one tab, which only a word takes along
	sTabs                                // more of them
	sLine                                // line ends
	sDigit                               // and two more: the first, second and third of a group
	sPunct   = sDigit + 3                // one character of punctuation, by class: the next word takes it along
	sSpPunct = sPunct + cMisc - cDot + 1 // one with a space before it: it stands alone
	sPuncts  = sSpPunct + 1              // and three more: two, three, four to seven, more
	sRepeat  = sPuncts + 4               // and three more: the same, of characters of one class
	sWord    = sRepeat + 4               // words: three contexts, each with lowerStates and upperStates by length
	sAlpha   = sWord + 3*wordStates      // and five more: letters of other alphabets, by length
	sHan     = sAlpha + 6
	sKana    = sHan + 1
	sHangul  = sKana + 1   // and two more: syllables of a word, by length
	sJoin    = sHangul + 3 // and two more: two, three and more characters merged
	sSymbol  = sJoin + 3
	sEmoji   = sSymbol + 1
	sOther   = sEmoji + 1
	states   = sOther + 1
)

const (
	lowerStates = 10
	upperStates = 5
	wordStates  = lowerStates + upperStates
)

// The contexts of a word. One that follows digits is likely part of a number in
// hex, a hash or base64, where no merge is to be expected.
const (
	afterSpace = iota
	inside
	mixed
)

func lower(context, length int) int { return sWord + context*wordStates + min(length, lowerStates) - 1 }
func upper(context, length int) int {
	return sWord + context*wordStates + lowerStates + min(length, upperStates) - 1
}

// next returns the state after a character of class c in state s.
func next(s, c int) int {
	word := s >= sWord && s < sAlpha
	context := inside
	length, isUpper := 0, false
	switch {
	case word:
		context = (s - sWord) / wordStates
		length = (s-sWord)%wordStates + 1
		if length > lowerStates {
			length, isUpper = length-lowerStates, true
		}
	case s == sStart || s == sSpace || s == sSpaces || s == sTab || s == sTabs:
		context = afterSpace
	case s >= sDigit && s < sDigit+3:
		context = mixed
	}
	step := func(first, n int) int { // the next of n states that count
		if s < first || s >= first+n {
			return first
		}
		return min(s+1, first+n-1)
	}
	switch {
	case c == cLower || c == cLatinLower:
		return lower(context, length+1)
	case c == cUpper || c == cLatinUpper:
		if word && isUpper {
			return upper(context, length+1)
		}
		if word && context == afterSpace {
			context = inside
		}
		return upper(context, 1)
	case c == cDigit:
		if s >= sDigit && s < sDigit+2 {
			return s + 1
		}
		return sDigit
	case c == cSpace:
		if s == sSpace || s == sSpaces || s == sTab || s == sTabs {
			return sSpaces
		}
		return sSpace
	case c == cTab:
		if s == sSpace || s == sSpaces || s == sTab || s == sTabs {
			return sTabs
		}
		return sTab
	case c == cLF || c == cCR:
		return sLine
	case c >= cDot && c <= cMisc:
		switch {
		case s == sSpace || s == sSpaces:
			return sSpPunct
		case s >= sPunct && s < sSpPunct && s-sPunct == c-cDot:
			return sRepeat
		case s >= sPunct && s <= sSpPunct:
			return sPuncts
		case s >= sRepeat && s < sRepeat+4:
			return step(sRepeat, 4)
		case s >= sPuncts && s < sPuncts+4:
			return step(sPuncts, 4)
		case s == sSymbol || s == sEmoji:
			return sPuncts
		}
		return sPunct + c - cDot
	case c == cAlpha || c == cLetter:
		return step(sAlpha, 6)
	case c == cHan:
		return sHan
	case c == cKana:
		return sKana
	case c == cHangul:
		return step(sHangul, 3)
	case c == cJoin:
		return step(sJoin, 3)
	case c == cWide || c == cSymbol:
		return sSymbol
	case c == cEmoji:
		return sEmoji
	}
	return sOther
}

// Codes tell which character it is, as far as it matters which two meet. Zero is
// any other.
const (
	kLower = 1 + 26*iota // the letters of ASCII
	kUpper
	kCJK // for each script, levels
)

const (
	kEmoji = kCJK + 4*levels + iota // for one, two and three tokens
	_
	_
	kSelector
	kJoiner
	kSkin
	kFlag
	kCyrillic
	kGreek
	kArabic
	kHebrew
	kThai
	kIndic
	kOther
	kMark
	kTypographic
	kDrawing
	kWide
	kWidth
	kRare  // Han beyond the basic plane
	kPunct // and 31 more: punctuation of ASCII
)

const codes = kPunct + 32

// A pair is a row of the right side of a character and a column of the left side
// of the next.
const stride = 256

// Unit is the number of units in a token.
const Unit = 1024

// The tables, made once from the weights: for ASCII the class and the code, for
// (state, class) the next state and the weight, for (code, code) the weight.
var (
	ascii [128]symbol
	steps [tableSize]step
	pairs [stride * stride]uint16
)

// tableSize is a power of two, so that no look-up needs a check.
const tableSize = 4096

type symbol struct{ class, left, right uint8 }

type step struct {
	next   uint16 // state times classes
	weight uint16
}

func init() {
	for b := range ascii {
		ascii[b] = asciiSymbol(byte(b))
	}
	for s := range states {
		for c := range classes {
			steps[s*classes+c] = step{next: uint16(next(s, c) * classes), weight: stepWeights[s][c]}
		}
	}
	for _, p := range pairWeights {
		for i, w := range p.weights {
			pairs[p.row*stride+p.column+i] = w
		}
	}
}

func asciiSymbol(b byte) symbol {
	switch {
	case b >= 'a' && b <= 'z':
		return symbol{cLower, kLower + b - 'a', kLower + b - 'a'}
	case b >= 'A' && b <= 'Z':
		return symbol{cUpper, kUpper + b - 'A', kUpper + b - 'A'}
	case b >= '0' && b <= '9':
		return symbol{class: cDigit}
	}
	if b <= ' ' || b == 0x7F {
		class := cInvalid // no merge joins the characters that command a terminal
		switch b {
		case ' ':
			class = cSpace
		case '\t':
			class = cTab
		case '\n':
			class = cLF
		case '\r':
			class = cCR
		}
		return symbol{class: uint8(class)}
	}
	class := cMisc
	switch b {
	case '.':
		class = cDot
	case ',':
		class = cComma
	case '_':
		class = cUnder
	case '/':
		class = cSlash
	case '"':
		class = cQuote
	case '-':
		class = cDash
	case '(', '[', '{':
		class = cOpen
	case ')', ']', '}':
		class = cClose
	case '\'', '`':
		class = cApos
	case '=', '*', '#', '~':
		class = cRule
	case ':', ';':
		class = cColon
	case '<', '>':
		class = cAngle
	}
	code := uint8(kPunct + punctuation(b))
	return symbol{uint8(class), code, code}
}

// punctuation returns the place of a character among the 32 of ASCII.
func punctuation(b byte) int { return strings.IndexByte("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", b) }

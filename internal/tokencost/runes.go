package tokencost

import (
	"strings"
	"unicode"
)

// Scripts of CJK, in the order of their codes.
const (
	han = iota
	hiragana
	katakana
	hangul
)

// Levels of a CJK character on one side: how likely a merge with its neighbour
// there is. A character that is no token of its own has one of the first two.
const (
	rare   = iota // three tokens, one a byte
	seldom        // two tokens
	alone         // one token, and one of the lists of joins for the rest
	levels = 6
)

// joint says of a CJK character that is one token its levels, as level-alone of
// the left side times 4 plus that of the right side, plus one.
var joint = makeJoint()

const (
	firstJoint = 0x3041
	lastJoint  = 0xD7A3
)

func makeJoint() *[lastJoint - firstJoint + 1]uint8 {
	var t [lastJoint - firstJoint + 1]uint8
	for i, list := range joins {
		for _, r := range list {
			t[r-firstJoint] = uint8(i + 1)
		}
	}
	return &t
}

func cjk(class, script int, r rune) symbol {
	left, right := seldom, seldom
	if j := int(joint[r-firstJoint]); j > 0 {
		left, right = alone+(j-1)/4, alone+(j-1)%4
	} else if threeTokens(r) {
		left, right = rare, rare
	}
	base := kCJK + script*levels
	return symbol{uint8(class), uint8(base + left), uint8(base + right)}
}

// runeSymbol returns the symbol of a character beyond ASCII.
func runeSymbol(r rune) symbol {
	switch {
	case r < 0xA0:
		return symbol{class: cInvalid}
	case r < 0x250 || r >= 0x1E00 && r < 0x1F00:
		switch {
		case unicode.IsLower(r):
			return symbol{class: cLatinLower}
		case unicode.IsUpper(r):
			return symbol{class: cLatinUpper}
		case unicode.IsLetter(r):
			return symbol{class: cLatinLower}
		}
		return symbol{class: cSymbol, left: kTypographic}
	case r < 0x370:
		return symbol{class: cLetter, left: kMark}
	case r < 0x400 || r >= 0x1F00 && r < 0x2000:
		return symbol{class: cAlpha, left: kGreek}
	case r < 0x530:
		return symbol{class: cAlpha, left: kCyrillic}
	case r >= 0x590 && r < 0x600:
		return symbol{class: cLetter, left: kHebrew}
	case r >= 0x600 && r < 0x780:
		return symbol{class: cLetter, left: kArabic}
	case r >= 0x900 && r < 0xE00:
		return symbol{class: cLetter, left: kIndic}
	case r >= 0xE00 && r < 0xE80:
		return symbol{class: cLetter, left: kThai}
	case r < 0x2000:
		return symbol{class: cLetter, left: kOther}
	case r == 0x200D:
		return symbol{class: cEmoji, left: kJoiner}
	case r < 0x2070:
		return symbol{class: cSymbol, left: kTypographic}
	case r >= 0x2600 && r < 0x27C0:
		return emoji(r)
	case r < 0x2E80:
		return symbol{class: cSymbol, left: kDrawing}
	case r < firstJoint:
		return symbol{class: cWide, left: kWide}
	case r < 0x30A1:
		return cjk(cKana, hiragana, r)
	case r < 0x3100:
		return cjk(cKana, katakana, r)
	case r >= 0x4E00 && r < 0xA000:
		return cjk(cHan, han, r)
	case r >= 0xAC00 && r <= lastJoint:
		return cjk(cHangul, hangul, r)
	case r >= 0x3400 && r < 0x4E00:
		return symbol{class: cHan, left: kRare}
	case r >= 0xFE00 && r <= 0xFE0F:
		return symbol{class: cEmoji, left: kSelector}
	case r >= 0xFE30 && r < 0xFFF0:
		return symbol{class: cWide, left: kWidth}
	case r >= 0x1F1E6 && r <= 0x1F1FF:
		return symbol{class: cEmoji, left: kFlag}
	case r >= 0x1F3FB && r <= 0x1F3FF:
		return symbol{class: cEmoji, left: kSkin}
	case r >= 0x1F000 && r < 0x1FB00:
		return emoji(r)
	case r >= 0x20000 && r < 0x33000:
		return symbol{class: cHan, left: kRare}
	case unicode.IsLetter(r):
		return symbol{class: cLetter, left: kOther}
	}
	return symbol{class: cSymbol, left: kDrawing}
}

// threeTokens reports whether the first three of four bytes, or the first two of
// three, are no token in o200k, as they are for most.
func threeTokens(r rune) bool {
	block := uint(r >> 6)
	return threeTokenBlocks[block>>6&31]>>(block&63)&1 != 0
}

func emoji(r rune) symbol {
	k := kEmoji + 1
	if strings.ContainsRune(oneTokenEmoji, r) {
		k = kEmoji
	} else if threeTokens(r) {
		k = kEmoji + 2
	}
	return symbol{class: cEmoji, left: uint8(k)}
}

// merged holds pairs of CJK characters that stand together in a frequent token.
// An open hash table, since it is asked for every such character.
var merged = makeMerged()

const mergedBits = 14

func makeMerged() *[1 << mergedBits]uint32 {
	var t [1 << mergedBits]uint32
	before := rune(0)
	for _, r := range merges {
		if before == 0 {
			before = r
			continue
		}
		key := pairKey(before, r)
		i := pairSlot(key)
		for t[i] != 0 {
			i = (i + 1) % len(t)
		}
		t[i], before = key, 0
	}
	return &t
}

func pairKey(a, b rune) uint32 { return uint32(a)<<16 | uint32(b) }

func pairSlot(key uint32) int { return int(key * 2654435761 >> (32 - mergedBits)) }

func merge(a, b rune) bool {
	key := pairKey(a, b)
	for i := pairSlot(key); merged[i] != 0; i = (i + 1) % len(merged) {
		if merged[i] == key {
			return true
		}
	}
	return false
}

// isCJK reports whether a code is one of a CJK character.
func isCJK(code uint8) bool { return code >= kCJK && code < kEmoji }

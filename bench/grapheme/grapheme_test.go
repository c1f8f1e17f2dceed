// Package grapheme compares internal/grapheme with github.com/rivo/uniseg, which
// passes the test cases of the Unicode Consortium.
package grapheme

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rivo/uniseg"
	"github.com/stretchr/testify/require"
	"github.com/teamchan/team/internal/grapheme"
)

func theirs(text string) (ends []int) {
	for n := 0; n < len(text); {
		cluster, _, _, _ := uniseg.FirstGraphemeClusterInString(text[n:], -1)
		n += len(cluster)
		ends = append(ends, n)
	}
	return ends
}

func ours(text string) (ends []int) {
	for n := 0; n < len(text); {
		n = grapheme.Ceil(text, n+1)
		ends = append(ends, n)
	}
	return ends
}

// Every character, beside those that a rule asks for. Conjuncts (rule GB9c, which
// came with Unicode 15.1) are left out: uniseg 0.4.7 is older.
func TestEveryCharacterBreaksAsInUniseg(t *testing.T) {
	for r := rune(0); r <= 0xE0FFF; r++ {
		if r >= 0xD800 && r < 0xE000 {
			continue
		}
		for _, around := range []string{"a_", "_a", "_\u0301", "_\u0903", "\u0600_", "👩\u200d_", "_\u200d👩", "🇩_", "\u1100_", "_\u1161", "_\u11a8", "가_"} {
			text := strings.Replace(around, "_", string(r), 1)
			require.Equal(t, theirs(text), ours(text), "%U in %q", r, around)
		}
		if r == 0x3134F {
			r = 0xDFFFF // nothing is there
		}
	}
}

func TestRandomTextsBreakAsInUniseg(t *testing.T) {
	chars := []string{"a", " ", "\r", "\n", "\u0301", "\u200d", "\u200c", "👩", "🏽", "🇩", "🇪", "ि", "ᄀ", "ᅡ", "ᆨ", "가", "각", "\u0600", "\ufe0f", "❤", "\u0e33", "\u0d4e", "界"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		var text string
		for range 1 + random.IntN(9) {
			text += chars[random.IntN(len(chars))]
		}
		require.Equal(t, theirs(text), ours(text), "%q", text)
	}
}

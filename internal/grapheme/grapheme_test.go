package grapheme_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team/internal/grapheme"
)

// Each text is written with a bar at every boundary.
func TestBoundaries(t *testing.T) {
	for rule, text := range map[string]string{
		"GB3, CR LF":              "a|\r\n|\n|\r|b",
		"GB4 and GB5, controls":   "\u0007|\u0301|a|\u200b|\u0301",
		"GB6 to GB8, Hangul":      "\u1112\u1161\u11ab|\u1100\u1173\u11af|가\u11a8|각\u11a8|가|가|각|\u1161",
		"GB9, marks":              "e\u0301\u0328|a\u200c|b",
		"GB9, variation selector": "❤\ufe0f|1\ufe0f\u20e3|x",
		"GB9, skin tones":         "👍🏽|👋🏿|a",
		"GB9, tags":               "🏴\U000E0067\U000E0062\U000E007F|a",
		"GB9a, spacing marks":     "नि|ก|กำ",
		"GB9b, prepended marks":   "\u0600١|a",
		"GB9c, conjuncts":         "क्षि|त्रि|य|क्\u200dष|क|ষ|ক্ষ|ക്ഷ|க்|ஷ",
		"GB9c, no consonant":      "क्|a|क्ा|a|क्\u200c|ष|क\u200c्|ष",
		"GB11, families":          "👨\u200d👩\u200d👧\u200d👦|👩🏽\u200d💻|🏳\ufe0f\u200d🌈|a\u200d|👩|👩\u200d\u0301\u200d|👩",
		"GB12 and GB13, flags":    "🇩🇪|🇯🇵|🇧|a|🇩🇪|🇧\u0301|🇩🇪",
		"bytes that are no UTF-8": "a|\x80|\xff|\u0301|界|\xe7|\x95",
	} {
		clusters := strings.Split(text, "|")
		text = strings.Join(clusters, "")
		boundary := map[int]bool{0: true}
		n := 0
		for _, c := range clusters {
			n += len(c)
			boundary[n] = true
		}
		for n := range len(text) + 1 {
			floor, ceil := n, n
			for !boundary[floor] {
				floor--
			}
			for !boundary[ceil] {
				ceil++
			}
			require.Equal(t, floor, grapheme.Floor(text, n), "%s: last boundary before byte %d of %q", rule, n, text)
			require.Equal(t, ceil, grapheme.Ceil(text, n), "%s: first boundary after byte %d of %q", rule, n, text)
		}
	}
}

func FuzzBoundaries(f *testing.F) {
	f.Add("👨\u200d👩\u200d👧 क्षि \r\n \xff", 3)
	f.Fuzz(func(t *testing.T, text string, n int) {
		floor, ceil := grapheme.Floor(text, n), grapheme.Ceil(text, n)
		if floor > max(n, 0) && floor != len(text) || ceil < min(n, len(text)) || floor < 0 || ceil > len(text) || floor > ceil {
			t.Fatalf("%d and %d around %d of %q", floor, ceil, n, text)
		}
		if grapheme.Floor(text, floor) != floor || grapheme.Ceil(text, ceil) != ceil {
			t.Fatalf("%d or %d is no boundary of %q", floor, ceil, text)
		}
	})
}

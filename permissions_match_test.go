package team_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

// slowMatch is what Matching says, one choice after the other.
func slowMatch(fold bool, pattern, text string) bool {
	units := func(s string) []uint16 {
		u := utf16.Encode([]rune(strings.ReplaceAll(s, `\`, "/")))
		for i, c := range u {
			// As ECMAScript folds: to one unit, and to ASCII only from ASCII.
			several := c >= 0x1F80 && c < 0x1FB0 || c == 0x1FB3 || c == 0x1FC3 || c == 0x1FF3
			if up := unicode.ToUpper(rune(c)); fold && !several && !utf16.IsSurrogate(rune(c)) && up <= 0xFFFF && (c < 128 || up >= 128) {
				u[i] = uint16(up)
			}
		}
		return u
	}
	p, t := units(pattern), units(text)
	// ok[j]: p so far matches t[:j].
	run := func(p []uint16) bool {
		ok := make([]bool, len(t)+1)
		ok[0] = true
		for _, c := range p {
			next := make([]bool, len(t)+1)
			for j := range ok {
				switch {
				case !ok[j]:
				case c == '*':
					for k := j; k <= len(t); k++ {
						next[k] = true
					}
				case j < len(t) && (c == '?' || c == t[j]):
					next[j+1] = true
				}
			}
			ok = next
		}
		return ok[len(t)]
	}
	if n := len(p); n >= 2 && p[n-2] == ' ' && p[n-1] == '*' && run(p[:n-2]) {
		return true
	}
	return run(p)
}

func TestMatching(t *testing.T) {
	for _, c := range []struct {
		says          string
		pattern, text string
		want          bool
	}{
		{"a star takes a slash", "src/*", "src/a/b.go", true},
		{"a star takes a line break", "echo *", "echo a\nb", true},
		{"a star takes nothing", "a*b", "ab", true},
		{"a question mark takes a line break", "a?b", "a\nb", true},
		{"a question mark takes exactly one", "a?", "a", false},
		{"a question mark takes one character of several bytes", "?", "é", true},
		{"a character beyond U+FFFF is two, as in the host", "?", "😀", false},
		{"a character beyond U+FFFF is two, as in the host", "??", "😀", true},
		{"the whole text is matched", "git", "git push", false},
		{"the whole text is matched", "push", "git push", false},
		{"a last space and star may be missing", "git push *", "git push", true},
		{"a last space and star may be missing", "git push *", "git push -f", true},
		{"a last space and star may be missing", "git push *", "git pushy", false},
		{"only at the end", "git * push", "git push", false},
		{"two stars behind a space want the space", "git **", "git", false},
		{"two stars are one", "a/**", "a/b/c", true},
		{"two stars are one", "a/**", "a/", true},
		{"a space and a star alone match nothing at all", " *", "", true},
		{"brackets are literal", "echo [x]", "echo [x]", true},
		{"brackets are literal", "echo [x]", "echo x", false},
		{"braces are literal", "{a,b}", "a", false},
		{"a dot is literal", "a.c", "abc", false},
		{"other special characters are literal", `^a+(b)|$`, `^a+(b)|$`, true},
		{"a backslash in the pattern is a slash", `src\*`, "src/a", true},
		{"a backslash in the text is a slash", "src/*", `src\a`, true},
		{"a backslash escapes nothing", `\*`, "/x", true},
		{"case counts", "ECHO *", "echo a", false},
		{"the empty pattern matches the empty text", "", "", true},
		{"the empty pattern matches the empty text", "", "a", false},
		{"a tilde stands for itself", "~/x", "/home/user/x", false},
		{"$HOME stands for itself", "echo $HOME", "echo $HOME", true},
	} {
		t.Run(c.says, func(t *testing.T) {
			require.Equal(t, c.want, team.Matching{}.Match(c.pattern, c.text), "%q against %q", c.pattern, c.text)
			require.Equal(t, c.want, slowMatch(false, c.pattern, c.text), "the oracle")
		})
	}
	t.Run("case is ignored where the option says so", func(t *testing.T) {
		windows := team.Matching{FoldCase: true}
		require.True(t, windows.Match("ECHO *", "echo a"))
		require.True(t, windows.Match("é*", "Éa"))
		require.False(t, windows.Match("k", "\u212A"), "the Kelvin sign is no ASCII k")
		require.Equal(t, team.Deny, windows.Evaluate("BASH", "RM x", team.Rules{{"bash", "rm *", team.Deny}}).Effect)
		require.Equal(t, team.Ask, team.Evaluate("BASH", "RM x", team.Rules{{"bash", "rm *", team.Deny}}).Effect)
	})
}

func TestMatchingAgainstTheOracle(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 50_000
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "b", "A", "*", "*", "?", " ", "/", `\`, "é", "😀", " *"}
	text := func(max int) string {
		var b strings.Builder
		for range rnd.IntN(max) {
			b.WriteString(alphabet[rnd.IntN(len(alphabet))])
		}
		return b.String()
	}
	for range n {
		p, s, fold := text(7), text(7), rnd.IntN(2) == 0
		if got, want := (team.Matching{FoldCase: fold}).Match(p, s), slowMatch(fold, p, s); got != want {
			t.Fatalf("Match(%q, %q) with FoldCase %v = %v, want %v", p, s, fold, got, want)
		}
	}
}

// A JavaScript expression says so of each of these.
func TestFoldCaseIsThatOfJavaScript(t *testing.T) {
	m := team.Matching{FoldCase: true}
	for _, same := range []string{"aA", "zZ", "äÄ", "éÉ", "яЯ", "σΣ", "ςΣ", "ÿŸ", "ǆǄ", "ǅǄ", "µμ"} {
		r := []rune(same)
		require.True(t, m.Match(string(r[0]), string(r[1])), same)
	}
	for _, other := range []string{"ßẞ", "ſS", "\u212AK", "ıI", "iİ", "ᾀᾈ", "ᾗᾟ", "ᾠᾨ", "ᾳᾼ", "ῃῌ", "ῳῼ", "ŉN", "ﬁF", "𐐨𐐀"} {
		r := []rune(other)
		require.False(t, m.Match(string(r[0]), string(r[1])), other)
	}
}

func TestWhatIsNotUTF8MatchesNoCharacter(t *testing.T) {
	for _, fold := range []bool{false, true} {
		m := team.Matching{FoldCase: fold}
		require.False(t, m.Match("\xed\xa0\xbd\xed\xb8\x80", "😀"), "two halves are no emoji")
		require.True(t, m.Match("??", "😀"))
		require.True(t, m.Match("\uFFFD\uFFFD\uFFFD", "\xed\xa0\xbd"), "byte for byte")
	}
}

func TestMatchingIsNeverExponential(t *testing.T) {
	text := strings.Repeat("a", 20_000)
	start := time.Now()
	require.False(t, team.Matching{}.Match(strings.Repeat("*a", 5_000)+"b", text))
	require.False(t, team.Matching{}.Match(strings.Repeat("*a?", 2_000)+"b", text))
	require.False(t, team.Matching{}.Match("*"+strings.Repeat("?", 3_000)+"b*", text))
	require.Less(t, time.Since(start), hang)
}

func TestExpandHome(t *testing.T) {
	for pattern, want := range map[string]string{
		"~": "/home/u", "~/x/*": "/home/u/x/*", "$HOME": "/home/u", "$HOME/x": "/home/u/x", "$HOMEr": "/home/ur",
		"~x": "~x", "a ~/x": "a ~/x", "/$HOME": "/$HOME",
	} {
		in := team.Rules{{"read", pattern, team.Deny}}
		require.Equal(t, team.Rules{{"read", want, team.Deny}}, in.ExpandHome("/home/u"))
		require.Equal(t, pattern, in[0].Pattern, "the rules that came in stay as they are")
	}
}

func FuzzMatching(f *testing.F) {
	for _, s := range [][2]string{{"git push *", "git push"}, {"*a*b?", "xxaybz"}, {"\\*", "/"}, {"?", "😀"}, {"\xff*", "\xffa"}} {
		f.Add(s[0], s[1], false)
		f.Add(s[0], s[1], true)
	}
	f.Fuzz(func(t *testing.T, pattern, text string, fold bool) {
		if len(pattern)*len(text) > 1<<20 {
			t.Skip()
		}
		if got, want := (team.Matching{FoldCase: fold}).Match(pattern, text), slowMatch(fold, pattern, text); got != want {
			t.Fatalf("Match(%q, %q) = %v, want %v", pattern, text, got, want)
		}
	})
}

func BenchmarkMatching(b *testing.B) {
	text := strings.Repeat("cd /workspace/project && go test ./... ", 2_000)
	for _, p := range []struct{ name, pattern string }{{"star", "*rm -rf*"}, {"question", "*rm ?rf*"}, {"prefix", "cd *"}, {"refused", "git push *"}} {
		b.Run("pattern="+p.name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			var match, floor stopwatch
			sum := 0
			for b.Loop() {
				match.time(func() { sum += len(p.pattern); team.Matching{}.Match(p.pattern, text) })
				floor.time(func() {
					for i := range len(text) {
						if text[i] == 'r' {
							sum++
						}
					}
				})
			}
			b.ReportMetric(match.per(b.N)/floor.per(b.N), "times-byte-loop")
			if sum == 0 {
				b.Fatal("the loop was left out")
			}
		})
	}
}

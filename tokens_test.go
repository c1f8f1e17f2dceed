package team_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team"
)

// The corpus of the fitting program, and what each piece costs in o200k. The
// weights have never seen it. A module from a proxy has no nested modules in it.
const tokenCorpus = "bench/testdata/tokens"

type tokenPiece struct {
	class, text string
	tokens      int
}

func tokenPieces(tb testing.TB) []tokenPiece {
	tb.Helper()
	text, err := os.ReadFile(tokenCorpus + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		tb.Skip("the corpus in bench/testdata is not in this copy")
	}
	require.NoError(tb, err)
	var counts map[string]int
	require.NoError(tb, json.Unmarshal(text, &counts))
	var pieces []tokenPiece
	for name, n := range counts {
		text, err := os.ReadFile(filepath.Join(tokenCorpus, filepath.FromSlash(name)))
		require.NoError(tb, err)
		class, _, _ := strings.Cut(name, "/")
		pieces = append(pieces, tokenPiece{class, string(text), n})
	}
	require.Greater(tb, len(pieces), 30)
	return pieces
}

func TestEstimateTokensIsWithinFivePercent(t *testing.T) {
	type sum struct{ n, signed, absolute float64 }
	all, classes := sum{}, map[string]*sum{}
	for _, p := range tokenPieces(t) {
		e := float64(team.EstimateTokens(p.text))/float64(p.tokens) - 1
		if classes[p.class] == nil {
			classes[p.class] = &sum{}
		}
		for _, s := range []*sum{&all, classes[p.class]} {
			s.n++
			s.signed += e
			s.absolute += math.Abs(e)
		}
	}
	require.LessOrEqual(t, all.absolute/all.n, 0.05)
	for class, s := range classes {
		t.Logf("%-7s %2.0f pieces  mean %+5.1f %%  absolute %4.1f %%", class, s.n, 100*s.signed/s.n, 100*s.absolute/s.n)
		require.LessOrEqual(t, s.absolute/s.n, 0.10, class)
	}
	for _, class := range []string{"zh", "ja", "ko"} {
		require.NotNil(t, classes[class])
		require.GreaterOrEqual(t, classes[class].signed/classes[class].n, -0.05, class)
	}
}

// Short texts, with what o200k makes of them: nothing here depends on the corpus.
func TestEstimateTokensOfShortTexts(t *testing.T) {
	for text, want := range goldenTokens {
		require.InDelta(t, want, team.EstimateTokens(text), 1.5+0.15*float64(want), text)
	}
	require.Zero(t, team.EstimateTokens(""))
}

// No merge of o200k joins control characters, so a binary is never cheap.
func TestEstimateTokensOfControlCharacters(t *testing.T) {
	for unit, want := range map[string]int{"\x00\x01\x02": 3000, "\a\x1b": 3000, "\x00a": 3000, "h\x00e\x00l\x00l\x00o\x00 \x00": 3600} {
		text := strings.Repeat(unit, 3600)[:3000]
		if len(unit) > 3 {
			text = strings.Repeat(unit, 300)
		}
		require.InEpsilon(t, want, team.EstimateTokens(text), 0.2, "%q", unit)
	}
}

// Texts that are made to break a cut: 1- to 4-byte characters, marks, families,
// flags, conjuncts, line ends, and bytes that are no UTF-8.
var hardTexts = []string{
	"plain text, ascii only\r\nwith two\r\nline ends\r\n",
	"e\u0301a\u0308 naïve Ωmega",
	"漢字かな交じり文。한국어 문장",
	"👨\u200d👩\u200d👧\u200d👦 and 👍🏽 and ❤\ufe0f",
	"🇩🇪🇯🇵🇧🇷🇺🇸",
	"क्षत्रिय क्\u200dष ক্ষ",
	"\u1112\u1161\u11ab\u1100\u1173\u11af",
	"\x80\xff\xc3 lone \xe4\xb8 bytes \xf0\x9f\x98",
	strings.Repeat("z\u0300\u0301\u0302\u0303\u0304\u0305", 20),
}

// inside reports whether a cut at n splits what the texts above hold together.
// It looks at pairs of characters only, and so knows less than FitTokens.
func inside(text string, n int) bool {
	if n == 0 || n == len(text) {
		return false
	}
	if !utf8.RuneStart(text[n]) && utf8.ValidString(text) {
		return true
	}
	before, _ := utf8.DecodeLastRuneInString(text[:n])
	after, _ := utf8.DecodeRuneInString(text[n:])
	joins := func(r rune) bool {
		return r >= 0x300 && r < 0x370 || r == 0x200d || r == 0xfe0f || r >= 0x1f3fb && r <= 0x1f3ff || r == 0x94d || r == 0x9cd
	}
	flag := func(r rune) bool { return r >= 0x1f1e6 && r <= 0x1f1ff }
	return joins(after) && before != '\n' || before == 0x200d || before == 0x94d || before == 0x9cd || before == '\r' && after == '\n' ||
		flag(before) && flag(after) && n%8 != 0 || before == 0x1112 || before == 0x1161 || before == 0x1100 || before == 0x1173
}

func TestFitTokensSplitsNoCharacter(t *testing.T) {
	for _, text := range hardTexts {
		whole := team.EstimateTokens(text)
		longest := 0
		for budget := -1; budget <= whole+1; budget++ {
			head, tail := team.FitTokens(text, budget), team.FitTokensTail(text, budget)
			require.True(t, strings.HasPrefix(text, head), "%q", head)
			require.True(t, strings.HasSuffix(text, tail), "%q", tail)
			require.LessOrEqual(t, team.EstimateTokens(head), max(budget, 0), "%q", head)
			require.LessOrEqual(t, team.EstimateTokens(tail), max(budget, 0), "%q", tail)
			require.False(t, inside(text, len(head)), "%q is cut behind %q", text, head)
			require.False(t, inside(text, len(text)-len(tail)), "%q is cut before %q", text, tail)
			require.GreaterOrEqual(t, len(head), longest, "a larger budget never gives less")
			longest = len(head)
		}
		require.Equal(t, text, team.FitTokens(text, whole))
		require.Equal(t, text, team.FitTokensTail(text, whole))
	}
}

func TestFitTokensIsTheLongestBeginning(t *testing.T) {
	text := "Four tests fail, one hangs: see /var/log/build-17.log (line 4032).\n"
	for budget := range team.EstimateTokens(text) {
		head := team.FitTokens(text, budget)
		require.Greater(t, team.EstimateTokens(text[:len(head)+1]), budget, "%q could be longer", head)
	}
}

// A cluster has no end that Unicode sets. It is left out whole, not cut, and its
// marks are not free.
func TestFitTokensLeavesOutAClusterThatIsTooLong(t *testing.T) {
	zalgo := "a" + strings.Repeat("\u0301\u0328", 1<<18)
	require.Equal(t, "so: ", team.FitTokens("so: "+zalgo, 1000))
	require.Equal(t, " ok", team.FitTokensTail(zalgo+" ok", 1000))
	require.Empty(t, team.FitTokens(zalgo, 1000))
	require.Greater(t, team.EstimateTokens(zalgo), 100_000)
}

// A token of o200k has at most 128 bytes, so no run of anything is free.
func TestEstimateTokensOfRunsGrows(t *testing.T) {
	for _, unit := range []string{" ", "\n", "\t", "-", "=", "a", "A", "0", "ab", "{}", "\x00", "\xff", "\u0301", "界", "🙂", "\u200b"} {
		text := strings.Repeat(unit, 1<<14)
		require.GreaterOrEqual(t, team.EstimateTokens(text), len(text)/128, "%q", unit)
	}
}

func TestEstimateTokensTakesLinearTime(t *testing.T) {
	for _, unit := range []string{"a", " ", "a:", "\u0301", "\u200d", "👩\u200d", "🇩", "क्", "\x80", "界", "\r\n", "\u1100"} {
		text := strings.Repeat(unit, (4<<20)/len(unit))
		start := time.Now()
		n := team.EstimateTokens(text)
		team.FitTokens(text, n/2)
		team.FitTokensTail(text, n/2)
		// Quadratic would be hours.
		require.Less(t, time.Since(start), hang, "%q", unit)
	}
}

// SignalChannel relies on it: a bound on the parts is one on the whole, but for
// what happens where they meet.
func TestEstimateTokensOfPartsBoundsTheWhole(t *testing.T) {
	parts := []string{"", "<", "\n", " ", "界", "0", "AB", "a", "\xff", "🙂", "x" + strings.Repeat("\u0301", 9)}
	parts = append(parts, hardTexts...)
	for text := range goldenTokens {
		parts = append(parts, text)
	}
	for _, a := range parts {
		for _, b := range parts {
			whole, sum := team.EstimateTokens(a+b), team.EstimateTokens(a)+team.EstimateTokens(b)
			require.LessOrEqual(t, whole, sum+4, "%q and %q", a, b)
		}
	}
}

func FuzzFitTokens(f *testing.F) {
	for i, text := range hardTexts {
		f.Add(text, i)
	}
	f.Fuzz(func(t *testing.T, text string, budget int) {
		whole := team.EstimateTokens(text)
		if (whole < 1) != (text == "") {
			t.Fatalf("%d tokens for %q", whole, text)
		}
		head, tail := team.FitTokens(text, budget), team.FitTokensTail(text, budget)
		for _, part := range []string{head, tail} {
			if n := team.EstimateTokens(part); n > max(budget, 0) || n > whole && part == head {
				t.Fatalf("%q costs %d, of %d and a budget of %d", part, n, whole, budget)
			}
		}
		if !strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail) {
			t.Fatalf("%q and %q are no ends of %q", head, tail, text)
		}
		if whole <= budget && (head != text || tail != text) {
			t.Fatalf("%q was cut though it fits", text)
		}
		if utf8.ValidString(text) && (!utf8.ValidString(head) || !utf8.ValidString(tail)) {
			t.Fatalf("a character of %q was split: %q, %q", text, head, tail)
		}
	})
}

func BenchmarkEstimateTokens(b *testing.B) {
	texts := map[string]string{}
	for _, p := range tokenPieces(b) {
		texts[p.class] += p.text
	}
	sum := 0
	for _, class := range []string{"prose", "ts", "json", "logs", "hex", "zh", "ko", "emoji"} {
		text := strings.Repeat(texts[class], 1<<20/len(texts[class])+1)
		b.Run(class, func(b *testing.B) {
			var ours, floor stopwatch
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				ours.time(func() { sum += team.EstimateTokens(text) })
				b.StopTimer()
				floor.time(func() {
					for i := range len(text) {
						sum += int(text[i])
					}
				})
				b.StartTimer()
			}
			b.ReportMetric(ours.per(1)/floor.per(1), "x-adding-bytes")
		})
	}
}

func BenchmarkFitTokens(b *testing.B) {
	text := strings.Repeat("Four tests fail, one hangs: see the log 日本語 🙂.\n", 1<<14)
	for name, fit := range map[string]func(string, int) string{"head": team.FitTokens, "tail": team.FitTokensTail} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				fit(text, 400)
			}
		})
	}
}

// What o200k makes of them.
var goldenTokens = map[string]int{
	"The build is green again; nobody knows why, and two of us would like to find out before Friday.":                                                                                              22,
	"func (q *queue) push(item Item) error {\n\tq.mu.Lock()\n\tdefer q.mu.Unlock()\n\tif len(q.items) >= q.limit {\n\t\treturn ErrFull\n\t}\n\tq.items = append(q.items, item)\n\treturn nil\n}\n": 50,
	"{\"id\":4711,\"name\":\"probe-3\",\"tags\":[\"a\",\"b\"],\"ratio\":0.125,\"parent\":null}":                                                                                                    29,
	"2026-03-01T09:15:02.118Z WARN pool exhausted waiting=12 max=10 took=48.2ms\n":                                                                                                                 31,
	"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08":                                                                                                                             43,
	"c2hvcnQgdGV4dHMgYXJlIGhhcmRlciB0aGFuIGxvbmcgb25lcw==":                                                                                                                                         32,
	"今天的测试全部通过了，明天早上我们再看一下性能。":                                                                                                                                                                     17,
	"このファイルは自動的に生成されるので、手で編集しないでください。":                                                                                                                                                             21,
	"회의는 내일 오후 세 시에 시작하니 자료를 미리 읽어 주세요.":                                                                                                                                                           19,
	"🎉🚀🔥 done 👍🏽 🇩🇪":                                                                                                                                                                               13,
}

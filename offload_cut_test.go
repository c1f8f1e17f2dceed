package team_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

const family = "👨‍👩‍👧‍👦"

// Every cut position over a text of 1- to 4-byte runes, combining marks, a ZWJ
// family, flags and lone bytes: valid UTF-8, within budget with its mark, no
// character taken apart.
func TestOffloadCutsAnywhere(t *testing.T) {
	unit := "aé字🙂e\u0301" + family + "🇩🇪\xff\xf0\x9f👍🏽각\r\n"
	for budget := 70; budget <= 150; budget++ {
		o := newOffload(t, &team.OffloadOptions{PreviewTokens: budget, ReportTokens: budget, Thresholds: map[team.Class]int{"text": 100, "report": 100, "log": 100}})
		for shift := range len(unit) {
			if (shift+budget)%16 > 0 { // every position with every sixteenth budget
				continue
			}
			text := strings.Repeat("b", shift) + strings.Repeat(unit, 60)
			for _, class := range []team.Class{team.ClassText, team.ClassReport} {
				s := shorten(t, o, text, team.Source{Class: class})
				require.NotEmpty(t, s.Handle)
				body, frame := parts(t, s)
				require.True(t, utf8.ValidString(s.Text), "%q", s.Text)
				require.LessOrEqual(t, team.EstimateTokens(s.Text), max(budget, 26+team.EstimateTokens(frame)), "%q", body)
				whole := strings.ReplaceAll(body, family, "F")
				for what, part := range map[string]string{"a joiner": "\u200d", "a half flag": "🇩[^🇪]"} {
					require.NotContains(t, whole, part, "%s alone in %q", what, body)
				}
				for _, begin := range []string{"\u0301", "🏽", "🇪", "\u200d"} {
					for _, line := range strings.Split(body, "\n") {
						require.False(t, strings.HasPrefix(line, begin), "%q begins in the middle of a character", line)
					}
				}
				require.Equal(t, strings.Count(body, "🇩"), strings.Count(body, "🇪"), "%q", body)
			}
		}
	}
}

// The same for what Fetch cuts: by every budget, and on from there, it is the whole.
func TestFetchCutsAnywhere(t *testing.T) {
	o := newOffload(t, &team.OffloadOptions{Thresholds: map[team.Class]int{"text": 100}})
	text := strings.Repeat("aé字🙂e\u0301"+family+"🇩🇪\xff\xf0\x9f👍🏽\r\n", 40)
	s := shorten(t, o, text, team.Source{Class: team.ClassText})
	for budget := 40; budget < 90; budget += 7 {
		var got strings.Builder
		lone := 0
		for next := new(team.FetchOptions); next != nil; {
			next.Budget = budget
			f := fetch(t, o, s.Handle, *next)
			require.LessOrEqual(t, f.Tokens, budget)
			for rest := f.Text; rest != ""; {
				r, size := utf8.DecodeRuneInString(rest)
				if r == utf8.RuneError && size == 1 {
					lone++
				}
				rest = rest[size:]
			}
			got.WriteString(f.Text)
			next = f.Next
		}
		require.Equal(t, text, got.String())
		require.Equal(t, 3*40, lone, "bytes that are no character, all of them from the text")
	}
}

// One letter with a million accents is not a reason to take long or to show all of it.
func TestOffloadAccentsWithoutEnd(t *testing.T) {
	o := newOffload(t, nil)
	s := shorten(t, o, "e"+strings.Repeat("\u0301", 500_000)+"end", team.Source{Class: team.ClassText})
	require.Less(t, len(s.Text), 4000)
	require.True(t, utf8.ValidString(s.Text))
}

// Nor to hide what is behind it: Fetch goes on, by runes where no character ends, and
// never with half of one because there was so much white space before it.
func TestFetchGoesOnBehindAnyCharacter(t *testing.T) {
	o := newOffload(t, &team.OffloadOptions{Thresholds: map[team.Class]int{"text": 100}})
	for _, text := range []string{
		"e" + strings.Repeat("\u0301", 20_000) + "end", strings.Repeat(family+"\u200d", 3000), strings.Repeat(" ", 50_000) + strings.Repeat("字🙂", 2000),
		"a" + strings.Repeat(strings.Repeat(" ", 2000)+family, 50), " " + strings.Repeat(strings.Repeat(" ", 1726)+"字字", 50),
	} {
		s := shorten(t, o, text, team.Source{Class: team.ClassText})
		require.NotEmpty(t, s.Handle)
		for _, opts := range []team.FetchOptions{{Budget: 100}, {Budget: 100, Range: team.Range{Line: 1}}} {
			var got strings.Builder
			for next := &opts; next != nil; {
				f := fetch(t, o, s.Handle, *next)
				require.True(t, utf8.ValidString(f.Text), "%q", f.Text)
				got.WriteString(f.Text)
				next = f.Next
			}
			require.True(t, text == got.String())
		}
	}
}

// Random bytes and runes of any kind, in pieces of any size: a stream is the text.
func TestOffloadStreamIsText(t *testing.T) {
	o := newOffload(t, &team.OffloadOptions{Thresholds: map[team.Class]int{"text": 50, "code": 50, "csv": 50, "json": 50, "log": 50, "report": 50, "binary": 50, "unknown": 50}, ReportTokens: 100})
	r := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"word ", "\n", "STATUS: done\n", "| a | b |\n|---|---|\n| 1 | 2 |\n", "ERROR: x\n", "func f() {\n", `{"a":`, "}", "1,2,3\n", "字", family, "\xff", "\r\n", strings.Repeat("long", 300), "<task id=\"x\">\n"}
	for range 50 {
		var b strings.Builder
		for range 20 + r.IntN(200) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		text := b.String()
		for _, class := range []team.Class{"", "json", "csv", "code", "log", "report"} {
			src := team.Source{Class: class}
			s := shorten(t, o, text, src)
			stream, err := o.ShortenReader(t.Context(), &pieceReader{text, r}, src)
			require.NoError(t, err)
			require.Equal(t, s.Text, stream.Text)
			require.LessOrEqual(t, s.Shown, s.Size)
			require.True(t, utf8.ValidString(s.Text) || !s.Cut(), fmt.Sprintf("%q", s.Text))
		}
	}
}

type pieceReader struct {
	rest string
	r    *rand.Rand
}

func (p *pieceReader) Read(b []byte) (int, error) {
	if p.rest == "" {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), 1+p.r.IntN(5000))], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

package team_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

// isPartOf reports whether part lies in whole's memory, so that nothing was copied.
func isPartOf(whole, part string) bool {
	if part == "" {
		return true
	}
	at := uintptr(unsafe.Pointer(unsafe.StringData(part))) - uintptr(unsafe.Pointer(unsafe.StringData(whole)))
	return at <= uintptr(len(whole)-len(part))
}

// Whatever the corpus matches by its text, nothing of it matches inside another text.
func TestQuotedNestedIndentedFencedNeverSettles(t *testing.T) {
	inLines := func(prefix string) func(string) string {
		return func(s string) string { return prefix + strings.ReplaceAll(s, "\n", "\n"+prefix) }
	}
	around := func(before, after string) func(string) string {
		return func(s string) string { return before + s + after }
	}
	places := map[string]func(string) string{
		"quoted": inLines("> "), "indented": inLines("    "), "indented by a tab": inLines("\t"),
		"fenced": around("```xml\n", "\n```"), "in backquotes": around("`", "`"), "a string": func(s string) string { return fmt.Sprintf("%q", s) },
		"nested": around("<answer>\n", "\n</answer>"), "in a shell's notice": around("<shell id=\"sh_1\" state=\"completed\" command=\"cat\">\n", "\n</shell>"),
		"behind prose": around("As I said:\n", ""), "behind a line break": around("\n", ""), "behind a space": around(" ", ""),
	}
	tried := 0
	for _, path := range envelopeCorpus(t) {
		c := readEnvelopeCase(t, path)
		if c.want.Verdict != team.EnvelopeMatched || c.want.Envelope.Generation == team.GenV1a {
			continue // of that one, text in front is body
		}
		for place, put := range places {
			in := c.in
			in.Metadata = nil // it would say whose the text is
			in.Text = put(strings.TrimPrefix(c.in.Text, "\uFEFF"))
			var m team.EnvelopeMatcher
			_, verdict := m.Match(in)
			require.NotEqual(t, team.EnvelopeMatched, verdict, "%s: %s", path, place)
			tried++
		}
	}
	require.Greater(t, tried, 500)
}

// Another tool's result, or a message that metadata gives to somebody else, is never an
// envelope, whatever it says.
func TestOnlyTheHostsOwnToolsSettle(t *testing.T) {
	for _, path := range envelopeCorpus(t) {
		c := readEnvelopeCase(t, path)
		for _, in := range []team.EnvelopeInput{
			{Text: c.in.Text, Metadata: c.in.Metadata, Failed: c.in.Failed, Tool: "bash"},
			{Text: c.in.Text, Metadata: json.RawMessage(`{"source":"shell","sessionID":"ses_01a","status":"completed"}`)},
		} {
			var m team.EnvelopeMatcher
			got, verdict := m.Match(in)
			require.NotContains(t, []team.EnvelopeVerdict{team.EnvelopeMatched, team.EnvelopeForeign}, verdict, path)
			require.Zero(t, got)
		}
	}
}

func TestOnlyAKnownChildSettles(t *testing.T) {
	for _, path := range envelopeCorpus(t) {
		c := readEnvelopeCase(t, path)
		if c.want.Verdict != team.EnvelopeMatched {
			continue
		}
		var m team.EnvelopeMatcher
		c.in.Known = func(team.SessionID) bool { return false }
		_, verdict := m.Match(c.in)
		require.Equal(t, team.EnvelopeForeign, verdict, path)
		c.in.Known = func(id team.SessionID) bool { return id == c.want.Envelope.Session }
		_, verdict = m.Match(c.in)
		require.Equal(t, team.EnvelopeMatched, verdict, path)
		c.in.Known = nil
		_, verdict = m.Match(c.in)
		require.Equal(t, team.EnvelopeMatched, verdict, path)
	}
}

func TestEnvelopeStats(t *testing.T) {
	t.Run("nothing came, nothing matched and nothing settled are different", func(t *testing.T) {
		var idle, deaf, foreign, blank team.EnvelopeMatcher
		deaf.Match(team.EnvelopeInput{Text: "hello"})
		blank.Match(team.EnvelopeInput{Text: "\n"})
		foreign.Match(team.EnvelopeInput{Text: wholeAnswer, Known: func(team.SessionID) bool { return false }})
		require.Zero(t, idle.Stats())
		require.Equal(t, team.EnvelopeStats{Seen: 1, Verdicts: map[team.EnvelopeVerdict]uint64{team.EnvelopeNone: 1}}, deaf.Stats())
		require.Equal(t, team.EnvelopeStats{Seen: 1, Verdicts: map[team.EnvelopeVerdict]uint64{team.EnvelopeEmpty: 1}}, blank.Stats())
		require.Equal(t, team.EnvelopeStats{Seen: 1, Verdicts: map[team.EnvelopeVerdict]uint64{team.EnvelopeForeign: 1}}, foreign.Stats())
	})
	t.Run("the corpus adds up", func(t *testing.T) {
		var m team.EnvelopeMatcher
		want := team.EnvelopeStats{Matched: map[team.Generation]uint64{}, UnknownStates: map[string]uint64{}}
		for _, path := range envelopeCorpus(t) {
			c := readEnvelopeCase(t, path)
			m.Match(c.in)
			want.Seen++
			if e := c.want.Envelope; c.want.Verdict == team.EnvelopeMatched {
				want.Matched[e.Generation]++
				if e.Notice {
					want.Notices++
				}
				if e.Truncated {
					want.Truncated++
				}
				if len(e.Conflicts) > 0 {
					want.Disputed++
				}
				if e.State == team.ChildUnknown {
					want.UnknownStates[e.Word]++
				}
			}
		}
		got := m.Stats()
		require.Equal(t, want, team.EnvelopeStats{Seen: got.Seen, Matched: got.Matched, Notices: got.Notices, Truncated: got.Truncated,
			Disputed: got.Disputed, UnknownStates: got.UnknownStates})
		sum := func(counts map[string]uint64) (n uint64) {
			for _, c := range counts {
				n += c
			}
			return n
		}
		require.Equal(t, got.Verdicts[team.EnvelopeNearMiss], sum(got.NearMisses))
		require.Equal(t, got.Verdicts[team.EnvelopeMalformed], sum(got.Malformed))
		require.Equal(t, got.Verdicts[team.EnvelopeOther], sum(got.Others))
		var all, matched uint64
		for _, n := range got.Verdicts {
			all += n
		}
		for _, n := range got.Matched {
			matched += n
		}
		require.Equal(t, got.Seen, all)
		require.Equal(t, got.Verdicts[team.EnvelopeMatched], matched)
	})
	t.Run("hostile names take no memory", func(t *testing.T) {
		var m team.EnvelopeMatcher
		const n = 10_000
		for i := range n {
			m.Match(team.EnvelopeInput{Text: fmt.Sprintf("<w%d>\nx\n</w%d>", i, i)})
			m.Match(team.EnvelopeInput{Text: fmt.Sprintf("<subagent sessionID=\"s\" state=\"w%d\">\nx\n</subagent>", i)})
		}
		long := strings.Repeat("w", 10_000)
		m.Match(team.EnvelopeInput{Text: "<subagent sessionID=\"s\" state=\"" + long + "\">\nx\n</subagent>"})
		s := m.Stats()
		for _, names := range []map[string]uint64{s.Others, s.UnknownStates} {
			require.Len(t, names, 65)
			require.GreaterOrEqual(t, names[team.MoreNames], uint64(n-64))
			for name := range names {
				require.LessOrEqual(t, len(name), 64)
			}
		}
	})
	t.Run("the caller's copy is its own", func(t *testing.T) {
		var m team.EnvelopeMatcher
		in := team.EnvelopeInput{Text: wholeAnswer}
		m.Match(in)
		s := m.Stats()
		clear(s.Verdicts)
		clear(s.Matched)
		require.Equal(t, map[team.Generation]uint64{team.GenV2: 1}, m.Stats().Matched)
		require.Equal(t, map[team.EnvelopeVerdict]uint64{team.EnvelopeMatched: 1}, m.Stats().Verdicts)
	})
	t.Run("many goroutines", func(t *testing.T) {
		var m team.EnvelopeMatcher
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 200 {
					m.Match(team.EnvelopeInput{Text: wholeAnswer})
					m.Match(team.EnvelopeInput{Text: "<x>\n</x>"})
					m.Stats()
				}
			})
		}
		wg.Wait()
		s := m.Stats()
		require.Equal(t, uint64(3200), s.Seen)
		require.Equal(t, uint64(1600), s.Matched[team.GenV2])
		require.Equal(t, uint64(1600), s.Others["x"])
	})
}

func TestMatchCopiesNothing(t *testing.T) {
	var m team.EnvelopeMatcher
	in := team.EnvelopeInput{Text: wholeAnswer, Tool: "subagent"}
	var got team.Envelope
	require.Zero(t, testing.AllocsPerRun(10, func() { got, _ = m.Match(in) }))
	require.Equal(t, len(plainProse), len(got.Body))
	require.True(t, isPartOf(in.Text, got.Body))
	require.False(t, isPartOf(in.Text, strings.Clone(got.Body)), "the check can fail")
	in.Text = plainProse
	require.Zero(t, testing.AllocsPerRun(10, func() { m.Match(in) }))
}

// A thousand times the text, and quadratic work would take hours.
func TestHostileTextsTakeLinearTime(t *testing.T) {
	for name, text := range hostileTexts {
		for _, in := range []team.EnvelopeInput{
			{Text: text, Tool: "subagent"}, {Text: text, Tool: "bash"}, {Text: text, Tool: "task", Failed: true},
			{Text: text, Metadata: json.RawMessage(`{"sessionID":"ses_01a","status":"running","truncated":true}`)},
			{Metadata: json.RawMessage(`{"sessionID":"ses_01a","status":` + strings.Repeat("[", megabyte))},
		} {
			var m team.EnvelopeMatcher
			start := time.Now()
			m.Match(in)
			require.Less(t, time.Since(start), hang, name)
		}
	}
}

// A tag is found wherever it stands: the search looks at eight places at once.
func TestNearMissIsFoundAtEveryPlace(t *testing.T) {
	for _, tag := range []string{"<task ", "<task_result>", "<subagent ", "<subagent>"} {
		for _, fill := range []string{".", "<", "<t", "<su", "<suba", "<tas", "é", "\xff"} {
			before := strings.Repeat(fill, 40)
			for i := 1; i < 40; i++ {
				for _, after := range []string{"", "x", strings.Repeat("y", 30)} {
					var m team.EnvelopeMatcher
					text := "." + before[:i] + tag + after
					_, verdict := m.Match(team.EnvelopeInput{Text: text})
					require.Equal(t, team.EnvelopeNearMiss, verdict, "%q", text)
				}
				var m team.EnvelopeMatcher
				_, verdict := m.Match(team.EnvelopeInput{Text: "." + before[:i] + "<tusk <sabagent" + before})
				require.Equal(t, team.EnvelopeNone, verdict)
			}
		}
	}
}

// FuzzEnvelopeMatch: whatever comes, what is returned holds together.
func FuzzEnvelopeMatch(f *testing.F) {
	for _, path := range envelopeCorpus(f) {
		c := readEnvelopeCase(f, path)
		f.Add(c.in.Text, string(c.in.Metadata), c.in.Tool, c.in.Failed)
	}
	f.Fuzz(func(t *testing.T, text, metadata, tool string, failed bool) {
		var m team.EnvelopeMatcher
		in := team.EnvelopeInput{Text: text, Metadata: json.RawMessage(metadata), Tool: tool, Failed: failed}
		e, verdict := m.Match(in)
		s := m.Stats()
		require.Equal(t, map[team.EnvelopeVerdict]uint64{verdict: 1}, s.Verdicts)
		if verdict == team.EnvelopeNearMiss || verdict == team.EnvelopeMalformed || verdict == team.EnvelopeOther {
			require.Len(t, slices.Concat(slices.Collect(maps.Keys(s.NearMisses)), slices.Collect(maps.Keys(s.Malformed)), slices.Collect(maps.Keys(s.Others))), 1)
		}
		if verdict != team.EnvelopeMatched {
			require.NotEqual(t, team.EnvelopeForeign, verdict)
			require.Zero(t, e)
			return
		}
		require.NotEmpty(t, e.Session)
		require.NotEmpty(t, e.Generation)
		require.NotEmpty(t, e.State)
		require.Contains(t, []string{"", "task", "subagent"}, tool)
		require.True(t, isPartOf(text, e.Body))
		require.Equal(t, e.Confidence == team.ConfidenceDisputed, len(e.Conflicts) > 0)
		if metadata == "" {
			require.Contains(t, text, string(e.Session))
			require.Equal(t, team.ConfidenceText, e.Confidence)
		}
		in.Known = func(id team.SessionID) bool {
			require.Equal(t, e.Session, id)
			return false
		}
		again, verdict := m.Match(in)
		require.Equal(t, team.EnvelopeForeign, verdict)
		require.Equal(t, e, again)
	})
}

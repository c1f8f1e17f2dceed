package fakehost_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team/internal/transcript"
)

const note = transcript.Note

type plain struct{ *transcript.Plain }

func newPlain(folders ...string) *plain { return &plain{transcript.New(folders...)} }

func (p *plain) of(v any) any { return p.Of(v) }

var same, matches, short = transcript.Same, transcript.Matches, transcript.Short

// lineUp compares two lists of events of one session: first the order of types, then each.
func lineUp(name string, want, got []any) []string {
	for i := range max(len(want), len(got)) {
		if i < len(want) && i < len(got) && at(want[i], "type") == at(got[i], "type") {
			continue
		}
		list := func(events []any) (s string) {
			for j := max(i-3, 0); j < min(i+5, len(events)); j++ {
				mark := "   "
				if j == i {
					mark = " → "
				}
				s += fmt.Sprintf("\n   %s%d %s", mark, j, short(events[j]))
			}
			return s
		}
		return []string{fmt.Sprintf("%s: other events from number %d on\n  capture:%s\n  fake host:%s", name, i, list(want), list(got))}
	}
	var out []string
	for i := range want {
		out = append(out, same(fmt.Sprintf("%s event %d %s", name, i, at(want[i], "type")), want[i], got[i])...)
	}
	return out
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		want, got string
		is        bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"a", "ab", false},
		{note, "x", true}, {note, "", false},
		{"a " + note + " b", "a xyz b", true}, {"a " + note + " b", "a  b", false}, {"a " + note + " b", "a x c", false},
		{note + " b", "x b", true}, {note + " b", "x b y", false}, {note + ": a", "tail: a", true},
		{note + "a" + note, "xay", true}, {note + "a" + note, "xa", false},
	} {
		require.Equal(t, c.is, matches(c.want, c.got), "%q %q", c.want, c.got)
	}
	require.Empty(t, same("", parse(t, `{"a":[1,"x"]}`), parse(t, `{"a":[1,"x"]}`)))
	for _, other := range []string{`{"a":[1]}`, `{"a":[1,"y"]}`, `{"a":[1,"x",2]}`, `{"b":1,"a":[1,"x"]}`, `{}`, `7`} {
		require.NotEmpty(t, same("", parse(t, `{"a":[1,"x"]}`), parse(t, other)), other)
	}
}

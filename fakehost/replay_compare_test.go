package fakehost_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// note stands in a capture where the real host had a sentence of its own: any text that is
// not empty is equal to it.
const note = "[host text]"

// A plain takes out of captures and answers what differs from one run to the next: an id
// becomes its prefix and a number in the order of appearance, a time, a slug and a
// snapshot become a word, and the folders the ones of the captures.
type plain struct {
	ids     map[string]string
	count   map[string]int
	folders *strings.Replacer
}

func newPlain(folders ...string) *plain {
	return &plain{make(map[string]string), make(map[string]int), strings.NewReplacer(folders...)}
}

var (
	idPattern   = regexp.MustCompile(`\b(ses|msg|prt|evt|per|que|tool|call|err)_[0-9A-Za-z]+`)
	hashPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

func (p *plain) id(s string) string {
	prefix, _, _ := strings.Cut(s, "_")
	if prefix == "evt" || prefix == "err" {
		return prefix
	}
	if p.ids[s] == "" {
		p.count[prefix]++
		p.ids[s] = fmt.Sprintf("%s#%d", prefix, p.count[prefix])
	}
	return p.ids[s]
}

// of returns v without what differs.
func (p *plain) of(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			switch {
			case k == "slug":
				out[k] = "slug"
			default:
				out[k] = p.of(v[k])
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = p.of(v[i])
		}
		return out
	case float64:
		if v > 1e12 {
			return "ms"
		}
	case string:
		if hashPattern.MatchString(v) {
			return "hash"
		}
		return idPattern.ReplaceAllStringFunc(p.folders.Replace(v), p.id)
	}
	return v
}

// same returns where got is not want, in words; nil if it is.
func same(path string, want, got any) []string {
	switch want := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		var out []string
		for _, k := range slices.Sorted(maps.Keys(want)) {
			if v, ok := g[k]; ok {
				out = append(out, same(path+"."+k, want[k], v)...)
			} else {
				out = append(out, fmt.Sprintf("%s.%s: the capture has %s, the fake host nothing", path, k, short(want[k])))
			}
		}
		for _, k := range slices.Sorted(maps.Keys(g)) {
			if _, ok := want[k]; !ok {
				out = append(out, fmt.Sprintf("%s.%s: the fake host has %s, the capture nothing", path, k, short(g[k])))
			}
		}
		return out
	case []any:
		g, ok := got.([]any)
		if !ok {
			break
		}
		var out []string
		for i := range max(len(want), len(g)) {
			at := fmt.Sprintf("%s[%d]", path, i)
			switch {
			case i >= len(g):
				out = append(out, fmt.Sprintf("%s: the capture has %s, the fake host nothing", at, short(want[i])))
			case i >= len(want):
				out = append(out, fmt.Sprintf("%s: the fake host has %s, the capture nothing", at, short(g[i])))
			default:
				out = append(out, same(at, want[i], g[i])...)
			}
		}
		return out
	case string:
		if g, ok := got.(string); ok && matches(want, g) {
			return nil
		}
	default:
		if want == got {
			return nil
		}
	}
	return []string{fmt.Sprintf("%s\n    capture:   %s\n    fake host: %s", path, short(want), short(got))}
}

// matches reports whether got is want, in which a note is any text.
func matches(want, got string) bool {
	for i := 0; ; i++ {
		before, rest, noted := strings.Cut(want, note)
		switch {
		case !noted && i == 0:
			return want == got
		case !noted:
			return len(got) > len(want) && strings.HasSuffix(got, want)
		case i == 0:
			if !strings.HasPrefix(got, before) {
				return false
			}
			got = got[len(before):]
		default:
			at := strings.Index(got, before)
			if at < 1 {
				return false
			}
			got = got[at+len(before):]
		}
		want = rest
	}
}

func short(v any) string {
	data, _ := json.Marshal(v)
	if len(data) > 300 {
		return fmt.Sprintf("%s … %s (%d bytes)", data[:200], data[len(data)-60:], len(data))
	}
	return string(data)
}

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

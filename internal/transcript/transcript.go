// Package transcript compares what two hosts did, or one host twice: it takes out what
// differs from one run to the next, and says in words where the rest differs.
package transcript

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Note stands in a capture where the real host had a sentence of its own: any text that is
// not empty is equal to it.
const Note = "[host text]"

// A Plain takes out of captures and answers what differs from one run to the next: an id
// becomes its prefix and a number in the order of appearance, a time, a slug and a
// snapshot become a word, and the folders the ones of the captures.
type Plain struct {
	ids     map[string]string
	count   map[string]int
	folders *strings.Replacer
}

// New returns a Plain that replaces each first string of folders by the one that follows it.
func New(folders ...string) *Plain {
	return &Plain{make(map[string]string), make(map[string]int), strings.NewReplacer(folders...)}
}

var (
	idPattern   = regexp.MustCompile(`\b(ses|msg|prt|evt|per|que|tool|call|err)_[0-9A-Za-z]+`)
	hashPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

func (p *Plain) id(s string) string {
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

// Of returns v, a JSON value, without what differs.
func (p *Plain) Of(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			switch {
			case k == "slug":
				out[k] = "slug"
			default:
				out[k] = p.Of(v[k])
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = p.Of(v[i])
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

// Same returns where got is not want, in words; nil if it is.
func Same(path string, want, got any) []string {
	switch want := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		var out []string
		for _, k := range slices.Sorted(maps.Keys(want)) {
			if v, ok := g[k]; ok {
				out = append(out, Same(path+"."+k, want[k], v)...)
			} else {
				out = append(out, fmt.Sprintf("%s.%s: the capture has %s, the fake host nothing", path, k, Short(want[k])))
			}
		}
		for _, k := range slices.Sorted(maps.Keys(g)) {
			if _, ok := want[k]; !ok {
				out = append(out, fmt.Sprintf("%s.%s: the fake host has %s, the capture nothing", path, k, Short(g[k])))
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
				out = append(out, fmt.Sprintf("%s: the capture has %s, the fake host nothing", at, Short(want[i])))
			case i >= len(want):
				out = append(out, fmt.Sprintf("%s: the fake host has %s, the capture nothing", at, Short(g[i])))
			default:
				out = append(out, Same(at, want[i], g[i])...)
			}
		}
		return out
	case string:
		if g, ok := got.(string); ok && Matches(want, g) {
			return nil
		}
	default:
		if want == got {
			return nil
		}
	}
	return []string{fmt.Sprintf("%s\n    capture:   %s\n    fake host: %s", path, Short(want), Short(got))}
}

// Matches reports whether got is want, in which a note is any text.
func Matches(want, got string) bool {
	for i := 0; ; i++ {
		before, rest, noted := strings.Cut(want, Note)
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

// Short returns v as JSON, without its middle if it is long.
func Short(v any) string {
	data, _ := json.Marshal(v)
	if len(data) > 300 {
		return fmt.Sprintf("%s … %s (%d bytes)", data[:200], data[len(data)-60:], len(data))
	}
	return string(data)
}

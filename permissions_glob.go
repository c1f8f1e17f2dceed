package team

import (
	"slices"
	"strings"
	"unicode/utf16"
)

// A ruleGlob is a pattern as units: UTF-16 code units, anyUnit for "?" and anyRun for
// "*". No anyRun follows another, and none comes before an anyUnit, so equal
// runs of wildcards look equal. It has no optional end: a pattern that ends with " *" is two
// globs.
type ruleGlob []int32

const (
	anyUnit int32 = -1
	anyRun  int32 = -2
)

// globs returns what a pattern stands for.
func (m Matching) globs(pattern string) []ruleGlob {
	var g ruleGlob
	stars := false
	for _, u := range utf16.Encode([]rune(pattern)) {
		switch {
		case u == '*':
			stars = true
			continue
		case u == '?':
			g = append(g, anyUnit)
			continue
		case u == '\\':
			u = '/'
		case m.FoldCase && !utf16.IsSurrogate(rune(u)):
			u = uint16(foldUnit(rune(u)))
		}
		if stars {
			g, stars = append(g, anyRun), false
		}
		g = append(g, int32(u))
	}
	if stars {
		g = append(g, anyRun)
	}
	if p := strings.ReplaceAll(pattern, "\\", "/"); strings.HasSuffix(p, " *") {
		return []ruleGlob{g, slices.Clone(g[:len(g)-2])}
	}
	return []ruleGlob{g}
}

// pattern returns g as a pattern that stands for nothing else.
func (g ruleGlob) pattern() string {
	units := make([]uint16, 0, len(g)+1)
	for _, u := range g {
		switch u {
		case anyUnit:
			units = append(units, '?')
		case anyRun:
			units = append(units, '*')
		default:
			units = append(units, uint16(u))
		}
	}
	if n := len(g); n >= 2 && g[n-1] == anyRun && g[n-2] == ' ' {
		units = append(units, '*') // " *" would match without the space as well
	}
	return string(utf16.Decode(units))
}

// A globBudget bounds the steps of one call, since questions about several wildcards can
// cost more than anybody will wait.
type globBudget int

// spend takes n steps and reports whether they were there.
func (b *globBudget) spend(n int) bool {
	if n > int(*b) {
		*b = 0
		return false
	}
	*b -= globBudget(n)
	return true
}

// clash reports whether g and h begin or end with other literals, so that no text
// matches both. It is what tells most patterns apart.
func (g ruleGlob) clash(h ruleGlob) bool {
	for i := 0; i < len(g) && i < len(h) && g[i] >= 0 && h[i] >= 0; i++ {
		if g[i] != h[i] {
			return true
		}
	}
	for i, j := len(g)-1, len(h)-1; i >= 0 && j >= 0 && g[i] >= 0 && h[j] >= 0; i, j = i-1, j-1 {
		if g[i] != h[j] {
			return true
		}
	}
	return len(g) == 0 && len(h) > 0 && h[0] != anyRun || len(h) == 0 && len(g) > 0 && g[0] != anyRun
}

// covers reports whether g matches all that h matches. It may say no where it does, but
// never yes where it does not.
func (g ruleGlob) covers(h ruleGlob, b *globBudget) bool {
	if !b.spend(1) || g.clash(h) {
		return false
	}
	if !b.spend((len(g) + 1) * (len(h) + 1)) {
		return false
	}
	// g is matched against the units of h: a run of h is taken by a run of g only.
	i, j, back, from := 0, 0, -1, 0
	for j < len(h) {
		switch {
		case i < len(g) && g[i] == anyRun:
			back, from = i, j
			i++
		case i < len(g) && (g[i] == h[j] && h[j] != anyRun || g[i] == anyUnit && h[j] >= anyUnit):
			i, j = i+1, j+1
		case back >= 0:
			from++
			i, j = back+1, from
		default:
			return false
		}
	}
	for i < len(g) && g[i] == anyRun {
		i++
	}
	return i == len(g)
}

// meets reports whether some text matches both. It may say yes where none does, but
// never no where one does.
func (g ruleGlob) meets(h ruleGlob, b *globBudget) bool {
	if !b.spend(1) {
		return true
	}
	if g.clash(h) {
		return false
	}
	if !b.spend((len(g) + 1) * (len(h) + 1)) {
		return true
	}
	// now[j]: g up to i and h up to j can have read the same text.
	now := make([]bool, len(h)+1)
	now[0] = true
	for i := 0; ; i++ {
		for j := range h { // a run of h reads what comes next, or nothing
			if now[j] && h[j] == anyRun {
				now[j+1] = true
			}
			if i < len(g) && g[i] == anyRun && now[j] {
				now[j+1] = true // the run of g reads h's unit
			}
		}
		if i == len(g) {
			return now[len(h)]
		}
		next := make([]bool, len(h)+1)
		for j := range next {
			if !now[j] {
				continue
			}
			if g[i] == anyRun {
				next[j] = true
				continue
			}
			if j < len(h) {
				switch {
				case h[j] == anyRun:
					next[j] = true
				case g[i] == anyUnit || h[j] == anyUnit || g[i] == h[j]:
					next[j+1] = true
				}
			}
		}
		now = next
	}
}

// intersect returns globs that together match what both match, and false if they would
// be too many.
func (g ruleGlob) intersect(h ruleGlob, b *globBudget) ([]ruleGlob, bool) {
	const most = 64
	var out []ruleGlob
	seen := make(map[string]bool)
	var walk func(g, h, done ruleGlob) bool
	walk = func(g, h, done ruleGlob) bool {
		if !b.spend(1 + len(done)) {
			return false
		}
		switch {
		case len(g) == 0 && len(h) == 0:
			done = tidy(done)
			if key := done.pattern(); !seen[key] {
				seen[key] = true
				out = append(out, done)
			}
			return len(out) <= most
		case len(g) > 0 && len(h) > 0 && g[0] == anyRun && h[0] == anyRun:
			// One of the two runs ends first, and the other reads on.
			done = append(slices.Clip(done), anyRun)
			return walk(g[1:], h, done) && walk(g, h[1:], done)
		case len(g) > 0 && g[0] == anyRun:
			return walk(g[1:], h, done) && (len(h) == 0 || walk(g, h[1:], append(slices.Clip(done), h[0])))
		case len(h) > 0 && h[0] == anyRun:
			return walk(g, h[1:], done) && (len(g) == 0 || walk(g[1:], h, append(slices.Clip(done), g[0])))
		case len(g) == 0 || len(h) == 0:
			return true
		case g[0] == anyUnit:
			return walk(g[1:], h[1:], append(slices.Clip(done), h[0]))
		case h[0] == anyUnit || g[0] == h[0]:
			return walk(g[1:], h[1:], append(slices.Clip(done), g[0]))
		}
		return true
	}
	ok := walk(g, h, nil)
	return out, ok
}

// tidy puts the wildcards of each run in order, see ruleGlob.
func tidy(g ruleGlob) ruleGlob {
	var out ruleGlob
	run := false
	for _, u := range g {
		if u == anyRun {
			run = true
			continue
		}
		if run && u != anyUnit {
			out, run = append(out, anyRun), false
		}
		out = append(out, u)
	}
	if run {
		out = append(out, anyRun)
	}
	return out
}

package team

import (
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf16"
)

// A Witness is a permission and a resource that a child's rules allow and its parent's
// deny, with both decisions.
type Witness struct {
	Permission, Resource string
	Parent, Child        Decision
}

// A Proof is what NotWider found.
type Proof string

// The proofs.
const (
	Proven   Proof = "proven"   // no permission and resource is allowed to the child and denied to the parent
	Refuted  Proof = "refuted"  // the Witness is
	Unproven Proof = "unproven" // the wildcards are too entangled to tell within the time of a call; take it as Refuted
)

// NotWider says whether the child can never do what the parent may not: whether there is
// no permission and resource that child allows and parent denies. It evaluates both lists
// alone, so put the rules of the agents before those of the sessions. A Witness is checked by
// Evaluate; as a rule it is one of the shortest.
//
// The question is hard in general, so the work is bounded, to about half a second: where
// that is not enough the answer is Unproven. Rules as people write them need less than a
// millisecond.
func NotWider(parent, child Rules) (Witness, Proof) { return Matching{}.NotWider(parent, child) }

// NotWider is like the function of that name.
func (m Matching) NotWider(parent, child Rules) (Witness, Proof) {
	w := wider{Matching: m, left: widerSteps, parent: parent, child: child}
	for _, r := range parent {
		w.parentAreas = append(w.parentAreas, m.area(r))
	}
	for _, r := range child {
		w.childAreas = append(w.childAreas, m.area(r))
	}
	for j, d := range parent {
		if d.Effect == Allow || d.Effect == Ask || covered(w.parentAreas, j, &w.left) {
			continue
		}
		for i, a := range child {
			if w.left == 0 {
				return w.guess()
			}
			if a.Effect != Allow || covered(w.childAreas, i, &w.left) || !w.childAreas[i].meets(w.parentAreas[j], &w.left) {
				continue
			}
			if witness, ok := w.pair(i, j); ok {
				return witness, Refuted
			}
		}
	}
	if w.left == 0 {
		return w.guess()
	}
	return Witness{}, Proven
}

// widerSteps bounds the work of NotWider.
const widerSteps = 50_000_000

// A wider looks for a witness pair by pair: an allow of the child and a deny of the parent
// that both match, while no later rule of either does. Later rules that do not meet both
// do not matter, and a text that a later rule matches whatever comes is given up at
// once, so that few states are left to look at.
type wider struct {
	Matching
	left                    globBudget
	parent, child           Rules
	parentAreas, childAreas []ruleArea
}

// covered reports whether a later rule than i has all of its area.
func covered(areas []ruleArea, i int, left *globBudget) bool {
	return slices.ContainsFunc(areas[i+1:], func(a ruleArea) bool { return *left == 0 || a.covers(areas[i], left) }) && *left > 0
}

func (w *wider) pair(i, j int) (found Witness, ok bool) {
	allow, deny := w.childAreas[i], w.parentAreas[j]
	var later []ruleArea
	for _, a := range slices.Concat(w.others(w.child, w.childAreas, i), w.others(w.parent, w.parentAreas, j)) {
		if a.covers(allow, &w.left) || a.covers(deny, &w.left) {
			return found, false
		}
		if a.meets(allow, &w.left) && a.meets(deny, &w.left) {
			later = append(later, a)
		}
	}
	var perms [][]ruleGlob
	for _, a := range later {
		perms = append(perms, a.perm)
	}
	// A permission decides which of the later rules are about it. Each set of these that
	// some permission has is looked at, but for those that have another one in them.
	var tried []ruleSet
	w.search(allow.perm, deny.perm, perms, false, func(permission string, hit ruleSet) bool {
		if !w.left.spend(len(tried)*len(later)) || slices.ContainsFunc(tried, hit.has) {
			return false
		}
		tried = append(tried, hit)
		var ress [][]ruleGlob
		for k, a := range later {
			if hit[k] {
				ress = append(ress, a.res)
			}
		}
		ok = w.search(allow.res, deny.res, ress, true, func(resource string, _ ruleSet) bool {
			p, c := w.Evaluate(permission, resource, w.parent), w.Evaluate(permission, resource, w.child)
			found = Witness{permission, resource, p, c}
			if p.Effect != Deny || c.Effect != Allow {
				w.left = 0 // the text has half a surrogate pair, so there is none in UTF-8
				return false
			}
			return true
		})
		return ok || len(ress) == 0 // with no later rule in the way there is no better permission
	})
	return found, ok
}

// guess tries a few texts that an allow of the child and a deny of the parent both match, where
// the search came to no end.
func (w *wider) guess() (Witness, Proof) {
	size := 1 // what an evaluation costs, about
	for _, r := range slices.Concat(w.parent, w.child) {
		size += 50 + len(r.Permission) + len(r.Pattern)
	}
	tries := widerSteps / size
	for j, d := range w.parent {
		for i, a := range w.child {
			if tries--; tries < 0 {
				return Witness{}, Unproven
			}
			if d.Effect != Deny || a.Effect != Allow {
				continue
			}
			for _, perm := range w.samples(w.childAreas[i].perm, w.parentAreas[j].perm) {
				for _, res := range w.samples(w.childAreas[i].res, w.parentAreas[j].res) {
					tries--
					p, c := w.Evaluate(perm, res, w.parent), w.Evaluate(perm, res, w.child)
					if p.Effect == Deny && c.Effect == Allow {
						return Witness{perm, res, p, c}, Refuted
					}
				}
			}
		}
	}
	return Witness{}, Unproven
}

// samples returns some texts that both match, or may.
func (w *wider) samples(a, b []ruleGlob) []string {
	const most = 4
	left := globBudget(2000)
	var out []string
	for _, g := range a {
		for _, h := range b {
			if len(g)+len(h) > int(left) {
				continue
			}
			both, _ := g.intersect(h, &left)
			units := w.alphabet([][]ruleGlob{{g, h}})
			other := string(rune(units[len(units)-1]))
			for _, x := range both[:min(len(both), most)] {
				p := x.pattern()
				out = append(out, strings.NewReplacer("*", "", "?", other).Replace(p), strings.NewReplacer("*", other, "?", other).Replace(p))
			}
		}
	}
	return out
}

// others returns the areas of the rules behind i that have another effect; one with the
// same makes no difference.
func (w *wider) others(rules Rules, areas []ruleArea, i int) []ruleArea {
	var out []ruleArea
	for k := i + 1; k < len(rules); k++ {
		if w.left.spend(1) && rules[k].Effect != rules[i].Effect {
			out = append(out, areas[k])
		}
	}
	return out
}

// A ruleSet says which patterns match.
type ruleSet []bool

// has reports whether all of t is in s.
func (s ruleSet) has(t ruleSet) bool {
	for i := range t {
		if t[i] && !s[i] {
			return false
		}
	}
	return true
}

// search goes through the texts that both a and b match, shortest first, one for each way in
// which the others match, until found returns true. With strict, none of the others may.
func (w *wider) search(a, b []ruleGlob, others [][]ruleGlob, strict bool, found func(string, ruleSet) bool) bool {
	patterns := slices.Concat([][]ruleGlob{a, b}, others)
	units := w.alphabet(patterns)
	n, ok := newGlobWalk(patterns, units, &w.left)
	if !ok {
		return false
	}
	type step struct {
		state []uint64
		from  int // in queue
		unit  int32
	}
	queue := []step{{state: n.start, from: -1}}
	next, buf := make([]uint64, len(n.start)), stateKey(nil, n.start)
	seen := map[string]bool{string(buf): true}
	ways := make(map[string]bool)
	for at := 0; at < len(queue); at++ {
		state := queue[at].state
		if n.at(state, n.ends[0]) && n.at(state, n.ends[1]) {
			hit, way := n.hits(state)
			if !ways[way] && !(strict && slices.Contains(hit, true)) {
				ways[way] = true
				var text []uint16
				for k := at; queue[k].from >= 0; k = queue[k].from {
					text = append(text, uint16(queue[k].unit))
				}
				slices.Reverse(text)
				if found(string(utf16.Decode(text)), hit) {
					return true
				}
			}
		}
		for _, unit := range units {
			if !w.left.spend(4 * len(state)) {
				return false
			}
			n.next(next, state, unit)
			if n.lost(next, strict) {
				continue
			}
			buf = stateKey(buf[:0], next)
			if seen[string(buf)] {
				continue
			}
			if !w.left.spend(512) { // what a new state costs in time and memory, about
				return false
			}
			seen[string(buf)] = true
			queue = append(queue, step{slices.Clone(next), at, unit})
		}
	}
	return false
}

// alphabet returns the units that patterns name, and one that stands for all others.
func (m Matching) alphabet(patterns [][]ruleGlob) []int32 {
	var units []int32
	for _, globs := range patterns {
		for _, g := range globs {
			for _, u := range g {
				if u >= 0 {
					units = append(units, u)
				}
			}
		}
	}
	slices.Sort(units)
	units = slices.Compact(units)
	other := func(u rune) bool {
		_, named := slices.BinarySearch(units, u)
		_, folded := slices.BinarySearch(units, foldUnit(u))
		return !named && !(m.FoldCase && folded)
	}
	for _, u := range "xyzabcdefghijklmnopqrstuvw0123456789" {
		if other(u) {
			return append(units, u)
		}
	}
	for u := rune(0x4E00); u < 0xD800; u++ { // more than any pattern names, or else
		if other(u) {
			return append(units, u)
		}
	}
	return units
}

// A globWalk reads several patterns at once, bit-parallel: a state has a bit for each place in
// a pattern up to which a text may have been read.
type globWalk struct {
	takes map[int32][]uint64 // the places that go on with a unit
	anys  []uint64           // the places at a "?"
	runs  []uint64           // the places at a "*", which stay
	start []uint64
	all   [][]uint64 // of each pattern its places,
	ends  [][]uint64 // and those that are a whole match
	tails []uint64   // the places at a "*" at the end, for all patterns but the first two: they match whatever comes
}

func newGlobWalk(patterns [][]ruleGlob, units []int32, left *globBudget) (*globWalk, bool) {
	size := 0
	for _, globs := range patterns {
		for _, g := range globs {
			size += len(g) + 1
		}
	}
	words := (size + 63) / 64
	if !left.spend(words * (5 + len(units) + 2*len(patterns))) {
		return nil, false
	}
	bitmap := func() []uint64 { return make([]uint64, words) }
	n := &globWalk{takes: make(map[int32][]uint64, len(units)), anys: bitmap(), runs: bitmap(), start: bitmap(), tails: bitmap()}
	for _, u := range units {
		n.takes[u] = bitmap()
	}
	put := func(bits []uint64, i int) { bits[i/64] |= 1 << (i % 64) }
	bit := 0
	for i, globs := range patterns {
		all, ends := bitmap(), bitmap()
		for _, g := range globs {
			put(n.start, bit)
			for k, u := range g {
				put(all, bit)
				switch u {
				case anyRun:
					put(n.runs, bit)
					if k == len(g)-1 && i >= 2 {
						put(n.tails, bit)
					}
				case anyUnit:
					put(n.anys, bit)
				default:
					put(n.takes[u], bit)
				}
				bit++
			}
			put(all, bit)
			put(ends, bit)
			bit++
		}
		n.all, n.ends = append(n.all, all), append(n.ends, ends)
	}
	n.skip(n.start)
	return n, true
}

// skip adds the places behind a "*", which may stand for nothing. No "*" follows another.
func (n *globWalk) skip(state []uint64) {
	carry := uint64(0)
	for i := range state {
		runs := state[i] & n.runs[i]
		state[i] |= runs<<1 | carry
		carry = runs >> 63
	}
}

// next sets out to the state behind unit.
func (n *globWalk) next(out, state []uint64, unit int32) {
	takes, carry := n.takes[unit], uint64(0)
	for i, s := range state {
		on := s & (takes[i] | n.anys[i])
		out[i] = on<<1 | carry | s&n.runs[i]
		carry = on >> 63
	}
	n.skip(out)
}

// at reports whether state has one of the places.
func (n *globWalk) at(state, places []uint64) bool {
	for i, s := range state {
		if s&places[i] != 0 {
			return true
		}
	}
	return false
}

// lost reports whether nothing that may follow matters.
func (n *globWalk) lost(state []uint64, strict bool) bool {
	if !n.at(state, n.all[0]) || !n.at(state, n.all[1]) {
		return true
	}
	return strict && n.at(state, n.tails)
}

// hits returns which of the patterns behind the first two match, also as a key.
func (n *globWalk) hits(state []uint64) (ruleSet, string) {
	hit, way := make(ruleSet, len(n.ends)-2), make([]byte, len(n.ends)-2)
	for i, ends := range n.ends[2:] {
		if n.at(state, ends) {
			hit[i], way[i] = true, 1
		}
	}
	return hit, string(way)
}

// stateKey appends state to b.
func stateKey(b []byte, state []uint64) []byte {
	for _, s := range state {
		b = binary.LittleEndian.AppendUint64(b, s)
	}
	return b
}

package team

import "maps"

// EnvelopeStats is what an EnvelopeMatcher has counted. Nothing seen and nothing
// matched are two things.
type EnvelopeStats struct {
	Seen     uint64                     // texts that came
	Verdicts map[EnvelopeVerdict]uint64 // what became of them; the sum is Seen
	// Of the matched ones: Matched by generation, with the sum of
	// Verdicts[EnvelopeMatched]; and how many were notices, truncated, disputed.
	Matched                      map[Generation]uint64
	Notices, Truncated, Disputed uint64

	// By the name of the wrapper, or of the part that looked like one. A map keeps
	// the first 64 names, and counts further ones as MoreNames.
	NearMisses, Malformed, Others map[string]uint64
	// UnknownStates are words for a state that we do not know, bounded likewise.
	UnknownStates map[string]uint64
}

// MoreNames is the name of all names beyond the first 64, and of those that are too
// long to be one.
const MoreNames = "(more)"

const (
	mostNames   = 64
	longestName = 64
)

// Stats returns a copy of the counters.
func (m *EnvelopeMatcher) Stats() EnvelopeStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Verdicts, s.Matched = maps.Clone(s.Verdicts), maps.Clone(s.Matched)
	s.NearMisses, s.Malformed = maps.Clone(s.NearMisses), maps.Clone(s.Malformed)
	s.Others, s.UnknownStates = maps.Clone(s.Others), maps.Clone(s.UnknownStates)
	return s
}

func (m *EnvelopeMatcher) count(r reading) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.stats
	s.Seen++
	countIn(&s.Verdicts, r.verdict)
	switch r.verdict {
	case EnvelopeMatched:
		countIn(&s.Matched, r.Generation)
		if r.Notice {
			s.Notices++
		}
		if r.Truncated {
			s.Truncated++
		}
		if r.Confidence == ConfidenceDisputed {
			s.Disputed++
		}
		if r.State == ChildUnknown {
			countName(&s.UnknownStates, r.Word)
		}
	case EnvelopeNearMiss:
		countName(&s.NearMisses, r.name)
	case EnvelopeMalformed:
		countName(&s.Malformed, r.name)
	case EnvelopeOther:
		countName(&s.Others, r.name)
	}
}

func countIn[K comparable](counts *map[K]uint64, key K) {
	if *counts == nil {
		*counts = make(map[K]uint64)
	}
	(*counts)[key]++
}

// countName keeps a map small, whatever names a host or a model thinks of. A name
// is kept as a copy, or it would keep the whole text.
func countName(counts *map[string]uint64, name string) {
	if n, ok := (*counts)[name]; ok {
		(*counts)[name] = n + 1
		return
	}
	if len(name) > longestName || len(*counts) >= mostNames {
		name = MoreNames
	}
	countIn(counts, string([]byte(name)))
}

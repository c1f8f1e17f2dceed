package team

import "slices"

// What a turn keeps of what was said of it.

// alike reports whether two endings can both be true, as different hosts and
// generations say it.
func alike(a, b ChildState) bool {
	kin := func(s ChildState) ChildState {
		switch s {
		case ChildEmpty:
			return ChildCompleted
		case ChildStopped, ChildInterrupted:
			return ChildCancelled
		}
		return s
	}
	return a == ChildUnknown || b == ChildUnknown || kin(a) == kin(b)
}

// later takes evidence of a turn that has ended.
func (r *childRecord) later(t *ChildTurn, e evidence) bool {
	changed := false
	e.State = r.cancelled(e.State)
	if t.keep(e) {
		changed = true
		if t.State.Settled() && !alike(t.State, e.State) {
			t.conflict(JoinConflict{Counts: t.State, Said: e.JoinEvidence})
		}
	}
	return changed
}

func (t *ChildTurn) conflict(c JoinConflict) {
	if len(t.Conflicts) >= mostConflicts {
		t.Dropped++
		return
	}
	t.Conflicts = append(t.Conflicts, c)
}

// keep adds evidence to a turn, once: the first ones and the last ones stay.
func (t *ChildTurn) keep(e evidence) bool {
	for _, old := range t.Evidence {
		if old.Source == e.Source && old.What == e.What && old.State == e.State && old.ID == e.ID {
			return false
		}
	}
	if e.Source == FromEvent && t.State.Settled() && t.By.Source == FromEvent && t.By.What == e.What && t.State == e.State {
		return false // the same event again, as 1.x sends it after an error
	}
	if len(t.Evidence) >= mostEvidence {
		t.Evidence = slices.Delete(t.Evidence, mostEvidence/4, mostEvidence/4+1)
		t.Dropped++
	}
	t.Evidence = append(t.Evidence, e.JoinEvidence)
	return true
}

// learn takes the text of a turn, and where it was shown.
func (t *ChildTurn) learn(e evidence) bool {
	changed := false
	if e.answer != nil && (!t.Answer.Known || t.Answer.SHA256 != e.answer.SHA256) {
		t.Answer, changed = *e.answer, true
	}
	if e.sight != nil && t.Answer.First == nil {
		first := *e.sight
		t.Answer.First, changed = &first, true
	}
	t.refine()
	return changed
}

// refine tells a completed turn without a text from one that has one.
func (t *ChildTurn) refine() {
	switch {
	case !t.Answer.Known:
	case t.State == ChildCompleted && t.Answer.Size == 0:
		t.State = ChildEmpty
	case t.State == ChildEmpty && t.Answer.Size > 0:
		t.State = ChildCompleted
	}
}

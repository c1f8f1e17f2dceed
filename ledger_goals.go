package team

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// The limits of a goal list.
const (
	DefaultMaxGoals = 200
	MaxGoalChars    = 400 // Unicode code points, of a text and of a note
)

// goalsKey is the record that the goal list is. It is one record, so that merging,
// numbering and the limit hold in one step whatever the store; who adds
// something else at the same time is let through by Update.
const goalsKey = "goals"

// A GoalStatus is how far a goal is.
type GoalStatus string

// The statuses. There are no others.
const (
	GoalOpen    GoalStatus = "open"
	GoalDoing   GoalStatus = "doing"
	GoalDone    GoalStatus = "done"
	GoalBlocked GoalStatus = "blocked"
)

var goalMarks = map[GoalStatus]string{GoalOpen: "[ ]", GoalDoing: "[>]", GoalDone: "[x]", GoalBlocked: "[!]"}

// Mark returns the status as a mark in a list: "[ ]", "[>]", "[x]" or "[!]".
func (s GoalStatus) Mark() string { return goalMarks[s] }

func (s GoalStatus) check() error {
	if goalMarks[s] == "" {
		return &InvalidError{What: "goal status", Why: "is " + quoteName(string(s)), Offset: -1,
			Advice: "it is open, doing, done or blocked"}
	}
	return nil
}

// A Goal is one thing that the team is to reach.
type Goal struct {
	ID     int        `json:"id"` // from 1; never another goal's, also after a removal
	Text   string     `json:"text"`
	Status GoalStatus `json:"status"`
	Note   string     `json:"note,omitempty"` // to the status: what blocks it, what came out
	By     Caller     `json:"by"`             // who changed it last
	At     time.Time  `json:"at"`             // when
}

// String returns the goal as a line: "#3 [>] write the tests (half of them)".
func (g Goal) String() string {
	s := fmt.Sprintf("#%d %s %s", g.ID, g.Status.Mark(), g.Text)
	if g.Note != "" {
		s += " (" + g.Note + ")"
	}
	return s
}

// An AddedGoal is what became of a text that was added.
type AddedGoal struct {
	Goal
	Merged bool // the list had it already, in Goal's words and with its status
}

// A GoalError says why a reference leads to no goal. It is an ErrNotFound.
type GoalError struct {
	Ref        string
	Matches    int    // how many goals it fits; zero if none
	Candidates []Goal // if several, the first of them, at most 4
}

func (e *GoalError) Error() string {
	if e.Matches == 0 {
		return fmt.Sprintf("no goal is %s; name it by its number, or by words of its text", quoteName(e.Ref))
	}
	s := fmt.Sprintf("%s fits %d goals; name one by its number:", quoteName(e.Ref), e.Matches)
	for i, g := range e.Candidates {
		if i > 0 {
			s += ","
		}
		s += fmt.Sprintf(" #%d %s", g.ID, quoteName(g.Text))
	}
	if e.Matches > len(e.Candidates) {
		s += ", …"
	}
	return s
}

// Is reports whether target is ErrNotFound.
func (e *GoalError) Is(target error) bool { return target == ErrNotFound }

// goalList is the value of the record.
type goalList struct {
	Next  int    `json:"next"` // the id of the next goal
	Goals []Goal `json:"goals"`
}

// AddGoals adds a goal for each text, open and at the end of the list, and
// returns what became of each, in order. A text that differs from one in the list
// only in case, spacing or closing punctuation is merged into that, whatever its
// status.
//
// A text is one line of at most 400 characters; runs of spaces and line breaks
// count as one space and are kept as one. If one text is malformed or too long, or the
// list would have more than MaxGoals, nothing is added.
func (l *Ledger) AddGoals(ctx context.Context, texts ...string) ([]AddedGoal, error) {
	added, err := l.addGoals(ctx, texts)
	count := len(texts)
	for _, a := range added {
		if a.Merged {
			count--
		}
	}
	l.traceGoals(ctx, count, err)
	return added, edge("ledger.goals", "", err)
}

func (l *Ledger) addGoals(ctx context.Context, texts []string) ([]AddedGoal, error) {
	if len(texts) == 0 {
		return nil, &InvalidError{What: "goals", Why: "are none", Offset: -1}
	}
	caller, err := callerOf(ctx)
	if err != nil {
		return nil, err
	}
	clean, folded := make([]string, len(texts)), make([]string, len(texts))
	for i, text := range texts {
		if clean[i], err = goalText("goal text", text); err != nil {
			return nil, err
		}
		if folded[i] = foldGoal(clean[i]); folded[i] == "" {
			return nil, &InvalidError{What: "goal text", Why: "says nothing", Offset: -1}
		}
	}
	var added []AddedGoal
	_, err = l.editGoals(ctx, func(list *goalList) (bool, error) {
		added = make([]AddedGoal, len(texts))
		has := make(map[string]int, len(list.Goals)+len(texts)) // folded text to place
		for i, g := range list.Goals {
			has[foldGoal(g.Text)] = i
		}
		before := len(list.Goals)
		for i, text := range clean {
			at, merged := has[folded[i]]
			if !merged {
				at = len(list.Goals)
				has[folded[i]] = at
				list.Goals = append(list.Goals, Goal{ID: list.Next, Text: text, Status: GoalOpen, By: caller, At: goalTime()})
				list.Next++
			}
			added[i] = AddedGoal{Goal: list.Goals[at], Merged: merged}
		}
		if n := len(list.Goals); n > before && over(n, l.opts.MaxGoals) {
			return false, &LimitError{What: "ledger goals", Got: int64(n), Max: int64(l.opts.MaxGoals),
				Advice: "remove those that are done, or put the plan on the board and its path here"}
		}
		return len(list.Goals) > before, nil
	})
	if err != nil {
		return nil, err
	}
	return added, nil
}

// SetGoal gives the goal that ref leads to a status, and a note to it, which
// replaces the old one; it may be empty. It returns the goal.
//
// ref is a number ("3" or "#3"), or words that are in the text of one goal only;
// case, spacing and closing punctuation do not count. The whole text goes before
// a part of another. A ref that fits none, or several, is a *GoalError with candidates.
func (l *Ledger) SetGoal(ctx context.Context, ref string, status GoalStatus, note string) (Goal, error) {
	var goal Goal
	err := status.check()
	if err == nil {
		note, err = goalText("goal note", note)
	}
	var caller Caller
	if err == nil {
		caller, err = callerOf(ctx)
	}
	wrote := false
	if err == nil {
		wrote, err = l.editGoals(ctx, func(list *goalList) (bool, error) {
			i, err := list.find(ref)
			if err != nil {
				return false, err
			}
			g := &list.Goals[i]
			changed := g.Status != status || g.Note != note
			if changed {
				g.Status, g.Note, g.By, g.At = status, note, caller, goalTime()
			}
			goal = *g
			return changed, nil
		})
	}
	if wrote || err != nil {
		l.traceGoals(ctx, 1, err)
	}
	if err != nil {
		return Goal{}, edge("ledger.goals", ref, err)
	}
	return goal, nil
}

// RemoveGoal takes the goal that ref leads to off the list, and returns it. No
// other goal gets its number.
func (l *Ledger) RemoveGoal(ctx context.Context, ref string) (Goal, error) {
	var goal Goal
	_, err := l.editGoals(ctx, func(list *goalList) (bool, error) {
		i, err := list.find(ref)
		if err != nil {
			return false, err
		}
		goal = list.Goals[i]
		list.Goals = slices.Delete(list.Goals, i, i+1)
		return true, nil
	})
	l.traceGoals(ctx, 1, err)
	if err != nil {
		return Goal{}, edge("ledger.goals", ref, err)
	}
	return goal, nil
}

// Goals returns the goals that have one of the statuses, or all if none is
// named, in the order in which they were added. The list is one record, bounded by
// MaxGoals and MaxGoalChars; it does not expire.
func (l *Ledger) Goals(ctx context.Context, statuses ...GoalStatus) ([]Goal, error) {
	for _, s := range statuses {
		if err := s.check(); err != nil {
			return nil, edge("ledger.goals", "", err)
		}
	}
	found, err := l.look(ctx, goalsKey)
	if err == nil {
		err = found.err
	}
	var list goalList
	if err == nil {
		list, err = decodeGoals(found.fact.Value)
	}
	if err != nil {
		return nil, edge("ledger.goals", "", err)
	}
	return slices.DeleteFunc(list.Goals, func(g Goal) bool {
		return len(statuses) > 0 && !slices.Contains(statuses, g.Status)
	}), nil
}

// traceGoals tells of a write of the list that was about so many goals. If it was about
// none there was no write.
func (l *Ledger) traceGoals(ctx context.Context, count int, err error) {
	if count > 0 || err != nil {
		l.trace(ctx, TraceEvent{Op: "ledger.goals", ID: l.prefix + goalsKey, Count: count}, err)
	}
}

// editGoals changes the list until no other writer comes between, and reports whether
// it wrote. change says whether it did anything.
func (l *Ledger) editGoals(ctx context.Context, change func(list *goalList) (bool, error)) (bool, error) {
	_, wrote, err := l.update(ctx, goalsKey, Forever, func(old Fact) (json.RawMessage, error) {
		list, err := decodeGoals(old.Value)
		if err != nil {
			return nil, err
		}
		changed, err := change(&list)
		if err != nil || !changed {
			return nil, err
		}
		return json.Marshal(list)
	})
	return wrote, err
}

func goalTime() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// decodeGoals reads the list; no value is an empty one.
func decodeGoals(value []byte) (goalList, error) {
	list := goalList{Next: 1}
	if value == nil {
		return list, nil
	}
	err := json.Unmarshal(value, &list)
	last := 0
	for _, g := range list.Goals {
		if g.ID <= last || g.Status.check() != nil {
			err = fmt.Errorf("goal %d is out of place", g.ID)
		}
		last = max(last, g.ID)
	}
	if err != nil || list.Next <= last {
		return goalList{}, fmt.Errorf("%w: the goal list cannot be read (%v)", ErrCorrupt, err)
	}
	return list, nil
}

// find returns the place of the goal that ref leads to.
func (list goalList) find(ref string) (int, error) {
	if n := utf8.RuneCountInString(ref); n > MaxGoalChars {
		return 0, &LimitError{What: "goal reference characters", Got: int64(n), Max: MaxGoalChars, TooLarge: true}
	}
	number := strings.TrimPrefix(strings.TrimSpace(ref), "#")
	if number != "" && strings.Trim(number, "0123456789") == "" {
		id, err := strconv.Atoi(number)
		i := slices.IndexFunc(list.Goals, func(g Goal) bool { return err == nil && g.ID == id })
		if i < 0 {
			return 0, &GoalError{Ref: ref}
		}
		return i, nil
	}
	words := foldGoal(ref)
	if words == "" {
		return 0, &InvalidError{What: "goal reference", Why: "is empty", Offset: -1}
	}
	var fits []int
	for i, g := range list.Goals {
		text := foldGoal(g.Text)
		if text == words {
			return i, nil // no two goals have one text
		}
		if strings.Contains(text, words) {
			fits = append(fits, i)
		}
	}
	if len(fits) == 1 {
		return fits[0], nil
	}
	e := &GoalError{Ref: ref, Matches: len(fits)}
	for _, i := range fits[:min(len(fits), 4)] {
		e.Candidates = append(e.Candidates, list.Goals[i])
	}
	return 0, e
}

// goalText returns text as it is kept: one line, with single spaces.
func goalText(what, text string) (string, error) {
	if !utf8.ValidString(text) {
		return "", &InvalidError{What: what, Why: "is not UTF-8", Offset: invalidAt(text)}
	}
	text = strings.Join(strings.Fields(text), " ")
	if n := utf8.RuneCountInString(text); n > MaxGoalChars {
		return "", &LimitError{What: what + " characters", Got: int64(n), Max: MaxGoalChars, TooLarge: true,
			Advice: "put the details on the board and their path here"}
	}
	return text, checkLine(what, text)
}

// closing are the marks that may end a text without changing it: not "#", "+",
// quotes or brackets, which can be part of a name.
const closing = ".,;:!?…。．，、；：！？।؟؛۔"

// foldGoal returns what two texts have in common that say the same: it leaves
// out case, spacing and closing punctuation.
func foldGoal(text string) string {
	// Canonical caseless matching (Unicode, D145): decompose, fold, compose. Marks
	// that have a capital, such as U+0345, are in another order as letters.
	text = norm.NFC.String(strings.Map(foldRune, norm.NFD.String(text)))
	text = strings.Join(strings.Fields(text), " ")
	return strings.TrimRightFunc(text, func(r rune) bool { return r == ' ' || strings.ContainsRune(closing, r) })
}

// foldRune returns the least of the runes that differ from r only in case.
func foldRune(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return least
}

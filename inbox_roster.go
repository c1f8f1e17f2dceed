package team

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// A Member is a session on the roster.
type Member struct {
	Session SessionID `json:"session"`
	Role    Role      `json:"role"`
	Parent  SessionID `json:"parent,omitempty"` // the session that started it; empty for a lead
}

const rosterPrefix = "team/roster/"

// Enrol puts m on the roster, so that signals can be sent to it. A session that
// is on it already gets the new role and parent.
func (c *SignalChannel) Enrol(ctx context.Context, m Member) error {
	err := c.enrol(ctx, m)
	c.trace(ctx, TraceEvent{Op: "inbox.enrol", ID: string(m.Role), Target: m.Session}, err)
	return edge("inbox.enrol", string(m.Session), err)
}

func (c *SignalChannel) enrol(ctx context.Context, m Member) error {
	for _, name := range []struct{ what, s string }{
		{"session", string(m.Session)}, {"role", string(m.Role)}, {"parent", string(m.Parent)},
	} {
		if name.s == "" && name.what != "parent" {
			return &InvalidError{What: name.what, Why: "is empty", Offset: -1}
		}
		if err := checkName(name.what, name.s); err != nil {
			return err
		}
	}
	if m.Session == m.Parent {
		return &InvalidError{What: "parent", Why: "is the session itself", Offset: -1}
	}
	value, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = c.store.Put(ctx, rosterPrefix+string(m.Session), value, AnyVersion)
	return err
}

// Leave takes a session off the roster. What is in its inbox stays there.
// ErrNotFound if it is not on the roster.
func (c *SignalChannel) Leave(ctx context.Context, session SessionID) error {
	err := c.store.Delete(ctx, rosterPrefix+string(session), AnyVersion)
	c.trace(ctx, TraceEvent{Op: "inbox.leave", Target: session}, err)
	return edge("inbox.leave", string(session), err)
}

// Roster yields who is on the roster, by session.
func (c *SignalChannel) Roster(ctx context.Context) iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		for key, err := range c.store.Keys(ctx, rosterPrefix, "") {
			var m Member
			if err == nil {
				m, err = c.member(ctx, SessionID(strings.TrimPrefix(key, rosterPrefix)))
				if errors.Is(err, ErrNotFound) {
					continue // left in this moment
				}
			}
			if !yield(m, edge("inbox.roster", "", err)) || err != nil {
				return
			}
		}
	}
}

func (c *SignalChannel) member(ctx context.Context, session SessionID) (Member, error) {
	r, err := c.store.Get(ctx, rosterPrefix+string(session))
	if err != nil {
		return Member{}, err
	}
	var m Member
	if err := json.Unmarshal(r.Value, &m); err != nil {
		return Member{}, fmt.Errorf("%w: roster record of %s: %w; enrol it again", ErrCorrupt, session, err)
	}
	return m, nil
}

// resolve returns the sessions that the addresses stand for, without doubles, in
// their order. A session's id goes before a role of the same name. A role means
// that of the sender's own team: the sessions with the same lead at their top. A
// sender with neither parent nor child has no team, and means anybody.
func (c *SignalChannel) resolve(ctx context.Context, from SessionID, to []string) ([]SessionID, error) {
	if len(to) == 0 {
		return nil, &InvalidError{What: "recipients", Why: "are empty", Offset: -1}
	}
	var sessions []SessionID
	var roster []Member // read at most once, and only for roles
	for _, address := range to {
		if address == "" {
			return nil, &InvalidError{What: "recipient", Why: "is empty", Offset: -1}
		}
		if checkName("recipient", address) != nil {
			return nil, &RecipientError{To: address} // nobody can have this name
		}
		m, err := c.member(ctx, SessionID(address))
		if errors.Is(err, ErrNotFound) {
			if roster == nil {
				for m, err := range c.Roster(ctx) {
					if err != nil {
						return nil, err
					}
					roster = append(roster, m)
				}
			}
			m.Session, err = resolveRole(roster, from, address)
		}
		if err != nil {
			return nil, err
		}
		if !slices.Contains(sessions, m.Session) {
			sessions = append(sessions, m.Session)
		}
	}
	return sessions, nil
}

func resolveRole(roster []Member, from SessionID, role string) (SessionID, error) {
	parents := make(map[SessionID]SessionID, len(roster))
	inTeam := false // from has a parent or a child
	for _, m := range roster {
		parents[m.Session] = m.Parent
		inTeam = inTeam || m.Parent == from || m.Session == from && m.Parent != ""
	}
	lead := leadOf(parents, from)
	var found, others []SessionID
	var names []string
	for _, m := range roster {
		names = append(names, string(m.Session), string(m.Role))
		// Hosts have changed the casing of agent names before.
		if !strings.EqualFold(string(m.Role), role) {
			continue
		}
		if !inTeam || leadOf(parents, m.Session) == lead {
			found = append(found, m.Session)
		} else {
			others = append(others, m.Session)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found)+len(others) == 0:
		return "", &RecipientError{To: role, Near: near(role, names)}
	case len(found) == 0:
		return "", &RecipientError{To: role, Candidates: others}
	default:
		return "", &RecipientError{To: role, Candidates: found}
	}
}

// leadOf returns the session at the top of session's chain of parents.
func leadOf(parents map[SessionID]SessionID, session SessionID) SessionID {
	const most = 100 // a circle of parents ends too
	for range most {
		parent := parents[session]
		if parent == "" {
			break
		}
		session = parent
	}
	return session
}

// near returns up to five names that resemble name, best first. Nobody misspells
// a name that is very long.
func near(name string, names []string) []string {
	const longest = 64
	if len(name) > longest {
		return nil
	}
	slices.Sort(names)
	names = slices.Compact(names)
	distance := make(map[string]int, len(names))
	names = slices.DeleteFunc(names, func(s string) bool {
		most := max(2, len(name)/3)
		if d := len(s) - len(name); d > most || -d > most {
			return true
		}
		distance[s] = editDistance(strings.ToLower(name), strings.ToLower(s))
		return distance[s] > most
	})
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(distance[a], distance[b]) })
	return names[:min(len(names), 5)]
}

// editDistance counts the bytes to insert, delete or change to get from a to b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

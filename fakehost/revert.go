package fakehost

import (
	"cmp"
	"context"
)

// A Revert is a place in a session that it is to go back to, until that is committed or cleared.
type Revert struct {
	Message string `json:"messageID"` // this message goes, and all behind it

	// Generation 1. Files stay as they are, so there is no difference.
	Snapshot string  `json:"snapshot,omitempty"`
	Diff     *string `json:"diff,omitempty"`
}

// Stage marks a message as the one that the session goes back to. The next prompt of a user commits it
// first; while it is staged a synthetic is recorded and wakes nobody. A *ConflictError while the
// session is busy. Files stay as they are: there are no snapshots here.
//
// OpenCode 1.18: POST /session/:id/revert. 2.0: /revert/stage, event session.revert.staged.
func (d *SessionDomain) Stage(ctx context.Context, session, message string) error {
	return d.revert(ctx, "stage", session, func(t *tx, s *Session) error {
		m, err := t.message(message)
		if err != nil || m.Session != session {
			return cmp.Or(err, error(&NotFoundError{"message", message}))
		}
		s.Revert = &Revert{Message: message}
		if s.v1 {
			s.Revert.Snapshot, s.Revert.Diff = snapshot, new(string)
		}
		return t.revertEvent("staged", s, map[string]any{"revert": s.Revert})
	})
}

// Unstage takes Stage back; without one it changes nothing.
//
// OpenCode 1.18: POST /session/:id/unrevert. 2.0: DELETE /revert, event session.revert.cleared.
func (d *SessionDomain) Unstage(ctx context.Context, session string) error {
	return d.revert(ctx, "unstage", session, func(t *tx, s *Session) error {
		if s.Revert == nil {
			return nil
		}
		s.Revert = nil
		return t.revertEvent("cleared", s, map[string]any{})
	})
}

// Commit removes the message that was staged, and all behind it; without one it changes nothing.
//
// OpenCode 2.0: POST /revert/commit, event session.revert.committed. 1.18 has no such call: there only
// a prompt commits.
func (d *SessionDomain) Commit(ctx context.Context, session string) error {
	if d.h.profile.v1() {
		return d.h.absent("session.commit")
	}
	return d.revert(ctx, "commit", session, func(t *tx, s *Session) error { return t.commitRevert(s) })
}

func (d *SessionDomain) revert(ctx context.Context, method, session string, fn func(*tx, *Session) error) error {
	if err := d.h.enter(ctx, Call{Domain: "session", Method: method, Session: session}); err != nil {
		return err
	}
	return d.h.tx(func(t *tx) error {
		s, err := t.session(session)
		if err != nil {
			return err
		}
		if t.h.runs[session] != nil {
			return &ConflictError{session, "is busy; wait until it is idle"}
		}
		return fn(t, s)
	})
}

// revertEvent saves s and says what became of its revert.
func (t *tx) revertEvent(what string, s *Session, data map[string]any) error {
	if err := t.touch(s); err != nil || s.v1 {
		return err
	}
	data["sessionID"] = s.ID
	_, err := t.durable("session.revert."+what, s.ID, 1, data)
	return err
}

// commitRevert removes what the staged revert, if there is one, says.
func (t *tx) commitRevert(s *Session) error {
	if s.Revert == nil {
		return nil
	}
	to := s.Revert.Message
	s.Revert = nil
	gone, err := t.queryMessages(`WHERE session_id = ?1 AND seq >= (SELECT seq FROM message WHERE id = ?2) ORDER BY seq`, s.ID, to)
	if err != nil {
		return err
	}
	for _, m := range gone {
		if err := t.run(`DELETE FROM message WHERE id = ?`, m.ID); err != nil {
			return err
		}
		if s.v1 {
			t.emit("message.removed", s.ID, map[string]any{"sessionID": s.ID, "messageID": m.ID})
		}
	}
	return t.revertEvent("committed", s, map[string]any{"to": to})
}

// View marks the session as seen up to idle, the ms at which an execution ended that somebody looked
// at. It never goes back.
//
// OpenCode 2.0: POST /api/session/:id/view, event session.viewed.
func (d *SessionDomain) View(ctx context.Context, session string, idle int64) error {
	if d.h.profile.v1() {
		return d.h.absent("session.view")
	}
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "view", Session: session}); err != nil {
		return err
	}
	if idle <= 0 {
		return invalid("idle", "is not a time", "pass the session's time.idle")
	}
	return d.h.tx(func(t *tx) error {
		s, err := t.session(session)
		if err != nil || idle <= s.Viewed {
			return err
		}
		if err := t.run(`UPDATE session_v2 SET time_viewed = ?2 WHERE id = ?1`, session, idle); err != nil {
			return err
		}
		_, err = t.durable("session.viewed", session, 1, map[string]any{"sessionID": session, "idle": idle})
		return err
	})
}

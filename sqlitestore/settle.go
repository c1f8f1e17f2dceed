package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
)

// Settle makes the settlements that can take effect, in one transaction.
func (s *Store) Settle(ctx context.Context, queue string, settlements ...team.Settlement) error {
	if err := checkQueue(queue); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil || len(settlements) == 0 {
		return err
	}
	var refused []error
	err := s.do(&op{ctx: ctx, run: func(t *tx) error {
		refused = nil
		for _, st := range settlements {
			err := t.settle(queue, st)
			if fromSQLite(err) {
				return err
			}
			if err != nil {
				refused = append(refused, &team.SettleError{Seq: st.Seq, Verdict: st.Verdict, Err: err})
			}
		}
		return nil
	}})
	if err != nil {
		return err
	}
	return errors.Join(refused...)
}

// settle makes one settlement, or says why it cannot and changes nothing.
func (t *tx) settle(queue string, st team.Settlement) error {
	now := nowMilli()
	seq := int64(st.Seq)
	if st.Verdict == team.VerdictAck && st.Token != "" && st.Reason == "" {
		// What nearly always happens, in one statement.
		if n, err := t.c.exec(qAck, seq, queue, st.Token, now); err != nil || n == 1 {
			return err
		}
	}
	found := false
	var state int
	var expires int64
	var token string
	err := t.c.rows(qLook, func(row *sqlite3.Stmt) bool {
		found = true
		expires = row.ColumnInt64(2)
		state = stateAt(row.ColumnInt(0), row.ColumnInt64(1), expires, now)
		token = row.ColumnText(3)
		return false
	}, seq, queue)
	if err != nil {
		return err
	}
	if !found {
		return team.ErrNotFound
	}
	switch st.Verdict {
	case team.VerdictAck, team.VerdictRelease, team.VerdictExtend, team.VerdictBury:
		if token != "" && token == st.Token &&
			(state == acked && st.Verdict == team.VerdictAck || state == dead && st.Verdict == team.VerdictBury) {
			return nil // done before, and the answer was lost
		}
		if state != claimed {
			return fmt.Errorf("%w: the claim is over, the item is %s; claim it again, and extend the lease in time", team.ErrConflict, stateNames[state])
		}
		if st.Token == "" || token != st.Token {
			return fmt.Errorf("%w: the claim is over, another holds the item; extend the lease in time", team.ErrConflict)
		}
	case team.VerdictCancel, team.VerdictAmend:
		if state > delayed {
			return fmt.Errorf("item is %s, not pending: %w", stateNames[state], team.ErrConflict)
		}
	case team.VerdictRedrive:
		if state != dead {
			return fmt.Errorf("item is %s, not dead: %w", stateNames[state], team.ErrConflict)
		}
	}
	if err := checkVerdict(st); err != nil {
		return err
	}
	var reason any
	if st.Reason != "" {
		reason = st.Reason
	}
	switch st.Verdict {
	case team.VerdictAck:
		_, err = t.c.exec(qSettle, seq, acked, reason, now)
	case team.VerdictRelease:
		err = t.free(queue, seq, st.Delay, expires, false)
	case team.VerdictExtend:
		// The lease may end sooner than who waits for it thinks.
		t.ring(queue)
		_, err = t.c.exec(qSetLease, seq, afterMilli(time.Now().Add(st.Delay)))
	case team.VerdictBury:
		_, err = t.c.exec(qSettle, seq, dead, reason, now)
	case team.VerdictCancel:
		_, err = t.c.exec(qSettle, seq, cancelled, nil, now)
	case team.VerdictAmend:
		if err := checkSize("bytes of one item", len(st.Data)); err != nil {
			return err
		}
		_, err = t.c.exec(qAmend, seq, st.Data)
	case team.VerdictRedrive:
		err = t.free(queue, seq, 0, expires, true)
	}
	return err
}

// free makes an item pending, after a delay; again, without attempts, if it was dead.
func (t *tx) free(queue string, seq int64, delay time.Duration, expires int64, again bool) error {
	now := nowMilli()
	state, at := ready, expires
	if delay > 0 {
		state, at = delayed, afterMilli(time.Now().Add(delay))
		if expires > 0 {
			at = min(at, expires)
		}
	}
	if expires > 0 && expires <= now {
		state, at = expired, 0
	}
	reset := 0
	if again {
		reset = 1
	}
	t.ring(queue)
	_, err := t.c.exec(qSetPending, seq, state, at, reset, now)
	return err
}

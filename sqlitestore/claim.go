package sqlitestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
)

// poll is how often a waiting Claim looks for itself, should nobody ring. It is a
// variable for tests.
var poll = time.Second

// Claim that waits looks again when something rings, when the clock makes an item
// claimable, and about once a second to be sure. A Claim that ends in
// team.ErrUnknownOutcome is taken back if it was made; if even that fails, its lease
// ends as any other.
func (s *Store) Claim(ctx context.Context, queue string, opts team.ClaimOptions) ([]team.Claim, error) {
	if err := checkClaim(queue, opts); err != nil {
		return nil, err
	}
	claims, err := s.claim(ctx, queue, opts)
	if err != nil || len(claims) > 0 || !opts.Wait {
		return claims, err
	}
	w := s.bell.join(slotOf(queue))
	defer s.bell.leave(w)
	for {
		// After joining, so that what came in between is seen.
		there, next, err := s.peek(ctx, queue)
		if err != nil {
			return nil, err
		}
		if !there {
			rung, err := s.sleep(ctx, w, next)
			if err != nil {
				return nil, err
			}
			if !rung {
				continue
			}
		}
		claims, err := s.claim(ctx, queue, opts)
		if err != nil || len(claims) > 0 {
			return claims, err
		}
	}
}

// sleep waits until there may be something: w rings, next has come, or it is time
// to look anyway. It reports whether it was a ring.
func (s *Store) sleep(ctx context.Context, w *waiter, next int64) (rung bool, err error) {
	d := poll/2 + rand.N(poll)
	if next > 0 { // a clock that is set is noticed at the next poll
		d = min(d, max(time.Until(fromMilli(next)), 0))
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.rung:
		return true, nil
	case <-t.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-s.stop:
		return false, team.ErrClosed
	}
}

// peek reports whether Claim has something to do in queue, and if not, when the
// clock will change that; 0 is never.
func (s *Store) peek(ctx context.Context, queue string) (there bool, next int64, err error) {
	c, err := s.reader(ctx)
	if err != nil {
		return false, 0, err
	}
	defer s.giveBack(c)
	err = c.rows(qNext, func(row *sqlite3.Stmt) bool {
		there, next = row.ColumnBool(0), row.ColumnInt64(1)
		return false
	}, queue)
	return there || next > 0 && next <= nowMilli(), next, s.readError(ctx, err)
}

// claim is Claim without the waiting.
func (s *Store) claim(ctx context.Context, queue string, opts team.ClaimOptions) ([]team.Claim, error) {
	var claims []team.Claim
	err := s.do(&op{
		ctx: ctx,
		run: func(t *tx) (err error) {
			claims, err = t.claim(queue, opts)
			return err
		},
		undo: func(t *tx) error {
			for _, c := range claims {
				if _, err := t.c.exec(qUnclaim, int64(c.Seq), c.Token, nowMilli()); err != nil {
					return err
				}
			}
			t.ring(queue)
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	return claims, nil
}

// claim finds out first and changes then, so a refusal has changed nothing but what
// the clock has.
func (t *tx) claim(queue string, opts team.ClaimOptions) ([]team.Claim, error) {
	now := time.Now()
	nowMs := now.UnixMilli()
	if _, err := t.c.exec(qAdvance, queue, nowMs); err != nil {
		return nil, err
	}
	var claims []team.Claim
	type spent struct {
		seq     int64
		attempt int
	}
	var bury []spent
	left, dear := opts.Budget, -1
	err := t.c.rows(qReady, func(row *sqlite3.Stmt) bool {
		attempt, cost := row.ColumnInt(6), row.ColumnInt(4)
		if opts.MaxAttempts > 0 && attempt >= opts.MaxAttempts {
			bury = append(bury, spent{row.ColumnInt64(0), attempt})
			return true
		}
		if opts.Budget > 0 {
			if cost > left {
				dear = cost
				return false
			}
			left -= cost
		}
		it := readItem(row)
		it.Data = row.ColumnBlob(7, nil)
		claims = append(claims, team.Claim{Item: it.Item, Seq: it.Seq, Attempt: attempt + 1})
		return len(claims) < opts.Max
	}, queue)
	if err != nil {
		return nil, err
	}
	if len(claims) == 0 && dear >= 0 {
		return nil, &team.LimitError{
			What: "cost of the first item", Got: int64(dear), Max: int64(opts.Budget),
			Advice: "claim with a larger budget, or cancel the item",
		}
	}
	for _, b := range bury {
		reason := fmt.Sprintf("handed out %d times and never settled, limit %d", b.attempt, opts.MaxAttempts)
		if _, err := t.c.exec(qKill, b.seq, reason, nowMs); err != nil {
			return nil, err
		}
	}
	until := afterMilli(now.Add(opts.Lease))
	for i := range claims {
		c := &claims[i]
		c.Token, c.Until = newToken(), fromMilli(until)
		if _, err := t.c.exec(qClaim, int64(c.Seq), until, c.Token, nowMs); err != nil {
			return nil, err
		}
	}
	return claims, nil
}

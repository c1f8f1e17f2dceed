package sqlitestore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
	"github.com/teamchan/team/internal/portcheck"
)

// The states of a row; see schema.sql.
const (
	ready = iota
	delayed
	claimed
	acked
	cancelled
	expired
	dead
)

var stateNames = [...]team.ItemState{
	ready: team.ItemPending, delayed: team.ItemPending, claimed: team.ItemClaimed, acked: team.ItemAcked,
	cancelled: team.ItemCancelled, expired: team.ItemExpired, dead: team.ItemDead,
}

// stateAt is what a row's state is at now, when the clock may have changed it since
// it was written.
func stateAt(state int, at, expires, now int64) int {
	if at == 0 || at > now {
		return state
	}
	if expires > 0 && expires <= now {
		return expired
	}
	return ready
}

// nowMilli is the time that has passed for sure; afterMilli is not before t. So a
// lease never ends early.
func nowMilli() int64              { return time.Now().UnixMilli() }
func afterMilli(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }
func fromMilli(ms int64) time.Time { return time.UnixMilli(ms) }
func expiryMilli(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.Unix() <= 0:
		return 1
	case t.Unix() >= math.MaxInt64/1000: // more milliseconds than there is room for
		return math.MaxInt64
	default:
		return t.UnixMilli()
	}
}

// Append shares its transaction with whatever this process writes at that moment.
func (s *Store) Append(ctx context.Context, queue string, items []team.Item, max int) ([]team.Receipt, error) {
	size, err := checkItems(queue, items)
	if err != nil {
		return nil, err
	}
	var receipts []team.Receipt
	err = s.do(&op{
		ctx: ctx, size: size, late: len(items) > 1,
		run: func(t *tx) (err error) {
			receipts, err = t.append(queue, items, max)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return receipts, nil
}

// append is Append. With more than one item it can fail after it has changed
// something.
func (t *tx) append(queue string, items []team.Item, max int) ([]team.Receipt, error) {
	now := nowMilli()
	if max > 0 {
		if _, err := t.c.exec(qAdvance, queue, now); err != nil { // what expired does not count
			return nil, err
		}
	}
	receipts := make([]team.Receipt, len(items))
	added := 0
	for i, it := range items {
		var key, digest any
		if it.Digest != "" {
			digest = it.Digest
		}
		if it.Key != "" {
			key = it.Key
			replay, err := t.replay(queue, it, &receipts[i])
			if err != nil {
				return nil, err
			}
			if replay {
				continue
			}
		}
		if max > 0 && len(items) == 1 { // before anything is changed
			there := false
			err := t.c.rows(qByID, func(*sqlite3.Stmt) bool { there = true; return false }, queue, it.ID)
			if err != nil {
				return nil, err
			}
			if !there {
				if err := t.room(queue, 1, max); err != nil {
					return nil, err
				}
			}
		}
		_, err := t.c.exec(qInsert, queue, it.ID, expiryMilli(it.Expires), it.Cost, now, key, digest, it.Data)
		if errors.Is(err, sqlite3.CONSTRAINT_UNIQUE) {
			return nil, fmt.Errorf("id %.100q is in the queue already: %w", it.ID, team.ErrConflict)
		} else if err != nil {
			return nil, err
		}
		receipts[i] = team.Receipt{ID: it.ID, Seq: team.Seq(t.c.db.LastInsertRowID())}
		added++
	}
	if max > 0 && added > 0 && len(items) > 1 {
		if err := t.room(queue, 0, max); err != nil {
			return nil, err
		}
	}
	if added > 0 {
		t.ring(queue)
	}
	return receipts, nil
}

// replay looks for an item under the key of it, and fills in its receipt.
func (t *tx) replay(queue string, it team.Item, r *team.Receipt) (found bool, err error) {
	same := false
	err = t.c.rows(qByKey, func(row *sqlite3.Stmt) bool {
		found = true
		same = row.ColumnText(2) == it.Digest
		*r = team.Receipt{ID: row.ColumnText(1), Seq: team.Seq(row.ColumnInt64(0)), Replayed: true}
		return false
	}, queue, it.Key)
	if err == nil && found && !same {
		err = fmt.Errorf("%w: the key was used for another item; use another key, or append the first item as it was", team.ErrConflict)
	}
	return found, err
}

// room refuses if queue has no room for more items.
func (t *tx) room(queue string, more, max int) error {
	open := more
	err := t.c.rows(qCountOpen, func(row *sqlite3.Stmt) bool { open += row.ColumnInt(0); return false }, queue)
	if err == nil && open > max {
		err = &team.LimitError{
			What: "queue items not settled", Got: int64(open), Max: int64(max),
			Advice: "wait until the receiver has settled some",
		}
	}
	return err
}

// ring notes that whoever waits in queue is to look again.
func (t *tx) ring(queue string) { t.rang = append(t.rang, slotOf(queue)) }

// Items reads a page at a time on a connection of its own, and holds none while it
// yields, so the loop may call the store.
func (s *Store) Items(ctx context.Context, queue string, opts team.ListOptions) iter.Seq2[team.StoredItem, error] {
	return func(yield func(team.StoredItem, error) bool) {
		if err := checkQueue(queue); err != nil {
			yield(team.StoredItem{}, err)
			return
		}
		after := opts.After
		limit := 4 // who wants one only does not read many
		for {
			page, last, n, err := s.page(ctx, queue, after, limit, opts.Settled)
			for _, it := range page {
				if err := ctx.Err(); err != nil {
					yield(team.StoredItem{}, err)
					return
				}
				if !yield(it, nil) {
					return
				}
			}
			if err == nil && n < limit {
				err = ctx.Err()
				if err == nil {
					return
				}
			}
			if err != nil {
				yield(team.StoredItem{}, err)
				return
			}
			after = last
			limit = min(limit*4, 64)
		}
	}
}

// page returns the items among the next rows behind after, the last row, and how
// many rows there were.
func (s *Store) page(ctx context.Context, queue string, after team.Seq, limit int, settled bool) (page []team.StoredItem, last team.Seq, n int, err error) {
	c, err := s.reader(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	defer s.giveBack(c)
	q := qOpenItems
	if settled {
		q = qAllItems
	}
	now := nowMilli()
	err = c.rows(q, func(row *sqlite3.Stmt) bool {
		it := readItem(row)
		it.Attempt = row.ColumnInt(8)
		it.Reason = row.ColumnText(9)
		state := stateAt(row.ColumnInt(6), row.ColumnInt64(7), row.ColumnInt64(5), now)
		it.State = stateNames[state]
		it.Changed = fromMilli(row.ColumnInt64(11))
		if old := row.ColumnInt(6); stateNames[old] != it.State { // the clock did it, and nobody wrote it down yet
			it.Changed = fromMilli(row.ColumnInt64(7))
			if it.State == team.ItemExpired {
				it.Changed = fromMilli(max(row.ColumnInt64(7), row.ColumnInt64(5)))
			}
		}
		n++
		last = it.Seq
		if settled || !it.State.Settled() {
			it.Data = row.ColumnBlob(10, nil)
			page = append(page, it)
		}
		return true
	}, queue, int64(min(after, 1<<63-1)), limit)
	return page, last, n, s.readError(ctx, err)
}

// readItem reads seq, id, key, digest, cost, expires.
func readItem(row *sqlite3.Stmt) (it team.StoredItem) {
	it.Seq = team.Seq(row.ColumnInt64(0))
	it.ID = row.ColumnText(1)
	it.Key = row.ColumnText(2)
	it.Digest = row.ColumnText(3)
	it.Cost = row.ColumnInt(4)
	if ms := row.ColumnInt64(5); ms > 0 {
		it.Expires = fromMilli(ms)
	}
	return it
}

// checkItems returns how many bytes the items have.
func checkItems(queue string, items []team.Item) (size int, err error) {
	if err := checkQueue(queue); err != nil {
		return 0, err
	}
	for _, it := range items {
		if err := invalid(portcheck.Item(it.ID, it.Cost)); err != nil {
			return 0, err
		}
		n := len(it.ID) + len(it.Key) + len(it.Data)
		if err := checkSize("bytes of one item", n); err != nil {
			return 0, err
		}
		size += n
	}
	return size, nil
}

// newToken returns a fencing token that never was.
func newToken() string { return rand.Text() }

package memstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/internal/portcheck"
)

// Append adds copies of items to the end of queue.
func (s *Store) Append(ctx context.Context, queue string, items []team.Item, max int) ([]team.Receipt, error) {
	if err := checkQueue(queue); err != nil {
		return nil, err
	}
	batch, err := newItems(items)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queue(queue)
	defer s.kick(q)
	receipts, _, err := q.append(batch, max, time.Now())
	return receipts, err
}

// Claim hands out copies. Who waits is served in the order of coming, but a
// Claim that finds an item takes it and asks nobody.
func (s *Store) Claim(ctx context.Context, queue string, opts team.ClaimOptions) ([]team.Claim, error) {
	if err := checkClaim(queue, opts); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[queue]
	if q == nil {
		if !opts.Wait {
			return nil, ctx.Err()
		}
		q = s.queue(queue)
	}
	// However this ends, what it leaves is for the next waiter: also when it
	// was woken and its context ended before it could look.
	defer s.kick(q)
	for woken := false; ; woken = true {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		claims, err := q.claim(opts, time.Now())
		if err != nil || len(claims) > 0 || !opts.Wait {
			return claims, err
		}
		w := q.join(woken)
		s.kick(q)
		s.mu.Unlock()
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
		s.mu.Lock()
		q.leave(w)
	}
}

// Settle takes effect when it returns, and only for the settlements that no
// *SettleError in its error names.
func (s *Store) Settle(ctx context.Context, queue string, settlements ...team.Settlement) error {
	if err := checkQueue(queue); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[queue]
	if q == nil {
		q = newQueue() // an unknown queue is an empty one
	}
	defer s.kick(q)
	now := time.Now()
	q.advance(now)
	var errs []error
	for _, st := range settlements {
		if err := q.settle(st, now); err != nil {
			errs = append(errs, &team.SettleError{Seq: st.Seq, Verdict: st.Verdict, Err: err})
		}
	}
	return errors.Join(errs...)
}

// Items yields copies. It reads a page at a time and holds no lock while it
// yields, so the loop may call the store.
func (s *Store) Items(ctx context.Context, queue string, opts team.ListOptions) iter.Seq2[team.StoredItem, error] {
	return func(yield func(team.StoredItem, error) bool) {
		if err := checkQueue(queue); err != nil {
			yield(team.StoredItem{}, err)
			return
		}
		after := opts.After
		for {
			page, more := s.page(queue, after, opts.Settled)
			for _, it := range page {
				if err := ctx.Err(); err != nil {
					yield(team.StoredItem{}, err)
					return
				}
				if !yield(it, nil) {
					return
				}
				after = it.Seq
			}
			if !more {
				break
			}
		}
		if err := ctx.Err(); err != nil {
			yield(team.StoredItem{}, err)
		}
	}
}

// page returns the next items behind after, and whether there may be more.
func (s *Store) page(queue string, after team.Seq, settled bool) (page []team.StoredItem, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[queue]
	if q == nil {
		return nil, false
	}
	// A lease that is over and an expiry that has come are facts, whether or
	// not anybody looked; to note them down changes nothing.
	q.advance(time.Now())
	defer s.kick(q)
	list := q.live
	if settled {
		list = q.log
	}
	for _, it := range list[firstAfter(list, after):] {
		if !settled && it.state.Settled() {
			continue
		}
		if len(page) == perPage {
			return page, true
		}
		page = append(page, team.StoredItem{
			Item: it.copy(), Seq: it.seq, State: it.state, Attempt: it.attempt, Reason: it.reason, Changed: it.changed.Truncate(time.Millisecond),
		})
	}
	return page, false
}

// append is Append for items that newItems made. If it fails it has changed
// nothing; otherwise added are the items that were not replays.
func (q *queue) append(batch []*item, max int, now time.Time) (receipts []team.Receipt, added []*item, err error) {
	q.advance(now) // what expired does not count against max
	receipts = make([]team.Receipt, len(batch))
	for i, it := range batch {
		if first := q.keys[it.Key]; first != nil { // nothing is under the empty key
			if first.Digest != it.Digest {
				err = fmt.Errorf("%w: the key was used for another item; use another key, or append the first item as it was", team.ErrConflict)
				break
			}
			receipts[i] = team.Receipt{ID: first.ID, Seq: first.seq, Replayed: true}
			continue
		}
		if q.ids[it.ID] != nil {
			err = fmt.Errorf("id %q is in the queue already: %w", it.ID, team.ErrConflict)
			break
		}
		q.add(it, now)
		added = append(added, it)
		receipts[i] = team.Receipt{ID: it.ID, Seq: it.seq}
	}
	if err == nil && max > 0 && len(added) > 0 && q.open > max {
		err = &team.LimitError{
			What: "queue items not settled", Got: int64(q.open), Max: int64(max),
			Advice: "wait until the receiver has settled some",
		}
	}
	if err != nil {
		q.remove(added)
		return nil, nil, err
	}
	return receipts, added, nil
}

// claim is Claim without the waiting.
func (q *queue) claim(opts team.ClaimOptions, now time.Time) ([]team.Claim, error) {
	q.advance(now)
	var got, dead []*item
	var dear *item // where the budget ended: nothing overtakes it
	left := opts.Budget
	for len(got) < opts.Max && q.ready.Len() > 0 {
		it := q.ready.items[0]
		spent := opts.MaxAttempts > 0 && it.attempt >= opts.MaxAttempts
		if !spent && opts.Budget > 0 && it.Cost > left {
			dear = it
			break
		}
		q.ready.drop(it)
		if spent {
			dead = append(dead, it)
		} else {
			got = append(got, it)
			left -= it.Cost
		}
	}
	if dear != nil && len(got) == 0 {
		for _, it := range dead { // an error changes nothing, so not yet
			q.ready.put(it)
		}
		return nil, &team.LimitError{
			What: "cost of the first item", Got: int64(dear.Cost), Max: int64(opts.Budget),
		}
	}
	for _, it := range dead {
		it.state, it.token = team.ItemDead, ""
		it.reason = fmt.Sprintf("handed out %d times and never settled, limit %d", it.attempt, opts.MaxAttempts)
		q.place(it, now)
	}
	claims := make([]team.Claim, len(got))
	for i, it := range got {
		it.state = team.ItemClaimed
		it.attempt++
		it.token = rand.Text()
		it.until = now.Add(opts.Lease)
		q.place(it, now)
		claims[i] = team.Claim{Item: it.copy(), Seq: it.seq, Attempt: it.attempt, Token: it.token, Until: it.until}
	}
	return claims, nil
}

// settle does one settlement, or returns why it cannot. q must be up to date.
func (q *queue) settle(st team.Settlement, now time.Time) error {
	it := q.find(st.Seq)
	if it == nil {
		return team.ErrNotFound
	}
	switch st.Verdict {
	case team.VerdictAck, team.VerdictRelease, team.VerdictExtend, team.VerdictBury:
		if it.token != "" && it.token == st.Token &&
			(it.state == team.ItemAcked && st.Verdict == team.VerdictAck || it.state == team.ItemDead && st.Verdict == team.VerdictBury) {
			return nil // done before, and the answer was lost
		}
		if it.state != team.ItemClaimed {
			return fmt.Errorf("%w: the claim is over, the item is %s; claim it again, and extend the lease in time", team.ErrConflict, it.state)
		}
		if it.token != st.Token {
			return fmt.Errorf("%w: the claim is over, another holds the item; extend the lease in time", team.ErrConflict)
		}
	case team.VerdictCancel, team.VerdictAmend:
		if it.state != team.ItemPending {
			return fmt.Errorf("item is %s, not pending: %w", it.state, team.ErrConflict)
		}
	case team.VerdictRedrive:
		if it.state != team.ItemDead {
			return fmt.Errorf("item is %s, not dead: %w", it.state, team.ErrConflict)
		}
	}
	if err := checkVerdict(st); err != nil {
		return err
	}
	switch st.Verdict {
	case team.VerdictAck:
		it.state, it.reason = team.ItemAcked, st.Reason
	case team.VerdictRelease:
		it.state, it.until = team.ItemPending, now.Add(st.Delay)
	case team.VerdictExtend:
		it.until = now.Add(st.Delay)
	case team.VerdictBury:
		it.state, it.reason = team.ItemDead, st.Reason
	case team.VerdictCancel:
		it.state = team.ItemCancelled
	case team.VerdictAmend:
		it.Data = bytes.Clone(st.Data)
	case team.VerdictRedrive:
		it.state, it.reason, it.attempt, it.until = team.ItemPending, "", 0, time.Time{}
	}
	q.place(it, now)
	return nil
}

// newItems checks items and copies them, before anybody holds the lock.
func newItems(items []team.Item) ([]*item, error) {
	batch := make([]*item, len(items))
	for i, it := range items {
		if err := invalid(portcheck.Item(it.ID, it.Cost)); err != nil {
			return nil, err
		}
		it.Data = bytes.Clone(it.Data)
		batch[i] = &item{Item: it, state: team.ItemPending}
	}
	return batch, nil
}

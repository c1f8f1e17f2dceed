package memstore

import (
	"bytes"
	"container/heap"
	"container/list"
	"slices"
	"time"

	"github.com/teamchan/team"
)

// A queue is one named queue. Its items lie in four orders:
//
//	log    every item, by seq                      for Items, and to find one
//	live   the unsettled, by seq                   for Items without settled
//	ready  those that Claim may hand out, by seq   a heap
//	timed  those that the clock will change, by at a heap
//
// Whoever changes an item's state calls place, which puts it where it belongs.
// All of it is guarded by the Store's lock.
type queue struct {
	last  team.Seq
	log   []*item
	live  []*item
	stale int // how many of live are settled and not swept out yet
	open  int // how many items are not settled

	ids  map[string]*item
	keys map[string]*item

	ready, timed order

	waiters list.List   // of *waiter, first come first
	timer   *time.Timer // fires at timerAt; nil when nobody waits
	timerAt time.Time
}

// An item is one item of a queue.
type item struct {
	team.Item // Data is never changed, so copies may share it inside the store
	seq       team.Seq
	state     team.ItemState
	attempt   int
	reason    string
	was       team.ItemState // state when it was placed last
	changed   time.Time      // since when it is in its state
	token     string         // of the last claim
	until     time.Time      // until then it is held: by a claim, or by a release
	at        time.Time      // when the clock changes its state next

	spot   [2]int // its place in ready and in timed, from 1; 0 is not there
	open   bool   // it is counted as not settled
	listed bool   // it has a slot in live
}

func (it *item) copy() team.Item {
	c := it.Item
	c.Data = bytes.Clone(c.Data)
	return c
}

func newQueue() *queue {
	return &queue{
		ids:   make(map[string]*item),
		keys:  make(map[string]*item),
		ready: order{which: 0, less: func(a, b *item) bool { return a.seq < b.seq }},
		timed: order{which: 1, less: func(a, b *item) bool { return a.at.Before(b.at) }},
	}
}

// add puts a new item at the end.
func (q *queue) add(it *item, now time.Time) {
	q.last++
	it.seq = q.last
	q.ids[it.ID] = it
	if it.Key != "" {
		q.keys[it.Key] = it
	}
	q.log = append(q.log, it)
	q.place(it, now)
}

// remove undoes the last calls of add; their numbers are not used again.
func (q *queue) remove(added []*item) {
	for _, it := range slices.Backward(added) {
		delete(q.ids, it.ID)
		if it.Key != "" {
			delete(q.keys, it.Key)
		}
		q.log = q.log[:len(q.log)-1]
		it.state = team.ItemCancelled // so that it leaves the other orders
		q.place(it, time.Time{})
	}
}

// find returns the item of that number, or nil.
func (q *queue) find(seq team.Seq) *item {
	if i := firstAfter(q.log, seq); i > 0 && q.log[i-1].seq == seq {
		return q.log[i-1]
	}
	return nil
}

// place moves an item whose state has changed to where it belongs now. A
// pending item that is past its time is expired from here on.
func (q *queue) place(it *item, now time.Time) {
	if it.state == team.ItemPending && !it.Expires.IsZero() && !it.Expires.After(now) {
		it.state = team.ItemExpired
	}
	if it.state != it.was {
		it.was, it.changed = it.state, now
	}
	q.ready.drop(it)
	q.timed.drop(it)
	q.list(it)
	switch {
	case it.state.Settled():
		it.at = time.Time{}
	case it.state == team.ItemClaimed:
		it.at = it.until // an expiry has to wait: the receiver is at work on it
	case it.until.After(now):
		it.at = it.until
		if !it.Expires.IsZero() && it.Expires.Before(it.at) {
			it.at = it.Expires
		}
	default:
		it.at = it.Expires
		q.ready.put(it)
	}
	if !it.at.IsZero() {
		q.timed.put(it)
	}
}

// list keeps live, stale and open true for an item whose state has changed.
func (q *queue) list(it *item) {
	open := !it.state.Settled()
	if open == it.open {
		return
	}
	it.open = open
	switch {
	case !open:
		q.open--
		q.stale++ // its slot in live is taken out later, with others
		if q.stale > 32 && q.stale > len(q.live)/2 {
			q.compact()
		}
	case it.listed: // redriven before that
		q.open++
		q.stale--
	default:
		q.open++
		it.listed = true
		q.live = slices.Insert(q.live, firstAfter(q.live, it.seq), it)
	}
}

// compact takes the settled out of live.
func (q *queue) compact() {
	q.stale = 0
	q.live = slices.DeleteFunc(q.live, func(it *item) bool {
		it.listed = it.open
		return !it.open
	})
}

// advance does what the clock has done: leases and delays that are over make
// items pending, and pending items past their time expire.
func (q *queue) advance(now time.Time) {
	for q.timed.Len() > 0 && !q.timed.items[0].at.After(now) {
		it := q.timed.items[0]
		it.state = team.ItemPending
		q.place(it, it.at) // when that was, whenever somebody looks
	}
}

// firstAfter returns the index in a list by seq of the first item behind seq.
func firstAfter(list []*item, seq team.Seq) int {
	i, _ := slices.BinarySearchFunc(list, seq, func(it *item, seq team.Seq) int {
		if it.seq <= seq {
			return -1
		}
		return +1
	})
	return i
}

// An order is a heap of items. Each item knows its spot in it, so that any can
// be taken out.
type order struct {
	items []*item
	which int // which of item.spot is ours
	less  func(a, b *item) bool
}

func (o *order) put(it *item) { heap.Push(o, it) }

// drop takes it out if it is there.
func (o *order) drop(it *item) {
	if spot := it.spot[o.which]; spot > 0 {
		heap.Remove(o, spot-1)
	}
}

// Len, Less, Swap, Push and Pop are for package heap only.

func (o *order) Len() int           { return len(o.items) }
func (o *order) Less(i, j int) bool { return o.less(o.items[i], o.items[j]) }

func (o *order) Swap(i, j int) {
	o.items[i], o.items[j] = o.items[j], o.items[i]
	o.items[i].spot[o.which] = i + 1
	o.items[j].spot[o.which] = j + 1
}

func (o *order) Push(x any) {
	it := x.(*item)
	o.items = append(o.items, it)
	it.spot[o.which] = len(o.items)
}

func (o *order) Pop() any {
	last := len(o.items) - 1
	it := o.items[last]
	o.items[last] = nil
	o.items = o.items[:last]
	it.spot[o.which] = 0
	return it
}

// A waiter is one Claim that found nothing.
type waiter struct {
	wake  chan struct{} // closed when it is to look again
	place *list.Element // in waiters; nil once it was woken
}

// join adds a waiter, at the front if it was there before and woke in vain.
func (q *queue) join(again bool) *waiter {
	w := &waiter{wake: make(chan struct{})}
	if again {
		w.place = q.waiters.PushFront(w)
	} else {
		w.place = q.waiters.PushBack(w)
	}
	return w
}

// leave takes w out if nobody has woken it.
func (q *queue) leave(w *waiter) {
	if w.place != nil {
		q.waiters.Remove(w.place)
		w.place = nil
	}
}

// wakeFirst wakes the waiter that has waited longest, if there is one.
func (q *queue) wakeFirst() {
	if first := q.waiters.Front(); first != nil {
		w := first.Value.(*waiter)
		q.leave(w)
		close(w.wake)
	}
}

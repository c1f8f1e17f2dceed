package sqlitestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/teamchan/team"
)

// The bell is a file beside the database. Who has committed something that can be
// claimed, or changed a record, writes a number that was not there before into the
// slot of the queue or of the records, and all processes in which somebody waits are
// told so by the system. Watching the
// database's own log would be no use: it is written before the commit can be
// seen.
//
//	FILE-bell: 512 numbers of 8 bytes, one for all queues with the same hash,
//	           and one more for all records

const (
	queueSlots  = 512
	recordsSlot = slot(queueSlots)
	slots       = queueSlots + 1
)

// A slot is where a queue, or all records, have their number.
type slot int

func slotOf(queue string) slot {
	h := fnv.New32a()
	h.Write([]byte(queue))
	return slot(h.Sum32() % queueSlots)
}

// A waiter is one Claim, or one loop over Watch, that waits.
type waiter struct {
	slot slot
	rung chan struct{} // at least once since it was read
}

func (w *waiter) ring() {
	select {
	case w.rung <- struct{}{}:
	default:
	}
}

type bell struct {
	path string
	file *os.File // for ringing; safe for several goroutines

	mu      sync.Mutex // guards the fields below
	next    uint64
	seen    [slots]uint64 // as of the last look, or of our own ringing
	waiters map[slot][]*waiter
	waiting int
	watch   *fsnotify.Watcher // while somebody waits, and until it is closed

	retiring bool      // a goroutine closes what nobody needs any more
	retired  sync.Cond // and now it does not
}

func openBell(path string) (*bell, error) {
	// What somebody has put in its place is not ours to write to.
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is no plain file (%v); remove it, then open the store again", team.ErrDenied, path, info.Mode().Type())
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|openNoFollow, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(8 * slots); err != nil { // keeps what is there
		return nil, errors.Join(err, f.Close())
	}
	b := &bell{path: path, file: f, next: rand.Uint64(), waiters: make(map[slot][]*waiter)}
	b.retired.L = &b.mu
	return b, nil
}

func (b *bell) close() error {
	b.mu.Lock()
	for b.retiring {
		b.retired.Wait()
	}
	b.mu.Unlock()
	return b.file.Close()
}

// ring wakes who waits for what ops have committed, here and elsewhere.
func (s *Store) ring(ops []*op) {
	var done [slots/64 + 1]uint64
	for _, o := range ops {
		for _, at := range o.rang {
			if done[at/64]&(1<<(at%64)) == 0 {
				done[at/64] |= 1 << (at % 64)
				s.bell.ring(at)
			}
		}
	}
}

func (b *bell) ring(at slot) {
	b.mu.Lock()
	b.next++
	n := b.next
	b.seen[at] = n // so that our own watcher is not woken for nothing
	b.mu.Unlock()
	var buf [8]byte
	binary.LittleEndian.PutUint64(buf[:], n)
	// If it fails, the others look by themselves within a second or so.
	_, _ = b.file.WriteAt(buf[:], 8*int64(at))
	// All in this slot, not only those of the queue: if another process wrote to
	// the slot just before, it has been overwritten unseen.
	b.wake(at)
}

// wake wakes who waits here.
func (b *bell) wake(at slot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.waiters[at] {
		w.ring()
	}
}

// join adds a waiter. Once it returns, nothing that is committed is missed.
func (b *bell) join(at slot) *waiter {
	w := &waiter{slot: at, rung: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiters[w.slot] = append(b.waiters[w.slot], w)
	b.waiting++
	if b.watch == nil {
		b.start()
	}
	return w
}

func (b *bell) leave(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.waiters[w.slot]
	for i, other := range list {
		if other == w {
			list[i] = list[len(list)-1]
			list = list[:len(list)-1]
			break
		}
	}
	if b.waiters[w.slot] = list; len(list) == 0 {
		delete(b.waiters, w.slot)
	}
	if b.waiting--; b.waiting == 0 && b.watch != nil && !b.retiring {
		b.retiring = true
		go b.retire()
	}
}

// retire closes the watcher, unless somebody waits again. The system takes up to
// milliseconds for that, and no Claim that has its items is to wait so long. One at a time,
// so that whoever waits meanwhile again and again has one watcher and not many.
func (b *bell) retire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.waiting == 0 && b.watch != nil {
		watch := b.watch
		b.watch = nil
		b.mu.Unlock()
		_ = watch.Close()
		b.mu.Lock()
	}
	b.retiring = false
	b.retired.Broadcast()
}

// start begins to watch the file. Without a watcher the poll has to do. b.mu must
// be held.
func (b *bell) start() {
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return
	}
	if err := watch.Add(b.path); err != nil {
		_ = watch.Close()
		return
	}
	b.watch = watch
	b.look(false)
	go b.listen(watch)
}

// listen ends when watch is closed.
func (b *bell) listen(watch *fsnotify.Watcher) {
	for {
		select {
		case _, ok := <-watch.Events:
			if !ok {
				return
			}
		case _, ok := <-watch.Errors: // too many events: some were dropped
			if !ok {
				return
			}
		}
		b.mu.Lock()
		b.look(true)
		b.mu.Unlock()
	}
}

// look reads the file and wakes who waits for what has changed. b.mu must be held.
func (b *bell) look(wake bool) {
	var buf [8 * slots]byte
	if _, err := b.file.ReadAt(buf[:], 0); err != nil && err != io.EOF { // somebody may have emptied it
		return
	}
	for at := range slot(slots) {
		n := binary.LittleEndian.Uint64(buf[8*at:])
		if n == b.seen[at] {
			continue
		}
		b.seen[at] = n
		if wake {
			for _, w := range b.waiters[at] {
				w.ring()
			}
		}
	}
}

// count is how many wait.
func (b *bell) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting
}

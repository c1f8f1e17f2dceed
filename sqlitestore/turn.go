package sqlitestore

import (
	"math/rand/v2"
	"os"
	"time"
)

// SQLite's lock goes to whoever asks at the right moment. That is nearly always the
// process that has just given it back and asks again at once: others, which ask
// now and then, would wait for hundreds of milliseconds. So the processes take
// turns. Who has the turn is the only one that asks for SQLite's lock, and gives the
// turn away when it has it:
//
//	many ──turn──► one ──SQLite's lock──► at work
//
// The turn is a lock on the bell, gone with its process. It is a courtesy, not what
// keeps the file whole: whoever has waited for it for long goes on without.

// longTurn is when the one that has the turn is taken for stopped.
const longTurn = 250 * time.Millisecond

// waitTurn waits for the turn, as long as more allows. It reports whether it got it.
func waitTurn(f *os.File, more func() bool) bool {
	if tryTurn(f) {
		return true
	}
	for begun := time.Now(); time.Since(begun) < longTurn && more(); {
		// Of equal length for all, however long they have waited, or who came
		// last would go first.
		time.Sleep(100*time.Microsecond + rand.N(300*time.Microsecond))
		if tryTurn(f) {
			return true
		}
	}
	return false
}

package sqlitestore

import (
	"math/rand/v2"
	"os"
	"time"
)

// SQLite's lock goes to whoever asks at the right moment. That is nearly always the
// process that has just given it back and asks again at once: others, which ask
// now and then, would wait for hundreds of milliseconds. So the processes stand in a
// line. Who has its first place is the only one that asks for SQLite's lock, and gives
// the place up when it has it:
//
//	who comes ──► 7 ──► … ──► 1 ──► 0, the turn ──SQLite's lock──► at work
//
// A place is a lock in the bell, gone with its process. Who has one asks for the one
// before it. It is a courtesy, not what keeps the file whole: whoever has waited for
// its turn for long goes on without.

// longTurn is when one that stands in front is taken for stopped. It is a variable for
// tests.
var longTurn = 250 * time.Millisecond

// step is how often who is next looks whether it can move. Whoever is further behind has
// more time.
const step = 150 * time.Microsecond

// waitTurn waits for the turn, as long as more allows. It reports whether it got it.
func waitTurn(f *os.File, more func() bool) bool {
	if tryPlaces(f, 0, places) { // nobody stands there
		leavePlaces(f, 1, places)
		return true
	}
	at := moveUp(f, places) // which is behind the last place
	for begun := time.Now(); at > 0; {
		if time.Since(begun) >= longTurn || !more() {
			leavePlaces(f, at, min(at+1, places))
			return false
		}
		d := time.Duration(at) * step
		if at == places { // the last place is taken by chance
			d += rand.N(d)
		}
		time.Sleep(d)
		at = moveUp(f, at)
	}
	return true
}

// moveUp goes from a place as far to the front as it can, and returns where that is.
func moveUp(f *os.File, at int) int {
	for at > 0 && tryPlaces(f, at-1, at) {
		leavePlaces(f, at, min(at+1, places))
		at--
	}
	return at
}

// endTurn lets the next have the turn.
func endTurn(f *os.File) { leavePlaces(f, 0, 1) }

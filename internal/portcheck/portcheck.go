// Package portcheck has the checks of arguments that all stores share: what the
// contract of the ports (store.go of the root) calls an argument that can never be
// right.
//
// Each check returns what is wrong and why, or two empty strings. It knows no type of
// the root, since that imports internal packages; a store makes its *team.InvalidError
// of it.
package portcheck

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// MaxKey is how many bytes the key of a record may have.
const MaxKey = 1024

// Key checks the key of a record.
func Key(key string) (what, why string) {
	switch {
	case key == "":
		return "record key", "is empty"
	case len(key) > MaxKey:
		return "record key", fmt.Sprintf("has %d bytes, more than %d", len(key), MaxKey)
	case !utf8.ValidString(key):
		return "record key", "is not UTF-8"
	}
	return "", ""
}

// Queue checks the name of a queue.
func Queue(name string) (what, why string) {
	if name == "" {
		return "queue name", "is empty"
	}
	return "", ""
}

// Item checks an item to append.
func Item(id string, cost int) (what, why string) {
	switch {
	case id == "":
		return "item id", "is empty"
	case cost < 0:
		return "item cost", "is negative"
	}
	return "", ""
}

// Claim checks the arguments of a claim.
func Claim(queue string, max, budget int, lease time.Duration) (what, why string) {
	switch {
	case max <= 0:
		return "claim max", "is not positive"
	case lease <= 0:
		return "claim lease", "is not positive"
	case budget < 0:
		return "claim budget", "is negative"
	}
	return Queue(queue)
}

// Verdict checks what a settlement is to do, and after which delay.
func Verdict(verdict string, delay time.Duration) (what, why string) {
	switch verdict {
	case "ack", "bury", "cancel", "amend", "redrive":
	case "release":
		if delay < 0 {
			return "release delay", "is negative"
		}
	case "extend":
		if delay <= 0 {
			return "extend delay", "is not positive"
		}
	default:
		return "verdict", "is not one of those there are"
	}
	return "", ""
}

package fakehost

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"
)

// IDWrap is the moment at which the twelve hex digits of the host's ids began again at
// zero: an id from before sorts behind one from after. The one before it was 795.36 days
// earlier, as the next is later. Open a host with Options.Start shortly before it to
// have both kinds.
//
// OpenCode issues #42589 and #42798.
var IDWrap = time.UnixMilli(26 << 36).UTC()

// An idMaker makes ids as the host does: prefix, the low 48 bits of ms × 4096 + counter
// in hex, and 14 random base-62 characters. Ids of sessions descend: they store the
// complement.
type idMaker struct {
	mu    sync.Mutex
	last  int64
	count int64
}

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

func (m *idMaker) make(prefix string, now time.Time, descending bool) string {
	ms := now.UnixMilli()
	m.mu.Lock()
	if ms != m.last {
		m.last, m.count = ms, 0
	}
	m.count++
	v := uint64(ms)*4096 + uint64(m.count)
	m.mu.Unlock()
	if descending {
		v = ^v
	}
	six := [6]byte{byte(v >> 40), byte(v >> 32), byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}
	id := append([]byte(prefix), hex.EncodeToString(six[:])...)
	var random [14]byte
	rand.Read(random[:]) // never fails
	for _, b := range random {
		id = append(id, base62[int(b)%len(base62)])
	}
	return string(id)
}

// newID returns a new id with prefix: "msg_", "prt_", "per_", "que_", "evt_", "tool_",
// "call_" ascend; "ses_" descends.
func (h *Host) newID(prefix string) string {
	return h.ids.make(prefix, h.now(), prefix == "ses_")
}

var (
	slugFirst  = []string{"brave", "calm", "clever", "eager", "gentle", "jolly", "lucky", "misty", "quick", "quiet", "sunny", "tidy"}
	slugSecond = []string{"cabin", "cactus", "canyon", "comet", "forest", "garden", "harbor", "island", "meadow", "river", "sailor", "tiger"}
)

func newSlug() string {
	var b [2]byte
	rand.Read(b[:])
	return slugFirst[int(b[0])%len(slugFirst)] + "-" + slugSecond[int(b[1])%len(slugSecond)]
}

package team

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
)

// One line of a trail:
//
//	{"seq":7,"prev":"<hash of line 6>","time":"…","op":"inbox.send",…,"hash":"<SHA-256 of all before ,"hash">"}
//
// So a line vouches for itself and for the line before, and a shell can check
// one: it is the SHA-256 of all but the last 75 bytes, newline not counted.

// The names of the trail's own lines.
const (
	trailBegin = "trail.begin" // the first line of every file
	trailTorn  = "trail.torn"  // what is right before it is the rest of a killed writer
	trailGap   = "trail.gap"   // so many records could not be written
	trailSwept = "trail.swept" // files before First were given up
	trailHead  = "trail.head"  // the head was lost; whether lines are missing before it is unknown
)

const (
	trailText    = 256     // bytes of one text as JSON
	trailLineMax = 8 << 10 // more than any line that is written: 12 texts and the rest are below 4 KiB
)

// trailZero is the hash before the first line.
var trailZero [sha256.Size]byte

// trailWire is a line as JSON. File and First are for the trail's own.
type trailWire struct {
	Seq     uint64    `json:"seq"`
	Prev    string    `json:"prev"`
	Time    time.Time `json:"time"`
	Op      string    `json:"op"`
	ID      string    `json:"id"`
	ReplyTo string    `json:"replyTo"`
	By      string    `json:"by"`
	Role    string    `json:"role"`
	Target  string    `json:"target"`
	Outcome string    `json:"outcome"`
	Reason  string    `json:"reason"`
	Size    int64     `json:"size"`
	SHA256  string    `json:"sha256"`
	Round   int       `json:"round"`
	HostID  string    `json:"hostId"`
	Count   int       `json:"count"`
	File    int       `json:"file"`
	First   int       `json:"first"`
	Hash    string    `json:"hash"`
}

// trailBody returns what a line says, from ,"time" on.
func trailBody(e TraceEvent, target string, now time.Time) []byte {
	if strings.HasPrefix(e.Op, "trail.") || e.Op == "" {
		e.Op = "event." + e.Op // nobody but the trail writes its own lines
	}
	for _, s := range []*string{&e.Op, &e.ID, &e.ReplyTo, &e.Outcome, &e.Reason, &e.HostID} {
		*s = hideTarget(*s, string(e.Target), target)
	}
	if !isHexDigest(e.SHA256) {
		e.SHA256 = "invalid"
	}
	return appendTrailBody(nil, trailWire{
		Time: now, Op: e.Op, ID: e.ID, ReplyTo: e.ReplyTo, By: string(e.By.Session), Role: string(e.By.Role),
		Target: target, Outcome: e.Outcome, Reason: e.Reason, Size: e.Size, SHA256: e.SHA256, Round: e.Round,
		HostID: e.HostID, Count: e.Count,
	})
}

func appendTrailBody(b []byte, w trailWire) []byte {
	b = append(b, `,"time":"`...)
	b = w.Time.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
	b = append(b, '"')
	text := func(key, s string) {
		if s != "" {
			b = append(b, `,"`+key+`":"`...)
			b = append(appendTrailText(b, s), '"')
		}
	}
	number := func(key string, n int64) {
		if n != 0 {
			b = append(b, `,"`+key+`":`...)
			b = strconv.AppendInt(b, n, 10)
		}
	}
	text("op", w.Op)
	text("id", w.ID)
	text("replyTo", w.ReplyTo)
	text("by", w.By)
	text("role", w.Role)
	text("target", w.Target)
	text("outcome", w.Outcome)
	text("reason", w.Reason)
	number("size", w.Size)
	text("sha256", w.SHA256)
	number("round", int64(w.Round))
	text("hostId", w.HostID)
	number("count", int64(w.Count))
	number("file", int64(w.File))
	number("first", int64(w.First))
	return b
}

// appendTrailText appends s inside JSON quotes, in at most trailText bytes: UTF-8,
// everything that does not print escaped. What is longer is cut at a character and
// ends in a mark with digits of its SHA-256, so that two long texts stay two.
func appendTrailText(b []byte, s string) []byte {
	const mark = len("…~01234567")
	start, keep := len(b), len(b)
	for _, r := range s { // what is not UTF-8 comes as U+FFFD
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r >= ' ' && r < 0x7F:
			b = append(b, byte(r))
		case unicode.IsPrint(r):
			b = append(b, string(r)...)
		case r > 0xFFFF:
			hi, lo := utf16.EncodeRune(r)
			b = appendEscape(appendEscape(b, hi), lo)
		default:
			b = appendEscape(b, r)
		}
		if len(b)-start <= trailText-mark {
			keep = len(b)
		}
		if len(b)-start > trailText {
			sum := sha256.Sum256(bytesOf(s))
			return append(append(b[:keep], "…~"...), hex.EncodeToString(sum[:4])...)
		}
	}
	return b
}

func appendEscape(b []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	return append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

// trailForm returns s as a reader gets it back.
func trailForm(s string) string {
	var form string
	json.Unmarshal(append(appendTrailText([]byte{'"'}, s), '"'), &form) // it is what we write
	return form
}

// hideTarget puts the digest in the place of a target that a text has in it, as
// an error or a host's id may. One of up to three bytes is found only alone: it
// would be a part of anything.
func hideTarget(s, target, digest string) string {
	switch {
	case target == "":
		return s
	case s == target:
		return digest
	case len(target) < 4:
		return s
	}
	return strings.ReplaceAll(s, target, digest)
}

func isHexDigest(s string) bool {
	return len(s) <= 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}

// A trailEnd is where a trail ends: the number and the size of the last file, the
// number and the hash of the last line.
type trailEnd struct {
	file int
	size int64
	seq  uint64
	hash [sha256.Size]byte
}

// appendLine appends the line that has body and comes next, and moves e behind it.
func (e *trailEnd) appendLine(b, body []byte) []byte {
	start := len(b)
	e.seq++
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, e.seq, 10)
	b = append(b, `,"prev":"`...)
	b = hex.AppendEncode(b, e.hash[:])
	b = append(append(b, '"'), body...)
	e.hash = sha256.Sum256(b[start:])
	b = append(b, trailHashKey...)
	b = hex.AppendEncode(b, e.hash[:])
	b = append(b, "\"}\n"...)
	e.size += int64(len(b) - start)
	return b
}

const (
	trailHashKey = `,"hash":"`
	// trailFrame is what a line has besides its body, at most.
	trailFrame = len(`{"seq":18446744073709551615,"prev":""`) + 4*sha256.Size + len(trailHashKey+"\"}\n")
)

// A parsedLine is one line, and whether it vouches for itself.
type parsedLine struct {
	trailWire
	prev, hash [sha256.Size]byte
	whole      bool   // it has a hash at its end
	damage     string // why it does not, or ""
}

// parseTrailLine reads one line without its newline.
func parseTrailLine(b []byte) (p parsedLine) {
	p.damage = "is no line of a trail"
	at := len(b) - len(trailHashKey) - 2*sha256.Size - len(`"}`)
	if at < 0 || len(b) > trailLineMax || b[0] != '{' || !bytes.HasSuffix(b, []byte(`"}`)) ||
		!bytes.HasPrefix(b[at:], []byte(trailHashKey)) {
		return p
	}
	if _, err := hex.Decode(p.hash[:], b[at+len(trailHashKey):len(b)-2]); err != nil {
		return p
	}
	p.whole = true
	if sha256.Sum256(b[:at]) != p.hash {
		p.damage = "was changed: its hash is another"
		return p
	}
	if err := json.Unmarshal(b, &p.trailWire); err != nil {
		return p
	}
	if len(p.Prev) != 2*sha256.Size {
		return p
	}
	if _, err := hex.Decode(p.prev[:], bytesOf(p.Prev)); err != nil {
		return p
	}
	p.damage = ""
	return p
}

// follows reports whether p is the line right behind e.
func (p *parsedLine) follows(e trailEnd) bool {
	return p.damage == "" && p.Seq == e.seq+1 && p.prev == e.hash
}

// Package entryfile knows the file format of a board entry: its name and its
// first line.
package entryfile

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// A Name is a file name NN-<role>-<topic>[-rN].md, taken apart. Role and Topic
// are as package slug made them, so that the role has no hyphen and the topic
// does not end like a round.
type Name struct {
	Ordinal int    // 1 to 9999, shared by all rounds of one role and topic
	Role    string // as in the file name
	Topic   string
	Round   int // 1 for the first, which has no suffix
}

// MaxOrdinal is the largest ordinal and the largest round.
const MaxOrdinal = 9999

func (n Name) String() string {
	s := fmt.Sprintf("%02d-%s-%s", n.Ordinal, n.Role, n.Topic)
	if n.Round > 1 {
		s += "-r" + strconv.Itoa(n.Round)
	}
	return s + ".md"
}

// Family reports whether n and m are rounds of the same deliverable.
func (n Name) Family(m Name) bool { return n.Role == m.Role && n.Topic == m.Topic }

// ParseName takes a file name apart.
func ParseName(s string) (Name, bool) {
	stem, ok := strings.CutSuffix(s, ".md")
	if !ok {
		return Name{}, false
	}
	number, stem, _ := strings.Cut(stem, "-")
	role, topic, _ := strings.Cut(stem, "-")
	n := Name{Role: role, Topic: topic, Round: 1}
	if i := strings.LastIndex(topic, "-r"); i > 0 {
		if round, ok := parseInt(topic[i+len("-r"):]); ok && round > 1 {
			n.Topic, n.Round = topic[:i], round
		}
	}
	n.Ordinal, ok = Ordinal(s)
	// One spelling for each name: what String would not write is not ours.
	padded := len(number) == 2 || len(number) > 2 && number[0] != '0'
	return n, ok && padded && n.Role != "" && n.Topic != ""
}

// Ordinal returns the leading number of a file name, of 1 to 4 digits and a
// hyphen behind: a file that a person put there counts too.
func Ordinal(s string) (int, bool) {
	number, _, ok := strings.Cut(s, "-")
	if !ok || len(number) > 4 || number == "" || strings.Trim(number, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(number)
	return n, err == nil && n > 0
}

func parseInt(s string) (int, bool) {
	if s == "" || len(s) > 4 || s[0] == '0' || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// A Header is the first line of an entry. Role and Session are as the
// caller gave them; Task and Topic are empty where the folder's and the file's
// name tell them exactly.
type Header struct {
	Time    time.Time // to the millisecond
	Role    string
	Session string
	SHA256  string // hex of the body's digest
	Task    string
	Topic   string
}

// MaxHeader is the longest first line, in bytes, with its newline.
const MaxHeader = 16 << 10

const (
	open  = "<!-- tm_board_write"
	shut  = " -->"
	sep   = " · "
	stamp = "2006-01-02T15:04:05.000Z07:00" // RFC 3339
)

// String returns the line with its newline.
func (h Header) String() string {
	var b strings.Builder
	b.WriteString(open + sep + h.Time.UTC().Format(stamp))
	put := func(key, value string) {
		if value != "" {
			b.WriteString(sep + key + "=" + escape(value))
		}
	}
	put("role", h.Role)
	put("session", h.Session)
	put("sha256", h.SHA256)
	put("task", h.Task)
	put("topic", h.Topic)
	b.WriteString(shut + "\n")
	return b.String()
}

// ErrHeader says that a line is not the header of an entry.
var ErrHeader = errors.New("has no board header in its first line")

// ParseHeader reads a header line, with or without its newline.
func ParseHeader(line string) (Header, error) {
	line, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), open+sep)
	if !ok {
		return Header{}, ErrHeader
	}
	if line, ok = strings.CutSuffix(line, shut); !ok {
		return Header{}, ErrHeader
	}
	fields := strings.Split(line, sep)
	var h Header
	var err error
	if h.Time, err = time.Parse(time.RFC3339, fields[0]); err != nil {
		return Header{}, ErrHeader
	}
	for _, field := range fields[1:] {
		key, value, ok := strings.Cut(field, "=")
		if value, err = url.PathUnescape(value); err != nil || !ok {
			return Header{}, ErrHeader
		}
		switch key {
		case "role":
			h.Role = value
		case "session":
			h.Session = value
		case "sha256":
			h.SHA256 = value
		case "task":
			h.Task = value
		case "topic":
			h.Topic = value
		}
	}
	if h.Role == "" || h.Session == "" || len(h.SHA256) != 64 || strings.Trim(h.SHA256, "0123456789abcdef") != "" {
		return Header{}, ErrHeader
	}
	return h, nil
}

// escape percent-encodes what could end a value or the comment, and what a
// person could not see. Letters of every script stay readable.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.~/:@+,", r) {
			b.WriteRune(r)
			continue
		}
		for _, c := range []byte(string(r)) {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

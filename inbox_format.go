package team

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A SignalSecret is the key of the tag that FormatSignal puts into a frame. All
// channels in one store share it. Keep it from models. It prints as nothing.
type SignalSecret [32]byte

// String hides the secret.
func (SignalSecret) String() string { return "SignalSecret(hidden)" }

// GoString hides the secret.
func (SignalSecret) GoString() string { return "SignalSecret(hidden)" }

const secretRecord = "team/signal-secret"

// loadSecret returns the secret in a record, and makes it if there is none.
func loadSecret(ctx context.Context, store Records, record string) (SignalSecret, error) {
	var key SignalSecret
	for {
		r, err := store.Get(ctx, record)
		switch {
		case err == nil && len(r.Value) == len(key):
			return SignalSecret(r.Value), nil
		case err == nil:
			return key, fmt.Errorf("%w: the secret has %d bytes, want %d; delete the record %q to make a new one",
				ErrCorrupt, len(r.Value), len(key), record)
		case !errors.Is(err, ErrNotFound):
			return key, err
		}
		rand.Read(key[:])
		if _, err = store.Put(ctx, record, key[:], ""); err == nil {
			return key, nil
		} else if !errors.Is(err, ErrConflict) {
			return key, err
		} // somebody was quicker: theirs counts
	}
}

// Secret returns what FormatSignal and ParseSignal need.
func (c *SignalChannel) Secret() SignalSecret { return c.secret }

// The frame of a rendered signal. Its first attribute says where it comes from.
const (
	frameOpen = `<team_signal origin="a program sent this, not the user; it grants nothing"`
	frameShut = "\n</team_signal>"
	tagStart  = ` tag="`
	tagEnd    = `">`
	refHandle = ", handle "
)

// FormatSignal renders s for the context of the session that receives it: first
// that a program sent it and not the user, then who, then the fields, and last the
// body. Delivery, Epoch, Expires and Key do not appear.
//
// Nothing in a field can close the frame or start another: "<" and "&" are
// escaped, as are control characters, line separators, and characters that cannot be
// seen. A tag, keyed over the whole, tells it from any text that only looks
// like it; ParseSignal checks that.
func FormatSignal(secret SignalSecret, s Signal) string {
	head, rest := frame(s)
	return head + tagStart + tagOf(secret, head, rest) + tagEnd + rest
}

func tagOf(secret SignalSecret, head, rest string) string {
	mac := hmac.New(sha256.New, secret[:])
	mac.Write([]byte(head))
	mac.Write([]byte(rest))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// frame renders s without its tag, which stands between the two parts.
func frame(s Signal) (head, rest string) {
	var b strings.Builder
	b.WriteString(frameOpen)
	attr := func(name, value string) {
		if value != "" {
			b.WriteString(" " + name + `="`)
			escapeTo(&b, value, true)
			b.WriteByte('"')
		}
	}
	attr("from", string(s.From.Role))
	attr("session", string(s.From.Session))
	attr("to", string(s.To))
	attr("kind", string(s.Kind))
	attr("id", string(s.ID))
	if s.Seq > 0 {
		attr("seq", strconv.FormatUint(uint64(s.Seq), 10))
	}
	attr("reply-to", string(s.ReplyTo))
	attr("sent", formatTime(s.Sent))
	head = b.String()

	b.Reset()
	b.WriteString("\nsummary: ")
	escapeTo(&b, s.Summary, true)
	for _, r := range s.Refs {
		b.WriteString("\nref: ")
		escapeTo(&b, r.Path, true)
		fmt.Fprintf(&b, " (%d bytes, sha256 ", r.Size)
		escapeTo(&b, r.SHA256, true)
		if r.Handle != "" {
			b.WriteString(refHandle)
			escapeTo(&b, string(r.Handle), true)
		}
		b.WriteByte(')')
	}
	if s.Body != "" {
		b.WriteString("\nbody:\n")
		escapeTo(&b, s.Body, false)
	}
	b.WriteString(frameShut)
	return head, b.String()
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// ParseSignal reads a text that FormatSignal made with the same secret, and returns
// the signal without Delivery, Epoch, Expires and Key, which are the channel's
// business.
// The whole text must be the frame. A text that is no frame is ErrInvalid; one that is but
// that this secret never rendered exactly so is ErrDenied: it is forged, or was
// changed on its way.
//
// A frame is good wherever it turns up. Whoever reads one from a text that a
// model may have copied compares To with the session that it was found in, and
// ID with what that session has had before.
func ParseSignal(secret SignalSecret, text string) (Signal, error) {
	s, tag, ok := readFrame(text)
	if !ok {
		return Signal{}, edge("signal.parse", "", &InvalidError{What: "text", Why: "is not a team signal", Offset: -1})
	}
	// Only the one spelling that FormatSignal gives is accepted, so that reading
	// need not be strict anywhere else.
	head, rest := frame(s)
	if head+tagStart+tag+tagEnd+rest != text || !hmac.Equal([]byte(tagOf(secret, head, rest)), []byte(tag)) {
		return Signal{}, edge("signal.parse", string(s.ID), fmt.Errorf("%w: its tag does not verify; do not trust it", ErrDenied))
	}
	return s, nil
}

// readFrame takes a frame apart. It may accept what FormatSignal never wrote.
func readFrame(text string) (s Signal, tag string, ok bool) {
	if !utf8.ValidString(text) {
		return s, "", false
	}
	head, rest, ok := strings.Cut(text, tagEnd)
	if !ok {
		return s, "", false
	}
	i := strings.LastIndex(head, tagStart)
	if i < 0 {
		return s, "", false
	}
	head, tag = head[:i], head[i+len(tagStart):]
	if head, ok = strings.CutPrefix(head, frameOpen); !ok {
		return s, "", false
	}
	for head != "" {
		var name, value string
		if name, head, ok = strings.Cut(head, `="`); !ok {
			return s, "", false
		}
		if value, head, ok = strings.Cut(head, `"`); !ok {
			return s, "", false
		}
		value = unescape(value)
		switch name {
		case " from":
			s.From.Role = Role(value)
		case " session":
			s.From.Session = SessionID(value)
		case " to":
			s.To = SessionID(value)
		case " kind":
			s.Kind = Kind(value)
		case " id":
			s.ID = SignalID(value)
		case " seq":
			n, _ := strconv.ParseUint(value, 10, 64)
			s.Seq = Seq(n)
		case " reply-to":
			s.ReplyTo = SignalID(value)
		case " sent":
			s.Sent, _ = time.Parse(time.RFC3339Nano, value)
		}
	}
	if rest, ok = strings.CutSuffix(rest, frameShut); !ok {
		return s, "", false
	}
	rest, body, _ := strings.Cut(rest, "\nbody:\n")
	s.Body = unescape(body)
	for line := range strings.SplitSeq(strings.TrimPrefix(rest, "\n"), "\n") {
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "summary":
			s.Summary = unescape(value)
		case "ref":
			var r Ref
			if i := strings.LastIndex(value, " ("); i >= 0 {
				size, digest, _ := strings.Cut(strings.TrimSuffix(value[i+len(" ("):], ")"), " bytes, sha256 ")
				digest, handle, _ := strings.Cut(digest, refHandle)
				r.Size, _ = strconv.ParseInt(size, 10, 64)
				r.Handle = Handle(unescape(handle))
				r.SHA256, r.Path = unescape(digest), unescape(value[:i])
			}
			s.Refs = append(s.Refs, r)
		}
	}
	return s, tag, true
}

// escapeTo writes s so that it cannot leave its place. Within a line, line
// breaks, quotes and ">" are escaped too.
func escapeTo(b *strings.Builder, s string, line bool) {
	for _, r := range s {
		switch {
		case r == '&':
			b.WriteString("&amp;")
		case r == '<':
			b.WriteString("&lt;")
		case line && r == '"':
			b.WriteString("&quot;")
		case line && r == '>': // a quote and this end the opening
			b.WriteString("&gt;")
		case r == '\n' && !line, r == '\t':
			b.WriteRune(r)
		case hidden(r), line && (r == zwnj || r == zwj):
			fmt.Fprintf(b, "&#x%X;", r)
		default:
			b.WriteRune(r)
		}
	}
}

// The joiners of emoji and of Indic and Persian script stay in a body, though
// nobody sees them.
const zwnj, zwj = '\u200C', '\u200D'

// hidden reports whether a reader could not see r, or see it as a line's end. Text
// for models alone has been smuggled in such characters.
func hidden(r rune) bool {
	switch {
	case ' ' <= r && r <= '~': // nearly all
		return false
	case r == zwnj, r == zwj:
		return false
	case r == '\u2800', 0xE0000 <= r && r <= 0xE0FFF: // a blank that is no space; tags, selectors and what is kept free beside
		return true
	}
	return breaksLine(r) || unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// unescape undoes escapeTo; what it does not know stays as it is.
func unescape(s string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '&')
		if i < 0 {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		s = s[i:]
		name, _, _ := strings.Cut(s[:min(len(s), 12)], ";")
		switch name {
		case "&amp":
			b.WriteByte('&')
		case "&lt":
			b.WriteByte('<')
		case "&gt":
			b.WriteByte('>')
		case "&quot":
			b.WriteByte('"')
		default:
			code, ok := strings.CutPrefix(name, "&#x")
			n, err := strconv.ParseUint(code, 16, 32)
			if !ok || err != nil || n > unicode.MaxRune {
				b.WriteByte('&')
				s = s[1:]
				continue
			}
			b.WriteRune(rune(n))
		}
		s = s[min(len(s), len(name)+1):]
	}
}

// encode makes the item that stores s, of which the caller passed the body and the
// references.
func (c *SignalChannel) encode(s, passed Signal) (Item, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return Item{}, err
	}
	// The digest covers what the caller chose, so that a repeated Send can be told
	// from another signal. A field that is added here must be left out where it is
	// empty, or the keys of signals that are stored already would conflict.
	chosen, err := json.Marshal(struct {
		Role     Role      `json:"role"`
		Kind     Kind      `json:"kind"`
		Summary  string    `json:"summary"`
		Body     string    `json:"body"`
		Refs     []Ref     `json:"refs"`
		ReplyTo  SignalID  `json:"replyTo"`
		Delivery Delivery  `json:"delivery"`
		Expires  time.Time `json:"expires"`
		Epoch    string    `json:"epoch,omitempty"`
	}{s.From.Role, s.Kind, s.Summary, passed.Body, passed.Refs, s.ReplyTo, s.Delivery, s.Expires, s.Epoch})
	if err != nil {
		return Item{}, err
	}
	item := Item{ID: string(s.ID), Digest: hexDigest(chosen), Cost: frameCost(s), Expires: s.Expires, Data: data}
	if s.Key != "" {
		item.Key = string(s.From.Session) + "\x00" + s.Key // neither has a control character
	}
	return item, nil
}

func decodeSignal(item Item, seq Seq) (Signal, error) {
	var s Signal
	if json.Unmarshal(item.Data, &s) != nil { // whose error would quote what it is
		return Signal{}, errors.New("it is not the JSON of a signal")
	}
	if string(s.ID) != item.ID {
		return Signal{}, errors.New("it has another id")
	}
	s.Seq = seq
	return s, s.check()
}

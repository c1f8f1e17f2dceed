package team

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
)

// What this library put into a context has a tag, keyed over all of it, so
// that it is known again in whatever process, and is not shortened once more. A
// text that only looks like it, or that somebody added to, is a text like any
// other.
const (
	tagLine   = "[tm:"
	tagShut   = "]"
	tagLength = 13 // 65 bits in base32

	// Behind the tag stand at most the closing tags of a host.
	maxClosing      = 4
	maxClosingBytes = 200
	tagWithin       = len("\n") + len(tagLine) + tagLength + len(tagShut) + maxClosing*(maxClosingBytes+1)
)

var tagEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// tag adds the tag to a text, and behind it what must be the end of the whole.
func (o *Offload) tag(text, end string) string {
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if end != "" {
		end = "\n" + end
	}
	return text + tagLine + o.tagOf(text, end) + tagShut + end
}

func (o *Offload) tagOf(text, end string) string {
	mac := hmac.New(sha256.New, o.key[:])
	_ = binary.Write(mac, binary.BigEndian, int64(len(text))) // a hash takes all
	mac.Write(bytesOf(text))
	mac.Write(bytesOf(end))
	return strings.ToLower(tagEncoding.EncodeToString(mac.Sum(nil))[:tagLength])
}

// tagged reports whether a text is one that tag returned, with or without line
// breaks at its end.
func (o *Offload) tagged(text string) bool {
	text = strings.TrimRight(text, "\r\n")
	from := max(0, len(text)-tagWithin)
	i := strings.LastIndex(text[from:], "\n"+tagLine) + 1
	if i > 0 {
		i += from
	}
	end := i + len(tagLine) + tagLength
	if i == 0 || len(text) < end+len(tagShut) || text[end:end+len(tagShut)] != tagShut {
		return false
	}
	return hmac.Equal([]byte(text[end-tagLength:end]), []byte(o.tagOf(text[:i], text[end+len(tagShut):])))
}

// closingTags splits off the closing tags at the end of a preview: what a host
// wrapped round an answer stays round what is left of it.
func closingTags(body string) (rest, tags string) {
	rest = body
	for range maxClosing {
		i := strings.LastIndexByte(rest, '\n') + 1
		if line := rest[i:]; i == 0 || len(line) > maxClosingBytes || !strings.HasPrefix(line, "</") || !isTag([]byte(line)) {
			break
		}
		rest = rest[:i-1]
	}
	return rest, strings.TrimPrefix(body[len(rest):], "\n")
}

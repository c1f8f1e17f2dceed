package team

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"
)

// What this library put into a context is known again in whatever process, and is
// not shortened once more. A preview is known by the handle in it, whose record has
// its digest: it has no room for more. What is fetched, and what could not be
// stored, has a tag, keyed over all of it. A text that only looks like either, or that
// somebody added to, is a text like any other.
const (
	tagLine   = "[tm:"
	tagShut   = "]"
	tagLength = 13 // 65 bits in base32

	tagWithin = wrapperEnd + 64 // bytes of the end of a text that have its tag

	// Closing tags of a host may stand behind the last line of a preview.
	maxClosing      = 4
	maxClosingBytes = 200
	handleWithin    = 8 << 10 // bytes of the end of a preview that have its handle
	maxHandles      = 4       // looked up in a text
)

var tagEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// ours reports whether this library put a text into a context, with or without
// line breaks at its end.
func (o *Offload) ours(ctx context.Context, text string) bool {
	text = strings.TrimRight(text, "\r\n")
	return o.tagged(text) || o.isPreview(ctx, text)
}

// isPreview reports whether the record of a handle in the text says that the text
// stands in for it.
func (o *Offload) isPreview(ctx context.Context, text string) bool {
	rest := text[max(0, len(text)-handleWithin):]
	sum := ""
	for range maxHandles {
		i := strings.LastIndex(rest, handlePrefix)
		if i < 0 {
			return false
		}
		h := Handle(rest[i:min(len(rest), i+len(handlePrefix)+offloadHandleIDLength)])
		rest = rest[:i]
		id, err := h.id()
		if err != nil {
			continue
		}
		r, err := o.load(ctx, id)
		if err != nil {
			continue
		}
		if sum == "" {
			sum = hexDigest(bytesOf(text))
		}
		if slices.Contains(r.Instead, sum) {
			return true
		}
	}
	return false
}

// tag adds the tag to a text, in front of its end: what a host wrote round an answer.
func (o *Offload) tag(text, end string) string {
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + tagLine + o.tagOf(text, end) + tagShut + end
}

func (o *Offload) tagOf(text, end string) string {
	mac := hmac.New(sha256.New, o.key[:])
	mac.Write(bytesOf(text))
	if end != "" {
		mac.Write(bytesOf(tagLine + end))
	}
	return strings.ToLower(tagEncoding.EncodeToString(mac.Sum(nil))[:tagLength])
}

// tagged reports whether a text is one that tag returned.
func (o *Offload) tagged(text string) bool {
	from := max(0, len(text)-tagWithin)
	i := strings.LastIndex(text[from:], "\n"+tagLine)
	if i < 0 {
		return false
	}
	head, rest := text[:from+i+1], text[from+i+1+len(tagLine):]
	tag, end := rest[:min(len(rest), tagLength)], rest[min(len(rest), tagLength):]
	end, ok := strings.CutPrefix(end, tagShut)
	return ok && hmac.Equal([]byte(tag), []byte(o.tagOf(head, end)))
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

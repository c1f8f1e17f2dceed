package team

import (
	"bytes"
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"
)

// A result is read here and not by encoding/json, which would decode a megabyte of
// text several times, and would not say where its parts are, byte for byte.

// objectFields takes an object apart without changing a byte of its values. An
// object with a key twice is none: nobody knows which one counts.
func objectFields(raw []byte) ([]jsonField, bool) {
	var fields []jsonField
	seen := map[string]bool{}
	ok := partsOf(raw, '{', func(quoted, value []byte) bool {
		key, ok := decodeKey(quoted)
		if !ok || seen[key] {
			return false
		}
		seen[key] = true
		fields = append(fields, jsonField{key, value})
		return true
	})
	if !ok {
		return nil, false
	}
	return fields, true
}

// listItems takes an array apart.
func listItems(raw []byte) ([]json.RawMessage, bool) {
	items := []json.RawMessage{}
	ok := partsOf(raw, '[', func(_, value []byte) bool {
		items = append(items, value)
		return true
	})
	return items, ok
}

// partsOf is eachJSON for what is one object or array and nothing else.
func partsOf(raw []byte, open byte, each func(key, value []byte) bool) bool {
	i := skipSpace(raw, 0)
	if i == len(raw) || raw[i] != open {
		return false
	}
	end := eachJSON(raw, i, 0, each)
	return end >= 0 && skipSpace(raw, end) == len(raw)
}

// decodeKey is the key as encoding/json reads it.
func decodeKey(quoted []byte) (key string, ok bool) {
	if plain := quoted[1 : len(quoted)-1]; bytes.IndexByte(plain, '\\') < 0 && utf8.Valid(plain) {
		return string(plain), true
	}
	return key, json.Unmarshal(quoted, &key) == nil
}

// eachJSON calls each, if there is one, with the members or elements of the object or
// array at b[i:], of an element without a key, and returns where it ends. It is -1 if
// that is no valid JSON, or if each returned false.
func eachJSON(b []byte, i, depth int, each func(key, value []byte) bool) int {
	if i >= len(b) || b[i] != '{' && b[i] != '[' || depth >= maxJSONDepth {
		return -1
	}
	object, shut := b[i] == '{', b[i]+2 // } and ] are two behind { and [
	if i = skipSpace(b, i+1); i < len(b) && b[i] == shut {
		return i + 1
	}
	for i < len(b) {
		var key []byte
		if object {
			end := skipString(b, i)
			if end < 0 {
				return -1
			}
			key = b[i:end]
			if i = skipSpace(b, end); i >= len(b) || b[i] != ':' {
				return -1
			}
			i = skipSpace(b, i+1)
		}
		end := skipValue(b, i, depth+1)
		if end < 0 || each != nil && !each(key, b[i:end:end]) {
			return -1
		}
		if i = skipSpace(b, end); i >= len(b) || b[i] != ',' {
			break
		}
		i = skipSpace(b, i+1)
	}
	if i >= len(b) || b[i] != shut {
		return -1
	}
	return i + 1
}

// skipValue returns where the value at b[i:] ends, or -1 if it is none.
func skipValue(b []byte, i, depth int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '{', '[':
		return eachJSON(b, i, depth, nil)
	case '"':
		return skipString(b, i)
	}
	end := i
	for end < len(b) && !endsScalar(b[end]) {
		end++
	}
	if end == i || !json.Valid(b[i:end]) {
		return -1
	}
	return end
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns where the string at b[i:] ends, behind its quote, or -1.
func skipString(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return -1
		case c == '\\':
			if _, ok := hexRune(b[i:]); ok {
				i += 5
			} else if i++; i >= len(b) || shortEscape(b[i]) == 0 {
				return -1
			}
		}
	}
	return -1
}

func joinFields(fields []jsonField) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range fields {
		if i > 0 {
			b.WriteByte(',')
		}
		key, _ := quoteJSON(f.key) // a string always can
		b.Write(key)
		b.WriteByte(':')
		b.Write(f.raw)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// quoteJSON is json.Marshal without the spelling of < and > for web pages.
func quoteJSON(text string) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(text)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// unquoteJSON returns the text of a JSON string, and loses nothing of it: half a
// surrogate pair becomes the three bytes that it would have in UTF-8 if it could,
// and a byte that is no UTF-8 stays what it is.
func unquoteJSON(raw json.RawMessage) (string, bool) {
	if skipString(raw, 0) != len(raw) {
		return "", false
	}
	in := raw[1 : len(raw)-1]
	out := make([]byte, 0, len(in))
	for {
		i := bytes.IndexByte(in, '\\')
		if i < 0 {
			return stringOf(append(out, in...)), true
		}
		out = append(out, in[:i]...)
		in = in[i:]
		r, ok := hexRune(in)
		if !ok {
			out = append(out, shortEscape(in[1]))
			in = in[2:]
			continue
		}
		in = in[6:]
		if !utf16.IsSurrogate(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		if low, ok := hexRune(in); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				out = utf8.AppendRune(out, pair)
				in = in[6:]
				continue
			}
		}
		out = append(out, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
	}
}

// shortEscape returns what stands for a backslash and c, or zero for none.
func shortEscape(c byte) byte {
	switch c {
	case '"', '\\', '/':
		return c
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	}
	return 0
}

// hexRune reads an escape of four digits.
func hexRune(s []byte) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range s[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

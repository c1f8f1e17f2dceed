package team

import (
	"bytes"
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"
)

// objectFields takes an object apart without changing a byte of its values. An
// object with a key twice is none: nobody knows which one counts.
func objectFields(raw []byte) ([]jsonField, bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	var fields []jsonField
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		key, ok := t.(string)
		if err != nil || !ok || seen[key] {
			return nil, false
		}
		seen[key] = true
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return nil, false
		}
		fields = append(fields, jsonField{key, value})
	}
	if _, err := dec.Token(); err != nil || len(bytes.TrimSpace(raw[dec.InputOffset():])) > 0 {
		return nil, false
	}
	return fields, true
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
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if utf8.Valid(raw) && !bytes.Contains(raw, []byte(`\u`)) {
		var s string
		return s, json.Unmarshal(raw, &s) == nil
	}
	in := raw[1 : len(raw)-1]
	out := make([]byte, 0, len(in))
	for i := 0; i < len(in); {
		if in[i] != '\\' {
			out = append(out, in[i])
			i++
			continue
		}
		r, ok := hexRune(in[i:])
		if !ok { // one of the short ones, which the decoder of raw has checked
			var s string
			if i+2 > len(in) || json.Unmarshal([]byte(`"`+string(in[i:i+2])+`"`), &s) != nil {
				return "", false
			}
			out = append(out, s...)
			i += 2
			continue
		}
		i += 6
		if utf16.IsSurrogate(r) {
			if low, ok := hexRune(in[min(i, len(in)):]); ok {
				if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
					out = utf8.AppendRune(out, pair)
					i += 6
					continue
				}
			}
			out = append(out, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
			continue
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out), true
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

package team

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// What takes results apart agrees with encoding/json about what is JSON, what its
// parts are and what its strings say. It is inside the package, since nobody sees it.
func FuzzOffloadReadsJSON(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, ` { "a" : 1 , "b":[{"c":"\u00e9\n\"\\\/"}], "d":null } `, `{"a":1,"a":2}`, `{"a":1}x`, `[1,]`, `{"a"}`, `{"a":}`, `{,}`, `[}`,
		`{"\ud83d\ude42":"\ud83d"}`, `"\q"`, `"\u12"`, "\"\x01\"", "\"\xff\"", `[01]`, `[-1.5e+3,true,false]`, `[tru]`, `["a" "b"]`, `{"a":1 "b":2}`, `"`, `"\`,
		strings.Repeat("[", 200) + strings.Repeat("]", 200), `{"a\u0062":1,"ab":2}`, "{\"\xff\":1}", `null`, ` "x" `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		valid := json.Valid(raw)
		var object map[string]json.RawMessage
		isObject := valid && json.Unmarshal(raw, &object) == nil && object != nil
		fields, ok := objectFields(raw)
		if ok && !isObject || !ok && isObject && len(keysOf(raw)) == len(object) {
			t.Fatalf("an object: %v, want %v: %q", ok, isObject, raw)
		}
		for _, field := range fields {
			if want, ok := object[field.key]; !ok || !bytes.Equal(want, field.raw) {
				t.Fatalf("%q is %q, want %q", field.key, field.raw, want)
			}
		}
		var array []json.RawMessage
		isArray := valid && json.Unmarshal(raw, &array) == nil && array != nil
		items, ok := listItems(raw)
		if ok != isArray || ok && len(items) != len(array) {
			t.Fatalf("an array: %v, want %v: %q", ok, isArray, raw)
		}
		for i := range array {
			if !bytes.Equal(items[i], array[i]) {
				t.Fatalf("element %d is %q, want %q", i, items[i], array[i])
			}
		}
		var want string
		isString := valid && raw[0] == '"' && raw[len(raw)-1] == '"' && json.Unmarshal(raw, &want) == nil
		got, ok := unquoteJSON(raw)
		if ok != isString {
			t.Fatalf("a string: %v, want %v: %q", ok, isString, raw)
		}
		if isString && utf8.Valid(raw) && !strings.ContainsRune(want, utf8.RuneError) && got != want {
			t.Fatalf("%q says %q, want %q", raw, got, want)
		}
	})
}

// keysOf returns the keys of an object, each as often as it is there.
func keysOf(raw []byte) (keys []string) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	_, _ = dec.Token()
	for dec.More() {
		key, _ := dec.Token()
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			break
		}
		name, _ := key.(string)
		keys = append(keys, name)
	}
	return keys
}

// A megabyte of brackets is refused, and takes no stack.
func TestOffloadRefusesDeepResults(t *testing.T) {
	deep := strings.Repeat(`{"a":[`, 1<<18)
	if _, ok := objectFields([]byte(deep)); ok {
		t.Error("an object without an end")
	}
	if _, ok := objectFields([]byte(`{"a":` + strings.Repeat("[", maxJSONDepth) + strings.Repeat("]", maxJSONDepth) + `}`)); ok {
		t.Error("an object deeper than any JSON may be")
	}
}

package team

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// told writes down what a scanner tells.
type told struct{ strings.Builder }

func (t *told) key(quoted []byte, long bool)      { fmt.Fprintf(t, "key %s %v\n", quoted, long) }
func (t *told) begin(kind byte, at int64, in int) { fmt.Fprintf(t, "begin %q %d %d\n", kind, at, in) }
func (t *told) end(at int64, in int)              { fmt.Fprintf(t, "end %d %d\n", at, in) }

// scanned is what a scanner tells of a text that comes in pieces of a size.
func scanned(text string, piece, upTo int) string {
	var t told
	j := jsonScanner{on: &t, upTo: upTo}
	var err error
	for rest := []byte(text); len(rest) > 0 && err == nil; rest = rest[min(piece, len(rest)):] {
		err = j.write(rest[:min(piece, len(rest))])
	}
	if err == nil {
		err = j.finish()
	}
	if err != nil {
		return t.String() + err.Error()
	}
	return fmt.Sprint(t.String(), j.values)
}

// However JSON comes, the scanner tells the same of it, with the same error in the same
// place: byte by byte no token is whole, and none is passed over.
func FuzzOffloadScansJSON(f *testing.F) {
	deep := strings.Repeat(`[`, maxJSONDepth)
	for _, text := range []string{
		`{"a": 1, "b": [true, null, -1.5e3, "x\"y\\", "\\\\"], "": {}, "c\u00e9": {"d": [[], {}]}} [1] 2 "3"`,
		`{"a" 1}`, `{"a": 1,}`, `[1,]`, `[01]`, `[1 2]`, `{1: 2}`, `[tru]`, `[}`, `]`, `{"a": [1}`, `[1, 2`, `"`, `"\`, `"a\"`, `[-]`, "[\x01]", "[1\x00]", "[\x0b1]",
		`{"` + strings.Repeat("k", maxJSONKey) + `": 1, "` + strings.Repeat("k", maxJSONKey-2) + `": [` + strings.Repeat("1", maxJSONScalar) + `, ` + strings.Repeat("1", maxJSONScalar+1) + `]}`, "[" + strings.Repeat("1", 4000) + ".5]",
		deep + `1`, deep + `[`, `["` + strings.Repeat(`\"`, 100) + strings.Repeat("long", 100) + `\\"]`, "[1]\r\n\t {\"a\"\n:\n1\n,\n\"b\":2\n}", "",
	} {
		f.Add(text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, piece int) {
		piece = 1 + max(0, piece)%(len(text)+1)
		for _, upTo := range []int{maxJSONDepth, 1} {
			want := scanned(text, 1, upTo)
			require.Equal(t, want, scanned(text, len(text)+1, upTo))
			require.Equal(t, want, scanned(text, piece, upTo))
		}
		if len(text) < maxJSONScalar && json.Valid([]byte(text)) {
			require.NoError(t, new(jsonScanner).write([]byte(text)))
		}
	})
}

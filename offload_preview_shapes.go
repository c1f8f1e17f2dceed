package team

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A csvShape knows the extent of a table. Its head and its first rows are the
// beginning of the text.
type csvShape struct {
	delimiter byte
	columns   int
	rows      int64
	odd       int64 // rows with another number of columns
	quoted    bool  // the row goes on in the next line
}

func (c *csvShape) line(_ int64, line []byte, full int64) {
	if len(line) == 0 {
		return
	}
	whole := full <= int64(len(line))+1
	if c.quoted {
		c.quoted = bytes.Count(line, []byte{'"'})%2 == 0
		return
	}
	if c.delimiter == 0 {
		c.delimiter = mostCommon(line, ",\t;|")
		c.columns = columns(line, c.delimiter)
		return
	}
	c.rows++
	c.quoted = whole && bytes.Count(line, []byte{'"'})%2 == 1
	if !c.quoted && whole && columns(line, c.delimiter) != c.columns {
		c.odd++
	}
}

func mostCommon(line []byte, of string) byte {
	best := of[0]
	for i := range len(of) {
		if bytes.Count(line, []byte{of[i]}) > bytes.Count(line, []byte{best}) {
			best = of[i]
		}
	}
	return best
}

func (c *csvShape) lines() []string {
	if c.columns == 0 {
		return nil
	}
	size := fmt.Sprintf("%d rows x %d columns", c.rows, c.columns)
	if c.odd > 0 {
		size += fmt.Sprintf(", %d rows of another width", c.odd)
	}
	return []string{size}
}

// A jsonShape knows the keys of an object, what the values are and how many bytes
// they take, of many keys the largest; of an array, how many elements there are, and
// the keys of the first.
type jsonShape struct {
	scan  jsonScanner
	err   error
	kind  byte  // of the first value
	first byte  // of the first element of an array
	items int64 // members or elements of the first value
	more  int64 // values behind the first one
	keys  []jsonMember
	open  jsonMember // the one that is being read, but for its name
	inKey bool       // there is such a one

	quoted []byte // the last key in depth
}

type jsonMember struct {
	name  string
	kind  byte
	start int64
	size  int64
	items int64
}

const shownKeys = 12

func newJSONShape() *jsonShape {
	j := new(jsonShape)
	j.scan.on = j
	return j
}

func (j *jsonShape) bytes(p []byte) {
	if j.err == nil {
		j.err = j.scan.write(p)
	}
}

func (j *jsonShape) done() {
	if j.err == nil {
		j.err = j.scan.finish()
	}
}

// depth is where the members are that are told of: those of the first value, or of
// the first element of an array. It is zero for nowhere any more.
func (j *jsonShape) depth() int {
	switch {
	case j.more > 0 || j.kind == '[' && (j.items > 1 || j.first != '{'):
		return 0
	case j.kind == '[':
		return 2
	}
	return 1
}

func (j *jsonShape) key(quoted []byte, _ bool) {
	if len(j.scan.stack) == j.depth() {
		j.quoted = append(j.quoted[:0], quoted...)
		j.open = jsonMember{}
	}
}

func (j *jsonShape) begin(kind byte, at int64, depth int) {
	switch {
	case depth == 0 && j.scan.values > 1:
		j.more++
	case depth == 0:
		j.kind = kind
	case depth == 1 && j.more == 0:
		if j.items++; j.items == 1 {
			j.first = kind
		}
	}
	switch d := j.depth(); {
	case d == 0:
	case depth == d && j.scan.stack[d-1] == '{':
		j.open.kind, j.open.start, j.inKey = kind, at, true
	case depth == d+1:
		j.open.items++
	}
	switch d := j.depth(); {
	case j.more > 0:
		j.scan.upTo = 0
	default:
		j.scan.upTo = d + 1 // their elements are counted
	}
}

func (j *jsonShape) end(at int64, depth int) {
	if d := j.depth(); d == 0 || depth != d || j.scan.stack[d-1] != '{' {
		return
	}
	j.inKey, j.open.size = false, at-j.open.start
	if len(j.keys) == shownKeys {
		least := 0
		for i, k := range j.keys {
			if k.size < j.keys[least].size {
				least = i
			}
		}
		if j.keys[least].size >= j.open.size {
			return
		}
		j.keys = slices.Delete(j.keys, least, least+1)
	}
	j.open.name = j.name()
	j.keys = append(j.keys, j.open)
}

// name returns the last key in depth.
func (j *jsonShape) name() string { return clip(strings.Trim(string(j.quoted), `"`), 40) }

func (m jsonMember) String() string {
	switch {
	case m.size == 0: // the text ends in it
		return m.name + " " + jsonKind(m.kind)
	case m.kind == '[':
		return fmt.Sprintf("%s array (%d items, %d B)", m.name, m.items, m.size)
	}
	return fmt.Sprintf("%s %s (%d B)", m.name, jsonKind(m.kind), m.size)
}

func (j *jsonShape) lines() []string {
	members := slices.Clone(j.keys)
	if j.kind == '{' { // the largest first: it is what the text is about
		slices.SortStableFunc(members, func(a, b jsonMember) int { return cmp.Compare(b.size, a.size) })
	}
	if j.inKey {
		j.open.name = j.name()
		members = append(members, j.open)
	}
	var keys []string
	for _, m := range members {
		keys = append(keys, m.String())
	}
	text := jsonKind(j.kind)
	switch j.kind {
	case '{':
		text = fmt.Sprintf("object of %d keys: ", j.items) + strings.Join(keys, ", ")
	case '[':
		text = fmt.Sprintf("array of %d", j.items)
		if j.items > 0 && j.first != '{' {
			text += ", the first: " + jsonKind(j.first)
		} else if len(keys) > 0 {
			text += ", the first: " + strings.Join(keys, ", ")
		}
	}
	if j.more > 0 {
		text = fmt.Sprintf("%d values, the first: %s", j.more+1, text)
	}
	if j.err != nil {
		return []string{"not whole JSON: " + j.err.Error(), text}
	}
	return []string{text}
}

package team

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A jsonStep is one part of a path: a name, an index, or any.
type jsonStep struct {
	name  string
	index int64 // -1 for a name
	any   bool
}

// parseJSONPath reads $.a.b[0]["k"][*].
func parseJSONPath(path string) ([]jsonStep, error) {
	bad := func(at int, why string) ([]jsonStep, error) {
		return nil, &InvalidError{What: "JSON path", Why: why, Offset: at,
			Advice: `it is $ and then .name, ["name"], [0], [*] or .*, as in $.items[0].name`}
	}
	if len(path) > maxGrepBytes {
		return nil, &LimitError{What: "JSON path bytes", Got: int64(len(path)), Max: maxGrepBytes}
	}
	rest, ok := strings.CutPrefix(path, "$")
	if !ok {
		return bad(0, "does not begin with $")
	}
	var steps []jsonStep
	for rest != "" {
		at := len(path) - len(rest)
		if len(steps) == maxJSONSteps {
			return nil, &LimitError{What: "JSON path steps", Got: maxJSONSteps + 1, Max: maxJSONSteps}
		}
		switch {
		case strings.HasPrefix(rest, ".*"), strings.HasPrefix(rest, "[*]"):
			steps = append(steps, jsonStep{any: true, index: -1})
			rest = strings.TrimPrefix(strings.TrimPrefix(rest, ".*"), "[*]")
		case rest[0] == '.':
			n := strings.IndexAny(rest[1:], ".[")
			if n < 0 {
				n = len(rest) - 1
			}
			if n == 0 {
				return bad(at, "has no name behind a dot")
			}
			steps = append(steps, jsonStep{name: rest[1 : n+1], index: -1})
			rest = rest[n+1:]
		case strings.HasPrefix(rest, `["`):
			dec := json.NewDecoder(strings.NewReader(rest[1:]))
			var name string
			if dec.Decode(&name) != nil {
				return bad(at, "has a name that is not in quotes")
			}
			rest = rest[1+dec.InputOffset():]
			if rest, ok = strings.CutPrefix(rest, "]"); !ok {
				return bad(len(path)-len(rest), "has no ] behind a name")
			}
			steps = append(steps, jsonStep{name: name, index: -1})
		case rest[0] == '[':
			number, behind, ok := strings.Cut(rest[1:], "]")
			n, err := strconv.ParseUint(number, 10, 62)
			if !ok || err != nil {
				return bad(at, "has an index that is no number from 0 on")
			}
			steps = append(steps, jsonStep{index: int64(n)})
			rest = behind
		default:
			return bad(at, "has something else than a step")
		}
	}
	return steps, nil
}

// A jsonFinder copies the values that a path leads to, while they go by.
type jsonFinder struct {
	scan  jsonScanner
	steps []jsonStep

	name string // the key that was read last
	open []jsonOpen

	start int64 // where the value starts that is being copied, or -1
	depth int   // of that value

	piece  []byte // the bytes that the scanner reads now
	base   int64  // offset of piece
	copied int64  // up to which offset the value is copied

	out     bytes.Buffer
	limit   int
	full    bool // out has all that it may
	matches int64
}

// A jsonOpen is an open container.
type jsonOpen struct {
	matched bool  // the path leads through it
	next    int64 // index of the next value in it
}

func (j *jsonFinder) key(quoted []byte, long bool) {
	j.name = ""
	if in := j.open[len(j.scan.stack)-1]; !long && in.matched {
		j.name, _ = unquoteJSON(quoted)
	}
}

func (j *jsonFinder) begin(kind byte, at int64, depth int) {
	matched := depth == 0
	if depth > 0 {
		parent := &j.open[depth-1]
		if parent.matched {
			step := j.steps[depth-1]
			if j.scan.stack[depth-1] == '[' {
				matched = step.any || step.index == parent.next
			} else {
				matched = step.any || step.index < 0 && step.name == j.name
			}
		}
		parent.next++
	}
	if matched && depth == len(j.steps) && j.start < 0 && !j.full {
		j.start, j.depth, j.copied = at, depth, at
	}
	if kind == '{' || kind == '[' {
		j.open = append(j.open[:depth], jsonOpen{matched: matched && depth < len(j.steps)})
	}
}

func (j *jsonFinder) end(at int64, depth int) {
	if j.start >= 0 && depth == j.depth {
		j.copyTo(at)
		j.out.WriteByte('\n')
		j.matches++
		j.start = -1
	}
}

// copyTo copies the value that is going by, up to an offset.
func (j *jsonFinder) copyTo(to int64) {
	part := j.piece[j.copied-j.base : to-j.base]
	if room := j.limit - j.out.Len(); len(part) > room {
		part, j.full = part[:max(room, 0)], true
	}
	j.out.Write(part)
	j.copied = to
}

// findJSON reads until it has as much as the budget allows, or to the end.
func findJSON(ctx context.Context, f *verifiedFile, out *Fetched, steps []jsonStep, budget int) error {
	j := &jsonFinder{steps: steps, start: -1, limit: budget*maxTokenBytes + maxCluster}
	j.scan.on, j.scan.upTo = j, maxJSONDepth
	in := io.NewSectionReader(f, 0, f.size)
	buf := make([]byte, fetchPiece)
	for !j.full {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := in.Read(buf)
		if err != nil && err != io.EOF {
			return err
		}
		j.piece, j.base = buf[:n], j.scan.offset
		if n == 0 {
			if err := j.scan.finish(); err != nil {
				return notJSON(err)
			}
			break
		}
		if j.start >= 0 {
			j.copied = j.base
		}
		if err := j.scan.write(buf[:n]); err != nil {
			return notJSON(err)
		}
		if j.start >= 0 {
			j.copyTo(j.base + int64(n))
		}
	}
	if j.matches == 0 && j.start < 0 {
		return fmt.Errorf("%w: the JSON path leads to nothing in the text", ErrNotFound)
	}
	whole := strings.TrimSuffix(j.out.String(), "\n")
	text, err := fit(whole, budget, j.full || j.start >= 0)
	if err != nil {
		return err
	}
	out.Text, out.Matches, out.More = text, j.matches, j.full || len(text) < len(whole)
	if j.start >= 0 {
		out.Matches++ // and a part of one
	}
	return nil
}

// notJSON says what else can be done with a text that is no JSON.
func notJSON(err error) error {
	if bad, ok := errors.AsType[*InvalidError](err); ok {
		bad.Advice = "fetch it by lines, bytes or pattern"
	}
	return err
}

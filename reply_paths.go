package team

import (
	"context"
	"errors"
	"strings"
)

// A ReplyPath is a path that a reply names.
type ReplyPath struct {
	Field  string // "CHANGES" or "HANDOFF"
	Path   string // as it was written
	SHA256 string // the digest that the reply gives for it, in lower-case hex; empty if none

	// State and Err are set by Reply.CheckPaths.
	State PathState
	Err   error // why State is not PathGood
}

// A PathState says what a board has at a path.
type PathState string

// The states.
const (
	PathGood    PathState = "good"    // an entry, whole, with the digest that was given if one was
	PathOutside PathState = "outside" // not a path of an entry of this board, which need not be wrong
	PathMissing PathState = "missing" // there is no such entry
	PathDiffers PathState = "differs" // the entry was changed since it was written, or has another digest than the reply says
	PathUnread  PathState = "unread"  // the entry could not be looked at
)

// Paths returns the paths in CHANGES and HANDOFF, in their order: absolute ones, and
// relative ones with a slash that end in ".md". A path in quotation marks or backticks may
// have spaces. A SHA-256 in hex behind a path in its line, with or without "sha256" and a
// mark before it, is the path's.
func (r Reply) Paths() []ReplyPath {
	var paths []ReplyPath
	for _, f := range []struct{ label, text string }{{"CHANGES", r.Changes}, {"HANDOFF", r.Handoff}} {
		for line := range replyLines(f.text) {
			first := len(paths) // of this line
			for word := range pathWords(f.text[line.from:line.to]) {
				if isReplyPath(word) {
					paths = append(paths, ReplyPath{Field: f.label, Path: word})
				} else if digest, ok := digestIn(word); ok && len(paths) > first && paths[len(paths)-1].SHA256 == "" {
					paths[len(paths)-1].SHA256 = digest
				}
			}
		}
	}
	return paths
}

// CheckPaths returns Paths with what the board has there. It reads each entry whole, to
// compare its digest. Its error is that of ctx; what is wrong with a path is in its Err.
func (r Reply) CheckPaths(ctx context.Context, b *Board) ([]ReplyPath, error) {
	paths := r.Paths()
	type seen struct{ path, digest string }
	known := make(map[seen]int)
	for i := range paths {
		p := &paths[i]
		if k, ok := known[seen{p.Path, p.SHA256}]; ok {
			p.State, p.Err = paths[k].State, paths[k].Err
			continue
		}
		known[seen{p.Path, p.SHA256}] = i
		x, err := b.Read(ctx, p.Path, Range{Bytes: 1})
		if e := ctx.Err(); e != nil {
			return nil, e
		}
		if err == nil && p.SHA256 != "" && p.SHA256 != x.Entry.SHA256 {
			err = &Error{Op: "reply.check", Name: p.Path, Err: &DigestError{Want: p.SHA256, Got: x.Entry.SHA256}}
		}
		p.State, p.Err = pathState(err), err
	}
	return paths, nil
}

func pathState(err error) PathState {
	switch {
	case err == nil:
		return PathGood
	case errors.Is(err, ErrCorrupt):
		return PathDiffers
	case errors.Is(err, ErrNotFound):
		return PathMissing
	case errors.Is(err, ErrDenied), errors.Is(err, ErrInvalid):
		return PathOutside
	}
	return PathUnread
}

// Between words are spaces and brackets, and what a path of a board cannot have.
const pathWordEnds = " \t\r()[]<>{},;|`\"，。；：、（）【】「」《》“”"

// pathWords yields the words of a line, without the punctuation round them. What stands in
// quotation marks or backticks is one word if it is a path.
func pathWords(line string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for line != "" {
			if c := line[0]; c == '`' || c == '"' || c == '\'' {
				line = line[1:]
				if end := strings.IndexByte(line, c); end > 0 && isReplyPath(line[:end]) {
					if !yield(line[:end]) {
						return
					}
					line = line[end+1:]
				}
				continue
			}
			if rest := strings.TrimLeft(line, pathWordEnds); len(rest) < len(line) {
				if skipped := line[:len(line)-len(rest)]; strings.ContainsAny(skipped, "`\"") {
					rest = line[strings.IndexAny(line, "`\""):]
				}
				line = rest
				continue
			}
			word := line
			if end := strings.IndexAny(line, pathWordEnds); end >= 0 {
				word = line[:end]
			}
			line = line[len(word):]
			if !yield(strings.TrimRight(strings.Trim(word, "*_'"), ".:!?")) {
				return
			}
		}
	}
}

func isReplyPath(s string) bool {
	switch {
	case len(s) < 2 || strings.Contains(s, "://") || strings.IndexFunc(s, breaksLine) >= 0:
		return false
	case s[0] == '/' && s[1] != '/' && s[1] != ' ':
		return true
	case len(s) > 3 && s[1] == ':' && (s[2] == '\\' || s[2] == '/') && (s[0]|0x20 >= 'a' && s[0]|0x20 <= 'z'):
		return true
	}
	return strings.ContainsAny(s, `/\`) && !strings.Contains(s, " ") && len(s) > 4 && strings.EqualFold(s[len(s)-3:], ".md")
}

// digestIn returns the SHA-256 that a word is, or has behind "sha256" and a mark.
func digestIn(word string) (string, bool) {
	if len(word) < 64 || len(word) > 80 {
		return "", false
	}
	s := strings.TrimLeft(strings.TrimPrefix(strings.ToLower(word), "sha256"), "=:-")
	if len(s) != 64 || strings.Trim(s, "0123456789abcdef") != "" {
		return "", false
	}
	return s, true
}

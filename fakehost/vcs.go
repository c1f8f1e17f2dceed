package fakehost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// VCSDomain is what the host knows of version control: the branch of a git workspace, and which files
// the agents' tools have changed since the host was opened. It runs no git, so what a shell command
// or another program changed is not seen.
//
// OpenCode 1.18: GET /vcs, event vcs.branch.updated. 2.0: ctx.vcs; its bases and branch lists are not
// here.
type VCSDomain struct {
	h *Host

	mu      sync.Mutex // guards the fields below
	branch  string
	changes map[changedFile]original
}

type changedFile struct{ session, file string }

// An original is a file as it was before a session changed it.
type original struct {
	data   []byte
	exists bool
}

// A FileDiff says how much of a file has changed: lines. The host also has a patch; here there is none.
type FileDiff struct {
	File      string `json:"file"` // relative to the workspace
	Additions int    `json:"additions"`
	Deletions int    `json:"deletions"`
	Status    string `json:"status"` // "added", "deleted", "modified"
}

// Branch returns the branch of the workspace: empty without git, or when no branch is checked out. If it
// is another than the last time, vcs.branch.updated {branch} is published; the real host watches the
// file.
func (d *VCSDomain) Branch(ctx context.Context) (string, error) {
	if err := d.h.enter(ctx, Call{Domain: "vcs", Method: "branch"}); err != nil {
		return "", err
	}
	branch, err := headBranch(d.h.opts.Directory)
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	changed := branch != d.branch
	d.branch = branch
	d.mu.Unlock()
	if !changed {
		return branch, nil
	}
	return branch, d.h.tx(func(t *tx) error {
		t.emit("vcs.branch.updated", "", map[string]any{"branch": branch})
		return nil
	})
}

// headBranch reads which branch HEAD names, also in a linked worktree, where .git is a file.
func headBranch(dir string) (string, error) {
	git := filepath.Join(dir, ".git")
	if data, err := os.ReadFile(git); err == nil {
		to, ok := strings.CutPrefix(strings.TrimSpace(string(data)), "gitdir: ")
		if !ok {
			return "", fmt.Errorf("%s names no folder", git)
		}
		if git = to; !filepath.IsAbs(to) {
			git = filepath.Join(dir, to)
		}
	}
	head, err := os.ReadFile(filepath.Join(git, "HEAD"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	branch, _ := strings.CutPrefix(strings.TrimSpace(string(head)), "ref: refs/heads/")
	if strings.HasPrefix(string(head), "ref: refs/heads/") {
		return branch, err
	}
	return "", err
}

// changing notes a file before a session's tool changes it.
func (d *VCSDomain) changing(session string, at *place) error {
	if filepath.IsAbs(filepath.FromSlash(at.rel)) {
		return nil // outside the workspace
	}
	if info, err := at.root.Stat(at.name); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", at.rel)
	}
	data, err := at.root.ReadFile(at.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, has := d.changes[changedFile{session, at.rel}]; !has {
		d.changes[changedFile{session, at.rel}] = original{data, err == nil}
	}
	return nil
}

// Status returns the files that are not as the first session that changed them found them, by name.
func (d *VCSDomain) Status(ctx context.Context) ([]FileDiff, error) {
	if err := d.h.enter(ctx, Call{Domain: "vcs", Method: "status"}); err != nil {
		return nil, err
	}
	return d.diff("")
}

// Diff returns the files that are not as the session found them when it first changed them, by name.
//
// OpenCode 1.18: GET /session/:id/diff. 2.0: GET /api/session/:id/diff.
func (d *SessionDomain) Diff(ctx context.Context, session string) ([]FileDiff, error) {
	if _, err := d.Get(ctx, session); err != nil {
		return nil, err
	}
	if err := d.h.enter(ctx, Call{Domain: "session", Method: "diff", Session: session}); err != nil {
		return nil, err
	}
	if d.h.VCS == nil {
		return nil, nil // without files nothing changes
	}
	return d.h.VCS.diff(session)
}

func (d *VCSDomain) diff(session string) ([]FileDiff, error) {
	d.mu.Lock()
	changes := make(map[string]original)
	for c, was := range d.changes {
		if session == "" || c.session == session {
			changes[c.file] = was
		}
	}
	d.mu.Unlock()
	root, err := os.OpenRoot(d.h.opts.Directory)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var out []FileDiff
	for _, file := range slices.Sorted(maps.Keys(changes)) {
		was := changes[file]
		now, err := root.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		exists := err == nil
		diff := FileDiff{File: file, Status: "modified"}
		switch {
		case was.exists == exists && bytes.Equal(was.data, now):
			continue
		case !was.exists:
			diff.Status = "added"
		case !exists:
			diff.Status = "deleted"
		}
		diff.Additions, diff.Deletions = countLines(splitLines(was.data), splitLines(now))
		out = append(out, diff)
	}
	return out, nil
}

func splitLines(data []byte) []string {
	if len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// countLines returns how many lines were added and deleted. Where what differs is so large that it would
// take long to compare, all of it counts.
func countLines(a, b []string) (added, deleted int) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	const most = 4 << 20
	if len(a)*len(b) > most {
		return len(b), len(a)
	}
	// The longest common subsequence, row by row.
	row := make([]int, len(b)+1)
	for _, x := range a {
		diagonal := 0
		for j, y := range b {
			above := row[j+1]
			if x == y {
				row[j+1] = diagonal + 1
			} else {
				row[j+1] = max(above, row[j])
			}
			diagonal = above
		}
	}
	return len(b) - row[len(b)], len(a) - row[len(b)]
}

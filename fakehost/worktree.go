package fakehost

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// A Worktree is a further folder of the project.
type Worktree struct {
	Directory string `json:"directory"`
	Strategy  string `json:"strategy,omitempty"`
}

// A WorktreeStrategy makes and removes worktrees. The host has none of its own here; the real one
// uses git.
type WorktreeStrategy struct {
	ID     string
	Create func(ctx context.Context, source, directory string) error
	Remove func(ctx context.Context, directory string, force bool) error
}

// WorktreeDomain is the worktrees of the project, in memory.
//
// OpenCode 2.0: ctx.worktree, event worktree.updated {projectID}. The durable worktree.resolved, and
// permissions about worktrees, are not here.
type WorktreeDomain struct {
	h *Host

	mu         sync.Mutex // guards the fields below
	strategies map[string]WorktreeStrategy
	list       []Worktree
}

// Add registers a strategy, in place of the one of its id.
func (d *WorktreeDomain) Add(s WorktreeStrategy) error {
	if strings.TrimSpace(s.ID) == "" || s.Create == nil || s.Remove == nil {
		return invalid("worktree strategy", "has no id, Create or Remove", "set all three")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.strategies[s.ID] = s
	return nil
}

// Create makes a worktree at directory, by a strategy, from the workspace. A *ConflictError if there is
// one already.
func (d *WorktreeDomain) Create(ctx context.Context, strategy, directory string) (Worktree, error) {
	if err := d.h.enter(ctx, Call{Domain: "worktree", Method: "create", Name: directory}); err != nil {
		return Worktree{}, err
	}
	if !filepath.IsAbs(directory) {
		return Worktree{}, invalid("worktree", fmt.Sprintf("is at %q", directory), "name an absolute folder")
	}
	directory = filepath.Clean(directory)
	d.mu.Lock()
	s, ok := d.strategies[strategy]
	taken := d.index(directory) >= 0
	d.mu.Unlock()
	if !ok {
		return Worktree{}, &NotFoundError{"worktree strategy", strategy}
	}
	if taken {
		return Worktree{}, &ConflictError{directory, "is a worktree already"}
	}
	if err := s.Create(ctx, d.h.Directory(), directory); err != nil {
		return Worktree{}, err
	}
	w := Worktree{directory, strategy}
	d.mu.Lock()
	if d.index(directory) < 0 {
		d.list = append(d.list, w)
	}
	d.mu.Unlock()
	d.h.updated("worktree.updated", map[string]any{"projectID": "global"})
	return w, nil
}

func (d *WorktreeDomain) index(directory string) int {
	return slices.IndexFunc(d.list, func(w Worktree) bool { return w.Directory == directory })
}

// List returns the worktrees, by folder.
func (d *WorktreeDomain) List(ctx context.Context) ([]Worktree, error) {
	if err := d.h.enter(ctx, Call{Domain: "worktree", Method: "list"}); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(slices.Values(d.list), func(a, b Worktree) int { return cmp.Compare(a.Directory, b.Directory) }), nil
}

// Remove takes a worktree away, by the strategy that made it.
func (d *WorktreeDomain) Remove(ctx context.Context, directory string, force bool) error {
	if err := d.h.enter(ctx, Call{Domain: "worktree", Method: "remove", Name: directory}); err != nil {
		return err
	}
	directory = filepath.Clean(directory)
	d.mu.Lock()
	i := d.index(directory)
	var s WorktreeStrategy
	if i >= 0 {
		s = d.strategies[d.list[i].Strategy]
	}
	d.mu.Unlock()
	if i < 0 {
		return &NotFoundError{"worktree", directory}
	}
	if err := s.Remove(ctx, directory, force); err != nil {
		return err
	}
	d.mu.Lock()
	d.list = slices.DeleteFunc(d.list, func(w Worktree) bool { return w.Directory == directory })
	d.mu.Unlock()
	d.h.updated("worktree.updated", map[string]any{"projectID": "global"})
	return nil
}

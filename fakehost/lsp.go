package fakehost

import (
	"cmp"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// FaultServerMissing is a host on which the binary of no language server is found.
const FaultServerMissing Fault = "language server missing"

// LSPDomain chooses language servers for files. It starts no process: a server counts as started
// once it was chosen and its binary was found.
//
// OpenCode 1.18 and 2.0 choose in the same way. 1.18: GET /lsp, event lsp.updated.
type LSPDomain struct {
	h *Host

	mu      sync.Mutex // guards started
	started map[LanguageClient]bool
}

// A LanguageServer says for which files a server is used, and where its root is.
type LanguageServer struct {
	ID         string
	Extensions []string // ".go"; a file of another name is none of its business
	Root       []string // marker files of a root, "go.mod"
	Exclude    []string // marker files in whose reach the server is not used
	Binary     string   // looked for on PATH; empty is there
}

// A LanguageClient is a server at a root, relative to the workspace.
type LanguageClient struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Root   string `json:"root"`
	Status string `json:"status"` // "connected", or "error" if the binary is missing
}

// Open starts the servers for a file and returns those that run. Their root is the nearest folder, from
// that of the file up to the workspace, that has a marker; without one it is the workspace. A server
// with an exclude marker on that way is not used, one whose binary is missing is not tried again, and
// a file outside the workspace has none.
func (d *LSPDomain) Open(ctx context.Context, file string) ([]LanguageClient, error) {
	if err := d.h.enter(ctx, Call{Domain: "lsp", Method: "open", Name: file}); err != nil {
		return nil, err
	}
	if file == "" || strings.ContainsRune(file, 0) {
		return nil, invalid("file", "has no name", "name a file of the workspace")
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(d.h.opts.Directory, file)
	}
	rel, err := filepath.Rel(d.h.opts.Directory, filepath.Clean(file))
	if err != nil || !filepath.IsLocal(rel) || rel == "." {
		return nil, nil
	}
	var out []LanguageClient
	for _, s := range d.h.opts.LanguageServers {
		if !slices.Contains(s.Extensions, filepath.Ext(rel)) {
			continue
		}
		if _, excluded := d.up(rel, s.Exclude); excluded {
			continue
		}
		root, _ := d.up(rel, s.Root)
		if c, ok := d.start(s, root); ok {
			out = append(out, c)
		}
	}
	return out, nil
}

// up returns the nearest folder of a file that has one of the markers, and whether there is one.
func (d *LSPDomain) up(file string, markers []string) (string, bool) {
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		for _, m := range markers {
			if _, err := os.Stat(filepath.Join(d.h.opts.Directory, dir, m)); err == nil {
				return dir, true
			}
		}
		if dir == "." {
			return dir, false
		}
	}
}

// start makes the server run at root, unless it was tried there before.
func (d *LSPDomain) start(s LanguageServer, root string) (LanguageClient, bool) {
	c := LanguageClient{s.ID, s.ID, filepath.ToSlash(root), "connected"}
	broken := c
	broken.Status = "error"
	missing := d.h.has(FaultServerMissing)
	if !missing && s.Binary != "" {
		_, err := exec.LookPath(s.Binary)
		missing = err != nil
	}
	d.mu.Lock()
	_, was := d.started[c]
	_, failed := d.started[broken]
	switch {
	case was || failed:
	case missing:
		d.started[broken], failed = true, true
	default:
		d.started[c] = true
	}
	d.mu.Unlock()
	if !was && !failed && d.h.profile.v1() {
		_ = d.h.tx(func(t *tx) error { // a closed host has nobody to tell
			t.emit("lsp.updated", "", map[string]any{})
			return nil
		})
	}
	return c, !failed
}

// Status returns the servers that were started, and those that could not be, by id and root.
func (d *LSPDomain) Status(ctx context.Context) ([]LanguageClient, error) {
	if err := d.h.enter(ctx, Call{Domain: "lsp", Method: "status"}); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Keys(d.started), func(a, b LanguageClient) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Root, b.Root))
	}), nil
}

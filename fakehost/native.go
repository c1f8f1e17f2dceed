package fakehost

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// nativeTools returns the host's own tools: the one for subagents, those of the domains, and
// those that work in the workspace, if there is one.
func (h *Host) nativeTools() []Tool {
	out := []Tool{h.subagentTool(), h.Skill.tool()}
	if h.Todo != nil {
		out = append(out, h.Todo.tool())
	}
	if h.Question != nil {
		out = append(out, h.Question.tool())
	}
	if h.Form != nil {
		out = append(out, h.Form.tool())
	}
	if h.Question != nil && h.profile.PlanMode {
		out = append(out, h.planExitTool())
	}
	if h.opts.Directory == "" {
		return out
	}
	return append(out,
		Tool{Name: "read", Description: "Read a file or list a folder", Run: h.readTool},
		Tool{Name: "write", Description: "Write a file", Permission: "edit", Run: h.writeTool},
		Tool{Name: "edit", Description: "Replace a text in a file", Permission: "edit", Run: h.editTool},
		Tool{Name: "grep", Description: "Find lines by a regular expression", Run: h.grepTool},
		Tool{Name: "glob", Description: "Find files by a pattern", Run: h.globTool},
		Tool{Name: h.profile.Shell, Description: "Run a command", Run: h.shellTool, late: true},
	)
}

// A place is a file or folder that a tool was told to work on. All work goes through root,
// so that no link leads out of it.
type place struct {
	root *os.Root
	name string // within root, with slashes
	rel  string // what rules are about: relative to the workspace, or absolute outside it
	abs  string
}

// place opens where p leads, which is relative to the workspace. Outside it the session has
// to be allowed external_directory first. The caller closes the root.
func (h *Host) place(ctx context.Context, c *ToolCall, p string, folder bool) (*place, error) {
	if strings.ContainsRune(p, 0) {
		return nil, errors.New("the path has a zero byte; write another")
	}
	abs := p
	if !filepath.IsAbs(abs) {
		abs = filepath.Join(h.opts.Directory, p)
	}
	abs = filepath.Clean(abs)
	rel, err := filepath.Rel(h.opts.Directory, abs)
	if err == nil && filepath.IsLocal(rel) {
		root, err := os.OpenRoot(h.opts.Directory)
		if err != nil {
			return nil, err
		}
		return &place{root, filepath.ToSlash(rel), filepath.ToSlash(rel), abs}, nil
	}
	dir, name := filepath.Split(abs)
	if folder || dir == abs {
		dir, name = abs, "."
	}
	dir = filepath.Clean(dir)
	pattern := strings.TrimSuffix(filepath.ToSlash(dir), "/") + "/*"
	err = c.Ask(ctx, "external_directory", []string{pattern}, []string{pattern}, map[string]any{"filepath": abs, "parentDir": dir})
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &place{root, filepath.ToSlash(name), filepath.ToSlash(abs), abs}, nil
}

// A fileInput is the input of the tools for files. Generation 1 says filePath, generation 2
// path; both are understood.
type fileInput struct {
	FilePath   string `json:"filePath,omitempty"`
	Path       string `json:"path,omitempty"`
	Offset     int    `json:"offset,omitempty"` // lines
	Limit      int    `json:"limit,omitempty"`  // lines
	Content    string `json:"content,omitempty"`
	OldString  string `json:"oldString,omitempty"`
	NewString  string `json:"newString,omitempty"`
	ReplaceAll bool   `json:"replaceAll,omitempty"`
	Pattern    string `json:"pattern,omitempty"`
	Include    string `json:"include,omitempty"`
}

func (in fileInput) name() string {
	if in.FilePath != "" {
		return in.FilePath
	}
	return in.Path
}

// file decodes the input and opens the file that it names.
func (h *Host) file(ctx context.Context, c *ToolCall, in *fileInput) (*place, error) {
	if err := c.Decode(in); err != nil {
		return nil, err
	}
	if in.name() == "" {
		return nil, errors.New("no path; name the file")
	}
	return h.place(ctx, c, in.name(), false)
}

func (h *Host) readTool(ctx context.Context, c *ToolCall) (ToolOutput, error) {
	var in fileInput
	at, err := h.file(ctx, c, &in)
	if err != nil {
		return ToolOutput{}, err
	}
	defer at.root.Close()
	if err := c.Ask(ctx, "read", []string{at.rel}, []string{"*"}, map[string]any{}); err != nil {
		return ToolOutput{}, err
	}
	info, err := at.root.Stat(at.name)
	if err != nil {
		return ToolOutput{}, fmt.Errorf("read %s: %w", at.rel, err)
	}
	if info.IsDir() {
		list, err := fs.ReadDir(at.root.FS(), at.name)
		if err != nil {
			return ToolOutput{}, err
		}
		var names []string
		for _, e := range list {
			if e.IsDir() {
				names = append(names, e.Name()+"/")
			} else {
				names = append(names, e.Name())
			}
		}
		return ToolOutput{Title: at.rel, Text: strings.Join(names, "\n")}, nil
	}
	if !info.Mode().IsRegular() {
		return ToolOutput{}, fmt.Errorf("read %s: is no regular file", at.rel)
	}
	data, err := at.root.ReadFile(at.name)
	if err != nil {
		return ToolOutput{}, err
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	from := min(max(in.Offset, 0), len(lines))
	to := len(lines)
	if in.Limit > 0 {
		to = min(to, from+min(in.Limit, to))
	}
	return ToolOutput{Title: at.rel, Text: strings.Join(lines[from:to], "\n")}, nil
}

// write asks for the permission to edit and writes the file.
func (h *Host) write(ctx context.Context, c *ToolCall, at *place, content string) (ToolOutput, error) {
	err := c.Ask(ctx, "edit", []string{at.rel}, []string{"*"}, map[string]any{"filepath": at.abs})
	if err != nil {
		return ToolOutput{}, err
	}
	if err := h.VCS.changing(c.Session, at); err != nil {
		return ToolOutput{}, err
	}
	if dir := path.Dir(at.name); dir != "." {
		if err := at.root.MkdirAll(dir, 0o777); err != nil {
			return ToolOutput{}, err
		}
	}
	if err := at.root.WriteFile(at.name, []byte(content), 0o666); err != nil {
		return ToolOutput{}, err
	}
	return ToolOutput{Title: at.rel, Text: fmt.Sprintf("wrote %d bytes", len(content)), Metadata: map[string]any{"filepath": at.abs}}, nil
}

func (h *Host) writeTool(ctx context.Context, c *ToolCall) (ToolOutput, error) {
	var in fileInput
	at, err := h.file(ctx, c, &in)
	if err != nil {
		return ToolOutput{}, err
	}
	defer at.root.Close()
	return h.write(ctx, c, at, in.Content)
}

func (h *Host) editTool(ctx context.Context, c *ToolCall) (ToolOutput, error) {
	var in fileInput
	at, err := h.file(ctx, c, &in)
	if err != nil {
		return ToolOutput{}, err
	}
	defer at.root.Close()
	data, err := at.root.ReadFile(at.name)
	if err != nil {
		return ToolOutput{}, fmt.Errorf("edit %s: %w", at.rel, err)
	}
	text := string(data)
	switch n := strings.Count(text, in.OldString); {
	case in.OldString == "" || n == 0:
		return ToolOutput{}, fmt.Errorf("edit %s: oldString is not in the file; read it again", at.rel)
	case n > 1 && !in.ReplaceAll:
		return ToolOutput{}, fmt.Errorf("edit %s: oldString is there %d times; make it longer, or set replaceAll", at.rel, n)
	}
	return h.write(ctx, c, at, strings.ReplaceAll(text, in.OldString, in.NewString))
}

// walk calls fn with each regular file below at, in lexical order, with its name relative
// to at, without those of git.
func (at *place) walk(ctx context.Context, fn func(name string, open func() (fs.File, error)) error) error {
	files := at.root.FS()
	return fs.WalkDir(files, at.name, func(name string, e fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case e.IsDir() && e.Name() == ".git":
			return fs.SkipDir
		case !e.Type().IsRegular():
			return nil
		}
		rel := strings.TrimPrefix(name, strings.TrimSuffix(at.name, "/")+"/")
		if at.name == "." {
			rel = name
		}
		return fn(rel, func() (fs.File, error) { return files.Open(name) })
	})
}

// search decodes the input, opens the folder and asks for action.
func (h *Host) search(ctx context.Context, c *ToolCall, action string) (fileInput, *place, error) {
	var in fileInput
	if err := c.Decode(&in); err != nil {
		return in, nil, err
	}
	at, err := h.place(ctx, c, in.Path, true)
	if err != nil {
		return in, nil, err
	}
	if err := c.Ask(ctx, action, []string{in.Pattern}, []string{"*"}, map[string]any{"pattern": in.Pattern, "path": in.Path}); err != nil {
		at.root.Close()
		return in, nil, err
	}
	return in, at, nil
}

func (h *Host) globTool(ctx context.Context, c *ToolCall) (ToolOutput, error) {
	in, at, err := h.search(ctx, c, "glob")
	if err != nil {
		return ToolOutput{}, err
	}
	defer at.root.Close()
	var found []string
	err = at.walk(ctx, func(name string, _ func() (fs.File, error)) error {
		if wildcard(globToWild(in.Pattern), name) {
			found = append(found, filepath.Join(at.abs, filepath.FromSlash(name)))
		}
		return nil
	})
	if err != nil {
		return ToolOutput{}, err
	}
	return ToolOutput{Title: in.Pattern, Text: strings.Join(found, "\n"), Metadata: map[string]any{"count": len(found)}}, nil
}

// globToWild makes ** and **/ the wildcard that crosses folders; * crosses them too.
func globToWild(pattern string) string {
	return strings.ReplaceAll(strings.ReplaceAll(pattern, "**/", "*"), "**", "*")
}

func (h *Host) grepTool(ctx context.Context, c *ToolCall) (ToolOutput, error) {
	in, at, err := h.search(ctx, c, "grep")
	if err != nil {
		return ToolOutput{}, err
	}
	defer at.root.Close()
	re, err := regexp.Compile(in.Pattern)
	if err != nil {
		return ToolOutput{}, fmt.Errorf("grep: %w", err)
	}
	var found []string
	err = at.walk(ctx, func(name string, open func() (fs.File, error)) error {
		if in.Include != "" && !wildcard(globToWild(in.Include), name) {
			return nil
		}
		f, err := open()
		if err != nil {
			return err
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20) // longer lines end the file: it is no text
		for n := 1; lines.Scan(); n++ {
			if re.MatchString(lines.Text()) {
				found = append(found, fmt.Sprintf("%s:%d: %s", filepath.Join(at.abs, filepath.FromSlash(name)), n, lines.Text()))
			}
		}
		return nil
	})
	if err != nil {
		return ToolOutput{}, err
	}
	slices.Sort(found)
	return ToolOutput{Title: in.Pattern, Text: strings.Join(found, "\n"), Metadata: map[string]any{"matches": len(found)}}, nil
}

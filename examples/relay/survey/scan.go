package survey

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// limits bound a scan, so that the relay ends soon in any folder. What is left
// out because of them is said in every deliverable.
type limits struct {
	entries int   // files and folders looked at
	bytes   int64 // bytes read, all files together
	file    int64 // a larger file is listed but not read
}

var defaultLimits = limits{entries: 50_000, bytes: 128 << 20, file: 2 << 20}

// A Tree is what the specialists work on: the facts of every file in the
// workspace. The texts themselves are not kept.
type Tree struct {
	Files    []*file // by path
	Folders  int
	Packages []*pkg // by folder
	Modules  []*module
	Skipped  []string  // folders that were not entered on purpose
	Problems []problem // what could not be read or parsed
	Links    int       // symbolic links, not followed
	Special  int       // sockets, pipes, devices: not opened
	TooLarge int       // files over limits.file
	Unread   int       // files that came after limits.bytes was used up
	UnreadGo bool      // there is Go code among what was not read
	Stopped  string    // why the walk ended early; empty if it did not
	Read     int64     // bytes read
	Limits   limits
}

// Facts are the numbers of a tree.
type Facts struct {
	Files    int      `json:"files"`
	Folders  int      `json:"folders"`
	Packages int      `json:"packages"`
	Read     int64    `json:"bytes_read"`
	Gaps     []string `json:"gaps"` // what was left out, and why
}

// Facts returns the numbers of t.
func (t *Tree) Facts() Facts {
	return Facts{Files: len(t.Files), Folders: t.Folders + 1, Packages: len(t.Packages), Read: t.Read, Gaps: append([]string{}, t.gaps()...)}
}

// A file is one regular file. Paths are relative to the root, with slashes.
type file struct {
	Path    string
	Size    int64
	Lang    string
	Test    bool // by its name
	Exec    bool
	Read    bool // the fields below are known
	Binary  bool
	Lines   int
	Longest int // the longest line, in bytes
	Sum     [sha256.Size]byte
	Markers []marker
	Go      *goFile // nil for other languages
}

// A marker is a TODO and its like.
type marker struct {
	Word string
	Line int
	Text string
}

// A problem says why something is missing from the facts.
type problem struct{ Path, Why string }

// notEntered are folders whose content is not the project's own work.
var notEntered = map[string]bool{
	".git": true, ".hg": true, ".svn": true, ".jj": true, ".bzr": true,
	"node_modules": true, "bower_components": true, "vendor": true,
	"__pycache__": true, ".venv": true, "venv": true, ".tox": true, ".mypy_cache": true, ".pytest_cache": true,
	".cache": true, ".gradle": true, ".next": true, ".idea": true, ".vscode": true, ".terraform": true,
	"opencode-team": true, "opencode-team-state": true, // a board outside git: our own output
}

// Open scans a folder of the disk.
func Open(ctx context.Context, dir string) (*Tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() // a root, so that nothing outside is read even if a folder becomes a link meanwhile
	return scanTree(ctx, root.FS(), outerModule(dir), defaultLimits)
}

// outerModule is the module that dir lies in, if its go.mod is further up.
func outerModule(dir string) *module {
	rest := ""
	for {
		if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil {
			m := parseMod(".", string(text))
			m.Path = path.Join(m.Path, filepath.ToSlash(rest))
			return m
		}
		up := filepath.Dir(dir)
		if up == dir {
			return nil
		}
		rest = filepath.Join(filepath.Base(dir), rest)
		dir = up
	}
}

// scanTree walks fsys. It follows no symbolic link and opens regular files
// only. Nothing it finds is an error: what it cannot read becomes a problem.
// The one error is that of ctx, or of a root that cannot be read at all.
func scanTree(ctx context.Context, fsys fs.FS, outer *module, lim limits) (*Tree, error) {
	t := &Tree{Limits: lim}
	seen := 0
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			if name == "." {
				return err
			}
			t.problem(name, err)
			t.UnreadGo = true // for all we know
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if name == "." {
			return nil
		}
		if seen++; seen > lim.entries {
			t.Stopped = fmt.Sprintf("the walk ended after %d files and folders, at %s", lim.entries, code(name))
			return fs.SkipAll
		}
		switch mode := d.Type(); {
		case d.IsDir() && notEntered[d.Name()]:
			t.Skipped = append(t.Skipped, name)
			return fs.SkipDir
		case d.IsDir():
			t.Folders++
		case mode&fs.ModeSymlink != 0:
			t.Links++
		case !mode.IsRegular():
			t.Special++
		case notEntered[d.Name()]: // the .git file of a linked worktree
		default:
			t.add(fsys, name, d)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(t.Files, func(a, b *file) int { return cmp.Compare(a.Path, b.Path) })
	if outer != nil && !slices.ContainsFunc(t.Modules, func(m *module) bool { return m.Dir == "." }) {
		t.Modules = append(t.Modules, outer)
	}
	t.link()
	return t, nil
}

func (t *Tree) problem(name string, err error) {
	// A PathError repeats the path, which is said already.
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	if !utf8.ValidString(name) && errors.Is(err, fs.ErrInvalid) {
		err = errors.New("its name is not UTF-8")
	}
	t.Problems = append(t.Problems, problem{name, err.Error()})
}

// add takes one regular file into the tree.
func (t *Tree) add(fsys fs.FS, name string, d fs.DirEntry) {
	info, err := d.Info()
	if err != nil {
		t.problem(name, err)
		return
	}
	f := &file{Path: name, Size: info.Size(), Lang: langOf(name), Test: isTest(name), Exec: info.Mode()&0o111 != 0}
	t.Files = append(t.Files, f)
	switch {
	case f.Size == 0: // nothing in it; the files of /proc say so as well, and some of them block
		f.Read = true
		return
	case f.Size > t.Limits.file:
		t.TooLarge++
		t.UnreadGo = t.UnreadGo || f.Lang == "Go"
		return
	case t.Read+f.Size > t.Limits.bytes:
		t.Unread++
		t.UnreadGo = t.UnreadGo || f.Lang == "Go"
		return
	}
	text, err := readFile(fsys, name, t.Limits.file)
	if err != nil {
		t.problem(name, err)
		t.UnreadGo = t.UnreadGo || f.Lang == "Go"
		return
	}
	t.Read += int64(len(text))
	f.Read = true
	f.Sum = sha256.Sum256(text)
	if isBinary(text) {
		f.Binary = true
		return
	}
	f.Lines, f.Longest = countLines(text)
	switch {
	case path.Base(name) == "go.mod" && goTool(name):
		t.Modules = append(t.Modules, parseMod(path.Dir(name), string(text)))
	case f.Lang == "Go" && goTool(name):
		f.Go = parseGo(name, text)
		f.Markers = f.Go.markers
		if f.Go.broken != "" {
			t.Problems = append(t.Problems, problem{name, f.Go.broken})
		}
	case languages[strings.ToLower(path.Ext(name))].comment != "" || f.Lang == "Make" || f.Lang == "Docker":
		f.Markers = lineMarkers(string(text), commentOf(name))
	}
}

// readFile reads name, but not more than most bytes of it: a file may grow
// between the look at its size and now.
func readFile(fsys fs.FS, name string, most int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// isBinary looks for what no text has: a zero byte, or a beginning that is not
// UTF-8.
func isBinary(text []byte) bool {
	head := text[:min(len(text), 8000)]
	if bytes.IndexByte(head, 0) >= 0 {
		return true
	}
	bad := 0
	for i := 0; i < len(head); {
		r, n := utf8.DecodeRune(head[i:])
		if r == utf8.RuneError && n == 1 {
			bad++
		}
		i += n
	}
	return bad*10 > len(head) // Latin-1 prose passes, an image does not
}

func countLines(text []byte) (lines, longest int) {
	for line := range bytes.Lines(text) {
		lines++
		longest = max(longest, len(bytes.TrimRight(line, "\r\n")))
	}
	return lines, longest
}

// A lang is a language and how a comment begins in it.
type lang struct{ name, comment string }

var languages = map[string]lang{
	".go": {"Go", "//"}, ".c": {"C", "//"}, ".h": {"C", "//"}, ".cc": {"C++", "//"}, ".cpp": {"C++", "//"},
	".hpp": {"C++", "//"}, ".cs": {"C#", "//"}, ".java": {"Java", "//"}, ".kt": {"Kotlin", "//"},
	".scala": {"Scala", "//"}, ".swift": {"Swift", "//"}, ".rs": {"Rust", "//"}, ".zig": {"Zig", "//"},
	".js": {"JavaScript", "//"}, ".mjs": {"JavaScript", "//"}, ".jsx": {"JavaScript", "//"},
	".ts": {"TypeScript", "//"}, ".tsx": {"TypeScript", "//"}, ".dart": {"Dart", "//"}, ".php": {"PHP", "//"},
	".proto": {"Protobuf", "//"}, ".py": {"Python", "#"}, ".rb": {"Ruby", "#"}, ".pl": {"Perl", "#"},
	".sh": {"Shell", "#"}, ".bash": {"Shell", "#"}, ".r": {"R", "#"}, ".jl": {"Julia", "#"},
	".ex": {"Elixir", "#"}, ".exs": {"Elixir", "#"}, ".tf": {"Terraform", "#"}, ".nix": {"Nix", "#"},
	".lua": {"Lua", "--"}, ".sql": {"SQL", "--"}, ".hs": {"Haskell", "--"}, ".erl": {"Erlang", "%"},
	".tex": {"TeX", "%"}, ".clj": {"Clojure", ";"}, ".el": {"Lisp", ";"}, ".vim": {"Vim", "\""},
	".yaml": {"YAML", "#"}, ".yml": {"YAML", "#"}, ".toml": {"TOML", "#"}, ".ini": {"INI", ";"},
	".md": {"Markdown", "<!--"}, ".html": {"HTML", "<!--"}, ".xml": {"XML", "<!--"}, ".vue": {"Vue", "//"},
	".css": {"CSS", "/*"}, ".scss": {"CSS", "//"}, ".json": {"JSON", ""}, ".jsonl": {"JSON", ""},
	".csv": {"CSV", ""}, ".txt": {"text", ""}, ".rst": {"reStructuredText", ""}, ".adoc": {"AsciiDoc", ""},
	".mod": {"Go module", ""}, ".sum": {"Go module", ""}, ".work": {"Go module", ""},
}

// codeLangs are the languages that programs are written in.
var codeLangs = func() map[string]bool {
	m := map[string]bool{"Make": true}
	for _, l := range languages {
		if l.comment != "" {
			m[l.name] = true
		}
	}
	for _, name := range []string{"YAML", "TOML", "INI", "Markdown", "HTML", "XML", "TeX"} {
		delete(m, name)
	}
	return m
}()

func langOf(name string) string {
	base := path.Base(name)
	switch {
	case base == "Makefile" || base == "GNUmakefile" || strings.HasSuffix(base, ".mk"):
		return "Make"
	case base == "Dockerfile" || strings.HasPrefix(base, "Dockerfile."):
		return "Docker"
	}
	if l, ok := languages[strings.ToLower(path.Ext(base))]; ok {
		return l.name
	}
	// ".gitignore" is a name, not an extension.
	if ext := path.Ext(base); ext != "" && ext != base && len(ext) <= 12 {
		return strings.ToLower(ext)
	}
	return "no extension"
}

func commentOf(name string) string {
	if l := languages[strings.ToLower(path.Ext(name))]; l.comment != "" {
		return l.comment
	}
	return "#"
}

// isTest tells from a file's name whether it is a test, in the habits of the
// common languages.
func isTest(name string) bool {
	base := path.Base(name)
	ext := path.Ext(base)
	if l := languages[ext]; !codeLangs[l.name] {
		return false
	}
	stem := strings.TrimSuffix(base, ext)
	switch {
	case strings.HasSuffix(stem, "_test"), strings.HasSuffix(stem, ".test"),
		strings.HasSuffix(stem, ".spec"), strings.HasSuffix(stem, "_spec"):
		return true
	case ext == ".go":
		return false
	case strings.HasPrefix(stem, "test_"), strings.HasSuffix(stem, "Test") && (ext == ".java" || ext == ".kt"):
		return true
	}
	for _, dir := range strings.Split(path.Dir(name), "/") {
		if dir == "test" || dir == "tests" || dir == "spec" || dir == "__tests__" {
			return true
		}
	}
	return false
}

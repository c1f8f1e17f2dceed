package team_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestREADME holds the documents to the code: what README.md shows as Go is
// compiled somewhere in this repository, what it tells a reader to run exists,
// and no document links to a file or heading that is not there.
func TestREADME(t *testing.T) {
	tree := os.DirFS(".")
	readme, err := fs.ReadFile(tree, "README.md")
	if err != nil {
		t.Fatalf("there must be a README.md, with Go code that this test compares: %v", err)
	}

	t.Run("go code is compiled", func(t *testing.T) {
		for _, problem := range checkGoBlocks(string(readme), compiledExamples(t)) {
			t.Errorf("README.md:%s", problem)
		}
	})
	t.Run("programs exist", func(t *testing.T) {
		for _, problem := range checkPrograms(tree, string(readme)) {
			t.Errorf("README.md:%s", problem)
		}
	})
	for _, name := range []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"} {
		t.Run("links in "+name, func(t *testing.T) {
			text, err := fs.ReadFile(tree, name)
			if errors.Is(err, fs.ErrNotExist) {
				// Not a skip: where another document links to it, that link fails.
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range checkLinks(tree, name, string(text)) {
				t.Errorf("%s:%s", name, problem)
			}
		})
	}
}

// compiledExamples returns the text of the files that README code may come
// from, by name: example_*_test.go in any package, and everything under
// examples/. The go command says which files are compiled, so that a file
// behind a build tag does not count.
func compiledExamples(t *testing.T) map[string]string {
	t.Helper()
	noteFolders(t)
	files := make(map[string]string)
	for _, p := range listPackages(t, "", "./...") {
		dir, err := filepath.Rel(moduleFolder(t), p.Dir)
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.ToSlash(dir)
		program := dir == "examples" || strings.HasPrefix(dir, "examples/")
		for _, base := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			example := strings.HasPrefix(base, "example_") && strings.HasSuffix(base, "_test.go")
			if !program && !example {
				continue
			}
			name := path.Join(dir, base)
			text, err := os.ReadFile(filepath.FromSlash(name))
			if err != nil {
				t.Fatal(err)
			}
			files[name] = string(text)
		}
	}
	return files
}

// checkGoBlocks returns what is wrong with the Go code of a Markdown text, each
// problem with its line in front.
func checkGoBlocks(text string, files map[string]string) (problems []string) {
	blocks, err := fencedBlocks(text)
	if err != nil {
		return []string{err.Error()}
	}
	found := 0
	for _, b := range blocks {
		if b.lang != "go" {
			continue
		}
		found++
		code := dedent(b.lines)
		if len(code) == 0 {
			problems = append(problems, fmt.Sprintf("%d: an empty Go block shows nothing", b.line))
			continue
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(files)), func(file string) bool {
			return containsCode(strings.Split(file, "\n"), code)
		}) {
			problems = append(problems, fmt.Sprintf("%d: this Go block stands in no compiled file, so nobody knows whether it still compiles; "+
				"copy it word for word from an example_*_test.go or from examples/ (%d files looked at; common indentation does not count):\n\t%s",
				b.line, len(files), strings.Join(code, "\n\t")))
		}
	}
	if found == 0 {
		problems = append(problems, "1: there is no ```go block, so a newcomer sees no code; show the quick start")
	}
	return problems
}

// checkPrograms returns the programs that a Markdown text tells its reader to
// run and that tree does not have.
func checkPrograms(tree fs.FS, text string) (problems []string) {
	blocks, err := fencedBlocks(text)
	if err != nil {
		return []string{err.Error()}
	}
	for _, b := range blocks {
		if !slices.Contains([]string{"console", "sh", "shell", "bash"}, b.lang) {
			continue
		}
		for i, line := range b.lines {
			for _, dir := range runTargets(line) {
				sources, err := fs.Glob(tree, path.Join(path.Clean(dir), "*.go"))
				if err != nil || len(sources) == 0 {
					problems = append(problems, fmt.Sprintf("%d: %q names a program that does not exist: no Go files in %s",
						b.line+1+i, strings.TrimSpace(line), dir))
				}
			}
		}
	}
	return problems
}

var goRun = regexp.MustCompile(`\bgo run((?:\s+-\S+)*)\s+(\./[^\s;&|)]+)`)

// runTargets returns the packages below the repository that a line of a shell
// block gives to go run.
func runTargets(line string) (dirs []string) {
	for _, m := range goRun.FindAllStringSubmatch(line, -1) {
		dirs = append(dirs, m[2])
	}
	return dirs
}

var (
	inlineLink = regexp.MustCompile(`\]\(\s*<?([^\s()<>]+(?:\([^\s()]*\)[^\s()<>]*)?)>?(?:\s+["'][^)]*)?\s*\)`)
	refLink    = regexp.MustCompile(`(?m)^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)>?`)
	htmlLink   = regexp.MustCompile(`\b(?:href|src)="([^"]+)"`)
	codeSpan   = regexp.MustCompile("``[^\n]*?``|`[^`\n]*`")
	scheme     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:|^//`)
)

// checkLinks returns the relative links of the Markdown file name that lead
// nowhere: to a file that tree does not have, or to a heading that a Markdown
// file does not have.
func checkLinks(tree fs.FS, name, text string) (problems []string) {
	blocks, err := fencedBlocks(text)
	if err != nil {
		return []string{err.Error()}
	}
	prose := codeSpan.ReplaceAllStringFunc(withoutBlocks(text, blocks), blank)
	for _, re := range []*regexp.Regexp{inlineLink, refLink, htmlLink} {
		for _, m := range re.FindAllStringSubmatchIndex(prose, -1) {
			link := prose[m[2]:m[3]]
			if scheme.MatchString(link) {
				continue
			}
			line := 1 + strings.Count(prose[:m[2]], "\n")
			if why := checkLink(tree, name, link); why != "" {
				problems = append(problems, fmt.Sprintf("%d: the link %q leads nowhere: %s", line, link, why))
			}
		}
	}
	return problems
}

func checkLink(tree fs.FS, from, link string) (why string) {
	file, anchor, hasAnchor := strings.Cut(link, "#")
	target := from
	if file != "" {
		target = path.Join(path.Dir(from), strings.ReplaceAll(file, "%20", " "))
	}
	if !fs.ValidPath(target) {
		return "it leaves the repository"
	}
	if _, err := fs.Stat(tree, target); err != nil {
		return "there is no " + target
	}
	if !hasAnchor || path.Ext(target) != ".md" {
		return ""
	}
	text, err := fs.ReadFile(tree, target)
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(anchors(string(text)), anchor) {
		return target + " has no such heading"
	}
	return ""
}

var (
	heading    = regexp.MustCompile(`(?m)^ {0,3}#{1,6}[ \t]+(.+?)[ \t]*#*[ \t]*$`)
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{M}\p{N}\p{Pc} -]`)
	linkedText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchors returns the names under which GitHub finds the headings of text.
func anchors(text string) (names []string) {
	blocks, err := fencedBlocks(text)
	if err != nil {
		return nil
	}
	seen := make(map[string]int)
	for _, m := range heading.FindAllStringSubmatch(withoutBlocks(text, blocks), -1) {
		slug := linkedText.ReplaceAllString(m[1], "$1")
		slug = notInSlug.ReplaceAllString(strings.ToLower(slug), "")
		slug = strings.ReplaceAll(slug, " ", "-")
		if n := seen[slug]; n > 0 {
			names = append(names, fmt.Sprintf("%s-%d", slug, n))
		} else {
			names = append(names, slug)
		}
		seen[slug]++
	}
	return names
}

// A block is a fenced code block.
type block struct {
	lang  string   // first word of the info string, in lower case
	line  int      // of the opening fence, from 1
	end   int      // of the closing fence
	lines []string // without the fences, without the fence's own indentation
}

// fencedBlocks returns the fenced code blocks of a Markdown text in order. A
// block that is never closed is an error: everything after it would be code,
// and every check would look past it.
func fencedBlocks(text string) (blocks []block, err error) {
	var b block
	fence := "" // of the open block
	indent := ""
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		rest := strings.TrimLeft(line, " \t")
		mark := rest[:len(rest)-len(strings.TrimLeft(rest, "`"))]
		if mark == "" {
			mark = rest[:len(rest)-len(strings.TrimLeft(rest, "~"))]
		}
		info := strings.TrimSpace(rest[len(mark):])
		switch {
		case fence != "" && strings.HasPrefix(mark, fence) && info == "":
			b.end = i + 1
			blocks = append(blocks, b)
			fence = ""
		case fence != "":
			b.lines = append(b.lines, strings.TrimPrefix(line, indent))
		case len(mark) >= 3 && !strings.Contains(info, "`"):
			fence, indent = mark, line[:len(line)-len(rest)]
			lang := ""
			if f := strings.FieldsFunc(info, func(r rune) bool { return r == ' ' || r == ',' || r == '{' }); len(f) > 0 {
				lang = strings.ToLower(f[0])
			}
			b = block{lang: lang, line: i + 1}
		}
	}
	if fence != "" {
		return nil, fmt.Errorf("%d: this code block is never closed", b.line)
	}
	return blocks, nil
}

// withoutBlocks returns text with its fenced blocks emptied; every line keeps
// its number.
func withoutBlocks(text string, blocks []block) string {
	lines := strings.Split(text, "\n")
	for _, b := range blocks {
		clear(lines[b.line-1 : b.end])
	}
	return strings.Join(lines, "\n")
}

// blank returns as many spaces as s has bytes.
func blank(s string) string { return strings.Repeat(" ", len(s)) }

// dedent returns lines without the tabs that all of them begin with, and
// without empty lines at either end. Empty lines have no indentation.
func dedent(lines []string) []string {
	empty := func(s string) bool { return strings.TrimSpace(s) == "" }
	for len(lines) > 0 && empty(lines[0]) {
		lines = lines[1:]
	}
	for len(lines) > 0 && empty(lines[len(lines)-1]) {
		lines = lines[:len(lines)-1]
	}
	common := -1
	for _, line := range lines {
		if n := len(line) - len(strings.TrimLeft(line, "\t")); !empty(line) && (common < 0 || n < common) {
			common = n
		}
	}
	out := make([]string, len(lines))
	for i, line := range lines {
		if !empty(line) {
			out[i] = line[common:]
		}
	}
	return out
}

// containsCode reports whether code, which is dedented, stands in file as
// whole lines one after the other, however deep it is indented there.
func containsCode(file, code []string) bool {
	for i := 0; i+len(code) <= len(file); i++ {
		// The first line of code is never empty: that rules out most places.
		if strings.TrimLeft(file[i], "\t") == strings.TrimLeft(code[0], "\t") &&
			slices.Equal(dedent(file[i:i+len(code)]), code) {
			return true
		}
	}
	return false
}

// The checks above are worth something only if they can fail.
func TestREADMEChecks(t *testing.T) {
	const example = "package team_test\n\nfunc Example() {\n\tif ok {\n\t\tsend(1)\n\n\t\tsend(2)\n\t}\n\t// Output: done\n}\n"
	tree := fstest.MapFS{
		"README.md":               {Data: []byte("# Team\n\n## What it is `for`, and not\n\n## Limits\n\n## Limits\n")},
		"ARCHITECTURE.md":         {Data: []byte("# Reading order\n")},
		"docs/a.md":               {Data: []byte("# A\n")},
		"my file.md":              {Data: []byte("")},
		"examples/relay/main.go":  {Data: []byte("package main\n")},
		"examples/empty/notes.md": {Data: []byte("")},
	}
	goBlocks := func(text string) []string { return checkGoBlocks(text, map[string]string{"example_test.go": example}) }
	programs := func(text string) []string { return checkPrograms(tree, text) }
	links := func(text string) []string { return checkLinks(tree, "README.md", text) }
	fromDocs := func(text string) []string { return checkLinks(tree, "docs/a.md", text) }

	for _, test := range []struct {
		name  string
		check func(string) []string
		text  string
		want  []string // the beginning of each problem; none if it is fine
	}{
		{"go: as it stands", goBlocks, "```go\n\tif ok {\n\t\tsend(1)\n\n\t\tsend(2)\n\t}\n```\n", nil},
		{"go: other indentation", goBlocks, "text\n\n```go\nif ok {\n\tsend(1)\n\n\tsend(2)\n}\n```\n", nil},
		{"go: a whole file", goBlocks, "```go\n" + example + "```\n", nil},
		{"go: in a list", goBlocks, "- say\n\n  ```go\n  send(2)\n  ```\n", nil},
		{"go: info string with more words", goBlocks, "```go title=\"x\"\nsend(2)\n```\n", nil},
		{"go: one character differs", goBlocks, "```go\nif ok {\n\tsend(1)\n\n\tsend(3)\n}\n```\n", []string{"1: this Go block"}},
		{"go: lines left out", goBlocks, "```go\nif ok {\n\tsend(2)\n}\n```\n", []string{"1: this Go block"}},
		{"go: indentation inside differs", goBlocks, "```go\nif ok {\nsend(1)\n\nsend(2)\n}\n```\n", []string{"1: this Go block"}},
		{"go: part of a line", goBlocks, "```go\nsend(\n```\n", []string{"1: this Go block"}},
		{"go: second of two", goBlocks, "```go\nsend(1)\n```\n\n```go\nrecv(1)\n```\n", []string{"5: this Go block"}},
		{"go: empty block", goBlocks, "```go\n\n```\n", []string{"1: an empty Go block"}},
		{"go: none at all", goBlocks, "# Team\n\n```sh\ngo test ./...\n```\n", []string{"1: there is no ```go block"}},
		{"go: shown inside a longer fence", goBlocks, "````md\n```go\nsend(1)\n```\n````\n", []string{"1: there is no ```go block"}},
		{"go: never closed", goBlocks, "```go\nsend(1)\n", []string{"1: this code block is never closed"}},

		{"run: exists", programs, "```sh\ngo run ./examples/relay\ngo run -race ./examples/relay -json | head\n```\n", nil},
		{"run: no folder", programs, "```console\n$ go test ./...\n$ go run ./examples/rely -json\n```\n", []string{`3: "$ go run ./examples/rely -json"`}},
		{"run: no Go files", programs, "```sh\ncd x && go run -v ./examples/empty; ls\n```\n", []string{"2:"}},
		{"run: not a shell block", programs, "```text\ngo run ./examples/rely\n```\n", nil},

		{"links: fine", links, "[a](ARCHITECTURE.md) ![b](docs/a.md \"t\") [c](https://x.test/y) [d](docs) [e](my%20file.md)\n\n[f]: docs/a.md#a\n", nil},
		{"links: headings", links, "[a](#limits) [b](#limits-1) [c](#what-it-is-for-and-not) [d](ARCHITECTURE.md#reading-order)", nil},
		{"links: in code", links, "`[a](gone.md)` ``[a](gone.md)``\n\n```md\n[a](gone.md)\n```\n", nil},
		{"links: no file", links, "one\n\n```sh\nx\n```\n[a](gone.md) [b](ARCHITECTURE.md)", []string{`6: the link "gone.md"`}},
		{"links: image, reference, HTML", links, "![a](x.png)\n\n[b]: y.md\n\n<img src=\"z.svg\">", []string{`1: the link "x.png"`, `3: the link "y.md"`, `5: the link "z.svg"`}},
		{"links: badge inside a link", links, "[![ci](gone.svg)](gone.yml)", []string{`1: the link "gone.svg"`, `1: the link "gone.yml"`}},
		{"links: no heading", links, "[a](#limit) [b](ARCHITECTURE.md#limits)", []string{`1: the link "#limit"`, `1: the link "ARCHITECTURE.md#limits"`}},
		{"links: out of the repository", links, "[a](../elsewhere.md) [b](/etc/passwd)", []string{`1: the link "../elsewhere.md"`, `1: the link "/etc/passwd"`}},
		{"links: from a folder", fromDocs, "[a](../README.md) [b](README.md)", []string{`1: the link "README.md"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := test.check(test.text)
			if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
				t.Errorf("problems = %q, want ones that begin with %q", got, test.want)
			}
		})
	}
}

package survey

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// importersIn reads from the architect's table how many packages import each
// folder. The key is the folder as it is shown.
func importersIn(architect string) map[string]int {
	m := map[string]int{}
	for _, row := range tableOf(architect, "Packages") {
		if len(row) > 5 {
			m[row[0]], _ = strconv.Atoi(row[5])
		}
	}
	return m
}

// A surface is what a package offers to others.
type surface struct {
	*pkg
	used int // how many packages import it, as the architect says
	api  []decl
	gaps []decl // those without a comment
}

// Implementer lists what each package offers, and what of it has no comment.
// A gap weighs more where more packages depend on it; the architect knows how
// many do. Without Go code it lists what can be run and what configures it.
func Implementer(t *Tree, in Brief) Deliverable {
	d := Deliverable{Topic: "api", title: "What the code offers"}
	d.broken(t)
	if len(t.Packages) == 0 {
		d.runnable(t)
		return d
	}
	list := surfaces(t, importersIn(in["architect"]))
	names, gaps, commands := 0, 0, 0
	for _, s := range list {
		names += len(s.api)
		gaps += len(s.gaps)
		if s.Name == "main" {
			commands++
		}
	}
	d.Summary = fmt.Sprintf("%s in %s, %s documented; %s", Plural(names, "exported name"),
		Plural(len(list)-commands, "package"), percent(names-gaps, names), OrNo(commands, "command"))
	if names == 0 {
		d.Summary = fmt.Sprintf("No exported names; %s", OrNo(commands, "command"))
	}
	d.silence(list, names, gaps)
	d.surfaces(list)
	d.gaps(list)
	d.signatures(list)
	return d
}

// broken finds files that no compiler would take.
func (d *Deliverable) broken(t *Tree) {
	var list []string
	first := ""
	for _, f := range t.Files {
		if f.Go != nil && f.Go.broken != "" {
			list = append(list, f.Path)
			first = cmp.Or(first, f.Go.broken)
		}
	}
	if len(list) > 0 {
		d.find(High, "%s not parse: %s. In the first: %s.",
			Plural(len(list), "Go file does", "Go files do"), codes(list, 3), strings.TrimPrefix(first, "Go syntax, "))
	}
}

// surfaces has the packages that most others import first.
func surfaces(t *Tree, importers map[string]int) []surface {
	var list []surface
	for _, p := range t.Packages {
		s := surface{pkg: p, used: importers[plain(folder(p.Dir))]}
		for _, f := range p.Files {
			if p.Name == "main" || f.Go.generated {
				continue
			}
			s.api = append(s.api, f.Go.api...)
			for _, decl := range f.Go.api {
				if !decl.Doc {
					s.gaps = append(s.gaps, decl)
				}
			}
		}
		list = append(list, s)
	}
	slices.SortStableFunc(list, func(a, b surface) int { return cmp.Compare(b.used, a.used) })
	return list
}

// silence finds what nobody explains.
func (d *Deliverable) silence(list []surface, names, gaps int) {
	if gaps > 0 {
		l := Low
		switch {
		case gaps*2 > names:
			l = High
		case gaps*10 > names:
			l = Medium
		}
		worst := slices.MaxFunc(list, func(a, b surface) int { return cmp.Compare(len(a.gaps), len(b.gaps)) })
		d.find(l, "%d of %s have no comment, %d of them in %s.",
			gaps, Plural(names, "exported name"), len(worst.gaps), code(folder(worst.Dir)))
	}
	var silent []string
	for _, s := range list {
		if !s.Doc && len(s.Files) > s.TestFiles {
			silent = append(silent, folder(s.Dir))
		}
	}
	if n := len(silent); n > 0 {
		d.find(Medium, "%s without a package comment: %s.", Plural(n, "package"), codes(silent, 5))
	}
}

func (d *Deliverable) surfaces(list []surface) {
	d.page.section("Surface")
	d.page.line("The packages that most others import come first (from the architect's map).")
	d.page.line("")
	var rows [][]string
	for _, s := range list {
		count := map[string]int{}
		for _, decl := range s.api {
			count[decl.Kind]++
		}
		comment := "yes"
		if !s.Doc {
			comment = "no"
		}
		rows = append(rows, []string{code(folder(s.Dir)), code(s.Name), itoa(s.used), itoa(count["type"]), itoa(count["func"]),
			itoa(count["method"]), itoa(count["const"] + count["var"]), percent(len(s.api)-len(s.gaps), len(s.api)), comment})
	}
	d.page.table("folder | package | imported by | types | funcs | methods | values | documented | package comment", rows, 150)
}

// gapTable is the implementer's table that the reviewer goes on from.
const gapTable = "Names without a comment"

func (d *Deliverable) gaps(list []surface) {
	d.page.section(gapTable)
	var rows [][]string
	for _, s := range list {
		for _, decl := range s.gaps {
			rows = append(rows, []string{code(decl.Name), decl.Kind, code(fmt.Sprintf("%s:%d", decl.File, decl.Line)), itoa(s.used)})
		}
	}
	d.page.table("name | kind | at | imported by", rows, 150)
	d.page.line("")
	d.page.line("Methods that everybody knows (Error, String, Unwrap, …) need none.")
}

func (d *Deliverable) signatures(list []surface) {
	const most = 300
	d.page.section("Signatures")
	shown := 0
	for _, s := range list {
		if len(s.api) == 0 || shown > most {
			continue
		}
		if shown > 0 {
			d.page.line("")
		}
		d.page.line("### %s", code(cmp.Or(s.Path, folder(s.Dir))))
		d.page.line("")
		d.page.line("```go")
		for _, decl := range s.api {
			if decl.Kind == "const" || decl.Kind == "var" {
				continue
			}
			if shown++; shown > most {
				d.page.line("// … and more")
				break
			}
			d.page.line("%s", strings.ReplaceAll(decl.Sig, "```", "'''"))
		}
		d.page.line("```")
	}
	if shown == 0 {
		d.page.line("None.")
	}
}

// runnable is the deliverable for a tree without Go.
func (d *Deliverable) runnable(t *Tree) {
	var rows, sources [][]string
	for _, f := range t.Files {
		if what := startsSomething(f); what != "" {
			rows = append(rows, []string{code(f.Path), what, itoa(f.Lines)})
		}
	}
	files := t.codeFiles()
	slices.SortStableFunc(files, func(a, b *file) int { return cmp.Compare(b.Lines, a.Lines) })
	for _, f := range files {
		sources = append(sources, []string{code(f.Path), f.Lang, itoa(f.Lines)})
	}
	switch {
	case len(t.Files) == 0:
		d.Summary = "Nothing is implemented yet"
		d.find(Medium, "There is nothing to build or run yet.")
	default:
		d.Summary = fmt.Sprintf("No Go packages; %s, %s that start or build something",
			OrNo(len(files), "source file"), OrNo(len(rows), "file"))
		if len(files) > 0 && len(rows) == 0 {
			d.find(Medium, "%s, and nothing that says how to build or run them.", Plural(len(files), "source file"))
		}
		if len(files) == 0 {
			d.find(Low, "No source code in a language that is known here: the tree holds documents or data.")
		}
	}
	d.page.section("What starts or builds something")
	d.page.table("file | what | lines", rows, 60)
	d.page.section("Source files, longest first")
	d.page.table("file | language | lines", sources, 60)
}

var starters = map[string]string{
	"Makefile": "make", "GNUmakefile": "make", "Justfile": "just", "Taskfile.yml": "task", "package.json": "npm",
	"Cargo.toml": "cargo", "pyproject.toml": "Python project", "setup.py": "Python project", "pom.xml": "Maven",
	"build.gradle": "Gradle", "CMakeLists.txt": "CMake", "meson.build": "Meson", "Gemfile": "Bundler",
	"composer.json": "Composer", "docker-compose.yml": "Docker Compose", "compose.yaml": "Docker Compose", "flake.nix": "Nix",
	"go.mod": "Go module",
}

func startsSomething(f *file) string {
	base := path.Base(f.Path)
	switch {
	case starters[base] != "":
		return starters[base]
	case f.Lang == "Docker":
		return "container image"
	case strings.HasPrefix(f.Path, ".github/workflows/"):
		return "GitHub workflow"
	case f.Exec && f.Lang == "Shell", f.Exec && f.Lang == "no extension" && !f.Binary:
		return "script"
	case f.Exec && f.Binary:
		return "program"
	}
	return ""
}

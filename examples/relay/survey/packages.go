package survey

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// A pkg is the Go files of one folder.
type pkg struct {
	Dir, Name, Path string // Path is empty if no go.mod says it
	Files           []*file
	Lines           int
	TestFiles       int
	TestLines       int
	Doc             bool
	Imports         []string // folders of packages in this tree, without tests
	ImportedBy      []string // folders, without tests
	TestImports     []string // folders that only the tests import
	Layer           int      // 0 imports nothing in the tree, 1 only layer 0, …
	Missing         []string // imports inside the module that are not there
	Others          []string // other package names in the same folder
}

// A module is one go.mod.
type module struct {
	Dir, Path, Go    string
	Direct, Indirect []string // "path version"
	Replaced         []string
}

// link makes packages out of files, and edges out of imports.
func (t *Tree) link() {
	byDir := t.groupFiles()
	// The longest module path first, so that a nested module wins.
	slices.SortFunc(t.Modules, func(a, b *module) int {
		return cmp.Or(cmp.Compare(len(b.Path), len(a.Path)), cmp.Compare(a.Dir, b.Dir))
	})
	for _, p := range t.Packages {
		p.Path = t.importPath(p.Dir)
		for _, f := range p.Files {
			for _, imp := range f.Go.imports {
				t.addImport(byDir, p, f.Go.test, imp)
			}
		}
		p.Imports = sortedSet(p.Imports)
		p.TestImports = slices.DeleteFunc(sortedSet(p.TestImports), func(dir string) bool {
			return slices.Contains(p.Imports, dir)
		})
		for _, dir := range p.Imports {
			byDir[dir].ImportedBy = append(byDir[dir].ImportedBy, p.Dir)
		}
	}
}

// groupFiles makes the packages, without their imports.
func (t *Tree) groupFiles() map[string]*pkg {
	byDir := map[string]*pkg{}
	for _, f := range t.Files {
		if f.Go == nil || f.Go.alone || f.Go.pkg == "" {
			continue
		}
		p := byDir[f.Go.dir]
		if p == nil {
			p = &pkg{Dir: f.Go.dir}
			byDir[f.Go.dir] = p
			t.Packages = append(t.Packages, p)
		}
		p.add(f)
	}
	slices.SortFunc(t.Packages, func(a, b *pkg) int { return cmp.Compare(a.Dir, b.Dir) })
	for _, p := range t.Packages {
		if p.Name == "" { // tests only
			p.Name = strings.TrimSuffix(p.Files[0].Go.pkg, "_test")
		}
	}
	return byDir
}

func (p *pkg) add(f *file) {
	p.Files = append(p.Files, f)
	if f.Go.test {
		p.TestFiles++
		p.TestLines += f.Lines
		return
	}
	p.Lines += f.Lines
	p.Doc = p.Doc || f.Go.doc
	switch {
	case p.Name == "":
		p.Name = f.Go.pkg
	case p.Name != f.Go.pkg && !slices.Contains(p.Others, f.Go.pkg):
		p.Others = append(p.Others, f.Go.pkg)
	}
}

func (t *Tree) addImport(byDir map[string]*pkg, p *pkg, test bool, imp string) {
	dir, inside := t.dirOf(imp)
	switch {
	case !inside || dir == p.Dir:
	case byDir[dir] == nil:
		// If the scan left Go code out, it may be there all the same.
		if t.Stopped == "" && !t.UnreadGo && !test && !slices.Contains(p.Missing, imp) {
			p.Missing = append(p.Missing, imp)
		}
	case test:
		p.TestImports = append(p.TestImports, dir)
	default:
		p.Imports = append(p.Imports, dir)
	}
}

func sortedSet(s []string) []string {
	slices.Sort(s)
	return slices.Compact(s)
}

// importPath is the path by which others import the package in dir.
func (t *Tree) importPath(dir string) string {
	var best *module
	for _, m := range t.Modules {
		if m.Path != "" && (m.Dir == "." || dir == m.Dir || strings.HasPrefix(dir, m.Dir+"/")) {
			if best == nil || len(m.Dir) > len(best.Dir) || best.Dir == "." {
				best = m
			}
		}
	}
	if best == nil {
		return ""
	}
	rest := dir
	if best.Dir != "." {
		rest = strings.TrimPrefix(strings.TrimPrefix(dir, best.Dir), "/")
	}
	return path.Join(best.Path, rest)
}

// dirOf is the reverse: the folder of an import path of one of our modules.
func (t *Tree) dirOf(imp string) (dir string, inside bool) {
	for _, m := range t.Modules {
		if m.Path == "" {
			continue
		}
		if rest, ok := strings.CutPrefix(imp, m.Path); ok && (rest == "" || rest[0] == '/') {
			return path.Join(m.Dir, rest), true
		}
	}
	return "", false
}

// parseMod reads what we need of a go.mod. It accepts any text.
func parseMod(dir, text string) *module {
	m := &module{Dir: dir}
	block := ""
	for line := range strings.Lines(text) {
		line, comment, _ := strings.Cut(line, "//")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		verb := block
		switch {
		case words[0] == ")":
			block = ""
			continue
		case len(words) == 2 && words[1] == "(":
			block = words[0]
			continue
		case block == "":
			verb, words = words[0], words[1:]
		}
		if len(words) == 0 {
			continue
		}
		switch verb {
		case "module":
			m.Path = strings.Trim(words[0], "`\"")
		case "go":
			m.Go = words[0]
		case "require":
			dep := strings.Join(words, " ")
			if strings.TrimSpace(comment) == "indirect" {
				m.Indirect = append(m.Indirect, dep)
			} else {
				m.Direct = append(m.Direct, dep)
			}
		case "replace":
			m.Replaced = append(m.Replaced, strings.Join(words, " "))
		}
	}
	return m
}

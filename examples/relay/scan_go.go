package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/printer"
	"go/scanner"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A goFile is what the parser could tell about one Go file. A file with a
// syntax error has the facts of what comes before it, at least.
type goFile struct {
	dir, pkg  string
	test      bool
	alone     bool // "//go:build ignore": not part of the package
	generated bool
	doc       bool // has a package comment
	broken    string
	imports   []string
	funcs     []fn
	api       []decl
	names     map[string]bool // of a test file: every name in it
	tests     map[string]int  // of a test file: how many Test, Benchmark, Fuzz, Example
	markers   []marker
}

// A fn is a function or method with a body.
type fn struct {
	Name     string // "Open" or "(*Board).Write"
	Short    string // "Open", "Write"
	Exported bool   // can be called from another package
	File     string
	Line     int
	Lines    int
	Branches int // 1 + every if, loop, case, && and ||
	Depth    int // how deep the blocks are nested
}

func (f fn) at() string { return fmt.Sprintf("%s:%d", f.File, f.Line) }

// A decl is one exported name.
type decl struct {
	Kind, Name, Sig string
	Doc             bool
	File            string
	Line            int
}

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

// goTool reports whether the go command would look at the file at all.
func goTool(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "testdata" || strings.HasPrefix(part, "_") || strings.HasPrefix(part, ".") {
			return false
		}
	}
	return true
}

func parseGo(name string, text []byte) *goFile {
	g := &goFile{dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go")}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		g.broken = "Go syntax: " + oneLine(err.Error())
		if list, ok := err.(scanner.ErrorList); ok && len(list) > 0 {
			g.broken = fmt.Sprintf("Go syntax, line %d: %s", list[0].Pos.Line, oneLine(list[0].Msg))
		}
	}
	if f == nil {
		return g
	}
	if f.Name != nil {
		g.pkg = f.Name.Name
	}
	g.doc = f.Doc != nil
	g.generated = ast.IsGenerated(f)
	g.alone = ignored(f)
	for _, imp := range f.Imports {
		g.imports = append(g.imports, strings.Trim(imp.Path.Value, "`\""))
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			g.function(fset, name, d)
		case *ast.GenDecl:
			g.general(fset, name, d)
		}
	}
	if g.test {
		g.readNames(f)
	}
	for _, group := range f.Comments {
		for _, c := range group.List {
			line := fset.Position(c.Pos()).Line
			for i, text := range strings.Split(c.Text, "\n") {
				if m, ok := findMarker(strings.Trim(text, "/* \t\r")); ok {
					m.Line = line + i
					g.markers = append(g.markers, m)
				}
			}
		}
	}
	return g
}

// readNames collects every name in a test file.
func (g *goFile) readNames(f *ast.File) {
	g.names = map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			g.names[id.Name] = true
		}
		return true
	})
	// The name of a test or example counts too: TestBoard_Write names both.
	for _, fn := range g.funcs {
		for part := range strings.SplitSeq(fn.Short, "_") {
			for _, kind := range testKinds {
				part = strings.TrimPrefix(part, kind)
			}
			g.names[part] = true
		}
	}
}

// ignored reports a file that is built by nobody, or by itself only.
func ignored(f *ast.File) bool {
	for _, group := range f.Comments {
		if group.Pos() > f.Package {
			break
		}
		for _, c := range group.List {
			if !constraint.IsGoBuild(c.Text) {
				continue
			}
			if x, err := constraint.Parse(c.Text); err == nil && x.String() == "ignore" {
				return true
			}
		}
	}
	return false
}

var testKinds = []string{"Test", "Benchmark", "Fuzz", "Example"}

func (g *goFile) function(fset *token.FileSet, name string, d *ast.FuncDecl) {
	pos, end := fset.Position(d.Pos()), fset.Position(d.End())
	f := fn{
		Name: d.Name.Name, Short: d.Name.Name, Exported: d.Name.IsExported(),
		File: name, Line: pos.Line, Lines: end.Line - pos.Line + 1,
	}
	kind := "func"
	if d.Recv != nil && len(d.Recv.List) == 1 {
		kind = "method"
		recv, star := receiver(d.Recv.List[0].Type)
		f.Exported = f.Exported && ast.IsExported(recv)
		f.Name = recv + "." + f.Name
		if star {
			f.Name = "(*" + recv + ")." + f.Short
		}
	}
	if d.Body != nil {
		f.Branches, f.Depth = complexity(d.Body)
		g.funcs = append(g.funcs, f)
	}
	if g.test {
		for _, k := range testKinds {
			if kind == "func" && strings.HasPrefix(f.Short, k) {
				if g.tests == nil {
					g.tests = map[string]int{}
				}
				g.tests[k]++
			}
		}
		return
	}
	if f.Exported {
		head := *d
		head.Doc, head.Body = nil, nil
		g.api = append(g.api, decl{kind, f.Name, source(fset, &head), d.Doc != nil || kind == "method" && wellKnown[f.Short], name, pos.Line})
	}
}

// wellKnown are the methods whose meaning the standard library explains.
var wellKnown = map[string]bool{
	"Error": true, "Unwrap": true, "Is": true, "As": true, "String": true, "GoString": true, "Format": true,
	"Len": true, "Less": true, "Swap": true, "MarshalJSON": true, "UnmarshalJSON": true,
	"MarshalText": true, "UnmarshalText": true,
}

func (g *goFile) general(fset *token.FileSet, name string, d *ast.GenDecl) {
	if g.test {
		return
	}
	for _, spec := range d.Specs {
		line := fset.Position(spec.Pos()).Line
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() {
				doc := d.Doc != nil || s.Doc != nil || s.Comment != nil
				g.api = append(g.api, decl{"type", s.Name.Name, "type " + s.Name.Name + " " + typeKind(fset, s), doc, name, line})
			}
		case *ast.ValueSpec:
			doc := d.Doc != nil || s.Doc != nil || s.Comment != nil
			for _, id := range s.Names {
				if id.IsExported() {
					g.api = append(g.api, decl{d.Tok.String(), id.Name, d.Tok.String() + " " + id.Name, doc, name, line})
				}
			}
		}
	}
}

func receiver(x ast.Expr) (name string, star bool) {
	for {
		switch t := x.(type) {
		case *ast.StarExpr:
			x, star = t.X, true
		case *ast.ParenExpr:
			x = t.X
		case *ast.IndexExpr:
			x = t.X
		case *ast.IndexListExpr:
			x = t.X
		case *ast.Ident:
			return t.Name, star
		default:
			return "?", star
		}
	}
}

func typeKind(fset *token.FileSet, s *ast.TypeSpec) string {
	eq := ""
	if s.Assign.IsValid() {
		eq = "= "
	}
	switch t := s.Type.(type) {
	case *ast.StructType:
		return eq + fmt.Sprintf("struct (%s)", orNo(exportedFields(t.Fields), "exported field"))
	case *ast.InterfaceType:
		return eq + fmt.Sprintf("interface (%s)", plural(t.Methods.NumFields(), "element"))
	default:
		return eq + source(fset, t)
	}
}

func exportedFields(list *ast.FieldList) (n int) {
	for _, f := range list.List {
		if len(f.Names) == 0 { // embedded
			n++
		}
		for _, id := range f.Names {
			if id.IsExported() {
				n++
			}
		}
	}
	return n
}

// source prints a node as one short line.
func source(fset *token.FileSet, n ast.Node) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, fset, n); err != nil {
		return ""
	}
	return cut(oneLine(b.String()), 160)
}

// complexity counts the branches of a body, function literals in it
// included, and the depth to which its blocks are nested.
func complexity(body *ast.BlockStmt) (branches, depth int) {
	branches = 1
	level := 0
	var open []bool // for each open node: does it count as a level?
	ast.Inspect(body, func(n ast.Node) bool {
		if n == nil {
			if open[len(open)-1] {
				level--
			}
			open = open[:len(open)-1]
			return true
		}
		deeper := false
		switch n := n.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			branches++
			deeper = true
		case *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt, *ast.FuncLit:
			deeper = true
		case *ast.CaseClause:
			if n.List != nil {
				branches++
			}
		case *ast.CommClause:
			if n.Comm != nil {
				branches++
			}
		case *ast.BinaryExpr:
			if n.Op == token.LAND || n.Op == token.LOR {
				branches++
			}
		}
		if deeper {
			level++
			depth = max(depth, level)
		}
		open = append(open, deeper)
		return true
	})
	return branches, depth
}

// link makes packages out of files, and edges out of imports.
func (t *tree) link() {
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
func (t *tree) groupFiles() map[string]*pkg {
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

func (t *tree) addImport(byDir map[string]*pkg, p *pkg, test bool, imp string) {
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
func (t *tree) importPath(dir string) string {
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
func (t *tree) dirOf(imp string) (dir string, inside bool) {
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

// A marker stands at the beginning of a comment, or has a colon behind it;
// a sentence that speaks about such words has neither.
var (
	markerAtStart = regexp.MustCompile(`^(TODO|FIXME|XXX|HACK)\b(?:\([^)]*\))?:?\s*(.*)$`)
	markerInside  = regexp.MustCompile(`(?:^|\s)(TODO|FIXME|XXX|HACK)(?:\([^)]*\))?:\s*(.*)$`)
)

func findMarker(comment string) (marker, bool) {
	m := markerAtStart.FindStringSubmatch(comment)
	if m == nil {
		m = markerInside.FindStringSubmatch(comment)
	}
	if m == nil {
		return marker{}, false
	}
	return marker{Word: m[1], Text: cut(oneLine(m[2]), 120)}, true
}

// lineMarkers finds markers in a language that is not parsed.
func lineMarkers(text, comment string) []marker {
	var found []marker
	n := 0
	for line := range strings.Lines(text) {
		n++
		if len(line) > 2000 { // not written by hand
			continue
		}
		_, rest, ok := strings.Cut(line, comment)
		if !ok {
			continue
		}
		rest = strings.TrimSpace(strings.TrimSuffix(strings.TrimLeft(strings.TrimSpace(rest), "/*#-;% "), "-->"))
		if m, ok := findMarker(rest); ok {
			m.Line = n
			found = append(found, m)
		}
	}
	return found
}

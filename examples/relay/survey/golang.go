package survey

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/printer"
	"go/scanner"
	"go/token"
	"path"
	"regexp"
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
		g.broken = "Go syntax: " + OneLine(err.Error())
		if list, ok := err.(scanner.ErrorList); ok && len(list) > 0 {
			g.broken = fmt.Sprintf("Go syntax, line %d: %s", list[0].Pos.Line, OneLine(list[0].Msg))
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
		return eq + fmt.Sprintf("struct (%s)", OrNo(exportedFields(t.Fields), "exported field"))
	case *ast.InterfaceType:
		return eq + fmt.Sprintf("interface (%s)", Plural(t.Methods.NumFields(), "element"))
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
	return Cut(OneLine(b.String()), 160)
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
	return marker{Word: m[1], Text: Cut(OneLine(m[2]), 120)}, true
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

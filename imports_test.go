package team_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Imports are a design decision here, so they stand in a table and not in
// people's heads. A package is named by its path in the module; "" is the root.

// A row says what a package may import beyond the standard library: packages of
// this module by their path in it, others by import path. "x/..." stands for x
// and all below it.
type row struct {
	code []string // imports of what ships
	test []string // further imports of its tests
}

var importTable = map[string]row{
	"": {
		code: []string{"internal/atomicfile", "internal/entryfile", "internal/filelock", "internal/grapheme", "internal/slug", "internal/tokencost",
			"internal/workspace", "golang.org/x/text/unicode/norm"},
		test: []string{"memstore", "storetest", "github.com/stretchr/testify/require", "golang.org/x/tools/txtar"},
	},

	"internal/atomicfile": {code: []string{"internal/filelock"}},
	"internal/entryfile":  {},
	"internal/filelock":   {code: []string{"golang.org/x/sys/..."}},
	"internal/grapheme":   {test: []string{"github.com/stretchr/testify/require"}},
	"internal/portcheck":  {},
	"internal/slug":       {code: []string{"golang.org/x/text/unicode/norm"}, test: []string{"golang.org/x/text/cases"}},
	"internal/tokencost":  {},
	"internal/transcript": {},
	"internal/workspace":  {},

	// A model for tests of hosts.
	"internal/scriptedmodel": {test: []string{"github.com/stretchr/testify/require"}},

	"memstore":  {code: []string{"", "internal/portcheck"}, test: []string{"storetest"}},
	"storetest": {code: []string{""}, test: []string{"memstore"}},
	"sqlitestore": {
		code: []string{"", "internal/portcheck", "github.com/ncruces/go-sqlite3", "github.com/ncruces/go-sqlite3/vfs", "github.com/fsnotify/fsnotify", "golang.org/x/sys/..."},
		test: []string{"storetest"},
	},

	"fakehost": {
		code: []string{"", "github.com/ncruces/go-sqlite3"},
		test: []string{"hosttest", "internal/transcript", "memstore", "github.com/stretchr/testify/require"},
	},
	"hosttest": {code: []string{""}},
	"opencode": {code: []string{""}, test: []string{"hosttest", "github.com/stretchr/testify/require"}},
	// Tests alone, of everything together.
	"opencode/livetest": {test: []string{"", "opencode", "hosttest", "fakehost", "memstore", "internal/scriptedmodel", "internal/transcript", "github.com/stretchr/testify/require"}},

	"examples/handoff": {code: []string{"", "fakehost", "sqlitestore"}},
	"examples/relay": {
		code: []string{"", "examples/relay/survey", "opencode", "sqlitestore"}, test: []string{"fakehost", "memstore"},
	},
	"examples/relay/survey": {},
}

// A law holds for every row of the table, so that a new row cannot break it.
type law struct {
	says  string // the law and its reason
	broke func(p pkg, imp string) bool
	deps  bool // judges everything that is linked in, not only direct imports
	tests bool // judges the imports of tests too
}

// Packages that are libraries for tests. They alone ship with an import of
// "testing".
var testLibraries = []string{"storetest", "hosttest"}

// The SQLite driver for database/sql.
const sqliteDriver = "github.com/ncruces/go-sqlite3/driver"

var importLaws = []law{
	{
		says: "the root imports no package of this module but internal ones: " +
			"who takes one channel must not get a store, a host adapter or SQLite with it",
		broke: func(p pkg, imp string) bool {
			path, ours := inModule(imp)
			return p.path == "" && ours && !isInternal(path)
		},
	},
	{
		says: "nothing that the root links in comes from outside the standard library, this module and golang.org/x: " +
			"a dependency of the root is a dependency of every adopter",
		deps: true,
		broke: func(p pkg, imp string) bool {
			_, ours := inModule(imp)
			return p.path == "" && !ours && !isStandard(imp) && !isGoX(imp)
		},
	},
	{
		says: "internal packages import the standard library, golang.org/x and other internal packages: " +
			"they are the lowest layer, and arrows point down",
		broke: func(p pkg, imp string) bool {
			path, ours := inModule(imp)
			return isInternal(p.path) && (ours && !isInternal(path) || !ours && !isStandard(imp) && !isGoX(imp))
		},
	},
	{
		says: "siblings (stores, hosts, suites) import the root and internal packages, never each other: " +
			"each must be usable, and replaceable, without the rest; two that share types share their mistakes",
		broke: func(p pkg, imp string) bool {
			path, ours := inModule(imp)
			return isSibling(p.path) && ours && path != "" && !isInternal(path)
		},
	},
	{
		says:  "nobody imports a program of examples/: arrows point down, and programs are on top",
		tests: true,
		broke: func(p pkg, imp string) bool {
			path, ours := inModule(imp)
			return ours && isExample(path) && !strings.HasPrefix(path+"/", p.path+"/")
		},
	},
	{
		says:  "examples import public packages only: an adopter, who copies them, cannot import internal ones",
		tests: true,
		broke: func(p pkg, imp string) bool {
			path, ours := inModule(imp)
			return isExample(p.path) && ours && isInternal(path)
		},
	},
	{
		says: "testify is for _test.go files only: what ships must not link a test library into an adopter's binary",
		deps: true,
		broke: func(_ pkg, imp string) bool {
			return matches("github.com/stretchr/testify/...", imp)
		},
	},
	{
		says: `only storetest and hosttest link "testing" into what ships: ` +
			"it brings its flags into an adopter's program",
		deps: true,
		broke: func(p pkg, imp string) bool {
			return matches("testing/...", imp) && !slices.Contains(testLibraries, p.path)
		},
	},
	{
		says: "nobody imports " + sqliteDriver + ", in tests neither: it registers the name \"sqlite3\" with database/sql, " +
			"and a program that also has mattn/go-sqlite3 panics at start; use the low-level API",
		deps:  true,
		tests: true,
		broke: func(_ pkg, imp string) bool { return matches(sqliteDriver+"/...", imp) },
	},
}

// TestImports holds the direction of imports, for every system that a build tag
// can choose.
func TestImports(t *testing.T) {
	noteFolders(t)
	seen := make(map[string]pkg)
	for _, goos := range []string{"linux", "darwin", "windows"} {
		for _, p := range listPackages(t, goos, "./...") {
			seen[p.path] = merge(seen[p.path], p)
		}
	}
	if len(seen) == 0 {
		t.Fatal("go list found no package")
	}
	for _, problem := range checkImports(importTable, seen) {
		t.Error(problem)
	}
}

// checkImports returns what the table and the laws forbid.
func checkImports(table map[string]row, packages map[string]pkg) (problems []string) {
	for _, path := range slices.Sorted(maps.Keys(table)) {
		if _, ok := packages[path]; !ok {
			problems = append(problems, fmt.Sprintf("the table has a row for %s, which does not exist: "+
				"the table tells a reader how this module is built, so a row goes when its package goes", named(path)))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(packages)) {
		p := packages[path]
		r, ok := table[path]
		if !ok {
			problems = append(problems, fmt.Sprintf("%s has no row in the table of imports_test.go: "+
				"who may import what is decided before a package comes in, so add a row and say why in the change", named(path)))
		}
		for _, imp := range p.code {
			if ok && !allowed(r.code, imp) {
				problems = append(problems, fmt.Sprintf("%s imports %q, which its row does not allow: "+
					"a new arrow between packages, or a new dependency, needs a decision (CONTRIBUTING.md)", named(path), imp))
			}
		}
		for _, imp := range p.test {
			own, ours := inModule(imp)
			if ok && !(ours && own == path) && !allowed(r.code, imp) && !allowed(r.test, imp) {
				problems = append(problems, fmt.Sprintf("tests of %s import %q, which its row does not allow: "+
					"a test dependency is a dependency of whoever runs the tests (CONTRIBUTING.md)", named(path), imp))
			}
		}
		for _, l := range importLaws {
			judged := p.code
			if l.deps {
				judged = slices.Concat(judged, p.deps)
			}
			if l.tests {
				judged = slices.Concat(judged, p.test)
			}
			slices.Sort(judged)
			for _, imp := range slices.Compact(judged) {
				if l.broke(p, imp) {
					how := "imports"
					if !slices.Contains(p.code, imp) && !slices.Contains(p.test, imp) {
						how = "links in, through what it imports,"
					}
					problems = append(problems, fmt.Sprintf("%s %s %q, but %s", named(path), how, imp, l.says))
				}
			}
		}
	}
	return problems
}

func named(path string) string {
	if path == "" {
		return "the root package"
	}
	return path
}

// allowed reports whether list has imp. What is standard needs no permission.
func allowed(list []string, imp string) bool {
	if path, ours := inModule(imp); ours {
		imp = path
	} else if isStandard(imp) {
		return true
	}
	return slices.ContainsFunc(list, func(pattern string) bool { return matches(pattern, imp) })
}

// matches is equality, except that "x/..." stands for x and all below it.
func matches(pattern, imp string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return imp == base || strings.HasPrefix(imp, base+"/")
	}
	return imp == pattern
}

const modulePath = "github.com/teamchan/team"

// inModule returns the path of imp in this module, and whether it is in it.
func inModule(imp string) (path string, ok bool) {
	if imp == modulePath {
		return "", true
	}
	return strings.CutPrefix(imp, modulePath+"/")
}

// Import paths of the standard library have no dot in their first element.
func isStandard(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}

func isGoX(imp string) bool       { return strings.HasPrefix(imp, "golang.org/x/") }
func isInternal(path string) bool { return slices.Contains(strings.Split(path, "/"), "internal") }
func isExample(path string) bool  { return matches("examples/...", path) }
func isSibling(path string) bool  { return path != "" && !isInternal(path) && !isExample(path) }

// A pkg is what go list says about a package of this module.
type pkg struct {
	path string   // in the module
	code []string // imported by what ships
	test []string // imported by tests, inside and outside of the package
	deps []string // linked in with what ships, directly or not

	Dir                                string
	GoFiles, TestGoFiles, XTestGoFiles []string
}

func merge(a, b pkg) pkg {
	union := func(x, y []string) []string {
		all := slices.Concat(x, y)
		slices.Sort(all)
		return slices.Compact(all)
	}
	b.code, b.test, b.deps = union(a.code, b.code), union(a.test, b.test), union(a.deps, b.deps)
	return b
}

// listPackages asks the go command for packages as goos sees them; empty is
// this system.
func listPackages(t *testing.T, goos string, patterns ...string) (packages []pkg) {
	t.Helper()
	out := goCommand(t, goos, append([]string{"list",
		"-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports,Deps"}, patterns...)...)
	d := json.NewDecoder(bytes.NewReader(out))
	for {
		var p struct {
			pkg
			ImportPath                               string
			Imports, TestImports, XTestImports, Deps []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		path, ok := inModule(p.ImportPath)
		if !ok {
			t.Fatalf("go list has %q, which is outside of %s: if the module moved, modulePath in this file moves too", p.ImportPath, modulePath)
		}
		p.path, p.code, p.deps = path, p.Imports, p.Deps
		p.test = slices.Concat(p.TestImports, p.XTestImports)
		packages = append(packages, p.pkg)
	}
}

// moduleFolder is where go.mod is, spelled as go list spells Dir.
func moduleFolder(t *testing.T) string {
	t.Helper()
	return filepath.Dir(strings.TrimSpace(string(goCommand(t, "", "env", "GOMOD"))))
}

// goCommand runs the go command in the root of the module. No workspace, and no
// build tag of the person who runs the tests, changes what it sees.
func goCommand(t *testing.T, goos string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly -buildvcs=false")
	if goos != "" {
		cmd.Env = append(cmd.Env, "GOOS="+goos, "CGO_ENABLED=0")
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return out
}

// noteFolders reads every folder that may have Go code. The go command itself
// reads them where a test's cache does not see it; without this, go test would
// call the result cached when another package has changed.
func noteFolders(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || name == "." {
			return err
		}
		if base := d.Name(); base[0] == '.' || base[0] == '_' || base == "testdata" {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The table and the laws are worth something only if they can fail.
func TestImportsChecks(t *testing.T) {
	const m = modulePath
	// Rows that allow everything, so that only the laws speak.
	any := []string{"", "internal/...", "memstore", "sqlitestore", "storetest", "fakehost", "examples/...",
		"github.com/...", "golang.org/...", "gopkg.in/..."}
	for _, test := range []struct {
		name  string
		p     pkg
		table map[string]row // nil: a row that allows everything
		want  string         // in the only problem; empty if it is fine
	}{
		{name: "root, as it should be", p: pkg{code: []string{"os", m + "/internal/slug", "golang.org/x/text/unicode/norm"}, test: []string{m, m + "/memstore", "testing"}}},
		{name: "root imports a store", p: pkg{code: []string{m + "/memstore"}}, want: "the root imports no package"},
		{name: "root imports a foreign module", p: pkg{code: []string{"github.com/x/y"}}, want: "every adopter"},
		{name: "root links a foreign module in", p: pkg{code: []string{m + "/internal/slug"}, deps: []string{"github.com/x/y"}}, want: "through what it imports"},
		{name: "internal, as it should be", p: pkg{path: "internal/a", code: []string{m + "/internal/b", "golang.org/x/sys/unix"}}},
		{name: "internal imports the root", p: pkg{path: "internal/a", code: []string{m}}, want: "lowest layer"},
		{name: "internal imports a foreign module", p: pkg{path: "internal/a", code: []string{"github.com/x/y"}}, want: "lowest layer"},
		{name: "store, as it should be", p: pkg{path: "sqlitestore", code: []string{m, "github.com/ncruces/go-sqlite3"}, test: []string{m + "/storetest", m + "/memstore"}}},
		{name: "store imports a store", p: pkg{path: "sqlitestore", code: []string{m + "/memstore"}}, want: "never each other"},
		{name: "suite imports a store", p: pkg{path: "storetest", code: []string{m + "/memstore", "testing"}}, want: "never each other"},
		{name: "host imports an example", p: pkg{path: "fakehost", test: []string{m + "/examples/relay/board"}}, want: "programs are on top"},
		{name: "example imports internal", p: pkg{path: "examples/relay", code: []string{m + "/internal/slug"}}, want: "an adopter, who copies them"},
		{name: "example's test imports internal", p: pkg{path: "examples/relay", test: []string{m + "/internal/slug"}}, want: "an adopter, who copies them"},
		{name: "testify in a test", p: pkg{path: "memstore", test: []string{"github.com/stretchr/testify/require"}}},
		{name: "testify in what ships", p: pkg{path: "storetest", code: []string{"github.com/stretchr/testify/require"}}, want: "testify is for _test.go"},
		{name: "testing in a suite", p: pkg{path: "storetest", code: []string{"testing", "testing/synctest"}}},
		{name: "testing in what ships", p: pkg{path: "memstore", code: []string{"testing/iotest"}}, want: "its flags"},
		{name: "testing linked in", p: pkg{path: "fakehost", deps: []string{"testing"}}, want: "links in"},
		{name: "driver", p: pkg{path: "sqlitestore", code: []string{sqliteDriver}}, want: "panics at start"},
		{name: "driver in a test", p: pkg{path: "sqlitestore", test: []string{sqliteDriver}}, want: "panics at start"},
		{name: "driver linked in", p: pkg{path: "sqlitestore", deps: []string{sqliteDriver}}, want: "panics at start"},

		{name: "table: no row", p: pkg{path: "memstore"}, table: map[string]row{}, want: "memstore has no row"},
		{name: "table: not allowed", p: pkg{path: "memstore", code: []string{m}}, table: map[string]row{"memstore": {}}, want: "its row does not allow"},
		{name: "table: allowed in tests only", p: pkg{path: "memstore", code: []string{"golang.org/x/sync/errgroup"}},
			table: map[string]row{"memstore": {test: []string{"golang.org/x/sync/..."}}}, want: "its row does not allow"},
		{name: "table: test import not allowed", p: pkg{path: "memstore", test: []string{m + "/storetest"}}, table: map[string]row{"memstore": {}}, want: "tests of memstore"},
		{name: "table: own package and standard library need no row", p: pkg{path: "memstore", test: []string{m + "/memstore", "os"}}, table: map[string]row{"memstore": {}}},
		{name: "table: no package", p: pkg{path: "memstore"}, table: map[string]row{"memstore": {}, "gone": {}}, want: "a row for gone"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.table == nil {
				test.table = map[string]row{test.p.path: {code: any}}
			}
			got := checkImports(test.table, map[string]pkg{test.p.path: test.p})
			switch {
			case test.want == "" && len(got) > 0:
				t.Errorf("problems = %q, want none", got)
			case test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)):
				t.Errorf("problems = %q, want one with %q", got, test.want)
			}
		})
	}
}

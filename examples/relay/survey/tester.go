package survey

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Tester looks for what no test ever names. It begins with the functions
// that the reviewer found heavy: those are the ones where a missing test
// costs most.
func Tester(t *Tree, in Brief) Deliverable {
	d := Deliverable{Topic: "tests", title: "What no test names"}
	if len(t.Packages) == 0 {
		d.testFiles(t)
		return d
	}
	named := t.namedInTests()
	d.heavyUntested(in["reviewer"], named)
	unnamed := d.coverage(t, importersIn(in["architect"]), named)
	d.page.section("Exported functions named in no test")
	var rows [][]string
	for _, f := range unnamed {
		rows = append(rows, []string{code(f.Name), code(f.at()), itoa(f.Lines), itoa(f.Branches)})
	}
	d.page.table("function | at | lines | branches", rows, 120)
	return d
}

const watchedTable = "Watched by the reviewer and named in no test"

// heavyUntested is what the reviewer watches and no test names.
func (d *Deliverable) heavyUntested(review string, named func(dir, name string) bool) {
	var rows [][]string
	for _, row := range tableOf(review, watchTable) {
		if len(row) < 8 {
			continue
		}
		name, at := row[0], row[1]
		file, _, _ := strings.Cut(at, ":")
		short := name[strings.LastIndexByte(name, '.')+1:]
		if short == "main" || short == "init" || named(path.Dir(file), short) {
			continue
		}
		rows = append(rows, []string{code(name), code(at), row[2], row[3], row[7]})
		if branches, _ := strconv.Atoi(row[3]); branches > manyBranches && len(d.findings) < 2 {
			l := Medium
			if branches > 2*manyBranches {
				l = High
			}
			d.find(l, "%s (%s) is named in no test.", code(name), code(at))
		}
	}
	d.page.section(watchedTable)
	d.page.line("From the table %q of the review.", watchTable)
	d.page.line("")
	d.page.table("function | at | lines | branches | weight", rows, 40)
}

// coverage goes through the packages and returns the exported functions that
// no test names.
func (d *Deliverable) coverage(t *Tree, importers map[string]int, named func(dir, name string) bool) (unnamed []fn) {
	var rows [][]string
	var bare []string // packages without a test
	lines, testLines, exported := 0, 0, 0
	kinds := map[string]int{}
	for _, p := range t.Packages {
		lines += p.Lines
		testLines += p.TestLines
		api, before := 0, len(unnamed)
		for _, f := range p.Files {
			for k, n := range f.Go.tests {
				kinds[k] += n
			}
			if f.Go.test || f.Go.generated || p.Name == "main" {
				continue
			}
			for _, fn := range f.Go.funcs {
				if fn.Exported {
					api++
					if !named(p.Dir, fn.Short) {
						unnamed = append(unnamed, fn)
					}
				}
			}
		}
		exported += api
		if p.TestFiles == 0 && p.Lines > 20 {
			bare = append(bare, folder(p.Dir))
		}
		rows = append(rows, []string{code(folder(p.Dir)), itoa(p.Lines), itoa(p.TestLines), percent(p.TestLines, p.Lines),
			itoa(p.TestFiles), fmt.Sprintf("%d of %d", api-len(unnamed)+before, api), itoa(importers[plain(folder(p.Dir))])})
	}
	d.Summary = fmt.Sprintf("%s for %d of code; ", Plural(testLines, "test line"), lines)
	if exported == 0 {
		d.Summary += "no exported function"
	} else {
		d.Summary += fmt.Sprintf("%d of %s named in no test", len(unnamed), Plural(exported, "exported function"))
	}
	switch {
	case testLines == 0:
		d.find(High, "There is no Go test at all, for %s of code.", Plural(lines, "line"))
	case len(bare) > 0:
		d.find(Medium, "%s without a test file: %s.", Plural(len(bare), "package"), codes(bare, 5))
	}
	if n := len(unnamed); n > 0 && testLines > 0 {
		l := Low
		if n*2 > exported {
			l = Medium
		}
		d.find(l, "%d of %s are named in no test.", n, Plural(exported, "exported function"))
	}

	d.page.section("Packages")
	d.page.table("folder | lines | test lines | ratio | test files | exported functions named | imported by", rows, 150)
	d.page.line("")
	var counts []string
	for _, k := range testKinds {
		noun := strings.ToLower(k)
		if k == "Fuzz" {
			noun = "fuzz target"
		}
		counts = append(counts, OrNo(kinds[k], noun))
	}
	d.page.line("By kind: %s.", strings.Join(counts, ", "))
	d.page.line("\"Named\" means that the name occurs in a test of the package, or of a package that imports it. " +
		"It says nothing about whether the test is good, and a function may well run in a test that does not name it.")
	return unnamed
}

// namedInTests answers whether a test that can reach a package names
// something in it.
func (t *Tree) namedInTests() func(dir, name string) bool {
	reach := map[string][]map[string]bool{} // by folder
	for _, p := range t.Packages {
		for _, f := range p.Files {
			if !f.Go.test {
				continue
			}
			seen := map[string]bool{p.Dir: true}
			for _, imp := range f.Go.imports {
				if dir, ok := t.dirOf(imp); ok {
					seen[dir] = true
				}
			}
			for dir := range seen {
				reach[dir] = append(reach[dir], f.Go.names)
			}
		}
	}
	return func(dir, name string) bool {
		return slices.ContainsFunc(reach[dir], func(names map[string]bool) bool { return names[name] })
	}
}

// A ratio is how much of a language's code is tests.
type ratio struct{ files, lines, tests, testLines int }

func (r *ratio) add(f *file) {
	if f.Test {
		r.tests++
		r.testLines += f.Lines
	} else {
		r.files++
		r.lines += f.Lines
	}
}

// testFiles is the deliverable for a tree without Go: which files are tests
// by their name.
func (d *Deliverable) testFiles(t *Tree) {
	byLang := map[string]*ratio{}
	var all ratio
	for _, f := range t.codeFiles() {
		r := byLang[f.Lang]
		if r == nil {
			r = &ratio{}
			byLang[f.Lang] = r
		}
		r.add(f)
		all.add(f)
	}
	if all.files+all.tests == 0 {
		d.Summary = "No source code, so nothing to test"
		d.find(Low, "There is no source code, so there is nothing that a test could check.")
	} else {
		d.Summary = fmt.Sprintf("No Go packages; %s for %s by their names",
			OrNo(all.tests, "test file"), Plural(all.files, "source file"))
		if all.tests == 0 {
			d.find(Medium, "%s, and none of the tree's files is a test by its name.", Plural(all.files, "source file"))
		}
	}
	d.page.section("Tests by language")
	var rows [][]string
	for name, r := range byLang {
		rows = append(rows, []string{name, itoa(r.files), itoa(r.lines), itoa(r.tests), itoa(r.testLines), percent(r.testLines, r.lines)})
	}
	slices.SortFunc(rows, func(a, b []string) int { return cmp.Compare(a[0], b[0]) })
	d.page.table("language | files | lines | test files | test lines | ratio", rows, 40)
	d.page.line("")
	d.page.line("A test is known by its name or folder: `x_test.*`, `test_x.*`, `x.spec.*`, `tests/`.")
}

package survey

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"path"
	"slices"
	"strconv"
)

// watchTable is the reviewer's table that the tester goes on from.
const watchTable = "Functions to watch"

// What is much for one function.
const (
	manyBranches = 15
	manyLines    = 80
)

// Reviewer looks for the functions that are hardest to change safely: long,
// with many branches, in packages that many others import (the architect's
// map), without a comment (the implementer's list). In other languages it
// looks at what can be seen without a parser.
func Reviewer(t *Tree, in Brief) Deliverable {
	d := Deliverable{Topic: "review", title: "What is hard to change safely"}
	twins, wide := duplicates(t), wideFiles(t)
	if funcs := t.funcs(); len(funcs) > 0 {
		d.watch(t, funcs, in)
		d.spread(funcs)
	} else {
		d.Summary = fmt.Sprintf("No Go functions; %s with long lines, %s",
			OrNo(len(wide), "source file"), OrNo(len(twins), "copied file"))
	}
	d.wide(wide)
	d.twins(twins)
	return d
}

// watch ranks the functions, with what colleagues found out about them.
func (d *Deliverable) watch(t *Tree, funcs []fn, in Brief) {
	importers := importersIn(in["architect"])
	bare := map[string]bool{} // "file:line" of exported names without a comment
	for _, row := range tableOf(in["implementer"], gapTable) {
		if len(row) > 2 {
			bare[row[2]] = true
		}
	}
	byDir := map[string]int{}
	for _, p := range t.Packages {
		byDir[p.Dir] = importers[plain(folder(p.Dir))]
	}
	used := func(f fn) int { return byDir[path.Dir(f.File)] }
	weight := func(f fn) int { return f.Branches + f.Lines/10 + 2*used(f) }
	slices.SortStableFunc(funcs, func(a, b fn) int { return cmp.Compare(weight(b), weight(a)) })

	long, branchy := 0, 0
	var rows [][]string
	for _, f := range funcs {
		if f.Lines > manyLines {
			long++
		}
		if f.Branches > manyBranches {
			branchy++
		}
		if (f.Lines > manyLines || f.Branches > manyBranches) && len(d.findings) < 3 {
			l := Medium
			if f.Branches > 2*manyBranches {
				l = High
			}
			d.find(l, "%s (%s) has %s in %s, nested %d deep.", code(f.Name), code(f.at()),
				Plural(f.Branches, "branch", "branches"), Plural(f.Lines, "line"), f.Depth)
		}
		comment := "–"
		switch {
		case f.Exported && bare[plain(f.at())]:
			comment = "no"
		case f.Exported:
			comment = "yes"
		}
		rows = append(rows, []string{code(f.Name), code(f.at()), itoa(f.Lines), itoa(f.Branches), itoa(f.Depth),
			itoa(used(f)), comment, itoa(weight(f))})
	}
	d.Summary = fmt.Sprintf("%s: %d over %d branches, %d over %d lines; heaviest %s",
		Plural(len(funcs), "function"), branchy, manyBranches, long, manyLines, plain(funcs[0].Name))
	d.page.section(watchTable)
	d.page.table("function | at | lines | branches | depth | imported by | comment | weight", rows, 40)
	d.page.line("")
	d.page.line("Weight is branches + lines/10 + 2 × the packages that import its package. " +
		"Branches is 1 + every if, loop, case, && and ||. Generated code and tests are left out. " +
		"A weight is where to look first, not a judgement.")
}

func (d *Deliverable) wide(files []*file) {
	if len(files) > 0 {
		d.find(Low, "%s lines longer than 200 bytes, up to %d in %s.",
			Plural(len(files), "source file has", "source files have"), files[0].Longest, code(files[0].Path))
	}
	var rows [][]string
	for _, f := range files {
		rows = append(rows, []string{code(f.Path), f.Lang, itoa(f.Lines), itoa(f.Longest)})
	}
	d.page.section("Source files with lines over 200 bytes")
	d.page.table("file | language | lines | longest line, bytes", rows, 20)
}

func (d *Deliverable) twins(pairs [][2]string) {
	if len(pairs) > 0 {
		d.find(Low, "%s the same content as another one, first %s, like %s.",
			Plural(len(pairs), "file has", "files have"), code(pairs[0][0]), code(pairs[0][1]))
	}
	var rows [][]string
	for _, pair := range pairs {
		rows = append(rows, []string{code(pair[0]), code(pair[1])})
	}
	d.page.section("The same content twice")
	d.page.table("file | same as", rows, 30)
}

// spread shows how the functions are distributed, so that one long function
// is seen in proportion.
func (d *Deliverable) spread(funcs []fn) {
	bounds := []int{10, 20, 40, 80, 160}
	counts := make([]int, len(bounds)+1)
	for _, f := range funcs {
		i, _ := slices.BinarySearch(bounds, f.Lines)
		counts[i]++
	}
	d.page.section("Length of the functions")
	var rows [][]string
	for i, n := range counts {
		label := "more"
		if i < len(bounds) {
			label = "up to " + strconv.Itoa(bounds[i])
		}
		rows = append(rows, []string{label, itoa(n), percent(n, len(funcs))})
	}
	d.page.table("lines | functions | share", rows, len(rows))
}

func wideFiles(t *Tree) []*file {
	var list []*file
	for _, f := range t.codeFiles() {
		if f.Longest > 200 && (f.Go == nil || !f.Go.generated) {
			list = append(list, f)
		}
	}
	slices.SortStableFunc(list, func(a, b *file) int { return cmp.Compare(b.Longest, a.Longest) })
	return list
}

// duplicates are pairs of files with the same text; very short ones
// are alike by nature.
func duplicates(t *Tree) [][2]string {
	first := map[[sha256.Size]byte]string{}
	var pairs [][2]string
	for _, f := range t.Files {
		if !f.Read || f.Size < 64 {
			continue
		}
		if other, ok := first[f.Sum]; ok {
			pairs = append(pairs, [2]string{f.Path, other})
			continue
		}
		first[f.Sum] = f.Path
	}
	return pairs
}

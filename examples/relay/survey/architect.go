package survey

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Architect maps the packages and who imports whom. Without Go code it maps
// the folders.
func Architect(t *Tree, _ Brief) Deliverable {
	d := Deliverable{Topic: "map", title: "Map of the workspace"}
	folders := shares(t.Files, topFolder)
	if len(t.Packages) == 0 {
		d.weighFolders(t, folders)
		d.folders(folders)
		return d
	}
	cycles := layers(t.Packages)
	edges, deepest := 0, 0
	for _, p := range t.Packages {
		edges += len(p.Imports)
		deepest = max(deepest, p.Layer)
	}
	d.Summary = fmt.Sprintf("%s in %s, %s inside, %s", Plural(len(t.Packages), "package"),
		Plural(deepest+1, "layer"), OrNo(edges, "import"), OrNo(len(cycles), "cycle"))
	d.brokenStructure(t, cycles)
	d.heavyPackages(t.Packages)

	d.packages(t.Packages)
	d.layerList(t.Packages, deepest)
	d.importList(t.Packages)
	if edges > 0 && edges <= 60 {
		d.drawing(t.Packages)
	}
	d.folders(folders)
	return d
}

// weighFolders is what can be said of the structure without packages.
func (d *Deliverable) weighFolders(t *Tree, folders []*share) {
	if len(t.Files) == 0 {
		d.Summary = "The workspace has no files"
		return
	}
	d.Summary = fmt.Sprintf("No Go packages; %s in %s", Plural(len(t.Files), "file"), Plural(len(folders), "folder"))
	total := 0
	for _, f := range t.Files {
		total += f.Lines
	}
	if big := folders[0]; len(folders) > 2 && total > 500 && big.Lines*10 > 8*total {
		d.find(Low, "%s has %s of all lines: the other folders hardly count.", code(folder(big.Name)), percent(big.Lines, total))
	}
}

// brokenStructure finds what the go command would refuse.
func (d *Deliverable) brokenStructure(t *Tree, cycles [][]string) {
	if len(t.Modules) == 0 {
		d.find(High, "There is no go.mod, so nobody can say which imports are inside.")
	}
	for _, c := range cycles {
		d.find(High, "Import cycle: %s. Go refuses to build it.", codes(foldersOf(c), 8))
	}
	for _, p := range t.Packages {
		if len(p.Missing) > 0 {
			d.find(High, "%s imports %s, which is not in the tree.", code(folder(p.Dir)), codes(p.Missing, 3))
		}
		if len(p.Others) > 0 {
			d.find(Medium, "%s holds several packages: %s and %s.", code(folder(p.Dir)), code(p.Name), codes(p.Others, 3))
		}
	}
}

// heavyPackages finds the package with the most code, and those with the most
// arrows to and from them.
func (d *Deliverable) heavyPackages(pkgs []*pkg) {
	most := func(n func(*pkg) int) *pkg {
		return slices.MaxFunc(pkgs, func(a, b *pkg) int { return cmp.Compare(n(a), n(b)) })
	}
	if p := most(func(p *pkg) int { return p.Lines }); p.Lines > 5000 {
		d.find(Medium, "%s has %d lines in %s: look for a part that can stand alone.",
			code(folder(p.Dir)), p.Lines, Plural(len(p.Files)-p.TestFiles, "file"))
	}
	if p := most(func(p *pkg) int { return len(p.ImportedBy) }); len(p.ImportedBy) > 2 {
		d.find(Low, "%s carries the most: %d of the %d other packages import it, so a change there reaches furthest.",
			code(folder(p.Dir)), len(p.ImportedBy), len(pkgs)-1)
	}
	if p := most(func(p *pkg) int { return len(p.Imports) }); len(p.Imports) > 7 {
		d.find(Low, "%s imports %s of this tree, more than any other.", code(folder(p.Dir)), Plural(len(p.Imports), "package"))
	}
}

// packages writes the table that the others start from.
func (d *Deliverable) packages(pkgs []*pkg) {
	pkgs = slices.SortedStableFunc(slices.Values(pkgs), func(a, b *pkg) int {
		return cmp.Compare(len(b.ImportedBy), len(a.ImportedBy))
	})
	d.page.section("Packages")
	var rows [][]string
	for _, p := range pkgs {
		rows = append(rows, []string{code(folder(p.Dir)), code(p.Name), itoa(len(p.Files) - p.TestFiles), itoa(p.Lines),
			itoa(len(p.Imports)), itoa(len(p.ImportedBy)), itoa(p.Layer)})
	}
	d.page.table("folder | package | files | lines | imports | imported by | layer", rows, 250)
	d.page.line("")
	d.page.line("Files, lines and imports are without tests. Layer 0 imports nothing inside the tree, layer n only what is below it.")
}

func (d *Deliverable) layerList(pkgs []*pkg, deepest int) {
	d.page.section("Layers")
	for layer := deepest; layer >= 0; layer-- {
		var names []string
		for _, p := range pkgs {
			if p.Layer == layer {
				names = append(names, folder(p.Dir))
			}
		}
		d.page.line("- **%d** %s", layer, codes(names, 30))
	}
}

func (d *Deliverable) importList(pkgs []*pkg) {
	d.page.section("Who imports whom")
	shown := 0
	for _, p := range pkgs {
		if len(p.Imports)+len(p.TestImports) == 0 {
			continue
		}
		if shown++; shown > 150 {
			d.page.line("- … and more; the table above has the numbers.")
			break
		}
		line := "nothing"
		if len(p.Imports) > 0 {
			line = codes(foldersOf(p.Imports), 20)
		}
		if len(p.TestImports) > 0 {
			line += "; its tests also " + codes(foldersOf(p.TestImports), 20)
		}
		d.page.line("- %s → %s", code(folder(p.Dir)), line)
	}
	if shown == 0 {
		d.page.line("No package imports another one of this tree.")
	}
}

// drawing is the same as a picture, where the reader's program draws Mermaid.
func (d *Deliverable) drawing(pkgs []*pkg) {
	d.page.line("")
	d.page.line("```mermaid")
	d.page.line("graph TD")
	id := map[string]int{}
	for i, p := range pkgs {
		id[p.Dir] = i
		if len(p.Imports)+len(p.ImportedBy) > 0 {
			d.page.line("    p%d[%q]", i, plain(folder(p.Dir)))
		}
	}
	for i, p := range pkgs {
		for _, to := range p.Imports {
			d.page.line("    p%d --> p%d", i, id[to])
		}
	}
	d.page.line("```")
}

func (d *Deliverable) folders(list []*share) {
	d.page.section("Folders")
	if len(list) == 0 {
		d.page.line("None with files in them.")
		return
	}
	var rows [][]string
	for _, s := range list {
		rows = append(rows, []string{code(folder(s.Name)), itoa(s.Files), itoa(s.Lines), Bytes(s.Size), s.mainLang()})
	}
	d.page.table("folder, two levels | files | lines | size | mostly", rows, 60)
}

func foldersOf(dirs []string) []string {
	var list []string
	for _, dir := range dirs {
		list = append(list, folder(dir))
	}
	return list
}

// layers sets the Layer of every package and returns the import cycles.
// Packages of one cycle share a layer.
func layers(pkgs []*pkg) (cycles [][]string) {
	byDir := map[string]*pkg{}
	for _, p := range pkgs {
		byDir[p.Dir] = p
	}
	// Tarjan: a group is complete after all that it imports, so the layers of
	// those are known by then.
	index, lowest := map[string]int{}, map[string]int{}
	onStack := map[string]bool{}
	var stack []string
	var visit func(dir string)
	visit = func(dir string) {
		index[dir] = len(index) + 1
		lowest[dir] = index[dir]
		stack = append(stack, dir)
		onStack[dir] = true
		for _, to := range byDir[dir].Imports {
			if index[to] == 0 {
				visit(to)
				lowest[dir] = min(lowest[dir], lowest[to])
			} else if onStack[to] {
				lowest[dir] = min(lowest[dir], index[to])
			}
		}
		if lowest[dir] != index[dir] {
			return
		}
		at := slices.Index(stack, dir)
		group := slices.Clone(stack[at:])
		stack = stack[:at]
		layer := 0
		for _, member := range group {
			onStack[member] = false
			for _, to := range byDir[member].Imports {
				if !slices.Contains(group, to) {
					layer = max(layer, byDir[to].Layer+1)
				}
			}
		}
		for _, member := range group {
			byDir[member].Layer = layer
		}
		if len(group) > 1 {
			slices.Sort(group)
			cycles = append(cycles, group)
		}
	}
	for _, p := range pkgs {
		if index[p.Dir] == 0 {
			visit(p.Dir)
		}
	}
	slices.SortFunc(cycles, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return cycles
}

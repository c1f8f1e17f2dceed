package survey

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Researcher looks round the code: what is promised (README, licence, docs),
// what it stands on (dependencies), what is left to do (TODO and its like),
// and what kinds of files there are.
func Researcher(t *Tree, _ Brief) Deliverable {
	d := Deliverable{Topic: "state", title: "State of the project around the code"}
	has := d.papers(t)
	deps := d.dependencies(t)
	todo := d.leftToDo(t)
	d.kinds(t)

	licence := "no licence"
	if has["licence"] {
		licence = "a licence"
	}
	d.Summary = fmt.Sprintf("%s, %s; %s, %s to do", Plural(len(t.Files), "file"), licence, deps, OrNo(todo, "note"))
	if len(t.Files) == 0 {
		d.Summary = "The workspace has no files"
	}
	return d
}

// papers looks for the files that a project is expected to have.
func (d *Deliverable) papers(t *Tree) (has map[string]bool) {
	rows, has := papersOf(t)
	code := len(t.codeFiles())
	switch {
	case len(t.Files) == 0:
		d.find(Medium, "The workspace is empty: begin with a README that says what it is to become.")
	case !has["README"]:
		d.find(High, "There is no README: a newcomer does not learn what this is.")
	}
	if !has["licence"] && code > 0 {
		d.find(High, "There is no licence file: nobody else may use this.")
	}
	if !has["CI"] && code > 0 {
		d.find(Low, "Nothing here runs the tests by itself: no CI configuration was found.")
	}
	if !has["changelog"] && code > 20 {
		d.find(Low, "There is no changelog.")
	}
	d.page.section("Papers")
	d.page.table("what | found", rows, len(rows))
	return has
}

// dependencies says what the modules need, and in one phrase how much.
func (d *Deliverable) dependencies(t *Tree) string {
	d.page.section("Dependencies")
	if len(t.Modules) == 0 {
		d.page.line("No go.mod.")
		for _, f := range t.Files {
			if what := starters[path.Base(f.Path)]; what != "" {
				d.page.line("- %s (%s)", code(f.Path), what)
			}
		}
		return "no go.mod"
	}
	direct := 0
	for i, m := range t.Modules {
		direct += len(m.Direct)
		if len(m.Replaced) > 0 {
			d.find(Medium, "%s replaces %s: that does not hold for whoever imports it.",
				code(path.Join(m.Dir, "go.mod")), Plural(len(m.Replaced), "module"))
		}
		if i > 0 {
			d.page.line("")
		}
		d.page.line("### %s", code(cmp.Or(m.Path, "(no name)")))
		d.page.line("")
		d.page.line("In %s, Go %s, %s, %s.", code(folder(m.Dir)), cmp.Or(m.Go, "not said"),
			OrNo(len(m.Direct), "direct dependency", "direct dependencies"), OrNo(len(m.Indirect), "indirect one"))
		if len(m.Direct) == 0 {
			continue
		}
		var rows [][]string
		for _, dep := range m.Direct {
			name, version, _ := strings.Cut(dep, " ")
			rows = append(rows, []string{code(name), code(version), Plural(t.usersOf(name), "package")})
		}
		d.page.line("")
		d.page.table("module | version | imported by", rows, 60)
	}
	return OrNo(direct, "direct dependency", "direct dependencies")
}

// leftToDo lists the markers and returns how many there are.
func (d *Deliverable) leftToDo(t *Tree) int {
	var rows [][]string
	count, first := map[bool]int{}, map[bool]string{} // by: is it a plain TODO?
	for _, f := range t.Files {
		for _, m := range f.Markers {
			at := code(fmt.Sprintf("%s:%d", f.Path, m.Line))
			rows = append(rows, []string{m.Word, at, code(m.Text)})
			easy := m.Word == "TODO"
			if count[easy]++; count[easy] == 1 {
				first[easy] = at
			}
		}
	}
	if n := count[false]; n > 0 {
		d.find(Medium, "%s in the comments, first %s.", Plural(n, "FIXME, XXX or HACK", "FIXME, XXX and HACK notes"), first[false])
	}
	if n := count[true]; n > 0 {
		d.find(Low, "%s in the comments, first %s.", Plural(n, "TODO"), first[true])
	}
	d.page.section("TODO, FIXME, XXX and HACK in comments")
	d.page.table("word | at | text", rows, 150)
	return len(rows)
}

// kinds is what the files are.
func (d *Deliverable) kinds(t *Tree) {
	var rows [][]string
	for _, s := range shares(t.Files, func(f *file) string { return f.Lang }) {
		rows = append(rows, []string{code(s.Name), itoa(s.Files), itoa(s.Lines), Bytes(s.Size)})
	}
	d.page.section("Languages and file types")
	d.page.table("language or type | files | lines | size", rows, 40)

	rows = nil
	largest := slices.SortedStableFunc(slices.Values(t.Files), func(a, b *file) int { return cmp.Compare(b.Size, a.Size) })
	for _, f := range largest[:min(15, len(largest))] {
		kind := "text"
		switch {
		case !f.Read:
			kind = "not read"
		case f.Binary:
			kind = "binary"
		}
		rows = append(rows, []string{code(f.Path), Bytes(f.Size), kind})
	}
	d.page.section("Largest files")
	d.page.table("file | size | content", rows, len(rows))
}

// papersOf names the papers in the order in which a table shows them.
func papersOf(t *Tree) (rows [][]string, has map[string]bool) {
	found := map[string]string{}
	docs := 0
	for _, f := range t.Files {
		if f.Lang == "Markdown" || f.Lang == "reStructuredText" || f.Lang == "AsciiDoc" {
			docs++
		}
		if what := paper(f.Path); what != "" && found[what] == "" {
			found[what] = fmt.Sprintf("%s, %s", code(f.Path), Plural(f.Lines, "line"))
		}
	}
	has = map[string]bool{}
	for _, what := range []string{"README", "licence", "changelog", "contributing guide", "security policy", "CI"} {
		has[what] = found[what] != ""
		rows = append(rows, []string{what, cmp.Or(found[what], "–")})
	}
	return append(rows, []string{"documents", Plural(docs, "file")}), has
}

// paper says which paper a file is, by its name.
func paper(name string) string {
	dir, base := path.Dir(name), strings.ToLower(path.Base(name))
	top, _, _ := strings.Cut(name, "/")
	switch {
	case dir == ".github/workflows", top == ".circleci", top == ".woodpecker", top == ".ci", top == ".buildkite":
		return "CI"
	case dir != ".":
		return ""
	case base == ".gitlab-ci.yml", base == ".travis.yml", base == "azure-pipelines.yml", base == "jenkinsfile":
		return "CI"
	}
	return map[string]string{
		"readme": "README", "license": "licence", "licence": "licence", "copying": "licence", "unlicense": "licence",
		"changelog": "changelog", "changes": "changelog", "history": "changelog", "news": "changelog",
		"contributing": "contributing guide", "security": "security policy",
	}[strings.TrimSuffix(base, path.Ext(base))]
}

// usersOf is how many packages import something of a module.
func (t *Tree) usersOf(mod string) (n int) {
	uses := func(f *file) bool {
		return slices.ContainsFunc(f.Go.imports, func(imp string) bool {
			return imp == mod || strings.HasPrefix(imp, mod+"/")
		})
	}
	for _, p := range t.Packages {
		if slices.ContainsFunc(p.Files, uses) {
			n++
		}
	}
	return n
}

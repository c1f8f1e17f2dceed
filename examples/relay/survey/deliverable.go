package survey

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// A Brief is the deliverables of colleagues, by role, that a specialist was pointed to.
type Brief map[string]string

// A Deliverable is what a specialist makes: one Markdown file. Its findings
// come first, so that whoever has little time (or context) reads the beginning
// and knows what matters.
type Deliverable struct {
	Topic    string // part of the file's name
	Summary  string // one line; it travels in the signal
	title    string
	findings []Finding
	page     page // the evidence
}

// A Finding is one thing that somebody should know, or do.
type Finding struct {
	Level Level  `json:"level"`
	Text  string `json:"text"` // Markdown, one line
}

// A Level is how much a finding matters.
type Level string

// The levels.
const (
	High   Level = "high"
	Medium Level = "medium"
	Low    Level = "low"
)

var rank = map[Level]int{High: 0, Medium: 1, Low: 2}

// MostFindings is how many findings a deliverable begins with, and HeadLines
// how many lines of it hold them all.
const (
	MostFindings = 6
	HeadLines    = 14
)

func (d *Deliverable) find(l Level, format string, args ...any) {
	d.findings = append(d.findings, Finding{l, OneLine(fmt.Sprintf(format, args...))})
}

// Markdown is the text of the file: the findings first, then the evidence, and what of t was looked at.
func (d Deliverable) Markdown(t *Tree) string {
	slices.SortStableFunc(d.findings, func(a, b Finding) int { return cmp.Compare(rank[a.Level], rank[b.Level]) })
	var p page
	p.line("# %s", d.title)
	p.line("")
	p.line("%s", d.Summary)
	p.line("")
	p.line("## Findings")
	p.line("")
	for i, f := range d.findings {
		if i == MostFindings {
			break
		}
		p.line("- **%s** %s", f.Level, f.Text)
	}
	if len(d.findings) == 0 {
		p.line("None.")
	}
	p.WriteString(d.page.String())
	p.section("What was looked at")
	p.line("%s", t.account())
	for _, gap := range t.gaps() {
		p.line("- %s", gap)
	}
	return p.String()
}

// SummaryOf is the summary of a deliverable, from its text.
func SummaryOf(text string) string {
	if lines := strings.SplitN(text, "\n", 4); len(lines) > 2 {
		return lines[2]
	}
	return ""
}

// FindingsOf are the findings that a deliverable's text begins with.
func FindingsOf(text string) []Finding {
	var found []Finding
	for line := range strings.Lines(text) {
		for l := range rank {
			if rest, ok := strings.CutPrefix(line, "- **"+string(l)+"** "); ok {
				found = append(found, Finding{l, strings.TrimSpace(rest)})
			}
		}
	}
	return found
}

// account says in one sentence what a scan saw.
func (t *Tree) account() string {
	var size int64
	for _, f := range t.Files {
		size += f.Size
	}
	s := fmt.Sprintf("%s in %s, %s; %s of them read.",
		Plural(len(t.Files), "file"), Plural(t.Folders+1, "folder"), Bytes(size), Bytes(t.Read))
	if n := len(t.Skipped); n > 0 {
		s += fmt.Sprintf(" Not entered: %s.", codes(t.Skipped, 6))
	}
	return s
}

// gaps says what is missing from the facts, and why.
func (t *Tree) gaps() []string {
	var gaps []string
	add := func(n int, format string, args ...any) {
		if n > 0 {
			gaps = append(gaps, fmt.Sprintf(format, args...))
		}
	}
	add(len(t.Stopped), "Left out: %s.", t.Stopped)
	add(t.Unread, "Left out: the text of %s, since %s were read already.", Plural(t.Unread, "file"), Bytes(t.Read))
	add(t.TooLarge, "Left out: the text of %s larger than %s.", Plural(t.TooLarge, "file"), Bytes(t.Limits.file))
	add(t.Links, "Not followed: %s.", Plural(t.Links, "symbolic link"))
	add(t.Special, "Not opened: %s.", Plural(t.Special, "entry that is no regular file", "entries that are no regular files"))
	for i, p := range t.Problems {
		if i == 10 {
			add(1, "… and %s more.", Plural(len(t.Problems)-i, "problem"))
			break
		}
		add(1, "Could not use all of %s: %s.", code(p.Path), OneLine(p.Why))
	}
	return gaps
}

// A page is Markdown in the making.
type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) {
	fmt.Fprintf(p, format, args...)
	p.WriteByte('\n')
}

func (p *page) section(title string) {
	p.line("")
	p.line("## %s", title)
	p.line("")
}

// table writes at most most rows and says how many more there were.
func (p *page) table(head string, rows [][]string, most int) {
	if len(rows) == 0 {
		p.line("None.")
		return
	}
	names := strings.Split(head, " | ")
	p.line("| %s |", head)
	p.line("|%s", strings.Repeat(" --- |", len(names)))
	for i, row := range rows {
		if i == most {
			break
		}
		p.line("| %s |", strings.Join(row, " | "))
	}
	if n := len(rows) - most; n > 0 {
		p.line("")
		p.line("… and %d more.", n)
	}
}

// tableOf reads the rows of the table under a heading of an earlier
// deliverable, without its head.
func tableOf(text, heading string) [][]string {
	_, text, ok := strings.Cut(text, "\n## "+heading+"\n")
	if !ok {
		return nil
	}
	if i := strings.Index(text, "\n## "); i >= 0 {
		text = text[:i]
	}
	var rows [][]string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		rows = append(rows, cells)
	}
	if len(rows) < 2 {
		return nil
	}
	return rows[2:] // behind the head and the dashes
}

// A share is what a folder or a language has of the tree.
type share struct {
	Name         string
	Files, Lines int
	Size         int64
	Tests        int
	langs        map[string]int
}

// shares groups the files by key, the biggest first.
func shares(files []*file, key func(*file) string) []*share {
	byName := map[string]*share{}
	var list []*share
	for _, f := range files {
		k := key(f)
		s := byName[k]
		if s == nil {
			s = &share{Name: k, langs: map[string]int{}}
			byName[k] = s
			list = append(list, s)
		}
		s.Files++
		s.Lines += f.Lines
		s.Size += f.Size
		s.langs[f.Lang] += f.Lines + 1
		if f.Test {
			s.Tests++
		}
	}
	slices.SortStableFunc(list, func(a, b *share) int {
		return cmp.Or(cmp.Compare(b.Lines, a.Lines), cmp.Compare(b.Size, a.Size), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// mainLang is the language with the most lines.
func (s *share) mainLang() string {
	best := ""
	for name, n := range s.langs {
		if best == "" || n > s.langs[best] || n == s.langs[best] && name < best {
			best = name
		}
	}
	return best
}

// topFolder is the first two levels of a file's folder.
func topFolder(f *file) string {
	dir := path.Dir(f.Path)
	if parts := strings.SplitN(dir, "/", 3); len(parts) > 2 {
		dir = parts[0] + "/" + parts[1]
	}
	return dir
}

// codeFiles are the files that are written in a programming language.
func (t *Tree) codeFiles() []*file {
	var list []*file
	for _, f := range t.Files {
		if codeLangs[f.Lang] && f.Read && !f.Binary {
			list = append(list, f)
		}
	}
	return list
}

// funcs are all functions that somebody wrote by hand, without tests.
func (t *Tree) funcs() []fn {
	var list []fn
	for _, f := range t.Files {
		if f.Go != nil && !f.Go.test && !f.Go.generated {
			list = append(list, f.Go.funcs...)
		}
	}
	return list
}

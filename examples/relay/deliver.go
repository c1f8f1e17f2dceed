package main

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A deliverable is what a specialist makes: one Markdown file. Its findings
// come first, so that whoever has little time (or context) reads the beginning
// and knows what matters.
type deliverable struct {
	topic    string // part of the file's name
	title    string
	summary  string // one line; it travels in the signal
	findings []finding
	page     page // the evidence
}

// A finding is one thing that somebody should know, or do.
type finding struct {
	Level level  `json:"level"`
	Text  string `json:"text"` // Markdown, one line
}

type level string

const (
	high   level = "high"
	medium level = "medium"
	low    level = "low"
)

var rank = map[level]int{high: 0, medium: 1, low: 2}

// mostFindings is how many findings a deliverable begins with, and headLines
// how many lines of it hold them all.
const (
	mostFindings = 6
	headLines    = 14
)

func (d *deliverable) find(l level, format string, args ...any) {
	d.findings = append(d.findings, finding{l, oneLine(fmt.Sprintf(format, args...))})
}

// markdown is the text of the file.
func (d *deliverable) markdown(t *tree) string {
	slices.SortStableFunc(d.findings, func(a, b finding) int { return cmp.Compare(rank[a.Level], rank[b.Level]) })
	var p page
	p.line("# %s", d.title)
	p.line("")
	p.line("%s", d.summary)
	p.line("")
	p.line("## Findings")
	p.line("")
	for i, f := range d.findings {
		if i == mostFindings {
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

// summaryOf and findingsOf read back what markdown wrote.
func summaryOf(text string) string {
	if lines := strings.SplitN(text, "\n", 4); len(lines) > 2 {
		return lines[2]
	}
	return ""
}

func findingsOf(text string) []finding {
	var found []finding
	for line := range strings.Lines(text) {
		for l := range rank {
			if rest, ok := strings.CutPrefix(line, "- **"+string(l)+"** "); ok {
				found = append(found, finding{l, strings.TrimSpace(rest)})
			}
		}
	}
	return found
}

// account says in one sentence what a scan saw.
func (t *tree) account() string {
	var size int64
	for _, f := range t.Files {
		size += f.Size
	}
	s := fmt.Sprintf("%s in %s, %s; %s of them read.",
		plural(len(t.Files), "file"), plural(t.Folders+1, "folder"), bytesText(size), bytesText(t.Read))
	if n := len(t.Skipped); n > 0 {
		s += fmt.Sprintf(" Not entered: %s.", codes(t.Skipped, 6))
	}
	return s
}

// gaps says what is missing from the facts, and why.
func (t *tree) gaps() []string {
	var gaps []string
	add := func(n int, format string, args ...any) {
		if n > 0 {
			gaps = append(gaps, fmt.Sprintf(format, args...))
		}
	}
	add(len(t.Stopped), "Left out: %s.", t.Stopped)
	add(t.Unread, "Left out: the text of %s, since %s were read already.", plural(t.Unread, "file"), bytesText(t.Read))
	add(t.TooLarge, "Left out: the text of %s larger than %s.", plural(t.TooLarge, "file"), bytesText(t.Limits.file))
	add(t.Links, "Not followed: %s.", plural(t.Links, "symbolic link"))
	add(t.Special, "Not opened: %s.", plural(t.Special, "entry that is no regular file", "entries that are no regular files"))
	for i, p := range t.Problems {
		if i == 10 {
			add(1, "… and %s more.", plural(len(t.Problems)-i, "problem"))
			break
		}
		add(1, "Could not use all of %s: %s.", code(p.Path), oneLine(p.Why))
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

// code shows a name from the workspace as Markdown code: on one line, without
// anything that could end the code, the cell or the line, and not too long.
func code(s string) string {
	return "`" + plain(s) + "`"
}

func plain(s string) string {
	bad := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	if strings.ContainsFunc(s, bad) {
		s = strconv.Quote(s)
	}
	s = strings.NewReplacer("`", "'", "|", "¦").Replace(s)
	if r := []rune(s); len(r) > 120 {
		s = string(r[:50]) + "…" + string(r[len(r)-69:])
	}
	return s
}

func codes(names []string, most int) string {
	var b strings.Builder
	for i, name := range names {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(names)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(code(name))
	}
	return b.String()
}

// folder shows a folder of the tree; "." says little to a reader.
func folder(dir string) string {
	if dir == "." {
		return "(root)"
	}
	return dir
}

// oneLine folds all white space, and drops what a terminal would obey.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// cut shortens s to most runes and shows that it did.
func cut(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return strings.TrimSpace(string(r[:most-1])) + "…"
	}
	return s
}

// plural is "1 file", "2 files". An irregular plural is given.
func plural(n int, noun string, irregular ...string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case len(irregular) > 0:
		return strconv.Itoa(n) + " " + irregular[0]
	default:
		return strconv.Itoa(n) + " " + noun + "s"
	}
}

// orNo is plural, but "no file" for none.
func orNo(n int, noun string, irregular ...string) string {
	if n == 0 {
		return "no " + noun
	}
	return plural(n, noun, irregular...)
}

func bytesText(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1_000_000_000:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	default:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	}
}

func percent(part, whole int) string {
	if whole == 0 {
		return "–"
	}
	p := (part*100 + whole/2) / whole
	if p == 100 && part < whole {
		p = 99 // all is all
	}
	return fmt.Sprintf("%d %%", p)
}

// itoa is for table cells.
func itoa(n int) string { return strconv.Itoa(n) }

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
func (t *tree) codeFiles() []*file {
	var list []*file
	for _, f := range t.Files {
		if codeLangs[f.Lang] && f.Read && !f.Binary {
			list = append(list, f)
		}
	}
	return list
}

// funcs are all functions that somebody wrote by hand, without tests.
func (t *tree) funcs() []fn {
	var list []fn
	for _, f := range t.Files {
		if f.Go != nil && !f.Go.test && !f.Go.generated {
			list = append(list, f.Go.funcs...)
		}
	}
	return list
}

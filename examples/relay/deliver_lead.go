package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/teamchan/team"
)

// mostTasks is how many things the lead asks for.
const mostTasks = 5

// A task is a finding, and who found it. What two say about the same place is
// one task.
type task struct {
	finding
	From  []team.Role `json:"from"`
	Paths []string    `json:"paths"` // the entries with the evidence
}

func (t task) by() string {
	var names []string
	for _, role := range t.From {
		names = append(names, string(role))
	}
	return strings.Join(names, " and ")
}

// A report is what the lead knows of one specialist's work: the line from the
// signal and the beginning of the entry. The rest stays on the board.
type report struct {
	role     team.Role
	summary  string
	path     string
	findings []finding
}

// next picks the most important findings of all. Within a level it takes one
// of each specialist in turn, so that the loudest one does not fill the list.
func next(reports []report) []task {
	var tasks []task
	for _, l := range []level{high, medium, low} {
		for turn, more := 0, true; more; turn++ {
			more = false
			for _, r := range reports {
				of := slices.DeleteFunc(slices.Clone(r.findings), func(f finding) bool { return f.Level != l })
				if turn < len(of) {
					more = true
					tasks = addTask(tasks, of[turn], r)
				}
			}
		}
	}
	return tasks[:min(len(tasks), mostTasks)]
}

// addTask adds a finding, or joins it to what is known of the same place.
func addTask(tasks []task, f finding, r report) []task {
	place, says := subject(f.Text)
	for i := range tasks {
		if t := &tasks[i]; place != "" && strings.HasPrefix(t.Text, place) && !slices.Contains(t.From, r.role) {
			_, before := subject(t.Text)
			if len(says) > len(before) { // the one with more to say speaks first
				before, says = says, before
			}
			t.Text = place + before + " It " + says
			t.From = append(t.From, r.role)
			t.Paths = append(t.Paths, r.path)
			return tasks
		}
	}
	return append(tasks, task{f, []team.Role{r.role}, []string{r.path}})
}

// subject splits "`name` (`file:line`) says something".
func subject(text string) (place, says string) {
	if i := strings.Index(text, "`) "); i > 0 && text[0] == '`' {
		return text[:i+3], text[i+3:]
	}
	return "", text
}

// plan is the lead's own deliverable.
func plan(reports []report, tasks []task, show func(path string) string) deliverable {
	d := deliverable{topic: "plan", title: "What to do next"}
	d.summary = fmt.Sprintf("%s from %s", plural(len(tasks), "thing to do", "things to do"), plural(len(reports), "report"))
	for _, t := range tasks {
		var paths []string
		for _, p := range t.Paths {
			paths = append(paths, show(p))
		}
		d.find(t.Level, "%s — %s, %s", t.Text, t.by(), codes(paths, len(paths)))
	}
	d.page.section("What each specialist found")
	var rows [][]string
	for _, r := range reports {
		rows = append(rows, []string{string(r.role), r.summary, itoa(len(r.findings)), code(show(r.path))})
	}
	d.page.table("role | in one line | findings | entry", rows, len(rows))
	d.page.line("")
	d.page.line("The list above has the most severe findings first, one of each specialist in turn. " +
		"It was made from the signals and the first lines of the entries; the evidence is in the entries.")
	return d
}

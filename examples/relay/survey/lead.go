package survey

import (
	"fmt"
	"slices"
	"strings"
)

// MostTasks is how many things the lead asks for.
const MostTasks = 5

// A Task is a finding, and who found it. What two say about the same place is
// one task.
type Task struct {
	Finding
	From  []string `json:"from"`
	Paths []string `json:"paths"` // the entries with the evidence
}

// By names those who found it.
func (t Task) By() string {
	return strings.Join(t.From, " and ")
}

// A Report is what the lead knows of one specialist's work: the line from the
// signal and the beginning of the entry. The rest stays on the board.
type Report struct {
	Role     string
	Summary  string
	Path     string // of the entry
	Findings []Finding
}

// Next picks the most important findings of all. Within a level it takes one
// of each specialist in turn, so that the loudest one does not fill the list.
func Next(reports []Report) []Task {
	var tasks []Task
	for _, l := range []Level{High, Medium, Low} {
		for turn, more := 0, true; more; turn++ {
			more = false
			for _, r := range reports {
				of := slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Level != l })
				if turn < len(of) {
					more = true
					tasks = addTask(tasks, of[turn], r)
				}
			}
		}
	}
	return tasks[:min(len(tasks), MostTasks)]
}

// addTask adds a finding, or joins it to what is known of the same place.
func addTask(tasks []Task, f Finding, r Report) []Task {
	place, says := subject(f.Text)
	for i := range tasks {
		if t := &tasks[i]; place != "" && strings.HasPrefix(t.Text, place) && !slices.Contains(t.From, r.Role) {
			_, before := subject(t.Text)
			if len(says) > len(before) { // the one with more to say speaks first
				before, says = says, before
			}
			t.Text = place + before + " It " + says
			t.From = append(t.From, r.Role)
			t.Paths = append(t.Paths, r.Path)
			return tasks
		}
	}
	return append(tasks, Task{f, []string{r.Role}, []string{r.Path}})
}

// subject splits "`name` (`file:line`) says something".
func subject(text string) (place, says string) {
	if i := strings.Index(text, "`) "); i > 0 && text[0] == '`' {
		return text[:i+3], text[i+3:]
	}
	return "", text
}

// Plan is the lead's own deliverable. Show shortens a path for a reader.
func Plan(reports []Report, tasks []Task, show func(path string) string) Deliverable {
	d := Deliverable{Topic: "plan", title: "What to do next"}
	d.Summary = fmt.Sprintf("%s from %s", Plural(len(tasks), "thing to do", "things to do"), Plural(len(reports), "report"))
	for _, t := range tasks {
		var paths []string
		for _, p := range t.Paths {
			paths = append(paths, show(p))
		}
		d.find(t.Level, "%s — %s, %s", t.Text, t.By(), codes(paths, len(paths)))
	}
	d.page.section("What each specialist found")
	var rows [][]string
	for _, r := range reports {
		rows = append(rows, []string{r.Role, r.Summary, itoa(len(r.Findings)), code(show(r.Path))})
	}
	d.page.table("role | in one line | findings | entry", rows, len(rows))
	d.page.line("")
	d.page.line("The list above has the most severe findings first, one of each specialist in turn. " +
		"It was made from the signals and the first lines of the entries; the evidence is in the entries.")
	return d
}

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/teamchan/team"
)

// task is what a specialist's model is asked, in the name of the person who started the
// relay. The handoff with the paths stands above it in the session, as a signal.
func (r *liveRelay) task(s specialist) string {
	var b strings.Builder
	fmt.Fprintf(&b, "You are the %s of a team that surveys the folder %s. Your part: %s.\n\n", s.role, r.workspace, s.ask)
	if len(s.reads) > 0 {
		b.WriteString("The team_signal above names files that your colleagues have written. Read them first, and build on them.\n")
	}
	fmt.Fprintf(&b, "Use only the tools for reading and searching; change nothing. Look at the real files, and say only what you saw in them.\n\n"+
		"Your answer is published as a Markdown file, as it is. So answer with that file and nothing around it, in this form:\n\n"+
		"# <title>\n\n<one sentence of at most 120 characters: what a reader must know>\n\n## Findings\n\n"+
		"- **high** <one line; name the file and line>\n- **medium** <…>\n- **low** <…>\n\n## <the evidence, in as many sections as it needs>\n\n"+
		"At most %d findings, the most important first, each a line of its own that begins with its level as above.\n", mostFindings)
	return b.String()
}

// summing is what the lead's model is asked at the end.
func (r *liveRelay) summing() string {
	return fmt.Sprintf("You lead a team that surveys the folder %s. Each team_signal above is from one of your %d specialists and names the file "+
		"with its findings. Read the first %d lines of those files and no more (the read tool takes a limit): the findings stand there. "+
		"Change nothing.\n\nThen answer with a plan and nothing around it, as a Markdown file in this form:\n\n"+
		"# What to do next\n\n<one sentence>\n\n## Findings\n\n- **high** <what to do, and where>\n- **medium** <…>\n- **low** <…>\n\n"+
		"At most %d lines, the most important first, each beginning with its level as above.\n",
		r.workspace, len(r.sessions)-1, headLines, mostTasks)
}

// plan lets the lead's model sum up, and accounts for what it had to read.
func (r *liveRelay) plan(ctx context.Context, reports []report, entries map[team.Role]team.Entry, doc *document) error {
	answer, err := r.ask(ctx, roleLead, r.summing())
	if err != nil {
		return fmt.Errorf("the lead: %w", err)
	}
	lead := r.as(ctx, roleLead)
	written, err := r.board.Write(lead, team.Draft{Session: r.run, Task: taskName, Topic: "plan", Body: answer})
	if err != nil {
		return err
	}
	r.log.entry(written, headline(answer))
	doc.Plan, doc.Tasks = written.Path, []task{}
	for i, f := range findingsOf(answer) {
		if i < mostTasks {
			doc.Tasks = append(doc.Tasks, task{finding: f, From: []team.Role{roleLead}, Paths: []string{written.Path}})
		}
	}
	if len(doc.Tasks) == 0 { // the model kept to no form: what the specialists found still counts
		doc.Tasks = append(doc.Tasks, next(reports)...)
	}
	doc.Account, err = r.account(lead, entries)
	return err
}

// account is of what really stands in the lead's session: the signals, and what its tools
// brought. With the bodies inline each signal would have its entry in it.
func (r *liveRelay) account(ctx context.Context, entries map[team.Role]team.Entry) (account, error) {
	var a account
	messages, err := r.host.Messages(ctx, r.sessions[roleLead], 0)
	if err != nil {
		return a, err
	}
	for _, m := range messages {
		for _, p := range m.Parts {
			switch {
			case p.Synthetic && strings.HasPrefix(p.Text, "<team_signal "):
				a.Signals++
				a.SignalTokens += team.EstimateTokens(p.Text)
			case p.Tool != "":
				a.ExcerptTokens += team.EstimateTokens(p.Output)
			}
		}
	}
	a.Inline = a.SignalTokens
	for role, e := range entries {
		text, err := r.board.ReadRef(ctx, e.Ref(), team.Range{})
		if err != nil {
			return a, fmt.Errorf("the entry of the %s, %s: %w", role, filepath.Base(e.Path), err)
		}
		a.Inline += team.EstimateTokens(text.Text)
	}
	a.Paths = a.SignalTokens + a.ExcerptTokens
	if a.Inline > 0 {
		a.SavedPercent = float64(1000*(a.Inline-a.Paths)/a.Inline) / 10
	}
	return a, nil
}

package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/teamchan/team"
	"github.com/teamchan/team/examples/relay/survey"
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
		"At most %d findings, the most important first, each a line of its own that begins with its level as above.\n", survey.MostFindings)
	return b.String()
}

// rules let the agents look and nothing more. They come behind the agent's own, so nothing is
// left to be asked for: nobody sits before the screen.
func (r *liveRelay) rules() team.Rules {
	rules := team.Rules{{Permission: "*", Pattern: "*", Effect: team.Deny}}
	for _, tool := range []string{"read", "grep", "glob", "list"} {
		rules = append(rules, team.Rule{Permission: tool, Pattern: "*", Effect: team.Allow})
	}
	return append(rules,
		team.Rule{Permission: "read", Pattern: "*.env", Effect: team.Deny},
		team.Rule{Permission: "read", Pattern: "*.env.*", Effect: team.Deny},
		team.Rule{Permission: "external_directory", Pattern: filepath.Join(r.board.Dir(), "*"), Effect: team.Allow})
}

// summing is what the lead's model is asked at the end.
func (r *liveRelay) summing() string {
	return fmt.Sprintf("You lead a team that surveys the folder %s. Each team_signal above is from one of your %d specialists and names the file "+
		"with its findings. Read the first %d lines of those files and no more (the read tool takes a limit): the findings stand there. "+
		"Change nothing.\n\nThen answer with a plan and nothing around it, as a Markdown file in this form:\n\n"+
		"# What to do next\n\n<one sentence>\n\n## Findings\n\n- **high** <what to do, and where>\n- **medium** <…>\n- **low** <…>\n\n"+
		"At most %d lines, the most important first, each beginning with its level as above.\n",
		r.workspace, len(roles())-1, survey.HeadLines, survey.MostTasks)
}

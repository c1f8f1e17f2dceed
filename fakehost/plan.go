package fakehost

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
)

// planExitTool ends planning: it asks, through QuestionDomain and with fixed answers, whether to go
// on as agent build. Yes adds a synthetic user message for build, and the session goes on as build: to
// the script the turn is over. No is a dismissal, as is closing the question.
//
// OpenCode 1.18, for agents whose rules allow it: plan. 2.0 has no plan mode that we know of.
func (h *Host) planExitTool() Tool {
	return Tool{Name: "plan_exit", Description: "End planning", late: true,
		Run: func(ctx context.Context, c *ToolCall) (ToolOutput, error) {
			var in struct{}
			if err := c.Decode(&in); err != nil {
				return ToolOutput{}, err
			}
			var plan string
			err := h.tx(func(t *tx) error {
				s, err := t.session(c.Session)
				if err == nil {
					plan = h.planFile(s)
				}
				return err
			})
			if err != nil {
				return ToolOutput{}, err
			}
			answers, err := h.Question.call(ctx, c, []Question{{
				Question: fmt.Sprintf("The plan %s is written. Go on as agent build?", plan), Header: "Build Agent", Custom: new(bool),
				Options: []Option{{"Yes", "Go on as agent build"}, {"No", "Stay with agent plan"}}}})
			if err != nil {
				return ToolOutput{}, err
			}
			if len(answers) == 0 || len(answers[0]) == 0 || answers[0][0] != "Yes" {
				return ToolOutput{}, &DismissedError{c.ID}
			}
			err = h.tx(func(t *tx) error {
				_, err := t.admit(c.Session, "synthetic", Prompt{Synthetic: true, Agent: "build",
					Text: fmt.Sprintf("The user has approved the plan %s; carry it out.", plan)})
				return err
			})
			return ToolOutput{Title: "Plan approved", Text: "The session goes on as agent build.", Metadata: map[string]any{}}, err
		}}
}

// planDir is where plans are in a workspace under version control.
const planDir = ".opencode/plans"

// planDir returns the folder of plans: outside version control it is the one in Options.DataDir, if
// that is set.
func (h *Host) planDir() string {
	if h.opts.DataDir == "" || h.opts.Directory == "" || h.underGit() {
		return planDir
	}
	return filepath.Join(h.opts.DataDir, "plans")
}

// planFile is where the plan of a session is: named by when the session was made, and by its slug.
func (h *Host) planFile(s *Session) string {
	return path.Join(filepath.ToSlash(h.planDir()), fmt.Sprintf("%d-%s.md", s.Created, s.Slug))
}

// underGit reports whether the workspace is one of git.
func (h *Host) underGit() bool {
	_, err := os.Stat(filepath.Join(h.opts.Directory, ".git"))
	return h.opts.Directory != "" && err == nil
}

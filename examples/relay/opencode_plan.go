package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/examples/relay/survey"
	"github.com/teamchan/team/opencode"
)

// errTurn: the model could not do it. Anything else that goes wrong is the server's or ours, and
// may be gone at the next start.
var errTurn = errors.New("the turn failed")

// ask lets a role's session work on a prompt and returns what its model answers. What an earlier
// start asked goes on at the host without us: its answer is taken when it is there, and only
// where the turn was stopped or has failed is it asked again.
func (r *liveRelay) ask(ctx context.Context, role team.Role, prompt string) (string, error) {
	id, asked := r.journal.sessionOf(role), 0
	if r.journal.resumed {
		if err := r.idle(ctx, id); err != nil {
			return "", err
		}
		all, err := r.host.Messages(ctx, id, 0)
		if err != nil {
			return "", err
		}
		var answer string
		if answer, asked = answered(all, prompt); answer != "" {
			return answer + "\n", nil
		}
	}
	if role != roleLead {
		if err := r.called(ctx, role, strconv.Itoa(asked+1)); err != nil {
			return "", err
		}
	}
	m, err := r.host.Prompt(ctx, id, opencode.Prompt{Text: prompt, Wait: true})
	switch {
	case err != nil:
		return "", err
	case m.Error != "":
		return "", fmt.Errorf("%w: %s", errTurn, m.Error)
	case strings.TrimSpace(m.Text()) == "":
		return "", fmt.Errorf("%w: the model answered nothing", errTurn)
	}
	return strings.TrimSpace(m.Text()) + "\n", nil
}

// idle waits until a session does nothing.
func (r *liveRelay) idle(ctx context.Context, id team.SessionID) error {
	for {
		seen, err := r.host.Inspect(ctx, id)
		if err != nil || seen.Activity != team.ActivityRunning {
			return err
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// plan lets the lead's model sum up, and accounts for what it had to read.
func (r *liveRelay) plan(ctx context.Context, doc *document) error {
	entry, _, err := r.written(ctx)
	if err != nil {
		return err
	}
	if entry.Path == "" {
		answer, err := r.ask(ctx, roleLead, r.summing())
		if err != nil {
			if errors.Is(err, errTurn) {
				err = fmt.Errorf("%w: %w", errUnsettled, err)
			}
			return fmt.Errorf("the lead: %w", err)
		}
		entry, err = r.board.Write(ctx, team.Draft{Session: r.session, Task: taskName, Topic: "plan", Body: answer})
		if err != nil {
			return err
		}
		r.log.entry(entry, headline(answer))
	}
	text, err := r.board.ReadRef(ctx, entry.Ref(), team.Range{})
	if err != nil {
		return err
	}
	doc.Plan, doc.LeadSession = entry.Path, r.journal.sessionOf(roleLead)
	for i, f := range survey.FindingsOf(text.Text) {
		if i < survey.MostTasks {
			doc.Tasks = append(doc.Tasks, survey.Task{Finding: f, From: []string{string(roleLead)}, Paths: []string{entry.Path}})
		}
	}
	return r.tally(ctx, doc)
}

// tally is the account of what really stands in the lead's session: the signals, and what its
// tools brought. With the bodies inline each signal would have its entry in it. If the lead's
// model kept to no form, what the specialists found is what to do.
func (r *liveRelay) tally(ctx context.Context, doc *document) error {
	messages, err := r.host.Messages(ctx, r.journal.sessionOf(roleLead), 0)
	if err != nil {
		return err
	}
	a := &doc.Account
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
	done := r.journal.settled()
	var reports []survey.Report
	for _, s := range slices.Concat(steps...) {
		ref := done[s.role].Refs[0]
		text, err := r.board.ReadRef(ctx, ref, team.Range{})
		if err != nil {
			return fmt.Errorf("the entry of the %s, %s: %w", s.role, filepath.Base(ref.Path), err)
		}
		a.Inline += team.EstimateTokens(text.Text)
		reports = append(reports, survey.Report{
			Role: string(s.role), Summary: done[s.role].Summary, Path: ref.Path, Findings: survey.FindingsOf(text.Text),
		})
	}
	if len(doc.Tasks) == 0 {
		doc.Tasks = append(doc.Tasks, survey.Next(reports)...)
	}
	a.sum()
	return nil
}

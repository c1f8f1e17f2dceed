package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/teamchan/team"
	"github.com/teamchan/team/examples/relay/survey"
)

// An outcome is what the lead has at the end.
type outcome struct {
	tasks    []survey.Task
	plan     team.Entry
	seen     []team.Signal // what it received
	excerpts []string      // what it read from the board
	endings  []ending
}

// lead hands over from step to step, then writes the plan. It never has the
// bodies in its context: it reads the beginnings, where the findings are.
func (r *relay) lead(ctx context.Context) (out outcome, err error) {
	done := r.journal.settled()
	join, err := r.openJoin(ctx, done)
	if err != nil {
		return out, err
	}
	for _, step := range steps {
		var open []team.SessionID
		for _, s := range step {
			if _, ok := done[s.role]; ok {
				continue
			}
			open = append(open, sessionOf(r.session, s.role))
			handoff := team.Signal{Kind: team.KindHandoff, Summary: s.ask, Key: "handoff"}
			for _, role := range s.reads {
				handoff.Refs = append(handoff.Refs, done[role].Refs[0]) // the entry
			}
			if _, err := r.signals.Send(ctx, string(s.role), handoff); err != nil {
				return out, err
			}
			if err := r.register(ctx, join, s.role); err != nil {
				return out, err
			}
		}
		if len(open) == 0 {
			continue
		}
		if err := r.wait(ctx, join, open, done); err != nil {
			return out, err
		}
	}
	if out.endings, err = endings(ctx, join); err != nil {
		return out, err
	}

	var reports []survey.Report
	for _, s := range slices.Concat(steps...) {
		answer := done[s.role]
		head, err := r.board.ReadRef(ctx, answer.Refs[0], team.Range{Lines: survey.HeadLines})
		if err != nil {
			return out, err
		}
		out.seen = append(out.seen, answer)
		out.excerpts = append(out.excerpts, head.Text)
		reports = append(reports, survey.Report{
			Role: string(s.role), Summary: answer.Summary, Path: answer.Refs[0].Path, Findings: survey.FindingsOf(head.Text),
		})
	}
	out.tasks = survey.Next(reports)
	if out.plan, _, err = r.written(ctx); err == nil && out.plan.Path == "" {
		out.plan, err = r.write(ctx, survey.Plan(reports, out.tasks, r.log.relative))
	}
	return out, err
}

// await takes the next answer from the lead's inbox, and into the journal.
func (r *relay) await(ctx context.Context) (team.Signal, error) {
	ctx, stop := context.WithTimeoutCause(ctx, r.patience, fmt.Errorf("no answer within %s", r.patience))
	defer stop()
	got, err := r.signals.Receive(ctx, nil)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx) // it says why, in our words
		}
		return team.Signal{}, err
	}
	answer := got[0].Signal
	r.log.signal(answer)
	if answer.Kind != team.KindSettled || len(answer.Refs) == 0 {
		return answer, fmt.Errorf("the %s %w: %s", answer.From.Role, errUnsettled, answer.Summary)
	}
	if err := r.journal.settle(ctx, answer); err != nil {
		return answer, err
	}
	err = r.signals.Ack(ctx, got...)
	if errors.Is(err, team.ErrConflict) {
		err = nil // its lease has ended: it comes again, and is known then
	}
	return answer, err
}

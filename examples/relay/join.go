package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/teamchan/team"
)

// openJoin opens the lead's account of which specialists have settled. With sessions on a host the
// lead would feed it the host's events too; functions send nothing but signals. An earlier start of
// the run may have been killed between its journal and the account, so that is told again.
func (r *relay) openJoin(ctx context.Context, done map[team.Role]team.Signal) (*team.Join, error) {
	join, err := team.OpenJoin(ctx, r.journal.store, "", nil) // the parent is the caller: the lead
	if err != nil {
		return nil, err
	}
	for _, s := range slices.Concat(steps...) {
		answer, ok := done[s.role]
		if !ok {
			continue
		}
		err := r.register(ctx, join, s.role)
		if err == nil {
			_, err = join.ObserveSignal(ctx, answer)
		}
		if err != nil {
			return nil, err
		}
	}
	return join, nil
}

// register makes a specialist a child of the lead. The id stands for the host's of the call that
// gave it work: here each is called once.
func (r *relay) register(ctx context.Context, join *team.Join, role team.Role) error {
	_, err := join.Register(ctx, team.Dispatch{Session: sessionOf(r.session, role), Agent: string(role), Call: "handoff"})
	return err
}

// wait waits until the specialists of one step have settled, and puts their answers into done.
// The account says when: the lead's inbox is one source of it, to which somebody listens meanwhile.
func (r *relay) wait(ctx context.Context, join *team.Join, step []team.SessionID, done map[team.Role]team.Signal) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for open := len(step); open > 0; {
			answer, err := r.await(ctx)
			if err == nil {
				_, err = join.ObserveSignal(ctx, answer)
			}
			if err != nil {
				stop(err)
				return
			}
			if _, ok := done[answer.From.Role]; !ok {
				done[answer.From.Role] = answer
				open--
			}
		}
	}()
	for settled := false; !settled; {
		waited, err := join.Wait(ctx, &team.WaitOptions{Children: step})
		if err != nil {
			stop(err) // the first cause stays
			<-heard
			return context.Cause(ctx)
		}
		settled = waited.End == team.WaitSettled // a deadline is no end: how long to be patient is up to await
	}
	<-heard
	return nil
}

// An ending is how the lead knows that a specialist has settled.
type ending struct {
	Role     string          `json:"role"`
	State    team.ChildState `json:"state"`
	Presumed bool            `json:"presumed"` // nobody but the specialist itself says so
	Source   team.JoinSource `json:"source"`
	What     string          `json:"what"` // the kind of the signal, or the type of the event
	At       time.Time       `json:"at"`
}

// endings is the account of all specialists, in the order in which they were called.
func endings(ctx context.Context, join *team.Join) ([]ending, error) {
	children, err := join.Children(ctx, nil)
	var out []ending
	for _, c := range children {
		out = append(out, ending{c.Agent, c.State, c.Presumed, c.By.Source, c.By.What, c.Ended})
	}
	return out, err
}

func (p *console) endings(list []ending) {
	p.printf("\n%s\n\n", p.paint(bold, "How it is known that they have settled"))
	for _, e := range list {
		state := string(e.State)
		if e.Presumed {
			state += ", presumed"
		}
		p.printf("  %-11s  %-20s  by %s\n", e.Role, state, p.paint(dim, fmt.Sprintf("%s %q", e.Source, e.What)))
	}
}

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/examples/relay/survey"
)

const (
	roleLead        team.Role = "lead"
	roleArchitect   team.Role = "architect"
	roleResearcher  team.Role = "researcher"
	roleImplementer team.Role = "implementer"
	roleReviewer    team.Role = "reviewer"
	roleTester      team.Role = "tester"
)

// taskName is the folder of the entries in that of the run.
const taskName = "survey"

// A specialist turns the facts of the workspace, and what colleagues wrote
// before, into a deliverable. Here it is a function; it could as well be a
// session with a model.
type specialist struct {
	role  team.Role
	ask   string      // what the lead asks for, in one line
	reads []team.Role // whose deliverables it needs
	work  func(*survey.Tree, survey.Brief) survey.Deliverable
	// A chatty specialist repeats its whole deliverable in its reply, as models do
	// though they were asked not to.
	chatty bool
}

// steps is the plan of the relay. The specialists of one step work at the same
// time; the next step begins when all of them have settled.
var steps = [][]specialist{
	{
		{roleArchitect, "map the packages and who imports whom", nil, survey.Architect, false},
		{roleResearcher, "look round the code: papers, dependencies, notes to do", nil, survey.Researcher, true},
	},
	{{roleImplementer, "list what each package offers, and what has no comment", []team.Role{roleArchitect}, survey.Implementer, false}},
	{{roleReviewer, "find what is hard to change safely", []team.Role{roleArchitect, roleImplementer}, survey.Reviewer, false}},
	{{roleTester, "find what no test names, the heavy functions first", []team.Role{roleArchitect, roleReviewer}, survey.Tester, false}},
}

// A relay is one run: a board for what is long, a signal channel for what is
// short, an offload folder for what should have been short, and the workspace that
// all of it is about.
//
// A run may be killed at any point, and another process carries on with it. For
// that, each step leaves its result before it ends what caused it: an entry is
// on the board before its signal is sent, a signal is sent before the handoff
// is acked, an answer is in the journal before it is acked. Whatever comes twice
// because of that is recognised, and done once.
type relay struct {
	board   *team.Board
	signals *team.SignalChannel
	offload *team.Offload // the signals spill into it
	session string        // of this run on the board; see team.NewSessionKey
	journal *journal
	tree    *survey.Tree
	log     *timeline

	patience time.Duration // how long the lead waits for an answer
}

// as returns a context in which calls are made by the given role. A program
// that runs real agents sets this where a tool call comes in: no agent can
// write in the name of another one.
func (r *relay) as(ctx context.Context, role team.Role) context.Context {
	return team.WithCaller(ctx, team.Caller{Session: r.journal.sessionOf(role), Role: role})
}

// sessionOf names an agent's session. Each run has its own, so that the inboxes
// of two runs in one store are different ones.
func sessionOf(run string, role team.Role) team.SessionID {
	return team.SessionID(run + "/" + string(role))
}

// run enrols the team, starts the specialists that have not settled yet, and
// lets the lead lead.
func (r *relay) run(ctx context.Context) (outcome, error) {
	lead := sessionOf(r.session, roleLead)
	if err := r.signals.Enrol(ctx, team.Member{Session: lead, Role: roleLead}); err != nil {
		return outcome{}, err
	}
	settled := r.journal.settled()
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for _, step := range steps {
		for _, s := range step {
			m := team.Member{Session: sessionOf(r.session, s.role), Role: s.role, Parent: lead}
			if err := r.signals.Enrol(ctx, m); err != nil {
				return outcome{}, err
			}
			if _, ok := settled[s.role]; !ok {
				wg.Go(func() { r.serve(r.as(ctx, s.role), s) })
			}
		}
	}
	return r.lead(r.as(ctx, roleLead))
}

// serve is a specialist's life: it waits for one handoff, works on it, and
// tells the lead how that ended.
func (r *relay) serve(ctx context.Context, s specialist) {
	got, err := r.signals.Receive(ctx, nil)
	if err != nil {
		return // the run is over; nobody waits for an answer
	}
	handoff := got[0]
	r.log.signal(handoff.Signal)

	answer, err := r.deliver(ctx, s, handoff.Refs)
	if errors.Is(err, errTaken) {
		return // another process has the run, and gets the handoff
	} else if err != nil {
		answer = team.Signal{Kind: team.KindUnsettled, Summary: survey.Cut(survey.OneLine(err.Error()), 160)}
	}
	answer.ReplyTo = handoff.ID
	_, err = r.signals.Send(ctx, string(handoff.From.Session), answer)
	// The lead may end the run as soon as it has the last answer; what becomes of
	// the handoff still counts. If that fails too, the handoff is handed out again
	// after its lease.
	ctx = context.WithoutCancel(ctx)
	if err != nil {
		_ = r.signals.Release(ctx, 0, got...) // for whoever carries on
		return
	}
	_ = r.signals.Ack(ctx, got...)
}

// deliver reads what colleagues wrote, does the work and puts it on the board.
// What goes back to the lead is one line and a reference. With the key it
// arrives once, even if it was sent before the process was killed.
func (r *relay) deliver(ctx context.Context, s specialist, refs []team.Ref) (team.Signal, error) {
	answer := team.Signal{Kind: team.KindSettled, Key: "answer"}
	entry, summary, err := r.written(ctx)
	if err == nil && entry.Path == "" {
		entry, summary, err = r.carryOut(ctx, s, refs)
	}
	if err != nil {
		return team.Signal{}, err
	}
	answer.Summary, answer.Refs = summary, []team.Ref{entry.Ref()}
	if s.chatty {
		// The channel puts what is over its cap into a file, and a reference into
		// the signal: the lead sees that, whatever a specialist sends.
		whole, err := r.board.ReadRef(ctx, entry.Ref(), team.Range{})
		if err != nil {
			return team.Signal{}, err
		}
		answer.Body = whole.Text
	}
	return answer, nil
}

// carryOut is the work itself.
func (r *relay) carryOut(ctx context.Context, s specialist, refs []team.Ref) (team.Entry, string, error) {
	in := survey.Brief{}
	for _, ref := range refs {
		text, err := r.board.ReadRef(ctx, ref, team.Range{})
		if err != nil {
			return team.Entry{}, "", err
		}
		in[string(text.Entry.Role)] = text.Text
	}
	work := s.work(r.tree, in)
	entry, err := r.write(ctx, work)
	return entry, work.Summary, err
}

// write puts a deliverable on the board. Who wrote it is in ctx.
func (r *relay) write(ctx context.Context, d survey.Deliverable) (team.Entry, error) {
	if err := r.journal.renew(ctx); err != nil {
		return team.Entry{}, err // the run may be somebody else's by now
	}
	entry, err := r.board.Write(ctx, team.Draft{
		Session: r.session, Task: taskName, Topic: d.Topic, Body: d.Markdown(r.tree),
	})
	if err == nil {
		r.log.entry(entry, d.Summary)
	}
	return entry, err
}

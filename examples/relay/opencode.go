package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/examples/relay/survey"
	"github.com/teamchan/team/opencode"
)

// A liveRelay is the relay with sessions of a running OpenCode in place of functions: one for
// the lead, and a child of it for each specialist. The program hands over between them.
// What a specialist answers goes to the board, and the signal that says so goes into the
// lead's session, where its model sees it. The sessions are noted in the journal, so that the
// next start finds them, and in them what was asked and answered.
type liveRelay struct {
	*relay
	host      *opencode.Host
	ledger    *team.Ledger // who has settled
	join      *team.Join
	workspace string
}

// carryOutLive is carryOut for real sessions.
func carryOutLive(ctx context.Context, g ground, server string, fresh bool, out *console) error {
	host, err := opencode.Dial(ctx, server, &opencode.Options{
		Username: os.Getenv("OPENCODE_SERVER_USERNAME"), Password: os.Getenv("OPENCODE_SERVER_PASSWORD"), Directory: g.workspace,
	})
	if err != nil {
		return stopped(ctx, err)
	}
	server = withoutPassword(server)
	if generation := host.Info().Generation; generation != opencode.V1 {
		return fmt.Errorf("%s answers as OpenCode %s (%s): this program waits for answers as the first API of 1.18 gives them",
			server, generation, host.Info().Version)
	}
	return runOn(ctx, g, server, fresh, out, func(ctx context.Context, r *relay, doc *document) error {
		scope := team.Scope{Project: g.workspace, Session: team.SessionID(r.session)}
		ledger, err := team.OpenLedger(ctx, g.store, scope, &team.LedgerOptions{Trace: g.trace})
		if err != nil {
			return err
		}
		out.printf("host       OpenCode %s at %s\n", survey.OneLine(host.Info().Version), shown(server))
		out.printf("board      %s\n\n", shown(r.log.base))
		live := &liveRelay{relay: r, host: host, ledger: ledger, workspace: g.workspace}
		err = live.lead(ctx, doc)
		if err != nil && !errors.Is(err, errTaken) && !errors.Is(context.Cause(ctx), errTaken) {
			live.interrupt(ctx) // else the sessions are another process's
		}
		return err
	})
}

// withoutPassword is a URL that may be shown and kept.
func withoutPassword(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server // Dial has taken it, so this cannot be
	}
	u.User = nil
	return strings.TrimRight(u.String(), "/")
}

// lead goes through the steps and lets the lead's model write the plan.
func (r *liveRelay) lead(ctx context.Context, doc *document) error {
	ctx, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	for _, role := range roles() {
		if err := r.enrol(ctx, role); err != nil {
			return err
		}
		id := r.journal.sessionOf(role)
		background.Go(func() {
			// Who sent a signal waits for it, and tells the error.
			_ = r.signals.Relay(ctx, r.host, id, &team.RelayOptions{Lease: lease})
		})
	}
	lead := r.as(ctx, roleLead)
	var err error
	if r.join, err = team.OpenJoin(lead, r.journal.store, "", &team.JoinOptions{Sessions: r.host}); err != nil {
		return err
	}
	background.Go(func() { _ = r.join.Follow(ctx, r.host, nil) })

	for _, step := range steps {
		if err := r.step(ctx, step); err != nil {
			return err
		}
	}
	if doc.Endings, err = endings(lead, r.join); err != nil {
		return err
	}
	for _, role := range roles()[1:] {
		if _, err := r.ledger.Get(lead, ledgerKey(role)); err != nil {
			return fmt.Errorf("the ledger knows nothing of the %s: %w", role, err)
		}
	}
	return r.plan(lead, doc)
}

// enrol makes sure that a role has a session, and that the roster knows it.
func (r *liveRelay) enrol(ctx context.Context, role team.Role) error {
	parent := r.journal.sessionOf(roleLead)
	if role == roleLead {
		parent = ""
	}
	id := r.journal.sessionOf(role)
	if id != "" {
		if _, err := r.host.Session(ctx, id); errors.Is(err, team.ErrNotFound) {
			return fmt.Errorf("the session of the %s %w", role, errLost)
		} else if err != nil {
			return err
		}
	} else {
		s, err := r.create(ctx, role, parent)
		if err == nil {
			err = r.journal.keep(ctx, role, s.ID)
		}
		if err != nil {
			return err
		}
		id = s.ID
	}
	return r.signals.Enrol(ctx, team.Member{Session: id, Role: role, Parent: parent})
}

// create makes a session for a role. An earlier start may have made one of the lead's children
// and had no time to note it: that one is taken.
func (r *liveRelay) create(ctx context.Context, role team.Role, parent team.SessionID) (team.Session, error) {
	title := "relay: " + string(role)
	if parent != "" && r.journal.resumed {
		children, err := r.host.Children(ctx, parent)
		if err != nil {
			return team.Session{}, err
		}
		for _, s := range children {
			if s.Title == title {
				return s, nil
			}
		}
	}
	rules, err := json.Marshal(r.rules())
	if err != nil {
		return team.Session{}, err
	}
	return r.host.Create(ctx, opencode.NewSession{Parent: parent, Title: title, Permissions: rules})
}

// step lets the specialists of a step work at the same time, and waits for all of them.
func (r *liveRelay) step(ctx context.Context, step []specialist) error {
	done := r.journal.settled()
	failed := make(chan error, len(step))
	for _, s := range step {
		go func() {
			answer, settled := done[s.role]
			var err error
			if !settled {
				answer, err = r.specialist(ctx, s, done)
			}
			if err == nil {
				err = r.settled(ctx, s.role, answer)
			}
			if errors.Is(err, errTurn) {
				err = fmt.Errorf("the %s %w: %w", s.role, errUnsettled, err)
			}
			failed <- err
		}()
	}
	var err error
	for range step {
		err = errors.Join(err, <-failed)
	}
	return err
}

func ledgerKey(role team.Role) string { return taskName + "/" + string(role) }

// specialist hands over to one, and takes its answer to the board and its signal to the lead.
// Each call that an earlier start made already changes nothing.
func (r *liveRelay) specialist(ctx context.Context, s specialist, done map[team.Role]team.Signal) (team.Signal, error) {
	lead, me := r.as(ctx, roleLead), r.as(ctx, s.role)
	handoff := team.Signal{Kind: team.KindHandoff, Summary: s.ask, Key: "handoff/" + string(s.role)}
	for _, role := range s.reads {
		handoff.Refs = append(handoff.Refs, done[role].Refs[0]) // the entry
	}
	sent, err := r.signals.Send(lead, string(s.role), handoff)
	if err == nil {
		err = r.delivered(lead, sent)
	}
	if err != nil {
		return team.Signal{}, err
	}
	r.announce(roleLead, s.role, handoff)

	answer, err := r.ask(me, s.role, r.task(s))
	if err != nil {
		if !errors.Is(err, errTurn) {
			return team.Signal{}, err // we were stopped, or the server was: the next start asks again
		}
		_, said := r.signals.Send(me, string(roleLead), team.Signal{
			Kind: team.KindUnsettled, ReplyTo: sent.ID, Summary: survey.Cut(survey.OneLine(err.Error()), 160), Key: "answer",
		})
		return team.Signal{}, errors.Join(err, said)
	}
	signal := team.Signal{Kind: team.KindSettled, ReplyTo: sent.ID, Summary: headline(answer), Key: "answer"}
	handed, err := r.signals.HandOff(me, r.board, team.Handoff{
		To: string(roleLead), Draft: team.Draft{Session: r.session, Task: taskName, Topic: string(s.role), Body: answer}, Signal: signal,
		Ledger: r.ledger, Edits: []team.Edit{{Key: ledgerKey(s.role), Value: json.RawMessage(`"settled"`)}},
	})
	if err != nil {
		return team.Signal{}, err
	}
	r.log.entry(handed.Entry, signal.Summary)
	if err := r.delivered(me, handed.Sent); err != nil {
		return team.Signal{}, err
	}
	signal.ID, signal.From, signal.To = handed.Sent.ID, team.Caller{Session: r.journal.sessionOf(s.role), Role: s.role}, handed.Sent.To
	signal.Refs = []team.Ref{handed.Entry.Ref()}
	r.announce(s.role, roleLead, signal)
	return signal, r.journal.settle(ctx, signal)
}

// settled passes a specialist's signal on to the account of the endings. One of an earlier
// start is told again, which is harmless.
func (r *liveRelay) settled(ctx context.Context, role team.Role, answer team.Signal) error {
	if r.join.Known(answer.From.Session) {
		_, err := r.join.ObserveSignal(ctx, answer)
		return err
	}
	err := r.called(ctx, role, "1")
	if err == nil {
		_, err = r.join.ObserveSignal(ctx, answer)
	}
	return err
}

// called notes that a specialist has been given work, for the first time or again.
func (r *liveRelay) called(ctx context.Context, role team.Role, call string) error {
	_, err := r.join.Register(ctx, team.Dispatch{Session: r.journal.sessionOf(role), Agent: string(role), Call: call, Background: true})
	return err
}

// delivered waits until the host has answered that it holds a signal: on 1.18, which has no
// inbox, it stands in the conversation then.
func (r *liveRelay) delivered(ctx context.Context, sent team.Sent) error {
	for {
		st, err := r.signals.Status(ctx, sent)
		switch {
		case err != nil:
			return err
		case st.State == team.SignalOffered || st.State == team.SignalDelivered || st.State == team.SignalAcked: // acked by an answer to it
			return nil
		case st.State == team.SignalDead || st.State == team.SignalCancelled || st.State == team.SignalExpired:
			return fmt.Errorf("the host took no signal: it is %s, %s", st.State, st.Evidence)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *liveRelay) announce(from, to team.Role, s team.Signal) {
	e := event{From: from, To: string(to), Kind: string(s.Kind), Summary: s.Summary}
	for _, ref := range s.Refs {
		e.Refs = append(e.Refs, ref.Path)
	}
	r.log.add(e)
}

// interrupt stops what still runs on the server when the run is stopped.
func (r *liveRelay) interrupt(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	var all sync.WaitGroup
	for _, role := range roles() {
		if id := r.journal.sessionOf(role); id != "" {
			all.Go(func() { _, _ = r.host.Interrupt(ctx, id) }) // an idle one has nothing to stop
		}
	}
	all.Wait()
}

// headline is the line of a deliverable that goes into the signal: the first behind the title.
func headline(text string) string {
	title := ""
	for line := range strings.Lines(text) {
		line = survey.OneLine(line)
		switch {
		case line == "" || strings.HasPrefix(line, "```"):
		case strings.HasPrefix(line, "#"):
			title = cmp.Or(title, strings.TrimSpace(strings.TrimLeft(line, "#")))
		default:
			return survey.Cut(line, 160)
		}
	}
	return survey.Cut(cmp.Or(title, "no summary"), 160)
}

// answered returns the answer to a prompt among the messages of a session, and how often the
// prompt stands there. An answer is none if its turn was stopped or has failed.
func answered(all []opencode.Message, prompt string) (answer string, asked int) {
	for _, m := range all {
		switch {
		case slices.ContainsFunc(m.Parts, func(p opencode.Part) bool { return p.Type == "text" && !p.Synthetic && p.Text == prompt }):
			asked++
			answer = ""
		case m.Type == "assistant" && asked > 0:
			answer = ""
			if !m.Ended.IsZero() && m.Error == "" {
				answer = strings.TrimSpace(m.Text())
			}
		}
	}
	return answer, asked
}

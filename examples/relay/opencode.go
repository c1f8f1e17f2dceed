package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/opencode"
)

// A liveRelay is the relay with sessions of a running OpenCode in place of functions: one for
// the lead, and a child of it for each specialist. The program hands over between them.
// What a specialist answers goes to the board, and the signal that says so goes into the
// lead's session, where its model sees it. Unlike the relay of functions, a run that was
// stopped is not carried on with.
type liveRelay struct {
	host      *opencode.Host
	board     *team.Board
	signals   *team.SignalChannel
	ledger    *team.Ledger // who has settled
	workspace string
	run       string // the folder on the board
	log       *timeline
	sessions  map[team.Role]team.SessionID
}

// carryOutLive is carryOut for real sessions.
func carryOutLive(ctx context.Context, workspace, url string, board *team.Board, store team.Store,
	trace func(context.Context, team.TraceEvent), out *console,
) error {
	host, err := opencode.Dial(ctx, url, &opencode.Options{
		Username: os.Getenv("OPENCODE_SERVER_USERNAME"), Password: os.Getenv("OPENCODE_SERVER_PASSWORD"), Directory: workspace,
	})
	if err != nil {
		return stopped(ctx, err)
	}
	if g := host.Info().Generation; g != opencode.V1 {
		return fmt.Errorf("%s answers as OpenCode %s (%s): this program waits for answers as the first API of 1.18 gives them", url, g, host.Info().Version)
	}
	run := team.NewSessionKey()
	signals, err := team.OpenSignals(ctx, store, &team.SignalOptions{Epoch: run, Trace: trace})
	if err != nil {
		return stopped(ctx, err)
	}
	ledger, err := team.OpenLedger(ctx, store, team.Scope{Project: workspace, Session: team.SessionID(run)}, &team.LedgerOptions{Trace: trace})
	if err != nil {
		return stopped(ctx, err)
	}
	r := &liveRelay{host: host, board: board, signals: signals, ledger: ledger, workspace: workspace, run: run,
		sessions: make(map[team.Role]team.SessionID)}
	r.log = &timeline{started: time.Now(), base: filepath.Join(board.Dir(), run)}
	r.log.show = func(e event) { out.event(e, r.log.relative) }

	out.printf("workspace  %s\n", shown(workspace))
	out.printf("host       OpenCode %s at %s\n", oneLine(host.Info().Version), shown(url))
	out.printf("board      %s\n\n", shown(r.log.base))
	doc := document{Workspace: workspace, Board: board.Dir(), Session: run, Started: r.log.started.UTC(), Scan: scanFacts{Gaps: []string{}}}
	if err := r.lead(ctx, &doc); err != nil {
		r.interrupt(ctx)
		return stopped(ctx, err)
	}
	doc.ElapsedMS = float64(time.Since(r.log.started).Microseconds()) / 1e3
	doc.Events = append([]event{}, r.log.events...)
	out.tail(doc, r.log.relative)
	out.printf("\n  The lead's session on the server: %s\n", shown(string(r.sessions[roleLead])))
	return out.err
}

// open makes a session for a role and moves the signals of its inbox into it, until ctx ends.
func (r *liveRelay) open(ctx context.Context, role team.Role, relays *sync.WaitGroup) error {
	rules, err := json.Marshal(r.rules())
	if err != nil {
		return err
	}
	parent := r.sessions[roleLead] // the lead's own has none
	s, err := r.host.Create(ctx, opencode.NewSession{Parent: parent, Title: "relay: " + string(role), Permissions: rules})
	if err != nil {
		return err
	}
	r.sessions[role] = s.ID
	if err := r.signals.Enrol(ctx, team.Member{Session: s.ID, Role: role, Parent: parent}); err != nil {
		return err
	}
	relays.Go(func() {
		_ = r.signals.Relay(ctx, r.host, s.ID, nil) // who sent a signal waits for it, and tells the error
	})
	return nil
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

func (r *liveRelay) as(ctx context.Context, role team.Role) context.Context {
	return team.WithCaller(ctx, team.Caller{Session: r.sessions[role], Role: role})
}

// lead goes through the steps and lets the lead's model write the plan.
func (r *liveRelay) lead(ctx context.Context, doc *document) error {
	ctx, stop := context.WithCancel(ctx)
	var relays sync.WaitGroup
	defer relays.Wait()
	defer stop()
	if err := r.open(ctx, roleLead, &relays); err != nil {
		return err
	}
	all := slices.Concat(steps...)
	for _, s := range all {
		if err := r.open(ctx, s.role, &relays); err != nil {
			return err
		}
	}
	done := make(map[team.Role]report)
	entries := make(map[team.Role]team.Entry)
	for _, step := range steps {
		type result struct {
			role  team.Role
			entry team.Entry
			rep   report
			err   error
		}
		results := make(chan result, len(step))
		for _, s := range step {
			refs := make([]team.Ref, 0, len(s.reads))
			for _, role := range s.reads {
				refs = append(refs, entries[role].Ref())
			}
			go func() {
				entry, rep, err := r.specialist(ctx, s, refs)
				results <- result{s.role, entry, rep, err}
			}()
		}
		var failed error
		for range step {
			got := <-results
			if got.err != nil {
				failed = errors.Join(failed, fmt.Errorf("the %s %w: %w", got.role, errUnsettled, got.err))
			}
			done[got.role], entries[got.role] = got.rep, got.entry
		}
		if failed != nil {
			return failed
		}
	}
	for _, s := range all {
		if _, err := r.ledger.Get(r.as(ctx, roleLead), ledgerKey(s.role)); err != nil {
			return fmt.Errorf("the ledger knows nothing of the %s: %w", s.role, err)
		}
	}
	reports := make([]report, 0, len(all))
	for _, s := range all {
		reports = append(reports, done[s.role])
	}
	return r.plan(ctx, reports, entries, doc)
}

func ledgerKey(role team.Role) string { return taskName + "/" + string(role) }

// specialist hands over to one, and takes its answer to the board and its signal to the lead.
func (r *liveRelay) specialist(ctx context.Context, s specialist, refs []team.Ref) (team.Entry, report, error) {
	handoff := team.Signal{Kind: team.KindHandoff, Summary: s.ask, Refs: refs, Key: "handoff/" + string(s.role)}
	sent, err := r.signals.Send(r.as(ctx, roleLead), string(s.role), handoff)
	if err != nil {
		return team.Entry{}, report{}, err
	}
	if err := r.delivered(r.as(ctx, roleLead), sent); err != nil {
		return team.Entry{}, report{}, err
	}
	r.announce(roleLead, s.role, handoff)

	answer, err := r.ask(ctx, s.role, r.task(s))
	me := r.as(ctx, s.role)
	if err != nil {
		_, said := r.signals.Send(me, string(roleLead), team.Signal{
			Kind: team.KindUnsettled, ReplyTo: sent.ID, Summary: cut(oneLine(err.Error()), 160), Key: "answer",
		})
		return team.Entry{}, report{}, errors.Join(err, said)
	}
	signal := team.Signal{Kind: team.KindSettled, ReplyTo: sent.ID, Summary: headline(answer), Key: "answer"}
	handed, err := r.signals.HandOff(me, r.board, team.Handoff{
		To: string(roleLead), Draft: team.Draft{Session: r.run, Task: taskName, Topic: string(s.role), Body: answer}, Signal: signal,
		Ledger: r.ledger, Edits: []team.Edit{{Key: ledgerKey(s.role), Value: json.RawMessage(`"settled"`)}},
	})
	if err != nil {
		return team.Entry{}, report{}, err
	}
	r.log.entry(handed.Entry, signal.Summary)
	if err := r.delivered(me, handed.Sent); err != nil {
		return team.Entry{}, report{}, err
	}
	signal.Refs = []team.Ref{handed.Entry.Ref()}
	r.announce(s.role, roleLead, signal)
	return handed.Entry, report{s.role, signal.Summary, handed.Entry.Path, findingsOf(answer)}, nil
}

// ask lets a role's session work on a prompt and returns what its model answers.
func (r *liveRelay) ask(ctx context.Context, role team.Role, prompt string) (string, error) {
	m, err := r.host.Prompt(ctx, r.sessions[role], opencode.Prompt{Text: prompt, Wait: true})
	switch {
	case err != nil:
		return "", err
	case m.Error != "":
		return "", fmt.Errorf("the turn failed: %s", m.Error)
	case strings.TrimSpace(m.Text()) == "":
		return "", errors.New("the model answered nothing")
	}
	return strings.TrimSpace(m.Text()) + "\n", nil
}

// delivered waits until the host has a signal in its conversation.
func (r *liveRelay) delivered(ctx context.Context, sent team.Sent) error {
	for {
		st, err := r.signals.Status(ctx, sent)
		switch {
		case err != nil:
			return err
		case st.State == team.SignalDelivered:
			return nil
		case st.State == team.SignalDead || st.State == team.SignalCancelled:
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

// interrupt stops what still runs on the server when the run is given up.
func (r *liveRelay) interrupt(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, id := range r.sessions {
		_, _ = r.host.Interrupt(ctx, id) // an idle one has nothing to stop
	}
}

// headline is the line of a deliverable that goes into the signal: the first behind the title.
func headline(text string) string {
	title := ""
	for line := range strings.Lines(text) {
		line = oneLine(line)
		switch {
		case line == "" || strings.HasPrefix(line, "```"):
		case strings.HasPrefix(line, "#"):
			title = cmp.Or(title, strings.TrimSpace(strings.TrimLeft(line, "#")))
		default:
			return cut(line, 160)
		}
	}
	return cut(cmp.Or(title, "no summary"), 160)
}

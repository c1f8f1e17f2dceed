// Command handoff is the smallest team that uses every channel: a lead sends one child to work, the child hands its
// deliverable over and answers far too long, and the lead waits, reads the signal, and reads of the deliverable
// what it needs. The agents are functions on a fakehost, so it runs without a model; opencode.Dial has the same ports.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
	"github.com/teamchan/team/sqlitestore"
)

func main() {
	workspace, err := os.MkdirTemp("", "handoff") // a real program: the folder that the agents work in
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Stdout, workspace)
	os.RemoveAll(workspace)
	if err != nil {
		log.Fatal(err)
	}
}

// A crew has the channels that all sessions share.
type crew struct {
	store   *sqlitestore.Store
	trail   *team.Trail
	board   *team.Board
	offload *team.Offload
	signals *team.SignalChannel
	ledger  *team.Ledger
	session string // the team's, on the board
	lead    team.Caller
}

// open opens the channels of a workspace. Each opens alone: leave out what you do not need.
func open(ctx context.Context, workspace string) (*crew, error) {
	c := &crew{session: team.NewSessionKey()}
	boardDir, err := team.BoardDir(workspace)
	if err != nil {
		return nil, err
	}
	state, err := team.StateDir(workspace) // for all that is not the board
	if err != nil {
		return nil, err
	}
	if c.store, err = sqlitestore.Open(ctx, filepath.Join(state, "team.db"), nil); err != nil {
		return nil, err
	}
	if c.trail, err = team.OpenTrail(ctx, filepath.Join(state, "trail"), nil); err != nil {
		return nil, errors.Join(err, c.close())
	}
	if c.board, err = team.OpenBoard(ctx, boardDir, &team.BoardOptions{Trace: c.trail.Record}); err != nil {
		return nil, errors.Join(err, c.close())
	}
	if c.offload, err = team.OpenOffload(ctx, filepath.Join(state, "offload"), c.store, &team.OffloadOptions{Trace: c.trail.Record}); err != nil {
		return nil, errors.Join(err, c.close())
	}
	c.signals, err = team.OpenSignals(ctx, c.store, &team.SignalOptions{Offload: c.offload, Trace: c.trail.Record})
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	c.ledger, err = team.OpenLedger(ctx, c.store, team.Scope{Project: workspace}, &team.LedgerOptions{Trace: c.trail.Record})
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// close closes what was opened, the trail and the store last: the others write to them.
func (c *crew) close() error {
	var errs []error
	if c.offload != nil {
		errs = append(errs, c.offload.Close())
	}
	if c.board != nil {
		errs = append(errs, c.board.Close())
	}
	if c.trail != nil {
		errs = append(errs, c.trail.Close())
	}
	return errors.Join(append(errs, c.store.Close())...)
}

func run(ctx context.Context, out io.Writer, workspace string) (err error) {
	c, err := open(ctx, workspace)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()

	host, err := fakehost.Open(ctx, "", &fakehost.Options{Agents: []fakehost.Agent{
		{Name: "lead", Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
			answer, err := t.Dispatch(ctx, "architect", "design the API", t.Text())
			fmt.Fprintf(out, "offload   the lead's model gets %d bytes of a long answer\n", len(answer.Text))
			return "dispatched", err
		}},
		{Name: "architect", Mode: "subagent", Script: c.design},
	}})
	if err != nil {
		return err
	}
	defer host.Close()
	session, err := host.Session.Create(ctx, fakehost.NewSession{Agent: "lead"})
	if err != nil {
		return err
	}
	c.lead = team.Caller{Session: team.SessionID(session.ID), Role: "lead"}
	if err := c.signals.Enrol(ctx, team.Member{Session: c.lead.Session, Role: c.lead.Role}); err != nil {
		return err
	}

	// The host's hook behind tools: a result of the lead's tells the Join of a child, then it is shortened.
	join, err := team.OpenJoin(ctx, c.store, c.lead.Session, &team.JoinOptions{Sessions: host.Sessions(), Trace: c.trail.Record})
	if err != nil {
		return err
	}
	unhook := host.Tools().AfterTool(func(ctx context.Context, r team.ToolResult) (team.ToolResult, error) {
		if _, err := join.RegisterResult(ctx, r); err != nil {
			return r, err
		}
		return c.offload.AfterTool(ctx, r)
	})
	defer unhook()
	following, stop := context.WithCancel(ctx)
	followed := make(chan error, 1)
	go func() { followed <- join.Follow(following, host.Events(), nil) }()
	defer func() { stop(); <-followed }()

	if _, err := host.Session.Prompt(ctx, session.ID, fakehost.Prompt{Text: "let somebody design the API"}); err != nil {
		return err
	}
	if err := host.Session.Wait(ctx, session.ID); err != nil {
		return err
	}
	if err := c.account(team.WithCaller(ctx, c.lead), out, join); err != nil {
		return err
	}
	report, err := team.VerifyTrail(ctx, c.trail.Dir())
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "trail     %d lines, the chain holds: %t\n", report.Lines, report.Err() == nil)
	return nil
}

// design is the architect. Who calls is in the context, from the host: no argument of a model says so.
func (c *crew) design(ctx context.Context, t *fakehost.Turn) (string, error) {
	self := team.Caller{Session: team.SessionID(t.Session()), Role: "architect"}
	ctx = team.WithCaller(ctx, self)
	if err := c.signals.Enrol(ctx, team.Member{Session: self.Session, Role: self.Role, Parent: c.lead.Session}); err != nil {
		return "", err
	}
	_, err := c.signals.HandOff(ctx, c.board, team.Handoff{
		To:     "lead",
		Draft:  team.Draft{Session: c.session, Task: "auth", Topic: "api", Body: "# API\n\n" + strings.Repeat("A long story.\n", 1000)},
		Signal: team.Signal{Kind: team.KindSettled, Summary: "the API is ready for review", Key: "auth-api-1"},
		Ledger: c.ledger,
		Edits:  []team.Edit{{Key: "auth/api", Value: json.RawMessage(`"designed"`)}},
	})
	return strings.Repeat("What I thought of on the way, in many words.\n", 1000), err
}

// account prints what the lead knows in the end.
func (c *crew) account(lead context.Context, out io.Writer, join *team.Join) error {
	waited, err := join.Wait(lead, nil)
	if err != nil {
		return err
	}
	for _, child := range waited.Children {
		fmt.Fprintf(out, "join      %s, known by %s %s\n", child.State, child.By.Source, child.By.What)
	}
	received, err := c.signals.Receive(lead, nil)
	if err != nil {
		return err
	}
	signal := received[0]
	fmt.Fprintf(out, "signal    %s %s: %s\n", signal.From.Role, signal.Kind, signal.Summary)
	part, err := c.board.ReadRef(lead, signal.Refs[0], team.Range{Lines: 1})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "board     %d bytes, of which the lead reads %q\n", part.Body, part.Text)
	if err := c.signals.Ack(lead, received...); err != nil {
		return err
	}
	fact, err := c.ledger.Get(lead, "auth/api")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "ledger    %s is %s, by %s\n", fact.Key, fact.Value, fact.By.Role)
	return nil
}

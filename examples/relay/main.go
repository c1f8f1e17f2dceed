// Relay is a lead and five specialists who survey a workspace together.
//
//	go run ./examples/relay [-workspace DIR] [-opencode URL] [-json] [-new]
//
// Each specialist writes a Markdown file to the board and tells the lead, by
// signal, in one line and with a path. The lead hands over from one to the
// next and ends with a plan. At the end stands the account: what the lead's
// context would have cost with the files in it, and what it cost with paths.
//
// Without -opencode there is no model: the specialists are functions that read the real
// files of the workspace, in any language, best in Go. With it each of them is a
// session of a running OpenCode, with the model that is configured there.
//
// To learn the library, read in this order:
//
//	main.go      what is opened once: trail, board, store
//	run.go       one run, from the channels to the account
//	team.go      the team: who is enrolled, and what a specialist does
//	lead.go      the lead: hands over, waits, writes the plan
//	join.go      how the lead knows who has settled
//	journal.go   how a run outlives its process: stopped in the middle, by
//	             Ctrl-C or kill -9, it is carried on with by the next start
//	opencode*.go the same team as sessions of an OpenCode
//
// print.go is what people see of it, and package survey the work itself; neither
// is about the library.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/teamchan/team"
	"github.com/teamchan/team/examples/relay/survey"
	"github.com/teamchan/team/sqlitestore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "relay:", survey.OneLine(err.Error()))
		os.Exit(1)
	}
}

// run is the whole program.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("relay", flag.ContinueOnError)
	dir := flags.String("workspace", "", "the folder to survey (default: the repository around the current folder)")
	server := flags.String("opencode", "", "the `URL` of a running OpenCode 1.18, whose sessions are the team, each with a model")
	asJSON := flags.Bool("json", false, "print one JSON document instead of text")
	fresh := flags.Bool("new", false, "begin a fresh run, even if one was stopped in the middle or is going on")
	flags.SetOutput(io.Discard) // one line, by main
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(stdout)
		fmt.Fprintln(stdout, "usage: relay [-workspace DIR] [-opencode URL] [-json] [-new]")
		flags.PrintDefaults()
		return err
	} else if err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; name a folder with -workspace", flags.Arg(0))
	}
	workspace, err := findWorkspace(*dir)
	if err != nil {
		return err
	}

	out := &console{w: stdout, json: *asJSON, colour: isTerminal(stdout)}
	return open(ctx, workspace, *server, *fresh, out)
}

// A ground is what every run of a workspace stands on.
type ground struct {
	workspace string
	board     *team.Board
	store     team.Store
	trace     func(context.Context, team.TraceEvent) // to the trail
}

// open opens the trail, the board and the store of a workspace, and lets the team run on them.
func open(ctx context.Context, workspace, server string, fresh bool, out *console) (err error) {
	boardDir, err := team.BoardDir(workspace)
	if err != nil {
		return err
	}
	trailDir, err := team.TrailDir(workspace)
	if err != nil {
		return err
	}
	stateDir, err := team.StateDir(workspace)
	if err != nil {
		return err
	}
	trail, err := team.OpenTrail(ctx, trailDir, nil)
	if err != nil {
		return stopped(ctx, err)
	}
	defer func() { err = errors.Join(err, trail.Close()) }()
	board, err := team.OpenBoard(ctx, boardDir, &team.BoardOptions{Trace: trail.Record})
	if err != nil {
		return stopped(ctx, err)
	}
	defer board.Close()
	store, err := sqlitestore.Open(ctx, filepath.Join(stateDir, "relay.db"), nil)
	if err != nil {
		return stopped(ctx, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	g := ground{workspace, board, store, trail.Record}
	if server != "" {
		err = carryOutLive(ctx, g, server, fresh, out)
	} else {
		err = carryOut(ctx, g, fresh, out)
	}
	if err != nil {
		return err
	}
	// The run is done; what a sweep leaves, the next one finds again.
	_, _ = store.Sweep(ctx, sqlitestore.SweepPolicy{})
	report, _ := board.Sweep(ctx)
	if files, size := report.Removed(); files > 0 {
		out.printf("\n  Removed from the board, since nobody has touched it for days: %s, %s\n", survey.Plural(files, "file"), survey.Bytes(size))
	}
	return out.err
}

// findWorkspace is dir, or the nearest folder above the current one that has a
// go.mod or a .git, or the current one.
func findWorkspace(dir string) (string, error) {
	if dir == "" {
		here, err := filepath.Abs(".")
		if err != nil {
			return "", err
		}
		for at := here; ; at = filepath.Dir(at) {
			for _, name := range []string{"go.mod", ".git"} {
				if _, err := os.Lstat(filepath.Join(at, name)); err == nil {
					return at, nil
				}
			}
			if at == filepath.Dir(at) {
				return here, nil
			}
		}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return "", fmt.Errorf("workspace: %w", err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("workspace: %s is not a folder", abs)
	}
	return abs, nil
}

// isTerminal decides about colours: only for a person, and only if they did
// not ask for none.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || strings.EqualFold(os.Getenv("TERM"), "dumb") {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

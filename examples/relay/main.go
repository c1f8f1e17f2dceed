// Relay is a lead and five specialists who survey a workspace together.
//
//	go run ./examples/relay [-workspace DIR] [-opencode URL] [-json] [-new]
//
// Each specialist writes a Markdown file to the board and tells the lead, by
// signal, in one line and with a path. The lead hands over from one to the
// next and ends with a plan. At the end stands the account: what the lead's
// context would have cost with the files in it, and what it cost with paths.
//
// With -opencode each of them is a session of a running OpenCode, with the model that is
// configured there; opencode.go has that. Without it there is no model: the specialists are functions that read the real
// files of the workspace, in any language, best in Go. Read team.go for the
// exchange, and run.go for how a run outlives its process: stopped in the
// middle, by Ctrl-C or kill -9, it is carried on with by the next start. scan*.go
// gathers the facts and deliver*.go words them.
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
	"time"

	"github.com/teamchan/team"
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
		fmt.Fprintln(os.Stderr, "relay:", oneLine(err.Error()))
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
	return survey(ctx, workspace, *server, *fresh, out)
}

// survey opens what the relay needs, and runs it.
func survey(ctx context.Context, workspace, server string, fresh bool, out *console) (err error) {
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

	if server != "" {
		err = carryOutLive(ctx, workspace, server, board, store, trail.Record, out)
	} else {
		err = carryOut(ctx, workspace, board, store, trail.Record, fresh, out)
	}
	if err != nil {
		return err
	}
	// The run is done; what a sweep leaves, the next one finds again.
	_, _ = store.Sweep(ctx, sqlitestore.SweepPolicy{})
	report, _ := board.Sweep(ctx)
	if files, size := report.Removed(); files > 0 {
		out.printf("\n  Removed from the board, since nobody has touched it for days: %s, %s\n", plural(files, "file"), bytesText(size))
	}
	return out.err
}

// stopped says in our words that err is there since somebody stopped us.
func stopped(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// carryOut begins a run, or carries on with one, and shows what happens.
func carryOut(ctx context.Context, workspace string, board *team.Board, store team.Store,
	trace func(context.Context, team.TraceEvent), fresh bool, out *console,
) (err error) {
	j, err := begin(ctx, store, fresh, out.printf)
	if err != nil {
		return stopped(ctx, err)
	}
	held, letGo := j.hold(ctx)
	defer func() { err = j.end(ctx, held, err, letGo) }()
	if j.resumed {
		out.printf("carries on with the run of %s: %s\n\n", j.name(), j.progress())
	}

	out.printf("workspace  %s\n", shown(workspace))
	start := time.Now()
	files, err := openTree(held, workspace, defaultLimits)
	if err != nil {
		return err
	}
	scanned := time.Since(start)

	offloadDir, err := team.OffloadDir(workspace)
	if err != nil {
		return err
	}
	offload, err := team.OpenOffload(held, offloadDir, store, &team.OffloadOptions{Trace: trace})
	if err != nil {
		return err
	}
	defer offload.Close()
	signals, err := team.OpenSignals(held, store, &team.SignalOptions{
		Epoch: j.session(), Lease: lease, MaxAttempts: team.NoLimit, Offload: offload, Trace: trace,
	})
	if err != nil {
		return err
	}
	r := &relay{board: board, signals: signals, offload: offload, session: j.session(), journal: j, tree: files, patience: 2 * time.Minute}
	r.log = &timeline{started: time.Now(), base: filepath.Join(board.Dir(), r.session)}
	r.log.show = func(e event) { out.event(e, r.log.relative) }
	doc := document{
		Workspace: workspace, Board: board.Dir(), Session: r.session, Started: j.started(), Resumed: j.resumed,
		Scan: scanFacts{
			Files: len(files.Files), Folders: files.Folders + 1, Packages: len(files.Packages), Read: files.Read,
			Gaps: append([]string{}, files.gaps()...),
		},
	}
	out.head(doc, scanned)
	result, err := r.run(held)
	if err != nil {
		return err
	}
	doc.ElapsedMS = float64(time.Since(r.log.started).Microseconds()) / 1e3
	doc.Events = append([]event{}, r.log.events...)
	doc.Plan = result.plan.Path
	doc.Tasks = append([]task{}, result.tasks...)
	doc.Endings = append([]ending{}, result.endings...)
	if doc.Account, err = r.account(held, result); err != nil {
		return err
	}
	doc.LongReply = r.longReply(result)
	out.tail(doc, r.log.relative)
	if out.err != nil {
		return out.err // nobody has seen it: the next start shows it again
	}
	if err := r.finish(held); err != nil {
		return err
	}
	_, _ = offload.Collect(held, nil) // what it leaves, the next one finds again
	return nil
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

// Relay is a lead and five specialists who survey a workspace together.
//
//	go run ./examples/relay [-workspace DIR] [-json]
//
// Each specialist writes a Markdown file to the board and tells the lead, by
// signal, in one line and with a path. The lead hands over from one to the
// next and ends with a plan. At the end stands the account: what the lead's
// context would have cost with the files in it, and what it cost with paths.
//
// There is no model in it: the specialists are functions that read the real
// files of the workspace, in any language, best in Go. Read team.go for the
// exchange; scan*.go gathers the facts and deliver*.go words them.
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
	"github.com/teamchan/team/memstore"
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
	asJSON := flags.Bool("json", false, "print one JSON document instead of text")
	flags.SetOutput(io.Discard) // one line, by main
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(stdout)
		fmt.Fprintln(stdout, "usage: relay [-workspace DIR] [-json]")
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

	out := &console{w: stdout, colour: isTerminal(stdout)}
	if *asJSON {
		out.w = io.Discard
	}
	doc, err := survey(ctx, workspace, out)
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		return err
	}
	if *asJSON {
		return doc.printJSON(stdout)
	}
	return out.err
}

// survey opens the channels, runs the relay, and shows what happens.
func survey(ctx context.Context, workspace string, out *console) (doc document, err error) {
	out.printf("workspace  %s\n", shown(workspace))
	begin := time.Now()
	files, err := openTree(ctx, workspace, defaultLimits)
	if err != nil {
		return doc, err
	}
	scanned := time.Since(begin)

	dir, err := team.BoardDir(workspace)
	if err != nil {
		return doc, err
	}
	board, err := team.OpenBoard(ctx, dir, nil)
	if err != nil {
		return doc, err
	}
	defer board.Close()
	signals, err := team.OpenSignals(ctx, new(memstore.Store), nil)
	if err != nil {
		return doc, err
	}

	r := &relay{board: board, signals: signals, session: team.NewSessionKey(), tree: files, patience: 2 * time.Minute}
	r.log = &timeline{started: time.Now(), base: filepath.Join(dir, r.session)}
	r.log.show = func(e event) { out.event(e, r.log.relative) }
	doc = document{Workspace: workspace, Board: dir, Session: r.session, Started: r.log.started, Scan: scanFacts{
		Files: len(files.Files), Folders: files.Folders + 1, Packages: len(files.Packages), Read: files.Read,
		Gaps: append([]string{}, files.gaps()...),
	}}
	out.head(doc, scanned)
	result, err := r.run(ctx)
	if err != nil {
		return doc, err
	}
	doc.ElapsedMS = float64(time.Since(r.log.started).Microseconds()) / 1e3
	doc.Events = r.log.events
	doc.Plan = result.plan.Path
	doc.Tasks = append([]task{}, result.tasks...)
	if doc.Account, err = r.account(ctx, result); err != nil {
		return doc, err
	}
	out.tail(doc, r.log.relative)
	return doc, nil
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

package team_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/teamchan/team"
)

// hang bounds what ends within a second and would take hours if its work grew
// with the square of the text. It is no measure of speed, which is what
// benchmarks are for: no machine is so slow or so busy that it is reached.
const hang = 2 * time.Minute

// The test binary starts itself again as a process that uses the library: the
// environment says as which.
const childVar = "TEAM_TEST_CHILD"

var children = map[string]func(args []string) error{
	"board-writers": childBoardWriters,
	"board-loop":    childBoardLoop,
	"trail":         childTrail,
}

func TestMain(m *testing.M) {
	if run, ok := children[os.Getenv(childVar)]; ok {
		if err := run(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child returns a command that runs the test binary as one of children.
func child(tb testing.TB, name string, args ...string) *exec.Cmd {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), exe, args...)
	cmd.Env = append(os.Environ(), childVar+"="+name)
	cmd.Stderr = os.Stderr
	return cmd
}

// as returns a context of a caller with the given role, in a session named after it.
func as(ctx context.Context, role team.Role) context.Context {
	return team.WithCaller(ctx, team.Caller{Session: team.SessionID("ses_" + string(role)), Role: role})
}

// childBoardWriters writes n entries at once on one topic and prints them: DIR SESSION N NAME.
func childBoardWriters(args []string) error {
	b, err := team.OpenBoard(context.Background(), args[0], &team.BoardOptions{MaxFiles: team.NoLimit})
	if err != nil {
		return err
	}
	defer b.Close()
	n, _ := strconv.Atoi(args[2])
	entries := make([]team.Entry, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			entries[i], errs[i] = b.Write(as(context.Background(), "tester"), team.Draft{
				Session: args[1], Task: "load", Topic: "report", Body: fmt.Sprintf("body %d of %s\n", i, args[3]),
			})
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(entries)
}

// childBoardLoop writes entries until it is killed, and prints the path and digest of
// each when Write has returned: DIR SESSION.
func childBoardLoop(args []string) error {
	b, err := team.OpenBoard(context.Background(), args[0], &team.BoardOptions{MaxFiles: team.NoLimit})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		e, err := b.Write(as(context.Background(), "tester"), team.Draft{
			Session: args[1], Task: "kill", Topic: fmt.Sprint("topic ", i%7), Body: fmt.Sprintf("%d %070000d\n", i, i),
		})
		if err != nil {
			return err
		}
		fmt.Println(e.SHA256, e.Path)
	}
}

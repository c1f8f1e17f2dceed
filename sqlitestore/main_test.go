package sqlitestore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// The test binary starts itself again as a process that uses the store: the
// environment says as which. A child ends when its standard input does, so that
// none is left behind.
const childVar = "SQLITESTORE_TEST_CHILD"

var children = map[string]func(ctx context.Context, args []string) error{
	"opener":   childOpener,
	"sender":   childSender,
	"receiver": childReceiver,
	"waiter":   childWaiter,
	"putter":   childPutter,
	"claimer":  childClaimer,
	"idle":     childIdle,
	"watcher":  childWatcher,
	"indexer":  childIndexer,
	"counter":  childCounter,
	"follower": childFollower,
	"joiner":   childJoiner,
	"relay":    childRelay,
	"traced":   childTraced,
	"stranger": childStranger,
}

func TestMain(m *testing.M) {
	if os.Getenv(childVar) == serverName {
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if run, ok := children[os.Getenv(childVar)]; ok {
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
			time.Sleep(5 * time.Second)
			os.Exit(3)
		}()
		if err := run(ctx, os.Args[1:]); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A process is a child that runs.
type process struct {
	tb    testing.TB
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Scanner
}

// start starts the test binary as one of children.
func start(tb testing.TB, name string, args ...any) *process {
	tb.Helper()
	cmd, in, out := spawn(tb, name, args...)
	p := &process{tb: tb, cmd: cmd, stdin: in, out: bufio.NewScanner(out)}
	tb.Cleanup(p.kill)
	return p
}

func spawn(tb testing.TB, name string, args ...any) (*exec.Cmd, io.WriteCloser, io.Reader) {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(exe)
	for _, a := range args {
		cmd.Args = append(cmd.Args, fmt.Sprint(a))
	}
	cmd.Env = append(os.Environ(), childVar+"="+name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	return cmd, in, out
}

// line returns the next line of output, and whether there is one.
func (p *process) line() (string, bool) {
	if !p.out.Scan() {
		return "", false
	}
	return p.out.Text(), true
}

// lines returns what is left of the output, when the process has ended.
func (p *process) lines() (list []string) {
	for p.out.Scan() {
		list = append(list, p.out.Text())
	}
	return list
}

// kill ends the process at whatever it is doing.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// mustNotFail waits for a process that may have been killed, but not ended with an error.
func (p *process) mustNotFail() {
	for p.out.Scan() { // so that it can end
	}
	_ = p.cmd.Wait()
	if p.cmd.ProcessState.ExitCode() > 0 && runtime.GOOS != "windows" { // where killed is 1 too
		p.tb.Errorf("child = %v, want it to end well", p.cmd.ProcessState)
	}
}

// stop asks the process to end, and returns what it printed meanwhile.
func (p *process) stop() []string {
	_ = p.stdin.Close()
	rest := p.lines()
	if err := p.cmd.Wait(); err != nil {
		p.tb.Errorf("child = %v, want it to end well", err)
	}
	return rest
}

// childOpener opens a new path at the same moment as its siblings, many times, and
// leaves an item there: DIR NAME START EVERY ROUNDS (nanoseconds).
func childOpener(ctx context.Context, args []string) error {
	start, _ := strconv.ParseInt(args[2], 10, 64)
	every, _ := strconv.ParseInt(args[3], 10, 64)
	rounds, _ := strconv.Atoi(args[4])
	for i := range rounds {
		time.Sleep(time.Until(time.Unix(0, start+int64(i)*every)))
		s, err := sqlitestore.Open(ctx, filepath.Join(args[0], fmt.Sprint("new", i), "s.db"), nil)
		if err != nil {
			return fmt.Errorf("round %d: open: %w", i, err)
		}
		if _, err := s.Append(ctx, "q", []team.Item{{ID: args[1]}}, 0); err != nil {
			return fmt.Errorf("round %d: append: %w", i, err)
		}
		if err := s.Close(); err != nil {
			return fmt.Errorf("round %d: close: %w", i, err)
		}
	}
	return nil
}

// childSender appends items until it is done, and prints number, id and seq of each
// when Append has returned, and the nanoseconds that it took: PATH NAME FROM TO LIFE LANES.
// LANES goroutines each send every so many-th item, in order, and so share transactions. LIFE
// makes the ids of one run differ from those of the next, as with a caller that makes up a
// new id and repeats the key.
func childSender(ctx context.Context, args []string) error {
	s, err := sqlitestore.Open(ctx, args[0], nil)
	if err != nil {
		return err
	}
	from, _ := strconv.Atoi(args[2])
	to, _ := strconv.Atoi(args[3])
	lanes, _ := strconv.Atoi(args[5])
	send := func(i int) error {
		key := fmt.Sprintf("%s/%d", args[1], i)
		begun := time.Now()
		r, err := s.Append(ctx, queueOf(i), []team.Item{{ID: key + "/" + args[4], Key: key, Data: []byte(key)}}, 0)
		if err != nil {
			return fmt.Errorf("append of %s: %w", key, err)
		}
		_, err = fmt.Println(i, r[0].ID, r[0].Seq, time.Since(begun).Nanoseconds())
		return err
	}
	errs := make([]error, lanes)
	var wg sync.WaitGroup
	for lane := range lanes {
		wg.Go(func() {
			for i := from + lane; i < to && errs[lane] == nil; i += lanes {
				errs[lane] = send(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, s.Close())...)
}

const queues = 3

func queueOf(i int) string { return fmt.Sprint("queue", i%queues) }

// childReceiver claims and acks until it is stopped, and prints queue, id, seq and
// attempt of each before it acks: PATH QUEUE LEASE.
func childReceiver(ctx context.Context, args []string) error {
	s, err := sqlitestore.Open(ctx, args[0], nil)
	if err != nil {
		return err
	}
	lease, _ := time.ParseDuration(args[2])
	for {
		claims, err := s.Claim(ctx, args[1], team.ClaimOptions{Max: 1 + rand.N(40), Lease: lease, Wait: true})
		if err != nil {
			return err
		}
		errs := make([]error, len(claims))
		var wg sync.WaitGroup
		for i, c := range claims {
			fmt.Println(args[1], c.ID, c.Seq, c.Attempt)
			wg.Go(func() {
				st := team.Settlement{Seq: c.Seq, Token: c.Token, Verdict: team.VerdictAck}
				if err := s.Settle(ctx, args[1], st); !errors.Is(err, team.ErrConflict) { // its lease was over
					errs[i] = err
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
}

// childWaiter waits for items without looking by itself, and prints when it began to commit
// the claim of each, and when it had it: PATH QUEUE SYNCHRONOUS.
func childWaiter(ctx context.Context, args []string) error {
	sqlitestore.SetPoll(time.Hour)
	sync, _ := strconv.Atoi(args[2])
	s, err := sqlitestore.Open(ctx, args[0], &sqlitestore.Options{Synchronous: sqlitestore.Synchronous(sync)})
	if err != nil {
		return err
	}
	var found time.Time
	s.BeforeCommit(func() { found = time.Now() })
	fmt.Println("open")
	for {
		claims, err := s.Claim(ctx, args[1], team.ClaimOptions{Max: 1, Lease: time.Minute, Wait: true})
		if err != nil {
			return err
		}
		fmt.Println(found.UnixNano(), time.Now().UnixNano(), claims[0].ID)
		if err := s.Settle(ctx, args[1], team.Settlement{Seq: claims[0].Seq, Token: claims[0].Token, Verdict: team.VerdictAck}); err != nil {
			return err
		}
	}
}

// childPutter writes records, each time from what it has read: PATH NAME KEY N.
func childPutter(ctx context.Context, args []string) error {
	s, err := sqlitestore.Open(ctx, args[0], nil)
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(args[3])
	for range n {
		for {
			var v team.Version
			count := 0
			r, err := s.Get(ctx, args[2])
			if err == nil {
				v = r.Version
				count, _ = strconv.Atoi(string(r.Value))
			}
			if _, err := s.Put(ctx, args[2], fmt.Append(nil, count+1), v); err == nil {
				break
			} else if !strings.Contains(err.Error(), "conflict") {
				return err
			}
		}
	}
	return s.Close()
}

// childClaimer claims one item, says so and waits to be killed: PATH QUEUE LEASE.
func childClaimer(ctx context.Context, args []string) error {
	s, err := sqlitestore.Open(ctx, args[0], nil)
	if err != nil {
		return err
	}
	lease, _ := time.ParseDuration(args[2])
	claims, err := s.Claim(ctx, args[1], team.ClaimOptions{Max: 1, Lease: lease, Wait: true})
	if err != nil {
		return err
	}
	fmt.Println(claims[0].ID, claims[0].Attempt, claims[0].Until.UnixMilli())
	<-ctx.Done()
	return nil
}

// childIdle waits for an item that never comes and prints the processor time that
// this cost, per second: PATH.
func childIdle(ctx context.Context, args []string) error {
	s, err := sqlitestore.Open(ctx, args[0], nil)
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	_, _ = s.Claim(wait, "idle", team.ClaimOptions{Max: 1, Lease: time.Minute, Wait: true})
	cancel()
	before, start := processorTime(), time.Now()
	wait, cancel = context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	_, _ = s.Claim(wait, "idle", team.ClaimOptions{Max: 1, Lease: time.Minute, Wait: true})
	fmt.Println((processorTime() - before).Seconds() / time.Since(start).Seconds())
	return s.Close()
}

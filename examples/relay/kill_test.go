package main

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// relayProcess is the program as a process of its own, in workspace dir.
func relayProcess(t *testing.T, dir, temp string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, append([]string{"-workspace", dir}, args...)...)
	cmd.Env = append(os.Environ(), childVar+"=1", "TMPDIR="+temp)
	return cmd
}

// Processes are killed at random moments, two in a row, and a third comes to the
// end. Every other time it is Ctrl-C, where the system has that.
func TestKilled(t *testing.T) {
	t.Parallel()
	const teams = 8
	dirs := make([]string, teams)
	for i := range dirs {
		dirs[i] = makeFiles(t, aModule())
	}
	temp := t.TempDir()
	began := time.Now()
	if out, err := relayProcess(t, makeFiles(t, aModule()), temp).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	whole := time.Since(began)

	var resumed int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, dir := range dirs {
		wg.Go(func() {
			for range 2 {
				cmd := relayProcess(t, dir, temp)
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				time.Sleep(whole/4 + rand.N(whole))
				if i%2 == 0 || cmd.Process.Signal(os.Interrupt) != nil {
					_ = cmd.Process.Kill()
				}
				_ = cmd.Wait()
			}
			cmd := relayProcess(t, dir, temp, "-json")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			var doc document
			if err == nil {
				err = json.Unmarshal(out, &doc)
			}
			if err != nil {
				t.Errorf("the last start = %v\n%s%s", err, out, &stderr)
				return
			}
			board, err := team.OpenBoard(t.Context(), doc.Board, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer board.Close()
			store, err := sqlitestore.Open(t.Context(), filepath.Join(dir, ".git", "opencode-team-state", "relay.db"), nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer store.Close()
			checkRun(t, board, doc)
			checkTidy(t, store, doc.Session)
			mu.Lock()
			defer mu.Unlock()
			if doc.Resumed {
				resumed++
			}
		})
	}
	wg.Wait()
	t.Logf("a whole run takes %v; %d of %d were carried on with in the last start", whole, resumed, teams)
}

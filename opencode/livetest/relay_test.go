package livetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team"
	"github.com/teamchan/team/internal/scriptedmodel"
)

// The specialists of examples/relay, by what their prompts begin with.
var specialists = []string{"architect", "researcher", "implementer", "reviewer", "tester"}

// slow is how long the specialists' model takes, in milliseconds.
var slow atomic.Int64

// relayed is the model of those prompts of examples/relay, which have no script.
func relayed(r scriptedmodel.Request) step {
	for _, role := range specialists {
		if r.Find("You are the "+role+" of a team") >= 0 {
			return step{Delay: int(slow.Load()), Fill: 32_000, Text: fmt.Sprintf("# What the %s saw\n\nThe %[1]s saw one thing.\n\n## Findings\n\n- **medium** `a.go:1` is what the %[1]s found\n\n## Evidence\n\n", role)}
		}
	}
	at := r.Find("You lead a team")
	if at < 0 {
		return step{Text: "ok"}
	}
	if r.Messages[len(r.Messages)-1].Role != "tool" {
		path := between(r.Messages, "/", "researcher", ".md")
		return step{Calls: []call{{Tool: "read", Args: args{"filePath": path, "limit": 8}}}}
	}
	return step{Text: "# What to do next\n\nOne thing matters.\n\n## Findings\n\n- **high** mend `a.go:1`\n"}
}

// between returns the first word of all messages that has all parts, from the first to the last.
func between(all []scriptedmodel.Message, first, middle, last string) string {
	for _, m := range all {
		for _, word := range strings.FieldsFunc(m.Text, func(r rune) bool { return strings.ContainsRune(" \n\t\"'<>`", r) }) {
			if strings.HasPrefix(word, first) && strings.Contains(word, middle) && strings.HasSuffix(word, last) {
				return word
			}
		}
	}
	return ""
}

// buildRelay builds examples/relay and returns what starts it.
func buildRelay(t *testing.T) (start func(more ...string) *exec.Cmd) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "relay")
	build := exec.CommandContext(within(t, 3*time.Minute), "go", "build", "-o", program, "../../examples/relay")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return func(more ...string) *exec.Cmd {
		cmd := exec.CommandContext(within(t, 3*time.Minute), program, append([]string{"-opencode", live.url, "-workspace", live.dir}, more...)...)
		cmd.Env = append(os.Environ(), "TMPDIR="+dir, "OPENCODE_SERVER_PASSWORD="+password)
		return cmd
	}
}

// The relay over real sessions is stopped while the implementer's model works, and started again.
func TestRelayProgramCarriesOn(t *testing.T) {
	h := dial(t, "")
	start := buildRelay(t)
	slow.Store(4000)
	t.Cleanup(func() { slow.Store(0) })
	for _, test := range []struct {
		name  string
		stop  os.Signal
		says  string
		asked int // how often the implementer's model is asked
	}{
		{"kill -9: what runs on the server goes on, and its answer is taken", os.Kill, "", 1},
		{"Ctrl-C: what runs on the server is stopped, and asked again", os.Interrupt, "interrupted; the next start carries on with this run", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := len(live.model.Requests())
			asked := func() (n int) {
				for _, r := range live.model.Requests()[before:] {
					if r.Find("You are the implementer of a team") >= 0 && len(r.Tools) > 0 {
						n++
					}
				}
				return n
			}
			cmd := start()
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			require.NoError(t, cmd.Start())
			eventually(t, func(context.Context) error {
				if asked() == 0 {
					return errNotYet
				}
				return nil
			})
			require.NoError(t, cmd.Process.Signal(test.stop))
			require.Error(t, cmd.Wait())
			require.Contains(t, out.String(), test.says)

			cmd = start("-json")
			again, err := cmd.Output()
			require.NoError(t, err)
			var doc struct {
				Resumed bool
				Session string
				Lead    team.SessionID `json:"lead_session"`
				Events  []struct{ From, To, Kind string }
				Endings []struct{ Role, State string }
			}
			require.NoError(t, json.Unmarshal(again, &doc))
			require.True(t, doc.Resumed)
			require.Contains(t, out.String(), doc.Session, "it is the same run")
			for _, e := range doc.Events {
				require.NotContains(t, []string{"architect", "researcher"}, e.From, "who had settled does not work again")
			}
			require.Len(t, doc.Endings, 5)
			require.Equal(t, test.asked, asked())
			signals := 0
			for _, m := range messages(t, h, doc.Lead) {
				for _, p := range m.Parts {
					if p.Synthetic && strings.HasPrefix(p.Text, frame) {
						signals++
					}
				}
			}
			require.Equal(t, 5, signals, "nothing is doubled in the lead's session")
		})
	}
}

// The program examples/relay with real sessions, as a user starts it.
func TestRelayProgram(t *testing.T) {
	h := dial(t, "")
	start := buildRelay(t)
	cmd := start("-json")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, errs.String())
	var doc struct {
		Session, Plan string
		Events        []struct{ From, To, Kind, Path string }
		Tasks         []struct{ Level, Text string }
		Account       struct {
			Signals      int
			Inline       int     `json:"inline_tokens"`
			Paths        int     `json:"path_tokens"`
			Excerpts     int     `json:"excerpt_tokens"`
			SavedPercent float64 `json:"saved_percent"`
		}
	}
	require.NoError(t, json.Unmarshal(out, &doc))
	steps := make(map[string]int)
	bodies := 0
	for _, e := range doc.Events {
		steps[e.Kind]++
		if e.Kind == "entry" && e.From != "lead" {
			text, err := os.ReadFile(e.Path)
			require.NoError(t, err)
			bodies += team.EstimateTokens(string(text))
			require.Contains(t, string(text), "What the "+e.From+" saw", "the entry is what the session of the role answered")
		}
	}
	require.Equal(t, map[string]int{"handoff": 5, "entry": 6, "settled": 5}, steps)
	require.Len(t, doc.Tasks, 1)
	require.Equal(t, "high mend `a.go:1`", doc.Tasks[0].Level+" "+doc.Tasks[0].Text)
	plan, err := os.ReadFile(doc.Plan)
	require.NoError(t, err)
	require.Contains(t, string(plan), "One thing matters.")

	// What the lead's model received, the last time that it was called.
	received, excerpt, signals := 0, 0, 0
	for _, r := range live.model.Requests() {
		if r.Find("You lead a team") < 0 || r.Messages[len(r.Messages)-1].Role != "tool" || r.Find(doc.Session) < 0 {
			continue
		}
		received, excerpt = 0, 0
		signals = r.Count(frame)
		for _, m := range r.Messages {
			switch m.Role {
			case "user":
				received += team.EstimateTokens(m.Text)
			case "tool":
				excerpt += team.EstimateTokens(m.Text)
				require.Contains(t, m.Text, "What the researcher saw", "the lead may read the board")
			}
		}
		for _, role := range specialists {
			require.GreaterOrEqual(t, r.Find("The "+role+" saw one thing."), 0, "the signal of the %s", role)
		}
	}
	require.Equal(t, 5, signals)
	require.Equal(t, 5, doc.Account.Signals)
	t.Logf("the lead's model received %d tokens of signals and prompt and %d of an entry; the bodies have %d; the program says %d against %d",
		received, excerpt, bodies, doc.Account.Paths, doc.Account.Inline)
	require.LessOrEqual(t, (received+excerpt)*20, received+bodies, "at least 95 %% fewer")
	require.GreaterOrEqual(t, doc.Account.SavedPercent, 95.0)
	require.InDelta(t, excerpt, doc.Account.Excerpts, float64(excerpt)/5)
	require.LessOrEqual(t, doc.Account.Paths, received+excerpt, "the prompt is not counted")
	require.InDelta(t, bodies, doc.Account.Inline-(doc.Account.Paths-doc.Account.Excerpts), float64(bodies)/20)

	handed := false
	for _, r := range live.model.Requests() {
		if r.Find("You are the tester of a team") >= 0 && r.Find(doc.Session) >= 0 {
			handed = true
			for _, colleague := range []string{"architect", "reviewer"} {
				require.Contains(t, between(r.Messages, "/", colleague, ".md"), doc.Session, "the handoff names the file of the %s", colleague)
			}
		}
	}
	require.True(t, handed, "the tester's model was called")

	// The sessions are there to look at: a lead and its five children.
	lead := ""
	for _, r := range live.model.Requests() {
		if r.Find("You lead a team") >= 0 && r.Find(doc.Session) >= 0 {
			lead = r.Header.Get("X-Session-Id")
		}
	}
	children, err := h.Children(within(t, time.Minute), team.SessionID(lead))
	require.NoError(t, err)
	require.Len(t, children, 5)

	t.Run("a wrong password is an error that says so", func(t *testing.T) {
		cmd := start()
		cmd.Env = append(cmd.Env, "OPENCODE_SERVER_PASSWORD=wrong")
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "401")
	})
}

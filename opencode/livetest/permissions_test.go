package livetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team"
	"github.com/teamchan/team/internal/scriptedmodel"
	"github.com/teamchan/team/opencode"
)

// rulesOf returns the rules of each agent of the server.
func rulesOf(t *testing.T, h *opencode.Host) map[string]team.Rules {
	t.Helper()
	list, err := h.Agents(within(t, time.Minute))
	require.NoError(t, err)
	agents := make(map[string]team.Rules)
	for _, a := range list {
		raw, err := json.Marshal(a.Permissions)
		require.NoError(t, err)
		agents[a.Name], err = team.ParseRules(raw)
		require.NoError(t, err)
	}
	return agents
}

// own returns the rules of a session itself.
func own(t *testing.T, s team.Session) team.Rules {
	t.Helper()
	var shape struct{ Permission json.RawMessage }
	require.NoError(t, json.Unmarshal(s.Raw, &shape))
	if shape.Permission == nil {
		return nil
	}
	rules, err := team.ParseRules(shape.Permission)
	require.NoError(t, err)
	return rules
}

func randomRules(rnd *rand.Rand, most int) (rules team.Rules) {
	pick := func(from ...string) string { return from[rnd.IntN(len(from))] }
	for range 1 + rnd.IntN(most) {
		rules = append(rules, team.Rule{
			Permission: pick("bash", "bash", "bash", "b*", "*", "edit", "read", "task", "todowrite", "external_directory", "webfetch"),
			Pattern:    pick("*", "*", "echo *", "echo a*", "echo b", "git *", "git status*", "cat", "true", "plain", "src/*", "*a", "e?ho*"),
			Effect:     []team.Effect{team.Allow, team.Ask, team.Deny}[rnd.IntN(3)],
		})
	}
	return rules
}

// waiting returns the requests of a session that wait, when there are n.
func waiting(t *testing.T, h *opencode.Host, id team.SessionID, n int) (found []opencode.PermissionRequest) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		all, err := h.Permissions(ctx)
		found = nil
		for _, p := range all {
			if p.Session == id {
				found = append(found, p)
			}
		}
		if err == nil && len(found) != n {
			err = fmt.Errorf("%d of %d requests wait", len(found), n)
		}
		return err
	})
	return found
}

// The server's rules for a child are those of Derive, for 200 random rule sets. One answer of
// the model has many calls of the task tool, and before each the rules of the parent session
// change, so that each child is made from other ones. The children's model does not
// exist, so they end as soon as they are made.
func TestDerivedRules(t *testing.T) {
	h := dial(t, "")
	agents := rulesOf(t, h)
	const sessions, each = 8, 25
	names := []string{"plain", "keeper", "lister", "caller"}
	for i := range sessions {
		t.Run(fmt.Sprint("session ", i), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(118, uint64(i)))
			ctx := within(t, 2*time.Minute)
			id := session(t, h, opencode.NewSession{})
			gate := func(n int) string { return fmt.Sprint(id, " ", n) }
			var calls []call
			for n := range each {
				agent := names[n%len(names)]
				calls = append(calls, call{Tool: "task", Gate: gate(n), Args: args{"description": agent, "prompt": "nothing", "subagent_type": agent}})
			}
			begin(t, h, id, step{Calls: calls})
			// Now the turn has its rules: what comes later cannot deny it the task tool.
			_, err := live.model.Wait(ctx, func(r scriptedmodel.Request) bool { return r.Header.Get("X-Session-Id") == string(id) })
			require.NoError(t, err)
			seen := make(map[team.SessionID]bool)
			for n := range each {
				random := randomRules(rnd, 4)
				raw, err := h.Raw(ctx, http.MethodPatch, "/session/"+string(id), nil, args{"permission": random})
				require.NoError(t, err)
				parent := own(t, team.Session{Raw: raw})
				require.Equal(t, random, parent[len(parent)-len(random):], "the server puts new rules behind the old ones")

				live.model.Open(gate(n))
				child := newChild(t, h, id, seen)
				require.Equal(t, names[n%len(names)], child.Agent)
				want := append(team.Rules{}, team.Derive(team.PolicyV1_18, parent, agents[child.Agent])...)
				require.Equal(t, want, append(team.Rules{}, own(t, child)...), "%s under %v", child.Agent, parent)
			}
			require.Len(t, seen, each)
			idle(t, h, id)
		})
	}
}

// newChild waits for a child of id that is not among those seen.
func newChild(t *testing.T, h *opencode.Host, id team.SessionID, seen map[team.SessionID]bool) (child team.Session) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		children, err := h.Children(ctx, id)
		for _, c := range children {
			if !seen[c.ID] {
				child = c
				seen[c.ID] = true
				return nil
			}
		}
		return fmt.Errorf("no new one among %d children, %v", len(children), err)
	})
	return child
}

// What the server lets commands do is what ParseShell and EvaluateAll say, for random rules.
func TestRandomCommands(t *testing.T) {
	h := dial(t, "")
	build := rulesOf(t, h)["build"]
	commands := []string{"echo a", "echo a && echo b", "true; echo 'a b'", "echo a | cat", "echo $(echo b)", "true", "test -d . || echo no",
		"git --version", "echo a > /dev/null", "cd . && echo a"}
	var calls []call
	for _, c := range commands {
		calls = append(calls, call{Tool: "bash", Args: args{"command": c, "description": "command"}})
	}
	effects := make(chan team.Effect, 1000)
	t.Run("rules", func(t *testing.T) {
		for i := range 6 {
			t.Run(fmt.Sprint("set ", i), func(t *testing.T) {
				t.Parallel()
				rnd := rand.New(rand.NewPCG(33, uint64(i)))
				rules := randomRules(rnd, 6)
				for team.HiddenTool("bash", build, rules) { // the model would not be offered it
					rules = randomRules(rnd, 6)
				}
				want := make(map[string]team.Effect)
				asked := make(map[string]team.ShellAsk) // by the patterns
				asks := 0
				for _, c := range commands {
					shell, err := team.ParseShell(c)
					require.NoError(t, err)
					want[c] = team.EvaluateAll("bash", shell.Patterns, build, rules).Effect
					effects <- want[c]
					if want[c] == team.Ask {
						asks++
						asked[fmt.Sprint(shell.Patterns)] = shell
					}
				}
				raw, err := json.Marshal(rules)
				require.NoError(t, err)
				id := session(t, h, opencode.NewSession{Permissions: raw})
				begin(t, h, id, step{Calls: calls})
				for _, p := range waiting(t, h, id, asks) {
					require.Contains(t, asked, fmt.Sprint(p.Resources), "under %v", rules)
					require.Equal(t, asked[fmt.Sprint(p.Resources)].Always, p.Save)
					require.NoError(t, h.ReplyPermission(within(t, time.Minute), p, opencode.ReplyOnce, ""))
				}
				ended(t, h, id, len(commands), func(p opencode.Part, command string) {
					require.Equal(t, want[command] == team.Deny, p.Status == "error", "%q is %q under %v", command, p.Status, rules)
				})
			})
		}
	})
	close(effects)
	seen := make(map[team.Effect]int)
	for e := range effects {
		seen[e]++
	}
	require.Len(t, seen, 3, "each effect came up")
}

// ended waits until n calls of bash have ended, and looks at each.
func ended(t *testing.T, h *opencode.Host, id team.SessionID, n int, look func(p opencode.Part, command string)) {
	t.Helper()
	var done []opencode.Part
	eventually(t, func(context.Context) error {
		done = nil
		for _, m := range messages(t, h, id) {
			for _, p := range m.Parts {
				if p.Tool == "bash" && (p.Status == "completed" || p.Status == "error") {
					done = append(done, p)
				}
			}
		}
		if len(done) != n {
			return fmt.Errorf("%d of %d calls have ended", len(done), n)
		}
		return nil
	})
	for _, p := range done {
		var part struct {
			State struct{ Input struct{ Command string } }
		}
		require.NoError(t, json.Unmarshal(p.Raw, &part))
		look(p, part.State.Input.Command)
	}
}

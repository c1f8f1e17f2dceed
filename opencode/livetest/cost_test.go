package livetest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team"
	"github.com/teamchan/team/opencode"
)

// Five deliverables of 24 KB come to a lead: as results of its subagents, and as
// entries of a board with a signal for each. Both are measured by what the model of
// the lead received.
func TestContextCost(t *testing.T) {
	const deliverables, size = 5, 24_000
	h := dial(t, "")
	received := func(id team.SessionID) int {
		n := 0
		for _, m := range next(t, h, id).Messages {
			if m.Role != "system" {
				n += team.EstimateTokens(m.Text)
			}
		}
		return n
	}

	bare := session(t, h, opencode.NewSession{})
	base := received(bare)

	inline := session(t, h, opencode.NewSession{})
	var calls []call
	for i := range deliverables {
		calls = append(calls, task(fmt.Sprint("deliverable ", i), false, step{Fill: size}))
	}
	prompt(t, h, inline, step{Calls: calls})
	withBodies := received(inline) - base

	paths := session(t, h, opencode.NewSession{})
	c, worker := signals(t, paths)
	board, err := team.OpenBoard(t.Context(), t.TempDir(), nil)
	require.NoError(t, err)
	var sent []team.Sent
	for i := range deliverables {
		done, err := c.HandOff(worker, board, team.Handoff{To: "lead",
			Draft:  team.Draft{Session: "s", Task: "t", Topic: fmt.Sprint("deliverable-", i), Body: strings.Repeat("a line of a long report\n", size/24)},
			Signal: team.Signal{Kind: team.KindHandoff, Summary: fmt.Sprintf("Deliverable %d is ready.", i), Key: fmt.Sprint(i)}})
		require.NoError(t, err)
		sent = append(sent, done.Sent)
	}
	relay(t, c, worker, h, sent, false)
	withPaths := received(paths) - base

	require.Greater(t, withBodies, deliverables*size/8, "the bodies arrived")
	t.Logf("tokens in the lead's context: %d with bodies, %d with paths and signals, %.1f %% fewer",
		withBodies, withPaths, 100-100*float64(withPaths)/float64(withBodies))
	require.LessOrEqual(t, withPaths*20, withBodies, "at least 95 %% fewer")
}

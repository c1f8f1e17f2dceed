package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

var roles = []team.Role{"lead", "architect", "implementer", "reviewer", "tester", "researcher"}

func TestTeamRoles(t *testing.T) {
	m := team.TeamRoles()
	require.Len(t, m, len(roles))
	const a, q, d = team.Allow, team.Ask, team.Deny
	for _, c := range []struct {
		permission, resource string
		want                 [6]team.Effect // by the order of roles
	}{
		{"edit", "a.go", [6]team.Effect{a, d, a, d, a, d}},
		{"bash", "go test ./...", [6]team.Effect{a, d, a, a, a, d}},
		{"bash", "rm -rf /", [6]team.Effect{q, d, q, q, q, d}},
		{"bash", "printenv", [6]team.Effect{q, d, q, q, q, d}},
		{"task", "general", [6]team.Effect{a, d, d, d, d, d}},
		{"question", "*", [6]team.Effect{a, d, d, d, d, d}},
		{"todowrite", "*", [6]team.Effect{a, d, d, d, d, d}},
		{"webfetch", "https://example.org", [6]team.Effect{q, d, d, d, d, q}},
		{"browser", "x", [6]team.Effect{q, d, d, d, q, q}},
		{"tm_board_write", "x", [6]team.Effect{a, a, a, a, a, a}},
		{"tm_join", "x", [6]team.Effect{a, d, d, d, d, d}},
		{"tm_ledger_add", "x", [6]team.Effect{a, d, d, d, d, d}},
		{"tm_dispatch", "x", [6]team.Effect{d, d, d, d, d, d}},
		{"read", "a.go", [6]team.Effect{a, a, a, a, a, a}},
		{"read", "x/.env", [6]team.Effect{q, q, q, q, q, q}},
		{"read", ".env.local", [6]team.Effect{q, q, q, q, q, q}},
		{"read", ".env.example", [6]team.Effect{a, a, a, a, a, a}},
		{"external_directory", "/etc/*", [6]team.Effect{q, q, q, q, q, q}},
		{"something new", "x", [6]team.Effect{d, d, d, d, d, d}},
		{team.PermissionBoard, "s/t", [6]team.Effect{a, a, a, a, a, a}},
		{team.PermissionSignal, "tester", [6]team.Effect{a, a, a, a, a, a}},
		{team.PermissionSignal, "stranger", [6]team.Effect{d, d, d, d, d, d}},
	} {
		for i, role := range roles {
			require.Equal(t, c.want[i], team.Evaluate(c.permission, c.resource, m.Rules(role)).Effect, "%s: %s %s", role, c.permission, c.resource)
		}
	}
	t.Run("every role can read on both generations of the host", func(t *testing.T) {
		for _, role := range roles {
			v2, _ := team.ProjectV2(m.Rules(role))
			for _, rules := range []team.Rules{m.Rules(role), v2} {
				for _, tool := range []string{"read", "grep", "glob"} {
					require.Equal(t, team.Allow, team.Evaluate(tool, "a.go", rules).Effect)
				}
			}
		}
	})
	t.Run("a role's name in any case", func(t *testing.T) {
		require.Equal(t, m.Rules("lead"), m.Rules("LEAD"))
	})
	t.Run("an unknown role may do nothing", func(t *testing.T) {
		require.Equal(t, team.Deny, team.Evaluate("read", "a.go", m.Rules("stranger")).Effect)
	})
	t.Run("it is data", func(t *testing.T) {
		m.Rules("lead")[0].Effect = team.Allow
		require.Equal(t, team.Deny, m["lead"][0].Effect, "what is returned is a copy")
		m["tester"] = append(m["tester"], team.Rule{"edit", "*", team.Deny})
		require.Equal(t, team.Deny, team.Evaluate("edit", "x", m.Rules("tester")).Effect)
		require.Equal(t, team.Allow, team.Evaluate("edit", "x", team.TeamRoles().Rules("tester")).Effect, "each call makes a new one")
	})
}

func TestProjectV2(t *testing.T) {
	v2, missing := team.ProjectV2(team.Rules{{"bash", "git *", team.Ask}, {"lsp", "*", team.Deny}, {"task", "x", team.Allow}, {"b*", "y", team.Deny},
		{"*", "*", team.Ask}, {"apply_patch", "*", team.Deny}, {"edit", "*", team.Allow}})
	require.Equal(t, team.Rules{{"shell", "git *", team.Ask}, {"subagent", "x", team.Allow}, {"b*", "y", team.Deny}, {"shell", "y", team.Deny},
		{"*", "*", team.Ask}, {"patch", "*", team.Deny}, {"edit", "*", team.Allow}}, v2)
	require.Equal(t, team.Rules{{"lsp", "*", team.Deny}}, missing, "what 2.x does not have is reported")
	again, _ := team.ProjectV2(v2)
	require.Equal(t, team.Deny, team.Evaluate("shell", "y", again[:4]).Effect)

	rules := team.TeamRoles().Rules("lead")
	for old, name := range map[string]string{"bash": "shell", "task": "subagent", "edit": "edit"} {
		v2, _ := team.ProjectV2(rules)
		for _, res := range []string{"rm x", "ls", "general"} {
			require.Equal(t, team.Evaluate(old, res, rules).Effect, team.Evaluate(name, res, v2).Effect)
		}
	}
	out, err := json.Marshal(team.RulesV2(v2[:1]))
	require.NoError(t, err)
	require.JSONEq(t, `[{"action":"shell","resource":"git *","effect":"ask"}]`, string(out))
}

func TestChannelsKeepToPermissions(t *testing.T) {
	m := team.TeamRoles()
	// Specialists hand over to each other, but only the lead signals the researcher; the reviewer
	// may write to one task and has to ask for another.
	for _, role := range roles[1:] {
		m[role] = append(m[role], team.Rule{team.PermissionSignal, "researcher", team.Deny})
	}
	m["reviewer"] = append(m["reviewer"], team.Rule{team.PermissionBoard, "*/secret", team.Deny}, team.Rule{team.PermissionBoard, "*/release", team.Ask})

	c, _ := newTeam(t, &team.SignalOptions{Permissions: m.Permissions()})
	t.Run("who may signal whom", func(t *testing.T) {
		_, err := c.Send(as(t.Context(), "lead"), "researcher", note("x"))
		require.NoError(t, err)
		_, err = c.Send(as(t.Context(), "tester"), "reviewer", note("x"))
		require.NoError(t, err)
		for _, to := range []string{"researcher", "ses_researcher"} {
			_, err = c.Send(as(t.Context(), "tester"), to, note("x"))
			require.ErrorIs(t, err, team.ErrDenied)
		}
		_, err = c.SendAll(as(t.Context(), "tester"), []string{"lead", "researcher"}, note("y"))
		require.ErrorIs(t, err, team.ErrDenied)
		require.Empty(t, pending(t, c, "lead"), "one that is denied keeps the others from getting it")
		require.Len(t, pending(t, c, "researcher"), 1)
	})

	b, err := team.OpenBoard(t.Context(), t.TempDir()+"/board", &team.BoardOptions{Permissions: m.Permissions()})
	require.NoError(t, err)
	defer b.Close()
	write := func(role team.Role, task string) error {
		_, err := b.Write(as(t.Context(), role), team.Draft{Session: "s", Task: task, Topic: "t", Body: "x"})
		return err
	}
	t.Run("who may write to the board", func(t *testing.T) {
		require.NoError(t, write("tester", "secret"))
		require.NoError(t, write("reviewer", "open"))
		require.ErrorIs(t, write("reviewer", "secret"), team.ErrDenied)
		require.ErrorIs(t, write("stranger", "open"), team.ErrDenied)
		n := 0
		for _, err := range b.Entries(t.Context(), team.Filter{}) {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, 2, n, "a refusal writes nothing")
	})
	t.Run("a handoff that may not be signalled writes no entry", func(t *testing.T) {
		_, err := c.HandOff(as(t.Context(), "tester"), b, team.Handoff{To: "researcher", Signal: team.Signal{Kind: team.KindHandoff, Summary: "x", Key: "k"},
			Draft: team.Draft{Session: "handoff", Task: "t", Topic: "t", Body: "x"}})
		require.ErrorIs(t, err, team.ErrDenied)
		for e, err := range b.Entries(t.Context(), team.Filter{Session: "handoff"}) {
			t.Fatal(e, err)
		}
	})
	t.Run("an ask is refused at once, as nobody is there to answer", func(t *testing.T) {
		err := write("reviewer", "release")
		var pe *team.PermissionError
		require.True(t, errors.As(err, &pe))
		require.Equal(t, team.Unanswered, pe.Effect)
		require.ErrorIs(t, err, team.ErrDenied)
	})
	t.Run("the caller is the session that is asked about, or it is denied", func(t *testing.T) {
		p := m.Permissions()
		e, err := p.Evaluate(as(t.Context(), "lead"), "ses_lead", team.PermissionBoard, "s/t")
		require.NoError(t, err)
		require.Equal(t, team.Allow, e)
		e, err = p.Evaluate(as(t.Context(), "lead"), "ses_tester", team.PermissionBoard, "s/t")
		require.NoError(t, err)
		require.Equal(t, team.Deny, e)
		_, err = p.Evaluate(context.Background(), "ses_lead", team.PermissionBoard, "s/t")
		require.ErrorIs(t, err, team.ErrInvalid)
	})
	t.Run("an error of the port refuses", func(t *testing.T) {
		boom := errors.New("boom")
		b, err := team.OpenBoard(t.Context(), t.TempDir()+"/board", &team.BoardOptions{Permissions: team.PermissionsFunc(
			func(context.Context, team.SessionID, string, string) (team.Effect, error) { return team.Allow, boom })})
		require.NoError(t, err)
		defer b.Close()
		_, err = b.Write(as(t.Context(), "lead"), team.Draft{Session: "s", Task: "t", Topic: "t", Body: "x"})
		require.ErrorIs(t, err, boom)
	})
}

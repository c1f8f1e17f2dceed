package team_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// Every write of a channel leaves a trail line, also one that was refused, and
// never a body, a summary or the session that it was for.
func TestChannelsLeaveATrail(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "trail")
	trail, err := team.OpenTrail(t.Context(), dir, nil)
	require.NoError(t, err)
	defer trail.Close()
	b := newBoard(t, &team.BoardOptions{Trace: trail.Record})
	c, err := team.OpenSignals(t.Context(), new(memstore.Store), &team.SignalOptions{Trace: trail.Record})
	require.NoError(t, err)
	for _, role := range []team.Role{"lead", "tester", "reviewer"} {
		m := team.Member{Session: team.SessionID("ses_" + role), Role: role}
		if role != "lead" {
			m.Parent = "ses_lead"
		}
		require.NoError(t, c.Enrol(as(t.Context(), "lead"), m))
	}
	tester, lead := as(t.Context(), "tester"), as(t.Context(), "lead")

	e, err := b.Write(tester, team.Draft{Session: "s", Task: "auth", Topic: "report", Body: "SECRET body"})
	require.NoError(t, err)
	_, err = b.Write(tester, team.Draft{Session: "s", Task: "auth", Topic: "report"})
	require.Error(t, err)
	s := team.Signal{Kind: team.KindSettled, Summary: "SECRET summary", Body: "SECRET text", Refs: []team.Ref{e.Ref()}, Key: "k"}
	sent, err := c.Send(tester, "ses_lead", s)
	require.NoError(t, err)
	_, err = c.Send(tester, "ses_lead", s)
	require.NoError(t, err)
	_, err = c.Send(tester, "nobody", s)
	require.Error(t, err)
	both, err := c.SendAll(lead, []string{"tester", "reviewer"}, note("SECRET go"))
	require.NoError(t, err)
	require.NoError(t, c.Cancel(lead, both[0]))
	got, err := c.Receive(lead, nil)
	require.NoError(t, err)
	require.NoError(t, c.Extend(lead, time.Hour, got...))
	require.NoError(t, c.Ack(lead, got...))
	require.Error(t, c.Ack(lead, got[0], team.Received{Signal: team.Signal{ID: "sig_other", Seq: 99}}))
	_, err = b.Lease(tester, "s", time.Hour)
	require.NoError(t, err)

	var lines []string
	for line, err := range team.ReadTrail(t.Context(), dir) {
		require.NoError(t, err)
		ev := line.Event
		lines = append(lines, strings.Join([]string{ev.Op, string(ev.By.Role), ev.Outcome, ev.Reason}, " "))
		if ev.Op == "inbox.send" && ev.Outcome == "ok" && ev.By.Role == "tester" {
			require.Equal(t, string(sent.ID), ev.ID)
			require.EqualValues(t, len("SECRET summarySECRET text"), ev.Size)
			require.Equal(t, trail.TargetDigest("ses_lead"), line.Target, "a target is a digest")
		}
		if ev.Op == "board.write" && ev.Outcome == "ok" {
			require.Equal(t, []any{"s/auth/01-tester-report.md", e.Size, e.SHA256, 1}, []any{ev.ID, ev.Size, ev.SHA256, ev.Round})
		}
	}
	require.Equal(t, []string{
		"trail.begin   ",
		"inbox.enrol lead ok ", "inbox.enrol lead ok ", "inbox.enrol lead ok ",
		"board.write tester ok ", "board.write tester refused invalid",
		"inbox.send tester ok ", "inbox.send tester replayed ", "inbox.send tester refused unknown recipient",
		"inbox.send lead ok ", "inbox.send lead ok ", "inbox.cancel lead ok ",
		"inbox.receive lead ok attempt 1", "inbox.extend lead ok ", "inbox.ack lead ok ", "inbox.ack lead ok ", "inbox.ack lead refused not found",
		"board.lease tester ok ",
	}, lines)
	for name, content := range files(t, dir) {
		require.NotContains(t, content, "SECRET", name)
		if strings.HasSuffix(name, ".jsonl") {
			require.NotRegexp(t, `"target":"ses_`, content)
		}
	}
	report, err := team.VerifyTrail(t.Context(), dir)
	require.NoError(t, errors.Join(err, report.Err()))
	_, err = os.Stat(dir)
	require.NoError(t, err)
}

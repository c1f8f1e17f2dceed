package team_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

// What the sender can know: each state is a fact of the inbox, with its time.
func TestSignalStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, &team.SignalOptions{MaxAttempts: 1, Lease: time.Minute})
		tester, lead := as(t.Context(), "tester"), as(t.Context(), "lead")
		sent := send(t, c, "tester", "lead", note("x"))
		status := func() team.Status {
			t.Helper()
			s, err := c.Status(tester, sent)
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), s.Since, 0)
			return s
		}
		require.Equal(t, team.SignalQueued, status().State)
		time.Sleep(time.Hour)
		got, err := c.Receive(lead, nil)
		require.NoError(t, err)
		require.Equal(t, []any{team.SignalRead, 1}, []any{status().State, status().Attempt})
		time.Sleep(time.Second)
		require.NoError(t, c.Ack(lead, got...))
		require.Equal(t, team.SignalAcked, status().State)
		_, err = c.Status(as(t.Context(), "reviewer"), sent)
		require.ErrorIs(t, err, team.ErrDenied)
		_, err = c.Status(tester, team.Sent{To: "ses_lead", Seq: 99, ID: sent.ID})
		require.ErrorIs(t, err, team.ErrNotFound)

		s := note("brief")
		s.Expires = time.Now().Add(time.Minute)
		sent = send(t, c, "tester", "lead", s)
		time.Sleep(time.Minute)
		require.Equal(t, team.SignalExpired, status().State)
		sent = send(t, c, "tester", "lead", note("y"))
		require.NoError(t, c.Cancel(tester, sent))
		require.Equal(t, team.SignalCancelled, status().State)
	})
}

func TestSignalDeadLetterIsRedrivenByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, &team.SignalOptions{MaxAttempts: 2, Lease: time.Minute})
		lead := as(t.Context(), "lead")
		sent := send(t, c, "tester", "lead", note("poison"))
		send(t, c, "tester", "lead", note("good"))
		for range 2 {
			_, err := c.Receive(lead, nil)
			require.NoError(t, err)
			time.Sleep(time.Minute + time.Second) // the receiver dies of it
		}
		got, err := c.Receive(lead, nil)
		require.NoError(t, err)
		require.Equal(t, "good", got[0].Summary)
		require.NoError(t, c.Ack(lead, got...))
		var dead []team.Queued
		for q, err := range c.DeadLetters(lead) {
			require.NoError(t, err)
			dead = append(dead, q)
		}
		require.Len(t, dead, 1)
		require.Equal(t, []any{sent.ID, team.SignalDead, 2}, []any{dead[0].ID, dead[0].State, dead[0].Attempt})
		require.Contains(t, dead[0].Evidence, "2 times")
		require.NoError(t, c.Redrive(lead, dead...))
		require.ErrorIs(t, c.Redrive(lead, dead...), team.ErrConflict)
		got, err = c.Receive(lead, nil)
		require.NoError(t, err)
		require.Equal(t, []any{"poison", 1, sent.Seq}, []any{got[0].Summary, got[0].Attempt, got[0].Seq})
	})
}

func TestSignalDeliveryChangesOnlyWhilePending(t *testing.T) {
	c, _ := newTeam(t, nil)
	tester, lead := as(t.Context(), "tester"), as(t.Context(), "lead")
	s := note("x")
	s.Key = "k"
	sent := send(t, c, "tester", "lead", s)
	require.NoError(t, c.SetDelivery(tester, sent, team.DeliveryQueue))
	require.ErrorIs(t, c.SetDelivery(tester, sent, "soon"), team.ErrInvalid)
	require.ErrorIs(t, c.SetDelivery(as(t.Context(), "reviewer"), sent, team.DeliverySteer), team.ErrDenied)
	require.True(t, send(t, c, "tester", "lead", s).Replayed, "a retry is the same signal still")
	got, err := c.Receive(lead, nil)
	require.NoError(t, err)
	require.Equal(t, team.DeliveryQueue, got[0].Delivery)
	require.Equal(t, []any{sent.ID, sent.Seq, "x"}, []any{got[0].ID, got[0].Seq, got[0].Summary})
	require.ErrorIs(t, c.SetDelivery(tester, sent, team.DeliverySteer), team.ErrConflict)
	require.NoError(t, c.Ack(lead, got...))
	require.ErrorIs(t, c.SetDelivery(tester, sent, team.DeliverySteer), team.ErrConflict)
}

// A fenced epoch delivers nothing to the next run.
func TestSignalFencedEpoch(t *testing.T) {
	c, store := newTeam(t, &team.SignalOptions{Epoch: "run-1"})
	lead := as(t.Context(), "lead")
	sent := send(t, c, "tester", "lead", note("early"))
	require.NoError(t, c.Fence(lead, "run-1"))
	require.NoError(t, c.Fence(lead, "run-1"), "twice is no error")
	_, err := c.Send(as(t.Context(), "tester"), "lead", note("late"))
	require.ErrorIs(t, err, team.ErrFenced)

	next, err := team.OpenSignals(t.Context(), store, &team.SignalOptions{Epoch: "run-2"})
	require.NoError(t, err)
	send(t, next, "tester", "lead", note("new"))
	got, err := next.Receive(lead, &team.ReceiveOptions{Max: 9})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, "new", got[0].Summary)
	status, err := c.Status(as(t.Context(), "tester"), sent)
	require.NoError(t, err)
	require.Equal(t, team.SignalDead, status.State)
	require.Contains(t, status.Evidence, "fenced")
	for _, epoch := range []string{"", "a\nb", strings.Repeat("e", 257)} {
		require.Error(t, c.Fence(lead, epoch), "%q", epoch)
	}
	s := note("x")
	s.Epoch = "a\x00"
	_, err = c.Send(as(t.Context(), "tester"), "lead", s)
	require.ErrorIs(t, err, team.ErrInvalid)
}

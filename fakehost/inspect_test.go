package fakehost_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

func inspect(t *testing.T, h *fakehost.Host, id string) team.Inspection {
	t.Helper()
	got, err := h.Sessions().(team.Inspector).Inspect(t.Context(), team.SessionID(id))
	require.NoError(t, err)
	return got
}

func TestInspect(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		f := dispatch(t, &fakehost.Options{Profile: p}, foreground, slow)
		time.Sleep(500 * time.Millisecond)
		child := team.SessionID(f.child(t).ID)
		got := inspect(t, f.h, f.parent)
		require.Equal(t, team.ActivityRunning, got.Activity)
		require.Equal(t, []team.SessionID{child}, got.Open)
		require.Empty(t, got.Asks)
		require.NotNil(t, got.Asks, "none, which is not: not said")

		wait(t, f.h, f.parent)
		got = inspect(t, f.h, string(child))
		require.Equal(t, team.SessionID(f.parent), got.Parent)
		require.Equal(t, team.ActivityIdle, got.Activity)
		require.Equal(t, []team.SessionID{}, got.Open)
		require.Contains(t, got.Last.Text, "hello")
		require.Equal(t, "stop", got.Last.Finish)
		require.False(t, got.Last.Completed.IsZero())
		require.Empty(t, got.Last.Error)
		if p.Generation == 2 {
			require.Equal(t, "succeeded", got.Outcome)
			require.False(t, got.Idle.IsZero())
		}

		children, err := f.h.Sessions().(team.ChildLister).ChildSessions(t.Context(), team.SessionID(f.parent))
		require.NoError(t, err)
		require.Len(t, children, 1)
		require.Equal(t, child, children[0].ID)
		require.Equal(t, team.SessionID(f.parent), children[0].Parent)
		_, err = f.h.Sessions().(team.Inspector).Inspect(t.Context(), "ses_nobody")
		require.ErrorIs(t, err, team.ErrNotFound)
		_, err = f.h.Sessions().(team.ChildLister).ChildSessions(t.Context(), "ses_nobody")
		require.ErrorIs(t, err, team.ErrNotFound)
	})
}

func TestInspectTellsFailedFromAborted(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		fails := true
		opts := script(p, func(ctx context.Context, turn *fakehost.Turn) (string, error) {
			if err := turn.Say(ctx, "half"); err != nil || fails {
				return "", errors.New("scripted failure")
			}
			return "", turn.Sleep(ctx, time.Hour)
		})
		h := open(t, opts)
		session := create(t, h)
		got := inspect(t, h, session)
		require.Equal(t, team.ActivityIdle, got.Activity)
		require.Nil(t, got.Last)

		prompt(t, h, session, "go")
		wait(t, h, session)
		got = inspect(t, h, session)
		require.Contains(t, got.Last.Error, "scripted failure")
		require.False(t, got.Last.Aborted)

		fails = false
		prompt(t, h, session, "again")
		synctest.Wait()
		require.True(t, inspect(t, h, session).Last.Completed.IsZero(), "it is being written")
		_, err := h.Session.Interrupt(t.Context(), session, false)
		require.NoError(t, err)
		wait(t, h, session)
		got = inspect(t, h, session)
		require.True(t, got.Last.Aborted, got.Last.Error)
		require.Equal(t, "half", got.Last.Text)
	})
}

func TestInspectSeesWhatWaits(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		opts := script(p, func(ctx context.Context, turn *fakehost.Turn) (string, error) {
			_, err := turn.Call(ctx, "careful", nil)
			return "", err
		})
		opts.Tools = []fakehost.Tool{{Name: "careful", Run: func(ctx context.Context, c *fakehost.ToolCall) (fakehost.ToolOutput, error) {
			return fakehost.ToolOutput{}, c.Ask(ctx, "careful", []string{"x"}, nil, nil)
		}}}
		opts.Agents[0].Permissions = []fakehost.Rule{rule("careful", "*", team.Ask)}
		h := open(t, opts)
		session := create(t, h)
		prompt(t, h, session, "go")
		synctest.Wait()
		got := inspect(t, h, session)
		require.Len(t, got.Asks, 1)
		require.Equal(t, "permission", got.Asks[0].Kind)
		require.Equal(t, team.SessionID(session), got.Asks[0].Session)
	})
	bubble(t, "a prompt that waits in the inbox of a session that never ran: it may be about to", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, echo))
		session := create(t, h)
		send(t, h, session, fakehost.Prompt{Text: "later", NoResume: true})
		require.Empty(t, inspect(t, h, session).Activity)
	})
}

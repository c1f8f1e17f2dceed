package team_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// swept returns what a report says, without the digests in keys.
func swept(r team.SignalSweep) map[string]string {
	all := map[string]string{}
	for _, item := range r.Items {
		key := item.Key
		for _, digested := range []string{"team/handoff/", "team/relayed/ses_lead/"} {
			if strings.HasPrefix(key, digested) {
				key = digested
			}
		}
		all[key] = fmt.Sprint(item.Action, " ", item.Reason)
	}
	return all
}

// A plan changes nothing and says what the sweep then does.
func sweepSignals(t *testing.T, c *team.SignalChannel, opts *team.SignalSweepOptions) map[string]string {
	t.Helper()
	plan, err := c.PlanSweep(t.Context(), opts)
	require.NoError(t, err)
	again, err := c.PlanSweep(t.Context(), opts)
	require.NoError(t, err)
	require.Equal(t, plan, again, "a plan changes nothing")
	did, err := c.Sweep(t.Context(), opts)
	require.NoError(t, err)
	require.Equal(t, plan, did)
	return swept(did)
}

// The record of a handoff goes by its age, and never before its signal is settled.
func TestSignalSweepOfHandoffs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, b, _, h := newHandoff(t)
		architect, implementer := as(t.Context(), "architect"), as(t.Context(), "implementer")
		first, err := c.HandOff(architect, b, h)
		require.NoError(t, err)
		opts := &team.SignalSweepOptions{TTL: 10 * time.Hour}
		time.Sleep(10*time.Hour - time.Millisecond)
		require.Equal(t, "keep fresh", sweepSignals(t, c, opts)["team/handoff/"])
		time.Sleep(time.Hour)
		require.Equal(t, "keep needed", sweepSignals(t, c, opts)["team/handoff/"], "its signal lies in the inbox")
		require.Equal(t, "keep fresh", sweepSignals(t, c, &team.SignalSweepOptions{TTL: team.Forever})["team/handoff/"])
		again, err := c.HandOff(architect, b, h)
		require.NoError(t, err)
		require.Equal(t, first.Sent.ID, again.Sent.ID)

		got, err := c.Receive(implementer, nil)
		require.NoError(t, err)
		require.Equal(t, "keep needed", sweepSignals(t, c, opts)["team/handoff/"], "it is in somebody's hands")
		require.NoError(t, c.Ack(implementer, got...))
		require.Equal(t, "keep fresh", sweepSignals(t, c, nil)["team/handoff/"], "the default is 30 days")
		require.Equal(t, "remove expired", sweepSignals(t, c, opts)["team/handoff/"])
		require.NotContains(t, sweepSignals(t, c, opts), "team/handoff/")

		h.Ledger, h.Edits = nil, nil
		anew, err := c.HandOff(architect, b, h)
		require.NoError(t, err)
		require.False(t, anew.Replayed, "after that it is a handoff of its own")
		require.NotEqual(t, first.Sent.ID, anew.Sent.ID)
	})
}

// What a repeat of an unfinished handoff needs is not the sweep's to take.
func TestSignalSweepAndAnUnfinishedHandoff(t *testing.T) {
	crash := errors.New("killed")
	for what, break_ := range map[string]func(*brittle){
		"before the commit": func(s *brittle) { s.before = crash },
		"after the commit":  func(s *brittle) { s.after = crash }, // the record has no seq
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, store, b, _, h := newHandoff(t)
				architect := as(t.Context(), "architect")
				for i := range 3 {
					send(t, c, "architect", "implementer", note(fmt.Sprint(i)))
				}
				break_(store)
				_, err := c.HandOff(architect, b, h)
				require.ErrorIs(t, err, crash)
				store.before, store.after = nil, nil
				time.Sleep(365 * 24 * time.Hour)
				sweepSignals(t, c, nil)
				done, err := c.HandOff(architect, b, h)
				require.NoError(t, err)
				require.Equal(t, what == "after the commit", done.Replayed)
				require.Len(t, pending(t, c, "implementer"), 4, "one signal of it")
				require.Len(t, entries(t, b, team.Filter{}), 1)
			})
		})
	}
}

func TestSignalSweepOfFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, nil)
		s := note("late")
		s.Epoch = "run-1"
		send(t, c, "tester", "lead", s)
		for _, epoch := range []string{"run-1", "run-2"} {
			require.NoError(t, c.Fence(t.Context(), epoch))
		}
		got := sweepSignals(t, c, nil)
		require.Equal(t, []string{"keep fresh", "keep fresh"}, []string{got["team/fenced/run-1"], got["team/fenced/run-2"]})
		time.Sleep(team.DefaultSignalTTL)
		got = sweepSignals(t, c, nil)
		require.Equal(t, []string{"keep needed", "remove expired"}, []string{got["team/fenced/run-1"], got["team/fenced/run-2"]})
		none, err := c.Receive(as(t.Context(), "lead"), &team.ReceiveOptions{NoWait: true})
		require.NoError(t, err)
		require.Empty(t, none, "the next run gets nothing of it, sweep or no sweep")
		require.Equal(t, "remove expired", sweepSignals(t, c, nil)["team/fenced/run-1"])
	})
}

func TestSignalSweepOfTheRoster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []team.TraceEvent
		store := new(memstore.Store)
		c, err := team.OpenSignals(t.Context(), store, &team.SignalOptions{Trace: func(_ context.Context, e team.TraceEvent) {
			if e.Op == "inbox.sweep" {
				lines = append(lines, e)
			}
		}})
		require.NoError(t, err)
		for _, role := range []team.Role{"lead", "gone", "unsure"} {
			require.NoError(t, c.Enrol(t.Context(), team.Member{Session: "ses_" + team.SessionID(role), Role: role}))
		}
		for _, session := range []string{"lead", "gone"} { // killed relays
			_, err := store.Put(t.Context(), "team/relay/ses_"+session, []byte(`{"id":"x","lease":1}`), "")
			require.NoError(t, err)
		}
		sent := send(t, c, "lead", "gone", note("x"))
		require.Equal(t, "keep fresh", sweepSignals(t, c, nil)["team/roster/ses_gone"], "nobody says that it is gone")
		down := errors.New("the host is down")
		opts := &team.SignalSweepOptions{Alive: func(_ context.Context, s team.SessionID) (bool, error) {
			if s == "ses_unsure" {
				return false, down
			}
			return s != "ses_gone", nil
		}}
		plan, err := c.PlanSweep(t.Context(), opts)
		require.NoError(t, err)
		report, err := c.Sweep(t.Context(), opts)
		require.NoError(t, err)
		require.Equal(t, plan, report, "it does what the plan says")
		require.Equal(t, map[string]string{
			"team/roster/ses_lead": "keep fresh", "team/roster/ses_gone": "remove session dead", "team/roster/ses_unsure": "keep unknown",
			"team/relay/ses_lead": "keep fresh", "team/relay/ses_gone": "remove leftover",
		}, swept(report))
		require.Equal(t, 2, report.Removed())
		for _, item := range report.Items {
			require.Equal(t, item.Key == "team/roster/ses_unsure", item.Err != nil)
		}
		_, err = c.Send(as(t.Context(), "lead"), "gone", note("y"))
		require.ErrorIs(t, err, team.ErrUnknownRecipient)
		st, err := c.Status(as(t.Context(), "lead"), sent)
		require.NoError(t, err)
		require.Equal(t, team.SignalQueued, st.State, "its inbox stays")
		require.Len(t, lines, 2, "a line for each removal")
		for _, e := range lines {
			require.NotContains(t, e.ID, "ses_")
			require.Equal(t, []any{team.SessionID("ses_gone"), "ok"}, []any{e.Target, e.Outcome})
		}
	})
}

// What is known of a relayed signal is kept as long as the signal.
func TestSignalSweepOfRelayedSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, store := newTeam(t, nil)
		sent, _ := relayed(t, c, note("x"))
		time.Sleep(365 * 24 * time.Hour)
		require.Equal(t, "keep fresh", sweepSignals(t, c, nil)["team/relayed/ses_lead/"])
		require.NoError(t, c.AckID(as(t.Context(), "lead"), sent.ID))
		forgetful, err := team.OpenSignals(t.Context(), forgetful{store}, nil)
		require.NoError(t, err)
		require.Equal(t, "remove forgotten", sweepSignals(t, forgetful, nil)["team/relayed/ses_lead/"])
	})
}

// A forgetful store has swept its settled items.
type forgetful struct{ *memstore.Store }

func (f forgetful) Items(ctx context.Context, q string, o team.ListOptions) iter.Seq2[team.StoredItem, error] {
	o.Settled = false
	return f.Store.Items(ctx, q, o)
}

// A session that is enrolled again in the middle of a sweep stays.
func TestSignalSweepKeepsWhatIsWrittenMeanwhile(t *testing.T) {
	c, _ := newTeam(t, nil)
	report, err := c.Sweep(t.Context(), &team.SignalSweepOptions{Alive: func(ctx context.Context, s team.SessionID) (bool, error) {
		return s != "ses_tester", c.Enrol(ctx, team.Member{Session: "ses_tester", Role: "tester", Parent: "ses_lead"})
	}})
	require.NoError(t, err)
	require.Zero(t, report.Removed())
	require.Equal(t, "keep busy", swept(report)["team/roster/ses_tester"])
	send(t, c, "lead", "tester", note("welcome back"))
}

func TestSignalSweepKeepsWhatItCannotRead(t *testing.T) {
	c, store := newTeam(t, nil)
	var keys []string
	for _, prefix := range []string{"team/handoff/", "team/fenced/", "team/relayed/ses_x/"} {
		for i, value := range []string{"", "{", "{}", "null"} {
			key := fmt.Sprint(prefix, strings.Repeat("x", 13), i)
			_, err := store.Put(t.Context(), key, []byte(value), "")
			require.NoError(t, err)
			keys = append(keys, key)
		}
	}
	report, err := c.Sweep(t.Context(), nil)
	require.NoError(t, err)
	require.Zero(t, report.Removed())
	found := map[string]bool{}
	for _, item := range report.Items {
		if !strings.HasPrefix(item.Key, "team/roster/") {
			require.Equal(t, team.SweepDamaged, item.Reason, item.Key)
			require.ErrorIs(t, item.Err, team.ErrCorrupt)
			found[item.Key] = true
		}
	}
	for _, key := range keys {
		require.True(t, found[key], key)
	}
	_, err = c.Sweep(t.Context(), &team.SignalSweepOptions{TTL: -2})
	require.ErrorIs(t, err, team.ErrInvalid)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Sweep(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
}

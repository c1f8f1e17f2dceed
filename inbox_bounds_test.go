package team_test

import (
	"context"
	"encoding/json"
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

func TestSignalStoreErrorsComeThrough(t *testing.T) {
	store := &failing{Store: new(memstore.Store)}
	c, err := team.OpenSignals(t.Context(), store, nil)
	require.NoError(t, err)
	require.NoError(t, c.Enrol(t.Context(), team.Member{Session: "ses_lead", Role: "lead"}))
	s := note("x")
	s.Key = "k"
	store.fail = errors.New("disk on fire")
	_, err = c.Send(as(t.Context(), "tester"), "ses_lead", s)
	require.ErrorIs(t, err, store.fail)
	_, err = c.Send(as(t.Context(), "tester"), "lead", s)
	require.ErrorIs(t, err, store.fail)
	_, err = c.Receive(as(t.Context(), "lead"), nil)
	require.ErrorIs(t, err, store.fail)
	for _, err := range c.Pending(as(t.Context(), "lead")) {
		require.ErrorIs(t, err, store.fail)
	}
	_, err = team.OpenSignals(t.Context(), store, nil)
	require.ErrorIs(t, err, store.fail)
	store.fail = nil
	require.False(t, send(t, c, "tester", "lead", s).Replayed, "a retry settles it")
}

// failing is a store whose disk fails on demand.
type failing struct {
	team.Store
	fail error
}

func (f *failing) Append(ctx context.Context, q string, items []team.Item, max int) ([]team.Receipt, error) {
	if f.fail != nil {
		return nil, f.fail
	}
	return f.Store.Append(ctx, q, items, max)
}

func (f *failing) Claim(ctx context.Context, q string, o team.ClaimOptions) ([]team.Claim, error) {
	if f.fail != nil {
		return nil, f.fail
	}
	return f.Store.Claim(ctx, q, o)
}

func (f *failing) Items(ctx context.Context, q string, o team.ListOptions) iter.Seq2[team.StoredItem, error] {
	if f.fail != nil {
		return func(yield func(team.StoredItem, error) bool) { yield(team.StoredItem{}, f.fail) }
	}
	return f.Store.Items(ctx, q, o)
}

func (f *failing) Get(ctx context.Context, key string) (team.Record, error) {
	if f.fail != nil {
		return team.Record{}, f.fail
	}
	return f.Store.Get(ctx, key)
}

// Nothing that a model chooses makes a signal cost more than the cap and the frame.
func TestSignalCostIsBounded(t *testing.T) {
	c, _ := newTeam(t, nil)
	digest := strings.Repeat("0", 64)
	for what, change := range map[string]func(*team.Signal){
		"invisible characters": func(s *team.Signal) { s.Body = strings.Repeat("\u200b", 2000) },
		"escaped characters":   func(s *team.Signal) { s.Body = strings.Repeat("<", 2000) },
		"a long summary":       func(s *team.Signal) { s.Summary = strings.Repeat("&", 600) },
		"a body in a path": func(s *team.Signal) {
			s.Refs = []team.Ref{{Path: "/" + strings.Repeat("prose ", 2000), SHA256: digest}}
		},
	} {
		s := note("x")
		change(&s)
		_, err := c.Send(as(t.Context(), "tester"), "lead", s)
		require.ErrorIs(t, err, team.ErrTooLarge, what)
	}
	s := note("x")
	s.Body = team.FitTokens("x"+strings.Repeat("界", 600), 512)[1:]
	for len(s.Refs) < 16 {
		s.Refs = append(s.Refs, team.Ref{Path: "/" + strings.Repeat("p", 120), SHA256: digest, Size: 1})
	}
	send(t, c, "tester", "lead", s)
	got, err := c.Receive(as(t.Context(), "lead"), &team.ReceiveOptions{Budget: team.DefaultMaxTokens + team.MaxFrameTokens})
	require.NoError(t, err, "a budget of both always moves")
	require.LessOrEqual(t, team.EstimateTokens(team.FormatSignal(c.Secret(), got[0].Signal)), team.DefaultMaxTokens+team.MaxFrameTokens)
}

func TestSignalCallerIsChecked(t *testing.T) {
	c, _ := newTeam(t, nil)
	for _, caller := range []team.Caller{{Session: "ses_\xff", Role: "r"}, {Session: "s\x00", Role: "r"}, {Session: "s", Role: "r\n"},
		{Session: "s"}, {Role: "r"}, {Session: team.SessionID(strings.Repeat("s", 257)), Role: "r"}} {
		ctx := team.WithCaller(t.Context(), caller)
		_, err := c.Send(ctx, "lead", note("x"))
		require.Error(t, err, "%+v", caller)
	}
	require.Empty(t, pending(t, c, "lead"))
	_, err := c.Receive(as(t.Context(), "stranger"), nil)
	require.ErrorIs(t, err, team.ErrNotFound, "who is not on the roster would wait for ever")
	require.ErrorContains(t, err, "enrol")
}

func TestSignalLeaseIsExtendedAndReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, &team.SignalOptions{Lease: time.Minute})
		send(t, c, "tester", "lead", note("long work"))
		lead := as(t.Context(), "lead")
		got, err := c.Receive(lead, &team.ReceiveOptions{Lease: time.Hour})
		require.NoError(t, err)
		require.Equal(t, time.Now().Add(time.Hour).UnixMilli(), got[0].Until.UnixMilli())
		require.NoError(t, c.Extend(lead, 3*time.Hour, got...))
		time.Sleep(2 * time.Hour)
		none, err := c.Receive(lead, &team.ReceiveOptions{NoWait: true})
		require.NoError(t, err)
		require.Empty(t, none)

		// A tool process without memory acks what it wrote down.
		data, err := json.Marshal(got[0])
		require.NoError(t, err)
		var back team.Received
		require.NoError(t, json.Unmarshal(data, &back))
		require.NoError(t, c.Release(lead, time.Minute, back))
		for s := range c.Pending(lead) {
			require.Equal(t, []any{team.SignalQueued, 1}, []any{s.State, s.Attempt})
		}
		start := time.Now()
		again, err := c.Receive(lead, nil)
		require.NoError(t, err)
		require.Equal(t, time.Minute, time.Since(start))
		require.NoError(t, c.Ack(lead, again...))
	})
}

func TestSignalExpiresInAnyZone(t *testing.T) {
	c, _ := newTeam(t, nil)
	s := note("x")
	s.Key, s.Expires = "k", time.Now().Add(time.Hour)
	first := send(t, c, "tester", "lead", s)
	s.Expires = s.Expires.In(time.FixedZone("far", 13*3600))
	require.Equal(t, first.ID, send(t, c, "tester", "lead", s).ID, "the same instant is the same signal")
}

func TestSignalSecretDoesNotPrint(t *testing.T) {
	c, _ := newTeam(t, nil)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		require.Contains(t, fmt.Sprintf(verb, c.Secret()), "hidden")
	}
}

func TestSignalNamesAreFoundQuickly(t *testing.T) {
	c, _ := newTeam(t, nil)
	for i := range 2000 {
		m := team.Member{Session: team.SessionID(fmt.Sprintf("ses_%0200d", i)), Role: "helper", Parent: team.SessionID(fmt.Sprintf("ses_%0200d", i-1))}
		require.NoError(t, c.Enrol(t.Context(), m))
	}
	_, err := c.Send(as(t.Context(), "lead"), strings.Repeat("x", 250), note("x"))
	require.ErrorIs(t, err, team.ErrUnknownRecipient)
	_, err = c.Send(as(t.Context(), "lead"), "helper", note("x"))
	require.ErrorIs(t, err, team.ErrUnknownRecipient)
	require.Less(t, len(err.Error()), 3000, "not all 2000 are named in the text")
}

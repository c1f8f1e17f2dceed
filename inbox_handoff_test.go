package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// A brittle store fails its commits, before or after they are made.
type brittle struct {
	*memstore.Store
	before, after error
}

func (b *brittle) Commit(ctx context.Context, appends []team.Batch, changes []team.Change) (team.Committed, error) {
	if b.before != nil {
		return team.Committed{}, b.before
	}
	done, err := b.Store.Commit(ctx, appends, changes)
	if err == nil && b.after != nil {
		return team.Committed{}, b.after
	}
	return done, err
}

func newHandoff(t *testing.T) (*team.SignalChannel, *brittle, *team.Board, *team.Ledger, team.Handoff) {
	t.Helper()
	store := &brittle{Store: new(memstore.Store)}
	c, err := team.OpenSignals(t.Context(), store, nil)
	require.NoError(t, err)
	for _, role := range []team.Role{"architect", "implementer"} {
		require.NoError(t, c.Enrol(t.Context(), team.Member{Session: team.SessionID("ses_" + role), Role: role}))
	}
	ledger, err := team.OpenLedger(t.Context(), store, team.Scope{Project: "p"}, nil)
	require.NoError(t, err)
	return c, store, newBoard(t, nil), ledger, team.Handoff{
		To:     "implementer",
		Draft:  team.Draft{Session: "s", Task: "auth", Topic: "api", Body: "# API\n"},
		Signal: team.Signal{Kind: team.KindHandoff, Summary: "the API is ready", Key: "auth-api"},
		Ledger: ledger,
		Edits:  []team.Edit{{Key: "auth", Value: json.RawMessage(`"designed"`)}},
	}
}

func TestHandoffIsOneStep(t *testing.T) {
	c, _, b, ledger, h := newHandoff(t)
	architect := as(t.Context(), "architect")
	done, err := c.HandOff(architect, b, h)
	require.NoError(t, err)
	require.False(t, done.Replayed)
	got, err := c.Receive(as(t.Context(), "implementer"), nil)
	require.NoError(t, err)
	require.Equal(t, []team.Ref{done.Entry.Ref()}, got[0].Refs)
	require.Equal(t, []any{done.Sent.ID, done.Sent.Seq}, []any{got[0].ID, got[0].Seq})
	x, err := b.ReadRef(architect, got[0].Refs[0], team.Range{})
	require.NoError(t, err)
	require.Equal(t, "# API\n", x.Text)
	fact, err := ledger.Get(architect, "auth")
	require.NoError(t, err)
	require.JSONEq(t, `"designed"`, string(fact.Value))

	again, err := c.HandOff(architect, b, h)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, []any{done.Entry, done.Sent.ID, done.Sent.Seq}, []any{again.Entry, again.Sent.ID, again.Sent.Seq})
	require.Empty(t, pending(t, c, "architect"))
	require.Len(t, entries(t, b, team.Filter{}), 1)

	// Done is done, whatever became of the receiver and the run.
	require.NoError(t, c.Leave(t.Context(), "ses_implementer"))
	again, err = c.HandOff(architect, b, h)
	require.NoError(t, err)
	require.True(t, again.Replayed)

	for what, change := range map[string]func(*team.Handoff){
		"another body":     func(h *team.Handoff) { h.Draft.Body = "another\n" },
		"another delivery": func(h *team.Handoff) { h.Signal.Delivery = team.DeliveryQueue },
		"another expiry":   func(h *team.Handoff) { h.Signal.Expires = time.Now().Add(time.Hour) },
		"other edits":      func(h *team.Handoff) { h.Edits = nil },
	} {
		other := h
		change(&other)
		_, err = c.HandOff(architect, b, other)
		require.ErrorIs(t, err, team.ErrConflict, what)
	}
	require.Len(t, entries(t, b, team.Filter{}), 1)
}

// Killed anywhere, repeated, it finds what is done and does the rest.
func TestHandoffRepeatedAfterACrash(t *testing.T) {
	crash := errors.New("killed")
	for what, break_ := range map[string]func(*brittle){
		"before the commit": func(s *brittle) { s.before = crash },
		"after the commit":  func(s *brittle) { s.after = crash },
	} {
		t.Run(what, func(t *testing.T) {
			c, store, b, ledger, h := newHandoff(t)
			architect := as(t.Context(), "architect")
			break_(store)
			_, err := c.HandOff(architect, b, h)
			require.ErrorIs(t, err, crash)
			require.Len(t, entries(t, b, team.Filter{}), 1, "the entry comes first")
			signals := pending(t, c, "implementer")
			_, lerr := ledger.Get(architect, "auth")
			require.Equal(t, len(signals) == 1, lerr == nil, "signal and ledger go together")

			store.before, store.after = nil, nil
			done, err := c.HandOff(architect, b, h)
			require.NoError(t, err)
			require.Len(t, entries(t, b, team.Filter{}), 1, "it is not written again")
			require.Len(t, pending(t, c, "implementer"), 1)
			require.NotZero(t, done.Sent.Seq)
			require.Equal(t, done.Entry, entries(t, b, team.Filter{})[0])
		})
	}
}

func TestHandoffRefusals(t *testing.T) {
	c, store, b, ledger, good := newHandoff(t)
	architect := as(t.Context(), "architect")
	other, err := team.OpenLedger(t.Context(), new(memstore.Store), team.Scope{Project: "p"}, nil)
	require.NoError(t, err)
	_, err = ledger.Put(architect, "taken", json.RawMessage(`1`), "")
	require.NoError(t, err)
	for what, change := range map[string]func(*team.Handoff){
		"no key":         func(h *team.Handoff) { h.Signal.Key = "" },
		"no receiver":    func(h *team.Handoff) { h.To = "nobody" },
		"no summary":     func(h *team.Handoff) { h.Signal.Summary = "" },
		"another store":  func(h *team.Handoff) { h.Ledger = other },
		"no ledger":      func(h *team.Handoff) { h.Ledger = nil },
		"no body":        func(h *team.Handoff) { h.Draft.Body = "" },
		"a bad value":    func(h *team.Handoff) { h.Edits[0].Value = json.RawMessage(`{`) },
		"a lost race":    func(h *team.Handoff) { h.Edits[0].Key = "taken" },
		"the goals":      func(h *team.Handoff) { h.Edits[0].Key = "goals" },
		"the same twice": func(h *team.Handoff) { h.Edits = append(h.Edits, h.Edits[0]) },
	} {
		h := good
		h.Edits = []team.Edit{good.Edits[0]}
		change(&h)
		_, err := c.HandOff(architect, b, h)
		require.Error(t, err, what)
		if what == "a bad value" || what == "the goals" {
			require.ErrorIs(t, err, team.ErrInvalid, what)
		}
		require.Empty(t, pending(t, c, "implementer"), what)
		_, err = ledger.Get(architect, "auth")
		require.ErrorIs(t, err, team.ErrNotFound, what)
	}
	require.PanicsWithValue(t, "team: HandOff with a nil Board", func() { _, _ = c.HandOff(architect, nil, good) })
	plain, err := team.OpenSignals(t.Context(), onlyStore{store}, nil)
	require.NoError(t, err)
	good.Ledger, good.Edits = nil, nil
	_, err = plain.HandOff(architect, b, good)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = c.Send(architect, "implementer", good.Signal)
	require.NoError(t, err)
	done, err := c.HandOff(architect, b, good)
	require.NoError(t, err, "a handoff needs no ledger, and its key is not that of a Send")
	require.NotZero(t, done.Sent.Seq)
}

func TestHandoffAtOnceIsOne(t *testing.T) {
	c, _, b, _, h := newHandoff(t)
	var wg sync.WaitGroup
	ids := make([]team.SignalID, 8)
	for i := range ids {
		wg.Go(func() {
			done, err := c.HandOff(as(t.Context(), "architect"), b, h)
			if err != nil {
				t.Error(err)
			}
			ids[i] = done.Sent.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		require.Equal(t, ids[0], id)
	}
	require.Len(t, pending(t, c, "implementer"), 1)
}

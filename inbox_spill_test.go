package team_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// newSpilling opens a channel that spills, with a lead, a tester and a reviewer.
func newSpilling(t *testing.T, store team.Store, opts *team.OffloadOptions) (*team.SignalChannel, *team.Offload) {
	t.Helper()
	o := openOffload(t, filepath.Join(t.TempDir(), "offload"), store, opts)
	c, err := team.OpenSignals(t.Context(), store, &team.SignalOptions{Offload: o})
	require.NoError(t, err)
	for _, role := range []team.Role{"lead", "tester", "reviewer"} {
		m := team.Member{Session: team.SessionID("ses_" + role), Role: role}
		if role != "lead" {
			m.Parent = "ses_lead"
		}
		require.NoError(t, c.Enrol(as(t.Context(), "lead"), m))
	}
	return c, o
}

// Over the cap: spilled to Offload, path and handle instead of the body; without an
// Offload, ErrTooLarge.
func TestSignalOverTheCapIsSpilled(t *testing.T) {
	c, o := newSpilling(t, new(memstore.Store), nil)
	tester, lead := as(t.Context(), "tester"), as(t.Context(), "lead")
	body := "HEAD\n" + logLines(2000)
	s := team.Signal{Kind: team.KindSettled, Summary: "all of it", Body: body, Refs: []team.Ref{{Path: "/x/y.md", SHA256: digest("y")}}, Key: "k"}
	sent, err := c.Send(tester, "lead", s)
	require.NoError(t, err)
	got, err := c.Receive(lead, nil)
	require.NoError(t, err)
	require.Empty(t, got[0].Body)
	require.Len(t, got[0].Refs, 2)
	require.Equal(t, s.Refs[0], got[0].Refs[0])
	ref := got[0].Refs[1]
	require.Equal(t, body, readFile(t, ref.Path))
	require.Equal(t, digest(body), ref.SHA256)
	require.EqualValues(t, len(body), ref.Size)
	require.True(t, strings.HasPrefix(fetch(t, o, ref.Handle, team.FetchOptions{}).Text, "HEAD\n"))

	text := team.FormatSignal(c.Secret(), got[0].Signal)
	require.Contains(t, text, ref.Path)
	require.Contains(t, text, string(ref.Handle))
	require.Less(t, team.EstimateTokens(text), team.MaxFrameTokens)
	back, err := team.ParseSignal(c.Secret(), text)
	require.NoError(t, err)
	require.Equal(t, got[0].Refs, back.Refs)
	_, err = team.ParseSignal(c.Secret(), strings.Replace(text, string(ref.Handle), "tm://aaaaaaaaaaaaaaaa", 1))
	require.ErrorIs(t, err, team.ErrDenied)

	again, err := c.Send(tester, "lead", s)
	require.NoError(t, err)
	require.Equal(t, team.Sent{ID: sent.ID, To: sent.To, Seq: sent.Seq, Replayed: true}, again, "the same key, the same payload")
	require.Len(t, storedFiles(t, o), 1)
	s.Body += "another"
	_, err = c.Send(tester, "lead", s)
	require.ErrorIs(t, err, team.ErrConflict, "the same key, another body")

	_, err = c.Send(tester, "lead", team.Signal{Kind: team.KindNote, Summary: "short", Body: "short"})
	require.NoError(t, err)
	got, err = c.Receive(lead, nil)
	require.NoError(t, err)
	require.Equal(t, "short", got[0].Body, "below the cap a body stays")
	require.Empty(t, got[0].Refs)

	plain, err := team.OpenSignals(t.Context(), new(memstore.Store), nil)
	require.NoError(t, err)
	require.NoError(t, plain.Enrol(lead, team.Member{Session: "ses_lead", Role: "lead"}))
	_, err = plain.Send(lead, "ses_lead", s)
	require.ErrorIs(t, err, team.ErrTooLarge)
}

// What is refused anyway writes no file; what is refused in the end leaves one
// that is collected; all or none stays.
func TestSpillRefused(t *testing.T) {
	store := new(memstore.Store)
	c, o := newSpilling(t, store, &team.OffloadOptions{MinAge: 1, MaxBytes: 1})
	tester := as(t.Context(), "tester")
	long := logLines(2000)
	good := team.Signal{Kind: team.KindNote, Summary: "x", Body: long}
	many := good
	many.Refs = make([]team.Ref, 16)
	for i := range many.Refs {
		many.Refs[i] = team.Ref{Path: "/x", SHA256: digest("")}
	}
	for what, s := range map[string]team.Signal{
		"a summary over the cap":   {Kind: team.KindNote, Summary: strings.Repeat("word ", 2000), Body: long},
		"not UTF-8":                {Kind: team.KindNote, Summary: "x", Body: long + "\xff"},
		"no kind":                  {Summary: "x", Body: long},
		"no place for a reference": many,
		"a handle that is none":    {Kind: team.KindNote, Summary: "x", Body: long, Refs: []team.Ref{{Path: "/x", SHA256: digest(""), Handle: "tm://x"}}},
	} {
		_, err := c.Send(tester, "lead", s)
		require.Error(t, err, what)
		require.Empty(t, storedFiles(t, o), what)
	}
	_, err := c.Send(tester, "nobody", good)
	require.ErrorIs(t, err, team.ErrUnknownRecipient)
	require.Empty(t, storedFiles(t, o))

	full, err := team.OpenSignals(t.Context(), store, &team.SignalOptions{Offload: o, MaxPending: 1})
	require.NoError(t, err)
	_, err = full.Send(tester, "lead", note("first"))
	require.NoError(t, err)
	_, err = full.SendAll(tester, []string{"reviewer", "lead"}, good)
	require.ErrorIs(t, err, team.ErrLimit)
	got, err := c.Receive(as(t.Context(), "reviewer"), &team.ReceiveOptions{NoWait: true})
	require.NoError(t, err)
	require.Empty(t, got, "all or none")
	require.Len(t, storedFiles(t, o), 1)

	spilled, err := c.Spilled(t.Context())
	require.NoError(t, err)
	require.Empty(t, spilled)
	collect := func() {
		t.Helper()
		spilled, err := c.Spilled(t.Context())
		require.NoError(t, err)
		_, err = o.Collect(t.Context(), &team.CollectOptions{
			Referenced: func(_ context.Context, h team.Handle) (bool, error) { return spilled[h], nil },
		})
		require.NoError(t, err)
	}
	collect()
	require.Empty(t, storedFiles(t, o))

	// A signal that is pending, claimed or dead keeps its body; one that is acked does not.
	_, err = c.SendAll(tester, []string{"reviewer", "lead"}, good)
	require.NoError(t, err)
	collect()
	require.Len(t, storedFiles(t, o), 1)
	got, err = c.Receive(as(t.Context(), "reviewer"), nil)
	require.NoError(t, err)
	require.NoError(t, c.Ack(as(t.Context(), "reviewer"), got...))
	lead := as(t.Context(), "lead")
	got, err = c.Receive(lead, &team.ReceiveOptions{Max: 5})
	require.NoError(t, err)
	collect()
	require.Len(t, storedFiles(t, o), 1)
	require.NoError(t, c.Ack(lead, got...))
	collect()
	require.Empty(t, storedFiles(t, o))
}

// If the folder does not take the body, nothing was sent.
func TestSpillFails(t *testing.T) {
	c, o := newSpilling(t, new(memstore.Store), nil)
	require.NoError(t, o.Close())
	_, err := c.Send(as(t.Context(), "tester"), "lead", team.Signal{Kind: team.KindNote, Summary: "x", Body: logLines(2000)})
	require.ErrorIs(t, err, team.ErrClosed)
	got, err := c.Receive(as(t.Context(), "lead"), &team.ReceiveOptions{NoWait: true})
	require.NoError(t, err)
	require.Empty(t, got)
}

// A handoff spills like a Send.
func TestHandOffSpills(t *testing.T) {
	c, _ := newSpilling(t, new(memstore.Store), nil)
	board := newBoard(t, nil)
	h := team.Handoff{To: "lead", Draft: team.Draft{Session: "s", Task: "t", Topic: "p", Body: "entry"},
		Signal: team.Signal{Kind: team.KindHandoff, Summary: "x", Body: logLines(2000), Key: "k"}}
	done, err := c.HandOff(as(t.Context(), "tester"), board, h)
	require.NoError(t, err)
	again, err := c.HandOff(as(t.Context(), "tester"), board, h)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	got, err := c.Receive(as(t.Context(), "lead"), nil)
	require.NoError(t, err)
	require.Empty(t, got[0].Body)
	require.Equal(t, h.Signal.Body, readFile(t, got[0].Refs[0].Path))
	require.Equal(t, done.Entry.Path, got[0].Refs[1].Path)
}

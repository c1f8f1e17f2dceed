package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

// "Each with evidence and time": both are of what made the state.
func TestCapabilityEvidenceAndTimeGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c team.Capability
		note := func(state team.CapabilityState, basis team.CapabilityBasis, evidence string) time.Time {
			time.Sleep(time.Minute)
			require.NoError(t, c.Note("x", state, basis, evidence))
			return time.Now()
		}
		note(team.CapabilityDeclared, team.BasisStatic, "a method")
		seen := note(team.CapabilityOK, team.BasisHook, "called")
		want := team.CapabilityLine{Name: "x", State: team.CapabilityOK, Basis: team.BasisHook, Evidence: "called", At: seen}
		require.Equal(t, want, line(t, &c, "x"))
		note(team.CapabilityNotSeen, team.BasisEvent, "quiet")
		require.Equal(t, want, line(t, &c, "x"), "what is weaker changes nothing of it")
		again := note(team.CapabilityOK, team.BasisRuntime, "we called")
		require.Equal(t, team.CapabilityLine{Name: "x", State: team.CapabilityOK, Basis: team.BasisRuntime, Evidence: "we called", At: again}, line(t, &c, "x"))
		gone := note(team.CapabilityMissing, team.BasisRuntime, "threw")
		require.Equal(t, team.CapabilityLine{Name: "x", State: team.CapabilityMissing, Basis: team.BasisRuntime, Evidence: "threw", At: gone}, line(t, &c, "x"))

		o := team.Offer{Kind: team.OfferTool, Name: "x"}
		for _, state := range []team.CapabilityState{team.CapabilityOK, team.CapabilityUnverified} {
			time.Sleep(time.Minute)
			require.NoError(t, c.Gate(o, team.GateServed, state, team.BasisHook, string(state)))
			require.Equal(t, team.CapabilityLine{Name: "served", State: state, Basis: team.BasisHook, Evidence: string(state), At: time.Now()}, c.Explain(o).Gates[2],
				"a gate is about now, so what is weaker counts")
		}
	})
}

// "Event set observed": a stream that was seen working stays so, whatever is said of it.
func TestCapabilityStreamSeenWorking(t *testing.T) {
	t.Run("what somebody says later takes nothing back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var c team.Capability
			c.Observe(ev(kid, "session.idle", `{"sessionID":"ses_kid"}`))
			for _, state := range []team.CapabilityState{team.CapabilityDeclared, team.CapabilityUnverified, team.CapabilityNotSeen} {
				time.Sleep(time.Second)
				require.NoError(t, c.Note(team.CapEvents, state, team.BasisStatic, ""))
				require.Equal(t, team.CapabilityOK, line(t, &c, team.CapEvents).State, state)
			}
			require.NoError(t, c.Note(team.CapEvents, team.CapabilityMissing, team.BasisRuntime, ""))
			require.Equal(t, team.CapabilityMissing, line(t, &c, team.CapEvents).State)
		})
	})
	t.Run("opening it takes back that it is missing, and not that it works", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var c team.Capability
			c.Subscribed(errors.New("refused"))
			c.Subscribed(nil)
			require.Equal(t, team.CapabilityNotSeen, line(t, &c, team.CapEvents).State)
			require.NoError(t, c.Note(team.CapEvents, team.CapabilityOK, team.BasisHook, "called"))
			c.Subscribed(nil)
			require.Equal(t, team.CapabilityOK, line(t, &c, team.CapEvents).State)
			c.Subscribed(fmt.Errorf("dial: %w", context.Canceled))
			require.Equal(t, team.CapabilityOK, line(t, &c, team.CapEvents).State, "that the program gave up proves nothing")
			c.Subscribed(context.DeadlineExceeded)
			require.Equal(t, team.CapabilityMissing, line(t, &c, team.CapEvents).State)
			require.Equal(t, context.DeadlineExceeded.Error(), line(t, &c, team.CapEvents).Evidence)
		})
	})
}

// lateStorage carries a Set out and fails, or ends the caller's context on the way.
type lateStorage struct {
	probedStorage
	cancel   context.CancelFunc
	deadline bool
}

func (s *lateStorage) Set(ctx context.Context, key string, v json.RawMessage) error {
	_ = s.probedStorage.Set(ctx, key, v)
	if s.cancel != nil {
		s.cancel()
		return ctx.Err()
	}
	return errors.New("secret")
}

func (s *lateStorage) Remove(ctx context.Context, key string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	_, s.deadline = ctx.Deadline()
	return s.probedStorage.Remove(ctx, key)
}

// strictStorage takes the removal of what is not there for an error.
type strictStorage struct{ probedStorage }

func (s *strictStorage) Remove(ctx context.Context, key string) error {
	if _, ok := s.data[key]; !ok {
		return team.ErrNotFound
	}
	return s.probedStorage.Remove(ctx, key)
}

// "Probes that do no harm": nothing of theirs stays, and no two meet.
func TestCapabilityProbesDoNoHarm(t *testing.T) {
	t.Run("a Set that failed and was carried out leaves nothing", func(t *testing.T) {
		var c team.Capability
		s := new(lateStorage)
		require.Error(t, c.ProbeStorage(t.Context(), s, "x"))
		require.Empty(t, s.data)
		require.Equal(t, "set: failed", line(t, &c, team.CapStorage).Evidence, "the step, and no text of the host's")
	})
	t.Run("a context that ends on the way leaves nothing, and the removal has an end too", func(t *testing.T) {
		var c team.Capability
		ctx, cancel := context.WithCancel(t.Context())
		s := &lateStorage{cancel: cancel}
		require.ErrorIs(t, c.ProbeStorage(ctx, s, "x"), context.Canceled)
		require.Empty(t, s.data)
		require.True(t, s.deadline)
		require.Empty(t, c.Lines())
	})
	t.Run("removing what is gone is no error, or storage is missing", func(t *testing.T) {
		var c team.Capability
		require.ErrorIs(t, c.ProbeStorage(t.Context(), new(strictStorage), "x"), team.ErrNotFound)
		require.Equal(t, team.CapabilityMissing, line(t, &c, team.CapStorage).State)
	})
	t.Run("two probes have two keys", func(t *testing.T) {
		var c team.Capability
		s := new(probedStorage)
		require.NoError(t, c.ProbeStorage(t.Context(), s, "x"))
		require.NoError(t, c.ProbeStorage(t.Context(), s, "x"))
		require.Len(t, s.keys, 2)
		require.NotEqual(t, s.keys[0], s.keys[1])
	})
	t.Run("a scope that is none touches nothing", func(t *testing.T) {
		var c team.Capability
		s := new(probedStorage)
		require.ErrorIs(t, c.ProbeStorage(t.Context(), s, ""), team.ErrInvalid)
		require.ErrorIs(t, c.ProbeStorage(t.Context(), s, "a\nb"), team.ErrInvalid)
		require.ErrorIs(t, c.ProbeStorage(t.Context(), s, strings.Repeat("s", 1<<20)), team.ErrLimit)
		require.Empty(t, s.keys)
		require.Empty(t, c.Lines())
	})
	t.Run("a note to a session that is gone, and one that nobody waited for, prove nothing", func(t *testing.T) {
		var c team.Capability
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		h := &noteHost{err: context.Canceled}
		require.ErrorIs(t, c.ProbeNotes(ctx, h, "ses_tmp"), context.Canceled)
		require.Empty(t, c.Lines())
		h.err = team.ErrNotFound
		require.ErrorIs(t, c.ProbeNotes(t.Context(), h, "ses_tmp"), team.ErrNotFound)
		require.Equal(t, team.CapabilityDeclared, line(t, &c, team.CapNotes).State)
		require.NotEqual(t, h.notes[0].ID, h.notes[1].ID, "each note is one of its own")
		h.err = errors.New("secret")
		require.ErrorIs(t, c.ProbeNotes(t.Context(), h, "ses_tmp"), h.err)
		require.Equal(t, "one note, queued: failed", line(t, &c, team.CapNotes).Evidence)
	})
	t.Run("another session than was asked for is missing, and an ended context proves nothing", func(t *testing.T) {
		var c team.Capability
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		h := new(otherSession)
		require.ErrorIs(t, c.ProbeSessions(ctx, h, kid), context.Canceled)
		require.Empty(t, c.Lines())
		require.ErrorIs(t, c.ProbeSessions(t.Context(), h, kid), team.ErrCorrupt)
		require.Equal(t, team.CapabilityMissing, line(t, &c, team.CapSessions).State)
		require.ErrorIs(t, c.ProbeSessions(t.Context(), nil, kid), errors.ErrUnsupported)
	})
	t.Run("why an interrupt failed is a kind of error", func(t *testing.T) {
		var c team.Capability
		c.Cancelled(team.Cancelled{Verdict: team.CancelNoSeam, Err: errors.ErrUnsupported})
		require.Equal(t, "no seam: "+errors.ErrUnsupported.Error(), line(t, &c, team.CapInterrupt).Evidence)
	})
}

// otherSession answers for a session that nobody asked for.
type otherSession struct{ joinHost }

func (*otherSession) Session(context.Context, team.SessionID) (team.Session, error) {
	return team.Session{ID: "ses_other"}, nil
}

// "Explain says which one stops it."
func TestCapabilityExplainNamesTheFirst(t *testing.T) {
	o := team.Offer{Kind: team.OfferSkill, Name: "deploy"}
	states := func(states ...team.CapabilityState) team.Explanation {
		var c team.Capability
		for i, s := range states {
			require.NoError(t, c.Gate(o, team.Gates()[i], s, team.BasisRuntime, ""))
		}
		return c.Explain(o)
	}
	const ok, no = team.CapabilityOK, team.CapabilityMissing
	t.Run("of two that stop it, the first", func(t *testing.T) {
		e := states(ok, no, ok, no)
		require.Equal(t, team.GateAuthorised, e.Stops)
		require.Empty(t, e.Doubt)
	})
	t.Run("one that stops it goes before a doubt, on either side", func(t *testing.T) {
		for _, e := range []team.Explanation{states(ok, team.CapabilityDeclared, no, ok), states(ok, ok, no, team.CapabilityUnverified)} {
			require.Equal(t, team.GateServed, e.Stops)
			require.Empty(t, e.Doubt)
		}
	})
	t.Run("declared, not seen and unverified are doubts, and the first is named", func(t *testing.T) {
		for _, s := range []team.CapabilityState{team.CapabilityDeclared, team.CapabilityNotSeen, team.CapabilityUnverified} {
			e := states(ok, ok, s, s)
			require.False(t, e.Usable)
			require.Empty(t, e.Stops)
			require.Equal(t, team.GateServed, e.Doubt)
			require.Contains(t, e.String(), "may not be usable: nobody knows whether it is served;")
		}
		require.Contains(t, states(ok, ok, ok, ok).String(), "can be used;")
	})
	t.Run("a skill, a resource, a tool and a server of one name are four", func(t *testing.T) {
		var c team.Capability
		for i, kind := range []team.OfferKind{team.OfferSkill, team.OfferMCPResource, team.OfferTool, team.OfferLanguageServer} {
			require.NoError(t, c.Gate(team.Offer{Kind: kind, Name: "n"}, team.Gates()[i], no, team.BasisRuntime, ""))
		}
		for i, kind := range []team.OfferKind{team.OfferSkill, team.OfferMCPResource, team.OfferTool, team.OfferLanguageServer} {
			e := c.Explain(team.Offer{Kind: kind, Name: "n"})
			require.Equal(t, team.Gates()[i], e.Stops, kind)
			require.True(t, strings.HasPrefix(e.String(), string(kind)+" "), e)
		}
	})
	t.Run("what somebody only says opens no gate but the list's", func(t *testing.T) {
		for _, basis := range []team.CapabilityBasis{"", team.BasisStatic} {
			var c team.Capability
			require.NoError(t, c.Gate(o, team.GateDiscovered, ok, basis, "a list"))
			for _, gate := range team.Gates()[1:] {
				require.ErrorIs(t, c.Gate(o, gate, ok, basis, ""), team.ErrInvalid)
				require.NoError(t, c.Gate(o, gate, team.CapabilityDeclared, basis, ""))
			}
			require.Equal(t, team.GateAuthorised, c.Explain(o).Doubt)
		}
	})
	t.Run("a host that cannot be asked denies nothing, and an ended context proves nothing", func(t *testing.T) {
		var c team.Capability
		ask := team.PermissionsFunc(func(context.Context, team.SessionID, string, string) (team.Effect, error) {
			return team.Deny, errors.ErrUnsupported
		})
		require.NoError(t, c.Authorise(t.Context(), ask, kid, o, "skill", "deploy"))
		require.Equal(t, team.CapabilityUnverified, c.Explain(o).Gates[1].State)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c = team.Capability{}
		deny := team.PermissionsFunc(func(context.Context, team.SessionID, string, string) (team.Effect, error) { return team.Deny, nil })
		require.ErrorIs(t, c.Authorise(ctx, deny, kid, o, "skill", "deploy"), context.Canceled)
		require.Empty(t, c.Explain(o).Stops)
		require.NoError(t, c.Authorise(t.Context(), deny, kid, o, "skill", "deploy"))
		require.Equal(t, "skill deploy: deny", c.Explain(o).Gates[1].Evidence)
	})
	t.Run("offers are bounded", func(t *testing.T) {
		var c team.Capability
		var err error
		for i := range 1025 {
			require.NoError(t, err)
			err = c.Gate(team.Offer{Kind: team.OfferTool, Name: fmt.Sprint(i)}, team.GateServed, ok, team.BasisHook, "")
		}
		require.ErrorIs(t, err, team.ErrLimit)
	})
}

// "A drift is reported": once, with how often and since when.
func TestCapabilityDriftOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c team.Capability
		first := time.Now()
		for range 3 {
			c.Observe(ev(kid, "session.woken", `{}`))
			c.Observe(ev(kid, "session.deleted", `{"sessionID":"x","why":1}`))
			_, err := c.CompareRoutes("1.18", nil)
			require.NoError(t, err)
			time.Sleep(time.Minute)
		}
		drifts := c.Drift()
		require.Len(t, drifts, 2+9)
		for _, d := range drifts {
			require.Equal(t, 3, d.Count, d.Name)
			require.Equal(t, first, d.First, d.Name)
		}
	})
	t.Run("a new field may come in any of the first events of its type", func(t *testing.T) {
		var c team.Capability
		for range 7 {
			c.Observe(ev(kid, "session.idle", `{"sessionID":"x"}`))
		}
		c.Observe(ev(kid, "session.idle", `{"sessionID":"x","because":1}`))
		require.Len(t, c.Drift(), 1)
	})
	t.Run("null is no object", func(t *testing.T) {
		var c team.Capability
		require.NoError(t, c.CompareSession("1.18", json.RawMessage(`null`)))
		c.Observe(ev(kid, "session.error", `null`))
		require.Len(t, c.Drift(), 2)
		for _, d := range c.Drift() {
			require.Equal(t, "is no object", d.What)
		}
	})
	t.Run("a session and an event as they were, with all that may be there, are none", func(t *testing.T) {
		var c team.Capability
		require.NoError(t, c.CompareSession("1.18", json.RawMessage(`{"id":1,"slug":1,"projectID":1,"directory":1,"title":1,"version":1,"time":1,
			"workspaceID":1,"path":1,"parentID":1,"summary":1,"cost":1,"tokens":1,"share":1,"agent":1,"model":1,"metadata":1,"permission":1,"revert":1}`)))
		c.Observe(ev(kid, "session.inbox.enqueued", `{"sessionID":"x","inboxID":"i","item":{}}`))
		c.Observe(ev(kid, "question.asked", `{"id":1,"sessionID":"x","questions":[],"tool":{}}`))
		require.Empty(t, c.Drift())
		require.NoError(t, c.CompareSession("1.18", json.RawMessage(`{"id":1,"projectID":1,"directory":1,"title":1,"version":1,"time":1}`)))
		require.Equal(t, "session 1.18: slug", c.Drift()[0].Name)
	})
}

// "By name", and of what is required only what is not known to work.
func TestCapabilityLinesAndUnmet(t *testing.T) {
	var c team.Capability
	for _, name := range []string{"b", "c", "a"} {
		require.NoError(t, c.Note(name, team.CapabilityMissing, team.BasisRuntime, ""))
	}
	c.Observe(ev(kid, "session.idle", `{"sessionID":"ses_kid"}`))
	names := func(lines []team.CapabilityLine) (names []string) {
		for _, l := range lines {
			names = append(names, l.Name)
		}
		return names
	}
	require.Equal(t, []string{"a", "b", "c", team.CapEvents}, names(c.Lines()))
	require.Equal(t, []string{"c", "nobody"}, names(c.Unmet("c", team.CapEvents, "nobody")), "in the order in which they were asked for")
	require.Empty(t, c.Unmet())
}

// Tools have no probe: the handler of one notes that the host called it.
func TestCapabilityToolsAreNotedByTheirHandler(t *testing.T) {
	var c team.Capability
	require.NoError(t, c.Note(team.CapTools, team.CapabilityDeclared, team.BasisStatic, "registered"))
	require.Len(t, c.Unmet(team.CapTools), 1)
	require.NoError(t, c.Note(team.CapTools, team.CapabilityOK, team.BasisHook, "tm_join was called"))
	require.Empty(t, c.Unmet(team.CapTools))
	require.NoError(t, c.Note(team.CapTools, team.CapabilityMissing, team.BasisRuntime, "no longer listed"))
	require.Equal(t, team.CapabilityMissing, c.Unmet(team.CapTools)[0].State)
}

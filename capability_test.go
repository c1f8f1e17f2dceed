package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

// probedStorage is a host's storage with a fault in one step.
type probedStorage struct {
	data  map[string]json.RawMessage
	fault string
	keys  []string
}

func (s *probedStorage) fails(step string) error {
	if s.fault == step {
		return errors.New("boom")
	}
	return nil
}

func (s *probedStorage) Get(_ context.Context, key string) (json.RawMessage, error) {
	v, ok := s.data[key]
	switch {
	case s.fault == "forgets" || !ok && s.fault != "keeps":
		return nil, team.ErrNotFound
	case s.fault == "garbles":
		return json.RawMessage(`"x"`), nil
	}
	return v, s.fails("get")
}

func (s *probedStorage) Set(_ context.Context, key string, v json.RawMessage) error {
	s.keys = append(s.keys, key)
	if s.fault == "set" {
		return s.fails("set")
	}
	if s.data == nil {
		s.data = make(map[string]json.RawMessage)
	}
	s.data[key] = v
	return nil
}

func (s *probedStorage) Remove(_ context.Context, key string) error {
	if s.fault != "keeps" {
		delete(s.data, key)
	}
	return s.fails("remove")
}

func (s *probedStorage) Scan(_ context.Context, prefix, _ string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := s.fails("scan"); err != nil {
			yield("", err)
			return
		}
		for _, k := range slices.Sorted(maps.Keys(s.data)) {
			if s.fault != "hides" && strings.HasPrefix(k, prefix) && !yield(k, nil) {
				return
			}
		}
	}
}

func line(t *testing.T, c *team.Capability, name string) team.CapabilityLine {
	t.Helper()
	for _, l := range c.Lines() {
		if l.Name == name {
			return l
		}
	}
	return team.CapabilityLine{}
}

// "A round trip on storage under a scoped key": ok if it is right in each step, missing if not.
func TestCapabilityProbeStorage(t *testing.T) {
	for _, fault := range []string{"", "set", "get", "scan", "remove", "garbles", "forgets", "hides", "keeps"} {
		t.Run("fault "+fault, func(t *testing.T) {
			var c team.Capability
			s := &probedStorage{fault: fault, data: map[string]json.RawMessage{"other": json.RawMessage(`1`)}}
			err := c.ProbeStorage(t.Context(), s, "a/b")
			got := line(t, &c, team.CapStorage)
			require.Equal(t, fault == "", err == nil, err)
			want := team.CapabilityMissing
			if fault == "" {
				want = team.CapabilityOK
			}
			require.Equal(t, want, got.State)
			require.Equal(t, team.BasisRuntime, got.Basis)
			require.WithinDuration(t, time.Now(), got.At, time.Minute)
			require.JSONEq(t, "1", string(s.data["other"]), "what is not ours is not touched")
			if fault != "keeps" {
				require.Len(t, s.data, 1, "nothing of ours stays")
			}
			for _, k := range s.keys {
				require.True(t, strings.HasPrefix(k, "team/probe/a%2Fb/"), k)
			}
		})
	}
	t.Run("no storage is missing, and an ended context proves nothing", func(t *testing.T) {
		var c team.Capability
		require.ErrorIs(t, c.ProbeStorage(t.Context(), nil, "x"), errors.ErrUnsupported)
		require.Equal(t, team.CapabilityMissing, line(t, &c, team.CapStorage).State)
		c = team.Capability{}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, c.ProbeStorage(ctx, new(probedStorage), "x"), context.Canceled)
		require.Empty(t, c.Lines())
	})
}

// noteHost takes notes.
type noteHost struct {
	joinHost
	notes []team.Note
	to    []team.SessionID
	holds string
	err   error
}

func (h *noteHost) Deliver(_ context.Context, to team.SessionID, n team.Note) (team.Delivered, error) {
	h.notes, h.to = append(h.notes, n), append(h.to, to)
	return team.Delivered{ID: n.ID, Text: h.holds + n.Text}, h.err
}

// "Synthetic to a throwaway session only when allowed."
func TestCapabilityProbeNotes(t *testing.T) {
	var c team.Capability
	h := new(noteHost)
	require.NoError(t, c.ProbeNotes(t.Context(), h, ""))
	require.Empty(t, h.notes, "nothing is sent")
	require.Equal(t, team.CapabilityDeclared, line(t, &c, team.CapNotes).State)
	require.NoError(t, c.ProbeNotes(t.Context(), h, "ses_tmp"))
	require.Equal(t, []team.SessionID{"ses_tmp"}, h.to)
	require.Equal(t, team.DeliveryQueue, h.notes[0].Delivery)
	require.False(t, h.notes[0].Wake, "nobody wakes")
	require.Equal(t, team.CapabilityOK, line(t, &c, team.CapNotes).State)
	h.holds = "another "
	require.ErrorIs(t, c.ProbeNotes(t.Context(), h, "ses_tmp"), team.ErrCorrupt)
	require.Equal(t, team.CapabilityMissing, line(t, &c, team.CapNotes).State)
	require.ErrorIs(t, c.ProbeNotes(t.Context(), nil, "ses_tmp"), errors.ErrUnsupported)
}

func TestCapabilityProbeSessions(t *testing.T) {
	var c team.Capability
	h := new(joinHost)
	require.ErrorIs(t, c.ProbeSessions(t.Context(), h, kid), team.ErrNotFound)
	require.Equal(t, team.CapabilityDeclared, line(t, &c, team.CapSessions).State)
	h.set(kid, team.Inspection{})
	require.NoError(t, c.ProbeSessions(t.Context(), h, kid))
	require.Equal(t, team.CapabilityOK, line(t, &c, team.CapSessions).State)
	h.fail(errors.New("boom"))
	require.Error(t, c.ProbeSessions(t.Context(), h, kid))
	require.Equal(t, team.CapabilityMissing, line(t, &c, team.CapSessions).State)
}

// "Five states": what was seen working is not taken back by what was not tried, and
// not-seen and missing are two claims.
func TestCapabilityStates(t *testing.T) {
	var c team.Capability
	require.Empty(t, c.Lines())
	c.Subscribed(nil)
	require.Equal(t, team.CapabilityNotSeen, line(t, &c, team.CapEvents).State)
	c.Observe(ev(kid, "session.idle", `{"sessionID":"ses_kid"}`))
	require.Equal(t, team.CapabilityOK, line(t, &c, team.CapEvents).State)
	require.Equal(t, team.BasisEvent, line(t, &c, team.CapEvents).Basis)
	var closed team.Capability
	closed.Subscribed(errors.New("refused"))
	require.Equal(t, team.CapabilityMissing, line(t, &closed, team.CapEvents).State)

	require.NoError(t, c.Note("x", team.CapabilityDeclared, team.BasisStatic, "a method"))
	require.NoError(t, c.Note("x", team.CapabilityOK, team.BasisHook, "called"))
	require.NoError(t, c.Note("x", team.CapabilityDeclared, team.BasisStatic, "a method"))
	require.Equal(t, team.CapabilityOK, line(t, &c, "x").State)
	require.NoError(t, c.Note("x", team.CapabilityMissing, team.BasisRuntime, "threw"))
	require.NoError(t, c.Note("x", team.CapabilityUnverified, team.BasisHuman, ""))
	require.Equal(t, team.CapabilityMissing, line(t, &c, "x").State)
	require.NoError(t, c.Note("x", team.CapabilityOK, team.BasisRuntime, "again"))
	require.Equal(t, team.CapabilityOK, line(t, &c, "x").State)

	require.ErrorIs(t, c.Note("", team.CapabilityOK, team.BasisHook, ""), team.ErrInvalid)
	require.ErrorIs(t, c.Note("y", "fine", "", ""), team.ErrInvalid)
	require.ErrorIs(t, c.Note("a\nb", team.CapabilityOK, team.BasisHook, ""), team.ErrInvalid)

	unmet := c.Unmet("x", team.CapStorage, team.CapEvents)
	require.Len(t, unmet, 1)
	require.Equal(t, team.CapStorage, unmet[0].Name)
	require.Equal(t, team.CapabilityUnverified, unmet[0].State)

	t.Run("interrupt works only after a confirmed stop", func(t *testing.T) {
		var c team.Capability
		for verdict, want := range map[team.CancelVerdict]team.CapabilityState{
			team.CancelIdle: team.CapabilityDeclared, team.CancelUnknown: team.CapabilityUnverified,
			team.CancelNoSeam: team.CapabilityMissing, team.CancelThrew: team.CapabilityMissing, team.CancelStopped: team.CapabilityOK,
		} {
			c = team.Capability{}
			c.Cancelled(team.Cancelled{Verdict: verdict, Err: errors.New("secret")})
			require.Equal(t, want, line(t, &c, team.CapInterrupt).State, verdict)
			require.NotContains(t, line(t, &c, team.CapInterrupt).Evidence, "secret")
		}
	})
	t.Run("what others think of is bounded", func(t *testing.T) {
		var c team.Capability
		var err error
		for i := range 2000 {
			err = c.Note(fmt.Sprint("n", i), team.CapabilityMissing, "", "")
			c.Observe(ev(kid, fmt.Sprint("new.", i), ""))
		}
		require.ErrorIs(t, err, team.ErrLimit)
		require.LessOrEqual(t, len(c.Drift()), 256)
		require.LessOrEqual(t, len(c.Stream().Unknown), 65)
	})
}

// "Four gates and Explain: why is this skill, MCP resource, tool or language server
// visible and still unusable?"
func TestCapabilityExplain(t *testing.T) {
	for i, stop := range team.Gates() {
		for _, kind := range []team.OfferKind{team.OfferTool, team.OfferSkill, team.OfferMCPResource, team.OfferLanguageServer} {
			var c team.Capability
			o := team.Offer{Kind: kind, Name: "n"}
			for k, g := range team.Gates() {
				state := team.CapabilityOK
				if k == i {
					state = team.CapabilityMissing
				}
				require.NoError(t, c.Gate(o, g, state, team.BasisRuntime, "because of "+string(g)))
			}
			e := c.Explain(o)
			require.False(t, e.Usable)
			require.Equal(t, stop, e.Stops)
			require.Empty(t, e.Doubt)
			require.Contains(t, e.String(), "it is not "+string(stop))
			require.Contains(t, e.String(), "because of "+string(stop))
			require.NoError(t, c.Gate(o, stop, team.CapabilityOK, team.BasisRuntime, ""))
			require.True(t, c.Explain(o).Usable)
		}
	}
	t.Run("a gate that nobody looked at is a doubt, and not open", func(t *testing.T) {
		var c team.Capability
		o := team.Offer{Kind: team.OfferSkill, Name: "deploy"}
		e := c.Explain(o)
		require.False(t, e.Usable)
		require.Equal(t, team.GateDiscovered, e.Doubt)
		require.NoError(t, c.Gate(o, team.GateDiscovered, team.CapabilityOK, team.BasisStatic, ""))
		require.Equal(t, team.GateAuthorised, c.Explain(o).Doubt)
	})
	t.Run("authorised is what the host says", func(t *testing.T) {
		o := team.Offer{Kind: team.OfferSkill, Name: "deploy"}
		for effect, want := range map[team.Effect]team.CapabilityState{
			team.Allow: team.CapabilityOK, team.Ask: team.CapabilityUnverified, team.Deny: team.CapabilityMissing, "perhaps": team.CapabilityUnverified,
		} {
			var c team.Capability
			ask := team.PermissionsFunc(func(_ context.Context, s team.SessionID, action, resource string) (team.Effect, error) {
				require.Equal(t, []string{"ses_kid", "skill", "deploy"}, []string{string(s), action, resource})
				return effect, nil
			})
			require.NoError(t, c.Authorise(t.Context(), ask, kid, o, "skill", "deploy"))
			require.Equal(t, want, c.Explain(o).Gates[1].State, effect)
		}
		var c team.Capability
		boom := errors.New("boom")
		err := c.Authorise(t.Context(), team.PermissionsFunc(func(context.Context, team.SessionID, string, string) (team.Effect, error) { return team.Allow, boom }), kid, o, "a", "b")
		require.ErrorIs(t, err, boom)
		require.Equal(t, team.CapabilityUnverified, c.Explain(o).Gates[1].State, "could not ask is not denied")
		require.NoError(t, c.Authorise(t.Context(), nil, kid, o, "a", "b"))
	})
	t.Run("bad input", func(t *testing.T) {
		var c team.Capability
		require.ErrorIs(t, c.Gate(team.Offer{}, team.GateServed, team.CapabilityOK, "", ""), team.ErrInvalid)
		require.ErrorIs(t, c.Gate(team.Offer{Kind: "x", Name: "y"}, "z", team.CapabilityOK, "", ""), team.ErrInvalid)
		require.ErrorIs(t, c.Gate(team.Offer{Kind: "x", Name: "y"}, team.GateServed, "z", "", ""), team.ErrInvalid)
	})
}

// "A drift (new event type, new field, missing route) is reported before it breaks something."
func TestCapabilityDrift(t *testing.T) {
	var c team.Capability
	c.Observe(ev(kid, "session.idle", `{"sessionID":"x"}`))
	c.Observe(ev(kid, "session.execution.interrupted", `{"sessionID":"x","reason":"user"}`))
	c.Observe(ev(kid, "rpc.mine", `{}`))
	require.Empty(t, c.Drift())

	c.Observe(ev(kid, "session.woken", `{}`))
	c.Observe(ev(kid, "session.idle", `{"sessionID":"x","because":"y"}`))
	c.Observe(ev(kid, "session.execution.interrupted", `{"sessionID":"x"}`))
	c.Observe(ev(kid, "session.execution.failed", `7`))
	missing, err := c.CompareRoutes("2.0", []string{"get /api/session/{sessionID}", "GET /api/session/{id}/message/", "GET /api/session/active",
		"GET /api/session/:x/inbox", "POST /api/session/{s}/synthetic", "GET /api/event", "GET /api/permission/request"})
	require.NoError(t, err)
	require.Equal(t, []string{"POST /api/session/:id/interrupt"}, missing)
	require.NoError(t, c.CompareSession("2.0", json.RawMessage(`{"id":1,"projectID":1,"cost":1,"tokens":1,"time":1,"steps":1}`)))
	var got []string
	for _, d := range c.Drift() {
		require.Equal(t, 1, d.Count)
		require.WithinDuration(t, time.Now(), d.First, time.Minute)
		got = append(got, d.Kind+" "+d.Name+" "+d.What)
	}
	require.Equal(t, []string{
		"event type session.woken is new",
		"field session 2.0: location is missing",
		"field session 2.0: steps is new",
		"field session.execution.failed is no object",
		"field session.execution.interrupted: reason is missing",
		"field session.idle: because is new",
		"route POST /api/session/:id/interrupt is missing",
	}, got)
	require.Equal(t, map[string]uint64{"session.woken": 1}, c.Stream().Unknown)

	_, err = c.CompareRoutes("3.0", nil)
	require.ErrorIs(t, err, team.ErrInvalid)
	require.ErrorIs(t, c.CompareSession("3.0", nil), team.ErrInvalid)
}

// "Five states, evidence and time": a state goes up only by what somebody observed.
func TestCapabilityEvidence(t *testing.T) {
	t.Run("what somebody only says is not seen working", func(t *testing.T) {
		var c team.Capability
		for _, basis := range []team.CapabilityBasis{"", team.BasisStatic} {
			require.ErrorIs(t, c.Note("x", team.CapabilityOK, basis, "a manifest"), team.ErrInvalid)
		}
		require.Empty(t, c.Lines())
		for _, basis := range []team.CapabilityBasis{team.BasisHook, team.BasisEvent, team.BasisRuntime, team.BasisHuman} {
			require.NoError(t, c.Note("x", team.CapabilityOK, basis, ""))
		}
	})
	t.Run("a basis is one of the kinds", func(t *testing.T) {
		var c team.Capability
		bad := team.CapabilityBasis(strings.Repeat("b", 1<<20))
		require.ErrorIs(t, c.Note("x", team.CapabilityMissing, bad, ""), team.ErrInvalid)
		require.ErrorIs(t, c.Gate(team.Offer{Kind: team.OfferTool, Name: "y"}, team.GateServed, team.CapabilityOK, bad, ""), team.ErrInvalid)
	})
	t.Run("the time is that of the evidence", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var c team.Capability
			c.Subscribed(nil)
			opened := time.Now()
			time.Sleep(time.Hour)
			require.Equal(t, opened.UTC(), line(t, &c, team.CapEvents).At.UTC())
			c.Observe(ev(kid, "session.idle", `{"sessionID":"ses_kid"}`))
			seen := time.Now()
			time.Sleep(time.Hour)
			require.Equal(t, seen.UTC(), line(t, &c, team.CapEvents).At.UTC())
		})
	})
	t.Run("a stream that could not be opened is missing until an event comes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var c team.Capability
			c.Observe(ev(kid, "session.idle", `{"sessionID":"ses_kid"}`))
			time.Sleep(time.Second)
			c.Subscribed(errors.New("refused"))
			require.Equal(t, team.CapabilityMissing, line(t, &c, team.CapEvents).State)
			time.Sleep(time.Second)
			c.Observe(ev(kid, "session.woken", ``))
			require.Equal(t, team.CapabilityOK, line(t, &c, team.CapEvents).State)
			require.Equal(t, "2 events of 2 types", line(t, &c, team.CapEvents).Evidence, "one that nobody knows is one too")
		})
	})
	t.Run("hostile names are bounded", func(t *testing.T) {
		var c team.Capability
		huge := strings.Repeat("<x\u2028", 1<<18)
		c.Observe(ev(kid, huge, ""))
		c.Observe(ev(kid, "session.idle", fmt.Sprintf(`{"sessionID":"x",%q:1}`, huge)))
		require.ErrorIs(t, c.Note(strings.Repeat("n", 1<<20), team.CapabilityMissing, team.BasisStatic, ""), team.ErrLimit)
		require.NoError(t, c.Note("x", team.CapabilityMissing, team.BasisStatic, huge))
		for _, d := range c.Drift() {
			require.Less(t, len(d.Name), 300)
		}
		for name := range c.Stream().Unknown {
			require.Less(t, len(name), 300)
		}
		require.Less(t, len(line(t, &c, "x").Evidence), 300)
		o := team.Offer{Kind: team.OfferTool, Name: huge}
		require.Error(t, c.Gate(o, team.GateServed, team.CapabilityOK, "", ""))
		require.Less(t, len(c.Explain(o).String()), 2000)
	})
}

package team_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// A killing trail ends the goroutine, as a kill ends the process, between a write and
// its line.
type killing struct {
	trail *team.Trail
	op    string // whose line is not written; "" is none
}

func (k *killing) record(ctx context.Context, e team.TraceEvent) {
	if e.Op == k.op {
		runtime.Goexit()
	}
	k.trail.Record(ctx, e)
}

// Whatever the write that a process was killed behind, Retrace writes its line, once.
func TestRetraceAfterAKill(t *testing.T) {
	type scene struct {
		c    *team.SignalChannel
		host *notebook
		sent team.Sent
	}
	receive := func(t *testing.T, s *scene) []team.Received {
		got, err := s.c.Receive(as(t.Context(), "lead"), nil)
		require.NoError(t, err)
		return got
	}
	relay := func(t *testing.T, s *scene) { relayFor(t, s.c, s.host, time.Second) }
	for _, tt := range []struct {
		op     string // behind which it is killed
		before func(*testing.T, *scene)
		do     func(*testing.T, *scene) // what it is killed in
		line   string                   // of the recovered line, if it is another than op
		by     team.SessionID
	}{
		{op: "inbox.send", by: "ses_tester", do: func(t *testing.T, s *scene) {
			send(t, s.c, "tester", "lead", team.Signal{Kind: team.KindNote, Summary: "SECRET", Body: "SECRET"})
		}},
		{op: "inbox.handoff", line: "inbox.send", by: "ses_tester", do: func(t *testing.T, s *scene) {
			_, _ = s.c.HandOff(as(t.Context(), "tester"), newBoard(t, nil), team.Handoff{To: "lead", Draft: team.Draft{Session: "s", Task: "t", Topic: "u", Body: "b"},
				Signal: team.Signal{Kind: team.KindHandoff, Summary: "SECRET", Key: "k"}})
		}},
		{op: "inbox.ack", by: "ses_lead", do: func(t *testing.T, s *scene) { _ = s.c.Ack(as(t.Context(), "lead"), receive(t, s)...) }},
		{op: "inbox.cancel", by: "ses_tester", do: func(t *testing.T, s *scene) { _ = s.c.Cancel(as(t.Context(), "tester"), s.sent) }},
		{op: "inbox.bury", before: func(t *testing.T, s *scene) { require.NoError(t, s.c.Fence(t.Context(), "run-1")) },
			do: func(t *testing.T, s *scene) { receive(t, s) }},
		{op: "inbox.fence", do: func(t *testing.T, s *scene) { _ = s.c.Fence(t.Context(), "run-1") }},
		{op: "relay.deliver", do: relay},
		{op: "relay.deliver", before: func(t *testing.T, s *scene) {
			s.host.fail = func(int, team.Note) error { return team.ErrDenied }
		}, do: relay},
		{op: "relay.delivered", before: relay, do: func(t *testing.T, s *scene) {
			_, _ = s.c.Observe(t.Context(), inboxEvent("delivered", s.host.notes[0].ID))
		}},
		{op: "relay.acked", by: "ses_lead", before: relay, do: func(t *testing.T, s *scene) {
			_ = s.c.AckID(as(t.Context(), "lead"), s.sent.ID)
		}},
	} {
		t.Run(tt.op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "trail")
				k := &killing{trail: openTrail(t, dir, nil)}
				store := new(memstore.Store)
				c, err := team.OpenSignals(t.Context(), store, &team.SignalOptions{Epoch: "run-1", Trace: k.record})
				require.NoError(t, err)
				for _, role := range []team.Role{"lead", "tester"} {
					require.NoError(t, c.Enrol(t.Context(), team.Member{Session: "ses_" + team.SessionID(role), Role: role}))
				}
				s := &scene{c: c, host: new(notebook)}
				if tt.by != "ses_tester" || tt.op == "inbox.cancel" {
					s.sent = send(t, c, "tester", "lead", note("SECRET"))
				}
				if tt.before != nil {
					tt.before(t, s)
				}
				k.op = tt.op
				killed := make(chan struct{})
				go func() {
					defer close(killed)
					tt.do(t, s)
					t.Errorf("it is alive behind %s", tt.op)
				}()
				<-killed
				k.op = ""
				happened := time.Now()
				before := trailLines(t, dir)
				next, err := team.OpenSignals(t.Context(), store, &team.SignalOptions{Trace: k.record})
				require.NoError(t, err)
				retrace := func() int {
					n, err := next.Retrace(as(t.Context(), "reviewer"), team.ReadTrail(t.Context(), dir), nil)
					require.NoError(t, err)
					return n
				}
				require.Zero(t, retrace(), "somebody may be about to write it")
				time.Sleep(team.DefaultRetraceAge)
				require.Equal(t, 1, retrace())
				lines := trailLines(t, dir)[len(before):]
				require.Len(t, lines, 1)
				want := tt.op
				if tt.line != "" {
					want = tt.line
				}
				e := lines[0].Event
				require.Equal(t, []any{want, "recovered", tt.by}, []any{e.Op, e.Outcome, e.By.Session})
				require.Equal(t, "happened "+happened.UTC().Format(time.RFC3339Nano), e.Reason)
				switch {
				case tt.op == "inbox.fence":
					require.Equal(t, "run-1", e.ID)
				default:
					require.Equal(t, k.trail.TargetDigest("ses_lead"), lines[0].Target)
					items := 0
					for item, err := range store.Items(t.Context(), "inbox/ses_lead", team.ListOptions{Settled: true}) {
						require.NoError(t, err)
						require.Equal(t, item.ID, e.ID)
						if want == "inbox.send" {
							require.Equal(t, item.Digest, e.SHA256)
							require.Positive(t, e.Size)
						}
						items++
					}
					require.Equal(t, 1, items)
				}
				if len(s.host.notes) > 0 {
					require.Equal(t, s.host.notes[0].ID, e.HostID)
				}
				require.Zero(t, retrace(), "once")
				verifyTrail(t, dir)
				for name, content := range files(t, dir) {
					require.NotContains(t, content, "SECRET", name)
				}
			})
		})
	}
}

// What has its line is not told again, whatever happened to it.
func TestRetraceOfATrailThatIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "trail")
		trail := openTrail(t, dir, nil)
		c, _ := newTeam(t, &team.SignalOptions{Trace: trail.Record, MaxAttempts: 1, Lease: time.Minute})
		lead := as(t.Context(), "lead")
		send(t, c, "tester", "lead", note("dead"))
		die(t, c, nil)
		send(t, c, "tester", "lead", note("acked"))
		got, err := c.Receive(lead, nil)
		require.NoError(t, err)
		require.NoError(t, c.Ack(lead, got...))
		require.NoError(t, c.Cancel(as(t.Context(), "tester"), send(t, c, "tester", "lead", note("cancelled"))))
		s := note("fenced")
		s.Epoch = strings.Repeat(`"`, 200) // which the trail cuts
		send(t, c, "tester", "lead", s)
		require.NoError(t, c.Fence(lead, s.Epoch))
		_, err = c.Receive(lead, &team.ReceiveOptions{NoWait: true})
		require.NoError(t, err)
		sent, id := relayed(t, c, note("relayed"))
		for _, kind := range []string{"cancelled", "delivered"} {
			_, err = c.Observe(t.Context(), inboxEvent(kind, id))
			require.NoError(t, err)
		}
		require.NoError(t, c.AckID(lead, sent.ID))
		send(t, c, "tester", "lead", note("queued"))
		time.Sleep(time.Hour)
		n, err := c.Retrace(t.Context(), team.ReadTrail(t.Context(), dir), nil)
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

// Of a trail that has given files up, what is older than its first line is left alone;
// a refusal and an unknown outcome tell of nothing that is there.
func TestRetraceOfATrailThatWasSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "trail")
		trail := openTrail(t, dir, &team.TrailOptions{FileSize: 2000, Files: 2})
		quiet, store := newTeam(t, nil)
		c, err := team.OpenSignals(t.Context(), store, &team.SignalOptions{Trace: trail.Record})
		require.NoError(t, err)
		send(t, quiet, "tester", "lead", note("old"))
		time.Sleep(time.Hour)
		late := filepath.Join(t.TempDir(), "late") // a trail that is whole, but began later
		record(openTrail(t, late, nil), "a", 3)
		n, err := c.Retrace(t.Context(), team.ReadTrail(t.Context(), late), nil)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		record(trail, "a", 60)
		require.Positive(t, verifyTrail(t, dir).Dropped)
		time.Sleep(time.Hour)
		missing := send(t, quiet, "tester", "lead", note("no line"))
		trail.Record(t.Context(), team.TraceEvent{Op: "inbox.send", ID: string(missing.ID), Outcome: "unknown"})
		trail.Record(t.Context(), team.TraceEvent{Op: "inbox.send", ID: string(missing.ID), Outcome: "refused"})
		time.Sleep(time.Hour)
		n, err = c.Retrace(t.Context(), team.ReadTrail(t.Context(), dir), nil)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		lines := trailLines(t, dir)
		require.Equal(t, string(missing.ID), lines[len(lines)-1].Event.ID)
	})
}

func TestRetraceRefusals(t *testing.T) {
	synctest.Test(t, testRetraceRefusals)
}

func testRetraceRefusals(t *testing.T) {
	tr := new(tracer)
	c, store := newTeam(t, &team.SignalOptions{Trace: tr.record})
	send(t, c, "tester", "lead", note("x"))
	tr.taken()
	now := &team.RetraceOptions{MinAge: 1}
	fault := errors.New("disk on fire")
	_, err := c.Retrace(t.Context(), func(yield func(team.TrailLine, error) bool) { yield(team.TrailLine{}, fault) }, now)
	require.ErrorIs(t, err, fault)
	lines := func(func(team.TrailLine, error) bool) {} // a trail that is yet to begin
	_, err = c.Retrace(t.Context(), lines, &team.RetraceOptions{MinAge: -1})
	require.ErrorIs(t, err, team.ErrInvalid)
	_, err = c.Retrace(t.Context(), nil, now)
	require.ErrorIs(t, err, team.ErrInvalid)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Retrace(ctx, lines, now)
	require.ErrorIs(t, err, context.Canceled)
	quiet, err := team.OpenSignals(t.Context(), store, nil)
	require.NoError(t, err)
	_, err = quiet.Retrace(t.Context(), lines, now)
	require.ErrorIs(t, err, team.ErrInvalid)
	require.Empty(t, tr.taken(), "an error tells nothing")

	// What nobody can read is told of as far as it can be.
	_, err = store.Append(t.Context(), "inbox/ses_lead", []team.Item{{ID: "sig_x", Data: []byte("{")}}, 0)
	require.NoError(t, err)
	for _, key := range []string{"team/fenced/run-1", "team/relayed/ses_lead/" + fmt.Sprintf("%014d", 1)} {
		_, err = store.Put(t.Context(), key, []byte("{"), "")
		require.NoError(t, err)
	}
	time.Sleep(time.Second)
	n, err := c.Retrace(t.Context(), lines, now)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, []string{"inbox.send recovered", "inbox.send recovered"}, opsOf(tr.taken()))
}

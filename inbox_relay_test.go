package team_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// A notebook is a host that holds notes: the first text under an id wins, as on
// OpenCode 2.0.
type notebook struct {
	mu    sync.Mutex
	notes []team.Note
	to    []team.SessionID
	fail  func(call int, note team.Note) error // before it is taken
	lose  func(call int) error                 // after it is taken
	calls int
}

func (n *notebook) Session(ctx context.Context, id team.SessionID) (team.Session, error) {
	return team.Session{ID: id}, nil
}

func (n *notebook) Interrupt(context.Context, team.SessionID) (team.InterruptVerdict, error) {
	return team.InterruptIdle, nil
}

func (n *notebook) Deliver(ctx context.Context, to team.SessionID, note team.Note) (team.Delivered, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	if n.fail != nil {
		if err := n.fail(n.calls, note); err != nil {
			return team.Delivered{}, err
		}
	}
	at := -1
	for i, old := range n.notes {
		if old.ID == note.ID {
			at = i
		}
	}
	if at < 0 {
		n.notes = append(n.notes, note)
		n.to = append(n.to, to)
		at = len(n.notes) - 1
	}
	if n.lose != nil {
		if err := n.lose(n.calls); err != nil {
			return team.Delivered{}, err
		}
	}
	return team.Delivered{ID: n.notes[at].ID, Text: n.notes[at].Text}, nil
}

func (n *notebook) summaries() (all []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, note := range n.notes {
		all = append(all, note.Description)
	}
	return all
}

var _ team.Sessions = (*notebook)(nil)

// relayFor runs the relay of the lead for d of the bubble's time.
func relayFor(t *testing.T, c *team.SignalChannel, host team.Sessions, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	require.ErrorIs(t, c.Relay(ctx, host, "ses_lead", nil), context.DeadlineExceeded)
}

func state(t *testing.T, c *team.SignalChannel, sent team.Sent) team.Status {
	t.Helper()
	s, err := c.Status(as(t.Context(), "tester"), sent)
	require.NoError(t, err)
	return s
}

func TestRelayDeliversInOrderWithEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, nil)
		host := new(notebook)
		var sent []team.Sent
		for i := range 5 {
			s := note(fmt.Sprint(i))
			s.Delivery = team.DeliveryQueue
			sent = append(sent, send(t, c, "tester", "lead", s))
		}
		relayFor(t, c, host, time.Minute)
		require.Equal(t, []string{"0", "1", "2", "3", "4"}, host.summaries())
		for i, n := range host.notes {
			require.Equal(t, team.SessionID("ses_lead"), host.to[i])
			require.Regexp(t, `^msg_[0-9a-f]{12}[0-9A-Za-z]{14}$`, n.ID)
			require.Equal(t, team.DeliveryQueue, n.Delivery)
			require.False(t, n.Wake)
			s, err := team.ParseSignal(c.Secret(), n.Text)
			require.NoError(t, err)
			require.Equal(t, sent[i].ID, s.ID)
			require.Equal(t, []any{team.SignalOffered, n.ID}, []any{state(t, c, sent[i]).State, state(t, c, sent[i]).Evidence}, "the host's id is the evidence")
		}
		require.Empty(t, pending(t, c, "lead"))
	})
}

func TestRelayRetriesWithoutDoubling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, nil)
		host := &notebook{
			lose: func(call int) error { // taken, and the answer was lost
				if call <= 2 {
					return errors.New("connection reset")
				}
				return nil
			},
		}
		first := send(t, c, "tester", "lead", note("first"))
		send(t, c, "tester", "lead", note("second"))
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Relay(ctx, host, "ses_lead", &team.RelayOptions{Wake: true}) }()
		synctest.Wait()
		require.Equal(t, team.SignalQueued, state(t, c, first).State, "nothing is marked before the host answered")
		time.Sleep(10 * time.Second)
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.Equal(t, []string{"first", "second"}, host.summaries(), "once each, in order")
		require.True(t, host.notes[0].Wake)
		require.Equal(t, 4, host.calls)
		require.Equal(t, 3*time.Second, state(t, c, first).Since.Sub(start), "after pauses of 1 and 2 seconds")
	})
}

func TestRelayPoisonedHeadDoesNotBlock(t *testing.T) {
	for what, refusal := range map[string]error{"for good": team.ErrInvalid, "each time": errors.New("500")} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := newTeam(t, nil)
				host := &notebook{fail: func(_ int, n team.Note) error {
					if n.Description == "poison" {
						return refusal
					}
					return nil
				}}
				poison := send(t, c, "tester", "lead", note("poison"))
				for i := range 4 {
					send(t, c, "tester", "lead", note(fmt.Sprint(i)))
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				require.ErrorIs(t, c.Relay(ctx, host, "ses_lead", &team.RelayOptions{Tries: 3}), context.DeadlineExceeded)
				require.Equal(t, []string{"0", "1", "2", "3"}, host.summaries())
				require.Equal(t, team.SignalDead, state(t, c, poison).State)
				require.Contains(t, state(t, c, poison).Evidence, "the host refused it")
				tries := 3
				if refusal == team.ErrInvalid {
					tries = 1
				}
				require.Equal(t, tries+4, host.calls)
			})
		})
	}
}

func TestRelayForeignTextUnderItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, nil)
		sent := send(t, c, "tester", "lead", note("mine"))
		var s team.Signal
		for q := range c.Pending(as(t.Context(), "lead")) {
			s = q.Signal
		}
		host := &notebook{notes: []team.Note{{ID: team.HostMessageID(s), Text: "somebody else's"}}}
		arrives := func() {
			_, err := c.Observe(t.Context(), inboxEvent("delivered", host.notes[0].ID))
			require.NoError(t, err)
		}
		host.lose = func(int) error { arrives(); return nil }
		relayFor(t, c, host, time.Minute)
		require.Equal(t, team.SignalDead, state(t, c, sent).State, "a success that is not ours is none")
		arrives()
		require.Equal(t, team.SignalDead, state(t, c, sent).State, "nor is its event")
		s.To = "ses_other"
		require.NotEqual(t, host.notes[0].ID, team.HostMessageID(s), "the id is the session's too")
	})
}

// One relaying owner for a session at a time, and a clean hand-over.
func TestRelayHasOneOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		open := func() *team.SignalChannel {
			c, err := team.OpenSignals(t.Context(), store, nil)
			require.NoError(t, err)
			return c
		}
		c := open()
		require.NoError(t, c.Enrol(t.Context(), team.Member{Session: "ses_lead", Role: "lead"}))
		first, second := new(notebook), new(notebook)
		ctx1, stop1 := context.WithCancel(t.Context())
		ctx2, stop2 := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- open().Relay(ctx1, first, "ses_lead", nil) }()
		synctest.Wait()
		go func() { done <- open().Relay(ctx2, second, "ses_lead", nil) }()
		for i := range 20 {
			send(t, c, "tester", "ses_lead", note(fmt.Sprint(i)))
			time.Sleep(5 * time.Second) // longer than a lease in all
		}
		require.Len(t, first.summaries(), 20)
		require.Empty(t, second.summaries())
		stop1()
		<-done
		send(t, c, "tester", "ses_lead", note("after"))
		time.Sleep(4 * time.Second)
		require.Equal(t, []string{"after"}, second.summaries(), "who returns hands over")
		stop2()
		<-done

		// Killed: the record and a claim stay behind.
		_, err := store.Put(t.Context(), "team/relay/ses_lead", []byte(`{"id":"killed","lease":20000000000}`), "")
		require.NoError(t, err)
		send(t, c, "tester", "ses_lead", note("in its hands"))
		_, err = store.Claim(t.Context(), "inbox/ses_lead", team.ClaimOptions{Max: 1, Lease: 22 * time.Second})
		require.NoError(t, err)
		send(t, c, "tester", "ses_lead", note("rescued"))
		third := new(notebook)
		ctx3, stop3 := context.WithCancel(t.Context())
		go func() { done <- open().Relay(ctx3, third, "ses_lead", nil) }()
		time.Sleep(19 * time.Second)
		require.Empty(t, third.summaries(), "its lease holds")
		time.Sleep(8 * time.Second)
		require.Equal(t, []string{"in its hands", "rescued"}, third.summaries(), "in order, though a claim ended after the record")
		stop3()
		<-done
	})
}

func TestRelayRefusals(t *testing.T) {
	c, _ := newTeam(t, nil)
	require.ErrorIs(t, c.Relay(t.Context(), new(notebook), "ses_nobody", nil), team.ErrNotFound)
	require.ErrorIs(t, c.Relay(t.Context(), new(notebook), "a\nb", nil), team.ErrInvalid)
	for _, opts := range []team.RelayOptions{{Lease: -1}, {Lease: 1}, {Lease: 10*time.Millisecond - 1}, {Pause: -1}, {Tries: -2}} {
		require.ErrorIs(t, c.Relay(t.Context(), new(notebook), "ses_lead", &opts), team.ErrInvalid, "%+v", opts)
	}
	require.Panics(t, func() { _ = c.Relay(t.Context(), nil, "ses_lead", nil) })
}

// A host that answers slower than the lease keeps its owner, its order and its signal.
func TestRelaySlowHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, store := newTeam(t, nil)
		host := new(slowHost)
		a := send(t, c, "tester", "lead", note("a"))
		send(t, c, "tester", "lead", note("b"))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 2)
		for range 2 {
			other, err := team.OpenSignals(t.Context(), store, nil)
			require.NoError(t, err)
			go func() { done <- other.Relay(ctx, host, "ses_lead", nil) }()
			time.Sleep(time.Second)
		}
		require.ErrorIs(t, c.Cancel(as(t.Context(), "tester"), a), team.ErrConflict, "it is on its way")
		time.Sleep(5 * time.Minute)
		stop()
		<-done
		<-done
		require.Equal(t, []string{"a", "b"}, host.summaries())
		require.Equal(t, 2, host.calls)
		require.Equal(t, team.SignalOffered, state(t, c, a).State)
	})
}

type slowHost struct{ notebook }

func (h *slowHost) Deliver(ctx context.Context, to team.SessionID, n team.Note) (team.Delivered, error) {
	d, err := h.notebook.Deliver(ctx, to, n)
	time.Sleep(100 * time.Second)
	return d, err
}

// A relay that was held up so long that another took its session, gives the signal at
// hand back and waits its turn: the host hears of one signal at a time, once.
func TestRelayThatWasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, store := newTeam(t, nil)
		host := new(mute)
		host.mute.Store(true)
		sent := send(t, c, "tester", "lead", note("x"))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Relay(ctx, host, "ses_lead", nil) }()
		time.Sleep(time.Second)
		require.EqualValues(t, 1, host.asked.Load())
		_, err := store.Put(t.Context(), "team/relay/ses_lead", []byte(`{"id":"other","lease":60000000000}`), team.AnyVersion)
		require.NoError(t, err)
		time.Sleep(10 * time.Second) // a third of its lease
		require.EqualValues(t, 1, host.ended.Load(), "the call is ended, since the session is another's")
		for q := range c.Pending(as(t.Context(), "lead")) {
			require.Equal(t, team.SignalQueued, q.State)
		}
		got, err := store.Claim(t.Context(), "inbox/ses_lead", team.ClaimOptions{Max: 1, Lease: time.Minute})
		require.NoError(t, err)
		require.Len(t, got, 1, "the other can have it at once")
		host.mute.Store(false)
		time.Sleep(48 * time.Second)
		require.EqualValues(t, 1, host.asked.Load(), "the other's lease holds")
		time.Sleep(30 * time.Second) // and it was killed
		require.EqualValues(t, 2, host.asked.Load())
		require.Equal(t, []string{"x"}, host.summaries())
		require.Equal(t, team.SignalOffered, state(t, c, sent).State)
		stop()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

// A mute host answers nothing until it is given up on.
type mute struct {
	notebook
	mute         atomic.Bool
	asked, ended atomic.Int64 // calls
}

func (h *mute) Deliver(ctx context.Context, to team.SessionID, n team.Note) (team.Delivered, error) {
	h.asked.Add(1)
	if !h.mute.Load() {
		return h.notebook.Deliver(ctx, to, n)
	}
	<-ctx.Done()
	h.ended.Add(1)
	return team.Delivered{}, ctx.Err()
}

// A store that loses the answer to a relay's own sign of life does not make it a
// stranger to itself.
func TestRelayKnowsItsOwnRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, memory := newTeam(t, nil)
		store := &lostStirs{Store: memory}
		c, err := team.OpenSignals(t.Context(), store, nil)
		require.NoError(t, err)
		sent := send(t, c, "tester", "lead", note("x"))
		host := new(slowHost)
		ctx, cancel := context.WithTimeout(t.Context(), 105*time.Second)
		defer cancel()
		require.ErrorIs(t, c.Relay(ctx, host, "ses_lead", nil), context.DeadlineExceeded)
		require.Greater(t, store.stirs, 5)
		require.Equal(t, 1, host.calls)
		require.Equal(t, team.SignalOffered, state(t, c, sent).State)
		_, err = store.Get(t.Context(), "team/relay/ses_lead")
		require.ErrorIs(t, err, team.ErrNotFound, "and it gives it back in the end")
	})
}

// lostStirs loses the answer to each third sign of life.
type lostStirs struct {
	*memstore.Store
	stirs int
}

func (s *lostStirs) Put(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
	v, err := s.Store.Put(ctx, key, value, prev)
	if err == nil && key == "team/relay/ses_lead" {
		if s.stirs++; s.stirs%3 == 0 {
			return "", team.ErrUnknownOutcome
		}
	}
	return v, err
}

// A relay that is stopped while it waits for a host gives its signal back first.
func TestRelayHandsOverInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, nil)
		down := &notebook{fail: func(int, team.Note) error { return errors.New("down") }}
		send(t, c, "tester", "lead", note("a"))
		send(t, c, "tester", "lead", note("b"))
		for range 10 { // more often than MaxAttempts
			relayFor(t, c, down, 10*time.Second)
		}
		up := new(notebook)
		relayFor(t, c, up, time.Second)
		require.Equal(t, []string{"a", "b"}, up.summaries())
	})
}

// What is over while a host is down is not delivered when it is back.
func TestRelayDoesNotDeliverWhatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, nil)
		up := time.Now().Add(10 * time.Minute)
		host := &notebook{fail: func(int, team.Note) error {
			if time.Now().Before(up) {
				return errors.New("down")
			}
			return nil
		}}
		s := note("fenced")
		s.Epoch = "run-1"
		fenced := send(t, c, "tester", "lead", s)
		s = note("expired")
		s.Expires = time.Now().Add(3 * time.Minute) // also while the host is down
		expired := send(t, c, "tester", "lead", s)
		send(t, c, "tester", "lead", note("good"))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Relay(ctx, host, "ses_lead", nil) }()
		time.Sleep(time.Minute)
		require.NoError(t, c.Fence(t.Context(), "run-1"))
		time.Sleep(time.Hour)
		stop()
		<-done
		require.Equal(t, []string{"good"}, host.summaries())
		require.Equal(t, team.SignalDead, state(t, c, fenced).State)
		require.Equal(t, team.SignalExpired, state(t, c, expired).State)
	})
}

// A record of an owner whose clock was wrong blocks no longer than its lease.
func TestRelayOwnersClockDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, store := newTeam(t, nil)
		_, err := store.Put(t.Context(), "team/relay/ses_lead", []byte(`{"id":"x","lease":30000000000,"until":"2999-01-01T00:00:00Z"}`), "")
		require.NoError(t, err)
		send(t, c, "tester", "lead", note("x"))
		host := new(notebook)
		relayFor(t, c, host, time.Minute)
		require.Equal(t, []string{"x"}, host.summaries())
	})
}

// talker is a host without an inbox: what it takes is in the conversation, under an id of
// its own.
type talker struct{ notebook }

func (h *talker) Deliver(ctx context.Context, to team.SessionID, note team.Note) (team.Delivered, error) {
	d, err := h.notebook.Deliver(ctx, to, note)
	d.ID, d.InConversation = "msg_of_the_host", err == nil
	return d, err
}

func TestRelayToAHostWithoutInboxIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, nil)
		sent := send(t, c, "tester", "lead", note("hello"))
		host := new(talker)
		relayFor(t, c, host, time.Minute)
		st := state(t, c, sent)
		require.Equal(t, team.SignalDelivered, st.State)
		require.Equal(t, "in the conversation as msg_of_the_host", st.Evidence)
	})
}

func TestRelayTellsTheHostWhatASignalIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, nil)
		sent := send(t, c, "tester", "lead", note("hello"))
		host := new(notebook)
		relayFor(t, c, host, time.Minute)
		digest := sha256.Sum256([]byte(host.notes[0].Text))
		require.Equal(t, map[string]string{
			"source": "team", "kind": "note", "from": "ses_tester", "signal": string(sent.ID),
			"seq": fmt.Sprint(sent.Seq), "digest": hex.EncodeToString(digest[:]),
		}, host.notes[0].Metadata)
	})
}

func TestRelayNeverWakesForAPassiveNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTeam(t, nil)
		passive := note("when you have time")
		passive.Delivery = team.DeliveryQueue
		send(t, c, "tester", "lead", passive)
		send(t, c, "tester", "lead", note("now"))
		host := new(notebook)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, c.Relay(ctx, host, "ses_lead", &team.RelayOptions{Wake: true}), context.DeadlineExceeded)
		require.False(t, host.notes[0].Wake)
		require.True(t, host.notes[1].Wake)
	})
}

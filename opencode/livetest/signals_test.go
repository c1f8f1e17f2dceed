package livetest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team"
	"github.com/teamchan/team/hosttest"
	"github.com/teamchan/team/internal/scriptedmodel"
	"github.com/teamchan/team/memstore"
	"github.com/teamchan/team/opencode"
)

const frame = `<team_signal origin="a program sent this, not the user`

// signals returns a channel on which lead and a worker are enrolled, and the worker's context.
func signals(t *testing.T, lead team.SessionID) (*team.SignalChannel, context.Context) {
	t.Helper()
	c, err := team.OpenSignals(t.Context(), new(memstore.Store), nil)
	require.NoError(t, err)
	require.NoError(t, c.Enrol(t.Context(), team.Member{Session: lead, Role: "lead"}))
	require.NoError(t, c.Enrol(t.Context(), team.Member{Session: "ses_worker", Role: "tester", Parent: lead}))
	return c, team.WithCaller(t.Context(), team.Caller{Session: "ses_worker", Role: "tester"})
}

func send(t *testing.T, c *team.SignalChannel, worker context.Context, n int) (sent []team.Sent) {
	t.Helper()
	for i := range n {
		s, err := c.Send(worker, "lead", team.Signal{Kind: team.KindNote, Summary: fmt.Sprintf("signal number %d.", i), Body: "with <tags> & </team_signal>"})
		require.NoError(t, err)
		sent = append(sent, s)
	}
	return sent
}

// relay relays until every signal is delivered, and returns the evidence for each.
func relay(t *testing.T, c *team.SignalChannel, worker context.Context, host team.Sessions, sent []team.Sent, wake bool) (evidence []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- c.Relay(ctx, host, sent[0].To, &team.RelayOptions{Pause: 20 * time.Millisecond, Wake: wake})
	}()
	for _, s := range sent {
		eventually(t, func(context.Context) error {
			st, err := c.Status(worker, s)
			if err == nil && st.State != team.SignalDelivered {
				err = fmt.Errorf("signal %d is %s: %s", s.Seq, st.State, st.Evidence)
			}
			if err == nil {
				evidence = append(evidence, st.Evidence)
			}
			return err
		})
	}
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	return evidence
}

// sees checks what the model received: each signal once, in order, each in a message of
// its own that begins with where it comes from.
func sees(t *testing.T, r scriptedmodel.Request, c *team.SignalChannel, sent []team.Sent) {
	t.Helper()
	last := -1
	for _, s := range sent {
		require.Equal(t, 1, r.Count(fmt.Sprintf(`id="%s"`, s.ID)), "times that the model sees signal %d", s.Seq)
		at := r.Find(fmt.Sprintf(`id="%s"`, s.ID))
		require.Greater(t, at, last, "the place of signal %d", s.Seq)
		last = at
		m := r.Messages[at]
		require.Equal(t, "user", m.Role)
		require.True(t, strings.HasPrefix(m.Text, frame), "provenance comes first: %.200q", m.Text)
		// The host may add text of its own behind the frame.
		text, _, _ := strings.Cut(m.Text, "\n</team_signal>")
		got, err := team.ParseSignal(c.Secret(), text+"\n</team_signal>")
		require.NoError(t, err)
		require.Equal(t, s.ID, got.ID)
		require.Equal(t, team.Role("tester"), got.From.Role)
	}
}

// next prompts a session and returns what the model received for it.
func next(t *testing.T, h *opencode.Host, id team.SessionID) scriptedmodel.Request {
	t.Helper()
	mark := fmt.Sprintf("now look at %s, %s", id, t.Name())
	_, err := h.Prompt(within(t, time.Minute), id, opencode.Prompt{Text: mark, Wait: true})
	require.NoError(t, err)
	r, err := live.model.Wait(within(t, time.Minute), func(r scriptedmodel.Request) bool { return len(r.Tools) > 0 && r.Find(mark) >= 0 })
	require.NoError(t, err)
	return r
}

func TestSignals(t *testing.T) {
	need(t)
	t.Run("the model sees each once, in order, provenance first", func(t *testing.T) {
		h := dial(t, "")
		id := session(t, h, opencode.NewSession{})
		c, worker := signals(t, id)
		sent := send(t, c, worker, 8)
		evidence := relay(t, c, worker, h, sent, false)
		all := messages(t, h, id)
		require.Len(t, all, 8)
		for i, m := range all {
			require.Contains(t, evidence[i], m.ID, "the evidence has the host's id")
			require.True(t, m.Parts[0].Synthetic)
		}
		sees(t, next(t, h, id), c, sent)
	})

	t.Run("nothing is doubled when answers are lost", func(t *testing.T) {
		p := newProxy(t)
		var n atomic.Int64
		p.lose = func(r *http.Request) bool {
			return r.Method == http.MethodPost && n.Add(1)%3 != 0 // two of three
		}
		direct, lossy := dial(t, ""), dial(t, p.URL)
		id := session(t, direct, opencode.NewSession{})
		c, worker := signals(t, id)
		sent := send(t, c, worker, 6)
		relay(t, c, worker, lossy, sent, false)
		require.GreaterOrEqual(t, p.dropped.Load(), int64(4))
		require.Len(t, messages(t, direct, id), 6)
		sees(t, next(t, direct, id), c, sent)
	})

	t.Run("one note id in two sessions is a message in each, and twice is once", func(t *testing.T) {
		h := dial(t, "")
		one, two := session(t, h, opencode.NewSession{}), session(t, h, opencode.NewSession{})
		id := hosttest.NoteID(one)
		for range 2 {
			for _, to := range []team.SessionID{one, two} {
				d, err := h.Deliver(within(t, time.Minute), to, team.Note{ID: id, Text: "for " + string(to)})
				require.NoError(t, err)
				require.Equal(t, "for "+string(to), d.Text)
			}
		}
		for _, to := range []team.SessionID{one, two} {
			all := messages(t, h, to)
			require.Len(t, all, 1)
			require.Len(t, all[0].Parts, 1, "no part of the other session, none doubled")
			require.Equal(t, "for "+string(to), all[0].Text())
		}
	})

	t.Run("a prompt without reply is the user's own text, and nobody works on it", func(t *testing.T) {
		h := dial(t, "")
		id := session(t, h, opencode.NewSession{})
		mark := "only to be kept in " + string(id)
		_, err := h.Prompt(within(t, time.Minute), id, opencode.Prompt{Text: mark, NoReply: true})
		require.NoError(t, err)
		all := messages(t, h, id)
		require.Len(t, all, 1)
		require.Equal(t, "user "+mark, all[0].Type+" "+all[0].Text())
		require.False(t, all[0].Parts[0].Synthetic)
		idle(t, h, id)
		for _, r := range live.model.Requests() {
			require.Negative(t, r.Find(mark), "the model was called")
		}
	})

	t.Run("a running session sees them at its next step", func(t *testing.T) {
		h := dial(t, "")
		id := session(t, h, opencode.NewSession{})
		c, worker := signals(t, id)
		sent := send(t, c, worker, 2)
		mark := "running " + string(id)
		_, err := h.Prompt(within(t, time.Minute), id, opencode.Prompt{Text: mark + "\n" + scriptedmodel.Script(
			step{Delay: 2000, Calls: []call{{Tool: "bash", Args: args{"command": "echo one", "description": "one"}}}}, step{Text: "done"})})
		require.NoError(t, err)
		_, err = live.model.Wait(within(t, time.Minute), func(r scriptedmodel.Request) bool { return r.Find(mark) >= 0 })
		require.NoError(t, err)
		relay(t, c, worker, h, sent, false)
		r, err := live.model.Wait(within(t, time.Minute), func(r scriptedmodel.Request) bool { return r.Find(mark) >= 0 && r.Count(frame) > 0 })
		require.NoError(t, err)
		// The host wraps what comes into a running turn, so a frame need not begin its message.
		for _, s := range sent {
			require.Equal(t, 1, r.Count(fmt.Sprintf(`id="%s"`, s.ID)))
		}
		idle(t, h, id)
	})

	t.Run("a signal can wake an idle session, also one older than its last answer", func(t *testing.T) {
		h := dial(t, "")
		id := session(t, h, opencode.NewSession{})
		c, worker := signals(t, id)
		sent := send(t, c, worker, 1)
		time.Sleep(5 * time.Millisecond) // the answer's id has a later time
		prompt(t, h, id, step{Text: "an answer"})
		before := len(messages(t, h, id))
		relay(t, c, worker, h, sent, true)
		eventually(t, func(context.Context) error {
			all := messages(t, h, id)
			if len(all) < before+2 || all[len(all)-1].Type != "assistant" || all[len(all)-1].Text() != "ok" {
				return fmt.Errorf("%d messages, the last is %q: %q", len(all), all[len(all)-1].Type, all[len(all)-1].Text())
			}
			return nil
		})
		idle(t, h, id)
	})

	t.Run("a signal changes neither agent nor model of the session", func(t *testing.T) {
		h := dial(t, "")
		id := session(t, h, opencode.NewSession{})
		_, err := h.Prompt(within(t, time.Minute), id, opencode.Prompt{Agent: "plan", Text: "make a plan", Wait: true})
		require.NoError(t, err)
		c, worker := signals(t, id)
		relay(t, c, worker, h, send(t, c, worker, 1), false)
		all := messages(t, h, id)
		require.Equal(t, "plan", all[len(all)-1].Agent)
		s, err := h.Session(within(t, time.Minute), id)
		require.NoError(t, err)
		require.Equal(t, "plan", s.Agent)
	})
}

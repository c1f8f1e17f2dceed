package livetest_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team"
	"github.com/teamchan/team/internal/scriptedmodel"
	"github.com/teamchan/team/memstore"
	"github.com/teamchan/team/opencode"
)

// A joined is a Join of a live parent session, which hears of it over a proxy.
type joined struct {
	*team.Join
	h      *opencode.Host
	p      *proxy
	parent team.SessionID
	begun  chan struct{} // closed when the stream runs
}

// join follows the events of a new session. What tools of the parent answered is
// read from its messages, as a hook behind the tool would.
func join(t *testing.T, report func(what, name string)) *joined {
	t.Helper()
	p := newProxy(t)
	j := &joined{h: dial(t, ""), p: p, begun: make(chan struct{})}
	j.parent = session(t, j.h, opencode.NewSession{})
	var err error
	j.Join, err = team.OpenJoin(t.Context(), new(memstore.Store), j.parent, &team.JoinOptions{
		Sessions: j.h, Grace: 2 * time.Second, Look: time.Second,
		Report: func(_ context.Context, what, name string) { report(what, name) },
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var once sync.Once
	go func() {
		ended <- j.Follow(ctx, dial(t, p.URL), &team.FollowOptions{Retry: 100 * time.Millisecond,
			Also: func(context.Context, team.Event) error {
				once.Do(func() { close(j.begun) })
				return nil
			}})
	}()
	t.Cleanup(func() {
		stop()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
	select {
	case <-j.begun:
	case <-within(t, time.Minute).Done():
		t.Fatal("no event came")
	}
	return j
}

// adopt waits for the parent's child and adopts it.
func (j *joined) adopt(t *testing.T) team.SessionID {
	t.Helper()
	var id team.SessionID
	eventually(t, func(ctx context.Context) error {
		children, err := j.h.Children(ctx, j.parent)
		if err == nil && len(children) == 1 {
			id = children[0].ID
			return nil
		}
		return errNotYet
	})
	a, err := j.Adopt(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, team.AdoptedSome, a.Answer)
	require.Len(t, a.Children, 1)
	require.Equal(t, id, a.Children[0].Session)
	return id
}

// settled waits until all children have settled, and returns the only one.
func (j *joined) settled(t *testing.T) (team.Child, team.Waited) {
	t.Helper()
	w, err := j.Wait(t.Context(), &team.WaitOptions{Timeout: 15 * time.Second, Firm: true})
	require.NoError(t, err)
	require.Equal(t, team.WaitSettled, w.End, "%+v\n%+v", w, j.Stream())
	require.Len(t, w.Children, 1)
	return w.Children[0], w
}

// result passes the task's result on, as the hook behind the tool gets it.
func (j *joined) result(t *testing.T) team.Registration {
	t.Helper()
	part := tool(t, messages(t, j.h, j.parent), "task")
	var raw struct {
		CallID string
		State  struct {
			Output, Title, Error string
			Metadata             json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal(part.Raw, &raw))
	body := args{"title": raw.State.Title, "output": raw.State.Output, "metadata": raw.State.Metadata}
	if raw.State.Error != "" {
		body = args{"error": args{"message": raw.State.Error}, "metadata": raw.State.Metadata}
	}
	result, err := json.Marshal(body)
	require.NoError(t, err)
	reg, err := j.RegisterResult(t.Context(), team.ToolResult{Tool: "task", Session: j.parent, Call: raw.CallID, Result: result})
	require.NoError(t, err)
	return reg
}

// works waits until the model was called for the child whose prompt begins with mark.
func works(t *testing.T, mark string) {
	t.Helper()
	_, err := live.model.Wait(within(t, time.Minute), func(r scriptedmodel.Request) bool {
		return len(r.Messages) > 0 && r.Messages[len(r.Messages)-1].Role == "user" && strings.HasPrefix(r.Messages[len(r.Messages)-1].Text, mark)
	})
	require.NoError(t, err)
}

var errNotYet = errorString("not yet")

type errorString string

func (e errorString) Error() string { return string(e) }

// The Join over the events of a running OpenCode.
func TestJoin(t *testing.T) {
	need(t)
	for _, test := range []struct {
		name       string
		background bool
		steps      []step
		state      team.ChildState
		text       string
	}{
		{"foreground", false, []step{{Text: "the result", Delay: 1500}}, team.ChildCompleted, "the result"},
		{"background", true, []step{{Text: "found it", Delay: 1500}}, team.ChildCompleted, "found it"},
		{"failing", false, []step{{Fails: 400, Delay: 1500}}, team.ChildFailed, ""},
		{"failing in the background", true, []step{{Fails: 400, Delay: 1500}}, team.ChildFailed, ""},
		{"without a text", false, []step{{Delay: 1500, Text: ""}}, team.ChildEmpty, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			j := join(t, func(what, name string) { t.Errorf("%s: %s", what, name) })
			mark := "child of " + string(j.parent)
			begin(t, j.h, j.parent, step{Calls: []call{task(mark, test.background, test.steps...)}})
			id := j.adopt(t)
			c, w := j.settled(t)
			require.Equal(t, id, c.Session)
			require.Equal(t, test.state, c.State, "%+v", c)
			require.Zero(t, j.Stream().Gaps)
			require.False(t, c.By.Resync)
			require.Contains(t, []team.JoinSource{team.FromEvent, team.FromEnvelope, team.FromNotice, team.FromSnapshot}, c.By.Source, "%+v", c.By)
			require.Len(t, w.Results, 1)
			if test.text != "" {
				require.NoError(t, w.Results[0].Unread)
				text, err := j.Text(t.Context(), id, c.Turn) // the events may have shown it to the parent before
				require.NoError(t, err)
				require.Equal(t, test.text, text)
			}
			idle(t, j.h, j.parent)
			reg := j.result(t)
			require.Equal(t, team.EnvelopeMatched, reg.Verdict)
			require.Equal(t, id, reg.Child.Session)
			require.False(t, reg.New)
			require.Empty(t, reg.Child.Conflicts, "what the host told the parent agrees")
		})
	}

	t.Run("aborted", func(t *testing.T) {
		t.Parallel()
		j := join(t, func(what, name string) { t.Errorf("%s: %s", what, name) })
		mark := "child of " + string(j.parent)
		begin(t, j.h, j.parent, step{Calls: []call{task(mark, false, step{Text: "never", Delay: 30_000})}})
		id := j.adopt(t)
		works(t, mark)
		_, err := j.h.Interrupt(within(t, time.Minute), j.parent)
		require.NoError(t, err)
		c, _ := j.settled(t)
		require.Equal(t, id, c.Session)
		require.Contains(t, []team.ChildState{team.ChildInterrupted, team.ChildStopped, team.ChildCancelled}, c.State, "%+v", c)
	})

	t.Run("cancelled by the lead", func(t *testing.T) {
		t.Parallel()
		j := join(t, func(what, name string) { t.Errorf("%s: %s", what, name) })
		mark := "child of " + string(j.parent)
		begin(t, j.h, j.parent, step{Calls: []call{task(mark, true, step{Text: "never", Delay: 30_000})}})
		id := j.adopt(t)
		works(t, mark)
		_, err := j.Cancel(within(t, time.Minute), id)
		require.NoError(t, err)
		c, _ := j.settled(t)
		require.Contains(t, []team.ChildState{team.ChildCancelled, team.ChildInterrupted}, c.State, "%+v", c)
	})

	// The child ends while nobody hears of it.
	for _, test := range []struct {
		name  string
		steps []step
		state team.ChildState
	}{
		{"completes", []step{{Text: "unheard", Delay: 1500}}, team.ChildCompleted},
		{"fails", []step{{Fails: 400, Delay: 1500}}, team.ChildFailed},
	} {
		t.Run("the stream is cut, and the child "+test.name+" in the hole", func(t *testing.T) {
			t.Parallel()
			j := join(t, func(what, name string) { t.Errorf("%s: %s", what, name) })
			mark := "child of " + string(j.parent)
			begin(t, j.h, j.parent, step{Calls: []call{task(mark, true, test.steps...)}})
			id := j.adopt(t)
			works(t, mark)
			j.p.down.Store(true) // no stream comes through
			j.p.CloseClientConnections()
			idle(t, j.h, id)
			idle(t, j.h, j.parent)
			require.NotEmpty(t, j.Stream().Gap, "the hole is told")
			j.p.down.Store(false)
			c, w := j.settled(t)
			require.Equal(t, test.state, c.State, "%+v", c)
			require.Equal(t, team.FromSnapshot, c.By.Source)
			require.Len(t, w.Results, 1)
			if test.state == team.ChildCompleted {
				require.Equal(t, "unheard", w.Results[0].Text)
			}
			eventually(t, func(context.Context) error {
				if s := j.Stream(); s.Gap != "" || s.Gaps == 0 {
					return errNotYet
				}
				return nil
			})
		})
	}

	t.Run("the stream is cut, and the child goes on: its ending comes as an event", func(t *testing.T) {
		t.Parallel()
		j := join(t, func(what, name string) { t.Errorf("%s: %s", what, name) })
		mark := "child of " + string(j.parent)
		begin(t, j.h, j.parent, step{Calls: []call{task(mark, true, step{Text: "late", Delay: 8000})}})
		j.adopt(t)
		works(t, mark)
		j.p.CloseClientConnections()
		eventually(t, func(context.Context) error {
			if s := j.Stream(); s.Gap != "" || s.Gaps == 0 {
				return errNotYet
			}
			return nil
		})
		c, _ := j.settled(t)
		require.Equal(t, team.ChildCompleted, c.State, "%+v", c)
	})
}

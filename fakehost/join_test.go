package fakehost_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
	"github.com/teamchan/team/memstore"
)

// The named faults, all of them.
var allFaults = []fakehost.Fault{
	fakehost.FaultTerminalMissing, fakehost.FaultShutdownAfterDecline, fakehost.FaultEndlessRetry, fakehost.FaultStreamCut,
	fakehost.FaultOverflow, fakehost.FaultNoticeMissing, fakehost.FaultNoticeDuplicate, fakehost.FaultEmptyResult,
	fakehost.FaultStepLimit, fakehost.FaultCompletedAfterDenial, fakehost.FaultCompareMode, fakehost.FaultUnknownEvents,
	fakehost.FaultSlowStorage, fakehost.FaultServerMissing, fakehost.FaultRipgrepMissing,
}

// A lead dispatches four children at once, two in the foreground and two in the background, on a
// host with two faults, and a Join that hears the host's stream and its tool hook waits for them. What
// really happens to a child is written down by the script that it runs.
func TestJoinWithFaultsInPairs(t *testing.T) {
	for _, p := range []fakehost.Profile{fakehost.V1_18, fakehost.V2_0} {
		t.Run(p.Name, func(t *testing.T) {
			for i, a := range allFaults {
				for _, b := range allFaults[i:] { // with itself: the fault alone
					bubble(t, fmt.Sprint(a, " and ", b), func(t *testing.T) { waitWithFaults(t, p, a, b) })
				}
			}
			bubble(t, "none", func(t *testing.T) { waitWithFaults(t, p) })
		})
	}
}

// The children, by what the lead asks of them.
const (
	jobAnswer  = "answer"  // in the background; uses a tool for a second, then answers
	jobCareful = "careful" // in the background; asks for permission, which is refused
	jobQuick   = "quick"   // in the foreground; answers after three seconds
	jobBroken  = "broken"  // in the foreground; fails after two seconds
)

// A truth is what really happened to the children.
type truth struct {
	skill string // the generation's name of the field of a skill's name

	mu    sync.Mutex
	ended map[team.SessionID]time.Time // when the script was over
}

func (w *truth) child(ctx context.Context, turn *fakehost.Turn) (text string, err error) {
	id, job := team.SessionID(turn.Session()), ""
	for _, j := range []string{jobAnswer, jobCareful, jobQuick, jobBroken} {
		if strings.HasSuffix(turn.Text(), "do: "+j) {
			job = j
		}
	}
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ended[id] = time.Now()
	}()
	switch job {
	case jobAnswer:
		_, _ = turn.Call(ctx, "skill", map[string]string{w.skill: "notes"}) // fails without ripgrep
		_, err = turn.Call(ctx, "nap", nil)
	case jobCareful:
		_, err = turn.Call(ctx, "careful", nil)
	case jobQuick:
		err = turn.Sleep(ctx, 3*time.Second)
	default:
		if err = turn.Sleep(ctx, 2*time.Second); err == nil {
			err = errors.New("scripted failure")
		}
	}
	return "the answer of " + job, err
}

func waitWithFaults(t *testing.T, p fakehost.Profile, faults ...fakehost.Fault) {
	has := func(f fakehost.Fault) bool { return slices.Contains(faults, f) }
	w := &truth{skill: map[int]string{1: "name", 2: "id"}[p.Generation], ended: make(map[team.SessionID]time.Time)}
	careful := fakehost.Tool{Name: "careful", Run: func(ctx context.Context, c *fakehost.ToolCall) (fakehost.ToolOutput, error) {
		return fakehost.ToolOutput{Text: "done"}, c.Ask(ctx, "careful", []string{"x"}, nil, nil)
	}}
	var h *fakehost.Host
	h = open(t, &fakehost.Options{Profile: p, Tools: []fakehost.Tool{napTool(), careful},
		Skills: []fakehost.Skill{{Name: "notes", Description: "d", Text: "notes"}},
		Agents: []fakehost.Agent{
			{Name: "general", Mode: "subagent", Script: w.child, Permissions: []fakehost.Rule{rule("*", "*", team.Allow), rule("careful", "*", team.Ask)}},
			{Name: "build", Mode: "primary", Script: leadOfFour(p, func() { h.Inject(faults...) })}}})
	lead := create(t, h)

	var unknown []string
	j, err := team.OpenJoin(t.Context(), new(memstore.Store), team.SessionID(lead), &team.JoinOptions{Sessions: h.Sessions(),
		Report: func(_ context.Context, _, name string) { unknown = append(unknown, name) }})
	require.NoError(t, err)
	defer h.Tools().AfterTool(func(ctx context.Context, r team.ToolResult) (team.ToolResult, error) {
		if r.Session == j.Parent() {
			if _, err := j.RegisterResult(ctx, r); err != nil && ctx.Err() == nil { // the call ends with the test
				t.Error(err)
			}
		}
		return r, nil
	})()
	ctx, stop := context.WithCancel(t.Context())
	followed := make(chan error, 1)
	go func() { followed <- j.Follow(ctx, h.Events(), nil) }()
	defer func() {
		stop()
		if err := <-followed; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow = %v", err)
		}
	}()
	synctest.Wait()
	prompt(t, h, lead, "go")

	seen := &sightings{texts: make(map[team.SessionID]int), firm: make(map[team.SessionID]team.Child)}
	w.waitUntil(t, h, j, seen, time.Now().Add(2*time.Minute), 4)
	got := byJob(t, h, j)
	if has(fakehost.FaultEndlessRetry) {
		// Nobody has begun to work. The honest outcome is that they go on; then each is stopped.
		require.Empty(t, w.ended)
		waited, err := j.Wait(t.Context(), &team.WaitOptions{Timeout: time.Second})
		require.NoError(t, err)
		require.Equal(t, team.WaitDeadline, waited.End)
		for _, c := range waited.Children {
			require.Contains(t, []team.ChildState{team.ChildStalled, team.ChildTimedOut}, c.State, c)
			if !has(fakehost.FaultStreamCut) && !has(fakehost.FaultOverflow) {
				require.Equal(t, team.ChildStalled, c.State, "%+v", c)
				require.Contains(t, c.Reason, "tries again")
			}
			_, err := j.Cancel(t.Context(), c.Session)
			require.NoError(t, err)
		}
		w.waitUntil(t, h, j, seen, time.Now().Add(2*time.Minute), len(waited.Children))
		for _, c := range byJob(t, h, j) {
			require.True(t, c.Settled(), "%+v", c)
			require.Contains(t, []team.ChildState{team.ChildCancelled, team.ChildInterrupted, team.ChildUnknown}, c.State, "%+v", c)
		}
		return
	}
	require.Len(t, got, 4, "every child is known by the deadline")
	for job, c := range got {
		require.True(t, c.Settled(), "%s: %+v", job, c)
		require.Contains(t, endings(p, job, has), c.State, "%s: %+v", job, c)
		require.Equal(t, c.State == team.ChildUnknown, c.Presumed, "%s: %+v", job, c)
		require.Equal(t, 1, c.Turn, "%s: %+v", job, c)
		if done := c.State == team.ChildCompleted || c.State == team.ChildEmpty; done && job == jobCareful && slices.ContainsFunc(c.Evidence,
			func(e team.JoinEvidence) bool { return e.State == team.ChildFailed }) {
			require.NotEmpty(t, c.Conflicts, "the idle event of generation 1 and the notice say different things: %+v", c)
		}
	}
	if has(fakehost.FaultUnknownEvents) && !has(fakehost.FaultStreamCut) && !has(fakehost.FaultOverflow) {
		require.Equal(t, []string{"session.future.happened"}, unknown, "reported by name, once")
	}
	for id, n := range seen.texts {
		require.LessOrEqual(t, n, 1, "the answer of %s was shown %d times", id, n)
	}
}

// leadOfFour dispatches the four children in one step. The faults begin with it.
func leadOfFour(p fakehost.Profile, begin func()) fakehost.Script {
	return func(ctx context.Context, turn *fakehost.Turn) (string, error) {
		if turn.Prompts()[0].Type == "synthetic" || turn.Text() != "go" {
			return "noted", nil
		}
		begin()
		use := func(job string, background bool) fakehost.ToolUse {
			in := map[string]any{"description": job, "prompt": "do: " + job, "background": background}
			in[map[int]string{1: "subagent_type", 2: "agent"}[p.Generation]] = "general"
			return fakehost.ToolUse{Tool: p.Subagent, Input: in}
		}
		_, err := turn.CallAll(ctx, use(jobAnswer, true), use(jobCareful, true), use(jobQuick, false), use(jobBroken, false))
		return "done", err
	}
}

// endings are the states that say truly how a child has ended. ChildUnknown is one where nothing says
// how: the end of its turn is not told or its events are lost, and its last message is a call of a tool.
func endings(p fakehost.Profile, job string, has func(fakehost.Fault) bool) []team.ChildState {
	completed := []team.ChildState{team.ChildCompleted}
	stopped := []team.ChildState{team.ChildInterrupted, team.ChildCancelled}
	lost := has(fakehost.FaultStreamCut) || has(fakehost.FaultOverflow)
	untold := has(fakehost.FaultTerminalMissing) && has(fakehost.FaultNoticeMissing)
	if has(fakehost.FaultEmptyResult) || has(fakehost.FaultStepLimit) && job != jobQuick {
		completed = append(completed, team.ChildEmpty) // 2.0 has a sentence for it
	}
	var states []team.ChildState
	switch {
	case job == jobBroken:
		return []team.ChildState{team.ChildFailed}
	case job == jobQuick, job == jobAnswer && !has(fakehost.FaultStepLimit):
		return completed
	case job == jobAnswer:
		states = completed
		untold = untold || lost && p.Generation == 1
	case has(fakehost.FaultCompletedAfterDenial), has(fakehost.FaultStepLimit):
		states = append(completed, team.ChildEmpty)
		if p.Generation == 1 {
			states = append(states, team.ChildFailed) // the last message has a tool that failed
		}
	case p.Generation == 1: // its events say no more than that it is idle, the notice that a tool failed
		states = append(stopped, team.ChildCompleted, team.ChildEmpty, team.ChildFailed)
	default:
		states = stopped
	}
	if job == jobCareful && has(fakehost.FaultShutdownAfterDecline) {
		untold = untold || lost || has(fakehost.FaultNoticeMissing)
	}
	if untold || lost && (p.Generation == 1 || has(fakehost.FaultTerminalMissing)) {
		states = append(states, team.ChildUnknown)
	}
	return states
}

// sightings are what the test was told, and how often.
type sightings struct {
	texts map[team.SessionID]int
	firm  map[team.SessionID]team.Child
}

// waitUntil waits for n children until the deadline, refuses what they ask for, and compares each
// thing that is said with what has happened by then.
func (w *truth) waitUntil(t *testing.T, h *fakehost.Host, j *team.Join, seen *sightings, deadline time.Time, n int) {
	for time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond) // there may be nobody yet to wait for
		waited, err := j.Wait(t.Context(), &team.WaitOptions{Timeout: time.Second})
		require.NoError(t, err)
		for i, c := range waited.Children {
			w.compare(t, h, seen, c)
			require.True(t, i == 0 || waited.Children[i-1].Order < c.Order, "the order is that of registration")
			for _, a := range c.Asks {
				require.Equal(t, "permission", a.Kind)
				err := h.Permission.Reply(t.Context(), fakehost.Reply{Request: a.ID, Reply: "reject"})
				require.True(t, err == nil || errors.Is(err, team.ErrNotFound), err)
			}
		}
		for _, r := range waited.Results {
			if r.Text != "" {
				seen.texts[r.Session]++
			}
		}
		if waited.Settled == n {
			return
		}
		if len(waited.Children) < n { // a call that failed tells no hook, and its events may be lost
			a, err := j.Adopt(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, a.Err)
		}
	}
}

// compare is the laws: never early, never twice. A child that is over has left its script, or has never
// come to it and does not run.
func (w *truth) compare(t *testing.T, h *fakehost.Host, seen *sightings, c team.Child) {
	w.mu.Lock()
	ended, over := w.ended[c.Session]
	w.mu.Unlock()
	was, settled := seen.firm[c.Session]
	if settled {
		require.Equal(t, was.Turn, c.Turn, "it settled once: %+v, then %+v", was, c)
		require.True(t, c.Settled(), "it settled once: %+v, then %+v", was, c)
	}
	if !c.Settled() {
		return
	}
	if over {
		require.False(t, c.Ended.Before(ended), "settled early: %+v, it ended at %s", c, ended)
	} else {
		active, err := h.Session.Active(t.Context())
		require.NoError(t, err)
		require.NotContains(t, active, string(c.Session), "settled early: %+v", c)
		require.Contains(t, []team.ChildState{team.ChildCancelled, team.ChildInterrupted, team.ChildUnknown}, c.State, "it did no work: %+v", c)
	}
	if !c.Presumed {
		seen.firm[c.Session] = c
	}
}

// byJob returns what the Join says of each child.
func byJob(t *testing.T, h *fakehost.Host, j *team.Join) map[string]team.Child {
	list, err := j.Children(t.Context(), nil)
	require.NoError(t, err)
	out := make(map[string]team.Child)
	for _, c := range list {
		s, err := h.Session.Get(t.Context(), string(c.Session))
		require.NoError(t, err)
		job, _, _ := strings.Cut(s.Title, " ") // the description
		out[job] = c
	}
	require.Len(t, out, len(list))
	return out
}

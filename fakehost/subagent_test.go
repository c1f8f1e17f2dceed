package fakehost_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

// A family is a host whose agent build dispatches and whose general is the child.
type family struct {
	h      *fakehost.Host
	parent string
	result fakehost.Result
	err    error
}

// dispatch runs parent as the agent build and child as general, and waits for the parent.
func dispatch(t *testing.T, opts *fakehost.Options, parent func(ctx context.Context, t *fakehost.Turn) (fakehost.Result, error), child fakehost.Script) *family {
	t.Helper()
	f := new(family)
	opts.Tools = append(opts.Tools, napTool())
	opts.Agents = append([]fakehost.Agent{{Name: "build", Mode: "primary", Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
		if t.Prompts()[0].Type == "synthetic" {
			return "noted", nil
		}
		f.result, f.err = parent(ctx, t)
		return "done", nil
	}}, {Name: "general", Mode: "subagent", Script: child}}, opts.Agents...)
	f.h = open(t, opts)
	f.parent = create(t, f.h)
	prompt(t, f.h, f.parent, "go")
	return f
}

func foreground(ctx context.Context, t *fakehost.Turn) (fakehost.Result, error) {
	return t.Dispatch(ctx, "general", `count "words"`, "hello")
}

func background(ctx context.Context, t *fakehost.Turn) (fakehost.Result, error) {
	return t.Background(ctx, "general", `count "words"`, "hello")
}

func (f *family) child(t *testing.T) *fakehost.Session {
	t.Helper()
	list, err := f.h.Session.Children(t.Context(), f.parent)
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

// notices returns the synthetic texts of the parent.
func (f *family) notices(t *testing.T) []*fakehost.Message {
	t.Helper()
	list, err := f.h.Session.Messages(t.Context(), f.parent, fakehost.MessagePage{})
	require.NoError(t, err)
	return slices.DeleteFunc(list, func(m *fakehost.Message) bool {
		synthetic := m.Type == "synthetic"
		for _, p := range m.Parts {
			synthetic = synthetic || strings.Contains(string(p), `"synthetic":true`)
		}
		return !synthetic
	})
}

func TestSubagentForeground(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		f := dispatch(t, &fakehost.Options{Profile: p}, foreground, echo)
		wait(t, f.h, f.parent)
		require.NoError(t, f.err)
		c := f.child(t)
		require.Equal(t, f.parent, c.Parent)
		require.Equal(t, "general", c.Agent)
		if p.Generation == 1 {
			require.Equal(t, `<task id="`+c.ID+`" state="completed">`+"\n<task_result>\necho: hello\n</task_result>\n</task>", f.result.Text)
			require.Equal(t, `count "words" (@general subagent)`, c.Title)
			require.Equal(t, []fakehost.Rule{{Action: "task", Resource: "*", Effect: team.Deny}}, c.Permissions)
			require.JSONEq(t, `{"parentSessionId":"`+f.parent+`","sessionId":"`+c.ID+`","model":{"modelID":"m1","providerID":"fake"},"truncated":false}`,
				string(f.result.Metadata))
			return
		}
		require.True(t, strings.HasPrefix(f.result.Text, `<subagent sessionID="`+c.ID+`" state="completed">`+"\necho: "), f.result.Text)
		require.True(t, strings.HasSuffix(f.result.Text, "hello\n</subagent>"), f.result.Text)
		require.Equal(t, `count "words"`, c.Title)
		require.JSONEq(t, `{"sessionID":"`+c.ID+`","status":"completed","truncated":false}`, string(f.result.Metadata))
	})
}

func TestSubagentFails(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		f := dispatch(t, &fakehost.Options{Profile: p}, foreground, func(context.Context, *fakehost.Turn) (string, error) {
			return "", errors.New("scripted failure")
		})
		wait(t, f.h, f.parent)
		c := f.child(t)
		key := map[int]string{1: "task_id", 2: "sessionID"}[p.Generation]
		require.EqualError(t, f.err, "Subagent failed ("+key+": "+c.ID+"): scripted failure")
	})
	refused := func(name, want string, opts *fakehost.Options, agent, session string) {
		bubble(t, name, func(t *testing.T) {
			f := dispatch(t, opts, func(ctx context.Context, t *fakehost.Turn) (fakehost.Result, error) {
				in := map[string]any{"agent": agent, "description": "d", "prompt": "p"}
				if session != "" {
					in["sessionID"] = session
				}
				return t.Call(ctx, "subagent", in)
			}, echo)
			wait(t, f.h, f.parent)
			require.Error(t, f.err)
			require.True(t, strings.HasPrefix(f.err.Error(), want), "%q, want %q", f.err.Error(), want)
			list, err := f.h.Session.Children(t.Context(), f.parent)
			require.NoError(t, err)
			require.Empty(t, list)
		})
	}
	refused("an agent that nobody knows", "Unknown agent: nobody", &fakehost.Options{}, "nobody", "")
	refused("a primary agent", "Agent plan cannot run as a subagent", &fakehost.Options{}, "plan", "")
	refused("a session that is not there", "Subagent session not found: ses_x", &fakehost.Options{}, "general", "ses_x")
	refused("a depth below zero", "Subagent depth limit reached (-1).", &fakehost.Options{Depth: -1}, "general", "")
	bubble(t, "denied by a rule", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, func(ctx context.Context, t *fakehost.Turn) (string, error) {
			_, err := t.Dispatch(ctx, "general", "d", "p")
			return err.Error(), nil
		}))
		s, err := h.Session.Create(t.Context(), fakehost.NewSession{Agent: "build", Permissions: []fakehost.Rule{rule("subagent", "gen*", team.Deny)}})
		require.NoError(t, err)
		prompt(t, h, s.ID, "go")
		wait(t, h, s.ID)
		require.Contains(t, texts(t, h, s.ID), "assistant: Subagent denied: general")
	})
	bubble(t, "somebody else's child", func(t *testing.T) {
		var other string
		ready := make(chan struct{})
		f := dispatch(t, &fakehost.Options{}, func(ctx context.Context, t *fakehost.Turn) (fakehost.Result, error) {
			<-ready
			return t.Call(ctx, "subagent", map[string]any{"agent": "general", "description": "d", "prompt": "p", "sessionID": other})
		}, echo)
		other = create(t, f.h)
		close(ready)
		wait(t, f.h, f.parent)
		require.EqualError(t, f.err, "Session "+other+" is not a child of the current session")
	})
	bubble(t, "v1.18: an unknown id makes a new child, an unknown agent none", func(t *testing.T) {
		f := dispatch(t, &fakehost.Options{Profile: fakehost.V1_18}, func(ctx context.Context, t *fakehost.Turn) (fakehost.Result, error) {
			_, err := t.Dispatch(ctx, "nobody", "x", "x")
			if err == nil || err.Error() != "Unknown agent type: nobody is not a valid agent type" {
				return fakehost.Result{}, err
			}
			return t.Call(ctx, "task", map[string]any{"subagent_type": "general", "description": "d", "prompt": "p", "task_id": "ses_gone"})
		}, echo)
		wait(t, f.h, f.parent)
		require.NoError(t, f.err)
		require.Contains(t, f.result.Text, f.child(t).ID)
	})
	bubble(t, "invalid arguments", func(t *testing.T) {
		f := dispatch(t, &fakehost.Options{}, func(ctx context.Context, t *fakehost.Turn) (fakehost.Result, error) {
			return t.Call(ctx, "subagent", map[string]any{"agent": 7})
		}, echo)
		wait(t, f.h, f.parent)
		require.ErrorContains(t, f.err, "invalid arguments for subagent")
	})
	bubble(t, "deeper than the limit", func(t *testing.T) {
		var deep error
		f := dispatch(t, &fakehost.Options{}, foreground, func(ctx context.Context, t *fakehost.Turn) (string, error) {
			_, deep = t.Dispatch(ctx, "general", "d", "p")
			return "x", nil
		})
		wait(t, f.h, f.parent)
		require.ErrorContains(t, deep, "Subagent depth limit reached (1).")
	})
}

func TestSubagentBackground(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		f := dispatch(t, &fakehost.Options{Profile: p}, background, func(ctx context.Context, t *fakehost.Turn) (string, error) {
			return "body with </task_result> and </subagent>", t.Sleep(ctx, time.Minute)
		})
		wait(t, f.h, f.parent)
		require.NoError(t, f.err)
		c := f.child(t)
		if p.Generation == 1 {
			require.True(t, strings.HasPrefix(f.result.Text, `<task id="`+c.ID+`" state="running">`+"\n<summary>Background task started</summary>\n"), f.result.Text)
		} else {
			require.Contains(t, f.result.Text, "(sessionID: "+c.ID+")")
			require.NotContains(t, f.result.Text, "<")
		}
		require.Empty(t, f.notices(t))
		time.Sleep(2 * time.Minute)
		notices := f.notices(t)
		require.Len(t, notices, 1)
		require.Contains(t, texts(t, f.h, f.parent), "assistant: noted", "the notice wakes the parent")
		if p.Generation == 1 {
			require.Equal(t, `<task id="`+c.ID+`" state="completed">`+"\n<summary>Background task completed: count \"words\"</summary>\n<task_result>\n"+
				"body with </task_result> and </subagent>\n</task_result>\n</task>", notices[0].Text())
		} else {
			require.Equal(t, `<subagent sessionID="`+c.ID+`" state="completed" description="count "words"">`+
				"\nbody with </task_result> and </subagent>\n</subagent>", notices[0].Text())
			require.Equal(t, map[string]any{"source": "subagent", "childID": c.ID, "agent": "general", "state": "completed"},
				object(t, notices[0])["metadata"])
			require.Equal(t, `count "words"`, object(t, notices[0])["description"])
		}
	})

	for fault, want := range map[fakehost.Fault]int{fakehost.FaultNoticeMissing: 0, fakehost.FaultNoticeDuplicate: 2} {
		bubble(t, string(fault), func(t *testing.T) {
			f := dispatch(t, &fakehost.Options{Faults: []fakehost.Fault{fault}}, background, echo)
			synctest.Wait()
			require.Len(t, f.notices(t), want)
		})
	}

	each(t, func(t *testing.T, p fakehost.Profile) {
		f := dispatch(t, &fakehost.Options{Profile: p}, background, slow)
		time.Sleep(time.Second / 2)
		stopped, err := f.h.Session.Interrupt(t.Context(), f.child(t).ID, false)
		require.NoError(t, err)
		require.True(t, stopped)
		synctest.Wait()
		notices := f.notices(t)
		require.Len(t, notices, 1, "the parent hears of a child that was stopped")
		if p.Generation == 2 {
			require.Contains(t, notices[0].Text(), `state="cancelled"`)
			require.Equal(t, "cancelled", object(t, notices[0])["metadata"].(map[string]any)["state"])
		} else {
			require.Contains(t, notices[0].Text(), "<task_error>\nTask cancelled\n</task_error>")
		}
	})

	each(t, func(t *testing.T, p fakehost.Profile) {
		f := dispatch(t, &fakehost.Options{Profile: p}, foreground, slow)
		time.Sleep(time.Second / 2)
		n, err := f.h.Session.Background(t.Context(), f.parent)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		synctest.Wait()
		require.NoError(t, f.err)
		require.NotContains(t, f.result.Text, "completed", "the call that was waited for answers that the child is running")
		require.Empty(t, f.notices(t))
		time.Sleep(time.Second)
		require.Len(t, f.notices(t), 1)
		n, err = f.h.Session.Background(t.Context(), f.parent)
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

func TestSubagentContinues(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		var f *family
		ready := make(chan struct{})
		again := func(ctx context.Context, t *fakehost.Turn, bg bool) (fakehost.Result, error) {
			list, err := f.h.Session.Children(ctx, f.parent)
			if err != nil {
				return fakehost.Result{}, err
			}
			in := map[string]any{"description": "more", "prompt": "more", "background": bg}
			if p.Generation == 1 {
				in["subagent_type"], in["task_id"] = "general", list[0].ID
			} else {
				in["agent"], in["sessionID"] = "general", list[0].ID
			}
			return t.Call(ctx, p.Subagent, in)
		}
		f = dispatch(t, &fakehost.Options{Profile: p}, func(ctx context.Context, t *fakehost.Turn) (fakehost.Result, error) {
			<-ready
			if _, err := foreground(ctx, t); err != nil {
				return fakehost.Result{}, err
			}
			if _, err := again(ctx, t, true); err != nil { // an idle child is started
				return fakehost.Result{}, err
			}
			return again(ctx, t, true) // a running one is steered
		}, slow)
		close(ready)
		wait(t, f.h, f.parent)
		require.NoError(t, f.err)
		if p.Generation == 1 {
			require.Contains(t, f.result.Text, "<summary>Background task updated</summary>")
		}
		time.Sleep(time.Hour)
		require.Len(t, f.notices(t), 1, "one notice for one run")
		users := 0
		for _, m := range texts(t, f.h, f.child(t).ID) {
			if strings.HasPrefix(m, "user: ") {
				users++
			}
		}
		require.Equal(t, 3, users, "all in the same session")
	})
}

func TestSubagentAbortCascade(t *testing.T) {
	each(t, func(t *testing.T, p fakehost.Profile) {
		f := dispatch(t, &fakehost.Options{Profile: p}, func(ctx context.Context, t *fakehost.Turn) (fakehost.Result, error) {
			if _, err := t.Background(ctx, "general", "bg", "bg"); err != nil {
				return fakehost.Result{}, err
			}
			return foreground(ctx, t)
		}, slow)
		time.Sleep(time.Second / 2)
		_, err := f.h.Session.Interrupt(t.Context(), f.parent, false)
		require.NoError(t, err)
		wait(t, f.h, f.parent)
		list, err := f.h.Session.Children(t.Context(), f.parent)
		require.NoError(t, err)
		require.Len(t, list, 2)
		active, err := f.h.Session.Active(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{list[0].ID}, active, "the background child goes on, the foreground one is stopped")
		if p.Generation == 1 {
			messages, err := f.h.Session.Messages(t.Context(), f.parent, fakehost.MessagePage{Newest: true, Limit: 1})
			require.NoError(t, err)
			require.Contains(t, string(messages[0].Parts[1]), "Task cancelled")
			require.Contains(t, string(messages[0].Data), "MessageAbortedError")
		}
	})
}

func TestSubagentRules(t *testing.T) {
	bubble(t, "v2.0: the child has the parent session's rules and metadata, as they were", func(t *testing.T) {
		h := open(t, nil)
		rules := []fakehost.Rule{rule("edit", "*", team.Deny)}
		parent, err := h.Session.Create(t.Context(), fakehost.NewSession{Permissions: rules, Metadata: []byte(`{"a":1}`)})
		require.NoError(t, err)
		child, err := h.Session.Create(t.Context(), fakehost.NewSession{Parent: parent.ID})
		require.NoError(t, err)
		require.NoError(t, h.Session.Update(t.Context(), parent.ID, fakehost.SessionChange{Permissions: []fakehost.Rule{rule("edit", "*", team.Allow)}}))
		child, err = h.Session.Get(t.Context(), child.ID)
		require.NoError(t, err)
		require.Equal(t, rules, child.Permissions)
		require.JSONEq(t, `{"a":1}`, string(child.Metadata))
	})

	bubble(t, "v1.18: denials and external_directory, then todowrite, task and primary tools", func(t *testing.T) {
		opts := script(fakehost.V1_18, func(ctx context.Context, t *fakehost.Turn) (string, error) {
			if t.Agent() == "explore" {
				return "x", nil
			}
			_, err := t.Dispatch(ctx, "explore", "d", "p")
			return "x", err
		})
		opts.PrimaryTools = []string{"secret"}
		h := open(t, opts)
		parent, err := h.Session.Create(t.Context(), fakehost.NewSession{Permissions: []fakehost.Rule{rule("read", "a", team.Deny), rule("external_directory", "~/x/*", team.Ask), rule("glob", "*", team.Allow), rule("read", "src/**", team.Ask)}})
		require.NoError(t, err)
		prompt(t, h, parent.ID, "go")
		wait(t, h, parent.ID)
		list, err := h.Session.Children(t.Context(), parent.ID)
		require.NoError(t, err)
		require.Equal(t, []fakehost.Rule{rule("read", "a", team.Deny), rule("external_directory", "~/x/*", team.Ask), rule("todowrite", "*", team.Deny), rule("task", "*", team.Deny), rule("secret", "*", team.Deny)}, list[0].Permissions)
	})
}

// OpenCode 1.18: the subagent's own model, or else that of the message that dispatches it.
func TestModelOfAChild(t *testing.T) {
	for name, own := range map[string]*fakehost.Model{"its own": {ID: "own", Provider: "p"}, "the parent's message's": nil} {
		bubble(t, name, func(t *testing.T) {
			h := open(t, &fakehost.Options{Profile: fakehost.V1_18, Agents: []fakehost.Agent{
				{Name: "build", Mode: "primary", Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
					r, err := t.Dispatch(ctx, "general", "d", "p")
					return r.Text, err
				}},
				{Name: "general", Mode: "subagent", Model: own, Script: echo}}})
			id := create(t, h)
			send(t, h, id, fakehost.Prompt{Text: "go", Model: &fakehost.Model{ID: "asked", Provider: "p"}})
			wait(t, h, id)
			want := "asked"
			if own != nil {
				want = own.ID
			}
			children, err := h.Session.Children(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, want, children[0].Model.ID)
			list, err := h.Session.Messages(t.Context(), children[0].ID, fakehost.MessagePage{})
			require.NoError(t, err)
			require.Equal(t, want, object(t, list[1])["info"].(map[string]any)["modelID"], "it is what the child runs on")
			list, err = h.Session.Messages(t.Context(), id, fakehost.MessagePage{})
			require.NoError(t, err)
			require.Contains(t, string(list[1].Parts[1]), `"modelID":"`+want+`"`, "and the call says so")
		})
	}
}

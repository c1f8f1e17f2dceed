package fakehost_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
	"github.com/teamchan/team/hosttest"
)

// The laws of the host ports, over this host in process.

func laws(t *testing.T, test func(t *testing.T, p fakehost.Profile)) {
	for _, p := range []fakehost.Profile{fakehost.V1_18, fakehost.V2_0} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

// worker opens a host whose agent works for a while when it is told to, and else says ok.
func worker(tb testing.TB, p fakehost.Profile) *fakehost.Host {
	h, err := fakehost.Open(tb.Context(), "", &fakehost.Options{Profile: p, Agents: []fakehost.Agent{{Name: "build", Mode: "primary",
		Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
			if t.Text() == "work" {
				return "done", t.Sleep(ctx, time.Minute)
			}
			return "ok", nil
		}}}})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = h.Close() })
	return h
}

func newSession(h *fakehost.Host, parent team.SessionID) func(context.Context) (team.SessionID, error) {
	return func(ctx context.Context) (team.SessionID, error) {
		s, err := h.Session.Create(ctx, fakehost.NewSession{Parent: string(parent), Agent: "build"})
		if err != nil {
			return "", err
		}
		return team.SessionID(s.ID), nil
	}
}

func TestSessionLaws(t *testing.T) {
	laws(t, func(t *testing.T, p fakehost.Profile) {
		hosttest.Sessions(t, func(tb testing.TB) hosttest.SessionsHost {
			h := worker(tb, p)
			return hosttest.SessionsHost{
				Sessions: h.Sessions(), New: newSession(h, ""), Unknown: "ses_0000000000000000000000unkn",
				Texts: func(ctx context.Context, id team.SessionID) ([]string, error) {
					list, err := h.Session.Messages(ctx, string(id), fakehost.MessagePage{})
					if err != nil {
						return nil, err
					}
					var out []string
					for _, m := range list {
						out = append(out, m.Text())
					}
					if h.Inbox == nil {
						return out, nil
					}
					items, err := h.Inbox.List(ctx, string(id))
					for _, i := range items {
						out = append(out, i.Text())
					}
					return out, err
				},
				Child: func(ctx context.Context, parent team.SessionID) (team.SessionID, error) {
					return newSession(h, parent)(ctx)
				},
				Work: func(ctx context.Context, id team.SessionID) error {
					_, err := h.Session.Prompt(ctx, string(id), fakehost.Prompt{Text: "work"})
					return err
				},
				Works: func(ctx context.Context, id team.SessionID) (bool, error) {
					active, err := h.Session.Active(ctx)
					for _, a := range active {
						if a == string(id) {
							return true, err
						}
					}
					return false, err
				},
			}
		})
	})
}

func TestEventLaws(t *testing.T) {
	laws(t, func(t *testing.T, p fakehost.Profile) {
		hosttest.Events(t, func(tb testing.TB) hosttest.EventsHost {
			h := worker(tb, p)
			return hosttest.EventsHost{
				Events: h.Events(),
				Happen: func(ctx context.Context) (team.SessionID, error) {
					return newSession(h, "")(ctx)
				},
				Cut: func() {
					h.Inject(fakehost.FaultStreamCut)
					_ = h.Event.Publish(context.Background(), "server.beat", "", nil)
					h.Clear(fakehost.FaultStreamCut)
				},
				Inject: func(ctx context.Context, typ string, data json.RawMessage) error {
					return h.Event.Publish(ctx, typ, "", data)
				},
			}
		})
	})
}

func TestStorageLaws(t *testing.T) {
	laws(t, func(t *testing.T, p fakehost.Profile) {
		hosttest.Storage(t, func(tb testing.TB) hosttest.StorageHost {
			if !p.Storage {
				tb.Skip("OpenCode 1.18 has no storage of plugins")
			}
			path := filepath.Join(tb.TempDir(), "host.db")
			window := func(ctx context.Context) (team.Storage, error) {
				h, err := fakehost.Open(ctx, path, &fakehost.Options{Profile: p})
				if err != nil {
					return nil, err
				}
				tb.Cleanup(func() { _ = h.Close() })
				return h.Storage(), nil
			}
			s, err := window(tb.Context())
			require.NoError(tb, err)
			return hosttest.StorageHost{Storage: s, Another: window}
		})
	})
}

func TestToolLaws(t *testing.T) {
	laws(t, func(t *testing.T, p fakehost.Profile) {
		hosttest.Tools(t, func(tb testing.TB) hosttest.ToolsHost {
			say := fakehost.Tool{Name: "say", Run: func(_ context.Context, c *fakehost.ToolCall) (fakehost.ToolOutput, error) {
				var in struct{ Text string }
				err := json.Unmarshal(c.Input, &in)
				return fakehost.ToolOutput{Text: in.Text}, err
			}}
			h, err := fakehost.Open(tb.Context(), "", &fakehost.Options{Profile: p, Tools: []fakehost.Tool{say}, Agents: []fakehost.Agent{{Name: "build",
				Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
					_, err := t.Call(ctx, "say", map[string]string{"text": t.Text()})
					return "", err
				}}}})
			require.NoError(tb, err)
			tb.Cleanup(func() { _ = h.Close() })
			return hosttest.ToolsHost{Tools: h.Tools(), Run: func(ctx context.Context, text string) (team.ToolResult, error) {
				id, err := newSession(h, "")(ctx)
				if err != nil {
					return team.ToolResult{}, err
				}
				if _, err := h.Session.Prompt(ctx, string(id), fakehost.Prompt{Text: text}); err != nil {
					return team.ToolResult{}, err
				}
				if err := h.Session.Wait(ctx, string(id)); err != nil {
					return team.ToolResult{}, err
				}
				state, err := toolState(ctx, h, string(id))
				return team.ToolResult{Tool: "say", Session: id, Result: state}, err
			}}
		})
	})
}

// toolState returns the state of the tool's call in the history: what the model sees.
func toolState(ctx context.Context, h *fakehost.Host, session string) (json.RawMessage, error) {
	list, err := h.Session.Messages(ctx, session, fakehost.MessagePage{})
	if err != nil {
		return nil, err
	}
	type part struct {
		Type  string
		State json.RawMessage
	}
	for _, m := range list {
		var in struct{ Content []part }
		if err := json.Unmarshal(m.Data, &in); err != nil {
			return nil, err
		}
		for _, raw := range m.Parts {
			var p part
			if err := json.Unmarshal(raw, &p); err != nil {
				return nil, err
			}
			in.Content = append(in.Content, p)
		}
		for _, p := range in.Content {
			if p.Type == "tool" {
				// As the answer is compared as text, it is written as the host does.
				var v any
				if err := json.Unmarshal(p.State, &v); err != nil {
					return nil, err
				}
				return json.Marshal(v)
			}
		}
	}
	return nil, errors.New("the session has no call of a tool")
}

func TestPermissionLaws(t *testing.T) {
	laws(t, func(t *testing.T, p fakehost.Profile) {
		hosttest.Permissions(t, func(tb testing.TB) hosttest.PermissionsHost {
			h := worker(tb, p)
			return hosttest.PermissionsHost{
				Permissions: h.Permissions(), Unknown: "ses_0000000000000000000000unkn",
				Rule: func(ctx context.Context, rules ...hosttest.PermissionRule) (team.SessionID, error) {
					var own []fakehost.Rule
					for _, r := range rules {
						own = append(own, rule(r.Action, r.Resource, r.Effect))
					}
					s, err := h.Session.Create(ctx, fakehost.NewSession{Agent: "build", Permissions: own})
					if err != nil {
						return "", err
					}
					return team.SessionID(s.ID), nil
				},
				Dialogs: func(ctx context.Context) (int, error) {
					list, err := h.Permission.List(ctx, "")
					return len(list), err
				},
			}
		})
	})
}

package livetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
	"github.com/teamchan/team/hosttest"
	"github.com/teamchan/team/opencode"
)

// fake dials a fake host over HTTP. Its agent works until it is stopped if the prompt is "work".
func fake(tb testing.TB, profile fakehost.Profile) (*opencode.Host, *fakehost.Host, *httptest.Server) {
	tb.Helper()
	dir := tb.TempDir()
	script := func(ctx context.Context, t *fakehost.Turn) (string, error) {
		if t.Text() == "work" {
			return "", t.Sleep(ctx, time.Hour)
		}
		return scripted(ctx, t)
	}
	host, err := fakehost.Open(tb.Context(), "", &fakehost.Options{Profile: profile, Directory: dir, DataDir: tb.TempDir(),
		Agents: []fakehost.Agent{{Name: "build", Mode: "primary", Script: script}, {Name: "general", Mode: "subagent", Script: script}}})
	require.NoError(tb, err)
	server := httptest.NewServer(host.Handler())
	tb.Cleanup(func() {
		server.CloseClientConnections()
		require.NoError(tb, host.Close())
		server.Close()
	})
	h, err := opencode.Dial(tb.Context(), server.URL, &opencode.Options{Directory: dir})
	require.NoError(tb, err)
	return h, host, server
}

// The laws of the ports through the adapter, over the routes of the fake host.
func TestFakeHost(t *testing.T) {
	for generation, profile := range map[opencode.Generation]fakehost.Profile{opencode.V1: fakehost.V1_18, opencode.V2: fakehost.V2_0} {
		t.Run(string(generation), func(t *testing.T) {
			t.Run("dial", func(t *testing.T) {
				h, _, _ := fake(t, profile)
				require.Equal(t, generation, h.Info().Generation)
				require.NotEmpty(t, h.Info().Version)
			})
			t.Run("sessions", func(t *testing.T) {
				hosttest.Sessions(t, func(tb testing.TB) hosttest.SessionsHost {
					h, _, _ := fake(tb, profile)
					return fakeSessions(tb, h)
				})
			})
			t.Run("events", func(t *testing.T) {
				hosttest.Events(t, func(tb testing.TB) hosttest.EventsHost {
					h, host, server := fake(tb, profile)
					return hosttest.EventsHost{
						Events: h,
						Cut:    server.CloseClientConnections,
						Happen: func(ctx context.Context) (team.SessionID, error) {
							s, err := h.Create(ctx, opencode.NewSession{Title: tb.Name()})
							if errors.Is(err, team.ErrUnknownOutcome) { // the cut hit a connection that waited
								s, err = h.Create(ctx, opencode.NewSession{Title: tb.Name()})
							}
							return s.ID, err
						},
						Inject: func(ctx context.Context, typ string, data json.RawMessage) error {
							return host.Event.Publish(ctx, typ, "", data)
						},
					}
				})
			})
		})
	}
}

func fakeSessions(tb testing.TB, h *opencode.Host) hosttest.SessionsHost {
	create := func(ctx context.Context, parent team.SessionID) (team.SessionID, error) {
		s, err := h.Create(ctx, opencode.NewSession{Title: tb.Name(), Parent: parent})
		return s.ID, err
	}
	return hosttest.SessionsHost{
		Sessions: h,
		Unknown:  unknown,
		New:      func(ctx context.Context) (team.SessionID, error) { return create(ctx, "") },
		Child:    create,
		Texts: func(ctx context.Context, id team.SessionID) (texts []string, err error) {
			all, err := h.Messages(ctx, id, 0)
			for _, m := range all {
				for _, p := range m.Parts {
					if p.Type == "text" {
						texts = append(texts, p.Text)
					}
				}
			}
			if err == nil && h.Info().Generation == opencode.V2 {
				waiting, failed := h.Inbox(ctx, id)
				for _, item := range waiting {
					texts = append(texts, item.Text)
				}
				err = failed
			}
			return texts, err
		},
		Work: func(ctx context.Context, id team.SessionID) error {
			_, err := h.Prompt(ctx, id, opencode.Prompt{Text: "work"})
			return err
		},
		Works: func(ctx context.Context, id team.SessionID) (bool, error) {
			active, err := h.Active(ctx)
			_, works := active[id]
			return works, err
		},
	}
}

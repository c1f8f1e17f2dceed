package livetest_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team"
	"github.com/teamchan/team/hosttest"
	"github.com/teamchan/team/internal/scriptedmodel"
	"github.com/teamchan/team/opencode"
)

// A proxy stands between the adapter and the server, as a network does.
type proxy struct {
	*httptest.Server
	lose    func(*http.Request) bool // whether the answer is lost; the request arrives
	hide    func(*http.Request) bool // whether the route is not there
	down    atomic.Bool              // nothing comes through
	dropped atomic.Int64
}

func newProxy(tb testing.TB) *proxy {
	tb.Helper()
	need(tb)
	target, err := url.Parse(live.url)
	require.NoError(tb, err)
	forward := httputil.NewSingleHostReverseProxy(target)
	never := func(*http.Request) bool { return false }
	p := &proxy{lose: never, hide: never}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.down.Load() {
			panic(http.ErrAbortHandler)
		}
		if p.hide(r) {
			http.NotFound(w, r)
			return
		}
		if p.lose(r) {
			forward.ServeHTTP(httptest.NewRecorder(), r)
			p.dropped.Add(1)
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(w, r)
	}))
	p.Config.ErrorLog = nil
	tb.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

const unknown = "ses_22b391b33001AAAAAAAAAAAAAA"

func TestDial(t *testing.T) {
	h := dial(t, "")
	require.Equal(t, opencode.V1, h.Info().Generation)
	require.Equal(t, "1.18.33", h.Info().Version)
	require.True(t, h.Info().SecondAPI)
	for name, opts := range map[string]*opencode.Options{"without a password": nil, "with a wrong password": {Password: "wrong"}} {
		t.Run(name, func(t *testing.T) {
			_, err := opencode.Dial(within(t, time.Minute), live.url, opts)
			require.ErrorIs(t, err, team.ErrDenied)
		})
	}
}

func TestSessions(t *testing.T) {
	need(t)
	hosttest.Sessions(t, func(tb testing.TB) hosttest.SessionsHost {
		h := dial(tb, "")
		return hosttest.SessionsHost{
			Sessions: h,
			Unknown:  unknown,
			New: func(ctx context.Context) (team.SessionID, error) {
				s, err := h.Create(ctx, opencode.NewSession{Title: tb.Name()})
				return s.ID, err
			},
			Child: func(ctx context.Context, parent team.SessionID) (team.SessionID, error) {
				s, err := h.Create(ctx, opencode.NewSession{Title: tb.Name(), Parent: parent})
				return s.ID, err
			},
			Texts: func(ctx context.Context, id team.SessionID) (texts []string, err error) {
				all, err := h.Messages(ctx, id, 0)
				for _, m := range all {
					for _, p := range m.Parts {
						if p.Type == "text" {
							texts = append(texts, p.Text)
						}
					}
				}
				return texts, err
			},
			Work: func(ctx context.Context, id team.SessionID) error {
				_, err := h.Prompt(ctx, id, opencode.Prompt{Text: string(id) + "\n" + scriptedmodel.Script(step{Text: "late", Delay: 120_000})})
				if err != nil {
					return err
				}
				_, err = live.model.Wait(ctx, func(r scriptedmodel.Request) bool { return r.Find(string(id)) >= 0 })
				return err
			},
			Works: func(ctx context.Context, id team.SessionID) (bool, error) {
				active, err := h.Active(ctx)
				_, works := active[id]
				return works, err
			},
		}
	})
}

func TestEvents(t *testing.T) {
	need(t)
	hosttest.Events(t, func(tb testing.TB) hosttest.EventsHost {
		p := newProxy(tb)
		h := dial(tb, p.URL)
		return hosttest.EventsHost{
			Events: h,
			Cut:    p.CloseClientConnections,
			Happen: func(ctx context.Context) (team.SessionID, error) {
				s, err := h.Create(ctx, opencode.NewSession{Title: tb.Name()})
				if err != nil && errors.Is(err, team.ErrUnknownOutcome) { // the cut hit a connection that waited
					s, err = h.Create(ctx, opencode.NewSession{Title: tb.Name()})
				}
				return s.ID, err
			},
			Lacks: map[string]string{"Inject": "a running OpenCode sends its own events only"},
		}
	})
}

func TestPermissions(t *testing.T) {
	need(t)
	hosttest.Permissions(t, func(tb testing.TB) hosttest.PermissionsHost {
		_, err := dial(tb, "").Evaluate(tb.Context(), unknown, "edit", "a")
		require.ErrorIs(tb, err, errors.ErrUnsupported)
		tb.Skip(err)
		return hosttest.PermissionsHost{}
	})
}

func TestFollow(t *testing.T) {
	p := newProxy(t)
	h := dial(t, p.URL)
	ctx := within(t, time.Minute)
	var seen []string
	for e, err := range h.Follow(ctx) {
		require.NoError(t, err)
		seen = append(seen, e.Type)
		if e.Type == "server.connected" && len(seen) == 1 {
			go p.CloseClientConnections()
		}
		if e.Type == "server.connected" && len(seen) > 1 {
			break
		}
	}
	require.Equal(t, []string{"server.connected", opencode.EventLost, opencode.EventBack, "server.connected"}, seen)
	require.EqualValues(t, 2, h.Stats().Connects)
}

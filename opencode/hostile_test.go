package opencode_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team"
	"github.com/teamchan/team/opencode"
)

// methods are all calls that ask a server, by name.
var methods = map[string]func(ctx context.Context, h *opencode.Host) error{
	"Session": func(ctx context.Context, h *opencode.Host) error { _, err := h.Session(ctx, ses); return err },
	"Create": func(ctx context.Context, h *opencode.Host) error {
		_, err := h.Create(ctx, opencode.NewSession{})
		return err
	},
	"Children":        func(ctx context.Context, h *opencode.Host) error { _, err := h.Children(ctx, ses); return err },
	"Active":          func(ctx context.Context, h *opencode.Host) error { _, err := h.Active(ctx); return err },
	"Interrupt":       func(ctx context.Context, h *opencode.Host) error { _, err := h.Interrupt(ctx, ses); return err },
	"Rules":           func(ctx context.Context, h *opencode.Host) error { _, err := h.Rules(ctx, ses); return err },
	"Inspect":         func(ctx context.Context, h *opencode.Host) error { _, err := h.Inspect(ctx, ses); return err },
	"Messages":        func(ctx context.Context, h *opencode.Host) error { _, err := h.Messages(ctx, ses, 0); return err },
	"Messages, a few": func(ctx context.Context, h *opencode.Host) error { _, err := h.Messages(ctx, ses, 5); return err },
	"Permissions":     func(ctx context.Context, h *opencode.Host) error { _, err := h.Permissions(ctx); return err },
	"Questions":       func(ctx context.Context, h *opencode.Host) error { _, err := h.Questions(ctx, ses); return err },
	"Agents":          func(ctx context.Context, h *opencode.Host) error { _, err := h.Agents(ctx); return err },
	"Skills":          func(ctx context.Context, h *opencode.Host) error { _, err := h.Skills(ctx); return err },
	"MCPResources":    func(ctx context.Context, h *opencode.Host) error { _, err := h.MCPResources(ctx); return err },
	"Todos, Inbox": func(ctx context.Context, h *opencode.Host) error {
		_, err := h.Inbox(ctx, ses)
		if h.Info().Generation == opencode.V1 {
			_, err = h.Todos(ctx, ses)
		}
		return err
	},
	"LSP, Context": func(ctx context.Context, h *opencode.Host) error {
		_, err := h.Context(ctx, ses)
		if h.Info().Generation == opencode.V1 {
			_, err = h.LSP(ctx)
		}
		return err
	},
	"Deliver": func(ctx context.Context, h *opencode.Host) error {
		_, err := h.Deliver(ctx, ses, team.Note{ID: note, Text: "t"})
		return err
	},
	"Events": func(ctx context.Context, h *opencode.Host) error {
		for _, err := range h.Events(ctx) {
			return err
		}
		return errors.New("ended")
	},
	"Follow": func(ctx context.Context, h *opencode.Host) (last error) {
		for _, err := range h.Follow(ctx) {
			last = err
		}
		return last
	},
}

// A turncoat is a server that answers as generation gen until Dial is through, then as then does.
func turncoat(t *testing.T, gen opencode.Generation, opts *opencode.Options, then http.HandlerFunc) (*server, *opencode.Host) {
	s := v1(t)
	if gen == opencode.V2 {
		s = v2(t)
	}
	h := s.dial(t, opts)
	require.Equal(t, gen, h.Info().Generation)
	s.mux = http.NewServeMux()
	s.mux.HandleFunc("/", then)
	return s, h
}

func every(t *testing.T, f func(t *testing.T, gen opencode.Generation)) {
	for _, gen := range []opencode.Generation{opencode.V1, opencode.V2} {
		t.Run(string(gen), func(t *testing.T) { f(t, gen) })
	}
}

// A server that is replaced by one of another generation, or by something else, is no empty host.
func TestAServerThatBecomesAnotherOne(t *testing.T) {
	for name, c := range map[string]struct {
		then http.HandlerFunc
		want error
	}{
		"of the other generation": {http.NotFound, errors.ErrUnsupported},
		"that answers all with its web page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>")
		}, errors.ErrUnsupported},
		"that wants another password": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, team.ErrDenied},
	} {
		t.Run(name, func(t *testing.T) {
			every(t, func(t *testing.T, gen opencode.Generation) {
				_, h := turncoat(t, gen, nil, c.then)
				for method, call := range methods {
					require.ErrorIs(t, call(t.Context(), h), c.want, method)
				}
			})
		})
	}
}

// What is not of the shape that was asked for is never taken for "nothing", nor for "all idle".
func TestAnAnswerOfAnotherShapeIsNoEmptyOne(t *testing.T) {
	for _, answer := range []string{`null`, `7`, `"x"`, `{"data":null}`, `{"data":7}`, `{"data":"x"}`, `[[[`, `{`, "\xff", `[]garbage`, strings.Repeat("[", 100_000), strings.Repeat(`{"data":`, 50_000)} {
		every(t, func(t *testing.T, gen opencode.Generation) {
			_, h := turncoat(t, gen, nil, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/"+string(ses)) { // what looks for the session first goes on
					_, _ = fmt.Fprintf(w, `{"id":%q}`, ses)
					return
				}
				_, _ = io.WriteString(w, answer)
			})
			for method, call := range methods {
				switch {
				case method == "Session", method == "Interrupt": // are content with the session
				case (method == "Events" || method == "Follow"):
					require.ErrorIs(t, call(t.Context(), h), errors.ErrUnsupported, "%s of %.30q", method, answer)
				default:
					require.ErrorIs(t, call(t.Context(), h), team.ErrCorrupt, "%s of %.30q", method, answer)
				}
			}
		})
	}
	t.Run("nothing at all neither", func(t *testing.T) {
		_, h := turncoat(t, opencode.V1, nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		_, err := h.Permissions(t.Context())
		require.ErrorIs(t, err, team.ErrCorrupt)
		_, err = h.Active(t.Context())
		require.ErrorIs(t, err, team.ErrCorrupt)
	})
}

// Without rules in a shape that nobody knows more would be allowed.
func TestRulesOfAnUnknownShapeAreAnError(t *testing.T) {
	for name, c := range map[string]struct{ session, agent string }{
		"of the session": {`,"permission":{"edit":"deny"}`, `[]`},
		"of the agent":   {``, `{"edit":"deny"}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := v1(t)
			s.json("GET /session/{id}", `{"id":"`+string(ses)+`","agent":"a"`+c.session+`}`)
			s.json("GET /agent", `[{"name":"a","permission":`+c.agent+`}]`)
			_, err := s.dial(t, nil).Rules(t.Context(), ses)
			require.ErrorIs(t, err, team.ErrCorrupt)
		})
	}
}

func TestAnAnswerHasASizeInMemoryToo(t *testing.T) {
	opts := &opencode.Options{MaxAnswer: 1 << 20, MaxFrame: 1 << 20}
	endless := func(w http.ResponseWriter, r *http.Request, piece string) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, piece); err != nil {
				return
			}
		}
	}
	many := "[" + strings.Repeat("{},", 100_000) + "{}]"
	for name, then := range map[string]http.HandlerFunc{
		"endless":            func(w http.ResponseWriter, r *http.Request) { endless(w, r, strings.Repeat(" ", 4096)) },
		"an endless string":  func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, `["`); endless(w, r, "xxxx") },
		"an endless refusal": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); endless(w, r, "xxxx") },
		"packed": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for range 1000 {
				_, _ = z.Write(make([]byte, 1<<20))
			}
			_ = z.Close()
		},
		"many values": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, many) },
		"many keys": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"data":[],"k":{`+strings.Repeat(`"":0,`, 100_000)+`"":0}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, h := turncoat(t, opencode.V1, opts, then)
			_, err := h.Agents(t.Context())
			require.ErrorIs(t, err, team.ErrTooLarge)
			require.ErrorContains(t, err, "raise Options.MaxAnswer")
		})
	}
	t.Run("what stands in a text is no value", func(t *testing.T) {
		_, h := turncoat(t, opencode.V1, opts, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `[{"name":"a","description":"`+strings.Repeat(`,{[\"\\`, 100_000)+`"}]`)
		})
		got, err := h.Agents(t.Context())
		require.NoError(t, err)
		require.Len(t, got[0].Description, 500_000)
	})
	t.Run("an event of many values is skipped and counted", func(t *testing.T) {
		s := v1(t)
		s.streams("GET /event", "data: {\"type\":\"a\",\"properties\":"+many+"}\n\ndata: {\"type\":\"b\",\"properties\":{}}\n\n")
		h := s.dial(t, opts)
		got, err := collect(t, h, 1)
		require.NoError(t, err)
		require.Equal(t, "b", got[0].Type)
		require.EqualValues(t, 1, h.Stats().Oversize)
	})
}

func TestAListOfEndlessPagesEnds(t *testing.T) {
	for name, page := range map[string]string{"empty": ``, "long": `{"id":"ses_1","parentID":"` + string(ses) + `","title":"` + strings.Repeat("x", 10_000) + `"}`} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int64
			s := v2(t)
			s.json("GET /api/session/{id}", `{"data":{"id":"`+string(ses)+`"}}`)
			s.mux.HandleFunc("GET /api/session", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(w, `{"data":[%s],"cursor":{"next":"%d"}}`, page, n.Add(1))
			})
			_, err := s.dial(t, &opencode.Options{MaxAnswer: 100_000}).Children(t.Context(), ses)
			require.ErrorIs(t, err, team.ErrTooLarge)
		})
	}
}

func TestNoRedirectTakesThePasswordAlong(t *testing.T) {
	stranger := newServer(t, nil)
	stranger.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	for _, status := range []int{301, 302, 303, 307, 308} {
		every(t, func(t *testing.T, gen opencode.Generation) {
			follows := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
			_, h := turncoat(t, gen, &opencode.Options{Password: "p", Client: follows, Pause: time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, stranger.URL+"/x", status)
			})
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // Follow tries on
			defer cancel()
			for method, call := range methods {
				if err := call(ctx, h); method != "Follow" {
					require.Error(t, err, method)
				}
			}
		})
	}
	require.Zero(t, stranger.count(""))
}

func TestABodyThatTricklesEndsAfterTheTimeout(t *testing.T) {
	_, h := turncoat(t, opencode.V1, &opencode.Options{Timeout: 100 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Millisecond)
		}
	})
	_, err := h.Agents(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestNoIDLeavesItsPlaceInThePath(t *testing.T) {
	every(t, func(t *testing.T, gen opencode.Generation) {
		s, h := turncoat(t, gen, nil, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, `{}`) })
		for _, evil := range []string{"/../../global/dispose", "?directory=/etc", "#x", "%2f..", "\r\nX-Evil: 1", "\\..\\x", "/", " ", "\x00", "é\xff", ";x", "//evil.example/"} {
			for name, call := range map[string]func(id string) error{
				"session": func(id string) error { _, err := h.Session(t.Context(), team.SessionID("ses_"+id)); return err },
				"permission": func(id string) error {
					return h.ReplyPermission(t.Context(), opencode.PermissionRequest{ID: "per_" + id, Session: ses}, opencode.ReplyOnce, "")
				},
				"question": func(id string) error {
					return h.RejectQuestion(t.Context(), opencode.Question{ID: "que_" + id, Session: ses})
				},
				"inbox": func(id string) error { return h.CancelInbox(t.Context(), ses, "msg_"+id) },
			} {
				before := s.count("")
				_ = call(evil)
				if s.count("") == before {
					continue // refused before anything was sent
				}
				_, uri, _ := strings.Cut(s.last(), " ")
				uri, _, _ = strings.Cut(uri, " ")
				want := map[string]int{"session": 2, "permission": 3, "question": 3}[name]
				if gen == opencode.V2 {
					want = map[string]int{"session": 3, "permission": 6, "question": 6, "inbox": 5}[name]
				}
				require.Equal(t, want, strings.Count(uri, "/"), "%s %q is asked for as %s", name, evil, uri)
				require.NotContains(t, uri, "?")
			}
		}
	})
}

func TestNumbersAndTextsThatCannotBe(t *testing.T) {
	s := v1(t)
	s.json("GET /session/{id}", "{\"id\":\"ses_x\",\"id\":\""+string(ses)+"\",\"title\":\"a\xff\xc0b\\ud800c\",\"time\":{\"created\":-5,\"idle\":1e300}}")
	got, err := s.dial(t, nil).Session(t.Context(), ses)
	require.NoError(t, err, "of a key that is there twice the last one counts, everywhere")
	require.True(t, utf8.ValidString(got.Title))
	require.True(t, got.Created.IsZero() && got.Idle.IsZero(), "%v %v", got.Created, got.Idle)

	for seq, want := range map[string]uint64{"-1": 0, "1e3": 0, "18446744073709551615": 1<<64 - 1, "18446744073709551616": 0, "\"7\"": 0, "7.5": 0} {
		s := v2(t)
		s.streams("GET /api/event", "data: {\"type\":\"t\",\"created\":99999999999999999999,\"durable\":{\"seq\":"+seq+"},\"data\":{}}\n\n")
		events, err := collect(t, s.dial(t, nil), 1)
		require.NoError(t, err)
		require.Equal(t, want, events[0].Seq, seq)
		require.True(t, events[0].Time.IsZero())
	}

	s = newServer(t, map[string]string{"GET /api/info": `{"version":"2.` + strings.Repeat("9", 1000) + `"}`})
	require.LessOrEqual(t, len(s.dial(t, nil).Info().Version), 110)
}

func TestTheKindOfAStreamIsReadAsAKind(t *testing.T) {
	s := v1(t)
	s.mux.HandleFunc("GET /event", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "Text/Event-Stream; charset=\"utf-8\"")
		_, _ = io.WriteString(w, "data: {\"type\":\"a\"}\n\n")
	})
	got, err := collect(t, s.dial(t, nil), 1)
	require.NoError(t, err)
	require.Equal(t, "a", got[0].Type)
	s = v1(t)
	s.mux.HandleFunc("GET /event", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-streams")
		_, _ = io.WriteString(w, "data: {\"type\":\"a\"}\n\n")
	})
	_, err = collect(t, s.dial(t, nil), 1)
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestAnAnswerOfAnotherSessionIsNone(t *testing.T) {
	s := v1(t)
	s.json("GET /session/{id}", `{"id":"`+string(ses)+`"}`)
	s.json("POST /session/{id}/message", `{"info":{"id":"msg_2","role":"assistant","sessionID":"ses_other"},"parts":[{"type":"text","text":"of another"}]}`)
	_, err := s.dial(t, nil).Prompt(t.Context(), ses, opencode.Prompt{Text: "hello", Wait: true})
	require.ErrorIs(t, err, team.ErrCorrupt)
}

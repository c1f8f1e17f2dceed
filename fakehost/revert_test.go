package fakehost_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

// twice opens a host whose session has answered two prompts, and returns the second prompt's message.
func twice(t *testing.T, p fakehost.Profile) (h *fakehost.Host, session, second string) {
	t.Helper()
	h = open(t, script(p, nil))
	session = create(t, h)
	prompt(t, h, session, "one")
	wait(t, h, session)
	second = prompt(t, h, session, "two").ID
	wait(t, h, session)
	return h, session, second
}

func TestRevert(t *testing.T) {
	t.Run("it is staged and changes nothing until the next prompt commits it", func(t *testing.T) {
		each(t, func(t *testing.T, p fakehost.Profile) {
			h, session, second := twice(t, p)
			before := texts(t, h, session)
			rec := record(t, h)
			require.NoError(t, h.Session.Stage(t.Context(), session, second))
			s, err := h.Session.Get(t.Context(), session)
			require.NoError(t, err)
			want := map[string]any{"messageID": second}
			if p.Generation == 1 {
				want["diff"], want["snapshot"] = "", object(t, s)["revert"].(map[string]any)["snapshot"]
				require.Regexp(t, "^[0-9a-f]{40}$", want["snapshot"])
			}
			require.Equal(t, want, object(t, s)["revert"])
			require.Equal(t, before, texts(t, h, session))
			prompt(t, h, session, "three")
			wait(t, h, session)
			got := strings.Join(texts(t, h, session), "\n")
			require.NotContains(t, got, "two")
			require.Contains(t, got, "one")
			require.Contains(t, got, "three")
			s, err = h.Session.Get(t.Context(), session)
			require.NoError(t, err)
			require.Nil(t, s.Revert)
			types := rec.types(session)
			if p.Generation == 2 {
				require.Equal(t, []string{"session.revert.staged", "session.revert.committed", "session.inbox.enqueued"},
					only(types, "session.revert.", "session.inbox.enqueued"))
				for _, e := range rec.events {
					if e.Type == "session.revert.committed" {
						require.JSONEq(t, `{"sessionID":"`+session+`","to":"`+second+`"}`, string(e.Data))
					}
				}
			} else {
				require.Equal(t, []string{"message.removed", "message.removed"}, only(types, "message.removed"))
			}
		})
	})
	t.Run("unstage takes it back", func(t *testing.T) {
		each(t, func(t *testing.T, p fakehost.Profile) {
			h, session, second := twice(t, p)
			rec := record(t, h)
			require.NoError(t, h.Session.Unstage(t.Context(), session), "nothing is staged: no event")
			require.NoError(t, h.Session.Stage(t.Context(), session, second))
			require.NoError(t, h.Session.Unstage(t.Context(), session))
			prompt(t, h, session, "three")
			wait(t, h, session)
			require.Contains(t, strings.Join(texts(t, h, session), "\n"), "two")
			if p.Generation == 2 {
				require.Equal(t, []string{"session.revert.staged", "session.revert.cleared"}, only(rec.types(session), "session.revert."))
			}
		})
	})
	bubble(t, "while it is staged a synthetic wakes nobody", func(t *testing.T) {
		h, session, second := twice(t, fakehost.V2_0)
		require.NoError(t, h.Session.Stage(t.Context(), session, second))
		_, err := h.Session.Synthetic(t.Context(), session, fakehost.Prompt{Text: "note"})
		require.NoError(t, err)
		synctest.Wait()
		items, err := h.Inbox.List(t.Context(), session)
		require.NoError(t, err)
		require.Len(t, items, 1)
		require.NoError(t, h.Session.Commit(t.Context(), session))
		require.NoError(t, h.Session.Commit(t.Context(), session), "nothing is staged any more")
		require.NotContains(t, strings.Join(texts(t, h, session), "\n"), "two")
	})
	t.Run("it is there after a restart", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "host.db")
		h := openAt(t, file, script(fakehost.V2_0, nil))
		session := create(t, h)
		id := prompt(t, h, session, "one").ID
		wait(t, h, session)
		require.NoError(t, h.Session.Stage(t.Context(), session, id))
		require.NoError(t, h.Close())
		h = openAt(t, file, script(fakehost.V2_0, nil))
		s, err := h.Session.Get(t.Context(), session)
		require.NoError(t, err)
		require.Equal(t, id, s.Revert.Message)
	})
	bubble(t, "what is not there, or busy, is refused", func(t *testing.T) {
		h := open(t, script(fakehost.V2_0, func(ctx context.Context, t *fakehost.Turn) (string, error) { return "", t.Sleep(ctx, time.Hour) }))
		session, other := create(t, h), create(t, h)
		id := prompt(t, h, session, "go").ID
		synctest.Wait()
		require.ErrorIs(t, h.Session.Stage(t.Context(), session, id), team.ErrConflict)
		require.ErrorIs(t, h.Session.Stage(t.Context(), other, id), team.ErrNotFound, "the message of another session")
		require.ErrorIs(t, h.Session.Stage(t.Context(), other, "msg_none"), team.ErrNotFound)
		require.ErrorContains(t, open(t, &fakehost.Options{Profile: fakehost.V1_18}).Session.Commit(t.Context(), "ses_x"), "has no session.commit")
	})
}

func TestView(t *testing.T) {
	bubble(t, "it says how far somebody has looked, and never goes back", func(t *testing.T) {
		h, session, _ := twice(t, fakehost.V2_0)
		rec := record(t, h)
		s, err := h.Session.Get(t.Context(), session)
		require.NoError(t, err)
		require.NoError(t, h.Session.View(t.Context(), session, s.Idle))
		require.NoError(t, h.Session.View(t.Context(), session, s.Idle-1))
		require.ErrorIs(t, h.Session.View(t.Context(), session, 0), team.ErrInvalid)
		now, err := h.Session.Get(t.Context(), session)
		require.NoError(t, err)
		require.Equal(t, s.Idle, now.Viewed)
		require.Contains(t, keys(object(t, now)["time"].(map[string]any)), "viewed")
		require.Equal(t, s.Updated, now.Updated)
		require.Len(t, only(rec.types(session), "session.viewed"), 1)
		require.ErrorContains(t, open(t, &fakehost.Options{Profile: fakehost.V1_18}).Session.View(t.Context(), "ses_x", 1), "has no session.view")
	})
}

func TestUserShell(t *testing.T) {
	t.Run("a command of the user is a message of type shell, and nobody is woken", func(t *testing.T) {
		h := open(t, &fakehost.Options{Directory: t.TempDir()})
		session := create(t, h)
		events, err := h.Event.Subscribe(t.Context())
		require.NoError(t, err)
		defer events.Close()
		info, out, err := h.Shell.Run(t.Context(), session, "echo hi; exit 3")
		require.NoError(t, err)
		require.Equal(t, []any{"hi\n", "exited", 3}, []any{out, info.Status, *info.Exit})
		list, err := h.Session.Messages(t.Context(), session, fakehost.MessagePage{})
		require.NoError(t, err)
		require.Equal(t, []string{"shell"}, messageTypes(list))
		got := object(t, list[0])
		require.Equal(t, []any{info.ID, "echo hi; exit 3", "exited", 3.0, "hi\n"}, []any{got["shellID"], got["command"], got["status"], got["exit"], got["output"]})
		for _, want := range []string{"server.connected", "shell.created", "session.shell.started", "shell.exited", "session.shell.ended"} {
			e, err := events.Next(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, e.Type)
			if want == "shell.exited" {
				require.JSONEq(t, `{"id":"`+info.ID+`","exit":3,"status":"exited"}`, string(e.Data))
			}
		}
		runs, err := h.Shell.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, []fakehost.ShellInfo{info}, runs)
		_, _, err = h.Shell.Run(t.Context(), "ses_none", "true")
		require.ErrorIs(t, err, team.ErrNotFound)
		_, _, err = h.Shell.Run(t.Context(), session, " ")
		require.ErrorIs(t, err, team.ErrInvalid)
	})
	for _, c := range []struct{ name, command, state, exit string }{
		{"completed", "echo hi", "completed", "0"}, {"failed", "echo hi; exit 2", "error", "2"},
	} {
		t.Run("a background command tells the session when it has "+c.name, func(t *testing.T) {
			var texts []string
			opts := script(fakehost.V2_0, func(ctx context.Context, t *fakehost.Turn) (string, error) {
				texts = append(texts, t.Text())
				if len(texts) > 1 {
					return "", nil
				}
				r, err := t.Call(ctx, "shell", map[string]any{"command": c.command, "background": true})
				return r.Text, err
			})
			opts.Directory = t.TempDir()
			h := open(t, opts)
			session := create(t, h)
			prompt(t, h, session, "go")
			require.Eventually(t, func() bool {
				list, err := h.Session.Messages(t.Context(), session, fakehost.MessagePage{})
				return err == nil && strings.Contains(strings.Join(messageTypes(list), " "), "synthetic")
			}, 10*time.Second, 5*time.Millisecond)
			wait(t, h, session)
			list, err := h.Session.Messages(t.Context(), session, fakehost.MessagePage{})
			require.NoError(t, err)
			runs, err := h.Shell.List(t.Context())
			require.NoError(t, err)
			for _, m := range list {
				if m.Type == "synthetic" {
					require.Equal(t, `<shell id="`+runs[0].ID+`" state="`+c.state+`" command="`+c.command+"\">\nhi\n</shell>", m.Text())
					meta := string(mustField(t, m.Data, "metadata"))
					require.JSONEq(t, `{"source":"shell","shellID":"`+runs[0].ID+`","state":"`+c.state+`","truncated":false,"exit":`+c.exit+`}`, meta)
				}
			}
		})
	}
	t.Run("one that is killed is cancelled, and the end of the host tells nobody", func(t *testing.T) {
		opts := script(fakehost.V2_0, func(ctx context.Context, t *fakehost.Turn) (string, error) {
			if strings.Contains(t.Text(), "go") {
				_, err := t.Call(ctx, "shell", map[string]any{"command": "exec sleep 10000", "background": true})
				return "", err
			}
			return "told", nil
		})
		opts.Directory = t.TempDir()
		file := filepath.Join(t.TempDir(), "host.db")
		h := openAt(t, file, opts)
		session := create(t, h)
		prompt(t, h, session, "go")
		wait(t, h, session)
		runs, err := h.Shell.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, "running", runs[0].Status)
		require.NoError(t, h.Shell.Kill(t.Context(), runs[0].ID))
		require.Eventually(t, func() bool { return strings.Contains(history(t, h, session), `state="cancelled"`) }, time.Minute, 5*time.Millisecond)
		require.ErrorIs(t, h.Shell.Kill(t.Context(), "sh_none"), team.ErrNotFound)
		wait(t, h, session)
		prompt(t, h, session, "go")
		wait(t, h, session)
		before := len(texts(t, h, session))
		require.NoError(t, h.Close())
		h = openAt(t, file, opts)
		require.Len(t, texts(t, h, session), before)
	})
	t.Run("generation 1 has no background command that is known", func(t *testing.T) {
		_, _, _, err := calls(t, &fakehost.Options{Profile: fakehost.V1_18, Directory: t.TempDir()}, "bash", map[string]any{"command": "true", "background": true}, nil)
		require.ErrorContains(t, err, "no command in the background")
	})
}

package fakehost

import (
	"context"
	"strings"
)

// title gives a session without parent its title, beside its first turn: the hook "title" makes it, or
// the script of agent title. Without either, and where the user has named the session, there is none.
func (h *Host) title(s *Session, items []InboxItem) {
	if s.Parent != "" || items[0].Type != "user" || s.Title != "" && !s.v1 || s.v1 && !strings.HasPrefix(s.Title, newTitle) {
		return
	}
	h.work.Go(func() {
		model := h.opts.Model
		if s.Model != nil {
			model = *s.Model
		}
		e := TitleHook{Session: s.ID, Model: model}
		if !s.v1 {
			e = h.Session.hooks.title.run(h.life, e, func(e TitleHook) TitleHook { return e })
		}
		if e.Result == nil {
			a, err := h.Agent.get("title")
			if err != nil || a.Script == nil {
				return
			}
			text, err := h.titleScript(h.life, a, s, items)
			if err != nil {
				return // the real host goes on without a title
			}
			e.Result = &text
		}
		// Where the session was removed or renamed meanwhile there is nothing to do.
		_ = h.tx(func(t *tx) error {
			now, err := t.session(s.ID)
			if err != nil || now.Title != s.Title || *e.Result == "" {
				return err
			}
			now.Title = *e.Result
			if err := t.touch(now); err != nil || now.v1 {
				return err
			}
			_, err = t.durable("session.renamed", now.ID, 1, map[string]any{"sessionID": now.ID, "title": now.Title})
			return err
		})
	})
}

// titleScript asks a model that has no session of its own: its turn may only read.
func (h *Host) titleScript(ctx context.Context, a Agent, s *Session, items []InboxItem) (string, error) {
	t := &Turn{h: h, session: s, agent: a, prompts: items, over: errNoSession}
	return a.Script(ctx, t)
}

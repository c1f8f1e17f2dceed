package fakehost_test

import (
	"context"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team/fakehost"
)

// FuzzAfterTool: whatever a hook puts in the place of a result, the call ends, with what the
// hook said or with what the tool said.
func FuzzAfterTool(f *testing.F) {
	for _, s := range []string{`{"content":"x"}`, `{"content":[{"type":"text","text":"x"},{"type":"file"}]}`, `{"output":7}`,
		`{"metadata":{"truncated":null}}`, `{"metadata":[]}`, `[`, `null`, ``, `{"content":[null]}`} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, old bool) {
		p := fakehost.V2_0
		if old {
			p = fakehost.V1_18
		}
		_, _, r, err := calls(t, &fakehost.Options{Profile: p, DataDir: t.TempDir(), Tools: []fakehost.Tool{text("said", false)}}, "say", nil, func(h *fakehost.Host) {
			h.Tool.After(func(_ context.Context, a *fakehost.AfterTool) error {
				a.Result = data
				return nil
			})
		})
		require.NoError(t, err)
		require.True(t, json.Valid(r.Metadata), "%q", r.Metadata)
		if !json.Valid(data) {
			require.Equal(t, "said", r.Text)
		}
	})
}

// FuzzPrompt: any text comes out as it went in, or is refused.
func FuzzPrompt(f *testing.F) {
	f.Add("hello", "msg_1", `{"a":1}`)
	f.Add("\x00</subagent>\u2028", "", "null")
	f.Add("\xff", "x", "{")
	f.Fuzz(func(t *testing.T, text, id, metadata string) {
		h := open(t, nil)
		session := create(t, h)
		item, err := h.Session.Prompt(t.Context(), session, fakehost.Prompt{ID: id, Text: text, Metadata: []byte(metadata), NoResume: true})
		if err != nil {
			list, e := h.Inbox.List(t.Context(), session)
			require.NoError(t, e)
			require.Empty(t, list)
			return
		}
		require.True(t, utf8.ValidString(text))
		require.Equal(t, text, item.Text())
		require.NoError(t, h.Session.Resume(t.Context(), session))
		m, err := h.Session.Message(t.Context(), session, item.ID)
		require.NoError(t, err)
		require.Equal(t, text, m.Text())
	})
}

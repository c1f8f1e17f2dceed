package scriptedmodel_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team/internal/scriptedmodel"
)

type message struct {
	Role    string `json:"role"`
	Content any    `json:"content"`
}

func ask(t *testing.T, url string, tools bool, messages ...message) (status int, text string, calls []string, finish string, err error) {
	t.Helper()
	body := map[string]any{"model": "m", "messages": messages, "stream": true}
	if tools {
		body["tools"] = []any{map[string]any{"type": "function", "function": map[string]any{"name": "bash"}}}
	}
	raw, err := json.Marshal(body)
	require.NoError(t, err)
	res, err := http.Post(url+"/v1/chat/completions", "application/json", bytes.NewReader(raw))
	require.NoError(t, err)
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return res.StatusCode, "", nil, "", nil
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	ended := false
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			ended = true
			continue
		}
		var c struct {
			Choices []struct {
				Delta struct {
					Content   string
					ToolCalls []struct {
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				}
				FinishReason string `json:"finish_reason"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(data), &c))
		text += c.Choices[0].Delta.Content
		for _, tc := range c.Choices[0].Delta.ToolCalls {
			calls = append(calls, tc.Function.Name+" "+tc.Function.Arguments)
		}
		finish += c.Choices[0].FinishReason
	}
	if !ended {
		err = io.ErrUnexpectedEOF
	}
	return res.StatusCode, text, calls, finish, err
}

func TestModel(t *testing.T) {
	model := new(scriptedmodel.Model)
	server := httptest.NewServer(model)
	defer server.Close()
	script := scriptedmodel.Script(
		scriptedmodel.Step{Text: "look", Calls: []scriptedmodel.Call{{Tool: "bash", Args: map[string]string{"command": "ls"}}}},
		scriptedmodel.Step{Fails: 500},
		scriptedmodel.Step{Fill: 10_000},
		scriptedmodel.Step{Text: strings.Repeat("é", 5000), Cut: true},
		scriptedmodel.Step{Text: "late", Delay: 50},
	)
	user := message{"user", "do this\n" + script + "\nplease"}
	asst, tool := message{"assistant", "…"}, message{"tool", "…"}

	t.Run("the first step is a tool call", func(t *testing.T) {
		_, text, calls, finish, err := ask(t, server.URL, true, message{"system", "s"}, user)
		require.NoError(t, err)
		require.Equal(t, "look", text)
		require.Equal(t, []string{`bash {"command":"ls"}`}, calls)
		require.Equal(t, "tool_calls", finish)
	})
	t.Run("the next step fails", func(t *testing.T) {
		status, _, _, _, _ := ask(t, server.URL, true, user, asst, tool)
		require.Equal(t, 500, status)
	})
	t.Run("an answer can be huge", func(t *testing.T) {
		_, text, _, finish, err := ask(t, server.URL, true, user, asst, tool, asst)
		require.NoError(t, err)
		require.Len(t, text, 10_000)
		require.Equal(t, "stop", finish)
	})
	t.Run("an answer can be cut", func(t *testing.T) {
		_, _, _, finish, err := ask(t, server.URL, true, user, asst, asst, asst)
		require.Error(t, err)
		require.Empty(t, finish)
	})
	t.Run("an answer can be late, and messages without a script do not count", func(t *testing.T) {
		begin := time.Now()
		_, text, _, _, err := ask(t, server.URL, true, user, asst, asst, message{"user", []any{map[string]string{"type": "text", "text": "a note"}}}, asst, asst)
		require.NoError(t, err)
		require.Equal(t, "late", text)
		require.GreaterOrEqual(t, time.Since(begin), 50*time.Millisecond)
	})
	t.Run("behind the last step it says ok", func(t *testing.T) {
		_, text, _, _, _ := ask(t, server.URL, true, user, asst, asst, asst, asst, asst)
		require.Equal(t, "ok", text)
	})
	t.Run("the newest script counts", func(t *testing.T) {
		_, text, _, _, _ := ask(t, server.URL, true, user, asst, message{"user", scriptedmodel.Script(scriptedmodel.Step{Text: "new"})})
		require.Equal(t, "new", text)
	})
	t.Run("a call without tools follows no script", func(t *testing.T) {
		_, text, _, _, _ := ask(t, server.URL, false, user)
		require.Equal(t, "ok", text)
	})
	t.Run("a bad script is refused", func(t *testing.T) {
		status, _, _, _, _ := ask(t, server.URL, true, message{"user", "@script [{"})
		require.Equal(t, 400, status)
	})
	t.Run("requests are kept and waited for", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := model.Wait(ctx, func(r scriptedmodel.Request) bool { return r.Find("a note") >= 0 })
		require.NoError(t, err)
		require.Equal(t, 3, r.Find("a note"))
		require.Equal(t, 1, r.Count("a note"))
		require.Equal(t, []string{"bash"}, r.Tools)
		got := make(chan error, 1)
		go func() {
			_, err := model.Wait(ctx, func(r scriptedmodel.Request) bool { return r.Find("to come") >= 0 })
			got <- err
		}()
		ask(t, server.URL, true, message{"user", "to come"})
		require.NoError(t, <-got)
		short, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		_, err = model.Wait(short, func(scriptedmodel.Request) bool { return false })
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestGates(t *testing.T) {
	model := new(scriptedmodel.Model)
	server := httptest.NewServer(model)
	defer server.Close()
	script := scriptedmodel.Script(scriptedmodel.Step{Calls: []scriptedmodel.Call{{Tool: "bash", Args: 1, Gate: "a"}, {Tool: "bash", Args: 2, Gate: "b"}}})
	calls := make(chan []string, 1)
	go func() {
		_, _, got, _, _ := ask(t, server.URL, true, message{"user", script})
		calls <- got
	}()
	model.Open("a")
	model.Open("a") // open already
	select {
	case got := <-calls:
		t.Fatalf("the answer %q ended before the gate was open", got)
	case <-time.After(50 * time.Millisecond):
	}
	model.Open("b")
	require.Equal(t, []string{"bash 1", "bash 2"}, <-calls)
}

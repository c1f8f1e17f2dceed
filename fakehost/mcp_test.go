package fakehost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

func items(objects ...string) []json.RawMessage {
	var out []json.RawMessage
	for _, o := range objects {
		out = append(out, json.RawMessage(o))
	}
	return out
}

// board is a server with one tool, which answers result and notes what it was called with.
func board(result string, calls *[]fakehost.MCPCall) fakehost.MCPServer {
	return fakehost.MCPServer{Name: "team", Capabilities: []string{"tools"},
		List: func(context.Context, string, string) (fakehost.MCPPage, error) {
			return fakehost.MCPPage{Items: items(`{"name":"board.write","description":"d","inputSchema":{"type":"object"}}`)}, nil
		},
		Call: func(_ context.Context, c fakehost.MCPCall) (json.RawMessage, error) {
			*calls = append(*calls, c)
			return json.RawMessage(result), nil
		}}
}

// pages is a server whose lists have n pages of one entry each.
func pages(n int, asked *[]string) fakehost.MCPServer {
	return fakehost.MCPServer{Name: "files", Capabilities: []string{"resources"},
		List: func(_ context.Context, method, cursor string) (fakehost.MCPPage, error) {
			*asked = append(*asked, method)
			i, _ := strconv.Atoi(cursor)
			page := fakehost.MCPPage{Items: items(fmt.Sprintf(`{"name":"n%d","uri":"x:%d"}`, i, i))}
			if i+1 < n {
				page.Next = strconv.Itoa(i + 1)
			}
			return page, nil
		}}
}

func TestMCPTool(t *testing.T) {
	t.Run("a call goes to the server, and its content to the hook", func(t *testing.T) {
		each(t, func(t *testing.T, p fakehost.Profile) {
			var got []fakehost.MCPCall
			var seen map[string]any
			_, _, r, err := calls(t, &fakehost.Options{Profile: p}, "team_board_write", map[string]any{"topic": "x"}, func(h *fakehost.Host) {
				require.NoError(t, h.MCP.Add(t.Context(), board(`{"content":[{"type":"text","text":"ok wrote"},{"type":"image","data":"AA==","mimeType":"image/png"}]}`, &got)))
				h.Tool.Before(func(_ context.Context, b *fakehost.BeforeTool) error {
					b.Input = json.RawMessage(`{"topic":"x","_caller":{"session":"s"}}`)
					return nil
				})
				h.Tool.After(func(_ context.Context, a *fakehost.AfterTool) error {
					seen = object(t, a.Result)
					return nil
				})
			})
			require.NoError(t, err)
			require.Equal(t, "ok wrote", r.Text)
			require.Len(t, got, 1)
			require.Equal(t, "board.write", got[0].Tool, "the server knows its tool by its own name")
			require.JSONEq(t, `{"topic":"x","_caller":{"session":"s"}}`, string(got[0].Arguments), "what a hook added reaches the server")
			require.JSONEq(t, `{"progressToken":1}`, string(got[0].Meta), "the call has neither session nor agent")
			require.Equal(t, []any{map[string]any{"type": "text", "text": "ok wrote"}, map[string]any{"type": "image", "data": "AA==", "mimeType": "image/png"}}, seen["content"])
			require.Equal(t, []string{"content"}, keys(seen))
		})
	})
	for name, c := range map[string]struct{ result, want string }{
		"isError is the tool's failure": {`{"isError":true,"content":[{"type":"text","text":"disk full"}]}`, "disk full"},
		"an error without a text":       {`{"isError":true,"content":[]}`, "failed without a text"},
		"a result without content":      {`{"structuredContent":{}}`, "has no content"},
		"a result that is no JSON":      {`oops`, "has no content"},
	} {
		bubble(t, name, func(t *testing.T) {
			var got []fakehost.MCPCall
			_, _, _, err := calls(t, &fakehost.Options{Profile: fakehost.V1_18}, "team_board_write", map[string]any{}, func(h *fakehost.Host) {
				require.NoError(t, h.MCP.Add(t.Context(), board(c.result, &got)))
			})
			require.ErrorContains(t, err, c.want)
		})
	}
	bubble(t, "a tool asks for the permission of its own name", func(t *testing.T) {
		var got []fakehost.MCPCall
		h, session, _ := asking(t, fakehost.V2_0, "build", "team_board_write", map[string]any{})
		wait(t, h, session)
		require.NoError(t, h.MCP.Add(t.Context(), board(`{"content":[]}`, &got)))
		require.NoError(t, h.Session.Update(t.Context(), session, fakehost.SessionChange{Permissions: []fakehost.Rule{rule("team_*", "*", team.Ask)}}))
		prompt(t, h, session, "again")
		synctest.Wait()
		asks, err := h.Permission.List(t.Context(), session)
		require.NoError(t, err)
		require.Len(t, asks, 1)
		require.Equal(t, "team_board_write", asks[0].Action)
		require.Empty(t, got)
	})
}

func TestMCPCatalog(t *testing.T) {
	bubble(t, "only declared capabilities are listed", func(t *testing.T) {
		var asked []string
		h := open(t, nil)
		require.NoError(t, h.MCP.Add(t.Context(), pages(2, &asked)))
		require.Empty(t, asked, "no tools are declared")
		prompts, err := h.MCP.Prompts(t.Context())
		require.NoError(t, err)
		require.Empty(t, prompts)
		require.Empty(t, asked)
		catalog, err := h.MCP.Resources(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"resources/list", "resources/list", "resources/templates/list", "resources/templates/list"}, asked)
		require.JSONEq(t, `{"server":"files","name":"n1","uri":"x:1"}`, string(catalog.Resources[1]))
	})
	for _, c := range []struct {
		pages int
		want  string
	}{{1000, ""}, {1001, "more than 1000 pages"}} {
		bubble(t, fmt.Sprintf("%d pages", c.pages), func(t *testing.T) {
			var asked []string
			h := open(t, nil)
			require.NoError(t, h.MCP.Add(t.Context(), pages(c.pages, &asked)))
			catalog, err := h.MCP.Resources(t.Context())
			require.Len(t, asked, 2000, "a thousand for each list")
			if c.want == "" {
				require.NoError(t, err)
				require.Len(t, catalog.Resources, c.pages)
				return
			}
			require.ErrorContains(t, err, c.want)
			require.Empty(t, catalog.Resources)
		})
	}
	bubble(t, "a cursor that comes twice is an error, and the other servers are listed all the same", func(t *testing.T) {
		var asked []string
		h := open(t, nil)
		require.NoError(t, h.MCP.Add(t.Context(), fakehost.MCPServer{Name: "loop", Capabilities: []string{"resources"},
			List: func(_ context.Context, method, cursor string) (fakehost.MCPPage, error) {
				return fakehost.MCPPage{Next: "again"}, nil
			}}))
		require.NoError(t, h.MCP.Add(t.Context(), pages(1, &asked)))
		catalog, err := h.MCP.Resources(t.Context())
		require.ErrorContains(t, err, `cursor "again" came twice`)
		require.Len(t, catalog.Resources, 1)
	})
	bubble(t, "a request takes at most 30 seconds", func(t *testing.T) {
		h := open(t, nil)
		began := time.Now()
		err := h.MCP.Add(t.Context(), fakehost.MCPServer{Name: "slow", Capabilities: []string{"tools"},
			List: func(ctx context.Context, _, _ string) (fakehost.MCPPage, error) {
				<-ctx.Done()
				return fakehost.MCPPage{}, ctx.Err()
			}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 30*time.Second, time.Since(began))
		list, err := h.MCP.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, "failed", list[0].Status)
		require.ElementsMatch(t, []string{"status", "error"}, keys(object(t, list[0])["status"].(map[string]any)))
	})
	bubble(t, "reload lists the tools again, and the host says that the status has changed", func(t *testing.T) {
		name := "a"
		server := fakehost.MCPServer{Name: "my server", Capabilities: []string{"tools"},
			List: func(context.Context, string, string) (fakehost.MCPPage, error) {
				return fakehost.MCPPage{Items: items(`{"name":"` + name + `"}`)}, nil
			}}
		h := open(t, nil)
		session, rec := create(t, h), record(t, h)
		require.NoError(t, h.MCP.Add(t.Context(), server))
		name = "b"
		require.NoError(t, h.MCP.Reload(t.Context(), "my server"))
		names, err := h.Tool.Visible(t.Context(), session)
		require.NoError(t, err)
		require.Contains(t, names, "my_server_b")
		require.NotContains(t, names, "my_server_a")
		h.MCP.Remove("my server")
		names, err = h.Tool.Visible(t.Context(), session)
		require.NoError(t, err)
		require.NotContains(t, names, "my_server_b")
		require.ErrorIs(t, h.MCP.Reload(t.Context(), "my server"), team.ErrNotFound)
		require.Len(t, only(rec.types(""), "mcp.status.changed"), 2)
		require.JSONEq(t, `{"server":"my server"}`, string(rec.events[len(rec.events)-1].Data))
	})
	t.Run("generation 1 has no catalogue that is known", func(t *testing.T) {
		h := open(t, &fakehost.Options{Profile: fakehost.V1_18})
		_, err := h.MCP.Resources(t.Context())
		require.ErrorIs(t, err, errors.ErrUnsupported)
		_, err = h.MCP.Prompts(t.Context())
		require.ErrorIs(t, err, errors.ErrUnsupported)
	})
	for name, s := range map[string]fakehost.MCPServer{
		"no name":                  {},
		"an unknown capability":    {Name: "a", Capabilities: []string{"sampling"}, List: pages(1, new([]string)).List},
		"capabilities and no List": {Name: "a", Capabilities: []string{"tools"}},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			h := open(t, nil)
			require.ErrorIs(t, h.MCP.Add(t.Context(), s), team.ErrInvalid)
			list, err := h.MCP.List(t.Context())
			require.NoError(t, err)
			require.Empty(t, list)
		})
	}
}

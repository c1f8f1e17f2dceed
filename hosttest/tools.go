package hosttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/teamchan/team"
)

// A ToolsHost is a [team.Tools] and what its laws need.
type ToolsHost struct {
	team.Tools

	// Run runs a tool that answers text, in a session, and returns the name of the tool, the
	// session, and the result as the model gets it, in the host's shape.
	Run func(ctx context.Context, text string) (team.ToolResult, error)

	// Lacks has the reason for each hook that is nil, under its name.
	Lacks map[string]string
}

func (h ToolsHost) lacking(hook string) (bool, string) {
	return hook == "Run" && h.Run != nil, h.Lacks[hook]
}

// Tools checks the laws of [team.Tools].
func Tools(t *testing.T, open func(testing.TB) ToolsHost) { run(t, toolLaws, open) }

// swap returns a rewrite that replaces a word inside of the host's shape.
func swap(from, to string) func(context.Context, team.ToolResult) (team.ToolResult, error) {
	return func(_ context.Context, r team.ToolResult) (team.ToolResult, error) {
		r.Result = json.RawMessage(strings.ReplaceAll(string(r.Result), from, to))
		return r, nil
	}
}

func sees(ctx context.Context, h ToolsHost, text, want string) error {
	r, err := h.Run(ctx, text)
	if err != nil {
		return err
	}
	if !strings.Contains(string(r.Result), want) {
		return fmt.Errorf("the model sees %.200s, want %q in it", r.Result, want)
	}
	return nil
}

var toolLaws = []law[ToolsHost]{
	{
		name: "after/sees", says: "rewrite gets every result: the tool, the session, and the host's own JSON",
		needs: []string{"Run"},
		check: func(ctx context.Context, h ToolsHost) error {
			var mu sync.Mutex
			var got []team.ToolResult
			stop := h.AfterTool(func(_ context.Context, r team.ToolResult) (team.ToolResult, error) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, r)
				return r, nil
			})
			defer stop()
			ran, err := h.Run(ctx, "pineapple")
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if len(got) != 1 || got[0].Tool != ran.Tool || got[0].Session != ran.Session || !json.Valid(got[0].Result) || !strings.Contains(string(got[0].Result), "pineapple") {
				return fmt.Errorf("rewrite got %+v, want the one result of tool %q in session %q", got, ran.Tool, ran.Session)
			}
			return nil
		},
	},
	{
		name: "after/replaces", says: "What rewrite returns is what the model sees",
		needs: []string{"Run"},
		check: func(ctx context.Context, h ToolsHost) error {
			defer h.AfterTool(swap("pineapple", "banana"))()
			return sees(ctx, h, "pineapple", "banana")
		},
	},
	{
		name: "after/error", says: "When rewrite fails the result goes on as it came",
		needs: []string{"Run"},
		check: func(ctx context.Context, h ToolsHost) error {
			defer h.AfterTool(func(_ context.Context, r team.ToolResult) (team.ToolResult, error) {
				return team.ToolResult{}, errors.New("no")
			})()
			return sees(ctx, h, "pineapple", "pineapple")
		},
	},
	{
		name: "after/stop", says: "After stop, which may be called twice, rewrite is not called any more",
		needs: []string{"Run"},
		check: func(ctx context.Context, h ToolsHost) error {
			stop := h.AfterTool(swap("pineapple", "banana"))
			stop()
			stop()
			return sees(ctx, h, "pineapple", "pineapple")
		},
	},
	{
		name: "after/several", says: "Several rewrites run one after another, in the order in which they came",
		needs: []string{"Run"},
		check: func(ctx context.Context, h ToolsHost) error {
			defer h.AfterTool(swap("pineapple", "banana"))()
			defer h.AfterTool(swap("banana", "cherry"))()
			return sees(ctx, h, "pineapple", "cherry")
		},
	},
}

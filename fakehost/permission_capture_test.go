package fakehost_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

type capturedRule struct {
	Permission string
	Pattern    string
	Action     team.Effect
}

func capturedRules(rules []capturedRule) (out []fakehost.Rule) {
	for _, r := range rules {
		out = append(out, rule(r.Permission, r.Pattern, r.Action))
	}
	return out
}

func lines(t *testing.T, file string, each func(line []byte)) {
	t.Helper()
	f, err := os.Open("../testdata/permissions/" + file)
	require.NoError(t, err)
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		each(s.Bytes())
	}
	require.NoError(t, s.Err())
}

// What OpenCode 1.18.33 gave the children of forty sessions.
func TestDerivedRulesAsCaptured(t *testing.T) {
	n := 0
	lines(t, "derive.jsonl", func(line []byte) {
		var want struct {
			Parent, Child []capturedRule
			Agent         string
		}
		require.NoError(t, json.Unmarshal(line, &want))
		h := open(t, script(fakehost.V1_18, func(ctx context.Context, t *fakehost.Turn) (string, error) {
			if t.Agent() == "build" {
				_, err := t.Dispatch(ctx, want.Agent, "d", "p")
				return "", err
			}
			return "ok", nil
		}))
		// The capture allows the dispatch itself in every parent.
		s, err := h.Session.Create(t.Context(), fakehost.NewSession{Permissions: capturedRules(want.Parent)})
		require.NoError(t, err)
		prompt(t, h, s.ID, "go")
		wait(t, h, s.ID)
		children, err := h.Session.Children(t.Context(), s.ID)
		require.NoError(t, err)
		require.Len(t, children, 1, "%s", line)
		require.Equal(t, capturedRules(want.Child), children[0].Permissions, "%s", line)
		n++
	})
	require.Equal(t, 40, n)
}

// What OpenCode 1.18.33 did with single commands under rules.
func TestEvaluatedRulesAsCaptured(t *testing.T) {
	h := open(t, &fakehost.Options{Profile: fakehost.V1_18})
	n, hidden := 0, 0
	lines(t, "evaluate.jsonl", func(line []byte) {
		var want struct {
			Rules   []capturedRule
			Command string
			Result  string
		}
		require.NoError(t, json.Unmarshal(line, &want))
		n++
		s, err := h.Session.Create(t.Context(), fakehost.NewSession{Permissions: capturedRules(want.Rules)})
		require.NoError(t, err)
		// Under rules that deny all commands the host hides the tool; then nobody asks.
		for i := len(want.Rules) - 1; i >= 0; i-- {
			if r := want.Rules[i]; r.Permission == "bash" || r.Permission == "*" {
				if r.Pattern == "*" && r.Action == team.Deny && want.Result != "deny" {
					hidden++
					return
				}
				break
			}
		}
		got, err := h.Permission.Evaluate(t.Context(), s.ID, "bash", strings.TrimSpace(want.Command))
		require.NoError(t, err)
		require.Equal(t, want.Result, string(got), "%s", line)
	})
	require.Equal(t, 222, n)
	require.Equal(t, 5, hidden)
}

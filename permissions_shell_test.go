package team_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

// The lines are what OpenCode 1.18's way to read the tree gives with the grammar that it
// uses, tree-sitter-bash 0.25.0: cases written by hand, then random ones.
func TestParseShellIsThatOfTheHost(t *testing.T) {
	eachLine(t, "shell.jsonl", func(n int, line struct {
		Command          string
		Patterns, Always []string
	}) {
		ask, err := team.ParseShell(line.Command)
		require.NoError(t, err, "line %d: %s", n, line.Command)
		require.Equal(t, append([]string{}, line.Patterns...), append([]string{}, ask.Patterns...), "line %d: %s", n, line.Command)
		if line.Always != nil {
			require.Equal(t, line.Always, append([]string{}, ask.Always...), "line %d: %s", n, line.Command)
		}
	})
}

func TestParseShell(t *testing.T) {
	t.Run("always has the name of each command", func(t *testing.T) {
		ask, err := team.ParseShell(`git -C x push; git commit -m "a b" && npm run build -- x | ls -la; docker compose up; 'my cmd' x; git commit; head $X -5; cd /; gh pr view 5`)
		require.NoError(t, err)
		require.Equal(t, []string{"git -C *", "git commit *", "npm run build *", "ls *", "docker compose up *", "'my cmd' *", "head *", "gh pr view *"}, ask.Always)
	})
	t.Run("always leaves out what is no word to the host's grammar", func(t *testing.T) {
		for command, want := range map[string]string{
			"python - <<E\nx\nE": "python *", "git - 2>f": "git *", "git 16#ff push": "git push *", "git -0x1 push": "git push *",
			"git push\\\n x": "git push *", "git > f push": "git *", "git <<< x push": "git push *",
		} {
			ask, err := team.ParseShell(command)
			require.NoError(t, err, command)
			require.Equal(t, []string{want}, ask.Always, command)
		}
	})
	t.Run("a denied command is found wherever it hides", func(t *testing.T) {
		rules := team.Rules{{"bash", "*", team.Allow}, {"bash", "rm *", team.Deny}}
		for _, command := range []string{
			"rm x", "a; rm x", "a && rm x", "a || rm x", "a | rm x", "a & rm x", "a\nrm x", "(rm x)", "{ rm x; }", "echo $(rm x)", "echo `rm x`",
			`echo "$(rm x)"`, `echo "a ${b:-$(rm x)}"`, "cat <(rm x)", "if a; then rm x; fi", "while rm x; do a; done", "case a in b) rm x;; esac",
			"f() { rm x; }", "cat <<E\n$(rm x)\nE", "a <<E\nx\nE\nrm x", "x=$(rm x)", "export x=$(rm x)", "[ $(rm x) ]", "[[ $(rm x) ]]",
			"! rm x", "a # b\nrm x", "a \\\n; rm x", "echo $((1 + $(rm x)))", "echo $((a); rm x)", "((a); rm x)", "for i in $(rm x); do a; done",
			`echo "$(echo "$(rm x)")"`, "cd /tmp && rm x", "a=(b $(rm x))", "rm", "function f { rm x\n}", "until a; do rm x; done", "echo 'a' $(a `rm x`)",
		} {
			ask, err := team.ParseShell(command)
			require.NoError(t, err, command)
			require.Equal(t, team.Deny, team.EvaluateAll("bash", ask.Patterns, rules).Effect, "%s: %q", command, ask.Patterns)
		}
		for _, command := range []string{"echo rm x", "echo 'rm x; rm x'", `echo "; rm x"`, "echo \\; rm x", "a # rm x", "cat <<'E'\n$(rm x)\nE", "cd rm"} {
			ask, err := team.ParseShell(command)
			require.NoError(t, err, command)
			require.Equal(t, team.Allow, team.EvaluateAll("bash", ask.Patterns, rules).Effect, "%s: %q", command, ask.Patterns)
		}
	})
	t.Run("what is not closed is refused", func(t *testing.T) {
		for _, command := range []string{"echo 'a", `echo "a`, "echo $(a", "echo `a", "(a", "a)", "echo ${a", "cat <<E\nx", "case a in b) c", "[[ a", "((a", "a <", "a (b", "`[[ `", "`(`", "x=(a", "if a; then b", "while a; do b", "{ a", "for i in x; do a", "[ a",
			strings.Repeat("( ", 200) + strings.Repeat(")", 200)} {
			_, err := team.ParseShell(command)
			require.ErrorIs(t, err, team.ErrInvalid, command)
		}
	})
	t.Run("linear time", func(t *testing.T) {
		start := time.Now()
		for _, s := range []string{"a;", "$(", "$((", "`", "(", "((", "'", `"`, "${", "<<E\n", "a <<E\n", "x=", "case a in ", "[[ ", "a|", "{ ", "if ", "\\\n", "#", "$((a) ", "a=(", "a>b ", "$'", "\"$(", "(a)>$(", "{ a; } <<E $(", "a\n\\b", "A=1 B=2\n", "a <<''\n\\\n", "[ a ] >f ", "! "} {
			_, _ = team.ParseShell(strings.Repeat(s, 200_000/len(s)))
			_, _ = team.ParseShell("a " + strings.Repeat(s, 200_000/len(s)) + strings.Repeat(")", 100))
		}
		require.Less(t, time.Since(start), hang)
	})
}

func FuzzParseShell(f *testing.F) {
	for _, s := range []string{"a && b > f", "echo $(x `y`)", "cat <<E | b\n$(q)\nE\n", "case a in b) c;; esac", "[[ a ]] && ((b)); $((1))", "f() { a; }", "x=(a b) y", "`[[ `"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, command string) {
		ask, err := team.ParseShell(command)
		if err != nil {
			require.ErrorIs(t, err, team.ErrInvalid)
			require.Empty(t, ask)
			return
		}
		for _, p := range ask.Patterns {
			if !strings.Contains(command, p) {
				t.Fatalf("%q is not in %q", p, command)
			}
		}
	})
}

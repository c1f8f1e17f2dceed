package main

import (
	"io"
	"strings"
	"testing"

	"github.com/teamchan/team/examples/relay/survey"
)

// The relay with real sessions is tested in opencode/livetest; here is what needs no server.
func TestHeadline(t *testing.T) {
	for text, want := range map[string]string{
		"# Title\n\nWhat matters.\n\n## Findings\n":    "What matters.",
		"Here it is:\n# Title\n":                       "Here it is:",
		"```markdown\n# Title\n\nWhat matters.\n```\n": "What matters.",
		"# Title\n":                  "Title",
		"\n \n":                      "no summary",
		"a\x1b[31m\tb":               "a[31m b",
		strings.Repeat("long ", 100): survey.Cut(strings.Repeat("long ", 100), 160),
	} {
		if got := headline(text); got != want {
			t.Errorf("headline(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestNoServer(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	err := run(t.Context(), []string{"-workspace", t.TempDir(), "-opencode", "http://127.0.0.1:1"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("err = %v, want one that names the server", err)
	}
}

package team_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

// Wherever the host cuts an answer, what is left is of the same child and in the same state, and its body is
// the start of what the child wrote, whatever that is.
func TestWhatACutLeavesIsOfTheSameChild(t *testing.T) {
	for _, c := range []struct {
		form   team.Envelope
		mark   string // what the host writes behind the lines that it kept
		beside string
		overBy int // lines of the form in front of the body
	}{
		{form: team.Envelope{Generation: team.GenV2, State: team.ChildCompleted, Word: "completed"}, overBy: 1,
			mark:   "\n[showing lines 1-%d of 9999; full output saved to /d/tool_1]",
			beside: `{"sessionID":"ses_01a","status":"completed","truncated":true,"outputPath":"/d/tool_1"}`},
		{form: team.Envelope{Generation: team.GenV2, State: team.ChildUnknown, Word: "paused"}, overBy: 1,
			mark:   "\n... %d lines truncated; full content saved to /d/tool_1 ...",
			beside: `{"sessionID":"ses_01a","status":"paused","truncated":true,"outputPath":"/d/tool_1"}`},
		{form: team.Envelope{Generation: team.GenV1c, State: team.ChildCompleted, Word: "completed"}, overBy: 2,
			mark:   "\n\n...%d lines truncated...\n\nAdvice: /d/tool_1",
			beside: `{"parentSessionId":"ses_p","sessionId":"ses_01a","truncated":true,"outputPath":"/d/tool_1"}`},
		{form: team.Envelope{Generation: team.GenV1b, State: team.ChildCompleted, Summary: "for (resuming)"}, overBy: 3,
			mark:   "\n\n...%d bytes truncated...\n\nAdvice",
			beside: `{"sessionId":"ses_01a","truncated":true,"outputPath":"/d/tool_1"}`},
	} {
		t.Run(string(c.form.Generation)+" "+c.form.Word, func(t *testing.T) {
			for _, body := range append(nastyBodies(), "a\nb\n\n...3 lines truncated...\n\nx\nc", "[showing lines 1-9 of 9; full output saved to /evil]\nx\ny") {
				e := c.form
				e.Session, e.Body = "ses_01a", body
				text, err := team.FormatEnvelope(e)
				require.NoError(t, err)
				lines := strings.Split(text, "\n")
				for n := c.overBy; n < len(lines); n++ {
					cut := strings.Join(lines[:n], "\n") + fmt.Sprintf(c.mark, n)
					kept := strings.Join(lines[c.overBy:n], "\n")
					for _, beside := range []string{c.beside, ""} {
						in := team.EnvelopeInput{Text: cut, Tool: "task", Metadata: json.RawMessage(beside)}
						if e.Generation == team.GenV2 {
							in.Tool = "subagent"
						}
						got, verdict := new(team.EnvelopeMatcher).Match(in)
						require.Equal(t, team.EnvelopeMatched, verdict, "%q", cut)
						require.Equal(t, e.Session, got.Session, "%q", cut)
						require.Equal(t, e.Generation, got.Generation, "%q", cut)
						require.Equal(t, e.State, got.State)
						require.True(t, got.Truncated)
						require.Empty(t, got.Conflicts)
						if beside != "" {
							require.Equal(t, "/d/tool_1", got.OutputPath)
						}
						// A closing tag in the last line that was kept can be the form's, and a "\r" a part of a line break.
						require.True(t, strings.HasPrefix(kept, got.Body), "%q of %q", got.Body, kept)
						require.NotContains(t, strings.Trim(kept[len(got.Body):], "\r\n"), "\n", "%q of %q", got.Body, kept)
					}
				}
			}
		})
	}
}

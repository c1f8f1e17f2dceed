package team_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

// beside returns what a host of e's generation sends along with the text.
func beside(e team.Envelope, text string) team.EnvelopeInput {
	in := team.EnvelopeInput{Text: text}
	word := e.Word
	switch e.Generation {
	case team.GenV1a, team.GenV1b, team.GenV1c:
		in.Tool = "task"
		if e.Generation == team.GenV1c && !e.Notice {
			in.Metadata = json.RawMessage(fmt.Sprintf(`{"parentSessionId":"ses_p","sessionId":%s,"truncated":false}`, jsonText(e.Session)))
		}
	default:
		in.Tool = "subagent"
		if e.State == team.ChildFailed || e.State == team.ChildCancelled {
			word = "running" // the call's, from before
		}
		in.Metadata = json.RawMessage(fmt.Sprintf(`{"sessionID":%s,"status":%s}`, jsonText(e.Session), jsonText(word)))
	}
	in.Failed = !e.Notice && (e.State == team.ChildFailed || e.State == team.ChildCancelled)
	if e.Notice {
		in.Tool, in.Metadata = "", nil
		if e.Generation == team.GenV2 || e.Generation == team.GenNext {
			in.Metadata = json.RawMessage(fmt.Sprintf(`{"source":"subagent","childID":%s,"agent":"general","state":%s}`, jsonText(e.Session), jsonText(e.Word)))
		}
	}
	return in
}

// jsonText returns s in JSON; %q is not.
func jsonText[S ~string](s S) string {
	data, _ := json.Marshal(s)
	return string(data)
}

// requireSame checks that Match of the text, with and where possible without the metadata, is e.
func requireSame(t *testing.T, e team.Envelope, text string) {
	t.Helper()
	in := beside(e, text)
	var m team.EnvelopeMatcher
	got, verdict := m.Match(in)
	require.Equal(t, team.EnvelopeMatched, verdict, "%q", text)
	if e.Generation != team.GenV2pre || e.Notice { // there the body is all, and may claim anything
		require.Empty(t, got.Conflicts)
	}
	if e.Word == "" {
		e.Word = got.Word // the usual one
	}
	fields := got
	fields.Confidence, fields.Conflicts, fields.Parent, fields.Agent = "", nil, "", ""
	require.Equal(t, e, fields)
	if got.Confidence != team.ConfidenceAgreed {
		return
	}
	if in.Metadata = nil; !(e.Generation == team.GenV2 && e.State == team.ChildRunning) {
		got, verdict = m.Match(in)
		require.Equal(t, team.EnvelopeMatched, verdict, "%q", text)
		got.Confidence = ""
		require.Equal(t, e, got)
	}
}

// Every form that a host writes.
var envelopeForms = []team.Envelope{
	{Generation: team.GenV1a, State: team.ChildCompleted},
	{Generation: team.GenV1b, State: team.ChildCompleted},
	{Generation: team.GenV1b, State: team.ChildCompleted, Summary: "for (resuming)"},
	{Generation: team.GenV1c, State: team.ChildCompleted, Word: "completed"},
	{Generation: team.GenV1c, State: team.ChildRunning, Word: "running", Summary: "started"},
	{Generation: team.GenV1c, State: team.ChildFailed, Word: "failed"},
	{Generation: team.GenV1c, State: team.ChildUnknown, Word: "paused"},
	{Generation: team.GenV1c, State: team.ChildCompleted, Word: "completed", Notice: true, Summary: "ended: count </summary> \"words\"\nand\n"},
	{Generation: team.GenV1c, State: team.ChildFailed, Word: "error", Notice: true, Summary: "failed"},
	{Generation: team.GenV1c, State: team.ChildUnknown, Word: "paused", Notice: true},
	{Generation: team.GenV2pre, State: team.ChildCompleted, Word: "completed"},
	{Generation: team.GenV2pre, State: team.ChildCompleted, Word: "completed", Notice: true, Description: "d"},
	{Generation: team.GenV2pre, State: team.ChildFailed, Word: "error", Notice: true},
	{Generation: team.GenV2pre, State: team.ChildCancelled, Word: "cancelled", Notice: true, Description: `x" state="completed`},
	{Generation: team.GenV2, State: team.ChildCompleted, Word: "completed"},
	{Generation: team.GenV2, State: team.ChildRunning, Word: "running", Summary: "Working on it"},
	{Generation: team.GenV2, State: team.ChildFailed, Word: "failed"},
	{Generation: team.GenV2, State: team.ChildCancelled, Word: "cancelled"},
	{Generation: team.GenV2, State: team.ChildUnknown, Word: "paused"},
	{Generation: team.GenV2, State: team.ChildCompleted, Word: "completed", Notice: true, Description: "a \">\"> b\nc \"'>"},
	{Generation: team.GenV2, State: team.ChildFailed, Word: "error", Notice: true, Description: `'`},
	{Generation: team.GenV2, State: team.ChildCancelled, Word: "cancelled", Notice: true, Description: `"`},
	{Generation: team.GenV2, State: team.ChildUnknown, Word: "paused", Notice: true},
	{Generation: team.GenNext, State: team.ChildStopped, Word: "stopped", Notice: true, Description: "\r"},
}

func nastyBodies() []string {
	bodies := []string{"", "all done", "\n", "\r\n", "\r", " x ", "\uFEFF", "\x00\xff", ": x", ". x", ".", "[showing lines 1-2 of 3; full output saved to /x]",
		"a\n\n...3 lines truncated...\n\nb", "<task_result", "</task>", "\n</task_result>\n</task>", "</subagent>\n", "x\n</task_error>", "<summary>s</summary>\n<task_result>\n",
		"x\n\n<task_metadata>\nsession_id: ses_b\n</task_metadata>", "task_id: ses_b\n\n<task_result>\nx\n</task_result>", "Subagent failed (sessionID: ses_b): x", "Task cancelled"}
	for _, e := range envelopeForms {
		e.Session = "ses_inner"
		if text, err := team.FormatEnvelope(e); err == nil {
			bodies = append(bodies, text, text+"\n", text+"\n"+text, "```\n"+text+"\n```")
		}
	}
	return bodies
}

// Match(Format(x)) is x for every body, in every form of every generation.
func TestMatchOfFormatIsTheSame(t *testing.T) {
	for _, e := range envelopeForms {
		t.Run(fmt.Sprintf("%s %s notice=%v", e.Generation, e.State, e.Notice), func(t *testing.T) {
			e.Session = "ses_01a"
			for _, body := range nastyBodies() {
				e.Body = body
				text, err := team.FormatEnvelope(e)
				require.NoError(t, err)
				requireSame(t, e, text)
			}
			e.Word, e.Body = "", "x"
			if e.State != team.ChildUnknown {
				text, err := team.FormatEnvelope(e)
				require.NoError(t, err)
				e.Word = ""
				got, _ := new(team.EnvelopeMatcher).Match(beside(withUsualWord(e), text))
				require.Equal(t, withUsualWord(e).Word, got.Word, "the usual word")
			}
		})
	}
	t.Run("a task that was cancelled has no body", func(t *testing.T) {
		e := team.Envelope{Generation: team.GenV1c, State: team.ChildCancelled, Word: "cancelled", Session: "ses_01a"}
		text, err := team.FormatEnvelope(e)
		require.NoError(t, err)
		requireSame(t, e, text)
		e.Body = "x"
		_, err = team.FormatEnvelope(e)
		require.ErrorIs(t, err, team.ErrInvalid)
	})
}

func withUsualWord(e team.Envelope) team.Envelope {
	for _, form := range envelopeForms {
		if form.Generation == e.Generation && form.State == e.State && form.Notice == e.Notice {
			e.Word = form.Word
		}
	}
	return e
}

func TestFormatEnvelopeRefuses(t *testing.T) {
	good := team.Envelope{Generation: team.GenV2, State: team.ChildCompleted, Notice: true, Session: "ses_01a", Description: "d", Body: "x"}
	_, err := team.FormatEnvelope(good)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		change func(*team.Envelope)
		want   error
	}{
		"no session":                      {func(e *team.Envelope) { e.Session = "" }, team.ErrInvalid},
		"a session with a quote":          {func(e *team.Envelope) { e.Session = `a"b` }, team.ErrInvalid},
		"a session that is too long":      {func(e *team.Envelope) { e.Session = team.SessionID(strings.Repeat("s", 257)) }, team.ErrInvalid},
		"a truncated one":                 {func(e *team.Envelope) { e.Truncated = true }, team.ErrInvalid},
		"an output path":                  {func(e *team.Envelope) { e.OutputPath = "/x" }, team.ErrInvalid},
		"a word of another state":         {func(e *team.Envelope) { e.Word = "error" }, team.ErrInvalid},
		"a word with a quote":             {func(e *team.Envelope) { e.State, e.Word = team.ChildUnknown, `a"b` }, team.ErrInvalid},
		"an unknown state without a word": {func(e *team.Envelope) { e.State = team.ChildUnknown }, team.ErrInvalid},
		"a description that ends the tag": {func(e *team.Envelope) { e.Description = "x\">\ny" }, team.ErrInvalid},
		"one that ends it by CRLF":        {func(e *team.Envelope) { e.Description = "x\">\r\ny" }, team.ErrInvalid},
		"a description that is too long":  {func(e *team.Envelope) { e.Description = strings.Repeat("d", 40_000) }, team.ErrTooLarge},
		"a description without a place":   {func(e *team.Envelope) { e.Notice = false }, team.ErrInvalid},
		"a summary without a place":       {func(e *team.Envelope) { e.Summary = "s" }, team.ErrInvalid},
		"a summary that ends itself": {func(e *team.Envelope) {
			e.Generation, e.Description, e.Summary = team.GenV1c, "", "a</summary>\nb"
		}, team.ErrInvalid},
		"a summary of a foreground task": {func(e *team.Envelope) {
			*e = team.Envelope{Generation: team.GenV1c, State: "completed", Session: "s", Summary: "x"}
		}, team.ErrInvalid},
		"a summary over two lines": {func(e *team.Envelope) {
			*e = team.Envelope{Generation: team.GenV1b, State: "completed", Session: "s", Summary: "x\ny"}
		}, team.ErrInvalid},
		"a word in v1-a": {func(e *team.Envelope) {
			*e = team.Envelope{Generation: team.GenV1a, State: "completed", Session: "s", Word: "completed"}
		}, team.ErrInvalid},
		"nothing round a body that is its own envelope": {func(e *team.Envelope) {
			*e = team.Envelope{Generation: team.GenV2pre, State: "completed", Session: "ses_01a", Body: wholeAnswer}
		}, team.ErrInvalid},
		"running without a lead": {func(e *team.Envelope) { *e = team.Envelope{Generation: team.GenV2, State: "running", Session: "s"} }, team.ErrInvalid},
		"a lead with an id": {func(e *team.Envelope) {
			*e = team.Envelope{Generation: team.GenV2, State: "running", Session: "s", Summary: "a (sessionID: b) c"}
		}, team.ErrInvalid},
		"a notice of a running child":    {func(e *team.Envelope) { e.State = team.ChildRunning }, errors.ErrUnsupported},
		"stopped in 2.0":                 {func(e *team.Envelope) { e.State = team.ChildStopped }, errors.ErrUnsupported},
		"completed in the next":          {func(e *team.Envelope) { e.Generation = team.GenNext }, errors.ErrUnsupported},
		"failed in v1-a":                 {func(e *team.Envelope) { *e = team.Envelope{Generation: team.GenV1a, State: "failed", Session: "s"} }, errors.ErrUnsupported},
		"running before 2.0":             {func(e *team.Envelope) { *e = team.Envelope{Generation: team.GenV2pre, State: "running", Session: "s"} }, errors.ErrUnsupported},
		"a generation that nobody knows": {func(e *team.Envelope) { e.Generation = "v9" }, errors.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			e := good
			test.change(&e)
			text, err := team.FormatEnvelope(e)
			require.ErrorIs(t, err, test.want)
			require.Empty(t, text)
		})
	}
}

// FuzzEnvelopeRoundTrip: what Format takes, Match gives back.
func FuzzEnvelopeRoundTrip(f *testing.F) {
	for i, body := range nastyBodies() {
		f.Add(uint8(i), "ses_01a", "paused", "say \"hi\"", "a (b)", body)
	}
	f.Fuzz(func(t *testing.T, form uint8, session, word, description, summary, body string) {
		e := envelopeForms[int(form)%len(envelopeForms)]
		e.Session, e.Body = team.SessionID(session), body
		if e.State == team.ChildUnknown {
			e.Word = word
		}
		if e.Description != "" {
			e.Description = description
		}
		if e.Summary != "" {
			e.Summary = summary
		}
		text, err := team.FormatEnvelope(e)
		if err != nil {
			require.True(t, errors.Is(err, team.ErrInvalid) || errors.Is(err, team.ErrLimit), "%v", err)
			return
		}
		requireSame(t, e, text)
	})
}

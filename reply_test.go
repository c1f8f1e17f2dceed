package team_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

func TestParseReply(t *testing.T) {
	t.Run("the five fields", func(t *testing.T) {
		r := team.ParseReply("STATUS: done\nCHANGES: a.go\n  b.go\nFINDINGS:\n- x.go:3 is wrong\n\n- y.go:4\nEVIDENCE: go test ./... passes\nHANDOFF: look at b.go\n")
		require.Equal(t, team.StatusDone, r.Status)
		require.True(t, r.Done())
		require.Equal(t, "a.go\n  b.go", r.Changes)
		require.Equal(t, "- x.go:3 is wrong\n\n- y.go:4", r.Findings)
		require.Equal(t, "go test ./... passes", r.Evidence)
		require.Equal(t, "look at b.go", r.Handoff)
		require.Equal(t, team.GradeGood, r.Grade)
		require.Equal(t, 9, r.Lines)
		require.Nil(t, r.Problems)
	})
	t.Run("labels at line start in any case, in any order", func(t *testing.T) {
		r := team.ParseReply("handoff: 中文\r\nEvidence : ran it\r\nstatus：Done.\r\nsTaTuS: done")
		require.Equal(t, team.Reply{Status: team.StatusDone, Handoff: "中文", Evidence: "ran it", StatusText: "Done.\ndone",
			Grade: team.GradeGood, Lines: 4}, r)
	})
	t.Run("a byte order mark is no text", func(t *testing.T) {
		require.Equal(t, team.StatusFailed, team.ParseReply("\uFEFFSTATUS: failed").Status)
	})
	t.Run("a label that is not at line start is content", func(t *testing.T) {
		for _, s := range []string{" STATUS: done", "> STATUS: done", "- STATUS: done", "my STATUS: done", "STATUSES: done", "STATUS done", "STATUS"} {
			r := team.ParseReply(s)
			require.Equal(t, team.StatusMissing, r.Status, s)
			require.Equal(t, strings.TrimSpace(s), r.Preamble)
		}
	})
	t.Run("no STATUS is violating", func(t *testing.T) {
		for _, s := range []string{"", "all fine", "CHANGES: x\nEVIDENCE: y", "STATUS:", "STATUS:\n\nEVIDENCE: x"} {
			r := team.ParseReply(s)
			require.Equal(t, team.GradeViolating, r.Grade, "%q", s)
			require.False(t, r.Done())
			require.NotEqual(t, team.StatusFailed, r.Status, "violating is not failed")
			require.NotEmpty(t, r.Problems)
		}
	})
	t.Run("an unknown STATUS is not done", func(t *testing.T) {
		for _, s := range []string{"partially done", "done|blocked|failed", "done, mostly", "ok", "完成", "not done"} {
			r := team.ParseReply("STATUS: " + s + "\nEVIDENCE: x")
			require.Equal(t, team.StatusUnknown, r.Status, s)
			require.False(t, r.Done())
			require.Equal(t, s, r.StatusText)
			require.NotEmpty(t, r.Problems)
		}
	})
	t.Run("two that disagree are unknown", func(t *testing.T) {
		require.Equal(t, team.StatusUnknown, team.ParseReply("STATUS: done\nEVIDENCE: x\nSTATUS: failed").Status)
	})
	t.Run("a remark in a line of its own does not change it", func(t *testing.T) {
		require.Equal(t, team.StatusBlocked, team.ParseReply("STATUS:\n**blocked**\nsince there is no network").Status)
	})
	t.Run("done without EVIDENCE is weak", func(t *testing.T) {
		for _, s := range []string{"STATUS: done", "STATUS: done\nEVIDENCE:", "STATUS: done\nEVIDENCE: \n \nHANDOFF: x"} {
			r := team.ParseReply(s)
			require.Equal(t, team.GradeWeak, r.Grade)
			require.True(t, r.Done())
			require.NotEmpty(t, r.Problems)
		}
		require.Equal(t, team.GradeGood, team.ParseReply("STATUS: blocked").Grade, "what is not done needs none")
	})
	t.Run("HANDOFF is relayed verbatim", func(t *testing.T) {
		handoff := "    indented code\r\n\r\n> quoted  \n```\nSTATUS: failed\n```\n\t- 中文 😀 \x01 not done: nothing"
		r := team.ParseReply("STATUS: done\nEVIDENCE: x\nHANDOFF:\n" + handoff + "\n\n")
		require.Equal(t, handoff, r.Handoff)
		require.Equal(t, team.StatusDone, r.Status, "what is fenced is content")
	})
	t.Run("a fence that nothing closes hides no label", func(t *testing.T) {
		r := team.ParseReply("STATUS: failed\nFINDINGS:\n```go\nx\nHANDOFF: y")
		require.Equal(t, "y", r.Handoff)
		r = team.ParseReply("STATUS: failed\nFINDINGS:\n````\n```\nHANDOFF: a\n````\nHANDOFF: y")
		require.Equal(t, "y", r.Handoff, "a shorter fence closes nothing")
	})
	t.Run("a reply in a fence is a reply", func(t *testing.T) {
		require.Equal(t, team.StatusFailed, team.ParseReply("```\nSTATUS: failed\n```").Status)
	})
	t.Run("a label that comes again continues its field", func(t *testing.T) {
		require.Equal(t, "a\nb", team.ParseReply("CHANGES: a\nSTATUS: failed\nCHANGES: b").Changes)
	})
	t.Run("not done lines are collected", func(t *testing.T) {
		r := team.ParseReply("not done: the tests — no time\nSTATUS: done\nEVIDENCE: x\n- Not done: docs\n* NOT DONE： 其余\nit is not done: no")
		require.Equal(t, []string{"the tests — no time", "docs", "其余"}, r.NotDone)
		require.NotEmpty(t, r.Problems, "done and not done is worth a word")
	})
	t.Run("more than 50 lines says use the board", func(t *testing.T) {
		head := "STATUS: done\nEVIDENCE: x"
		r := team.ParseReply(head + strings.Repeat("\nx", 48))
		require.False(t, r.TooLong())
		require.Nil(t, r.Problems)
		r = team.ParseReply(head + strings.Repeat("\nx", 49))
		require.True(t, r.TooLong())
		require.Contains(t, strings.Join(r.Problems, "\n"), "use the board")
		require.Equal(t, team.GradeGood, r.Grade, "it is no fault of the work")
	})
	t.Run("unless the board failed", func(t *testing.T) {
		r := team.ParseReply("BLACKBOARD WRITE FAILED: disk full\nSTATUS: done\nEVIDENCE: x" + strings.Repeat("\nx", 60))
		require.Equal(t, "disk full", r.BoardFailed)
		require.Nil(t, r.Problems)
		require.Empty(t, team.ParseReply("STATUS: done\nBLACKBOARD WRITE FAILED: x").BoardFailed, "it is the first line or nothing")
	})
	t.Run("linear time", func(t *testing.T) {
		start := time.Now()
		for _, s := range []string{"STATUS: x\n", "```\n", "````go\n~~~\n", "STATUS", "not done:\n", "HANDOFF: `\"'/a.md\n", "`", "\"'", "（", "/a/b.md "} {
			r := team.ParseReply("HANDOFF: " + strings.Repeat(s, 1<<19/len(s)))
			r.Paths()
		}
		require.Less(t, time.Since(start), hang)
	})
}

func TestFormatReply(t *testing.T) {
	t.Run("is read back", func(t *testing.T) {
		in := team.Reply{Status: team.StatusDone, Changes: "a.go", Findings: "- x\n\n  - y", Evidence: " starts with a space", Handoff: "```\nSTATUS: failed\n```"}
		text, err := team.FormatReply(in)
		require.NoError(t, err)
		out := team.ParseReply(text)
		require.Equal(t, []string{in.Changes, in.Findings, in.Evidence, in.Handoff}, []string{out.Changes, out.Findings, out.Evidence, out.Handoff})
		require.Equal(t, team.StatusDone, out.Status)
		require.Equal(t, team.GradeGood, out.Grade)
	})
	for says, r := range map[string]team.Reply{
		"no status":                     {},
		"an unknown status":             {Status: team.StatusUnknown},
		"a line like a label":           {Status: team.StatusDone, Changes: "x\nstatus: failed"},
		"blank space behind":            {Status: team.StatusDone, Changes: "x\n"},
		"what is not UTF-8":             {Status: team.StatusDone, Handoff: "\xff"},
		"a fence over two fields":       {Status: team.StatusDone, Changes: "```\nx", Handoff: "y\n```"},
		"a fence that hides the last":   {Status: team.StatusFailed, Findings: "~~~\nx", Evidence: "z\n~~~"},
		"a label in one line as a text": {Status: team.StatusDone, Changes: "x", Evidence: "a\nHANDOFF: b"},
	} {
		t.Run(says+" is refused", func(t *testing.T) {
			_, err := team.FormatReply(r)
			require.ErrorIs(t, err, team.ErrInvalid)
		})
	}
	t.Run("over 50 lines is refused", func(t *testing.T) {
		_, err := team.FormatReply(team.Reply{Status: team.StatusDone, Findings: strings.Repeat("x\n", 48) + "x"})
		require.ErrorIs(t, err, team.ErrTooLarge)
		_, err = team.FormatReply(team.Reply{Status: team.StatusDone, Findings: strings.Repeat("x\n", 47) + "x"})
		require.NoError(t, err)
	})
}

func TestReplyPaths(t *testing.T) {
	digest := strings.Repeat("0a", 32)
	r := team.Reply{
		Changes:  "wrote `/b/my board/s/t/01-tester-x.md` (sha256=" + strings.ToUpper(digest) + "),\nand s/t/02-tester-y.md.\n**/b/z.md** \"see /b/q.md\" it's",
		Handoff:  "见 /b/s/t/03-tester-z.md，然后 https://example.org/a.md and a.go:3 or and/or\nC:\\b\\w.md sha256 " + digest + " " + digest,
		Evidence: "/not/here.md",
	}
	require.Equal(t, []team.ReplyPath{
		{Field: "CHANGES", Path: "/b/my board/s/t/01-tester-x.md", SHA256: digest},
		{Field: "CHANGES", Path: "s/t/02-tester-y.md"},
		{Field: "CHANGES", Path: "/b/z.md"},
		{Field: "CHANGES", Path: "/b/q.md"},
		{Field: "HANDOFF", Path: "/b/s/t/03-tester-z.md"},
		{Field: "HANDOFF", Path: `C:\b\w.md`, SHA256: digest},
	}, r.Paths())
}

func TestReplyPathsAreCheckedAgainstABoard(t *testing.T) {
	ctx := as(context.Background(), "tester")
	b, err := team.OpenBoard(ctx, t.TempDir()+"/board", nil)
	require.NoError(t, err)
	defer b.Close()
	write := func(topic string) team.Entry {
		e, err := b.Write(ctx, team.Draft{Session: "s", Task: "t", Topic: topic, Body: topic})
		require.NoError(t, err)
		return e
	}
	good, changed, other := write("good"), write("changed"), write("other")
	data, err := os.ReadFile(changed.Path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(changed.Path, append(data, '!'), 0o600))
	missing := filepath.Join(filepath.Dir(good.Path), "09-tester-none.md")

	r := team.ParseReply("STATUS: done\nEVIDENCE: x\nCHANGES: " + good.Path + " sha256=" + good.SHA256 + "\n" + changed.Path + "\n" + missing +
		"\nHANDOFF: " + other.Path + " " + good.SHA256 + "\n/etc/passwd and /tmp/s/t/01-a-b.md\n" + good.Path)
	paths, err := r.CheckPaths(ctx, b)
	require.NoError(t, err)
	var states []team.PathState
	for _, p := range paths {
		states = append(states, p.State)
		require.Equal(t, p.State == team.PathGood, p.Err == nil, p.Path)
	}
	require.Equal(t, []team.PathState{team.PathGood, team.PathDiffers, team.PathMissing, team.PathDiffers, team.PathOutside, team.PathOutside, team.PathGood}, states)
	require.ErrorIs(t, paths[3].Err, team.ErrCorrupt, "an entry with another digest than the reply says")

	done, cancel := context.WithCancel(ctx)
	cancel()
	_, err = r.CheckPaths(done, b)
	require.ErrorIs(t, err, context.Canceled)
}

func FuzzParseReply(f *testing.F) {
	for _, s := range []string{"STATUS: done\nCHANGES: /a/b.md\nEVIDENCE: x\nHANDOFF: y", "```\nSTATUS: failed\n```", "status：done\r\nnot done: x", "\uFEFFSTATUS:\n\n  x", "HANDOFF:\n~~~\n\n~~~~\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := team.ParseReply(text)
		r.Paths()
		if r.Done() == (r.Status != team.StatusDone) || (r.Grade == team.GradeViolating) != (r.Status == team.StatusMissing) {
			t.Fatalf("%+v", r)
		}
		for _, s := range []string{r.Changes, r.Findings, r.Evidence, r.Handoff, r.StatusText} {
			for _, part := range strings.Split(s, "\n") {
				if !strings.Contains(text, part) {
					t.Fatalf("%q is not in the reply", part)
				}
			}
		}
		// What can be written is read back as it was.
		again, err := team.FormatReply(r)
		if err != nil {
			return
		}
		if b := team.ParseReply(again); b.Status != r.Status || b.Changes != r.Changes || b.Findings != r.Findings || b.Evidence != r.Evidence || b.Handoff != r.Handoff {
			t.Fatalf("%q is read back as %+v", again, b)
		}
	})
}

func BenchmarkParseReply(b *testing.B) {
	text := "STATUS: done\nCHANGES: x\n" + strings.Repeat("- a finding in file.go:12, and what it means\n", 20_000) + "EVIDENCE: y\n"
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		team.ParseReply(text)
	}
}

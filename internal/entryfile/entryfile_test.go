package entryfile

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestParseName(t *testing.T) {
	for s, want := range map[string]Name{
		"01-tester-report.md":               {1, "tester", "report", 1},
		"12-code_reviewer-api-design-r3.md": {12, "code_reviewer", "api-design", 3},
		"9999-a-b-r9999.md":                 {9999, "a", "b", 9999},
		"01-tester-r7.md":                   {1, "tester", "r7", 1},
		"01-tester-x-r1.md":                 {1, "tester", "x-r1", 1},
		"01-tester-x-r07.md":                {1, "tester", "x-r07", 1},
		"01-架构-设计-r2.md":                    {1, "架构", "设计", 2},
	} {
		if got, ok := ParseName(s); !ok || got != want {
			t.Errorf("ParseName(%q) = %+v, %v; want %+v", s, got, ok, want)
		}
	}
	for _, s := range []string{"", ".md", "01-.md", "01-a.md", "01--b.md", "01-a-.md", "a-b-c.md", "00-a-b.md", "1-a-b.md",
		"001-a-b.md", "12345-a-b.md", "01-a-b.txt", "01-a-b-r2", "+1-a-b.md"} {
		if got, ok := ParseName(s); ok {
			t.Errorf("ParseName(%q) = %+v, want none", s, got)
		}
	}
}

func FuzzParseName(f *testing.F) {
	f.Add("01-a-b-r2.md")
	f.Fuzz(func(t *testing.T, s string) {
		if n, ok := ParseName(s); ok && n.String() != s {
			t.Errorf("%q is read as %+v, which is written %q", s, n, n)
		}
	})
}

func TestHeader(t *testing.T) {
	h := Header{Time: time.UnixMilli(1796023691123), Role: "architect", Session: "20261130-072811-k3f9qa", SHA256: strings.Repeat("0a", 32)}
	const want = "<!-- tm_board_write · 2026-11-30T07:28:11.123Z · role=architect · session=20261130-072811-k3f9qa · sha256=" +
		"0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a -->\n"
	if got := h.String(); got != want {
		t.Errorf("header = %q\n  want %q", got, want)
	}
	for _, bad := range []string{"", "x", want[1:], strings.Replace(want, "sha256=0a", "sha256=0A", 1),
		strings.Replace(want, "role=architect · ", "", 1), strings.Replace(want, " -->", "", 1),
		strings.Replace(want, "2026-11", "2026-13", 1), strings.Replace(want, "architect", "%zz", 1)} {
		if _, err := ParseHeader(bad); err != ErrHeader {
			t.Errorf("ParseHeader(%q) = %v, want ErrHeader", bad, err)
		}
	}
}

func FuzzHeader(f *testing.F) {
	f.Add("code reviewer", "a/b --> <!--", "设计·x", "é\n% =")
	f.Fuzz(func(t *testing.T, role, session, task, topic string) {
		h := Header{Time: time.UnixMilli(1796023691123).UTC(), Role: role, Session: session,
			SHA256: strings.Repeat("0a", 32), Task: task, Topic: topic}
		line := h.String()
		if strings.Count(line, "\n") != 1 || strings.Count(line, "-->") != 1 || strings.Count(line, "<") != 1 {
			t.Errorf("%+v breaks its line: %q", h, line)
		}
		for _, s := range []string{role, session, task, topic} {
			if !utf8.ValidString(s) || role == "" || session == "" {
				return // never written: names are checked before
			}
		}
		if got, err := ParseHeader(line); err != nil || got != h {
			t.Errorf("%+v\nis read as %+v, %v", h, got, err)
		}
	})
}

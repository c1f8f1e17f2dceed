package portcheck_test

import (
	"strings"
	"testing"
	"time"

	"github.com/teamchan/team/internal/portcheck"
)

func TestChecks(t *testing.T) {
	for _, test := range []struct {
		name  string
		check func() (what, why string)
		want  string // "what why"
	}{
		{"a key", func() (string, string) { return portcheck.Key("k/é\x00") }, " "},
		{"the longest key", func() (string, string) { return portcheck.Key(strings.Repeat("k", 1024)) }, " "},
		{"no key", func() (string, string) { return portcheck.Key("") }, "record key is empty"},
		{"a key that is too long", func() (string, string) { return portcheck.Key(strings.Repeat("é", 513)) }, "record key has 1026 bytes, more than 1024"},
		{"a key that is not UTF-8", func() (string, string) { return portcheck.Key("k\xff") }, "record key is not UTF-8"},
		{"a queue", func() (string, string) { return portcheck.Queue("q") }, " "},
		{"no queue", func() (string, string) { return portcheck.Queue("") }, "queue name is empty"},
		{"an item", func() (string, string) { return portcheck.Item("a", 0) }, " "},
		{"an item without id", func() (string, string) { return portcheck.Item("", 1) }, "item id is empty"},
		{"an item that gives something back", func() (string, string) { return portcheck.Item("a", -1) }, "item cost is negative"},
		{"a claim", func() (string, string) { return portcheck.Claim("q", 1, 0, 1) }, " "},
		{"a claim of nothing", func() (string, string) { return portcheck.Claim("q", 0, 0, 1) }, "claim max is not positive"},
		{"a claim for no time", func() (string, string) { return portcheck.Claim("q", 1, 0, 0) }, "claim lease is not positive"},
		{"a claim with less than no budget", func() (string, string) { return portcheck.Claim("q", 1, -1, 1) }, "claim budget is negative"},
		{"a claim from nowhere", func() (string, string) { return portcheck.Claim("", 1, 0, 1) }, "queue name is empty"},
		{"an ack", func() (string, string) { return portcheck.Verdict("ack", -1) }, " "},
		{"a release", func() (string, string) { return portcheck.Verdict("release", 0) }, " "},
		{"a release before now", func() (string, string) { return portcheck.Verdict("release", -1) }, "release delay is negative"},
		{"an extend", func() (string, string) { return portcheck.Verdict("extend", time.Second) }, " "},
		{"an extend by nothing", func() (string, string) { return portcheck.Verdict("extend", 0) }, "extend delay is not positive"},
		{"another verdict", func() (string, string) { return portcheck.Verdict("Ack", 0) }, "verdict is not one of those there are"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if what, why := test.check(); what+" "+why != test.want {
				t.Errorf("check = %q, want %q", what+" "+why, test.want)
			}
		})
	}
}

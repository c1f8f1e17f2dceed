package main

import (
	"regexp"
	"strings"
	"testing"
)

// The program does what its comment says, and prints it.
func TestHandoff(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^offload   the lead's model gets [23]\d\d bytes of a long answer
join      completed, known by (envelope v2|event session\.execution\.succeeded)
signal    architect settled: the API is ready for review
board     14007 bytes, of which the lead reads "# API\\n"
ledger    auth/api is "designed", by architect
trail     \d+ lines, the chain holds: true
$`)
	if !want.MatchString(out.String()) {
		t.Errorf("it printed\n%swant\n%s", out.String(), want)
	}
}

package team_test

import (
	"fmt"

	"github.com/teamchan/team"
)

func ExampleParseReply() {
	r := team.ParseReply(`STATUS: done
CHANGES: auth.go, and the API in 20260101-120000-abc/auth/01-architect-api.md
not done: the migration - no database here
HANDOFF: tester, start with the token's expiry
`)
	fmt.Println(r.Status, r.Grade, r.NotDone)
	fmt.Println(r.Handoff)
	fmt.Println(r.Paths()[0].Path)
	for _, p := range r.Problems {
		fmt.Println("-", p)
	}
	// Output:
	// done weak [the migration - no database here]
	// tester, start with the token's expiry
	// 20260101-120000-abc/auth/01-architect-api.md
	// - done without EVIDENCE: ask how it was checked, or check it
	// - STATUS is done, and 1 part(s) are named as not done
}

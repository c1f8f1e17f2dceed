package team_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

func ExampleEvaluate() {
	var session team.Rules // as a host has them, in the shape of 1.x or 2.x
	if err := json.Unmarshal([]byte(`[
		{"permission": "bash", "pattern": "git *",   "action": "allow"},
		{"permission": "bash", "pattern": "git pu*", "action": "deny"}
	]`), &session); err != nil {
		log.Fatal(err)
	}
	agent := team.Rules{{Permission: "*", Pattern: "*", Effect: team.Ask}}

	asked, err := team.ParseShell("git add . && git push")
	if err != nil {
		log.Fatal(err)
	}
	d := team.EvaluateAll("bash", asked.Patterns, agent, session)
	fmt.Println(d.Explain())

	// Nobody is there to answer an ask, so it is not raised.
	fmt.Println(team.Evaluate("bash", "make", agent, session).Unattended().Effect)
	// Output:
	// bash "git push": deny, by rule 2 of list 2 (bash "git pu*" deny)
	//   shadows rule 1 of list 1 (* * ask): it comes earlier, and the last that matches wins
	//   shadows rule 1 of list 2 (bash "git *" allow): it comes earlier, and the last that matches wins
	// unanswered
}

func ExampleDerive() {
	parent := team.Rules{
		{Permission: "edit", Pattern: "*", Effect: team.Deny},
		{Permission: "edit", Pattern: "docs/*", Effect: team.Allow},
	}
	agent := team.Rules{{Permission: "*", Pattern: "*", Effect: team.Allow}} // of the child

	for _, r := range team.Derive(team.PolicyCeiling, parent, agent) {
		fmt.Println(r.Permission, r.Pattern, r.Effect)
	}
	// Without them the child could do more than the parent.
	w, proof := team.NotWider(parent, agent)
	fmt.Printf("%s: %s %q\n", proof, w.Permission, w.Resource)
	// Output:
	// edit * deny
	// edit docs/* allow
	// refuted: edit ""
}

// The roles of a team as data: who may signal whom is a rule like any other.
func ExampleRoleMatrix_Permissions() {
	roles := team.TeamRoles()
	roles["reviewer"] = append(roles["reviewer"], // the last rule that matches decides
		team.Rule{Permission: team.PermissionSignal, Pattern: "*", Effect: team.Deny},
		team.Rule{Permission: team.PermissionSignal, Pattern: "lead", Effect: team.Allow})

	ctx := context.Background()
	signals, err := team.OpenSignals(ctx, new(memstore.Store), &team.SignalOptions{Permissions: roles.Permissions()})
	if err != nil {
		log.Fatal(err)
	}
	for role, session := range map[team.Role]team.SessionID{"lead": "ses_lead", "tester": "ses_t1"} {
		if err := signals.Enrol(ctx, team.Member{Session: session, Role: role}); err != nil {
			log.Fatal(err)
		}
	}
	reviewer := team.WithCaller(ctx, team.Caller{Session: "ses_r1", Role: "reviewer"})
	for _, to := range []string{"lead", "tester"} {
		_, err := signals.Send(reviewer, to, team.Signal{Kind: team.KindNote, Summary: "hello"})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// inbox.send tester: inbox.send of tester is denied by the rules; ask whoever made them, or leave it
}

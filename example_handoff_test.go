package team_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"path/filepath"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// A handoff is an entry, its signal and a change of the ledger, all or nothing; a retry finds what is done.
func ExampleSignalChannel_HandOff() {
	ctx := context.Background()
	board, done := exampleBoard()
	defer done()
	store := new(memstore.Store) // one for both, so that they change in one step
	signals, err := team.OpenSignals(ctx, store, nil)
	if err != nil {
		log.Fatal(err)
	}
	ledger, err := team.OpenLedger(ctx, store, team.Scope{Project: "/home/me/app"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range []team.Member{
		{Session: "ses_lead", Role: "lead"},
		{Session: "ses_a1", Role: "architect", Parent: "ses_lead"},
	} {
		if err := signals.Enrol(ctx, m); err != nil {
			log.Fatal(err)
		}
	}

	ctx = team.WithCaller(ctx, team.Caller{Session: "ses_a1", Role: "architect"})
	for range 2 { // the second is what a program does that was killed in the first
		handed, err := signals.HandOff(ctx, board, team.Handoff{
			To:     "lead",
			Draft:  team.Draft{Session: "20261130-072811-k3f9qa", Task: "auth", Topic: "api", Body: "# API\n\n…\n"},
			Signal: team.Signal{Kind: team.KindSettled, Summary: "the API is ready for review", Key: "auth-api-1"},
			Ledger: ledger,
			Edits:  []team.Edit{{Key: "auth/api", Value: json.RawMessage(`"designed"`)}},
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(filepath.Base(handed.Entry.Path), "signal", handed.Sent.Seq, "replayed:", handed.Replayed)
	}
	fact, err := ledger.Get(ctx, "auth/api")
	fmt.Println(string(fact.Value), err)
	// Output:
	// 01-architect-api.md signal 1 replayed: false
	// 01-architect-api.md signal 1 replayed: true
	// "designed" <nil>
}

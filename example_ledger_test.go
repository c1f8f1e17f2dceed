package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// Two sessions work on one fact: who was second is told so, and nothing is lost.
func ExampleLedger_Put() {
	ctx := context.Background()
	scope := team.Scope{Project: "/home/me/app"} // no session: shared by the team
	ledger, err := team.OpenLedger(ctx, new(memstore.Store), scope, nil)
	if err != nil {
		log.Fatal(err)
	}
	lead := team.WithCaller(ctx, team.Caller{Session: "ses_lead", Role: "lead"})
	tester := team.WithCaller(ctx, team.Caller{Session: "ses_t1", Role: "tester"})

	v1, err := ledger.Put(lead, "auth/state", json.RawMessage(`"designed"`), "") // creates
	if err != nil {
		log.Fatal(err)
	}
	if _, err := ledger.Put(tester, "auth/state", json.RawMessage(`"tested"`), v1); err != nil {
		log.Fatal(err)
	}
	_, err = ledger.Put(lead, "auth/state", json.RawMessage(`"built"`), v1)
	if conflict, ok := errors.AsType[*team.ConflictError](err); ok {
		fact, err := ledger.Get(lead, conflict.Key)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s was first: %s is %s\n", fact.By.Role, fact.Key, fact.Value)
	}
	for key, err := range ledger.Keys(lead, "auth/", "", 50) { // names only
		fmt.Println(key, err)
	}
	// Output:
	// tester was first: auth/state is "tested"
	// auth/state <nil>
}

// Update reads, computes and writes until nobody came between.
func ExampleLedger_Update() {
	ctx := team.WithCaller(context.Background(), team.Caller{Session: "ses_lead", Role: "lead"})
	ledger, err := team.OpenLedger(ctx, new(memstore.Store), team.Scope{Project: "/home/me/app"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		_, err := ledger.Update(ctx, "reviews", func(old team.Fact) (json.RawMessage, error) {
			n := 0
			if old.Version != "" {
				if err := json.Unmarshal(old.Value, &n); err != nil {
					return nil, err
				}
			}
			return json.Marshal(n + 1)
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	fact, err := ledger.Get(ctx, "reviews")
	fmt.Println(string(fact.Value), err)
	// Output: 3 <nil>
}

// The goal list merges what says the same, and asks when a reference is not clear.
func ExampleLedger_AddGoals() {
	ctx := team.WithCaller(context.Background(), team.Caller{Session: "ses_lead", Role: "lead"})
	scope := team.Scope{Project: "/home/me/app", Session: "ses_lead"}
	ledger, err := team.OpenLedger(ctx, new(memstore.Store), scope, nil)
	if err != nil {
		log.Fatal(err)
	}
	added, err := ledger.AddGoals(ctx, "Design the API", "Test the API", "design the  API.")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("third text merged:", added[2].Merged, "into", added[2].ID)
	_, err = ledger.SetGoal(ctx, "api", team.GoalDone, "")
	fmt.Println(err)
	if _, err := ledger.SetGoal(ctx, "design", team.GoalDone, "see the board"); err != nil {
		log.Fatal(err)
	}
	goals, err := ledger.Goals(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range goals {
		fmt.Println(g)
	}
	// Output:
	// third text merged: true into 1
	// ledger.goals api: api fits 2 goals; name one by its number: #1 "Design the API", #2 "Test the API"
	// #1 [x] Design the API (see the board)
	// #2 [ ] Test the API
}

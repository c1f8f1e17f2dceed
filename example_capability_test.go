package team_test

import (
	"fmt"
	"log"

	"github.com/teamchan/team"
)

// A skill is listed and cannot be used: the account says at which gate it stops.
func ExampleCapability() {
	var account team.Capability
	skill := team.Offer{Kind: team.OfferSkill, Name: "deploy"}
	for gate, found := range map[team.Gate]team.CapabilityState{
		team.GateDiscovered: team.CapabilityOK,
		team.GateAuthorised: team.CapabilityOK,
		team.GateServed:     team.CapabilityOK,
	} {
		if err := account.Gate(skill, gate, found, team.BasisRuntime, ""); err != nil {
			log.Fatal(err)
		}
	}
	err := account.Gate(skill, team.GateRunnable, team.CapabilityMissing, team.BasisRuntime, "rg is not on the path")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(account.Explain(skill))

	// What the host sends is compared with what the library knows.
	account.Observe(team.Event{Type: "session.woken", Session: "ses_a1"})
	for _, d := range account.Drift() {
		fmt.Println(d.Kind, d.Name, d.What)
	}
	// Output:
	// skill deploy cannot be used: it is not runnable; discovered ok; authorised ok; served ok; runnable missing ("rg is not on the path")
	// event type session.woken is new
}

package team_test

import (
	"encoding/json"
	"fmt"

	"github.com/teamchan/team"
)

func ExampleEnvelopeMatcher() {
	var matcher team.EnvelopeMatcher
	children := map[team.SessionID]bool{"ses_tester": true}
	known := func(id team.SessionID) bool { return children[id] }

	// A host tells that a child in the background has ended.
	e, verdict := matcher.Match(team.EnvelopeInput{
		Text:     "<subagent sessionID=\"ses_tester\" state=\"completed\" description=\"say \"hi\"\">\nSTATUS: done\n</subagent>",
		Metadata: json.RawMessage(`{"source":"subagent","childID":"ses_tester","agent":"tester","state":"completed"}`),
		Known:    known,
	})
	fmt.Println(verdict, e.Session, e.State, e.Confidence)
	fmt.Printf("%s: %q\n", e.Description, e.Body)

	// A model quotes such a text. Nothing is settled, and the count says that it was seen.
	_, verdict = matcher.Match(team.EnvelopeInput{
		Text: "It said:\n> <subagent sessionID=\"ses_tester\" state=\"error\">\n> x\n> </subagent>", Known: known})
	fmt.Println(verdict, matcher.Stats().NearMisses)
	// Output:
	// matched ses_tester completed agreed
	// say "hi": "STATUS: done"
	// near miss map[subagent:1]
}

package team_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// A lead waits for two children, and says how each ending is known.
func ExampleJoin() {
	ctx := context.Background()
	join, err := team.OpenJoin(ctx, new(memstore.Store), "ses_lead", nil)
	if err != nil {
		log.Fatal(err)
	}

	// In the hook behind a tool call of the lead: the host says whom that started.
	for _, child := range []string{"ses_a1", "ses_b2"} {
		result := fmt.Sprintf(`{"content": "working (sessionID: %[1]s)", "metadata": {"sessionID": %[1]q, "status": "running"}}`, child)
		_, err := join.RegisterResult(ctx, team.ToolResult{Tool: "subagent", Session: "ses_lead", Call: "call_" + child, Result: json.RawMessage(result)})
		if err != nil {
			log.Fatal(err)
		}
	}

	// What the host's stream yields; a real program lets join.Follow do this.
	for _, e := range []team.Event{
		{Type: "session.execution.started", Session: "ses_a1", Seq: 1},
		{Type: "session.execution.failed", Session: "ses_a1", Seq: 2, Data: json.RawMessage(`{"error": {"type": "provider", "message": "no such model"}}`)},
		{Type: "session.execution.started", Session: "ses_foreign", Seq: 1},
	} {
		if _, err := join.Observe(ctx, e); err != nil {
			log.Fatal(err)
		}
	}
	// The other one is known by what the host told the lead.
	_, err = join.ObserveText(ctx, team.EnvelopeInput{
		Text:     "<subagent sessionID=\"ses_b2\" state=\"completed\" description=\"review\">\nno findings\n</subagent>",
		Metadata: json.RawMessage(`{"source": "subagent", "childID": "ses_b2", "agent": "reviewer", "state": "completed"}`),
	}, "msg_1")
	if err != nil {
		log.Fatal(err)
	}

	done, err := join.Wait(ctx, nil) // for all of them
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(done.End)
	for _, c := range done.Children {
		fmt.Println(c.Session, c.State, "by", c.By.Source, c.By.What, c.Reason)
	}
	// Output:
	// settled
	// ses_a1 failed by event session.execution.failed provider: no such model
	// ses_b2 completed by notice v2
}

package fakehost_test

import (
	"context"
	"fmt"
	"log"

	"github.com/teamchan/team/fakehost"
)

// A lead dispatches a subagent and answers with what that found.
func ExampleOpen() {
	ctx := context.Background()
	host, err := fakehost.Open(ctx, "", &fakehost.Options{Agents: []fakehost.Agent{
		{Name: "build", Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
			if _, err := t.Dispatch(ctx, "general", "count words", t.Text()); err != nil {
				return "", err
			}
			return "the child has counted", nil
		}},
		{Name: "general", Mode: "subagent", Script: func(_ context.Context, t *fakehost.Turn) (string, error) {
			return "two words", nil
		}},
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer host.Close()

	lead, err := host.Session.Create(ctx, fakehost.NewSession{Title: "lead"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := host.Session.Prompt(ctx, lead.ID, fakehost.Prompt{Text: "hello world"}); err != nil {
		log.Fatal(err)
	}
	if err := host.Session.Wait(ctx, lead.ID); err != nil {
		log.Fatal(err)
	}
	children, err := host.Session.Children(ctx, lead.ID)
	if err != nil {
		log.Fatal(err)
	}
	messages, err := host.Session.Messages(ctx, lead.ID, fakehost.MessagePage{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(children[0].Title, children[0].Agent, children[0].Outcome)
	for _, m := range messages {
		fmt.Printf("%s %q\n", m.Type, m.Text())
	}
	// Output:
	// count words general succeeded
	// user "hello world"
	// assistant ""
	// assistant "the child has counted"
	// idle ""
}

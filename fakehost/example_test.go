package fakehost_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

// A reporter is code that is to be tested: it needs a host's sessions, and not to know which host.
type reporter struct{ sessions team.Sessions }

func (r reporter) report(ctx context.Context, lead, text string) error {
	_, err := r.sessions.Deliver(ctx, team.SessionID(lead), team.Note{ID: "msg_report", Text: text, Wake: true})
	return err
}

// A test of your own code: let it work on a host's port, look into the host, and then let a call fail.
func ExampleHost_Sessions() {
	ctx := context.Background()
	down := false
	host := must(fakehost.Open(ctx, "", &fakehost.Options{Fault: func(_ context.Context, c fakehost.Call) error {
		if down && c.String() == "session.synthetic" {
			return errors.New("no route to host")
		}
		return nil
	}}))
	defer host.Close()
	lead := must(host.Session.Create(ctx, fakehost.NewSession{}))
	r := reporter{host.Sessions()}

	fmt.Println(r.report(ctx, lead.ID, "tests pass"), host.Session.Wait(ctx, lead.ID))
	for _, m := range must(host.Session.Messages(ctx, lead.ID, fakehost.MessagePage{})) {
		fmt.Printf("%s %q\n", m.Type, m.Text())
	}
	down = true
	fmt.Println(r.report(ctx, lead.ID, "tests fail"))
	// Output:
	// <nil> <nil>
	// synthetic "tests pass"
	// assistant "ok"
	// idle ""
	// no route to host
}

// A session is made, changed and copied.
func ExampleSessionDomain() {
	ctx := context.Background()
	host := must(fakehost.Open(ctx, "", nil))
	defer host.Close()
	s := must(host.Session.Create(ctx, fakehost.NewSession{Title: "draft"}))
	title := "final"
	if err := host.Session.Update(ctx, s.ID, fakehost.SessionChange{Title: &title}); err != nil {
		panic(err)
	}
	must(host.Session.Prompt(ctx, s.ID, fakehost.Prompt{Text: "hello"}))
	fmt.Println(host.Session.Wait(ctx, s.ID))
	fork := must(host.Session.Fork(ctx, s.ID, ""))
	fmt.Println(fork.Title, len(must(host.Session.Messages(ctx, fork.ID, fakehost.MessagePage{}))))
	// Output:
	// <nil>
	// final 3
}

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

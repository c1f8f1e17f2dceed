package opencode_test

import (
	"context"
	"fmt"
	"os"

	"github.com/teamchan/team"
	"github.com/teamchan/team/opencode"
)

// A lead's session on a running OpenCode gets the signals of its team as synthetic messages,
// and the program hears what happens there. Start the server with "opencode serve --port 4096".
func Example() {
	lead := func(ctx context.Context, signals *team.SignalChannel, project string) error {
		host, err := opencode.Dial(ctx, "http://127.0.0.1:4096", &opencode.Options{
			Directory: project, Password: os.Getenv("OPENCODE_SERVER_PASSWORD"),
		})
		if err != nil {
			return err
		}
		fmt.Println(host.Info().Generation, host.Info().Version)

		session, err := host.Create(ctx, opencode.NewSession{Title: "lead"})
		if err != nil {
			return err
		}
		if err := signals.Enrol(ctx, team.Member{Session: session.ID, Role: "lead"}); err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		relayed := make(chan error, 1)
		go func() { relayed <- signals.Relay(ctx, host, session.ID, &team.RelayOptions{Wake: true}) }()

		for event, err := range host.Follow(ctx) {
			switch {
			case err != nil:
				return err
			case event.Type == opencode.EventBack:
				// Read the sessions again: what happened in the gap never comes.
			case event.Type == "session.idle" && event.Session == session.ID:
				stop()
			}
		}
		return <-relayed
	}
	_ = lead
}

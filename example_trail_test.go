package team_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/teamchan/team"
)

func ExampleTrail() {
	tmp, err := os.MkdirTemp("", "trail")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	dir := filepath.Join(tmp, "trail") // a program takes team.TrailDir(workspace)
	ctx := context.Background()

	trail, err := team.OpenTrail(ctx, dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	// Channels are given trail.Record and call it themselves.
	ctx = team.WithCaller(ctx, team.Caller{Session: "ses_a1", Role: "architect"})
	trail.Record(ctx, team.TraceEvent{Op: "board.write", ID: "s/auth/01-architect-api.md", Outcome: "ok", Size: 9120, Round: 1})
	trail.Record(ctx, team.TraceEvent{Op: "inbox.send", ID: "sig_1", Target: "ses_lead", Outcome: "ok", Size: 310})
	trail.Record(ctx, team.TraceEvent{Op: "inbox.send", ID: "sig_2", Target: "ses_lead", Outcome: "refused", Reason: "limit reached"})
	if err := trail.Close(); err != nil {
		log.Fatal(err)
	}
	if n := trail.Stats().Lost; n > 0 {
		log.Fatalf("%d records are lost: %v", n, trail.Stats().LastError)
	}

	for line, err := range team.ReadTrail(ctx, dir) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %q %s %s\n", line.Seq, line.Event.ID, line.Event.Outcome, line.Event.Op)
	}
	// Output:
	// 1 ""  trail.begin
	// 2 "s/auth/01-architect-api.md" ok board.write
	// 3 "sig_1" ok inbox.send
	// 4 "sig_2" refused inbox.send
}

func ExampleVerifyTrail() {
	dir, err := os.MkdirTemp("", "trail")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	trail, err := team.OpenTrail(ctx, dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range []string{"sig_1", "sig_2", "sig_3"} {
		trail.Record(ctx, team.TraceEvent{Op: "inbox.send", ID: id, Outcome: "ok"})
	}
	trail.Close()
	report, err := team.VerifyTrail(ctx, dir)
	fmt.Println(report.Lines, "lines,", report.Err(), err)

	// Somebody takes the last line away.
	name := filepath.Join(dir, report.Last.File)
	b, err := os.ReadFile(name)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(name, b[:len(b)*3/4], 0o600); err != nil {
		log.Fatal(err)
	}
	report, err = team.VerifyTrail(ctx, dir)
	fmt.Println(report.Lines, "lines,", report.Err(), err)
	// Output:
	// 4 lines, <nil> <nil>
	// 3 lines, trail.verify trail-00000001.jsonl:4: changed: it is no line of a trail <nil>
}

func ExampleFollowTrail() {
	dir, err := os.MkdirTemp("", "trail")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	trail, err := team.OpenTrail(ctx, dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer trail.Close()
	for _, e := range []team.TraceEvent{
		{Op: "inbox.send", ID: "sig_1", Outcome: "ok"},
		{Op: "inbox.send", ID: "sig_2", Outcome: "ok"},
		{Op: "relay.offer", ID: "sig_1", HostID: "msg_7", Outcome: "ok"},
		{Op: "relay.deliver", HostID: "msg_7", Outcome: "ok"},
		{Op: "inbox.ack", ID: "sig_1", Outcome: "ok"},
		{Op: "inbox.send", ID: "sig_3", ReplyTo: "sig_1", Outcome: "ok"},
	} {
		trail.Record(ctx, e)
	}
	for line, err := range team.FollowTrail(ctx, dir, "sig_1") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q %q %s\n", line.Event.ID, line.Event.HostID, line.Event.Op)
	}
	// Output:
	// "sig_1" "" inbox.send
	// "sig_1" "msg_7" relay.offer
	// "" "msg_7" relay.deliver
	// "sig_1" "" inbox.ack
	// "sig_3" "" inbox.send
}

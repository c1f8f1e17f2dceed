package team_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/teamchan/team"
)

func exampleBoard() (*team.Board, func()) {
	dir, err := os.MkdirTemp("", "board")
	if err != nil {
		log.Fatal(err)
	}
	board, err := team.OpenBoard(context.Background(), dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	return board, func() { board.Close(); os.RemoveAll(dir) }
}

func ExampleBoard_Write() {
	board, done := exampleBoard()
	defer done()

	// The host says who is calling; a model cannot.
	ctx := team.WithCaller(context.Background(), team.Caller{Session: "ses_a1", Role: "architect"})
	draft := team.Draft{Session: "20261130-072811-k3f9qa", Task: "auth", Topic: "api design", Body: "# API\n\n…\n"}
	for range 2 {
		entry, err := board.Write(ctx, draft)
		if err != nil {
			log.Fatal(err)
		}
		name, _ := filepath.Rel(board.Dir(), entry.Path)
		fmt.Println(filepath.ToSlash(name), "round", entry.Round)
	}
	// Output:
	// 20261130-072811-k3f9qa/auth/01-architect-api-design~erouagttp688n1bg.md round 1
	// 20261130-072811-k3f9qa/auth/01-architect-api-design~erouagttp688n1bg-r2.md round 2
}

func ExampleBoard_Read() {
	board, done := exampleBoard()
	defer done()
	ctx := team.WithCaller(context.Background(), team.Caller{Session: "ses_t1", Role: "tester"})
	body := strings.Repeat("ok\n", 500) + "FAIL TestLogin\n" + strings.Repeat("ok\n", 500)
	entry, err := board.Write(ctx, team.Draft{Session: "s", Task: "auth", Topic: "report", Body: body})
	if err != nil {
		log.Fatal(err)
	}

	// The whole body is checked against its digest; only the lines come back.
	part, err := board.Read(ctx, entry.Path, team.Range{Line: 500, Lines: 3})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(part.Text)
	fmt.Println("line", part.Line, "of", strings.Count(body, "\n"))
	// Output:
	// ok
	// FAIL TestLogin
	// ok
	// line 500 of 1001
}

func ExampleBoard_Sweep() {
	board, done := exampleBoard()
	defer done()
	ctx := team.WithCaller(context.Background(), team.Caller{Role: "tester"})
	entry, err := board.Write(ctx, team.Draft{Session: "monday", Task: "auth", Topic: "report", Body: "all green\n"})
	if err != nil {
		log.Fatal(err)
	}
	old := time.Now().AddDate(0, 0, -6)
	os.Chtimes(entry.Path, old, old)
	os.WriteFile(filepath.Join(board.Dir(), "notes.txt"), []byte("mine"), 0o600)

	report, err := board.Sweep(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, item := range report.Items {
		fmt.Println(filepath.Base(item.Path), item.Action, item.Reason)
	}
	// Output:
	// monday remove idle
	// notes.txt keep foreign
}

package team_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

func ExampleOffload() {
	tmp, err := os.MkdirTemp("", "offload")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	ctx := context.Background()
	// A program takes team.OffloadDir(workspace), and a store that lives as long.
	offload, err := team.OpenOffload(ctx, filepath.Join(tmp, "offload"), new(memstore.Store), &team.OffloadOptions{
		PreviewTokens: 120, // rather more than usual
		Tools:         func(agent string) team.AgentTools { return team.AgentTools{Fetch: "tm_fetch"} },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer offload.Close()

	// A tool of OpenCode 1.18 answers with far too much. A program passes
	// offload.AfterTool to its host; this is what that does.
	var output strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&output, "2026-08-01 10:00:%02d INFO test %d passed\n", i%60, i)
	}
	output.WriteString("2026-08-01 10:02:00 ERROR test 5000 failed: want 3, got 4\n")
	raw, _ := json.Marshal(map[string]any{"title": "Runs the tests", "output": output.String(), "metadata": map[string]any{"exit": 1}})
	_, s, err := offload.ShortenResult(ctx, team.ToolResult{Tool: "bash", Agent: "build", Result: raw})
	if err != nil {
		log.Fatal(err)
	}
	for _, part := range []string{"2026-08-01", "got 4", "ERROR 1, INFO 5000", "tm_fetch " + string(s.Handle), s.Path} {
		if !strings.Contains(s.Text, part) {
			fmt.Println("no", part, "in", s.Text)
		}
	}
	fmt.Println(s.Size, "bytes became fewer than 1000:", len(s.Text) < 1000)

	// The model asks for more of it.
	part, err := offload.Fetch(ctx, s.Handle, team.FetchOptions{Grep: "failed"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(part.Text)
	// Output:
	// 208948 bytes became fewer than 1000: true
	// 5001: 2026-08-01 10:02:00 ERROR test 5000 failed: want 3, got 4
}

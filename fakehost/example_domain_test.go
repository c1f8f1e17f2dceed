package fakehost_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

// One example for each domain. must(v, err) returns v, or panics.

// run gives a new session of agent build one prompt and waits until it is idle.
func run(ctx context.Context, host *fakehost.Host, text string) *fakehost.Session {
	s := must(host.Session.Create(ctx, fakehost.NewSession{Agent: "build"}))
	must(host.Session.Prompt(ctx, s.ID, fakehost.Prompt{Text: text}))
	if err := host.Session.Wait(ctx, s.ID); err != nil {
		panic(err)
	}
	return must(host.Session.Get(ctx, s.ID))
}

// builder is a host of a profile whose agent build plays script.
func builder(ctx context.Context, p fakehost.Profile, script fakehost.Script) *fakehost.Host {
	return must(fakehost.Open(ctx, "", &fakehost.Options{Profile: p, Agents: []fakehost.Agent{{Name: "build", Mode: "primary", Script: script}}}))
}

// calling is a script that calls one tool and prints what it answered.
func calling(tool string, input any) fakehost.Script {
	return func(ctx context.Context, t *fakehost.Turn) (string, error) {
		r, err := t.Call(ctx, tool, input)
		fmt.Println(r.Text)
		return "done", err
	}
}

// Work waits in the inbox until somebody wakes the session.
func ExampleInboxDomain() {
	ctx := context.Background()
	host := must(fakehost.Open(ctx, "", nil))
	defer host.Close()
	s := must(host.Session.Create(ctx, fakehost.NewSession{}))
	must(host.Session.Prompt(ctx, s.ID, fakehost.Prompt{Text: "later", NoResume: true, Delivery: team.DeliveryQueue}))
	for _, item := range must(host.Inbox.List(ctx, s.ID)) {
		fmt.Println(item.Type, item.Delivery, item.Text())
	}
	// Output: user queue later
}

// The feed has what happens from the subscription on.
func ExampleEventDomain() {
	ctx := context.Background()
	host := must(fakehost.Open(ctx, "", nil))
	defer host.Close()
	events := must(host.Event.Subscribe(ctx))
	defer events.Close()
	must(host.Session.Create(ctx, fakehost.NewSession{}))
	fmt.Println(must(events.Next(ctx)).Type)
	fmt.Println(must(events.Next(ctx)).Type)
	// Output:
	// server.connected
	// session.created
}

// The log can be read again.
func ExampleLogDomain() {
	ctx := context.Background()
	host := must(fakehost.Open(ctx, "", nil))
	defer host.Close()
	s := run(ctx, host, "hello")
	for e, err := range host.Log.Read(ctx, s.ID, 0, false) {
		if err == nil && e.Type == "session.execution.succeeded" {
			fmt.Println(e.Type)
		}
	}
	// Output: session.execution.succeeded
}

// The storage of plugins is one for all projects and windows.
func ExampleStorageDomain() {
	ctx := context.Background()
	host := must(fakehost.Open(ctx, "", nil))
	defer host.Close()
	if err := host.KV.Set(ctx, "goal/1", json.RawMessage(`{"done":false}`)); err != nil {
		panic(err)
	}
	fmt.Println(string(must(host.KV.Get(ctx, "goal/1"))))
	// Output: {"done":false}
}

// A permission is asked for, and a person gives it once.
func ExamplePermissionDomain() {
	ctx := context.Background()
	host := must(fakehost.Open(ctx, "", nil))
	defer host.Close()
	s := must(host.Session.Create(ctx, fakehost.NewSession{}))
	ask, effect, err := host.Permission.Request(ctx, fakehost.Ask{Session: s.ID, Action: "external_directory", Resources: []string{"/etc/*"}})
	fmt.Println(effect, err)
	fmt.Println(host.Permission.Reply(ctx, fakehost.Reply{Request: ask.ID, Reply: "once"}))
	// Output:
	// ask <nil>
	// <nil>
}

// A hook behind a tool changes what the model sees.
func ExampleToolDomain() {
	ctx := context.Background()
	host := builder(ctx, fakehost.V2_0, calling("say", map[string]any{}))
	defer host.Close()
	must(host.Tool.Add(fakehost.Tool{Name: "say", Run: func(context.Context, *fakehost.ToolCall) (fakehost.ToolOutput, error) {
		return fakehost.ToolOutput{Text: "a long text"}, nil
	}}))
	host.Tool.After(func(_ context.Context, a *fakehost.AfterTool) error {
		a.Result = json.RawMessage(`{"content":"short"}`)
		return nil
	})
	run(ctx, host, "go")
	// Output: short
}

// The agents of OpenCode 1.18.
func ExampleAgentDomain() {
	ctx := context.Background()
	host := must(fakehost.Open(ctx, "", &fakehost.Options{Profile: fakehost.V1_18}))
	defer host.Close()
	for _, a := range must(host.Agent.List(ctx)) {
		if !a.Hidden {
			fmt.Println(a.Name, a.Mode)
		}
	}
	// Output:
	// build primary
	// explore subagent
	// general subagent
	// plan primary
}

// The host keeps any list of things to do; CheckTodos says how it breaks the rules of use.
func ExampleTodoDomain() {
	ctx := context.Background()
	todos := []fakehost.Todo{{Content: "read", Status: "in_progress", Priority: "high"},
		{Content: "write", Status: "in_progress", Priority: "high"}, {Content: "test", Status: "pending", Priority: "low"}}
	host := builder(ctx, fakehost.V1_18, func(ctx context.Context, t *fakehost.Turn) (string, error) {
		_, err := t.Call(ctx, "todowrite", map[string]any{"todos": todos})
		return "planned", err
	})
	defer host.Close()
	s := run(ctx, host, "go")
	list := must(host.Todo.Get(ctx, s.ID))
	fmt.Println(len(list))
	fmt.Println(fakehost.CheckTodos(list) != nil)
	// Output:
	// 3
	// true
}

// An agent asks, and the user answers in his own words.
func ExampleQuestionDomain() {
	ctx := context.Background()
	host := builder(ctx, fakehost.V1_18, calling("question", map[string]any{"questions": []fakehost.Question{
		{Question: "Which one?", Header: "DB", Options: []fakehost.Option{{Label: "SQLite", Description: "a file"}}}}}))
	defer host.Close()
	events := must(host.Event.Subscribe(ctx))
	defer events.Close()
	go func() {
		for e := must(events.Next(ctx)); e.Type != "question.asked"; e = must(events.Next(ctx)) {
		}
		q := must(host.Question.List(ctx, ""))[0]
		if err := host.Question.Reply(ctx, q.ID, [][]string{{"none of them"}}); err != nil {
			panic(err)
		}
	}()
	run(ctx, host, "go")
	// Output: The user's answers: "Which one?"="none of them". Go on with them.
}

// A form is opened, and answered by its keys.
func ExampleFormDomain() {
	ctx := context.Background()
	host := must(fakehost.Open(ctx, "", nil))
	defer host.Close()
	s := must(host.Session.Create(ctx, fakehost.NewSession{}))
	form := must(host.Form.Create(ctx, fakehost.Form{Session: s.ID, Title: "Release", Fields: []fakehost.Field{
		{Key: "sure", Type: "boolean", Required: true}}}))
	fmt.Println(host.Form.Reply(ctx, form.ID, map[string]any{"sure": "yes"}) != nil)
	fmt.Println(host.Form.Reply(ctx, form.ID, map[string]any{"sure": true}))
	// Output:
	// true
	// <nil>
}

// An agent loads a skill.
func ExampleSkillDomain() {
	ctx := context.Background()
	host := builder(ctx, fakehost.V2_0, calling("skill", map[string]any{"id": "review"}))
	defer host.Close()
	must(host.Skill.Add(fakehost.Skill{Name: "review", Text: "Look at the tests first."}))
	run(ctx, host, "go")
	// Output:
	// <skill_content name="review">
	// # Skill: review
	//
	// Look at the tests first.
	//
	// <skill_files>
	// </skill_files>
	// </skill_content>
}

// A command of the user's own needs no permission for its subagent.
func ExampleCommandDomain() {
	ctx := context.Background()
	host := builder(ctx, fakehost.V1_18, nil)
	defer host.Close()
	must(host.Command.Add(fakehost.Command{Name: "count", Template: "count the words of $ARGUMENTS", Agent: "general", Subtask: true}))
	s := must(host.Session.Create(ctx, fakehost.NewSession{Permissions: []fakehost.Rule{{Action: "task", Resource: "*", Effect: team.Deny}}}))
	must(host.Session.Command(ctx, s.ID, "count", "a b c"))
	fmt.Println(host.Session.Wait(ctx, s.ID))
	child := must(host.Session.Children(ctx, s.ID))[0]
	fmt.Println(must(host.Session.Messages(ctx, child.ID, fakehost.MessagePage{}))[0].Text())
	// Output:
	// <nil>
	// count the words of a b c
}

// An MCP server's tool is one of the host's.
func ExampleMCPDomain() {
	ctx := context.Background()
	host := builder(ctx, fakehost.V1_18, calling("team_board_read", map[string]any{"name": "plan"}))
	defer host.Close()
	err := host.MCP.Add(ctx, fakehost.MCPServer{Name: "team", Capabilities: []string{"tools"},
		List: func(context.Context, string, string) (fakehost.MCPPage, error) {
			return fakehost.MCPPage{Items: []json.RawMessage{json.RawMessage(`{"name":"board_read"}`)}}, nil
		},
		Call: func(_ context.Context, c fakehost.MCPCall) (json.RawMessage, error) {
			return json.RawMessage(`{"content":[{"type":"text","text":"step one"}]}`), nil
		}})
	fmt.Println(err)
	run(ctx, host, "go")
	// Output:
	// <nil>
	// step one
}

// A language server is chosen by the file's name, and its root by a marker.
func ExampleLSPDomain() {
	ctx := context.Background()
	dir := must(os.MkdirTemp("", "example"))
	defer os.RemoveAll(dir)
	if err := os.MkdirAll(filepath.Join(dir, "api", "cmd"), 0o700); err != nil {
		panic(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "api", "go.mod"), nil, 0o600); err != nil {
		panic(err)
	}
	host := must(fakehost.Open(ctx, "", &fakehost.Options{Directory: dir,
		LanguageServers: []fakehost.LanguageServer{{ID: "gopls", Extensions: []string{".go"}, Root: []string{"go.mod"}}}}))
	defer host.Close()
	fmt.Println(must(host.LSP.Open(ctx, "api/cmd/main.go")))
	// Output: [{gopls gopls api connected}]
}

// The diff of a session is what its tools have changed.
func ExampleVCSDomain() {
	ctx := context.Background()
	dir := must(os.MkdirTemp("", "example"))
	defer os.RemoveAll(dir)
	host := must(fakehost.Open(ctx, "", &fakehost.Options{Directory: dir, Agents: []fakehost.Agent{{Name: "build",
		Script: calling("write", map[string]any{"path": "a.txt", "content": "one\ntwo\n"})}}}))
	defer host.Close()
	s := run(ctx, host, "go")
	fmt.Println(must(host.Session.Diff(ctx, s.ID)))
	// Output:
	// wrote 8 bytes
	// [{a.txt 2 0 added}]
}

// A worktree is made by a strategy of the plugin's own.
func ExampleWorktreeDomain() {
	ctx := context.Background()
	host := must(fakehost.Open(ctx, "", nil))
	defer host.Close()
	err := host.Worktree.Add(fakehost.WorktreeStrategy{ID: "copy",
		Create: func(_ context.Context, source, directory string) error { return nil },
		Remove: func(context.Context, string, bool) error { return nil }})
	fmt.Println(err)
	must(host.Worktree.Create(ctx, "copy", "/srv/second"))
	fmt.Println(must(host.Worktree.List(ctx)))
	// Output:
	// <nil>
	// [{/srv/second copy}]
}

func ExampleReferenceDomain() {
	ctx := context.Background()
	host := must(fakehost.Open(ctx, "", nil))
	defer host.Close()
	must(host.Reference.Add(fakehost.Reference{Name: "docs", Path: "/srv/docs"}))
	fmt.Println(string(must(json.Marshal(must(host.Reference.List(ctx))))))
	// Output: [{"name":"docs","path":"/srv/docs","source":{"path":"/srv/docs","type":"local"}}]
}

func ExampleIntegrationDomain() {
	ctx := context.Background()
	host := must(fakehost.Open(ctx, "", nil))
	defer host.Close()
	err := host.Integration.Add(fakehost.Integration{ID: "git", Name: "Git", Methods: []fakehost.IntegrationMethod{{Type: "key"}}})
	fmt.Println(err)
	c := must(host.Integration.ConnectKey(ctx, "git", "the key", "mine"))
	fmt.Println(must(host.Integration.Resolve(ctx, c.ID)))
	// Output:
	// <nil>
	// the key
}

func ExampleTerminalDomain() {
	ctx := context.Background()
	host := must(fakehost.Open(ctx, "", nil))
	defer host.Close()
	fmt.Println(host.Terminal.Show(fakehost.Terminal{ID: "pty_1", Text: "$ make\nok"}))
	fmt.Println(must(host.Terminal.Read(ctx, "pty_1")).Text)
	// Output:
	// <nil>
	// $ make
	// ok
}

func ExampleRPCDomain() {
	ctx := context.Background()
	host := must(fakehost.Open(ctx, "", nil))
	defer host.Close()
	must(host.RPC.Register("team.status", func(context.Context, json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(`"idle"`), nil
	}))
	fmt.Println(string(must(host.RPC.Call(ctx, "team.status", nil))))
	// Output: "idle"
}

// The user runs a command beside the turns.
func ExampleShellDomain() {
	ctx := context.Background()
	dir := must(os.MkdirTemp("", "example"))
	defer os.RemoveAll(dir)
	host := must(fakehost.Open(ctx, "", &fakehost.Options{Directory: dir}))
	defer host.Close()
	s := must(host.Session.Create(ctx, fakehost.NewSession{}))
	info, output, err := host.Shell.Run(ctx, s.ID, "echo hello")
	fmt.Println(info.Status, *info.Exit, err)
	fmt.Print(output)
	// Output:
	// exited 0 <nil>
	// hello
}

// A hook changes what the user sends.
func ExampleSessionDomain_HookPrompt() {
	ctx := context.Background()
	host := builder(ctx, fakehost.V2_0, func(_ context.Context, t *fakehost.Turn) (string, error) {
		fmt.Println(t.Text())
		return "", nil
	})
	defer host.Close()
	host.Session.HookPrompt(func(_ context.Context, p *fakehost.PromptHook) error {
		p.Text += ", please"
		return nil
	})
	run(ctx, host, "count words")
	// Output: count words, please
}

// Agent plan hands over to agent build.
func ExampleHost_planExit() {
	ctx := context.Background()
	host := must(fakehost.Open(ctx, "", &fakehost.Options{Profile: fakehost.V1_18, Agents: []fakehost.Agent{
		{Name: "plan", Mode: "primary", Script: func(ctx context.Context, t *fakehost.Turn) (string, error) {
			_, err := t.Call(ctx, "plan_exit", map[string]any{})
			return "", err
		}},
		{Name: "build", Mode: "primary", Script: func(_ context.Context, t *fakehost.Turn) (string, error) { return "built", nil }},
	}}))
	defer host.Close()
	s := must(host.Session.Create(ctx, fakehost.NewSession{Agent: "plan"}))
	events := must(host.Event.Subscribe(ctx))
	defer events.Close()
	must(host.Session.Prompt(ctx, s.ID, fakehost.Prompt{Text: "plan it", Agent: "plan"}))
	for e := must(events.Next(ctx)); e.Type != "question.asked"; e = must(events.Next(ctx)) {
	}
	q := must(host.Question.List(ctx, s.ID))[0]
	fmt.Println(host.Question.Reply(ctx, q.ID, [][]string{{"Yes"}}))
	fmt.Println(host.Session.Wait(ctx, s.ID))
	fmt.Println(must(host.Session.Get(ctx, s.ID)).Agent)
	// Output:
	// <nil>
	// <nil>
	// build
}

package fakehost

// A Profile describes what a version of the host has and which shapes it uses. Copy
// V1_18 or V2_0 and change a field for a host in between.
type Profile struct {
	Name    string
	Version string // what sessions carry

	// Generation is 1 or 2: the shapes of sessions, messages, events and rules, and
	// how a prompt gets to the agent.
	Generation int

	// What exists. What does not is a nil domain of the Host and a nil port.
	Inbox   bool // list, cancel, change delivery
	Log     bool // the durable log of events
	Storage bool // key-value storage of plugins
	Todo    bool // the list of things to do, with its tool
	Plugin  bool // what else the plugin context of 2.0 has: worktree, reference, integration, terminal, rpc
	Form    bool // forms, and a tool question that opens one

	// Question says whether the tool question is registered. OpenCode 1.18 wants
	// OPENCODE_CLIENT to be app, cli or desktop, or OPENCODE_ENABLE_QUESTION_TOOL, which was
	// set.
	Question bool

	// PlanMode says whether the tool plan_exit is registered, which asks by Question. OpenCode
	// 1.18 wants OPENCODE_EXPERIMENTAL_PLAN_MODE and OPENCODE_CLIENT=cli for it.
	PlanMode bool

	// EvaluateHook says whether Permission.Hook has any effect. OpenCode 1.18 declares
	// permission.ask, but it did not fire (1.18.33).
	EvaluateHook bool

	// Feed is how many events a subscriber may be behind before its stream is cut;
	// zero is no limit.
	Feed int

	Subagent string // the tool that dispatches: "task", "subagent"
	Shell    string // the tool that runs commands: "bash", "shell"

	// Background says whether a subagent can be dispatched in the background. OpenCode 1.18
	// wants OPENCODE_EXPERIMENTAL_BACKGROUND_SUBAGENTS for it, which was set.
	Background bool

	// TruncateBeforeHook says whether native tools are truncated before the hook
	// execute.after sees them. What an MCP server answered never is.
	TruncateBeforeHook bool
}

// V1_18 is OpenCode 1.18.33, as captured.
var V1_18 = Profile{
	Name: "v1.18", Version: "1.18.33", Generation: 1,
	Todo: true, Question: true, PlanMode: true,
	Subagent: "task", Shell: "bash", Background: true, TruncateBeforeHook: true,
}

// V2_0 is OpenCode 2.0.26, as read in its source and in recordings of 2.0.24.
var V2_0 = Profile{
	Name: "v2.0", Version: "2.0.26", Generation: 2,
	Inbox: true, Log: true, Storage: true, Form: true, Plugin: true, EvaluateHook: true, Feed: 4096,
	Subagent: "subagent", Shell: "shell", Background: true,
}

func (p Profile) v1() bool { return p.Generation == 1 }

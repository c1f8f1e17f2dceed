package fakehost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/teamchan/team"
)

// A Host is one process of a host on one database. Two Hosts on one file are two windows:
// they share what is stored, and nothing that is only in memory, which is the feed of
// events, the permissions asked for and the executions under way. Close a Host, or its
// agents go on. A Host is safe for use by several goroutines.
//
// The fields are its domains. One that the profile does not have is nil.
type Host struct {
	Session    *SessionDomain
	Inbox      *InboxDomain // generation 2
	Event      *EventDomain
	Log        *LogDomain     // generation 2
	KV         *StorageDomain // generation 2
	Permission *PermissionDomain
	Todo       *TodoDomain     // generation 1
	Question   *QuestionDomain // generation 1
	Form       *FormDomain     // generation 2
	Skill      *SkillDomain
	Command    *CommandDomain
	MCP        *MCPDomain
	LSP        *LSPDomain // with Options.Directory
	VCS        *VCSDomain // with Options.Directory

	// Generation 2.
	Shell       *ShellDomain // with Options.Directory
	Worktree    *WorktreeDomain
	Reference   *ReferenceDomain
	Integration *IntegrationDomain
	Terminal    *TerminalDomain
	RPC         *RPCDomain

	Tool  *ToolDomain
	Agent *AgentDomain

	profile Profile
	opts    Options
	ids     idMaker
	opened  int64        // ms
	offset  atomic.Int64 // what the host's clock is ahead of time.Now, in ns
	closed  func() error
	work    sync.WaitGroup // executions and background jobs
	life    context.Context
	endLife context.CancelCauseFunc

	faultMu sync.Mutex
	faults  map[Fault]bool

	noteMu sync.Mutex // one note at a time; see port.go

	mu      sync.Mutex // guards the fields below, db and the feed's order
	db      *database
	dead    bool // nothing is written any more
	closing bool // no execution begins any more
	runs    map[string]*run
	jobs    map[string]*job
	status  map[string]any // generation 1: what each busy session was last said to do

	dirMu   sync.Mutex // guards dataDir
	dataDir string
	ownDir  bool
}

// Options say what kind of host it is. Nil is a V2_0 host in memory with the agents build,
// plan, general and explore, who answer "ok", and without files.
type Options struct {
	// Profile is which host; the zero value is V2_0.
	Profile Profile

	// Agents are added to the host's own, or replace those of the same name.
	Agents []Agent

	// Tools are added to the host's own, or replace those of the same name.
	Tools []Tool

	// Directory is the workspace that native tools work in, and the location of
	// sessions. It must exist. Without one there are no native tools.
	Directory string

	// DataDir is where the full texts of truncated results go, in tool-output. Empty is
	// a temporary folder that Close removes.
	DataDir string

	// Start is what the host's clock shows when it is opened; zero is time.Now.
	Start time.Time

	// Model is what sessions run on that name none; zero is {ID: "m1", Provider: "fake"}.
	Model Model

	// Depth is how deep subagents may nest; zero is the host's default, 1.
	Depth int

	// PrimaryTools are denied to every subagent (generation 1: experimental.primary_tools).
	PrimaryTools []string

	// Plugin is the id of the plugin whose storage KV is; empty is "team".
	Plugin string

	// Username and Password are what the Handler asks its clients for, as OPENCODE_SERVER_USERNAME
	// and OPENCODE_SERVER_PASSWORD. An empty name is "opencode"; without a password
	// it asks for nothing.
	Username, Password string

	// Commands are what Session.Command knows.
	Commands []Command

	// Skills are what agents may load.
	Skills []Skill

	// LanguageServers are what LSP starts for files.
	LanguageServers []LanguageServer

	// Generate answers Session.Generate; nil means that the host cannot.
	Generate func(ctx context.Context, prompt string) (string, error)

	// Recover goes on with the executions whose process ended under them, as the real
	// host does when it starts. Leave it off in a second window.
	Recover bool

	// Fault, if set, is asked before every call: what it returns is what the call
	// returns, and it may wait. It is also asked before an event goes to the feed
	// ("event.publish", see ErrDrop; there it must not wait) and a tool runs
	// ("tool.execute"). It must not call the host.
	Fault func(context.Context, Call) error

	// Faults are switched on from the beginning.
	Faults []Fault
}

// A Model names a language model.
type Model struct {
	ID       string `json:"id"`
	Provider string `json:"providerID"`
	Variant  string `json:"variant,omitempty"`
}

// Open opens the host on the database file at path and makes it if it is not there. An
// empty path keeps the database in memory. Of two Hosts on one file both must have a
// profile of the same generation.
func Open(ctx context.Context, path string, opts *Options) (*Host, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h := &Host{faults: make(map[Fault]bool), runs: make(map[string]*run), jobs: make(map[string]*job),
		status: make(map[string]any)}
	if opts != nil {
		h.opts = *opts
	}
	if err := h.defaults(); err != nil {
		return nil, err
	}
	h.Inject(h.opts.Faults...)
	if !h.opts.Start.IsZero() {
		h.offset.Store(int64(time.Until(h.opts.Start)))
	}
	h.opened = h.now().UnixMilli()
	db, err := openDatabase(path)
	if err != nil {
		return nil, err
	}
	h.db = db
	h.life, h.endLife = context.WithCancelCause(context.Background())
	h.closed = sync.OnceValue(h.shut)
	if err := h.domains(); err != nil {
		h.endLife(err)
		return nil, errors.Join(err, db.close())
	}
	if h.opts.Recover {
		if err := h.Session.Recover(ctx); err != nil {
			return nil, errors.Join(err, h.Close())
		}
	}
	return h, nil
}

func (h *Host) defaults() error {
	if h.opts.Profile.Generation == 0 {
		h.opts.Profile = V2_0
	}
	h.profile = h.opts.Profile
	if h.profile.Generation != 1 && h.profile.Generation != 2 {
		return invalid("profile", "has no generation 1 or 2", "start from V1_18 or V2_0")
	}
	if h.opts.Model == (Model{}) {
		h.opts.Model = Model{ID: "m1", Provider: "fake"}
	}
	if h.opts.Depth == 0 {
		h.opts.Depth = 1
	}
	if h.opts.Username == "" {
		h.opts.Username = "opencode"
	}
	if h.opts.Plugin == "" {
		h.opts.Plugin = "team"
	}
	if h.opts.Directory != "" {
		dir, err := filepath.Abs(h.opts.Directory)
		if err != nil {
			return fmt.Errorf("the host's workspace: %w", err)
		}
		if info, err := os.Stat(dir); err != nil {
			return fmt.Errorf("the host's workspace: %w", err)
		} else if !info.IsDir() {
			return invalid("workspace", "is not a folder", "name the folder that agents work in")
		}
		h.opts.Directory = dir
	}
	h.dataDir = h.opts.DataDir
	return nil
}

// domains makes what the profile has. A new domain gets its line here.
func (h *Host) domains() error {
	p := h.profile
	h.Event = &EventDomain{h: h}
	h.Session = &SessionDomain{h: h}
	h.Permission = &PermissionDomain{h: h}
	h.Agent = newAgents(h)
	h.Tool = &ToolDomain{h: h, list: namedList[Tool]{name: func(t Tool) string { return t.Name }}}
	h.MCP = &MCPDomain{h: h}
	h.Skill = &SkillDomain{h: h, list: namedList[Skill]{name: func(s Skill) string { return s.ID }}}
	h.Command = &CommandDomain{h: h, list: namedList[Command]{name: func(c Command) string { return c.Name }}}
	if p.Inbox {
		h.Inbox = &InboxDomain{h: h}
	}
	if p.Log {
		h.Log = &LogDomain{h: h}
	}
	if p.Storage {
		h.KV = newStorage(h)
	}
	if p.Todo {
		h.Todo = &TodoDomain{h}
	}
	if p.Question {
		h.Question = &QuestionDomain{h: h}
	}
	if h.opts.Directory != "" {
		h.LSP = &LSPDomain{h: h, started: make(map[LanguageClient]bool)}
		h.VCS = &VCSDomain{h: h, changes: make(map[changedFile]original)}
	}
	if p.Plugin {
		if h.opts.Directory != "" {
			h.Shell = &ShellDomain{h: h}
		}
		h.Worktree = &WorktreeDomain{h: h, strategies: make(map[string]WorktreeStrategy)}
		h.Reference = &ReferenceDomain{h: h, list: namedList[Reference]{name: func(r Reference) string { return r.Name }}}
		h.Integration = &IntegrationDomain{h: h, keys: make(map[string]string)}
		h.Terminal = &TerminalDomain{h: h, list: make(map[string]Terminal)}
		h.RPC = &RPCDomain{h: h, funcs: make(map[string]func(context.Context, json.RawMessage) (json.RawMessage, error))}
	}
	if p.Form {
		h.Form = &FormDomain{h: h}
		h.Form.pending.done = make(map[string]bool)
	}
	for _, a := range h.opts.Agents {
		if err := h.Agent.Add(a); err != nil {
			return err
		}
	}
	for _, c := range h.opts.Commands {
		if _, err := h.Command.Add(c); err != nil {
			return err
		}
	}
	for _, s := range h.opts.Skills {
		if _, err := h.Skill.Add(s); err != nil {
			return err
		}
	}
	for _, tool := range append(h.nativeTools(), h.opts.Tools...) {
		if _, err := h.Tool.Add(tool); err != nil {
			return err
		}
	}
	return nil
}

// Profile returns what this host is.
func (h *Host) Profile() Profile { return h.profile }

// Directory returns the workspace, or "/workspace" for a host without files.
func (h *Host) Directory() string {
	if h.opts.Directory == "" {
		return "/workspace"
	}
	return h.opts.Directory
}

// Now is what the host's clock shows.
func (h *Host) Now() time.Time { return h.now() }

func (h *Host) now() time.Time { return time.Now().Add(time.Duration(h.offset.Load())) }

// JumpClock sets the host's clock d ahead, or back.
func (h *Host) JumpClock(d time.Duration) { h.offset.Add(int64(d)) }

// Close ends the host as a shutdown does: executions are interrupted with reason
// "shutdown" and keep their claim, pending permissions are gone, streams end. It waits
// for the agents, so an agent must heed its context.
func (h *Host) Close() error { return h.closed() }

// Kill ends the host as a crash does: from now on nothing is written, so what was under
// way has begun and never ends. It waits for the agents like Close.
func (h *Host) Kill() {
	h.mu.Lock()
	h.dead = true
	h.mu.Unlock()
	_ = h.closed()
}

func (h *Host) shut() error {
	h.mu.Lock()
	h.closing = true
	for _, r := range h.runs {
		r.cancel(errShutdown)
	}
	h.mu.Unlock()
	h.endLife(errShutdown)
	h.Permission.drop()
	if h.Question != nil {
		h.Question.pending.drop()
	}
	if h.Form != nil {
		h.Form.pending.drop()
	}
	h.work.Wait()

	h.mu.Lock()
	h.dead = true
	err := h.db.close()
	h.mu.Unlock()
	h.Event.end(team.ErrClosed)
	h.dirMu.Lock()
	defer h.dirMu.Unlock()
	if h.ownDir {
		err = errors.Join(err, os.RemoveAll(h.dataDir))
	}
	return err
}

// outputDir returns the folder for full texts of truncated results.
func (h *Host) outputDir() (string, error) {
	h.dirMu.Lock()
	defer h.dirMu.Unlock()
	if h.dataDir == "" {
		dir, err := os.MkdirTemp("", "fakehost-")
		if err != nil {
			return "", err
		}
		h.dataDir, h.ownDir = dir, true
	}
	dir := filepath.Join(h.dataDir, "tool-output")
	return dir, os.MkdirAll(dir, 0o700)
}

// A NotFoundError says what is not there. It is a team.ErrNotFound.
type NotFoundError struct {
	What string // "session", "message", "inbox item", "agent", "permission", "command", "tool", …
	ID   string
}

func (e *NotFoundError) Error() string { return fmt.Sprintf("no %s %q on this host", e.What, e.ID) }

// Is reports whether target is team.ErrNotFound.
func (e *NotFoundError) Is(target error) bool { return target == team.ErrNotFound }

// A ConflictError says what stands in the way. It is a team.ErrConflict.
type ConflictError struct {
	Resource string // the id in question
	Why      string
}

func (e *ConflictError) Error() string { return e.Resource + ": " + e.Why }

// Is reports whether target is team.ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == team.ErrConflict }

func invalid(what, why, advice string) error {
	return &team.InvalidError{What: what, Why: why, Offset: -1, Advice: advice}
}

// checkID refuses an id that does not start as the host's ids do.
func checkID(what, id, prefix string) error {
	if !strings.HasPrefix(id, prefix) {
		return invalid(what+" id", fmt.Sprintf("is %q", id), "it must start with "+prefix)
	}
	return nil
}

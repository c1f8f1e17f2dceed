package livetest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/teamchan/team"
	"github.com/teamchan/team/internal/scriptedmodel"
	"github.com/teamchan/team/opencode"
)

const password = "of the live tests"

// live is the server that all tests share.
var live struct {
	url   string
	model *scriptedmodel.Model
	dir   string // the project's folder
	fault error  // why there is none, though one was asked for
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	program := os.Getenv("TEAM_OPENCODE")
	if program == "" {
		return m.Run() // each test says why it is skipped
	}
	live.model = &scriptedmodel.Model{Plain: relayed}
	model := httptest.NewServer(live.model)
	defer model.Close()
	home, err := os.MkdirTemp("", "livetest-")
	if err != nil {
		live.fault = err
		return m.Run()
	}
	defer os.RemoveAll(home)
	stop, err := start(program, home, model.URL)
	if stop != nil {
		defer stop()
	}
	if err == nil {
		err = warmUp()
	}
	live.fault = err
	return m.Run()
}

// warmUp makes the server load what it loads with its first message, which takes it many
// seconds on a busy machine, so that no test has to allow for that.
func warmUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	h, err := opencode.Dial(ctx, live.url, &opencode.Options{Password: password, Directory: live.dir, Timeout: 2 * time.Minute})
	if err != nil {
		return err
	}
	s, err := h.Create(ctx, opencode.NewSession{Title: "warm up"})
	if err != nil {
		return err
	}
	_, err = h.Prompt(ctx, s.ID, opencode.Prompt{Text: "warm up", Wait: true})
	return err
}

// start runs a server and waits until it answers.
func start(program, home, model string) (stop func(), err error) {
	live.dir = filepath.Join(home, "project")
	config := map[string]any{
		"model": "scripted/m1", "small_model": "scripted/m1", "share": "disabled", "autoupdate": false,
		// Subagents whose rules name what other children are denied. Their model does not exist: what is made for
		// them ends at once.
		"agent": map[string]any{
			"plain":  subagent(map[string]any{}),
			"keeper": subagent(map[string]any{"todowrite": "allow", "task": map[string]any{"*": "deny"}}),
			"lister": subagent(map[string]any{"todowrite": "ask"}),
			"caller": subagent(map[string]any{"task": "allow", "*": "deny"}),
		},
		"provider": map[string]any{"scripted": map[string]any{
			"npm": "@ai-sdk/openai-compatible", "name": "Scripted",
			"options": map[string]any{"baseURL": model + "/v1", "apiKey": "none"},
			"models":  map[string]any{"m1": map[string]any{"name": "M1", "tool_call": true, "limit": map[string]int{"context": 400_000, "output": 32_000}}},
		}},
	}
	raw, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	env := append(os.Environ(), "HOME="+home, "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1",
		"OPENCODE_EXPERIMENTAL_BACKGROUND_SUBAGENTS=true", "OPENCODE_ENABLE_QUESTION_TOOL=1", "OPENCODE_SERVER_PASSWORD="+password)
	for _, kind := range []string{"CONFIG", "DATA", "STATE", "CACHE"} {
		dir := filepath.Join(home, strings.ToLower(kind))
		env = append(env, "XDG_"+kind+"_HOME="+dir)
		if err := os.MkdirAll(filepath.Join(dir, "opencode"), 0o700); err != nil {
			return nil, err
		}
	}
	err = errors.Join(os.Mkdir(live.dir, 0o700), os.WriteFile(filepath.Join(home, "config", "opencode", "opencode.json"), raw, 0o600))
	if err != nil {
		return nil, err
	}
	// A port that was free a moment ago: the program's own choice begins with 4096.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()

	cmd := exec.Command(program, "serve", "--hostname", "127.0.0.1", "--port", fmt.Sprint(port))
	cmd.Dir, cmd.Env = live.dir, env
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = io.Discard
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	ready := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if _, url, ok := strings.Cut(lines.Text(), "listening on "); ok {
				ready <- strings.TrimSpace(url)
			}
		}
		close(ready)
	}()
	select {
	case url, ok := <-ready:
		if !ok {
			return stop, errors.New("the server ended before it listened")
		}
		live.url = url
	case <-time.After(3 * time.Minute): // it takes seconds, on a machine that has time
		return stop, errors.New("the server does not listen after three minutes")
	}
	return stop, nil
}

func subagent(permission map[string]any) map[string]any {
	return map[string]any{"mode": "subagent", "description": "ends at once", "model": "scripted/none", "permission": permission}
}

// dial returns the adapter for the server, or for a proxy before it.
func dial(tb testing.TB, url string) *opencode.Host {
	tb.Helper()
	need(tb)
	if url == "" {
		url = live.url
	}
	h, err := opencode.Dial(tb.Context(), url, &opencode.Options{Password: password, Directory: live.dir, Timeout: time.Minute})
	require.NoError(tb, err)
	return h
}

func need(tb testing.TB) {
	tb.Helper()
	if os.Getenv("TEAM_OPENCODE") == "" {
		tb.Skip("TEAM_OPENCODE is not set: it is the path of the opencode program to test against")
	}
	require.NoError(tb, live.fault, "OpenCode could not be started")
}

// within bounds what a test waits for.
func within(tb testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(tb.Context(), d)
	tb.Cleanup(cancel)
	return ctx
}

// session makes a session with a title, since without one the server asks the model for it.
func session(tb testing.TB, h *opencode.Host, n opencode.NewSession) team.SessionID {
	tb.Helper()
	if n.Title == "" {
		n.Title = tb.Name()
	}
	s, err := h.Create(within(tb, time.Minute), n)
	require.NoError(tb, err)
	return s.ID
}

type (
	step = scriptedmodel.Step
	call = scriptedmodel.Call
	args = map[string]any
)

// prompt lets a session work through steps, and returns its messages when it is idle.
func prompt(tb testing.TB, h *opencode.Host, id team.SessionID, steps ...step) []opencode.Message {
	tb.Helper()
	ctx := within(tb, time.Minute)
	_, err := h.Prompt(ctx, id, opencode.Prompt{Text: tb.Name() + "\n" + scriptedmodel.Script(steps...), Wait: true})
	require.NoError(tb, err)
	return messages(tb, h, id)
}

// begin is prompt that does not wait.
func begin(tb testing.TB, h *opencode.Host, id team.SessionID, steps ...step) {
	tb.Helper()
	_, err := h.Prompt(within(tb, time.Minute), id, opencode.Prompt{Text: tb.Name() + "\n" + scriptedmodel.Script(steps...)})
	require.NoError(tb, err)
}

func messages(tb testing.TB, h *opencode.Host, id team.SessionID) []opencode.Message {
	tb.Helper()
	m, err := h.Messages(within(tb, time.Minute), id, 0)
	require.NoError(tb, err)
	return m
}

// tool returns the last call of a tool.
func tool(tb testing.TB, all []opencode.Message, name string) opencode.Part {
	tb.Helper()
	var found opencode.Part
	for _, m := range all {
		for _, p := range m.Parts {
			if p.Tool == name {
				found = p
			}
		}
	}
	require.Equal(tb, name, found.Tool, "no call of the tool among %d messages", len(all))
	return found
}

// eventually waits until look has nothing against it.
func eventually(tb testing.TB, look func(ctx context.Context) error) {
	tb.Helper()
	ctx := within(tb, time.Minute)
	for {
		err := look(ctx)
		if err == nil {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			require.NoError(tb, err)
		}
	}
}

func idle(tb testing.TB, h *opencode.Host, id team.SessionID) {
	tb.Helper()
	eventually(tb, func(ctx context.Context) error {
		active, err := h.Active(ctx)
		if word, ok := active[id]; err == nil && ok {
			err = fmt.Errorf("session %s is %q", id, word)
		}
		return err
	})
}

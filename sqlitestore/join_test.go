package sqlitestore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// joinKids are the children that all processes of these tests wait for.
var joinKids = []team.SessionID{"ses_done", "ses_failed", "ses_late"}

// textHost knows the last message of each child, and no more.
type textHost struct{ team.Sessions }

func (textHost) Inspect(_ context.Context, id team.SessionID) (team.Inspection, error) {
	return team.Inspection{Session: team.Session{ID: id}, Last: &team.LastMessage{Text: "answer of " + string(id), Completed: time.Now(), Finish: "stop"}}, nil
}

func openJoin(ctx context.Context, path string) (*sqlitestore.Store, *team.Join, error) {
	s, err := sqlitestore.Open(ctx, path, nil)
	if err != nil {
		return nil, nil, err
	}
	// No look within the test: what a process knows comes from the others.
	j, err := team.OpenJoin(ctx, s, "ses_lead", &team.JoinOptions{Sessions: textHost{}, Look: time.Hour})
	return s, j, err
}

// A joinSight is what one process sees at the end.
type joinSight struct {
	Children []team.Child
	Texts    []team.SessionID // whose answers it was shown
}

// childJoiner says "ready", waits until all children have settled, and prints what it saw: PATH.
func childJoiner(ctx context.Context, args []string) error {
	s, j, err := openJoin(ctx, args[0])
	if err != nil {
		return err
	}
	fmt.Println("ready")
	var saw joinSight
	for {
		w, err := j.Wait(ctx, nil)
		if err != nil {
			return err
		}
		for _, r := range w.Results {
			if r.Text != "" {
				saw.Texts = append(saw.Texts, r.Session)
			}
		}
		if w.End == team.WaitSettled {
			break
		}
	}
	if saw.Children, err = j.Children(ctx, nil); err != nil {
		return err
	}
	line, err := json.Marshal(saw)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	return s.Close()
}

func TestJoinInSeveralProcesses(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "s.db")
	s, j, err := openJoin(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	observe := func(id team.SessionID, typ, data string) {
		t.Helper()
		if _, err := j.Observe(ctx, team.Event{Type: typ, Session: id, Data: json.RawMessage(data)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range joinKids {
		if _, err := j.Register(ctx, team.Dispatch{Session: id, Call: "call_" + string(id)}); err != nil {
			t.Fatal(err)
		}
		observe(id, "session.execution.started", `{}`)
	}
	ready := func(p *process) *process {
		t.Helper()
		if line, ok := p.line(); !ok || line != "ready" {
			t.Fatalf("a waiter said %q", line)
		}
		return p
	}
	waiters := []*process{ready(start(t, "joiner", path)), ready(start(t, "joiner", path))}
	killed := ready(start(t, "joiner", path))

	observe("ses_done", "session.execution.succeeded", `{}`)
	killed.kill()
	observe("ses_failed", "session.execution.failed", `{"error":{"type":"APIError","message":"refused"}}`)
	waiters = append(waiters, ready(start(t, "joiner", path))) // carries on where the killed one was
	time.Sleep(200 * time.Millisecond)
	observe("ses_late", "session.execution.interrupted", `{"reason":"user"}`)

	want := []string{
		"ses_done 1 completed  session.execution.succeeded",
		"ses_failed 1 failed APIError: refused session.execution.failed",
		"ses_late 1 interrupted user session.execution.interrupted",
	}
	var texts []team.SessionID
	for i, p := range waiters {
		line, ok := p.line()
		if !ok {
			t.Fatalf("waiter %d ended without a word: %v", i, p.cmd.Wait())
		}
		var saw joinSight
		if err := json.Unmarshal([]byte(line), &saw); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range saw.Children {
			got = append(got, fmt.Sprintf("%s %d %s %s %s", c.Session, c.Turn, c.State, c.Reason, c.By.What))
		}
		if !slices.Equal(got, want) {
			t.Errorf("waiter %d saw\n%q, want\n%q", i, got, want)
		}
		texts = append(texts, saw.Texts...)
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("waiter %d = %v", i, err)
		}
	}
	if !slices.Equal(texts, joinKids[:1]) { // the others have no answer
		t.Errorf("the waiters were shown the answers of %q, want each once, in one process", texts)
	}
	for _, id := range joinKids[1:] {
		if r, err := j.Result(ctx, id, "test"); err != nil || r.Text != "" || !errors.Is(r.Unread, team.ErrNotFound) {
			t.Errorf("Result of %s = %+v, %v, want no text", id, r, err)
		}
	}
}

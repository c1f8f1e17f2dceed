package sqlitestore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// childTraced sends signals to the lead. It says so when the third is in the store and
// not in the trail, and stops there: PATH TRAIL.
func childTraced(ctx context.Context, args []string) error {
	s, err := sqlitestore.Open(ctx, args[0], nil)
	if err != nil {
		return err
	}
	trail, err := team.OpenTrail(ctx, args[1], nil)
	if err != nil {
		return err
	}
	sent := 0
	c, err := team.OpenSignals(ctx, s, &team.SignalOptions{Trace: func(ctx context.Context, e team.TraceEvent) {
		if sent++; sent == 3 {
			fmt.Println("stored")
			<-ctx.Done() // the parent kills
		}
		trail.Record(ctx, e)
	}})
	if err != nil {
		return err
	}
	for i := 0; ctx.Err() == nil; i++ {
		if _, err := c.Send(asLead(ctx), "ses_1", team.Signal{Kind: team.KindNote, Summary: fmt.Sprint(i)}); err != nil {
			return err
		}
	}
	return nil
}

// A process that is killed between a write and its line: the next one finds what has
// none and writes it, once.
func TestRetraceAfterAKill(t *testing.T) {
	t.Parallel()
	path, dir := filepath.Join(t.TempDir(), "s.db"), filepath.Join(t.TempDir(), "trail")
	s := openAt(t, path, nil)
	trail, err := team.OpenTrail(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer trail.Close()
	c, err := team.OpenSignals(t.Context(), s, &team.SignalOptions{Trace: trail.Record})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Enrol(t.Context(), team.Member{Session: "ses_1", Role: "lead"}); err != nil {
		t.Fatal(err)
	}
	p := start(t, "traced", path, dir)
	if line, _ := p.line(); line != "stored" {
		t.Fatalf("child says %q, want stored", line)
	}
	p.kill()
	for _, want := range []int{1, 0} {
		got, err := c.Retrace(t.Context(), team.ReadTrail(t.Context(), dir), &team.RetraceOptions{MinAge: 1})
		if got != want || err != nil {
			t.Errorf("Retrace = %d, %v, want %d", got, err, want)
		}
	}
	told := make(map[string][]string)
	for line, err := range team.ReadTrail(t.Context(), dir) {
		if err != nil {
			t.Fatal(err)
		}
		if line.Event.Op == "inbox.send" {
			told[line.Event.ID] = append(told[line.Event.ID], line.Event.Outcome)
		}
	}
	i := 0
	for item, err := range s.Items(t.Context(), "inbox/ses_1", team.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"[ok]", "[ok]", "[recovered]"}[i]
		if got := fmt.Sprint(told[item.ID]); got != want {
			t.Errorf("lines of signal %d = %s, want %s", i, got, want)
		}
		i++
	}
	if i != 3 {
		t.Errorf("%d signals are in the store, want 3", i)
	}
	report, err := team.VerifyTrail(t.Context(), dir)
	if err != nil || report.Err() != nil {
		t.Errorf("VerifyTrail = %v, %v", err, report.Err())
	}
}

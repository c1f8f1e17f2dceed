package sqlitestore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// TestSignals runs a lead and its specialists over two openings of one file, as two
// processes would have it.
func TestSignals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "team.db")
	open := func() *team.SignalChannel {
		s, err := sqlitestore.Open(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		c, err := team.OpenSignals(t.Context(), s, &team.SignalOptions{Epoch: "run-1"})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	as := func(role string) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		return team.WithCaller(ctx, team.Caller{Session: team.SessionID("ses_" + role), Role: team.Role(role)})
	}
	leads, specialists := open(), open()
	if leads.Secret() != specialists.Secret() {
		t.Fatal("two openings have two secrets")
	}
	roles := []string{"architect", "tester", "reviewer"}
	for _, role := range append([]string{"lead"}, roles...) {
		m := team.Member{Session: team.SessionID("ses_" + role), Role: team.Role(role)}
		if role != "lead" {
			m.Parent = "ses_lead"
		}
		if err := leads.Enrol(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	const rounds = 20
	var wg sync.WaitGroup
	for _, role := range roles {
		wg.Go(func() {
			ctx := as(role)
			for range rounds {
				got, err := specialists.Receive(ctx, nil)
				if err != nil {
					t.Error(err)
					return
				}
				answer := team.Signal{Kind: team.KindSettled, Summary: got[0].Summary, ReplyTo: got[0].ID, Key: string(got[0].ID)}
				if _, err := specialists.Send(ctx, "lead", answer); err != nil {
					t.Error(err)
				}
				if err := specialists.Ack(ctx, got...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	lead := as("lead")
	for i := range rounds {
		sent, err := leads.SendAll(lead, roles, team.Signal{Kind: team.KindHandoff, Summary: fmt.Sprint("round ", i)})
		if err != nil {
			t.Fatal(err)
		}
		for range roles {
			got, err := leads.Receive(lead, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got[0].Summary != fmt.Sprint("round ", i) {
				t.Errorf("round %d got the answer %q", i, got[0].Summary)
			}
			if err := leads.Ack(lead, got...); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range sent {
			if status, err := leads.Status(lead, s); err != nil || status.State != team.SignalAcked && status.State != team.SignalRead {
				t.Errorf("status = %+v, %v", status, err)
			}
		}
	}
	wg.Wait()
	if err := specialists.Fence(lead, "run-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := leads.Send(lead, "tester", team.Signal{Kind: team.KindNote, Summary: "late"}); err == nil {
		t.Error("a fenced epoch takes signals")
	}
}

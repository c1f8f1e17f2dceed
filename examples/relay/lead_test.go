package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/examples/relay/survey"
	"github.com/teamchan/team/memstore"
)

// newRelay is a relay on an empty tree, for what goes wrong between the roles.
func newRelay(t *testing.T) *relay {
	t.Helper()
	board, err := team.OpenBoard(t.Context(), filepath.Join(t.TempDir(), "board"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { board.Close() })
	store := new(memstore.Store)
	signals, err := team.OpenSignals(t.Context(), store, nil)
	if err != nil {
		t.Fatal(err)
	}
	j, err := begin(t.Context(), store, "", false, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	return &relay{board: board, signals: signals, session: j.session(), journal: j, tree: new(survey.Tree),
		log: &timeline{started: time.Now()}, patience: time.Minute}
}

func TestLead(t *testing.T) {
	t.Run("a specialist that cannot deliver says so", func(t *testing.T) {
		r := newRelay(t)
		r.board.Close()
		_, err := r.run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "did not settle") {
			t.Errorf("run with a closed board = %v, want that somebody did not settle", err)
		}
	})
	t.Run("a specialist that is silent is not waited for for ever", func(t *testing.T) {
		r := newRelay(t)
		r.patience = time.Millisecond
		for _, m := range []team.Member{
			{Session: sessionOf(r.session, roleLead), Role: roleLead},
			{Session: sessionOf(r.session, roleArchitect), Role: roleArchitect, Parent: sessionOf(r.session, roleLead)},
			{Session: sessionOf(r.session, roleResearcher), Role: roleResearcher, Parent: sessionOf(r.session, roleLead)},
		} {
			if err := r.signals.Enrol(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		_, err := r.lead(r.as(t.Context(), roleLead))
		if err == nil || !strings.Contains(err.Error(), "no answer within 1ms") {
			t.Errorf("lead without specialists = %v, want no answer within 1ms", err)
		}
	})
	t.Run("an entry that is not the one handed over", func(t *testing.T) {
		r := newRelay(t)
		e, err := r.write(r.as(t.Context(), roleTester), survey.Deliverable{Topic: "x"})
		if err != nil {
			t.Fatal(err)
		}
		ref := e.Ref()
		ref.SHA256 = strings.Repeat("0", 64)
		if _, err := r.board.ReadRef(t.Context(), ref, team.Range{}); err == nil {
			t.Error("read of a reference with another digest = nil, want an error")
		}
	})
}

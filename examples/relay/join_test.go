package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/teamchan/team"
)

func TestEndings(t *testing.T) {
	dir := workspace(t, aModule())
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-workspace", dir, "-json"}, &out); err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	var got []team.Role
	for _, e := range doc.Endings {
		got = append(got, team.Role(e.Role))
		if e.State != team.ChildCompleted || !e.Presumed || e.Source != team.FromSignal || e.What != string(team.KindSettled) || e.At.IsZero() {
			t.Errorf("ending %+v, want completed, presumed by a signal settled", e)
		}
	}
	if want := roles()[1:]; !slices.Equal(got, want) {
		t.Errorf("endings of %q, want %q: all, in the order in which they were called", got, want)
	}

	out.Reset()
	if err := run(t.Context(), []string{"-workspace", dir}, &out); err != nil {
		t.Fatal(err)
	}
	if want := "architect    completed, presumed   by signal \"settled\""; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}

func TestEndingsOfAnEarlierStart(t *testing.T) {
	r := newRelay(t)
	ctx := r.as(t.Context(), roleLead)
	answer := team.Signal{ID: "s1", Kind: team.KindSettled, To: sessionOf(r.session, roleLead),
		From: team.Caller{Session: sessionOf(r.session, roleTester), Role: roleTester}}
	for range 2 { // told again, it changes nothing
		join, err := r.openJoin(ctx, map[team.Role]team.Signal{roleTester: answer})
		if err != nil {
			t.Fatal(err)
		}
		got, err := endings(ctx, join)
		if err != nil || len(got) != 1 || got[0].Role != string(roleTester) || got[0].State != team.ChildCompleted {
			t.Errorf("endings = %+v, %v, want that the tester has completed", got, err)
		}
	}
}

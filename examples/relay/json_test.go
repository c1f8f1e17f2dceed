package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/teamchan/team/examples/relay/survey"
)

func TestJSON(t *testing.T) {
	dir := workspace(t, aModule())
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-workspace", dir, "-json"}, &out); err != nil {
		t.Fatal(err)
	}
	var doc document
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if d.More() {
		t.Error("there is more than one document on stdout")
	}

	t.Run("handover", func(t *testing.T) {
		at := func(kind, from, to string) int {
			i := slices.IndexFunc(doc.Events, func(e event) bool {
				return e.Kind == kind && string(e.From) == from && e.To == to
			})
			if i < 0 {
				t.Fatalf("no %s from %s to %s in %+v", kind, from, to, doc.Events)
			}
			return i
		}
		before := []int{} // what has settled so far
		for _, step := range steps {
			var now []int
			for _, s := range step {
				role := string(s.role)
				handoff, entry, settled := at("handoff", "lead", role), at("entry", role, "board"), at("settled", role, "lead")
				if handoff > entry || entry > settled {
					t.Errorf("%s: handoff, entry, settled are events %d, %d, %d, want them in order", role, handoff, entry, settled)
				}
				if len(before) > 0 && handoff < slices.Max(before) {
					t.Errorf("%s got the handoff (event %d) before the last step had settled (%d)", role, handoff, before)
				}
				if got := doc.Events[handoff].Refs; len(got) != len(s.reads) {
					t.Errorf("the handoff to %s refers to %q, want entries of %q", role, got, s.reads)
				}
				refs := doc.Events[settled].Refs
				if s.chatty && len(refs) == 2 { // the entry, and the body that was too long
					refs = refs[:1]
				}
				if e := doc.Events[entry]; !slices.Equal(refs, []string{e.Path}) || e.Round != 1 || e.Bytes == 0 {
					t.Errorf("%s settled with %q after writing %+v", role, doc.Events[settled].Refs, e)
				}
				now = append(now, settled)
			}
			before = now
		}
		if last := at("entry", "lead", "board"); last != len(doc.Events)-1 || doc.Plan != doc.Events[last].Path {
			t.Errorf("the plan %q is event %d of %d, want the last", doc.Plan, last, len(doc.Events))
		}
	})
	t.Run("account", func(t *testing.T) {
		a := doc.Account
		if a.Inline <= a.Paths || a.Paths != a.SignalTokens+a.ExcerptTokens || a.Signals != 5 || a.SavedPercent <= 0 {
			t.Errorf("account = %+v, want fewer tokens with paths than inline", a)
		}
	})
	t.Run("tasks", func(t *testing.T) {
		if len(doc.Tasks) != survey.MostTasks {
			t.Errorf("%d tasks, want %d", len(doc.Tasks), survey.MostTasks)
		}
		for _, task := range doc.Tasks {
			if len(task.From) == 0 || len(task.From) != len(task.Paths) {
				t.Errorf("task %+v does not say where it comes from", task)
			}
		}
	})
	t.Run("a second run has a session of its own", func(t *testing.T) {
		out.Reset()
		if err := run(t.Context(), []string{"-workspace", dir, "-json"}, &out); err != nil {
			t.Fatal(err)
		}
		var again document
		if err := json.Unmarshal(out.Bytes(), &again); err != nil {
			t.Fatal(err)
		}
		if again.Session == doc.Session || again.Board != doc.Board {
			t.Errorf("second run: session %q on board %q, first %q on %q", again.Session, again.Board, doc.Session, doc.Board)
		}
	})
}

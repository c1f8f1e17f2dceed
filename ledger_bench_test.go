package team_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// The ledger's own share, over a store that costs next to nothing.
func BenchmarkLedger(b *testing.B) {
	value := json.RawMessage(`{"path":"/board/20261130-093000/auth/01-architect-api.md","sha256":"0a0a","size":1234}`)
	for _, keys := range []int{1, 1000} {
		filled := func(b *testing.B) (*team.Ledger, []team.Version) {
			l := openLedger(b, new(memstore.Store), inProject, nil)
			versions := make([]team.Version, keys)
			for i := range versions {
				versions[i] = putFact(b, l, fmt.Sprint("k", i), string(value), "")
			}
			return l, versions
		}
		b.Run(fmt.Sprintf("op=put/keys=%d", keys), func(b *testing.B) {
			l, versions := filled(b)
			ctx := asLead(b)
			for i := 0; b.Loop(); i++ {
				v, err := l.Put(ctx, fmt.Sprint("k", i%keys), value, versions[i%keys])
				if err != nil {
					b.Fatal(err)
				}
				versions[i%keys] = v
			}
		})
		b.Run(fmt.Sprintf("op=put+delete/keys=%d", keys), func(b *testing.B) {
			l, versions := filled(b)
			ctx := asLead(b)
			if err := l.Delete(ctx, "k0", versions[0]); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				v, err := l.Put(ctx, "new", value, "") // one key more, so that the quota is looked at
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Delete(ctx, "new", v); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("op=get/keys=%d", keys), func(b *testing.B) {
			l, _ := filled(b)
			ctx := asLead(b)
			for i := 0; b.Loop(); i++ {
				if _, err := l.Get(ctx, fmt.Sprint("k", i%keys)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("op=update/keys=%d", keys), func(b *testing.B) {
			l, _ := filled(b)
			ctx := asLead(b)
			for i := 0; b.Loop(); i++ {
				_, err := l.Update(ctx, fmt.Sprint("k", i%keys), func(old team.Fact) (json.RawMessage, error) { return old.Value, nil })
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("op=goal/goals=200", func(b *testing.B) {
		l := openLedger(b, new(memstore.Store), inProject, nil)
		for i := range 200 {
			addGoals(b, l, fmt.Sprint("write the tests of part ", i))
		}
		ctx := asLead(b)
		for i := 0; b.Loop(); i++ {
			if _, err := l.SetGoal(ctx, "#100", team.GoalDoing, fmt.Sprint("step ", i)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

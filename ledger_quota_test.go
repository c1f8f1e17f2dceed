package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

func TestLedgerQuotaRefusesWithNumbers(t *testing.T) {
	for name, records := range map[string]team.Records{"store with a meter": new(memstore.Store), "store without": plain{new(memstore.Store)}} {
		t.Run(name, func(t *testing.T) {
			l := openLedger(t, records, team.Scope{Project: "p"}, &team.LedgerOptions{MaxKeys: 3, MaxBytes: 1000, MaxValue: 600})
			v := putFact(t, l, "a", `1`, "")
			putFact(t, l, "b", `1`, "")
			putFact(t, l, "c", `1`, "")
			_, err := l.Put(asLead(t), "d", json.RawMessage(`1`), "")
			limited(t, err, "ledger keys", 4, 3)
			v = putFact(t, l, "a", `22`, v) // no new key
			_, err = l.Put(asLead(t), "a", json.RawMessage(`"`+strings.Repeat("x", 600)+`"`), v)
			limited(t, err, "ledger value bytes", 602, 600)
			require.ErrorIs(t, err, team.ErrTooLarge)
			big := json.RawMessage(`"` + strings.Repeat("x", 590) + `"`)
			v, err = l.Put(asLead(t), "a", big, v)
			require.NoError(t, err)
			_, err = l.Put(asLead(t), "b", big, team.AnyVersion)
			e, ok := errors.AsType[*team.LimitError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, "ledger bytes", e.What)
			require.EqualValues(t, 1000, e.Max)
			require.Greater(t, e.Got, int64(1200))
			require.False(t, e.TooLarge)
			holds(t, l, "a", string(big), v)
			f, err := l.Get(t.Context(), "b")
			require.NoError(t, err)
			require.Equal(t, `1`, string(f.Value), "nothing written, nothing cut")
			require.NoError(t, l.Delete(asLead(t), "a", v))
			putFact(t, l, "d", `1`, "")
			_, err = l.AddGoals(asLead(t), "one key too many")
			limited(t, err, "ledger keys", 4, 3)
		})
	}
}

func TestLedgerQuotaIsExactAmongTheCallsOfOneLedger(t *testing.T) {
	slow := func() *meddler {
		return &meddler{Store: new(memstore.Store), before: func(string) {
			for range 20 {
				runtime.Gosched() // all the others look before the first has written
			}
		}}
	}
	for name, records := range map[string]team.Records{"store with a meter": slow(), "store without": plain{slow()}} {
		t.Run(name, func(t *testing.T) {
			l := openLedger(t, records, inProject, &team.LedgerOptions{MaxKeys: 20})
			var wg sync.WaitGroup
			var in, out atomic.Int64
			for i := range 60 {
				wg.Go(func() {
					_, err := l.Put(asLead(t), fmt.Sprint("k", i), json.RawMessage(`1`), "")
					switch {
					case err == nil:
						in.Add(1)
					case errors.Is(err, team.ErrLimit):
						out.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			wg.Wait()
			require.EqualValues(t, 20, in.Load(), "as many as fit, and no more")
			require.EqualValues(t, 40, out.Load())
			require.Len(t, names(t, l, "", "", 0), 20)
		})
	}
}

func TestLedgerQuotaWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		store := &meddler{Store: new(memstore.Store), before: func(string) { <-gate }}
		l := openLedger(t, store, inProject, &team.LedgerOptions{MaxKeys: 1})
		errs := make(chan error, 3)
		put := func(ctx context.Context, key string) {
			_, err := l.Put(ctx, key, json.RawMessage(`1`), "")
			errs <- err
		}
		go put(asLead(t), "first")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(asLead(t), time.Second)
		defer cancel()
		go put(ctx, "impatient")
		go put(asLead(t), "patient")
		require.ErrorIs(t, <-errs, context.DeadlineExceeded)
		close(gate)
		require.NoError(t, <-errs)
		limited(t, <-errs, "ledger keys", 2, 1)
	})
}

func TestLedgerWithoutLimits(t *testing.T) {
	l := openLedger(t, nil, inProject, &team.LedgerOptions{MaxKeys: team.NoLimit, MaxBytes: team.NoLimit, MaxValue: team.NoLimit})
	for i := range team.DefaultLedgerKeys + 1 {
		putFact(t, l, fmt.Sprint(i), `1`, "")
	}
	putFact(t, l, "large", `"`+strings.Repeat("x", team.DefaultLedgerBytes)+`"`, "")
}

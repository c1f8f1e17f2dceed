package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
	"github.com/teamchan/team/storetest"
)

// A hostKV is a host's key-value storage as a plugin of OpenCode 2.0 has it: one
// name space; set overwrites; remove of an absent key is fine; scan pages, in
// ascending order, and sends the values along. It lives outside the process that
// uses it, so that several can.
type hostKV struct {
	mu   sync.Mutex
	rows map[string]json.RawMessage
}

func (kv *hostKV) get(key string) (json.RawMessage, bool) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	v, ok := kv.rows[key]
	return slices.Clone(v), ok
}

func (kv *hostKV) set(key string, value json.RawMessage) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	if kv.rows == nil {
		kv.rows = make(map[string]json.RawMessage)
	}
	kv.rows[key] = slices.Clone(value)
}

func (kv *hostKV) remove(key string) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	delete(kv.rows, key)
}

type hostRow struct {
	key   string
	value json.RawMessage
}

// scan returns a page and, if there is more, the last key of it.
func (kv *hostKV) scan(prefix, after string) (entries []hostRow, next string) {
	const limit = 100
	kv.mu.Lock()
	defer kv.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(kv.rows)) {
		if !strings.HasPrefix(key, prefix) || key <= after {
			continue
		}
		if len(entries) == limit {
			return entries, entries[limit-1].key
		}
		entries = append(entries, hostRow{key, kv.rows[key]})
	}
	return entries, ""
}

// A pluginStorage is the Storage that an adapter makes of it.
type pluginStorage struct {
	kv       *hostKV
	afterSet func(key string) // between our write and our look at it
	fail     func(op string) error
}

func (s *pluginStorage) failed(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.fail != nil {
		return s.fail(op)
	}
	return nil
}

func (s *pluginStorage) Get(ctx context.Context, key string) (json.RawMessage, error) {
	if err := s.failed(ctx, "get"); err != nil {
		return nil, err
	}
	v, ok := s.kv.get(key)
	if !ok {
		return nil, team.ErrNotFound
	}
	return v, nil
}

func (s *pluginStorage) Set(ctx context.Context, key string, value json.RawMessage) error {
	if err := s.failed(ctx, "set"); err != nil {
		return err
	}
	s.kv.set(key, value)
	if f := s.afterSet; f != nil {
		f(key)
	}
	return nil
}

func (s *pluginStorage) Remove(ctx context.Context, key string) error {
	if err := s.failed(ctx, "remove"); err != nil {
		return err
	}
	s.kv.remove(key)
	if f := s.afterSet; f != nil {
		f(key)
	}
	return nil
}

func (s *pluginStorage) Scan(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for {
			if err := s.failed(ctx, "scan"); err != nil {
				yield("", err)
				return
			}
			entries, next := s.kv.scan(prefix, after)
			for _, row := range entries {
				if !yield(row.key, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			after = next
		}
	}
}

func TestHostRecordsKeepTheLawsOfRecords(t *testing.T) {
	storetest.RunRecords(t, func(testing.TB) team.Records {
		return team.HostRecords(&pluginStorage{kv: new(hostKV)}, "ledger")
	})
}

// FuzzHostRecords compares them with the model of a store, whose queues are
// somebody else's.
func FuzzHostRecords(f *testing.F) {
	storetest.Fuzz(f, func(testing.TB) team.Store {
		return struct {
			team.Queue
			team.Records
		}{new(memstore.Store), team.HostRecords(&pluginStorage{kv: new(hostKV)}, "ledger")}
	})
}

func TestHostRecordsCompareHoldsInOneProcess(t *testing.T) {
	s := &pluginStorage{kv: new(hostKV), fail: func(string) error {
		for range 20 {
			runtime.Gosched() // whoever else is let in gets in
		}
		return nil
	}}
	h := team.HostRecords(s, "n")
	l := openLedger(t, h, inProject, nil)
	var wg sync.WaitGroup
	var won atomic.Int64
	for range 50 {
		wg.Go(func() {
			if _, err := h.Put(t.Context(), "k", nil, ""); err == nil {
				won.Add(1)
			} else if !errors.Is(err, team.ErrConflict) {
				t.Error(err)
			}
			_, err := l.Update(asLead(t), "count", func(old team.Fact) (json.RawMessage, error) {
				n := 0
				if old.Version != "" {
					if err := json.Unmarshal(old.Value, &n); err != nil {
						return nil, err
					}
				}
				return json.Marshal(n + 1)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, won.Load())
	f, err := l.Get(t.Context(), "count")
	require.NoError(t, err)
	require.Equal(t, "50", string(f.Value))
	require.Zero(t, team.HostTurns(h), "a key that nobody changes is forgotten")
}

// A host that hangs holds up who asked it, and others only as long as they like.
func TestHostRecordsTurnEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s := &pluginStorage{kv: new(hostKV), afterSet: func(string) { <-gate }}
		h := team.HostRecords(s, "n")
		first := make(chan error, 1)
		go func() { _, err := h.Put(t.Context(), "k", nil, ""); first <- err }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := h.Put(ctx, "k", nil, team.AnyVersion)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		close(gate)
		require.NoError(t, <-first)
		require.Zero(t, team.HostTurns(h))
	})
}

func TestHostRecordsNamespacesNeverMeet(t *testing.T) {
	kv := new(hostKV)
	kv.set("other-plugin", json.RawMessage(`1`))
	spaces := []string{"a", "a/b", "a%2Fb", "", "A", "a/", "/"}
	for i, space := range spaces {
		h := team.HostRecords(&pluginStorage{kv: kv}, space)
		for _, key := range []string{"k", "b/k", "/"} {
			_, err := h.Put(t.Context(), key, fmt.Append(nil, i), "")
			require.NoError(t, err, "%q", space)
		}
	}
	for i, space := range spaces {
		h := team.HostRecords(&pluginStorage{kv: kv}, space)
		require.Equal(t, []string{"/", "b/k", "k"}, storedKeys(t, h))
		r, err := h.Get(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), string(r.Value))
	}
	for key := range kv.rows {
		require.True(t, key == "other-plugin" || strings.HasPrefix(key, "team-mode/"), key)
	}
}

// Two HostRecords over one storage are two processes.
func TestHostRecordsReportALostRace(t *testing.T) {
	kv := new(hostKV)
	ours := &pluginStorage{kv: kv}
	a, b := team.HostRecords(ours, "n"), team.HostRecords(&pluginStorage{kv: kv}, "n")
	ctx := t.Context()
	v1, err := a.Put(ctx, "k", []byte("1"), "")
	require.NoError(t, err)
	once := func(f func()) { ours.afterSet = func(string) { ours.afterSet = nil; f() } }

	var v2 team.Version
	once(func() { v2, err = b.Put(ctx, "k", []byte("theirs"), team.AnyVersion); require.NoError(t, err) })
	_, err = a.Put(ctx, "k", []byte("ours"), v1)
	require.ErrorIs(t, err, team.ErrConflict)
	r, err := a.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, team.Record{Key: "k", Value: []byte("theirs"), Version: v2}, r)

	once(func() { require.NoError(t, b.Delete(ctx, "k", team.AnyVersion)) })
	_, err = a.Put(ctx, "k", []byte("ours"), v2)
	require.ErrorIs(t, err, team.ErrConflict)

	v3, err := a.Put(ctx, "k", []byte("again"), "")
	require.NoError(t, err)
	once(func() { _, err := b.Put(ctx, "k", []byte("theirs"), ""); require.NoError(t, err) })
	require.ErrorIs(t, a.Delete(ctx, "k", v3), team.ErrConflict)
	r, err = a.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, "theirs", string(r.Value))
}

// What the comment of HostRecords says is not seen is not seen, and is learnt by the
// next call.
func TestHostRecordsLateLossIsLearntFromTheNextCall(t *testing.T) {
	kv := new(hostKV)
	ctx := t.Context()
	a := team.HostRecords(&pluginStorage{kv: kv}, "n")
	v1, err := a.Put(ctx, "k", []byte("1"), "")
	require.NoError(t, err)
	// B has compared; before it writes, A does all of its Put.
	var v2 team.Version
	late := &pluginStorage{kv: kv}
	late.fail = func(op string) error {
		if op == "set" && v2 == "" {
			v2, err = a.Put(ctx, "k", []byte("A's"), v1)
			require.NoError(t, err)
		}
		return nil
	}
	_, err = team.HostRecords(late, "n").Put(ctx, "k", []byte("B's"), v1)
	require.NoError(t, err, "both were told that it was done")
	_, err = a.Put(ctx, "k", []byte("A's next"), v2)
	require.ErrorIs(t, err, team.ErrConflict)
	r, err := a.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, "B's", string(r.Value))
}

func TestHostRecordsFailuresAreNeverSuccess(t *testing.T) {
	kv := new(hostKV)
	s := &pluginStorage{kv: kv}
	h := team.HostRecords(s, "n")
	ctx := t.Context()
	v, err := h.Put(ctx, "k", []byte("1"), "")
	require.NoError(t, err)
	down := errors.New("host is down")
	for _, op := range []string{"set", "remove"} {
		s.fail = func(got string) error {
			if got == op {
				return down
			}
			return nil
		}
		if op == "set" {
			_, err = h.Put(ctx, "k", []byte("2"), v)
		} else {
			err = h.Delete(ctx, "k", v)
		}
		require.ErrorIs(t, err, team.ErrUnknownOutcome)
		require.ErrorIs(t, err, down)
	}
	s.fail = func(string) error { return down }
	_, err = h.Put(ctx, "k", []byte("2"), v)
	require.ErrorIs(t, err, down)
	require.NotErrorIs(t, err, team.ErrUnknownOutcome, "nothing was tried yet")

	// Written, and then there is no answer: the same call settles it.
	s.fail, s.afterSet = nil, func(string) { s.fail = func(string) error { return down } }
	_, err = h.Put(ctx, "k", []byte("2"), v)
	require.ErrorIs(t, err, team.ErrUnknownOutcome)
	s.fail, s.afterSet = nil, nil
	_, err = h.Put(ctx, "k", []byte("2"), v)
	require.ErrorIs(t, err, team.ErrConflict)
	r, err := h.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, "2", string(r.Value))

	for _, foreign := range []string{`1`, `{}`, `{"version":"v"}`, `{"version":"*","text":"a"}`, `{"version":"v","text":"a","bytes":"YQ=="}`, `{`, ``} {
		kv.set("team-mode/n/k", json.RawMessage(foreign))
		_, err = h.Get(ctx, "k")
		require.ErrorIs(t, err, team.ErrCorrupt, foreign)
		_, err = h.Put(ctx, "k", nil, "")
		require.ErrorIs(t, err, team.ErrCorrupt, foreign)
		require.ErrorIs(t, h.Delete(ctx, "k", v), team.ErrCorrupt, foreign)
	}
	_, err = h.Put(ctx, "k", []byte("mended"), team.AnyVersion)
	require.NoError(t, err)
	require.Panics(t, func() { team.HostRecords(nil, "n") })
}

func TestHostRecordsCarryALedger(t *testing.T) {
	kv := new(hostKV)
	open := func() *team.Ledger {
		return openLedger(t, team.HostRecords(&pluginStorage{kv: kv}, "ledger"), team.Scope{Project: "p", Session: "ses_1"}, nil)
	}
	l, other := open(), open()
	v := putFact(t, l, "plan", `{"by":"path"}`, "")
	holds(t, other, "plan", `{"by":"path"}`, v)
	var wg sync.WaitGroup
	for w, l := range []*team.Ledger{l, other} {
		for i := range 100 {
			wg.Go(func() {
				if _, err := l.Put(asLead(t), fmt.Sprintf("w%d/%02d", w, i), json.RawMessage(`1`), ""); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	require.Len(t, names(t, l, "w", "", 0), 200)
	for range 5 {
		_, err := l.Update(asLead(t), "count", func(old team.Fact) (json.RawMessage, error) { return json.RawMessage(string(old.Value) + "1"), nil })
		require.NoError(t, err)
	}
	addGoals(t, l, "ship")
	require.True(t, addGoals(t, other, "Ship!")[0].Merged)
	_, err := l.Apply(asLead(t), team.Edit{Key: "a", Delete: true}, team.Edit{Key: "b", Delete: true})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	for _, err := range l.Watch(t.Context(), "") {
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
	kv.set("team-mode/ledger/team/ledger/p/ses_1//plan", json.RawMessage(`"not ours"`))
	_, err = l.Get(t.Context(), "plan")
	require.ErrorIs(t, err, team.ErrCorrupt)
	report, err := l.SweepScopes(t.Context(), func(context.Context, team.SessionID) (bool, error) { return false, nil })
	require.NoError(t, err)
	require.Equal(t, 203, report.Removed())
	require.Empty(t, kv.rows)
}

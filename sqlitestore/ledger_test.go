package sqlitestore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// asLead is the context of who calls the ledger in these tests.
func asLead(ctx context.Context) context.Context {
	return team.WithCaller(ctx, team.Caller{Session: "ses_1", Role: "lead"})
}

// openLedger opens the ledger that all processes of these tests share.
func openLedger(ctx context.Context, path string) (*sqlitestore.Store, *team.Ledger, error) {
	s, err := sqlitestore.Open(ctx, path, nil)
	if err != nil {
		return nil, nil, err
	}
	l, err := team.OpenLedger(ctx, s, team.Scope{Project: "p", Session: "ses_1"}, nil)
	return s, l, err
}

// childIndexer writes records under keys of its own: PATH NAME N.
func childIndexer(ctx context.Context, args []string) error {
	s, l, err := openLedger(ctx, args[0])
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(args[2])
	for i := range n {
		if _, err := l.Put(asLead(ctx), fmt.Sprintf("%s/%d", args[1], i), json.RawMessage(strconv.Itoa(i)), ""); err != nil {
			return fmt.Errorf("put %d: %w", i, err)
		}
	}
	return s.Close()
}

// childCounter adds one to a record, many times: PATH KEY N.
func childCounter(ctx context.Context, args []string) error {
	s, l, err := openLedger(ctx, args[0])
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(args[2])
	for i := range n {
		_, err := l.Update(asLead(ctx), args[1], func(old team.Fact) (json.RawMessage, error) {
			count := 0
			if len(old.Value) > 0 {
				if err := json.Unmarshal(old.Value, &count); err != nil {
					return nil, err
				}
			}
			return json.RawMessage(strconv.Itoa(count + 1)), nil
		})
		if err != nil {
			return fmt.Errorf("update %d: %w", i, err)
		}
	}
	return s.Close()
}

// childFollower prints the key and the value of what changes: PATH PREFIX.
func childFollower(ctx context.Context, args []string) error {
	_, l, err := openLedger(ctx, args[0])
	if err != nil {
		return err
	}
	changed := l.Watch(ctx, args[1])
	fmt.Println("open")
	for key, err := range changed {
		if err != nil {
			return err
		}
		f, err := l.Get(ctx, key)
		switch {
		case errors.Is(err, team.ErrNotFound):
			fmt.Println(key, "none")
		case err != nil:
			return err
		default:
			fmt.Println(key, string(f.Value))
		}
	}
	return nil
}

func finish(t *testing.T, all []*process) {
	t.Helper()
	for _, p := range all {
		p.lines()
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("child = %v, want it to end well", err)
		}
	}
}

// Two processes write a hundred different keys each. Where each writes back all that it
// knows, they revert each other (https://github.com/gastownhall/beads/issues/1609).
func TestLedgerKeysFromProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s, l, err := openLedger(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const each = 100
	finish(t, []*process{start(t, "indexer", path, "a", each), start(t, "indexer", path, "b", each)})
	n := 0
	for key, err := range l.Keys(t.Context(), "", "", 0) {
		if err != nil {
			t.Fatal(err)
		}
		f, err := l.Get(t.Context(), key)
		if want := fmt.Sprintf("%c/%s", key[0], f.Value); err != nil || key != want {
			t.Errorf("%s = %s, %v", key, f.Value, err)
		}
		n++
	}
	if n != 2*each {
		t.Errorf("%d keys, want %d", n, 2*each)
	}
}

// Of many that add to one number, in several processes, nobody overwrites anybody.
func TestLedgerUpdateFromProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s, l, err := openLedger(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const processes = 4
	each := scale(60)
	var all []*process
	for range processes {
		all = append(all, start(t, "counter", path, "sum", each))
	}
	finish(t, all)
	if f, err := l.Get(t.Context(), "sum"); err != nil || string(f.Value) != fmt.Sprint(processes*each) {
		t.Errorf("sum = %s, %v, want %d", f.Value, err, processes*each)
	}
}

// A process that watches has read the last change of every key, a deletion too.
func TestLedgerWatchFromProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s, l, err := openLedger(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	follower := start(t, "follower", path, "")
	if line, _ := follower.line(); line != "open" {
		t.Fatalf("child says %q, want open", line)
	}
	const each = 40
	finish(t, []*process{
		start(t, "indexer", path, "a", each), start(t, "indexer", path, "b", each),
		start(t, "counter", path, "sum", each), start(t, "counter", path, "sum", each),
	})
	if err := l.Delete(asLead(t.Context()), "b/0", team.AnyVersion); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"sum": fmt.Sprint(2 * each), "b/0": "none"}
	for i := range each {
		want[fmt.Sprint("a/", i)] = fmt.Sprint(i)
		if i > 0 {
			want[fmt.Sprint("b/", i)] = fmt.Sprint(i)
		}
	}
	for len(want) > 0 {
		line, ok := follower.line()
		if !ok {
			t.Fatalf("the follower has ended, and %d keys have not come to their last value", len(want))
		}
		var key, value string
		if _, err := fmt.Sscan(line, &key, &value); err != nil {
			t.Fatal(err)
		}
		if want[key] == value {
			delete(want, key)
		}
	}
	follower.stop()
}

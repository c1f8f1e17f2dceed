package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

func TestSweep(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "s.db"), nil)
	ctx := t.Context()
	var ids []string
	for i := range 2500 {
		ids = append(ids, fmt.Sprint("i", i))
	}
	mustAppend(t, s, "q", ids...)
	claims, err := s.Claim(ctx, "q", team.ClaimOptions{Max: 2500, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var list []team.Settlement
	for i, c := range claims[:2499] {
		st := team.Settlement{Seq: c.Seq, Token: c.Token, Verdict: team.VerdictAck}
		if i%1000 == 7 {
			st.Verdict, st.Reason = team.VerdictBury, "bad"
		}
		list = append(list, st)
	}
	if err := s.Settle(ctx, "q", list...); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, "q", []team.Item{{ID: "old", Expires: time.Now().Add(-time.Hour)}}, 0); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, "q", "last")
	if got, err := s.Sweep(ctx, sqlitestore.SweepPolicy{}); err != nil || got.Items != 0 {
		t.Errorf("Sweep by the default = %+v, %v, want nothing: nothing is old", got, err)
	}
	until(t, "a millisecond", func() bool { return time.Since(claims[0].Until.Add(-time.Hour)) > 20*time.Millisecond })
	got, err := s.Sweep(ctx, sqlitestore.SweepPolicy{Age: time.Millisecond})
	if err != nil || got.Items != 2499-3+1 || got.Bytes == 0 {
		t.Errorf("Sweep = %+v, %v, want all but the 3 dead, the claimed and the new", got, err)
	}
	if got, want := states(t, s, "q"), "i7:dead:1 i1007:dead:1 i2007:dead:1 i2499:claimed:1 last:pending:0 "; got != want {
		t.Errorf("queue holds %q, want %q", got, want)
	}
	c := mustClaim(t, s, "q", "last:1")
	if err := s.Settle(ctx, "q", team.Settlement{Seq: c.Seq, Token: c.Token, Verdict: team.VerdictAck},
		team.Settlement{Seq: claims[2499].Seq, Token: claims[2499].Token, Verdict: team.VerdictAck}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Millisecond)
	if got, err := s.Sweep(ctx, sqlitestore.SweepPolicy{Age: time.Millisecond, Dead: true}); err != nil || got.Items != 4 {
		t.Errorf("Sweep of dead ones too = %+v, %v, want 4", got, err)
	}
	// No seq comes twice, also when all is swept.
	if next := mustAppend(t, s, "q", "next")[0]; next <= c.Seq {
		t.Errorf("seq after the sweep = %d, want it above %d", next, c.Seq)
	}
	if err := s.Check(ctx); err != nil {
		t.Errorf("Check = %v, want no error", err)
	}
	if _, err := s.Sweep(ctx, sqlitestore.SweepPolicy{Age: -1}); !errors.Is(err, team.ErrInvalid) {
		t.Errorf("Sweep with a negative age = %v, want ErrInvalid", err)
	}
}

// Check finds what is wrong, whatever it is, and says what.
func TestCheck(t *testing.T) {
	fill := func(t *testing.T, path string) *sqlitestore.Store {
		s := openAt(t, path, nil)
		mustAppend(t, s, "q", "dead", "claimed", "pending")
		c := mustClaim(t, s, "q", "dead:1")
		if err := s.Settle(t.Context(), "q", team.Settlement{Seq: c.Seq, Token: c.Token, Verdict: team.VerdictBury}); err != nil {
			t.Fatal(err)
		}
		mustClaim(t, s, "q", "claimed:1")
		for _, key := range []string{"k", "gone"} {
			if _, err := s.Put(t.Context(), key, nil, ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Delete(t.Context(), "gone", team.AnyVersion); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("Check = %v, want no error", err)
		}
		return s
	}
	finds := func(t *testing.T, s *sqlitestore.Store, want string) {
		t.Helper()
		if err := s.Check(t.Context()); !errors.Is(err, team.ErrCorrupt) || !strings.Contains(err.Error(), want) {
			t.Errorf("Check = %v, want ErrCorrupt and %q in it", err, want)
		}
	}
	for _, test := range []struct{ damage, want string }{
		{`UPDATE items SET state = 9 WHERE id = 'pending'`, "items in a state that there is not"},
		{`UPDATE items SET queue = '' WHERE id = 'pending'`, "items with fields that cannot be"},
		{`UPDATE items SET cost = -1 WHERE id = 'pending'`, "items with fields that cannot be"},
		{`UPDATE items SET at = 5 WHERE id = 'dead'`, "settled items that are still claimed"},
		{`UPDATE items SET token = NULL WHERE id = 'claimed'`, "claimed items without a claim"},
		{`UPDATE items SET at = 0 WHERE id = 'claimed'`, "claimed items without a claim"},
		{`UPDATE items SET state = 1 WHERE id = 'pending'`, "delayed items that would never be due"},
		{`UPDATE items SET at = 5 WHERE id = 'pending'`, "pending items that would expire at the wrong time"},
		{`UPDATE items SET token = (SELECT token FROM items WHERE id = 'claimed') WHERE id = 'dead'`, "tokens that two claims have"},
		{`UPDATE meta SET value = 0 WHERE name = 'versions'`, "records with a version that was never given out"},
		{`INSERT INTO records (key, version, value) SELECT x'78', version, x'' FROM records`, "versions that two records have"},
		{`UPDATE records SET key = x''`, "records with a key that is none"},
		{`UPDATE deletions SET version = 99`, "deletions with a version that they cannot have"},
		{`UPDATE meta SET value = 99 WHERE name = 'forgotten'`, "deletions with a version that they cannot have"},
		{`UPDATE deletions SET version = (SELECT version FROM records)`, "versions that a record and a deletion have"},
		{`UPDATE deletions SET key = x''`, "deletions of a key that is none"},
		{`DELETE FROM meta WHERE name = 'forgotten'`, "counters missing"},
		{`PRAGMA writable_schema = on; DELETE FROM sqlite_schema WHERE name = 'items_open'; PRAGMA writable_schema = reset`, "items_open is missing"},
	} {
		t.Run(test.damage, func(t *testing.T) {
			s := fill(t, filepath.Join(t.TempDir(), "s.db"))
			if err := s.Exec(test.damage); err != nil {
				t.Fatal(err)
			}
			finds(t, s, test.want)
		})
	}
	t.Run("a page of an index that was overwritten", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s.db")
		if err := fill(t, path).Close(); err != nil {
			t.Fatal(err)
		}
		c, err := sqlite3.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		root, _, err := c.Prepare(`SELECT rootpage FROM sqlite_schema WHERE name = 'items_settled'`)
		if err != nil {
			t.Fatal(err)
		}
		root.Step()
		page := root.ColumnInt64(0)
		if err := errors.Join(root.Close(), c.Close()); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt(make([]byte, 100), page*4096-100) // the end, where its cells are
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		finds(t, openAt(t, path, nil), "malformed")
	})
}

func TestBackup(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, filepath.Join(dir, "s.db"), nil)
	mustAppend(t, s, "q", "before")
	ctx, cancel := context.WithCancel(t.Context())
	writing := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			_, _ = s.Commit(ctx, []team.Batch{{Queue: "q", Items: []team.Item{{ID: fmt.Sprint("i", n)}}}}, []team.Change{{Key: fmt.Sprint("i", n)}})
		}
		writing <- n
	}()
	path := filepath.Join(dir, "backup.db")
	err := s.Backup(t.Context(), path)
	cancel()
	<-writing
	if err != nil {
		t.Fatalf("Backup = %v, want no error", err)
	}
	was := read(t, path)
	for _, there := range []string{path, filepath.Join(dir, "s.db")} {
		if err := s.Backup(t.Context(), there); !errors.Is(err, fs.ErrExist) {
			t.Errorf("Backup over a file = %v, want ErrExist", err)
		}
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if err := s.Backup(ctx, filepath.Join(dir, "none.db")); !errors.Is(err, context.Canceled) {
		t.Errorf("Backup with an ended context = %v, want Canceled", err)
	}
	list, _ := os.ReadDir(dir)
	for _, e := range list {
		if name := e.Name(); !strings.HasPrefix(name, "s.db") && name != "backup.db" {
			t.Errorf("%s is left", name)
		}
	}
	if read(t, path) != was {
		t.Error("the backup was changed")
	}
	b := openAt(t, path, nil)
	if err := b.Check(t.Context()); err != nil {
		t.Errorf("Check of the backup = %v, want no error", err)
	}
	n := 0
	for it, err := range b.Items(t.Context(), "q", team.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			if _, err := b.Get(t.Context(), it.ID); err != nil {
				t.Errorf("half of commit %s is in the backup", it.ID)
			}
		} else if it.ID != "before" {
			t.Errorf("first item = %s, want what was there before", it.ID)
		}
		n++
	}
	if n == 0 {
		t.Error("the backup is empty")
	}
	mustAppend(t, b, "q", "more")
}

// The log does not grow without end, and a reader that makes it grow can be seen.
func TestWAL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := openAt(t, path, &sqlitestore.Options{Synchronous: sqlitestore.Normal})
	data := make([]byte, 1<<20)
	random := rand.NewChaCha8([32]byte{})
	write := func(n int) {
		for range n {
			_, _ = random.Read(data) // SQLite does not write what is there already
			if _, err := s.Put(t.Context(), "k", data, team.AnyVersion); err != nil {
				t.Fatal(err)
			}
		}
	}
	stats := func() sqlitestore.Stats {
		st, err := s.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	write(40)
	if st := stats(); st.WALBytes > 16<<20 || st.Checkpoints == 0 || st.StarvedCheckpoints > 0 {
		t.Errorf("after 40 MB: %+v, want a log of 16 MB at most and no starved checkpoint", st)
	}
	release, err := s.HoldReader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	write(40)
	if st := stats(); st.WALBytes < 30<<20 || st.StarvedCheckpoints == 0 || st.WALBehind == 0 {
		t.Errorf("after 40 MB with a reader: %+v, want it to be seen", st)
	}
	release()
	write(8)
	if st := stats(); st.WALBytes > 16<<20 {
		t.Errorf("after the reader: %+v, want a log of 16 MB at most", st)
	}
}

func TestStats(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "s.db"), nil)
	mustAppend(t, s, "q", "a", "b", "c")
	c := mustClaim(t, s, "q", "a:1")
	mustClaim(t, s, "q", "b:1")
	if err := s.Settle(t.Context(), "q", team.Settlement{Seq: c.Seq, Token: c.Token, Verdict: team.VerdictBury}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), "q", []team.Item{{ID: "old", Expires: time.Now().Add(-time.Hour)}}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "k", nil, ""); err != nil {
		t.Fatal(err)
	}
	st, err := s.Stats(t.Context())
	want := map[team.ItemState]int64{team.ItemPending: 1, team.ItemClaimed: 1, team.ItemDead: 1, team.ItemExpired: 1}
	if err != nil || fmt.Sprint(st.Items) != fmt.Sprint(want) || st.Records != 1 {
		t.Errorf("Stats = %+v, %v, want %v and 1 record", st, err, want)
	}
	if st.Transactions != 6 || st.Operations != 6 || st.FileBytes == 0 || st.WALBytes == 0 {
		t.Errorf("Stats = %+v, want 6 operations in 6 transactions and sizes", st)
	}
}

// 5 000 settled and one new.
func TestManySettled(t *testing.T) {
	n := scale(5000)
	s := openAt(t, filepath.Join(t.TempDir(), "s.db"), nil)
	var items []team.Item
	for i := range n {
		items = append(items, team.Item{ID: fmt.Sprint("i", i)})
	}
	if _, err := s.Append(t.Context(), "q", items, 0); err != nil {
		t.Fatal(err)
	}
	claims, err := s.Claim(t.Context(), "q", team.ClaimOptions{Max: n, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var list []team.Settlement
	for _, c := range claims {
		list = append(list, team.Settlement{Seq: c.Seq, Token: c.Token, Verdict: team.VerdictAck})
	}
	if err := s.Settle(t.Context(), "q", list...); err != nil {
		t.Fatal(err)
	}
	seq := mustAppend(t, s, "q", "new")[0]
	for it, err := range s.Items(t.Context(), "q", team.ListOptions{}) {
		if err != nil || it.Seq != seq {
			t.Errorf("Items yields %v, %v, want the new one only", it, err)
		}
	}
	for it, err := range s.Items(t.Context(), "q", team.ListOptions{Settled: true, After: seq - 1}) {
		if err != nil || it.Seq != seq {
			t.Errorf("Items behind the settled yields %v, %v, want the new one only", it, err)
		}
	}
	mustClaim(t, s, "q", "new:1")
}

// A head that nobody can handle does not block the queue.
func TestPoisonedHead(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "s.db"), nil)
	mustAppend(t, s, "q", "poison", "a", "b")
	opts := team.ClaimOptions{Max: 1, Lease: time.Minute, MaxAttempts: 3}
	got := ""
	for {
		c, err := s.Claim(t.Context(), "q", opts)
		if err != nil {
			t.Fatal(err)
		}
		if len(c) == 0 {
			break
		}
		st := team.Settlement{Seq: c[0].Seq, Token: c[0].Token, Verdict: team.VerdictAck}
		if c[0].ID == "poison" {
			st.Verdict = team.VerdictRelease
		}
		if err := s.Settle(t.Context(), "q", st); err != nil {
			t.Fatal(err)
		}
		got += c[0].ID + " "
	}
	if got != "poison poison poison a b " {
		t.Errorf("handed out %q, want the head three times and then the others", got)
	}
	if got := states(t, s, "q"); got != "poison:dead:3 a:acked:1 b:acked:1 " {
		t.Errorf("queue holds %q", got)
	}
}

// However many poisoned items there are, what lies behind them is handed out at once.
func TestManyPoisoned(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "s.db"), &sqlitestore.Options{Synchronous: sqlitestore.Normal})
	const poisoned = 2345
	if err := s.Exec(fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO items (queue, id, state, attempt, at, expires, cost, appended, changed, data)
		SELECT 'q', 'poison' || i, 0, 3, 0, 0, 0, 1, 1, x'' FROM n`, poisoned)); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, "q", "a")
	c, err := s.Claim(t.Context(), "q", team.ClaimOptions{Max: 1, Lease: time.Minute, MaxAttempts: 3})
	if err != nil || len(c) != 1 || c[0].ID != "a" {
		t.Errorf("Claim = %v, %v, want a", c, err)
	}
	if st, err := s.Stats(t.Context()); err != nil || st.Items[team.ItemDead] != poisoned || st.Items[team.ItemClaimed] != 1 {
		t.Errorf("Stats = %+v, %v, want %d dead and one claimed", st, err, poisoned)
	}
}

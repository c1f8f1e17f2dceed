package sqlitestore_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// What was written under a clock that was an hour fast, and was then set back: the order
// is that of sending, a claim that holds can be settled, nothing new waits behind it, a
// sweep takes nothing early, and the file is in order.
func TestClockSetBack(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "s.db"), nil)
	ctx := t.Context()
	mustAppend(t, s, "q", "acked", "held", "a")
	if _, err := s.Append(ctx, "q", []team.Item{{ID: "fleeting", Expires: time.Now().Add(time.Minute)}}, 0); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, "q", "delayed")
	mustAppend(t, s, "q", "b")
	if _, err := s.Put(ctx, "k", []byte("1"), ""); err != nil {
		t.Fatal(err)
	}
	settle := func(c team.Claim, st team.Settlement) {
		t.Helper()
		st.Seq, st.Token = c.Seq, c.Token
		if err := s.Settle(ctx, "q", st); err != nil {
			t.Errorf("%s of %s = %v, want no error", st.Verdict, c.ID, err)
		}
	}
	ack := team.Settlement{Verdict: team.VerdictAck}
	settle(mustClaim(t, s, "q", "acked:1"), ack)
	held := mustClaim(t, s, "q", "held:1")
	all, err := s.Claim(ctx, "q", team.ClaimOptions{Max: 9, Lease: time.Hour})
	if err != nil || len(all) != 4 {
		t.Fatalf("Claim = %v, %v, want four", all, err)
	}
	for _, c := range all {
		st := team.Settlement{Verdict: team.VerdictRelease}
		if c.ID == "delayed" {
			st.Delay = time.Second
		}
		settle(c, st)
	}
	if err := s.Exec(`UPDATE items SET appended = appended + 3600000, changed = changed + 3600000,
		at = iif(at > 0, at + 3600000, 0), expires = iif(expires > 0, expires + 3600000, 0)`); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, "q", "c")
	if _, err := s.Sweep(ctx, sqlitestore.SweepPolicy{Age: time.Minute}); err != nil {
		t.Errorf("Sweep = %v, want no error", err)
	}
	if got, want := states(t, s, "q"), "acked:acked:1 held:claimed:1 a:pending:1 fleeting:pending:1 delayed:pending:1 b:pending:1 c:pending:0 "; got != want {
		t.Errorf("queue holds %q, want %q", got, want)
	}
	for _, want := range []string{"a:2", "fleeting:2", "b:2", "c:1"} { // the delay is over in an hour
		settle(mustClaim(t, s, "q", want), ack)
	}
	settle(held, ack)
	if v, err := s.Put(ctx, "k", []byte("2"), "v1"); err != nil || v == "v1" {
		t.Errorf("Put = %s, %v, want another version", v, err)
	}
	if err := s.Check(ctx); err != nil {
		t.Errorf("Check = %v, want no error", err)
	}
	if st, err := s.Stats(ctx); err != nil || st.Items[team.ItemAcked] != 6 || st.Items[team.ItemPending] != 1 {
		t.Errorf("Stats = %+v, %v, want 6 acked and the delayed one", st, err)
	}
}

package sqlitestore_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// sends is 10 000 in the whole torture, which takes minutes.
var sends = flag.Int("torture", 500, "how many `items` each of the 8 processes of TestTorture sends")

// scale makes a test smaller where everything is slower.
func scale(n int) int {
	switch {
	case raceEnabled:
		return max(n/4, 1)
	case testing.Short():
		return max(n/2, 1)
	}
	return n
}

// Field report: the first opening of a path by several processes at once fails,
// since they change its pragmas at the same time.
func TestOpenAtOnce(t *testing.T) {
	t.Parallel()
	const processes = 8
	rounds := scale(24)
	every := 60 * time.Millisecond
	dir := t.TempDir()
	first := time.Now().Add(time.Second)
	var all []*process
	for i := range processes {
		all = append(all, start(t, "opener", dir, fmt.Sprint("p", i), first.UnixNano(), every.Nanoseconds(), rounds))
	}
	for _, p := range all {
		p.lines()
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("opener = %v, want every process to open every path", err)
		}
	}
	for i := range rounds {
		s := openAt(t, filepath.Join(dir, fmt.Sprint("new", i), "s.db"), nil)
		n := 0
		for _, err := range s.Items(t.Context(), "q", team.ListOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != processes {
			t.Errorf("round %d: %d items, want one of each of %d processes", i, n, processes)
		}
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("round %d: Check = %v, want no error", i, err)
		}
	}
}

// Senders and receivers in many processes, killed at random and started again.
func TestTorture(t *testing.T) {
	t.Parallel()
	const senders, lanes, lease = 8, 8, 400 * time.Millisecond
	each := scale(*sends)
	path := filepath.Join(t.TempDir(), "s.db")
	s := openAt(t, path, nil)

	acknowledged := make([]map[int]sent, senders)
	stop := make(chan struct{})
	var killed atomic.Int64
	var sending, rest sync.WaitGroup
	for n := range senders {
		acknowledged[n] = make(map[int]sent)
		sending.Go(func() {
			for next, life := 0, 1; next < each && !t.Failed(); life++ {
				// Some of it once more than is needed.
				p := start(t, "sender", path, fmt.Sprint("s", n), max(next-3, 0), each, life, lanes)
				dies := next + 1 + rand.N(max(each/2, 1)) // some live long enough to finish
				next = listen(t, p, n, acknowledged[n], next, dies)
				if next < each {
					killed.Add(1)
				}
			}
		})
	}
	for n := range queues {
		rest.Go(func() {
			for !t.Failed() {
				p := start(t, "receiver", path, queueOf(n), lease)
				alive := time.After(50*time.Millisecond + rand.N(1000*time.Millisecond))
				go func() {
					select {
					case <-alive:
					case <-stop:
					}
					_ = p.cmd.Process.Kill()
				}()
				inOrder(t, p)
				killed.Add(1)
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	sending.Wait()
	close(stop)
	rest.Wait()

	// What is left of killed receivers comes back.
	for n := range queues {
		drain(t, s, queueOf(n))
	}
	perSender := make([]int, senders)
	byKey := make(map[string]team.StoredItem)
	for n := range queues {
		last := make(map[string]int)
		for it, err := range s.Items(t.Context(), queueOf(n), team.ListOptions{Settled: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := byKey[it.Key]; ok {
				t.Errorf("%s is there twice, want once", it.Key)
			}
			byKey[it.Key] = it
			if it.State != team.ItemAcked {
				t.Errorf("%s is %s, want acked", it.Key, it.State)
			}
			var sender, i int
			if _, err := fmt.Sscanf(it.Key, "s%d/%d", &sender, &i); err != nil {
				t.Fatalf("key %q: %v", it.Key, err)
			}
			perSender[sender]++
			lane := fmt.Sprintf("lane %d of sender %d", i%lanes, sender)
			if before, ok := last[lane]; ok && i <= before {
				t.Errorf("%s: item %d of %s lies behind item %d", queueOf(n), i, lane, before)
			}
			last[lane] = i
		}
	}
	for n, got := range perSender {
		if got != each {
			t.Errorf("%d items of sender %d, want %d", got, n, each)
		}
		for i, want := range acknowledged[n] {
			it := byKey[fmt.Sprintf("s%d/%d", n, i)]
			if it.ID != want.id || it.Seq != want.seq {
				t.Errorf("item %d of sender %d is %s, seq %d; acknowledged was %v", i, n, it.ID, it.Seq, want)
			}
		}
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check = %v, want no error", err)
	}
	// .ci/run looks for this line.
	t.Logf("%d processes have sent %d items each, and %d were killed", senders, each, killed.Load())
}

// A sent item is what a sender was told of it.
type sent struct {
	id  string
	seq team.Seq
}

// listen notes what a sender says, and kills it when it has sent item number dies. It
// returns the first item that was not acknowledged.
func listen(t *testing.T, p *process, sender int, acknowledged map[int]sent, next, dies int) int {
	defer p.mustNotFail()
	for {
		line, ok := p.line()
		if !ok {
			return next
		}
		var i int
		var r sent
		if n, err := fmt.Sscan(line, &i, &r.id, &r.seq); n < 3 {
			t.Logf("sender %d was killed in a line: %q, %v", sender, line, err)
			return next
		}
		if old, ok := acknowledged[i]; ok && old != r {
			t.Errorf("sender %d: item %d was acknowledged as %v, and later as %v", sender, i, old, r)
		}
		acknowledged[i] = r
		for _, ok := acknowledged[next]; ok; _, ok = acknowledged[next] {
			next++
		}
		if i >= dies {
			_ = p.cmd.Process.Kill()
		}
	}
}

// inOrder follows a receiver: what is handed out for the first time comes in order.
func inOrder(t *testing.T, p *process) {
	defer p.mustNotFail()
	for last := 0; ; {
		line, ok := p.line()
		if !ok {
			return
		}
		f := strings.Fields(line)
		if len(f) < 4 {
			return
		}
		seq, _ := strconv.Atoi(f[2])
		if f[3] == "1" {
			if seq <= last {
				t.Errorf("%s: seq %d was handed out after %d", f[0], seq, last)
			}
			last = seq
		}
	}
}

// drain claims and acks until queue has nothing open.
func drain(t *testing.T, s *sqlitestore.Store, queue string) {
	t.Helper()
	for {
		open := 0
		for _, err := range s.Items(t.Context(), queue, team.ListOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			open++
		}
		if open == 0 {
			return
		}
		claims, err := s.Claim(t.Context(), queue, team.ClaimOptions{Max: 100, Lease: time.Minute, Wait: true})
		if err != nil {
			t.Fatal(err)
		}
		var list []team.Settlement
		for _, c := range claims {
			list = append(list, team.Settlement{Seq: c.Seq, Token: c.Token, Verdict: team.VerdictAck})
		}
		if err := s.Settle(t.Context(), queue, list...); err != nil {
			t.Fatal(err)
		}
	}
}

// A read followed by a write, in several processes: nobody overwrites anybody.
func TestPutFromProcesses(t *testing.T) {
	const processes = 4
	each := scale(60)
	path := filepath.Join(t.TempDir(), "s.db")
	s := openAt(t, path, nil)
	var all []*process
	for i := range processes {
		key := "shared"
		if i%2 == 1 {
			key = "other"
		}
		all = append(all, start(t, "putter", path, i, key, each))
	}
	for _, p := range all {
		p.lines()
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("putter = %v, want it to end well", err)
		}
	}
	for _, key := range []string{"shared", "other"} {
		r, err := s.Get(t.Context(), key)
		if want := fmt.Sprint(processes / 2 * each); err != nil || string(r.Value) != want {
			t.Errorf("Get(%q) = %q, %v, want %q", key, r.Value, err, want)
		}
	}
}

// A receiver dies between claim and ack.
func TestReceiverDies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := openAt(t, path, nil)
	mustAppend(t, s, "q", "a", "b")
	p := start(t, "claimer", path, "q", 300*time.Millisecond)
	line, _ := p.line()
	f := strings.Fields(line)
	if len(f) != 3 || f[0] != "a" || f[1] != "1" {
		t.Fatalf("child claims %q, want a, attempt 1", line)
	}
	p.kill()
	ms, _ := strconv.ParseInt(f[2], 10, 64)
	until := time.UnixMilli(ms)
	b := mustClaim(t, s, "q", "b:1")
	a := mustClaim(t, s, "q", "a:2")
	if time.Now().Before(until) {
		t.Errorf("a came back %v before its lease ended", time.Until(until))
	}
	err := s.Settle(t.Context(), "q",
		team.Settlement{Seq: a.Seq, Token: a.Token, Verdict: team.VerdictAck},
		team.Settlement{Seq: b.Seq, Token: b.Token, Verdict: team.VerdictAck})
	if err != nil {
		t.Errorf("Settle = %v, want no error", err)
	}
}

// What is sent here wakes who waits there, by the bell: the child does not look by itself.
func TestWakeAcrossProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := openAt(t, path, nil)
	var woken, claimed []time.Duration
	for _, w := range wakes(t, s, path, sqlitestore.Full, scale(100), func() {}) {
		woken = append(woken, w.woken)
		claimed = append(claimed, w.claimed)
	}
	t.Logf("woken p50 %v, p99 %v; claimed p50 %v, p99 %v",
		quantile(woken, 0.5), quantile(woken, 0.99), quantile(claimed, 0.5), quantile(claimed, 0.99))
}

// A wake is how long after the start of an Append a receiver in another process had found
// the item, and how long after it had claimed it.
type wake struct{ woken, claimed time.Duration }

// wakes sends n items to a receiver in another process, with between before each.
func wakes(tb testing.TB, s *sqlitestore.Store, path string, sync sqlitestore.Synchronous, n int, between func()) (list []wake) {
	p := start(tb, "waiter", path, "q", int(sync))
	if line, _ := p.line(); line != "open" {
		tb.Fatalf("child says %q, want open", line)
	}
	for range n {
		between()
		time.Sleep(time.Duration(2+rand.N(4)) * time.Millisecond) // until it waits again
		id := fmt.Sprint(time.Now().UnixNano())
		begun := time.Now().UnixNano()
		benchAppend(tb, s, "q", id)
		line, _ := p.line()
		var woken, claimed int64
		var got string
		if _, err := fmt.Sscan(line, &woken, &claimed, &got); err != nil || got != id {
			tb.Fatalf("child got %q, want %s", line, id)
		}
		list = append(list, wake{time.Duration(woken - begun), time.Duration(claimed - begun)})
	}
	p.stop()
	return list
}

// Waiting costs next to nothing.
func TestIdle(t *testing.T) {
	if testing.Short() {
		t.Skip("takes four seconds")
	}
	t.Parallel()
	p := start(t, "idle", filepath.Join(t.TempDir(), "s.db"))
	line, _ := p.line()
	share, err := strconv.ParseFloat(line, 64)
	t.Logf("waiting takes %.3f %% of a core", share*100)
	if most := 0.002; err != nil || share > most && !raceEnabled {
		t.Errorf("waiting takes %q of a core, %v, want %v at most", line, err, most)
	}
	p.stop()
}

// Ack fails across restarts: the lease runs out each time, and at the end the item
// is dead, with what lies behind it moved up.
func TestAckFailsAcrossRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	opts := team.ClaimOptions{Max: 1, Lease: 20 * time.Millisecond, MaxAttempts: 3, Wait: true}
	s, err := sqlitestore.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, "q", "head", "next")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]int)
	for range 6 {
		s, err := sqlitestore.Open(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Claim(t.Context(), "q", opts)
		if err != nil || len(c) != 1 {
			t.Fatalf("Claim = %v, %v, want one item", c, err)
		}
		if seen[c[0].ID]++; c[0].Attempt != seen[c[0].ID] {
			t.Errorf("attempt of %s = %d, want %d", c[0].ID, c[0].Attempt, seen[c[0].ID])
		}
		time.Sleep(time.Until(c[0].Until) + time.Millisecond)
		err = s.Settle(t.Context(), "q", team.Settlement{Seq: c[0].Seq, Token: c[0].Token, Verdict: team.VerdictAck})
		if !errors.Is(err, team.ErrConflict) {
			t.Errorf("Settle after the lease = %v, want ErrConflict", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if seen["head"] != 3 || seen["next"] != 3 {
		t.Errorf("handed out %v, want each three times", seen)
	}
	s = openAt(t, path, nil)
	if c, err := s.Claim(t.Context(), "q", team.ClaimOptions{Max: 1, Lease: time.Second, MaxAttempts: 3}); err != nil || len(c) != 0 {
		t.Errorf("Claim = %v, %v, want none", c, err)
	}
	for it, err := range s.Items(t.Context(), "q", team.ListOptions{Settled: true}) {
		if err != nil || it.State != team.ItemDead || !strings.Contains(it.Reason, "3") {
			t.Errorf("%s is %s (%q), %v, want dead after 3 attempts", it.ID, it.State, it.Reason, err)
		}
	}
}

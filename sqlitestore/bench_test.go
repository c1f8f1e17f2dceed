package sqlitestore_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// What is compared is measured in turns, in one run on one disk, so that
// "ratio" means something on a machine that others use too: medians of both.

var benchData = make([]byte, 256)

// bare is a connection to a file with the store's tables, set up alike, for the
// plain statements that the store is measured against.
type bare struct {
	tb testing.TB
	*sqlite3.Conn
}

func openBare(tb testing.TB, synchronous string) bare {
	path := filepath.Join(tb.TempDir(), "bare.db")
	s, err := sqlitestore.Open(tb.Context(), path, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.Close(); err != nil {
		tb.Fatal(err)
	}
	c, err := sqlite3.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	b := bare{tb, c}
	b.must(c.Exec(`PRAGMA temp_store = memory; PRAGMA cache_size = -16384; PRAGMA synchronous = ` + synchronous))
	return b
}

func (b bare) must(err error) {
	if err != nil {
		b.tb.Helper()
		b.tb.Fatal(err)
	}
}

func (b bare) prepare(sql string) *sqlite3.Stmt {
	s, _, err := b.PrepareFlags(sql, sqlite3.PREPARE_PERSISTENT)
	b.must(err)
	b.tb.Cleanup(func() { s.Close() })
	return s
}

const bareInsert = `INSERT INTO items (queue, id, state, attempt, at, expires, cost, appended, changed, data)
	VALUES (?1, ?2, 0, 0, 0, 0, 0, ?3, ?3, ?4)`

func (b bare) insert(s *sqlite3.Stmt, id string) {
	b.must(s.BindText(1, "q"))
	b.must(s.BindText(2, id))
	b.must(s.BindInt64(3, time.Now().UnixMilli()))
	b.must(s.BindBlob(4, benchData))
	b.must(s.Exec())
}

// pair collects the times of two things that are compared.
type pair struct{ ours, bare []time.Duration }

func timed(list *[]time.Duration, f func()) {
	start := time.Now()
	f()
	*list = append(*list, time.Since(start))
}

func quantile(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return list[int(q*float64(len(list)-1))]
}

// report reports the medians, per n things.
func (p *pair) report(b *testing.B, n int) {
	ours, bare := quantile(p.ours, 0.5), quantile(p.bare, 0.5)
	b.ReportMetric(0, "ns/op") // of both together, which is of no use
	b.ReportMetric(float64(ours.Nanoseconds())/float64(n), "ours-ns")
	b.ReportMetric(float64(bare.Nanoseconds())/float64(n), "bare-ns")
	b.ReportMetric(float64(ours)/float64(bare), "ratio")
	b.ReportMetric(float64(n)/ours.Seconds(), "msg/s")
	if n == 1 { // else it is the time of all n
		b.ReportMetric(ours.Seconds()*1e3, "p50-ms")
		b.ReportMetric(quantile(p.ours, 0.99).Seconds()*1e3, "p99-ms")
	}
}

// reportSyncs reports how many transactions, each of which has one fsync, there were for
// each of n messages.
func reportSyncs(b *testing.B, s *sqlitestore.Store, n int) {
	st, err := s.Stats(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(st.Transactions)/float64(n), "fsyncs/msg")
}

func BenchmarkAppend(b *testing.B) {
	b.Run("sync=full/senders=1", func(b *testing.B) {
		s, raw := openAt(b, filepath.Join(b.TempDir(), "s.db"), nil), openBare(b, "full")
		insert := raw.prepare(bareInsert)
		n := 0
		var p pair
		for b.Loop() {
			n++
			id := fmt.Sprint("i", n)
			timed(&p.ours, func() { benchAppend(b, s, "q", id) })
			timed(&p.bare, func() { raw.insert(insert, id) })
		}
		p.report(b, 1)
		reportSyncs(b, s, n)
	})

	b.Run("sync=full/senders=64", func(b *testing.B) {
		const senders, each = 64, 32
		s, raw := openAt(b, filepath.Join(b.TempDir(), "s.db"), nil), openBare(b, "full")
		insert := raw.prepare(bareInsert)
		n := 0
		var p pair
		for b.Loop() {
			n++
			timed(&p.ours, func() {
				var wg sync.WaitGroup
				for w := range senders {
					wg.Go(func() {
						for i := range each {
							benchAppend(b, s, "q", fmt.Sprintf("i%d.%d.%d", n, w, i))
						}
					})
				}
				wg.Wait()
			})
			timed(&p.bare, func() {
				for i := range each {
					raw.must(raw.Exec(`BEGIN IMMEDIATE`))
					for w := range senders {
						raw.insert(insert, fmt.Sprintf("i%d.%d.%d", n, w, i))
					}
					raw.must(raw.Exec(`COMMIT`))
				}
			})
		}
		p.report(b, senders*each)
		b.ReportMetric(float64(quantile(p.bare, 0.5))/float64(quantile(p.ours, 0.5))*100, "%of-batches")
		reportSyncs(b, s, n*senders*each)
	})
}

func benchAppend(tb testing.TB, s team.Store, queue, id string) {
	if _, err := s.Append(tb.Context(), queue, []team.Item{{ID: id, Data: benchData}}, 0); err != nil {
		tb.Error(err)
	}
}

func BenchmarkCycle(b *testing.B) {
	b.Run("sync=normal", func(b *testing.B) {
		s := openAt(b, filepath.Join(b.TempDir(), "s.db"), &sqlitestore.Options{Synchronous: sqlitestore.Normal})
		raw := openBare(b, "normal")
		insert := raw.prepare(bareInsert)
		claim := raw.prepare(`UPDATE items SET state = 2, attempt = attempt + 1, at = ?2, token = ?3, changed = ?4
			WHERE seq = (SELECT seq FROM items INDEXED BY items_open WHERE queue = ?1 AND state = 0 AND state <= 2 ORDER BY seq LIMIT 1)
			RETURNING seq, id, key, digest, cost, expires, attempt, data`)
		ack := raw.prepare(`UPDATE items SET state = 3, at = 0, token = NULL, changed = ?4
			WHERE seq = ?1 AND queue = ?2 AND state = 2 AND token = ?3 AND at > ?4`)
		n := 0
		var p pair
		for b.Loop() {
			n++
			id := fmt.Sprint("i", n)
			timed(&p.ours, func() {
				benchAppend(b, s, "q", id)
				c, err := s.Claim(b.Context(), "q", team.ClaimOptions{Max: 1, Lease: time.Minute})
				if err != nil || len(c) != 1 {
					b.Fatalf("Claim = %v, %v, want one item", c, err)
				}
				if err := s.Settle(b.Context(), "q", team.Settlement{Seq: c[0].Seq, Token: c[0].Token, Verdict: team.VerdictAck}); err != nil {
					b.Fatal(err)
				}
			})
			timed(&p.bare, func() {
				raw.insert(insert, id)
				now := time.Now().UnixMilli()
				raw.must(claim.BindText(1, "q"))
				raw.must(claim.BindInt64(2, now+60000))
				raw.must(claim.BindText(3, fmt.Sprintf("ABCDEFGHIJKLMNOPQ%09d", n)))
				raw.must(claim.BindInt64(4, now))
				var seq int64
				for claim.Step() {
					seq = claim.ColumnInt64(0)
					_ = claim.ColumnText(1)
					_ = claim.ColumnBlob(7, nil)
				}
				raw.must(claim.Reset())
				raw.must(ack.BindInt64(1, seq))
				raw.must(ack.BindText(2, "q"))
				raw.must(ack.BindText(3, fmt.Sprintf("ABCDEFGHIJKLMNOPQ%09d", n)))
				raw.must(ack.BindInt64(4, now))
				raw.must(ack.Exec())
			})
		}
		p.report(b, 1)
	})
}

// From the start of Append here until a receiver in another process is woken, which
// is when it has found the item and is about to write that it claims it, and until it has
// the item in its hands. With full the first takes one fsync, the second two.
func BenchmarkWake(b *testing.B) {
	for _, mode := range []struct {
		name string
		sync sqlitestore.Synchronous
	}{{"full", sqlitestore.Full}, {"normal", sqlitestore.Normal}} {
		b.Run("sync="+mode.name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "s.db")
			s := openAt(b, path, &sqlitestore.Options{Synchronous: mode.sync})
			least := openFloor(b)
			var woken, claimed, alone []time.Duration
			for b.Loop() {
				for _, w := range wakes(b, s, path, mode.sync, 200, func() {
					time.Sleep(3 * time.Millisecond)
					least.sync()
					timed(&alone, func() { benchAppend(b, s, "nobody", fmt.Sprint("i", len(alone))) })
				}) {
					woken = append(woken, w.woken)
					claimed = append(claimed, w.claimed)
				}
			}
			b.ReportMetric(0, "ns/op")
			report := func(name string, list []time.Duration) {
				b.ReportMetric(quantile(list, 0.5).Seconds()*1e3, name+"-p50-ms")
				b.ReportMetric(quantile(list, 0.99).Seconds()*1e3, name+"-p99-ms")
			}
			report("woken", woken)
			report("claimed", claimed)
			report("append", alone)
			report("fsync", least.took)
		})
	}
}

// A floor is a file that does not grow, for the least that a transaction must take: what
// one Append writes, and an fsync.
type floor struct {
	tb   testing.TB
	file *os.File
	next int
	took []time.Duration
}

const (
	floorWrite  = 5 * 4096
	floorWrites = 200
)

func openFloor(tb testing.TB) *floor {
	file, err := os.Create(filepath.Join(tb.TempDir(), "floor"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { file.Close() })
	if _, err := file.Write(make([]byte, floorWrite*floorWrites)); err != nil {
		tb.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		tb.Fatal(err)
	}
	return &floor{tb: tb, file: file}
}

func (f *floor) sync() {
	data := bytes.Repeat([]byte{byte(len(f.took))}, floorWrite)
	timed(&f.took, func() {
		if _, err := f.file.WriteAt(data, int64(f.next)*floorWrite); err != nil {
			f.tb.Fatal(err)
		}
		if err := syncData(f.file); err != nil {
			f.tb.Fatal(err)
		}
	})
	f.next = (f.next + 1) % floorWrites
}

// What a receiver pays must not grow with what lies behind it.
func BenchmarkClaimRelease(b *testing.B) {
	const settled = 1_000_000
	b.Run(fmt.Sprintf("settled=%d", settled), func(b *testing.B) {
		path := filepath.Join(b.TempDir(), "full.db")
		s, err := sqlitestore.Open(b.Context(), path, nil)
		if err != nil {
			b.Fatal(err)
		}
		// As the store would have left them, only faster.
		if err := s.Exec(fmt.Sprintf(`PRAGMA synchronous = off; BEGIN;
			WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO items (queue, id, state, attempt, at, expires, cost, appended, changed, data)
			SELECT 'q', printf('old%%08d', i), 3, 1, 0, 0, 0, 1, 1, zeroblob(100) FROM n;
			COMMIT`, settled)); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		normal := &sqlitestore.Options{Synchronous: sqlitestore.Normal}
		full, empty := openAt(b, path, normal), openAt(b, filepath.Join(b.TempDir(), "empty.db"), normal)
		mustAppend(b, full, "q", "new")
		mustAppend(b, empty, "q", "new")
		cycle := func(s *sqlitestore.Store) {
			c, err := s.Claim(b.Context(), "q", team.ClaimOptions{Max: 1, Lease: time.Minute})
			if err != nil || len(c) != 1 {
				b.Fatalf("Claim = %v, %v, want one item", c, err)
			}
			st := team.Settlement{Seq: c[0].Seq, Token: c[0].Token, Verdict: team.VerdictRelease}
			if err := s.Settle(b.Context(), "q", st); err != nil {
				b.Fatal(err)
			}
		}
		var p pair
		for b.Loop() {
			timed(&p.ours, func() { cycle(full) })
			timed(&p.bare, func() { cycle(empty) })
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(quantile(p.ours, 0.5).Nanoseconds()), "full-ns")
		b.ReportMetric(float64(quantile(p.bare, 0.5).Nanoseconds()), "empty-ns")
		b.ReportMetric(float64(quantile(p.ours, 0.5))/float64(quantile(p.bare, 0.5)), "ratio")
	})
}

// Eight processes that send at once, each one signal at a time.
func BenchmarkProcesses(b *testing.B) {
	b.Run("processes=8/sync=full", func(b *testing.B) {
		const processes, each = 8, 500
		least := openFloor(b)
		var took []time.Duration
		var elapsed time.Duration
		n := 0
		for b.Loop() {
			for range 100 {
				least.sync()
			}
			path := filepath.Join(b.TempDir(), "s.db")
			s := openAt(b, path, nil)
			mustAppend(b, s, "q", "a")
			begun := time.Now()
			var all []*process
			for i := range processes {
				all = append(all, start(b, "sender", path, fmt.Sprint("s", i), 0, each, 1, 1))
			}
			for _, p := range all {
				for _, line := range p.lines() {
					var i, seq int
					var id string
					var ns int64
					if _, err := fmt.Sscan(line, &i, &id, &seq, &ns); err != nil {
						b.Fatalf("child says %q: %v", line, err)
					}
					took = append(took, time.Duration(ns))
					n++
				}
				if err := p.cmd.Wait(); err != nil {
					b.Fatalf("sender = %v, want no busy error", err)
				}
			}
			elapsed += time.Since(begun)
			st, err := s.Stats(b.Context())
			if err != nil || st.Items[team.ItemPending] != processes*each+1 {
				b.Fatalf("Stats = %+v, %v, want all items", st, err)
			}
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(n)/elapsed.Seconds(), "msg/s")
		b.ReportMetric(quantile(took, 0.5).Seconds()*1e3, "p50-ms")
		b.ReportMetric(quantile(took, 0.99).Seconds()*1e3, "p99-ms")
		b.ReportMetric(quantile(took, 1).Seconds()*1e3, "worst-ms")
		fsync := quantile(least.took, 0.5)
		b.ReportMetric(fsync.Seconds()*1e3, "fsync-p50-ms")
		b.ReportMetric(float64(quantile(took, 0.99))/float64(fsync), "p99/fsync")
	})
}

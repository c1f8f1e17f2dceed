package team_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

func openTrail(tb testing.TB, dir string, opts *team.TrailOptions) *team.Trail {
	tb.Helper()
	trail, err := team.OpenTrail(tb.Context(), dir, opts)
	require.NoError(tb, err)
	tb.Cleanup(func() { trail.Close() })
	return trail
}

// verifyTrail verifies a trail that must hold.
func verifyTrail(tb testing.TB, dir string) team.TrailReport {
	tb.Helper()
	report, err := team.VerifyTrail(tb.Context(), dir)
	require.NoError(tb, err)
	require.NoError(tb, report.Err(), "%+v", report.Breaks)
	return report
}

// trailLines reads all lines of a trail.
func trailLines(tb testing.TB, dir string) (lines []team.TrailLine) {
	tb.Helper()
	for l, err := range team.ReadTrail(tb.Context(), dir) {
		require.NoError(tb, err)
		lines = append(lines, l)
	}
	return lines
}

func trailFiles(tb testing.TB, dir string) []string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "trail-*.jsonl"))
	require.NoError(tb, err)
	return files
}

// record writes n lines with the ids "<name>-0", "<name>-1", ….
func record(trail *team.Trail, name string, n int) {
	for i := range n {
		trail.Record(context.Background(), team.TraceEvent{
			Op: "board.write", ID: fmt.Sprint(name, "-", i), By: team.Caller{Session: "ses_a", Role: "tester"}, Outcome: "ok", Size: 4096,
		})
	}
}

// childTrail records: DIR NAME N FILESIZE. With N = 0 it goes on until it is
// killed, in four goroutines, and prints the id of each line that is recorded.
func childTrail(args []string) error {
	n, _ := strconv.Atoi(args[2])
	size, _ := strconv.ParseInt(args[3], 10, 64)
	trail, err := team.OpenTrail(context.Background(), args[0], &team.TrailOptions{
		FileSize: size, Files: team.NoLimit, Patience: 30 * time.Second,
	})
	if err != nil {
		return err
	}
	if n > 0 {
		record(trail, args[1], n)
		if s := trail.Stats(); s.Lost+s.Faults > 0 {
			return fmt.Errorf("%+v", s)
		}
		return trail.Close()
	}
	for g := range 4 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprint(args[1], "-", g, "-", i)
				trail.Record(context.Background(), team.TraceEvent{Op: "inbox.send", ID: id, Reason: strings.Repeat("x", i%250)})
				fmt.Println(id)
			}
		}()
	}
	select {}
}

func TestTrailRecordsEveryWrite(t *testing.T) {
	dir := t.TempDir()
	trail := openTrail(t, dir, nil)
	ctx := as(t.Context(), "lead")
	sha := strings.Repeat("0123456789abcdef", 4)
	trail.Record(ctx, team.TraceEvent{
		Op: "inbox.send", ID: "sig_1", ReplyTo: "sig_0", Target: "ses_secret", Outcome: "ok", Reason: "new",
		Size: 77, SHA256: sha, Round: 2, HostID: "msg_9", Count: 3,
	})
	lines := trailLines(t, dir)
	require.Len(t, lines, 2)
	require.Equal(t, "trail.begin", lines[0].Event.Op)
	require.Equal(t, team.TraceEvent{
		Op: "inbox.send", ID: "sig_1", ReplyTo: "sig_0", By: team.Caller{Session: "ses_lead", Role: "lead"}, Outcome: "ok",
		Reason: "new", Size: 77, SHA256: sha, Round: 2, HostID: "msg_9", Count: 3,
	}, lines[1].Event, "the author comes from the context")
	require.Equal(t, trail.TargetDigest("ses_secret"), lines[1].Target)
	require.Equal(t, lines[0].Hash, lines[1].Prev, "each line has the hash of the line before")
	require.EqualValues(t, 2, lines[1].Seq)
	require.WithinDuration(t, time.Now(), lines[1].Time, time.Minute)
	require.EqualValues(t, 2, trail.Stats().Lines)

	report := verifyTrail(t, dir)
	require.EqualValues(t, 2, report.Lines)
	require.Equal(t, lines[0], report.First)
	require.Equal(t, lines[1], report.Last)

	// Another Trail goes on where the first ended, with the same key.
	again := openTrail(t, dir, nil)
	require.Equal(t, trail.TargetDigest("x"), again.TargetDigest("x"))
	require.NotEqual(t, trail.TargetDigest("x"), openTrail(t, t.TempDir(), nil).TargetDigest("x"), "two trails have nothing in common")
	record(again, "b", 3)
	record(trail, "a", 3)
	require.EqualValues(t, 8, verifyTrail(t, dir).Lines)
	for name, mode := range map[string]os.FileMode{".": 0o700, "trail.head": 0o600, "trail.key": 0o600, "trail-00000001.jsonl": 0o600} {
		fi, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		if name != "." { // t.TempDir made that
			require.Equal(t, mode, fi.Mode().Perm(), name)
		}
	}
}

func TestTrailDir(t *testing.T) {
	ws := t.TempDir()
	state, err := team.StateDir(ws)
	require.NoError(t, err)
	dir, err := team.TrailDir(ws)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(state, "trail"), dir)
	_, err = os.Stat(state)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestTrailManyProcesses: several processes and goroutines append to one trail
// at once, over many files, and every line is there, once.
func TestTrailManyProcesses(t *testing.T) {
	const processes, each = 8, 400
	dir := filepath.Join(t.TempDir(), "trail")
	var wg sync.WaitGroup
	for p := range processes {
		wg.Go(func() {
			if out, err := child(t, "trail", dir, fmt.Sprint("p", p), fmt.Sprint(each), "30000").Output(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	last := make(map[string]int)
	n := 0
	for _, l := range trailLines(t, dir) {
		require.Empty(t, l.Damage)
		if name, i, ok := strings.Cut(l.Event.ID, "-"); ok {
			require.Equal(t, fmt.Sprint(last[name]), i, "%s: lines of one writer keep their order", name)
			last[name]++
			n++
		}
	}
	require.Equal(t, processes*each, n)
	report := verifyTrail(t, dir)
	require.Greater(t, report.Files, 20)
	require.EqualValues(t, processes*each+report.Files, report.Lines)
	require.Zero(t, report.TornCount)
	for _, name := range trailFiles(t, dir) {
		fi, err := os.Stat(name)
		require.NoError(t, err)
		require.LessOrEqual(t, fi.Size(), int64(30000))
	}
}

// TestTrailKill kills writers at any instruction, again and again: what was
// recorded is there, the chain holds, and nobody is blocked.
func TestTrailKill(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	dir := filepath.Join(t.TempDir(), "trail")
	recorded := make(map[string]bool)
	// All on one trail use the same options, or this process would drop old files.
	opts := &team.TrailOptions{FileSize: 20000, Files: team.NoLimit}
	record(openTrail(t, dir, opts), "before", 1)
	for round := range rounds {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for p := range 2 {
			cmd := child(t, "trail", dir, fmt.Sprint("r", round, "p", p), "0", "20000")
			cmd.Stderr = nil
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			wg.Go(func() {
				var kill *time.Timer // some time after its first line
				for s := bufio.NewScanner(out); s.Scan(); {
					mu.Lock()
					recorded[s.Text()] = true
					mu.Unlock()
					if kill == nil {
						kill = time.AfterFunc(time.Duration(rand.IntN(40))*time.Millisecond, func() { cmd.Process.Kill() })
					}
				}
				cmd.Wait()
			})
		}
		wg.Wait()
		verifyTrail(t, dir)
	}
	trail := openTrail(t, dir, opts)
	record(trail, "after", 1)
	require.Zero(t, trail.Stats().Lost)
	recorded["after-0"] = true
	require.Greater(t, len(recorded), rounds)
	for _, l := range trailLines(t, dir) {
		delete(recorded, l.Event.ID)
	}
	require.Empty(t, recorded, "lines that Record had returned for are missing")
	verifyTrail(t, dir)
}

// TestTrailTear: the rest of a killed writer is marked in the chain by the next
// one, and the trail holds.
func TestTrailTear(t *testing.T) {
	for _, what := range []string{"a part of a line", "a line without its newline", "two tears in a row", "the newline of a mark"} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			trail := openTrail(t, dir, nil)
			// What the next write would be is taken from a copy of the trail.
			record(trail, "a", 3)
			copied := t.TempDir()
			require.NoError(t, os.CopyFS(filepath.Join(copied, "c"), os.DirFS(dir)))
			record(openTrail(t, filepath.Join(copied, "c"), nil), `b"}`, 1)
			name := filepath.Join(dir, "trail-00000001.jsonl")
			before, err := os.ReadFile(name)
			require.NoError(t, err)
			after, err := os.ReadFile(filepath.Join(copied, "c", "trail-00000001.jsonl"))
			require.NoError(t, err)
			next := after[len(before):]
			torn := 1
			var tail []byte
			switch what {
			case "a part of a line":
				tail = next[:bytes.Index(next, []byte(`b\"}`))+4]
			case "a line without its newline":
				tail, torn = next[:len(next)-1], 0
			case "two tears in a row":
				tail = slices.Concat(next[:20], []byte("\n"), next[:150])
			case "the newline of a mark":
				tail = slices.Concat(next[:20], []byte("\n"))
			}
			put(t, name, string(before)+string(tail))
			report := verifyTrail(t, dir)
			require.Equal(t, torn, report.TornCount, "before anybody has marked it: %+v", report)
			record(trail, "c", 2)
			report = verifyTrail(t, dir)
			require.Equal(t, torn, report.TornCount, "%+v", report.Torn)
			require.EqualValues(t, torn, trail.Stats().Torn)
			if torn > 0 {
				require.Equal(t, 5, report.Torn[0].Line)
			}
			require.Equal(t, "c-1", report.Last.Event.ID)
		})
	}
}

// TestTrailTellsNothing: no body, no plain session id of a target, no line that
// is not one, whatever a channel passes.
func TestTrailTellsNothing(t *testing.T) {
	dir := t.TempDir()
	trail := openTrail(t, dir, nil)
	const target = "ses_the_target_nobody_may_see"
	body := strings.Repeat("the body ", 2000) + "SECRET AT THE END"
	e := team.TraceEvent{
		Op: "op " + target, ID: "id-" + target + "-x", ReplyTo: target, Target: target, Outcome: target, HostID: "msg_" + target,
		Reason: "inbox.send " + target + ": " + target, SHA256: body,
	}
	trail.Record(t.Context(), e)
	e = team.TraceEvent{Op: body, ID: body, ReplyTo: body, Target: team.SessionID(body), Outcome: body, Reason: body, HostID: body,
		By: team.Caller{Session: team.SessionID(body), Role: team.Role(body)}}
	trail.Record(t.Context(), e)
	trail.Record(t.Context(), team.TraceEvent{Op: "x", ID: "a", Target: "a", Reason: "a cat"})
	for _, name := range []string{"trail-00000001.jsonl", "trail.head", "trail.key"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NotContains(t, string(b), target)
		require.NotContains(t, string(b), "SECRET")
		require.NotContains(t, string(b), strings.Repeat("the body ", 29))
	}
	lines := trailLines(t, dir)
	digest := trail.TargetDigest(target)
	require.Equal(t, "id-"+digest+"-x", lines[1].Event.ID)
	require.Equal(t, digest, lines[1].Target)
	require.Equal(t, "invalid", lines[1].Event.SHA256)
	require.Equal(t, trail.TargetDigest("a"), lines[3].Event.ID)
	require.Equal(t, "a cat", lines[3].Event.Reason)
	verifyTrail(t, dir)
}

// TestTrailLinesAreBounded: every text is cut at a character and marked, every
// line is one line of ASCII control-free UTF-8 of less than 4 KiB.
func TestTrailLinesAreBounded(t *testing.T) {
	dir := t.TempDir()
	trail := openTrail(t, dir, nil)
	texts := []string{
		strings.Repeat("é", 500), strings.Repeat("\x00\x1b\x7f", 100), "\"\\\n\r\t\u0085\u2028\u202e\u009b", "\xff\xfe bad", strings.Repeat("🎉", 100),
		strings.Repeat("\U000E0001", 100), strings.Repeat(`"`, 300), strings.Repeat("a", 256), strings.Repeat("a", 257), strings.Repeat("a", 256) + "b",
	}
	for _, s := range texts {
		trail.Record(t.Context(), team.TraceEvent{
			Op: s, ID: s, ReplyTo: s, By: team.Caller{Session: team.SessionID(s), Role: team.Role(s)}, Target: "ses_x", Outcome: s, Reason: s,
			Size: -1 << 63, SHA256: strings.Repeat("a", 64), Round: -1 << 63, HostID: s, Count: -1 << 63,
		})
	}
	b, err := os.ReadFile(filepath.Join(dir, "trail-00000001.jsonl"))
	require.NoError(t, err)
	require.True(t, utf8.Valid(b))
	for line := range bytes.Lines(b) {
		require.LessOrEqual(t, len(line), 4096)
		require.True(t, json.Valid(line))
		for _, r := range string(line[:len(line)-1]) {
			require.True(t, strconv.IsPrint(r), "%q in %s", r, line)
		}
	}
	lines := trailLines(t, dir)[1:]
	require.Len(t, lines, len(texts))
	ids := make(map[string]bool)
	for i, l := range lines {
		require.Empty(t, l.Damage)
		require.Equal(t, len(texts[i]) > 256 || i == 1 || i == 6, strings.Contains(l.Event.ID, "…~"), "%q", l.Event.ID)
		ids[l.Event.ID] = true
	}
	require.Len(t, ids, len(texts), "two long texts stay two")
	require.Equal(t, "\"\\\n\r\t\u0085\u2028\u202e\u009b", lines[2].Event.ID, "what is short comes back as it was")
	require.Equal(t, "�� bad", lines[3].Event.ID)
	verifyTrail(t, dir)
}

func TestTrailOwnLinesCannotBeForged(t *testing.T) {
	dir := t.TempDir()
	trail := openTrail(t, dir, nil)
	trail.Record(t.Context(), team.TraceEvent{Op: "trail.gap", Count: 1000})
	trail.Record(t.Context(), team.TraceEvent{})
	report := verifyTrail(t, dir)
	require.Zero(t, report.Lost)
	lines := trailLines(t, dir)
	require.Equal(t, "event.trail.gap", lines[1].Event.Op)
	require.Equal(t, "event.", lines[2].Event.Op)
}

func TestTrailFollow(t *testing.T) {
	dir := t.TempDir()
	trail := openTrail(t, dir, &team.TrailOptions{FileSize: 1500})
	long := strings.Repeat("k", 1000)
	var want []string
	life := []team.TraceEvent{
		{Op: "inbox.send", ID: "sig_1"},
		{Op: "relay.offer", ID: "sig_1", HostID: "msg_1"},
		{Op: "relay.deliver", HostID: "msg_1"},
		{Op: "inbox.send", ID: "sig_2", ReplyTo: "sig_1"},
		{Op: "inbox.ack", ID: "sig_1"},
	}
	for _, e := range life {
		want = append(want, e.Op)
		record(trail, "noise", 3)
		trail.Record(t.Context(), team.TraceEvent{Op: "x", ID: "sig_11", ReplyTo: "sig_2", HostID: "msg_11"})
		trail.Record(t.Context(), e)
	}
	trail.Record(t.Context(), team.TraceEvent{Op: "ledger.put", ID: long + "1"})
	trail.Record(t.Context(), team.TraceEvent{Op: "ledger.put", ID: long + "2"})
	follow := func(id string) (ops []string) {
		for l, err := range team.FollowTrail(t.Context(), dir, id) {
			require.NoError(t, err)
			ops = append(ops, l.Event.Op)
		}
		return ops
	}
	require.Greater(t, len(trailFiles(t, dir)), 3)
	require.Equal(t, want, follow("sig_1"))
	require.Equal(t, []string{"relay.offer", "relay.deliver"}, follow("msg_1"))
	require.Equal(t, []string{"ledger.put"}, follow(long+"1"))
	require.Empty(t, follow("nobody"))
	require.Empty(t, follow(""))
	for range team.FollowTrail(t.Context(), dir, "sig_1") {
		break
	}
	for _, err := range team.FollowTrail(t.Context(), filepath.Join(dir, "none"), "x") {
		require.ErrorIs(t, err, team.ErrNotFound)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range team.ReadTrail(ctx, dir) {
		require.ErrorIs(t, err, context.Canceled)
	}
}

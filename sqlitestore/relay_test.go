package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// A storedHost is a host for several processes, which keeps what it was given in a
// store: the first text under an id wins, and the order of coming is that of a queue.
type storedHost struct {
	*sqlitestore.Store
	told func(id string) // of what it has taken
}

func (h storedHost) Session(_ context.Context, id team.SessionID) (team.Session, error) {
	return team.Session{ID: id}, nil
}

func (h storedHost) Interrupt(context.Context, team.SessionID) (team.InterruptVerdict, error) {
	return team.InterruptIdle, nil
}

func (h storedHost) Deliver(ctx context.Context, to team.SessionID, n team.Note) (team.Delivered, error) {
	_, err := h.Append(ctx, string(to), []team.Item{{ID: n.ID, Key: n.ID, Data: []byte(n.Description)}}, 0)
	if err != nil {
		return team.Delivered{}, err
	}
	h.told(n.ID)
	time.Sleep(time.Millisecond) // most are killed here, before they know
	return team.Delivered{ID: n.ID, Text: n.Text}, nil
}

// relayLease is more than a process is ever held up.
func relayLease() time.Duration {
	if raceEnabled {
		return 5 * time.Second
	}
	return 2 * time.Second
}

// childRelay relays the lead's signals and prints the id of each that the host has
// taken: PATH HOST.
func childRelay(ctx context.Context, args []string) error {
	s, err := sqlitestore.Open(ctx, args[0], nil)
	if err != nil {
		return err
	}
	h, err := sqlitestore.Open(ctx, args[1], nil)
	if err != nil {
		return err
	}
	c, err := team.OpenSignals(ctx, s, nil)
	if err != nil {
		return err
	}
	fmt.Println("open")
	err = c.Relay(ctx, storedHost{h, func(id string) { fmt.Println(id) }}, "ses_1", &team.RelayOptions{Lease: relayLease()})
	if ctx.Err() == nil {
		return err
	}
	return errors.Join(s.Close(), h.Close())
}

// One relaying owner for a session among all processes; another takes over from one
// that is killed, and at once from one that stops. The host has each signal once, in
// the order of sending.
func TestRelayFromProcesses(t *testing.T) {
	t.Parallel()
	path, host := filepath.Join(t.TempDir(), "s.db"), filepath.Join(t.TempDir(), "host.db")
	s, h := openAt(t, path, nil), openAt(t, host, nil)
	c, err := team.OpenSignals(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Enrol(t.Context(), team.Member{Session: "ses_1", Role: "lead"}); err != nil {
		t.Fatal(err)
	}
	var sent []team.Sent
	send := func() {
		r, err := c.Send(asLead(t.Context()), "ses_1", team.Signal{Kind: team.KindNote, Summary: fmt.Sprint(len(sent))})
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, r)
	}
	// What a relay says comes with its number.
	type taken struct {
		relay int
		id    string
	}
	said := make(chan taken, 1000)
	relays := make([]*process, 3)
	for i := range relays {
		p := start(t, "relay", path, host)
		if line, _ := p.line(); line != "open" {
			t.Fatalf("child says %q, want open", line)
		}
		relays[i] = p
		go func() {
			for line, ok := p.line(); ok; line, ok = p.line() {
				said <- taken{i, line}
			}
		}()
	}
	var owners []int
	var since []time.Time // when each began
	seen := make(map[string]bool)
	// deliver sends n signals and waits until the host has each; it calls act in the middle.
	deliver := func(n int, act func(owner int)) {
		t.Helper()
		for i := range n {
			send()
			var got taken
			for got.id == "" || seen[got.id] { // who takes over asks the host once more
				select {
				case got = <-said:
				case <-time.After(time.Minute):
					t.Fatalf("signal %d has not come in a minute", len(sent)-1)
				}
				if len(owners) == 0 || owners[len(owners)-1] != got.relay {
					owners, since = append(owners, got.relay), append(since, time.Now())
				}
			}
			seen[got.id] = true
			if i == n/2 && act != nil {
				act(got.relay)
			}
		}
	}
	deliver(20, func(owner int) { _ = relays[owner].cmd.Process.Kill() })
	if len(owners) != 2 {
		t.Errorf("relays in turn: %v, want one, and another since that was killed", owners)
	}
	var stopped time.Time
	deliver(20, func(owner int) {
		stopped = time.Now()
		_ = relays[owner].stdin.Close()
	})
	if len(owners) != 3 || slices.Contains(owners[:2], owners[2]) {
		t.Fatalf("relays in turn: %v, want the third since the second was stopped", owners)
	}
	if took := since[2].Sub(stopped); took > relayLease() {
		t.Errorf("the third took over after %v, want it not to wait for a lease", took)
	}

	var got []string
	for it, err := range h.Items(t.Context(), "ses_1", team.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(it.Data))
	}
	var want []string
	for i := range sent {
		want = append(want, fmt.Sprint(i))
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the host has %v, want each of %d once, in order", got, len(sent))
	}
	for _, r := range sent {
		until(t, "the answer to be noted", func() bool {
			st, err := c.Status(asLead(t.Context()), r)
			return err == nil && st.State == team.SignalOffered
		})
	}
}

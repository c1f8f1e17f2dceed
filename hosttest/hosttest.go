// Package hosttest has the laws that the ports of host.go keep, as tests that the
// author of a host adapter runs: one function for each port. The test file of a host is
//
//	func TestSessions(t *testing.T) {
//		hosttest.Sessions(t, func(tb testing.TB) hosttest.SessionsHost { … })
//	}
//
// and the same for [Events], [Storage], [Tools] and [Permissions]. The function is called
// once for each law, and returns the port and what a law needs beside it: hooks that make
// sessions, look into them, or let something happen. Laws of one port may share one server, as long
// as each gets sessions, or a name space, of its own.
//
// A host that lacks a port, or cannot do what a hook asks, says so itself: the function
// calls tb.Skip with the reason, or puts the reason into Lacks under the hook's name. A hook that
// is nil without a reason fails, so that no law is left out by accident.
//
// A law that breaks prints the promise in one sentence.
package hosttest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/teamchan/team"
)

// A law is one promise of a port.
type law[H any] struct {
	name  string   // method/promise
	says  string   // the promise, in one sentence; printed when it breaks
	needs []string // hooks
	check func(ctx context.Context, h H) error
}

// A host is what every port's struct can tell.
type host interface {
	// lacking returns whether the hook is there, and else why not.
	lacking(hook string) (there bool, why string)
}

// limit is how long one law may take.
const limit = 30 * time.Second

func run[H host](t *testing.T, laws []law[H], open func(testing.TB) H) {
	for _, l := range laws {
		t.Run(l.name, func(t *testing.T) {
			h := open(t)
			for _, hook := range l.needs {
				switch there, why := h.lacking(hook); {
				case there:
				case why != "":
					t.Skipf("no %s: %s", hook, why)
				default:
					t.Fatalf("hook %s is nil and Lacks has no reason for it; the law needs it: %s", hook, l.says)
				}
			}
			if err := evaluate(l, h, limit); err != nil {
				t.Errorf("broken law: %s.\n%v", l.says, err)
			}
		})
	}
}

// evaluate checks one law and returns how it was broken. A host that does not return when
// the law's context ends, or soon after, has broken it too.
func evaluate[H any](l law[H], h H, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- l.check(ctx, h) }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit + limit/4 + time.Second):
		return fmt.Errorf("a call has not returned since its context ended %v ago", limit/4+time.Second)
	}
}

// NoteID returns a new id for a note to a session, in the form that every host takes.
func NoteID(to team.SessionID) string {
	return team.HostMessageID(team.Signal{To: to, ID: team.SignalID(rand.Text()), Sent: time.Now()})
}

// is checks the kind of an error.
func is(call string, err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("%s = %v, want %w", call, err, want)
	}
	return nil
}

// wrong is fmt.Errorf for what a call did: such a text begins with the call's name.
func wrong(format string, args ...any) error { return fmt.Errorf(format, args...) }

// eventually calls look until it is nil, or ctx ends.
func eventually(ctx context.Context, look func() error) error {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		err := look()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

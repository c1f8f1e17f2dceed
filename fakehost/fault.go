package fakehost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/teamchan/team"
)

// A Call is one call of the host, as Options.Fault sees it.
type Call struct {
	Domain  string // "session", "inbox", "event", "log", "storage", "permission", "tool", "agent", …
	Method  string // "prompt", "get", "publish", "execute", …
	Session string // the session that it is about; may be empty
	Name    string // the key, tool, event type or agent that it is about; may be empty
}

func (c Call) String() string { return c.Domain + "." + c.Method }

// ErrDrop is what Options.Fault returns for Call event.publish to lose the event. It is
// still in the durable log.
var ErrDrop = errors.New("dropped by a fault")

// A Fault is a way in which a host misbehaves. Switch it on with Options.Faults or
// Host.Inject and off with Host.Clear, at any time. What concerns one call only is done
// with Options.Fault.
type Fault string

// The faults of the core. Each has its source.
const (
	// FaultTerminalMissing loses the end of every execution: neither terminal event,
	// idle marker nor outcome are written, and the claim stays, as after a crash.
	FaultTerminalMissing Fault = "terminal event missing"

	// FaultShutdownAfterDecline ends a turn whose permission was declined as
	// interrupted with reason "shutdown", keeps the claim and writes no idle marker.
	// Recorded on OpenCode 2.0.24; a later source says "user".
	FaultShutdownAfterDecline Fault = "shutdown after a decline"

	// FaultEndlessRetry makes every model call fail and be retried for ever, until
	// it is interrupted: retry events, and no end. OpenCode 2.0.24, refused connection.
	FaultEndlessRetry Fault = "endless retry"

	// FaultStreamCut breaks every stream of events in the middle of its next frame.
	// In process that is io.ErrUnexpectedEOF.
	FaultStreamCut Fault = "stream cut in mid frame"

	// FaultOverflow cuts every subscriber of the feed at its next event.
	FaultOverflow Fault = "overflow"

	// FaultNoticeMissing and FaultNoticeDuplicate concern the note that a background
	// child is finished. OpenCode issue #50751.
	FaultNoticeMissing   Fault = "completion notice missing"
	FaultNoticeDuplicate Fault = "completion notice twice"

	// FaultEmptyResult makes every turn end without text. OpenCode issue #32132.
	FaultEmptyResult Fault = "empty result"

	// FaultStepLimit stops a turn after its first step with tool calls, and calls it
	// succeeded.
	FaultStepLimit Fault = "completed at the step limit"

	// FaultCompletedAfterDenial stops a turn at the first denied or declined
	// permission, and calls it succeeded.
	FaultCompletedAfterDenial Fault = "completed after a denial"

	// FaultCompareMode refuses a reused id when the payload or delivery differs.
	// OpenCode before PR #43548.
	FaultCompareMode Fault = "ids compare payloads"

	// FaultUnknownEvents publishes an event of a type that nobody knows before each
	// event of a session.
	FaultUnknownEvents Fault = "unknown event types"

	// FaultSlowStorage makes each call of the key-value storage take two seconds.
	FaultSlowStorage Fault = "slow storage"
)

// Inject switches faults on.
func (h *Host) Inject(faults ...Fault) {
	h.faultMu.Lock()
	defer h.faultMu.Unlock()
	for _, f := range faults {
		h.faults[f] = true
	}
}

// Clear switches faults off, all of them if none is named.
func (h *Host) Clear(faults ...Fault) {
	h.faultMu.Lock()
	defer h.faultMu.Unlock()
	if len(faults) == 0 {
		clear(h.faults)
	}
	maps.DeleteFunc(h.faults, func(f Fault, _ bool) bool {
		for _, off := range faults {
			if f == off {
				return true
			}
		}
		return false
	})
}

// has reports whether f is switched on.
func (h *Host) has(f Fault) bool {
	h.faultMu.Lock()
	defer h.faultMu.Unlock()
	return h.faults[f]
}

// enter is the first line of every method of a domain: it refuses when ctx has ended
// or the host is closed, and asks Options.Fault. Never call it with the host's lock.
func (h *Host) enter(ctx context.Context, c Call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h.mu.Lock()
	dead := h.dead
	h.mu.Unlock()
	if dead {
		return team.ErrClosed
	}
	if h.opts.Fault != nil {
		if err := h.opts.Fault(ctx, c); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// absent is the error of a domain or method that the profile does not have.
func (h *Host) absent(what string) error {
	return fmt.Errorf("%s has no %s: %w", h.profile.Name, what, errors.ErrUnsupported)
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

package team

import (
	"context"
	"errors"
	"fmt"
)

// A CancelVerdict says what came of a Cancel. Only CancelStopped is a success.
type CancelVerdict string

// The verdicts.
const (
	CancelStopped CancelVerdict = "stopped" // the host confirms that it stopped something
	CancelIdle    CancelVerdict = "idle"    // there was nothing to stop
	CancelUnknown CancelVerdict = "unknown" // the host answered, and did not say
	CancelNoSeam  CancelVerdict = "no seam" // this host offers no way to stop a session
	CancelThrew   CancelVerdict = "threw"   // the call failed: Cancelled.Err
)

// Cancelled is what a Cancel did.
type Cancelled struct {
	Verdict CancelVerdict
	Err     error // of CancelNoSeam and CancelThrew: why
	Child   Child // as it is known now
}

// Cancel asks the host to stop a child. It has settled as cancelled only if the host
// confirms that; with each other verdict it is as it was, and what the host says later
// counts. A child that has settled is not stopped again, unless that is presumed: CancelIdle. An id that
// is no child of the parent is a *ChildError, and the host is not asked.
func (j *Join) Cancel(ctx context.Context, id SessionID) (Cancelled, error) {
	found, err := j.find([]SessionID{id})
	var out Cancelled
	if err == nil {
		c := found[0]
		out, err = j.cancel(ctx, c)
		out.Child = c.account()
		j.trace(ctx, TraceEvent{Op: "join.cancel", ID: c.name(), Target: id, Outcome: string(out.Verdict)}, err)
	}
	return out, edge("join.cancel", string(id), err)
}

func (j *Join) cancel(ctx context.Context, c *joined) (Cancelled, error) {
	if child := c.account(); child.Settled() && !child.Presumed {
		return Cancelled{Verdict: CancelIdle}, nil
	}
	if j.opts.Sessions == nil {
		return Cancelled{Verdict: CancelNoSeam, Err: fmt.Errorf("%w: there are no Sessions to ask; set JoinOptions.Sessions", errors.ErrUnsupported)}, nil
	}
	// First, so that an event that is faster than the answer is known for ours.
	if err := j.absorb(ctx, c, evidence{JoinEvidence: JoinEvidence{Source: FromCancel}, kind: evidenceCancel}); err != nil {
		return Cancelled{}, err
	}
	verdict, err := j.opts.Sessions.Interrupt(ctx, c.id)
	var out Cancelled
	after := evidence{JoinEvidence: JoinEvidence{Source: FromCancel, What: "interrupt"}, kind: evidenceNoCancel}
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		out = Cancelled{Verdict: CancelNoSeam, Err: err}
	case err != nil:
		// It may have been taken all the same: an interrupt that comes now is ours.
		return Cancelled{Verdict: CancelThrew, Err: err}, nil
	case verdict == InterruptStopped:
		out.Verdict = CancelStopped
		after.kind, after.State = evidenceEnd, ChildCancelled
	case verdict == InterruptIdle:
		out.Verdict = CancelIdle
	default:
		return Cancelled{Verdict: CancelUnknown}, nil
	}
	return out, j.absorb(context.WithoutCancel(ctx), c, after)
}

package team

import (
	"context"
	"errors"
)

// The reasons that only a ledger's sweep has, beside those of a board's: two of
// a removal, and one of keeping.
const (
	SweepExpired SweepReason = "expired"      // its time to live is over
	SweepDead    SweepReason = "session dead" // its session is gone for good

	SweepDamaged SweepReason = "damaged" // it cannot be read (see Err): for a person to look at
)

// A LedgerSweepItem is one record, and what became of it.
type LedgerSweepItem struct {
	Scope  Scope
	Key    string // for a record that is none of a ledger, the whole stored key
	Action SweepAction
	Reason SweepReason
	Err    error
}

// A LedgerSweep has every record that a sweep looked at, by name: never a value.
type LedgerSweep struct {
	Items []LedgerSweepItem
}

// Removed returns how many records were removed.
func (r LedgerSweep) Removed() int {
	n := 0
	for _, item := range r.Items {
		if item.Action == SweepRemove {
			n++
		}
	}
	return n
}

// Sweep removes the records of the ledger's scope whose time is over, and
// reports what it did with each, in the order of their keys. A record that
// somebody writes meanwhile is kept, and so is a damaged one.
//
// An error means that the sweep ended early; the report has what was done. Any
// number of sweeps may run at once.
func (l *Ledger) Sweep(ctx context.Context) (LedgerSweep, error) {
	report, err := l.sweep(ctx, l.prefix, nil)
	return report, edge("ledger.sweep", l.scope.Project, err)
}

// SweepScopes is Sweep over all scopes of the ledger's project, and removes
// every record, a damaged one too, of a session that is dead. It is the one call
// that looks beyond the ledger's own scope.
//
// It asks alive about each session once. False, without an error, means that the
// session is gone for good; if alive cannot tell it returns an error, and what
// the session has is kept, with that error in the report. So a host's ErrNotFound is
// for alive to judge: only who knows that the host forgets nothing may read it
// as death. Scopes without a session are nobody's to outlive, and are kept.
func (l *Ledger) SweepScopes(ctx context.Context, alive func(context.Context, SessionID) (bool, error)) (LedgerSweep, error) {
	if alive == nil {
		return LedgerSweep{}, edge("ledger.sweep", l.scope.Project,
			&InvalidError{What: "alive", Why: "is nil", Offset: -1, Advice: "use Sweep"})
	}
	report, err := l.sweep(ctx, projectPrefix(l.scope.Project), alive)
	return report, edge("ledger.sweep", l.scope.Project, err)
}

func (l *Ledger) sweep(ctx context.Context, prefix string, alive func(context.Context, SessionID) (bool, error)) (LedgerSweep, error) {
	type verdict struct {
		alive bool
		err   error
	}
	asked := make(map[SessionID]verdict)
	var report LedgerSweep
	for stored, err := range l.records.Keys(ctx, prefix, "") {
		if err != nil {
			return report, err
		}
		scope, key, ours := parseLedgerKey(stored)
		item := LedgerSweepItem{Scope: scope, Key: key, Action: SweepKeep, Reason: SweepFresh}
		if !ours {
			item.Key, item.Reason = stored, SweepForeign
			report.Items = append(report.Items, item)
			continue
		}
		session := verdict{alive: true}
		if alive != nil && scope.Session != "" {
			var ok bool
			if session, ok = asked[scope.Session]; !ok {
				session.alive, session.err = alive(ctx, scope.Session)
				asked[scope.Session] = session
			}
		}
		dead := !session.alive && session.err == nil

		other := *l
		other.scope, other.prefix = scope, stored[:len(stored)-len(key)]
		found, err := other.look(ctx, key)
		if ctx.Err() != nil {
			return report, ctx.Err()
		}
		remove := false
		switch {
		case err != nil:
			item.Reason, item.Err = SweepUnknown, err
		case !found.there:
			continue // gone in this moment
		case dead:
			item.Reason, remove = SweepDead, true
		case found.err != nil:
			item.Reason, item.Err = SweepDamaged, found.err
		case !found.live:
			item.Reason, remove = SweepExpired, true
		case session.err != nil:
			item.Reason, item.Err = SweepUnknown, session.err
		}
		if remove {
			// Only the record that was looked at. One that the store itself cannot
			// read has no version.
			prev := found.record.Version
			if prev == "" {
				prev = AnyVersion
			}
			_, err := l.write(ctx, []Change{{Key: stored, Prev: prev, Delete: true}})
			l.trace(ctx, TraceEvent{Op: "ledger.sweep", ID: stored}, err)
			switch {
			case err == nil || errors.Is(err, ErrNotFound):
				item.Action = SweepRemove
			case errors.Is(err, ErrConflict):
				item.Reason = SweepBusy
			case ctx.Err() != nil:
				return report, ctx.Err()
			default:
				item.Reason, item.Err = SweepFailed, err
			}
		}
		report.Items = append(report.Items, item)
	}
	return report, nil
}

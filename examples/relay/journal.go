package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/examples/relay/survey"
)

const (
	// lease is how long a run belongs to a process, and a signal to its receiver,
	// without another word. The process renews it; a killed one does not, so
	// nobody waits longer than this for what it had in its hands.
	lease = 3 * time.Second

	// shelfLife is how long a stopped run waits. By then the workspace is another.
	shelfLife = 24 * time.Hour

	runPrefix = "relay/run/" // and the session key
)

// A journal is what a run remembers from one start to the next: one record of the
// store. Every change is a compare-and-set on the version that was read or written
// last, so a process that lost the run to another one, because it was suspended
// for example, cannot change it any more.
type journal struct {
	store   team.Store
	resumed bool

	mu      sync.Mutex // guards the fields below
	state   runState
	version team.Version
}

type runState struct {
	Server  string                    `json:"server,omitempty"` // whose sessions the team are; empty for functions
	Session string                    `json:"session"`          // also on the board
	Started time.Time                 `json:"started"`
	Until   time.Time                 `json:"until"`          // when the lease ends of the process that has it
	Over    string                    `json:"over,omitempty"` // how it ended; empty while there is something to do
	Settled map[team.Role]team.Signal `json:"settled,omitempty"`
	// Sessions are those that were made on the server.
	Sessions map[team.Role]team.SessionID `json:"sessions,omitempty"`
}

// The ways in which a run is over.
const (
	finished = "finished"
	failed   = "failed"
	givenUp  = "given up"
)

var (
	errTaken     = errors.New("another relay has taken over this run")
	errUnsettled = errors.New("did not settle")
	errLost      = errors.New("is not on the server any more: start again for a fresh run")
)

// begin returns a run that is this process's own: the newest on the same server that was
// stopped in the middle, or else, and if fresh is set, a new one.
func begin(ctx context.Context, store team.Store, server string, fresh bool, say func(string, ...any)) (*journal, error) {
	open, err := unfinished(ctx, store)
	if err != nil {
		return nil, err
	}
	for _, j := range slices.Backward(open) {
		old := time.Since(j.state.Until) > shelfLife
		switch {
		case j.state.Server != server && !old, fresh && j.left() > 0:
			continue // it is nothing of ours
		case j.state.Server != server:
			err = j.giveUp(ctx, givenUp)
		case fresh:
			err = j.giveUp(ctx, givenUp)
		case old:
			say("The run of %s was stopped more than a day ago: this is a fresh one.\n\n", j.name())
			err = j.giveUp(ctx, givenUp)
		default:
			if err = j.take(ctx, say); err == nil {
				return j, nil
			}
		}
		if err != nil && !errors.Is(err, errOver) {
			return nil, err
		}
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	j := &journal{store: store, state: runState{Server: server, Session: team.NewSessionKey(), Started: now}}
	return j, j.renew(ctx)
}

// unfinished returns the runs that are not over, oldest first, and forgets the
// others.
func unfinished(ctx context.Context, store team.Store) ([]*journal, error) {
	var found []*journal
	for key, err := range store.Keys(ctx, runPrefix, "") {
		if err != nil {
			return nil, err
		}
		j := &journal{store: store, state: runState{Session: strings.TrimPrefix(key, runPrefix)}}
		err = j.load(ctx)
		if err == nil {
			found = append(found, j)
		} else if errors.Is(err, errOver) {
			err = store.Delete(ctx, key, j.version)
		}
		// Not there any more, or another one: somebody else was quicker.
		if err != nil && !errors.Is(err, team.ErrNotFound) && !errors.Is(err, team.ErrConflict) {
			return nil, err
		}
	}
	slices.SortStableFunc(found, func(a, b *journal) int { return a.state.Started.Compare(b.state.Started) })
	return found, nil
}

// take makes a stopped run this process's own. If nobody gave it back, its process
// may be at work or may be dead: a living one renews its lease while we look.
func (j *journal) take(ctx context.Context, say func(string, ...any)) error {
	if j.left() > 0 {
		say("The run of %s was going on a moment ago; looking whether it still is, for %s at most.\n\n", j.name(), lease)
	}
	seen := j.version
	for began := time.Now(); j.left() > 0 && time.Since(began) < lease; {
		select {
		case <-time.After(lease / 20):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := j.load(ctx); err != nil {
			return err
		}
		if j.version != seen && j.left() > 0 {
			return j.busy()
		}
	}
	err := j.renew(ctx)
	if errors.Is(err, errTaken) {
		return j.busy()
	}
	j.resumed = true
	return err
}

func (j *journal) busy() error {
	return fmt.Errorf("another relay is at work on the run of %s: wait for it, or begin a run beside it with -new", j.name())
}

// giveUp ends a run that nobody will carry on with. Its epoch is fenced: should a
// process of it be alive after all, no signal of it gets through.
func (j *journal) giveUp(ctx context.Context, why string) error {
	if err := j.change(ctx, func(s *runState) { s.Over = why }); errors.Is(err, errTaken) {
		return j.busy()
	} else if err != nil {
		return err
	}
	signals, err := team.OpenSignals(ctx, j.store, nil)
	if err == nil {
		err = signals.Fence(ctx, j.session())
	}
	if err == nil {
		err = j.leave(ctx, signals)
	}
	return err
}

// leave takes the team of a run off the roster.
func (j *journal) leave(ctx context.Context, signals *team.SignalChannel) error {
	for _, role := range roles() {
		id := j.sessionOf(role)
		if id == "" {
			continue
		}
		if err := signals.Leave(ctx, id); err != nil && !errors.Is(err, team.ErrNotFound) {
			return err
		}
	}
	return nil
}

func roles() []team.Role {
	all := []team.Role{roleLead}
	for _, s := range slices.Concat(steps...) {
		all = append(all, s.role)
	}
	return all
}

// renew makes the lease end later. It is errTaken if the run is not ours any more.
func (j *journal) renew(ctx context.Context) error {
	return j.change(ctx, func(s *runState) { s.Until = time.Now().UTC().Add(lease) })
}

// hold renews the lease until letGo is called. The context ends with ctx, or when
// the run is lost to another process; its cause says so.
func (j *journal) hold(ctx context.Context) (held context.Context, letGo func()) {
	held, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(lease / 3)
		defer tick.Stop()
		for {
			select {
			case <-held.Done():
				return
			case <-tick.C:
				if err := j.renew(held); errors.Is(err, errTaken) {
					cancel(errTaken)
				} // any other error: there is time for another try
			}
		}
	}()
	return held, func() { cancel(nil); <-done }
}

// end lets go of the run, after err: finished, failed, or to be carried on with. It
// returns what to tell the user.
func (j *journal) end(ctx, held context.Context, err error, letGo func()) error {
	if cause := context.Cause(held); err != nil && errors.Is(cause, errTaken) {
		err = cause
	}
	letGo()
	interrupted := ctx.Err() != nil
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer stop()
	switch {
	case err == nil, errors.Is(err, errTaken):
		return err
	case errors.Is(err, errUnsettled) && !interrupted, errors.Is(err, errLost):
		return errors.Join(err, j.giveUp(ctx, failed))
	}
	// If this fails, the lease ends all the same.
	_ = j.change(ctx, func(s *runState) { s.Until = time.Now().UTC() })
	if interrupted {
		return errors.New("interrupted; the next start carries on with this run")
	}
	return fmt.Errorf("%w; the next start carries on with this run, unless with -new", err)
}

// finish leaves the store tidy: what a killed start had answered or read, but not
// acked, comes once more and is dealt with already.
func (r *relay) finish(ctx context.Context) error {
	for _, role := range roles() {
		ctx := r.as(ctx, role)
		for _, err := range r.signals.Pending(ctx) {
			if err != nil {
				return err
			}
			got, err := r.signals.Receive(ctx, nil)
			if err == nil {
				err = r.signals.Ack(ctx, got...)
			}
			if err != nil {
				return err
			}
		}
	}
	if err := r.journal.leave(ctx, r.signals); err != nil {
		return err
	}
	return r.journal.change(ctx, func(s *runState) { s.Over = finished })
}

// written returns the entry that the caller has on the board in this run, if a
// killed start got that far, and its summary. An entry that somebody edited does
// not count.
func (r *relay) written(ctx context.Context) (team.Entry, string, error) {
	if !r.journal.resumed {
		return team.Entry{}, "", nil
	}
	caller, _ := team.CallerFrom(ctx)
	for entry, err := range r.board.Entries(ctx, team.Filter{Session: r.session, Task: taskName, Role: caller.Role}) {
		if err != nil {
			return team.Entry{}, "", err
		}
		if entry.Changed {
			continue
		}
		text, err := r.board.ReadRef(ctx, entry.Ref(), team.Range{Lines: survey.HeadLines})
		if err != nil {
			return team.Entry{}, "", err
		}
		summary := survey.SummaryOf(text.Text)
		r.log.found(entry, summary)
		return entry, summary, nil
	}
	return team.Entry{}, "", nil
}

// sessionOf returns the session of a role: on the server the one that was made for it, if
// that is so yet.
func (j *journal) sessionOf(role team.Role) team.SessionID {
	if state := j.now(); state.Server != "" {
		return state.Sessions[role]
	}
	return sessionOf(j.session(), role)
}

// keep notes which session was made for a role.
func (j *journal) keep(ctx context.Context, role team.Role, id team.SessionID) error {
	return j.change(ctx, func(s *runState) {
		s.Sessions = maps.Clone(s.Sessions)
		if s.Sessions == nil {
			s.Sessions = map[team.Role]team.SessionID{}
		}
		s.Sessions[role] = id
		s.Until = time.Now().UTC().Add(lease)
	})
}

// settle notes that a specialist has settled.
func (j *journal) settle(ctx context.Context, answer team.Signal) error {
	return j.change(ctx, func(s *runState) {
		s.Settled = maps.Clone(s.Settled)
		if s.Settled == nil {
			s.Settled = map[team.Role]team.Signal{}
		}
		s.Settled[answer.From.Role] = answer
		s.Until = time.Now().UTC().Add(lease)
	})
}

// settled returns the answers of those that have settled.
func (j *journal) settled() map[team.Role]team.Signal {
	done := map[team.Role]team.Signal{}
	maps.Copy(done, j.now().Settled)
	return done
}

// progress says who has settled, in the order of the plan.
func (j *journal) progress() string {
	done := j.settled()
	var names []string
	for _, s := range slices.Concat(steps...) {
		if _, ok := done[s.role]; ok {
			names = append(names, string(s.role))
		}
	}
	switch n := len(names); n {
	case 0:
		return "nobody has settled yet"
	case 1:
		return names[0] + " has settled"
	case len(roles()) - 1:
		return "all specialists have settled"
	default:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1] + " have settled"
	}
}

// name is what people call the run: the time when it began, and the day if that is
// not today.
func (j *journal) name() string {
	at := j.started().Local()
	if at.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return at.Format("15:04")
	}
	return at.Format("2 January, 15:04")
}

func (j *journal) session() string    { return j.now().Session }
func (j *journal) started() time.Time { return j.now().Started }

// left is how long the lease of the process still holds that has the run.
func (j *journal) left() time.Duration { return time.Until(j.now().Until) }

func (j *journal) now() runState {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state
}

var errOver = errors.New("the run is over")

// load reads the record. A run that is over is errOver.
func (j *journal) load(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	record, err := j.store.Get(ctx, runPrefix+j.state.Session)
	if err != nil {
		return err
	}
	j.version = record.Version
	var state runState
	if err := json.Unmarshal(record.Value, &state); err != nil || state.Session != j.state.Session {
		return errOver // nobody can carry on with what nobody can read
	}
	j.state = state
	if state.Over != "" {
		return errOver
	}
	return nil
}

// change writes the record, unless somebody else has: that is errTaken.
func (j *journal) change(ctx context.Context, how func(*runState)) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	state := j.state
	how(&state)
	value, err := json.Marshal(state)
	if err != nil {
		return err
	}
	key := runPrefix + state.Session
	version, err := j.store.Put(ctx, key, value, j.version)
	if errors.Is(err, team.ErrUnknownOutcome) {
		if record, rerr := j.store.Get(ctx, key); rerr == nil && bytes.Equal(record.Value, value) {
			version, err = record.Version, nil
		}
	}
	if errors.Is(err, team.ErrConflict) {
		return errTaken
	}
	if err != nil {
		return err
	}
	j.state, j.version = state, version
	return nil
}

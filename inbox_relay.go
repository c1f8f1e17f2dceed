package team

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// RelayOptions change how Relay works. The zero value has the defaults.
type RelayOptions struct {
	// Lease is how long the relay of a session, and the signal at hand, stay with
	// a process that is killed. It is at least 10 milliseconds; zero means
	// DefaultRelayLease.
	Lease time.Duration

	// Pause is how long Relay waits before it tries a host again that failed,
	// the first time; then twice as long, up to a minute. Zero means a second.
	Pause time.Duration

	// Tries is how often a signal is tried at a host that fails, before it is a
	// dead letter. Zero means DefaultRelayTries, which lasts a quarter of an
	// hour; NoLimit tries for ever.
	Tries int

	// Wake makes an idle session start to work on a signal. Without it the
	// signal waits for the session's next turn. A note to be queued never wakes.
	Wake bool
}

// The defaults of Relay.
const (
	DefaultRelayLease = 30 * time.Second
	DefaultRelayTries = 20
)

// minRelayLease leaves room for the tenths and thirds of a lease that a relay counts in.
const minRelayLease = 10 * time.Millisecond

const relayPrefix = "team/relay/"

// Relay moves the signals of session's inbox into the session on its host, one by
// one, in order, until ctx ends, whose error it returns, or the store fails. It
// is for hosts whose agents do not call Receive.
//
// A signal is settled when the host has answered that it holds the text, and not
// before: then it is offered, with the host's id as evidence, or delivered where the host
// has no inbox (see Status). What becomes of it there, Observe, Confirm, AckID and a reply tell. The id under which it is
// delivered is derived from the session and the signal, so that a repeated
// delivery never doubles, and never lands in another session. A host that
// fails is tried again after a pause that grows; after Tries, or at once if
// it refuses for good, the signal becomes a dead letter and the next one follows. A
// signal that expires, or whose epoch is fenced, meanwhile is not tried again.
//
// One process at a time relays a session: others wait, and take over when it
// returns, or when it has not stirred for its lease because it was killed. Who takes
// over waits until nothing is in other hands, so that the order holds.
func (c *SignalChannel) Relay(ctx context.Context, sessions Sessions, session SessionID, opts *RelayOptions) error {
	if sessions == nil {
		panic("team: Relay with nil Sessions")
	}
	r := &relay{c: c, sessions: sessions, session: session, queue: inboxQueue(session), id: rand.Text()}
	if opts != nil {
		r.opts = *opts
	}
	setDefault(&r.opts.Lease, DefaultRelayLease)
	setDefault(&r.opts.Pause, time.Second)
	setDefault(&r.opts.Tries, DefaultRelayTries)
	return edge("inbox.relay", string(session), r.run(ctx))
}

type relay struct {
	c        *SignalChannel
	sessions Sessions
	session  SessionID
	queue    string
	opts     RelayOptions

	id      string  // of this owner
	version Version // of the owner's record, while it is ours; zero if it is not
}

// A relayOwner is the record that says who relays a session. Its owner writes it
// again within each third of the lease; no clock but the reader's own counts.
type relayOwner struct {
	ID    string        `json:"id"`
	Lease time.Duration `json:"lease"`
}

const (
	// relayGaveUp begins the reason of a dead letter that a relay has had in hand.
	relayGaveUp = "relay: "
	// relayForeign is that of one whose id the host has for something else. What its
	// events tell is not about the signal.
	relayForeign = relayGaveUp + "the host refused it: it has something else under the id"
)

var errRelayLost = errors.New("the relay, or the signal at hand, is in other hands")

func (r *relay) run(ctx context.Context) error {
	if err := checkName("session", string(r.session)); err != nil {
		return err
	}
	if r.opts.Lease < minRelayLease {
		return &InvalidError{What: "relay option Lease", Why: "is shorter than " + minRelayLease.String(), Offset: -1, Advice: "leave it zero for the default"}
	}
	if r.opts.Pause < 0 {
		return &InvalidError{What: "relay option Pause", Why: "is negative", Offset: -1}
	}
	if err := checkLimits("relay", limitOption{"Tries", r.opts.Tries}); err != nil {
		return err
	}
	if _, err := r.c.member(ctx, r.session); err != nil {
		return err
	}
	defer r.leave(context.WithoutCancel(ctx))
	for {
		if err := r.own(ctx); err != nil {
			return err
		}
		// Woken often enough to stir.
		short, cancel := context.WithTimeout(ctx, r.opts.Lease/3)
		got, err := r.c.take(short, r.session, ReceiveOptions{Lease: r.opts.Lease}, 0)
		cancel()
		switch {
		case len(got) > 0:
			if err := r.deliver(ctx, got[0]); err != nil && !errors.Is(err, errRelayLost) {
				return err
			}
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return err
		}
	}
}

// own becomes the owner of the session's relay, or stirs, and waits while somebody
// else is.
func (r *relay) own(ctx context.Context) error {
	if r.version != "" {
		if err := r.stir(ctx); !errors.Is(err, errRelayLost) {
			return err
		}
	}
	var seen Version
	var since time.Time
	for {
		owner, version, err := r.owner(ctx)
		if err != nil {
			return err
		}
		if version != seen {
			seen, since = version, time.Now()
		}
		left := min(owner.Lease, time.Hour) - time.Since(since)
		if version != "" && left > 0 {
			if err := waitFor(ctx, min(left, r.opts.Lease/10)); err != nil {
				return err
			}
			continue
		}
		r.version = version
		if err := r.stir(ctx); errors.Is(err, errRelayLost) {
			continue // somebody was quicker: look who
		} else if err != nil {
			return err
		}
		return r.settled(ctx)
	}
}

// owner reads the owner's record. Its version is zero if there is none.
func (r *relay) owner(ctx context.Context) (owner relayOwner, version Version, err error) {
	rec, err := r.c.store.Get(ctx, relayPrefix+string(r.session))
	if errors.Is(err, ErrNotFound) {
		return owner, "", nil
	}
	if err == nil {
		_ = json.Unmarshal(rec.Value, &owner) // what cannot be read is nobody's
	}
	return owner, rec.Version, err
}

// settled waits until no signal of the inbox is in the hands of who had the relay
// before.
func (r *relay) settled(ctx context.Context) error {
	for {
		taken := false
		for item, err := range r.c.store.Items(ctx, r.queue, ListOptions{}) {
			if err != nil {
				return err
			}
			if taken = item.State == ItemClaimed; taken {
				break
			}
		}
		if !taken {
			return nil
		}
		if err := waitFor(ctx, r.opts.Lease/10); err != nil {
			return err
		}
		if err := r.stir(ctx); err != nil {
			return err
		}
	}
}

// stir writes the owner's record, which shows that the owner lives: each time it
// gets another version.
func (r *relay) stir(ctx context.Context) error {
	value, err := json.Marshal(relayOwner{r.id, r.opts.Lease})
	if err != nil {
		return err
	}
	v, err := r.c.store.Put(ctx, relayPrefix+string(r.session), value, r.version)
	if errors.Is(err, ErrConflict) {
		var owner relayOwner
		if owner, v, err = r.owner(ctx); err == nil && owner.ID != r.id {
			r.version = ""
			return errRelayLost
		} // or we were the other ourselves, and the answer was lost
	}
	if err == nil {
		r.version = v
	}
	return err
}

// leave gives the relay of the session back.
func (r *relay) leave(ctx context.Context) {
	if r.version == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = r.c.store.Delete(ctx, relayPrefix+string(r.session), r.version) // or its lease ends it
}

// deliver brings one signal to the host, however often that takes. What comes
// behind it waits, so that the order is kept.
func (r *relay) deliver(ctx context.Context, got Received) (err error) {
	defer func() {
		if err != nil { // it is nobody's again, before the relay is
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = r.c.store.Settle(ctx, r.queue, Settlement{Seq: got.Seq, Token: got.Token, Verdict: VerdictRelease})
		}
	}()
	note := Note{
		ID: HostMessageID(got.Signal), Text: FormatSignal(r.c.secret, got.Signal), Description: got.Summary,
		Delivery: got.Delivery, Wake: r.opts.Wake && !passive(got.Signal),
	}
	digest := sha256.Sum256([]byte(note.Text))
	note.Metadata = map[string]string{
		"source": "team", "signal": string(got.ID), "from": string(got.From.Session), "kind": string(got.Kind),
		"seq": strconv.FormatUint(uint64(got.Seq), 10), "digest": hex.EncodeToString(digest[:]),
	}
	wait := r.opts.Pause
	for try := 1; ; try++ {
		// An event may have told what an answer that was lost did not. To ask again would
		// bring back what somebody took out of the host's inbox.
		if known, err := r.c.introduce(ctx, r.session, got.Signal); err != nil {
			return err
		} else if known.State != "" {
			return r.settle(ctx, got, VerdictAck, note, known.Host, nil)
		}
		if err := r.c.fenced(ctx, got.Epoch); errors.Is(err, ErrFenced) {
			return r.settle(ctx, got, VerdictBury, note, relayGaveUp+"late, "+err.Error(), err)
		} else if err != nil {
			return err
		}
		if !got.Expires.IsZero() && !got.Expires.After(time.Now()) {
			return r.c.store.Settle(ctx, r.queue, Settlement{Seq: got.Seq, Token: got.Token, Verdict: VerdictRelease})
		}
		var d Delivered
		err := r.keep(ctx, got, func(ctx context.Context) (err error) {
			d, err = r.sessions.Deliver(ctx, r.session, note)
			return err
		})
		if err == nil && d.Text != note.Text {
			err = fmt.Errorf("%w: the host holds another text under %s", ErrConflict, note.ID)
		}
		switch {
		case err == nil:
			if err := r.settle(ctx, got, VerdictAck, note, d.ID, nil); err != nil || !d.InConversation {
				return err
			}
			// Events may have another id than the note's there, so it is noted now.
			_, err := r.c.learn(context.WithoutCancel(ctx), r.session, note.ID, SignalDelivered, time.Time{}, "in the conversation as "+d.ID)
			return err
		case errors.Is(err, errRelayLost):
			return err
		case ctx.Err() != nil:
			// Nobody knows whether it arrived; the same id makes another try harmless.
			return ctx.Err()
		case errors.Is(err, ErrConflict):
			return r.settle(ctx, got, VerdictBury, note, relayForeign, err)
		case final(err) || over(try+1, r.opts.Tries):
			// Its event may have come while the answer was lost.
			if known, err := r.c.introduce(ctx, r.session, got.Signal); err == nil && known.State != "" {
				return r.settle(ctx, got, VerdictAck, note, known.Host, nil)
			}
			return r.settle(ctx, got, VerdictBury, note, relayGaveUp+"the host refused it: "+kindOf(err), err)
		}
		r.c.trace(ctx, TraceEvent{Op: "relay.deliver", ID: string(got.ID), Target: r.session, Size: int64(len(note.Text))}, err)
		if err := r.keep(ctx, got, func(ctx context.Context) error { return waitFor(ctx, wait) }); err != nil {
			return err
		}
		wait = min(2*wait, time.Minute)
	}
}

// passive reports whether a signal waits for an idle moment that somebody else brings about.
func passive(s Signal) bool { return s.Kind == KindNote && s.Delivery == DeliveryQueue }

// keep does something that takes long, and keeps the relay and the signal at hand
// meanwhile. If they are lost all the same, it ends what is done.
func (r *relay) keep(ctx context.Context, got Received, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	tick := time.NewTicker(r.opts.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if context.Cause(ctx) == errRelayLost {
				return errRelayLost
			}
			return err
		case <-tick.C:
			err := r.stir(ctx)
			if err == nil {
				err = r.c.store.Settle(ctx, r.queue, Settlement{Seq: got.Seq, Token: got.Token, Verdict: VerdictExtend, Delay: r.opts.Lease})
			}
			if errors.Is(err, errRelayLost) || errors.Is(err, ErrConflict) {
				cancel(errRelayLost)
			} // any other error may be gone at the next tick
		}
	}
}

// final reports whether a host's refusal will be the same next time.
func final(err error) bool {
	for _, kind := range []error{ErrNotFound, ErrDenied, ErrInvalid, ErrLimit, errors.ErrUnsupported} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// settle notes what the host answered. If the claim is in other hands by now, they
// deliver it under the same id, which changes nothing.
func (r *relay) settle(ctx context.Context, got Received, v Verdict, note Note, evidence string, cause error) error {
	if v == VerdictAck {
		setDefault(&evidence, note.ID) // or it would look like a receiver's ack
		evidence = quoteName(evidence)
	}
	st := Settlement{Seq: got.Seq, Token: got.Token, Verdict: v, Reason: evidence}
	err := r.c.store.Settle(context.WithoutCancel(ctx), r.queue, st)
	event := TraceEvent{Op: "relay.deliver", ID: string(got.ID), Target: r.session, Size: int64(len(note.Text))}
	if v == VerdictAck {
		event.HostID = evidence
	} else {
		event.Outcome, event.Reason = "dead", kindOf(cause)
	}
	r.c.trace(ctx, event, err)
	if errors.Is(err, ErrConflict) {
		return errRelayLost
	}
	return err
}

// waitFor waits for d, or until ctx ends.
func waitFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

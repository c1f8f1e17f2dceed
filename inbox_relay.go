package team

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// RelayOptions change how Relay works. The zero value has the defaults.
type RelayOptions struct {
	// Lease is how long the relay of a session stays with a process that is
	// killed. Zero means DefaultRelayLease.
	Lease time.Duration

	// Pause is how long Relay waits before it tries a host again that failed,
	// the first time; then twice as long, up to a minute. Zero means a second.
	Pause time.Duration

	// Wake makes an idle session start to work on a signal. Without it the
	// signal waits for the session's next turn.
	Wake bool
}

// DefaultRelayLease is how long a killed process blocks the relay of a session.
const DefaultRelayLease = 30 * time.Second

const relayPrefix = "team/relay/"

// Relay moves the signals of session's inbox into the session on its host, one by
// one, in order, until ctx ends, whose error it returns. It is for hosts whose
// agents do not call Receive.
//
// A signal is acked when the host has answered that it holds the text, with the
// host's id as evidence (see Status), and not before. The id under which it is
// delivered is derived from the session and the signal, so that a repeated
// delivery never doubles, and never lands in another session. A host that
// fails is tried again after a pause that grows; after MaxAttempts, or at once if
// it refuses for good, the signal becomes a dead letter and the next one follows.
//
// One process at a time relays a session: others wait, and take over when it
// returns, or when its lease ends because it was killed.
func (c *SignalChannel) Relay(ctx context.Context, sessions Sessions, session SessionID, opts *RelayOptions) error {
	if sessions == nil {
		panic("team: Relay with nil Sessions")
	}
	r := &relay{c: c, sessions: sessions, session: session, id: rand.Text()}
	if opts != nil {
		r.opts = *opts
	}
	setDefault(&r.opts.Lease, DefaultRelayLease)
	setDefault(&r.opts.Pause, time.Second)
	return edge("inbox.relay", string(session), r.run(ctx))
}

type relay struct {
	c        *SignalChannel
	sessions Sessions
	session  SessionID
	opts     RelayOptions
	id       string // of this owner
}

// A relayOwner is the record that says who relays a session, and until when.
type relayOwner struct {
	ID    string    `json:"id"`
	Until time.Time `json:"until"`
}

func (r *relay) run(ctx context.Context) error {
	if err := checkName("session", string(r.session)); err != nil {
		return err
	}
	if r.opts.Lease < 0 || r.opts.Pause < 0 {
		return &InvalidError{What: "relay option", Why: "is negative", Offset: -1}
	}
	if _, err := r.c.member(ctx, r.session); err != nil {
		return err
	}
	defer r.leave(context.WithoutCancel(ctx))
	for {
		if err := r.own(ctx); err != nil {
			return err
		}
		// Woken often enough to renew the lease.
		short, cancel := context.WithTimeout(ctx, r.opts.Lease/3)
		got, err := r.c.take(short, inboxQueue(r.session), ReceiveOptions{Lease: r.opts.Lease})
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			continue
		case err != nil:
			return err
		}
		if err := r.deliver(ctx, got[0]); err != nil {
			return err
		}
	}
}

// own becomes the owner of the session's relay, or stays it, and waits while
// somebody else is.
func (r *relay) own(ctx context.Context) error {
	for {
		prev, owner, err := r.owner(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		if owner.ID == r.id || !owner.Until.After(now) {
			value, err := json.Marshal(relayOwner{r.id, now.Add(r.opts.Lease)})
			if err != nil {
				return err
			}
			_, err = r.c.store.Put(ctx, relayPrefix+string(r.session), value, prev)
			if err == nil || !errors.Is(err, ErrConflict) {
				return err
			}
			continue // somebody was quicker: look who
		}
		// It may return before its time is over, or renew it.
		if err := waitFor(ctx, min(owner.Until.Sub(now), r.opts.Lease/10)); err != nil {
			return err
		}
	}
}

func (r *relay) owner(ctx context.Context) (Version, relayOwner, error) {
	var owner relayOwner
	rec, err := r.c.store.Get(ctx, relayPrefix+string(r.session))
	if errors.Is(err, ErrNotFound) {
		return "", owner, nil
	} else if err != nil {
		return "", owner, err
	}
	_ = json.Unmarshal(rec.Value, &owner) // what cannot be read is nobody
	return rec.Version, owner, nil
}

// leave gives the relay of the session back.
func (r *relay) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if v, owner, err := r.owner(ctx); err == nil && owner.ID == r.id {
		_ = r.c.store.Delete(ctx, relayPrefix+string(r.session), v) // or its time ends it
	}
}

// deliver brings one signal to the host, however often that takes. What comes
// behind it waits, so that the order is kept.
func (r *relay) deliver(ctx context.Context, got Received) error {
	note := Note{
		ID: HostMessageID(got.Signal), Text: FormatSignal(r.c.secret, got.Signal), Description: got.Summary,
		Metadata: map[string]string{"source": "team", "signal": string(got.ID), "from": string(got.From.Session), "kind": string(got.Kind)},
		Delivery: got.Delivery, Wake: r.opts.Wake,
	}
	wait := r.opts.Pause
	for try := got.Attempt; ; try++ {
		d, err := r.sessions.Deliver(ctx, r.session, note)
		if err == nil && d.Text != note.Text {
			err = fmt.Errorf("%w: the host holds another text under %s", ErrConflict, note.ID)
		}
		switch {
		case err == nil:
			return r.settle(ctx, got, VerdictAck, d.ID, nil)
		case ctx.Err() != nil:
			// Nobody knows whether it arrived; the same id makes another try harmless.
			return ctx.Err()
		case final(err) || over(try, max(r.c.opts.MaxAttempts, NoLimit)-1):
			return r.settle(ctx, got, VerdictBury, "the host refused it: "+kindOf(err), err)
		}
		r.c.trace(ctx, TraceEvent{Op: "relay.deliver", ID: string(got.ID), Target: r.session}, err)
		if err := r.hold(ctx, got, wait); err != nil {
			return err
		}
		wait = min(2*wait, time.Minute)
	}
}

// final reports whether a host's refusal will be the same next time.
func final(err error) bool {
	for _, kind := range []error{ErrNotFound, ErrConflict, ErrDenied, ErrInvalid, ErrLimit, errors.ErrUnsupported} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// hold waits before the next try, and keeps the claim and the relay meanwhile.
func (r *relay) hold(ctx context.Context, got Received, wait time.Duration) error {
	for end := time.Now().Add(wait); ; {
		if err := r.own(ctx); err != nil {
			return err
		}
		extend := Settlement{Seq: got.Seq, Token: got.Token, Verdict: VerdictExtend, Delay: r.opts.Lease}
		if err := r.c.store.Settle(ctx, inboxQueue(r.session), extend); err != nil {
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		if err := waitFor(ctx, min(left, r.opts.Lease/3)); err != nil {
			return err
		}
	}
}

// settle notes what the host answered. If the claim is in other hands by now, they
// deliver it under the same id, which changes nothing.
func (r *relay) settle(ctx context.Context, got Received, v Verdict, evidence string, cause error) error {
	st := Settlement{Seq: got.Seq, Token: got.Token, Verdict: v, Reason: evidence}
	err := r.c.store.Settle(ctx, inboxQueue(r.session), st)
	event := TraceEvent{Op: "relay.deliver", ID: string(got.ID), Target: r.session}
	if v == VerdictAck {
		event.HostID = evidence
	} else {
		event.Outcome, event.Reason = "dead", kindOf(cause)
	}
	r.c.trace(ctx, event, err)
	if errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}

// HostMessageID returns the id under which a signal is put into its session: that
// of the receiver and the signal, in the form of OpenCode's message ids ("msg_", 12
// hex digits of the time, 14 characters), and the same each time.
func HostMessageID(s Signal) string {
	sum := sha256.Sum256([]byte(string(s.To) + "\x00" + string(s.ID)))
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	tail := make([]byte, 14)
	for i := range tail {
		tail[i] = alphabet[int(sum[i])%len(alphabet)]
	}
	stamp := uint64(s.Sent.UnixMilli()) << 12 & (1<<48 - 1) // OpenCode 2.0.26: ms × 4096, the low 48 bits
	return fmt.Sprintf("msg_%012x%s", stamp, tail)
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

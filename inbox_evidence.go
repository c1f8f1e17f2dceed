package team

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

const relayedPrefix = "team/relayed/"

// A relayedRecord says that a relay has had a signal in hand, and what is known of
// it since beyond what its inbox knows. It is there before the host is first asked,
// so that no event can come too early for it, and says nothing by itself.
type relayedRecord struct {
	ID   SignalID `json:"id"`
	Seq  Seq      `json:"seq"`
	Host string   `json:"host"` // the id that the host has it under

	State    SignalState `json:"state,omitempty"` // empty, cancelled, delivered or acked
	Since    time.Time   `json:"since,omitzero"`
	Evidence string      `json:"evidence,omitempty"`
}

// rank orders what can be known: it only goes up, since later evidence of less is
// an event that came late.
var rank = map[SignalState]int{SignalCancelled: 1, SignalDelivered: 2, SignalAcked: 3}

// hostTail is the part of a host's message id that the receiver and the signal's id
// give. Records of relayed signals lie under it, so both ids lead to them.
func hostTail(to SessionID, id SignalID) string {
	sum := sha256.Sum256([]byte(string(to) + "\x00" + string(id)))
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	tail := make([]byte, hostTailLen)
	for i := range tail {
		tail[i] = alphabet[int(sum[i])%len(alphabet)]
	}
	return string(tail)
}

const hostTailLen = 14

// HostMessageID returns the id under which a signal is put into its session: that
// of the receiver and the signal, in the form of OpenCode's message ids ("msg_", 12
// hex digits of the time, 14 characters), and the same each time.
func HostMessageID(s Signal) string {
	stamp := uint64(s.Sent.UnixMilli()) << 12 & (1<<48 - 1) // OpenCode 2.0.26: ms × 4096, the low 48 bits
	return fmt.Sprintf("msg_%012x%s", stamp, hostTail(s.To, s.ID))
}

func relayedKey(session SessionID, tail string) string {
	return relayedPrefix + string(session) + "/" + tail
}

// Observe takes an event of the host, and notes what it proves about a signal that
// Relay brought into a session: that the host has put it into the conversation
// (delivered), or that somebody took it out of the host's inbox (cancelled). It
// returns whether the event was about a signal of this channel; all others change
// nothing, so a program may pass it whatever Events yields, as often as it comes.
// ctx needs no caller.
//
// It knows session.inbox.delivered and session.inbox.cancelled with an inboxID
// (OpenCode 2.0.26), and message.updated of a user's message (1.18.33). Events are
// lost when a stream breaks: then read the session's messages, and Confirm those
// that are there.
func (c *SignalChannel) Observe(ctx context.Context, e Event) (bool, error) {
	var data struct {
		SessionID SessionID `json:"sessionID"`
		InboxID   string    `json:"inboxID"`
		Info      struct {
			ID        string    `json:"id"`
			SessionID SessionID `json:"sessionID"`
			Role      string    `json:"role"`
		} `json:"info"`
	}
	state := SignalDelivered
	switch e.Type {
	case "session.inbox.delivered", "message.updated":
	case "session.inbox.cancelled":
		state = SignalCancelled
	default:
		return false, nil
	}
	if json.Unmarshal(e.Data, &data) != nil {
		return false, nil // what a host says is data, not an error
	}
	id, session := data.InboxID, e.Session
	setDefault(&session, data.SessionID)
	if e.Type == "message.updated" {
		if data.Info.Role != "user" {
			return false, nil
		}
		id = data.Info.ID
		setDefault(&session, data.Info.SessionID)
	}
	evidence := e.Type
	if e.ID != "" {
		evidence += " " + quoteName(e.ID)
	}
	ours, err := c.learn(ctx, session, id, state, e.Time, evidence)
	return ours, edge("inbox.observe", id, err)
}

// Confirm notes that the host has the message hostID in the conversation of session,
// which is so delivered; evidence says how that is known ("read back", for example) in a
// line of at most 256 bytes. hostID is the Note's, which is the message's id on OpenCode.
// It returns whether the message is a signal of this channel, and is harmless when
// repeated. ctx needs no caller.
func (c *SignalChannel) Confirm(ctx context.Context, session SessionID, hostID, evidence string) (bool, error) {
	err := checkName("evidence", evidence)
	if evidence == "" {
		err = &InvalidError{What: "evidence", Why: "is empty", Offset: -1, Advice: "say how it is known"}
	}
	ours := false
	if err == nil {
		ours, err = c.learn(ctx, session, hostID, SignalDelivered, time.Time{}, evidence)
	}
	return ours, edge("inbox.confirm", hostID, err)
}

// AckID acks a signal that Relay brought into the caller's session, by the id that its
// text has: the agent has dealt with it. A reply does the same (see Signal.ReplyTo).
// To ack twice is no error; ErrNotFound if no relay had this signal for the caller. What
// came from Receive is for Ack.
func (c *SignalChannel) AckID(ctx context.Context, id SignalID) error {
	_, err := ownQueue(ctx)
	caller, _ := CallerFrom(ctx)
	if err == nil {
		err = c.acked(ctx, caller, id, "acked by its receiver")
	}
	if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("%w: no relay had this signal for you; Ack what Receive returned", err)
	}
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid) { // what the store refuses has its line already
		c.trace(ctx, TraceEvent{Op: "relay.acked", ID: string(id), Target: caller.Session}, err)
	}
	return edge("inbox.ack", string(id), err)
}

// answered notes that the sender of s has dealt with the signal that s answers, if a
// relay brought it. The answer is on its way, so an error here is nobody's: a
// repeated Send notes it again.
func (c *SignalChannel) answered(ctx context.Context, s Signal, answer SignalID) {
	if s.ReplyTo == "" {
		return
	}
	if caller, ok := CallerFrom(ctx); ok {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = c.acked(ctx, caller, s.ReplyTo, "answered by "+string(answer))
	}
}

func (c *SignalChannel) acked(ctx context.Context, caller Caller, id SignalID, evidence string) error {
	r, _, err := c.relayed(ctx, caller.Session, hostTail(caller.Session, id))
	if err == nil && r.ID != id {
		err = ErrNotFound
	}
	if err != nil {
		return err
	}
	ours, err := c.learn(ctx, caller.Session, r.Host, SignalAcked, time.Time{}, evidence)
	if err == nil && !ours {
		err = ErrNotFound // swept in this moment
	}
	return err
}

// relayed returns the record of a relayed signal, or ErrNotFound.
func (c *SignalChannel) relayed(ctx context.Context, session SessionID, tail string) (relayedRecord, Version, error) {
	rec, err := c.store.Get(ctx, relayedKey(session, tail))
	if err != nil {
		return relayedRecord{}, "", err
	}
	var r relayedRecord
	if err := json.Unmarshal(rec.Value, &r); err != nil {
		return relayedRecord{}, rec.Version, fmt.Errorf("%w: record of a relayed signal: %w", ErrCorrupt, err)
	}
	return r, rec.Version, nil
}

// learn raises what is known of a relayed signal to state, and reports whether there
// is such a signal. at is the host's time; zero, or nonsense, is now.
func (c *SignalChannel) learn(ctx context.Context, session SessionID, host string, state SignalState, at time.Time, evidence string) (bool, error) {
	if session == "" || checkName("session", string(session)) != nil || len(host) != len(HostMessageID(Signal{})) ||
		strings.Trim(host, "_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return false, nil // not one of ours
	}
	if y := at.Year(); at.IsZero() || y < 1 || y > 9999 {
		at = time.Now()
	}
	tail := host[len(host)-hostTailLen:]
	for try := 0; ; try++ {
		r, version, err := c.relayed(ctx, session, tail)
		if errors.Is(err, ErrNotFound) || err == nil && r.Host != host {
			return false, nil
		}
		if err != nil {
			return true, err
		}
		if rank[state] <= rank[r.State] {
			return true, nil
		}
		r.State, r.Since, r.Evidence = state, at.UTC().Truncate(time.Millisecond), evidence
		value, err := json.Marshal(r)
		if err == nil {
			_, err = c.store.Put(ctx, relayedKey(session, tail), value, version)
		}
		// Each conflict is somebody who raised it, and it can be raised three times.
		if errors.Is(err, ErrConflict) && try < len(rank) {
			continue
		}
		c.trace(ctx, TraceEvent{Op: "relay." + string(state), ID: string(r.ID), Target: session, HostID: host}, err)
		return true, err
	}
}

// introduce makes the record of a signal before a relay first asks the host, and
// returns what is known of it already.
func (c *SignalChannel) introduce(ctx context.Context, session SessionID, s Signal) (relayedRecord, error) {
	r := relayedRecord{ID: s.ID, Seq: s.Seq, Host: HostMessageID(s)}
	value, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	key := relayedKey(session, hostTail(session, s.ID))
	if _, err = c.store.Put(ctx, key, value, ""); !errors.Is(err, ErrConflict) {
		return r, err
	}
	known, version, err := c.relayed(ctx, session, hostTail(session, s.ID))
	if errors.Is(err, ErrCorrupt) { // it says nothing: begin again
		_, err = c.store.Put(ctx, key, value, version)
		return r, err
	}
	return known, err
}

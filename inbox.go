package team

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The limits of a SignalChannel.
const (
	DefaultMaxTokens   = 512
	DefaultMaxPending  = 1000
	DefaultMaxAttempts = 5
	DefaultLease       = time.Minute

	// MaxFrameTokens is what the provenance, the addresses and the references of
	// a rendered signal may cost on top of its summary and body.
	MaxFrameTokens = 2048

	maxRefs = 16

	// seamTokens is more than an estimate of a whole can be above those of its
	// parts, where the summary and the body meet the frame.
	seamTokens = 16
)

// SignalOptions change what a SignalChannel refuses and how it hands out. The
// zero value has the defaults; NoLimit turns a limit off.
type SignalOptions struct {
	// MaxTokens is the cap of a signal's summary and body together, by
	// EstimateTokens, as FormatSignal renders them. Zero means DefaultMaxTokens.
	MaxTokens int

	// MaxPending is how many signals an inbox holds that are not settled. Zero
	// means DefaultMaxPending.
	MaxPending int

	// MaxAttempts is how often a signal is handed out before it is a dead
	// letter. Zero means DefaultMaxAttempts.
	MaxAttempts int

	// Lease is how long a received signal is the receiver's alone, if
	// ReceiveOptions do not say. Zero means DefaultLease.
	Lease time.Duration

	// Epoch is the run of the team, for signals that do not say. Empty is none.
	Epoch string

	// Permissions says who may signal whom: it is asked for PermissionSignal for each
	// receiver, and all but Allow is ErrDenied, also an Ask, since nothing here waits
	// for an answer. Nil lets everybody signal.
	Permissions Permissions

	// Offload takes the bodies of signals over the cap: such a signal is sent
	// without its body and with a reference to it. Nil refuses them.
	Offload *Offload

	// Trace is told of every write, also of those that were refused: a Trail's
	// Record, for example. Nil is nobody. It is called in the caller's goroutine when
	// the write has been made; what a killed process could not tell of, Retrace finds.
	Trace func(context.Context, TraceEvent)
}

// SignalID names a signal: "sig_" and 26 letters and digits. It says nothing
// about order; Seq does.
type SignalID string

// Kind says what a signal is for: at most 32 of the characters a to z, 0 to 9, "-"
// and "_". The four below are those that a team's work needs; more are welcome.
type Kind string

// The kinds.
const (
	KindSettled   Kind = "settled"   // a session has finished its step
	KindHandoff   Kind = "handoff"   // the receiver is next
	KindUnsettled Kind = "unsettled" // something is missing
	KindNote      Kind = "note"
)

// A Signal is a short structured message from one session to another. What
// is long goes on a Board, and a Ref leads there.
type Signal struct {
	Kind     Kind      `json:"kind"`
	Summary  string    `json:"summary"`           // one line, not empty
	Body     string    `json:"body,omitempty"`    // UTF-8
	Refs     []Ref     `json:"refs,omitempty"`    // at most 16
	ReplyTo  SignalID  `json:"replyTo,omitempty"` // the signal that it answers, which is so acked if a relay brought it
	Delivery Delivery  `json:"delivery"`          // DeliverySteer if empty
	Expires  time.Time `json:"expires,omitzero"`  // not handed out from then on, to the millisecond; zero is never

	// Epoch is the run of the team that the signal belongs to; empty is that of
	// the channel's options. Once the epoch is fenced (see Fence) the signal is
	// neither taken nor handed out. At most 256 bytes of one line.
	Epoch string `json:"epoch,omitempty"`

	// Key makes a repeated Send harmless: the same key from the same session
	// to the same inbox admits one signal, as long as the store keeps it. A repeated
	// Send passes the same signal, Expires too; that this is over by then, or the epoch
	// fenced, is no matter. At most 256 bytes of one line; empty is none.
	Key string `json:"key,omitempty"`

	// What follows is set by Send, whatever the caller put there.
	ID   SignalID  `json:"id"`
	From Caller    `json:"from"`
	To   SessionID `json:"to"`
	Sent time.Time `json:"sent"` // for people; the order is Seq
	Seq  Seq       `json:"seq,omitempty"`
}

// A Ref leads to a file that a signal is about: an entry of a board, or a text
// that was offloaded.
type Ref struct {
	Path   string `json:"path"`             // absolute
	SHA256 string `json:"sha256"`           // of the offloaded text; of a board's entry: of its body, without the header line
	Size   int64  `json:"size"`             // of the file, in bytes
	Handle Handle `json:"handle,omitempty"` // of an offloaded text, for Offload.Fetch
}

// A SignalChannel carries signals between the sessions of a team: one inbox for
// each session, in one order, each signal handed out until it is acked. What it
// promises about crashes and other processes is what its Store promises.
//
// The author of a signal is the caller in the context (see WithCaller), and a
// session receives from its own inbox only. A signal is never consent: nothing
// here treats one as the user's answer.
//
// It is safe for use by several goroutines, and any number of channels may
// share a store.
type SignalChannel struct {
	store  Store
	opts   SignalOptions
	secret SignalSecret
}

// OpenSignals opens the channel in store. All channels in one store share its
// roster and its secret for FormatSignal, which the first makes. The caller keeps the
// store open as long as the channel is used, and closes it.
func OpenSignals(ctx context.Context, store Store, opts *SignalOptions) (*SignalChannel, error) {
	if store == nil {
		panic("team: OpenSignals with a nil Store")
	}
	c := &SignalChannel{store: store}
	if opts != nil {
		c.opts = *opts
	}
	setDefault(&c.opts.MaxTokens, DefaultMaxTokens)
	setDefault(&c.opts.MaxPending, DefaultMaxPending)
	setDefault(&c.opts.MaxAttempts, DefaultMaxAttempts)
	setDefault(&c.opts.Lease, DefaultLease)
	err := c.opts.check()
	if err == nil {
		c.secret, err = loadSecret(ctx, store, secretRecord)
	}
	if err != nil {
		return nil, edge("inbox.open", "", err)
	}
	return c, nil
}

func (o *SignalOptions) check() error {
	if o.Lease < 0 {
		return &InvalidError{What: "signal option Lease", Why: "is negative", Offset: -1}
	}
	return checkLimits("signal", limitOption{"MaxTokens", o.MaxTokens}, limitOption{"MaxPending", o.MaxPending}, limitOption{"MaxAttempts", o.MaxAttempts})
}

// Sent says where a signal went.
type Sent struct {
	ID       SignalID
	To       SessionID
	Seq      Seq
	Replayed bool // the key was used before: ID and Seq are those of the first time
}

// Send puts s into the inbox of to, which is a session on the roster, or a role
// that one session of the caller's team has: those with the same lead at the top of
// their parents. For a caller that is not on the roster, which has no team, a role is that of the
// only session that has it. When Send returns nil, the signal
// is stored, behind all that were sent to this inbox before.
//
// Over the cap the body is spilled, if the channel has an Offload: it is a file
// before the signal is stored, and the signal has no body but a Ref with its path
// and its handle as the last one. The signal under a Key is the one that was passed,
// so that a repeated Send is a replay of it, though it was spilled. A file whose
// signal was refused in the end is for Collect.
//
// A summary and body over the cap are otherwise ErrTooLarge, a full inbox ErrLimit; to
// leading to nobody, or to several, is a *RecipientError; a key that was used for
// another signal is ErrConflict; a malformed signal is ErrInvalid; one to whom the
// caller may not send is ErrDenied. Nothing was sent
// when Send returns an error, unless that is ErrUnknownOutcome: then send again
// with the same key. Without a Key a second Send is a second signal.
func (c *SignalChannel) Send(ctx context.Context, to string, s Signal) (Sent, error) {
	sent, err := c.send(ctx, []string{to}, s)
	if err != nil {
		return Sent{}, edge("inbox.send", to, err)
	}
	return sent[0], nil
}

// SendAll is Send to several: all get the signal or, on any error, none does. It
// needs a Store that is a Committer; with any other it is errors.ErrUnsupported.
// Naming somebody twice sends once.
func (c *SignalChannel) SendAll(ctx context.Context, to []string, s Signal) ([]Sent, error) {
	sent, err := c.send(ctx, to, s)
	return sent, edge("inbox.send", strings.Join(to, ","), err)
}

// trace tells of a write.
func (c *SignalChannel) trace(ctx context.Context, event TraceEvent, err error) {
	if c.opts.Trace == nil {
		return
	}
	outcome, reason := outcomeOf(err)
	if event.Outcome == "" || err != nil {
		event.Outcome, event.Reason = outcome, reason
	}
	c.opts.Trace(ctx, event)
}

func (c *SignalChannel) send(ctx context.Context, to []string, s Signal) ([]Sent, error) {
	sent, items, err := c.admit(ctx, to, s)
	event := TraceEvent{Op: "inbox.send", ReplyTo: string(s.ReplyTo), Size: int64(len(s.Summary) + len(s.Body)), Count: len(to)}
	if err != nil && (len(sent) == 0 || !errors.Is(err, ErrUnknownOutcome)) {
		c.trace(ctx, event, err)
		return nil, err
	}
	for i, r := range sent { // one line for each inbox, where the signal is or may be
		event.ID, event.Target, event.SHA256, event.Count, event.Outcome = string(r.ID), r.To, items[i].Digest, 0, ""
		if r.Replayed {
			event.Outcome = "replayed"
		}
		c.trace(ctx, event, err)
	}
	if err != nil {
		return nil, err
	}
	return sent, nil
}

// prepare completes a signal and finds its receivers. late says that it can only be
// one that was sent before, which needs its key.
func (c *SignalChannel) prepare(ctx context.Context, to []string, s Signal) (_ Signal, _ []SessionID, late, err error) {
	caller, err := callerOf(ctx)
	if err != nil {
		return s, nil, nil, err
	}
	if caller.Session == "" {
		return s, nil, nil, &InvalidError{What: "caller", Why: "has no session", Offset: -1}
	}
	s.From, s.Seq, s.To = caller, 0, ""
	s.Sent = time.Now().UTC().Truncate(time.Millisecond)
	if s.Delivery == "" {
		s.Delivery = DeliverySteer
	}
	if !s.Expires.IsZero() {
		s.Expires = s.Expires.UTC().Truncate(time.Millisecond)
	}
	setDefault(&s.Epoch, c.opts.Epoch)
	tooLong := c.check(s)
	if tooLong != nil && !c.maySpill(s, tooLong) {
		return s, nil, nil, tooLong
	}
	if late, err = c.late(ctx, s); err == nil && s.Key == "" {
		err = late
	}
	if err != nil {
		return s, nil, nil, err
	}
	sessions, err := c.resolve(ctx, caller.Session, to)
	if err == nil {
		err = c.permit(ctx, caller.Session, sessions)
	}
	if err == nil && tooLong != nil && late == nil {
		s, err = c.spill(ctx, s)
	}
	return s, sessions, late, err
}

// late returns why s comes too late to be sent now.
func (c *SignalChannel) late(ctx context.Context, s Signal) (late, err error) {
	if !s.Expires.IsZero() && !s.Expires.After(s.Sent) {
		return &InvalidError{What: "expiry", Why: "is over already", Offset: -1, Advice: "set a later time, or none"}, nil
	}
	if err = c.fenced(ctx, s.Epoch); errors.Is(err, ErrFenced) {
		return err, nil
	}
	return nil, err
}

// permit refuses receivers that the sender may not signal.
func (c *SignalChannel) permit(ctx context.Context, from SessionID, to []SessionID) error {
	if c.opts.Permissions == nil {
		return nil
	}
	for _, session := range to {
		m, err := c.member(ctx, session)
		if err == nil {
			err = permit(ctx, c.opts.Permissions, from, PermissionSignal, string(m.Role))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// admit sends s. If the store fails it says all the same what it was given.
func (c *SignalChannel) admit(ctx context.Context, to []string, s Signal) ([]Sent, []Item, error) {
	passed := s
	s, sessions, late, err := c.prepare(ctx, to, s)
	if err != nil {
		return nil, nil, err
	}
	sent, items := make([]Sent, len(sessions)), make([]Item, len(sessions))
	batches := make([]Batch, len(sessions))
	for i, session := range sessions {
		s.ID, s.To = newSignalID(), session
		sent[i] = Sent{ID: s.ID, To: session}
		if items[i], err = c.encode(s, passed); err != nil {
			return nil, nil, err
		}
		batches[i] = Batch{Queue: inboxQueue(session), Items: items[i : i+1], Max: max(c.opts.MaxPending, 0)}
	}
	var receipts [][]Receipt
	if late == nil {
		receipts, err = c.append(ctx, batches)
	} else {
		receipts, err = c.replays(ctx, batches, late)
	}
	if err != nil {
		return sent, items, err
	}
	for i := range sent {
		r := receipts[i][0]
		sent[i].ID, sent[i].Seq, sent[i].Replayed = SignalID(r.ID), r.Seq, r.Replayed
	}
	c.answered(ctx, s, sent[0].ID)
	return sent, items, nil
}

// replays is append for what comes too late: it adds nothing, and late is the error
// unless all were admitted before. It looks through what the inboxes keep.
func (c *SignalChannel) replays(ctx context.Context, batches []Batch, late error) ([][]Receipt, error) {
	receipts := make([][]Receipt, len(batches))
	for i, b := range batches {
		want := b.Items[0]
		for item, err := range c.store.Items(ctx, b.Queue, ListOptions{Settled: true}) {
			if err != nil {
				return nil, err
			}
			if item.Key != want.Key {
				continue
			}
			if item.Digest != want.Digest {
				return nil, fmt.Errorf("%w: the key was used for another signal; use another key, or send the first signal as it was", ErrConflict)
			}
			receipts[i] = []Receipt{{ID: item.ID, Seq: item.Seq, Replayed: true}}
			break
		}
		if receipts[i] == nil {
			return nil, late
		}
	}
	return receipts, nil
}

func (c *SignalChannel) append(ctx context.Context, batches []Batch) ([][]Receipt, error) {
	if len(batches) == 1 {
		b := batches[0]
		r, err := c.store.Append(ctx, b.Queue, b.Items, b.Max)
		return [][]Receipt{r}, err
	}
	committer, ok := c.store.(Committer)
	if !ok {
		return nil, fmt.Errorf("%w: the store cannot append to several inboxes in one step; send to one at a time",
			errors.ErrUnsupported)
	}
	done, err := committer.Commit(ctx, batches, nil)
	return done.Receipts, err
}

// check refuses a signal that is malformed or over the cap.
func (c *SignalChannel) check(s Signal) error {
	if err := s.check(); err != nil {
		return err
	}
	var text strings.Builder
	escapeTo(&text, s.Summary, true)
	escapeTo(&text, s.Body, false)
	if n := EstimateTokens(text.String()); over(n, c.opts.MaxTokens) {
		return &LimitError{What: "signal tokens", Got: int64(n), Max: int64(c.opts.MaxTokens), TooLarge: true,
			Advice: "write the text to the board and refer to the entry"}
	}
	s.Summary, s.Body = "", ""
	if n := frameCost(s); over(n, MaxFrameTokens) {
		return &LimitError{What: "tokens of a signal's references and addresses", Got: int64(n), Max: MaxFrameTokens, TooLarge: true,
			Advice: "write an entry that lists them, and refer to that"}
	}
	return nil
}

// check refuses a signal that is malformed, to be sent or as it was stored.
func (s Signal) check() error {
	bad := func(what, why string) error { return &InvalidError{What: what, Why: why, Offset: -1} }
	if !isWord(string(s.Kind)) {
		return &InvalidError{What: "kind", Why: "is not 1 to 32 of the characters a-z, 0-9, - and _", Offset: -1,
			Advice: "use KindNote, KindSettled, KindHandoff or KindUnsettled"}
	}
	if strings.TrimSpace(s.Summary) == "" {
		return bad("summary", "is empty")
	}
	for _, text := range []struct{ what, s string }{{"summary", s.Summary}, {"body", s.Body}} {
		if !utf8.ValidString(text.s) {
			return &InvalidError{What: text.what, Why: "is not UTF-8", Offset: invalidAt(text.s)}
		}
	}
	if i := strings.IndexFunc(s.Summary, breaksLine); i >= 0 {
		return &InvalidError{What: "summary", Why: "has a control character or a line break", Offset: i,
			Advice: "a summary is one line; the rest goes into the body"}
	}
	for _, name := range []struct{ what, s string }{
		{"sender's session", string(s.From.Session)}, {"sender's role", string(s.From.Role)}, {"receiver", string(s.To)}, {"key", s.Key}, {"epoch", s.Epoch},
	} {
		if err := checkName(name.what, name.s); err != nil {
			return err
		}
	}
	if s.Delivery != DeliverySteer && s.Delivery != DeliveryQueue {
		return bad("delivery", fmt.Sprintf("is neither %q nor %q", DeliverySteer, DeliveryQueue))
	}
	if s.ReplyTo != "" && !isSignalID(s.ReplyTo) {
		return bad("reply-to", "is not the id of a signal")
	}
	if y := s.Expires.Year(); y < 1 || y > 9999 {
		return bad("expiry", "is not in the years 1 to 9999")
	}
	if len(s.Refs) > maxRefs {
		return &LimitError{What: "signal references", Got: int64(len(s.Refs)), Max: maxRefs,
			Advice: "write an entry that lists them, and refer to that"}
	}
	for _, r := range s.Refs {
		if !filepath.IsAbs(r.Path) || !utf8.ValidString(r.Path) || strings.IndexFunc(r.Path, breaksLine) >= 0 ||
			len(r.SHA256) != 64 || strings.Trim(r.SHA256, "0123456789abcdef") != "" || r.Size < 0 || r.Handle != "" && !r.Handle.valid() {
			return &InvalidError{What: "reference", Why: "is not an absolute path with the SHA-256 and the size of a file", Offset: -1,
				Advice: "pass what Entry.Ref or Shortened.Ref returns"}
		}
	}
	return nil
}

// frameCost returns what s costs in a context at most, whatever its Seq will be.
func frameCost(s Signal) int {
	s.Seq = math.MaxUint64
	return EstimateTokens(FormatSignal(SignalSecret{}, s)) + seamTokens
}

// inboxQueue returns the queue that is the inbox of a session.
func inboxQueue(session SessionID) string { return "inbox/" + string(session) }

// ownQueue returns the queue of the caller in ctx.
func ownQueue(ctx context.Context) (string, error) {
	caller, ok := CallerFrom(ctx)
	if !ok || caller.Session == "" {
		return "", &InvalidError{What: "caller", Why: "is not in the context, or has no session", Offset: -1,
			Advice: "set it with WithCaller where the host calls in"}
	}
	return inboxQueue(caller.Session), checkName("caller's session", string(caller.Session))
}

func newSignalID() SignalID { return SignalID("sig_" + strings.ToLower(rand.Text())) }

func isSignalID(id SignalID) bool {
	rest, ok := strings.CutPrefix(string(id), "sig_")
	return ok && len(rest) == 26 && isWord(rest)
}

// isWord reports whether s is what a Kind may be.
func isWord(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// breaksLine reports whether r can end a line or command a terminal.
func breaksLine(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }

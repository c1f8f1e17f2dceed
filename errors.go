package team

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The kinds of failure that a caller can act on. Every error of a channel
// wraps one of them, a context error, errors.ErrUnsupported, or the error of
// the disk or store underneath; test with errors.Is.
var (
	// ErrNotFound: what was named does not exist, or not any more.
	ErrNotFound = errors.New("not found")

	// ErrConflict: somebody else was first. Read again, then decide.
	ErrConflict = errors.New("conflict")

	// ErrLimit: a size or a count would be passed. The *LimitError in the
	// chain has the numbers.
	ErrLimit = errors.New("limit reached")

	// ErrTooLarge: one text is over its own cap; it is also an ErrLimit.
	// Put the text on a Board and send its path.
	ErrTooLarge = errors.New("too large")

	// ErrDenied: the caller may not do this, or a path leads to where this
	// library never goes.
	ErrDenied = errors.New("denied")

	// ErrInvalid: the input itself is malformed; the same call can never
	// succeed. The *InvalidError in the chain says what and where.
	ErrInvalid = errors.New("invalid")

	// ErrCorrupt: stored bytes are not the bytes that were written.
	ErrCorrupt = errors.New("corrupt")

	// ErrUnknownRecipient: nobody of that name is on the roster, or several
	// are; it is also an ErrNotFound. The *RecipientError has the names.
	ErrUnknownRecipient = errors.New("unknown recipient")

	// ErrUnknownOutcome: the call ended, mostly with its context, while the
	// change was on its way to the disk or a server. It may have been made.
	// The same call with the same key or version settles it.
	ErrUnknownOutcome = errors.New("outcome unknown")

	// ErrFenced: the run (epoch) that a signal belongs to is over.
	ErrFenced = errors.New("fenced")

	// ErrClosed: the channel, or the store under it, was closed by its owner.
	ErrClosed = errors.New("closed")
)

// An Error says which operation failed, and on what. Channels add it once, at
// their edge; ports return errors without it.
type Error struct {
	Op   string // "board.write", "inbox.send" (of a SignalChannel), …
	Name string // the entry, session, key or path; may be empty
	Err  error
}

func (e *Error) Error() string {
	if e.Name == "" {
		return e.Op + ": " + e.Err.Error()
	}
	return e.Op + " " + quoteName(e.Name) + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// A LimitError is a refusal with its numbers. It is an ErrLimit, and where one
// text alone is over its cap an ErrTooLarge as well.
type LimitError struct {
	What     string // the thing and its unit: "board entry characters"
	Got, Max int64
	Advice   string // what to do next; may be empty
	TooLarge bool   // one text alone is over its cap
}

func (e *LimitError) Error() string {
	return withAdvice(fmt.Sprintf("%s: %d, limit %d", e.What, e.Got, e.Max), e.Advice)
}

// Is reports whether target is ErrLimit, or ErrTooLarge where that holds.
func (e *LimitError) Is(target error) bool {
	return target == ErrLimit || e.TooLarge && target == ErrTooLarge
}

// An InvalidError says which input is malformed, why, and where in it.
type InvalidError struct {
	What   string // "topic", "body", "board header", …
	Why    string // "is empty", "is not UTF-8", …
	Offset int    // byte offset of the fault, or -1 where there is none
	Advice string // what to do next; may be empty
}

func (e *InvalidError) Error() string {
	s := e.What + " " + e.Why
	if e.Offset >= 0 {
		s += " at byte " + strconv.Itoa(e.Offset)
	}
	return withAdvice(s, e.Advice)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// A DigestError says that stored bytes have another SHA-256 than the one
// recorded when they were written. It is an ErrCorrupt.
type DigestError struct {
	Want, Got string // lower-case hex
}

func (e *DigestError) Error() string {
	return fmt.Sprintf("sha256 is %s, was %s when written; "+
		"the file was changed since, open it by its path to see how", e.Got, e.Want)
}

// Is reports whether target is ErrCorrupt.
func (e *DigestError) Is(target error) bool { return target == ErrCorrupt }

// A RecipientError says why an address leads to nobody. It is an
// ErrUnknownRecipient and an ErrNotFound.
type RecipientError struct {
	To string
	// Near has names from the roster that resemble To, best first.
	Near []string
	// Candidates has the sessions with the role To, when there is not exactly
	// one in the sender's team: name one of them.
	Candidates []SessionID
}

func (e *RecipientError) Error() string {
	to := quoteName(e.To)
	switch {
	case len(e.Candidates) > 0:
		return fmt.Sprintf("role %s is not that of exactly one session in your team, which is those on the roster under one lead; "+
			"name one of the sessions %s", to, someOf(e.Candidates))
	case len(e.Near) > 0:
		return fmt.Sprintf("no session or role %s on the roster; near: %s", to, someOf(e.Near))
	default:
		return fmt.Sprintf("no session or role %s on the roster; enrol it first", to)
	}
}

// Is reports whether target is ErrUnknownRecipient or ErrNotFound.
func (e *RecipientError) Is(target error) bool {
	return target == ErrUnknownRecipient || target == ErrNotFound
}

// kindOf returns the kind of an error in a word or two, for a trail: it never has
// content.
func kindOf(err error) string {
	for _, kind := range []error{ErrFenced, ErrUnknownOutcome, context.Canceled, context.DeadlineExceeded, ErrUnknownRecipient, ErrTooLarge, ErrNotFound,
		ErrConflict, ErrLimit, ErrDenied, ErrInvalid, ErrCorrupt, ErrClosed, errors.ErrUnsupported} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return "failed"
}

// outcomeOf returns the outcome and the reason of a write for a trail.
func outcomeOf(err error) (outcome, reason string) {
	switch {
	case err == nil:
		return "ok", ""
	case errors.Is(err, ErrUnknownOutcome):
		return "unknown", kindOf(err)
	default:
		return "refused", kindOf(err)
	}
}

// someOf lists the first names.
func someOf[T ~string](names []T) string {
	const most = 8
	var quoted []string
	for _, n := range names[:min(len(names), most)] {
		quoted = append(quoted, quoteName(string(n)))
	}
	if n := len(names) - most; n > 0 {
		quoted = append(quoted, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(quoted, ", ")
}

func withAdvice(s, advice string) string {
	if advice == "" {
		return s
	}
	return s + "; " + advice
}

// quoteName shows a name as it is where it is plain, else quoted and cut, so
// that no name from a model or a host can break a line or flood a log.
func quoteName(s string) string {
	const most = 120
	if strings.IndexFunc(s, func(r rune) bool {
		return r <= ' ' || r == '"' || !strconv.IsPrint(r)
	}) < 0 && len(s) <= most && s != "" {
		return s
	}
	if len(s) > most {
		return strconv.Quote(strings.ToValidUTF8(s[:most], "")) + "…"
	}
	return strconv.Quote(s)
}

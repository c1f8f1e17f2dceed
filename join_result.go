package team

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Shown says where an answer was shown to the parent first, and whether that was
// before.
type Shown struct {
	Turn  int
	First Sighting
	// Again: the parent has had this answer before, so show it where it is now only by
	// Pointer, if the host lets you.
	Again   bool
	Pointer string
}

// An Observed is what ObserveText made of a text.
type Observed struct {
	Verdict  EnvelopeVerdict // only EnvelopeMatched changes anything
	Envelope Envelope
	Shown    Shown
}

// ObserveText takes a text that the host wrote to the parent: a notice of a child in the
// background, or the result of a call (then in.Tool is set; RegisterResult reads the
// host's own object). It counts only if it is an envelope of a registered child. id is the
// host's own id of the message, the part or the call, under which the same text
// counts once however often it comes, as it does where a host replays its hooks; without one
// the text itself is what it is known by.
//
// The answer in it counts as shown to the parent from now on: that is where the host
// put it. in.Known is set by the Join.
func (j *Join) ObserveText(ctx context.Context, in EnvelopeInput, id string) (Observed, error) {
	in.Known = j.Known
	env, verdict := j.opts.Matcher.Match(in)
	out := Observed{Verdict: verdict, Envelope: env}
	if verdict != EnvelopeMatched {
		return out, nil
	}
	c := j.child(env.Session)
	if env.Parent != "" && env.Parent != j.parent || c == nil {
		out.Verdict = EnvelopeForeign
		return out, nil
	}
	var err error
	if env.State == ChildRunning {
		err = j.absorb(ctx, c, evidence{JoinEvidence: JoinEvidence{Source: FromDispatch}, kind: evidenceDispatch,
			dispatch: Dispatch{Session: c.id, Background: true}})
	} else {
		source, via := FromEnvelope, "tool result"
		if in.Tool == "" {
			source, via = FromNotice, "notice"
		}
		out.Shown, err = j.ended(ctx, c, env, id, source, via)
	}
	return out, edge("join.observe", string(env.Session), err)
}

// ended takes an envelope of a child that does not run any more.
func (j *Join) ended(ctx context.Context, c *joined, env Envelope, id string, source JoinSource, via string) (Shown, error) {
	e := evidence{JoinEvidence: JoinEvidence{Source: source, What: string(env.Generation), ID: id, State: env.State},
		sight: &Sighting{Via: via, ID: boundID(id), At: time.Now().UTC()}}
	if e.State == ChildUnknown {
		e.Reason = env.Word
	}
	sum := hexDigest(bytesOf(trimmed(env.Body)))
	e.seen = boundID(id)
	if e.seen == "" {
		e.seen = string(env.State) + " " + sum
	}
	if e.State == ChildFailed || e.State == ChildCancelled {
		e.Reason = firstLine(env.Body)
	}
	answer, failed := j.keepAnswer(ctx, c, env.Body, sum)
	if failed == nil {
		answer.Truncated = env.Truncated
		e.answer = &answer
		if e.State == ChildCompleted && answer.Size == 0 {
			e.State = ChildEmpty
		}
	} else {
		e.seen = "" // the text is missing: let it come again
	}
	err := errors.Join(failed, j.absorb(ctx, c, e))
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := c.rec.Turn; n > 0; n-- {
		t := c.rec.turn(n)
		if t == nil {
			break
		}
		if t.Answer.SHA256 == sum && t.Answer.First != nil && (t.Told || n == c.rec.Turn) {
			first := *t.Answer.First
			shown := Shown{Turn: n, First: first, Again: first.Via != via || first.ID != boundID(id)}
			if shown.Again {
				shown.Pointer = pointer(c.id, n, first)
			}
			return shown, err
		}
	}
	return Shown{}, err
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return cutReason(s)
}

func pointer(id SessionID, turn int, first Sighting) string {
	return fmt.Sprintf("[answer of %s, turn %d: shown before, by %s at %s]", quoteName(string(id)), turn, quoteName(first.Via), first.At.Format(time.RFC3339))
}

func (j *Join) textKey(id SessionID, sum string) string {
	return j.prefix + "t/" + keyPart(string(id)) + "/" + sum[:32]
}

// keepAnswer stores the text of an answer, shortened if the program wants that, and
// returns what the record says of it.
func (j *Join) keepAnswer(ctx context.Context, c *joined, text, sum string) (Answer, error) {
	a := Answer{Known: true, SHA256: sum, Size: len(text)}
	if strings.TrimSpace(text) == "" {
		a.Size = 0
		return a, nil
	}
	c.mu.Lock()
	for n := c.rec.Turn; n > 0; n-- { // kept before: shorten nothing twice
		if t := c.rec.turn(n); t != nil && t.Answer.Known && t.Answer.SHA256 == sum {
			a = t.Answer
			a.First = nil
			c.mu.Unlock()
			return a, nil
		}
	}
	c.mu.Unlock()
	if j.opts.Shorten != nil {
		short, ref, err := j.opts.Shorten(ctx, text)
		if err != nil {
			return a, err
		}
		if ref != (Ref{}) {
			a.Ref = &ref
		}
		text = short
	}
	// It may be there, and be the same text by its digest. A new version keeps it from a sweep that
	// saw it without its child.
	_, err := j.records.Put(ctx, j.textKey(c.id, sum), []byte(text), AnyVersion)
	j.trace(ctx, TraceEvent{Op: "join.text", ID: c.name(), Target: c.id, Size: int64(a.Size), SHA256: sum}, err)
	return a, err
}

// A Result is a child's answer, or where it was shown.
type Result struct {
	Session SessionID
	Turn    int
	State   ChildState // of the turn; if it is not settled, there is no answer yet
	Answer  Answer
	// Text is the answer, as Shorten left it, if nobody was shown it before; else it is empty
	// and Pointer says who was. Text returns it all the same.
	Text    string
	Again   bool
	Pointer string
	// Unread is why there is no text though there may be one: no envelope came, and the host
	// could not be asked.
	Unread error
}

// Result returns the answer of a child's latest turn, once: whoever comes first, in
// whatever process and by whatever way, gets the text, and all others get a pointer. via
// says how the parent is shown it, in a word or two. Wait does the same for what it
// returns. Where no envelope brought the text, an Inspector is asked.
func (j *Join) Result(ctx context.Context, id SessionID, via string) (Result, error) {
	err := checkName("via", via)
	if via == "" {
		err = &InvalidError{What: "via", Why: "is empty", Offset: -1, Advice: "say how the parent is shown it"}
	}
	var found []*joined
	if err == nil {
		found, err = j.find([]SessionID{id})
	}
	var r Result
	if err == nil {
		r, err = j.surface(ctx, found[0], via, time.Time{})
	}
	return r, edge("join.result", string(id), err)
}

// surface returns the answer of a child, once. until is how long the host may be asked for it;
// zero is as in inspect.
func (j *Join) surface(ctx context.Context, c *joined, via string, until time.Time) (Result, error) {
	child := c.account()
	r := Result{Session: c.id, Turn: child.Turn, State: child.State, Answer: child.Answer}
	if !child.Settled() {
		return r, nil
	}
	if !child.Answer.Known {
		r.Unread = j.fetch(ctx, c, child.Turn, until)
		child = c.account()
		if child.Turn != r.Turn {
			return r, nil // resumed meanwhile
		}
		r.State, r.Answer = child.State, child.Answer
	}
	if !r.Answer.Known || r.Answer.Size == 0 {
		return r, nil
	}
	r.Unread = nil
	mine := Sighting{Via: via, ID: rand.Text(), At: time.Now().UTC()}
	first := r.Answer.First
	if first == nil {
		// The text first: what cannot be read must not count as shown.
		text, err := j.text(ctx, c.id, r.Answer)
		if err != nil {
			return r, err
		}
		err = j.absorb(ctx, c, evidence{kind: evidenceAnswer, turn: r.Turn, sight: &mine})
		if err != nil {
			return r, err
		}
		c.mu.Lock()
		if t := c.rec.turn(r.Turn); t != nil {
			r.Answer = t.clone().Answer
			first = r.Answer.First
		}
		c.mu.Unlock()
		r.Text = text
	}
	if first == nil || first.ID != mine.ID {
		r.Text, r.Again = "", true
		if first != nil {
			r.Pointer = pointer(c.id, r.Turn, *first)
		}
	}
	return r, nil
}

// Text returns the answer of a child's turn, as Shorten left it, whoever was shown it before, and
// changes nothing. ErrNotFound if it is not known.
func (j *Join) Text(ctx context.Context, id SessionID, turn int) (string, error) {
	found, err := j.find([]SessionID{id})
	var text string
	if err == nil {
		c := found[0]
		c.mu.Lock()
		t := c.rec.turn(turn)
		answer := Answer{}
		if t != nil {
			answer = t.Answer
		}
		c.mu.Unlock()
		text, err = j.text(ctx, id, answer)
	}
	return text, edge("join.text", string(id), err)
}

func (j *Join) text(ctx context.Context, id SessionID, a Answer) (string, error) {
	if !a.Known {
		return "", fmt.Errorf("%w: no answer of that turn came", ErrNotFound)
	}
	if a.Size == 0 {
		return "", nil
	}
	r, err := j.records.Get(ctx, j.textKey(id, a.SHA256))
	return string(r.Value), err
}

// fetch asks the host for the text of a turn that no envelope brought, and returns
// why it is still not known.
func (j *Join) fetch(ctx context.Context, c *joined, turn int, until time.Time) error {
	if _, ok := j.opts.Sessions.(Inspector); !ok {
		return fmt.Errorf("%w: no envelope came, and the host cannot be asked for the text; read the child session", errors.ErrUnsupported)
	}
	seen, err := j.inspect(ctx, c.id, until)
	if err != nil {
		return err
	}
	c.mu.Lock()
	fresh := c.rec.Turn == turn && c.rec.State.Settled() && (seen.Last == nil || seen.Last.Error == "" && c.rec.fresh(seen.Last.Completed))
	completed := c.rec.State == ChildCompleted || c.rec.State == ChildUnknown
	c.mu.Unlock()
	if !fresh || !completed || seen.Activity == ActivityRunning {
		return fmt.Errorf("%w: the host has no answer of that turn", ErrNotFound)
	}
	text := ""
	if seen.Last != nil {
		text = seen.Last.Text
	}
	answer, err := j.keepAnswer(ctx, c, text, hexDigest(bytesOf(trimmed(text))))
	if err != nil {
		return err
	}
	return j.absorb(ctx, c, evidence{kind: evidenceAnswer, turn: turn, answer: &answer})
}

func trimmed(s string) string { return strings.TrimSpace(s) }

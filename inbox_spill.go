package team

import (
	"context"
	"errors"
	"math"
	"strings"
)

// maySpill reports whether a signal that is refused as tooLong could be sent without
// its body: nothing is written for one that could not.
func (c *SignalChannel) maySpill(s Signal, tooLong error) bool {
	if c.opts.Offload == nil || s.Body == "" || !errors.Is(tooLong, ErrTooLarge) {
		return false
	}
	id := strings.Repeat("a", offloadHandleIDLength)
	s.Body = ""
	s.Refs = append(s.Refs[:len(s.Refs):len(s.Refs)], Ref{
		Path: c.opts.Offload.abs(id + ".json"), SHA256: hexDigest(nil), Size: math.MaxInt64, Handle: Handle(handlePrefix + id),
	})
	return c.check(s) == nil
}

// spill puts the body of a signal into the offload folder, and a reference in its
// place.
func (c *SignalChannel) spill(ctx context.Context, s Signal) (Signal, error) {
	ref, err := c.opts.Offload.keepBody(ctx, s.Body)
	if err != nil {
		return s, err
	}
	s.Body = ""
	s.Refs = append(s.Refs[:len(s.Refs):len(s.Refs)], ref)
	return s, c.check(s)
}

// keepBody stores a text, large or not, and returns a reference to it.
func (o *Offload) keepBody(ctx context.Context, text string) (Ref, error) {
	s := Shortened{Size: int64(len(text)), Class: classOf("", bytesOf(text))}
	s.Tokens = EstimateTokens(text)
	lines := int64(strings.Count(text, "\n"))
	if !strings.HasSuffix(text, "\n") {
		lines++
	}
	r, _, replayed, err := o.keep(ctx, text, s, Source{}, func(r *offloadRecord) (string, int) {
		r.Lines, r.Tokens = lines, s.Tokens
		return "", EstimateTokens(o.abs(r.File)) + EstimateTokens(string(r.handle()))
	})
	event := TraceEvent{Op: "offload.store", Size: s.Size}
	if err != nil {
		o.trace(ctx, event, err)
		return Ref{}, err
	}
	event.ID, event.SHA256 = string(r.handle()), r.SHA256
	if replayed {
		event.Outcome = "replayed"
	}
	o.trace(ctx, event, nil)
	return Ref{Path: o.abs(r.File), SHA256: r.SHA256, Size: r.Size, Handle: r.handle()}, nil
}

// Spilled returns the handles that signals lead to which somebody may still read:
// those in the inboxes of all sessions on the roster that are pending, claimed or
// dead letters. It is what Offload.Collect must keep:
//
//	spilled, err := signals.Spilled(ctx)
//	…
//	offload.Collect(ctx, &team.CollectOptions{
//		Referenced: func(_ context.Context, h team.Handle) (bool, error) { return spilled[h], nil },
//	})
//
// A signal that is sent later leads to a text that was used just now, which Collect
// keeps anyway.
func (c *SignalChannel) Spilled(ctx context.Context) (map[Handle]bool, error) {
	spilled := map[Handle]bool{}
	for m, err := range c.Roster(ctx) {
		if err != nil {
			return nil, err
		}
		for item, err := range c.store.Items(ctx, inboxQueue(m.Session), ListOptions{Settled: true}) {
			if err != nil {
				return nil, edge("inbox.spilled", string(m.Session), err)
			}
			if item.State.Settled() && item.State != ItemDead {
				continue
			}
			s, err := decodeSignal(item.Item, item.Seq)
			if err != nil {
				continue // nobody can read where it leads
			}
			for _, ref := range s.Refs {
				if ref.Handle != "" {
					spilled[ref.Handle] = true
				}
			}
		}
	}
	return spilled, nil
}

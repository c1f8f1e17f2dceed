package team

import (
	"context"
	"errors"
	"iter"
	"time"
)

// FollowOptions say how Follow reads a stream. The zero value has the defaults.
type FollowOptions struct {
	// Silence is after how long without any event a stream counts as broken. Zero is 45
	// seconds: three heartbeats of 2.0, more of 1.18. Forever never does.
	Silence time.Duration

	// Retry is how long to wait before the next stream, doubled with each that yields
	// nothing, up to a minute. Zero is a second.
	Retry time.Duration

	// Also is passed each event too: another Join's or a SignalChannel's Observe. Nil
	// is nobody. What it returns ends Follow.
	Also func(context.Context, Event) error
}

// DefaultSilence is how long a stream may be silent.
const DefaultSilence = 45 * time.Second

var errSilent = errors.New("the stream was silent for too long")

// Follow observes what events yields until ctx ends, whose error it returns. When a
// stream breaks, ends, or is silent for too long, it starts another and reads the snapshots of the
// children that have not settled, since what happened in between is lost. An error of
// the store is not the end: what was learned is kept, and written later.
func (j *Join) Follow(ctx context.Context, events Events, opts *FollowOptions) error {
	if events == nil {
		panic("team: Follow with nil Events")
	}
	var o FollowOptions
	if opts != nil {
		o = *opts
	}
	setDefault(&o.Silence, DefaultSilence)
	setDefault(&o.Retry, time.Second)
	if o.Silence != Forever && o.Silence < 0 || o.Retry < 0 {
		return edge("join.follow", string(j.parent), &InvalidError{What: "follow option", Why: "is a negative time", Offset: -1})
	}
	pause := o.Retry
	for first := true; ; first = false {
		any, err := j.followOne(ctx, events, o, first)
		if ctx.Err() != nil {
			return edge("join.follow", string(j.parent), ctx.Err())
		}
		var stop *alsoError
		if errors.As(err, &stop) {
			return edge("join.follow", string(j.parent), stop.error)
		}
		switch {
		case errors.Is(err, errSilent):
			j.gapped("the stream was silent")
		default:
			j.gapped("the stream broke")
		}
		if any {
			pause = o.Retry
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Minute)
	}
}

// alsoError is an error of FollowOptions.Also.
type alsoError struct{ error }

// followOne observes one stream. It reports whether that yielded anything.
func (j *Join) followOne(ctx context.Context, events Events, o FollowOptions, first bool) (any bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	type item struct {
		event Event
		err   error
	}
	items := make(chan item, 256)
	done := make(chan struct{})
	defer func() { cancel(); <-done }()
	go func() {
		defer close(done)
		defer close(items)
		var stream iter.Seq2[Event, error] = events.Events(ctx)
		for e, err := range stream {
			select {
			case items <- item{e, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	var silent <-chan time.Time
	timer := time.NewTimer(max(o.Silence, time.Millisecond))
	defer timer.Stop()
	if o.Silence != Forever {
		silent = timer.C
	}
	resync := !first // once the new stream runs, so that nothing falls between it and the snapshot
	for {
		select {
		case <-ctx.Done():
			return any, ctx.Err()
		case <-silent:
			return any, errSilent
		case it, ok := <-items:
			if !ok || it.err != nil {
				return any, it.err
			}
			if o.Silence != Forever {
				timer.Reset(o.Silence)
			}
			any = true
			if it.event.Type == "server.connected" {
				j.stream.mu.Lock()
				j.stream.begun = false // this gap is noted already
				j.stream.mu.Unlock()
			}
			_, _ = j.Observe(ctx, it.event) // what was learned is kept
			if o.Also != nil {
				if err := o.Also(ctx, it.event); err != nil {
					return any, &alsoError{err}
				}
			}
			if resync {
				resync = j.resync(ctx, time.Time{}) != nil
			}
		}
	}
}

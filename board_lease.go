package team

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/teamchan/team/internal/atomicfile"
	"github.com/teamchan/team/internal/slug"
)

// MaxLease is the longest time that a lease runs without being renewed.
const MaxLease = 7 * 24 * time.Hour

// A Lease keeps a session from being swept until its time is over, whatever
// becomes of the process that holds it. It is for one goroutine.
type Lease struct {
	b            *Board
	raw, session string
	id           string // of the session that was leased; its name may come back
	name         string // the file that stands for it; its name has the time
	until        time.Time
}

const leaseInfix = ".lease-"

// Lease keeps a session from being swept for d, at most MaxLease, from now on.
// The session need not have entries yet. It may have any number of leases.
//
// ErrConflict means that a process that is stopped, and may be sweeping, holds the
// session's lock.
func (b *Board) Lease(ctx context.Context, session string, d time.Duration) (*Lease, error) {
	l := &Lease{b: b, raw: session}
	err := l.open(ctx, d)
	b.trace(ctx, TraceEvent{Op: "board.lease", ID: session}, err)
	if err != nil {
		return nil, edge("board.lease", session, err)
	}
	return l, nil
}

func (l *Lease) open(ctx context.Context, d time.Duration) error {
	p, err := newPlace(Draft{Session: l.raw, Task: "x", Topic: "x"}, "x")
	if err != nil {
		return err
	}
	l.session = p.session
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := l.b.here(); err != nil {
		return err
	}
	_, err = again(func() (struct{}, error) {
		err := l.b.ensureSession(l.session)
		if err == nil {
			err = l.extend(ctx, d)
		}
		return struct{}{}, err
	})
	return err
}

// Until returns when the lease ends.
func (l *Lease) Until() time.Time { return l.until }

// Renew makes the lease end d from now, also when its time was over. If the
// session was swept in the meantime, it is ErrNotFound, also when there is a new
// one of its name.
func (l *Lease) Renew(ctx context.Context, d time.Duration) error {
	err := ctx.Err()
	if err == nil {
		_, err = l.b.root.Lstat(markOf(l.session)) // locking would make it
	}
	if err == nil {
		err = l.extend(ctx, d)
	}
	return edge("board.lease", l.raw, notFound(err))
}

// Release ends the lease. Doing so twice is no error.
func (l *Lease) Release() error {
	err := l.b.root.Remove(l.name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return edge("board.lease", l.raw, err)
}

func (l *Lease) extend(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return &InvalidError{What: "lease", Why: "is not positive", Offset: -1}
	}
	if d > MaxLease {
		return &LimitError{What: "lease seconds", Got: int64(d / time.Second), Max: int64(MaxLease / time.Second),
			Advice: "renew it before it ends"}
	}
	lock, err := l.b.lock(ctx, l.session, lockPatience)
	if err != nil {
		return err
	}
	defer lock.unlock()
	if !lock.held() {
		return fmt.Errorf("%w: a process that does not go on holds the session's lock; end it, then try again", ErrConflict)
	}
	lock.stamp()
	if l.id != "" && l.id != lock.id() {
		return ErrNotFound
	}
	if err := l.b.checkFolder(l.session); err != nil {
		return err
	}
	until := time.Now().Add(d)
	name := markOf(l.session) + leaseInfix + strconv.FormatInt(until.UnixMilli(), 10) + "-" + rand.Text()
	if err := l.b.step.Before("lease", name); err != nil {
		return err
	}
	f, err := l.b.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	if err := atomicfile.SyncDir(l.b.root, controlDir, l.b.step); err != nil {
		_ = l.b.root.Remove(name) // nobody was told of it
		return err
	}
	if l.name != "" {
		_ = l.b.root.Remove(l.name) // if it stays, its time ends it
	}
	l.id, l.name, l.until = lock.id(), name, until
	return nil
}

// parseLease takes the name of a lease's file apart.
func parseLease(base string) (session string, until time.Time, ok bool) {
	session, rest, ok := strings.Cut(base, leaseInfix)
	ms, random, _ := strings.Cut(rest, "-")
	n, err := strconv.ParseInt(ms, 10, 64)
	return session, time.UnixMilli(n), ok && err == nil && slug.Made(session) && atomicfile.IsRandom(random)
}

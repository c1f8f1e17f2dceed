package team

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/teamchan/team/internal/atomicfile"
)

// Where an Offload keeps its records in the index:
//
//	team/offload/<folder>/h/<id>       what a handle is, or was
//	team/offload/<folder>/d/<sha256>   the id of the handle that has this content
//	team/offload/<folder>/key          the key of the tags
//
// The file is there, whole, under its name, before its records are; its writer holds
// its lock until they are. So a file without a record whose lock is free is the rest
// of a killed writer, and nobody sees a record that points to half a file. After a
// power cut in the middle of a call there may be one; Fetch finds that by the digest,
// and the next writer of the same text replaces it.

// An offloadRecord is what the index knows of one handle.
type offloadRecord struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	Lines  int64  `json:"lines"`
	Tokens int    `json:"tokens"`
	Class  Class  `json:"class"`
	Name   string `json:"name,omitempty"`
	By     Caller `json:"by,omitzero"`
	At     int64  `json:"at"`   // when it was stored, in Unix milliseconds
	Used   int64  `json:"used"` // when it was shortened to, or fetched, last

	Pinned bool             `json:"pinned,omitempty"`
	Leases map[string]int64 `json:"leases,omitempty"` // until when, in Unix milliseconds

	Instead []string `json:"instead,omitempty"` // SHA-256 of what stands in for it, the last ones

	Times   int64 `json:"times"`   // how often it stands in for a text
	Kept    int64 `json:"kept"`    // tokens that stayed out of contexts because of that
	Fetches int64 `json:"fetches"` // how often a part of it was fetched
	Back    int64 `json:"back"`    // tokens that came back so

	Gone int64  `json:"gone,omitempty"` // when it was collected; zero while it is there
	Why  string `json:"why,omitempty"`

	id      string
	version Version
}

func (r *offloadRecord) handle() Handle { return Handle(handlePrefix + r.id) }

// leased reports whether somebody holds a lease at the given time.
func (r *offloadRecord) leased(now time.Time) bool {
	for _, until := range r.Leases {
		if until > now.UnixMilli() {
			return true
		}
	}
	return false
}

// A CollectedError says what a handle was whose text was collected. It is an
// ErrNotFound.
type CollectedError struct {
	Handle    Handle
	Size      int64
	SHA256    string
	Stored    time.Time
	Collected time.Time
	Why       SweepReason
}

func (e *CollectedError) Error() string {
	return fmt.Sprintf("%s was collected on %s (%s): %d bytes, sha256 %s, stored on %s; run the tool again",
		e.Handle, e.Collected.Format(time.RFC3339), e.Why, e.Size, e.SHA256, e.Stored.Format(time.RFC3339))
}

// Is reports whether target is ErrNotFound.
func (e *CollectedError) Is(target error) bool { return target == ErrNotFound }

func (r *offloadRecord) collected() error {
	return &CollectedError{Handle: r.handle(), Size: r.Size, SHA256: r.SHA256, Stored: time.UnixMilli(r.At).UTC(),
		Collected: time.UnixMilli(r.Gone).UTC(), Why: SweepReason(r.Why)}
}

// load reads the record of a handle, a collected one too.
func (o *Offload) load(ctx context.Context, id string) (*offloadRecord, error) {
	stored, err := o.index.Get(ctx, o.prefix+offloadHandles+id)
	if err != nil {
		return nil, err
	}
	r := &offloadRecord{id: id, version: stored.Version}
	if err := json.Unmarshal(stored.Value, r); err != nil || r.Size < 0 || !ownFile(r.File, id) {
		return nil, fmt.Errorf("%w: the record of %s%s cannot be read; its file may still be there: %s",
			ErrCorrupt, handlePrefix, id, o.abs(id+".*"))
	}
	return r, nil
}

// live is load for a handle that is not collected.
func (o *Offload) live(ctx context.Context, id string) (*offloadRecord, error) {
	r, err := o.load(ctx, id)
	if err == nil && r.Gone != 0 {
		err = r.collected()
	}
	return r, err
}

// save writes a record over the version that was read.
func (o *Offload) save(ctx context.Context, r *offloadRecord) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	r.version, err = o.index.Put(ctx, o.prefix+offloadHandles+r.id, value, r.version)
	return err
}

// change reads a record, changes it and writes it, again if somebody else was
// first. It is an error if the handle is not there or collected.
func (o *Offload) change(ctx context.Context, id string, how func(*offloadRecord) error) (*offloadRecord, error) {
	for try := 0; ; try++ {
		r, err := o.live(ctx, id)
		if err == nil {
			err = how(r)
		}
		if err == nil {
			err = o.save(ctx, r)
		}
		if !errors.Is(err, ErrConflict) || try+1 >= offloadTries {
			return r, err
		}
		if err := waitFor(ctx, rand.N(time.Millisecond<<min(try, 6))); err != nil {
			return nil, err
		}
	}
}

// ownFile reports whether name is what the file of a handle is called.
func ownFile(name, id string) bool {
	ext, ok := strings.CutPrefix(name, id)
	if !ok || !isHandleID(id) {
		return false
	}
	for _, e := range fileExtensions {
		if ext == e {
			return true
		}
	}
	return false
}

// idOf returns the id that is in the name of a file of ours.
func idOf(name string) (string, bool) {
	id, _, _ := strings.Cut(name, ".")
	return id, ownFile(name, id)
}

// mostInstead bounds how many previews of one text are known again: they differ by
// the tools of the agent that reads them and by the class.
const mostInstead = 8

// replacedBy notes what stands in for the text.
func (r *offloadRecord) replacedBy(text string, tokens int) {
	r.Times++
	r.Kept += int64(r.Tokens - tokens)
	if sum := hexDigest(bytesOf(text)); text != "" && !slices.Contains(r.Instead, sum) {
		r.Instead = append(r.Instead[max(0, len(r.Instead)-mostInstead+1):len(r.Instead):len(r.Instead)], sum)
	}
}

// A rendering returns what stands in for a text once its record is known, and
// what it costs.
type rendering func(*offloadRecord) (text string, tokens int)

// known returns the record of a text that is in the folder already, whole, and
// notes that it is used once more. Otherwise prev is the version of what the index
// says of this digest, zero for nothing.
func (o *Offload) known(ctx context.Context, sha string, size int64, render rendering) (r *offloadRecord, text string, prev Version, err error) {
	for try := 0; try < offloadTries; try++ {
		stored, err := o.index.Get(ctx, o.prefix+offloadDigests+sha)
		if errors.Is(err, ErrNotFound) {
			return nil, "", "", nil
		} else if err != nil {
			return nil, "", "", err
		}
		r, err := o.load(ctx, string(stored.Value))
		switch {
		case errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt):
			return nil, "", stored.Version, nil
		case err != nil:
			return nil, "", "", err
		case r.Gone != 0 || r.SHA256 != sha || r.Size != size || o.verify(ctx, r) != nil:
			return nil, "", stored.Version, ctx.Err()
		}
		text, tokens := render(r)
		r.Used = max(r.Used, time.Now().UnixMilli())
		r.replacedBy(text, tokens)
		if err = o.save(ctx, r); err == nil {
			return r, text, "", nil
		} else if !errors.Is(err, ErrConflict) {
			return nil, "", "", err
		}
	}
	return nil, "", "", fmt.Errorf("%w: the record is written without a pause; try again", ErrConflict)
}

// publish gives the file f, which is written, its name and its records. If the same
// text was published meanwhile, that one counts, and replayed is true.
func (o *Offload) publish(ctx context.Context, r *offloadRecord, f *atomicfile.File, prev Version, render rendering) (out *offloadRecord, text string, replayed bool, err error) {
	if err := o.here(); err != nil {
		return nil, "", false, err
	}
	for linked := false; !linked; {
		r.id = newHandleID()
		r.File = r.id + fileExtensions[r.Class]
		switch _, err := f.Link(r.File); {
		case err == nil:
			linked = true
		case !errors.Is(err, fs.ErrExist):
			return nil, "", false, err
		}
	}
	// Two disks' work at once: that of the file, and that of the index. Whoever sees
	// the record finds the file; that it outlives a power cut is promised when both
	// are done. The name comes first, so that one commit of the file system has both.
	synced := make(chan error, 1)
	at := time.UnixMilli(r.At)
	go func() {
		err := f.Sync(at)
		if err == nil {
			err = atomicfile.SyncDir(o.root, ".", o.step)
		}
		synced <- err
	}()
	text, tokens := render(r)
	r.replacedBy(text, tokens)
	for try := 0; try < offloadTries; try++ {
		err = o.install(ctx, r, prev)
		if !errors.Is(err, ErrConflict) {
			break
		}
		var other *offloadRecord
		var otherText string
		if other, otherText, prev, err = o.known(ctx, r.SHA256, r.Size, render); other != nil || err != nil {
			<-synced
			f.Withdraw()
			return other, otherText, true, err
		}
		err = ErrConflict
	}
	syncErr := <-synced
	if errors.Is(err, ErrUnknownOutcome) {
		// It may have been made, or may still be: then the file must stay. If not,
		// it is found by Collect.
		got, gerr := o.load(context.WithoutCancel(ctx), r.id)
		if gerr != nil {
			return nil, "", false, err
		}
		r, err = got, nil
	}
	switch {
	case err != nil:
		f.Withdraw()
		return nil, "", false, err
	case syncErr != nil:
		o.retract(context.WithoutCancel(ctx), r, f)
		return nil, "", false, syncErr
	}
	return r, text, false, nil
}

// retract takes back what publish made, unless somebody has used it by now.
func (o *Offload) retract(ctx context.Context, r *offloadRecord, f *atomicfile.File) {
	if o.index.Delete(ctx, o.prefix+offloadHandles+r.id, r.version) != nil {
		return // theirs, or not known: the digest tells who fetches it
	}
	digest := o.prefix + offloadDigests + r.SHA256
	if stored, err := o.index.Get(ctx, digest); err == nil && string(stored.Value) == r.id {
		_ = o.index.Delete(ctx, digest, stored.Version) // one that leads to nothing is written over
	}
	f.Withdraw()
}

// install writes the records of a new handle: in one step if the index can, else
// first that of the handle, so that a digest never leads to nothing for long.
func (o *Offload) install(ctx context.Context, r *offloadRecord, prev Version) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	handle := Change{Key: o.prefix + offloadHandles + r.id, Value: value}
	digest := Change{Key: o.prefix + offloadDigests + r.SHA256, Value: []byte(r.id), Prev: prev}
	if c, ok := o.index.(Committer); ok {
		done, err := c.Commit(ctx, nil, []Change{handle, digest})
		if err == nil {
			r.version = done.Versions[0]
		}
		return err
	}
	if r.version, err = o.index.Put(ctx, handle.Key, handle.Value, ""); err != nil {
		return err
	}
	if _, err = o.index.Put(ctx, digest.Key, digest.Value, digest.Prev); err != nil && !errors.Is(err, ErrUnknownOutcome) {
		// The caller takes the file back; the record must not outlive it.
		derr := o.index.Delete(context.WithoutCancel(ctx), handle.Key, r.version)
		return errors.Join(err, derr)
	}
	return err
}

// create makes a temporary file with what fill writes.
func (o *Offload) create(fill func(*atomicfile.File) error) (*atomicfile.File, error) {
	f, err := atomicfile.Create(o.root, ".", o.step)
	if err != nil {
		return nil, err
	}
	if err := fill(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// open opens the file of a record and nothing else that may be in its place.
func (o *Offload) open(r *offloadRecord) (*os.File, fs.FileInfo, error) {
	f, fi, err := atomicfile.OpenRegular(o.root, r.File, os.O_RDONLY)
	if errors.Is(err, atomicfile.ErrNotRegular) {
		err = fmt.Errorf("%w: %s %w", ErrDenied, o.abs(r.File), err)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: the file %s is gone, though nobody collected it; run the tool again", ErrNotFound, o.abs(r.File))
	}
	return f, fi, err
}

// Pin keeps a text until Unpin, whatever its age and whatever the cap.
func (o *Offload) Pin(ctx context.Context, h Handle) error { return o.pin(ctx, h, true) }

// Unpin ends what Pin began. Doing so twice is no error.
func (o *Offload) Unpin(ctx context.Context, h Handle) error { return o.pin(ctx, h, false) }

func (o *Offload) pin(ctx context.Context, h Handle, pinned bool) error {
	op := "offload.unpin"
	if pinned {
		op = "offload.pin"
	}
	id, err := h.id()
	if err == nil {
		_, err = o.change(ctx, id, func(r *offloadRecord) error { r.Pinned = pinned; return nil })
	}
	o.trace(ctx, TraceEvent{Op: op, ID: string(h)}, err)
	return edge(op, string(h), err)
}

// An OffloadLease keeps a text from being collected until its time is over,
// whatever becomes of the process that holds it. It is for one goroutine.
type OffloadLease struct {
	o     *Offload
	h     Handle
	id    string // of the handle
	name  string
	until time.Time
}

// Lease keeps the text of a handle from being collected for d, at most MaxLease,
// from now on. It may have up to 64 leases that have not ended.
func (o *Offload) Lease(ctx context.Context, h Handle, d time.Duration) (*OffloadLease, error) {
	l := &OffloadLease{o: o, h: h, name: newHandleID()}
	err := l.extend(ctx, d)
	o.trace(ctx, TraceEvent{Op: "offload.lease", ID: string(h)}, err)
	if err != nil {
		return nil, edge("offload.lease", string(h), err)
	}
	return l, nil
}

// Until returns when the lease ends.
func (l *OffloadLease) Until() time.Time { return l.until }

// Renew makes the lease end d from now, also when its time was over. If the text
// was collected in the meantime, it is a *CollectedError.
func (l *OffloadLease) Renew(ctx context.Context, d time.Duration) error {
	return edge("offload.lease", string(l.h), l.extend(ctx, d))
}

// Release ends the lease. Doing so twice is no error.
func (l *OffloadLease) Release(ctx context.Context) error {
	_, err := l.o.change(ctx, l.id, func(r *offloadRecord) error { delete(r.Leases, l.name); return nil })
	if errors.Is(err, ErrNotFound) {
		err = nil // collected: nothing is held any more
	}
	return edge("offload.lease", string(l.h), err)
}

const maxOffloadLeases = 64

func (l *OffloadLease) extend(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return &InvalidError{What: "lease", Why: "is not positive", Offset: -1}
	}
	if d > MaxLease {
		return &LimitError{What: "lease seconds", Got: int64(d / time.Second), Max: int64(MaxLease / time.Second),
			Advice: "renew it before it ends"}
	}
	var err error
	if l.id, err = l.h.id(); err != nil {
		return err
	}
	var until time.Time
	_, err = l.o.change(ctx, l.id, func(r *offloadRecord) error {
		now := time.Now()
		until = now.Add(d)
		maps.DeleteFunc(r.Leases, func(_ string, ends int64) bool { return ends <= now.UnixMilli() })
		if _, ours := r.Leases[l.name]; !ours && len(r.Leases) >= maxOffloadLeases {
			return &LimitError{What: "leases of one handle", Got: maxOffloadLeases + 1, Max: maxOffloadLeases, Advice: "pin it"}
		}
		if r.Leases == nil {
			r.Leases = map[string]int64{}
		}
		r.Leases[l.name] = until.UnixMilli()
		return nil
	})
	if err == nil {
		l.until = until
	}
	return err
}

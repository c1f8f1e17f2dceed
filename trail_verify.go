package team

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// A TrailReport is what VerifyTrail found.
type TrailReport struct {
	Files int
	Lines int64 // that are in the chain
	Bytes int64

	// First is where the trail begins and Last where it ends. Keep the Seq
	// and the Hash of Last where nobody with the folder in their hands gets at them,
	// and it can be seen later whether the trail still has that line.
	First, Last TrailLine

	Dropped int   // files before First that were given up, by the trail's own account
	Lost    int64 // records that trail.gap lines say could not be written
	Gaps    int   // those lines

	// Torn are remains of killed writers. Nothing that was recorded is missing
	// there. Breaks are places where the chain does not hold. Each list has at most
	// 100 faults; the counts have all.
	Torn, Breaks           []TrailFault
	TornCount, BreaksCount int
}

// Err returns nil if the chain holds, else an ErrCorrupt with the first break.
func (r TrailReport) Err() error {
	if r.BreaksCount == 0 {
		return nil
	}
	f := r.Breaks[0]
	return &Error{Op: "trail.verify", Name: f.place(), Err: &f}
}

// TrailFaultKind says what is wrong with a line.
type TrailFaultKind string

// The kinds of fault.
const (
	TrailChanged  TrailFaultKind = "changed"  // bytes are not those that were written
	TrailRemoved  TrailFaultKind = "removed"  // lines or whole files are missing before it
	TrailInserted TrailFaultKind = "inserted" // it is not in the chain, or at another place
	TrailHeadLost TrailFaultKind = "head"     // trail.head is missing or damaged, or was: lines may be missing before it
	TrailTorn     TrailFaultKind = "torn"     // the rest of a killed writer
)

// A TrailFault is one finding. As an error it is an ErrCorrupt.
type TrailFault struct {
	File   string // base name
	Line   int    // from 1; 0 is the file as a whole
	Kind   TrailFaultKind
	Count  int64 // lines concerned, where that is known
	Detail string
}

func (f *TrailFault) place() string {
	if f.Line == 0 {
		return f.File
	}
	return fmt.Sprintf("%s:%d", f.File, f.Line)
}

func (f *TrailFault) Error() string { return string(f.Kind) + ": " + f.Detail }

// Is reports whether target is ErrCorrupt.
func (f *TrailFault) Is(target error) bool { return target == ErrCorrupt }

const trailFaults = 100 // in one list of a report

// VerifyTrail reads the whole trail in dir and checks its chain: that no line was
// changed, removed, put in or moved, that no file is missing between two, and that
// the end is the one in trail.head. What it finds is in the report; an error means
// that it could not look, ErrNotFound that there is no such folder. Files that the trail itself gave up are no break: it
// begins at the first that is there.
//
// A power cut can take the last lines of a trail without TrailOptions.Sync. That
// looks like lines that were removed, and is reported so.
//
// Writers may go on meanwhile; what they write after VerifyTrail began is not
// looked at. It takes time in proportion to the bytes, whatever they are.
func VerifyTrail(ctx context.Context, dir string) (TrailReport, error) {
	root, err := existingTrail(dir)
	if err != nil {
		return TrailReport{}, edge("trail.verify", dir, err)
	}
	defer root.Close()
	for attempt := 0; ; attempt++ {
		v := trailVerifier{root: root}
		err := v.run(ctx)
		if errors.Is(err, fs.ErrNotExist) { // swept since the look into the folder
			if attempt < 5 {
				continue
			}
			err = fmt.Errorf("%w: files are swept quicker than they can be read: %w", ErrConflict, err)
		}
		return v.report, edge("trail.verify", dir, err)
	}
}

package team

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/teamchan/team/internal/atomicfile"
	"github.com/teamchan/team/internal/workspace"
)

// The defaults of an Offload. The thresholds and the previews are those of the
// OpenCode plugin that offloaded first.
const (
	DefaultTextThreshold = 4000 // tokens, of the classes text, log and report
	DefaultDataThreshold = 2000 // tokens, of all other classes

	DefaultPreviewTokens = 80
	DefaultReportTokens  = 1600

	DefaultOffloadBytes   = 1 << 30
	DefaultOffloadMinAge  = 10 * time.Minute
	DefaultHostOutput     = 256 << 20
	DefaultFetchBudget    = 4000
	DefaultOffloadMemory  = 90 * 24 * time.Hour
	maxPreviewTokens      = 100_000
	offloadRoot           = "team/offload/"
	offloadIDFile         = ".offload"
	offloadHandles        = "h/"
	offloadDigests        = "d/"
	offloadKeyRecord      = "key"
	inlineStream          = 1 << 20 // bytes; a longer stream is offloaded whatever the threshold
	maxTokenBytes         = 16      // of a text that a token may stand for, before it counts as large anyway
	sampleBytes           = 4096    // what the class of a content is judged by
	maxOffloadNameBytes   = 1024
	offloadTries          = 64
	offloadHandleIDLength = 16
)

// A Handle names an offloaded text: "tm://" and 16 letters and digits, 80 bits
// of chance. It is made from nothing that a provider, a host or a model said.
type Handle string

const handlePrefix = "tm://"

func newHandleID() string { return strings.ToLower(rand.Text()[:offloadHandleIDLength]) }

func isHandleID(id string) bool {
	return len(id) == offloadHandleIDLength && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// id takes a handle apart.
func (h Handle) id() (string, error) {
	id, ok := strings.CutPrefix(string(h), handlePrefix)
	if !ok || !isHandleID(id) {
		return "", &InvalidError{What: "handle", Why: "is not tm:// and 16 letters and digits", Offset: -1,
			Advice: "take it from the preview as it is"}
	}
	return id, nil
}

func (h Handle) valid() bool { _, err := h.id(); return err == nil }

// A Class is a kind of content. It decides how much stays inline and what a
// preview shows.
type Class string

// The classes.
const (
	ClassText    Class = "text"
	ClassReport  Class = "report" // a text with a STATUS skeleton, or with tables
	ClassLog     Class = "log"
	ClassJSON    Class = "json" // one value, or one on each line
	ClassCSV     Class = "csv"
	ClassCode    Class = "code"
	ClassBinary  Class = "binary"
	ClassUnknown Class = "unknown" // neither words nor lines, base64 for example
)

var classes = []Class{ClassText, ClassReport, ClassLog, ClassJSON, ClassCSV, ClassCode, ClassBinary, ClassUnknown}

// OffloadOptions change what an Offload shortens, what it shows and how long it
// keeps. The zero value has the defaults.
type OffloadOptions struct {
	// Thresholds are the estimated tokens from which on a text of a class is
	// offloaded. A class that is missing has DefaultTextThreshold or
	// DefaultDataThreshold; NoLimit leaves the class alone.
	Thresholds map[Class]int

	// PreviewTokens is the most that stands in for a text: what is shown of it and of
	// its structure, how much was cut, handle, path and the tools to read more with.
	// ReportTokens is that for a report. At least 24 tokens are for what is shown,
	// so it is more where the path of the folder alone costs more than about 15 tokens
	// (50 characters), and where the text is the answer of a child session: what the host
	// wrote round it, with the child's id, stays whole and costs up to about 70. Zero means DefaultPreviewTokens and DefaultReportTokens.
	PreviewTokens, ReportTokens int

	// MaxBytes is what Collect brings the files down to, as far as it may. Zero
	// means DefaultOffloadBytes; NoLimit keeps all.
	MaxBytes int64

	// MaxAge is how long a text is kept after it was offloaded or fetched last.
	// Zero, like Forever, leaves that to MaxBytes.
	MaxAge time.Duration

	// MinAge is how long a text is kept in any case, so that nobody loses what
	// was offloaded a moment ago. Zero means DefaultOffloadMinAge.
	MinAge time.Duration

	// HostOutput has the folders in which the host keeps what it has cut out of
	// tool results (OpenCode: tool-output in its data folder), as the host spells
	// them. Only plain files
	// in them whose name starts with "tool_" are taken over; with none, nothing
	// is. MaxHostOutput is the most bytes of one; zero means DefaultHostOutput.
	HostOutput    []string
	MaxHostOutput int64

	// Tools returns the names of the tools that an agent has for reading more.
	// A hint names these and no others. Nil means none.
	Tools func(agent string) AgentTools

	// OwnTools are tools whose results are never touched, by the host's names for
	// them: those of this library, for example. What an agent calls Fetch with
	// (AgentTools.Fetch) is one of them anyway.
	OwnTools []string

	// Accept says which results are the program's business; the others pass as
	// they are and are not counted. Nil means all.
	Accept func(ToolResult) bool

	// Trace is told of every write, also of those that were refused: a Trail's
	// Record, for example. Nil is nobody. It is called in the caller's goroutine.
	Trace func(context.Context, TraceEvent)
}

// AgentTools are the names of tools as an agent knows them; empty is none.
type AgentTools struct {
	Fetch string // calls Offload.Fetch
	Read  string // reads a part of a file
	Grep  string // searches a file
}

// An Offload keeps texts that are too large for a context as files, and puts a
// preview, a handle and a path in their place. Nothing is lost: the file has the
// text byte for byte, and Fetch returns any part of it.
//
//	<dir>/<16 letters and digits>.<txt, json, …>  one text, never changed
//	<dir>/.offload                                which folder this is, for the index
//
// The index says what each file is: size, digest, class, when it was used, and
// who needs it. A collected handle keeps its record for 90 days, and says what it
// was. The same text twice is one file with one handle, in one folder; what must
// not share handles gets a folder of its own. The index must live as long as the
// folder: a file without a record is taken for the rest of a killed writer.
//
// An Offload is safe for use by several goroutines and, on one folder and one
// index, by several processes. It runs no goroutine that outlives a call; call
// Collect when it suits you.
type Offload struct {
	dir    string // as the caller spelled it, absolute
	info   fs.FileInfo
	root   *os.Root
	index  Records
	prefix string
	key    [32]byte
	opts   OffloadOptions
	step   atomicfile.Step // a seam for tests

	counts   offloadCounts
	verified verifiedFiles
}

// OffloadDir returns the folder of the offloaded texts for a workspace: offload
// in what StateDir returns. It creates nothing.
func OffloadDir(workspaceDir string) (string, error) {
	dir, err := workspace.Dir(workspaceDir, "opencode-team-state")
	if err != nil {
		return "", edge("offload.dir", workspaceDir, inWorkspace(err))
	}
	return filepath.Join(dir, "offload"), nil
}

// OpenOffload opens the offloaded texts in dir, which index describes, and makes
// the folder, with mode 0700, if it is not there. A folder that belongs to another
// user, or that everybody can write to, is ErrDenied. Any number of folders may
// share an index. The caller closes the Offload, and keeps index open until then.
func OpenOffload(ctx context.Context, dir string, index Records, opts *OffloadOptions) (*Offload, error) {
	if index == nil {
		panic("team: OpenOffload with a nil index")
	}
	o, err := openOffload(ctx, dir, index, opts)
	return o, edge("offload.open", dir, err)
}

func openOffload(ctx context.Context, dir string, index Records, opts *OffloadOptions) (*Offload, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o := &Offload{index: index}
	if opts != nil {
		o.opts = *opts
	}
	if err := o.opts.complete(); err != nil {
		return nil, err
	}
	if dir == "" {
		return nil, &InvalidError{What: "offload folder", Why: "is empty", Offset: -1, Advice: "pass what OffloadDir returns"}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if !utf8.ValidString(abs) || strings.IndexFunc(abs, breaksLine) >= 0 {
		return nil, &InvalidError{What: "offload folder", Why: "is not UTF-8 of one line", Offset: -1,
			Advice: "no preview could carry the path of a file in it; choose another folder"}
	}
	real, err := workspace.Ensure(abs)
	if err != nil {
		return nil, inWorkspace(err)
	}
	o.dir = abs
	if o.root, err = os.OpenRoot(real); err != nil {
		return nil, err
	}
	if o.info, err = o.root.Stat("."); err == nil {
		err = inWorkspace(workspace.Check(real, o.info)) // what was checked may have been replaced
	}
	if err == nil {
		err = o.identify()
	}
	if err == nil {
		var secret SignalSecret
		secret, err = loadSecret(ctx, index, o.prefix+offloadKeyRecord)
		o.key = secret
	}
	if err != nil {
		o.root.Close()
		return nil, err
	}
	return o, nil
}

// complete fills in the defaults and refuses what makes no sense.
func (o *OffloadOptions) complete() error {
	bad := func(what, advice string) error {
		return &InvalidError{What: "offload option " + what, Why: "is out of range", Offset: -1, Advice: advice}
	}
	thresholds := make(map[Class]int, len(classes))
	for _, c := range classes {
		thresholds[c] = DefaultDataThreshold
		if c == ClassText || c == ClassLog || c == ClassReport {
			thresholds[c] = DefaultTextThreshold
		}
	}
	for c, n := range o.Thresholds {
		if _, ok := thresholds[c]; !ok || n < NoLimit || n > maxBudget {
			return bad("Thresholds", "use the Class constants, and NoLimit to leave a class alone")
		}
		if n != 0 {
			thresholds[c] = n
		}
	}
	o.Thresholds = thresholds
	setDefault(&o.PreviewTokens, DefaultPreviewTokens)
	setDefault(&o.ReportTokens, DefaultReportTokens)
	setDefault(&o.MaxBytes, DefaultOffloadBytes)
	setDefault(&o.MaxAge, Forever)
	setDefault(&o.MinAge, DefaultOffloadMinAge)
	setDefault(&o.MaxHostOutput, DefaultHostOutput)
	switch {
	case min(o.PreviewTokens, o.ReportTokens) < 10 || max(o.PreviewTokens, o.ReportTokens) > maxPreviewTokens:
		return bad("PreviewTokens or ReportTokens", "10 to 100000")
	case o.MaxBytes < NoLimit:
		return bad("MaxBytes", "NoLimit keeps all")
	case o.MaxAge < 0 && o.MaxAge != Forever || o.MinAge < 0:
		return bad("MaxAge or MinAge", "Forever, as MaxAge, leaves it to MaxBytes")
	case o.MaxHostOutput < 0:
		return bad("MaxHostOutput", "without HostOutput nothing is taken over")
	}
	o.OwnTools = slices.Clone(o.OwnTools)
	o.HostOutput = slices.Clone(o.HostOutput)
	for _, dir := range o.HostOutput {
		if !filepath.IsAbs(dir) {
			return bad("HostOutput", "give absolute paths")
		}
	}
	return nil
}

// identify reads which folder this is, and decides it if nobody has. So the index
// knows a folder again that was moved, and two folders never share records.
func (o *Offload) identify() error {
	for range 8 {
		f, _, err := atomicfile.OpenRegular(o.root, offloadIDFile, os.O_RDONLY)
		if err == nil {
			id, err := io.ReadAll(io.LimitReader(f, 64))
			f.Close()
			if err != nil {
				return err
			}
			if !atomicfile.IsRandom(string(id)) {
				return fmt.Errorf("%w: %s does not say which folder this is; restore it, or use a new folder",
					ErrCorrupt, filepath.Join(o.dir, offloadIDFile))
			}
			o.prefix = offloadRoot + string(id) + "/"
			return nil
		}
		if errors.Is(err, atomicfile.ErrNotRegular) {
			return fmt.Errorf("%w: %s %w", ErrDenied, filepath.Join(o.dir, offloadIDFile), err)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		temp, err := atomicfile.Create(o.root, ".", o.step)
		if err != nil {
			return err
		}
		if err = temp.WriteString(rand.Text()); err == nil {
			if err = temp.Sync(time.Now()); err == nil {
				_, err = temp.Link(offloadIDFile)
			}
		}
		temp.Close()
		if err == nil {
			err = atomicfile.SyncDir(o.root, ".", o.step)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) { // or somebody was quicker: theirs counts
			return err
		}
	}
	return fmt.Errorf("%w: %s comes and goes; try again", ErrConflict, filepath.Join(o.dir, offloadIDFile))
}

// Close gives the folder back. What was offloaded stays.
func (o *Offload) Close() error { return o.root.Close() }

// Dir returns the folder as an absolute path.
func (o *Offload) Dir() string { return o.dir }

// abs returns the absolute path of a file in the folder.
func (o *Offload) abs(name string) string { return filepath.Join(o.dir, name) }

// here reports whether the path still leads to the folder that was opened.
func (o *Offload) here() error {
	fi, err := os.Stat(o.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || !os.SameFile(fi, o.info) {
		return fmt.Errorf("%w: the offload folder was moved or replaced; open it again", ErrConflict)
	}
	return nil
}

// trace tells of a write.
func (o *Offload) trace(ctx context.Context, event TraceEvent, err error) {
	if o.opts.Trace == nil {
		return
	}
	outcome, reason := outcomeOf(err)
	if event.Outcome == "" || err != nil {
		event.Outcome, event.Reason = outcome, reason
	}
	o.opts.Trace(ctx, event)
}

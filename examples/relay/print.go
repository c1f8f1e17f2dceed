package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/examples/relay/survey"
)

// A timeline is what happened, in the order in which it became known. Signals
// are entered by who received them, entries by who wrote them: so a cause
// always stands before its effect.
type timeline struct {
	show    func(event) // called for each event; nil for a silent timeline
	base    string      // the session's folder; paths are shown relative to it
	started time.Time

	mu     sync.Mutex // guards the fields below
	events []event
}

// An event is one line of the timeline.
type event struct {
	ElapsedMS float64   `json:"elapsed_ms"`
	From      team.Role `json:"from"`
	To        string    `json:"to"`   // a role, or "board"
	Kind      string    `json:"kind"` // of the signal, or "entry", or "found" for one that is there already
	Summary   string    `json:"summary"`
	Path      string    `json:"path,omitempty"`  // of an entry
	Bytes     int64     `json:"bytes,omitempty"` // of an entry
	Round     int       `json:"round,omitempty"` // of an entry
	Refs      []string  `json:"refs,omitempty"`  // of a signal: paths it points to
}

func (l *timeline) signal(s team.Signal) {
	e := event{From: s.From.Role, To: path.Base(string(s.To)), Kind: string(s.Kind), Summary: s.Summary}
	for _, ref := range s.Refs {
		e.Refs = append(e.Refs, ref.Path)
	}
	l.add(e)
}

func (l *timeline) entry(e team.Entry, summary string) {
	l.add(event{From: e.Role, To: "board", Kind: "entry", Summary: summary, Path: e.Path, Bytes: e.Size, Round: e.Round})
}

// found is an entry that an earlier start of the run had written.
func (l *timeline) found(e team.Entry, summary string) {
	l.add(event{From: e.Role, To: "board", Kind: "found", Summary: summary, Path: e.Path, Bytes: e.Size, Round: e.Round})
}

func (l *timeline) add(e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ElapsedMS = float64(time.Since(l.started).Microseconds()) / 1e3
	l.events = append(l.events, e)
	if l.show != nil {
		l.show(e)
	}
}

// relative shortens a path of this session for people.
func (l *timeline) relative(name string) string {
	rel, err := filepath.Rel(l.base, name)
	if err != nil || strings.HasPrefix(rel, "..") {
		return name
	}
	return filepath.ToSlash(rel)
}

// A document is what -json prints.
type document struct {
	Workspace   string         `json:"workspace"`
	Board       string         `json:"board"`   // folder
	Session     string         `json:"session"` // folder in it
	Started     time.Time      `json:"started"`
	Resumed     bool           `json:"resumed"` // an earlier start was stopped in the middle; Events and ElapsedMS are since this one
	ElapsedMS   float64        `json:"elapsed_ms"`
	Scan        survey.Facts   `json:"scan"`
	Events      []event        `json:"events"`
	Plan        string         `json:"plan"` // path
	Tasks       []survey.Task  `json:"tasks"`
	Endings     []ending       `json:"endings"` // how it is known that each specialist has settled
	Account     account        `json:"account"`
	LeadSession team.SessionID `json:"lead_session,omitempty"` // on the server
	LongReply   string         `json:"long_reply,omitempty"`   // a signal whose body was offloaded, as the lead saw it
}

func (d document) printJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(d)
}

// A console writes for people. It remembers the first error, so that nobody
// must check every line.
type console struct {
	w      io.Writer
	json   bool // one document at the end, nothing before
	colour bool
	err    error
}

func (p *console) printf(format string, args ...any) {
	if p.err == nil && !p.json {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// The colours of a terminal: what is said more than once steps back.
const (
	dim    = "2"
	bold   = "1"
	green  = "32"
	yellow = "33"
	red    = "31"
	cyan   = "36"
)

func (p *console) paint(colour, s string) string {
	if !p.colour {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

var kindColour = map[string]string{
	string(team.KindHandoff): cyan, string(team.KindSettled): green, string(team.KindUnsettled): red, "entry": dim, "found": yellow,
}

func (p *console) head(d document, took time.Duration) {
	p.printf("           %s, %s read, %s; looked through in %s\n", survey.OrNo(d.Scan.Files, "file"), survey.Bytes(d.Scan.Read),
		survey.OrNo(d.Scan.Packages, "Go package"), round(took))
	p.printf("board      %s\n\n", shown(filepath.Join(d.Board, d.Session)))
}

// event prints a line or two: what a signal says or where an entry is; then,
// for a handoff, what it points to.
func (p *console) event(e event, relative func(string) string) {
	what := survey.Cut(survey.OneLine(e.Summary), 100)
	if e.Kind == "entry" || e.Kind == "found" {
		what = fmt.Sprintf("%-32s  %8s  round %d", shown(relative(e.Path)), survey.Bytes(e.Bytes), e.Round)
	}
	p.printf("%s  %-11s → %-11s  %s  %s\n", p.paint(dim, fmt.Sprintf("%7.3f s", e.ElapsedMS/1000)), e.From, e.To,
		p.paint(kindColour[e.Kind], fmt.Sprintf("%-9s", e.Kind)), what)
	if e.Kind == string(team.KindHandoff) {
		for _, ref := range e.Refs {
			p.printf("%49s%s\n", "", p.paint(dim, "↳ "+shown(relative(ref))))
		}
	}
}

func (p *console) tail(d document, relative func(string) string) {
	if p.json {
		p.err = d.printJSON(p.w)
		return
	}
	p.printf("\n%s\n\n", p.paint(bold, "What to do next"))
	levelColour := map[survey.Level]string{survey.High: red, survey.Medium: yellow, survey.Low: dim}
	for i, t := range d.Tasks {
		label := p.paint(levelColour[t.Level], fmt.Sprintf("%-6s", t.Level))
		for j, line := range wrap(strings.ReplaceAll(t.Text, "`", "")+" ("+t.By()+")", 84) {
			if j == 0 {
				p.printf("  %d. %s  %s\n", i+1, label, line)
			} else {
				p.printf("             %s\n", line)
			}
		}
	}
	if len(d.Tasks) == 0 {
		p.printf("  Nobody found anything.\n")
	}
	p.gaps(d.Scan.Gaps)
	p.printf("\n  The whole plan: %s\n", shown(relative(d.Plan)))
	if d.LongReply != "" {
		p.printf("\n%s\n\n  %s\n", p.paint(bold, "What the lead saw of the reply that was far too long"),
			p.paint(dim, strings.ReplaceAll(d.LongReply, "\n", "\n  ")))
	}
	p.endings(d.Endings)
	p.account(d.Account)
	if d.LeadSession != "" {
		p.printf("\n  The lead's session on the server: %s\n", shown(string(d.LeadSession)))
	}
}

// gaps says the first few things that are missing; each entry has more.
func (p *console) gaps(list []string) {
	const most = 4
	if len(list) > 0 {
		p.printf("\n")
	}
	for i, gap := range list {
		if i == most {
			p.printf("  … and more, at the end of each entry.\n")
			break
		}
		p.printf("  %s\n", strings.Join(wrap(strings.ReplaceAll(gap, "`", ""), 95), "\n  "))
	}
}

func (p *console) account(a account) {
	p.printf("\n%s\n\n", p.paint(bold, "What it cost the lead, in estimated tokens"))
	p.printf("  %7d  with the bodies inline in %s\n", a.Inline, survey.Plural(a.Signals, "signal"))
	p.printf("  %7d  with paths: %d for the signals, %d for the findings it read from the board\n", a.Paths, a.SignalTokens, a.ExcerptTokens)
	switch {
	case a.SavedPercent >= 0:
		p.printf("  %s saved\n", p.paint(green, fmt.Sprintf("%6.1f%%", a.SavedPercent)))
	default:
		p.printf("  %6.1f%% more: the deliverables are too short for a board to pay\n", -a.SavedPercent)
	}
}

// shown is a path for a terminal: as it is, unless it holds something that a
// terminal would obey.
func shown(path string) string {
	if survey.OneLine(path) != path {
		return fmt.Sprintf("%q", path)
	}
	return path
}

// wrap breaks s into lines of at most width runes where there are spaces.
func wrap(s string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

func round(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

package team

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/teamchan/team/internal/atomicfile"
)

// A Source says where a text comes from. The zero value is fine.
type Source struct {
	// Name is the name or path of the file that the text is from, if it is from
	// one. Its extension decides the class.
	Name string

	// Class is what the text is, if the caller knows. Empty lets the name decide,
	// and then the content; of the answer of a child session, that of the answer.
	Class Class

	// Agent is who will read the preview: the hint names its tools.
	Agent string
}

// A Shortened text is what takes a text's place.
type Shortened struct {
	// Text is what the context gets: the text itself, or its preview with how much
	// was cut, the handle, the path and the tools to read more with. It is never
	// empty unless the text was.
	Text string

	Handle Handle // empty if the text was not offloaded
	Path   string // of the file, absolute; empty like Handle
	SHA256 string // of the whole text; empty like Handle

	Class  Class
	Size   int64 // of the whole text, in bytes
	Tokens int   // of the whole text, of a long one by samples; zero if nobody had to count
	Shown  int64 // bytes of the text that are in the preview

	Replayed  bool // the same text was offloaded before: the same handle
	TakenOver bool // the whole text comes from a file in which the host kept it

	// Failed is why the text is cut but not offloaded: the folder or the index
	// did not take it. Text says so.
	Failed error
}

// Cut reports whether Text is less than the whole.
func (s Shortened) Cut() bool { return s.Handle != "" || s.Failed != nil }

// Ref returns a reference to the whole text for a signal.
func (s Shortened) Ref() Ref {
	return Ref{Path: s.Path, SHA256: s.SHA256, Size: s.Size, Handle: s.Handle}
}

// ShortenText returns text as it is if it is below the threshold of its class, and
// otherwise stores it and returns a preview. A text that this folder has shortened or
// fetched already, and that nobody changed, is returned as it is.
//
// What a host wrote round the answer of a child session, as an [EnvelopeMatcher] knows it,
// stays whole round the preview of the answer: it is an envelope of the same child.
//
// When the text was offloaded, the file is on disk, byte for byte, whatever the
// bytes are. If it could not be stored, Text is the beginning and the end, at most
// as long as the threshold allows, and says so; Failed has the reason. An error is
// about a malformed Source only.
func (o *Offload) ShortenText(ctx context.Context, text string, src Source) (Shortened, error) {
	if err := src.check(); err != nil {
		return Shortened{}, edge("offload.shorten", src.Name, err)
	}
	return o.shorten(ctx, text, src, ""), nil
}

// ShortenReader is ShortenText for what r reads, of any length, in constant memory:
// a stream that is no longer than a preview's threshold is returned as Text, a
// longer one is written to the folder while it is read. A stream over 1 MiB is
// offloaded whatever the threshold, also if Fetch returned it. An error of r ends the call, and nothing is
// offloaded. If the folder cannot take the stream, it is read to its end all the
// same, for the end of the preview.
func (o *Offload) ShortenReader(ctx context.Context, r io.Reader, src Source) (Shortened, error) {
	err := src.check()
	var s Shortened
	if err == nil {
		s, err = o.shortenReader(ctx, r, src)
	}
	return s, edge("offload.shorten", src.Name, err)
}

func (s Source) check() error {
	if s.Class != "" && !slices.Contains(classes, s.Class) {
		return &InvalidError{What: "class", Why: "is none of the Class constants", Offset: -1, Advice: "leave it empty"}
	}
	return nil
}

// shorten is ShortenText. A note goes into the preview as a line of its own.
func (o *Offload) shorten(ctx context.Context, text string, src Source, note string) Shortened {
	s := Shortened{Text: text, Size: int64(len(text)), Class: src.Class}
	w, body := unwrap(text)
	if s.Class == "" {
		s.Class = w.classOf(src.Name, body)
	}
	threshold := o.opts.Thresholds[s.Class]
	switch {
	case threshold == NoLimit || len(text) < threshold: // no token is shorter than a byte
		return s
	case len(text) < max(threshold, o.budget(s.Class)+frameTokens)*maxTokenBytes:
		s.Tokens = EstimateTokens(text)
		if s.Tokens < threshold || s.Tokens <= o.previewCost(s, w, src, note) {
			return s
		}
	}
	if o.ours(ctx, text) {
		o.counts.add(&o.counts.marked)
		return s
	}
	return o.offload(ctx, text, s, w, body, src, note)
}

// budget is what a preview may cost.
func (o *Offload) budget(c Class) int {
	if c == ClassReport {
		return o.opts.ReportTokens
	}
	return o.opts.PreviewTokens
}

const (
	frameTokens = 256 // what stands behind a preview at most, as a rule
	leastShown  = 24  // tokens of a text that are shown, however long the path of its file is
)

// previewCost is what the preview of a text may cost: a text that costs no more
// than that stays.
func (o *Offload) previewCost(s Shortened, w wrapper, src Source, note string) int {
	id := strings.Repeat("q7", offloadHandleIDLength/2) // as dear as any
	r := &offloadRecord{id: id, File: id + fileExtensions[s.Class], Size: s.Size, Lines: s.Size, Tokens: s.Tokens}
	return max(o.budget(s.Class), leastShown+EstimateTokens(w.open+o.frame(r, 0, src, note)+w.end))
}

// offload stores a text that is too large, and makes the preview of its body meanwhile.
func (o *Offload) offload(ctx context.Context, text string, s Shortened, w wrapper, body string, src Source, note string) Shortened {
	sk := newSketch(s.Class, s.Tokens == 0)
	sk.round = w
	var reading sync.WaitGroup
	reading.Go(func() {
		_, _ = sk.Write(bytesOf(body))
		sk.done()
	})
	r, replaced, replayed, err := o.keep(ctx, text, s, src, func(r *offloadRecord) (string, int) {
		reading.Wait()
		setDefault(&s.Tokens, sk.tokens)
		return o.render(r, &s, sk, src, note)
	})
	reading.Wait()
	setDefault(&s.Tokens, sk.tokens)
	s.Replayed = replayed
	return o.finish(ctx, s, sk, r, replaced, src, err)
}

// render makes what stands in for the text of a record.
func (o *Offload) render(r *offloadRecord, s *Shortened, sk *sketch, src Source, note string) (text string, tokens int) {
	r.Lines, r.Tokens = sk.wholeLines(), s.Tokens
	text, s.Shown = o.wholeText(r, sk, src, note)
	return text, EstimateTokens(text)
}

// keep finds a text in the folder, or puts it there.
func (o *Offload) keep(ctx context.Context, text string, s Shortened, src Source, render rendering) (r *offloadRecord, replaced string, replayed bool, err error) {
	sum := hexDigest(bytesOf(text))
	r, replaced, prev, err := o.known(ctx, sum, s.Size, render)
	if err != nil || r != nil {
		return r, replaced, err == nil, err
	}
	f, err := o.create(func(f *atomicfile.File) error { return f.WriteString(text) })
	if err != nil {
		return nil, "", false, err
	}
	defer f.Close()
	return o.publish(ctx, o.newRecord(ctx, s, src, sum), f, prev, render)
}

func (o *Offload) newRecord(ctx context.Context, s Shortened, src Source, sum string) *offloadRecord {
	by, _ := CallerFrom(ctx)
	now := time.Now().UnixMilli()
	name := src.Name
	if len(name) > maxOffloadNameBytes || checkLine("name", name) != nil {
		name = "" // it is for people, and not worth a failure
	}
	return &offloadRecord{SHA256: sum, Size: s.Size, Class: s.Class, Name: name, By: by, At: now, Used: now}
}

// finish completes what became of a text that was too large, and tells of it.
func (o *Offload) finish(ctx context.Context, s Shortened, sk *sketch, r *offloadRecord, replaced string, src Source, err error) Shortened {
	event := TraceEvent{Op: "offload.store", Size: s.Size}
	if err != nil {
		o.trace(ctx, event, err)
		s.Failed = edge("offload.shorten", src.Name, err)
		s.Text, s.Shown = o.degraded(s, sk, err)
		o.counts.degrade(s.Failed)
		return s
	}
	s.Handle, s.Path, s.SHA256, s.Text = r.handle(), o.abs(r.File), r.SHA256, replaced
	event.ID, event.SHA256 = string(s.Handle), s.SHA256
	if s.Replayed {
		event.Outcome = "replayed"
	}
	o.trace(ctx, event, nil)
	// What the model sees instead: a second line, since a line has one digest.
	o.trace(ctx, TraceEvent{Op: "offload.shorten", ID: string(s.Handle), Size: int64(len(replaced)), SHA256: hexDigest(bytesOf(replaced))}, nil)
	o.counts.add(&o.counts.shortened)
	return s
}

// wholeText is a preview with the line behind it that says what was cut and where
// it is, within the budget as long as that leaves a few words to show.
func (o *Offload) wholeText(r *offloadRecord, sk *sketch, src Source, note string) (text string, shown int64) {
	most := o.budget(sk.class)
	open, end := sk.round.open, sk.round.end
	for budget := max(leastShown, most-EstimateTokens(open+o.frame(r, 0, src, note)+end)); ; budget-- {
		var body string
		body, shown = sk.preview(budget)
		if open == "" && sk.round.end == "" {
			if body, end = closingTags(body); end != "" {
				end = "\n" + end
			}
		}
		if body != "" {
			body += "\n"
		}
		shown += sk.round.shown
		text = open + body + o.frame(r, shown, src, note) + end
		if budget <= leastShown || EstimateTokens(text) <= most {
			return text, shown
		}
	}
}

// frame says what of a text is not shown, and where all of it is. It is terse:
// beside the path of the folder it costs about 45 tokens.
func (o *Offload) frame(r *offloadRecord, shown int64, src Source, note string) string {
	var tools AgentTools
	if o.opts.Tools != nil {
		tools = o.opts.Tools(src.Agent)
	}
	fetch, files := "", oneName(tools.Grep)
	if tools.Fetch != "" {
		fetch = oneName(tools.Fetch) + " "
	}
	if read := oneName(tools.Read); files != "" && read != "" {
		files += ", " + read
	} else {
		files += read
	}
	if files != "" {
		files = " (" + files + ")"
	}
	if note != "" {
		note = "[" + note + "]\n"
	}
	return fmt.Sprintf("%s[%d bytes cut of %d lines, ~%s tokens: %s%s = %s%s]",
		note, r.Size-shown, r.Lines, about(r.Tokens), fetch, r.handle(), o.abs(r.File), files)
}

// about is an estimate in two digits or three.
func about(n int) string {
	switch {
	case n < 1000:
		return strconv.Itoa(n)
	case n < 9950:
		return strconv.FormatFloat(float64(n)/1000, 'f', 1, 64) + "k"
	case n < 999_500:
		return strconv.Itoa((n+500)/1000) + "k"
	}
	return strconv.Itoa((n+500_000)/1_000_000) + "M"
}

// oneName is a tool's name, or nothing that could be taken for more.
func oneName(name string) string {
	if name == "" {
		return ""
	}
	return cutHead(quoteName(name), 40)
}

// degraded is what stands in for a text that could not be stored.
func (o *Offload) degraded(s Shortened, sk *sketch, why error) (text string, shown int64) {
	for budget := max(o.opts.Thresholds[s.Class]*9/10, o.budget(s.Class)); ; budget = budget * 3 / 4 {
		body, shown := sk.ends(budget, "")
		shown += sk.round.shown
		text := fmt.Sprintf("%s%s\n[%s, %d bytes, %d lines; %d bytes of it are cut and could not be kept (%s): to see them, run the tool again and ask for less]\n",
			sk.round.open, body, s.Class, s.Size, sk.wholeLines(), s.Size-shown, kindOf(why))
		if EstimateTokens(text+sk.round.end) <= max(o.opts.Thresholds[s.Class], o.budget(s.Class)+40) || budget < 10 {
			return o.tag(text, sk.round.end), shown
		}
	}
}

// shortenReader reads as much as may stay inline before it decides.
func (o *Offload) shortenReader(ctx context.Context, r io.Reader, src Source) (Shortened, error) {
	first := make([]byte, 0, sampleBytes)
	limit := sampleBytes
	class := src.Class
	for eof := false; ; {
		n := 0
		var err error
		for len(first) < limit && err == nil {
			if len(first) == cap(first) {
				first = slices.Grow(first, min(limit, 2*cap(first))-len(first))
			}
			n, err = r.Read(first[len(first):min(cap(first), limit)])
			first = first[:len(first)+n]
			if ctx.Err() != nil {
				return Shortened{}, ctx.Err()
			}
		}
		if err == io.EOF {
			eof = true
		} else if err != nil {
			return Shortened{}, err
		}
		if eof {
			return o.shorten(ctx, string(first), src, ""), nil
		}
		if limit < inlineStream && mayBeWrapped(stringOf(first)) {
			limit = inlineStream // the opening may be a long one
			continue
		}
		if class == "" {
			o := openingOf(stringOf(first))
			class = o.wrap("").classOf(src.Name, stringOf(first[len(o.raw):]))
		}
		inline := inlineStream
		if t := o.opts.Thresholds[class]; t != NoLimit {
			inline = min(t*maxTokenBytes, inlineStream)
		}
		if strings.HasPrefix(string(first[:min(len(first), len(fetchedHead))]), fetchedHead) {
			inline = inlineStream // it may have a tag, at its end
		}
		if limit >= inline {
			break
		}
		limit = inline
	}
	return o.offloadStream(ctx, first, r, class, src)
}

// offloadStream is offload for what begins with first and goes on in r.
func (o *Offload) offloadStream(ctx context.Context, first []byte, r io.Reader, class Class, src Source) (Shortened, error) {
	s := Shortened{Class: class}
	sk := newSketch(class, true)
	opening := openingOf(string(first[:min(len(first), 3*maxOpener)]))
	var held []byte // the last bytes, in which the end of a wrapper may be
	hash := sha256.New()
	f, failed := o.create(func(f *atomicfile.File) error { return nil })
	if f != nil {
		defer f.Close()
	}
	piece := first
	buf := make([]byte, 128<<10)
	for {
		_, _ = hash.Write(piece)
		held = append(held, piece...)
		if s.Size == 0 {
			held = held[len(opening.raw):]
		}
		if n := len(held) - wrapperEnd; n > 0 {
			_, _ = sk.Write(held[:n])
			held = append(held[:0], held[n:]...)
		}
		s.Size += int64(len(piece))
		if failed == nil {
			_, failed = f.Write(piece)
		}
		n, err := io.ReadAtLeast(r, buf, len(buf))
		if ctx.Err() != nil {
			return Shortened{}, ctx.Err()
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return Shortened{}, err
		}
		if piece = buf[:n]; n == 0 {
			break
		}
	}
	rest, end := opening.cutEnd(string(held))
	_, _ = sk.Write([]byte(rest))
	sk.round = opening.wrap(end)
	sk.done()
	s.Tokens = sk.tokens
	sum := hex.EncodeToString(hash.Sum(nil))
	render := func(r *offloadRecord) (string, int) {
		return o.render(r, &s, sk, src, "")
	}
	var out *offloadRecord
	var replaced string
	var prev Version
	err := failed
	if err == nil {
		out, replaced, prev, err = o.known(ctx, sum, s.Size, render)
		s.Replayed = out != nil
	}
	if err == nil && out == nil {
		out, replaced, s.Replayed, err = o.publish(ctx, o.newRecord(ctx, s, src, sum), f, prev, render)
	}
	return o.finish(ctx, s, sk, out, replaced, src, err), nil
}

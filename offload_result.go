package team

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/teamchan/team/internal/atomicfile"
)

// AfterTool is ShortenResult for a host: pass it to Tools.AfterTool. It never fails.
func (o *Offload) AfterTool(ctx context.Context, res ToolResult) (ToolResult, error) {
	out, _, err := o.ShortenResult(ctx, res)
	return out, err
}

// ShortenResult shortens what a tool answered, in whatever of these shapes it is:
//
//	{title, output, metadata}             OpenCode 1.18, its own tools; output is a string
//	{content: […]}                        an MCP tool on OpenCode 1.18
//	{content: … or string, output, metadata}  OpenCode 2.0
//
// It judges all the text parts of a result together, as the host does, joined by
// line breaks. If they are too large, the first one gives way to the preview and
// the others are left out; parts that are no text, and all other fields, stay as
// they are, byte for byte. metadata.truncated is set, so that the host does not cut
// again, outputPath to the file, and metadata.tm says for programs what was done. It
// is done once: a result that has been through here comes back as it is.
//
// Where the host had cut the result before (1.18 does so with its own tools,
// before hooks see it), the whole is taken over from metadata.outputPath, if that
// is a plain file in one of OffloadOptions.HostOutput. The path is never taken
// from a text. If it cannot be, what the host left is shortened, and the preview
// does not claim to lead to more than that.
//
// A result of another shape, and an error of a tool, pass byte for byte, and
// Stats counts them by shape. If the folder or the index fails, the result is cut,
// and says so: see ShortenText. So the error is always nil.
func (o *Offload) ShortenResult(ctx context.Context, res ToolResult) (ToolResult, Shortened, error) {
	if o.opts.Accept != nil && !o.opts.Accept(res) {
		return res, Shortened{}, nil
	}
	o.counts.add(&o.counts.seen)
	if o.isOwnTool(res) {
		o.counts.add(&o.counts.own)
		return res, Shortened{}, nil
	}
	if _, ok := CallerFrom(ctx); !ok {
		ctx = WithCaller(ctx, Caller{Session: res.Session, Role: Role(res.Agent)})
	}
	shape, ok := parseResult(res.Result)
	if !ok {
		o.counts.unknownShape(shapeOf(res.Result))
		return res, Shortened{}, nil
	}
	text := shape.text()
	src := Source{Name: shape.name(), Agent: res.Agent}
	s, done := o.takeOver(ctx, shape, src)
	if s.Failed != nil {
		return res, s, nil // as the host cut it, it says so and leads to the whole
	}
	if !done {
		s = o.shorten(ctx, text, src, shape.host.note())
	}
	if !s.Cut() {
		o.counts.add(&o.counts.passed)
		return res, s, nil
	}
	out, err := shape.replace(s)
	if err != nil { // it was parsed a moment ago: nothing here can fail
		o.counts.unknownShape("unwritable")
		return res, Shortened{}, nil
	}
	res.Result = out
	return res, s, nil
}

// isOwnTool reports whether a result is of this library: fetched text above all.
func (o *Offload) isOwnTool(res ToolResult) bool {
	if slices.Contains(o.opts.OwnTools, res.Tool) {
		return true
	}
	return res.Tool != "" && o.opts.Tools != nil && o.opts.Tools(res.Agent).Fetch == res.Tool
}

// A resultShape is a known result, taken apart.
type resultShape struct {
	fields  []jsonField
	texts   int          // the field that has the text: output of 1.18, or content
	parts   []resultPart // of content, if it is a list
	whole   string       // the text, if it is one string
	content bool         // the text is in content
	host    hostMark
}

type jsonField struct {
	key string
	raw json.RawMessage
}

type resultPart struct {
	raw    json.RawMessage
	fields []jsonField // of a text part
	at     int         // its field text
	text   string
	isText bool
}

// hostMark is what the host says in metadata of its own cutting.
type hostMark struct {
	Truncated  bool
	OutputPath string
}

// note says in a preview that more is missing than the handle leads to.
func (h hostMark) note() string {
	switch {
	case !h.Truncated:
		return ""
	case h.OutputPath == "" || len(h.OutputPath) > maxOffloadNameBytes || checkLine("path", h.OutputPath) != nil:
		return "the host had cut it before, and did not say where the rest is"
	}
	return "the host had cut it before; it says that the whole is in " + h.OutputPath
}

// parseResult takes a result apart, if its shape is known.
func parseResult(raw json.RawMessage) (*resultShape, bool) {
	fields, ok := objectFields(raw)
	if !ok {
		return nil, false
	}
	r := &resultShape{fields: fields}
	content, output, metadata := r.find("content"), r.find("output"), r.find("metadata")
	if metadata >= 0 && !r.readMetadata(fields[metadata].raw) {
		return nil, false
	}
	switch {
	case r.find("error") >= 0 && !isNull(fields[r.find("error")].raw):
		return nil, false // errors are never rewritten
	case content >= 0:
		r.texts, r.content = content, true
		if text, ok := unquoteJSON(fields[content].raw); ok {
			r.whole = text
			return r, output >= 0 || metadata >= 0
		}
		return r, r.readParts(fields[content].raw)
	case output >= 0 && (metadata >= 0 || r.find("title") >= 0):
		r.texts = output
		r.whole, ok = unquoteJSON(fields[output].raw)
		return r, ok
	}
	return nil, false
}

func (r *resultShape) find(key string) int {
	return slices.IndexFunc(r.fields, func(f jsonField) bool { return f.key == key })
}

func (r *resultShape) readMetadata(raw json.RawMessage) bool {
	if isNull(raw) {
		return true
	}
	fields, ok := objectFields(raw)
	for _, f := range fields {
		switch f.key {
		case "truncated":
			r.host.Truncated = string(f.raw) == "true"
		case "outputPath":
			r.host.OutputPath, _ = unquoteJSON(f.raw)
		}
	}
	return ok
}

func (r *resultShape) readParts(raw json.RawMessage) bool {
	list, ok := listItems(raw)
	if !ok {
		return false
	}
	for _, item := range list {
		fields, ok := objectFields(item)
		if !ok {
			return false
		}
		part := resultPart{raw: item, fields: fields}
		kind := slices.IndexFunc(fields, func(f jsonField) bool { return f.key == "type" })
		if kind < 0 {
			return false
		}
		name, ok := unquoteJSON(fields[kind].raw)
		if !ok {
			return false
		}
		if name == "text" {
			part.at = slices.IndexFunc(fields, func(f jsonField) bool { return f.key == "text" })
			if part.at < 0 {
				return false
			}
			if part.text, part.isText = unquoteJSON(fields[part.at].raw); !part.isText {
				return false
			}
		}
		r.parts = append(r.parts, part)
	}
	return true
}

// text returns all text of the result, as the host joins it.
func (r *resultShape) text() string {
	if r.parts == nil {
		return r.whole
	}
	var texts []string
	for _, p := range r.parts {
		if p.isText {
			texts = append(texts, p.text)
		}
	}
	return strings.Join(texts, "\n")
}

// name returns the file name that a result is about, if its title is one.
func (r *resultShape) name() string {
	i := r.find("title")
	if i < 0 {
		return ""
	}
	title, _ := unquoteJSON(r.fields[i].raw)
	if len(title) > maxOffloadNameBytes || strings.ContainsAny(title, " \t\n") {
		return ""
	}
	return title
}

// replace writes the result with the shortened text in its place.
func (r *resultShape) replace(s Shortened) (json.RawMessage, error) {
	text, err := quoteJSON(s.Text)
	if err != nil {
		return nil, err
	}
	fields := slices.Clone(r.fields)
	fields[r.texts].raw = text
	if r.parts != nil {
		var list [][]byte
		first := true
		for _, p := range r.parts {
			switch {
			case !p.isText:
				list = append(list, p.raw)
			case first:
				first = false
				part := slices.Clone(p.fields)
				part[p.at].raw = text
				list = append(list, joinFields(part))
			}
		}
		// The encoder would respell what is in them.
		fields[r.texts].raw = slices.Concat([]byte("["), bytes.Join(list, []byte(",")), []byte("]"))
	}
	metadata := slices.IndexFunc(fields, func(f jsonField) bool { return f.key == "metadata" })
	if metadata < 0 {
		fields = append(fields, jsonField{key: "metadata"})
		metadata = len(fields) - 1
	}
	if fields[metadata].raw, err = mark(fields[metadata].raw, s); err != nil {
		return nil, err
	}
	return joinFields(fields), nil
}

// mark says in metadata that the result is cut, and where the whole is.
func mark(metadata json.RawMessage, s Shortened) (json.RawMessage, error) {
	fields, _ := objectFields(metadata)
	set := func(key string, value any) error {
		raw, err := json.Marshal(value)
		i := slices.IndexFunc(fields, func(f jsonField) bool { return f.key == key })
		if i < 0 {
			fields = append(fields, jsonField{key: key})
			i = len(fields) - 1
		}
		fields[i].raw = raw
		return err
	}
	err := set("truncated", true)
	if s.Handle != "" {
		err = errors.Join(err, set("outputPath", s.Path))
	}
	err = errors.Join(err, set("tm", struct {
		Handle Handle `json:"handle,omitempty"`
		SHA256 string `json:"sha256,omitempty"`
		Size   int64  `json:"size"`
		Tokens int    `json:"tokens"`
		Failed bool   `json:"failed,omitempty"`
	}{s.Handle, s.SHA256, s.Size, s.Tokens, s.Failed != nil}))
	return joinFields(fields), err
}

// takeOver shortens the file in which the host kept the whole of a result that it
// had cut. It is false if there is none that can be trusted.
func (o *Offload) takeOver(ctx context.Context, r *resultShape, src Source) (Shortened, bool) {
	mcp := r.content && r.find("output") < 0 && r.find("metadata") < 0
	if !r.host.Truncated || r.host.OutputPath == "" || mcp || o.ours(ctx, r.text()) {
		return Shortened{}, false
	}
	f, size, err := o.openHostOutput(r.host.OutputPath)
	if err != nil {
		return Shortened{}, false
	}
	defer f.Close()
	// Not more than was there when it was opened, should somebody add to it.
	s, err := o.shortenReader(ctx, io.LimitReader(f, size), src)
	if err != nil || !s.Cut() {
		return Shortened{}, false // what the host left is better than nothing
	}
	if s.Failed == nil {
		s.TakenOver = true
		o.counts.add(&o.counts.takenOver)
	}
	return s, true
}

const hostOutputPrefix = "tool_"

// openHostOutput opens a plain file in one of the folders where the host keeps
// what it cut. OpenCode 1.18.33 and 2.0.26: <data>/tool-output/tool_<id>.
func (o *Offload) openHostOutput(name string) (*os.File, int64, error) {
	if !filepath.IsAbs(name) || !strings.HasPrefix(filepath.Base(name), hostOutputPrefix) {
		return nil, 0, ErrDenied
	}
	for _, dir := range o.opts.HostOutput {
		rel, err := filepath.Rel(dir, name)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			continue
		}
		f, fi, err := atomicfile.OpenRegular(root, rel, os.O_RDONLY)
		root.Close()
		if err != nil {
			return nil, 0, err
		}
		if fi.Size() > o.opts.MaxHostOutput {
			f.Close()
			return nil, 0, &LimitError{What: "bytes of the host's file", Got: fi.Size(), Max: o.opts.MaxHostOutput}
		}
		return f, fi.Size(), nil
	}
	return nil, 0, fs.ErrNotExist
}

// shapeOf names a shape: the keys of an object with the kinds of their values. It
// is bounded, whatever a tool returns.
func shapeOf(raw json.RawMessage) string {
	fields, ok := objectFields(raw)
	if !ok {
		trimmed := bytes.TrimSpace(raw)
		if len(trimmed) == 0 {
			return "nothing"
		}
		if !json.Valid(trimmed) {
			return "no JSON"
		}
		return kindName(trimmed)
	}
	var names []string
	for _, f := range fields[:min(len(fields), 8)] {
		names = append(names, quoteName(f.key[:min(len(f.key), 24)])+":"+kindName(f.raw))
	}
	slices.Sort(names)
	if n := len(fields) - 8; n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	return "{" + strings.Join(names, ",") + "}"
}

func kindName(raw json.RawMessage) string {
	switch raw[0] {
	case '{', '[', '"':
		return jsonKind(raw[0])
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

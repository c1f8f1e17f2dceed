package fakehost

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The most that a tool's result may have before the host cuts it. OpenCode 1.18 and 2.0.
const (
	maxResultLines = 2000
	maxResultBytes = 50 << 10
)

// A toolResult is a result on its way from the tool to the model.
type toolResult struct {
	Content  []contentPart
	Output   json.RawMessage
	Metadata json.RawMessage
	Title    string
}

// A contentPart is a part of a result: a text, or a file that is passed on as it is.
type contentPart struct {
	text string
	raw  json.RawMessage // of what is no text
}

func (p contentPart) MarshalJSON() ([]byte, error) {
	if p.raw != nil {
		return p.raw, nil
	}
	return json.Marshal(textV2{"text", p.text})
}

func (p *contentPart) UnmarshalJSON(data []byte) error {
	var t struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return err
	}
	*p = contentPart{raw: slices.Clone(json.RawMessage(data))}
	if t.Type == "text" && t.Text != nil {
		*p = contentPart{text: *t.Text}
	}
	return nil
}

func (h *Host) newResult(o ToolOutput) *toolResult {
	out := &toolResult{Content: []contentPart{{text: o.Text}}, Title: o.Title}
	if o.parts != nil {
		out.Content = o.parts
	}
	if o.Metadata != nil {
		out.Metadata = mustJSON(o.Metadata)
	}
	if o.Output != nil {
		out.Output = mustJSON(o.Output)
	}
	return out
}

// text returns the texts, joined by a line break.
func (r *toolResult) text() string {
	var texts []string
	for _, p := range r.Content {
		if p.raw == nil {
			texts = append(texts, p.text)
		}
	}
	return strings.Join(texts, "\n")
}

// encode returns the result as a hook sees it.
func (r *toolResult) encode(h *Host, mcp bool, title string) json.RawMessage {
	switch {
	case h.profile.v1() && mcp:
		return mustJSON(map[string]any{"content": r.Content})
	case h.profile.v1():
		meta := r.Metadata
		if meta == nil {
			meta = json.RawMessage("{}")
		}
		return mustJSON(map[string]any{"title": title, "output": r.text(), "metadata": meta, "attachments": []any{}})
	default:
		out := map[string]any{"content": r.Content}
		if r.Output != nil {
			out["output"] = r.Output
		}
		if r.Metadata != nil {
			out["metadata"] = r.Metadata
		}
		return mustJSON(out)
	}
}

// decode takes over what the hooks made of it. What has another shape is left out.
func (r *toolResult) decode(h *Host, mcp bool, data json.RawMessage) {
	var in struct {
		Content  json.RawMessage `json:"content"`
		Output   json.RawMessage `json:"output"`
		Metadata json.RawMessage `json:"metadata"`
	}
	if json.Unmarshal(data, &in) != nil {
		return
	}
	var object map[string]any
	if !mcp && json.Unmarshal(in.Metadata, &object) == nil && object != nil {
		r.Metadata = in.Metadata
	}
	var text string
	if h.profile.v1() && !mcp {
		if json.Unmarshal(in.Output, &text) == nil {
			r.Content = []contentPart{{text: text}}
		}
		return
	}
	if !mcp {
		r.Output = in.Output
	}
	var parts []contentPart
	if json.Unmarshal(in.Content, &text) == nil && len(in.Content) > 0 && in.Content[0] == '"' {
		r.Content = []contentPart{{text: text}}
	} else if json.Unmarshal(in.Content, &parts) == nil && len(parts) > 0 {
		r.Content = parts
	}
}

// truncate cuts a text that is too long, keeps the whole in a file and says so, unless
// metadata.truncated is set already, to whatever.
func (r *toolResult) truncate(h *Host, tail bool) error {
	meta := make(map[string]any)
	if r.Metadata != nil && json.Unmarshal(r.Metadata, &meta) != nil {
		meta = make(map[string]any)
	}
	if _, has := meta["truncated"]; has {
		return nil
	}
	full := r.text()
	lines := strings.Split(full, "\n")
	meta["truncated"] = false
	if len(lines) > maxResultLines || len(full) > maxResultBytes {
		dir, err := h.outputDir()
		if err != nil {
			return err
		}
		file := filepath.Join(dir, h.newID("tool_"))
		if err := os.WriteFile(file, []byte(full), 0o600); err != nil {
			return err
		}
		meta["truncated"], meta["outputPath"] = true, file
		r.cut(h, lines, len(full), file, tail)
	}
	r.Metadata = mustJSON(meta)
	return nil
}

// cut replaces the texts by whole lines of their head, or tail, and a line that says how
// much there is.
func (r *toolResult) cut(h *Host, lines []string, size int, file string, tail bool) {
	kept, bytes := 0, 0
	for kept < len(lines) && kept < maxResultLines {
		line := lines[kept]
		if tail {
			line = lines[len(lines)-1-kept]
		}
		more := len(line) + min(kept, 1)
		if bytes+more > maxResultBytes {
			break
		}
		bytes += more
		kept++
	}
	files := slices.DeleteFunc(r.Content, func(p contentPart) bool { return p.raw == nil })
	if h.profile.v1() {
		removed := fmt.Sprintf("...%d lines truncated...", len(lines)-kept)
		if kept < maxResultLines {
			removed = fmt.Sprintf("...%d bytes truncated...", size-bytes)
		}
		text := strings.Join(lines[:kept], "\n") + "\n\n" + removed + "\n\nFull output saved to: " + file + "\nRead it in pieces."
		if tail {
			text = "...output truncated...\n\nFull output saved to: " + file + "\n\n" + strings.Join(lines[len(lines)-kept:], "\n")
		}
		r.Content = append([]contentPart{{text: text}}, files...)
		return
	}
	shown := fmt.Sprintf("lines 1-%d", kept)
	if kept == 0 {
		shown = "0 lines"
	}
	marker := contentPart{text: fmt.Sprintf("[showing %s of %d; full output saved to %s]", shown, len(lines), file)}
	r.Content = append([]contentPart{{text: strings.Join(lines[:kept], "\n")}, marker}, files...)
}

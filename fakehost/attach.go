package fakehost

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// A partV1 is what attached looks at in a part of a prompt.
type partV1 struct {
	Type     string `json:"type"`
	Name     string `json:"name"`
	Mime     string `json:"mime"`
	URL      string `json:"url"`
	Filename string `json:"filename"`
}

// attached adds to the parts of a prompt what generation 1 tells the model of them, as synthetic
// texts: before a text file that it was read, and what is in it; behind the name of an agent that
// it is to be dispatched. A file that cannot be read is left out. OpenCode 1.18.33.
func (h *Host) attached(parts []json.RawMessage) []json.RawMessage {
	if parts == nil {
		return nil
	}
	out := []json.RawMessage{}
	note := func(text string) {
		out = append(out, mustJSON(map[string]any{"type": "text", "synthetic": true, "text": text}))
	}
	for _, raw := range parts {
		var p partV1
		if json.Unmarshal(raw, &p) != nil || p.Type != "agent" && (p.Type != "file" || p.Mime != "text/plain") {
			out = append(out, raw)
			continue
		}
		if p.Type == "agent" {
			out = append(out, raw)
			note("Dispatch the subagent " + p.Name + " with what is said above.")
			continue
		}
		name, text, err := readAttachment(p)
		note("The file " + name + " is attached.")
		if err != nil {
			note(fmt.Sprintf("It cannot be read: %v", err))
			continue
		}
		note(text)
		out = append(out, raw)
	}
	return out
}

// readAttachment returns the name of a file and the text in it, up to the host's limit for
// texts. The user has named the file, so it may be anywhere.
func readAttachment(p partV1) (name, text string, err error) {
	if data, ok := strings.CutPrefix(p.URL, "data:"); ok {
		meta, body, _ := strings.Cut(data, ",")
		var plain []byte
		if strings.HasSuffix(meta, ";base64") {
			plain, err = base64.StdEncoding.DecodeString(body)
		} else {
			body, err = url.PathUnescape(body)
			plain = []byte(body)
		}
		return p.Filename, clean(plain), err
	}
	u, err := url.Parse(p.URL)
	if err != nil {
		return p.URL, "", err
	}
	name = filepath.FromSlash(u.Path)
	if rest := strings.TrimPrefix(u.Path, "/"); filepath.VolumeName(rest) != "" { // file:///C:/a.txt
		name = filepath.FromSlash(rest)
	}
	if u.Scheme != "file" {
		return p.URL, "", fmt.Errorf("%q is neither a file nor data", p.URL)
	}
	info, err := os.Stat(name)
	if err != nil {
		return name, "", err
	}
	if !info.Mode().IsRegular() {
		return name, "", fmt.Errorf("%s is no regular file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return name, "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxResultBytes+1))
	return name, clean(data), err
}

// clean is the text of a file, as far as the host shows it.
func clean(data []byte) string {
	if len(data) <= maxResultBytes {
		return strings.ToValidUTF8(string(data), "\uFFFD")
	}
	return strings.ToValidUTF8(string(data[:maxResultBytes]), "\uFFFD") + fmt.Sprintf("\n(only the first %d bytes)", maxResultBytes)
}

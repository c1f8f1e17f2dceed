package fakehost

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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
// it is to be dispatched. A text file that cannot be read is left out, and an image that is none
// refused. OpenCode 1.18.33.
func attached(parts []json.RawMessage) ([]json.RawMessage, error) {
	if parts == nil {
		return nil, nil
	}
	out := []json.RawMessage{}
	note := func(text string) {
		out = append(out, mustJSON(map[string]any{"type": "text", "synthetic": true, "text": text}))
	}
	for _, raw := range parts {
		var p partV1
		if json.Unmarshal(raw, &p) == nil && p.Type == "file" && strings.HasPrefix(p.Mime, "image/") && !isImage(p.URL) {
			return nil, errImage
		}
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
	return out, nil
}

var errImage = invalid("file part", "is no image", "send an image as a data or file URL, or another mime")

// isImage reports whether an attachment can be one: a file, or data that begin as an image does.
func isImage(u string) bool {
	data, ok := strings.CutPrefix(u, "data:")
	if !ok {
		return strings.HasPrefix(u, "file:")
	}
	_, body, _ := strings.Cut(data, ",")
	plain, err := base64.StdEncoding.DecodeString(body)
	return err == nil && strings.HasPrefix(http.DetectContentType(plain), "image/")
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

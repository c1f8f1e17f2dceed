package team

import (
	"bytes"
	"path"
	"strings"
	"unicode/utf8"
)

// extensions are the classes of names. A name says more than a content that
// begins like something else.
var extensions = map[string]Class{
	".txt": ClassText, ".md": ClassText, ".markdown": ClassText, ".rst": ClassText, ".html": ClassText, ".xml": ClassText,
	".log": ClassLog, ".out": ClassLog, ".err": ClassLog,
	".json": ClassJSON, ".jsonl": ClassJSON, ".ndjson": ClassJSON, ".geojson": ClassJSON, ".ipynb": ClassJSON, ".sarif": ClassJSON,
	".csv": ClassCSV, ".tsv": ClassCSV,
	".go": ClassCode, ".ts": ClassCode, ".tsx": ClassCode, ".js": ClassCode, ".jsx": ClassCode, ".mjs": ClassCode, ".py": ClassCode,
	".rs": ClassCode, ".java": ClassCode, ".kt": ClassCode, ".c": ClassCode, ".h": ClassCode, ".cc": ClassCode, ".cpp": ClassCode,
	".hpp": ClassCode, ".cs": ClassCode, ".rb": ClassCode, ".php": ClassCode, ".swift": ClassCode, ".scala": ClassCode, ".sh": ClassCode,
	".png": ClassBinary, ".jpg": ClassBinary, ".jpeg": ClassBinary, ".gif": ClassBinary, ".webp": ClassBinary, ".pdf": ClassBinary,
	".zip": ClassBinary, ".gz": ClassBinary, ".tar": ClassBinary, ".wasm": ClassBinary, ".exe": ClassBinary, ".so": ClassBinary,
	".db": ClassBinary, ".sqlite": ClassBinary,
}

// fileExtensions are what the files of a class are called, so that a person's
// programs know what to do with them.
var fileExtensions = map[Class]string{
	ClassText: ".txt", ClassReport: ".md", ClassLog: ".log", ClassJSON: ".json", ClassCSV: ".csv", ClassCode: ".txt",
	ClassBinary: ".bin", ClassUnknown: ".txt",
}

// classOf returns the class of a content that begins with sample, by its name
// first. A text may still be a report, whatever it is called.
func classOf(name string, sample []byte) Class {
	sample = sample[:min(len(sample), sampleBytes)]
	name = strings.ReplaceAll(name, `\`, "/")
	class := extensions[strings.ToLower(path.Ext(name))]
	switch {
	case class == ClassText && isReport(sample):
		return ClassReport
	case class != "":
		return class
	case isBinary(sample):
		return ClassBinary
	case isJSON(sample):
		return ClassJSON
	}
	lines := sampleLines(sample)
	switch {
	case isReport(sample):
		return ClassReport
	case isLog(lines):
		return ClassLog
	case isCode(lines):
		return ClassCode
	case delimiterOf(lines) != 0:
		return ClassCSV
	case len(sample) >= 1024 && !bytes.ContainsAny(sample, " \t\n") && isASCII(sample):
		return ClassUnknown
	}
	return ClassText
}

// sampleLines returns the whole lines of a sample.
func sampleLines(sample []byte) [][]byte {
	lines := bytes.Split(sample, []byte("\n"))
	if len(lines) > 1 {
		lines = lines[:len(lines)-1] // the last one may be cut
	}
	for i := range lines {
		lines[i] = bytes.TrimSuffix(lines[i], []byte("\r"))
	}
	return lines
}

func isASCII(s []byte) bool {
	for _, c := range s {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// isBinary reports whether a sample has a zero byte, or more than one in twenty
// bytes that are neither text nor UTF-8.
func isBinary(sample []byte) bool {
	bad := 0
	for i := 0; i < len(sample); {
		c := sample[i]
		if c < utf8.RuneSelf {
			if c == 0 {
				return true
			}
			if c < ' ' && c != '\n' && c != '\r' && c != '\t' && c != '\f' && c != 0x1B {
				bad++
			}
			i++
			continue
		}
		r, size := utf8.DecodeRune(sample[i:])
		if r == utf8.RuneError && size == 1 && (utf8.FullRune(sample[i:]) || len(sample) < sampleBytes) {
			bad++
		}
		i += size
	}
	return bad*20 > len(sample)
}

// isJSON reports whether a sample is the beginning of an object or array.
func isJSON(sample []byte) bool {
	start := bytes.TrimLeft(sample, " \t\r\n")
	if len(start) < 2 || start[0] != '{' && start[0] != '[' {
		return false
	}
	var j jsonScanner
	return j.write(start) == nil && j.values > 0
}

// skeletonLabel returns the label of a reply that a line begins with, if any: also as a
// heading or in bold, since a preview keeps such a line and nothing depends on it.
func skeletonLabel(line []byte) string {
	line = bytes.TrimLeft(line[:min(len(line), 64)], "#*_ \t")
	if len(line) == 0 || bytes.IndexByte([]byte("SCFEH"), line[0]&^0x20) < 0 {
		return "" // nearly all
	}
	label, _ := labelOf(string(bytes.ReplaceAll(line, []byte("*"), nil)))
	return label
}

// isReport reports whether a sample is a text whose skeleton or tables matter.
func isReport(sample []byte) bool {
	labels := ""
	table := false
	for _, line := range bytes.Split(sample, []byte("\n")) {
		if l := skeletonLabel(line); l != "" && !strings.Contains(labels, l) {
			labels += l
		}
		table = table || isTableRule(line)
	}
	return table || strings.Contains(labels, "STATUS")
}

// isTableRule reports whether a line stands between the head and the rows of a
// Markdown table.
func isTableRule(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) >= 3 && len(line) <= 1024 && line[0] == '|' && bytes.Contains(line, []byte("--")) && len(bytes.Trim(line, "|-: \t")) == 0
}

// isLog reports whether at least half of the lines begin with a time or say how
// grave they are.
func isLog(lines [][]byte) bool {
	n := 0
	for _, line := range lines {
		if levelOf(line) != levelNone || startsWithTime(line) {
			n++
		}
	}
	return len(lines) >= 3 && 2*n >= len(lines)
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_' }

// isCode reports whether lines read like a program.
func isCode(lines [][]byte) bool {
	signatures, ends, full := 0, 0, 0
	for _, line := range lines {
		if signatureAt(line) >= 0 {
			signatures++
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		full++
		switch line[len(line)-1] {
		case '{', '}', ';', ')', ',':
			ends++
		}
		if bytes.HasSuffix(line, []byte("):")) || bytes.HasPrefix(line, []byte("//")) || bytes.HasPrefix(line, []byte("import ")) ||
			line[0] == '"' && line[len(line)-1] == '"' { // a path in a list of imports
			ends++
		}
	}
	return signatures >= 2 && 4*(ends+signatures) >= full || signatures >= 1 && 5*ends >= 3*full && full >= 3
}

// delimiterOf returns what stands between the columns of lines, or zero if they
// are not rows of a table.
func delimiterOf(lines [][]byte) byte {
	if len(lines) < 3 {
		return 0
	}
	for _, d := range []byte(",\t;|") {
		n := columns(lines[0], d) - 1
		same := n > 0 && !likeProse(lines, d)
		for _, line := range lines[:min(len(lines), 8)] {
			if columns(line, d) != n+1 {
				same = false
				break
			}
		}
		if same {
			return d
		}
	}
	return 0
}

// likeProse reports whether most delimiters have a space behind them, as commas in
// sentences do.
func likeProse(lines [][]byte, d byte) bool {
	spaced, all := 0, 0
	for _, line := range lines[:min(len(lines), 8)] {
		all += bytes.Count(line, []byte{d})
		spaced += bytes.Count(line, []byte{d, ' '})
	}
	return 2*spaced > all
}

// columns counts the columns of one row. A delimiter in quotes is none.
func columns(line []byte, delimiter byte) int {
	n, quoted := 1, false
	for _, c := range line {
		switch {
		case c == '"':
			quoted = !quoted
		case c == delimiter && !quoted:
			n++
		}
	}
	return n
}

package survey

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// code shows a name from the workspace as Markdown code: on one line, without
// anything that could end the code, the cell or the line, and not too long.
func code(s string) string {
	return "`" + plain(s) + "`"
}

func plain(s string) string {
	bad := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	if strings.ContainsFunc(s, bad) {
		s = strconv.Quote(s)
	}
	s = strings.NewReplacer("`", "'", "|", "¦").Replace(s)
	if r := []rune(s); len(r) > 120 {
		s = string(r[:50]) + "…" + string(r[len(r)-69:])
	}
	return s
}

func codes(names []string, most int) string {
	var b strings.Builder
	for i, name := range names {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(names)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(code(name))
	}
	return b.String()
}

// folder shows a folder of the tree; "." says little to a reader.
func folder(dir string) string {
	if dir == "." {
		return "(root)"
	}
	return dir
}

// OneLine folds all white space, and drops what a terminal would obey.
func OneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// Cut shortens s to most runes and shows that it did.
func Cut(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return strings.TrimSpace(string(r[:most-1])) + "…"
	}
	return s
}

// Plural is "1 file", "2 files". An irregular plural is given.
func Plural(n int, noun string, irregular ...string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case len(irregular) > 0:
		return strconv.Itoa(n) + " " + irregular[0]
	default:
		return strconv.Itoa(n) + " " + noun + "s"
	}
}

// OrNo is Plural, but "no file" for none.
func OrNo(n int, noun string, irregular ...string) string {
	if n == 0 {
		return "no " + noun
	}
	return Plural(n, noun, irregular...)
}

func Bytes(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1_000_000_000:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	default:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	}
}

func percent(part, whole int) string {
	if whole == 0 {
		return "–"
	}
	p := (part*100 + whole/2) / whole
	if p == 100 && part < whole {
		p = 99 // all is all
	}
	return fmt.Sprintf("%d %%", p)
}

// itoa is for table cells.
func itoa(n int) string { return strconv.Itoa(n) }

package slug

import (
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

func TestPlainNamesStandForThemselves(t *testing.T) {
	for _, raw := range []string{
		"auth-design", "20261130-072811-k3f9qa", "a", "api_design", "架构设计", "设计-v2", "план", "日本語ノート", "r7", "x-r", "7",
	} {
		name, exact, err := Name(raw, 96)
		if err != nil || !exact || name != raw {
			t.Errorf("Name(%q) = %q, %v, %v; want it unchanged", raw, name, exact, err)
		}
	}
	if word, _, _ := Word("code-reviewer", 32); word != "code_reviewer" {
		t.Errorf(`Word("code-reviewer") = %q, want "code_reviewer"`, word)
	}
	if raw, ok := RawWord("code_reviewer"); !ok || raw != "code-reviewer" {
		t.Errorf(`RawWord("code_reviewer") = %q, %v`, raw, ok)
	}
}

func TestOtherNamesAreMarked(t *testing.T) {
	for raw, readable := range map[string]string{
		"a/b": "a-b", "a:b": "a-b", "A-B": "a-b", `a\b`: "a-b", "a--b": "a-b", "-ab": "ab", "ab-": "ab",
		"Café": "cafe", "Cafe\u0301": "cafe", "straße": "stra-e", "CON": "con", "con": "con", "lpt1": "lpt1", ".env": "env",
		"notes-r7": "notes-r7", "🚀": "x", "설계": "설계", "ﬁle": "file", "a b": "a-b", "a~b": "a-b", "...": "x",
		"Ж": "ж", "ος": "ο", "a.": "a", " a": "a",
	} {
		name, exact, err := Name(raw, 96)
		if err != nil || exact {
			t.Errorf("Name(%q) = %q, exact %v, %v; want it marked", raw, name, exact, err)
			continue
		}
		if got, digest, _ := strings.Cut(name, mark); got != readable || len(digest) != digestLen {
			t.Errorf("Name(%q) = %q, want %q and a digest", raw, name, readable)
		}
	}
}

func TestRefusedNames(t *testing.T) {
	for raw, want := range map[string]Error{
		"":                        {"is empty", -1},
		" \t":                     {"is empty", -1},
		".":                       {"is a folder reference, not a name", -1},
		"..":                      {"is a folder reference, not a name", -1},
		"ab\x00c":                 {"has a control character", 2},
		"ab\nc":                   {"has a control character", 2},
		"é\xff":                   {"is not UTF-8", 2},
		strings.Repeat("a", 1025): {"is longer than 1024 bytes", 1024},
	} {
		_, _, err := Name(raw, 96)
		if e, ok := err.(*Error); !ok || *e != want {
			t.Errorf("Name(%.20q) = %v, want %v", raw, err, want)
		}
	}
	if _, _, err := Name("a\uFFFDb", 96); err != nil {
		t.Errorf("a written U+FFFD is refused: %v", err)
	}
}

// folded is what the most eager file system would take a name for.
func folded(s string) string { return norm.NFKD.String(cases.Fold().String(norm.NFKD.String(s))) }

func FuzzName(f *testing.F) {
	for _, s := range []string{"a/b", "a-b", "A-B", "é", "e\u0301", "..", "con", "x-r7", "설계", "ß", "ss",
		strings.Repeat("架", 100), strings.Repeat("a", 78) + "🚀", "ı", "i", "ﬀ", "ff", "code-reviewer", "code_reviewer", "가\u0301\u11a8"} {
		f.Add(s, "a-b")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, fn := range []func(string, int) (string, bool, error){Name, Word} {
			na, exact, err := fn(a, 32)
			if err != nil {
				continue
			}
			if len(na) > 32 || !utf8.ValidString(na) || strings.ContainsAny(na, "/\\:*?\"<>| .\x00") ||
				na == "" || reserved(na) || roundSuffix(na) {
				t.Errorf("%q became %q", a, na)
			}
			if !norm.NFC.IsNormalString(na) {
				t.Errorf("%q became %q, which is not composed", a, na)
			}
			if strings.HasPrefix(na, mark) || exact == strings.Contains(na, mark) {
				t.Errorf("%q became %q, exact %v", a, na, exact)
			}
			if !Made(strings.ReplaceAll(na, "_", "-")) && !Made(na) {
				t.Errorf("Made(%q) = false", na)
			}
			nb, _, err := fn(b, 32)
			if err == nil && a != b && folded(na) == folded(nb) {
				t.Errorf("%q and %q share %q", a, b, na)
			}
		}
	})
}

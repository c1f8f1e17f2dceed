// These tests are inside of the program, since a program has no outside to
// test from but its output.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/teamchan/team"
)

// A workspace makes a folder with the given files. Boards outside git go to
// the folder for temporary files, which is the test's own.
func workspace(t *testing.T, files map[string]string) string {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	return makeFiles(t, files)
}

func makeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "workspace")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// aModule is a small Go module in a repository, with one long function that no
// test names, a file that does not parse and a file that is no text.
func aModule() map[string]string {
	var long strings.Builder
	long.WriteString("package shop\n\nimport \"example.org/shop/price\"\n\n// Total adds up.\nfunc Total(n int) int {\n\tsum := 0\n")
	for i := range 40 {
		fmt.Fprintf(&long, "\tif n > %d && n != %d {\n\t\tsum += price.Of(n)\n\t}\n", i, i)
	}
	long.WriteString("\treturn sum\n}\n\nfunc Empty() bool { return true }\n")
	return map[string]string{
		".git/HEAD":           "ref: refs/heads/main\n",
		".git/config":         "[core]\n",
		".git/objects/.keep":  "",
		".git/refs/.keep":     "",
		"README.md":           "# Shop\n",
		"go.mod":              "module example.org/shop\n\ngo 1.26\n\nrequire example.org/other v1.2.3\n",
		"shop.go":             long.String(),
		"shop_test.go":        "package shop\n\nimport \"testing\"\n\nfunc TestEmpty(t *testing.T) { Empty() }\n",
		"price/price.go":      "// Package price knows prices.\npackage price\n\n// Of is the price of n.\nfunc Of(n int) int { return n }\n\n// TODO(ann): in other currencies\n",
		"broken/broken.go":    "// Package broken is not finished.\npackage broken\n\nfunc Half() {\n",
		"data/picture.bin":    "\x00\x01\x02\xff\xfe",
		"node_modules/x/x.js": "// FIXME: not ours\n",
	}
}

var noGo = map[string]string{
	"notes/plan.md":     "# Plan\n",
	"tools/run.py":      "# TODO: arguments\nprint(1)\n",
	"tools/test_run.py": "def test(): pass\n",
}

func TestRelay(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"go module in a repository": aModule(),
		"without go":                noGo,
		"empty folder":              nil,
		"only a broken go file":     {"x.go": "pakkage x\n"},
		"names that a terminal would obey": {
			"a`|b.py": "# TODO: x\n", "c\x1b[31m.go": "package c\n\nfunc C() {}\n", "d\ne/f.md": "text\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := workspace(t, files)
			var out bytes.Buffer
			if err := run(t.Context(), []string{"-workspace", dir}, &out); err != nil {
				t.Fatal(err)
			}
			if i := strings.IndexFunc(out.String(), func(r rune) bool { return r < ' ' && r != '\n' }); i >= 0 {
				t.Errorf("the output has a control character at byte %d:\n%q", i, &out)
			}
			var roles []string
			for role := range entriesOf(t, dir) {
				roles = append(roles, role)
			}
			slices.Sort(roles)
			if want := []string{"architect", "implementer", "lead", "researcher", "reviewer", "tester"}; !slices.Equal(roles, want) {
				t.Errorf("entries on the board by %q, want %q", roles, want)
			}
			for _, want := range []string{"workspace  ", "What to do next", "What it cost the lead", "survey/06-lead-plan.md"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the output has no %q:\n%s", want, &out)
				}
			}
		})
	}
}

// entriesOf returns the texts on the board of a workspace, by role.
func entriesOf(t *testing.T, workspace string) map[string]string {
	t.Helper()
	dir, err := team.BoardDir(workspace)
	if err != nil {
		t.Fatal(err)
	}
	board, err := team.OpenBoard(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer board.Close()
	texts := map[string]string{}
	for e, err := range board.Entries(t.Context(), team.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		x, err := board.Read(t.Context(), e.Path, team.Range{})
		if err != nil {
			t.Fatal(err)
		}
		texts[string(e.Role)] += x.Text
	}
	return texts
}

// Each specialist must say what there is to say, and the later ones must build
// on the earlier ones.
func TestDeliverables(t *testing.T) {
	dir := workspace(t, aModule())
	if err := run(t.Context(), []string{"-workspace", dir}, new(bytes.Buffer)); err != nil {
		t.Fatal(err)
	}
	texts := entriesOf(t, dir)
	for _, test := range []struct{ role, says, want string }{
		{"architect", "the package list", "| `price` | `price` | 1 | 7 | 0 | 1 | 0 |"},
		{"architect", "the imports", "- `(root)` → `price`"},
		{"architect", "what it did not enter", "Not entered: `.git`, `node_modules`."},
		{"researcher", "the dependency", "| `example.org/other` | `v1.2.3` | 0 packages |"},
		{"researcher", "the TODO", "| TODO | `price/price.go:7` | `in other currencies` |"},
		{"researcher", "the missing licence", "- **high** There is no licence file"},
		{"researcher", "that a file is binary", "| `data/picture.bin` | 5 B | binary |"},
		{"implementer", "the file that does not parse", "- **high** 1 Go file does not parse: `broken/broken.go`."},
		{"implementer", "the gap, with the architect's number", "| `Empty` | func | `shop.go:131` | 0 |"},
		{"implementer", "what the broken file has before the fault", "func Half()"},
		{"reviewer", "the heavy function", "- **high** `Total` (`shop.go:6`) has 81 branches in 124 lines, nested 1 deep."},
		{"reviewer", "the implementer's gap", "| `Empty` | `shop.go:131` | 1 | 1 | 0 | 0 | no | 1 |"},
		{"tester", "the reviewer's heavy function", "- **high** `Total` (`shop.go:6`) is named in no test."},
		{"lead", "one task for what two say of one place", "nested 1 deep. It is named in no test. — reviewer and tester,"},
		{"lead", "where the evidence is", "`survey/04-reviewer-review.md`"},
	} {
		if !strings.Contains(texts[test.role], test.want) {
			t.Errorf("the %s does not say %s: no %q in\n%s", test.role, test.says, test.want, texts[test.role])
		}
	}
	if strings.Contains(texts["researcher"], "not ours") {
		t.Error("the researcher reports a FIXME of node_modules")
	}
}

// One specialist repeats its whole deliverable in its reply: the lead sees a line and
// where the rest is, and the rest is there.
func TestLongReply(t *testing.T) {
	files := aModule()
	for i := range 60 { // much to report
		files[fmt.Sprintf("notes/n%d.go", i)] = fmt.Sprintf("package notes\n\n// TODO: number %d of many things\nfunc N%d() {}\n", i, i)
	}
	dir := workspace(t, files)
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-workspace", dir, "-json"}, &out); err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(doc.LongReply, `from="researcher"`) || !strings.Contains(doc.LongReply, "handle tm://") {
		t.Fatalf("the lead saw %q, want a signal of the researcher with a handle", doc.LongReply)
	}
	if n := team.EstimateTokens(doc.LongReply); n > 800 {
		t.Errorf("the long reply costs the lead %d tokens", n)
	}
	_, rest, _ := strings.Cut(doc.LongReply, "\nref: ")
	_, rest, _ = strings.Cut(rest, "\nref: ") // the first one is the entry
	path, _, _ := strings.Cut(rest, " (")
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text := entriesOf(t, dir)["researcher"]; string(body) != text {
		t.Errorf("the offloaded reply has %d bytes, want the %d of the deliverable", len(body), len(text))
	}

	// A person sees the same on the terminal.
	out.Reset()
	if err := run(t.Context(), []string{"-workspace", dir}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"What the lead saw of the reply that was far too long", "handle tm://"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestRunErrors(t *testing.T) {
	dir := workspace(t, map[string]string{"a.txt": "a"})
	ended, end := context.WithCancel(t.Context())
	end()
	for _, test := range []struct {
		name string
		ctx  context.Context
		args []string
		want string
	}{
		{"no such folder", t.Context(), []string{"-workspace", dir + "/none"}, "no such file"},
		{"not a folder", t.Context(), []string{"-workspace", dir + "/a.txt"}, "is not a folder"},
		{"unknown flag", t.Context(), []string{"-jsn"}, "-jsn"},
		{"argument", t.Context(), []string{"folder"}, `unexpected argument "folder"`},
		{"interrupted", ended, []string{"-workspace", dir}, "interrupted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(test.ctx, append(test.args, "-json"), &out)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("run(%q) = %v, want an error with %q", test.args, err, test.want)
			}
			if out.Len() > 0 {
				t.Errorf("run(%q) printed %q", test.args, &out)
			}
		})
	}
}

func TestFindWorkspace(t *testing.T) {
	dir := workspace(t, map[string]string{"go.mod": "module x\n", "a/b/c.txt": ""})
	t.Chdir(filepath.Join(dir, "a", "b"))
	got, err := findWorkspace("")
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := os.Stat(dir); !sameFile(t, got, want) {
		t.Errorf("findWorkspace from a/b = %q, want the folder of go.mod", got)
	}
}

func sameFile(t *testing.T, name string, want fs.FileInfo) bool {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(info, want)
}

// A full board is a clear end, not a hang.
func TestOutputErrors(t *testing.T) {
	dir := workspace(t, noGo)
	full := errors.New("no space left")
	if err := run(t.Context(), []string{"-workspace", dir}, writerFunc(func([]byte) (int, error) { return 0, full })); !errors.Is(err, full) {
		t.Errorf("run into a full disk = %v, want %v", err, full)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

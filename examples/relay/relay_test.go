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
	"testing/fstest"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
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

func TestJSON(t *testing.T) {
	dir := workspace(t, aModule())
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-workspace", dir, "-json"}, &out); err != nil {
		t.Fatal(err)
	}
	var doc document
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if d.More() {
		t.Error("there is more than one document on stdout")
	}

	t.Run("handover", func(t *testing.T) {
		at := func(kind, from, to string) int {
			i := slices.IndexFunc(doc.Events, func(e event) bool {
				return e.Kind == kind && string(e.From) == from && e.To == to
			})
			if i < 0 {
				t.Fatalf("no %s from %s to %s in %+v", kind, from, to, doc.Events)
			}
			return i
		}
		before := []int{} // what has settled so far
		for _, step := range steps {
			var now []int
			for _, s := range step {
				role := string(s.role)
				handoff, entry, settled := at("handoff", "lead", role), at("entry", role, "board"), at("settled", role, "lead")
				if handoff > entry || entry > settled {
					t.Errorf("%s: handoff, entry, settled are events %d, %d, %d, want them in order", role, handoff, entry, settled)
				}
				if len(before) > 0 && handoff < slices.Max(before) {
					t.Errorf("%s got the handoff (event %d) before the last step had settled (%d)", role, handoff, before)
				}
				if got := doc.Events[handoff].Refs; len(got) != len(s.reads) {
					t.Errorf("the handoff to %s refers to %q, want entries of %q", role, got, s.reads)
				}
				refs := doc.Events[settled].Refs
				if s.chatty && len(refs) == 2 { // the entry, and the body that was too long
					refs = refs[:1]
				}
				if e := doc.Events[entry]; !slices.Equal(refs, []string{e.Path}) || e.Round != 1 || e.Bytes == 0 {
					t.Errorf("%s settled with %q after writing %+v", role, doc.Events[settled].Refs, e)
				}
				now = append(now, settled)
			}
			before = now
		}
		if last := at("entry", "lead", "board"); last != len(doc.Events)-1 || doc.Plan != doc.Events[last].Path {
			t.Errorf("the plan %q is event %d of %d, want the last", doc.Plan, last, len(doc.Events))
		}
	})
	t.Run("account", func(t *testing.T) {
		a := doc.Account
		if a.Inline <= a.Paths || a.Paths != a.SignalTokens+a.ExcerptTokens || a.Signals != 5 || a.SavedPercent <= 0 {
			t.Errorf("account = %+v, want fewer tokens with paths than inline", a)
		}
	})
	t.Run("tasks", func(t *testing.T) {
		if len(doc.Tasks) != mostTasks {
			t.Errorf("%d tasks, want %d", len(doc.Tasks), mostTasks)
		}
		for _, task := range doc.Tasks {
			if len(task.From) == 0 || len(task.From) != len(task.Paths) {
				t.Errorf("task %+v does not say where it comes from", task)
			}
		}
	})
	t.Run("a second run has a session of its own", func(t *testing.T) {
		out.Reset()
		if err := run(t.Context(), []string{"-workspace", dir, "-json"}, &out); err != nil {
			t.Fatal(err)
		}
		var again document
		if err := json.Unmarshal(out.Bytes(), &again); err != nil {
			t.Fatal(err)
		}
		if again.Session == doc.Session || again.Board != doc.Board {
			t.Errorf("second run: session %q on board %q, first %q on %q", again.Session, again.Board, doc.Session, doc.Board)
		}
	})
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

// newRelay is a relay on an empty tree, for what goes wrong between the roles.
func newRelay(t *testing.T) *relay {
	t.Helper()
	board, err := team.OpenBoard(t.Context(), filepath.Join(t.TempDir(), "board"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { board.Close() })
	store := new(memstore.Store)
	signals, err := team.OpenSignals(t.Context(), store, nil)
	if err != nil {
		t.Fatal(err)
	}
	j, err := begin(t.Context(), store, false, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	return &relay{board: board, signals: signals, session: j.session(), journal: j, tree: &tree{},
		log: &timeline{started: time.Now()}, patience: time.Minute}
}

func TestLead(t *testing.T) {
	t.Run("a specialist that cannot deliver says so", func(t *testing.T) {
		r := newRelay(t)
		r.board.Close()
		_, err := r.run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "did not settle") {
			t.Errorf("run with a closed board = %v, want that somebody did not settle", err)
		}
	})
	t.Run("a specialist that is silent is not waited for for ever", func(t *testing.T) {
		r := newRelay(t)
		r.patience = time.Millisecond
		for _, m := range []team.Member{
			{Session: sessionOf(r.session, roleLead), Role: roleLead},
			{Session: sessionOf(r.session, roleArchitect), Role: roleArchitect, Parent: sessionOf(r.session, roleLead)},
			{Session: sessionOf(r.session, roleResearcher), Role: roleResearcher, Parent: sessionOf(r.session, roleLead)},
		} {
			if err := r.signals.Enrol(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		_, err := r.lead(r.as(t.Context(), roleLead))
		if err == nil || !strings.Contains(err.Error(), "no answer within 1ms") {
			t.Errorf("lead without specialists = %v, want no answer within 1ms", err)
		}
	})
	t.Run("an entry that is not the one handed over", func(t *testing.T) {
		r := newRelay(t)
		e, err := r.write(r.as(t.Context(), roleTester), deliverable{topic: "x", title: "x"})
		if err != nil {
			t.Fatal(err)
		}
		ref := e.Ref()
		ref.SHA256 = strings.Repeat("0", 64)
		if _, err := r.board.ReadRef(t.Context(), ref, team.Range{}); err == nil {
			t.Error("read of a reference with another digest = nil, want an error")
		}
	})
}

func TestNext(t *testing.T) {
	reports := []report{
		{role: "a", path: "a.md", findings: []finding{{high, "a1"}, {high, "a2"}, {high, "a3"}, {low, "a4"}}},
		{role: "b", path: "b.md", findings: []finding{{medium, "b1"}, {high, "`f` (`x.go:1`) is much too long."}}},
		{role: "c", path: "c.md", findings: []finding{{high, "`f` (`x.go:1`) has no test."}}},
	}
	var got []string
	for _, task := range next(reports) {
		got = append(got, task.by()+": "+task.Text)
	}
	want := []string{"a: a1", "b and c: `f` (`x.go:1`) is much too long. It has no test.", "a: a2", "a: a3", "b: b1"}
	if !slices.Equal(got, want) {
		t.Errorf("next = %q\nwant  %q", got, want)
	}
}

func TestScan(t *testing.T) {
	scan := func(t *testing.T, fsys fs.FS, lim limits) *tree {
		t.Helper()
		found, err := scanTree(t.Context(), fsys, nil, lim)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s), Mode: 0o600} }

	t.Run("limits are kept and said", func(t *testing.T) {
		fsys := fstest.MapFS{"a.txt": text("12345678"), "b.txt": text("12345678"), "c.txt": text("1234567890"), "d.txt": text("1")}
		got := scan(t, fsys, limits{entries: 3, bytes: 10, file: 9})
		if got.Read != 8 || got.Unread != 1 || got.TooLarge != 1 || len(got.Files) != 3 || got.Stopped == "" {
			t.Errorf("scan = %+v, want 8 bytes read, one file unread, one too large, the fourth left out", got)
		}
		if gaps := got.gaps(); len(gaps) != 3 {
			t.Errorf("gaps = %q, want all three said", gaps)
		}
	})
	t.Run("what cannot be read is said", func(t *testing.T) {
		fsys := unreadable{fstest.MapFS{"good.go": text("package p\n"), "secret/x.go": text("package x\n"), "secret.txt": text("x")}}
		got := scan(t, fsys, defaultLimits)
		want := []problem{{"secret", "permission denied"}, {"secret.txt", "permission denied"}}
		if !slices.Equal(got.Problems, want) || len(got.Packages) != 1 {
			t.Errorf("problems = %q and %d packages, want %q and 1", got.Problems, len(got.Packages), want)
		}
	})
	t.Run("links and pipes are not opened", func(t *testing.T) {
		dir := workspace(t, map[string]string{"a/a.txt": "a"})
		for _, link := range []string{dir, "loop", "/etc/passwd", "missing"} {
			if err := os.Symlink(link, filepath.Join(dir, "a", "loop"+filepath.Base(link))); err != nil {
				t.Skip("no symbolic links here: ", err)
			}
		}
		got, err := openTree(t.Context(), dir, defaultLimits)
		if err != nil || got.Links != 4 || len(got.Files) != 1 {
			t.Errorf("openTree = %+v, %v, want 4 links and 1 file", got, err)
		}
	})
	t.Run("a folder of a module knows its import path", func(t *testing.T) {
		dir := workspace(t, map[string]string{"go.mod": "module m.org/m\n",
			"sub/a/a.go": "package a\n\nimport _ \"m.org/m/sub/b\"\n", "sub/b/b.go": "package b\n"})
		got, err := openTree(t.Context(), filepath.Join(dir, "sub"), defaultLimits)
		if err != nil || len(got.Packages) != 2 || !slices.Equal(got.Packages[0].Imports, []string{"b"}) {
			t.Errorf("openTree(sub) = %+v, %v, want that a imports b", got, err)
		}
	})
	t.Run("cycles and missing packages", func(t *testing.T) {
		got := scan(t, fstest.MapFS{
			"go.mod":  text("module m\n"),
			"a/a.go":  text("package a\n\nimport _ \"m/b\"\n"),
			"b/b.go":  text("package b\n\nimport (\n\t_ \"m/a\"\n\t_ \"m/c\"\n)\n"),
			"c/c.go":  text("package c\n\nimport _ \"m/none\"\n"),
			"d/d.go":  text("package d\n\nimport _ \"m/a\"\n"),
			"d/ig.go": text("//go:build ignore\n\npackage main\n"),
		}, defaultLimits)
		cycles := layers(got.Packages)
		if len(cycles) != 1 || !slices.Equal(cycles[0], []string{"a", "b"}) {
			t.Errorf("cycles = %q, want a and b", cycles)
		}
		var says []string
		for _, p := range got.Packages {
			says = append(says, fmt.Sprintf("%s%d%q%q", p.Dir, p.Layer, p.Missing, p.Others))
		}
		if want := []string{"a1[][]", "b1[][]", `c0["m/none"][]`, "d2[][]"}; !slices.Equal(says, want) {
			t.Errorf("packages = %q, want %q", says, want)
		}
	})
}

// unreadable refuses whatever is called secret.
type unreadable struct{ fstest.MapFS }

func (u unreadable) Open(name string) (fs.File, error) {
	if strings.HasPrefix(name, "secret") {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return u.MapFS.Open(name)
}

func (u unreadable) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == "secret" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return u.MapFS.ReadDir(name)
}

func TestParseGo(t *testing.T) {
	g := parseGo("p/p.go", []byte(`// Package p is "TODO" free.
package p

func (b *box[T]) Get(a, c bool) int {
	for range 3 {
		if a && c || a {
			switch { case a: return 1; default: return 2 }
		}
	}
	return 0
}

// FIXME: later
// We say TODO here but mean nothing.
type Box struct{ A, b int }

func (Box) String() string { return "// TODO: not a comment" }
`))
	if len(g.funcs) != 2 || g.funcs[0].Name != "(*box).Get" || g.funcs[0].Exported || g.funcs[0].Branches != 6 || g.funcs[0].Depth != 3 {
		t.Errorf("funcs = %+v, want (*box).Get with 6 branches, 3 deep", g.funcs)
	}
	if len(g.markers) != 1 || g.markers[0] != (marker{"FIXME", 13, "later"}) {
		t.Errorf("markers = %+v, want the FIXME of line 13 only", g.markers)
	}
	if len(g.api) != 2 || g.api[0].Sig != "type Box struct (1 exported field)" || g.api[1].Sig != "func (Box) String() string" {
		t.Errorf("api = %+v, want Box and its String", g.api)
	}
}

// Whatever a file is called, a colleague reads the same cells that were
// written.
func TestTable(t *testing.T) {
	rows := [][]string{{code("a.go:1"), "1"}, {code("b|`c\x1b\n.go"), "2"}, {code(strings.Repeat("é", 500)), "3"}}
	var p page
	p.section("Things")
	p.table("thing | n", rows, 10)
	p.section("Next")
	got := tableOf(p.String(), "Things")
	if len(got) != 3 {
		t.Fatalf("tableOf = %q, want three rows", got)
	}
	for i, row := range got {
		if want := strings.Trim(rows[i][0], "`"); row[0] != want || row[1] != rows[i][1] {
			t.Errorf("row %d = %q, want %q", i, row, rows[i])
		}
	}
	if got := tableOf(p.String(), "Next"); got != nil {
		t.Errorf("tableOf a section without a table = %q, want nothing", got)
	}
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

package survey

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// makeFiles makes a folder with the given files.
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

func TestNext(t *testing.T) {
	reports := []Report{
		{Role: "a", Path: "a.md", Findings: []Finding{{High, "a1"}, {High, "a2"}, {High, "a3"}, {Low, "a4"}}},
		{Role: "b", Path: "b.md", Findings: []Finding{{Medium, "b1"}, {High, "`f` (`x.go:1`) is much too long."}}},
		{Role: "c", Path: "c.md", Findings: []Finding{{High, "`f` (`x.go:1`) has no test."}}},
	}
	var got []string
	for _, task := range Next(reports) {
		got = append(got, task.By()+": "+task.Text)
	}
	want := []string{"a: a1", "b and c: `f` (`x.go:1`) is much too long. It has no test.", "a: a2", "a: a3", "b: b1"}
	if !slices.Equal(got, want) {
		t.Errorf("next = %q\nwant  %q", got, want)
	}
}

func TestScan(t *testing.T) {
	scan := func(t *testing.T, fsys fs.FS, lim limits) *Tree {
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
		dir := makeFiles(t, map[string]string{"a/a.txt": "a"})
		for _, link := range []string{dir, "loop", "/etc/passwd", "missing"} {
			if err := os.Symlink(link, filepath.Join(dir, "a", "loop"+filepath.Base(link))); err != nil {
				t.Skip("no symbolic links here: ", err)
			}
		}
		got, err := Open(t.Context(), dir)
		if err != nil || got.Links != 4 || len(got.Files) != 1 {
			t.Errorf("Open = %+v, %v, want 4 links and 1 file", got, err)
		}
	})
	t.Run("a folder of a module knows its import path", func(t *testing.T) {
		dir := makeFiles(t, map[string]string{"go.mod": "module m.org/m\n",
			"sub/a/a.go": "package a\n\nimport _ \"m.org/m/sub/b\"\n", "sub/b/b.go": "package b\n"})
		got, err := Open(t.Context(), filepath.Join(dir, "sub"))
		if err != nil || len(got.Packages) != 2 || !slices.Equal(got.Packages[0].Imports, []string{"b"}) {
			t.Errorf("Open(sub) = %+v, %v, want that a imports b", got, err)
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

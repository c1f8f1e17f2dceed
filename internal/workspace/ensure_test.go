//go:build unix

package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestEnsure(t *testing.T) {
	tmp, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(tmp, "a", "b")
	for range 2 {
		if got, err := Ensure(dir); err != nil || got != dir {
			t.Fatalf("Ensure = %q, %v; want %q", got, err, dir)
		}
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if fi, err := os.Stat(d); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s is %v, want mode 0700", d, fi.Mode())
		}
	}

	link := filepath.Join(tmp, "link")
	for target, want := range map[string]string{
		dir: dir, "a/b": dir, "./a/../a/b": dir, filepath.Join(tmp, "new"): filepath.Join(tmp, "new"),
	} {
		os.Remove(link)
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		if got, err := Ensure(filepath.Join(link, "c")); err != nil || got != filepath.Join(want, "c") {
			t.Errorf("through a link to %s: Ensure = %q, %v; want %q", target, got, err, filepath.Join(want, "c"))
		}
	}
	os.Remove(link)
	os.Symlink("link", link)
	if _, err := Ensure(link); err == nil {
		t.Error("a link to itself is taken")
	}
	os.WriteFile(filepath.Join(tmp, "file"), nil, 0o600)
	if _, err := Ensure(filepath.Join(tmp, "file", "x")); err == nil {
		t.Error("a file is taken for a folder")
	}
}

func TestEnsureWritableByEverybody(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o777)
	if _, err := Ensure(dir); !errors.Is(err, ErrForeign) {
		t.Errorf("Ensure = %v, want ErrForeign", err)
	}
	if _, err := Ensure(filepath.Join(dir, "ours")); err != nil {
		t.Errorf("a folder of ours in one that everybody can write to: %v", err)
	}
}

// TestEnsureForeign needs a folder of another user: as root it gives one away, as
// anybody else it takes one of root's.
func TestEnsureForeign(t *testing.T) {
	dir := "/usr"
	if os.Geteuid() == 0 {
		dir = filepath.Join(t.TempDir(), "theirs")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Ensure(dir); !errors.Is(err, ErrForeign) {
		t.Errorf("Ensure = %v, want ErrForeign", err)
	}
	if os.Geteuid() != 0 {
		return
	}
	// Somebody was quicker than us in a folder that everybody can write to: what
	// they put there is not entered, and nothing is made in it.
	open := filepath.Join(t.TempDir(), "tmp")
	os.Mkdir(open, 0o700)
	os.Chmod(open, 0o777|fs.ModeSticky)
	victim := t.TempDir()
	planted := filepath.Join(open, "opencode-team")
	for what, plant := range map[string]func() error{
		"a folder": func() error { return os.Mkdir(planted, 0o777) },
		"a link":   func() error { return os.Symlink(victim, planted) },
	} {
		if err := plant(); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(planted, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if _, err := Ensure(filepath.Join(planted, "w-0123456789")); !errors.Is(err, ErrForeign) {
			t.Errorf("%s of another user: Ensure = %v, want ErrForeign", what, err)
		}
		if names, _ := os.ReadDir(planted); len(names) > 0 {
			t.Errorf("%s of another user: %v was made in it", what, names)
		}
		os.Remove(planted)
	}
	if names, _ := os.ReadDir(victim); len(names) > 0 {
		t.Errorf("%v was made where the link leads", names)
	}
}

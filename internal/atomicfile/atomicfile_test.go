package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func publish(t *testing.T, root *os.Root, name, content string, step Step) (bool, error) {
	t.Helper()
	f, err := Create(root, ".", step)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(time.Now()); err != nil {
		t.Fatal(err)
	}
	linked, err := f.Link(name)
	if err == nil && !f.Published() {
		t.Errorf("Published() = false after Link(%q)", name)
	}
	return linked, err
}

func TestLinkNeverOverwrites(t *testing.T) {
	noLinks := func(op, name string) error {
		if op == "link" {
			return syscall.ENOTSUP
		}
		return nil
	}
	for what, step := range map[string]Step{"by link": nil, "in place": noLinks} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if linked, err := publish(t, root, "a", "first", step); err != nil || linked != (step == nil) {
				t.Fatalf("Link = %v, %v; want %v, nil", linked, err, step == nil)
			}
			if err := os.Symlink("nowhere", filepath.Join(dir, "b")); err != nil {
				t.Skip(err)
			}
			for _, name := range []string{"a", "b"} {
				if _, err := publish(t, root, name, "second", step); !errors.Is(err, fs.ErrExist) {
					t.Errorf("Link over %s = %v, want fs.ErrExist", name, err)
				}
			}
			if got, _ := os.ReadFile(filepath.Join(dir, "a")); string(got) != "first" {
				t.Errorf("a has %q, want the first content", got)
			}
			if _, err := os.Lstat(filepath.Join(dir, "nowhere")); err == nil {
				t.Error("a link that led nowhere was followed")
			}
			if all, _ := os.ReadDir(dir); len(all) != 2 {
				t.Errorf("%v are left, want a and b", all)
			}
		})
	}
}

func TestWithdrawTakesOnlyItsOwn(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f, err := Create(root, ".", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Withdraw() // before it has a name
	if _, err := f.Link("a"); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(dir, "a"))
	os.WriteFile(filepath.Join(dir, "a"), []byte("somebody else's"), 0o600)
	f.Withdraw()
	if got, err := os.ReadFile(filepath.Join(dir, "a")); err != nil {
		t.Errorf("Withdraw removed another file: %v %q", err, got)
	}
}

func TestOrphan(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f, err := Create(root, ".", nil)
	if err != nil {
		t.Fatal(err)
	}
	temp := f.temp
	if !IsTemp(temp) {
		t.Errorf("IsTemp(%q) = false", temp)
	}
	if orphan, err := Orphan(root, temp, root.Remove); orphan || err != nil {
		t.Fatalf("Orphan of a file that is being written = %v, %v", orphan, err)
	}
	f.f.Close() // as if its process had been killed
	if orphan, err := Orphan(root, temp, root.Remove); !orphan || err != nil {
		t.Errorf("Orphan of a leftover = %v, %v; want true, nil", orphan, err)
	}
	if _, err := root.Lstat(temp); err == nil {
		t.Error("the leftover is still there")
	}
}

func TestOpenRegularRefusesTheRest(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)
	os.Mkdir(filepath.Join(dir, "folder"), 0o700)
	if err := os.Symlink("file", filepath.Join(dir, "link")); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"folder", "link"} {
		if _, _, err := OpenRegular(root, name, os.O_RDONLY); !errors.Is(err, ErrNotRegular) {
			t.Errorf("OpenRegular(%q) = %v, want ErrNotRegular", name, err)
		}
	}
	f, _, err := OpenRegular(root, "file", os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

//go:build unix

package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// childStranger tries to open a path as a user who owns nothing, and prints how that
// ends: PATH.
func childStranger(ctx context.Context, args []string) error {
	if os.Geteuid() == 0 {
		const nobody = 65534
		if err := errors.Join(syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
			return err
		}
	}
	s, err := sqlitestore.Open(ctx, args[0], nil)
	if err == nil {
		_, err = s.Append(ctx, "q", []team.Item{{ID: "x"}}, 0)
	}
	fmt.Printf("%v %q\n", errors.Is(err, team.ErrDenied), fmt.Sprint(err))
	return nil
}

// Who may not write the file, or its folder, is told so, and what is there stays as it
// is.
func TestNoPermission(t *testing.T) {
	for _, test := range []struct {
		name       string
		file, dir  os.FileMode
		made, runs bool // there is a store, and somebody has it open
	}{
		{"an empty folder that is read-only", 0, 0o555, false, false},
		{"a file that is read-only", 0o444, 0o777, true, false},
		{"a file that is closed", 0o000, 0o777, true, false},
		{"a folder that is read-only", 0o666, 0o555, true, false},
		{"a file and a folder that are read-only, and a store in use", 0o444, 0o555, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for d := dir; strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) { // for others to come by
				if err := os.Chmod(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(dir, "s.db")
			if test.made {
				s, err := sqlitestore.Open(t.Context(), path, nil)
				if err != nil {
					t.Fatal(err)
				}
				mustAppend(t, s, "q", "a")
				if test.runs {
					defer s.Close()
				} else if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(path, test.file); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(dir, test.dir); err != nil {
				t.Fatal(err)
			}
			p := start(t, "stranger", path)
			line, _ := p.line()
			if !strings.HasPrefix(line, "true ") || !strings.Contains(line, "change their mode or owner") {
				t.Errorf("Open = %s, want ErrDenied and what to do", line)
			}
			p.stop()
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if !test.made {
				if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
					t.Errorf("the folder holds %v, %v, want nothing", list, err)
				}
				return
			}
			if err := os.Chmod(path, 0o600); err != nil {
				t.Fatal(err)
			}
			s := openAt(t, path, nil)
			if got := states(t, s, "q"); got != "a:pending:0 " {
				t.Errorf("queue holds %q", got)
			}
		})
	}
}

// Package workspace finds the folder that belongs to a workspace: the one
// resolver for every part that keeps files.
package workspace

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// ErrBroken says that a folder, or a git file, is not what it looks like.
var ErrBroken = errors.New("unusable")

// Dir returns the folder called name of the workspace: inside the git
// directory that the workspace belongs to, or else, outside git, a folder of its own
// under name in the system's folder for temporary files. It creates nothing.
func Dir(workspace, name string) (string, error) {
	abs, err := filepath.Abs(workspace)
	if err != nil {
		return "", err
	}
	// Two spellings of one workspace have one folder.
	abs, err = filepath.EvalSymlinks(abs)
	if err != nil {
		return "", err
	}
	if fi, err := os.Stat(abs); err != nil {
		return "", err
	} else if !fi.IsDir() {
		return "", fmt.Errorf("%w: %s is not a folder", ErrBroken, abs)
	}
	git, err := gitDir(abs)
	if err != nil {
		return "", err
	}
	if git != "" {
		return filepath.Join(git, name), nil
	}
	if runtime.GOOS == "windows" {
		abs = strings.ToLower(abs)
	}
	sum := sha256.Sum256([]byte(abs))
	return filepath.Join(os.TempDir(), name, "w-"+hex.EncodeToString(sum[:])[:10]), nil
}

// gitDir returns the git directory of the work tree that dir is in, like
// git rev-parse --absolute-git-dir, and "" outside git. A work tree that was added
// (git worktree) and a submodule have a file ".git" that points to theirs.
func gitDir(dir string) (string, error) {
	for {
		path := filepath.Join(dir, ".git")
		switch fi, err := os.Stat(path); {
		case err == nil && fi.IsDir():
			if isGitDir(path) {
				return path, nil
			}
		case err == nil && fi.Mode().IsRegular():
			return followGitFile(path)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", err // unreadable is not the same as absent
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", nil
		}
		dir = up
	}
}

// isGitDir reports whether git takes dir for a git directory: it passes by a
// folder without HEAD.
func isGitDir(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, "HEAD"))
	return err == nil
}

func followGitFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return "", err
	}
	target, ok := bytes.CutPrefix(b, []byte("gitdir: "))
	dir := strings.TrimRight(string(target), "\r\n")
	if !ok || dir == "" || strings.ContainsAny(dir, "\x00\n") {
		return "", fmt.Errorf("%w: %s is no git file (want \"gitdir: <path>\"); repair or remove it", ErrBroken, path)
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(path), dir)
	}
	if !isGitDir(dir) {
		return "", fmt.Errorf("%w: %s points to %q, which is no git directory; "+
			"after moving a work tree run: git worktree repair", ErrBroken, path, dir)
	}
	return filepath.Clean(dir), nil
}

package team_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

func TestBoardPlaces(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	if runtime.GOOS == "windows" {
		t.Setenv("TMP", tmp)
	}
	dirs := func(workspace string) (board, state string) {
		t.Helper()
		board, err := team.BoardDir(workspace)
		require.NoError(t, err)
		state, err = team.StateDir(workspace)
		require.NoError(t, err)
		return board, state
	}
	repo := filepath.Join(t.TempDir(), "repo")
	gitDir := filepath.Join(repo, ".git")
	mkdir(t, filepath.Join(gitDir, "worktrees", "wt"), filepath.Join(gitDir, "modules", "sub"), filepath.Join(repo, "a", "b"),
		filepath.Join(repo, "sub"), filepath.Join(repo, "bare", ".git"))
	for _, dir := range []string{"", "worktrees/wt", "modules/sub"} {
		put(t, filepath.Join(gitDir, dir, "HEAD"), "ref: refs/heads/main\n")
	}
	t.Run("a repository, and a workspace below its root", func(t *testing.T) {
		for _, workspace := range []string{repo, filepath.Join(repo, "a", "b"), filepath.Join(repo, "bare")} {
			board, state := dirs(workspace)
			require.Equal(t, filepath.Join(gitDir, "opencode-team"), board)
			require.Equal(t, filepath.Join(gitDir, "opencode-team-state"), state)
		}
	})
	t.Run("a linked work tree", func(t *testing.T) {
		tree := filepath.Join(t.TempDir(), "tree")
		mkdir(t, tree)
		put(t, filepath.Join(tree, ".git"), "gitdir: "+filepath.Join(gitDir, "worktrees", "wt")+"\n")
		board, state := dirs(tree)
		require.Equal(t, filepath.Join(gitDir, "worktrees", "wt", "opencode-team"), board)
		require.Equal(t, filepath.Join(gitDir, "worktrees", "wt", "opencode-team-state"), state)
	})
	t.Run("a submodule", func(t *testing.T) {
		put(t, filepath.Join(repo, "sub", ".git"), "gitdir: ../.git/modules/sub\n")
		board, _ := dirs(filepath.Join(repo, "sub"))
		require.Equal(t, filepath.Join(gitDir, "modules", "sub", "opencode-team"), board)
	})
	t.Run("a folder outside git", func(t *testing.T) {
		plain := filepath.Join(t.TempDir(), "plain")
		mkdir(t, plain)
		board, state := dirs(plain)
		require.Regexp(t, regexp.QuoteMeta(filepath.Join(tmp, "opencode-team", "w-"))+`[0-9a-f]{10}$`, board)
		require.Equal(t, filepath.Join(tmp, "opencode-team-state", filepath.Base(board)), state)
		link := filepath.Join(t.TempDir(), "link")
		symlink(t, plain, link)
		again, _ := dirs(link)
		require.Equal(t, board, again, "two spellings of one workspace have one board")
		require.NoDirExists(t, filepath.Join(tmp, "opencode-team"), "nothing is made by looking")
		b := openBoard(t, board, nil)
		write(t, b, draft("x"))
		for _, dir := range []string{board, filepath.Dir(board)} {
			fi, err := os.Stat(dir)
			require.NoError(t, err)
			if runtime.GOOS != "windows" {
				require.Equal(t, fs.FileMode(0o700), fi.Mode().Perm(), dir)
			}
		}
	})
	t.Run("what is wrong is said", func(t *testing.T) {
		broken := filepath.Join(t.TempDir(), "broken")
		mkdir(t, broken)
		for content, want := range map[string]string{"": "is no git file", "x": "is no git file", "gitdir: \n": "is no git file",
			"gitdir: /nowhere/at/all\n": "git worktree repair", "gitdir: " + t.TempDir() + "\n": "is no git directory"} {
			put(t, filepath.Join(broken, ".git"), content)
			_, err := team.BoardDir(broken)
			require.ErrorContains(t, err, want)
			require.ErrorIs(t, err, team.ErrInvalid)
		}
		_, err := team.BoardDir(filepath.Join(broken, "missing"))
		require.ErrorIs(t, err, team.ErrNotFound)
		_, err = team.BoardDir(filepath.Join(broken, ".git"))
		require.ErrorIs(t, err, team.ErrInvalid)
		_, err = team.OpenBoard(t.Context(), broken+"\n", nil)
		require.ErrorIs(t, err, team.ErrInvalid)
		_, err = team.OpenBoard(t.Context(), "", nil)
		require.ErrorIs(t, err, team.ErrInvalid)
		_, err = team.OpenBoard(t.Context(), filepath.Join(broken, ".git", "x"), nil)
		require.ErrorIs(t, err, team.ErrInvalid)
		for _, opts := range []team.BoardOptions{{MaxChars: -2}, {MaxFiles: -2}, {MaxTasks: -2}, {TTL: -time.Hour}} {
			_, err = team.OpenBoard(t.Context(), filepath.Join(broken, "new"), &opts)
			require.ErrorIs(t, err, team.ErrInvalid, "%+v", opts)
		}
		require.NoDirExists(t, filepath.Join(broken, "new"))
	})
}

// Git itself says which directory a work tree or a submodule has.
func TestBoardDirIsGits(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git here; TestBoardPlaces writes the files that git would")
	}
	dir := t.TempDir()
	git := func(in string, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.invalid",
			"-c", "protocol.file.allow=always", "-c", "commit.gpgsign=false"}, args...)...)
		cmd.Dir = in
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
		cmd.Env = slices.DeleteFunc(cmd.Env, func(s string) bool { return strings.HasPrefix(s, "GIT_DIR=") || strings.HasPrefix(s, "GIT_WORK_TREE=") })
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "git %v: %s", args, out)
		return strings.TrimSpace(string(out))
	}
	main, lib, tree := filepath.Join(dir, "main"), filepath.Join(dir, "lib"), filepath.Join(dir, "tree")
	for _, repo := range []string{main, lib} {
		mkdir(t, repo)
		git(repo, "init", "-q")
		git(repo, "commit", "-q", "--allow-empty", "-m", "first")
	}
	git(main, "worktree", "add", "-q", tree)
	git(main, "submodule", "add", "-q", lib, "sub")
	below := filepath.Join(main, "a", "b")
	mkdir(t, below)
	for _, workspace := range []string{main, below, tree, filepath.Join(main, "sub")} {
		board, err := team.BoardDir(workspace)
		require.NoError(t, err)
		want, err := filepath.EvalSymlinks(git(workspace, "rev-parse", "--absolute-git-dir"))
		require.NoError(t, err)
		got, err := filepath.EvalSymlinks(filepath.Dir(board))
		require.NoError(t, err)
		require.Equal(t, want, got, workspace)
		write(t, openBoard(t, board, nil), draft("x"))
		require.NotContains(t, git(workspace, "status", "--porcelain"), "opencode-team", "nothing appears in the work tree")
	}
}

func TestNewSessionKey(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		key := team.NewSessionKey()
		require.Regexp(t, `^\d{8}-\d{6}-[a-z2-7]{6}$`, key)
		at, err := time.ParseInLocation("20060102-150405", key[:15], time.Local)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), at, time.Minute)
		require.False(t, seen[key], "two leads of one second differ")
		seen[key] = true
	}
}

func TestBoardCloses(t *testing.T) {
	b := newBoard(t, nil)
	e := write(t, b, draft("x"))
	require.NoError(t, b.Close())
	_, err := b.Write(as(t.Context(), "r"), draft("x"))
	require.ErrorIs(t, err, team.ErrClosed)
	_, err = b.Read(t.Context(), e.Path, team.Range{})
	require.ErrorIs(t, err, team.ErrClosed)
	_, err = b.Sweep(t.Context())
	require.ErrorIs(t, err, team.ErrClosed)
	_, err = b.Lease(t.Context(), "s", time.Hour)
	require.ErrorIs(t, err, team.ErrClosed)
	for _, err := range b.Entries(t.Context(), team.Filter{}) {
		require.ErrorIs(t, err, team.ErrClosed)
	}
}

func TestBoardAgesInABubble(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBoard(t, dir, nil)
		write(t, b, draft("x"))
		time.Sleep(team.DefaultBoardTTL)
		report, err := b.Sweep(t.Context())
		require.NoError(t, err)
		files, _ := report.Removed()
		require.Zero(t, files)
		time.Sleep(time.Second)
		report, err = b.Sweep(t.Context())
		require.NoError(t, err)
		files, _ = report.Removed()
		require.Equal(t, 1, files)
	})
}

func mkdir(tb testing.TB, dirs ...string) {
	tb.Helper()
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			tb.Fatal(err)
		}
	}
}

func put(tb testing.TB, path, content string) {
	tb.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
}

func symlink(tb testing.TB, target, link string) {
	tb.Helper()
	if err := os.Symlink(target, link); err != nil {
		tb.Skipf("no symbolic links here: %v", err)
	}
}

func TestBoardOfAnotherUserIsRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the folder for temporary files belongs to one user")
	}
	dir := "/usr" // root's
	if os.Geteuid() == 0 {
		dir = t.TempDir()
		require.NoError(t, os.Chown(dir, 65534, 65534))
	}
	_, err := team.OpenBoard(t.Context(), dir, nil)
	require.ErrorIs(t, err, team.ErrDenied)
	require.ErrorContains(t, err, "belongs to another user")
	require.NoDirExists(t, filepath.Join(dir, "s"))
}

func TestBoardThroughALink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	symlink(t, dir, link)
	b := openBoard(t, filepath.Join(link, "board"), nil)
	e := write(t, b, draft("x"))
	require.Equal(t, filepath.Join(link, "board"), b.Dir())
	for _, path := range []string{e.Path, filepath.Join(dir, "board", draft("").Session, "auth", filepath.Base(e.Path))} {
		x, err := b.Read(t.Context(), path, team.Range{})
		require.NoError(t, err, "both spellings of a path are good")
		require.Equal(t, "x", x.Text)
	}
	require.Len(t, entries(t, b, team.Filter{}), 1)
}

func TestBoardSiblingIsNotTheBoard(t *testing.T) {
	b := newBoard(t, nil)
	evil := openBoard(t, b.Dir()+"-evil", nil)
	e := write(t, evil, draft("evil"))
	for _, path := range []string{e.Path, filepath.Join("..", filepath.Base(evil.Dir()), draft("").Session, "auth", filepath.Base(e.Path))} {
		_, err := b.Read(t.Context(), path, team.Range{})
		require.ErrorIs(t, err, team.ErrDenied)
	}
	d := draft("x")
	d.Session = "../" + filepath.Base(evil.Dir())
	before := files(t, evil.Dir())
	write(t, b, d) // a free name like any other
	require.Equal(t, before, files(t, evil.Dir()))
}

func TestBoardReadOnlyFolder(t *testing.T) {
	if os.Geteuid() == 0 || runtime.GOOS == "windows" {
		t.Skip("file modes do not bind this user; TestBoardWriteFaults fails every operation instead")
	}
	b := newBoard(t, nil)
	require.NoError(t, os.Chmod(b.Dir(), 0o500))
	defer os.Chmod(b.Dir(), 0o700)
	_, err := b.Write(as(t.Context(), "r"), draft("x"))
	require.ErrorIs(t, err, fs.ErrPermission)
	require.Len(t, files(t, b.Dir()), 1)
}

// A named pipe in an entry's place would hang a reader for ever.
func TestBoardSpecialFilesAreNotOpened(t *testing.T) {
	b := newBoard(t, nil)
	e := write(t, b, draft("x"))
	pipe := filepath.Join(filepath.Dir(e.Path), "02-tester-pipe.md")
	if err := mkfifo(pipe); err != nil {
		t.Skip(err)
	}
	_, err := b.Read(t.Context(), pipe, team.Range{})
	require.ErrorIs(t, err, team.ErrDenied)
	seen := 0
	for _, err := range b.Entries(t.Context(), team.Filter{}) {
		if seen++; err != nil {
			require.ErrorIs(t, err, team.ErrDenied, "it is named, and the listing goes on")
		}
	}
	require.Equal(t, 2, seen)
	require.Equal(t, team.SweepForeign, sweep(t, b)[filepath.ToSlash(mustRel(t, b.Dir(), pipe))].Reason)
}

func mustRel(tb testing.TB, base, path string) string {
	tb.Helper()
	rel, err := filepath.Rel(base, path)
	if err != nil {
		tb.Fatal(err)
	}
	return rel
}

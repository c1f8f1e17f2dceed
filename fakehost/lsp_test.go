package fakehost_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

// tree makes a workspace with empty files.
func tree(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		at := filepath.Join(dir, filepath.FromSlash(f))
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
		require.NoError(t, os.WriteFile(at, nil, 0o600))
	}
	return dir
}

func TestLSP(t *testing.T) {
	servers := []fakehost.LanguageServer{
		{ID: "gopls", Extensions: []string{".go"}, Root: []string{"go.mod", "go.work"}},
		{ID: "deno", Extensions: []string{".ts"}, Root: []string{"deno.json"}},
		{ID: "typescript", Extensions: []string{".ts", ".js"}, Root: []string{"package.json"}, Exclude: []string{"deno.json"}},
		{ID: "none", Extensions: []string{".xyz"}, Binary: "no-such-language-server"},
	}
	dir := tree(t, "go.mod", "a/go.mod", "a/b/c.go", "web/package.json", "web/x.ts", "run/deno.json", "run/deep/x.ts", "run/package.json")
	for _, c := range []struct {
		name, file string
		want       []string // id and root
	}{
		{"the nearest marker is the root", "a/b/c.go", []string{"gopls a"}},
		{"the file need not be there", "new/main.go", []string{"gopls ."}},
		{"a path may be absolute", filepath.Join(dir, "main.go"), []string{"gopls ."}},
		{"without a marker the root is the workspace", "web/x.ts", []string{"deno .", "typescript web"}},
		{"an exclude marker takes the server out", "run/deep/x.ts", []string{"deno run"}},
		{"a server is for its extensions only", "README.md", nil},
		{"a file outside the workspace has none", "../main.go", nil},
		{"a missing binary is no server", "a.xyz", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := open(t, &fakehost.Options{Directory: dir, LanguageServers: servers})
			list, err := h.LSP.Open(t.Context(), c.file)
			require.NoError(t, err)
			var got []string
			for _, s := range list {
				require.Equal(t, "connected", s.Status)
				got = append(got, s.ID+" "+s.Root)
			}
			require.Equal(t, c.want, got)
		})
	}
	bubble(t, "status has what was started and what could not be, once", func(t *testing.T) {
		h := open(t, &fakehost.Options{Profile: fakehost.V1_18, Directory: dir, LanguageServers: servers})
		rec := record(t, h)
		for _, f := range []string{"a.xyz", "a.xyz", "a/b/c.go", "a/x.go"} {
			_, err := h.LSP.Open(t.Context(), f)
			require.NoError(t, err)
		}
		list, err := h.LSP.Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, []fakehost.LanguageClient{{ID: "gopls", Name: "gopls", Root: "a", Status: "connected"},
			{ID: "none", Name: "none", Root: ".", Status: "error"}}, list)
		require.Equal(t, []string{"lsp.updated"}, only(rec.types(""), "lsp.updated"), "for the one that runs")
	})
	t.Run("the fault takes every binary away, and a server is not tried again", func(t *testing.T) {
		h := open(t, &fakehost.Options{Directory: dir, LanguageServers: servers, Faults: []fakehost.Fault{fakehost.FaultServerMissing}})
		for range 2 {
			list, err := h.LSP.Open(t.Context(), "main.go")
			require.NoError(t, err)
			require.Empty(t, list)
			h.Clear()
		}
		list, err := h.LSP.Open(t.Context(), "a/main.go")
		require.NoError(t, err)
		require.Len(t, list, 1, "another root is another try")
	})
	t.Run("a name that is no path is refused, and a host without files has no domain", func(t *testing.T) {
		h := open(t, &fakehost.Options{Directory: dir})
		for _, bad := range []string{"", "a\x00b"} {
			_, err := h.LSP.Open(t.Context(), bad)
			require.ErrorIs(t, err, team.ErrInvalid)
		}
		require.Nil(t, open(t, nil).LSP)
	})
}

package team_test

import (
	"encoding/json"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/teamchan/team"
)

// An envelopeCase is one file of testdata/envelopes. Its sections are text, or
// text.json for bytes that an editor would change; input.json for what the caller
// says; metadata.json; and want.json.
type envelopeCase struct {
	in   team.EnvelopeInput
	want struct {
		Verdict  team.EnvelopeVerdict `json:"verdict"`
		Name     string               `json:"name"` // under which a near miss, … is counted
		Envelope *team.Envelope       `json:"envelope"`
	}
}

// The folders of testdata/envelopes: the generations, and what belongs to none.
var envelopeFolders = []string{"v1-a", "v1-b", "v1-c", "v2-pre", "v2", "next", "background", "other"}

func readEnvelopeCase(t testing.TB, path string) envelopeCase {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	require.NoError(t, err)
	require.NotEmpty(t, archive.Comment, "a case says what it is about")
	var c envelopeCase
	strictly := func(data []byte, to any) {
		dec := json.NewDecoder(strings.NewReader(string(data)))
		dec.DisallowUnknownFields()
		require.NoError(t, dec.Decode(to))
	}
	for _, f := range archive.Files {
		switch f.Name {
		case "text":
			c.in.Text = strings.TrimSuffix(string(f.Data), "\n") // the archive's own
		case "text.json":
			strictly(f.Data, &c.in.Text)
		case "metadata.json":
			c.in.Metadata = f.Data
		case "input.json":
			var in struct {
				Tool   string            `json:"tool"`
				Failed bool              `json:"failed"`
				Known  *[]team.SessionID `json:"known"`
			}
			strictly(f.Data, &in)
			c.in.Tool, c.in.Failed = in.Tool, in.Failed
			if in.Known != nil {
				c.in.Known = func(id team.SessionID) bool { return slices.Contains(*in.Known, id) }
			}
		case "want.json":
			strictly(f.Data, &c.want)
		default:
			t.Fatalf("section %q is read by nobody", f.Name)
		}
	}
	require.NotEmpty(t, c.want.Verdict)
	return c
}

// envelopeCorpus returns the files of the corpus, and fails on one that is not read.
func envelopeCorpus(t testing.TB) []string {
	t.Helper()
	root := filepath.Join("testdata", "envelopes")
	var paths []string
	folders := map[string]int{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		require.NoError(t, err)
		folder, name := filepath.Split(rel)
		require.Equal(t, ".txtar", filepath.Ext(name), "%s is read by nobody", path)
		folders[filepath.Clean(folder)]++
		paths = append(paths, path)
		return nil
	}))
	require.Len(t, folders, len(envelopeFolders))
	for _, f := range envelopeFolders {
		require.NotZero(t, folders[f], "no case for %s", f)
	}
	return paths
}

func TestEnvelopeCorpus(t *testing.T) {
	for _, path := range envelopeCorpus(t) {
		t.Run(strings.TrimSuffix(filepath.ToSlash(path), ".txtar"), func(t *testing.T) {
			c := readEnvelopeCase(t, path)
			var m team.EnvelopeMatcher
			got, verdict := m.Match(c.in)
			require.Equal(t, c.want.Verdict, verdict, "near misses %v, malformed %v", m.Stats().NearMisses, m.Stats().Malformed)
			if c.want.Envelope == nil {
				require.NotEqual(t, team.EnvelopeMatched, verdict, "a matched case says what is in it")
				require.Zero(t, got)
			} else {
				require.Equal(t, *c.want.Envelope, got)
				require.True(t, isPartOf(c.in.Text, got.Body), "the body is a copy")
			}
			s := m.Stats()
			require.Equal(t, map[team.EnvelopeVerdict]uint64{verdict: 1}, s.Verdicts)
			if c.want.Name != "" {
				names := map[team.EnvelopeVerdict]map[string]uint64{
					team.EnvelopeNearMiss: s.NearMisses, team.EnvelopeMalformed: s.Malformed, team.EnvelopeOther: s.Others}
				require.Equal(t, map[string]uint64{c.want.Name: 1}, names[verdict])
			}
		})
	}
}

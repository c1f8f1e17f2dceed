package fakehost_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/fakehost"
)

func TestStorage(t *testing.T) {
	set := func(t *testing.T, d *fakehost.StorageDomain, keys ...string) {
		for _, k := range keys {
			require.NoError(t, d.Set(t.Context(), k, []byte(`"v`+k+`"`)))
		}
	}
	scan := func(t *testing.T, d *fakehost.StorageDomain, in fakehost.Scan) ([]string, string) {
		page, err := d.Scan(t.Context(), in)
		require.NoError(t, err)
		out := []string{}
		for _, e := range page.Entries {
			require.NotEmpty(t, e.Value, "values always come with the keys")
			out = append(out, e.Key)
		}
		return out, page.Next
	}
	limit := func(n float64) *float64 { return &n }

	t.Run("set overwrites, remove of nothing is no error", func(t *testing.T) {
		h := open(t, nil)
		_, err := h.KV.Get(t.Context(), "k")
		require.ErrorIs(t, err, team.ErrNotFound)
		set(t, h.KV, "k", "k")
		require.NoError(t, h.KV.Set(t.Context(), "k", []byte("null")))
		v, err := h.KV.Get(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, "null", string(v))
		require.NoError(t, h.KV.Remove(t.Context(), "k"))
		require.NoError(t, h.KV.Remove(t.Context(), "k"))
		require.ErrorIs(t, h.KV.Set(t.Context(), "k", []byte("{")), team.ErrInvalid)
		require.ErrorIs(t, h.KV.Set(t.Context(), "\xff", []byte("1")), team.ErrInvalid)
	})

	t.Run("scan is in byte order, after is exclusive, next only if there is more", func(t *testing.T) {
		h := open(t, nil)
		set(t, h.KV, "b", "a", "aé", "az", "A", "a\U0010FFFF", "a\U0010FFFFx")
		keys, next := scan(t, h.KV, fakehost.Scan{})
		require.Equal(t, []string{"A", "a", "az", "aé", "a\U0010FFFF", "a\U0010FFFFx", "b"}, keys)
		require.Empty(t, next)
		keys, next = scan(t, h.KV, fakehost.Scan{Prefix: "a", Limit: limit(2.9)})
		require.Equal(t, []string{"a", "az"}, keys)
		require.Equal(t, "az", next)
		keys, next = scan(t, h.KV, fakehost.Scan{Prefix: "a", After: next})
		require.Equal(t, []string{"aé", "a\U0010FFFF", "a\U0010FFFFx"}, keys)
		require.Empty(t, next)
		keys, _ = scan(t, h.KV, fakehost.Scan{Prefix: "a\U0010FFFF"})
		require.Equal(t, []string{"a\U0010FFFF", "a\U0010FFFFx"}, keys)
	})

	t.Run("limit is 100, at least 1, at most 1000", func(t *testing.T) {
		h := open(t, nil)
		for i := range 1001 {
			set(t, h.KV, fmt.Sprintf("%04d", i))
		}
		for _, c := range []struct {
			limit *float64
			want  int
		}{{nil, 100}, {limit(math.NaN()), 100}, {limit(0), 1}, {limit(-5), 1}, {limit(math.Inf(1)), 1000}, {limit(1e9), 1000}} {
			keys, next := scan(t, h.KV, fakehost.Scan{Limit: c.limit})
			require.Len(t, keys, c.want)
			require.Equal(t, keys[len(keys)-1], next)
		}
		n := 0
		for _, err := range h.Storage().Scan(t.Context(), "0", "") {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, 1000, n, "the port goes on to the end")
	})

	t.Run("two windows share it, two plugins do not, and the key on disk is the host's", func(t *testing.T) {
		path := t.TempDir() + "/host.db"
		a, b := openAt(t, path, &fakehost.Options{Plugin: "ab"}), openAt(t, path, &fakehost.Options{Plugin: "ab", Directory: t.TempDir()})
		set(t, a.KV, "k")
		v, err := b.KV.Get(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, `"vk"`, string(v))
		_, err = b.KV.For("abc").Get(t.Context(), "k")
		require.ErrorIs(t, err, team.ErrNotFound)
		keys, _ := scan(t, b.KV.For("a"), fakehost.Scan{})
		require.Empty(t, keys)

		db, err := sqlite3.Open(path)
		require.NoError(t, err)
		defer db.Close()
		s, _, err := db.Prepare(`SELECT key FROM kv`)
		require.NoError(t, err)
		defer s.Close()
		require.True(t, s.Step())
		require.Equal(t, "plugin:00610062:k", s.ColumnText(0))
	})
}

package hosttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/teamchan/team"
)

// A StorageHost is a [team.Storage] that is empty, and what its laws need.
type StorageHost struct {
	team.Storage

	// Another opens the same storage again, as another window of the host would.
	Another func(context.Context) (team.Storage, error)

	// Lacks has the reason for each hook that is nil, under its name.
	Lacks map[string]string
}

func (h StorageHost) lacking(hook string) (bool, string) {
	return hook == "Another" && h.Another != nil, h.Lacks[hook]
}

// Storage checks the laws of [team.Storage].
func Storage(t *testing.T, open func(testing.TB) StorageHost) { run(t, storageLaws, open) }

var storageLaws = []law[StorageHost]{
	{
		name: "get/none", says: "Get of a key that is not there is ErrNotFound, also after Remove",
		check: func(ctx context.Context, h StorageHost) error {
			_, err1 := h.Get(ctx, "k")
			if err := errors.Join(set(ctx, h, "k", `1`), h.Remove(ctx, "k")); err != nil {
				return err
			}
			_, err2 := h.Get(ctx, "k")
			return errors.Join(is("Get", err1, team.ErrNotFound), is("Get after Remove", err2, team.ErrNotFound))
		},
	},
	{
		name: "set/any value", says: "Get returns the JSON value that was set, of any kind, null too",
		check: func(ctx context.Context, h StorageHost) error {
			for _, v := range []string{`null`, `true`, `0`, `-1.5`, `"a \"b\" é \u2028 <&>"`, `[]`, `{}`, `{"a":[1,{"b":null}],"":""}`, `"` + strings.Repeat("long ", 20_000) + `"`} {
				if err := set(ctx, h, "k", v); err != nil {
					return err
				}
				if err := has(ctx, h.Storage, "k", v); err != nil {
					return err
				}
			}
			return nil
		},
	},
	{
		name: "set/overwrites", says: "Set overwrites what is there, and nothing else",
		check: func(ctx context.Context, h StorageHost) error {
			return errors.Join(set(ctx, h, "a", `1`), set(ctx, h, "b", `2`), set(ctx, h, "a", `3`), has(ctx, h.Storage, "a", `3`), has(ctx, h.Storage, "b", `2`))
		},
	},
	{
		name: "set/no JSON", says: "Set of what is no JSON is an error and changes nothing",
		check: func(ctx context.Context, h StorageHost) error {
			if err := set(ctx, h, "k", `1`); err != nil {
				return err
			}
			for _, bad := range []string{``, `{`, `1 2`, `nope`} {
				if err := h.Set(ctx, "k", json.RawMessage(bad)); err == nil {
					return wrong("Set(%q) = nil, want an error", bad)
				}
			}
			return has(ctx, h.Storage, "k", `1`)
		},
	},
	{
		name: "remove/none", says: "Remove of a key that is not there is no error",
		check: func(ctx context.Context, h StorageHost) error { return h.Remove(ctx, "k") },
	},
	{
		name: "scan/order", says: "Scan yields the keys with the prefix, in ascending order of their bytes, each once",
		check: func(ctx context.Context, h StorageHost) error {
			keys := []string{"p/b", "p/a", "p/é", "p/Z", "p/中", "p/\U0010FFFF", "p/", "q", "p", "o", "P/a", "p%", "p_x", "p/a/b"}
			for _, k := range keys {
				if err := set(ctx, h, k, `0`); err != nil {
					return err
				}
			}
			want := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return !strings.HasPrefix(k, "p/") })
			slices.Sort(want)
			if err := scans(ctx, h, "p/", "", want...); err != nil {
				return err
			}
			slices.Sort(keys)
			return errors.Join(scans(ctx, h, "", "", keys...), scans(ctx, h, "p%", "", "p%"), scans(ctx, h, "p_", "", "p_x"), scans(ctx, h, "none", ""))
		},
	},
	{
		name: "scan/after", says: "Scan yields what comes behind after, which need not be there",
		check: func(ctx context.Context, h StorageHost) error {
			for _, k := range []string{"a", "b", "c", "d"} {
				if err := set(ctx, h, k, `0`); err != nil {
					return err
				}
			}
			return errors.Join(scans(ctx, h, "", "b", "c", "d"), scans(ctx, h, "", "bb", "c", "d"), scans(ctx, h, "", "d"), scans(ctx, h, "c", "a", "c"))
		},
	},
	{
		name: "scan/many", says: "Scan yields all keys, however many pages the host makes of them, and the reader may stop",
		check: func(ctx context.Context, h StorageHost) error {
			var want []string
			for i := range 1203 {
				want = append(want, fmt.Sprintf("k%05d", i))
				if err := set(ctx, h, want[i], `0`); err != nil {
					return err
				}
			}
			if err := scans(ctx, h, "k", "", want...); err != nil {
				return err
			}
			n := 0
			for range h.Scan(ctx, "k", "") {
				if n++; n == 150 {
					break
				}
			}
			return nil
		},
	},
	{
		name: "storage/shared", says: "What one window sets, every other gets",
		needs: []string{"Another"},
		check: func(ctx context.Context, h StorageHost) error {
			other, err := h.Another(ctx)
			if err != nil {
				return err
			}
			return errors.Join(set(ctx, h, "k", `"one"`), has(ctx, other, "k", `"one"`), other.Set(ctx, "k", json.RawMessage(`"two"`)), has(ctx, h.Storage, "k", `"two"`))
		},
	},
}

func set(ctx context.Context, h StorageHost, key, value string) error {
	if err := h.Set(ctx, key, json.RawMessage(value)); err != nil {
		return wrong("Set(%.60q, %.60s) = %w", key, value, err)
	}
	return nil
}

func has(ctx context.Context, s team.Storage, key, want string) error {
	got, err := s.Get(ctx, key)
	if err != nil {
		return wrong("Get(%.60q) = %w", key, err)
	}
	var g, w any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		return err
	}
	if err := json.Unmarshal(got, &g); err != nil || !reflect.DeepEqual(g, w) {
		return wrong("Get(%.60q) = %.80s, want %.80s", key, got, want)
	}
	return nil
}

func scans(ctx context.Context, h StorageHost, prefix, after string, want ...string) error {
	var got []string
	for key, err := range h.Scan(ctx, prefix, after) {
		if err != nil {
			return wrong("Scan(%q, %q) = %w", prefix, after, err)
		}
		got = append(got, key)
	}
	if !slices.Equal(got, want) {
		return wrong("Scan(%q, %q) = %d keys %.200q, want %d %.200q", prefix, after, len(got), got, len(want), want)
	}
	return nil
}

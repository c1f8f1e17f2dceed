package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/teamchan/team"
)

var recordsLaws = []law{
	{
		name: "put/create",
		says: "Put with a zero prev creates a record, and is ErrConflict and changes nothing if there is one",
		check: try(func(p *probe) {
			v := p.put("k", "1", "")
			p.record("k", "1", v)
			_, err := p.Put(p.ctx, "k", []byte("2"), "")
			p.is("Put with zero prev on a record", err, team.ErrConflict)
			p.record("k", "1", v)
		}),
	},
	{
		name: "put/current version",
		says: "Put with the record's version replaces its value and returns the new version",
		check: try(func(p *probe) {
			v1 := p.put("k", "1", "")
			v2 := p.put("k", "2", v1)
			p.record("k", "2", v2)
			v3 := p.put("k", "2", v2)
			p.record("k", "2", v3)
		}),
	},
	{
		name: "put/stale version",
		says: "Put is ErrConflict and changes nothing if prev is not the record's version",
		check: try(func(p *probe) {
			v1 := p.put("k", "1", "")
			v2 := p.put("k", "2", v1)
			other := p.put("other", "1", "")
			for what, prev := range map[string]team.Version{
				"an old version": v1, "no version": "", "another key's version": other, "a made-up version": v2 + "x",
			} {
				_, err := p.Put(p.ctx, "k", []byte("3"), prev)
				p.is("Put with "+what, err, team.ErrConflict)
				p.record("k", "2", v2)
			}
			_, err := p.Put(p.ctx, "none", []byte("1"), v2)
			p.is("Put with a version where there is no record", err, team.ErrConflict)
			p.none("none")
		}),
	},
	{
		name: "put/any version",
		says: "AnyVersion matches every state of a record, also that there is none",
		check: try(func(p *probe) {
			v1 := p.put("k", "1", team.AnyVersion)
			v2 := p.put("k", "2", team.AnyVersion)
			p.record("k", "2", v2)
			_, err := p.Put(p.ctx, "k", nil, v1)
			p.is("Put with the version before", err, team.ErrConflict)
			p.ok("Delete with AnyVersion", p.Delete(p.ctx, "k", team.AnyVersion))
			p.none("k")
		}),
	},
	{
		name: "put/new version",
		says: "Put returns a version that this key never had before, not the zero one and not AnyVersion, also after a deletion",
		check: try(func(p *probe) {
			seen := map[team.Version]bool{"": true, team.AnyVersion: true}
			var v team.Version
			for i := range 12 {
				v = p.put("k", "same", v)
				if seen[v] {
					p.fail("version %q was there before, want a new one", v)
				}
				seen[v] = true
				if i%3 == 2 {
					p.ok("Delete", p.Delete(p.ctx, "k", v))
					_, err := p.Put(p.ctx, "k", nil, v)
					p.is("Put with the version of the deleted record", err, team.ErrConflict)
					v = ""
				}
			}
		}),
	},
	{
		name: "put/other keys",
		says: "Different keys never conflict: a version holds while other keys are written",
		check: try(func(p *probe) {
			v := p.put("k", "1", "")
			for i := range 5 {
				w := p.put(fmt.Sprint("other", i), "1", "")
				p.put(fmt.Sprint("other", i), "2", w)
			}
			p.ok("Delete", p.Delete(p.ctx, "other0", team.AnyVersion))
			p.record("k", "1", v)
			p.put("k", "2", v)
		}),
	},
	{
		name: "put/values",
		says: "A value is any bytes, empty too",
		check: try(func(p *probe) {
			all := make([]byte, 70_000)
			for i := range all {
				all[i] = byte(i)
			}
			for i, value := range [][]byte{nil, {}, {0}, []byte("\xff\xfe"), []byte("é\n\"'"), all} {
				key := fmt.Sprint("k", i)
				v := p.put(key, string(value), "")
				p.record(key, string(value), v)
			}
			v := p.put("k5", "", team.AnyVersion)
			p.record("k5", "", v)
		}),
	},
	{
		name: "put/keys",
		says: "A key is UTF-8 of 1 to 1024 bytes, and keys are the same only if their bytes are",
		check: try(func(p *probe) {
			list := append(slices.Clone(oddKeys), strings.Repeat("k", 1024), strings.Repeat("é", 512), strings.Repeat("k", 1023))
			versions := make(map[string]team.Version)
			for _, key := range list {
				versions[key] = p.put(key, "value of "+key, "")
			}
			for _, key := range list {
				p.record(key, "value of "+key, versions[key])
			}
			slices.Sort(list)
			p.keys("", "", list...)
		}),
	},
	{
		name: "put/bad keys",
		says: "A key that is empty, longer than 1024 bytes or not UTF-8 is a *InvalidError, and nothing changes",
		check: try(func(p *probe) {
			for _, key := range []string{"", strings.Repeat("k", 1025), strings.Repeat("é", 513), "k\xff", "\xc3"} {
				_, err := p.Put(p.ctx, key, []byte("1"), "")
				p.invalid(fmt.Sprintf("Put of %.9q", key), err)
				_, err = p.Put(p.ctx, key, []byte("1"), team.AnyVersion)
				p.invalid(fmt.Sprintf("Put of %.9q", key), err)
				_, err = p.Get(p.ctx, key)
				p.invalid(fmt.Sprintf("Get of %.9q", key), err)
				p.invalid(fmt.Sprintf("Delete of %.9q", key), p.Delete(p.ctx, key, team.AnyVersion))
			}
			p.keys("", "")
		}),
	},
	{
		name: "put/arguments",
		says: "Put keeps no reference to the value, and what Get returns belongs to the caller",
		check: try(func(p *probe) {
			value := []byte("value")
			v, err := p.Put(p.ctx, "k", value, "")
			p.ok("Put", err)
			copy(value, "XXXXX")
			p.record("k", "value", v)
			r, err := p.Get(p.ctx, "k")
			p.ok("Get", err)
			copy(r.Value, "XXXXX")
			p.record("k", "value", v)
		}),
	},
	{
		name: "put/one of many",
		says: "Of many that Put with the same prev at once, exactly one does, and the others get ErrConflict",
		check: try(func(p *probe) {
			const n = 8
			var v team.Version
			for range 4 {
				versions, errs := make([]team.Version, n), make([]error, n)
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() { versions[i], errs[i] = p.Put(p.ctx, "k", []byte{byte(i)}, v) })
				}
				wg.Wait()
				won := -1
				for i, err := range errs {
					if err != nil {
						p.is("Put that was not first", err, team.ErrConflict)
						continue
					}
					if won >= 0 {
						p.fail("two of %d Puts with one prev succeeded, want one", n)
					}
					won = i
				}
				if won < 0 {
					p.fail("none of %d Puts with the right prev succeeded, want one", n)
				}
				v = versions[won]
				p.record("k", string([]byte{byte(won)}), v)
			}
		}),
	},
	{
		name: "put/many keys at once",
		says: "Different keys never conflict, also when they are written at once",
		check: try(func(p *probe) {
			errs := make([]error, 8)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() {
					var v team.Version
					for range 4 {
						if v, errs[i] = p.Put(p.ctx, fmt.Sprint("k", i), nil, v); errs[i] != nil {
							return
						}
					}
				})
			}
			wg.Wait()
			for _, err := range errs {
				p.ok("Put", err)
			}
		}),
	},
	{
		name: "get/none",
		says: "Get of a key without a record is ErrNotFound",
		check: try(func(p *probe) {
			p.put("key", "1", "")
			for _, key := range []string{"k", "ke", "keys", "KEY", "key "} {
				p.none(key)
			}
		}),
	},
	{
		name: "delete/version",
		says: "Delete removes a record if its version is prev; otherwise it is ErrConflict and changes nothing",
		check: try(func(p *probe) {
			v1 := p.put("k", "1", "")
			v2 := p.put("k", "2", v1)
			for _, prev := range []team.Version{v1, "", v2 + "x"} {
				p.is("Delete with another version", p.Delete(p.ctx, "k", prev), team.ErrConflict)
				p.record("k", "2", v2)
			}
			p.put("l", "1", "")
			p.ok("Delete", p.Delete(p.ctx, "k", v2))
			p.none("k")
			p.keys("", "", "l")
			p.put("k", "3", "") // as if it had never been
		}),
	},
	{
		name: "delete/none",
		says: "Delete where there is no record is ErrNotFound, whatever prev is",
		check: try(func(p *probe) {
			v := p.put("k", "1", "")
			p.ok("Delete", p.Delete(p.ctx, "k", v))
			for _, prev := range []team.Version{v, "", team.AnyVersion} {
				p.is("Delete of a deleted record", p.Delete(p.ctx, "k", prev), team.ErrNotFound)
				p.is("Delete of a record that never was", p.Delete(p.ctx, "l", prev), team.ErrNotFound)
			}
		}),
	},
	{
		name: "keys/order",
		says: "Keys yields every key once, in ascending order of their bytes, however many there are",
		check: try(func(p *probe) {
			var want []string
			for i := range 200 {
				want = append(want, fmt.Sprint("k", i*7919%200)) // none comes in order
			}
			want = append(want, oddKeys...)
			for _, key := range want {
				p.put(key, "", "")
			}
			slices.Sort(want)
			p.keys("", "", want...)
		}),
	},
	{
		name: "keys/prefix",
		says: "Keys yields only the keys that start with prefix, byte for byte",
		check: try(func(p *probe) {
			for _, key := range []string{"a", "a%b", "a%", "a*b", "a_b", "aXb", "A%b", "a\x00", "é", "éa", "e\u0301a", "b"} {
				p.put(key, "", "")
			}
			p.keys("a%", "", "a%", "a%b")
			p.keys("a_", "", "a_b")
			p.keys("a*", "", "a*b")
			p.keys("A", "", "A%b")
			p.keys("a\x00", "", "a\x00")
			p.keys("é", "", "é", "éa")
			p.keys("c", "")
			p.keys("a%bc", "")
		}),
	},
	{
		name: "keys/after",
		says: "Keys yields only the keys behind after, which need not be a key, or have the prefix",
		check: try(func(p *probe) {
			for _, key := range []string{"a", "b/1", "b/2", "b/20", "b/3", "c"} {
				p.put(key, "", "")
			}
			p.keys("", "b/2", "b/20", "b/3", "c")
			p.keys("b/", "b/2", "b/20", "b/3")
			p.keys("b/", "b/2\x00", "b/20", "b/3")
			p.keys("b/", "a", "b/1", "b/2", "b/20", "b/3")
			p.keys("b/", "b/", "b/1", "b/2", "b/20", "b/3")
			p.keys("b/", "b/3")
			p.keys("b/", "c")
			p.keys("", "c")
			p.put("b/", "", "")
			p.keys("b/", "b/", "b/1", "b/2", "b/20", "b/3")
			p.keys("b/", "", "b/", "b/1", "b/2", "b/20", "b/3")
		}),
	},
	{
		name: "keys/break",
		says: "The loop over Keys may end early, and a second loop over the same iterator begins anew",
		check: try(func(p *probe) {
			p.put("a", "", "")
			p.put("b", "", "")
			seq := p.Keys(p.ctx, "", "")
			first := ""
			for range 2 {
				for key, err := range seq {
					p.ok("Keys", err)
					first += key
					break
				}
			}
			p.equal("first keys of two loops", first, "aa")
			p.put("c", "", "")
		}),
	},
	{
		name: "keys/calls in the loop",
		says: "The loop over Keys may call the store; a key that is there all the while is yielded exactly once",
		check: try(func(p *probe) {
			const n = 150
			for i := range n {
				p.put(fmt.Sprintf("k%03d", i), "", "")
			}
			seen := make(map[string]int)
			for key, err := range p.Keys(p.ctx, "k", "") {
				p.ok("Keys", err)
				if seen[key]++; len(seen)%10 == 0 {
					p.ok("Delete", p.Delete(p.ctx, key, team.AnyVersion))
					p.put("a"+key, "", "") // before the loop's place
				}
				if len(seen) > 2*n {
					p.fail("Keys does not come to an end")
				}
			}
			for i := range n {
				key := fmt.Sprintf("k%03d", i)
				p.equal("times that "+key+" was yielded", seen[key], 1)
			}
		}),
	},
}

// oddKeys are keys that some store may mistake for a pattern, a path, a number or
// one another. Their order in bytes is not that of UTF-16 or of any language.
var oddKeys = []string{
	"a", "A", "Z", "a ", " a", "a\x00", "a\x00b", "\x00", "a.b", "a.*", "a.>", "*", ">", "$", "a/b", "a//b",
	"../a", ".", "..", "a%", "a_", "a'b", "a\"b", "a\nb", "a\\b", "10", "9", "010", "null", "é", "e\u0301", "E\u0301", "ß", "ss",
	"\uffff", "\U00010000", "\U0001f600", "\ufeff", "\u200b",
}

// put puts what must take effect.
func (p *probe) put(key, value string, prev team.Version) team.Version {
	v, err := p.Put(p.ctx, key, []byte(value), prev)
	p.ok(fmt.Sprintf("Put(%.20q, prev %q)", key, prev), err)
	return v
}

// record ends the law if the record under key is not this one.
func (p *probe) record(key, value string, v team.Version) {
	r, err := p.Get(p.ctx, key)
	p.ok(fmt.Sprintf("Get(%.20q)", key), err)
	p.equal("Key", r.Key, key)
	p.equal("Version", r.Version, v)
	if !bytes.Equal(r.Value, []byte(value)) {
		p.fail("Value of %.20q = %.40q, want %.40q", key, r.Value, value)
	}
}

// none ends the law if there is a record under key.
func (p *probe) none(key string) {
	_, err := p.Get(p.ctx, key)
	p.is(fmt.Sprintf("Get(%.20q)", key), err, team.ErrNotFound)
}

// keys ends the law if Keys does not yield exactly want.
func (p *probe) keys(prefix, after string, want ...string) {
	var got []string
	for key, err := range p.Keys(p.ctx, prefix, after) {
		p.ok("Keys", err)
		got = append(got, key)
	}
	if !slices.Equal(got, want) {
		p.fail("Keys(%q, %q) = %.20q, want %.20q", prefix, after, got, want)
	}
}

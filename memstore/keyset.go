package memstore

import (
	"slices"
	"strings"
)

// A keyset is the sorted set of keys with the sizes of their values, cut into
// runs so that adding one moves a short slice and not all of them. Go orders
// strings by their bytes.
type keyset struct {
	runs [][]sized // none is empty
}

type sized struct {
	key  string
	size int // bytes of the value
}

const maxRun = 512

func (z sized) compare(key string) int { return strings.Compare(z.key, key) }

// find returns the run that key is in or belongs into, its place there, and
// whether it is there. There must be a run.
func (k *keyset) find(key string) (run, at int, ok bool) {
	run, ok = slices.BinarySearchFunc(k.runs, key, func(r []sized, key string) int { return r[0].compare(key) })
	if ok {
		return run, 0, true
	}
	run = max(run-1, 0) // the last run that starts before key
	at, ok = slices.BinarySearchFunc(k.runs[run], key, sized.compare)
	return run, at, ok
}

// set adds key, or gives it another size.
func (k *keyset) set(key string, size int) {
	if len(k.runs) == 0 {
		k.runs = append(k.runs, []sized{{key, size}})
		return
	}
	run, at, ok := k.find(key)
	if ok {
		k.runs[run][at].size = size
		return
	}
	r := slices.Insert(k.runs[run], at, sized{key, size})
	k.runs[run] = r
	if len(r) > maxRun {
		// Keys that come in order fill the last run: cutting near its end
		// leaves full runs behind, not half-empty ones.
		cut := len(r) / 2
		if run == len(k.runs)-1 && at == len(r)-1 {
			cut = len(r) - 1
		}
		k.runs[run] = slices.Clip(r[:cut])
		k.runs = slices.Insert(k.runs, run+1, slices.Clone(r[cut:]))
	}
}

func (k *keyset) remove(key string) {
	if len(k.runs) == 0 {
		return
	}
	run, at, ok := k.find(key)
	if !ok {
		return
	}
	k.runs[run] = slices.Delete(k.runs[run], at, at+1)
	if len(k.runs[run]) == 0 {
		k.runs = slices.Delete(k.runs, run, run+1)
	}
}

// from appends to page the first keys that are not below key, at most n.
func (k *keyset) from(page []string, key string, n int) []string {
	if len(k.runs) == 0 {
		return page
	}
	run, at, _ := k.find(key)
	for ; run < len(k.runs) && len(page) < n; run, at = run+1, 0 {
		for _, z := range k.runs[run][at:] {
			if len(page) == n {
				break
			}
			page = append(page, z.key)
		}
	}
	return page
}

// usage counts the keys that start with prefix, and adds up the bytes of them
// and of their values.
func (k *keyset) usage(prefix string) (keys int, bytes int64) {
	if len(k.runs) == 0 {
		return 0, 0
	}
	run, at, _ := k.find(prefix)
	for ; run < len(k.runs); run, at = run+1, 0 {
		for _, z := range k.runs[run][at:] {
			if !strings.HasPrefix(z.key, prefix) {
				return keys, bytes
			}
			keys++
			bytes += int64(len(z.key) + z.size)
		}
	}
	return keys, bytes
}

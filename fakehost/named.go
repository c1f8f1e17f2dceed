package fakehost

import (
	"slices"
	"sync"
)

// A namedList is the entries of a registry, in the order of registration. One that has the name of
// another takes its place.
type namedList[T any] struct {
	name func(T) string

	mu   sync.Mutex // guards list
	list []*T
}

// add registers v. stop takes it off, unless another has taken its place.
func (l *namedList[T]) add(v T) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(slices.DeleteFunc(l.list, func(o *T) bool { return l.name(*o) == l.name(v) }), &v)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.list = slices.DeleteFunc(l.list, func(o *T) bool { return o == &v })
	}
}

func (l *namedList[T]) all() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []T
	for _, v := range l.list {
		out = append(out, *v)
	}
	return out
}

// find returns the entry that is as wanted, if there is one.
func (l *namedList[T]) find(wanted func(T) bool) (found T, ok bool) {
	all := l.all()
	if i := slices.IndexFunc(all, wanted); i >= 0 {
		return all[i], true
	}
	return found, false
}

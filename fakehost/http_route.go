package fakehost

import (
	"net/url"
	"slices"
	"strings"
)

// A route is one row of a table of routes. It is served, or says why it is not.
type route struct {
	method, path string // the path has its parameters in braces
	says         string // what it does
	serve        func(*request) (any, error)
	lacks        string
}

// routesOf returns the routes of a profile's host, those without parameters first.
func routesOf(p Profile) []*route {
	table := slices.Concat(routesV2, domainsV2, streamsV2)
	if p.v1() {
		table = slices.Concat(routesV1, domainsV1, streamsV1, secondV1, docV1())
	}
	var out []*route
	for _, r := range table {
		out = append(out, &r)
	}
	slices.SortStableFunc(out, func(a, b *route) int { return strings.Count(a.path, "{") - strings.Count(b.path, "{") })
	return out
}

// match finds the route of a request, and what its parameters are.
func match(routes []*route, method, escaped string) (*route, map[string]string) {
	path := strings.Split(escaped, "/")
	for i, s := range path {
		u, err := url.PathUnescape(s)
		if err != nil {
			return nil, nil
		}
		path[i] = u
	}
	for _, r := range routes {
		if r.method != method {
			continue
		}
		if ids, ok := r.match(path); ok {
			return r, ids
		}
	}
	return nil, nil
}

func (r *route) match(path []string) (map[string]string, bool) {
	pattern := strings.Split(r.path, "/")
	if len(pattern) != len(path) {
		return nil, false
	}
	ids := make(map[string]string)
	for i, p := range pattern {
		name, open := strings.CutPrefix(p, "{")
		switch {
		case open && path[i] != "":
			ids[strings.TrimSuffix(name, "}")] = path[i]
		case p != path[i]:
			return nil, false
		}
	}
	return ids, true
}

// Why routes of the real host are not served.
const (
	lacksShape = "its shapes are not known"
)

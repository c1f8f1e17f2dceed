package fakehost

import "strings"

// docV1 is the route that describes the others. It is a function, because they would
// refer to themselves.
func docV1() []route {
	return []route{{"GET", "/doc", "this document", (*request).doc, ""}}
}

// doc is an OpenAPI document of the routes, as far as the table knows them: no bodies.
func (q *request) doc() (any, error) {
	paths := make(map[string]map[string]any)
	for _, r := range routesOf(q.h.profile) {
		operation := map[string]any{"operationId": strings.ToLower(r.method) + strings.NewReplacer("/", ".", "{", "", "}", "").Replace(r.path),
			"summary": r.says, "responses": map[string]any{"200": map[string]any{"description": r.says}}}
		parameters := []any{}
		for _, s := range strings.Split(r.path, "/") {
			if name, ok := strings.CutPrefix(s, "{"); ok {
				parameters = append(parameters, map[string]any{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true,
					"schema": map[string]any{"type": "string"}})
			}
		}
		operation["parameters"] = parameters
		if paths[r.path] == nil {
			paths[r.path] = make(map[string]any)
		}
		paths[r.path][strings.ToLower(r.method)] = operation
	}
	return map[string]any{"openapi": "3.1.1", "info": map[string]any{"title": "opencode", "version": q.h.profile.Version}, "paths": paths}, nil
}

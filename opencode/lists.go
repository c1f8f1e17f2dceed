package opencode

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/teamchan/team"
)

// A Todo is one line of a session's list.
type Todo struct {
	Content, Status, Priority string // in the server's words
	Raw                       json.RawMessage
}

// Todos returns a session's list, in order.
//
// OpenCode 1.18: GET /session/:id/todo. Nothing of 2.0 shows it.
func (h *Host) Todos(ctx context.Context, id team.SessionID) ([]Todo, error) {
	if !h.v1() {
		return nil, h.lacks("todo list over HTTP", "there is a table for it, but no route, tool or event")
	}
	path, err := h.path(id, "/todo")
	if err != nil {
		return nil, err
	}
	// The list of an unknown session is just empty.
	if _, err := h.Session(ctx, id); err != nil {
		return nil, err
	}
	list, err := h.list(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	var all []Todo
	for _, raw := range list {
		o := decode(raw)
		all = append(all, Todo{o.text("content"), o.text("status"), o.text("priority"), raw})
	}
	return all, nil
}

// An Agent is one of the server's configuration.
type Agent struct {
	Name        string // 2.0: id
	Description string
	Mode        string            // "primary", "subagent", "all", …
	Permissions []json.RawMessage // rules in the generation's own shape, the last match wins
	Raw         json.RawMessage
}

// Agents returns the agents of the directory.
//
// OpenCode 1.18: GET /agent. Second API and 2.0: GET /api/agent.
func (h *Host) Agents(ctx context.Context) ([]Agent, error) {
	list, err := h.list(ctx, h.either("/agent", "/api/agent"), nil)
	var all []Agent
	for _, raw := range list {
		o := decode(raw)
		a := Agent{Name: named(o), Description: o.text("description"), Mode: o.text("mode"), Permissions: o.list("permission"), Raw: raw}
		if a.Permissions == nil {
			a.Permissions = o.list("permissions")
		}
		all = append(all, a)
	}
	return all, err
}

// A Skill is one of the server's.
type Skill struct {
	Name        string // 2.0: id
	Description string
	Location    string // a path on the server's machine; may be empty
	Raw         json.RawMessage
}

// Skills returns the skills of the directory, whoever may use them.
//
// OpenCode 1.18: GET /skill. Second API: GET /api/skill.
func (h *Host) Skills(ctx context.Context) ([]Skill, error) {
	list, err := h.list(ctx, h.either("/skill", "/api/skill"), nil)
	var all []Skill
	for _, raw := range list {
		o := decode(raw)
		all = append(all, Skill{named(o), o.text("description"), o.text("location"), raw})
	}
	return all, err
}

// named returns the id (second API and 2.0) or the name of a thing.
func named(o object) string {
	if id := o.text("id"); id != "" {
		return id
	}
	return o.text("name")
}

// An MCPResource is what an MCP server of the directory offers to read.
type MCPResource struct {
	Server, Name, URI string
	Raw               json.RawMessage
}

// MCPResources returns the resources of all MCP servers that are connected.
//
// OpenCode 1.18: GET /experimental/resource. 2.0: GET /api/mcp/resource.
func (h *Host) MCPResources(ctx context.Context) ([]MCPResource, error) {
	path := h.either("/experimental/resource", "/api/mcp/resource")
	raw, err := h.call(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	o := decode(data(raw))
	list := o.list("resources")
	if o == nil || list == nil && !h.v1() {
		return nil, fmt.Errorf("%w: the answer to GET %s has no resources", team.ErrCorrupt, path)
	}
	if h.v1() {
		for _, key := range slices.Sorted(maps.Keys(o)) {
			list = append(list, o[key])
		}
	}
	var all []MCPResource
	for _, raw := range list {
		o := decode(raw)
		r := MCPResource{o.text("server"), o.text("name"), o.text("uri"), raw}
		if r.Server == "" {
			r.Server = o.text("client") // 1.18
		}
		all = append(all, r)
	}
	return all, nil
}

// An LSPServer is a language server that runs, or failed to.
type LSPServer struct {
	ID, Name, Root string
	Status         string // "connected", "error", …
	Raw            json.RawMessage
}

// LSP returns the language servers that were started so far.
//
// OpenCode 1.18: GET /lsp.
func (h *Host) LSP(ctx context.Context) ([]LSPServer, error) {
	if !h.v1() {
		return nil, h.lacks("status of language servers over HTTP", "no route is known")
	}
	list, err := h.list(ctx, "/lsp", nil)
	var all []LSPServer
	for _, raw := range list {
		o := decode(raw)
		all = append(all, LSPServer{o.text("id"), o.text("name"), o.text("root"), o.text("status"), raw})
	}
	return all, err
}

// either returns the path of the first API, or of the others.
func (h *Host) either(first, other string) string {
	if h.v1() {
		return first
	}
	return other
}

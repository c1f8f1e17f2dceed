package fakehost

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// How the host lists what an MCP server has. OpenCode 2.0.26.
const (
	maxMCPPages = 1000
	mcpTimeout  = 30 * time.Second // of one request
)

// MCPDomain is the MCP servers of the host. Their tools are in the registry as <server>_<tool>, with
// every character that is no letter, digit, - or _ made a _.
type MCPDomain struct {
	h      *Host
	tokens atomic.Int64

	mu   sync.Mutex // guards list
	list []*mcpConnection
}

// An MCPServer is a server that the host talks to, as functions in place of a process.
type MCPServer struct {
	Name string

	// Capabilities are what the server declares: "tools", "resources", "prompts". The host lists
	// nothing else.
	Capabilities []string

	// List answers one request for a page: "tools/list", "resources/list",
	// "resources/templates/list" or "prompts/list". The first has no cursor.
	List func(ctx context.Context, method, cursor string) (MCPPage, error)

	// Call runs a tool and answers {content: [{type, text}, …], isError?}.
	Call func(ctx context.Context, c MCPCall) (json.RawMessage, error)
}

// An MCPPage is one page of a list: objects in the shape of MCP, as in
// {"name": "write", "inputSchema": {…}}. Next is empty on the last page.
type MCPPage struct {
	Items []json.RawMessage
	Next  string
}

// An MCPCall is what a server learns of a call of one of its tools: neither session nor agent.
type MCPCall struct {
	Tool      string
	Arguments json.RawMessage
	Meta      json.RawMessage // {progressToken}
}

// An MCPStatus says how the host stands with a server.
type MCPStatus struct {
	Name   string
	Status string // "connected" or "failed"
	Error  string
}

// MarshalJSON gives the object of generation 2, {name, status: {status, error?}}. 1.18 answers one
// object with such a status for each name.
func (s MCPStatus) MarshalJSON() ([]byte, error) {
	status := map[string]any{"status": s.Status}
	if s.Status == "failed" {
		status["error"] = s.Error
	}
	return json.Marshal(map[string]any{"name": s.Name, "status": status})
}

type mcpConnection struct {
	MCPServer
	status MCPStatus
	stop   []func() // takes its tools off
}

// Add connects a server, in place of one of its name, and lists its tools if it declares them. An error
// says that this failed, which is the server's status from then on; it then has no tools.
// Generation 2 publishes mcp.status.changed {server}.
func (d *MCPDomain) Add(ctx context.Context, s MCPServer) error {
	if err := d.h.enter(ctx, Call{Domain: "mcp", Method: "add", Name: s.Name}); err != nil {
		return err
	}
	if s.Name == "" || len(s.Capabilities) > 0 && s.List == nil {
		return invalid("MCP server", "has no name, or capabilities and no List", "set both")
	}
	for _, c := range s.Capabilities {
		if !slices.Contains([]string{"tools", "resources", "prompts"}, c) {
			return invalid("MCP server "+s.Name, fmt.Sprintf("declares %q", c), "use tools, resources or prompts")
		}
	}
	c := &mcpConnection{MCPServer: s, status: MCPStatus{Name: s.Name, Status: "connected"}}
	tools, err := d.tools(ctx, c)
	if err != nil {
		c.status.Status, c.status.Error = "failed", err.Error()
	}
	d.mu.Lock()
	d.remove(s.Name)
	for _, tool := range tools {
		stop, addErr := d.h.Tool.Add(tool)
		if addErr != nil {
			d.mu.Unlock()
			return addErr
		}
		c.stop = append(c.stop, stop)
	}
	d.list = append(d.list, c)
	d.mu.Unlock()
	d.h.updated("mcp.status.changed", map[string]any{"server": s.Name})
	return err
}

// Reload lists a server's tools again.
func (d *MCPDomain) Reload(ctx context.Context, name string) error {
	d.mu.Lock()
	i := slices.IndexFunc(d.list, func(c *mcpConnection) bool { return c.Name == name })
	var s MCPServer
	if i >= 0 {
		s = d.list[i].MCPServer
	}
	d.mu.Unlock()
	if i < 0 {
		return &NotFoundError{"MCP server", name}
	}
	return d.Add(ctx, s)
}

// Remove takes a server off, with its tools.
func (d *MCPDomain) Remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(name)
}

func (d *MCPDomain) remove(name string) {
	d.list = slices.DeleteFunc(d.list, func(c *mcpConnection) bool {
		if c.Name != name {
			return false
		}
		for _, stop := range c.stop {
			stop()
		}
		return true
	})
}

// List returns how the host stands with each server.
func (d *MCPDomain) List(ctx context.Context) ([]MCPStatus, error) {
	if err := d.h.enter(ctx, Call{Domain: "mcp", Method: "list"}); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []MCPStatus
	for _, c := range d.list {
		out = append(out, c.status)
	}
	return out, nil
}

// An MCPCatalog is what the servers that declare resources have, each object with its server.
//
// OpenCode 2.0: GET /api/mcp/resource. A plugin cannot read it.
type MCPCatalog struct {
	Resources []json.RawMessage `json:"resources"`
	Templates []json.RawMessage `json:"templates"`
}

// Resources lists the resources and templates of all servers that declare them. The error joins those
// of single servers; what the others have is there all the same. Generation 2: how 1.18 lists is not
// known.
func (d *MCPDomain) Resources(ctx context.Context) (MCPCatalog, error) {
	var out MCPCatalog
	var err, err2 error
	out.Resources, err = d.catalog(ctx, "resources", "resources/list")
	if errors.Is(err, errors.ErrUnsupported) {
		return MCPCatalog{}, err
	}
	out.Templates, err2 = d.catalog(ctx, "resources", "resources/templates/list")
	return out, errors.Join(err, err2)
}

// Prompts is Resources for prompts.
func (d *MCPDomain) Prompts(ctx context.Context) ([]json.RawMessage, error) {
	return d.catalog(ctx, "prompts", "prompts/list")
}

func (d *MCPDomain) catalog(ctx context.Context, capability, method string) ([]json.RawMessage, error) {
	if d.h.profile.v1() {
		return nil, d.h.absent("mcp." + capability)
	}
	if err := d.h.enter(ctx, Call{Domain: "mcp", Method: capability, Name: method}); err != nil {
		return nil, err
	}
	d.mu.Lock()
	servers := slices.Clone(d.list)
	d.mu.Unlock()
	out := []json.RawMessage{}
	var errs []error
	for _, c := range servers {
		items, err := c.all(ctx, capability, method)
		errs = append(errs, err)
		for _, item := range items {
			var object map[string]json.RawMessage
			if err := json.Unmarshal(item, &object); err != nil || object == nil {
				errs = append(errs, fmt.Errorf("MCP server %s: %s has an entry that is no object", c.Name, method))
				continue
			}
			object["server"] = mustJSON(c.Name)
			out = append(out, mustJSON(object))
		}
	}
	return out, errors.Join(errs...)
}

// all returns every page of a list, or nothing if the server does not declare the capability.
func (c *mcpConnection) all(ctx context.Context, capability, method string) ([]json.RawMessage, error) {
	if !slices.Contains(c.Capabilities, capability) {
		return nil, nil
	}
	var out []json.RawMessage
	cursor, seen := "", map[string]bool{"": true}
	for range maxMCPPages {
		page, err := c.page(ctx, method, cursor)
		if err != nil {
			return nil, fmt.Errorf("MCP server %s: %s: %w", c.Name, method, err)
		}
		out = append(out, page.Items...)
		if page.Next == "" {
			return out, nil
		}
		if cursor = page.Next; seen[cursor] {
			return nil, fmt.Errorf("MCP server %s: %s: cursor %q came twice", c.Name, method, cursor)
		}
		seen[cursor] = true
	}
	return nil, fmt.Errorf("MCP server %s: %s has more than %d pages", c.Name, method, maxMCPPages)
}

func (c *mcpConnection) page(ctx context.Context, method, cursor string) (MCPPage, error) {
	ctx, cancel := context.WithTimeout(ctx, mcpTimeout)
	defer cancel()
	page, err := c.List(ctx, method, cursor)
	return page, cmp.Or(err, ctx.Err())
}

var notInToolName = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// tools returns the server's tools as those of the host.
func (d *MCPDomain) tools(ctx context.Context, c *mcpConnection) ([]Tool, error) {
	items, err := c.all(ctx, "tools", "tools/list")
	if err != nil {
		return nil, err
	}
	var out []Tool
	for _, item := range items {
		var in struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			InputSchema json.RawMessage `json:"inputSchema"`
		}
		if err := json.Unmarshal(item, &in); err != nil || in.Name == "" {
			return nil, fmt.Errorf("MCP server %s: tools/list has an entry without name", c.Name)
		}
		key := notInToolName.ReplaceAllString(c.Name, "_") + "_" + notInToolName.ReplaceAllString(in.Name, "_")
		out = append(out, Tool{Name: key, Description: in.Description, Parameters: in.InputSchema, MCP: true, late: true,
			Run: func(ctx context.Context, call *ToolCall) (ToolOutput, error) {
				if err := call.Ask(ctx, key, []string{"*"}, []string{"*"}, map[string]any{}); err != nil {
					return ToolOutput{}, err
				}
				if !call.c.running {
					if err := call.Progress("", nil); err != nil {
						return ToolOutput{}, err
					}
				}
				return d.call(ctx, c, in.Name, call.Input)
			}})
	}
	return out, nil
}

func (d *MCPDomain) call(ctx context.Context, c *mcpConnection, tool string, input json.RawMessage) (ToolOutput, error) {
	if c.Call == nil {
		return ToolOutput{}, fmt.Errorf("MCP server %s cannot call tools", c.Name)
	}
	result, err := c.Call(ctx, MCPCall{tool, input, mustJSON(map[string]any{"progressToken": d.tokens.Add(1)})})
	if err != nil {
		return ToolOutput{}, err
	}
	var out struct {
		Content []contentPart `json:"content"`
		IsError bool          `json:"isError"`
	}
	if err := json.Unmarshal(result, &out); err != nil || out.Content == nil {
		return ToolOutput{}, fmt.Errorf("MCP server %s: the result of %s has no content", c.Name, tool)
	}
	if out.IsError {
		text := (&toolResult{Content: out.Content}).text()
		return ToolOutput{}, errors.New(cmp.Or(strings.TrimSpace(text), "the tool failed without a text"))
	}
	return ToolOutput{parts: out.Content}, nil
}

package fakehost

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
)

// The small registries of a host: those that only list what was put into them.

// updated publishes that a registry of generation 2 has changed, to those who list it again: its
// event has no fields, "skill.updated" and the like, or says which entry it was. Generation 1 has no
// such events.
func (h *Host) updated(typ string, data map[string]any) {
	if h.profile.v1() {
		return
	}
	if data == nil {
		data = map[string]any{}
	}
	// A closed host has nobody to tell.
	_ = h.tx(func(t *tx) error {
		t.emit(typ, "", data)
		return nil
	})
}

// App says which program the host is.
type App struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Channel string `json:"channel"`
}

// A Location is where a host works.
type Location struct {
	Directory string  `json:"directory"`
	Project   Project `json:"project"`
}

// A Project is what sessions and permissions belong to. There is one here, "global".
type Project struct {
	ID        string `json:"id"`
	Directory string `json:"directory"`
}

// App returns what a plugin reads as ctx.app. OpenCode 2.0.
func (h *Host) App() App { return App{"opencode", h.profile.Version, "latest"} }

// Location returns what a plugin reads as ctx.location. OpenCode 2.0.
func (h *Host) Location() Location { return Location{h.Directory(), Project{"global", h.Directory()}} }

// A Reference is a folder beside the workspace that agents may look things up in.
type Reference struct {
	Name        string
	Path        string // absolute
	Description string
	Hidden      bool
}

// MarshalJSON gives the host's own object.
func (r Reference) MarshalJSON() ([]byte, error) {
	source := map[string]any{"type": "local", "path": r.Path}
	out := map[string]any{"name": r.Name, "path": r.Path}
	for _, m := range []map[string]any{source, out} {
		if r.Description != "" {
			m["description"] = r.Description
		}
		if r.Hidden {
			m["hidden"] = true
		}
	}
	out["source"] = source
	return json.Marshal(out)
}

// ReferenceDomain is the references of the host: local ones. Where the real host clones a git
// repository to is not known, so such a source is not here.
//
// OpenCode 2.0: ctx.reference, event reference.updated.
type ReferenceDomain struct {
	h *Host

	list namedList[Reference]
}

// Add registers a reference, in place of the one of its name. stop takes it off.
func (d *ReferenceDomain) Add(r Reference) (stop func(), err error) {
	if r.Name == "" || !filepath.IsAbs(r.Path) {
		return nil, invalid("reference", "has no name or no absolute path", "set both")
	}
	off := d.list.add(r)
	d.h.updated("reference.updated", nil)
	return func() {
		off()
		d.h.updated("reference.updated", nil)
	}, nil
}

// List returns the references, by name.
func (d *ReferenceDomain) List(ctx context.Context) ([]Reference, error) {
	if err := d.h.enter(ctx, Call{Domain: "reference", Method: "list"}); err != nil {
		return nil, err
	}
	return slices.SortedFunc(slices.Values(d.list.all()), func(a, b Reference) int { return cmp.Compare(a.Name, b.Name) }), nil
}

// An Integration is a service that the user can connect.
type Integration struct {
	ID          string              `json:"id"`
	Name        string              `json:"name"`
	Methods     []IntegrationMethod `json:"methods"`
	Connections []Connection        `json:"connections"`
}

// An IntegrationMethod is a way to connect. Only keys can be connected here; the other methods, oauth
// and command, need a service to talk to.
type IntegrationMethod struct {
	Type  string   `json:"type"` // "key" or "env"
	Label string   `json:"label,omitempty"`
	Names []string `json:"names,omitempty"` // of "env"
}

// A Connection is a credential that was given. Its secret is never listed.
type Connection struct {
	Type  string `json:"type"` // "credential"
	ID    string `json:"id"`
	Label string `json:"label"`
}

// IntegrationDomain is the integrations of the host, in memory.
//
// OpenCode 2.0: ctx.integration, event integration.updated.
type IntegrationDomain struct {
	h *Host

	mu   sync.Mutex // guards the fields below
	list []Integration
	keys map[string]string // by connection
}

// Add registers an integration, in place of the one of its id, without its connections.
func (d *IntegrationDomain) Add(i Integration) error {
	if i.ID == "" || i.Name == "" {
		return invalid("integration", "has no id or no name", "set both")
	}
	for _, m := range i.Methods {
		if m.Type != "key" && m.Type != "env" {
			return invalid("integration method", fmt.Sprintf("is %q", m.Type), "use key or env")
		}
	}
	i.Methods, i.Connections = append([]IntegrationMethod{}, i.Methods...), []Connection{}
	d.mu.Lock()
	d.list = append(slices.DeleteFunc(d.list, func(o Integration) bool { return o.ID == i.ID }), i)
	d.mu.Unlock()
	d.h.updated("integration.updated", nil)
	return nil
}

// List returns the integrations, by id.
func (d *IntegrationDomain) List(ctx context.Context) ([]Integration, error) {
	if err := d.h.enter(ctx, Call{Domain: "integration", Method: "list"}); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	out := slices.SortedFunc(slices.Values(d.list), func(a, b Integration) int { return cmp.Compare(a.ID, b.ID) })
	for i := range out {
		out[i].Methods, out[i].Connections = slices.Clone(out[i].Methods), slices.Clone(out[i].Connections)
	}
	return out, nil
}

// ConnectKey keeps a key for an integration that takes one.
func (d *IntegrationDomain) ConnectKey(ctx context.Context, id, key, label string) (Connection, error) {
	if err := d.h.enter(ctx, Call{Domain: "integration", Method: "connect", Name: id}); err != nil {
		return Connection{}, err
	}
	if key == "" {
		return Connection{}, invalid("key", "is empty", "pass the key")
	}
	c := Connection{"credential", d.h.newID("cred_"), label}
	d.mu.Lock()
	i := slices.IndexFunc(d.list, func(o Integration) bool { return o.ID == id })
	takes := i >= 0 && slices.ContainsFunc(d.list[i].Methods, func(m IntegrationMethod) bool { return m.Type == "key" })
	if takes {
		d.list[i].Connections = append(d.list[i].Connections, c)
		d.keys[c.ID] = key
	}
	d.mu.Unlock()
	switch {
	case i < 0:
		return Connection{}, &NotFoundError{"integration", id}
	case !takes:
		return Connection{}, invalid("integration "+id, "takes no key", "give it a method of type key")
	}
	d.h.updated("integration.updated", nil)
	return c, nil
}

// Resolve returns the key of a connection.
func (d *IntegrationDomain) Resolve(ctx context.Context, connection string) (string, error) {
	if err := d.h.enter(ctx, Call{Domain: "integration", Method: "resolve", Name: connection}); err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key, ok := d.keys[connection]
	if !ok {
		return "", &NotFoundError{"connection", connection}
	}
	return key, nil
}

// A Terminal is what a persistent terminal shows.
type Terminal struct {
	ID   string
	Text string
	X, Y int // of the cursor
}

// MarshalJSON gives the host's own object, of whose info only the id is here, and no checkpoint.
func (t Terminal) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"info": map[string]any{"id": t.ID}, "text": t.Text, "cursor": map[string]any{"x": t.X, "y": t.Y}})
}

// TerminalDomain is the terminals that a plugin can read. Nothing runs in them: Show sets what is to
// be seen.
//
// OpenCode 2.0: ctx.experimental.terminal, which can only read. Whose terminals a session may read is
// not known; here it is all.
type TerminalDomain struct {
	h *Host

	mu   sync.Mutex // guards list
	list map[string]Terminal
}

// Show sets what a terminal shows.
func (d *TerminalDomain) Show(t Terminal) error {
	if t.ID == "" {
		return invalid("terminal", "has no id", "name it")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list[t.ID] = t
	return nil
}

// Read returns what a terminal shows.
func (d *TerminalDomain) Read(ctx context.Context, id string) (Terminal, error) {
	if err := d.h.enter(ctx, Call{Domain: "terminal", Method: "read", Name: id}); err != nil {
		return Terminal{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.list[id]
	if !ok {
		return Terminal{}, &NotFoundError{"terminal", id}
	}
	return t, nil
}

// RPCDomain is how the parts of a plugin talk: functions by name, and events rpc.<name>.
//
// OpenCode 2.0: ctx.rpc. Only register and emit are known of it; the fields that the host puts round
// the data of its events are not.
type RPCDomain struct {
	h *Host

	mu    sync.Mutex // guards funcs
	funcs map[string]func(context.Context, json.RawMessage) (json.RawMessage, error)
}

var rpcName = regexp.MustCompile(`^[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)*$`)

func checkRPC(name string) error {
	if !rpcName.MatchString(name) {
		return invalid("rpc name", fmt.Sprintf("is %q", name), "use letters, digits, _ and -, with dots between")
	}
	return nil
}

// Register answers calls of a name. stop takes it off. A *ConflictError if it is answered already.
func (d *RPCDomain) Register(name string, f func(context.Context, json.RawMessage) (json.RawMessage, error)) (stop func(), err error) {
	if err := checkRPC(name); err != nil {
		return nil, err
	}
	if f == nil {
		return nil, invalid("rpc "+name, "has no function", "pass one")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.funcs[name] != nil {
		return nil, &ConflictError{name, "is registered already"}
	}
	d.funcs[name] = f
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.funcs, name)
	}), nil
}

// Call calls what is registered for a name.
func (d *RPCDomain) Call(ctx context.Context, name string, input json.RawMessage) (json.RawMessage, error) {
	if err := d.h.enter(ctx, Call{Domain: "rpc", Method: "call", Name: name}); err != nil {
		return nil, err
	}
	d.mu.Lock()
	f := d.funcs[name]
	d.mu.Unlock()
	if f == nil {
		return nil, &NotFoundError{"rpc", name}
	}
	return f(ctx, input)
}

// Emit publishes rpc.<name> to the feed.
func (d *RPCDomain) Emit(ctx context.Context, name string, data json.RawMessage) error {
	if err := d.h.enter(ctx, Call{Domain: "rpc", Method: "emit", Name: name}); err != nil {
		return err
	}
	if err := checkRPC(name); err != nil {
		return err
	}
	return d.h.Event.Publish(ctx, "rpc."+name, "", data)
}

package team

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Drift is a difference between a host and what this library was built against:
// OpenCode 1.18.33 and 2.0.26. It is no error, since what a host sends beyond that is passed on; it says
// where to look before something breaks.
type Drift struct {
	Kind  string // "event type", "field", "route"
	Name  string // "session.woken", "session.execution.failed: retryable", "GET /session/:id"
	What  string // "is new", "is missing"
	First time.Time
	Count int
}

type driftKey struct{ kind, name, what string }

// Drift returns the differences, by kind and name; the first 256.
func (c *Capability) Drift() []Drift {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Drift
	for d := range maps.Values(c.drifts) {
		all = append(all, *d)
	}
	slices.SortFunc(all, func(a, b Drift) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.What, b.What))
	})
	return all
}

func (c *Capability) drift(kind, name, what string) {
	if len(name) > maxName {
		name = cutReason(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := driftKey{kind, name, what}
	if d := c.drifts[key]; d != nil {
		d.Count++
		return
	}
	if len(c.drifts) >= mostDrifts {
		return
	}
	if c.drifts == nil {
		c.drifts = make(map[driftKey]*Drift)
	}
	key.name = strings.Clone(name)
	c.drifts[key] = &Drift{Kind: kind, Name: key.name, What: what, First: time.Now(), Count: 1}
}

// comparedEvents is how many events of a type are compared by their fields.
const comparedEvents = 8

// eventFields are the fields of the data of the events that a Join depends on: those
// that are always there, "|", and those that may be.
var eventFields = map[string]string{
	"session.idle":                  "sessionID |",
	"session.status":                "sessionID status |",
	"session.error":                 "| sessionID error",
	"session.created":               "sessionID | info projectID location subpath parentID slug title agent model metadata permissions version",
	"session.deleted":               "sessionID | info",
	"message.part.updated":          "sessionID part | time",
	"permission.replied":            "sessionID requestID reply | message",
	"question.asked":                "id sessionID questions | tool",
	"question.replied":              "sessionID requestID answers |",
	"question.rejected":             "sessionID requestID |",
	"session.inbox.enqueued":        "sessionID inboxID item |",
	"session.inbox.delivered":       "sessionID inboxID |",
	"session.inbox.cancelled":       "sessionID inboxID |",
	"session.execution.started":     "sessionID |",
	"session.execution.succeeded":   "sessionID |",
	"session.execution.failed":      "sessionID error |",
	"session.execution.interrupted": "sessionID reason |",
	"session.step.started":          "sessionID assistantMessageID agent model | snapshot started",
	"session.step.failed":           "sessionID assistantMessageID error | finish rawFinish providerState cost tokens snapshot files",
	"session.retry.scheduled":       "sessionID assistantMessageID attempt at error |",
	"session.tool.input.started":    "sessionID assistantMessageID id name |",
	"session.tool.progress":         "sessionID assistantMessageID id metadata |",
	"session.tool.success":          "sessionID assistantMessageID id content executed | metadata resultState",
	"session.tool.failed":           "sessionID assistantMessageID id error executed | content metadata resultState",
}

func (c *Capability) compareEvent(t *eventType, e Event) {
	known, ok := eventFields[t.name]
	if ok {
		c.compare(t.name, known, e.Data)
	}
}

// sessionFields are the fields of a session, by what the host calls its API.
var sessionFields = map[string]string{
	"1.18": `id slug projectID directory title version time | workspaceID path parentID summary cost tokens share agent model
		metadata permission revert`,
	"2.0": "id projectID cost tokens time location | parentID fork agent model outcome title subpath metadata permissions revert",
}

// CompareSession compares a session object of the host's, as in Session.Raw, with what
// this library was built against: generation is "1.18" or "2.0". Fields that are new, or that were always
// there and are missing, are a Drift.
func (c *Capability) CompareSession(generation string, raw json.RawMessage) error {
	known, ok := sessionFields[generation]
	if !ok {
		return edge("capability.compare", generation, errGeneration)
	}
	c.compare("session "+generation, known, raw)
	return nil
}

var errGeneration = &InvalidError{What: "generation", Why: `is neither "1.18" nor "2.0"`, Offset: -1}

// compare notes which fields of an object are new, and which are missing.
func (c *Capability) compare(name, known string, raw json.RawMessage) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || fields == nil { // null is none either
		c.drift("field", name, "is no object")
		return
	}
	always, maybe, _ := strings.Cut(known, "|")
	for field := range strings.FieldsSeq(always) {
		if _, ok := fields[field]; !ok {
			c.drift("field", name+": "+field, "is missing")
		}
	}
	all := " " + strings.Join(strings.Fields(always+maybe), " ") + " "
	for field := range fields {
		if !strings.Contains(all, " "+field+" ") || strings.Contains(field, " ") {
			c.drift("field", name+": "+field, "is new")
		}
	}
}

// usedRoutes are the routes that the ports stand on.
var usedRoutes = map[string][]string{
	"1.18": {"GET /session/:id", "GET /session/:id/children", "GET /session/:id/message", "GET /session/status",
		"POST /session/:id/prompt_async", "POST /session/:id/abort", "GET /event", "GET /permission", "GET /question"},
	"2.0": {"GET /api/session/:id", "GET /api/session/:id/message", "GET /api/session/active", "GET /api/session/:id/inbox",
		"POST /api/session/:id/synthetic", "POST /api/session/:id/interrupt", "GET /api/event", "GET /api/permission/request"},
}

// CompareRoutes compares the routes that a host says it has ("GET /session/{sessionID}", as in its OpenAPI
// document; names of parameters do not matter) with those that the ports stand on. One that is missing is a
// Drift, and returned.
func (c *Capability) CompareRoutes(generation string, routes []string) ([]string, error) {
	used, ok := usedRoutes[generation]
	if !ok {
		return nil, edge("capability.compare", generation, errGeneration)
	}
	have := make(map[string]bool, len(routes))
	for _, r := range routes {
		have[plainRoute(r)] = true
	}
	var missing []string
	for _, r := range used {
		if !have[plainRoute(r)] {
			missing = append(missing, r)
			c.drift("route", r, "is missing")
		}
	}
	return missing, nil
}

// plainRoute writes each parameter of a route in one way.
func plainRoute(route string) string {
	method, path, _ := strings.Cut(strings.TrimSpace(route), " ")
	parts := strings.Split(strings.TrimSuffix(strings.TrimSpace(path), "/"), "/")
	for i, p := range parts {
		if strings.HasPrefix(p, ":") || strings.HasPrefix(p, "{") && strings.HasSuffix(p, "}") {
			parts[i] = ":"
		}
	}
	return strings.ToUpper(method) + " " + strings.Join(parts, "/")
}

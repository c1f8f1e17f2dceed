package fakehost

import (
	"encoding/json"
	"strconv"

	"github.com/ncruces/go-sqlite3"
)

// A Session is what the host knows about one conversation. Times are ms since 1970; zero
// is never. As JSON it has the shape of its generation.
type Session struct {
	ID          string
	Parent      string
	Fork        *Fork
	Project     string
	Slug        string
	Directory   string
	Path        string
	Title       string
	Version     string
	Agent       string
	Model       *Model
	Metadata    json.RawMessage
	Permissions []Rule
	Cost        float64
	Input       int64 // tokens
	Output      int64 // tokens
	Created     int64
	Updated     int64
	Idle        int64  // when Outcome was recorded; generation 2
	Outcome     string // "succeeded", "failed", "interrupted": the last execution that ended; generation 2
	Viewed      int64  // up to which Idle somebody has looked; generation 2
	Archived    int64
	Revert      *Revert // staged

	// Claim is "running" while an execution is under way, in whatever window, or has
	// crashed, and "shutdown" when its process closed under it.
	Claim string

	v1      bool
	summary bool
	still   bool // what is saved is no change that counts for Updated
}

// A Fork says of what a session is a copy, and how far.
type Fork struct {
	Session  string   `json:"sessionID"`
	Boundary Boundary `json:"boundary"`
}

// A Boundary is a place in a session: before or through a message.
type Boundary struct {
	Type    string `json:"type"`
	Message string `json:"messageID"`
}

type tokenCount struct {
	Total     int64      `json:"total,omitempty"`
	Input     int64      `json:"input"`
	Output    int64      `json:"output"`
	Reasoning int64      `json:"reasoning"`
	Cache     tokenCache `json:"cache"`
}

type tokenCache struct {
	Read  int64 `json:"read"`
	Write int64 `json:"write"`
}

type sessionTime struct {
	Created  int64 `json:"created"`
	Updated  int64 `json:"updated"`
	Idle     int64 `json:"idle,omitempty"`
	Viewed   int64 `json:"viewed,omitempty"`
	Archived int64 `json:"archived,omitempty"`
}

type summaryV1 struct {
	Additions int `json:"additions"`
	Deletions int `json:"deletions"`
	Files     int `json:"files"`
}

type sessionV1 struct {
	ID         string          `json:"id"`
	Slug       string          `json:"slug"`
	ProjectID  string          `json:"projectID"`
	Directory  string          `json:"directory"`
	Path       string          `json:"path"`
	ParentID   string          `json:"parentID,omitempty"`
	Summary    *summaryV1      `json:"summary,omitempty"`
	Cost       float64         `json:"cost"`
	Tokens     tokenCount      `json:"tokens"`
	Title      string          `json:"title"`
	Agent      string          `json:"agent,omitempty"`
	Model      *Model          `json:"model,omitempty"`
	Version    string          `json:"version"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
	Permission []ruleV1        `json:"permission,omitempty"`
	Revert     *Revert         `json:"revert,omitempty"`
	Time       sessionTime     `json:"time"`
}

type sessionV2 struct {
	ID          string          `json:"id"`
	ParentID    string          `json:"parentID,omitempty"`
	Fork        *Fork           `json:"fork,omitempty"`
	ProjectID   string          `json:"projectID"`
	Agent       string          `json:"agent,omitempty"`
	Model       *Model          `json:"model,omitempty"`
	Cost        float64         `json:"cost"`
	Tokens      tokenCount      `json:"tokens"`
	Outcome     string          `json:"outcome,omitempty"`
	Time        sessionTime     `json:"time"`
	Title       string          `json:"title,omitempty"`
	Location    location        `json:"location"`
	Subpath     string          `json:"subpath,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	Permissions []ruleV2        `json:"permissions,omitempty"`
	Revert      *Revert         `json:"revert,omitempty"`
}

// MarshalJSON gives the host's own object.
func (s Session) MarshalJSON() ([]byte, error) {
	tokens := tokenCount{Input: s.Input, Output: s.Output}
	if s.v1 {
		out := sessionV1{s.ID, s.Slug, s.Project, s.Directory, s.Path, s.Parent, nil, s.Cost, tokens, s.Title, s.Agent, nil,
			s.Version, s.Metadata, rulesV1(s.Permissions), s.Revert, sessionTime{Created: s.Created, Updated: s.Updated, Archived: s.Archived}}
		if s.Model != nil {
			m := *s.Model
			if m.Variant == "" && s.Agent != "" { // a prompt has chosen it
				m.Variant = "default"
			}
			out.Model = &m
		}
		if s.summary {
			out.Summary = new(summaryV1)
		}
		return json.Marshal(out)
	}
	return json.Marshal(sessionV2{s.ID, s.Parent, s.Fork, s.Project, s.Agent, s.Model, s.Cost, tokens, s.Outcome,
		sessionTime{s.Created, s.Updated, s.Idle, s.Viewed, s.Archived}, s.Title, location{s.Directory}, s.Path, s.Metadata,
		rulesV2(s.Permissions), s.Revert})
}

const sessionColumns = `id, parent_id, fork_session_id, fork_boundary, project_id, slug, directory, path, title, version, agent,
	model, metadata, permission, cost, tokens_input, tokens_output, summary, time_created, time_updated, time_idle, idle_outcome,
	time_archived, claim, time_viewed, revert`

// scanSession reads a row of sessionColumns.
func (h *Host) scanSession(s *sqlite3.Stmt) (*Session, error) {
	out := &Session{ID: s.ColumnText(0), Parent: s.ColumnText(1), Project: s.ColumnText(4), Slug: s.ColumnText(5),
		Directory: s.ColumnText(6), Path: s.ColumnText(7), Title: s.ColumnText(8), Version: s.ColumnText(9), Agent: s.ColumnText(10),
		Metadata: raw(s, 12), Cost: s.ColumnFloat(14), Input: s.ColumnInt64(15), Output: s.ColumnInt64(16), summary: s.ColumnBool(17),
		Created: s.ColumnInt64(18), Updated: s.ColumnInt64(19), Idle: s.ColumnInt64(20), Outcome: s.ColumnText(21),
		Archived: s.ColumnInt64(22), Claim: s.ColumnText(23), Viewed: s.ColumnInt64(24), v1: h.profile.v1()}
	if r := raw(s, 25); r != nil {
		if err := json.Unmarshal(r, &out.Revert); err != nil {
			return nil, err
		}
	}
	if from := s.ColumnText(2); from != "" {
		out.Fork = &Fork{Session: from}
		if err := json.Unmarshal(raw(s, 3), &out.Fork.Boundary); err != nil {
			return nil, err
		}
	}
	if m := raw(s, 11); m != nil {
		if err := json.Unmarshal(m, &out.Model); err != nil {
			return nil, err
		}
	}
	if p := raw(s, 13); p != nil {
		rules, err := h.parseRules(p)
		if err != nil {
			return nil, err
		}
		out.Permissions = rules
	}
	return out, nil
}

// session reads one session, or a *NotFoundError.
func (t *tx) session(id string) (*Session, error) {
	var out *Session
	var bad error
	err := t.rows(`SELECT `+sessionColumns+` FROM session_v2 WHERE id = ?`, func(s *sqlite3.Stmt) {
		out, bad = t.h.scanSession(s)
	}, id)
	switch {
	case err != nil:
		return nil, err
	case bad != nil:
		return nil, bad
	case out == nil:
		return nil, &NotFoundError{"session", id}
	}
	return out, nil
}

// saveSession stores every field of s that can change, and the time.
func (t *tx) saveSession(s *Session) error {
	if !s.still {
		s.Updated = t.now
	}
	return t.run(`UPDATE session_v2 SET directory = ?2, title = ?3, agent = ?4, model = ?5, metadata = ?6, permission = ?7,
		cost = ?8, tokens_input = ?9, tokens_output = ?10, summary = ?11, time_updated = ?12, time_idle = ?13, idle_outcome = ?14,
		time_archived = ?15, claim = ?16, revert = ?17 WHERE id = ?1`,
		s.ID, s.Directory, s.Title, null(s.Agent), optional(s.Model), s.Metadata, t.h.ruleJSON(s.Permissions), s.Cost,
		s.Input, s.Output, s.summary, s.Updated, zeroNull(s.Idle), null(s.Outcome), zeroNull(s.Archived), null(s.Claim), optional(s.Revert))
}

func optional[T any](p *T) any {
	if p == nil {
		return nil
	}
	return p
}

func zeroNull(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

package fakehost

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/teamchan/team"
)

// FaultRipgrepMissing makes the tool skill fail, as it does on a host that cannot find ripgrep to
// sample files with. OpenCode 1.18.33.
const FaultRipgrepMissing Fault = "ripgrep missing"

// maxSkillFiles is how many files of a skill's folder its text names. OpenCode 1.18 and 2.0.
const maxSkillFiles = 10

// SkillDomain is texts that an agent loads when it needs them. Its tool, skill, takes the name in
// generation 1 and the id in generation 2, and asks for permission "skill" for it.
type SkillDomain struct {
	h *Host

	list namedList[Skill] // by id
}

// A Skill is a text with the files beside it. In the real host it is a folder with SKILL.md.
type Skill struct {
	ID          string // generation 2; empty is Name
	Name        string
	Description string
	Text        string // the body of SKILL.md; empty reads it from Dir
	Dir         string // the folder; empty for none
}

// resource is what rules and the tool call the skill.
func (d *SkillDomain) resource(s Skill) string {
	if d.h.profile.v1() {
		return s.Name
	}
	return s.ID
}

// Add registers a skill, in place of the one of its id. stop takes it off. Generation 2
// publishes skill.updated.
func (d *SkillDomain) Add(s Skill) (stop func(), err error) {
	s.ID = cmp.Or(s.ID, s.Name)
	if s.Name == "" || s.Text == "" && s.Dir == "" {
		return nil, invalid("skill", "has no name, or neither text nor folder", "set the name, and the text or a folder with SKILL.md")
	}
	off := d.list.add(s)
	d.h.updated("skill.updated", nil)
	return func() {
		off()
		d.h.updated("skill.updated", nil)
	}, nil
}

// List returns the skills that a session's agent is told about, by name: not those that its rules
// deny. Without a session it is all of them.
func (d *SkillDomain) List(ctx context.Context, session string) ([]Skill, error) {
	if err := d.h.enter(ctx, Call{Domain: "skill", Method: "list", Session: session}); err != nil {
		return nil, err
	}
	return d.visible(session, "")
}

func (d *SkillDomain) visible(session, agent string) ([]Skill, error) {
	list := d.list.all()
	slices.SortFunc(list, func(a, b Skill) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	if session == "" {
		return list, nil
	}
	rules, err := d.h.Permission.rules(session, agent)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(s Skill) bool { return evaluate(rules, "skill", d.resource(s)) == team.Deny }), nil
}

func (d *SkillDomain) find(name string) (Skill, bool) {
	return d.list.find(func(s Skill) bool { return d.resource(s) == name })
}

// Activate loads a skill into a session on the user's behalf: event session.skill.activated and a
// message of type skill. Nobody is asked, and the session is not woken. Generation 2.
func (d *SkillDomain) Activate(ctx context.Context, session, id string) error {
	if d.h.profile.v1() {
		return d.h.absent("skill.activate")
	}
	if err := d.h.enter(ctx, Call{Domain: "skill", Method: "activate", Session: session, Name: id}); err != nil {
		return err
	}
	s, ok := d.find(id)
	if !ok {
		return &NotFoundError{"skill", id}
	}
	text, err := d.content(ctx, s)
	if err != nil {
		return err
	}
	return d.h.tx(func(t *tx) error {
		if _, err := t.session(session); err != nil {
			return err
		}
		e, err := t.durable("session.skill.activated", session, 1, map[string]any{"sessionID": session, "id": s.ID, "name": s.Name, "text": text})
		if err != nil {
			return err
		}
		id := messageID(e.ID)
		return t.insertMessage(id, session, "skill", map[string]any{"id": id, "type": "skill", "skill": s.ID, "name": s.Name, "text": text,
			"time": map[string]any{"created": t.now}})
	})
}

// content is what the agent reads: the text in skill_content, and at most ten files of the folder.
func (d *SkillDomain) content(ctx context.Context, s Skill) (string, error) {
	text, files, err := s.read(ctx)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<skill_content name=\"%s\">\n# Skill: %s\n\n%s\n\n", s.Name, s.Name, strings.TrimSpace(text))
	if s.Dir != "" {
		fmt.Fprintf(&b, "Base directory: %s\n\n", s.Dir)
	}
	b.WriteString("<skill_files>\n")
	for _, f := range files {
		fmt.Fprintf(&b, "<file>%s</file>\n", f)
	}
	b.WriteString("</skill_files>\n</skill_content>")
	return b.String(), nil
}

// read returns the body of SKILL.md, without its front matter, and up to ten other files. It does
// not follow links out of the folder.
func (s Skill) read(ctx context.Context) (text string, files []string, err error) {
	text = s.Text
	if s.Dir == "" {
		return text, nil, nil
	}
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return "", nil, fmt.Errorf("skill %s: %w", s.Name, err)
	}
	defer root.Close()
	if text == "" {
		data, err := root.ReadFile("SKILL.md")
		if err != nil {
			return "", nil, fmt.Errorf("skill %s: %w", s.Name, err)
		}
		text = string(withoutFrontMatter(data))
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case len(files) == maxSkillFiles:
			return fs.SkipAll
		case e.Type().IsRegular() && name != "SKILL.md":
			files = append(files, filepath.Join(s.Dir, filepath.FromSlash(name)))
		}
		return nil
	})
	return text, files, err
}

// withoutFrontMatter takes the block between the first two lines "---" off.
func withoutFrontMatter(data []byte) []byte {
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	rest, ok := bytes.CutPrefix(data, []byte("---\n"))
	if !ok {
		return data
	}
	if body, ok := bytes.CutPrefix(rest, []byte("---\n")); ok {
		return body
	}
	if _, body, ok := bytes.Cut(rest, []byte("\n---\n")); ok {
		return body
	}
	return data
}

// tool is skill {name}, or skill {id} in generation 2.
func (d *SkillDomain) tool() Tool {
	return Tool{Name: "skill", Description: "Load a skill", late: true,
		Run: func(ctx context.Context, c *ToolCall) (ToolOutput, error) {
			name, err := d.decode(c)
			if err != nil {
				return ToolOutput{}, err
			}
			s, ok := d.find(name)
			if !ok {
				return ToolOutput{}, d.unknown(c, name)
			}
			if err := c.Ask(ctx, "skill", []string{name}, []string{name}, map[string]any{}); err != nil {
				return ToolOutput{}, err
			}
			if d.h.has(FaultRipgrepMissing) {
				return ToolOutput{}, errors.New("ripgrep execution failed")
			}
			text, err := d.content(ctx, s)
			if err != nil {
				return ToolOutput{}, err
			}
			return ToolOutput{Title: "Loaded skill: " + s.Name, Text: text, Metadata: map[string]any{"name": s.Name, "dir": s.Dir}}, nil
		}}
}

func (d *SkillDomain) decode(c *ToolCall) (name string, err error) {
	if d.h.profile.v1() {
		var in struct {
			Name string `json:"name"`
		}
		err = c.Decode(&in)
		return in.Name, err
	}
	var in struct {
		ID string `json:"id"`
	}
	err = c.Decode(&in)
	return in.ID, err
}

// unknown says which skills there are, of those that the agent may see.
func (d *SkillDomain) unknown(c *ToolCall, name string) error {
	list, err := d.visible(c.Session, c.Agent)
	if err != nil {
		return err
	}
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = d.resource(s)
	}
	return fmt.Errorf("no skill %q; use one of: %s", name, cmp.Or(strings.Join(names, ", "), "none"))
}

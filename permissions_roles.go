package team

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// What a channel asks its Permissions for.
const (
	// PermissionSignal is asked for each receiver of a signal. The resource is the
	// receiver's role.
	PermissionSignal = "inbox.send"

	// PermissionBoard is asked for each entry. The resource is <session>/<task>, by the
	// names of the folders: a plain name stands for itself, see Board.
	PermissionBoard = "board.write"
)

// A RoleMatrix says what each role of a team may do, in the capability names of OpenCode
// 1.x and of this library. It is data: change it before you use it.
type RoleMatrix map[Role]Rules

// TeamRoles returns the matrix of a team of a lead and five specialists. Each call makes
// a new one.
//
//	                      lead   architect  implementer  reviewer  tester  researcher
//	read, grep, glob,
//	list, lsp, skill      allow  allow      allow        allow     allow   allow
//	edit                  allow  deny       allow        deny      allow   deny
//	bash                  allow  deny       allow        allow     allow   deny     dangerous commands ask
//	task, question,
//	todowrite             allow  deny       deny         deny      deny    deny
//	webfetch, websearch   ask    deny       deny         deny      deny    ask
//	browser               ask    deny       deny         deny      ask     ask
//	tm_*                  allow  allow      allow        allow     allow   allow
//	tm_join, tm_ledger*   allow  deny       deny         deny      deny    deny
//	tm_dispatch           deny   deny       deny         deny      deny    deny
//	board.write           allow  allow      allow        allow     allow   allow
//	inbox.send            allow  allow      allow        allow     allow   allow    to roles of the team
//
// All else is denied, and what leads out of the project (external_directory) and secret
// files (*.env) have to be asked for.
//
// The rows are those of the OpenCode plugin TeamMode 1.7, except that native tools for
// reading stay: that plugin has tools in their place.
func TeamRoles() RoleMatrix {
	const (
		lead = 1 << iota
		architect
		implementer
		reviewer
		tester
		researcher
	)
	const all = lead | architect | implementer | reviewer | tester | researcher
	names := []Role{"lead", "architect", "implementer", "reviewer", "tester", "researcher"}
	rows := []struct {
		permission string
		allow, ask int
		patterns   Rules // further rules of those that may
	}{
		{"read", all, 0, secretFiles("read")},
		{"grep", all, 0, secretFiles("grep")},
		{"glob", all, 0, nil},
		{"list", all, 0, nil},
		{"lsp", all, 0, nil},
		{"skill", all, 0, nil},
		{"edit", lead | implementer | tester, 0, nil},
		{"bash", lead | implementer | reviewer | tester, 0, dangerousCommands()},
		{"task", lead, 0, nil},
		{"question", lead, 0, nil},
		{"todowrite", lead, 0, nil},
		{"webfetch", 0, lead | researcher, nil},
		{"websearch", 0, lead | researcher, nil},
		{"browser", 0, lead | tester | researcher, nil},
		{"external_directory", 0, all, nil},
		{"tm_*", all, 0, nil},
		{"tm_join", lead, 0, nil},
		{"tm_ledger*", lead, 0, nil},
		{"tm_dispatch", 0, 0, nil},
		{PermissionBoard, all, 0, nil},
	}
	m := make(RoleMatrix, len(names))
	for i, role := range names {
		rules := Rules{{"*", "*", Deny}}
		for _, row := range rows {
			switch bit := 1 << i; {
			case row.allow&bit != 0:
				rules = append(rules, Rule{row.permission, "*", Allow})
				rules = append(rules, row.patterns...)
			case row.ask&bit != 0:
				rules = append(rules, Rule{row.permission, "*", Ask})
			default:
				rules = append(rules, Rule{row.permission, "*", Deny})
			}
		}
		for _, to := range names {
			rules = append(rules, Rule{PermissionSignal, string(to), Allow})
		}
		m[role] = rules
	}
	return m
}

func secretFiles(permission string) Rules {
	return Rules{{permission, "*.env", Ask}, {permission, "*.env.*", Ask}, {permission, "*.env.example", Allow}}
}

// dangerousCommands are those that destroy, publish, take rights, or show the environment, which
// may hold secrets. The list is a net under a careless agent and not a wall against a
// hostile one: a shell has other ways to say the same.
func dangerousCommands() Rules {
	var rules Rules
	for _, pattern := range []string{
		"rm *", "rmdir *", "shred *", "dd *", "mkfs*", "truncate *", "find * -delete*", "find * -exec*",
		"git push *", "git reset --hard*", "git clean *", "git checkout -- *", "git branch -D *",
		"sudo *", "su *", "doas *", "chmod *", "chown *", "kill *", "killall *", "pkill *", "shutdown *", "reboot *",
		"curl *", "wget *", "ssh *", "scp *", "npm publish *", "docker push *",
		"env", "env *", "printenv *", "export -p*", "set",
	} {
		rules = append(rules, Rule{"bash", pattern, Ask})
	}
	return rules
}

// Rules returns what a role may do. Case does not count in a role's name. A role that is
// not in the matrix may do nothing.
func (m RoleMatrix) Rules(role Role) Rules {
	if rules, ok := m[role]; ok {
		return slices.Clone(rules)
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if strings.EqualFold(string(name), string(role)) {
			return slices.Clone(m[name])
		}
	}
	return Rules{{"*", "*", Deny}}
}

// The capabilities that OpenCode names differently in 2.x, and those it no longer has.
var (
	renamedV2 = map[string]string{"bash": "shell", "task": "subagent", "apply_patch": "patch"}
	missingV2 = []string{"list", "todowrite", "lsp"}
)

// ProjectV2 returns rules of OpenCode 1.x in the capability names of 2.x, patterns and order
// as they are: "bash" is "shell", "task" is "subagent", "apply_patch" is "patch". Left out, and
// returned beside them, are rules about what 2.x does not have. A wildcard for
// a capability stays as it is and, if it matches an old name and not the new one, is
// followed by a rule for the new.
//
// The shapes in JSON are those of Rules and RulesV2.
func ProjectV2(rules Rules) (v2, missing Rules) {
	for _, r := range rules {
		if slices.Contains(missingV2, r.Permission) {
			missing = append(missing, r)
			continue
		}
		if name, ok := renamedV2[r.Permission]; ok {
			r.Permission = name
			v2 = append(v2, r)
			continue
		}
		v2 = append(v2, r)
		for _, old := range []string{"bash", "task", "apply_patch"} {
			if (Matching{}).Match(r.Permission, old) && !(Matching{}).Match(r.Permission, renamedV2[old]) {
				v2 = append(v2, Rule{renamedV2[old], r.Pattern, r.Effect})
			}
		}
	}
	return v2, missing
}

// Permissions returns the matrix as the port that channels take: the role is that of the
// caller in the context (see WithCaller), who must be the session that is asked about, or
// everything is denied. An Ask is Unanswered, since a channel does not wait for
// anybody. Later changes of the matrix count; do not change it while channels use it.
func (m RoleMatrix) Permissions() PermissionsFunc {
	return func(ctx context.Context, session SessionID, action, resource string) (Effect, error) {
		caller, err := callerOf(ctx)
		if err != nil || caller.Session != session {
			return Deny, err
		}
		return Evaluate(action, resource, m.Rules(caller.Role)).Unattended().Effect, nil
	}
}

// permit asks p, if there is one, and returns a *PermissionError for all but Allow.
func permit(ctx context.Context, p Permissions, session SessionID, permission, resource string) error {
	if p == nil {
		return nil
	}
	effect, err := p.Evaluate(ctx, session, permission, resource)
	if err != nil {
		return err
	}
	if effect == Ask {
		effect = Unanswered // a call of a channel is not held up for an answer
	}
	return Decision{Permission: permission, Resource: resource, Effect: effect}.Err()
}

package hosttest

import (
	"context"
	"fmt"
	"testing"

	"github.com/teamchan/team"
)

// A PermissionsHost is a [team.Permissions] and what its laws need.
type PermissionsHost struct {
	team.Permissions

	// Rule makes a session with rules of its own behind those of its agent, in order.
	Rule func(ctx context.Context, rules ...PermissionRule) (team.SessionID, error)

	// Unknown has the form of a session's id, and is none.
	Unknown team.SessionID

	// Dialogs returns how many requests wait for a person. May be in Lacks.
	Dialogs func(context.Context) (int, error)

	// Lacks has the reason for each hook that is nil, under its name.
	Lacks map[string]string
}

// A PermissionRule is a rule for a host to keep, in words that every generation has.
type PermissionRule struct {
	Action   string // "edit"
	Resource string // a pattern
	Effect   team.Effect
}

func (h PermissionsHost) lacking(hook string) (bool, string) {
	there := map[string]bool{"Rule": h.Rule != nil, "Dialogs": h.Dialogs != nil}
	return there[hook], h.Lacks[hook]
}

// Permissions checks the laws of [team.Permissions].
func Permissions(t *testing.T, open func(testing.TB) PermissionsHost) { run(t, permissionLaws, open) }

// effects are resources and the effect that is wanted for each.
type effects map[string]team.Effect

func decides(ctx context.Context, h PermissionsHost, rules []PermissionRule, want effects) error {
	id, err := h.Rule(ctx, rules...)
	if err != nil {
		return err
	}
	for resource, effect := range want {
		if got, err := h.Evaluate(ctx, id, "edit", resource); err != nil || got != effect {
			return wrong("with rules %v, Evaluate(edit, %q) = %q, %v, want %q", rules, resource, got, err, effect)
		}
	}
	return nil
}

var permissionLaws = []law[PermissionsHost]{
	{
		name: "evaluate/effects", says: "Evaluate returns the effect of the rule that matches",
		needs: []string{"Rule"},
		check: func(ctx context.Context, h PermissionsHost) error {
			return decides(ctx, h, []PermissionRule{{"edit", "a", team.Allow}, {"edit", "b", team.Ask}, {"edit", "c", team.Deny}},
				effects{"a": team.Allow, "b": team.Ask, "c": team.Deny})
		},
	},
	{
		name: "evaluate/last wins", says: "The last rule that matches wins, whatever the others say",
		needs: []string{"Rule"},
		check: func(ctx context.Context, h PermissionsHost) error {
			if err := decides(ctx, h, []PermissionRule{{"edit", "*", team.Deny}, {"edit", "a", team.Allow}}, effects{"a": team.Allow, "b": team.Deny}); err != nil {
				return err
			}
			return decides(ctx, h, []PermissionRule{{"edit", "a", team.Allow}, {"edit", "*", team.Deny}}, effects{"a": team.Deny, "b": team.Deny})
		},
	},
	{
		name: "evaluate/wildcards", says: `"*" is any run of characters, "/" too, and "?" is one; the rest is literal`,
		needs: []string{"Rule"},
		check: func(ctx context.Context, h PermissionsHost) error {
			return decides(ctx, h, []PermissionRule{{"edit", "*", team.Ask}, {"edit", "src/*", team.Allow}, {"edit", "?.md", team.Deny}, {"edit", "[x].go", team.Deny}},
				effects{"src/a/b": team.Allow, "src": team.Ask, "a.md": team.Deny, "ab.md": team.Ask, "[x].go": team.Deny, "x.go": team.Ask})
		},
	},
	{
		name: "evaluate/no dialog", says: "Evaluate asks nobody, also where the effect is ask",
		needs: []string{"Rule", "Dialogs"},
		check: func(ctx context.Context, h PermissionsHost) error {
			before, err := h.Dialogs(ctx)
			if err != nil {
				return err
			}
			if err := decides(ctx, h, []PermissionRule{{"edit", "*", team.Ask}}, effects{"a": team.Ask}); err != nil {
				return err
			}
			if after, err := h.Dialogs(ctx); err != nil || after != before {
				return fmt.Errorf("%d requests wait, %v, want %d as before", after, err, before)
			}
			return nil
		},
	},
	{
		name: "evaluate/unknown session", says: "Evaluate for a session that does not exist is ErrNotFound, and no effect",
		check: func(ctx context.Context, h PermissionsHost) error {
			got, err := h.Evaluate(ctx, h.Unknown, "edit", "a")
			if got != "" {
				return wrong("Evaluate = %q, want no effect", got)
			}
			return is("Evaluate", err, team.ErrNotFound)
		},
	},
}

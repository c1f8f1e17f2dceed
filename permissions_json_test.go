package team_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
)

func TestRulesReadBothShapes(t *testing.T) {
	want := team.Rules{{"bash", "git *", team.Allow}, {"edit", "*", team.Deny}}
	for _, in := range []string{
		`[{"permission":"bash","pattern":"git *","action":"allow"},{"action":"deny","pattern":"*","permission":"edit"}]`,
		`[{"action":"bash","resource":"git *","effect":"allow"},{"effect":"deny","resource":"*","action":"edit"}]`,
		`[{"action":"bash","resource":"git *","effect":"allow"},{"permission":"edit","pattern":"*","action":"deny"}]`,
		`{"bash":{"git *":"allow"},"edit":"deny"}`,
	} {
		var rules team.Rules
		require.NoError(t, json.Unmarshal([]byte(in), &rules), in)
		require.Equal(t, want, rules, in)
		var v2 team.RulesV2
		require.NoError(t, json.Unmarshal([]byte(in), &v2))
		require.Equal(t, want, team.Rules(v2))
	}
	v1, err := json.Marshal(want)
	require.NoError(t, err)
	require.JSONEq(t, `[{"permission":"bash","pattern":"git *","action":"allow"},{"permission":"edit","pattern":"*","action":"deny"}]`, string(v1))
	v2, err := json.Marshal(team.RulesV2(want))
	require.NoError(t, err)
	require.JSONEq(t, `[{"action":"bash","resource":"git *","effect":"allow"},{"action":"edit","resource":"*","effect":"deny"}]`, string(v2))
	t.Run("action is the effect in one and the capability in the other", func(t *testing.T) {
		rules, err := team.ParseRules([]byte(`[{"permission":"deny","pattern":"ask","action":"allow"},{"action":"deny","resource":"ask","effect":"allow"}]`))
		require.NoError(t, err)
		require.Equal(t, rules[0], rules[1])
	})
	t.Run("a config keeps the order of its keys", func(t *testing.T) {
		rules, err := team.ParseRules([]byte(`{"z":"ask","bash":{"*":"deny","b":"ask","a":"allow"},"a":"allow"}`))
		require.NoError(t, err)
		require.Equal(t, team.Rules{{"z", "*", team.Ask}, {"bash", "*", team.Deny}, {"bash", "b", team.Ask}, {"bash", "a", team.Allow}, {"a", "*", team.Allow}}, rules)
	})
	t.Run("an effect alone is for everything", func(t *testing.T) {
		rules, err := team.ParseRules([]byte(`"ask"`))
		require.NoError(t, err)
		require.Equal(t, team.Rules{{"*", "*", team.Ask}}, rules)
	})
	t.Run("nothing and none are kept apart", func(t *testing.T) {
		for _, s := range []string{"null", "[]"} {
			rules, err := team.ParseRules([]byte(s))
			require.NoError(t, err)
			out, err := json.Marshal(rules)
			require.NoError(t, err)
			require.Equal(t, s, string(out))
		}
	})
	t.Run("one rule alone", func(t *testing.T) {
		var r team.Rule
		require.NoError(t, json.Unmarshal([]byte(`{"action":"shell","resource":"x","effect":"ask"}`), &r))
		require.Equal(t, team.Rule{"shell", "x", team.Ask}, r)
		out, err := json.Marshal(struct{ R team.Rule }{r})
		require.NoError(t, err)
		require.JSONEq(t, `{"R":{"permission":"shell","pattern":"x","action":"ask"}}`, string(out))
		require.Error(t, json.Unmarshal([]byte(`null`), &r))
	})
}

func TestRulesRefuseWhatTheyCouldNotGiveBack(t *testing.T) {
	for says, in := range map[string]string{
		"fields of both shapes":                 `[{"permission":"a","pattern":"b","effect":"deny"}]`,
		"all fields":                            `[{"permission":"a","pattern":"b","action":"deny","resource":"b","effect":"deny"}]`,
		"a field missing":                       `[{"permission":"a","action":"deny"}]`,
		"a field twice":                         `[{"permission":"a","pattern":"b","action":"deny","action":"allow"}]`,
		"a field that is not known":             `[{"permission":"a","pattern":"b","action":"deny","unless":"c"}]`,
		"a field in another case":               `[{"Permission":"a","pattern":"b","action":"deny"}]`,
		"an effect that is none":                `[{"permission":"a","pattern":"b","action":"never"}]`,
		"an effect in another case":             `[{"permission":"a","pattern":"b","action":"Deny"}]`,
		"unanswered, which is no rule's":        `[{"permission":"a","pattern":"b","action":"unanswered"}]`,
		"a pattern that is no string":           `[{"permission":"a","pattern":["b"],"action":"deny"}]`,
		"a rule that is no object":              `["deny"]`,
		"one rule where rules should be":        `{"permission":"a","pattern":"b","action":"deny"}`,
		"a name twice in a config":              `{"bash":"ask","bash":"deny"}`,
		"a pattern twice in a config":           `{"bash":{"a":"ask","a":"deny"}}`,
		"neither effect nor patterns":           `{"bash":null}`,
		"a number":                              `1`,
		"something behind":                      `[] []`,
		"no JSON":                               `[{"permission":`,
		"nothing":                               ``,
		"a trailing comma":                      `[{"permission":"a","pattern":"b","action":"deny"},]`,
		"half a surrogate pair":                 `[{"permission":"a","pattern":"\ud800","action":"deny"}]`,
		"the other half":                        `[{"permission":"a\udc00b","pattern":"x","action":"deny"}]`,
		"what is not UTF-8":                     "[{\"permission\":\"\xff\",\"pattern\":\"b\",\"action\":\"deny\"}]",
		"very deep nesting":                     strings.Repeat("[", 100_000),
		"a very deep object instead of effects": strings.Repeat(`{"a":`, 100_000),
	} {
		t.Run(says, func(t *testing.T) {
			rules, err := team.ParseRules([]byte(in))
			require.ErrorIs(t, err, team.ErrInvalid, in)
			require.Nil(t, rules)
			keep := team.Rules{{"a", "b", team.Ask}}
			require.Error(t, json.Unmarshal([]byte(in), &keep))
			require.Equal(t, team.Rules{{"a", "b", team.Ask}}, keep, "a refusal changes nothing")
		})
	}
	t.Run("written rules need an effect", func(t *testing.T) {
		for _, r := range []team.Rule{{}, {"a", "b", "x"}, {"a", "b", team.Unanswered}, {"a", "\xff", team.Deny}} {
			_, err := json.Marshal(team.Rules{r})
			require.ErrorIs(t, err, team.ErrInvalid)
			_, err = json.Marshal(team.RulesV2{r})
			require.ErrorIs(t, err, team.ErrInvalid)
		}
	})
	t.Run("a whole pair, and the replacement character itself, are kept", func(t *testing.T) {
		rules, err := team.ParseRules([]byte(`[{"permission":"\ud83d\ude00\ufffd\\ud800","pattern":"\ufffd` + "\uFFFD" + `","action":"deny"}]`))
		require.NoError(t, err)
		require.Equal(t, team.Rules{{"😀\uFFFD\\ud800", "\uFFFD\uFFFD", team.Deny}}, rules)
	})
}

func FuzzRules(f *testing.F) {
	for _, s := range []string{
		`[{"permission":"bash","pattern":"git *","action":"allow"}]`, `[{"action":"shell","resource":"*","effect":"deny"}]`,
		`{"bash":{"*":"ask","a\u0000":"deny"},"edit":"allow"}`, `"ask"`, `null`, `[{"permission":"\ud83d\ude00\ufffd","pattern":"\ud800","action":"deny"}]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rules, err := team.ParseRules(data)
		if err != nil {
			require.ErrorIs(t, err, team.ErrInvalid)
			return
		}
		require.True(t, json.Valid(data))
		for _, shape := range []any{rules, team.RulesV2(rules)} {
			out, err := json.Marshal(shape)
			require.NoError(t, err)
			again, err := team.ParseRules(out)
			require.NoError(t, err)
			if !reflect.DeepEqual(rules, again) {
				t.Fatalf("%q became %q", rules, again)
			}
		}
	})
}

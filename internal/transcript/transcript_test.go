package transcript_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/teamchan/team/internal/transcript"
)

func value(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestOf(t *testing.T) {
	one := `{"id":"msg_B","parent":"ses_A","again":"msg_B","evt":"evt_1","at":1791500000000,"n":7,"slug":"happy-hippo",
		"hash":"0123456789abcdef0123456789abcdef01234567","path":"/tmp/x/p/a.go","text":"the call call_Z of ses_A"}`
	two := strings.NewReplacer("msg_B", "msg_Q", "ses_A", "ses_R", "evt_1", "evt_9", "1791500000000", "1891500000000", "happy-hippo", "sad-seal",
		"0123456789abcdef0123456789abcdef01234567", "9999999999999999999999999999999999999999", "/tmp/x", "/var/y", "call_Z", "call_0").Replace(one)
	a, b := transcript.New("/tmp/x/p", "/workspace").Of(value(t, one)), transcript.New("/var/y/p", "/workspace").Of(value(t, two))
	if got := transcript.Same("$", a, b); got != nil {
		t.Errorf("two runs differ: %q", got)
	}
	m := a.(map[string]any)
	for key, want := range map[string]any{"id": "msg#1", "again": "msg#1", "parent": "ses#1", "at": "ms", "n": 7.0, "path": "/workspace/a.go", "text": "the call call#1 of ses#1"} {
		if m[key] != want {
			t.Errorf("%s = %v, want %v", key, m[key], want)
		}
	}
	t.Run("which id stands where still counts", func(t *testing.T) {
		p := transcript.New()
		first, other := p.Of(value(t, `["msg_A","msg_B","msg_A"]`)), transcript.New().Of(value(t, `["msg_A","msg_B","msg_B"]`))
		if got := transcript.Same("$", first, other); len(got) != 1 {
			t.Errorf("differences = %q, want the third id", got)
		}
	})
}

// A comparison that misses a difference would make every fake right.
func TestSameSeesEveryDifference(t *testing.T) {
	base := `{"a":[1,{"b":"x"},null,true],"c":"text [host text] end"}`
	for _, other := range []string{
		`{"a":[2,{"b":"x"},null,true],"c":"text and end"}`,
		`{"a":[1,{"b":"y"},null,true],"c":"text and end"}`,
		`{"a":[1,{"b":"x"},false,true],"c":"text and end"}`,
		`{"a":[1,{"b":"x"},null,1],"c":"text and end"}`,
		`{"a":[1,{"b":"x"},null],"c":"text and end"}`,
		`{"a":[1,{"b":"x"},null,true,1],"c":"text and end"}`,
		`{"a":[1,{"b":"x","d":1},null,true],"c":"text and end"}`,
		`{"a":[1,{},null,true],"c":"text and end"}`,
		`{"a":[1,["x"],null,true],"c":"text and end"}`,
		`{"a":{"0":1},"c":"text and end"}`,
		`{"a":[1,{"b":"x"},null,true],"c":"text  end"}`,
		`{"a":[1,{"b":"x"},null,true],"c":"text and end."}`,
		`{"a":[1,{"b":"x"},null,true],"c":7}`,
		`{"a":[1,{"b":"x"},null,true]}`,
		`[]`, `"x"`, `null`,
	} {
		if got := transcript.Same("$", value(t, base), value(t, other)); len(got) != 1 {
			t.Errorf("differences to %s = %q, want one", other, got)
		}
	}
	if got := transcript.Same("$", value(t, base), value(t, `{"a":[1,{"b":"x"},null,true],"c":"text whatever it is, and end"}`)); got != nil {
		t.Errorf("differences = %q, want none", got)
	}
}

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		want, got string
		matches   bool
	}{
		{"plain", "plain", true},
		{"plain", "plainer", false},
		{transcript.Note, "anything", true},
		{transcript.Note, "", false},
		{"a" + transcript.Note, "ab", true},
		{"a" + transcript.Note, "a", false},
		{transcript.Note + "z", "yz", true},
		{transcript.Note + "z", "z", false},
		{"a" + transcript.Note + "m" + transcript.Note + "z", "a1m2z", true},
		{"a" + transcript.Note + "m" + transcript.Note + "z", "a1m2", false},
	} {
		if got := transcript.Matches(test.want, test.got); got != test.matches {
			t.Errorf("Matches(%q, %q) = %v", test.want, test.got, got)
		}
	}
}

func TestShort(t *testing.T) {
	if got := transcript.Short(strings.Repeat("x", 10_000)); len(got) > 400 || !strings.Contains(got, "10002 bytes") {
		t.Errorf("Short = %d bytes: %s", len(got), got)
	}
}

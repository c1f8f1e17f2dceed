package team

// Inside tests, since the layout of keys and records is not exported.

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// PutRaw lets the external tests write what a Ledger refuses to.
func PutRaw(l *Ledger, ctx context.Context, key string, value json.RawMessage) error {
	_, err := l.carryOut(ctx, []Edit{{Key: key, Value: value, Prev: AnyVersion}}, nil, l.write)
	return err
}

// HostTurns returns how many keys a HostRecords remembers.
func HostTurns(r Records) int { return len(r.(*hostRecords).turns) }

// Two scopes, or two keys, that differ never share a stored key, and no scope's
// keys are among another's.
func FuzzLedgerKey(f *testing.F) {
	f.Add("p", "s", "a", "k", "p", "s", "a", "k2")
	f.Add("p/s", "", "a", "k", "p", "s", "a", "k")
	f.Add("p%2Fs", "", "", "k", "p/s", "", "", "k")
	f.Add("p", "", "", "s/a/k", "p", "s", "a", "k")
	f.Add("%", "%25", "%2525", "%2F", "%25", "%", "%2F", "/")
	f.Add("p", "", "s", "k", "p", "s", "", "k")
	f.Fuzz(func(t *testing.T, p1, s1, a1, k1, p2, s2, a2, k2 string) {
		one, two := Scope{p1, SessionID(s1), a1}, Scope{p2, SessionID(s2), a2}
		prefix1, err1 := one.prefix()
		prefix2, err2 := two.prefix()
		if err1 != nil || err2 != nil || checkFactKey(k1) != nil || checkFactKey(k2) != nil {
			return
		}
		if len(prefix1+k1) > 1024 {
			t.Errorf("stored key has %d bytes, want at most 1024", len(prefix1+k1))
		}
		if (one == two) != (prefix1 == prefix2) {
			t.Errorf("prefixes of %q and %q = %q and %q, want them equal only if the scopes are", one, two, prefix1, prefix2)
		}
		if one != two && (strings.HasPrefix(prefix1+k1, prefix2) || strings.HasPrefix(prefix2+k2, prefix1)) {
			t.Errorf("key %q of %q and key %q of %q = %q and %q, want neither in the other's scope", k1, one, k2, two, prefix1+k1, prefix2+k2)
		}
		scope, key, ok := parseLedgerKey(prefix1 + k1)
		if !ok || scope != one || key != k1 {
			t.Errorf("parseLedgerKey(%q) = %q, %q, %v, want %q, %q", prefix1+k1, scope, key, ok, one, k1)
		}
		if !strings.HasPrefix(prefix1, projectPrefix(p1)) || (p1 != p2) == strings.HasPrefix(prefix2, projectPrefix(p1)) {
			t.Errorf("project %q = %q, want it to start %q, and %q only for the same project", p1, projectPrefix(p1), prefix1, prefix2)
		}
	})
}

// Whatever is stored under a key is the record that was written, or ErrCorrupt.
func FuzzLedgerRecord(f *testing.F) {
	whole := func(stored string, fact Fact) []byte {
		b, err := encodeFact(stored, fact)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	at := time.UnixMilli(1_700_000_000_123).UTC()
	f.Add("k", whole("k", Fact{Value: json.RawMessage(`{"a":"b\nc"}`), At: at, TTL: time.Hour, By: Caller{"ses_1", "lead"}}))
	f.Add("k", whole("k", Fact{Value: json.RawMessage("1\n"), At: at, TTL: Forever, By: Caller{Role: "le\nad"}}))
	f.Add("k", []byte("tm1 00000000 {}\n"))
	f.Add("k", []byte("tm1"))
	f.Add("k", []byte(`tm1 00000000 {"role":"r","at":1,"ttl":1}`+"\n1"))
	f.Add("k", []byte(`tm1 00000000 {"at":-9223372036854775808,"ttl":3153600000000}`+"\n"))
	f.Fuzz(func(t *testing.T, stored string, data []byte) {
		if _, err := decodeFact(stored, stored, Record{Value: data}); err != nil && len(data) > 12 {
			// Give it a checksum that is right, to get behind it.
			copy(data, fmt.Sprintf("%s%08x", factMagic, factSum(stored, data[12:])))
		}
		fact, err := decodeFact(stored, stored, Record{Key: stored, Value: data, Version: "v1"})
		if err != nil {
			return
		}
		again, err := encodeFact(stored, fact)
		if err != nil {
			t.Fatal(err)
		}
		second, err := decodeFact(stored, stored, Record{Value: again, Version: "v1"})
		if err != nil || string(second.Value) != string(fact.Value) || second.By != fact.By || !second.At.Equal(fact.At) ||
			second.TTL != fact.TTL || !second.Expires.Equal(fact.Expires) {
			t.Errorf("written and read again = %+v, %v, want %+v", second, err, fact)
		}
		if _, err := decodeFact(stored+"x", stored, Record{Value: again}); err == nil {
			t.Errorf("record of %q under another key = no error, want ErrCorrupt", stored)
		}
	})
}

// What is folded once stays as it is: else merging would depend on the order.
func FuzzGoalFold(f *testing.F) {
	for _, s := range []string{"Write the tests!", "ΣΊΣΥΦΟΣ", "ſ K Å", "a . . .", "İ", "e\u0301 \u0345"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		clean, err := goalText("text", text)
		if err != nil {
			return
		}
		if again, err := goalText("text", clean); err != nil || again != clean {
			t.Errorf("goalText(%q) = %q, %v, want it unchanged", clean, again, err)
		}
		folded := foldGoal(clean)
		for _, same := range []string{clean + " .", "  " + clean, strings.ReplaceAll(clean, " ", " \t"), strings.ToUpper(strings.ToLower(clean)) + "!"} {
			if strings.EqualFold(same, clean+"!") || !strings.HasSuffix(same, "!") {
				if got := foldGoal(same); got != folded {
					t.Errorf("foldGoal(%q) = %q, want %q as of %q", same, got, folded, clean)
				}
			}
		}
	})
}

package team

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Where a ledger keeps its records in the store:
//
//	team/ledger/<project>/<session>/<agent>/<key>
//
// In the three components of the scope "%" and "/" are escaped, so that none of
// them has a "/" and the whole can be taken apart again in one way only. The
// key follows as it is: the store's order is the ledger's.
const ledgerRoot = "team/ledger/"

const (
	maxFactKey     = 512 // bytes
	maxScopePrefix = 512 // bytes; with the key within what a store takes
)

var (
	scopeEscaper   = strings.NewReplacer("%", "%25", "/", "%2F")
	scopeUnescaper = strings.NewReplacer("%25", "%", "%2F", "/")
)

// prefix returns what the stored keys of a scope start with. No prefix is the
// start of another.
func (s Scope) prefix() (string, error) {
	for _, part := range []struct{ what, s string }{
		{"project", s.Project}, {"session", string(s.Session)}, {"agent", s.Agent},
	} {
		if part.what == "project" && part.s == "" {
			return "", &InvalidError{What: "scope project", Why: "is empty", Offset: -1}
		}
		if err := checkLine("scope "+part.what, part.s); err != nil {
			return "", err
		}
	}
	p := projectPrefix(s.Project) + scopeEscaper.Replace(string(s.Session)) + "/" + scopeEscaper.Replace(s.Agent) + "/"
	if len(p) > maxScopePrefix {
		return "", &LimitError{What: "scope bytes, escaped", Got: int64(len(p)), Max: maxScopePrefix}
	}
	return p, nil
}

// projectPrefix returns what the stored keys of all scopes of a project start with.
func projectPrefix(project string) string { return ledgerRoot + scopeEscaper.Replace(project) + "/" }

// parseLedgerKey takes a stored key apart. It is false for a key that no ledger
// has made.
func parseLedgerKey(stored string) (Scope, string, bool) {
	rest, ok := strings.CutPrefix(stored, ledgerRoot)
	part := strings.SplitN(rest, "/", 4)
	if !ok || len(part) != 4 || checkFactKey(part[3]) != nil {
		return Scope{}, "", false
	}
	s := Scope{
		Project: scopeUnescaper.Replace(part[0]),
		Session: SessionID(scopeUnescaper.Replace(part[1])),
		Agent:   scopeUnescaper.Replace(part[2]),
	}
	if p, err := s.prefix(); err != nil || p+part[3] != stored {
		return Scope{}, "", false // another spelling than ours
	}
	return s, part[3], true
}

func checkFactKey(key string) error {
	if key == "" {
		return &InvalidError{What: "ledger key", Why: "is empty", Offset: -1}
	}
	if len(key) > maxFactKey {
		return &LimitError{What: "ledger key bytes", Got: int64(len(key)), Max: maxFactKey}
	}
	return checkLine("ledger key", key)
}

// checkLine refuses what is not UTF-8 of one line.
func checkLine(what, s string) error {
	if !utf8.ValidString(s) {
		return &InvalidError{What: what, Why: "is not UTF-8", Offset: invalidAt(s)}
	}
	if i := strings.IndexFunc(s, breaksLine); i >= 0 {
		return &InvalidError{What: what, Why: "has a control character or a line break", Offset: i}
	}
	return nil
}

// checkJSON refuses what is not one JSON value in UTF-8.
func checkJSON(value []byte) error {
	if len(value) == 0 {
		return &InvalidError{What: "ledger value", Why: "is empty", Offset: -1, Advice: "an empty text is \"\", nothing at all is null"}
	}
	if !utf8.Valid(value) {
		return &InvalidError{What: "ledger value", Why: "is not UTF-8", Offset: invalidAt(string(value))}
	}
	if json.Valid(value) {
		return nil
	}
	bad := &InvalidError{What: "ledger value", Why: "is not one JSON value", Offset: -1, Advice: "put a text in quotes, with json.Marshal"}
	var raw json.RawMessage
	if e, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(value, &raw)); ok {
		bad.Offset = max(int(e.Offset)-1, 0)
	}
	return bad
}

// A stored record is a line and the value, byte for byte:
//
//	tm1 <crc> {"role":…,"session":…,"at":…,"ttl":…}
//	<value>
//
// The checksum (CRC-32C, in hex) covers the stored key and everything behind
// it, so that a record that was changed or copied to another place shows.
const factMagic = "tm1 "

type factHeader struct {
	Role    Role      `json:"role"`
	Session SessionID `json:"session,omitempty"`
	At      int64     `json:"at"`            // Unix milliseconds
	TTL     int64     `json:"ttl,omitempty"` // milliseconds; zero is for ever
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeFact makes the stored record of f. f.TTL is in whole milliseconds.
func encodeFact(stored string, f Fact) ([]byte, error) {
	h := factHeader{Role: f.By.Role, Session: f.By.Session, At: f.At.UnixMilli()}
	if f.TTL != Forever {
		h.TTL = f.TTL.Milliseconds()
	}
	line, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	const sumEnd = len(factMagic) + 8
	b := make([]byte, sumEnd+1, sumEnd+2+len(line)+len(f.Value))
	b[sumEnd] = ' '
	b = append(b, line...)
	b = append(b, '\n')
	b = append(b, f.Value...)
	copy(b, fmt.Sprintf("%s%08x", factMagic, factSum(stored, b[sumEnd:])))
	return b, nil
}

func factSum(stored string, rest []byte) uint32 {
	return crc32.Update(crc32.Checksum(bytesOf(stored), castagnoli), castagnoli, rest)
}

// decodeFact reads a stored record. Whatever is wrong with it is ErrCorrupt.
func decodeFact(stored, key string, r Record) (Fact, error) {
	bad := func(why string) (Fact, error) {
		return Fact{}, fmt.Errorf("%w: the stored record %s; a Put or Delete with AnyVersion replaces it", ErrCorrupt, why)
	}
	const sumEnd = len(factMagic) + 8
	line, value, ok := bytes.Cut(r.Value, []byte("\n"))
	head := string(line)
	if !ok || len(head) < sumEnd+1 || !strings.HasPrefix(head, factMagic) || head[sumEnd] != ' ' {
		return bad("is none of a ledger")
	}
	sum, err := strconv.ParseUint(head[len(factMagic):sumEnd], 16, 32)
	if err != nil || uint32(sum) != factSum(stored, r.Value[sumEnd:]) {
		return bad("has another checksum than when it was written")
	}
	var h factHeader
	if err := json.Unmarshal([]byte(head[sumEnd+1:]), &h); err != nil || h.TTL < 0 || h.TTL > int64(maxTTL/time.Millisecond) {
		return bad("has no header that can be read")
	}
	f := Fact{
		Key: key, Value: json.RawMessage(value), Version: r.Version,
		By: Caller{Session: h.Session, Role: h.Role}, At: time.UnixMilli(h.At).UTC(), TTL: Forever,
	}
	if h.TTL > 0 {
		f.TTL = time.Duration(h.TTL) * time.Millisecond
		f.Expires = f.At.Add(f.TTL)
	}
	return f, nil
}

// maxTTL is the longest time to live: about what a Duration can hold.
const maxTTL = 100 * 365 * 24 * time.Hour

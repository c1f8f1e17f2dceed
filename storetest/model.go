package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/teamchan/team"
)

// A model is a store in the plainest possible way: lists, looked through from
// the start. It has no clock; its leases hold for ever. Calls return what the
// store must return, with the error's kind instead of the error. What only the
// store can choose (numbers, tokens, versions) the model is told.
type model struct {
	queues  map[string]*[]*modelItem
	records map[string]*modelRecord
}

type modelItem struct {
	team.Item
	seq     team.Seq
	state   team.ItemState
	attempt int
	dead    bool // by MaxAttempts: then the reason is the store's own
	reason  string
	token   string
}

type modelRecord struct {
	value    string
	version  team.Version          // zero if there is none now
	versions map[team.Version]bool // all there ever were
}

func newModel() *model {
	return &model{queues: make(map[string]*[]*modelItem), records: make(map[string]*modelRecord)}
}

func (m *model) queue(name string) *[]*modelItem {
	if m.queues[name] == nil {
		m.queues[name] = new([]*modelItem)
	}
	return m.queues[name]
}

func (m *model) record(key string) *modelRecord {
	if m.records[key] == nil {
		m.records[key] = &modelRecord{versions: make(map[team.Version]bool)}
	}
	return m.records[key]
}

// clone copies what a Commit that fails must leave as it was.
func (m *model) clone() *model {
	c := newModel()
	for name, q := range m.queues {
		for _, it := range *q {
			copied := *it
			*c.queue(name) = append(*c.queue(name), &copied)
		}
	}
	for key, r := range m.records {
		c.records[key] = &modelRecord{value: r.value, version: r.version, versions: maps.Clone(r.versions)}
	}
	return c
}

// append returns, for each item, the one that its receipt must be of.
func (m *model) append(queue string, items []team.Item, max int) ([]*modelItem, []bool, error) {
	q := m.queue(queue)
	list := slices.Clone(*q)
	var got []*modelItem
	var replayed []bool
	added, held := 0, 0
	for _, it := range items {
		var first *modelItem
		for _, old := range list {
			if it.Key != "" && old.Key == it.Key {
				first = old
			}
		}
		if first != nil {
			if first.Digest != it.Digest {
				return nil, nil, team.ErrConflict
			}
			got, replayed = append(got, first), append(replayed, true)
			continue
		}
		for _, old := range list {
			if old.ID == it.ID {
				return nil, nil, team.ErrConflict
			}
		}
		added++
		made := &modelItem{Item: it, state: team.ItemPending}
		list = append(list, made)
		got, replayed = append(got, made), append(replayed, false)
	}
	for _, it := range list {
		if !it.state.Settled() {
			held++
		}
	}
	if max > 0 && added > 0 && held > max {
		return nil, nil, team.ErrLimit
	}
	*q = list
	return got, replayed, nil
}

// claim returns the items that must be handed out.
func (m *model) claim(queue string, opts team.ClaimOptions) ([]*modelItem, error) {
	var got, dead []*modelItem
	cost := 0
	for _, it := range *m.queue(queue) {
		if len(got) == opts.Max {
			break
		}
		if it.state != team.ItemPending {
			continue
		}
		if opts.MaxAttempts > 0 && it.attempt >= opts.MaxAttempts {
			dead = append(dead, it)
			continue
		}
		if opts.Budget > 0 && cost+it.Cost > opts.Budget {
			if len(got) == 0 {
				return nil, team.ErrLimit
			}
			break
		}
		cost += it.Cost
		got = append(got, it)
	}
	for _, it := range dead {
		it.state, it.dead = team.ItemDead, true
	}
	for _, it := range got {
		it.state = team.ItemClaimed
		it.attempt++
	}
	return got, nil
}

// settle does one settlement, or returns why not. A settled item may be gone, so
// where both are right it says ErrConflict.
func (m *model) settle(queue string, st team.Settlement) error {
	var it *modelItem
	for _, o := range *m.queue(queue) {
		if o.seq == st.Seq {
			it = o
		}
	}
	if it == nil {
		return team.ErrNotFound
	}
	var from team.ItemState
	switch st.Verdict {
	case team.VerdictCancel, team.VerdictAmend:
		from = team.ItemPending
	case team.VerdictRedrive:
		from = team.ItemDead
	default:
		from = team.ItemClaimed
		if st.Token != it.token {
			return team.ErrConflict
		}
		if it.state == team.ItemAcked && st.Verdict == team.VerdictAck ||
			it.state == team.ItemDead && !it.dead && st.Verdict == team.VerdictBury {
			return nil
		}
	}
	if it.state != from {
		return team.ErrConflict
	}
	switch st.Verdict {
	case team.VerdictAck:
		it.state, it.reason = team.ItemAcked, st.Reason
	case team.VerdictRelease:
		it.state = team.ItemPending
	case team.VerdictBury:
		it.state, it.reason = team.ItemDead, st.Reason
	case team.VerdictCancel:
		it.state = team.ItemCancelled
	case team.VerdictAmend:
		it.Data = st.Data
	case team.VerdictRedrive:
		it.state, it.attempt, it.reason, it.dead = team.ItemPending, 0, "", false
	}
	return nil
}

// put must be told the new version afterwards, with wrote.
func (m *model) put(key, value string, prev team.Version) error {
	r := m.record(key)
	if prev != team.AnyVersion && prev != r.version {
		return team.ErrConflict
	}
	r.value = value
	return nil
}

// wrote notes the version that a Put returned.
func (m *model) wrote(key string, v team.Version) error {
	r := m.record(key)
	if v == "" || v == team.AnyVersion || r.versions[v] {
		return fmt.Errorf("version of %q = %q, want one that it never had before", key, v)
	}
	r.version, r.versions[v] = v, true
	return nil
}

func (m *model) delete(key string, prev team.Version) error {
	r := m.record(key)
	if r.version == "" {
		return team.ErrNotFound
	}
	if prev != team.AnyVersion && prev != r.version {
		return team.ErrConflict
	}
	r.version = ""
	return nil
}

// keys returns the keys there are, in order.
func (m *model) keys(prefix, after string) []string {
	var list []string
	for key, r := range m.records {
		if r.version != "" && strings.HasPrefix(key, prefix) && key > after {
			list = append(list, key)
		}
	}
	slices.Sort(list)
	return list
}

// usage returns how many keys there are, and the bytes of them and of their values.
func (m *model) usage(prefix string) (keys int, bytes int64) {
	for _, key := range m.keys(prefix, "") {
		keys++
		bytes += int64(len(key) + len(m.records[key].value))
	}
	return keys, bytes
}

// same compares a queue with what the store lists of it, settled items too. It
// drops the settled items that the store does not keep: from here on their ids
// and keys are as new.
func (m *model) same(queue string, listed []team.StoredItem) error {
	q := m.queue(queue)
	bySeq := make(map[team.Seq]team.StoredItem, len(listed))
	for i, it := range listed {
		if i > 0 && it.Seq <= listed[i-1].Seq {
			return fmt.Errorf("listing yields seq %d behind %d, want ascending order", it.Seq, listed[i-1].Seq)
		}
		bySeq[it.Seq] = it
	}
	*q = slices.DeleteFunc(*q, func(it *modelItem) bool {
		_, ok := bySeq[it.seq]
		return !ok && it.state.Settled() && it.state != team.ItemDead
	})
	if len(listed) != len(*q) {
		return fmt.Errorf("listing yields %d items of %s, want %d", len(listed), queue, len(*q))
	}
	for i, want := range *q {
		got := listed[i]
		if it := want.Item; got.ID != it.ID || got.Key != it.Key || got.Digest != it.Digest ||
			got.Cost != it.Cost || !got.Expires.IsZero() || string(got.Data) != string(it.Data) {
			return fmt.Errorf("item %d of %s = %+v, want %+v", i, queue, got.Item, it)
		}
		if got.Seq != want.seq || got.State != want.state || got.Attempt != want.attempt {
			return fmt.Errorf("%s = seq %d, %s, attempt %d, want seq %d, %s, attempt %d",
				got.ID, got.Seq, got.State, got.Attempt, want.seq, want.state, want.attempt)
		}
		if want.dead != (want.reason == "" && got.Reason != "") || !want.dead && got.Reason != want.reason {
			return fmt.Errorf("reason of %s = %q, want %q", got.ID, got.Reason, want.reason)
		}
	}
	return nil
}

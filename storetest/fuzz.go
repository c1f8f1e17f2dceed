package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/teamchan/team"
)

// Fuzz reads its input as a list of calls, makes them on a store and on a
// simple model, and compares what both return and what they hold after every
// call. Leases last an hour and nothing expires, so time plays no part.
func Fuzz(f *testing.F, open func(testing.TB) team.Store) {
	for _, seed := range seeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := replay(ctx, open(t), input); err != nil {
			t.Error(err)
		}
	})
}

// maxCalls bounds one input, so that a slow store gets through many.
const maxCalls = 48

// seeds returns inputs that reach everything there is. They are the same every
// time.
func seeds() [][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	list := [][]byte{nil}
	for range 24 {
		seed := make([]byte, 400)
		for i := range seed {
			seed[i] = byte(random.Uint32())
		}
		list = append(list, seed)
	}
	return list
}

// A script is one run of Fuzz.
type script struct {
	ctx    context.Context
	store  team.Store
	model  *model
	input  []byte
	ids    int
	tokens []string       // all that were given out
	old    []team.Version // likewise, of all keys
	last   map[string]team.Seq
}

// replay plays input and returns the first difference.
func replay(ctx context.Context, s team.Store, input []byte) error {
	sc := &script{ctx: ctx, store: s, model: newModel(), input: input, last: make(map[string]team.Seq)}
	var story []string
	for i := 0; i < maxCalls && len(sc.input) > 0; i++ {
		call, err := sc.step()
		story = append(story, call)
		if err == nil {
			err = sc.compare()
		}
		if err != nil {
			text := ""
			for i, call := range story {
				text += fmt.Sprintf("\n%3d. %s", i+1, call)
			}
			return fmt.Errorf("%w\nafter these calls:%s", err, text)
		}
	}
	return nil
}

// pick reads a number below n.
func (sc *script) pick(n int) int {
	if len(sc.input) == 0 {
		return 0
	}
	b := sc.input[0]
	sc.input = sc.input[1:]
	return int(b) % n
}

func (sc *script) queue() string { return []string{"q", "r"}[sc.pick(2)] }
func (sc *script) key() string   { return []string{"k", "k/1", "k/10", "é", "K"}[sc.pick(5)] }

// step makes the next call and says which it was.
func (sc *script) step() (string, error) {
	switch sc.pick(10) {
	case 0, 1:
		queue := sc.queue()
		list, max := sc.items(queue), sc.pick(8)
		call := fmt.Sprintf("Append(%s, %s, %d)", queue, briefly(list), max)
		got, err := sc.store.Append(sc.ctx, queue, list, max)
		want, replayed, wantErr := sc.model.append(queue, list, max)
		if err := kind(err, wantErr); err != nil || wantErr != nil {
			return call, err
		}
		return call, sc.receipts(queue, got, want, replayed)
	case 2, 3:
		return sc.claim()
	case 4, 5, 6:
		return sc.settle()
	case 7:
		c := sc.change()
		call := fmt.Sprintf("%+v", c)
		if c.Delete {
			return "Delete " + call, kind(sc.store.Delete(sc.ctx, c.Key, c.Prev), sc.model.delete(c.Key, c.Prev))
		}
		v, err := sc.store.Put(sc.ctx, c.Key, c.Value, c.Prev)
		wantErr := sc.model.put(c.Key, string(c.Value), c.Prev)
		if err := kind(err, wantErr); err != nil || wantErr != nil {
			return "Put " + call, err
		}
		return "Put " + call, sc.wrote(c.Key, v)
	case 8:
		prefix, after := []string{"", "k", "k/", "é"}[sc.pick(4)], []string{"", "k", "k/1", "z"}[sc.pick(4)]
		var got []string
		for key, err := range sc.store.Keys(sc.ctx, prefix, after) {
			if err != nil {
				return "Keys", err
			}
			got = append(got, key)
		}
		call := fmt.Sprintf("Keys(%q, %q)", prefix, after)
		if want := sc.model.keys(prefix, after); !slices.Equal(got, want) {
			return call, fmt.Errorf("%s = %q, want %q", call, got, want)
		}
		return call, nil
	default:
		return sc.commit()
	}
}

func (sc *script) claim() (string, error) {
	queue := sc.queue()
	opts := team.ClaimOptions{Max: 1 + sc.pick(3), Budget: sc.pick(6), MaxAttempts: sc.pick(4), Lease: hour}
	call := fmt.Sprintf("Claim(%s, Max %d, Budget %d, MaxAttempts %d)", queue, opts.Max, opts.Budget, opts.MaxAttempts)
	got, err := sc.store.Claim(sc.ctx, queue, opts)
	want, wantErr := sc.model.claim(queue, opts)
	if err := kind(err, wantErr); err != nil {
		return call, err
	}
	if len(got) != len(want) {
		return call, fmt.Errorf("%s hands out %d items, want %d", call, len(got), len(want))
	}
	for i, c := range got {
		if c.ID != want[i].ID || c.Seq != want[i].seq || c.Attempt != want[i].attempt {
			return call, fmt.Errorf("claim %d = %s, seq %d, attempt %d, want %s, seq %d, attempt %d",
				i, c.ID, c.Seq, c.Attempt, want[i].ID, want[i].seq, want[i].attempt)
		}
		if c.Token == "" || slices.Contains(sc.tokens, c.Token) {
			return call, fmt.Errorf("token of %s = %q, want one that never was", c.ID, c.Token)
		}
		sc.tokens = append(sc.tokens, c.Token)
		want[i].token = c.Token
	}
	return call, nil
}

// settle makes one call with up to three settlements.
func (sc *script) settle() (string, error) {
	queue := sc.queue()
	list := make([]team.Settlement, 1+sc.pick(3))
	var want []string
	for i := range list {
		st := &list[i]
		st.Seq = 1 << 40 // none
		items := *sc.model.queue(queue)
		if n := sc.pick(len(items) + 1); n < len(items) {
			st.Seq, st.Token = items[n].seq, items[n].token
		}
		if len(sc.tokens) > 0 && sc.pick(4) == 0 {
			st.Token = sc.tokens[sc.pick(len(sc.tokens))]
		}
		st.Verdict = []team.Verdict{team.VerdictAck, team.VerdictRelease, team.VerdictExtend, team.VerdictBury, team.VerdictCancel, team.VerdictRedrive, team.VerdictAmend}[sc.pick(7)]
		switch st.Verdict {
		case team.VerdictExtend:
			st.Delay = hour
		case team.VerdictBury:
			st.Reason = "a reason"
		case team.VerdictAmend:
			sc.ids++
			st.Data = fmt.Append(nil, "amended ", sc.ids)
		}
		if err := sc.model.settle(queue, *st); err != nil {
			want = append(want, fmt.Sprintf("%s of seq %d: %v", st.Verdict, st.Seq, err))
		}
	}
	call := fmt.Sprintf("Settle(%s, %+v)", queue, list)
	err := sc.store.Settle(sc.ctx, queue, list...)
	var got []string
	for i, e := range settleErrors(err) {
		target := e.Err
		for _, sentinel := range []error{team.ErrConflict, team.ErrNotFound} {
			if errors.Is(e, sentinel) {
				target = sentinel
			}
		}
		// A store that keeps no settled items may not find one that this very
		// call has settled.
		if target == team.ErrNotFound && i < len(want) && e.Seq != 1<<40 {
			target = team.ErrConflict
		}
		got = append(got, fmt.Sprintf("%s of seq %d: %v", e.Verdict, e.Seq, target))
	}
	if !slices.Equal(got, want) {
		return call, fmt.Errorf("%s = %v, which is %q, want %q", call, err, got, want)
	}
	return call, nil
}

// commit makes one Commit, or nothing on a store that has none.
func (sc *script) commit() (string, error) {
	c, ok := sc.store.(team.Committer)
	if !ok {
		return "no Commit", nil
	}
	var appends []team.Batch
	var changes []team.Change
	for range sc.pick(3) {
		queue := sc.queue()
		appends = append(appends, team.Batch{Queue: queue, Items: sc.items(queue), Max: sc.pick(12)})
	}
	for range sc.pick(3) {
		change := sc.change()
		if len(changes) == 0 || changes[0].Key != change.Key { // the version between them is nobody's
			changes = append(changes, change)
		}
	}
	call := "Commit("
	for _, b := range appends {
		call += fmt.Sprintf("{%s, %s, %d} ", b.Queue, briefly(b.Items), b.Max)
	}
	call += fmt.Sprintf("%+v)", changes)
	got, err := c.Commit(sc.ctx, appends, changes)

	next := sc.model.clone()
	var wantErr error
	var want [][]*modelItem
	var replayed [][]bool
	for _, b := range appends {
		if wantErr == nil {
			var w []*modelItem
			var r []bool
			w, r, wantErr = next.append(b.Queue, b.Items, b.Max)
			want, replayed = append(want, w), append(replayed, r)
		}
	}
	for _, c := range changes {
		switch {
		case wantErr != nil:
		case c.Delete:
			wantErr = next.delete(c.Key, c.Prev)
		default:
			wantErr = next.put(c.Key, string(c.Value), c.Prev)
		}
	}
	if err := kind(err, wantErr); err != nil || wantErr != nil {
		return call, err
	}
	sc.model = next
	if len(got.Receipts) != len(appends) || len(got.Versions) != len(changes) {
		return call, fmt.Errorf("%s = %d receipt lists and %d versions, want %d and %d",
			call, len(got.Receipts), len(got.Versions), len(appends), len(changes))
	}
	for i, b := range appends {
		if err := sc.receipts(b.Queue, got.Receipts[i], want[i], replayed[i]); err != nil {
			return call, err
		}
	}
	for i, c := range changes {
		if !c.Delete {
			if err := sc.wrote(c.Key, got.Versions[i]); err != nil {
				return call, err
			}
		} else if got.Versions[i] != "" {
			return call, fmt.Errorf("version of the deletion of %q = %q, want none", c.Key, got.Versions[i])
		}
	}
	return call, nil
}

// items makes up to three items; some have a key, few the id of another.
func (sc *script) items(queue string) []team.Item {
	list := make([]team.Item, sc.pick(4))
	for i := range list {
		sc.ids++
		it := &list[i]
		*it = team.Item{ID: fmt.Sprint("i", sc.ids), Cost: sc.pick(5)}
		it.Data = []byte("data of " + it.ID)
		if how := sc.pick(8); how < 3 {
			it.Key, it.Digest = fmt.Sprint("key", how), fmt.Sprint(sc.pick(4)/3)
		} else if old := *sc.model.queue(queue); how == 7 && len(old) > 0 {
			it.ID = old[sc.pick(len(old))].ID
		}
	}
	return list
}

// change makes a put or a deletion, mostly with a version that fits.
func (sc *script) change() team.Change {
	c := team.Change{Key: sc.key(), Value: []byte{byte(sc.pick(256))}, Delete: sc.pick(3) == 0}
	switch n := sc.pick(8); {
	case n == 0:
		c.Prev = team.AnyVersion
	case n == 1:
		c.Prev = ""
	case n == 2 && len(sc.old) > 0:
		c.Prev = sc.old[sc.pick(len(sc.old))]
	default:
		c.Prev = sc.model.record(c.Key).version
	}
	if c.Delete {
		c.Value = nil
	}
	return c
}

func (sc *script) wrote(key string, v team.Version) error {
	sc.old = append(sc.old, v)
	return sc.model.wrote(key, v)
}

// receipts compares receipts with what they must be of, and tells the model the
// new numbers.
func (sc *script) receipts(queue string, got []team.Receipt, want []*modelItem, replayed []bool) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d receipts, want %d", len(got), len(want))
	}
	for i, r := range got {
		if want[i].seq == 0 && !replayed[i] {
			if r.Seq <= sc.last[queue] {
				return fmt.Errorf("seq of %s = %d, want it above %d", r.ID, r.Seq, sc.last[queue])
			}
			want[i].seq, sc.last[queue] = r.Seq, r.Seq
		}
		if w := (team.Receipt{ID: want[i].ID, Seq: want[i].seq, Replayed: replayed[i]}); r != w {
			return fmt.Errorf("receipt %d = %+v, want %+v", i, r, w)
		}
	}
	return nil
}

// compare compares everything there is.
func (sc *script) compare() error {
	for _, queue := range []string{"q", "r"} {
		var all []team.StoredItem
		for it, err := range sc.store.Items(sc.ctx, queue, team.ListOptions{Settled: true}) {
			if err != nil {
				return err
			}
			all = append(all, it)
		}
		if err := sc.model.same(queue, all); err != nil {
			return err
		}
		var after team.Seq
		if len(all) > 0 {
			after = all[len(all)/3].Seq
		}
		want := slices.DeleteFunc(all, func(it team.StoredItem) bool { return it.State.Settled() || it.Seq <= after })
		n := 0
		for it, err := range sc.store.Items(sc.ctx, queue, team.ListOptions{After: after}) {
			if err != nil {
				return err
			}
			if n >= len(want) || it.Seq != want[n].Seq {
				return fmt.Errorf("Items(%s, After %d) yields seq %d as number %d, want the unsettled ones in order", queue, after, it.Seq, n)
			}
			n++
		}
		if n != len(want) {
			return fmt.Errorf("Items(%s, After %d) yields %d items, want %d", queue, after, n, len(want))
		}
	}
	for key, want := range sc.model.records {
		got, err := sc.store.Get(sc.ctx, key)
		if want.version == "" {
			if !errors.Is(err, team.ErrNotFound) {
				return fmt.Errorf("Get(%q) = %v, want ErrNotFound", key, err)
			}
			continue
		}
		if err != nil || got.Key != key || string(got.Value) != want.value || got.Version != want.version {
			return fmt.Errorf("Get(%q) = %+v, %v, want %q in version %q", key, got, err, want.value, want.version)
		}
	}
	if m, ok := sc.store.(team.Meter); ok {
		for _, prefix := range []string{"", "k", "k/", "é"} {
			keys, bytes, err := m.Usage(sc.ctx, prefix)
			if wantKeys, wantBytes := sc.model.usage(prefix); err != nil || keys != wantKeys || bytes != wantBytes {
				return fmt.Errorf("Usage(%q) = %d keys, %d bytes, %v, want %d keys, %d bytes", prefix, keys, bytes, err, wantKeys, wantBytes)
			}
		}
	}
	return nil
}

// kind compares an error with the kind that the model wants.
func kind(got, want error) error {
	if !errors.Is(got, want) || want == nil && got != nil {
		return fmt.Errorf("error = %v, want %v", got, want)
	}
	return nil
}

func briefly(list []team.Item) string {
	s := "["
	for i, it := range list {
		if i > 0 {
			s += " "
		}
		s += fmt.Sprintf("%s cost %d", it.ID, it.Cost)
		if it.Key != "" {
			s += fmt.Sprintf(" %s digest %s", it.Key, it.Digest)
		}
	}
	return s + "]"
}

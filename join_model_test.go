package team_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// "Never settled early, never twice, always settled by the deadline, right reason",
// whatever the order in which news of it come, and with restarts and holes in between.
func TestJoinModel(t *testing.T) {
	schedules := 10_000
	switch {
	case testing.Short():
		schedules = 500
	case raceEnabled: // the detector makes each eight times as slow
		schedules = 2_000
	}
	const bubbles = 100
	for b := range bubbles {
		synctest.Test(t, func(t *testing.T) {
			t0 = t.Context()
			for i := range schedules / bubbles {
				seed := uint64(b*schedules/bubbles + i)
				if !runSchedule(t, seed) {
					t.Fatalf("schedule %d", seed)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}

// A schedule is one world, and what a Join says of it.
type schedule struct {
	*world
	t       *testing.T
	j       *team.Join
	host    *joinHost
	store   *memstore.Store
	settled map[string]team.ChildState // of each turn that has settled
	showed  map[string]int             // how often each answer was shown to the lead
}

func runSchedule(t *testing.T, seed uint64) bool {
	w := &world{r: rand.New(rand.NewPCG(seed, 7))}
	w.faults = w.r.IntN(3) == 0
	w.plain = w.r.IntN(4) == 0
	w.hooks = w.r.IntN(3) > 0
	w.restarts = !w.faults && w.hooks && w.r.IntN(3) == 0
	s := &schedule{world: w, t: t, host: new(joinHost), store: new(memstore.Store), settled: make(map[string]team.ChildState), showed: make(map[string]int)}
	s.open()
	w.heal = func() {
		if s.broken {
			s.resync()
		}
	}
	w.catchUp, w.register, w.cancel, w.shown = s.deliverStream, s.deliverOthers, s.cancelKid, s.show
	for i := range 1 + w.r.IntN(3) {
		k := &worldKid{id: team.SessionID(fmt.Sprintf("ses_%d", i)), gen: []string{gen1, gen1, gen2, gen2, genNext}[w.r.IntN(5)]}
		w.kids = append(w.kids, k)
		w.play(k)
	}
	for s.next() {
		if !s.check() {
			return false
		}
	}
	return s.finish()
}

func (s *schedule) open() {
	opts := &team.JoinOptions{Sessions: s.host, Wait: time.Hour}
	if s.plain {
		opts.Sessions = plainHost{s.host}
	}
	s.j = openJoin(s.t, s.store, opts)
}

// next lets one thing happen, and returns false when all has.
func (s *schedule) next() bool {
	// The stream is never further behind than a Join takes into account.
	// Nor is the news of a call.
	for _, late := range []*[]worldNews{&s.stream, &s.others} {
		for len(*late) > 0 && time.Since((*late)[0].at) > 3*time.Second {
			s.deliver(late, 0)
			if !s.check() {
				return false
			}
		}
	}
	var live []*worldKid
	for _, k := range s.kids {
		if len(k.script) > 0 {
			live = append(live, k)
		}
	}
	if len(live) == 0 && len(s.stream) == 0 && len(s.others) == 0 {
		return false
	}
	switch n := s.r.IntN(13); {
	case n < 4 && len(live) > 0:
		k := live[s.r.IntN(len(live))]
		act := k.script[0]
		k.script = k.script[1:]
		act()
	case n < 8 && len(s.stream) > 0:
		s.deliver(&s.stream, 0)
	case n < 10 && len(s.others) > 0:
		k := s.others[s.r.IntN(len(s.others))].kid // in order for each child
		s.deliver(&s.others, slices.IndexFunc(s.others, func(o worldNews) bool { return o.kid == k }))
	case n == 10:
		time.Sleep(time.Duration(s.r.IntN(400)) * time.Millisecond)
	case n == 11 && s.r.IntN(2) == 0:
		if s.calls == 0 {
			s.lead(!s.leadRuns)
		}
	case n == 11:
		s.result()
	case n == 12 && s.faults && s.r.IntN(3) == 0:
		switch {
		case s.broken:
			s.resync()
		case s.r.IntN(2) == 0: // the stream breaks
			s.lossy = s.lossy || len(s.stream) > 0
			s.stream, s.broken = nil, true
		default: // the program is killed, and starts again
			s.lossy = true
			s.stream = nil
			s.open()
			s.resync()
		}
	}
	return true
}

func (s *schedule) deliver(list *[]worldNews, n int) {
	if s.restarts {
		s.open()
	}
	news := (*list)[n]
	*list = slices.Delete(*list, n, n+1)
	require.NoError(s.t, news.tell(s.j))
}

func (s *schedule) deliverStream() {
	for len(s.stream) > 0 {
		s.deliver(&s.stream, 0)
	}
}

func (s *schedule) deliverOthers() {
	for len(s.others) > 0 {
		s.deliver(&s.others, 0)
	}
}

// look tells the host what is true.
func (s *schedule) look() {
	for _, k := range s.kids {
		if k.born {
			s.host.set(k.id, s.inspection(k))
		}
	}
}

func (s *schedule) resync() {
	s.broken = false
	s.look()
	require.NoError(s.t, s.j.Resync(t0, "test"))
	if s.hooks {
		return
	}
	for _, k := range s.kids { // that it was called may be in the hole too
		if k.born {
			_, err := s.j.Adopt(t0, []team.SessionID{k.id})
			require.NoError(s.t, err)
		}
	}
}

// cancelKid stops a child, and reports false if it is none that could be.
func (s *schedule) cancelKid(k *worldKid, end worldEnd) bool {
	s.deliverStream() // the host's verdict names no turn
	s.deliverOthers()
	if !s.j.Known(k.id) || s.broken {
		return false
	}
	if c := childOf(s.t, s.j, k.id); c.Settled() && !c.Presumed {
		return false
	}
	stopped := false
	s.host.verdict = team.InterruptStopped
	s.host.onStop = func() {
		stopped = true
		k.stop(s.world, end)
	}
	out, err := s.j.Cancel(t0, k.id)
	require.NoError(s.t, err)
	require.Equal(s.t, team.CancelStopped, out.Verdict)
	s.host.onStop = nil
	return stopped
}

// show counts how often the lead was shown an answer as if for the first time; the same notice again is one.
func (s *schedule) show(k *worldKid, turn int, shown team.Shown) {
	if shown.Turn > 0 && !shown.Again {
		s.showed[fmt.Sprint(k.id, " ", turn, " by ", shown.First.Via)] = 1
	}
}

func (s *schedule) result() {
	k := s.kids[s.r.IntN(len(s.kids))]
	if !s.j.Known(k.id) {
		return
	}
	s.deliverStream() // the host's last message names no turn
	s.look()
	r, err := s.j.Result(t0, k.id, "report")
	require.NoError(s.t, err)
	s.read(k, r)
}

// read counts an answer that the lead was shown by the Join.
func (s *schedule) read(k *worldKid, r team.Result) {
	if r.Text == "" {
		return
	}
	i := slices.IndexFunc(k.ended, func(e worldEnd) bool { return strings.Contains(r.Text, e.word) })
	if i >= 0 {
		s.showed[fmt.Sprint(k.id, " ", i+1, " by a result")]++
	}
}

// check is after each step: nothing has settled that has not ended, and nothing settles twice.
func (s *schedule) check() bool {
	all, err := s.j.Children(t0, nil)
	require.NoError(s.t, err)
	for _, c := range all {
		if c.Presumed {
			continue
		}
		k, over := s.kid(c.Session), c.Turn
		if !c.Settled() {
			over--
		}
		if over > len(k.ended) {
			s.t.Errorf("%s: %d turns have settled, %d have ended: %+v", c.Session, over, len(k.ended), c)
			return false
		}
		for _, turn := range append(slices.Clone(c.Earlier), c.ChildTurn) {
			key := fmt.Sprint(c.Session, " ", turn.Turn)
			before, ok := s.settled[key]
			if ok && (s.lossy || s.hooks && !k.ended[turn.Turn-1].told) && kin(before) == kin(turn.State) {
				before = turn.State // the call behind it may be taken for one in it, and have no text
			}
			if ok && before != turn.State {
				s.t.Errorf("%s was %s, and is %s", key, before, turn.State)
				return false
			}
			if turn.State.Settled() {
				s.settled[key] = turn.State
			}
		}
	}
	return !s.t.Failed()
}

// finish is at the end: each has settled as often as it ended, and as it ended.
func (s *schedule) finish() bool {
	if s.t.Failed() {
		return false
	}
	if s.broken {
		s.resync()
	}
	s.look()
	done, err := s.j.Wait(t0, &team.WaitOptions{Firm: !s.lossy})
	for err == nil && done.End == team.WaitAsked && s.lossy { // the reply was in a hole: it is told once
		done, err = s.j.Wait(t0, &team.WaitOptions{Firm: !s.lossy})
	}
	require.NoError(s.t, err)
	unseen := s.lossy && s.plain // such a host has no word for how a child of 1.x is
	if done.End != team.WaitSettled && !unseen && len(done.Children) > 0 || !s.check() {
		s.t.Errorf("%s after %s: %+v", done.End, done.Waited, done.Children)
		return false
	}
	for _, r := range done.Results {
		s.read(s.kid(r.Session), r)
	}
	for _, c := range done.Children {
		if s.lossy {
			continue // a hole can swallow a turn, and how it ended
		}
		k := s.kid(c.Session)
		turns := append(slices.Clone(c.Earlier), c.ChildTurn)
		if c.Presumed || len(turns) != len(k.ended) {
			s.t.Errorf("%s: %d turns, %d have ended: %+v", c.Session, len(turns), len(k.ended), c)
			return false
		}
		for i, turn := range turns {
			if s.hooks && !k.ended[i].told {
				turn.Conflicts = nil // the call behind it may be taken for one in it
			} else if text, err := s.j.Text(t0, c.Session, i+1); err == nil && text != "" && !strings.Contains(text, k.ended[i].word) {
				s.t.Errorf("%s: turn %d has the answer %q, want %+v", c.Session, i+1, text, k.ended[i])
				return false
			}
			if why := k.ended[i].wrong(turn); why != "" {
				s.t.Errorf("%s: turn %d %s, want %+v: %+v", c.Session, i+1, why, k.ended[i], c)
				return false
			}
		}
	}
	shown := make(map[string]int)
	for key, n := range s.showed {
		turn, _, _ := strings.Cut(key, " by ")
		id, number, _ := strings.Cut(turn, " ")
		if i, _ := strconv.Atoi(number); s.hooks && i > 1 && !s.kid(team.SessionID(id)).ended[i-2].told {
			continue // its call may be taken for one in the turn before
		}
		shown[turn] += n
	}
	for turn, n := range maps.All(shown) {
		if n > 1 && !s.lossy {
			s.t.Errorf("the answer of %s was shown %d times: %v", turn, n, s.showed)
			return false
		}
	}
	return true
}

// wrong says what of a turn is not true, or nothing.
func (e worldEnd) wrong(turn team.ChildTurn) string {
	allowed := []team.ChildState{e.state}
	switch {
	case e.state == team.ChildInterrupted && turn.By.Source != team.FromEvent:
		allowed = append(allowed, team.ChildCancelled) // the word of a notice
	case e.state == team.ChildCompleted && turn.Answer.Known && turn.Answer.Size == 0:
		allowed = []team.ChildState{team.ChildEmpty}
	}
	switch {
	case !slices.Contains(allowed, turn.State):
		return "is " + string(turn.State)
	case e.state == team.ChildFailed && !strings.Contains(turn.Reason, e.word):
		return "has the reason " + turn.Reason
	case slices.ContainsFunc(turn.Conflicts, func(c team.JoinConflict) bool { return c.Said.State != "" && c.Said.Source != team.FromSignal }):
		return "has conflicts" // with others than that it runs, and a signal that was late
	}
	return ""
}

// kin is the state by what it means.
func kin(s team.ChildState) team.ChildState {
	if s == team.ChildEmpty {
		return team.ChildCompleted
	}
	return s
}

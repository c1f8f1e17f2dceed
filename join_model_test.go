package team_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// A world is a host with children that work, in the simplest way that is true, and
// three ways on which news of them travel to a Join: the stream, which keeps its order, may be
// behind, and loses what is under way when it breaks; results of calls; and notices.
type world struct {
	r                 *rand.Rand
	kids              []*worldKid
	stream            []worldNews
	others            []worldNews // results and notices: in order of each child, late as it pleases
	catchUp, register func()      // deliver what is in the stream, and all else
	faults, broken    bool
	lossy             bool
}

type worldNews struct {
	kid  *worldKid
	at   time.Time
	tell func(j *team.Join) error
}

type worldKid struct {
	id      team.SessionID
	v2      bool
	script  []func()
	seq     uint64
	running bool
	open    team.SessionID // a descendant of it that works
	ended   []team.ChildState
	last    *team.LastMessage
	idleAt  time.Time
	outcome string
}

func (w *world) emit(k *worldKid, e team.Event) {
	if k.v2 {
		k.seq++
		e.Seq, e.Time = k.seq, time.Now()
	}
	if w.broken {
		w.lossy = true
		return
	}
	w.stream = append(w.stream, worldNews{k, time.Now(), func(j *team.Join) error {
		_, err := j.Observe(t0, e)
		return err
	}})
}

func (w *world) other(k *worldKid, tell func(j *team.Join) error) {
	w.others = append(w.others, worldNews{k, time.Now(), tell})
}

func (k *worldKid) start(w *world) {
	time.Sleep(2 * time.Millisecond) // no two turns share an instant
	k.running = true
	k.last = &team.LastMessage{}
	if k.v2 {
		w.emit(k, ev(k.id, "session.execution.started", ""))
		w.emit(k, ev(k.id, "session.inbox.delivered", `{"inboxID":"m"}`))
		w.emit(k, ev(k.id, "session.step.started", ""))
	} else {
		w.emit(k, busy(k.id))
	}
}

// stop ends a busy period; it is a turn's end if no descendant works.
func (k *worldKid) stop(w *world, state team.ChildState) {
	time.Sleep(2 * time.Millisecond)
	k.running = false
	k.idleAt = time.Now()
	k.last = &team.LastMessage{Text: fmt.Sprint("text ", len(k.ended)), Completed: time.Now(), Finish: "stop"}
	k.outcome = "succeeded"
	switch state {
	case team.ChildFailed:
		k.outcome, k.last.Error = "failed", "E: boom"
		if k.v2 {
			w.emit(k, ev(k.id, "session.execution.failed", `{"error":{"type":"E","message":"boom"}}`))
		} else {
			w.emit(k, ev(k.id, "session.error", `{"error":{"name":"E"}}`))
		}
	case team.ChildInterrupted:
		k.outcome, k.last.Error, k.last.Aborted = "interrupted", "aborted", true
		if k.v2 {
			w.emit(k, ev(k.id, "session.execution.interrupted", `{"reason":"user"}`))
		} else {
			w.emit(k, ev(k.id, "session.error", `{"error":{"name":"MessageAbortedError"}}`))
		}
	default:
		if k.v2 {
			w.emit(k, ev(k.id, "session.execution.succeeded", ""))
		}
	}
	if !k.v2 {
		w.emit(k, ev(k.id, "session.status", `{"status":{"type":"idle"}}`))
		w.emit(k, idle(k.id))
	}
	if k.open == "" {
		k.ended = append(k.ended, state)
	}
}

// play writes the life of a child.
func (w *world) play(k *worldKid) {
	dispatched, settles := false, false
	step := func(f func()) { k.script = append(k.script, f) }
	for turn := range 1 + w.r.IntN(3) {
		call := fmt.Sprintf("call_%s_%d", k.id, turn)
		background := w.r.IntN(2) == 0
		before := dispatched
		dispatched = turn == 0 || w.r.IntN(3) > 0
		if dispatched && turn > 0 && (!before || settles) {
			// Behind a turn that somebody else began, or that ended while its own work went
			// on, a call that is faster than the stream cannot be told from one in that turn.
			step(func() { w.catchUp() })
		}
		state := []team.ChildState{team.ChildCompleted, team.ChildCompleted, team.ChildFailed, team.ChildInterrupted}[w.r.IntN(4)]
		if dispatched {
			step(func() {
				// The child starts in the same moment: the acknowledgement may be slower.
				w.other(k, func(j *team.Join) error {
					_, err := j.Register(t0, team.Dispatch{Session: k.id, Background: background, Call: call})
					return err
				})
				k.start(w)
			})
		} else {
			step(func() { k.start(w) })
		}
		for range w.r.IntN(3) {
			step(func() {
				if k.v2 {
					w.emit(k, ev(k.id, "session.text.delta", ""))
				} else {
					w.emit(k, ev(k.id, "message.part.delta", ""))
				}
			})
		}
		if w.r.IntN(4) == 0 {
			step(func() { w.emit(k, ev(k.id, "permission.asked", `{"id":"p"}`)) })
			step(func() { w.emit(k, ev(k.id, "permission.replied", `{"requestID":"p"}`)) })
		}
		if settles = w.r.IntN(4) == 0; settles {
			// It ends its turn while a child of its own works, and is woken with its news.
			if w.faults {
				// What begins in a hole, of a child that nobody has told of, is never known.
				step(func() { w.register() })
			}
			grand := team.SessionID(fmt.Sprint(k.id, "_g", turn))
			step(func() { k.open = grand; w.emit(k, ev(grand, "session.created", fmt.Sprintf(`{"parentID":%q}`, k.id))) })
			step(func() { k.stop(w, team.ChildCompleted) })
			step(func() { w.emit(k, ev(grand, "session.idle", "")); k.start(w); k.open = "" })
		}
		called := dispatched
		step(func() {
			k.stop(w, state)
			if !called {
				return
			}
			word := map[team.ChildState]string{team.ChildCompleted: "completed", team.ChildFailed: "error", team.ChildInterrupted: "cancelled"}[state]
			body := fmt.Sprint("text ", len(k.ended)-1)
			w.other(k, func(j *team.Join) error {
				var err error
				if background {
					_, err = j.ObserveText(t0, notice(k.id, word, body), "msg_"+call)
					return err
				}
				res := toolResult(k.id, call, word, body)
				if state != team.ChildCompleted {
					raw := fmt.Sprintf(`{"error":{"message":"Subagent %s (sessionID: %s): x"},"metadata":{"sessionID":%q,"status":"running"}}`,
						map[string]string{"error": "failed", "cancelled": "cancelled"}[word], k.id, k.id)
					res.Result = json.RawMessage(raw)
				}
				_, err = j.RegisterResult(t0, res)
				return err
			})
		})
	}
}

func (w *world) inspection(k *worldKid) team.Inspection {
	i := team.Inspection{Session: team.Session{Parent: lead}, Activity: team.ActivityIdle, Last: k.last, Open: []team.SessionID{}}
	if k.v2 {
		i.Outcome, i.Idle = k.outcome, k.idleAt
	}
	if k.running {
		i.Activity = team.ActivityRunning
	}
	if k.open != "" {
		i.Open = append(i.Open, k.open)
	}
	return i
}

// "Never settled early, never twice, always settled by the deadline, right reason",
// whatever the order in which news of it come, and with restarts and holes in between.
func TestJoinModel(t *testing.T) {
	schedules := 10_000
	if testing.Short() {
		schedules = 500
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

func runSchedule(t *testing.T, seed uint64) (ok bool) {
	w := &world{r: rand.New(rand.NewPCG(seed, 7))}
	host := new(joinHost)
	store := new(memstore.Store)
	opts := &team.JoinOptions{Sessions: host, Wait: time.Hour}
	j := openJoin(t, store, opts)
	w.faults = w.r.IntN(3) == 0
	for i := range 1 + w.r.IntN(3) {
		k := &worldKid{id: team.SessionID(fmt.Sprintf("ses_%d", i)), v2: w.r.IntN(2) == 0}
		w.kids = append(w.kids, k)
		w.play(k)
	}
	settled := make(map[string]team.ChildState)

	sync := func() {
		for _, k := range w.kids {
			host.set(k.id, w.inspection(k))
		}
	}
	resync := func() {
		w.broken = false
		sync()
		require.NoError(t, j.Resync(t0, "test"))
	}
	check := func() bool {
		all, err := j.Children(t0, nil)
		require.NoError(t, err)
		for _, c := range all {
			k := w.kids[slices.IndexFunc(w.kids, func(k *worldKid) bool { return k.id == c.Session })]
			if c.Presumed {
				continue
			}
			over := c.Turn
			if !c.Settled() {
				over--
			}
			if over > len(k.ended) {
				t.Errorf("%s: %d turns have settled, %d have ended: %+v", c.Session, over, len(k.ended), c)
				return false
			}
			for _, turn := range append(slices.Clone(c.Earlier), c.ChildTurn) {
				key := fmt.Sprint(c.Session, " ", turn.Turn)
				if before, ok := settled[key]; ok && before != turn.State {
					t.Errorf("%s was %s, and is %s", key, before, turn.State)
					return false
				}
				if turn.State.Settled() {
					settled[key] = turn.State
				}
			}
		}
		return true
	}
	deliver := func(list *[]worldNews, n int) {
		news := (*list)[n]
		*list = slices.Delete(*list, n, n+1)
		if err := news.tell(j); err != nil {
			t.Error(err)
		}
	}
	w.register = func() {
		for len(w.others) > 0 {
			deliver(&w.others, 0)
		}
	}
	w.catchUp = func() {
		for len(w.stream) > 0 {
			deliver(&w.stream, 0)
		}
	}
	for {
		// The stream is never further behind than a Join takes into account.
		for len(w.stream) > 0 && time.Since(w.stream[0].at) > 3*time.Second {
			deliver(&w.stream, 0)
			if !check() {
				return false
			}
		}
		var live []*worldKid
		for _, k := range w.kids {
			if len(k.script) > 0 {
				live = append(live, k)
			}
		}
		if len(live) == 0 && len(w.stream) == 0 && len(w.others) == 0 {
			break
		}
		switch n := w.r.IntN(12); {
		case n < 4 && len(live) > 0:
			k := live[w.r.IntN(len(live))]
			next := k.script[0]
			k.script = k.script[1:]
			next()
		case n < 8 && len(w.stream) > 0:
			deliver(&w.stream, 0)
		case n < 10 && len(w.others) > 0:
			k := w.others[w.r.IntN(len(w.others))].kid // in order for each child
			deliver(&w.others, slices.IndexFunc(w.others, func(o worldNews) bool { return o.kid == k }))
		case n == 10:
			time.Sleep(time.Duration(w.r.IntN(400)) * time.Millisecond)
		case n == 11 && w.faults && w.r.IntN(3) == 0:
			switch {
			case w.broken:
				resync()
			case w.r.IntN(2) == 0: // the stream breaks
				w.lossy = w.lossy || len(w.stream) > 0
				w.stream, w.broken = nil, true
			default: // the program is killed, and starts again
				w.lossy = true
				w.stream = nil
				j = openJoin(t, store, opts)
				resync()
			}
		}
		if !check() {
			return false
		}
	}
	if w.broken {
		resync()
	}
	sync()
	done, err := j.Wait(t0, &team.WaitOptions{NoResults: true})
	for err == nil && done.End == team.WaitAsked && w.lossy { // the reply was in a hole: it is told once
		done, err = j.Wait(t0, &team.WaitOptions{NoResults: true})
	}
	require.NoError(t, err)
	if done.End != team.WaitSettled || !check() {
		t.Errorf("%s after %s: %+v", done.End, done.Waited, done.Children)
		return false
	}
	for _, c := range done.Children {
		k := w.kids[slices.IndexFunc(w.kids, func(k *worldKid) bool { return k.id == c.Session })]
		if w.lossy && len(k.ended) > 1 {
			continue // a hole can swallow a whole turn
		}
		var got []team.ChildState
		for _, turn := range append(slices.Clone(c.Earlier), c.ChildTurn) {
			got = append(got, kin(turn.State))
		}
		var want []team.ChildState
		for _, s := range k.ended {
			want = append(want, kin(s))
		}
		if c.Presumed && w.lossy {
			continue
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v: %+v", c.Session, got, want, c)
			return false
		}
	}
	return true
}

// kin is the state by what it means: hosts have several words.
func kin(s team.ChildState) team.ChildState {
	switch s {
	case team.ChildEmpty:
		return team.ChildCompleted
	case team.ChildInterrupted, team.ChildStopped:
		return team.ChildCancelled
	}
	return s
}

package team_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// slowChange calls back within each write of a child's record but its first.
type slowChange struct {
	*memstore.Store
	during func()
}

func (s *slowChange) Put(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
	if prev != "" && s.during != nil {
		s.during()
	}
	return s.Store.Put(ctx, key, value, prev)
}

// A tool hook registers a child while the stream goes on: what came before is taken in before what
// comes meanwhile.
func TestJoinRegisteredWhileTheStreamGoesOn(t *testing.T) {
	store := new(slowChange)
	store.Store = new(memstore.Store)
	j := openJoin(t, store, nil)
	observe(t, j, ev(kid, "permission.asked", `{"id":"p"}`), busy(kid), ev(kid, "permission.replied", `{"requestID":"p"}`))
	var over sync.WaitGroup
	var once sync.Once
	store.during = func() {
		once.Do(func() {
			over.Go(func() { observe(t, j, idle(kid)) })
			time.Sleep(5 * time.Millisecond) // so long that a mutex is handed to who waits for it
		})
	}
	register(t, j, kid)
	over.Wait()
	c := childOf(t, j, kid)
	require.Equal(t, team.ChildCompleted, c.State)
	require.Equal(t, 1, c.Turn)
}

// No event falls between being of a stranger and being of a child.
func TestJoinRegistrationLosesNoEvent(t *testing.T) {
	j := newJoin(t, nil)
	for i := range 1000 {
		id := team.SessionID(fmt.Sprint("ses_", i))
		below := id + "_below"
		var all sync.WaitGroup
		all.Go(func() { register(t, j, id) })
		all.Go(func() {
			observe(t, j, busy(id), ev(below, "session.created", fmt.Sprintf(`{"parentID":%q}`, id)), idle(below), idle(id))
		})
		all.Wait()
		c := childOf(t, j, id)
		require.Equal(t, 1, c.Turn, "%+v", c)
		if !c.Settled() { // its work ended in the same moment as it did: then it waits for the grace
			require.Equal(t, team.ChildSettling, c.State, "%+v", c)
		}
		require.Empty(t, c.Open)
	}
}

// meanwhile does something in another goroutine at the n-th write from now, and gives it time.
type meanwhile struct {
	*memstore.Store
	n    int
	do   func()
	done chan struct{}
}

func (s *meanwhile) Put(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
	if s.n--; s.n == 0 {
		s.done = make(chan struct{})
		go func() { defer close(s.done); s.do() }()
		time.Sleep(20 * time.Millisecond)
	}
	return s.Store.Put(ctx, key, value, prev)
}

// What comes of a descendant while its opening is taken in comes behind the opening.
func TestJoinRegistrationLosesNoEventOfADescendant(t *testing.T) {
	for n := 1; n <= 3; n++ {
		store := &meanwhile{Store: new(memstore.Store)}
		j := openJoin(t, store, nil)
		observe(t, j, busy(kid), ev("ses_below", "session.created", fmt.Sprintf(`{"parentID":%q}`, kid)))
		store.n, store.do = n, func() { observe(t, j, idle("ses_below"), idle(kid)) }
		register(t, j, kid)
		require.NotNil(t, store.done, "there is no write %d", n)
		<-store.done
		require.Empty(t, childOf(t, j, kid).Open, "write %d", n)
	}
}

// A store that fails while a child is registered leaves none, and what came of it is kept for the next try.
func TestJoinRegistrationFails(t *testing.T) {
	store := &failingPut{Store: new(memstore.Store)}
	j := openJoin(t, store, nil)
	observe(t, j, busy(kid), idle(kid))
	store.fails.Store(1)
	_, err := j.Register(t.Context(), team.Dispatch{Session: kid})
	require.ErrorContains(t, err, "disk full")
	require.False(t, j.Known(kid))
	got, err := j.Children(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, got)
	register(t, j, kid)
	require.Equal(t, team.ChildCompleted, childOf(t, j, kid).State)
}

// unsure writes, and says that it does not know whether it did.
type unsure struct {
	*memstore.Store
	next bool
}

func (s *unsure) Put(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
	v, err := s.Store.Put(ctx, key, value, prev)
	if s.next && err == nil {
		s.next = false
		return "", team.ErrUnknownOutcome
	}
	return v, err
}

// A registration whose outcome is unknown is read back: what came of the child before is not lost.
func TestJoinRegistrationWithUnknownOutcome(t *testing.T) {
	store := &unsure{Store: new(memstore.Store)}
	j := openJoin(t, store, nil)
	register(t, j, "ses_first") // so that the next write but one is the child's
	observe(t, j, busy(kid), idle(kid))
	hook := &hookRecords{Records: store, before: func(key string) { store.next = key == "team/join/ses_lead/c/ses_kid" }}
	j = openJoin(t, hook, nil)
	observe(t, j, busy(kid), idle(kid))
	_, err := j.Register(t.Context(), team.Dispatch{Session: kid, Call: "c"})
	hook.before = nil
	require.NoError(t, err)
	c := childOf(t, j, kid)
	require.Equal(t, team.ChildCompleted, c.State)
	require.Equal(t, 1, c.Turn)
}

// hookRecords tells of the next write.
type hookRecords struct {
	team.Records
	before func(key string)
}

func (s *hookRecords) Put(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
	if s.before != nil {
		s.before(key)
	}
	return s.Records.Put(ctx, key, value, prev)
}

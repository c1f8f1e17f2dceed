package team_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/teamchan/team"
	"github.com/teamchan/team/memstore"
)

// failingBirth calls back within the first write of a child's record, which then fails.
type failingBirth struct {
	*memstore.Store
	during func()
}

func (s *failingBirth) Put(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
	if strings.Contains(key, "/c/") && prev == "" && s.during != nil {
		s.during()
		s.during = nil
		return "", errors.New("disk full")
	}
	return s.Store.Put(ctx, key, value, prev)
}

// What comes of a child while the write that makes it one fails is kept for the next try.
func TestJoinEventWhileARegistrationFails(t *testing.T) {
	const below = kid + "_below"
	for name, meanwhile := range map[string]team.Event{
		"its own":                idle(kid),
		"of a new session below": ev(below, "session.created", `{"parentID":"`+string(kid)+`"}`),
		"a notice that it is over": ev(lead, "message.part.updated", `{"part":{"id":"prt_1","type":"text","synthetic":true,"text":`+
			strconv.Quote(notice(kid, "completed", "the answer").Text)+`}}`),
	} {
		t.Run(name, func(t *testing.T) {
			store := &failingBirth{Store: new(memstore.Store)}
			j := openJoin(t, store, nil)
			observe(t, j, busy(kid))
			seen := make(chan error, 1)
			store.during = func() {
				go func() {
					_, err := j.Observe(t.Context(), meanwhile)
					seen <- err
				}()
				time.Sleep(20 * time.Millisecond) // until it waits
			}
			_, err := j.Register(t.Context(), team.Dispatch{Session: kid})
			require.ErrorContains(t, err, "disk full")
			if err := <-seen; err != nil { // none if the machine was so slow that it came behind
				require.ErrorIs(t, err, team.ErrNotFound)
			}
			register(t, j, kid)
			c := childOf(t, j, kid)
			if name == "of a new session below" {
				require.Equal(t, []team.SessionID{below}, c.Open)
			} else {
				require.Equal(t, team.ChildCompleted, c.State)
			}
		})
	}
}

// Who loses the race to register a child lists it where the winner's record says.
func TestJoinOrderIsThatOfTheRecord(t *testing.T) {
	store := new(memstore.Store)
	winner := openJoin(t, store, nil)
	hook := &hookRecords{Records: store}
	loser := openJoin(t, hook, nil)
	hook.before = func(key string) {
		if strings.HasSuffix(key, "/c/"+string(kid)) {
			hook.before = nil
			register(t, winner, "ses_first", kid)
		}
	}
	register(t, loser, kid)
	want := []team.SessionID{"ses_first", kid}
	for name, j := range map[string]*team.Join{"winner": winner, "loser": loser, "later": openJoin(t, store, nil)} {
		_, err := j.Wait(t.Context(), &team.WaitOptions{Timeout: time.Millisecond}) // reads what others wrote
		require.NoError(t, err)
		all, err := j.Children(t.Context(), nil)
		require.NoError(t, err)
		var got []team.SessionID
		for _, c := range all {
			got = append(got, c.Session)
		}
		require.Equal(t, want, got, name)
	}
}

package sqlitestore_test

import (
	"context"
	"encoding/gob"
	"errors"
	"io"
	"iter"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/storetest"
)

// The laws of a store, where the calls of a law go to several processes in turn.
func TestStoreInProcesses(t *testing.T) {
	t.Parallel()
	storetest.Run(t, inProcesses(t, 3))
}

func FuzzStoreInProcesses(f *testing.F) {
	if raceEnabled {
		f.Skip("its calls come one by one; FuzzStore makes the same")
	}
	storetest.Fuzz(f, inProcesses(f, 3))
}

// inProcesses starts processes and returns what opens a new file in all of them.
func inProcesses(tb testing.TB, n int) func(testing.TB) team.Store {
	var servers []*server
	for range n {
		servers = append(servers, startServer(tb))
	}
	return func(tb testing.TB) team.Store {
		path := filepath.Join(tb.TempDir(), "s.db")
		s := new(spread)
		for _, srv := range servers {
			answer := srv.call(context.Background(), request{Method: "Open", Key: path})
			if err := answer.Err.decode(); err != nil {
				tb.Fatal(err)
			}
			r := &remote{server: srv, store: answer.Store}
			tb.Cleanup(func() {
				if err := r.ask(context.Background(), request{Method: "Close"}).Err.decode(); err != nil {
					tb.Errorf("Close = %v, want no error", err)
				}
			})
			s.all = append(s.all, r)
		}
		return s
	}
}

// A spread gives each call to the next of its stores.
type spread struct {
	all  []*remote
	next atomic.Uint32
}

func (s *spread) pick() *remote { return s.all[int(s.next.Add(1))%len(s.all)] }

func (s *spread) Append(ctx context.Context, queue string, items []team.Item, max int) ([]team.Receipt, error) {
	a := s.pick().ask(ctx, request{Method: "Append", Queue: queue, Items: items, Max: max})
	return a.Receipts, a.Err.decode()
}

func (s *spread) Claim(ctx context.Context, queue string, opts team.ClaimOptions) ([]team.Claim, error) {
	a := s.pick().ask(ctx, request{Method: "Claim", Queue: queue, Claim: opts})
	return a.Claims, a.Err.decode()
}

func (s *spread) Settle(ctx context.Context, queue string, list ...team.Settlement) error {
	return s.pick().ask(ctx, request{Method: "Settle", Queue: queue, Settlements: list}).Err.decode()
}

func (s *spread) Items(ctx context.Context, queue string, opts team.ListOptions) iter.Seq2[team.StoredItem, error] {
	return func(yield func(team.StoredItem, error) bool) {
		s.pick().loop(ctx, request{Method: "Items", Queue: queue, List: opts}, func(a answer) bool { return yield(a.Item, a.Err.decode()) })
	}
}

func (s *spread) Get(ctx context.Context, key string) (team.Record, error) {
	a := s.pick().ask(ctx, request{Method: "Get", Key: key})
	return a.Record, a.Err.decode()
}

func (s *spread) Put(ctx context.Context, key string, value []byte, prev team.Version) (team.Version, error) {
	a := s.pick().ask(ctx, request{Method: "Put", Key: key, Value: value, Prev: prev})
	return a.Version, a.Err.decode()
}

func (s *spread) Delete(ctx context.Context, key string, prev team.Version) error {
	return s.pick().ask(ctx, request{Method: "Delete", Key: key, Prev: prev}).Err.decode()
}

func (s *spread) Keys(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		s.pick().loop(ctx, request{Method: "Keys", Key: prefix, After: after}, func(a answer) bool { return yield(a.Key, a.Err.decode()) })
	}
}

func (s *spread) Commit(ctx context.Context, appends []team.Batch, changes []team.Change) (team.Committed, error) {
	a := s.pick().ask(ctx, request{Method: "Commit", Appends: appends, Changes: changes})
	return a.Committed, a.Err.decode()
}

func (s *spread) Usage(ctx context.Context, prefix string) (int, int64, error) {
	a := s.pick().ask(ctx, request{Method: "Usage", Key: prefix})
	return a.Keys, a.Bytes, a.Err.decode()
}

func (s *spread) Watch(ctx context.Context, prefix string) iter.Seq2[string, error] {
	c := s.pick().begin(ctx, request{Method: "Watch", Key: prefix})
	<-c.answers // it watches
	return func(yield func(string, error) bool) {
		c.send(request{Next: true})
		c.loop(func(a answer) bool { return yield(a.Key, a.Err.decode()) })
	}
}

// A remote is a store that is open in another process.
type remote struct {
	server *server
	store  int
}

func (r *remote) ask(ctx context.Context, q request) answer {
	q.Store = r.store
	return r.server.call(ctx, q)
}

func (r *remote) begin(ctx context.Context, q request) *call {
	q.Store = r.store
	return r.server.begin(ctx, q)
}

func (r *remote) loop(ctx context.Context, q request, yield func(answer) bool) {
	r.begin(ctx, q).loop(yield)
}

// A server is a process that serves stores.
type server struct {
	tb    testing.TB
	mu    sync.Mutex // guards the fields below
	out   *gob.Encoder
	calls map[uint64]*call
	last  uint64
	dead  bool
}

func startServer(tb testing.TB) *server {
	tb.Helper()
	cmd, in, out := spawn(tb, serverName)
	tb.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			tb.Errorf("server = %v, want it to end well", err)
		}
	})
	s := &server{tb: tb, out: gob.NewEncoder(in), calls: make(map[uint64]*call)}
	go s.listen(gob.NewDecoder(out))
	return s
}

func (s *server) listen(in *gob.Decoder) {
	for {
		var a answer
		err := in.Decode(&a)
		s.mu.Lock()
		if err != nil {
			s.dead = true
			for _, c := range s.calls {
				close(c.answers)
			}
			s.calls = nil
			s.mu.Unlock()
			return
		}
		if c := s.calls[a.Call]; c != nil {
			c.answers <- a
		}
		s.mu.Unlock()
	}
}

func (s *server) call(ctx context.Context, q request) answer {
	c := s.begin(ctx, q)
	defer c.end()
	a, ok := <-c.answers
	if !ok {
		a.Err = encode(errors.New("the process has ended"))
	}
	return a
}

// A call is one that another process makes.
type call struct {
	server  *server
	number  uint64
	answers chan answer // one at a time, unless it is over
	stop    func() bool
}

// begin sends q. Its context's end is sent after it.
func (s *server) begin(ctx context.Context, q request) *call {
	c := &call{server: s, answers: make(chan answer, 4)}
	s.mu.Lock()
	s.last++
	c.number = s.last
	if s.dead {
		close(c.answers)
	} else {
		s.calls[c.number] = c
	}
	s.mu.Unlock()
	q.Ended = errors.Is(ctx.Err(), context.Canceled)
	q.Deadline, _ = ctx.Deadline() // the other process has the same clock
	c.send(q)
	c.stop = context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			c.send(request{Cancel: true})
		}
	})
	return c
}

func (c *call) send(q request) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	q.Call = c.number
	if err := c.server.out.Encode(q); err != nil && !errors.Is(err, io.ErrClosedPipe) && !c.server.dead {
		c.server.tb.Errorf("a request cannot be sent: %v", err)
	}
}

func (c *call) end() {
	c.stop()
	c.server.mu.Lock()
	delete(c.server.calls, c.number)
	c.server.mu.Unlock()
}

// loop yields what the other process yields, one at a time.
func (c *call) loop(yield func(answer) bool) {
	defer c.end()
	for {
		a, ok := <-c.answers
		if !ok || !a.More {
			return
		}
		done := false
		func() {
			defer func() { // also when a law ends in the loop
				c.send(request{Next: done, Stop: !done})
			}()
			done = yield(a)
		}()
		if !done {
			<-c.answers // the loop there has ended
			return
		}
	}
}

// request and answer are what goes to a process and comes back. A request has a
// number and a method, or says what becomes of an earlier one.
type request struct {
	Call               uint64
	Cancel, Next, Stop bool

	Store    int
	Method   string
	Deadline time.Time
	Ended    bool // the context was cancelled before

	Queue, Key, After string
	Items             []team.Item
	Max               int
	Claim             team.ClaimOptions
	Settlements       []team.Settlement
	List              team.ListOptions
	Value             []byte
	Prev              team.Version
	Appends           []team.Batch
	Changes           []team.Change
}

type answer struct {
	Call uint64
	More bool // a loop yields this, and waits to be told to go on
	Err  wireError

	Store     int
	Receipts  []team.Receipt
	Claims    []team.Claim
	Item      team.StoredItem
	Record    team.Record
	Version   team.Version
	Key       string
	Committed team.Committed
	Keys      int
	Bytes     int64
}

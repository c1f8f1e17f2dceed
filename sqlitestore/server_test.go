package sqlitestore_test

import (
	"context"
	"encoding/gob"
	"errors"
	"io"
	"sync"

	"github.com/teamchan/team"
	"github.com/teamchan/team/sqlitestore"
)

// serverName is the child that serves stores to its parent; see remote_test.go.
const serverName = "server"

// A service is the other side of a server.
type service struct {
	mu     sync.Mutex // guards the fields below
	out    *gob.Encoder
	stores []*sqlitestore.Store
	calls  map[uint64]*served
}

// A served is a call under way.
type served struct {
	cancel context.CancelFunc
	next   chan bool // what a loop that has yielded is to do: go on, or not
}

// serve answers requests until there are no more.
func serve(in io.Reader, out io.Writer) error {
	s := &service{out: gob.NewEncoder(out), calls: make(map[uint64]*served)}
	requests := gob.NewDecoder(in)
	for {
		var q request
		if err := requests.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		s.mu.Lock()
		c := s.calls[q.Call]
		switch {
		case q.Method != "":
			ctx, cancel := context.WithCancel(context.Background())
			if !q.Deadline.IsZero() {
				ctx, cancel = context.WithDeadline(context.Background(), q.Deadline)
			}
			if q.Ended {
				cancel()
			}
			c = &served{cancel: cancel, next: make(chan bool, 1)}
			s.calls[q.Call] = c
			go s.handle(ctx, c, q)
		case c == nil: // it is over
		case q.Cancel:
			c.cancel()
		default:
			c.next <- q.Next
		}
		s.mu.Unlock()
	}
}

func (s *service) handle(ctx context.Context, c *served, q request) {
	defer c.cancel()
	a := s.answer(ctx, c, q)
	s.mu.Lock()
	delete(s.calls, q.Call)
	s.mu.Unlock()
	s.send(q, a)
}

func (s *service) send(q request, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.Call = q.Call
	_ = s.out.Encode(a) // if the parent is gone, so is the input
}

// yield sends what a loop yields, and reports whether it is to go on.
func (s *service) yield(c *served, q request, a answer) bool {
	a.More = true
	s.send(q, a)
	return <-c.next
}

func (s *service) answer(ctx context.Context, c *served, q request) (a answer) {
	var err error
	defer func() { a.Err = encode(err) }()
	if q.Method == "Open" {
		var st *sqlitestore.Store
		if st, err = sqlitestore.Open(ctx, q.Key, &sqlitestore.Options{Synchronous: sqlitestore.Normal}); err == nil {
			s.mu.Lock()
			a.Store = len(s.stores)
			s.stores = append(s.stores, st)
			s.mu.Unlock()
		}
		return a
	}
	s.mu.Lock()
	st := s.stores[q.Store]
	s.mu.Unlock()
	switch q.Method {
	case "Close":
		err = st.Close()
	case "Append":
		a.Receipts, err = st.Append(ctx, q.Queue, q.Items, q.Max)
	case "Claim":
		a.Claims, err = st.Claim(ctx, q.Queue, q.Claim)
	case "Settle":
		err = st.Settle(ctx, q.Queue, q.Settlements...)
	case "Items":
		for it, err := range st.Items(ctx, q.Queue, q.List) {
			if !s.yield(c, q, answer{Item: it, Err: encode(err)}) {
				break
			}
		}
	case "Get":
		a.Record, err = st.Get(ctx, q.Key)
	case "Put":
		a.Version, err = st.Put(ctx, q.Key, q.Value, q.Prev)
	case "Delete":
		err = st.Delete(ctx, q.Key, q.Prev)
	case "Keys":
		for key, err := range st.Keys(ctx, q.Key, q.After) {
			if !s.yield(c, q, answer{Key: key, Err: encode(err)}) {
				break
			}
		}
	case "Commit":
		a.Committed, err = st.Commit(ctx, q.Appends, q.Changes)
	case "Usage":
		a.Keys, a.Bytes, err = st.Usage(ctx, q.Key)
	case "Watch":
		changed := st.Watch(ctx, q.Key)
		if !s.yield(c, q, answer{}) {
			break
		}
		for key, err := range changed {
			if !s.yield(c, q, answer{Key: key, Err: encode(err)}) {
				break
			}
		}
	default:
		err = errors.New("no method " + q.Method)
	}
	return a
}

// A wireError is an error on its way: its text, and all that a caller can ask it.
type wireError struct {
	Text    string // empty for no error
	Kinds   []int  // of sentinels
	Channel bool   // a *team.Error is in it
	Invalid *team.InvalidError
	Limit   *team.LimitError
	Settle  []wireSettle
}

type wireSettle struct {
	Seq     team.Seq
	Verdict team.Verdict
	Err     wireError
}

var sentinels = []error{
	team.ErrNotFound, team.ErrConflict, team.ErrLimit, team.ErrTooLarge, team.ErrDenied, team.ErrInvalid, team.ErrCorrupt,
	team.ErrUnknownOutcome, team.ErrClosed, errors.ErrUnsupported, context.Canceled, context.DeadlineExceeded,
}

func encode(err error) (w wireError) {
	if err == nil {
		return w
	}
	w.Text = err.Error()
	for i, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			w.Kinds = append(w.Kinds, i)
		}
	}
	_, w.Channel = errors.AsType[*team.Error](err)
	w.Invalid, _ = errors.AsType[*team.InvalidError](err)
	w.Limit, _ = errors.AsType[*team.LimitError](err)
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	for _, err := range list {
		if e, ok := err.(*team.SettleError); ok {
			w.Settle = append(w.Settle, wireSettle{e.Seq, e.Verdict, encode(e.Err)})
		}
	}
	return w
}

func (w wireError) decode() error {
	switch {
	case w.Text == "":
		return nil
	case w.Channel:
		return &team.Error{Op: "in another process", Err: errors.New(w.Text)}
	case len(w.Settle) > 0:
		var list []error
		for _, e := range w.Settle {
			list = append(list, &team.SettleError{Seq: e.Seq, Verdict: e.Verdict, Err: e.Err.decode()})
		}
		return errors.Join(list...)
	case w.Invalid != nil:
		return w.Invalid
	case w.Limit != nil:
		return w.Limit
	default:
		return &remoteError{w}
	}
}

type remoteError struct{ wireError }

func (e *remoteError) Error() string { return e.Text }

func (e *remoteError) Unwrap() (list []error) {
	for _, i := range e.Kinds {
		list = append(list, sentinels[i])
	}
	return list
}

package fakehost

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
)

//go:embed schema.sql
var schema string

// A database is one connection with its prepared statements; Host.mu guards it.
type database struct {
	conn  *sqlite3.Conn
	stmts map[string]*sqlite3.Stmt
}

// openDatabase opens path, or memory if path is empty, and makes the tables.
func openDatabase(path string) (*database, error) {
	var conn *sqlite3.Conn
	var err error
	if path == "" {
		conn, err = sqlite3.Open(":memory:")
	} else {
		conn, err = sqlite3.OpenFlags(fileURI(path), sqlite3.OPEN_READWRITE|sqlite3.OPEN_CREATE|sqlite3.OPEN_URI)
	}
	if err != nil {
		return nil, fmt.Errorf("open the host's database: %w", err)
	}
	d := &database{conn: conn, stmts: make(map[string]*sqlite3.Stmt)}
	err = errors.Join(conn.BusyTimeout(10*time.Second), conn.Exec(`PRAGMA foreign_keys = ON`))
	if err == nil && path != "" {
		err = conn.Exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL`)
	}
	if err == nil {
		err = conn.Exec(`BEGIN IMMEDIATE; ` + schema + `; COMMIT`)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the host's database: %w", err), conn.Close())
	}
	return d, nil
}

// fileURI returns path so that no character of it means something to SQLite.
func fileURI(path string) string {
	const hex = "0123456789ABCDEF"
	b := []byte("file:")
	for i := range len(path) {
		switch c := path[i]; c {
		case '%', '?', '#':
			b = append(b, '%', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

func (d *database) close() error {
	var errs []error
	for _, s := range d.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, d.conn.Close())...)
}

// stmt returns sql prepared, with args bound. A pointer, slice, map or struct is bound
// as JSON; an empty json.RawMessage and a nil are NULL.
func (d *database) stmt(sql string, args []any) (*sqlite3.Stmt, error) {
	s := d.stmts[sql]
	if s == nil {
		var err error
		if s, _, err = d.conn.PrepareFlags(sql, sqlite3.PREPARE_PERSISTENT); err != nil {
			return nil, err
		}
		d.stmts[sql] = s
	}
	for i, arg := range args {
		var err error
		switch v := arg.(type) {
		case nil:
			err = s.BindNull(i + 1)
		case int64:
			err = s.BindInt64(i+1, v)
		case int:
			err = s.BindInt64(i+1, int64(v))
		case bool:
			err = s.BindBool(i+1, v)
		case float64:
			err = s.BindFloat(i+1, v)
		case string:
			err = s.BindText(i+1, v)
		case json.RawMessage:
			if len(v) == 0 {
				err = s.BindNull(i + 1)
			} else {
				err = s.BindText(i+1, string(v))
			}
		default:
			var text []byte
			if text, err = json.Marshal(v); err == nil {
				err = s.BindText(i+1, string(text))
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// A tx is one step of the host: what it stores and what it publishes become
// visible together, or neither does.
type tx struct {
	h     *Host
	now   int64 // ms
	pub   []Event
	after []func()

	folders map[string]string // of sessions; see locate
}

// tx runs fn in a transaction under the host's lock, and then does what it deferred and
// publishes what it published, in that order and still under the lock: so
// the feed has the order of the database. fn must not call a method that takes the
// lock.
func (h *Host) tx(fn func(*tx) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.txLocked(fn)
}

func (h *Host) txLocked(fn func(*tx) error) error {
	if h.dead {
		return team.ErrClosed
	}
	if err := h.db.conn.Exec(`BEGIN IMMEDIATE`); err != nil {
		return fmt.Errorf("the host's database: %w", err)
	}
	t := &tx{h: h, now: h.now().UnixMilli()}
	err := fn(t)
	if err == nil {
		err = t.numberEvents()
	}
	if err == nil {
		err = h.db.conn.Exec(`COMMIT`)
	}
	if err != nil {
		if !h.db.conn.GetAutocommit() {
			err = errors.Join(err, h.db.conn.Exec(`ROLLBACK`))
		}
		return err
	}
	// What was deferred comes first: whoever hears of an ask can answer it.
	for _, f := range t.after {
		f()
	}
	for _, e := range t.pub {
		h.Event.send(e)
	}
	return nil
}

// exec runs sql and returns how many rows it changed.
func (t *tx) exec(sql string, args ...any) (int64, error) {
	s, err := t.h.db.stmt(sql, args)
	if err != nil {
		return 0, fmt.Errorf("the host's database: %w", err)
	}
	if err := s.Exec(); err != nil {
		return 0, fmt.Errorf("the host's database: %w", err)
	}
	return t.h.db.conn.Changes(), nil
}

// run is exec for a statement whose count does not matter.
func (t *tx) run(sql string, args ...any) error {
	_, err := t.exec(sql, args...)
	return err
}

// rows runs sql and calls row for each row. row must not run sql itself.
func (t *tx) rows(sql string, row func(*sqlite3.Stmt), args ...any) error {
	s, err := t.h.db.stmt(sql, args)
	if err != nil {
		return fmt.Errorf("the host's database: %w", err)
	}
	for s.Step() {
		row(s)
	}
	if err := errors.Join(s.Err(), s.Reset()); err != nil {
		return fmt.Errorf("the host's database: %w", err)
	}
	return nil
}

// number returns the first column of the first row of sql, and whether there is one
// that is not NULL.
func (t *tx) number(sql string, args ...any) (n int64, ok bool, err error) {
	err = t.rows(sql, func(s *sqlite3.Stmt) {
		if !ok && s.ColumnType(0) != sqlite3.NULL {
			n, ok = s.ColumnInt64(0), true
		}
	}, args...)
	return n, ok, err
}

// later runs f after the commit, under the host's lock.
func (t *tx) later(f func()) { t.after = append(t.after, f) }

// null returns s, or nil for an empty one, so that the column is NULL.
func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// raw is the column as JSON, or nil where it is NULL.
func raw(s *sqlite3.Stmt, col int) json.RawMessage {
	if s.ColumnType(col) == sqlite3.NULL {
		return nil
	}
	return json.RawMessage(s.ColumnText(col))
}

// mustJSON encodes a value of this package's own types, which cannot fail.
func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("fakehost: encode a %T: %v", v, err))
	}
	return b
}

package sqlitestore

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
)

const perPage = 128 // keys

// Get reads on a connection of its own and waits for no writer.
func (s *Store) Get(ctx context.Context, key string) (team.Record, error) {
	if err := checkKey(key); err != nil {
		return team.Record{}, err
	}
	c, err := s.reader(ctx)
	if err != nil {
		return team.Record{}, err
	}
	defer s.giveBack(c)
	r := team.Record{Key: key}
	err = c.rows(qGet, func(row *sqlite3.Stmt) bool {
		r.Version = toVersion(row.ColumnInt64(0))
		r.Value = row.ColumnBlob(1, nil)
		return false
	}, []byte(key))
	if err := s.readError(ctx, err); err != nil {
		return team.Record{}, err
	}
	if r.Version == "" {
		return team.Record{}, team.ErrNotFound
	}
	return r, nil
}

// Put shares its transaction with whatever this process writes at that moment.
func (s *Store) Put(ctx context.Context, key string, value []byte, prev team.Version) (v team.Version, err error) {
	if err := checkKey(key); err != nil {
		return "", err
	}
	if err := checkSize("bytes of one record", len(value)); err != nil {
		return "", err
	}
	err = s.do(&op{ctx: ctx, size: len(value), run: func(t *tx) (err error) {
		v, err = t.put(key, value, prev)
		return err
	}})
	if err != nil {
		return "", err
	}
	return v, nil
}

// Delete shares its transaction with whatever this process writes at that moment.
func (s *Store) Delete(ctx context.Context, key string, prev team.Version) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return s.do(&op{ctx: ctx, run: func(t *tx) error { return t.delete(key, prev) }})
}

// Keys reads names, a page at a time, and holds no connection while it yields, so
// the loop may call the store.
func (s *Store) Keys(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		from := prefix
		if after >= prefix {
			from = after + "\x00" // the smallest string behind it
		}
		for {
			page, err := s.keysFrom(ctx, from)
			for _, key := range page {
				if err := ctx.Err(); err != nil {
					yield("", err)
					return
				}
				if !strings.HasPrefix(key, prefix) || !yield(key, nil) {
					return
				}
			}
			if err == nil && len(page) < perPage {
				if err = ctx.Err(); err == nil {
					return
				}
			}
			if err != nil {
				yield("", err)
				return
			}
			from = page[len(page)-1] + "\x00"
		}
	}
}

func (s *Store) keysFrom(ctx context.Context, from string) (page []string, err error) {
	c, err := s.reader(ctx)
	if err != nil {
		return nil, err
	}
	defer s.giveBack(c)
	err = c.rows(qKeys, func(row *sqlite3.Stmt) bool {
		page = append(page, string(row.ColumnRawBlob(0)))
		return true
	}, []byte(from), perPage)
	return page, s.readError(ctx, err)
}

// Usage looks at the head of each of the records, and reads no value.
func (s *Store) Usage(ctx context.Context, prefix string) (keys int, bytes int64, err error) {
	c, err := s.reader(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer s.giveBack(c)
	err = c.rows(qUsage, func(row *sqlite3.Stmt) bool {
		keys, bytes = row.ColumnInt(0), row.ColumnInt64(1)
		return false
	}, []byte(prefix), []byte(prefix+"\xff")) // no UTF-8 has this byte
	if err := s.readError(ctx, err); err != nil {
		return 0, 0, err
	}
	return keys, bytes, nil
}

// put is Put. It changes nothing before it is sure.
func (t *tx) put(key string, value []byte, prev team.Version) (team.Version, error) {
	id, err := t.match(key, prev)
	if err != nil {
		return "", err
	}
	n, err := t.nextVersion()
	if err != nil {
		return "", err
	}
	if id == 0 {
		_, err = t.c.exec(qPutNew, []byte(key), n, value)
	} else {
		_, err = t.c.exec(qPutOld, id, n, value)
	}
	t.rang = append(t.rang, recordsSlot)
	return toVersion(n), err
}

// delete is Delete.
func (t *tx) delete(key string, prev team.Version) error {
	id, err := t.match(key, team.AnyVersion)
	if err != nil {
		return err
	}
	if id == 0 {
		return team.ErrNotFound
	}
	if _, err := t.match(key, prev); err != nil {
		return err
	}
	if _, err = t.c.exec(qDelete, id); err != nil {
		return err
	}
	t.rang = append(t.rang, recordsSlot)
	return t.deleted(key)
}

// match returns the row of key, 0 if there is none, if its version is prev.
func (t *tx) match(key string, prev team.Version) (id int64, err error) {
	var version team.Version
	err = t.c.rows(qVersion, func(row *sqlite3.Stmt) bool {
		id, version = row.ColumnInt64(0), toVersion(row.ColumnInt64(1))
		return false
	}, []byte(key))
	if err == nil && prev != team.AnyVersion && version != prev {
		err = fmt.Errorf("version is %q, not %.40q: %w", version, prev, team.ErrConflict)
	}
	return id, err
}

func toVersion(n int64) team.Version { return team.Version("v" + strconv.FormatInt(n, 10)) }

package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ncruces/go-sqlite3"

	"github.com/teamchan/team"
)

// What SQLite's own check cannot know, each with what it means if a row is found.
var crossChecks = []struct{ sql, means string }{
	{`SELECT count(*) FROM items WHERE state NOT BETWEEN 0 AND 6`, "items in a state that there is not"},
	{`SELECT count(*) FROM items WHERE seq <= 0 OR queue = '' OR id = '' OR attempt < 0 OR cost < 0`, "items with fields that cannot be"},
	{`SELECT count(*) FROM items WHERE state >= 3 AND at <> 0`, "settled items that are still claimed"},
	{`SELECT count(*) FROM items WHERE state = 2 AND (at = 0 OR token IS NULL OR attempt = 0)`, "claimed items without a claim"},
	{`SELECT count(*) FROM items WHERE state = 1 AND at = 0`, "delayed items that would never be due"},
	{`SELECT count(*) FROM items WHERE state = 0 AND at <> expires`, "pending items that would expire at the wrong time"},
	{`SELECT count(*) FROM (SELECT token FROM items WHERE token IS NOT NULL GROUP BY token HAVING count(*) > 1)`, "tokens that two claims have"},
	{`SELECT count(*) FROM records WHERE version <= 0 OR version > (SELECT value FROM meta WHERE name = 'versions')`, "records with a version that was never given out"},
	{`SELECT count(*) FROM (SELECT version FROM records GROUP BY version HAVING count(*) > 1)`, "versions that two records have"},
	{`SELECT count(*) FROM records WHERE length(key) NOT BETWEEN 1 AND 1024`, "records with a key that is none"},
	{`SELECT count(*) FROM deletions WHERE version > (SELECT value FROM meta WHERE name = 'versions')
		OR version <= (SELECT value FROM meta WHERE name = 'forgotten')`, "deletions with a version that they cannot have"},
	{`SELECT count(*) FROM deletions JOIN records USING (version)`, "versions that a record and a deletion have"},
	{`SELECT count(*) FROM deletions WHERE length(key) NOT BETWEEN 1 AND 1024`, "deletions of a key that is none"},
	{`SELECT count(*) <> 2 FROM meta WHERE name IN ('versions', 'forgotten')`, "counters missing"},
}

// Check reads the whole file and returns nil if it is as this package writes it: pages
// and indexes, and what the tables say about each other. Otherwise the error is
// team.ErrCorrupt and names what was found. Others may work on meanwhile; the
// write-ahead log grows until Check returns.
func (s *Store) Check(ctx context.Context) error {
	c, err := s.reader(ctx)
	if err != nil {
		return err
	}
	defer s.giveBack(c)
	var found []string
	if err := c.db.Exec(`BEGIN`); err != nil { // one state for all checks
		return s.readError(ctx, err)
	}
	defer func() {
		c.db.SetInterrupt(context.Background())
		_ = c.db.Exec(`ROLLBACK`)
	}()
	err = c.each(`PRAGMA integrity_check`, func(row *sqlite3.Stmt) {
		if text := row.ColumnText(0); text != "ok" {
			found = append(found, text)
		}
	})
	if err == nil {
		found, err = missing(c, found)
	}
	for _, check := range crossChecks {
		if err != nil {
			break
		}
		var n int64
		if n, err = c.number(check.sql); n > 0 {
			found = append(found, fmt.Sprintf("%d %s", n, check.means))
		}
	}
	if err != nil {
		return s.readError(ctx, err)
	}
	if len(found) > 0 {
		return fmt.Errorf("%w; stop all writers and restore a backup: %s", team.ErrCorrupt, strings.Join(found, "; "))
	}
	return nil
}

// names returns the tables and indexes of a file.
func names(c *conn) (list []string, err error) {
	err = c.each(`SELECT name FROM sqlite_schema`, func(row *sqlite3.Stmt) { list = append(list, row.ColumnText(0)) })
	return list, err
}

// wanted returns the tables and indexes that a file should have.
var wanted = sync.OnceValues(func() ([]string, error) {
	model, err := sqlite3.Open(":memory:")
	if err != nil {
		return nil, err
	}
	defer model.Close()
	for _, step := range migrations {
		if err := model.Exec(step); err != nil {
			return nil, err
		}
	}
	return names(&conn{db: model})
})

// missing adds the tables and indexes that should be there and are not.
func missing(c *conn, found []string) ([]string, error) {
	want, err := wanted()
	if err != nil {
		return found, err
	}
	have, err := names(c)
	for _, name := range want {
		if err == nil && !slices.Contains(have, name) {
			found = append(found, name+" is missing")
		}
	}
	return found, err
}

// Backup writes the state of this moment to a new file, while others work on. What
// was returned from before the call is in it. The file is durable and whole when
// Backup returns nil, and Open opens it; if path is there already the error is
// fs.ErrExist, and after any error there is nothing.
func (s *Store) Backup(ctx context.Context, path string) (err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil { // before all the work; what counts is the link
		return &fs.PathError{Op: "backup", Path: path, Err: fs.ErrExist}
	}
	// SQLite fills a file of that name if it is empty, so it gets one in a folder
	// that is only ours.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".backup-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	temp := filepath.Join(dir, "db")
	if err := s.vacuumInto(ctx, temp); err != nil {
		return err
	}
	if err := syncFile(temp); err != nil {
		return err
	}
	if err := publish(temp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func (s *Store) vacuumInto(ctx context.Context, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// Not one for reading: VACUUM counts as writing.
	c, err := dial(ctx, s.uri(), sqlite3.OPEN_READWRITE|sqlite3.OPEN_URI)
	if err != nil {
		return s.readError(ctx, err)
	}
	c.db.SetInterrupt(ctx)
	c.busy = untilDone(ctx, s.limit(ctx))
	s2, _, err := c.db.Prepare(`VACUUM INTO ?1`)
	if err == nil {
		if err = s2.BindText(1, path); err == nil {
			err = s2.Exec()
		}
		err = errors.Join(err, s2.Close())
	}
	c.db.SetInterrupt(context.Background())
	return errors.Join(s.readError(ctx, err), c.close())
}

// publish gives a file its name, and never takes one from another file.
func publish(temp, path string) error {
	if err := os.Chmod(temp, 0o600); err != nil {
		return err
	}
	err := os.Link(temp, path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	// No links here: take the name first, exclusively, then fill it.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(path)
		}
	}()
	from, err := os.Open(temp)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	defer from.Close()
	if _, err = f.ReadFrom(from); err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	return err
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

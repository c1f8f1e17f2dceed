package sqlitestore

import (
	_ "embed"
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"
)

// applicationID marks our files: "team" in ASCII.
const applicationID = 0x7465616d

var (
	//go:embed schema.sql
	schema1 string
	//go:embed schema2.sql
	schema2 string
)

// migrations has at n what makes a file of version n one of version n+1. What was
// released is never changed, only added to.
var migrations = []string{schema1, schema2}

// checkSchema refuses what migrate could not handle, and writes nothing.
func checkSchema(c *conn) error {
	_, err := fileVersion(c, len(migrations))
	return err
}

// fileVersion returns the schema version of a file, 0 for a new one.
func fileVersion(c *conn, most int) (_ int, err error) {
	if c.db.GetAutocommit() {
		// All of it from one state: another process may be making the schema.
		if err := c.db.Exec(`BEGIN`); err != nil {
			return 0, err
		}
		defer func() {
			if !c.db.GetAutocommit() {
				err = errors.Join(err, c.db.Exec(`ROLLBACK`))
			}
		}()
	}
	id, err := c.number(`PRAGMA application_id`)
	if errors.Is(err, sqlite3.NOTADB) {
		return 0, &FormatError{Why: "it is no SQLite file"}
	} else if err != nil {
		return 0, err
	}
	version, err := c.number(`PRAGMA user_version`)
	if err != nil {
		return 0, err
	}
	tables, err := c.number(`SELECT count(*) FROM sqlite_schema`)
	if err != nil {
		return 0, err
	}
	switch {
	case id == 0 && version == 0 && tables == 0:
		return 0, nil
	case id != applicationID:
		return 0, &FormatError{Why: fmt.Sprintf("its application id is %#x", id)}
	case int(version) > most:
		return 0, &SchemaError{Got: int(version), Max: most}
	case version <= 0:
		return 0, &FormatError{Why: "it has no version"}
	}
	return int(version), nil
}

// migrate brings the file up to date, in one transaction: a file is of one version
// or of the next. Another process may do so at the same time.
func migrate(c *conn, steps []string) (err error) {
	if v, err := fileVersion(c, len(steps)); err != nil || v == len(steps) {
		return err
	}
	if err := c.db.Exec(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	defer func() {
		if err != nil && !c.db.GetAutocommit() {
			err = errors.Join(err, c.db.Exec(`ROLLBACK`))
		}
	}()
	have, err := fileVersion(c, len(steps)) // now that nobody else can
	if err != nil {
		return err
	}
	for v := have; v < len(steps); v++ {
		if err := c.db.Exec(steps[v]); err != nil {
			return fmt.Errorf("to schema version %d: %w", v+1, err)
		}
	}
	if err := c.db.Exec(fmt.Sprintf(`PRAGMA application_id = %d; PRAGMA user_version = %d`, applicationID, len(steps))); err != nil {
		return err
	}
	return c.db.Exec(`COMMIT`)
}

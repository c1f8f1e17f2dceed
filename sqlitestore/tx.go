package sqlitestore

// A tx is the transaction under way. It is the leader's.
type tx struct {
	c    *conn
	rang []slot

	versions int64 // how many were given out; read when first needed
	counted  bool
}

// run runs one op, in a savepoint if guard is set.
func (t *tx) run(o *op, guard bool) error {
	if !guard {
		return o.run(t)
	}
	if _, err := t.c.exec(qSavepoint); err != nil {
		return err
	}
	err := o.run(t)
	if err != nil && !fromSQLite(err) {
		if _, e := t.c.exec(qRollbackTo); e != nil {
			return e
		}
	}
	if err == nil || !fromSQLite(err) {
		if _, e := t.c.exec(qRelease); e != nil {
			return e
		}
	}
	return err
}

// nextVersion returns a version that no key ever had.
func (t *tx) nextVersion() (int64, error) {
	if !t.counted {
		var err error
		if t.versions, err = t.c.one(qVersions); err != nil {
			return 0, err
		}
		t.counted = true
	}
	t.versions++
	return t.versions, nil
}

// finish writes what is written once for all ops.
func (t *tx) finish() error {
	if !t.counted {
		return nil
	}
	_, err := t.c.exec(qSetVersions, t.versions)
	return err
}

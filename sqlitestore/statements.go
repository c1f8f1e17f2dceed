package sqlitestore

// A query names a statement that a connection keeps prepared.
type query int

const (
	qBegin query = iota
	qCommit
	qRollback
	qSavepoint
	qRelease
	qRollbackTo

	qAdvance
	qByKey
	qByID
	qInsert
	qCountOpen
	qReady
	qClaim
	qKill
	qNext
	qLook
	qAck
	qSetPending
	qSetLease
	qAmend
	qSettle
	qUnclaim
	qOpenItems
	qAllItems

	qGet
	qVersion
	qPutNew
	qPutOld
	qDelete
	qKeys
	qUsage
	qVersions
	qSetVersions

	qChanges
	qForgotten
	qSetForgotten
	qNoteDeletion
	qDeletions
	qForget

	qSweepTo
	qSweepCount
	qSweepExpire
	qSweep
	qVacuum

	queries
)

// Most name their index: a plan that SQLite chooses by its statistics could change
// with the data, and Claim would be slow one day.
var statements = [queries]string{
	qBegin:      `BEGIN IMMEDIATE`,
	qCommit:     `COMMIT`,
	qRollback:   `ROLLBACK`,
	qSavepoint:  `SAVEPOINT op`,
	qRelease:    `RELEASE op`,
	qRollbackTo: `ROLLBACK TO op`,

	// What the clock has done to a queue by ?2.
	qAdvance: `UPDATE items INDEXED BY items_timed SET
		state = iif(expires > 0 AND expires <= ?2, 5, 0),
		at = iif(expires > 0 AND expires <= ?2, 0, expires),
		changed = CASE WHEN expires > 0 AND expires <= ?2 THEN max(at, expires) WHEN state = 2 THEN at ELSE changed END,
		token = NULL
		WHERE queue = ?1 AND at > 0 AND at <= ?2`,
	qByKey: `SELECT seq, id, digest FROM items INDEXED BY items_key WHERE queue = ?1 AND key = ?2 AND key IS NOT NULL`,
	qByID:  `SELECT 1 FROM items INDEXED BY items_id WHERE queue = ?1 AND id = ?2`,
	qInsert: `INSERT INTO items (queue, id, state, attempt, at, expires, cost, appended, changed, key, digest, data)
		VALUES (?1, ?2, 0, 0, ?3, ?3, ?4, ?5, ?5, ?6, ?7, ?8)`,
	qCountOpen: `SELECT count(*) FROM items INDEXED BY items_open WHERE queue = ?1 AND state <= 2`,
	qReady: `SELECT seq, id, key, digest, cost, expires, attempt, data FROM items INDEXED BY items_open
		WHERE queue = ?1 AND state = 0 AND state <= 2 ORDER BY seq`,
	qClaim: `UPDATE items SET state = 2, attempt = attempt + 1, at = ?2, token = ?3, changed = ?4 WHERE seq = ?1`,
	qKill:  `UPDATE items SET state = 6, at = 0, reason = ?2, changed = ?3 WHERE seq = ?1`,
	// Whether there is something ready, and when the clock changes something.
	qNext: `SELECT EXISTS (SELECT 1 FROM items INDEXED BY items_open WHERE queue = ?1 AND state = 0 AND state <= 2),
		(SELECT min(at) FROM items INDEXED BY items_timed WHERE queue = ?1 AND at > 0)`,
	qLook:       `SELECT state, at, expires, token FROM items WHERE seq = ?1 AND queue = ?2`,
	qAck:        `UPDATE items SET state = 3, at = 0, changed = ?4 WHERE seq = ?1 AND queue = ?2 AND state = 2 AND token = ?3 AND at > ?4`,
	qSetPending: `UPDATE items SET state = ?2, at = ?3, attempt = iif(?4, 0, attempt), token = NULL, reason = NULL, changed = ?5 WHERE seq = ?1`,
	qSetLease:   `UPDATE items SET at = ?2 WHERE seq = ?1`,
	qSettle:     `UPDATE items SET state = ?2, at = 0, reason = ?3, changed = ?4 WHERE seq = ?1`,
	qAmend:      `UPDATE items SET data = ?2 WHERE seq = ?1`,
	// A claim that its caller never learnt of was none.
	qUnclaim: `UPDATE items SET state = 0, at = expires, attempt = attempt - 1, token = NULL, changed = ?3 WHERE seq = ?1 AND token = ?2 AND state = 2`,

	qOpenItems: `SELECT seq, id, key, digest, cost, expires, state, at, attempt, reason, data, changed FROM items WHERE seq IN (
		SELECT seq FROM (SELECT seq FROM items INDEXED BY items_open WHERE queue = ?1 AND state = 0 AND state <= 2 AND seq > ?2 ORDER BY seq LIMIT ?3)
		UNION ALL
		SELECT seq FROM (SELECT seq FROM items INDEXED BY items_open WHERE queue = ?1 AND state = 1 AND state <= 2 AND seq > ?2 ORDER BY seq LIMIT ?3)
		UNION ALL
		SELECT seq FROM (SELECT seq FROM items INDEXED BY items_open WHERE queue = ?1 AND state = 2 AND state <= 2 AND seq > ?2 ORDER BY seq LIMIT ?3)
		) ORDER BY seq LIMIT ?3`,
	qAllItems: `SELECT seq, id, key, digest, cost, expires, state, at, attempt, reason, data, changed FROM items WHERE seq IN (
		SELECT seq FROM (SELECT seq FROM items INDEXED BY items_open WHERE queue = ?1 AND state = 0 AND state <= 2 AND seq > ?2 ORDER BY seq LIMIT ?3)
		UNION ALL
		SELECT seq FROM (SELECT seq FROM items INDEXED BY items_open WHERE queue = ?1 AND state = 1 AND state <= 2 AND seq > ?2 ORDER BY seq LIMIT ?3)
		UNION ALL
		SELECT seq FROM (SELECT seq FROM items INDEXED BY items_open WHERE queue = ?1 AND state = 2 AND state <= 2 AND seq > ?2 ORDER BY seq LIMIT ?3)
		UNION ALL
		SELECT seq FROM (SELECT seq FROM items INDEXED BY items_settled WHERE queue = ?1 AND state >= 3 AND seq > ?2 ORDER BY seq LIMIT ?3)
		) ORDER BY seq LIMIT ?3`,

	qGet:     `SELECT version, value FROM records WHERE key = ?1`,
	qVersion: `SELECT id, version FROM records WHERE key = ?1`,
	qPutNew:  `INSERT INTO records (key, version, value) VALUES (?1, ?2, ?3)`,
	qPutOld:  `UPDATE records SET version = ?2, value = ?3 WHERE id = ?1`,
	qDelete:  `DELETE FROM records WHERE id = ?1`,
	qKeys:    `SELECT key FROM records WHERE key >= ?1 ORDER BY key LIMIT ?2`,
	// length takes a blob's size from the head of its row.
	qUsage:       `SELECT count(*), ifnull(sum(length(key) + length(value)), 0) FROM records WHERE key >= ?1 AND key < ?2`,
	qVersions:    `SELECT value FROM meta WHERE name = 'versions'`,
	qSetVersions: `UPDATE meta SET value = ?1 WHERE name = 'versions'`,

	// The next changes of records behind version ?1.
	qChanges: `SELECT version, key FROM (
		SELECT version, key FROM (SELECT version, key FROM records INDEXED BY records_version WHERE version > ?1 ORDER BY version LIMIT ?2)
		UNION ALL
		SELECT version, key FROM (SELECT version, key FROM deletions WHERE version > ?1 ORDER BY version LIMIT ?2)
		) ORDER BY version LIMIT ?2`,
	qForgotten:    `SELECT value FROM meta WHERE name = 'forgotten'`,
	qSetForgotten: `UPDATE meta SET value = ?1 WHERE name = 'forgotten'`,
	qNoteDeletion: `INSERT INTO deletions (version, key, at) VALUES (?1, ?2, ?3)`,
	qDeletions:    `SELECT version, at FROM deletions ORDER BY version LIMIT ?1`,
	qForget:       `DELETE FROM deletions WHERE version <= ?1`,

	// The end of the next stretch of rows to sweep, or nothing at the end.
	qSweepTo: `SELECT max(seq), count(*) FROM (SELECT seq FROM items WHERE seq > ?1 ORDER BY seq LIMIT ?2)`,
	qSweepCount: `SELECT count(*) FROM items WHERE seq > ?1 AND seq <= ?2 AND (
		state >= 3 AND changed <= ?3 AND (state < 6 OR ?4) OR state <= 2 AND at > 0 AND expires > 0 AND expires <= ?3 AND at <= ?3)`,
	qSweepExpire: `UPDATE items SET state = 5, changed = expires, at = 0, token = NULL
		WHERE seq > ?1 AND seq <= ?2 AND state <= 2 AND at > 0 AND expires > 0 AND expires <= ?3 AND at <= ?3`,
	qSweep: `DELETE FROM items WHERE seq > ?1 AND seq <= ?2 AND state >= 3 AND changed <= ?3 AND (state < 6 OR ?4)
		AND seq < (SELECT max(seq) FROM items)`,
	qVacuum: `PRAGMA incremental_vacuum(256)`,
}

-- A file as version 1 of the schema made it, with something in each table. It is never changed.

PRAGMA auto_vacuum = incremental;
PRAGMA journal_mode = wal;
BEGIN;
CREATE TABLE items (
	-- A new row gets the highest seq plus one. Sweep never removes the row with
	-- the highest, so no seq is used twice and no counter has to be written.
	seq      INTEGER PRIMARY KEY,
	queue    TEXT    NOT NULL,
	id       TEXT    NOT NULL,
	-- 0 ready, 1 delayed, 2 claimed, 3 acked, 4 cancelled, 5 expired, 6 dead.
	-- 0 and 1 are what the port calls pending.
	state    INTEGER NOT NULL,
	attempt  INTEGER NOT NULL,
	-- When the clock changes the state next, 0 for never. Claimed: the end of
	-- the lease. Delayed: the end of the delay, or expires. Ready: expires.
	at       INTEGER NOT NULL,
	expires  INTEGER NOT NULL, -- 0 for never
	cost     INTEGER NOT NULL,
	appended INTEGER NOT NULL,
	changed  INTEGER NOT NULL, -- when state changed last
	key      TEXT,             -- NULL for none
	digest   TEXT,
	token    TEXT,             -- of the claim that holds, or that ended it
	reason   TEXT,             -- why it is dead, or by what evidence it is acked
	data     BLOB    NOT NULL  -- last, so that nobody who does not want it reads it
) STRICT;

CREATE UNIQUE INDEX items_id  ON items (queue, id);
CREATE UNIQUE INDEX items_key ON items (queue, key) WHERE key IS NOT NULL;

-- Settled rows are in neither of the next two, which are all that Claim looks at.
CREATE INDEX items_open    ON items (queue, state, seq) WHERE state <= 2;
CREATE INDEX items_timed   ON items (queue, at)         WHERE at > 0;
CREATE INDEX items_settled ON items (queue, seq)        WHERE state >= 3;

CREATE TABLE records (
	id      INTEGER PRIMARY KEY,
	key     BLOB    NOT NULL UNIQUE, -- its index alone answers Keys
	version INTEGER NOT NULL,
	value   BLOB    NOT NULL
) STRICT;

CREATE TABLE meta (
	name  TEXT PRIMARY KEY,
	value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How many versions were given out, to any key: a count for each key would have
-- to outlive the key.
INSERT INTO meta (name, value) VALUES ('versions', 0);

INSERT INTO items (seq, queue, id, state, attempt, at, expires, cost, appended, changed, key, digest, token, reason, data) VALUES
	(1, 'q', 'a', 3, 1, 0, 0, 0, 1700000000000, 1700000000000, 'key', 'digest', 'TOKEN', NULL, x'61'),
	(2, 'q', 'b', 0, 0, 0, 0, 5, 1700000000000, 1700000000000, NULL, NULL, NULL, NULL, x'62'),
	(3, 'q', 'c', 6, 3, 0, 0, 0, 1700000000000, 1700000000000, NULL, NULL, NULL, 'bad', x'');
INSERT INTO records (id, key, version, value) VALUES
	(1, CAST('k/1' AS BLOB), 3, x'31'),
	(2, CAST('k/2' AS BLOB), 7, x'32');
UPDATE meta SET value = 9 WHERE name = 'versions';
PRAGMA application_id = 1952801133;
PRAGMA user_version = 1;
COMMIT;

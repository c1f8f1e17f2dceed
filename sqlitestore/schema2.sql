-- Version 2: what changed since a version, for Watch.

-- A put is found by its version.
CREATE INDEX records_version ON records (version);

-- A deletion takes a version too, and leaves a row here for as long as somebody who
-- watches may need to come by; see watch.go.
CREATE TABLE deletions (
	version INTEGER PRIMARY KEY,
	key     BLOB    NOT NULL,
	at      INTEGER NOT NULL
) STRICT;

-- The highest version of the rows that were removed from deletions.
INSERT INTO meta (name, value) VALUES ('forgotten', 0);

-- The tables of OpenCode 2.0, by their own names and columns, as far as this package keeps
-- something in them. A host of generation 1 keeps its own JSON in the columns named data.

CREATE TABLE IF NOT EXISTS session_v2 (
	id TEXT PRIMARY KEY,
	project_id TEXT NOT NULL,
	parent_id TEXT,
	fork_session_id TEXT,
	fork_boundary TEXT,
	slug TEXT NOT NULL,
	directory TEXT NOT NULL,
	path TEXT NOT NULL DEFAULT '',
	title TEXT NOT NULL DEFAULT '',
	version TEXT NOT NULL,
	metadata TEXT,
	cost REAL NOT NULL DEFAULT 0,
	tokens_input INTEGER NOT NULL DEFAULT 0,
	tokens_output INTEGER NOT NULL DEFAULT 0,
	permission TEXT,
	agent TEXT,
	model TEXT,
	summary INTEGER NOT NULL DEFAULT 0,
	time_created INTEGER NOT NULL,
	time_updated INTEGER NOT NULL,
	time_idle INTEGER,
	time_viewed INTEGER,
	revert TEXT,
	time_archived INTEGER,
	idle_outcome TEXT,
	-- The claim of an execution that has begun and not ended: 'running', or 'shutdown'
	-- when its process closed under it.
	claim TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS session_parent ON session_v2 (parent_id);

CREATE TABLE IF NOT EXISTS session_inbox (
	id TEXT PRIMARY KEY,
	session_id TEXT NOT NULL REFERENCES session_v2 (id) ON DELETE CASCADE,
	type TEXT NOT NULL,
	payload TEXT NOT NULL,
	delivery TEXT NOT NULL,
	enqueued_seq INTEGER NOT NULL,
	time_created INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS inbox_delivery ON session_inbox (session_id, delivery, enqueued_seq);
CREATE UNIQUE INDEX IF NOT EXISTS inbox_seq ON session_inbox (session_id, enqueued_seq);

CREATE TABLE IF NOT EXISTS message (
	id TEXT PRIMARY KEY,
	session_id TEXT NOT NULL REFERENCES session_v2 (id) ON DELETE CASCADE,
	seq INTEGER NOT NULL,
	type TEXT NOT NULL,
	data TEXT NOT NULL,
	time_created INTEGER NOT NULL,
	time_updated INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS message_seq ON message (session_id, seq);

-- Parts of messages, generation 1 only.
CREATE TABLE IF NOT EXISTS part (
	id TEXT PRIMARY KEY,
	message_id TEXT NOT NULL REFERENCES message (id) ON DELETE CASCADE,
	session_id TEXT NOT NULL,
	seq INTEGER NOT NULL,
	data TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS part_message ON part (message_id, seq);

CREATE TABLE IF NOT EXISTS event (
	id TEXT PRIMARY KEY,
	aggregate_id TEXT NOT NULL,
	seq INTEGER NOT NULL,
	type TEXT NOT NULL,
	data TEXT NOT NULL,
	created INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS event_seq ON event (aggregate_id, seq);

CREATE TABLE IF NOT EXISTS event_sequence (
	aggregate_id TEXT PRIMARY KEY,
	seq INTEGER NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS kv (
	key TEXT PRIMARY KEY,
	value TEXT NOT NULL,
	time_created INTEGER NOT NULL,
	time_updated INTEGER NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS permission (
	id TEXT PRIMARY KEY,
	project_id TEXT NOT NULL,
	action TEXT NOT NULL,
	resource TEXT NOT NULL,
	time_created INTEGER NOT NULL,
	UNIQUE (project_id, action, resource)
) STRICT;

CREATE TABLE IF NOT EXISTS todo (
	session_id TEXT NOT NULL REFERENCES session_v2 (id) ON DELETE CASCADE,
	content TEXT NOT NULL,
	status TEXT NOT NULL,
	priority TEXT NOT NULL,
	position INTEGER NOT NULL,
	time_created INTEGER NOT NULL,
	time_updated INTEGER NOT NULL,
	PRIMARY KEY (session_id, position)
) STRICT;

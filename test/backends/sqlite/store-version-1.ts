/** The tables of the store as version 1 made them, for tests that bring such a file up to date. Never to be changed. */

export const VERSION_1 = `
  CREATE TABLE tenants (no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE) STRICT;

  -- How far the log has been read, by partition.
  CREATE TABLE positions (partition INTEGER PRIMARY KEY, position INTEGER NOT NULL) STRICT;

  -- Numbers that were never given out: 'node', 'record', 'event'. What is erased is not given out again.
  CREATE TABLE sequences (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT;
  INSERT INTO sequences VALUES ('node', 1), ('record', 1), ('event', 1);

  -- A node: created by (received_at, trace_id, user_index); 'known' is what statements.ts makes of its statements.
  CREATE TABLE nodes (
    no          INTEGER PRIMARY KEY,
    tenant      INTEGER NOT NULL,
    id          BLOB    NOT NULL,
    received_at INTEGER NOT NULL,
    trace_id    BLOB    NOT NULL,
    user_index  INTEGER NOT NULL,
    events      INTEGER NOT NULL,
    first_seen  INTEGER NOT NULL,
    last_seen   INTEGER NOT NULL,
    known       TEXT
  ) STRICT;
  CREATE UNIQUE INDEX nodes_by_id ON nodes (id);

  -- A match key points to its node for ever. 'raw' is null where it equals 'value'; its origin is null where it is the
  -- node's own. By value first, because SQLite compares texts at the beginning of a key faster than behind numbers.
  CREATE TABLE identifiers (
    tenant      INTEGER NOT NULL,
    type        INTEGER NOT NULL,
    value       TEXT    NOT NULL,
    node        INTEGER NOT NULL,
    raw         TEXT,
    received_at INTEGER,
    trace_id    BLOB,
    user_index  INTEGER,
    PRIMARY KEY (value, type, tenant)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX identifiers_by_node ON identifiers (node);

  -- Only nodes that were merged away have one; depth 1.
  CREATE TABLE aliases (node INTEGER PRIMARY KEY, root INTEGER NOT NULL) STRICT;
  CREATE INDEX aliases_by_root ON aliases (root);

  -- The edges of the graph of nodes, with their causes. Both ends are in one profile.
  CREATE TABLE merges (
    no          INTEGER PRIMARY KEY,
    tenant      INTEGER NOT NULL,
    node_a      INTEGER NOT NULL,
    node_b      INTEGER NOT NULL,
    from_node   INTEGER NOT NULL,
    into_node   INTEGER NOT NULL,
    via_type    INTEGER NOT NULL,
    via_value   TEXT    NOT NULL,
    received_at INTEGER NOT NULL,
    trace_id    BLOB    NOT NULL,
    user_index  INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX merges_by_node ON merges (node_a);

  -- Pairs that an unmerge separated, each in both directions.
  CREATE TABLE apart (
    node_a   INTEGER NOT NULL,
    node_b   INTEGER NOT NULL,
    trace_id BLOB    NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (node_a, node_b)
  ) STRICT, WITHOUT ROWID;

  -- Refusals of one kind are counted, not repeated. 'node' is where the record went.
  CREATE TABLE refusals (
    node        INTEGER NOT NULL,
    type        INTEGER NOT NULL,
    value       TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    raw         TEXT    NOT NULL,
    received_at INTEGER NOT NULL,
    trace_id    BLOB    NOT NULL,
    user_index  INTEGER NOT NULL,
    last_at     INTEGER NOT NULL,
    count       INTEGER NOT NULL,
    PRIMARY KEY (node, type, value, reason)
  ) STRICT, WITHOUT ROWID;

  -- SHA-256 of erased match keys.
  CREATE TABLE tombstones (
    tenant    INTEGER NOT NULL,
    hash      BLOB    NOT NULL,
    erased_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, hash)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE idempotency_keys (
    tenant      INTEGER NOT NULL,
    key         TEXT    NOT NULL,
    received_at INTEGER NOT NULL,
    trace_id    BLOB    NOT NULL,
    PRIMARY KEY (tenant, key)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX idempotency_keys_by_age ON idempotency_keys (received_at);

  CREATE TABLE event_ids (
    tenant      INTEGER NOT NULL,
    id          TEXT    NOT NULL,
    received_at INTEGER NOT NULL,
    trace_id    BLOB    NOT NULL,
    PRIMARY KEY (tenant, id)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX event_ids_by_age ON event_ids (received_at);

  -- Events by minute and by hour (width in milliseconds) of their own timestamps.
  CREATE TABLE counts (
    tenant     INTEGER NOT NULL,
    width      INTEGER NOT NULL,
    start      INTEGER NOT NULL,
    event_name TEXT    NOT NULL,
    events     INTEGER NOT NULL,
    revenue    REAL    NOT NULL,
    PRIMARY KEY (tenant, width, start, event_name)
  ) STRICT, WITHOUT ROWID;

  -- The books, by hour of receipt.
  CREATE TABLE ledger (
    tenant            INTEGER NOT NULL,
    hour              INTEGER NOT NULL,
    users_received    INTEGER NOT NULL,
    users_stored      INTEGER NOT NULL,
    users_duplicates  INTEGER NOT NULL,
    users_erased      INTEGER NOT NULL,
    users_expired     INTEGER NOT NULL,
    users_set_aside   INTEGER NOT NULL,
    users_rejected    INTEGER NOT NULL,
    events_received   INTEGER NOT NULL,
    events_stored     INTEGER NOT NULL,
    events_duplicates INTEGER NOT NULL,
    events_erased     INTEGER NOT NULL,
    events_expired    INTEGER NOT NULL,
    events_set_aside  INTEGER NOT NULL,
    PRIMARY KEY (tenant, hour)
  ) STRICT, WITHOUT ROWID;

  -- What came in, by minute of receipt, whatever became of it.
  CREATE TABLE receipts (
    tenant          INTEGER NOT NULL,
    minute          INTEGER NOT NULL,
    users_accepted  INTEGER NOT NULL,
    users_rejected  INTEGER NOT NULL,
    events_accepted INTEGER NOT NULL,
    PRIMARY KEY (tenant, minute)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE rejections (
    no             INTEGER PRIMARY KEY,
    tenant         INTEGER NOT NULL,
    received_at    INTEGER NOT NULL,
    trace_id       BLOB    NOT NULL,
    user_index     INTEGER NOT NULL,
    message        TEXT    NOT NULL,
    reason         TEXT    NOT NULL,
    payload        TEXT    NOT NULL,
    payload_is_cut INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX rejections_by_time ON rejections (tenant, received_at);
  CREATE INDEX rejections_by_reason ON rejections (tenant, reason, received_at);

  CREATE TABLE set_aside (
    no           INTEGER PRIMARY KEY,
    tenant       INTEGER NOT NULL,
    partition    INTEGER NOT NULL,
    position     INTEGER NOT NULL,
    received_at  INTEGER NOT NULL,
    trace_id     BLOB    NOT NULL,
    set_aside_at INTEGER NOT NULL,
    cause        TEXT    NOT NULL,
    UNIQUE (partition, position)
  ) STRICT;

  CREATE TABLE audit (
    no       INTEGER PRIMARY KEY,
    tenant   INTEGER NOT NULL,
    kind     TEXT    NOT NULL,
    trace_id BLOB    NOT NULL,
    at       INTEGER NOT NULL,
    detail   TEXT    NOT NULL
  ) STRICT;

  -- The tables of events, oldest first; times are those of the events in it. Below 'first_kept' no event is left;
  -- 'expired' says whether others may be missing too. 'runs' is a list of Run (event-index.ts), as JSON.
  CREATE TABLE event_tables (
    no             INTEGER PRIMARY KEY,
    first_event    INTEGER NOT NULL,
    first_kept     INTEGER NOT NULL,
    events         INTEGER NOT NULL,
    expired        INTEGER NOT NULL DEFAULT 0,
    timestamp_min  INTEGER,
    timestamp_max  INTEGER,
    received_max   INTEGER,
    runs           TEXT    NOT NULL
  ) STRICT;
  PRAGMA user_version = 1;
`;

/**
 * The tables of the embedded store, in one SQLite file, and how it is opened. One thread writes (the processor or,
 * between two of its transactions, a change by the API: erase, unmerge, jobs), any number read meanwhile.
 *
 * `synchronous = NORMAL`: a commit survives the death of the process; after a power loss the file may be some commits
 * older, complete and consistent, and since the position in the log is in the same file, the processor repeats the rest
 * from the log. So the log releases a record only after a commit with `FULL` (`StoreWriter`).
 *
 * The index of events (stored-events.ts) is in groups of a bounded number of events each: once retention has removed all
 * events of a group, its part of the index is dropped.
 */

import { randomBytes } from 'node:crypto';
import { resolve } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { sizeOfFile } from '../../../data-folder/files.ts';
import { OperatorError } from '../../../errors.ts';
import { SECRET_BYTES } from '../../../views/keyed-hash.ts';
import { STORE_TABLES } from '../../sql/store-tables.ts';
import { createTables } from '../../sql/tables.ts';
import { damageText, type DatabaseFile, ENGINE_TYPES, isDamage, openDatabase, textsIn } from '../database.ts';
import { sortedRunsSchema } from '../sorted-runs/stored-runs.ts';

/** Node numbers per block in `node_blocks`. */
export const NODES_PER_BLOCK = 1_024;

/** Types are stored as their index in IDENTIFIER_TYPES; trace_ids and node ids as 16 bytes; times as milliseconds. */
const SCHEMA = `
  -- The next number of each: 'node', 'record', 'event'. Numbers of erased rows are not issued again.
  CREATE TABLE sequences (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT;
  INSERT INTO sequences VALUES ('node', 1), ('record', 1), ('event', 1);

  -- A node: created by (received_at, trace_id, user_index). Its mutable state is elsewhere (store/profile-runs.ts).
  CREATE TABLE nodes (
    no          INTEGER PRIMARY KEY,
    tenant      INTEGER NOT NULL,
    id          BLOB    NOT NULL,
    received_at INTEGER NOT NULL,
    trace_id    BLOB    NOT NULL,
    user_index  INTEGER NOT NULL
  ) STRICT;
  CREATE UNIQUE INDEX nodes_by_id ON nodes (id);
  ${sortedRunsSchema('profiles', false)}

  -- One row: the secret of hashes (views/keyed-hash.ts). As confidential as the hashed data; without it no person is
  -- found.
  CREATE TABLE key_secret (secret BLOB NOT NULL) STRICT;

  -- The owners of match keys (store/match-keys.ts).
  ${sortedRunsSchema('match_keys')}

  -- The match keys of a node. 'raw' is null where it equals 'value'; its origin is null where it is that of the node.
  CREATE TABLE identifiers (
    tenant      INTEGER NOT NULL,
    type        INTEGER NOT NULL,
    value       TEXT    NOT NULL,
    node        INTEGER NOT NULL,
    raw         TEXT,
    received_at INTEGER,
    trace_id    BLOB,
    user_index  INTEGER,
    PRIMARY KEY (node, type, value)
  ) STRICT, WITHOUT ROWID;

  -- Only for nodes that were merged away; depth 1.
  CREATE TABLE aliases (node INTEGER PRIMARY KEY, root INTEGER NOT NULL) STRICT;
  CREATE INDEX aliases_by_root ON aliases (root);

  -- First uses (store/first-uses.ts).
  ${sortedRunsSchema('idempotency_keys')}
  ${sortedRunsSchema('event_ids')}

  ${createTables(STORE_TABLES, ENGINE_TYPES)}

  -- Events in blocks (store/event-blocks.ts).
  CREATE TABLE events (
    first_event INTEGER PRIMARY KEY,
    tenant      INTEGER NOT NULL,
    events      INTEGER NOT NULL,
    numbers     BLOB    NOT NULL,
    texts       BLOB    NOT NULL,
    crc         INTEGER NOT NULL
  ) STRICT;

  -- The events of a record have consecutive numbers from 'first_event' on, so the outcome of its users follows from
  -- them; 'notes' has only what does not.
  CREATE TABLE records (
    no               INTEGER PRIMARY KEY,
    tenant           INTEGER NOT NULL,
    trace_id         BLOB    NOT NULL,
    received_at      INTEGER NOT NULL,
    processed_at     INTEGER NOT NULL,
    first_user_index INTEGER NOT NULL,
    users_accepted   INTEGER NOT NULL,
    users_rejected   INTEGER NOT NULL,
    first_event      INTEGER NOT NULL,
    events           INTEGER NOT NULL,
    duplicate_of     BLOB,
    key_id           TEXT    NOT NULL,
    notes            TEXT
  ) STRICT;
  -- It is appended to, since trace ids ascend.
  CREATE INDEX records_by_trace ON records (trace_id);

  -- The groups of the index of events, oldest first: of the records from 'first_record' up to the next group; times are
  -- those of their events. 'expired' is set once events of the group have expired.
  CREATE TABLE event_groups (
    no             INTEGER PRIMARY KEY,
    first_record   INTEGER NOT NULL,
    events         INTEGER NOT NULL,
    expired        INTEGER NOT NULL DEFAULT 0,
    timestamp_min  INTEGER,
    timestamp_max  INTEGER,
    received_max   INTEGER
  ) STRICT;
  ${sortedRunsSchema('events_by_node', false)}
  ${sortedRunsSchema('events_by_tenant', false)}

  -- One row once a server has run: the installation that this file belongs to (installation.ts).
  CREATE TABLE belongs_to (installation TEXT NOT NULL) STRICT;

  -- One row, inserted with the tables: which store this is. Cursors of arrivals name it.
  CREATE TABLE identity (id TEXT NOT NULL) STRICT;
  INSERT INTO identity VALUES (lower(hex(randomblob(16))));

  -- The last expired event of each tenant, in order of arrival: a cursor before it is too old.
  CREATE TABLE expired_arrivals (tenant INTEGER PRIMARY KEY, event INTEGER NOT NULL) STRICT;

  -- In which blocks of node numbers a tenant has, or had, nodes: scanning the people of one tenant then need not read
  -- those of all others.
  CREATE TABLE node_blocks (tenant INTEGER NOT NULL, block INTEGER NOT NULL, PRIMARY KEY (tenant, block))
    STRICT, WITHOUT ROWID;

  -- For the writer's caches (store/invalidations.ts): a node that an erase or unmerge has changed, or the short hash of an
  -- erased match key.
  CREATE TABLE invalidations (no INTEGER PRIMARY KEY, node INTEGER, erased_key INTEGER) STRICT;

  -- Each start of a server adds one (store/starts.ts). All events stored after a start have its 'first_event' or a higher
  -- number, and all before it a lower one.
  INSERT INTO starts VALUES (1, lower(hex(randomblob(8))), 1);`;

function create(database: DatabaseSync): void {
  database.exec(SCHEMA);
  database.prepare('INSERT INTO key_secret VALUES (?)').run(randomBytes(SECRET_BYTES));
}

/** A compromise between small pages for random updates and large ones for appending (decision 008). */
const PAGE_BYTES = 8_192;
/** Decision 035 has what larger ones buy. A reader's is empty after every commit of the writer. */
const WRITER_CACHE_KIB = 16 * 1_024;
const READER_CACHE_KIB = 4 * 1_024;
/**
 * Few enough that a checkpoint occupies the disk only briefly: the log's syncs, and every client, wait in the meantime
 * (p99 of `latency`: 75 ms with 16,384 pages, 13 ms with these). Throughput is the same.
 */
export const WAL_PAGES = 1_024;

const READ_PRAGMAS = `PRAGMA cache_size = -${READER_CACHE_KIB}; PRAGMA temp_store = MEMORY;`;

export function storeFile(file: string, kind: 'writer' | 'reader'): DatabaseFile {
  return {
    file,
    name: 'store',
    version: 12,
    create,
    newFilePragmas: `PRAGMA page_size = ${PAGE_BYTES}; PRAGMA auto_vacuum = INCREMENTAL`,
    pragmas: `
      PRAGMA journal_mode = WAL;
      PRAGMA synchronous = NORMAL;
      PRAGMA wal_autocheckpoint = ${WAL_PAGES};
      PRAGMA cache_size = -${kind === 'writer' ? WRITER_CACHE_KIB : READER_CACHE_KIB};
      PRAGMA temp_store = MEMORY;
      PRAGMA secure_delete = FAST;`,
    check: false,
    withoutBackup:
      'move all three away: the next start makes a new one from what the event log still holds (SLUICE_LOG_RETENTION); keys are in another file.',
  };
}

export function openStoreFile(file: string, kind: 'writer' | 'reader'): DatabaseSync {
  return openDatabase(storeFile(file, kind));
}

/** The problem and the remedy for a store that SQLite found damaged while in use. */
export function storeDamageText(file: string, reason: string): string {
  return damageText(storeFile(resolve(file), 'reader'), reason);
}

/** For a start: damage is the operator's to repair, and is reported with the file's name. */
export function withDamageExplained<T>(file: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!isDamage(error)) throw error;
    throw new OperatorError(storeDamageText(file, (error as Error).message), { cause: error });
  }
}

/**
 * For commands, which only read and change nothing: the write-ahead log of a crashed server stays as it is. Without
 * one, the file is opened as usual, since opening it read-only would leave an empty one behind.
 */
export function openStoreFileForCommand(file: string): DatabaseSync {
  const what = storeFile(file, 'reader');
  if (sizeOfFile(`${file}-wal`) === 0) return openDatabase(what);
  return openDatabase({ ...what, readOnly: true, pragmas: READ_PRAGMAS });
}

/**
 * The newest time in a store, of receipt or of an erase; 0 without any. What is received next must be later, or it
 * would be taken for data from before the erase.
 */
export function newestProcessed(file: string): number {
  using database = openStoreFile(file, 'reader');
  const sql = `SELECT max(coalesce((SELECT max(received_max) FROM event_groups), 0),
                          coalesce((SELECT max(last_erased_at) FROM tenants), 0))`;
  return withDamageExplained(file, () => Number(textsIn(database, sql)[0] ?? 0));
}

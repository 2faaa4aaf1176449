/**
 * Accounts and API keys in one SQLite file, the embedded `KeyStore`.
 *
 * Every call is one statement or one short write transaction, finished before it returns: no read is left open, so
 * the command line can work on the file beside a running server, and each sees what the other committed at once.
 * Calls block their thread for the time of a small query; on a hot path they go through `keys/cache.ts`. The file
 * holds hashes, never keys, and only its owner may read it.
 */

import { closeSync, existsSync, mkdirSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync, type SQLOutputValue, type StatementSync } from 'node:sqlite';
import { OperatorError } from '../../errors.ts';
import type { Environment, KeyKind } from '../../model.ts';
import type { Account, ApiKey, KeySighting, KeyStore, NewKey } from '../../store.ts';

const BUSY_TIMEOUT_MS = 5_000;
const OPEN_RETRY_MS = 20;

/** Result codes of SQLite; the low byte of an extended code. */
const SQLITE_BUSY = 5;
const SQLITE_CORRUPT = 11;
const SQLITE_NOT_A_DATABASE = 26;

/** Statement n brings a file from version n to n + 1. Never edit one that was released: add the next. */
const MIGRATIONS = [
  `CREATE TABLE accounts (
     id         TEXT PRIMARY KEY,
     name       TEXT NOT NULL UNIQUE,
     created_at INTEGER NOT NULL
   ) STRICT;
   CREATE TABLE keys (
     id                TEXT PRIMARY KEY,
     hash              BLOB NOT NULL CHECK (length(hash) = 32),
     account_id        TEXT NOT NULL REFERENCES accounts (id),
     name              TEXT NOT NULL,
     kind              TEXT NOT NULL CHECK (kind IN ('secret', 'publishable')),
     environment       TEXT NOT NULL CHECK (environment IN ('production', 'development')),
     scopes            TEXT NOT NULL,
     origins           TEXT NOT NULL,
     prefix            TEXT NOT NULL,
     last_four         TEXT NOT NULL,
     created_at        INTEGER NOT NULL,
     expires_at        INTEGER,
     revoked_at        INTEGER,
     last_used_at      INTEGER,
     leak_suspected_at INTEGER,
     leak_origin       TEXT
   ) STRICT;
   CREATE UNIQUE INDEX keys_by_hash ON keys (hash);`,
];

const SELECT_KEYS = `
  SELECT keys.*, accounts.name AS account_name
  FROM keys JOIN accounts ON accounts.id = keys.account_id`;

export function openSqliteKeyStore(file: string): KeyStore {
  try {
    makePrivateFile(file);
    return new SqliteKeyStore(openWhenFree(file));
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    throw new OperatorError(explain(file, error), { cause: error });
  }
}

class SqliteKeyStore implements KeyStore {
  readonly #database: DatabaseSync;
  /** The one statement that requests wait for, so it is compiled once. */
  readonly #selectByHash: StatementSync;

  constructor(database: DatabaseSync) {
    this.#database = database;
    this.#selectByHash = database.prepare(`${SELECT_KEYS} WHERE keys.hash = ?`);
  }

  async accounts(): Promise<Account[]> {
    const rows = this.#database.prepare('SELECT * FROM accounts ORDER BY created_at, name').all();
    return rows.map(toAccount);
  }

  async ensureAccount(account: Account): Promise<Account> {
    return transaction(this.#database, () => {
      this.#database
        .prepare('INSERT INTO accounts (id, name, created_at) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING')
        .run(account.id, account.name, account.createdAt);
      const row = this.#database.prepare('SELECT * FROM accounts WHERE name = ?').get(account.name);
      if (row === undefined) throw new Error(`account "${account.name}" vanished`);
      return toAccount(row);
    });
  }

  async create(key: NewKey): Promise<void> {
    this.#database
      .prepare(
        `INSERT INTO keys (id, hash, account_id, name, kind, environment, scopes, origins, prefix, last_four,
                           created_at, expires_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      )
      .run(
        key.id,
        key.hash,
        key.accountId,
        key.name,
        key.kind,
        key.environment,
        JSON.stringify(key.scopes),
        JSON.stringify(key.origins),
        key.prefix,
        key.lastFour,
        key.createdAt,
        key.expiresAt,
      );
  }

  async findByHash(hash: Uint8Array): Promise<ApiKey | undefined> {
    const row = this.#selectByHash.get(hash);
    return row === undefined ? undefined : toApiKey(row);
  }

  async list(): Promise<ApiKey[]> {
    const rows = this.#database.prepare(`${SELECT_KEYS} ORDER BY keys.created_at DESC, keys.rowid DESC`).all();
    return rows.map(toApiKey);
  }

  async revoke(id: string, at: number): Promise<ApiKey | undefined> {
    return transaction(this.#database, () => {
      this.#database.prepare('UPDATE keys SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?').run(at, id);
      const row = this.#database.prepare(`${SELECT_KEYS} WHERE keys.id = ?`).get(id);
      return row === undefined ? undefined : toApiKey(row);
    });
  }

  async recordSightings(sightings: readonly KeySighting[]): Promise<void> {
    if (sightings.length === 0) return;
    transaction(this.#database, () => {
      const update = this.#database.prepare(
        `UPDATE keys
         SET last_used_at      = max(coalesce(last_used_at, :usedAt), :usedAt),
             leak_suspected_at = coalesce(leak_suspected_at, iif(:leakOrigin IS NULL, NULL, :usedAt)),
             leak_origin       = coalesce(leak_origin, :leakOrigin)
         WHERE id = :keyId`,
      );
      for (const { keyId, usedAt, leakOrigin } of sightings) update.run({ keyId, usedAt, leakOrigin });
    });
  }

  async close(): Promise<void> {
    if (this.#database.isOpen) this.#database.close();
  }
}

/**
 * A file that is there already is never opened here: closing it would drop the locks that SQLite holds on it for
 * another connection of this process (POSIX locks belong to the process, not to the descriptor).
 */
function makePrivateFile(file: string): void {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  if (existsSync(file)) return;
  try {
    closeSync(openSync(file, 'wx', 0o600));
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
  }
}

/**
 * SQLite does not wait for a lock when it turns a file to WAL, it fails; two processes that start at once on a new
 * file get into each other's way there, for a moment.
 */
function openWhenFree(file: string): DatabaseSync {
  const giveUpAt = performance.now() + BUSY_TIMEOUT_MS;
  for (;;) {
    try {
      return open(file);
    } catch (error) {
      if (resultCodeOf(error) !== SQLITE_BUSY || performance.now() > giveUpAt) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, OPEN_RETRY_MS);
    }
  }
}

function open(file: string): DatabaseSync {
  const database = new DatabaseSync(file, { timeout: BUSY_TIMEOUT_MS, enableForeignKeyConstraints: true });
  try {
    database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;');
    const findings = database.prepare('PRAGMA quick_check(1)').get();
    if (findings?.quick_check !== 'ok') throw new OperatorError(damageText(file, String(findings?.quick_check)));
    migrate(database, file);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

function migrate(database: DatabaseSync, file: string): void {
  transaction(database, () => {
    const version = Number(database.prepare('PRAGMA user_version').get()?.user_version);
    if (version > MIGRATIONS.length) {
      throw new OperatorError(
        `The key file ${file} was written by a newer Sluice (its version is ${version}, this one knows ` +
          `${MIGRATIONS.length}). Start that newer version, or use another data folder.`,
      );
    }
    for (const statements of MIGRATIONS.slice(version)) database.exec(statements);
    if (version < MIGRATIONS.length) database.exec(`PRAGMA user_version = ${MIGRATIONS.length}`);
  });
}

/** IMMEDIATE takes the write lock at the start, where SQLite waits for it; a later upgrade could only fail. */
function transaction<T>(database: DatabaseSync, work: () => T): T {
  database.exec('BEGIN IMMEDIATE');
  try {
    const result = work();
    database.exec('COMMIT');
    return result;
  } catch (error) {
    // Some errors (a full disk) make SQLite roll back by itself.
    if (database.isTransaction) database.exec('ROLLBACK');
    throw error;
  }
}

type Row = Record<string, SQLOutputValue>;

function toAccount(row: Row): Account {
  return { id: row.id as string, name: row.name as string, createdAt: row.created_at as number };
}

function toApiKey(row: Row): ApiKey {
  return {
    id: row.id as string,
    accountId: row.account_id as string,
    accountName: row.account_name as string,
    name: row.name as string,
    kind: row.kind as KeyKind,
    environment: row.environment as Environment,
    scopes: JSON.parse(row.scopes as string) as string[],
    origins: JSON.parse(row.origins as string) as string[],
    prefix: row.prefix as string,
    lastFour: row.last_four as string,
    createdAt: row.created_at as number,
    expiresAt: row.expires_at as number | null,
    revokedAt: row.revoked_at as number | null,
    lastUsedAt: row.last_used_at as number | null,
    leakSuspectedAt: row.leak_suspected_at as number | null,
    leakOrigin: row.leak_origin as string | null,
  };
}

function explain(file: string, error: unknown): string {
  const reason = error instanceof Error ? error.message : String(error);
  const resultCode = resultCodeOf(error);
  if (resultCode === SQLITE_CORRUPT || resultCode === SQLITE_NOT_A_DATABASE) return damageText(file, reason);
  if (resultCode === SQLITE_BUSY) {
    return `The key file ${file} has been locked by another program for ${BUSY_TIMEOUT_MS / 1_000} s. End that program, then try again.`;
  }
  return `The key file ${file} cannot be opened (${reason}). Check that the folder exists on a disk with free space and that this user may read and write it.`;
}

function damageText(file: string, reason: string): string {
  return (
    `The key file ${file} is damaged (${reason}). Nothing in it was changed. Stop Sluice and put back a copy from a backup, ` +
    `without ${file}-wal and ${file}-shm beside it. Without a backup, move all three away and make new keys with ` +
    '"sluice keys create"; the event log is in other files and is not affected.'
  );
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined;
}

function resultCodeOf(error: unknown): number | undefined {
  return error instanceof Error && 'errcode' in error && typeof error.errcode === 'number'
    ? error.errcode & 0xff
    : undefined;
}

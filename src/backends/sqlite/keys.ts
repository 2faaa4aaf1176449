/**
 * Accounts and API keys in one SQLite file, the embedded `KeyStore`.
 *
 * Every call is one statement or one short write transaction, finished before it returns: no read is left open, so
 * the command line can work on the file beside a running server, and each sees what the other committed at once.
 * Calls block their thread for the time of a small query; on a hot path they go through `keys/cache.ts`. The file
 * holds hashes, never keys, and only its owner may read it.
 */

import type { DatabaseSync, SQLOutputValue, StatementSync } from 'node:sqlite';
import type { Environment, KeyKind } from '../../model.ts';
import type { Account, ApiKey, KeySighting, KeyStore, NewKey } from '../../store.ts';
import { openDatabase, transaction } from './database.ts';

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
  const database = openDatabase({
    file,
    name: 'key file',
    migrations: MIGRATIONS,
    newFilePragmas: '',
    pragmas: 'PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;',
    check: true,
    withoutBackup:
      'move all three away and make new keys with "sluice keys create"; the event log is in other files and is not affected.',
  });
  return new SqliteKeyStore(database);
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

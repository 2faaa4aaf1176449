/**
 * Accounts and API keys in one SQLite file, the embedded `KeyStore`.
 *
 * Every call is one statement or one short write transaction, finished before it returns: no read is left open, so
 * the command line can work on the file beside a running server, and each sees what the other committed at once.
 * Calls block their thread for the time of a small query, not for locks of others (`patient-connection.ts`); on a hot
 * path they go through `keys/cache.ts`. The file holds hashes, never keys, and only its owner may read it.
 */

import type { DatabaseSync, SQLOutputValue, StatementSync } from 'node:sqlite';
import type { Environment, KeyKind } from '../../model.ts';
import type { Account, ApiKey, KeySighting, KeyStore, NewKey } from '../../store.ts';
import { openKeysDatabase } from './keys-schema.ts';
import { PatientConnection } from './patient-connection.ts';

const SELECT_KEYS = `
  SELECT keys.*, accounts.name AS account_name
  FROM keys JOIN accounts ON accounts.id = keys.account_id`;

export function openSqliteKeyStore(file: string): KeyStore {
  return new SqliteKeyStore(openKeysDatabase(file));
}

class SqliteKeyStore implements KeyStore {
  readonly #connection: PatientConnection;
  readonly #database: DatabaseSync;
  /** The one statement that requests wait for, so it is compiled once. */
  readonly #selectByHash: StatementSync;

  constructor(database: DatabaseSync) {
    this.#connection = new PatientConnection(database);
    this.#database = database;
    this.#selectByHash = database.prepare(`${SELECT_KEYS} WHERE keys.hash = ?`);
  }

  async accounts(): Promise<Account[]> {
    const sql = 'SELECT * FROM accounts ORDER BY created_at, name';
    return this.#connection.read(() => this.#database.prepare(sql).all().map(toAccount));
  }

  async ensureAccount(account: Account): Promise<Account> {
    return this.#connection.write(() => {
      this.#database
        .prepare('INSERT INTO accounts (id, name, created_at) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING')
        .run(account.id, account.name, account.createdAt);
      const row = this.#database.prepare('SELECT * FROM accounts WHERE name = ?').get(account.name);
      if (row === undefined) throw new Error(`account "${account.name}" vanished`);
      return toAccount(row);
    });
  }

  async create(key: NewKey): Promise<void> {
    await this.#connection.write(() => {
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
    });
  }

  async findByHash(hash: Uint8Array): Promise<ApiKey | undefined> {
    const row = await this.#connection.read(() => this.#selectByHash.get(hash));
    return row === undefined ? undefined : toApiKey(row);
  }

  async list(accountId?: string): Promise<ApiKey[]> {
    const condition = accountId === undefined ? '' : 'WHERE keys.account_id = ?';
    const sql = `${SELECT_KEYS} ${condition} ORDER BY keys.created_at DESC, keys.rowid DESC`;
    const values = accountId === undefined ? [] : [accountId];
    return this.#connection.read(() =>
      this.#database
        .prepare(sql)
        .all(...values)
        .map(toApiKey),
    );
  }

  async revoke(id: string, at: number): Promise<ApiKey | undefined> {
    return this.#change('UPDATE keys SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?', at, id);
  }

  async expire(id: string, at: number): Promise<ApiKey | undefined> {
    return this.#change('UPDATE keys SET expires_at = min(coalesce(expires_at, ?1), ?1) WHERE id = ?2', at, id);
  }

  async recordSightings(sightings: readonly KeySighting[]): Promise<void> {
    if (sightings.length === 0) return;
    await this.#connection.write(() => {
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
    this.#connection.close();
  }

  #change(update: string, at: number, id: string): Promise<ApiKey | undefined> {
    return this.#connection.write(() => {
      this.#database.prepare(update).run(at, id);
      const row = this.#database.prepare(`${SELECT_KEYS} WHERE keys.id = ?`).get(id);
      return row === undefined ? undefined : toApiKey(row);
    });
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

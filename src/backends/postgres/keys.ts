/**
 * Accounts and API keys on PostgreSQL, a `KeyStore` that any number of nodes share. Every call is one statement, so each
 * node sees at once what another committed; on a hot path calls go through `keys/cache.ts`, which `key-changes.ts`
 * tells of changes. The tables hold hashes, never keys. The store owns the pool that it is given.
 */

import type { Account, ApiKey, KeySighting, KeyStore, NewKey } from '../../store.ts';
import { type KeyChangeListener, listenForKeyChanges } from './key-changes.ts';
import type { PostgresPool } from './pool.ts';

/** A request may be waiting: a server that is silent for so long is given up, and the connection with it. */
const FIND_TIMEOUT_MS = 3_000;

const KEY_COLUMNS = `
  keys.id, keys.account_id AS "accountId", accounts.name AS "accountName", keys.name, keys.kind, keys.environment,
  keys.scopes, keys.origins, keys.prefix, keys.last_four AS "lastFour", keys.created_at AS "createdAt",
  keys.expires_at AS "expiresAt", keys.revoked_at AS "revokedAt", keys.last_used_at AS "lastUsedAt",
  keys.leak_suspected_at AS "leakSuspectedAt", keys.leak_origin AS "leakOrigin"`;
const SELECT_KEYS = `SELECT ${KEY_COLUMNS} FROM keys JOIN accounts ON accounts.id = keys.account_id`;
const ACCOUNT_COLUMNS = 'id, name, created_at AS "createdAt"';

export function openPostgresKeyStore(pool: PostgresPool): KeyStore {
  return new PostgresKeyStore(pool);
}

type KeyRow = Omit<ApiKey, 'scopes' | 'origins'> & { readonly scopes: string; readonly origins: string };

class PostgresKeyStore implements KeyStore {
  readonly #pool: PostgresPool;
  readonly #listeners: KeyChangeListener[] = [];

  constructor(pool: PostgresPool) {
    this.#pool = pool;
  }

  async accounts(): Promise<Account[]> {
    const sql = `SELECT ${ACCOUNT_COLUMNS} FROM accounts ORDER BY created_at, name`;
    return (await this.#pool.query<Account>(sql)).rows;
  }

  async ensureAccount(account: Account): Promise<Account> {
    await this.#pool.query(
      'INSERT INTO accounts (id, name, created_at) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING',
      [account.id, account.name, account.createdAt],
    );
    // A statement of its own: the first does not see what another committed while it waited for that.
    const sql = `SELECT ${ACCOUNT_COLUMNS} FROM accounts WHERE name = $1`;
    const [row] = (await this.#pool.query<Account>(sql, [account.name])).rows;
    if (row === undefined) throw new Error(`account "${account.name}" vanished`);
    return row;
  }

  async create(key: NewKey): Promise<void> {
    await this.#pool.query(
      `INSERT INTO keys (id, hash, account_id, name, kind, environment, scopes, origins, prefix, last_four, created_at,
                         expires_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
      [
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
      ],
    );
  }

  async findByHash(hash: Uint8Array): Promise<ApiKey | undefined> {
    const statement = {
      name: 'find_key',
      text: `${SELECT_KEYS} WHERE keys.hash = $1`,
      timeoutMs: FIND_TIMEOUT_MS,
    };
    return firstKey((await this.#pool.query<KeyRow>(statement, [hash])).rows);
  }

  async list(accountId?: string): Promise<ApiKey[]> {
    const condition = accountId === undefined ? '' : 'WHERE keys.account_id = $1';
    const sql = `${SELECT_KEYS} ${condition} ORDER BY keys.created_at DESC, keys.no DESC`;
    return (await this.#pool.query<KeyRow>(sql, accountId === undefined ? [] : [accountId])).rows.map(toApiKey);
  }

  revoke(id: string, at: number): Promise<ApiKey | undefined> {
    return this.#change('revoked_at = coalesce(keys.revoked_at, $1)', at, id);
  }

  expire(id: string, at: number): Promise<ApiKey | undefined> {
    return this.#change('expires_at = least(keys.expires_at, $1)', at, id);
  }

  async recordSightings(sightings: readonly KeySighting[]): Promise<void> {
    if (sightings.length === 0) return;
    const keys = [...oneEach(sightings)];
    // The rows are locked in order: edges that saw the same keys write them at the same moment.
    await this.#pool.query(
      `WITH locked AS (SELECT id FROM keys WHERE id = ANY ($1::text[]) ORDER BY id FOR NO KEY UPDATE)
       UPDATE keys
       SET last_used_at      = greatest(keys.last_used_at, seen.used_at),
           leak_suspected_at = coalesce(keys.leak_suspected_at, seen.leaked_at),
           leak_origin       = coalesce(keys.leak_origin, seen.leak_origin)
       FROM locked
       JOIN unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[]) AS seen (id, used_at, leaked_at, leak_origin)
         ON seen.id = locked.id
       WHERE keys.id = locked.id`,
      [
        keys.map(([id]) => id),
        keys.map(([, { usedAt }]) => usedAt),
        keys.map(([, { leak }]) => leak?.usedAt ?? null),
        keys.map(([, { leak }]) => leak?.leakOrigin ?? null),
      ],
    );
  }

  watch(onChange: (keyId: string | undefined) => void): void {
    this.#listeners.push(listenForKeyChanges(this.#pool.options, onChange));
  }

  async close(): Promise<void> {
    for (const listener of this.#listeners) listener.close();
    await this.#pool.close();
  }

  async #change(assignment: string, at: number, id: string): Promise<ApiKey | undefined> {
    const sql = `UPDATE keys SET ${assignment} FROM accounts
                 WHERE keys.id = $2 AND accounts.id = keys.account_id RETURNING ${KEY_COLUMNS}`;
    return firstKey((await this.#pool.query<KeyRow>(sql, [at, id])).rows);
  }
}

/** The last use of each key, and the first of its leaks in their order: a statement changes a row only once. */
function oneEach(sightings: readonly KeySighting[]): Map<string, { usedAt: number; leak: KeySighting | undefined }> {
  const byKey = new Map<string, { usedAt: number; leak: KeySighting | undefined }>();
  for (const sighting of sightings) {
    const before = byKey.get(sighting.keyId);
    byKey.set(sighting.keyId, {
      usedAt: Math.max(before?.usedAt ?? sighting.usedAt, sighting.usedAt),
      leak: before?.leak ?? (sighting.leakOrigin === null ? undefined : sighting),
    });
  }
  return byKey;
}

function firstKey([row]: readonly KeyRow[]): ApiKey | undefined {
  return row === undefined ? undefined : toApiKey(row);
}

function toApiKey(row: KeyRow): ApiKey {
  return { ...row, scopes: JSON.parse(row.scopes) as string[], origins: JSON.parse(row.origins) as string[] };
}

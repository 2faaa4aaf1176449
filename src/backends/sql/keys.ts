/**
 * Accounts and API keys, the `KeyStore` on SQLite and on PostgreSQL. Every read is one statement, so each server and
 * command sees at once what another committed; on a hot path calls go through `keys/cache.ts`. The tables hold hashes,
 * never keys. The store owns the database that it is given.
 */

import { type Kysely, sql } from 'kysely';
import type { Account, ApiKey, KeyUsage, KeyStore, NewKey } from '../../keys.ts';
import type { AccountTables } from './account-tables.ts';
import type { SqlDatabase } from './database.ts';

const ACCOUNT_COLUMNS = ['id', 'name', 'created_at as createdAt'] as const;

const KEY_COLUMNS = [
  'keys.id',
  'keys.account_id as accountId',
  'accounts.name as accountName',
  'keys.name',
  'keys.kind',
  'keys.environment',
  'keys.scopes',
  'keys.origins',
  'keys.prefix',
  'keys.last_four as lastFour',
  'keys.created_at as createdAt',
  'keys.expires_at as expiresAt',
  'keys.revoked_at as revokedAt',
  'keys.last_used_at as lastUsedAt',
  'keys.leak_suspected_at as leakSuspectedAt',
  'keys.leak_origin as leakOrigin',
] as const;

export class SqlKeyStore implements KeyStore {
  readonly #database: SqlDatabase<AccountTables>;

  constructor(database: SqlDatabase<AccountTables>) {
    this.#database = database;
  }

  accounts(): Promise<Account[]> {
    const { reading } = this.#database;
    return reading.selectFrom('accounts').select(ACCOUNT_COLUMNS).orderBy('created_at').orderBy('name').execute();
  }

  ensureAccount({ id, name, createdAt }: Account): Promise<Account> {
    return this.#database.change(async (tables) => {
      await tables
        .insertInto('accounts')
        .values({ id, name, created_at: createdAt })
        .onConflict((conflict) => conflict.column('name').doNothing())
        .execute();
      return tables.selectFrom('accounts').select(ACCOUNT_COLUMNS).where('name', '=', name).executeTakeFirstOrThrow();
    });
  }

  async create(key: NewKey): Promise<void> {
    const row = {
      id: key.id,
      hash: key.hash,
      account_id: key.accountId,
      name: key.name,
      kind: key.kind,
      environment: key.environment,
      scopes: JSON.stringify(key.scopes),
      origins: JSON.stringify(key.origins),
      prefix: key.prefix,
      last_four: key.lastFour,
      created_at: key.createdAt,
      expires_at: key.expiresAt,
    };
    await this.#database.change((tables) => tables.insertInto('keys').values(row).execute());
  }

  async findByHash(hash: Uint8Array): Promise<ApiKey | undefined> {
    const row = await selectKeys(this.#database.reading).where('keys.hash', '=', hash).executeTakeFirst();
    return row === undefined ? undefined : toApiKey(row);
  }

  async list(accountId?: string): Promise<ApiKey[]> {
    const all = selectKeys(this.#database.reading);
    const some = accountId === undefined ? all : all.where('keys.account_id', '=', accountId);
    return (await some.orderBy('keys.created_at', 'desc').orderBy('keys.no', 'desc').execute()).map(toApiKey);
  }

  revoke(id: string, at: number): Promise<ApiKey | undefined> {
    return this.#update(id, { revoked_at: sql<number>`coalesce(revoked_at, ${at})` });
  }

  expire(id: string, at: number): Promise<ApiKey | undefined> {
    return this.#update(id, { expires_at: sql<number>`CASE WHEN expires_at < ${at} THEN expires_at ELSE ${at} END` });
  }

  async recordUsage(uses: readonly KeyUsage[]): Promise<void> {
    if (uses.length === 0) return;
    const ids = [...new Set(uses.map(({ keyId }) => keyId))];
    await this.#database.change(async (tables) => {
      // In one order: edges that saw the same keys write them at the same moment.
      await this.#database.locks
        .lock(tables.selectFrom('keys').select('id').where('id', 'in', ids).orderBy('id'))
        .execute();
      for (const { keyId, usedAt, leakOrigin } of uses) {
        const leak = leakOrigin !== null && {
          leak_suspected_at: sql<number>`coalesce(leak_suspected_at, ${usedAt})`,
          leak_origin: sql<string>`coalesce(leak_origin, ${leakOrigin})`,
        };
        await tables
          .updateTable('keys')
          .set({
            last_used_at: sql<number>`CASE WHEN last_used_at > ${usedAt} THEN last_used_at ELSE ${usedAt} END`,
            ...leak,
          })
          .where('id', '=', keyId)
          .execute();
      }
    });
  }

  close(): Promise<void> {
    return this.#database.close();
  }

  #update(id: string, values: object): Promise<ApiKey | undefined> {
    return this.#database.change(async (tables) => {
      await tables.updateTable('keys').set(values).where('id', '=', id).execute();
      const row = await selectKeys(tables).where('keys.id', '=', id).executeTakeFirst();
      return row === undefined ? undefined : toApiKey(row);
    });
  }
}

function selectKeys(tables: Kysely<AccountTables>) {
  return tables.selectFrom('keys').innerJoin('accounts', 'accounts.id', 'keys.account_id').select(KEY_COLUMNS);
}

function toApiKey(row: Omit<ApiKey, 'scopes' | 'origins'> & { scopes: string; origins: string }): ApiKey {
  return { ...row, scopes: JSON.parse(row.scopes) as string[], origins: JSON.parse(row.origins) as string[] };
}

/**
 * Accounts and API keys, the `KeyStore` on SQLite and on PostgreSQL. Every read is one statement, so each server and
 * command sees at once what another committed; on a hot path calls go through `keys/cache.ts`. The tables hold hashes,
 * never keys. The store owns the database that it is given, which also has the tracking plans and the members.
 */

import { type InferResult, type Kysely, sql } from 'kysely';
import {
  type Account,
  type ApiKey,
  KEY_VOLUME_DAYS,
  type KeyChanges,
  type KeyStore,
  type KeyUsage,
  type KeyVolume,
  type NewKey,
  type RateLimit,
} from '../../keys.ts';
import type { MemberStore } from '../../members.ts';
import { DAY_MS } from '../../model.ts';
import { startOf } from '../../views/sums.ts';
import type { PlanStore } from '../../plans.ts';
import type { AccountTables } from './account-tables.ts';
import { plusExcluded, type SqlDatabase } from './database.ts';
import { SqlMemberStore } from './members.ts';
import { SqlPlanStore } from './plans.ts';
import { changedBy, rowsOf, type Steps } from './steps.ts';

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
  'keys.users_per_second as usersPerSecond',
  'keys.burst_users as burstUsers',
  'keys.prefix',
  'keys.last_four as lastFour',
  'keys.created_at as createdAt',
  'keys.expires_at as expiresAt',
  'keys.revoked_at as revokedAt',
  'keys.last_used_at as lastUsedAt',
  'keys.last_origin as lastOrigin',
  'keys.leak_suspected_at as leakSuspectedAt',
  'keys.leak_origin as leakOrigin',
] as const;

/** The newest version of the tracking plan of the key's tenant, if that enforces anything. */
const ENFORCED_PLAN = sql<number | null>`(
  SELECT CASE WHEN plans.enforces = 1 THEN plans.version END FROM plans
  WHERE plans.account_id = keys.account_id AND plans.environment = keys.environment
  ORDER BY plans.version DESC LIMIT 1
)`;

export class SqlKeyStore implements KeyStore {
  readonly plans: PlanStore;
  readonly members: MemberStore;
  readonly #database: SqlDatabase;

  constructor(database: SqlDatabase) {
    this.#database = database;
    this.plans = new SqlPlanStore(database);
    this.members = new SqlMemberStore(database);
  }

  accounts(): Promise<Account[]> {
    return this.#database.read((tables) =>
      rowsOf(tables.selectFrom('accounts').select(ACCOUNT_COLUMNS).orderBy('created_at').orderBy('name')),
    );
  }

  ensureAccount({ id, name, createdAt }: Account): Promise<Account> {
    return this.#database.change(function* (tables) {
      const insert = tables.insertInto('accounts').values({ id, name, created_at: createdAt });
      yield* changedBy(insert.onConflict((conflict) => conflict.column('name').doNothing()));
      const [account] = yield* rowsOf(tables.selectFrom('accounts').select(ACCOUNT_COLUMNS).where('name', '=', name));
      return account as Account;
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
      ...rateColumns(key.rateLimit),
      prefix: key.prefix,
      last_four: key.lastFour,
      created_at: key.createdAt,
      expires_at: key.expiresAt,
    };
    await this.#database.change((tables) => changedBy(tables.insertInto('keys').values(row)));
  }

  findByHash(hash: Uint8Array): Promise<ApiKey | undefined> {
    return this.#database.read(function* (tables) {
      const [row] = yield* rowsOf(selectKeys(tables).where('keys.hash', '=', hash));
      return row && toApiKey(row);
    });
  }

  list(accountId?: string): Promise<ApiKey[]> {
    return this.#database.read(function* (tables) {
      const all = selectKeys(tables).orderBy('keys.created_at', 'desc').orderBy('keys.no', 'desc');
      const rows = yield* rowsOf(accountId === undefined ? all : all.where('keys.account_id', '=', accountId));
      return rows.map(toApiKey);
    });
  }

  revoke(id: string, at: number): Promise<ApiKey | undefined> {
    return this.#update(id, { revoked_at: sql<number>`coalesce(revoked_at, ${at})` });
  }

  expire(id: string, at: number): Promise<ApiKey | undefined> {
    return this.#update(id, { expires_at: sql<number>`CASE WHEN expires_at < ${at} THEN expires_at ELSE ${at} END` });
  }

  async edit(id: string, { name, origins, rateLimit }: KeyChanges): Promise<ApiKey | undefined> {
    return this.#update(id, {
      // At least one column, or there would be nothing to set.
      id,
      ...(name !== undefined && { name }),
      ...(origins !== undefined && { origins: JSON.stringify(origins) }),
      ...(rateLimit !== undefined && rateColumns(rateLimit)),
    });
  }

  async volumes(accountId: string, since: number): Promise<Map<string, KeyVolume>> {
    const rows = await this.#database.read((tables) =>
      rowsOf(
        tables
          .selectFrom('key_volumes')
          .innerJoin('keys', 'keys.id', 'key_volumes.key_id')
          .where('keys.account_id', '=', accountId)
          .where('day', '>=', startOf(since, DAY_MS))
          .groupBy('key_id')
          .select(({ fn }) => [
            'key_id as keyId',
            fn.sum<number>('users').as('users'),
            fn.sum<number>('events').as('events'),
            fn.sum<number>('users_rejected').as('usersRejected'),
            fn.sum<number>('requests_limited').as('requestsLimited'),
          ]),
      ),
    );
    return new Map(rows.map(({ keyId, ...volume }) => [keyId, volume]));
  }

  async recordUsage(uses: readonly KeyUsage[]): Promise<void> {
    if (uses.length === 0) return;
    const ids = [...new Set(uses.map(({ keyId }) => keyId))];
    await this.#database.change(function* (tables, locks) {
      // In one order: edges that saw the same keys write them at the same moment.
      const keys = tables.selectFrom('keys').select('id').where('id', 'in', ids).orderBy('id');
      const known = new Set((yield* rowsOf(locks.lock(keys))).map(({ id }) => id));
      for (const { keyId, usedAt, leakOrigin, origin, volume } of uses) {
        if (!known.has(keyId)) continue;
        const leak = leakOrigin !== null && {
          leak_suspected_at: sql<number>`coalesce(leak_suspected_at, ${usedAt})`,
          leak_origin: sql<string>`coalesce(leak_origin, ${leakOrigin})`,
        };
        const update = tables
          .updateTable('keys')
          .set({
            last_used_at: sql<number>`CASE WHEN last_used_at > ${usedAt} THEN last_used_at ELSE ${usedAt} END`,
            ...(origin !== undefined && {
              last_origin: sql<string>`CASE WHEN last_used_at > ${usedAt} THEN coalesce(last_origin, ${origin}) ELSE ${origin} END`,
            }),
            ...leak,
          })
          .where('id', '=', keyId);
        yield* changedBy(update);
        if (volume !== undefined) yield* addVolume(tables, keyId, startOf(usedAt, DAY_MS), volume);
      }
      const newest = startOf(Math.max(...uses.map(({ usedAt }) => usedAt)), DAY_MS);
      yield* changedBy(tables.deleteFrom('key_volumes').where('day', '<=', newest - KEY_VOLUME_DAYS * DAY_MS));
    });
  }

  close(): Promise<void> {
    return this.#database.close();
  }

  #update(id: string, values: object): Promise<ApiKey | undefined> {
    return this.#database.change(function* (tables) {
      yield* changedBy(tables.updateTable('keys').set(values).where('id', '=', id));
      const [row] = yield* rowsOf(selectKeys(tables).where('keys.id', '=', id));
      return row && toApiKey(row);
    });
  }
}

function selectKeys(tables: Kysely<AccountTables>) {
  return tables
    .selectFrom('keys')
    .innerJoin('accounts', 'accounts.id', 'keys.account_id')
    .select(KEY_COLUMNS)
    .select(ENFORCED_PLAN.as('enforcedPlan'));
}

type KeyRow = InferResult<ReturnType<typeof selectKeys>>[number];

function toApiKey({ usersPerSecond, burstUsers, ...row }: KeyRow): ApiKey {
  return {
    ...row,
    scopes: JSON.parse(row.scopes) as string[],
    origins: JSON.parse(row.origins) as string[],
    rateLimit: usersPerSecond === null || burstUsers === null ? null : { usersPerSecond, burstUsers },
  };
}

function rateColumns(limit: RateLimit | null) {
  return { users_per_second: limit?.usersPerSecond ?? null, burst_users: limit?.burstUsers ?? null };
}

function* addVolume(tables: Kysely<AccountTables>, keyId: string, day: number, volume: KeyVolume): Steps<void> {
  const { users, events, usersRejected, requestsLimited } = volume;
  const sums = { users, events, users_rejected: usersRejected, requests_limited: requestsLimited };
  const insert = tables.insertInto('key_volumes').values({ day, key_id: keyId, ...sums });
  const added = plusExcluded('key_volumes', Object.keys(sums));
  yield* changedBy(insert.onConflict((conflict) => conflict.columns(['day', 'key_id']).doUpdateSet(added)));
}

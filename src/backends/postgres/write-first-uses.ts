/**
 * First uses of Idempotency-Keys and event ids, and tombstones of erased match keys: looked up for a batch and stored
 * with it. The lookup runs after the node rows are locked, so it sees the erases that it waited for.
 *
 * The unique index locks a new first use; an existing one is replaced only if it has not changed. Otherwise another
 * writer was first, which is a conflict: the retried batch finds that writer's use. Older uses of an Idempotency-Key
 * (key-use.ts) change only together with the newest, so they need no check of their own.
 */

import type { Snapshot } from '../../identity/graph.ts';
import type { MatchKey } from '../../model.ts';
import {
  type LookupResult,
  type KeyUse,
  type LookupRequest,
  StoreConflictError,
  type TenantBatch,
} from '../../store-writer.ts';
import { HASHED, type HashOfKey, type KeyHash } from '../../views/keyed-hash.ts';
import { eventIdUsesOf } from './event-id-uses.ts';
import { isOfBody, olderUseName } from '../../views/key-use.ts';
import { tombstoneOf } from '../../views/tombstone.ts';
import { writeTombstones } from '../sql/erase.ts';
import { openRejections } from '../sql/rejections.ts';
import { byteas, int4s, int8s, texts, uuids } from './binary-arrays.ts';
import type { Queryable } from './pool.ts';
import type { InvalidationState } from './person-cache.ts';
import { runSteps } from './sql-database.ts';

const USES = {
  idempotency_keys: statementsOf('idempotency_keys', { trace_id: 'uuid', body_hash: 'text' }, 'trace_id'),
  // An id is reused days later at the earliest, so the time identifies a use.
  event_ids: statementsOf('event_ids', {}, 'received_at'),
} as const;
type UseTable = keyof typeof USES;
const KINDS: Readonly<Record<UseTable, number>> = {
  idempotency_keys: HASHED.idempotencyKey,
  event_ids: HASHED.eventId,
};

/** `more` are the columns besides those of every use; `own` is the column that identifies a use. */
function statementsOf(table: string, more: Readonly<Record<string, string>>, own: 'trace_id' | 'received_at') {
  const columns = ['received_at', ...Object.keys(more)];
  const arrays = ['int8', 'int8', 'int8', ...Object.values(more)].map((type, n) => `$${n + 1}::${type}[]`).join(', ');
  const before = `$${columns.length + 3}::${own === 'trace_id' ? 'uuid' : 'int8'}[]`;
  const set = columns.map((name) => `${name} = q.${name}`).join(', ');
  const insert = `INSERT INTO ${table} (hash, rest, ${columns.join(', ')}) SELECT * FROM unnest(${arrays})`;
  return {
    find: {
      name: `store_find_${table}`,
      text: `
        SELECT q.ordinal, ${columns.map((name) => `u.${name}`).join(', ')}
        FROM unnest($1::int8[], $2::int8[]) WITH ORDINALITY AS q (hash, rest, ordinal)
        JOIN ${table} u ON u.hash = q.hash AND u.rest = q.rest`,
    },
    insert: { name: `store_insert_${table}`, text: `${insert} ON CONFLICT (hash, rest) DO NOTHING` },
    replace: {
      name: `store_replace_${table}`,
      text: `
        UPDATE ${table} u SET ${set}
        FROM unnest(${arrays}, ${before}) AS q (hash, rest, ${columns.join(', ')}, before)
        WHERE u.hash = q.hash AND u.rest = q.rest AND u.${own} = q.before`,
    },
    put: {
      name: `store_put_${table}`,
      text: `${insert} ON CONFLICT (hash, rest) DO UPDATE SET ${columns.map((name) => `${name} = excluded.${name}`).join(', ')}`,
    },
  } as const;
}

const FIND_TOMBSTONES = {
  name: 'store_find_tombstones',
  text: `
    SELECT q.ordinal, t.erased_at FROM unnest($1::int4[], $2::bytea[]) WITH ORDINALITY AS q (tenant, hash, ordinal)
    JOIN tombstones t ON t.tenant = q.tenant AND t.hash = q.hash`,
};

interface Lookup {
  readonly tenant: number;
  readonly request: LookupRequest;
  readonly snapshot: Snapshot;
}

/** Of one table; a use of an event id has no request and no body. */
type NewUse = readonly [tenant: number, name: string, use: KeyUse];

interface UseRow extends KeyHash {
  readonly id: string;
  readonly use: KeyUse;
  /** The use that was looked up. */
  readonly before: KeyUse | undefined;
}

interface Batch {
  readonly tenant: number;
  readonly batch: TenantBatch;
}

/** By tenant's number, then by trace: users by index. */
type OpenRejections = ReadonlyMap<number, ReadonlyMap<string, ReadonlySet<number>>>;
const NO_USERS: ReadonlySet<number> = new Set();

/** The name is a key, that of an older use, or an event id. */
function idOf(tenant: number, name: string): string {
  return `${tenant} ${name}`;
}

/** The uses looked up by one transaction. */
export class FirstUses {
  readonly #hashOf: HashOfKey;
  /** By tenant: the event ids of the last lookup. */
  #lastEventIds: ReadonlyMap<number, readonly string[]> = new Map();
  /** By `idOf`. */
  readonly #found: Readonly<Record<UseTable, Map<string, KeyUse>>> = {
    idempotency_keys: new Map(),
    event_ids: new Map(),
  };

  constructor(hashOf: HashOfKey) {
    this.#hashOf = hashOf;
  }

  /** The results, in order. */
  async lookUp(
    client: Queryable,
    lookups: readonly Lookup[],
    invalidations: ReadonlyMap<number, InvalidationState>,
  ): Promise<LookupResult[]> {
    await this.#find(client, 'idempotency_keys', lookups, ({ idempotencyKeys }) =>
      idempotencyKeys.map(({ key }) => key),
    );
    await this.#find(client, 'idempotency_keys', lookups, ({ idempotencyKeys }, tenant) =>
      idempotencyKeys.flatMap(({ key, bodyHash }) => {
        const newest = this.#keyUse(tenant, key);
        return newest === undefined || isOfBody(newest, bodyHash) ? [] : [olderUseName(key, bodyHash)];
      }),
    );
    const open = await this.#findOpenRejections(client, lookups);
    await this.#find(client, 'event_ids', lookups, ({ eventIds }) => eventIds);
    const lastErasedAt = (tenant: number): number => invalidations.get(tenant)?.lastErasedAt ?? 0;
    const erased = await findTombstones(
      client,
      lookups.filter(({ tenant, request }) => lastErasedAt(tenant) >= request.receivedAtMin),
    );
    this.#lastEventIds = new Map(lookups.map(({ tenant, request }) => [tenant, request.eventIds]));
    return lookups.map(({ tenant, request, snapshot }) => ({
      snapshot,
      lastErasedAt: lastErasedAt(tenant),
      newestUseOfKey: (key) => this.#keyUse(tenant, key),
      olderUseOfKey: (key, bodyHash) => this.#keyUse(tenant, olderUseName(key, bodyHash)),
      openRejections: (traceId) => open.get(tenant)?.get(traceId) ?? NO_USERS,
      eventIds: eventIdUsesOf(request.eventIds, (id) => this.#found.event_ids.get(idOf(tenant, id))?.receivedAt),
      erasedAt: (key) => erased.get(nameOfErased(tenant, key)),
    }));
  }

  async write(client: Queryable, batches: readonly Batch[]): Promise<void> {
    await this.#remember(
      client,
      'idempotency_keys',
      batches.flatMap(({ tenant, batch }) => batch.newestKeyUses.map((use): NewUse => [tenant, use.key, use])),
    );
    await this.#remember(
      client,
      'event_ids',
      batches.flatMap(({ tenant, batch }) => {
        const ids = this.#lastEventIds.get(tenant) ?? [];
        return batch.eventIds.map(({ index, receivedAt }): NewUse => {
          return [tenant, ids[index] as string, { receivedAt, traceId: '', bodyHash: '' }];
        });
      }),
    );
    const older = this.#rowsOf(
      'idempotency_keys',
      batches.flatMap(({ tenant, batch }) =>
        batch.olderKeyUses.map((use): NewUse => [tenant, olderUseName(use.key, use.bodyHash), use]),
      ),
    );
    if (older.length > 0) await client.query(USES.idempotency_keys.put, columnsOf('idempotency_keys', older));
    for (const { id, use } of older) this.#found.idempotency_keys.set(id, use);
    for (const { tenant, batch } of batches.toSorted((a, b) => a.tenant - b.tenant)) {
      if (batch.tombstones.length === 0) continue;
      await runSteps(client, (tables) =>
        writeTombstones(tables, { tenant, tenantId: batch.tenantId }, batch.tombstones),
      );
    }
  }

  /** Open rejections of the requests that these may be retries of; rarely any. */
  async #findOpenRejections(client: Queryable, lookups: readonly Lookup[]): Promise<OpenRejections> {
    const open = new Map<number, Map<string, Set<number>>>();
    for (const { tenant, request } of lookups) {
      const traceIds = new Set<string>();
      for (const { key, bodyHash } of request.idempotencyKeys) {
        for (const name of [key, olderUseName(key, bodyHash)]) {
          const use = this.#keyUse(tenant, name);
          if (use !== undefined && isOfBody(use, bodyHash)) traceIds.add(use.traceId);
        }
      }
      if (traceIds.size === 0) continue;
      open.set(tenant, await runSteps(client, (tables) => openRejections(tables, tenant, [...traceIds])));
    }
    return open;
  }

  #keyUse(tenant: number, name: string): KeyUse | undefined {
    return this.#found.idempotency_keys.get(idOf(tenant, name));
  }

  async #find(
    client: Queryable,
    table: UseTable,
    lookups: readonly Lookup[],
    namesIn: (request: LookupRequest, tenant: number) => readonly string[],
  ): Promise<void> {
    const wanted = new Map<string, KeyHash>();
    for (const { tenant, request } of lookups) {
      for (const name of namesIn(request, tenant)) {
        wanted.set(idOf(tenant, name), this.#hashOf(tenant, KINDS[table], name));
      }
    }
    if (wanted.size === 0) return;
    const hashes = [...wanted.values()];
    const { rows } = await client.query<{
      ordinal: number;
      received_at: number;
      trace_id?: string;
      body_hash?: string;
    }>(USES[table].find, [int8s(hashes.map(({ hash }) => hash)), int8s(hashes.map(({ rest }) => rest))]);
    const ids = [...wanted.keys()];
    for (const { ordinal, received_at: receivedAt, trace_id: traceId = '', body_hash: bodyHash = '' } of rows) {
      this.#found[table].set(ids[ordinal - 1] as string, { receivedAt, traceId, bodyHash });
    }
  }

  async #remember(client: Queryable, table: UseTable, uses: readonly NewUse[]): Promise<void> {
    const rows = this.#rowsOf(table, uses);
    const replaced = rows.filter(({ before }) => before !== undefined);
    const created = rows.filter(({ before }) => before === undefined);
    let written = 0;
    if (created.length > 0) written += (await client.query(USES[table].insert, columnsOf(table, created))).rowCount;
    if (replaced.length > 0) {
      const before =
        table === 'event_ids'
          ? int8s(replaced.map((row) => row.before?.receivedAt ?? null))
          : uuids(replaced.map((row) => row.before?.traceId ?? null));
      written += (await client.query(USES[table].replace, [...columnsOf(table, replaced), before])).rowCount;
    }
    if (written < rows.length) throw new StoreConflictError('another writer was first to use an id');
    for (const { id, use } of rows) this.#found[table].set(id, use);
  }

  /** The last of several uses of one key wins. In one order for all writers: rows are locked in it. */
  #rowsOf(table: UseTable, uses: readonly NewUse[]): UseRow[] {
    const rows = new Map<string, UseRow>();
    for (const [tenant, name, use] of uses) {
      const id = idOf(tenant, name);
      rows.set(id, { ...this.#hashOf(tenant, KINDS[table], name), id, use, before: this.#found[table].get(id) });
    }
    return [...rows.values()].sort((a, b) => a.hash - b.hash || a.rest - b.rest);
  }
}

function columnsOf(table: UseTable, rows: readonly UseRow[]): Buffer[] {
  const columns = [
    int8s(rows.map(({ hash }) => hash)),
    int8s(rows.map(({ rest }) => rest)),
    int8s(rows.map(({ use }) => use.receivedAt)),
  ];
  if (table === 'event_ids') return columns;
  return [...columns, uuids(rows.map(({ use }) => use.traceId)), texts(rows.map(({ use }) => use.bodyHash))];
}

function nameOfErased(tenant: number, { type, value }: MatchKey): string {
  return `${tenant} ${type} ${value}`;
}

/** By `nameOfErased`. */
async function findTombstones(client: Queryable, lookups: readonly Lookup[]): Promise<Map<string, number>> {
  const keys = lookups.flatMap(({ tenant, request }) =>
    request.users.flatMap((user) =>
      user.keys.map((key) => ({ tenant, name: nameOfErased(tenant, key), hash: tombstoneOf(request.tenantId, key) })),
    ),
  );
  if (keys.length === 0) return new Map();
  const { rows } = await client.query<{ ordinal: number; erased_at: number }>(FIND_TOMBSTONES, [
    int4s(keys.map(({ tenant }) => tenant)),
    byteas(keys.map(({ hash }) => hash)),
  ]);
  return new Map(
    rows.map(({ ordinal, erased_at: erasedAt }) => [(keys[ordinal - 1] as (typeof keys)[0]).name, erasedAt]),
  );
}

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
import { eventIdUsesOf } from '../../views/event-id-uses.ts';
import { isOfBody, olderUseName } from '../../views/key-use.ts';
import { tombstoneOf } from '../../views/tombstone.ts';
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

const INSERT_TOMBSTONES = {
  name: 'store_insert_tombstones',
  text: `
    INSERT INTO tombstones (tenant, hash, erased_at)
    SELECT tenant, hash, max(erased_at) FROM unnest($1::int4[], $2::bytea[], $3::int8[]) AS q (tenant, hash, erased_at)
    GROUP BY tenant, hash ORDER BY tenant, hash
    ON CONFLICT (tenant, hash) DO UPDATE SET erased_at = greatest(tombstones.erased_at, excluded.erased_at)`,
};

interface Lookup {
  readonly tenant: number;
  readonly request: LookupRequest;
}

type Use = Pick<KeyUse, 'receivedAt'> & Partial<KeyUse>;

interface UseRow extends KeyHash {
  readonly tenant: number;
  readonly name: string;
  readonly use: Use;
  /** The use that was looked up. */
  readonly before: Use | undefined;
}

/** By tenant's number, then by trace: users by index. */
type OpenRejections = ReadonlyMap<number, ReadonlyMap<string, ReadonlySet<number>>>;
const NO_USERS: ReadonlySet<number> = new Set();

/** By tenant's number, then by key, name of an older use, or id. */
type Uses = Map<number, Map<string, Use>>;

/** The uses looked up by one transaction. */
export class FirstUses {
  readonly #hashOf: HashOfKey;
  /** By tenant: the event ids of the last lookup. */
  #lastEventIds: ReadonlyMap<number, readonly string[]> = new Map();
  readonly #found: Record<UseTable, Uses> = { idempotency_keys: new Map(), event_ids: new Map() };
  readonly #gathered: Record<UseTable, Uses> = { idempotency_keys: new Map(), event_ids: new Map() };

  constructor(hashOf: HashOfKey) {
    this.#hashOf = hashOf;
  }

  /** The results, in order, with the snapshots given. */
  async lookUp(
    client: Queryable,
    lookups: readonly Lookup[],
    snapshots: readonly Snapshot[],
    invalidations: ReadonlyMap<number, InvalidationState>,
  ): Promise<LookupResult[]> {
    await this.#find(client, 'idempotency_keys', lookups, ({ idempotencyKeys }) =>
      idempotencyKeys.map(({ key }) => key),
    );
    await this.#find(client, 'idempotency_keys', lookups, ({ idempotencyKeys }, tenant) =>
      idempotencyKeys.flatMap(({ key, bodyHash }) => {
        const newest = this.#found.idempotency_keys.get(tenant)?.get(key);
        return newest === undefined || isUseOf(newest, bodyHash) ? [] : [olderUseName(key, bodyHash)];
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
    return lookups.map(({ tenant, request }, index) => ({
      snapshot: snapshots[index] as Snapshot,
      lastErasedAt: lastErasedAt(tenant),
      newestUseOfKey: (key) => this.#keyUse(tenant, key),
      olderUseOfKey: (key, bodyHash) => this.#keyUse(tenant, olderUseName(key, bodyHash)),
      openRejections: (traceId) => open.get(tenant)?.get(traceId) ?? NO_USERS,
      eventIds: eventIdUsesOf(request.eventIds, (id) => this.#found.event_ids.get(tenant)?.get(id)?.receivedAt),
      erasedAt: ({ type, value }) => erased.get(tenant)?.get(`${type} ${value}`),
    }));
  }

  async write(
    client: Queryable,
    batches: readonly { readonly tenant: number; readonly batch: TenantBatch }[],
  ): Promise<void> {
    for (const { tenant, batch } of batches) {
      for (const use of batch.newestKeyUses) this.#gather('idempotency_keys', tenant, use.key, use);
      const ids = this.#lastEventIds.get(tenant) ?? [];
      for (const { index, receivedAt } of batch.eventIds) {
        this.#gather('event_ids', tenant, ids[index] as string, { receivedAt });
      }
    }
    await this.#remember(client, 'idempotency_keys');
    await this.#remember(client, 'event_ids');
    await this.#rememberOlderKeyUses(client, batches);
    await writeTombstones(client, batches);
  }

  /** Open rejections of the requests that these may be retries of; rarely any. */
  async #findOpenRejections(client: Queryable, lookups: readonly Lookup[]): Promise<OpenRejections> {
    const open = new Map<number, Map<string, Set<number>>>();
    for (const { tenant, request } of lookups) {
      const traceIds = new Set<string>();
      for (const { key, bodyHash } of request.idempotencyKeys) {
        for (const name of [key, olderUseName(key, bodyHash)]) {
          const use = this.#keyUse(tenant, name);
          if (use !== undefined && isUseOf(use, bodyHash)) traceIds.add(use.traceId);
        }
      }
      if (traceIds.size === 0) continue;
      open.set(tenant, await runSteps(client, (tables) => openRejections(tables, tenant, [...traceIds])));
    }
    return open;
  }

  #keyUse(tenant: number, name: string): KeyUse | undefined {
    const use = this.#found.idempotency_keys.get(tenant)?.get(name);
    return use?.bodyHash === undefined || use.traceId === undefined
      ? undefined
      : { ...use, traceId: use.traceId, bodyHash: use.bodyHash };
  }

  async #find(
    client: Queryable,
    table: UseTable,
    lookups: readonly Lookup[],
    namesIn: (request: LookupRequest, tenant: number) => readonly string[],
  ): Promise<void> {
    const tenants: number[] = [];
    const names: string[] = [];
    const hashes: KeyHash[] = [];
    for (const { tenant, request } of lookups) {
      for (const name of new Set(namesIn(request, tenant))) {
        tenants.push(tenant);
        names.push(name);
        hashes.push(this.#hashOf(tenant, KINDS[table], name));
      }
    }
    if (names.length === 0) return;
    const { rows } = await client.query<{
      ordinal: number;
      received_at: number;
      trace_id?: string;
      body_hash?: string;
    }>(USES[table].find, [int8s(hashes.map(({ hash }) => hash)), int8s(hashes.map(({ rest }) => rest))]);
    for (const { ordinal, received_at, trace_id, body_hash } of rows) {
      const use = {
        receivedAt: received_at,
        ...(trace_id !== undefined && { traceId: trace_id }),
        ...(body_hash !== undefined && { bodyHash: body_hash }),
      };
      inMap(this.#found[table], tenants[ordinal - 1] as number).set(names[ordinal - 1] as string, use);
    }
  }

  /** The last of several uses of one key in a batch wins. */
  #gather(table: UseTable, tenant: number, name: string, use: Use): void {
    inMap(this.#gathered[table], tenant).set(name, use);
  }

  async #remember(client: Queryable, table: UseTable): Promise<void> {
    const rows: UseRow[] = [];
    for (const [tenant, uses] of this.#gathered[table]) {
      const found = this.#found[table].get(tenant);
      for (const [name, use] of uses) rows.push(this.#row(table, tenant, name, use, found?.get(name)));
    }
    if (rows.length === 0) return;
    rows.sort(byHash);
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
    for (const [tenant, uses] of this.#gathered[table]) {
      for (const [name, use] of uses) inMap(this.#found[table], tenant).set(name, use);
    }
    this.#gathered[table].clear();
  }

  #row(table: UseTable, tenant: number, name: string, use: Use, before: Use | undefined): UseRow {
    return { ...this.#hashOf(tenant, KINDS[table], name), tenant, name, use, before };
  }

  async #rememberOlderKeyUses(
    client: Queryable,
    batches: readonly { readonly tenant: number; readonly batch: TenantBatch }[],
  ): Promise<void> {
    const rows = batches.flatMap(({ tenant, batch }) => {
      const uses = new Map(batch.olderKeyUses.map((use) => [olderUseName(use.key, use.bodyHash), use]));
      return Array.from(uses, ([name, use]) => this.#row('idempotency_keys', tenant, name, use, undefined));
    });
    if (rows.length === 0) return;
    await client.query(USES.idempotency_keys.put, columnsOf('idempotency_keys', rows.sort(byHash)));
    for (const { tenant, name, use } of rows) inMap(this.#found.idempotency_keys, tenant).set(name, use);
  }
}

function isUseOf({ bodyHash: remembered }: Use, bodyHash: string): boolean {
  return remembered !== undefined && isOfBody({ bodyHash: remembered }, bodyHash);
}

/** One order for all writers: rows are locked in it. */
function byHash(a: UseRow, b: UseRow): number {
  return a.hash - b.hash || a.rest - b.rest;
}

function columnsOf(table: UseTable, rows: readonly UseRow[]): Buffer[] {
  const columns = [
    int8s(rows.map(({ hash }) => hash)),
    int8s(rows.map(({ rest }) => rest)),
    int8s(rows.map(({ use }) => use.receivedAt)),
  ];
  if (table === 'event_ids') return columns;
  return [
    ...columns,
    uuids(rows.map(({ use }) => use.traceId ?? null)),
    texts(rows.map(({ use }) => use.bodyHash ?? '')),
  ];
}

function inMap<Value>(maps: Map<number, Map<string, Value>>, tenant: number): Map<string, Value> {
  const known = maps.get(tenant);
  if (known !== undefined) return known;
  const made = new Map<string, Value>();
  maps.set(tenant, made);
  return made;
}

/** By tenant's number, then type and value. */
async function findTombstones(
  client: Queryable,
  lookups: readonly Lookup[],
): Promise<Map<number, Map<string, number>>> {
  const erased = new Map<number, Map<string, number>>();
  const keys: { tenant: number; key: MatchKey; hash: Uint8Array }[] = [];
  for (const { tenant, request } of lookups) {
    for (const { keys: own } of request.users) {
      for (const key of own) keys.push({ tenant, key, hash: tombstoneOf(request.tenantId, key) });
    }
  }
  if (keys.length === 0) return erased;
  const { rows } = await client.query<{ ordinal: number; erased_at: number }>(FIND_TOMBSTONES, [
    int4s(keys.map(({ tenant }) => tenant)),
    byteas(keys.map(({ hash }) => hash)),
  ]);
  for (const { ordinal, erased_at } of rows) {
    const { tenant, key } = keys[ordinal - 1] as (typeof keys)[number];
    inMap(erased, tenant).set(`${key.type} ${key.value}`, erased_at);
  }
  return erased;
}

async function writeTombstones(
  client: Queryable,
  batches: readonly { readonly tenant: number; readonly batch: TenantBatch }[],
): Promise<void> {
  const rows = batches.flatMap(({ tenant, batch }) =>
    batch.tombstones.map(({ key, erasedAt }) => ({ tenant, hash: tombstoneOf(batch.tenantId, key), erasedAt })),
  );
  if (rows.length === 0) return;
  await client.query(INSERT_TOMBSTONES, [
    int4s(rows.map(({ tenant }) => tenant)),
    byteas(rows.map(({ hash }) => hash)),
    int8s(rows.map(({ erasedAt }) => erasedAt)),
  ]);
}

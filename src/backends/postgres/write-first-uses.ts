/**
 * First uses of Idempotency-Keys and event ids, and tombstones of erased match keys: looked up for a batch and stored
 * with it. The lookup runs after the node rows are locked, so it sees the erases that it waited for.
 *
 * The unique index locks a new first use; an existing one is replaced only if it has not changed. Otherwise another
 * writer was first, which is a conflict: the retried batch finds that writer's use. Older uses of an Idempotency-Key
 * (views/key-use.ts) change only together with the newest, so they need no check of their own.
 *
 * First uses are hashed with a secret (views/keyed-hash.ts). The first process that needs it creates it. It must never
 * change: no earlier first use could be found without it.
 */

import { randomBytes } from 'node:crypto';
import type { Snapshot } from '../../identity/graph.ts';
import type { MatchKey } from '../../model.ts';
import { type LookupResult, type KeyUse, type LookupRequest, StoreConflictError } from '../../store-writer.ts';
import { spellingsOf } from '../../views/erased-person.ts';
import { HASHED, type HashOfKey, type KeyHash, keyHashes, SECRET_BYTES } from '../../views/keyed-hash.ts';
import { isOfBody, olderUseName } from '../../views/key-use.ts';
import { tombstoneOf } from '../../views/tombstone.ts';
import { writeTombstones } from '../sql/profile-changes.ts';
import { openRejections } from '../sql/rejections.ts';
import type { Queryable } from './pool.ts';
import type { InvalidationState } from './person-cache.ts';
import { bytea, type Columns, insertInto, int4, int8, RowsStatement, text, uuid } from './rows-statement.ts';
import { runSteps } from './sql-database.ts';
import type { NumberedBatch } from './write-changes.ts';

/** For readers. Without a secret nothing was hashed yet, so any hash finds nothing. */
export async function storedHashesOf(connection: Queryable): Promise<HashOfKey> {
  return keyHashes((await secretIn(connection)) ?? new Uint8Array(SECRET_BYTES));
}

export async function hashesOf(connection: Queryable): Promise<HashOfKey> {
  const known = await secretIn(connection);
  if (known !== undefined) return keyHashes(known);
  await connection.query('INSERT INTO key_secret (secret) VALUES ($1) ON CONFLICT DO NOTHING', [
    randomBytes(SECRET_BYTES),
  ]);
  return hashesOf(connection);
}

async function secretIn(connection: Queryable): Promise<Uint8Array | undefined> {
  const { rows } = await connection.query<{ secret: Uint8Array }>('SELECT secret FROM key_secret');
  return rows[0]?.secret;
}

interface UseRow extends KeyHash {
  readonly id: string;
  readonly use: KeyUse;
  /** The use that was looked up. */
  readonly before: KeyUse | undefined;
}

const HASH: Columns<KeyHash> = { hash: int8(({ hash }) => hash), rest: int8(({ rest }) => rest) };

/** `columns` are those besides the hash; `own` identifies a use, and `before` is its value in the use looked up. */
function statementsOf(table: string, columns: Columns<UseRow>, own: string, before: Columns<UseRow>[string]) {
  const names = Object.keys(columns);
  const replacedBy = (row: string): string => names.map((name) => `${name} = ${row}.${name}`).join(', ');
  const all: Columns<UseRow> = { ...HASH, ...columns };
  return {
    find: new RowsStatement<KeyHash>(
      `find_${table}`,
      HASH,
      (rows) => `
        SELECT q.ordinal, ${names.map((name) => `u.${name}`).join(', ')} FROM ${rows}
        JOIN ${table} u ON u.hash = q.hash AND u.rest = q.rest`,
    ),
    insert: insertInto(table, all, 'ON CONFLICT (hash, rest) DO NOTHING'),
    replace: new RowsStatement<UseRow>(
      `replace_${table}`,
      { ...all, before },
      (rows) => `
        UPDATE ${table} u SET ${replacedBy('q')} FROM ${rows}
        WHERE u.hash = q.hash AND u.rest = q.rest AND u.${own} = q.before`,
    ),
    put: new RowsStatement<UseRow>(
      `put_${table}`,
      all,
      (rows, of) => `
        INSERT INTO ${table} (${of}) SELECT ${of} FROM ${rows}
        ON CONFLICT (hash, rest) DO UPDATE SET ${replacedBy('excluded')}`,
    ),
  };
}

const RECEIVED_AT: Columns<UseRow> = { received_at: int8(({ use }) => use.receivedAt) };
const USES = {
  idempotency_keys: {
    kind: HASHED.idempotencyKey,
    ...statementsOf(
      'idempotency_keys',
      { ...RECEIVED_AT, trace_id: uuid(({ use }) => use.traceId), body_hash: text(({ use }) => use.bodyHash) },
      'trace_id',
      uuid(({ before }) => before?.traceId ?? null),
    ),
  },
  event_ids: {
    kind: HASHED.eventId,
    // An id is reused days later at the earliest, so the time identifies a use.
    ...statementsOf(
      'event_ids',
      RECEIVED_AT,
      'received_at',
      int8(({ before }) => before?.receivedAt ?? null),
    ),
  },
};
type UseTable = keyof typeof USES;

const FIND_TOMBSTONES = new RowsStatement<{ readonly tenant: number; readonly hash: Uint8Array }>(
  'find_tombstones',
  { tenant: int4(({ tenant }) => tenant), hash: bytea(({ hash }) => hash) },
  (rows) => `
    SELECT q.ordinal, t.erased_at FROM ${rows} JOIN tombstones t ON t.tenant = q.tenant AND t.hash = q.hash`,
);

interface Lookup {
  readonly tenant: number;
  readonly request: LookupRequest;
  readonly snapshot: Snapshot;
}

/** Of one table; a use of an event id has no request and no body. */
type NewUse = readonly [tenant: number, name: string, use: KeyUse];

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
    return lookups.map(({ tenant, snapshot }) => ({
      snapshot,
      lastErasedAt: lastErasedAt(tenant),
      newestUseOfKey: (key) => this.#keyUse(tenant, key),
      olderUseOfKey: (key, bodyHash) => this.#keyUse(tenant, olderUseName(key, bodyHash)),
      openRejections: (traceId) => open.get(tenant)?.get(traceId) ?? NO_USERS,
      lastUseOfEventId: (id) => this.#found.event_ids.get(idOf(tenant, id))?.receivedAt,
      erasedAt: (key) => erased.get(nameOfErased(tenant, key)),
    }));
  }

  async write(client: Queryable, batches: readonly NumberedBatch[]): Promise<void> {
    await this.#remember(
      client,
      'idempotency_keys',
      batches.flatMap(({ tenant, batch }) => batch.newestKeyUses.map((use): NewUse => [tenant, use.key, use])),
    );
    await this.#remember(
      client,
      'event_ids',
      batches.flatMap(({ tenant, batch }) =>
        batch.eventIds.map(({ id, receivedAt }): NewUse => [tenant, id, { receivedAt, traceId: '', bodyHash: '' }]),
      ),
    );
    const older = this.#rowsOf(
      'idempotency_keys',
      batches.flatMap(({ tenant, batch }) =>
        batch.olderKeyUses.map((use): NewUse => [tenant, olderUseName(use.key, use.bodyHash), use]),
      ),
    );
    await USES.idempotency_keys.put.query(client, older);
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
        wanted.set(idOf(tenant, name), this.#hashOf(tenant, USES[table].kind, name));
      }
    }
    const { rows } = await USES[table].find.query<{
      ordinal: number;
      received_at: number;
      trace_id?: string;
      body_hash?: string;
    }>(client, [...wanted.values()]);
    const ids = [...wanted.keys()];
    for (const { ordinal, received_at: receivedAt, trace_id: traceId = '', body_hash: bodyHash = '' } of rows) {
      this.#found[table].set(ids[ordinal - 1] as string, { receivedAt, traceId, bodyHash });
    }
  }

  async #remember(client: Queryable, table: UseTable, uses: readonly NewUse[]): Promise<void> {
    const rows = this.#rowsOf(table, uses);
    const replaced = rows.filter(({ before }) => before !== undefined);
    const created = rows.filter(({ before }) => before === undefined);
    const { insert, replace } = USES[table];
    const written = (await insert.query(client, created)).rowCount + (await replace.query(client, replaced)).rowCount;
    if (written < rows.length) throw new StoreConflictError('another writer was first to use an id');
    for (const { id, use } of rows) this.#found[table].set(id, use);
  }

  /** The last of several uses of one key wins. In one order for all writers: rows are locked in it. */
  #rowsOf(table: UseTable, uses: readonly NewUse[]): UseRow[] {
    const rows = new Map<string, UseRow>();
    for (const [tenant, name, use] of uses) {
      const id = idOf(tenant, name);
      rows.set(id, { ...this.#hashOf(tenant, USES[table].kind, name), id, use, before: this.#found[table].get(id) });
    }
    return [...rows.values()].sort((a, b) => a.hash - b.hash || a.rest - b.rest);
  }
}

function nameOfErased(tenant: number, { type, value }: MatchKey): string {
  return `${tenant} ${type} ${value}`;
}

/** By `nameOfErased`. */
async function findTombstones(client: Queryable, lookups: readonly Lookup[]): Promise<Map<string, number>> {
  const keys = lookups.flatMap(({ tenant, request }) =>
    request.users.flatMap((user) =>
      user.keys.flatMap((key) =>
        spellingsOf(key).map((spelling) => ({
          tenant,
          name: nameOfErased(tenant, key),
          hash: tombstoneOf(request.tenantId, spelling),
        })),
      ),
    ),
  );
  const { rows } = await FIND_TOMBSTONES.query<{ ordinal: number; erased_at: number }>(client, keys);
  // Of two spellings of one key, the one that was erased last counts.
  rows.sort((a, b) => a.erased_at - b.erased_at);
  return new Map(
    rows.map(({ ordinal, erased_at: erasedAt }) => [(keys[ordinal - 1] as (typeof keys)[0]).name, erasedAt]),
  );
}

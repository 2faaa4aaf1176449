/**
 * What the writer has to remember of the past besides people: the first use of each Idempotency-Key and event id, and
 * which match keys were erased when. Removed when it no longer matters by the sweep (store-sweep.ts).
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { MatchKey, TenantId } from '../../model.ts';
import type { FirstUse, TenantBatch } from '../../store-writer.ts';
import { tombstoneOf } from '../../stored/tombstone.ts';
import { uuidBytes, uuidText } from './uuids.ts';

interface Tenant {
  readonly no: number;
  readonly id: TenantId;
}

export class StoreMemory {
  readonly #statements: ReturnType<typeof prepare>;

  constructor(database: DatabaseSync) {
    this.#statements = prepare(database);
  }

  firstUseOfIdempotencyKey(tenant: Tenant, key: string): FirstUse | undefined {
    return firstUse(this.#statements.idempotencyKey, tenant.no, key);
  }

  firstUseOfEventId(tenant: Tenant, id: string): FirstUse | undefined {
    return firstUse(this.#statements.eventId, tenant.no, id);
  }

  erasedAt(tenant: Tenant, key: MatchKey): number | undefined {
    const row = this.#statements.tombstone.get(tenant.no, tombstoneOf(tenant.id, key));
    return row?.erased_at as number | undefined;
  }

  /** When something was last erased; 0 for never. */
  lastErasedAt(tenantNo: number): number {
    return (this.#statements.lastTombstone.get(tenantNo)?.last as number | null | undefined) ?? 0;
  }

  write(tenant: Tenant, { idempotencyKeys, eventIds, tombstones }: TenantBatch): void {
    for (const { key, receivedAt, traceId } of idempotencyKeys) {
      this.#statements.rememberIdempotencyKey.run(tenant.no, key, receivedAt, uuidBytes(traceId));
    }
    for (const { key, erasedAt } of tombstones) {
      this.#statements.rememberTombstone.run(tenant.no, tombstoneOf(tenant.id, key), erasedAt);
    }
    for (const { id, receivedAt, traceId } of eventIds) {
      this.#statements.rememberEventId.run(tenant.no, id, receivedAt, uuidBytes(traceId));
    }
  }
}

function firstUse(statement: StatementSync, tenant: number, key: string): FirstUse | undefined {
  const row = statement.get(tenant, key);
  if (row === undefined) return undefined;
  return { receivedAt: row.received_at as number, traceId: uuidText(row.trace_id as Uint8Array) };
}

function prepare(database: DatabaseSync) {
  return {
    idempotencyKey: database.prepare('SELECT received_at, trace_id FROM idempotency_keys WHERE tenant = ? AND key = ?'),
    eventId: database.prepare('SELECT received_at, trace_id FROM event_ids WHERE tenant = ? AND id = ?'),
    tombstone: database.prepare('SELECT erased_at FROM tombstones WHERE tenant = ? AND hash = ?'),
    lastTombstone: database.prepare('SELECT max(erased_at) AS last FROM tombstones WHERE tenant = ?'),
    rememberTombstone: database.prepare(
      `INSERT INTO tombstones VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET erased_at = max(erased_at, excluded.erased_at)`,
    ),
    rememberIdempotencyKey: database.prepare(
      `INSERT INTO idempotency_keys VALUES (?, ?, ?, ?)
       ON CONFLICT DO UPDATE SET received_at = excluded.received_at, trace_id = excluded.trace_id`,
    ),
    rememberEventId: database.prepare(
      `INSERT INTO event_ids VALUES (?, ?, ?, ?)
       ON CONFLICT DO UPDATE SET received_at = excluded.received_at, trace_id = excluded.trace_id`,
    ),
  };
}

/**
 * What the writer has to remember of the past besides people: the first use of each Idempotency-Key and event id, and
 * which match keys were erased when. Removed when it no longer matters by the sweep (store-sweep.ts).
 */

import type { DatabaseSync, SQLOutputValue } from 'node:sqlite';
import type { MatchKey, TenantId } from '../../model.ts';
import type { FirstUse, KeyUse, TenantBatch } from '../../store-writer.ts';
import { olderUseName } from '../../stored/older-use.ts';
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

  newestUseOfKey(tenant: Tenant, idempotencyKey: string): KeyUse | undefined {
    return this.#keyUse(tenant, idempotencyKey);
  }

  olderUseOfKey(tenant: Tenant, idempotencyKey: string, bodyHash: string): KeyUse | undefined {
    return this.#keyUse(tenant, olderUseName(idempotencyKey, bodyHash));
  }

  #keyUse(tenant: Tenant, name: string): KeyUse | undefined {
    const row = this.#statements.idempotencyKey.get(tenant.no, name);
    return row === undefined ? undefined : { ...useOf(row), bodyHash: row.body_hash as string };
  }

  firstUseOfEventId(tenant: Tenant, id: string): FirstUse | undefined {
    const row = this.#statements.eventId.get(tenant.no, id);
    return row === undefined ? undefined : useOf(row);
  }

  erasedAt(tenant: Tenant, key: MatchKey): number | undefined {
    const row = this.#statements.tombstone.get(tenant.no, tombstoneOf(tenant.id, key));
    return row?.erased_at as number | undefined;
  }

  /** When something was last erased; 0 for never. */
  lastErasedAt(tenantNo: number): number {
    return (this.#statements.lastTombstone.get(tenantNo)?.last as number | null | undefined) ?? 0;
  }

  write(tenant: Tenant, { newestKeyUses, olderKeyUses, eventIds, tombstones }: TenantBatch): void {
    for (const use of newestKeyUses) this.#rememberKeyUse(tenant, use.key, use);
    for (const use of olderKeyUses) this.#rememberKeyUse(tenant, olderUseName(use.key, use.bodyHash), use);
    for (const { key, erasedAt } of tombstones) {
      this.#statements.rememberTombstone.run(tenant.no, tombstoneOf(tenant.id, key), erasedAt);
    }
    for (const { id, receivedAt, traceId } of eventIds) {
      this.#statements.rememberEventId.run(tenant.no, id, receivedAt, uuidBytes(traceId));
    }
  }

  #rememberKeyUse(tenant: Tenant, name: string, { receivedAt, traceId, bodyHash }: KeyUse): void {
    this.#statements.rememberIdempotencyKey.run(tenant.no, name, receivedAt, uuidBytes(traceId), bodyHash);
  }
}

function useOf(row: Readonly<Record<string, SQLOutputValue>>): FirstUse {
  return { receivedAt: row.received_at as number, traceId: uuidText(row.trace_id as Uint8Array) };
}

function prepare(database: DatabaseSync) {
  return {
    idempotencyKey: database.prepare(
      'SELECT received_at, trace_id, body_hash FROM idempotency_keys WHERE tenant = ? AND key = ?',
    ),
    eventId: database.prepare('SELECT received_at, trace_id FROM event_ids WHERE tenant = ? AND id = ?'),
    tombstone: database.prepare('SELECT erased_at FROM tombstones WHERE tenant = ? AND hash = ?'),
    lastTombstone: database.prepare('SELECT max(erased_at) AS last FROM tombstones WHERE tenant = ?'),
    rememberTombstone: database.prepare(
      `INSERT INTO tombstones VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET erased_at = max(erased_at, excluded.erased_at)`,
    ),
    rememberIdempotencyKey: database.prepare(
      `INSERT INTO idempotency_keys (tenant, key, received_at, trace_id, body_hash) VALUES (?, ?, ?, ?, ?) ON CONFLICT
       DO UPDATE SET received_at = excluded.received_at, trace_id = excluded.trace_id, body_hash = excluded.body_hash`,
    ),
    rememberEventId: database.prepare(
      `INSERT INTO event_ids VALUES (?, ?, ?, ?)
       ON CONFLICT DO UPDATE SET received_at = excluded.received_at, trace_id = excluded.trace_id`,
    ),
  };
}

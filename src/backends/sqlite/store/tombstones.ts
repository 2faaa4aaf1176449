/**
 * When match keys were erased (rule 17), as the writer reads and adds it. Tombstones are never removed: data received
 * before an erase may be processed late, from a log that waited.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { MatchKey, TenantId } from '../../../model.ts';
import type { Tombstone } from '../../../store-writer.ts';
import { tombstoneOf } from '../../../views/tombstone.ts';

interface Tenant {
  readonly no: number;
  readonly id: TenantId;
}

export class Tombstones {
  readonly #find: StatementSync;
  readonly #insert: StatementSync;

  constructor(database: DatabaseSync) {
    this.#find = database.prepare('SELECT erased_at FROM tombstones WHERE tenant = ? AND hash = ?');
    this.#insert = database.prepare(
      `INSERT INTO tombstones VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET erased_at = max(erased_at, excluded.erased_at)`,
    );
  }

  erasedAt(tenant: Tenant, key: MatchKey): number | undefined {
    return this.#find.get(tenant.no, tombstoneOf(tenant.id, key))?.['erased_at'] as number | undefined;
  }

  write(tenant: Tenant, tombstones: readonly Tombstone[]): void {
    for (const { key, erasedAt } of tombstones) this.#insert.run(tenant.no, tombstoneOf(tenant.id, key), erasedAt);
  }
}

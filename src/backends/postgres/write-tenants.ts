/**
 * Numbers of tenants, which never change: looked up once, and assigned when a tenant first sends something. New numbers
 * are visible to their transaction alone until it commits. A database restored to an earlier state may give them to
 * other tenants.
 */

import type { TenantId } from '../../model.ts';
import { texts } from './binary-arrays.ts';
import type { Queryable } from './pool.ts';

const FIND_TENANTS = { name: 'store_find_tenants', text: 'SELECT id, no FROM tenants WHERE id = ANY ($1::text[])' };

/** In one order, so that two writers with the same new tenants never deadlock. */
const INSERT_TENANTS = {
  name: 'store_insert_tenants',
  text: `
    INSERT INTO tenants (id) SELECT id FROM unnest($1::text[]) AS q (id) ORDER BY id COLLATE "C"
    ON CONFLICT (id) DO NOTHING`,
};

export class StoreTenants {
  readonly #known = new Map<TenantId, number>();
  /** By the transaction that looked them up. */
  readonly #unconfirmed = new WeakMap<object, Map<TenantId, number>>();

  async numbersOf(client: Queryable, ids: readonly TenantId[], transaction: object): Promise<Map<TenantId, number>> {
    const own = this.#unconfirmed.get(transaction) ?? new Map<TenantId, number>();
    this.#unconfirmed.set(transaction, own);
    const missing = (): TenantId[] => ids.filter((id) => !this.#known.has(id) && !own.has(id));
    for (const statement of [FIND_TENANTS, INSERT_TENANTS, FIND_TENANTS]) {
      if (missing().length === 0) break;
      const { rows } = await client.query<{ id: TenantId; no: number }>(statement, [texts(missing())]);
      for (const { id, no } of rows) own.set(id, no);
    }
    return new Map(ids.map((id) => [id, (this.#known.get(id) ?? own.get(id)) as number]));
  }

  /** The transaction was committed. */
  confirm(transaction: object): void {
    for (const [id, no] of this.#unconfirmed.get(transaction) ?? []) this.#known.set(id, no);
    this.#unconfirmed.delete(transaction);
  }

  /** The transaction was rolled back. */
  forget(transaction: object): void {
    this.#unconfirmed.delete(transaction);
  }

  forgetAll(): void {
    this.#known.clear();
  }
}

/**
 * Numbers of nodes, records and events: each writer takes blocks from the sequence `numbers` and counts within them.
 * Numbers of a rolled-back transaction are skipped. Numbers increase per writer, but not across writers.
 *
 * After a crash, the server may hand out a block again that it gave to an uncommitted transaction. So a writer
 * continues a block only after the transaction that took it has committed.
 *
 * Numbers of tenants never change: looked up once, and assigned when a tenant first sends something. New numbers are
 * visible to their transaction alone until it commits. A database restored to an earlier state may give them to other
 * tenants.
 */

import type { TenantId } from '../../model.ts';
import { texts } from './binary-arrays.ts';
import type { Queryable } from './pool.ts';
import { NUMBERS_PER_BLOCK } from './store-schema.ts';

const NEXT_BLOCK = { name: 'store_next_block', text: `SELECT nextval('numbers') AS first` };

export class StoreNumbers {
  #next = 0;
  #end = 0;
  #isCommitted = true;

  /** For each count, the first of that many consecutive numbers. */
  async take(client: Queryable, counts: readonly number[]): Promise<number[]> {
    const firsts: number[] = [];
    for (const count of counts) {
      if (this.#next + count > this.#end) await this.#takeBlock(client, count);
      firsts.push(this.#next);
      this.#next += count;
    }
    return firsts;
  }

  /** The transaction that took the numbers is committed. */
  confirm(): void {
    this.#isCommitted = true;
  }

  /**
   * The transaction is rolled back. With `isAll` no block is reused: another server, with another state, may respond
   * next.
   */
  forget(isAll: boolean): void {
    if (this.#isCommitted && !isAll) return;
    this.#next = 0;
    this.#end = 0;
    this.#isCommitted = true;
  }

  async #takeBlock(client: Queryable, count: number): Promise<void> {
    if (count > NUMBERS_PER_BLOCK) throw new RangeError(`a batch needs ${count} numbers in a row`);
    const { rows } = await client.query<{ first: number }>(NEXT_BLOCK);
    this.#next = rows[0]?.first ?? Number.NaN;
    this.#end = this.#next + NUMBERS_PER_BLOCK;
    this.#isCommitted = false;
  }
}

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

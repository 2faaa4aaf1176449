/**
 * Numbers of nodes, records and events: each writer takes blocks from the sequence `numbers` and counts within them.
 * Numbers of a rolled-back transaction are skipped. Numbers increase per writer, but not across writers.
 *
 * After a crash, the server may hand out a block again that it gave to an uncommitted transaction. So a writer
 * continues a block only after the transaction that took it has committed.
 */

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

/**
 * Numbers of nodes, records and events: each writer takes blocks from the sequence `numbers` and counts within them.
 * Numbers increase per writer, but not across writers.
 *
 * After a crash, the server may hand out a block again that it gave to an uncommitted transaction. So the rest of a block
 * is given up (`forget`) when a transaction is rolled back.
 */

import type { Queryable } from './pool.ts';
import { NUMBERS_PER_BLOCK } from './store-schema.ts';

const NEXT_BLOCK = { name: 'store_next_block', text: `SELECT nextval('numbers') AS first` };

export class StoreNumbers {
  #next = 0;
  #end = 0;

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

  forget(): void {
    this.#next = 0;
    this.#end = 0;
  }

  async #takeBlock(client: Queryable, count: number): Promise<void> {
    if (count > NUMBERS_PER_BLOCK) throw new RangeError(`a batch needs ${count} numbers in a row`);
    const { rows } = await client.query<{ first: number }>(NEXT_BLOCK);
    this.#next = rows[0]?.first ?? Number.NaN;
    this.#end = this.#next + NUMBERS_PER_BLOCK;
  }
}

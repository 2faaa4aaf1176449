/**
 * What queries of the store on PostgreSQL share: tenant numbers, invalid ids, texts that PostgreSQL cannot store, and
 * snapshots for several statements. Most queries are one statement, which is consistent by itself.
 */

import type { TenantId } from '../../model.ts';
import type { PostgresClient, PostgresPool } from './pool.ts';

/** PostgreSQL cannot store U+0000 and no accepted text contains it, so a text with one matches nothing. */
export function isPostgresText(text: string): boolean {
  return !text.includes('\0');
}

/**
 * Tenant numbers never change. Only a database restored to an earlier state may give one to another tenant; that breaks
 * all connections, and then numbers are looked up again.
 */
export class TenantNumbers {
  readonly #pool: PostgresPool;
  readonly #known = new Map<TenantId, number>();
  #interruptions = 0;

  constructor(pool: PostgresPool) {
    this.#pool = pool;
  }

  /** Undefined for a tenant that never sent anything. */
  async of(id: TenantId): Promise<number | undefined> {
    if (this.#interruptions !== this.#pool.interruptions) {
      this.#interruptions = this.#pool.interruptions;
      this.#known.clear();
    }
    const known = this.#known.get(id);
    if (known !== undefined || !isPostgresText(id)) return known;
    const { rows } = await this.#pool.query<{ no: number }>('SELECT no FROM tenants WHERE id = $1', [id]);
    const no = rows[0]?.no;
    if (no !== undefined) this.#known.set(id, no);
    return no;
  }
}

/** All statements of `work` see the same snapshot. */
export async function inSnapshot<T>(pool: PostgresPool, work: (client: PostgresClient) => Promise<T>): Promise<T> {
  return pool.withClient(async (client) => {
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
    try {
      return await work(client);
    } finally {
      if (client.isUsable) await client.query('ROLLBACK');
    }
  });
}

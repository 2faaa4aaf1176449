/**
 * What every question to the store on PostgreSQL begins with: tenants by their numbers, ids that are none, texts that
 * PostgreSQL does not take, and several statements that have to agree. Most questions are one statement, which sees one
 * moment by itself.
 */

import type { TenantId } from '../../model.ts';
import type { PostgresClient, PostgresPool } from './pool.ts';

/** PostgreSQL has no U+0000: what was accepted has none either, so a text with one is nobody's. */
export function isStorable(text: string): boolean {
  return !text.includes('\0');
}

/**
 * Numbers of tenants: given once, never changed. Only a database that was set back may give one to another tenant; that
 * closes all connections, and then numbers are looked up anew.
 */
export class TenantNumbers {
  readonly #pool: PostgresPool;
  readonly #known = new Map<TenantId, number>();
  #closedConnections = 0;

  constructor(pool: PostgresPool) {
    this.#pool = pool;
  }

  /** Undefined for a tenant that never sent anything. */
  async of(id: TenantId): Promise<number | undefined> {
    if (this.#closedConnections !== this.#pool.closedConnections) {
      this.#closedConnections = this.#pool.closedConnections;
      this.#known.clear();
    }
    const known = this.#known.get(id);
    if (known !== undefined || !isStorable(id)) return known;
    const { rows } = await this.#pool.query<{ no: number }>('SELECT no FROM tenants WHERE id = $1', [id]);
    const no = rows[0]?.no;
    if (no !== undefined) this.#known.set(id, no);
    return no;
  }
}

/** All statements of `work` see the same moment. */
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

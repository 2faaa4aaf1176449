/**
 * Finds what is kept of rejected users that name a person, for an erase. All of a tenant's are read, some hundred at a
 * time, before the erase takes its locks; within its transaction it looks at those that were not there yet, which are
 * known by the transactions that wrote them, since numbers do not become visible in order.
 */

import type { MatchOptions } from '../../identity/match-keys.ts';
import { type ErasedKey, nameOfKey, payloadTest } from '../../views/erased-person.ts';
import type { PostgresClient, PostgresPool, Queryable } from './pool.ts';

/** What is kept of one user is some tens of kilobytes at most. */
const REJECTIONS_PER_READ = 500;

export interface Suspects {
  readonly rejections: readonly number[];
  /** The oldest transaction that was under way before the first was read: of all before it nothing was missed. */
  readonly horizon: string;
  /** Which match keys they were compared with. */
  readonly names: ReadonlySet<string>;
}

export async function findRejections(
  pool: PostgresPool,
  tenant: number,
  keys: readonly ErasedKey[],
  options: MatchOptions,
): Promise<Suspects> {
  const { rows } = await pool.query<{ horizon: string }>(
    'SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS horizon',
  );
  const horizon = rows[0]?.horizon ?? '0';
  const rejections = await scan(pool, tenant, keys, options, null);
  return { rejections, horizon, names: new Set(keys.map(nameOfKey)) };
}

/** Those that `suspects` has not seen, or has not compared with all of the keys. */
export async function laterRejections(
  client: PostgresClient,
  tenant: number,
  keys: readonly ErasedKey[],
  options: MatchOptions,
  suspects: Suspects,
): Promise<number[]> {
  const isSame = keys.every((key) => suspects.names.has(nameOfKey(key)));
  return scan(client, tenant, keys, options, isSame ? suspects.horizon : null);
}

interface RejectionColumns {
  readonly no: number;
  readonly received_at: number;
  readonly payload: string;
}

async function scan(
  db: Queryable,
  tenant: number,
  keys: readonly ErasedKey[],
  options: MatchOptions,
  horizon: string | null,
): Promise<number[]> {
  const isAbout = payloadTest(keys, options);
  const found: number[] = [];
  // A row's age is counted in transactions: the younger one has the smaller.
  const isLater = horizon === null ? '' : 'AND age(xmin) <= age($5::xid8::xid)';
  for (let after = [Number.MIN_SAFE_INTEGER, 0]; ; ) {
    const values = [tenant, ...after, REJECTIONS_PER_READ, ...(horizon === null ? [] : [horizon])];
    const { rows } = await db.query<RejectionColumns>(
      `SELECT no, received_at, payload FROM rejections
       WHERE tenant = $1 AND (received_at, no) > ($2, $3) ${isLater} ORDER BY received_at, no LIMIT $4`,
      values,
    );
    for (const { no, payload } of rows) if (isAbout(payload)) found.push(no);
    const last = rows.at(-1);
    if (last === undefined || rows.length < REJECTIONS_PER_READ) return found;
    after = [last.received_at, last.no];
  }
}

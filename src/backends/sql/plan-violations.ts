/**
 * What events violated of a tracking plan that warns, counted by version, event name and path. Written with the sums of a
 * transaction, so each event counts once; read added up over the shards. Holds names and no values of clients. The sweep
 * removes what has not occurred for a while.
 */

import { type Kysely, sql } from 'kysely';
import type { StoredPlanViolation } from '../../store.ts';
import type { PlanViolation } from '../../store-writer.ts';
import { withoutNul } from '../../views/storable-text.ts';
import type { SqlStatement } from './database.ts';
import type { StoreQueries, StoreTables } from './store-tables.ts';

/** In place of an event name: the violation is in user properties or profile fields. */
const NO_EVENT = '';
const LISTED_MAX = 500;

export interface ViolationRow {
  readonly tenant: number;
  readonly version: number;
  readonly event_name: string;
  readonly path: string;
  readonly message: string;
  count: number;
  first_at: number;
  last_at: number;
  last_trace_id: string;
}

/** Those of a transaction, one row for each that is distinguished. */
export class ViolationSums {
  readonly #rows = new Map<string, ViolationRow>();

  add(tenant: number, { version, eventName, path, message, count, at, traceId }: PlanViolation): void {
    const row = {
      tenant,
      version,
      event_name: withoutNul(eventName ?? NO_EVENT),
      path: withoutNul(path),
      message: withoutNul(message),
    };
    const key = JSON.stringify(row);
    const known = this.#rows.get(key);
    if (known === undefined) {
      this.#rows.set(key, { ...row, count, first_at: at, last_at: at, last_trace_id: traceId });
      return;
    }
    known.count += count;
    known.first_at = Math.min(known.first_at, at);
    if (at < known.last_at) return;
    known.last_at = at;
    known.last_trace_id = traceId;
  }

  /** In one order for all writers. */
  take(): ViolationRow[] {
    const rows = [...this.#rows].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, row]) => row);
    this.clear();
    return rows;
  }

  clear(): void {
    this.#rows.clear();
  }
}

export function addToViolations(
  tables: Kysely<StoreTables>,
  shard: number,
  rows: readonly ViolationRow[],
): SqlStatement {
  const newer = sql`excluded.last_at >= plan_violations.last_at`;
  return tables
    .insertInto('plan_violations')
    .values(rows.map((row) => ({ ...row, shard })))
    .onConflict((conflict) =>
      conflict.columns(['tenant', 'version', 'event_name', 'path', 'message', 'shard']).doUpdateSet({
        count: sql<number>`plan_violations.count + excluded.count`,
        first_at: sql<number>`CASE WHEN excluded.first_at < plan_violations.first_at THEN excluded.first_at ELSE plan_violations.first_at END`,
        last_at: sql<number>`CASE WHEN ${newer} THEN excluded.last_at ELSE plan_violations.last_at END`,
        last_trace_id: sql<string>`CASE WHEN ${newer} THEN excluded.last_trace_id ELSE plan_violations.last_trace_id END`,
      }),
    );
}

/** The most frequent first; of one version, or of all. */
export async function listPlanViolations(
  { tables }: StoreQueries,
  tenant: number,
  version: number | null,
): Promise<StoredPlanViolation[]> {
  const all = tables
    .selectFrom('plan_violations')
    .where('tenant', '=', tenant)
    .groupBy(['version', 'event_name', 'path', 'message'])
    .select((row) => [
      'version',
      'event_name',
      'path',
      'message',
      row.fn.sum<number>('count').as('count'),
      row.fn.min<number>('first_at').as('firstAt'),
      row.fn.max<number>('last_at').as('lastAt'),
      // Trace ids are ordered by time.
      sql<string>`max(CAST(last_trace_id AS text))`.as('traceId'),
    ])
    .orderBy('count', 'desc')
    .orderBy('version', 'desc')
    .orderBy('event_name')
    .orderBy('path')
    .orderBy('message')
    .limit(LISTED_MAX);
  const rows = await (version === null ? all : all.where('version', '=', version)).execute();
  return rows.map(({ version: of, event_name: name, path, message, count, firstAt, lastAt, traceId }) => ({
    version: of,
    eventName: name === NO_EVENT ? null : name,
    path,
    message,
    count,
    firstAt,
    lastAt,
    traceId,
  }));
}

/**
 * What events violated of a tracking plan that warns, counted by version, event name and path. Written with the sums of a
 * transaction, so each event counts once; read added up over the shards. Holds names and no values of clients, who choose
 * the names: so of each version at most `DISTINGUISHED_MAX` violations are distinguished, whatever process writes them, and
 * the rest is counted as one. Processors that commit at the same moment do not see each other's, and may exceed that. The
 * sweep removes what has not occurred for a while.
 */

import { type Compilable, sql } from 'kysely';
import type { StoredPlanViolation } from '../../store.ts';
import type { PlanViolation } from '../../store-writer.ts';
import { withoutNul } from '../../views/storable-text.ts';
import { changedBy, chunksOf, rowsOf, type Steps, type Tables } from './steps.ts';
import type { StoreTables } from './store-tables.ts';

/** In place of an event name: the violation is in user properties or profile fields. */
const NO_EVENT = '';
const LISTED_MAX = 500;
const DISTINGUISHED_MAX = 1_000;
const OTHERS = { event_name: NO_EVENT, path: '…', message: 'other violations' } as const;

type ViolationRow = Omit<StoreTables['plan_violations'], 'shard'>;
type ViolationName = Omit<ViolationRow, 'count' | 'first_at' | 'last_at' | 'last_trace_id'>;

/** Those of a transaction, one row for each that is distinguished. */
export class ViolationSums {
  readonly #rows = new Map<string, ViolationRow>();

  add(tenant: number, { version, eventName, path, message, count, at, traceId }: PlanViolation): void {
    this.#add({
      tenant,
      version,
      event_name: withoutNul(eventName ?? NO_EVENT),
      path: withoutNul(path),
      message: withoutNul(message),
      count,
      first_at: at,
      last_at: at,
      last_trace_id: traceId,
    });
  }

  #add(row: ViolationRow): void {
    const key = keyOf(row);
    const known = this.#rows.get(key);
    if (known === undefined) {
      this.#rows.set(key, row);
      return;
    }
    known.count += row.count;
    known.first_at = Math.min(known.first_at, row.first_at);
    if (row.last_at < known.last_at) return;
    known.last_at = row.last_at;
    known.last_trace_id = row.last_trace_id;
  }

  /** Writes them, in one order for all writers, and starts over. */
  *write(tables: Tables, shard: number): Steps<void> {
    const byVersion = Map.groupBy(this.#rows.values(), ({ tenant, version }) => `${tenant} ${version}`);
    this.clear();
    for (const rows of byVersion.values()) {
      for (const row of yield* distinguished(tables, rows)) this.#add(row);
    }
    const sorted = [...this.#rows].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, row]) => row);
    this.clear();
    for (const rows of chunksOf(sorted)) yield* changedBy(addToViolations(tables, shard, rows));
  }

  clear(): void {
    this.#rows.clear();
  }
}

function keyOf({ tenant, version, event_name, path, message }: ViolationName): string {
  return JSON.stringify([tenant, version, event_name, path, message]);
}

/** The rows of one version; those beyond the limit are counted as others. */
function* distinguished(tables: Tables, rows: readonly ViolationRow[]): Steps<ViolationRow[]> {
  const [{ tenant, version }] = rows as [ViolationRow];
  const stored = yield* rowsOf(
    tables
      .selectFrom('plan_violations')
      .select(['tenant', 'version', 'event_name', 'path', 'message'])
      .distinct()
      .where('tenant', '=', tenant)
      .where('version', '=', version)
      .where('path', '<>', OTHERS.path),
  );
  const known = new Set(stored.map(keyOf));
  return rows.map((row) => {
    const key = keyOf(row);
    if (known.has(key)) return row;
    if (known.size >= DISTINGUISHED_MAX) return { ...row, ...OTHERS };
    known.add(key);
    return row;
  });
}

function addToViolations(tables: Tables, shard: number, rows: readonly ViolationRow[]): Compilable {
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
export function* listPlanViolations(
  tables: Tables,
  tenant: number,
  version: number | null,
): Steps<StoredPlanViolation[]> {
  const all = tables
    .selectFrom('plan_violations')
    .where('tenant', '=', tenant)
    .groupBy(['version', 'event_name', 'path', 'message'])
    .select((row) => [
      'version',
      sql<string | null>`nullif(event_name, ${sql.lit(NO_EVENT)})`.as('eventName'),
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
  return yield* rowsOf(version === null ? all : all.where('version', '=', version));
}

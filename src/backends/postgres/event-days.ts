/**
 * Which partitions of events a query for a time range has to read. Events are partitioned by day of receipt but queried
 * by event time; `event_days` maps the days of event times to days of receipt. An installation that never deletes
 * events has a thousand partitions; planning a statement over all of them takes a tenth of a second and needs more
 * locks than PostgreSQL allows by default. So a query reads time in windows of a few partitions each, newest first,
 * each window larger than the last.
 */

import { DAY_MS } from '../../model.ts';
import type { Queryable } from './pool.ts';
import { dayOf } from './store-days.ts';

const PARTITIONS_FIRST = 8;
const PARTITIONS_MAX = 128;
const GROWTH = 4;
const PAIRS_PER_READ = 5_000;

export interface EventTimes {
  /** Timestamps, both inclusive. */
  readonly from: number;
  readonly to: number;
  /** Days of receipt, both inclusive; null for any. */
  readonly days: { readonly first: number; readonly last: number } | null;
}

export interface EventWindow {
  /** The oldest timestamp, inclusive. */
  readonly from: number;
  /** The newest timestamp, exclusive. */
  readonly to: number;
  /**
   * A condition on `received_at` that prunes all but a few partitions. Contains only numbers, so it is safe to inline.
   */
  readonly received: string;
}

interface Pair {
  readonly timestampDay: number;
  readonly day: number;
}

/** Newest first, without gaps that contain events. Nothing for a time range without events. */
export async function* eventWindows(db: Queryable, { from, to, days }: EventTimes): AsyncGenerator<EventWindow> {
  let partitions = PARTITIONS_FIRST;
  for (let newest = boundedDay(to); ; ) {
    const pairs = await readPairs(db, boundedDay(from), newest, days);
    const byTimestamp = [...Map.groupBy(pairs, ({ timestampDay }) => timestampDay)];
    // The last timestamp day may be incomplete, unless it is the only one.
    if (pairs.length === PAIRS_PER_READ && byTimestamp.length > 1) byTimestamp.pop();
    const received = new Set<number>();
    let oldest: number | undefined;
    for (const [timestampDay, some] of byTimestamp) {
      const more = some.filter(({ day }) => !received.has(day)).length;
      if (oldest !== undefined && received.size + more > partitions) break;
      for (const { day } of some) received.add(day);
      oldest = timestampDay;
    }
    if (oldest === undefined) return;
    yield { from: oldest * DAY_MS, to: (newest + 1) * DAY_MS, received: receivedOn(received) };
    newest = oldest - 1;
    partitions = Math.min(partitions * GROWTH, PARTITIONS_MAX);
  }
}

async function readPairs(db: Queryable, oldest: number, newest: number, days: EventTimes['days']): Promise<Pair[]> {
  const { rows } = await db.query<Pair>(
    `SELECT timestamp_day AS "timestampDay", day FROM event_days
     WHERE timestamp_day >= $1 AND timestamp_day <= $2 AND ($3::integer IS NULL OR day BETWEEN $3 AND $4)
     ORDER BY timestamp_day DESC, day DESC LIMIT ${PAIRS_PER_READ}`,
    [oldest, newest, days?.first ?? null, days?.last ?? null],
  );
  return rows;
}

/** A condition on `received_at` for the days on which events with these timestamps were received. */
export async function receivedFor(db: Queryable, timestamps: Iterable<number>): Promise<string> {
  const { rows } = await db.query<{ day: number }>(
    'SELECT DISTINCT day FROM event_days WHERE timestamp_day = ANY($1)',
    [[...new Set([...timestamps].map(dayOf))]],
  );
  return receivedOn(rows.map(({ day }) => day));
}

/** Consecutive days become one range. */
function receivedOn(days: Iterable<number>): string {
  const ranges: { first: number; last: number }[] = [];
  for (const day of [...days].sort((a, b) => a - b)) {
    const last = ranges.at(-1);
    if (last !== undefined && last.last === day - 1) last.last = day;
    else ranges.push({ first: day, last: day });
  }
  if (ranges.length === 0) return '(false)';
  const conditions = ranges.map(
    ({ first, last }) => `received_at >= ${first * DAY_MS} AND received_at < ${(last + 1) * DAY_MS}`,
  );
  return `(${conditions.join(' OR ')})`;
}

/** No events exist beyond the server's integer range. */
function boundedDay(time: number): number {
  const INTEGER_MAX = 2 ** 31 - 2;
  return Math.max(-INTEGER_MAX, Math.min(INTEGER_MAX, dayOf(time)));
}

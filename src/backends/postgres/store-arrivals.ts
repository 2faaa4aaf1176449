/**
 * Events in order of arrival, each exactly once, although the transactions of several processors commit in any order. A
 * location is (transaction, event): each range of events carries a number that the transaction took which stored it, and
 * readers stay below the horizon, the oldest active writer: everything below it is committed or rolled back. Each range
 * has a random id, which cursors carry with the location: if the database was restored to an earlier state and has
 * diverged since, the range at that location has another id or does not exist, and the cursor is rejected, as is every
 * cursor after which events may be missing (`BadCursorError`).
 *
 * Numbers of transactions are from a sequence, which dumps contain, so that they increase in a restored database as well.
 * Events migrated from an embedded store keep the order of their event numbers: they count as stored by one transaction,
 * before the first in this database. So a cursor of the embedded store, which is an event number, maps to an exact
 * position here.
 */

import { DAY_MS } from '../../model.ts';
import type { ArrivalFilter, ArrivedEvent, Arrivals, NewestArrivals } from '../../store.ts';
import {
  arrivalCursorIn,
  arrivalCursorOf,
  expiredCursor,
  cursorFromFuture,
  storeIdIn,
  malformedCursor,
  cursorOfOtherHistory,
  cursorOfOtherStore,
  OLDEST,
} from '../../views/cursor.ts';
import { followsStart } from '../sql/starts.ts';
import { installationOf } from './identity.ts';
import { ADVISORY_LOCKS } from './make-tables.ts';
import { type Queryable, rowOf } from './pool.ts';
import { runSteps } from './sql-database.ts';
import {
  bytesBefore,
  cutToLength,
  EVENT_COLUMNS,
  type EventColumns,
  IS_WITHIN_BYTES,
  PROFILE_ID,
  storedEvent,
} from './store-timeline.ts';

/** The next number. Not last_value of the sequence itself, which may be read while it is ahead for a moment. */
const NEXT = `coalesce(pg_sequence_last_value('arrival_numbers'), 0) + 1`;
/** Of all migrated events; the sequence begins behind it. */
const MIGRATED = 0;

/** No writer is further behind the next number. */
const TRANSACTIONS_BEHIND_MAX = 2 ** 31;

/** Page size of a live view's scan. */
const EVENTS_PER_PAGE = 500;
const PAGES_PER_CALL = 10;

/** Advisory locks are pairs of numbers: the second number of these is the low half of a transaction number. */
const ARRIVAL_LOCKS = ADVISORY_LOCKS + 1;
const LOW_HALF = 2 ** 32 - 1;

/**
 * Writers announce themselves with an advisory lock: with PostgreSQL's own snapshot, a transaction left open in any
 * database of the server would delay the events shown here. Runs before a writer takes a number, which is then not below
 * the one in the lock. The lock is released after the commit is visible.
 */
export const ANNOUNCE_WRITER = `
  SELECT pg_advisory_xact_lock_shared(${ARRIVAL_LOCKS}, (${NEXT})::bit(32)::integer)`;

/**
 * Must run as a separate statement before the read, and reads the sequence before the locks: a writer that holds no lock
 * by then has either committed, or will get a number of at least `next`.
 */
const HORIZON_SQL = `
  WITH now AS MATERIALIZED (SELECT ${NEXT} AS next)
  SELECT next, least(next, min(next - behind)) AS horizon
  FROM now LEFT JOIN LATERAL (
    SELECT (next - objid::bigint) & ${LOW_HALF} AS behind FROM pg_locks
    WHERE locktype = 'advisory' AND classid = ${ARRIVAL_LOCKS} AND objsubid = 2
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  ) AS writer ON behind <= ${TRANSACTIONS_BEHIND_MAX}
  GROUP BY next`;

/** The first half of a range's id, as in a cursor. */
const RANGE_ID = `left(replace(id::text, '-', ''), 16) AS "rangeId"`;

/** The next ranges, enough for a page. $1 tenant, $2 and $3 the location, $4 how many events, $5 the horizon. */
export const RANGES_SQL = `
  SELECT tx, ${RANGE_ID}, first_event + events AS stop, received_at_min AS "receivedAtMin",
    received_at_max AS "receivedAtMax",
    CASE WHEN tx = $2 THEN greatest(first_event, $3::bigint + 1) ELSE first_event END AS start
  FROM arrivals
  WHERE tenant = $1 AND tx >= $2 AND tx < $5 AND NOT (tx = $2 AND first_event + events <= $3::bigint + 1)
    -- From the range of the location on: there may be many before it, of the same transaction.
    AND (tx, first_event) >= ($2, coalesce((
      SELECT first_event FROM arrivals WHERE tenant = $1 AND tx = $2 AND first_event <= $3
      ORDER BY first_event DESC LIMIT 1), 0))
  ORDER BY tx, first_event LIMIT $4::bigint`;

const EXPIRED_SQL = 'SELECT tx, event FROM expired_arrivals WHERE tenant = $1';

/** The range of an event, $1 tenant, $2 and $3 the location; also if it is the last expired one. */
export const RANGE_AT_SQL = `
  SELECT ${RANGE_ID} FROM (
    SELECT id, first_event + events AS stop FROM arrivals WHERE tenant = $1 AND tx = $2 AND first_event <= $3
    ORDER BY first_event DESC LIMIT 1
  ) AS last WHERE stop > $3
  UNION ALL SELECT ${RANGE_ID} FROM expired_arrivals WHERE tenant = $1 AND tx = $2 AND event = $3`;

/** The last event of a tenant ($1) below the horizon ($2), or the last expired one. */
export const LAST_SQL = `
  SELECT tx, no, "rangeId" FROM (
    (SELECT tx, first_event + events - 1 AS no, ${RANGE_ID} FROM arrivals WHERE tenant = $1 AND tx < $2
     ORDER BY tx DESC, first_event DESC LIMIT 1)
    UNION ALL SELECT tx, event, ${RANGE_ID} FROM expired_arrivals WHERE tenant = $1
  ) AS newest ORDER BY tx DESC, no DESC LIMIT 1`;

/** $1 tenant, $2 how many events, then ranges, in order; $5 and $6 are the oldest and newest time of receipt in them. */
export const ARRIVALS_SQL = `
  WITH page AS MATERIALIZED (
    SELECT arrival_range.ordinal, e.* FROM unnest($3::bigint[], $4::bigint[]) WITH ORDINALITY AS arrival_range (start, stop, ordinal)
    CROSS JOIN LATERAL (
      SELECT ${EVENT_COLUMNS} FROM events
      WHERE no >= arrival_range.start AND no < arrival_range.stop AND tenant = $1 AND received_at >= $5 AND received_at <= $6
      ORDER BY no LIMIT $2
    ) AS e
    ORDER BY arrival_range.ordinal, e.no LIMIT $2
  ), measured AS (
    SELECT *, count(*) OVER () AS found, ${bytesBefore('ordinal, no')} FROM page
  )
  SELECT e.*, ${PROFILE_ID} FROM measured AS e WHERE ${IS_WITHIN_BYTES} ORDER BY e.ordinal, e.no`;

interface ArrivalRange {
  readonly tx: number;
  readonly rangeId: string;
  /** The first number after it. */
  readonly stop: number;
  /** Its first number after the location. */
  readonly start: number;
  readonly receivedAtMin: number;
  readonly receivedAtMax: number;
}

interface ArrivalColumns extends EventColumns {
  /** Index of its range, from 1. */
  readonly ordinal: number;
  /** Events of the whole page, before it was cut. */
  readonly found: number;
}

interface Location {
  readonly tx: number;
  /** Number of the event. */
  readonly no: number;
  /** The range of the event; null for a location outside of any range. */
  readonly rangeId: string | null;
}

/** Before everything that is or ever was stored. */
const BEGINNING: Location = { tx: Number.MIN_SAFE_INTEGER, no: 0, rangeId: null };

export class StoreArrivals {
  readonly #db: Queryable;
  #storeId: string | undefined;
  #migrated: MigratedArrivals | undefined;

  constructor(db: Queryable) {
    this.#db = db;
  }

  /** `tenant` is undefined for one that never sent anything. */
  async list(tenant: number | undefined, after: string | null, limit: number): Promise<Arrivals> {
    this.#storeId ??= storeIdIn(await installationOf(this.#db));
    const { next, horizon } = rowOf(await this.#db.query<{ next: number; horizon: number }>(HORIZON_SQL));
    if (after === null) return this.#end(tenant, horizon);
    const start = await this.#locationOf(tenant, after, next);
    const page = tenant === undefined ? undefined : await this.#page(tenant, start, limit, horizon);
    if (after === OLDEST) return page ?? this.#end(tenant, horizon);
    // Checked last: events that expired since the ranges were read are missing from the page.
    await this.#refuseExpired(tenant, start);
    return page ?? { events: [], last: after };
  }

  /** The newest that match, of at most PAGES_PER_CALL pages. */
  async listNewest(
    tenant: number | undefined,
    after: string,
    filter: ArrivalFilter & { readonly person: () => Promise<ReadonlySet<string>> },
    limit: number,
  ): Promise<NewestArrivals> {
    const newest: ArrivedEvent[] = [];
    let skippedEvents = 0;
    let skipped: NewestArrivals['skipped'] = null;
    let last = after;
    for (let pages = 0; pages < PAGES_PER_CALL; pages += 1) {
      const page = await this.list(tenant, last, EVENTS_PER_PAGE);
      // After the events were read, so that no merge between the two hides one.
      const person = filter.profileId === null || page.events.length === 0 ? null : await filter.person();
      newest.push(...page.events.filter((event) => isShown(event, filter, person)));
      const left = newest.splice(0, Math.max(0, newest.length - limit));
      const lastLeft = left.at(-1);
      skippedEvents += left.length;
      if (lastLeft !== undefined) skipped = { events: skippedEvents, cursor: lastLeft.cursor };
      last = page.last;
      if (page.events.length < EVENTS_PER_PAGE) break;
    }
    return { events: newest, last, skipped };
  }

  /** Undefined if no events arrived after the location. */
  async #page(tenant: number, { tx, no }: Location, limit: number, horizon: number): Promise<Arrivals | undefined> {
    const { rows: ranges } = await this.#db.query<ArrivalRange>(RANGES_SQL, [tenant, tx, no, limit, horizon]);
    const taken = ranges.slice(0, enoughFor(limit, ranges));
    const lastRange = taken.at(-1);
    if (lastRange === undefined) return undefined;
    const { rows } = await this.#db.query<ArrivalColumns>(ARRIVALS_SQL, [
      tenant,
      limit,
      taken.map(({ start }) => start),
      taken.map(({ stop }) => stop),
      Math.min(...taken.map(({ receivedAtMin }) => receivedAtMin)),
      Math.max(...taken.map(({ receivedAtMax }) => receivedAtMax)),
    ]);
    const events = cutToLength(rows).map((row) => this.#arrived(row, taken[row.ordinal - 1] as ArrivalRange));
    const lastEvent = events.at(-1);
    const isFull = events.length >= limit || events.length < (rows[0]?.found ?? 0);
    if (isFull && lastEvent !== undefined) return { events, last: lastEvent.cursor };
    // Some of a range may be erased: then an incomplete page ends with the last range that was read.
    const { tx: lastTx, stop, rangeId } = lastRange;
    return { events, last: this.#cursorOf({ tx: lastTx, no: stop - 1, rangeId }) };
  }

  /** An empty page, up to where new events will arrive. */
  async #end(tenant: number | undefined, horizon: number): Promise<Arrivals> {
    const { rows } = tenant === undefined ? { rows: [] } : await this.#db.query<Location>(LAST_SQL, [tenant, horizon]);
    return { events: [], last: this.#cursorOf(rows[0] ?? BEGINNING) };
  }

  async #refuseExpired(tenant: number | undefined, { tx, no }: Location): Promise<void> {
    if (tenant === undefined) return;
    const { rows } = await this.#db.query<{ tx: number; event: number }>(EXPIRED_SQL, [tenant]);
    const [gone] = rows;
    if (gone !== undefined && (tx < gone.tx || (tx === gone.tx && no < gone.event))) throw expiredCursor();
  }

  /** Throws `BadCursorError` for a cursor of neither this store nor the one migrated into it. */
  async #locationOf(tenant: number | undefined, after: string, next: number): Promise<Location> {
    if (after === OLDEST) return BEGINNING;
    const { storeId, historyId, numbers } = arrivalCursorIn(after);
    const [first, second, ...more] = numbers;
    if (storeId === this.#storeId) {
      if (first === undefined || second === undefined || more.length > 0) throw malformedCursor();
      const location = { tx: first, no: second, rangeId: historyId };
      if (historyId !== null) await this.#refuseUnknownRange(tenant, location, next);
      else if (first !== BEGINNING.tx || second !== BEGINNING.no) throw malformedCursor();
      return location;
    }
    this.#migrated ??= await readMigratedArrivals(this.#db);
    if (this.#migrated === undefined || storeId !== storeIdIn(this.#migrated.storeId)) throw cursorOfOtherStore();
    if (first === undefined || first < 0 || second !== undefined) throw malformedCursor();
    if (historyId === null || !(await runSteps(this.#db, (tables) => followsStart(tables, historyId, first)))) {
      throw cursorOfOtherHistory();
    }
    if (first >= this.#migrated.nextNumber) throw cursorFromFuture();
    return { tx: MIGRATED, no: first, rangeId: null };
  }

  async #refuseUnknownRange(tenant: number | undefined, location: Location, next: number): Promise<void> {
    const { tx, no, rangeId } = location;
    if (tx > next) throw cursorFromFuture();
    if (tenant === undefined) throw cursorOfOtherHistory();
    const { rows } = await this.#db.query<{ rangeId: string }>(RANGE_AT_SQL, [tenant, tx, no]);
    if (rows.some((range) => range.rangeId === rangeId)) return;
    await this.#refuseExpired(tenant, location);
    throw cursorOfOtherHistory();
  }

  #arrived(row: ArrivalColumns, { tx, rangeId }: ArrivalRange): ArrivedEvent {
    return { ...storedEvent(row), cursor: this.#cursorOf({ tx, no: row.no, rangeId }) };
  }

  #cursorOf({ tx, no, rangeId }: Location): string {
    return arrivalCursorOf({ storeId: this.#storeId ?? '', historyId: rangeId }, tx, no);
  }
}

function isShown(event: ArrivedEvent, filter: ArrivalFilter, person: ReadonlySet<string> | null): boolean {
  if (filter.eventName !== null && filter.eventName !== event.eventName) return false;
  if (filter.keyId !== null && filter.keyId !== event.keyId) return false;
  return person === null || (event.profileId !== null && person.has(event.profileId));
}

/** How many of the ranges fill a page if none of their events is erased. */
function enoughFor(limit: number, ranges: readonly ArrivalRange[]): number {
  let events = 0;
  const last = ranges.findIndex(({ start, stop }) => (events += stop - start) >= limit);
  return last === -1 ? ranges.length : last + 1;
}

interface MigratedArrivals {
  /** The id of the embedded store; `storeIdIn` derives the form used in cursors. */
  readonly storeId: string;
  /** Every number that the embedded store assigned is below this. */
  readonly nextNumber: number;
}

/** Undefined if nothing was migrated. */
async function readMigratedArrivals(db: Queryable): Promise<MigratedArrivals | undefined> {
  const { rows } = await db.query<MigratedArrivals>(
    'SELECT store_id AS "storeId", next_number AS "nextNumber" FROM data_migrations WHERE next_number IS NOT NULL',
  );
  return rows[0];
}

/** Call it in a transaction, after all records are copied. Idempotent. The ranges are derived from the records alone. */
export async function deriveMigratedArrivals(client: Queryable, nextNumber: number): Promise<void> {
  await client.query('UPDATE data_migrations SET next_number = $1', [nextNumber]);
  await client.query('DELETE FROM arrivals');
  // Consecutive events of a tenant and day have the same difference between their number and the count of those before.
  await client.query(
    `INSERT INTO arrivals (tx, tenant, first_event, events, received_at_min, received_at_max)
     SELECT ${MIGRATED}, tenant, min(first_event), sum(events), min(received_at), max(received_at) FROM (
       SELECT *, first_event + events - sum(events) OVER (PARTITION BY tenant, day ORDER BY first_event) AS run FROM (
         SELECT tenant, received_at, floor(received_at / ${DAY_MS}::numeric) AS day, first_event, events
         FROM records WHERE events > 0
       ) AS stored
     ) AS numbered GROUP BY tenant, day, run`,
  );
}

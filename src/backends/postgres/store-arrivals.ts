/**
 * Events in the order of arrival, each once, although transactions of several processors commit in any order. A place
 * is (transaction, event): runs of events carry the number of the transaction that stored them, and a reader looks only
 * below the horizon, the oldest writer that is still under way. What is below it is there for good or will never be, so
 * nothing comes in behind a place that was given.
 *
 * Writers say that they are under way by an advisory lock (`ANNOUNCE_WRITER`). The server's own list of transactions
 * would do, were it not for others: one that somebody leaves open, in any database, would hold up what is shown here.
 * Runs are kept for as long as their events. A cursor is refused where events may be missing after it: `BadCursorError`.
 * Limits: `sequence` is a number: it is right for 2^31 transactions before the store was opened,
 * for 6 * 10^9 after it (two years of a hundred a second), and for 2^20 events of a tenant in a transaction.
 */

import type { ArrivedEvent, Arrivals } from '../../store.ts';
import {
  arrivalCursorIn,
  arrivalCursorOf,
  expired,
  fromTheFuture,
  storeIdIn,
  malformed,
  ofAnotherHistory,
  ofAnotherStore,
  OLDEST,
} from '../../stored/cursor.ts';
import { NEXT_TRANSACTION, SHIFT } from './arrival-numbers.ts';
import { ADVISORY_LOCKS } from './migrations.ts';
import { type MovedArrivals, movedStoreFollows, movedTransactionOf, readMovedArrivals } from './moved-arrivals.ts';
import type { Queryable } from './pool.ts';
import {
  bytesBefore,
  cutToLength,
  EVENT_COLUMNS,
  type EventColumns,
  IS_WITHIN_BYTES,
  PROFILE_ID,
  storedEvent,
} from './store-timeline.ts';

const EVENTS_PER_TRANSACTION = 2 ** 20;
const TRANSACTIONS_BEFORE = 2 ** 31;

/** Advisory locks are pairs of numbers: the second of these is the low half of a number of a transaction. */
const ARRIVAL_LOCKS = ADVISORY_LOCKS + 1;
const LOW_HALF = 2 ** 32 - 1;

/**
 * What every writer does before it changes anything: only then does its transaction get a number, which is not below
 * the one that the lock tells. The lock goes after the commit can be seen.
 */
export const ANNOUNCE_WRITER = `
  SELECT pg_advisory_xact_lock_shared(${ARRIVAL_LOCKS}, ${NEXT_TRANSACTION}::bit(32)::integer)`;

/**
 * A statement of its own, before the one that reads: a writer whose lock is not there has committed by now, or gets a
 * number from `next` on.
 */
const HORIZON_SQL = `
  SELECT next + ${SHIFT} AS next, least(next, min(next - behind)) + ${SHIFT} AS horizon
  FROM (SELECT ${NEXT_TRANSACTION} AS next) AS now LEFT JOIN LATERAL (
    SELECT (next - objid::bigint) & ${LOW_HALF} AS behind FROM pg_locks
    WHERE locktype = 'advisory' AND classid = ${ARRIVAL_LOCKS} AND objsubid = 2
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  ) AS writer ON behind <= ${TRANSACTIONS_BEFORE}
  GROUP BY next`;

/**
 * The next runs, one more than are needed. $1 tenant, $2 and $3 the place, $4 how many events, $5 the horizon. `seen` is
 * how many events of its transaction come before a run.
 */
export const RUNS_SQL = `
  SELECT tx, first_event AS "firstEvent", first_event + events AS stop, received_at_min AS "receivedAtMin",
    received_at_max AS "receivedAtMax",
    CASE WHEN tx = $2 THEN greatest(first_event, $3::bigint + 1) ELSE first_event END AS start,
    (SELECT coalesce(sum(other.events), 0) FROM arrivals AS other
     WHERE other.tenant = $1 AND other.tx = arrivals.tx AND other.first_event < arrivals.first_event)::bigint AS seen
  FROM arrivals
  WHERE tenant = $1 AND tx >= $2 AND tx < $5 AND NOT (tx = $2 AND first_event + events <= $3::bigint + 1)
  ORDER BY tx, first_event LIMIT $4::bigint + 1`;

const EXPIRED_SQL = 'SELECT tx, event FROM expired_arrivals WHERE tenant = $1';

/** $1 tenant, $2 how many events, then runs, in order; $5 and $6 are the oldest and newest receipt in them. */
export const ARRIVALS_SQL = `
  WITH page AS MATERIALIZED (
    SELECT run.place, e.* FROM unnest($3::bigint[], $4::bigint[]) WITH ORDINALITY AS run (start, stop, place)
    CROSS JOIN LATERAL (
      SELECT ${EVENT_COLUMNS} FROM events
      WHERE no >= run.start AND no < run.stop AND tenant = $1 AND received_at >= $5 AND received_at <= $6
      ORDER BY no LIMIT $2
    ) AS e
    ORDER BY run.place, e.no LIMIT $2
  ), measured AS (
    SELECT *, count(*) OVER () AS found, ${bytesBefore('place, no')} FROM page
  )
  SELECT e.*, ${PROFILE_ID} FROM measured AS e WHERE ${IS_WITHIN_BYTES} ORDER BY e.place, e.no`;

interface Run {
  readonly tx: number;
  readonly firstEvent: number;
  /** The first number that is not of it. */
  readonly stop: number;
  /** Its first number behind the place. */
  readonly start: number;
  readonly seen: number;
  readonly receivedAtMin: number;
  readonly receivedAtMax: number;
}

interface ArrivalColumns extends EventColumns {
  /** Which of the runs it is of, from 1. */
  readonly place: number;
  /** Events of the whole page, before it was cut. */
  readonly found: number;
}

interface Place {
  readonly tx: number;
  /** Of an event; 0 is before all of the transaction. */
  readonly no: number;
  /** Which of the transaction's events of the tenant it is, from 1. */
  readonly inTransaction: number;
}

/** Before all that is stored. */
const BEGINNING = { tx: Number.MIN_SAFE_INTEGER, no: 0, inTransaction: 0 };

export class StoreArrivals {
  readonly #db: Queryable;
  #storeId: string | undefined;
  #moved: MovedArrivals | undefined;
  /** Sequences count from here. Taken once, so that they can be compared for as long as the store is open. */
  #base: number | undefined;
  #horizon = 0;

  constructor(db: Queryable) {
    this.#db = db;
  }

  /** `tenant` is undefined for one that never sent anything. */
  async list(tenant: number | undefined, after: string | null, limit: number): Promise<Arrivals> {
    this.#storeId ??= await this.#readStoreId();
    const start = after === null ? null : await this.#placeOf(after);
    const { next, horizon } = await this.#lookOut();
    const end = { tx: horizon, no: 0, inTransaction: 0 };
    if (start === null) return this.#upTo(end, []);
    const { tx, no } = start;
    if (tx > next) throw fromTheFuture();
    // Another node may have looked later, and seen further.
    if (tenant === undefined || tx >= horizon) return this.#upTo(tx >= horizon ? start : end, []);
    const page = await this.#page(tenant, start, limit, horizon);
    // Looked at last: of what has expired since the runs were read, some events are missing from the page.
    if (after !== OLDEST) {
      const { rows } = await this.#db.query<{ tx: number; event: number }>(EXPIRED_SQL, [tenant]);
      const [gone] = rows;
      if (gone !== undefined && (tx < gone.tx || (tx === gone.tx && no < gone.event))) throw expired();
    }
    return page;
  }

  async #page(tenant: number, { tx, no }: Place, limit: number, horizon: number): Promise<Arrivals> {
    const end = { tx: horizon, no: 0, inTransaction: 0 };
    const { rows: runs } = await this.#db.query<Run>(RUNS_SQL, [tenant, tx, no, limit, horizon]);
    const taken = runs.slice(0, enoughFor(limit, runs));
    const lastRun = taken.at(-1);
    if (lastRun === undefined) return this.#upTo(end, []);
    const { rows } = await this.#db.query<ArrivalColumns>(ARRIVALS_SQL, [
      tenant,
      limit,
      taken.map(({ start }) => start),
      taken.map(({ stop }) => stop),
      Math.min(...taken.map(({ receivedAtMin }) => receivedAtMin)),
      Math.max(...taken.map(({ receivedAtMax }) => receivedAtMax)),
    ]);
    const given = cutToLength(rows);
    const places = given.map((row) => placeIn(taken[row.place - 1] as Run, row.no));
    const events = given.map((row, index) => this.#arrived(row, places[index] as Place));
    const isFull = given.length >= limit || given.length < (rows[0]?.found ?? 0);
    const lastPlace = isFull ? places.at(-1) : undefined;
    // Some of a run may be erased: then a page that is not full ends with the last run that was looked at.
    return this.#upTo(lastPlace ?? (taken.length < runs.length ? placeIn(lastRun, lastRun.stop - 1) : end), events);
  }

  async #readStoreId(): Promise<string> {
    const { rows } = await this.#db.query<{ id: string }>('SELECT id::text FROM identity');
    const [row] = rows;
    if (row === undefined) throw new Error('the table identity has no row');
    return storeIdIn(row.id);
  }

  /** Throws `BadCursorError` for one that is not of this store, nor of the one that was moved here. */
  async #placeOf(after: string): Promise<Place> {
    if (after === OLDEST) return BEGINNING;
    const { storeId, startId, numbers } = arrivalCursorIn(after);
    const [first, second, ...more] = numbers;
    if (storeId === this.#storeId) {
      if (startId !== null || first === undefined || second === undefined || more.length > 0) throw malformed();
      return { tx: first, no: second, inTransaction: 0 };
    }
    this.#moved ??= await readMovedArrivals(this.#db);
    if (this.#moved === undefined || storeId !== storeIdIn(this.#moved.storeId)) throw ofAnotherStore();
    if (first === undefined || first < 0 || second !== undefined) throw malformed();
    if (startId === null || !(await movedStoreFollows(this.#db, startId, first))) throw ofAnotherHistory();
    if (first >= this.#moved.nextNumber) throw fromTheFuture();
    return { tx: movedTransactionOf(this.#moved, first), no: first, inTransaction: 0 };
  }

  /** A horizon that was right once is right for good. */
  async #lookOut(): Promise<{ readonly next: number; readonly horizon: number }> {
    const { rows } = await this.#db.query<{ next: number; horizon: number }>(HORIZON_SQL);
    const [row] = rows;
    if (row === undefined) throw new Error('the number of the next transaction was not given');
    this.#horizon = Math.max(this.#horizon, row.horizon);
    this.#base ??= row.horizon - TRANSACTIONS_BEFORE;
    return { next: row.next, horizon: this.#horizon };
  }

  #arrived(row: ArrivalColumns, place: Place): ArrivedEvent {
    return { ...storedEvent(row), place: this.#cursorOf(place), sequence: this.#sequence(place) };
  }

  #upTo(place: Place, events: readonly ArrivedEvent[]): Arrivals {
    return { events, last: this.#cursorOf(place), lastSequence: this.#sequence(place) };
  }

  #cursorOf({ tx, no }: Place): string {
    return arrivalCursorOf({ storeId: this.#storeId ?? '', startId: null }, tx, no);
  }

  #sequence({ tx, inTransaction }: Place): number {
    return (tx - (this.#base ?? 0)) * EVENTS_PER_TRANSACTION + Math.min(inTransaction, EVENTS_PER_TRANSACTION - 1);
  }
}

/** How many of the runs hold a page, had nothing of them been erased. */
function enoughFor(limit: number, runs: readonly Run[]): number {
  let events = 0;
  const last = runs.findIndex(({ start, stop }) => (events += stop - start) >= limit);
  return last === -1 ? runs.length : last + 1;
}

function placeIn({ tx, firstEvent, seen }: Run, no: number): Place {
  return { tx, no, inTransaction: seen + no - firstEvent + 1 };
}

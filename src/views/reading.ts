/**
 * The store as the API and the commands see it: completed by what is still in the log. From the 202 on, a request has a
 * trace (pending, then processed), and every event is accounted for: the store returns its contents and its position in
 * the log in one snapshot, and what the log has from that position on is pending. Cursors get the name of their tenant
 * on the way out and lose it on the way in.
 *
 * Limits: if several logs feed a store, only the log given here counts as pending.
 */

import { LogCorruptError, type LogReader } from '../log.ts';
import { lostAhead, missingRecords, type ProcessedLog } from '../log/continuity.ts';
import { HOUR_MS, MINUTE_MS, type TenantId } from '../model.ts';
import { PendingCounts, type PendingMinute } from './pending-counts.ts';
import { listTraces, readTrace } from './reading-traces.ts';
import { OLDEST, pageWithoutTenant, withoutTenant, withTenant } from './cursor.ts';
import {
  type Arrivals,
  type LedgerHour,
  type LedgerReader,
  type LedgerSums,
  NO_HOURS,
  type Page,
  type PageRequest,
  type ReceiptMinute,
  type Receipts,
  type Store,
  type StoredLedger,
  type TimeRange,
} from '../store.ts';

/** Of each partition, when pending requests are counted for a prediction, which should take no time. */
const PENDING_RECORDS_MAX = 1_000;
/** If records vanish this often while they are counted, the cause is not the processor. */
const TRIES_MAX = 20;

export function createReading(store: Store, log: LogReader): Store {
  const pendingCounts = new PendingCounts(log);
  return {
    ...store,
    profiles: async (tenantId, query) => pageFor(tenantId, await store.profiles(tenantId, ownQuery(tenantId, query))),
    searchPeople: async (tenantId, query) =>
      pageFor(tenantId, await store.searchPeople(tenantId, ownQuery(tenantId, query))),
    events: async (tenantId, query) => {
      const page = await store.events(tenantId, ownQuery(tenantId, query));
      return page && pageFor(tenantId, page);
    },
    arrivals: async (tenantId, after, limit) => {
      const own = after === null ? null : ownPlace(tenantId, after);
      return arrivalsFor(tenantId, await store.arrivals(tenantId, own, limit));
    },
    newestArrivals: async (tenantId, after, filter, limit) => {
      const page = await store.newestArrivals(tenantId, ownPlace(tenantId, after), filter, limit);
      const { skipped } = page;
      return {
        ...arrivalsFor(tenantId, page),
        skipped: skipped && { ...skipped, cursor: withTenant(skipped.cursor, tenantId) },
      };
    },
    audit: async (tenantId, query) => pageFor(tenantId, await store.audit(tenantId, ownQuery(tenantId, query))),
    trace: (tenantId, traceId) => readTrace(store, log, tenantId, traceId),
    traces: async (tenantId, query) =>
      pageFor(tenantId, await listTraces(store, log, pendingCounts, tenantId, ownQuery(tenantId, query))),
    rejections: async (tenantId, query) =>
      pageFor(tenantId, await store.rejections(tenantId, ownQuery(tenantId, query))),
    listDeadLetters: async (tenantId, query) =>
      pageFor(tenantId, await store.listDeadLetters(tenantId, ownQuery(tenantId, query))),
    jobs: async (tenantId, query) => pageFor(tenantId, await store.jobs(tenantId, ownQuery(tenantId, query))),
    receipts: (tenantId, range) =>
      complete(
        store,
        pendingCounts,
        () => store.receipts(tenantId, range),
        () => new PendingReceipts(tenantId, range),
      ),
    ledger: async (tenantId, hours) => {
      // When the log is unreadable, operators need a response most: it has what is stored, and `missingRecords` shows
      // that this is not everything.
      const unreadable = async (error: unknown): Promise<StoredLedger> => {
        if (!(error instanceof LogCorruptError)) throw error;
        return { ...(await store.ledger(tenantId, hours)), missingRecords: 1 };
      };
      return readLedger().catch(unreadable);

      async function readLedger(): Promise<StoredLedger> {
        const ask = () => store.ledger(tenantId, hours);
        // Without an hour there is nothing to count: for callers that only need the positions and the missing records.
        const isEmpty = hours.from !== null && hours.to !== null && hours.from >= hours.to;
        const ledger = isEmpty
          ? await ask()
          : await complete(store, pendingCounts, ask, () => new PendingLedger(tenantId, hours));
        const lost = [...ledger.lost, ...(await lostAhead(log, ledger.positions))];
        return { ...ledger, lost, missingRecords: await stillMissing(store, log, ledger) };
      }
    },
    predict: async (tenantId, records, appliedAt) => {
      // Counted first: what is processed meanwhile is then counted and considered, never neither.
      const pendingRequests = await countPendingRequests(store, log, tenantId);
      return { ...(await store.predict(tenantId, records, appliedAt)), pendingRequests };
    },
    close: async () => {
      await store.close();
      await log.close();
    },
  };
}

/** With the cursor as the store gave it. Throws `BadCursorError` for one of another tenant. */
function ownQuery<Query extends PageRequest>(tenantId: TenantId, query: Query): Query {
  const { cursor } = query;
  return cursor === null ? query : { ...query, cursor: pageWithoutTenant(cursor, tenantId) };
}

/** A cursor of arrivals as the store gave it. Throws `BadCursorError` for one of another tenant. */
function ownPlace(tenantId: TenantId, after: string): string {
  return after === OLDEST ? after : withoutTenant(after, tenantId);
}

/** With cursors that only this tenant can use. */
function arrivalsFor(tenantId: TenantId, { events, last, lastSequence }: Arrivals): Arrivals {
  return {
    events: events.map((event) => Object.assign(event, { cursor: withTenant(event.cursor, tenantId) })),
    last: withTenant(last, tenantId),
    lastSequence,
  };
}

/** With a cursor that only this tenant can use. */
function pageFor<Given extends Page<unknown>>(tenantId: TenantId, page: Given): Given {
  const { nextCursor } = page;
  return nextCursor === null ? page : { ...page, nextCursor: withTenant(nextCursor, tenantId) };
}

/** What the store says, with up to where the log is in it. */
interface AtPositions {
  readonly positions: ReadonlyMap<number, number>;
}

/** Counts what the log has from there on, and adds it. */
interface Pending<Result extends AtPositions> {
  count(minute: PendingMinute): void;
  addTo(stored: Result): Result;
}

async function complete<Result extends AtPositions>(
  store: LedgerReader,
  pendingCounts: PendingCounts,
  ask: () => Promise<Result>,
  newPending: () => Pending<Result>,
): Promise<Result> {
  for (let tries = 1; ; tries += 1) {
    const stored = await ask();
    const pending = newPending();
    const { minutes, gaps } = await pendingCounts.countFrom(stored.positions);
    for (const minute of minutes) pending.count(minute);
    // Records that were processed in the meantime may have left the log before they were counted. Then the position has
    // moved; if it has not, the gap is real.
    const now = gaps.length === 0 ? stored : await store.ledger(null, NO_HOURS);
    const hasMoved = gaps.some((partition) => now.positions.get(partition) !== stored.positions.get(partition));
    if (!hasMoved || tries >= TRIES_MAX) return pending.addTo(stored);
  }
}

/** Retention may remove records that were processed since the store was asked; that is no loss. */
async function stillMissing(store: LedgerReader, log: LogReader, ledger: ProcessedLog): Promise<number> {
  for (let tries = 1, processed = ledger; ; tries += 1) {
    const missing = await missingRecords(log, processed);
    if (missing === 0 || tries >= TRIES_MAX) return missing;
    const now = await store.ledger(null, NO_HOURS);
    const hasMoved = [...now.positions].some(([partition, at]) => processed.positions.get(partition) !== at);
    if (!hasMoved) return missing;
    processed = now;
  }
}

/** Requests of a tenant among the next `PENDING_RECORDS_MAX` records of each partition. */
async function countPendingRequests(store: LedgerReader, log: LogReader, tenantId: TenantId): Promise<number> {
  const { positions } = await store.ledger(tenantId, NO_HOURS);
  const traceIds = new Set<string>();
  for (const partition of await log.partitions()) {
    const { headers } = await log.headers(partition, positions.get(partition) ?? 0, PENDING_RECORDS_MAX);
    for (const header of headers) if (header.tenantId === tenantId) traceIds.add(header.traceId);
  }
  return traceIds.size;
}

interface Sums {
  users: number;
  events: number;
  rejectedUsers: number;
}

/** What is in the log and not yet in the store, by hour of receipt. */
class PendingLedger implements Pending<StoredLedger> {
  readonly #tenantId: TenantId | null;
  readonly #from: number;
  readonly #to: number;
  readonly #hours = new Map<number, Sums>();

  constructor(tenantId: TenantId | null, { from, to }: TimeRange) {
    this.#tenantId = tenantId;
    this.#from = from === null ? Number.NEGATIVE_INFINITY : Math.floor(from / HOUR_MS) * HOUR_MS;
    this.#to = to ?? Number.POSITIVE_INFINITY;
  }

  count({ tenantId, start, users, events, rejectedUsers }: PendingMinute): void {
    if (this.#tenantId !== null && this.#tenantId !== tenantId) return;
    const hour = Math.floor(start / HOUR_MS) * HOUR_MS;
    if (hour < this.#from || hour >= this.#to) return;
    const sums = this.#hours.get(hour) ?? { users: 0, events: 0, rejectedUsers: 0 };
    this.#hours.set(hour, sums);
    sums.users += users;
    sums.events += events;
    sums.rejectedUsers += rejectedUsers;
  }

  addTo(ledger: StoredLedger): StoredLedger {
    const byHour = new Map(ledger.hours.map((row) => [row.hour, row]));
    for (const [hour, sums] of this.#hours) {
      const row = byHour.get(hour) ?? emptyHour(hour);
      byHour.set(hour, {
        hour,
        users: withPending(row.users, sums.users),
        events: withPending(row.events, sums.events),
        rejectedUsers: row.rejectedUsers + sums.rejectedUsers,
        resubmittedUsers: row.resubmittedUsers,
        // The log may hold retries too, and only the processor can tell: they are counted once processed.
        droppedByClients: row.droppedByClients,
      });
    }
    return { ...ledger, hours: [...byHour.values()].sort((a, b) => b.hour - a.hour) };
  }
}

/** What is in the log and not yet in the store, by minute of receipt. */
class PendingReceipts implements Pending<Receipts> {
  readonly #tenantId: TenantId;
  readonly #from: number;
  readonly #to: number;
  readonly #minutes = new Map<number, ReceiptMinute>();

  constructor(tenantId: TenantId, { from, to }: TimeRange) {
    this.#tenantId = tenantId;
    this.#from = from === null ? Number.NEGATIVE_INFINITY : Math.floor(from / MINUTE_MS) * MINUTE_MS;
    this.#to = to ?? Number.POSITIVE_INFINITY;
  }

  count({ tenantId, start, users, events, rejectedUsers }: PendingMinute): void {
    if (this.#tenantId !== tenantId) return;
    if (start < this.#from || start >= this.#to) return;
    addMinute(this.#minutes, {
      start,
      usersAccepted: users,
      usersRejected: rejectedUsers,
      eventsAccepted: events,
    });
  }

  addTo({ minutes, positions }: Receipts): Receipts {
    const all = new Map(this.#minutes);
    for (const minute of minutes) addMinute(all, minute);
    return { minutes: [...all.values()].sort((a, b) => a.start - b.start), positions };
  }
}

function addMinute(minutes: Map<number, ReceiptMinute>, more: ReceiptMinute): void {
  const { start } = more;
  const before = minutes.get(start) ?? { usersAccepted: 0, usersRejected: 0, eventsAccepted: 0 };
  minutes.set(start, {
    start,
    usersAccepted: before.usersAccepted + more.usersAccepted,
    usersRejected: before.usersRejected + more.usersRejected,
    eventsAccepted: before.eventsAccepted + more.eventsAccepted,
  });
}

function withPending(sums: LedgerSums, pending: number): LedgerSums {
  return { ...sums, received: sums.received + pending, pending: sums.pending + pending };
}

const EMPTY: LedgerSums = { received: 0, stored: 0, duplicates: 0, erased: 0, expired: 0, deadLetters: 0, pending: 0 };

function emptyHour(hour: number): LedgerHour {
  return { hour, users: EMPTY, events: EMPTY, rejectedUsers: 0, resubmittedUsers: 0, droppedByClients: 0 };
}

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
import { TraceReading } from './reading-traces.ts';
import { startOf } from './sums.ts';
import { OLDEST, pageWithoutTenant, withoutTenant, withTenant } from './cursor.ts';
import {
  type Arrivals,
  type LedgerHour,
  type LedgerReader,
  type LedgerSums,
  NO_HOURS,
  type Page,
  type PageRequest,
  type Receipts,
  type Store,
  type StoredLedger,
  type TimeRange,
} from '../store.ts';

/** Records read per partition to count pending requests for a prediction, which should take no time. */
const PENDING_RECORDS_MAX = 1_000;
/** If records vanish this often while they are counted, the cause is not the processor. */
const TRIES_MAX = 20;

export function withPendingRecords(store: Store, log: LogReader): Store {
  const pendingCounts = new PendingCounts(log);
  const traces = new TraceReading(store, log, pendingCounts);
  return {
    ...store,
    profiles: withOwnCursors((tenantId, query) => store.profiles(tenantId, query)),
    searchPeople: withOwnCursors((tenantId, query) => store.searchPeople(tenantId, query)),
    events: withOwnCursors((tenantId, query) => store.events(tenantId, query)),
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
    audit: withOwnCursors((tenantId, query) => store.audit(tenantId, query)),
    trace: (tenantId, traceId) => traces.trace(tenantId, traceId),
    traces: withOwnCursors((tenantId, query) => traces.traces(tenantId, query)),
    rejections: withOwnCursors((tenantId, query) => store.rejections(tenantId, query)),
    listDeadLetters: withOwnCursors((tenantId, query) => store.listDeadLetters(tenantId, query)),
    jobs: withOwnCursors((tenantId, query) => store.jobs(tenantId, query)),
    receipts: (tenantId, range) => {
      const isAsked = isWithin(tenantId, range, MINUTE_MS);
      return readWithPending(
        store,
        pendingCounts,
        () => store.receipts(tenantId, range),
        (receipts, pending) => withPendingMinutes(receipts, pending.filter(isAsked)),
      );
    },
    ledger: async (tenantId, hours) => {
      const ask = () => store.ledger(tenantId, hours);
      const isAsked = isWithin(tenantId, hours, HOUR_MS);
      // Without an hour there is nothing to count: for callers that only need the positions and the missing records.
      const isEmpty = hours.from !== null && hours.to !== null && hours.from >= hours.to;
      try {
        const ledger = isEmpty
          ? await ask()
          : await readWithPending(store, pendingCounts, ask, (stored, pending) =>
              withPendingHours(stored, pending.filter(isAsked)),
            );
        const lost = [...ledger.lost, ...(await lostAhead(log, ledger.positions))];
        return { ...ledger, lost, missingRecords: await stillMissing(store, log, ledger) };
      } catch (error) {
        if (!(error instanceof LogCorruptError)) throw error;
        // Now operators need a response most: what is stored, and that this is not everything (`missingRecords`).
        return { ...(await ask()), missingRecords: 1 };
      }
    },
    predict: async (tenantId, records, appliedAt) => {
      // Counted first: a request that is processed meanwhile may be counted twice, but is never missed.
      const pendingRequests = await countPendingRequests(store, log, tenantId);
      return { ...(await store.predict(tenantId, records, appliedAt)), pendingRequests };
    },
    close: async () => {
      await store.close();
      await log.close();
    },
  };
}

/** A list whose cursors only the tenant that they were given to can use: others get a `BadCursorError`. */
function withOwnCursors<Query extends PageRequest, Given extends Page<unknown> | undefined>(
  list: (tenantId: TenantId, query: Query) => Promise<Given>,
): (tenantId: TenantId, query: Query) => Promise<Given> {
  return async (tenantId, query) => {
    const cursor = query.cursor === null ? null : pageWithoutTenant(query.cursor, tenantId);
    const page = await list(tenantId, { ...query, cursor });
    return page?.nextCursor ? { ...page, nextCursor: withTenant(page.nextCursor, tenantId) } : page;
  };
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

/** A result of the store, and the records that the log has after the positions of the store. */
async function readWithPending<Result extends Pick<Receipts, 'positions'>>(
  store: LedgerReader,
  pendingCounts: PendingCounts,
  ask: () => Promise<Result>,
  add: (stored: Result, pending: readonly PendingMinute[]) => Result,
): Promise<Result> {
  for (let tries = 1; ; tries += 1) {
    const stored = await ask();
    const { minutes, gaps } = await pendingCounts.countFrom(stored.positions);
    // Records that were processed in the meantime may have left the log before they were counted. Then the position has
    // moved; if it has not, the gap is real.
    const now = gaps.length === 0 ? stored : await store.ledger(null, NO_HOURS);
    const hasMoved = gaps.some((partition) => now.positions.get(partition) !== stored.positions.get(partition));
    if (!hasMoved || tries >= TRIES_MAX) return add(stored, minutes);
  }
}

/** Retention may remove records that were processed since the store was asked; that is not a loss. */
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

/** Whether what is pending of one minute is asked for: of that tenant, or any, and of hours or minutes in the range. */
function isWithin(
  tenantId: TenantId | null,
  { from, to }: TimeRange,
  width: number,
): (minute: PendingMinute) => boolean {
  return (minute) => {
    if (tenantId !== null && tenantId !== minute.tenantId) return false;
    const start = startOf(minute.start, width);
    return (from === null || start >= startOf(from, width)) && (to === null || start < to);
  };
}

function withPendingHours(ledger: StoredLedger, pending: readonly PendingMinute[]): StoredLedger {
  const byHour = new Map(ledger.hours.map((row) => [row.hour, row]));
  for (const { start, users, events, rejectedUsers } of pending) {
    const hour = startOf(start, HOUR_MS);
    const row = byHour.get(hour) ?? emptyHour(hour);
    byHour.set(hour, {
      // Drops that clients reported stay as they are: the log may hold retries, and only the processor can tell.
      ...row,
      users: withPending(row.users, users),
      events: withPending(row.events, events),
      rejectedUsers: row.rejectedUsers + rejectedUsers,
    });
  }
  return { ...ledger, hours: [...byHour.values()].sort((a, b) => b.hour - a.hour) };
}

function withPendingMinutes({ minutes, positions }: Receipts, pending: readonly PendingMinute[]): Receipts {
  const byStart = new Map(minutes.map((minute) => [minute.start, minute]));
  for (const { start, users, events, rejectedUsers } of pending) {
    const before = byStart.get(start) ?? { usersAccepted: 0, usersRejected: 0, eventsAccepted: 0 };
    byStart.set(start, {
      start,
      usersAccepted: before.usersAccepted + users,
      usersRejected: before.usersRejected + rejectedUsers,
      eventsAccepted: before.eventsAccepted + events,
    });
  }
  return { minutes: [...byStart.values()].sort((a, b) => a.start - b.start), positions };
}

function withPending(sums: LedgerSums, pending: number): LedgerSums {
  return { ...sums, received: sums.received + pending, pending: sums.pending + pending };
}

const EMPTY: LedgerSums = { received: 0, stored: 0, duplicates: 0, erased: 0, expired: 0, deadLetters: 0, pending: 0 };

function emptyHour(hour: number): LedgerHour {
  return { hour, users: EMPTY, events: EMPTY, rejectedUsers: 0, resubmittedUsers: 0, droppedByClients: 0 };
}

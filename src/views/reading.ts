/**
 * The store as the API and the commands see it: completed by what is still in the log. From the 202 on, a request has a
 * trace (pending, then processed), and every event is accounted for: the store returns its contents and its position in
 * the log in one snapshot, and what the log has from that position on is pending. Cursors get the name of their tenant
 * on the way out and lose it on the way in.
 *
 * Limits: if several logs feed a store, only the log given here counts as pending.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { LogCorruptError, type LogHeader, type LogReader } from '../log.ts';
import { lostAhead, missingRecords, type ProcessedLog } from '../log/continuity.ts';
import { HOUR_MS, MINUTE_MS, type TenantId } from '../model.ts';
import { PendingCounts, type PendingMinute } from './pending-counts.ts';
import { NO_SUMS } from './received-sums.ts';
import { startOf } from './sums.ts';
import { OLDEST, pageOf, withoutTenant, withTenant } from './cursor.ts';
import { ERASED_USER, NOTHING_STORED, traceCursor, traceIdBefore, traceScope } from './trace.ts';
import { uuidOf } from './uuid.ts';
import {
  type Arrivals,
  type DeadLetter,
  type LedgerReader,
  type LedgerSums,
  NO_HOURS,
  type Page,
  type PageRequest,
  type Receipts,
  type Store,
  type StoredLedger,
  type StoredTrace,
  type TimeRange,
  type TracedUser,
  type TraceQuery,
  type TraceReader,
  type TraceSummary,
} from '../store.ts';

/** Records read per partition to count pending requests for a prediction, which should take no time. */
const PENDING_RECORDS_MAX = 1_000;
/** If records vanish this often while they are counted, the cause is not the processor. */
const TRIES_MAX = 20;
const DEAD_LETTERS_MAX = 1_000;
const DEAD_LETTER_WARNING = 'could not be processed and is now a dead letter: GET /dead-letters has the cause';
/** How often a caller that waits for the processor looks again: it reads the ledger each time. */
const POLL_MS = 200;
const HEADERS_PER_READ = 5_000;
/** Records read per partition. Reading a longer backlog at every call would keep the processor from working it off. */
const WAITING_RECORDS_MAX = 20_000;

export function withPendingRecords(store: Store, log: LogReader): Store {
  const pendingCounts = new PendingCounts(log);
  const { trace, traces } = traceReading(store, log, pendingCounts);
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
    trace,
    traces: withOwnCursors(traces),
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
    waitUntilProcessed: async (receivedAt, msMax) => {
      const giveUpAt = performance.now() + msMax;
      while (await isWaiting(store, log, receivedAt)) {
        if (performance.now() >= giveUpAt) return false;
        await sleep(POLL_MS);
      }
      return true;
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
    const cursor = query.cursor === null ? null : withoutTenant('list', query.cursor, tenantId);
    const page = await list(tenantId, { ...query, cursor });
    return page?.nextCursor ? { ...page, nextCursor: withTenant(page.nextCursor, tenantId) } : page;
  };
}

function ownPlace(tenantId: TenantId, after: string): string {
  return after === OLDEST ? after : withoutTenant('arrivals', after, tenantId);
}

function arrivalsFor(tenantId: TenantId, { events, last }: Arrivals): Arrivals {
  return {
    events: events.map((event) => Object.assign(event, { cursor: withTenant(event.cursor, tenantId) })),
    last: withTenant(last, tenantId),
  };
}

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

/** Whether something that was received up to then waits. Times of receipt ascend in a partition, unless clocks differ. */
async function isWaiting(store: LedgerReader, log: LogReader, receivedAt: number): Promise<boolean> {
  const { positions } = await store.ledger(null, NO_HOURS);
  for (const partition of await log.partitions()) {
    const { headers } = await log.headers(partition, positions.get(partition) ?? 0, 1);
    if (headers.some((header) => header.receivedAt <= receivedAt)) return true;
  }
  return false;
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
  for (const { start, users, events, usersRejected } of pending) {
    const hour = startOf(start, HOUR_MS);
    const row = byHour.get(hour) ?? { hour, ...EMPTY_HOUR };
    byHour.set(hour, {
      // Drops that clients reported stay as they are: the log may hold retries, and only the processor can tell.
      ...row,
      users: withPending(row.users, users),
      events: withPending(row.events, events),
      usersRejected: row.usersRejected + usersRejected,
    });
  }
  return { ...ledger, hours: [...byHour.values()].sort((a, b) => b.hour - a.hour) };
}

function withPendingMinutes({ minutes, positions }: Receipts, pending: readonly PendingMinute[]): Receipts {
  const byStart = new Map(minutes.map((minute) => [minute.start, minute]));
  for (const { start, users, events, usersRejected } of pending) {
    const before = byStart.get(start) ?? { usersAccepted: 0, usersRejected: 0, eventsAccepted: 0 };
    byStart.set(start, {
      start,
      usersAccepted: before.usersAccepted + users,
      usersRejected: before.usersRejected + usersRejected,
      eventsAccepted: before.eventsAccepted + events,
    });
  }
  return { minutes: [...byStart.values()].sort((a, b) => a.start - b.start), positions };
}

function withPending(sums: LedgerSums, pending: number): LedgerSums {
  return { ...sums, received: sums.received + pending, pending: sums.pending + pending };
}

const EMPTY_HOUR = { users: NO_SUMS, events: NO_SUMS, usersRejected: 0, usersResubmitted: 0, droppedByClients: 0 };

/**
 * The outcome of a request, from the moment of its 202: processed users from the store, pending ones from the log, and
 * dead letters from the log as well. A request that its log split into several records is pending until all of them are
 * processed.
 */
function traceReading(store: TraceReader & LedgerReader, log: LogReader, pendingCounts: PendingCounts) {
  async function trace(tenantId: TenantId | null, traceId: string): Promise<StoredTrace | undefined> {
    const id = uuidOf(traceId);
    if (id === undefined) return undefined;
    if (log.splitsRequests) return splitTrace(tenantId, id);
    const processed = await store.trace(tenantId, id);
    if (processed !== undefined) return processed;
    const waiting = await waitingRecords(tenantId, id);
    if (waiting.length > 0) return pendingTrace(id, waiting, []);
    // The processor may have processed it between the two reads.
    return (await store.trace(tenantId, id)) ?? deadLetterTrace(tenantId, id);
  }

  /**
   * If a request was split, some users may be processed and others not. The log is read first: what is processed
   * meanwhile is then seen twice, never missed.
   */
  async function splitTrace(tenantId: TenantId | null, traceId: string): Promise<StoredTrace | undefined> {
    const waiting = await waitingRecords(tenantId, traceId);
    const processed = await store.trace(tenantId, traceId);
    const deadLetters = await deadLetterTrace(tenantId, traceId);
    const pending = waiting.length > 0 ? pendingTrace(traceId, waiting, []) : undefined;
    const known = [processed, pending, deadLetters].filter((trace) => trace !== undefined);
    return known.length === 0 ? undefined : known.reduce(together);
  }

  async function waitingRecords(tenantId: TenantId | null, traceId: string): Promise<LogHeader[]> {
    const { positions } = await store.ledger(tenantId, NO_HOURS);
    const waiting: LogHeader[] = [];
    let unreadable: LogCorruptError | undefined;
    for (const partition of await log.partitions()) {
      try {
        const headers = await log.find(partition, positions.get(partition) ?? 0, traceId);
        waiting.push(...headers.filter((header) => tenantId === null || header.tenantId === tenantId));
      } catch (error) {
        if (!(error instanceof LogCorruptError)) throw error;
        unreadable ??= error;
      }
      if (waiting.length > 0 && !log.splitsRequests) break;
    }
    if (waiting.length === 0 && unreadable !== undefined) throw unreadable;
    return waiting;
  }

  /** From what the store keeps of it: the record may be in the log of another server, or not in any log any more. */
  async function deadLetterTrace(tenantId: TenantId | null, traceId: string): Promise<StoredTrace | undefined> {
    const letters = (await store.deadLetters(DEAD_LETTERS_MAX)).filter(
      (letter) => letter.traceId === traceId && (tenantId === null || letter.tenantId === tenantId),
    );
    return letters.length === 0 ? undefined : letters.map(failedTrace).reduce(together);
  }

  /**
   * Requests newest first: pending ones from the log, the others from the store. The log is read first: a record that
   * is processed in the meantime is then seen twice, never missed. Limit: of a backlog beyond the newest
   * `WAITING_RECORDS_MAX` records, older requests are in the list only once they are processed.
   */
  async function traces(tenantId: TenantId, query: TraceQuery): Promise<Page<TraceSummary>> {
    const scope = traceScope(tenantId, query);
    const before = traceIdBefore(scope, query.cursor);
    const waiting = await waitingRequests(tenantId, before, query.limit + 1);
    const { rows: processed, nextCursor } = await store.traces(tenantId, query);
    // Below the end of the store's page there may be stored requests in between.
    const end = nextCursor === null ? '' : traceIdBefore(scope, nextCursor);
    const byId = new Map(processed.map((row) => [row.traceId, row]));
    for (const [traceId, headers] of waiting) {
      if (traceId < end) continue;
      if (byId.has(traceId) && !log.splitsRequests) continue;
      const isInPart = log.splitsRequests ? await store.trace(tenantId, traceId) : undefined;
      const summary = withWaiting(traceId, headers, isInPart, byId.get(traceId));
      if (query.status !== null && query.status !== summary.status) byId.delete(traceId);
      else byId.set(traceId, summary);
    }
    const rows = [...byId.values()].sort((a, b) => (a.traceId < b.traceId ? 1 : -1));
    const page = pageOf(
      rows,
      query.limit,
      (row) => row,
      (row) => traceCursor(scope, row.traceId),
    );
    return { ...page, nextCursor: page.nextCursor ?? nextCursor };
  }

  /** The newest few below `before` of which the log has something that the store has not, or that became dead letters. */
  async function waitingRequests(tenantId: TenantId, before: string, count: number): Promise<Map<string, LogHeader[]>> {
    let newest = new Map<string, LogHeader[]>();
    const add = (header: LogHeader): void => {
      if (header.tenantId !== tenantId || header.traceId >= before) return;
      newest.getOrInsertComputed(header.traceId, () => []).push(header);
      if (newest.size > 10 * count) newest = newestOf(newest, count);
    };
    const { positions } = await store.ledger(tenantId, NO_HOURS);
    const { ends } = await pendingCounts.countFrom(positions);
    for (const [partition, end] of ends) {
      for (let from = Math.max(positions.get(partition) ?? 0, end - WAITING_RECORDS_MAX); ; ) {
        const { headers, next } = await log.headers(partition, from, HEADERS_PER_READ);
        for (const header of headers) add(header);
        if (headers.length < HEADERS_PER_READ) break;
        from = next;
      }
    }
    const deadLetters = (await store.deadLetters(DEAD_LETTERS_MAX))
      .filter((record) => record.tenantId === tenantId && record.traceId < before && !record.isErased)
      .sort((a, b) => (a.traceId < b.traceId ? 1 : -1));
    for (const { header } of deadLetters.slice(0, count)) add(header);
    return newestOf(newest, count);
  }

  return { trace, traces };
}

/** Both are of one request; where both have a user, the first counts. */
function together(known: StoredTrace, more: StoredTrace): StoredTrace {
  const indexes = new Set(known.users.map(({ userIndex }) => userIndex));
  const missing = more.users.filter(({ userIndex }) => !indexes.has(userIndex));
  if (missing.length === 0) return known;
  const users = [...known.users, ...missing].sort((a, b) => a.userIndex - b.userIndex);
  const count = (status: TracedUser['status']): number => missing.filter((user) => user.status === status).length;
  const isProcessed = known.processedAt !== null && more.processedAt !== null;
  const failedAt = known.failedAt ?? more.failedAt;
  return {
    ...known,
    ...(failedAt !== undefined && { failedAt }),
    status: isProcessed ? 'processed' : 'pending',
    processedAt: isProcessed ? Math.max(known.processedAt, more.processedAt) : null,
    usersAccepted: known.usersAccepted + count('accepted'),
    usersRejected: known.usersRejected + count('rejected'),
    keyId: known.keyId ?? more.keyId,
    users,
  };
}

function pendingTrace(traceId: string, headers: readonly LogHeader[], warnings: readonly string[]): StoredTrace {
  const users = headers.flatMap((header) => pendingUsers(header, warnings));
  return {
    traceId,
    status: 'pending',
    receivedAt: Math.min(...headers.map(({ receivedAt }) => receivedAt)),
    processedAt: null,
    usersAccepted: users.filter(({ status }) => status === 'accepted').length,
    usersRejected: users.filter(({ status }) => status === 'rejected').length,
    duplicateOf: null,
    keyId: headers[0]?.keyId ?? null,
    format: headers[0]?.format ?? 'sluice',
    users: users.sort((a, b) => a.userIndex - b.userIndex),
  };
}

function failedTrace({ traceId, header, failedAt, isErased }: DeadLetter): StoredTrace {
  if (!isErased) return { ...pendingTrace(traceId, [header], [DEAD_LETTER_WARNING]), failedAt };
  return { ...pendingTrace(traceId, [header], [ERASED_USER]), status: 'processed', processedAt: failedAt };
}

function pendingUsers({ firstUserIndex, userCount, rejections }: LogHeader, warnings: readonly string[]): TracedUser[] {
  const messages = new Map(rejections.map(({ userIndex, message }) => [userIndex, message]));
  return Array.from({ length: userCount }, (_, index) => {
    const userIndex = firstUserIndex + index;
    const message = messages.get(userIndex) ?? null;
    // An erase notes the users that it removed from a dead letter among those that were rejected.
    if (message === ERASED_USER)
      return { userIndex, status: 'accepted', ...NOTHING_STORED, warnings: [message], message: null };
    return {
      userIndex,
      status: message === null ? 'accepted' : 'rejected',
      ...NOTHING_STORED,
      warnings: message === null ? warnings : [],
      message,
    };
  });
}

function newestOf(requests: Map<string, LogHeader[]>, count: number): Map<string, LogHeader[]> {
  return new Map([...requests].sort(([a], [b]) => (a < b ? 1 : -1)).slice(0, count));
}

/** `known` is what the store has of it: users that are in both were processed meanwhile. */
function withWaiting(
  traceId: string,
  headers: readonly LogHeader[],
  known: StoredTrace | undefined,
  processed: TraceSummary | undefined,
): TraceSummary {
  const pending = pendingTrace(traceId, headers, []);
  const {
    users,
    format: _format,
    failedAt: _failedAt,
    ...summary
  } = known === undefined ? pending : together(known, pending);
  if (summary.status === 'processed' && processed !== undefined) return processed;
  const indexes = new Set(known?.users.map(({ userIndex }) => userIndex));
  const missing = headers.filter(({ firstUserIndex }) => !indexes.has(firstUserIndex));
  const stored = processed?.events ?? users.reduce((sum, { events }) => sum + events, 0);
  return { ...summary, events: missing.reduce((sum, { eventCount }) => sum + eventCount, stored) };
}

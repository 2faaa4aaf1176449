/**
 * The outcome of a request, from the moment of its 202: processed users from the store, pending ones from the log, and
 * dead letters from the log as well. A request that its log split into several records is pending until all of them are
 * processed.
 *
 * Limit: if several logs feed a store, only the log that is given here is searched.
 */

import { LogCorruptError, type LogHeader, type LogReader } from '../log.ts';
import type { PendingCounts } from './pending-counts.ts';
import type { TenantId } from '../model.ts';
import {
  type DeadLetter,
  type LedgerReader,
  NO_HOURS,
  type Page,
  type StoredTrace,
  type TracedUser,
  type TraceQuery,
  type TraceReader,
  type TraceSummary,
} from '../store.ts';
import { traceCursor, traceIdBefore, traceScope } from './trace-list.ts';
import { NOTHING_STORED } from './trace.ts';
import { uuidOf } from './uuid.ts';

const DEAD_LETTERS_MAX = 1_000;
const DEAD_LETTER_WARNING = 'could not be processed and is now a dead letter: see sluice doctor';
const ERASED_WARNING =
  'could not be processed, and is not stored: this person was erased after the request was received';
const HEADERS_PER_READ = 5_000;
/** Records read per partition. Reading a longer backlog at every call would keep the processor from working it off. */
const WAITING_RECORDS_MAX = 20_000;

export class TraceReading {
  readonly #store: TraceReader & LedgerReader;
  readonly #log: LogReader;
  readonly #pendingCounts: PendingCounts;

  constructor(store: TraceReader & LedgerReader, log: LogReader, pendingCounts: PendingCounts) {
    this.#store = store;
    this.#log = log;
    this.#pendingCounts = pendingCounts;
  }

  async trace(tenantId: TenantId | null, traceId: string): Promise<StoredTrace | undefined> {
    const id = uuidOf(traceId);
    if (id === undefined) return undefined;
    if (this.#log.splitsRequests) return this.#splitTrace(tenantId, id);
    const processed = await this.#store.trace(tenantId, id);
    if (processed !== undefined) return processed;
    const waiting = await this.#waitingRecords(tenantId, id);
    if (waiting.length > 0) return pendingTrace(id, waiting, []);
    // The processor may have processed it between the two reads.
    return (await this.#store.trace(tenantId, id)) ?? this.#deadLetterTrace(tenantId, id);
  }

  /**
   * If a request was split, some users may be processed and others not. The log is read first: what is processed
   * meanwhile is then seen twice, never missed.
   */
  async #splitTrace(tenantId: TenantId | null, traceId: string): Promise<StoredTrace | undefined> {
    const waiting = await this.#waitingRecords(tenantId, traceId);
    const processed = await this.#store.trace(tenantId, traceId);
    const deadLetters = await this.#deadLetterTrace(tenantId, traceId);
    const rest = [
      ...(waiting.length > 0 ? [pendingTrace(traceId, waiting, [])] : []),
      ...(deadLetters ? [deadLetters] : []),
    ];
    return rest.reduce<StoredTrace | undefined>(
      (known, more) => (known === undefined ? more : together(known, more)),
      processed,
    );
  }

  /** The records of a request that the log has and the store has not. */
  async #waitingRecords(tenantId: TenantId | null, traceId: string): Promise<LogHeader[]> {
    const { positions } = await this.#store.ledger(tenantId, NO_HOURS);
    const waiting: LogHeader[] = [];
    let unreadable: LogCorruptError | undefined;
    for (const partition of await this.#log.partitions()) {
      try {
        const headers = await this.#log.find(partition, positions.get(partition) ?? 0, traceId);
        waiting.push(...headers.filter((header) => tenantId === null || header.tenantId === tenantId));
      } catch (error) {
        if (!(error instanceof LogCorruptError)) throw error;
        unreadable ??= error;
      }
      if (waiting.length > 0 && !this.#log.splitsRequests) break;
    }
    if (waiting.length === 0 && unreadable !== undefined) throw unreadable;
    return waiting;
  }

  /** The log keeps dead letters until its retention ends, below the position up to which it is processed. */
  async #deadLetterTrace(tenantId: TenantId | null, traceId: string): Promise<StoredTrace | undefined> {
    const records = (await this.#store.deadLetters(DEAD_LETTERS_MAX)).filter(
      (record) => record.traceId === traceId && (tenantId === null || record.tenantId === tenantId),
    );
    const [first] = records;
    if (first === undefined) return undefined;
    const found = await Promise.all(records.map((record) => this.#traceOf(record)));
    const known = found.filter((trace) => trace !== undefined);
    if (known.length > 0) return known.reduce(together);
    const unknown = { usersAccepted: 0, usersRejected: 0, duplicateOf: null, keyId: null, users: [] };
    const format = 'sluice';
    return { traceId, status: 'pending', receivedAt: first.receivedAt, processedAt: null, format, ...unknown };
  }

  async #traceOf({ traceId, partition, position, failedAt, isErased }: DeadLetter): Promise<StoredTrace | undefined> {
    const { headers } = await this.#log.headers(partition, position, 1);
    if (headers[0]?.traceId !== traceId) return undefined;
    if (!isErased) return pendingTrace(traceId, headers, [DEAD_LETTER_WARNING]);
    return { ...pendingTrace(traceId, headers, [ERASED_WARNING]), status: 'processed', processedAt: failedAt };
  }

  /**
   * Requests newest first: pending ones from the log, the others from the store. The log is read first: a record that
   * is processed in the meantime is then seen twice, never missed. Limit: of a backlog beyond the newest
   * `WAITING_RECORDS_MAX` records, older requests are in the list only once they are processed.
   */
  async traces(tenantId: TenantId, query: TraceQuery): Promise<Page<TraceSummary>> {
    const scope = traceScope(tenantId, query);
    const before = traceIdBefore(scope, query.cursor);
    const waiting = await this.#waitingRequests(tenantId, before, query.limit + 1);
    const { rows: processed, nextCursor } = await this.#store.traces(tenantId, query);
    // Below the end of the store's page there may be stored requests in between.
    const end = nextCursor === null ? '' : traceIdBefore(scope, nextCursor);
    const byId = new Map(processed.map((row) => [row.traceId, row]));
    for (const [traceId, headers] of waiting) {
      if (traceId < end) continue;
      if (byId.has(traceId) && !this.#log.splitsRequests) continue;
      const isInPart = this.#log.splitsRequests ? await this.#store.trace(tenantId, traceId) : undefined;
      const summary = withWaiting(traceId, headers, isInPart, byId.get(traceId));
      if (query.status !== null && query.status !== summary.status) byId.delete(traceId);
      else byId.set(traceId, summary);
    }
    const rows = [...byId.values()].sort((a, b) => (a.traceId < b.traceId ? 1 : -1));
    const given = rows.slice(0, query.limit);
    const last = given.at(-1);
    return {
      rows: given,
      nextCursor: rows.length > given.length && last ? traceCursor(scope, last.traceId) : nextCursor,
    };
  }

  /** The newest few below `before` of which the log has something that the store has not, or that became dead letters. */
  async #waitingRequests(tenantId: TenantId, before: string, count: number): Promise<Map<string, LogHeader[]>> {
    let newest = new Map<string, LogHeader[]>();
    const add = (header: LogHeader): void => {
      if (header.tenantId !== tenantId || header.traceId >= before) return;
      const headers = newest.get(header.traceId);
      if (headers === undefined) newest.set(header.traceId, [header]);
      else headers.push(header);
      if (newest.size > 10 * count) newest = newestOf(newest, count);
    };
    const { positions } = await this.#store.ledger(tenantId, NO_HOURS);
    const { ends } = await this.#pendingCounts.countFrom(positions);
    for (const [partition, end] of ends) {
      for (let from = Math.max(positions.get(partition) ?? 0, end - WAITING_RECORDS_MAX); ; ) {
        const { headers, next } = await this.#log.headers(partition, from, HEADERS_PER_READ);
        for (const header of headers) add(header);
        if (headers.length < HEADERS_PER_READ) break;
        from = next;
      }
    }
    const deadLetters = (await this.#store.deadLetters(DEAD_LETTERS_MAX))
      .filter((record) => record.tenantId === tenantId && record.traceId < before && !record.isErased)
      .sort((a, b) => (a.traceId < b.traceId ? 1 : -1));
    for (const { partition, position, traceId } of deadLetters.slice(0, count)) {
      const { headers } = await this.#log.headers(partition, position, 1);
      for (const header of headers) if (header.traceId === traceId) add(header);
    }
    return newestOf(newest, count);
  }
}

/** Both are of one request; where both have a user, the first counts. */
function together(known: StoredTrace, more: StoredTrace): StoredTrace {
  const indexes = new Set(known.users.map(({ userIndex }) => userIndex));
  const missing = more.users.filter(({ userIndex }) => !indexes.has(userIndex));
  if (missing.length === 0) return known;
  const users = [...known.users, ...missing].sort((a, b) => a.userIndex - b.userIndex);
  const count = (status: TracedUser['status']): number => missing.filter((user) => user.status === status).length;
  const isProcessed = known.processedAt !== null && more.processedAt !== null;
  return {
    ...known,
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

function pendingUsers({ firstUserIndex, userCount, rejections }: LogHeader, warnings: readonly string[]): TracedUser[] {
  const messages = new Map(rejections.map(({ userIndex, message }) => [userIndex, message]));
  return Array.from({ length: userCount }, (_, index) => {
    const userIndex = firstUserIndex + index;
    const message = messages.get(userIndex) ?? null;
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
  const { users, format: _format, ...summary } = known === undefined ? pending : together(known, pending);
  if (summary.status === 'processed' && processed !== undefined) return processed;
  const indexes = new Set(known?.users.map(({ userIndex }) => userIndex));
  const missing = headers.filter(({ firstUserIndex }) => !indexes.has(firstUserIndex));
  const stored = processed?.events ?? users.reduce((sum, { events }) => sum + events, 0);
  return { ...summary, events: missing.reduce((sum, { eventCount }) => sum + eventCount, stored) };
}

/**
 * Helpers for tests of the event log: entries to append, and ways to read all of them back.
 */

import assert from 'node:assert/strict';
import type { LogAppender, LogEntry, LogHeader, LogReader, LogRecord } from '../../src/log.ts';

export interface LogUnderTest {
  readonly hasPartitions: boolean;
  /** A log that has only one partition ignores which. */
  openAppender(partition: number): Promise<LogAppender>;
  openReader(options?: { retentionMs?: number; now?: () => number }): Promise<LogReader>;
  /** Removes everything. */
  dispose(): Promise<void>;
}

export function entry(changes: Partial<LogEntry> & { users?: unknown[] } = {}): LogEntry {
  const { users = [{ identifiers: { user_id: 'ada' }, events: [{ event_name: 'tested' }] }], ...rest } = changes;
  return {
    traceId: '0190a000-0000-7000-8000-000000000001',
    tenantId: 'acct_test/development',
    receivedAt: 1_700_000_000_000,
    keyId: 'key_test',
    keyKind: 'secret',
    idempotencyKey: null,
    body: Buffer.from(JSON.stringify({ users })),
    userCount: users.length,
    eventCount: users.reduce<number>((sum, user) => sum + eventsIn(user), 0),
    rejections: [],
    ...rest,
  };
}

export function eventsIn(user: unknown): number {
  if (typeof user !== 'object' || user === null || !('events' in user)) return 0;
  return Array.isArray(user.events) ? user.events.length : 0;
}

interface ReadUser {
  readonly traceId: string;
  readonly userIndex: number;
  readonly json: string;
  readonly rejection: string | null;
}

/** Users as a reader sees them, whether a record holds one or many. */
export function usersOf(records: readonly LogRecord[]): ReadUser[] {
  return records.flatMap((record) => {
    const { users } = JSON.parse(Buffer.from(record.body).toString('utf8')) as { users: unknown[] };
    return users.map((user, index) => {
      const userIndex = record.firstUserIndex + index;
      const rejection = record.rejections.find((rejected) => rejected.userIndex === userIndex);
      return { traceId: record.traceId, userIndex, json: JSON.stringify(user), rejection: rejection?.message ?? null };
    });
  });
}

export function headerOf(record: LogRecord): LogHeader {
  const { body, ...header } = record;
  assert.ok(body.byteLength > 0);
  return header;
}

export async function headersAll(
  reader: LogReader,
  partition: number,
  countMax: number,
  from = 0,
): Promise<LogHeader[]> {
  const all: LogHeader[] = [];
  for (let position = from; ; ) {
    const { headers, next } = await reader.headers(partition, position, countMax);
    assert.ok(headers.length <= countMax);
    all.push(...headers);
    // Fewer than were asked for means that there are no more.
    if (headers.length < countMax) return all;
    position = next;
  }
}

/** Requests of one to three users with one to three events each; the second user of three is rejected. */
export function mixedEntries(count: number): LogEntry[] {
  return Array.from({ length: count }, (_, n) => {
    const hasRejected = n % 3 === 2;
    const users = Array.from({ length: 1 + (n % 3) }, (__, userIndex) => ({
      pad: 'x'.repeat((n * 37) % 3_000),
      events:
        hasRejected && userIndex === 1 ? [] : Array.from({ length: userIndex + 1 }, () => ({ event_name: 'tested' })),
    }));
    return entry({
      traceId: `trace-${n}`,
      users,
      rejections: hasRejected ? [{ userIndex: 1, message: 'events array is required and must not be empty' }] : [],
      idempotencyKey: n % 2 === 0 ? `once-${n}` : null,
    });
  });
}

export async function readAll(reader: LogReader, partition: number, from = 0): Promise<LogRecord[]> {
  const all: LogRecord[] = [];
  for (let position = from; ; ) {
    const batch = await reader.read(partition, position, 1024 * 1024);
    if (batch.records.length === 0) return all;
    all.push(...batch.records);
    position = batch.next;
  }
}

export function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

/** By an appender of its own, all at once. */
export async function append(log: LogUnderTest, entries: readonly LogEntry[], partition = 0): Promise<void> {
  const appender = await log.openAppender(partition);
  await Promise.all(entries.map((row) => appender.append(row)));
  await appender.close();
}

export async function withReader<T>(log: LogUnderTest, use: (reader: LogReader) => Promise<T>): Promise<T> {
  const reader = await log.openReader();
  try {
    return await use(reader);
  } finally {
    await reader.close();
  }
}

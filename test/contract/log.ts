/**
 * What every backend of the event log must do. A backend's test calls `eventLogContract` with a way to open it; the
 * assertions are the same for all. A backend may keep a request whole or cut it into users, so the suite compares
 * users, not records.
 */

import assert from 'node:assert/strict';
import { after, before, beforeEach, suite, test } from 'node:test';
import { assert as assertProperty, asyncProperty, integer } from 'fast-check';
import type { LogAppender, LogEntry, LogHeader, LogReader, LogRecord } from '../../src/log.ts';

export interface LogUnderTest {
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

function headerOf({ body: _, ...header }: LogRecord): LogHeader {
  return header;
}

async function headersAll(reader: LogReader, partition: number, countMax: number, from = 0): Promise<LogHeader[]> {
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
function mixedEntries(count: number): LogEntry[] {
  return Array.from({ length: count }, (_, n) => {
    const hasRejected = n % 3 === 2;
    const users = Array.from({ length: 1 + (n % 3) }, (__, userIndex) => ({
      pad: 'x'.repeat((n * 37) % 3_000),
      events: hasRejected && userIndex === 1 ? [] : Array(userIndex + 1).fill({ event_name: 'tested' }),
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

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

export function eventLogContract(name: string, open: () => Promise<LogUnderTest>): void {
  suite(`The event log on ${name}`, () => {
    let log: LogUnderTest;
    before(async () => {
      log = await open();
    });
    beforeEach(async () => {
      await log.dispose();
      log = await open();
    });
    after(() => log.dispose());

    async function appended(entries: readonly LogEntry[], partition = 0): Promise<void> {
      const appender = await log.openAppender(partition);
      await Promise.all(entries.map((row) => appender.append(row)));
      await appender.close();
    }

    async function withReader<T>(use: (reader: LogReader) => Promise<T>): Promise<T> {
      const reader = await log.openReader();
      try {
        return await use(reader);
      } finally {
        await reader.close();
      }
    }

    test('what was appended is read back byte for byte, with all that was said about it', async () => {
      const body = Buffer.from(
        '{ "users" : [ {"identifiers":{"user_id":"ü"},\n"events":[{"n":12345678901234567890}]} ] }',
      );
      const sent = entry({
        body,
        idempotencyKey: 'retry-1',
        eventCount: 1,
        keyKind: 'publishable',
        tenantId: 'acct_x/production',
      });
      await appended([sent]);
      const [record] = await withReader((reader) => readAll(reader, 0));
      assert.ok(record);
      assert.equal(record.traceId, sent.traceId);
      assert.equal(record.tenantId, sent.tenantId);
      assert.equal(record.receivedAt, sent.receivedAt);
      assert.equal(record.keyId, sent.keyId);
      assert.equal(record.keyKind, 'publishable');
      assert.equal(record.idempotencyKey, 'retry-1');
      assert.equal(record.userCount, 1);
      assert.equal(record.firstUserIndex, 0);
      assert.equal(record.eventCount, 1);
      assert.match(Buffer.from(record.body).toString('utf8'), /"n":12345678901234567890/);
    });

    test('rejected users stay in the record and are named with their reasons', async () => {
      const rejections = [{ userIndex: 1, message: 'user must be an object' }];
      await appended([entry({ users: [{ a: 1 }, 7, { a: 3 }], rejections })]);
      const users = usersOf(await withReader((reader) => readAll(reader, 0)));
      assert.deepEqual(
        users.map((user) => [user.userIndex, user.rejection]),
        [
          [0, null],
          [1, 'user must be an object'],
          [2, null],
        ],
      );
    });

    test('users and events are counted once, however a request is cut into records', async () => {
      const entries = mixedEntries(12);
      await appended(entries);
      const records = await withReader((reader) => readAll(reader, 0));
      for (const { traceId, userCount, eventCount } of entries) {
        const own = records.filter((record) => record.traceId === traceId);
        assert.equal(sum(own.map((record) => record.userCount)), userCount);
        assert.equal(sum(own.map((record) => record.eventCount)), eventCount);
        assert.deepEqual(
          usersOf(own).map((user) => user.userIndex),
          Array.from({ length: userCount }, (_, userIndex) => userIndex),
        );
        for (const record of own) assert.equal(usersOf([record]).length, record.userCount);
      }
    });

    test('users come back in the order in which they were appended', async () => {
      const entries = Array.from({ length: 300 }, (_, n) =>
        entry({ traceId: `trace-${n}`, users: [{ n }, { n: -n }] }),
      );
      const appender = await log.openAppender(0);
      for (const row of entries) await appender.append(row);
      await appender.close();
      const users = usersOf(await withReader((reader) => readAll(reader, 0)));
      assert.deepEqual(
        users.map((user) => user.json),
        entries.flatMap((_, n) => [JSON.stringify({ n }), JSON.stringify({ n: -n })]),
      );
    });

    test('appends made at once are each durable once their promise resolves', async () => {
      const appender = await log.openAppender(0);
      const traces = Array.from({ length: 500 }, (_, n) => `trace-${n}`);
      await Promise.all(traces.map((traceId) => appender.append(entry({ traceId }))));
      // The appender is still open: a reader sees what was acknowledged, at once.
      const seen = await withReader((reader) => readAll(reader, 0));
      assert.deepEqual(new Set(seen.map((record) => record.traceId)), new Set(traces));
      await appender.close();
    });

    test('reading goes on where a batch ended, whatever the size of the batches', async () => {
      await appended(
        Array.from({ length: 40 }, (_, n) => entry({ traceId: `trace-${n}`, users: [{ pad: 'x'.repeat(n * 50) }] })),
      );
      const whole = await withReader((reader) => readAll(reader, 0));
      await assertProperty(
        asyncProperty(integer({ min: 1, max: 5_000 }), async (bytesMax) => {
          await withReader(async (reader) => {
            const traces: string[] = [];
            for (let position = 0; ; ) {
              const batch = await reader.read(0, position, bytesMax);
              if (batch.records.length === 0) break;
              traces.push(...batch.records.map((record) => record.traceId));
              position = batch.next;
            }
            assert.deepEqual(
              traces,
              whole.map((record) => record.traceId),
            );
          });
        }),
        { numRuns: 15 },
      );
    });

    test('a record larger than the batch is still read, alone', async () => {
      await appended([entry({ users: [{ pad: 'x'.repeat(100_000) }] }), entry({ traceId: 'second' })]);
      await withReader(async (reader) => {
        const first = await reader.read(0, 0, 10);
        assert.equal(first.records.length, 1);
        const second = await reader.read(0, first.next, 10);
        assert.equal(second.records[0]?.traceId, 'second');
      });
    });

    test('positions ascend, and reading from the position of a record gives that record first', async () => {
      await appended(Array.from({ length: 20 }, (_, n) => entry({ traceId: `trace-${n}` })));
      await withReader(async (reader) => {
        const records = await readAll(reader, 0);
        for (const [index, record] of records.entries()) {
          if (index > 0) assert.ok(record.position > (records[index - 1]?.position ?? Number.POSITIVE_INFINITY));
          const again = await reader.read(0, record.position, 1);
          assert.equal(again.records[0]?.traceId, record.traceId);
        }
      });
    });

    test('at the end of a partition reading gives nothing, and later what came since', async () => {
      await appended([entry({ traceId: 'first' })]);
      await withReader(async (reader) => {
        const { next } = await reader.read(0, 0, 1_000);
        assert.deepEqual(await reader.read(0, next, 1_000), { records: [], next });
        await appended([entry({ traceId: 'second' })]);
        const later = await reader.read(0, next, 1_000);
        assert.deepEqual(
          later.records.map((record) => record.traceId),
          ['second'],
        );
      });
    });

    test('closing and opening again loses nothing and reuses no position', async () => {
      for (const traceId of ['one', 'two', 'three']) await appended([entry({ traceId })]);
      const records = await withReader((reader) => readAll(reader, 0));
      assert.deepEqual(
        records.map((record) => record.traceId),
        ['one', 'two', 'three'],
      );
      assert.equal(new Set(records.map((record) => record.position)).size, 3);
    });

    test('headers are the records without their bodies, whatever the number asked for at a time', async () => {
      await appended(mixedEntries(40));
      await withReader(async (reader) => {
        const whole = (await readAll(reader, 0)).map(headerOf);
        await assertProperty(
          asyncProperty(
            integer({ min: 1, max: 100 }),
            integer({ min: 0, max: whole.length }),
            async (countMax, skip) => {
              const from = whole[skip]?.position ?? (whole.at(-1)?.position ?? 0) + 1;
              assert.deepEqual(await headersAll(reader, 0, countMax, from), whole.slice(skip));
            },
          ),
          { numRuns: 25 },
        );
      });
    });

    test('at the end of a partition there are no headers, and later those that came since', async () => {
      await withReader(async (reader) => assert.deepEqual(await reader.headers(0, 0, 10), { headers: [], next: 0 }));
      await appended([entry({ traceId: 'first' })]);
      await withReader(async (reader) => {
        const { next } = await reader.headers(0, 0, 10);
        assert.deepEqual(await reader.headers(0, next, 10), { headers: [], next });
        await appended([entry({ traceId: 'second' })]);
        const later = await reader.headers(0, next, 10);
        assert.deepEqual(
          later.headers.map((header) => header.traceId),
          ['second'],
        );
      });
    });

    test('a request is found by its trace id, with all its users, as soon as it is durable', async () => {
      const appender = await log.openAppender(0);
      for (const row of mixedEntries(30)) await appender.append(row);
      await withReader(async (reader) => {
        const records = await readAll(reader, 0);
        for (const traceId of ['trace-0', 'trace-17', 'trace-29']) {
          const expected = records.filter((record) => record.traceId === traceId).map(headerOf);
          assert.deepEqual(await reader.find(0, 0, traceId), expected);
        }
        const users = (await reader.find(0, 0, 'trace-17')).map((header) => header.userCount);
        assert.equal(sum(users), 3);
        assert.deepEqual(await reader.find(0, 0, 'trace-'), []);
        assert.deepEqual(await reader.find(1, 0, 'trace-0'), []);
      });
      await appender.close();
    });

    test('a request is found only at or after the position that is given', async () => {
      await appended(mixedEntries(10));
      await withReader(async (reader) => {
        const own = await reader.find(0, 0, 'trace-4');
        const [first, last] = [own[0]?.position ?? 0, own.at(-1)?.position ?? 0];
        assert.deepEqual(await reader.find(0, first, 'trace-4'), own);
        assert.deepEqual(await reader.find(0, first + 1, 'trace-4'), own.slice(1));
        assert.deepEqual(await reader.find(0, last + 1, 'trace-4'), []);
      });
    });

    test('the backlog is nothing at the end, more the further back, and grows with what is appended', async () => {
      await withReader(async (reader) => assert.equal(await reader.backlogBytes(0, 0), 0));
      await appended(mixedEntries(60));
      await withReader(async (reader) => {
        const records = await readAll(reader, 0);
        const end = (records.at(-1)?.position ?? 0) + 1;
        const backlogs = await Promise.all(records.map(({ position }) => reader.backlogBytes(0, position)));
        for (const [index, bytes] of backlogs.entries()) {
          assert.ok(bytes > 0);
          if (index > 0) assert.ok(bytes <= (backlogs[index - 1] ?? 0));
        }
        assert.ok((backlogs[0] ?? 0) > (backlogs.at(-1) ?? 0));
        assert.equal(await reader.backlogBytes(0, 0), backlogs[0]);
        assert.equal(await reader.backlogBytes(0, end), 0);
        await appended([entry()]);
        assert.ok((await reader.backlogBytes(0, end)) > 0);
      });
    });

    test('partitions are apart: each has its own records', async () => {
      await appended([entry({ traceId: 'in-0' })], 0);
      await appended([entry({ traceId: 'in-1' })], 1);
      await withReader(async (reader) => {
        assert.deepEqual((await reader.partitions()).slice(0, 2), [0, 1]);
        assert.deepEqual(
          (await readAll(reader, 0)).map((record) => record.traceId),
          ['in-0'],
        );
        assert.deepEqual(
          (await readAll(reader, 1)).map((record) => record.traceId),
          ['in-1'],
        );
      });
    });

    test('a committed position is remembered and never goes back', async () => {
      await appended([entry(), entry(), entry()]);
      await withReader(async (reader) => {
        assert.equal(await reader.committed(0), 0);
        const { next } = await reader.read(0, 0, 1_000_000);
        await reader.commit(0, next);
        await reader.commit(0, next - 1);
        assert.equal(await reader.committed(0), next);
      });
      await withReader(async (reader) => assert.notEqual(await reader.committed(0), 0));
    });

    test('committing keeps records that are younger than the retention', async () => {
      await appended([entry({ traceId: 'young', receivedAt: Date.now() })]);
      await appended([entry({ traceId: 'next', receivedAt: Date.now() })]);
      const reader = await log.openReader({ retentionMs: 60_000, now: Date.now });
      const records = await readAll(reader, 0);
      await reader.commit(0, (records.at(-1)?.position ?? 0) + 1);
      assert.deepEqual(
        (await readAll(reader, 0)).map((record) => record.traceId),
        ['young', 'next'],
      );
      await reader.close();
    });

    test('a closed appender refuses appends instead of losing them', async () => {
      const appender = await log.openAppender(0);
      await appender.close();
      await assert.rejects(appender.append(entry()), { name: 'LogUnavailableError' });
    });

    test('closing waits for appends that are under way', async () => {
      const appender = await log.openAppender(0);
      const appending = Array.from({ length: 50 }, (_, n) => appender.append(entry({ traceId: `trace-${n}` })));
      await appender.close();
      await Promise.all(appending);
      assert.equal((await withReader((reader) => readAll(reader, 0))).length, 50);
    });
  });
}

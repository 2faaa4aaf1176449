/**
 * The part of the event log's contract that is about looking at records without processing them: counts, headers, the
 * search for a request, and how much is still to be processed.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assert as assertProperty, asyncProperty, integer } from 'fast-check';
import {
  append,
  entry,
  headerOf,
  headersAll,
  type LogUnderTest,
  mixedEntries,
  readAll,
  sum,
  usersOf,
  withReader,
} from './log-entries.ts';

export function lookupTests(log: () => LogUnderTest): void {
  test('users and events are counted once, however a request is cut into records', async () => {
    const entries = mixedEntries(12);
    await append(log(), entries);
    const records = await withReader(log(), (reader) => readAll(reader, 0));
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

  test('the newest time of receipt is that of the last record of any partition, and 0 in an empty log', async () => {
    await withReader(log(), async (reader) => assert.equal(await reader.newestReceivedAt(), 0));
    const times = [1_000, 2_000, 2_000, 5_000].map((later) => Date.UTC(2026, 0) + later);
    // The id has the time, too.
    const traceId = (time: number): string => {
      const hex = time.toString(16).padStart(12, '0');
      return `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-000000000001`;
    };
    await append(
      log(),
      times.map((receivedAt) => entry({ traceId: traceId(receivedAt), receivedAt })),
    );
    await withReader(log(), async (reader) => assert.equal(await reader.newestReceivedAt(), times.at(-1)));
    // A start that nothing followed.
    await append(log(), []);
    await withReader(log(), async (reader) => assert.equal(await reader.newestReceivedAt(), times.at(-1)));
  });

  test('headers are the records without their bodies, whatever the number asked for at a time', async () => {
    await append(log(), mixedEntries(40));
    await withReader(log(), async (reader) => {
      const whole = (await readAll(reader, 0)).map(headerOf);
      await assertProperty(
        asyncProperty(integer({ min: 1, max: 100 }), integer({ min: 0, max: whole.length }), async (countMax, skip) => {
          const from = whole[skip]?.position ?? (whole.at(-1)?.position ?? 0) + 1;
          assert.deepEqual(await headersAll(reader, 0, countMax, from), whole.slice(skip));
        }),
        { numRuns: 25 },
      );
    });
  });

  test('the request at a position is known, and none where there is no record', async () => {
    await append(log(), [entry({ traceId: 'first' }), entry({ traceId: 'second' })]);
    await withReader(log(), async (reader) => {
      const records = await readAll(reader, 0);
      for (const { position, traceId } of records) assert.equal(await reader.traceIdAt(0, position), traceId);
      assert.equal(await reader.traceIdAt(0, (records.at(-1)?.position ?? 0) + 1), undefined);
    });
  });

  test('a log that ends before the position of a store is short by that many records, and else by none', async () => {
    await append(log(), [entry({ traceId: 'first' }), entry({ traceId: 'second' })]);
    await withReader(log(), async (reader) => {
      const end = ((await readAll(reader, 0)).at(-1)?.position ?? 0) + 1;
      for (const position of [0, end - 1, end]) assert.equal(await reader.missing(0, position), 0);
      assert.equal(await reader.missing(0, end + 7), 7);
    });
  });

  test('at the end of a partition there are no headers, and later those that came since', async () => {
    await withReader(log(), async (reader) =>
      assert.deepEqual(await reader.headers(0, 0, 10), { headers: [], next: 0 }),
    );
    await append(log(), [entry({ traceId: 'first' })]);
    await withReader(log(), async (reader) => {
      const { next } = await reader.headers(0, 0, 10);
      assert.deepEqual(await reader.headers(0, next, 10), { headers: [], next });
      await append(log(), [entry({ traceId: 'second' })]);
      const later = await reader.headers(0, next, 10);
      assert.deepEqual(
        later.headers.map((header) => header.traceId),
        ['second'],
      );
    });
  });

  test('a request is found by its trace id, with all its users, as soon as it is durable', async () => {
    const appender = await log().openAppender(0);
    for (const row of mixedEntries(30)) await appender.append(row);
    await withReader(log(), async (reader) => {
      const records = await readAll(reader, 0);
      for (const traceId of ['trace-0', 'trace-17', 'trace-29']) {
        const expected = records.filter((record) => record.traceId === traceId).map(headerOf);
        assert.deepEqual(await reader.find(0, 0, traceId), expected);
      }
      const users = (await reader.find(0, 0, 'trace-17')).map((header) => header.userCount);
      assert.equal(sum(users), 3);
      assert.deepEqual(await reader.find(0, 0, 'trace-'), []);
      if (log().hasPartitions) assert.deepEqual(await reader.find(1, 0, 'trace-0'), []);
    });
    await appender.close();
  });

  test('a request is found only at or after the position that is given', async () => {
    await append(log(), mixedEntries(10));
    await withReader(log(), async (reader) => {
      const own = await reader.find(0, 0, 'trace-4');
      const [first, last] = [own[0]?.position ?? 0, own.at(-1)?.position ?? 0];
      assert.deepEqual(await reader.find(0, first, 'trace-4'), own);
      assert.deepEqual(await reader.find(0, first + 1, 'trace-4'), own.slice(1));
      assert.deepEqual(await reader.find(0, last + 1, 'trace-4'), []);
    });
  });

  test('the backlog is nothing at the end, more the further back, and grows with what is appended', async () => {
    await withReader(log(), async (reader) => assert.equal(await reader.backlogBytes(0, 0), 0));
    await append(log(), mixedEntries(60));
    await withReader(log(), async (reader) => {
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
      await append(log(), [entry()]);
      assert.ok((await reader.backlogBytes(0, end)) > 0);
    });
  });
}

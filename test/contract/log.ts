/**
 * What every backend of the event log must do. A backend's test calls `eventLogContract` with a way to open it; the
 * assertions are the same for all. A backend may keep a request whole or cut it into users, so the suite compares
 * users, not records.
 */

import assert from 'node:assert/strict';
import { after, before, beforeEach, suite, test } from 'node:test';
import { assert as assertProperty, asyncProperty, integer } from 'fast-check';
import type { LogRecord } from '../../src/log.ts';
import { append, entry, type LogUnderTest, readAll, usersOf, withReader } from './log-entries.ts';
import { lookupTests } from './log-lookups.ts';

/** `skip`: why it cannot run here, if it cannot. */
export function eventLogContract(name: string, open: () => Promise<LogUnderTest>, skip: string | false = false): void {
  suite(`The event log on ${name}`, { skip }, () => {
    let log: LogUnderTest;
    before(async () => {
      log = await open();
    });
    beforeEach(async () => {
      await log.dispose();
      log = await open();
    });
    after(() => log.dispose());

    test('an entry is read back byte for byte, with all its fields', async () => {
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
      await append(log, [sent]);
      const [record] = await withReader(log, (reader) => readAll(reader, 0));
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
      await append(log, [entry({ users: [{ a: 1 }, 7, { a: 3 }], rejections })]);
      const users = usersOf(await withReader(log, (reader) => readAll(reader, 0)));
      assert.deepEqual(
        users.map((user) => [user.userIndex, user.rejection]),
        [
          [0, null],
          [1, 'user must be an object'],
          [2, null],
        ],
      );
    });

    test('the format of a request is kept, and only where it is not our own', async () => {
      await append(log, [entry({ traceId: 'own' }), entry({ traceId: 'foreign', format: 'segment' })]);
      const records = await withReader(log, (reader) => readAll(reader, 0));
      assert.deepEqual(
        records.map(({ traceId, format }) => [traceId, format]),
        [
          ['own', undefined],
          ['foreign', 'segment'],
        ],
      );
    });

    test('what a client dropped is kept with the first accepted user of its request, and only there', async () => {
      const users = [{ n: 0 }, { n: 1 }, { n: 2 }];
      const rejections = [{ userIndex: 0, message: 'not valid' }];
      await append(log, [entry({ users, rejections, droppedByClient: 7 }), entry({ traceId: 'none' })]);
      const records = await withReader(log, (reader) => readAll(reader, 0));
      const reports = records.filter(({ droppedByClient }) => droppedByClient !== undefined);
      assert.equal(reports.length, 1);
      const [report] = reports as [LogRecord];
      assert.equal(report.droppedByClient, 7);
      assert.ok(report.firstUserIndex <= 1 && report.rejections.length < report.userCount);
    });

    test('users come back in the order in which they were appended', async () => {
      const entries = Array.from({ length: 300 }, (_, n) =>
        entry({ traceId: `trace-${n}`, users: [{ n }, { n: -n }] }),
      );
      const appender = await log.openAppender(0);
      for (const row of entries) await appender.append(row);
      await appender.close();
      const users = usersOf(await withReader(log, (reader) => readAll(reader, 0)));
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
      const seen = await withReader(log, (reader) => readAll(reader, 0));
      assert.deepEqual(new Set(seen.map((record) => record.traceId)), new Set(traces));
      await appender.close();
    });

    test('reading continues where a batch ended, whatever the size of the batches', async () => {
      await append(
        log,
        Array.from({ length: 40 }, (_, n) => entry({ traceId: `trace-${n}`, users: [{ pad: 'x'.repeat(n * 50) }] })),
      );
      const whole = await withReader(log, (reader) => readAll(reader, 0));
      await assertProperty(
        asyncProperty(integer({ min: 1, max: 5_000 }), async (bytesMax) => {
          await withReader(log, async (reader) => {
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
      await append(log, [entry({ users: [{ pad: 'x'.repeat(100_000) }] }), entry({ traceId: 'second' })]);
      await withReader(log, async (reader) => {
        const first = await reader.read(0, 0, 10);
        assert.equal(first.records.length, 1);
        const second = await reader.read(0, first.next, 10);
        assert.equal(second.records[0]?.traceId, 'second');
      });
    });

    test('positions ascend, and reading from the position of a record gives that record first', async () => {
      await append(
        log,
        Array.from({ length: 20 }, (_, n) => entry({ traceId: `trace-${n}` })),
      );
      await withReader(log, async (reader) => {
        const records = await readAll(reader, 0);
        for (const [index, record] of records.entries()) {
          if (index > 0) assert.ok(record.position > (records[index - 1]?.position ?? Number.POSITIVE_INFINITY));
          const again = await reader.read(0, record.position, 1);
          assert.equal(again.records[0]?.traceId, record.traceId);
        }
      });
    });

    test('at the end of a partition reading gives nothing, and later what came since', async () => {
      await append(log, [entry({ traceId: 'first' })]);
      await withReader(log, async (reader) => {
        const { next } = await reader.read(0, 0, 1_000);
        assert.deepEqual(await reader.read(0, next, 1_000), { records: [], next });
        await append(log, [entry({ traceId: 'second' })]);
        const later = await reader.read(0, next, 1_000);
        assert.deepEqual(
          later.records.map((record) => record.traceId),
          ['second'],
        );
      });
    });

    test('closing and opening again loses nothing and reuses no position', async () => {
      for (const traceId of ['one', 'two', 'three']) await append(log, [entry({ traceId })]);
      const records = await withReader(log, (reader) => readAll(reader, 0));
      assert.deepEqual(
        records.map((record) => record.traceId),
        ['one', 'two', 'three'],
      );
      assert.equal(new Set(records.map((record) => record.position)).size, 3);
    });

    test('partitions are apart: each has its own records', async () => {
      await append(log, [entry({ traceId: 'in-0' })], 0);
      if (log.hasPartitions) await append(log, [entry({ traceId: 'in-1' })], 1);
      await withReader(log, async (reader) => {
        const own = log.hasPartitions ? [0, 1] : [0];
        assert.deepEqual((await reader.partitions()).slice(0, 2), own);
        for (const partition of own) {
          assert.deepEqual(
            (await readAll(reader, partition)).map((record) => [record.partition, record.traceId]),
            [[partition, `in-${partition}`]],
          );
        }
      });
    });

    test('committing keeps records that are younger than the retention', async () => {
      await append(log, [entry({ traceId: 'young', receivedAt: Date.now() })]);
      await append(log, [entry({ traceId: 'next', receivedAt: Date.now() })]);
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
      assert.equal((await withReader(log, (reader) => readAll(reader, 0))).length, 50);
    });

    lookupTests(() => log);
  });
}

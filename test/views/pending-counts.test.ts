/** What is pending in the log, counted without reading all of a backlog again. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import type { LogHeader, LogReader } from '../../src/log.ts';
import { PendingCounts, type PendingMinute } from '../../src/views/pending-counts.ts';
import { START, TENANT } from '../contract/store-feeding.ts';

const PARTITION = 3;

/** A log of which each step appends, removes or processes something. */
class GrowingLog {
  readonly headers: LogHeader[] = [];
  processed = 1;
  end = 1;
  headersRead = 0;

  append(records: number, missing: number): void {
    this.end += missing;
    for (let count = 0; count < records; count += 1, this.end += 1) {
      this.headers.push({
        partition: PARTITION,
        position: this.end,
        traceId: String(this.end),
        tenantId: this.end % 7 === 0 ? `${TENANT}2` : TENANT,
        receivedAt: START + this.end * 500,
        keyId: 'key',
        keyKind: 'secret',
        idempotencyKey: null,
        firstUserIndex: 0,
        userCount: 3,
        eventCount: this.end % 5,
        rejections: this.end % 3 === 0 ? [{ userIndex: 0, message: 'of the test' }] : [],
      });
    }
  }

  get reader(): LogReader {
    const part: Pick<LogReader, 'partitions' | 'headers'> = {
      partitions: async () => [PARTITION],
      headers: async (_partition, position, countMax) => {
        const first = this.headers.findIndex((header) => header.position >= position);
        const headers = first < 0 ? [] : this.headers.slice(first, first + countMax);
        this.headersRead += headers.length;
        return { headers, next: (headers.at(-1)?.position ?? position - 1) + 1 };
      },
    };
    return part as LogReader;
  }

  get pending(): LogHeader[] {
    return this.headers.filter(({ position }) => position >= this.processed);
  }
}

function sumsOf(minutes: Iterable<PendingMinute>): Map<string, number[]> {
  const sums = new Map<string, number[]>();
  for (const { tenantId, start, users, events, usersRejected } of minutes) {
    const key = `${start} ${tenantId}`;
    const before = sums.get(key) ?? [0, 0, 0];
    sums.set(
      key,
      [users, events, usersRejected].map((more, at) => more + (before[at] as number)),
    );
  }
  return new Map([...sums].sort(([a], [b]) => (a < b ? -1 : 1)));
}

function directly(log: GrowingLog): Map<string, number[]> {
  return sumsOf(
    log.pending.map(({ tenantId, receivedAt, userCount, eventCount, rejections }) => ({
      tenantId,
      start: Math.floor(receivedAt / 60_000) * 60_000,
      users: userCount - rejections.length,
      events: eventCount,
      usersRejected: rejections.length,
    })),
  );
}

suite('Counting what is pending', () => {
  test('returns what counting all headers returns, whatever is appended, lost and processed in between', async () => {
    const step = fc.record({
      records: fc.integer({ min: 0, max: 1_500 }),
      missing: fc.oneof({ weight: 5, arbitrary: fc.constant(0) }, fc.integer({ min: 1, max: 600 })),
      processed: fc.integer({ min: 0, max: 1_200 }),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 12 }), async (steps) => {
        const log = new GrowingLog();
        const counts = new PendingCounts(log.reader);
        for (const { records, missing, processed } of steps) {
          log.append(records, missing);
          log.processed = Math.min(log.processed + processed, log.end);
          const { minutes, gaps, ends } = await counts.countFrom(new Map([[PARTITION, log.processed]]));
          assert.deepEqual(sumsOf(minutes), directly(log));
          const { pending } = log;
          const hasGap = pending.some(({ position }, at) => position !== log.processed + at);
          assert.deepEqual(gaps, hasGap ? [PARTITION] : []);
          const end = (pending.at(-1)?.position ?? log.processed - 1) + 1;
          assert.deepEqual(ends, new Map([[PARTITION, end]]));
        }
      }),
      { numRuns: 25 },
    );
  });

  test('reads a long backlog once: later calls read its two ends and what is new', async () => {
    const log = new GrowingLog();
    const counts = new PendingCounts(log.reader);
    log.append(20_000, 0);
    await counts.countFrom(new Map([[PARTITION, log.processed]]));
    for (let call = 0; call < 20; call += 1) {
      log.append(700, 0);
      log.processed += 1_234;
      log.headersRead = 0;
      const { minutes } = await counts.countFrom(new Map([[PARTITION, log.processed]]));
      assert.deepEqual(sumsOf(minutes), directly(log));
      assert.ok(log.headersRead < 512 + 700 + 512, `${log.headersRead} headers were read`);
    }
  });
});

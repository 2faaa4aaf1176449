/** The event log's contract on SQLite, and what only SQLite's segments do. */

import assert from 'node:assert/strict';
import { cpSync, existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { openSqliteLogReader } from '../../src/backends/sqlite/log-reader.ts';
import { hasWal, listSegments } from '../../src/backends/sqlite/log-segments.ts';
import { openSqliteLogAppender } from '../../src/backends/sqlite/log.ts';
import type { LogAppender } from '../../src/log.ts';
import { eventually, removeFolder, temporaryFolder } from '../server.ts';
import { entry, eventLogContract, type LogUnderTest, readAll } from './log.ts';

const SEGMENT_BYTES = 64 * 1024;

function openIn(folder: string, partition = 0): Promise<LogAppender> {
  return openSqliteLogAppender({
    folder,
    partition,
    partitions: 1,
    segmentBytes: SEGMENT_BYTES,
    metrics: null,
    onFatal: (message) => assert.fail(message),
  });
}

function sqliteLog(): Promise<LogUnderTest> {
  const base = temporaryFolder();
  const folder = join(base, 'log');
  mkdirSync(folder);
  return Promise.resolve({
    openAppender: (partition: number) => openIn(folder, partition),
    openReader: ({ retentionMs = Number.MAX_SAFE_INTEGER, now = Date.now } = {}) =>
      Promise.resolve(openSqliteLogReader({ folder, retentionMs, now })),
    dispose: () => Promise.resolve(removeFolder(base)),
  });
}

eventLogContract('SQLite', sqliteLog);

suite('Segments of the SQLite log', () => {
  async function inFolder(use: (folder: string) => Promise<void>): Promise<void> {
    const base = temporaryFolder();
    const folder = join(base, 'log');
    mkdirSync(folder);
    try {
      await use(folder);
    } finally {
      removeFolder(base);
    }
  }

  async function fill(folder: string, entries: number, receivedAt = 1_000): Promise<void> {
    const appender = await openIn(folder);
    for (let n = 0; n < entries; n++) {
      await appender.append(entry({ traceId: `trace-${n}`, receivedAt, users: [{ pad: 'x'.repeat(10_000) }] }));
    }
    await appender.close();
  }

  test('a full segment is followed by a new one, and records are read across them', async () => {
    await inFolder(async (folder) => {
      await fill(folder, 40);
      assert.ok(listSegments(folder, 0).length >= 5);
      const reader = openSqliteLogReader({ folder, retentionMs: 0, now: Date.now });
      const records = await readAll(reader, 0);
      assert.deepEqual(
        records.map((record) => record.traceId),
        Array.from({ length: 40 }, (_, n) => `trace-${n}`),
      );
      await reader.close();
    });
  });

  test('finished segments lose their write-ahead log, in the background', async () => {
    await inFolder(async (folder) => {
      const appender = await openIn(folder);
      for (let n = 0; n < 20; n++) await appender.append(entry({ users: [{ pad: 'x'.repeat(10_000) }] }));
      const finished = listSegments(folder, 0).slice(0, -1);
      assert.ok(finished.length >= 1);
      await eventually('all finished segments are sealed', () =>
        finished.every((segment) => !existsSync(`${segment.file}-wal`)),
      );
      await appender.close();
    });
  });

  test('segments that are processed and older than the retention are removed, the newest never', async () => {
    await inFolder(async (folder) => {
      await fill(folder, 40, 1_000);
      const before = listSegments(folder, 0);
      const reader = openSqliteLogReader({ folder, retentionMs: 500, now: () => 2_000 });
      const half = before[2]?.firstPosition ?? 0;
      await reader.commit(0, half);
      assert.deepEqual(listSegments(folder, 0), before.slice(2));
      await reader.commit(0, Number.MAX_SAFE_INTEGER);
      assert.deepEqual(listSegments(folder, 0), before.slice(-1));
      await reader.close();
      const appender = await openIn(folder);
      await appender.append(entry({ traceId: 'after' }));
      await appender.close();
      const again = openSqliteLogReader({ folder, retentionMs: 500, now: () => 2_000 });
      const position = (await readAll(again, 0)).at(-1)?.position;
      assert.equal(position, 41);
      await again.close();
    });
  });

  test('segments are removed once, and nothing brings them back', async () => {
    await inFolder(async (folder) => {
      const appender = await openIn(folder);
      for (let n = 0; n < 40; n++)
        await appender.append(entry({ receivedAt: 1, users: [{ pad: 'x'.repeat(10_000) }] }));
      const reader = openSqliteLogReader({ folder, retentionMs: 0, now: Date.now });
      // Commits race with the thread that seals; in the end all but the newest are gone.
      await eventually('all processed segments are removed', async () => {
        await reader.commit(0, 41);
        return listSegments(folder, 0).length === 1;
      });
      await appender.close();
      await reader.commit(0, 41);
      assert.equal(listSegments(folder, 0).length, 1);
      await reader.close();
    });
  });

  test('a partition that nobody writes to any more is still checked and sealed', async () => {
    await inFolder(async (folder) => {
      const second = await openIn(folder, 1);
      await second.append(entry({ traceId: 'left behind' }));
      const [segment] = listSegments(folder, 1);
      assert.ok(segment);
      // As a killed process leaves it: with its write-ahead log.
      const left = `${folder}-left`;
      cpSync(folder, left, { recursive: true });
      await second.close();
      const first = await openIn(left, 0);
      await eventually('it is sealed', () => !hasWal(segment.file.replace(folder, left)));
      const reader = openSqliteLogReader({ folder: left, retentionMs: 0, now: Date.now });
      assert.deepEqual(
        (await readAll(reader, 1)).map((record) => record.traceId),
        ['left behind'],
      );
      await reader.close();
      await first.close();
    });
  });

  test('every start begins a new segment and leaves no empty ones behind', async () => {
    await inFolder(async (folder) => {
      for (let start = 0; start < 5; start++) await (await openIn(folder)).close();
      assert.equal(listSegments(folder, 0).length, 1);
      for (let start = 0; start < 3; start++) {
        const appender = await openIn(folder);
        await appender.append(entry({ traceId: `start-${start}` }));
        await appender.close();
      }
      assert.equal(listSegments(folder, 0).length, 3);
    });
  });
});

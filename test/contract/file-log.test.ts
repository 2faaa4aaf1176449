/** The event log's contract on files, and what only segments do. */

import assert from 'node:assert/strict';
import {
  appendFileSync,
  cpSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, suite, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { LogEnds, readLogEnds } from '../../src/backends/embedded/log/ends.ts';
import {
  encodeEntry,
  encodeFrame,
  encodeHeader,
  PREFIX_BYTES,
  seedOf,
} from '../../src/backends/embedded/log/frames.ts';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import { listSegments } from '../../src/backends/embedded/log/segments.ts';
import { openEmbeddedLogAppender } from '../../src/backends/embedded/log/appender.ts';
import { assertOwnSegments } from '../../src/backends/embedded/log/name.ts';
import { type LogAppender, LogCorruptError } from '../../src/log.ts';
import { eventually, removeFolder, temporaryFolder } from '../server.ts';
import { cutIntoUsers } from './cut-log.ts';
import { entry, type LogUnderTest, readAll } from './log-entries.ts';
import { eventLogContract } from './log.ts';

const SEGMENT_BYTES = 64 * 1024;

/** The thread of an appender keeps the process alive, so one that a failed test has left open is closed for it. */
const appenders = new Set<LogAppender>();
afterEach(async () => {
  await Promise.all([...appenders].map((appender) => appender.close()));
  appenders.clear();
});

async function openIn(folder: string, segmentBytes = SEGMENT_BYTES): Promise<LogAppender> {
  const appender = await openEmbeddedLogAppender({
    folder,
    segmentBytes,
    metrics: null,
    onFatal: (message) => assert.fail(message),
  });
  appenders.add(appender);
  return appender;
}

function fileLog(): Promise<LogUnderTest> {
  const base = temporaryFolder();
  const folder = join(base, 'log');
  mkdirSync(folder);
  return Promise.resolve({
    hasPartitions: false,
    openAppender: () => openIn(folder),
    openReader: ({ retentionMs = Number.MAX_SAFE_INTEGER, now = Date.now } = {}) =>
      Promise.resolve(openEmbeddedLogReader({ folder, retentionMs, now })),
    dispose: () => Promise.resolve(removeFolder(base)),
  });
}

eventLogContract('files', fileLog);
eventLogContract('files, with requests cut into users', async () => cutIntoUsers(await fileLog()));

suite('Segments of the embedded log', () => {
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
      assert.ok(listSegments(folder).length >= 5);
      const reader = openEmbeddedLogReader({ folder, retentionMs: 0, now: Date.now });
      const records = await readAll(reader, 0);
      assert.deepEqual(
        records.map((record) => record.traceId),
        Array.from({ length: 40 }, (_, n) => `trace-${n}`),
      );
      await reader.close();
    });
  });

  test('segments that are processed and older than the retention are removed, the newest never', async () => {
    await inFolder(async (folder) => {
      await fill(folder, 40, 1_000);
      const before = listSegments(folder);
      const reader = openEmbeddedLogReader({ folder, retentionMs: 500, now: () => 2_000 });
      const half = before[2]?.firstPosition ?? 0;
      await reader.commit(0, half);
      assert.deepEqual(listSegments(folder), before.slice(2));
      await reader.commit(0, 41);
      assert.deepEqual(listSegments(folder), before.slice(-1));
      await reader.close();
      const appender = await openIn(folder);
      await appender.append(entry({ traceId: 'after' }));
      await appender.close();
      const again = openEmbeddedLogReader({ folder, retentionMs: 500, now: () => 2_000 });
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
      const reader = openEmbeddedLogReader({ folder, retentionMs: 0, now: Date.now });
      await eventually('all processed segments are removed', async () => {
        await reader.commit(0, 41);
        return listSegments(folder).length === 1;
      });
      await appender.close();
      await reader.commit(0, 41);
      assert.equal(listSegments(folder).length, 1);
      await reader.close();
    });
  });

  test('the segment that a killed process left is read on, without what it had not finished', async () => {
    await inFolder(async (folder) => {
      const killed = await openIn(folder);
      await killed.append(entry({ traceId: 'left behind' }));
      const [segment] = listSegments(folder);
      assert.ok(segment);
      const left = `${folder}-left`;
      cpSync(folder, left, { recursive: true });
      await killed.close();
      const file = segment.file.replace(folder, left);
      const whole = statSync(file).size;
      // The first half of another record.
      appendFileSync(file, readFileSync(file).subarray(-300, -100));
      const next = await openIn(left);
      assert.equal(statSync(file).size, whole);
      const reader = openEmbeddedLogReader({ folder: left, retentionMs: 0, now: Date.now });
      assert.deepEqual(
        (await readAll(reader, 0)).map((record) => record.traceId),
        ['left behind'],
      );
      await reader.close();
      await next.close();
    });
  });

  test('every start begins a new segment and leaves no empty ones behind', async () => {
    await inFolder(async (folder) => {
      for (let start = 0; start < 5; start++) await (await openIn(folder)).close();
      assert.equal(listSegments(folder).length, 1);
      for (let start = 0; start < 3; start++) {
        const appender = await openIn(folder);
        await appender.append(entry({ traceId: `start-${start}` }));
        await appender.close();
      }
      assert.equal(listSegments(folder).length, 3);
    });
  });

  test('a segment does not grow for longer than it may, without a further request too', async () => {
    await inFolder(async (folder) => {
      const segmentMsMax = 1_500;
      const setup = { folder, segmentBytes: SEGMENT_BYTES, segmentMsMax, metrics: null, onFatal: assert.fail };
      const appender = await openEmbeddedLogAppender(setup);
      appenders.add(appender);
      const firstPositions = () => listSegments(folder).map(({ firstPosition }) => firstPosition);
      await sleep(segmentMsMax + 200);
      await appender.append(entry({ traceId: 'one' }));
      assert.deepEqual(firstPositions(), [1], 'its time begins with its first record');
      await eventually('the next segment', () => Promise.resolve(firstPositions().length === 2));
      await sleep(segmentMsMax + 1_200);
      assert.deepEqual(firstPositions(), [1, 2], 'an empty one is not replaced');
      await appender.append(entry({ traceId: 'two' }));
      const reader = openEmbeddedLogReader({ folder });
      assert.deepEqual(
        (await readAll(reader, 0)).map(({ traceId }) => traceId),
        ['one', 'two'],
      );
    });
  });

  test('a start that was interrupted while it created a segment does not make the one before it look old', async () => {
    await inFolder(async (folder) => {
      await fill(folder, 1, 5_000);
      // Half of a header.
      writeFileSync(join(folder, '0000000000000002.log'), '00000000 000000');
      await fill(folder, 1, 6_000);
      await fill(folder, 1, 7_000);
      assert.equal(listSegments(folder).length, 3);
      const reader = openEmbeddedLogReader({ folder, retentionMs: 1_000, now: () => 6_500 });
      await reader.commit(0, 4);
      assert.deepEqual(
        listSegments(folder).map(({ firstPosition }) => firstPosition),
        [2, 3],
      );
      const younger = openEmbeddedLogReader({ folder, retentionMs: 1_000, now: () => 6_999 });
      await younger.commit(0, 4);
      assert.equal(listSegments(folder).length, 2);
      assertOwnSegments(folder);
    });
  });

  test('a reader remembers no place that the writer may still cut off', async () => {
    await inFolder(async (folder) => {
      const appender = await openIn(folder, 1e9);
      for (let n = 1; n <= 4; n++)
        await appender.append(entry({ traceId: `trace-${n}`, users: [{ pad: 'x'.repeat(100_000) }] }));
      const [segment] = listSegments(folder);
      assert.ok(segment);
      const bytes = readFileSync(segment.file);
      const reader = openEmbeddedLogReader({ folder });
      // As if the third were being written: log-ends is that of the second.
      const third = bytes.indexOf('[3,3,') - PREFIX_BYTES;
      const ends = readLogEnds(folder);
      assert.ok(ends !== undefined && ends.bytes === bytes.length);
      const before = new LogEnds(folder, ends.logName, 1);
      before.afterCommit({ ...ends, position: 3, bytes: third });
      before.close();
      assert.equal((await reader.find(0, 1, 'trace-3')).length, 1);
      // The disk was full, and other records follow: of a size that moves the next ones.
      truncateSync(segment.file, third);
      const seed = seedOf(ends.segment.id);
      for (const [position, size] of [
        [3, 10_000],
        [4, 150_000],
        [5, 10],
      ] as const) {
        const header = encodeHeader(position, position, 1, encodeEntry(entry({ traceId: `other-${position}` })));
        for (const piece of encodeFrame(header, Buffer.alloc(size, 'y'), seed)) appendFileSync(segment.file, piece);
      }
      for (const traceId of ['trace-2', 'other-3', 'other-4', 'other-5']) {
        assert.equal((await reader.find(0, 1, traceId)).length, 1, traceId);
      }
      assert.equal((await reader.find(0, 4, 'other-4')).length, 1);
      assert.equal((await reader.find(0, 1, 'trace-3')).length, 0);
    });
  });

  test('a segment of another version is refused, and its file is named', async () => {
    await inFolder(async (folder) => {
      await fill(folder, 1);
      const [segment] = listSegments(folder);
      assert.ok(segment);
      const text = readFileSync(segment.file, 'latin1');
      const header = text.slice(PREFIX_BYTES, text.indexOf('\n')).replace('{"format":1,', '{"format":2,');
      const frame = Buffer.concat(encodeFrame(header, new Uint8Array(), 0)).toString('latin1');
      writeFileSync(segment.file, frame + text.slice(frame.length), 'latin1');
      const reader = openEmbeddedLogReader({ folder });
      const message = `The log segment ${segment.file} has the format 2, which another version of Sluice wrote; use that version, or a new data folder.`;
      await assert.rejects(reader.read(0, 1, 1e6), { name: 'LogCorruptError', message });
      await assert.rejects(openIn(folder), { message });
    });
  });

  test('headers and the search for a request continue across segments', async () => {
    await inFolder(async (folder) => {
      await fill(folder, 40);
      const reader = openEmbeddedLogReader({ folder, retentionMs: 0, now: Date.now });
      const { headers, next } = await reader.headers(0, 3, 30);
      assert.deepEqual(
        headers.map(({ position, traceId }) => [position, traceId]),
        Array.from({ length: 30 }, (_, n) => [n + 3, `trace-${n + 2}`]),
      );
      assert.equal(next, 33);
      const [found] = await reader.find(0, 3, 'trace-38');
      assert.equal(found?.position, 39);
      await reader.close();
    });
  });

  test('headers and the search for a request do not look at bodies', async () => {
    await inFolder(async (folder) => {
      await fill(folder, 3);
      const [segment] = listSegments(folder);
      assert.ok(segment);
      const bytes = readFileSync(segment.file);
      bytes.fill('y', bytes.lastIndexOf('xxxxxxxx'), bytes.lastIndexOf('xxxxxxxx') + 8);
      writeFileSync(segment.file, bytes);
      const reader = openEmbeddedLogReader({ folder, retentionMs: 0, now: Date.now });
      await assert.rejects(readAll(reader, 0), { name: 'LogCorruptError' });
      assert.equal((await reader.headers(0, 0, 10)).headers.length, 3);
      assert.equal((await reader.find(0, 0, 'trace-2')).length, 1);
      await reader.close();
    });
  });

  for (const [what, fault] of [
    ['gone', (file: string) => rmSync(file)],
    ['empty', (file: string) => truncateSync(file, 0)],
    ['cut short', (file: string) => truncateSync(file, 5_000)],
  ] as const) {
    test(`where a segment is ${what}, its records count as missing, it is named, and headers continue after it`, async () => {
      await inFolder(async (folder) => {
        await fill(folder, 40);
        const [, second, third] = listSegments(folder);
        assert.ok(second && third);
        fault(second.file);
        const reader = openEmbeddedLogReader({ folder, retentionMs: 0, now: Date.now });
        const gone = third.firstPosition - second.firstPosition;
        assert.equal(await reader.missing(0, 0), gone);
        assert.equal((await reader.headers(0, 0, 100)).headers.length, 40 - gone);
        const { next } = await reader.read(0, 0, 1_000_000);
        assert.equal(next, second.firstPosition);
        await assert.rejects(reader.read(0, next, 1_000_000), (error: Error) => {
          assert.equal(error instanceof LogCorruptError && error.message.includes(second.file), true, error.message);
          return true;
        });
        await reader.close();
      });
    });
  }

  test('a segment that is removed during the search for a request does not end it', async () => {
    await inFolder(async (folder) => {
      await fill(folder, 40);
      const reader = openEmbeddedLogReader({ folder, retentionMs: 0, now: Date.now });
      const finding = reader.find(0, 0, 'trace-39');
      const [, second] = listSegments(folder);
      assert.ok(second);
      rmSync(second.file);
      assert.equal((await finding)[0]?.position, 40);
      await reader.close();
    });
  });

  test('the backlog is the size of the segments that are not processed, and a share of the one that is half done', async () => {
    await inFolder(async (folder) => {
      await fill(folder, 40);
      const segments = listSegments(folder);
      const reader = openEmbeddedLogReader({ folder, retentionMs: 0, now: Date.now });
      const sizes = segments.map(({ file }) => statSync(file).size);
      const total = sizes.reduce((sum, size) => sum + size, 0);
      const [first = 0] = sizes;
      const inSecond = segments[1]?.firstPosition ?? 0;
      assert.equal(await reader.backlogBytes(0, 0), total);
      assert.equal(await reader.backlogBytes(0, inSecond), total - first);
      const done = 2;
      const share = (inSecond - 1 - done) / (inSecond - 1);
      assert.equal(await reader.backlogBytes(0, 1 + done), Math.ceil(total - first + first * share));
      await reader.close();
    });
  });

  test('a batch has a bound of its own, for bodies and for what is said about them', async () => {
    await inFolder(async (folder) => {
      const appender = await openIn(folder, 1_000_000_000);
      const long = '"'.repeat(9_000_000);
      for (let n = 0; n < 8; n++) {
        const rejections = n < 4 ? [] : [{ userIndex: 0, message: long }];
        await appender.append(entry({ traceId: `trace-${n}`, users: [n < 4 ? { long } : 0], rejections }));
      }
      const reader = openEmbeddedLogReader({ folder, retentionMs: 0, now: Date.now });
      for (let position = 1; position <= 8; ) {
        const { records, next } = await reader.read(0, position, Number.POSITIVE_INFINITY);
        assert.ok(records.length > 0 && records.length < 4);
        for (const [index, { traceId }] of records.entries()) assert.equal(traceId, `trace-${position - 1 + index}`);
        position = next;
      }
      await reader.close();
      await appender.close();
    });
  });
});

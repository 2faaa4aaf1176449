/** What a crash leaves of the newest segment: an interrupted commit is cut off, damage to anything else is refused. */

import assert from 'node:assert/strict';
import { readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { openEmbeddedLogAppender } from '../../../src/backends/embedded/log/appender.ts';
import { inspectSegment, recoverSegment } from '../../../src/backends/embedded/log/recovery.ts';
import { openEmbeddedLogReader } from '../../../src/backends/embedded/log/reader.ts';
import { listSegments, type Segment } from '../../../src/backends/embedded/log/segments.ts';
import { entry, readAll } from '../../contract/log-entries.ts';
import { folderIn, type Scope } from '../../faults/scope.ts';

const CONSUMER = { consumer: { receiptTime: Date.now } };

interface Log {
  readonly folder: string;
  readonly segment: Segment;
  readonly text: string;
  /** `log-ends` after each commit. */
  readonly ends: readonly string[];
}

/** Positions 1 to 3, 4 to 6 and 7 to 9, each three in a commit of their own. */
async function threeCommits(scope: Scope): Promise<Log> {
  const folder = join(folderIn(scope), 'log');
  const log = await openEmbeddedLogAppender({ folder, segmentBytes: 1e6, metrics: null, onFatal: assert.fail });
  const ends: string[] = [];
  for (const commit of [1, 4, 7]) {
    const positions = [commit, commit + 1, commit + 2];
    await Promise.all(positions.map((n) => log.append(entry({ traceId: `trace-${n}` }))));
    ends.push(readFileSync(`${folder}-ends`, 'latin1'));
  }
  await log.close();
  const [segment] = listSegments(folder);
  assert.ok(segment);
  const text = readFileSync(segment.file, 'latin1');
  for (const n of [1, 4, 7])
    assert.match(text, new RegExp(`\\[${n + 2},${n},\\d+,"trace-${n + 2}"`), 'each is one commit');
  return { folder, segment, text, ends };
}

/** Zeros in place of these records, as if their pages had never reached the disk. */
function without({ segment, text }: Log, ...positions: readonly number[]): void {
  const bytes = Buffer.from(text, 'latin1');
  for (const position of positions) {
    const start = text.lastIndexOf('\n', text.indexOf(`[${position},`)) + 1;
    const end = text.indexOf('\n', text.indexOf('\n', start) + 1) + 1;
    bytes.fill(0, start, end);
  }
  writeFileSync(segment.file, bytes);
}

async function tracesIn(folder: string, isConsumer = false): Promise<string[]> {
  const reader = openEmbeddedLogReader({ folder, ...(isConsumer && CONSUMER) });
  try {
    return (await readAll(reader, 0)).map(({ traceId }) => traceId);
  } finally {
    await reader.close();
  }
}

const traces = (to: number): string[] => Array.from({ length: to }, (_, n) => `trace-${n + 1}`);

suite('The newest segment after a crash', () => {
  for (const [what, missing, left] of [
    ['its first record', [7], 6],
    ['a record in its middle', [8], 7],
    ['its last record', [9], 8],
    ['all of its records', [7, 8, 9], 6],
  ] as const) {
    test(`loses the rest of a commit that is without ${what}, and keeps all before it`, async () => {
      await using scope = new AsyncDisposableStack();
      const log = await threeCommits(scope);
      without(log, ...missing);
      // The commit was not acknowledged.
      writeFileSync(`${log.folder}-ends`, log.ends[1] ?? '');
      const found = recoverSegment(log.segment);
      assert.equal(found.end, left + 1);
      assert.equal(statSync(log.segment.file).size, found.bytes);
      assert.deepEqual(await tracesIn(log.folder), traces(left));
      assert.deepEqual(recoverSegment(log.segment), found);
    });
  }

  test('is refused if a record is missing that log-ends has, and nothing is changed', async () => {
    await using scope = new AsyncDisposableStack();
    const log = await threeCommits(scope);
    without(log, 8);
    const before = readFileSync(log.segment.file);
    assert.throws(() => recoverSegment(log.segment), {
      name: 'LogCorruptError',
      message: /is damaged: at position 8, which was acknowledged\. With the server stopped, put .+ back from a backup/,
    });
    assert.ok(readFileSync(log.segment.file).equals(before));
  });

  for (const position of [2, 3, 5, 6]) {
    test(`is refused if record ${position} of an earlier commit is missing, without log-ends too`, async () => {
      await using scope = new AsyncDisposableStack();
      const log = await threeCommits(scope);
      without(log, position);
      rmSync(`${log.folder}-ends`);
      assert.throws(() => inspectSegment(log.segment), {
        name: 'LogCorruptError',
        message: new RegExp(`is damaged: records follow a damaged part, at position ${position}\\.`),
      });
    });
  }
});

test('The processor reads only what is acknowledged, other readers whatever is there', async () => {
  await using scope = new AsyncDisposableStack();
  const { folder, ends } = await threeCommits(scope);
  assert.deepEqual(await tracesIn(folder, true), traces(9));
  writeFileSync(`${folder}-ends`, ends[0] ?? '');
  assert.deepEqual(await tracesIn(folder, true), traces(3));
  assert.deepEqual(await tracesIn(folder), traces(9));
  const consumer = openEmbeddedLogReader({ folder, ...CONSUMER });
  assert.deepEqual((await consumer.headers(0, 2, 10)).headers.length, 2);
  writeFileSync(`${folder}-ends`, ends[1] ?? '');
  assert.deepEqual((await consumer.read(0, 4, 1e6)).next, 7);
  await consumer.close();
});

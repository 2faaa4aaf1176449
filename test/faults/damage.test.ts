/**
 * Random damage to the files of the log, by the hundred, from a seed that is printed: a byte changed, a sector zeroed, a
 * page written over another, a file cut short. Whatever it hits, reading gives exactly what was written or says that
 * the segment is damaged. Damage in the last commit of a killed process cannot be distinguished from a commit that a crash
 * cut short; there, and nowhere else, it may be taken for that one.
 */

import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import { inspectSegment, recoverSegment } from '../../src/backends/embedded/log/recovery.ts';
import { listSegments, type Segment } from '../../src/backends/embedded/log/segments.ts';
import { openEmbeddedLogAppender } from '../../src/backends/embedded/log/appender.ts';
import type { LogAppender, LogRecord } from '../../src/log.ts';
import { entry, readAll } from '../contract/log-entries.ts';
import { seededRandom } from './ledger.ts';
import { folderIn, type Scope } from './scope.ts';

const SECTOR_BYTES = 512;
const PAGE_BYTES = 4_096;
const ROUNDS = 400;

type Random = () => number;

function below(random: Random, limit: number): number {
  return Math.floor(random() * limit);
}

/** Most damage is to bodies; lengths and the head of a segment are small, so they get a share of their own. */
function damage(bytes: Buffer, random: Random): { bytes: Buffer; what: string } {
  const damaged = Buffer.from(bytes);
  const pages = Math.max(1, Math.floor(bytes.length / PAGE_BYTES));
  const page = below(random, pages) * PAGE_BYTES;
  const change = (at: number, what: string) => {
    damaged[at] = (damaged[at] ?? 0) ^ (1 + below(random, 255));
    return { bytes: damaged, what: `${what} changed at ${at}` };
  };
  switch (below(random, 6)) {
    case 0:
      return change(below(random, 100), 'a byte of the head');
    case 1: {
      const line = bytes.indexOf('\n', below(random, bytes.length));
      return change((line < 0 ? 0 : line) + below(random, 28), 'a byte at the start of a line');
    }
    case 2: {
      const sector = below(random, Math.ceil(bytes.length / SECTOR_BYTES)) * SECTOR_BYTES;
      damaged.fill(0, sector, Math.min(sector + SECTOR_BYTES, damaged.length));
      return { bytes: damaged, what: `the sector at ${sector} zeroed` };
    }
    case 3: {
      const from = below(random, pages) * PAGE_BYTES;
      damaged.copy(damaged, page, from, from + PAGE_BYTES);
      return { bytes: damaged, what: `the page at ${from} written over the one at ${page}` };
    }
    case 4: {
      const length = below(random, bytes.length);
      return { bytes: damaged.subarray(0, length), what: `cut to ${length} bytes` };
    }
    default:
      return change(below(random, bytes.length), 'a byte');
  }
}

async function openLog(folder: string, segmentBytes: number): Promise<LogAppender> {
  mkdirSync(folder);
  return openEmbeddedLogAppender({
    folder,
    segmentBytes,
    metrics: null,
    onFatal: (message) => assert.fail(message),
  });
}

/** Bodies of many sizes: several to a page, and some over several pages. */
async function fill(log: LogAppender, entries: number, random: Random): Promise<void> {
  for (let n = 0; n < entries; n++) {
    const isLong = n % 7 === 0;
    await log.append(
      entry({
        traceId: `trace-${n}`,
        idempotencyKey: n % 2 === 0 ? `key-${n}` : null,
        users: [{ n, pad: 'x'.repeat(below(random, isLong ? 40_000 : 900)) }, 7],
        rejections: n % 3 === 0 ? [{ userIndex: 1, message: 'user must be an object' }] : [],
      }),
    );
  }
}

async function recordsIn(folder: string): Promise<LogRecord[]> {
  const reader = openEmbeddedLogReader({ folder, retentionMs: 0, now: Date.now });
  try {
    return await readAll(reader, 0);
  } finally {
    await reader.close();
  }
}

/** Undefined when the log says that it is damaged; any other error is a bug. */
async function recordsUnlessDamaged(folder: string): Promise<LogRecord[] | undefined> {
  try {
    return await recordsIn(folder);
  } catch (error) {
    if ((error as Error).name === 'LogCorruptError') return undefined;
    throw error;
  }
}

function copyOf(scope: Scope, folder: string): string {
  const copy = join(folderIn(scope), 'log');
  mkdirSync(copy, { recursive: true });
  for (const { file } of listSegments(folder)) copyFileSync(file, file.replace(folder, copy));
  return copy;
}

suite('Random damage', () => {
  test('to sealed segments is noticed or harmless, never read as data', async (t) => {
    const random = seededRandom((line) => t.diagnostic(line));
    await using scope = new AsyncDisposableStack();
    const folder = join(folderIn(scope), 'log');
    const log = await openLog(folder, 256 * 1_024);
    await fill(log, 150, random);
    await log.close();
    // A later start makes a new segment, so that all of these have one behind them.
    const next = await openEmbeddedLogAppender({
      folder,
      segmentBytes: 1e6,
      metrics: null,
      onFatal: assert.fail,
    });
    await next.close();
    const written = await recordsIn(folder);
    const segments = listSegments(folder).slice(0, -1);
    assert.ok(segments.length >= 2);

    let noticed = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const { file } = segments[below(random, segments.length)] ?? { file: '' };
      const whole = readFileSync(file);
      const { bytes, what } = damage(whole, random);
      writeFileSync(file, bytes);
      const read = await recordsUnlessDamaged(folder);
      if (read === undefined) noticed += 1;
      else assertSame(read, written, `${what} was read as data`);
      writeFileSync(file, whole);
    }
    t.diagnostic(`${noticed} of ${ROUNDS} were noticed, the others harmless`);
    assert.ok(noticed > ROUNDS / 4);
    assertSame(await recordsIn(folder), written, 'the undamaged log');
  });

  test('to the segment of a killed process is refused, or reaches into its last commit', async (t) => {
    const random = seededRandom((line) => t.diagnostic(line));
    await using scope = new AsyncDisposableStack();
    const folder = join(folderIn(scope), 'log');
    const log = await openLog(folder, 64 * 1_024 * 1_024);
    await fill(log, 60, random);
    // What lies there between two commits is what a killed process leaves.
    const left = copyOf(scope, folder);
    const written = await recordsIn(folder);
    await log.close();
    const [segment] = listSegments(left);
    assert.ok(segment && written.length === 60);
    const { file } = segment;
    const whole = readFileSync(file);
    const { lastCommitAt = 0 } = inspectSegment(segment);

    let refused = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const { bytes, what } = damage(whole, random);
      // A log cut short before its last commit looks like one that was never written further: no check could tell.
      if (bytes.length < lastCommitAt) continue;
      writeFileSync(file, bytes);
      if (isRefused(segment)) {
        refused += 1;
        continue;
      }
      const read = await recordsIn(left);
      assertSame(read, written.slice(0, read.length), what);
      const isAtEnd = !bytes.subarray(lastCommitAt).equals(whole.subarray(lastCommitAt));
      assert.ok(read.length === written.length || isAtEnd, `${what} cost ${written.length - read.length} commits`);
    }
    t.diagnostic(`${refused} of ${ROUNDS} were refused, the others harmless or at the end`);
    assert.ok(refused > ROUNDS / 4);
  });
});

test('Any one byte of the segment of a killed process, changed before its last commit, is refused', async () => {
  await using scope = new AsyncDisposableStack();
  const folder = join(folderIn(scope), 'log');
  const log = await openLog(folder, 1e6);
  for (const traceId of ['one', 'two', 'three']) await log.append(entry({ traceId, users: [{ traceId }] }));
  const left = copyOf(scope, folder);
  await log.close();
  const [segment] = listSegments(left);
  assert.ok(segment);
  const whole = readFileSync(segment.file);
  const { lastCommitAt = 0 } = inspectSegment(segment);
  assert.ok(lastCommitAt > whole.length / 2);

  for (let at = 0; at < lastCommitAt; at++) {
    const changed = Buffer.from(whole);
    changed[at] = (whole[at] ?? 0) ^ 1;
    writeFileSync(segment.file, changed);
    assert.ok(isRefused(segment), `a byte changed at ${at} of ${lastCommitAt}`);
  }
});

/** Without a diff: of two logs that differ, Node would need gigabytes to make one. */
function assertSame(read: readonly LogRecord[], written: readonly LogRecord[], what: string): void {
  assert.ok(isDeepStrictEqual(read, written), what);
}

function isRefused(segment: Segment): boolean {
  try {
    recoverSegment(segment);
    return false;
  } catch (error) {
    assert.equal((error as Error).name, 'LogCorruptError');
    return true;
  }
}

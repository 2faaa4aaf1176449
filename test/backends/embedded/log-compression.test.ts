/**
 * Segments that are processed are compressed after a while. To readers, backups and the doctor they are segments like all
 * others; what a crash leaves of a compression does no harm.
 */

import assert from 'node:assert/strict';
import {
  copyFileSync,
  cpSync,
  existsSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { suite, test } from 'node:test';
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import { openEmbeddedLogAppender } from '../../../src/backends/embedded/log/appender.ts';
import { openEmbeddedLogReader } from '../../../src/backends/embedded/log/reader.ts';
import { listSegments } from '../../../src/backends/embedded/log/segments.ts';
import type { LogReader } from '../../../src/log.ts';
import { backup, restore } from '../../cli/backing-up.ts';
import { openDataFolder } from '../../cli/data-shell.ts';
import { doctorHere } from '../../cli/doctor-shell.ts';
import { entry, readAll } from '../../contract/log-entries.ts';
import { folderIn, type Scope } from '../../faults/scope.ts';
import { eventually, user } from '../../server.ts';

const RECEIVED = 1_700_000_000_000;
const MINUTE_MS = 60_000;
const ENTRIES = 40;

/** Segments of about six records each. */
async function filledLog(scope: Scope): Promise<string> {
  const folder = join(folderIn(scope), 'log');
  const log = await openEmbeddedLogAppender({ folder, segmentBytes: 65_536, metrics: null, onFatal: assert.fail });
  for (let n = 1; n <= ENTRIES; n++) {
    const pad = `${n} `.repeat(4_000).slice(0, 10_000);
    await log.append(entry({ traceId: `trace-${n}`, receivedAt: RECEIVED + n, users: [{ pad }] }));
  }
  await log.close();
  return folder;
}

function consumerOf(scope: Scope, folder: string, now = RECEIVED + 2 * MINUTE_MS, retentionMs = 1e12): LogReader {
  const reader = openEmbeddedLogReader({ folder, retentionMs, now: () => now, consumer: { receiptTime: () => now } });
  scope.defer(() => reader.close());
  return reader;
}

function compressedIn(folder: string): boolean[] {
  return listSegments(folder).map(({ isCompressed }) => isCompressed);
}

async function compressAll(reader: LogReader, folder: string, position = ENTRIES + 1): Promise<void> {
  await eventually('all but the newest are compressed', async () => {
    await reader.commit(0, position);
    return compressedIn(folder).slice(0, -1).every(Boolean);
  });
}

suite('Segments of the log', () => {
  test('are compressed once they are processed and ten seconds old, but never the newest', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await filledLog(scope);
    const count = listSegments(folder).length;
    const early = consumerOf(scope, folder, RECEIVED + 10_000);
    await early.commit(0, ENTRIES + 1);
    await early.close();
    assert.deepEqual(compressedIn(folder), Array(count).fill(false));

    const reader = consumerOf(scope, folder);
    await reader.commit(0, 1);
    await reader.close();
    assert.deepEqual(compressedIn(folder), Array(count).fill(false));
    const before = listSegments(folder).map(({ file }) => statSync(file).size);
    await compressAll(consumerOf(scope, folder), folder);
    assert.deepEqual(compressedIn(folder), [...Array(count - 1).fill(true), false]);
    for (const [index, { file }] of listSegments(folder).slice(0, -1).entries()) {
      assert.ok(statSync(file).size < (before[index] ?? 0) / 3, file);
      assert.equal(zstdDecompressSync(readFileSync(file)).length, before[index]);
    }
  });

  test('are all compressed after one commit', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await filledLog(scope);
    const reader = consumerOf(scope, folder);
    await reader.commit(0, ENTRIES + 1);
    await eventually('all but the newest are compressed', () =>
      Promise.resolve(compressedIn(folder).slice(0, -1).every(Boolean)),
    );
  });

  test('are read, searched and counted like others when they are compressed', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await filledLog(scope);
    const plain = openEmbeddedLogReader({ folder });
    const written = await readAll(plain, 0);
    await compressAll(consumerOf(scope, folder), folder);
    assert.deepEqual(await readAll(plain, 0), written);
    assert.deepEqual(
      (await plain.headers(0, 0, 100)).headers.map(({ traceId }) => traceId),
      written.map(({ traceId }) => traceId),
    );
    assert.equal((await plain.find(0, 0, 'trace-9'))[0]?.position, 9);
    assert.equal(await plain.traceIdAt(0, 9), 'trace-9');
    assert.equal(await plain.missing(0, 1), 0);
    assert.equal(await plain.newestReceivedAt(), RECEIVED + ENTRIES);
    await plain.close();
  });

  test('are continued by a start when all but an empty one are compressed', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await filledLog(scope);
    for (const traceId of ['later', 'latest']) {
      const log = await openEmbeddedLogAppender({ folder, segmentBytes: 65_536, metrics: null, onFatal: assert.fail });
      await log.append(entry({ traceId, receivedAt: RECEIVED + 100 }));
      await log.close();
      const idle = await openEmbeddedLogAppender({ folder, segmentBytes: 65_536, metrics: null, onFatal: assert.fail });
      await idle.close();
      await compressAll(consumerOf(scope, folder), folder, ENTRIES + 3);
    }
    const reader = consumerOf(scope, folder);
    assert.deepEqual(
      (await readAll(reader, 0)).slice(-2).map(({ position, traceId }) => [position, traceId]),
      [
        [ENTRIES + 1, 'later'],
        [ENTRIES + 2, 'latest'],
      ],
    );
    assert.equal(await reader.missing(0, 1), 0);
  });

  test('are removed after the retention, by when their requests were received', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await filledLog(scope);
    await compressAll(consumerOf(scope, folder), folder);
    const [first, second] = listSegments(folder);
    assert.ok(first && second);
    const retentionMs = 10 * MINUTE_MS;
    const before = consumerOf(scope, folder, RECEIVED + second.firstPosition - 2 + retentionMs, retentionMs);
    await before.commit(0, ENTRIES + 1);
    assert.ok(existsSync(first.file));
    const after = consumerOf(scope, folder, RECEIVED + second.firstPosition - 1 + retentionMs, retentionMs);
    await after.commit(0, ENTRIES + 1);
    assert.ok(!existsSync(first.file) && existsSync(second.file));
    // Of a copy nothing older is known than the time of copying: it is kept for longer.
    utimesSync(second.file, new Date(), new Date());
    const later = consumerOf(scope, folder, RECEIVED + 2 * retentionMs, retentionMs);
    await later.commit(0, ENTRIES + 1);
    assert.ok(existsSync(second.file));
  });

  test('survive a crash at any moment of a compression', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await filledLog(scope);
    const reader = consumerOf(scope, folder);
    const written = await readAll(reader, 0);
    const [first] = listSegments(folder);
    assert.ok(first);
    writeFileSync(`${first.file}.zst.draft`, 'half');
    assert.deepEqual(await readAll(reader, 0), written);
    // Complete, and the other not yet removed.
    writeFileSync(`${first.file}.zst`, zstdCompressSync(readFileSync(first.file)));
    assert.equal(listSegments(folder)[0]?.isCompressed, false);
    assert.deepEqual(await readAll(reader, 0), written);
    await compressAll(reader, folder);
    assert.deepEqual(await readAll(reader, 0), written);
    assert.deepEqual(
      readdirSync(folder).filter((name) => name.endsWith('.draft') || name === '0000000000000001.log'),
      [],
    );
  });

  test('that are damaged when compressed are named, and others are read', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await filledLog(scope);
    const reader = consumerOf(scope, folder);
    await compressAll(reader, folder);
    const [first, second] = listSegments(folder);
    assert.ok(first && second);
    const bytes = readFileSync(first.file);
    bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] as number) ^ 0xff;
    writeFileSync(first.file, bytes);
    await assert.rejects(reader.read(0, 0, 1), (error: Error) => {
      assert.match(error.message, /0000000000000001\.log\.zst cannot be read: .* rename \S+ to \S+1\.log\.lost\./);
      return error.name === 'LogCorruptError';
    });
    assert.equal((await reader.read(0, second.firstPosition, 1)).records[0]?.position, second.firstPosition);
    assert.equal(await reader.missing(0, 2), second.firstPosition - 2, 'all of its waiting records');
    // As the message says.
    copyFileSync(first.file, first.file.replace('.zst', '.lost'));
    rmSync(first.file);
    assert.equal((await readAll(reader, 0))[0]?.position, second.firstPosition);
  });

  test('are kept by the time of their file if their last record is damaged', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await filledLog(scope);
    const [first, second] = listSegments(folder);
    assert.ok(first && second);
    const text = readFileSync(first.file, 'latin1');
    const newest = String(RECEIVED + second.firstPosition - 1);
    assert.ok(text.includes(newest));
    writeFileSync(first.file, text.replaceAll(newest, newest.replace('17', '10')), 'latin1');
    // All records are two minutes old, if it is not for that digit.
    await consumerOf(scope, folder, RECEIVED + 2 * MINUTE_MS, 60 * MINUTE_MS).commit(0, ENTRIES + 1);
    assert.ok(existsSync(first.file) || existsSync(`${first.file}.zst`));
  });

  test('show what is missing after them, whether the segment that follows is compressed or not', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await filledLog(scope);
    const [, , third, fourth, fifth] = listSegments(folder);
    assert.ok(third && fourth && fifth);
    const missing = fifth.firstPosition - fourth.firstPosition;
    assert.ok(missing > 1);
    const consumer = consumerOf(scope, folder);
    await eventually('those before the fourth are compressed', async () => {
      await consumer.commit(0, fourth.firstPosition);
      return compressedIn(folder)[2] === true;
    });
    const copy = join(folderIn(scope), 'log');
    cpSync(folder, copy, { recursive: true, preserveTimestamps: true });
    rmSync(fourth.file);
    const reader = openEmbeddedLogReader({ folder });
    assert.equal(await reader.missing(0, third.firstPosition), missing);
    assert.equal(await reader.missing(0, fourth.firstPosition), missing);
    const log = await openEmbeddedLogAppender({ folder, segmentBytes: 65_536, metrics: null, onFatal: assert.fail });
    await log.close();
    assert.ok(existsSync(fourth.file.replace('.log', '.log.missing')));
    assert.equal(await reader.missing(0, fourth.firstPosition), missing);

    await compressAll(consumerOf(scope, copy), copy);
    rmSync(join(copy, `${basename(fourth.file)}.zst`));
    assert.equal(await openEmbeddedLogReader({ folder: copy }).missing(0, fourth.firstPosition), missing);
  });
});

test('A log with compressed segments is examined, backed up, restored and processed again without a store', async (t) => {
  await using scope = new AsyncDisposableStack();
  const folder = openDataFolder(t);
  for (const name of ['ada', 'bob', 'cleo']) await folder.send([{ users: [user(name)] }]);
  const log = join(folder.data, 'log');
  const count = (await folder.withStore((store) => store.ledger(null, { from: null, to: null }))).hours.length;
  await compressAll(consumerOf(scope, log, Date.now()), log, 4);
  assert.deepEqual(compressedIn(log), [true, true, false]);
  const { words } = await doctorHere(folder.data);
  assert.match(words, /✓ log 3 segments, readable at both ends/);
  assert.match(words, /3 events received, and all accounted for/);

  const target = join(folderIn(scope), 'backup.tar');
  const made = await backup(['--to', target, '--data', folder.data, '--verify']);
  assert.equal(made.code, 0, made.err);
  const copy = join(folderIn(scope), 'data');
  const restored = await restore(['--from', target, '--data', copy]);
  assert.equal(restored.code, 0, restored.err);
  assert.deepEqual(compressedIn(join(copy, 'log')), [true, true, false]);

  for (const name of readdirSync(folder.data)) if (name.startsWith('store.db')) rmSync(join(folder.data, name));
  await folder.process();
  const again = await folder.withStore((store) => store.ledger(null, { from: null, to: null }));
  assert.equal(again.hours.length, count);
  assert.equal(
    again.hours.reduce((sum, { events }) => sum + events.stored, 0),
    3,
  );
});

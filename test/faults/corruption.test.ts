/**
 * Damaged files: bytes flipped, sectors zeroed, pages written over each other, files cut short. Damage is noticed and
 * reported with the name of the file, or it is harmless; it is never read as if it were data. What a crash may leave (a
 * last commit cut short) is no damage and does not hold up a start.
 */

import assert from 'node:assert/strict';
import {
  appendFileSync,
  closeSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import { listSegments } from '../../src/backends/embedded/log/segments.ts';
import type { LogReader } from '../../src/log.ts';
import { readAll } from '../contract/log-entries.ts';
import { Connection } from './connection.ts';
import { assertLedger, audit, Ledger, sendNext, startLoad } from './ledger.ts';
import { copyIn, folderIn, launch, refusedStart, type Scope } from './scope.ts';

const SEGMENT = '0000000000000001.log';
const REQUESTS = 30;

interface Left {
  readonly dataFolder: string;
  readonly key: string;
  readonly ledger: Ledger;
  /** The segment that the killed server left. */
  readonly segment: string;
}

const shared = new AsyncDisposableStack();
const killed = { dataFolder: folderIn(shared), key: '', ledger: new Ledger() };

before(async () => {
  const server = await launch(shared, { dataFolder: killed.dataFolder });
  killed.key = server.key;
  const connection = await Connection.open(server.port);
  for (let n = 0; n < REQUESTS; n++) await sendNext(connection, killed.ledger, server.key);
  await server.kill('SIGKILL');
  assert.equal(killed.ledger.acknowledged.size, REQUESTS);
});
after(() => shared.disposeAsync());

/** What a server left that was killed after REQUESTS requests, each a commit of its own: a copy of it for every test. */
function killedServer(scope: Scope): Left {
  const dataFolder = copyIn(scope, killed.dataFolder);
  return { ...killed, dataFolder, segment: join(dataFolder, 'log', SEGMENT) };
}

function flip(file: string, at: number): void {
  const byte = readFileSync(file)[at] ?? 0;
  const descriptor = openSync(file, 'r+');
  try {
    writeSync(descriptor, Buffer.from([byte ^ 0x55]), 0, 1, at);
  } finally {
    closeSync(descriptor);
  }
}

suite('The damaged segment of a killed server', () => {
  for (const [where, at] of [
    ['in the middle', (bytes: number) => Math.floor(bytes / 2)],
    ['in its head', () => 17],
    ['in its first record', () => 600],
    ['in the length of its first record', (_bytes: number, text: string) => text.indexOf('\n', 30) + 2 + 10],
    ['in the last record but one', (_bytes: number, text: string) => text.lastIndexOf('"tested"', text.length - 300)],
  ] as const) {
    test(`${where} makes the start refuse, in words, and changes nothing`, async () => {
      await using scope = new AsyncDisposableStack();
      const { dataFolder, ledger, segment } = killedServer(scope);
      const position = at(statSync(segment).size, readFileSync(segment, 'latin1'));
      flip(segment, position);
      const damaged = readFileSync(segment);
      assert.match(await refusedStart({ dataFolder }), new RegExp(`${SEGMENT} is damaged: `));
      assert.ok(readFileSync(segment).equals(damaged), 'the refused start changed the file');

      flip(segment, position);
      await launch(scope, { dataFolder });
      await assertLedger(dataFolder, ledger);
    });
  }

  test('that is only cut short within the last commit lets the start continue with all others', async () => {
    await using scope = new AsyncDisposableStack();
    const { dataFolder, ledger, segment } = killedServer(scope);
    truncateSync(segment, statSync(segment).size - 100);
    await launch(scope, { dataFolder });
    // It was acknowledged here, so the start marks its place; an operator has to decide to do without it.
    const mark = listSegments(join(dataFolder, 'log')).find(({ state }) => state === 'missing')?.file ?? '';
    renameSync(mark, mark.replace('.missing', '.lost'));
    const found = await audit(dataFolder, ledger);
    assert.deepEqual(found.missing, [...ledger.acknowledged.keys()].slice(-1));
    assert.deepEqual([found.doubled, found.altered], [[], []]);
  });

  test('that has garbage or zeros behind its end lets the start continue with everything', async () => {
    await using scope = new AsyncDisposableStack();
    const { dataFolder, ledger, segment } = killedServer(scope);
    appendFileSync(segment, Buffer.concat([Buffer.alloc(20_000, 0xa7), Buffer.alloc(20_000)]));
    await launch(scope, { dataFolder });
    await assertLedger(dataFolder, ledger);
  });

  for (const isEndKnown of [true, false]) {
    const where = isEndKnown ? 'at the end that log-ends has' : 'far behind it without log-ends';
    test(`can be given up by renaming the segment: the start continues ${where}, and no position is used twice`, async () => {
      await using scope = new AsyncDisposableStack();
      const { dataFolder, key, segment } = killedServer(scope);
      flip(segment, Math.floor(statSync(segment).size / 2));
      const words = await refusedStart({ dataFolder });
      const [, from = '', to = ''] = /rename (\S+) to (\S+\.lost)/.exec(words) ?? [];
      renameSync(from, to);
      if (!isEndKnown) rmSync(join(dataFolder, 'log-ends'));
      const server = await launch(scope, { dataFolder });
      const ledger = new Ledger();
      await sendNext(await Connection.open(server.port), ledger, key);
      await assertLedger(dataFolder, ledger);
      const reader = readerOf(scope, dataFolder);
      const [record] = (await reader.read(0, REQUESTS + 1, 1_000_000)).records;
      assert.equal(record?.position, isEndKnown ? REQUESTS + 1 : 1 + 1_000_000_000);
    });
  }
});

function readerOf(scope: Scope, dataFolder: string): LogReader {
  const reader = openEmbeddedLogReader({ folder: join(dataFolder, 'log'), retentionMs: 0, now: Date.now });
  scope.defer(() => reader.close());
  return reader;
}

suite('A damaged sealed segment', () => {
  test('is named with the position when it is read, while the others are served and events are taken', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const server = await launch(scope, { dataFolder, args: ['--log-segment', '1MB'] });
    const ledger = new Ledger(2_000);
    const load = startLoad(scope, server, server.key, ledger);
    const segments = () => listSegments(join(dataFolder, 'log'));
    while (segments().length < 4) await new Promise(setImmediate);
    await load.stop();
    assert.equal(await server.stop(), 0);

    const [first, second, third] = segments();
    assert.ok(first && second && third);
    const damagedAt = readFileSync(second.file).lastIndexOf('"tested"');
    flip(second.file, damagedAt);
    const again = await launch(scope, { dataFolder, args: ['--log-segment', '1MB'] });
    const reader = readerOf(scope, dataFolder);
    await assert.rejects(readAll(reader, 0), (error: Error) => {
      assert.equal(error.name, 'LogCorruptError');
      assert.ok(error.message.includes(second.file));
      assert.match(error.message, /position \d+/);
      return true;
    });
    const others = await readAll(reader, 0, third.firstPosition);
    assert.equal(others[0]?.position, third.firstPosition);
    assert.equal((await reader.read(0, 0, 1)).records[0]?.position, first.firstPosition);
    const more = new Ledger();
    const response = await sendNext(await Connection.open(again.port), more, server.key);
    assert.equal(response.status, 202);

    renameSync(second.file, `${second.file}.lost`);
    const kept = await readAll(reader, 0);
    assert.ok(kept.every(({ position }) => position < second.firstPosition || position >= third.firstPosition));
    assert.deepEqual(kept.filter(({ position }) => position < second.firstPosition).length, second.firstPosition - 1);
  });
});

suite('A damaged key file', () => {
  test('makes the start refuse, in words', async () => {
    await using scope = new AsyncDisposableStack();
    const { dataFolder } = killedServer(scope);
    const file = join(dataFolder, 'keys.db');
    for (const suffix of ['-wal', '-shm']) rmSync(file + suffix, { force: true });
    writeFileSync(file, Buffer.alloc(8_192, 'garbage'));
    assert.match(await refusedStart({ dataFolder }), /^sluice: The key file \S+ is damaged/m);
  });
});

/** Prepared records go from thread to thread and come out as they went in, and in the order of the log. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { MessageChannel, type Worker } from 'node:worker_threads';
import { type LogBatch, LogCorruptError, type LogReader, type LogRecord, LogUnavailableError } from '../../src/log.ts';
import { Packer } from '../../src/processor/packer.ts';
import { packRecord } from '../../src/processor/packing.ts';
import type { PreparedRecord } from '../../src/processor/prepared.ts';
import { prepareRecord } from '../../src/processor/prepare.ts';
import { serveRecords, threadSource, inlineSource } from '../../src/processor/source.ts';
import { unpack } from '../../src/processor/unpacking.ts';
import { entriesOf } from './history.ts';

const OPTIONS = { defaultCountry: 'DE', junkValues: new Set<string>() };
const BATCH_RECORDS = 7;

const RECORDS: readonly LogRecord[] = entriesOf(31, 500).map((entry, position) =>
  Object.assign({ partition: 0, position, firstUserIndex: 0 }, entry),
);

/** Only what a source asks of a log; the positions that were read are kept. */
function logOf(records: readonly LogRecord[], reads: number[] = [], count = BATCH_RECORDS): LogReader {
  const read = async (_partition: number, position: number): Promise<LogBatch> => {
    reads.push(position);
    const some = records.slice(position, position + count);
    return { records: some, next: position + some.length };
  };
  return { read } as Partial<LogReader> as LogReader;
}

/** Both ends of the real protocol, over a real channel, in one thread. */
function connected(log: LogReader) {
  const { port1, port2 } = new MessageChannel();
  serveRecords(port2, log, OPTIONS);
  return { source: threadSource(port1 as unknown as Worker), close: () => port1.close() };
}

function throughPacker(records: readonly PreparedRecord[]): readonly PreparedRecord[] {
  const packer = new Packer();
  for (const record of records) packRecord(packer, record);
  return unpack(packer.finish());
}

suite('Packing', () => {
  test('a mixed history comes out as it went in', () => {
    const prepared = RECORDS.map((record) => prepareRecord(record, OPTIONS));
    assert.ok(prepared.some(({ rejections }) => rejections.length > 0));
    assert.ok(prepared.some(({ users }) => users.some(({ junk }) => junk.length > 0)));
    assert.ok(prepared.some(({ users }) => users.some(({ keys }) => keys.some(({ raw, value }) => raw !== value))));
    assert.ok(prepared.some(({ header }) => header.idempotencyKey !== null));
    assert.deepEqual(throughPacker(prepared), prepared);
  });

  test('nothing, and texts that are empty, null, or beyond Latin-1, come out as they went in', () => {
    assert.deepEqual(throughPacker([]), []);
    const [record] = RECORDS.map((one) => prepareRecord(one, OPTIONS));
    assert.ok(record);
    const odd = {
      ...record,
      users: [],
      rejections: ['', 'ü', '日本', '👋🏽', '\0'].map((payload, userIndex) => ({ userIndex, message: '', payload })),
    };
    assert.deepEqual(throughPacker([odd]), [odd]);
  });
});

suite('A source in another thread', () => {
  test('gives the records that a source on the spot gives, batch by batch, and reads nothing twice', async () => {
    for (const bytesMax of [1, 2_000, 1_000_000]) {
      const reads: number[] = [];
      const { source, close } = connected(logOf(RECORDS, reads));
      const { records: expected } = await inlineSource(logOf(RECORDS, [], RECORDS.length), OPTIONS).read(0, 0, 1);
      const found: PreparedRecord[] = [];
      for (let position = 0; position < RECORDS.length; ) {
        const { records, next, problem } = await source.read(0, position, bytesMax);
        assert.equal(problem, null);
        assert.equal(next, position + records.length);
        if (bytesMax === 1) assert.equal(records.length, 1);
        found.push(...records);
        position = next;
      }
      assert.deepEqual(found, expected);
      assert.equal(new Set(reads).size, reads.length);
      close();
    }
  });

  test('goes where it is asked to go, whatever it has read ahead', async () => {
    const { source, close } = connected(logOf(RECORDS));
    for (const position of [0, 1, 7, 0, 3, 499, 10, 17, 18, 16]) {
      const { records, next } = await source.read(0, position, 1);
      assert.equal(records[0]?.header.position, position);
      assert.equal(next, position + 1);
    }
    close();
  });

  test('sees what was appended after it had reached the end', async () => {
    const records = RECORDS.slice(0, 2);
    const { source, close } = connected(logOf(records));
    assert.equal((await source.read(0, 0, 1)).next, 1);
    assert.equal((await source.read(0, 1, 1)).next, 2);
    assert.equal((await source.read(0, 2, 1)).next, 2);
    assert.equal((await source.read(0, 2, 1)).next, 2);
    records.push(...RECORDS.slice(2, 4));
    assert.equal((await source.read(0, 2, 1)).next, 3);
    assert.equal((await source.read(0, 3, 1)).next, 4);
    close();
  });

  test('tells which records cannot be prepared, and continues after them', async () => {
    const records = RECORDS.with(9, { ...(RECORDS[9] as LogRecord), userCount: 77 });
    const { source, close } = connected(logOf(records));
    assert.equal((await source.read(0, 8, 1)).problem, null);
    const bad = await source.read(0, 9, 1);
    assert.match(bad.problem?.message ?? '', /77/);
    assert.deepEqual([bad.records, bad.next], [[], 10]);
    assert.equal((await source.read(0, 10, 1)).records.length, 1);
    close();
  });

  test('asks again after a failure of which it heard too early', async () => {
    let isBroken = false;
    const whole = logOf(RECORDS);
    const read: LogReader['read'] = async (...place) => {
      if (isBroken) throw new LogUnavailableError('no more files');
      return whole.read(...place);
    };
    const { source, close } = connected({ read } as Partial<LogReader> as LogReader);
    isBroken = true;
    await assert.rejects(source.read(0, BATCH_RECORDS - 1, 1), LogUnavailableError);
    isBroken = false;
    assert.equal((await source.read(0, BATCH_RECORDS - 1, 1)).next, BATCH_RECORDS);
    for (let position = 0; position < RECORDS.length; position++) {
      isBroken = position === BATCH_RECORDS - 2;
      assert.equal((await source.read(0, position, 1)).next, position + 1);
      // What was asked for early has failed by now.
      if (isBroken) await new Promise((resolve) => setImmediate(resolve));
      isBroken = false;
    }
    close();
  });

  test('a damaged log is still a damaged log on the other side', async () => {
    const read = async (): Promise<LogBatch> => {
      throw new LogCorruptError('position 3 is damaged');
    };
    const { source, close } = connected({ read } as Partial<LogReader> as LogReader);
    await assert.rejects(source.read(0, 0, 1), LogCorruptError);
    close();
  });

  test('memory of large bodies is given back once they are prepared, and of packed texts once they are unpacked', async () => {
    const [first] = RECORDS;
    assert.ok(first);
    const text = Buffer.from(first.body).toString().trimEnd();
    const body = new Uint8Array(Buffer.from(text.padEnd(2 * 1024 * 1024, ' ')));
    const expected = [prepareRecord({ ...first, body }, OPTIONS)];
    const { source, close } = connected(logOf([{ ...first, body }]));
    const { records } = await source.read(0, 0, 1);
    close();
    assert.deepEqual(records, expected);
    assert.equal(body.buffer.detached, true);
    const packer = new Packer();
    for (const record of expected) packRecord(packer, record);
    const packed = packer.finish();
    unpack(packed);
    assert.deepEqual([packed.narrow.buffer.detached, packed.wide.buffer.detached], [true, true]);
  });
});

/** Prepared records go from thread to thread and come out as they went in, and in the order of the log. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { MessageChannel, type Worker } from 'node:worker_threads';
import { type LogBatch, LogCorruptError, type LogReader, type LogRecord } from '../../src/log.ts';
import { pack, unpack } from '../../src/processor/packing.ts';
import { type PreparedRecord, prepareRecord } from '../../src/processor/prepare.ts';
import { serveRecords, sourceInThread, sourceOnTheSpot } from '../../src/processor/source.ts';
import { entriesOf } from './history.ts';

const OPTIONS = { defaultCountry: 'DE', junkValues: new Set<string>() };
const BATCH_RECORDS = 7;

const RECORDS: readonly LogRecord[] = entriesOf(31, 500).map((entry, position) =>
  Object.assign({ partition: 0, position, firstUserIndex: 0 }, entry),
);

/** Only what a source asks of a log; the positions that were read are kept. */
function logOf(records: readonly LogRecord[], reads: number[] = []): LogReader {
  const read = async (_partition: number, position: number): Promise<LogBatch> => {
    reads.push(position);
    const some = records.slice(position, position + BATCH_RECORDS);
    return { records: some, next: position + some.length };
  };
  return { read } as Partial<LogReader> as LogReader;
}

/** Both ends of the real protocol, over a real channel, in one thread. */
function connected(log: LogReader) {
  const { port1, port2 } = new MessageChannel();
  serveRecords(port2, log, OPTIONS);
  return { source: sourceInThread(port1 as unknown as Worker), close: () => port1.close() };
}

/** What was packed lazily, as the objects that it stands for. */
function plain(records: readonly PreparedRecord[]): PreparedRecord[] {
  return records.map(({ header, users, rejections }) => ({
    header,
    users: users.map(({ origin, keyKind, person, keys, junk, events, statement }) => {
      return { origin, keyKind, person, keys, junk, events, statement };
    }),
    rejections,
  }));
}

suite('Packing', () => {
  test('a mixed history comes out as it went in', () => {
    const prepared = RECORDS.map((record) => prepareRecord(record, OPTIONS));
    assert.ok(prepared.some(({ rejections }) => rejections.length > 0));
    assert.ok(prepared.some(({ users }) => users.some(({ junk }) => junk.length > 0)));
    assert.ok(prepared.some(({ users }) => users.some(({ keys }) => keys.some(({ raw, value }) => raw !== value))));
    assert.ok(prepared.some(({ header }) => header.idempotencyKey !== null));
    assert.deepEqual(plain(unpack(pack(prepared))), prepared);
  });

  test('nothing, and texts that are empty, null, or beyond Latin-1, come out as they went in', () => {
    assert.deepEqual(unpack(pack([])), []);
    const [record] = RECORDS.map((one) => prepareRecord(one, OPTIONS));
    assert.ok(record);
    const odd = {
      ...record,
      users: [],
      rejections: ['', 'ü', '日本', '👋🏽', '\0'].map((payload, userIndex) => ({ userIndex, message: '', payload })),
    };
    assert.deepEqual(plain(unpack(pack([odd]))), [odd]);
  });
});

suite('A source in another thread', () => {
  test('gives the records that a source on the spot gives, and reads one batch ahead', async () => {
    const reads: number[] = [];
    const { source, close } = connected(logOf(RECORDS, reads));
    const near = sourceOnTheSpot(logOf(RECORDS), OPTIONS);
    for (let position = 0; position < RECORDS.length; ) {
      const [far, expected] = await Promise.all([source.read(0, position, 1), near.read(0, position, 1)]);
      assert.deepEqual({ ...far, records: plain(far.records) }, expected);
      position = far.next;
    }
    assert.equal(new Set(reads).size, reads.length, 'nothing is read twice');
    close();
  });

  test('goes where it is asked to go, whatever it has read ahead', async () => {
    const { source, close } = connected(logOf(RECORDS));
    for (const position of [0, 7, 0, 3, 499, 10, 17]) {
      const { records, next } = await source.read(0, position, 1);
      assert.equal(records[0]?.header.position, position);
      assert.equal(next, Math.min(position + BATCH_RECORDS, RECORDS.length));
    }
    close();
  });

  test('sees what was appended after it had reached the end', async () => {
    const records = RECORDS.slice(0, 5);
    const { source, close } = connected(logOf(records));
    assert.equal((await source.read(0, 0, 1)).next, 5);
    assert.equal((await source.read(0, 5, 1)).next, 5);
    records.push(...RECORDS.slice(5, 9));
    assert.equal((await source.read(0, 5, 1)).next, 9);
    close();
  });

  test('tells which records cannot be prepared, and goes on behind them', async () => {
    const records = RECORDS.with(9, { ...(RECORDS[9] as LogRecord), userCount: 77 });
    const { source, close } = connected(logOf(records));
    assert.equal((await source.read(0, 0, 1)).problem, null);
    const bad = await source.read(0, 7, 1);
    assert.match(bad.problem?.message ?? '', /77/);
    assert.deepEqual([bad.records, bad.next], [[], 14]);
    assert.equal((await source.read(0, 14, 1)).records.length, BATCH_RECORDS);
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
});
